//! The live entries of all manifests, to find what a single snapshot has twice, and deletes for what it doesn't have.
//!
//! A file is live in a snapshot if one of the manifests that the snapshot lists names it. So entries are held with their
//! manifests, as hashes, and each file's manifests are then compared by the snapshots that list them. Which file it was is
//! found by reading the manifests of what was found once more, as a rule none.

use std::collections::{BTreeSet, HashMap};

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

use super::listed_files::FileHashes;
use crate::error::Result;
use crate::reachability::{LiveEntry, SnapshotManifests, SnapshotSet};
use crate::report::FileKind;

/// A file and a manifest.
type Occurrence = (u64, u32);

/// All live entries.
#[derive(Debug)]
pub(super) struct LiveEntries {
    /// Live files, deletion vectors each by itself.
    files: Vec<Occurrence>,
    /// The data files that deletes are for, and the manifests of the deletes.
    references: Vec<Occurrence>,
    has_data: Vec<bool>,
    has_deletes: Vec<bool>,
    memory: MemoryReservation,
}

/// What is wrong with single snapshots.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Files that a snapshot has twice, and the newest such snapshot.
    duplicates: HashMap<u64, usize>,
    /// Manifests that a snapshot lists twice, and the newest such snapshot.
    repeated: HashMap<u32, usize>,
    /// Data files that deletes of a manifest are for, though they aren't live, and the newest snapshot where that is so.
    dangling: HashMap<Occurrence, usize>,
    /// Manifests of deletes that a snapshot without any live data file lists, and the newest such snapshot.
    without_data: HashMap<u32, usize>,
    /// The manifests to read again.
    pub manifests: BTreeSet<usize>,
}

/// What is wrong with one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Duplicate,
    Dangling,
    WithoutData,
}

/// How many different lists of manifests the answers are remembered of.
const REMEMBERED: usize = 1 << 16;

/// How many entries memory is taken for at once.
const STEP: usize = 4096;

impl LiveEntries {
    pub(super) fn new(manifests: usize, task: &TaskContext) -> Self {
        let memory = MemoryConsumer::new("LiveEntries").register(task.memory_pool());
        let (has_data, has_deletes) = (vec![false; manifests], vec![false; manifests]);
        Self { files: vec![], references: vec![], has_data, has_deletes, memory }
    }

    /// # Errors
    /// When the session's memory limit is too low.
    pub(super) fn add(&mut self, entry: &LiveEntry<'_>, file: u64, hashes: &mut FileHashes) -> Result<()> {
        let is_data = entry.kind == FileKind::Data;
        let has = if is_data { &mut self.has_data } else { &mut self.has_deletes };
        if let Some(has) = has.get_mut(entry.manifest) {
            *has = true;
        }
        let manifest = entry.manifest as u32;
        // Of vectors that don't say what they are for, which two are the same can't be told.
        if entry.kind != FileKind::DeletionVector || entry.referenced.is_some() {
            push(&mut self.files, (of_entry(entry, file, hashes), manifest), &self.memory)?;
        }
        match referenced(entry) {
            Some(referenced) => push(&mut self.references, (hashes.hash(referenced), manifest), &self.memory),
            None => Ok(()),
        }
    }

    /// `doubtful`: snapshots of which not everything could be read. What they seem to lack may be there.
    pub(super) fn faults(mut self, manifests: &SnapshotManifests, doubtful: &SnapshotSet) -> Faults {
        self.files.sort_unstable();
        self.references.sort_unstable();
        self.references.dedup();
        let mut faults = Faults::default();
        for (manifest, snapshot) in &manifests.repeated {
            let newest = faults.repeated.entry(*manifest as u32).or_insert(*snapshot);
            *newest = (*newest).max(*snapshot);
            faults.manifests.insert(*manifest);
        }
        self.find_duplicates(manifests, &mut faults);
        self.find_dangling(manifests, doubtful, &mut faults);
        self.find_deletes_without_data(manifests, doubtful, &mut faults);
        faults
    }

