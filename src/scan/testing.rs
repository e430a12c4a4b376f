//! Avro files for tests: written by hand down to the byte, and read by another library.

use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use apache_avro::types::Value;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use proptest::prelude::*;

use super::avro::AvroFile;

pub(crate) const SYNC: [u8; 16] = *b"0123456789abcdef";

/// An Avro `int` or `long`.
pub(crate) fn long(value: i64) -> Vec<u8> {
    let mut rest = (value.wrapping_shl(1) ^ (value >> 63)) as u64;
    let mut encoded = vec![];
    while rest >= 0x80 {
        encoded.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    encoded.push(rest as u8);
    encoded
}

/// Avro `bytes` or a `string`.
pub(crate) fn bytes(value: &[u8]) -> Vec<u8> {
    [long(value.len() as i64), value.to_vec()].concat()
}

pub(crate) fn compress(codec: &str, data: &[u8]) -> Vec<u8> {
    match codec {
        "deflate" => {
            let mut encoder = flate2::write::DeflateEncoder::new(vec![], flate2::Compression::default());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        "snappy" => {
            let mut crc = flate2::Crc::new();
            crc.update(data);
            let mut block = snap::raw::Encoder::new().compress_vec(data).unwrap();
            block.extend(crc.sum().to_be_bytes());
            block
        }
        "zstandard" => zstd::stream::encode_all(data, 1).unwrap(),
        _ => data.to_vec(),
    }
}

/// A file of blocks, each given as its object count and its uncompressed data.
pub(crate) fn container(schema: &str, codec: &str, blocks: &[(i64, &[u8])]) -> Vec<u8> {
    let mut file = b"Obj\x01".to_vec();
    file.extend(long(2));
    for (key, value) in [("avro.schema", schema), ("avro.codec", codec)] {
        file.extend(bytes(key.as_bytes()));
        file.extend(bytes(value.as_bytes()));
    }
    file.extend(long(0));
    file.extend(SYNC);
    for (objects, data) in blocks {
        file.extend(long(*objects));
        file.extend(bytes(&compress(codec, data)));
        file.extend(SYNC);
    }
    file
}

/// A file of records that apache-avro encodes, `per_block` in each block.
pub(crate) fn file_of(schema: &str, codec: &str, per_block: usize, records: &[Value]) -> Vec<u8> {
    let parsed = apache_avro::Schema::parse_str(schema).unwrap();
    let writer = apache_avro::writer::datum::GenericDatumWriter::builder(&parsed).build().unwrap();
    let blocks: Vec<(i64, Vec<u8>)> = records
        .chunks(per_block)
        .map(|records| {
            let data = records.iter().flat_map(|record| writer.write_value_to_vec(record.clone()).unwrap()).collect();
            (records.len() as i64, data)
        })
        .collect();
    let blocks: Vec<(i64, &[u8])> = blocks.iter().map(|(objects, data)| (*objects, data.as_slice())).collect();
    container(schema, codec, &blocks)
}

/// A manifest or manifest list of a real writer.
pub(crate) fn real_file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests").join(name)).unwrap()
}

/// All Avro files, by path, of tables that Spark wrote and of tables of the fixtures.
///
/// Those of the full collection of tables, beside the clone, are left out where it is absent.
pub(crate) fn files_of_tables() -> Vec<(PathBuf, Vec<u8>)> {
    let clone = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![];
    for cases in [clone.join("tests/data/corpus"), clone.join("../shared/corpus")] {
        let Ok(cases) = std::fs::read_dir(&cases) else {
            eprintln!("{} is left out: it is absent", cases.display());
            continue;
        };
        for case in cases {
            let table = case.unwrap().path().join("table.tar.zst");
            if table.exists() {
                files.extend(avro_files_of(&table));
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    crate::fixtures::warehouse(folder.path()).unwrap();
    add_avro_files(folder.path(), &mut files);
    files
}

fn avro_files_of(archive: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let archive = zstd::stream::read::Decoder::new(std::fs::File::open(archive).unwrap()).unwrap();
    let mut files = vec![];
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        if path.extension().is_some_and(|extension| extension == "avro") {
            let mut content = vec![];
            entry.read_to_end(&mut content).unwrap();
            files.push((path, content));
        }
    }
    files
}

fn add_avro_files(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_avro_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "avro") {
            files.push((path.clone(), std::fs::read(path).unwrap()));
        }
    }
}

/// A file taken apart.
pub(crate) struct Parts {
    pub(crate) schema: String,
    /// The object count and the uncompressed data of each block.
    pub(crate) blocks: Vec<(i64, Vec<u8>)>,
}

impl Parts {
    /// `None`: it is no whole Avro file. (Some tables of the collection have damaged ones.)
    pub(crate) fn of(file: &[u8]) -> Option<Self> {
        let file = AvroFile::<_, 0>::open(file, &[]).ok()?;
        let mut decompressor = file.decompressor();
        let blocks = file.blocks().map(|block| {
            let (objects, data) = file.read_block(block, &mut decompressor).ok()?;
            Some((objects as i64, data.to_vec()))
        });
        Some(Self { schema: file.layout().schema_text().to_string(), blocks: blocks.collect::<Option<_>>()? })
    }

    /// The file again, with this codec.
    pub(crate) fn written(&self, codec: &str) -> Vec<u8> {
        let blocks: Vec<_> = self.blocks.iter().map(|(objects, data)| (*objects, data.as_slice())).collect();
        container(&self.schema, codec, &blocks)
    }
}

/// A change of some bytes: these are replaced by those.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    place: prop::sample::Index,
    removed: usize,
    inserted: Vec<u8>,
}

