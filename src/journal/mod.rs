//! What maintenance is going to do to a table and what became of it, written beside the table.
//!
//! A run writes its plan before its commit, and its outcome after its deletes. A run that died in between leaves a plan without
//! an outcome: [`unfinished`] finds it and deals with the remainder, each file checked again against the newest metadata. The
//! same goes for files whose deletion was put off.
//!
//! The journal decides nothing: a journal that somebody removed costs the memory of a run, and files that nobody deletes until
//! `remove_orphan_files` finds them. A journal that was edited is refused by its hash; and whatever it names, only files go
//! that the newest metadata doesn't need, and that lie inside of the table's own roots.

mod claim;
mod frame;
mod names;
mod plan_file;
mod record;
mod unfinished;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::TaskContext;

pub(crate) use claim::{Claim, Claimed, HeldClaim, unknown_promise};
pub(crate) use names::{ContentHash, FileName, RunId, Stage};
use names::{FOLDER, QUARANTINE};
pub(crate) use plan_file::PlanFile;
pub(crate) use record::{NotedStatus, OutcomeHeader, RunHeader, RunOutcome, RunRecord, decode_outcome};
pub(crate) use unfinished::{Finished, Unfinished, Which, no_such_run, refuse_other_table};

use crate::catalog::LoadedTable;
use crate::deletion::Moves;
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::report::{FileOutcome, FileStatus, Operation, SkipReason};
use crate::storage::{Store, Stores};
use crate::table::location::split;
use crate::table::{Location, MetadataPart, PathRules};

/// The journal of one table.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    folder: Location,
    store: Store,
}

/// The files that a run has in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournaledRun {
    pub run: RunId,
    /// The plan's file; `None` when it is gone.
    pub plan: Option<FileName>,
    /// The outcomes' files, in their order.
    pub outcomes: Vec<FileName>,
    /// Who deals with its files, once somebody does.
    pub claim: Option<FileName>,
}

impl JournaledRun {
    /// How the run stands; `None` before its first outcome. Two calls may have dealt with it at once: the last word is that
    /// of the one that came to an end.
    pub(crate) fn stage(&self) -> Option<Stage> {
        let stages = self.outcomes.iter().filter_map(|name| match name {
            FileName::Outcome { stage, .. } => Some(*stage),
            FileName::Plan { .. } | FileName::Claim { .. } => None,
        });
        stages.max_by_key(|stage| *stage != Stage::Partial)
    }

    /// True when some of its files may still be there.
    pub(crate) fn is_open(&self) -> bool {
        self.plan.is_some() && matches!(self.stage(), None | Some(Stage::Partial))
    }

    /// Before this its files must stay, ms since the epoch.
    pub(crate) fn until_ms(&self) -> Option<i64> {
        match &self.plan {
            Some(FileName::Plan { until_ms, .. }) => *until_ms,
            _ => None,
        }
    }
}

impl Journal {
    /// The journal of a table: in the folder of its metadata below its own location.
    ///
    /// # Errors
    /// When there is no store for the location.
    pub(crate) fn of(table: &LoadedTable, task: &TaskContext) -> Result<Self> {
        let folder = Self::folder_of(table.metadata.location());
        let store = Stores::new(task.runtime_env()).store(&folder)?;
        Ok(Self { folder, store })
    }

    /// Where the journal of a table in this location lies.
    pub(crate) fn folder_of(location: &Location) -> Location {
        location.child("metadata").child(FOLDER)
    }

    /// The store that the journal lies in.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Where a file of a run's plan is in quarantine. Its name tells a human what it is, the number which place it has.
    pub(crate) fn quarantine_of(&self, run: &RunId, place: usize, file: &str) -> Location {
        const LONGEST_NAME: usize = 200;
        let name = split(file).path.rsplit('/').next().unwrap_or_default();
        let name = if name.len() <= LONGEST_NAME { format!("{place:08}-{name}") } else { format!("{place:08}") };
        self.folder.child(QUARANTINE).child(&run.to_string()).child(&name)
    }

    /// Where a file of the journal lies.
    pub(crate) fn location(&self, name: &FileName) -> Location {
        self.folder.child(&name.to_string())
    }

    /// All runs, the oldest first.
    pub(crate) async fn runs(&self) -> Result<Vec<JournaledRun>> {
        let mut runs: BTreeMap<RunId, JournaledRun> = BTreeMap::new();
        for name in self.store.file_names(&self.folder).await? {
            let Some(name) = FileName::parse(&name) else { continue };
            let run = name.run().clone();
            let known = runs.entry(run.clone()).or_insert_with(|| JournaledRun {
                run,
                plan: None,
                outcomes: vec![],
                claim: None,
            });
            match &name {
                FileName::Plan { .. } => known.plan = Some(name),
                FileName::Outcome { .. } => known.outcomes.push(name),
                FileName::Claim { .. } => known.claim = Some(name),
            }
        }
        let number = |name: &FileName| match name {
            FileName::Outcome { number, .. } => *number,
            FileName::Plan { .. } | FileName::Claim { .. } => 0,
        };
        runs.values_mut().for_each(|run| run.outcomes.sort_by_key(number));
        Ok(runs.into_values().collect())
    }

