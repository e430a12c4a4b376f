//! `restore_quarantined_files` and `purge_quarantined_files`: the way back from quarantine, and the end of it.

mod content;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;

use self::content::{Direction, quarantined};
use super::committing::refuse_unknown_owner;
use super::shared_location::refuse_shared_location;
use super::unfinished_runs::{
    DRY_RUN, MAX_DELETE_COUNT, NO_CATALOG, OUTPUT, RUN, SHARED_LOCATION, TABLE, run_argument,
};
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter, require_gc};
use crate::deletion::Limits;
use crate::error::Result;
use crate::journal::RunId;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::report::{FileOutcome, Metrics, Operation, Output, Report};

/// `restore_quarantined_files`.
#[derive(Debug)]
pub(crate) struct RestoreQuarantinedFilesProcedure;

/// `purge_quarantined_files`.
#[derive(Debug)]
pub(crate) struct PurgeQuarantinedFilesProcedure;

#[derive(Debug, Clone)]
struct QuarantineCall {
    direction: Direction,
    table: String,
    run: Option<RunId>,
    /// Only runs that began before this, ms since the epoch.
    older_than_ms: Option<i64>,
    limits: Limits,
    output: Output,
    dry_run: bool,
    no_catalog: bool,
    shared_location: bool,
    described: String,
}

impl QuarantineCall {
    fn new(direction: Direction, arguments: &Arguments) -> Result<Self> {
        Ok(Self {
            direction,
            table: arguments.table()?,
            run: run_argument(arguments)?,
            older_than_ms: arguments.timestamp("older_than"),
            limits: Limits {
                max_delete_count: arguments.integer("max_delete_count").map(i64::unsigned_abs),
                ..Default::default()
            },
            output: arguments.output(),
            dry_run: arguments.boolean("dry_run").unwrap_or(false),
            no_catalog: arguments.boolean("no_catalog").unwrap_or(false),
            shared_location: arguments.boolean("shared_location").unwrap_or(false),
            described: arguments.describe(),
        })
    }

    fn operation(&self) -> Operation {
        match self.direction {
            Direction::Back => Operation::RestoreQuarantinedFiles,
            Direction::Away => Operation::PurgeQuarantinedFiles,
        }
    }
}

impl Procedure for RestoreQuarantinedFilesProcedure {
    fn name(&self) -> &'static str {
        "restore_quarantined_files"
    }

    fn parameters(&self) -> &'static [Parameter] {
        RESTORE_PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        if !arguments.is_given("run") {
            return Err(arguments.error("argument run is missing: maintenance_log shows the runs"));
        }
        Ok(Arc::new(QuarantineCall::new(Direction::Back, &arguments)?))
    }
}

impl Procedure for PurgeQuarantinedFilesProcedure {
    fn name(&self) -> &'static str {
        "purge_quarantined_files"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PURGE_PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        if !arguments.is_given("run") && !arguments.is_given("older_than") {
            return Err(arguments.error(
                "say what is to go: the files of one run (run => '…'), or of all runs that began before a time (older_than => …)",
            ));
        }
        Ok(Arc::new(QuarantineCall::new(Direction::Away, &arguments)?))
    }
}

#[async_trait]
impl BoundCall for QuarantineCall {
    fn schema(&self) -> SchemaRef {
        self.output.schema(self.operation())
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
        let table = handle.load(&context.task.runtime_env()).await?;
        if self.direction == Direction::Away {
            require_gc(&table, "purge quarantined files")?;
        }
        let runs = quarantined(&table, &handle, self, &context).await?;
        let mut notices = table.notices.clone();
        if self.direction == Direction::Away && !runs.is_empty() {
            let permitted = self.shared_location;
            notices.extend(refuse_shared_location(&handle, &table, None, permitted, &context.task).await?);
            if !self.dry_run {
                refuse_unknown_owner(&table, self.no_catalog)?;
            }
        }
        let mut files: Vec<FileOutcome> = vec![];
        for run in runs {
            files.extend(match self.dry_run {
                true => run.preview(self.direction),
                false => run.carry_out(self.direction, self.operation(), &context).await?,
            });
        }
        let metrics = Metrics { dry_run: self.dry_run, ..Default::default() };
        let operation = self.operation();
        let (snapshots, refs) = Default::default();
        let mut report = Report { operation, table: table.name, metrics, files, snapshots, refs, notices };
        report.metrics.count_files(&report.files);
        CallOutcome::of_report(report, self.output, started, &context.maintenance)
    }
}

const RESTORE_PARAMETERS: &[Parameter] = &[TABLE, RUN, DRY_RUN, OUTPUT];

const PURGE_PARAMETERS: &[Parameter] = &[
    TABLE,
    RUN,
    parameter("older_than", ParameterKind::Timestamp, None, "the files of all runs that began before this"),
    DRY_RUN,
    MAX_DELETE_COUNT,
    NO_CATALOG,
    SHARED_LOCATION,
    OUTPUT,
];
