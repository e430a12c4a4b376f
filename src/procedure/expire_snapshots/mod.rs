//! `expire_snapshots`: removes old snapshots, the refs that outlived their age, and the files that only these needed.
//!
//! The order is fixed: everything is read and decided first; the new metadata is committed; the table is looked at again;
//! only then files go. A commit that loses a race starts over with the newest metadata; a commit of which nobody knows
//! whether it happened deletes nothing.

mod call;
mod dead_files;
mod plan;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::TaskContext;
use serde::{Deserialize, Serialize};

pub(crate) use call::ExpireSnapshotsProcedure;
pub(super) use call::{PARAMETERS, options_of};
pub use plan::ExpirePlan;
use plan::{Summary, finish_report};

use super::committing::{PAUSES_BEFORE_LOOKING, refuse_other_tables, refuse_unknown_owner, retries};
use super::outcome::tell_stopped;
use crate::catalog::{CommitOutcome, LoadedTable, TableHandle};
use crate::deletion::{DeletionOptions, DeletionPlan, NewestMetadata, delete_files};
use crate::error::{Error, Result};
use crate::journal::{Claim, Claimed, Finished, HeldClaim, OpenRun, PlanFile, Writer};
use crate::maintenance::RunContext;
use crate::progress::{RunStage, stage};
use crate::report::{Operation, Report, SkipReason};
use crate::retention::RetentionPolicy;
use crate::storage::Stores;

/// Options of an expiry. The default follows the table's own policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExpireSnapshots {
    /// Which snapshots go.
    pub policy: RetentionPolicy,
    /// Delete the files that only expired snapshots need. Without it the expiry is one of metadata only, and counts the files
    /// that it leaves behind.
    pub delete_files: bool,
    /// How long the files stay after the commit, in ms; 0 for not at all. Where this says nothing the table does
    /// (`maintenance.recovery-window`), or the session.
    pub deferred_ms: Option<i64>,
    /// Move the files into quarantine instead of deleting them. They can be returned, and go when they are purged.
    pub quarantine: bool,
    /// Refuse a plan that deletes more files than this.
    pub max_delete_count: Option<u64>,
    /// Refuse a plan that deletes more than this share (0 to 1) of the table's data and delete files.
    pub max_delete_fraction: Option<f64>,
    /// How many deletes run at once; the session's `max_concurrent_deletes` by default.
    pub max_concurrent_deletes: Option<usize>,
    /// Also delete expired files outside the table's own roots. They may belong to somebody else.
    pub delete_external_files: bool,
    /// The table's metadata files bear a catalog's names, but no catalog owns the table.
    pub no_catalog: bool,
    /// Go on although another table of the same catalog uses the location.
    pub shared_location: bool,
    /// Go on with a recovery window although the store's clock and the system's are more than 15 minutes apart.
    pub ignore_clock_difference: bool,
    /// Refuse when a snapshot younger than this (ms) would expire, whichever rule lets it go.
    pub min_retention_ms: i64,
}

impl Default for ExpireSnapshots {
    fn default() -> Self {
        Self {
            policy: RetentionPolicy::default(),
            delete_files: true,
            deferred_ms: None,
            quarantine: false,
            max_delete_count: None,
            max_delete_fraction: None,
            max_concurrent_deletes: None,
            delete_external_files: false,
            no_catalog: false,
            shared_location: false,
            ignore_clock_difference: false,
            min_retention_ms: 0,
        }
    }
}

/// An expiry whose commit is done: what is left is to delete files.
#[derive(Debug)]
pub struct CommittedExpiry {
    summary: Summary,
    options: ExpireSnapshots,
    /// The session's context with the table's own stores.
    task: Arc<TaskContext>,
    deletion: DeletionPlan,
    newest: NewestMetadata,
    /// Where the outcome is noted; `None` without a journal.
    open: Option<OpenRun>,
}

/// Outcome of one attempt to commit a plan.
pub(crate) enum Attempt {
    Committed(Box<CommittedExpiry>),
    /// It certainly did not happen. Plan again.
    Conflict(String),
    /// No answer came, and the table doesn't show it so far. Planning again is safe: a commit that arrives late finds its
    /// snapshots gone, or fails.
    Unsettled(Box<Unsettled>),
}

