//! Family I: what is particular to one kind of storage, and the age of files.

use std::collections::BTreeSet;

use iceberg_maintenance::fixtures::{History, MetadataNaming, Table, VersionHint, uuid_of};

use crate::case::{Case, Check, DAY_MS, HOUR_MS, NOW_MS, days_ago, history, in_ten_days};
use crate::support::Session;
use crate::watched::{Client, Kind, Wrong};

/// Snapshots 1 and 2 expire by age, 3 stays; `a` came with 1 and went with 2.
fn three_snapshots() -> History {
    let mut history = history(2);
    history.append(days_ago(30), ["a", "b"]);
    history.overwrite(days_ago(20), ["a"], ["c"]);
    history.append(days_ago(1), ["d"]);
    history
}

const DEAD: [&str; 4] = ["a", "list 1", "list 2", "manifest 1.0"];

/// A table whose location has a slash at the end or none; its files are named without a doubled one.
fn located(location: &'static str) -> impl Fn(&str) -> Table {
    move |_| {
        let mut table = three_snapshots().build();
        table.extra.insert("location".into(), location.into());
        table
    }
}

/// Every way to write the location of a bucket.
const BUCKETS: [(&str, &str); 4] = [
    ("s3://bucket", "s3://bucket"),
    ("s3://bucket", "s3://bucket/"),
    ("s3://bucket/", "s3://bucket"),
    ("s3://bucket/", "s3://bucket/"),
];

#[tokio::test]
async fn b159_a_table_at_the_root_of_a_bucket_is_maintained_as_any_other() {
    for (in_metadata, in_call) in BUCKETS {
        let case = || Case::at(located(in_metadata)).fills_bucket("s3://bucket").now(in_ten_days());
        let call = format!(
            "CALL system.expire_snapshots(table => '{in_call}', older_than => TIMESTAMP '2025-12-20'{{dry_run}})"
        );
        let outcome = case().statement(&call).run().await;
        outcome.assert_gone(&DEAD);
        let call = format!("CALL system.remove_orphan_files(table => '{in_call}'{{dry_run}})");
        let case = case().beside("t/data/o.parquet", "x").beside("t/data/p=1/o.parquet", "x");
        let case = case.beside("t/_tmp/o.parquet", "x").beside("t/.trash/o.parquet", "x").beside("t/data/_x/o", "x");
        let outcome = case.beside("t/backup/o.parquet", "x").beside("t/readme.txt", "x").statement(&call).run().await;
        outcome.assert_gone(&["o", "p=1/o"]);
        outcome.assert_metrics(&[("skipped_hidden_count", 3), ("skipped_foreign_files_count", 2)]);
    }
}

/// Puts another table below the bucket, with a uuid of its own.
fn with_another(mut case: Case, folder: &str, naming: MetadataNaming) -> Case {
    let mut table = three_snapshots().build();
    (table.uuid, table.naming, table.version_hint) = (Some(uuid_of("other")), naming, VersionHint::Absent);
    table.location = Some(format!("s3://bucket/{folder}"));
    let written = tempfile::tempdir().unwrap();
    let written = table.write(written.path()).unwrap();
    for file in written.files_on_disk().unwrap() {
        case = case.beside(&format!("t/{folder}/{file}"), std::fs::read(written.folder.join(&file)).unwrap());
    }
    case
}

