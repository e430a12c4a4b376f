//! The cheap look at the current snapshot: its summary, and what its manifest list says of its manifests. No manifest is read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::known::{Known, files_of};
use crate::error::Result;
use crate::scan::{
    EntryCounts, ListedManifest, ManifestListRef, ManifestListScanExec, OnUnreadable, collect_partitioned,
    listed_manifests,
};
use crate::table::Snapshot;

/// The manifests of a snapshot, as its manifest list has them.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Each once.
    pub(super) manifests: Vec<ListedManifest>,
    /// Why the list can't be read; then there are no manifests here.
    pub(super) unreadable: Option<String>,
}

impl Listed {
    /// Reads the list of the current snapshot; a table without one has no manifests.
    ///
    /// # Errors
    /// Every failure of the store. A list that is missing or malformed is noted.
    pub(super) async fn read(current: Option<&Snapshot>, task: &Arc<TaskContext>) -> Result<Self> {
        let Some(current) = current else { return Ok(Self::default()) };
        let lists = vec![ManifestListRef::of(current)];
        let scan = ManifestListScanExec::with_all_entries(lists, 1, OnUnreadable::Skip);
        let log = scan.log();
        let (mut manifests, mut known) = (vec![], HashSet::new());
        collect_partitioned(Arc::new(scan), Arc::clone(task), |batch| {
            let listed = listed_manifests(&batch)?;
            manifests.extend(listed.into_iter().filter(|m| known.insert(m.entry.manifest.location.clone())));
            Ok(())
        })
        .await?;
        let unreadable = log.unreadable().into_iter().next().map(|file| file.why);
        Ok(Self { manifests, unreadable })
    }

    /// How many live entries the manifests of data files or those of delete files have.
    pub(super) fn live_files(&self, of_deletes: bool) -> Known {
        let of_kind = self.manifests.iter().filter(|manifest| manifest.is_deletes == of_deletes);
        let counts = of_kind.map(|manifest| {
            let EntryCounts { added, existing, .. } = manifest.entry.manifest.expected;
            Some(count(added)?.saturating_add(count(existing)?))
        });
        self.known(counts.sum_of())
    }

    /// How many entries only say that a file was removed.
    pub(super) fn deleted_entries(&self) -> Known {
        self.known(self.manifests.iter().map(|manifest| count(manifest.entry.manifest.expected.deleted)).sum_of())
    }

    /// How many manifests there are.
    pub(super) fn count(&self) -> Known {
        self.known(i64::try_from(self.manifests.len()).ok())
    }

    /// How many bytes they have.
    pub(super) fn bytes(&self) -> Known {
        self.known(self.manifests.iter().map(bytes_of).sum_of())
    }

    /// How many manifests fewer there would be if those of one kind and partition spec were merged into ones of this size.
    pub(super) fn mergeable(&self, target_bytes: i64) -> Known {
        let mut groups: BTreeMap<(bool, Option<i32>), (i64, Option<i64>)> = BTreeMap::new();
        for manifest in &self.manifests {
            let (count, bytes) =
                groups.entry((manifest.is_deletes, manifest.entry.inherited.partition_spec_id)).or_insert((0, Some(0)));
            *count += 1;
            *bytes = bytes.zip(bytes_of(manifest)).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        let saved = groups.into_values().map(|(count, bytes)| Some((count - files_of(bytes?, target_bytes)).max(0)));
        // Sizes after merging depend on how well entries compress together.
        match self.known(saved.sum_of()) {
            Known::Exact(saved) if saved > 0 => Known::Estimate(saved),
            other => other,
        }
    }

    fn known(&self, number: Option<i64>) -> Known {
        number.filter(|_| self.unreadable.is_none()).map_or(Known::Unknown, Known::Exact)
    }
}

/// A manifest's size.
fn bytes_of(manifest: &ListedManifest) -> Option<i64> {
    manifest.entry.manifest.length.filter(|length| *length >= 0)
}

/// A count in a manifest list. Negative ones say nothing.
fn count(count: Option<i32>) -> Option<i64> {
    count.filter(|count| *count >= 0).map(i64::from)
}

trait SumOf: Iterator<Item = Option<i64>> + Sized {
    /// The sum, unless one is missing.
    fn sum_of(mut self) -> Option<i64> {
        self.try_fold(0_i64, |sum, number| Some(sum.saturating_add(number?)))
    }
}

impl<I: Iterator<Item = Option<i64>>> SumOf for I {}
