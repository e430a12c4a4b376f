//! Runs that left something to do: they died, some deletes failed, or the time to delete had not come.
//!
//! Nothing that such a run once found out is trusted. Each of its files is looked up in everything that the newest metadata
//! needs, as a removal of orphans would do it, and goes through the same checks before its delete as any other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::execution::TaskContext;
use serde::Deserialize;

use super::{
    Claim, Claimed, HeldClaim, Journal, JournaledRun, NotedStatus, OpenRun, RunId, RunRecord, Stage, Writer,
    refuse_other_clock,
};
use crate::catalog::{LoadedTable, Ownership, TableHandle};
use crate::deletion::{
    DeletionOptions, DeletionPlan, Limits, NewestMetadata, check_limits, delete_files, is_newer, remove_claim,
    remove_journal,
};
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::progress::{RunStage, stage};
use crate::report::{FileOutcome, FileStatus, Operation, SkipReason, as_quarantined};
use crate::storage::{Store, Stores, files_gone};
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
    /// The store's clock may differ from ours.
    pub ignore_clock: bool,
    /// No catalog names newer metadata elsewhere.
    pub no_catalog: bool,
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
    which: Which,
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
    /// Somebody claimed its files before.
    was_claimed: bool,
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
        let mut found = Self { which: which.clone(), ..Self::default() };
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
    pub(crate) async fn on_the_way(
        table: &LoadedTable,
        handle: &TableHandle,
        no_catalog: bool,
        context: &RunContext,
    ) -> Result<Self> {
        let options = context.options();
        if !options.has_journal()? || table.metadata.properties().gc_disabled().is_some() {
            return Ok(Self::default());
        }
        let which = Which { no_catalog, ..Which::on_the_way(options.resume_after_ms()?) };
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

    /// Spares the files of a run that are no orphans any more. What the run has moved already is none, and is its own.
    ///
    /// # Errors
    /// When the store can't be asked which files are there.
    pub(crate) async fn spare_all_but(&mut self, run: &RunId, orphans: &HashSet<String>) -> Result<()> {
        for unfinished in self.runs.iter_mut().filter(|unfinished| unfinished.open.run == *run) {
            let mut allowed = orphans.clone();
            if unfinished.is_quarantine {
                let stores = Stores::new(unfinished.task.runtime_env());
                let files = unfinished.deletion.files().iter().map(|file| file.path.clone());
                let others = files.filter(|file| !orphans.contains(file)).collect::<Vec<_>>();
                allowed.extend(files_gone(&others, &stores).await?);
            }
            unfinished.deletion.spare_all_but(&allowed, SkipReason::LiveAgain);
        }
        Ok(())
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
        // What became of files that other runs left, too.
        let mut settled: HashMap<String, FileOutcome> = HashMap::new();
        if let Some((journal, old)) = self.old {
            remove_journal(&journal, &old).await;
        }
        for mut run in self.runs {
            let name = run.open.run.clone();
            run.refuse_unknown_owner(self.which.no_catalog)?;
            let mut claim = match run.claim(&self.which, context).await? {
                None => None,
                Some(Claimed::Held(claim)) => Some(claim),
                Some(Claimed::ByAnother(who)) => {
                    finished.notices.push(format!("run {name} is left alone: {who}"));
                    continue;
                }
            };
            if let Err(error) = run.refuse_wrong_clock(claim.as_ref(), &self.which).await {
                HeldClaim::release_any(claim).await;
                if !self.which.on_the_way {
                    return Err(error);
                }
                finished.notices.push(format!("run {name} is left alone: {error}"));
                continue;
            }
            if let Some(held) = &claim {
                match held.promised_by_others(&run.newest.seen().name, context.maintenance.now_ms()).await {
                    Ok(promised) => run.deletion.spare(&promised, SkipReason::AwaitsPurge),
                    Err(error) => {
                        HeldClaim::release_any(claim).await;
                        return Err(error);
                    }
                }
            }
            finished.notices.push(format!("run {name} left {}", run.describe()));
            let UnfinishedRun {
                mut open,
                deletion,
                mut newest,
                task,
                awaits_commit,
                is_late,
                is_quarantine,
                was_claimed,
                ..
            } = run;
            let moves = is_quarantine.then(|| Arc::new(open.quarantine()));
            let options = DeletionOptions { moves, ..DeletionOptions::of(operation, context) };
            let stores = Stores::new(task.runtime_env());
            let delete = delete_files(deletion, &stores, &mut newest, &options);
            let files = stage(&context.task, RunStage::Deleting, delete).await;
            if files.is_err() {
                // A run that was cancelled has come to its end, too.
                HeldClaim::release_any(claim.take()).await;
            }
            let files = files?;
            let noted = match (awaits_commit, is_late) {
                // A commit that is on its way would find its run closed, and nobody would finish it.
                (true, false) => Ok(()),
                (true, true) => open.close(Stage::NotCommitted, operation).await,
                (false, _) => {
                    settled.extend(files.iter().map(|file| (file.path.clone(), file.clone())));
                    let shared = open.files().filter_map(|file| settled.get(file)).cloned().collect::<Vec<_>>();
                    open.note(operation, &shared).await
                }
            };
            if let Err(error) = noted {
                finished.notices.push(format!(
                    "what became of run {} could not be noted ({error}): a later call looks at its files again",
                    open.run
                ));
            }
            match claim {
                Some(claim) => claim.release().await,
                // Who claimed it deleted everything, and died before it could say so.
                None if was_claimed && !awaits_commit && !self.which.on_the_way => {
                    remove_claim(open.journal(), &open.run).await;
                }
                None => {}
            }
            finished.files.extend(files);
        }
        Ok(finished)
    }
}

