//! Which snapshots and refs go, and why.
//!
//! Pure: no I/O and no clock of its own. The rules are those of the table spec ("Snapshot Retention Policy") with Java's
//! addition for snapshots that no ref reaches:
//!
//! 1. `main` stays. Another ref stays while its snapshot exists and is not older than the ref's `max-ref-age-ms`.
//! 2. The snapshot that a staying ref points to stays.
//! 3. A staying branch is walked from its head: a snapshot stays while fewer than `min-snapshots-to-keep` have been kept
//!    or it is not older than the age limit. The first one that fails both ends the run: an older ancestor with a newer
//!    timestamp does not come back. A missing parent and a cycle end the walk.
//! 4. A snapshot that no staying branch has among its ancestors and no staying tag points to (staged, rolled back, or
//!    reached only by a ref that goes) stays while it is not older than the age limit; a minimum never applies.
//! 5. Everything else expires, unless it is protected: by `expire_before`, by its id, or as what a streaming job needs to
//!    find its last checkpoint ([`STREAMING_CHECKPOINT_MAX_AGE_MS`]).
//!
//! A branch's own fields beat the call's arguments, which beat the table's properties. All limits are inclusive: a
//! snapshot exactly at the cut-off stays.

mod protection;

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

pub use protection::STREAMING_CHECKPOINT_MAX_AGE_MS;

use crate::error::{Error, Result};
use crate::table::{MAIN_BRANCH, RefKind, Snapshot, SnapshotRef, TableMetadata};

/// What a call asks for. The default asks for the table's own policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionPolicy {
    /// Snapshots older than this (ms since the epoch) may expire: the age limit of this call.
    pub older_than_ms: Option<i64>,
    /// Snapshots that are not older than this (ms since the epoch) stay, whatever the other rules say.
    pub expire_before_ms: Option<i64>,
    /// Keep at least this many snapshots of each branch.
    pub retain_last: Option<i64>,
    /// Expire exactly these and no others. Excludes `older_than_ms` and `retain_last`; refs are left alone.
    pub snapshot_ids: Option<Vec<i64>>,
    /// Expire exactly the snapshots that were made in this range (ms since the epoch, both ends included), but never what a
    /// ref points to: Hive's `EXPIRE_SNAPSHOTS BETWEEN (a) AND (b)`. Excludes the other rules; refs are left alone.
    pub made_between_ms: Option<(i64, i64)>,
    /// These stay, whatever the other rules say: what a reader, a compaction or a consumer still needs.
    pub protected_snapshot_ids: Vec<i64>,
    /// Let the last checkpoints of streaming jobs go like any other snapshot.
    pub ignore_streaming_checkpoints: bool,
    /// Also remove schemas that no retained snapshot uses (partition specs need the manifest lists).
    pub clean_expired_metadata: bool,
}

/// What the description of a policy begins with.
const AGE_LIMIT: &str = "older_than = ";

impl RetentionPolicy {
    /// True for what [`Self::describe`] says of a policy of ages and counts: every expiry says it, whatever it does.
    pub(crate) fn describes(notice: &str) -> bool {
        notice.starts_with(AGE_LIMIT)
    }

    /// The limits that are in force for a table, and where each comes from, in one line.
    pub fn describe(&self, metadata: &TableMetadata, now_ms: i64) -> String {
        if let Some((from, to)) = self.made_between_ms {
            let (from, to) = (crate::time::format_ms(from), crate::time::format_ms(to));
            return format!("expiring exactly the snapshots made between {from} and {to}, but never the head of a ref");
        }
        if let Some(ids) = &self.snapshot_ids {
            return format!("expiring exactly {} snapshots by id; no age or count rule applies", ids.len());
        }
        let properties = metadata.properties();
        let from = |property: &str| if properties.get(property).is_some() { "table property" } else { "default" };
        let (cutoff, cutoff_from) = match (self.older_than_ms, properties.max_snapshot_age_ms()) {
            (Some(older_than), _) => (older_than, "argument"),
            (None, Ok(age)) => (now_ms.saturating_sub(age), from("history.expire.max-snapshot-age-ms")),
            (None, Err(_)) => (i64::MIN, "unreadable table property"),
        };
        let (minimum, minimum_from) = match (self.retain_last, properties.min_snapshots_to_keep()) {
            (Some(retain_last), _) => (retain_last, "argument"),
            (None, Ok(minimum)) => (minimum, from("history.expire.min-snapshots-to-keep")),
            (None, Err(_)) => (0, "unreadable table property"),
        };
        format!(
            "{AGE_LIMIT}{} ({cutoff} ms, {cutoff_from}), retain_last = {minimum} ({minimum_from}); a branch's own \
             retention fields come first",
            crate::time::format_ms(cutoff)
        )
    }
}

