//! What an expiry would do: the snapshots, the new metadata and the files, all read and decided before anything changes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::execution::TaskContext;
use futures::FutureExt;
use serde::Serialize;

use super::ExpireSnapshots;
use super::dead_files::{DeadFileSearch, History};
use crate::catalog::{LoadedTable, TableCommit, TableHandle, refs_of};
use crate::deletion::{DeletionPlan, Limits, NewestMetadata, check_limits, remove_journal};
use crate::error::{Error, Result};
use crate::journal::{OpenRun, PlanFile, PlannedRun, Unfinished, Writer, refuse_other_clock};
use crate::maintenance::RunContext;
use crate::procedure::committing::plan_on_newest;
use crate::procedure::recovery::RecoveryWindow;
use crate::procedure::require_gc;
use crate::procedure::shared_location::refuse_shared_location;
use crate::progress::{RunStage, stage};
use crate::reachability::{FileIdentity, ListedManifests, Reading, list_manifests};
use crate::report::{FileKind, FileOutcome, FileStatus, Metrics, Operation, Report, SkipReason, as_quarantined};
use crate::retention::{
    Reason, RefDecision, RetentionDecision, SnapshotDecision, choose_expired, unused_partition_specs,
};
use crate::storage::Stores;
use crate::table::{MetadataChange, MetadataLogEntry, PathRules, RefKind, Snapshot, TableMetadata, removed_parts};

/// A planned expiry. Making one changes nothing; it can be looked at, serialised, committed or thrown away.
#[derive(Debug)]
pub struct ExpirePlan {
    pub(super) table: LoadedTable,
    pub(super) handle: TableHandle,
    /// The session's context with the table's own stores.
    pub(super) task: Arc<TaskContext>,
    pub(super) options: ExpireSnapshots,
    decision: RetentionDecision,
    commit: TableCommit,
    pub(super) deletion: DeletionPlan,
    /// Before this the files stay, ms since the epoch.
    until_ms: Option<i64>,
    /// The plan in the journal, once it is there.
    pub(super) open: Option<OpenRun>,
    checked: Checked,
    metrics: Metrics,
    notices: Vec<String>,
}

/// What the plan was checked against: newer metadata needs only what is not in here.
#[derive(Debug)]
struct Checked {
    identity: FileIdentity,
    snapshots: HashSet<i64>,
    manifests: HashSet<String>,
}

/// The serialised form of a plan.
#[derive(Serialize)]
struct PlanView<'a> {
    table: &'a str,
    base_metadata_location: &'a str,
    snapshots: &'a [SnapshotDecision],
    refs: &'a [RefDecision],
    change: &'a MetadataChange,
    files: &'a [FileOutcome],
    metrics: &'a Metrics,
    notices: &'a [String],
}

impl Serialize for ExpirePlan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PlanView {
            table: &self.table.name,
            base_metadata_location: self.table.metadata.metadata_location(),
            snapshots: &self.decision.snapshots,
            refs: &self.decision.refs,
            change: &self.commit.change,
            files: self.deletion.files(),
            metrics: &self.metrics,
            notices: &self.notices,
        }
        .serialize(serializer)
    }
}

impl ExpirePlan {
    /// The metadata that the plan was made on.
    pub fn metadata(&self) -> &TableMetadata {
        &self.table.metadata
    }

    /// Every snapshot and ref, with the decision and its reason.
    pub fn decision(&self) -> &RetentionDecision {
        &self.decision
    }

    /// The commit that must happen before any file goes: what is asserted, what is removed, the complete new metadata.
    pub fn commit_request(&self) -> &TableCommit {
        &self.commit
    }

    /// Every file that nothing retained names, and whether it will be deleted or spared.
    pub fn files(&self) -> &[FileOutcome] {
        self.deletion.files()
    }

    /// True when there is nothing to commit, and so nothing to delete.
    pub fn is_noop(&self) -> bool {
        self.commit.change.is_empty()
    }

    /// The table that the plan was made on.
    pub(crate) fn table(&self) -> &LoadedTable {
        &self.table
    }

    /// The session's context with the table's own stores.
    pub(in crate::procedure) fn task(&self) -> &Arc<TaskContext> {
        &self.task
    }

    /// The table as its catalog sees it now.
    pub(crate) async fn load_newest(&self) -> Result<LoadedTable> {
        self.handle.load(&self.task.runtime_env()).await
    }

    /// Has the catalog check that the newest metadata, which shows the commit, lost nothing else.
    pub(crate) async fn verify(&self, newest: &LoadedTable) -> Result<()> {
        self.handle.verify(&self.table, &self.commit, newest, &self.task.runtime_env()).await
    }

