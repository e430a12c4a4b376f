//! Object stores made from a location, Iceberg's own properties and the environment.

#[cfg(feature = "aws")]
pub(crate) mod aws;
#[cfg(feature = "azure")]
mod azure;
mod bucket;
#[cfg(feature = "gcp")]
mod google;
mod properties;
mod routes;
#[cfg(feature = "aws")]
mod s3;
#[cfg(all(test, feature = "aws", feature = "azure", feature = "gcp", feature = "http"))]
mod tests;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
mod tolerant;
mod vended;

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::object_store::ObjectStoreRegistry;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp", feature = "http"))]
use object_store::ClientConfigKey;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use parking_lot::Mutex;
use url::Url;

use self::bucket::{Bucket, Family};
use self::properties::Properties;
pub(crate) use self::properties::overlaid;
use self::routes::Routes;
use self::vended::Vended;
use crate::error::{Error, Result};

/// A connection is given up after so long.
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp", feature = "http"))]
const CONNECT_TIMEOUT: &str = "10 seconds";
/// A request is given up after so long: table metadata can be large, and lines slow.
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp", feature = "http"))]
const REQUEST_TIMEOUT: &str = "120 seconds";

/// Properties for the locations that begin with a prefix, as a catalog vends them.
#[derive(Clone)]
pub struct StorageCredentials {
    /// The prefix, such as `s3://bucket/warehouse/t`.
    pub prefix: String,
    /// Iceberg's own properties, such as `s3.access-key-id`.
    pub properties: BTreeMap<String, String>,
}

impl Debug for StorageCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
///
/// A bucket has one store, however it is spelled: `s3`, `s3a` and `s3n` are one, and so are the names of a container on
/// Azure. Without the environment there is a store only for what properties or credentials speak of, so that a session's
/// own stores serve the rest.
pub struct ConfiguredStores {
    properties: BTreeMap<String, String>,
    environment: bool,
    vended: Arc<Vended>,
    /// By bucket, and by the URL of what was registered for other schemes.
    stores: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

/// What one client is made with.
#[cfg_attr(not(any(feature = "aws", feature = "azure", feature = "gcp")), allow(dead_code))]
struct Settings<'a> {
    properties: &'a BTreeMap<String, String>,
    environment: bool,
    /// Where the credentials are renewed, and the prefix that they were vended for.
    vended: Option<(Arc<Vended>, String)>,
    /// The prefix that the properties were vended for names this very bucket, its host included.
    #[cfg_attr(not(feature = "azure"), allow(dead_code))]
    vended_by_name: bool,
}

impl ConfiguredStores {
    /// Stores with these properties: Iceberg's own `s3.*`, `client.*`, `adls.*` and `gcs.*`; others are ignored.
    pub fn new(properties: &BTreeMap<String, String>) -> Self {
        let properties = properties.iter().filter(|(key, _)| Family::of_key(key).is_some());
        Self {
            properties: properties.map(|(key, value)| (key.clone(), value.clone())).collect(),
            environment: false,
            vended: Arc::new(Vended::new(vec![], None)),
            stores: Mutex::default(),
        }
    }

    /// The stores of a catalog with these properties: from them and, for what they leave open, from the environment. `None`
    /// when no property speaks of stores; then they are the session's.
    pub(crate) fn of_catalog(properties: &BTreeMap<String, String>) -> Option<Arc<dyn ObjectStoreRegistry>> {
        let stores = Self::new(properties);
        (!stores.properties.is_empty()).then(|| Arc::new(stores.with_environment()) as Arc<dyn ObjectStoreRegistry>)
    }

    /// The same; what the properties don't say comes from the usual environment variables.
    pub fn with_environment(self) -> Self {
        Self { environment: true, ..self }
    }

    /// The same; locations below a prefix use its properties before all others, the longest prefix first.
    pub fn with_credentials(
        self,
        credentials: Vec<StorageCredentials>,
        source: Option<Arc<dyn CredentialSource>>,
    ) -> Self {
        Self { vended: Arc::new(Vended::new(credentials, source)), ..self }
    }

    /// Hands fresh credentials for the same prefixes to the stores that are there.
    #[cfg_attr(not(feature = "rest"), allow(dead_code))]
    pub(crate) fn replace_credentials(&self, credentials: Vec<StorageCredentials>) {
        self.vended.replace(credentials);
    }

