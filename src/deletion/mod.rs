//! The one room that deletes.
//!
//! It takes a [`DeletionPlan`], which only the checks in this folder can make, never a path that somebody built. It
//! works in batches; before each one the table's newest metadata is looked at again, and a file that became live
//! meanwhile is spared: a plan only ever shrinks. What happened to each file is reported; a failure never stops the
//! others.
//!
//! Deletes go many at a time: one request for the objects of a batch where the store takes that, one task for a chunk
//! of local files. [`pace`] decides how many requests and tasks run at once.

mod folders;
mod guards;
mod journal;
mod local;
mod moves;
mod newest;
mod object;
mod pace;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinHandle;
use tracing::Instrument;

pub(crate) use guards::{Limits, check_limits};
pub(crate) use journal::{remove_claim, remove_journal};
pub(crate) use local::is_newer;
pub(crate) use moves::Moves;
pub(crate) use newest::NewestMetadata;

use local::{Preview, Target};
use object::{ObjectDeletes, Outcomes};
use pace::Pace;

use crate::error::{Error, Result};
use crate::maintenance::{Cancellation, RunContext};
use crate::progress::RunWork;
use crate::report::{FileOutcome, FileStatus, Operation, SkipReason};
use crate::storage::{LocalFiles, Store, StoreKind, Stores};
use crate::table::{Location, Roots};

/// How many files are checked against the newest metadata at once: as many as S3 deletes with one request.
const BATCH: usize = 1000;
/// How many batches are being deleted at once. More would gain little: S3 takes 3,500 deletes a second below a prefix.
const BATCHES_AT_ONCE: usize = 4;
/// How many local files one task deletes: few enough for a network disk, where each may take milliseconds.
const LOCAL_CHUNK: usize = 100;

/// Files that passed every check and may be deleted. Can't be made elsewhere, can only shrink.
#[derive(Debug)]
pub(crate) struct DeletionPlan {
    table: String,
    files: Vec<FileOutcome>,
    roots: Roots,
    /// True when files outside the roots were asked for explicitly.
    external_allowed: bool,
    /// A folder that stays even if it becomes empty.
    kept_folder: Option<Location>,
    /// Where the folders of local files really are, by their names.
    local_folders: HashMap<String, Arc<str>>,
}

/// How a plan is carried out.
#[derive(Debug, Clone)]
pub(crate) struct DeletionOptions {
    /// How many requests to delete, or tasks that do, run at once.
    pub concurrency: usize,
    /// Stops the run between two batches.
    pub cancellation: Cancellation,
    /// Files that are moved instead. Where there are any, nothing is deleted.
    pub moves: Option<Arc<Moves>>,
    /// What is being done: after a commit the first batch goes even if the run was cancelled meanwhile.
    pub operation: Operation,
    /// Where the deletes are counted, for who looks on.
    pub work: Arc<RunWork>,
}

impl DeletionOptions {
    /// Deletes of an operation, as many at once as the session allows.
    pub(crate) fn of(operation: Operation, context: &RunContext) -> Self {
        Self {
            concurrency: context.options().max_concurrent_deletes,
            cancellation: context.cancellation.clone(),
            moves: None,
            operation,
            work: context.work(),
        }
    }

