//! What an expiry and a removal of orphans would free: the operations' own plans where they are asked for, and else what
//! the metadata lets guess.

use std::collections::{HashMap, HashSet};

use super::known::Known;
use crate::catalog::{LoadedTable, TableHandle};
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::procedure::expire_snapshots::{self, ExpireSnapshots};
use crate::procedure::remove_orphan_files::{self, RemoveOrphanFiles};
use crate::procedure::require_gc;
use crate::report::Metrics;
use crate::retention::{RetentionDecision, choose_expired};
use crate::table::{Snapshot, TableMetadata};

/// What an operation would free.
#[derive(Debug, Clone)]
pub(super) struct Reclaim {
    pub(super) files: Known,
    pub(super) bytes: Known,
    /// Why the operation refuses, if it does.
    pub(super) refused: Option<String>,
}

impl Reclaim {
    fn unknown(refused: Option<String>) -> Self {
        Self { files: Known::Unknown, bytes: Known::Unknown, refused }
    }

    fn of(metrics: &Metrics) -> Self {
        let exact = |number: u64| Known::Exact(i64::try_from(number).unwrap_or(i64::MAX));
        Self { files: exact(metrics.deleted_files_count), bytes: exact(metrics.deleted_bytes), refused: None }
    }
}

/// An expiry by the table's own rules.
#[derive(Debug)]
pub(super) struct Expiry {
    /// What would become of each snapshot; `None` where the rules can't be applied.
    pub(super) decision: Option<RetentionDecision>,
    pub(super) gain: Reclaim,
}

impl Expiry {
    /// How many snapshots would go.
    pub(super) fn snapshots(&self) -> Known {
        let count = |decision: &RetentionDecision| i64::try_from(decision.expired_ids().len()).unwrap_or(i64::MAX);
        self.decision.as_ref().map_or(Known::Unknown, |decision| Known::Exact(count(decision)))
    }

    /// True when it would take anything out of the metadata.
    pub(super) fn has_work(&self) -> bool {
        let has_work = |decision: &RetentionDecision| {
            decision.snapshots.iter().any(|snapshot| snapshot.reason.expires())
                || decision.removed_refs().next().is_some()
        };
        self.decision.as_ref().is_some_and(has_work)
    }

    /// Decides on the metadata alone. What goes with the snapshots is guessed from their summaries.
    pub(super) fn look(table: &LoadedTable, options: &ExpireSnapshots, now_ms: i64) -> Self {
        let decision = match choose_expired(&table.metadata, &options.policy, now_ms) {
            Ok(decision) => decision,
            Err(error) => return Self { decision: None, gain: Reclaim::unknown(Some(error.to_string())) },
        };
        let gain = match require_gc(table, "expire snapshots") {
            Err(error) => Reclaim::unknown(Some(error.to_string())),
            Ok(()) => {
                let expired = decision.expired_ids();
                match expired.is_empty() {
                    true => Reclaim { files: Known::Exact(0), bytes: Known::Exact(0), refused: None },
                    false => {
                        let refused = too_young(&decision, options, now_ms);
                        let bytes = Known::noted(removed_bytes(&table.metadata, &expired));
                        Reclaim { files: Known::Unknown, bytes, refused }
                    }
                }
            }
        };
        Self { decision: Some(decision), gain }
    }

    /// Plans the expiry, which reads all manifests, and counts.
    ///
    /// # Errors
    /// When the call is cancelled. Whatever else stops the plan would stop the expiry, too, and is noted.
    pub(super) async fn measure(
        self,
        handle: &TableHandle,
        options: &ExpireSnapshots,
        context: &RunContext,
    ) -> Result<Self> {
        let now_ms = context.maintenance.now_ms();
        // How long files wait is no question here.
        let options = ExpireSnapshots { deferred_ms: Some(0), ..options.clone() };
        let plan = told(expire_snapshots::plan(handle.clone(), &options, None, now_ms, &context.task).await)?;
        let gain = match plan {
            Ok(plan) => Reclaim::of(&plan.report().metrics),
            Err(why) => Reclaim::unknown(Some(why)),
        };
        Ok(Self { gain, ..self })
    }
}

/// Lists the table's folders and counts what nothing names. Returns what a removal has to say besides.
///
/// # Errors
/// When the call is cancelled. Whatever else stops the search would stop the removal, too, and is noted.
pub(super) async fn orphans(
    handle: &TableHandle,
    options: &RemoveOrphanFiles,
    context: &RunContext,
) -> Result<(Reclaim, Vec<String>)> {
    // Nothing goes: whose the files are may be looked at by anybody.
    let options = RemoveOrphanFiles { deferred_ms: Some(0), no_catalog: true, ..options.clone() };
    Ok(match told(remove_orphan_files::plan(handle.clone(), &options, None, context).await)? {
        Ok(plan) => {
            let report = plan.report();
            (Reclaim::of(&report.metrics), report.notices)
        }
        Err(why) => (Reclaim::unknown(Some(why)), vec![]),
    })
}

