//! One table's turn: the operations in order, and what became of each.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::TableOptions;
use super::plan::PlannedTable;
use super::rows::{Status, TableRow};
use crate::catalog::TableHandle;
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::procedure::expire_snapshots::{self, ExpireSnapshots};
use crate::procedure::remove_orphan_files::{self, RemoveOrphanFiles};
use crate::report::{Metrics, Operation, Report};
use crate::retention::RetentionPolicy;

/// How many files all tables together may still lose; `None` for any number.
#[derive(Debug)]
pub(super) struct Budget(Option<Mutex<u64>>);

impl Budget {
    pub(super) fn new(files: Option<u64>) -> Self {
        Self(files.map(Mutex::new))
    }

    /// How many files the next operation may delete.
    fn limit(&self, of_each: Option<u64>) -> Option<u64> {
        let left = self.0.as_ref().map(|left| *left.lock());
        left.into_iter().chain(of_each).min()
    }

    /// Takes off what an operation deleted, tried to delete, or has put off.
    fn take(&self, metrics: &Metrics) {
        let taken = [
            metrics.deleted_files_count,
            metrics.failed_deletions_count,
            metrics.already_missing_files_count,
            metrics.deferred_files_count,
        ];
        if let Some(left) = &self.0 {
            let mut left = left.lock();
            *left = taken.into_iter().fold(*left, u64::saturating_sub);
        }
    }
}

/// What a table's turn came to, and what there is to say of it.
pub(super) struct Turn {
    pub row: TableRow,
    pub notices: Vec<String>,
}

/// Runs the operations on a table. Never fails: what fails is in the row.
///
/// An operation that fails ends the table's turn, one that is skipped doesn't.
pub(super) async fn maintain(
    table: PlannedTable,
    options: Arc<TableOptions>,
    budget: Arc<Budget>,
    context: RunContext,
) -> Turn {
    let started = Instant::now();
    let PlannedTable { mut row, handle, skip } = table;
    let mut notices = vec![];
    let mut skipped = 0;
    row.status = if options.dry_run { Status::Planned } else { Status::Done };
    if let Some(why) = skip {
        row.reasons.push(why);
        row.status = Status::Skipped;
        return Turn { row, notices };
    }
    for operation in options.operations.iter().copied() {
        let began = Instant::now();
        let outcome = run(operation, &handle, &options, &budget, &context).await;
        let failure = match outcome {
            Ok(mut report) => {
                report.metrics.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                budget.take(&report.metrics);
                context.maintenance.tell(&report);
                let failure = report.require_complete().err();
                let worth_telling = report.notices.into_iter().filter(|notice| !RetentionPolicy::describes(notice));
                notices.extend(worth_telling.map(|notice| format!("{}: {notice}", row.table)));
                row.add(operation, report.metrics);
                failure
            }
            Err(error) if is_skipped(operation, &error) => {
                skipped += 1;
                row.reasons.push(named(operation, &error));
                None
            }
            Err(error) => Some(error),
        };
        if let Some(error) = failure {
            row.reasons.push(named(operation, &error));
            row.status = Status::Failed;
            break;
        }
    }
    if skipped > 0 && skipped == options.operations.len() {
        row.status = Status::Skipped;
    }
    row.elapsed_ms = u64::try_from(started.elapsed().as_millis()).ok();
    tracing::info!(table = row.table, status = row.status.as_str(), elapsed_ms = row.elapsed_ms, "maintained");
    Turn { row, notices }
}

async fn run(
    operation: Operation,
    handle: &TableHandle,
    options: &TableOptions,
    budget: &Budget,
    context: &RunContext,
) -> Result<Report> {
    let max_delete_count = budget.limit(options.max_delete_count);
    if operation == Operation::ExpireSnapshots {
        let policy = RetentionPolicy { older_than_ms: options.older_than_ms, ..Default::default() };
        let min_retention_ms = options.min_retention_ms;
        let expiry = ExpireSnapshots { policy, max_delete_count, min_retention_ms, ..Default::default() };
        return match options.dry_run {
            true => expire_snapshots::preview(handle.clone(), &expiry, None, None, context).await,
            false => expire_snapshots::run(handle.clone(), &expiry, None, context).await,
        };
    }
    let now_ms = context.maintenance.now_ms();
    let orphans =
        RemoveOrphanFiles { max_delete_count, ..RemoveOrphanFiles::older_than(options.orphan_cutoff_ms, now_ms) };
    let plan = remove_orphan_files::plan(handle.clone(), &orphans, None, context).await?;
    match options.dry_run {
        true => Ok(plan.report()),
        false => remove_orphan_files::execute(plan, context).await,
    }
}

/// True where the table doesn't want the operation, or the session's floor for ages: nothing is wrong with either.
fn is_skipped(operation: Operation, error: &Error) -> bool {
    match error {
        Error::GcDisabled { .. } | Error::UnclearOwner { .. } => true,
        Error::Argument { procedure, .. } => procedure == operation.as_str(),
        _ => false,
    }
}

/// The error with the operation in front.
fn named(operation: Operation, error: &Error) -> String {
    let (name, text) = (operation.as_str(), error.to_string());
    match text.strip_prefix(name) {
        Some(_) => text,
        None => format!("{name}: {text}"),
    }
}
