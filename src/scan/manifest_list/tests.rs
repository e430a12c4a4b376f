use apache_avro::types::Value;
use proptest::prelude::*;

use super::*;
use crate::scan::testing::*;

/// A row as the decoder gives it: path, length, spec, content, snapshot, counts, encrypted.
pub(super) type Row = (String, Option<i64>, Option<i64>, i64, Option<i64>, [Option<i64>; 3], bool);

pub(super) const SCHEMA: &str = r#"{"type":"record","name":"manifest_file","fields":[
    {"name":"manifest_path","type":"string","field-id":500},
    {"name":"manifest_length","type":"long","field-id":501},
    {"name":"partition_spec_id","type":"int","field-id":502},
    {"name":"content","type":"int","field-id":517},
    {"name":"sequence_number","type":"long","field-id":515},
    {"name":"added_snapshot_id","type":"long","field-id":503},
    {"name":"added_files_count","type":"int","field-id":504},
    {"name":"existing_files_count","type":["null","int"],"field-id":505},
    {"name":"deleted_files_count","type":["int","null"],"field-id":506},
    {"name":"partitions","field-id":507,"type":["null",{"type":"array","element-id":508,"items":
        {"type":"record","name":"r508","fields":[
            {"name":"contains_null","type":"boolean","field-id":509},
            {"name":"lower_bound","type":["null","bytes"],"field-id":510}]}}]},
    {"name":"key_metadata","type":["null","bytes"],"field-id":519}]}"#;

pub(super) fn rows(batch: &RecordBatch) -> Vec<Row> {
    assert_eq!(batch.schema(), manifest_list_schema());
    let integer = |column| integers(batch, column);
    let (length, spec, content) = (integer("manifest_length"), integer("partition_spec_id"), integer("content"));
    let (snapshot, encrypted) = (integer("added_snapshot_id"), booleans(batch, "encrypted"));
    let counts = ["added_files_count", "existing_files_count", "deleted_files_count"].map(integer);
    let path = |(row, path): (usize, String)| {
        let counts = [counts[0][row], counts[1][row], counts[2][row]];
        (path, length[row], spec[row], content[row].unwrap(), snapshot[row], counts, encrypted[row])
    };
    texts(batch, "manifest_path").into_iter().enumerate().map(path).collect()
}

fn decode(file: &[u8]) -> Result<Vec<Row>> {
    decode_manifest_list("l.avro", file).map(|batch| rows(&batch))
}

fn error(file: &[u8]) -> String {
    match decode(file) {
        Err(Error::Malformed { what: "a manifest list", path, why }) if path == "l.avro" => why,
        other => panic!("{other:?}"),
    }
}

fn oracle(file: &[u8]) -> Vec<Row> {
    oracle_records(file).iter().map(oracle_row).collect()
}

fn oracle_row(record: &Value) -> Row {
    let integer = |name: &str| integer_field(record, name);
    // The second names are those of format v1's first drafts.
    let count =
        |kind: &str| integer(&format!("{kind}_files_count")).or_else(|| integer(&format!("{kind}_data_files_count")));
    (
        text_field(record, "manifest_path").unwrap_or_default(),
        integer("manifest_length"),
        integer("partition_spec_id"),
        integer("content").unwrap_or(0),
        integer("added_snapshot_id"),
        ["added", "existing", "deleted"].map(count),
        matches!(field(record, "key_metadata"), Some(Value::Bytes(key)) if !key.is_empty()),
    )
}

pub(super) fn record(path: &str, content: i32, counts: [Option<i32>; 2], key: Option<&[u8]>) -> Value {
    let union = |branch, value| Value::Union(branch, Box::new(value));
    let partition = Value::Record(vec![
        ("contains_null".into(), Value::Boolean(true)),
        ("lower_bound".into(), union(1, Value::Bytes(vec![1, 2, 3]))),
    ]);
    let fields = [
        ("manifest_path", Value::String(path.into())),
        ("manifest_length", Value::Long(1 << 40)),
        ("partition_spec_id", Value::Int(3)),
        ("content", Value::Int(content)),
        ("sequence_number", Value::Long(8)),
        ("added_snapshot_id", Value::Long(i64::MIN)),
        ("added_files_count", Value::Int(1)),
        ("existing_files_count", counts[0].map_or(union(0, Value::Null), |count| union(1, Value::Int(count)))),
        ("deleted_files_count", counts[1].map_or(union(1, Value::Null), |count| union(0, Value::Int(count)))),
        ("partitions", union(1, Value::Array(vec![partition.clone(), partition]))),
        ("key_metadata", key.map_or(union(0, Value::Null), |key| union(1, Value::Bytes(key.into())))),
    ];
    Value::Record(fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

fn sample() -> Vec<Value> {
    vec![
        record("s3://b/m1.avro", 0, [Some(2), Some(3)], None),
        record("s3://b/m2.avro", 1, [None, None], Some(&[])),
        record("s3://b/m3.avro", 0, [Some(0), None], Some(&[1])),
    ]
}

#[test]
fn real_lists_give_the_rows_that_another_decoder_gives() {
    for (name, manifests, deletes) in [("v1-list", 6, 0), ("v2-list", 8, 4), ("v3-list", 6, 3)] {
        let file = real_file(&format!("{name}.avro"));
        let expected = oracle(&file);
        assert_eq!(expected.len(), manifests, "{name}");
        assert_eq!(decode(&file).unwrap(), expected, "{name}");
        assert_eq!(expected.iter().filter(|row| row.3 == 1).count(), deletes, "{name}");
    }
}

#[test]
fn every_column_comes_from_every_codec() {
    let row = |path: &str, content, counts, encrypted| {
        (path.to_string(), Some(1 << 40), Some(3), content, Some(i64::MIN), counts, encrypted)
    };
    let expected = vec![
        row("s3://b/m1.avro", 0, [Some(1), Some(2), Some(3)], false),
        row("s3://b/m2.avro", 1, [Some(1), None, None], false),
        row("s3://b/m3.avro", 0, [Some(1), Some(0), None], true),
    ];
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        assert_eq!(decode(&file_of(SCHEMA, codec, 2, &sample())).unwrap(), expected, "{codec}");
    }
    assert_eq!(oracle(&file_of(SCHEMA, "deflate", 2, &sample())), expected, "what the other library reads");
}

#[test]
fn what_old_writers_left_out_is_unknown_or_data() {
    let schema = r#"{"type":"record","name":"m","fields":[{"name":"manifest_path","type":"string"},
        {"name":"added_data_files_count","type":["null","int"]},{"name":"existing_data_files_count","type":"int"}]}"#;
    let file = container(schema, "null", &[(1, &[2, b'p', 2, 8, 10])]);
    let expected = ("p".to_string(), None, None, 0, None, [Some(4), Some(5), None], false);
    assert_eq!(decode(&file).unwrap(), [expected]);
}

