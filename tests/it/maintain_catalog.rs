//! All tables of a catalog in one call: their order, and that no table's failure or state touches another.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use iceberg_maintenance::catalog::FileSystemCatalog;
use iceberg_maintenance::fixtures::History;
use iceberg_maintenance::report::Operation;
use iceberg_maintenance::{Clock, FixedClock, Maintenance};

use crate::neighbours::{BEGIN_MS, DAY_MS, NOW_MS, Scene};
use crate::support::{Disk, Row, Session, disk, files, unchanged};

const CALL: &str = "CALL system.maintain_catalog(catalog => 'own')";

/// The same call with one more argument.
fn with(call: &str, argument: &str) -> String {
    format!("{}, {argument})", call.strip_suffix(')').unwrap())
}

fn cell<'a>(row: &'a Row, column: &str) -> &'a str {
    row[column].as_deref().unwrap_or("NULL")
}

/// Some columns of the rows, and the error at their end.
async fn called(session: &Session, sql: &str, columns: &[&str]) -> (Vec<String>, Option<String>) {
    let (rows, error) = session.rows_until_the_end(sql).await;
    let text = |row: &Row| columns.iter().map(|column| cell(row, column)).collect::<Vec<_>>().join(" ");
    (rows.iter().map(text).collect(), error)
}

const DONE: [&str; 5] =
    ["table_name", "status", "deleted_snapshots_count", "deleted_files_count", "orphan_files_count"];

/// What an expiry and an orphan removal leave of a table of the scene: everything but the first snapshot's manifest list and
/// manifest, the file that it alone had, and the orphan.
fn is_maintained(before: &Disk, after: &Disk) -> bool {
    files(before).difference(&files(after)).count() >= 3 && !files(after).contains("data/orphan.parquet")
}

#[tokio::test]
async fn no_table_that_fails_or_is_skipped_stops_the_others() {
    let scene = Scene::new();
    scene.table("closed", "closed", |history| {
        history.table_mut().property("gc.enabled", "false");
    });
    scene.table("damaged", "damaged", |_| {});
    let metadata = scene.root.join("damaged/metadata");
    for entry in fs::read_dir(&metadata).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "avro") {
            fs::remove_file(path).unwrap();
        }
    }
    fs::create_dir_all(scene.root.join("broken/metadata")).unwrap();
    fs::write(scene.root.join("broken/metadata/v1.metadata.json"), "{").unwrap();
    let names = ["t", "broken", "closed", "damaged", "gone", "u"].map(|name| ("db", name, name));
    let names = [&names[..], &[("secret", "x", "x")]].concat();
    let (session, catalog) = scene.session(&names, |catalog| catalog.forbidden = vec!["secret".into()]);
    let before = ["t", "u", "closed", "damaged"].map(|table| disk(&scene.root.join(table)));
    let (rows, error) = called(&session, CALL, &["table_name", "status", "reason"]).await;
    let expected = [
        ("own.db.closed skipped", "gc.enabled = 'false'"),
        ("own.db.damaged failed", "expire_snapshots: "),
        ("own.db.t done", "NULL"),
        ("own.db.u done", "NULL"),
        ("own.db.broken failed", "can't be read as table metadata"),
        ("own.db.gone skipped", "dropped since it was listed"),
        ("own.secret.* failed", "this user may not list"),
    ];
    assert_eq!(rows.len(), expected.len(), "{rows:?}");
    for (row, (begins, contains)) in rows.iter().zip(expected) {
        assert!(row.starts_with(begins) && row.contains(contains), "{row}: {begins}, {contains}");
    }
    let error = error.unwrap();
    assert!(
        error.contains("3 of 7 tables of own could not be maintained") && error.contains("own.db.damaged"),
        "{error}"
    );
    let after = ["t", "u", "closed", "damaged"].map(|table| disk(&scene.root.join(table)));
    assert!(is_maintained(&before[0], &after[0]) && is_maintained(&before[1], &after[1]));
    unchanged("a table that is skipped", &before[2], &after[2]).unwrap();
    unchanged("a table that fails", &before[3], &after[3]).unwrap();
    let total = "own: tables: 2 done, 2 skipped, 3 failed; 2 snapshots expired, 8 files";
    let notices = catalog.notices.lock().unwrap();
    assert!(notices.iter().any(|notice| notice.starts_with(total)), "{notices:?}");
    assert!(!notices.iter().any(|notice| notice.contains("older_than =")), "{notices:?}");
}

