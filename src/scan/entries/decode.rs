//! Decoding manifests to the columns that are wanted.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::Inherited;
use super::columns::{Column, Reader, Unfinished, int};
use super::fields::{DATA_FILE, EntryField, EntryFields, Kind, SLOTS, WANTED, projected_entry_schema, shown_fields};
use super::partition::{PartitionReader, value_bytes};
use crate::error::{Error, Result};
use crate::scan::avro::encoded::{ListReader, MapReader};
use crate::scan::avro::{self, AvroFile, Corrupt, Layout, Row};
use crate::scan::manifest::DELETED;
use crate::scan::refuse_encrypted;
use crate::table::PartitionType;

const WHAT: &str = "a manifest";

/// The most rows in one batch: DataFusion's own default.
const MAX_ROWS: usize = 8192;

/// A batch is full when its values take so many bytes.
const MAX_BATCH_BYTES: usize = 16 << 20;

const ADDED: i64 = 1;

/// What a manifest's header calls its spec.
const SPEC_ID_KEY: &str = "partition-spec-id";

/// What the rows of a scan look like.
#[derive(Debug)]
pub(in crate::scan) struct EntryShape {
    partition: PartitionType,
    fields: EntryFields,
    /// The fields that have a column, in order.
    shown: Vec<EntryField>,
    live_only: bool,
    schema: SchemaRef,
}

impl EntryShape {
    /// `live_only`: without the entries whose status is deleted.
    pub(in crate::scan) fn new(partition: PartitionType, fields: EntryFields, live_only: bool) -> Self {
        let schema = projected_entry_schema(&partition, fields);
        Self { shown: shown_fields(&partition, fields), partition, fields, live_only, schema }
    }

    pub(in crate::scan) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(in crate::scan) fn fields(&self) -> EntryFields {
        self.fields
    }

    pub(in crate::scan) fn live_only(&self) -> bool {
        self.live_only
    }

    /// How many bytes a row takes in any case, about: what nulls and numbers do.
    fn row_bytes(&self) -> usize {
        8 * self.shown.len() + self.partition.fields().iter().map(|field| value_bytes(field.result)).sum::<usize>()
    }
}

/// An opened manifest. Several tasks may each decode a part of it, when it is shared between them.
///
/// Its rows are complete only once all parts were decoded without an error and their counts were compared with the
/// manifest list's.
#[derive(Debug)]
pub(in crate::scan) struct EntryFile<B> {
    path: String,
    file: AvroFile<B, SLOTS>,
    shape: Arc<EntryShape>,
    /// One for each shown field.
    readers: Vec<Reader>,
    inherited: Inherited,
    spec_id: i32,
}

impl<B: AsRef<[u8]>> EntryFile<B> {
    /// Reads the header, and finds the blocks. `layouts`: of files that were opened for the same shape.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is not a whole manifest, as far as the frames of its blocks tell, when it is encrypted,
    /// or when a wanted field has another type than it should.
    pub(in crate::scan) fn open_like<'l>(
        path: &str,
        bytes: B,
        shape: &Arc<EntryShape>,
        inherited: Inherited,
        layouts: impl IntoIterator<Item = &'l Arc<Layout>>,
    ) -> Result<Self> {
        refuse_encrypted(WHAT, path, bytes.as_ref(), false)?;
        let open = || {
            let file = AvroFile::open_projected(bytes, &WANTED, shape.fields.slots(), layouts)?;
            let readers = shape.shown.iter().map(|field| reader(file.layout(), *field, &shape.partition));
            let readers = readers.collect::<avro::Result<_>>()?;
            let spec_id = match inherited.partition_spec_id {
                Some(spec_id) => spec_id,
                None => spec_id_of_header(&file)?,
            };
            Ok(Self { path: path.into(), file, shape: Arc::clone(shape), readers, inherited, spec_id })
        };
        open().map_err(|why| malformed(path, why))
    }

    /// Where it is.
    pub(in crate::scan) fn path(&self) -> &str {
        &self.path
    }

    pub(in crate::scan) fn layout(&self) -> &Arc<Layout> {
        self.file.layout()
    }

    /// All of its blocks.
    pub(in crate::scan) fn blocks(&self) -> Range<usize> {
        self.file.blocks()
    }

    /// Cuts it into parts of about `target_bytes` of the file. Where row ids are inherited it is one part, because each
    /// follows from all before.
    pub(in crate::scan) fn parts(&self, target_bytes: usize) -> Vec<Range<usize>> {
        match self.shape.fields.contains(EntryField::FirstRowId) && self.inherited.first_row_id.is_some() {
            true => vec![self.file.blocks()],
            false => self.file.parts(target_bytes),
        }
    }

    /// Decodes one of [`Self::parts`] into batches, none of them empty. `hand_on` gets each batch, and how many bytes
    /// decoding holds besides.
    ///
    /// Returns how many entries there are, by status, those of deleted files included.
    ///
    /// # Errors
    /// [`Error::Malformed`] when a block is not whole, when an entry lacks a required field or has a value that its column
    /// can't hold, and whatever `hand_on` returns.
    pub(in crate::scan) fn decode(
        &self,
        part: Range<usize>,
        mut hand_on: impl FnMut(RecordBatch, usize) -> Result<()>,
    ) -> Result<[u64; 3]> {
        let corrupt = |why| malformed(&self.path, why);
        let mut decompressor = self.file.decompressor();
        let mut left = self.file.promised_records(part.clone());
        let mut rows = Rows::new(&self.shape, left);
        let mut entries = Entries { counts: [0; 3], next_row_id: self.inherited.first_row_id };
        for block in part {
            let mut records = self.file.records(block, &mut decompressor).map_err(corrupt)?;
            let inflated = records.bytes();
            while let Some((_, row)) = records.next().map_err(corrupt)? {
                let Some(entry) = entries.entry(row, self).map_err(corrupt)? else { continue };
                rows.push(row, &entry, self).map_err(corrupt)?;
                if rows.is_full() {
                    left = left.saturating_sub(rows.rows as u64);
                    let full = std::mem::replace(&mut rows, Rows::new(&self.shape, left));
                    hand_on(full.finish(self)?, inflated)?;
                }
            }
        }
        if rows.rows > 0 {
            hand_on(rows.finish(self)?, decompressor.buffer_bytes())?;
        }
        Ok(entries.counts)
    }
}

