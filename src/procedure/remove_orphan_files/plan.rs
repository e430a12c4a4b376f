//! Which files of a table's folder nothing names.
//!
//! What the metadata names is read, the folder is listed, and then the newest metadata is looked at again: whatever was
//! committed before or during the listing is known before anything is called an orphan. The guards come last and before
//! the first delete.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use futures::FutureExt;
use serde::Serialize;

use super::RemoveOrphanFiles;
use super::guards::{
    keep_files_with_other_names, refuse_foreign_tables, refuse_old_list, refuse_unshown_files, spare_changed_since_list,
};
use super::listing::{HiddenNames, Scope, listed_files, relation_files};
use super::recoverable::Recoverable;
use super::references::References;
use super::search::Search;
use crate::catalog::{LoadedTable, Ownership, TableHandle};
use crate::deletion::{DeletionPlan, Limits, NewestMetadata, check_limits, remove_journal};
use crate::error::{Error, Result};
use crate::journal::{JournalFiles, OpenRun, PlanFile, PlannedRun, Unfinished, Writer, refuse_other_clock};
use crate::maintenance::RunContext;
use crate::procedure::committing::plan_on_newest;
use crate::procedure::recovery::RecoveryWindow;
use crate::procedure::require_gc;
use crate::procedure::shared_location::refuse_shared_location;
use crate::progress::{RunStage, stage};
use crate::reachability::FileIdentity;
use crate::report::{FileOutcome, FileStatus, Metrics, Operation, Report, SkipReason, as_quarantined};
use crate::storage::{ListingMode, Stores};
use crate::table::{Location, PathRules, Root, Roots, TableMetadata};

/// A planned removal of orphans. Making one changes nothing; it can be looked at, serialised, executed or thrown away.
#[derive(Debug)]
pub struct OrphanPlan {
    pub(super) deletion: DeletionPlan,
    pub(super) newest: NewestMetadata,
    /// What earlier runs left, which goes before.
    pub(super) unfinished: Unfinished,
    /// Before this the files stay, ms since the epoch.
    until_ms: Option<i64>,
    /// Go on although the store's clock is not ours.
    ignore_clock: bool,
    /// No catalog names newer metadata elsewhere.
    no_catalog: bool,
    /// The files are moved, not deleted.
    pub(super) quarantine: bool,
    pub(super) max_concurrent_deletes: Option<usize>,
    /// The session's context with the table's own stores.
    pub(super) task: Arc<TaskContext>,
    metrics: Metrics,
    notices: Vec<String>,
}

impl OrphanPlan {
    /// Every orphan, and whether it will be deleted or spared.
    pub fn files(&self) -> &[FileOutcome] {
        self.deletion.files()
    }

    /// The table as it was seen last.
    pub(crate) fn table(&self) -> &LoadedTable {
        self.newest.seen()
    }

    /// The report of a dry run of this plan.
    pub fn report(&self) -> Report {
        let files = self.deletion.files().to_vec();
        let files = if self.quarantine { as_quarantined(files) } else { files };
        let mut report = self.summary().report(files, true);
        report.absorb(self.unfinished.preview());
        report
    }

    /// Refuses to delete from a catalog's table that was found by its folder: which metadata is the newest only the catalog
    /// knows, and what it names would count as orphans.
    pub(super) fn refuse_unknown_owner(&self) -> Result<()> {
        let table = self.newest.seen();
        if table.ownership == Ownership::Ours || self.no_catalog {
            return Ok(());
        }
        Err(Error::UnclearOwner {
            table: table.name.clone(),
            why: format!(
                "its newest metadata here is {}, a name that catalogs give. The catalog may know a newer one elsewhere, whose \
                 files would count as orphans. Name the table in its catalog; or give no_catalog => true if no catalog owns it, \
                 or the catalog names this very file. dry_run => true works as it is",
                table.metadata.metadata_location()
            ),
        })
    }

