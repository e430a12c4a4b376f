//! One stream of a scan: reads ahead, decodes, hands on.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::decode::{Decoders, FileDecoded, FileParts, Outcome};
use super::memory::{FileMemory, ScanMemory, is_refusal};
use super::reads::{Content, FilesRead, ReadLimits, Reader};
use super::work::StreamMetrics;
use super::{FileScanExec, FileSource, Kept, LiveCounts, OnUnreadable, ScanLog, Unreadable};
use crate::error::{Error, Result};
use crate::progress::RunWork;

/// What the streams of one execution share.
#[derive(Debug)]
pub(super) struct SharedWork {
    /// The first file that no stream has taken.
    next: Mutex<usize>,
    limits: Arc<ReadLimits>,
    decoders: Decoders,
    memory: Arc<ScanMemory>,
}

impl SharedWork {
    pub(super) fn new<S: FileSource>(source: &S, partitions: usize, context: &TaskContext) -> Self {
        S::count(&RunWork::of(context)).known.fetch_add(source.len(), Ordering::Relaxed);
        Self {
            next: Mutex::new(0),
            limits: Arc::new(ReadLimits::new(source, partitions, context)),
            decoders: Decoders::new(context.session_config().target_partitions()),
            memory: Arc::default(),
        }
    }

    /// Takes the next files from the queue.
    fn take<S: FileSource>(&self, source: &S) -> Option<std::ops::Range<usize>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.limits.group(source, *next);
        *next = group.end;
        (!group.is_empty()).then_some(group)
    }
}

pub(super) struct PartitionScan<S: FileSource> {
    source: Arc<S>,
    on_unreadable: OnUnreadable,
    log: Arc<ScanLog>,
    metrics: StreamMetrics,
    shared: Arc<SharedWork>,
    reader: Arc<Reader<S>>,
    /// An empty reservation of this stream's consumer.
    no_memory: MemoryReservation,
    reads: FuturesUnordered<BoxFuture<'static, Result<FilesRead>>>,
    kept: S::Kept,
    kept_memory: MemoryReservation,
    /// Decoded batches that were not handed on yet, and the memory they take.
    ready: VecDeque<RecordBatch>,
    ready_memory: Option<Arc<FileMemory>>,
}

