//! Tables in an object store: which keys are left, what is asked of the store, and what its failures lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use iceberg_maintenance::Error;
use iceberg_maintenance::fixtures::{ContentFile, History, Table};
use url::Url;

use crate::support::{MetricRows, Session, deleted_nothing, same_numbers};
use crate::watched::{Kind, WatchedStore, Wrong};

const DAY_MS: i64 = 24 * 3600 * 1000;
/// When every history begins.
const BEGIN_MS: i64 = 1_700_000_000_000;
const LOCATION: &str = "s3://bucket/wh/t";

/// A table in a bucket, and a session that knows the bucket. Its clock is far ahead: whatever was stored just now is old.
struct Bucket {
    store: WatchedStore,
    session: Session,
    table: Table,
    before: BTreeSet<String>,
}

/// An empty table in the bucket.
fn empty() -> History {
    let table = Table { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
    History::new(table)
}

/// Snapshots 1 and 2 expire, 3 stays. `a` and `b` came with 1; `a` went with 2.
fn three_snapshots() -> Table {
    let mut history = empty();
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
    history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
    history.build()
}

impl Bucket {
    async fn new(table: Table) -> Self {
        let store = WatchedStore::with_table(&table).await;
        let now_ms = chrono::Utc::now().timestamp_millis();
        let session = Session::new(Some(now_ms + 10 * DAY_MS));
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
        let before = store.keys().await;
        Self { store, session, table, before }
    }

    async fn add(&mut self, keys: &[&str]) {
        for key in keys {
            self.store.add(key, "x").await;
            self.before.insert(key.to_string());
        }
    }

    /// The keys that must be left when these snapshots are gone: what nothing else needs is not there any more, a new
    /// metadata file is.
    fn left_without(&self, expired: &[i64]) -> BTreeSet<String> {
        let dead = self.dead_without(expired);
        let mut left: BTreeSet<_> = self.before.difference(&dead).cloned().collect();
        left.insert(self.next_metadata());
        left
    }

    fn dead_without(&self, expired: &[i64]) -> BTreeSet<String> {
        let dead = self.table.only_needed_by(&expired.iter().copied().collect());
        dead.into_iter().map(|file| format!("wh/t/{}", file.path)).collect()
    }

    fn next_metadata(&self) -> String {
        format!("wh/t/metadata/v{}.metadata.json", self.table.version + 1)
    }

    async fn expire(&self, more: &str) -> Result<MetricRows, String> {
        self.session.metrics(&expire(more)).await
    }

    async fn remove_orphans(&self, more: &str) -> Result<MetricRows, String> {
        self.session.metrics(&remove_orphans(more)).await
    }

    /// Says whether nothing was written or deleted since the table was made.
    async fn is_untouched(&self) -> bool {
        let writes = |(kind, _): &(Kind, String)| !matches!(kind, Kind::Get | Kind::Head | Kind::List);
        self.store.keys().await == self.before && !self.store.take_requests().iter().any(writes)
    }
}

fn expire(more: &str) -> String {
    format!("CALL system.expire_snapshots(table => '{LOCATION}'{more})")
}

fn remove_orphans(more: &str) -> String {
    format!("CALL system.remove_orphan_files(table => '{LOCATION}'{more})")
}

/// How often each Avro file was read; fails when a data file was.
fn reads_of_manifests(requests: &[(Kind, String)]) -> BTreeMap<String, usize> {
    let mut reads = BTreeMap::new();
    for (_, key) in requests.iter().filter(|(kind, _)| *kind == Kind::Get) {
        assert!(!key.starts_with("wh/t/data/"), "{key} was read");
        if key.ends_with(".avro") {
            *reads.entry(key.clone()).or_default() += 1;
        }
    }
    reads
}

/// The object with which a store is tried before the first commit.
fn is_probe(key: &str) -> bool {
    key.starts_with("wh/t/metadata/create-if-absent-")
}

fn writes(requests: &[(Kind, String)]) -> Vec<(Kind, String)> {
    let writes = |(kind, _): &&(Kind, String)| !matches!(kind, Kind::Get | Kind::Head | Kind::List);
    requests.iter().filter(writes).cloned().collect()
}

#[tokio::test]
async fn an_expiry_leaves_exactly_what_is_live() {
    let bucket = Bucket::new(three_snapshots()).await;
    let dry = bucket.expire(", dry_run => true").await.unwrap();
    let requests = bucket.store.take_requests();
    assert_eq!(writes(&requests), []);
    let reads = reads_of_manifests(&requests);
    assert_eq!(reads.len(), 3 + bucket.table.manifests.len(), "every list and every manifest");
    assert!(reads.values().all(|count| *count == 1), "{reads:?}");
    assert_eq!(bucket.store.keys().await, bucket.before);

    let real = bucket.expire("").await.unwrap();
    same_numbers(&dry, &real).unwrap();
    assert_eq!((real["deleted_data_files_count"], real["deleted_snapshots_count"]), (1, 2));
    assert_eq!(real["deleted_files_count"], bucket.dead_without(&[1, 2]).len() as i64);
    let requests = bucket.store.take_requests();
    assert!(reads_of_manifests(&requests).values().all(|count| *count == 1), "{requests:?}");
    let probe: Vec<Kind> = requests.iter().filter(|(_, key)| is_probe(key)).map(|(kind, _)| *kind).collect();
    assert_eq!(probe, [Kind::Put, Kind::Put, Kind::Delete], "the store is tried once");
    let deleted: Vec<_> = requests.iter().filter(|(kind, key)| *kind == Kind::Delete && !is_probe(key)).collect();
    assert_eq!(deleted.len() as i64, real["deleted_files_count"], "each file once");
    let left = bucket.store.keys().await;
    assert_eq!(left, bucket.left_without(&[1, 2]));

    deleted_nothing(&bucket.expire("").await.unwrap()).unwrap();
    assert_eq!(writes(&bucket.store.take_requests()), [], "a second run has nothing to do");
    assert_eq!(bucket.store.keys().await, left);
}

#[tokio::test]
async fn s3a_in_the_metadata_is_the_same_bucket() {
    let mut history = empty();
    history.append(BEGIN_MS + DAY_MS, ["s3a://bucket/wh/t/data/a.parquet", "s3a://bucket/wh/t/data/b.parquet"]);
    history.overwrite(
        BEGIN_MS + 2 * DAY_MS,
        ["s3a://bucket/wh/t/data/a.parquet", "s3a://bucket/wh/t/data/b.parquet"],
        ["b", "s3n://bucket/wh/t/data/c.parquet"],
    );
    let mut bucket = Bucket::new(history.build()).await;
    bucket.add(&["wh/t/data/a.parquet", "wh/t/data/b.parquet", "wh/t/data/c.parquet", "wh/t/data/o.parquet"]).await;
    let expired = bucket.expire("").await.unwrap();
    assert_eq!(expired["deleted_data_files_count"], 1, "b is still live under another spelling");
    let orphans = bucket.remove_orphans("").await.unwrap();
    assert_eq!((orphans["deleted_files_count"], orphans["skipped_prefix_mismatch_count"]), (1, 0));
    let data: Vec<_> = bucket.store.keys().await.into_iter().filter(|key| key.starts_with("wh/t/data/")).collect();
    assert_eq!(data, ["wh/t/data/b.parquet", "wh/t/data/c.parquet"]);
}

#[tokio::test]
async fn keys_are_exact_bytes() {
    let names = ["a%2Fb", "a b", "a+b", "a%20b", "grün-東京", "a#1", "a?b", "[x]", "p=1/p=%C3%A9"];
    let mut history = empty();
    let live: Vec<_> = names.iter().map(|name| ContentFile::data(&format!("data/live {name}.parquet"))).collect();
    let dead: Vec<_> = names.iter().map(|name| ContentFile::data(&format!("data/dead {name}.parquet"))).collect();
    let dead_paths: Vec<_> = dead.iter().map(|file| file.path.clone()).collect();
    history.append(BEGIN_MS + DAY_MS, live.into_iter().chain(dead));
    history.delete_files(BEGIN_MS + 2 * DAY_MS, dead_paths);
    let mut bucket = Bucket::new(history.build()).await;
    let real = bucket.expire("").await.unwrap();
    assert_eq!((real["deleted_data_files_count"], real["failed_deletions_count"]), (names.len() as i64, 0));
    let left = bucket.left_without(&[1]);
    assert_eq!(bucket.store.keys().await, left);

    // Neighbours that differ from a live key only after decoding or encoding.
    bucket.before = left.clone();
    let orphans: Vec<_> = names.iter().map(|name| format!("wh/t/data/orphan {name}.parquet")).collect();
    bucket.add(&orphans.iter().map(String::as_str).collect::<Vec<_>>()).await;
    bucket.add(&["wh/t/data/live a%2520b.parquet", "wh/t/data/live%20a b.parquet"]).await;
    let removed = bucket.remove_orphans("").await.unwrap();
    assert_eq!(removed["deleted_files_count"], names.len() as i64 + 2, "{removed:?}");
    assert_eq!(bucket.store.keys().await, left);
}

#[tokio::test]
async fn orphans_go_and_nothing_else() {
    let mut bucket = Bucket::new(three_snapshots()).await;
    let live = bucket.before.clone();
    bucket.add(&["wh/t/data/o.parquet", "wh/t/metadata/o-m0.avro", "wh/t/other/o", "wh/t/data/_tmp/o"]).await;
    // Another table whose key only begins alike, and one around it.
    bucket.add(&["wh/t2/data/x.parquet", "wh/x.parquet", "wh/t-old/metadata/v1.metadata.json"]).await;
    let dry = bucket.remove_orphans(", location => 'data', dry_run => true").await.unwrap();
    let requests = bucket.store.take_requests();
    assert_eq!((dry["deleted_files_count"], writes(&requests)), (1, vec![]));
    let reads = reads_of_manifests(&requests);
    assert_eq!(reads.len(), 3 + bucket.table.manifests.len());
    assert!(reads.values().all(|count| *count == 1), "{reads:?}");
    let inside = bucket.remove_orphans(", location => 's3://bucket/wh/t/data/'").await.unwrap();
    same_numbers(&dry, &inside).unwrap();
    bucket.before.remove("wh/t/data/o.parquet");
    assert_eq!(bucket.store.keys().await, bucket.before);

    let all = bucket.remove_orphans("").await.unwrap();
    let counts = ["deleted_files_count", "skipped_hidden_count", "skipped_foreign_files_count"].map(|name| all[name]);
    assert_eq!(counts, [1, 1, 1]);
    let all = bucket.remove_orphans(", include_foreign => true").await.unwrap();
    assert_eq!((all["deleted_files_count"], all["skipped_foreign_files_count"]), (1, 0));
    let left = bucket.store.keys().await;
    let ours: BTreeSet<_> =
        left.iter().filter(|key| key.starts_with("wh/t/") && !key.contains("/_")).cloned().collect();
    assert_eq!(ours, live);
    assert_eq!(left.len(), live.len() + 4, "neighbours and the hidden file stay: {left:?}");
    deleted_nothing(&bucket.remove_orphans("").await.unwrap()).unwrap();
}

#[tokio::test]
async fn another_bucket_in_the_metadata_is_a_mismatch_until_declared_equal() {
    let table = || {
        let mut history = empty();
        history.append(BEGIN_MS, ["a", "s3://other/wh/t/data/x.parquet", "cos://bucket/wh/t/data/y.parquet"]);
        history.build()
    };
    let strangers = ["wh/t/data/x.parquet", "wh/t/data/y.parquet"];
    let equal = ", equal_schemes => 'cos=>s3', equal_authorities => MAP {'other': 'bucket'}";
    for (arguments, deleted, kept) in [
        (", prefix_mismatch_mode => 'IGNORE'", 1, 2),
        (", prefix_mismatch_mode => 'DELETE'", 3, 0),
        (", equal_schemes => 'cos=>s3', prefix_mismatch_mode => 'IGNORE'", 1, 1),
        (equal, 1, 0),
    ] {
        let mut bucket = Bucket::new(table()).await;
        let own = bucket.before.clone();
        bucket.add(&strangers).await;
        bucket.add(&["wh/t/data/o.parquet"]).await;
        let removed = bucket.remove_orphans(arguments).await.unwrap();
        let counts = (removed["deleted_files_count"], removed["skipped_prefix_mismatch_count"]);
        assert_eq!(counts, (deleted, kept), "{arguments}");
        let left: BTreeSet<_> = bucket.store.keys().await.difference(&own).cloned().collect();
        let expected = if deleted == 3 { BTreeSet::new() } else { strangers.map(str::to_string).into() };
        assert_eq!(left, expected, "{arguments}");
    }

    let mut bucket = Bucket::new(table()).await;
    bucket.add(&strangers).await;
    bucket.add(&["wh/t/data/o.parquet"]).await;
    for arguments in ["", ", prefix_mismatch_mode => 'ERROR'"] {
        let error = bucket.remove_orphans(arguments).await.unwrap_err();
        assert!(error.contains("(s3://other, s3://bucket)") && error.contains("2 listed files"), "{error}");
    }
    assert!(bucket.is_untouched().await);
}

#[tokio::test]
async fn one_failed_delete_stops_none_of_the_others() {
    let bucket = Bucket::new(three_snapshots()).await;
    let mut deletes = 0;
    bucket.store.answer_wrongly(move |kind, _| {
        deletes += usize::from(kind == Kind::Delete);
        (kind == Kind::Delete && deletes == 2).then_some(Wrong::Fails)
    });
    let error = bucket.session.failure(&expire("")).await;
    let planned_files = bucket.dead_without(&[1, 2]).len() as u64;
    match Error::find(&error) {
        Some(found @ Error::PartialDelete { failed: 1, planned, .. }) => {
            assert!(found.is_partial() && *planned == planned_files);
            assert!(found.to_string().contains("the commit is done"), "{found}");
        }
        other => panic!("{other:?}"),
    }
    let rest: BTreeSet<_> = bucket.store.keys().await.difference(&bucket.left_without(&[1, 2])).cloned().collect();
    assert_eq!(rest.len(), 1, "all others were tried: {rest:?}");

    bucket.store.recover();
    deleted_nothing(&bucket.expire("").await.unwrap()).unwrap();
    assert_eq!(bucket.store.keys().await.len(), bucket.left_without(&[1, 2]).len() + 1, "expiry doesn't look again");
    let collected = bucket.session.statuses(&remove_orphans(", output => 'files'")).await;
    let expected = rest.iter().map(|key| (format!("s3://bucket/{key}"), "deleted".to_string()));
    assert_eq!(collected, expected.collect());
    assert_eq!(bucket.store.keys().await, bucket.left_without(&[1, 2]));
}

#[tokio::test]
async fn file_rows_show_which_delete_failed() {
    let bucket = Bucket::new(three_snapshots()).await;
    let stubborn = |kind: Kind, key: &str| kind == Kind::Delete && key == "wh/t/data/a.parquet";
    bucket.store.answer_wrongly(move |kind, key| stubborn(kind, key).then_some(Wrong::Fails));
    let (rows, error) = bucket.session.rows_until_the_end(&expire(", output => 'files'")).await;
    let error = error.expect("a partial failure is no success");
    assert!(error.contains("1 of 4 files") && error.contains("the commit is done"), "{error}");
    assert_eq!(rows.len(), bucket.dead_without(&[1, 2]).len());
    for row in rows {
        let is_stubborn = row["file_path"].as_deref() == Some("s3://bucket/wh/t/data/a.parquet");
        assert_eq!(row["status"].as_deref(), Some(if is_stubborn { "failed" } else { "deleted" }), "{row:?}");
        assert_eq!(row["error"].as_deref().is_some_and(|why| why.contains("the network is down")), is_stubborn);
    }
}

#[tokio::test]
async fn when_no_delete_is_allowed_nothing_is_lost() {
    let bucket = Bucket::new(three_snapshots()).await;
    bucket.store.answer_wrongly(|kind, key| (kind == Kind::Delete && !is_probe(key)).then_some(Wrong::Denied));
    let error = bucket.session.failure(&expire("")).await;
    let all = bucket.dead_without(&[1, 2]).len() as u64;
    let is_all = |error: &Error| matches!(error, Error::PartialDelete { failed, planned, .. } if (*failed, *planned) == (all, all));
    assert!(Error::find(&error).is_some_and(is_all), "{error}");
    let mut expected = bucket.before.clone();
    expected.insert(bucket.next_metadata());
    assert_eq!(bucket.store.keys().await, expected);
}

#[tokio::test]
async fn a_time_out_says_nothing_about_a_file() {
    let dead = |bucket: &Bucket| bucket.dead_without(&[1, 2]).into_iter().filter(|key| key.ends_with(".avro"));
    let live = |bucket: &Bucket| {
        let own = bucket.table.live_files(3).into_iter().map(|file| format!("wh/t/{}", file.path));
        own.filter(|key| key.ends_with(".avro")).collect::<Vec<_>>()
    };
    let some = Bucket::new(three_snapshots()).await;
    for unreachable in dead(&some).chain(live(&some)) {
        for wrong in [Wrong::Fails, Wrong::Denied] {
            let bucket = Bucket::new(three_snapshots()).await;
            let key = unreachable.clone();
            bucket.store.answer_wrongly(move |kind, asked| (kind == Kind::Get && asked == key).then_some(wrong));
            let error = bucket.expire("").await.unwrap_err();
            assert!(error.contains(&unreachable), "{error}");
            assert!(bucket.is_untouched().await, "{unreachable}");
            bucket.add_orphan_and_fail_to_remove_it(&unreachable).await;
        }
    }
}

impl Bucket {
    async fn add_orphan_and_fail_to_remove_it(mut self, unreachable: &str) {
        self.add(&["wh/t/data/o.parquet"]).await;
        let error = self.remove_orphans("").await.unwrap_err();
        assert!(error.contains(unreachable), "{error}");
        assert!(self.is_untouched().await, "{unreachable}");
    }
}

#[tokio::test]
async fn missing_files_of_expired_snapshots_are_skipped_and_those_of_retained_ones_stop_the_run() {
    let bucket = Bucket::new(three_snapshots()).await;
    let mut missing_list = three_snapshots();
    let list = missing_list.snapshot(1).unwrap().manifest_list.clone().unwrap();
    missing_list.fault(&list, iceberg_maintenance::fixtures::Fault::Missing);
    let damaged = Bucket::new(missing_list).await;
    let real = damaged.expire("").await.unwrap();
    assert_eq!((real["skipped_missing_metadata_count"], real["deleted_snapshots_count"]), (1, 2));
    let left = damaged.store.keys().await;
    let live: BTreeSet<_> = bucket.table.live_files(3).into_iter().map(|file| format!("wh/t/{}", file.path)).collect();
    assert!(live.is_subset(&left), "{left:?}");

    for needed in live.iter().filter(|key| key.ends_with(".avro")) {
        let mut table = three_snapshots();
        table.fault(needed.trim_start_matches("wh/t/"), iceberg_maintenance::fixtures::Fault::Missing);
        let bucket = Bucket::new(table).await;
        let error = bucket.session.failure(&expire("")).await;
        let needs = |error: &Error| matches!(error, Error::NeededFileUnreadable { needed_by: 3, .. });
        assert!(Error::find(&error).is_some_and(needs), "{error}");
        assert!(bucket.is_untouched().await, "{needed}");
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_read_back() {
    for wrong in [Wrong::AnswerLost, Wrong::AlreadyExists] {
        let bucket = Bucket::new(three_snapshots()).await;
        let metadata = bucket.next_metadata();
        bucket.store.answer_wrongly(move |kind, key| (kind == Kind::Put && key == metadata).then_some(wrong));
        let real = bucket.expire("").await.unwrap();
        assert_eq!(real["deleted_snapshots_count"], 2, "{wrong:?}");
        assert_eq!(bucket.store.keys().await, bucket.left_without(&[1, 2]), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_commit_that_did_not_arrive_deletes_nothing() {
    for wrong in [Wrong::Fails, Wrong::Denied] {
        let bucket = Bucket::new(three_snapshots()).await;
        bucket.store.answer_wrongly(move |kind, key| (kind == Kind::Put && !is_probe(key)).then_some(wrong));
        let error = bucket.session.failure(&expire("")).await;
        let error = Error::find(&error).unwrap_or_else(|| panic!("{error}"));
        assert!(!error.is_partial(), "{error}");
        // A refused write certainly didn't happen; nobody knows of one that failed.
        assert_eq!(matches!(error, Error::CommitUnknown { .. }), wrong == Wrong::Fails, "{error}");
        assert_eq!(bucket.store.keys().await, bucket.before);
        let is_delete = |(kind, key): &(Kind, String)| *kind == Kind::Delete && !is_probe(key);
        assert!(!bucket.store.take_requests().iter().any(is_delete));
    }
}

#[tokio::test]
async fn a_store_that_can_not_be_tried_gets_no_commit() {
    for wrong in [Wrong::Fails, Wrong::Denied, Wrong::AnswerLost] {
        let bucket = Bucket::new(three_snapshots()).await;
        bucket.store.answer_wrongly(move |kind, key| (kind == Kind::Put && is_probe(key)).then_some(wrong));
        let error = bucket.session.failure(&expire("")).await;
        let error = Error::find(&error).unwrap_or_else(|| panic!("{error}"));
        assert!(matches!(error, Error::Storage { .. }), "{error}");
        assert_eq!(bucket.store.keys().await, bucket.before);
    }
}

#[tokio::test]
async fn a_commit_that_nobody_can_look_at_deletes_nothing_and_is_not_hidden() {
    let bucket = Bucket::new(three_snapshots()).await;
    let metadata = bucket.next_metadata();
    // The commit is done and answered; then the table can't be read any more.
    bucket.store.answer_wrongly(move |kind, key| (kind == Kind::Get && key == metadata).then_some(Wrong::Fails));
    let error = bucket.session.failure(&expire("")).await;
    let error = Error::find(&error).unwrap_or_else(|| panic!("{error}"));
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error}");
    let mut expected = bucket.before.clone();
    expected.insert(bucket.next_metadata());
    assert_eq!(bucket.store.keys().await, expected);
}

#[tokio::test]
async fn a_hint_that_can_not_be_written_does_not_undo_the_commit() {
    let bucket = Bucket::new(three_snapshots()).await;
    bucket.store.answer_wrongly(|kind, key| (kind == Kind::Put && key.ends_with(".text")).then_some(Wrong::Denied));
    assert_eq!(bucket.expire("").await.unwrap()["deleted_snapshots_count"], 2);
    assert_eq!(bucket.store.keys().await, bucket.left_without(&[1, 2]));
    assert_eq!(bucket.store.content("wh/t/metadata/version-hint.text").await, bucket.table.version.to_string());
    bucket.store.recover();
    deleted_nothing(&bucket.expire("").await.unwrap()).unwrap();
}

#[tokio::test]
async fn gc_enabled_false_is_refused_before_anything_but_the_metadata_is_read() {
    let mut table = three_snapshots();
    table.property("gc.enabled", "false");
    let bucket = Bucket::new(table).await;
    for call in [expire(""), expire(", dry_run => true"), remove_orphans(""), remove_orphans(", dry_run => true")] {
        let error = bucket.session.failure(&call).await;
        assert!(matches!(Error::find(&error), Some(Error::GcDisabled { .. })), "{call}: {error}");
        for (kind, key) in bucket.store.take_requests() {
            let newest = format!("wh/t/metadata/v{}.metadata.json", bucket.table.version);
            let of_metadata = match kind {
                Kind::List => key == "wh/t/metadata",
                Kind::Get | Kind::Head => key == newest || key == "wh/t/metadata/version-hint.text",
                Kind::Put | Kind::Delete | Kind::Other => false,
            };
            assert!(of_metadata, "{call}: {kind:?} {key}");
        }
    }
    assert_eq!(bucket.store.keys().await, bucket.before);
}