/// How the values of a field are read that come encoded.
fn reader(layout: &Arc<Layout>, field: EntryField, partition: &PartitionType) -> avro::Result<Reader> {
    let slot = field.slot();
    let reader = match field.kind() {
        Kind::Longs { key_id } => MapReader::new(layout, slot, key_id, false).map(Reader::Map),
        Kind::Binaries { key_id } => MapReader::new(layout, slot, key_id, true).map(Reader::Map),
        Kind::ListOfInt | Kind::ListOfLong => ListReader::new(layout, slot).map(Reader::List),
        Kind::Partition => PartitionReader::new(layout, slot, partition).map(Reader::Partition),
        Kind::Int | Kind::Long | Kind::Text | Kind::Binary | Kind::SpecId => Ok(Reader::None),
    };
    reader.map_err(|why| in_field(field, why))
}

/// The spec that the manifest was written with. v1's first writers didn't say: there was only one (table spec, "Manifests").
fn spec_id_of_header<B: AsRef<[u8]>>(file: &AvroFile<B, SLOTS>) -> avro::Result<i32> {
    let Some(value) = file.header_value(SPEC_ID_KEY)? else { return Ok(0) };
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("its {SPEC_ID_KEY} is {:?}", String::from_utf8_lossy(value)).into())
}

/// What was met so far of a part of a manifest.
struct Entries {
    /// By status.
    counts: [u64; 3],
    next_row_id: Option<i64>,
}

/// What an entry has after inheriting.
struct Entry {
    status: i64,
    sequence_number: Option<i64>,
    file_sequence_number: Option<i64>,
    first_row_id: Option<i64>,
}

impl Entries {
    /// `None`: the entry is left out.
    fn entry<B>(&mut self, row: &Row<'_, SLOTS>, file: &EntryFile<B>) -> avro::Result<Option<Entry>> {
        let integer = |field: EntryField| row.integer(field.slot());
        let status = integer(EntryField::Status).ok_or("an entry has no status")?;
        let count = usize::try_from(status).ok().and_then(|status| self.counts.get_mut(status));
        *count.ok_or_else(|| out_of_range(EntryField::Status, status))? += 1;
        if file.shape.live_only && status == i64::from(DELETED) {
            return Ok(None);
        }
        // All files of v1 have the sequence number 0. Later only added files may leave theirs to the manifest list.
        let inherited = file.inherited.sequence_number.unwrap_or(0);
        let inherited = (inherited == 0 || status == ADDED).then_some(inherited);
        Ok(Some(Entry {
            status,
            sequence_number: integer(EntryField::SequenceNumber).or(inherited),
            file_sequence_number: integer(EntryField::FileSequenceNumber).or(inherited),
            first_row_id: self.first_row_id(row, status, file)?,
        }))
    }

    /// As Java's `ManifestReader` does: live files without a row id get the next one; where the manifest list has none, files
    /// have none either, since they were there before the table had row ids.
    fn first_row_id<B>(&mut self, row: &Row<'_, SLOTS>, status: i64, file: &EntryFile<B>) -> avro::Result<Option<i64>> {
        let Some(next) = self.next_row_id.filter(|_| file.shape.fields.contains(EntryField::FirstRowId)) else {
            return Ok(None);
        };
        let own = row.integer(EntryField::FirstRowId.slot());
        if own.is_some() || status == i64::from(DELETED) {
            return Ok(own);
        }
        let rows = row.integer(EntryField::RecordCount.slot()).ok_or_else(|| missing(EntryField::RecordCount))?;
        let after = u64::try_from(rows).ok().and_then(|rows| next.checked_add_unsigned(rows));
        self.next_row_id =
            Some(after.ok_or_else(|| {
                in_field(EntryField::FirstRowId, format!("{rows} rows come after row {next}").into())
            })?);
        Ok(Some(next))
    }
}

