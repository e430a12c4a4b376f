//! Table metadata: the JSON as it was read, and a typed view of what decisions are made on.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use serde::Deserialize;

use super::document::Document;
use super::location::{Location, PathRules, Root, Roots};
use super::properties::Properties;
use super::summary::SnapshotSummary;
use crate::error::{Error, Result};

/// The name of the branch that every table has.
pub const MAIN_BRANCH: &str = "main";

/// No metadata file is larger than this after decompression; a larger one is taken for a decompression bomb.
const MAX_METADATA_BYTES: u64 = 4 << 30;
/// What any file may be inflated to.
const ALWAYS_INFLATED: u64 = 64 << 20;
/// How many times its size a larger one may be inflated to. Metadata inflates to some thirty times its size at most.
const MAX_INFLATION: u64 = 256;

/// One version of a table's metadata.
///
/// Holds the JSON document losslessly and a typed view of the fields that maintenance decides on. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TableMetadata {
    metadata_location: Arc<str>,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    document: Document,
    view: View,
    /// Where each snapshot stands in the view, by its id.
    snapshot_index: HashMap<i64, usize>,
    properties: Properties,
    location: Location,
}

/// The fields that maintenance reads. Unknown ones stay in the document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct View {
    format_version: i64,
    #[serde(default)]
    table_uuid: Option<String>,
    location: String,
    #[serde(default)]
    last_updated_ms: Option<i64>,
    #[serde(default)]
    properties: Option<BTreeMap<String, String>>,
    #[serde(default)]
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Option<Vec<Snapshot>>,
    #[serde(default)]
    refs: Option<BTreeMap<String, SnapshotRef>>,
    #[serde(default)]
    snapshot_log: Option<Vec<SnapshotLogEntry>>,
    #[serde(default)]
    metadata_log: Option<Vec<MetadataLogEntry>>,
    #[serde(default)]
    statistics: Option<Vec<StatisticsFile>>,
    #[serde(default)]
    partition_statistics: Option<Vec<StatisticsFile>>,
    #[serde(default)]
    current_schema_id: Option<i32>,
    #[serde(default)]
    schemas: Option<Vec<SchemaId>>,
    #[serde(default)]
    default_spec_id: Option<i32>,
    #[serde(default)]
    partition_specs: Option<Vec<PartitionSpec>>,
}

/// A snapshot (table spec, section "Snapshots").
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Snapshot {
    /// The snapshot's id.
    pub snapshot_id: i64,
    /// The parent's id. Some writers put -1 for "none".
    #[serde(default)]
    pub parent_snapshot_id: Option<i64>,
    /// The sequence number; v1 snapshots have none.
    #[serde(default)]
    pub sequence_number: Option<i64>,
    /// When the snapshot was made, in ms since the epoch, UTC.
    pub timestamp_ms: i64,
    /// The manifest list's location. v1 snapshots may name their manifests directly instead.
    #[serde(default)]
    pub manifest_list: Option<String>,
    /// v1 only: the manifests' locations, when there is no manifest list.
    #[serde(default)]
    pub manifests: Option<Vec<String>>,
    /// The schema the snapshot was written with, if the writer noted it.
    #[serde(default)]
    pub schema_id: Option<i32>,
    /// v3: the key that encrypts the manifest list's key metadata. Set means that the list is encrypted.
    #[serde(default)]
    pub key_id: Option<String>,
    /// What the writer says of the snapshot, as far as maintenance asks.
    #[serde(default)]
    pub summary: Option<SnapshotSummary>,
}

/// What a ref is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RefKind {
    /// A branch: its head and its ancestors, by the branch's retention fields.
    Branch,
    /// A tag: exactly its snapshot.
    Tag,
}

/// A branch or tag (table spec, section "Snapshot References").
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotRef {
    /// The snapshot that the ref points to.
    pub snapshot_id: i64,
    /// Branch or tag.
    #[serde(rename = "type")]
    pub kind: RefKind,
    /// Branches only: how many snapshots of the branch to keep whatever their age.
    #[serde(default, deserialize_with = "retention_field::min_snapshots_to_keep")]
    pub min_snapshots_to_keep: Option<i32>,
    /// Branches only: ancestors older than this (ms) may expire.
    #[serde(default, deserialize_with = "retention_field::max_snapshot_age_ms")]
    pub max_snapshot_age_ms: Option<i64>,
    /// The ref itself goes when its snapshot is older than this (ms); never for `main`.
    #[serde(default, deserialize_with = "retention_field::max_ref_age_ms")]
    pub max_ref_age_ms: Option<i64>,
}