    fn count_bytes(&self, files: &[FileOutcome]) {
        let is_gone = |file: &&FileOutcome| {
            matches!(file.status, FileStatus::Deleted | FileStatus::Quarantined | FileStatus::Returned)
        };
        let bytes = files.iter().filter(is_gone).filter_map(|file| file.bytes).fold(0, u64::saturating_add);
        self.work.bytes_deleted.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl DeletionPlan {
    /// Checks a plan against the limits and the table's roots.
    ///
    /// Files outside the roots, and those whose name the store can't express, are spared here rather than refused: they
    /// are leftovers, not dangers.
    ///
    /// # Errors
    /// [`Error::Guard`] when there are more files than `limits` allow.
    pub(crate) fn check(
        table: impl Into<String>,
        mut files: Vec<FileOutcome>,
        roots: Roots,
        external_allowed: bool,
        limits: &Limits,
    ) -> Result<Self> {
        let table = table.into();
        spare_unreachable(&mut files, &roots, external_allowed);
        let planned = files.iter().filter(|file| file.status == FileStatus::Planned).count();
        check_limits(&table, planned, limits)?;
        Ok(Self { table, files, roots, external_allowed, kept_folder: None, local_folders: HashMap::new() })
    }

    /// Keeps this folder even if it becomes empty: the same call must find it again.
    pub(crate) fn keeping_folder(self, folder: Location) -> Self {
        Self { kept_folder: Some(folder), ..self }
    }

    /// Looks at the files that lie on a local disk, where a look costs next to nothing: what is gone already, or would
    /// be left alone at the delete, is noted, so that a dry run says the same as the real run. Sizes are filled in.
    ///
    /// # Errors
    /// When the table's folders can't be resolved.
    pub(crate) async fn preview(&mut self, stores: &Stores) -> Result<()> {
        let roots = allowed_local_roots(stores, (!self.external_allowed).then_some(&self.roots))?;
        for batch in self.files.chunks_mut(BATCH) {
            let local: Vec<(usize, Target)> = batch
                .iter()
                .enumerate()
                .filter(|(_, file)| file.status == FileStatus::Planned)
                .filter_map(|(index, file)| {
                    let location = Location::parse(&file.path).ok().filter(Location::is_local)?;
                    Some((index, Target { location, modified_ms: file.modified_ms, folder: None, moved_to: None }))
                })
                .collect();
            let Some((_, first)) = local.first() else { continue };
            let Some(files) = stores.store(&first.location)?.as_local().cloned() else { continue };
            let (indexes, targets): (Vec<_>, Vec<_>) = local.into_iter().unzip();
            let looks = local::preview(&files, targets, roots.clone()).await?;
            for (index, Preview { status, size, folder }) in indexes.into_iter().zip(looks) {
                let file = &mut batch[index];
                file.bytes = file.bytes.or(size);
                file.status = status.unwrap_or(FileStatus::Planned);
                if let Some(folder) = folder
                    && !self.local_folders.contains_key(folder_of(&file.path))
                {
                    self.local_folders.insert(folder_of(&file.path).to_string(), folder);
                }
            }
        }
        Ok(())
    }

    /// Puts the deletion of all files off: this run deletes none of them.
    pub(crate) fn defer(&mut self) {
        for file in self.files.iter_mut().filter(|file| file.status == FileStatus::Planned) {
            file.status = FileStatus::Spared(SkipReason::Deferred);
        }
    }

    /// Spares the files that are not among these.
    pub(crate) fn spare_all_but(&mut self, files: &HashSet<String>, reason: SkipReason) {
        let is_planned = |file: &&mut FileOutcome| file.status == FileStatus::Planned;
        for file in self.files.iter_mut().filter(is_planned).filter(|file| !files.contains(&file.path)) {
            file.status = FileStatus::Spared(reason);
        }
    }

    /// Spares these files.
    pub(crate) fn spare(&mut self, files: &HashSet<String>, reason: SkipReason) {
        let is_planned = |file: &&mut FileOutcome| file.status == FileStatus::Planned;
        for file in self.files.iter_mut().filter(is_planned).filter(|file| files.contains(&file.path)) {
            file.status = FileStatus::Spared(reason);
        }
    }

    /// How many files are planned.
    pub(crate) fn planned(&self) -> usize {
        self.files.iter().filter(|file| file.status == FileStatus::Planned).count()
    }

    /// The files and what is planned for them, as a dry run reports them.
    pub(crate) fn files(&self) -> &[FileOutcome] {
        &self.files
    }
}

/// A location without its last segment.
fn folder_of(location: &str) -> &str {
    location.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn spare_unreachable(files: &mut [FileOutcome], roots: &Roots, external_allowed: bool) {
    for file in files.iter_mut().filter(|file| file.status == FileStatus::Planned) {
        if !external_allowed && !roots.contains(&file.path) {
            file.status = FileStatus::Spared(SkipReason::External);
        } else if !is_expressible(&file.path) {
            file.status = FileStatus::Spared(SkipReason::UnsupportedName);
        }
    }
}

fn is_expressible(path: &str) -> bool {
    match Location::parse(path) {
        Ok(location) if location.is_local() => {
            !location.path().split('/').any(|segment| segment == "..") && !location.path().contains('\0')
        }
        Ok(location) => crate::storage::ObjectFiles::key(&location).is_ok(),
        Err(_) => false,
    }
}

/// Deletes that ended before their end.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Why.
    pub error: Error,
    /// What became of all files of the plan.
    pub files: Vec<FileOutcome>,
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Self {
        stopped.error
    }
}

/// Deletes the files of a plan and says what became of each.
///
/// A file that is gone already is no error. Failures are noted in the file's status; all other files are still tried.
/// When the newest metadata can't be read any more, nothing further is deleted and the rest counts as failed. Folders
/// of a local disk that are empty afterwards, and were not before, are removed.
///
/// # Errors
/// [`Error::Cancelled`] between two batches; where nothing was committed, also before the first. Batches that had begun
/// are finished first.
pub(crate) async fn delete_files(
    plan: DeletionPlan,
    stores: &Stores,
    newest: &mut NewestMetadata,
    options: &DeletionOptions,
) -> std::result::Result<Vec<FileOutcome>, Stopped> {
    let planned = plan.planned() as u64;
    let DeletionPlan { table, mut files, roots, external_allowed, kept_folder, local_folders } = plan;
    let pace = Arc::new(Pace::new(options.concurrency));
    let executor = match Executor::new(stores, (!external_allowed).then_some(&roots), pace.clone(), local_folders) {
        Ok(executor) => Executor { moves: options.moves.clone(), ..executor },
        Err(error) => {
            give_up(&mut files, &format!("the table's folders could not be looked at ({error})"));
            return Ok(files);
        }
    };
    let count = files.len();
    let at_once = options.concurrency.clamp(1, BATCHES_AT_ONCE);
    let mut batches = Batches { files: files.into_iter(), begun: 0, newest, stopped: None, pace, options };
    let (mut files, mut running) = (Vec::with_capacity(count), VecDeque::new());
    options.work.add(|work| &work.deletes_known, planned as usize);
    batches.newest.count_in(&options.work);
    while let Some(Batch { files: batch, planned }) = batches.next().await {
        // In a task of its own, so that it goes on while the metadata is looked at for the next one.
        let begun = RunningBatch {
            planned,
            files: batch.clone(),
            task: tokio::spawn(executor.clone().delete_batch(table.clone(), batch).in_current_span()),
        };
        running.push_back(begun);
        if running.len() == at_once
            && let Some(first) = running.pop_front()
        {
            files.extend(first.done(options).await);
        }
    }
    for batch in running {
        files.extend(batch.done(options).await);
    }
    if files.len() < count {
        let deleted = files.iter().filter(|file| file.status == FileStatus::Deleted).count() as u64;
        files.extend(batches.files);
        give_up(&mut files, "the run was cancelled");
        let error = Error::Cancelled { deleted, planned, committed: options.operation.cut_short() };
        return Err(Stopped { error, files });
    }
    remove_emptied_folders(&table, stores, &files, &roots, kept_folder).await;
    Ok(files)
}

/// Files that are dealt with together.
struct Batch {
    files: Vec<FileOutcome>,
    /// How many of them were planned before the look at the newest metadata.
    planned: usize,
}

/// A batch that has begun.
struct RunningBatch {
    planned: usize,
    /// As they were before.
    files: Vec<FileOutcome>,
    task: JoinHandle<Vec<FileOutcome>>,
}

impl RunningBatch {
    /// What became of its files. One fault of ours must not hide what the other batches did.
    async fn done(self, options: &DeletionOptions) -> Vec<FileOutcome> {
        let Self { planned, mut files, task } = self;
        let files = match task.await {
            Ok(done) => done,
            Err(error) => {
                let why = format!("what became of it is unknown, because the task that deletes it died: {error}");
                for file in files.iter_mut().filter(|file| file.status == FileStatus::Planned) {
                    file.status = FileStatus::Failed(why.clone());
                }
                files
            }
        };
        options.work.add(|work| &work.deletes_done, planned);
        options.count_bytes(&files);
        files
    }
}

/// The batches of a run, each handed out right after its look at the newest metadata.
struct Batches<'a> {
    files: std::vec::IntoIter<FileOutcome>,
    begun: usize,
    newest: &'a mut NewestMetadata,
    /// Why nothing further may be deleted.
    stopped: Option<String>,
    pace: Arc<Pace>,
    options: &'a DeletionOptions,
}

impl Batches<'_> {
    /// The next batch. `None` at the end and when the run was cancelled.
    async fn next(&mut self) -> Option<Batch> {
        // Looking at the metadata long before a delete may begin would be of little use.
        let permit = self.pace.permit().await;
        let may_stop = self.begun > 0 || self.options.operation != Operation::ExpireSnapshots;
        if may_stop && self.options.cancellation.is_cancelled() {
            return None;
        }
        let mut batch: Vec<FileOutcome> = self.files.by_ref().take(BATCH).collect();
        self.begun += 1;
        if batch.is_empty() {
            return None;
        }
        let planned = batch.iter().filter(|file| file.status == FileStatus::Planned).count();
        if self.stopped.is_none() && planned > 0 {
            self.stopped = self.newest.spare_live_files(&mut batch).await.err().map(|error| error.to_string());
        }
        if let Some(why) = &self.stopped {
            give_up(&mut batch, &format!("the newest metadata could not be checked ({why})"));
        }
        drop(permit);
        Some(Batch { files: batch, planned })
    }
}

