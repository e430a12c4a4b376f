//! A table's own stores in front of the session's.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::ObjectStore;
use url::Url;

use crate::error::Error;

/// The same context, whose files are looked for in `stores` first, if there are any. Without `local_files` no path of this
/// machine is followed: the metadata of a table in a bucket is written by others, and must not lead to files here.
pub(crate) fn with_stores(
    task: &Arc<TaskContext>,
    stores: Option<&Arc<dyn ObjectStoreRegistry>>,
    local_files: bool,
) -> Arc<TaskContext> {
    if stores.is_none() && local_files {
        return Arc::clone(task);
    }
    let runtime = runtime_with_stores(&task.runtime_env(), stores);
    let runtime = if local_files { runtime } else { without_local_files(&runtime) };
    Arc::new(TaskContext::new(
        task.task_id(),
        task.session_id(),
        task.session_config().clone(),
        task.scalar_functions().clone(),
        task.higher_order_functions().clone(),
        task.aggregate_functions().clone(),
        task.window_functions().clone(),
        runtime,
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

fn without_local_files(runtime: &Arc<RuntimeEnv>) -> Arc<RuntimeEnv> {
    let registry = BucketsOnly { session: Arc::clone(&runtime.object_store_registry) };
    Arc::new(RuntimeEnv { object_store_registry: Arc::new(registry), ..runtime.as_ref().clone() })
}

/// A registry that knows no local files.
#[derive(Debug)]
struct BucketsOnly {
    session: Arc<dyn ObjectStoreRegistry>,
}

impl ObjectStoreRegistry for BucketsOnly {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.session.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.session.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        match url.scheme() {
            "file" => Err(Error::Malformed {
                what: "a file of this table",
                path: url.to_string(),
                why: "it is a path of this machine, while the table lies in a bucket: such a path is not followed"
                    .into(),
            }
            .into()),
            _ => self.session.get_store(url),
        }
    }
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
        self.stores.get_store(url).or_else(|why| match Error::find(&why) {
            // What the table says of its store can't be followed: the session's may be another bucket of the same name.
            Some(error) if !matches!(error, Error::NoStore { .. }) => Err(why),
            _ => self.session.get_store(url).map_err(|_| why),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use datafusion::execution::object_store::DefaultObjectStoreRegistry;
    use object_store::memory::InMemory;

    use super::*;
    use crate::storage::Stores;
    use crate::storage::configured::ConfiguredStores;
    use crate::table::Location;

    /// A session with a store for `s3://b`, and in front of it the stores that a table's properties describe.
    fn store(properties: &[(&str, &str)], location: &str) -> Result<String, Error> {
        let session = DefaultObjectStoreRegistry::default();
        session.register_store(&Url::parse("s3://b").unwrap(), Arc::new(InMemory::new()));
        let runtime = RuntimeEnv { object_store_registry: Arc::new(session), ..RuntimeEnv::default() };
        let properties: BTreeMap<String, String> =
            properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let own = ConfiguredStores::of_catalog(&properties);
        let stores = Stores::new(runtime_with_stores(&Arc::new(runtime), own.as_ref()));
        Ok(format!("{:?}", stores.store(&Location::parse(location)?)?.kind()))
    }

    #[test]
    #[cfg(feature = "aws")]
    fn a_store_that_the_table_describes_and_that_cannot_be_made_is_not_replaced() {
        assert!(store(&[], "s3a://b/t").unwrap().contains("InMemory"), "nothing is said of it");
        for wrong in [("s3.profile-name", "prod"), ("s3.role-arn", "arn:aws:iam::1:role/r"), ("s3.sse.type", "rot13")] {
            let error = store(&[wrong], "s3://b/t").unwrap_err();
            assert!(matches!(error, Error::Location { .. }), "{wrong:?}: {error}");
        }
        let error = store(&[], "s3://elsewhere/t").unwrap_err();
        assert!(matches!(error, Error::NoStore { .. }), "{error}");
    }
}
