//! The plan node of a metadata table.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt};

use super::Request;
use super::execution::{Execution, Executions};
use super::load::Load;
use super::pruning::Pruning;
use super::schema::TableShape;

/// What is wanted of a metadata table.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) request: Request,
    pub(super) load: Arc<Load>,
    pub(super) shape: TableShape,
    /// The places of the wanted columns among those of the whole table, `None` for all.
    pub(super) projection: Option<Vec<usize>>,
    pub(super) pruning: Pruning,
    /// More rows are not needed.
    pub(super) limit: Option<usize>,
}

/// The plan node of a metadata table. Where the rows come from many files, its partitions share them: each is read once.
#[derive(Debug)]
pub(super) struct MetadataTableExec {
    wanted: Wanted,
    executions: Mutex<Executions>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MetadataTableExec {
    /// `partitions`: how many streams there should be, if there is something to share.
    pub(super) fn try_new(wanted: Wanted, table_schema: &SchemaRef, partitions: usize) -> EngineResult<Self> {
        let schema = match &wanted.projection {
            Some(columns) => Arc::new(table_schema.project(columns)?),
            None => Arc::clone(table_schema),
        };
        let partitions = if wanted.request.table.is_of_many_files() { partitions.max(1) } else { 1 };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Self {
            wanted,
            executions: Mutex::default(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for MetadataTableExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let Wanted { request: Request { table, name, snapshot }, pruning, limit, .. } = &self.wanted;
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "MetadataTableExec: {}({name}{snapshot}){pruning}", table.function())?;
                limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
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
        let partitions = self.properties.output_partitioning().partition_count();
        if partition >= partitions {
            return internal_err!("MetadataTableExec has no partition {partition}");
        }
        let new = || Execution::new(self.wanted.clone(), self.schema(), &context, &self.metrics);
        let execution = self.executions.lock().unwrap_or_else(PoisonError::into_inner).join(partition, partitions, new);
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let rows = futures::stream::once(execution.rows(partition)).try_flatten();
        let rows = rows.inspect_ok(move |batch| {
            baseline.record_output(batch.num_rows());
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), rows.boxed()))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
