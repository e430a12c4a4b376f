//! The files that only expired snapshots name.
//!
//! Candidates are everything that expired snapshots name and that lies in manifests, lists and entries which no retained
//! snapshot shares. Each candidate, whatever its kind, is then looked up in everything that stays: live entries of all
//! retained snapshots, and every file that the remaining metadata names. There is no shortcut around the second half.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::TaskContext;

use crate::catalog::VERSION_HINT;
use crate::error::Result;
use crate::reachability::{
    FileIdentity, ListedManifests, LiveFiles, LiveFilesBuilder, Liveness, ManifestFile, Reading, for_each_live_entry,
    list_manifests,
};
use crate::report::{FileKind, FileOutcome, FileStatus, Metrics, SkipReason};
use crate::scan::Unreadable;
use crate::storage::LocalFiles;
use crate::table::location::{file_name, split};
use crate::table::{MetadataLogEntry, Roots, Snapshot, TableMetadata};

/// A table's history, divided.
#[derive(Clone, Copy)]
pub(super) struct History<'a> {
    pub metadata: &'a TableMetadata,
    /// Snapshots that expire.
    pub gone: &'a [&'a Snapshot],
    /// Snapshots that stay.
    pub staying: &'a [&'a Snapshot],
    /// Metadata files that fall out of the metadata log and are to be deleted.
    pub dropped: &'a [MetadataLogEntry],
}

/// The search for dead files.
pub(super) struct DeadFileSearch<'a> {
    history: History<'a>,
    retained: &'a ListedManifests,
    identity: &'a FileIdentity,
    roots: &'a Roots,
    task: &'a Arc<TaskContext>,
    candidates: Candidates<'a>,
    pub metrics: Metrics,
    pub notices: Vec<String>,
}

/// Candidates, each file once, in the order in which they are deleted.
struct Candidates<'a> {
    identity: &'a FileIdentity,
    files: Vec<FileOutcome>,
    known: HashSet<String>,
}

/// What retained snapshots have live.
struct RetainedContent {
    live: LiveFiles,
    /// File names of live files outside of the table's own folders that a candidate has, too: under another address they may
    /// be the same file.
    names_elsewhere: HashSet<String>,
    /// Where links beside live files lead: a live file may be such a link.
    link_targets: HashSet<String>,
}

impl RetainedContent {
    fn none(identity: &FileIdentity, task: &TaskContext) -> Self {
        let live = LiveFilesBuilder::new(identity.clone(), task.memory_pool()).build();
        Self { live, names_elsewhere: HashSet::new(), link_targets: HashSet::new() }
    }

    /// True if a live file may be this one under a name that can't be compared.
    fn may_name_otherwise(&self, location: &str, local: Option<&LocalFiles>) -> bool {
        if self.names_elsewhere.contains(file_name(location)) {
            return true;
        }
        let Some(local) = local.filter(|_| !self.link_targets.is_empty()) else { return false };
        match local.canonical(split(location).path) {
            Ok(canonical) => canonical.is_some_and(|canonical| self.link_targets.contains(&canonical)),
            Err(_) => true,
        }
    }
}

impl<'a> DeadFileSearch<'a> {
    pub(super) fn new(
        history: History<'a>,
        retained: &'a ListedManifests,
        identity: &'a FileIdentity,
        roots: &'a Roots,
        task: &'a Arc<TaskContext>,
    ) -> Self {
        let candidates = Candidates { identity, files: Vec::new(), known: HashSet::new() };
        let (metrics, notices) = Default::default();
        Self { history, retained, identity, roots, task, candidates, metrics, notices }
    }

