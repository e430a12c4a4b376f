//! Partitions: from the records that manifests have, each with the fields of its own spec, to one struct for all of them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanBuilder, FixedSizeBinaryBuilder, StructArray, new_null_array};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Fields, Float32Type, Float64Type, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampNanosecondType,
};

use super::columns::{Slices, Unfinished, int};
use crate::scan::avro::encoded::{Primitive, RecordReader};
use crate::scan::avro::{Corrupt, Layout, Result};
use crate::scan::columns::{Nullable, NullableInts, NullableLongs};
use crate::table::{PartitionType, PartitionTypeField, ResultType};

/// Longer `fixed` values become binary: in Arrow each null of a fixed-size column takes as much as a value.
const MAX_FIXED_BYTES: usize = 256;

const UUID_BYTES: usize = 16;

/// The children of the column `partition`. Each may be null: in files of other specs, and for null itself.
pub(crate) fn partition_fields(partition: &PartitionType) -> Fields {
    partition.fields().iter().map(|field| Field::new(&field.name, arrow_type(field.result), true)).collect()
}

/// The Arrow type of values of partition fields and columns. What we don't know of partitions is shown as text.
pub(crate) fn arrow_type(result: ResultType) -> DataType {
    let zone = |zoned: bool| zoned.then(|| Arc::from("UTC"));
    match result {
        ResultType::Boolean => DataType::Boolean,
        ResultType::Int => DataType::Int32,
        ResultType::Long => DataType::Int64,
        ResultType::Float => DataType::Float32,
        ResultType::Double => DataType::Float64,
        ResultType::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
        ResultType::Date => DataType::Date32,
        ResultType::Time => DataType::Time64(TimeUnit::Microsecond),
        ResultType::Timestamp { nanos: false, zoned } => DataType::Timestamp(TimeUnit::Microsecond, zone(zoned)),
        ResultType::Timestamp { nanos: true, zoned } => DataType::Timestamp(TimeUnit::Nanosecond, zone(zoned)),
        ResultType::String | ResultType::Unknown => DataType::Utf8,
        ResultType::Uuid => DataType::FixedSizeBinary(UUID_BYTES as i32),
        ResultType::Fixed(size @ 1..=MAX_FIXED_BYTES) => DataType::FixedSizeBinary(size as i32),
        ResultType::Fixed(_) | ResultType::Binary => DataType::Binary,
    }
}

/// How many bytes a value takes in any case, null or not.
pub(super) fn value_bytes(result: ResultType) -> usize {
    match arrow_type(result) {
        DataType::FixedSizeBinary(size) => size as usize,
        _ => size_of::<i128>(),
    }
}

/// Reads the partitions of one manifest.
#[derive(Debug)]
pub(super) struct PartitionReader {
    record: RecordReader,
    /// For each field of the record, the child that it goes to.
    children: Vec<Option<usize>>,
    /// The children that the record has a field for.
    present: Vec<usize>,
}

impl PartitionReader {
    /// `None`: the manifest's partitions have no fields.
    ///
    /// # Errors
    /// When the manifest has a partition field twice, or one that holds no primitive values.
    pub(super) fn new(layout: &Arc<Layout>, slot: usize, partition: &PartitionType) -> Result<Option<Self>> {
        let Some(record) = RecordReader::new(layout, slot)? else { return Ok(None) };
        let mut children = vec![None; record.fields().len()];
        let mut present = vec![];
        for (child, wanted) in partition.fields().iter().enumerate() {
            let Some(place) = place_of(&record, wanted)? else { continue };
            if !record.fields().get(place).is_some_and(|field| field.is_primitive()) {
                return Err(format!("its field {} (id {}) is no primitive value", wanted.name, wanted.id).into());
            }
            if let Some(slot) = children.get_mut(place) {
                *slot = Some(child);
                present.push(child);
            }
        }
        Ok(Some(Self { record, children, present }))
    }
}

