//! The Rust API beside SQL: plans as values, the two phases, and what an embedder may do in between.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use iceberg_maintenance::fixtures::{History, Table};
use iceberg_maintenance::report::{FileStatus, Operation, Report};
use iceberg_maintenance::retention::{Reason, RetentionPolicy, choose_expired};
use iceberg_maintenance::table::TableMetadata;
use iceberg_maintenance::{Error, ExpireSnapshots, FixedClock, Maintenance, MaintenanceSql, RemoveOrphanFiles};
use serde_json::{Value, json};
use url::Url;

use crate::neighbours::Scene;
use crate::support::{Session, disk, files, literal};
use crate::table::Table as OnDisk;
use crate::watched::{Kind, WatchedStore, Wrong};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 60 * DAY_MS;

/// Snapshots 1 and 2 expire, 3 stays. `a` and `b` came with 1, `a` went with 2.
fn three_snapshots() -> Table {
    let mut history = History::new(Table { last_updated_ms: BEGIN_MS, modified_ms: Some(BEGIN_MS), ..Table::new(2) });
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
    history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
    history.build()
}

fn dead(table: &Table) -> BTreeSet<String> {
    table.only_needed_by(&BTreeSet::from([1, 2])).into_iter().map(|file| file.path).collect()
}

#[tokio::test]
async fn a_plan_can_be_looked_at_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let written = three_snapshots().write(folder.path()).unwrap();
    let session = Session::new(Some(NOW_MS));
    let table = written.folder.to_str().unwrap();
    let plan = session.maintenance.plan_expire_snapshots(table, &ExpireSnapshots::default()).await.unwrap();
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["table"], json!(table));
    assert_eq!(json["base_metadata_location"], json!(written.locate(&written.metadata_path)));
    assert_eq!(json["change"]["removed_snapshot_ids"], json!([1, 2]));
    assert_eq!(json["refs"].as_array().unwrap().len(), 1);
    let rules: Vec<_> = json["snapshots"].as_array().unwrap().iter().map(|s| &s["reason"]["rule"]).collect();
    assert_eq!(rules, [&json!("old_on_branch"), &json!("old_on_branch"), &json!("head")]);
    let file = |file: &Value| file["path"].as_str().unwrap().to_string();
    let listed: BTreeSet<_> = json["files"].as_array().unwrap().iter().map(file).collect();
    assert_eq!(listed, dead(&written.table).iter().map(|path| written.locate(path)).collect());
    assert!(json["files"].as_array().unwrap().iter().all(|file| file["status"] == json!("planned")));
    assert_eq!(json["metrics"]["deleted_snapshots_count"], json!(2));

    let options = RemoveOrphanFiles::older_than(NOW_MS - 3 * DAY_MS, NOW_MS);
    std::fs::write(folder.path().join("data/young.parquet"), "x").unwrap();
    let orphans = session.maintenance.plan_remove_orphan_files(table, &options).await.unwrap();
    let json = serde_json::to_value(&orphans).unwrap();
    assert_eq!((&json["operation"], &json["files"]), (&json!("remove_orphan_files"), &json!([])));
    assert_eq!(json["metrics"]["scanned_files_count"], json!(files(&disk(folder.path())).len()));
}

#[test]
fn snapshots_are_chosen_without_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let written = three_snapshots().write(folder.path()).unwrap();
    let text = std::fs::read(folder.path().join(&written.metadata_path)).unwrap();
    let metadata = TableMetadata::parse("s3://nowhere/v4.metadata.json", &text).unwrap();
    let choose = |policy: RetentionPolicy| choose_expired(&metadata, &policy, NOW_MS);
    assert_eq!(choose(RetentionPolicy::default()).unwrap().expired_ids(), [1, 2].into());
    let last_two = RetentionPolicy { retain_last: Some(2), ..RetentionPolicy::default() };
    let decision = choose(last_two).unwrap();
    assert_eq!(decision.expired_ids(), [1].into());
    let minimum = Reason::WithinMinimum { branch: "main".into(), minimum: 2 };
    assert_eq!(decision.snapshots[1].reason, minimum);
    let unknown = RetentionPolicy { snapshot_ids: Some(vec![9]), ..RetentionPolicy::default() };
    assert!(matches!(choose(unknown), Err(Error::Argument { .. })));
}

