//! Parts of table metadata as the metadata spelled them: what an edit takes out, and what is put back.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::document::{Document, array_of};
use super::metadata::TableMetadata;
use crate::error::{Error, Result};

/// The lists of table metadata that maintenance takes elements out of.
const LISTS: [&str; 7] =
    ["snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log", "partition-specs", "schemas"];
/// The map that maintenance takes entries out of.
pub(crate) const REFS: &str = "refs";

/// A part of table metadata that an edit takes out or puts in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetadataPart {
    /// The field that it was in: `snapshots`, `refs`, `statistics` …
    pub field: String,
    /// The name of a ref; elements of lists have none.
    pub name: Option<String>,
    /// Its JSON, letter by letter.
    pub json: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Ids {
    #[serde(default)]
    snapshot_id: Option<i64>,
    #[serde(default)]
    spec_id: Option<i32>,
    #[serde(default)]
    schema_id: Option<i32>,
}

impl MetadataPart {
    /// The snapshot that the part is, or speaks of.
    pub fn snapshot_id(&self) -> Option<i64> {
        self.ids().and_then(|ids| ids.snapshot_id)
    }

    /// The partition spec that the part is.
    pub(crate) fn spec_id(&self) -> Option<i32> {
        self.ids().and_then(|ids| ids.spec_id)
    }

    /// The schema that the part is, or speaks of.
    pub(crate) fn schema_id(&self) -> Option<i32> {
        self.ids().and_then(|ids| ids.schema_id)
    }

    fn ids(&self) -> Option<Ids> {
        serde_json::from_str(&self.json).ok()
    }
}

/// Which of the parts that were taken out can go back into `base`: those that are not there, and that speak of snapshots which are
/// there or go back, too. Entries of the metadata log stay out, because the log keeps the limit that the table sets.
pub(crate) fn parts_to_restore(parts: &[MetadataPart], base: &TableMetadata) -> Vec<MetadataPart> {
    let returning: HashSet<i64> = parts
        .iter()
        .filter(|part| part.field == "snapshots")
        .filter_map(MetadataPart::snapshot_id)
        .filter(|id| base.snapshot(*id).is_none())
        .collect();
    let refs = base.refs();
    let specs: HashSet<i32> = base.partition_spec_ids().collect();
    let schemas: HashSet<i32> = base.schema_ids().collect();
    let goes_back = |part: &&MetadataPart| {
        let Some(ids) = part.ids() else { return false };
        let speaks_of_what_is_there =
            ids.snapshot_id.is_some_and(|id| returning.contains(&id) || base.snapshot(id).is_some());
        match part.field.as_str() {
            "snapshots" => ids.snapshot_id.is_some_and(|id| returning.contains(&id)),
            "statistics" | "partition-statistics" | "snapshot-log" => {
                ids.snapshot_id.is_some_and(|id| returning.contains(&id))
            }
            REFS => speaks_of_what_is_there && part.name.as_ref().is_some_and(|name| !refs.contains_key(name)),
            "partition-specs" => ids.spec_id.is_some_and(|id| !specs.contains(&id)),
            "schemas" => ids.schema_id.is_some_and(|id| !schemas.contains(&id)),
            _ => false,
        }
    };
    parts.iter().filter(goes_back).cloned().collect()
}

/// A schema or partition spec that was taken out and whose id is another one's in `base`, in words.
pub(crate) fn taken_id(parts: &[MetadataPart], base: &TableMetadata) -> Option<String> {
    for (field, what) in [("schemas", "schema"), ("partition-specs", "partition spec")] {
        let there: Vec<&RawValue> = base.document().elements(field).ok().flatten().unwrap_or_default();
        for part in parts.iter().filter(|part| part.field == field) {
            let id = if field == "schemas" { part.schema_id() } else { part.spec_id() };
            let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
            let is_other = |element: &&&RawValue| {
                let part_there = MetadataPart { field: field.into(), name: None, json: element.get().into() };
                let id_there = if field == "schemas" { part_there.schema_id() } else { part_there.spec_id() };
                id_there == id && value(element.get()) != value(&part.json)
            };
            if there.iter().any(|element| is_other(&element)) {
                return Some(format!("{what} {}", id.map_or_else(|| "without an id".into(), |id| id.to_string())));
            }
        }
    }
    None
}

