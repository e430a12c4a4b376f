//! Looking at the table again before each batch of deletes.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;

use crate::catalog::{LoadedTable, TableHandle};
use crate::error::{Error, Result};
use crate::progress::RunWork;
use crate::reachability::{
    FileIdentity, LiveFiles, LiveFilesBuilder, Liveness, NamedBy, Reading, for_each_live_entry, insert_metadata_files,
    list_manifests,
};
use crate::report::{FileOutcome, FileStatus, SkipReason};
use crate::storage::Stores;
use crate::table::{PathRules, Snapshot, TableMetadata};

/// The newest metadata that a plan was checked against. Notices when there is a newer one, and spares what is live in it.
///
/// Only what is new is read: manifests are immutable, so those that the plan was checked against need no second look.
pub(crate) struct NewestMetadata {
    handle: TableHandle,
    task: Arc<TaskContext>,
    identity: FileIdentity,
    seen: LoadedTable,
    /// Snapshots whose files the plan was checked against.
    checked_snapshots: HashSet<i64>,
    /// Manifests that the plan was checked against.
    checked_manifests: HashSet<String>,
    /// Other metadata files that the plan was checked against, or that don't matter to it.
    checked_metadata: HashSet<String>,
    /// What newer metadata names, one set for every look that found something.
    live_since: Vec<LiveFiles>,
    /// False where nothing depends on it.
    is_asked: bool,
}

/// How often newer metadata is looked for while others commit and remove what was to be read.
const LOOKS: usize = 5;

/// What was read of other metadata. It counts as checked only once all that it names is known.
#[derive(Debug, Default)]
struct Read {
    snapshots: HashSet<i64>,
    manifests: HashSet<String>,
}

impl NewestMetadata {
    /// `seen` is the metadata that the plan holds for; the plan was checked against these snapshots and manifests.
    pub(crate) fn new(
        handle: TableHandle,
        task: Arc<TaskContext>,
        identity: FileIdentity,
        seen: LoadedTable,
        checked_snapshots: HashSet<i64>,
        checked_manifests: HashSet<String>,
    ) -> Self {
        let own = seen.metadata.metadata_location().to_string();
        let checked_metadata = seen.other_metadata_locations.iter().cloned().chain([own]).collect();
        let (live_since, is_asked) = (Vec::new(), true);
        Self {
            handle,
            task,
            identity,
            seen,
            checked_snapshots,
            checked_manifests,
            checked_metadata,
            live_since,
            is_asked,
        }
    }

    /// Takes all that `newest` needs for live: for files that no plan was checked against.
    ///
    /// # Errors
    /// When something that it needs can't be read.
    pub(crate) async fn of(newest: &LoadedTable, handle: &TableHandle, task: &Arc<TaskContext>) -> Result<Self> {
        let location = newest.metadata.location();
        let local = Stores::new(task.runtime_env()).store(location)?.as_local().cloned();
        let identity = FileIdentity::new(PathRules::new(location), local);
        let (handle, task) = (handle.clone(), Arc::clone(task));
        let looked = Self::new(handle, task, identity, newest.clone(), HashSet::new(), HashSet::new());
        looked.with_newer(newest.clone()).await
    }

    /// For files that only move back to where they were, over nothing: no metadata forbids that, and what it needs may be among
    /// them, so that it can't be read before.
    pub(crate) fn unasked(seen: &LoadedTable, handle: &TableHandle, task: &Arc<TaskContext>) -> Self {
        let identity = FileIdentity::new(PathRules::new(seen.metadata.location()), None);
        let (handle, task) = (handle.clone(), Arc::clone(task));
        let newest = Self::new(handle, task, identity, seen.clone(), HashSet::new(), HashSet::new());
        Self { is_asked: false, ..newest }
    }

    /// What is read from now on is counted as work of this run: the plan may be that of another.
    pub(crate) fn count_in(&mut self, work: &Arc<RunWork>) {
        self.task = Arc::new(work.count_in(&self.task));
    }

