//! Manifests: the data files and delete files of a table, with what happened to each (table spec, section "Manifests").

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, BooleanArray, BooleanBufferBuilder, Int32Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::avro::{self, AvroFile, Corrupt, Decompressor, Layout, Row, Target, Wanted};
use super::columns::{DenseStrings, NullableLongs};
use super::{MAX_PATH_BYTES, refuse_encrypted};
use crate::error::{Error, Result};

const WHAT: &str = "a manifest";

/// The most rows in one batch: DataFusion's own default.
const MAX_ROWS: usize = 8192;

const STATUS: usize = 0;
const SNAPSHOT_ID: usize = 1;
const CONTENT: usize = 2;
const FILE_PATH: usize = 3;
const FILE_FORMAT: usize = 4;
const FILE_SIZE: usize = 5;
const REFERENCED: usize = 6;
const SLOTS: usize = 7;

static WANTED: [Wanted; 3] = [
    Wanted { id: 0, names: &["status"], required: true, target: Target::Integer(STATUS) },
    Wanted { id: 1, names: &["snapshot_id"], required: false, target: Target::Integer(SNAPSHOT_ID) },
    Wanted { id: 2, names: &["data_file"], required: true, target: Target::Record(&WANTED_OF_FILE) },
];

const CONTENT_FIELD: Wanted =
    Wanted { id: 134, names: &["content"], required: false, target: Target::Integer(CONTENT) };
const PATH_FIELD: Wanted = Wanted { id: 100, names: &["file_path"], required: true, target: Target::Text(FILE_PATH) };
const FORMAT_FIELD: Wanted =
    Wanted { id: 101, names: &["file_format"], required: false, target: Target::Text(FILE_FORMAT) };
const SIZE_FIELD: Wanted =
    Wanted { id: 104, names: &["file_size_in_bytes"], required: false, target: Target::Integer(FILE_SIZE) };

static WANTED_OF_FILE: [Wanted; 4] = [CONTENT_FIELD, PATH_FIELD, FORMAT_FIELD, SIZE_FIELD];

static WANTED_WITH_REFERENCES: [Wanted; 3] = [
    Wanted { id: 0, names: &["status"], required: true, target: Target::Integer(STATUS) },
    Wanted { id: 1, names: &["snapshot_id"], required: false, target: Target::Integer(SNAPSHOT_ID) },
    Wanted { id: 2, names: &["data_file"], required: true, target: Target::Record(&WANTED_OF_FILE_WITH_REFERENCES) },
];

static WANTED_OF_FILE_WITH_REFERENCES: [Wanted; 5] = [
    CONTENT_FIELD,
    PATH_FIELD,
    FORMAT_FIELD,
    SIZE_FIELD,
    Wanted { id: 143, names: &["referenced_data_file"], required: false, target: Target::Text(REFERENCED) },
];

/// Which columns are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryColumns {
    /// What decides whether a file is live.
    Usual,
    /// Also the data file that a delete file or a deletion vector is for.
    WithReferences,
}

impl EntryColumns {
    fn wanted(self) -> &'static [Wanted] {
        match self {
            Self::Usual => &WANTED,
            Self::WithReferences => &WANTED_WITH_REFERENCES,
        }
    }

    /// The columns of a decoded manifest.
    pub(crate) fn schema(self) -> SchemaRef {
        static WITH_REFERENCES: LazyLock<SchemaRef> = LazyLock::new(|| {
            let referenced = Arc::new(Field::new("referenced_data_file", DataType::Utf8, false));
            let fields = manifest_schema().fields().iter().cloned().chain([referenced]).collect::<Vec<_>>();
            Arc::new(Schema::new(fields))
        });
        match self {
            Self::Usual => manifest_schema(),
            Self::WithReferences => Arc::clone(&WITH_REFERENCES),
        }
    }
}

/// The status of an entry whose file was removed by the manifest's snapshot.
pub(crate) const DELETED: i32 = 2;

/// The content of a file of position deletes, in a deletion vector or else.
const POSITION_DELETES: i64 = 1;

