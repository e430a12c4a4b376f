//! How files go: many with one request, in batches that a cancelled run finishes, and the folders that they leave
//! empty.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg_maintenance::fixtures::{ContentFile, History, Table};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Semaphore;
use url::Url;

use crate::support::{Disk, Session, disk, files, literal, unchanged};
use crate::watched::{Kind, WatchedStore};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;

/// A store whose client takes up to 1,000 keys with one request, as that of S3 does. Clones share everything.
#[derive(Clone)]
struct BulkStore {
    objects: WatchedStore,
    /// How many keys each request to delete had.
    requests: Arc<Mutex<Vec<usize>>>,
    /// A request to delete waits for one of these, and keeps it.
    permits: Arc<Semaphore>,
}

impl BulkStore {
    /// An empty table at `wh/t` with so many orphans.
    async fn with_orphans(count: usize) -> Self {
        let table = Table { location: Some("s3://bucket/wh/t".into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
        let objects = WatchedStore::with_table(&History::new(table).build()).await;
        for number in 0..count {
            objects.add(&format!("wh/t/data/orphan{number:05}.parquet"), "x").await;
        }
        Self { objects, requests: Arc::default(), permits: Arc::new(Semaphore::new(0)) }
    }

    /// A session that knows the store. Its clock is far ahead: whatever was stored just now is old.
    fn session(&self) -> Session {
        let session = Session::new(Some(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(self.clone()));
        session
    }

    async fn orphans(&self) -> usize {
        self.objects.keys().await.iter().filter(|key| key.starts_with("wh/t/data/orphan")).count()
    }

    /// How many keys each request to delete had, the largest first.
    fn requests(&self) -> Vec<usize> {
        let mut requests = self.requests.lock().unwrap().clone();
        requests.sort_by(|a, b| b.cmp(a));
        requests
    }
}

impl fmt::Debug for BulkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AmazonS3(bucket)")
    }
}

impl fmt::Display for BulkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AmazonS3(bucket)")
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for BulkStore {
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let request = move |keys: Vec<Result<Path>>| {
            let store = store.clone();
            async move {
                store.requests.lock().unwrap().push(keys.len());
                store.permits.acquire().await.unwrap().forget();
                let mut answers = vec![];
                for key in keys {
                    let key = key.unwrap();
                    answers.push(store.objects.delete(&key).await.map(|()| key));
                }
                futures::stream::iter(answers)
            }
        };
        locations.chunks(1000).then(request).flatten().boxed()
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[std::ops::Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        self.objects.get_ranges(location, ranges).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: object_store::RenameOptions) -> Result<()> {
        self.objects.rename_opts(from, to, options).await
    }
}

const REMOVE: &str = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t')";

#[tokio::test]
async fn a_thousand_files_go_with_one_request() {
    let store = BulkStore::with_orphans(2500).await;
    store.permits.add_permits(100);
    let metrics = store.session().metrics(REMOVE).await.unwrap();
    assert_eq!((metrics["deleted_files_count"], metrics["failed_deletions_count"]), (2500, 0));
    assert_eq!((store.requests(), store.orphans().await), (vec![1000, 1000, 500], 0));
}

#[tokio::test]
async fn no_more_requests_run_at_once_than_the_call_allows() {
    for at_once in [1, 2, 4] {
        let store = BulkStore::with_orphans(3500).await;
        let session = store.session();
        let call = REMOVE.replace("')", &format!("', max_concurrent_deletes => {at_once})"));
        let begun = async {
            while store.requests().len() < at_once {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            // None of these can end, so any other would be one too many.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            assert_eq!(store.requests().len(), at_once);
            store.permits.add_permits(100);
        };
        let (outcome, ()) = tokio::join!(session.metrics(&call), begun);
        assert_eq!(outcome.unwrap()["deleted_files_count"], 3500);
        assert_eq!((store.requests(), store.orphans().await), (vec![1000, 1000, 1000, 500], 0));
    }
}

#[tokio::test]
async fn a_file_that_the_store_refuses_is_the_only_one_that_fails() {
    let store = BulkStore::with_orphans(20).await;
    store.permits.add_permits(100);
    let refused = |kind, key: &str| {
        (kind == Kind::Delete && key.ends_with("orphan00007.parquet")).then_some(crate::watched::Wrong::Denied)
    };
    store.objects.answer_wrongly(refused);
    let session = store.session();
    let statuses = session.statuses(&REMOVE.replace("')", "', output => 'files')")).await;
    let failed: Vec<_> = statuses.iter().filter(|(_, status)| *status != "deleted").collect();
    assert_eq!(failed, [(&"s3://bucket/wh/t/data/orphan00007.parquet".to_string(), &"failed".to_string())]);
    assert_eq!((store.requests(), store.orphans().await), (vec![20], 1));
}

#[tokio::test]
async fn a_cancelled_run_finishes_what_it_began_and_begins_nothing() {
    let store = BulkStore::with_orphans(8500).await;
    let session = store.session();
    let asked = async {
        while store.requests().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        outcome = session.run(REMOVE) => panic!("no delete may end yet: {outcome:?}"),
        () = asked => {}
    }
    store.permits.add_permits(100);
    // The run goes on in a task of its own; it ends when the orphans stay the same for a while.
    let mut before = usize::MAX;
    while before != store.orphans().await {
        before = store.orphans().await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    let requests = store.requests();
    assert!((1..=4).contains(&requests.len()) && requests.iter().all(|keys| *keys == 1000), "{requests:?}");
    assert_eq!(store.orphans().await, 8500 - 1000 * requests.len());
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
