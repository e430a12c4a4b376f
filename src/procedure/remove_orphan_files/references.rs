//! Everything that a table's metadata names, as sets that listed files are looked up in.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::listing::Scope;
use crate::catalog::{LoadedTable, TableHandle, VERSION_HINT};
use crate::deletion::NewestMetadata;
use crate::error::{Error, Result};
use crate::reachability::{
    FileIdentity, LiveFiles, LiveFilesBuilder, Liveness, ManifestFile, Reading, for_each_live_entry,
    insert_metadata_files, list_manifests,
};
use crate::storage::Stores;
use crate::table::location::{file_name, percent_decoded};
use crate::table::{FilePrefix, PathRules, Root, Roots, Snapshot, TableIdentity, TableMetadata};

/// The files that all snapshots of a table name, and those that its metadata names itself.
pub(super) struct References {
    /// Live data and delete files of all snapshots.
    content: LiveFiles,
    /// Manifests, manifest lists, statistics, metadata files, the version hint.
    structure: LiveFiles,
    /// Manifests and manifest lists in the scope: the listing must show them.
    expected_structure: Vec<String>,
    /// Manifests and manifest lists outside of the scope.
    structure_elsewhere: Vec<String>,
    manifests: Vec<ManifestFile>,
    snapshots: HashSet<i64>,
    scope: Roots,
    content_counts: ContentCounts,
    /// File names of live data and delete files that lie outside of the folder which holds the scope. If that folder has
    /// another address that we don't recognise, this is how its files look.
    names_elsewhere: HashSet<String>,
}

/// How many entries name live data and delete files in which place.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ContentCounts {
    pub all: usize,
    pub in_scope: usize,
    pub in_roots: usize,
}

/// Who names a listed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// A live manifest entry.
    Content,
    /// Metadata, a manifest list or a statistics entry.
    Structure,
    /// Something, under this scheme and authority, which the rules don't call equal.
    OtherPrefix(FilePrefix),
    /// Nothing.
    Nowhere,
}

/// What is collected while metadata is read.
struct Collected<'a> {
    scope: &'a Roots,
    roots: &'a Roots,
    /// The root that holds the scope.
    home: &'a Roots,
    content: LiveFilesBuilder,
    structure: LiveFilesBuilder,
    expected_structure: Vec<String>,
    structure_elsewhere: Vec<String>,
    manifests: Vec<ManifestFile>,
    known_manifests: HashSet<String>,
    snapshots: HashSet<i64>,
    content_counts: ContentCounts,
    names_elsewhere: HashSet<String>,
}

impl Collected<'_> {
    /// Reads what the metadata's snapshots name, as far as it wasn't read before.
    async fn add(&mut self, metadata: &TableMetadata, reading: Reading, task: &Arc<TaskContext>) -> Result<()> {
        insert_metadata_files(metadata, &mut self.structure)?;
        let known = &mut self.snapshots;
        let snapshots: Vec<&Snapshot> =
            metadata.snapshots().iter().filter(|snapshot| known.insert(snapshot.snapshot_id)).collect();
        let mut listed = list_manifests(&snapshots, reading, task).await?.manifests;
        listed.retain(|manifest| self.known_manifests.insert(manifest.reference.location.clone()));

        let lists = snapshots.iter().filter_map(|snapshot| snapshot.manifest_list.as_deref());
        let manifests = listed.iter().map(|manifest| manifest.reference.location.as_str());
        for file in lists.chain(manifests).chain([metadata.metadata_location()]) {
            // Only what the newest metadata names must be there.
            let in_scope = self.scope.contains(file);
            let expected = reading == Reading::Strict && in_scope;
            if !in_scope && !self.home.contains(file) {
                note_name(&mut self.names_elsewhere, file);
            }
            self.structure.insert(file, expected)?;
            match (expected, in_scope) {
                (true, _) => self.expected_structure.push(file.to_string()),
                (false, false) => self.structure_elsewhere.push(file.to_string()),
                (false, true) => {}
            }
        }
        for_each_live_entry(&listed, reading, task, |entry| {
            let in_scope = self.scope.contains(entry.path);
            self.content_counts.all += 1;
            self.content_counts.in_scope += usize::from(in_scope);
            self.content_counts.in_roots += usize::from(in_scope || self.roots.contains(entry.path));
            if !in_scope && !self.home.contains(entry.path) {
                note_name(&mut self.names_elsewhere, entry.path);
            }
            self.content.insert(entry.path, in_scope && reading == Reading::Strict)
        })
        .await?;
        if reading == Reading::Strict {
            self.manifests.extend(listed);
        }
        Ok(())
    }
}

