//! What a run did, and its shapes as record batches.

mod rows;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::journal::Finished;
use crate::retention::{RefDecision, SnapshotDecision};

/// What a file is to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum FileKind {
    /// A data file.
    Data,
    /// A file of position deletes.
    PositionDeletes,
    /// A file of equality deletes.
    EqualityDeletes,
    /// A Puffin file of deletion vectors. Spark counts these as position deletes, and so do the metrics.
    DeletionVector,
    /// A manifest.
    Manifest,
    /// A manifest list.
    ManifestList,
    /// Table statistics.
    Statistics,
    /// Partition statistics.
    PartitionStatistics,
    /// A metadata file.
    Metadata,
    /// Anything else (orphans only).
    Unknown,
}

impl FileKind {
    const ALL: [Self; 10] = [
        FileKind::Data,
        FileKind::PositionDeletes,
        FileKind::EqualityDeletes,
        FileKind::DeletionVector,
        FileKind::Manifest,
        FileKind::ManifestList,
        FileKind::Statistics,
        FileKind::PartitionStatistics,
        FileKind::Metadata,
        FileKind::Unknown,
    ];

    /// Reads the text of the `content` column.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// The text in the `content` column.
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::Data => "DATA",
            FileKind::PositionDeletes => "POSITION_DELETES",
            FileKind::EqualityDeletes => "EQUALITY_DELETES",
            FileKind::DeletionVector => "DELETION_VECTOR",
            FileKind::Manifest => "MANIFEST",
            FileKind::ManifestList => "MANIFEST_LIST",
            FileKind::Statistics => "STATISTICS",
            FileKind::PartitionStatistics => "PARTITION_STATISTICS",
            FileKind::Metadata => "METADATA",
            FileKind::Unknown => "UNKNOWN",
        }
    }
}

/// What happened to a file of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FileStatus {
    /// To be deleted; nothing was tried (dry run, or not yet).
    Planned,
    /// Confirmed gone, by this run.
    Deleted,
    /// Was gone before this run tried.
    Missing,
    /// Left alone, for the reason given.
    Spared(SkipReason),
    /// The store refused to delete it.
    Failed(String),
    /// Moved into quarantine.
    Quarantined,
    /// Moved back from quarantine.
    Returned,
}

/// Why a file that nothing live names was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// It lies outside the table's own roots.
    External,
    /// Its path can't be expressed exactly in the store, or is no UTF-8, or it isn't a regular file.
    UnsupportedName,
    /// A live file has the same path under another scheme or authority.
    PrefixMismatch,
    /// It became live again after the plan was made.
    LiveAgain,
    /// It is younger than the cut-off.
    TooYoung,
    /// The store gives no modification time, or one that can't be true.
    UnknownAge,
    /// A part of its name starts with `_` or `.`.
    Hidden,
    /// The call asked to delete no file.
    LeftBehind,
    /// It lies in the table's location, but not where the table writes or has live files.
    Foreign,
    /// It goes when the recovery window of this run has passed.
    Deferred,
    /// An earlier run put its deletion off, and the time has not come.
    AwaitsPurge,
    /// It became unreferenced within the recovery window.
    Recoverable,
}

impl FileStatus {
    /// The word in the `status` column.
    pub fn as_str(&self) -> &'static str {
        match self {
            FileStatus::Planned => "planned",
            FileStatus::Deleted => "deleted",
            FileStatus::Missing => "missing",
            FileStatus::Spared(SkipReason::Deferred) => "deferred",
            FileStatus::Spared(_) => "spared",
            FileStatus::Failed(_) => "failed",
            FileStatus::Quarantined => "quarantined",
            FileStatus::Returned => "returned",
        }
    }
}

/// A file of the plan and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileOutcome {
    /// The file's location as the metadata (expiry) or the listing (orphans) spells it.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Its size, as far as it is known.
    pub bytes: Option<u64>,
    /// Its last modification, ms since the epoch (orphans).
    pub modified_ms: Option<i64>,
    /// A snapshot that had it (expiry).
    pub snapshot_id: Option<i64>,
    /// Why it goes.
    pub reason: Cow<'static, str>,
    /// What became of it.
    pub status: FileStatus,
}

