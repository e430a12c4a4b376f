//! Object stores made from a location, Iceberg's own properties and the environment.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreRegistry;
use object_store::ObjectStore;
use url::Url;

use crate::error::{Error, Result};

/// Properties for the locations that begin with a prefix, as a catalog vends them.
#[derive(Clone)]
pub struct StorageCredentials {
    /// The prefix, such as `s3://bucket/warehouse/t`.
    pub prefix: String,
    /// Iceberg's own properties, such as `s3.access-key-id`.
    pub properties: BTreeMap<String, String>,
}

impl Debug for StorageCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageCredentials").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Where vended credentials come from when those at hand expire.
#[async_trait]
pub trait CredentialSource: Debug + Send + Sync {
    /// Fresh credentials for the same prefixes.
    async fn refresh(&self) -> Result<Vec<StorageCredentials>>;
}

/// Object stores that are made when they are first asked for.
#[derive(Debug)]
pub struct ConfiguredStores {
    _properties: BTreeMap<String, String>,
}

impl ConfiguredStores {
    /// Stores with these properties: Iceberg's own `s3.*`, `client.*`, `adls.*` and `gcs.*`; others are ignored.
    pub fn new(properties: &BTreeMap<String, String>) -> Self {
        Self { _properties: properties.clone() }
    }

    /// The same; what the properties don't say comes from the usual environment variables.
    pub fn with_environment(self) -> Self {
        self
    }

    /// The same; locations below a prefix use its properties before all others, the longest prefix first.
    pub fn with_credentials(
        self,
        _credentials: Vec<StorageCredentials>,
        _source: Option<Arc<dyn CredentialSource>>,
    ) -> Self {
        self
    }
}

impl ObjectStoreRegistry for ConfiguredStores {
    fn register_store(&self, _url: &Url, _store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &Url) -> datafusion::error::Result<Arc<dyn ObjectStore>> {
        let why = "no property says how to reach it".into();
        Err(DataFusionError::from(Error::Location { location: url.to_string(), why }))
    }
}
