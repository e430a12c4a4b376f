//! Partitions of other specs and types than the table's.

use serde_json::json;

use super::fixture::*;
use super::{error_in, rows_in};
use crate::scan::testing::*;
use crate::table::{PartitionType, ResultType};

/// A manifest with one entry, whose partition has these fields: id, name, type and encoding of the value.
fn partitioned(fields: &[(i64, &str, &str, Vec<u8>)]) -> Vec<u8> {
    let partition: Vec<String> = fields
        .iter()
        .map(|(id, name, avro, _)| match id {
            0 => format!(r#"{{"name":"{name}","type":{avro}}}"#),
            id => required(name, *id, avro),
        })
        .collect();
    let file = [
        required("file_path", 100, r#""string""#),
        required("file_format", 101, r#""string""#),
        required("partition", 102, &record_type("r102", &partition)),
        required("record_count", 103, r#""long""#),
        required("file_size_in_bytes", 104, r#""long""#),
    ];
    let values = fields.iter().flat_map(|(.., value)| value.clone()).collect();
    let data = [long(1), bytes(b"/t/f"), bytes(b"PARQUET"), values, long(2), long(3)].concat();
    container(&schema_of(&top_fields()[..1], &file), "null", &[(1, &data)])
}

#[test]
fn partitions_of_other_specs_and_older_types_fit_the_table_s() {
    let decimal = ResultType::Decimal { precision: 20, scale: 3 };
    let table = PartitionType::new([
        (1000, "renamed", ResultType::Long),
        (1001, "of_another_spec", ResultType::String),
        (1002, "double", ResultType::Double),
        (1003, "decimal", decimal),
        (1004, "decimal_of_bytes", decimal),
        (1005, "uuid", ResultType::Uuid),
        (1006, "long_fixed", ResultType::Fixed(1 << 31)),
        (1007, "binary", ResultType::Binary),
        (1008, "without_id", ResultType::Int),
    ]);
    let decimal = r#"{"type":"fixed","name":"d2","size":2,"logicalType":"decimal","precision":4,"scale":3}"#;
    let nullable_last = [long(0), long(-4)].concat();
    let file = partitioned(&[
        (0, "without_id", r#"["int","null"]"#, nullable_last),
        (1003, "decimal", decimal, vec![0xff, 0x00]),
        (1099, "left_out", r#"{"type":"array","items":"string"}"#, [long(1), bytes(b"x"), long(0)].concat()),
        (1000, "old_name", r#""int""#, long(-3)),
        (1002, "double", r#""float""#, 0.5f32.to_le_bytes().to_vec()),
        (1004, "decimal_of_bytes", r#""bytes""#, bytes(&[0x01, 0x00])),
        (1005, "uuid", r#""string""#, bytes(UUID.as_bytes())),
        (1006, "long_fixed", r#""bytes""#, bytes(&[7])),
        (1007, "binary", r#"{"type":"fixed","name":"f1","size":1}"#, vec![8]),
    ]);
    let expected = json!({
        "renamed": -3, "of_another_spec": null, "double": 0.5, "decimal": "-256", "decimal_of_bytes": "256",
        "uuid": UUID.replace('-', ""), "long_fixed": "07", "binary": "08", "without_id": -4
    });
    assert_eq!(rows_in(&file, &table)[0]["data_file"]["partition"], expected);
}

#[test]
fn what_we_do_not_know_is_shown_as_text() {
    let table = PartitionType::new([(1000, "p", ResultType::Unknown)]);
    for (avro, encoded, shown) in [
        (r#""boolean""#, vec![1], "true"),
        (r#""long""#, long(-7), "-7"),
        (r#""float""#, 1.5f32.to_le_bytes().to_vec(), "1.5"),
        (r#""double""#, 2.5f64.to_le_bytes().to_vec(), "2.5"),
        (r#""bytes""#, bytes(&[0xab, 1]), "ab01"),
        (r#"{"type":"fixed","name":"f2","size":2}"#, vec![0, 0x1f], "001f"),
        (r#""string""#, bytes("é".as_bytes()), "é"),
    ] {
        let rows = rows_in(&partitioned(&[(1000, "p", avro, encoded)]), &table);
        assert_eq!(rows[0]["data_file"]["partition"]["p"], json!(shown), "{avro}");
    }
}

#[test]
fn partition_values_that_do_not_fit_are_errors_with_their_name() {
    let fixed = r#"{"type":"fixed","name":"f2","size":2}"#;
    for (result, avro, encoded, why) in [
        (ResultType::Int, r#""long""#, long(1 << 40), "1099511627776 is no int"),
        (ResultType::Date, r#""long""#, long(-1 << 40), "-1099511627776 is no int"),
        (ResultType::Int, r#""string""#, bytes(b"1"), "string is no value of Int"),
        (ResultType::Boolean, r#""boolean""#, vec![2], "a boolean is neither 0 nor 1"),
        (ResultType::Boolean, r#""int""#, long(1), "int or long is no value of Boolean"),
        (ResultType::Float, r#""double""#, vec![0; 8], "double is no value of Float"),
        (ResultType::String, r#""bytes""#, bytes(b"x"), "bytes is no value of String"),
        (ResultType::String, r#""string""#, bytes(&[0xff]), "a string is not UTF-8"),
        (ResultType::Fixed(3), fixed, vec![0; 2], "2 bytes are no value of Fixed(3)"),
        (ResultType::Uuid, fixed, vec![0; 2], "2 bytes are no value of Uuid"),
        (ResultType::Uuid, r#""string""#, bytes(b"x"), "string is no value of Uuid"),
        (
            ResultType::Decimal { precision: 1, scale: 0 },
            r#""bytes""#,
            bytes(&[10]),
            "a decimal of 1 bytes has more than 1 digits",
        ),
    ] {
        let error =
            error_in(&partitioned(&[(1000, "in_file", avro, encoded)]), &PartitionType::new([(1000, "p", result)]));
        // What is wrong with the encoding itself is found before it is known what it is for.
        assert!(error.starts_with("field partition: ") && error.ends_with(why), "{error}");
    }
    let table = PartitionType::new([(1000, "p", ResultType::Int)]);
    for (fields, why) in [
        (
            vec![(1000, "p", r#"{"type":"array","items":"int"}"#, long(0))],
            "field partition: its field p (id 1000) is no primitive value",
        ),
        (
            vec![(1000, "p", r#""int""#, long(0)), (1000, "q", r#""int""#, long(0))],
            "field partition: it has the field p (id 1000) twice",
        ),
    ] {
        assert_eq!(error_in(&partitioned(&fields), &table), why);
    }
}