/// Why a snapshot stays or goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Stays: a ref points to it.
    Head {
        /// The ref's name.
        reference: String,
    },
    /// Stays: among the newest of a branch, by number.
    WithinMinimum {
        /// The branch.
        branch: String,
        /// How many the branch keeps.
        minimum: i64,
    },
    /// Stays: not older than a branch's age limit.
    YoungOnBranch {
        /// The branch.
        branch: String,
    },
    /// Stays: no ref reaches it, but it is not older than the age limit.
    YoungUnreferenced,
    /// Stays: `expire_before` protects it.
    NotBeforeExpireBefore,
    /// Stays: the call names it as one that must.
    Protected,
    /// Stays: a streaming job's last checkpoint that the branch knows of.
    StreamingCheckpoint {
        /// The job.
        job: String,
    },
    /// Stays: between a branch's head and a streaming job's last checkpoint, which is looked for from child to parent.
    AfterStreamingCheckpoint {
        /// The job.
        job: String,
    },
    /// Stays: the call names the snapshots to expire, and this is none of them.
    NotListed,
    /// Stays: a stored plan is executed, and it is not in there.
    NotPlanned,
    /// Goes: an ancestor of this branch, too old and beyond the minimum.
    OldOnBranch {
        /// A branch that has it among its ancestors.
        branch: String,
    },
    /// Goes: no ref that stays reaches it, and it is older than the age limit.
    OldUnreferenced {
        /// A ref that reached it until now, and goes.
        removed_ref: Option<String>,
    },
    /// Goes: the call names it.
    Listed,
    /// Goes: made in the range that the call names.
    InRange,
    /// Stays: made outside of the range that the call names.
    OutOfRange,
}

impl Reason {
    /// True for the reasons that let a snapshot go.
    pub fn expires(&self) -> bool {
        matches!(self, Reason::OldOnBranch { .. } | Reason::OldUnreferenced { .. } | Reason::Listed | Reason::InRange)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Head { reference } => write!(f, "ref {reference} points to it"),
            Reason::WithinMinimum { branch, minimum } => {
                write!(f, "among the {minimum} newest of branch {branch}, which it keeps whatever their age")
            }
            Reason::YoungOnBranch { branch } => write!(f, "not older than the age limit of branch {branch}"),
            Reason::YoungUnreferenced => f.write_str("no ref reaches it, but it is not older than the age limit"),
            Reason::NotBeforeExpireBefore => f.write_str("not older than expire_before"),
            Reason::Protected => f.write_str("protected: among protected_snapshot_ids"),
            Reason::StreamingCheckpoint { job } => write!(f, "protected: streaming checkpoint of job {job}"),
            Reason::AfterStreamingCheckpoint { job } => {
                write!(f, "protected: leads from the branch to the streaming checkpoint of job {job}")
            }
            Reason::NotListed => f.write_str("not among snapshot_ids"),
            Reason::NotPlanned => f.write_str("not in the plan that is executed"),
            Reason::OldOnBranch { branch } => {
                write!(f, "older than the age limit of branch {branch} and beyond its minimum")
            }
            Reason::OldUnreferenced { removed_ref: None } => {
                f.write_str("no ref reaches it, and it is older than the age limit")
            }
            Reason::OldUnreferenced { removed_ref: Some(name) } => {
                write!(f, "only ref {name} reached it, which goes by its own age, and it is older than the age limit")
            }
            Reason::Listed => f.write_str("named by snapshot_ids"),
            Reason::InRange => f.write_str("made between from_timestamp and to_timestamp"),
            Reason::OutOfRange => f.write_str("not made between from_timestamp and to_timestamp"),
        }
    }
}

/// The decision on one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotDecision {
    /// The snapshot.
    pub snapshot_id: i64,
    /// When it was made, ms since the epoch.
    pub timestamp_ms: i64,
    /// Why it stays or goes.
    pub reason: Reason,
}

/// Why a ref stays or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefReason {
    /// Stays: `main` never goes.
    Main,
    /// Stays: its snapshot is not older than the ref's age limit.
    Young,
    /// Stays: `expire_before` protects its snapshot.
    NotBeforeExpireBefore,
    /// Stays: a call with `snapshot_ids` leaves refs alone.
    LeftAlone,
    /// Goes: its snapshot is older than the ref's age limit.
    Old,
    /// Goes: its snapshot does not exist.
    Dangling,
}

impl RefReason {
    /// True for the reasons that let a ref go.
    pub fn removes(self) -> bool {
        matches!(self, RefReason::Old | RefReason::Dangling)
    }
}

