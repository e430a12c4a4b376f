//! What a commit asks for, and whether metadata shows it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::table::{MetadataChange, TableMetadata};

/// A commit that a catalog is asked for.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct TableCommit {
    /// The uuid that the table must still have.
    pub table_uuid: Option<String>,
    /// Every ref that was seen, and the snapshot it must still point to. A ref that is not here must not exist.
    pub expected_refs: BTreeMap<String, i64>,
    /// The metadata file that must still be the current one, for catalogs that compare and swap a pointer.
    pub base_metadata_location: String,
    /// What to take out, for catalogs that apply changes themselves.
    pub change: MetadataChange,
    /// The complete new metadata as JSON, for catalogs that swap a pointer.
    pub new_metadata: String,
}

/// What became of a commit.
#[derive(Debug, Clone)]
pub enum CommitOutcome {
    /// It is done; `notices` say what the operator should know.
    Committed {
        /// The location of the new metadata.
        metadata_location: String,
        /// What the operator should know.
        notices: Vec<String>,
    },
    /// It certainly did not happen, because the table changed meanwhile. Plan again.
    Conflict(String),
    /// Nobody knows. The table is looked at again, and nothing is deleted before it shows the commit.
    Unknown(String),
}

impl TableCommit {
    /// How metadata contradicts that this commit is part of it: something that was removed is there, or something that
    /// should have stayed is not. `None` when it shows the commit. Reads on after "the newest metadata …".
    pub fn contradicted_by(&self, newest: &TableMetadata) -> Option<String> {
        let change = &self.change;
        if newest.table_uuid() != self.table_uuid.as_deref() {
            return Some("has another table-uuid".into());
        }
        if let Some(id) = newest.snapshots().iter().find(|s| change.removed_snapshot_ids.contains(&s.snapshot_id)) {
            return Some(format!("still has snapshot {}", id.snapshot_id));
        }
        let refs = newest.refs();
        if let Some(name) = change.removed_refs.iter().find(|name| refs.contains_key(*name)) {
            return Some(format!("still has ref {name}"));
        }
        let lost = |name: &&String| !change.removed_refs.contains(*name) && !refs.contains_key(*name);
        if let Some(name) = self.expected_refs.keys().find(lost) {
            return Some(format!("has no ref {name}, which should have stayed"));
        }
        let mut statistics = newest.statistics().iter().chain(newest.partition_statistics());
        if let Some(file) = statistics.find(|file| change.removed_snapshot_ids.contains(&file.snapshot_id)) {
            return Some(format!("still has statistics of snapshot {}", file.snapshot_id));
        }
        if let Some(id) = newest.schema_ids().find(|id| change.removed_schema_ids.contains(id)) {
            return Some(format!("still has schema {id}"));
        }
        if let Some(id) = newest.partition_spec_ids().find(|id| change.removed_partition_spec_ids.contains(id)) {
            return Some(format!("still has partition spec {id}"));
        }
        self.not_restored(newest)
    }

    /// What should have been put back and is not there.
    fn not_restored(&self, newest: &TableMetadata) -> Option<String> {
        let refs = newest.refs();
        self.change.restored.iter().find_map(|part| match (part.field.as_str(), &part.name, part.snapshot_id()) {
            ("snapshots", _, Some(id)) if newest.snapshot(id).is_none() => {
                Some(format!("has no snapshot {id}, which was put back"))
            }
            ("refs", Some(name), _) if !refs.contains_key(name) => {
                Some(format!("has no ref {name}, which was put back"))
            }
            _ => None,
        })
    }
}
