//! All that one manifest list says of its manifests, for who wants to look at it.

use std::sync::Arc;

use super::{
    ADDED, ADDED_SNAPSHOT, CONTENT, DELETED, EXISTING, KEY_METADATA, LENGTH, PATH, SPEC_ID, WHAT, entry, expected_rows,
    malformed, optional,
};
use crate::error::Result;
use crate::scan::avro::encoded::{Primitive, RecordListReader};
use crate::scan::avro::{self, AvroFile, Layout, Row, Target, Wanted};
use crate::scan::manifest::EntryCounts;
use crate::scan::refuse_encrypted;

/// The slots before it are those of all readers of lists.
const PARTITIONS: usize = super::SLOTS;
const SLOTS: usize = PARTITIONS + 1;

static WANTED: [Wanted; 10] = [
    Wanted { id: 500, names: &["manifest_path"], required: true, target: Target::Text(PATH) },
    optional(501, &["manifest_length"], Target::Integer(LENGTH)),
    optional(502, &["partition_spec_id"], Target::Integer(SPEC_ID)),
    optional(517, &["content"], Target::Integer(CONTENT)),
    optional(503, &["added_snapshot_id"], Target::Integer(ADDED_SNAPSHOT)),
    optional(504, &["added_files_count", "added_data_files_count"], Target::Integer(ADDED)),
    optional(505, &["existing_files_count", "existing_data_files_count"], Target::Integer(EXISTING)),
    optional(506, &["deleted_files_count", "deleted_data_files_count"], Target::Integer(DELETED)),
    optional(507, &["partitions"], Target::Encoded(PARTITIONS)),
    optional(519, &["key_metadata"], Target::Binary(KEY_METADATA)),
];

/// A manifest as its list describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribedManifest {
    pub(crate) path: String,
    /// In bytes.
    pub(crate) length: Option<i64>,
    pub(crate) spec_id: Option<i32>,
    /// 0: data files, 1: delete files.
    pub(crate) content: i32,
    pub(crate) added_snapshot_id: Option<i64>,
    pub(crate) counts: EntryCounts,
    /// One for each field of the partition spec; `None`: the list has none.
    pub(crate) partitions: Option<Vec<FieldSummary>>,
    /// What it was encrypted with.
    pub(crate) key_metadata: Option<Vec<u8>>,
}

impl DescribedManifest {
    /// A manifest of which nothing but its path is known: one that v1 metadata lists itself.
    pub(crate) fn of_path(path: &str) -> Self {
        Self {
            path: path.into(),
            length: None,
            spec_id: None,
            content: 0,
            added_snapshot_id: None,
            counts: EntryCounts::default(),
            partitions: None,
            key_metadata: None,
        }
    }

    /// How many bytes it takes.
    pub(in crate::scan) fn bytes(&self) -> usize {
        let bound = |bound: &Option<Vec<u8>>| bound.as_ref().map_or(0, Vec::len);
        let summary = |summary: &FieldSummary| {
            size_of::<FieldSummary>() + bound(&summary.lower_bound) + bound(&summary.upper_bound)
        };
        let summaries: usize = self.partitions.iter().flatten().map(summary).sum();
        size_of::<Self>() + self.path.len() + bound(&self.key_metadata) + summaries
    }
}

/// What a list says of the values that a partition field has in a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSummary {
    pub(crate) contains_null: bool,
    pub(crate) contains_nan: Option<bool>,
    /// The least value that is neither null nor NaN, in the single-value encoding of its type (table spec, "Binary single-value
    /// serialization").
    pub(crate) lower_bound: Option<Vec<u8>>,
    /// The greatest one.
    pub(crate) upper_bound: Option<Vec<u8>>,
}

/// Decodes a whole manifest list with the summaries of partitions. `has_key`: the snapshot names a key; `layouts`: of lists that
/// were decoded before. Returns the list's own layout, too.
///
/// # Errors
/// [`Error::Malformed`](crate::Error::Malformed) as all readers of lists, and when the summaries are not what the spec says.
pub(in crate::scan) fn describe_list(
    path: &str,
    bytes: &[u8],
    has_key: bool,
    layouts: &[Arc<Layout>],
) -> Result<(Vec<DescribedManifest>, Arc<Layout>)> {
    refuse_encrypted(WHAT, path, bytes, has_key)?;
    decode(bytes, layouts).map_err(|why| malformed(path, why))
}