    /// Content files first, then manifests, lists, statistics and metadata files: the order in which they are deleted, so
    /// that a run that is cut short leaves what still describes the files.
    ///
    /// # Errors
    /// When anything that a retained snapshot needs can't be read.
    pub(super) async fn run(&mut self) -> Result<Vec<FileOutcome>> {
        let listed = list_manifests(self.history.gone, Reading::Lenient, self.task).await?;
        self.note_skipped("manifest list", &listed.skipped);
        let mut named = self.named_by_what_stays()?;
        let dead_manifests: Vec<ManifestFile> = listed
            .manifests
            .iter()
            .filter(|manifest| named.probe(&manifest.reference.location) == Liveness::Dead)
            .cloned()
            .collect();
        self.content_of(&dead_manifests).await?;
        // Scans are parallel; the same call shows and deletes in the same order.
        self.candidates.files.sort_unstable_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
        for manifest in &dead_manifests {
            let bytes = manifest.reference.length.and_then(|length| u64::try_from(length).ok());
            self.candidates.add(&manifest.reference.location, FileKind::Manifest, bytes, Some(manifest.snapshot_id));
        }
        self.lists_and_statistics(&listed);
        let mut candidates = std::mem::take(&mut self.candidates.files);
        if candidates.is_empty() {
            return Ok(candidates);
        }
        // Manifests and lists that could be read are what they are; everything else may be somebody's data file, too.
        let is_verified = |file: &FileOutcome| matches!(file.kind, FileKind::Manifest | FileKind::ManifestList);
        let all_verified = self.metrics.skipped_missing_metadata_count == 0 && candidates.iter().all(is_verified);
        let mut retained = match all_verified {
            true => RetainedContent::none(self.identity, self.task),
            false => self.live_content(&candidates).await?,
        };
        let local = self.identity.local();
        candidates.retain_mut(|file| match (retained.live.probe(&file.path), named.probe(&file.path)) {
            (Liveness::Live, _) | (_, Liveness::Live) => false,
            (Liveness::Dead, Liveness::Dead) if !retained.may_name_otherwise(&file.path, local) => true,
            _ => {
                file.status = FileStatus::Spared(SkipReason::PrefixMismatch);
                true
            }
        });
        Ok(candidates)
    }

    /// Live entries of manifests that only expired snapshots list.
    async fn content_of(&mut self, dead_manifests: &[ManifestFile]) -> Result<()> {
        let candidates = &mut self.candidates;
        let skipped = for_each_live_entry(dead_manifests, Reading::Lenient, self.task, |entry| {
            let snapshot = dead_manifests.get(entry.manifest).map(|manifest| manifest.snapshot_id);
            candidates.add(entry.path, entry.kind, entry.bytes, snapshot);
            Ok(())
        })
        .await?;
        self.note_skipped("manifest", &skipped);
        self.metrics.processed_manifests_count += (dead_manifests.len() - skipped.len()) as u64;
        Ok(())
    }

    fn lists_and_statistics(&mut self, listed: &ListedManifests) {
        let History { metadata, gone, dropped, .. } = self.history;
        for snapshot in gone {
            if let Some(list) = &snapshot.manifest_list {
                let bytes = listed.list_sizes.get(list).copied();
                self.candidates.add(list, FileKind::ManifestList, bytes, Some(snapshot.snapshot_id));
            }
        }
        let expired: HashSet<i64> = gone.iter().map(|snapshot| snapshot.snapshot_id).collect();
        let statistics = metadata.statistics().iter().map(|file| (file, FileKind::Statistics));
        let partition = metadata.partition_statistics().iter().map(|file| (file, FileKind::PartitionStatistics));
        for (file, kind) in statistics.chain(partition).filter(|(file, _)| expired.contains(&file.snapshot_id)) {
            let bytes = file.file_size_in_bytes.and_then(|bytes| u64::try_from(bytes).ok());
            self.candidates.add(&file.statistics_path, kind, bytes, Some(file.snapshot_id));
        }
        for entry in dropped {
            let reason = "fell out of the metadata log, and write.metadata.delete-after-commit.enabled is set";
            self.candidates.add_because(&entry.metadata_file, FileKind::Metadata, None, None, reason);
        }
    }

