//! Family C, path identity: schemes, authorities, encodings, slashes.

use iceberg_maintenance::fixtures::{ContentFile, Table};

use crate::case::{Case, Check, days_ago, history, in_ten_days, list_of};

const AZURE: &str = "abfss://c@acct.dfs.core.windows.net";

/// One snapshot with these files.
fn table_of(files: &[&str]) -> Table {
    let mut history = history(2);
    history.append(days_ago(20), files.iter().copied());
    history.build()
}

/// A case in this bucket about a table with these live files, which exist, and an orphan `o`. Files of other addresses lie
/// where their path says.
fn in_bucket(bucket: &str, files: &[&str]) -> Case {
    let mut case = Case::of(table_of(files)).in_bucket(bucket).now(in_ten_days());
    for file in files.iter().filter(|file| file.contains("://")) {
        let (_, path) = file.split_once("/wh/").unwrap();
        case = case.beside(path, "x");
    }
    case.beside("t/data/o.parquet", "x")
}

#[tokio::test]
async fn b055_azures_hosts_and_schemes_name_one_container() {
    let live = [
        "a",
        "abfss://c@acct.blob.core.windows.net/wh/t/data/b.parquet",
        "wasbs://c@acct.blob.core.windows.net/wh/t/data/c.parquet",
        "wasb://c@acct.dfs.core.windows.net/wh/t/data/d.parquet",
        "abfs://c@ACCT.dfs.core.windows.net/wh/t/data/e.parquet",
    ];
    for bucket in [AZURE, "wasbs://c@acct.blob.core.windows.net", "abfss://c@acct.blob.core.windows.net"] {
        let case = in_bucket(bucket, &live).without(Check::SetDifference, "it compares spellings");
        let outcome = case.orphans("").run().await;
        outcome.assert_gone(&["o"]);
        outcome.assert_metrics(&[("skipped_prefix_mismatch_count", 0), ("active_files_count", 5)]);
    }
}

#[tokio::test]
async fn b055_azures_spellings_are_one_for_an_expiry_too() {
    let blob = "wasbs://c@acct.blob.core.windows.net/wh/t/data/a.parquet";
    let mut history = history(2);
    history.append(days_ago(30), ["a", "b"]);
    history.delete_files(days_ago(20), ["a", "b"]);
    history.append(days_ago(10), [blob]);
    let outcome = Case::of(history.build()).in_bucket(AZURE).expire("older_than => now()");
    // The standing check takes the two spellings of `a` for two files.
    let outcome = outcome.without(Check::SetDifference, "it compares spellings").run().await;
    assert!(!outcome.gone.contains("a") && outcome.gone.contains("b"), "{:?}", outcome.gone);
}