    /// Reads what a run was going to do.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the file was damaged or edited, and when it is another run's.
    pub(crate) async fn plan_of(&self, run: &JournaledRun) -> Result<RunRecord> {
        let name = run
            .plan
            .as_ref()
            .ok_or_else(|| Error::FileNotFound { path: format!("the plan of run {} in {}", run.run, self.folder) })?;
        let path = self.location(name);
        let record = RunRecord::decode(&path.to_string(), &self.store.read(&path).await?, name.hash())?;
        if record.header.run != run.run || record.header.until_ms != run.until_ms() {
            return Err(renamed(&path));
        }
        Ok(record)
    }

    /// What became of a run's files, by their place in the plan; later outcomes count.
    pub(crate) async fn outcome_of(
        &self,
        run: &JournaledRun,
    ) -> Result<(Option<OutcomeHeader>, HashMap<usize, NotedStatus>)> {
        let (mut last, mut files) = (None, HashMap::new());
        for name in &run.outcomes {
            let path = self.location(name);
            let (header, noted) = decode_outcome(&path.to_string(), &self.store.read(&path).await?, name.hash())?;
            if header.run != run.run || !matches!(name, FileName::Outcome { stage, .. } if *stage == header.stage) {
                return Err(renamed(&path));
            }
            files.extend(noted);
            last = Some(header);
        }
        Ok((last, files))
    }

    /// How far the store's clock is ahead of the system's, ms, by a file that was written at this time by the latter.
    async fn clock_difference_ms(&self, name: &FileName, written_at_ms: i64) -> Result<Option<i64>> {
        let path = self.location(name).path().to_string();
        let look = self.store.look_at(vec![path]).await?;
        let modified_ms = look.into_iter().next().flatten().and_then(|stat| stat.modified_ms);
        Ok(modified_ms.map(|modified_ms| modified_ms.saturating_sub(written_at_ms)))
    }

    async fn write(&self, name: &FileName, content: Bytes) -> Result<()> {
        let location = self.location(name);
        self.store.make_folder(&self.folder).await?;
        let created = match self.store.create(&location, content.clone()).await {
            // The name is random: nobody else writes it.
            Err(error) if error.is_unknown_to_the_store() => {
                self.store.replace(&location, content).await?;
                true
            }
            created => created?,
        };
        match created {
            true => Ok(()),
            false => Err(Error::Storage {
                action: "writing",
                path: location.to_string(),
                source: Arc::new(std::io::Error::from(std::io::ErrorKind::AlreadyExists)),
            }),
        }
    }
}

/// Tells the journal's own files from all others.
#[derive(Debug, Clone)]
pub(crate) struct JournalFiles {
    /// The folder's path as it is compared.
    folder: String,
    rules: PathRules,
}

impl JournalFiles {
    /// Those of the table in this location.
    pub(crate) fn of(location: &Location, rules: &PathRules) -> Self {
        let folder = format!("{}/", rules.path(Journal::folder_of(location).parts()).trim_end_matches('/'));
        Self { folder, rules: rules.clone() }
    }

