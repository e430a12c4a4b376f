//! `restore_snapshots`: puts back what a run took out of a table's metadata, as long as all files that it needs are there.
//!
//! The commit is an ordinary one on top of the newest metadata: snapshots, refs, statistics and entries of the snapshot log come
//! back as the journal has them, letter by letter; what was made since then stays. A run whose files are being deleted can't be
//! put back, and one that is being put back isn't deleted: whoever claims it first decides.

mod files;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;

use self::files::MissingFiles;
use super::committing::{PAUSES_BEFORE_LOOKING, refuse_other_tables, refuse_unknown_owner, retries};
use super::unfinished_runs::run_argument;
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::catalog::{CommitOutcome, LoadedTable, TableCommit, TableHandle, refs_of};
use crate::error::{Error, Result};
use crate::journal::{
    Claim, Claimed, Journal, JournaledRun, OpenRun, RunId, RunRecord, Stage, Writer, no_such_run, refuse_other_table,
};
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::progress::{RunStage, stage};
use crate::report::{Operation, Output};
use crate::storage::Stores;
use crate::table::{MetadataChange, MetadataPart, TableMetadata, parts_to_restore, taken_id};

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct RestoreSnapshotsProcedure;

#[derive(Debug, Clone)]
struct RestoreSnapshotsCall {
    table: String,
    run: RunId,
    no_catalog: bool,
    dry_run: bool,
    described: String,
}

/// What goes back, and where it was looked up.
struct RestorePlan {
    handle: TableHandle,
    table: LoadedTable,
    journal: Journal,
    run: JournaledRun,
    record: RunRecord,
    commit: TableCommit,
    /// How many files the snapshots need that nothing else does, all of them there.
    checked_files: usize,
}

/// What became of a restoration.
struct Restored {
    change: MetadataChange,
    checked_files: usize,
    notices: Vec<String>,
}

impl RestoreSnapshotsCall {
    /// Looks up what would go back and whether all its files are there. Reads, never writes.
    ///
    /// # Errors
    /// When there is no such run, when its journal can't be read, and when a file is gone: all are named.
    async fn plan(&self, handle: &TableHandle, context: &RunContext) -> Result<RestorePlan> {
        let table = handle.load(&context.task.runtime_env()).await?;
        let context = &context.for_table(&table);
        let journal = Journal::of(&table, &context.task)?;
        let runs = journal.runs().await?;
        let run = runs.into_iter().find(|run| run.run == self.run).ok_or_else(|| no_such_run(&table, &self.run))?;
        let record = journal.plan_of(&run).await?;
        refuse_other_table(&table, &record)?;
        let metadata = &table.metadata;
        if let Some(taken) = taken_id(&record.removed, metadata) {
            return Err(Error::NotRestorable {
                table: table.name.clone(),
                why: format!(
                    "run {} took {taken} out of the metadata, and by now there is another one of this id: what goes back would \
                     be read with it",
                    self.run
                ),
            });
        }
        let change = MetadataChange { restored: parts_to_restore(&record.removed, metadata), ..Default::default() };
        let new_metadata = change.apply(metadata, context.maintenance.now_ms())?.json;
        let commit = TableCommit {
            table_uuid: metadata.table_uuid().map(str::to_string),
            expected_refs: refs_of(metadata),
            base_metadata_location: metadata.metadata_location().to_string(),
            change,
            new_metadata,
        };
        let checked_files = refuse_missing_files(handle, &table, &commit, &self.run, context).await?;
        Ok(RestorePlan { handle: handle.clone(), table, journal, run, record, commit, checked_files })
    }

    /// Claims the run's files, then checks and commits: what was checked before is looked at again, because they may have gone
    /// until the claim.
    async fn restore(&self, handle: TableHandle, context: &RunContext) -> Result<Restored> {
        let plan = self.plan(&handle, context).await?;
        if plan.commit.change.is_empty() {
            // Whoever put it back may have died before it gave its claim back.
            if plan.run.claim.is_some()
                && let Claimed::Held(claim) =
                    plan.journal.claim(&self.run, Claim::Restore, 0, &Writer::new(context)).await?
            {
                claim.release().await;
            }
            return Ok(plan.as_restored(vec![nothing_to_restore(&self.run)]));
        }
        let stores = Stores::new(context.for_table(&plan.table).task.runtime_env());
        refuse_unknown_owner(&plan.table, self.no_catalog)?;
        refuse_other_tables(&plan.table, &stores).await?;
        let claim = match plan.journal.claim(&self.run, Claim::Restore, 0, &Writer::new(context)).await? {
            Claimed::Held(claim) => claim,
            Claimed::ByAnother(who) => {
                return Err(Error::NotRestorable {
                    table: plan.table.name.clone(),
                    why: format!("the snapshots of run {} can't be put back now: {who}", self.run),
                });
            }
        };
        let outcome = self.restore_claimed(&handle, context).await;
        // A commit that may still arrive must find its files.
        if !matches!(outcome, Err(Error::CommitUnknown { .. })) {
            claim.release().await;
        }
        outcome
    }

