//! Which snapshots list which manifests.
//!
//! Whether a file may go is a question about all snapshots that stay together; [`super::list_manifests`] answers it. Here
//! each snapshot is looked at by itself: to say who needs a file, and what is wrong with one snapshot but not with others.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

use super::manifests::{DistinctManifests, ManifestFile, is_short, list_of, partitions};
use crate::error::Result;
use crate::scan::{ManifestListScanExec, OnUnreadable, Unreadable, collect_partitioned};
use crate::table::Snapshot;

/// A set of snapshots, by their places in the list that it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotSet(Vec<u64>);

impl SnapshotSet {
    /// No snapshot of so many.
    pub(crate) fn none_of(snapshots: usize) -> Self {
        Self(vec![0; snapshots.div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, snapshot: usize) {
        if let Some(word) = self.0.get_mut(snapshot / 64) {
            *word |= 1 << (snapshot % 64);
        }
    }

    pub(crate) fn contains(&self, snapshot: usize) -> bool {
        self.0.get(snapshot / 64).is_some_and(|word| word >> (snapshot % 64) & 1 == 1)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    pub(crate) fn remove(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
    }

    pub(crate) fn in_both(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(word, other)| word & other).collect())
    }

    /// The last place in the set.
    pub(crate) fn last(&self) -> Option<usize> {
        let (at, word) = self.0.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        Some(at * 64 + word.ilog2() as usize)
    }

    /// All places in the set, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        let places = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        self.0.iter().enumerate().flat_map(places)
    }
}

/// The manifests of some snapshots, and which of the snapshots lists which.
#[derive(Debug)]
pub(crate) struct SnapshotManifests {
    /// Each distinct manifest once.
    pub manifests: Vec<ManifestFile>,
    /// The snapshots that list each manifest.
    pub listed_by: Vec<SnapshotSet>,
    /// Manifests that a snapshot lists more than once, and the snapshot's place.
    pub repeated: Vec<(usize, usize)>,
    /// Sizes of the manifest lists that were read, by location.
    pub list_sizes: HashMap<String, u64>,
    /// Manifest lists that are missing or malformed; `index` is the snapshot's place.
    pub unreadable: Vec<Unreadable>,
    /// Snapshots whose summary counts more live files than their manifest list does: it seems to be cut short.
    pub short: Vec<usize>,
    /// Manifests that two lists say different things of.
    pub contradicted: Vec<usize>,
    _memory: MemoryReservation,
}

/// Reads the manifest lists of snapshots, each to its end. What can't be read is noted.
///
/// # Errors
/// Every failure of the store, and when the session's memory limit is too low.
pub(crate) async fn manifests_of_snapshots(
    snapshots: &[&Snapshot],
    task: &Arc<TaskContext>,
) -> Result<SnapshotManifests> {
    let lists = snapshots.iter().map(|snapshot| list_of(snapshot)).collect();
    let scan = ManifestListScanExec::with_all_entries(lists, partitions(task), OnUnreadable::Skip);
    let log = scan.log();
    let places: HashMap<i64, usize> =
        snapshots.iter().enumerate().map(|(place, snapshot)| (snapshot.snapshot_id, place)).collect();
    let mut distinct = DistinctManifests::default();
    let (mut listed_by, mut repeated): (Vec<SnapshotSet>, Vec<(usize, usize)>) = Default::default();
    let memory = MemoryConsumer::new("SnapshotManifests").register(task.memory_pool());
    let bytes_of_one = snapshots.len().div_ceil(64) * size_of::<u64>() + size_of::<SnapshotSet>();
    collect_partitioned(Arc::new(scan), task.clone(), |batch| {
        let before = listed_by.len();
        distinct.add(&batch, |manifest, snapshot_id| {
            if manifest == listed_by.len() {
                listed_by.push(SnapshotSet::none_of(snapshots.len()));
            }
            if let (Some(set), Some(snapshot)) = (listed_by.get_mut(manifest), places.get(&snapshot_id)) {
                if set.contains(*snapshot) {
                    repeated.push((manifest, *snapshot));
                }
                set.insert(*snapshot);
            }
        })?;
        Ok(memory.try_grow((listed_by.len() - before) * bytes_of_one)?)
    })
    .await?;
    let live = log.live_counts();
    let is_short = |(place, snapshot): (usize, &&Snapshot)| {
        live.get(&place).is_some_and(|live| is_short(*live, snapshot)).then_some(place)
    };
    let short = snapshots.iter().enumerate().filter_map(is_short).collect();
    let DistinctManifests { manifests, mut contradicted, .. } = distinct;
    contradicted.sort_unstable();
    contradicted.dedup();
    let unreadable = log.unreadable();
    let list_sizes = log.list_sizes();
    let _memory = memory;
    Ok(SnapshotManifests { manifests, listed_by, repeated, list_sizes, unreadable, short, contradicted, _memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_places_in_order() {
        let set = |places: &[usize]| {
            let mut set = SnapshotSet::none_of(200);
            places.iter().for_each(|place| set.insert(*place));
            set
        };
        assert_eq!((set(&[]).last(), set(&[3, 199, 64]).last()), (None, Some(199)));
        assert_eq!(set(&[199, 64, 3, 63]).iter().collect::<Vec<_>>(), [3, 63, 64, 199]);
        assert_eq!([63, 64, 199, 500].map(|place| set(&[64, 199]).contains(place)), [false, true, true, false]);
        assert_eq!(set(&[1, 70]).in_both(&set(&[70, 71])), set(&[70]));
        let mut changed = set(&[1, 70]);
        changed.add(&set(&[2]));
        changed.remove(&set(&[70, 100]));
        assert_eq!(changed, set(&[1, 2]));
    }
}
