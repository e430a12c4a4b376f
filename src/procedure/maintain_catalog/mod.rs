//! `maintain_catalog`: `expire_snapshots` and `remove_orphan_files` on each table of a catalog, or of a namespace in it.
//!
//! What is done to a table is exactly what the two do to it alone, with its own policy and all their guards; nothing here
//! reads a manifest, lists a table's folder or deletes a file. This is about many tables: which of them, in which order, until
//! when, and that no table's failure stops another's turn. The one guard that needs to know of all tables, whether another
//! one uses the same location, is told what the plan saw ([`crate::catalog::Survey`]) instead of loading them at each turn.

mod dropped;
mod gain;
mod one_table;
mod plan;
mod rows;
mod selection;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use futures::StreamExt;
use tracing::Instrument;

use self::one_table::{Budget, Turn, maintain};
use self::plan::{CatalogPlan, PlannedTable};
use self::rows::{Status, TableRow, Total, to_batch};
use self::selection::Selection;
use super::remove_orphan_files::DEFAULT_ORPHAN_AGE_MS;
use super::unfinished_runs::DRY_RUN;
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::report::Operation;

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct MaintainCatalogProcedure;

#[derive(Debug, Clone)]
struct MaintainCatalogCall {
    /// A catalog, or a namespace in one.
    catalog: String,
    selection: Selection,
    options: TableOptions,
    /// No file goes when all tables together have lost this many.
    max_total_delete_count: Option<u64>,
    /// No table is begun after this time, ms.
    max_run_time_ms: Option<i64>,
    /// How many tables are maintained at once.
    concurrency: usize,
    /// Also look for folders of tables that the catalog doesn't have.
    report_dropped: bool,
    /// What ages were measured against when the call was made, ms since the epoch.
    now_ms: i64,
    described: String,
}

/// What is done to each table.
#[derive(Debug, Clone)]
struct TableOptions {
    /// In their order.
    operations: Vec<Operation>,
    /// The age limit of snapshots, ms since the epoch; the table's own where this says nothing.
    older_than_ms: Option<i64>,
    /// The session's floor for the age of snapshots, ms.
    min_retention_ms: i64,
    /// The age limit of orphans, ms since the epoch.
    orphan_cutoff_ms: i64,
    /// Refuse an operation that deletes more files than this.
    max_delete_count: Option<u64>,
    dry_run: bool,
}

impl Procedure for MaintainCatalogProcedure {
    fn name(&self) -> &'static str {
        "maintain_catalog"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let count = |name| arguments.integer(name).map(i64::unsigned_abs);
        let concurrency = arguments.integer("concurrency").and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
        let max_total_delete_count = count("max_total_delete_count");
        if max_total_delete_count.is_some() && concurrency > 1 {
            return Err(arguments.error(
                "max_total_delete_count needs one table after the other: each may delete what those before it left; leave \
                 concurrency out",
            ));
        }
        Ok(Arc::new(MaintainCatalogCall {
            catalog: arguments.text("catalog").unwrap_or_default(),
            selection: Selection::of(&arguments)?,
            options: table_options(&arguments, options)?,
            max_total_delete_count,
            max_run_time_ms: arguments.duration("max_run_time"),
            concurrency,
            report_dropped: arguments.boolean("report_dropped").unwrap_or(false),
            now_ms: arguments.now_ms,
            described: arguments.describe(),
        }))
    }
}

fn table_options(arguments: &Arguments, options: &MaintenanceOptions) -> Result<TableOptions> {
    let (expiry_floor, orphan_floor) = ("expire_snapshots_min_retention", "remove_orphan_files_min_retention");
    let min_retention_ms = super::duration_option(expiry_floor, &options.expire_snapshots_min_retention)?;
    let orphan_floor_ms = super::duration_option(orphan_floor, &options.remove_orphan_files_min_retention)?;
    let threshold = arguments.duration("retention_threshold").map(|ago| arguments.now_ms.saturating_sub(ago));
    let operations = operations(arguments)?;
    let expires = operations.contains(&Operation::ExpireSnapshots);
    super::require_retention(arguments, threshold.filter(|_| expires), min_retention_ms, expiry_floor)?;
    let orphans = arguments.timestamp("orphan_older_than").or(threshold);
    let removes = operations.contains(&Operation::RemoveOrphanFiles);
    super::require_retention(arguments, orphans.filter(|_| removes), orphan_floor_ms, orphan_floor)?;
    if orphans.is_some_and(|older_than| older_than > arguments.now_ms) {
        return Err(arguments.error(
            "orphan_older_than lies in the future: that would delete the files of writes that are running now. Leave it out \
             for the default of 3 days, or give a time in the past",
        ));
    }
    let default_age_ms = DEFAULT_ORPHAN_AGE_MS.max(orphan_floor_ms);
    Ok(TableOptions {
        operations,
        older_than_ms: threshold,
        min_retention_ms,
        orphan_cutoff_ms: orphans.unwrap_or_else(|| arguments.now_ms.saturating_sub(default_age_ms)),
        max_delete_count: arguments.integer("max_delete_count").map(i64::unsigned_abs),
        dry_run: arguments.boolean("dry_run").unwrap_or(false),
    })
}

/// What a table's turn can be made of, in this order.
const OPERATIONS: [Operation; 2] = [Operation::ExpireSnapshots, Operation::RemoveOrphanFiles];