    /// Writes the plan into the table's journal. `None` where there is nothing to do, or the session wants no journal.
    ///
    /// # Errors
    /// When it can't be written, and when the store's clock is not ours: then ages mean nothing.
    pub(super) async fn write_into_journal(&self, context: &RunContext) -> Result<Option<OpenRun>> {
        let is_open =
            |file: &FileOutcome| matches!(file.status, FileStatus::Planned | FileStatus::Spared(SkipReason::Deferred));
        if !context.options().has_journal()? || !self.deletion.files().iter().any(is_open) {
            return Ok(None);
        }
        let Some(open) = OpenRun::begin(self.as_planned(), context, &self.task).await? else { return Ok(None) };
        if self.ignore_clock {
            return Ok(Some(open));
        }
        let depends = "the age of a file can't be told. Set the clocks right, or give ignore_clock_difference => true if \
                       older_than leaves room enough";
        match refuse_other_clock(&self.newest.seen().name, open.clock_difference_ms().await?, depends) {
            Ok(()) => Ok(Some(open)),
            Err(error) => {
                remove_journal(open.journal(), &[open.as_journaled()]).await;
                Err(error)
            }
        }
    }

    /// Stores the plan for a later call. Returns where it is.
    ///
    /// # Errors
    /// When there is something of this name, and when it can't be written.
    pub(super) async fn store_at(
        &self,
        options: &RemoveOrphanFiles,
        location: &str,
        context: &RunContext,
    ) -> Result<String> {
        PlanFile::store(self.as_planned(), options, location, &Writer::new(context), &context.task).await
    }

    fn as_planned(&self) -> PlannedRun<'_> {
        PlannedRun {
            operation: Operation::RemoveOrphanFiles,
            table: self.newest.seen(),
            files: self.deletion.files(),
            removed: vec![],
            until_ms: self.until_ms,
            external_allowed: false,
            quarantine: self.quarantine,
        }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary { table: self.newest.seen().name.clone(), metrics: self.metrics.clone(), notices: self.notices.clone() }
    }
}

impl Serialize for OrphanPlan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.report().serialize(serializer)
    }
}

/// The parts of a report that are known before the deletes.
pub(super) struct Summary {
    table: String,
    metrics: Metrics,
    pub(super) notices: Vec<String>,
}

impl Summary {
    pub(super) fn report(self, files: Vec<FileOutcome>, dry_run: bool) -> Report {
        let mut metrics = self.metrics;
        metrics.dry_run = dry_run;
        metrics.count_files(&files);
        Report {
            operation: Operation::RemoveOrphanFiles,
            table: self.table,
            metrics,
            files,
            snapshots: vec![],
            refs: vec![],
            notices: self.notices,
        }
    }
}

/// Plans a removal of orphans. Reads, never writes.
pub(super) async fn plan(
    handle: TableHandle,
    options: &RemoveOrphanFiles,
    only: Option<&PlanFile>,
    context: &RunContext,
) -> Result<OrphanPlan> {
    let plan = |table| plan_on(table, handle.clone(), options, only, context).boxed();
    plan_on_newest(&handle, &context.task, plan).await
}

