//! Manifest lists: which manifests a snapshot consists of (table spec, section "Manifest Lists").

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, BooleanArray, BooleanBufferBuilder, Int32Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

#[cfg(any(test, feature = "benches"))]
use super::avro::AvroFile;
use super::avro::{self, Corrupt, Row, Target, Wanted};
use super::columns::{DenseStrings, NullableInts, NullableLongs};
use super::refuse_encrypted;
use crate::error::{Error, Result};

pub(crate) use described::DescribedManifest;
pub(in crate::scan) use described::describe_list;
pub(crate) use known::{KnownEntries, LiveCounts, decode_all_entries, decode_new_entries};

const WHAT: &str = "a manifest list";

/// The most rows that memory is taken for before they are there.
const MAX_EXPECTED_ROWS: usize = 8192;

const PATH: usize = 0;
const LENGTH: usize = 1;
const SPEC_ID: usize = 2;
const CONTENT: usize = 3;
const ADDED_SNAPSHOT: usize = 4;
const ADDED: usize = 5;
const EXISTING: usize = 6;
const DELETED: usize = 7;
const KEY_METADATA: usize = 8;
const SEQUENCE_NUMBER: usize = 9;
const FIRST_ROW_ID: usize = 10;
const SLOTS: usize = 11;

const fn optional(id: i64, names: &'static [&'static str], target: Target) -> Wanted {
    Wanted { id, names, required: false, target }
}

static WANTED: [Wanted; SLOTS] = [
    Wanted { id: 500, names: &["manifest_path"], required: true, target: Target::Text(PATH) },
    optional(501, &["manifest_length"], Target::Integer(LENGTH)),
    optional(502, &["partition_spec_id"], Target::Integer(SPEC_ID)),
    optional(517, &["content"], Target::Integer(CONTENT)),
    optional(503, &["added_snapshot_id"], Target::Integer(ADDED_SNAPSHOT)),
    // The second names are those of format v1's first drafts.
    optional(504, &["added_files_count", "added_data_files_count"], Target::Integer(ADDED)),
    optional(505, &["existing_files_count", "existing_data_files_count"], Target::Integer(EXISTING)),
    optional(506, &["deleted_files_count", "deleted_data_files_count"], Target::Integer(DELETED)),
    optional(519, &["key_metadata"], Target::Binary(KEY_METADATA)),
    optional(515, &["sequence_number"], Target::Integer(SEQUENCE_NUMBER)),
    optional(520, &["first_row_id"], Target::Integer(FIRST_ROW_ID)),
];

/// The columns of a decoded manifest list.
///
/// | column | type | |
/// |---|---|---|
/// | `manifest_path` | Utf8 | the manifest's location, as written |
/// | `manifest_length` | Int64, nullable | its size in bytes |
/// | `partition_spec_id` | Int32, nullable | null where only the manifest itself knows (v1's inline manifests) |
/// | `content` | Int32 | 0: data files, 1: delete files |
/// | `added_snapshot_id` | Int64, nullable | the snapshot that added the manifest |
/// | `added_files_count`, `existing_files_count`, `deleted_files_count` | Int32, nullable | entries by status; null: unknown |
/// | `encrypted` | Boolean | the manifest has key metadata |
/// | `sequence_number` | Int64, nullable | the one that the manifest was added with; v1 has none |
/// | `first_row_id` | Int64, nullable | v3: the id of the manifest's first row |
pub(crate) fn manifest_list_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("manifest_path", DataType::Utf8, false),
            Field::new("manifest_length", DataType::Int64, true),
            Field::new("partition_spec_id", DataType::Int32, true),
            Field::new("content", DataType::Int32, false),
            Field::new("added_snapshot_id", DataType::Int64, true),
            Field::new("added_files_count", DataType::Int32, true),
            Field::new("existing_files_count", DataType::Int32, true),
            Field::new("deleted_files_count", DataType::Int32, true),
            Field::new("encrypted", DataType::Boolean, false),
            Field::new("sequence_number", DataType::Int64, true),
            Field::new("first_row_id", DataType::Int64, true),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// Decodes a whole manifest list.
