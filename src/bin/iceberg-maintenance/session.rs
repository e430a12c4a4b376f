//! The DataFusion session, and running statements in it.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{Stream, StreamExt, TryStreamExt};
use iceberg_maintenance::{ConfiguredStores, Maintenance, MaintenanceSql, Progress};
use object_store::local::LocalFileSystem;
use tokio::runtime::Runtime;
use url::Url;

use crate::arguments::Options;
use crate::config::Config;
use crate::display::{self, Display};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::{self, Format};
use crate::report::Recorder;
use crate::statements;

/// How long an interrupted run may take to finish the deletes that are under way.
const GRACE: Duration = Duration::from_secs(60);

/// Deep expressions need deep stacks: the engine works on them recursively.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// A session with maintenance registered, and the runtime it works in.
pub(crate) struct Session {
    context: SessionContext,
    maintenance: Maintenance,
    runtime: Runtime,
    /// Goes after the runtime, which has the last spans.
    #[cfg(feature = "opentelemetry")]
    _telemetry: crate::telemetry::Telemetry,
    interrupts: Interrupts,
    /// What interrupted runs said of their ending.
    endings: Arc<Mutex<Vec<String>>>,
    display: Arc<Display>,
    /// What statements do, where a report is wanted.
    recorder: Recorder,
    format: Format,
    quiet: bool,
}

impl Session {
    /// Starts a session: UTC, with the memory limit and the settings of the command line.
    pub(crate) fn start(options: &Options) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()
            .map_err(|error| Failure::new(format!("the runtime can't be started: {error}")))?;
        #[cfg(feature = "opentelemetry")]
        let _telemetry = crate::telemetry::Telemetry::start(options.quiet);
        let mut config =
            SessionConfig::new().with_information_schema(true).set_str("datafusion.execution.time_zone", "+00:00");
        if let Some(rows) = options.batch_size {
            config = config.with_batch_size(rows.get());
        }
        let config_file = Config::load(options)?;
        let stores = ConfiguredStores::new(config_file.storage()).with_environment();
        let mut environment = RuntimeEnvBuilder::new().with_object_store_registry(Arc::new(stores));
        if let Some(bytes) = options.memory_limit {
            environment = environment.with_memory_limit(bytes, 1.0);
        }
        let context = SessionContext::new_with_config_rt(config, Arc::new(environment.build()?));
        if let Ok(this_machine) = Url::parse("file://") {
            // Lists of files, which may be used instead of a listing, can be external tables then.
            context.register_object_store(&this_machine, Arc::new(LocalFileSystem::new()));
        }
        let (interrupts, endings, recorder) = (Interrupts::listen(&runtime), Arc::default(), Recorder::default());
        let (display, told) = (Arc::new(Display::new(options.quiet)), recorder.clone());
        let builder = Maintenance::builder()
            .on_notice(notices(&interrupts, &endings, &recorder, &display, options.quiet))
            .on_report(move |report| told.report(report));
        let maintenance = config_file.apply(builder).register(&context)?;
        for name in config_file.catalog_names() {
            let catalog = maintenance.with_metadata_tables(name, context.catalog(name));
            context.register_catalog(name, catalog);
        }
        for (name, value) in config_file.settings().iter().chain(&options.set) {
            context.state_ref().write().config_mut().options_mut().set(name, value)?;
        }
        let (format, quiet) = (options.format, options.quiet);
        let session = Self {
            context,
            maintenance,
            runtime,
            #[cfg(feature = "opentelemetry")]
            _telemetry,
            interrupts,
            endings,
            display,
            recorder,
            format,
            quiet,
        };
        config_file.warnings().iter().for_each(|warning| session.say(&format!("Note: {warning}")));
        Ok(session)
    }

    /// Runs the statements of a script, printing the rows of each, until one fails or says that this was all (`quit`).
    pub(crate) fn run_script(&self, script: &str) -> Result<ControlFlow<()>, Failure> {
        let statements = statements::split(script).map_err(|unfinished| Failure::new(unfinished.0))?;
        for statement in statements {
            if statements::is_quit(statement.lines().next().unwrap_or_default()) {
                return Ok(ControlFlow::Break(()));
            }
            self.run_statement(statement)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Runs one statement and prints its rows.
    pub(crate) fn run_statement(&self, statement: &str) -> Result<(), Failure> {
        let start = Instant::now();
        let Rows { batches, failure } = self.run(statement);
        match (failure, self.print(&batches)) {
            (None, Ok(())) => {}
            (Some(failure), Ok(())) => return Err(failure),
            (Some(failure), Err(unprinted)) => return Err(failure.and(unprinted.message())),
            (None, Err(unprinted)) => {
                let done = "the statement was run to its end, but its rows can't be printed";
                return Err(Failure::partial(format!("{done}: {}", unprinted.message())));
            }
        }
        if !self.quiet && self.format == Format::Table && std::io::stdout().is_terminal() {
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            let seconds = start.elapsed().as_secs_f64();
            self.say(&format!("{rows} row(s) in {seconds:.3} s\n"));
        }
        Ok(())
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
            self.display.say(text);
        }
    }

    /// The names of the tables of a catalog or of a namespace; of all catalogs for `None`.
    pub(crate) fn tables(&self, within: Option<&str>) -> Result<Vec<String>, Failure> {
        let tables = self.runtime.block_on(self.maintenance.list_tables(within));
        tables.map_err(|error| Failure::from(DataFusionError::from(error)))
    }

    /// Records what statements do.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// What statements run in.
    pub(crate) fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Runs one statement; all of its rows or an error.
    pub(crate) fn rows(&self, statement: &str) -> Result<Vec<RecordBatch>, Failure> {
        self.rows_in(&self.context, statement)
    }

    /// The same in another context of this session.
    pub(crate) fn rows_in(&self, context: &SessionContext, statement: &str) -> Result<Vec<RecordBatch>, Failure> {
        match self.run_in(context, statement) {
            Rows { batches, failure: None } => Ok(batches),
            Rows { failure: Some(failure), .. } => Err(failure),
        }
    }

    /// Runs the dry run that a question is asked after; the rows that came, and how it failed after them.
    pub(crate) fn preview(&self, statement: &str) -> (Vec<RecordBatch>, Option<Failure>) {
        let Rows { batches, failure } = self.run(statement);
        self.recorder.was_preview();
        (batches, failure)
    }

    fn run(&self, statement: &str) -> Rows {
        self.run_in(&self.context, statement)
    }

    /// Runs one statement; Ctrl-C stops it between two batches of deletes.
    fn run_in(&self, context: &SessionContext, statement: &str) -> Rows {
        self.recorder.begin(Instant::now());
        let rows = self.runtime.block_on(async {
            let runs = self.maintenance.progress(display::EVERY);
            let running = self.interrupts.statement();
            let mut batches = vec![];
            let outcome = tokio::select! {
                outcome = collect(context, statement, &mut batches) => Some(outcome),
                () = running.interrupted() => None,
                never = self.display.follow(self.maintenance.progress(display::EVERY)) => match never {},
            };
            if let Some(outcome) = outcome {
                return Rows { batches, failure: outcome.err().map(Failure::from) };
            }
            settle(runs).await;
            let endings = std::mem::take(&mut *lock(&self.endings));
            Rows { batches: vec![], failure: Some(Failure::interrupted(&endings)) }
        });
        self.recorder.end(&rows.batches, Instant::now());
        rows
    }
}

