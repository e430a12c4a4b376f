//! In which snapshots each live file is, as a span: the first and the last of them in a list of snapshots.
//!
//! That is all it takes to say what one snapshot holds alone (first and last are the same) and what expiring everything up to
//! one would free (the last is not behind it). The spans are made by a plan of DataFusion, grouped by path: parallel, within
//! the session's memory, on disk where that is short.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use datafusion::catalog::{Session, TableProvider};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::TableType;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::functions_aggregate::expr_fn::{max, min};
use datafusion::logical_expr::{ColumnarValue, Expr, Volatility, create_udf};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::prelude::{SessionContext, coalesce, col, lit};

use super::manifests::partitions;
use super::snapshot_manifests::{SnapshotManifests, SnapshotSet};
use crate::error::Result;
use crate::scan::{ManifestScanExec, OnUnreadable, ScanLog};

/// The live files of some snapshots with their spans.
pub(crate) struct FileSpans {
    /// `file_path`, `bytes` Int64, `first` and `last` UInt32: places in the list of snapshots.
    pub files: DataFrame,
    /// What could not be read, once `files` was executed.
    pub log: Arc<ScanLog>,
}

impl SnapshotSet {
    /// The first and the last place in the set; `None` when it is empty.
    pub(crate) fn span(&self) -> Option<(usize, usize)> {
        Some((self.iter().next()?, self.last()?))
    }
}

/// Plans the spans of all data and delete files that are live in some snapshots. Nothing is read before it is executed.
///
/// # Errors
/// When the plan can't be made.
pub(crate) fn file_spans(listed: &SnapshotManifests, task: &Arc<TaskContext>) -> Result<FileSpans> {
    let manifests = listed.manifests.iter().map(|manifest| manifest.reference.clone()).collect();
    let scan = ManifestScanExec::new(manifests, partitions(task), OnUnreadable::Skip, true);
    let log = scan.log();
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(task.session_config().clone())
        .with_runtime_env(task.runtime_env())
        .build();
    let rows = SessionContext::new_with_state(state).read_table(Arc::new(Scan { plan: Arc::new(scan) }))?;
    let spans: Vec<Option<(usize, usize)>> = listed.listed_by.iter().map(SnapshotSet::span).collect();
    let place = |name: &str, of: fn((usize, usize)) -> usize| {
        // A list of 2^32 snapshots would not fit in memory.
        place_of(name, spans.iter().map(|span| span.map(|span| of(span) as u32)).collect())
    };
    let bytes = coalesce(vec![col("file_size_in_bytes"), lit(0_i64)]);
    let files = rows
        .select(vec![
            col("file_path"),
            bytes.alias("size"),
            place("first_snapshot", |(first, _)| first).alias("from"),
            place("last_snapshot", |(_, last)| last).alias("to"),
        ])?
        .aggregate(
            vec![col("file_path")],
            vec![max(col("size")).alias("bytes"), min(col("from")).alias("first"), max(col("to")).alias("last")],
        )?;
    Ok(FileSpans { files, log })
}

/// Looks a manifest's place up in a list.
fn place_of(name: &str, places: UInt32Array) -> Expr {
    let look_up = move |arguments: &[ColumnarValue]| {
        let manifests = ColumnarValue::values_to_arrays(arguments)?;
        let found: UInt32Array = match manifests.first() {
            Some(manifests) => manifests
                .as_primitive::<UInt32Type>()
                .iter()
                .map(|manifest| {
                    let at = manifest? as usize;
                    (at < places.len() && places.is_valid(at)).then(|| places.value(at))
                })
                .collect(),
            None => UInt32Array::from(Vec::<u32>::new()),
        };
        Ok(ColumnarValue::Array(Arc::new(found) as ArrayRef))
    };
    let function = create_udf(name, vec![DataType::UInt32], DataType::UInt32, Volatility::Immutable, Arc::new(look_up));
    function.call(vec![col("manifest")])
}

/// A scan as a table.
#[derive(Debug)]
struct Scan {
    plan: Arc<dyn ExecutionPlan>,
}

#[async_trait]
impl TableProvider for Scan {
    fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let Some(projection) = projection else { return Ok(Arc::clone(&self.plan)) };
        let schema = self.plan.schema();
        let columns = projection.iter().map(|index| {
            let name = schema.field(*index).name();
            Ok((datafusion::physical_expr::expressions::col(name, &schema)?, name.clone()))
        });
        let columns = columns.collect::<EngineResult<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(columns, Arc::clone(&self.plan))?))
    }
}
