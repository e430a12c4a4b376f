//! Family A, expiry: which files go.

use std::collections::BTreeSet;

use iceberg_maintenance::ExpireSnapshots;
use iceberg_maintenance::fixtures::{Fault, History, Ref, Table};

use crate::case::{Case, Check, DAY_MS, HOUR_MS, Left, NOW_MS, days_ago, history};
use crate::support::{files, literal};
use crate::watched::{Kind, Wrong};

/// Everything but heads and what refs keep.
fn all_but_heads() -> String {
    format!("older_than => {NOW_MS}, retain_last => 1")
}

#[tokio::test]
async fn b001_a_ref_that_goes_in_the_same_run_takes_no_live_file_along() {
    let refs = [Ref::tag(1), Ref::branch(1), Ref::branch(2)];
    for reference in refs.map(|reference| reference.max_ref_age_ms(DAY_MS)) {
        let mut history = history(2);
        history.append(days_ago(40), ["z"]);
        history.append(days_ago(30), ["a", "b"]);
        history.delete_files(days_ago(20), ["b"]);
        history.append(days_ago(10), ["c"]);
        history.set_ref("old", reference);
        let outcome = Case::of(history.build()).expire(&all_but_heads()).run().await;
        let gone = &["b", "manifest 2.0", "list 1", "list 2", "list 3"];
        outcome.assert(Left { snapshots: &[4], refs: &["main"], gone });
    }
}

#[tokio::test]
async fn b003_a_file_of_an_older_retained_snapshot_stays_when_one_in_the_middle_expires() {
    let mut history = history(2);
    history.append(days_ago(30), ["a"]);
    history.delete_files(days_ago(20), ["a"]);
    history.append(days_ago(10), ["a2"]);
    let outcome = Case::of(history.build()).expire("snapshot_ids => [2]").run().await;
    outcome.assert(Left { snapshots: &[1, 3], refs: &["main"], gone: &["list 2", "manifest 2.0"] });
}

#[tokio::test]
async fn b003_the_same_holds_for_delete_files_and_deletion_vectors() {
    let mut of_files = history(2);
    of_files.append(days_ago(40), ["a"]);
    of_files.position_deletes(days_ago(30), "p", "a");
    of_files.replace_files(days_ago(20), ["a", "p"], ["a2"]);
    of_files.append(days_ago(10), ["c"]);
    let outcome = Case::of(of_files.build()).expire("snapshot_ids => [3]").run().await;
    outcome.assert(Left { snapshots: &[1, 2, 4], refs: &["main"], gone: &["list 3", "manifest 3.1", "manifest 3.2"] });

    let mut of_vectors = history(3);
    of_vectors.append(days_ago(40), ["a"]);
    of_vectors.deletion_vectors(days_ago(30), "v", &[("a", &[1])]);
    of_vectors.deletion_vectors(days_ago(20), "w", &[("a", &[1, 2])]);
    of_vectors.append(days_ago(10), ["c"]);
    // The vectors of 3 are live in 4, those that it replaced in 2.
    let outcome = Case::of(of_vectors.build()).expire("snapshot_ids => [3]").run().await;
    outcome.assert(Left { snapshots: &[1, 2, 4], refs: &["main"], gone: &["list 3", "manifest 3.1"] });
}

#[tokio::test]
async fn b005_a_file_that_was_dropped_and_registered_again_stays() {
    let mut history = history(2);
    history.append(days_ago(50), ["f"]);
    history.overwrite(days_ago(40), ["f"], ["x"]);
    history.re_add(days_ago(30), ["f"]);
    history.rewrite_manifests(days_ago(20));
    let outcome = Case::of(history.build()).expire(&all_but_heads()).run().await;
    let gone = &["list 1", "list 2", "list 3", "manifest 1.0", "manifest 2.0", "manifest 2.1", "manifest 3.0"];
    outcome.assert(Left { snapshots: &[4], refs: &["main"], gone });
}

#[tokio::test]
async fn b005_a_file_that_one_commit_drops_and_registers_again_stays() {
    let mut history = history(2);
    history.append(days_ago(50), ["f", "g"]);
    history.overwrite(days_ago(40), ["f"], ["f"]);
    let outcome = Case::of(history.build()).expire(&all_but_heads()).run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &["list 1", "manifest 1.0"] });
}

