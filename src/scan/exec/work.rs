//! What the streams of scans did, each counted for the run, too.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};

use crate::progress::{FileCount, RunWork};

/// The metrics of one stream.
pub(super) struct StreamMetrics {
    baseline: BaselineMetrics,
    bytes_scanned: Count,
    requests: Count,
    files_read: Count,
    files_skipped: Count,
    run: Arc<RunWork>,
    /// The run's count of files of this kind.
    run_files: fn(&RunWork) -> &FileCount,
}

impl StreamMetrics {
    pub(super) fn new(
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        run: Arc<RunWork>,
        run_files: fn(&RunWork) -> &FileCount,
    ) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            bytes_scanned: counter("bytes_scanned"),
            requests: counter("requests"),
            files_read: counter("files_read"),
            files_skipped: counter("files_skipped"),
            run,
            run_files,
        }
    }

    /// Bytes came from a store.
    pub(super) fn transferred(&self, bytes: usize, requests: usize) {
        self.bytes_scanned.add(bytes);
        self.requests.add(requests);
        self.run.bytes_scanned.fetch_add(bytes, Ordering::Relaxed);
        self.run.requests.fetch_add(requests, Ordering::Relaxed);
    }

    /// A file was read, whether or not it could be decoded.
    pub(super) fn file_read(&self) {
        self.files_read.add(1);
        (self.run_files)(&self.run).read.fetch_add(1, Ordering::Relaxed);
    }

    /// A file is dealt with: read, left out, or known without reading.
    pub(super) fn file_done(&self) {
        (self.run_files)(&self.run).done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn file_skipped(&self) {
        self.files_skipped.add(1);
    }

    /// A batch is handed on.
    pub(super) fn output(&self, rows: usize) {
        self.baseline.record_output(rows);
        self.baseline.output_batches().add(1);
        self.run.rows.fetch_add(rows, Ordering::Relaxed);
        self.run.batches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn done(&self) {
        self.baseline.done();
    }

    /// For the threads that decode.
    pub(super) fn decode_time(&self) -> DecodeTime {
        DecodeTime { stream: self.baseline.elapsed_compute().clone(), run: self.run.clone() }
    }
}

/// Where decoding notes the time that it took.
#[derive(Clone)]
pub(super) struct DecodeTime {
    stream: datafusion::physical_plan::metrics::Time,
    run: Arc<RunWork>,
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
        self.run.decode_ns.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
