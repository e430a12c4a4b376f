//! The same rows as apache-avro reads, of every manifest there is, and of damaged ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::oracle::{expected_rows, partition_names, project, rows_of, rows_of_records};
use super::tests::decode;
use super::tests::fixture::{manifest, partition_type};
use super::*;
use crate::scan::avro::AvroFile;
use crate::scan::testing::*;
use crate::table::{PartitionType, ResultType, TableMetadata};

/// What a manifest's header has for a key.
fn header(file: &[u8], key: &str) -> Option<String> {
    let file = AvroFile::<_, 0>::open(file, &[]).unwrap();
    file.header_value(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn header_json(file: &[u8], key: &str) -> Json {
    header(file, key).map_or(Json::Null, |text| serde_json::from_str(&text).unwrap())
}

/// The manifests of each table, by their folder.
fn manifests_of_tables() -> BTreeMap<PathBuf, Vec<Vec<u8>>> {
    let mut tables: BTreeMap<PathBuf, Vec<Vec<u8>>> = BTreeMap::new();
    for (path, file) in files_of_tables() {
        if Parts::of(&file).is_some_and(|parts| parts.schema.contains("\"data_file\"")) {
            tables.entry(path.parent().unwrap().into()).or_default().push(file);
        }
    }
    tables
}

/// The partition type of a table that has the specs of these manifests, and the newest of their schemas.
fn united(manifests: &[Vec<u8>]) -> PartitionType {
    let specs: BTreeMap<String, Json> = manifests
        .iter()
        .map(|file| (header(file, "partition-spec-id").unwrap_or("0".into()), header_json(file, "partition-spec")))
        .collect();
    let specs: Vec<Json> = specs
        .into_iter()
        .map(|(id, fields)| json!({"spec-id": id.parse::<i32>().unwrap(), "fields": fields}))
        .collect();
    let schemas = manifests.iter().map(|file| header_json(file, "schema"));
    let mut schema = schemas.max_by_key(|schema| schema["schema-id"].as_i64()).unwrap();
    schema["schema-id"] = json!(7);
    let metadata = json!({"format-version": 2, "location": "/t", "current-schema-id": 7, "schemas": [schema],
        "partition-specs": specs});
    let metadata = TableMetadata::parse("/t/metadata/v1.metadata.json", metadata.to_string().as_bytes()).unwrap();
    PartitionType::of(&metadata).unwrap()
}

fn inherited(first_row_id: Option<i64>) -> Inherited {
    Inherited { added_snapshot_id: Some(77), sequence_number: Some(9), partition_spec_id: Some(3), first_row_id }
}

#[test]
fn every_manifest_of_every_table_gives_the_rows_that_another_library_reads() {
    let (mut compared, mut partitioned, mut deleted) = (0, 0, 0);
    for (folder, manifests) in manifests_of_tables() {
        let partition = if manifests.iter().all(|file| header(file, "schema").is_some()) {
            united(&manifests)
        } else {
            PartitionType::default()
        };
        for file in manifests {
            for (first_row_id, live_only) in [(None, false), (Some(1000), true)] {
                let inherited = inherited(first_row_id);
                let expected = expected_rows(&file, &partition, inherited, 3, live_only);
                let found = decode(&file, &partition, EntryFields::ALL, inherited, live_only).unwrap();
                let rows = rows_of(&found);
                assert_eq!(rows, expected, "{}", folder.display());
                deleted += rows.iter().filter(|row| row["status"] == json!(2)).count();
            }
            compared += 1;
            partitioned += usize::from(!partition.is_empty());
        }
    }
    assert!(compared > 50 && partitioned > 5 && deleted > 5, "{compared}, {partitioned}, {deleted}");
}

#[test]
fn each_field_alone_is_what_it_is_among_all() {
    let file = real_file("v3-deletion-vectors.avro");
    let partition = united(std::slice::from_ref(&file));
    let all = expected_rows(&file, &partition, inherited(Some(5)), 3, false);
    for field in EntryField::ALL {
        let fields = EntryFields::from_iter([field]);
        let found = decode(&file, &partition, fields, inherited(Some(5)), false).unwrap();
        let expected: Vec<Json> = all.iter().map(|row| project(row, fields)).collect();
        assert_eq!(rows_of(&found), expected, "{}", field.name());
        assert!(found.iter().all(|batch| batch.schema() == projected_entry_schema(&partition, fields)));
    }
}

#[test]
fn other_writers_and_codecs_give_the_same_rows() {
    let partition = PartitionType::default();
    let rows = |name: &str| {
        rows_of(&decode(&real_file(name), &partition, EntryFields::ALL, inherited(Some(5)), false).unwrap())
    };
    let expected = rows("v3-data.avro");
    assert_eq!(expected.len(), 3);
    for codec in ["deflate", "snappy", "zstandard"] {
        assert_eq!(rows(&format!("fastavro-{codec}.avro")), expected, "{codec}");
    }
}

/// Those that the fuzz targets begin with, by fastavro.
#[test]
fn all_fields_of_another_writer_are_read() {
    let decimal = ResultType::Decimal { precision: 9, scale: 2 };
    let partition = PartitionType::new([
        (1000, "any", ResultType::Double),
        (1001, "decimal", decimal),
        (1002, "fixed", ResultType::Fixed(4)),
        (1003, "int", ResultType::Int),
        (1004, "other", ResultType::String),
    ]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/manifest");
    for name in ["all-fields.avro", "all-fields-deflate.avro"] {
        let file = std::fs::read(folder.join(name)).unwrap();
        let rows = rows_of(&decode(&file, &partition, EntryFields::ALL, inherited(Some(5)), false).unwrap());
        assert_eq!(rows, expected_rows(&file, &partition, inherited(Some(5)), 3, false), "{name}");
        let value = json!({"any": 2.5, "decimal": "-12345", "fixed": "00010203", "int": -5, "other": "x"});
        assert_eq!((rows.len(), &rows[0]["data_file"]["partition"]), (3, &value));
        let is_null = |field: &EntryField| rows[0]["data_file"][field.name()].is_null();
        assert!(!EntryField::ALL[4..].iter().any(is_null), "{rows:?}");
    }
}

#[test]
fn the_header_tells_the_spec_where_the_list_does_not() {
    let file = real_file("v2-data-existing.avro");
    let fields = EntryFields::from_iter([EntryField::SpecId]);
    for (listed, found) in [(Some(3), 3), (None, header(&file, "partition-spec-id").unwrap().parse().unwrap())] {
        let inherited = Inherited { partition_spec_id: listed, ..Inherited::default() };
        let rows = rows_of(&decode(&file, &PartitionType::default(), fields, inherited, false).unwrap());
        assert!(rows.iter().all(|row| row["data_file"]["spec_id"] == json!(found)), "{rows:?}");
    }
    let unsaid = Parts::of(&file).unwrap().written("deflate");
    let rows = rows_of(&decode(&unsaid, &PartitionType::default(), fields, Inherited::default(), false).unwrap());
    assert!(rows.iter().all(|row| row["data_file"]["spec_id"] == json!(0)), "{rows:?}");
}

/// Only what apache-avro reads from the same bytes, or nothing.
fn assert_no_wrong_row(file: &[u8]) -> Result<(), TestCaseError> {
    let Ok(found) = decode(file, &partition_type(), EntryFields::ALL, Inherited::default(), false) else {
        return Ok(());
    };
    if let Some(records) = try_oracle_records(file) {
        let names = partition_names(&manifest("null", 1));
        let expected = rows_of_records(&records, &names, &partition_type(), Inherited::default(), 0, false);
        prop_assert_eq!(rows_of(&found), expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn damage_to_a_file_is_an_error_or_read_by_both_alike(
        codec in prop::sample::select(vec!["null", "deflate", "snappy", "zstandard"]),
        damage in prop::collection::vec(Damage::any(), 1..3),
    ) {
        let mut file = manifest(codec, 2);
        let blocks = file.windows(SYNC.len()).position(|bytes| bytes == SYNC).unwrap();
        for damage in &damage {
            let end = file.len();
            damage.apply(&mut file, blocks..end);
        }
        assert_no_wrong_row(&file)?;
    }

    /// Damage that no checksum and no decompression finds.
    #[test]
    fn damage_under_the_compression_is_an_error_or_read_by_both_alike(
        damage in prop::collection::vec((any::<prop::sample::Index>(), Damage::any()), 1..3),
    ) {
        let mut parts = Parts::of(&manifest("null", 2)).unwrap();
        for (block, damage) in &damage {
            let block = block.index(parts.blocks.len());
            let data = &mut parts.blocks[block].1;
            let end = data.len();
            damage.apply(data, 0..end);
        }
        assert_no_wrong_row(&parts.written("deflate"))?;
    }

    /// The header says what fields are, so what is read under a changed one can't be compared.
    #[test]
    fn damage_to_the_header_never_panics(damage in Damage::any()) {
        let mut file = manifest("deflate", 2);
        let end = file.len();
        damage.apply(&mut file, 0..end);
        decode(&file, &partition_type(), EntryFields::ALL, Inherited::default(), false).ok();
    }
}
