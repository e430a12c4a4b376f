//! Running calls: once for each use, when the first row is asked for, and never half.
//!
//! The work runs in a task of its own, so that a stream that is dropped (a limit, Ctrl-C, a client that went away) can't cut
//! it in the middle of a commit: dropping only asks it to stop between two deletes. All scans of one execution share one
//! [`Run`]; whoever polls first starts it, everybody gets its result.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::runtime::Handle;

use super::provider::refuse_acting;
use crate::error::Error;
use crate::maintenance::{Cancellation, Maintenance, RunContext};
use crate::procedure::BoundCall;
use crate::progress::RunWork;
use crate::report::Metrics;

/// The rows of calls in order. More than one call puts the procedure's name in front of each row.
pub(crate) fn schema_of(calls: &[Arc<dyn BoundCall>]) -> Result<SchemaRef> {
    let schemas: Vec<SchemaRef> = calls.iter().map(|call| call.schema()).collect();
    match schemas.as_slice() {
        [only] => Ok(Arc::clone(only)),
        [first, others @ ..] if others.iter().all(|other| other == first) => {
            let procedure = Arc::new(Field::new("procedure", DataType::Utf8, false));
            Ok(Arc::new(Schema::new(
                std::iter::once(procedure).chain(first.fields().iter().cloned()).collect::<Vec<_>>(),
            )))
        }
        _ => exec_err!("the calls of one statement return different rows"),
    }
}

/// A call with the name that its rows carry.
#[derive(Debug, Clone)]
pub(crate) struct NamedCall {
    pub name: &'static str,
    pub call: Arc<dyn BoundCall>,
    /// What the operator should know of the arguments.
    pub notices: Vec<String>,
}

/// What a run came to.
#[derive(Debug)]
struct Finished {
    batches: Vec<RecordBatch>,
    metrics: Vec<Metrics>,
    /// What all scans of all calls did.
    work: Arc<RunWork>,
    /// Why the work is not complete, where the rows say it file by file: the rows come first, then this error.
    incomplete: Option<Arc<DataFusionError>>,
}

type Outcome = std::result::Result<Arc<Finished>, Arc<DataFusionError>>;

/// One run of calls, shared by all scans of one execution.
#[derive(Debug)]
pub(crate) struct Run {
    maintenance: Maintenance,
    calls: Vec<NamedCall>,
    schema: SchemaRef,
    cancellation: Cancellation,
    /// The task's result; none before the first poll.
    task: std::sync::Mutex<Option<Shared<BoxFuture<'static, Outcome>>>>,
    /// How many streams wait for the result.
    waiting: AtomicUsize,
}

impl Run {
    pub(crate) fn new(maintenance: Maintenance, calls: Vec<NamedCall>, schema: SchemaRef) -> Self {
        let (cancellation, task, waiting) = Default::default();
        Self { maintenance, calls, schema, cancellation, task, waiting }
    }

    /// True once somebody asked for rows.
    pub(crate) fn has_started(&self) -> bool {
        lock(&self.task).is_some()
    }

    /// The result; starts the work when nobody did before.
    async fn result(self: Arc<Self>, context: Arc<TaskContext>) -> Result<Arc<Finished>> {
        let task = {
            let mut task = lock(&self.task);
            match task.as_ref() {
                Some(task) => task.clone(),
                None => task.insert(self.start(context)?).clone(),
            }
        };
        let mut waiting = Waiting::new(&self);
        let outcome = task.await;
        waiting.done = true;
        outcome.map_err(DataFusionError::Shared)
    }

