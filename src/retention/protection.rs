//! What stays whatever the rules say: `expire_before`, snapshots that the call names, and the last checkpoints of streaming
//! jobs.
//!
//! Flink's sink notes in each snapshot which job made it and up to which checkpoint; after a restart it looks for its last
//! checkpoint from the branch's head from child to parent. If it isn't found there, everything since is committed again. So
//! the newest such snapshot of each job stays, and all that lie between it and the head. A job that was silent for longer than
//! [`STREAMING_CHECKPOINT_MAX_AGE_MS`] is taken for dead. Kafka Connect's sink looks for its offsets the same way.

use std::collections::{HashMap, HashSet};

use super::{History, Reason, RefDecision, RetentionPolicy};
use crate::error::{Error, Result};
use crate::table::{MAIN_BRANCH, RefKind, Snapshot};

/// How old (ms) the last checkpoint of a streaming job may be to be kept: 7 days.
pub const STREAMING_CHECKPOINT_MAX_AGE_MS: i64 = 7 * 24 * 3600 * 1000;

/// Takes back what the rules let go and is protected.
///
/// # Errors
/// [`Error::Argument`] when a protected id is unknown, or `snapshot_ids` names a snapshot that is protected.
pub(super) fn apply(
    history: &History,
    policy: &RetentionPolicy,
    refs: &[RefDecision],
    reasons: &mut HashMap<i64, Reason>,
    now_ms: i64,
) -> Result<()> {
    if let Some(fuse) = policy.expire_before_ms {
        for id in history.by_id.values().filter(|s| s.timestamp_ms >= fuse).map(|s| s.snapshot_id) {
            spare(reasons, id, Reason::NotBeforeExpireBefore);
        }
    }
    for id in &policy.protected_snapshot_ids {
        if !history.by_id.contains_key(id) {
            return Err(refusal(format!("snapshot {id} of protected_snapshot_ids does not exist in the table")));
        }
        if reasons.get(id) == Some(&Reason::Listed) {
            return Err(refusal(format!(
                "snapshot {id} is in snapshot_ids and in protected_snapshot_ids. Leave one out"
            )));
        }
        spare(reasons, *id, Reason::Protected);
    }
    if policy.ignore_streaming_checkpoints {
        return Ok(());
    }
    for (id, reason) in for_streaming_jobs(history, refs, now_ms) {
        if reasons.get(&id) == Some(&Reason::Listed) {
            return Err(refusal(format!(
                "Cannot expire {id}: {reason}. Leave it out, or give ignore_streaming_checkpoints => true if the job will \
                 not go on"
            )));
        }
        spare(reasons, id, reason);
    }
    Ok(())
}

fn refusal(message: String) -> Error {
    Error::argument("expire_snapshots", message)
}

fn spare(reasons: &mut HashMap<i64, Reason>, id: i64, reason: Reason) {
    let known = reasons.entry(id).or_insert_with(|| reason.clone());
    if known.expires() {
        *known = reason;
    }
}

/// The snapshots that streaming jobs need to find their last checkpoints, in the order of branches, newest first.
fn for_streaming_jobs(history: &History, refs: &[RefDecision], now_ms: i64) -> Vec<(i64, Reason)> {
    let mut needed = vec![];
    if history.by_id.values().all(|snapshot| checkpoint_of(snapshot).is_none()) {
        return needed;
    }
    let young = now_ms.saturating_sub(STREAMING_CHECKPOINT_MAX_AGE_MS);
    let is_branch = |r: &&RefDecision| r.kind == RefKind::Branch || r.name == MAIN_BRANCH;
    for branch in refs.iter().filter(|r| !r.reason.removes()).filter(is_branch) {
        let (mut found, mut since) = (HashSet::new(), vec![]);
        for snapshot in history.ancestors(branch.snapshot_id).take_while(|s| s.timestamp_ms >= young) {
            let Some((job, _)) = checkpoint_of(snapshot).filter(|job| found.insert(*job)) else {
                since.push(snapshot.snapshot_id);
                continue;
            };
            let after = |id| (id, Reason::AfterStreamingCheckpoint { job: job.to_string() });
            needed.extend(since.drain(..).map(after));
            needed.push((snapshot.snapshot_id, Reason::StreamingCheckpoint { job: job.to_string() }));
        }
    }
    needed
}

/// The job and the operator in it whose checkpoint a snapshot committed, or the key of a Kafka Connect sink's offsets.
fn checkpoint_of(snapshot: &Snapshot) -> Option<(&str, Option<&str>)> {
    let summary = snapshot.summary.as_ref()?;
    if let Some(sink) = &summary.kafka_connect_offsets {
        return Some((sink, None));
    }
    summary.flink_max_committed_checkpoint_id.as_ref()?;
    Some((summary.flink_job_id.as_deref()?, summary.flink_operator_id.as_deref()))
}