fn decode(bytes: &[u8], layouts: &[Arc<Layout>]) -> avro::Result<(Vec<DescribedManifest>, Arc<Layout>)> {
    let file = AvroFile::<_, SLOTS>::open_like(bytes, &WANTED, layouts)?;
    let reader = RecordListReader::new(file.layout(), PARTITIONS)?.map(SummaryReader::new);
    // A summary may take a byte in Avro, and sixty here. A manifest's path takes several, however it is compressed.
    let mut summaries_left = (bytes.len() as u64).saturating_mul(avro::MAX_RECORDS_PER_BYTE);
    let mut decompressor = file.decompressor();
    let mut manifests = Vec::with_capacity(expected_rows(file.promised_records(file.blocks())));
    for block in file.blocks() {
        file.for_each_record(block, &mut decompressor, |row| {
            manifests.push(described(row, reader.as_ref(), &mut summaries_left)?);
            Ok(())
        })?;
    }
    Ok((manifests, Arc::clone(file.layout())))
}

fn described(
    row: &Row<'_, SLOTS>,
    reader: Option<&SummaryReader>,
    summaries_left: &mut u64,
) -> avro::Result<DescribedManifest> {
    let entry = entry(row)?;
    let partitions = match (reader, row.bytes(PARTITIONS)) {
        (Some(reader), Some(encoded)) => Some(reader.read(encoded, summaries_left)?),
        _ => None,
    };
    Ok(DescribedManifest {
        path: std::str::from_utf8(entry.path).map_err(|_| "a path is not UTF-8")?.to_string(),
        length: entry.length,
        spec_id: entry.spec_id,
        content: entry.content,
        added_snapshot_id: entry.added_snapshot_id,
        counts: EntryCounts { added: entry.added, existing: entry.existing, deleted: entry.deleted },
        partitions,
        key_metadata: row.bytes(KEY_METADATA).map(<[u8]>::to_vec),
    })
}

/// Reads the summaries of one manifest.
struct SummaryReader {
    records: RecordListReader,
    /// What each field of a record is, by its place.
    meanings: Vec<Option<Meaning>>,
}

#[derive(Clone, Copy)]
enum Meaning {
    ContainsNull,
    ContainsNan,
    LowerBound,
    UpperBound,
}

impl Meaning {
    fn of(id: Option<i64>, name: &str) -> Option<Self> {
        match (id, name) {
            (Some(509), _) | (None, "contains_null") => Some(Self::ContainsNull),
            (Some(518), _) | (None, "contains_nan") => Some(Self::ContainsNan),
            (Some(510), _) | (None, "lower_bound") => Some(Self::LowerBound),
            (Some(511), _) | (None, "upper_bound") => Some(Self::UpperBound),
            _ => None,
        }
    }
}

impl SummaryReader {
    fn new(records: RecordListReader) -> Self {
        let meanings = records.fields().iter().map(|field| Meaning::of(field.id, &field.name)).collect();
        Self { records, meanings }
    }

    fn read(&self, encoded: &[u8], left: &mut u64) -> avro::Result<Vec<FieldSummary>> {
        let mut summaries = vec![];
        self.records.read(encoded, |record| {
            *left = left.checked_sub(1).ok_or("it has more partition summaries than a list of its size can have")?;
            let mut summary = FieldSummary::default();
            for (meaning, value) in self.meanings.iter().zip(record) {
                let (Some(meaning), Some(value)) = (meaning, value) else { continue };
                match (meaning, value) {
                    (Meaning::ContainsNull, Primitive::Boolean(value)) => summary.contains_null = *value,
                    (Meaning::ContainsNan, Primitive::Boolean(value)) => summary.contains_nan = Some(*value),
                    (Meaning::LowerBound, Primitive::Bytes(bound)) => summary.lower_bound = Some(bound.to_vec()),
                    (Meaning::UpperBound, Primitive::Bytes(bound)) => summary.upper_bound = Some(bound.to_vec()),
                    (_, other) => {
                        return Err(format!("a partition summary has a value of type {}", other.type_name()).into());
                    }
                }
            }
            summaries.push(summary);
            Ok(())
        })?;
        Ok(summaries)
    }
}