/// A plan whose commit may still arrive.
pub(crate) struct Unsettled {
    plan: ExpirePlan,
    pub(crate) why: String,
}

/// Plans an expiry, of no more than a stored plan if there is one. Changes nothing.
pub(crate) async fn plan(
    handle: TableHandle,
    options: &ExpireSnapshots,
    only: Option<&PlanFile>,
    now_ms: i64,
    task: &Arc<TaskContext>,
) -> Result<ExpirePlan> {
    plan::plan(handle, options, only, now_ms, task).await
}

/// Finishes what earlier runs left, then plans, commits and deletes; plans again when the commit loses a race. A stored plan
/// is all that is done.
pub(crate) async fn run(
    handle: TableHandle,
    options: &ExpireSnapshots,
    only: Option<&PlanFile>,
    context: &RunContext,
) -> Result<Report> {
    let mut earlier = only.map(|_| Finished::default());
    let mut report = run_after(&mut earlier, handle, options, only, context).await?;
    earlier.into_iter().for_each(|finished| report.absorb(finished));
    Ok(report)
}

/// What a dry run says: the plan, and what earlier runs left.
///
/// `store_at`: where the plan is stored. Then only what is in it is said.
pub(crate) async fn preview(
    handle: TableHandle,
    options: &ExpireSnapshots,
    only: Option<&PlanFile>,
    store_at: Option<&str>,
    context: &RunContext,
) -> Result<Report> {
    let plan = plan(handle, options, only, context.maintenance.now_ms(), &context.task).await?;
    let mut report = plan.report();
    match store_at {
        // What earlier runs left is no part of a stored plan, and so of no review.
        Some(location) => {
            report.notices.push(format!("the plan is stored: {}", plan.store_at(location, context).await?));
        }
        None if only.is_none() => report.absorb(plan.unfinished(context).await?.preview()),
        None => {}
    }
    Ok(report)
}

async fn run_after(
    earlier: &mut Option<Finished>,
    handle: TableHandle,
    options: &ExpireSnapshots,
    only: Option<&PlanFile>,
    context: &RunContext,
) -> Result<Report> {
    let now_ms = context.maintenance.now_ms();
    let (mut attempt, mut unsettled) = (0, None::<Box<Unsettled>>);
    loop {
        let plan = plan(handle.clone(), options, only, now_ms, &context.task).await;
        let plan = plan.map_err(|error| still_unsettled(unsettled.as_deref(), error))?;
        if let Some(before) = unsettled.take_if(|before| before.plan.is_shown_by(&plan.table)) {
            tracing::info!(table = plan.table.name, why = before.why, "a commit without an answer arrived after all");
            return delete(confirm(before.plan, plan.table, context).await?, context).await;
        }
        if earlier.is_none() {
            *earlier = Some(plan.unfinished(context).await?.finish(Operation::ExpireSnapshots, context).await?);
        }
        if plan.is_noop() {
            return Ok(plan.report_of(vec![], false));
        }
        // Later there are snapshots gone whose files nobody deletes; now nothing happened yet.
        if context.cancellation.is_cancelled() {
            return Err(Error::Cancelled { deleted: 0, planned: 0, committed: "nothing was committed" });
        }
        attempt += 1;
        let (table, retries) = (plan.table.name.clone(), retries(plan.metadata()));
        let outcome = commit(plan, context).await.map_err(|error| still_unsettled(unsettled.as_deref(), error))?;
        let why = match outcome {
            Attempt::Committed(committed) => return delete(*committed, context).await,
            Attempt::Conflict(why) => why,
            Attempt::Unsettled(lost) => {
                let why = lost.why.clone();
                unsettled = Some(lost);
                why
            }
        };
        if attempt > retries {
            return Err(match unsettled {
                None => Error::Conflict { table, attempts: attempt, why },
                Some(before) if before.why == why => Error::CommitUnknown { table, why },
                Some(before) => Error::CommitUnknown { table, why: format!("{}; then {why}", before.why) },
            });
        }
        tracing::info!(table, attempt, why, "the commit was not taken; planning again");
        tokio::time::sleep(Duration::from_millis(100 << attempt.min(6))).await;
    }
}

