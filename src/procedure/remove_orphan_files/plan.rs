//! Which files of a table's folder nothing names.
//!
//! What the metadata names is read, the folder is listed, and then the newest metadata is looked at again: whatever was
//! committed before or during the listing is known before anything is called an orphan. The guards come last and before
//! the first delete.

use serde::Serialize;

use super::RemoveOrphanFiles;
use super::guards::{refuse_foreign_tables, refuse_unshown_files};
use super::listing::{HiddenNames, Scope, listed_files, relation_files};
use super::references::References;
use super::search::Search;
use crate::catalog::{LoadedTable, TableHandle};
use crate::deletion::{DeletionPlan, Limits, NewestMetadata};
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::reachability::FileIdentity;
use crate::report::{FileOutcome, FileStatus, Metrics, Operation, Report, SkipReason};
use crate::storage::Stores;
use crate::table::{PathRules, TableMetadata};

/// A planned removal of orphans. Making one changes nothing; it can be looked at, serialised, executed or thrown away.
#[derive(Debug)]
pub struct OrphanPlan {
    table: String,
    pub(super) deletion: DeletionPlan,
    pub(super) newest: NewestMetadata,
    metrics: Metrics,
    notices: Vec<String>,
}

impl OrphanPlan {
    /// Every orphan, and whether it will be deleted or spared.
    pub fn files(&self) -> &[FileOutcome] {
        self.deletion.files()
    }

    /// The report of a dry run of this plan.
    pub fn report(&self) -> Report {
        self.summary().report(self.deletion.files().to_vec(), true)
    }

    pub(super) fn summary(&self) -> Summary {
        Summary { table: self.table.clone(), metrics: self.metrics.clone(), notices: self.notices.clone() }
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
    notices: Vec<String>,
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
            notices: self.notices,
        }
    }
}

/// Plans a removal of orphans. Reads, never writes.
pub(super) async fn plan(handle: TableHandle, options: &RemoveOrphanFiles, context: &RunContext) -> Result<OrphanPlan> {
    let (task, runtime) = (&context.task, context.task.runtime_env());
    let stores = Stores::new(runtime.clone());
    let table = handle.load(&runtime).await?;
    refuse_without_gc(&table)?;
    let metadata = table.metadata.clone();
    let rules = options.path_rules(&metadata);
    let scope = Scope::resolve(&metadata, options.location.as_deref(), &rules)?;
    let store = stores.store(metadata.location())?;
    let identity = FileIdentity::new(rules.clone(), store.as_local().cloned());

    let mut references = References::read(&table, &scope, &identity, task).await?;
    // Spark hides names in a listing, but not in a list that somebody made.
    let hidden = options.file_list_view.is_none().then(|| HiddenNames::new(&scope, &metadata));
    let mut search = Search::new(options, hidden);
    match &options.file_list_view {
        None => search.run(listed_files(&stores.store(&scope.folder)?, &scope), &mut references).await?,
        Some(relation) => search.run(relation_files(relation, &scope, context).await?, &mut references).await?,
    }
    search.drop_link_targets(&store);
    search.refuse_mismatches(&table.name)?;

    let mut newest = references.newest_metadata(handle, task, identity, table);
    newest.spare_live_files(&mut search.orphans).await?;
    search.orphans.retain(|file| file.status != FileStatus::Spared(SkipReason::LiveAgain));

    let seen = newest.seen();
    refuse_foreign_tables(seen, &rules, &scope, &search.metadata_files, &mut references, &stores).await?;
    let dangling = refuse_unshown_files(&seen.name, options, &scope, &mut references, &search, &stores, task).await?;

    let Search { mut metrics, orphans, .. } = search;
    metrics.dangling_references_count = dangling;
    metrics.processed_manifests_count = references.manifest_count() as u64;
    metrics.active_files_count = references.live_content() as u64;
    metrics.retained_snapshots_count = seen.metadata.snapshots().len() as u64;
    let unscanned = unscanned_roots(&metadata, &scope, &rules);
    metrics.unscanned_roots_count = unscanned.len() as u64;
    let mut notices = seen.notices.clone();
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
    Ok(OrphanPlan { table: name, deletion, newest, metrics, notices })
}

fn refuse_without_gc(table: &LoadedTable) -> Result<()> {
    match table.metadata.properties().gc_disabled() {
        None => Ok(()),
        Some(value) => Err(Error::GcDisabled {
            operation: "delete orphan files",
            table: table.name.clone(),
            value: value.to_string(),
        }),
    }
}

/// The roots that a search of the whole table leaves out because they lie elsewhere.
fn unscanned_roots(metadata: &TableMetadata, scope: &Scope, rules: &PathRules) -> Vec<String> {
    if !scope.whole_table {
        return vec![];
    }
    let inside = scope.as_roots(rules);
    let roots = metadata.roots(rules.clone());
    let elsewhere = roots.iter().filter(|root| {
        !rules.same_place(&root.location, &scope.folder) && !inside.contains(&root.location.to_string())
    });
    elsewhere.map(|root| format!("{} ({})", root.location, root.named_by)).collect()
}
