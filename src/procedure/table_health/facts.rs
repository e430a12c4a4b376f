//! What is known of a table, whichever look told it: the numbers that findings and recommendations are made of.

use super::entries::Question;
use super::fold::{Entries, Kind};
use super::known::{Known, files_of};
use super::listed::Listed;
use super::reclaim::{Expiry, Reclaim};
use crate::catalog::LoadedTable;
use crate::table::{PartitionType, Snapshot, SnapshotSummary, TableMetadata};

/// `write.target-file-size-bytes` when the table doesn't set it.
const DEFAULT_FILE_BYTES: i64 = 512 << 20;
/// `commit.manifest.target-size-bytes` when the table doesn't set it.
const DEFAULT_MANIFEST_BYTES: i64 = 8 << 20;

/// All that one call found out.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) table: LoadedTable,
    pub(super) now_ms: i64,
    /// Data files with fewer bytes are small.
    pub(super) small_file_bytes: i64,
    pub(super) listed: Listed,
    /// Only of an exact look.
    pub(super) entries: Option<Entries>,
    pub(super) expiry: Expiry,
    /// Only where they were asked for.
    pub(super) orphans: Option<Reclaim>,
}

/// A size that the table's properties name. What is no size counts as not set.
fn target(metadata: &TableMetadata, property: &str, default: i64) -> i64 {
    let given = metadata.properties().get(property).and_then(|text| text.trim().parse::<i64>().ok());
    given.filter(|bytes| *bytes > 0).unwrap_or(default)
}

/// How many bytes data files should have.
pub(super) fn file_target(metadata: &TableMetadata) -> i64 {
    target(metadata, "write.target-file-size-bytes", DEFAULT_FILE_BYTES)
}

/// How many bytes manifests should have.
pub(super) fn manifest_target(metadata: &TableMetadata) -> i64 {
    target(metadata, "commit.manifest.target-size-bytes", DEFAULT_MANIFEST_BYTES)
}

/// The current snapshot, if there is one.
pub(super) fn current(metadata: &TableMetadata) -> Option<&Snapshot> {
    metadata.current_snapshot_id().and_then(|id| metadata.snapshot(id))
}

impl Facts {
    pub(super) fn metadata(&self) -> &TableMetadata {
        &self.table.metadata
    }

    /// What is asked of the entries.
    pub(super) fn question(&self) -> Question<'_> {
        Question {
            metadata: self.metadata(),
            listed: &self.listed,
            small_file_bytes: self.small_file_bytes,
            target_bytes: file_target(self.metadata()),
        }
    }

    /// The current snapshot, if there is one.
    pub(super) fn current(&self) -> Option<&Snapshot> {
        current(self.metadata())
    }

    /// What the writer of the current snapshot noted. A table without a snapshot has nothing of anything.
    fn noted(&self, of: impl FnOnce(&SnapshotSummary) -> Option<i64>) -> Known {
        match self.current() {
            None => Known::Exact(0),
            Some(snapshot) => Known::noted(snapshot.summary.as_ref().and_then(of)),
        }
    }

    /// What the entries say, if they were read; an estimate if some of them could not be.
    pub(super) fn measured(&self, of: impl FnOnce(&Entries) -> i64) -> Known {
        match &self.entries {
            None => Known::Unknown,
            Some(entries) => Known::Exact(of(entries)).of_part(entries.unreadable.is_empty()),
        }
    }

    pub(super) fn data_files(&self) -> Known {
        let listed = self.listed.live_files(false).or(self.noted(|summary| summary.total_data_files));
        self.measured(|entries| entries.of(Kind::Data).files).or(listed)
    }

    pub(super) fn delete_files(&self) -> Known {
        let of_deletes = |entries: &Entries| {
            Kind::ALL[1..].iter().fold(0_i64, |sum, kind| sum.saturating_add(entries.of(*kind).files))
        };
        let listed = self.listed.live_files(true).or(self.noted(|summary| summary.total_delete_files));
        self.measured(of_deletes).or(listed)
    }

    /// Of data and delete files.
    pub(super) fn total_bytes(&self) -> Known {
        let sum =
            |entries: &Entries| Kind::ALL.iter().fold(0_i64, |sum, kind| sum.saturating_add(entries.of(*kind).bytes));
        self.measured(sum).or(self.noted(|summary| summary.total_files_size))
    }

    /// Of data files. A summary counts them together with delete files, so that it tells where there are none of these.
    pub(super) fn data_bytes(&self) -> Known {
        let noted = match self.delete_files().value() {
            Some(0) => self.noted(|summary| summary.total_files_size),
            _ => Known::Unknown,
        };
        self.measured(|entries| entries.of(Kind::Data).bytes).or(noted)
    }

    pub(super) fn records(&self) -> Known {
        self.measured(|entries| entries.of(Kind::Data).records).or(self.noted(|summary| summary.total_records))
    }

    pub(super) fn deleted_positions(&self) -> Known {
        let sum = |entries: &Entries| {
            entries.of(Kind::PositionDeletes).records.saturating_add(entries.of(Kind::Vector).records)
        };
        self.measured(sum).or(self.noted(|summary| summary.total_position_deletes))
    }

    pub(super) fn equality_deletes(&self) -> Known {
        let noted = self.noted(|summary| summary.total_equality_deletes);
        self.measured(|entries| entries.of(Kind::EqualityDeletes).records).or(noted)
    }

    /// The smallest (or the largest) data file.
    pub(super) fn extreme(&self, of: impl FnOnce(&Entries) -> Option<i64>) -> Known {
        match &self.entries {
            Some(entries) => match of(entries) {
                Some(bytes) => Known::Exact(bytes).of_part(entries.unreadable.is_empty()),
                None => Known::Nothing,
            },
            None if self.data_files() == Known::Exact(0) => Known::Nothing,
            None => Known::Unknown,
        }
    }

    /// Data files below the threshold.
    pub(super) fn small_files(&self) -> Known {
        let none = if self.data_files() == Known::Exact(0) { Known::Exact(0) } else { Known::Unknown };
        self.measured(|entries| entries.small.files).or(none)
    }

    /// How many data files fewer there would be after compaction. Without the entries only the average tells, and only where there
    /// are no partitions that files can't be merged across.
    pub(super) fn mergeable_files(&self) -> Known {
        if let Some(entries) = &self.entries {
            return Known::Exact(entries.mergeable_files).of_part(entries.unreadable.is_empty());
        }
        let (files, bytes) = (self.data_files(), self.data_bytes());
        if files.value().is_some_and(|files| files < 2) {
            return files.map(|_| 0);
        }
        let (Some(count), Some(sum)) = (files.value(), bytes.value()) else { return Known::Unknown };
        let is_partitioned = PartitionType::of(self.metadata()).map_or(true, |partition| !partition.is_empty());
        if is_partitioned || sum / count.max(1) >= self.small_file_bytes {
            return Known::Unknown;
        }
        Known::Estimate((count - files_of(sum, file_target(self.metadata())).max(1)).max(0))
    }

    /// Delete files that no data file needs.
    pub(super) fn dangling_files(&self) -> Known {
        let none = if self.delete_files() == Known::Exact(0) { Known::Exact(0) } else { Known::Unknown };
        match &self.entries {
            // Which data files are missing where manifests are, nobody knows.
            Some(entries) if !entries.unreadable.is_empty() => Known::Unknown,
            Some(entries) => Known::Exact(entries.dangling.files),
            None => none,
        }
    }

    /// How many manifests fewer there could be.
    pub(super) fn mergeable_manifests(&self) -> Known {
        self.listed.mergeable(manifest_target(self.metadata()))
    }
}
