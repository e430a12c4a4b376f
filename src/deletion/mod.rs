//! The one room that deletes.
//!
//! It takes a [`DeletionPlan`], which only the checks in this folder can make, never a path that somebody built. It works
//! in batches; before each one the table's newest metadata is looked at again, and a file that became live meanwhile is
//! spared: a plan only ever shrinks. What happened to each file is reported; a failure never stops the others.

mod guards;
mod local;
mod newest;
mod object;

use std::sync::Arc;

use futures::StreamExt;

pub(crate) use guards::{Limits, check_limits};
pub(crate) use newest::NewestMetadata;

use crate::error::{Error, Result};
use crate::maintenance::Cancellation;
use crate::report::{FileOutcome, FileStatus, Operation, SkipReason};
use crate::storage::{StoreKind, Stores};
use crate::table::{Location, Roots};

/// How many files are checked against the newest metadata and deleted at once.
const BATCH: usize = 1000;

/// Files that passed every check and may be deleted. Can't be made elsewhere, can only shrink.
#[derive(Debug)]
pub(crate) struct DeletionPlan {
    table: String,
    files: Vec<FileOutcome>,
    roots: Roots,
    /// True when files outside the roots were asked for explicitly.
    external_allowed: bool,
}

/// How a plan is carried out.
#[derive(Debug, Clone)]
pub(crate) struct DeletionOptions {
    /// How many deletes run at once.
    pub concurrency: usize,
    /// Stops the run between two batches.
    pub cancellation: Cancellation,
    /// What is being done: after a commit the first batch goes even if the run was cancelled meanwhile.
    pub operation: Operation,
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
        Ok(Self { table, files, roots, external_allowed })
    }

    /// Looks at the files that lie on a local disk, where a look costs next to nothing: what is gone already, or would be
    /// left alone at the delete, is noted, so that a dry run says the same as the real run. Sizes are filled in.
    ///
    /// # Errors
    /// When the table's folders can't be resolved.
    pub(crate) async fn preview(&mut self, stores: &Stores) -> Result<()> {
        let executor = Executor::new(stores, (!self.external_allowed).then_some(&self.roots))?;
        for batch in self.files.chunks_mut(BATCH) {
            let local: Vec<(usize, local::Target)> = batch
                .iter()
                .enumerate()
                .filter(|(_, file)| file.status == FileStatus::Planned)
                .filter_map(|(index, file)| {
                    let location = Location::parse(&file.path).ok().filter(Location::is_local)?;
                    Some((index, local::Target { location, modified_ms: file.modified_ms }))
                })
                .collect();
            let Some((_, first)) = local.first() else { continue };
            let Some(files) = stores.store(&first.location)?.as_local().cloned() else { continue };
            let (indexes, targets): (Vec<_>, Vec<_>) = local.into_iter().unzip();
            let looks = local::preview(&files, targets, executor.local_roots.clone()).await?;
            for (index, (status, size)) in indexes.into_iter().zip(looks) {
                let file = &mut batch[index];
                file.bytes = file.bytes.or(size);
                file.status = status.unwrap_or(FileStatus::Planned);
            }
        }
        Ok(())
    }

    /// The files and what is planned for them, as a dry run reports them.
    pub(crate) fn files(&self) -> &[FileOutcome] {
        &self.files
    }

    fn planned(&self) -> usize {
        self.files.iter().filter(|file| file.status == FileStatus::Planned).count()
    }
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

/// Deletes the files of a plan and says what became of each.
///
/// A file that is gone already is no error. Failures are noted in the file's status; all other files are still tried. When
/// the newest metadata can't be read any more, nothing further is deleted and the rest counts as failed.
///
/// # Errors
/// [`Error::Cancelled`] between two batches; where nothing was committed, also before the first.
pub(crate) async fn delete_files(
    plan: DeletionPlan,
    stores: &Stores,
    newest: &mut NewestMetadata,
    options: &DeletionOptions,
) -> Result<Vec<FileOutcome>> {
    let planned = plan.planned() as u64;
    let DeletionPlan { table, mut files, roots, external_allowed } = plan;
    let executor = match Executor::new(stores, (!external_allowed).then_some(&roots)) {
        Ok(executor) => executor,
        Err(error) => {
            give_up(&mut files, &format!("the table's folders could not be looked at ({error})"));
            return Ok(files);
        }
    };
    let mut deleted = 0;
    let mut stopped: Option<String> = None;
    for (index, batch) in files.chunks_mut(BATCH).enumerate() {
        let may_stop = index > 0 || options.operation == Operation::RemoveOrphanFiles;
        if may_stop && options.cancellation.is_cancelled() {
            return Err(Error::Cancelled { deleted, planned, committed: options.operation.committed() });
        }
        if stopped.is_none() && batch.iter().any(|file| file.status == FileStatus::Planned) {
            stopped = newest.spare_live_files(batch).await.err().map(|error| error.to_string());
        }
        match &stopped {
            Some(why) => give_up(batch, &format!("the newest metadata could not be checked ({why})")),
            None => executor.delete_batch(batch, options.concurrency).await,
        }
        for file in batch.iter() {
            deleted += u64::from(file.status == FileStatus::Deleted);
            tracing::info!(target: "iceberg_maintenance::audit", table, path = file.path, status = ?file.status, "delete");
        }
    }
    Ok(files)
}

fn give_up(batch: &mut [FileOutcome], why: &str) {
    for file in batch.iter_mut().filter(|file| file.status == FileStatus::Planned) {
        file.status = FileStatus::Failed(format!("not tried: {why}"));
    }
}

#[derive(Debug, Clone)]
struct Executor {
    stores: Stores,
    /// Where local paths may lead, links resolved; `None` when external files were asked for.
    local_roots: Option<Arc<Vec<String>>>,
}

impl Executor {
    fn new(stores: &Stores, roots: Option<&Roots>) -> Result<Self> {
        let Some(roots) = roots else { return Ok(Self { stores: stores.clone(), local_roots: None }) };
        let local = roots.iter().find(|root| root.location.is_local());
        let local_roots = match local.map(|root| stores.store(&root.location)).transpose()? {
            Some(store) => store.as_local().map(|files| local::canonical_roots(files, roots)).transpose()?,
            None => None,
        };
        // Without a local root no local path is allowed.
        Ok(Self { stores: stores.clone(), local_roots: Some(Arc::new(local_roots.unwrap_or_default())) })
    }

    async fn delete_batch(&self, batch: &mut [FileOutcome], concurrency: usize) {
        let work: Vec<_> = batch
            .iter()
            .enumerate()
            .filter(|(_, file)| file.status == FileStatus::Planned)
            .map(|(index, file)| {
                let (path, modified_ms) = (file.path.clone(), file.modified_ms);
                async move { (index, self.delete(&path, modified_ms).await) }
            })
            .collect();
        let outcomes: Vec<(usize, FileStatus)> =
            futures::stream::iter(work).buffer_unordered(concurrency.max(1)).collect().await;
        for (index, status) in outcomes {
            batch[index].status = status;
        }
    }

    async fn delete(&self, path: &str, modified_ms: Option<i64>) -> FileStatus {
        let outcome = async {
            let location = Location::parse(path)?;
            match self.stores.store(&location)?.kind() {
                StoreKind::Local(files) => {
                    local::delete(files, local::Target { location, modified_ms }, self.local_roots.clone()).await
                }
                StoreKind::Object(objects) => object::delete(objects, &location).await,
            }
        };
        outcome.await.unwrap_or_else(|error: Error| FileStatus::Failed(error.to_string()))
    }
}
