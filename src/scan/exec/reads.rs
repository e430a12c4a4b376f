//! Reading files ahead of decoding.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryReservation};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::FileSource;
use super::decode::Rows;
use super::memory::{FileMemory, ScanMemory};
use crate::error::Result;
use crate::options::MaintenanceOptions;
use crate::storage::{FileContent, LocalFiles, Store, Stores, requests_at_once};
use crate::table::Location;

/// The part of a limited memory pool that files may take which are read ahead, as a divisor.
const PART_OF_THE_POOL: usize = 4;

/// What a file is taken for whose size is unknown: a manifest list of a thousand manifests.
const USUAL_BYTES: u64 = 64 << 10;

/// Local files are read and decoded in groups of no more than this: handing work to another thread costs as much as reading
/// a small file.
const GROUP_FILES: usize = 16;

/// No file is added to a group that has so many bytes.
const GROUP_BYTES: u64 = 1 << 20;

/// How far the streams of a scan may read ahead, and how many files one read is for.
#[derive(Debug)]
pub(super) struct ReadLimits {
    /// Reads under way at once, of all streams together.
    reads: Arc<Semaphore>,
    max_reads: u32,
    /// Groups that one stream reads ahead.
    pub(super) groups_ahead: usize,
    /// Bytes that one stream reads ahead.
    bytes_ahead: u32,
    group_files: usize,
}

impl ReadLimits {
    pub(super) fn new<S: FileSource>(source: &S, partitions: usize, context: &TaskContext) -> Self {
        let options = context.session_config().options().extensions.get::<MaintenanceOptions>();
        let (max_reads, bytes) =
            options.map_or_else(|| MaintenanceOptions::default().reading(), MaintenanceOptions::reading);
        let max_reads = max_reads.clamp(1, 10_000);
        // Whoever asked for the rows needs memory for what it makes of them.
        let bytes = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit) => bytes.min(limit / PART_OF_THE_POOL),
            MemoryLimit::Infinite | MemoryLimit::Unknown => bytes,
        };
        // Where reads have a latency, all of them should be busy before any is for two files.
        let is_local = |location: &str| Location::parse(location).is_ok_and(|location| location.is_local());
        let group_files = match source.len() {
            files if files > 0 && is_local(source.location(0)) => files.div_ceil(max_reads).min(GROUP_FILES),
            _ => 1,
        };
        let groups = source.len().div_ceil(group_files);
        Self {
            reads: Arc::new(Semaphore::new(max_reads)),
            max_reads: max_reads as u32,
            // A stream that took more than its share of few files would leave the others without work.
            groups_ahead: max_reads.min(groups).div_ceil(partitions),
            bytes_ahead: u32::try_from(bytes / partitions).unwrap_or(u32::MAX >> 1).max(1),
            group_files,
        }
    }

    /// The next files that are read together, from `next` on.
    pub(super) fn group<S: FileSource>(&self, source: &S, next: usize) -> Range<usize> {
        let mut end = next;
        let mut bytes = 0u64;
        while end < source.len() && end - next < self.group_files && bytes < GROUP_BYTES {
            bytes = bytes.saturating_add(source.size_hint(end).unwrap_or(USUAL_BYTES));
            end += 1;
        }
        next..end
    }
}

/// Files that were read together, or could not be.
pub(super) struct FilesRead {
    pub(super) files: Vec<FileRead>,
    pub(super) memory: FileMemory,
    /// Their share of the bytes that may be read ahead, given back once they are decoded.
    pub(super) share: Option<OwnedSemaphorePermit>,
}

pub(super) struct FileRead {
    pub(super) index: usize,
    pub(super) content: Result<Content>,
}

pub(super) enum Content {
    /// Rows that needed no reading.
    Known(Rows),
    Bytes(FileContent),
}

/// Reads the files of one stream.
pub(super) struct Reader<S> {
    source: Arc<S>,
    stores: Stores,
    limits: Arc<ReadLimits>,
    bytes_ahead: Arc<Semaphore>,
    memory: Arc<ScanMemory>,
}

impl<S: FileSource> Reader<S> {
    pub(super) fn new(source: Arc<S>, limits: Arc<ReadLimits>, memory: Arc<ScanMemory>, context: &TaskContext) -> Self {
        let bytes_ahead = Arc::new(Semaphore::new(limits.bytes_ahead as usize));
        Self { source, stores: Stores::new(context.runtime_env()), limits, bytes_ahead, memory }
    }