impl fmt::Display for RefReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefReason::Main => "main never goes",
            RefReason::Young => "its snapshot is not older than the ref's age limit",
            RefReason::NotBeforeExpireBefore => "its snapshot is not older than expire_before",
            RefReason::LeftAlone => "the call leaves refs alone",
            RefReason::Old => "its snapshot is older than the ref's age limit",
            RefReason::Dangling => "its snapshot does not exist",
        })
    }
}

/// The decision on one ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefDecision {
    /// The ref's name.
    pub name: String,
    /// Branch or tag.
    pub kind: RefKind,
    /// The snapshot it points to.
    pub snapshot_id: i64,
    /// Why it stays or goes.
    pub reason: RefReason,
}

/// Which snapshots, refs and schemas go. Every snapshot and every ref of the metadata has exactly one decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetentionDecision {
    /// In the metadata's order.
    pub snapshots: Vec<SnapshotDecision>,
    /// By name.
    pub refs: Vec<RefDecision>,
    /// Schemas that nothing uses any more; empty unless asked for.
    pub unused_schema_ids: Vec<i32>,
}

impl RetentionDecision {
    /// The ids of the snapshots that go.
    pub fn expired_ids(&self) -> HashSet<i64> {
        self.snapshots.iter().filter(|s| s.reason.expires()).map(|s| s.snapshot_id).collect()
    }

    /// The names of the refs that go.
    pub fn removed_refs(&self) -> impl Iterator<Item = &str> {
        self.refs.iter().filter(|r| r.reason.removes()).map(|r| r.name.as_str())
    }
}

/// Decides which snapshots, refs and schemas go.
///
/// `now_ms` (ms since the epoch, UTC) is what ages are measured against.
///
/// # Errors
/// [`Error::Argument`] when `snapshot_ids` names an unknown snapshot, the current one, the head of a ref or a protected one, or
/// is combined with the other rules, and when a protected id is unknown; [`Error::InvalidMetadata`] when a retention property is no number.
pub fn choose_expired(metadata: &TableMetadata, policy: &RetentionPolicy, now_ms: i64) -> Result<RetentionDecision> {
    let history = History::new(metadata)?;
    let (refs, mut reasons) = match (&policy.snapshot_ids, policy.made_between_ms) {
        (Some(ids), _) => choose_listed(&history, policy, ids)?,
        (None, Some(range)) => choose_in_range(&history, policy, range)?,
        (None, None) => choose_by_policy(&history, policy, now_ms)?,
    };
    protection::apply(&history, policy, &refs, &mut reasons, now_ms)?;
    let snapshots: Vec<SnapshotDecision> = metadata
        .snapshots()
        .iter()
        .map(|snapshot| SnapshotDecision {
            snapshot_id: snapshot.snapshot_id,
            timestamp_ms: snapshot.timestamp_ms,
            // A snapshot without a decision would be a fault of ours; the safe reading is that it stays.
            reason: reasons.remove(&snapshot.snapshot_id).unwrap_or(Reason::NotListed),
        })
        .collect();
    let unused_schema_ids =
        if policy.clean_expired_metadata { unused_schemas(metadata, &snapshots) } else { Vec::new() };
    Ok(RetentionDecision { snapshots, refs, unused_schema_ids })
}

/// The partition specs that neither the table's default nor any retained manifest uses.
///
/// `used` are the spec ids of all manifests that retained snapshots list.
pub fn unused_partition_specs(metadata: &TableMetadata, used: &HashSet<i32>) -> Vec<i32> {
    let Some(default) = metadata.default_spec_id() else { return Vec::new() };
    metadata.partition_spec_ids().filter(|id| *id != default && !used.contains(id)).collect()
}

/// Schemas that are neither current nor noted by a retained snapshot. A snapshot without `schema-id` keeps them all.
fn unused_schemas(metadata: &TableMetadata, snapshots: &[SnapshotDecision]) -> Vec<i32> {
    let expired: HashSet<i64> = snapshots.iter().filter(|s| s.reason.expires()).map(|s| s.snapshot_id).collect();
    let mut used: HashSet<Option<i32>> = metadata
        .snapshots()
        .iter()
        .filter(|snapshot| !expired.contains(&snapshot.snapshot_id))
        .map(|snapshot| snapshot.schema_id)
        .collect();
    used.insert(metadata.current_schema_id());
    if used.contains(&None) {
        return Vec::new();
    }
    metadata.schema_ids().filter(|id| !used.contains(&Some(*id))).collect()
}

