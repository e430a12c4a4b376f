//! The same rows as other Avro libraries read, of every manifest there is, and of damaged ones.

use std::io::Cursor;

use arrow_avro::reader::ReaderBuilder;
use arrow_avro::schema::AvroSchema;
use datafusion::arrow::array::{AsArray, RecordBatch};
use proptest::prelude::*;

use super::tests::{Entry, counts, entries, manifest, oracle_entry, sample};
use super::*;
use crate::scan::testing::*;

/// Our entries of a file.
fn ours(file: &[u8], expected: EntryCounts) -> Option<Vec<Entry>> {
    decode_manifest("m.avro", file, expected, false).ok().map(|batches| entries(&batches))
}

/// Those of apache-avro.
fn by_apache_avro(file: &[u8]) -> Option<Vec<Entry>> {
    try_oracle_records(file)?.iter().map(oracle_entry).collect()
}

/// Those of arrow-avro, which reads them under a schema of its own.
fn by_arrow_avro(file: &[u8]) -> Vec<Entry> {
    let schema = AvroSchema::new(READ.to_string());
    let reader = ReaderBuilder::new().with_reader_schema(schema).build(Cursor::new(file)).unwrap();
    reader.flat_map(|batch| arrow_entries(&batch.unwrap())).collect()
}

const READ: &str = r#"{"type":"record","name":"manifest_entry","fields":[
    {"name":"status","type":"int"},
    {"name":"snapshot_id","type":["null","long"],"default":null},
    {"name":"data_file","type":{"type":"record","name":"r2","fields":[
        {"name":"content","type":"int","default":0},
        {"name":"file_path","type":"string"},
        {"name":"file_format","type":"string"},
        {"name":"file_size_in_bytes","type":"long"}]}}]}"#;

fn arrow_entries(batch: &RecordBatch) -> Vec<Entry> {
    let file = RecordBatch::from(batch.column_by_name("data_file").unwrap().as_struct());
    let (status, snapshot_id) = (integers(batch, "status"), integers(batch, "snapshot_id"));
    let (content, size) = (integers(&file, "content"), integers(&file, "file_size_in_bytes"));
    let (path, format) = (texts(&file, "file_path"), texts(&file, "file_format"));
    let entry = |row: usize| Entry {
        status: status[row].unwrap(),
        content: content[row].unwrap(),
        path: path[row].clone(),
        size: size[row],
        deletion_vector: content[row] == Some(1) && format[row].eq_ignore_ascii_case("puffin"),
        snapshot_id: snapshot_id[row],
    };
    (0..batch.num_rows()).map(entry).collect()
}

#[test]
fn every_manifest_of_every_table_gives_the_rows_that_others_read() {
    let mut compared = 0;
    for (path, file) in files_of_tables() {
        let Some(parts) = Parts::of(&file).filter(|parts| parts.schema.contains("\"data_file\"")) else { continue };
        let expected = by_apache_avro(&file).unwrap();
        assert_eq!(ours(&file, EntryCounts::default()).unwrap(), expected, "{}", path.display());
        for codec in ["null", "deflate", "snappy", "zstandard"] {
            let file = parts.written(codec);
            assert_eq!(ours(&file, EntryCounts::default()).unwrap(), expected, "{}, {codec}", path.display());
            if codec != "null" || compared == 0 {
                assert_eq!(by_arrow_avro(&file), expected, "{}, {codec}", path.display());
            }
        }
        compared += 1;
    }
    assert!(compared > 50, "{compared} manifests");
}

/// Only what other libraries read from the same bytes, or nothing.
fn assert_no_wrong_row(file: &[u8]) -> Result<(), TestCaseError> {
    if let Some(found) = ours(file, counts(3, 2, 1))
        && let Some(expected) = by_apache_avro(file)
    {
        prop_assert_eq!(found, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn damage_to_a_file_is_an_error_or_read_by_all_alike(
        codec in prop::sample::select(vec!["null", "deflate", "snappy", "zstandard"]),
        damage in prop::collection::vec(Damage::any(), 1..3),
    ) {
        let mut file = manifest(codec, 4, &sample());
        let blocks = file.windows(SYNC.len()).position(|bytes| bytes == SYNC).unwrap();
        for damage in &damage {
            let end = file.len();
            damage.apply(&mut file, blocks..end);
        }
        assert_no_wrong_row(&file)?;
    }

    /// The header says what fields are, so what is read under a changed one can't be compared.
    #[test]
    fn damage_to_the_header_never_panics(damage in Damage::any()) {
        let mut file = manifest("deflate", 4, &sample());
        let end = file.len();
        damage.apply(&mut file, 0..end);
        ours(&file, EntryCounts::default());
    }

    /// Damage that no checksum and no decompression finds.
    #[test]
    fn damage_under_the_compression_is_an_error_or_read_by_all_alike(
        damage in prop::collection::vec((any::<prop::sample::Index>(), Damage::any()), 1..3),
    ) {
        let mut parts = Parts::of(&manifest("null", 4, &sample())).unwrap();
        for (block, damage) in &damage {
            let block = block.index(parts.blocks.len());
            let data = &mut parts.blocks[block].1;
            let end = data.len();
            damage.apply(data, 0..end);
        }
        assert_no_wrong_row(&parts.written("deflate"))?;
    }
}