    /// Reads files as soon as there is room for them. In a task of its own, so that it goes on while the stream decodes
    /// other files; dropping the future ends it.
    pub(super) async fn read(
        self: Arc<Self>,
        files: Range<usize>,
        reservation: MemoryReservation,
    ) -> Result<FilesRead> {
        let work = async move {
            let estimate = files.clone().fold(0, |sum: usize, index| sum.saturating_add(self.estimate(index)));
            let share = u32::try_from(estimate).unwrap_or(u32::MAX).min(self.limits.bytes_ahead);
            // Fails only when the semaphore was closed, which nobody does.
            let share = Arc::clone(&self.bytes_ahead).acquire_many_owned(share).await.ok();
            let memory = Arc::clone(&self.memory).take(reservation, estimate).await;
            Ok(FilesRead { files: self.read_all(files).await?, memory, share })
        };
        joined(SpawnedTask::spawn(work)).await?
    }

    /// Reads one file when no other file of the scan takes memory.
    pub(super) async fn read_alone(self: Arc<Self>, file: usize, reservation: MemoryReservation) -> Result<FilesRead> {
        let work = async move {
            let memory = Arc::clone(&self.memory).take_alone(reservation).await;
            Ok(FilesRead { files: self.read_all(file..file + 1).await?, memory, share: None })
        };
        joined(SpawnedTask::spawn(work)).await?
    }

    /// What a file will take until its rows are handed on. Made of hints, which may be any number.
    fn estimate(&self, index: usize) -> usize {
        let bytes = self.source.size_hint(index).unwrap_or(USUAL_BYTES);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(self.source.decoded_hint(index));
        bytes.min(self.limits.bytes_ahead as usize)
    }

    async fn read_all(&self, files: Range<usize>) -> Result<Vec<FileRead>> {
        let mut read = Vec::with_capacity(files.len());
        let mut local: Vec<(usize, Location, LocalFiles)> = vec![];
        let mut store: Option<(Location, Store)> = None;
        for index in files {
            if let Some(rows) = self.source.known(index) {
                read.push(FileRead { index, content: rows.map(Content::Known) });
                continue;
            }
            match self.locate(index, &mut store) {
                Err(error) => read.push(FileRead { index, content: Err(error) }),
                Ok((location, store)) => match store.as_local() {
                    Some(files) => local.push((index, location, files.clone())),
                    None => {
                        let content = self.read_object(index, &location, &store).await;
                        read.push(FileRead { index, content: content.map(Content::Bytes) });
                    }
                },
            }
        }
        if !local.is_empty() {
            read.extend(self.read_local(local).await?);
        }
        Ok(read)
    }

    /// A file's location and store. Most files are in the store of the one before.
    fn locate(&self, index: usize, last: &mut Option<(Location, Store)>) -> Result<(Location, Store)> {
        let location = Location::parse(self.source.location(index))?;
        if let Some((known, store)) = last
            && known.scheme() == location.scheme()
            && known.authority() == location.authority()
        {
            return Ok((location, store.clone()));
        }
        let store = self.stores.store(&location)?;
        *last = Some((location.clone(), store.clone()));
        Ok((location, store))
    }

    async fn read_object(&self, index: usize, location: &Location, store: &Store) -> Result<FileContent> {
        let expected = self.source.size_hint(index);
        let permits = u32::try_from(requests_at_once(expected)).unwrap_or(1).min(self.limits.max_reads);
        let _reading = self.limits.reads.acquire_many(permits).await;
        store.read_expecting(location, expected).await
    }

    async fn read_local(&self, files: Vec<(usize, Location, LocalFiles)>) -> Result<Vec<FileRead>> {
        let _reading = self.limits.reads.acquire().await;
        let read = move || {
            let read = |(index, location, local): (usize, Location, LocalFiles)| {
                let content = local.read_blocking(&location);
                let content = content.map(|bytes: Bytes| Content::Bytes(FileContent { bytes, requests: 1 }));
                FileRead { index, content }
            };
            files.into_iter().map(read).collect()
        };
        joined(SpawnedTask::spawn_blocking(read)).await
    }
}

/// What a task came to; a panic goes on here.
pub(super) async fn joined<T: Send + 'static>(task: SpawnedTask<T>) -> Result<T> {
    Ok(task.join_unwind().await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?)
}
