//! Family E: time, in-flight writers, races, unknown outcomes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt};
use iceberg_maintenance::fixtures::{
    Compression, ContentFile, History, MetadataNaming, Ref, Table, VersionHint, uuid_of,
};
use iceberg_maintenance::{FixedClock, Maintenance, RemoveOrphanFiles};
use serde_json::{Value, json};

use crate::case::{Case, Check, DAY_MS, Left, NOW_MS, days_ago, history, in_ten_days};
use crate::place::Place;
use crate::support::{Session, disk, literal};
use crate::table::Table as ReadTable;
use crate::watched::{Kind, WatchedStore, Wrong};

/// Snapshots 1 and 2 expire by age, 3 stays; `a` came with 1 and went with 2.
fn three_snapshots() -> History {
    let mut history = history(2);
    history.append(days_ago(30), ["a", "b"]);
    history.overwrite(days_ago(20), ["a"], ["c"]);
    history.append(days_ago(1), ["d"]);
    history
}

/// What goes with snapshots 1 and 2.
fn dead() -> Vec<&'static str> {
    vec!["a", "list 1", "list 2", "manifest 1.0"]
}

fn all(names: &BTreeSet<String>) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn b096_an_age_limit_near_now_or_ahead_is_refused_in_dry_runs_too() {
    let ages = [
        "older_than => '2030-01-01'",
        "older_than => now()",
        "older_than => now() - INTERVAL '1 minute'",
        "older_than => '2025-12-31 00:00:00.001'",
        "older_than => 9223372036854775807",
        "retention_threshold => '0s'",
        "retention_threshold => '23h59m'",
    ];
    for age in ages {
        for dry_run in ["", ", dry_run => true"] {
            for young in [NOW_MS, NOW_MS - 60_000, days_ago(50)] {
                let mut table = three_snapshots().build();
                table.stray("data/being-written.parquet", young);
                let error = Case::of(table).orphans(&format!("{age}{dry_run}")).refused().await;
                assert!(error.contains("older_than") || error.contains("retention"), "{age}: {error}");
            }
        }
    }
    // The future is refused even where the floor is not asked for.
    let call = "older_than => '2030-01-01', ignore_floor => true";
    let error = Case::of(three_snapshots().build()).orphans(call).refused().await;
    assert!(error.contains("future"), "{error}");
    let mut table = three_snapshots().build();
    table.stray("data/day-old.parquet", days_ago(1) - 1).stray("data/younger.parquet", days_ago(1));
    let outcome = Case::of(table).orphans("older_than => '2025-12-31 00:00:00'").run().await;
    outcome.assert_gone(&["day-old"]);
    outcome.assert_metrics(&[("skipped_too_young_count", 1)]);
}

#[tokio::test]
async fn b099_a_file_of_unknown_or_implausible_age_stays() {
    let mut table = three_snapshots().build();
    // Nothing, seconds read as milliseconds, before any object store, microseconds read as milliseconds, a wrong clock.
    for (name, modified) in [
        ("zero", 0),
        ("seconds", days_ago(50) / 1000),
        ("ancient", 1),
        ("nineties", 800_000_000_000),
        ("ahead", NOW_MS + 2 * DAY_MS),
        ("far-ahead", NOW_MS + 36_500 * DAY_MS),
    ] {
        table.stray(&format!("data/{name}.parquet"), modified);
    }
    table.stray("data/o.parquet", days_ago(50)).stray("data/young.parquet", NOW_MS);
    let outcome = Case::of(table).orphans("").run().await;
    outcome.assert_gone(&["o"]);
    outcome.assert_metrics(&[("skipped_unknown_age_count", 6), ("skipped_too_young_count", 1)]);
}

