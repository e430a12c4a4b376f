//! The files that only expired snapshots name.
//!
//! Candidates are everything that expired snapshots name and that lies in manifests, lists and entries which no retained
//! snapshot shares. Each candidate, whatever its kind, is looked up in everything that stays: live entries of all retained
//! snapshots, and every file that the remaining metadata names. There is no shortcut around the second half. What stays is
//! read first, as hashes; candidates then stream past it, and only the dead ones are kept.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::TaskContext;

use crate::catalog::VERSION_HINT;
use crate::error::Result;
use crate::procedure::CollectedFiles;
use crate::reachability::{
    Candidate, FileIdentity, FileNames, FileNamesBuilder, KnownFiles, ListedManifests, LiveFiles, LiveFilesBuilder,
    Liveness, ManifestFile, NamedBy, Probe, Reading, RecordReader, RecordWriter, for_each_live_entry, list_manifests,
};
use crate::report::{FileKind, FileOutcome, FileStatus, Metrics, SkipReason};
use crate::scan::Unreadable;
use crate::storage::LocalFiles;
use crate::table::location::{percent_decoded, split};
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
    pub metrics: Metrics,
    pub notices: Vec<String>,
}

/// What retained snapshots have live.
struct RetainedContent {
    live: LiveFiles,
    /// File names of live files outside of the table's own folders: under another address they may be a candidate.
    names_elsewhere: FileNames,
    /// The folders of live files on a local disk: a live file may be a link.
    folders: HashSet<String>,
}

/// A live entry of a manifest that only expired snapshots list.
struct ExpiredEntry {
    path: String,
    kind: FileKind,
    bytes: Option<u64>,
    snapshot_id: Option<i64>,
}

/// How many entries are looked up at once.
const BATCH: usize = 4096;

const ONLY_EXPIRED: &str = "only expired snapshots have it";
const OUT_OF_THE_LOG: &str = "fell out of the metadata log, and write.metadata.delete-after-commit.enabled is set";

impl<'a> DeadFileSearch<'a> {
    pub(super) fn new(
        history: History<'a>,
        retained: &'a ListedManifests,
        identity: &'a FileIdentity,
        roots: &'a Roots,
        task: &'a Arc<TaskContext>,
    ) -> Self {
        let (metrics, notices) = Default::default();
        Self { history, retained, identity, roots, task, metrics, notices }
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
        let locations: Vec<&str> =
            listed.manifests.iter().map(|manifest| manifest.reference.location.as_str()).collect();
        let manifests = listed.manifests.iter().zip(named.probe_all(&locations)?);
        let dead = manifests.filter(|(_, liveness)| *liveness == Liveness::Dead);
        let mut dead_manifests: Vec<ManifestFile> = dead.map(|(manifest, _)| manifest.clone()).collect();
        // Scans are parallel; the same call shows and deletes in the same order.
        dead_manifests.sort_unstable_by(|a, b| a.reference.location.cmp(&b.reference.location));
        let mut structure = self.structure(&dead_manifests, &listed);
        let mut retained = match self.needs_retained_content(&dead_manifests, &structure) {
            true => Some(self.live_content().await?),
            false => None,
        };
        let mut dead = DeadFiles::new(self.identity, self.task);
        if let Some(RetainedContent { live, .. }) = &mut retained {
            self.find_dead_content(&dead_manifests, live, &mut dead).await?;
            drop_live(live, &mut structure)?;
        }
        dead.files.as_mut().sort_unstable_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
        structure.into_iter().try_for_each(|file| dead.add(file))?;
        let mut files = dead.files.into_vec();
        drop_live(&mut named, &mut files)?;
        if !files.is_empty() {
            self.spare_ambiguous(retained, &mut files).await?;
        }
        Ok(files)
    }

    /// Manifests and lists that could be read are what they are; everything else may be somebody's data file, too.
    fn needs_retained_content(&self, dead_manifests: &[ManifestFile], structure: &[FileOutcome]) -> bool {
        let is_verified = |file: &FileOutcome| matches!(file.kind, FileKind::Manifest | FileKind::ManifestList);
        let has_candidates = !dead_manifests.is_empty() || !structure.is_empty();
        let all_read = self.metrics.skipped_missing_metadata_count == 0;
        has_candidates && !(dead_manifests.is_empty() && all_read && structure.iter().all(is_verified))
    }

