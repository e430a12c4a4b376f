//! The manifests that manifest lists name.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use datafusion::common::internal_datafusion_err;

use super::exec::{EntryManifest, ManifestRef};
use super::{EntryCounts, Inherited};
use crate::error::Result;

/// A manifest with all that its list says of it.
#[derive(Debug, Clone)]
pub(crate) struct ListedManifest {
    /// It holds delete files. The manifests that v1 metadata lists itself hold none.
    pub(crate) is_deletes: bool,
    pub(crate) entry: EntryManifest,
}

/// The manifests in a batch of a [`ManifestListScanExec`](super::ManifestListScanExec).
///
/// # Errors
/// When the batch is not one of such a scan.
pub(crate) fn listed_manifests(batch: &RecordBatch) -> Result<Vec<ListedManifest>> {
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

/// The value of a row, unless it is null.
pub(crate) fn value<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

/// A column by its name.
///
/// # Errors
/// When there is none.
pub(crate) fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    Ok(batch.column_by_name(name).ok_or_else(|| internal_datafusion_err!("a plan has no column {name}"))?)
}
