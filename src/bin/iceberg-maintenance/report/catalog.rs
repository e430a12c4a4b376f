//! The rows of `maintain_catalog`, one a table.

use datafusion::arrow::array::RecordBatch;

use super::format::{counted, human_bytes};
use super::reads::{longs, texts};
use crate::failure::Failure;

/// What became of a table.
#[derive(Debug, Clone)]
pub(super) struct TableLine {
    pub name: String,
    pub status: String,
    pub snapshots: Option<i64>,
    pub files: Option<i64>,
    pub bytes: Option<i64>,
    pub orphans: Option<i64>,
    pub orphan_bytes: Option<i64>,
    pub deferred: Option<i64>,
    pub failed: Option<i64>,
    pub reason: Option<String>,
    pub elapsed_ms: Option<i64>,
}

impl TableLine {
    /// What both operations freed.
    pub(super) fn freed(&self) -> u64 {
        number(self.bytes).saturating_add(number(self.orphan_bytes))
    }

    /// The status in words, with a sign that is told apart without colour.
    pub(super) fn badge(&self) -> (&'static str, &str) {
        match self.status.as_str() {
            "done" => ("✓", "done"),
            "planned" => ("○", "planned"),
            "skipped" => ("–", "skipped"),
            "failed" => ("✕", "failed"),
            "not_reached" => ("…", "not reached"),
            "unknown_table" => ("?", "unknown table"),
            other => ("", other),
        }
    }
}

/// A count that is there, and not negative.
pub(super) fn number(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

/// All rows.
#[derive(Debug, Clone, Default)]
pub(super) struct CatalogRows {
    pub tables: Vec<TableLine>,
}

impl CatalogRows {
    /// Reads the rows of the call.
    pub(super) fn of(batches: &[RecordBatch]) -> Result<Self, Failure> {
        let mut tables = vec![];
        for batch in batches {
            let index = |name: &str| batch.schema().index_of(name).map_err(|error| Failure::new(error.to_string()));
            let text = |name: &str| index(name).and_then(|column| texts(batch, column));
            let long = |name: &str| index(name).and_then(|column| longs(batch, column));
            let (names, statuses, reasons) = (text("table_name")?, text("status")?, text("reason")?);
            let (snapshots, files, bytes) =
                (long("deleted_snapshots_count")?, long("deleted_files_count")?, long("deleted_bytes")?);
            let (orphans, orphan_bytes) = (long("orphan_files_count")?, long("orphan_bytes")?);
            let (deferred, failed) = (long("deferred_files_count")?, long("failed_deletions_count")?);
            let elapsed = long("elapsed_ms")?;
            tables.extend((0..batch.num_rows()).map(|row| TableLine {
                name: names[row].clone().unwrap_or_default(),
                status: statuses[row].clone().unwrap_or_default(),
                snapshots: snapshots[row],
                files: files[row],
                bytes: bytes[row],
                orphans: orphans[row],
                orphan_bytes: orphan_bytes[row],
                deferred: deferred[row],
                failed: failed[row],
                reason: reasons[row].clone(),
                elapsed_ms: elapsed[row],
            }));
        }
        Ok(Self { tables })
    }

    /// The sum of a column.
    pub(super) fn sum(&self, column: fn(&TableLine) -> Option<i64>) -> u64 {
        self.tables.iter().map(|table| number(column(table))).fold(0, u64::saturating_add)
    }

    /// What was freed in all tables.
    pub(super) fn freed(&self) -> u64 {
        self.tables.iter().map(TableLine::freed).fold(0, u64::saturating_add)
    }

    /// Files that went, in all tables.
    pub(super) fn files(&self) -> u64 {
        self.sum(|table| table.files).saturating_add(self.sum(|table| table.orphans))
    }

    /// How many tables have this status.
    pub(super) fn count(&self, status: &str) -> u64 {
        self.tables.iter().filter(|table| table.status == status).count() as u64
    }

    /// What happened, in a sentence.
    pub(super) fn summary(&self, is_preview: bool) -> String {
        let were = if is_preview { "would be" } else { "were" };
        let (snapshots, files) = (self.sum(|table| table.snapshots), self.files());
        let tables = self.tables.len() as u64 - self.count("unknown_table");
        format!(
            "{}: {} {were} expired; {} ({}) {were} deleted.",
            counted(tables, "table", "tables"),
            counted(snapshots, "snapshot", "snapshots"),
            counted(files, "file", "files"),
            human_bytes(self.freed())
        )
    }
}
