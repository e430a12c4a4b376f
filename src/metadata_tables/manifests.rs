//! The rows of `iceberg_manifests` and `iceberg_all_manifests`: what manifest lists say of their manifests.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Int32Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::physical_plan::ExecutionPlan;

use super::human::bound;
use super::schema::{partition_summary, partition_summary_fields};
use crate::error::{Error, Result};
use crate::scan::{
    DescribedManifest, DescribedRows, EntryCounts, ManifestDescriptionScanExec, ManifestListRef, OnUnreadable,
};
use crate::table::{PartitionType, ResultType, Snapshot, SpecTransform, TableMetadata, spec_transforms};

/// A scan of the manifest lists of some snapshots. The manifests of each snapshot are in the order of its list.
///
/// # Errors
/// When partition specs are not what the spec says, and their fields are among the columns. What is wrong with the lists is found by
/// the streams.
pub(super) fn scan(
    metadata: &TableMetadata,
    snapshots: &[&Snapshot],
    columns: SchemaRef,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let lists = snapshots.iter().map(|snapshot| ManifestListRef::of(snapshot)).collect();
    let rows = ManifestRows::new(metadata, columns)?;
    Ok(Arc::new(ManifestDescriptionScanExec::new(lists, rows, partitions, OnUnreadable::Fail)))
}

const PARTITION_SUMMARIES: &str = "partition_summaries";

/// Makes the wanted columns of the manifests of one table.
#[derive(Debug)]
struct ManifestRows {
    columns: SchemaRef,
    /// The fields of each partition spec and the types of their values, if they are wanted.
    specs: HashMap<i32, Vec<SpecTransform>>,
    results: HashMap<i32, ResultType>,
}

impl ManifestRows {
    fn new(metadata: &TableMetadata, columns: SchemaRef) -> Result<Self> {
        if columns.column_with_name(PARTITION_SUMMARIES).is_none() {
            return Ok(Self { columns, specs: HashMap::new(), results: HashMap::new() });
        }
        let partition = PartitionType::of(metadata)?;
        let results = partition.fields().iter().map(|field| (field.id, field.result)).collect();
        Ok(Self { columns, specs: spec_transforms(metadata)?, results })
    }

    fn column(&self, name: &str, list: &ManifestListRef, manifests: &[DescribedManifest]) -> Result<ArrayRef> {
        let long = |value: fn(&DescribedManifest) -> Option<i64>| -> ArrayRef {
            Arc::new(manifests.iter().map(value).collect::<Int64Array>())
        };
        let count = |content: i32, count: fn(&EntryCounts) -> Option<i32>| -> ArrayRef {
            let of = |manifest: &DescribedManifest| match manifest.content == content {
                true => count(&manifest.counts),
                false => Some(0),
            };
            Arc::new(manifests.iter().map(of).collect::<Int32Array>())
        };
        const DATA: i32 = 0;
        const DELETES: i32 = 1;
        Ok(match name {
            "content" => Arc::new(Int32Array::from_iter_values(manifests.iter().map(|manifest| manifest.content))),
            "path" => Arc::new(StringArray::from_iter_values(manifests.iter().map(|manifest| &manifest.path))),
            "length" => long(|manifest| manifest.length),
            "partition_spec_id" => Arc::new(manifests.iter().map(|manifest| manifest.spec_id).collect::<Int32Array>()),
            "added_snapshot_id" => long(|manifest| manifest.added_snapshot_id),
            "added_data_files_count" => count(DATA, |counts| counts.added),
            "existing_data_files_count" => count(DATA, |counts| counts.existing),
            "deleted_data_files_count" => count(DATA, |counts| counts.deleted),
            "added_delete_files_count" => count(DELETES, |counts| counts.added),
            "existing_delete_files_count" => count(DELETES, |counts| counts.existing),
            "deleted_delete_files_count" => count(DELETES, |counts| counts.deleted),
            PARTITION_SUMMARIES => self.summaries(&list.location, manifests)?,
            "reference_snapshot_id" => Arc::new(Int64Array::from_value(list.snapshot_id, manifests.len())),
            "key_metadata" => {
                let keys = manifests.iter().map(|manifest| manifest.key_metadata.as_deref());
                Arc::new(keys.collect::<BinaryArray>())
            }
            other => return Ok(internal_err!("manifests have no column {other}")?),
        })
    }

    /// The column `partition_summaries`. A list of a v1 writer may have none.
    fn summaries(&self, list: &str, manifests: &[DescribedManifest]) -> Result<ArrayRef> {
        let (mut summaries, mut lower, mut upper) = (vec![], vec![], vec![]);
        for manifest in manifests {
            let fields = manifest.spec_id.and_then(|id| self.specs.get(&id)).map(Vec::as_slice).unwrap_or_default();
            for (place, summary) in manifest.partitions.iter().flatten().enumerate() {
                let text = |bytes: &Option<Vec<u8>>| {
                    text_of(bytes.as_deref(), fields.get(place), &self.results).map_err(|why| Error::Malformed {
                        what: "a manifest list",
                        path: list.into(),
                        why: format!("its summary of partition field {place} of {}: {why}", manifest.path),
                    })
                };
                lower.push(text(&summary.lower_bound)?);
                upper.push(text(&summary.upper_bound)?);
                summaries.push(summary);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(summaries.iter().map(|summary| Some(summary.contains_null)).collect::<BooleanArray>()),
            Arc::new(summaries.iter().map(|summary| summary.contains_nan).collect::<BooleanArray>()),
            Arc::new(StringArray::from(lower)),
            Arc::new(StringArray::from(upper)),
        ];
        let values = StructArray::try_new(partition_summary_fields(), columns, None)?;
        let lengths = manifests.iter().map(|manifest| manifest.partitions.as_ref().map_or(0, Vec::len));
        let present: NullBuffer = manifests.iter().map(|manifest| manifest.partitions.is_some()).collect();
        let (element, offsets) = (Arc::new(partition_summary()), OffsetBuffer::from_lengths(lengths));
        Ok(Arc::new(ListArray::try_new(element, offsets, Arc::new(values), Some(present))?))
    }
}

impl DescribedRows for ManifestRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns)
    }

    fn rows(&self, list: &ManifestListRef, manifests: &[DescribedManifest]) -> Result<RecordBatch> {
        let fields = self.columns.fields().iter();
        let columns = fields.map(|field| self.column(field.name(), list, manifests)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(manifests.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &options)?)
    }
}

/// A bound as text. As in Spark one that is absent, because all values are null, is the text `null`.
fn text_of(
    bytes: Option<&[u8]>,
    field: Option<&SpecTransform>,
    results: &HashMap<i32, ResultType>,
) -> Result<String, String> {
    let Some(bytes) = bytes else { return Ok("null".into()) };
    let transform = field.map(|field| field.transform.as_str()).unwrap_or_default();
    let result = field.and_then(|field| results.get(&field.field_id)).copied().unwrap_or(ResultType::Unknown);
    bound(bytes, transform, result)
}
