//! What a run does, counted while it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use datafusion::execution::TaskContext;
use parking_lot::Mutex;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::{Progress, RunStage, Steps};

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
    /// `None` for work that is no run, such as reading a metadata table.
    at: Option<Mutex<Place>>,
}

/// Where a run is.
#[derive(Debug)]
struct Place {
    run: u64,
    operation: String,
    table: String,
    span: Span,
    began: Instant,
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
        let (table, stage, done_before) = Default::default();
        let place = Place { run, operation, table, span, began: now, stage, stage_began: now, done_before };
        Self { work: Arc::new(RunWork { at: Some(Mutex::new(place)), ..RunWork::default() }) }
    }

    /// Does the run's work in the run's span. `is_complete`: whether its outcome is all that was asked for.
    pub(crate) async fn run<T>(self, work: impl Future<Output = T>, is_complete: impl FnOnce(&T) -> bool) -> T {
        let span = self.work.at.as_ref().map_or_else(Span::none, |place| place.lock().span.clone());
        let outcome = work.instrument(span).await;
        let is_complete = is_complete(&outcome);
        self.work.describe(is_complete);
        if is_complete {
            self.work.begin_stage(RunStage::Finished);
        }
        outcome
    }
}

impl Drop for BegunRun {
    fn drop(&mut self) {
        self.work.begin_stage(RunStage::Failed);
    }
}

impl RunWork {
    /// What work with this task is counted in, if anything.
    pub(crate) fn of(task: &TaskContext) -> Option<Arc<Self>> {
        task.session_config().get_extension()
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

    /// The run works on this table now.
    pub(crate) fn begin_table(&self, table: &str) {
        if let Some(place) = &self.at {
            let mut place = place.lock();
            place.table = table.to_string();
            place.span.record("table", table);
        }
    }

    /// What the run does now. Nothing comes after its end.
    pub(super) fn begin_stage(&self, stage: RunStage) {
        let Some(place) = &self.at else { return };
        let mut place = place.lock();
        if place.stage.is_end() {
            return;
        }
        (place.stage, place.stage_began) = (stage, Instant::now());
        place.done_before = Progress { stage, ..self.counts() }.steps().done;
    }

    /// Notes in the run's span what it came to.
    fn describe(&self, is_complete: bool) {
        let Some(place) = &self.at else { return };
        let (span, counts) = (place.lock().span.clone(), self.counts());
        span.record("otel.status_code", if is_complete { "OK" } else { "ERROR" });
        span.record("manifests_read", counts.manifests.done);
        span.record("bytes_read", counts.bytes_read);
        span.record("files_listed", counts.files_listed);
        span.record("candidates", counts.candidates);
        span.record("deletes", counts.deletes.done);
        span.record("bytes_deleted", counts.bytes_deleted);
    }

    /// How far the run is.
    pub(super) fn progress(&self) -> Progress {
        let counts = self.counts();
        let Some(place) = &self.at else { return counts };
        let place = place.lock();
        Progress {
            run: place.run,
            operation: place.operation.clone(),
            table: place.table.clone(),
            stage: place.stage,
            elapsed: place.began.elapsed(),
            stage_elapsed: place.stage_began.elapsed(),
            done_before: place.done_before,
            ..counts
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