#[tokio::test]
async fn b007_replaced_files_behind_a_rewrite_of_manifests_all_go() {
    let mut history = history(2);
    history.append(days_ago(50), ["a"]);
    history.append(days_ago(40), ["b"]);
    history.replace_files(days_ago(30), ["b"], ["d"]);
    history.replace_files(days_ago(20), ["a"], ["c"]);
    history.rewrite_manifests(days_ago(10));
    let arguments = format!("older_than => {}, retain_last => 1", days_ago(10));
    let outcome = Case::of(history.build()).expire(&arguments).run().await;
    let gone = [
        &["a", "b", "list 1", "list 2", "list 3", "list 4"][..],
        &["manifest 1.0", "manifest 2.0", "manifest 3.0", "manifest 3.1", "manifest 4.0", "manifest 4.1"],
    ];
    outcome.assert(Left { snapshots: &[5], refs: &["main"], gone: &gone.concat() });
    outcome.assert_metrics(&[("deleted_data_files_count", 2), ("processed_manifests_count", 7)]);
}

#[tokio::test]
async fn b009_a_deleted_entry_of_a_retained_manifest_protects_nothing() {
    let mut history = history(2);
    history.append(days_ago(30), ["a"]);
    history.delete_files(days_ago(20), ["a"]);
    let outcome = Case::of(history.build()).expire(&all_but_heads()).run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &["a", "list 1", "manifest 1.0"] });
    outcome.assert_metrics(&[("deleted_data_files_count", 1)]);
}

#[tokio::test]
async fn b009_nor_does_one_of_a_delete_file_or_a_deletion_vector() {
    let mut of_files = history(2);
    of_files.append(days_ago(50), ["a"]);
    of_files.position_deletes(days_ago(40), "p", "a");
    of_files.equality_deletes(days_ago(30), "e");
    of_files.replace_files(days_ago(20), ["a", "p", "e"], ["a2"]);
    let outcome = Case::of(of_files.build()).expire(&all_but_heads()).run().await;
    outcome.assert_metrics(&[
        ("deleted_data_files_count", 1),
        ("deleted_position_delete_files_count", 1),
        ("deleted_equality_delete_files_count", 1),
    ]);

    let mut of_vectors = history(3);
    of_vectors.append(days_ago(50), ["a"]);
    of_vectors.deletion_vectors(days_ago(40), "v", &[("a", &[1])]);
    of_vectors.deletion_vectors(days_ago(30), "w", &[("a", &[1, 2])]);
    let outcome = Case::of(of_vectors.build()).expire(&all_but_heads()).run().await;
    let gone = &["data/v.puffin", "list 1", "list 2", "manifest 2.0"];
    outcome.assert(Left { snapshots: &[3], refs: &["main"], gone });
    outcome.assert_metrics(&[("deleted_position_delete_files_count", 1), ("deleted_dv_files_count", 1)]);
}

/// Snapshot 2 replaced `a` and `b` of snapshot 1 by `c`.
fn replaced() -> History {
    let mut history = history(2);
    history.append(days_ago(30), ["a", "b"]);
    history.replace_files(days_ago(20), ["a", "b"], ["c"]);
    history
}

#[tokio::test]
async fn b011_an_expiry_of_metadata_only_says_so_and_how_many_files_it_left_behind() {
    let mut history = history(2);
    history.append(days_ago(30), ["a"]);
    history.delete_files(days_ago(20), ["a"]);
    let arguments = format!("{}, delete_files => false, max_delete_count => 0", all_but_heads());
    let outcome = Case::of(history.build()).expire(&arguments).run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &[] });
    let counts = [("deleted_snapshots_count", 1), ("deleted_files_count", 0), ("left_behind_files_count", 3)];
    outcome.assert_metrics(&counts);
    let notice = outcome.notice("delete_files => false");
    assert!(notice.contains("3 files") && notice.contains("remove_orphan_files"), "{notice}");
    let kept: Vec<_> = outcome.files.iter().map(|(file, reason)| format!("{file}: {reason}")).collect();
    let reason = "delete_files => false: left for remove_orphan_files";
    assert_eq!(kept, ["a", "list 1", "manifest 1.0"].map(|file| format!("{file}: {reason}")));

    let session = crate::support::Session::new(Some(NOW_MS));
    let before = files(&outcome.place.look().await);
    let table = literal(&outcome.place.table());
    session.metrics(&format!("CALL system.remove_orphan_files(table => {table})")).await.unwrap();
    assert_eq!(before.difference(&files(&outcome.place.look().await)).count(), 3);
}

