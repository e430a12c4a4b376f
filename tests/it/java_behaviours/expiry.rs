//! Which files go with which snapshots.

use std::sync::Arc;

use iceberg_maintenance::catalog::FileSystemCatalog;
use iceberg_maintenance::fixtures::ContentFile;
use iceberg_maintenance::{ExpireSnapshots, FixedClock, Maintenance};

use super::*;

const VERSIONS: [i64; 3] = [1, 2, 3];

#[tokio::test]
async fn an_old_append_gives_back_its_manifest_list_only() {
    for version in VERSIONS {
        let place = Place::new(appends(version, &["a", "b"]).build());
        place.expire(&all()).await.is(&[2], "L1", [0, 0, 0, 0, 1, 0]);
    }
}

#[tokio::test]
async fn a_deleted_file_goes_with_the_manifest_that_only_says_so() {
    for version in VERSIONS {
        let mut history = appends(version, &["a"]);
        history.delete_files(day(2), ["a"]);
        history.append(day(3), ["b"]);
        Place::new(history.build()).expire(&all()).await.is(&[3], "a L1 M1 L2 M2", [1, 0, 0, 2, 2, 0]);
    }
}

#[tokio::test]
async fn a_deleted_entry_in_a_manifest_that_stays_protects_nothing() {
    for version in VERSIONS {
        let mut deleted = history(version);
        deleted.append(day(1), ["a", "b"]);
        deleted.delete_files(day(2), ["a"]);
        deleted.append(day(3), ["c"]);
        Place::new(deleted.build()).expire(&all()).await.is(&[3], "a L1 M1 L2", [1, 0, 0, 1, 2, 0]);

        for fast in [false, true] {
            let mut overwritten = history(version);
            overwritten.append(day(1), ["a", "b"]);
            overwritten.overwrite(day(2), ["a"], ["c"]);
            match fast {
                true => fast_append(&mut overwritten, day(3), "d"),
                false => _ = overwritten.append(day(3), ["d"]),
            }
            Place::new(overwritten.build()).expire(&all()).await.is(&[3], "a L1 M1 L2", [1, 0, 0, 1, 2, 0]);
        }

        // A fast append even carries over a manifest that has nothing but the deleted entry.
        let mut carried = appends(version, &["a"]);
        carried.overwrite(day(2), ["a"], ["b"]);
        fast_append(&mut carried, day(3), "c");
        Place::new(carried.build()).expire(&all()).await.is(&[3], "a L1 M1 L2", [1, 0, 0, 1, 2, 0]);
    }
}

#[tokio::test]
async fn what_a_rolled_back_snapshot_deleted_stays_and_what_it_added_goes() {
    for version in VERSIONS {
        let mut deletes = history(version);
        deletes.append(day(1), ["a", "b"]);
        deletes.delete_files(day(2), ["b"]);
        deletes.rollback_to(day(3), 1);
        Place::new(deletes.build()).expire(&all()).await.is(&[1], "L2 M2", [0, 0, 0, 1, 1, 0]);

        let mut adds = appends(version, &["a", "b"]);
        adds.rollback_to(day(3), 1);
        Place::new(adds.build()).expire(&all()).await.is(&[1], "L2 M2 b", [1, 0, 0, 1, 1, 0]);
    }
}

#[tokio::test]
async fn retain_last_keeps_that_many_and_the_age_limit_is_inclusive() {
    let three = || Place::new(appends(2, &["a", "b", "c"]).build());
    let more = |count: i64| format!("{}, retain_last => {count}", all());
    three().expire(&more(2)).await.is(&[2, 3], "L1", [0, 0, 0, 0, 1, 0]);
    three().expire(&more(1)).await.is(&[3], "L1 L2", [0, 0, 0, 0, 2, 0]);
    for count in [3, 4] {
        three().expire(&more(count)).await.did_nothing(&[1, 2, 3]);
    }
    let four = Place::new(appends(2, &["a", "b", "c", "d"]).build());
    let at_second = format!("{}, retain_last => 2", older_than(day(2)));
    four.expire(&at_second).await.is(&[2, 3, 4], "L1", [0, 0, 0, 0, 1, 0]);
}

