//! The rows of `iceberg_manifests`: what the manifest list of one snapshot says.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::execution::TaskContext;

use super::MetadataTable;
use super::human::bound;
use super::schema::{self, partition_summary, partition_summary_fields};
use crate::error::{Error, Result};
use crate::progress::RunWork;
use crate::scan::{DescribedManifest, EntryCounts, describe_list};
use crate::storage::Stores;
use crate::table::{PartitionType, ResultType, Snapshot, SpecTransform, TableMetadata, spec_transforms};

/// All manifests of a snapshot, in the order of its list.
///
/// # Errors
/// When the list can't be read, or isn't what the spec says.
pub(super) async fn rows(
    metadata: &TableMetadata,
    snapshot: Option<&Snapshot>,
    task: &TaskContext,
) -> Result<RecordBatch> {
    let manifests = match snapshot {
        None => vec![],
        Some(snapshot) => manifests_of(snapshot, task).await?,
    };
    let list = snapshot.and_then(|snapshot| snapshot.manifest_list.as_deref()).unwrap_or_default();
    let counts = |content: i32, count: fn(&EntryCounts) -> Option<i32>| -> ArrayRef {
        let of = |manifest: &DescribedManifest| match manifest.content == content {
            true => count(&manifest.counts),
            false => Some(0),
        };
        Arc::new(manifests.iter().map(of).collect::<Int32Array>())
    };
    const DATA: i32 = 0;
    const DELETES: i32 = 1;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(manifests.iter().map(|manifest| manifest.content))),
        Arc::new(StringArray::from_iter_values(manifests.iter().map(|manifest| &manifest.path))),
        Arc::new(manifests.iter().map(|manifest| manifest.length).collect::<Int64Array>()),
        Arc::new(manifests.iter().map(|manifest| manifest.spec_id).collect::<Int32Array>()),
        Arc::new(manifests.iter().map(|manifest| manifest.added_snapshot_id).collect::<Int64Array>()),
        counts(DATA, |counts| counts.added),
        counts(DATA, |counts| counts.existing),
        counts(DATA, |counts| counts.deleted),
        counts(DELETES, |counts| counts.added),
        counts(DELETES, |counts| counts.existing),
        counts(DELETES, |counts| counts.deleted),
        summaries(metadata, list, &manifests)?,
    ];
    Ok(RecordBatch::try_new(schema::of(MetadataTable::Manifests, &PartitionType::default()), columns)?)
}

async fn manifests_of(snapshot: &Snapshot, task: &TaskContext) -> Result<Vec<DescribedManifest>> {
    let Some(list) = &snapshot.manifest_list else {
        // v1: the snapshot lists its manifests itself, and says nothing else of them.
        let manifests = snapshot.manifests.iter().flatten();
        let described = |path: &String| DescribedManifest {
            path: path.clone(),
            length: None,
            spec_id: None,
            content: 0,
            added_snapshot_id: None,
            counts: EntryCounts::default(),
            partitions: None,
        };
        return Ok(manifests.map(described).collect());
    };
    let bytes = Stores::new(task.runtime_env()).read(list).await?;
    if let Some(work) = RunWork::of(task) {
        work.manifest_lists.read.fetch_add(1, Ordering::Relaxed);
        work.requests.fetch_add(1, Ordering::Relaxed);
        work.bytes_scanned.fetch_add(bytes.len(), Ordering::Relaxed);
    }
    describe_list(list, &bytes, snapshot.key_id.is_some())
}

/// The column `partition_summaries`. A list of a v1 writer may have none.
fn summaries(metadata: &TableMetadata, list: &str, manifests: &[DescribedManifest]) -> Result<ArrayRef> {
    let partition = PartitionType::of(metadata)?;
    let results: HashMap<i32, ResultType> = partition.fields().iter().map(|field| (field.id, field.result)).collect();
    let specs = spec_transforms(metadata)?;
    let (mut summaries, mut lower, mut upper) = (vec![], vec![], vec![]);
    for manifest in manifests {
        let fields = manifest.spec_id.and_then(|id| specs.get(&id)).map(Vec::as_slice).unwrap_or_default();
        for (place, summary) in manifest.partitions.iter().flatten().enumerate() {
            let text = |bytes: &Option<Vec<u8>>| {
                text_of(bytes.as_deref(), fields.get(place), &results).map_err(|why| Error::Malformed {
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
    let element = Arc::new(partition_summary());
    Ok(Arc::new(ListArray::try_new(element, OffsetBuffer::from_lengths(lengths), Arc::new(values), Some(present))?))
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
