//! What an expiry would do: the snapshots, the new metadata and the files, all read and decided before anything changes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use serde::Serialize;

use super::ExpireSnapshots;
use crate::catalog::{LoadedTable, TableCommit, TableHandle, refs_of};
use crate::deletion::{DeletionPlan, Limits, NewestMetadata};
use crate::error::{Error, Result};
use crate::reachability::{
    FileIdentity, ListedManifests, LiveFiles, LiveFilesBuilder, Liveness, ManifestFile, Reading, for_each_live_entry,
    list_manifests,
};
use crate::report::{FileKind, FileOutcome, FileStatus, Metrics, Operation, Report, SkipReason};
use crate::retention::{RetentionDecision, choose_expired, unused_partition_specs};
use crate::scan::Unreadable;
use crate::storage::{Store, Stores};
use crate::table::{Location, MetadataChange, MetadataLogEntry, PathRules, Snapshot, TableMetadata};

/// A planned expiry. Making one changes nothing; it can be looked at, serialised, committed or thrown away.
#[derive(Debug)]
pub struct ExpirePlan {
    pub(super) table: LoadedTable,
    pub(super) handle: TableHandle,
    pub(super) options: ExpireSnapshots,
    decision: RetentionDecision,
    commit: TableCommit,
    pub(super) deletion: DeletionPlan,
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
    snapshots: &'a [crate::retention::SnapshotDecision],
    refs: &'a [crate::retention::RefDecision],
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

    /// The table as its catalog sees it now.
    pub(crate) async fn load_newest(&self, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        self.handle.load(runtime).await
    }

    /// The report of a dry run of this plan.
    pub fn report(&self) -> Report {
        self.report_of(self.deletion.files().to_vec(), true)
    }

    pub(super) fn report_of(&self, files: Vec<FileOutcome>, dry_run: bool) -> Report {
        finish_report(&self.summary(), files, dry_run)
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            table: self.table.name.clone(),
            metrics: self.metrics.clone(),
            snapshots: self.decision.snapshots.clone(),
            notices: self.notices.clone(),
        }
    }

    /// Takes the plan on to the metadata that is the newest after the commit.
    ///
    /// `committed_location` is where our own commit put the new metadata, if it was ours. Then that metadata is the plan's
    /// base without what expired, and needs no second look; on anything else the first look before a delete finds what is
    /// new.
    pub(super) fn into_deletion(
        self,
        newest: LoadedTable,
        committed_location: Option<&str>,
        task: Arc<TaskContext>,
    ) -> (DeletionPlan, NewestMetadata) {
        let Checked { identity, snapshots, manifests } = self.checked;
        let is_ours = committed_location == Some(newest.metadata.metadata_location());
        let seen = if is_ours { newest } else { self.table };
        (self.deletion, NewestMetadata::new(self.handle, task, identity, seen, snapshots, manifests))
    }
}

/// The parts of a report that are known before the deletes.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    table: String,
    metrics: Metrics,
    snapshots: Vec<crate::retention::SnapshotDecision>,
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
        notices: summary.notices.clone(),
    }
}

/// Plans an expiry on the newest metadata. Reads, never writes.
pub(super) async fn plan(
    handle: TableHandle,
    options: &ExpireSnapshots,
    now_ms: i64,
    task: &Arc<TaskContext>,
) -> Result<ExpirePlan> {
    let runtime = task.runtime_env();
    let table = handle.load(&runtime).await?;
    let metadata = table.metadata.clone();
    refuse_without_gc(&table)?;

    let decision = choose_expired(&metadata, &options.policy, now_ms)?;
    let expired = decision.expired_ids();
    let (gone, staying): (Vec<&Snapshot>, Vec<&Snapshot>) =
        metadata.snapshots().iter().partition(|snapshot| expired.contains(&snapshot.snapshot_id));
    let mut notices = table.notices.clone();
    notices.push(options.policy.describe(&metadata, now_ms));

    let store = Stores::new(runtime).store(metadata.location())?;
    let rules = PathRules::new(metadata.location());
    let identity = FileIdentity::new(rules.clone(), store.as_local().cloned());

    let needs_specs = options.policy.clean_expired_metadata && metadata.partition_spec_ids().count() > 1;
    let retained = match !gone.is_empty() || needs_specs {
        true => list_manifests(&staying, Reading::Strict, task).await?,
        false => ListedManifests::default(),
    };
    let change = change_for(&metadata, &decision, &retained, needs_specs);
    let changed = change.apply(&metadata, now_ms)?;

    let mut search = Search { metadata: &metadata, identity: &identity, task, metrics: Metrics::default() };
    let dropped: &[MetadataLogEntry] =
        if metadata.properties().delete_metadata_after_commit() { &changed.dropped_log_entries } else { &[] };
    let mut files = if change.is_empty() {
        vec![]
    } else {
        search.dead_files(&gone, &staying, &retained, dropped, &mut notices).await?
    };
    note_missing(&store, &mut files).await?;

    let mut metrics = search.metrics;
    metrics.deleted_snapshots_count = gone.len() as u64;
    metrics.retained_snapshots_count = staying.len() as u64;
    metrics.removed_refs_count = change.removed_refs.len() as u64;
    metrics.removed_schemas_count = change.removed_schema_ids.len() as u64;
    metrics.removed_partition_specs_count = change.removed_partition_spec_ids.len() as u64;

    let commit = TableCommit {
        table_uuid: metadata.table_uuid().map(str::to_string),
        expected_refs: refs_of(&metadata),
        base_metadata_location: metadata.metadata_location().to_string(),
        change,
        new_metadata: changed.json,
    };
    let limits = Limits { max_delete_count: options.max_delete_count, ..Default::default() };
    let deletion =
        DeletionPlan::check(&table.name, files, metadata.roots(rules), options.delete_external_files, &limits)?;
    let checked = Checked {
        identity,
        snapshots: staying.iter().map(|snapshot| snapshot.snapshot_id).collect(),
        manifests: retained.manifests.into_iter().map(|manifest| manifest.reference.location).collect(),
    };
    let options = options.clone();
    Ok(ExpirePlan { table, handle, options, decision, commit, deletion, checked, metrics, notices })
}

