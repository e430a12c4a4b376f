//! A table that PyIceberg made, a session that knows it, and proxies in front of its servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use iceberg_maintenance::catalog::connect;
use iceberg_maintenance::report::Report;
use iceberg_maintenance::retention::RetentionPolicy;
use iceberg_maintenance::{
    ConfiguredStores, Error, ExpireSnapshots, FixedClock, Maintenance, MaintenanceBuilder, MaintenanceOptions,
    RemoveOrphanFiles,
};

use super::pair::{CatalogKind, Endpoints, Pair, SECRET};
use super::tables::{TableState, Tables};
use crate::hooked::HookedCatalog;
use crate::proxy::{Proxy, Request, Verdict};
use crate::support::python_has;

const DAY_MS: i64 = 24 * 3600 * 1000;

pub struct Scene {
    pub pair: Pair,
    pub tables: Tables,
    /// The table as it was made.
    pub before: TableState,
    pub files_before: BTreeSet<String>,
    pub catalog: Arc<HookedCatalog>,
    pub catalog_proxy: Option<Proxy>,
    pub store_proxy: Option<Proxy>,
    pub session: Session,
    /// What we connect with: through the proxies.
    pub properties: BTreeMap<String, String>,
    _folder: tempfile::TempDir,
}

pub struct Session {
    pub context: SessionContext,
    pub maintenance: Maintenance,
}

impl Session {
    pub fn new(builder: MaintenanceBuilder, properties: &BTreeMap<String, String>) -> Self {
        let stores = Arc::new(ConfiguredStores::new(properties));
        let runtime = RuntimeEnvBuilder::new().with_object_store_registry(stores).build_arc().unwrap();
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
        let maintenance = builder.register(&context).unwrap();
        Self { context, maintenance }
    }
}

/// Tables of one test binary after another share servers.
fn unique_name() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("n{}_{}_{number}.t", chrono::Utc::now().timestamp_millis(), std::process::id())
}

/// A session's clock is far ahead: whatever was stored just now is old.
fn later_ms() -> i64 {
    chrono::Utc::now().timestamp_millis() + 10 * DAY_MS
}

/// Everything that is not in a retention rule of its own may go.
pub fn all_that_may_expire() -> ExpireSnapshots {
    let policy = RetentionPolicy { older_than_ms: Some(later_ms()), ..RetentionPolicy::default() };
    ExpireSnapshots { policy, ..ExpireSnapshots::default() }
}

impl Scene {
    /// The usual table; see [`Tables::create`]. `None` where a server is missing.
    pub async fn new(pair: Pair) -> Option<Self> {
        Self::with_table(pair, Tables::create).await
    }

    pub async fn with_table(pair: Pair, create: fn(&Tables) -> TableState) -> Option<Self> {
        Self::written_through(pair, pair, create).await
    }

