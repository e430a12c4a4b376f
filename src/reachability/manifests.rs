//! The manifests of snapshots and the live files of manifests, through the scans of `scan/`.
//!
//! Each distinct manifest is read once whatever number of snapshots list it; distinctness is decided on whole paths, never
//! on hashes. Whether an unreadable file may be skipped is the caller's decision: only the dead set may be read leniently.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::{Int32Type, Int64Type, UInt32Type};
use datafusion::execution::TaskContext;

use crate::error::{Error, Result};
use crate::report::FileKind;
use crate::scan::{
    EntryCounts, LiveCounts, ManifestListRef, ManifestListScanExec, ManifestRef, ManifestScanExec, OnUnreadable,
    ScanLog, Unreadable, collect_partitioned,
};
use crate::table::Snapshot;

/// A manifest, and a snapshot that lists it.
#[derive(Debug, Clone)]
pub(crate) struct ManifestFile {
    pub reference: ManifestRef,
    /// Unknown for manifests that a v1 snapshot lists without a manifest list.
    pub partition_spec_id: Option<i32>,
    pub snapshot_id: i64,
    /// The snapshot that wrote it, which may have expired since; unknown as the spec is.
    pub added_snapshot_id: Option<i64>,
}

/// What the manifest lists of some snapshots say.
#[derive(Debug, Default)]
pub(crate) struct ListedManifests {
    /// Each distinct manifest once, in the order in which it was met.
    pub manifests: Vec<ManifestFile>,
    /// Sizes of the manifest lists that were read, by location.
    pub list_sizes: HashMap<String, u64>,
    /// Manifest lists that are missing or malformed (lenient reading only).
    pub skipped: Vec<Unreadable>,
}

/// A file that a manifest entry names as live.
#[derive(Debug)]
pub(crate) struct LiveEntry<'a> {
    pub path: &'a str,
    pub kind: FileKind,
    pub bytes: Option<u64>,
    /// Index of the manifest that names it.
    pub manifest: usize,
    /// The data file that deletes are for, where the entry names one and [`for_each_live_entry_with_references`] read it.
    pub referenced: Option<&'a str>,
}

/// How to treat a file that is missing or malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A retained snapshot needs it: stop.
    Strict,
    /// Only metadata that was replaced long ago names it: one that is gone protects nothing, one that is broken stops.
    IfThere,
    /// Only expired snapshots have it: go on without it, and say so.
    Lenient,
}

impl From<Reading> for OnUnreadable {
    fn from(reading: Reading) -> Self {
        match reading {
            Reading::Strict => OnUnreadable::Fail,
            Reading::IfThere | Reading::Lenient => OnUnreadable::Skip,
        }
    }
}

/// What a scan had to skip, or the error that says which snapshot needs the file that stopped it.
fn accepted(
    outcome: Result<()>,
    log: &ScanLog,
    reading: Reading,
    what: &'static str,
    snapshot_of: impl Fn(usize) -> Option<i64>,
) -> Result<Vec<Unreadable>> {
    let unreadable = log.unreadable();
    let fatal = unreadable.iter().find(|file| match reading {
        Reading::Strict => true,
        Reading::IfThere => !file.missing,
        Reading::Lenient => false,
    });
    match fatal {
        Some(file) => Err(needed(what, file, snapshot_of(file.index).unwrap_or(-1))),
        None => outcome.map(|()| unreadable),
    }
}

