//! What is told of runs while they work: the stream of progress, and the spans.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use iceberg_maintenance::catalog::FileSystemCatalog;
use iceberg_maintenance::fixtures::{History, Table};
use iceberg_maintenance::{ExpireSnapshots, Maintenance, Progress, RemoveOrphanFiles, RunStage, Steps};
use url::Url;

use crate::spans::Spans;
use crate::support::Session;
use crate::watched::{Client, Kind, WatchedStore, Wrong};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const TABLE: &str = "s3://bucket/wh/t";
const EXPIRE: &str = "CALL system.expire_snapshots(table => 's3://bucket/wh/t', older_than => '1s', retain_last => 1)";
const REMOVE: &str = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t')";

/// Ten snapshots that replace each other's file, and three orphans, in a store whose requests take some time.
async fn slow_table() -> WatchedStore {
    let table = Table { location: Some(TABLE.into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
    let mut history = History::new(table);
    history.append(BEGIN_MS + DAY_MS, ["f0"]);
    for day in 1..10 {
        history.overwrite(
            BEGIN_MS + (day + 1) * DAY_MS,
            [format!("f{}", day - 1).as_str()],
            [format!("f{day}").as_str()],
        );
    }
    let store = WatchedStore::with_table(&history.build()).await;
    for name in ["x", "y", "z"] {
        store.add(&format!("wh/t/data/{name}.parquet"), "1234").await;
    }
    let latency = |_| Duration::from_millis(15);
    store.set_client(Client { latency, ..Client::default() });
    store
}

/// A session that knows the store. Its clock is far ahead: whatever was stored just now is old.
fn session(store: &WatchedStore) -> Session {
    let session = Session::new(Some(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
    session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
    session
}

/// All that is told until a run has ended.
async fn told(session: &Session, run: impl Future<Output = ()>) -> Vec<Progress> {
    let progress = session.maintenance.progress(Duration::from_millis(2));
    let until_the_end = async {
        let mut told: Vec<Progress> = vec![];
        let mut progress = progress;
        while !told.last().is_some_and(|last| last.stage.is_end()) {
            told.push(progress.next().await.expect("the session is there"));
        }
        told
    };
    futures::join!(until_the_end, run).0
}

/// True when nothing was told but these stages, each once, in this order, and the last. A short one may have passed between two looks.
fn are_stages(told: &[Progress], expected: &[RunStage]) -> bool {
    let mut stages: Vec<RunStage> = told.iter().map(|progress| progress.stage).collect();
    stages.dedup();
    let mut left = expected.iter();
    stages.iter().all(|stage| left.any(|expected| expected == stage)) && left.next().is_none()
}

fn never_less(told: &[Progress]) -> bool {
    let counts = |run: &Progress| {
        [
            run.manifests.done,
            run.manifest_lists.done,
            run.files_listed,
            run.candidates,
            run.deletes.done,
            run.bytes_read,
        ]
    };
    told.windows(2).all(|pair| counts(&pair[0]).iter().zip(counts(&pair[1])).all(|(before, after)| *before <= after))
}

fn steps(steps: Steps) -> (u64, u64) {
    (steps.done, steps.known)
}

#[tokio::test]
async fn an_expiry_tells_what_it_reads_commits_and_deletes() {
    let store = slow_table().await;
    let session = session(&store);
    let mut metrics = Default::default();
    let told = told(&session, async { metrics = session.metrics(EXPIRE).await.unwrap() }).await;
    use RunStage::{Committing, Deleting, Finished, Loading, ReadingMetadata};
    assert!(are_stages(&told, &[Loading, ReadingMetadata, Committing, Deleting, Finished]), "{told:#?}");
    assert!(never_less(&told), "{told:#?}");
    assert!(
        told.iter().all(|run| (run.run, run.operation.as_str(), run.table.as_str()) == (1, "expire_snapshots", TABLE))
    );
    let last = told.last().unwrap();
    let deleted = u64::try_from(metrics["deleted_files_count"]).unwrap();
    // Of nine expired snapshots: a file, two manifests (but the last one's, which stays), a list.
    assert!(deleted > 9 * 3, "{metrics:?}");
    assert_eq!(steps(last.deletes), (deleted, deleted));
    assert_eq!(last.bytes_deleted, u64::try_from(metrics["deleted_bytes"]).unwrap());
    assert_eq!(last.manifests.done, u64::try_from(metrics["processed_manifests_count"]).unwrap());
    assert_eq!(last.manifests.done, last.manifests.known);
    assert_eq!(steps(last.manifest_lists), (10, 10));
    assert_eq!((last.candidates, last.files_listed, steps(last.tables)), (deleted, 0, (0, 0)));
    assert!(last.bytes_read > 0 && last.elapsed > Duration::from_millis(15));
}

#[tokio::test]
async fn a_removal_of_orphans_tells_what_it_lists_and_finds() {
    let store = slow_table().await;
    let session = session(&store);
    let mut metrics = Default::default();
    let told = told(&session, async { metrics = session.metrics(REMOVE).await.unwrap() }).await;
    use RunStage::{Checking, Deleting, Finished, Listing, Loading, ReadingMetadata};
    assert!(are_stages(&told, &[Loading, ReadingMetadata, Listing, Checking, Deleting, Finished]), "{told:#?}");
    assert!(never_less(&told), "{told:#?}");
    let last = told.last().unwrap();
    assert_eq!(last.files_listed, u64::try_from(metrics["scanned_files_count"]).unwrap());
    assert_eq!((last.candidates, steps(last.deletes), last.bytes_deleted), (3, (3, 3), 12));
}

#[tokio::test]
async fn a_dry_run_deletes_nothing_in_its_progress_either() {
    let store = slow_table().await;
    let session = session(&store);
    let call = REMOVE.replace("')", "', dry_run => true)");
    let told = told(&session, async { drop(session.metrics(&call).await.unwrap()) }).await;
    let last = told.last().unwrap();
    assert_eq!((last.candidates, steps(last.deletes), last.stage), (3, (0, 0), RunStage::Finished));
}

#[tokio::test]
async fn a_run_that_fails_or_stays_incomplete_ends_as_failed() {
    let store = slow_table().await;
    let session = session(&store);
    store.answer_wrongly(|kind, _| (kind == Kind::Delete).then_some(Wrong::Denied));
    let told_of = told(&session, async { drop(session.failure(REMOVE).await) }).await;
    let last = told_of.last().unwrap();
    assert_eq!((last.stage, steps(last.deletes), last.bytes_deleted), (RunStage::Failed, (3, 3), 0));

    let files = REMOVE.replace("')", "', output => 'files')");
    let told_of = told(&session, async { drop(session.rows_until_the_end(&files).await) }).await;
    assert_eq!((told_of.last().unwrap().stage, told_of.last().unwrap().run), (RunStage::Failed, 2));

    let told_of =
        told(&session, async { drop(session.failure("CALL system.verify_table('/no/such/table')").await) }).await;
    assert_eq!(
        (told_of.last().unwrap().stage, told_of.last().unwrap().operation.as_str()),
        (RunStage::Failed, "verify_table")
    );
}

#[tokio::test]
async fn the_methods_for_rust_tell_the_same() {
    let store = slow_table().await;
    let session = session(&store);
    let maintenance = &session.maintenance;
    let options = ExpireSnapshots::default();
    let told_of = told(&session, async { drop(maintenance.expire_snapshots(TABLE, &options).await.unwrap()) }).await;
    let last = told_of.last().unwrap();
    assert_eq!(
        (last.operation.as_str(), last.table.as_str(), last.stage),
        ("expire_snapshots", TABLE, RunStage::Finished)
    );
    assert!(last.deletes.done > 0);

    let now_ms = maintenance.now_ms();
    let options = RemoveOrphanFiles::older_than(now_ms - 3 * DAY_MS, now_ms);
    let mut plan = None;
    let planning = async { plan = Some(maintenance.plan_remove_orphan_files(TABLE, &options).await.unwrap()) };
    let told_of = told(&session, planning).await;
    assert_eq!((steps(told_of.last().unwrap().deletes), told_of.last().unwrap().candidates), ((0, 0), 3));
    let plan = plan.unwrap();
    // A commit after the plan: the run that deletes reads what is new, and counts it as its own.
    session.metrics("CALL system.expire_snapshots(table => 's3://bucket/wh/t', older_than => '1s')").await.unwrap();
    store.answer_wrongly(|kind, key| (kind == Kind::Delete && key.ends_with("x.parquet")).then_some(Wrong::Denied));
    let told_of = told(&session, async { drop(maintenance.delete_orphan_files(plan).await.unwrap()) }).await;
    let last = told_of.last().unwrap();
    assert_eq!((steps(last.deletes), last.table.as_str(), last.bytes_deleted), ((3, 3), TABLE, 8));
    assert_eq!(last.stage, RunStage::Failed, "one file is left");
}

#[tokio::test]
async fn streams_see_all_runs_that_begin_after_them_and_runs_need_no_stream() {
    let store = slow_table().await;
    let session = session(&store);
    let (dropped, mut unpolled) =
        (session.maintenance.progress(Duration::ZERO), session.maintenance.progress(Duration::ZERO));
    drop(dropped);
    session.metrics(EXPIRE).await.unwrap();
    session.metrics(REMOVE).await.unwrap();
    let ended = [unpolled.next().await.unwrap(), unpolled.next().await.unwrap()];
    assert_eq!(ended.map(|run| (run.run, run.stage)), [(1, RunStage::Finished), (2, RunStage::Finished)]);

    let mut late = session.maintenance.progress(Duration::from_millis(1));
    assert!(tokio::time::timeout(Duration::from_millis(50), late.next()).await.is_err(), "the runs began before");
    drop(session);
    assert!(late.next().await.is_none() && unpolled.next().await.is_none(), "nobody is left who could begin a run");
}

#[tokio::test]
async fn a_catalog_tells_how_many_of_its_tables_are_done() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        let mut history = History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(2) });
        history.append(BEGIN_MS, ["f"]);
        history.build().write(folder.path().join("db").join(name)).unwrap();
    }
    let catalog = FileSystemCatalog::with_warehouse(folder.path().to_str().unwrap());
    let session = Session::with(Maintenance::builder().catalog("own", Arc::new(catalog)));
    let call = "CALL system.maintain_catalog(catalog => 'own', dry_run => true)";
    let told_of = told(&session, async { drop(session.rows(call).await.unwrap()) }).await;
    let last = told_of.last().unwrap();
    assert_eq!((steps(last.tables), last.stage), ((3, 3), RunStage::Finished));
    assert!(last.table.starts_with("own.db."), "{last:?}");

    let several = call.replace("dry_run", "concurrency => 3, dry_run");
    let spans = Spans::default();
    let told_of = {
        let _here = spans.note();
        told(&session, async { drop(session.rows(&several).await.unwrap()) }).await
    };
    assert!(told_of.iter().all(|run| run.per_second().is_none()), "nobody can say whose rate it would be");
    let noted = spans.noted();
    assert_eq!(noted.spans.iter().filter(|span| span.starts_with("table otel.name=\"own.db.")).count(), 3);
    let is_reading = |opened: &&String| opened.contains("reading metadata") && opened.ends_with("< table");
    assert_eq!(noted.opened.iter().filter(is_reading).count(), 1, "{:#?} {:#?}", noted.opened, noted.spans);
    let run = noted.spans.iter().find(|span| span.starts_with("run ")).unwrap();
    assert!(!run.contains(" table="), "{run}");
}

