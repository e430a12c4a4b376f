//! Scanning manifest lists.

use std::fmt;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::decode::{Decoded, Rows};
use super::memory::FileMemory;
use super::{FileScanExec, FileSource, Kept, OnUnreadable, extend, extended_schema};
use crate::error::Result;
use crate::progress::{FileCount, RunWork};
use crate::scan::manifest_list::{
    KnownEntries, LiveCounts, decode_all_entries, decode_new_entries, inline_manifest_list, manifest_list_schema,
    refuse_encrypted_list,
};
use crate::table::Snapshot;

/// The manifest list of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestListRef {
    /// The snapshot.
    pub(crate) snapshot_id: i64,
    /// Where its manifest list is.
    pub(crate) location: String,
    /// v1: the manifests that the snapshot lists itself. There is nothing to read then.
    pub(crate) inline_manifests: Option<Vec<String>>,
    /// v3: the snapshot names a key, so its list may be encrypted.
    pub(crate) key_id: bool,
}

impl ManifestListRef {
    /// The list of a snapshot, or what it has in the place of one.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self {
            snapshot_id: snapshot.snapshot_id,
            location: snapshot.manifest_list.clone().unwrap_or_default(),
            // The spec allows either; a list counts for more than an inline copy of it.
            inline_manifests: snapshot.manifests.clone().filter(|_| snapshot.manifest_list.is_none()),
            key_id: snapshot.key_id.is_some(),
        }
    }
}

/// The manifest lists of one scan.
#[derive(Debug)]
pub(crate) struct ManifestLists {
    lists: Vec<ManifestListRef>,
    entries: ListEntries,
}

/// Which entries of manifest lists are handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEntries {
    /// Those that the same stream didn't meet in another list: what the lists have together.
    Distinct,
    /// All of every list.
    All,
}

impl FileScanExec<ManifestLists> {
    /// A scan of manifest lists, one for each snapshot. What an earlier list of the same stream has is not repeated.
    pub(crate) fn new(lists: Vec<ManifestListRef>, partitions: usize, on_unreadable: OnUnreadable) -> Self {
        Self::over(ManifestLists { lists, entries: ListEntries::Distinct }, partitions, on_unreadable)
    }

    /// A scan of manifest lists with all entries of each.
    pub(crate) fn with_all_entries(
        lists: Vec<ManifestListRef>,
        partitions: usize,
        on_unreadable: OnUnreadable,
    ) -> Self {
        Self::over(ManifestLists { lists, entries: ListEntries::All }, partitions, on_unreadable)
    }
}

impl Kept for KnownEntries {
    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl FileSource for ManifestLists {
    const NODE: &'static str = "ManifestListScanExec";
    const KEEPS_SIZES: bool = true;
    type Kept = KnownEntries;

    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn count(work: &RunWork) -> &FileCount {
        &work.manifest_lists
    }

    fn len(&self) -> usize {
        self.lists.len()
    }

    fn location(&self, index: usize) -> &str {
        &self.lists[index].location
    }

    fn known(&self, index: usize) -> Option<Result<Rows>> {
        let list = &self.lists[index];
        let manifests = list.inline_manifests.as_deref()?;
        // Nothing says how many files they have.
        let data = manifests.is_empty().then_some(0);
        let live = Some(LiveCounts { data, ..LiveCounts::default() });
        let batch = inline_manifest_list(manifests).and_then(|batch| with_snapshot(&batch, list.snapshot_id));
        Some(batch.map(|batch| Rows { batches: vec![batch], live }))
    }

    fn decode(&self, index: usize, bytes: Bytes, known: &mut KnownEntries, memory: &FileMemory) -> Result<Decoded> {
        let list = &self.lists[index];
        refuse_encrypted_list(&list.location, &bytes, list.key_id)?;
        let (rows, live) = match self.entries {
            ListEntries::Distinct => decode_new_entries(&list.location, &bytes, known)?,
            ListEntries::All => {
                let (rows, live) = decode_all_entries(&list.location, &bytes, known)?;
                (Some(rows), live)
            }
        };
        let batches: Vec<RecordBatch> =
            rows.map(|batch| with_snapshot(&batch, list.snapshot_id)).transpose()?.into_iter().collect();
        memory.grow(batches.iter().map(RecordBatch::get_array_memory_size).sum())?;
        Ok(Decoded::Rows(Rows { batches, live: Some(live) }))
    }

    fn describe(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> =
        LazyLock::new(|| extended_schema(&manifest_list_schema(), "snapshot_id", DataType::Int64));
    Arc::clone(&SCHEMA)
}

fn with_snapshot(batch: &RecordBatch, snapshot_id: i64) -> Result<RecordBatch> {
    let column = Int64Array::from_value(snapshot_id, batch.num_rows());
    extend(batch, schema(), Arc::new(column))
}
