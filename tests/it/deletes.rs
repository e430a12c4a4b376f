//! How files go: many with one request, in batches that a cancelled run finishes, and the folders that they leave
//! empty.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iceberg_maintenance::fixtures::{ContentFile, History, Table};
use iceberg_maintenance::report::Report;
use iceberg_maintenance::{FixedClock, Maintenance};
use url::Url;

use crate::support::{Disk, Session, disk, files, literal, unchanged};
use crate::watched::{Client, Kind, WatchedStore, Wrong};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;

/// An empty table at `wh/t` with so many orphans, in a store whose client takes up to 1,000 keys with one request, as that of
/// S3 does.
struct Orphans(WatchedStore);

impl Orphans {
    async fn new(count: usize) -> Self {
        let table = Table { location: Some("s3://bucket/wh/t".into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
        let store = WatchedStore::with_table(&History::new(table).build()).await;
        for number in 0..count {
            store.add(&format!("wh/t/data/orphan{number:05}.parquet"), "x").await;
        }
        let like_s3 = Self(store);
        like_s3.with_latency(|_| Duration::ZERO);
        like_s3
    }

    fn with_latency(&self, latency: fn(Kind) -> Duration) {
        self.0.set_client(Client { name: "AmazonS3(bucket)", keys_per_delete: 1000, latency });
    }

    /// A session that knows the store. Its clock is far ahead: whatever was stored just now is old.
    fn session(&self) -> Session {
        self.session_that_tells(|_| {})
    }

    fn session_that_tells(&self, tell: impl Fn(&Report) + Send + Sync + 'static) -> Session {
        let clock = Arc::new(FixedClock(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
        let session = Session::with(Maintenance::builder().clock(clock).on_report(tell));
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(self.0.clone()));
        session
    }

    async fn left(&self) -> usize {
        self.0.keys().await.iter().filter(|key| key.starts_with("wh/t/data/orphan")).count()
    }

    /// How many keys each request to delete had, the largest first.
    fn requests(&self) -> Vec<usize> {
        let mut requests = self.0.take_deletes();
        requests.sort_by(|a, b| b.cmp(a));
        requests
    }
}

/// Deletes take long enough for other requests to be under way.
fn slow_deletes(kind: Kind) -> Duration {
    Duration::from_millis(if kind == Kind::Delete { 300 } else { 0 })
}

const REMOVE: &str = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t')";

#[tokio::test]
async fn a_thousand_files_go_with_one_request() {
    let orphans = Orphans::new(2500).await;
    let metrics = orphans.session().metrics(REMOVE).await.unwrap();
    assert_eq!((metrics["deleted_files_count"], metrics["failed_deletions_count"]), (2500, 0));
    assert_eq!((orphans.requests(), orphans.left().await), (vec![1000, 1000, 500], 0));
}

#[tokio::test]
async fn no_more_requests_run_at_once_than_the_call_allows() {
    for at_once in [1, 2, 4] {
        let orphans = Orphans::new(3500).await;
        orphans.with_latency(slow_deletes);
        let call = REMOVE.replace("')", &format!("', max_concurrent_deletes => {at_once})"));
        assert_eq!(orphans.session().metrics(&call).await.unwrap()["deleted_files_count"], 3500);
        assert_eq!(orphans.0.most_at_once(Kind::Delete), at_once);
        assert_eq!((orphans.requests(), orphans.left().await), (vec![1000, 1000, 1000, 500], 0));
    }
}

#[tokio::test]
async fn a_file_that_the_store_refuses_is_the_only_one_that_fails() {
    let orphans = Orphans::new(20).await;
    orphans.0.answer_wrongly(|kind, key| match key.rsplit_once('/')?.1 {
        "orphan00007.parquet" if kind == Kind::Delete => Some(Wrong::Denied),
        "orphan00008.parquet" if kind == Kind::Delete => Some(Wrong::Missing),
        _ => None,
    });
    let statuses = orphans.session().statuses(&REMOVE.replace("')", "', output => 'files')")).await;
    let others: Vec<_> = statuses.iter().filter(|(_, status)| *status != "deleted").collect();
    let key = |number: u32| format!("s3://bucket/wh/t/data/orphan{number:05}.parquet");
    assert_eq!(others, [(&key(7), &"failed".to_string()), (&key(8), &"missing".to_string())]);
    assert_eq!((orphans.requests(), orphans.left().await), (vec![20], 2));
}

#[tokio::test]
async fn a_cancelled_run_finishes_what_it_began_and_begins_nothing() {
    let orphans = Orphans::new(8500).await;
    orphans.with_latency(slow_deletes);
    let told: Arc<Mutex<Vec<Report>>> = Arc::default();
    let sink = Arc::clone(&told);
    let session = orphans.session_that_tells(move |report| sink.lock().unwrap().push(report.clone()));
    let asked = async {
        while orphans.0.most_at_once(Kind::Delete) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        outcome = session.run(REMOVE) => panic!("no delete may end yet: {outcome:?}"),
        () = asked => {}
    }
    // The run goes on in a task of its own; it ends when the orphans stay the same for a while.
    let mut before = usize::MAX;
    while before != orphans.left().await {
        before = orphans.left().await;
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    let requests = orphans.requests();
    assert!((1..=4).contains(&requests.len()) && requests.iter().all(|keys| *keys == 1000), "{requests:?}");
    assert_eq!(orphans.left().await, 8500 - 1000 * requests.len());
    let told = std::mem::take(&mut *told.lock().unwrap());
    let [report] = &told[..] else { panic!("one run") };
    let gone = 1000 * requests.len() as u64;
    assert_eq!((report.metrics.deleted_files_count, report.metrics.failed_deletions_count), (gone, 8500 - gone));
    let journal = orphans.0.all_objects().await;
    assert!(journal.iter().all(|object| !object.location.as_ref().ends_with(".claim")), "it holds no claim any more");
}

/// A table on disk: `p=1` holds only what expires, `p=2` something that stays, `p=3` is empty.
struct Partitions {
    root: tempfile::TempDir,
    location: String,
    session: Session,
}

impl Partitions {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut history = History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(2) });
        let files = ["data/p=1/q=1/a.parquet", "data/p=1/q=2/b.parquet", "data/p=2/c.parquet", "data/p=2/d.parquet"];
        history.append(BEGIN_MS + DAY_MS, files.map(ContentFile::data));
        history.delete_files(BEGIN_MS + 2 * DAY_MS, files[..3].iter().map(|file| file.to_string()));
        let written = history.build().write(root.path()).unwrap();
        for folder in ["data/p=3", "data/p=4/q=1"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let session = Session::new(Some(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
        Self { location: written.location, session, root }
    }

    fn disk(&self) -> Disk {
        disk(self.root.path())
    }

    fn folders(&self) -> BTreeSet<String> {
        let folders = self.disk().into_iter().filter(|(_, entry)| entry.is_folder).map(|(path, _)| path);
        folders.filter(|path| path != "metadata/_maintenance").collect()
    }

    async fn call(&self, procedure: &str, more: &str) {
        let table = literal(&self.location);
        self.session.run(&format!("CALL system.{procedure}(table => {table}{more})")).await.unwrap();
    }
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| path.to_string()).collect()
}

#[tokio::test]
async fn folders_that_an_expiry_empties_go_and_those_that_were_empty_stay() {
    let table = Partitions::new();
    let before = table.disk();
    table.call("expire_snapshots", ", dry_run => true").await;
    unchanged("a dry run", &before, &table.disk()).unwrap();
    table.call("expire_snapshots", "").await;
    assert_eq!(table.folders(), set(&["data", "data/p=2", "data/p=3", "data/p=4", "data/p=4/q=1", "metadata"]));
    let data: Vec<_> = files(&table.disk()).into_iter().filter(|file| file.starts_with("data/")).collect();
    assert_eq!(data, ["data/p=2/d.parquet"]);
}

#[tokio::test]
async fn folders_of_orphans_go_and_what_holds_anything_stays() {
    let table = Partitions::new();
    for orphan in ["x/y/o.parquet", "x/z/o.parquet", "x/z/_SUCCESS", "data/p=3/o.parquet", "metadata/old/o.avro"] {
        let path = table.root.path().join(orphan);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    table.call("remove_orphan_files", ", include_foreign => true").await;
    let left = ["data", "data/p=1", "data/p=1/q=1", "data/p=1/q=2", "data/p=2", "data/p=4", "data/p=4/q=1"];
    let others = ["metadata", "x", "x/z"];
    assert_eq!(table.folders(), set(&[&left[..], &others].concat()));
}