/// Waits until the runs of an interrupted statement have come to their ends by themselves: one that is deleting must reach the end
/// of its batch, and note it. A second Ctrl-C doesn't wait.
async fn settle(mut runs: impl Stream<Item = Progress> + Unpin) {
    let over = async {
        let mut working = HashSet::new();
        // Runs tell of themselves all the time: where none does, there is none.
        loop {
            match tokio::time::timeout(2 * display::EVERY, runs.next()).await {
                Ok(Some(progress)) if progress.stage.is_end() => {
                    working.remove(&progress.run);
                }
                Ok(Some(progress)) => {
                    working.insert(progress.run);
                }
                Err(_) if !working.is_empty() => {}
                Ok(None) | Err(_) => return,
            }
        }
    };
    let _ = tokio::time::timeout(GRACE, over).await;
}

/// Adds the rows to the batches, at least one, which may be empty. Rows that came before an error are kept.
async fn collect(
    context: &SessionContext,
    statement: &str,
    batches: &mut Vec<RecordBatch>,
) -> Result<(), DataFusionError> {
    let mut stream = context.maintenance_sql(statement).await?.execute_stream().await?;
    while let Some(batch) = stream.try_next().await? {
        batches.push(batch);
    }
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(stream.schema()));
    }
    Ok(())
}

/// What a statement returned, and how it failed after that.
struct Rows {
    batches: Vec<RecordBatch>,
    failure: Option<Failure>,
}

/// Who is told of notices: the user, or after Ctrl-C the error message.
fn notices(
    interrupts: &Interrupts,
    endings: &Arc<Mutex<Vec<String>>>,
    recorder: &Recorder,
    display: &Arc<Display>,
    quiet: bool,
) -> impl Fn(&str) + Send + Sync + 'static {
    let (interrupts, endings) = (interrupts.clone(), Arc::clone(endings));
    let (recorder, display) = (recorder.clone(), Arc::clone(display));
    move |text| {
        recorder.notice(text);
        if interrupts.is_interrupted() {
            lock(&endings).push(text.to_string());
        } else if !quiet {
            display.say(&format!("Note: {text}"));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
