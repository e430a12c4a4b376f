//! `table_health`: what a table is made of, what is wrong with it, and what to do, the greatest gain first.
//!
//! The usual look reads the metadata and the current snapshot's manifest list: milliseconds on any table. What these don't tell
//! is NULL, and what a writer merely noted is marked as an estimate. `exact => true` reads the manifests, `orphans => true`
//! lists the table's folders. Nothing is ever changed.

mod entries;
mod facts;
mod findings;
mod fold;
mod known;
mod listed;
mod reclaim;
mod recommendations;
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;

use self::facts::Facts;
use self::listed::Listed;
use self::reclaim::Expiry;
use self::rows::Rows;
use super::expire_snapshots::{self, ExpireSnapshots};
use super::remove_orphan_files::{self, RemoveOrphanFiles};
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, Value, parameter};
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::progress::{RunStage, stage};

/// `small_file_threshold` when it isn't given: 100 MiB.
const DEFAULT_SMALL_FILE_BYTES: i64 = 100 << 20;

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct TableHealthProcedure;

#[derive(Debug, Clone)]
struct TableHealthCall {
    table: String,
    /// Read the manifests.
    exact: bool,
    /// List the table's folders.
    orphans: bool,
    small_file_bytes: i64,
    rows: Rows,
    /// What the recommended calls would do.
    expire: ExpireSnapshots,
    remove: RemoveOrphanFiles,
    described: String,
}

impl Procedure for TableHealthProcedure {
    fn name(&self) -> &'static str {
        "table_health"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let table = arguments.table()?;
        let exact = arguments.boolean("exact").unwrap_or(false);
        let rows = match arguments.text("output").as_deref() {
            Some("recommendations") => Rows::Recommendations,
            Some("histogram") if !exact => {
                return Err(arguments.error("only the manifests tell the sizes of files: add exact => true"));
            }
            Some("histogram") => Rows::Histogram,
            _ => Rows::Findings,
        };
        let call_of = |procedure: &'static str| Arguments {
            procedure,
            values: BTreeMap::from([("table", Value::Text(table.clone()))]),
            now_ms: arguments.now_ms,
        };
        Ok(Arc::new(TableHealthCall {
            exact,
            orphans: arguments.boolean("orphans").unwrap_or(false),
            small_file_bytes: arguments.integer("small_file_threshold").unwrap_or(DEFAULT_SMALL_FILE_BYTES),
            rows,
            expire: expire_snapshots::options_of(&call_of("expire_snapshots"), options)?,
            remove: remove_orphan_files::options_of(&call_of("remove_orphan_files"), options)?,
            described: arguments.describe(),
            table,
        }))
    }
}

#[async_trait]
impl BoundCall for TableHealthCall {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn dry_run(&self) -> bool {
        true
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(self.clone())
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let (facts, notices) = self.look(&context).await?;
        let batch = match (self.rows, &facts.entries) {
            (Rows::Findings, _) => rows::of_findings(&findings::findings(&facts))?,
            (Rows::Recommendations, _) => {
                rows::of_recommendations(&recommendations::recommendations(&facts, &self.table))?
            }
            (Rows::Histogram, Some(entries)) => rows::of_histogram(entries)?,
            // The current snapshot's list can't be read, as a notice says.
            (Rows::Histogram, None) => return Ok(self.outcome(vec![], notices)),
        };
        Ok(self.outcome(vec![batch], notices))
    }
}

impl TableHealthCall {
    /// Looks as closely as the call asks for. Returns what there is to say besides.
    async fn look(&self, context: &RunContext) -> Result<(Facts, Vec<String>)> {
        let handle = context.resolve(&self.table)?;
        let table = handle.load(&context.task.runtime_env()).await?;
        let task = context.for_table(&table).task;
        let now_ms = context.maintenance.now_ms();
        let read = Listed::read(facts::current(&table.metadata), &task);
        let listed = stage(&task, RunStage::ReadingMetadata, read).await?;
        let mut notices = table.notices.clone();
        notices.extend(listed.unreadable.iter().cloned());
        let expiry = Expiry::look(&table, &self.expire, now_ms);
        let small_file_bytes = self.small_file_bytes;
        let mut facts = Facts { table, now_ms, small_file_bytes, listed, entries: None, expiry, orphans: None };
        if self.exact {
            if facts.listed.unreadable.is_none() {
                facts.entries = Some(entries::measure(&facts.question(), &task).await?);
            }
            facts.expiry = facts.expiry.measure(&handle, &self.expire, context).await?;
        }
        if self.orphans {
            let (orphans, said) = reclaim::orphans(&handle, &self.remove, context).await?;
            facts.orphans = Some(orphans);
            notices.extend(said);
        }
        Ok((facts, notices))
    }

    fn outcome(&self, batches: Vec<datafusion::arrow::array::RecordBatch>, notices: Vec<String>) -> CallOutcome {
        CallOutcome { batches, notices, metrics: None, incomplete: None }
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter {
        aliases: &["table_name"],
        ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
    },
    parameter("exact", ParameterKind::Boolean, None, "read the manifests, too: exact sizes, partitions and gains"),
    parameter("orphans", ParameterKind::Boolean, None, "list the table's folders, too: what nothing names"),
    parameter(
        "small_file_threshold",
        ParameterKind::Integer(1),
        None,
        "data files with fewer bytes are small; 104857600 (100 MiB) by default",
    ),
    parameter(
        "output",
        ParameterKind::Choice(&["findings", "recommendations", "histogram"]),
        None,
        "which rows to return",
    ),
];