    /// Plans again when the commit loses a race.
    async fn restore_claimed(&self, handle: &TableHandle, context: &RunContext) -> Result<Restored> {
        let mut attempt = 0;
        loop {
            let plan = self.plan(handle, context).await?;
            if plan.commit.change.is_empty() {
                return Ok(plan.as_restored(vec![nothing_to_restore(&self.run)]));
            }
            attempt += 1;
            let (name, retries) = (plan.table.name.clone(), retries(&plan.table.metadata));
            let why = match stage(&context.task, RunStage::Committing, plan.commit(context)).await? {
                CommitOutcome::Committed { metadata_location, mut notices } => {
                    let restored = plan.as_restored(vec![]);
                    notices.extend(plan.confirm(&self.run, &metadata_location, context).await?);
                    return Ok(Restored { notices, ..restored });
                }
                CommitOutcome::Unknown(why) => return Err(Error::CommitUnknown { table: name, why }),
                CommitOutcome::Conflict(why) => why,
            };
            if attempt > retries {
                return Err(Error::Conflict { table: name, attempts: attempt, why });
            }
            tracing::info!(table = name, attempt, why, "the restoration was not taken; planning again");
        }
    }
}

impl RestorePlan {
    fn as_restored(&self, mut notices: Vec<String>) -> Restored {
        let refs = |parts: &[MetadataPart]| parts.iter().filter(|part| part.field == "refs").count();
        let lost = refs(&self.record.removed).saturating_sub(refs(&self.commit.change.restored));
        notices
            .extend((lost > 0).then(|| format!("{lost} refs of the run don't go back: their names are taken by now")));
        Restored { change: self.commit.change.clone(), checked_files: self.checked_files, notices }
    }

    /// Commits. A commit whose answer is lost is looked for in the table.
    async fn commit(&self, context: &RunContext) -> Result<CommitOutcome> {
        let runtime = context.for_table(&self.table).task.runtime_env();
        let outcome = self.handle.commit(&self.table, &self.commit, &runtime).await;
        match outcome {
            Ok(CommitOutcome::Unknown(why)) => {
                for pause in PAUSES_BEFORE_LOOKING {
                    tokio::time::sleep(pause).await;
                    let Ok(newest) = self.handle.load(&context.task.runtime_env()).await else { continue };
                    if self.commit.contradicted_by(&newest.metadata).is_none() {
                        let metadata_location = newest.metadata.metadata_location().to_string();
                        return Ok(CommitOutcome::Committed { metadata_location, notices: vec![] });
                    }
                }
                Ok(CommitOutcome::Unknown(why))
            }
            outcome => outcome,
        }
    }

    /// Looks at the table after the commit, and at the files once more. The run is then closed: nobody deletes its files.
    async fn confirm(self, run: &RunId, committed: &str, context: &RunContext) -> Result<Vec<String>> {
        let newest = self.handle.load(&context.task.runtime_env()).await?;
        let changed = self.commit.contradicted_by(&newest.metadata);
        let came_after = newest.metadata.metadata_log().iter().any(|entry| entry.metadata_file == committed);
        if let Some(why) = changed.as_ref().filter(|_| !came_after) {
            return Err(Error::CommitUnknown { table: newest.name, why: format!("the newest metadata {why}") });
        }
        let (_, outcomes) = self.journal.outcome_of(&self.run).await?;
        let (journal, writer) = (self.journal.clone(), Writer::new(context));
        let mut open = OpenRun::take_up(journal, &self.run, &self.record, outcomes, writer);
        let noted = open.close(Stage::Restored, Operation::RestoreSnapshots).await;
        let noted = noted.err().map(|error| format!("the journal could not note that run {run} was put back: {error}"));
        if let Some(why) = changed {
            let again = format!(
                "run {run} was put back in {committed}, but another commit has come since: the newest metadata {why}"
            );
            return Ok(noted.into_iter().chain([again]).collect());
        }
        // Another tool knows no claims: it may have deleted files between the look and the commit.
        let context = &context.for_table(&self.table);
        let missing = missing_files(&self.handle, &self.table, &self.commit, context).await?;
        let gone = missing.told().map(|gone| {
            format!(
                "run {run} was put back, but {gone}: something else deleted them meanwhile. verify_table shows them"
            )
        });
        Ok(noted.into_iter().chain(gone).collect())
    }
}

fn nothing_to_restore(run: &RunId) -> String {
    format!("all that run {run} took out of the metadata is there: nothing to do")
}

