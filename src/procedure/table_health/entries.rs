//! The exact look: what the entries of the current snapshot's manifests say.
//!
//! One plan of DataFusion reads each manifest once: entries are grouped by partition, kind and size class, and the groups come
//! back sorted by partition, data files before delete files. So they can be folded one after the other, whatever number of
//! partitions and files there are; grouping and sorting go to disk where memory is short. Only whether the data files exist that
//! deletes name needs a second reading, where there are such deletes.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, Int32Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int32Type, Int64Type};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::internal_datafusion_err;
use datafusion::dataframe::DataFrame;
use datafusion::execution::TaskContext;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::functions_aggregate::expr_fn::{count, max, min, sum};
use datafusion::logical_expr::{ColumnarValue, Expr, Volatility, cast, create_udf, when};
use datafusion::prelude::{coalesce, col, lit};
use futures::StreamExt;

use super::fold::{CLASSES, Dangling, Entries, Group, Kind, class_bounds};
use super::listed::Listed;
use crate::error::{Error, Result};
use crate::scan::{
    EntryField, EntryFields, EntryScan, EntryScanExec, OnUnreadable, ScanLog, column, data_frame, partition_fields,
    value,
};
use crate::table::{PartitionType, TableMetadata, unpartitioned_spec_ids};

/// What is asked of the entries.
pub(super) struct Question<'a> {
    pub(super) metadata: &'a TableMetadata,
    pub(super) listed: &'a Listed,
    /// Data files with fewer bytes are small.
    pub(super) small_file_bytes: i64,
    /// What files should have, in bytes.
    pub(super) target_bytes: i64,
}

/// Sums up the live entries of all manifests.
///
/// # Errors
/// Every failure of the store, and [`Error::InvalidMetadata`] where the table's partition type can't be told. Manifests that are
/// missing or malformed are noted and left out.
pub(super) async fn measure(question: &Question<'_>, task: &Arc<TaskContext>) -> Result<Entries> {
    let partition = PartitionType::of(question.metadata)?;
    let unpartitioned = unpartitioned_spec_ids(question.metadata)?;
    let fields = [
        EntryField::SequenceNumber,
        EntryField::Content,
        EntryField::FileFormat,
        EntryField::SpecId,
        EntryField::Partition,
        EntryField::RecordCount,
        EntryField::FileSizeInBytes,
        EntryField::ReferencedDataFile,
        EntryField::ContentSizeInBytes,
    ];
    let (rows, log) = scan(question.listed, &partition, fields.into_iter().collect(), task)?;
    let key = key_of(&partition, move |spec_id| unpartitioned.contains(&spec_id));
    let groups = groups(rows, key, question.small_file_bytes)?;
    let mut entries = Entries::new(question.target_bytes);
    let mut batches = groups.execute_stream().await?;
    while let Some(batch) = batches.next().await {
        each_group(&batch?, |group| entries.add(group))?;
    }
    entries.finish();
    entries.unreadable = log.unreadable();
    if entries.deletes_that_name_files > 0 {
        let named = dangling_by_name(question.listed, &partition, task).await?;
        entries.dangling.add(named);
    }
    Ok(entries)
}

fn scan(
    listed: &Listed,
    partition: &PartitionType,
    fields: EntryFields,
    task: &Arc<TaskContext>,
) -> Result<(DataFrame, Arc<ScanLog>)> {
    let manifests = listed.manifests.iter().map(|manifest| manifest.entry.clone()).collect();
    let scan = EntryScan { manifests, partition: partition.clone(), fields, live_only: true };
    let scan = EntryScanExec::new(scan, task.session_config().target_partitions(), OnUnreadable::Skip);
    let log = scan.log();
    Ok((data_frame(Arc::new(scan), task)?, log))
}

fn file(name: &str) -> Expr {
    get_field(col("data_file"), name)
}

/// A number that is not negative. Whatever a manifest says, nothing has less than no bytes.
fn not_negative(number: Expr) -> Result<Expr> {
    Ok(when(number.clone().lt(lit(0_i64)), lit(0_i64)).otherwise(number)?)
}

/// A number that can be summed up without overflow.
fn wide(number: Expr) -> Expr {
    cast(number, DataType::Decimal128(38, 0))
}

/// The bytes of an entry: of a deletion vector only its own in a file of many.
fn bytes_of(kind: Expr) -> Result<Expr> {
    let size = file("file_size_in_bytes");
    let of_vector = coalesce(vec![file("content_size_in_bytes"), size.clone()]);
    not_negative(when(kind.eq(lit(Kind::Vector as i32)), of_vector).otherwise(size)?)
}

