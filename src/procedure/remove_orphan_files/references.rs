//! Everything that a table's metadata names, as a set that listed files are looked up in.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::listing::Scope;
use super::own_folders::OwnFolders;
use crate::catalog::{LoadedTable, TableHandle, VERSION_HINT};
use crate::deletion::NewestMetadata;
use crate::error::{Error, Result};
use crate::reachability::{
    FileIdentity, FileNames, FileNamesBuilder, LiveFiles, LiveFilesBuilder, ManifestFile, NamedBy, Reading,
    for_each_live_entry, insert_metadata_files, list_manifests,
};
use crate::storage::Stores;
use crate::table::location::split;
use crate::table::{PathRules, Root, Roots, Snapshot, TableIdentity, TableMetadata};

/// The files that all snapshots of a table name, and those that its metadata names itself.
pub(super) struct References {
    /// Live data and delete files of all snapshots; manifests, manifest lists, statistics, metadata files, the version hint.
    pub live: LiveFiles,
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
    names_elsewhere: FileNames,
    /// Paths of some live files in the scope, chosen at random: they tell where a listing will find files.
    sample: Vec<String>,
    own_folders: OwnFolders,
}

/// How many paths of live files are sampled.
const SAMPLED_PATHS: usize = 4096;

/// How many entries name live data and delete files in which place.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ContentCounts {
    pub all: usize,
    pub in_scope: usize,
    pub in_roots: usize,
}

/// What is collected while metadata is read.
struct Collected<'a> {
    scope: &'a Roots,
    roots: &'a Roots,
    /// The root that holds the scope.
    home: &'a Roots,
    live: LiveFilesBuilder,
    expected_structure: Vec<String>,
    structure_elsewhere: Vec<String>,
    manifests: Vec<ManifestFile>,
    known_manifests: HashSet<String>,
    snapshots: HashSet<i64>,
    content_counts: ContentCounts,
    names_elsewhere: FileNamesBuilder,
    sample: Sample,
    own_folders: OwnFolders,
}

impl Collected<'_> {
    /// Reads what the metadata's snapshots name, as far as it wasn't read before.
    async fn add(&mut self, metadata: &TableMetadata, reading: Reading, task: &Arc<TaskContext>) -> Result<()> {
        insert_metadata_files(metadata, &mut self.live)?;
        self.own_folders.add_partition_fields(metadata);
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
            if in_scope {
                self.own_folders.add_folder_of(file);
            } else if !self.home.contains(file) {
                self.names_elsewhere.insert(file)?;
            }
            self.live.insert(file, NamedBy::Metadata, expected)?;
            match (expected, in_scope) {
                (true, _) => self.expected_structure.push(file.to_string()),
                (false, false) => self.structure_elsewhere.push(file.to_string()),
                (false, true) => {}
            }
        }
        self.note_statistics_and_log(metadata)?;
        for_each_live_entry(&listed, reading, task, |entry| {
            let in_scope = self.scope.contains(entry.path);
            self.content_counts.all += 1;
            self.content_counts.in_scope += usize::from(in_scope);
            self.content_counts.in_roots += usize::from(in_scope || self.roots.contains(entry.path));
            match in_scope {
                true => {
                    self.sample.offer(split(entry.path).path);
                    self.own_folders.add_folder_of(entry.path);
                }
                false if self.home.contains(entry.path) => {}
                false => self.names_elsewhere.insert(entry.path)?,
            }
            self.live.insert(entry.path, NamedBy::Manifest, in_scope && reading == Reading::Strict)
        })
        .await?;
        if reading == Reading::Strict {
            self.manifests.extend(listed);
        }
        Ok(())
    }
}