fn give_up(batch: &mut [FileOutcome], why: &str) {
    for file in batch.iter_mut().filter(|file| file.status == FileStatus::Planned) {
        file.status = FileStatus::Failed(format!("not tried: {why}"));
    }
}

async fn remove_emptied_folders(
    table: &str,
    stores: &Stores,
    files: &[FileOutcome],
    roots: &Roots,
    kept: Option<Location>,
) {
    let folders = folders::folders_of_deleted(files);
    let Some(root) = roots.iter().find(|root| root.location.is_local()).filter(|_| !folders.is_empty()) else { return };
    if let Ok(store) = stores.store(&root.location)
        && let Some(local) = store.as_local()
    {
        folders::remove_emptied(table, local, folders, roots, kept).await;
    }
}

/// Carries out batches. Clones share everything.
#[derive(Debug, Clone)]
struct Executor {
    stores: Stores,
    /// Where local paths may lead, links resolved; `None` when external files were asked for.
    local_roots: Option<Arc<Vec<String>>>,
    /// Where the folders of local files really were when the plan was made.
    local_folders: Arc<HashMap<String, Arc<str>>>,
    pace: Arc<Pace>,
    objects: Arc<ObjectDeletes>,
    moves: Option<Arc<Moves>>,
}

/// The files of a batch that lie in one store, by their index in the batch.
struct Share {
    store: Store,
    /// A file of it, for its scheme and authority.
    first: Location,
    targets: Vec<(usize, Target)>,
}