/// Groups of like entries with their sums, sorted by the partition and the kind.
fn groups(rows: DataFrame, key: Expr, small_file_bytes: i64) -> Result<DataFrame> {
    let is_data = || col("kind").eq(lit(Kind::Data as i32));
    let sequence = |unknown: i64| coalesce(vec![col("sequence_number"), lit(unknown)]);
    // A number that is missing must not make a delete file look older than the data.
    let sequence = when(is_data(), sequence(0)).otherwise(sequence(i64::MAX))?;
    let bytes = |most: i64| col("bytes").lt(lit(most));
    let class = (1..CLASSES).rev().try_fold(lit(CLASSES as i32 - 1), |larger, next| {
        when(bytes(class_bounds()[next]), lit(next as i32 - 1)).otherwise(larger)
    })?;
    let entries = rows
        .with_column("kind", kind_of())?
        .select(vec![
            key.alias("key"),
            col("kind"),
            bytes_of(col("kind"))?.alias("bytes"),
            not_negative(file("record_count"))?.alias("records"),
            sequence.alias("sequence"),
            file("referenced_data_file").is_not_null().alias("names_file"),
        ])?
        .select(vec![
            col("key"),
            col("kind"),
            col("bytes"),
            col("records"),
            col("sequence"),
            class.alias("class"),
            is_data().and(bytes(small_file_bytes)).alias("small"),
            col("kind").not_eq(lit(Kind::Data as i32)).and(col("names_file")).alias("named"),
            // Each delete file is looked at by its number; of data files only the least one matters.
            when(is_data(), lit(0_i64)).otherwise(col("sequence"))?.alias("of_delete"),
        ])?;
    let by = ["key", "kind", "class", "small", "named", "of_delete"].map(col).to_vec();
    let sums = vec![
        count(lit(1)).alias("files"),
        sum(wide(col("bytes"))).alias("sum_bytes"),
        sum(wide(col("records"))).alias("sum_records"),
        min(col("bytes")).alias("smallest"),
        max(col("bytes")).alias("largest"),
        min(col("sequence")).alias("least_sequence"),
    ];
    Ok(entries.aggregate(by, sums)?.sort(vec![col("key").sort(true, false), col("kind").sort(true, false)])?)
}

/// Which kind an entry's file is of.
fn kind_of() -> Expr {
    let look = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let [contents, formats] = &arrays[..] else {
            return Err(internal_datafusion_err!("two columns say of which kind a file is"));
        };
        let (contents, formats) = (contents.as_primitive::<Int32Type>(), formats.as_string::<i32>());
        let kind = |row| Kind::of(contents.value(row), formats.value(row)) as i32;
        Ok(ColumnarValue::Array(Arc::new(Int32Array::from_iter_values((0..contents.len()).map(kind))) as ArrayRef))
    };
    let types = vec![DataType::Int32, DataType::Utf8];
    let function = create_udf("kind_of_file", types, DataType::Int32, Volatility::Immutable, Arc::new(look));
    function.call(vec![file("content"), file("file_format")])
}

/// The partition of an entry as bytes: which deletes are for which data files. Equality deletes of a spec without partitions are
/// for all data files; they come last.
fn key_of(partition: &PartitionType, is_unpartitioned: impl Fn(i32) -> bool + Send + Sync + 'static) -> Expr {
    let mut types = vec![DataType::Int32, DataType::Int32];
    let mut arguments = vec![file("spec_id"), file("content")];
    if !partition.is_empty() {
        types.push(DataType::Struct(partition_fields(partition)));
        arguments.push(file("partition"));
    }
    let key = move |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let [spec_ids, contents, partitions @ ..] = &arrays[..] else {
            return Err(internal_datafusion_err!("a partition has a spec and values"));
        };
        let (specs, contents) = (spec_ids.as_primitive::<Int32Type>(), contents.as_primitive::<Int32Type>());
        let fields = partitions.iter().map(|values| SortField::new(values.data_type().clone())).collect();
        let values = match partitions.is_empty() {
            true => None,
            false => Some(RowConverter::new(fields)?.convert_columns(partitions)?),
        };
        let mut keys = BinaryBuilder::with_capacity(specs.len(), 16 * specs.len());
        let mut key = vec![];
        for row in 0..specs.len() {
            let spec_id = specs.value(row);
            key.clear();
            if contents.value(row) == 2 && is_unpartitioned(spec_id) {
                key.push(Group::FOR_ALL_PARTITIONS);
            } else {
                key.push(0);
                key.extend_from_slice(&spec_id.to_be_bytes());
                values.iter().for_each(|values| key.extend_from_slice(values.row(row).data()));
            }
            keys.append_value(&key);
        }
        Ok(ColumnarValue::Array(Arc::new(keys.finish()) as ArrayRef))
    };
    create_udf("partition_key", types, DataType::Binary, Volatility::Immutable, Arc::new(key)).call(arguments)
}