#[tokio::test]
async fn a_rule_is_given_once_and_ids_stand_alone() {
    let place = Place::new(appends(2, &["a", "b", "c"]).build());
    for (more, says) in [
        (format!("{}{}", older_than(day(2)), older_than(day(3))), "older_than"),
        (", retain_last => 2, retain_last => 1".into(), "retain_last"),
        (", snapshot_ids => [1], retain_last => 3".into(), "retain_last"),
        (", delete_files => true, delete_files => false".into(), "delete_files"),
        (", retain_last => 0".into(), "retain_last"),
        (", max_concurrent_deletes => 0".into(), "max_concurrent_deletes"),
        (", max_concurrent_deletes => -1".into(), "max_concurrent_deletes"),
        (", snapshot_ids => [3, 2]".into(), "Cannot expire 3. Still referenced by refs: [main]"),
    ] {
        for procedure in ["expire_snapshots", "remove_orphan_files"] {
            if procedure == "expire_snapshots" || says == "max_concurrent_deletes" {
                place.is_refused(&place.call(procedure, &more), says).await;
            }
        }
    }
    place.expire(", snapshot_ids => [1, 2]").await.is(&[3], "L1 L2", [0, 0, 0, 0, 2, 0]);
}

#[tokio::test]
async fn the_tables_own_limits_hold_where_the_call_names_none() {
    let mut minimum = appends(2, &["a", "b", "c"]).build();
    minimum.property("history.expire.min-snapshots-to-keep", "3");
    Place::new(minimum).expire(&all()).await.did_nothing(&[1, 2, 3]);
    let mut age = appends(2, &["a", "b", "c"]).build();
    age.property("history.expire.max-snapshot-age-ms", "1");
    Place::new(age).expire("").await.is(&[3], "L1 L2", [0, 0, 0, 0, 2, 0]);
    let mut young = appends(2, &["a"]).build();
    young.property("history.expire.max-snapshot-age-ms", &(NOW_MS - day(1)).to_string());
    Place::new(young).expire("").await.did_nothing(&[1]);
}

#[tokio::test]
async fn replaced_files_go_whatever_the_number_of_deletes_at_once() {
    for deletes in [1, 4] {
        let mut history = appends(2, &["a", "b"]);
        history.replace_files(day(3), ["b"], ["d"]);
        history.replace_files(day(4), ["a"], ["c"]);
        let more = |ms: i64| format!("{}, max_concurrent_deletes => {deletes}", older_than(ms));
        let replaced = Place::new(history.table().clone());
        replaced.expire(&more(NOW_MS)).await.is(&[4], "a b M1 M2 M3- L1 L2 L3", [2, 0, 0, 3, 3, 0]);
        history.rewrite_manifests(day(5));
        let rewritten = Place::new(history.build());
        let gone = "a b M1 M2 M3 M4 L1 L2 L3 L4";
        rewritten.expire(&more(day(5))).await.is(&[5], gone, [2, 0, 0, 6, 4, 0]);

        let four = Place::new(appends(2, &["a", "b", "c", "d"]).build());
        four.expire(&more(NOW_MS)).await.is(&[4], "L1 L2 L3", [0, 0, 0, 0, 3, 0]);
    }
}

#[tokio::test]
async fn a_staged_snapshot_that_was_never_published_takes_its_files_along() {
    for version in VERSIONS {
        let mut history = appends(version, &["a"]);
        history.stage(day(2), ["b"]);
        history.append(day(3), ["c"]);
        let table = history.build();
        let old = Place::new(table.clone());
        old.expire(&older_than(day(2) + 1)).await.is(&[3], "b L1 L2 M2", [1, 0, 0, 1, 2, 0]);
        let young = Place::new(table);
        young.expire(&older_than(day(2))).await.is(&[2, 3], "L1", [0, 0, 0, 0, 1, 0]);
    }
}

#[tokio::test]
async fn a_snapshot_that_was_picked_by_moving_the_branch_keeps_its_files() {
    let mut history = appends(2, &["a"]);
    history.overwrite(day(2), ["a"], ["b"]);
    history.append(day(3), ["c"]);
    history.rollback_to(day(4), 1);
    assert_eq!(history.cherry_pick(day(5), 2), 2, "no new snapshot");
    history.rollback_to(day(6), 3);
    Place::new(history.build()).expire(&older_than(day(3) + 1)).await.is(&[3], "a M1 M2- L1 L2", [1, 0, 0, 2, 2, 0]);
}

#[tokio::test]
async fn a_picked_snapshots_files_outlive_the_staged_one() {
    let mut history = appends(2, &["a"]);
    history.stage(day(2), ["b"]);
    history.append(day(3), ["c"]);
    assert_eq!(history.cherry_pick(day(4), 2), 4);
    let place = Place::new(history.build());
    place.expire(", snapshot_ids => [2]").await.is(&[1, 3, 4], "L2 M2", [0, 0, 0, 1, 1, 0]);
    place.expire(&all()).await.is(&[4], "L1 L3", [0, 0, 0, 0, 2, 0]);
}

