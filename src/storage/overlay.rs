//! A table's own stores in front of the session's.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::ObjectStore;
use url::Url;

/// The same context, whose files are looked for in `stores` first, if there are any.
pub(crate) fn with_stores(task: &Arc<TaskContext>, stores: Option<&Arc<dyn ObjectStoreRegistry>>) -> Arc<TaskContext> {
    if stores.is_none() {
        return Arc::clone(task);
    }
    Arc::new(TaskContext::new(
        task.task_id(),
        task.session_id(),
        task.session_config().clone(),
        task.scalar_functions().clone(),
        task.higher_order_functions().clone(),
        task.aggregate_functions().clone(),
        task.window_functions().clone(),
        runtime_with_stores(&task.runtime_env(), stores),
    ))
}

/// The same runtime, whose files are looked for in `stores` first, if there are any.
pub(crate) fn runtime_with_stores(
    runtime: &Arc<RuntimeEnv>,
    stores: Option<&Arc<dyn ObjectStoreRegistry>>,
) -> Arc<RuntimeEnv> {
    let Some(stores) = stores.map(Arc::clone) else { return Arc::clone(runtime) };
    let registry = Overlay { stores, session: Arc::clone(&runtime.object_store_registry) };
    Arc::new(RuntimeEnv { object_store_registry: Arc::new(registry), ..runtime.as_ref().clone() })
}

#[derive(Debug)]
struct Overlay {
    stores: Arc<dyn ObjectStoreRegistry>,
    session: Arc<dyn ObjectStoreRegistry>,
}

impl ObjectStoreRegistry for Overlay {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.session.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.session.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.stores.get_store(url).or_else(|why| self.session.get_store(url).map_err(|_| why))
    }
}
