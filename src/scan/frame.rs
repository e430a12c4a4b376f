//! Scans as data frames: for questions that DataFusion answers in parallel, within the session's memory, on disk where that is
//! short.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::TableType;
use datafusion::error::Result as EngineResult;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::error::Result;

/// The part of a limited memory pool that all sorts together set aside for merging, as a divisor.
const PART_OF_THE_POOL: usize = 4;

/// The rows of a scan, to be queried once with the settings, the memory and the stores of `task`. Nothing is read before that.
///
/// # Errors
/// When DataFusion makes no plan of it.
pub(crate) fn data_frame(scan: Arc<dyn ExecutionPlan>, task: &Arc<TaskContext>) -> Result<DataFrame> {
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(with_small_sorts(task))
        .with_runtime_env(task.runtime_env())
        .build();
    Ok(SessionContext::new_with_state(state).read_table(Arc::new(Scan { plan: scan }))?)
}

/// The task's settings, with no more memory set aside for each sort than a small pool has: whatever the rows, a sort takes it before it
/// begins, and DataFusion's own number is meant for pools of gigabytes.
fn with_small_sorts(task: &TaskContext) -> SessionConfig {
    let config = task.session_config().clone();
    let MemoryLimit::Finite(limit) = task.memory_pool().memory_limit() else { return config };
    let most = limit / PART_OF_THE_POOL / config.target_partitions().max(1);
    let wanted = config.options().execution.sort_spill_reservation_bytes;
    config.with_sort_spill_reservation_bytes(wanted.min(most))
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
