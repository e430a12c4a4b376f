use apache_avro::types::Value;

use super::*;
use crate::scan::testing::*;

/// An entry as the decoder gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) status: i64,
    pub(super) content: i64,
    pub(super) path: String,
    pub(super) size: Option<i64>,
    pub(super) deletion_vector: bool,
    pub(super) snapshot_id: Option<i64>,
}

const SCHEMA: &str = r#"{"type":"record","name":"manifest_entry","fields":[
    {"name":"status","type":"int","field-id":0},
    {"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1},
    {"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
        {"name":"content","type":"int","field-id":134},
        {"name":"file_path","type":"string","field-id":100},
        {"name":"file_format","type":"string","field-id":101},
        {"name":"partition","field-id":102,"type":{"type":"record","name":"r102","fields":[
            {"name":"day","type":["null",{"type":"int","logicalType":"date"}],"field-id":1000}]}},
        {"name":"record_count","type":"long","field-id":103},
        {"name":"file_size_in_bytes","type":"long","field-id":104},
        {"name":"column_sizes","field-id":108,"type":["null",{"type":"array","logicalType":"map","items":
            {"type":"record","name":"k117_v118","fields":[
                {"name":"key","type":"int","field-id":117},{"name":"value","type":"long","field-id":118}]}}]},
        {"name":"lower_bounds","field-id":125,"type":["null",{"type":"array","logicalType":"map","items":
            {"type":"record","name":"k126_v127","fields":[
                {"name":"key","type":"int","field-id":126},{"name":"value","type":"bytes","field-id":127}]}}]},
        {"name":"referenced_data_file","type":["null","string"],"field-id":143}]}}]}"#;

fn record(fields: &[(&str, Value)]) -> Value {
    Value::Record(fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect())
}

fn some(branch: u32, value: Value) -> Value {
    Value::Union(branch, Box::new(value))
}

fn key_value(key: i32, value: Value) -> Value {
    record(&[("key", Value::Int(key)), ("value", value)])
}

impl Entry {
    fn new(status: i64, path: &str) -> Self {
        Self { status, content: 0, path: path.into(), size: Some(77), deletion_vector: false, snapshot_id: Some(5) }
    }

    /// The entry as a record of [`SCHEMA`].
    fn record(&self) -> Value {
        let format = if self.deletion_vector { "PUFFIN" } else { "PARQUET" };
        let sizes = Value::Array((1..4).map(|key| key_value(key, Value::Long(1 << (key * 9)))).collect());
        let bounds = Value::Array(vec![key_value(300, Value::Bytes(vec![0xff; 200]))]);
        let file = record(&[
            ("content", Value::Int(self.content as i32)),
            ("file_path", Value::String(self.path.clone())),
            ("file_format", Value::String(format.into())),
            ("partition", record(&[("day", some(1, Value::Date(19_000)))])),
            ("record_count", Value::Long(1_000)),
            ("file_size_in_bytes", Value::Long(self.size.unwrap())),
            ("column_sizes", some(1, sizes)),
            ("lower_bounds", some(1, bounds)),
            ("referenced_data_file", some(0, Value::Null)),
        ]);
        let snapshot_id = self.snapshot_id.map_or(some(0, Value::Null), |id| some(1, Value::Long(id)));
        record(&[("status", Value::Int(self.status as i32)), ("snapshot_id", snapshot_id), ("data_file", file)])
    }
}

/// Added, existing and deleted entries of all contents.
pub(super) fn sample() -> Vec<Entry> {
    let entry = |status, path: &str| Entry::new(status, path);
    vec![
        entry(1, "s3://b/t/data/añadido.parquet"),
        Entry { snapshot_id: None, ..entry(0, "s3://b/t/data/2 %20.parquet") },
        entry(2, "s3://b/t/data/3.parquet"),
        Entry { content: 1, ..entry(1, "s3://b/t/data/4.parquet") },
        Entry { content: 1, deletion_vector: true, ..entry(0, "s3://b/t/data/5.puffin") },
        Entry { content: 2, size: Some(i64::MAX), ..entry(1, "s3://b/t/data/6.parquet") },
    ]
}

pub(super) fn manifest(codec: &str, per_block: usize, entries: &[Entry]) -> Vec<u8> {
    file_of(SCHEMA, codec, per_block, &entries.iter().map(Entry::record).collect::<Vec<_>>())
}

