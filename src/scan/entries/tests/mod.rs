mod faults;
pub(super) mod fixture;
mod partitions;

use std::sync::Arc;

use apache_avro::types::Value;
use datafusion::arrow::array::RecordBatch;
use serde_json::{Value as Json, json};

use self::fixture::*;
use super::oracle::{expected_rows, hex, project, rows_of};
use super::*;
use crate::error::{Error, Result};
use crate::scan::testing::*;
use crate::table::{PartitionType, ResultType};

/// Decodes a whole manifest.
pub(super) fn decode(
    file: &[u8],
    partition: &PartitionType,
    fields: EntryFields,
    inherited: Inherited,
    live_only: bool,
) -> Result<Vec<RecordBatch>> {
    let shape = Arc::new(EntryShape::new(partition.clone(), fields, live_only));
    let file = EntryFile::open_like("m.avro", file, &shape, inherited, [])?;
    let mut batches = vec![];
    file.decode(file.blocks(), |batch, _| {
        batches.push(batch);
        Ok(())
    })?;
    Ok(batches)
}

/// The rows of a manifest with all fields, in a table of this partition type.
fn rows_in(file: &[u8], partition: &PartitionType) -> Vec<Json> {
    rows_of(&decode(file, partition, EntryFields::ALL, Inherited::default(), false).unwrap())
}

