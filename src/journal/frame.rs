//! The Arrow file that a journal file is, read without trusting it.
//!
//! Arrow's own file reader takes the types, lengths and places in a file for what they are: a forged one can make it panic, or
//! ask for any amount of memory. Whoever can write a journal can also give it the name that its hash asks for. So the frame is
//! checked here, and Arrow decodes columns whose types are known and whose data lies where it says.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::ipc::reader::FileDecoder;
use datafusion::arrow::ipc::{self, Block, Footer, TimeUnit as IpcTimeUnit, Type, root_as_footer, root_as_message};

/// What an Arrow file ends with, after the length of its footer.
const MAGIC: &[u8] = b"ARROW1";

/// What a message begins with, before its length.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// A message's marker and length.
const MESSAGE_HEAD: usize = 8;

/// How many bytes the columns may have after decompression for each byte of the file, and in any file.
const MAX_INFLATION: usize = 256;
const ALWAYS_INFLATED: usize = 64 << 20;
/// No plan is larger: twenty million files.
const MOST_INFLATED: usize = 4 << 30;

/// What is wrong with the file, as the end of a sentence that names it.
type Result<T, E = String> = std::result::Result<T, E>;

/// An Arrow file whose footer was found.
pub(super) struct ArrowFile<'a> {
    bytes: &'a [u8],
    footer: Footer<'a>,
}

impl<'a> ArrowFile<'a> {
    /// # Errors
    /// When it does not end in a footer.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self> {
        let rest = bytes.strip_suffix(MAGIC).ok_or("it does not end as an Arrow file does")?;
        let (rest, length) = rest.split_last_chunk().ok_or("it is too short for an Arrow file")?;
        let length = usize::try_from(i32::from_le_bytes(*length)).ok();
        let start = length.and_then(|length| rest.len().checked_sub(length));
        let footer = start.and_then(|start| rest.get(start..)).ok_or("its footer lies outside of the file")?;
        let footer = root_as_footer(footer).map_err(|error| format!("its footer is wrong: {error}"))?;
        Ok(Self { bytes, footer })
    }

    /// An entry of the schema's metadata.
    pub(super) fn metadata(&self, key: &str) -> Option<&'a str> {
        let entries = self.footer.schema()?.custom_metadata()?;
        entries.iter().find(|entry| entry.key() == Some(key)).and_then(|entry| entry.value())
    }

    /// True if its columns are exactly these.
    pub(super) fn has_columns(&self, fields: &[Field]) -> bool {
        let Some(found) = self.footer.schema().and_then(|schema| schema.fields()) else { return false };
        found.len() == fields.len() && found.iter().zip(fields).all(|(found, field)| is_field(&found, field))
    }

    /// All rows, of a file that [has these columns](Self::has_columns).
    ///
    /// # Errors
    /// When some of it lies outside of the file, promises more data than it can hold, or is otherwise not what it says.
    pub(super) fn rows(&self, fields: &[Field]) -> Result<Vec<RecordBatch>> {
        if self.footer.dictionaries().is_some_and(|dictionaries| !dictionaries.is_empty()) {
            return Err("it has dictionaries".into());
        }
        let decoder = FileDecoder::new(Arc::new(Schema::new(fields.to_vec())), self.footer.version());
        let mut allowed = self.bytes.len().saturating_mul(MAX_INFLATION).clamp(ALWAYS_INFLATED, MOST_INFLATED);
        let mut batches = vec![];
        for block in self.footer.recordBatches().ok_or("it has no rows")? {
            let (head, body) = self.parts_of(block).ok_or("a part of it lies outside of the file")?;
            allowed = allowed
                .checked_sub(checked_size(head, body, fields)?)
                .ok_or("its columns promise more data than such a file can hold")?;
            let part = Buffer::from([head, body].concat());
            let rows = decoder.read_record_batch(block, &part).map_err(|error| error.to_string())?;
            batches.extend(rows);
        }
        Ok(batches)
    }

    /// The message that a block consists of, and the data behind it.
    fn parts_of(&self, block: &Block) -> Option<(&'a [u8], &'a [u8])> {
        let start = usize::try_from(block.offset()).ok()?;
        let head_end = start.checked_add(usize::try_from(block.metaDataLength()).ok()?)?;
        let body_end = head_end.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
        Some((self.bytes.get(start..head_end)?, self.bytes.get(head_end..body_end)?))
    }
}

