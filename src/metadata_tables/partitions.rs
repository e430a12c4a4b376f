//! The rows of `iceberg_partitions`: what each partition of a snapshot has, summed over its live files.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Int32Type, Int64Type, SchemaRef};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::TryStreamExt;

use super::rows::times;
use super::schema::DATA_FILE;
use crate::error::Result;
use crate::scan::{EntryField, EntryFields, column, partition_fields, value};
use crate::table::{PartitionType, TableMetadata};

/// What is read of each entry.
pub(super) fn fields() -> EntryFields {
    let fields = [
        EntryField::SnapshotId,
        EntryField::Content,
        EntryField::SpecId,
        EntryField::Partition,
        EntryField::RecordCount,
        EntryField::FileSizeInBytes,
    ];
    fields.into_iter().collect()
}

/// One partition. Its columns' names say what the counts are.
#[derive(Debug, Clone, Default)]
struct Partition {
    record_count: i64,
    file_count: i32,
    total_data_file_size_in_bytes: i64,
    position_delete_record_count: i64,
    position_delete_file_count: i32,
    equality_delete_record_count: i64,
    equality_delete_file_count: i32,
    /// The newest of the snapshots that are still there and have added one of its files, by time (ms) and id, and the spec of that file.
    updated: (Option<(i64, i64)>, i32),
}

/// An entry of a live file.
struct Entry {
    content: i32,
    records: i64,
    bytes: i64,
    /// When its snapshot was made, if that is still there, and its id.
    snapshot: Option<(i64, i64)>,
    spec_id: i32,
}

impl Partition {
    fn add(&mut self, entry: &Entry) {
        let (records, files) = match entry.content {
            0 => {
                self.total_data_file_size_in_bytes = self.total_data_file_size_in_bytes.saturating_add(entry.bytes);
                (&mut self.record_count, &mut self.file_count)
            }
            1 => (&mut self.position_delete_record_count, &mut self.position_delete_file_count),
            _ => (&mut self.equality_delete_record_count, &mut self.equality_delete_file_count),
        };
        *records = records.saturating_add(entry.records);
        *files = files.saturating_add(1);
        self.updated = self.updated.max((entry.snapshot, entry.spec_id));
    }
}

/// Sums up the entries of a scan of [`fields`]. One row a partition, in their order; an unpartitioned table with files is one partition.
///
/// # Errors
/// Those of the scan, and when the session's memory limit is too low for all partitions.
pub(super) async fn rows(
    metadata: &TableMetadata,
    partition: &PartitionType,
    mut entries: SendableRecordBatchStream,
    schema: SchemaRef,
    task: &TaskContext,
) -> Result<RecordBatch> {
    let mut partitions = Partitions::new(partition, task)?;
    while let Some(batch) = entries.try_next().await? {
        partitions.add(metadata, &batch)?;
    }
    partitions.finish(schema)
}

struct Partitions {
    values: DataType,
    /// Makes of the values of the partition fields something that can be compared. There is none where there are no fields.
    converter: Option<RowConverter>,
    /// By these values.
    partitions: HashMap<Option<OwnedRow>, Partition>,
    memory: MemoryReservation,
}

impl Partitions {
    /// What a partition takes besides its values.
    const OVERHEAD: usize = 2 * size_of::<Partition>();

    fn new(partition: &PartitionType, task: &TaskContext) -> Result<Self> {
        let values = DataType::Struct(partition_fields(partition));
        let converter = match partition.is_empty() {
            true => None,
            false => Some(RowConverter::new(vec![SortField::new(values.clone())])?),
        };
        let memory = MemoryConsumer::new("iceberg_partitions").register(task.memory_pool());
        Ok(Self { values, converter, partitions: HashMap::new(), memory })
    }

    fn add(&mut self, metadata: &TableMetadata, batch: &RecordBatch) -> Result<()> {
        let Self { converter, partitions, memory, .. } = self;
        let files = column(batch, DATA_FILE)?.as_struct();
        let files = RecordBatch::from(files.clone());
        let keys = match converter {
            Some(converter) => Some(converter.convert_columns(&[Arc::clone(column(&files, "partition")?)])?),
            None => None,
        };
        let snapshots = column(batch, "snapshot_id")?.as_primitive::<Int64Type>();
        let contents = column(&files, "content")?.as_primitive::<Int32Type>();
        let specs = column(&files, "spec_id")?.as_primitive::<Int32Type>();
        let records = column(&files, "record_count")?.as_primitive::<Int64Type>();
        let bytes = column(&files, "file_size_in_bytes")?.as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let snapshot = value(snapshots, row).and_then(|id| metadata.snapshot(id));
            let entry = Entry {
                content: contents.value(row),
                records: records.value(row),
                bytes: bytes.value(row),
                snapshot: snapshot.map(|snapshot| (snapshot.timestamp_ms, snapshot.snapshot_id)),
                spec_id: specs.value(row),
            };
            let key = keys.as_ref().map(|keys| keys.row(row).owned());
            let key_bytes = key.as_ref().map_or(0, |key| key.row().data().len());
            let before = partitions.len();
            partitions.entry(key).or_default().add(&entry);
            if partitions.len() > before {
                memory.try_grow(key_bytes + Self::OVERHEAD)?;
            }
        }
        Ok(())
    }

    fn finish(self, schema: SchemaRef) -> Result<RecordBatch> {
        let mut partitions: Vec<_> = self.partitions.into_iter().collect();
        partitions.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut columns: Vec<ArrayRef> = vec![];
        if let Some(converter) = self.converter {
            let keys = partitions.iter().filter_map(|(key, _)| key.as_ref().map(OwnedRow::row));
            let values = converter.convert_rows(keys)?.pop();
            columns.push(values.unwrap_or_else(|| new_empty_array(&self.values)));
            columns.push(Arc::new(Int32Array::from_iter_values(partitions.iter().map(|(_, part)| part.updated.1))));
        }
        let long = |of: fn(&Partition) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(partitions.iter().map(|(_, partition)| of(partition))))
        };
        let int = |of: fn(&Partition) -> i32| -> ArrayRef {
            Arc::new(Int32Array::from_iter_values(partitions.iter().map(|(_, partition)| of(partition))))
        };
        let updated = || partitions.iter().map(|(_, partition)| partition.updated.0);
        columns.extend([
            long(|partition| partition.record_count),
            int(|partition| partition.file_count),
            long(|partition| partition.total_data_file_size_in_bytes),
            long(|partition| partition.position_delete_record_count),
            int(|partition| partition.position_delete_file_count),
            long(|partition| partition.equality_delete_record_count),
            int(|partition| partition.equality_delete_file_count),
            times(updated().map(|updated| updated.map(|(ms, _)| ms))),
            Arc::new(updated().map(|updated| updated.map(|(_, id)| id)).collect::<Int64Array>()),
        ]);
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}