/// Errors of serde_json give a value and its column, but no field.
mod retention_field {
    use serde::{Deserialize, Deserializer, de::Error};

    pub(super) fn min_snapshots_to_keep<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
        Option::deserialize(from).map_err(|e| D::Error::custom(format!("min-snapshots-to-keep: {e}")))
    }

    pub(super) fn max_snapshot_age_ms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
        Option::deserialize(from).map_err(|e| D::Error::custom(format!("max-snapshot-age-ms: {e}")))
    }

    pub(super) fn max_ref_age_ms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
        Option::deserialize(from).map_err(|e| D::Error::custom(format!("max-ref-age-ms: {e}")))
    }
}

/// An entry of `snapshot-log`: when a snapshot became the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotLogEntry {
    /// The snapshot.
    pub snapshot_id: i64,
    /// When it became current, ms since the epoch.
    pub timestamp_ms: i64,
}

/// An entry of `metadata-log`: a previous metadata file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MetadataLogEntry {
    /// When that metadata was made, ms since the epoch.
    pub timestamp_ms: i64,
    /// Its location.
    pub metadata_file: String,
}

/// A statistics or partition-statistics file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StatisticsFile {
    /// The snapshot that the statistics describe.
    pub snapshot_id: i64,
    /// The file's location.
    pub statistics_path: String,
    /// The file's size.
    #[serde(default)]
    pub file_size_in_bytes: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SchemaId {
    #[serde(default)]
    schema_id: Option<i32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PartitionSpec {
    spec_id: i32,
    #[serde(default)]
    fields: Vec<PartitionField>,
}

#[derive(Debug, Clone, Deserialize)]
struct PartitionField {
    name: String,
}

impl TableMetadata {
    /// Reads a metadata file's content, plain or gzip whatever its name says.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is not a JSON object of table metadata, [`Error::UnsupportedFormatVersion`] for a
    /// format version above 3, [`Error::InvalidMetadata`] when a field that decisions depend on breaks the spec.
    pub fn parse(metadata_location: &str, bytes: &[u8]) -> Result<Self> {
        let malformed = |why: String| Error::Malformed { what: "table metadata", path: metadata_location.into(), why };
        let text = decompress(bytes).map_err(|e| malformed(e.to_string()))?;
        let document = Document::parse(text).map_err(|e| malformed(e.to_string()))?;
        let version: Option<i64> = document.get("format-version").map_err(|e| malformed(e.to_string()))?;
        match version {
            None => return Err(malformed("it has no format-version".into())),
            Some(version) if version > 3 => {
                return Err(Error::UnsupportedFormatVersion { table: metadata_location.into(), version });
            }
            Some(version) if version < 1 => return Err(malformed(format!("format-version is {version}"))),
            Some(_) => {}
        }
        // Which of two values of one key counts differs between readers.
        for field in ["refs", "properties"] {
            document.object(field).map_err(|e| malformed(format!("{field}: {e}")))?;
        }
        let view: View = serde_json::from_str(document.text()).map_err(|e| malformed(e.to_string()))?;
        Self::assemble(metadata_location, document, view)
    }

    fn assemble(metadata_location: &str, document: Document, mut view: View) -> Result<Self> {
        let invalid = |why: String| Error::InvalidMetadata { path: metadata_location.into(), why };
        let location = Location::parse(&view.location)
            .map_err(|_| invalid(format!("location is {:?}, which is not absolute", view.location)))?;
        let properties = Properties::new(view.properties.take().unwrap_or_default(), metadata_location);
        let snapshot_index = index_by_id(view.snapshots.as_deref().unwrap_or_default()).map_err(invalid)?;
        let inner = Inner { document, view, snapshot_index, properties, location };
        let metadata = Self { metadata_location: metadata_location.into(), inner: Arc::new(inner) };
        metadata.check().map_err(invalid)?;
        Ok(metadata)
    }

    /// The rules that a decision relies on. What no decision needs is not checked.
    fn check(&self) -> std::result::Result<(), String> {
        for snapshot in self.snapshots() {
            check_manifests(snapshot, self.format_version())?;
        }
        if let Some(current) = self.current_snapshot_id()
            && self.snapshot(current).is_none()
        {
            return Err(format!("current-snapshot-id {current} is not among the snapshots"));
        }
        for (name, reference) in self.refs() {
            let positive = [
                ("min-snapshots-to-keep", reference.min_snapshots_to_keep.map(i64::from)),
                ("max-snapshot-age-ms", reference.max_snapshot_age_ms),
                ("max-ref-age-ms", reference.max_ref_age_ms),
            ];
            if let Some((field, value)) = positive.iter().find_map(|(f, v)| v.filter(|v| *v <= 0).map(|v| (f, v))) {
                return Err(format!("ref {name} has {field} = {value}, which must be positive"));
            }
        }
        Ok(())
    }

    /// Where this metadata was read from.
    pub fn metadata_location(&self) -> &str {
        &self.metadata_location
    }

    /// 1, 2 or 3.
    pub fn format_version(&self) -> i64 {
        self.inner.view.format_version
    }

    /// The table's uuid; v1 tables may have none.
    pub fn table_uuid(&self) -> Option<&str> {
        self.inner.view.table_uuid.as_deref()
    }

    /// The table's location.
    pub fn location(&self) -> &Location {
        &self.inner.location
    }

    /// The table's properties.
    pub fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    /// When this metadata was made, ms since the epoch.
    pub fn last_updated_ms(&self) -> Option<i64> {
        self.inner.view.last_updated_ms
    }

    /// The current snapshot. Absent, `null` and -1 all mean that there is none.
    pub fn current_snapshot_id(&self) -> Option<i64> {
        self.inner.view.current_snapshot_id.filter(|id| *id != -1)
    }

    /// All snapshots, in the order of the file.
    pub fn snapshots(&self) -> &[Snapshot] {
        self.inner.view.snapshots.as_deref().unwrap_or_default()
    }

    /// The snapshot with this id.
    pub fn snapshot(&self, id: i64) -> Option<&Snapshot> {
        self.inner.snapshot_index.get(&id).map(|at| &self.snapshots()[*at])
    }

    /// All refs. Where the metadata names no `main`, the current snapshot implies it (table spec, "Snapshot References").
    pub fn refs(&self) -> BTreeMap<String, SnapshotRef> {
        let mut refs = self.inner.view.refs.clone().unwrap_or_default();
        if let (false, Some(snapshot_id)) = (refs.contains_key(MAIN_BRANCH), self.current_snapshot_id()) {
            let main = SnapshotRef {
                snapshot_id,
                kind: RefKind::Branch,
                min_snapshots_to_keep: None,
                max_snapshot_age_ms: None,
                max_ref_age_ms: None,
            };
            refs.insert(MAIN_BRANCH.to_string(), main);
        }
        refs
    }

    /// When each snapshot became current, oldest first.
    pub fn snapshot_log(&self) -> &[SnapshotLogEntry] {
        self.inner.view.snapshot_log.as_deref().unwrap_or_default()
    }

    /// The previous metadata files, oldest first.
    pub fn metadata_log(&self) -> &[MetadataLogEntry] {
        self.inner.view.metadata_log.as_deref().unwrap_or_default()
    }

    /// Table statistics files.
    pub fn statistics(&self) -> &[StatisticsFile] {
        self.inner.view.statistics.as_deref().unwrap_or_default()
    }

    /// Partition statistics files.
    pub fn partition_statistics(&self) -> &[StatisticsFile] {
        self.inner.view.partition_statistics.as_deref().unwrap_or_default()
    }

    /// The current schema's id.
    pub fn current_schema_id(&self) -> Option<i32> {
        self.inner.view.current_schema_id
    }

    /// The ids of all schemas that have one.
    pub fn schema_ids(&self) -> impl Iterator<Item = i32> {
        self.inner.view.schemas.iter().flatten().filter_map(|schema| schema.schema_id)
    }

    /// The default partition spec's id.
    pub fn default_spec_id(&self) -> Option<i32> {
        self.inner.view.default_spec_id
    }

    /// The ids of all partition specs.
    pub fn partition_spec_ids(&self) -> impl Iterator<Item = i32> {
        self.inner.view.partition_specs.iter().flatten().map(|spec| spec.spec_id)
    }

    /// The names of the partition fields of all specs.
    pub fn partition_field_names(&self) -> impl Iterator<Item = &str> {
        self.inner.view.partition_specs.iter().flatten().flat_map(|spec| &spec.fields).map(|field| field.name.as_str())
    }

    /// The folders that belong to this table. A write path that holds the table's own location is none: whatever else lies
    /// there belongs to others.
    pub fn roots(&self, rules: PathRules) -> Roots {
        let mut roots = vec![Root { location: self.location().clone(), named_by: "location" }];
        roots.extend(self.properties().write_paths().filter_map(|(named_by, path)| {
            let location = Location::parse(path).ok()?;
            let root = Root { location, named_by };
            let holds_the_table = Roots::new(vec![root.clone()], rules.clone()).contains(&self.location().to_text());
            (!holds_the_table).then_some(root)
        }));
        Roots::new(roots, rules)
    }

    /// The same metadata under another spelling of its own location.
    pub(crate) fn with_metadata_location(self, metadata_location: &str) -> Self {
        Self { metadata_location: metadata_location.into(), ..self }
    }

    /// True when both hold the same JSON, wherever they were read from.
    pub(crate) fn is_same_document(&self, other: &Self) -> bool {
        self.inner.document == other.inner.document
    }

    /// True when this is what was read from exactly this JSON.
    pub(crate) fn has_json(&self, json: &str) -> bool {
        self.inner.document.is_json(json)
    }

    pub(crate) fn document(&self) -> &Document {
        &self.inner.document
    }
}

fn index_by_id(snapshots: &[Snapshot]) -> std::result::Result<HashMap<i64, usize>, String> {
    let mut index = HashMap::with_capacity(snapshots.len());
    for (at, snapshot) in snapshots.iter().enumerate() {
        if index.insert(snapshot.snapshot_id, at).is_some() {
            return Err(format!("snapshot {} occurs twice", snapshot.snapshot_id));
        }
    }
    Ok(index)
}

/// A snapshot must say where its manifests are, in absolute locations.
fn check_manifests(snapshot: &Snapshot, format_version: i64) -> std::result::Result<(), String> {
    let id = snapshot.snapshot_id;
    match (&snapshot.manifest_list, &snapshot.manifests) {
        (None, None) => {
            return Err(format!("snapshot {id} has neither manifest-list nor manifests: its files are unknown"));
        }
        (None, Some(_)) if format_version > 1 => {
            return Err(format!("snapshot {id} lists manifests inline, which only v1 allows"));
        }
        _ => {}
    }
    let mut named = snapshot.manifest_list.iter().chain(snapshot.manifests.iter().flatten());
    match named.find(|file| Location::parse(file).is_err()) {
        Some(relative) => Err(format!("snapshot {id} names {relative:?}, which is not absolute")),
        None => Ok(()),
    }
}

/// What tells one table from another in a metadata file, read without asking for more than that.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct TableIdentity {
    #[serde(default)]
    table_uuid: Option<String>,
    #[serde(default)]
    view_uuid: Option<String>,
    location: String,
    #[serde(default)]
    last_updated_ms: Option<i64>,
    #[serde(default)]
    snapshots: Option<Vec<SnapshotIdentity>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SnapshotIdentity {
    snapshot_id: i64,
}

impl TableIdentity {
    /// When the metadata was made, ms since the epoch.
    pub(crate) fn last_updated_ms(&self) -> Option<i64> {
        self.last_updated_ms
    }

    /// Where it says that it lives.
    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    /// True for the metadata of a view, which is called and kept like a table's.
    pub(crate) fn is_view(&self) -> bool {
        self.table_uuid.is_none() && self.view_uuid.is_some()
    }

    pub(crate) fn of(metadata: &TableMetadata) -> Self {
        Self {
            table_uuid: metadata.table_uuid().map(str::to_string),
            view_uuid: None,
            location: metadata.location().to_text(),
            last_updated_ms: metadata.last_updated_ms(),
            snapshots: Some(
                metadata.snapshots().iter().map(|s| SnapshotIdentity { snapshot_id: s.snapshot_id }).collect(),
            ),
        }
    }

    /// Reads a metadata file's content, plain or gzip.
    pub(crate) fn read(bytes: &[u8]) -> std::result::Result<Self, String> {
        let text = decompress(bytes).map_err(|e| e.to_string())?;
        serde_json::from_str(&text).map_err(|e| e.to_string())
    }

    /// By uuid. v1 tables that have none are told apart by their location and their snapshots: two tables may well share a
    /// location, but they share no snapshot.
    pub(crate) fn is_same_table(&self, other: &Self, rules: &PathRules) -> bool {
        match (&self.table_uuid, &other.table_uuid) {
            (Some(own), Some(other)) => own.eq_ignore_ascii_case(other),
            _ => match (Location::parse(&self.location), Location::parse(&other.location)) {
                (Ok(own), Ok(place)) => rules.same_place(&own, &place) && self.shares_a_snapshot_with(other),
                _ => false,
            },
        }
    }

    fn shares_a_snapshot_with(&self, other: &Self) -> bool {
        let ids = |identity: &Self| -> HashSet<i64> {
            identity.snapshots.iter().flatten().map(|snapshot| snapshot.snapshot_id).collect()
        };
        let (own, others) = (ids(self), ids(other));
        // Two metadata files without any snapshot are those of one table that was just made.
        (own.is_empty() && others.is_empty()) || !own.is_disjoint(&others)
    }
}

impl std::fmt::Display for TableIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let uuid = self.table_uuid.as_deref().unwrap_or("absent");
        write!(f, "table-uuid {uuid}, location {}", self.location)
    }
}

