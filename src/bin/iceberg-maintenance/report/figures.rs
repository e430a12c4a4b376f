//! The few numbers that everybody looks at first.

use iceberg_maintenance::report::Operation;

use super::data::Page;
use super::format::{counted, grouped, human_bytes, percent};
use super::run::Run;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Figure {
    pub label: &'static str,
    pub value: Value,
    /// What it is to be compared with.
    pub note: Option<String>,
    /// True where somebody should look into it.
    pub is_bad: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Count(u64),
    Bytes(u64),
}

impl Value {
    pub(super) fn short(self) -> String {
        match self {
            Value::Count(count) => grouped(count),
            Value::Bytes(bytes) => human_bytes(bytes),
        }
    }

    pub(super) fn exact(self) -> u64 {
        match self {
            Value::Count(number) | Value::Bytes(number) => number,
        }
    }
}

fn count(label: &'static str, value: u64) -> Figure {
    Figure { label, value: Value::Count(value), note: None, is_bad: false }
}

fn bytes(label: &'static str, value: u64) -> Figure {
    Figure { value: Value::Bytes(value), ..count(label, value) }
}

impl Figure {
    fn noted(self, note: impl Into<Option<String>>) -> Self {
        Self { note: note.into(), ..self }
    }

    fn bad_if_any(self) -> Self {
        Self { is_bad: self.value.exact() > 0, ..self }
    }
}

/// The numbers for this page; none where nothing is known.
pub(super) fn of(page: &Page) -> Vec<Figure> {
    match (&page.catalog, &page.run) {
        (Some(_), _) => of_catalog(page),
        (None, Some(run)) if run.operation == Operation::ExpireSnapshots => of_expiry(page, run),
        (None, Some(run)) if run.operation == Operation::RemoveOrphanFiles => of_orphans(page, run),
        (None, Some(run)) => of_files(page, run),
        (None, None) => vec![],
    }
}

fn of_expiry(page: &Page, run: &Run) -> Vec<Figure> {
    let m = &run.metrics;
    let labels = match m.dry_run {
        true => ["Snapshots to expire", "Refs to remove"],
        false => ["Snapshots expired", "Refs removed"],
    };
    let mut figures = vec![
        count(labels[0], m.deleted_snapshots_count).noted(format!("{} stay", grouped(m.retained_snapshots_count))),
        files_gone(run),
        freed(page, run),
        count(labels[1], m.removed_refs_count).noted(format!("of {}", grouped(run.refs.len() as u64))),
    ];
    figures.extend(left(run));
    figures.extend(failed(run));
    figures
}

fn of_orphans(page: &Page, run: &Run) -> Vec<Figure> {
    let m = &run.metrics;
    let label = if m.dry_run { "Orphans to delete" } else { "Orphans deleted" };
    let mut figures = vec![
        Figure { label, ..files_gone(run) },
        freed(page, run),
        count("Files listed", m.scanned_files_count)
            .noted(format!("looked up in {}", counted(m.active_files_count, "live file", "live files"))),
        count("Left alone", left_alone(run)).noted((left_alone(run) > 0).then(|| "see the reasons below".to_string())),
    ];
    figures.extend(left(run));
    figures.extend(failed(run));
    figures
}

fn of_files(page: &Page, run: &Run) -> Vec<Figure> {
    let mut figures = vec![files_gone(run), freed(page, run)];
    figures
        .extend((run.metrics.returned_files_count > 0).then(|| count("Moved back", run.metrics.returned_files_count)));
    figures.extend(left(run));
    figures.push(count("Left alone", left_alone(run)));
    figures.extend(failed(run));
    figures
}