/// Reads the manifest lists of snapshots.
///
/// # Errors
/// [`Error::NeededFileUnreadable`] in strict reading, and every failure of the store.
pub(crate) async fn list_manifests(
    snapshots: &[&Snapshot],
    reading: Reading,
    task: &Arc<TaskContext>,
) -> Result<ListedManifests> {
    let lists = snapshots.iter().map(|snapshot| ManifestListRef::of(snapshot)).collect();
    let scan = ManifestListScanExec::new(lists, partitions(task), reading.into());
    let log = scan.log();
    let mut distinct = DistinctManifests::default();
    let outcome = collect_partitioned(Arc::new(scan), task.clone(), |batch| distinct.add(&batch, |_, _| {})).await;
    let snapshot_of = |index: usize| snapshots.get(index).map(|snapshot| snapshot.snapshot_id);
    let skipped = accepted(outcome, &log, reading, "manifest list", snapshot_of)?;
    if reading != Reading::Lenient {
        distinct.refuse_contradictions()?;
    }
    let live = log.live_counts();
    let is_short =
        |(index, snapshot): &(usize, &&Snapshot)| is_short(live.get(index).copied().unwrap_or_default(), snapshot);
    if reading == Reading::Strict
        && let Some((_, snapshot)) = snapshots.iter().enumerate().find(is_short)
    {
        // Nothing in the metadata says how long a manifest list is: one that was cut between two blocks looks whole.
        let why =
            "its manifests hold fewer files than the snapshot's summary counts: it seems to be cut short".to_string();
        let location = snapshot.manifest_list.clone().unwrap_or_default();
        let file = Unreadable { location, why, index: 0, missing: false };
        return Err(needed("manifest list", &file, snapshot.snapshot_id));
    }
    Ok(ListedManifests { manifests: distinct.manifests, list_sizes: log.list_sizes(), skipped })
}

/// True if the summary of a snapshot counts more live files than its manifest list does. Writers need not write one.
pub(super) fn is_short(listed: LiveCounts, snapshot: &Snapshot) -> bool {
    let Some(summary) = &snapshot.summary else { return false };
    let short = |count: Option<i64>, total: Option<i64>| count.zip(total).is_some_and(|(count, total)| count < total);
    short(listed.data, summary.total_data_files) || short(listed.deletes, summary.total_delete_files)
}

pub(super) fn partitions(task: &TaskContext) -> usize {
    task.session_config().target_partitions()
}

fn needed(what: &'static str, skipped: &Unreadable, needed_by: i64) -> Error {
    Error::NeededFileUnreadable { what, path: skipped.location.clone(), why: skipped.why.clone(), needed_by }
}

/// The manifests that lists name, each once. Several lists may have an entry for the same manifest.
#[derive(Debug, Default)]
pub(super) struct DistinctManifests {
    pub(super) manifests: Vec<ManifestFile>,
    places: HashMap<String, usize>,
    /// Manifests that two lists contradict each other about.
    pub(super) contradicted: Vec<usize>,
}

impl DistinctManifests {
    /// `on_entry` is told which snapshot lists which manifest, by the manifest's place among the distinct ones.
    pub(super) fn add(&mut self, batch: &RecordBatch, mut on_entry: impl FnMut(usize, i64)) -> Result<()> {
        let snapshot_ids = column(batch, "snapshot_id")?.as_primitive::<Int64Type>();
        let spec_ids = column(batch, "partition_spec_id")?.as_primitive::<Int32Type>();
        let paths = column(batch, "manifest_path")?.as_string::<i32>();
        let lengths = column(batch, "manifest_length")?.as_primitive::<Int64Type>();
        let encrypted = column(batch, "encrypted")?.as_boolean();
        let writers = column(batch, "added_snapshot_id")?.as_primitive::<Int64Type>();
        let added = column(batch, "added_files_count")?.as_primitive::<Int32Type>();
        let existing = column(batch, "existing_files_count")?.as_primitive::<Int32Type>();
        let deleted = column(batch, "deleted_files_count")?.as_primitive::<Int32Type>();
        for row in 0..batch.num_rows() {
            let reference = ManifestRef {
                location: paths.value(row).to_string(),
                length: value(lengths, row),
                expected: EntryCounts {
                    added: value(added, row),
                    existing: value(existing, row),
                    deleted: value(deleted, row),
                },
                encrypted: encrypted.value(row),
            };
            let (partition_spec_id, snapshot_id) = (value(spec_ids, row), snapshot_ids.value(row));
            let added_snapshot_id = value(writers, row);
            let manifest = ManifestFile { reference, partition_spec_id, snapshot_id, added_snapshot_id };
            on_entry(self.add_one(manifest), snapshot_id);
        }
        Ok(())
    }

