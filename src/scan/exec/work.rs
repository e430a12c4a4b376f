//! What scans did: for one stream, and for all scans of a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};

/// What all scans of a call did. Scans find it as an extension of their session's configuration.
#[derive(Debug, Default)]
pub(crate) struct ScanWork {
    /// Manifest lists that were read, whether or not they could be decoded.
    pub(crate) manifest_lists_read: AtomicUsize,
    /// The same for manifests.
    pub(crate) manifests_read: AtomicUsize,
    /// Bytes of these files.
    pub(crate) bytes_scanned: AtomicUsize,
    /// Requests to the store, or reads of local files.
    pub(crate) requests: AtomicUsize,
    /// Rows that were handed on.
    pub(crate) rows: AtomicUsize,
    /// Batches that were handed on.
    pub(crate) batches: AtomicUsize,
    /// CPU time of decoding, of all cores together, in nanoseconds.
    pub(crate) decode_ns: AtomicU64,
}

impl ScanWork {
    /// What scans that run with this task are counted in, if anything.
    pub(crate) fn of(task: &TaskContext) -> Option<Arc<Self>> {
        task.session_config().get_extension()
    }

    /// The same task, whose scans are counted here.
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
}

/// The metrics of one stream, each counted for the call, too.
pub(super) struct StreamMetrics {
    baseline: BaselineMetrics,
    bytes_scanned: Count,
    requests: Count,
    files_read: Count,
    files_skipped: Count,
    call: Option<Arc<ScanWork>>,
    /// The call's count of files of this kind.
    call_files: fn(&ScanWork) -> &AtomicUsize,
}

impl StreamMetrics {
    pub(super) fn new(
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        call: Option<Arc<ScanWork>>,
        call_files: fn(&ScanWork) -> &AtomicUsize,
    ) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            bytes_scanned: counter("bytes_scanned"),
            requests: counter("requests"),
            files_read: counter("files_read"),
            files_skipped: counter("files_skipped"),
            call,
            call_files,
        }
    }

    /// Bytes came from a store.
    pub(super) fn transferred(&self, bytes: usize, requests: usize) {
        self.bytes_scanned.add(bytes);
        self.requests.add(requests);
        if let Some(call) = &self.call {
            call.bytes_scanned.fetch_add(bytes, Ordering::Relaxed);
            call.requests.fetch_add(requests, Ordering::Relaxed);
        }
    }

    /// A file was read, whether or not it could be decoded.
    pub(super) fn file_read(&self) {
        self.files_read.add(1);
        if let Some(call) = &self.call {
            (self.call_files)(call).fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn file_skipped(&self) {
        self.files_skipped.add(1);
    }

    /// A batch is handed on.
    pub(super) fn output(&self, rows: usize) {
        self.baseline.record_output(rows);
        self.baseline.output_batches().add(1);
        if let Some(call) = &self.call {
            call.rows.fetch_add(rows, Ordering::Relaxed);
            call.batches.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn done(&self) {
        self.baseline.done();
    }

    /// For the threads that decode.
    pub(super) fn decode_time(&self) -> DecodeTime {
        DecodeTime { stream: self.baseline.elapsed_compute().clone(), call: self.call.clone() }
    }
}

/// Where decoding notes the time that it took.
#[derive(Clone)]
pub(super) struct DecodeTime {
    stream: datafusion::physical_plan::metrics::Time,
    call: Option<Arc<ScanWork>>,
}

impl DecodeTime {
    pub(super) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.add(started.elapsed());
        result
    }

    fn add(&self, elapsed: Duration) {
        self.stream.add_duration(elapsed);
        if let Some(call) = &self.call {
            call.decode_ns.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}
