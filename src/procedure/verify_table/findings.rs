//! What a verification found.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use serde::Serialize;

use super::schema;
use crate::error::Result;
use crate::report::FileKind;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Readers of the table fail, or read something wrong.
    Error,
    /// Readers of the newest state don't notice.
    Warning,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// A file that is needed does not exist.
    MissingFile,
    /// A manifest list or manifest is not what it should be, or a place can't be looked at.
    UnreadableFile,
    /// A file has another size than what names it says.
    SizeDiffers,
    /// A snapshot has more than one live entry for a file: its rows count more than once.
    DuplicateFile,
    /// Deletes for nothing: the data file that they are for isn't live in the snapshot.
    DanglingDeleteFile,
    /// A branch or tag points to a snapshot that the metadata doesn't have.
    RefWithoutSnapshot,
    /// Statistics of a snapshot that the metadata doesn't have.
    StatisticsWithoutSnapshot,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub problem: Problem,
    /// The file, as the metadata names it; none for refs.
    pub file_path: Option<String>,
    /// What the file is.
    pub content: Option<FileKind>,
    /// The newest snapshot that needs the file; for refs and statistics the one that they name.
    pub snapshot_id: Option<i64>,
    /// The rest, in words.
    pub detail: String,
}

/// The outcome of a verification.
#[derive(Debug, Clone, Serialize)]
pub struct Verification {
    pub(super) table: String,
    pub(super) findings: Vec<Finding>,
    pub(super) counts: Counts,
    pub(super) notices: Vec<String>,
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Counts {
    pub snapshots: usize,
    pub manifests: usize,
    pub files_checked: usize,
    pub files_listed: usize,
}

impl Severity {
    /// The text in the `severity` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

impl Problem {
    /// The text in the `problem` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Problem::MissingFile => "missing_file",
            Problem::UnreadableFile => "unreadable_file",
            Problem::SizeDiffers => "size_differs",
            Problem::DuplicateFile => "duplicate_file",
            Problem::DanglingDeleteFile => "dangling_delete_file",
            Problem::RefWithoutSnapshot => "ref_without_snapshot",
            Problem::StatisticsWithoutSnapshot => "statistics_without_snapshot",
        }
    }
}

impl Verification {
    /// The table's name or location.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// True when nothing is wrong but for warnings.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Error)
    }

    /// Everything that is wrong: errors first, then by problem, file and snapshot.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The verdict in one line, with what was looked at.
    pub fn summary(&self) -> String {
        let Counts { snapshots, manifests, files_checked, files_listed } = self.counts;
        let of = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        format!(
            "{snapshots} snapshots, {manifests} manifests, {files_checked} files checked, {files_listed} files listed; {} \
             errors, {} warnings",
            of(Severity::Error),
            of(Severity::Warning)
        )
    }

    /// One row a finding, and the verdict as the last.
    pub(super) fn to_batch(&self) -> Result<RecordBatch> {
        let (severity, problem) = if self.is_healthy() { ("ok", "healthy") } else { ("error", "unhealthy") };
        let (findings, summary) = (&self.findings, self.summary());
        let severities = findings.iter().map(|finding| finding.severity.as_str()).chain([severity]);
        let problems = findings.iter().map(|finding| finding.problem.as_str()).chain([problem]);
        let paths = findings.iter().map(|finding| finding.file_path.as_deref()).chain([None]);
        let contents = findings.iter().map(|finding| finding.content.map(FileKind::as_str)).chain([None]);
        let snapshots = findings.iter().map(|finding| finding.snapshot_id).chain([None]);
        let details = findings.iter().map(|finding| finding.detail.as_str()).chain([summary.as_str()]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(severities)),
            Arc::new(StringArray::from_iter_values(problems)),
            Arc::new(paths.collect::<StringArray>()),
            Arc::new(contents.collect::<StringArray>()),
            Arc::new(snapshots.collect::<Int64Array>()),
            Arc::new(StringArray::from_iter_values(details)),
        ];
        Ok(RecordBatch::try_new(schema(), columns)?)
    }
}

/// Severity, problem, path, and the detail of what has no path: the order of the findings.
type Key = (Severity, Problem, Option<String>, String);

/// Findings while they are collected, each file once for each problem.
#[derive(Debug)]
pub(super) struct Findings {
    /// With the age of the snapshot: the place among all, oldest first.
    found: BTreeMap<Key, (Option<usize>, Finding)>,
    memory: MemoryReservation,
}

impl Findings {
    pub(super) fn new(task: &TaskContext) -> Self {
        Self { found: BTreeMap::new(), memory: MemoryConsumer::new("Findings").register(task.memory_pool()) }
    }

    /// Adds a finding; of several for one file and problem, the newest snapshot's stays. `age` is the snapshot's place among
    /// all, oldest first.
    ///
    /// # Errors
    /// When the session's memory limit is too low for so many.
    pub(super) fn add(&mut self, finding: Finding, age: Option<usize>) -> Result<()> {
        // Refs are told apart by their details.
        let detail = if finding.file_path.is_none() { finding.detail.clone() } else { String::new() };
        let key = (finding.severity, finding.problem, finding.file_path.clone(), detail);
        if self.found.get(&key).is_some_and(|(known, _)| *known >= age) {
            return Ok(());
        }
        let texts = finding.file_path.as_ref().map_or(0, String::len) * 2 + finding.detail.len();
        self.memory.try_grow(texts + size_of::<Finding>() * 2)?;
        self.found.insert(key, (age, finding));
        Ok(())
    }

    pub(super) fn into_vec(self) -> Vec<Finding> {
        self.found.into_values().map(|(_, finding)| finding).collect()
    }
}
