//! Hashes in buckets: a set of any size in bounded memory.
//!
//! A set is filled, then sealed, then asked. While it is filled, each hash goes to a bucket by its highest bits; when the
//! session's memory pool refuses more, or the set's share of it is used up, what there is moves to a temporary file. Sealing
//! sorts each bucket and drops what is there twice. A set that was spilled is asked bucket by bucket: one is in memory at
//! a time.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{DiskManager, TaskContext};

use super::spill::SpillBuckets;
use crate::error::Result;

/// How many buckets there are. A spilled set of a billion hashes has buckets of 31 MB.
pub(super) const BUCKETS: usize = 256;

/// How many hashes of a bucket are allocated at once, after the first few. The lists never move: a vector that doubles
/// would hold everything twice for a moment.
const CHUNK: usize = 1024;
const FIRST_CHUNK: usize = 32;

/// The bucket of a hash.
pub(super) fn bucket_of(hash: u64) -> usize {
    (hash >> (u64::BITS - BUCKETS.ilog2())) as usize
}

/// Memory of the session's pool that a set may use.
#[derive(Debug)]
pub(super) struct Share {
    reservation: MemoryReservation,
    most: usize,
}

impl Share {
    /// A part of the pool, if the pool has a limit: what reads files needs the rest.
    pub(super) fn of(task: &TaskContext, name: &'static str, part: usize) -> Self {
        let pool = task.memory_pool();
        let most = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit / part,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        Self { reservation: MemoryConsumer::new(name).with_can_spill(true).register(pool), most }
    }

    /// A quarter of the share, but no more than this: what may wait in memory before it is written out.
    pub(super) fn waiting_bytes(&self, at_most: usize) -> usize {
        at_most.min(self.most / 4)
    }

    /// False if there is no more for the set.
    pub(super) fn grow(&self, bytes: usize) -> bool {
        self.reservation.size().saturating_add(bytes) <= self.most && self.reservation.try_grow(bytes).is_ok()
    }

    /// Takes what can't be done without, whatever the share is.
    ///
    /// # Errors
    /// When the pool has no more.
    pub(super) fn need(&self, bytes: usize) -> Result<()> {
        Ok(self.reservation.try_grow(bytes)?)
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.reservation.shrink(bytes.min(self.reservation.size()));
    }
}

/// A set of hashes that is being filled.
#[derive(Debug)]
pub(super) struct HashBuckets {
    share: Share,
    disk: Arc<DiskManager>,
    buckets: Vec<Vec<Vec<u64>>>,
    spilled: Option<SpillBuckets>,
}

/// A sealed set: sorted hashes without duplicates.
#[derive(Debug)]
pub(super) struct SortedBuckets {
    share: Share,
    disk: Arc<DiskManager>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<Vec<u64>>),
    Disk { sorted: SpillBuckets, loaded: Option<(usize, Vec<u64>)> },
}

const WHAT: &str = "the set of live files";

impl HashBuckets {
    /// An empty set. `part`: what share of a limited memory pool it may use, as a divisor.
    pub(super) fn new(task: &TaskContext, name: &'static str, part: usize) -> Self {
        let runtime = task.runtime_env();
        Self {
            share: Share::of(task, name, part),
            disk: Arc::clone(&runtime.disk_manager),
            buckets: vec![vec![]; BUCKETS],
            spilled: None,
        }
    }

    /// # Errors
    /// When memory and temporary files are both used up.
    pub(super) fn insert(&mut self, hash: u64) -> Result<()> {
        let index = bucket_of(hash);
        let bucket = &mut self.buckets[index];
        match bucket.last_mut().filter(|chunk| chunk.len() < chunk.capacity()) {
            Some(chunk) => chunk.push(hash),
            None => {
                let capacity = if bucket.is_empty() { FIRST_CHUNK } else { CHUNK };
                let bytes = capacity * size_of::<u64>();
                if !self.share.grow(bytes) {
                    self.spill()?;
                    self.share.need(bytes)?;
                }
                let mut chunk = Vec::with_capacity(capacity);
                chunk.push(hash);
                self.buckets[index].push(chunk);
            }
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(SpillBuckets::create(&self.disk, WHAT)?),
        };
        let mut bytes = Vec::new();
        for (index, bucket) in self.buckets.iter_mut().enumerate().filter(|(_, bucket)| !bucket.is_empty()) {
            bytes.clear();
            bytes.extend(bucket.iter().flatten().flat_map(|hash| hash.to_le_bytes()));
            spilled.append(index, &bytes)?;
            let held: usize = bucket.iter().map(Vec::capacity).sum();
            *bucket = vec![];
            self.share.give_back(held * size_of::<u64>());
        }
        Ok(())
    }

