//! A change to table metadata, and how it is applied to the JSON without touching anything else.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::document::{Document, array_of};
use super::location::{Location, PathRules};
use super::metadata::{MetadataLogEntry, TableMetadata};
use super::parts::{MetadataPart, put_in};
use crate::error::{Error, Result};

/// What a commit takes out of the metadata, or puts back. Nothing else changes, except the bookkeeping of the commit itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MetadataChange {
    /// Snapshots to remove, with their statistics entries.
    pub removed_snapshot_ids: BTreeSet<i64>,
    /// Refs to remove.
    pub removed_refs: BTreeSet<String>,
    /// Partition specs to remove.
    pub removed_partition_spec_ids: BTreeSet<i32>,
    /// Schemas to remove.
    pub removed_schema_ids: BTreeSet<i32>,
    /// What an earlier commit took out, to be put back.
    pub restored: Vec<MetadataPart>,
}

/// New metadata, ready to be written.
#[derive(Debug, Clone)]
pub struct ChangedMetadata {
    /// The metadata file's content (plain JSON).
    pub json: String,
    /// Metadata files that fell out of the metadata log, because it keeps `write.metadata.previous-versions-max` entries.
    pub dropped_log_entries: Vec<MetadataLogEntry>,
}

impl MetadataChange {
    /// True when there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Applies the change.
    ///
    /// `snapshot-log` loses each entry of a snapshot that is gone and everything before it, as Java does; the base's own
    /// file joins `metadata-log`, which keeps its limit; `last-updated-ms` becomes `now_ms` but never goes back.
    ///
    /// # Errors
    /// [`Error::InvalidMetadata`] when a field to be edited is not what the spec says.
    pub fn apply(&self, base: &TableMetadata, now_ms: i64) -> Result<ChangedMetadata> {
        let invalid = |e: serde_json::Error| Error::InvalidMetadata {
            path: base.metadata_location().into(),
            why: format!("it can't be edited: {e}"),
        };
        let mut document = base.document().clone();
        let dropped_log_entries = self.edit(base, now_ms, &mut document).map_err(invalid)??;
        Ok(ChangedMetadata { json: document.to_json(), dropped_log_entries })
    }

    fn edit(
        &self,
        base: &TableMetadata,
        now_ms: i64,
        document: &mut Document,
    ) -> serde_json::Result<Result<Vec<MetadataLogEntry>>> {
        if !self.removed_snapshot_ids.is_empty() {
            self.remove_snapshots(base, document)?;
        }
        if !self.removed_partition_spec_ids.is_empty() {
            retain::<SpecId>(document, "partition-specs", |id| !self.removed_partition_spec_ids.contains(&id.spec_id))?;
        }
        if !self.removed_schema_ids.is_empty() {
            retain::<SchemaId>(document, "schemas", |id| {
                !id.schema_id.is_some_and(|id| self.removed_schema_ids.contains(&id))
            })?;
        }
        if let Some(mut refs) = document.object("refs")?
            && !self.removed_refs.is_empty()
        {
            refs.retain(|name| !self.removed_refs.contains(name));
            document.set_object("refs", &refs);
        }
        if !self.restored.is_empty() {
            put_in(&self.restored, document)?;
        }
        let limit = match base.properties().previous_versions_max() {
            Ok(limit) => limit,
            Err(error) => return Ok(Err(error)),
        };
        let dropped = append_to_metadata_log(document, base, now_ms, limit)?;
        let updated = base.last_updated_ms().map_or(now_ms, |before| before.max(now_ms));
        document.set("last-updated-ms", &updated)?;
        Ok(Ok(dropped))
    }

