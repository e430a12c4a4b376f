//! The shapes of a report as record batches.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int64Array, Int64Builder, RecordBatch, StringArray, StringBuilder, TimestampMillisecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{FileOutcome, FileStatus, Operation, Output, Report};
use crate::error::Result;
use crate::retention::SnapshotDecision;

/// How many rows a batch has at most.
const ROWS: usize = 8192;

/// The counts of Spark's `expire_snapshots` row, in its order.
const SPARK_COLUMNS: [&str; 6] = [
    "deleted_data_files_count",
    "deleted_position_delete_files_count",
    "deleted_equality_delete_files_count",
    "deleted_manifest_files_count",
    "deleted_manifest_lists_count",
    "deleted_statistics_files_count",
];

impl Output {
    /// The schema of the rows, known before anything runs.
    pub fn schema(self, operation: Operation) -> SchemaRef {
        let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
        let long = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
        let time = |name: &str, nullable| {
            Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), nullable)
        };
        let fields = match (self, operation) {
            (Output::Metrics, _) => vec![text("metric_name", false), long("metric_value", false)],
            (Output::Columns, Operation::ExpireSnapshots) => {
                SPARK_COLUMNS.iter().map(|name| long(name, false)).collect()
            }
            (Output::Columns, Operation::RemoveOrphanFiles) => vec![text("orphan_file_location", false)],
            (Output::Columns, _) => SPARK_COLUMNS.iter().map(|name| long(name, false)).collect(),
            (Output::Files, _) => vec![
                text("file_path", false),
                text("content", false),
                long("file_size_in_bytes", true),
                time("last_modified", true),
                long("snapshot_id", true),
                text("reason", false),
                text("status", false),
                text("error", true),
            ],
            (Output::Snapshots, _) => vec![
                long("snapshot_id", false),
                time("committed_at", false),
                text("decision", false),
                text("reason", false),
            ],
        };
        Arc::new(Schema::new(fields))
    }
}

impl Report {
    /// The report in one of its shapes: at least one batch, each of a bounded number of rows.
    pub fn to_batches(&self, output: Output) -> Result<Vec<RecordBatch>> {
        let schema = output.schema(self.operation);
        let batch = |columns: Vec<ArrayRef>| Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?);
        match (output, self.operation) {
            (Output::Metrics, _) => Ok(vec![batch(self.metric_columns())?]),
            (Output::Columns, operation) if operation != Operation::RemoveOrphanFiles => {
                Ok(vec![batch(self.spark_columns())?])
            }
            (Output::Columns, _) => {
                let is_orphan = |file: &&FileOutcome| matches!(file.status, FileStatus::Planned | FileStatus::Deleted);
                let orphans: Vec<&str> = self.files.iter().filter(is_orphan).map(|file| file.path.as_str()).collect();
                let column = |paths: &[&str]| Arc::new(StringArray::from_iter_values(paths)) as ArrayRef;
                chunks(&orphans).map(|paths| batch(vec![column(paths)])).collect()
            }
            (Output::Files, _) => chunks(&self.files).map(|files| batch(file_columns(files))).collect(),
            (Output::Snapshots, _) => chunks(&self.snapshots).map(|some| batch(snapshot_columns(some))).collect(),
        }
    }

    fn metric_columns(&self) -> Vec<ArrayRef> {
        let (names, values): (Vec<_>, Vec<_>) = self.metrics.rows().into_iter().unzip();
        vec![Arc::new(StringArray::from(names)), Arc::new(Int64Array::from(values))]
    }

    fn spark_columns(&self) -> Vec<ArrayRef> {
        let rows = self.metrics.rows();
        let value = |name: &str| rows.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        SPARK_COLUMNS.iter().map(|name| Arc::new(Int64Array::from(vec![value(name)])) as ArrayRef).collect()
    }
}

/// Slices of at most [`ROWS`] elements; one empty slice for nothing.
fn chunks<T>(rows: &[T]) -> impl Iterator<Item = &[T]> {
    let empty = rows.is_empty().then_some(rows);
    empty.into_iter().chain(rows.chunks(ROWS))
}

fn file_columns(files: &[FileOutcome]) -> Vec<ArrayRef> {
    let rows = files.len();
    let (mut paths, mut kinds) = (StringBuilder::with_capacity(rows, rows * 64), StringBuilder::new());
    let (mut sizes, mut snapshots) = (Int64Builder::new(), Int64Builder::new());
    let mut modified = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let (mut reasons, mut statuses, mut errors) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
    for file in files {
        paths.append_value(&file.path);
        kinds.append_value(file.kind.as_str());
        sizes.append_option(file.bytes.and_then(|bytes| i64::try_from(bytes).ok()));
        modified.append_option(file.modified_ms);
        snapshots.append_option(file.snapshot_id);
        let error = match &file.status {
            FileStatus::Failed(error) => Some(error),
            _ => None,
        };
        match &file.status {
            FileStatus::Spared(why) => reasons.append_value(why.explanation()),
            _ => reasons.append_value(&file.reason),
        }
        statuses.append_value(file.status.as_str());
        errors.append_option(error);
    }
    vec![
        Arc::new(paths.finish()),
        Arc::new(kinds.finish()),
        Arc::new(sizes.finish()),
        Arc::new(modified.finish()),
        Arc::new(snapshots.finish()),
        Arc::new(reasons.finish()),
        Arc::new(statuses.finish()),
        Arc::new(errors.finish()),
    ]
}

fn snapshot_columns(snapshots: &[SnapshotDecision]) -> Vec<ArrayRef> {
    let mut committed = TimestampMillisecondBuilder::new().with_timezone("UTC");
    snapshots.iter().for_each(|s| committed.append_value(s.timestamp_ms));
    let decision = |s: &SnapshotDecision| if s.reason.expires() { "expire" } else { "keep" };
    vec![
        Arc::new(Int64Array::from_iter_values(snapshots.iter().map(|s| s.snapshot_id))),
        Arc::new(committed.finish()),
        Arc::new(StringArray::from_iter_values(snapshots.iter().map(decision))),
        Arc::new(StringArray::from_iter_values(snapshots.iter().map(|s| s.reason.to_string()))),
    ]
}