/// Snapshots by id, and the refs.
struct History<'a> {
    metadata: &'a TableMetadata,
    by_id: HashMap<i64, &'a Snapshot>,
    refs: std::collections::BTreeMap<String, SnapshotRef>,
    /// The names of the refs that point to a snapshot, by its id.
    refs_by_head: HashMap<i64, Vec<String>>,
}

impl<'a> History<'a> {
    fn new(metadata: &'a TableMetadata) -> Result<Self> {
        let by_id: HashMap<_, _> = metadata.snapshots().iter().map(|s| (s.snapshot_id, s)).collect();
        let refs = metadata.refs();
        if let Some(main) = refs.get(MAIN_BRANCH)
            && !by_id.contains_key(&main.snapshot_id)
        {
            return Err(Error::InvalidMetadata {
                path: metadata.metadata_location().into(),
                why: format!("ref main points to snapshot {}, which does not exist", main.snapshot_id),
            });
        }
        let mut refs_by_head: HashMap<i64, Vec<String>> = HashMap::new();
        for (name, reference) in &refs {
            refs_by_head.entry(reference.snapshot_id).or_default().push(name.clone());
        }
        Ok(Self { metadata, by_id, refs, refs_by_head })
    }

    /// A snapshot and its ancestors, newest first. Ends at a missing parent and where a cycle closes.
    fn ancestors(&self, head: i64) -> impl Iterator<Item = &'a Snapshot> {
        let mut seen = HashSet::new();
        std::iter::successors(self.by_id.get(&head).copied(), |snapshot| {
            self.by_id.get(&snapshot.parent_snapshot_id?).copied()
        })
        .take_while(move |snapshot| seen.insert(snapshot.snapshot_id))
    }

    /// The refs that point to a snapshot. The current snapshot counts as `main`'s even if the refs disagree.
    fn refs_to(&self, id: i64) -> Vec<&str> {
        let mut names: Vec<&str> = self.refs_by_head.get(&id).into_iter().flatten().map(String::as_str).collect();
        if self.metadata.current_snapshot_id() == Some(id) && !names.contains(&MAIN_BRANCH) {
            names.push(MAIN_BRANCH);
        }
        names
    }
}

type Decisions = (Vec<RefDecision>, HashMap<i64, Reason>);

fn choose_listed(history: &History, policy: &RetentionPolicy, ids: &[i64]) -> Result<Decisions> {
    let refuse = |message: String| Err(Error::argument("expire_snapshots", message));
    if policy.older_than_ms.is_some() || policy.retain_last.is_some() || policy.made_between_ms.is_some() {
        return refuse(
            "snapshot_ids expires exactly the snapshots it names, so it can't be combined with older_than, \
             retention_threshold or retain_last. Make two calls"
                .into(),
        );
    }
    if ids.is_empty() {
        return refuse("snapshot_ids is empty. Name at least one snapshot, or leave the argument out".into());
    }
    let listed: HashSet<i64> = ids.iter().copied().collect();
    for id in ids {
        if !history.by_id.contains_key(id) {
            return refuse(format!("snapshot {id} of snapshot_ids does not exist in the table"));
        }
        let refs = history.refs_to(*id);
        if !refs.is_empty() {
            return refuse(format!(
                "Cannot expire {id}. Still referenced by refs: [{}]. Drop or move the refs first",
                refs.join(", ")
            ));
        }
    }
    let reasons = history
        .by_id
        .keys()
        .map(|id| (*id, if listed.contains(id) { Reason::Listed } else { Reason::NotListed }))
        .collect();
    Ok((refs_left_alone(history), reasons))
}

fn refs_left_alone(history: &History) -> Vec<RefDecision> {
    history.refs.iter().map(|(name, reference)| decide_ref(name, reference, RefReason::LeftAlone)).collect()
}

fn choose_in_range(history: &History, policy: &RetentionPolicy, (from, to): (i64, i64)) -> Result<Decisions> {
    let refuse = |message: &str| Err(Error::argument("expire_snapshots", message));
    if policy.older_than_ms.is_some() || policy.retain_last.is_some() {
        return refuse(
            "from_timestamp and to_timestamp expire exactly the snapshots made between them, so they can't be combined with \
             older_than, retention_threshold or retain_last. Make two calls",
        );
    }
    if from > to {
        return refuse("from_timestamp is later than to_timestamp, so no snapshot lies between them. Swap the two");
    }
    let reason = |snapshot: &Snapshot| match history.refs_to(snapshot.snapshot_id).first() {
        _ if !(from..=to).contains(&snapshot.timestamp_ms) => Reason::OutOfRange,
        Some(reference) => Reason::Head { reference: reference.to_string() },
        None => Reason::InRange,
    };
    let reasons = history.by_id.iter().map(|(id, snapshot)| (*id, reason(snapshot))).collect();
    Ok((refs_left_alone(history), reasons))
}