async fn plan_on(
    table: LoadedTable,
    handle: TableHandle,
    options: &RemoveOrphanFiles,
    only: Option<&PlanFile>,
    context: &RunContext,
) -> Result<OrphanPlan> {
    only.map_or(Ok(()), |only| only.refuse_other_table(&table))?;
    let context = &context.for_table(&table);
    let task = &context.task;
    let stores = Stores::new(task.runtime_env());
    require_gc(&table, "delete orphan files")?;
    refuse_metadata_elsewhere(&table)?;
    let metadata = table.metadata.clone();
    let rules = options.path_rules(&metadata);
    let scope = Scope::resolve(&metadata, options.location.as_deref(), &rules)?;
    refuse_shared_folder(&table.name, &metadata, &scope, options, &rules)?;
    let store = stores.store(metadata.location())?;
    store.as_local().map_or(Ok(()), |local| scope.refuse_links(&metadata, local))?;
    let identity = FileIdentity::new(rules.clone(), store.as_local().cloned());

    let read = References::read(&table, &scope, &identity, task);
    let mut references = stage(task, RunStage::ReadingMetadata, read).await?;
    let search = search(options, &table, &scope, &identity, &mut references, context);
    let mut search = stage(task, RunStage::Listing, search).await?;
    search.drop_link_targets(&store);
    search.refuse_mismatches(&table.name)?;

    let unfinished = match scope.whole_table && options.file_list_view.is_none() && only.is_none() {
        true => Unfinished::on_the_way(&table, &handle, options.no_catalog, context).await?,
        false => Unfinished::default(),
    };
    let mut newest = references.newest_metadata(handle.clone(), task, identity.clone(), table.clone());
    stage(task, RunStage::Checking, newest.spare_live_files(search.orphans.as_mut())).await?;
    search.orphans.as_mut().retain(|file| file.status != FileStatus::Spared(SkipReason::LiveAgain));

    let seen = newest.seen();
    let shows_everything = scope.whole_table && options.file_list_view.is_none();
    let newer =
        refuse_foreign_tables(seen, &rules, &scope, shows_everything, &search, &mut references, &stores).await?;
    let changed = !seen.is_same_version(&table);
    let mut notices = seen.notices.clone();
    if !newer.is_empty() {
        notices.push(newest.spare_named_by(newer, search.orphans.as_mut()).await?);
    }
    let seen = newest.seen().clone();
    let dangling = refuse_unshown_files(&seen.name, changed, options, &mut references, &search, &stores, task).await?;
    notices.extend(refuse_old_list(&seen, options, &search)?);

    let window = RecoveryWindow::of(&metadata, options.deferred_ms, task)?;
    let now_ms = options.now_ms;
    let recoverable = Recoverable { table: &table, identity: &identity, window, now_ms, task };
    recoverable.spare(search.orphans.as_mut(), &unfinished, &mut newest).await?;

    let is_listing = options.file_list_view.is_none();
    if !is_listing {
        spare_changed_since_list(&mut search, &store, options.cutoff_ms).await?;
    }
    keep_files_with_other_names(&mut references, &mut search, &store, is_listing, task).await?;

    let Search { mut metrics, orphans, foreign, .. } = search;
    let mut orphans = orphans.into_vec();
    orphans.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    notices.extend(only.and_then(|only| only.limit_files(&mut orphans)));
    metrics.dangling_references_count = dangling;
    metrics.processed_manifests_count = references.manifest_count() as u64;
    metrics.active_files_count = references.live_content() as u64;
    metrics.retained_snapshots_count = seen.metadata.snapshots().len() as u64;
    let unscanned = unscanned_roots(&metadata, &scope, &rules);
    metrics.unscanned_roots_count = unscanned.len() as u64;
    notices.extend(
        (!scope.whole_table).then(|| format!("location is {}: nothing outside of it was searched", scope.folder)),
    );
    notices.extend(foreign.map(|file| foreign_notice(metrics.skipped_foreign_files_count, &file)));
    notices.extend(unscanned.into_iter().map(|root| {
        format!("{root} lies outside the table's location and may be shared: it is listed only when named as location")
    }));
    let limits = Limits {
        max_delete_count: options.max_delete_count,
        max_delete_fraction: options.max_delete_fraction,
        considered: metrics.scanned_files_count,
    };
    let name = seen.name.clone();
    let deletion = DeletionPlan::check(&name, orphans, metadata.roots(rules), false, &limits)?;
    check_limits(&name, deletion.planned() + unfinished.planned(), &limits)?;
    let mut deletion = deletion.keeping_folder(scope.folder.clone());
    deletion.preview(&stores).await?;
    if deletion.planned() + unfinished.planned() > 0 {
        let (folder, permitted) = (Some(&scope.folder), options.shared_location);
        notices.extend(refuse_shared_location(&handle, newest.seen(), folder, permitted, task).await?);
    }
    let until_ms = if options.quarantine { None } else { window.defer(&mut deletion, now_ms) };
    notices.extend(until_ms.map(RecoveryWindow::notice));
    let (max_concurrent_deletes, task) = (options.max_concurrent_deletes, Arc::clone(task));
    let (ignore_clock, quarantine) = (options.ignore_clock_difference, options.quarantine);
    Ok(OrphanPlan {
        deletion,
        newest,
        unfinished,
        until_ms,
        ignore_clock,
        no_catalog: options.no_catalog,
        quarantine,
        max_concurrent_deletes,
        task,
        metrics,
        notices,
    })
}