/// The place of a field in the record, by id. Names count only for fields without one, as some v1 writers left them.
fn place_of(record: &RecordReader, wanted: &PartitionTypeField) -> Result<Option<usize>> {
    let with_id = |id: i64| id == i64::from(wanted.id);
    let fields = || record.fields().iter().enumerate();
    let mut by_id = fields().filter(|(_, field)| field.id.is_some_and(with_id)).map(|(place, _)| place);
    match (by_id.next(), by_id.next()) {
        (_, Some(_)) => Err(format!("it has the field {} (id {}) twice", wanted.name, wanted.id).into()),
        (Some(place), None) => Ok(Some(place)),
        (None, None) => Ok(fields().find(|(_, field)| field.id.is_none() && field.name == wanted.name).map(|at| at.0)),
    }
}

/// The column `partition`.
#[derive(Debug)]
pub(super) struct PartitionColumn {
    fields: Fields,
    children: Vec<Child>,
}

/// A child of the column. Its rows are those that were pushed, which are all of them or, for a field that the manifest
/// lacks, none.
#[derive(Debug)]
struct Child {
    name: String,
    result: ResultType,
    pushed: bool,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Boolean(BooleanBuilder),
    Int(NullableInts),
    Long(NullableLongs),
    Float(Nullable<Float32Type>),
    Double(Nullable<Float64Type>),
    Decimal(Nullable<Decimal128Type>),
    Date(Nullable<Date32Type>),
    Time(Nullable<Time64MicrosecondType>),
    Micros(Nullable<TimestampMicrosecondType>),
    Nanos(Nullable<TimestampNanosecondType>),
    Text(Slices),
    Binary(Slices),
    Fixed(FixedSizeBinaryBuilder),
}

impl PartitionColumn {
    pub(super) fn new(partition: &PartitionType) -> Self {
        let child = |field: &PartitionTypeField| Child {
            name: field.name.clone(),
            result: field.result,
            pushed: false,
            values: Values::new(&arrow_type(field.result)),
        };
        Self { fields: partition_fields(partition), children: partition.fields().iter().map(child).collect() }
    }

    /// Appends a partition. `None`: there is none, so that all of its fields are null.
    pub(super) fn push(&mut self, encoded: Option<&[u8]>, reader: Option<&PartitionReader>) -> Result<()> {
        let Some(reader) = reader else { return Ok(()) };
        let Some(encoded) = encoded else {
            for child in &reader.present {
                self.push_child(*child, None)?;
            }
            return Ok(());
        };
        reader.record.read(encoded, |place, value| match reader.children.get(place) {
            Some(Some(child)) => self.push_child(*child, value),
            _ => Ok(()),
        })
    }

    fn push_child(&mut self, child: usize, value: Option<Primitive<'_>>) -> Result<()> {
        let Some(child) = self.children.get_mut(child) else { return Ok(()) };
        child.pushed = true;
        child.push(value).map_err(|why| format!("{}: {why}", child.name).into())
    }

    /// How many bytes its texts and bytes take.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |child: &Child| match &child.values {
            Values::Text(values) | Values::Binary(values) => values.bytes(),
            _ => 0,
        };
        self.children.iter().map(bytes).sum()
    }

    pub(super) fn finish(self, rows: usize) -> std::result::Result<ArrayRef, Unfinished> {
        let children = self.children.into_iter().zip(&self.fields);
        let children = children.map(|(child, field)| child.finish(field, rows)).collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new(StructArray::try_new_with_length(self.fields.clone(), children, None, rows)?))
    }
}

