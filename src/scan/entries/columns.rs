//! The columns of entries: vectors that rows are appended to.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, MapArray, NullBufferBuilder, StringArray, StructArray,
};
use datafusion::arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, Field};

use super::fields::{Kind, list_element, map_entries};
use super::partition::{PartitionColumn, PartitionReader};
use crate::error::Error;
use crate::scan::avro::encoded::{ListReader, MapReader};
use crate::scan::avro::{Corrupt, Result};
use crate::scan::columns::{NullableInts, NullableLongs};
use crate::table::PartitionType;

/// The rows of one field.
#[derive(Debug)]
pub(super) enum Column {
    Int(NullableInts),
    Long(NullableLongs),
    Text(Slices),
    Binary(Slices),
    Longs(Lists, Vec<i32>, Vec<i64>),
    Binaries(Lists, Vec<i32>, Slices),
    ListOfInt(Lists, Vec<i32>),
    ListOfLong(Lists, Vec<i64>),
    SpecId,
    Partition(PartitionColumn),
}

/// How values of a column are read that come encoded.
#[derive(Debug)]
pub(super) enum Reader {
    /// They don't come encoded.
    None,
    Map(Option<MapReader>),
    List(Option<ListReader>),
    Partition(Option<PartitionReader>),
}

impl Column {
    /// `rows`: how many are expected.
    pub(super) fn new(kind: Kind, partition: &PartitionType, rows: usize) -> Self {
        match kind {
            Kind::Int => Self::Int(NullableInts::with_capacity(rows)),
            Kind::Long => Self::Long(NullableLongs::with_capacity(rows)),
            Kind::Text => Self::Text(Slices::with_capacity(rows)),
            Kind::Binary => Self::Binary(Slices::with_capacity(0)),
            Kind::Longs { .. } => Self::Longs(Lists::with_capacity(rows), vec![], vec![]),
            Kind::Binaries { .. } => Self::Binaries(Lists::with_capacity(rows), vec![], Slices::with_capacity(0)),
            Kind::ListOfInt => Self::ListOfInt(Lists::with_capacity(0), vec![]),
            Kind::ListOfLong => Self::ListOfLong(Lists::with_capacity(rows), vec![]),
            Kind::SpecId => Self::SpecId,
            Kind::Partition => Self::Partition(PartitionColumn::new(partition)),
        }
    }

    /// Appends a value that comes encoded. `None`: null.
    pub(super) fn push_encoded(&mut self, encoded: Option<&[u8]>, reader: &Reader) -> Result<()> {
        match (self, reader) {
            (Self::Longs(lists, keys, values), Reader::Map(reader)) => {
                if let (Some(encoded), Some(reader)) = (encoded, reader) {
                    reader.longs(encoded, |key, value| {
                        keys.push(int(key)?);
                        values.push(value);
                        Ok(())
                    })?;
                }
                lists.end(keys.len(), encoded.is_some())
            }
            (Self::Binaries(lists, keys, values), Reader::Map(reader)) => {
                if let (Some(encoded), Some(reader)) = (encoded, reader) {
                    reader.bytes(encoded, |key, value| {
                        keys.push(int(key)?);
                        values.push(Some(value))
                    })?;
                }
                lists.end(keys.len(), encoded.is_some())
            }
            (Self::ListOfInt(lists, elements), Reader::List(reader)) => {
                if let (Some(encoded), Some(reader)) = (encoded, reader) {
                    reader.longs(encoded, |element| {
                        elements.push(int(element)?);
                        Ok(())
                    })?;
                }
                lists.end(elements.len(), encoded.is_some())
            }
            (Self::ListOfLong(lists, elements), Reader::List(reader)) => {
                if let (Some(encoded), Some(reader)) = (encoded, reader) {
                    reader.longs(encoded, |element| {
                        elements.push(element);
                        Ok(())
                    })?;
                }
                lists.end(elements.len(), encoded.is_some())
            }
            (Self::Partition(column), Reader::Partition(reader)) => column.push(encoded, reader.as_ref()),
            _ => Err("there is no way to read it".into()),
        }
    }

    /// How many bytes its values take whose number or length differs between rows.
    pub(super) fn bytes(&self) -> usize {
        let items = |keys: &[i32], bytes_each: usize| keys.len() * (size_of::<i32>() + bytes_each);
        match self {
            Self::Int(_) | Self::Long(_) | Self::SpecId => 0,
            Self::Text(column) | Self::Binary(column) => column.bytes(),
            Self::Longs(_, keys, _) => items(keys, size_of::<i64>()),
            Self::Binaries(_, keys, values) => items(keys, size_of::<i32>()) + values.bytes(),
            Self::ListOfInt(_, elements) => elements.len() * size_of::<i32>(),
            Self::ListOfLong(_, elements) => elements.len() * size_of::<i64>(),
            Self::Partition(column) => column.bytes(),
        }
    }

