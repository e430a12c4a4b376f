//! Runs that left something to do: they died, some deletes failed, or the time to delete had not come.
//!
//! Nothing that such a run once found out is trusted. Each of its files is looked up in everything that the newest metadata
//! needs, as a removal of orphans would do it, and goes through the same checks before its delete as any other.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use serde::Deserialize;

use super::{Claim, Journal, JournaledRun, NotedStatus, OpenRun, RunId, RunRecord, Stage, Writer};
use crate::catalog::{LoadedTable, TableHandle};
use crate::deletion::{
    DeletionOptions, DeletionPlan, Limits, NewestMetadata, check_limits, delete_files, is_newer, remove_journal,
};
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::reachability::FileIdentity;
use crate::report::{FileOutcome, FileStatus, Operation, SkipReason, as_quarantined};
use crate::storage::{Store, Stores};
use crate::table::{Location, PathRules};
use crate::time::{format_duration, format_ms};

/// A commit that did not show for so long does not come any more: its run is closed.
const COMMIT_IS_LATE_MS: i64 = 24 * 60 * 60 * 1000;

/// Which runs of a journal a call deals with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Which {
    /// Only this one.
    pub run: Option<RunId>,
    /// Only those that began this long ago (ms): a younger one may still be running.
    pub min_age_ms: i64,
    /// Only what any run may deal with on its way.
    pub on_the_way: bool,
    /// Those that were cut short or whose deletes failed.
    pub interrupted: bool,
    /// Those whose files' time has come.
    pub due: bool,
    /// Those whose files' time has not come, too.
    pub not_due: bool,
}

impl Which {
    /// What every run that acts deals with on its way.
    pub(crate) fn on_the_way(resume_after_ms: i64) -> Self {
        Self { on_the_way: true, min_age_ms: resume_after_ms, interrupted: true, due: true, ..Default::default() }
    }
}

/// What is left to do of earlier runs: checked, not yet done.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    runs: Vec<UnfinishedRun>,
    /// What there is to say of runs that nothing can be done for now.
    pub notices: Vec<String>,
    /// Runs that are over for long, and their journal.
    old: Option<(Journal, Vec<JournaledRun>)>,
}

#[derive(Debug)]
struct UnfinishedRun {
    open: OpenRun,
    deletion: DeletionPlan,
    newest: NewestMetadata,
    task: Arc<TaskContext>,
    /// Its commit is not to be seen, and may still come.
    awaits_commit: bool,
    /// It is too late for its commit.
    is_late: bool,
    operation: Operation,
    /// Its files are moved, not deleted.
    is_quarantine: bool,
    /// When its files were due, if they had to wait.
    was_due_ms: Option<i64>,
}

/// What was done of earlier runs.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub files: Vec<FileOutcome>,
    pub notices: Vec<String>,
}

#[derive(Deserialize)]
struct SnapshotId {
    #[serde(rename = "snapshot-id")]
    snapshot_id: i64,
}