#[tokio::test]
async fn b055_an_unknown_mismatch_is_refused_with_its_pairs_and_the_argument_that_settles_it() {
    for (other, authority) in [
        ("abfss://c@other.dfs.core.windows.net", "c@other.dfs.core.windows.net"),
        ("abfss://c@acct.blob.private.example", "c@acct.blob.private.example"),
        ("abfss://d@acct.dfs.core.windows.net", "d@acct.dfs.core.windows.net"),
    ] {
        let live = format!("{other}/wh/t/data/b.parquet");
        let case = || in_bucket(AZURE, &["a", &live]);
        let error = case().orphans("").refused().await;
        for part in ["1 listed files", authority, "c@acct.dfs.core.windows.net", "equal_authorities"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let equal = format!("equal_authorities => MAP {{'{authority}': 'c@acct.dfs.core.windows.net'}}");
        case().orphans(&equal).run().await.assert_gone(&["o"]);
    }
}

#[tokio::test]
async fn b056_two_forms_of_an_azure_url_delete_nothing() {
    // The account's own address, with the container in the path: no rule says that it is the same place.
    let elsewhere = "https://acct.blob.core.windows.net/c/wh/t/data/a.parquet";
    let same_names = || Case::of(table_of(&[elsewhere])).in_bucket(AZURE).now(in_ten_days());
    let case = same_names().without(Check::SetDifference, "it compares spellings");
    let outcome = case.beside("t/data/a.parquet", "x").orphans("").run().await;
    outcome.assert_gone(&[]);
    outcome.assert_metrics(&[("skipped_prefix_mismatch_count", 1)]);
    let with_another = || same_names().beside("t/data/a.parquet", "x").beside("t/data/o.parquet", "x");
    let error = with_another().orphans("").refused().await;
    assert!(error.contains("none of the") && error.contains("live files"), "{error}");
}

#[tokio::test]
async fn b056_a_listing_without_a_single_live_file_is_refused_in_every_mode() {
    for mode in ["ERROR", "IGNORE", "DELETE"] {
        let elsewhere = "s3://other/warehouse/t/data/a.parquet";
        let case = Case::of(table_of(&[elsewhere])).in_store().now(in_ten_days()).beside("t/data/o.parquet", "x");
        let error = case.orphans(&format!("prefix_mismatch_mode => '{mode}'")).refused().await;
        assert!(error.contains("none of the"), "{mode}: {error}");
    }
}

#[tokio::test]
async fn b056_a_list_of_files_may_spell_the_container_in_any_known_way() {
    let rows = ["wasbs://c@acct.blob.core.windows.net", "abfss://c@acct.dfs.core.windows.net"].map(|bucket| {
        let row = |name| format!("SELECT '{bucket}/wh/t/data/{name}.parquet' AS p");
        format!("{} UNION ALL {}", row("a"), row("o"))
    });
    for rows in rows {
        let view = format!(
            "CREATE VIEW listed AS SELECT p AS file_path, TIMESTAMP '2020-01-01' AS last_modified FROM ({rows})"
        );
        let case = in_bucket(AZURE, &["a"]).set(&view).without(Check::SecondRun, "the list stays as it is");
        let case = case.without(Check::DryRun, "it names files as the list does");
        case.orphans("file_list_view => 'listed'").run().await.assert_gone(&["o"]);
    }
}

#[tokio::test]
async fn b059_equal_authorities_and_equal_schemes_each_have_their_own_effect() {
    let authorities = || in_bucket("hdfs://nn1", &["a", "hdfs://nn2/wh/t/data/b.parquet"]);
    for map in ["'nn2=>nn1'", "MAP {'nn2': 'nn1'}", "'nn1,nn2=>cluster'", "'NN2=>nn1'"] {
        authorities().orphans(&format!("equal_authorities => {map}")).run().await.assert_gone(&["o"]);
    }
    for other in ["", "equal_schemes => 'nn2=>nn1'", "equal_authorities => 'hdfs=>hdfs'"] {
        let error = authorities().orphans(other).refused().await;
        assert!(error.contains("(hdfs://nn2, hdfs://nn1)"), "{other}: {error}");
    }
    let live = ["a", "cos://bucket/wh/t/data/b.parquet", "oss://bucket/wh/t/data/c.parquet"];
    let schemes = || in_bucket("s3://bucket", &live);
    for map in ["'cos,oss=>s3'", "MAP {'cos, oss': 's3'}", "MAP {'cos': 's3', 'oss': 's3'}"] {
        schemes().orphans(&format!("equal_schemes => {map}")).run().await.assert_gone(&["o"]);
    }
    for other in ["equal_authorities => 'cos,oss=>s3'", "equal_schemes => 'cos=>s3'"] {
        let error = schemes().orphans(other).refused().await;
        assert!(error.contains("oss://bucket"), "{other}: {error}");
    }
}

#[tokio::test]
async fn b059_the_three_schemes_of_s3_are_one_without_any_argument() {
    let live = [
        "a",
        "s3a://bucket/wh/t/data/b.parquet",
        "s3n://bucket/wh/t/data/c.parquet",
        "S3://bucket/wh/t/data/d.parquet",
    ];
    for arguments in ["", "equal_schemes => 's3,s3a=>x'", "equal_schemes => 's3a,s3n=>s3'"] {
        let case = in_bucket("s3://bucket", &live).without(Check::SetDifference, "it compares spellings");
        case.orphans(arguments).run().await.assert_gone(&["o"]);
    }
}

#[tokio::test]
async fn b060_the_version_hint_stays_however_the_location_ends() {
    for ending in ["", "/"] {
        let table = move |root: &str| {
            let mut table = table_of(&["a"]);
            table.location = Some(format!("file:{root}/t{ending}"));
            table.stray("metadata/.version-hint.text.crc", days_ago(50)).stray("data/o.parquet", days_ago(50));
            table
        };
        let outcome = Case::at(table).orphans("").run().await;
        outcome.assert_gone(&["o"]);
        assert_eq!(outcome.table.numbers("snapshots", "snapshot-id"), [1]);
    }
    let outcome = in_bucket("s3://bucket", &["a"]).orphans("").run().await;
    outcome.assert_gone(&["o"]);
}

#[tokio::test]
async fn b060_checksums_of_live_files_stay_when_a_list_names_them() {
    let hidden = ["metadata/.version-hint.text.crc", "metadata/.v2.metadata.json.crc", "data/.a.parquet.crc"];
    let mut table = table_of(&["a"]);
    for path in hidden.into_iter().chain(["data/.o.parquet.crc", "data/o.parquet"]) {
        table.stray(path, days_ago(50));
    }
    let listed = ["data/a.parquet", "data/o.parquet", "data/.o.parquet.crc", "metadata/version-hint.text"];
    let listed: Vec<_> = listed.into_iter().chain(hidden).map(|path| format!("t/{path}")).collect();
    let listed: Vec<_> = listed.iter().map(String::as_str).collect();
    let case = Case::of(table).set(&list_of(&listed));
    let case = case.without(Check::SecondRun, "the list stays as it is");
    let outcome = case.orphans("file_list_view => 'listed'").run().await;
    outcome.assert_gone(&["o", "data/.o.parquet.crc"]);
    outcome.assert_metrics(&[("skipped_hidden_count", 3)]);
}

#[tokio::test]
async fn b062_each_mode_does_what_it_says_for_schemes_and_authorities() {
    for stranger in ["cos://bucket/wh/t/data/b.parquet", "s3://other/wh/t/data/b.parquet"] {
        let case = |mode: &str| {
            in_bucket("s3://bucket", &["a", stranger]).orphans(&format!("prefix_mismatch_mode => '{mode}'"))
        };
        let error = case("ERROR").refused().await;
        assert!(error.contains("1 listed files") && error.contains("b.parquet"), "{error}");
        let ignored = case("IGNORE").run().await;
        ignored.assert_gone(&["o"]);
        ignored.assert_metrics(&[("skipped_prefix_mismatch_count", 1)]);
        let deleted = case("DELETE").run().await;
        deleted.assert_gone(&["b", "o"]);
        assert!(deleted.files["b"].contains("prefix_mismatch_mode = DELETE"), "{:?}", deleted.files);
    }
}

#[tokio::test]
async fn b062_a_drive_letter_is_a_folder_and_no_scheme() {
    let mut history = history(2);
    history.append(days_ago(30), ["data/C:/a.parquet", "data/C:/b.parquet"]);
    history.delete_files(days_ago(20), ["data/C:/b.parquet"]);
    history.append(days_ago(10), ["c"]);
    history.table_mut().stray("data/C:/o.parquet", days_ago(50)).stray("data/D:/o.parquet", days_ago(50));
    let table = history.build();
    let orphans = Case::of(table.clone()).orphans("").run().await;
    orphans.assert_gone(&["C:/o", "D:/o"]);
    let expired = Case::of(table).expire("older_than => now()").run().await;
    assert!(expired.gone.contains("C:/b") && !expired.gone.contains("C:/a"), "{:?}", expired.gone);
}

#[tokio::test]
async fn b063_keys_are_compared_byte_by_byte() {
    let live = ["data/%2Ff.parquet", "data/%zz.parquet", "data/a%2Fb.parquet", "data/%41.parquet", "data/x y.parquet"];
    let dead = ["data/f.parquet", "data/%2ff.parquet", "data/%25zz.parquet", "data/a/b.parquet", "data/A.parquet"];
    let dead = [&dead[..], &["data/x%20y.parquet", "data/x+y.parquet"]].concat();
    let mut case = Case::of(table_of(&live)).in_store().now(in_ten_days());
    for path in &dead {
        case = case.beside(&format!("t/{path}"), "x");
    }
    let short: Vec<_> = dead.iter().map(|path| &path["data/".len()..path.len() - ".parquet".len()]).collect();
    case.orphans("").run().await.assert_gone(&short);

    let mut table = table_of(&live);
    dead.iter().for_each(|path| _ = table.stray(path, days_ago(50)));
    // On a disk, where a URL may stand for a path, names that are one once they are decoded are taken for one file.
    let case = Case::of(table).without(Check::SetDifference, "it compares spellings");
    case.orphans("").run().await.assert_gone(&["x+y"]);
}

/// A live key that the store's client has no name for, and the key that file-system rules would take it for.
const WITHOUT_A_NAME: [(&str, &str); 3] = [
    ("s3://bucket/wh/t/data/a//f.parquet", "t/data/a/f.parquet"),
    ("s3://bucket/wh/t/data/./f.parquet", "t/data/f.parquet"),
    ("s3://bucket/wh/t/data/x/../f.parquet", "t/data/f.parquet"),
];

#[tokio::test]
async fn b063_a_live_key_that_the_client_can_not_express_keeps_its_look_alike() {
    for (live, like) in WITHOUT_A_NAME {
        let case = Case::of(table_of(&["a", live])).in_store().now(in_ten_days());
        match live.contains("a//") {
            true => {
                let error = case.beside(like, "x").orphans("").refused().await;
                assert!(error.contains("a//f.parquet"), "{error}");
            }
            false => {
                let case = case.without(Check::SetDifference, "the look-alike stays in doubt");
                let outcome = case.beside(like, "x").beside("t/data/o.parquet", "x").orphans("").run().await;
                outcome.assert_gone(&["o"]);
                outcome.assert_metrics(&[("skipped_prefix_mismatch_count", 1)]);
            }
        }
    }
}

#[tokio::test]
async fn b063_an_expired_key_that_the_client_can_not_express_is_left_and_counted() {
    for (expired, like) in WITHOUT_A_NAME {
        let mut history = history(2);
        history.append(days_ago(30), [expired, "a"]);
        history.delete_files(days_ago(20), [expired]);
        let case = Case::of(history.build()).in_store().beside(like, "x");
        let outcome = case.expire("older_than => now()").run().await;
        outcome.assert_gone(&["list 1", "manifest 1.0"]);
        let skipped = outcome.metrics["skipped_unsupported_name_count"] + outcome.metrics["skipped_external_count"];
        assert_eq!(skipped, 1, "{expired}: {:?}", outcome.metrics);
    }
}

#[tokio::test]
async fn b063_on_a_local_disk_a_path_means_what_the_system_makes_of_it() {
    let build = |root: &str| {
        let mut history = history(2);
        let data = format!("{root}/t/data");
        let spelled =
            [format!("{data}//a.parquet"), format!("file:{data}/./b.parquet"), format!("file://{data}/x//c.parquet")];
        history.append(days_ago(20), spelled);
        history.table_mut().stray("data/o.parquet", days_ago(50));
        history.build()
    };
    Case::at(build).orphans("").run().await.assert_gone(&["o"]);
}

#[tokio::test]
async fn b065_paths_without_a_scheme_are_the_files_that_are_listed() {
    for spelling in ["", "file:", "file://", "FILE:", "file://localhost"] {
        let mut table = table_of(&["a", "data/p=1/b.parquet"]);
        table.spelling = spelling.into();
        table.stray("data/o.parquet", days_ago(50));
        let case = Case::of(table).without(Check::Spelling, "the case is about one spelling");
        let case = case.without(Check::DryRun, "it names files as the location does");
        let case = case.without(Check::SetDifference, "it compares spellings");
        case.orphans("").run().await.assert_gone(&["o"]);
    }
}

#[tokio::test]
async fn b066_a_location_that_ends_in_a_slash_finds_its_orphans_on_a_disk() {
    let build = |root: &str| {
        let mut table = table_of(&["a", "b", "c"]);
        table.location = Some(format!("file:{root}/t/"));
        table.stray("data/o.parquet", days_ago(50)).stray("data/x/o.parquet", days_ago(50));
        table
    };
    for location in ["{table}", "'{root}/t/'", "'{root}//t//'"] {
        let case =
            Case::at(build).statement(&format!("CALL system.remove_orphan_files(table => {location}{{dry_run}})"));
        case.run().await.assert_gone(&["o", "x/o"]);
    }
}

#[tokio::test]
async fn b066_doubled_slashes_in_a_location_on_a_disk_mean_nothing() {
    // The root has a hidden name: below the table's folder it would hide every file.
    for location in ["{root}//t", "file:{root}//t/", "file://{root}/./t", "file:///{root}//t//"] {
        let build = move |root: &str| {
            let mut table = table_of(&["a"]);
            table.location = Some(location.replace("{root}", root));
            table.stray("data/o.parquet", days_ago(50)).stray("data/_x/o.parquet", days_ago(50));
            table
        };
        for arguments in ["", "location => 'data'"] {
            let outcome = Case::at(build).below(".hidden").orphans(arguments).run().await;
            outcome.assert_gone(&["o"]);
            outcome.assert_metrics(&[("skipped_hidden_count", 1)]);
        }
    }
}

#[tokio::test]
async fn b066_doubled_slashes_in_keys_are_refused_by_name_where_the_client_has_none() {
    let mut history = history(2);
    history.append(days_ago(30), ["a", "b", "c"]);
    history.delete_files(days_ago(20), ["a"]);
    let mut table = history.build();
    table.location = Some("s3://bucket/wh/t/".into());
    for procedure in ["remove_orphan_files", "expire_snapshots"] {
        for location in ["s3://bucket/wh/t", "s3://bucket/wh/t/"] {
            let older = if procedure == "expire_snapshots" { ", older_than => now()" } else { "" };
            let call = format!("CALL system.{procedure}(table => '{location}'{older}{{dry_run}})");
            let case = Case::of(table.clone()).in_store().now(in_ten_days()).beside("t/data/o.parquet", "x");
            let error = case.statement(&call).refused().await;
            assert!(error.contains("//"), "{call}: {error}");
        }
    }
}

#[tokio::test]
async fn b066_a_location_that_ends_in_a_slash_whose_files_have_one_is_like_any_other() {
    let mut case_table = table_of(&["a", "b"]);
    case_table.location = None;
    let build = move |_: &str| {
        let mut table = case_table.clone();
        table.extra.insert("location".into(), "s3://bucket/wh/t/".into());
        table
    };
    let case = Case::at(build).in_store().now(in_ten_days()).beside("t/data/o.parquet", "x").beside("t2/data/p", "x");
    case.orphans("").run().await.assert_gone(&["o"]);
}

#[tokio::test]
async fn b069_percent_signs_and_colons_in_folders_mean_themselves() {
    let folders = ["data/h=2024-12-13 11%3A00%3A00", "data/h=2024-12-13 11:00:00", "data/h=2024-12-13+11%253A00"];
    for live in folders {
        let live_file = format!("{live}/a.parquet");
        let dead: Vec<_> = folders.into_iter().filter(|folder| *folder != live).collect();
        let gone: Vec<_> = dead.iter().map(|folder| format!("{}/a", &folder["data/".len()..])).collect();
        let gone: Vec<_> = gone.iter().map(String::as_str).collect();
        let mut table = table_of(&[&live_file]);
        let mut case = Case::of(table.clone()).in_store().now(in_ten_days());
        for folder in &dead {
            table.stray(&format!("{folder}/a.parquet"), days_ago(50));
            case = case.beside(&format!("t/{folder}/a.parquet"), "x");
        }
        case.orphans("").run().await.assert_gone(&gone);
        // On a disk, names that are one once they are decoded are taken for one file.
        let is_twin = |name: &str| !live.contains('+') && !name.contains('+');
        let gone: Vec<_> = gone.into_iter().filter(|name| !is_twin(name)).collect();
        let case = Case::of(table).without(Check::SetDifference, "it compares spellings");
        case.orphans("").run().await.assert_gone(&gone);
    }
}

#[tokio::test]
async fn b071_odd_fields_and_values_are_taken_literally() {
    let folders = ["a#b?c\"d=1", "a%23b%3Fc%22d=%F0%9F%98%81", "a#b?c\"d=😀", "a#b?c\"d=x+y=&z\\", "a#b?c\"d='q'"];
    let names: Vec<_> = folders.iter().map(|folder| format!("data/{folder}")).collect();
    let mut history = history(2);
    let table = history.table_mut();
    *table = table.clone().partitioned_by("a#b?c\"d");
    let file = |folder: &str, name: &str| ContentFile::data(&format!("{folder}/{name}.parquet")).partition([1]);
    history.append(days_ago(30), names.iter().flat_map(|folder| [file(folder, "live"), file(folder, "dead")]));
    history.delete_files(days_ago(20), names.iter().map(|folder| format!("{folder}/dead.parquet")));
    let table = history.build();
    let gone: Vec<_> = folders.iter().map(|folder| format!("{folder}/dead")).collect();
    let mut gone: Vec<_> = gone.iter().map(String::as_str).collect();
    let orphans: Vec<_> = folders.iter().map(|folder| format!("{folder}/o")).collect();
    let orphans: Vec<_> = orphans.iter().map(String::as_str).collect();

    let mut with_orphans = table.clone();
    names.iter().for_each(|folder| _ = with_orphans.stray(&format!("{folder}/o.parquet"), days_ago(50)));
    Case::of(with_orphans).orphans("").run().await.assert_gone(&orphans);
    let mut in_store = Case::of(table.clone()).in_store().now(in_ten_days());
    for folder in &names {
        in_store = in_store.beside(&format!("t/{folder}/o.parquet"), "x");
    }
    in_store.orphans("").run().await.assert_gone(&orphans);
    gone.extend(["list 1", "manifest 1.0"]);
    Case::of(table.clone()).expire("older_than => now()").run().await.assert_gone(&gone);
    Case::of(table).in_store().expire("older_than => now()").run().await.assert_gone(&gone);
}

#[tokio::test]
async fn b073_a_root_with_spaces_and_hashes_works_as_path_and_as_url() {
    let mut history = history(2);
    history.append(days_ago(30), ["a"]);
    history.overwrite(days_ago(20), ["a"], ["b"]);
    history.table_mut().stray("data/o.parquet", days_ago(50));
    let table = history.build();
    for folder in ["dir with spaces/ü#1", "100%/a+b?c", "%20"] {
        for location in ["{table}", "'{url}'", "'file:{root}/t'", "'file://{root}/t'"] {
            for (call, gone) in [
                ("remove_orphan_files(table => {location}{dry_run})", &["o"][..]),
                (
                    "expire_snapshots(table => {location}, older_than => now(){dry_run})",
                    &["a", "list 1", "manifest 1.0"],
                ),
            ] {
                let statement = format!("CALL system.{}", call.replace("{location}", location));
                let outcome = Case::of(table.clone()).below(folder).statement(&statement).run().await;
                outcome.assert_gone(gone);
            }
        }
    }
}

#[tokio::test]
async fn b074_a_relative_path_is_the_table_that_it_leads_to() {
    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    let mut table = table_of(&["a"]);
    table.stray("data/o.parquet", days_ago(50));
    for (before, behind) in [("", ""), ("./", "/"), ("x/../", ""), ("", "/../t"), ("", "//./")] {
        let location = format!("'{before}{}{{root}}/t{behind}'", up.trim_end_matches('/'));
        let case = Case::of(table.clone());
        let call = format!("CALL system.remove_orphan_files(table => {location}{{dry_run}})");
        case.statement(&call).run().await.assert_gone(&["o"]);
    }
}

#[test]
fn b074_the_command_line_takes_paths_relative_to_where_it_runs() {
    for (folder, argument) in
        [("", "./t"), ("", "t/"), ("", "t"), ("x", "../t"), ("t", "."), ("t/data", "../../x/../t")]
    {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("x")).unwrap();
        let mut table = table_of(&["a"]);
        table.stray("data/o.parquet", days_ago(50));
        table.write(root.path().join("t")).unwrap();
        let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"));
        tool.current_dir(root.path().join(folder)).args(["remove-orphan-files", argument, "--yes"]);
        let output = tool.output().unwrap();
        assert!(output.status.success(), "{argument}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!root.path().join("t/data/o.parquet").exists(), "{argument}");
        assert!(root.path().join("t/data/a.parquet").exists(), "{argument}");
    }
}

#[tokio::test]
async fn b074_a_relative_path_that_leads_nowhere_is_an_error() {
    for location in ["./no/such/t", "no/such/t/", "../no-such-t"] {
        let call = format!("CALL system.remove_orphan_files(table => '{location}'{{dry_run}})");
        let error = Case::of(table_of(&["a"])).statement(&call).refused().await;
        assert!(error.contains("no table") || error.contains("not") || error.contains("no metadata"), "{error}");
    }
}