#[tokio::test]
async fn b099_a_list_that_gives_no_time_deletes_nothing() {
    let times = ["NULL", "TIMESTAMP '1970-01-01'", "TIMESTAMP '1970-01-20 16:00:00'", "TIMESTAMP '2200-01-01'"];
    let mut table = three_snapshots().build();
    (0..times.len()).for_each(|number| _ = table.stray(&format!("data/o{number}.parquet"), days_ago(50)));
    let row = |(number, time): (usize, &str)| {
        format!("SELECT '{{root}}/t/data/o{number}.parquet' AS file_path, CAST({time} AS TIMESTAMP) AS last_modified")
    };
    let mut rows: Vec<_> = times.into_iter().enumerate().map(row).collect();
    rows.push("SELECT '{root}/t/data/b.parquet', TIMESTAMP '2020-01-01'".into());
    let case = Case::of(table).set(&format!("CREATE VIEW listed AS {}", rows.join(" UNION ALL ")));
    let outcome = case.orphans("file_list_view => 'listed'").run().await;
    outcome.assert_gone(&[]);
    outcome.assert_metrics(&[("skipped_unknown_age_count", 4)]);
}

#[tokio::test]
async fn b099_a_store_whose_clock_is_behind_ours_by_years_keeps_its_files() {
    // The store's files are of now, the session's clock says that now is a year ago.
    let case = Case::of(three_snapshots().build()).in_store().now(in_ten_days() - 375 * DAY_MS);
    let outcome = case.beside("t/data/o.parquet", "x").orphans("").run().await;
    outcome.assert_gone(&[]);
    outcome.assert_metrics(&[("skipped_unknown_age_count", 1)]);
}

/// Writes the table as it is after more operations; all of its files are old.
fn goes_on(operations: impl Fn(&mut History) + 'static) -> impl Fn(&Place) {
    move |place| {
        let mut history = three_snapshots();
        operations(&mut history);
        history.build().write(place.path().join("t")).unwrap();
    }
}

#[tokio::test]
async fn b100_what_is_committed_after_a_first_call_is_known_to_the_second() {
    let first = "SELECT count(*) FROM remove_orphan_files({table}, dry_run => true)";
    let later = |history: &mut History| {
        history.append(days_ago(0), ["e"]);
        history.append(days_ago(0), ["f"]);
    };
    let case = Case::of(three_snapshots().build()).set(first).just_before_the_call(goes_on(later));
    let case =
        case.without(Check::DryRun, "the other writer comes first").without(Check::Spelling, "it writes one spelling");
    case.orphans("").run().await.assert_gone(&[]);
}

#[tokio::test]
async fn b100_a_plan_that_waited_is_checked_against_the_newest_metadata() {
    let place = Place::folder("");
    let mut table = three_snapshots().build();
    table.stray("data/e.parquet", days_ago(50)).stray("data/o.parquet", days_ago(50));
    table.write(place.path().join("t")).unwrap();
    let session = Session::new(Some(NOW_MS));
    let options = RemoveOrphanFiles::older_than(days_ago(3), NOW_MS);
    let plan = session.maintenance.plan_remove_orphan_files(&place.table(), &options).await.unwrap();
    assert_eq!(plan.files().len(), 2);
    goes_on(|history| _ = history.append(days_ago(0), ["e"]))(&place);
    let report = session.maintenance.delete_orphan_files(plan).await.unwrap();
    assert_eq!((report.metrics.deleted_files_count, report.metrics.skipped_live_again_count), (1, 1));
    assert!(place.path().join("t/data/e.parquet").exists() && !place.path().join("t/data/o.parquet").exists());
    place.assert_whole().await;
}

#[tokio::test]
async fn b101_the_newest_version_is_the_one_that_exists_and_not_the_one_that_a_hint_names() {
    let table = |hint: VersionHint| {
        let mut history = history(2);
        ["a", "b", "c", "d", "e", "f"].iter().for_each(|name| _ = history.append(days_ago(20), [*name]));
        history.table_mut().stray("data/o.parquet", days_ago(50));
        let mut table = history.build();
        assert_eq!(table.version, 7);
        table.version_hint = hint;
        table
    };
    let text = |text: &str| VersionHint::Text(text.into());
    for hint in [text("5"), text("1"), text("garbage"), text(""), text("-1"), text("v7"), VersionHint::Absent] {
        let outcome = Case::of(table(hint.clone())).orphans("").run().await;
        outcome.assert_gone(&["o"]);
        if hint != VersionHint::Absent {
            outcome.notice("version-hint.text");
        }
        let outcome = Case::of(table(hint.clone())).expire("older_than => now(), retain_last => 2").run().await;
        assert_eq!(outcome.snapshots, [5, 6].into(), "{hint:?}");
        assert!(outcome.gone.iter().all(|name| name.starts_with("list ")), "{:?}", outcome.gone);
        assert!(outcome.table.metadata_path.ends_with("v8.metadata.json"));
    }
    for hint in ["9", "8", "7000000000"] {
        for call in [
            "remove_orphan_files(table => {table}{dry_run})",
            "expire_snapshots(table => {table}, older_than => now(){dry_run})",
        ] {
            let error = Case::of(table(text(hint))).statement(&format!("CALL system.{call}")).refused().await;
            assert!(error.contains(&format!("names version {hint}")), "{error}");
        }
    }
}