#[tokio::test]
async fn delete_files_go_with_the_last_snapshot_that_has_them() {
    let mut rewritten = appends(2, &["a"]);
    rewritten.position_deletes(day(2), "p", "a");
    rewritten.overwrite(day(3), ["a", "p"], [ContentFile::data("b"), position_deletes("q", "b")]);
    rewritten.append(day(4), ["c"]);
    Place::new(rewritten.build()).expire(&all()).await.is(&[4], "a p M1 M2 M3- L1 L2 L3", [1, 1, 0, 4, 3, 0]);

    let mut compacted = appends(2, &["a"]);
    compacted.position_deletes(day(2), "p", "a");
    compacted.replace_files(day(3), ["a"], ["b"]);
    compacted.delete_files(day(4), ["p"]);
    compacted.append(day(5), ["c"]);
    Place::new(compacted.build()).expire(&all()).await.is(&[5], "a p M1 M2 M3- M4 L1 L2 L3 L4", [1, 1, 0, 4, 4, 0]);

    for version in [2, 3] {
        let mut emptied = appends(version, &["a"]);
        // A vector goes with its data file.
        let (deletes, removed): (_, &[&str]) = match version {
            2 => ("p", &["a", "e", "p"]),
            _ => ("data/p.puffin", &["a", "e"]),
        };
        match version {
            2 => emptied.position_deletes(day(2), "p", "a"),
            _ => emptied.deletion_vectors(day(2), "p", &[("a", &[0])]),
        };
        emptied.equality_deletes(day(3), "e");
        emptied.delete_files(day(4), removed);
        emptied.append(day(5), ["b"]);
        let gone = format!("a e {deletes} M1 M2 M3 M4 L1 L2 L3 L4");
        Place::new(emptied.build()).expire(&older_than(day(5))).await.is(&[5], &gone, [1, 1, 1, 6, 4, 0]);
    }
}

#[tokio::test]
async fn a_file_that_comes_and_goes_ten_times_stays_when_it_is_back() {
    for version in VERSIONS {
        let mut history = appends(version, &["a"]);
        for round in 1..=10 {
            history.overwrite(day(2 * round), ["a"], ["b"]);
            history.overwrite(day(2 * round + 1), ["b"], ["a"]);
        }
        let gone: String = (1..=20).map(|id| format!("L{id} M{id} ")).collect();
        Place::new(history.build()).expire(&all()).await.is(&[21], &format!("b {gone}"), [1, 0, 0, 39, 20, 0]);
    }
}

#[tokio::test]
async fn many_files_that_expire_and_few_that_stay_or_the_reverse() {
    for (old, new) in [(5, 2), (2, 5)] {
        let names = |letter: &str, count: i64| (0..count).map(|n| format!("{letter}{n}")).collect::<Vec<_>>();
        let mut history = history(2);
        history.append(day(1), names("old", old));
        history.delete_files(day(2), names("old", old));
        history.append(day(3), names("new", new));
        let gone = format!("{} M1 M2 L1 L2", names("old", old).join(" "));
        Place::new(history.build()).expire(&all()).await.is(&[3], &gone, [old, 0, 0, 2, 2, 0]);
    }
}

#[tokio::test]
async fn a_file_deleted_after_the_limit_stays_as_long_as_an_older_snapshot_does() {
    let mut history = appends(2, &["a", "b", "c"]);
    history.delete_files(day(4), ["a"]);
    history.append(day(5), ["d"]);
    history.delete_files(day(6), ["b"]);
    let gone = "a M1 M4 L1 L2 L3 L4";
    Place::new(history.build()).expire(&older_than(day(5))).await.is(&[5, 6], gone, [1, 0, 0, 2, 4, 0]);
}

#[tokio::test]
async fn without_old_snapshots_nothing_is_done() {
    Place::new(table(2)).expire(&all()).await.did_nothing(&[]);
    Place::new(appends(2, &["a"]).build()).expire("").await.did_nothing(&[1]);
}

