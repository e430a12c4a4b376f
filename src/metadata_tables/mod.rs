//! The tables that show a table's metadata: its snapshots, refs, manifests, files and so on, as rows.
//!
//! Each is a table function of its own (`iceberg_snapshots('db.t')`), and a table by its name where a catalog is registered with
//! DataFusion ([`names`]). Their columns, the order of these and their types are those of Spark's metadata tables.
//!
//! All of them only read, so that they may stand anywhere in a query, any number of times, whatever the session option
//! `table_functions` says. What is read is decided when rows are asked for: the newest metadata, once for each scan's execution, and
//! of manifest lists and manifests only what the rows come from, each file once, shared by all partitions. Where columns depend on the
//! table (`partition`, `readable_metrics`), its metadata is also loaded while the statement is planned. Rows are complete or the query
//! fails: nothing that can't be read is left out.

mod entries;
mod exec;
mod execution;
mod human;
mod load;
mod manifests;
mod metrics;
mod names;
mod partitions;
mod planning;
mod provider;
mod pruning;
mod rows;
mod schema;
mod single_value;
mod snapshot;

use std::fmt::Debug;

use datafusion::config::ConfigOptions;

pub(crate) use names::with_metadata_tables;
pub(crate) use provider::MetadataTableProvider;
pub(crate) use snapshot::SnapshotChoice;

use schema::TableShape;

use crate::error::Result;
use crate::procedure::{Arguments, Parameter, ParameterKind, parameter};

/// One of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataTable {
    /// The snapshots.
    Snapshots,
    /// Branches and tags.
    Refs,
    /// The snapshot log: which snapshot was made the current one when.
    History,
    /// The metadata files that were the current one before, and this one.
    MetadataLog,
    /// The table's properties.
    Properties,
    /// The manifests of a snapshot.
    Manifests,
    /// The live files of a snapshot.
    Files,
    /// All entries of a snapshot's manifests, those of deleted files included.
    Entries,
    /// The live files of all manifests of all snapshots.
    AllFiles,
    /// All entries of all manifests of all snapshots.
    AllEntries,
    /// The manifests of all snapshots, each once for every snapshot that has it.
    AllManifests,
    /// The partitions of a snapshot, with what their live files have together.
    Partitions,
}

impl MetadataTable {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::Snapshots,
        Self::Refs,
        Self::History,
        Self::MetadataLog,
        Self::Properties,
        Self::Manifests,
        Self::Files,
        Self::Entries,
        Self::AllFiles,
        Self::AllEntries,
        Self::AllManifests,
        Self::Partitions,
    ];

    /// The name of its table function, lower case.
    pub(crate) const fn function(self) -> &'static str {
        match self {
            Self::Snapshots => "iceberg_snapshots",
            Self::Refs => "iceberg_refs",
            Self::History => "iceberg_history",
            Self::MetadataLog => "iceberg_metadata_log",
            Self::Properties => "iceberg_properties",
            Self::Manifests => "iceberg_manifests",
            Self::Files => "iceberg_files",
            Self::Entries => "iceberg_entries",
            Self::AllFiles => "iceberg_all_files",
            Self::AllEntries => "iceberg_all_entries",
            Self::AllManifests => "iceberg_all_manifests",
            Self::Partitions => "iceberg_partitions",
        }
    }

    /// Finds one by the name of its function, in any case.
    pub(crate) fn of_function(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.function().eq_ignore_ascii_case(name))
    }

    /// Finds one by what stands behind a table's name, in any case: the function's name without `iceberg_`, and Spark's name.
    pub(crate) fn of_suffix(suffix: &str) -> Option<Self> {
        if suffix.eq_ignore_ascii_case("metadata_log_entries") {
            return Some(Self::MetadataLog);
        }
        let own = |table: &Self| {
            table.function().strip_prefix("iceberg_").is_some_and(|own| own.eq_ignore_ascii_case(suffix))
        };
        Self::ALL.into_iter().find(own)
    }

    /// The parameters of its function.
    pub(crate) const fn parameters(self) -> &'static [Parameter] {
        if self.is_of_one_snapshot() { SNAPSHOT_PARAMETERS } else { TABLE_PARAMETERS }
    }

    /// True where the rows are those of one snapshot, the current one or another.
    const fn is_of_one_snapshot(self) -> bool {
        matches!(self, Self::Manifests | Self::Files | Self::Entries | Self::Partitions)
    }

    /// True where the columns depend on the table.
    const fn depends_on_table(self) -> bool {
        matches!(self, Self::Files | Self::Entries | Self::AllFiles | Self::AllEntries | Self::Partitions)
    }

    /// True where the rows come from any number of manifests or manifest lists, as they are read.
    const fn is_of_many_files(self) -> bool {
        matches!(self, Self::Files | Self::Entries | Self::AllFiles | Self::AllEntries | Self::AllManifests)
    }

    /// True where a row is an entry, whatever its status; the columns of its file are in a struct of their own.
    const fn is_of_entries(self) -> bool {
        matches!(self, Self::Entries | Self::AllEntries)
    }

    /// The columns that it has for an unpartitioned table.
    pub(crate) fn unpartitioned_columns(self) -> Vec<String> {
        let schema = schema::of(self, &TableShape::of_some_table());
        schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// What the arguments ask for.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) when there is no table, or more than one argument says which snapshot.
    pub(crate) fn bind(self, arguments: &Arguments) -> Result<Request> {
        Ok(Request { table: self, name: arguments.table()?, snapshot: SnapshotChoice::of(arguments)? })
    }
}

/// Which rows are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) table: MetadataTable,
    /// The table whose metadata it is: a name or a location.
    pub(crate) name: String,
    pub(crate) snapshot: SnapshotChoice,
}

/// Who asks for rows. What is asked for may depend on when, and on the session's options.
pub(crate) trait Ask: Debug + Send + Sync {
    /// What is asked for now.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    fn request(&self, config: &ConfigOptions) -> Result<Request>;
}

impl Ask for Request {
    fn request(&self, _config: &ConfigOptions) -> Result<Request> {
        Ok(self.clone())
    }
}

const TABLE: Parameter = Parameter {
    aliases: &["table_name"],
    ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
};

const TABLE_PARAMETERS: &[Parameter] = &[TABLE];

const SNAPSHOT_PARAMETERS: &[Parameter] = &[
    TABLE,
    parameter("snapshot_id", ParameterKind::Integer(0), None, "this snapshot in the place of the current one"),
    parameter("as_of", ParameterKind::Timestamp, None, "the snapshot that was the current one then"),
    parameter("ref", ParameterKind::Text, None, "the snapshot that this branch or tag points to"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_by_function_and_by_suffix_in_any_case() {
        for table in MetadataTable::ALL {
            let function = table.function();
            assert_eq!(MetadataTable::of_function(&function.to_uppercase()), Some(table));
            assert_eq!(MetadataTable::of_suffix(function.trim_start_matches("iceberg_")), Some(table));
        }
        assert_eq!(MetadataTable::of_suffix("Metadata_Log_Entries"), Some(MetadataTable::MetadataLog));
        for other in ["", "snapshot", "iceberg_snapshots", "position_deletes"] {
            assert_eq!(MetadataTable::of_suffix(other), None, "{other}");
        }
        assert_eq!(MetadataTable::of_function("snapshots"), None);
    }
}
