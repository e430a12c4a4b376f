//! Scanning manifests for all that they have.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::decode::{Decoded, FileParts, Rows};
use super::manifests::{LARGE_BYTES, Layouts, ManifestRef, PART_BYTES, USUAL_ROW_BYTES};
use super::memory::FileMemory;
use super::{FileScanExec, FileSource, OnUnreadable, extend, extended_schema};
use crate::error::Result;
use crate::progress::{FileCount, RunWork};
use crate::scan::entries::{EntryField, EntryFields, EntryFile, EntryShape, Inherited};
use crate::scan::manifest::{EntryCounts, check_counts, refuse_encrypted_manifest, refuse_short};
use crate::table::PartitionType;

/// What a row takes of a map from column ids, of a table with some twenty columns.
const USUAL_MAP_BYTES: usize = 320;
/// What it takes of any other field.
const USUAL_FIELD_BYTES: usize = 16;

/// A manifest, with all that its manifest list says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryManifest {
    pub(crate) manifest: ManifestRef,
    pub(crate) inherited: Inherited,
}

/// What is wanted of distinct manifests.
#[derive(Debug, Clone)]
pub(crate) struct EntryScan {
    pub(crate) manifests: Vec<EntryManifest>,
    /// The partition type of their table.
    pub(crate) partition: PartitionType,
    /// The fields that are decoded.
    pub(crate) fields: EntryFields,
    /// Without the entries whose status is deleted.
    pub(crate) live_only: bool,
}

/// The manifests of one scan.
#[derive(Debug)]
pub(crate) struct Entries {
    manifests: Vec<EntryManifest>,
    shape: Arc<EntryShape>,
    /// The shape's, with the manifest.
    schema: SchemaRef,
}

impl FileScanExec<Entries> {
    pub(crate) fn new(scan: EntryScan, partitions: usize, on_unreadable: OnUnreadable) -> Self {
        let EntryScan { manifests, partition, fields, live_only } = scan;
        let shape = EntryShape::new(partition, fields, live_only);
        let schema = extended_schema(shape.schema(), "manifest", DataType::UInt32);
        Self::over(Entries { manifests, shape: Arc::new(shape), schema }, partitions, on_unreadable)
    }
}

impl FileSource for Entries {
    const NODE: &'static str = "EntryScanExec";
    const KEEPS_SIZES: bool = false;
    type Kept = Layouts;

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn count(work: &RunWork) -> &FileCount {
        &work.manifests
    }

    fn len(&self) -> usize {
        self.manifests.len()
    }

    fn location(&self, index: usize) -> &str {
        &self.manifests[index].manifest.location
    }

    fn size_hint(&self, index: usize) -> Option<u64> {
        self.manifests[index].manifest.size_hint()
    }

    fn decoded_hint(&self, index: usize) -> usize {
        let row = self.shape.fields().iter().map(|field| match field {
            EntryField::ColumnSizes
            | EntryField::ValueCounts
            | EntryField::NullValueCounts
            | EntryField::NanValueCounts
            | EntryField::LowerBounds
            | EntryField::UpperBounds => USUAL_MAP_BYTES,
            EntryField::FilePath => USUAL_ROW_BYTES,
            _ => USUAL_FIELD_BYTES,
        });
        let entries = self.manifests[index].manifest.expected_rows(self.shape.live_only());
        entries.saturating_mul(row.sum::<usize>() + USUAL_FIELD_BYTES)
    }

    fn decode(&self, index: usize, bytes: Bytes, kept: &mut Layouts, memory: &FileMemory) -> Result<Decoded> {
        let EntryManifest { manifest, inherited } = &self.manifests[index];
        let ManifestRef { location, length, expected, encrypted } = manifest;
        refuse_encrypted_manifest(location, &bytes, *encrypted)?;
        refuse_short(location, &bytes, *expected, *length)?;
        let size = bytes.len();
        let file = EntryFile::open_like(location, bytes, &self.shape, *inherited, kept.known())?;
        kept.add(file.layout());
        let opened = OpenEntries { file, index, expected: *expected, schema: self.schema() };
        if size > LARGE_BYTES {
            return Ok(Decoded::Parts(Arc::new(opened)));
        }
        let (batches, counts) = opened.decode(opened.file.blocks(), memory)?;
        opened.check(counts)?;
        Ok(Decoded::Rows(Rows { batches, live: None }))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", entries={}, fields=[", if self.shape.live_only() { "live" } else { "all" })?;
        for (place, field) in self.shape.fields().iter().enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { ", " }, field.name())?;
        }
        f.write_str("]")
    }
}

/// A manifest whose blocks are decoded in one or in several jobs.
struct OpenEntries {
    file: EntryFile<Bytes>,
    index: usize,
    expected: EntryCounts,
    schema: SchemaRef,
}

impl FileParts for OpenEntries {
    fn ranges(&self) -> Vec<Range<usize>> {
        self.file.parts(PART_BYTES)
    }

    fn decode(&self, part: Range<usize>, memory: &FileMemory) -> Result<(Vec<RecordBatch>, [u64; 3])> {
        let mut batches = vec![];
        let mut buffer = 0;
        let counts = self.file.decode(part, |batch, buffer_bytes| {
            // A list of 2^32 manifests would not fit in memory.
            let column = UInt32Array::from_value(self.index as u32, batch.num_rows());
            let batch = extend(&batch, Arc::clone(&self.schema), Arc::new(column))?;
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
