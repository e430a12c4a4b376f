//! The rows of a call: one a table.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::gain::Gain;
use crate::error::{Error, Result};
use crate::report::{Metrics, Operation};

/// What became of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Every operation came to its end, but for those that were skipped.
    Done,
    /// A dry run says what would be done.
    Planned,
    /// Nothing was done, because the table or the session doesn't want it.
    Skipped,
    /// An operation failed.
    Failed,
    /// The call ended before the table's turn.
    NotReached,
    /// No table: a folder with metadata that no table of the catalog uses.
    UnknownTable,
}

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::Planned => "planned",
            Status::Skipped => "skipped",
            Status::Failed => "failed",
            Status::NotReached => "not_reached",
            Status::UnknownTable => "unknown_table",
        }
    }
}

/// A table and what became of it.
#[derive(Debug, Clone)]
pub(super) struct TableRow {
    /// The name with the catalog, as procedures take it; of an unknown table the folder.
    pub table: String,
    pub status: Status,
    /// What was expected; `None` where the table could not be loaded.
    pub gain: Option<Gain>,
    /// What the operations did; `None` for those that did not come to an end.
    pub expiry: Option<Metrics>,
    pub orphans: Option<Metrics>,
    /// Why it was skipped, failed or not reached.
    pub reasons: Vec<String>,
    /// The metadata file that the table was planned on; of an unknown table the newest.
    pub metadata_location: Option<String>,
    pub elapsed_ms: Option<u64>,
}

impl TableRow {
    pub(super) fn new(table: String, status: Status) -> Self {
        let (gain, expiry, orphans, reasons, metadata_location, elapsed_ms) = Default::default();
        Self { table, status, gain, expiry, orphans, reasons, metadata_location, elapsed_ms }
    }

    pub(super) fn because(mut self, reason: impl Into<String>) -> Self {
        self.reasons.push(reason.into());
        self
    }

    /// Notes what an operation did.
    pub(super) fn add(&mut self, operation: Operation, metrics: Metrics) {
        match operation {
            Operation::ExpireSnapshots => self.expiry = Some(metrics),
            _ => self.orphans = Some(metrics),
        }
    }

    fn metrics(&self) -> impl Iterator<Item = &Metrics> {
        self.expiry.iter().chain(&self.orphans)
    }

    /// The sum of a count over all operations that came to an end.
    fn sum(&self, count: fn(&Metrics) -> u64) -> Option<u64> {
        self.metrics().map(count).reduce(u64::saturating_add)
    }
}

const COLUMNS: [(&str, DataType, bool); 15] = [
    ("table_name", DataType::Utf8, false),
    ("status", DataType::Utf8, false),
    ("expected_snapshots_count", DataType::Int64, true),
    ("expected_bytes", DataType::Int64, true),
    ("deleted_snapshots_count", DataType::Int64, true),
    ("deleted_files_count", DataType::Int64, true),
    ("deleted_bytes", DataType::Int64, true),
    ("orphan_files_count", DataType::Int64, true),
    ("orphan_bytes", DataType::Int64, true),
    ("deferred_files_count", DataType::Int64, true),
    ("deferred_bytes", DataType::Int64, true),
    ("failed_deletions_count", DataType::Int64, true),
    ("reason", DataType::Utf8, true),
    ("metadata_location", DataType::Utf8, true),
    ("elapsed_ms", DataType::Int64, true),
];

/// The columns of the rows.
pub(super) fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let field = |(name, kind, nullable): (&str, DataType, bool)| Field::new(name, kind, nullable);
        Arc::new(Schema::new(COLUMNS.into_iter().map(field).collect::<Vec<_>>()))
    });
    Arc::clone(&SCHEMA)
}