    /// Removes snapshots, and the entries that describe them elsewhere.
    fn remove_snapshots(&self, base: &TableMetadata, document: &mut Document) -> serde_json::Result<()> {
        let stays = |id: &i64| !self.removed_snapshot_ids.contains(id);
        let staying: HashSet<i64> = base.snapshots().iter().map(|s| s.snapshot_id).filter(stays).collect();
        if let Some(elements) = document.elements("snapshots")?
            && staying.len() < elements.len()
        {
            // The view was read from these elements: which stands where is known without reading them again.
            let elements = elements.into_iter().zip(base.snapshots());
            let kept: Vec<_> =
                elements.filter(|(_, snapshot)| stays(&snapshot.snapshot_id)).map(|(json, _)| json).collect();
            let kept = array_of(&kept);
            document.set_json("snapshots", kept);
        }
        retain::<SnapshotId>(document, "statistics", |id| stays(&id.snapshot_id))?;
        retain::<SnapshotId>(document, "partition-statistics", |id| stays(&id.snapshot_id))?;
        trim_snapshot_log(document, &staying)
    }
}

#[derive(Deserialize)]
struct SnapshotId {
    #[serde(rename = "snapshot-id")]
    snapshot_id: i64,
}

#[derive(Deserialize)]
struct SpecId {
    #[serde(rename = "spec-id")]
    spec_id: i32,
}

#[derive(Deserialize)]
struct SchemaId {
    #[serde(default, rename = "schema-id")]
    schema_id: Option<i32>,
}

/// Keeps the elements of an array that pass; the array is written anew only if one doesn't.
fn retain<T: for<'de> Deserialize<'de>>(
    document: &mut Document,
    field: &str,
    keep: impl Fn(&T) -> bool,
) -> serde_json::Result<()> {
    let Some(elements) = document.elements(field)? else { return Ok(()) };
    let mut kept: Vec<&RawValue> = Vec::with_capacity(elements.len());
    for element in &elements {
        if keep(&serde_json::from_str::<T>(element.get())?) {
            kept.push(element);
        }
    }
    if kept.len() < elements.len() {
        let kept = array_of(&kept);
        document.set_json(field, kept);
    }
    Ok(())
}

fn trim_snapshot_log(document: &mut Document, staying: &HashSet<i64>) -> serde_json::Result<()> {
    let Some(entries) = document.elements("snapshot-log")? else { return Ok(()) };
    let mut first_kept = 0;
    for (index, entry) in entries.iter().enumerate() {
        if !staying.contains(&serde_json::from_str::<SnapshotId>(entry.get())?.snapshot_id) {
            first_kept = index + 1;
        }
    }
    if first_kept > 0 {
        let kept = array_of(&entries[first_kept..]);
        document.set_json("snapshot-log", kept);
    }
    Ok(())
}