impl Executor {
    fn new(
        stores: &Stores,
        roots: Option<&Roots>,
        pace: Arc<Pace>,
        local_folders: HashMap<String, Arc<str>>,
    ) -> Result<Self> {
        let local_roots = allowed_local_roots(stores, roots)?;
        let objects = Arc::new(ObjectDeletes::new(pace.clone()));
        Ok(Self {
            stores: stores.clone(),
            local_roots,
            local_folders: Arc::new(local_folders),
            pace,
            objects,
            moves: None,
        })
    }

    /// Deletes what is planned of a batch and returns the batch with what became of it.
    async fn delete_batch(self, table: String, mut batch: Vec<FileOutcome>) -> Vec<FileOutcome> {
        let shares = self.shares(&mut batch);
        let deletes: Vec<_> = shares.into_iter().map(|share| self.delete_share(share)).collect();
        for (index, status) in futures::future::join_all(deletes).await.into_iter().flatten() {
            batch[index].status = status;
        }
        for file in &mut batch {
            // Would be a fault of ours; a file must not count as deleted by it.
            if file.status == FileStatus::Planned {
                file.status = FileStatus::Failed("what became of it is unknown".into());
            }
            tracing::info!(target: "iceberg_maintenance::audit", table, path = file.path, status = ?file.status, "delete");
        }
        batch
    }