#[tokio::test]
async fn b159_a_second_table_in_the_bucket_is_refused() {
    for (in_metadata, in_call) in BUCKETS {
        for folder in
            ["data/other", "other", "db/other", "metadata/other", "p=1/other", "_staging/other", ".trash/other"]
        {
            for naming in [MetadataNaming::Hadoop, MetadataNaming::Catalog] {
                for more in ["", ", include_foreign => true", ", allow_missing_files => true"] {
                    let case = Case::at(located(in_metadata)).fills_bucket("s3://bucket").now(in_ten_days());
                    let case = with_another(case.beside("t/data/o.parquet", "x"), folder, naming);
                    let call = format!("CALL system.remove_orphan_files(table => '{in_call}'{more}{{dry_run}})");
                    let error = case.statement(&call).refused().await;
                    assert!(error.contains("another table"), "{in_metadata} {in_call} {folder} {more}: {error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn b159_a_table_at_the_root_of_the_file_system_is_maintained_as_any_other() {
    for in_metadata in ["file:///", "file:/", "/"] {
        for in_call in ["file:///", "/"] {
            let folder = tempfile::tempdir().unwrap();
            let mut table = three_snapshots().build();
            table.location = Some(if in_metadata == "/" { "" } else { in_metadata.trim_end_matches('/') }.into());
            table.extra.insert("location".into(), in_metadata.into());
            table.stray("data/o.parquet", days_ago(50)).stray(".hidden/o.parquet", days_ago(50));
            let written = table.write(folder.path()).unwrap();
            let before = written.files_on_disk().unwrap();
            let session = Session::below(folder.path(), Some(NOW_MS));
            let orphans = format!("CALL system.remove_orphan_files(table => '{in_call}')");
            session.run(&orphans).await.unwrap_or_else(|error| panic!("{in_metadata} {in_call}: {error}"));
            let gone = |left: BTreeSet<String>| before.difference(&left).cloned().collect::<Vec<_>>();
            assert_eq!(gone(written.files_on_disk().unwrap()), ["data/o.parquet"], "{in_metadata} {in_call}");
            let expiry = format!("CALL system.expire_snapshots(table => '{in_call}')");
            session.run(&expiry).await.unwrap_or_else(|error| panic!("{in_metadata} {in_call}: {error}"));
            let gone = gone(written.files_on_disk().unwrap());
            assert!(gone.contains(&"data/a.parquet".into()) && gone.len() == 1 + DEAD.len(), "{in_metadata}: {gone:?}");
        }
    }
}

/// A store whose listings answer wrongly for folders that the test accepts.
fn with_listings(wrong: Wrong, accepts: impl Fn(usize, &str) -> bool + Clone + Send + 'static) -> Case {
    let mut history = history(2);
    history.append(days_ago(20), (0..4).map(|n| format!("data/p={n}/a.parquet")));
    let case = Case::of(history.build()).in_store().now(in_ten_days()).orphans("");
    let case = (0..4).fold(case, |case, n| case.beside(&format!("t/data/p={n}/o.parquet"), "x"));
    case.prepared_by(move |place| {
        let (accepts, mut seen) = (accepts.clone(), 0);
        place.watched().answer_wrongly(move |kind, key| {
            let listed = kind == Kind::List && !key.ends_with("metadata");
            seen += usize::from(listed);
            (listed && accepts(seen, key)).then_some(wrong)
        });
    })
}

#[tokio::test]
async fn b161_a_folder_that_vanishes_while_it_is_listed_is_passed_over() {
    let case = with_listings(Wrong::Missing, |_, key| key.ends_with("p=9"));
    let case = case.without(Check::SetDifference, "what the folder held is not listed");
    let outcome = case.beside("t/data/p=9/o.parquet", "x").run().await;
    outcome.assert_gone(&["p=0/o", "p=1/o", "p=2/o", "p=3/o"]);
}

#[tokio::test]
async fn b161_a_folder_that_has_live_files_and_is_not_there_for_the_listing_deletes_nothing() {
    let error = with_listings(Wrong::Missing, |_, key| key.ends_with("p=2")).refused().await;
    assert!(error.contains("data/p=2/a.parquet") && error.contains("did not show"), "{error}");
    for top in ["wh/t", "wh/t/data"] {
        let error = with_listings(Wrong::Missing, move |_, key| key == top).refused().await;
        assert!(error.contains("s3://bucket/wh/t"), "{error}");
    }
}

#[tokio::test]
async fn b161_any_other_error_of_a_listing_deletes_nothing() {
    let like_s3 = Client { name: "AmazonS3(bucket)", ..Client::default() };
    for wrong in [Wrong::Denied, Wrong::Fails] {
        for at in 1..=5 {
            let error = with_listings(wrong, move |seen, _| seen == at).refused().await;
            assert!(error.contains("listing"), "{error}");
        }
        let error = with_listings(wrong, |_, key| key.ends_with("p=2")).refused().await;
        assert!(error.contains("listing"), "{error}");
        let case = with_listings(wrong, |_, _| true).prepared_by(move |place| place.watched().set_client(like_s3));
        let error = case.refused().await;
        assert!(error.contains("listing"), "{error}");
    }
}

#[tokio::test]
async fn b163_an_object_store_is_never_asked_for_a_folder() {
    let partitioned = || {
        let mut history = history(2);
        history.append(days_ago(30), ["data/p=1/a.parquet", "data/p=1/b.parquet", "data/p=2/c.parquet"]);
        history.delete_files(days_ago(20), ["data/p=1/a.parquet", "data/p=1/b.parquet"]);
        history.append(days_ago(1), ["data/p=2/d.parquet"]);
        history.build()
    };
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
        let case = Case::of(partitioned()).in_store().now(in_ten_days()).beside("t/data/p=3/o.parquet", "x");
        let older = if procedure == "expire_snapshots" { ", older_than => TIMESTAMP '2025-12-20'" } else { "" };
        let call = format!("CALL system.{procedure}(table => {{table}}{older}{{dry_run}})");
        let outcome = case.statement(&call).run().await;
        for (kind, key) in outcome.requests.iter().chain(&outcome.dry_requests) {
            let name = key.rsplit('/').next().unwrap();
            let is_folder =
                name.is_empty() || ["wh", "t", "data", "metadata"].contains(&name) || name.starts_with("p=");
            assert!(*kind == Kind::List || !is_folder, "{procedure}: {kind:?} of {key:?}");
            assert!(*kind != Kind::Other, "{procedure}: {kind:?} of {key:?}");
        }
    }
}

#[tokio::test]
async fn b168_an_old_tag_freezes_no_age_limit() {
    for tagged in [true, false] {
        let mut history = history(2);
        history.append(days_ago(90), ["a"]);
        history.append(days_ago(30), ["b"]);
        if tagged {
            history.tag("kept", 1);
            history.branch("old", 1);
        }
        let mut table = history.build();
        for (name, days) in [("before", 95), ("between", 60), ("after", 20), ("young", 2)] {
            table.stray(&format!("data/{name}.parquet"), days_ago(days));
        }
        let outcome = Case::of(table).orphans("").run().await;
        outcome.assert_gone(&["after", "before", "between"]);
        outcome.assert_metrics(&[("skipped_too_young_count", 1)]);
    }
}

#[tokio::test]
async fn b169_files_that_are_newer_than_the_oldest_retained_snapshot_go() {
    for oldest in [10, 4, 1] {
        let mut history = history(2);
        history.append(days_ago(oldest), ["a"]);
        let mut table = history.build();
        table.stray("data/abandoned.parquet", days_ago(5)).stray("metadata/abandoned.avro", days_ago(5));
        table.stray("data/at-the-limit.parquet", days_ago(3)).stray("data/before-it.parquet", days_ago(3) - 1);
        table.stray("data/young.parquet", days_ago(3) + 1);
        let outcome = Case::of(table).orphans("").run().await;
        outcome.assert_gone(&["abandoned", "before-it", "metadata/abandoned.avro"]);
        outcome.assert_metrics(&[("skipped_too_young_count", 2)]);
    }
}

#[tokio::test]
async fn b170_files_of_an_expired_snapshot_go_at_once_and_orphans_of_the_same_age_stay() {
    // Written an hour ago, right now, and by a clock that is ahead.
    for modified in [NOW_MS - HOUR_MS, NOW_MS, NOW_MS + HOUR_MS] {
        let mut history = history(2);
        history.append(NOW_MS - HOUR_MS, ["a", "b"]);
        history.overwrite(NOW_MS - HOUR_MS / 2, ["a"], ["c"]);
        let mut table = history.build();
        table.modified_ms = Some(modified);
        table.stray("data/o.parquet", modified);
        let gone = ["a", "list 1", "manifest 1.0"];
        for call in ["snapshot_ids => [1]", "older_than => now()", "older_than => now(), retain_last => 1"] {
            Case::of(table.clone()).expire(call).run().await.assert_gone(&gone);
        }
        let outcome = Case::of(table).orphans("").run().await;
        outcome.assert_gone(&[]);
        outcome.assert_metrics(&[("skipped_too_young_count", 1)]);
    }
}

#[tokio::test]
async fn b170_objects_that_were_just_written_go_with_their_snapshot_too() {
    let case = Case::of(three_snapshots().build()).in_store().beside("t/data/o.parquet", "x");
    // The store's clock is ours; the snapshots' times are of the past.
    let case = case.now(in_ten_days() - 10 * DAY_MS);
    case.expire("snapshot_ids => [1, 2]").run().await.assert_gone(&DEAD);
}