#[cfg(test)]
mod tests {
    use apache_avro::types::Value;

    use super::*;
    use crate::error::Error;
    use crate::scan::manifest_list::tests::{SCHEMA, record};
    use crate::scan::testing::*;

    #[test]
    fn real_lists_give_what_another_decoder_gives() {
        for name in ["v1-list", "v2-list", "v3-list"] {
            let file = real_file(&format!("{name}.avro"));
            let (manifests, _) = describe_list("l.avro", &file, false, &[]).unwrap();
            let records = oracle_records(&file);
            assert_eq!(manifests.len(), records.len(), "{name}");
            for (manifest, record) in manifests.iter().zip(&records) {
                assert_eq!(Some(&manifest.path), text_field(record, "manifest_path").as_ref(), "{name}");
                assert_eq!(manifest.length, integer_field(record, "manifest_length"), "{name}");
                let Some(Value::Array(summaries)) = field(record, "partitions") else {
                    assert_eq!(manifest.partitions, None, "{name}");
                    continue;
                };
                let expected = summaries.iter().map(|summary| FieldSummary {
                    contains_null: field(summary, "contains_null") == Some(&Value::Boolean(true)),
                    contains_nan: match field(summary, "contains_nan") {
                        Some(Value::Boolean(nan)) => Some(*nan),
                        _ => None,
                    },
                    lower_bound: bytes_field(summary, "lower_bound"),
                    upper_bound: bytes_field(summary, "upper_bound"),
                });
                assert_eq!(manifest.partitions, Some(expected.collect()), "{name}");
            }
        }
    }

    fn bytes_field(record: &Value, name: &str) -> Option<Vec<u8>> {
        match field(record, name) {
            Some(Value::Bytes(bytes)) => Some(bytes.clone()),
            _ => None,
        }
    }

    #[test]
    fn summaries_come_with_what_they_lack() {
        let file = file_of(SCHEMA, "null", 8, &[record("m.avro", 1, [Some(2), None], None)]);
        let summary = FieldSummary { contains_null: true, lower_bound: Some(vec![1, 2, 3]), ..Default::default() };
        let expected = DescribedManifest {
            path: "m.avro".into(),
            length: Some(1 << 40),
            spec_id: Some(3),
            content: 1,
            added_snapshot_id: Some(i64::MIN),
            counts: EntryCounts { added: Some(1), existing: Some(2), deleted: None },
            partitions: Some(vec![summary.clone(), summary]),
            key_metadata: None,
        };
        assert_eq!(describe_list("l.avro", &file, false, &[]).unwrap().0, [expected]);
    }

    #[test]
    fn a_small_list_with_countless_summaries_is_refused() {
        let mut list = record("m.avro", 0, [None, None], None);
        let Value::Record(fields) = &mut list else { panic!("{list:?}") };
        for (_, value) in fields.iter_mut().filter(|(name, _)| name == "partitions") {
            let Value::Union(_, summaries) = value else { panic!("{value:?}") };
            let Value::Array(summaries) = summaries.as_mut() else { panic!("{summaries:?}") };
            summaries.resize(50_000, summaries[0].clone());
        }
        let file = file_of(SCHEMA, "deflate", 8, &[list]);
        let error = describe_list("l.avro", &file, false, &[]).unwrap_err().to_string();
        assert!(error.contains("it has more partition summaries than a list of its size can have"), "{error}");
    }

    #[test]
    fn a_list_that_is_cut_or_encrypted_is_an_error() {
        let file = real_file("v2-list.avro");
        for length in [0, 3, file.len() / 2, file.len() - 1] {
            let error = describe_list("l.avro", &file[..length], false, &[]).unwrap_err();
            assert!(matches!(error, Error::Malformed { what: "a manifest list", .. }), "{length}: {error}");
        }
        assert!(describe_list("l.avro", b"AGS1", false, &[]).unwrap_err().to_string().contains("encrypted"));
        assert!(describe_list("l.avro", b"else", true, &[]).unwrap_err().to_string().contains("encrypted"));
    }
}