    /// What live entries of manifests that only expired snapshots list name, and no live entry of what stays does.
    async fn find_dead_content(
        &mut self,
        dead_manifests: &[ManifestFile],
        live: &mut LiveFiles,
        dead: &mut DeadFiles,
    ) -> Result<()> {
        let mut probe: Probe<'_, ExpiredEntry> = Probe::new(live);
        let mut batch = Vec::with_capacity(BATCH);
        let skipped = for_each_live_entry(dead_manifests, Reading::Lenient, self.task, |entry| {
            let snapshot_id = dead_manifests.get(entry.manifest).map(ManifestFile::had_by);
            batch.push(ExpiredEntry {
                path: entry.path.to_string(),
                kind: entry.kind,
                bytes: entry.bytes,
                snapshot_id,
            });
            match batch.len() < BATCH {
                true => Ok(()),
                false => dead.add_dead(probe.push(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)))?),
            }
        })
        .await?;
        dead.add_dead(probe.push(batch)?)?;
        while let Some(answers) = probe.next_waiting()? {
            dead.add_dead(answers)?;
        }
        self.note_skipped("manifest", &skipped);
        self.metrics.processed_manifests_count += (dead_manifests.len() - skipped.len()) as u64;
        Ok(())
    }

    /// Manifests, lists, statistics and metadata files that go with the expired snapshots.
    fn structure(&self, dead_manifests: &[ManifestFile], listed: &ListedManifests) -> Vec<FileOutcome> {
        let History { metadata, gone, dropped, .. } = self.history;
        let mut files = vec![];
        let mut add = |path: &str, kind, bytes: Option<u64>, snapshot_id, reason| {
            files.push(candidate(path.to_string(), kind, bytes, snapshot_id, reason));
        };
        let size = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
        for manifest in dead_manifests {
            let reference = &manifest.reference;
            let bytes = size(reference.length);
            add(&reference.location, FileKind::Manifest, bytes, Some(manifest.had_by()), ONLY_EXPIRED);
        }
        for snapshot in gone {
            if let Some(list) = &snapshot.manifest_list {
                let bytes = listed.list_sizes.get(list).copied();
                add(list, FileKind::ManifestList, bytes, Some(snapshot.snapshot_id), ONLY_EXPIRED);
            }
        }
        let expired: HashSet<i64> = gone.iter().map(|snapshot| snapshot.snapshot_id).collect();
        let statistics = metadata.statistics().iter().map(|file| (file, FileKind::Statistics));
        let partition = metadata.partition_statistics().iter().map(|file| (file, FileKind::PartitionStatistics));
        for (file, kind) in statistics.chain(partition).filter(|(file, _)| expired.contains(&file.snapshot_id)) {
            add(&file.statistics_path, kind, size(file.file_size_in_bytes), Some(file.snapshot_id), ONLY_EXPIRED);
        }
        for entry in dropped {
            add(&entry.metadata_file, FileKind::Metadata, None, None, OUT_OF_THE_LOG);
        }
        files
    }

    /// The live entries of every retained snapshot.
    async fn live_content(&mut self) -> Result<RetainedContent> {
        let local = self.identity.local();
        let mut names_elsewhere = FileNamesBuilder::new(self.task);
        let (mut folders, mut last_folder) = (HashSet::new(), String::new());
        let mut live = LiveFilesBuilder::new(self.identity.clone(), self.task);
        for_each_live_entry(&self.retained.manifests, Reading::Strict, self.task, |entry| {
            if !self.roots.contains(entry.path) {
                names_elsewhere.insert(entry.path)?;
            }
            if local.is_some()
                && let Some((folder, _)) = split(entry.path).path.rsplit_once('/')
                && folder != last_folder
            {
                last_folder = folder.to_string();
                folders.extend(percent_decoded(folder).filter(|decoded| decoded != folder));
                folders.insert(last_folder.clone());
            }
            live.insert(entry.path, NamedBy::Manifest, false)
        })
        .await?;
        let live = live.build()?;
        self.metrics.processed_manifests_count += self.retained.manifests.len() as u64;
        self.metrics.active_files_count = live.named_by_manifests() as u64;
        Ok(RetainedContent { live, names_elsewhere: names_elsewhere.build()?, folders })
    }

    /// Spares files that something live may be under a name that can't be compared: under another address, or through a
    /// link.
    async fn spare_ambiguous(&self, retained: Option<RetainedContent>, files: &mut [FileOutcome]) -> Result<()> {
        let mut folders = HashSet::new();
        if let Some(RetainedContent { mut names_elsewhere, folders: of_content, .. }) = retained {
            folders = of_content;
            let known = names_elsewhere.known(files.iter().map(|file| file.path.as_str()))?;
            for (file, _) in files.iter_mut().zip(known).filter(|(_, is_known)| *is_known) {
                file.status = FileStatus::Spared(SkipReason::PrefixMismatch);
            }
        }
        let Some(local) = self.identity.local() else { return Ok(()) };
        self.for_each_structure_file(|file| {
            folders.extend(split(file).path.rsplit_once('/').map(|(folder, _)| folder.to_string()));
            Ok(())
        })?;
        let link_targets = local.link_targets(folders).await?;
        if !link_targets.is_empty() {
            for file in files.iter_mut().filter(|file| leads_to_one_of(&file.path, &link_targets, local)) {
                file.status = FileStatus::Spared(SkipReason::PrefixMismatch);
            }
        }
        Ok(())
    }

    /// Everything but content files that the table names after the commit.
    fn named_by_what_stays(&self) -> Result<LiveFiles> {
        let mut named = LiveFilesBuilder::new(self.identity.clone(), self.task);
        self.for_each_structure_file(|file| named.insert(file, NamedBy::Metadata, false))?;
        named.build()
    }

    /// Manifest lists, manifests, statistics, and metadata files that stay.
    fn for_each_structure_file(&self, mut on_file: impl FnMut(&str) -> Result<()>) -> Result<()> {
        let History { metadata, gone, staying, dropped } = self.history;
        for snapshot in staying {
            for file in snapshot.manifest_list.iter().chain(snapshot.manifests.iter().flatten()) {
                on_file(file)?;
            }
        }
        for manifest in &self.retained.manifests {
            on_file(&manifest.reference.location)?;
        }
        let expired: HashSet<i64> = gone.iter().map(|snapshot| snapshot.snapshot_id).collect();
        let statistics = metadata.statistics().iter().chain(metadata.partition_statistics());
        for file in statistics.filter(|file| !expired.contains(&file.snapshot_id)) {
            on_file(&file.statistics_path)?;
        }
        let dropped: HashSet<&str> = dropped.iter().map(|entry| entry.metadata_file.as_str()).collect();
        let log = metadata.metadata_log().iter().map(|entry| entry.metadata_file.as_str());
        for file in log.filter(|file| !dropped.contains(file)).chain([metadata.metadata_location()]) {
            on_file(file)?;
        }
        on_file(&metadata.location().child("metadata").child(VERSION_HINT).to_text())
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

/// True if the file's path with all links resolved is among the targets, or can't be resolved.
fn leads_to_one_of(location: &str, targets: &HashSet<String>, local: &LocalFiles) -> bool {
    match local.canonical(split(location).path) {
        Ok(canonical) => canonical.is_some_and(|canonical| targets.contains(&canonical)),
        Err(_) => true,
    }
}

/// Drops files that are live, and spares those whose path is live under another scheme or authority.
fn drop_live(live: &mut LiveFiles, files: &mut Vec<FileOutcome>) -> Result<()> {
    let answers = live.probe_all(&files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>())?;
    let mut answers = answers.into_iter();
    files.retain_mut(|file| match answers.next() {
        Some(Liveness::Dead) => true,
        Some(Liveness::OtherPrefix(_)) => {
            file.status = FileStatus::Spared(SkipReason::PrefixMismatch);
            true
        }
        Some(Liveness::Live(_)) | None => false,
    });
    Ok(())
}

fn candidate(
    path: String,
    kind: FileKind,
    bytes: Option<u64>,
    snapshot_id: Option<i64>,
    reason: &'static str,
) -> FileOutcome {
    let (reason, status) = (Cow::Borrowed(reason), FileStatus::Planned);
    FileOutcome { path, kind, bytes, modified_ms: None, snapshot_id, reason, status }
}

/// What may go, each file once.
struct DeadFiles {
    known: KnownFiles,
    files: CollectedFiles,
}

impl DeadFiles {
    fn new(identity: &FileIdentity, task: &TaskContext) -> Self {
        Self { known: KnownFiles::new(identity), files: CollectedFiles::new(task) }
    }

    fn add(&mut self, file: FileOutcome) -> Result<()> {
        match self.known.met_at(&file.path, self.files.as_slice().len()) {
            None => self.files.push(file),
            Some(_) => Ok(()),
        }
    }

    /// Adds what an entry names. Which of several entries for one file comes first is chance; which one counts must not be.
    fn add_content(&mut self, file: FileOutcome) -> Result<()> {
        fn rank(file: &FileOutcome) -> impl Ord {
            (file.status == FileStatus::Planned, &file.path, file.kind, file.bytes, file.snapshot_id)
        }
        let Some(place) = self.known.met_at(&file.path, self.files.as_slice().len()) else {
            return self.files.push(file);
        };
        if let Some(known) = self.files.as_mut().get_mut(place).filter(|known| rank(&file) < rank(known)) {
            *known = file;
        }
        Ok(())
    }

    fn add_dead(&mut self, answers: Vec<(ExpiredEntry, Liveness)>) -> Result<()> {
        for (ExpiredEntry { path, kind, bytes, snapshot_id }, liveness) in answers {
            let mut file = candidate(path, kind, bytes, snapshot_id, ONLY_EXPIRED);
            match liveness {
                Liveness::Live(_) => continue,
                Liveness::Dead => {}
                Liveness::OtherPrefix(_) => file.status = FileStatus::Spared(SkipReason::PrefixMismatch),
            }
            self.add_content(file)?;
        }
        Ok(())
    }
}

impl Candidate for ExpiredEntry {
    fn location(&self) -> &str {
        &self.path
    }

    fn write(&self, record: &mut RecordWriter<'_>) {
        record.text(&self.path);
        record.number(self.kind as u64);
        record.optional(self.bytes);
        record.optional(self.snapshot_id.map(|id| id as u64));
    }

    fn read(record: &mut RecordReader<'_>) -> Option<Self> {
        let path = record.text()?.to_string();
        let kind = record.number()?;
        let kind = [FileKind::Data, FileKind::PositionDeletes, FileKind::EqualityDeletes, FileKind::DeletionVector]
            .into_iter()
            .find(|known| *known as u64 == kind)?;
        let (bytes, snapshot_id) = (record.optional()?, record.optional()?.map(|id| id as i64));
        Some(Self { path, kind, bytes, snapshot_id })
    }
}
