//! The rows of the tables that come from manifests: files, entries and partitions.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StructArray,
};
use datafusion::arrow::datatypes::{Int32Type, Int64Type, SchemaRef};
use datafusion::common::internal_datafusion_err;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;

use super::metrics::READABLE_METRICS;
use super::schema::DATA_FILE;
use super::{MetadataTable, metrics};
use crate::error::Result;
use crate::scan::{
    EntryCounts, EntryField, EntryFields, EntryManifest, EntryScan, EntryScanExec, Inherited, ManifestListRef,
    ManifestListScanExec, ManifestRef, OnUnreadable, collect_partitioned,
};
use crate::table::{LeafColumn, PartitionType, Snapshot};

/// A scan of the manifests of some snapshots, each manifest once.
///
/// # Errors
/// When a manifest list can't be read. What is wrong with manifests is found by the stream.
pub(super) async fn scan(
    snapshots: &[&Snapshot],
    partition: PartitionType,
    fields: EntryFields,
    live_only: bool,
    task: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let manifests = manifests_of(snapshots, task).await?;
    let scan = EntryScan { manifests, partition, fields, live_only };
    let partitions = task.session_config().target_partitions();
    let scan: Arc<dyn ExecutionPlan> = Arc::new(EntryScanExec::new(scan, partitions, OnUnreadable::Fail));
    Ok(CoalescePartitionsExec::new(scan).execute(0, Arc::clone(task))?)
}

/// The distinct manifests that the lists of snapshots name. Each list is read once.
async fn manifests_of(snapshots: &[&Snapshot], task: &Arc<TaskContext>) -> Result<Vec<EntryManifest>> {
    let lists = snapshots.iter().map(|snapshot| ManifestListRef::of(snapshot)).collect();
    let partitions = task.session_config().target_partitions();
    let scan = ManifestListScanExec::new(lists, partitions, OnUnreadable::Fail);
    let (mut manifests, mut known) = (vec![], HashSet::new());
    collect_partitioned(Arc::new(scan), Arc::clone(task), |batch| {
        for manifest in listed(&batch)? {
            if known.insert(manifest.manifest.location.clone()) {
                manifests.push(manifest);
            }
        }
        Ok(())
    })
    .await?;
    Ok(manifests)
}

/// The manifests in a batch of the lists' scan.
fn listed(batch: &RecordBatch) -> Result<Vec<EntryManifest>> {
    let paths = column(batch, "manifest_path")?.as_string::<i32>();
    let encrypted = column(batch, "encrypted")?.as_boolean();
    let long = |name| Ok::<_, crate::Error>(column(batch, name)?.as_primitive::<Int64Type>());
    let int = |name| Ok::<_, crate::Error>(column(batch, name)?.as_primitive::<Int32Type>());
    let (lengths, added_by) = (long("manifest_length")?, long("added_snapshot_id")?);
    let (sequence_numbers, first_row_ids) = (long("sequence_number")?, long("first_row_id")?);
    let (specs, added) = (int("partition_spec_id")?, int("added_files_count")?);
    let (existing, deleted) = (int("existing_files_count")?, int("deleted_files_count")?);
    let manifest = |row| EntryManifest {
        manifest: ManifestRef {
            location: paths.value(row).to_string(),
            length: value(lengths, row),
            expected: EntryCounts {
                added: value(added, row),
                existing: value(existing, row),
                deleted: value(deleted, row),
            },
            encrypted: encrypted.value(row),
        },
        inherited: Inherited {
            added_snapshot_id: value(added_by, row),
            sequence_number: value(sequence_numbers, row),
            partition_spec_id: value(specs, row),
            first_row_id: value(first_row_ids, row),
        },
    };
    Ok((0..batch.num_rows()).map(manifest).collect())
}

pub(super) fn value<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

pub(super) fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    Ok(batch.column_by_name(name).ok_or_else(|| internal_datafusion_err!("the scan has no column {name}"))?)
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
