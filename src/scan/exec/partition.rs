//! One stream of a scan: reads ahead, decodes, accounts for the memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{FileScanExec, FileSource, OnUnreadable, ScanLog, Unreadable};
use crate::error::Result;
use crate::storage::Stores;

/// How many files a partition reads at once, ahead of decoding. Object stores answer in tens of milliseconds, and most
/// files take less than one to decode.
const FILES_AHEAD: usize = 32;

/// How many bytes they may have together; a larger file is read alone.
const BYTES_AHEAD: u32 = 32 << 20;

/// What a file is taken for whose size is unknown: a manifest list of a thousand manifests.
const USUAL_BYTES: u64 = 64 << 10;

pub(super) struct PartitionScan<S> {
    source: Arc<S>,
    on_unreadable: OnUnreadable,
    log: Arc<ScanLog>,
    metrics: ScanMetrics,
    reads: BoxStream<'static, FileRead>,
    /// The decoded batches of one file that were not handed on yet, and the memory they take.
    ready: VecDeque<RecordBatch>,
    ready_memory: MemoryReservation,
}

struct ScanMetrics {
    baseline: BaselineMetrics,
    bytes_scanned: Count,
    files_read: Count,
    files_skipped: Count,
}

/// A file that was read, or could not be.
struct FileRead {
    index: usize,
    content: Result<Content>,
    memory: MemoryReservation,
    /// Its share of [`BYTES_AHEAD`], given back once it is decoded.
    _share: Option<OwnedSemaphorePermit>,
}

enum Content {
    /// Rows that needed no reading.
    Known(RecordBatch),
    Bytes(Bytes),
}

impl<S: FileSource> PartitionScan<S> {
    pub(super) fn new(exec: &FileScanExec<S>, partition: usize, context: &TaskContext) -> Self {
        let consumer = MemoryConsumer::new(format!("{}[{partition}]", S::NODE));
        let ready_memory = consumer.register(context.memory_pool());
        let (source, queue) = (Arc::clone(&exec.source), Arc::clone(&exec.queue));
        let reader = Reader {
            stores: Stores::new(context.runtime_env()),
            bytes_ahead: Arc::new(Semaphore::new(BYTES_AHEAD as usize)),
        };
        let (files, memory) = (source.len(), ready_memory.new_empty());
        let reads = futures::stream::iter(std::iter::from_fn(move || queue.take(files)))
            .map(move |index| reader.clone().read(Arc::clone(&source), index, memory.new_empty()))
            .buffer_unordered(FILES_AHEAD)
            .boxed();
        Self {
            source: Arc::clone(&exec.source),
            on_unreadable: exec.on_unreadable,
            log: exec.log(),
            metrics: ScanMetrics::new(&exec.metrics, partition),
            reads,
            ready: VecDeque::new(),
            ready_memory,
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                self.ready_memory.shrink(batch.get_array_memory_size().min(self.ready_memory.size()));
                self.metrics.baseline.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
            let Some(file) = self.reads.next().await else {
                self.metrics.baseline.done();
                return Ok(None);
            };
            let index = file.index;
            match self.accept(file).await {
                Ok(()) => {}
                Err(error) => {
                    if error.is_about_the_file() {
                        let location = self.source.location(index).to_string();
                        self.log.note(Unreadable {
                            location,
                            why: error.to_string(),
                            index,
                            missing: error.is_not_found(),
                        });
                    }
                    if self.on_unreadable == OnUnreadable::Fail || !error.is_about_the_file() {
                        return Err(error.into());
                    }
                    self.metrics.files_skipped.add(1);
                }
            }
        }
    }

    /// Decodes a file to its end before any of its rows are handed on.
    async fn accept(&mut self, file: FileRead) -> Result<()> {
        let FileRead { index, content, memory, _share } = file;
        let batches = match content? {
            Content::Known(batch) => vec![batch],
            Content::Bytes(bytes) => {
                self.note_read(index, bytes.len());
                self.decode(index, &bytes, &memory).await?
            }
        };
        self.ready.extend(batches.into_iter().filter(|batch| batch.num_rows() > 0));
        memory.try_resize(self.ready.iter().map(RecordBatch::get_array_memory_size).sum())?;
        self.ready_memory = memory;
        Ok(())
    }

    async fn decode(&mut self, index: usize, bytes: &[u8], memory: &MemoryReservation) -> Result<Vec<RecordBatch>> {
        let compute = self.metrics.baseline.elapsed_compute().clone();
        let mut timer = compute.timer();
        let mut decoder = self.source.decode(index, bytes)?;
        let mut batches: Vec<RecordBatch> = vec![];
        let mut batch_bytes = 0;
        while let Some(batch) = decoder.next() {
            let batch = batch?;
            batch_bytes += batch.get_array_memory_size();
            batches.push(batch);
            memory.try_resize(bytes.len() + decoder.buffer_bytes() + batch_bytes)?;
            // A manifest of a million entries takes a second: other tasks want their turn, and cancellation its chance.
            timer.stop();
            tokio::task::yield_now().await;
            timer.restart();
        }
        Ok(batches)
    }

    fn note_read(&self, index: usize, bytes: usize) {
        self.metrics.files_read.add(1);
        self.metrics.bytes_scanned.add(bytes);
        self.log.read(bytes as u64);
        if S::KEEPS_SIZES {
            self.log.size(self.source.location(index), bytes as u64);
        }
    }
}

impl ScanMetrics {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            bytes_scanned: counter("bytes_scanned"),
            files_read: counter("files_read"),
            files_skipped: counter("files_skipped"),
        }
    }
}

#[derive(Clone)]
struct Reader {
    stores: Stores,
    bytes_ahead: Arc<Semaphore>,
}

impl Reader {
    async fn read<S: FileSource>(self, source: Arc<S>, index: usize, memory: MemoryReservation) -> FileRead {
        if let Some(rows) = source.known(index) {
            return FileRead { index, content: rows.map(Content::Known), memory, _share: None };
        }
        let bytes = source.size_hint(index).unwrap_or(USUAL_BYTES);
        let share = u32::try_from(bytes).unwrap_or(u32::MAX).min(BYTES_AHEAD);
        // Fails only when the semaphore was closed, which nobody does.
        let share = self.bytes_ahead.acquire_many_owned(share).await.ok();
        let content = read_bytes(self.stores, source.location(index).to_string(), &memory).await;
        FileRead { index, content: content.map(Content::Bytes), memory, _share: share }
    }
}

/// Reads in a task of its own, so that the transfer goes on while this partition decodes another file.
async fn read_bytes(stores: Stores, location: String, memory: &MemoryReservation) -> Result<Bytes> {
    let task = SpawnedTask::spawn(async move { stores.read(&location).await });
    let bytes = task.join_unwind().await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??;
    memory.try_grow(bytes.len())?;
    Ok(bytes)
}
