//! What the report's own reads run in: the session's settings, but memory of their own and a catalog that nobody else sees.
//!
//! Nothing that is read for a page may end the run that the page is about, so that its memory has a limit even where the
//! session's has none: what doesn't fit goes to the disk, or the read fails and the page says so.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, LargeStringArray, RecordBatch};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider,
    SchemaProvider,
};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryLimit};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionContext;

/// The table that has the paths of a plan, with its catalog and schema.
pub(super) const PLANNED: &str = "iceberg_maintenance_report.read.planned_files";

/// The most memory that a read has.
const MOST_BYTES: usize = 1 << 30;

/// What part of the memory the sorts of all partitions set aside before they begin: DataFusion's own number is meant for pools
/// of gigabytes.
const PART_FOR_SORTS: usize = 8;

/// A context for one read, with [`PLANNED`] where there are such paths. The session's own catalogs don't change.
pub(super) fn of(session: &SessionContext, planned: Option<&LargeStringArray>) -> Result<SessionContext> {
    let runtime = session.runtime_env();
    let bytes = match runtime.memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes.min(MOST_BYTES),
        _ => MOST_BYTES,
    };
    let pool = Arc::new(FairSpillPool::new(bytes));
    let runtime = RuntimeEnvBuilder::from_runtime_env(&runtime).with_memory_pool(pool).build_arc()?;
    let state = session.state();
    let catalogs = catalogs(state.catalog_list().as_ref(), planned)?;
    let config = state.config();
    let wanted = config.options().execution.sort_spill_reservation_bytes;
    let most = bytes / PART_FOR_SORTS / config.target_partitions().max(1);
    let config = config.clone().with_sort_spill_reservation_bytes(wanted.min(most));
    // The default catalog is there, or is none that a read needs.
    let config = config.with_create_default_catalog_and_schema(false);
    let state = SessionStateBuilder::new_from_existing(state)
        .with_config(config)
        .with_runtime_env(runtime)
        .with_catalog_list(catalogs)
        .build();
    Ok(SessionContext::new_with_state(state))
}

/// The session's catalogs, and one more.
fn catalogs(
    session: &dyn CatalogProviderList,
    planned: Option<&LargeStringArray>,
) -> Result<Arc<dyn CatalogProviderList>> {
    let catalogs = MemoryCatalogProviderList::new();
    for name in session.catalog_names() {
        if let Some(catalog) = session.catalog(&name) {
            catalogs.register_catalog(name, catalog);
        }
    }
    if let Some(paths) = planned {
        let rows = RecordBatch::try_from_iter([("path", Arc::new(paths.clone()) as ArrayRef)])?;
        let [catalog, schema, table] = parts();
        let tables = MemorySchemaProvider::new();
        tables.register_table(table, Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?))?;
        let private = MemoryCatalogProvider::new();
        private.register_schema(&schema, Arc::new(tables))?;
        catalogs.register_catalog(catalog, Arc::new(private));
    }
    Ok(Arc::new(catalogs))
}

/// The name's parts.
fn parts() -> [String; 3] {
    let mut parts = PLANNED.split('.').map(str::to_string);
    [(); 3].map(|()| parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(bytes: usize) -> SessionContext {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().unwrap();
        SessionContext::new_with_config_rt(Default::default(), runtime)
    }

    fn limit(context: &SessionContext) -> Option<usize> {
        match context.runtime_env().memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes),
            _ => None,
        }
    }

    #[test]
    fn a_read_has_a_limit_of_its_own_and_never_more_than_the_session() {
        let session = SessionContext::new();
        assert_eq!((limit(&session), limit(&of(&session, None).unwrap())), (None, Some(MOST_BYTES)));
        assert_eq!(limit(&of(&limited(5 << 20), None).unwrap()), Some(5 << 20));
        assert_eq!(limit(&of(&limited(5 << 30), None).unwrap()), Some(MOST_BYTES));
    }

    #[tokio::test]
    async fn groups_that_don_t_fit_go_to_the_disk() {
        let paths: LargeStringArray =
            (0..400_000).map(|n| Some(format!("s3://bucket/warehouse/table/data/{n:032}.parquet"))).collect();
        let context = of(&limited(20 << 20), Some(&paths)).unwrap();
        assert!(paths.value_data().len() > 20 << 20);
        let sql = format!("SELECT count(*) AS n FROM (SELECT path, max(path) FROM {PLANNED} GROUP BY path)");
        let rows = context.sql(&sql).await.unwrap().collect().await.unwrap();
        let count = datafusion::arrow::util::pretty::pretty_format_batches(&rows).unwrap().to_string();
        assert!(count.contains("400000"), "{count}");
        assert_eq!(context.runtime_env().memory_pool.reserved(), 0);
    }

    #[tokio::test]
    async fn the_session_s_own_catalogs_stay_as_they_are() {
        let session = SessionContext::new();
        session.sql("CREATE TABLE mine AS SELECT 7 AS a").await.unwrap();
        let before = session.catalog_names();
        let context = of(&session, Some(&LargeStringArray::from(vec!["a"]))).unwrap();
        let sql = format!("SELECT p.path FROM {PLANNED} p CROSS JOIN mine");
        assert_eq!(context.sql(&sql).await.unwrap().collect().await.unwrap()[0].num_rows(), 1);
        assert_eq!(session.catalog_names(), before);
    }
}
