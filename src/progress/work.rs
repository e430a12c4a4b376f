//! What a run does, counted while it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use datafusion::execution::TaskContext;
use parking_lot::Mutex;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::{Progress, RunStage, Steps};
use crate::table::without_credentials;

/// Files of one kind that scans of a run read.
#[derive(Debug, Default)]
pub(crate) struct FileCount {
    /// Files that scans which have begun are for.
    pub(crate) known: AtomicUsize,
    /// Files among them that are dealt with: read, left out, or known without reading.
    pub(crate) done: AtomicUsize,
    /// Files that were read, whether or not they could be decoded.
    pub(crate) read: AtomicUsize,
}

/// What a run has done so far. Whatever works for the run finds it as an extension of its session's configuration.
#[derive(Debug, Default)]
pub(crate) struct RunWork {
    pub(crate) manifest_lists: FileCount,
    pub(crate) manifests: FileCount,
    /// Bytes of these files.
    pub(crate) bytes_scanned: AtomicUsize,
    /// Requests to the store, or reads of local files, for them.
    pub(crate) requests: AtomicUsize,
    /// Rows that were handed on.
    pub(crate) rows: AtomicUsize,
    /// Batches that were handed on.
    pub(crate) batches: AtomicUsize,
    /// CPU time of decoding, of all cores together, in nanoseconds.
    pub(crate) decode_ns: AtomicU64,
    pub(crate) files_listed: AtomicUsize,
    pub(crate) candidates: AtomicUsize,
    pub(crate) deletes_known: AtomicUsize,
    pub(crate) deletes_done: AtomicUsize,
    pub(crate) bytes_deleted: AtomicU64,
    pub(crate) tables_known: AtomicUsize,
    pub(crate) tables_done: AtomicUsize,
    /// Several tables are worked on at once.
    pub(crate) is_shared: AtomicBool,
    /// `None` for work that is no run, such as reading a metadata table.
    position: Option<Mutex<Position>>,
}

/// Where a run is.
#[derive(Debug)]
struct Position {
    run: u64,
    operation: String,
    table: String,
    /// Of the whole run. It ends with the run, however long somebody keeps the counts.
    span: Span,
    began: Instant,
    /// How long it took, once it is over.
    took: Option<Duration>,
    stage: RunStage,
    stage_began: Instant,
    done_before: u64,
}

/// A run that has begun, and ends at the latest when this goes.
#[derive(Debug)]
pub(crate) struct BegunRun {
    pub(crate) work: Arc<RunWork>,
}

impl BegunRun {
    /// Begins to count a run.
    pub(super) fn new(run: u64, operation: String) -> Self {
        let now = Instant::now();
        let span = tracing::info_span!(
            "run",
            otel.name = operation,
            otel.status_code = Empty,
            operation,
            table = Empty,
            manifests_read = Empty,
            bytes_read = Empty,
            files_listed = Empty,
            candidates = Empty,
            deletes = Empty,
            bytes_deleted = Empty
        );
        let (table, stage, took, done_before) = Default::default();
        let position = Position { run, operation, table, span, began: now, took, stage, stage_began: now, done_before };
        Self { work: Arc::new(RunWork { position: Some(Mutex::new(position)), ..RunWork::default() }) }
    }

    /// Does the run's work in the run's span. `is_complete`: whether its outcome is all that was asked for.
    pub(crate) async fn run<T>(self, work: impl Future<Output = T>, is_complete: impl FnOnce(&T) -> bool) -> T {
        let span = self.work.position.as_ref().map_or_else(Span::none, |position| position.lock().span.clone());
        let outcome = work.instrument(span).await;
        self.work.end(if is_complete(&outcome) { RunStage::Finished } else { RunStage::Failed });
        outcome
    }
}

impl Drop for BegunRun {
    fn drop(&mut self) {
        self.work.end(RunStage::Failed);
    }
}

impl RunWork {
    /// What work with this task is counted in. Where nobody counts, the numbers go nowhere.
    pub(crate) fn of(task: &TaskContext) -> Arc<Self> {
        task.session_config().get_extension().unwrap_or_default()
    }

