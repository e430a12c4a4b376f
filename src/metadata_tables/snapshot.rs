//! Which snapshot the rows are those of.

use std::fmt;

use crate::catalog::LoadedTable;
use crate::error::{Error, Result};
use crate::procedure::Arguments;
use crate::table::{Snapshot, TableMetadata};
use crate::time::format_ms;

/// How a snapshot is named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum SnapshotChoice {
    /// The current one, if there is any.
    #[default]
    Current,
    /// By its id.
    Id(i64),
    /// The one that was the current one at this time, ms since the epoch.
    AsOf(i64),
    /// The one that a branch or tag points to.
    Ref(String),
}

impl SnapshotChoice {
    /// What the arguments `snapshot_id`, `as_of` and `ref` say.
    ///
    /// # Errors
    /// [`Error::Argument`] when more than one of them is given.
    pub(super) fn of(arguments: &Arguments) -> Result<Self> {
        arguments.exclusive("snapshot_id", "as_of")?;
        arguments.exclusive("snapshot_id", "ref")?;
        arguments.exclusive("as_of", "ref")?;
        let id = arguments.integer("snapshot_id").map(Self::Id);
        let as_of = arguments.timestamp("as_of").map(Self::AsOf);
        Ok(id.or(as_of).or(arguments.text("ref").map(Self::Ref)).unwrap_or_default())
    }

    /// The snapshot; `None` for the current one of a table that has none.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such snapshot. `function` is who was asked for it.
    pub(super) fn find<'t>(&self, table: &'t LoadedTable, function: &str) -> Result<Option<&'t Snapshot>> {
        let metadata = &table.metadata;
        let found = match self {
            Self::Current => return Ok(metadata.current_snapshot_id().and_then(|id| metadata.snapshot(id))),
            Self::Id(id) => metadata.snapshot(*id).ok_or_else(|| {
                format!(
                    "argument snapshot_id: table {} has no snapshot {id}; iceberg_snapshots(…) lists them",
                    table.name
                )
            }),
            Self::AsOf(ms) => as_of(metadata, *ms).map_err(|why| format!("argument as_of: {why}")),
            Self::Ref(name) => {
                by_ref(metadata, name).map_err(|why| format!("argument ref: table {} {why}", table.name))
            }
        };
        found.map(Some).map_err(|message| Error::argument(function, message))
    }
}

/// The last snapshot that the log has at a time or before it, in the order of the log, as `SnapshotUtil.snapshotIdAsOfTime` finds it.
pub(super) fn id_as_of(metadata: &TableMetadata, ms: i64) -> Option<i64> {
    metadata.snapshot_log().iter().rev().find(|entry| entry.timestamp_ms <= ms).map(|entry| entry.snapshot_id)
}

fn as_of(metadata: &TableMetadata, ms: i64) -> Result<&Snapshot, String> {
    let Some(id) = id_as_of(metadata, ms) else {
        return Err(match metadata.snapshot_log().iter().map(|entry| entry.timestamp_ms).min() {
            Some(first) => format!(
                "no snapshot was the current one at {}: the table's snapshot log begins at {}",
                format_ms(ms),
                format_ms(first)
            ),
            None => {
                "the table has no snapshot log, which tells what was the current snapshot when; give snapshot_id".into()
            }
        });
    };
    let expired =
        || format!("snapshot {id}, which was the current one at {}, is not in the table any more", format_ms(ms));
    metadata.snapshot(id).ok_or_else(expired)
}

fn by_ref<'t>(metadata: &'t TableMetadata, name: &str) -> Result<&'t Snapshot, String> {
    let refs = metadata.refs();
    let Some(found) = refs.get(name) else {
        let known: Vec<&str> = refs.keys().map(String::as_str).collect();
        return Err(match known.is_empty() {
            true => format!("has no branch or tag {name}: it has none"),
            false => format!("has no branch or tag {name}; there are {}", known.join(", ")),
        });
    };
    let id = found.snapshot_id;
    metadata.snapshot(id).ok_or_else(|| format!("has no snapshot {id}, which {name} points to"))
}

impl fmt::Display for SnapshotChoice {
    /// As an argument behind the table's name; nothing for the current snapshot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => Ok(()),
            Self::Id(id) => write!(f, ", snapshot_id => {id}"),
            Self::AsOf(ms) => write!(f, ", as_of => TIMESTAMP '{}'", format_ms(*ms)),
            Self::Ref(name) => write!(f, ", ref => '{name}'"),
        }
    }
}
