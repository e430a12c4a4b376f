//! What an edit takes out of table metadata, as the metadata spelled it.

use std::collections::HashMap;

use super::document::Document;
use super::metadata::TableMetadata;
use crate::error::{Error, Result};

/// The lists of table metadata that maintenance takes elements out of.
const LISTS: [&str; 7] =
    ["snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log", "partition-specs", "schemas"];
/// The map that maintenance takes entries out of.
pub(crate) const REFS: &str = "refs";

/// A part of table metadata that an edit took out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemovedPart {
    /// The field that it was in: `snapshots`, `refs`, `statistics` …
    pub field: String,
    /// The name of a ref; elements of lists have none.
    pub name: Option<String>,
    /// Its JSON, letter by letter.
    pub json: String,
}

/// What `base` has and `edited`, which was made from it, has not, in the order of the base.
///
/// # Errors
/// [`Error::InvalidMetadata`] when one of the lists is none.
pub(crate) fn removed_parts(base: &TableMetadata, edited: &str) -> Result<Vec<RemovedPart>> {
    let compare = || -> serde_json::Result<Vec<RemovedPart>> {
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
                    None => parts.push(RemovedPart { field: field.into(), name: None, json: element.get().into() }),
                }
            }
        }
        let (before, after) = (before.object(REFS)?, after.object(REFS)?);
        let is_kept = |name: &str| after.as_ref().is_some_and(|refs| refs.raw(name).is_some());
        for (name, json) in before.iter().flat_map(Document::fields).filter(|(name, _)| !is_kept(name)) {
            parts.push(RemovedPart { field: REFS.into(), name: Some(name.into()), json: json.into() });
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