#[tokio::test]
async fn the_report_of_each_operation_on_each_table_is_told() {
    let scene = Scene::new();
    let told: Arc<Mutex<Vec<(Operation, String, u64)>>> = Arc::default();
    let sink = Arc::clone(&told);
    let builder = Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS))).on_report(move |report| {
        let table = report.table.rsplit(['/', '.']).next().unwrap().to_string();
        sink.lock().unwrap().push((report.operation, table, report.metrics.deleted_files_count));
    });
    let (_, catalog) = scene.session(&[("db", "t", "t"), ("x", "u", "u")], |_| {});
    let session = Session::with(builder.catalog("own", catalog));
    let (rows, error) = called(&session, CALL, &DONE).await;
    assert_eq!((rows.len(), error), (2, None));
    let of = |row: &String| {
        let cells: Vec<&str> = row.split(' ').collect();
        let table = cells[0].rsplit('.').next().unwrap();
        let report = |operation, cell: usize| (operation, table.to_string(), cells[cell].parse().unwrap());
        [report(Operation::ExpireSnapshots, 3), report(Operation::RemoveOrphanFiles, 4)]
    };
    assert_eq!(*told.lock().unwrap(), rows.iter().flat_map(of).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_tables_that_promise_most_come_first() {
    let scene = Scene::new();
    scene.table("many", "many", |history| {
        for hour in 0..5 {
            history.append(BEGIN_MS + hour, [format!("m{hour}")]);
        }
    });
    scene.table("large", "large", |history| {
        history.append(BEGIN_MS, ["l"]);
        let second = history.overwrite(BEGIN_MS + 1, ["l"], ["k"]);
        let snapshot = history.table_mut().snapshot_mut(second).unwrap();
        snapshot.summary.insert("removed-files-size".into(), "1000000".into());
    });
    let (session, _) = scene.session(&["t", "many", "large", "u"].map(|name| ("db", name, name)), |_| {});
    let columns = ["table_name", "expected_snapshots_count", "expected_bytes"];
    let (rows, error) = called(&session, &with(CALL, "dry_run => true"), &columns).await;
    assert_eq!(rows, ["own.db.large 3 1000000", "own.db.many 6 0", "own.db.t 1 0", "own.db.u 1 0"]);
    assert_eq!(error, None);
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_says_what_the_run_does() {
    let scene = Scene::new();
    let (session, _) = scene.session(&[("db", "t", "t"), ("x", "u", "u")], |_| {});
    let before = disk(&scene.root);
    let (dry, error) = called(&session, &with(CALL, "dry_run => true"), &DONE).await;
    assert_eq!((dry.len(), error), (2, None));
    unchanged(CALL, &before, &disk(&scene.root)).unwrap();
    let (real, error) = called(&session, CALL, &DONE).await;
    let planned: Vec<String> = real.iter().map(|row| row.replace(" done ", " planned ")).collect();
    assert_eq!((planned, error), (dry, None));
    assert_eq!(real, ["own.db.t done 1 3 1", "own.x.u done 1 3 1"]);
    let (again, _) = called(&session, CALL, &DONE).await;
    assert_eq!(again, ["own.db.t done 0 0 0", "own.x.u done 0 0 0"]);
}

#[tokio::test]
async fn who_is_not_selected_is_left_alone() {
    let scene = Scene::new();
    let names = [("db", "t", "t"), ("db", "u", "u")];
    let (session, _) = scene.session(&names, |_| {});
    let before = disk(&scene.root);
    for mistyped in ["exclude => 'db.U'", "include => 'db.tt'"] {
        let error = session.run(&with(CALL, mistyped)).await.unwrap_err();
        assert!(error.contains("there is no table"), "{error}");
        unchanged(mistyped, &before, &disk(&scene.root)).unwrap();
    }
    for mistyped in ["own.dbb", "own.db.t"] {
        let error = session.run(&CALL.replace("own", mistyped)).await.unwrap_err();
        assert!(error.contains("there is no table in the namespace"), "{error}");
        unchanged(mistyped, &before, &disk(&scene.root)).unwrap();
    }
    let u = disk(&scene.root.join("u"));
    let (rows, _) = called(&session, &with(CALL, "exclude => '*.u'"), &DONE).await;
    assert_eq!(rows, ["own.db.t done 1 3 1"]);
    unchanged("exclude", &u, &disk(&scene.root.join("u"))).unwrap();
}

/// A clock on which a minute passes with each table that is loaded.
#[derive(Debug)]
struct Loads(Arc<AtomicUsize>);

impl Clock for Loads {
    fn now_ms(&self) -> i64 {
        NOW_MS + 60_000 * self.0.load(Ordering::Relaxed) as i64
    }
}

#[tokio::test]
async fn no_table_is_begun_after_the_run_time_and_the_one_that_runs_is_finished() {
    let scene = Scene::new();
    let loads = Arc::default();
    let (session, _) =
        scene.session_at(Arc::new(Loads(Arc::clone(&loads))), &[("db", "t", "t"), ("db", "u", "u")], |catalog| {
            catalog.loads = loads;
        });
    let u = disk(&scene.root.join("u"));
    // Planning takes two minutes, the first table more than one.
    let (rows, error) = called(&session, &with(CALL, "max_run_time => '3m'"), &DONE).await;
    assert_eq!(rows, ["own.db.t done 1 3 1", "own.db.u not_reached NULL NULL NULL"]);
    assert_eq!(error, None);
    unchanged("max_run_time", &u, &disk(&scene.root.join("u"))).unwrap();
    let (rows, _) = called(&session, &with(CALL, "max_run_time => '1m'"), &["status"]).await;
    assert_eq!(rows, ["not_reached", "not_reached"]);
}

#[tokio::test]
async fn each_table_is_loaded_as_often_as_without_the_look_at_its_neighbours_but_once() {
    let mut loads = vec![];
    for (tables, lookups) in [(3, 100), (6, 100), (6, 0)] {
        let scene = Scene::new();
        let folders: Vec<String> = (0..tables).map(|number| format!("n{number}")).collect();
        folders.iter().for_each(|folder| scene.table(folder, folder, |_| {}));
        let names: Vec<_> = folders.iter().map(|folder| ("db", folder.as_str(), folder.as_str())).collect();
        let (session, catalog) = scene.session(&names, |_| {});
        session.context.sql(&format!("SET iceberg_maintenance.shared_location_lookups = {lookups}")).await.unwrap();
        let (rows, error) = called(&session, CALL, &["status"]).await;
        assert!(error.is_none() && rows == vec!["done"; tables], "{rows:?} {error:?}");
        loads.push(catalog.loads.load(Ordering::Relaxed));
    }
    assert_eq!(loads[1], 2 * loads[0], "linear");
    assert_eq!(loads[1], loads[2], "the plan's look at each table is all that it takes");
}

#[tokio::test]
async fn two_names_for_one_table_stop_both_whoever_is_selected() {
    for tells in [false, true] {
        let scene = Scene::new();
        let names = [("db", "t", "t"), ("db", "u", "u"), ("old", "copy", "t")];
        let (session, _) = scene.session(&names, |catalog| catalog.tells = tells);
        let t = disk(&scene.root.join("t"));
        for (call, expected) in [
            (CALL.to_string(), &["own.db.t failed", "own.old.copy failed", "own.db.u done"][..]),
            (with(CALL, "include => 'db.t'"), &["own.db.t failed"]),
            (with(CALL, "exclude => 'db.t,*.u'"), &["own.old.copy failed"]),
            ("CALL own.system.maintain_catalog('db')".to_string(), &["own.db.t failed", "own.db.u done"]),
            (with(CALL, "concurrency => 3"), &["own.db.t failed", "own.old.copy failed", "own.db.u done"]),
        ] {
            let (mut rows, error) = called(&session, &call, &["table_name", "status"]).await;
            let mut expected = expected.to_vec();
            rows.sort_unstable();
            expected.sort_unstable();
            assert_eq!(rows, expected, "{call}");
            let other = ["another table of the catalog, db.t,", "another table of the catalog, old.copy,"];
            let error = error.unwrap();
            assert!(other.iter().any(|other| error.contains(other)), "{call}: {error}");
            unchanged(&call, &t, &disk(&scene.root.join("t"))).unwrap();
        }
    }
}

#[tokio::test]
async fn the_sum_of_deletes_is_limited_over_all_tables() {
    let scene = Scene::new();
    let names = [("db", "t", "t"), ("db", "u", "u")];
    let (session, _) = scene.session(&names, |_| {});
    let (rows, error) = called(&session, &with(CALL, "max_total_delete_count => 7"), &DONE).await;
    assert_eq!(rows, ["own.db.t done 1 3 1", "own.db.u failed 1 3 NULL"]);
    assert!(error.unwrap().contains("own.db.u: remove_orphan_files: "));
    assert!(scene.root.join("u/data/orphan.parquet").exists());
}

#[tokio::test]
async fn tables_at_once_come_to_the_same_as_one_after_the_other() {
    let mut outcomes = vec![];
    for concurrency in [1, 4] {
        let scene = Scene::new();
        let folders: Vec<String> = (0..6).map(|number| format!("n{number}")).collect();
        folders.iter().for_each(|folder| scene.table(folder, folder, |_| {}));
        let names: Vec<_> = folders.iter().map(|folder| ("db", folder.as_str(), folder.as_str())).collect();
        let (session, _) = scene.session(&names, |_| {});
        let outcome = called(&session, &with(CALL, &format!("concurrency => {concurrency}")), &DONE).await;
        outcomes.push((outcome, files(&disk(&scene.root))));
    }
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0].0.0.len(), 6);
}