    /// The same task, whose work is counted here.
    pub(crate) fn count_in(self: &Arc<Self>, task: &TaskContext) -> TaskContext {
        TaskContext::new(
            task.task_id(),
            task.session_id(),
            task.session_config().clone().with_extension(Arc::clone(self)),
            task.scalar_functions().clone(),
            task.higher_order_functions().clone(),
            task.aggregate_functions().clone(),
            task.window_functions().clone(),
            task.runtime_env(),
        )
    }

    /// Counts so many more.
    pub(crate) fn add(&self, what: fn(&Self) -> &AtomicUsize, more: usize) {
        what(self).fetch_add(more, Ordering::Relaxed);
    }

    /// The run is on this table.
    pub(crate) fn begin_table(&self, table: &str) {
        let table = without_credentials(table);
        if let Some(span) = self.name_table(&table) {
            span.record("table", &*table);
        }
    }

    /// The run is on this one of many tables, which has a span of its own.
    pub(crate) fn begin_one_of_many(&self, table: &str) -> Span {
        let table = without_credentials(table);
        self.name_table(&table);
        tracing::info_span!("table", otel.name = &*table, table = &*table)
    }

    /// Notes the table. Returns the run's span, which is not to be recorded in under the lock: a subscriber may ask for anything.
    fn name_table(&self, table: &str) -> Option<Span> {
        let mut position = self.position.as_ref()?.lock();
        position.table = table.to_string();
        Some(position.span.clone())
    }

    /// What the run does now.
    pub(super) fn begin_stage(&self, stage: RunStage) {
        let Some(position) = &self.position else { return };
        let mut position = position.lock();
        if !position.stage.is_end() {
            (position.stage, position.stage_began) = (stage, Instant::now());
            position.done_before = Progress { stage, ..self.counts() }.steps().done;
        }
    }

    /// The run is over. Nothing comes after its end.
    fn end(&self, stage: RunStage) {
        let Some(position) = &self.position else { return };
        let (span, counts) = {
            let mut position = position.lock();
            if position.stage.is_end() {
                return;
            }
            position.took = Some(position.began.elapsed());
            position.stage = stage;
            (std::mem::replace(&mut position.span, Span::none()), self.counts())
        };
        span.record("otel.status_code", if stage == RunStage::Finished { "OK" } else { "ERROR" });
        span.record("manifests_read", counts.manifests.done);
        span.record("bytes_read", counts.bytes_read);
        span.record("files_listed", counts.files_listed);
        span.record("candidates", counts.candidates);
        span.record("deletes", counts.deletes.done);
        span.record("bytes_deleted", counts.bytes_deleted);
    }

    /// How long the run has been working.
    pub(crate) fn elapsed(&self) -> Duration {
        let of = |position: &Position| position.took.unwrap_or_else(|| position.began.elapsed());
        self.position.as_ref().map_or(Duration::ZERO, |position| of(&position.lock()))
    }

    /// How far the run is.
    pub(super) fn progress(&self) -> Progress {
        let Some(position) = &self.position else { return self.counts() };
        // Counted under the lock: what is told with the end of a run is all that it did.
        let position = position.lock();
        Progress {
            run: position.run,
            operation: position.operation.clone(),
            table: position.table.clone(),
            stage: position.stage,
            elapsed: position.took.unwrap_or_else(|| position.began.elapsed()),
            stage_elapsed: position.stage_began.elapsed(),
            done_before: position.done_before,
            is_shared: self.is_shared.load(Ordering::Relaxed),
            ..self.counts()
        }
    }

    fn counts(&self) -> Progress {
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed) as u64;
        let steps = |done: &AtomicUsize, known: &AtomicUsize| Steps { done: count(done), known: count(known) };
        Progress {
            tables: steps(&self.tables_done, &self.tables_known),
            manifest_lists: steps(&self.manifest_lists.done, &self.manifest_lists.known),
            manifests: steps(&self.manifests.done, &self.manifests.known),
            bytes_read: count(&self.bytes_scanned),
            files_listed: count(&self.files_listed),
            candidates: count(&self.candidates),
            deletes: steps(&self.deletes_done, &self.deletes_known),
            bytes_deleted: self.bytes_deleted.load(Ordering::Relaxed),
            ..Progress::default()
        }
    }
}