impl Child {
    /// Appends what the manifest has, which may be of a type that was promoted since (table spec, "Schema Evolution").
    fn push(&mut self, value: Option<Primitive<'_>>) -> Result<()> {
        let value = match value {
            Some(value) => value,
            None => return self.values.push_null(),
        };
        let wrong = || Corrupt::from(format!("{} is no value of {:?}", value.type_name(), self.result));
        match (&mut self.values, value) {
            (Values::Boolean(values), Primitive::Boolean(value)) => values.append_value(value),
            (Values::Int(values), Primitive::Integer(value)) => values.push(Some(int(value)?)),
            (Values::Date(values), Primitive::Integer(value)) => values.push(Some(int(value)?)),
            (Values::Long(values), Primitive::Integer(value)) => values.push(Some(value)),
            (Values::Time(values), Primitive::Integer(value)) => values.push(Some(value)),
            (Values::Micros(values), Primitive::Integer(value)) => values.push(Some(value)),
            (Values::Nanos(values), Primitive::Integer(value)) => values.push(Some(value)),
            (Values::Float(values), Primitive::Float(value)) => values.push(Some(value)),
            (Values::Double(values), Primitive::Double(value)) => values.push(Some(value)),
            (Values::Double(values), Primitive::Float(value)) => values.push(Some(f64::from(value))),
            (Values::Decimal(values), Primitive::Fixed(value) | Primitive::Bytes(value)) => {
                values.push(Some(decimal(value, self.result)?))
            }
            (Values::Text(values), value) => return push_text(values, value, self.result),
            (Values::Binary(values), Primitive::Bytes(value) | Primitive::Fixed(value)) => {
                return values.push(Some(value));
            }
            (Values::Fixed(values), Primitive::Fixed(value) | Primitive::Bytes(value)) => {
                values.append_value(value).map_err(|_| wrong_length(value.len(), self.result))?
            }
            (Values::Fixed(values), Primitive::Text(text)) if self.result == ResultType::Uuid => {
                let uuid = uuid::Uuid::try_parse_ascii(text).map_err(|_| wrong())?;
                values.append_value(uuid.as_bytes()).map_err(|_| wrong())?
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn finish(self, field: &Field, rows: usize) -> std::result::Result<ArrayRef, Unfinished> {
        if !self.pushed {
            return Ok(new_null_array(field.data_type(), rows));
        }
        let zone: Option<Arc<str>> = match field.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        Ok(match self.values {
            Values::Boolean(mut values) => Arc::new(values.finish()),
            Values::Int(values) => Arc::new(values.finish()),
            Values::Long(values) => Arc::new(values.finish()),
            Values::Float(values) => Arc::new(values.finish()),
            Values::Double(values) => Arc::new(values.finish()),
            Values::Decimal(values) => Arc::new(values.finish().with_data_type(field.data_type().clone())),
            Values::Date(values) => Arc::new(values.finish()),
            Values::Time(values) => Arc::new(values.finish()),
            Values::Micros(values) => Arc::new(values.finish().with_timezone_opt(zone)),
            Values::Nanos(values) => Arc::new(values.finish().with_timezone_opt(zone)),
            Values::Text(values) => {
                let text = values.finish_text().map_err(|why| Corrupt::from(format!("{}: {why}", self.name)))?;
                Arc::new(text)
            }
            Values::Binary(values) => Arc::new(values.finish_binary()?),
            Values::Fixed(mut values) => Arc::new(values.finish()),
        })
    }
}

impl Values {
    fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Int32 => Self::Int(Nullable::with_capacity(0)),
            DataType::Int64 => Self::Long(Nullable::with_capacity(0)),
            DataType::Float32 => Self::Float(Nullable::with_capacity(0)),
            DataType::Float64 => Self::Double(Nullable::with_capacity(0)),
            DataType::Decimal128(..) => Self::Decimal(Nullable::with_capacity(0)),
            DataType::Date32 => Self::Date(Nullable::with_capacity(0)),
            DataType::Time64(_) => Self::Time(Nullable::with_capacity(0)),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Self::Nanos(Nullable::with_capacity(0)),
            DataType::Timestamp(..) => Self::Micros(Nullable::with_capacity(0)),
            DataType::FixedSizeBinary(size) => Self::Fixed(FixedSizeBinaryBuilder::new(*size)),
            DataType::Binary => Self::Binary(Slices::with_capacity(0)),
            _ => Self::Text(Slices::with_capacity(0)),
        }
    }

    fn push_null(&mut self) -> Result<()> {
        match self {
            Self::Boolean(values) => values.append_null(),
            Self::Int(values) => values.push(None),
            Self::Long(values) => values.push(None),
            Self::Float(values) => values.push(None),
            Self::Double(values) => values.push(None),
            Self::Decimal(values) => values.push(None),
            Self::Date(values) => values.push(None),
            Self::Time(values) => values.push(None),
            Self::Micros(values) => values.push(None),
            Self::Nanos(values) => values.push(None),
            Self::Text(values) | Self::Binary(values) => return values.push(None),
            Self::Fixed(values) => values.append_null(),
        }
        Ok(())
    }
}

/// Text as it is; of a type that we don't know, whatever the manifest has, as text.
fn push_text(values: &mut Slices, value: Primitive<'_>, result: ResultType) -> Result<()> {
    if let Primitive::Text(text) = value {
        return values.push(Some(text));
    }
    if result != ResultType::Unknown {
        return Err(format!("{} is no value of {result:?}", value.type_name()).into());
    }
    let shown = match value {
        Primitive::Boolean(value) => value.to_string(),
        Primitive::Integer(value) => value.to_string(),
        Primitive::Float(value) => value.to_string(),
        Primitive::Double(value) => value.to_string(),
        Primitive::Bytes(bytes) | Primitive::Fixed(bytes) => bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|half| char::from(b"0123456789abcdef"[half as usize]))
            .collect(),
        Primitive::Text(_) => String::new(),
    };
    values.push(Some(shown.as_bytes()))
}