pub(super) fn entries(batches: &[RecordBatch]) -> Vec<Entry> {
    batches
        .iter()
        .flat_map(|batch| {
            let (status, content) = (integers(batch, "status"), integers(batch, "content"));
            let (paths, sizes) = (texts(batch, "file_path"), integers(batch, "file_size_in_bytes"));
            let (vectors, ids) = (booleans(batch, "is_deletion_vector"), integers(batch, "snapshot_id"));
            (0..batch.num_rows()).map(move |row| Entry {
                status: status[row].unwrap(),
                content: content[row].unwrap(),
                path: paths[row].clone(),
                size: sizes[row],
                deletion_vector: vectors[row],
                snapshot_id: ids[row],
            })
        })
        .collect()
}

fn decode(file: &[u8]) -> Result<Vec<Entry>> {
    decode_manifest("m.avro", file, EntryCounts::default(), false).map(|batches| entries(&batches))
}

fn error(file: &[u8]) -> String {
    match decode(file) {
        Err(Error::Malformed { what: "a manifest", path, why }) if path == "m.avro" => why,
        other => panic!("{other:?}"),
    }
}

/// The entries of a file as apache-avro reads them, by the spec's field names.
fn oracle(file: &[u8]) -> Vec<Entry> {
    oracle_records(file).iter().map(|record| oracle_entry(record).unwrap()).collect()
}

/// `None`: the entry has no status or path.
pub(super) fn oracle_entry(entry: &Value) -> Option<Entry> {
    let file = field(entry, "data_file")?;
    let content = integer_field(file, "content").unwrap_or(0);
    Some(Entry {
        status: integer_field(entry, "status")?,
        content,
        path: text_field(file, "file_path")?,
        size: integer_field(file, "file_size_in_bytes"),
        deletion_vector: content == 1
            && text_field(file, "file_format").is_some_and(|format| format.eq_ignore_ascii_case("puffin")),
        snapshot_id: integer_field(entry, "snapshot_id"),
    })
}

#[test]
fn real_manifests_give_the_rows_that_another_decoder_gives() {
    // Status and content of each entry.
    for (name, statuses) in [
        ("v1-data", &[(1, 0)][..]),
        ("v2-data-overwritten", &[(2, 0), (0, 0), (0, 0)]),
        ("v2-data-existing", &[(0, 0); 10]),
        ("v2-position-deletes", &[(0, 1), (2, 1)]),
        ("v2-equality-deletes", &[(1, 2)]),
        ("v3-data", &[(0, 0), (0, 0), (2, 0)]),
        ("v3-deletion-vectors", &[(0, 1), (2, 1), (0, 1)]),
    ] {
        let file = real_file(&format!("{name}.avro"));
        let entries = decode(&file).unwrap();
        assert_eq!(entries, oracle(&file), "{name}");
        assert_eq!(entries.iter().map(|entry| (entry.status, entry.content)).collect::<Vec<_>>(), statuses, "{name}");
        let vectors = name == "v3-deletion-vectors";
        assert!(entries.iter().all(|entry| entry.deletion_vector == vectors), "{name}");
    }
}

#[test]
fn the_same_entries_come_from_every_codec_of_another_writer() {
    let expected = oracle(&real_file("v3-data.avro"));
    for codec in ["deflate", "snappy", "zstandard"] {
        assert_eq!(decode(&real_file(&format!("fastavro-{codec}.avro"))).unwrap(), expected, "{codec}");
    }
}

#[test]
fn entries_come_in_order_from_every_codec_and_any_number_of_blocks() {
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        for per_block in [1, 4, 100] {
            let file = manifest(codec, per_block, &sample());
            assert_eq!(decode(&file).unwrap(), sample(), "{codec}, {per_block} per block");
        }
    }
    assert_eq!(oracle(&manifest("deflate", 4, &sample())), sample(), "what the other library reads");
}

#[test]
fn an_empty_manifest_has_no_batches() {
    let batches = decode_manifest("m", &manifest("deflate", 1, &[]), EntryCounts::default(), false).unwrap();
    assert!(batches.is_empty());
}

#[test]
fn batches_are_bounded() {
    let many: Vec<Entry> = (0..20_000).map(|i| Entry::new(1, &format!("s3://b/{i}"))).collect();
    let file = manifest("zstandard", 7_000, &many);
    let batches = decode_manifest("m", &file, EntryCounts::default(), false).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [8192, 8192, 3616]);
    assert_eq!(entries(&batches), many);
}