    fn add_one(&mut self, manifest: ManifestFile) -> usize {
        match self.places.entry(manifest.reference.location.clone()) {
            Entry::Vacant(place) => {
                self.manifests.push(manifest);
                *place.insert(self.manifests.len() - 1)
            }
            Entry::Occupied(place) => {
                if !self.manifests[*place.get()].agree(&manifest) {
                    self.contradicted.push(*place.get());
                }
                *place.get()
            }
        }
    }

    /// One of two lists that contradict each other is wrong, and nobody knows which, or what else is wrong in it.
    fn refuse_contradictions(&self) -> Result<()> {
        let Some(ManifestFile { reference, snapshot_id, .. }) =
            self.contradicted.first().and_then(|place| self.manifests.get(*place))
        else {
            return Ok(());
        };
        let why = "two manifest lists say different things of it".to_string();
        let file = Unreadable { location: reference.location.clone(), why, index: 0, missing: false };
        Err(needed("manifest", &file, *snapshot_id))
    }
}

impl ManifestFile {
    /// A snapshot that had it: the same in every call, whichever list is read first.
    pub(crate) fn had_by(&self) -> i64 {
        self.added_snapshot_id.unwrap_or(self.snapshot_id)
    }

    /// Adds what another list says of the same manifest. False when it says something else.
    fn agree(&mut self, other: &ManifestFile) -> bool {
        let (own, others) = (&mut self.reference, &other.reference);
        // The length tells whether a manifest is cut short only where nothing else does, so the greater one is checked.
        own.length = own.length.max(others.length);
        own.encrypted |= others.encrypted;
        let counts = own.expected.together(others.expected);
        // Which list comes first is chance; what is said of the manifest and which counts are checked must not be.
        self.snapshot_id = self.snapshot_id.min(other.snapshot_id);
        self.added_snapshot_id = self.added_snapshot_id.max(other.added_snapshot_id);
        own.expected = counts.unwrap_or(own.expected.max(others.expected));
        let specs = self.partition_spec_id.zip(other.partition_spec_id);
        self.partition_spec_id = self.partition_spec_id.max(other.partition_spec_id);
        counts.is_some() && specs.is_none_or(|(own, others)| own == others)
    }
}

fn value<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

