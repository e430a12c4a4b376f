//! What becomes of a file.

use std::fmt;

use serde::Serialize;

use super::naming::{Naming, some_of};
use super::place::{Age, Place, Surroundings, There};
use crate::catalog::TableHandle;
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::procedure::remove_orphan_files::{self, RemoveOrphanFiles};
use crate::reachability::OneFile;
use crate::report::FileStatus;
use crate::table::TableMetadata;
use crate::time::format_ms;

/// What becomes of a file, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileVerdict {
    /// It stays.
    Kept(String),
    /// Only snapshots that may expire need it.
    Expirable(String),
    /// `remove_orphan_files` would delete it, with its default arguments.
    Orphan,
    /// It can't be told, or there is no such file.
    Unknown(String),
}

impl fmt::Display for FileVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileVerdict::Kept(why) => write!(f, "kept: {why}"),
            FileVerdict::Expirable(when) => write!(f, "would be removed by expire_snapshots once {when}"),
            FileVerdict::Orphan => f.write_str("orphan: remove_orphan_files would delete it"),
            FileVerdict::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

/// The verdict on a file that something names.
pub(super) fn of_needed(naming: &Naming, metadata: &TableMetadata, surroundings: &Surroundings) -> Option<FileVerdict> {
    if !naming.is_named() {
        return None;
    }
    if let Some(place) = naming.by_metadata.first() {
        return Some(FileVerdict::Kept(match *place {
            "metadata log" => "the metadata log of the newest metadata names it".into(),
            place => format!("it is the table's {place}"),
        }));
    }
    let heads = naming.heads(metadata);
    if let Some((_, snapshot_id)) = heads.first() {
        let refs: Vec<&str> = heads.iter().filter(|(_, id)| id == snapshot_id).map(|(name, _)| name.as_str()).collect();
        let others = match naming.snapshots.len() {
            0 | 1 => String::new(),
            all => format!(", and so do {} others", all - 1),
        };
        return Some(FileVerdict::Kept(format!("snapshot {snapshot_id} ({}) needs it{others}", refs.join(", "))));
    }
    if naming.is_left_over_statistics {
        return Some(FileVerdict::Kept("the metadata has a statistics entry for it, though not its snapshot".into()));
    }
    let ids: Vec<String> = naming.snapshots.iter().map(i64::to_string).collect();
    let snapshots = match &ids[..] {
        [only] => format!("snapshot {only} has expired"),
        ids => format!("snapshots {} have expired", some_of(ids, ", ")),
    };
    Some(FileVerdict::Expirable(match surroundings.root {
        Some(_) => snapshots,
        None => format!("{snapshots}, if called with delete_external_files => true"),
    }))
}

/// The verdict on a file that nothing names: what `remove_orphan_files` would do, by its own plan.
pub(super) async fn of_unneeded(
    handle: TableHandle,
    place: &Place,
    surroundings: &Surroundings,
    file: &mut OneFile,
    context: &RunContext,
) -> Result<FileVerdict> {
    match &place.there {
        There::Nothing => return Ok(FileVerdict::Unknown("there is no such file, and nothing names it".into())),
        There::Folder => return Ok(FileVerdict::Unknown("it is a folder, not a file".into())),
        There::Unreachable(why) => return Ok(FileVerdict::Unknown(why.clone())),
        There::File(_) | There::Link(_) | There::Other => {}
    }
    if surroundings.root.is_none() {
        let why = "nothing names it, but it lies outside of the table's folders, where nothing is deleted";
        return Ok(FileVerdict::Kept(why.into()));
    }
    if !surroundings.is_searched {
        let why = "nothing names it, but remove_orphan_files searches its folder only when that is named as location";
        return Ok(FileVerdict::Kept(why.into()));
    }
    let options = RemoveOrphanFiles::older_than(surroundings.cutoff_ms, context.maintenance.now_ms());
    let plan = match remove_orphan_files::plan(handle, &options, None, context).await {
        Ok(plan) => plan,
        Err(error @ (Error::Storage { .. } | Error::Engine(_) | Error::ListingOrder { .. })) => return Err(error),
        Err(refusal) => {
            return Ok(FileVerdict::Unknown(format!("nothing names it, but remove_orphan_files refuses: {refusal}")));
        }
    };
    for planned in plan.files() {
        if file.is_listed_as(&planned.path)? {
            return Ok(match &planned.status {
                FileStatus::Spared(why) => FileVerdict::Kept(why.explanation().into()),
                FileStatus::Failed(why) => {
                    FileVerdict::Unknown(format!("remove_orphan_files could not delete it: {why}"))
                }
                FileStatus::Missing => FileVerdict::Unknown("it is gone meanwhile".into()),
                FileStatus::Planned | FileStatus::Deleted | FileStatus::Quarantined | FileStatus::Returned => {
                    FileVerdict::Orphan
                }
            });
        }
    }
    Ok(FileVerdict::Kept(why_not_planned(place, surroundings)))
}

/// Why the plan of `remove_orphan_files` leaves a file out, in the order in which it asks.
fn why_not_planned(place: &Place, surroundings: &Surroundings) -> String {
    let Surroundings { hidden, is_own_folder, age, is_journal, cutoff_ms, .. } = surroundings;
    match (&place.there, hidden) {
        _ if *is_journal => "it is the journal of a run".into(),
        (There::Link(_), _) => "it is a link, and links are never deleted".into(),
        (There::Other, _) => "it is neither a file nor a folder, which is never deleted".into(),
        (_, Some(part)) if part.ends_with(".crc") => {
            format!("{part} is a hidden name; a checksum of Hadoop's local file system goes with its file")
        }
        (_, Some(part)) => format!("{part} is a hidden name"),
        _ if !is_own_folder => "nothing names it, but it lies where the table neither writes nor has live files".into(),
        _ => match age {
            Age::Young(_) => format!("nothing names it, but it is not older than {}", format_ms(*cutoff_ms)),
            Age::Unknown => "nothing names it, but its age is unknown".into(),
            Age::Old(_) => {
                "it may be in use under another name: a link leads to it, a live file elsewhere has its name, or \
                            metadata that is not the newest names it"
                    .into()
            }
        },
    }
}
