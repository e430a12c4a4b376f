//! `maintenance_log`: what the journal of a table says.

mod rows;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;

use self::rows::LogRows;
use super::unfinished_runs::run_argument;
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::error::Result;
use crate::journal::{Journal, RunId};
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct MaintenanceLogProcedure;

/// Which rows a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogOutput {
    /// One row a run.
    Runs,
    /// One row a file of a run's plan.
    Files,
    /// One row a part of the metadata that a run's commit took out.
    Metadata,
}

#[derive(Debug, Clone)]
struct MaintenanceLogCall {
    table: String,
    run: Option<RunId>,
    output: LogOutput,
    described: String,
}

impl Procedure for MaintenanceLogProcedure {
    fn name(&self) -> &'static str {
        "maintenance_log"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let output = match arguments.text("output").as_deref() {
            Some("files") => LogOutput::Files,
            Some("metadata") => LogOutput::Metadata,
            _ => LogOutput::Runs,
        };
        let (table, run, described) = (arguments.table()?, run_argument(&arguments)?, arguments.describe());
        Ok(Arc::new(MaintenanceLogCall { table, run, output, described }))
    }
}

#[async_trait]
impl BoundCall for MaintenanceLogCall {
    fn schema(&self) -> SchemaRef {
        self.output.schema()
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
        let handle = context.resolve(&self.table)?;
        let table = handle.load(&context.task.runtime_env()).await?;
        let context = context.for_table(&table);
        let journal = Journal::of(&table, &context.task)?;
        let mut rows = LogRows::new(self.output, context.maintenance.now_ms());
        for run in journal.runs().await? {
            if self.run.as_ref().is_none_or(|wanted| *wanted == run.run) {
                rows.add(&run, journal.plan_of(&run).await, journal.outcome_of(&run).await)?;
            }
        }
        Ok(CallOutcome { batches: vec![rows.finish()?], notices: vec![], metrics: None, incomplete: None })
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter {
        aliases: &["table_name"],
        ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
    },
    Parameter { execute_position: Some(0), ..parameter("run", ParameterKind::Text, Some(1), "only this run") },
    parameter(
        "output",
        ParameterKind::Choice(&["runs", "files", "metadata"]),
        None,
        "one row a run, a file, or a part of the metadata that a run's commit took out",
    ),
];
