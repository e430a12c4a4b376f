//! What a commit says to the server.
//!
//! Every ref that was seen is asserted, those that go among them. Refs go first: a snapshot that a ref still names can't be
//! removed without the ref being lost, and servers don't refuse that.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::catalog::{TableCommit, TableName};
use crate::table::{StatisticsFile, TableMetadata};

/// How many snapshots one update removes at most, for servers that take several.
pub(super) const IDS_PER_UPDATE: usize = 1000;

/// The body of a commit request. `ids_per_update` is 1 for servers before Iceberg 1.9.
pub(super) fn commit_body(
    table: &TableName,
    base: &TableMetadata,
    commit: &TableCommit,
    ids_per_update: usize,
) -> Vec<u8> {
    let mut requirements = Vec::with_capacity(commit.expected_refs.len() + 1);
    requirements.extend(commit.table_uuid.as_deref().map(assert_uuid));
    requirements.extend(
        commit
            .expected_refs
            .iter()
            .map(|(name, id)| json!({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": id})),
    );
    let change = &commit.change;
    let removed = &change.removed_snapshot_ids;
    let mut updates: Vec<Value> = vec![];
    updates.extend(change.removed_refs.iter().map(|name| json!({"action": "remove-snapshot-ref", "ref-name": name})));
    updates.extend(
        described(base.statistics(), removed).map(|id| json!({"action": "remove-statistics", "snapshot-id": id})),
    );
    updates.extend(
        described(base.partition_statistics(), removed)
            .map(|id| json!({"action": "remove-partition-statistics", "snapshot-id": id})),
    );
    let ids: Vec<i64> = removed.iter().copied().collect();
    updates.extend(ids.chunks(ids_per_update.max(1)).map(remove_snapshots));
    if !change.removed_partition_spec_ids.is_empty() {
        updates.push(json!({"action": "remove-partition-specs", "spec-ids": change.removed_partition_spec_ids}));
    }
    if !change.removed_schema_ids.is_empty() {
        updates.push(json!({"action": "remove-schemas", "schema-ids": change.removed_schema_ids}));
    }
    body(table, &requirements, &updates)
}

/// A commit that can't succeed: it asks for a table with a uuid that nobody has. A server that understands several ids in
/// one update answers with a conflict; one that doesn't refuses before it looks at the table.
pub(super) fn probe_body(table: &TableName, base: &TableMetadata) -> Vec<u8> {
    let absent: Vec<i64> = (1..).map(|n| i64::MAX - n).filter(|id| base.snapshot(*id).is_none()).take(2).collect();
    let uuid = uuid::Uuid::new_v4().to_string();
    body(table, &[assert_uuid(&uuid)], &[remove_snapshots(&absent)])
}

fn assert_uuid(uuid: &str) -> Value {
    json!({"type": "assert-table-uuid", "uuid": uuid})
}

fn remove_snapshots(ids: &[i64]) -> Value {
    json!({"action": "remove-snapshots", "snapshot-ids": ids})
}

/// The removed snapshots that have statistics.
fn described<'a>(statistics: &'a [StatisticsFile], removed: &'a BTreeSet<i64>) -> impl Iterator<Item = i64> + use<'a> {
    let described: BTreeSet<i64> = statistics.iter().map(|file| file.snapshot_id).collect();
    described.into_iter().filter(|id| removed.contains(id))
}

fn body(table: &TableName, requirements: &[Value], updates: &[Value]) -> Vec<u8> {
    let identifier = json!({"namespace": table.namespace, "name": table.name});
    json!({"identifier": identifier, "requirements": requirements, "updates": updates}).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::refs_of;
    use crate::table::MetadataChange;

    fn base() -> TableMetadata {
        let json = r#"{"format-version":2,"table-uuid":"u","location":"/t","current-snapshot-id":3,
            "snapshots":[{"snapshot-id":1,"timestamp-ms":1,"manifest-list":"/t/1"},
                         {"snapshot-id":2,"timestamp-ms":2,"manifest-list":"/t/2"},
                         {"snapshot-id":9223372036854775806,"timestamp-ms":2,"manifest-list":"/t/4"},
                         {"snapshot-id":3,"timestamp-ms":3,"manifest-list":"/t/3"}],
            "refs":{"main":{"snapshot-id":3,"type":"branch"},"old":{"snapshot-id":1,"type":"tag"}},
            "statistics":[{"snapshot-id":2,"statistics-path":"/t/s2"},{"snapshot-id":3,"statistics-path":"/t/s3"}],
            "partition-statistics":[{"snapshot-id":1,"statistics-path":"/t/p1"}]}"#;
        TableMetadata::parse("/t/metadata/v3.metadata.json", json.as_bytes()).unwrap()
    }

    fn table() -> TableName {
        TableName { namespace: vec!["a".into(), "b".into()], name: "t".into() }
    }

    fn commit(ids_per_update: usize) -> Value {
        let base = base();
        let change = MetadataChange {
            removed_snapshot_ids: [1, 2].into(),
            removed_refs: ["old".to_string()].into(),
            removed_partition_spec_ids: [0].into(),
            removed_schema_ids: [4, 5].into(),
            ..Default::default()
        };
        let commit = TableCommit {
            table_uuid: Some("u".into()),
            expected_refs: refs_of(&base),
            base_metadata_location: base.metadata_location().into(),
            change,
            new_metadata: String::new(),
        };
        serde_json::from_slice(&commit_body(&table(), &base, &commit, ids_per_update)).unwrap()
    }

    #[test]
    fn a_commit_asserts_every_ref_and_removes_refs_first() {
        let expected = json!({
            "identifier": {"namespace": ["a", "b"], "name": "t"},
            "requirements": [
                {"type": "assert-table-uuid", "uuid": "u"},
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 3},
                {"type": "assert-ref-snapshot-id", "ref": "old", "snapshot-id": 1},
            ],
            "updates": [
                {"action": "remove-snapshot-ref", "ref-name": "old"},
                {"action": "remove-statistics", "snapshot-id": 2},
                {"action": "remove-partition-statistics", "snapshot-id": 1},
                {"action": "remove-snapshots", "snapshot-ids": [1]},
                {"action": "remove-snapshots", "snapshot-ids": [2]},
                {"action": "remove-partition-specs", "spec-ids": [0]},
                {"action": "remove-schemas", "schema-ids": [4, 5]},
            ],
        });
        assert_eq!(commit(1), expected);
        let together = &commit(IDS_PER_UPDATE)["updates"];
        assert_eq!(together[3], json!({"action": "remove-snapshots", "snapshot-ids": [1, 2]}));
        assert_eq!(together.as_array().unwrap().len(), 6);
    }

    #[test]
    fn a_probe_asks_for_what_no_table_has() {
        let probe: Value = serde_json::from_slice(&probe_body(&table(), &base())).unwrap();
        assert_eq!(
            probe["updates"],
            json!([{"action": "remove-snapshots", "snapshot-ids": [i64::MAX - 2, i64::MAX - 3]}]),
            "none that the table has"
        );
        assert_eq!(probe["requirements"][0]["type"], "assert-table-uuid");
        assert_ne!(probe["requirements"], json!([{"type": "assert-table-uuid", "uuid": "u"}]));
    }
}