#[tokio::test]
async fn folders_that_no_table_uses_are_reported_and_left_alone() {
    let scene = Scene::new();
    scene.table("dropped", "dropped", |_| {});
    scene.table("linked", "linked", |_| {});
    std::os::unix::fs::symlink(scene.root.join("linked"), scene.root.join("link")).unwrap();
    for (folder, metadata) in [("view", r#"{"view-uuid": "1", "location": "/v"}"#), ("cut", "{"), ("lost", "{")] {
        fs::create_dir_all(scene.root.join(folder).join("metadata")).unwrap();
        fs::write(scene.root.join(folder).join("metadata/v1.metadata.json"), metadata).unwrap();
    }
    fs::create_dir_all(scene.root.join("plain/data")).unwrap();
    // The broken table's location is unknown: the folder of its name may be it.
    let names = [("db", "t", "t"), ("db", "lost", "lost"), ("x", "u", "u"), ("x", "linked", "linked")];
    let (session, _) = scene.session(&names, |_| {});
    let untouched = ["dropped", "view", "cut", "lost"].map(|folder| (folder, disk(&scene.root.join(folder))));
    let call = "CALL own.system.maintain_catalog(catalog => 'db', include => 'db.t', report_dropped => true)";
    let (rows, error) = called(&session, call, &["table_name", "status", "metadata_location"]).await;
    let at = |folder: &str, version: u32| {
        let folder = scene.location(folder);
        format!("{folder} unknown_table {folder}/metadata/v{version}.metadata.json")
    };
    assert_eq!(rows[1..], [at("cut", 1), at("dropped", 3)]);
    assert!(rows[0].starts_with("own.db.t done ") && error.is_none(), "{rows:?} {error:?}");
    for (folder, before) in untouched {
        unchanged(folder, &before, &disk(&scene.root.join(folder))).unwrap();
    }
}

#[tokio::test]
async fn a_catalog_that_can_t_list_says_so_and_a_table_in_it_whose_owner_is_unknown_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let mut history = History::new(iceberg_maintenance::fixtures::Table {
        naming: iceberg_maintenance::fixtures::MetadataNaming::Catalog,
        last_updated_ms: BEGIN_MS,
        modified_ms: Some(BEGIN_MS),
        ..iceberg_maintenance::fixtures::Table::new(2)
    });
    history.append(BEGIN_MS + DAY_MS, ["a"]);
    history.append(BEGIN_MS + 2 * DAY_MS, ["b"]);
    history.build().write(root.join("db/t")).unwrap();
    let builder = Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS)));
    let builder = builder.catalog("none", Arc::new(FileSystemCatalog::default()));
    let warehouse = FileSystemCatalog::with_warehouse(root.to_str().unwrap());
    let session = Session::with(builder.catalog("own", Arc::new(warehouse)));
    let error = session.run("VACUUM CATALOG none").await.unwrap_err();
    assert!(error.contains("it can't list its tables"), "{error}");
    let before = disk(&root);
    let (rows, error) = called(&session, CALL, &["status", "reason"]).await;
    assert!(rows[0].starts_with("skipped its newest metadata is") && rows[0].contains("no_catalog"), "{rows:?}");
    assert_eq!(error, None);
    unchanged(CALL, &before, &disk(&root)).unwrap();
}