/// An expiry of snapshots 1 and 2 in a store that answers some requests wrongly once the call has begun.
fn expiry_with(rule: impl Fn(&str) -> Box<dyn FnMut(Kind, &str) -> Option<Wrong> + Send> + 'static) -> Case {
    let table = three_snapshots().build();
    let next = format!("wh/t/metadata/v{}.metadata.json", table.version + 1);
    let case =
        Case::of(table).in_store().just_before_the_call(move |place| place.watched().answer_wrongly(rule(&next)));
    case.expire("")
}

#[tokio::test]
async fn b103_a_commit_whose_answer_is_lost_is_read_back_and_goes_on() {
    for wrong in [Wrong::AnswerLost, Wrong::AlreadyExists] {
        let case = expiry_with(move |next| {
            let next = next.to_string();
            Box::new(move |kind, key| (kind == Kind::Put && key == next).then_some(wrong))
        });
        let outcome = case.run().await;
        outcome.assert(Left { snapshots: &[3], refs: &["main"], gone: &dead() });
        outcome.assert_metrics(&[("deleted_snapshots_count", 2)]);
    }
}

#[tokio::test]
async fn b103_a_commit_that_provably_did_not_happen_is_made_again_or_refused() {
    // It fails once, and then it doesn't.
    let case = expiry_with(|next| {
        let (next, mut first) = (next.to_string(), true);
        Box::new(move |kind, key| {
            (kind == Kind::Put && key == next && std::mem::take(&mut first)).then_some(Wrong::Fails)
        })
    });
    case.run().await.assert(Left { snapshots: &[3], refs: &["main"], gone: &dead() });
    let case = expiry_with(|next| {
        let next = next.to_string();
        Box::new(move |kind, key| (kind == Kind::Put && key == next).then_some(Wrong::Denied))
    });
    let outcome = case.fails().await;
    outcome.assert(Left { snapshots: &[1, 2, 3], refs: &["main"], gone: &[] });
}

#[tokio::test]
async fn b103_a_commit_that_nobody_knows_of_deletes_nothing_and_says_so() {
    // Nobody can look; or every attempt fails and nobody knows why.
    for (unreadable, lost) in [(true, Wrong::AnswerLost), (false, Wrong::Fails)] {
        let case = expiry_with(move |next| {
            let next = next.to_string();
            let mut sent = false;
            Box::new(move |kind, key| match kind {
                Kind::Put if key == next => {
                    sent = true;
                    Some(lost)
                }
                Kind::Get | Kind::Head if unreadable && sent && key == next => Some(Wrong::Fails),
                _ => None,
            })
        });
        let outcome = case.fails().await;
        assert_eq!(outcome.gone, BTreeSet::new());
        let error = outcome.error.unwrap();
        assert!(error.contains("unknown") && error.contains("no file was deleted"), "{error}");
    }
}

/// Lets another writer commit right before our first attempt does: it edits the newest metadata.
fn commits_first(edit: impl Fn(&mut Value) + Send + Sync + 'static) -> impl Fn(&Place) {
    let edit = Arc::new(edit);
    move |place| {
        let (store, edit, mut done) = (place.watched().clone(), Arc::clone(&edit), false);
        place.watched().answer_wrongly(move |kind, key| {
            if kind == Kind::Put && key.ends_with(".metadata.json") && !std::mem::replace(&mut done, true) {
                commit_edit(&store, key, edit.as_ref());
            }
            None
        });
    }
}