fn each_group(batch: &RecordBatch, mut on_group: impl FnMut(&Group<'_>)) -> Result<()> {
    let keys = column(batch, "key")?.as_binary::<i32>();
    let long = |name| Ok::<_, Error>(column(batch, name)?.as_primitive::<Int64Type>());
    let int = |name| Ok::<_, Error>(column(batch, name)?.as_primitive::<Int32Type>());
    let wide = |name| Ok::<_, Error>(column(batch, name)?.as_primitive::<Decimal128Type>());
    let flag = |name| Ok::<_, Error>(column(batch, name)?.as_boolean());
    let (kinds, classes, small, named) = (int("kind")?, int("class")?, flag("small")?, flag("named")?);
    let (files, bytes, records) = (long("files")?, wide("sum_bytes")?, wide("sum_records")?);
    let (smallest, largest, sequences) = (long("smallest")?, long("largest")?, long("least_sequence")?);
    let clamped = |number: Option<i128>| i64::try_from(number.unwrap_or(0)).unwrap_or(i64::MAX);
    for row in 0..batch.num_rows() {
        on_group(&Group {
            key: keys.value(row),
            kind: Kind::from_code(kinds.value(row)),
            class: usize::try_from(classes.value(row)).unwrap_or(0),
            small: small.value(row),
            names_file: named.value(row),
            files: files.value(row),
            bytes: clamped(value(bytes, row)),
            records: clamped(value(records, row)),
            smallest: smallest.value(row),
            largest: largest.value(row),
            sequence_number: sequences.value(row),
        });
    }
    Ok(())
}

/// The deletes that name data files which are not live.
async fn dangling_by_name(listed: &Listed, partition: &PartitionType, task: &Arc<TaskContext>) -> Result<Dangling> {
    let fields = [
        EntryField::Content,
        EntryField::FilePath,
        EntryField::FileFormat,
        EntryField::FileSizeInBytes,
        EntryField::ReferencedDataFile,
        EntryField::ContentSizeInBytes,
    ];
    let (rows, _) = scan(listed, partition, fields.into_iter().collect(), task)?;
    let is_data = || col("kind").eq(lit(Kind::Data as i32));
    let of_deletes = |number: Expr| when(is_data(), lit(0_i64)).otherwise(number);
    let missing = rows
        .with_column("kind", kind_of())?
        .filter(is_data().or(file("referenced_data_file").is_not_null()))?
        .select(vec![
            when(is_data(), file("file_path")).otherwise(file("referenced_data_file"))?.alias("path"),
            when(is_data(), lit(1_i64)).otherwise(lit(0_i64))?.alias("live"),
            of_deletes(lit(1_i64))?.alias("deletes"),
            of_deletes(bytes_of(col("kind"))?)?.alias("bytes"),
        ])?
        .aggregate(
            vec![col("path")],
            vec![
                max(col("live")).alias("is_live"),
                sum(col("deletes")).alias("files"),
                sum(wide(col("bytes"))).alias("sum_bytes"),
            ],
        )?
        .filter(col("is_live").eq(lit(0_i64)))?
        .aggregate(vec![], vec![sum(col("files")).alias("files"), sum(col("sum_bytes")).alias("sum_bytes")])?;
    let mut found = Dangling::default();
    for batch in missing.collect().await? {
        let files = column(&batch, "files")?.as_primitive::<Int64Type>();
        let bytes = column(&batch, "sum_bytes")?.as_primitive::<Decimal128Type>();
        for row in 0..batch.num_rows() {
            let bytes = i64::try_from(value(bytes, row).unwrap_or(0)).unwrap_or(i64::MAX);
            found.add(Dangling { files: value(files, row).unwrap_or(0), bytes });
        }
    }
    Ok(found)
}