fn decide_ref(name: &str, reference: &SnapshotRef, reason: RefReason) -> RefDecision {
    RefDecision { name: name.into(), kind: reference.kind, snapshot_id: reference.snapshot_id, reason }
}

fn choose_by_policy(history: &History, policy: &RetentionPolicy, now_ms: i64) -> Result<Decisions> {
    let properties = history.metadata.properties();
    let max_ref_age = properties.max_ref_age_ms()?;
    let cutoff = match policy.older_than_ms {
        Some(older_than) => older_than,
        None => now_ms.saturating_sub(properties.max_snapshot_age_ms()?),
    };
    let minimum = match policy.retain_last {
        Some(retain_last) => retain_last,
        None => properties.min_snapshots_to_keep()?,
    };

    let refs: Vec<RefDecision> = history
        .refs
        .iter()
        .map(|(name, reference)| {
            decide_ref(name, reference, ref_reason(history, policy, name, reference, max_ref_age, now_ms))
        })
        .collect();
    let staying = || refs.iter().filter(|r| !r.reason.removes()).filter_map(|r| history.refs.get_key_value(&r.name));

    let mut reasons: HashMap<i64, Reason> = HashMap::new();
    for (name, reference) in staying() {
        reasons.insert(reference.snapshot_id, Reason::Head { reference: name.clone() });
    }
    if let Some(current) = history.metadata.current_snapshot_id() {
        reasons.entry(current).or_insert_with(|| Reason::Head { reference: MAIN_BRANCH.into() });
    }
    let mut walked = HashSet::new();
    // `main` is a branch, whatever a writer says of it.
    for (name, branch) in staying().filter(|(name, r)| r.kind == RefKind::Branch || *name == MAIN_BRANCH) {
        let cutoff = branch.max_snapshot_age_ms.map_or(cutoff, |age| now_ms.saturating_sub(age));
        let minimum = branch.min_snapshots_to_keep.map_or(minimum, i64::from);
        let limits = Limits { cutoff, minimum };
        walk_branch(history, name, branch.snapshot_id, limits, &mut reasons, &mut walked);
    }
    let removed_refs = reached_by_removed(history, &refs);
    for (id, snapshot) in &history.by_id {
        reasons.entry(*id).or_insert_with(|| match snapshot.timestamp_ms >= cutoff {
            true => Reason::YoungUnreferenced,
            false => Reason::OldUnreferenced { removed_ref: removed_refs.get(id).map(|name| name.to_string()) },
        });
    }
    Ok((refs, reasons))
}

/// The snapshots that a ref which goes reaches, with the first such ref by name.
fn reached_by_removed<'a>(history: &History, refs: &'a [RefDecision]) -> HashMap<i64, &'a str> {
    let mut reached: HashMap<i64, &str> = HashMap::new();
    let mut walked = HashSet::new();
    for gone in refs.iter().filter(|r| r.reason.removes()) {
        if gone.kind == RefKind::Tag {
            reached.entry(gone.snapshot_id).or_insert(&gone.name);
            continue;
        }
        // What lies behind a snapshot that another branch was walked over is reached by that branch.
        for snapshot in history.ancestors(gone.snapshot_id).take_while(|snapshot| walked.insert(snapshot.snapshot_id)) {
            reached.entry(snapshot.snapshot_id).or_insert(&gone.name);
        }
    }
    reached
}

fn ref_reason(
    history: &History,
    policy: &RetentionPolicy,
    name: &str,
    reference: &SnapshotRef,
    max_ref_age: i64,
    now_ms: i64,
) -> RefReason {
    if name == MAIN_BRANCH {
        return RefReason::Main;
    }
    let Some(snapshot) = history.by_id.get(&reference.snapshot_id) else { return RefReason::Dangling };
    let age = now_ms.saturating_sub(snapshot.timestamp_ms);
    if age <= reference.max_ref_age_ms.unwrap_or(max_ref_age) {
        RefReason::Young
    } else if policy.expire_before_ms.is_some_and(|fuse| snapshot.timestamp_ms >= fuse) {
        RefReason::NotBeforeExpireBefore
    } else {
        RefReason::Old
    }
}

/// The limits of one branch.
#[derive(Clone, Copy)]
struct Limits {
    /// Snapshots older than this may go, ms since the epoch.
    cutoff: i64,
    /// How many stay whatever their age.
    minimum: i64,
}