/// The rows of one batch.
struct Rows {
    /// One for each shown field.
    columns: Vec<Column>,
    rows: usize,
    /// What a row takes in any case.
    row_bytes: usize,
}

impl Rows {
    /// `promised`: how many more rows the file says it has.
    fn new(shape: &EntryShape, promised: u64) -> Self {
        let rows = usize::try_from(promised).unwrap_or(usize::MAX).min(MAX_ROWS);
        let columns = shape.shown.iter().map(|field| Column::new(field.kind(), &shape.partition, rows)).collect();
        Self { columns, rows: 0, row_bytes: shape.row_bytes() }
    }

    fn is_full(&self) -> bool {
        let bytes = self.columns.iter().fold(self.rows * self.row_bytes, |sum, column| sum + column.bytes());
        self.rows >= MAX_ROWS || bytes >= MAX_BATCH_BYTES
    }

    fn push<B>(&mut self, row: &Row<'_, SLOTS>, entry: &Entry, file: &EntryFile<B>) -> avro::Result<()> {
        for ((field, column), reader) in file.shape.shown.iter().zip(&mut self.columns).zip(&file.readers) {
            push(column, *field, row, entry, file, reader).map_err(|why| in_field(*field, why))?;
        }
        self.rows += 1;
        Ok(())
    }

    fn finish<B>(self, file: &EntryFile<B>) -> Result<RecordBatch> {
        let (mut top, mut of_file): (Vec<ArrayRef>, Vec<ArrayRef>) = (vec![], vec![]);
        for (field, column) in file.shape.shown.iter().zip(self.columns) {
            let array = column.finish(self.rows, file.spec_id).map_err(|error| match error {
                Unfinished::Corrupt(why) => malformed(&file.path, in_field(*field, why)),
                Unfinished::Engine(error) => error,
            })?;
            if field.is_of_file() { &mut of_file } else { &mut top }.push(array);
        }
        let schema = &file.shape.schema;
        if let Some((_, field)) = schema.column_with_name(DATA_FILE)
            && let DataType::Struct(fields) = field.data_type()
        {
            top.push(Arc::new(StructArray::try_new(fields.clone(), of_file, None)?));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), top, &options)?)
    }
}

/// Appends one value.
fn push<B>(
    column: &mut Column,
    field: EntryField,
    row: &Row<'_, SLOTS>,
    entry: &Entry,
    file: &EntryFile<B>,
    reader: &Reader,
) -> avro::Result<()> {
    match column {
        Column::Int(column) => column.push(integer(field, row, entry, file)?.map(int).transpose()?),
        Column::Long(column) => column.push(integer(field, row, entry, file)?),
        Column::Text(column) => {
            let text = row.bytes(field.slot());
            match field {
                EntryField::FilePath if text.is_none_or(<[u8]>::is_empty) => return Err("an entry has none".into()),
                // The names of formats are told in upper case, whatever their case in the manifest.
                EntryField::FileFormat => match text {
                    Some(text) if text.iter().any(u8::is_ascii_lowercase) => {
                        column.push(Some(&text.to_ascii_uppercase()))?
                    }
                    Some(text) => column.push(Some(text))?,
                    None => return Err("an entry has none".into()),
                },
                _ => column.push(text)?,
            }
        }
        Column::Binary(column) => column.push(row.bytes(field.slot()))?,
        Column::SpecId => {}
        column => column.push_encoded(row.bytes(field.slot()), reader)?,
    }
    Ok(())
}

/// The value of an integer field, after inheriting.
fn integer<B>(
    field: EntryField,
    row: &Row<'_, SLOTS>,
    entry: &Entry,
    file: &EntryFile<B>,
) -> avro::Result<Option<i64>> {
    let own = || row.integer(field.slot());
    let value = match field {
        EntryField::Status => Some(entry.status),
        EntryField::SnapshotId => own().or(file.inherited.added_snapshot_id),
        EntryField::SequenceNumber => entry.sequence_number,
        EntryField::FileSequenceNumber => entry.file_sequence_number,
        EntryField::FirstRowId => entry.first_row_id,
        EntryField::Content => {
            let content = own().unwrap_or(0);
            if !matches!(content, 0..=2) {
                return Err(format!("{content} is not 0, 1 or 2").into());
            }
            Some(content)
        }
        _ => own(),
    };
    match value.is_none() && field.is_required() {
        true => Err("an entry has none".into()),
        false => Ok(value),
    }
}

#[cold]
fn missing(field: EntryField) -> Corrupt {
    in_field(field, "an entry has none".into())
}

#[cold]
fn out_of_range(field: EntryField, value: i64) -> Corrupt {
    in_field(field, format!("{value} is not 0, 1 or 2").into())
}

#[cold]
fn in_field(field: EntryField, why: Corrupt) -> Corrupt {
    format!("field {}: {why}", field.name()).into()
}

fn malformed(path: &str, why: Corrupt) -> Error {
    Error::Malformed { what: WHAT, path: path.into(), why: why.to_string() }
}
