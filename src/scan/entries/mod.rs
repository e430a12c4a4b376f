//! Manifests with all of their fields: the rows of Iceberg's metadata table `entries` (table spec, section "Manifests").
//!
//! [`super::manifest`] decodes the few fields that decide which files are live, for whole tables at once. This decodes
//! whatever somebody wants to look at, and only that: what isn't wanted is walked over, and a count of the entries decodes
//! nothing but their status.
//!
//! What the manifest list says of a manifest is filled in as the spec says ([`Inherited`]), and partitions of all specs of
//! a table have one type ([`PartitionType`](crate::table::PartitionType)). What can't be read is an error that names the
//! manifest and the field. Nothing here decides which files are live.

mod columns;
mod decode;
mod fields;
mod partition;

pub(crate) use fields::{EntryField, EntryFields, entry_schema};
pub(crate) use partition::{arrow_type, partition_fields};

pub(in crate::scan) use decode::{EntryFile, EntryShape};

/// What a manifest's entries take from the manifest list (table spec, "Sequence Number Inheritance", "First Row ID
/// Inheritance"). All `None`: nothing is known, as of the manifests that v1 metadata lists itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// The snapshot of entries that name none.
    pub(crate) added_snapshot_id: Option<i64>,
    /// The sequence numbers of added files that have none. `None` is 0, which all files of v1 have.
    pub(crate) sequence_number: Option<i64>,
    /// The spec of all files of the manifest. `None`: what the manifest's header says.
    pub(crate) partition_spec_id: Option<i32>,
    /// The first row id of the first live file that has none; the next ones follow, each after the rows of the one before.
    /// `None`: the files have no row ids, whatever the manifest says.
    pub(crate) first_row_id: Option<i64>,
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod other_readers;
#[cfg(test)]
mod tests;