    /// What earlier runs left to do on this table.
    pub(super) async fn unfinished(&self, context: &RunContext) -> Result<Unfinished> {
        if !self.options.delete_files {
            return Ok(Unfinished::default());
        }
        let unfinished = Unfinished::on_the_way(&self.table, &self.handle, self.options.no_catalog, context).await?;
        if unfinished.planned() > 0 && self.deletion.planned() == 0 {
            let permitted = self.options.shared_location;
            refuse_shared_location(&self.handle, &self.table, None, permitted, &self.task).await?;
        }
        let limits = Limits { max_delete_count: self.options.max_delete_count, ..Default::default() };
        check_limits(&self.table.name, self.deletion.planned() + unfinished.planned(), &limits)?;
        Ok(unfinished)
    }

    /// Writes the plan into the table's journal, unless it is there or the session wants none.
    ///
    /// # Errors
    /// When it can't be written.
    pub(super) async fn write_into_journal(&mut self, context: &RunContext) -> Result<()> {
        if self.open.is_some() || !context.options().has_journal()? {
            return Ok(());
        }
        self.open = OpenRun::begin(self.as_planned()?, context, &self.task).await?;
        let (Some(open), Some(_), false) = (&self.open, self.until_ms, self.options.ignore_clock_difference) else {
            return Ok(());
        };
        let depends =
            "when a recovery window ends can't be told. Set the clocks right, or give ignore_clock_difference => true";
        let refused = refuse_other_clock(&self.table.name, open.clock_difference_ms().await?, depends).err();
        match refused {
            None => Ok(()),
            Some(error) => {
                self.withdraw().await;
                Err(error)
            }
        }
    }

    /// Stores the plan for a later call. Returns where it is.
    ///
    /// # Errors
    /// When there is something of this name, and when it can't be written.
    pub(super) async fn store_at(&self, location: &str, context: &RunContext) -> Result<String> {
        PlanFile::store(self.as_planned()?, &self.options, location, &Writer::new(context), &context.task).await
    }

    fn as_planned(&self) -> Result<PlannedRun<'_>> {
        // A plan that changes nothing takes nothing out, whatever a commit would do to the metadata log.
        let removed = match self.is_noop() {
            true => vec![],
            false => removed_parts(&self.table.metadata, &self.commit.new_metadata)?,
        };
        Ok(PlannedRun {
            operation: Operation::ExpireSnapshots,
            table: &self.table,
            files: self.deletion.files(),
            removed,
            until_ms: self.until_ms,
            external_allowed: self.options.delete_external_files,
            quarantine: self.options.quarantine,
        })
    }

    /// Takes the plan out of the journal again: the commit certainly did not happen.
    pub(super) async fn withdraw(&mut self) {
        if let Some(open) = self.open.take() {
            remove_journal(open.journal(), &[open.as_journaled()]).await;
        }
    }

    /// The report of a dry run of this plan.
    pub fn report(&self) -> Report {
        let files = self.deletion.files().to_vec();
        self.report_of(if self.options.quarantine { as_quarantined(files) } else { files }, true)
    }

    pub(super) fn report_of(&self, files: Vec<FileOutcome>, dry_run: bool) -> Report {
        finish_report(&self.summary(), files, dry_run)
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            table: self.table.name.clone(),
            metrics: self.metrics.clone(),
            snapshots: self.decision.snapshots.clone(),
            refs: self.decision.refs.clone(),
            notices: self.notices.clone(),
        }
    }

    /// True when a table shows this plan's commit.
    pub(super) fn is_shown_by(&self, table: &LoadedTable) -> bool {
        self.commit.contradicted_by(&table.metadata).is_none()
    }

    /// Takes the plan on to the metadata that is the newest after the commit.
    ///
    /// If that is exactly what the plan asked for, it is the plan's base without what expired, and needs no second look but
    /// at the files that it names itself; of anything else what is new in it is read now. Either way later looks start from
    /// what was seen after the commit, and not from the plan's base.
    pub(super) async fn into_deletion(self, newest: LoadedTable) -> Result<(DeletionPlan, NewestMetadata)> {
        let Checked { identity, snapshots, manifests } = self.checked;
        let checked = |seen| NewestMetadata::new(self.handle, self.task, identity, seen, snapshots, manifests);
        let newest = match newest.metadata.has_json(&self.commit.new_metadata) {
            true => checked(newest).with_own_files()?,
            false => checked(self.table).with_newer(newest).await?,
        };
        Ok((self.deletion, newest))
    }
}

/// The parts of a report that are known before the deletes.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    table: String,
    metrics: Metrics,
    snapshots: Vec<SnapshotDecision>,
    refs: Vec<RefDecision>,
    pub(super) notices: Vec<String>,
}