/// Refuses to put back snapshots that need a file which is gone. Returns how many files were looked for.
async fn refuse_missing_files(
    handle: &TableHandle,
    table: &LoadedTable,
    commit: &TableCommit,
    run: &RunId,
    context: &RunContext,
) -> Result<usize> {
    let missing = missing_files(handle, table, commit, context).await?;
    match missing.told() {
        None => Ok(missing.looked_for),
        Some(gone) => Err(Error::NotRestorable {
            table: table.name.clone(),
            why: format!(
                "run {run} can't be put back: {gone}. If they are in quarantine, call restore_quarantined_files first"
            ),
        }),
    }
}

/// Looks for the files that the snapshots which go back need.
async fn missing_files(
    handle: &TableHandle,
    table: &LoadedTable,
    commit: &TableCommit,
    context: &RunContext,
) -> Result<MissingFiles> {
    let restored = commit.change.restored.iter().filter(|part| part.field == "snapshots");
    let restored: Vec<i64> = restored.filter_map(MetadataPart::snapshot_id).collect();
    let after = TableMetadata::parse(table.metadata.metadata_location(), commit.new_metadata.as_bytes())?;
    files::look_for(handle, table, &after, &restored, context).await
}

impl MissingFiles {
    /// Which are missing, in words; `None` when none is.
    fn told(&self) -> Option<String> {
        let named: Vec<&str> = self.missing.iter().take(10).map(String::as_str).collect();
        (!named.is_empty()).then(|| {
            format!(
                "{} of the {} files that its snapshots need are gone or unreadable: {}{}",
                self.missing.len(),
                self.looked_for,
                named.join(", "),
                if self.missing.len() > named.len() { ", …" } else { "" }
            )
        })
    }
}

impl Procedure for RestoreSnapshotsProcedure {
    fn name(&self) -> &'static str {
        "restore_snapshots"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let run = run_argument(&arguments)?;
        Ok(Arc::new(RestoreSnapshotsCall {
            table: arguments.table()?,
            run: run.ok_or_else(|| arguments.error("argument run is missing: maintenance_log shows the runs"))?,
            no_catalog: arguments.boolean("no_catalog").unwrap_or(false),
            dry_run: arguments.boolean("dry_run").unwrap_or(false),
            described: arguments.describe(),
        }))
    }
}

#[async_trait]
impl BoundCall for RestoreSnapshotsCall {
    fn schema(&self) -> SchemaRef {
        Output::Metrics.schema(Operation::RestoreSnapshots)
    }

    fn dry_run(&self) -> bool {
        self.dry_run
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(Self { dry_run: true, ..self.clone() })
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let handle = context.resolve(&self.table)?;
        let restored = match self.dry_run {
            true => {
                let plan = self.plan(&handle, &context).await?;
                let is_noop = plan.commit.change.is_empty();
                let notices = is_noop.then(|| nothing_to_restore(&self.run)).into_iter().collect();
                Restored { change: plan.commit.change, checked_files: plan.checked_files, notices }
            }
            false => self.restore(handle, &context).await?,
        };
        let batches = vec![restored.rows(self.schema(), self.dry_run)?];
        Ok(CallOutcome { batches, notices: restored.notices, metrics: None, incomplete: None })
    }
}

impl Restored {
    fn rows(&self, schema: SchemaRef, dry_run: bool) -> Result<RecordBatch> {
        let count = |field: &str| self.change.restored.iter().filter(|part| part.field == field).count();
        let rows = [
            ("restored_snapshots_count", count("snapshots")),
            ("restored_refs_count", count("refs")),
            ("restored_statistics_count", count("statistics") + count("partition-statistics")),
            ("restored_log_entries_count", count("snapshot-log")),
            ("restored_partition_specs_count", count("partition-specs")),
            ("restored_schemas_count", count("schemas")),
            ("checked_files_count", self.checked_files),
            ("dry_run", usize::from(dry_run)),
        ];
        let names = StringArray::from_iter_values(rows.iter().map(|(name, _)| *name));
        let values = Int64Array::from_iter_values(rows.iter().map(|(_, n)| i64::try_from(*n).unwrap_or(i64::MAX)));
        Ok(RecordBatch::try_new(schema, vec![Arc::new(names), Arc::new(values)])?)
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter {
        aliases: &["table_name"],
        ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
    },
    Parameter {
        execute_position: Some(0),
        ..parameter("run", ParameterKind::Text, Some(1), "the run to put back, as maintenance_log names it")
    },
    parameter("dry_run", ParameterKind::Boolean, None, "check and report, change nothing"),
    parameter(
        "no_catalog",
        ParameterKind::Boolean,
        None,
        "the table's metadata files look like a catalog's, but no catalog owns the table",
    ),
];
