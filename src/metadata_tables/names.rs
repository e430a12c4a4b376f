//! Metadata tables by name: `"t$snapshots"` and `"t.snapshots"` beside the table `t` of a DataFusion catalog.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result as EngineResult;

use super::{MetadataTable, MetadataTableProvider, Request, SnapshotChoice};
use crate::catalog::quoted;
use crate::maintenance::Maintenance;

/// A catalog whose tables have metadata tables beside them; see
/// [`Maintenance::with_metadata_tables`](crate::Maintenance::with_metadata_tables).
pub(crate) fn with_metadata_tables(
    maintenance: Maintenance,
    catalog: &str,
    inner: Option<Arc<dyn CatalogProvider>>,
) -> Arc<dyn CatalogProvider> {
    Arc::new(MetadataCatalog { maintenance, name: quoted(catalog), inner })
}

#[derive(Debug)]
struct MetadataCatalog {
    maintenance: Maintenance,
    /// As `Maintenance` knows the catalog, quoted.
    name: String,
    inner: Option<Arc<dyn CatalogProvider>>,
}

impl CatalogProvider for MetadataCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.inner.as_ref().map(|inner| inner.schema_names()).unwrap_or_default()
    }

    /// A namespace that has no table is found out when a table is asked for: only who can wait can look.
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let inner = match &self.inner {
            Some(inner) => Some(inner.schema(name)?),
            None => None,
        };
        let namespace = format!("{}.{name}", self.name);
        Some(Arc::new(MetadataSchema { maintenance: self.maintenance.clone(), namespace, inner }))
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> EngineResult<Option<Arc<dyn SchemaProvider>>> {
        match &self.inner {
            Some(inner) => inner.register_schema(name, schema),
            None => datafusion::common::not_impl_err!("schemas can't be added to the catalog {}", self.name),
        }
    }

    fn deregister_schema(&self, name: &str, cascade: bool) -> EngineResult<Option<Arc<dyn SchemaProvider>>> {
        match &self.inner {
            Some(inner) => inner.deregister_schema(name, cascade),
            None => datafusion::common::not_impl_err!("schemas can't be taken from the catalog {}", self.name),
        }
    }
}

#[derive(Debug)]
struct MetadataSchema {
    maintenance: Maintenance,
    /// Catalog and namespace as the `table` argument takes them. A schema named `a.b` is the namespace `b` in `a`.
    namespace: String,
    inner: Option<Arc<dyn SchemaProvider>>,
}

impl MetadataSchema {
    fn request(&self, name: &str) -> Option<Request> {
        let (table, metadata_table) = split(name)?;
        let name = format!("{}.{}", self.namespace, quoted(table));
        Some(Request { table: metadata_table, name, snapshot: SnapshotChoice::Current })
    }
}

#[async_trait]
impl SchemaProvider for MetadataSchema {
    fn owner_name(&self) -> Option<&str> {
        self.inner.as_ref().and_then(|inner| inner.owner_name())
    }

    /// Metadata tables are not among them: there would be a dozen for each table.
    fn table_names(&self) -> Vec<String> {
        self.inner.as_ref().map(|inner| inner.table_names()).unwrap_or_default()
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>> {
        if let Some(request) = self.request(name) {
            let runtime = self.maintenance.session()?.runtime_env();
            let table = MetadataTableProvider::load(self.maintenance.clone(), request, &runtime).await?;
            return Ok(Some(Arc::new(table)));
        }
        match &self.inner {
            Some(inner) => inner.table(name).await,
            None => Ok(None),
        }
    }

    async fn table_type(&self, name: &str) -> EngineResult<Option<TableType>> {
        match (split(name), &self.inner) {
            (Some(_), _) => Ok(Some(TableType::View)),
            (None, Some(inner)) => inner.table_type(name).await,
            (None, None) => Ok(None),
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> EngineResult<Option<Arc<dyn TableProvider>>> {
        match &self.inner {
            Some(inner) => inner.register_table(name, table),
            None => datafusion::common::not_impl_err!("tables can't be added to {}", self.namespace),
        }
    }

    fn deregister_table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>> {
        match &self.inner {
            Some(inner) => inner.deregister_table(name),
            None => datafusion::common::not_impl_err!("tables can't be taken from {}", self.namespace),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        split(name).is_some() || self.inner.as_ref().is_some_and(|inner| inner.table_exist(name))
    }
}

/// Splits `t$snapshots` and `t.snapshots`; `None` for all other names.
fn split(name: &str) -> Option<(&str, MetadataTable)> {
    let (table, suffix) = name.rsplit_once(['$', '.']).filter(|(table, _)| !table.is_empty())?;
    Some((table, MetadataTable::of_suffix(suffix)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_like_a_metadata_table_is_one() {
        assert_eq!(split("t$snapshots"), Some(("t", MetadataTable::Snapshots)));
        assert_eq!(split("T.Manifests"), Some(("T", MetadataTable::Manifests)));
        assert_eq!(split("a.b$c.refs"), Some(("a.b$c", MetadataTable::Refs)));
        assert_eq!(split("t$metadata_log_entries"), Some(("t", MetadataTable::MetadataLog)));
        for other in ["t", "snapshots", "$snapshots", "t$", "t$snapshot", "t_snapshots", "t$snapshots$x"] {
            assert_eq!(split(other), None, "{other}");
        }
    }
}
