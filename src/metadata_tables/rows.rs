//! The rows of the tables that come from the metadata alone.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, MapBuilder, MapFieldNames, RecordBatch, StringArray, StringBuilder,
    TimestampMicrosecondArray,
};

use super::MetadataTable;
use super::schema::{self, TableShape, UTC};
use super::snapshot::id_as_of;
use crate::error::Result;
use crate::table::{MetadataLogEntry, RefKind, Snapshot, TableMetadata};

/// All rows; `None` for tables that need more than the metadata.
pub(super) fn of_metadata(table: MetadataTable, metadata: &TableMetadata) -> Result<Option<RecordBatch>> {
    let columns = match table {
        MetadataTable::Snapshots => snapshots(metadata)?,
        MetadataTable::Refs => refs(metadata),
        MetadataTable::History => history(metadata),
        MetadataTable::MetadataLog => metadata_log(metadata),
        MetadataTable::Properties => properties(metadata),
        MetadataTable::Manifests
        | MetadataTable::Files
        | MetadataTable::Entries
        | MetadataTable::AllFiles
        | MetadataTable::AllEntries
        | MetadataTable::AllManifests
        | MetadataTable::Partitions => return Ok(None),
    };
    Ok(Some(RecordBatch::try_new(schema::of(table, &TableShape::default()), columns)?))
}

/// In the order of the metadata.
fn snapshots(metadata: &TableMetadata) -> Result<Vec<ArrayRef>> {
    let snapshots = metadata.snapshots();
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    let mut summaries = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for summary in metadata.summaries()? {
        // The operation has a column of its own.
        for (key, value) in summary.iter().flatten().filter(|(key, _)| key != "operation") {
            summaries.keys().append_value(key);
            summaries.values().append_option(value.as_deref());
        }
        summaries.append(summary.is_some())?;
    }
    let operation = |snapshot: &Snapshot| snapshot.summary.as_ref().and_then(|s| s.operation().map(str::to_string));
    Ok(vec![
        times(snapshots.iter().map(|snapshot| Some(snapshot.timestamp_ms))),
        Arc::new(Int64Array::from_iter_values(snapshots.iter().map(|snapshot| snapshot.snapshot_id))),
        Arc::new(snapshots.iter().map(parent_of).collect::<Int64Array>()),
        Arc::new(snapshots.iter().map(operation).collect::<StringArray>()),
        Arc::new(snapshots.iter().map(|snapshot| snapshot.manifest_list.as_deref()).collect::<StringArray>()),
        Arc::new(summaries.finish()),
    ])
}

/// By name.
fn refs(metadata: &TableMetadata) -> Vec<ArrayRef> {
    let refs = metadata.refs();
    let kind = |kind: RefKind| match kind {
        RefKind::Branch => "BRANCH",
        RefKind::Tag => "TAG",
    };
    vec![
        Arc::new(StringArray::from_iter_values(refs.keys())),
        Arc::new(StringArray::from_iter_values(refs.values().map(|reference| kind(reference.kind)))),
        Arc::new(Int64Array::from_iter_values(refs.values().map(|reference| reference.snapshot_id))),
        Arc::new(refs.values().map(|reference| reference.max_ref_age_ms).collect::<Int64Array>()),
        Arc::new(refs.values().map(|reference| reference.min_snapshots_to_keep).collect::<Int32Array>()),
        Arc::new(refs.values().map(|reference| reference.max_snapshot_age_ms).collect::<Int64Array>()),
    ]
}

/// In the order of the snapshot log.
fn history(metadata: &TableMetadata) -> Vec<ArrayRef> {
    let log = metadata.snapshot_log();
    let ancestors = ancestors_of_current(metadata);
    let parents = log.iter().map(|entry| metadata.snapshot(entry.snapshot_id).and_then(parent_of));
    let is_ancestor = log.iter().map(|entry| Some(ancestors.contains(&entry.snapshot_id)));
    vec![
        times(log.iter().map(|entry| Some(entry.timestamp_ms))),
        Arc::new(Int64Array::from_iter_values(log.iter().map(|entry| entry.snapshot_id))),
        Arc::new(parents.collect::<Int64Array>()),
        Arc::new(is_ancestor.collect::<BooleanArray>()),
    ]
}

/// The log, and the current metadata file at its end. What was the latest snapshot of each comes from the snapshot log, so that it is
/// unknown where that lacks it.
fn metadata_log(metadata: &TableMetadata) -> Vec<ArrayRef> {
    let log = metadata.metadata_log().iter();
    let mut files: Vec<(Option<i64>, &str)> = log
        .map(|MetadataLogEntry { timestamp_ms, metadata_file }| (Some(*timestamp_ms), metadata_file.as_str()))
        .collect();
    files.push((metadata.last_updated_ms(), metadata.metadata_location()));
    let ids: Vec<Option<i64>> = files.iter().map(|(ms, _)| ms.and_then(|ms| id_as_of(metadata, ms))).collect();
    let latest = || ids.iter().map(|id| id.and_then(|id| metadata.snapshot(id)));
    // The spec: snapshots of v1 have the sequence number 0.
    let sequence_number = |snapshot: &Snapshot| snapshot.sequence_number.unwrap_or(0);
    vec![
        times(files.iter().map(|(ms, _)| *ms)),
        Arc::new(StringArray::from_iter_values(files.iter().map(|(_, file)| file))),
        Arc::new(Int64Array::from(ids.clone())),
        Arc::new(latest().map(|snapshot| snapshot.and_then(|s| s.schema_id)).collect::<Int32Array>()),
        Arc::new(latest().map(|snapshot| snapshot.map(sequence_number)).collect::<Int64Array>()),
    ]
}

/// By key.
fn properties(metadata: &TableMetadata) -> Vec<ArrayRef> {
    let (keys, values): (Vec<&str>, Vec<&str>) = metadata.properties().iter().unzip();
    vec![Arc::new(StringArray::from(keys)), Arc::new(StringArray::from(values))]
}

/// Some writers put -1 for "none".
fn parent_of(snapshot: &Snapshot) -> Option<i64> {
    snapshot.parent_snapshot_id.filter(|id| *id != -1)
}

/// The current snapshot and those that it was made from, as far as they are there.
fn ancestors_of_current(metadata: &TableMetadata) -> HashSet<i64> {
    let mut ancestors = HashSet::new();
    let mut next = metadata.current_snapshot_id();
    // A snapshot that was met before would go in a circle.
    while let Some(id) = next.filter(|id| ancestors.insert(*id)) {
        next = metadata.snapshot(id).and_then(parent_of);
    }
    ancestors
}

/// Times in ms since the epoch as a column. Those that Arrow's microseconds can't hold are the nearest that they can.
pub(super) fn times(ms: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    let micros = ms.map(|ms| ms.map(|ms| ms.saturating_mul(1000)));
    Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone(UTC))
}
