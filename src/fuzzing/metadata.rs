//! Metadata files: parsed, decided on, edited, and parsed again.

use std::collections::BTreeSet;

use crate::retention::{RetentionPolicy, choose_expired};
use crate::table::{MetadataChange, TableMetadata, removed_parts};

const PATH: &str = "/t/metadata/v1.metadata.json";

/// The times of the calls, ms since the epoch.
const NOWS: [i64; 3] = [1_781_524_800_000, i64::MIN, i64::MAX];

/// Table metadata, plain or gzip.
///
/// # Panics
/// When an edit takes away more or less than it should, or leaves what can't be read.
pub fn metadata(bytes: &[u8]) {
    let Ok(metadata) = TableMetadata::parse(PATH, bytes) else { return };
    let ids: Vec<i64> = metadata.snapshots().iter().map(|snapshot| snapshot.snapshot_id).collect();
    let policies = [
        RetentionPolicy { clean_expired_metadata: true, ..Default::default() },
        RetentionPolicy { older_than_ms: Some(i64::MAX), retain_last: Some(1), ..Default::default() },
        RetentionPolicy { older_than_ms: Some(i64::MAX), ignore_streaming_checkpoints: true, ..Default::default() },
        RetentionPolicy { made_between_ms: Some((i64::MIN, i64::MAX)), ..Default::default() },
        RetentionPolicy { snapshot_ids: Some(ids.iter().step_by(2).copied().collect()), ..Default::default() },
    ];
    for (policy, now_ms) in policies.iter().zip(NOWS.into_iter().cycle()) {
        policy.describe(&metadata, now_ms);
        let Ok(decision) = choose_expired(&metadata, policy, now_ms) else { continue };
        let expired = decision.expired_ids();
        let heads = metadata.refs();
        assert!(heads.get("main").is_none_or(|main| !expired.contains(&main.snapshot_id)), "the head of main expires");
        let change = MetadataChange {
            removed_snapshot_ids: expired.into_iter().collect(),
            removed_refs: decision.removed_refs().map(str::to_string).collect(),
            removed_schema_ids: decision.unused_schema_ids.iter().copied().collect(),
            ..Default::default()
        };
        edit(&metadata, &change, now_ms);
    }
}

/// Applies the change, and looks at what came out.
fn edit(base: &TableMetadata, change: &MetadataChange, now_ms: i64) {
    let Ok(changed) = change.apply(base, now_ms) else { return };
    let edited = TableMetadata::parse(PATH, changed.json.as_bytes()).unwrap_or_else(|why| panic!("{why}"));
    let ids = |metadata: &TableMetadata| -> BTreeSet<i64> {
        metadata.snapshots().iter().map(|snapshot| snapshot.snapshot_id).collect()
    };
    assert_eq!(ids(&edited), &ids(base) - &change.removed_snapshot_ids, "the snapshots that are left");
    let names = |metadata: &TableMetadata| metadata.refs().into_keys().collect::<BTreeSet<_>>();
    assert_eq!(names(&edited), &names(base) - &change.removed_refs, "the refs that are left");
    assert_eq!(edited.current_snapshot_id(), base.current_snapshot_id());
    const EDITED: [&str; 9] = [
        "snapshots",
        "refs",
        "snapshot-log",
        "metadata-log",
        "statistics",
        "partition-statistics",
        "schemas",
        "partition-specs",
        "last-updated-ms",
    ];
    for (name, json) in base.document().fields().filter(|(name, _)| !EDITED.contains(name)) {
        assert_eq!(edited.document().raw(name), Some(json), "{name}");
    }
    let removed = removed_parts(base, &changed.json).unwrap_or_else(|why| panic!("{why}"));
    let snapshots = removed.iter().filter(|part| part.field == "snapshots").count();
    assert_eq!(snapshots, change.removed_snapshot_ids.len(), "each snapshot that goes is noted");
}