#[cold]
fn wrong_length(length: usize, result: ResultType) -> Corrupt {
    format!("{length} bytes are no value of {result:?}").into()
}

/// The unscaled value of a decimal: big-endian, in two's complement (table spec, "Avro").
fn decimal(bytes: &[u8], result: ResultType) -> Result<i128> {
    let ResultType::Decimal { precision, .. } = result else { return Err("it is no decimal".into()) };
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let sign = if negative { 0xff } else { 0 };
    let (ahead, low) = bytes.split_at(bytes.len().saturating_sub(size_of::<i128>()));
    let mut value = [sign; size_of::<i128>()];
    value[size_of::<i128>() - low.len()..].copy_from_slice(low);
    let value = i128::from_be_bytes(value);
    // What is longer must repeat the sign.
    let fits = ahead.iter().all(|byte| *byte == sign) && (value < 0) == negative;
    match fits && !bytes.is_empty() && value.unsigned_abs() < 10u128.pow(u32::from(precision)) {
        true => Ok(value),
        false => Err(format!("a decimal of {} bytes has more than {precision} digits", bytes.len()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_big_endian_of_any_length() {
        let nine = ResultType::Decimal { precision: 9, scale: 2 };
        for (bytes, value) in [
            (&[0][..], 0),
            (&[0xff], -1),
            (&[0x7f], 127),
            (&[0x80], -128),
            (&[0x00, 0x80], 128),
            (&[0xff; 40], -1),
            (&[0x3b, 0x9a, 0xc9, 0xff], 999_999_999),
            (&[0xc4, 0x65, 0x36, 0x01], -999_999_999),
        ] {
            assert_eq!(decimal(bytes, nine).unwrap(), value, "{bytes:x?}");
        }
        let longest = [&[0; 4][..], &[0xff; 16]].concat();
        for bytes in [&[][..], &[0x3b, 0x9a, 0xca, 0x00], &[0x7f; 16], &[0x80; 17], &[0x01; 17], &longest] {
            assert!(decimal(bytes, nine).is_err(), "{bytes:x?}");
        }
        let most = ResultType::Decimal { precision: 38, scale: 0 };
        let value = 10i128.pow(38) - 1;
        assert_eq!(decimal(&value.to_be_bytes(), most).unwrap(), value);
        assert!(decimal(&(value + 1).to_be_bytes(), most).is_err());
    }
}