/// Notes for every ancestor of a branch whether this branch keeps it. Another branch's "stays" is never taken back.
///
/// `walked` are the snapshots that some branch was walked over: what lies behind them has its reason already, so a walk
/// that keeps nothing more ends there.
fn walk_branch(
    history: &History,
    branch: &str,
    head: i64,
    limits: Limits,
    reasons: &mut HashMap<i64, Reason>,
    walked: &mut HashSet<i64>,
) {
    let mut run_ended = false;
    for (kept, snapshot) in (0i64..).zip(history.ancestors(head)) {
        let within_minimum = kept < limits.minimum;
        run_ended |= !within_minimum && snapshot.timestamp_ms < limits.cutoff;
        if !walked.insert(snapshot.snapshot_id) && run_ended {
            break;
        }
        let reason = match (run_ended, within_minimum) {
            (true, _) => Reason::OldOnBranch { branch: branch.into() },
            (false, true) => Reason::WithinMinimum { branch: branch.into(), minimum: limits.minimum },
            (false, false) => Reason::YoungOnBranch { branch: branch.into() },
        };
        match reasons.get(&snapshot.snapshot_id) {
            Some(known) if !known.expires() || reason.expires() => {}
            _ => {
                reasons.insert(snapshot.snapshot_id, reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_000_000;

    /// A table whose snapshots are `(id, parent, timestamp)`.
    fn table(snapshots: &[(i64, i64, i64)], extra: Value) -> TableMetadata {
        let snapshots: Vec<Value> = snapshots
            .iter()
            .map(|(id, parent, time)| {
                let mut snapshot =
                    json!({"snapshot-id": id, "timestamp-ms": time, "manifest-list": format!("/t/{id}")});
                if *parent != 0 {
                    snapshot["parent-snapshot-id"] = json!(parent);
                }
                snapshot
            })
            .collect();
        let mut metadata = json!({"format-version": 2, "location": "/t", "snapshots": snapshots});
        for (key, value) in extra.as_object().unwrap() {
            metadata[key] = value.clone();
        }
        TableMetadata::parse("/t/metadata/v1.metadata.json", metadata.to_string().as_bytes()).unwrap()
    }

    fn older_than(older_than_ms: i64) -> RetentionPolicy {
        RetentionPolicy { older_than_ms: Some(older_than_ms), ..Default::default() }
    }

    fn expired(metadata: &TableMetadata, policy: &RetentionPolicy) -> Vec<i64> {
        let mut ids: Vec<_> = choose_expired(metadata, policy, NOW).unwrap().expired_ids().into_iter().collect();
        ids.sort();
        ids
    }

    const LINE: [(i64, i64, i64); 4] = [(1, 0, 10), (2, 1, 20), (3, 2, 30), (4, 3, 40)];

    #[test]
    fn the_limit_is_inclusive_and_the_minimum_beats_age() {
        let line = table(&LINE, json!({"current-snapshot-id": 4}));
        assert_eq!(expired(&line, &older_than(30)), [1, 2]);
        assert_eq!(expired(&line, &older_than(31)), [1, 2, 3]);
        let retain = |n| RetentionPolicy { retain_last: Some(n), ..older_than(NOW) };
        assert_eq!(expired(&line, &retain(3)), [1]);
        assert_eq!(expired(&line, &retain(9)), [0i64; 0]);
    }

    #[test]
    fn defaults_come_from_the_table_then_from_java() {
        let day = 86_400_000;
        let ages = [(1, 0, NOW - 6 * day), (2, 1, NOW - 4 * day), (3, 2, NOW)];
        let default = RetentionPolicy::default();
        assert_eq!(expired(&table(&ages, json!({"current-snapshot-id": 3})), &default), [1]);
        let properties = json!({"current-snapshot-id": 3, "properties": {"history.expire.max-snapshot-age-ms": "1"}});
        assert_eq!(expired(&table(&ages, properties), &default), [1, 2]);
        let forever = json!({"current-snapshot-id": 3,
            "properties": {"history.expire.max-snapshot-age-ms": "9223372036854775807"}});
        assert_eq!(expired(&table(&ages, forever), &default), [0i64; 0], "ages saturate");
    }

    #[test]
    fn a_kept_run_that_ended_does_not_open_again() {
        let skewed = table(&[(1, 0, 10), (2, 1, 30), (3, 2, 20), (4, 3, 40)], json!({"current-snapshot-id": 4}));
        assert_eq!(expired(&skewed, &older_than(25)), [1, 2, 3]);
    }

    #[test]
    fn a_hole_ends_the_chain_and_what_lies_behind_is_unreferenced() {
        let hole = table(&[(1, 0, 10), (3, 2, 30), (4, 3, 40)], json!({"current-snapshot-id": 4}));
        let policy = RetentionPolicy { retain_last: Some(3), ..older_than(NOW) };
        assert_eq!(expired(&hole, &policy), [1], "a minimum does not reach over a hole");
        assert_eq!(expired(&hole, &older_than(5)), [0i64; 0]);
    }

    #[test]
    fn a_cycle_ends_the_walk() {
        let cycle = table(&[(1, 2, 10), (2, 1, 20)], json!({"current-snapshot-id": 2}));
        assert_eq!(expired(&cycle, &older_than(NOW)), [1]);
        let own_parent = table(&[(1, 1, 10)], json!({"current-snapshot-id": 1}));
        assert_eq!(expired(&own_parent, &older_than(NOW)), [0i64; 0]);
    }

    #[test]
    fn main_stays_however_old_and_other_refs_age_by_their_snapshot() {
        let refs = |age| {
            json!({"current-snapshot-id": 4, "refs": {
                "main": {"snapshot-id": 4, "type": "branch", "max-ref-age-ms": 1},
                "tag": {"snapshot-id": 2, "type": "tag", "max-ref-age-ms": age}}})
        };
        assert_eq!(expired(&table(&LINE, refs(NOW)), &older_than(NOW)), [1, 3]);
        let aged = table(&LINE, refs(1));
        assert_eq!(expired(&aged, &older_than(NOW)), [1, 2, 3]);
        let decision = choose_expired(&aged, &older_than(NOW), NOW).unwrap();
        assert_eq!(decision.removed_refs().collect::<Vec<_>>(), ["tag"]);
        let off_main = json!({"current-snapshot-id": 1, "refs": {
            "main": {"snapshot-id": 1, "type": "branch"},
            "b": {"snapshot-id": 3, "type": "branch", "max-ref-age-ms": 1}}});
        let decision = choose_expired(&table(&LINE, off_main), &older_than(NOW), NOW).unwrap();
        let reasons: Vec<_> = decision.snapshots[1..].iter().map(|s| s.reason.clone()).collect();
        let reached_by = |name: Option<&str>| Reason::OldUnreferenced { removed_ref: name.map(str::to_string) };
        assert_eq!(reasons, [reached_by(Some("b")), reached_by(Some("b")), reached_by(None)]);
    }

    #[test]
    fn a_refs_age_limit_is_inclusive() {
        let at = |age| {
            let tag = json!({"snapshot-id": 2, "type": "tag", "max-ref-age-ms": age});
            table(&LINE, json!({"current-snapshot-id": 4, "refs": {"tag": tag}}))
        };
        let removed = |age| choose_expired(&at(age), &older_than(0), NOW).unwrap().removed_refs().count();
        assert_eq!((removed(NOW - 20), removed(NOW - 21)), (0, 1));
    }

    #[test]
    fn a_branchs_own_fields_beat_the_call() {
        let fork = [(1, 0, 10), (2, 1, 20), (3, 2, 30), (12, 1, 21), (13, 12, 31)];
        let refs = json!({"current-snapshot-id": 3, "refs": {
            "main": {"snapshot-id": 3, "type": "branch"},
            "audit": {"snapshot-id": 13, "type": "branch", "min-snapshots-to-keep": 2},
            "long": {"snapshot-id": 2, "type": "branch", "max-snapshot-age-ms": i64::MAX}}});
        assert_eq!(expired(&table(&fork, refs), &older_than(NOW)), [0i64; 0], "long keeps 1 and 2");
        let refs = json!({"current-snapshot-id": 3, "refs": {
            "main": {"snapshot-id": 3, "type": "branch"},
            "audit": {"snapshot-id": 13, "type": "branch", "min-snapshots-to-keep": 2}}});
        assert_eq!(expired(&table(&fork, refs), &older_than(NOW)), [1, 2]);
    }

    #[test]
    fn a_tag_protects_only_its_own_snapshot() {
        let refs = json!({"current-snapshot-id": 1, "refs": {
            "main": {"snapshot-id": 1, "type": "branch"}, "t": {"snapshot-id": 3, "type": "tag"}}});
        assert_eq!(expired(&table(&LINE, refs), &older_than(NOW)), [2, 4]);
    }

    #[test]
    fn young_unreferenced_snapshots_stay() {
        let refs = json!({"current-snapshot-id": 1, "refs": {"main": {"snapshot-id": 1, "type": "branch"}}});
        let rolled_back = table(&LINE, refs);
        assert_eq!(expired(&rolled_back, &older_than(30)), [2]);
        let retain_all = RetentionPolicy { retain_last: Some(100), ..older_than(30) };
        assert_eq!(expired(&rolled_back, &retain_all), [2], "a minimum never applies to them");
    }

    #[test]
    fn a_dangling_ref_goes_and_a_dangling_main_is_refused() {
        let dangling = |name: &str| {
            table(&LINE, json!({"current-snapshot-id": 4, "refs": {name: {"snapshot-id": 77, "type": "branch"}}}))
        };
        let decision = choose_expired(&dangling("b"), &older_than(0), NOW).unwrap();
        assert_eq!(decision.removed_refs().collect::<Vec<_>>(), ["b"]);
        let error = choose_expired(&dangling("main"), &older_than(0), NOW).unwrap_err().to_string();
        assert!(error.contains("main") && error.contains("77"), "{error}");
    }

    #[test]
    fn expire_before_only_protects() {
        let line = table(&LINE, json!({"current-snapshot-id": 4}));
        let fuse = |fuse| RetentionPolicy { expire_before_ms: Some(fuse), ..older_than(NOW) };
        assert_eq!(expired(&line, &fuse(20)), [1]);
        assert_eq!(expired(&line, &fuse(21)), [1, 2]);
        let only_fuse = RetentionPolicy { expire_before_ms: Some(NOW), ..Default::default() };
        assert_eq!(expired(&line, &only_fuse), [0i64; 0], "nothing here is 5 days old");
    }

    #[test]
    fn named_snapshots_go_and_no_others() {
        let line = table(&LINE, json!({"current-snapshot-id": 4, "refs": {"t": {"snapshot-id": 2, "type": "tag"}}}));
        let ids = |ids: &[i64]| RetentionPolicy { snapshot_ids: Some(ids.to_vec()), ..Default::default() };
        assert_eq!(expired(&line, &ids(&[3, 1, 3])), [1, 3]);
        let fused = RetentionPolicy { expire_before_ms: Some(30), ..ids(&[1, 3]) };
        assert_eq!(expired(&line, &fused), [1]);
        for (policy, says) in [
            (ids(&[99]), "snapshot 99 of snapshot_ids does not exist"),
            (ids(&[4]), "Cannot expire 4. Still referenced by refs: [main]"),
            (ids(&[2]), "Cannot expire 2. Still referenced by refs: [t]"),
            (ids(&[]), "snapshot_ids is empty"),
            (RetentionPolicy { retain_last: Some(1), ..ids(&[1]) }, "can't be combined"),
            (RetentionPolicy { older_than_ms: Some(1), ..ids(&[1]) }, "can't be combined"),
        ] {
            let error = choose_expired(&line, &policy, NOW).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn snapshots_of_a_range_go_except_the_heads_of_refs() {
        let line = table(&LINE, json!({"current-snapshot-id": 4, "refs": {"t": {"snapshot-id": 2, "type": "tag"}}}));
        let between = |from, to| RetentionPolicy { made_between_ms: Some((from, to)), ..Default::default() };
        assert_eq!(expired(&line, &between(10, 30)), [1, 3], "both ends included, the tag's snapshot stays");
        assert_eq!(expired(&line, &between(11, 29)), [0i64; 0]);
        assert_eq!(expired(&line, &between(0, NOW)), [1, 3], "main's head stays");
        let fused = RetentionPolicy { expire_before_ms: Some(30), ..between(0, NOW) };
        assert_eq!(expired(&line, &fused), [1]);
        for policy in [between(2, 1), RetentionPolicy { retain_last: Some(1), ..between(0, 9) }] {
            assert!(choose_expired(&line, &policy, NOW).is_err(), "{policy:?}");
        }
    }

    #[test]
    fn unused_schemas_go_even_when_no_snapshot_does() {
        let schemas = json!([{"schema-id": 0}, {"schema-id": 1}, {"schema-id": 2}]);
        let clean = RetentionPolicy { clean_expired_metadata: true, ..Default::default() };
        let empty = table(&[], json!({"schemas": schemas, "current-schema-id": 2}));
        assert_eq!(choose_expired(&empty, &clean, NOW).unwrap().unused_schema_ids, [0, 1]);
        let unknown = table(&LINE, json!({"schemas": schemas, "current-schema-id": 2, "current-snapshot-id": 4}));
        assert_eq!(choose_expired(&unknown, &clean, NOW).unwrap().unused_schema_ids, [0i32; 0], "no schema-id noted");
    }

    #[test]
    fn the_default_and_used_partition_specs_stay() {
        let specs = json!([{"spec-id": 0}, {"spec-id": 1}, {"spec-id": 2}]);
        let metadata = table(&[], json!({"partition-specs": specs, "default-spec-id": 2}));
        assert_eq!(unused_partition_specs(&metadata, &HashSet::from([0])), [1]);
    }
}
