//! Decoding of records: the wanted fields of each, everything else walked over.

use super::cursor::Cursor;
use super::projection::Op;
use super::schema::{Node, NodeId, Schema};
use super::{MAX_DEPTH, Result};

/// The wanted fields of one record, by slot.
#[derive(Debug)]
pub(in crate::scan) struct Row<'a, const N: usize> {
    /// One bit for each slot that holds a value. The others may hold those of the record before.
    present: u32,
    integers: [i64; N],
    bytes: [&'a [u8]; N],
}

impl<'a, const N: usize> Row<'a, N> {
    pub(super) fn new() -> Self {
        const { assert!(N <= 32, "each slot has a bit") };
        Self { present: 0, integers: [0; N], bytes: [&[]; N] }
    }

    /// `None`: null, or the record doesn't have it.
    #[inline]
    pub(in crate::scan) fn integer(&self, slot: usize) -> Option<i64> {
        self.has(slot).then(|| self.integers[slot])
    }

    /// `None`: null, or the record doesn't have it.
    #[inline]
    pub(in crate::scan) fn bytes(&self, slot: usize) -> Option<&'a [u8]> {
        self.has(slot).then(|| self.bytes[slot])
    }

    pub(in crate::scan) fn text(&self, slot: usize) -> Result<Option<&'a str>> {
        let text = self.bytes(slot).map(std::str::from_utf8).transpose();
        text.map_err(|_| "a string is not UTF-8".into())
    }

    fn has(&self, slot: usize) -> bool {
        self.present & 1 << slot != 0
    }

    /// Reads the record at the cursor.
    #[inline]
    pub(super) fn read(&mut self, schema: &Schema, ops: &[Op], cursor: &mut Cursor<'a>) -> Result<()> {
        self.present = 0;
        self.run(schema, ops, cursor)
    }

    fn run(&mut self, schema: &Schema, ops: &[Op], position: &mut Cursor<'a>) -> Result<()> {
        // A copy can stay in registers.
        let mut cursor = position.clone();
        let mut next = 0;
        while let Some(op) = ops.get(next) {
            next += 1;
            match op {
                Op::Integer(slot) => {
                    self.integers[*slot] = cursor.long()?;
                    self.present |= 1 << slot;
                }
                Op::Bytes(slot) => {
                    self.bytes[*slot] = cursor.bytes()?;
                    self.present |= 1 << slot;
                }
                Op::Begin(slot) => self.bytes[*slot] = cursor.rest(),
                Op::End(slot) => {
                    // What is left is the end of what was left.
                    let begin = self.bytes[*slot];
                    self.bytes[*slot] = &begin[..begin.len() - cursor.rest().len()];
                    self.present |= 1 << slot;
                }
                Op::SkipFixed(size) => cursor.skip(*size)?,
                Op::SkipIntegers(count) => cursor.skip_longs(*count)?,
                Op::SkipBytes => cursor.skip_bytes()?,
                Op::SkipIntegerItems(integers) => {
                    skip_items(&mut cursor, |cursor, items| cursor.skip_longs(items.saturating_mul(*integers)))?
                }
                Op::SkipIntegerBytesItems => {
                    skip_items(&mut cursor, |cursor, items| cursor.apart(|cursor| cursor.skip_longs_with_bytes(items)))?
                }
                Op::SkipItems(ops) => skip_items(&mut cursor, |cursor, items| {
                    cursor.apart(|cursor| each(items, || self.run(schema, ops, cursor)))
                })?,
                Op::SkipTree(node) => cursor.apart(|cursor| skip(schema, *node, cursor, 0))?,
                Op::SkipNullableInteger { null } => {
                    if !cursor.is_null(*null)? {
                        cursor.skip_longs(1)?;
                    }
                }
                Op::SkipNullableBytes { null } => {
                    if !cursor.is_null(*null)? {
                        cursor.skip_bytes()?;
                    }
                }
                Op::SkipNullableFixed { null, size } => {
                    if !cursor.is_null(*null)? {
                        cursor.skip(*size)?;
                    }
                }
                Op::Nullable { null, ops } => {
                    if cursor.is_null(*null)? {
                        next += ops;
                    }
                }
                Op::Union(branches) => {
                    let choices = branches.len();
                    next = branches[cursor.apart(|cursor| cursor.choice(choices))?];
                }
                Op::Jump(target) => next = *target,
            }
        }
        *position = cursor;
        Ok(())
    }
}

/// Walks over one value.
///
/// The time it takes is bounded by the bytes it walks over, times the depth: values that take no bytes are never visited,
/// whatever their number.
pub(super) fn skip(schema: &Schema, node: NodeId, cursor: &mut Cursor<'_>, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(format!("a value nests more than {MAX_DEPTH} deep").into());
    }
    match schema.node(node) {
        Node::Null => {}
        Node::Boolean => cursor.skip(1)?,
        Node::Integer => cursor.skip_longs(1)?,
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
                skip_items(cursor, |cursor, items| cursor.skip_longs(items.saturating_mul(integers as u64)))?
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
///
/// Blocks that carry their size could be jumped over, but no writer notes it, and walking finds out whether the size and
/// the count agree.
#[inline(always)]
fn skip_items<'a>(
    cursor: &mut Cursor<'a>,
    mut skip_block: impl FnMut(&mut Cursor<'a>, u64) -> Result<()>,
) -> Result<()> {
    while let Some(items) = cursor.items()? {
        match items.bytes {
            None => skip_block(cursor, items.count)?,
            Some(bytes) => {
                let mut block = Cursor::new(cursor.take(bytes)?);
                skip_block(&mut block, items.count)?;
                if !block.is_empty() {
                    return Err("the size of a block of items is wrong".into());
                }
            }
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
