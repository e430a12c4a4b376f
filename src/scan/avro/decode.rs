//! Decoding of records: the wanted fields of each, everything else walked over.

use super::codec::{Decompressor, MAX_BLOCK_BYTES, Stored};
use super::container::Container;
use super::cursor::Cursor;
use super::projection::{Step, Wanted, resolve};
use super::schema::{Node, NodeId, Schema};
use super::{MAX_DEPTH, Result};

/// A decoded field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::scan) enum Value<'a> {
    /// Null, or the record doesn't have it.
    Null,
    Integer(i64),
    Bytes(&'a [u8]),
}

/// The wanted fields of one record, by slot.
#[derive(Debug)]
pub(in crate::scan) struct Row<'a, const N: usize>([Value<'a>; N]);

impl<'a, const N: usize> Row<'a, N> {
    pub(in crate::scan) fn integer(&self, slot: usize) -> Option<i64> {
        match self.0[slot] {
            Value::Integer(value) => Some(value),
            _ => None,
        }
    }

    pub(in crate::scan) fn bytes(&self, slot: usize) -> Option<&'a [u8]> {
        match self.0[slot] {
            Value::Bytes(value) => Some(value),
            _ => None,
        }
    }

    pub(in crate::scan) fn text(&self, slot: usize) -> Result<Option<&'a str>> {
        let text = self.bytes(slot).map(std::str::from_utf8).transpose();
        text.map_err(|_| "a string is not UTF-8".into())
    }
}

/// The records of an object container file, one at a time.
#[derive(Debug)]
pub(in crate::scan) struct Records<'a, const N: usize> {
    container: Container<'a>,
    steps: Step,
    decompressor: Decompressor,
    buffer: Vec<u8>,
    block: CurrentBlock<'a>,
    /// The number of the current block, from 1: errors name it.
    blocks: u64,
}

/// Where reading stands inside a block.
#[derive(Debug)]
struct CurrentBlock<'a> {
    /// The block as it lies in the file.
    stored: &'a [u8],
    place: Stored,
    position: usize,
    objects_left: u64,
}

impl<'a, const N: usize> Records<'a, N> {
    /// Opens a file. The slots of `wanted` are below `N`.
    pub(in crate::scan) fn open(bytes: &'a [u8], wanted: &'static [Wanted]) -> Result<Self> {
        let container = Container::open(bytes)?;
        let steps = resolve(&container.schema, wanted)?;
        let decompressor = Decompressor::new(container.codec, MAX_BLOCK_BYTES);
        let block = CurrentBlock { stored: &[], place: Stored::InPlace, position: 0, objects_left: 0 };
        Ok(Self { container, steps, decompressor, buffer: vec![], block, blocks: 0 })
    }

    /// The next record, `None` after the last one of a file that is whole.
    pub(in crate::scan) fn next(&mut self) -> Result<Option<Row<'_, N>>> {
        while self.block.objects_left == 0 {
            if !self.next_block().map_err(|why| in_block(self.blocks, why))? {
                return Ok(None);
            }
        }
        let blocks = self.blocks;
        self.record().map(Some).map_err(|why| in_block(blocks, why))
    }

    /// How many bytes decompression holds.
    pub(in crate::scan) fn buffer_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    fn record(&mut self) -> Result<Row<'_, N>> {
        let data = match self.block.place {
            Stored::InPlace => self.block.stored,
            Stored::InBuffer => &self.buffer,
        };
        let mut cursor = Cursor::new(&data[self.block.position..]);
        let mut row = [Value::Null; N];
        read(&self.container.schema, &self.steps, &mut cursor, &mut row)?;
        self.block.position = data.len() - cursor.rest().len();
        self.block.objects_left -= 1;
        if self.block.objects_left == 0 && !cursor.is_empty() {
            return Err(format!("{} bytes are left over after its last record", cursor.rest().len()).into());
        }
        Ok(Row(row))
    }

    fn next_block(&mut self) -> Result<bool> {
        self.blocks += 1;
        let Some(block) = self.container.next_block()? else {
            return Ok(false);
        };
        let place = self.decompressor.decompress(block.data, &mut self.buffer)?;
        let length = match place {
            Stored::InPlace => block.data.len(),
            Stored::InBuffer => self.buffer.len(),
        };
        // Each record takes a byte at least: the wanted fields do.
        if block.objects > length as u64 {
            return Err(format!("it can't have {} records in {length} bytes", block.objects).into());
        }
        if block.objects == 0 && length > 0 {
            return Err(format!("it has no records but {length} bytes").into());
        }
        self.block = CurrentBlock { stored: block.data, place, position: 0, objects_left: block.objects };
        Ok(true)
    }
}

