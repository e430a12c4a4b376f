//! Entries as JSON: ours, and those that apache-avro reads from the same file.

use std::collections::HashMap;

use apache_avro::types::Value;
use datafusion::arrow::array::{Array, AsArray, RecordBatch, StructArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use serde_json::{Map, Value as Json, json};

use super::fields::DATA_FILE;
use super::{EntryField, EntryFields, Inherited};
use crate::scan::avro::AvroFile;
use crate::scan::testing::{field, oracle_records, text_field};
use crate::table::PartitionType;

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The rows of batches, each with one value for each column, nested ones as objects.
pub(super) fn rows_of(batches: &[RecordBatch]) -> Vec<Json> {
    let rows = |batch: &RecordBatch| {
        let table = StructArray::from(batch.clone());
        (0..batch.num_rows()).map(|row| object(&table, row)).collect::<Vec<_>>()
    };
    batches.iter().flat_map(rows).collect()
}

fn object(array: &StructArray, row: usize) -> Json {
    let fields = array.fields().iter().zip(array.columns());
    Json::Object(fields.map(|(field, column)| (field.name().clone(), value(column, row))).collect())
}

fn value(array: &dyn Array, row: usize) -> Json {
    if array.is_null(row) {
        return Json::Null;
    }
    let items = |items: &dyn Array| (0..items.len()).map(|item| value(items, item)).collect::<Vec<_>>();
    match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Int32 => json!(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => json!(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => json!(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(..) => json!(array.as_primitive::<Decimal128Type>().value(row).to_string()),
        DataType::Date32 => json!(array.as_primitive::<Date32Type>().value(row)),
        DataType::Time64(_) => json!(array.as_primitive::<Time64MicrosecondType>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            json!(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Timestamp(..) => json!(array.as_primitive::<TimestampNanosecondType>().value(row)),
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Binary => json!(hex(array.as_binary::<i32>().value(row))),
        DataType::FixedSizeBinary(_) => json!(hex(array.as_fixed_size_binary().value(row))),
        DataType::List(_) => Json::Array(items(&array.as_list::<i32>().value(row))),
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (items(entries.column(0)), items(entries.column(1)));
            Json::Array(keys.into_iter().zip(values).map(|(key, value)| json!([key, value])).collect())
        }
        DataType::Struct(_) => object(array.as_struct(), row),
        other => panic!("a column of {other}"),
    }
}

/// The entries of a manifest as apache-avro reads them, with what they inherit, for a table of this partition type.
pub(super) fn expected_rows(
    file: &[u8],
    partition: &PartitionType,
    inherited: Inherited,
    spec_id: i32,
    live_only: bool,
) -> Vec<Json> {
    rows_of_records(&oracle_records(file), &partition_names(file), partition, inherited, spec_id, live_only)
}

/// The same of records that were read before. `names`: those of the manifest's partition fields, by id.
pub(super) fn rows_of_records(
    records: &[Value],
    names: &HashMap<i64, String>,
    partition: &PartitionType,
    inherited: Inherited,
    spec_id: i32,
    live_only: bool,
) -> Vec<Json> {
    let mut next_row = inherited.first_row_id;
    let mut rows = vec![];
    for record in records {
        let mut row = Map::new();
        let own = |name: &str| field(record, name).map_or(Json::Null, avro_value);
        let status = own("status");
        let is_added = status == json!(1);
        let or = |own: Json, other: Option<i64>| if own.is_null() { json!(other) } else { own };
        let sequence = inherited.sequence_number.unwrap_or(0);
        let sequence = (is_added || sequence == 0).then_some(sequence);
        row.insert("snapshot_id".into(), or(own("snapshot_id"), inherited.added_snapshot_id));
        row.insert("sequence_number".into(), or(own("sequence_number"), sequence));
        row.insert("file_sequence_number".into(), or(own("file_sequence_number"), sequence));
        let file = field(record, DATA_FILE).unwrap();
        let mut data_file = Map::new();
        for wanted in EntryField::ALL.into_iter().filter(|wanted| wanted.is_of_file()) {
            let own = field(file, wanted.name());
            let value = match wanted {
                EntryField::SpecId => json!(spec_id),
                EntryField::Content => or(own.map_or(Json::Null, avro_value), Some(0)),
                // Java tells formats in upper case.
                EntryField::FileFormat => json!(text_field(file, "file_format").unwrap().to_ascii_uppercase()),
                EntryField::Partition if partition.is_empty() => continue,
                EntryField::Partition => united(own, names, partition),
                _ => own.map_or(Json::Null, avro_value),
            };
            data_file.insert(wanted.name().into(), value);
        }
        let row_id = match data_file["first_row_id"].as_i64() {
            _ if inherited.first_row_id.is_none() => None,
            None if status != json!(2) => {
                let first = next_row;
                next_row = next_row.map(|next| next + data_file["record_count"].as_i64().unwrap());
                first
            }
            own => own,
        };
        data_file.insert("first_row_id".into(), json!(row_id));
        let is_deleted = status == json!(2);
        row.insert("status".into(), status);
        row.insert(DATA_FILE.into(), Json::Object(data_file));
        if !live_only || !is_deleted {
            rows.push(Json::Object(row));
        }
    }
    rows
}

fn united(own: Option<&Value>, names: &HashMap<i64, String>, partition: &PartitionType) -> Json {
    let value = |wanted: &crate::table::PartitionTypeField| {
        let name = names.get(&i64::from(wanted.id));
        let value = name.zip(own).and_then(|(name, own)| field(own, name));
        (wanted.name.clone(), value.map_or(Json::Null, avro_value))
    };
    Json::Object(partition.fields().iter().map(value).collect())
}

fn avro_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Union(_, value) => avro_value(value),
        Value::Boolean(value) => json!(value),
        Value::Int(value) | Value::Date(value) => json!(value),
        Value::Long(value) | Value::TimeMicros(value) => json!(value),
        Value::TimestampMicros(value) | Value::TimestampNanos(value) => json!(value),
        Value::LocalTimestampMicros(value) | Value::LocalTimestampNanos(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::Bytes(bytes) | Value::Fixed(_, bytes) => json!(hex(bytes)),
        Value::Uuid(uuid) => json!(hex(uuid.as_bytes())),
        Value::Decimal(decimal) => {
            let bytes: Vec<u8> = decimal.clone().try_into().unwrap();
            let value = bytes.iter().skip(1).fold(i128::from(bytes[0] as i8), |sum, byte| sum << 8 | i128::from(*byte));
            json!(value.to_string())
        }
        Value::String(text) => json!(text),
        Value::Array(items) => Json::Array(items.iter().map(avro_value).collect()),
        Value::Record(fields) if fields.len() == 2 && fields[0].0 == "key" => {
            json!([avro_value(&fields[0].1), avro_value(&fields[1].1)])
        }
        other => panic!("{other:?}"),
    }
}

/// The names of a manifest's partition fields, by id.
pub(super) fn partition_names(file: &[u8]) -> HashMap<i64, String> {
    let file = AvroFile::<_, 0>::open(file, &[]).unwrap();
    let schema: Json = serde_json::from_str(file.layout().schema_text()).unwrap();
    let named = |fields: &Json, name: &str| {
        let field = fields.as_array().unwrap().iter().find(|field| field["name"] == name).unwrap();
        field["type"]["fields"].clone()
    };
    let partition = named(&named(&schema["fields"], DATA_FILE), "partition");
    let fields = partition.as_array().unwrap().iter();
    fields.map(|field| (field["field-id"].as_i64().unwrap(), field["name"].as_str().unwrap().into())).collect()
}

/// A row with only these fields.
pub(super) fn project(row: &Json, fields: EntryFields) -> Json {
    let keep = |of_file: bool, from: &Json| -> Map<String, Json> {
        let kept = fields.iter().filter(|field| field.is_of_file() == of_file);
        kept.filter_map(|field| Some((field.name().into(), from.get(field.name())?.clone()))).collect()
    };
    let (mut top, of_file) = (keep(false, row), keep(true, &row[DATA_FILE]));
    if !of_file.is_empty() {
        top.insert(DATA_FILE.into(), Json::Object(of_file));
    }
    Json::Object(top)
}
