//! How much work a call is: which objects are read, how often, and what else is asked of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};
use iceberg_maintenance::MaintenanceSql;
use iceberg_maintenance::fixtures::{History, Table};
use url::Url;

use crate::support::Session;
use crate::watched::{Kind, WatchedStore};

const DAY_MS: i64 = 24 * 3600 * 1000;
/// When every history begins.
const BEGIN_MS: i64 = 1_700_000_000_000;
const LOCATION: &str = "s3://bucket/wh/t";
const SNAPSHOTS: i64 = 20;
const EXPIRE: &str = "CALL system.expire_snapshots(table => 's3://bucket/wh/t', dry_run => true)";
const REMOVE_ORPHANS: &str = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t', dry_run => true)";

/// A table in a bucket, and a session that knows it. Its clock is far ahead: whatever was stored just now is old.
struct Bucket {
    store: WatchedStore,
    session: Session,
    table: Table,
}

/// A commit a day, each with a manifest of its own; every list names the manifests of all commits before it.
fn appends() -> History {
    let table = Table { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
    let mut history = History::new(table);
    for day in 1..=SNAPSHOTS {
        history.append(BEGIN_MS + day * DAY_MS, [format!("a{day}"), format!("b{day}")]);
    }
    history
}

impl Bucket {
    async fn new(table: Table) -> Self {
        let store = WatchedStore::with_table(&table).await;
        let session = Session::new(Some(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
        Self { store, session, table }
    }

    /// The requests that a statement makes, by kind and key.
    async fn requests_of(&self, sql: &str) -> BTreeMap<(&'static str, String), usize> {
        self.store.take_requests();
        self.session.run(sql).await.unwrap();
        let mut requests = BTreeMap::new();
        for (kind, key) in self.store.requests() {
            let kind = match kind {
                Kind::Get => "GET",
                Kind::Head => "HEAD",
                Kind::List => "LIST",
                Kind::Put | Kind::Delete | Kind::Other => panic!("a dry run asked for {kind:?} of {key}"),
            };
            *requests.entry((kind, key)).or_default() += 1;
        }
        requests
    }

    fn key(&self, path: &str) -> String {
        format!("wh/t/{path}")
    }

    fn newest_metadata(&self) -> String {
        self.key(&format!("metadata/v{}.metadata.json", self.table.version))
    }

    async fn lists(&self) -> BTreeSet<String> {
        self.store.keys().await.into_iter().filter(|key| key.contains("/snap-")).collect()
    }

    fn manifests(&self) -> BTreeSet<String> {
        self.table.manifests.keys().map(|path| self.key(path)).collect()
    }
}

/// One GET of each.
fn once(keys: impl IntoIterator<Item = String>) -> BTreeMap<(&'static str, String), usize> {
    keys.into_iter().map(|key| (("GET", key), 1)).collect()
}

/// What is asked to find the newest version of a table without a catalog: one listing of its folder, the version of the
/// newest file, its content, and the hint that may name a newer one elsewhere.
fn finding_the_table(bucket: &Bucket) -> BTreeMap<(&'static str, String), usize> {
    let mut requests = once([bucket.newest_metadata(), bucket.key("metadata/version-hint.text")]);
    requests.insert(("LIST", bucket.key("metadata")), 1);
    requests.insert(("HEAD", bucket.newest_metadata()), 1);
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_reads_each_list_and_each_manifest_that_it_needs_once() {
    let mut history = appends();
    history.delete_files(BEGIN_MS + (SNAPSHOTS + 1) * DAY_MS, ["a1"]);
    let bucket = Bucket::new(history.build()).await;
    let (lists, manifests) = (bucket.lists().await, bucket.manifests());
    assert_eq!((lists.len() as i64, manifests.len() as i64), (SNAPSHOTS + 1, SNAPSHOTS + 1));
    let mut expected = finding_the_table(&bucket);
    expected.extend(once(lists.into_iter().chain(manifests)));
    assert_eq!(bucket.requests_of(EXPIRE).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_that_frees_no_data_reads_no_manifest() {
    let bucket = Bucket::new(appends().build()).await;
    let mut expected = finding_the_table(&bucket);
    expected.extend(once(bucket.lists().await));
    assert_eq!(bucket.requests_of(EXPIRE).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_the_health_of_a_table_reads_one_list_and_no_manifest() {
    let bucket = Bucket::new(appends().build()).await;
    let mut expected = finding_the_table(&bucket);
    let current = bucket.table.snapshot(bucket.table.current_snapshot_id.unwrap()).unwrap();
    expected.extend(once([bucket.key(current.manifest_list.as_ref().unwrap())]));
    for output in ["findings", "recommendations"] {
        let sql = format!("SELECT * FROM table_health('{LOCATION}', output => '{output}')");
        assert_eq!(bucket.requests_of(&sql).await, expected, "{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_for_orphans_reads_each_list_and_each_manifest_once() {
    let bucket = Bucket::new(appends().build()).await;
    let requests = bucket.requests_of(REMOVE_ORPHANS).await;
    let reads: BTreeMap<_, _> =
        requests.iter().filter(|((kind, key), _)| *kind == "GET" && key.ends_with(".avro")).collect();
    let expected = once(bucket.lists().await.into_iter().chain(bucket.manifests()));
    assert_eq!(reads, expected.iter().collect());
    let heads: Vec<_> = requests.keys().filter(|(kind, key)| *kind == "HEAD" && key.ends_with(".avro")).collect();
    assert!(heads.is_empty(), "{heads:?}");
}

/// A metric of `EXPLAIN ANALYZE`.
fn metric(plan: &dyn ExecutionPlan, name: &str) -> Option<usize> {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(name).map(|value| value.as_usize()));
    own.or_else(|| plan.children().into_iter().find_map(|child| metric(child.as_ref(), name)))
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_what_was_read() {
    let bucket = Bucket::new(appends().build()).await;
    let bytes = |keys: BTreeSet<String>| {
        let store = bucket.store.clone();
        async move {
            let mut sum = 0;
            for key in keys {
                sum += store.content(&key).await.len();
            }
            sum
        }
    };
    let frame = bucket.session.context.maintenance_sql(REMOVE_ORPHANS).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    datafusion::physical_plan::collect(Arc::clone(&plan), bucket.session.context.task_ctx()).await.unwrap();
    let snapshots = SNAPSHOTS as usize;
    // Each list names one manifest more than the one before; each manifest has two files.
    for (name, expected) in [
        ("manifest_lists_read", snapshots),
        ("manifests_read", snapshots),
        ("requests", 2 * snapshots),
        ("bytes_scanned", bytes(bucket.lists().await).await + bytes(bucket.manifests()).await),
        ("files_listed", bucket.store.keys().await.len()),
    ] {
        assert_eq!(
            metric(plan.as_ref(), name),
            Some(expected),
            "{name} of {}",
            displayable(plan.as_ref()).indent(true)
        );
    }
    let rows = metric(plan.as_ref(), "decoded_rows").unwrap();
    // Of the lists' rows no more come than there are manifests, for each stream that reads lists.
    let streams = bucket.session.context.task_ctx().session_config().target_partitions();
    assert!((3 * snapshots..=2 * snapshots + snapshots * streams).contains(&rows), "{rows} rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_memory_limit_changes_only_how_far_ahead_is_read() {
    let mut history = appends();
    history.delete_files(BEGIN_MS + (SNAPSHOTS + 1) * DAY_MS, ["a1"]);
    let bucket = Bucket::new(history.build()).await;
    for statement in [EXPIRE, REMOVE_ORPHANS] {
        bucket.session.run("RESET datafusion.runtime.memory_limit").await.unwrap();
        let mut unlimited = bucket.session.metrics(statement).await.unwrap();
        bucket.session.run("SET datafusion.runtime.memory_limit = '32M'").await.unwrap();
        let mut limited = bucket.session.metrics(statement).await.unwrap();
        for rows in [&mut unlimited, &mut limited] {
            rows.remove("elapsed_ms");
        }
        assert_eq!(limited, unlimited);
    }
}