/// An error that comes after a commit of unknown outcome must not read as if nothing had happened.
fn still_unsettled(unsettled: Option<&Unsettled>, error: Error) -> Error {
    match unsettled {
        None => error,
        Some(before) => {
            Error::CommitUnknown { table: before.plan.table.name.clone(), why: format!("{}; then {error}", before.why) }
        }
    }
}

impl CommittedExpiry {
    /// The table after the commit.
    pub(crate) fn table(&self) -> &LoadedTable {
        self.newest.seen()
    }
}

/// Writes a plan into the journal and commits it through the table's own catalog.
pub(crate) async fn commit(plan: ExpirePlan, context: &RunContext) -> Result<Attempt> {
    stage(&context.task, RunStage::Committing, commit_once(plan, context)).await
}

async fn commit_once(mut plan: ExpirePlan, context: &RunContext) -> Result<Attempt> {
    refuse_unknown_owner(&plan.table, plan.options.no_catalog)?;
    let runtime = plan.task.runtime_env();
    refuse_other_tables(&plan.table, &Stores::new(runtime.clone())).await?;
    plan.write_into_journal(context).await?;
    match plan.handle.commit(&plan.table, plan.commit_request(), &runtime).await {
        Err(error @ Error::CommitMismatch { .. }) => Err(error),
        Err(error) => {
            plan.withdraw().await;
            Err(error)
        }
        Ok(CommitOutcome::Conflict(why)) => {
            plan.withdraw().await;
            Ok(Attempt::Conflict(why))
        }
        Ok(CommitOutcome::Unknown(why)) => settle(plan, why, context).await,
        Ok(CommitOutcome::Committed { metadata_location, notices }) => {
            let table = plan.table.name.clone();
            let confirmed = match look_again(&plan).await {
                Ok(newest) => confirm(plan, newest, context).await,
                Err(error) => Err(error),
            };
            let mut committed = confirmed.map_err(|error| unconfirmed(table, &metadata_location, error))?;
            committed.summary.notices.extend(notices);
            Ok(Attempt::Committed(Box::new(committed)))
        }
    }
}

/// Loads the table after its commit. A failure that passes must not leave the freed files behind.
async fn look_again(plan: &ExpirePlan) -> Result<LoadedTable> {
    let mut newest = plan.load_newest().await;
    for pause in PAUSES_BEFORE_LOOKING {
        let Err(error) = &newest else { break };
        tracing::info!(table = plan.table.name, %error, "looking at the table after its commit failed");
        tokio::time::sleep(pause).await;
        newest = plan.load_newest().await;
    }
    newest
}

/// Decides by what is there whether a commit happened whose answer was lost.
async fn settle(plan: ExpirePlan, why: String, context: &RunContext) -> Result<Attempt> {
    let mut seen = "the table does not show it".to_string();
    for pause in PAUSES_BEFORE_LOOKING {
        tokio::time::sleep(pause).await;
        let newest = match plan.load_newest().await {
            Ok(newest) => newest,
            Err(error) => {
                tracing::info!(table = plan.table.name, %error, "looking whether the commit happened failed");
                continue;
            }
        };
        if newest.is_same_version(&plan.table) {
            continue;
        }
        let Some(missing) = plan.commit_request().contradicted_by(&newest.metadata) else {
            tracing::info!(table = plan.table.name, why, "no answer to the commit, but the table shows it");
            return confirm(plan, newest, context).await.map(|committed| Attempt::Committed(Box::new(committed)));
        };
        seen = format!("meanwhile the table changed, and its newest metadata {missing}");
        break;
    }
    Ok(Attempt::Unsettled(Box::new(Unsettled { plan, why: format!("{why}; {seen}") })))
}

/// An error that came after the catalog had taken a commit must not read as if nothing had happened.
fn unconfirmed(table: String, metadata_location: &str, error: Error) -> Error {
    match error {
        Error::CommitUnknown { .. } => error,
        Error::CommitMismatch { .. } => error,
        error => Error::CommitUnknown {
            table,
            why: format!("the catalog took {metadata_location}, but the table could not be looked at again: {error}"),
        },
    }
}