    /// # Errors
    /// [`Error::NoStore`] when nothing is said of such a location, so that somebody else may know it; [`Error::Location`] when
    /// what is said can't be followed.
    fn store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let key = store_key(url);
        if let Some(store) = self.stores.lock().get(&key) {
            return Ok(Arc::clone(store));
        }
        let bucket = Bucket::parse(url).map_err(|why| Error::NoStore { location: printable(url), why })?;
        let store = match self.make(&bucket) {
            Ok(store) => store,
            Err(why) if bucket.family().feature().is_some() || self.knows_nothing_of(&bucket) => {
                return Err(Error::NoStore { location: printable(url), why });
            }
            Err(why) => return Err(Error::Location { location: printable(url), why }),
        };
        // Another task may have made it meanwhile: one store serves all.
        Ok(Arc::clone(self.stores.lock().entry(key).or_insert(store)))
    }

    fn make(&self, bucket: &Bucket) -> std::result::Result<Arc<dyn ObjectStore>, String> {
        let (mut whole, mut routes) = (None, BTreeMap::new());
        for StorageCredentials { prefix, properties } in self.vended.credentials().iter() {
            match bucket.covered_by(prefix) {
                Some(key) if key.is_empty() => {
                    let longest = whole.as_ref().is_none_or(|(other, _): &(String, _)| other.len() < prefix.len());
                    whole = if longest { Some((prefix.clone(), properties.clone())) } else { whole };
                }
                Some(key) => {
                    routes.insert(key, (prefix.clone(), properties.clone()));
                }
                None => {}
            }
        }
        let fallback = match whole {
            Some((prefix, properties)) => Some(self.make_vended(bucket, prefix, &properties)?),
            None if self.speaks_of(bucket.family()) => match self.make_plain(bucket) {
                // Properties such as an endpoint alone are no reason to refuse what credentials cover.
                Err(_) if !routes.is_empty() => None,
                made => Some(made?),
            },
            None => None,
        };
        if routes.is_empty() {
            return fallback.ok_or_else(|| self.says_nothing(bucket.family()));
        }
        let make_route = |(key, (prefix, properties)): (String, (String, BTreeMap<String, String>))| {
            Ok((key, self.make_vended(bucket, prefix, &properties)?))
        };
        let routes: std::result::Result<Vec<_>, String> = routes.into_iter().map(make_route).collect();
        Ok(Arc::new(Routes::new(bucket.to_string(), routes?, fallback)))
    }

    /// True when neither the environment nor credentials, own or vended, are there to reach a bucket with.
    fn knows_nothing_of(&self, bucket: &Bucket) -> bool {
        let of_family = |key: &String| bucket.family().key_prefixes().iter().any(|begin| key.starts_with(begin));
        let has_credential =
            |properties: &BTreeMap<String, String>| properties.keys().any(|key| of_family(key) && is_credential(key));
        !self.environment
            && !has_credential(&self.properties)
            && !self.vended.credentials().iter().any(|vended| has_credential(&vended.properties))
    }

    fn speaks_of(&self, family: Family) -> bool {
        let is_said =
            |begin: &&str| self.properties.iter().any(|(key, value)| key.starts_with(begin) && !value.is_empty());
        self.environment || family.key_prefixes().iter().any(is_said)
    }

    fn says_nothing(&self, family: Family) -> String {
        match family.key_prefixes().first() {
            Some(begin) => {
                format!("no property says how to reach it. Give {begin}* properties, or register a store for it")
            }
            None => "there is no store for it. Register one first".into(),
        }
    }

    fn make_plain(&self, bucket: &Bucket) -> std::result::Result<Arc<dyn ObjectStore>, String> {
        // What can be renewed is vended, even if it came among the table's properties.
        let vended = self.vended.can_renew().then(|| match self.vended.covers_all(bucket.family()) {
            true => (Arc::clone(&self.vended), bucket.to_string()),
            false => {
                let own = StorageCredentials { prefix: bucket.to_string(), properties: self.properties.clone() };
                (Arc::new(self.vended.with(own)), bucket.to_string())
            }
        });
        let properties = &self.properties;
        make_client(bucket, &Settings { properties, environment: self.environment, vended, vended_by_name: false })
    }

    fn make_vended(
        &self,
        bucket: &Bucket,
        prefix: String,
        own: &BTreeMap<String, String>,
    ) -> std::result::Result<Arc<dyn ObjectStore>, String> {
        let properties = &overlaid(&self.properties, own);
        let vended_by_name = bucket.is_named_by(&prefix);
        let has_credential = own.keys().any(|key| is_credential(key));
        let vended = has_credential.then(|| (Arc::clone(&self.vended), prefix));
        make_client(bucket, &Settings { properties, environment: self.environment, vended, vended_by_name })
    }
}

