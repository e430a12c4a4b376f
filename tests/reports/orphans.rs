//! Family D, orphans: whose files are these?

use std::os::unix::fs::symlink;

use iceberg_maintenance::fixtures::{ContentFile, MetadataNaming, PartitionField, Table, VersionHint, uuid_of};

use crate::case::{Case, Check, days_ago, history, in_ten_days, list_of};
use crate::place::Place;
use crate::support::literal;

/// One snapshot with the files `a` and `b`.
fn idle() -> Table {
    let mut history = history(2);
    history.append(days_ago(20), ["a", "b"]);
    history.build()
}

/// The same with old files that nothing names.
fn with_strays(paths: &[&str]) -> Table {
    let mut table = idle();
    paths.iter().for_each(|path| _ = table.stray(path, days_ago(50)));
    table
}

/// Another table by its own uuid.
fn other(naming: MetadataNaming) -> Table {
    let mut table = idle();
    (table.uuid, table.naming, table.version_hint) = (Some(uuid_of("other")), naming, VersionHint::Absent);
    table
}

fn writes(table: Table, folder: &'static str) -> impl Fn(&Place) {
    move |place| _ = table.write(place.path().join(folder)).unwrap()
}

/// Every way to ask for the removal of a table's orphans, where `o` and `a` are listed.
const WAYS: [&str; 4] =
    ["", "location => 'data'", "file_list_view => 'listed'", "allow_missing_files => true, exclusive_location => true"];

fn listed() -> String {
    list_of(&["t/data/a.parquet", "t/data/o.parquet"])
}

