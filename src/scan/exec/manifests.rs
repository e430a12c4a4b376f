//! Scanning manifests.

use std::fmt;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::{BatchDecoder, FileScanExec, FileSource, OnUnreadable, extend, extended_schema};
use crate::error::Result;
use crate::scan::manifest::{EntryCounts, ManifestDecoder, manifest_schema, refuse_encrypted_manifest, refuse_short};

/// A manifest, with what its manifest list says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestRef {
    /// Where it is.
    pub(crate) location: String,
    /// Its size in bytes.
    pub(crate) length: Option<i64>,
    /// How many entries it has.
    pub(crate) expected: EntryCounts,
    /// It has key metadata.
    pub(crate) encrypted: bool,
}

/// The manifests of one scan.
#[derive(Debug)]
pub(crate) struct Manifests {
    manifests: Vec<ManifestRef>,
    live_only: bool,
}

impl FileScanExec<Manifests> {
    /// A scan of distinct manifests. `live_only`: without the entries whose status is deleted.
    pub(crate) fn new(
        manifests: Vec<ManifestRef>,
        partitions: usize,
        on_unreadable: OnUnreadable,
        live_only: bool,
    ) -> Self {
        Self::over(Manifests { manifests, live_only }, partitions, on_unreadable)
    }

    /// The manifests that it was made with, which the column `manifest` is an index into.
    #[cfg(test)]
    pub(crate) fn files(&self) -> &[ManifestRef] {
        &self.source.manifests
    }
}

impl FileSource for Manifests {
    const NODE: &'static str = "ManifestScanExec";
    const KEEPS_SIZES: bool = false;

    fn schema() -> SchemaRef {
        static SCHEMA: LazyLock<SchemaRef> =
            LazyLock::new(|| extended_schema(&manifest_schema(), "manifest", DataType::UInt32));
        Arc::clone(&SCHEMA)
    }

    fn len(&self) -> usize {
        self.manifests.len()
    }

    fn location(&self, index: usize) -> &str {
        &self.manifests[index].location
    }

    fn size_hint(&self, index: usize) -> Option<u64> {
        self.manifests[index].length.and_then(|length| u64::try_from(length).ok())
    }

    fn decode<'a>(&'a self, index: usize, bytes: &'a [u8]) -> Result<Box<dyn BatchDecoder + 'a>> {
        let ManifestRef { location, length, expected, encrypted, .. } = &self.manifests[index];
        refuse_encrypted_manifest(location, bytes, *encrypted)?;
        refuse_short(location, bytes, *expected, *length)?;
        let entries = ManifestDecoder::open(location, bytes, *expected, self.live_only)?;
        // A list of 2^32 manifests would not fit in memory.
        Ok(Box::new(Indexed { entries, index: index as u32 }))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", entries={}", if self.live_only { "live" } else { "all" })
    }
}

/// The batches of a manifest, with its index.
struct Indexed<'a> {
    entries: ManifestDecoder<'a>,
    index: u32,
}

impl Iterator for Indexed<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.entries.next()?;
        Some(batch.and_then(|batch| {
            let column = UInt32Array::from_value(self.index, batch.num_rows());
            extend(&batch, Manifests::schema(), Arc::new(column))
        }))
    }
}

impl BatchDecoder for Indexed<'_> {
    fn buffer_bytes(&self) -> usize {
        self.entries.buffer_bytes()
    }
}