/// The columns of a decoded manifest.
///
/// | column | type | |
/// |---|---|---|
/// | `status` | Int32 | 0: existing, 1: added, 2: deleted |
/// | `content` | Int32 | 0: data, 1: position deletes, 2: equality deletes |
/// | `file_path` | Utf8 | the file's location, as written |
/// | `file_size_in_bytes` | Int64, nullable | |
/// | `is_deletion_vector` | Boolean | the file is a Puffin file, which may hold the vectors of many entries |
/// | `snapshot_id` | Int64, nullable | null: inherited from the manifest list |
/// | `referenced_data_file` | Utf8 | the data file that the deletes are for, empty: none is named; only on request |
pub(crate) fn manifest_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("status", DataType::Int32, false),
            Field::new("content", DataType::Int32, false),
            Field::new("file_path", DataType::Utf8, false),
            Field::new("file_size_in_bytes", DataType::Int64, true),
            Field::new("is_deletion_vector", DataType::Boolean, false),
            Field::new("snapshot_id", DataType::Int64, true),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// How many entries of each status a manifest list says that a manifest has. `None` or negative: it doesn't say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryCounts {
    pub(crate) added: Option<i32>,
    pub(crate) existing: Option<i32>,
    pub(crate) deleted: Option<i32>,
}

impl EntryCounts {
    /// What two manifest lists say of one manifest, `None` when they contradict each other.
    pub(crate) fn together(self, other: Self) -> Option<Self> {
        match (self.by_status(), other.by_status()) {
            (Some(own), Some(others)) => (own == others).then_some(self),
            (None, Some(_)) => Some(other),
            (_, None) => Some(self),
        }
    }

    /// The counts by status. Known only together: writers that knew one knew all.
    fn by_status(self) -> Option<[u64; 3]> {
        let known = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok());
        Some([known(self.existing)?, known(self.added)?, known(self.deleted)?])
    }
}

/// Decodes a whole manifest, in batches of at most 8192 rows.
///
/// `expected`: what the manifest list says of it. `live_only`: without the entries whose status is deleted.
///
/// # Errors
/// [`Error::Malformed`] when it is not a whole manifest, when an entry has no path or an unknown status or content, when
/// the entries are not as many as expected, or when it is encrypted.
#[cfg(test)]
pub(crate) fn decode_manifest(
    path: &str,
    bytes: &[u8],
    expected: EntryCounts,
    live_only: bool,
) -> Result<Vec<RecordBatch>> {
    let manifest = ManifestFile::open_like(path, bytes, EntryColumns::Usual, [])?;
    let mut batches = vec![];
    let counts = manifest.decode(manifest.blocks(), live_only, |batch, _| {
        batches.push(batch);
        Ok(())
    })?;
    check_counts(path, counts, expected).map(|()| batches)
}

/// An opened manifest. Several tasks may each decode a part of it, when it is shared between them.
///
/// Its rows are complete only once all parts were decoded without an error, and their counts together pass
/// [`check_counts`].
#[derive(Debug)]
pub(super) struct ManifestFile<B> {
    path: String,
    file: AvroFile<B, SLOTS>,
    columns: EntryColumns,
}

impl<B: AsRef<[u8]>> ManifestFile<B> {
    /// Reads the header, and finds the blocks. This costs little, whatever the size of the file, and less if it shares the
    /// layout of another manifest that was opened for the same columns.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is not a whole manifest, as far as the frames of its blocks tell, or is encrypted.
    pub(super) fn open_like<'l>(
        path: &str,
        bytes: B,
        columns: EntryColumns,
        layouts: impl IntoIterator<Item = &'l Arc<Layout>>,
    ) -> Result<Self> {
        refuse_encrypted(WHAT, path, bytes.as_ref(), false)?;
        let file = AvroFile::open_like(bytes, columns.wanted(), layouts).map_err(|why| malformed(path, why))?;
        Ok(Self { path: path.into(), file, columns })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        self.file.layout()
    }

    /// All of its blocks.
    pub(super) fn blocks(&self) -> Range<usize> {
        self.file.blocks()
    }

    /// How many entries its blocks say they have: not to be trusted.
    #[cfg(feature = "fuzzing")]
    pub(super) fn promised_entries(&self) -> u64 {
        self.file.promised_records(self.file.blocks())
    }

    /// Cuts it into parts of about `target_bytes` of the file: ranges of its blocks, which can't be cut themselves.
    pub(super) fn parts(&self, target_bytes: usize) -> Vec<Range<usize>> {
        self.file.parts(target_bytes)
    }

    /// Decodes one of [`Self::parts`] into batches of at most 8192 rows, none of them empty. `live_only`: without the
    /// entries whose status is deleted. `hand_on` gets each batch, and how many bytes decoding holds besides.
    ///
    /// Returns how many entries there are, by status, those of deleted files included.
    ///
    /// # Errors
    /// [`Error::Malformed`] when a block is not whole, or when an entry has no path or an unknown status or content, and
    /// whatever `hand_on` returns.
    pub(super) fn decode(
        &self,
        part: Range<usize>,
        live_only: bool,
        mut hand_on: impl FnMut(RecordBatch, usize) -> Result<()>,
    ) -> Result<[u64; 3]> {
        let mut decoding = Decoding::new(self, part, live_only);
        while let Some(batch) = decoding.next_batch(self)? {
            hand_on(batch, decoding.decompressor.buffer_bytes())?;
        }
        Ok(decoding.counts)
    }
}