impl Collected<'_> {
    /// Statistics and older metadata outside of the scope: something in it may be one of them under another name.
    fn note_statistics_and_log(&mut self, metadata: &TableMetadata) -> Result<()> {
        let statistics = metadata.statistics().iter().chain(metadata.partition_statistics());
        let statistics: Vec<&str> = statistics.map(|file| file.statistics_path.as_str()).collect();
        for file in &statistics {
            if self.scope.contains(file) {
                self.own_folders.add_folder_of(file);
            } else if !self.home.contains(file) {
                self.names_elsewhere.insert(file)?;
            }
        }
        let hint = metadata.location().child("metadata").child(VERSION_HINT).to_text();
        let log = metadata.metadata_log().iter().map(|entry| entry.metadata_file.as_str());
        let elsewhere =
            statistics.into_iter().chain(log).chain([hint.as_str()]).filter(|file| !self.scope.contains(file));
        self.structure_elsewhere.extend(elsewhere.map(str::to_string));
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
            live: LiveFilesBuilder::new(identity.clone(), task),
            expected_structure: Vec::new(),
            structure_elsewhere: Vec::new(),
            manifests: Vec::new(),
            known_manifests: HashSet::new(),
            snapshots: HashSet::new(),
            content_counts: ContentCounts::default(),
            names_elsewhere: FileNamesBuilder::new(task),
            sample: Sample::default(),
            own_folders: OwnFolders::of(&table.metadata, rules),
        };
        collected.add(&table.metadata, Reading::Strict, task).await?;
        let (stores, own) = (Stores::new(task.runtime_env()), TableIdentity::of(&table.metadata));
        for file in &table.other_metadata_locations {
            let other = TableMetadata::parse(file, &stores.read(file).await?)?;
            if !own.is_same_table(&TableIdentity::of(&other), rules) {
                return Err(foreign_table(table, file, &TableIdentity::of(&other)));
            }
            collected.add(&other, Reading::IfThere, task).await?;
        }
        let Collected { live, expected_structure, structure_elsewhere, manifests, snapshots, .. } = collected;
        let Collected { content_counts, names_elsewhere, sample, own_folders, .. } = collected;
        Ok(Self {
            live: live.build()?,
            expected_structure,
            structure_elsewhere,
            manifests,
            snapshots,
            scope: scope_roots,
            content_counts,
            names_elsewhere: names_elsewhere.build()?,
            sample: sample.paths,
            own_folders,
        })
    }

    /// Where the live data and delete files are.
    pub(super) fn content_counts(&self) -> ContentCounts {
        self.content_counts
    }

    /// How many distinct data and delete files are live.
    pub(super) fn live_content(&self) -> usize {
        self.live.named_by_manifests()
    }

    /// How many distinct manifests were read.
    pub(super) fn manifest_count(&self) -> usize {
        self.manifests.len()
    }

    /// Says of each file whether a live file outside of the folder that holds the scope has the same file name.
    pub(super) fn named_elsewhere<'a>(&mut self, files: impl Iterator<Item = &'a str>) -> Result<Vec<bool>> {
        self.names_elsewhere.known(files)
    }

    /// Where the table's own files may lie in its location.
    pub(super) fn own_folders(&self) -> &OwnFolders {
        &self.own_folders
    }

    /// Paths of some live files in the scope.
    pub(super) fn sample(&self) -> &[String] {
        &self.sample
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

    /// Goes through everything that the newest metadata needs, listed or not. Reads the manifests again.
    pub(super) async fn for_each_needed(
        &mut self,
        task: &Arc<TaskContext>,
        mut on_file: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        self.expected_structure.iter().chain(&self.structure_elsewhere).try_for_each(|file| on_file(file))?;
        for_each_live_entry(&self.manifests, Reading::Strict, task, |entry| on_file(entry.path)).await?;
        Ok(())
    }

    /// Goes through everything that the newest metadata needs and that no listed file was, in the scope and elsewhere. Reads
    /// the manifests again, but only if there may be such files.
    pub(super) async fn for_each_unlisted(
        &mut self,
        task: &Arc<TaskContext>,
        mut on_file: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        for file in self.unseen(task, usize::MAX).await? {
            on_file(&file)?;
        }
        self.structure_elsewhere.iter().try_for_each(|file| on_file(file))?;
        if self.content_counts.all > self.content_counts.in_scope {
            let scope = &self.scope;
            for_each_live_entry(&self.manifests, Reading::Strict, task, |entry| match scope.contains(entry.path) {
                true => Ok(()),
                false => on_file(entry.path),
            })
            .await?;
        }
        Ok(())
    }

    /// Live files in the scope that no listed file was, under any of its names; no more than `most` of them. Reads the
    /// manifests again, but only if there may be such files.
    pub(super) async fn unseen(&mut self, task: &Arc<TaskContext>, most: usize) -> Result<Vec<String>> {
        if self.live.unseen_count()? == 0 {
            return Ok(vec![]);
        }
        let (live, scope) = (&mut self.live, &self.scope);
        let mut unseen = vec![];
        for file in &self.expected_structure {
            if live.is_unseen(file)? {
                unseen.push(file.clone());
            }
        }
        let mut known = HashSet::new();
        for_each_live_entry(&self.manifests, Reading::Strict, task, |entry| {
            let is_unseen = unseen.len() < most && scope.contains(entry.path) && live.is_unseen(entry.path)?;
            if is_unseen && known.insert(entry.path.to_string()) {
                unseen.push(entry.path.to_string());
            }
            Ok(())
        })
        .await?;
        unseen.truncate(most);
        Ok(unseen)
    }
}

/// A uniform sample of all paths that are offered, whatever their number.
#[derive(Debug, Default)]
struct Sample {
    paths: Vec<String>,
    offered: u64,
    random: u64,
}

impl Sample {
    fn offer(&mut self, path: &str) {
        self.offered += 1;
        if self.paths.len() < SAMPLED_PATHS {
            return self.paths.push(path.to_string());
        }
        // A step of a linear congruential generator (Knuth's MMIX): an even spread is all that is asked for.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = ((u128::from(self.random) * u128::from(self.offered)) >> 64) as usize;
        if let Some(replaced) = self.paths.get_mut(at) {
            path.clone_into(replaced);
        }
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
