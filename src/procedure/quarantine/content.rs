//! What is in quarantine, and what is done with it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::QuarantineCall;
use crate::catalog::{LoadedTable, TableHandle};
use crate::deletion::{DeletionOptions, DeletionPlan, Moves, NewestMetadata, delete_files};
use crate::error::{Error, Result};
use crate::journal::{Journal, JournaledRun, OpenRun, Stage, Writer, no_such_run, refuse_other_table};
use crate::maintenance::RunContext;
use crate::progress::{RunStage, stage};
use crate::report::{FileOutcome, FileStatus, Operation, SkipReason};
use crate::storage::Stores;
use crate::table::{Location, PathRules};

/// Where files in quarantine go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To where they were.
    Back,
    /// They are deleted.
    Away,
}

/// The files of a run that are in quarantine: checked, not yet touched.
pub(super) struct QuarantinedRun {
    open: OpenRun,
    /// By where they are in quarantine.
    deletion: DeletionPlan,
    newest: NewestMetadata,
    /// By the same, where they were, and their place in the run's plan.
    origins: HashMap<String, (String, usize)>,
    task: Arc<TaskContext>,
}

/// Looks up what a call is about.
///
/// # Errors
/// When the run that the call names isn't there or has nothing in quarantine, and when a journal can't be read.
pub(super) async fn quarantined(
    table: &LoadedTable,
    handle: &TableHandle,
    call: &QuarantineCall,
    context: &RunContext,
) -> Result<Vec<QuarantinedRun>> {
    let context = &context.for_table(table);
    let journal = Journal::of(table, &context.task)?;
    let runs = journal.runs().await?;
    if let Some(wanted) = &call.run {
        let run = runs.iter().find(|run| run.run == *wanted).ok_or_else(|| no_such_run(table, wanted))?;
        if run.stage() != Some(Stage::Quarantined) {
            return Err(Error::Guard {
                table: table.name.clone(),
                found: format!("run {wanted} has nothing in quarantine"),
            });
        }
    }
    let mut found = vec![];
    for run in runs.iter().filter(|run| run.stage() == Some(Stage::Quarantined)) {
        let is_wanted = call.run.as_ref().is_none_or(|wanted| run.run == *wanted);
        let is_old = call.older_than_ms.is_none_or(|older_than_ms| run.run.began_ms() < older_than_ms);
        if is_wanted && is_old {
            found.push(checked(table, handle, &journal, run, call, context).await?);
        }
    }
    Ok(found)
}

async fn checked(
    table: &LoadedTable,
    handle: &TableHandle,
    journal: &Journal,
    run: &JournaledRun,
    call: &QuarantineCall,
    context: &RunContext,
) -> Result<QuarantinedRun> {
    let (metadata, task) = (&table.metadata, &context.task);
    let record = journal.plan_of(run).await?;
    refuse_other_table(table, &record)?;
    let (_, noted) = journal.outcome_of(run).await?;
    let roots = metadata.roots(PathRules::new(metadata.location()));
    let (mut files, mut origins) = (vec![], HashMap::new());
    for (place, file) in record.files.into_iter().enumerate() {
        if noted.get(&place).is_none_or(|noted| noted.status != "quarantined") {
            continue;
        }
        let path = journal.quarantine_of(&run.run, place, &file.path).to_text();
        origins.insert(path.clone(), (file.path.clone(), place));
        // Its time is that of the file it was; whether it is the same file is a question of its place.
        files.push(FileOutcome { path, modified_ms: None, status: FileStatus::Planned, ..file });
    }
    let stores = Stores::new(task.runtime_env());
    let newest = match call.direction {
        Direction::Back => NewestMetadata::unasked(table, handle, task),
        Direction::Away => {
            let mut newest = NewestMetadata::of(table, handle, task).await?;
            newest.spare_live_files(&mut files).await?;
            spare_needed_again(&mut files, &origins, &mut newest)?;
            newest
        }
    };
    // Whatever the journal says: nothing comes to lie where the table has no business.
    if call.direction == Direction::Back {
        let leads_out = |file: &&mut FileOutcome| origins.get(&file.path).is_none_or(|(path, _)| !roots.contains(path));
        for file in files.iter_mut().filter(leads_out) {
            file.status = FileStatus::Failed("it would lie outside of the table's folders".into());
        }
    }
    let mut deletion = DeletionPlan::check(&table.name, files, roots, false, &call.limits)?;
    deletion.preview(&stores).await?;
    let header = record.header;
    let record = crate::journal::RunRecord { header, files: vec![], removed: vec![] };
    let open = OpenRun::take_up(journal.clone(), run, &record, noted, Writer::new(context));
    Ok(QuarantinedRun { open, deletion, newest, origins, task: Arc::clone(task) })
}

