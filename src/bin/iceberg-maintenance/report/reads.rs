//! What a page shows besides the run's own report: read by SQL from the metadata tables, in the same session.
//!
//! What could be much (files) is summed up by the query engine, which uses the disk where memory is short; here only sums
//! arrive.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, RecordBatch, StructArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, TimeUnit, TimestampMillisecondType};
use datafusion::arrow::util::display::array_value_to_string;

use super::read_context::{self, PLANNED};
use super::run::Sum;
use crate::failure::Failure;
use crate::operations::quoted;
use crate::session::Session;

/// How many partitions a page shows.
const MOST_PARTITIONS: usize = 10;

/// When snapshots were made, ms since the epoch, and by which operation.
pub(super) type Snapshots = HashMap<i64, (i64, Option<String>)>;

/// Files that the metadata names, of one kind and added by one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveFiles {
    /// As in the `content` column.
    pub kind: String,
    pub added_by: Option<i64>,
    /// No snapshot needs them after the run that is planned.
    pub is_planned: bool,
    pub sum: Sum,
}

/// The largest partitions of the current snapshot.
#[derive(Debug, Clone, Default)]
pub(super) struct Partitions {
    pub largest: Vec<Partition>,
    /// How many there are, and what they have together.
    pub count: u64,
    pub total: Sum,
}

#[derive(Debug, Clone)]
pub(super) struct Partition {
    pub name: String,
    pub records: u64,
    pub data: Sum,
    pub delete_files: u64,
}

/// The snapshots that the table has.
pub(super) fn snapshots(session: &Session, table: &str) -> Result<Snapshots, Failure> {
    let sql = format!("SELECT snapshot_id, committed_at, operation FROM iceberg_snapshots({})", quoted(table));
    let mut found = Snapshots::new();
    for batch in rows(session, &sql)? {
        let (ids, operations) = (longs(&batch, 0)?, texts(&batch, 2)?);
        let times = converted(&batch, 1, &DataType::Timestamp(TimeUnit::Millisecond, None))?;
        let times = times.as_primitive::<TimestampMillisecondType>();
        for row in 0..batch.num_rows() {
            if let Some(id) = ids[row] {
                found.insert(id, (times.value(row), operations[row].clone()));
            }
        }
    }
    Ok(found)
}

/// Sums of all files that some snapshot needs, manifests included; each file counts once. `planned` are the paths
/// that a dry run plans something for.
pub(super) fn live_files(
    session: &Session,
    table: &str,
    planned: Option<&LargeStringArray>,
) -> Result<Vec<LiveFiles>, Failure> {
    let planned = planned.filter(|paths| !paths.is_empty());
    let context = read_context::of(session.context(), planned)?;
    let batches = session.rows_in(&context, &live_files_sql(table, planned.is_some()))?;
    let mut found = vec![];
    for batch in batches {
        let (kinds, added_by) = (texts(&batch, 0)?, longs(&batch, 1)?);
        let planned = batch.column(2).as_boolean_opt().ok_or_else(|| unreadable("no flag"))?;
        let (files, bytes) = (longs(&batch, 3)?, longs(&batch, 4)?);
        found.extend((0..batch.num_rows()).map(|row| LiveFiles {
            kind: kinds[row].clone().unwrap_or_default(),
            added_by: added_by[row],
            is_planned: planned.value(row),
            sum: Sum::of(unsigned(files[row]), unsigned(bytes[row])),
        }));
    }
    Ok(found)
}

/// What is planned is one more group of rows with the same paths, not a join: grouping can use the disk.
fn live_files_sql(table: &str, any_planned: bool) -> String {
    let table = quoted(table);
    let planned = match any_planned {
        true => format!("UNION ALL SELECT path, NULL, NULL, NULL, 1 FROM {PLANNED}"),
        false => String::new(),
    };
    format!(
        "WITH named AS (
           SELECT data_file['file_path'] AS path, data_file['file_size_in_bytes'] AS bytes, snapshot_id AS added_by,
             CASE WHEN data_file['content'] = 0 THEN 'DATA' WHEN data_file['content'] = 2 THEN 'EQUALITY_DELETES'
               WHEN lower(data_file['file_format']) = 'puffin' THEN 'DELETION_VECTOR'
               ELSE 'POSITION_DELETES' END AS kind, 0 AS planned
           FROM iceberg_all_entries({table}) WHERE status <> 2
           UNION ALL
           SELECT path, length, added_snapshot_id, 'MANIFEST', 0 FROM iceberg_all_manifests({table})
           {planned}),
         files AS (
           SELECT max(kind) AS kind, min(added_by) AS added_by, max(bytes) AS bytes, max(planned) AS planned
           FROM named GROUP BY path)
         SELECT kind, added_by, planned = 1 AS is_planned, count(*), CAST(sum(bytes) AS BIGINT)
         FROM files WHERE kind IS NOT NULL GROUP BY 1, 2, 3"
    )
}