impl Unfinished {
    /// Looks into the journal of a table. Reads, never writes.
    ///
    /// # Errors
    /// When the journal can't be listed, when the run that was asked for isn't there or can't be read, and when the newest
    /// metadata can't be read. A run that nobody asked for by name and that can't be read is a notice.
    pub(crate) async fn of(
        table: &LoadedTable,
        handle: &TableHandle,
        which: &Which,
        limits: &Limits,
        context: &RunContext,
    ) -> Result<Self> {
        let context = &context.for_table(table);
        let journal = Journal::of(table, &context.task)?;
        let mut found = Self::default();
        let runs = journal.runs().await?;
        if let Some(wanted) = which.run.as_ref().filter(|wanted| runs.iter().all(|run| run.run != **wanted)) {
            return Err(no_such_run(table, wanted));
        }
        let (open, over): (Vec<_>, Vec<_>) = runs.into_iter().partition(JournaledRun::is_open);
        let kept_since_ms = context.maintenance.now_ms().saturating_sub(context.options().journal_retention_ms()?);
        let is_old = |run: &JournaledRun| run.run.began_ms() < kept_since_ms && run.stage() != Some(Stage::Quarantined);
        let old: Vec<_> = over.into_iter().filter(is_old).collect();
        found.old = Some((journal.clone(), old));
        let mut named = HashSet::new();
        for run in open {
            if !found.is_wanted(&run, which, context.maintenance.now_ms()) {
                continue;
            }
            match checked(table, handle, &journal, &run, which, &mut named, context).await {
                Ok(Some(run)) => found.runs.push(run),
                Ok(None) => {}
                // Another run removed what was being read; nothing waits for this one.
                Err(Error::NeededFileUnreadable { .. })
                    if which.on_the_way && !handle.is_current(table, &context.task.runtime_env()).await? =>
                {
                    found.notices.push(format!("run {} is unfinished; the table changed while it was looked at", run.run));
                }
                Err(error) if error.is_about_the_file() && which.run.is_none() => found.notices.push(format!(
                    "run {} is unfinished, and its journal can't be used ({error}): its files are left for remove_orphan_files",
                    run.run
                )),
                Err(error) => return Err(error),
            }
        }
        check_limits(&table.name, found.planned(), limits)?;
        Ok(found)
    }

    /// What any run that may delete deals with on its way: expiries, because an orphan is found again anyway, and only within
    /// the table's own folders. Nothing where the session wants no journal, or the table forbids deletes.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) async fn on_the_way(table: &LoadedTable, handle: &TableHandle, context: &RunContext) -> Result<Self> {
        let options = context.options();
        if !options.has_journal()? || table.metadata.properties().gc_disabled().is_some() {
            return Ok(Self::default());
        }
        let which = Which::on_the_way(options.resume_after_ms()?);
        Self::of(table, handle, &which, &Limits::default(), context).await
    }

    /// How many files would go.
    pub(crate) fn planned(&self) -> usize {
        let files = self.runs.iter().flat_map(|run| run.deletion.files());
        files.filter(|file| file.status == FileStatus::Planned).count()
    }

    /// The runs that removed orphans, and when they began, ms since the epoch.
    pub(crate) fn orphan_runs(&self) -> impl Iterator<Item = (RunId, i64)> {
        let orphans = self.runs.iter().filter(|run| run.operation == Operation::RemoveOrphanFiles);
        orphans.map(|run| (run.open.run.clone(), run.open.run.began_ms()))
    }

    /// Spares the files of a run that are no orphans any more.
    pub(crate) fn spare_all_but(&mut self, run: &RunId, orphans: &HashSet<String>) {
        for unfinished in self.runs.iter_mut().filter(|unfinished| unfinished.open.run == *run) {
            unfinished.deletion.spare_all_but(orphans, SkipReason::LiveAgain);
        }
    }

    fn is_wanted(&mut self, run: &JournaledRun, which: &Which, now_ms: i64) -> bool {
        if which.run.as_ref().is_some_and(|wanted| *wanted != run.run) {
            return false;
        }
        if let Some(until_ms) = run.until_ms() {
            return if until_ms <= now_ms { which.due } else { which.not_due };
        }
        let age_ms = now_ms.saturating_sub(run.run.began_ms());
        if which.interrupted && age_ms < which.min_age_ms {
            self.notices.push(format!(
                "run {} has no end in the journal; it began {} ago and may still be running. If it died, call resume_maintenance",
                run.run,
                format_duration(age_ms.max(0))
            ));
        }
        which.interrupted && age_ms >= which.min_age_ms
    }

    /// The files that would go, and those that would be spared after all.
    pub(crate) fn files(&self) -> Vec<FileOutcome> {
        let files = |run: &UnfinishedRun| match run.is_quarantine {
            true => as_quarantined(run.deletion.files().to_vec()),
            false => run.deletion.files().to_vec(),
        };
        self.runs.iter().flat_map(files).collect()
    }

    /// What a dry run says of them.
    pub(crate) fn preview(&self) -> Finished {
        let files = self.files();
        let said =
            self.runs.iter().map(|run| format!("run {} left {}", run.open.run, run.describe())).collect::<Vec<_>>();
        Finished { files, notices: self.notices.iter().cloned().chain(said).collect() }
    }

    /// Deletes what is left of each run, and notes it.
    ///
    /// # Errors
    /// [`Error::Cancelled`] between two batches.
    pub(crate) async fn finish(self, operation: Operation, context: &RunContext) -> Result<Finished> {
        let mut finished = Finished { files: vec![], notices: self.notices };
        if let Some((journal, old)) = self.old {
            remove_journal(&journal, &old).await;
        }
        for run in self.runs {
            let is_purge = run.was_due_ms.is_some() && !run.awaits_commit;
            if is_purge && !run.open.journal().claim(&run.open.run, Claim::Purge).await? {
                finished.notices.push(format!(
                    "run {}: its snapshots are being put back, so its files stay. If restore_snapshots died, call it again",
                    run.open.run
                ));
                continue;
            }
            finished.notices.push(format!("run {} left {}", run.open.run, run.describe()));
            let UnfinishedRun { mut open, deletion, mut newest, task, awaits_commit, is_late, is_quarantine, .. } = run;
            let options = DeletionOptions {
                concurrency: context.options().max_concurrent_deletes,
                cancellation: context.cancellation.clone(),
                moves: is_quarantine.then(|| Arc::new(open.quarantine())),
                operation,
            };
            let files = delete_files(deletion, &Stores::new(task.runtime_env()), &mut newest, &options).await?;
            let noted = match (awaits_commit, is_late) {
                // A commit that is on its way would find its run closed, and nobody would finish it.
                (true, false) => Ok(()),
                (true, true) => open.close(Stage::NotCommitted, operation).await,
                (false, _) => open.note(operation, &files).await,
            };
            if let Err(error) = noted {
                finished.notices.push(format!(
                    "what became of run {} could not be noted ({error}): a later call looks at its files again",
                    open.run
                ));
            }
            finished.files.extend(files);
        }
        Ok(finished)
    }
}