/// Checks that the newest metadata shows the commit, whoever made it, and that the catalog lost nothing else with it.
///
/// # Errors
/// [`Error::CommitUnknown`] when it doesn't show it: something that was removed is still there, or something that should have
/// stayed is gone. [`Error::CommitMismatch`] when the catalog did something else.
pub(crate) async fn confirm(
    mut plan: ExpirePlan,
    newest: LoadedTable,
    context: &RunContext,
) -> Result<CommittedExpiry> {
    if let Some(why) = plan.commit_request().contradicted_by(&newest.metadata) {
        return Err(Error::CommitUnknown { table: plan.table.name.clone(), why: format!("the newest metadata {why}") });
    }
    plan.verify(&newest).await?;
    let mut summary = plan.summary();
    // Whoever committed the plan itself has no journal yet. The commit is done: this must not stop its deletes.
    if let Err(error) = plan.write_into_journal(context).await {
        summary
            .notices
            .push(format!("{error}. The commit was made by the caller, so the run goes on without a journal"));
    }
    let (options, task, open) = (plan.options.clone(), Arc::clone(&plan.task), plan.open.take());
    let (deletion, newest) = plan.into_deletion(newest).await?;
    Ok(CommittedExpiry { summary, options, task, deletion, newest, open })
}

/// Deletes what a committed expiry freed.
pub(crate) async fn delete(committed: CommittedExpiry, context: &RunContext) -> Result<Report> {
    let CommittedExpiry { mut summary, options, task, mut deletion, mut newest, mut open } = committed;
    let claim = match claim(&newest.seen().metadata.location().to_string(), open.as_ref(), &mut deletion, context).await
    {
        Ok(claim) => claim,
        Err(why) => {
            summary.notices.push(format!("the commit is done, but its files stay for now: {why}"));
            deletion.spare_all_but(&HashSet::new(), SkipReason::AwaitsPurge);
            open = None;
            None
        }
    };
    let mut delete_options = DeletionOptions::of(Operation::ExpireSnapshots, context);
    delete_options.concurrency = options.max_concurrent_deletes.unwrap_or(delete_options.concurrency);
    delete_options.moves = super::quarantine_of(options.quarantine, open.as_ref())?;
    let stores = Stores::new(task.runtime_env());
    let delete = delete_files(deletion, &stores, &mut newest, &delete_options);
    let files = stage(&context.task, RunStage::Deleting, delete).await;
    if let (Some(open), Ok(files)) = (&mut open, &files) {
        summary.notices.extend(open.note_end(Operation::ExpireSnapshots, files).await);
    }
    // A run that was cancelled has come to its end, too.
    HeldClaim::release_any(claim).await;
    let report_of = |files| finish_report(&summary, files, false);
    files.map(report_of).map_err(|stopped| tell_stopped(stopped, report_of, context))
}

/// Claims the files of a run, so that nobody puts snapshots back while they go, and spares what other runs have promised to keep.
/// `None` where there is no journal, or nothing to delete.
///
/// # Errors
/// In words, why they may not be deleted now.
async fn claim(
    table: &str,
    open: Option<&OpenRun>,
    deletion: &mut DeletionPlan,
    context: &RunContext,
) -> std::result::Result<Option<HeldClaim>, String> {
    let Some(open) = open.filter(|_| deletion.planned() > 0) else { return Ok(None) };
    let writer = Writer::new(context);
    let mut claimed = open.journal().claim(&open.run, Claim::Purge, 0, &writer).await;
    if claimed.is_err() {
        // An answer may have been lost: what was written then is our own.
        claimed = open.journal().claim(&open.run, Claim::Purge, 0, &writer).await;
    }
    match claimed {
        Ok(Claimed::Held(claim)) => {
            let promised = claim.promised_by_others(table, context.maintenance.now_ms()).await;
            match promised {
                Ok(promised) => deletion.spare(&promised, SkipReason::AwaitsPurge),
                Err(error) => {
                    claim.release().await;
                    return Err(error.to_string());
                }
            }
            Ok(Some(claim))
        }
        Ok(Claimed::ByAnother(who)) => Err(who),
        Err(error) => {
            Err(format!("they could not be claimed ({error}). A later run, or resume_maintenance, deletes them"))
        }
    }
}
