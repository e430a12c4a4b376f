//! The set of files that something live names, built to answer one question: may this file go?
//!
//! Files are held as 55-bit hashes of their keys, with a seed of its own for each set. The side to keep is hashed and the
//! candidates probe it, so that a collision can only keep a file, never let one go. The same key may be live under several
//! schemes and authorities, as a rule it is under one: each has a tag, held beside the hash.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::buckets::{HashBuckets, Share, SortedBuckets, bucket_of};
use super::identity::FileIdentity;
use crate::error::Result;
use crate::table::FilePrefix;

/// What names a live file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// An entry of a manifest: it is a data file or a delete file.
    Manifest,
    /// Metadata or a manifest list: it is a manifest, a list, statistics, or metadata itself.
    Metadata,
}

/// How a candidate relates to the live files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// Something live names it.
    Live(NamedBy),
    /// Something live names the same path under this scheme and authority, which the rules don't call equal.
    OtherPrefix(FilePrefix),
    /// Nothing live names it.
    Dead,
}

/// Collects the locations of live files. [`LiveFilesBuilder::build`] makes it answer questions.
#[derive(Debug)]
pub(crate) struct LiveFilesBuilder {
    identity: FileIdentity,
    seed: RandomState,
    tags: Vec<Tag>,
    hashes: HashBuckets,
}

/// The set of live files.
#[derive(Debug)]
pub(crate) struct LiveFiles {
    pub(super) identity: FileIdentity,
    seed: RandomState,
    tags: Vec<Tag>,
    pub(super) hashes: SortedBuckets,
    named_by_manifests: usize,
    /// A set that was spilled: the expected files that no candidate was, once all candidates were looked up.
    unseen_on_disk: Vec<u64>,
}

type Tag = (Arc<FilePrefix>, NamedBy);

/// Bit 0 of an entry: the file lies where the listing looks, so the listing must show it, and has not shown it yet.
const EXPECTED: u64 = 1;
/// The bits of an entry that hold its tag.
const TAG_SHIFT: u32 = 1;
const TAG_MASK: u64 = 0xff << TAG_SHIFT;
const HASH_MASK: u64 = !(TAG_MASK | EXPECTED);
/// Stands for all schemes and authorities beyond the first 255: whatever a candidate's are, it is kept.
const ANY_TAG: usize = 0xff;

/// The share of a limited memory pool that one set may use, as a divisor.
const SHARE: usize = 3;

impl LiveFilesBuilder {
    pub(crate) fn new(identity: FileIdentity, task: &TaskContext) -> Self {
        let hashes = HashBuckets::new(task, "LiveFiles", SHARE);
        Self { identity, seed: RandomState::new(), tags: vec![], hashes }
    }

    /// Adds a file. `expected` says that the listing which will probe this set must show it.
    ///
    /// # Errors
    /// When the session's memory and temporary files are used up, or a local disk doesn't say where a folder's links lead.
    pub(crate) fn insert(&mut self, location: &str, named_by: NamedBy, expected: bool) -> Result<()> {
        let prefix = self.identity.prefix(location);
        let known = self.tags.iter().position(|(known, by)| *by == named_by && *known == prefix);
        let tag = match known {
            Some(tag) => tag,
            None if self.tags.len() < ANY_TAG => {
                self.tags.push((prefix, named_by));
                self.tags.len() - 1
            }
            None => ANY_TAG,
        };
        let mark = (tag as u64) << TAG_SHIFT | if expected { EXPECTED } else { 0 };
        for key in self.identity.keys(location)?.iter() {
            self.hashes.insert(hash(&self.seed, key) | mark)?;
        }
        Ok(())
    }

    /// # Errors
    /// When the session's memory and temporary files are used up.
    pub(crate) fn build(self) -> Result<LiveFiles> {
        let Self { identity, seed, tags, hashes } = self;
        let mut named_by_manifests = 0;
        let rules = identity.rules();
        let places: Vec<FilePrefix> = tags.iter().map(|(prefix, _)| rules.listed_prefix((**prefix).clone())).collect();
        let is_content = |entry: &&u64| named_by(&tags, **entry) == NamedBy::Manifest;
        // A file is one however its names spell scheme and authority.
        let count = |sorted: &[u64]| -> usize {
            let of_one_path = sorted.chunk_by(|a, b| a & HASH_MASK == b & HASH_MASK);
            let distinct = of_one_path.map(|entries| match entries {
                [entry] => usize::from(is_content(&entry)),
                entries => {
                    let places = entries.iter().filter(is_content).map(|entry| places.get(tag_of(*entry)));
                    places.collect::<HashSet<_>>().len()
                }
            });
            distinct.sum()
        };
        // Of two entries for one file the merged one has the mark if any has.
        let merge = |earlier: &mut u64, later: u64| {
            let same = (*earlier | EXPECTED) == (later | EXPECTED);
            if same {
                *earlier |= later;
            }
            same
        };
        let hashes = hashes.seal(merge, |sorted| named_by_manifests += count(sorted))?;
        Ok(LiveFiles { identity, seed, tags, hashes, named_by_manifests, unseen_on_disk: vec![] })
    }
}

fn tag_of(entry: u64) -> usize {
    ((entry & TAG_MASK) >> TAG_SHIFT) as usize
}