/// What is said of files that are no orphans because the table doesn't write where they lie.
fn foreign_notice(count: u64, file: &str) -> String {
    format!(
        "{count} files that nothing names lie in the table's location but where the table neither writes nor has live files, such \
         as {file}: they stay. Give include_foreign => true to delete them, or name their folder as location"
    )
}

/// Looks up every file of the scope's listing, or every row of the relation that stands for one.
async fn search(
    options: &RemoveOrphanFiles,
    table: &LoadedTable,
    scope: &Scope,
    identity: &FileIdentity,
    references: &mut References,
    context: &RunContext,
) -> Result<Search> {
    let journal = JournalFiles::of(table.metadata.location(), &options.path_rules(&table.metadata));
    if let Some(relation) = &options.file_list_view {
        // Spark hides names in a listing, but not in a list that somebody made.
        let mut search = Search::new(options, scope, references, None, journal, &context.task);
        search.run(relation_files(relation, scope, context).await?, references, None).await?;
        return Ok(search);
    }
    let store = Stores::new(context.task.runtime_env()).store(&scope.folder)?;
    let sample = references.sample().to_vec();
    let mut how = context.options().listing_options()?;
    loop {
        let hidden = HiddenNames::new(scope, &table.metadata);
        let mut search = Search::new(options, scope, references, Some(hidden), journal.clone(), &context.task);
        let outcome = search.run(listed_files(&store, scope, &sample, &how), references, Some(&store)).await;
        match outcome {
            // What was found so far may have gaps: all of it is thrown away, and what was noted as seen, too.
            Err(error @ Error::ListingOrder { .. }) if how.mode == ListingMode::Auto => {
                tracing::warn!(%error, "listing again, in one part");
                how.mode = ListingMode::Sequential;
                *references = References::read(table, scope, identity, &context.task).await?;
            }
            outcome => return outcome.map(|()| search),
        }
    }
}

/// Refuses a catalog's table that writes its metadata elsewhere: what is here may be old, and the newest is unknown.
fn refuse_metadata_elsewhere(table: &LoadedTable) -> Result<()> {
    let metadata = &table.metadata;
    let elsewhere = metadata.properties().get("write.metadata.path").and_then(|path| Location::parse(path).ok());
    let rules = PathRules::new(metadata.location());
    let own = metadata.location().child("metadata");
    match elsewhere.filter(|path| table.ownership == Ownership::UnknownCatalog && !rules.same_place(path, &own)) {
        None => Ok(()),
        Some(path) => Err(Error::UnclearOwner {
            table: table.name.clone(),
            why: format!(
                "write.metadata.path is {path}, so newer metadata than what lies below the table may be there, and what it \
                 names would count as orphans. Name the table in its catalog"
            ),
        }),
    }
}

/// Refuses a folder outside of the table's location unless the caller says that no other table uses it: several tables may
/// write to one `write.data.path`, and the others leave no metadata there to tell by.
fn refuse_shared_folder(
    table: &str,
    metadata: &TableMetadata,
    scope: &Scope,
    options: &RemoveOrphanFiles,
    rules: &PathRules,
) -> Result<()> {
    let own = Root { location: metadata.location().clone(), named_by: "location" };
    let is_own = scope.whole_table || Roots::new(vec![own], rules.clone()).contains(&scope.folder.to_text());
    if is_own || options.exclusive_location {
        return Ok(());
    }
    Err(Error::Guard {
        table: table.into(),
        found: format!(
            "{} lies outside of the table's own location {}. Other tables may write there too, and their files would count \
             as orphans. If really no other table does, give exclusive_location => true",
            scope.folder,
            metadata.location()
        ),
    })
}

/// The roots that a search of the whole table leaves out because they lie elsewhere.
fn unscanned_roots(metadata: &TableMetadata, scope: &Scope, rules: &PathRules) -> Vec<String> {
    if !scope.whole_table {
        return vec![];
    }
    let inside = scope.as_roots(rules);
    let roots = metadata.roots(rules.clone());
    let elsewhere = roots
        .iter()
        .filter(|root| !rules.same_place(&root.location, &scope.folder) && !inside.contains(&root.location.to_text()));
    elsewhere.map(|root| format!("{} ({})", root.location, root.named_by)).collect()
}