/// True for a property that belongs to a credential of any family.
#[cfg_attr(not(any(feature = "aws", feature = "azure", feature = "gcp")), allow(unused_variables))]
pub(crate) fn is_credential(key: &str) -> bool {
    #[cfg(feature = "aws")]
    if s3::is_credential(key) {
        return true;
    }
    #[cfg(feature = "azure")]
    if azure::is_credential(key) {
        return true;
    }
    #[cfg(feature = "gcp")]
    if google::is_credential(key) {
        return true;
    }
    false
}

/// Makes the client for a bucket.
fn make_client(bucket: &Bucket, settings: &Settings<'_>) -> std::result::Result<Arc<dyn ObjectStore>, String> {
    if let Some(feature) = bucket.family().feature() {
        return Err(format!("this build has no client for it: build iceberg-maintenance with the feature {feature}"));
    }
    let made = match bucket {
        #[cfg(feature = "aws")]
        Bucket::S3 { bucket } => s3::store(bucket, settings),
        #[cfg(feature = "azure")]
        Bucket::Azure { container, account } => azure::store(container, account.as_ref(), settings),
        #[cfg(feature = "gcp")]
        Bucket::Google { bucket } => google::store(bucket, settings),
        #[cfg(feature = "http")]
        Bucket::Http { origin } => http_store(origin),
        Bucket::Memory { .. } => Ok(Arc::new(InMemory::new()) as _),
        #[cfg(not(all(feature = "aws", feature = "azure", feature = "gcp", feature = "http")))]
        _ => Err("this build has no client for it".into()),
    };
    let endpoint = Properties(settings.properties).first(&["s3.endpoint", "gcs.service.host", "adls.account-host"]);
    made.map_err(|why| match endpoint {
        Some(endpoint) => format!("{why} (endpoint {})", without_user(endpoint)),
        None => why,
    })
}

#[cfg(feature = "http")]
fn http_store(origin: &str) -> std::result::Result<Arc<dyn ObjectStore>, String> {
    let options = object_store::ClientOptions::new()
        .with_allow_http(true)
        .with_config(ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT)
        .with_config(ClientConfigKey::Timeout, REQUEST_TIMEOUT);
    let store = object_store::http::HttpBuilder::new().with_url(origin).with_client_options(options).build();
    store.map(|store| Arc::new(store) as _).map_err(|error| error.to_string())
}

fn without_user(endpoint: &str) -> String {
    match (endpoint.split_once("://"), endpoint.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => endpoint.to_string(),
    }
}

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
impl Settings<'_> {
    /// The client's time limits; where neither properties nor the environment have any, ours.
    ///
    /// # Errors
    /// When a property is no number.
    fn timeouts(
        &self,
        variables: &str,
        connect: &str,
        request: &str,
    ) -> std::result::Result<Vec<(ClientConfigKey, String)>, String> {
        let mut limits = vec![];
        for (key, property, variable, usual) in [
            (ClientConfigKey::ConnectTimeout, connect, "CONNECT_TIMEOUT", CONNECT_TIMEOUT),
            (ClientConfigKey::Timeout, request, "TIMEOUT", REQUEST_TIMEOUT),
        ] {
            let is_in_environment = self.environment && std::env::var_os(format!("{variables}_{variable}")).is_some();
            match Properties(self.properties).seconds(property)? {
                Some(limit) => limits.push((key, format!("{} milliseconds", limit.as_millis()))),
                None if is_in_environment => {}
                None => limits.push((key, usual.to_string())),
            }
        }
        Ok(limits)
    }
}

impl Debug for ConfiguredStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stores: Vec<String> = self.stores.lock().keys().cloned().collect();
        f.debug_struct("ConfiguredStores")
            .field("properties", &self.properties.keys())
            .field("environment", &self.environment)
            .field("vended", &self.vended)
            .field("stores", &stores)
            .finish()
    }
}

impl ObjectStoreRegistry for ConfiguredStores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.stores.lock().insert(store_key(url), store)
    }

    fn deregister_store(&self, url: &Url) -> datafusion::error::Result<Arc<dyn ObjectStore>> {
        self.stores
            .lock()
            .remove(&store_key(url))
            .ok_or_else(|| Error::NoStore { location: printable(url), why: "none is registered".into() }.into())
    }

    fn get_store(&self, url: &Url) -> datafusion::error::Result<Arc<dyn ObjectStore>> {
        Ok(self.store(url)?)
    }
}

/// One key for all spellings of a bucket.
fn store_key(url: &Url) -> String {
    Bucket::parse(url).map_or_else(|_| url[..url::Position::BeforePath].to_string(), |bucket| bucket.to_string())
}

/// A URL as messages show it: without a password.
fn printable(url: &Url) -> String {
    let mut shown = url.clone();
    let _ = shown.set_password(None);
    shown.to_string()
}