/// Compares the entries of all parts of a manifest, by status, with what the manifest list says of it.
///
/// # Errors
/// [`Error::Malformed`] when it says something else.
pub(super) fn check_counts(path: &str, found: [u64; 3], expected: EntryCounts) -> Result<()> {
    match expected.by_status() {
        Some(expected) if expected != found => {
            let [existing, added, deleted] = found;
            let [expected_existing, expected_added, expected_deleted] = expected;
            let why = format!(
                "it has {added} added, {existing} existing and {deleted} deleted entries, but the manifest list \
                 says {expected_added}, {expected_existing} and {expected_deleted}"
            );
            Err(malformed(path, why.into()))
        }
        _ => Ok(()),
    }
}

/// How far the decoding of some blocks of a manifest has come.
#[derive(Debug)]
struct Decoding {
    blocks: Range<usize>,
    live_only: bool,
    decompressor: Decompressor,
    /// How many more records the blocks promise.
    promised: u64,
    /// The entries so far, by status.
    counts: [u64; 3],
    rows: ManifestBuilder,
    full: VecDeque<ManifestBuilder>,
}

impl Decoding {
    fn new<B: AsRef<[u8]>>(manifest: &ManifestFile<B>, blocks: Range<usize>, live_only: bool) -> Self {
        let promised = manifest.file.promised_records(blocks.clone());
        Self {
            blocks,
            live_only,
            decompressor: manifest.file.decompressor(),
            promised,
            counts: [0; 3],
            rows: ManifestBuilder::with_capacity(batch_rows(promised), manifest.columns),
            full: VecDeque::new(),
        }
    }

    /// The next batch of rows, `None` after the last block.
    fn next_batch<B: AsRef<[u8]>>(&mut self, manifest: &ManifestFile<B>) -> Result<Option<RecordBatch>> {
        while self.full.is_empty()
            && let Some(block) = self.blocks.next()
        {
            self.decode_block(&manifest.file, block).map_err(|why| malformed(&manifest.path, why))?;
        }
        let rows = match self.full.pop_front() {
            Some(rows) => rows,
            None => std::mem::replace(&mut self.rows, ManifestBuilder::with_capacity(0, manifest.columns)),
        };
        match rows.rows() {
            0 => Ok(None),
            _ => rows.finish(&manifest.path).map(Some),
        }
    }

    fn decode_block<B: AsRef<[u8]>>(&mut self, file: &AvroFile<B, SLOTS>, block: usize) -> avro::Result<()> {
        let Self { live_only, decompressor, promised, counts, rows, full, .. } = self;
        file.for_each_record(block, decompressor, |row| {
            if rows.is_full() {
                *promised = promised.saturating_sub(rows.rows() as u64);
                let next = ManifestBuilder::with_capacity(batch_rows(*promised), rows.columns());
                full.push_back(std::mem::replace(rows, next));
            }
            decode_entry(row, *live_only, counts, rows)
        })
    }
}

/// How many rows a batch will have if so many are promised.
fn batch_rows(promised: u64) -> usize {
    usize::try_from(promised).unwrap_or(usize::MAX).min(MAX_ROWS)
}