/// The numbers of a run. In a dry run the `deleted_*` numbers say what would be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // the names are those of the metric rows, which METRICS explains
#[non_exhaustive]
pub struct Metrics {
    pub deleted_data_files_count: u64,
    pub deleted_position_delete_files_count: u64,
    pub deleted_equality_delete_files_count: u64,
    pub deleted_manifest_files_count: u64,
    pub deleted_manifest_lists_count: u64,
    pub deleted_statistics_files_count: u64,
    pub deleted_metadata_files_count: u64,
    pub skipped_missing_metadata_count: u64,
    pub failed_deletions_count: u64,
    pub processed_manifests_count: u64,
    pub active_files_count: u64,
    pub scanned_files_count: u64,
    pub deleted_files_count: u64,
    pub deleted_bytes: u64,
    pub dry_run: bool,
    pub deleted_snapshots_count: u64,
    pub retained_snapshots_count: u64,
    pub removed_refs_count: u64,
    pub removed_partition_specs_count: u64,
    pub removed_schemas_count: u64,
    pub deleted_dv_files_count: u64,
    pub deleted_unknown_files_count: u64,
    pub already_missing_files_count: u64,
    pub skipped_too_young_count: u64,
    pub skipped_unknown_age_count: u64,
    pub skipped_hidden_count: u64,
    pub skipped_external_count: u64,
    pub skipped_prefix_mismatch_count: u64,
    pub skipped_unsupported_name_count: u64,
    pub skipped_live_again_count: u64,
    pub skipped_foreign_table_count: u64,
    pub unscanned_roots_count: u64,
    pub quarantined_files_count: u64,
    pub quarantined_bytes: u64,
    pub dangling_references_count: u64,
    pub elapsed_ms: u64,
    /// Files that only expired snapshots need and that stay because the call asked to delete none.
    pub left_behind_files_count: u64,
    pub skipped_foreign_files_count: u64,
    pub deferred_files_count: u64,
    pub deferred_bytes: u64,
    pub skipped_recoverable_files_count: u64,
    pub returned_files_count: u64,
}

/// Every metric row, in the order in which it is returned, with its meaning.
macro_rules! metric_rows {
    ($($name:ident: $meaning:literal),* $(,)?) => {
        /// Every metric row in its fixed order, with what it counts.
        pub const METRICS: &[(&str, &str)] = &[$((stringify!($name), $meaning)),*];

        impl Metrics {
            /// Name and value of every row, in the order of [`METRICS`].
            pub fn rows(&self) -> Vec<(&'static str, i64)> {
                vec![$((stringify!($name), self.$name.row_value())),*]
            }
        }
    };
}

trait RowValue {
    fn row_value(&self) -> i64;
}

impl RowValue for u64 {
    fn row_value(&self) -> i64 {
        i64::try_from(*self).unwrap_or(i64::MAX)
    }
}

impl RowValue for bool {
    fn row_value(&self) -> i64 {
        i64::from(*self)
    }
}

metric_rows! {
    deleted_data_files_count: "data files that are gone",
    deleted_position_delete_files_count: "position-delete files that are gone, deletion vectors included",
    deleted_equality_delete_files_count: "equality-delete files that are gone",
    deleted_manifest_files_count: "manifests that are gone",
    deleted_manifest_lists_count: "manifest lists that are gone",
    deleted_statistics_files_count: "table and partition statistics files that are gone",
    deleted_metadata_files_count: "metadata files that are gone",
    skipped_missing_metadata_count: "metadata files of expired snapshots that were missing or unreadable",
    failed_deletions_count: "files that the store did not delete",
    processed_manifests_count: "distinct manifests that were read",
    active_files_count: "distinct live files that the candidates were checked against (0 when there was no candidate)",
    scanned_files_count: "files that the listing showed (0 for expire_snapshots, which lists nothing)",
    deleted_files_count: "files of any kind that are gone",
    deleted_bytes: "bytes of those files, as far as sizes are known",
    dry_run: "1 when nothing was changed; the deleted_* rows then say what would be deleted",
    deleted_snapshots_count: "snapshots that were expired",
    retained_snapshots_count: "snapshots that the table has afterwards",
    removed_refs_count: "branches and tags that were removed",
    removed_partition_specs_count: "unused partition specs that were removed (clean_expired_metadata)",
    removed_schemas_count: "unused schemas that were removed (clean_expired_metadata)",
    deleted_dv_files_count: "Puffin files of deletion vectors among the position-delete files",
    deleted_unknown_files_count: "files of no known kind that are gone",
    already_missing_files_count: "files of the plan that were gone before",
    skipped_too_young_count: "unreferenced files younger than older_than",
    skipped_unknown_age_count: "unreferenced files without a believable modification time",
    skipped_hidden_count: "files with a name part that starts with _ or .",
    skipped_external_count: "files outside the table's own roots",
    skipped_prefix_mismatch_count: "files whose path is live under another scheme or authority",
    skipped_unsupported_name_count: "names that the store can't express, links, and whatever is no regular file",
    skipped_live_again_count: "files that became live between plan and delete",
    skipped_foreign_table_count: "files of another table below the root",
    unscanned_roots_count: "write paths outside the table's location, which are listed only when named as location",
    quarantined_files_count: "files moved to quarantine",
    quarantined_bytes: "bytes of those",
    dangling_references_count: "live files that do not exist",
    elapsed_ms: "how long the run took, in ms",
    left_behind_files_count: "files that only expired snapshots need and that stay, by delete_files => false",
    skipped_foreign_files_count: "files that nothing names, in the table\'s location but outside of its own folders",
    deferred_files_count: "files whose deletion this run put off until the recovery window has passed",
    deferred_bytes: "bytes of those, as far as sizes are known",
    skipped_recoverable_files_count: "unreferenced files that stay because of a recovery window",
    returned_files_count: "files that were moved back from quarantine",
}