#[test]
fn a_row_that_is_not_understood_is_an_error() {
    let one = |record: Value| file_of(SCHEMA, "null", 1, &[record]);
    assert_eq!(
        error(&one(record("p", 2, [None, None], None))),
        "the content of p is 2, which is neither 0 (data) nor 1 (deletes)"
    );
    assert_eq!(error(&one(record("", 0, [None, None], None))), "an entry has no manifest_path");
    let schema = r#"{"type":"record","name":"m","fields":[{"name":"manifest_path","type":["null","string"]},
        {"name":"partition_spec_id","type":"long"}]}"#;
    assert_eq!(error(&container(schema, "null", &[(1, &[0, 0])])), "an entry has no manifest_path");
    let too_large = [vec![2, 2, b'p'], long(1 << 31)].concat();
    assert_eq!(
        error(&container(schema, "null", &[(1, &too_large)])),
        "partition_spec_id is 2147483648, which is no 32-bit number"
    );
    let no_path = r#"{"type":"record","name":"m","fields":[{"name":"content","type":"int"}]}"#;
    assert_eq!(error(&container(no_path, "null", &[])), "its schema has no field manifest_path (id 500)");
}

#[test]
fn a_list_without_manifests_is_an_empty_batch() {
    assert_eq!(decode(&container(SCHEMA, "deflate", &[])).unwrap(), []);
}

#[test]
fn of_inline_manifests_only_the_paths_are_known() {
    let batch = inline_manifest_list(&["a".to_string(), "b".to_string()]).unwrap();
    let row = |path: &str| (path.to_string(), None, None, 0, None, [None; 3], false);
    assert_eq!(rows(&batch), [row("a"), row("b")]);
}

#[test]
fn an_encrypted_list_is_called_so() {
    let why = "it is encrypted, and encrypted tables are not supported";
    assert_eq!(error(b"AGS1\0\0\x10\0rest"), why);
    let refused = refuse_encrypted_list("l", b"\x17\x18", true).unwrap_err().to_string();
    assert!(refused.ends_with(why), "{refused}");
}

/// A list has no counts above it: cut between two blocks it looks whole, which only its snapshot's summary could tell.
#[test]
fn a_damaged_list_never_panics() {
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        let file = file_of(SCHEMA, codec, 2, &sample());
        for length in 0..file.len() {
            let at_block_end = file[..length].ends_with(&SYNC);
            assert_eq!(decode(&file[..length]).is_ok(), at_block_end, "{codec}, cut to {length} bytes");
        }
        let mut damaged = file.clone();
        for position in 0..file.len() {
            for flip in [0x01, 0x80, 0xff] {
                damaged[position] ^= flip;
                if let Ok(found) = decode(&damaged) {
                    assert!(found.len() <= damaged.len(), "{codec}, byte {position} xor {flip}");
                }
                damaged[position] ^= flip;
            }
        }
    }
}

#[test]
fn every_list_of_every_table_gives_the_rows_that_another_decoder_gives() {
    let mut compared = 0;
    for (path, file) in files_of_tables() {
        let Some(parts) = Parts::of(&file).filter(|parts| parts.schema.contains("\"manifest_path\"")) else { continue };
        let expected = oracle(&file);
        assert_eq!(decode(&file).unwrap(), expected, "{}", path.display());
        for codec in ["null", "deflate", "snappy", "zstandard"] {
            assert_eq!(decode(&parts.written(codec)).unwrap(), expected, "{}, {codec}", path.display());
        }
        compared += 1;
    }
    assert!(compared > 50, "{compared} lists");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Damage that no checksum and no decompression finds. Lists have no counts to be checked with, but each block has.
    #[test]
    fn damage_under_the_compression_is_an_error_or_read_by_all_alike(damage in Damage::any()) {
        let mut parts = Parts::of(&file_of(SCHEMA, "null", 2, &sample())).unwrap();
        for (_, data) in &mut parts.blocks {
            let end = data.len();
            damage.apply(data, 0..end);
        }
        let file = parts.written("deflate");
        if let Ok(found) = decode(&file) && let Some(expected) = try_oracle_records(&file) {
            prop_assert_eq!(found, expected.iter().map(oracle_row).collect::<Vec<_>>());
        }
    }
}