    /// The live entries of every retained snapshot.
    async fn live_content(&mut self, candidates: &[FileOutcome]) -> Result<RetainedContent> {
        let names: HashSet<&str> = candidates.iter().map(|file| file_name(&file.path)).collect();
        let local = self.identity.local();
        let (mut names_elsewhere, mut folders) = (HashSet::new(), HashSet::new());
        let mut live = LiveFilesBuilder::new(self.identity.clone(), self.task.memory_pool());
        for_each_live_entry(&self.retained.manifests, Reading::Strict, self.task, |entry| {
            let name = file_name(entry.path);
            if names.contains(name) && !self.roots.contains(entry.path) {
                names_elsewhere.insert(name.to_string());
            }
            if local.is_some()
                && let Some((folder, _)) = split(entry.path).path.rsplit_once('/')
                && !folders.contains(folder)
            {
                folders.insert(folder.to_string());
            }
            live.insert(entry.path, false)
        })
        .await?;
        let live = live.build();
        self.metrics.processed_manifests_count += self.retained.manifests.len() as u64;
        self.metrics.active_files_count = live.len() as u64;
        let link_targets = match local {
            Some(local) => local.link_targets(folders).await?,
            None => HashSet::new(),
        };
        Ok(RetainedContent { live, names_elsewhere, link_targets })
    }

    /// Everything but content files that the table names after the commit.
    fn named_by_what_stays(&self) -> Result<LiveFiles> {
        let History { metadata, gone, staying, dropped } = self.history;
        let mut named = LiveFilesBuilder::new(self.identity.clone(), self.task.memory_pool());
        for snapshot in staying {
            for file in snapshot.manifest_list.iter().chain(snapshot.manifests.iter().flatten()) {
                named.insert(file, false)?;
            }
        }
        for manifest in &self.retained.manifests {
            named.insert(&manifest.reference.location, false)?;
        }
        let expired: HashSet<i64> = gone.iter().map(|snapshot| snapshot.snapshot_id).collect();
        let statistics = metadata.statistics().iter().chain(metadata.partition_statistics());
        for file in statistics.filter(|file| !expired.contains(&file.snapshot_id)) {
            named.insert(&file.statistics_path, false)?;
        }
        let dropped: HashSet<&str> = dropped.iter().map(|entry| entry.metadata_file.as_str()).collect();
        let log = metadata.metadata_log().iter().map(|entry| entry.metadata_file.as_str());
        for file in log.filter(|file| !dropped.contains(file)).chain([metadata.metadata_location()]) {
            named.insert(file, false)?;
        }
        named.insert(&metadata.location().child("metadata").child(VERSION_HINT).to_text(), false)?;
        Ok(named.build())
    }

    fn note_skipped(&mut self, what: &str, skipped: &[Unreadable]) {
        self.metrics.skipped_missing_metadata_count += skipped.len() as u64;
        self.notices.extend(skipped.iter().map(|file| {
            format!(
                "{what} {} of expired snapshots could not be read ({}): what only it names is left for remove_orphan_files",
                file.location, file.why
            )
        }));
    }
}

impl Candidates<'_> {
    fn add(&mut self, path: &str, kind: FileKind, bytes: Option<u64>, snapshot_id: Option<i64>) {
        self.add_because(path, kind, bytes, snapshot_id, "only expired snapshots have it");
    }

    /// Two spellings of one file are one candidate.
    fn add_because(
        &mut self,
        path: &str,
        kind: FileKind,
        bytes: Option<u64>,
        snapshot_id: Option<i64>,
        reason: &'static str,
    ) {
        if !self.known.insert(self.identity.key(path)) {
            return;
        }
        self.files.push(FileOutcome {
            path: path.to_string(),
            kind,
            bytes,
            modified_ms: None,
            snapshot_id,
            reason: Cow::Borrowed(reason),
            status: FileStatus::Planned,
        });
    }
}
