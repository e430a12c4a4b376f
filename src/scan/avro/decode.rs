//! Decoding of records: the wanted fields of each, everything else walked over.

use super::cursor::Cursor;
use super::projection::Step;
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

/// Reads the record at the cursor.
pub(super) fn record<'a, const N: usize>(schema: &Schema, steps: &Step, cursor: &mut Cursor<'a>) -> Result<Row<'a, N>> {
    let mut row = [Value::Null; N];
    read(schema, steps, cursor, &mut row)?;
    Ok(Row(row))
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