    /// The column. `rows`: how many it has; `spec_id`: the spec of all of them.
    pub(super) fn finish(self, rows: usize, spec_id: i32) -> crate::error::Result<ArrayRef, Unfinished> {
        Ok(match self {
            Self::Int(column) => Arc::new(column.finish()),
            Self::Long(column) => Arc::new(column.finish()),
            Self::Text(column) => Arc::new(column.finish_text()?),
            Self::Binary(column) => Arc::new(column.finish_binary()?),
            Self::Longs(lists, keys, values) => {
                lists.finish_map(keys, Arc::new(Int64Array::from(values)), DataType::Int64)?
            }
            Self::Binaries(lists, keys, values) => {
                lists.finish_map(keys, Arc::new(values.finish_binary()?), DataType::Binary)?
            }
            Self::ListOfInt(lists, elements) => {
                lists.finish_list(Arc::new(Int32Array::from(elements)), DataType::Int32)?
            }
            Self::ListOfLong(lists, elements) => {
                lists.finish_list(Arc::new(Int64Array::from(elements)), DataType::Int64)?
            }
            Self::SpecId => Arc::new(Int32Array::from_value(spec_id, rows)),
            Self::Partition(column) => column.finish(rows)?,
        })
    }
}

/// Why a column can't be finished: the file is at fault, or we are.
#[derive(Debug)]
pub(super) enum Unfinished {
    Corrupt(Corrupt),
    Engine(Error),
}

impl From<Corrupt> for Unfinished {
    fn from(why: Corrupt) -> Self {
        Self::Corrupt(why)
    }
}

impl From<datafusion::arrow::error::ArrowError> for Unfinished {
    fn from(error: datafusion::arrow::error::ArrowError) -> Self {
        Self::Engine(error.into())
    }
}

/// An `int` of Iceberg.
pub(super) fn int(value: i64) -> Result<i32> {
    i32::try_from(value).map_err(|_| format!("{value} is no int").into())
}

/// Which rows have a value. Takes memory from the first null on: most columns have none.
#[derive(Debug, Default)]
pub(super) struct Validity {
    rows: usize,
    bits: Option<NullBufferBuilder>,
}

impl Validity {
    #[inline]
    pub(super) fn push(&mut self, valid: bool) {
        if !valid || self.bits.is_some() {
            self.push_bit(valid);
        }
        self.rows += 1;
    }

    #[inline(never)]
    fn push_bit(&mut self, valid: bool) {
        let before = self.rows;
        let bits = self.bits.get_or_insert_with(|| {
            let mut bits = NullBufferBuilder::new(before + 1);
            bits.append_n_non_nulls(before);
            bits
        });
        bits.append(valid);
    }

    fn finish(self) -> Option<NullBuffer> {
        self.bits.and_then(|mut bits| bits.finish())
    }
}

/// Strings or bytes, one behind the other, that may be null.
#[derive(Debug)]
pub(super) struct Slices {
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    validity: Validity,
}

impl Slices {
    /// `rows`: how many are expected.
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self { bytes: vec![], offsets: offsets(rows), validity: Validity::default() }
    }

    /// The length of all of them together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// # Errors
    /// When all of them would have more than 2 GiB.
    #[inline]
    pub(super) fn push(&mut self, slice: Option<&[u8]>) -> Result<()> {
        self.bytes.extend_from_slice(slice.unwrap_or_default());
        self.offsets.push(offset(self.bytes.len())?);
        self.validity.push(slice.is_some());
        Ok(())
    }

    /// # Errors
    /// When one of them is not UTF-8.
    pub(super) fn finish_text(self) -> Result<StringArray> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        // Nothing else can be wrong with them.
        StringArray::try_new(offsets, Buffer::from_vec(self.bytes), self.validity.finish())
            .map_err(|_| Corrupt::from("a string is not UTF-8"))
    }

    pub(super) fn finish_binary(self) -> crate::error::Result<BinaryArray, Unfinished> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(BinaryArray::try_new(offsets, Buffer::from_vec(self.bytes), self.validity.finish())?)
    }
}

/// Where lists or maps end in a vector of elements. They may be null.
#[derive(Debug)]
pub(super) struct Lists {
    offsets: Vec<i32>,
    validity: Validity,
}

impl Lists {
    fn with_capacity(rows: usize) -> Self {
        Self { offsets: offsets(rows), validity: Validity::default() }
    }

    /// Ends a list where so many elements are there.
    fn end(&mut self, elements: usize, valid: bool) -> Result<()> {
        self.offsets.push(offset(elements)?);
        self.validity.push(valid);
        Ok(())
    }

    fn finish_map(
        self,
        keys: Vec<i32>,
        values: ArrayRef,
        value_type: DataType,
    ) -> crate::error::Result<ArrayRef, Unfinished> {
        let entries =
            StructArray::try_new(map_entries(value_type), vec![Arc::new(Int32Array::from(keys)), values], None)?;
        let field = Arc::new(Field::new("entries", DataType::Struct(entries.fields().clone()), false));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(Arc::new(MapArray::try_new(field, offsets, entries, self.validity.finish(), false)?))
    }

    fn finish_list(self, elements: ArrayRef, element_type: DataType) -> crate::error::Result<ArrayRef, Unfinished> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(Arc::new(ListArray::try_new(list_element(element_type), offsets, elements, self.validity.finish())?))
    }
}

fn offsets(rows: usize) -> Vec<i32> {
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    offsets
}

fn offset(length: usize) -> Result<i32> {
    i32::try_from(length).map_err(|_| "the values of a batch take more than 2 GiB".into())
}