/// Reads the live entries of manifests. Returns what a lenient reading had to skip.
///
/// # Errors
/// [`Error::NeededFileUnreadable`] in strict reading, every failure of the store, and whatever `on_entry` returns.
pub(crate) async fn for_each_live_entry(
    manifests: &[ManifestFile],
    reading: Reading,
    task: &Arc<TaskContext>,
    on_entry: impl FnMut(LiveEntry<'_>) -> Result<()>,
) -> Result<Vec<Unreadable>> {
    let scan = ManifestScanExec::new(references(manifests), partitions(task), reading.into(), true);
    for_each_entry_of(scan, manifests, reading, task, on_entry).await
}

/// Like [`for_each_live_entry`], and entries of deletes name the data files that they are for.
pub(crate) async fn for_each_live_entry_with_references(
    manifests: &[ManifestFile],
    reading: Reading,
    task: &Arc<TaskContext>,
    on_entry: impl FnMut(LiveEntry<'_>) -> Result<()>,
) -> Result<Vec<Unreadable>> {
    let scan = ManifestScanExec::with_references(references(manifests), partitions(task), reading.into());
    for_each_entry_of(scan, manifests, reading, task, on_entry).await
}

fn references(manifests: &[ManifestFile]) -> Vec<ManifestRef> {
    manifests.iter().map(|manifest| manifest.reference.clone()).collect()
}

async fn for_each_entry_of(
    scan: ManifestScanExec,
    manifests: &[ManifestFile],
    reading: Reading,
    task: &Arc<TaskContext>,
    mut on_entry: impl FnMut(LiveEntry<'_>) -> Result<()>,
) -> Result<Vec<Unreadable>> {
    let log = scan.log();
    let outcome = collect_partitioned(Arc::new(scan), task.clone(), |batch| {
        let paths = column(&batch, "file_path")?.as_string::<i32>();
        let contents = column(&batch, "content")?.as_primitive::<Int32Type>();
        let sizes = column(&batch, "file_size_in_bytes")?.as_primitive::<Int64Type>();
        let vectors = column(&batch, "is_deletion_vector")?.as_boolean();
        let indexes = column(&batch, "manifest")?.as_primitive::<UInt32Type>();
        let referenced = batch.column_by_name("referenced_data_file").map(|column| column.as_string::<i32>());
        for row in 0..batch.num_rows() {
            let bytes = value(sizes, row).and_then(|bytes| u64::try_from(bytes).ok());
            on_entry(LiveEntry {
                path: paths.value(row),
                kind: kind(contents.value(row), vectors.value(row)),
                bytes,
                manifest: indexes.value(row) as usize,
                referenced: referenced.map(|column| column.value(row)).filter(|path| !path.is_empty()),
            })?;
        }
        Ok(())
    })
    .await;
    let snapshot_of = |index: usize| manifests.get(index).map(|manifest| manifest.snapshot_id);
    accepted(outcome, &log, reading, "manifest", snapshot_of)
}

fn kind(content: i32, is_deletion_vector: bool) -> FileKind {
    match (content, is_deletion_vector) {
        (0, _) => FileKind::Data,
        (1, true) => FileKind::DeletionVector,
        (1, false) => FileKind::PositionDeletes,
        _ => FileKind::EqualityDeletes,
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &'static str) -> Result<&'a dyn Array> {
    batch.column_by_name(name).map(AsRef::as_ref).ok_or_else(|| {
        let missing = datafusion::error::DataFusionError::Internal(format!("scan without column {name}"));
        Error::Engine(Arc::new(missing))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(added: Option<i32>, length: i64, partition_spec_id: Option<i32>) -> ManifestFile {
        let expected = EntryCounts { added, existing: Some(0), deleted: Some(0) };
        let reference = ManifestRef { location: "m".into(), length: Some(length), expected, encrypted: false };
        ManifestFile { reference, partition_spec_id, snapshot_id: 1, added_snapshot_id: None }
    }

    /// What is known of the manifest when lists with these entries are read in this order, and whether they agree.
    fn together(entries: &[ManifestFile]) -> (Option<i32>, Option<i64>, Option<i32>, bool) {
        let mut distinct = DistinctManifests::default();
        entries.iter().for_each(|entry| {
            distinct.add_one(entry.clone());
        });
        let [ManifestFile { reference, partition_spec_id, .. }] = &distinct.manifests[..] else {
            panic!("{distinct:?}")
        };
        let agree = distinct.refuse_contradictions().is_ok();
        (reference.expected.added, reference.length, *partition_spec_id, agree)
    }

    #[test]
    fn a_list_may_leave_out_what_another_says_but_not_contradict_it() {
        let known = entry(Some(3), 10, Some(1));
        for (other, expected) in [
            (known.clone(), (Some(3), Some(10), Some(1), true)),
            (entry(None, 10, None), (Some(3), Some(10), Some(1), true)),
            (entry(Some(-1), 10, None), (Some(3), Some(10), Some(1), true)),
            (entry(Some(3), 11, Some(1)), (Some(3), Some(11), Some(1), true)),
            (entry(Some(4), 10, Some(1)), (Some(4), Some(10), Some(1), false)),
            (entry(Some(3), 10, Some(2)), (Some(3), Some(10), Some(2), false)),
        ] {
            let both = [known.clone(), other];
            assert_eq!(together(&both), expected, "{both:?}");
            let reversed = [both[1].clone(), both[0].clone()];
            assert_eq!(together(&reversed), expected, "{reversed:?}");
        }
    }
}