/// Writes the metadata file `next` as the one before it, edited.
fn commit_edit(store: &WatchedStore, next: &str, edit: &dyn Fn(&mut Value)) {
    let number: u32 = next.rsplit('v').next().unwrap().trim_end_matches(".metadata.json").parse().unwrap();
    let newest = format!("wh/t/metadata/v{}.metadata.json", number - 1);
    let text = store.content(&newest).now_or_never().expect("a store in memory answers at once");
    let mut document: Value = serde_json::from_slice(&text).unwrap();
    edit(&mut document);
    let log = json!({"timestamp-ms": document["last-updated-ms"], "metadata-file": format!("s3://bucket/{newest}")});
    document["metadata-log"].as_array_mut().unwrap().push(log);
    store.add(next, document.to_string()).now_or_never().unwrap();
    store.add("wh/t/metadata/version-hint.text", number.to_string()).now_or_never().unwrap();
}

/// Branch `b` is at snapshot 1 and too old.
fn with_an_old_branch() -> Table {
    let mut history = three_snapshots();
    history.set_ref("b", Ref::branch(1).max_ref_age_ms(DAY_MS));
    history.build()
}

fn raced(table: Table, edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Case {
    let case = Case::of(table).in_store().just_before_the_call(commits_first(edit));
    case.without(Check::Alone, "another writer commits").expire("")
}

#[tokio::test]
async fn b105_a_branch_that_a_writer_moves_meanwhile_lives() {
    // Without the writer it goes.
    let alone = Case::of(with_an_old_branch()).in_store().expire("").run().await;
    alone.assert(Left { snapshots: &[3], refs: &["main"], gone: &dead() });
    // The writer moves it to a young snapshot.
    let outcome = raced(with_an_old_branch(), |metadata| metadata["refs"]["b"]["snapshot-id"] = json!(3)).run().await;
    outcome.assert(Left { snapshots: &[3], refs: &["b", "main"], gone: &dead() });
    // The writer lifts its limit.
    let lift = |metadata: &mut Value| _ = metadata["refs"]["b"].as_object_mut().unwrap().remove("max-ref-age-ms");
    let outcome = raced(with_an_old_branch(), lift).run().await;
    assert_eq!((outcome.snapshots, outcome.refs), ([1, 3].into(), ["b".to_string(), "main".into()].into()));
    assert!(!outcome.gone.contains("a") && outcome.gone.contains("list 2"), "{:?}", outcome.gone);
}

#[tokio::test]
async fn b105_any_change_of_refs_makes_a_new_plan() {
    let tagged = raced(three_snapshots().build(), |metadata| {
        metadata["refs"]["keep"] = json!({"snapshot-id": 1, "type": "tag"});
    });
    let outcome = tagged.run().await;
    assert_eq!((outcome.snapshots, outcome.refs), ([1, 3].into(), ["keep".to_string(), "main".into()].into()));
    assert!(!outcome.gone.contains("a"), "{:?}", outcome.gone);
    // main goes back to what would have expired.
    let rolled_back = raced(three_snapshots().build(), |metadata| {
        metadata["refs"]["main"]["snapshot-id"] = json!(1);
        metadata["current-snapshot-id"] = json!(1);
    });
    let outcome = rolled_back.run().await;
    assert!(outcome.snapshots.contains(&1) && outcome.table.metadata["current-snapshot-id"] == 1);
    assert!(!outcome.gone.contains("a") && !outcome.gone.contains("b"), "{:?}", outcome.gone);
    // Somebody else drops the branch that we would drop.
    let dropped = raced(with_an_old_branch(), |metadata| _ = metadata["refs"].as_object_mut().unwrap().remove("b"));
    dropped.run().await.assert(Left { snapshots: &[3], refs: &["main"], gone: &dead() });
    // Somebody else turns garbage collection off.
    let off = raced(three_snapshots().build(), |metadata| metadata["properties"]["gc.enabled"] = json!("false"));
    let outcome = off.fails().await;
    assert_eq!((outcome.snapshots, outcome.gone), ([1, 2, 3].into(), BTreeSet::new()));
    assert!(outcome.error.unwrap().contains("gc.enabled"));
}

#[tokio::test]
async fn b108_concurrent_calls_in_one_session_keep_to_their_tables() {
    let root = tempfile::tempdir().unwrap();
    let folder = |number: i64| root.path().join(format!("t{number}"));
    for number in 0..50 {
        let mut history = history(2);
        history.table_mut().uuid = Some(uuid_of(&format!("table {number}")));
        history.next_id(1 + 1000 * number);
        (0..=number % 7).for_each(|at| _ = history.append(days_ago(30), [format!("f{number}-{at}")]));
        history.append(days_ago(1), [format!("g{number}")]);
        history.table_mut().stray(&format!("data/o{number}.parquet"), days_ago(50));
        history.build().write(folder(number)).unwrap();
    }
    let session = Session::with(Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS))));
    let running = (AtomicUsize::new(0), AtomicUsize::new(0));
    let call = |number: i64| {
        let (session, folder, running) = (&session, folder(number), &running);
        async move {
            running.1.fetch_max(running.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let table = literal(folder.to_str().unwrap());
            let orphans = session.metrics(&format!("CALL system.remove_orphan_files(table => {table})")).await.unwrap();
            let expired = session.metrics(&format!("CALL system.expire_snapshots(table => {table})")).await.unwrap();
            running.0.fetch_sub(1, Ordering::SeqCst);
            (number, orphans, expired)
        }
    };
    let outcomes: Vec<_> = futures::stream::iter((0..50).map(call)).buffer_unordered(8).collect().await;
    assert_eq!((outcomes.len(), running.1.into_inner()), (50, 8));
    for (number, orphans, expired) in outcomes {
        let old = number % 7 + 1;
        assert_eq!((orphans["deleted_files_count"], orphans["scanned_files_count"] > 1), (1, true), "table {number}");
        let counts = (expired["deleted_snapshots_count"], expired["retained_snapshots_count"]);
        assert_eq!(counts, (old, 1), "table {number}");
        let table =
            ReadTable::read(std::path::Path::new("/"), folder(number).canonicalize().unwrap().to_str().unwrap());
        assert_eq!(table.snapshot_ids(), [1 + 1000 * number + old].into());
        assert_eq!(table.metadata["table-uuid"], uuid_of(&format!("table {number}")).as_str());
        assert!(!folder(number).join(format!("data/o{number}.parquet")).exists());
        assert!(table.referenced().unwrap().iter().all(|file| std::path::Path::new(file).exists()), "table {number}");
    }
}