impl Damage {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        // Small numbers are what lengths, counts and branches of unions are made of.
        let byte = prop_oneof![0u8..10, any::<u8>()];
        (any::<prop::sample::Index>(), 0..4usize, prop::collection::vec(byte, 0..4))
            .prop_map(|(place, removed, inserted)| Self { place, removed, inserted })
    }

    /// Does it to bytes of this range.
    pub(crate) fn apply(&self, data: &mut Vec<u8>, within: Range<usize>) {
        let start = within.start + self.place.index(within.len().max(1));
        let end = (start + self.removed).min(data.len());
        data.splice(start.min(end)..end, self.inserted.iter().copied());
    }
}

/// The records of a file, by apache-avro.
pub(crate) fn oracle_records(file: &[u8]) -> Vec<Value> {
    try_oracle_records(file).unwrap()
}

/// `None`: apache-avro refuses the file, or doesn't know its codec: it knows null and deflate. It trusts lengths more than it should, so it gets a limit.
pub(crate) fn try_oracle_records(file: &[u8]) -> Option<Vec<Value>> {
    apache_avro::util::max_allocation_bytes(1 << 24);
    apache_avro::Reader::new(file).ok()?.collect::<Result<_, _>>().ok()
}

/// A field of a record by name, seen through a union. `None`: null or absent.
pub(crate) fn field<'a>(record: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Record(fields) = record else { panic!("{record:?}") };
    let (_, value) = fields.iter().find(|(field, _)| field == name)?;
    match value {
        Value::Union(_, value) if **value == Value::Null => None,
        Value::Union(_, value) => Some(value),
        value => Some(value),
    }
}

pub(crate) fn integer_field(record: &Value, name: &str) -> Option<i64> {
    match field(record, name)? {
        Value::Int(value) => Some(i64::from(*value)),
        Value::Long(value) => Some(*value),
        other => panic!("{name} is {other:?}"),
    }
}

pub(crate) fn text_field(record: &Value, name: &str) -> Option<String> {
    match field(record, name)? {
        Value::String(value) => Some(value.clone()),
        other => panic!("{name} is {other:?}"),
    }
}

pub(crate) fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    batch.column_by_name(column).unwrap().as_string::<i32>().iter().map(|text| text.unwrap().to_string()).collect()
}

/// A column of integers of either width.
pub(crate) fn integers(batch: &RecordBatch, column: &str) -> Vec<Option<i64>> {
    let column = batch.column_by_name(column).unwrap();
    match column.as_primitive_opt::<Int64Type>() {
        Some(column) => column.iter().collect(),
        None => column.as_primitive::<Int32Type>().iter().map(|value| value.map(i64::from)).collect(),
    }
}

pub(crate) fn booleans(batch: &RecordBatch, column: &str) -> Vec<bool> {
    let column = batch.column_by_name(column).unwrap().as_boolean();
    assert_eq!(column.null_count(), 0);
    column.values().iter().collect()
}