/// Puts parts into a document: elements of lists before those that are there, because they were there before them.
pub(super) fn put_in(parts: &[MetadataPart], document: &mut Document) -> serde_json::Result<()> {
    for field in LISTS {
        let added: Vec<&MetadataPart> = parts.iter().filter(|part| part.field == field).collect();
        if added.is_empty() {
            continue;
        }
        let added: Vec<Box<RawValue>> =
            added.into_iter().map(|part| RawValue::from_string(part.json.clone())).collect::<Result<_, _>>()?;
        let mut elements: Vec<&RawValue> = added.iter().map(AsRef::as_ref).collect();
        elements.extend(document.elements(field)?.unwrap_or_default());
        let json = array_of(&elements);
        document.set_json(field, json);
    }
    let refs: Vec<_> = parts.iter().filter(|part| part.field == REFS).collect();
    if !refs.is_empty() {
        let mut object = match document.object(REFS)? {
            Some(object) => object,
            None => Document::parse("{}")?,
        };
        for part in refs {
            if let Some(name) = &part.name {
                object.set_json(name, part.json.clone());
            }
        }
        document.set_object(REFS, &object);
    }
    Ok(())
}

/// What `base` has and `edited`, which was made from it, has not, in the order of the base.
///
/// # Errors
/// [`Error::InvalidMetadata`] when one of the lists is none.
pub(crate) fn removed_parts(base: &TableMetadata, edited: &str) -> Result<Vec<MetadataPart>> {
    let compare = || -> serde_json::Result<Vec<MetadataPart>> {
        let (before, after) = (base.document(), Document::parse(edited)?);
        let mut parts = vec![];
        for field in LISTS {
            let mut kept: HashMap<&str, usize> = HashMap::new();
            for element in after.elements(field)?.unwrap_or_default() {
                *kept.entry(element.get()).or_default() += 1;
            }
            for element in before.elements(field)?.unwrap_or_default() {
                match kept.get_mut(element.get()).filter(|count| **count > 0) {
                    Some(count) => *count -= 1,
                    None => parts.push(MetadataPart { field: field.into(), name: None, json: element.get().into() }),
                }
            }
        }
        let (before, after) = (before.object(REFS)?, after.object(REFS)?);
        let is_kept = |name: &str| after.as_ref().is_some_and(|refs| refs.raw(name).is_some());
        for (name, json) in before.iter().flat_map(Document::fields).filter(|(name, _)| !is_kept(name)) {
            parts.push(MetadataPart { field: REFS.into(), name: Some(name.into()), json: json.into() });
        }
        Ok(parts)
    };
    compare().map_err(|error| Error::InvalidMetadata {
        path: base.metadata_location().into(),
        why: format!("what a change takes out of it can't be told: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::MetadataChange;

    #[test]
    fn every_part_that_goes_is_kept_as_it_was_spelled() {
        let json = r#"{"format-version":2,"location":"/t","current-snapshot-id":2,
            "snapshots":[{"snapshot-id":1,"timestamp-ms":1,"manifest-list":"/t/1", "x": 1.50},{"snapshot-id":2,"timestamp-ms":2,"manifest-list":"/t/2"}],
            "refs":{"main":{"snapshot-id":2,"type":"branch"},"o\u006cd":{"snapshot-id":1, "type":"tag"}},
            "snapshot-log":[{"snapshot-id":1,"timestamp-ms":1},{"snapshot-id":2,"timestamp-ms":2}],
            "statistics":[{"snapshot-id":1,"statistics-path":"/t/s1"}]}"#;
        let base = TableMetadata::parse("/t/metadata/v3.metadata.json", json.as_bytes()).unwrap();
        let change = MetadataChange {
            removed_snapshot_ids: [1].into(),
            removed_refs: ["old".to_string()].into(),
            ..Default::default()
        };
        let parts = removed_parts(&base, &change.apply(&base, 9).unwrap().json).unwrap();
        let found: Vec<_> =
            parts.iter().map(|part| (part.field.as_str(), part.name.as_deref(), part.json.as_str())).collect();
        assert_eq!(
            found,
            [
                ("snapshots", None, r#"{"snapshot-id":1,"timestamp-ms":1,"manifest-list":"/t/1", "x": 1.50}"#),
                ("statistics", None, r#"{"snapshot-id":1,"statistics-path":"/t/s1"}"#),
                ("snapshot-log", None, r#"{"snapshot-id":1,"timestamp-ms":1}"#),
                ("refs", Some("old"), r#"{"snapshot-id":1, "type":"tag"}"#),
            ]
        );
    }
}
