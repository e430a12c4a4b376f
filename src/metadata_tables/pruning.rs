//! Which manifests and manifest lists have rows that a query can want.
//!
//! A manifest list says whether a manifest has data files or delete files, and how many entries of each status. So a condition on
//! `content` and `status` is asked for each of their few values, by the engine itself, and a manifest without an entry that can satisfy
//! all conditions is not read. A condition on `reference_snapshot_id` is asked for each snapshot. Conditions that need anything else
//! are left alone, and all of them are asked again for each row.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::PhysicalExpr;

use super::MetadataTable;
use super::schema::DATA_FILE;
use crate::scan::{EntryCounts, ListedManifest};
use crate::table::Snapshot;

const CONTENT: &str = "content";
const STATUS: &str = "status";
const REFERENCE: &str = "reference_snapshot_id";

/// What an entry can be: all pairs of a status (existing, added, deleted) and the content of its file (data, position deletes,
/// equality deletes).
const KINDS: [(i32, i32); 9] = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];

/// What the conditions of a query leave.
#[derive(Debug, Clone)]
pub(super) struct Pruning {
    /// Which of [`KINDS`] can have a row.
    wanted: [bool; KINDS.len()],
    /// What a snapshot must satisfy for its list to have a row.
    of_snapshots: Vec<Arc<dyn PhysicalExpr>>,
    /// The conditions that are used, as text.
    conditions: Vec<String>,
}

impl Pruning {
    /// True if it can use a condition on a table.
    pub(super) fn can_use(table: MetadataTable, condition: &Expr) -> bool {
        on_known(table, condition).is_some()
    }

    /// What these conditions leave. One that can't be asked of what is known leaves everything.
    pub(super) fn of(table: MetadataTable, conditions: &[Expr], session: &dyn Session) -> Self {
        let live_only = !table.is_of_entries();
        let wanted = KINDS.map(|(status, _)| status != 2 || !live_only);
        let mut pruning = Self { wanted, of_snapshots: vec![], conditions: vec![] };
        for condition in conditions {
            let Some(asked) = on_known(table, condition) else { continue };
            let Ok(known) = DFSchema::try_from(known_columns(table)) else { continue };
            let Ok(asked) = session.create_physical_expr(asked, &known) else { continue };
            if table == MetadataTable::AllManifests {
                pruning.of_snapshots.push(asked);
            } else {
                let Some(satisfied) = satisfied(&asked, kinds(table)) else { continue };
                pruning.wanted.iter_mut().zip(satisfied).for_each(|(wanted, satisfied)| *wanted &= satisfied);
            }
            pruning.conditions.push(condition.to_string());
        }
        pruning
    }

    /// True if a manifest can have a row, as far as its list says.
    pub(super) fn keeps(&self, manifest: &ListedManifest) -> bool {
        let EntryCounts { added, existing, deleted } = manifest.entry.manifest.expected;
        self.wanted.iter().zip(KINDS).any(|(wanted, (status, content))| {
            let count = match status {
                0 => existing,
                1 => added,
                _ => deleted,
            };
            *wanted && manifest.is_deletes == (content != 0) && count != Some(0)
        })
    }

    /// The snapshots whose lists can have a row.
    pub(super) fn kept<'s>(&self, snapshots: Vec<&'s Snapshot>) -> Vec<&'s Snapshot> {
        let ids: Int64Array = snapshots.iter().map(|snapshot| Some(snapshot.snapshot_id)).collect();
        let known = RecordBatch::try_new(known_columns(MetadataTable::AllManifests), vec![Arc::new(ids)]);
        let Ok(known) = known else { return snapshots };
        let satisfied: Vec<_> =
            self.of_snapshots.iter().filter_map(|condition| satisfied(condition, known.clone())).collect();
        let keeps = |place: usize| satisfied.iter().all(|satisfied| satisfied.get(place) != Some(&false));
        snapshots.into_iter().enumerate().filter(|(place, _)| keeps(*place)).map(|(_, snapshot)| snapshot).collect()
    }
}

impl fmt::Display for Pruning {
    /// Behind what the node shows of itself; nothing without conditions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.conditions.is_empty() {
            true => Ok(()),
            false => write!(f, ", pruned_by=[{}]", self.conditions.join(", ")),
        }
    }
}

/// The columns whose values are known before manifests or manifest lists are read.
fn known_columns(table: MetadataTable) -> SchemaRef {
    let column = |name, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(match table {
        MetadataTable::AllManifests => vec![column(REFERENCE, DataType::Int64)],
        MetadataTable::Entries | MetadataTable::AllEntries => {
            vec![column(STATUS, DataType::Int32), column(CONTENT, DataType::Int32)]
        }
        MetadataTable::Files | MetadataTable::AllFiles => vec![column(CONTENT, DataType::Int32)],
        _ => vec![],
    }))
}

/// The known values of [`KINDS`].
fn kinds(table: MetadataTable) -> RecordBatch {
    let statuses = || -> ArrayRef { Arc::new(Int32Array::from_iter_values(KINDS.map(|(status, _)| status))) };
    let contents = || -> ArrayRef { Arc::new(Int32Array::from_iter_values(KINDS.map(|(_, content)| content))) };
    let schema = known_columns(table);
    let columns = schema.fields().iter().map(|field| if field.name() == STATUS { statuses() } else { contents() });
    let columns = columns.collect();
    RecordBatch::try_new(schema, columns).unwrap_or_else(|_| RecordBatch::new_empty(Arc::new(Schema::empty())))
}

/// Which rows of a batch satisfy a condition; `None`: it can't be told.
fn satisfied(condition: &Arc<dyn PhysicalExpr>, known: RecordBatch) -> Option<Vec<bool>> {
    let rows = known.num_rows();
    let outcome = condition.evaluate(&known).and_then(|value| value.into_array(rows)).ok()?;
    let outcome = outcome.as_boolean_opt()?;
    Some(outcome.iter().map(|satisfied| satisfied == Some(true)).collect())
}

/// A condition as one on the known columns; `None`: it needs something else.
fn on_known(table: MetadataTable, condition: &Expr) -> Option<Expr> {
    if condition.is_volatile() {
        return None;
    }
    let to_known = |expr: Expr| {
        Ok(match expr {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::from_name(column.name))),
            expr if table.is_of_entries() && is_content_of_file(&expr) => {
                Transformed::new(Expr::Column(Column::from_name(CONTENT)), true, TreeNodeRecursion::Jump)
            }
            expr => Transformed::no(expr),
        })
    };
    let asked = condition.clone().transform_down(to_known).ok()?.data;
    let known = known_columns(table);
    let columns = asked.column_refs();
    let all_known = columns.iter().all(|column| known.column_with_name(&column.name).is_some());
    // The entries' own columns have no content: it is in their files.
    (all_known && !columns.is_empty()).then_some(asked)
}

/// `data_file['content']`
fn is_content_of_file(expr: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expr else { return false };
    match call.args.as_slice() {
        [Expr::Column(column), Expr::Literal(ScalarValue::Utf8(Some(field)), _)] => {
            call.func.name() == "get_field" && column.name == DATA_FILE && field == CONTENT
        }
        _ => false,
    }
}
