//! Values in every encoding, and those that can't be read.

use datafusion::arrow::array::RecordBatch;
use serde_json::{Value as Json, json};

use super::fixture::*;
use super::*;

/// A manifest with one entry, of the required fields and one more of this type.
fn with_field(name: &str, id: i64, avro: &str, encoded: &[u8]) -> Vec<u8> {
    let file = [
        required("file_path", 100, r#""string""#),
        required("file_format", 101, r#""string""#),
        required("record_count", 103, r#""long""#),
        required("file_size_in_bytes", 104, r#""long""#),
        required(name, id, avro),
    ];
    let data = [&long(1)[..], &bytes(b"/t/f"), &bytes(b"PARQUET"), &long(2), &long(3), encoded].concat();
    container(&schema_of(&top_fields()[..1], &file), "null", &[(1, &data)])
}

#[test]
fn maps_and_lists_may_be_written_in_any_way_that_avro_knows() {
    // In two blocks, the first with its size.
    let items = [long(-2), long(4), long(1), long(10), long(2), long(20), long(1), long(3), long(30), long(0)].concat();
    let rows = rows_in(&with_field("column_sizes", 108, &map_type(117, "long"), &items), &PartitionType::default());
    assert_eq!(rows[0]["data_file"]["column_sizes"], json!([[1, 10], [2, 20], [3, 30]]));
    // The value first, under other names, perhaps null.
    let swapped = r#"{"type":"array","items":{"type":"record","name":"kv","fields":[
        {"name":"key","type":["null","bytes"],"field-id":127},{"name":"value","type":"long","field-id":126}]}}"#;
    let items = [long(2), long(1), bytes(b"a"), long(4), long(0), long(5), long(0)].concat();
    let rows = rows_in(&with_field("lower_bounds", 125, swapped, &items), &PartitionType::default());
    assert_eq!(rows[0]["data_file"]["lower_bounds"], json!([[4, "61"]]));
    let list = r#"{"type":"array","items":["null","int"]}"#;
    let items = [long(1), long(1), long(6), long(-1), long(2), long(1), long(7), long(0)].concat();
    let rows = rows_in(&with_field("split_offsets", 132, list, &items), &PartitionType::default());
    assert_eq!(rows[0]["data_file"]["split_offsets"], json!([6, 7]));
    // A map that is a union in a union of several kinds of null.
    let nullable = format!(r#"["null",{}]"#, map_type(117, "long"));
    let rows = rows_in(&with_field("column_sizes", 108, &nullable, &[0]), &PartitionType::default());
    assert_eq!(rows[0]["data_file"]["column_sizes"], Json::Null);
}

#[test]
fn values_that_do_not_fit_are_errors_with_the_field_s_name() {
    let huge = 1i64 << 40;
    let longs = |id| map_type(id, "long");
    let list = r#"{"type":"array","items":"long"}"#;
    for (name, id, avro, encoded, why) in [
        ("content", 134, r#""int""#.to_string(), long(3), "field content: 3 is not 0, 1 or 2"),
        ("sort_order_id", 140, r#""long""#.into(), long(huge), "field sort_order_id: 1099511627776 is no int"),
        (
            "column_sizes",
            108,
            longs(117).replace(r#""int""#, r#""long""#),
            [long(1), long(huge), long(0), long(0)].concat(),
            "field column_sizes: 1099511627776 is no int",
        ),
        (
            "equality_ids",
            135,
            list.into(),
            [long(1), long(huge), long(0)].concat(),
            "field equality_ids: 1099511627776 is no int",
        ),
        (
            "equality_ids",
            135,
            r#"{"type":"array","items":["null","long"]}"#.into(),
            [long(1), long(0), long(0)].concat(),
            "field equality_ids: an element is null",
        ),
        (
            "referenced_data_file",
            143,
            r#""string""#.into(),
            bytes(&[0xff]),
            "field referenced_data_file: a string is not UTF-8",
        ),
        ("column_sizes", 108, longs(126), long(0), "field column_sizes: it is not a map from int to long"),
        ("column_sizes", 108, map_type(117, "bytes"), long(0), "field column_sizes: it is not a map from int to long"),
        ("lower_bounds", 125, longs(126), long(0), "field lower_bounds: it is not a map from int to bytes"),
        (
            "lower_bounds",
            125,
            r#"{"type":"map","values":"bytes"}"#.into(),
            long(0),
            "field lower_bounds: it is not a map from int to bytes",
        ),
        ("split_offsets", 132, r#""long""#.into(), long(0), "field split_offsets: it is not a list of int or long"),
        (
            "split_offsets",
            132,
            r#"{"type":"array","items":"string"}"#.into(),
            long(0),
            "field split_offsets: it is not a list of int or long",
        ),
        ("partition", 102, r#""string""#.into(), long(0), "field partition: it is of type string, not record"),
        (
            "split_offsets",
            132,
            format!(r#"["null",{list},"long"]"#),
            long(0),
            "its field split_offsets (id 132) is a union of several types",
        ),
        (
            "split_offsets",
            132,
            list.into(),
            [long(i64::MAX), long(1)].concat(),
            "data block 1: the data ends in the middle of a value",
        ),
        (
            "split_offsets",
            132,
            list.into(),
            [&long(1)[..], &[0xff; 10], &[0x01, 0]].concat(),
            "field split_offsets: a number takes more than 64 bits",
        ),
    ] {
        let partition = PartitionType::new([(1000, "p", ResultType::Int)]);
        assert_eq!(error_in(&with_field(name, id, &avro, &encoded), &partition), why);
    }
}

#[test]
fn an_entry_without_what_it_must_have_is_an_error() {
    let fields = ["file_path", "file_format", "record_count", "file_size_in_bytes"];
    for (place, name) in fields.into_iter().enumerate() {
        let file: Vec<String> = [(100, r#""string""#), (101, r#""string""#), (103, r#""long""#), (104, r#""long""#)]
            .into_iter()
            .zip(fields)
            .map(|((id, avro), field)| optional(field, id, avro))
            .collect();
        let schema = schema_of(&top_fields()[..1], &file);
        let value =
            |field: usize| if field < 2 { [long(1), bytes(b"x")].concat() } else { [long(1), long(1)].concat() };
        let values: Vec<u8> = (0..4).flat_map(|field| if field == place { long(0) } else { value(field) }).collect();
        let data = [long(1), values].concat();
        let error = error_in(&container(&schema, "null", &[(1, &data)]), &PartitionType::default());
        assert_eq!(error, format!("field {name}: an entry has none"));
        let absent = schema_of(&top_fields()[..1], &[&file[..place], &file[place + 1..]].concat());
        let error = error_in(&container(&absent, "null", &[]), &PartitionType::default());
        assert!(error.starts_with(&format!("its schema has no field {name} (id ")), "{error}");
    }
    let error = error_in(&manifest_of("null", 1, &[bare_entry(3, 1, None)]), &PartitionType::default());
    assert_eq!(error, "field status: 3 is not 0, 1 or 2");
    assert_eq!(
        error_in(b"AGS1\0\0\x10\0rest", &PartitionType::default()),
        "it is encrypted, and encrypted tables are not supported"
    );
}

/// Whatever becomes of a file on its way: an error, or rows, of which there are no more than bytes.
#[test]
fn a_damaged_manifest_never_panics() {
    let decode = |file: &[u8]| {
        let rows = decode(file, &partition_type(), EntryFields::ALL, Inherited::default(), false)?;
        Ok::<_, Error>(rows.iter().map(RecordBatch::num_rows).sum::<usize>())
    };
    for codec in ["null", "deflate"] {
        let file = manifest(codec, 2);
        for length in 0..file.len() {
            let at_block_end = file[..length].ends_with(&SYNC);
            assert_eq!(decode(&file[..length]).is_ok(), at_block_end, "{codec}, cut to {length} bytes");
        }
        let mut damaged = file.clone();
        for position in 0..file.len() {
            for flip in [0x01, 0x80, 0xff] {
                damaged[position] ^= flip;
                if let Ok(rows) = decode(&damaged) {
                    assert!(rows <= damaged.len(), "{codec}, byte {position} xor {flip}");
                }
                damaged[position] ^= flip;
            }
        }
    }
}