#[test]
fn parts_give_together_what_the_whole_gives() {
    let many: Vec<Entry> = (0..100).map(|i| Entry::new(i % 3, &format!("s3://b/{i}"))).collect();
    let file = ManifestFile::open_like("m", bytes::Bytes::from(manifest("deflate", 7, &many)), EntryColumns::Usual, []);
    let file = file.unwrap();
    for target_bytes in [0, 1, 1_000, usize::MAX] {
        let parts = file.parts(target_bytes);
        assert_eq!(parts.len() == 1, target_bytes == usize::MAX);
        assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..15).collect::<Vec<_>>());
        let (mut found, mut counts) = (vec![], vec![]);
        for part in parts {
            let mut batches = vec![];
            let hand_on = |batch, _| {
                batches.push(batch);
                Ok(())
            };
            counts.push(file.decode(part, false, hand_on).unwrap());
            found.extend(entries(&batches));
        }
        assert_eq!(found, many);
        let total = |status: usize| counts.iter().map(|part| part[status]).sum::<u64>();
        assert_eq!([total(0), total(1), total(2)], [34, 33, 33]);
    }
    assert!(check_counts("m", [34, 33, 33], counts(33, 34, 33)).is_ok());
    assert!(check_counts("m", [34, 33, 32], counts(33, 34, 33)).is_err());
    let empty = ManifestFile::open_like("m", manifest("null", 1, &[]), EntryColumns::Usual, []).unwrap();
    assert!(empty.parts(1).is_empty());
}

/// Ids are what counts: names, order, widths, the place of null and everything unknown may differ.
#[test]
fn fields_are_found_by_id_whatever_else_the_schema_holds() {
    let schema = r#"{"type":"record","name":"x.entry","fields":[
        {"name":"status","type":"string","field-id":9000},
        {"name":"a","field-id":2,"type":[{"type":"record","name":"f","fields":[
            {"name":"decimal","type":{"type":"fixed","name":"d","size":5,"logicalType":"decimal","precision":9}},
            {"name":"same","type":"d"},
            {"name":"size","type":["int","null"],"field-id":104},
            {"name":"map","type":{"type":"map","values":["null","double",{"type":"map","values":"float"}]}},
            {"name":"format","type":["string","null"],"field-id":101},
            {"name":"enum","type":{"type":"enum","name":"e","symbols":["A","B"]}},
            {"name":"nothing","type":"null"},
            {"name":"file_path","type":"boolean","field-id":9001},
            {"name":"path","type":["null","string"],"field-id":100},
            {"name":"nested","type":{"type":"record","name":"g","fields":[
                {"name":"path","type":"bytes","field-id":100},
                {"name":"content","type":["null",{"type":"array","items":"x.e"}],"field-id":134}]}},
            {"name":"kind","type":["null","long"],"field-id":134}]},"null"]},
        {"name":"b","type":"long","field-id":0},
        {"name":"c","type":["int","null"],"field-id":1}]}"#;
    let inner_map = Value::Map([("k".to_string(), Value::Float(1.5))].into());
    let map = [("a".to_string(), some(1, Value::Double(2.5))), ("b".to_string(), some(2, inner_map))];
    let nested = record(&[
        ("path", Value::Bytes(vec![0xff, 0xfe])),
        ("content", some(1, Value::Array(vec![Value::Enum(1, "B".into()), Value::Enum(0, "A".into())]))),
    ]);
    let entry = |path: &str, kind: Value, snapshot: Value| {
        let file = record(&[
            ("decimal", Value::Fixed(5, vec![0xff; 5])),
            ("same", Value::Fixed(5, vec![1; 5])),
            ("size", some(0, Value::Int(12))),
            ("map", Value::Map(map.clone().into())),
            ("format", some(0, Value::String("Puffin".into()))),
            ("enum", Value::Enum(1, "B".into())),
            ("nothing", Value::Null),
            ("file_path", Value::Boolean(true)),
            ("path", some(1, Value::String(path.into()))),
            ("nested", nested.clone()),
            ("kind", kind),
        ]);
        let status = Value::String("other".into());
        record(&[("status", status), ("a", some(0, file)), ("b", Value::Long(1)), ("c", snapshot)])
    };
    let records = [
        entry("p1", some(1, Value::Long(1)), some(0, Value::Int(-3))),
        entry("p2", some(0, Value::Null), some(1, Value::Null)),
    ];
    let expected = [
        Entry { content: 1, deletion_vector: true, size: Some(12), snapshot_id: Some(-3), ..Entry::new(1, "p1") },
        Entry { size: Some(12), snapshot_id: None, ..Entry::new(1, "p2") },
    ];
    assert_eq!(decode(&file_of(schema, "deflate", 10, &records)).unwrap(), expected);
}

