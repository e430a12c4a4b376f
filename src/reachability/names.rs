//! File names, to ask whether a file of the same name is live somewhere else.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use datafusion::execution::TaskContext;

use super::buckets::{HashBuckets, SortedBuckets, bucket_of};
use crate::error::Result;
use crate::table::location::{file_name, percent_decoded};

/// Collects the names of files that are live in places which can't be compared with the candidates'.
///
/// Names are hashed: a collision can only keep a candidate.
#[derive(Debug)]
pub(crate) struct FileNamesBuilder {
    seed: RandomState,
    hashes: HashBuckets,
    last: Option<u64>,
}

/// Names of live files.
#[derive(Debug)]
pub(crate) struct FileNames {
    seed: RandomState,
    hashes: SortedBuckets,
    is_empty: bool,
}

/// The share of a limited memory pool that the names may use, as a divisor.
const SHARE: usize = 12;

impl FileNamesBuilder {
    pub(crate) fn new(task: &TaskContext) -> Self {
        Self { seed: RandomState::new(), hashes: HashBuckets::new(task, "FileNames", SHARE), last: None }
    }

    /// Adds the name of a file, also with percent-encoding undone.
    ///
    /// # Errors
    /// When the session's memory and temporary files are used up.
    pub(crate) fn insert(&mut self, location: &str) -> Result<()> {
        let name = file_name(location);
        let hash = self.seed.hash_one(name);
        if self.last == Some(hash) {
            return Ok(());
        }
        self.last = Some(hash);
        self.hashes.insert(hash)?;
        match percent_decoded(name).filter(|decoded| decoded != name) {
            Some(decoded) => self.hashes.insert(self.seed.hash_one(decoded.as_str())),
            None => Ok(()),
        }
    }

    /// # Errors
    /// When the session's memory and temporary files are used up.
    pub(crate) fn build(self) -> Result<FileNames> {
        let mut names = 0;
        let hashes = self.hashes.seal(|earlier, later| *earlier == later, |sorted| names += sorted.len())?;
        Ok(FileNames { seed: self.seed, hashes, is_empty: names == 0 })
    }
}

impl FileNames {
    /// Says of each file whether one of its name is live elsewhere.
    ///
    /// # Errors
    /// When a set that was spilled can't be read back.
    pub(crate) fn known<'a>(&mut self, locations: impl Iterator<Item = &'a str>) -> Result<Vec<bool>> {
        if self.is_empty {
            return Ok(locations.map(|_| false).collect());
        }
        let mut order: Vec<(u64, usize)> =
            locations.enumerate().map(|(at, location)| (self.seed.hash_one(file_name(location)), at)).collect();
        order.sort_unstable();
        let mut known = vec![false; order.len()];
        for (hash, at) in order {
            known[at] = self.hashes.bucket(bucket_of(hash))?.binary_search(&hash).is_ok();
        }
        Ok(known)
    }
}