/// Which rows a statement returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Output {
    /// `metric_name`, `metric_value`: one row a metric, in the order of [`METRICS`].
    #[default]
    Metrics,
    /// What Spark's procedure of that name returns.
    Columns,
    /// One row a file.
    Files,
    /// One row a snapshot, with the decision and its reason.
    Snapshots,
}

/// Which operation a report is about; its `columns` shape follows Spark's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// `expire_snapshots`.
    ExpireSnapshots,
    /// `remove_orphan_files`.
    RemoveOrphanFiles,
    /// `resume_maintenance`.
    ResumeMaintenance,
    /// `purge_deferred_files`.
    PurgeDeferredFiles,
    /// `restore_snapshots`.
    RestoreSnapshots,
    /// `restore_quarantined_files`.
    RestoreQuarantinedFiles,
    /// `purge_quarantined_files`.
    PurgeQuarantinedFiles,
}

impl Operation {
    /// The procedure's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::ExpireSnapshots => "expire_snapshots",
            Operation::RemoveOrphanFiles => "remove_orphan_files",
            Operation::ResumeMaintenance => "resume_maintenance",
            Operation::PurgeDeferredFiles => "purge_deferred_files",
            Operation::RestoreSnapshots => "restore_snapshots",
            Operation::RestoreQuarantinedFiles => "restore_quarantined_files",
            Operation::PurgeQuarantinedFiles => "purge_quarantined_files",
        }
    }

    /// What an error message says of a run that was cancelled once deletes have begun.
    pub(crate) fn cut_short(self) -> &'static str {
        match self {
            Operation::ExpireSnapshots => {
                "the commit is done, the expired snapshots are gone; with a journal the next expiry of this table, or \
                 resume_maintenance, deletes the rest"
            }
            Operation::RemoveOrphanFiles => {
                "orphan removal commits nothing, the table is as it was; call it again for the rest"
            }
            other => other.committed(),
        }
    }

    /// What an error message says of the commit once deletes have begun.
    pub(crate) fn committed(self) -> &'static str {
        match self {
            Operation::ExpireSnapshots => "the commit is done, the expired snapshots are gone",
            Operation::RemoveOrphanFiles => "orphan removal commits nothing, the table is as it was",
            _ => "nothing was committed; call it again for the rest",
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Which operation it was.
    pub operation: Operation,
    /// The table's location.
    pub table: String,
    /// The numbers.
    pub metrics: Metrics,
    /// Every file of the plan, and what became of it.
    pub files: Vec<FileOutcome>,
    /// Every snapshot, and what was decided (expiry).
    pub snapshots: Vec<SnapshotDecision>,
    /// Every branch and tag that the table had, and what was decided (expiry).
    pub refs: Vec<RefDecision>,
    /// What the operator should know: skipped files, no-op arguments, assumptions.
    pub notices: Vec<String>,
}

/// The files of a dry run whose real run moves instead of deleting.
pub(crate) fn as_quarantined(mut files: Vec<FileOutcome>) -> Vec<FileOutcome> {
    for file in files.iter_mut().filter(|file| file.status == FileStatus::Planned) {
        file.status = FileStatus::Quarantined;
    }
    files
}

impl Report {
    /// Takes up what was done of earlier runs on the way.
    pub(crate) fn absorb(&mut self, finished: Finished) {
        self.metrics.count_files(&finished.files);
        self.files.extend(finished.files);
        self.notices.extend(finished.notices);
    }