impl UnfinishedRun {
    fn describe(&self) -> String {
        let count = self.deletion.files().iter().filter(|file| file.status == FileStatus::Planned).count();
        match (self.awaits_commit, self.was_due_ms) {
            (true, _) => "nothing to delete: its commit is not to be seen in the table".into(),
            (false, Some(due)) => format!("{count} files whose recovery window ended at {}", format_ms(due)),
            (false, None) => format!("{count} files to delete"),
        }
    }
}

pub(crate) fn no_such_run(table: &LoadedTable, run: &RunId) -> Error {
    Error::Guard {
        table: table.name.clone(),
        found: format!(
            "its journal has no run {run}. SELECT * FROM maintenance_log('{}') shows the runs that there are",
            table.name
        ),
    }
}

/// Checks what is left of a run against the newest metadata. `None` when nothing can be done for it now.
async fn checked(
    table: &LoadedTable,
    handle: &TableHandle,
    journal: &Journal,
    run: &JournaledRun,
    which: &Which,
    named: &mut HashSet<String>,
    context: &RunContext,
) -> Result<Option<UnfinishedRun>> {
    let (metadata, task) = (&table.metadata, &context.task);
    let record = journal.plan_of(run).await?;
    refuse_other_table(table, &record)?;
    let (_, noted) = journal.outcome_of(run).await?;
    let (was_due_ms, is_quarantine) = (record.header.until_ms, record.header.quarantine);
    let operation = record.header.operation;
    if which.on_the_way && (operation != Operation::ExpireSnapshots || record.header.external_allowed) {
        return Ok(None);
    }
    let awaits_commit = shows_no_commit(metadata, &record);
    let is_left =
        |(place, file): (usize, &FileOutcome)| noted.get(&place).is_none_or(is_unsettled).then(|| file.clone());
    let reason = |file: FileOutcome| FileOutcome {
        reason: format!("run {} planned it: {}", run.run, file.reason).into(),
        ..file
    };
    // Without its commit all of it is live; nothing is to be said of that.
    let left = record.files.iter().enumerate().filter_map(is_left).filter(|_| !awaits_commit);
    // A file that two runs left is dealt with once.
    let mut files: Vec<_> = left.filter(|file| named.insert(file.path.clone())).map(reason).collect();

    let rules = PathRules::new(metadata.location());
    let stores = Stores::new(task.runtime_env());
    let local = stores.store(metadata.location())?.as_local().cloned();
    let identity = FileIdentity::new(rules.clone(), local);
    let newest =
        NewestMetadata::new(handle.clone(), Arc::clone(task), identity, table.clone(), HashSet::new(), HashSet::new());
    let mut newest = newest.with_newer(table.clone()).await?;
    newest.spare_live_files(&mut files).await?;
    spare_written_again(&mut files, &stores).await?;
    let roots = metadata.roots(rules);
    // Whatever the journal says of it: what was permitted to the run was not permitted to whoever finds its journal.
    let mut deletion = DeletionPlan::check(&table.name, files, roots, false, &Limits::default())?;
    deletion.preview(&stores).await?;

    let writer = Writer::new(context);
    let is_late = writer.now_ms.saturating_sub(record.header.began_ms) > COMMIT_IS_LATE_MS;
    let open = OpenRun::take_up(journal.clone(), run, &record, writer);
    let task = Arc::clone(task);
    Ok(Some(UnfinishedRun {
        open,
        deletion,
        newest,
        task,
        awaits_commit,
        is_late,
        operation,
        is_quarantine,
        was_due_ms,
    }))
}