/// Spares copies of files that the newest metadata needs again: they may be the only ones.
fn spare_needed_again(
    files: &mut [FileOutcome],
    origins: &HashMap<String, (String, usize)>,
    newest: &mut NewestMetadata,
) -> Result<()> {
    let original = |file: &FileOutcome| origins.get(&file.path).map(|(path, _)| path.clone()).unwrap_or_default();
    let mut originals: Vec<FileOutcome> =
        files.iter().map(|file| FileOutcome { path: original(file), ..file.clone() }).collect();
    newest.spare_named_by_newest(&mut originals)?;
    for (file, original) in files.iter_mut().zip(originals) {
        file.status = original.status;
    }
    Ok(())
}

impl QuarantinedRun {
    /// What would become of the files.
    pub(super) fn preview(&self, direction: Direction) -> Vec<FileOutcome> {
        let mut files = self.deletion.files().to_vec();
        if direction == Direction::Back {
            for file in files.iter_mut().filter(|file| file.status == FileStatus::Planned) {
                file.status = FileStatus::Returned;
            }
        }
        files.into_iter().map(|file| by_origin(&self.origins, file)).collect()
    }

    /// Moves the files back or deletes them, and notes it.
    pub(super) async fn carry_out(
        self,
        direction: Direction,
        operation: Operation,
        context: &RunContext,
    ) -> Result<Vec<FileOutcome>> {
        let Self { mut open, mut deletion, mut newest, origins, task } = self;
        if direction == Direction::Away {
            // What was committed since the plan was made.
            let mut files = deletion.files().to_vec();
            newest.spare_live_files(&mut files).await?;
            spare_needed_again(&mut files, &origins, &mut newest)?;
            let needed = files.into_iter().filter(|file| file.status != FileStatus::Planned).map(|file| file.path);
            deletion.spare(&needed.collect(), SkipReason::LiveAgain);
        }
        let moves = match direction {
            Direction::Away => None,
            Direction::Back => {
                let targets = origins
                    .iter()
                    .filter_map(|(path, (origin, _))| Some((path.clone(), Location::parse(origin).ok()?)));
                Some(Arc::new(Moves::new(targets.collect(), FileStatus::Returned)))
            }
        };
        let options = DeletionOptions { moves, ..DeletionOptions::of(operation, context) };
        let stores = Stores::new(task.runtime_env());
        let delete = delete_files(deletion, &stores, &mut newest, &options);
        let files = stage(&context.task, RunStage::Deleting, delete).await?;
        let place = |file: &FileOutcome| origins.get(&file.path).map(|(_, place)| (*place, file.status.clone()));
        let is_settled = |(_, status): &(usize, FileStatus)| {
            matches!(status, FileStatus::Deleted | FileStatus::Returned | FileStatus::Missing)
        };
        let (settled, left): (Vec<_>, Vec<_>) = files.iter().filter_map(place).partition(is_settled);
        let stage = match direction {
            _ if !left.is_empty() => Stage::Quarantined,
            Direction::Back => Stage::Returned,
            Direction::Away => Stage::Done,
        };
        if !settled.is_empty() {
            open.note_as(stage, operation, settled).await?;
        }
        Ok(files.into_iter().map(|file| by_origin(&origins, file)).collect())
    }
}

/// A file under the name that it had.
fn by_origin(origins: &HashMap<String, (String, usize)>, file: FileOutcome) -> FileOutcome {
    match origins.get(&file.path) {
        Some((origin, _)) => FileOutcome { path: origin.clone(), ..file },
        None => file,
    }
}