    /// True for a plan, an outcome or a claim in the journal's folder, and for all that is in quarantine.
    pub(crate) fn contains(&self, file: &str) -> bool {
        let path = self.rules.path(split(file));
        path.strip_prefix(self.folder.as_str()).is_some_and(|name| {
            FileName::parse(name).is_some() || name.strip_prefix(QUARANTINE).is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

/// What a run is going to do, before it is written.
pub(crate) struct PlannedRun<'a> {
    pub operation: Operation,
    pub table: &'a LoadedTable,
    /// The files of the plan; those that are planned or put off are noted.
    pub files: &'a [FileOutcome],
    pub removed: Vec<MetadataPart>,
    pub until_ms: Option<i64>,
    pub external_allowed: bool,
    /// Its files are moved into quarantine instead of being deleted.
    pub quarantine: bool,
}

impl PlannedRun<'_> {
    /// The plan as it is written.
    fn record(self, run: RunId, writer: &Writer) -> RunRecord {
        let metadata = &self.table.metadata;
        let is_noted =
            |file: &&FileOutcome| matches!(file.status, FileStatus::Planned | FileStatus::Spared(SkipReason::Deferred));
        let noted = self.files.iter().filter(is_noted).cloned();
        let files: Vec<_> = noted.map(|file| FileOutcome { status: FileStatus::Planned, ..file }).collect();
        let header = RunHeader {
            format: RunHeader::FORMAT,
            run,
            operation: self.operation,
            table: self.table.name.clone(),
            table_uuid: metadata.table_uuid().map(Into::into),
            location: metadata.location().to_text(),
            base_metadata_location: metadata.metadata_location().into(),
            began_ms: writer.now_ms,
            until_ms: self.until_ms,
            external_allowed: self.external_allowed,
            quarantine: self.quarantine,
            run_by: writer.run_by.clone(),
            product_version: env!("CARGO_PKG_VERSION").into(),
        };
        RunRecord { header, files, removed: self.removed }
    }
}

/// A run whose plan is in the journal, and whose outcome is not.
#[derive(Debug)]
pub(crate) struct OpenRun {
    journal: Journal,
    pub run: RunId,
    /// The plan's file.
    plan: Option<FileName>,
    /// The next outcome's number.
    number: u32,
    /// Where each file of the plan stands in it, by its path.
    places: BTreeMap<String, usize>,
    writer: Writer,
    pub until_ms: Option<i64>,
    /// What earlier outcomes say of files, by their place in the plan.
    noted: HashMap<usize, NotedStatus>,
    /// By the system's clock, ms since the epoch.
    written_at_ms: i64,
}

/// Clocks that are further apart than this are wrong.
const MAX_CLOCK_DIFFERENCE_MS: i64 = 15 * 60 * 1000;

/// Refuses to go on where the store's clock is not ours.
///
/// `depends`: what depends on it, as the end of a sentence.
///
/// # Errors
/// [`Error::Guard`].
pub(crate) fn refuse_other_clock(table: &str, difference_ms: Option<i64>, depends: &str) -> Result<()> {
    let Some(difference_ms) = difference_ms.filter(|ms| ms.abs() > MAX_CLOCK_DIFFERENCE_MS) else { return Ok(()) };
    Err(Error::Guard {
        table: table.into(),
        found: format!(
            "the store's clock is {} {} the clock here, so that {depends}",
            crate::time::format_duration(difference_ms.abs()),
            if difference_ms > 0 { "ahead of" } else { "behind" }
        ),
    })
}

/// Who writes, and when.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub now_ms: i64,
    pub run_by: String,
}

impl Writer {
    pub(crate) fn new(context: &RunContext) -> Self {
        Self { now_ms: context.maintenance.now_ms(), run_by: context.options().run_by() }
    }
}

impl OpenRun {
    /// How far the store's clock is ahead of the system's, ms. `None` where the store doesn't say when a file was written.
    pub(crate) async fn clock_difference_ms(&self) -> Result<Option<i64>> {
        match &self.plan {
            Some(plan) => self.journal.clock_difference_ms(plan, self.written_at_ms).await,
            None => Ok(None),
        }
    }

    /// Writes the plan of a run that begins now.
    ///
    /// `None` where the store takes no such file at all, as table buckets do, and nothing rests on the journal: the run goes on
    /// without one, and that is said.
    ///
    /// # Errors
    /// When the plan can't be written for any other reason: then the run must not go on.
    pub(crate) async fn begin(
        planned: PlannedRun<'_>,
        context: &RunContext,
        task: &TaskContext,
    ) -> Result<Option<Self>> {
        let writer = Writer::new(context);
        let journal = Journal::of(planned.table, task)?;
        let (table, until_ms, quarantine) = (planned.table, planned.until_ms, planned.quarantine);
        let run = RunId::new(writer.now_ms);
        let record = planned.record(run.clone(), &writer);
        let places = record.files.iter().enumerate().map(|(at, file)| (file.path.clone(), at)).collect();
        let content = record.encode()?;
        let hash = ContentHash::of(&content);
        let plan = FileName::Plan { run: run.clone(), until_ms, hash };
        let written_at_ms = chrono::Utc::now().timestamp_millis();
        let written = journal.write(&plan, content).await;
        match written {
            // On a disk it is a matter of permissions, which somebody can set right.
            Err(error)
                if error.is_refusal() && until_ms.is_none() && !quarantine && journal.store.as_local().is_none() =>
            {
                let notice = format!("the store takes no journal, so this run can't be resumed or undone: {error}");
                tracing::warn!(table = table.name, "{notice}");
                context.maintenance.notify(&notice);
                return Ok(None);
            }
            written => written.map_err(|error| cannot_be_written(table, &error))?,
        }
        tracing::info!(table = table.name, run = %run, "the plan is in the journal");
        let (plan, noted) = (Some(plan), HashMap::new());
        Ok(Some(Self { journal, run, plan, number: 1, places, writer, until_ms, noted, written_at_ms }))
    }