    fn find_duplicates(&self, manifests: &SnapshotManifests, faults: &mut Faults) {
        let mut known: HashMap<Vec<u32>, Option<usize>> = HashMap::new();
        for group in self.files.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1) {
            let places: Vec<u32> = group.iter().map(|(_, manifest)| *manifest).collect();
            let newest = match known.get(&places) {
                Some(newest) => *newest,
                None => {
                    let newest = listed_together(&places, manifests);
                    if known.len() >= REMEMBERED {
                        known.clear();
                    }
                    known.insert(places, newest);
                    newest
                }
            };
            if let Some(newest) = newest {
                faults.duplicates.insert(group[0].0, newest);
                faults.manifests.extend(group.iter().map(|(_, manifest)| *manifest as usize));
            }
        }
    }

    fn find_dangling(&self, manifests: &SnapshotManifests, doubtful: &SnapshotSet, faults: &mut Faults) {
        for group in self.references.chunk_by(|one, other| one.0 == other.0) {
            let file = group[0].0;
            let start = self.files.partition_point(|(live, _)| *live < file);
            let mut live = doubtful.clone();
            for (_, manifest) in self.files[start..].iter().take_while(|(live, _)| *live == file) {
                manifests.listed_by.get(*manifest as usize).into_iter().for_each(|set| live.add(set));
            }
            for (_, manifest) in group {
                if let Some(newest) = without(manifests, *manifest, &live) {
                    faults.dangling.insert((file, *manifest), newest);
                    faults.manifests.insert(*manifest as usize);
                }
            }
        }
    }

    fn find_deletes_without_data(&self, manifests: &SnapshotManifests, doubtful: &SnapshotSet, faults: &mut Faults) {
        let mut with_data = doubtful.clone();
        let data = self.has_data.iter().zip(&manifests.listed_by).filter(|(has, _)| **has);
        data.for_each(|(_, snapshots)| with_data.add(snapshots));
        for (manifest, _) in self.has_deletes.iter().enumerate().filter(|(_, has)| **has) {
            if let Some(newest) = without(manifests, manifest as u32, &with_data) {
                faults.without_data.insert(manifest as u32, newest);
                faults.manifests.insert(manifest);
            }
        }
    }
}

impl Faults {
    /// What is wrong with an entry of one of [`Self::manifests`], and the newest snapshot where it is so. `manifest` is the
    /// place among all manifests.
    pub(super) fn of_entry(
        &self,
        entry: &LiveEntry<'_>,
        manifest: usize,
        hashes: &mut FileHashes,
    ) -> Vec<(Fault, usize)> {
        let file = hashes.hash(entry.path);
        let manifest = manifest as u32;
        let duplicate = self.duplicates.get(&of_entry(entry, file, hashes)).max(self.repeated.get(&manifest));
        let dangling = referenced(entry).and_then(|referenced| self.dangling.get(&(hashes.hash(referenced), manifest)));
        let without_data = self.without_data.get(&manifest).filter(|_| entry.kind != FileKind::Data);
        let mut faults: Vec<(Fault, usize)> = duplicate.map(|newest| (Fault::Duplicate, *newest)).into_iter().collect();
        // The one says more than the other.
        match (dangling, without_data) {
            (Some(newest), _) => faults.push((Fault::Dangling, *newest)),
            (None, Some(newest)) => faults.push((Fault::WithoutData, *newest)),
            (None, None) => {}
        }
        faults
    }
}

/// A Puffin file may hold the vectors of many data files, each an entry of its own.
fn of_entry(entry: &LiveEntry<'_>, file: u64, hashes: &mut FileHashes) -> u64 {
    match entry.referenced.filter(|_| entry.kind == FileKind::DeletionVector) {
        Some(referenced) => {
            let referenced = hashes.hash(referenced);
            hashes.pair(file, referenced)
        }
        None => file,
    }
}

fn referenced<'a>(entry: &LiveEntry<'a>) -> Option<&'a str> {
    entry.referenced.filter(|_| matches!(entry.kind, FileKind::PositionDeletes | FileKind::DeletionVector))
}

/// The newest snapshot that lists two of these manifests, or one that is in the list twice.
fn listed_together(places: &[u32], manifests: &SnapshotManifests) -> Option<usize> {
    let set = |place: &u32| manifests.listed_by.get(*place as usize);
    let (first, others) = places.split_first()?;
    let mut once = set(first)?.clone();
    let mut newest = None;
    for other in others {
        let other = set(other)?;
        newest = newest.max(once.in_both(other).last());
        once.add(other);
    }
    newest
}

/// The newest snapshot that lists a manifest and is not in the set.
fn without(manifests: &SnapshotManifests, manifest: u32, set: &SnapshotSet) -> Option<usize> {
    let mut snapshots = manifests.listed_by.get(manifest as usize)?.clone();
    snapshots.remove(set);
    snapshots.last()
}

fn push(into: &mut Vec<Occurrence>, occurrence: Occurrence, memory: &MemoryReservation) -> Result<()> {
    if into.len() == into.capacity() {
        let more = into.len().max(STEP);
        memory.try_grow(more * size_of::<Occurrence>())?;
        into.reserve_exact(more);
    }
    into.push(occurrence);
    Ok(())
}