/// Both operations, or those that the call names, in any order.
fn operations(arguments: &Arguments) -> Result<Vec<Operation>> {
    let Some(text) = arguments.text("operations") else { return Ok(OPERATIONS.to_vec()) };
    let named: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_known = |name: &&str| OPERATIONS.iter().any(|operation| operation.as_str().eq_ignore_ascii_case(name));
    if let Some(unknown) = named.iter().find(|name| !is_known(name)) {
        return Err(arguments
            .error(format!("argument operations: '{unknown}' is none of expire_snapshots and remove_orphan_files")));
    }
    let is_named = |operation: &Operation| named.iter().any(|name| operation.as_str().eq_ignore_ascii_case(name));
    Ok(OPERATIONS.into_iter().filter(is_named).collect())
}

#[async_trait]
impl BoundCall for MaintainCatalogCall {
    fn schema(&self) -> SchemaRef {
        rows::schema()
    }

    fn dry_run(&self) -> bool {
        self.options.dry_run
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        let mut call = self.clone();
        call.options.dry_run = true;
        Arc::new(call)
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let began_ms = context.maintenance.now_ms();
        let scope = context.maintenance.scope(&self.catalog)?;
        let plan = CatalogPlan::make(self, &scope, &context.task).await?;
        let CatalogPlan { tables, rows: settled, survey, mut notices } = plan;
        let mut rows = vec![];
        for turn in self.take_turns(tables, began_ms, &context).await {
            rows.push(turn.row);
            notices.extend(turn.notices);
        }
        rows.extend(settled);
        if self.report_dropped {
            let (unknown, said) = dropped::find(&scope, &survey, &context).await;
            rows.extend(unknown);
            notices.extend(said);
        }
        let total = Total::of(&rows, self.options.dry_run);
        notices.push(total.describe(&self.catalog));
        let incomplete = total.incomplete(&self.catalog, context.cancellation.is_cancelled());
        Ok(CallOutcome { batches: vec![to_batch(&rows)?], notices, metrics: Some(total.metrics), incomplete })
    }
}

impl MaintainCatalogCall {
    /// Maintains the tables in their order, `concurrency` at once.
    async fn take_turns(&self, tables: Vec<PlannedTable>, began_ms: i64, context: &RunContext) -> Vec<Turn> {
        let work = context.work();
        work.add(|work| &work.tables_known, tables.len());
        work.is_shared.store(self.concurrency > 1, Ordering::Relaxed);
        let options = Arc::new(self.options.clone());
        let budget = Arc::new(Budget::new(self.max_total_delete_count));
        let turns = tables.into_iter().map(|table| {
            let (options, budget, context) = (Arc::clone(&options), Arc::clone(&budget), context.clone());
            let work = Arc::clone(&work);
            async move {
                let turn = match self.reason_to_stop(began_ms, &context) {
                    Some(why) => Turn { row: table.row.because(why), notices: vec![] },
                    None => in_a_task_of_its_own(table, options, budget, context).await,
                };
                work.add(|work| &work.tables_done, 1);
                turn
            }
        });
        futures::stream::iter(turns.collect::<Vec<_>>()).buffered(self.concurrency).collect().await
    }

    /// Why no further table is begun.
    fn reason_to_stop(&self, began_ms: i64, context: &RunContext) -> Option<String> {
        if context.cancellation.is_cancelled() {
            return Some("the call was cancelled before".into());
        }
        let elapsed_ms = context.maintenance.now_ms().saturating_sub(began_ms);
        let max_ms = self.max_run_time_ms.filter(|max_ms| elapsed_ms >= *max_ms)?;
        Some(format!("max_run_time ({}) had passed before", crate::time::format_duration(max_ms)))
    }
}

/// A table's turn. Should it panic, the others still have theirs.
async fn in_a_task_of_its_own(
    table: PlannedTable,
    options: Arc<TableOptions>,
    budget: Arc<Budget>,
    context: RunContext,
) -> Turn {
    let row = table.row.clone();
    // Opened here, so that it lies in the span of the run.
    let span = context.work().begin_one_of_many(&row.table);
    match tokio::spawn(maintain(table, options, budget, context).instrument(span)).await {
        Ok(turn) => turn,
        Err(error) => {
            let error = Error::Engine(Arc::new(DataFusionError::ExecutionJoin(Box::new(error))));
            Turn { row: TableRow { status: Status::Failed, ..row }.because(error.to_string()), notices: vec![] }
        }
    }
}

const PARAMETERS: &[Parameter] = &[
    parameter("catalog", ParameterKind::Catalog, Some(0), "the catalog, or a namespace in it: catalog.namespace"),
    parameter(
        "include",
        ParameterKind::Text,
        Some(1),
        "only these tables: names with * and ?, with commas between them",
    ),
    parameter("exclude", ParameterKind::Text, Some(2), "not these tables, whatever else names them"),
    parameter(
        "operations",
        ParameterKind::Text,
        None,
        "what is done to each table: 'expire_snapshots,remove_orphan_files' or one of the two",
    ),
    DRY_RUN,
    parameter("max_run_time", ParameterKind::Duration, None, "begin no table after this time"),
    parameter(
        "retention_threshold",
        ParameterKind::Duration,
        None,
        "how old snapshots and orphans must be; without it each table's own policy counts, and 3 days for orphans",
    ),
    parameter("orphan_older_than", ParameterKind::Timestamp, None, "only orphans last modified before this go"),
    parameter(
        "max_delete_count",
        ParameterKind::Integer(0),
        None,
        "refuse an operation that deletes more files of a table than this",
    ),
    parameter(
        "max_total_delete_count",
        ParameterKind::Integer(0),
        None,
        "refuse an operation with which all tables together would lose more files than this",
    ),
    parameter("concurrency", ParameterKind::Integer(1), None, "how many tables are maintained at once; one by default"),
    parameter(
        "report_dropped",
        ParameterKind::Boolean,
        None,
        "also report folders beside the tables that look like tables but are none of the catalog's; they are left alone",
    ),
];