    fn start(&self, task: Arc<TaskContext>) -> Result<Shared<BoxFuture<'static, Outcome>>> {
        let Ok(runtime) = Handle::try_current() else {
            return exec_err!("maintenance procedures need a tokio runtime to run in");
        };
        // A plan may have been made in another session, or before its options changed.
        if let Some(acting) = self.calls.iter().find(|named| !named.call.dry_run()) {
            refuse_acting(acting.name, task.session_config().options())?;
        }
        let run = self.maintenance.begin_run(names_of(&self.calls));
        let task = Arc::new(run.work.count_in(&task));
        let context =
            RunContext { maintenance: self.maintenance.clone(), task, cancellation: self.cancellation.clone() };
        let work = run_to_the_end(self.calls.clone(), Arc::clone(&self.schema), context);
        let is_complete = |outcome: &Result<Finished>| matches!(outcome, Ok(Finished { incomplete: None, .. }));
        let work = runtime.spawn(run.run(work, is_complete));
        let outcome = async move {
            match work.await {
                Ok(finished) => finished.map(Arc::new).map_err(Arc::new),
                Err(error) => Err(Arc::new(DataFusionError::External(Box::new(error)))),
            }
        };
        Ok(outcome.boxed().shared())
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn names_of(calls: &[NamedCall]) -> String {
    calls.iter().map(|call| call.name).collect::<Vec<_>>().join(" and ")
}

/// Runs the calls. What became of a run that nobody waits for any more goes where notices go.
async fn run_to_the_end(calls: Vec<NamedCall>, schema: SchemaRef, context: RunContext) -> Result<Finished> {
    let names = names_of(&calls);
    let (maintenance, cancellation) = (context.maintenance.clone(), context.cancellation.clone());
    let outcome = run_all(calls, schema, context).await;
    if cancellation.is_cancelled() {
        let ending = match &outcome {
            Ok(Finished { incomplete: Some(error), .. }) => text_of(error),
            Ok(finished) => summary(&finished.metrics),
            Err(error) => text_of(error),
        };
        notify(&maintenance, &names, &format!("{names} was interrupted: {ending}"));
    }
    outcome
}

/// What a run did that came to its end before it could stop.
fn summary(reports: &[Metrics]) -> String {
    if reports.iter().all(|report| report.dry_run) {
        return "it was a dry run, nothing was changed".into();
    }
    let total = |count: fn(&Metrics) -> u64| reports.iter().map(count).sum::<u64>();
    format!(
        "it was complete before it could stop; {} snapshots were expired and {} files deleted",
        total(|report| report.deleted_snapshots_count),
        total(|report| report.deleted_files_count)
    )
}

fn text_of(error: &DataFusionError) -> String {
    Error::find(error).map_or_else(|| error.strip_backtrace(), ToString::to_string)
}

fn notify(maintenance: &Maintenance, procedure: &str, text: &str) {
    tracing::warn!(procedure, "{text}");
    maintenance.notify(text);
}

/// Runs the calls one after the other; the first one that fails or stays incomplete ends it.
async fn run_all(calls: Vec<NamedCall>, schema: SchemaRef, context: RunContext) -> Result<Finished> {
    let work = context.work();
    let mut finished = Finished { batches: vec![], metrics: vec![], work, incomplete: None };
    let mut done: Vec<&'static str> = vec![];
    let several = calls.len() > 1;
    for NamedCall { name, call, notices } in calls {
        let outcome =
            call.run(context.clone()).await.map_err(DataFusionError::from).map_err(|error| match &done[..] {
                [] => error,
                done => error.context(format!("{} was completed before {name} failed", done.join(", "))),
            })?;
        for notice in notices.iter().chain(&outcome.notices) {
            match several {
                true => notify(&context.maintenance, name, &format!("{name}: {notice}")),
                false => notify(&context.maintenance, name, notice),
            }
        }
        for batch in outcome.batches {
            finished.batches.push(if several { with_procedure(name, &batch, &schema)? } else { batch });
        }
        finished.metrics.extend(outcome.metrics);
        done.push(name);
        if let Some(error) = outcome.incomplete {
            finished.incomplete = Some(Arc::new(error.into()));
            break;
        }
    }
    Ok(finished)
}

fn with_procedure(name: &str, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(name, batch.num_rows())));
    let columns = std::iter::once(names).chain(batch.columns().iter().cloned()).collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The error at the end of the rows. A reader that stops before it (a limit) can't be told any more, the operator can.
struct Ending {
    maintenance: Maintenance,
    error: Option<Arc<DataFusionError>>,
}

impl Ending {
    fn deliver(mut self) -> Option<Result<RecordBatch>> {
        self.error.take().map(|error| Err(DataFusionError::Shared(error)))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            notify(&self.maintenance, "maintenance", &text_of(&error));
        }
    }
}

/// A stream that waits for the result. When the last one goes before the result is there, the run is asked to stop.
struct Waiting<'a> {
    run: &'a Run,
    done: bool,
}