#[test]
fn names_count_only_for_fields_without_an_id() {
    let schema = SCHEMA.replace(r#","field-id":100}"#, "}").replace(r#","field-id":0}"#, "}");
    let records: Vec<Value> = sample().iter().map(Entry::record).collect();
    assert_eq!(decode(&file_of(&schema, "null", 10, &records)).unwrap(), sample());

    let other_id = SCHEMA.replace(r#""field-id":100}"#, r#""field-id":7}"#);
    assert_eq!(error(&file_of(&other_id, "null", 10, &records)), "its schema has no field file_path (id 100)");
}

#[test]
fn a_schema_that_lacks_or_doubles_what_decides_is_refused() {
    for (from, to, why) in [
        (r#""field-id":0}"#, r#""field-id":7}"#, "its schema has no field status (id 0)"),
        (r#""field-id":2,"#, r#""field-id":7,"#, "its schema has no field data_file (id 2)"),
        (r#""field-id":1}"#, r#""field-id":0}"#, "its schema has the field status (id 0) twice"),
        (
            r#""string","field-id":100}"#,
            r#""bytes","field-id":100}"#,
            "its field file_path (id 100) is of type bytes, not string",
        ),
        (
            r#""int","field-id":134}"#,
            r#"["null","int","double"],"field-id":134}"#,
            "its field content (id 134) is of type double, not int or long",
        ),
    ] {
        let schema = SCHEMA.replace(from, to);
        assert_ne!(schema, SCHEMA, "{from}");
        assert_eq!(error(&container(&schema, "null", &[])), why);
    }
    assert_eq!(error(&container(r#""string""#, "null", &[])), "its records are of type string");
}

#[test]
fn an_entry_that_is_not_understood_is_an_error_and_never_left_out() {
    let good = Entry::new(1, "p");
    for (bad, why) in [
        (Entry::new(3, "p"), "the status of p is 3, which is not 0, 1 or 2"),
        (Entry::new(-1, "p"), "the status of p is -1, which is not 0, 1 or 2"),
        (Entry { content: 3, ..good.clone() }, "the content of p is 3, which is not 0, 1 or 2"),
        (Entry { content: -1, ..good.clone() }, "the content of p is -1, which is not 0, 1 or 2"),
        (Entry::new(1, ""), "an entry has no file_path"),
    ] {
        let file = manifest("deflate", 10, &[good.clone(), bad.clone()]);
        assert_eq!(error(&file), why);
        let live = decode_manifest("m", &file, EntryCounts::default(), true);
        assert!(live.is_err(), "{bad:?}, also when only live entries are wanted");
    }
}

#[test]
fn a_null_where_a_value_must_be_is_an_error() {
    let schema = |path: &str, status: &str| {
        format!(
            r#"{{"type":"record","name":"e","fields":[{{"name":"status","type":{status}}},
                {{"name":"data_file","type":["null",{{"type":"record","name":"f","fields":[
                    {{"name":"file_path","type":{path}}}]}}]}}]}}"#
        )
    };
    let (nullable_text, nullable_int) = (r#"["null","string"]"#, r#"["int","null"]"#);
    // status (branch 0, 1), data_file (branch 1), file_path (branch 0: null)
    let null_path = container(&schema(nullable_text, nullable_int), "null", &[(1, &[0, 2, 2, 0])]);
    assert_eq!(error(&null_path), "an entry has no file_path");
    let null_file = container(&schema(nullable_text, nullable_int), "null", &[(1, &[0, 2, 0])]);
    assert_eq!(error(&null_file), "an entry has no file_path");
    let null_status = container(&schema(r#""string""#, nullable_int), "null", &[(1, &[2, 2, 2, b'p'])]);
    assert_eq!(error(&null_status), "an entry has no status");
    let not_utf8 = container(&schema(r#""string""#, nullable_int), "null", &[(1, &[0, 2, 2, 2, 0xff])]);
    assert_eq!(error(&not_utf8), "a string is not UTF-8");
}

#[test]
fn only_puffin_files_of_position_deletes_are_deletion_vectors() {
    let file = |content: u8, format: &str| {
        let schema = r#"{"type":"record","name":"e","fields":[{"name":"status","type":"int"},
            {"name":"data_file","type":{"type":"record","name":"f","fields":[{"name":"content","type":"int"},
                {"name":"file_path","type":"string"},{"name":"file_format","type":"string"}]}}]}"#;
        let data = [vec![2, 2 * content], bytes(b"p"), bytes(format.as_bytes())].concat();
        container(schema, "null", &[(1, &data)])
    };
    for (content, format, vector) in [
        (1, "PUFFIN", true),
        (1, "puffin", true),
        (1, "Puffin", true),
        (1, "PARQUET", false),
        (0, "PUFFIN", false),
        (2, "PUFFIN", false),
    ] {
        let found = decode(&file(content, format)).unwrap();
        assert_eq!(found.iter().map(|entry| entry.deletion_vector).collect::<Vec<_>>(), [vector], "{content} {format}");
    }
}

pub(super) fn counts(added: i32, existing: i32, deleted: i32) -> EntryCounts {
    EntryCounts { added: Some(added), existing: Some(existing), deleted: Some(deleted) }
}

#[test]
fn deleted_entries_are_left_out_on_request_but_counted() {
    let file = manifest("deflate", 2, &sample());
    let live = decode_manifest("m", &file, counts(3, 2, 1), true).unwrap();
    let expected: Vec<Entry> = sample().into_iter().filter(|entry| entry.status != 2).collect();
    assert_eq!(entries(&live), expected);
    assert_eq!(entries(&decode_manifest("m", &file, counts(3, 2, 1), false).unwrap()), sample());
}

#[test]
fn counts_that_differ_from_the_manifest_list_are_an_error() {
    let file = manifest("deflate", 2, &sample());
    for wrong in [counts(2, 2, 1), counts(3, 3, 1), counts(3, 2, 0)] {
        assert!(decode_manifest("m", &file, wrong, true).is_err(), "{wrong:?}");
    }
    let unknown = EntryCounts { deleted: None, ..counts(9, 9, 9) };
    for unknown in [unknown, counts(-1, -1, -1)] {
        assert!(decode_manifest("m", &file, unknown, true).is_ok(), "{unknown:?}");
    }
}

#[test]
fn a_manifest_cut_between_two_blocks_is_noticed_by_its_counts_or_its_length() {
    let (whole, cut) = (manifest("null", 2, &sample()), manifest("null", 2, &sample()[..4]));
    assert!(whole.starts_with(&cut));
    let error = decode_manifest("m", &cut, counts(3, 2, 1), true).unwrap_err().to_string();
    assert_eq!(
        error,
        "m can't be read as a manifest: it has 2 added, 1 existing and 1 deleted entries, \
         but the manifest list says 3, 2 and 1"
    );
    let length = Some(whole.len() as i64);
    assert!(refuse_short("m", &cut, EntryCounts::default(), length).is_err());
    assert!(refuse_short("m", &whole, EntryCounts::default(), length).is_ok());
    assert!(refuse_short("m", &whole, EntryCounts::default(), Some(-1)).is_ok());
    assert!(refuse_short("m", &cut, counts(2, 1, 1), length).is_ok(), "the counts are the better witness");
}

#[test]
fn an_encrypted_manifest_is_called_so() {
    let why = "it is encrypted, and encrypted tables are not supported";
    assert_eq!(error(b"AGS1\0\0\x10\0rest"), why);
    let refused = refuse_encrypted_manifest("m", b"\x17\x18", true).unwrap_err().to_string();
    assert!(refused.ends_with(why), "{refused}");
    assert!(
        refuse_encrypted_manifest("m", &manifest("null", 1, &[]), true).is_ok(),
        "key metadata alone proves nothing"
    );
    assert_eq!(error(b"PAR1"), "it does not begin as an Avro file does");
}

/// Whatever becomes of a file on its way: an error, or rows, of which there are no more than bytes.
#[test]
fn a_damaged_manifest_never_panics() {
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        let file = manifest(codec, 2, &sample()[..3]);
        for length in 0..file.len() {
            let at_block_end = file[..length].ends_with(&SYNC);
            assert_eq!(decode(&file[..length]).is_ok(), at_block_end, "{codec}, cut to {length} bytes");
            if at_block_end {
                assert!(decode_manifest("m", &file[..length], counts(1, 1, 1), false).is_err());
            }
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
