//! A table on the local disk for the tests of catalogs that keep a pointer.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use tempfile::TempDir;

use crate::catalog::{LoadedTable, TableCommit, refs_of};
use crate::fixtures::{self, History, MetadataNaming, Written};
use crate::table::{MetadataChange, TableMetadata};

const BEGIN_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 3_600_000;

/// A table with three snapshots, whose newest metadata file is its second, named as catalogs do.
pub(in crate::catalog) struct TableOnDisk {
    pub warehouse: TempDir,
    pub written: Written,
    /// Where the newest metadata is, as a catalog names it.
    pub pointer: String,
    pub runtime: Arc<RuntimeEnv>,
}

impl TableOnDisk {
    pub(in crate::catalog) fn new() -> Self {
        let warehouse = tempfile::tempdir().unwrap();
        let table =
            fixtures::Table { naming: MetadataNaming::Catalog, last_updated_ms: BEGIN_MS, ..fixtures::Table::new(2) };
        let mut history = History::new(table);
        for (hour, file) in [(1, "a"), (2, "b"), (3, "c")] {
            history.append(BEGIN_MS + hour * HOUR_MS, [file]);
        }
        let written = history.build().write(warehouse.path().join("t")).unwrap();
        let pointer = written.locate(&written.metadata_path);
        Self { warehouse, written, pointer, runtime: Arc::default() }
    }

    /// The names of the metadata files.
    pub(in crate::catalog) fn metadata_files(&self) -> BTreeSet<String> {
        let files = self.written.files_on_disk().unwrap();
        files.into_iter().filter(|file| file.ends_with(".metadata.json")).collect()
    }

    /// Metadata as somebody else would have committed it on top of what is there now, under this name; its location.
    pub(in crate::catalog) fn commit_elsewhere(&self, name: &str, base: &str) -> String {
        let content = std::fs::read(self.path(base)).unwrap();
        let metadata = TableMetadata::parse(base, &content).unwrap();
        let change = MetadataChange::default().apply(&metadata, BEGIN_MS + 9 * HOUR_MS).unwrap();
        let location = self.written.locate(&format!("metadata/{name}"));
        std::fs::write(self.path(&location), change.json).unwrap();
        location
    }

    /// The metadata at a location.
    pub(in crate::catalog) fn metadata(&self, location: &str) -> TableMetadata {
        TableMetadata::parse(location, &std::fs::read(self.path(location)).unwrap()).unwrap()
    }

    fn path(&self, location: &str) -> String {
        location.strip_prefix("file:").unwrap_or(location).to_string()
    }
}

/// A commit that takes out the oldest snapshot.
pub(in crate::catalog) fn without_the_oldest_snapshot(base: &LoadedTable) -> TableCommit {
    let oldest = base.metadata.snapshots()[0].snapshot_id;
    let change = MetadataChange { removed_snapshot_ids: BTreeSet::from([oldest]), ..MetadataChange::default() };
    TableCommit {
        table_uuid: base.metadata.table_uuid().map(str::to_string),
        expected_refs: refs_of(&base.metadata),
        base_metadata_location: base.metadata.metadata_location().to_string(),
        new_metadata: change.apply(&base.metadata, BEGIN_MS + 8 * HOUR_MS).unwrap().json,
        change,
    }
}