/// Undoes gzip if the content starts with its magic number; the file's name is not asked.
fn decompress(bytes: &[u8]) -> std::io::Result<Cow<'_, str>> {
    let not_utf8 = || std::io::Error::other("it is not UTF-8 text");
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| not_utf8());
    }
    let most = (bytes.len() as u64).saturating_mul(MAX_INFLATION).clamp(ALWAYS_INFLATED, MAX_METADATA_BYTES);
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes).take(most + 1).read_to_end(&mut text)?;
    if text.len() as u64 > most {
        return Err(std::io::Error::other(format!("it inflates to more than {most} bytes")));
    }
    String::from_utf8(text).map(Cow::Owned).map_err(|_| not_utf8())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const MINIMAL: &str = r#"{"format-version":2,"table-uuid":"u","location":"file:/t","current-snapshot-id":-1}"#;

    fn parse(text: &str) -> Result<TableMetadata> {
        TableMetadata::parse("file:/t/metadata/v1.metadata.json", text.as_bytes())
    }

    #[test]
    fn gzip_is_recognised_by_content() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(MINIMAL.as_bytes()).unwrap();
        let metadata = TableMetadata::parse("v1.metadata.json", &encoder.finish().unwrap()).unwrap();
        assert_eq!(metadata.table_uuid(), Some("u"));
        assert_eq!(metadata.current_snapshot_id(), None, "-1 means none");
    }

    #[test]
    fn a_gzip_bomb_is_refused() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(MINIMAL.as_bytes()).unwrap();
        (0..65).for_each(|_| encoder.write_all(&vec![b' '; 1 << 20]).unwrap());
        let error = TableMetadata::parse("v1.metadata.json", &encoder.finish().unwrap()).unwrap_err().to_string();
        assert!(error.contains("it inflates to more than 67108864 bytes"), "{error}");
    }

    #[test]
    fn a_newer_format_is_refused_by_name_even_if_nothing_else_is_known() {
        let error = parse(r#"{"format-version":4}"#).unwrap_err();
        assert!(matches!(error, Error::UnsupportedFormatVersion { version: 4, .. }), "{error}");
    }

    #[test]
    fn metadata_that_no_decision_can_rest_on_is_refused() {
        for (text, says) in [
            ("{}", "no format-version"),
            ("[1]", "JSON object"),
            ("{\"format-version\":2", "EOF"),
            (r#"{"format-version":2,"location":"relative/t"}"#, "not absolute"),
            (r#"{"format-version":2,"location":"/t","current-snapshot-id":7}"#, "current-snapshot-id 7"),
            (r#"{"format-version":2,"location":"/t","snapshots":[{"snapshot-id":1,"timestamp-ms":1}]}"#, "neither"),
            (
                r#"{"format-version":2,"location":"/t","snapshots":[{"snapshot-id":1,"timestamp-ms":1,"manifests":[]}]}"#,
                "only v1",
            ),
            (
                r#"{"format-version":2,"location":"/t","refs":{"b":{"snapshot-id":1,"type":"branch","max-ref-age-ms":0}}}"#,
                "max-ref-age-ms = 0",
            ),
            (r#"{"format-version":2,"location":"/t","refs":{"b":{"snapshot-id":1,"type":"weird"}}}"#, "weird"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn main_is_implied_by_the_current_snapshot() {
        let metadata = parse(
            r#"{"format-version":1,"location":"/t","current-snapshot-id":5,
                "snapshots":[{"snapshot-id":5,"timestamp-ms":1,"manifests":["/t/m"]}]}"#,
        )
        .unwrap();
        assert_eq!(metadata.refs()[MAIN_BRANCH].snapshot_id, 5);
    }
}