fn decode_entry(
    row: &Row<'_, SLOTS>,
    live_only: bool,
    counts: &mut [u64; 3],
    rows: &mut ManifestBuilder,
) -> avro::Result<()> {
    let path = row.bytes(FILE_PATH).filter(|path| !path.is_empty()).ok_or("an entry has no file_path")?;
    let status = row.integer(STATUS).ok_or("an entry has no status")?;
    let Some(count) = usize::try_from(status).ok().and_then(|status| counts.get_mut(status)) else {
        return Err(out_of_range("status", path, status));
    };
    *count += 1;
    let content = row.integer(CONTENT).unwrap_or(0);
    if !matches!(content, 0..=2) {
        return Err(out_of_range("content", path, content));
    }
    if live_only && status == i64::from(DELETED) {
        // The others are checked together, when the batch is finished.
        return row.text(FILE_PATH).map(|_| ());
    }
    rows.status.push(status as i32);
    rows.content.push(content as i32);
    rows.paths.push(path)?;
    rows.file_size.push(row.integer(FILE_SIZE));
    rows.is_deletion_vector.append(content == POSITION_DELETES && is_puffin(row));
    rows.snapshot_id.push(row.integer(SNAPSHOT_ID));
    match &mut rows.referenced {
        Some(referenced) => referenced.push(row.bytes(REFERENCED).unwrap_or_default()),
        None => Ok(()),
    }
}

fn is_puffin(row: &Row<'_, SLOTS>) -> bool {
    row.bytes(FILE_FORMAT).is_some_and(|format| format.eq_ignore_ascii_case(b"puffin"))
}

#[cold]
fn out_of_range(field: &str, path: &[u8], value: i64) -> Corrupt {
    format!("the {field} of {} is {value}, which is not 0, 1 or 2", String::from_utf8_lossy(path)).into()
}

/// Refuses a manifest that key metadata exists for and that is no Avro file.
pub(super) fn refuse_encrypted_manifest(path: &str, bytes: &[u8], has_key_metadata: bool) -> Result<()> {
    refuse_encrypted(WHAT, path, bytes, has_key_metadata)
}

/// Refuses a manifest that is shorter than its manifest list says, when nothing else could tell that its end is missing.
///
/// An Avro file that was cut between two blocks looks whole. Where the counts of entries are known they tell; a length
/// that is wrong but harmless (metadata was copied with other compression) is then no reason to refuse.
pub(super) fn refuse_short(path: &str, bytes: &[u8], expected: EntryCounts, length: Option<i64>) -> Result<()> {
    match length.map(u64::try_from) {
        Some(Ok(length)) if expected.by_status().is_none() && (bytes.len() as u64) < length => {
            let why = format!("it has {} bytes, but the manifest list says {length}", bytes.len());
            Err(malformed(path, why.into()))
        }
        _ => Ok(()),
    }
}

fn malformed(path: &str, why: Corrupt) -> Error {
    Error::Malformed { what: WHAT, path: path.into(), why: why.to_string() }
}

/// The rows of one batch.
#[derive(Debug)]
struct ManifestBuilder {
    status: Vec<i32>,
    content: Vec<i32>,
    paths: DenseStrings,
    file_size: NullableLongs,
    is_deletion_vector: BooleanBufferBuilder,
    snapshot_id: NullableLongs,
    referenced: Option<DenseStrings>,
}

impl ManifestBuilder {
    /// `rows`: how many rows are expected.
    fn with_capacity(rows: usize, columns: EntryColumns) -> Self {
        Self {
            status: Vec::with_capacity(rows),
            content: Vec::with_capacity(rows),
            paths: DenseStrings::with_capacity(rows),
            file_size: NullableLongs::with_capacity(rows),
            is_deletion_vector: BooleanBufferBuilder::new(rows),
            snapshot_id: NullableLongs::with_capacity(rows),
            referenced: (columns == EntryColumns::WithReferences).then(|| DenseStrings::with_capacity(rows)),
        }
    }

    fn columns(&self) -> EntryColumns {
        if self.referenced.is_some() { EntryColumns::WithReferences } else { EntryColumns::Usual }
    }

    fn rows(&self) -> usize {
        self.status.len()
    }

    fn is_full(&self) -> bool {
        let referenced = self.referenced.as_ref().map_or(0, DenseStrings::bytes);
        self.rows() >= MAX_ROWS || self.paths.bytes() + referenced >= MAX_PATH_BYTES
    }

    fn finish(mut self, path: &str) -> Result<RecordBatch> {
        let schema = self.columns().schema();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(self.status)),
            Arc::new(Int32Array::from(self.content)),
            Arc::new(self.paths.finish().map_err(|why| malformed(path, why))?),
            Arc::new(self.file_size.finish()),
            Arc::new(BooleanArray::from(self.is_deletion_vector.finish())),
            Arc::new(self.snapshot_id.finish()),
        ];
        if let Some(referenced) = self.referenced {
            columns.push(Arc::new(referenced.finish().map_err(|why| malformed(path, why))?));
        }
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

#[cfg(test)]
mod other_readers;
#[cfg(test)]
mod tests;
