//! Scanning manifest lists for all that they say of their manifests.

use std::fmt;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

use super::decode::{Decoded, Rows};
use super::lists::ManifestListRef;
use super::manifests::Layouts;
use super::memory::FileMemory;
use super::{FileScanExec, FileSource, OnUnreadable};
use crate::error::Result;
use crate::progress::{FileCount, RunWork};
use crate::scan::manifest_list::{DescribedManifest, describe_list};

/// What is made of the manifests of a list.
pub(crate) trait DescribedRows: fmt::Debug + Send + Sync + 'static {
    /// The columns.
    fn schema(&self) -> SchemaRef;

    /// A row for each manifest, in their order.
    ///
    /// # Errors
    /// When something that the list says of a manifest can't be shown.
    fn rows(&self, list: &ManifestListRef, manifests: &[DescribedManifest]) -> Result<RecordBatch>;
}

/// The manifest lists of one scan, and what is made of them.
#[derive(Debug)]
pub(crate) struct DescribedLists<R> {
    lists: Vec<ManifestListRef>,
    rows: R,
}

impl<R: DescribedRows> FileScanExec<DescribedLists<R>> {
    /// A scan of manifest lists, one for each snapshot, whose rows are made by `rows`.
    pub(crate) fn new(lists: Vec<ManifestListRef>, rows: R, partitions: usize, on_unreadable: OnUnreadable) -> Self {
        Self::over(DescribedLists { lists, rows }, partitions, on_unreadable)
    }
}

impl<R: DescribedRows> FileSource for DescribedLists<R> {
    const NODE: &'static str = "ManifestDescriptionScanExec";
    const KEEPS_SIZES: bool = false;
    type Kept = Layouts;

    fn schema(&self) -> SchemaRef {
        self.rows.schema()
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
        let manifests: Vec<_> = manifests.iter().map(|path| DescribedManifest::of_path(path)).collect();
        let rows = self.rows.rows(list, &manifests);
        Some(rows.map(|batch| Rows { batches: vec![batch], live: None }))
    }

    fn decode(&self, index: usize, bytes: Bytes, kept: &mut Layouts, memory: &FileMemory) -> Result<Decoded> {
        let list = &self.lists[index];
        let (manifests, layout) = describe_list(&list.location, &bytes, list.key_id, kept.known())?;
        kept.add(&layout);
        let held = manifests.iter().map(DescribedManifest::bytes).sum();
        memory.grow(held)?;
        let batch = self.rows.rows(list, &manifests)?;
        memory.grow(batch.get_array_memory_size())?;
        memory.release(held);
        Ok(Decoded::Rows(Rows { batches: vec![batch], live: None }))
    }

    fn describe(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