    /// Sorts each bucket. Of two hashes that are `same`, the later is merged into the earlier by `merge`.
    ///
    /// `each` sees every bucket once it is sorted.
    ///
    /// # Errors
    /// When memory and temporary files are both used up.
    pub(super) fn seal(
        mut self,
        merge: impl Fn(&mut u64, u64) -> bool,
        mut each: impl FnMut(&[u64]),
    ) -> Result<SortedBuckets> {
        let mut sort = |hashes: &mut Vec<u64>| {
            hashes.sort_unstable();
            hashes.dedup_by(|later, earlier| merge(earlier, *later));
            each(hashes);
        };
        // The sorted copies need room for the largest bucket beside the chunks that it is made from.
        let largest = self.buckets.iter().map(|bucket| bucket.iter().map(Vec::len).sum::<usize>()).max().unwrap_or(0);
        if self.spilled.is_some() || !self.share.grow(largest * size_of::<u64>()) {
            self.spill()?;
        } else {
            self.share.give_back(largest * size_of::<u64>());
        }
        let Self { share, disk, buckets, spilled } = self;
        let Some(mut spilled) = spilled else {
            let mut sorted = Vec::with_capacity(BUCKETS);
            for bucket in buckets {
                let held: usize = bucket.iter().map(Vec::capacity).sum();
                let mut hashes = bucket.concat();
                share.need(hashes.capacity() * size_of::<u64>())?;
                drop(bucket);
                share.give_back(held * size_of::<u64>());
                sort(&mut hashes);
                sorted.push(hashes);
            }
            return Ok(SortedBuckets { share, disk, place: Place::Memory(sorted) });
        };
        let mut sorted = SpillBuckets::create(&disk, WHAT)?;
        for index in 0..BUCKETS {
            let (mut hashes, held) = load(&mut spilled, index, &share)?;
            sort(&mut hashes);
            let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
            sorted.append(index, &bytes)?;
            share.give_back(held);
        }
        Ok(SortedBuckets { share, disk, place: Place::Disk { sorted, loaded: None } })
    }
}

/// Reads a bucket, and says how much memory was taken for it.
fn load(spilled: &mut SpillBuckets, index: usize, share: &Share) -> Result<(Vec<u64>, usize)> {
    // Twice: the bytes as they were written, chunk by chunk, and the numbers made from them.
    let held = spilled.bytes_in(index) * 2;
    share.need(held)?;
    let mut hashes = Vec::with_capacity(spilled.bytes_in(index) / size_of::<u64>());
    let mut bytes = Vec::new();
    for chunk in 0..spilled.chunks_in(index) {
        bytes.clear();
        spilled.read_chunk(index, chunk, &mut bytes)?;
        hashes.extend(bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)));
    }
    Ok((hashes, held))
}

impl SortedBuckets {
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self.place, Place::Memory(_))
    }

    pub(super) fn disk(&self) -> &Arc<DiskManager> {
        &self.disk
    }

    pub(super) fn share(&self) -> &Share {
        &self.share
    }

    /// The sorted hashes of a bucket. Marks made in them stay only while the bucket is the last that was asked for; in memory
    /// they stay for good.
    ///
    /// # Errors
    /// When the bucket can't be read back.
    pub(super) fn bucket(&mut self, index: usize) -> Result<&mut Vec<u64>> {
        match &mut self.place {
            Place::Memory(buckets) => Ok(&mut buckets[index]),
            Place::Disk { sorted, loaded } => {
                if loaded.as_ref().is_none_or(|(last, _)| *last != index) {
                    if let Some((last, _)) = loaded.take() {
                        self.share.give_back(sorted.bytes_in(last) * 2);
                    }
                    *loaded = Some((index, load(sorted, index, &self.share)?.0));
                }
                Ok(&mut loaded.get_or_insert_default().1)
            }
        }
    }
}
