//! `resume_maintenance` and `purge_deferred_files`: the end of runs that the journal has no end of.
//!
//! Both do the same to different runs: what is left of a run's plan is checked against the newest metadata and deleted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use futures::FutureExt;

use super::committing::plan_on_newest;
use super::remove_orphan_files::{self, RemoveOrphanFiles};
use super::shared_location::refuse_shared_location;
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter, require_gc};
use crate::catalog::{LoadedTable, TableHandle};
use crate::deletion::Limits;
use crate::error::Result;
use crate::journal::{RunId, Unfinished, Which};
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::report::{FileOutcome, FileStatus, Metrics, Operation, Output, Report, SkipReason};

/// `resume_maintenance`: runs that were cut short, or whose deletes failed.
#[derive(Debug)]
pub(crate) struct ResumeMaintenanceProcedure;

/// `purge_deferred_files`: runs that put the deletion of their files off.
#[derive(Debug)]
pub(crate) struct PurgeDeferredFilesProcedure;

#[derive(Debug, Clone)]
struct UnfinishedRunsCall {
    operation: Operation,
    table: String,
    which: Which,
    limits: Limits,
    shared_location: bool,
    output: Output,
    dry_run: bool,
    described: String,
}

impl UnfinishedRunsCall {
    fn new(operation: Operation, arguments: &Arguments, which: Which) -> Result<Self> {
        Ok(Self {
            operation,
            table: arguments.table()?,
            which: Which {
                run: run_argument(arguments)?,
                no_catalog: arguments.boolean("no_catalog").unwrap_or(false),
                ignore_clock: arguments.boolean("ignore_clock_difference").unwrap_or(false),
                ..which
            },
            limits: Limits {
                max_delete_count: arguments.integer("max_delete_count").map(i64::unsigned_abs),
                ..Default::default()
            },
            shared_location: arguments.boolean("shared_location").unwrap_or(false),
            output: arguments.output(),
            dry_run: arguments.boolean("dry_run").unwrap_or(false),
            described: arguments.describe(),
        })
    }
}

/// The run that a call names.
pub(super) fn run_argument(arguments: &Arguments) -> Result<Option<RunId>> {
    let Some(text) = arguments.text("run") else { return Ok(None) };
    let unknown = || {
        arguments.error(format!(
            "run = '{text}' is no name of a run, such as 20260131T120000000Z-0123abcd; maintenance_log shows them"
        ))
    };
    RunId::parse(&text).ok_or_else(unknown).map(Some)
}

impl Procedure for ResumeMaintenanceProcedure {
    fn name(&self) -> &'static str {
        "resume_maintenance"
    }

    fn parameters(&self) -> &'static [Parameter] {
        RESUME_PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let which = Which { interrupted: true, due: true, ..Default::default() };
        Ok(Arc::new(UnfinishedRunsCall::new(Operation::ResumeMaintenance, &arguments, which)?))
    }
}

impl Procedure for PurgeDeferredFilesProcedure {
    fn name(&self) -> &'static str {
        "purge_deferred_files"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PURGE_PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let not_due = arguments.boolean("ignore_window").unwrap_or(false);
        let which = Which { due: true, not_due, ..Default::default() };
        Ok(Arc::new(UnfinishedRunsCall::new(Operation::PurgeDeferredFiles, &arguments, which)?))
    }
}

#[async_trait]
impl BoundCall for UnfinishedRunsCall {
    fn schema(&self) -> SchemaRef {
        self.output.schema(self.operation)
    }

    fn dry_run(&self) -> bool {
        self.dry_run
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(Self { dry_run: true, ..self.clone() })
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let started = Instant::now();
        let handle = context.resolve(&self.table)?;
        let plan = |table| self.plan(table, &handle, &context).boxed();
        let (table, unfinished, notice) = plan_on_newest(&handle, &context.task, plan).await?;
        let finished = match self.dry_run {
            true => unfinished.preview(),
            false => unfinished.finish(self.operation, &context).await?,
        };
        let retained_snapshots_count = table.metadata.snapshots().len() as u64;
        let metrics = Metrics { dry_run: self.dry_run, retained_snapshots_count, ..Default::default() };
        let (operation, mut notices) = (self.operation, table.notices);
        notices.extend(notice);
        let (files, snapshots, refs) = Default::default();
        let mut report = Report { operation, table: table.name, metrics, files, snapshots, refs, notices };
        report.absorb(finished);
        CallOutcome::of_report(report, self.output, started, &context.maintenance)
    }
}

