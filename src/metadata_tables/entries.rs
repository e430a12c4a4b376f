//! The rows of the tables that come from manifests: files, entries and partitions.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StructArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_datafusion_err;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;

use super::metrics::READABLE_METRICS;
use super::schema::DATA_FILE;
use super::{MetadataTable, metrics};
use crate::error::Result;
use crate::scan::{
    EntryCounts, EntryField, EntryFields, EntryScan, EntryScanExec, ListedManifest, ManifestListRef,
    ManifestListScanExec, OnUnreadable, collect_partitioned, column, listed_manifests,
};
use crate::table::{LeafColumn, PartitionType, Snapshot};

/// A scan of distinct manifests.
pub(super) fn scan(
    manifests: Vec<ListedManifest>,
    partition: PartitionType,
    fields: EntryFields,
    live_only: bool,
    partitions: usize,
) -> Arc<dyn ExecutionPlan> {
    let manifests = manifests.into_iter().map(|manifest| manifest.entry).collect();
    let scan = EntryScan { manifests, partition, fields, live_only };
    Arc::new(EntryScanExec::new(scan, partitions, OnUnreadable::Fail))
}

/// The rows of all partitions of a scan.
pub(super) fn merged(scan: Arc<dyn ExecutionPlan>, task: &Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
    Ok(CoalescePartitionsExec::new(scan).execute(0, Arc::clone(task))?)
}

/// The distinct manifests that the lists of snapshots name. Each list is read once.
///
/// # Errors
/// When a list can't be read.
pub(super) async fn manifests_of(snapshots: &[&Snapshot], task: &Arc<TaskContext>) -> Result<Vec<ListedManifest>> {
    let lists = snapshots.iter().map(|snapshot| ManifestListRef::of(snapshot)).collect();
    let partitions = task.session_config().target_partitions();
    let scan = ManifestListScanExec::new(lists, partitions, OnUnreadable::Fail);
    let (mut manifests, mut known) = (vec![], HashSet::new());
    collect_partitioned(Arc::new(scan), Arc::clone(task), |batch| {
        let listed = listed_manifests(&batch)?;
        manifests.extend(listed.into_iter().filter(|one| known.insert(one.entry.manifest.location.clone())));
        Ok(())
    })
    .await?;
    Ok(manifests)
}

/// Keeps manifests until they have so many rows, as their lists say. Those that say nothing count for none.
pub(super) fn keep_first_rows(manifests: &mut Vec<ListedManifest>, rows: usize, live_only: bool) {
    let mut left = rows as u64;
    manifests.retain(|manifest| {
        let is_needed = left > 0;
        let EntryCounts { added, existing, deleted } = manifest.entry.manifest.expected;
        let counts = [added, existing, deleted.filter(|_| !live_only)].into_iter().flatten();
        left = counts.fold(left, |left, count| left.saturating_sub(u64::from(count.max(0).unsigned_abs())));
        is_needed
    });
}

/// A field of files.
pub(super) fn child<'f>(files: &'f StructArray, name: &str) -> Result<&'f ArrayRef> {
    Ok(files.column_by_name(name).ok_or_else(|| internal_datafusion_err!("the scan has no field {name} of files"))?)
}

/// Which fields must be decoded for these columns of a table.
pub(super) fn fields_for(table: MetadataTable, columns: &SchemaRef) -> EntryFields {
    let has = |name: &str| columns.column_with_name(name).is_some();
    let wanted = |field: &EntryField| match (table.is_of_entries(), field.is_of_file()) {
        (true, true) => has(DATA_FILE),
        (false, false) => false,
        _ => has(field.name()),
    };
    let metrics = metrics::fields().filter(|_| has(READABLE_METRICS));
    EntryField::ALL.into_iter().filter(wanted).chain(metrics).collect()
}

/// The wanted columns from a batch of the scan, in batches that may be smaller. `leaves`: the table's own columns.
pub(super) fn columns_of(
    table: MetadataTable,
    batch: RecordBatch,
    columns: SchemaRef,
    leaves: Arc<[LeafColumn]>,
) -> impl Iterator<Item = Result<RecordBatch>> {
    let most = match columns.column_with_name(READABLE_METRICS) {
        Some(_) => metrics::rows_at_once(&leaves),
        None => batch.num_rows().max(1),
    };
    let starts = (0..batch.num_rows()).step_by(most);
    starts.map(move |start| {
        let rows = batch.slice(start, most.min(batch.num_rows() - start));
        let of_name = |name: &str| match name {
            READABLE_METRICS => metrics::readable(column(&rows, DATA_FILE)?.as_struct(), &leaves),
            _ if table.is_of_entries() => column(&rows, name).cloned(),
            _ => child(column(&rows, DATA_FILE)?.as_struct(), name).cloned(),
        };
        let arrays = columns.fields().iter().map(|field| of_name(field.name())).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&columns), arrays, &options)?)
    })
}