pub(super) fn finish_report(summary: &Summary, files: Vec<FileOutcome>, dry_run: bool) -> Report {
    let mut metrics = summary.metrics.clone();
    metrics.dry_run = dry_run;
    metrics.count_files(&files);
    Report {
        operation: Operation::ExpireSnapshots,
        table: summary.table.clone(),
        metrics,
        files,
        snapshots: summary.snapshots.clone(),
        refs: summary.refs.clone(),
        notices: summary.notices.clone(),
    }
}

/// Plans an expiry on the newest metadata. Reads, never writes.
pub(super) async fn plan(
    handle: TableHandle,
    options: &ExpireSnapshots,
    only: Option<&PlanFile>,
    now_ms: i64,
    task: &Arc<TaskContext>,
) -> Result<ExpirePlan> {
    let plan = |table| plan_on(table, handle.clone(), options, only, now_ms, task).boxed();
    plan_on_newest(&handle, task, plan).await
}

async fn plan_on(
    table: LoadedTable,
    handle: TableHandle,
    options: &ExpireSnapshots,
    only: Option<&PlanFile>,
    now_ms: i64,
    task: &Arc<TaskContext>,
) -> Result<ExpirePlan> {
    let task = &table.task(task);
    let stores = Stores::new(task.runtime_env());
    let metadata = table.metadata.clone();
    // Without deletes nothing is collected: that is what whoever switched it off may ask for.
    if options.delete_files {
        require_gc(&table, "expire snapshots")?;
    }
    let window = RecoveryWindow::of(&metadata, options.deferred_ms, task)?;

    only.map_or(Ok(()), |only| only.refuse_other_table(&table))?;
    let decided_at_ms = only.map_or(now_ms, PlanFile::planned_at_ms);
    let decision = choose_expired(&metadata, &options.policy, decided_at_ms)?;
    let decision = only.map_or(Ok(decision.clone()), |only| only.limit_decision(decision, &table))?;
    refuse_too_young(&decision, options.min_retention_ms, now_ms)?;
    let expired = decision.expired_ids();
    let (gone, staying): (Vec<&Snapshot>, Vec<&Snapshot>) =
        metadata.snapshots().iter().partition(|snapshot| expired.contains(&snapshot.snapshot_id));
    let mut notices = table.notices.clone();
    notices.push(options.policy.describe(&metadata, decided_at_ms));
    notices.extend(kept_for_streaming(&decision));
    notices.extend(decision.refs.iter().filter(|r| r.reason.removes()).map(|gone| {
        let kind = if gone.kind == RefKind::Tag { "tag" } else { "branch" };
        format!("{kind} {} goes: {}", gone.name, gone.reason)
    }));

    let needs_specs = options.policy.clean_expired_metadata && metadata.partition_spec_ids().count() > 1;
    let retained = match !gone.is_empty() || needs_specs {
        true => {
            let list = list_manifests(&staying, Reading::Strict, task);
            stage(task, RunStage::ReadingMetadata, list).await?
        }
        false => ListedManifests::default(),
    };
    let mut change = change_for(&metadata, &decision, &retained, needs_specs);
    if let Some(only) = only {
        only.limit_change(&mut change);
    }
    let changed = change.apply(&metadata, now_ms)?;
    only.map_or(Ok(()), |only| only.refuse_other_parts(&table, &metadata, &changed.json))?;

    let rules = PathRules::new(metadata.location());
    let local = stores.store(metadata.location())?.as_local().cloned();
    let identity = FileIdentity::new(rules.clone(), local);
    let roots = metadata.roots(rules);
    let dropped: &[MetadataLogEntry] =
        if metadata.properties().delete_metadata_after_commit() { &changed.dropped_log_entries } else { &[] };
    let history = History { metadata: &metadata, gone: &gone, staying: &staying, dropped };
    let mut search = DeadFileSearch::new(history, &retained, &identity, &roots, task);
    let mut files = match change.is_empty() {
        true => vec![],
        false => stage(task, RunStage::ReadingMetadata, search.run()).await?,
    };
    notices.append(&mut search.notices);
    notices.extend(only.and_then(|only| only.limit_files(&mut files)));
    if !options.delete_files {
        notices.extend(leave_behind(&mut files));
    }

    let mut metrics = search.metrics;
    metrics.deleted_snapshots_count = gone.len() as u64;
    metrics.retained_snapshots_count = staying.len() as u64;
    metrics.removed_refs_count = change.removed_refs.len() as u64;
    metrics.removed_schemas_count = change.removed_schema_ids.len() as u64;
    metrics.removed_partition_specs_count = change.removed_partition_spec_ids.len() as u64;

    let limits = Limits { max_delete_count: options.max_delete_count, ..Default::default() };
    refuse_large_share(&table.name, &files, metrics.active_files_count, options.max_delete_fraction)?;
    let mut deletion = DeletionPlan::check(&table.name, files, roots, options.delete_external_files, &limits)?;
    deletion.preview(&stores).await?;
    if deletion.planned() > 0 {
        let permitted = options.shared_location;
        notices.extend(refuse_shared_location(&handle, &table, None, permitted, task).await?);
    }
    let until_ms = match options.delete_files && !options.quarantine {
        true => window.defer(&mut deletion, now_ms),
        false => None,
    };
    notices.extend(until_ms.map(RecoveryWindow::notice));
    let commit = TableCommit {
        table_uuid: metadata.table_uuid().map(str::to_string),
        expected_refs: refs_of(&metadata),
        base_metadata_location: metadata.metadata_location().to_string(),
        change,
        new_metadata: changed.json,
    };
    let checked = Checked {
        identity,
        snapshots: staying.iter().map(|snapshot| snapshot.snapshot_id).collect(),
        manifests: retained.manifests.into_iter().map(|manifest| manifest.reference.location).collect(),
    };
    let (options, task) = (options.clone(), Arc::clone(task));
    Ok(ExpirePlan {
        table,
        handle,
        task,
        options,
        decision,
        commit,
        deletion,
        until_ms,
        open: None,
        checked,
        metrics,
        notices,
    })
}

