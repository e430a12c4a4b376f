//! The cheap look at the current snapshot: its summary, and what its manifest list says of its manifests. No manifest is read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use datafusion::common::internal_datafusion_err;
use datafusion::execution::TaskContext;

use super::known::{Known, files_of};
use crate::error::Result;
use crate::scan::{
    EntryCounts, EntryManifest, Inherited, ManifestListRef, ManifestListScanExec, ManifestRef, OnUnreadable,
    collect_partitioned,
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

/// A manifest with all that its list says of it.
#[derive(Debug, Clone)]
pub(super) struct ListedManifest {
    /// It holds delete files. The manifests that v1 metadata lists itself hold none.
    pub(super) is_deletes: bool,
    pub(super) entry: EntryManifest,
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
            let listed = listed(&batch)?;
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
        self.known(self.manifests.iter().map(ListedManifest::bytes).sum_of())
    }

    /// How many manifests fewer there would be if those of one kind and partition spec were merged into ones of this size.
    pub(super) fn mergeable(&self, target_bytes: i64) -> Known {
        let mut groups: BTreeMap<(bool, Option<i32>), (i64, Option<i64>)> = BTreeMap::new();
        for manifest in &self.manifests {
            let (count, bytes) =
                groups.entry((manifest.is_deletes, manifest.entry.inherited.partition_spec_id)).or_insert((0, Some(0)));
            *count += 1;
            *bytes = bytes.zip(manifest.bytes()).map(|(sum, bytes)| sum.saturating_add(bytes));
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

impl ListedManifest {
    fn bytes(&self) -> Option<i64> {
        self.entry.manifest.length.filter(|length| *length >= 0)
    }
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

/// The manifests in a batch of the list's scan.
fn listed(batch: &RecordBatch) -> Result<Vec<ListedManifest>> {
    let paths = column(batch, "manifest_path")?.as_string::<i32>();
    let encrypted = column(batch, "encrypted")?.as_boolean();
    let long = |name| Ok::<_, crate::Error>(column(batch, name)?.as_primitive::<Int64Type>());
    let int = |name| Ok::<_, crate::Error>(column(batch, name)?.as_primitive::<Int32Type>());
    let (lengths, added_by) = (long("manifest_length")?, long("added_snapshot_id")?);
    let (sequence_numbers, first_row_ids) = (long("sequence_number")?, long("first_row_id")?);
    let (specs, contents, added) = (int("partition_spec_id")?, int("content")?, int("added_files_count")?);
    let (existing, deleted) = (int("existing_files_count")?, int("deleted_files_count")?);
    let manifest = |row| {
        let expected =
            EntryCounts { added: value(added, row), existing: value(existing, row), deleted: value(deleted, row) };
        let manifest = ManifestRef {
            location: paths.value(row).to_string(),
            length: value(lengths, row),
            expected,
            encrypted: encrypted.value(row),
        };
        let inherited = Inherited {
            added_snapshot_id: value(added_by, row),
            sequence_number: value(sequence_numbers, row),
            partition_spec_id: value(specs, row),
            first_row_id: value(first_row_ids, row),
        };
        ListedManifest { is_deletes: contents.value(row) != 0, entry: EntryManifest { manifest, inherited } }
    };
    Ok((0..batch.num_rows()).map(manifest).collect())
}

pub(super) fn value<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

pub(super) fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    Ok(batch.column_by_name(name).ok_or_else(|| internal_datafusion_err!("a plan has no column {name}"))?)
}