fn append_to_metadata_log(
    document: &mut Document,
    base: &TableMetadata,
    now_ms: i64,
    limit: usize,
) -> serde_json::Result<Vec<MetadataLogEntry>> {
    let previous = MetadataLogEntry {
        timestamp_ms: base.last_updated_ms().unwrap_or(now_ms),
        metadata_file: base.metadata_location().into(),
    };
    // Some writers put the file itself into its own log.
    let is_last = |last: &MetadataLogEntry| {
        let (last, own) = (Location::parse(&last.metadata_file), Location::parse(&previous.metadata_file));
        matches!((last, own), (Ok(last), Ok(own)) if PathRules::new(base.location()).same_place(&last, &own))
    };
    let joining = match base.metadata_log().last().is_some_and(is_last) {
        true => None,
        false => Some(serde_json::value::to_raw_value(&previous)?),
    };
    let mut entries = document.elements("metadata-log")?.unwrap_or_default();
    entries.extend(joining.as_deref());
    let kept = entries.split_off(entries.len().saturating_sub(limit));
    let (dropped, kept) = (entries.iter().map(|entry| serde_json::from_str(entry.get())).collect(), array_of(&kept));
    document.set_json("metadata-log", kept);
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"{"future-field":{"a":[1.50,12345678901234567890123]},"format-version":2,"table-uuid":"u","location":"/t","last-updated-ms":500,"properties":{"write.metadata.previous-versions-max":"2"},"current-snapshot-id":9007199254740993,"snapshots":[{"snapshot-id":1,"timestamp-ms":1,"manifest-list":"/t/1"},{"snapshot-id":9007199254740993,"timestamp-ms":2,"manifest-list":"/t/2","unknown":null,"summary":{"operation":"append","n":"9007199254740993"}}],"refs":{"old":{"snapshot-id":1,"type":"tag"},"main":{"snapshot-id":9007199254740993,"type":"branch","x":1}},"snapshot-log":[{"snapshot-id":9007199254740993,"timestamp-ms":0},{"snapshot-id":1,"timestamp-ms":1},{"snapshot-id":9007199254740993,"timestamp-ms":2}],"metadata-log":[{"timestamp-ms":1,"metadata-file":"/t/metadata/v1.metadata.json"},{"timestamp-ms":2,"metadata-file":"/t/metadata/v2.metadata.json"}],"statistics":[{"snapshot-id":1,"statistics-path":"/t/s1","blob-metadata":[]}],"partition-specs":[{"spec-id":0},{"spec-id":1,"fields":[]}],"schemas":[{"schema-id":0},{"schema-id":1}],"next-row-id":77,"encryption-keys":[{"key-id":"k"}]}"#;

    fn base() -> TableMetadata {
        TableMetadata::parse("/t/metadata/v3.metadata.json", BASE.as_bytes()).unwrap()
    }

    #[test]
    fn only_what_the_change_names_is_edited() {
        let change = MetadataChange {
            removed_snapshot_ids: [1].into(),
            removed_refs: ["old".to_string()].into(),
            removed_partition_spec_ids: [0].into(),
            removed_schema_ids: [1].into(),
            ..Default::default()
        };
        let changed = change.apply(&base(), 600).unwrap();
        assert_eq!(
            changed.json,
            r#"{"future-field":{"a":[1.50,12345678901234567890123]},"format-version":2,"table-uuid":"u","location":"/t","last-updated-ms":600,"properties":{"write.metadata.previous-versions-max":"2"},"current-snapshot-id":9007199254740993,"snapshots":[{"snapshot-id":9007199254740993,"timestamp-ms":2,"manifest-list":"/t/2","unknown":null,"summary":{"operation":"append","n":"9007199254740993"}}],"refs":{"main":{"snapshot-id":9007199254740993,"type":"branch","x":1}},"snapshot-log":[{"snapshot-id":9007199254740993,"timestamp-ms":2}],"metadata-log":[{"timestamp-ms":2,"metadata-file":"/t/metadata/v2.metadata.json"},{"timestamp-ms":500,"metadata-file":"/t/metadata/v3.metadata.json"}],"statistics":[],"partition-specs":[{"spec-id":1,"fields":[]}],"schemas":[{"schema-id":0}],"next-row-id":77,"encryption-keys":[{"key-id":"k"}]}"#
        );
        let dropped: Vec<_> = changed.dropped_log_entries.iter().map(|e| e.metadata_file.as_str()).collect();
        assert_eq!(dropped, ["/t/metadata/v1.metadata.json"]);
    }

    #[test]
    fn time_does_not_go_back() {
        let change = MetadataChange { removed_snapshot_ids: [1].into(), ..Default::default() };
        assert!(change.apply(&base(), 100).unwrap().json.contains(r#""last-updated-ms":500"#));
    }

    #[test]
    fn absent_fields_stay_absent() {
        let text = r#"{"format-version":1,"location":"/t","current-snapshot-id":2,"snapshots":[{"snapshot-id":1,"timestamp-ms":1,"manifests":["/m"]},{"snapshot-id":2,"timestamp-ms":2,"manifests":["/m"]}]}"#;
        let base = TableMetadata::parse("/t/metadata/v1.metadata.json", text.as_bytes()).unwrap();
        let change = MetadataChange { removed_snapshot_ids: [1].into(), ..Default::default() };
        assert_eq!(
            change.apply(&base, 9).unwrap().json,
            r#"{"format-version":1,"location":"/t","current-snapshot-id":2,"snapshots":[{"snapshot-id":2,"timestamp-ms":2,"manifests":["/m"]}],"metadata-log":[{"timestamp-ms":9,"metadata-file":"/t/metadata/v1.metadata.json"}],"last-updated-ms":9}"#
        );
    }
}