/// The share of content files that go. Those that stay were counted only if there was one that may go.
fn refuse_large_share(table: &str, files: &[FileOutcome], active: u64, limit: Option<f64>) -> Result<()> {
    let is_content = |file: &&FileOutcome| {
        let kinds = [FileKind::Data, FileKind::PositionDeletes, FileKind::EqualityDeletes, FileKind::DeletionVector];
        file.status == FileStatus::Planned && kinds.contains(&file.kind)
    };
    let going = files.iter().filter(is_content).count();
    let considered = active.saturating_add(going as u64);
    check_limits(table, going, &Limits { max_delete_fraction: limit, considered, ..Default::default() })
}

/// Marks all files as such that stay, and says so.
fn leave_behind(files: &mut [FileOutcome]) -> Option<String> {
    let mut count = 0_usize;
    for file in files.iter_mut().filter(|file| file.status == FileStatus::Planned) {
        file.status = FileStatus::Spared(SkipReason::LeftBehind);
        count += 1;
    }
    (count > 0).then(|| {
        format!(
            "delete_files => false: only the metadata changes. {count} files that only expired snapshots need stay behind; \
             remove_orphan_files deletes them later"
        )
    })
}

/// Says which snapshots stay for no other reason than a streaming job.
fn kept_for_streaming(decision: &RetentionDecision) -> Option<String> {
    let jobs = decision.snapshots.iter().filter_map(|snapshot| match &snapshot.reason {
        Reason::StreamingCheckpoint { job } | Reason::AfterStreamingCheckpoint { job } => Some(job.as_str()),
        _ => None,
    });
    let (count, jobs) = (jobs.clone().count(), jobs.collect::<BTreeSet<_>>());
    (count > 0).then(|| {
        format!(
            "{count} snapshots stay so that streaming jobs find their last checkpoint ({}); ignore_streaming_checkpoints => true \
             lets them go",
            jobs.into_iter().collect::<Vec<_>>().join(", ")
        )
    })
}

/// The session's floor holds for every snapshot, whichever rule lets it go.
fn refuse_too_young(decision: &RetentionDecision, min_retention_ms: i64, now_ms: i64) -> Result<()> {
    let age = |decision: &SnapshotDecision| now_ms.saturating_sub(decision.timestamp_ms);
    let young = decision.snapshots.iter().find(|s| s.reason.expires() && age(s) < min_retention_ms);
    let Some(young) = young.filter(|_| min_retention_ms > 0) else { return Ok(()) };
    Err(Error::argument(
        "expire_snapshots",
        format!(
            "Retention specified ({}) is shorter than the minimum retention configured in the system ({}): snapshot {} would \
             expire ({}). Session option iceberg_maintenance.expire_snapshots_min_retention",
            crate::time::format_duration(age(young).max(0)),
            crate::time::format_duration(min_retention_ms),
            young.snapshot_id,
            young.reason
        ),
    ))
}

fn change_for(
    metadata: &TableMetadata,
    decision: &RetentionDecision,
    retained: &ListedManifests,
    needs_specs: bool,
) -> MetadataChange {
    // A manifest whose spec is unknown may use any of them.
    let used: Option<HashSet<i32>> = retained.manifests.iter().map(|manifest| manifest.partition_spec_id).collect();
    let unused = used.filter(|_| needs_specs).map(|used| unused_partition_specs(metadata, &used)).unwrap_or_default();
    MetadataChange {
        removed_snapshot_ids: decision.expired_ids().into_iter().collect(),
        removed_refs: decision.removed_refs().map(str::to_string).collect(),
        removed_partition_spec_ids: unused.into_iter().collect(),
        removed_schema_ids: decision.unused_schema_ids.iter().copied().collect::<BTreeSet<_>>(),
        restored: vec![],
    }
}