/// The rows as a batch.
pub(super) fn to_batch(rows: &[TableRow]) -> Result<RecordBatch> {
    let texts = |text: &dyn Fn(&TableRow) -> Option<String>| {
        Arc::new(rows.iter().map(text).collect::<StringArray>()) as ArrayRef
    };
    let counts = |count: &dyn Fn(&TableRow) -> Option<u64>| {
        let column = rows.iter().map(|row| count(row).map(|count| i64::try_from(count).unwrap_or(i64::MAX)));
        Arc::new(column.collect::<Int64Array>()) as ArrayRef
    };
    let columns = vec![
        texts(&|row| Some(row.table.clone())),
        texts(&|row| Some(row.status.as_str().to_string())),
        counts(&|row| row.gain.map(|gain| gain.snapshots)),
        counts(&|row| row.gain.map(|gain| gain.bytes)),
        counts(&|row| row.expiry.as_ref().map(|expiry| expiry.deleted_snapshots_count)),
        counts(&|row| row.expiry.as_ref().map(|expiry| expiry.deleted_files_count)),
        counts(&|row| row.expiry.as_ref().map(|expiry| expiry.deleted_bytes)),
        counts(&|row| row.orphans.as_ref().map(|orphans| orphans.deleted_files_count)),
        counts(&|row| row.orphans.as_ref().map(|orphans| orphans.deleted_bytes)),
        counts(&|row| row.sum(|metrics| metrics.deferred_files_count)),
        counts(&|row| row.sum(|metrics| metrics.deferred_bytes)),
        counts(&|row| row.sum(|metrics| metrics.failed_deletions_count)),
        texts(&|row| (!row.reasons.is_empty()).then(|| row.reasons.join("; "))),
        texts(&|row| row.metadata_location.clone()),
        counts(&|row| row.elapsed_ms),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// What all tables together come to.
#[derive(Debug, Default)]
pub(super) struct Total {
    /// The sums of what matters to the session's metrics.
    pub metrics: Metrics,
    by_status: [(usize, Option<String>); 6],
}

const STATUSES: [Status; 6] =
    [Status::Done, Status::Planned, Status::Skipped, Status::Failed, Status::NotReached, Status::UnknownTable];

impl Total {
    pub(super) fn of(rows: &[TableRow], dry_run: bool) -> Self {
        let mut total = Self { metrics: Metrics { dry_run, ..Default::default() }, ..Default::default() };
        for row in rows {
            for metrics in row.metrics() {
                let sum = &mut total.metrics;
                sum.deleted_snapshots_count += metrics.deleted_snapshots_count;
                sum.deleted_files_count += metrics.deleted_files_count;
                sum.deleted_bytes = sum.deleted_bytes.saturating_add(metrics.deleted_bytes);
                sum.scanned_files_count += metrics.scanned_files_count;
                sum.failed_deletions_count += metrics.failed_deletions_count;
                sum.deferred_files_count += metrics.deferred_files_count;
            }
            for (status, (count, first)) in STATUSES.into_iter().zip(&mut total.by_status) {
                if status == row.status {
                    *count += 1;
                    first.get_or_insert_with(|| format!("{}: {}", row.table, row.reasons.join("; ")));
                }
            }
        }
        total
    }

    fn count(&self, wanted: Status) -> usize {
        STATUSES.into_iter().zip(&self.by_status).filter(|(status, _)| *status == wanted).map(|(_, of)| of.0).sum()
    }

    /// The sum of it all in one line.
    pub(super) fn describe(&self, catalog: &str) -> String {
        let counts = STATUSES.into_iter().zip(&self.by_status).filter(|(_, (count, _))| *count > 0);
        let counts: Vec<String> = counts.map(|(status, (count, _))| format!("{count} {}", status.as_str())).collect();
        let tables = if counts.is_empty() { "no tables".to_string() } else { format!("tables: {}", counts.join(", ")) };
        let would = if self.metrics.dry_run { "would be " } else { "" };
        let Metrics { deleted_snapshots_count: snapshots, deleted_files_count: files, deleted_bytes: bytes, .. } =
            self.metrics;
        format!(
            "{catalog}: {tables}; {snapshots} snapshots {would}expired, {files} files ({bytes} bytes) {would}deleted"
        )
    }

    /// The error that follows the rows where a table failed, or the call was stopped before it was through.
    pub(super) fn incomplete(&self, catalog: &str, cancelled: bool) -> Option<Error> {
        let first = |wanted: Status| {
            let mut of = STATUSES.into_iter().zip(&self.by_status).filter(|(status, _)| *status == wanted);
            of.find_map(|(_, (_, first))| first.clone())
        };
        let (failed, not_reached) = (self.count(Status::Failed), self.count(Status::NotReached));
        let first = match cancelled {
            true => first(Status::Failed).or_else(|| first(Status::NotReached)),
            false => first(Status::Failed),
        }?;
        let not_reached = if cancelled { not_reached } else { 0 };
        let tables = self.by_status.iter().map(|(count, _)| count).sum::<usize>() - self.count(Status::UnknownTable);
        Some(Error::TablesFailed { catalog: catalog.into(), failed: failed + not_reached, tables, first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(table: &str, status: Status) -> TableRow {
        TableRow::new(table.into(), status)
    }

    #[test]
    fn the_total_counts_tables_and_sums_what_was_done() {
        let mut done = row("c.db.t", Status::Done);
        let metrics = |files, bytes| Metrics {
            deleted_files_count: files,
            deleted_bytes: bytes,
            deleted_snapshots_count: 1,
            ..Default::default()
        };
        done.add(Operation::ExpireSnapshots, metrics(2, 10));
        done.add(Operation::RemoveOrphanFiles, Metrics { deleted_snapshots_count: 0, ..metrics(1, 5) });
        let rows = [done, row("c.db.u", Status::Failed).because("no"), row("c.db.v", Status::NotReached)];
        let total = Total::of(&rows, false);
        assert_eq!(
            total.describe("c"),
            "c: tables: 1 done, 1 failed, 1 not_reached; 1 snapshots expired, 3 files (15 bytes) deleted"
        );
        let error = total.incomplete("c", false).unwrap();
        assert!(error.is_partial() && error.to_string().contains("1 of 3 tables of c"), "{error}");
        assert!(error.to_string().contains("c.db.u: no"), "{error}");
        assert!(total.incomplete("c", true).unwrap().to_string().contains("2 of 3 tables"));
    }

    #[test]
    fn what_was_only_skipped_or_out_of_time_is_no_failure() {
        let rows = [row("a", Status::Skipped), row("b", Status::NotReached), row("/f", Status::UnknownTable)];
        let total = Total::of(&rows, true);
        assert!(total.incomplete("c", false).is_none());
        assert!(total.describe("c").ends_with("0 snapshots would be expired, 0 files (0 bytes) would be deleted"));
        assert_eq!(Total::of(&[], false).describe("c").split(';').next(), Some("c: no tables"));
        let all = Total::of(&[row("a", Status::Failed).because("no")], false).incomplete("c", false).unwrap();
        assert!(!all.is_partial(), "nothing was done");
    }
}
