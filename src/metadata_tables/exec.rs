//! Reading a metadata table.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::exec_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::load::Load;
use super::schema::{self, TableShape};
use super::{MetadataTable, Request, entries, manifests, partitions, rows};
use crate::error::Result;
use crate::scan::ScanWork;
use crate::table::{Snapshot, TableMetadata};

/// The plan node of a metadata table. One partition, whose scans of manifests run in several.
#[derive(Debug)]
pub(super) struct MetadataTableExec {
    request: Request,
    load: Arc<Load>,
    shape: TableShape,
    /// The places of the wanted columns among those of the whole table, `None` for all.
    projection: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MetadataTableExec {
    pub(super) fn try_new(
        request: Request,
        load: Arc<Load>,
        shape: TableShape,
        table_schema: &SchemaRef,
        projection: Option<&Vec<usize>>,
    ) -> EngineResult<Self> {
        let schema = match projection {
            Some(columns) => Arc::new(table_schema.project(columns)?),
            None => Arc::clone(table_schema),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Self {
            request,
            load,
            shape,
            projection: projection.cloned(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for MetadataTableExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let Request { table, name, snapshot } = &self.request;
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "MetadataTableExec: {}({name}{snapshot})", table.function())
            }
            DisplayFormatType::TreeRender => write!(f, "{}\n{name}{snapshot}", table.function()),
        }
    }
}

impl ExecutionPlan for MetadataTableExec {
    fn name(&self) -> &'static str {
        "MetadataTableExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> EngineResult<SendableRecordBatchStream> {
        if partition != 0 {
            return exec_err!("MetadataTableExec has one partition, but partition {partition} was asked for");
        }
        let work = Arc::<ScanWork>::default();
        let scan = Scan {
            request: self.request.clone(),
            load: Arc::clone(&self.load),
            shape: self.shape.clone(),
            projection: self.projection.clone(),
            schema: self.schema(),
            task: Arc::new(work.count_in(&context)),
        };
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let read = WorkMetrics { work, metrics: self.metrics.clone() };
        let rows = futures::stream::once(scan.rows()).try_flatten();
        let rows = rows.inspect_ok(move |batch| {
            let _until_the_end = &read;
            baseline.record_output(batch.num_rows());
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), rows.boxed()))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Shows in `EXPLAIN ANALYZE` what was read, once the stream has ended.
struct WorkMetrics {
    work: Arc<ScanWork>,
    metrics: ExecutionPlanMetricsSet,
}

impl Drop for WorkMetrics {
    fn drop(&mut self) {
        let record = |name: &'static str, count: &AtomicUsize| {
            MetricBuilder::new(&self.metrics).global_counter(name).add(count.load(Ordering::Relaxed));
        };
        record("manifest_lists_read", &self.work.manifest_lists_read);
        record("manifests_read", &self.work.manifests_read);
        record("requests", &self.work.requests);
        record("bytes_scanned", &self.work.bytes_scanned);
    }
}

type Batches = BoxStream<'static, EngineResult<RecordBatch>>;

/// One execution.
struct Scan {
    request: Request,
    load: Arc<Load>,
    shape: TableShape,
    projection: Option<Vec<usize>>,
    /// The wanted columns.
    schema: SchemaRef,
    task: Arc<TaskContext>,
}

impl Scan {
    async fn rows(self) -> EngineResult<Batches> {
        let Request { table, snapshot, .. } = &self.request;
        let loaded = self.load.table(&self.task.runtime_env()).await?;
        let task = loaded.task(&self.task);
        let metadata = &loaded.metadata;
        if let Some(all) = rows::of_metadata(*table, metadata)? {
            return Ok(self.slices(&all)?);
        }
        let snapshots: Vec<&Snapshot> = match table.is_of_one_snapshot() {
            true => snapshot.find(loaded, table.function())?.into_iter().collect(),
            false => metadata.snapshots().iter().collect(),
        };
        Ok(match table {
            MetadataTable::Manifests | MetadataTable::AllManifests => self.manifests(metadata, &snapshots, &task)?,
            MetadataTable::Partitions => self.slices(&self.partitions(metadata, &snapshots, &task).await?)?,
            _ => self.entries(&snapshots, &task).await?,
        })
    }

    /// The rows of manifests, as their lists come.
    fn manifests(&self, metadata: &TableMetadata, snapshots: &[&Snapshot], task: &Arc<TaskContext>) -> Result<Batches> {
        let partitions = task.session_config().target_partitions();
        let scan = manifests::scan(metadata, snapshots, Arc::clone(&self.schema), partitions)?;
        Ok(CoalescePartitionsExec::new(scan).execute(0, Arc::clone(task))?.boxed())
    }

    /// The rows of files and entries, as they come.
    async fn entries(&self, snapshots: &[&Snapshot], task: &Arc<TaskContext>) -> Result<Batches> {
        let table = self.request.table;
        let (fields, live_only) = (entries::fields_for(table, &self.schema), !table.is_of_entries());
        let batches = entries::scan(snapshots, self.shape.partition.clone(), fields, live_only, task).await?;
        let (schema, columns) = (Arc::clone(&self.schema), Arc::clone(&self.shape.columns));
        let wanted = move |batch| {
            let (schema, columns) = (Arc::clone(&schema), Arc::clone(&columns));
            futures::stream::iter(entries::columns_of(table, batch, schema, columns)).map_err(Into::into)
        };
        Ok(batches.map_ok(wanted).try_flatten().boxed())
    }

    async fn partitions(
        &self,
        metadata: &TableMetadata,
        snapshots: &[&Snapshot],
        task: &Arc<TaskContext>,
    ) -> Result<RecordBatch> {
        let (partition, fields) = (&self.shape.partition, partitions::fields());
        let entries = entries::scan(snapshots, partition.clone(), fields, true, task).await?;
        partitions::rows(metadata, partition, entries, schema::of(self.request.table, &self.shape), task).await
    }

    /// The wanted columns of rows that are all there, in batches of the session's size.
    fn slices(&self, batch: &RecordBatch) -> Result<Batches> {
        let batch = match &self.projection {
            Some(columns) => batch.project(columns)?,
            None => batch.clone(),
        };
        let most = self.task.session_config().batch_size().max(1);
        let slice = |start: usize| Ok(batch.slice(start, most.min(batch.num_rows() - start)));
        let slices: Vec<_> = (0..batch.num_rows()).step_by(most).map(slice).collect();
        Ok(futures::stream::iter(slices).boxed())
    }
}