    /// A table that PyIceberg makes and reads through one catalog, and we know from another one over the same tables.
    pub async fn written_through(theirs: Pair, pair: Pair, create: fn(&Tables) -> TableState) -> Option<Self> {
        let (catalog_url, store_url) = (pair.catalog.url()?, pair.store.url()?);
        if !python_has(&["pyiceberg.table", "pyarrow", "boto3", "sqlalchemy", "psycopg2"]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let direct = Endpoints { catalog: &catalog_url, store: &store_url, folder: &path };
        let tables = Tables {
            properties: theirs.python_properties(direct),
            name: unique_name(),
            bucket: pair.store.bucket_to_create(),
        };
        let before = create(&tables);
        let files_before = tables.files(&before.location);

        let mut catalog_proxy = None;
        if pair.catalog.speaks_http() {
            catalog_proxy = Some(Proxy::before(&catalog_url).await);
        }
        let mut store_proxy = None;
        if !store_url.is_empty() {
            store_proxy = Some(Proxy::before(&store_url).await);
        }
        let catalog = catalog_proxy.as_ref().map_or(catalog_url.as_str(), Proxy::url);
        let store = store_proxy.as_ref().map_or(store_url.as_str(), Proxy::url);
        let properties = pair.properties(Endpoints { catalog, store, folder: &path });
        let catalog = Arc::new(HookedCatalog::around(connect("lake", &properties).unwrap()));
        // The tables of the tests beside this one are none of its business: each request is counted.
        let mut options = MaintenanceOptions::default();
        options.shared_location_lookups = 0;
        let builder = Maintenance::builder().catalog("lake", catalog.clone()).clock(Arc::new(FixedClock(later_ms())));
        let builder = builder.options(options);
        let session = Session::new(builder, &properties);
        let scene = Self {
            pair,
            tables,
            before,
            files_before,
            catalog,
            catalog_proxy,
            store_proxy,
            session,
            properties,
            _folder: folder,
        };
        Some(scene)
    }

    /// The table's name for us.
    pub fn name(&self) -> String {
        format!("lake.{}", self.tables.name)
    }

    /// The namespace that this table has for itself.
    pub fn namespace(&self) -> &str {
        self.tables.name.split_once('.').unwrap().0
    }

    /// Plans an expiry of any table and says what stops it.
    pub async fn failure(&self, table: &str) -> Error {
        let plan = self.session.maintenance.plan_expire_snapshots(table, &all_that_may_expire()).await;
        plan.expect_err(table)
    }

    pub async fn expire(&self) -> Result<Report, Error> {
        self.session.maintenance.expire_snapshots(&self.name(), &all_that_may_expire()).await
    }

    pub async fn remove_orphans(&self) -> Result<Report, Error> {
        self.remove_orphans_with(None).await
    }

    /// The second request to delete is made when the first one is answered.
    pub async fn remove_orphans_one_request_at_a_time(&self) -> Result<Report, Error> {
        self.remove_orphans_with(Some(1)).await
    }

    async fn remove_orphans_with(&self, max_concurrent_deletes: Option<usize>) -> Result<Report, Error> {
        let now_ms = later_ms();
        let options = RemoveOrphanFiles::older_than(now_ms - DAY_MS, now_ms);
        let options = RemoveOrphanFiles { max_concurrent_deletes, ..options };
        let maintenance = &self.session.maintenance;
        let plan = maintenance.plan_remove_orphan_files(&self.name(), &options).await?;
        maintenance.delete_orphan_files(plan).await
    }

    /// The first and the second snapshot: what an expiry takes out of the usual table.
    pub fn expiring(&self) -> Vec<i64> {
        self.before.snapshots[..2].to_vec()
    }

    pub fn files(&self) -> BTreeSet<String> {
        self.tables.files(&self.before.location)
    }

    /// Files of the table as it was made that are not there any more.
    pub fn gone(&self) -> BTreeSet<String> {
        self.files_before.difference(&self.files()).cloned().collect()
    }

    /// Everything that PyIceberg finds named in the table is there, and the rows and refs are these.
    pub fn assert_whole(&self, ids: &[i64], refs: &BTreeMap<String, i64>) -> TableState {
        let now = self.tables.read();
        assert_eq!((now.ids.as_slice(), &now.refs, &now.uuid), (ids, refs, &self.before.uuid));
        let files = self.files();
        let missing: Vec<_> = now.needed.values().flatten().filter(|file| !files.contains(*file)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        now
    }

    /// The table is as it was made.
    pub fn assert_untouched(&self) {
        let now = self.assert_whole(&self.before.ids, &self.before.refs);
        assert_eq!(now.snapshots, self.before.snapshots);
        assert_eq!(now.metadata, self.before.metadata);
        assert_eq!(self.files(), self.files_before);
    }

    /// True for the request that makes a commit the current one.
    pub fn commit_request(&self) -> impl Fn(&Request) -> bool + Send + Clone + use<> {
        let (pair, known) = (self.pair, self.before.metadata.clone());
        let table = self.namespace().to_string();
        move |request| match pair.catalog {
            catalog if catalog.is_rest() => request.method == "POST" && request.path.contains(&table),
            catalog if catalog.is_glue() => {
                let is_update = request.header("x-amz-target").is_some_and(|target| target.ends_with(".UpdateTable"));
                is_update && glue_pointer(request).is_some_and(|pointer| !known.contains(&pointer))
            }
            _ => {
                let is_version = request.path.contains("/metadata/v") && request.path.ends_with(".metadata.json");
                request.method == "PUT" && request.path.contains(&table) && is_version
            }
        }
    }

    /// Decides what becomes of the first request to commit.
    pub fn on_first_commit(&self, verdict: impl FnOnce() -> Verdict + Send + 'static) {
        let (is_commit, mut verdict) = (self.commit_request(), Some(verdict));
        self.commit_proxy().unwrap().on(move |request| match verdict.take_if(|_| is_commit(request)) {
            Some(verdict) => verdict(),
            None => Verdict::Pass,
        });
    }

    /// The proxy that a commit goes through, if it goes through one.
    pub fn commit_proxy(&self) -> Option<&Proxy> {
        match self.pair.catalog {
            CatalogKind::FileSystem => self.store_proxy.as_ref(),
            _ => self.catalog_proxy.as_ref(),
        }
    }
}

/// What an update of Glue's wants to point the table at. (An update that is meant to be refused changes nothing.)
fn glue_pointer(request: &Request) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(&request.body).ok()?;
    body["TableInput"]["Parameters"]["metadata_location"].as_str().map(str::to_string)
}

/// A message is one line that names what it is about and holds no secret.
pub fn assert_clear(error: &Error, names: &str) {
    let text = error.to_string();
    assert!(text.contains(names), "{names:?} is not in: {text}");
    assert!(!text.contains('\n') && text.len() < 1000, "no short line: {text}");
    assert!(!text.contains(SECRET), "a secret: {text}");
}
