//! The AWS Glue Data Catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::{Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};
use crate::error::{Error, Result};

/// The AWS Glue Data Catalog.
#[derive(Debug)]
pub struct GlueCatalog {
    name: String,
}

impl GlueCatalog {
    /// Reads the properties. Asks nothing of the server.
    ///
    /// # Errors
    /// [`Error::Catalog`] when a property is missing or wrong.
    pub fn new(name: &str, _properties: &BTreeMap<String, String>) -> Result<Self> {
        Ok(Self { name: name.into() })
    }
}

#[async_trait]
impl Catalog for GlueCatalog {
    async fn load(&self, _table: &TableName, _runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        Err(Error::Catalog { catalog: self.name.clone(), why: "not built yet".into() })
    }

    async fn commit(
        &self,
        _table: &TableName,
        _base: &LoadedTable,
        _commit: &TableCommit,
        _runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome> {
        Err(Error::Catalog { catalog: self.name.clone(), why: "not built yet".into() })
    }
}