fn refuse_without_gc(table: &LoadedTable) -> Result<()> {
    match table.metadata.properties().gc_disabled() {
        None => Ok(()),
        Some(value) => Err(Error::GcDisabled {
            operation: "expire snapshots",
            table: table.name.clone(),
            value: value.to_string(),
        }),
    }
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
    }
}

/// Finds the files that only expired snapshots name.
struct Search<'a> {
    metadata: &'a TableMetadata,
    identity: &'a FileIdentity,
    task: &'a Arc<TaskContext>,
    metrics: Metrics,
}

impl Search<'_> {
    /// Content files first, then manifests, lists, statistics and metadata files: the order in which they are deleted, so
    /// that a run that is cut short leaves what still describes the files.
    async fn dead_files(
        &mut self,
        gone: &[&Snapshot],
        staying: &[&Snapshot],
        retained: &ListedManifests,
        dropped: &[MetadataLogEntry],
        notices: &mut Vec<String>,
    ) -> Result<Vec<FileOutcome>> {
        let listed = list_manifests(gone, Reading::Lenient, self.task).await?;
        self.note_skipped("manifest list", &listed.skipped, notices);
        let mut named = self.named_by_what_stays(staying, retained, dropped)?;

        let dead_manifests: Vec<ManifestFile> = listed
            .manifests
            .into_iter()
            .filter(|manifest| named.probe(&manifest.reference.location) == Liveness::Dead)
            .collect();
        let mut files = self.dead_content(&dead_manifests, retained, notices).await?;
        files.extend(dead_manifests.iter().map(|manifest| {
            let bytes = manifest.reference.length.and_then(|length| u64::try_from(length).ok());
            expired_file(&manifest.reference.location, FileKind::Manifest, bytes, Some(manifest.snapshot_id))
        }));
        let mut known: HashSet<String> = files.iter().map(|file| file.path.clone()).collect();
        let mut add = |file: FileOutcome, named: &mut LiveFiles| {
            if named.probe(&file.path) == Liveness::Dead && known.insert(file.path.clone()) {
                files.push(file);
            }
        };
        for snapshot in gone {
            if let Some(list) = &snapshot.manifest_list {
                let bytes = listed.list_sizes.get(list).copied();
                add(expired_file(list, FileKind::ManifestList, bytes, Some(snapshot.snapshot_id)), &mut named);
            }
        }
        let expired: HashSet<i64> = gone.iter().map(|snapshot| snapshot.snapshot_id).collect();
        let statistics = self.metadata.statistics().iter().map(|file| (file, FileKind::Statistics));
        let partition = self.metadata.partition_statistics().iter().map(|file| (file, FileKind::PartitionStatistics));
        for (file, kind) in statistics.chain(partition).filter(|(file, _)| expired.contains(&file.snapshot_id)) {
            let bytes = file.file_size_in_bytes.and_then(|bytes| u64::try_from(bytes).ok());
            add(expired_file(&file.statistics_path, kind, bytes, Some(file.snapshot_id)), &mut named);
        }
        for entry in dropped {
            let reason = "fell out of the metadata log, and write.metadata.delete-after-commit.enabled is set";
            let file = FileOutcome {
                reason: reason.into(),
                ..expired_file(&entry.metadata_file, FileKind::Metadata, None, None)
            };
            add(file, &mut named);
        }
        Ok(files)
    }

    /// Live entries of manifests that only expired snapshots list, minus the live entries of every retained snapshot.
    async fn dead_content(
        &mut self,
        dead_manifests: &[ManifestFile],
        retained: &ListedManifests,
        notices: &mut Vec<String>,
    ) -> Result<Vec<FileOutcome>> {
        let mut candidates: Vec<FileOutcome> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let skipped = for_each_live_entry(dead_manifests, Reading::Lenient, self.task, |entry| {
            if !known.contains_key(entry.path) {
                known.insert(entry.path.to_string(), candidates.len());
                let snapshot = dead_manifests.get(entry.manifest).map(|manifest| manifest.snapshot_id);
                candidates.push(expired_file(entry.path, entry.kind, entry.bytes, snapshot));
            }
            Ok(())
        })
        .await?;
        self.note_skipped("manifest", &skipped, notices);
        self.metrics.processed_manifests_count += (dead_manifests.len() - skipped.len()) as u64;
        drop(known);
        if candidates.is_empty() {
            return Ok(candidates);
        }
        let mut live = LiveFilesBuilder::new(self.identity.clone(), self.task.memory_pool());
        for_each_live_entry(&retained.manifests, Reading::Strict, self.task, |entry| live.insert(entry.path, false))
            .await?;
        let mut live = live.build();
        self.metrics.processed_manifests_count += retained.manifests.len() as u64;
        self.metrics.active_files_count = live.len() as u64;
        candidates.retain_mut(|file| match live.probe(&file.path) {
            Liveness::Live => false,
            Liveness::Dead => true,
            Liveness::OtherPrefix(_) => {
                file.status = FileStatus::Spared(SkipReason::PrefixMismatch);
                true
            }
        });
        Ok(candidates)
    }

    /// Everything but content files that the table names after the commit.
    fn named_by_what_stays(
        &self,
        staying: &[&Snapshot],
        retained: &ListedManifests,
        dropped: &[MetadataLogEntry],
    ) -> Result<LiveFiles> {
        let mut named = LiveFilesBuilder::new(self.identity.clone(), self.task.memory_pool());
        let ids: HashSet<i64> = staying.iter().map(|snapshot| snapshot.snapshot_id).collect();
        for snapshot in staying {
            for file in snapshot.manifest_list.iter().chain(snapshot.manifests.iter().flatten()) {
                named.insert(file, false)?;
            }
        }
        for manifest in &retained.manifests {
            named.insert(&manifest.reference.location, false)?;
        }
        let expired: HashSet<i64> =
            self.metadata.snapshots().iter().map(|s| s.snapshot_id).filter(|id| !ids.contains(id)).collect();
        let statistics = self.metadata.statistics().iter().chain(self.metadata.partition_statistics());
        for file in statistics.filter(|file| !expired.contains(&file.snapshot_id)) {
            named.insert(&file.statistics_path, false)?;
        }
        let dropped: HashSet<&str> = dropped.iter().map(|entry| entry.metadata_file.as_str()).collect();
        let log = self.metadata.metadata_log().iter().map(|entry| entry.metadata_file.as_str());
        for file in log.filter(|file| !dropped.contains(file)).chain([self.metadata.metadata_location()]) {
            named.insert(file, false)?;
        }
        Ok(named.build())
    }

    fn note_skipped(&mut self, what: &str, skipped: &[Unreadable], notices: &mut Vec<String>) {
        self.metrics.skipped_missing_metadata_count += skipped.len() as u64;
        notices.extend(skipped.iter().map(|file| {
            format!(
                "{what} {} of expired snapshots could not be read ({}): what only it names is left for remove_orphan_files",
                file.location, file.why
            )
        }));
    }
}

fn expired_file(path: &str, kind: FileKind, bytes: Option<u64>, snapshot_id: Option<i64>) -> FileOutcome {
    FileOutcome {
        path: path.to_string(),
        kind,
        bytes,
        modified_ms: None,
        snapshot_id,
        reason: "only expired snapshots have it".to_string(),
        status: FileStatus::Planned,
    }
}

/// On a local disk a look costs next to nothing: files that are gone already are noted, so that a dry run says the same
/// as the real run, and unknown sizes are filled in.
async fn note_missing(store: &Store, files: &mut [FileOutcome]) -> Result<()> {
    if store.as_local().is_none() {
        return Ok(());
    }
    for file in files.iter_mut().filter(|file| file.status == FileStatus::Planned) {
        let Ok(location) = Location::parse(&file.path) else { continue };
        if !location.is_local() {
            continue;
        }
        match store.size(&location).await? {
            Some(size) => file.bytes = file.bytes.or(Some(size)),
            None => file.status = FileStatus::Missing,
        }
    }
    Ok(())
}