fn is_field(found: &ipc::Field<'_>, field: &Field) -> bool {
    let is_type = match field.data_type() {
        DataType::Utf8 => found.type_type() == Type::Utf8,
        DataType::Int64 => found.type_as_int().is_some_and(|int| int.bitWidth() == 64 && int.is_signed()),
        DataType::Timestamp(_, zone) => found.type_as_timestamp().is_some_and(|timestamp| {
            timestamp.unit() == IpcTimeUnit::MILLISECOND && timestamp.timezone() == zone.as_deref()
        }),
        _ => false,
    };
    is_type
        && found.name() == Some(field.name())
        && found.nullable() == field.is_nullable()
        && found.dictionary().is_none()
}

/// How many bytes the columns of a message promise to have after decompression.
///
/// # Errors
/// When they lie outside of the body, or are too short for their rows.
fn checked_size(head: &[u8], body: &[u8], fields: &[Field]) -> Result<usize> {
    let message = head.get(MESSAGE_HEAD..).filter(|_| head.starts_with(&CONTINUATION));
    let message = root_as_message(message.ok_or("a message in it does not begin as one")?);
    let message = message.map_err(|error| format!("a message in it is wrong: {error}"))?;
    let rows = message.header_as_record_batch().ok_or("a message in it holds no rows")?;
    let (nodes, buffers) = rows.nodes().zip(rows.buffers()).ok_or("a message in it has no columns")?;
    let length = usize::try_from(rows.length()).map_err(|_| "the number of its rows is negative")?;
    let sizes = buffers.iter().map(|buffer| {
        let data = slice(body, buffer).ok_or("a column lies outside of the file")?;
        if rows.compression().is_some() { inflated_size(data) } else { Ok(data.len()) }
    });
    let sizes = sizes.collect::<Result<Vec<_>>>()?;
    let mut rest = sizes.as_slice();
    for (node, field) in nodes.iter().zip(fields) {
        let has_nulls = node.null_count() != 0;
        let is_whole = match (field.data_type(), rest) {
            // What each text is, Arrow checks.
            (DataType::Utf8, [valid, offsets, _, others @ ..]) => {
                rest = others;
                (!has_nulls || *valid >= length.div_ceil(8)) && (length == 0 || offsets / 4 > length)
            }
            (_, [valid, values, others @ ..]) => {
                rest = others;
                (!has_nulls || *valid >= length.div_ceil(8)) && values / 8 >= length
            }
            _ => false,
        };
        if !is_whole || node.length() != rows.length() || !(0..=node.length()).contains(&node.null_count()) {
            return Err("its columns are not as long as each other".into());
        }
    }
    let has_others = rows.variadicBufferCounts().is_some_and(|counts| !counts.is_empty());
    if nodes.len() != fields.len() || !rest.is_empty() || has_others {
        return Err("it has other columns than it says".into());
    }
    Ok(sizes.into_iter().fold(0, usize::saturating_add))
}

/// Compressed data is preceded by its length after decompression; -1 says that it is not compressed.
fn inflated_size(data: &[u8]) -> Result<usize> {
    match data.split_first_chunk() {
        None if data.is_empty() => Ok(0),
        None => Err("a column is cut short".into()),
        Some((length, rest)) => match i64::from_le_bytes(*length) {
            -1 => Ok(rest.len()),
            length => usize::try_from(length).map_err(|_| "the length of a column is negative".into()),
        },
    }
}

fn slice<'a>(body: &'a [u8], buffer: &ipc::Buffer) -> Option<&'a [u8]> {
    let start = usize::try_from(buffer.offset()).ok()?;
    body.get(start..start.checked_add(usize::try_from(buffer.length()).ok()?)?)
}