fn files_gone(run: &Run) -> Figure {
    let m = &run.metrics;
    let missing = m.already_missing_files_count;
    let metadata = [m.deleted_manifest_files_count, m.deleted_manifest_lists_count, m.deleted_metadata_files_count];
    let metadata = metadata.into_iter().fold(m.deleted_statistics_files_count, u64::saturating_add);
    let note = match (missing, metadata) {
        (0, 0) => None,
        (0, metadata) => Some(format!("{} of them metadata", grouped(metadata))),
        (missing, _) => Some(format!("{} more were gone before", grouped(missing))),
    };
    count(if m.dry_run { "Files to delete" } else { "Files deleted" }, m.deleted_files_count).noted(note)
}

fn freed(page: &Page, run: &Run) -> Figure {
    let m = &run.metrics;
    let stored = page.storage.as_ref().map(|storage| storage.total().before().bytes);
    let share = stored.and_then(|stored| percent(m.deleted_bytes, stored));
    let figure = bytes(if m.dry_run { "To be freed" } else { "Freed" }, m.deleted_bytes);
    figure.noted(share.map(|share| format!("{share} of what is stored")))
}

/// A dry run tries nothing that could fail.
fn failed(run: &Run) -> Option<Figure> {
    let failed = run.metrics.failed_deletions_count;
    let note = (failed > 0).then(|| "still there, listed below".to_string());
    let figure = count("Failed deletes", failed).bad_if_any().noted(note);
    (failed > 0 || !run.metrics.dry_run).then_some(figure)
}

/// Files that are not needed any more but still there by intent, where there are any.
fn left(run: &Run) -> Vec<Figure> {
    let m = &run.metrics;
    let moved = if m.dry_run { "To quarantine" } else { "In quarantine" };
    let sized = |bytes| Some(human_bytes(bytes));
    let figures = [
        count("Put off", m.deferred_files_count).noted(sized(m.deferred_bytes)),
        count(moved, m.quarantined_files_count).noted(sized(m.quarantined_bytes)),
        count("Left behind", m.left_behind_files_count).noted("by delete_files => false".to_string()),
    ];
    figures.into_iter().filter(|figure| figure.value.exact() > 0).collect()
}

/// Files that the run looked at and left alone.
fn left_alone(run: &Run) -> u64 {
    left_alone_because(run).iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
}

/// The metrics that count files which were left alone, each for another reason, where they count any.
pub(super) fn left_alone_because(run: &Run) -> Vec<(&'static str, u64)> {
    let skipped = |name: &str| name.starts_with("skipped_") && name.ends_with("_count") && !name.contains("metadata");
    let rows = run.metrics.rows().into_iter().map(|(name, value)| (name, value.unsigned_abs()));
    rows.filter(|(name, count)| skipped(name) && *count > 0).collect()
}

fn of_catalog(page: &Page) -> Vec<Figure> {
    let Some(rows) = &page.catalog else { return vec![] };
    let labels = match page.is_preview {
        true => ["Tables planned", "Snapshots to expire", "Files to delete", "To be freed"],
        false => ["Tables done", "Snapshots expired", "Files deleted", "Freed"],
    };
    let all = rows.tables.len() as u64 - rows.count("unknown_table");
    let others = [("skipped", "skipped"), ("not_reached", "not reached")];
    let others = others.into_iter().filter(|(status, _)| rows.count(status) > 0);
    let others: Vec<String> = others.map(|(status, word)| format!("{} {word}", grouped(rows.count(status)))).collect();
    let orphans = rows.sum(|table| table.orphans);
    let failed_deletes = rows.sum(|table| table.failed);
    vec![
        count(labels[0], rows.count("done") + rows.count("planned")).noted(format!("of {}", grouped(all))),
        count(labels[1], rows.sum(|table| table.snapshots)),
        count(labels[2], rows.files()).noted(format!("{} of them orphans", grouped(orphans))),
        bytes(labels[3], rows.freed()),
        count("Tables failed", rows.count("failed")).bad_if_any().noted(
            (failed_deletes > 0).then(|| format!("{} could not be deleted", counted(failed_deletes, "file", "files"))),
        ),
        count("Not maintained", rows.count("skipped") + rows.count("not_reached"))
            .noted((!others.is_empty()).then(|| others.join(", "))),
    ]
}
