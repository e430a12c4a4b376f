//! Scanning manifest lists.

use std::fmt;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::{BatchDecoder, FileScanExec, FileSource, OnUnreadable, extend, extended_schema};
use crate::error::Result;
use crate::scan::manifest_list::{
    decode_manifest_list, inline_manifest_list, manifest_list_schema, refuse_encrypted_list,
};

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

/// The manifest lists of one scan.
#[derive(Debug)]
pub(crate) struct ManifestLists(Vec<ManifestListRef>);

impl FileScanExec<ManifestLists> {
    /// A scan of manifest lists, one for each snapshot.
    pub(crate) fn new(lists: Vec<ManifestListRef>, partitions: usize, on_unreadable: OnUnreadable) -> Self {
        Self::over(ManifestLists(lists), partitions, on_unreadable)
    }
}

impl FileSource for ManifestLists {
    const NODE: &'static str = "ManifestListScanExec";
    const KEEPS_SIZES: bool = true;

    fn schema() -> SchemaRef {
        static SCHEMA: LazyLock<SchemaRef> =
            LazyLock::new(|| extended_schema(&manifest_list_schema(), "snapshot_id", DataType::Int64));
        Arc::clone(&SCHEMA)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn location(&self, index: usize) -> &str {
        &self.0[index].location
    }

    fn known(&self, index: usize) -> Option<Result<RecordBatch>> {
        let list = &self.0[index];
        let manifests = list.inline_manifests.as_deref()?;
        Some(inline_manifest_list(manifests).and_then(|batch| with_snapshot(&batch, list.snapshot_id)))
    }

    fn decode<'a>(&'a self, index: usize, bytes: &'a [u8]) -> Result<Box<dyn BatchDecoder + 'a>> {
        let list = &self.0[index];
        refuse_encrypted_list(&list.location, bytes, list.key_id)?;
        let batch = decode_manifest_list(&list.location, bytes)?;
        Ok(Box::new(Whole(Some(with_snapshot(&batch, list.snapshot_id)?))))
    }

    fn describe(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// A list that was decoded at once.
struct Whole(Option<RecordBatch>);

impl Iterator for Whole {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl BatchDecoder for Whole {}

fn with_snapshot(batch: &RecordBatch, snapshot_id: i64) -> Result<RecordBatch> {
    let column = Int64Array::from_value(snapshot_id, batch.num_rows());
    extend(batch, ManifestLists::schema(), Arc::new(column))
}
