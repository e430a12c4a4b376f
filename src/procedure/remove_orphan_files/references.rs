//! Everything that a table's metadata names, as sets that listed files are looked up in.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::listing::Scope;
use crate::catalog::{LoadedTable, TableHandle, VERSION_HINT};
use crate::deletion::NewestMetadata;
use crate::error::Result;
use crate::reachability::{
    FileIdentity, LiveFiles, LiveFilesBuilder, Liveness, ManifestFile, Reading, for_each_live_entry,
    insert_metadata_files, list_manifests,
};
use crate::table::{Roots, Snapshot};

/// The files that all snapshots of a table name, and those that its metadata names itself.
pub(super) struct References {
    /// Live data and delete files of all snapshots.
    content: LiveFiles,
    /// Manifests, manifest lists, statistics, metadata files, the version hint.
    structure: LiveFiles,
    /// Manifests and manifest lists in the scope: the listing must show them.
    expected_structure: Vec<String>,
    manifests: Vec<ManifestFile>,
    snapshots: HashSet<i64>,
    scope: Roots,
    /// File names of live data and delete files that lie in none of the table's roots. If the root has another address
    /// that we don't recognise, this is how its files look.
    names_elsewhere: HashSet<String>,
}

impl References {
    pub(super) async fn read(
        table: &LoadedTable,
        scope: &Scope,
        identity: &FileIdentity,
        task: &Arc<TaskContext>,
    ) -> Result<Self> {
        let scope = scope.as_roots(identity.rules());
        let roots = table.metadata.roots(identity.rules().clone());
        let all_metadata = || std::iter::once(&table.metadata).chain(&table.other_metadata);
        let mut snapshots: Vec<&Snapshot> = Vec::new();
        let mut known = HashSet::new();
        snapshots.extend(all_metadata().flat_map(|m| m.snapshots()).filter(|s| known.insert(s.snapshot_id)));

        let listed = list_manifests(&snapshots, Reading::Strict, task).await?;
        let mut structure = LiveFilesBuilder::new(identity.clone(), task.memory_pool());
        for metadata in all_metadata() {
            insert_metadata_files(metadata, &mut structure)?;
        }
        let folder = table.metadata.location().child("metadata");
        structure.insert(&folder.child(VERSION_HINT).to_string(), false)?;
        let lists = snapshots.iter().filter_map(|snapshot| snapshot.manifest_list.as_deref());
        let manifests = listed.manifests.iter().map(|manifest| manifest.reference.location.as_str());
        let mut expected_structure = Vec::new();
        for file in lists.chain(manifests).chain([table.metadata.metadata_location()]) {
            let expected = scope.contains(file);
            structure.insert(file, expected)?;
            if expected {
                expected_structure.push(file.to_string());
            }
        }
        let mut content = LiveFilesBuilder::new(identity.clone(), task.memory_pool());
        let mut names_elsewhere = HashSet::new();
        for_each_live_entry(&listed.manifests, Reading::Strict, task, |entry| {
            let expected = scope.contains(entry.path);
            if !expected && !roots.contains(entry.path) {
                names_elsewhere.insert(file_name(entry.path).to_string());
            }
            content.insert(entry.path, expected)
        })
        .await?;
        Ok(Self {
            content: content.build(),
            structure: structure.build(),
            expected_structure,
            manifests: listed.manifests,
            snapshots: known,
            scope,
            names_elsewhere,
        })
    }

    pub(super) fn probe(&mut self, location: &str) -> Liveness {
        match self.content.probe(location) {
            Liveness::Live => Liveness::Live,
            content => match (content, self.structure.probe(location)) {
                (_, Liveness::Live) => Liveness::Live,
                (Liveness::Dead, structure) => structure,
                (content, _) => content,
            },
        }
    }

    /// How many distinct data and delete files are live.
    pub(super) fn live_content(&self) -> usize {
        self.content.len()
    }

    /// How many distinct manifests were read.
    pub(super) fn manifest_count(&self) -> usize {
        self.manifests.len()
    }

    /// True if a live file outside all roots has the same file name as this one.
    pub(super) fn is_named_elsewhere(&self, location: &str) -> bool {
        self.names_elsewhere.contains(file_name(location))
    }

    pub(super) fn newest_metadata(
        &self,
        handle: TableHandle,
        task: &Arc<TaskContext>,
        identity: FileIdentity,
        table: LoadedTable,
    ) -> NewestMetadata {
        let manifests = self.manifests.iter().map(|manifest| manifest.reference.location.clone()).collect();
        NewestMetadata::new(handle, task.clone(), identity, table, self.snapshots.clone(), manifests)
    }

    /// Live files in the scope that no listed file was, under any of its names. Reads the manifests again, but only if
    /// there may be such files.
    pub(super) async fn unseen(&mut self, task: &Arc<TaskContext>) -> Result<Vec<String>> {
        if self.content.unseen_count() + self.structure.unseen_count() == 0 {
            return Ok(vec![]);
        }
        let structure = &mut self.structure;
        let mut unseen: Vec<String> =
            self.expected_structure.iter().filter(|file| !structure.was_seen(file)).cloned().collect();
        let mut known = HashSet::new();
        let (content, scope) = (&mut self.content, &self.scope);
        for_each_live_entry(&self.manifests, Reading::Strict, task, |entry| {
            if scope.contains(entry.path) && !content.was_seen(entry.path) && known.insert(entry.path.to_string()) {
                unseen.push(entry.path.to_string());
            }
            Ok(())
        })
        .await?;
        Ok(unseen)
    }
}

fn file_name(location: &str) -> &str {
    location.rsplit('/').next().unwrap_or(location)
}