impl<S: FileSource> PartitionScan<S> {
    pub(super) fn new(exec: &FileScanExec<S>, partition: usize, context: &TaskContext) -> Self {
        let shared = exec.shared(context);
        let consumer = MemoryConsumer::new(format!("{}[{partition}]", S::NODE));
        let no_memory = consumer.register(context.memory_pool());
        let source = Arc::clone(&exec.source);
        let reader = Reader::new(Arc::clone(&source), Arc::clone(&shared.limits), Arc::clone(&shared.memory), context);
        Self {
            source,
            on_unreadable: exec.on_unreadable,
            log: exec.log(),
            metrics: StreamMetrics::new(&exec.metrics, partition, RunWork::of(context), S::count),
            shared,
            reader: Arc::new(reader),
            kept_memory: no_memory.new_empty(),
            no_memory,
            reads: FuturesUnordered::new(),
            kept: S::Kept::default(),
            ready: VecDeque::new(),
            ready_memory: None,
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                self.give_back(&batch);
                self.metrics.output(batch.num_rows());
                return Ok(Some(batch));
            }
            self.ready_memory = None;
            self.read_ahead();
            let Some(read) = self.reads.next().await else {
                self.metrics.done();
                return Ok(None);
            };
            self.accept(read?).await?;
        }
    }

    /// What is handed on is the consumer's to account for.
    fn give_back(&self, batch: &RecordBatch) {
        if let Some(memory) = &self.ready_memory {
            memory.release(batch.get_array_memory_size());
            memory.give_back_unused();
        }
    }

    fn read_ahead(&mut self) {
        while self.reads.len() < self.shared.limits.groups_ahead
            && let Some(files) = self.shared.take(self.source.as_ref())
        {
            let read = Arc::clone(&self.reader).read(files, self.no_memory.new_empty());
            self.reads.push(Box::pin(read));
        }
    }

    /// Decodes files, each to its end before any of its rows are handed on.
    async fn accept(&mut self, read: FilesRead) -> Result<()> {
        let FilesRead { files, memory, share } = read;
        let mut bytes = 0;
        for file in &files {
            if let Ok(Content::Bytes(content)) = &file.content {
                bytes += content.bytes.len();
                self.metrics.transferred(content.bytes.len(), content.requests);
            }
        }
        if let Err(error) = memory.grow(bytes) {
            let indexes: Vec<usize> = files.iter().map(|file| file.index).collect();
            return self.read_again(&indexes, &memory, error);
        }
        let memory = Arc::new(memory);
        let decoders = self.shared.decoders.clone();
        let (kept, time) = (std::mem::take(&mut self.kept), self.metrics.decode_time());
        let group = decoders.decode_files(Arc::clone(&self.source), kept, files, Arc::clone(&memory), time).await?;
        self.keep(group.kept);
        self.ready.extend(group.batches);
        for FileDecoded { index, bytes, outcome } in group.files {
            let outcome = match outcome {
                Ok(Outcome::Large(parts)) => self.decode_large(parts, &memory).await.map(|()| None),
                Ok(Outcome::Complete(live)) => Ok(live),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(live) => {
                    self.note_read(index, bytes, live);
                    self.metrics.file_done();
                }
                Err(error) if is_refusal(&error) => self.read_again(&[index], &memory, error)?,
                Err(error) => {
                    self.note_read(index, bytes, None);
                    self.reject(index, error)?;
                }
            }
        }
        drop(share);
        let ready: usize = self.ready.iter().map(RecordBatch::get_array_memory_size).sum();
        memory.release(memory.used().saturating_sub(ready));
        memory.give_back_unused();
        self.ready_memory = Some(memory);
        Ok(())
    }

    async fn decode_large(&mut self, parts: Arc<dyn FileParts>, memory: &Arc<FileMemory>) -> Result<()> {
        let used = memory.used();
        let time = self.metrics.decode_time();
        match self.shared.decoders.decode_parts(parts, Arc::clone(memory), time).await {
            Ok(batches) => {
                self.ready.extend(batches.into_iter().filter(|batch| batch.num_rows() > 0));
                Ok(())
            }
            Err(error) => {
                memory.release(memory.used().saturating_sub(used));
                Err(error)
            }
        }
    }

    /// Puts files that the memory pool refused off until no other file takes memory. One that was alone doesn't fit.
    fn read_again(&mut self, indexes: &[usize], memory: &FileMemory, refusal: Error) -> Result<()> {
        if memory.is_alone() {
            return Err(refusal);
        }
        for index in indexes {
            let read = Arc::clone(&self.reader).read_alone(*index, self.no_memory.new_empty());
            self.reads.push(Box::pin(read));
        }
        Ok(())
    }

    /// Keeps what one file leaves for the next, as far as there is memory.
    fn keep(&mut self, kept: S::Kept) {
        self.kept = kept;
        if self.kept_memory.try_resize(self.kept.bytes()).is_err() {
            self.kept = S::Kept::default();
            self.kept_memory.free();
        }
    }

    fn note_read(&self, index: usize, bytes: Option<usize>, live: Option<LiveCounts>) {
        if let Some(bytes) = bytes {
            self.metrics.file_read();
            self.log.read(bytes as u64);
            if S::KEEPS_SIZES {
                self.log.size(self.source.location(index), bytes as u64);
            }
        }
        if let Some(live) = live {
            self.log.live(index, live);
        }
    }

    /// Leaves a file out, if that is allowed.
    fn reject(&self, index: usize, error: Error) -> Result<()> {
        if error.is_about_the_file() {
            let location = self.source.location(index).to_string();
            let (why, missing) = (error.to_string(), error.is_not_found());
            self.log.note(Unreadable { location, why, index, missing });
        }
        if self.on_unreadable == OnUnreadable::Fail || !error.is_about_the_file() {
            return Err(error);
        }
        self.metrics.file_skipped();
        self.metrics.file_done();
        Ok(())
    }
}
