//! Manifests: the data files and delete files of a table, with what happened to each (table spec, section "Manifests").

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, BooleanBuilder, Int32Builder, Int64Builder, RecordBatch, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::avro::{self, AvroFile, BlockBuffer, Layout, Row, Target, Wanted};
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
const SLOTS: usize = 6;

static WANTED: [Wanted; 3] = [
    Wanted { id: 0, names: &["status"], required: true, target: Target::Integer(STATUS) },
    Wanted { id: 1, names: &["snapshot_id"], required: false, target: Target::Integer(SNAPSHOT_ID) },
    Wanted { id: 2, names: &["data_file"], required: true, target: Target::Record(&WANTED_OF_FILE) },
];

static WANTED_OF_FILE: [Wanted; 4] = [
    Wanted { id: 134, names: &["content"], required: false, target: Target::Integer(CONTENT) },
    Wanted { id: 100, names: &["file_path"], required: true, target: Target::Text(FILE_PATH) },
    Wanted { id: 101, names: &["file_format"], required: false, target: Target::Text(FILE_FORMAT) },
    Wanted { id: 104, names: &["file_size_in_bytes"], required: false, target: Target::Integer(FILE_SIZE) },
];

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
    let manifest = ManifestFile::open_like(path, bytes, [])?;
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
}

impl<B: AsRef<[u8]>> ManifestFile<B> {
    /// Reads the header, and finds the blocks. This costs little, whatever the size of the file, and less if it shares the
    /// layout of another manifest.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is not a whole manifest, as far as the frames of its blocks tell, or is encrypted.
    pub(super) fn open_like<'l>(
        path: &str,
        bytes: B,
        layouts: impl IntoIterator<Item = &'l Arc<Layout>>,
    ) -> Result<Self> {
        refuse_encrypted(WHAT, path, bytes.as_ref(), false)?;
        let file = AvroFile::open_like(bytes, &WANTED, layouts).map_err(|why| malformed(path, why))?;
        Ok(Self { path: path.into(), file })
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
        let mut decoding = Decoding::new(&self.file, part, live_only);
        while let Some(batch) = decoding.next_batch(self)? {
            hand_on(batch, decoding.buffer.bytes())?;
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
    buffer: BlockBuffer,
    /// The entries so far, by status.
    counts: [u64; 3],
    rows: ManifestBuilder,
    full: VecDeque<ManifestBuilder>,
}

impl Decoding {
    fn new<B: AsRef<[u8]>>(file: &AvroFile<B, SLOTS>, blocks: Range<usize>, live_only: bool) -> Self {
        let (buffer, rows) = (file.buffer(), ManifestBuilder::default());
        Self { blocks, live_only, buffer, counts: [0; 3], rows, full: VecDeque::new() }
    }

    /// The next batch of rows, `None` after the last block.
    fn next_batch<B: AsRef<[u8]>>(&mut self, manifest: &ManifestFile<B>) -> Result<Option<RecordBatch>> {
        while self.full.is_empty()
            && let Some(block) = self.blocks.next()
        {
            self.decode_block(&manifest.file, block).map_err(|why| malformed(&manifest.path, why))?;
        }
        match self.full.pop_front() {
            Some(rows) => rows.finish().map(Some),
            None if self.rows.rows > 0 => std::mem::take(&mut self.rows).finish().map(Some),
            None => Ok(None),
        }
    }

    fn decode_block<B: AsRef<[u8]>>(&mut self, file: &AvroFile<B, SLOTS>, block: usize) -> avro::Result<()> {
        let Self { live_only, buffer, counts, rows, full, .. } = self;
        file.for_each_record(block, buffer, |row| {
            if rows.rows >= MAX_ROWS || rows.path_bytes >= MAX_PATH_BYTES {
                full.push_back(std::mem::take(rows));
            }
            decode_entry(row, *live_only, counts, rows)
        })
    }
}

fn decode_entry(
    row: &Row<'_, SLOTS>,
    live_only: bool,
    counts: &mut [u64; 3],
    rows: &mut ManifestBuilder,
) -> avro::Result<()> {
    let path = row.text(FILE_PATH)?.filter(|path| !path.is_empty()).ok_or("an entry has no file_path")?;
    let status = row.integer(STATUS).ok_or("an entry has no status")?;
    let count = usize::try_from(status).ok().and_then(|status| counts.get_mut(status));
    *count.ok_or_else(|| format!("the status of {path} is {status}, which is not 0, 1 or 2"))? += 1;
    let content = row.integer(CONTENT).unwrap_or(0);
    if !matches!(content, 0..=2) {
        return Err(format!("the content of {path} is {content}, which is not 0, 1 or 2").into());
    }
    if live_only && status == i64::from(DELETED) {
        return Ok(());
    }
    let puffin = row.bytes(FILE_FORMAT).is_some_and(|format| format.eq_ignore_ascii_case(b"puffin"));
    rows.status.append_value(status as i32);
    rows.content.append_value(content as i32);
    rows.file_path.append_value(path);
    rows.file_size.append_option(row.integer(FILE_SIZE));
    rows.is_deletion_vector.append_value(content == POSITION_DELETES && puffin);
    rows.snapshot_id.append_option(row.integer(SNAPSHOT_ID));
    rows.rows += 1;
    rows.path_bytes += path.len();
    Ok(())
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

fn malformed(path: &str, why: avro::Corrupt) -> Error {
    Error::Malformed { what: WHAT, path: path.into(), why: why.to_string() }
}

#[derive(Debug, Default)]
struct ManifestBuilder {
    status: Int32Builder,
    content: Int32Builder,
    file_path: StringBuilder,
    file_size: Int64Builder,
    is_deletion_vector: BooleanBuilder,
    snapshot_id: Int64Builder,
    rows: usize,
    path_bytes: usize,
}

impl ManifestBuilder {
    fn finish(mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.status.finish()),
            Arc::new(self.content.finish()),
            Arc::new(self.file_path.finish()),
            Arc::new(self.file_size.finish()),
            Arc::new(self.is_deletion_vector.finish()),
            Arc::new(self.snapshot_id.finish()),
        ];
        Ok(RecordBatch::try_new(manifest_schema(), columns)?)
    }
}

#[cfg(test)]
mod tests;