impl References {
    /// Reads everything that the table's metadata names; where the owner is unknown, that of every metadata file.
    ///
    /// # Errors
    /// When anything that the newest metadata needs can't be read, and when a metadata file belongs to another table.
    pub(super) async fn read(
        table: &LoadedTable,
        scope: &Scope,
        identity: &FileIdentity,
        task: &Arc<TaskContext>,
    ) -> Result<Self> {
        let rules = identity.rules();
        let (scope_roots, roots) = (scope.as_roots(rules), table.metadata.roots(rules.clone()));
        let home = home_of(scope, &roots, rules);
        let mut collected = Collected {
            scope: &scope_roots,
            roots: &roots,
            home: &home,
            content: LiveFilesBuilder::new(identity.clone(), task.memory_pool()),
            structure: LiveFilesBuilder::new(identity.clone(), task.memory_pool()),
            expected_structure: Vec::new(),
            structure_elsewhere: Vec::new(),
            manifests: Vec::new(),
            known_manifests: HashSet::new(),
            snapshots: HashSet::new(),
            content_counts: ContentCounts::default(),
            names_elsewhere: HashSet::new(),
        };
        let folder = table.metadata.location().child("metadata");
        collected.structure.insert(&folder.child(VERSION_HINT).to_text(), false)?;
        collected.add(&table.metadata, Reading::Strict, task).await?;
        let (stores, own) = (Stores::new(task.runtime_env()), TableIdentity::of(&table.metadata));
        for file in &table.other_metadata_locations {
            let other = TableMetadata::parse(file, &stores.read(file).await?)?;
            if !own.is_same_table(&TableIdentity::of(&other), rules) {
                return Err(foreign_table(table, file, &TableIdentity::of(&other)));
            }
            collected.add(&other, Reading::IfThere, task).await?;
        }
        let Collected { content, structure, expected_structure, structure_elsewhere, manifests, .. } = collected;
        let Collected { known_manifests: _, snapshots, content_counts, names_elsewhere, .. } = collected;
        Ok(Self {
            content: content.build(),
            structure: structure.build(),
            expected_structure,
            structure_elsewhere,
            manifests,
            snapshots,
            scope: scope_roots,
            content_counts,
            names_elsewhere,
        })
    }

    /// Looks a listed file up.
    pub(super) fn probe(&mut self, location: &str) -> Named {
        match self.content.probe(location) {
            Liveness::Live => Named::Content,
            content => match (content, self.structure.probe(location)) {
                (_, Liveness::Live) => Named::Structure,
                (Liveness::OtherPrefix(prefix), _) | (_, Liveness::OtherPrefix(prefix)) => Named::OtherPrefix(prefix),
                (Liveness::Dead, _) | (Liveness::Live, Liveness::Dead) => Named::Nowhere,
            },
        }
    }

    /// Where the live data and delete files are.
    pub(super) fn content_counts(&self) -> ContentCounts {
        self.content_counts
    }

    /// How many distinct data and delete files are live.
    pub(super) fn live_content(&self) -> usize {
        self.content.len()
    }

    /// How many distinct manifests were read.
    pub(super) fn manifest_count(&self) -> usize {
        self.manifests.len()
    }

    /// True if a live file outside of the folder that holds the scope has the same file name as this one.
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

    /// Everything that the newest metadata needs and that no listed file was, in the scope and elsewhere.
    pub(super) async fn unlisted(&mut self, task: &Arc<TaskContext>) -> Result<Vec<String>> {
        let elsewhere = self.content_counts.all > self.content_counts.in_scope || !self.structure_elsewhere.is_empty();
        let mut unlisted = self.unseen(task).await?;
        if elsewhere {
            unlisted.extend(self.structure_elsewhere.iter().cloned());
            let scope = &self.scope;
            for_each_live_entry(&self.manifests, Reading::Strict, task, |entry| {
                if !scope.contains(entry.path) {
                    unlisted.push(entry.path.to_string());
                }
                Ok(())
            })
            .await?;
        }
        Ok(unlisted)
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

/// Notes a file's name, also as it would read if it were percent-encoded.
fn note_name(names: &mut HashSet<String>, location: &str) {
    let name = file_name(location);
    if !names.contains(name) {
        names.extend(percent_decoded(name).filter(|decoded| decoded != name));
        names.insert(name.to_string());
    }
}

/// The roots that hold the scope: a listing of the scope shows their files, or would if it looked further.
fn home_of(scope: &Scope, roots: &Roots, rules: &PathRules) -> Roots {
    let holds = |root: &&Root| {
        let root = Roots::new(vec![(*root).clone()], rules.clone());
        root.contains(&scope.folder.to_text())
            || root.iter().any(|root| rules.same_place(&root.location, &scope.folder))
    };
    Roots::new(roots.iter().filter(holds).cloned().collect(), rules.clone())
}

/// What is said of a metadata file of another table.
pub(super) fn foreign_table(table: &LoadedTable, file: &str, identity: &TableIdentity) -> Error {
    Error::Guard {
        table: table.name.clone(),
        found: format!(
            "{file} belongs to another table ({identity}) that shares this location: its files would count as orphans. \
             Give each table a location of its own"
        ),
    }
}