fn named_by(tags: &[Tag], entry: u64) -> NamedBy {
    tags.get(tag_of(entry)).map_or(NamedBy::Manifest, |(_, named_by)| *named_by)
}

fn hash(seed: &RandomState, key: &str) -> u64 {
    let mut hasher = seed.build_hasher();
    hasher.write(key.as_bytes());
    hasher.finish() & HASH_MASK
}

/// The entries of a hash in a sorted bucket.
fn entries_of(bucket: &mut [u64], hash: u64) -> &mut [u64] {
    let start = bucket.partition_point(|entry| *entry < hash);
    let end = bucket[start..].iter().take_while(|entry| **entry & HASH_MASK == hash).count();
    &mut bucket[start..start + end]
}

impl LiveFiles {
    /// How many distinct files manifests name.
    pub(crate) fn named_by_manifests(&self) -> usize {
        self.named_by_manifests
    }

    /// Looks one candidate up, and notes that it was seen.
    ///
    /// # Errors
    /// When a set that was spilled can't be read back.
    pub(crate) fn probe(&mut self, location: &str) -> Result<Liveness> {
        match self.hash_of(location) {
            Some(hash) => self.look_up(hash, location),
            None => Ok(Liveness::Live(NamedBy::Manifest)),
        }
    }

    /// Looks candidates up. The answers come in the order of the candidates.
    ///
    /// # Errors
    /// When a set that was spilled can't be read back.
    pub(crate) fn probe_all(&mut self, locations: &[&str]) -> Result<Vec<Liveness>> {
        // In the order of the hashes: neighbours in the set are neighbours in memory, and a bucket on disk is read once.
        let mut order: Vec<(Option<u64>, usize)> =
            locations.iter().enumerate().map(|(at, location)| (self.hash_of(location), at)).collect();
        order.sort_unstable();
        let mut answers = vec![Liveness::Live(NamedBy::Manifest); locations.len()];
        for (hash, at) in order {
            if let Some(hash) = hash {
                answers[at] = self.look_up(hash, locations[at])?;
            }
        }
        Ok(answers)
    }

    /// The hash of a candidate. `None` if it can't be found out what file it really is: it may be a live one.
    pub(super) fn hash_of(&mut self, location: &str) -> Option<u64> {
        self.identity.key(location).ok().map(|key| hash(&self.seed, &key))
    }

    pub(super) fn look_up(&mut self, hash: u64, location: &str) -> Result<Liveness> {
        let prefix = self.identity.prefix(location);
        let mut listed = None;
        let tags = &self.tags;
        let mut liveness = Liveness::Dead;
        for entry in entries_of(self.hashes.bucket(bucket_of(hash))?, hash) {
            *entry &= !EXPECTED;
            let named_by = named_by(tags, *entry);
            let is_live = tags.get(tag_of(*entry)).is_none_or(|(live, _)| {
                let rules = self.identity.rules();
                let listed = listed.get_or_insert_with(|| rules.listed_prefix(FilePrefix::clone(&prefix)));
                live.matches_listed(listed)
            });
            liveness = match (liveness, is_live) {
                (Liveness::Live(NamedBy::Manifest), _) => Liveness::Live(NamedBy::Manifest),
                (_, true) => Liveness::Live(named_by),
                (Liveness::Dead, false) => Liveness::OtherPrefix(FilePrefix::clone(&tags[tag_of(*entry)].0)),
                (known, false) => known,
            };
        }
        Ok(liveness)
    }

    /// Remembers which expected files of a bucket no candidate was, before the bucket leaves memory.
    pub(super) fn note_unseen(&mut self, bucket: usize) -> Result<()> {
        let expected = |entry: &&u64| **entry & EXPECTED != 0;
        let unseen: Vec<u64> =
            self.hashes.bucket(bucket)?.iter().filter(expected).map(|entry| entry & HASH_MASK).collect();
        self.share().need(unseen.len() * size_of::<u64>())?;
        self.unseen_on_disk.extend(unseen);
        Ok(())
    }

    pub(super) fn share(&self) -> &Share {
        self.hashes.share()
    }

    /// How many of the expected files no candidate was. Files with several names may be counted although they were seen:
    /// [`Self::is_unseen`] tells.
    ///
    /// # Errors
    /// Never for a set that is in memory.
    pub(crate) fn unseen_count(&mut self) -> Result<usize> {
        if !self.hashes.is_in_memory() {
            return Ok(self.unseen_on_disk.len());
        }
        let mut unseen = 0;
        for bucket in 0..super::buckets::BUCKETS {
            unseen += self.hashes.bucket(bucket)?.iter().filter(|entry| **entry & EXPECTED != 0).count();
        }
        Ok(unseen)
    }

    /// True if this file was expected and no candidate was it, under any of its names.
    ///
    /// # Errors
    /// When a local disk doesn't say where a folder's links lead.
    pub(crate) fn is_unseen(&mut self, location: &str) -> Result<bool> {
        let keys: Vec<u64> = self.identity.keys(location)?.iter().map(|key| hash(&self.seed, key)).collect();
        for hash in keys {
            let unseen = match self.hashes.is_in_memory() {
                true => {
                    entries_of(self.hashes.bucket(bucket_of(hash))?, hash).iter().any(|entry| entry & EXPECTED != 0)
                }
                false => self.unseen_on_disk.binary_search(&hash).is_ok(),
            };
            if !unseen {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