#[tokio::test]
async fn b011_metadata_files_that_fall_out_of_the_log_stay_then_too() {
    let mut table = replaced().build();
    table.property("write.metadata.delete-after-commit.enabled", "true");
    table.property("write.metadata.previous-versions-max", "1");
    let arguments = format!("{}, delete_files => false", all_but_heads());
    let outcome = Case::of(table.clone()).expire(&arguments).run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &[] });
    outcome.assert_metrics(&[("left_behind_files_count", 6)]);

    let outcome = Case::of(table).expire(&all_but_heads()).run().await;
    let gone = &["a", "b", "list 1", "manifest 1.0", "v1", "v2"];
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone });
    outcome.assert_metrics(&[("left_behind_files_count", 0), ("deleted_metadata_files_count", 2)]);
}

#[tokio::test]
async fn b011_files_go_where_nothing_else_is_said() {
    for more in ["", ", delete_files => true", ", delete_files => NULL"] {
        let outcome = Case::of(replaced().build()).expire(&format!("{}{more}", all_but_heads())).run().await;
        let gone = &["a", "b", "list 1", "manifest 1.0"];
        outcome.assert(Left { snapshots: &[2], refs: &["main"], gone });
        outcome.assert_metrics(&[("left_behind_files_count", 0)]);
    }
}

#[tokio::test]
async fn b012_what_a_store_did_not_delete_is_named_and_goes_with_a_later_run_of_either_kind() {
    let dead = ["data/a.parquet", "data/b.parquet"].map(|path| format!("wh/t/{path}"));
    let fail = |place: &crate::place::Place| {
        place
            .watched()
            .answer_wrongly(|kind, key| (kind == Kind::Delete && key.ends_with(".parquet")).then_some(Wrong::Denied));
    };
    let case = Case::of(replaced().build()).in_store().expire(&all_but_heads()).just_before_the_call(fail);
    let outcome = case.fails().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &["list 1", "manifest 1.0"] });
    let error = outcome.error.as_deref().unwrap();
    assert!(error.contains("the commit is done") && error.contains("2 of 4"), "{error}");
    assert!(error.contains("data/a.parquet"), "{error}");

    let store = outcome.place.watched();
    assert!(dead.iter().all(|key| futures::executor::block_on(store.keys()).contains(key)));
    store.recover();
    // Objects are as young as this test: what is an orphan is decided long after it.
    let later = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() + 10 * DAY_MS;
    let (_, session) = Case::of(Table::new(2)).in_store().now(later).in_place().await;
    session.context.register_object_store(&url::Url::parse("s3://bucket").unwrap(), std::sync::Arc::new(store.clone()));
    let table = literal(&outcome.place.table());
    let before = store.keys().await;
    let orphans = format!("CALL system.remove_orphan_files(table => {table}, max_delete_count => 2");
    let expire = format!("CALL system.expire_snapshots(table => {table}, {}", all_but_heads());
    for call in [&orphans, &expire] {
        let dry = session.metrics(&format!("{call}, dry_run => true)")).await.unwrap();
        assert_eq!(dry["deleted_files_count"], 2, "{call}");
    }
    session.run("SET iceberg_maintenance.journal = 'off'").await.unwrap();
    let forgotten = session.metrics(&format!("{expire})")).await.unwrap();
    crate::support::deleted_nothing(&forgotten).unwrap();
    assert_eq!(session.metrics(&format!("{orphans})")).await.unwrap()["deleted_files_count"], 2);
    let gone: BTreeSet<_> = before.difference(&store.keys().await).cloned().collect();
    assert_eq!(gone, BTreeSet::from(dead));
}

#[tokio::test]
async fn b012_a_run_that_died_between_commit_and_deletes_leaves_orphans_and_no_broken_table() {
    let (place, session) = Case::of(replaced().build()).in_place().await;
    let table = place.table();
    let before = files(&place.look().await);
    let plan = session.maintenance.plan_expire_snapshots(&table, &ExpireSnapshots::default()).await.unwrap();
    let planned = plan.files().len();
    drop(session.maintenance.commit(plan).await.unwrap());
    assert_eq!(planned, 4);
    assert_eq!(place.read().await.snapshot_ids(), BTreeSet::from([2]));

    let call = |name: &str| format!("CALL system.{name}(table => {})", literal(&table));
    crate::support::deleted_nothing(&session.metrics(&call("expire_snapshots")).await.unwrap()).unwrap();
    session.metrics(&call("remove_orphan_files")).await.unwrap();
    let gone = before.difference(&files(&place.look().await)).count();
    assert_eq!(gone, planned);
    place.assert_whole().await;
}