#[cold]
fn in_block(block: u64, why: super::Corrupt) -> super::Corrupt {
    format!("data block {block}: {why}").into()
}

/// Reads one value. Recursion is as deep as the wanted fields are.
fn read<'a>(schema: &Schema, step: &Step, cursor: &mut Cursor<'a>, row: &mut [Value<'a>]) -> Result<()> {
    match step {
        Step::Skip(node) => skip(schema, *node, cursor, 0)?,
        Step::Integer(slot) => row[*slot] = Value::Integer(cursor.long()?),
        Step::Bytes(slot) => row[*slot] = Value::Bytes(cursor.bytes()?),
        Step::Record(steps) => {
            for step in steps {
                read(schema, step, cursor, row)?;
            }
        }
        Step::Union(branches) => {
            let branch = cursor.choice(branches.len())?;
            read(schema, &branches[branch], cursor, row)?;
        }
    }
    Ok(())
}

/// Walks over one value.
///
/// The time it takes is bounded by the bytes it walks over, times the depth: values that take no bytes are never visited,
/// whatever their number.
fn skip(schema: &Schema, node: NodeId, cursor: &mut Cursor<'_>, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(format!("a value nests more than {MAX_DEPTH} deep").into());
    }
    match schema.node(node) {
        Node::Null => {}
        Node::Boolean => cursor.skip(1)?,
        Node::Integer => cursor.skip_long()?,
        Node::Float => cursor.skip(4)?,
        Node::Double => cursor.skip(8)?,
        Node::Bytes | Node::String => cursor.skip_bytes()?,
        Node::Fixed(size) => cursor.skip(*size)?,
        Node::Enum(symbols) => {
            cursor.choice(*symbols)?;
        }
        Node::Record(fields) => {
            for field in fields {
                skip(schema, field.node, cursor, depth + 1)?;
            }
        }
        Node::Array(items) => match schema.integers(*items) {
            Some(0) => skip_items(cursor, |_, _| Ok(()))?,
            Some(integers) => {
                skip_items(cursor, |cursor, items| each(items, || (0..integers).try_for_each(|_| cursor.skip_long())))?
            }
            None => skip_items(cursor, |cursor, count| each(count, || skip(schema, *items, cursor, depth + 1)))?,
        },
        Node::Map(values) => skip_items(cursor, |cursor, count| {
            each(count, || {
                cursor.skip_bytes()?;
                skip(schema, *values, cursor, depth + 1)
            })
        })?,
        Node::Union(branches) => {
            let branch = cursor.choice(branches.len())?;
            skip(schema, branches[branch], cursor, depth + 1)?;
        }
    }
    Ok(())
}

/// Walks over the items of an array or the entries of a map. `skip_block` walks over as many as it is told.
#[inline]
fn skip_items<'a>(
    cursor: &mut Cursor<'a>,
    mut skip_block: impl FnMut(&mut Cursor<'a>, u64) -> Result<()>,
) -> Result<()> {
    while let Some(items) = cursor.items()? {
        match items.bytes {
            Some(bytes) => cursor.skip(bytes)?,
            None => skip_block(cursor, items.count)?,
        }
    }
    Ok(())
}

/// Does something `count` times. Each time reads a byte at least, so an invented count soon meets the end of the data.
#[inline]
fn each(count: u64, mut skip_one: impl FnMut() -> Result<()>) -> Result<()> {
    (0..count).try_for_each(|_| skip_one())
}

#[cfg(test)]
mod tests;
