//! A metadata table as DataFusion sees it.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as EngineResult;
use datafusion::config::ConfigOptions;
use datafusion::datasource::TableType;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

use super::exec::{MetadataTableExec, Wanted};
use super::load::{Load, Loads};
use super::planning::wait;
use super::pruning::Pruning;
use super::schema::{self, TableShape};
use super::{Ask, MetadataTable, Request};
use crate::error::Result;
use crate::maintenance::Maintenance;

/// One metadata table of one table.
#[derive(Debug)]
pub(crate) struct MetadataTableProvider {
    maintenance: Maintenance,
    ask: Arc<dyn Ask>,
    table: MetadataTable,
    /// The shape of the table when the statement was planned, where columns depend on it. What other columns and partition fields the
    /// table gets later is not shown by a statement that was planned before.
    shape: TableShape,
    schema: SchemaRef,
    loads: Mutex<Loads>,
}

impl MetadataTableProvider {
    /// The table that is asked for. Blocks where its columns depend on the table, which is loaded then.
    ///
    /// # Errors
    /// What is wrong with the arguments, and why the table can't be loaded.
    pub(crate) fn plan(
        maintenance: Maintenance,
        ask: Arc<dyn Ask>,
        config: &ConfigOptions,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<Self> {
        let request = ask.request(config)?;
        // A name that nobody knows is an error already here.
        let load = Load::new(&maintenance, &request.name)?;
        if !request.table.depends_on_table() {
            return Ok(Self::new(maintenance, ask, request.table, TableShape::default(), None));
        }
        let runtime = Arc::clone(runtime);
        let (load, shape) = wait(async move { Self::shape_of(load, &runtime).await })?;
        Ok(Self::new(maintenance, ask, request.table, shape, Some(load)))
    }

    /// The same for who can wait.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub(crate) async fn load(maintenance: Maintenance, request: Request, runtime: &Arc<RuntimeEnv>) -> Result<Self> {
        let (load, table) = (Load::new(&maintenance, &request.name)?, request.table);
        let ask = Arc::new(request);
        if !table.depends_on_table() {
            return Ok(Self::new(maintenance, ask, table, TableShape::default(), None));
        }
        let (load, shape) = Self::shape_of(load, runtime).await?;
        Ok(Self::new(maintenance, ask, table, shape, Some(load)))
    }

    fn new(
        maintenance: Maintenance,
        ask: Arc<dyn Ask>,
        table: MetadataTable,
        shape: TableShape,
        load: Option<Load>,
    ) -> Self {
        let schema = schema::of(table, &shape);
        let loads = Mutex::new(Loads::new(load.map(Load::into_planned)));
        Self { maintenance, ask, table, shape, schema, loads }
    }

    async fn shape_of(load: Load, runtime: &Arc<RuntimeEnv>) -> Result<(Load, TableShape)> {
        let shape = TableShape::of(&load.table(runtime).await?.metadata)?;
        Ok((load, shape))
    }
}

#[async_trait]
impl TableProvider for MetadataTableProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    // Filters stay above the scan, whatever is left out because of them.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        let supported = |filter: &&Expr| match Pruning::can_use(self.table, filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(supported).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let request = self.ask.request(state.config().options())?;
        let start = state.execution_props().query_execution_start_time;
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let load = loads.of(start, || Load::new(&self.maintenance, &request.name))?;
        let wanted = Wanted {
            pruning: Pruning::of(request.table, filters, state),
            request,
            load,
            shape: self.shape.clone(),
            projection: projection.cloned(),
            // Rows that a filter above leaves out don't count.
            limit: limit.filter(|_| filters.is_empty()),
        };
        Ok(Arc::new(MetadataTableExec::try_new(wanted, &self.schema, state.config().target_partitions())?))
    }
}