#[tokio::test]
async fn b015_a_missing_or_damaged_file_of_a_retained_snapshot_stops_both_procedures() {
    let built = replaced().build();
    let (manifest, list) = (built.snapshots[1].manifests[0].clone(), built.snapshots[1].manifest_list.clone().unwrap());
    for path in [&manifest, &list] {
        for fault in [Fault::Missing, Fault::Bytes(b"no Avro".to_vec()), Fault::CutTo(300)] {
            let mut table = built.clone();
            table.fault(path, fault.clone());
            for case in [Case::of(table.clone()).expire(&all_but_heads()), Case::of(table.clone()).orphans("")] {
                let error = case.refused().await;
                assert!(error.contains(path.as_str()), "{fault:?}: {error}");
                assert!(error.contains("snapshot 2"), "{fault:?}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn b016_missing_files_of_the_metadata_log_are_no_error() {
    let built = replaced().build();
    let mut table = built.clone();
    for version in &built.versions {
        table.fault(&format!("metadata/v{}.metadata.json", version.number), Fault::Missing);
    }
    let outcome = Case::of(table.clone()).expire(&all_but_heads()).run().await;
    let gone = &["a", "b", "list 1", "manifest 1.0"];
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone });
    let outcome = Case::of(table).orphans("").run().await;
    outcome.assert(Left { snapshots: &[1, 2], refs: &["main"], gone: &[] });
}

#[tokio::test]
async fn b016_a_snapshot_that_lost_its_manifest_list_can_be_expired_and_that_is_offered() {
    let mut table = replaced().build();
    let list = table.snapshots[0].manifest_list.clone().unwrap();
    table.fault(&list, Fault::Missing);
    let error = Case::of(table.clone()).orphans("").refused().await;
    assert!(error.contains(&list) && error.contains("snapshot 1") && error.contains("snapshot_ids"), "{error}");

    let outcome = Case::of(table).expire("snapshot_ids => [1]").run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &[] });
    outcome.assert_metrics(&[("skipped_missing_metadata_count", 1), ("already_missing_files_count", 1)]);
    let notice = outcome.notice("could not be read");
    assert!(notice.contains(&list) && notice.contains("remove_orphan_files"), "{notice}");
}

/// 20 appends of 20 files each, half of which compactions replaced; a rollback, a tag and rewritten manifests.
fn mixed() -> Table {
    let mut history = history(2);
    let hour = |count: i64| days_ago(60) + count * HOUR_MS;
    let names = |of: i64| (0..20).map(move |number| format!("f{of}x{number}"));
    for of in 0..20 {
        history.append(hour(3 * of), names(of));
        if of % 2 == 0 {
            history.replace_files(hour(3 * of + 1), names(of), [format!("c{of}")]);
        }
        if of == 11 {
            history.rewrite_manifests(hour(3 * of + 2));
            let tagged = history.head().unwrap();
            history.tag("kept", tagged);
        }
        if of == 15 {
            history.rollback_to(hour(3 * of + 2), 20);
        }
    }
    history.build()
}

#[tokio::test]
async fn b017_a_plan_that_is_too_large_is_refused_before_the_first_delete() {
    let error = Case::of(mixed()).expire(&format!("{}, max_delete_count => 100", all_but_heads())).refused().await;
    assert!(error.contains("max_delete_count") && error.contains("100"), "{error}");
}

#[tokio::test]
async fn b017_every_file_of_a_large_expiry_says_why_it_goes() {
    let outcome = Case::of(mixed()).expire(&all_but_heads()).run().await;
    assert!(outcome.gone.len() > 100 && outcome.files.keys().eq(&outcome.gone), "{:?}", outcome.gone.len());
    assert!(outcome.files.values().all(|reason| reason == "only expired snapshots have it"));

    let call = Case::of(mixed()).expire(&format!("{}, output => 'files'", all_but_heads()));
    let outcome = call.without(Check::SecondRun, "it returns no metrics").run().await;
    let expired = |row: &crate::support::Row| row["snapshot_id"].as_deref().unwrap().parse::<i64>().unwrap();
    assert_eq!(outcome.rows.len(), outcome.gone.len());
    assert!(outcome.rows.iter().all(|row| !outcome.snapshots.contains(&expired(row))));
}
