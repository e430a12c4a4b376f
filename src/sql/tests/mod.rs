//! Whole statements through a real session, with procedures that only write down that they ran.

mod arguments;
mod runs;
mod statements;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio::sync::Notify;

use super::{MaintenanceSql, install_procedures};
use crate::error::{Error, Result};
use crate::maintenance::{FixedClock, Maintenance, RunContext};
use crate::options::MaintenanceOptions;
use crate::procedure::{Arguments, BoundCall, CallOutcome, Parameter, Procedure, find};
use crate::report::{FileKind, FileOutcome, FileStatus, Metrics, Operation, Report};

/// 2026-06-15T12:00:00Z, the time of all calls.
const NOW_MS: i64 = 1_781_524_800_000;

/// What the fake procedures were asked to do.
#[derive(Debug, Default)]
struct Log {
    runs: AtomicUsize,
    /// Procedure, dry run and arguments of every run.
    ran: Mutex<Vec<(Operation, bool, Arguments)>>,
    /// The arguments of the last successful bind.
    bound: Mutex<Option<Arguments>>,
    /// When set, runs wait for `release` and then say whether they were cancelled.
    wait: AtomicBool,
    release: Notify,
    cancelled: Mutex<Option<bool>>,
    fail: Mutex<Option<Operation>>,
    /// When set, two of three files can't be deleted.
    incomplete: AtomicBool,
    /// What was passed on to the operator.
    notices: Mutex<Vec<String>>,
}

impl Log {
    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap())
    }

    fn ran(&self) -> Vec<(Operation, bool)> {
        self.ran.lock().unwrap().iter().map(|(operation, dry_run, _)| (*operation, *dry_run)).collect()
    }

    fn bound(&self) -> Arguments {
        self.bound.lock().unwrap().take().unwrap()
    }
}

/// Takes the arguments of a real procedure.
#[derive(Debug)]
struct FakeProcedure {
    real: &'static dyn Procedure,
    operation: Operation,
    log: Arc<Log>,
}

impl Procedure for FakeProcedure {
    fn name(&self) -> &'static str {
        self.real.name()
    }

    fn parameters(&self) -> &'static [Parameter] {
        self.real.parameters()
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        *self.log.bound.lock().unwrap() = Some(arguments.clone());
        let dry_run = arguments.boolean("dry_run").unwrap_or(false);
        Ok(Arc::new(FakeCall { operation: self.operation, dry_run, arguments, log: Arc::clone(&self.log) }))
    }
}

#[derive(Debug, Clone)]
struct FakeCall {
    operation: Operation,
    dry_run: bool,
    arguments: Arguments,
    log: Arc<Log>,
}

#[async_trait]
impl BoundCall for FakeCall {
    fn schema(&self) -> SchemaRef {
        self.arguments.output().schema(self.operation)
    }

    fn dry_run(&self) -> bool {
        self.dry_run
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(FakeCall { dry_run: true, ..self.clone() })
    }

    fn describe(&self) -> String {
        format!("table={}", self.arguments.table().unwrap())
    }

    /// Reports the number of the run as the number of deleted files.
    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let number = self.log.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.log.ran.lock().unwrap().push((self.operation, self.dry_run, self.arguments.clone()));
        if self.log.wait.load(Ordering::SeqCst) {
            self.log.release.notified().await;
            *self.log.cancelled.lock().unwrap() = Some(context.cancellation.is_cancelled());
        }
        if *self.log.fail.lock().unwrap() == Some(self.operation) {
            return Err(Error::Guard { table: self.arguments.table()?, found: "nothing matches".into() });
        }
        let metrics = Metrics {
            deleted_files_count: number as u64,
            dry_run: self.dry_run,
            deleted_snapshots_count: self.arguments.values.len() as u64,
            ..Default::default()
        };
        let table = self.arguments.table()?;
        let failed = FileStatus::Failed("no permission".into());
        let statuses = match self.log.incomplete.load(Ordering::SeqCst) && !self.dry_run {
            true => vec![failed.clone(), FileStatus::Deleted, failed],
            false => vec![],
        };
        let file = |(index, status)| FileOutcome {
            path: format!("/t/{index}"),
            kind: FileKind::Data,
            bytes: None,
            modified_ms: None,
            snapshot_id: None,
            reason: "expired".into(),
            status,
        };
        let files = statuses.into_iter().enumerate().map(file).collect();
        let notices = vec!["the report's own notice".into()];
        let (snapshots, refs) = Default::default();
        let report = Report { operation: self.operation, table, metrics, files, snapshots, refs, notices };
        let started = std::time::Instant::now();
        CallOutcome::of_report(report, self.arguments.output(), started, &context.maintenance)
    }
}

fn session() -> (SessionContext, Arc<Log>) {
    session_with(SessionConfig::new())
}

fn session_with(config: SessionConfig) -> (SessionContext, Arc<Log>) {
    let (ctx, log) = (SessionContext::new_with_config(config), Arc::new(Log::default()));
    let fake = |name, operation| -> &'static dyn Procedure {
        Box::leak(Box::new(FakeProcedure { real: find(name).unwrap(), operation, log: Arc::clone(&log) }))
    };
    let procedures = [
        fake("expire_snapshots", Operation::ExpireSnapshots),
        fake("remove_orphan_files", Operation::RemoveOrphanFiles),
    ];
    let told = Arc::clone(&log);
    let maintenance = Maintenance::builder()
        .clock(Arc::new(FixedClock(NOW_MS)))
        .on_notice(move |text| told.notices.lock().unwrap().push(text.to_string()))
        .register(&ctx)
        .unwrap();
    install_procedures(&ctx, &maintenance, &procedures).unwrap();
    (ctx, log)
}

/// Runs a statement, through DataFusion alone when it is none of ours.
async fn run(ctx: &SessionContext, sql: &str) -> datafusion::error::Result<Vec<RecordBatch>> {
    ctx.maintenance_sql(sql).await?.collect().await
}

/// The error of a statement that must fail.
async fn error(ctx: &SessionContext, sql: &str) -> String {
    match run(ctx, sql).await {
        Ok(_) => panic!("{sql} did not fail"),
        Err(error) => error.strip_backtrace(),
    }
}

/// The arguments that a statement's call is bound with.
async fn bound(ctx: &SessionContext, log: &Log, sql: &str) -> Arguments {
    ctx.maintenance_sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    log.bound()
}

/// The numbers of the rows with this metric name.
fn metric(batches: &[RecordBatch], name: &str) -> Vec<i64> {
    let rows = batches.iter().flat_map(|batch| {
        let names = batch.column_by_name("metric_name").unwrap().as_string::<i32>();
        let values = batch.column_by_name("metric_value").unwrap().as_primitive::<Int64Type>();
        names.iter().zip(values).collect::<Vec<_>>()
    });
    rows.filter(|(found, _)| *found == Some(name)).filter_map(|(_, value)| value).collect()
}

fn number(batches: &[RecordBatch]) -> i64 {
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}