impl<'a> Waiting<'a> {
    fn new(run: &'a Run) -> Self {
        run.waiting.fetch_add(1, Ordering::SeqCst);
        Self { run, done: false }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let others = self.run.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        if !self.done && others == 0 {
            self.run.cancellation.cancel();
        }
    }
}

/// The plan node of calls. One partition; no statistics, because exact ones would let an optimizer answer without running.
#[derive(Debug)]
pub(crate) struct ProcedureExec {
    run: Arc<Run>,
    projection: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ProcedureExec {
    pub(crate) fn try_new(run: Arc<Run>, projection: Option<&Vec<usize>>) -> Result<Self> {
        let schema = match projection {
            Some(columns) => Arc::new(run.schema.project(columns)?),
            None => Arc::clone(&run.schema),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Self {
            run,
            projection: projection.cloned(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for ProcedureExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let separator = match format {
            DisplayFormatType::TreeRender => "\n",
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                f.write_str("ProcedureExec: ")?;
                "; "
            }
        };
        for (index, NamedCall { name, call, .. }) in self.run.calls.iter().enumerate() {
            if index > 0 {
                f.write_str(separator)?;
            }
            write!(f, "{name}({}), dry_run={}", call.describe(), call.dry_run())?;
        }
        Ok(())
    }
}

impl ExecutionPlan for ProcedureExec {
    fn name(&self) -> &'static str {
        "ProcedureExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return exec_err!("ProcedureExec has one partition, but partition {partition} was asked for");
        }
        let rows_per_batch = context.session_config().batch_size().max(1);
        let (run, projection, metrics) = (Arc::clone(&self.run), self.projection.clone(), self.metrics.clone());
        let maintenance = run.maintenance.clone();
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows = async move {
            let finished = run.result(context).await?;
            record_metrics(&metrics, &finished);
            let mut slices: Vec<Result<RecordBatch>> = Vec::new();
            for batch in &finished.batches {
                let batch = match &projection {
                    Some(columns) => batch.project(columns)?,
                    None => batch.clone(),
                };
                baseline.record_output(batch.num_rows());
                let starts = (0..batch.num_rows()).step_by(rows_per_batch);
                slices.extend(starts.map(|start| Ok(batch.slice(start, rows_per_batch.min(batch.num_rows() - start)))));
            }
            let ending = Ending { maintenance, error: finished.incomplete.clone() };
            let ending = futures::stream::once(async move { ending.deliver() }).filter_map(std::future::ready);
            Ok::<_, DataFusionError>(futures::stream::iter(slices).chain(ending))
        };
        let stream = futures::stream::once(rows).try_flatten().boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), stream))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Shows in `EXPLAIN ANALYZE` what the run did, and what work it took: files that were read, each of them once if all is
/// well, requests to the stores for them, and what they were decoded to.
fn record_metrics(set: &ExecutionPlanMetricsSet, finished: &Finished) {
    let total = |count: fn(&Metrics) -> u64| {
        let sum = finished.metrics.iter().map(count).fold(0, u64::saturating_add);
        usize::try_from(sum).unwrap_or(usize::MAX)
    };
    let record = |name: &'static str, count| MetricBuilder::new(set).global_counter(name).add(count);
    record("deleted_files_count", total(|report| report.deleted_files_count));
    record("deleted_bytes", total(|report| report.deleted_bytes));
    record("deleted_snapshots_count", total(|report| report.deleted_snapshots_count));
    record("files_listed", total(|report| report.scanned_files_count));
    let (work, count) = (&finished.work, |count: &AtomicUsize| count.load(Ordering::Relaxed));
    record("manifest_lists_read", count(&work.manifest_lists.read));
    record("manifests_read", count(&work.manifests.read));
    record("requests", count(&work.requests));
    record("bytes_scanned", count(&work.bytes_scanned));
    record("decoded_rows", count(&work.rows));
    record("decoded_batches", count(&work.batches));
    record("candidates", count(&work.candidates));
    record("deletes", count(&work.deletes_done));
    let elapsed = Duration::from_nanos(work.decode_ns.load(Ordering::Relaxed));
    MetricBuilder::new(set).subset_time("elapsed_decode", 0).add_duration(elapsed);
}