impl UnfinishedRun {
    /// Refuses to delete from a catalog's table that was found by its folder: what its newest metadata needs only the catalog
    /// knows.
    fn refuse_unknown_owner(&self, no_catalog: bool) -> Result<()> {
        let table = self.newest.seen();
        let acts = self.deletion.planned() > 0;
        if !acts || no_catalog || table.ownership == Ownership::Ours {
            return Ok(());
        }
        Err(Error::UnclearOwner {
            table: table.name.clone(),
            why: format!(
                "run {} left files to delete, and the newest metadata here is {}, a name that catalogs give. The catalog may know \
                 newer metadata elsewhere, which needs them. Name the table in its catalog; or give no_catalog => true if really no \
                 catalog owns it. dry_run => true works as it is",
                self.open.run,
                table.metadata.metadata_location()
            ),
        })
    }

    /// Claims the run's files, so that nobody puts snapshots back meanwhile. `None` where nothing is to be deleted.
    async fn claim(&self, which: &Which, context: &RunContext) -> Result<Option<Claimed>> {
        if self.deletion.planned() == 0 {
            return Ok(None);
        }
        let take_over_after_ms = if which.on_the_way { context.options().resume_after_ms()? } else { 0 };
        let (journal, writer) = (self.open.journal(), Writer::new(context));
        journal.claim(&self.open.run, Claim::Purge, take_over_after_ms, &writer).await.map(Some)
    }

    /// Refuses files whose time has come by a clock that is not the store's.
    async fn refuse_wrong_clock(&mut self, claim: Option<&HeldClaim>, which: &Which) -> Result<()> {
        let (Some(claim), true) = (claim, self.was_due_ms.is_some() && !which.not_due && !which.ignore_clock) else {
            return Ok(());
        };
        let depends = "whether the recovery window has passed can't be told. Set the clocks right, or give \
                       ignore_clock_difference => true to purge_deferred_files";
        refuse_other_clock(&self.newest.seen().name, claim.clock_difference_ms().await?, depends)
    }

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
    let is_left = |(place, file): (usize, &FileOutcome)| {
        noted.get(&place).is_none_or(NotedStatus::is_unsettled).then(|| file.clone())
    };
    let reason = |file: FileOutcome| FileOutcome {
        reason: format!("run {} planned it: {}", run.run, file.reason).into(),
        ..file
    };
    // Without its commit all of it is live; nothing is to be said of that.
    let left = record.files.iter().enumerate().filter_map(is_left).filter(|_| !awaits_commit);
    // A file that two runs left is dealt with once.
    let mut files: Vec<_> = left.filter(|file| named.insert(file.path.clone())).map(reason).collect();

    let stores = Stores::new(task.runtime_env());
    let mut newest = NewestMetadata::of(table, handle, task).await?;
    newest.spare_live_files(&mut files).await?;
    // What a run has moved before it died is gone and not missing: the move itself finds that out.
    if !is_quarantine {
        spare_written_again(&mut files, &stores).await?;
    }
    let roots = metadata.roots(PathRules::new(metadata.location()));
    // Whatever the journal says of it: what was permitted to the run was not permitted to whoever finds its journal.
    let mut deletion = DeletionPlan::check(&table.name, files, roots, false, &Limits::default())?;
    if !is_quarantine {
        deletion.preview(&stores).await?;
    }

    let writer = Writer::new(context);
    let is_late = writer.now_ms.saturating_sub(record.header.began_ms) > COMMIT_IS_LATE_MS;
    let open = OpenRun::take_up(journal.clone(), run, &record, noted, writer);
    let task = Arc::clone(task);
    Ok(Some(UnfinishedRun {
        was_claimed: run.claim.is_some(),
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