#[tokio::test]
async fn positions_and_names_in_any_order_and_comments_mean_the_same() {
    let place = || Place::new(appends(2, &["a", "b"]).build());
    let one_list = |metrics: MetricRows| assert_eq!(COUNTS.map(|name| metrics[name]), [0, 0, 0, 0, 1, 0]);
    let limit = "TIMESTAMP '2023-11-16 22:13:20'";
    for call in [
        "CALL system.expire_snapshots(<t>, <limit>)",
        "CALL system.expire_snapshots(older_than => <limit>, table => <t>)",
        "CALL system.expire_snapshots(retain_last => 1, older_than => <limit>, table => <t>)",
        "/* a /* nested */ comment */ CALL -- to the end of the line\n system.expire_snapshots(table => /* c */ <t>, older_than => <limit>) -- end",
        "CALL system.expire_snapshots(table => <t>, older_than => <limit>, stream_results => true)",
    ] {
        let place = place();
        let call = call.replace("<t>", &literal(&place.path())).replace("<limit>", limit);
        one_list(place.session.metrics(&call).await.unwrap());
        assert_eq!(place.read().snapshot_ids(), BTreeSet::from([2]), "{call}");
    }

    let mut history = appends(2, &["a", "b"]);
    history.overwrite(day(3), ["a", "b"], ["c"]);
    history.append(day(4), ["d"]);
    let place = Place::new(history.build());
    place.expire(&older_than(day(2))).await.is(&[2, 3, 4], "L1", [0, 0, 0, 0, 1, 0]);
    let before = files(&place.disk());
    let call = format!("CALL system.expire_snapshots({}, TIMESTAMP '2024-01-13 22:13:20', 2)", literal(&place.path()));
    let metrics = place.session.metrics(&call).await.unwrap();
    assert_eq!(COUNTS.map(|name| metrics[name]), [2, 0, 0, 2, 1, 0]);
    let gone = before.difference(&files(&place.disk())).cloned().collect::<BTreeSet<_>>();
    assert_eq!(gone, named(&place.written.table, "a b M1 M2 L2"));
}

#[tokio::test]
async fn wrong_calls_are_refused() {
    let place = Place::new(appends(2, &["a", "b"]).build());
    let own = literal(&place.path());
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
        for (call, says) in [
            (format!("CALL system.{procedure}({own}, table => {own})"), "can't be mixed"),
            (format!("CALL custom.{procedure}({own})"), "system"),
            (format!("CALL system.{procedure}()"), "table"),
            (format!("CALL system.{procedure}({own}, 2.2)"), "older_than"),
            (format!("CALL system.{procedure}('')"), "table"),
        ] {
            place.is_refused(&call, says).await;
        }
    }
}

#[tokio::test]
async fn a_call_in_one_catalog_is_never_for_the_table_of_another() {
    let warehouse = |name: &str| {
        let folder = tempfile::tempdir().unwrap();
        appends(2, &["a", "b"]).build().write(folder.path().join(format!("db/{name}"))).unwrap();
        folder
    };
    let (one, other) = (warehouse("t1"), warehouse("t2"));
    let catalog = |folder: &tempfile::TempDir| {
        Arc::new(FileSystemCatalog::with_warehouse(folder.path().canonicalize().unwrap().to_str().unwrap()))
    };
    let builder = Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS)));
    let session = Session::with(builder.catalog("one", catalog(&one)).catalog("other", catalog(&other)));
    let looks = || (disk(one.path()), disk(other.path()));
    let before = looks();
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
        for table in ["other.db.t2", "db.t2"] {
            let call = format!("CALL one.system.{procedure}(table => '{table}')");
            let refusal = session.run(&call).await.unwrap_err();
            assert!(refusal.contains("not found"), "{call}: {refusal}");
        }
    }
    assert_eq!(looks(), before);
    session.run("CALL one.system.expire_snapshots(table => 'db.t1')").await.unwrap();
    assert_eq!(disk(other.path()), before.1);
    assert_ne!(disk(one.path()), before.0);
}

#[tokio::test]
async fn a_committed_plan_deletes_nothing_until_it_is_asked_to() {
    let place = Place::new(appends(2, &["a", "b"]).build());
    let maintenance = &place.session.maintenance;
    let plan = maintenance.plan_expire_snapshots(&place.path(), &ExpireSnapshots::default()).await.unwrap();
    let planned: Vec<_> = plan.files().iter().map(|file| file.path.clone()).collect();
    assert_eq!(planned, [place.written.locate(named(&place.written.table, "L1").first().unwrap())]);
    let before = files(&place.disk());
    let committed = maintenance.commit(plan).await.unwrap();
    assert_eq!(place.read().snapshot_ids(), BTreeSet::from([2]));
    assert!(before.is_subset(&files(&place.disk())));
    let report = maintenance.delete_files(committed).await.unwrap();
    assert_eq!(report.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(), planned);
    let gone = before.difference(&files(&place.disk())).cloned().collect::<BTreeSet<_>>();
    assert_eq!(gone, named(&place.written.table, "L1"));
}
