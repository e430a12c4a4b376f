//! Loading the table whose metadata is shown: once for each execution of a statement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use datafusion::execution::runtime_env::RuntimeEnv;
use tokio::sync::OnceCell;

use crate::catalog::{LoadedTable, TableHandle};
use crate::error::Result;
use crate::maintenance::Maintenance;

/// How long the table stays loaded that was loaded to plan a statement: credentials that came with it end.
const PLANNED_FOR: Duration = Duration::from_secs(60);

/// A table that is loaded when it is first asked for.
#[derive(Debug)]
pub(super) struct Load {
    handle: TableHandle,
    maintenance: Maintenance,
    /// The table as it was when the statement was planned. It may have been planned long ago, as views are.
    planned: Option<(Instant, LoadedTable)>,
    loaded: OnceCell<LoadedTable>,
}

impl Load {
    /// The table `name`, a name or a location.
    ///
    /// # Errors
    /// When nothing of that name is registered.
    pub(super) fn new(maintenance: &Maintenance, name: &str) -> Result<Self> {
        let handle = maintenance.resolve(name)?;
        Ok(Self { handle, maintenance: maintenance.clone(), planned: None, loaded: OnceCell::new() })
    }

    /// The table as it is now, the same for all who ask.
    ///
    /// # Errors
    /// As [`Catalog::load`](crate::catalog::Catalog::load).
    pub(super) async fn table(&self, runtime: &Arc<RuntimeEnv>) -> Result<&LoadedTable> {
        let load = async || {
            if let Some((when, table)) = &self.planned
                && when.elapsed() < PLANNED_FOR
                && self.handle.is_current(table, runtime).await?
            {
                return Ok(table.clone());
            }
            let table = self.handle.load(runtime).await?;
            for notice in &table.notices {
                tracing::warn!("{notice}");
                self.maintenance.notify(notice);
            }
            Ok(table)
        };
        self.loaded.get_or_try_init(load).await
    }

    /// The same table for a later use, which looks whether it is still what this one loaded.
    pub(super) fn into_planned(self) -> Self {
        let planned = self.loaded.into_inner().map(|table| (Instant::now(), table));
        Self { planned, loaded: OnceCell::new(), ..self }
    }
}

/// The loads of a table's scans.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// What planning loaded, until the first execution.
    planned: Option<Arc<Load>>,
    /// The newest one. An execution is told from another by the start time that DataFusion gives each.
    newest: Option<(DateTime<Utc>, Arc<Load>)>,
}

impl Loads {
    pub(super) fn new(planned: Option<Load>) -> Self {
        Self { planned: planned.map(Arc::new), newest: None }
    }

    /// The load of an execution, made by `new` if this is its first scan. Where no start time is known, each scan has its own.
    pub(super) fn of(&mut self, start: Option<DateTime<Utc>>, new: impl FnOnce() -> Result<Load>) -> Result<Arc<Load>> {
        if let (Some((newest, load)), Some(start)) = (&self.newest, start)
            && *newest == start
        {
            return Ok(Arc::clone(load));
        }
        let load = match self.planned.take() {
            Some(planned) => planned,
            None => Arc::new(new()?),
        };
        self.newest = start.map(|start| (start, Arc::clone(&load)));
        Ok(load)
    }
}