#[tokio::test]
async fn a_file_that_is_gone_already_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let written = three_snapshots().write(folder.path()).unwrap();
    let maintenance = Session::new(Some(NOW_MS));
    let (table, maintenance, _session) =
        (written.folder.to_str().unwrap(), maintenance.maintenance.clone(), maintenance);
    let plan = maintenance.plan_expire_snapshots(table, &ExpireSnapshots::default()).await.unwrap();
    let planned = plan.files().len() as u64;
    let committed = maintenance.commit(plan).await.unwrap();
    for file in ["data/a.parquet", written.table.snapshot(1).unwrap().manifest_list.as_ref().unwrap()] {
        std::fs::remove_file(folder.path().join(file)).unwrap();
    }
    let report = maintenance.delete_files(committed).await.unwrap();
    report.require_complete().unwrap();
    assert_eq!((report.metrics.already_missing_files_count, report.metrics.deleted_files_count), (2, planned - 2));
    assert_eq!(report.metrics.deleted_data_files_count, 0);
    assert!(dead(&written.table).iter().all(|file| !folder.path().join(file).exists()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_expiry_is_not_cut_between_commit_and_deletes() {
    let table = Table { location: Some("s3://bucket/wh/t".into()), ..three_snapshots() };
    for stop_at in [Kind::Put, Kind::Delete] {
        let store = WatchedStore::with_table(&table).await;
        let session = Session::new(Some(NOW_MS));
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
        let (reached, is_reached) = mpsc::channel();
        let (resume, may_resume) = mpsc::channel();
        let mut is_first = true;
        store.answer_wrongly(move |kind, _| {
            if kind == stop_at && std::mem::take(&mut is_first) {
                reached.send(()).unwrap();
                may_resume.recv().unwrap();
            }
            None
        });
        let options = ExpireSnapshots::default();
        let mut expiry = Box::pin(session.maintenance.expire_snapshots("s3://bucket/wh/t", &options));
        while is_reached.try_recv().is_err() {
            assert!(futures::poll!(&mut expiry).is_pending(), "it ended before {stop_at:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(expiry);
        resume.send(()).unwrap();
        let dead: BTreeSet<_> = dead(&table).into_iter().map(|file| format!("wh/t/{file}")).collect();
        for _ in 0..500 {
            if store.keys().await.is_disjoint(&dead) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let keys = store.keys().await;
        assert!(keys.contains("wh/t/metadata/v5.metadata.json") && keys.is_disjoint(&dead), "{stop_at:?}: {keys:?}");
    }
}

#[tokio::test]
async fn registering_twice_is_fine() {
    let folder = tempfile::tempdir().unwrap();
    let written = three_snapshots().write(folder.path()).unwrap();
    let session = Session::new(Some(NOW_MS));
    let again = iceberg_maintenance::register(&session.context).unwrap();
    assert!(again.now_ms() > NOW_MS);
    let table = literal(written.folder.to_str().unwrap());
    let call = format!("CALL system.expire_snapshots(table => {table})");
    assert_eq!(session.metrics(&call).await.unwrap()["deleted_snapshots_count"], 2);
    let rows = session.context.sql(&format!("SELECT * FROM expire_snapshots({table})")).await.unwrap();
    assert!(rows.collect().await.unwrap().iter().map(|batch| batch.num_rows()).sum::<usize>() > 0);
    assert!(session.context.maintenance_sql("SELECT 1").await.is_ok());
}

#[tokio::test]
async fn each_session_has_its_own_clock() {
    let folder = tempfile::tempdir().unwrap();
    let written = three_snapshots().write(folder.path()).unwrap();
    let call = |more: &str| {
        format!("CALL system.expire_snapshots(table => {}{more})", literal(written.folder.to_str().unwrap()))
    };
    // Five days after snapshot 1, and long after all of them.
    let (early, late) = (Session::new(Some(BEGIN_MS + 6 * DAY_MS + 1)), Session::new(Some(NOW_MS)));
    let dry = |rows: Result<crate::support::MetricRows, String>| rows.unwrap()["deleted_snapshots_count"];
    assert_eq!(dry(early.metrics(&call(", dry_run => true")).await), 1);
    assert_eq!(dry(late.metrics(&call(", dry_run => true")).await), 2);
    assert_eq!(dry(early.metrics(&call("")).await), 1);
    assert_eq!(OnDisk::read(Path::new("/"), written.folder.to_str().unwrap()).snapshot_ids(), BTreeSet::from([2, 3]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tables_maintained_at_once_do_not_mix() {
    let warehouse = tempfile::tempdir().unwrap();
    let session = Session::new(Some(NOW_MS));
    let runs = (0..8).map(|number| {
        // The same names and ids everywhere; each table keeps another number of snapshots and has as many orphans.
        let mut table =
            Table { uuid: Some(iceberg_maintenance::fixtures::uuid_of(&number.to_string())), ..three_snapshots() };
        table.property("history.expire.min-snapshots-to-keep", &(1 + number % 3).to_string());
        for orphan in 0..number {
            table.stray(&format!("data/o{orphan}.parquet"), BEGIN_MS);
        }
        let written = table.write(warehouse.path().join(number.to_string())).unwrap();
        let maintenance = session.maintenance.clone();
        tokio::spawn(async move {
            let folder = written.folder.to_str().unwrap();
            let options = RemoveOrphanFiles::older_than(NOW_MS - 3 * DAY_MS, NOW_MS);
            let plan = maintenance.plan_remove_orphan_files(folder, &options).await.unwrap();
            let orphans = maintenance.delete_orphan_files(plan).await.unwrap();
            let expired = maintenance.expire_snapshots(folder, &ExpireSnapshots::default()).await.unwrap();
            (number, written, orphans, expired)
        })
    });
    for run in runs.collect::<Vec<_>>() {
        let (number, written, orphans, expired) = run.await.unwrap();
        assert_eq!(orphans.metrics.deleted_files_count, number);
        assert_eq!(expired.metrics.deleted_snapshots_count, 2 - number % 3);
        let inside = |path: &str| path.starts_with(&format!("{}/", written.location));
        let all = orphans.files.iter().chain(&expired.files);
        assert!(all.into_iter().all(|file| inside(&file.path) && file.status == FileStatus::Deleted));
        let gone: BTreeSet<i64> = (1..=2 - (number % 3) as i64).collect();
        let dead: BTreeSet<_> = written.table.only_needed_by(&gone).into_iter().map(|file| file.path).collect();
        let listed: BTreeSet<_> = files(&disk(&written.folder));
        assert!(listed.is_disjoint(&dead));
        assert!(written.table.live_files(3).iter().all(|file| listed.contains(&file.path)));
        assert_eq!(expired.files.len(), dead.len());
    }
}

#[tokio::test]
async fn every_run_that_came_to_an_end_is_told_whole() {
    let folder = tempfile::tempdir().unwrap();
    let written = three_snapshots().write(folder.path()).unwrap();
    std::fs::write(folder.path().join("data/orphan.parquet"), "x").unwrap();
    let told: Arc<Mutex<Vec<Report>>> = Arc::default();
    let sink = Arc::clone(&told);
    let builder = Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS)));
    let session = Session::with(builder.on_report(move |report| sink.lock().unwrap().push(report.clone())));
    let table = literal(written.folder.to_str().unwrap());
    let took = || std::mem::take(&mut *told.lock().unwrap());
    let paths = |report: &Report| report.files.iter().map(|file| file.path.clone()).collect::<BTreeSet<_>>();
    let dead: BTreeSet<_> = dead(&written.table).iter().map(|path| written.locate(path)).collect();

    session.failure("CALL system.expire_snapshots(table => '/no/such/table')").await;
    session.run(&format!("EXPLAIN CALL system.expire_snapshots(table => {table})")).await.unwrap();
    session.run(&format!("SELECT * FROM verify_table({table})")).await.unwrap();
    assert!(took().is_empty(), "nothing of this is a run that came to an end");

    for (dry_run, status) in [(true, FileStatus::Planned), (false, FileStatus::Deleted)] {
        let sql = format!("CALL system.expire_snapshots(table => {table}, dry_run => {dry_run})");
        let rows = session.metrics(&sql).await.unwrap();
        let [report] = &took()[..] else { panic!("one run") };
        assert_eq!((report.operation, report.metrics.dry_run), (Operation::ExpireSnapshots, dry_run));
        assert_eq!(paths(report), dead);
        assert!(report.files.iter().all(|file| file.status == status), "{report:?}");
        assert_eq!(report.snapshots.iter().filter(|snapshot| snapshot.reason.expires()).count(), 2);
        assert_eq!(report.refs.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["main"]);
        let shown = report.metrics.rows().into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        assert_eq!(rows, shown, "the numbers of the rows");
    }
    let orphans = RemoveOrphanFiles::older_than(i64::MAX, NOW_MS);
    let plan = session.maintenance.plan_remove_orphan_files(written.folder.to_str().unwrap(), &orphans).await.unwrap();
    let report = session.maintenance.delete_orphan_files(plan).await.unwrap();
    let [told] = &took()[..] else { panic!("one run") };
    assert_eq!((told.operation, paths(told)), (Operation::RemoveOrphanFiles, paths(&report)));
}

#[tokio::test]
async fn a_run_after_which_the_table_is_not_whole_is_told_too() {
    let table = Table { location: Some("s3://bucket/wh/t".into()), ..three_snapshots() };
    let store = WatchedStore::with_table(&table).await;
    let told: Arc<Mutex<Vec<Report>>> = Arc::default();
    let sink = Arc::clone(&told);
    let builder = Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS)));
    let session = Session::with(builder.on_report(move |report| sink.lock().unwrap().push(report.clone())));
    session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
    // With the first delete, somebody takes the manifests away.
    let mut are_gone = false;
    store.answer_wrongly(move |kind, key| {
        are_gone |= kind == Kind::Delete;
        (are_gone && kind == Kind::Get && key.ends_with(".avro")).then_some(Wrong::Missing)
    });
    let error = session.failure("CALL system.expire_snapshots(table => 's3://bucket/wh/t', verify => true)").await;
    assert!(matches!(Error::find(&error), Some(Error::Unhealthy { when: "after the operation", .. })), "{error}");
    let [report] = &std::mem::take(&mut *told.lock().unwrap())[..] else { panic!("one run") };
    assert_eq!((report.metrics.deleted_snapshots_count, report.metrics.failed_deletions_count), (2, 0));
}

#[tokio::test]
async fn a_run_goes_on_and_keeps_to_its_limits_though_whoever_is_told_panics() {
    let scene = Scene::new();
    let names = [("db", "t", "t"), ("db", "u", "u")];
    let (_, catalog) = scene.session(&names, |_| {});
    let builder = Maintenance::builder().clock(Arc::new(FixedClock(crate::neighbours::NOW_MS)));
    let builder = builder.on_report(|_| panic!("an account that can't be kept")).on_notice(|_| panic!("nor a notice"));
    let session = Session::with(builder.catalog("own", catalog));
    let count = || names.map(|(_, _, folder)| files(&disk(&scene.root.join(folder))).len()).into_iter().sum::<usize>();
    let before = count();
    let call = "CALL system.maintain_catalog(catalog => 'own', max_total_delete_count => 3)";
    let (rows, _) = session.rows_until_the_end(call).await;
    assert_eq!(rows.len(), 2);
    // The commit of each expiry adds a metadata file.
    let expired = rows.iter().filter(|row| row["deleted_snapshots_count"].as_deref() == Some("1")).count();
    assert!(expired > 0 && before + expired - count() <= 3, "{rows:?}");
    session.metrics("CALL system.expire_snapshots('own.db.u')").await.unwrap();
}