    /// Fails if any file could not be deleted; all others were tried. A dry run tries none, and never fails so.
    ///
    /// # Errors
    /// [`Error::PartialDelete`] with the number of files left and the first failure.
    pub fn require_complete(&self) -> Result<()> {
        let mut failures = self.files.iter().filter_map(|file| match &file.status {
            FileStatus::Failed(why) => Some(format!("{}: {why}", file.path)),
            _ => None,
        });
        let Some(first) = failures.next().filter(|_| !self.metrics.dry_run) else { return Ok(()) };
        let failed = 1 + failures.count() as u64;
        if self.operation == Operation::RestoreQuarantinedFiles {
            return Err(Error::NotReturned { table: self.table.clone(), failed, first });
        }
        let planned = self.files.iter().filter(|file| !matches!(file.status, FileStatus::Spared(_))).count() as u64;
        Err(Error::PartialDelete { failed, planned, committed: self.operation.committed(), first })
    }
}

impl SkipReason {
    /// The reason in words, for the `reason` column.
    pub fn explanation(self) -> &'static str {
        match self {
            SkipReason::External => "outside the table's own roots",
            SkipReason::UnsupportedName => "its name can't be expressed exactly in the store",
            SkipReason::PrefixMismatch => "its path is live under another scheme or authority",
            SkipReason::LiveAgain => "became live again after the plan was made",
            SkipReason::TooYoung => "younger than older_than",
            SkipReason::UnknownAge => "no believable modification time",
            SkipReason::Hidden => "hidden name",
            SkipReason::LeftBehind => "delete_files => false: left for remove_orphan_files",
            SkipReason::Foreign => "outside the table's own folders in its location",
            SkipReason::Deferred => "goes when the recovery window has passed",
            SkipReason::AwaitsPurge => "another run deals with it, or put its deletion off",
            SkipReason::Recoverable => "became unreferenced within the recovery window",
        }
    }
}

impl Metrics {
    /// Counts a file that is gone, or would be.
    pub(crate) fn count_deleted(&mut self, kind: FileKind, bytes: Option<u64>) {
        let count = match kind {
            FileKind::Data => &mut self.deleted_data_files_count,
            FileKind::PositionDeletes => &mut self.deleted_position_delete_files_count,
            FileKind::DeletionVector => {
                self.deleted_dv_files_count += 1;
                &mut self.deleted_position_delete_files_count
            }
            FileKind::EqualityDeletes => &mut self.deleted_equality_delete_files_count,
            FileKind::Manifest => &mut self.deleted_manifest_files_count,
            FileKind::ManifestList => &mut self.deleted_manifest_lists_count,
            FileKind::Statistics | FileKind::PartitionStatistics => &mut self.deleted_statistics_files_count,
            FileKind::Metadata => &mut self.deleted_metadata_files_count,
            FileKind::Unknown => &mut self.deleted_unknown_files_count,
        };
        *count += 1;
        self.deleted_files_count += 1;
        self.deleted_bytes = self.deleted_bytes.saturating_add(bytes.unwrap_or(0));
    }

    /// Counts a file that was left alone.
    pub(crate) fn count_skipped(&mut self, why: SkipReason) {
        let count = match why {
            SkipReason::External => &mut self.skipped_external_count,
            SkipReason::UnsupportedName => &mut self.skipped_unsupported_name_count,
            SkipReason::PrefixMismatch => &mut self.skipped_prefix_mismatch_count,
            SkipReason::LiveAgain => &mut self.skipped_live_again_count,
            SkipReason::TooYoung => &mut self.skipped_too_young_count,
            SkipReason::UnknownAge => &mut self.skipped_unknown_age_count,
            SkipReason::Hidden => &mut self.skipped_hidden_count,
            SkipReason::LeftBehind => &mut self.left_behind_files_count,
            SkipReason::Foreign => &mut self.skipped_foreign_files_count,
            SkipReason::Deferred => &mut self.deferred_files_count,
            SkipReason::AwaitsPurge | SkipReason::Recoverable => &mut self.skipped_recoverable_files_count,
        };
        *count += 1;
    }

    /// Counts what became of every file of a plan.
    pub(crate) fn count_files(&mut self, files: &[FileOutcome]) {
        for file in files {
            match &file.status {
                FileStatus::Planned | FileStatus::Deleted => self.count_deleted(file.kind, file.bytes),
                FileStatus::Missing => self.already_missing_files_count += 1,
                FileStatus::Spared(why) => {
                    self.count_skipped(*why);
                    if *why == SkipReason::Deferred {
                        self.deferred_bytes = self.deferred_bytes.saturating_add(file.bytes.unwrap_or(0));
                    }
                }
                FileStatus::Failed(_) => self.failed_deletions_count += 1,
                FileStatus::Quarantined => {
                    self.quarantined_files_count += 1;
                    self.quarantined_bytes = self.quarantined_bytes.saturating_add(file.bytes.unwrap_or(0));
                }
                FileStatus::Returned => self.returned_files_count += 1,
            }
        }
    }
}