    /// Takes what `seen` itself names for live: metadata that was made from the plan itself names nothing that may go.
    pub(crate) fn with_own_files(mut self) -> Result<Self> {
        let mut live = LiveFilesBuilder::new(self.identity.clone(), &self.task);
        insert_metadata_files(&self.seen.metadata, &mut live)?;
        self.live_since.push(live.build()?);
        Ok(self)
    }

    /// Takes newer metadata for what was seen last, and what it names for live.
    pub(crate) async fn with_newer(mut self, newest: LoadedTable) -> Result<Self> {
        self.add(newest).await?;
        Ok(self)
    }

    /// Takes these metadata files of the table, which nobody is known to name, for live, and all that they name; takes what is
    /// live now out of the files. Returns what there is to say of it.
    pub(crate) async fn spare_named_by(
        &mut self,
        metadata_files: Vec<String>,
        files: &mut Vec<FileOutcome>,
    ) -> Result<String> {
        let (mut live, mut read) = (LiveFilesBuilder::new(self.identity.afresh(), &self.task), Read::default());
        let stores = Stores::new(self.task.runtime_env());
        for file in &metadata_files {
            let metadata = TableMetadata::parse(file, &stores.read(file).await?)?;
            live.insert(file, NamedBy::Metadata, false)?;
            insert_metadata_files(&metadata, &mut live)?;
            self.read_snapshots(&metadata, Reading::IfThere, &mut live, &mut read).await?;
        }
        self.take_for_live(live.build()?, read);
        self.checked_metadata.extend(metadata_files.iter().cloned());
        let before = files.len();
        self.spare_live_files(files).await?;
        files.retain(|file| file.status != FileStatus::Spared(SkipReason::LiveAgain));
        Ok(format!(
            "{} is not older than the newest metadata, which doesn't name it: a commit that failed left it, or another catalog \
             names it. It stays with all that it names ({} files) until the table is committed to again",
            metadata_files.join(", "),
            before - files.len()
        ))
    }

    /// Spares what these metadata files of the table's history name, for this reason. Files that are gone name nothing.
    ///
    /// # Errors
    /// When one that is there can't be read.
    pub(crate) async fn spare_named_by_history(
        &mut self,
        metadata_files: Vec<String>,
        files: &mut [FileOutcome],
        reason: SkipReason,
    ) -> Result<()> {
        let (mut live, mut read) = (LiveFilesBuilder::new(self.identity.afresh(), &self.task), Read::default());
        let stores = Stores::new(self.task.runtime_env());
        for file in &metadata_files {
            let content = match stores.read(file).await {
                Err(error) if error.is_not_found() => continue,
                content => content?,
            };
            let metadata = TableMetadata::parse(file, &content)?;
            insert_metadata_files(&metadata, &mut live)?;
            self.read_snapshots(&metadata, Reading::IfThere, &mut live, &mut read).await?;
        }
        let mut live = live.build()?;
        let answers = live.probe_all(&files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>())?;
        for (file, liveness) in files.iter_mut().zip(answers) {
            if file.status == FileStatus::Planned && liveness != Liveness::Dead {
                file.status = FileStatus::Spared(reason);
            }
        }
        self.take_for_live(live, read);
        Ok(())
    }

    /// Snapshots that were read count as checked from now on, so what they name must stay known.
    fn take_for_live(&mut self, live: LiveFiles, read: Read) {
        self.live_since.push(live);
        self.checked_snapshots.extend(read.snapshots);
        self.checked_manifests.extend(read.manifests);
    }

    /// The newest metadata seen so far.
    pub(crate) fn seen(&self) -> &LoadedTable {
        &self.seen
    }

    /// Spares every planned file of the batch that the newest metadata names.
    ///
    /// # Errors
    /// When the newest metadata can't be read, or belongs to another table. Then nothing may be deleted any more.
    pub(crate) async fn spare_live_files(&mut self, batch: &mut [FileOutcome]) -> Result<()> {
        self.look_again().await?;
        self.spare_named_by_newest(batch)
    }

    /// Spares what the newest metadata that was seen names, without looking whether there is a newer one.
    pub(crate) fn spare_named_by_newest(&mut self, files: &mut [FileOutcome]) -> Result<()> {
        for live in &mut self.live_since {
            let answers = live.probe_all(&files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>())?;
            for (file, liveness) in files.iter_mut().zip(answers) {
                if file.status == FileStatus::Planned && liveness != Liveness::Dead {
                    file.status = FileStatus::Spared(SkipReason::LiveAgain);
                }
            }
        }
        Ok(())
    }