/// What a table asks for with its properties holds here, too: its files stay until the time that it was promised.
#[tokio::test]
async fn tables_with_a_recovery_window_keep_their_files_and_can_be_put_back() {
    let scene = Scene::new();
    scene.table("kept", "kept", |history| {
        history.table_mut().property("maintenance.recovery-window", "7 days");
    });
    let (session, _) = scene.session(&[("db", "t", "t"), ("db", "kept", "kept")], |_| {});
    let before = ["t", "kept"].map(|table| disk(&scene.root.join(table)));
    let columns = ["table_name", "status", "deleted_snapshots_count", "deleted_files_count", "deferred_files_count"];
    let (planned, error) = called(&session, &with(CALL, "dry_run => true"), &columns).await;
    assert_eq!(error, None);
    let (rows, error) = called(&session, CALL, &columns).await;
    assert_eq!(error, None);
    let by_name = |rows: &[String]| rows.iter().cloned().collect::<std::collections::BTreeSet<_>>();
    let done = planned.iter().map(|row| row.replace(" planned ", " done ")).collect::<Vec<_>>();
    assert_eq!(by_name(&rows), by_name(&done));
    assert_eq!(by_name(&rows), by_name(&["own.db.kept done 1 0 4".into(), "own.db.t done 1 3 0".into()]));
    let gone = |table: usize, name: &str| -> Vec<String> {
        files(&before[table]).difference(&files(&disk(&scene.root.join(name)))).cloned().collect()
    };
    assert_eq!(gone(0, "t").len(), 4);
    assert_eq!(gone(1, "kept"), Vec::<String>::new());
    let runs = "SELECT run FROM maintenance_log('own.db.kept') WHERE operation = 'expire_snapshots'";
    let runs = session.rows(runs).await.unwrap();
    let restore = format!("CALL system.restore_snapshots(table => 'own.db.kept', run => '{}')", cell(&runs[0], "run"));
    let restored = session.metrics(&restore).await.unwrap();
    assert_eq!(restored["restored_snapshots_count"], 1, "{restored:?}");
    let snapshots = session.rows("SELECT snapshot_id FROM iceberg_snapshots('own.db.kept')").await.unwrap();
    assert_eq!(snapshots.len(), 2);
}
