//! What maintaining a table may free, as far as its metadata file alone tells.
//!
//! No manifest is read and nothing is listed: the numbers order the tables of a catalog, nothing is decided by them. Writers
//! note in a snapshot's summary how many bytes of files it added and removed. What a snapshot removed is freed as soon as no
//! snapshot before it is left; what only a branch had that no ref reaches any more is freed with that branch.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::retention::{Reason, RetentionPolicy, choose_expired};
use crate::table::{Snapshot, TableMetadata};

/// What an expiry may free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Gain {
    /// How many snapshots the policy lets go.
    pub snapshots: u64,
    /// The bytes that their summaries let expect.
    pub bytes: u64,
    /// How many snapshots there are, whether they go or stay.
    all_snapshots: u64,
}

impl Gain {
    /// What an expiry by this policy may free. Nothing where the policy can't be followed, which the expiry will say.
    pub(super) fn of(metadata: &TableMetadata, policy: &RetentionPolicy, now_ms: i64) -> Self {
        let all_snapshots = metadata.snapshots().len() as u64;
        let Ok(decision) = choose_expired(metadata, policy, now_ms) else {
            return Self { all_snapshots, ..Default::default() };
        };
        let expired = decision.expired_ids();
        let abandoned = decision.snapshots.iter().filter(|s| matches!(s.reason, Reason::OldUnreferenced { .. }));
        let abandoned: HashSet<i64> = abandoned.map(|snapshot| snapshot.snapshot_id).collect();
        let freed_by = |snapshot: &Snapshot| {
            let Some(summary) = &snapshot.summary else { return 0 };
            let removed = snapshot.parent_snapshot_id.filter(|parent| expired.contains(parent));
            let removed = removed.and(summary.removed_files_size);
            let added = summary.added_files_size.filter(|_| abandoned.contains(&snapshot.snapshot_id));
            [removed, added]
                .into_iter()
                .flatten()
                .filter_map(|bytes| u64::try_from(bytes).ok())
                .fold(0, u64::saturating_add)
        };
        let bytes = metadata.snapshots().iter().map(freed_by).fold(0, u64::saturating_add);
        Self { snapshots: expired.len() as u64, bytes, all_snapshots }
    }

    /// The key that tables are sorted by: who promises most comes first.
    pub(super) fn order(&self) -> Reverse<(u64, u64, u64)> {
        Reverse((self.bytes, self.snapshots, self.all_snapshots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 24 * 60 * 60 * 1000;

    /// Snapshots 1 ← 2 ← 3 of days 1, 2 and 30, and 4, staged on day 3. Each says that it added 100 and removed 10 bytes.
    fn gain(summary: &str, day: i64) -> Gain {
        let snapshot = |id: i64, parent: i64, day: i64| {
            format!(
                r#"{{"snapshot-id":{id},"parent-snapshot-id":{parent},"timestamp-ms":{},"manifest-list":"/t/{id}","summary":{{{summary}}}}}"#,
                day * DAY_MS
            )
        };
        let snapshots = [snapshot(1, -1, 1), snapshot(2, 1, 2), snapshot(3, 2, 30), snapshot(4, 1, 3)].join(",");
        let json = format!(
            r#"{{"format-version":2,"location":"/t","current-snapshot-id":3,"snapshots":[{snapshots}],
                 "refs":{{"main":{{"snapshot-id":3,"type":"branch"}}}}}}"#
        );
        let metadata = TableMetadata::parse("/t/metadata/v1.metadata.json", json.as_bytes()).unwrap();
        Gain::of(&metadata, &RetentionPolicy::default(), day * DAY_MS)
    }

    #[test]
    fn what_follows_an_expired_snapshot_removed_and_what_nobody_reaches_added_is_freed() {
        let summary = r#""operation":"overwrite","added-files-size":"100","removed-files-size":"10""#;
        let expected = Gain { snapshots: 3, bytes: 10 + 10 + 10 + 100, all_snapshots: 4 };
        assert_eq!(gain(summary, 31), expected);
        assert_eq!(gain(summary, 4), Gain { snapshots: 0, bytes: 0, all_snapshots: 4 });
    }

    #[test]
    fn summaries_that_say_nothing_or_nonsense_count_nothing() {
        for summary in ["", r#""removed-files-size":"-5","added-files-size":true"#] {
            assert_eq!(gain(summary, 31), Gain { snapshots: 3, bytes: 0, all_snapshots: 4 }, "{summary}");
        }
        let most = r#""added-files-size":"9223372036854775807","removed-files-size":"9223372036854775807""#;
        assert_eq!(gain(most, 31).bytes, u64::MAX);
    }
}