///
/// # Errors
/// [`Error::Malformed`] when it is not a whole manifest list, when an entry has no path or an unknown content, or when it
/// is encrypted.
#[cfg(test)]
pub(crate) fn decode_manifest_list(path: &str, bytes: &[u8]) -> Result<RecordBatch> {
    decode_manifest_list_like(path, bytes, &mut vec![])
}

/// Decodes a whole manifest list. It shares the layout of one that was decoded before, if it was written alike.
#[cfg(any(test, feature = "benches"))]
pub(crate) fn decode_manifest_list_like(
    path: &str,
    bytes: &[u8],
    layouts: &mut Vec<Arc<avro::Layout>>,
) -> Result<RecordBatch> {
    refuse_encrypted(WHAT, path, bytes, false)?;
    decode(bytes, layouts).map_err(|why| malformed(path, why))?.finish(path)
}

/// The rows that a v1 snapshot gives for the manifests that it lists itself, without a manifest list.
///
/// Only their paths are known. Inline manifests hold data files: delete files came with v2.
pub(crate) fn inline_manifest_list(manifests: &[String]) -> Result<RecordBatch> {
    let mut rows = ManifestListBuilder::with_capacity(manifests.len());
    let what = "the list of manifests in the table metadata";
    for path in manifests {
        let entry = ManifestListEntry { path: path.as_bytes(), ..Default::default() };
        rows.push(entry).map_err(|why| malformed(what, why))?;
    }
    rows.finish(what)
}

/// Like [`decode_manifest_list`], for a list that key metadata exists for.
pub(super) fn refuse_encrypted_list(path: &str, bytes: &[u8], has_key: bool) -> Result<()> {
    refuse_encrypted(WHAT, path, bytes, has_key)
}

#[cfg(any(test, feature = "benches"))]
fn decode(bytes: &[u8], layouts: &mut Vec<Arc<avro::Layout>>) -> avro::Result<ManifestListBuilder> {
    let file = AvroFile::<_, SLOTS>::open_like(bytes, &WANTED, layouts.iter())?;
    *layouts = vec![Arc::clone(file.layout())];
    let mut decompressor = file.decompressor();
    let mut rows = ManifestListBuilder::with_capacity(expected_rows(file.promised_records(file.blocks())));
    for block in file.blocks() {
        file.for_each_record(block, &mut decompressor, |row| rows.push(entry(row)?))?;
    }
    Ok(rows)
}

/// How many entries the blocks of a list say they have; none for what is no list.
#[cfg(feature = "fuzzing")]
pub(super) fn promised_entries(bytes: &[u8]) -> u64 {
    let file = avro::AvroFile::<_, SLOTS>::open_like(bytes, &WANTED, []);
    file.map_or(0, |file| file.promised_records(file.blocks()))
}

/// How many rows memory is taken for, if so many are promised.
fn expected_rows(promised: u64) -> usize {
    usize::try_from(promised).unwrap_or(usize::MAX).min(MAX_EXPECTED_ROWS)
}

/// Decompresses the blocks of a list; how many bytes they are.
#[cfg(feature = "benches")]
pub(crate) fn inflate_list(path: &str, bytes: &[u8]) -> Result<usize> {
    let inflate = || {
        let file = AvroFile::<_, SLOTS>::open_like(bytes, &WANTED, [])?;
        let mut decompressor = file.decompressor();
        file.blocks().try_fold(0, |sum, block| Ok(sum + file.records(block, &mut decompressor)?.bytes()))
    };
    inflate().map_err(|why: Corrupt| malformed(path, why))
}