#[tokio::test]
async fn b077_two_tables_in_one_location_are_refused_naming_the_other() {
    for (ours, theirs) in [
        (MetadataNaming::Catalog, MetadataNaming::Catalog),
        (MetadataNaming::Hadoop, MetadataNaming::Hadoop),
        (MetadataNaming::Hadoop, MetadataNaming::Catalog),
        (MetadataNaming::Catalog, MetadataNaming::Hadoop),
    ] {
        for way in WAYS {
            let mut table = with_strays(&["data/o.parquet"]);
            // The versions of the other one neither follow ours nor replace them.
            (table.version, table.versions, table.naming) = (7, vec![], ours);
            if ours == MetadataNaming::Catalog {
                table.version_hint = VersionHint::Absent;
            }
            let case = Case::of(table).set(&listed()).prepared_by(writes(other(theirs), "t"));
            let error = case.orphans(way).refused().await;
            match ours == theirs {
                true => assert!(error.contains(&uuid_of("other")) && error.contains("another table"), "{way}: {error}"),
                false => assert!(error.contains("Which of the two schemes"), "{way}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn b077_two_tables_in_one_location_are_told_apart_without_a_uuid_too() {
    for (ours, theirs) in [(None, None), (Some("events"), None), (None, Some("other"))] {
        for naming in [MetadataNaming::Catalog, MetadataNaming::Hadoop] {
            let mut table = with_strays(&["data/o.parquet"]);
            (table.version, table.versions, table.naming) = (7, vec![], naming);
            (table.uuid, table.format_version) = (ours.map(uuid_of), 1);
            if naming == MetadataNaming::Catalog {
                table.version_hint = VersionHint::Absent;
            }
            // Other snapshots, and a uuid that its writer left out.
            let mut history = history(1);
            history.next_id(1000);
            history.append(days_ago(30), ["theirs"]);
            let mut other = history.build();
            (other.uuid, other.naming, other.version_hint) = (theirs.map(uuid_of), naming, VersionHint::Absent);
            let case = Case::of(table).prepared_by(writes(other, "t"));
            let error = case.orphans("no_catalog => true").refused().await;
            assert!(error.contains("another table"), "{ours:?} {theirs:?}: {error}");
        }
    }
}

#[tokio::test]
async fn b077_a_table_inside_or_around_the_folder_is_refused() {
    for (folder, ways) in [("t/data/inner", &WAYS[..2]), ("t/inner", &WAYS[..1]), ("t/data", &WAYS[..])] {
        for way in ways {
            let case = Case::of(with_strays(&["data/o.parquet"])).set(&listed());
            let case = case.prepared_by(writes(other(MetadataNaming::Hadoop), folder));
            let error = case.orphans(way).refused().await;
            assert!(error.contains("another table"), "{folder} {way}: {error}");
        }
    }
}

#[tokio::test]
async fn b077_a_list_that_doubles_slashes_hides_no_table_either() {
    for listed in [["t//data/a.parquet", "t//data/o.parquet"], ["t/data//a.parquet", "t/./data//o.parquet"]] {
        let case = Case::of(with_strays(&["data/o.parquet"])).set(&list_of(&listed));
        let case = case.prepared_by(writes(other(MetadataNaming::Hadoop), "t/data"));
        let error = case.orphans("file_list_view => 'listed'").refused().await;
        assert!(error.contains("another table"), "{listed:?}: {error}");
    }
}

#[tokio::test]
async fn b077_a_data_path_that_two_tables_write_to_is_not_searched_unasked() {
    let build = |root: &str| {
        let mut table = with_strays(&["data/o.parquet"]);
        table.property("write.data.path", &format!("{root}/shared"));
        table
    };
    let case = || Case::at(build).beside("shared/theirs.parquet", "x");
    let outcome = case().orphans("").run().await;
    outcome.assert_gone(&["o"]);
    outcome.assert_metrics(&[("unscanned_roots_count", 1)]);
    outcome.notice("shared");
    let error = case().orphans("location => '{root}/shared'").refused().await;
    assert!(error.contains("exclusive_location"), "{error}");
}

#[tokio::test]
async fn b081_an_empty_table_made_anew_loses_what_the_old_one_left() {
    let left: Vec<_> = (0..40).map(|number| format!("old-{number:02}")).collect();
    let empty = || {
        let mut table = history(2).build();
        left.iter().for_each(|name| _ = table.stray(&format!("data/{name}.parquet"), days_ago(50)));
        table
    };
    let names: Vec<_> = left.iter().map(String::as_str).collect();
    for current in [serde_json::Value::Null, (-1).into()] {
        let mut table = empty();
        table.extra.insert("current-snapshot-id".into(), current);
        let outcome = Case::of(table).orphans("").run().await;
        outcome.assert_gone(&names);
        outcome.assert_metrics(&[("scanned_files_count", 42), ("active_files_count", 0)]);
    }
    let mut table = empty();
    (table.version, table.versions) = (7, vec![]);
    let case = Case::of(table).prepared_by(writes(other(MetadataNaming::Hadoop), "t"));
    let error = case.orphans("").refused().await;
    assert!(error.contains(&uuid_of("other")), "{error}");
}

#[tokio::test]
async fn b082_a_list_and_a_listing_end_at_the_tables_folder() {
    let siblings = ["t_2/data/o.parquet", "t2/o.parquet", "t-old/data/a.parquet", "o.parquet", "T/data/o.parquet"];
    for in_store in [false, true] {
        for listed in [false, true] {
            let mut case = Case::of(if in_store { idle() } else { with_strays(&["data/o.parquet"]) });
            if in_store {
                case = case.in_store().now(in_ten_days()).beside("t/data/o.parquet", "x");
            }
            for sibling in siblings {
                case = case.beside(sibling, "x");
            }
            let outcome = match listed {
                false => case.orphans("").run().await,
                true => {
                    let names: Vec<_> = ["t/data/o.parquet", "t/data/a.parquet"].into_iter().chain(siblings).collect();
                    let case = case.set(&list_of(&names));
                    case.without(Check::SecondRun, "the list stays as it is")
                        .orphans("file_list_view => 'listed'")
                        .run()
                        .await
                }
            };
            outcome.assert_gone(&["o"]);
        }
    }
}

#[tokio::test]
async fn b083_a_location_that_is_not_the_tables_is_refused() {
    let elsewhere = |place: &Place| {
        other(MetadataNaming::Hadoop).write(place.path().join("other")).unwrap();
        symlink(place.path().join("other"), place.path().join("t/link")).unwrap();
        symlink(place.path().join("other/data"), place.path().join("t/data/link")).unwrap();
    };
    for location in [
        "{root}/other",
        "{root}/other/data",
        "{root}",
        "{root}/",
        "/",
        "..",
        "../other",
        "data/../../other",
        "{root}/t/../other",
        "{root}/t_2",
        "link",
        "link/data",
        "data/link",
        "s3://bucket/t",
        "file://host{root}/t",
        "{root}/t/data/a.parquet",
    ] {
        let case = Case::of(with_strays(&["data/o.parquet"])).prepared_by(elsewhere);
        let call = format!("CALL system.remove_orphan_files(table => {{table}}, location => '{location}'{{dry_run}})");
        case.statement(&call).refused().await;
    }
    for location in
        ["s3://bucket", "s3://bucket/", "s3://bucket/wh", "s3://other/wh/t", "s3://bucket/wh/t/../t2", "/wh/t"]
    {
        let case =
            Case::of(idle()).in_store().now(in_ten_days()).beside("t/data/o.parquet", "x").beside("t2/data/o", "x");
        case.orphans(&format!("location => '{location}', exclusive_location => true")).refused().await;
    }
}

/// What a user may keep beside a table's own folders.
const FOREIGN: [&str; 4] = ["assets/v.mp4", "README.md", "notes/2024/a.txt", "assets/data/x.parquet"];

#[tokio::test]
async fn b084_what_others_keep_below_the_table_stays_and_is_counted() {
    let hidden = ["_SUCCESS", "data/.x.parquet.crc", "metadata/.version-hint.text.crc"];
    let strays = [&FOREIGN[..], &hidden, &["data/o.parquet", "metadata/o-m0.avro"]].concat();
    let outcome = Case::of(with_strays(&strays)).orphans("").run().await;
    outcome.assert_gone(&["o", "metadata/o-m0.avro"]);
    outcome.assert_metrics(&[("skipped_foreign_files_count", 4), ("skipped_hidden_count", 3)]);
    outcome.notice("include_foreign");

    let mut case = Case::of(idle()).in_store().now(in_ten_days());
    for path in strays {
        case = case.beside(&format!("t/{path}"), "x");
    }
    let outcome = case.orphans("").run().await;
    outcome.assert_gone(&["o", "metadata/o-m0.avro"]);
    outcome.assert_metrics(&[("skipped_foreign_files_count", 4), ("skipped_hidden_count", 3)]);
}

#[tokio::test]
async fn b084_they_go_on_request_only() {
    let strays = [&FOREIGN[..], &["data/o.parquet"]].concat();
    let outcome = Case::of(with_strays(&strays)).orphans("include_foreign => true").run().await;
    outcome.assert_gone(&["README.md", "assets/data/x.parquet", "assets/v.mp4", "notes/2024/a.txt", "o"]);
    outcome.assert_metrics(&[("skipped_foreign_files_count", 0)]);
    let outcome = Case::of(with_strays(&strays)).orphans("location => 'assets'").run().await;
    outcome.assert_gone(&["assets/data/x.parquet", "assets/v.mp4"]);
    // A list of files is no request to delete them.
    let listed: Vec<_> = [&strays[..], &["data/a.parquet"]].concat().iter().map(|path| format!("t/{path}")).collect();
    let view = list_of(&listed.iter().map(String::as_str).collect::<Vec<_>>());
    let case = Case::of(with_strays(&strays)).set(&view).without(Check::SecondRun, "the list stays as it is");
    let outcome = case.orphans("file_list_view => 'listed'").run().await;
    outcome.assert_gone(&["o"]);
    outcome.assert_metrics(&[("skipped_foreign_files_count", 4)]);
}

#[tokio::test]
async fn b084_folders_that_hold_live_files_are_the_tables_own_whatever_their_names() {
    // A table migrated from Hive: partitions and files right in the location, and folders of a location provider.
    let live = ["dt=1/a.parquet", "x7f/a.parquet", "deep/er/a.parquet"];
    let mut history = history(2);
    history.append(days_ago(20), live.map(ContentFile::data));
    history
        .table_mut()
        .statistics
        .push(iceberg_maintenance::fixtures::Statistics { snapshot_id: 1, path: "stats/1.stats".into() });
    let mut table = history.build();
    for path in ["dt=1/o.parquet", "x7f/sub/o.parquet", "deep/o.parquet", "stats/o.stats", "README.md", "x8/o.parquet"]
    {
        table.stray(path, days_ago(50));
    }
    let outcome = Case::of(table).orphans("").run().await;
    outcome.assert_gone(&["deep/o.parquet", "dt=1/o.parquet", "stats/o.stats", "x7f/sub/o.parquet"]);
    outcome.assert_metrics(&[("skipped_foreign_files_count", 2)]);
}

#[tokio::test]
async fn b084_a_location_that_holds_live_files_itself_is_searched() {
    let mut history = history(2);
    history.append(days_ago(20), [ContentFile { path: "a.parquet".into(), ..ContentFile::data("a") }]);
    let mut table = history.build();
    table.stray("o.parquet", days_ago(50)).stray("assets/v.mp4", days_ago(50));
    let outcome = Case::of(table).orphans("").run().await;
    outcome.assert_gone(&["o.parquet"]);
    outcome.assert_metrics(&[("skipped_foreign_files_count", 1)]);
}

#[tokio::test]
async fn b084_partition_folders_and_write_paths_inside_the_location_are_the_tables_own() {
    for property in ["write.data.path", "write.object-storage.path", "write.folder-storage.path"] {
        let build = move |root: &str| {
            let mut table = history(2).build().partitioned_by("dt");
            let odd = PartitionField { id: 1001, name: "a b#c".into(), source_id: 100, transform: "identity".into() };
            table.partition_specs[0].fields.push(odd);
            table.property(property, &format!("{root}/t/files/hashed"));
            let own = ["dt=2/o", "a b#c=1/o", "a+b%23c=1/o", "a%20b%23c=1/o", "files/hashed/o", "files/o"];
            for path in own.into_iter().chain(["dtx=2/o", "dt/o", "=/o", "fil/o"]) {
                table.stray(path, days_ago(50));
            }
            table
        };
        let outcome = Case::at(build).orphans("").run().await;
        for gone in ["dt=2/o", "a b#c=1/o", "a+b%23c=1/o", "a%20b%23c=1/o", "files/hashed/o", "files/o"] {
            assert!(outcome.gone.contains(gone), "{property} {gone}: {:?}", outcome.gone);
        }
        outcome.assert_metrics(&[("skipped_foreign_files_count", 4)]);
    }
    // Where the table writes right into its location, everything in it is its own.
    let build = |root: &str| {
        let mut table = with_strays(&["x1/o.parquet", "o.parquet"]);
        table.property("write.data.path", &format!("file:{root}/t/"));
        table
    };
    Case::at(build).orphans("").run().await.assert_gone(&["o.parquet", "x1/o.parquet"]);
}

#[tokio::test]
async fn b086_no_ending_of_a_name_hides_an_orphan() {
    let names = ["o.puffin", "o.stats", "o.orc", "o.avro", "o", "o.parquet.tmp", "o.PARQUET", "o.crc", "o.json", "o."];
    let paths: Vec<_> = ["data", "data/p=1", "metadata"]
        .iter()
        .flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")))
        .collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let outcome = Case::of(with_strays(&paths)).orphans("").run().await;
    outcome.assert_gone(&paths);
    outcome.assert_metrics(&[("deleted_files_count", 30)]);
    // And the same names are no orphans where the table names them.
    let mut history = history(2);
    history.append(days_ago(20), names.iter().map(|name| format!("data/p=1/live-{name}.x")));
    Case::of(history.build()).orphans("").run().await.assert_gone(&[]);
}

#[tokio::test]
async fn b087_folders_of_partition_fields_are_searched_and_other_hidden_ones_counted() {
    let mut table = with_strays(&[
        "data/_c2=x/o.parquet",
        "data/_c2_trunc=y/o.parquet",
        "data/.c3=z/_c2=x/o.parquet",
        "_c2=w/o.parquet",
        "data/_temporary/0/f",
        "data/.hive-staging/f",
        "data/_c2/f",
        "data/_c2=x/_SUCCESS",
        "data/_other=x/f",
    ]);
    table = table.partitioned_by("_c2");
    let field =
        |id, name: &str| PartitionField { id, name: name.into(), source_id: 100, transform: "truncate[2]".into() };
    // An older spec counts: its files may still be there.
    table.partition_specs[0].fields.push(field(1001, "_c2_trunc"));
    table
        .partition_specs
        .push(iceberg_maintenance::fixtures::PartitionSpec { id: 7, fields: vec![field(1002, ".c3")] });
    table
        .manifests
        .values_mut()
        .flat_map(|manifest| &mut manifest.entries)
        .for_each(|entry| entry.file.partition = vec![Some(1), Some(1)]);
    let outcome = Case::of(table).orphans("").run().await;
    let gone = ["data/.c3=z/_c2=x/o.parquet", "_c2=w/o.parquet", "data/_c2=x/o.parquet", "data/_c2_trunc=y/o.parquet"];
    let gone = gone.map(|path| path.strip_prefix("data/").map_or(path, |path| path.trim_end_matches(".parquet")));
    outcome.assert_gone(&gone);
    outcome.assert_metrics(&[("skipped_hidden_count", 5)]);
}

#[tokio::test]
async fn b089_files_outside_of_the_location_are_searched_only_when_named_and_exclusive() {
    for property in ["write.object-storage.path", "write.data.path", "write.folder-storage.path", "write.metadata.path"]
    {
        let build = move |root: &str| {
            let mut history = history(2);
            history.append(days_ago(20), [format!("{root}/hash-root/0101/a.parquet"), "b".to_string()]);
            let mut table = history.build();
            table.property("write.object-storage.enabled", "true").property(property, &format!("{root}/hash-root"));
            table.stray("data/o.parquet", days_ago(50));
            for number in 1..=3 {
                table.stray(&format!("{root}/hash-root/0{number}/o.parquet"), days_ago(50));
            }
            table
        };
        let outcome = Case::at(build).orphans("").run().await;
        outcome.assert_gone(&["o"]);
        outcome.assert_metrics(&[("unscanned_roots_count", 1), ("deleted_files_count", 1)]);
        assert!(outcome.notice("hash-root").contains(property), "{:?}", outcome.notices);
        let named = "table => {table}, location => '{root}/hash-root'";
        let call = |more| format!("CALL system.remove_orphan_files({named}{more}{{dry_run}})");
        let error = Case::at(build).statement(&call("")).refused().await;
        assert!(error.contains("exclusive_location"), "{error}");
        let outcome = Case::at(build).statement(&call(", exclusive_location => true")).run().await;
        outcome.assert_gone(&["hash-root/01/o.parquet", "hash-root/02/o.parquet", "hash-root/03/o.parquet"]);
    }
}

#[tokio::test]
async fn b092_only_a_true_gc_enabled_or_none_lets_anything_go() {
    let table = |value: Option<&str>| {
        let mut history = history(2);
        history.append(days_ago(30), ["a"]);
        history.overwrite(days_ago(20), ["a"], ["b"]);
        history.table_mut().stray("data/o.parquet", days_ago(50));
        value.map(|value| history.table_mut().properties.insert("gc.enabled".into(), value.into()));
        history.build()
    };
    for value in [None, Some("true"), Some("TRUE"), Some("True")] {
        Case::of(table(value)).orphans("").run().await.assert_gone(&["o"]);
        let outcome = Case::of(table(value)).expire("older_than => now()").run().await;
        outcome.assert_gone(&["a", "list 1", "manifest 1.0"]);
    }
    for value in ["false", "FALSE", "no", "", "1", " true ", "yes"] {
        for dry_run in ["", ", dry_run => true"] {
            for call in
                ["expire_snapshots(table => {table}, older_than => now()", "remove_orphan_files(table => {table}"]
            {
                let case = Case::of(table(Some(value))).statement(&format!("CALL system.{call}{dry_run}{{dry_run}})"));
                let error = case.refused().await;
                assert!(error.contains("gc.enabled"), "{value}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn b092_a_refusal_reads_nothing_but_metadata() {
    for procedure in ["remove_orphan_files", "expire_snapshots"] {
        let mut table = idle();
        table.property("gc.enabled", "false");
        let (place, session) = Case::of(table).in_store().now(in_ten_days()).in_place().await;
        let call = format!("CALL system.{procedure}({})", literal(&place.table()));
        let before = place.look().await;
        place.watched().take_requests();
        assert!(session.rows(&call).await.unwrap_err().contains("gc.enabled"));
        let requests = place.watched().take_requests();
        crate::support::unchanged("a refused call", &before, &place.look().await).unwrap();
        let is_metadata =
            |key: &str| key.ends_with(".metadata.json") || key.ends_with(".text") || key == "wh/t/metadata";
        assert!(requests.iter().all(|(_, key)| is_metadata(key)), "{requests:?}");
    }
}

#[tokio::test]
async fn b093_borrowed_files_outside_of_the_table_stay() {
    // What Spark's `snapshot` makes of a Hive table: its files are named, not copied.
    let build = |gc: &'static str| {
        move |root: &str| {
            let source = |name: &str| format!("{root}/hive/{name}.parquet");
            let mut history = history(2);
            history.table_mut().property("gc.enabled", gc);
            history.append(days_ago(30), [source("x"), source("y"), "data/a.parquet".into()]);
            history.delete_files(days_ago(20), [source("x"), "data/a.parquet".into()]);
            history.build()
        }
    };
    for call in [
        "expire_snapshots(table => {table}, older_than => now(){dry_run})",
        "remove_orphan_files(table => {table}{dry_run})",
    ] {
        let case = Case::at(build("false")).beside("hive/more.parquet", "x").statement(&format!("CALL system.{call}"));
        assert!(case.refused().await.contains("gc.enabled"));
    }
    let case = || Case::at(build("true")).beside("hive/more.parquet", "x");
    let outcome =
        case().without(Check::Spelling, "files outside have one spelling").expire("older_than => now()").run().await;
    outcome.assert_gone(&["a", "list 1", "manifest 1.0"]);
    outcome.assert_metrics(&[("skipped_external_count", 1), ("deleted_data_files_count", 1)]);
    case().without(Check::Spelling, "files outside have one spelling").orphans("").run().await.assert_gone(&["a"][..0]);
    let call = "CALL system.remove_orphan_files(table => {table}, location => '{root}/hive', exclusive_location => true{dry_run})";
    let error = case().statement(call).refused().await;
    assert!(error.contains("not inside the table's own folders"), "{error}");
}

#[tokio::test]
async fn b095_an_attempt_that_lost_goes_and_its_twin_stays() {
    let attempts = |attempt: u32| format!("00000-0-{attempt}0000000-0000-4000-8000-000000000000-00001");
    let (lost, won) = (attempts(1), attempts(2));
    let mut history = history(2);
    history.append(days_ago(30), [won.clone(), format!("data/p=1/{won}.parquet")]);
    history.append(days_ago(25), ["b"]);
    history.rewrite_manifests(days_ago(20));
    let mut table = history.build();
    // The same name in another folder is another file.
    for path in [format!("data/{lost}.parquet"), format!("data/p=1/{lost}.parquet"), format!("data/p=2/{won}.parquet")]
    {
        table.stray(&path, days_ago(100));
    }
    let orphans = Case::of(table.clone()).orphans("").run().await;
    orphans.assert_gone(&[&lost, &format!("p=1/{lost}"), &format!("p=2/{won}")]);
    // The rest of the report's sequence, in both orders: nothing that the table needs goes.
    let expired = Case::of(table.clone()).expire("older_than => now()").run().await;
    assert!(
        expired.gone.iter().all(|name| name.starts_with("list ") || name.starts_with("manifest ")),
        "{:?}",
        expired.gone
    );
    for (first, second) in [("expire_snapshots", "remove_orphan_files"), ("remove_orphan_files", "expire_snapshots")] {
        let older = |procedure: &str| if procedure == "expire_snapshots" { ", older_than => now()" } else { "" };
        let case = Case::of(table.clone()).set(&format!("CALL system.{first}(table => {{table}}{})", older(first)));
        let call = format!("CALL system.{second}(table => {{table}}{}{{dry_run}})", older(second));
        let outcome = case.statement(&call).run().await;
        assert_eq!(outcome.snapshots, [3].into());
        assert!(outcome.place.path().join(format!("t/data/p=1/{won}.parquet")).exists());
    }
}
