//! The DataFusion session, and running statements in it.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use iceberg_maintenance::{Maintenance, MaintenanceSql};
use tokio::runtime::Runtime;

use crate::arguments::Options;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::statements;

/// How long an interrupted run may take to finish the deletes that are under way.
const GRACE: Duration = Duration::from_secs(60);

/// A session with maintenance registered, and the runtime it works in.
pub(crate) struct Session {
    context: SessionContext,
    runtime: Runtime,
    format: Format,
    quiet: bool,
}

impl Session {
    /// Starts a session: UTC, with the memory limit and the settings of the command line.
    pub(crate) fn start(options: &Options) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("the runtime can't be started: {error}")))?;
        let mut config =
            SessionConfig::new().with_information_schema(true).set_str("datafusion.execution.time_zone", "+00:00");
        if let Some(rows) = options.batch_size {
            config = config.with_batch_size(rows.get());
        }
        let mut environment = RuntimeEnvBuilder::new();
        if let Some(bytes) = options.memory_limit {
            environment = environment.with_memory_limit(bytes, 1.0);
        }
        let context = SessionContext::new_with_config_rt(config, Arc::new(environment.build()?));
        Maintenance::builder().register(&context)?;
        for (name, value) in &options.set {
            context.state_ref().write().config_mut().options_mut().set(name, value)?;
        }
        Ok(Self { context, runtime, format: options.format, quiet: options.quiet })
    }

    /// Runs the statements of a script, printing the rows of each, until one fails.
    pub(crate) fn run_script(&self, script: &str) -> Result<(), Failure> {
        let statements = statements::split(script).map_err(|unfinished| Failure::new(unfinished.0))?;
        statements.into_iter().try_for_each(|statement| self.run_statement(statement))
    }

    /// Runs one statement and prints its rows.
    pub(crate) fn run_statement(&self, statement: &str) -> Result<(), Failure> {
        let start = Instant::now();
        let batches = self.rows(statement)?;
        self.print(&batches)?;
        if !self.quiet && self.format == Format::Table && std::io::stdout().is_terminal() {
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            let seconds = start.elapsed().as_secs_f64();
            self.say(&format!("{rows} row(s) in {seconds:.3} s\n"));
        }
        match output::failed_files(&batches) {
            0 => Ok(()),
            failed => Err(Failure::partial(format!("{failed} files could not be deleted; the rows above say why"))),
        }
    }

    /// Prints rows to standard output. Statements without columns (`SET`, `CREATE VIEW`) print nothing.
    pub(crate) fn print(&self, batches: &[RecordBatch]) -> Result<(), Failure> {
        if batches.iter().all(|batch| batch.num_columns() == 0) {
            return Ok(());
        }
        let bytes = output::render(batches, self.format).map_err(DataFusionError::from)?;
        output::print(&bytes).map_err(|error| Failure::new(format!("standard output: {error}")))
    }

    /// Prints a message to standard error, unless the session is quiet.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            // A message that nobody can read is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Runs one statement; Ctrl-C stops it between two batches of deletes.
    pub(crate) fn rows(&self, statement: &str) -> Result<Vec<RecordBatch>, Failure> {
        self.runtime.block_on(async {
            let idle = self.runtime.metrics().num_alive_tasks();
            tokio::select! {
                rows = self.collect(statement) => Ok(rows?),
                _ = tokio::signal::ctrl_c() => {
                    self.settle(idle).await;
                    Err(Failure::partial("cancelled. What the statement had done by then stays done; run it again to go on"))
                }
            }
        })
    }

    async fn collect(&self, statement: &str) -> Result<Vec<RecordBatch>, DataFusionError> {
        let frame = self.context.maintenance_sql(statement).await?;
        let schema = Arc::clone(frame.schema().inner());
        let mut batches = frame.collect().await?;
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(schema));
        }
        Ok(batches)
    }

    /// Waits until the tasks of the interrupted statement have stopped by themselves: a run that is deleting must reach
    /// the end of its batch. A second Ctrl-C doesn't wait.
    async fn settle(&self, idle: usize) {
        let stopped = async {
            while self.runtime.metrics().num_alive_tasks() > idle {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(GRACE, stopped) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
}