fn entry<'a, const N: usize>(row: &Row<'a, N>) -> avro::Result<ManifestListEntry<'a>> {
    let path = row.bytes(PATH).filter(|path| !path.is_empty()).ok_or("an entry has no manifest_path")?;
    let content = row.integer(CONTENT).unwrap_or(0);
    if !matches!(content, 0 | 1) {
        let path = String::from_utf8_lossy(path);
        return Err(format!("the content of {path} is {content}, which is neither 0 (data) nor 1 (deletes)").into());
    }
    let int = |slot, name| row.integer(slot).map(|value| narrow(value, name)).transpose();
    Ok(ManifestListEntry {
        path,
        length: row.integer(LENGTH),
        spec_id: int(SPEC_ID, "partition_spec_id")?,
        content: content as i32,
        added_snapshot_id: row.integer(ADDED_SNAPSHOT),
        added: int(ADDED, "added_files_count")?,
        existing: int(EXISTING, "existing_files_count")?,
        deleted: int(DELETED, "deleted_files_count")?,
        encrypted: row.bytes(KEY_METADATA).is_some_and(|key| !key.is_empty()),
        sequence_number: row.integer(SEQUENCE_NUMBER),
        first_row_id: row.integer(FIRST_ROW_ID),
    })
}

fn narrow(value: i64, name: &str) -> avro::Result<i32> {
    i32::try_from(value).map_err(|_| Corrupt::from(format!("{name} is {value}, which is no 32-bit number")))
}

#[derive(Debug, Default)]
struct ManifestListEntry<'a> {
    path: &'a [u8],
    length: Option<i64>,
    spec_id: Option<i32>,
    content: i32,
    added_snapshot_id: Option<i64>,
    added: Option<i32>,
    existing: Option<i32>,
    deleted: Option<i32>,
    encrypted: bool,
    sequence_number: Option<i64>,
    first_row_id: Option<i64>,
}

#[derive(Debug)]
struct ManifestListBuilder {
    paths: DenseStrings,
    length: NullableLongs,
    spec_id: NullableInts,
    content: Vec<i32>,
    added_snapshot_id: NullableLongs,
    added: NullableInts,
    existing: NullableInts,
    deleted: NullableInts,
    encrypted: BooleanBufferBuilder,
    sequence_number: NullableLongs,
    first_row_id: NullableLongs,
}

impl ManifestListBuilder {
    /// `rows`: how many rows are expected.
    fn with_capacity(rows: usize) -> Self {
        Self {
            paths: DenseStrings::with_capacity(rows),
            length: NullableLongs::with_capacity(rows),
            spec_id: NullableInts::with_capacity(rows),
            content: Vec::with_capacity(rows),
            added_snapshot_id: NullableLongs::with_capacity(rows),
            added: NullableInts::with_capacity(rows),
            existing: NullableInts::with_capacity(rows),
            deleted: NullableInts::with_capacity(rows),
            encrypted: BooleanBufferBuilder::new(rows),
            sequence_number: NullableLongs::with_capacity(rows),
            first_row_id: NullableLongs::with_capacity(rows),
        }
    }

    fn push(&mut self, entry: ManifestListEntry<'_>) -> avro::Result<()> {
        self.paths.push(entry.path)?;
        self.length.push(entry.length);
        self.spec_id.push(entry.spec_id);
        self.content.push(entry.content);
        self.added_snapshot_id.push(entry.added_snapshot_id);
        self.added.push(entry.added);
        self.existing.push(entry.existing);
        self.deleted.push(entry.deleted);
        self.encrypted.append(entry.encrypted);
        self.sequence_number.push(entry.sequence_number);
        self.first_row_id.push(entry.first_row_id);
        Ok(())
    }

    fn finish(mut self, path: &str) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.paths.finish().map_err(|why| malformed(path, why))?),
            Arc::new(self.length.finish()),
            Arc::new(self.spec_id.finish()),
            Arc::new(Int32Array::from(self.content)),
            Arc::new(self.added_snapshot_id.finish()),
            Arc::new(self.added.finish()),
            Arc::new(self.existing.finish()),
            Arc::new(self.deleted.finish()),
            Arc::new(BooleanArray::from(self.encrypted.finish())),
            Arc::new(self.sequence_number.finish()),
            Arc::new(self.first_row_id.finish()),
        ];
        Ok(RecordBatch::try_new(manifest_list_schema(), columns)?)
    }
}

fn malformed(path: &str, why: Corrupt) -> Error {
    Error::Malformed { what: WHAT, path: path.into(), why: why.to_string() }
}

mod described;
mod known;
#[cfg(test)]
mod tests;