/// Refuses the journal of a table that lived here before, or of a copy.
pub(crate) fn refuse_other_table(table: &LoadedTable, record: &RunRecord) -> Result<()> {
    let (metadata, header) = (&table.metadata, &record.header);
    let same_place = Location::parse(&header.location)
        .is_ok_and(|location| PathRules::new(metadata.location()).same_place(&location, metadata.location()));
    if same_place && header.table_uuid.as_deref() == metadata.table_uuid() {
        return Ok(());
    }
    Err(Error::Malformed {
        what: "a journal of a maintenance run",
        path: format!("run {}", header.run),
        why: format!(
            "it is of another table, {} with uuid {}",
            header.location,
            header.table_uuid.as_deref().unwrap_or("none")
        ),
    })
}

/// True when a snapshot that the run's commit was to remove is still there (or there again).
fn shows_no_commit(metadata: &crate::table::TableMetadata, record: &RunRecord) -> bool {
    let removed = record.removed.iter().filter(|part| part.field == "snapshots");
    removed
        .filter_map(|part| serde_json::from_str::<SnapshotId>(&part.json).ok())
        .any(|removed| metadata.snapshot(removed.snapshot_id).is_some())
}

fn is_unsettled(noted: &NotedStatus) -> bool {
    matches!(noted.status.as_str(), "planned" | "failed" | "deferred")
}

/// Spares files that were written again since the run saw them. Local ones are looked at before their delete.
async fn spare_written_again(files: &mut [FileOutcome], stores: &Stores) -> Result<()> {
    let mut remote: Vec<(usize, Location, i64)> = vec![];
    for (at, file) in files.iter().enumerate().filter(|(_, file)| file.status == FileStatus::Planned) {
        let Some(planned_ms) = file.modified_ms else { continue };
        if let Ok(location) = Location::parse(&file.path)
            && !location.is_local()
        {
            remote.push((at, location, planned_ms));
        }
    }
    let Some((_, first, _)) = remote.first() else { return Ok(()) };
    let store: Store = stores.store(first)?;
    let looks = store.look_at(remote.iter().map(|(_, location, _)| location.path().to_string()).collect()).await?;
    for ((at, _, planned_ms), look) in remote.into_iter().zip(looks) {
        files[at].status = match look {
            None => FileStatus::Missing,
            Some(stat) if stat.modified_ms.is_none_or(|now| is_newer(now, planned_ms)) => {
                FileStatus::Spared(SkipReason::TooYoung)
            }
            Some(_) => FileStatus::Planned,
        };
    }
    Ok(())
}
