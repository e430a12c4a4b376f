//! Values that a row hands out as they are encoded ([`Target::Encoded`](super::Target::Encoded)): maps, lists and records.
//!
//! Their bytes were walked over before, so they are there and end where the value ends. They are still not trusted: each
//! item that is read takes a byte at least, numbers and lengths are checked, and a map or list has [`MAX_ITEMS`] at most: in
//! Arrow an item takes many times the one byte that it may have in Avro.

use std::sync::Arc;

use super::cursor::Cursor;
use super::decode::skip;
use super::file::Layout;
use super::schema::{Field, Node, NodeId, Schema};
use super::{Corrupt, Result};

/// A map or list with more items is refused. They have one for each column of a table, or for each row group of a file.
const MAX_ITEMS: u64 = 1 << 20;

/// A value that is neither a list nor a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::scan) enum Primitive<'a> {
    Boolean(bool),
    /// An `int` or a `long`.
    Integer(i64),
    Float(f32),
    Double(f64),
    Bytes(&'a [u8]),
    Fixed(&'a [u8]),
    /// Not checked to be UTF-8.
    Text(&'a [u8]),
}

impl Primitive<'_> {
    /// The type's name in a schema.
    pub(in crate::scan) fn type_name(&self) -> &'static str {
        match self {
            Self::Boolean(_) => "boolean",
            Self::Integer(_) => "int or long",
            Self::Float(_) => "float",
            Self::Double(_) => "double",
            Self::Bytes(_) => "bytes",
            Self::Fixed(_) => "fixed",
            Self::Text(_) => "string",
        }
    }
}

/// A type, alone or in a union with null.
#[derive(Debug, Clone, Copy)]
struct Nullable {
    /// The first byte of a null, if there may be one.
    null: Option<u8>,
    node: NodeId,
}

impl Nullable {
    /// `None`: another union.
    fn of(schema: &Schema, node: NodeId) -> Option<Self> {
        let Node::Union(branches) = schema.node(node) else { return Some(Self { null: None, node }) };
        match **branches {
            [null, node] if *schema.node(null) == Node::Null => Some(Self { null: Some(0), node }),
            [node, null] if *schema.node(null) == Node::Null => Some(Self { null: Some(2), node }),
            _ => None,
        }
    }

    /// Reads the value, or that there is none.
    #[inline]
    fn read<'a, V>(
        self,
        cursor: &mut Cursor<'a>,
        value: impl FnOnce(&mut Cursor<'a>) -> Result<V>,
    ) -> Result<Option<V>> {
        match self.null {
            Some(null) if cursor.is_null(null)? => Ok(None),
            _ => value(cursor).map(Some),
        }
    }
}

/// Reads maps whose keys are integers: arrays of records of a key and a value (table spec, "Avro", maps).
#[derive(Debug, Clone, Copy)]
pub(in crate::scan) struct MapReader {
    value_first: bool,
    value: Nullable,
}

impl MapReader {
    /// For a slot whose values are integers, or `bytes` if `of_bytes`. `key_id`: the field id of keys. `None`: the records
    /// of this layout have no such field.
    ///
    /// # Errors
    /// When the field has another type.
    pub(in crate::scan) fn new(layout: &Layout, slot: usize, key_id: i64, of_bytes: bool) -> Result<Option<Self>> {
        let Some(node) = layout.encoded(slot) else { return Ok(None) };
        let reader = Self::of_items(layout.schema(), node, key_id, of_bytes);
        let expected = if of_bytes { "bytes" } else { "long" };
        reader.map(Some).ok_or_else(|| format!("it is not a map from int to {expected}").into())
    }

    fn of_items(schema: &Schema, node: NodeId, key_id: i64, of_bytes: bool) -> Option<Self> {
        let Node::Array(items) = schema.node(node) else { return None };
        let Node::Record(fields) = schema.node(*items) else { return None };
        let [first, second] = &fields[..] else { return None };
        let is_key = |field: &Field| field.id.map_or(field.name == "key", |id| id == key_id);
        let (value_first, key, value) = match (is_key(first), is_key(second)) {
            (true, false) => (false, first, second),
            (false, true) => (true, second, first),
            _ => return None,
        };
        let value = Nullable::of(schema, value.node)?;
        let is_wanted = match schema.node(value.node) {
            Node::Integer => !of_bytes,
            Node::Bytes => of_bytes,
            _ => false,
        };
        (is_wanted && *schema.node(key.node) == Node::Integer).then_some(Self { value_first, value })
    }

    /// Hands each entry of a map of integers to `take`, in the order of the file. One without a value is left out.
    pub(in crate::scan) fn longs(&self, encoded: &[u8], take: impl FnMut(i64, i64) -> Result<()>) -> Result<()> {
        self.entries(encoded, Cursor::long, take)
    }

    /// The same for a map of bytes.
    pub(in crate::scan) fn bytes<'a>(
        &self,
        encoded: &'a [u8],
        take: impl FnMut(i64, &'a [u8]) -> Result<()>,
    ) -> Result<()> {
        self.entries(encoded, Cursor::bytes, take)
    }

    #[inline]
    fn entries<'a, V>(
        &self,
        encoded: &'a [u8],
        value: impl Fn(&mut Cursor<'a>) -> Result<V>,
        mut take: impl FnMut(i64, V) -> Result<()>,
    ) -> Result<()> {
        each_item(encoded, |cursor| {
            let (key, value) = if self.value_first {
                let value = self.value.read(cursor, &value)?;
                (cursor.long()?, value)
            } else {
                (cursor.long()?, self.value.read(cursor, &value)?)
            };
            value.map_or(Ok(()), |value| take(key, value))
        })
    }
}

