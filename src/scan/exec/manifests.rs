//! Scanning manifests.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::decode::{Decoded, FileParts, Rows};
use super::memory::FileMemory;
use super::{FileScanExec, FileSource, Kept, OnUnreadable, extend, extended_schema};
use crate::error::Result;
use crate::progress::{FileCount, RunWork};
use crate::scan::avro::Layout;
use crate::scan::manifest::{
    EntryColumns, EntryCounts, ManifestFile, check_counts, refuse_encrypted_manifest, refuse_short,
};

/// A part of a manifest that is decoded in one go has about so many bytes in the file: ten milliseconds of work.
pub(super) const PART_BYTES: usize = 1 << 20;

/// A manifest up to this size is decoded in one go.
pub(super) const LARGE_BYTES: usize = 2 << 20;

/// What a row takes whose path is of the usual length.
pub(super) const USUAL_ROW_BYTES: usize = 192;

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

impl ManifestRef {
    /// Its size in bytes, as far as the list tells.
    pub(super) fn size_hint(&self) -> Option<u64> {
        self.length.and_then(|length| u64::try_from(length).ok())
    }

    /// How many entries it should have; `live_only`: without those whose status is deleted.
    pub(super) fn expected_rows(&self, live_only: bool) -> usize {
        let EntryCounts { added, existing, deleted } = self.expected;
        let entries = [added, existing, deleted.filter(|_| !live_only)];
        let entries =
            entries.into_iter().flatten().fold(0i64, |sum, count| sum.saturating_add(i64::from(count.max(0))));
        usize::try_from(entries).unwrap_or(usize::MAX)
    }
}

/// The manifests of one scan.
#[derive(Debug)]
pub(crate) struct Manifests {
    manifests: Vec<ManifestRef>,
    columns: EntryColumns,
    live_only: bool,
}

impl Manifests {
    fn schema_of(columns: EntryColumns) -> SchemaRef {
        static USUAL: LazyLock<SchemaRef> = LazyLock::new(|| with_manifest(EntryColumns::Usual));
        static WITH_REFERENCES: LazyLock<SchemaRef> = LazyLock::new(|| with_manifest(EntryColumns::WithReferences));
        match columns {
            EntryColumns::Usual => Arc::clone(&USUAL),
            EntryColumns::WithReferences => Arc::clone(&WITH_REFERENCES),
        }
    }
}

fn with_manifest(columns: EntryColumns) -> SchemaRef {
    extended_schema(&columns.schema(), "manifest", DataType::UInt32)
}

impl FileScanExec<Manifests> {
    /// A scan of distinct manifests. `live_only`: without the entries whose status is deleted.
    pub(crate) fn new(
        manifests: Vec<ManifestRef>,
        partitions: usize,
        on_unreadable: OnUnreadable,
        live_only: bool,
    ) -> Self {
        let columns = EntryColumns::Usual;
        Self::over(Manifests { manifests, columns, live_only }, partitions, on_unreadable)
    }

    /// A scan of the live entries of distinct manifests, with the data files that deletes are for.
    pub(crate) fn with_references(manifests: Vec<ManifestRef>, partitions: usize, on_unreadable: OnUnreadable) -> Self {
        let columns = EntryColumns::WithReferences;
        Self::over(Manifests { manifests, columns, live_only: true }, partitions, on_unreadable)
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
    type Kept = Layouts;

    fn schema(&self) -> SchemaRef {
        Self::schema_of(self.columns)
    }

    fn count(work: &RunWork) -> &FileCount {
        &work.manifests
    }

    fn len(&self) -> usize {
        self.manifests.len()
    }

    fn location(&self, index: usize) -> &str {
        &self.manifests[index].location
    }

    fn size_hint(&self, index: usize) -> Option<u64> {
        self.manifests[index].size_hint()
    }

    fn decoded_hint(&self, index: usize) -> usize {
        self.manifests[index].expected_rows(self.live_only).saturating_mul(USUAL_ROW_BYTES)
    }

    fn decode(&self, index: usize, bytes: Bytes, kept: &mut Layouts, memory: &FileMemory) -> Result<Decoded> {
        let ManifestRef { location, length, expected, encrypted } = &self.manifests[index];
        refuse_encrypted_manifest(location, &bytes, *encrypted)?;
        refuse_short(location, &bytes, *expected, *length)?;
        let size = bytes.len();
        let file = ManifestFile::open_like(location, bytes, self.columns, kept.known())?;
        kept.add(file.layout());
        let (columns, live_only) = (self.columns, self.live_only);
        let manifest = OpenManifest { file, index, expected: *expected, columns, live_only };
        if size > LARGE_BYTES {
            return Ok(Decoded::Parts(Arc::new(manifest)));
        }
        let (batches, counts) = manifest.decode(manifest.file.blocks(), memory)?;
        manifest.check(counts)?;
        Ok(Decoded::Rows(Rows { batches, live: None }))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", entries={}", if self.live_only { "live" } else { "all" })
    }
}

/// The layouts of the manifests that a stream has met. A table's writers have few.
#[derive(Debug, Default)]
pub(crate) struct Layouts(Vec<Arc<Layout>>);

impl Layouts {
    /// More are of no use, and would have to be looked through for each manifest.
    const MOST: usize = 16;

    pub(super) fn known(&self) -> &[Arc<Layout>] {
        &self.0
    }

    pub(super) fn add(&mut self, layout: &Arc<Layout>) {
        if self.0.len() < Self::MOST && !self.0.iter().any(|known| Arc::ptr_eq(known, layout)) {
            self.0.push(Arc::clone(layout));
        }
    }
}

impl Kept for Layouts {
    fn bytes(&self) -> usize {
        self.0.iter().map(|layout| layout.bytes()).sum()
    }
}

/// A manifest whose blocks are decoded in one or in several jobs.
struct OpenManifest {
    file: ManifestFile<Bytes>,
    index: usize,
    expected: EntryCounts,
    columns: EntryColumns,
    live_only: bool,
}

impl FileParts for OpenManifest {
    fn ranges(&self) -> Vec<Range<usize>> {
        self.file.parts(PART_BYTES)
    }

    fn decode(&self, part: Range<usize>, memory: &FileMemory) -> Result<(Vec<RecordBatch>, [u64; 3])> {
        let mut batches = vec![];
        let mut buffer = 0;
        let counts = self.file.decode(part, self.live_only, |batch, buffer_bytes| {
            // A list of 2^32 manifests would not fit in memory.
            let column = UInt32Array::from_value(self.index as u32, batch.num_rows());
            let batch = extend(&batch, Manifests::schema_of(self.columns), Arc::new(column))?;
            memory.grow(batch.get_array_memory_size() + buffer_bytes.saturating_sub(buffer))?;
            buffer = buffer.max(buffer_bytes);
            batches.push(batch);
            Ok(())
        })?;
        memory.release(buffer);
        Ok((batches, counts))
    }

    fn check(&self, counts: [u64; 3]) -> Result<()> {
        check_counts(self.file.path(), counts, self.expected)
    }
}