/// The largest partitions of the current snapshot; `None` for a table without partitions.
pub(super) fn partitions(session: &Session, table: &str) -> Result<Option<Partitions>, Failure> {
    let of = format!("FROM iceberg_partitions({})", quoted(table));
    let bytes = "total_data_file_size_in_bytes";
    let largest =
        rows(session, &format!("SELECT * {of} ORDER BY {bytes} DESC, file_count DESC LIMIT {MOST_PARTITIONS}"))?;
    if !largest.iter().any(|batch| batch.num_rows() > 0 && batch.column_by_name("partition").is_some()) {
        return Ok(None);
    }
    let sums = format!("SELECT count(*), CAST(sum(file_count) AS BIGINT), CAST(sum({bytes}) AS BIGINT) {of}");
    let sums = rows(session, &sums)?;
    let sums = sums.first().filter(|batch| batch.num_rows() == 1).ok_or_else(|| unreadable("no sums"))?;
    let sum = |column| longs(sums, column).map(|values| unsigned(values[0]));
    let mut partitions = Partitions { largest: vec![], count: sum(0)?, total: Sum::of(sum(1)?, sum(2)?) };
    for batch in &largest {
        let names = batch.column_by_name("partition").and_then(|column| column.as_struct_opt());
        let names = names.ok_or_else(|| unreadable("no partitions"))?;
        let column = |name: &str| -> Result<Vec<u64>, Failure> {
            let index = batch.schema().index_of(name).map_err(unreadable)?;
            Ok(longs(batch, index)?.into_iter().map(unsigned).collect())
        };
        let (records, files, bytes) = (column("record_count")?, column("file_count")?, column(bytes)?);
        let deletes = (column("position_delete_file_count")?, column("equality_delete_file_count")?);
        partitions.largest.extend((0..batch.num_rows()).map(|row| Partition {
            name: partition_name(names, row),
            records: records[row],
            data: Sum::of(files[row], bytes[row]),
            delete_files: deletes.0[row].saturating_add(deletes.1[row]),
        }));
    }
    Ok(Some(partitions))
}

/// The fields of a partition with their values. A field that the partition's spec doesn't have is null, and left out where
/// another has a value.
fn partition_name(partitions: &StructArray, row: usize) -> String {
    let fields = partitions.fields().iter().zip(partitions.columns());
    let named = |(field, values): (&Arc<Field>, &ArrayRef)| {
        let value = array_value_to_string(values, row).unwrap_or_else(|_| "?".into());
        (values.is_valid(row), format!("{} = {}", field.name(), if values.is_valid(row) { &value } else { "null" }))
    };
    let all: Vec<(bool, String)> = fields.map(named).collect();
    let any = all.iter().any(|(is_valid, _)| *is_valid);
    let shown = all.into_iter().filter(|(is_valid, _)| *is_valid || !any).map(|(_, text)| text);
    shown.collect::<Vec<_>>().join(", ")
}

/// The rows of a query that needs nothing besides the table.
fn rows(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, Failure> {
    session.rows_in(&read_context::of(session.context(), None)?, sql)
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

fn unreadable(why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("rows of another shape than expected: {why}"))
}

/// A column as another type.
pub(super) fn converted(batch: &RecordBatch, column: usize, to: &DataType) -> Result<ArrayRef, Failure> {
    cast(batch.column(column), to).map_err(unreadable)
}

/// The values of a column of whole numbers.
pub(super) fn longs(batch: &RecordBatch, column: usize) -> Result<Vec<Option<i64>>, Failure> {
    let values = converted(batch, column, &DataType::Int64)?;
    Ok(values.as_primitive::<Int64Type>().iter().collect())
}

/// The values of a column of texts.
pub(super) fn texts(batch: &RecordBatch, column: usize) -> Result<Vec<Option<String>>, Failure> {
    let values = converted(batch, column, &DataType::Utf8)?;
    Ok(values.as_string::<i32>().iter().map(|text| text.map(str::to_string)).collect())
}