    /// Where it is noted.
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The run as a listing of the journal shows it before its first outcome.
    pub(crate) fn as_journaled(&self) -> JournaledRun {
        JournaledRun { run: self.run.clone(), plan: self.plan.clone(), outcomes: vec![], claim: None }
    }

    /// Where the run's files go if they are not deleted.
    pub(crate) fn quarantine(&self) -> Moves {
        let place =
            |(path, place): (&String, &usize)| (path.clone(), self.journal.quarantine_of(&self.run, *place, path));
        Moves::new(self.places.iter().map(place).collect(), FileStatus::Quarantined)
    }

    /// Takes up a run that another call left.
    ///
    /// `noted`: what its outcomes say so far.
    pub(crate) fn take_up(
        journal: Journal,
        run: &JournaledRun,
        record: &RunRecord,
        noted: HashMap<usize, NotedStatus>,
        writer: Writer,
    ) -> Self {
        let number = run.outcomes.iter().map(|name| match name {
            FileName::Outcome { number, .. } => number.saturating_add(1),
            FileName::Plan { .. } | FileName::Claim { .. } => 1,
        });
        Self {
            journal,
            run: run.run.clone(),
            plan: run.plan.clone(),
            number: number.max().unwrap_or(1),
            places: record.files.iter().enumerate().map(|(at, file)| (file.path.clone(), at)).collect(),
            writer,
            until_ms: record.header.until_ms,
            noted,
            written_at_ms: 0,
        }
    }

    /// Notes what became of the run's files. It is done when none of them is left to be dealt with.
    ///
    /// # Errors
    /// When the outcome can't be written. The run stays open, and a later one looks at its files again.
    pub(crate) async fn note(&mut self, operation: Operation, files: &[FileOutcome]) -> Result<()> {
        let place = |file: &FileOutcome| Some((*self.places.get(&file.path)?, file.status.clone()));
        let now: Vec<_> = files.iter().filter_map(place).collect();
        let is_news = |(place, status): &(usize, FileStatus)| {
            self.noted.get(place).is_none_or(|noted| noted.status != status.as_str())
        };
        let news: Vec<_> = now.into_iter().filter(is_news).collect();
        // Only a run without files has nothing to say and comes to its end.
        if news.is_empty() && (self.number > 1 || !self.places.is_empty()) {
            return Ok(());
        }
        for (place, status) in &news {
            self.noted.insert(*place, NotedStatus { status: status.as_str().into(), error: None });
        }
        let is_left = |place: &usize| self.noted.get(place).is_none_or(NotedStatus::is_unsettled);
        let stage = match self.places.values().any(is_left) {
            true => Stage::Partial,
            false if self.noted.values().any(NotedStatus::is_quarantined) => Stage::Quarantined,
            false => Stage::Done,
        };
        self.note_as(stage, operation, news).await
    }

    /// Notes the end of a run whose files did not have to wait. What could not be noted is returned as something to say.
    pub(crate) async fn note_end(&mut self, operation: Operation, files: &[FileOutcome]) -> Option<String> {
        if self.until_ms.is_some() {
            return None;
        }
        let error = self.note(operation, files).await.err()?;
        Some(format!(
            "what became of run {} could not be noted in the journal ({error}): a later run looks at its files again",
            self.run
        ))
    }

    /// Notes how the run ended without a word on its files.
    pub(crate) async fn close(&mut self, stage: Stage, operation: Operation) -> Result<()> {
        self.note_as(stage, operation, vec![]).await
    }

    pub(crate) async fn note_as(
        &mut self,
        stage: Stage,
        operation: Operation,
        files: Vec<(usize, FileStatus)>,
    ) -> Result<()> {
        let header = OutcomeHeader {
            format: RunHeader::FORMAT,
            run: self.run.clone(),
            stage,
            at_ms: self.writer.now_ms,
            operation,
            run_by: self.writer.run_by.clone(),
            product_version: env!("CARGO_PKG_VERSION").into(),
        };
        let content = RunOutcome { header, files }.encode()?;
        let (run, number, hash) = (self.run.clone(), self.number, ContentHash::of(&content));
        self.journal.write(&FileName::Outcome { run, number, stage, hash }, content).await?;
        self.number = self.number.saturating_add(1);
        Ok(())
    }
}

fn renamed(path: &Location) -> Error {
    Error::Malformed {
        what: "a journal of a maintenance run",
        path: path.to_string(),
        why: "it was renamed: its content is of another run, or of another end".into(),
    }
}

fn cannot_be_written(table: &LoadedTable, error: &Error) -> Error {
    Error::Guard {
        table: table.name.clone(),
        found: format!(
            "the journal of the run can't be written, so nothing was begun: {error}. Make {} writable, or go on without a \
             journal: SET iceberg_maintenance.journal = 'off'",
            Journal::folder_of(table.metadata.location())
        ),
    }
}
