//! Manifests for the tests: all fields, partitions of all types.

use apache_avro::types::Value;

use crate::scan::entries::EntryField;
use crate::scan::testing::file_of;
use crate::table::{PartitionType, ResultType};

/// A field that may be null.
pub(in crate::scan::entries) fn optional(name: &str, id: i64, avro: &str) -> String {
    format!(r#"{{"name":"{name}","type":["null",{avro}],"default":null,"field-id":{id}}}"#)
}

pub(in crate::scan::entries) fn required(name: &str, id: i64, avro: &str) -> String {
    format!(r#"{{"name":"{name}","type":{avro},"field-id":{id}}}"#)
}

pub(in crate::scan::entries) fn map_type(key: i64, value: &str) -> String {
    let (name, value_id) = (format!("k{key}_v{}", key + 1), key + 1);
    format!(
        r#"{{"type":"array","logicalType":"map","items":{{"type":"record","name":"{name}","fields":[
            {{"name":"key","type":"int","field-id":{key}}},{{"name":"value","type":"{value}","field-id":{value_id}}}]}}}}"#
    )
}

pub(in crate::scan::entries) fn record_type(name: &str, fields: &[String]) -> String {
    format!(r#"{{"type":"record","name":"{name}","fields":[{}]}}"#, fields.join(","))
}

/// A manifest's schema, of an entry's own fields and those of its file.
pub(in crate::scan::entries) fn schema_of(top: &[String], file: &[String]) -> String {
    let data_file = required("data_file", 2, &record_type("r2", file));
    record_type("manifest_entry", &[top, &[data_file]].concat())
}

/// Partition fields of all types.
pub(in crate::scan::entries) const PARTITION: [(i64, &str, &str); 16] = [
    (1000, "boolean", r#""boolean""#),
    (1001, "int", r#""int""#),
    (1002, "long", r#""long""#),
    (1003, "float", r#""float""#),
    (1004, "double", r#""double""#),
    (1005, "decimal", r#"{"type":"fixed","name":"d5","size":5,"logicalType":"decimal","precision":9,"scale":2}"#),
    (1006, "date", r#"{"type":"int","logicalType":"date"}"#),
    (1007, "time", r#"{"type":"long","logicalType":"time-micros"}"#),
    (1008, "timestamp", r#"{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":false}"#),
    (1009, "timestamptz", r#"{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":true}"#),
    (1010, "timestamp_ns", r#"{"type":"long","logicalType":"timestamp-nanos"}"#),
    (1011, "string", r#""string""#),
    (1012, "uuid", r#"{"type":"fixed","name":"uuid_fixed","size":16,"logicalType":"uuid"}"#),
    (1013, "fixed", r#"{"type":"fixed","name":"f3","size":3}"#),
    (1014, "binary", r#""bytes""#),
    (1015, "unknown", r#""long""#),
];

/// The type of these.
pub(in crate::scan::entries) fn partition_type() -> PartitionType {
    let timestamp = |nanos, zoned| ResultType::Timestamp { nanos, zoned };
    PartitionType::new([
        (1000, "boolean", ResultType::Boolean),
        (1001, "int", ResultType::Int),
        (1002, "long", ResultType::Long),
        (1003, "float", ResultType::Float),
        (1004, "double", ResultType::Double),
        (1005, "decimal", ResultType::Decimal { precision: 9, scale: 2 }),
        (1006, "date", ResultType::Date),
        (1007, "time", ResultType::Time),
        (1008, "timestamp", timestamp(false, false)),
        (1009, "timestamptz", timestamp(false, true)),
        (1010, "timestamp_ns", timestamp(true, false)),
        (1011, "string", ResultType::String),
        (1012, "uuid", ResultType::Uuid),
        (1013, "fixed", ResultType::Fixed(3)),
        (1014, "binary", ResultType::Binary),
    ])
}

pub(in crate::scan::entries) fn top_fields() -> Vec<String> {
    vec![
        required("status", 0, r#""int""#),
        optional("snapshot_id", 1, r#""long""#),
        optional("sequence_number", 3, r#""long""#),
        optional("file_sequence_number", 4, r#""long""#),
    ]
}

pub(in crate::scan::entries) fn file_fields() -> Vec<String> {
    let partition: Vec<String> = PARTITION.iter().map(|(id, name, avro)| optional(name, *id, avro)).collect();
    vec![
        required("content", 134, r#""int""#),
        required("file_path", 100, r#""string""#),
        required("file_format", 101, r#""string""#),
        required("partition", 102, &record_type("r102", &partition)),
        required("record_count", 103, r#""long""#),
        required("file_size_in_bytes", 104, r#""long""#),
        optional("column_sizes", 108, &map_type(117, "long")),
        optional("value_counts", 109, &map_type(119, "long")),
        optional("null_value_counts", 110, &map_type(121, "long")),
        optional("nan_value_counts", 137, &map_type(138, "long")),
        optional("lower_bounds", 125, &map_type(126, "bytes")),
        optional("upper_bounds", 128, &map_type(129, "bytes")),
        optional("key_metadata", 131, r#""bytes""#),
        optional("split_offsets", 132, r#"{"type":"array","items":"long","element-id":133}"#),
        optional("equality_ids", 135, r#"{"type":"array","items":"int","element-id":136}"#),
        optional("sort_order_id", 140, r#""int""#),
        optional("first_row_id", 142, r#""long""#),
        optional("referenced_data_file", 143, r#""string""#),
        optional("content_offset", 144, r#""long""#),
        optional("content_size_in_bytes", 145, r#""long""#),
    ]
}

pub(in crate::scan::entries) fn record(fields: Vec<(&str, Value)>) -> Value {
    Value::Record(fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

/// The value or the null of a field that [`optional`] made.
pub(in crate::scan::entries) fn nullable(value: Option<Value>) -> Value {
    match value {
        None => Value::Union(0, Box::new(Value::Null)),
        Some(value) => Value::Union(1, Box::new(value)),
    }
}

pub(in crate::scan::entries) fn some(value: Value) -> Value {
    nullable(Some(value))
}

pub(in crate::scan::entries) fn map(entries: &[(i32, Value)]) -> Value {
    let entry = |(key, value): &(i32, Value)| record(vec![("key", Value::Int(*key)), ("value", value.clone())]);
    Value::Array(entries.iter().map(entry).collect())
}

/// The partition of the entry that has everything.
pub(in crate::scan::entries) fn full_partition() -> Vec<(&'static str, Value)> {
    let decimal = apache_avro::Decimal::from((-12_345_i64).to_be_bytes()[3..].to_vec());
    vec![
        ("boolean", some(Value::Boolean(true))),
        ("int", some(Value::Int(-5))),
        ("long", some(Value::Long(i64::MIN))),
        ("float", some(Value::Float(1.5))),
        ("double", some(Value::Double(-2.25))),
        ("decimal", some(Value::Decimal(decimal))),
        ("date", some(Value::Date(19_000))),
        ("time", some(Value::TimeMicros(1))),
        ("timestamp", some(Value::TimestampMicros(2))),
        ("timestamptz", some(Value::TimestampMicros(3))),
        ("timestamp_ns", some(Value::TimestampNanos(4))),
        ("string", some(Value::String("é".into()))),
        ("uuid", some(Value::Uuid(UUID.parse().unwrap()))),
        ("fixed", some(Value::Fixed(3, vec![1, 2, 3]))),
        ("binary", some(Value::Bytes(vec![0xff]))),
        ("unknown", some(Value::Long(7))),
    ]
}

pub(in crate::scan::entries) const UUID: &str = "f79c3e09-677c-4bbd-a479-3f349cb785e7";

/// The same with everything null.
pub(in crate::scan::entries) fn no_partition() -> Vec<(&'static str, Value)> {
    full_partition().into_iter().map(|(name, _)| (name, nullable(None))).collect()
}

pub(in crate::scan::entries) fn full_entry() -> Value {
    let longs = |value| some(map(&[(1, Value::Long(value)), (300, Value::Long(i64::MAX))]));
    let bounds = |value: &[u8]| some(map(&[(1, Value::Bytes(value.to_vec())), (2, Value::Bytes(vec![]))]));
    let file = vec![
        ("content", Value::Int(1)),
        ("file_path", Value::String("s3://b/1.puffin".into())),
        ("file_format", Value::String("puffin".into())),
        ("partition", record(full_partition())),
        ("record_count", Value::Long(10)),
        ("file_size_in_bytes", Value::Long(20)),
        ("column_sizes", longs(1)),
        ("value_counts", longs(2)),
        ("null_value_counts", longs(3)),
        ("nan_value_counts", some(map(&[]))),
        ("lower_bounds", bounds(b"a")),
        ("upper_bounds", bounds(&[0xff; 100])),
        ("key_metadata", some(Value::Bytes(vec![9]))),
        ("split_offsets", some(Value::Array(vec![Value::Long(4), Value::Long(1 << 40)]))),
        ("equality_ids", some(Value::Array(vec![Value::Int(3), Value::Int(-1)]))),
        ("sort_order_id", some(Value::Int(0))),
        ("first_row_id", some(Value::Long(600))),
        ("referenced_data_file", some(Value::String("s3://b/0.parquet".into()))),
        ("content_offset", some(Value::Long(11))),
        ("content_size_in_bytes", some(Value::Long(12))),
    ];
    record(vec![
        ("status", Value::Int(0)),
        ("snapshot_id", some(Value::Long(5))),
        ("sequence_number", some(Value::Long(6))),
        ("file_sequence_number", some(Value::Long(7))),
        ("data_file", record(file)),
    ])
}

/// An entry whose optional fields are all null.
pub(in crate::scan::entries) fn bare_entry(status: i32, record_count: i64, first_row_id: Option<i64>) -> Value {
    let null = || nullable(None);
    let mut file = vec![
        ("content", Value::Int(0)),
        ("file_path", Value::String("s3://b/2.parquet".into())),
        ("file_format", Value::String("PARQUET".into())),
        ("partition", record(no_partition())),
        ("record_count", Value::Long(record_count)),
        ("file_size_in_bytes", Value::Long(21)),
    ];
    file.extend(EntryField::ALL[11..].iter().map(|field| match field {
        EntryField::FirstRowId => (field.name(), nullable(first_row_id.map(Value::Long))),
        _ => (field.name(), null()),
    }));
    record(vec![
        ("status", Value::Int(status)),
        ("snapshot_id", null()),
        ("sequence_number", null()),
        ("file_sequence_number", null()),
        ("data_file", record(file)),
    ])
}

pub(in crate::scan::entries) fn manifest_of(codec: &str, per_block: usize, entries: &[Value]) -> Vec<u8> {
    file_of(&schema_of(&top_fields(), &file_fields()), codec, per_block, entries)
}

/// A manifest with an entry that has everything, and two that have nothing but what they must.
pub(in crate::scan::entries) fn manifest(codec: &str, per_block: usize) -> Vec<u8> {
    manifest_of(codec, per_block, &[full_entry(), bare_entry(1, 5, None), bare_entry(2, 6, None)])
}
