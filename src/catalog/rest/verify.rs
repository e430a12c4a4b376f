//! Whether a server did what it said it did.
//!
//! A server may ignore an update and answer 200, or drop a tag that still names a removed snapshot. So the metadata that it
//! answers is compared with what was asked for, step by step: the one step of the table's history in which the removed
//! snapshots went must have taken exactly these, and every ref of the metadata before it must have stayed.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::{TableCommit, refs_of};
use crate::error::Result;
use crate::storage::Stores;
use crate::table::{Location, MetadataChange, PathRules, TableMetadata};

/// How many commits of others between the base and the answer are looked at.
const MAX_STEPS: usize = 20;

/// Compares the answer to a commit on `base` with what was asked for. `Some` says how it differs.
///
/// Where others committed meanwhile, their metadata files are read: the answer alone doesn't show a tag that was made after
/// the base was loaded, and dropped with its snapshot.
pub(super) async fn difference(
    base: &TableMetadata,
    commit: &TableCommit,
    answer: &TableMetadata,
    stores: &Stores,
) -> Option<String> {
    if let Some(contradiction) = commit.contradicted_by(answer) {
        return Some(format!("the metadata that it answered {contradiction}"));
    }
    if is_same_file(base, answer.metadata_location(), base.metadata_location()) {
        return Some(format!("the metadata that it answered is still {}", base.metadata_location()));
    }
    let log: Vec<&str> = answer.metadata_log().iter().map(|entry| entry.metadata_file.as_str()).collect();
    let known = log.iter().rposition(|file| is_same_file(base, file, base.metadata_location()));
    let (mut before, between) = match (known, log.last()) {
        (Some(at), _) => (base.clone(), &log[at + 1..]),
        (None, Some(last)) => match read(base, last, stores).await {
            // Then ours came before it, in a step that the log doesn't reach back to.
            Ok(before) if shows(&before, &commit.change) => {
                return Some(
                    "others committed after it, and the metadata-log does not reach back to what was there before"
                        .into(),
                );
            }
            Ok(before) => (before, &[][..]),
            Err(why) => return Some(unreadable(last, &why)),
        },
        (None, None) => {
            return Some(
                "the metadata that it answered has no metadata-log, so that what was there before the commit is unknown"
                    .into(),
            );
        }
    };
    if between.len() > MAX_STEPS {
        return Some(format!("{} other commits came meanwhile, too many to be looked at", between.len()));
    }
    for file in between {
        let after = match read(base, file, stores).await {
            Ok(after) => after,
            Err(why) => return Some(unreadable(file, &why)),
        };
        if shows(&after, &commit.change) {
            return difference_of_step(&before, &after, &commit.change);
        }
        before = after;
    }
    difference_of_step(&before, answer, &commit.change)
}

/// What the metadata file of a table has that the server's answer for it lacks: a server that answers with a part of the table
/// would have the files of the rest taken for orphans.
///
/// # Errors
/// Why the file can't be read: then nothing is known.
pub(super) async fn missing_in_answer(answer: &TableMetadata, stores: &Stores) -> Result<Option<String>, String> {
    let file = read(answer, answer.metadata_location(), stores).await?;
    if let Some(snapshot) = file.snapshots().iter().find(|snapshot| answer.snapshot(snapshot.snapshot_id).is_none()) {
        return Ok(Some(format!("snapshot {}", snapshot.snapshot_id)));
    }
    let refs = answer.refs();
    Ok(file.refs().into_keys().find(|name| !refs.contains_key(name)).map(|name| format!("ref {name}")))
}

async fn read(base: &TableMetadata, file: &str, stores: &Stores) -> Result<TableMetadata, String> {
    let read = async { TableMetadata::parse(file, &stores.read(file).await?) };
    let metadata = read.await.map_err(|why| why.to_string())?;
    match metadata.table_uuid() == base.table_uuid() {
        true => Ok(metadata),
        false => Err("it belongs to another table".into()),
    }
}

fn unreadable(file: &str, why: &str) -> String {
    format!(
        "somebody else committed just before, and what can't be told is whether a ref of theirs was lost: {file}: {why}"
    )
}

/// A server may spell a location otherwise than the metadata did.
fn is_same_file(base: &TableMetadata, a: &str, b: &str) -> bool {
    match (Location::parse(a), Location::parse(b)) {
        (Ok(a), Ok(b)) => PathRules::new(base.location()).same_place(&a, &b),
        _ => a == b,
    }
}

/// True when nothing is left of what was to go.
fn shows(metadata: &TableMetadata, change: &MetadataChange) -> bool {
    let refs = metadata.refs();
    change.removed_snapshot_ids.iter().all(|id| metadata.snapshot(*id).is_none())
        && change.removed_refs.iter().all(|name| !refs.contains_key(name))
        && metadata.schema_ids().all(|id| !change.removed_schema_ids.contains(&id))
        && metadata.partition_spec_ids().all(|id| !change.removed_partition_spec_ids.contains(&id))
}

/// How the step from `before` to `after` differs from the change alone.
fn difference_of_step(before: &TableMetadata, after: &TableMetadata, change: &MetadataChange) -> Option<String> {
    if let Some(why) = difference_of_refs(before, after, change) {
        return Some(why);
    }
    let ids = |metadata: &TableMetadata| -> BTreeSet<i64> {
        metadata.snapshots().iter().map(|snapshot| snapshot.snapshot_id).collect()
    };
    let (mut wanted, found) = (ids(before), ids(after));
    wanted.retain(|id| !change.removed_snapshot_ids.contains(id));
    if let Some(lost) = wanted.difference(&found).next() {
        return Some(format!("snapshot {lost}, which should have stayed, is gone"));
    }
    if let Some(new) = found.difference(&wanted).next() {
        return Some(format!("snapshot {new} is there, which was not to be added or kept"));
    }
    let (was, is) = (before.current_snapshot_id(), after.current_snapshot_id());
    let text = |id: Option<i64>| id.map_or("none".to_string(), |id| id.to_string());
    (was != is).then(|| format!("the current snapshot was {} and is now {}", text(was), text(is)))
}

fn difference_of_refs(before: &TableMetadata, after: &TableMetadata, change: &MetadataChange) -> Option<String> {
    let (mut wanted, found): (BTreeMap<String, i64>, BTreeMap<String, i64>) = (refs_of(before), refs_of(after));
    wanted.retain(|name, _| !change.removed_refs.contains(name));
    for (name, id) in &wanted {
        match found.get(name) {
            Some(now) if now == id => {}
            Some(now) => return Some(format!("ref {name} pointed to snapshot {id} and now points to {now}")),
            None => return Some(format!("ref {name} to snapshot {id}, which should have stayed, is gone")),
        }
    }
    if let Some((name, id)) = found.iter().find(|(_, id)| after.snapshot(**id).is_none()) {
        return Some(format!("ref {name} points to snapshot {id}, which is not there"));
    }
    found.keys().find(|name| !wanted.contains_key(*name)).map(|new| format!("ref {new} is new"))
}