#[tokio::test]
async fn no_password_is_told_or_stands_in_a_span() {
    let session = Session::new(None);
    let spans = Spans::default();
    let told_of = {
        let _here = spans.note();
        let sql = "CALL system.expire_snapshots(table => 's3://AKIA:s3cret@bucket/t?X-Amz-Signature=s3cret')";
        told(&session, async { drop(session.failure(sql).await) }).await
    };
    assert_eq!(told_of.last().unwrap().table, "s3://bucket/t");
    assert!(!format!("{told_of:?} {:?}", spans.noted().spans).contains("s3cret"));
}

#[tokio::test]
async fn a_span_ends_with_its_run_however_long_its_counts_are_kept() {
    let store = slow_table().await;
    let session = session(&store);
    let _unpolled = session.maintenance.progress(Duration::from_secs(3600));
    let spans = Spans::default();
    let _here = spans.note();
    let plan = session.maintenance.plan_expire_snapshots(TABLE, &ExpireSnapshots::default()).await.unwrap();
    session.metrics(REMOVE).await.unwrap();
    let noted = spans.noted();
    assert_eq!(noted.open, BTreeSet::new(), "{:?}", noted.spans);
    drop(plan);
}

#[tokio::test]
async fn a_run_is_a_span_and_its_stages_are_spans_in_it() {
    let store = slow_table().await;
    let session = session(&store);
    let spans = Spans::default();
    {
        let _here = spans.note();
        session.metrics(EXPIRE).await.unwrap();
    }
    let noted = spans.noted();
    let run = format!(
        "run otel.name=\"expire_snapshots\" operation=\"expire_snapshots\" table=\"{TABLE}\" otel.status_code=\"OK\""
    );
    assert!(noted.spans[0].starts_with(&run) && noted.spans[0].contains(" files_listed=0 "), "{}", noted.spans[0]);
    let stages = ["loading", "reading metadata", "committing", "deleting"];
    let expected: Vec<String> =
        stages.iter().map(|stage| format!("stage otel.name=\"{stage}\" stage=\"{stage}\"")).collect();
    let mut opened = noted.spans[1..].to_vec();
    opened.dedup();
    assert_eq!(opened, expected);
    assert!(expected.iter().all(|stage| noted.opened.contains(&format!("{stage} < run"))), "{:#?}", noted.opened);
}