#[tokio::test]
async fn b108_two_calls_on_one_table_at_once_do_its_work_once() {
    let place = Place::folder("");
    let mut table = three_snapshots().build();
    table.stray("data/o.parquet", days_ago(50));
    table.write(place.path().join("t")).unwrap();
    let session = Session::new(Some(NOW_MS));
    let calls = (0..4).map(|_| format!("CALL system.remove_orphan_files(table => {})", literal(&place.table())));
    let calls: Vec<_> = calls.collect();
    let outcomes = futures::future::join_all(calls.iter().map(|call| session.metrics(call))).await;
    let deleted: i64 = outcomes.iter().map(|metrics| metrics.as_ref().unwrap()["deleted_files_count"]).sum();
    assert_eq!(deleted, 1);
    place.assert_whole().await;
    let before = disk(place.path());
    assert_eq!(session.metrics(&calls[0]).await.unwrap()["deleted_files_count"], 0);
    assert_eq!(disk(place.path()), before);
}

#[test]
fn b109_a_script_stops_at_a_broken_table_and_a_process_a_table_does_not() {
    let root = tempfile::tempdir().unwrap();
    let table = |name: &str, gc: &str| {
        let mut table = three_snapshots().build();
        table.property("gc.enabled", gc).stray("data/o.parquet", days_ago(50));
        table.write(root.path().join(name)).unwrap();
    };
    for (name, gc) in [("before", "true"), ("one", "true"), ("broken", "true"), ("off", "false"), ("five", "true")] {
        table(name, gc);
    }
    std::fs::write(root.path().join("broken/metadata/v4.metadata.json"), "{").unwrap();
    let tool = |arguments: &[&str]| {
        let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"));
        tool.current_dir(root.path()).args(arguments).output().unwrap()
    };

    // One script stops at the first table that it can't maintain, and says which; those after it are untouched.
    let at = |name: &str| root.path().join(name);
    let call = |name: &str| format!("CALL system.remove_orphan_files(table => '{}');\n", at(name).to_str().unwrap());
    let script: String = ["before", "broken", "five"].map(call).concat();
    std::fs::write(at("script.sql"), script).unwrap();
    let output = tool(&["-f", "script.sql"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("broken/metadata/v4.metadata.json"), "{said}");
    let has_orphan = |name: &str| at(name).join("data/o.parquet").exists();
    assert_eq!((has_orphan("before"), has_orphan("broken"), has_orphan("five")), (false, true, true), "{said}");

    // A table a process: each says how it ended, and none stands in the way of the next.
    let run = |name: &str| tool(&["remove-orphan-files", name, "--yes"]);
    for (name, ends_well) in
        [("./one", true), ("./dropped", false), ("./broken", false), ("./off", false), ("./five", true)]
    {
        let output = run(name);
        assert_eq!(output.status.success(), ends_well, "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(ends_well || said.contains(&name[2..]), "{name}: {said}");
        assert_ne!(root.path().join(name).join("data/o.parquet").exists(), ends_well || name == "./dropped");
    }
}

/// A table that nobody has touched for a month, with files of every kind.
fn idle(format_version: i64) -> History {
    let mut history = History::new(Table {
        last_updated_ms: days_ago(40),
        modified_ms: Some(days_ago(30)),
        ..Table::new(format_version)
    });
    history.append(days_ago(39), ["a", "data/dt=2024-01-01/b.parquet", "data/0110/1010/c.parquet", "dt=1/d.parquet"]);
    history.append(days_ago(38), [ContentFile { path: "direct.parquet".into(), ..ContentFile::data("direct") }]);
    if format_version == 2 {
        history.position_deletes(days_ago(37), "data/p-deletes.parquet", "a");
        history.equality_deletes(days_ago(36), "eq-delete");
    }
    if format_version == 3 {
        history.deletion_vectors(days_ago(37), "v", &[("a", &[1, 2])]);
    }
    history.delete_files(days_ago(35), ["data/dt=2024-01-01/b.parquet"]);
    history.rewrite_manifests(days_ago(34));
    history.statistics(1);
    history.partition_statistics(2);
    history.branch("audit", 1).tag("old", 2);
    history
}

#[tokio::test]
async fn b113_an_idle_healthy_table_of_any_layout_has_no_orphans() {
    for format_version in [1, 2, 3] {
        for naming in [MetadataNaming::Hadoop, MetadataNaming::Catalog] {
            for compression in [Compression::None, Compression::GzipInfix, Compression::GzipSuffix] {
                let mut table = idle(format_version).build();
                (table.naming, table.compression) = (naming, compression);
                let what = format!("v{format_version} {naming:?} {compression:?}");
                if naming == MetadataNaming::Catalog {
                    table.version_hint = VersionHint::Absent;
                }
                for arguments in ["", "location => 'metadata'", "location => 'data'", "include_foreign => true"] {
                    let separator = if arguments.is_empty() { "" } else { ", " };
                    let arguments = format!("{arguments}{separator}no_catalog => true");
                    let outcome = Case::of(table.clone()).orphans(&arguments).run().await;
                    assert_eq!(all(&outcome.gone), Vec::<&str>::new(), "{what} {arguments}");
                    outcome.assert_metrics(&[("skipped_foreign_files_count", 0), ("skipped_too_young_count", 0)]);
                    assert!(outcome.metrics["scanned_files_count"] > 0, "{what}");
                }
                let case = Case::of(table).in_store().now(in_ten_days());
                let outcome = case.orphans("no_catalog => true").run().await;
                assert_eq!(all(&outcome.gone), Vec::<&str>::new(), "{what} in a store");
            }
        }
    }
}

#[tokio::test]
async fn b113_a_table_with_old_oddities_has_no_orphans() {
    // Manifests inline in the snapshot (v1), no refs, no log, unlogged metadata, metadata elsewhere in its own folder.
    let mut inline = idle(1).build();
    inline.snapshots.iter_mut().for_each(|snapshot| snapshot.manifest_list = None);
    let mut bare = idle(2).build();
    bare.refs = None;
    bare.omit = ["snapshot-log", "metadata-log", "statistics", "refs"].map(str::to_string).into();
    (bare.statistics, bare.versions) = (vec![], vec![]);
    for table in [inline, bare] {
        let outcome = Case::of(table).orphans("").run().await;
        assert_eq!(all(&outcome.gone), Vec::<&str>::new());
    }
}
