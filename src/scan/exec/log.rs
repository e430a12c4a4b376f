//! What a scan read, and what it had to leave out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scan::manifest_list::LiveCounts;

/// A file that was left out because it is missing or not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The file.
    pub(crate) location: String,
    /// What is wrong with it, as a sentence that names it.
    pub(crate) why: String,
    /// Its place in the list of files that the scan was made with.
    pub(crate) index: usize,
    /// It is not there; otherwise it is there and broken.
    pub(crate) missing: bool,
}

/// The record of one scan, shared by its streams and whoever asks afterwards.
#[derive(Debug, Default)]
pub(crate) struct ScanLog {
    files_read: AtomicU64,
    bytes_read: AtomicU64,
    details: Mutex<Details>,
}

#[derive(Debug, Default)]
struct Details {
    skipped: Vec<Unreadable>,
    sizes: HashMap<String, u64>,
    live: HashMap<usize, LiveCounts>,
}

impl ScanLog {
    /// The files that were left out, in the order of the scan's list.
    pub(crate) fn unreadable(&self) -> Vec<Unreadable> {
        let mut skipped = self.details().skipped.clone();
        skipped.sort_by_key(|file| file.index);
        skipped
    }

    /// How many files were read, whether or not they could be decoded.
    #[cfg(test)]
    pub(crate) fn files_read(&self) -> u64 {
        self.files_read.load(Ordering::Relaxed)
    }

    /// How many bytes these files have.
    #[cfg(test)]
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The size in bytes of each manifest list that was read, by location. Empty for scans of manifests: their lists
    /// name their sizes.
    pub(crate) fn list_sizes(&self) -> HashMap<String, u64> {
        self.details().sizes.clone()
    }

    /// How many live files each manifest list counts, by its place in the list of files that the scan was made with. Only
    /// lists that could be decoded are in it.
    pub(crate) fn live_counts(&self) -> HashMap<usize, LiveCounts> {
        self.details().live.clone()
    }

    pub(super) fn read(&self, bytes: u64) {
        self.files_read.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn size(&self, location: &str, bytes: u64) {
        self.details().sizes.insert(location.to_string(), bytes);
    }

    pub(super) fn live(&self, index: usize, live: LiveCounts) {
        self.details().live.insert(index, live);
    }

    pub(super) fn note(&self, file: Unreadable) {
        tracing::warn!(location = %file.location, why = %file.why, "left out an unreadable file");
        self.details().skipped.push(file);
    }

    pub(super) fn clear(&self) {
        self.files_read.store(0, Ordering::Relaxed);
        self.bytes_read.store(0, Ordering::Relaxed);
        *self.details() = Details::default();
    }

    // A panic elsewhere can't leave the details half-changed: each change is one insertion.
    fn details(&self) -> MutexGuard<'_, Details> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
