//! The columns: names, order and types of Spark's metadata tables.
//!
//! A column is nullable wherever a table may lack the value, also where Spark's type says that it is required: v1 snapshots may
//! have no manifest list, and manifests that these list themselves have no length.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::{MetadataTable, metrics};
use crate::error::Result;
use crate::scan::{entry_schema, partition_fields};
use crate::table::{LeafColumn, PartitionType, ResultType, TableMetadata, leaf_columns};

/// The column of an entry that has its file.
pub(super) const DATA_FILE: &str = "data_file";

/// What the columns of some tables take from the table whose metadata they show.
#[derive(Debug, Clone, Default)]
pub(super) struct TableShape {
    /// Its partition type.
    pub(super) partition: PartitionType,
    /// The leaf columns of its current schema.
    pub(super) columns: Arc<[LeafColumn]>,
}

impl TableShape {
    /// # Errors
    /// When schemas or specs are not what the spec says.
    pub(super) fn of(metadata: &TableMetadata) -> Result<Self> {
        Ok(Self { partition: PartitionType::of(metadata)?, columns: leaf_columns(metadata)?.into() })
    }

    /// That of an unpartitioned table with a column.
    pub(super) fn of_some_table() -> Self {
        let column = LeafColumn { id: 1, name: "id".into(), result: ResultType::Long };
        Self { partition: PartitionType::default(), columns: [column].into() }
    }
}

/// The zone of all timestamps.
pub(super) const UTC: &str = "UTC";

fn required(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, false)
}

fn optional(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// Microseconds in UTC, as Spark has them.
pub(super) fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

/// The type of a snapshot's summary.
fn summary() -> DataType {
    let entries = [required("key", DataType::Utf8), optional("value", DataType::Utf8)];
    DataType::Map(Arc::new(required("entries", DataType::Struct(entries.into_iter().collect()))), false)
}

/// What a manifest list says of the values of one partition field.
pub(super) fn partition_summary_fields() -> Fields {
    Fields::from(vec![
        required("contains_null", DataType::Boolean),
        optional("contains_nan", DataType::Boolean),
        optional("lower_bound", DataType::Utf8),
        optional("upper_bound", DataType::Utf8),
    ])
}

/// The element of the lists of these.
pub(super) fn partition_summary() -> Field {
    required("element", DataType::Struct(partition_summary_fields()))
}

/// The fields of an entry's `data_file`.
fn file_fields(partition: &PartitionType) -> Fields {
    match entry_schema(partition).field_with_name(DATA_FILE).map(Field::data_type) {
        Ok(DataType::Struct(fields)) => fields.clone(),
        _ => Fields::empty(),
    }
}

fn manifests() -> Vec<Field> {
    vec![
        required("content", DataType::Int32),
        required("path", DataType::Utf8),
        optional("length", DataType::Int64),
        optional("partition_spec_id", DataType::Int32),
        optional("added_snapshot_id", DataType::Int64),
        optional("added_data_files_count", DataType::Int32),
        optional("existing_data_files_count", DataType::Int32),
        optional("deleted_data_files_count", DataType::Int32),
        optional("added_delete_files_count", DataType::Int32),
        optional("existing_delete_files_count", DataType::Int32),
        optional("deleted_delete_files_count", DataType::Int32),
        optional("partition_summaries", DataType::List(Arc::new(partition_summary()))),
    ]
}

fn partitions(partition: &PartitionType) -> Vec<Field> {
    let mut fields = vec![];
    if !partition.is_empty() {
        fields.push(required("partition", DataType::Struct(partition_fields(partition))));
        fields.push(required("spec_id", DataType::Int32));
    }
    fields.extend([
        required("record_count", DataType::Int64),
        required("file_count", DataType::Int32),
        required("total_data_file_size_in_bytes", DataType::Int64),
        required("position_delete_record_count", DataType::Int64),
        required("position_delete_file_count", DataType::Int32),
        required("equality_delete_record_count", DataType::Int64),
        required("equality_delete_file_count", DataType::Int32),
        optional("last_updated_at", timestamp()),
        optional("last_updated_snapshot_id", DataType::Int64),
    ]);
    fields
}

fn with_metrics(fields: &Fields, shape: &TableShape) -> SchemaRef {
    let metrics = metrics::column(&shape.columns).map(Arc::new);
    Arc::new(Schema::new(fields.iter().cloned().chain(metrics).collect::<Fields>()))
}

/// The columns of a table. `shape`: that of the table whose metadata it shows, where they depend on it.
pub(super) fn of(table: MetadataTable, shape: &TableShape) -> SchemaRef {
    let partition = &shape.partition;
    macro_rules! once {
        ($fields:expr) => {{
            static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| Arc::new(Schema::new($fields)));
            Arc::clone(&SCHEMA)
        }};
    }
    match table {
        MetadataTable::Snapshots => once!(vec![
            required("committed_at", timestamp()),
            required("snapshot_id", DataType::Int64),
            optional("parent_id", DataType::Int64),
            optional("operation", DataType::Utf8),
            optional("manifest_list", DataType::Utf8),
            optional("summary", summary()),
        ]),
        MetadataTable::Refs => once!(vec![
            required("name", DataType::Utf8),
            required("type", DataType::Utf8),
            required("snapshot_id", DataType::Int64),
            optional("max_reference_age_in_ms", DataType::Int64),
            optional("min_snapshots_to_keep", DataType::Int32),
            optional("max_snapshot_age_in_ms", DataType::Int64),
        ]),
        MetadataTable::History => once!(vec![
            required("made_current_at", timestamp()),
            required("snapshot_id", DataType::Int64),
            optional("parent_id", DataType::Int64),
            required("is_current_ancestor", DataType::Boolean),
        ]),
        MetadataTable::MetadataLog => once!(vec![
            optional("timestamp", timestamp()),
            required("file", DataType::Utf8),
            optional("latest_snapshot_id", DataType::Int64),
            optional("latest_schema_id", DataType::Int32),
            optional("latest_sequence_number", DataType::Int64),
        ]),
        MetadataTable::Properties => once!(vec![required("key", DataType::Utf8), required("value", DataType::Utf8)]),
        MetadataTable::Manifests => once!(manifests()),
        MetadataTable::AllManifests => once!({
            let mut fields = manifests();
            fields.push(required("reference_snapshot_id", DataType::Int64));
            fields.push(optional("key_metadata", DataType::Binary));
            fields
        }),
        MetadataTable::Entries | MetadataTable::AllEntries => with_metrics(entry_schema(partition).fields(), shape),
        MetadataTable::Files | MetadataTable::AllFiles => with_metrics(&file_fields(partition), shape),
        MetadataTable::Partitions => Arc::new(Schema::new(partitions(partition))),
    }
}