    /// Sorts the planned files of a batch by store. What lies in no store that is known has failed.
    fn shares(&self, batch: &mut [FileOutcome]) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        for (index, file) in batch.iter_mut().enumerate().filter(|(_, file)| file.status == FileStatus::Planned) {
            if let Err(error) = self.add_to_share(&mut shares, index, file) {
                file.status = FileStatus::Failed(error.to_string());
            }
        }
        shares
    }

    fn add_to_share(&self, shares: &mut Vec<Share>, index: usize, file: &FileOutcome) -> Result<()> {
        let location = Location::parse(&file.path)?;
        let same_store = |share: &Share| {
            share.first.scheme() == location.scheme() && share.first.authority() == location.authority()
        };
        let at = match shares.iter().position(same_store) {
            Some(known) => known,
            None => {
                let store = self.stores.store(&location)?;
                shares.push(Share { store, first: location.clone(), targets: vec![] });
                shares.len() - 1
            }
        };
        let folder = self.local_folders.get(folder_of(&file.path)).cloned();
        let moved_to = self.moved_to(file, &location)?;
        shares[at].targets.push((index, Target { location, modified_ms: file.modified_ms, folder, moved_to }));
        Ok(())
    }

    /// Where a file goes instead of being deleted.
    ///
    /// # Errors
    /// When files are to be moved, and this one has no place in its own store: it stays.
    fn moved_to(&self, file: &FileOutcome, location: &Location) -> Result<Option<(Location, FileStatus)>> {
        let Some(moves) = &self.moves else { return Ok(None) };
        let same_store = |to: &&Location| to.scheme() == location.scheme() && to.authority() == location.authority();
        match moves.target(&file.path).filter(same_store) {
            Some(to) => Ok(Some((to.clone(), moves.moved()))),
            None => Err(Error::Location {
                location: file.path.clone(),
                why: "it can't be moved from there: it lies in another store than the table".into(),
            }),
        }
    }

    async fn delete_share(&self, share: Share) -> Outcomes {
        match share.store.kind() {
            StoreKind::Local(files) => self.delete_local(files, share.targets).await,
            StoreKind::Object(store) => self.objects.delete(store, share.targets).await,
        }
    }

    /// Deletes local files in chunks, as many at once as may be. Files of one folder stay together.
    async fn delete_local(&self, files: &LocalFiles, mut targets: Vec<(usize, Target)>) -> Outcomes {
        targets.sort_by(|(_, a), (_, b)| a.location.path().cmp(b.location.path()));
        let chunks: Vec<_> =
            targets.chunks(LOCAL_CHUNK).map(|chunk| self.delete_chunk(files, chunk.to_vec())).collect();
        futures::future::join_all(chunks).await.into_iter().flatten().collect()
    }

    async fn delete_chunk(&self, files: &LocalFiles, chunk: Vec<(usize, Target)>) -> Outcomes {
        let _permit = self.pace.permit().await;
        let (indexes, targets): (Vec<usize>, Vec<Target>) = chunk.into_iter().unzip();
        match local::delete(files, targets, self.local_roots.clone()).await {
            Ok(statuses) => indexes.into_iter().zip(statuses).collect(),
            Err(error) => indexes.into_iter().map(|index| (index, FileStatus::Failed(error.to_string()))).collect(),
        }
    }
}

/// Where local paths may lead, links resolved. `None` when they may lead anywhere.
fn allowed_local_roots(stores: &Stores, roots: Option<&Roots>) -> Result<Option<Arc<Vec<String>>>> {
    let Some(roots) = roots else { return Ok(None) };
    let local = roots.iter().find(|root| root.location.is_local());
    let store = local.map(|root| stores.store(&root.location)).transpose()?;
    let files = store.as_ref().and_then(Store::as_local);
    let canonical = files.map(|files| local::canonical_roots(files, roots)).transpose()?;
    // Without a local root no local path is allowed.
    Ok(Some(Arc::new(canonical.unwrap_or_default())))
}