impl UnfinishedRunsCall {
    /// What is left of the runs, checked against this metadata, and what there is to say of it.
    async fn plan(
        &self,
        table: LoadedTable,
        handle: &TableHandle,
        context: &RunContext,
    ) -> Result<(LoadedTable, Unfinished, Option<String>)> {
        require_gc(&table, "delete the files of earlier runs")?;
        let mut unfinished = Unfinished::of(&table, handle, &self.which, &self.limits, context).await?;
        for (run, began_ms) in unfinished.orphan_runs().collect::<Vec<_>>() {
            unfinished.spare_all_but(&run, &still_orphans(handle, began_ms, context).await?).await?;
        }
        let notice = match unfinished.planned() {
            0 => None,
            _ => refuse_shared_location(handle, &table, None, self.shared_location, &context.task).await?,
        };
        Ok((table, unfinished, notice))
    }
}

/// The files that are orphans now, by all that a removal of orphans asks for: that they were once is not enough.
async fn still_orphans(handle: &TableHandle, began_ms: i64, context: &RunContext) -> Result<HashSet<String>> {
    let now_ms = context.maintenance.now_ms();
    // The call looks itself whether another table uses the location.
    let options = RemoveOrphanFiles {
        include_foreign: true,
        shared_location: true,
        ..RemoveOrphanFiles::older_than(began_ms, now_ms)
    };
    let plan = remove_orphan_files::plan(handle.clone(), &options, None, context).await?;
    let waits = [SkipReason::Deferred, SkipReason::AwaitsPurge, SkipReason::Recoverable].map(FileStatus::Spared);
    let is_orphan = |file: &&FileOutcome| file.status == FileStatus::Planned || waits.contains(&file.status);
    Ok(plan.files().iter().filter(is_orphan).map(|file| file.path.clone()).collect())
}

pub(super) const TABLE: Parameter = Parameter {
    aliases: &["table_name"],
    ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
};
pub(super) const RUN: Parameter = Parameter {
    execute_position: Some(0),
    ..parameter("run", ParameterKind::Text, Some(1), "only this run, as maintenance_log names it")
};
pub(super) const DRY_RUN: Parameter = parameter("dry_run", ParameterKind::Boolean, None, "report, change nothing");
pub(super) const MAX_DELETE_COUNT: Parameter =
    parameter("max_delete_count", ParameterKind::Integer(0), None, "refuse a run that has more files than this left");
pub(super) const SHARED_LOCATION: Parameter = parameter(
    "shared_location",
    ParameterKind::Boolean,
    None,
    "go on although another table of the catalog uses the same location",
);
pub(super) const NO_CATALOG: Parameter = parameter(
    "no_catalog",
    ParameterKind::Boolean,
    None,
    "the table's metadata files look like a catalog's, but no catalog owns the table",
);
const IGNORE_CLOCK: Parameter = parameter(
    "ignore_clock_difference",
    ParameterKind::Boolean,
    None,
    "go on although the store's clock and the one here are more than 15 minutes apart",
);
pub(super) const OUTPUT: Parameter =
    parameter("output", ParameterKind::Choice(&["metrics", "columns", "files"]), None, "which rows to return");

const RESUME_PARAMETERS: &[Parameter] =
    &[TABLE, RUN, DRY_RUN, MAX_DELETE_COUNT, NO_CATALOG, SHARED_LOCATION, IGNORE_CLOCK, OUTPUT];

const PURGE_PARAMETERS: &[Parameter] = &[
    TABLE,
    RUN,
    parameter("ignore_window", ParameterKind::Boolean, None, "also files whose recovery window has not passed"),
    DRY_RUN,
    MAX_DELETE_COUNT,
    NO_CATALOG,
    SHARED_LOCATION,
    IGNORE_CLOCK,
    OUTPUT,
];