/// Reads lists of integers.
#[derive(Debug, Clone, Copy)]
pub(in crate::scan) struct ListReader {
    element: Nullable,
}

impl ListReader {
    /// For a slot. `None`: the records of this layout have no such field.
    ///
    /// # Errors
    /// When the field has another type.
    pub(in crate::scan) fn new(layout: &Layout, slot: usize) -> Result<Option<Self>> {
        let Some(node) = layout.encoded(slot) else { return Ok(None) };
        let schema = layout.schema();
        let element = match schema.node(node) {
            Node::Array(items) => Nullable::of(schema, *items),
            _ => None,
        };
        match element {
            Some(element) if *schema.node(element.node) == Node::Integer => Ok(Some(Self { element })),
            _ => Err("it is not a list of int or long".into()),
        }
    }

    /// Hands each element to `take`.
    ///
    /// # Errors
    /// When an element is null, and what `take` returns.
    pub(in crate::scan) fn longs(&self, encoded: &[u8], mut take: impl FnMut(i64) -> Result<()>) -> Result<()> {
        each_item(encoded, |cursor| {
            let element = self.element.read(cursor, Cursor::long)?;
            take(element.ok_or("an element is null")?)
        })
    }
}

/// Reads each item of an array. An item takes a byte at least, so an invented count soon meets the end of the data.
#[inline]
fn each_item<'a>(encoded: &'a [u8], mut item: impl FnMut(&mut Cursor<'a>) -> Result<()>) -> Result<()> {
    let mut cursor = Cursor::new(encoded);
    let mut count = 0u64;
    while let Some(items) = cursor.items()? {
        count = count.saturating_add(items.count);
        if count > MAX_ITEMS {
            return Err(format!("it has more than {MAX_ITEMS} items").into());
        }
        for _ in 0..items.count {
            item(&mut cursor)?;
        }
    }
    Ok(())
}

/// Reads records.
#[derive(Debug)]
pub(in crate::scan) struct RecordReader {
    layout: Arc<Layout>,
    fields: Vec<RecordField>,
}

/// A field of such a record.
#[derive(Debug)]
pub(in crate::scan) struct RecordField {
    /// Iceberg's field id.
    pub(in crate::scan) id: Option<i64>,
    pub(in crate::scan) name: String,
    /// `None`: the field is a list, a record or the like, which is walked over.
    primitive: Option<Nullable>,
    node: NodeId,
}

impl RecordField {
    pub(in crate::scan) fn is_primitive(&self) -> bool {
        self.primitive.is_some()
    }
}

impl RecordReader {
    /// For a slot. `None`: the records of this layout have no such field, or it holds nothing.
    ///
    /// # Errors
    /// When the field is no record.
    pub(in crate::scan) fn new(layout: &Arc<Layout>, slot: usize) -> Result<Option<Self>> {
        let Some(node) = layout.encoded(slot) else { return Ok(None) };
        let schema = layout.schema();
        let fields = match schema.node(node) {
            Node::Record(fields) => fields.iter().map(|field| record_field(schema, field)).collect(),
            other => return Err(format!("it is of type {}, not record", other.name()).into()),
        };
        Ok(Some(Self { layout: Arc::clone(layout), fields }))
    }

    /// The fields in the order of the file. Those whose values take no bytes are not among them.
    pub(in crate::scan) fn fields(&self) -> &[RecordField] {
        &self.fields
    }

    /// Hands the fields that are primitive to `take`, by their place in [`Self::fields`]. `None`: null.
    pub(in crate::scan) fn read<'a>(
        &self,
        encoded: &'a [u8],
        mut take: impl FnMut(usize, Option<Primitive<'a>>) -> Result<()>,
    ) -> Result<()> {
        let schema = self.layout.schema();
        let mut cursor = Cursor::new(encoded);
        for (place, field) in self.fields.iter().enumerate() {
            match field.primitive {
                Some(nullable) => {
                    let node = schema.node(nullable.node);
                    take(place, nullable.read(&mut cursor, |cursor| primitive(node, cursor))?)?;
                }
                None => skip(schema, field.node, &mut cursor, 0)?,
            }
        }
        Ok(())
    }
}

fn record_field(schema: &Schema, field: &Field) -> RecordField {
    let nullable = Nullable::of(schema, field.node);
    let primitive = nullable.filter(|nullable| {
        matches!(
            schema.node(nullable.node),
            Node::Boolean | Node::Integer | Node::Float | Node::Double | Node::Bytes | Node::String | Node::Fixed(_)
        )
    });
    RecordField { id: field.id, name: field.name.clone(), primitive, node: field.node }
}

fn primitive<'a>(node: &Node, cursor: &mut Cursor<'a>) -> Result<Primitive<'a>> {
    Ok(match node {
        Node::Boolean => match cursor.take(1)? {
            [0] => Primitive::Boolean(false),
            [1] => Primitive::Boolean(true),
            _ => return Err("a boolean is neither 0 nor 1".into()),
        },
        Node::Integer => Primitive::Integer(cursor.long()?),
        Node::Float => Primitive::Float(f32::from_le_bytes(array(cursor.take(4)?)?)),
        Node::Double => Primitive::Double(f64::from_le_bytes(array(cursor.take(8)?)?)),
        Node::Bytes => Primitive::Bytes(cursor.bytes()?),
        Node::String => Primitive::Text(cursor.bytes()?),
        Node::Fixed(size) => Primitive::Fixed(cursor.take(*size)?),
        other => return Err(format!("a value of type {} is no primitive", other.name()).into()),
    })
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| Corrupt::from("a number has too few bytes"))
}