fn error_in(file: &[u8], partition: &PartitionType) -> String {
    match decode(file, partition, EntryFields::ALL, Inherited::default(), false) {
        Err(Error::Malformed { what: "a manifest", path, why }) if path == "m.avro" => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_entry_comes_with_all_that_it_has() {
    let with_unknown = [(1015, "unknown", ResultType::Unknown)];
    let fields = partition_type().fields().iter().map(|field| field.result).collect::<Vec<_>>();
    let named = PARTITION.iter().zip(fields).map(|((id, name, _), result)| (*id as i32, *name, result));
    let partition = PartitionType::new(named.chain(with_unknown));
    let rows = rows_in(&manifest("deflate", 10), &partition);
    let expected = json!({
        "status": 0, "snapshot_id": 5, "sequence_number": 6, "file_sequence_number": 7,
        "data_file": {
            "content": 1, "file_path": "s3://b/1.puffin", "file_format": "PUFFIN", "spec_id": 0,
            "partition": {
                "boolean": true, "int": -5, "long": i64::MIN, "float": 1.5, "double": -2.25, "decimal": "-12345",
                "date": 19_000, "time": 1, "timestamp": 2, "timestamptz": 3, "timestamp_ns": 4, "string": "é",
                "uuid": UUID.replace('-', ""), "fixed": "010203", "binary": "ff", "unknown": "7"
            },
            "record_count": 10, "file_size_in_bytes": 20,
            "column_sizes": [[1, 1], [300, i64::MAX]], "value_counts": [[1, 2], [300, i64::MAX]],
            "null_value_counts": [[1, 3], [300, i64::MAX]], "nan_value_counts": [],
            "lower_bounds": [[1, "61"], [2, ""]], "upper_bounds": [[1, hex(&[0xff; 100])], [2, ""]],
            "key_metadata": "09", "split_offsets": [4, 1u64 << 40], "equality_ids": [3, -1], "sort_order_id": 0,
            "first_row_id": null, "referenced_data_file": "s3://b/0.parquet",
            "content_offset": 11, "content_size_in_bytes": 12
        }
    });
    assert_eq!(rows[0], expected);
    let null = Json::Null;
    assert!(rows[1]["data_file"]["partition"].as_object().unwrap().values().all(|value| *value == null));
    for field in &EntryField::ALL[11..] {
        assert_eq!(rows[1]["data_file"][field.name()], null, "{}", field.name());
    }
}

#[test]
fn entries_come_in_order_from_every_codec_and_any_number_of_blocks() {
    let expected = expected_rows(&manifest("deflate", 1), &partition_type(), Inherited::default(), 0, false);
    assert_eq!(expected.len(), 3);
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        for per_block in [1, 2, 10] {
            assert_eq!(rows_in(&manifest(codec, per_block), &partition_type()), expected, "{codec}, {per_block}");
        }
    }
    assert!(rows_in(&manifest_of("deflate", 1, &[]), &partition_type()).is_empty());
}

#[test]
fn the_columns_are_those_of_the_metadata_table() {
    let names = |fields: &datafusion::arrow::datatypes::Fields| {
        fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>()
    };
    let schema = entry_schema(&partition_type());
    let top = ["status", "snapshot_id", "sequence_number", "file_sequence_number", "data_file"];
    assert_eq!(names(schema.fields()), top);
    let of_file = |schema: &datafusion::arrow::datatypes::Schema| match schema.field(4).data_type() {
        datafusion::arrow::datatypes::DataType::Struct(fields) => names(fields),
        other => panic!("{other}"),
    };
    let all: Vec<_> = EntryField::ALL[4..].iter().map(|field| field.name()).collect();
    assert_eq!(of_file(&schema), all);
    let unpartitioned = entry_schema(&PartitionType::default());
    assert_eq!(of_file(&unpartitioned), all.iter().copied().filter(|name| *name != "partition").collect::<Vec<_>>());
    let none = decode(&manifest("null", 2), &partition_type(), EntryFields::default(), Inherited::default(), false);
    let none = none.unwrap();
    assert_eq!(none.iter().map(|batch| (batch.num_columns(), batch.num_rows())).collect::<Vec<_>>(), [(0, 3)]);
}

#[test]
fn what_is_not_wanted_may_be_absent_or_anything() {
    // No path, a column of sizes that is none, a record count that is text.
    let file = [
        optional("column_sizes", 108, r#""double""#),
        required("record_count", 103, r#""string""#),
        required("content", 134, r#""int""#),
    ];
    let schema = schema_of(&top_fields()[..1], &file);
    let data = [&long(2)[..], &[0], &bytes(b"x"), &long(2)].concat();
    let file = container(&schema, "null", &[(1, &data)]);
    for (fields, expected) in [
        (EntryFields::default(), json!({})),
        (EntryFields::default().with(EntryField::Status), json!({"status": 2})),
        (EntryFields::default().with(EntryField::Content), json!({"data_file": {"content": 2}})),
    ] {
        let rows = rows_of(&decode(&file, &partition_type(), fields, Inherited::default(), false).unwrap());
        assert_eq!(rows, [expected]);
    }
    for (field, why) in [
        (EntryField::FilePath, "its schema has no field file_path (id 100)"),
        (EntryField::ColumnSizes, "field column_sizes: it is not a map from int to long"),
        (EntryField::RecordCount, "its field record_count (id 103) is of type string, not int or long"),
    ] {
        let fields = EntryFields::default().with(field);
        let error = decode(&file, &partition_type(), fields, Inherited::default(), false).unwrap_err().to_string();
        assert_eq!(error, format!("m.avro can't be read as a manifest: {why}"));
    }
}

#[test]
fn deleted_entries_are_left_out_on_request_but_counted() {
    let shape = Arc::new(EntryShape::new(partition_type(), EntryFields::ALL, true));
    let content = manifest("deflate", 2);
    let file = EntryFile::open_like("m", &content, &shape, Inherited::default(), []).unwrap();
    let mut rows = vec![];
    let counts = file.decode(file.blocks(), |batch, _| {
        rows.extend(rows_of(&[batch]));
        Ok(())
    });
    assert_eq!(counts.unwrap(), [1, 1, 1]);
    assert_eq!(rows, expected_rows(&content, &partition_type(), Inherited::default(), 0, true));
    assert_eq!(rows.len(), 2);
}

/// What each entry has of these fields.
fn inherited_values(entries: &[Value], inherited: Inherited, fields: [EntryField; 2]) -> Vec<[Option<i64>; 2]> {
    let file = manifest_of("deflate", 2, entries);
    let wanted = EntryFields::from_iter(fields);
    let rows = rows_of(&decode(&file, &partition_type(), wanted, inherited, false).unwrap());
    let all = expected_rows(&file, &partition_type(), inherited, inherited.partition_spec_id.unwrap_or(0), false);
    assert_eq!(rows, all.iter().map(|row| project(row, wanted)).collect::<Vec<_>>(), "the oracle's");
    let value = |row: &Json, field: EntryField| match field.is_of_file() {
        true => row["data_file"][field.name()].as_i64(),
        false => row[field.name()].as_i64(),
    };
    rows.iter().map(|row| fields.map(|field| value(row, field))).collect()
}

#[test]
fn sequence_numbers_and_snapshots_are_inherited_as_the_spec_says() {
    use EntryField::{FileSequenceNumber, SequenceNumber, SnapshotId};
    let entries = [full_entry(), bare_entry(1, 1, None), bare_entry(0, 1, None), bare_entry(2, 1, None)];
    let inherited = Inherited { added_snapshot_id: Some(77), sequence_number: Some(9), ..Inherited::default() };
    // Only added entries inherit sequence numbers; any inherits the snapshot.
    assert_eq!(
        inherited_values(&entries, inherited, [SequenceNumber, SnapshotId]),
        [[Some(6), Some(5)], [Some(9), Some(77)], [None, Some(77)], [None, Some(77)]]
    );
    assert_eq!(
        inherited_values(&entries, inherited, [FileSequenceNumber, SnapshotId]),
        [[Some(7), Some(5)], [Some(9), Some(77)], [None, Some(77)], [None, Some(77)]]
    );
    // All files of v1 have 0.
    for v1 in [Some(0), None] {
        let inherited = Inherited { sequence_number: v1, ..Inherited::default() };
        assert_eq!(
            inherited_values(&entries, inherited, [SequenceNumber, SnapshotId]),
            [[Some(6), Some(5)], [Some(0), None], [Some(0), None], [Some(0), None]]
        );
    }
}

#[test]
fn row_ids_go_on_after_the_rows_of_live_files_that_had_none() {
    use EntryField::{FirstRowId, RecordCount};
    let entries = [
        bare_entry(1, 10, None),
        bare_entry(2, 100, None),
        bare_entry(0, 20, Some(3)),
        bare_entry(0, 0, None),
        bare_entry(1, 7, None),
        bare_entry(2, 5, Some(8)),
        bare_entry(1, 1, None),
    ];
    let row_ids = |first_row_id| {
        let inherited = Inherited { first_row_id, ..Inherited::default() };
        let values = inherited_values(&entries, inherited, [FirstRowId, RecordCount]);
        values.into_iter().map(|[row_id, _]| row_id).collect::<Vec<_>>()
    };
    assert_eq!(row_ids(Some(1000)), [Some(1000), None, Some(3), Some(1010), Some(1010), Some(8), Some(1017)]);
    assert_eq!(row_ids(None), [None; 7]);

    // The counts of rows are read for this even if nobody wants them.
    let inherited = Inherited { first_row_id: Some(1000), ..Inherited::default() };
    let alone = EntryFields::default().with(FirstRowId);
    let file = manifest_of("deflate", 1, &entries);
    let rows = rows_of(&decode(&file, &partition_type(), alone, inherited, true).unwrap());
    let ids: Vec<_> = rows.iter().map(|row| row["data_file"]["first_row_id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [1000, 3, 1010, 1010, 1017]);
    // They follow from each other, so such a manifest is not cut into parts.
    let parts = |inherited, fields| {
        let shape = Arc::new(EntryShape::new(partition_type(), fields, false));
        EntryFile::open_like("m", &file[..], &shape, inherited, []).unwrap().parts(1).len()
    };
    assert_eq!((parts(inherited, alone), parts(inherited, EntryFields::default())), (1, 7));
    assert_eq!(parts(Inherited::default(), alone), 7);

    for entries in [[bare_entry(1, i64::MAX, None), bare_entry(1, 1, None)], [bare_entry(1, -1, None), full_entry()]] {
        let file = manifest_of("null", 1, &entries);
        let error = decode(&file, &partition_type(), alone, inherited, false).unwrap_err().to_string();
        assert!(error.contains("field first_row_id: ") && error.contains("rows come after row 1000"), "{error}");
    }
}

/// What the first writers of v1 wrote, and no more.
#[test]
fn fields_that_are_absent_are_null() {
    let file = [
        required("file_path", 100, r#""string""#),
        required("file_format", 101, r#""string""#),
        required("partition", 102, &record_type("r102", &[])),
        required("record_count", 103, r#""long""#),
        required("file_size_in_bytes", 104, r#""long""#),
        required("block_size_in_bytes", 105, r#""long""#),
    ];
    let schema = schema_of(&[required("status", 0, r#""int""#), required("snapshot_id", 1, r#""long""#)], &file);
    let data = [long(1), long(5), bytes(b"/t/f"), bytes(b"parquet"), long(2), long(3), long(67)].concat();
    let rows = rows_in(&container(&schema, "deflate", &[(1, &data)]), &partition_type());
    let row = rows[0].as_object().unwrap();
    assert_eq!(row["data_file"]["file_format"], json!("PARQUET"));
    let null_in = |object: &Json| {
        let fields = object.as_object().unwrap().iter().filter(|(_, value)| value.is_null());
        fields.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(null_in(&rows[0]), Vec::<String>::new());
    assert_eq!((&row["snapshot_id"], &row["sequence_number"]), (&json!(5), &json!(0)));
    assert_eq!((&row["data_file"]["content"], &row["data_file"]["spec_id"]), (&json!(0), &json!(0)));
    assert_eq!(null_in(&row["data_file"]).len(), EntryField::ALL[11..].len());
    assert_eq!(null_in(&row["data_file"]["partition"]).len(), 15);
}

#[test]
fn batches_are_bounded_by_rows_and_by_bytes() {
    let schema = schema_of(&top_fields()[..1], &[required("key_metadata", 131, r#""bytes""#)]);
    let file = |entries: usize, size: usize| {
        let entry = [long(1), bytes(&vec![7; size])].concat();
        container(&schema, "null", &[(entries as i64, &entry.repeat(entries))])
    };
    let rows = |file: &[u8]| {
        let fields = EntryFields::default().with(EntryField::KeyMetadata);
        let batches = decode(file, &PartitionType::default(), fields, Inherited::default(), false).unwrap();
        batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
    };
    assert_eq!(rows(&file(20_000, 1)), [8192, 8192, 3616]);
    assert_eq!(rows(&file(10, 6 << 20)), [3, 3, 3, 1]);
    // An item takes a byte in the file and eight in a batch.
    let list = required("split_offsets", 132, r#"{"type":"array","items":"long"}"#);
    let schema = schema_of(&top_fields()[..1], &[list]);
    let file = |entries: usize, items: i64| {
        let entry = [long(1), long(items), vec![0; items as usize], long(0)].concat();
        container(&schema, "null", &[(entries as i64, &entry.repeat(entries))])
    };
    let fields = EntryFields::default().with(EntryField::SplitOffsets);
    let decode = |file: &[u8]| decode(file, &PartitionType::default(), fields, Inherited::default(), false);
    let batches = decode(&file(5, 1 << 20)).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 2, 1]);
    let error = decode(&file(1, (1 << 20) + 1)).unwrap_err().to_string();
    assert!(error.ends_with("field split_offsets: it has more than 1048576 items"), "{error}");
}