/// An outcome, or why there is none. A call that is cancelled ends.
fn told<T>(outcome: Result<T>) -> Result<std::result::Result<T, String>> {
    match outcome {
        Ok(outcome) => Ok(Ok(outcome)),
        Err(error @ Error::Cancelled { .. }) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

fn too_young(decision: &RetentionDecision, options: &ExpireSnapshots, now_ms: i64) -> Option<String> {
    let expiring = decision.snapshots.iter().filter(|snapshot| snapshot.reason.expires());
    let young = expiring.min_by_key(|snapshot| now_ms.saturating_sub(snapshot.timestamp_ms))?;
    let age_ms = now_ms.saturating_sub(young.timestamp_ms);
    (age_ms < options.min_retention_ms).then(|| {
        format!(
            "snapshot {} is younger than the session option iceberg_maintenance.expire_snapshots_min_retention",
            young.snapshot_id
        )
    })
}

/// What the summaries of the current snapshot and its ancestors say was removed from snapshots that expire, up to the oldest
/// one that stays: it may have whatever was removed later. Files that were added again, and those of other branches, are not
/// looked at.
fn removed_bytes(metadata: &TableMetadata, expired: &HashSet<i64>) -> Option<i64> {
    let mut chain = ancestors(metadata);
    chain.reverse();
    let steps = chain.windows(2).take_while(|step| expired.contains(&step[0].snapshot_id));
    let mut sum = 0_i64;
    for step in steps {
        sum = sum.saturating_add(removed_by(step[1])?);
    }
    Some(sum)
}

/// The bytes that a snapshot has removed. Iceberg's writers leave out what is 0, so that a total tells that they counted.
fn removed_by(snapshot: &Snapshot) -> Option<i64> {
    let summary = snapshot.summary.as_ref()?;
    match summary.removed_files_size {
        Some(bytes) => Some(bytes).filter(|bytes| *bytes >= 0),
        None => summary.total_files_size.map(|_| 0),
    }
}

/// The current snapshot and its ancestors, the newest first.
fn ancestors(metadata: &TableMetadata) -> Vec<&Snapshot> {
    let by_id: HashMap<i64, &Snapshot> = metadata.snapshots().iter().map(|s| (s.snapshot_id, s)).collect();
    let mut seen = HashSet::new();
    let current = metadata.current_snapshot_id().and_then(|id| by_id.get(&id).copied());
    let parent = |snapshot: &&Snapshot| by_id.get(&snapshot.parent_snapshot_id?).copied();
    std::iter::successors(current, parent).take_while(|snapshot| seen.insert(snapshot.snapshot_id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(snapshots: &[(i64, &str)]) -> TableMetadata {
        let snapshot = |(id, summary): &(i64, &str)| {
            format!(
                r#"{{"snapshot-id":{id},"parent-snapshot-id":{},"timestamp-ms":{id},"manifest-list":"/l","summary":{summary}}}"#,
                id - 1
            )
        };
        let snapshots: Vec<String> = snapshots.iter().map(snapshot).collect();
        let json = format!(
            r#"{{"format-version":2,"location":"/t","current-snapshot-id":{},"snapshots":[{}]}}"#,
            snapshots.len(),
            snapshots.join(",")
        );
        TableMetadata::parse("/t/metadata/v1.metadata.json", json.as_bytes()).unwrap()
    }

    #[test]
    fn what_summaries_say_is_freed_ends_at_the_oldest_snapshot_that_stays() {
        let counted = r#"{"operation":"append","total-files-size":"9"}"#;
        let removed = r#"{"operation":"overwrite","removed-files-size":"5"}"#;
        let freed = |snapshots: &[&str], expired: &[i64]| {
            let snapshots: Vec<(i64, &str)> = (1..).zip(snapshots.iter().copied()).collect();
            removed_bytes(&metadata(&snapshots), &expired.iter().copied().collect())
        };
        assert_eq!(freed(&[counted, removed, removed], &[1, 2]), Some(10));
        assert_eq!(freed(&[counted, removed, removed], &[1]), Some(5));
        assert_eq!(freed(&[counted, removed, removed], &[2]), Some(0), "1 stays, and may have it");
        assert_eq!(freed(&[counted, counted, removed], &[1, 2]), Some(5));
        assert_eq!(freed(&[counted, r#"{"operation":"delete"}"#], &[1]), None, "nobody counted");
        let huge = r#"{"operation":"overwrite","removed-files-size":"9223372036854775807"}"#;
        assert_eq!(freed(&[counted, huge, huge], &[1, 2]), Some(i64::MAX));
    }
}
