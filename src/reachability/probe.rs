//! Looking many candidates up in a set of live files.
//!
//! While the set is in memory each batch is answered at once. Where the set was spilled, candidates wait in the same
//! buckets, on disk too when they are many, and are answered bucket by bucket at the end: each bucket of the set is read
//! once, and memory holds one of them.

use std::marker::PhantomData;

use super::buckets::{BUCKETS, bucket_of};
use super::live_files::{LiveFiles, Liveness};
use super::record::{self, broken};
use super::spill::SpillBuckets;
use crate::error::Result;

/// Something that can be looked up, and that can wait on disk.
pub(crate) trait Candidate: Sized {
    /// The file.
    fn location(&self) -> &str;
    /// Writes everything that [`Self::read`] needs.
    fn write(&self, record: &mut record::Writer<'_>);
    /// Reads what was written. `None` when it is something else.
    fn read(record: &mut record::Reader<'_>) -> Option<Self>;
}

/// A pass over all candidates.
pub(crate) struct Probe<'a, C> {
    live: &'a mut LiveFiles,
    waiting: Option<Waiting>,
    /// The bucket, and the chunk in it, that is answered next.
    next: (usize, usize),
    candidates: PhantomData<C>,
}

/// Candidates that wait for their bucket.
struct Waiting {
    buckets: Vec<Vec<u8>>,
    bytes: usize,
    most_bytes: usize,
    spilled: SpillBuckets,
}

/// The most bytes of candidates that wait in memory before they are written out.
const WAITING_BYTES: usize = 4 << 20;

impl<'a, C: Candidate> Probe<'a, C> {
    pub(crate) fn new(live: &'a mut LiveFiles) -> Self {
        Self { live, waiting: None, next: (0, 0), candidates: PhantomData }
    }

    /// Takes candidates, and answers them if it can. The answers come in the order of the candidates.
    ///
    /// # Errors
    /// When the session's memory or temporary files are used up.
    pub(crate) fn push(&mut self, candidates: Vec<C>) -> Result<Vec<(C, Liveness)>> {
        match self.live.hashes.is_in_memory() {
            true => self.answer(candidates),
            false => self.wait(candidates).map(|()| vec![]),
        }
    }

    fn answer(&mut self, candidates: Vec<C>) -> Result<Vec<(C, Liveness)>> {
        let answers = self.live.probe_all(&candidates.iter().map(C::location).collect::<Vec<_>>())?;
        Ok(candidates.into_iter().zip(answers).collect())
    }

    fn wait(&mut self, candidates: Vec<C>) -> Result<()> {
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            none => {
                let most_bytes = self.live.share().waiting_bytes(WAITING_BYTES);
                self.live.share().need(most_bytes)?;
                let spilled = SpillBuckets::create(self.live.hashes.disk(), "files to look up")?;
                none.insert(Waiting { buckets: vec![vec![]; BUCKETS], bytes: 0, most_bytes, spilled })
            }
        };
        for candidate in candidates {
            // What can't be told apart from a live file is kept: it needs no look.
            let Some(hash) = self.live.hash_of(candidate.location()) else { continue };
            let bucket = &mut waiting.buckets[bucket_of(hash)];
            let before = bucket.len();
            let mut record = record::Writer::new(bucket);
            record.number(hash);
            candidate.write(&mut record);
            waiting.bytes += bucket.len() - before;
            if waiting.bytes >= waiting.most_bytes {
                waiting.spill()?;
            }
        }
        Ok(())
    }

    /// The answers to candidates that had to wait, part by part; `None` once there are no more.
    ///
    /// Must be called to the end: only then is it known what no candidate was.
    ///
    /// # Errors
    /// When what was written to temporary files can't be read back.
    pub(crate) fn next_waiting(&mut self) -> Result<Option<Vec<(C, Liveness)>>> {
        if self.live.hashes.is_in_memory() {
            return Ok(None);
        }
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.bytes > 0) {
            waiting.spill()?;
        }
        while self.next.0 < BUCKETS {
            let (bucket, chunk) = self.next;
            match self.waiting.as_mut().filter(|waiting| chunk < waiting.spilled.chunks_in(bucket)) {
                Some(waiting) => {
                    let mut bytes = vec![];
                    waiting.spilled.read_chunk(bucket, chunk, &mut bytes)?;
                    self.next.1 += 1;
                    return self.answer_records(&bytes).map(Some);
                }
                None => {
                    self.live.note_unseen(bucket)?;
                    self.next = (bucket + 1, 0);
                }
            }
        }
        Ok(None)
    }

    fn answer_records(&mut self, bytes: &[u8]) -> Result<Vec<(C, Liveness)>> {
        let mut records = record::Reader::new(bytes);
        let mut answers = vec![];
        while !records.is_empty() {
            let hash = records.number().ok_or_else(broken)?;
            let candidate = C::read(&mut records).ok_or_else(broken)?;
            let liveness = self.live.look_up(hash, candidate.location())?;
            answers.push((candidate, liveness));
        }
        Ok(answers)
    }
}

impl Waiting {
    fn spill(&mut self) -> Result<()> {
        for (index, bucket) in self.buckets.iter_mut().enumerate().filter(|(_, bucket)| !bucket.is_empty()) {
            self.spilled.append(index, bucket)?;
            bucket.clear();
        }
        self.bytes = 0;
        Ok(())
    }
}

impl<C> Drop for Probe<'_, C> {
    fn drop(&mut self) {
        if let Some(waiting) = &self.waiting {
            self.live.share().give_back(waiting.most_bytes);
        }
    }
}