    async fn look_again(&mut self) -> Result<()> {
        if !self.is_asked {
            return Ok(());
        }
        let runtime = self.task.runtime_env();
        let mut looks = 1;
        while !self.handle.is_current(&self.seen, &runtime).await? {
            let newest = self.load_same_table(&runtime).await?;
            let Err(error) = self.add(newest.clone()).await else { return Ok(()) };
            // Another run may have expired in the meantime what was to be read: then there is newer metadata, without it.
            let is_gone = matches!(error, Error::NeededFileUnreadable { .. } | Error::FileNotFound { .. });
            if !is_gone || looks == LOOKS || self.handle.is_current(&newest, &runtime).await? {
                return Err(error);
            }
            tracing::info!(table = newest.name, looks, %error, "the table changed while it was read; looking again");
            looks += 1;
        }
        Ok(())
    }

    async fn load_same_table(&self, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        let newest = self.handle.load(runtime).await?;
        if newest.metadata.table_uuid() != self.seen.metadata.table_uuid() {
            return Err(Error::Guard {
                table: newest.name.clone(),
                found: format!(
                    "the table was replaced while files were being deleted: its uuid is now {}",
                    newest.metadata.table_uuid().unwrap_or("absent")
                ),
            });
        }
        Ok(newest)
    }

    /// Takes all that newer metadata names for live. Where that fails nothing has changed.
    async fn add(&mut self, newest: LoadedTable) -> Result<()> {
        let (mut live, mut read) = (LiveFilesBuilder::new(self.identity.afresh(), &self.task), Read::default());
        insert_metadata_files(&newest.metadata, &mut live)?;
        self.read_snapshots(&newest.metadata, Reading::Strict, &mut live, &mut read).await?;
        let unread: Vec<&String> =
            newest.other_metadata_locations.iter().filter(|file| !self.checked_metadata.contains(*file)).collect();
        let stores = Stores::new(self.task.runtime_env());
        for file in unread {
            let metadata = TableMetadata::parse(file, &stores.read(file).await?)?;
            insert_metadata_files(&metadata, &mut live)?;
            self.read_snapshots(&metadata, Reading::IfThere, &mut live, &mut read).await?;
        }
        self.take_for_live(live.build()?, read);
        self.checked_metadata.extend(newest.other_metadata_locations.iter().cloned());
        self.checked_metadata.insert(newest.metadata.metadata_location().to_string());
        self.seen = newest;
        Ok(())
    }

    /// Adds what those snapshots name that the plan was not checked against, and that were not read before.
    async fn read_snapshots(
        &self,
        metadata: &TableMetadata,
        reading: Reading,
        live: &mut LiveFilesBuilder,
        read: &mut Read,
    ) -> Result<()> {
        let is_known = |id: &i64| self.checked_snapshots.contains(id) || read.snapshots.contains(id);
        let new = |snapshot: &&Snapshot| !is_known(&snapshot.snapshot_id);
        let snapshots: Vec<_> = metadata.snapshots().iter().filter(new).collect();
        let listed = list_manifests(&snapshots, reading, &self.task).await?;
        for manifest in &listed.manifests {
            live.insert(&manifest.reference.location, NamedBy::Metadata, false)?;
        }
        let mut unread = listed.manifests;
        let is_known = |file: &String| self.checked_manifests.contains(file) || read.manifests.contains(file);
        unread.retain(|manifest| !is_known(&manifest.reference.location));
        for_each_live_entry(&unread, reading, &self.task, |entry| live.insert(entry.path, NamedBy::Manifest, false))
            .await?;
        read.snapshots.extend(snapshots.iter().map(|snapshot| snapshot.snapshot_id));
        read.manifests.extend(unread.into_iter().map(|manifest| manifest.reference.location));
        Ok(())
    }
}

impl std::fmt::Debug for NewestMetadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewestMetadata").field("seen", &self.seen.metadata.metadata_location()).finish_non_exhaustive()
    }
}
