//! Decoding files in threads of their own.
//!
//! Decoding is CPU work, and the threads that run streams also drive the network: a manifest of 8 MB would keep one of them
//! from its sockets and timers for a tenth of a second. So it goes to the runtime's blocking pool, in jobs that are bounded:
//! a few small files, or one part of a large one. A semaphore lets no more of them run at once than the session has target
//! partitions. (A pool of its own, such as rayon's, would be a second set of threads beside DataFusion's.) Jobs that did
//! not begin when their stream is dropped never do.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::Semaphore;

use super::memory::FileMemory;
use super::reads::{Content, FileRead, joined};
use super::work::DecodeTime;
use super::{FileSource, Kept, LiveCounts};
use crate::error::Result;

/// Batches with fewer rows are put together: each costs the consumer as much as a thousand rows.
const SMALL_BATCH_ROWS: usize = 1024;

/// How many rows they have together at most: DataFusion's own default.
const LARGE_BATCH_ROWS: usize = 8192;

/// A file that was decoded, or is large.
pub(crate) enum Decoded {
    /// All of its rows.
    Rows(Rows),
    /// Its parts are still to be decoded.
    Parts(Arc<dyn FileParts>),
}

/// The rows of a file.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) batches: Vec<RecordBatch>,
    /// For manifest lists: how many live files their manifests have, those without a row here included.
    pub(crate) live: Option<LiveCounts>,
}

/// An opened file whose parts several cores can decode.
pub(crate) trait FileParts: Send + Sync {
    /// The parts, in the order of their rows.
    fn ranges(&self) -> Vec<Range<usize>>;

    /// Decodes a part. Returns its rows, and the counts of its entries for [`Self::check`].
    fn decode(&self, part: Range<usize>, memory: &FileMemory) -> Result<(Vec<RecordBatch>, [u64; 3])>;

    /// Compares the sum of the counts with what the file should have.
    fn check(&self, counts: [u64; 3]) -> Result<()>;
}

/// What files that were decoded together came to.
pub(super) struct GroupDecoded<K> {
    /// The rows of all complete files.
    pub(super) batches: Vec<RecordBatch>,
    pub(super) files: Vec<FileDecoded>,
    pub(super) kept: K,
}

/// What a file of a group came to.
pub(super) struct FileDecoded {
    pub(super) index: usize,
    /// Its size, if it was read.
    pub(super) bytes: Option<usize>,
    pub(super) outcome: Result<Outcome>,
}

pub(super) enum Outcome {
    /// Its rows are in the group's batches.
    Complete(Option<LiveCounts>),
    /// Its parts are still to be decoded.
    Large(Arc<dyn FileParts>),
}

/// Runs jobs, a limited number of them at once.
#[derive(Debug, Clone)]
pub(super) struct Decoders {
    permits: Arc<Semaphore>,
    at_once: usize,
}

impl Decoders {
    pub(super) fn new(at_once: usize) -> Self {
        let at_once = at_once.max(1);
        Self { permits: Arc::new(Semaphore::new(at_once)), at_once }
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        // Fails only when the semaphore was closed, which nobody does.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let work = move || {
            let result = work();
            drop(permit);
            result
        };
        joined(SpawnedTask::spawn_blocking(work)).await
    }

    /// Decodes files that were read together, as far as there is memory.
    pub(super) async fn decode_files<S: FileSource>(
        &self,
        source: Arc<S>,
        kept: S::Kept,
        files: Vec<FileRead>,
        memory: Arc<FileMemory>,
        time: DecodeTime,
    ) -> Result<GroupDecoded<S::Kept>> {
        let mut group = GroupDecoded { batches: vec![], files: Vec::with_capacity(files.len()), kept };
        let work = move || {
            time.measure(|| {
                files.into_iter().for_each(|file| group.decode(source.as_ref(), file, &memory));
                group.batches = put_together(source.schema(), std::mem::take(&mut group.batches))?;
                Ok(group)
            })
        };
        self.run(work).await?
    }

    /// Decodes a large file, several parts at once. Its rows come only if all parts are whole and their counts agree.
    pub(super) async fn decode_parts(
        &self,
        parts: Arc<dyn FileParts>,
        memory: Arc<FileMemory>,
        time: DecodeTime,
    ) -> Result<Vec<RecordBatch>> {
        let jobs = parts.ranges().into_iter().map(|range| {
            let (parts, memory, time) = (Arc::clone(&parts), Arc::clone(&memory), time.clone());
            self.run(move || time.measure(|| parts.decode(range, &memory)))
        });
        let mut decoded = futures::stream::iter(jobs).buffered(self.at_once);
        let (mut batches, mut sum) = (vec![], [0u64; 3]);
        while let Some(part) = decoded.try_next().await? {
            let (rows, counts) = part?;
            batches.extend(rows);
            sum = std::array::from_fn(|status| sum[status].saturating_add(counts[status]));
        }
        parts.check(sum)?;
        Ok(batches)
    }
}

impl<K: Kept> GroupDecoded<K> {
    fn decode<S: FileSource<Kept = K>>(&mut self, source: &S, file: FileRead, memory: &FileMemory) {
        let FileRead { index, content } = file;
        let bytes = match &content {
            Ok(Content::Bytes(content)) => Some(content.bytes.len()),
            Ok(Content::Known(_)) | Err(_) => None,
        };
        let used = memory.used();
        let decoded = content.and_then(|content| match content {
            Content::Known(rows) => Ok(Decoded::Rows(rows)),
            Content::Bytes(content) => source.decode(index, content.bytes, &mut self.kept, memory),
        });
        let outcome = match decoded {
            Ok(Decoded::Rows(rows)) => {
                self.batches.extend(rows.batches.into_iter().filter(|batch| batch.num_rows() > 0));
                Ok(Outcome::Complete(rows.live))
            }
            Ok(Decoded::Parts(parts)) => Ok(Outcome::Large(parts)),
            Err(error) => {
                // What was kept of this file is of rows that are not handed on, so it must not stand for them later.
                self.kept = K::default();
                memory.release(memory.used().saturating_sub(used));
                Err(error)
            }
        };
        self.files.push(FileDecoded { index, bytes, outcome });
    }
}

/// The same rows in fewer batches, where those are small.
fn put_together(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    if batches.len() < 2 || batches.iter().any(|batch| batch.num_rows() > SMALL_BATCH_ROWS) {
        return Ok(batches);
    }
    let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    let mut together = vec![];
    let mut start = 0;
    for end in 1..=batches.len() {
        if end == batches.len() || rows(&batches[start..=end]) > LARGE_BATCH_ROWS {
            together.push(concat_batches(&schema, &batches[start..end])?);
            start = end;
        }
    }
    Ok(together)
}
