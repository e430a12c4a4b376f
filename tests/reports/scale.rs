//! Family H: very large tables. What is counted is work: requests, files read, requests at once. Sizes are those of the reports
//! or smaller, as `README.md` says; times are measured in benches.

use std::collections::BTreeMap;
use std::time::Duration;

use iceberg_maintenance::fixtures::{History, Table};

use crate::case::{Case, Check, Requests, days_ago, history, in_ten_days, list_of};
use crate::place::Place;
use crate::support::Session;
use crate::watched::{Client, Kind, PAGE_KEYS};

const LARGE: &str = "the table is large; other cases show it";

/// So many deletes, and so many listings, run at once when nobody says otherwise.
const AT_ONCE: usize = 32;

/// A client that prints itself as that of S3 does, and deletes up to 1,000 keys with one request.
fn s3() -> Client {
    Client { name: "AmazonS3(bucket)", keys_per_delete: 1000, latency: |_| Duration::from_millis(5) }
}

/// A client that nobody knows.
fn unknown() -> Client {
    Client { latency: |_| Duration::from_millis(1), ..Client::default() }
}

fn with_client(client: Client) -> impl Fn(&Place) {
    move |place| place.watched().set_client(client)
}

/// How often each file was read whose key ends so.
fn reads(requests: &Requests, ending: &str) -> BTreeMap<String, usize> {
    let mut reads = BTreeMap::new();
    for (kind, key) in requests {
        if *kind == Kind::Get && key.ends_with(ending) {
            *reads.entry(key.clone()).or_default() += 1;
        }
    }
    reads
}

fn count(requests: &Requests, of: Kind) -> usize {
    requests.iter().filter(|(kind, _)| *kind == of).count()
}

/// Commits that change nothing: each has a list of its own and the manifests of its parent. They are minutes apart, old.
fn idle(history: &mut History, commits: i64) {
    let from_ms = history.table().last_updated_ms;
    (1..=commits).for_each(|n| _ = history.append(from_ms + n * 60_000, Vec::<String>::new()));
}

/// So many manifests of so many files each.
fn appends(history: &mut History, manifests: usize, files: usize) {
    let from_ms = history.table().last_updated_ms;
    for manifest in 1..=manifests {
        let names = (1..=files).map(|file| format!("m{manifest}-f{file}"));
        history.append(from_ms + manifest as i64 * 60_000, names);
    }
}

/// A table whose snapshots share 50 manifests; one data file and one manifest go with the old ones.
fn sharing(snapshots: i64) -> Table {
    let mut history = history(2);
    history.previous_versions(1);
    appends(&mut history, 50, 4);
    idle(&mut history, snapshots - 52);
    history.delete_files(days_ago(20), ["m1-f1"]);
    history.append(days_ago(1), ["last"]);
    history.build()
}

/// Nothing is read twice, and nothing is asked for its size.
#[track_caller]
fn each_is_read_once(requests: &Requests, files: usize, what: &str) {
    let reads = reads(requests, ".avro");
    let twice: Vec<_> = reads.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{what}: read more than once: {twice:?}");
    assert_eq!(reads.len(), files, "{what}: lists and manifests read");
    let heads = requests.iter().filter(|(kind, key)| *kind == Kind::Head && key.ends_with(".avro"));
    assert_eq!(heads.count(), 0, "{what}: looked at");
}

/// How many Avro rows a statement decoded.
async fn decoded_rows(case: Case, statement: &str) -> usize {
    let (_, session) = case.in_place().await;
    let rows = session.rows(&format!("EXPLAIN ANALYZE {statement}")).await.unwrap();
    let plan: Vec<_> = rows.iter().filter_map(|row| row["plan"].clone()).collect();
    let after =
        |name: &str| plan.iter().filter_map(|text| text.split_once(name)).map(|(_, rest)| rest.to_string()).next();
    let number = after("decoded_rows=").unwrap_or_else(|| panic!("no decoded rows in {plan:#?}"));
    number.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

const EXPIRE: &str = "CALL system.expire_snapshots(table => 's3://bucket/wh/t', dry_run => true";
const ORPHANS: &str = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t', dry_run => true";

#[tokio::test(flavor = "multi_thread")]
async fn b144_rewritten_manifests_are_read_once_and_the_old_ones_too() {
    let mut history = history(2);
    history.previous_versions(1);
    appends(&mut history, 40, 25);
    idle(&mut history, 100);
    history.rewrite_manifests(history.table().last_updated_ms + 60_000);
    idle(&mut history, 100);
    history.replace_files(days_ago(20), ["m1-f1", "m2-f2"], ["compacted"]);
    history.append(days_ago(1), ["last"]);
    let (snapshots, manifests) = (40 + 100 + 1 + 100 + 2, 40 + 1 + 2 + 1);
    let table = history.build();
    assert_eq!((table.snapshots.len(), table.manifests.len()), (snapshots, manifests));
    let case = || Case::of(table.clone()).in_store().now(in_ten_days()).without(Check::Spelling, LARGE);
    let outcome = case().expire("older_than => TIMESTAMP '2025-12-20'").run().await;
    outcome.assert_metrics(&[
        ("deleted_snapshots_count", snapshots as i64 - 1),
        ("deleted_data_files_count", 2),
        ("deleted_manifest_files_count", 41),
        ("deleted_manifest_lists_count", snapshots as i64 - 1),
    ]);
    each_is_read_once(&outcome.dry_requests, snapshots + manifests, "a dry run of an expiry");
    each_is_read_once(&outcome.requests, snapshots + manifests, "an expiry");
    let outcome = case().beside("t/data/o.parquet", "x").orphans("").run().await;
    outcome.assert_gone(&["o"]);
    each_is_read_once(&outcome.requests, snapshots + manifests, "a search for orphans");
}

#[tokio::test(flavor = "multi_thread")]
async fn b144_what_is_decoded_grows_with_distinct_manifests_and_not_with_snapshots() {
    for statement in [EXPIRE, ORPHANS] {
        let statement = format!("{statement})");
        let mut decoded = vec![];
        for snapshots in [100, 400] {
            let case = Case::of(sharing(snapshots)).in_store().now(in_ten_days());
            decoded.push(decoded_rows(case.set("SET datafusion.execution.target_partitions = 2"), &statement).await);
        }
        // 52 manifests have 205 rows. Each stays a row of the lists of each side, for each of two streams that read lists.
        let most = 52 * 2 * 2 + 205;
        assert!(decoded.iter().all(|rows| (52..=most).contains(rows)), "{statement}: {decoded:?}, {most} at most");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b147_a_manifest_that_many_snapshots_share_is_read_once_by_both_procedures() {
    let case = || Case::of(sharing(300)).in_store().now(in_ten_days()).without(Check::Spelling, LARGE);
    let outcome = case().expire("older_than => TIMESTAMP '2025-12-20'").run().await;
    outcome.assert_metrics(&[
        ("deleted_snapshots_count", 299),
        ("deleted_manifest_lists_count", 299),
        ("deleted_data_files_count", 1),
        ("deleted_manifest_files_count", 1),
        ("processed_manifests_count", 52),
    ]);
    each_is_read_once(&outcome.dry_requests, 300 + 52, "a dry run of an expiry");
    each_is_read_once(&outcome.requests, 300 + 52, "an expiry");
    let outcome = case().beside("t/data/o.parquet", "x").orphans("").run().await;
    outcome.assert_gone(&["o"]);
    each_is_read_once(&outcome.dry_requests, 300 + 52, "a dry run of a search for orphans");
    each_is_read_once(&outcome.requests, 300 + 52, "a search for orphans");
}

#[tokio::test(flavor = "multi_thread")]
async fn b147_no_argument_no_output_and_no_limit_makes_a_second_reading_of_a_manifest() {
    let mut table = sharing(80);
    table.stray("data/o.parquet", days_ago(50));
    let paths = ["t/data/o.parquet", "t/data/m2-f1.parquet"];
    let case = Case::of(table).in_store().now(in_ten_days()).set(&list_of(&paths));
    let (place, session) = case.in_place().await;
    let expiries = [
        "",
        "clean_expired_metadata => true",
        "delete_files => false",
        "delete_external_files => true",
        "max_delete_count => 1000",
        "snapshot_ids => [1, 2, 3]",
        "retain_last => 1, older_than => now()",
        "output => 'files'",
        "output => 'snapshots'",
        "output => 'columns'",
    ];
    let orphans = [
        "",
        "location => 'data'",
        "include_foreign => true",
        "allow_missing_files => true",
        "file_list_view => 'listed'",
        "max_delete_fraction => 0.5",
        "prefix_mismatch_mode => 'IGNORE'",
        "output => 'files'",
        "output => 'columns'",
    ];
    let calls: Vec<_> =
        expiries.map(|more| (EXPIRE, more)).into_iter().chain(orphans.map(|more| (ORPHANS, more))).collect();
    for setting in [
        "SET datafusion.execution.target_partitions = 1",
        "SET datafusion.execution.target_partitions = 7",
        "SET datafusion.execution.batch_size = 3",
        "SET iceberg_maintenance.max_concurrent_reads = 1",
        "SET iceberg_maintenance.read_ahead_bytes = 1",
        "SET datafusion.runtime.memory_limit = '16M'",
    ] {
        session.run(setting).await.unwrap();
        for (call, more) in &calls {
            let comma = if more.is_empty() { "" } else { ", " };
            let call = format!("{call}{comma}{more})");
            place.watched().take_requests();
            session.run(&call).await.unwrap_or_else(|error| panic!("{call}: {error}"));
            let reads = reads(&place.watched().take_requests(), ".avro");
            assert!(reads.values().all(|times| *times == 1), "{setting}; {call}: {reads:?}");
            assert!(reads.len() > 2, "{setting}; {call}: {reads:?}");
        }
    }
}

/// A table of which every tenth of these files is live, and the others are orphans. Returns how many these are.
async fn of_files(client: Client, paths: &[String]) -> (Place, Session, usize) {
    let mut history = history(2);
    history.append(days_ago(20), paths.iter().step_by(10).cloned());
    let case = Case::of(history.build()).in_store().now(in_ten_days()).prepared_by(with_client(client));
    let (place, session) = case.in_place().await;
    let orphans: Vec<_> = paths.iter().enumerate().filter(|(number, _)| number % 10 != 0).collect();
    for (_, path) in &orphans {
        place.add(&format!("t/{path}"), b"x".to_vec()).await;
    }
    (place, session, orphans.len())
}

/// Keys below `data` in layouts that have tempted tools to list folder by folder, or one after the other.
fn layouts() -> Vec<(&'static str, Vec<String>)> {
    let many = (0..3000).flat_map(|folder| (0..3).map(move |n| format!("data/p={folder:05}/{n}.parquet")));
    let some = (0..100).flat_map(|folder| (0..90).map(move |n| format!("data/p={folder:02}/{n}.parquet")));
    let deep = (0..9000).map(|n| format!("data/{}/{}/{}/{n}.parquet", n % 3, n % 17, n % 31));
    let flat = (0..9000).map(|n| format!("data/{n:06}.parquet"));
    let uneven = (0..90).map(|n| format!("data/p={n:02}/a.parquet"));
    let uneven = uneven.chain((0..9000).map(|n| format!("data/p=05/{n}.parquet")));
    vec![
        ("many folders", many.collect()),
        ("some folders", some.collect()),
        ("deep folders", deep.collect()),
        ("one folder", flat.collect()),
        ("one large folder beside small ones", uneven.collect()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn b148_a_listing_takes_about_as_many_requests_as_it_has_pages_and_several_at_once() {
    for (layout, paths) in layouts() {
        let (place, session, orphans) = of_files(s3(), &paths).await;
        let metrics = session.metrics(&format!("{ORPHANS})")).await.unwrap();
        assert_eq!(metrics["deleted_files_count"], orphans as i64, "{layout}");
        let requests = count(&place.watched().take_requests(), Kind::List);
        place.assert_whole().await;
        // Each range that is listed at once may end in the middle of a page, and the table was found by a listing.
        let most = place.watched().keys().await.len() / PAGE_KEYS + 1 + AT_ONCE + 1;
        assert!(requests <= most, "{layout}: {requests} requests, {most} at most");
        let at_once = place.watched().most_at_once(Kind::List);
        assert!((2..=AT_ONCE).contains(&at_once), "{layout}: {at_once} at once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b148_a_client_that_may_have_any_order_is_asked_for_some_folders_at_once_and_never_for_each() {
    for (layout, paths) in layouts() {
        let (place, session, orphans) = of_files(unknown(), &paths).await;
        let metrics = session.metrics(&format!("{ORPHANS})")).await.unwrap();
        assert_eq!(metrics["deleted_files_count"], orphans as i64, "{layout}");
        let requests = count(&place.watched().take_requests(), Kind::List);
        place.assert_whole().await;
        // Up to eight folders for each listing at once.
        let most = place.watched().keys().await.len() / PAGE_KEYS + 1 + 8 * AT_ONCE + 2;
        assert!(requests <= most, "{layout}: {requests} requests, {most} at most");
        let at_once = place.watched().most_at_once(Kind::List);
        let least = if ["some folders", "deep folders"].contains(&layout) { 2 } else { 1 };
        assert!((least..=AT_ONCE).contains(&at_once), "{layout}: {at_once} at once");
    }
}

/// An expiry that takes so many data files away.
fn expiring(files: usize) -> Case {
    let mut history = history(2);
    let names: Vec<_> = (0..files).map(|file| format!("f{file:05}")).collect();
    history.append(days_ago(30), names.clone());
    history.delete_files(days_ago(20), names);
    history.append(days_ago(1), ["last"]);
    let case = Case::of(history.build()).in_store().now(in_ten_days()).without(Check::Spelling, LARGE);
    case.expire("older_than => TIMESTAMP '2025-12-20'")
}

/// So many orphans.
fn orphaned(files: usize) -> Case {
    let mut history = history(2);
    history.append(days_ago(1), ["last"]);
    let case = Case::of(history.build()).in_store().now(in_ten_days()).without(Check::Spelling, LARGE).orphans("");
    (0..files).fold(case, |case, file| case.beside(&format!("t/data/f{file:05}.parquet"), "x"))
}

#[tokio::test(flavor = "multi_thread")]
async fn b150_as_many_files_go_with_one_request_as_the_client_can_take() {
    let azure = Client { name: "MicrosoftAzure { account: a, container: c }", keys_per_delete: 256, ..s3() };
    // What a wrapper for metrics or limits prints itself as.
    let wrapped = Client { name: "LimitStore(4, AmazonS3(bucket))", ..s3() };
    for (client, what, case, files) in [
        (s3(), "an expiry", expiring(1100), 1104),
        (s3(), "orphans", orphaned(1100), 1100),
        (wrapped, "orphans", orphaned(1100), 1100),
        (azure, "orphans", orphaned(1100), 1100),
    ] {
        let outcome = case.prepared_by(with_client(client)).run().await;
        outcome.assert_metrics(&[("deleted_files_count", files as i64), ("failed_deletions_count", 0)]);
        let mut deletes = outcome.place.watched().take_deletes();
        // Before the first commit to a store an object of our own is tried, and removed again.
        let probes = count(&outcome.requests, Kind::Delete) - files;
        assert_eq!(probes, usize::from(what == "an expiry"));
        deletes.drain(..probes);
        assert_eq!(deletes.iter().sum::<usize>(), files);
        let batches = files.div_ceil(1000);
        let most = batches * 1000_usize.div_ceil(client.keys_per_delete);
        assert!(deletes.len() <= most, "{what}, {}: {deletes:?}", client.name);
        // A look at the newest metadata comes before each batch; nothing is asked for a file.
        let heads = count(&outcome.requests, Kind::Head);
        assert!(heads <= 10 + 5 * batches, "{what}, {}: {heads} looks", client.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b150_deletes_that_take_their_time_run_at_once() {
    let slow = Client { latency: |_| Duration::from_millis(30), ..unknown() };
    let outcome = orphaned(300).prepared_by(with_client(slow)).run().await;
    outcome.assert_metrics(&[("deleted_files_count", 300)]);
    assert_eq!(outcome.place.watched().most_at_once(Kind::Delete), AT_ONCE);
}

#[tokio::test(flavor = "multi_thread")]
async fn b152_deletes_one_by_one_are_bounded_by_a_setting_with_a_safe_default() {
    // Batches of 1,000 share the bound.
    for (what, case) in [("an expiry", expiring(1200)), ("orphans", orphaned(1200))] {
        let outcome = case.prepared_by(with_client(unknown())).run().await;
        outcome.assert_metrics(&[("failed_deletions_count", 0)]);
        assert_eq!(outcome.place.watched().most_at_once(Kind::Delete), AT_ONCE, "{what}");
    }
    for (setting, argument, most) in [
        ("SELECT 1", "max_concurrent_deletes => 3", 3),
        ("SELECT 1", "delete_parallelism => 1", 1),
        ("SET iceberg_maintenance.max_concurrent_deletes = 5", "", 5),
        ("SET iceberg_maintenance.max_concurrent_deletes = 5", "max_concurrent_deletes => 7", 7),
    ] {
        let outcome = orphaned(200).set(setting).orphans(argument).prepared_by(with_client(unknown())).run().await;
        assert_eq!(outcome.place.watched().most_at_once(Kind::Delete), most, "{setting}, {argument}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b152_every_other_kind_of_request_is_bounded_too_and_no_bound_is_none() {
    // Empty objects are looked at before they count as files.
    let mut case = orphaned(0).prepared_by(with_client(unknown()));
    case = (0..200).fold(case, |case, file| case.beside(&format!("t/data/empty{file:05}.parquet"), ""));
    let outcome = case.run().await;
    assert_eq!(outcome.gone.len(), 200);
    assert!((2..=AT_ONCE).contains(&outcome.place.watched().most_at_once(Kind::Head)));
    for (most, settings) in [(64, None), (3, Some("SET iceberg_maintenance.max_concurrent_reads = 3"))] {
        let case = Case::of(sharing(120)).in_store().now(in_ten_days()).prepared_by(with_client(unknown()));
        let (place, session) = case.in_place().await;
        session.run(settings.unwrap_or("SELECT 1")).await.unwrap();
        for call in [EXPIRE, ORPHANS] {
            session.run(&format!("{call})")).await.unwrap();
            let at_once = place.watched().most_at_once(Kind::Get);
            assert!((2..=most).contains(&at_once), "{at_once} reads at once, {most} at most");
        }
    }
    for (kind, option) in [
        (Kind::List, "max_concurrent_listings"),
        (Kind::Delete, "max_concurrent_deletes"),
        (Kind::Get, "max_concurrent_reads"),
    ] {
        let paths: Vec<_> = (0..4000).map(|n| format!("data/p={:02}/{n}.parquet", n % 40)).collect();
        let (place, session, _) = of_files(Client { keys_per_delete: 1, ..s3() }, &paths).await;
        session.run(&format!("SET iceberg_maintenance.{option} = 2")).await.unwrap();
        session.run(&format!("{ORPHANS})")).await.unwrap();
        assert!(place.watched().most_at_once(kind) <= 2, "{option}: {}", place.watched().most_at_once(kind));
        let case = orphaned(1).set(&format!("SET iceberg_maintenance.{option} = 0"));
        let error = case.refused().await;
        assert!(error.contains(&format!("iceberg_maintenance.{option} is 0")), "{error}");
    }
    for call in [orphaned(1).orphans("max_concurrent_deletes => 0"), expiring(1).expire("max_concurrent_deletes => 0")]
    {
        let error = call.refused().await;
        assert!(error.contains("max_concurrent_deletes"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b156_the_metadata_of_many_snapshots_is_read_once_for_each_version() {
    let mut history = history(2);
    history.previous_versions(1);
    idle(&mut history, 5000);
    history.append(days_ago(1), ["last"]);
    let table = history.build();
    let read = |versions: &[u32]| -> BTreeMap<String, usize> {
        versions.iter().map(|version| (format!("wh/t/metadata/v{version}.metadata.json"), 1)).collect()
    };
    let (base, next) = (table.version, table.version + 1);
    let case = || Case::of(table.clone()).in_store().now(in_ten_days()).without(Check::Spelling, LARGE);
    let outcome = case().expire("older_than => TIMESTAMP '2025-12-20'").run().await;
    outcome.assert_metrics(&[("deleted_snapshots_count", 5000), ("deleted_manifest_lists_count", 5000)]);
    assert_eq!(reads(&outcome.dry_requests, ".json"), read(&[base]), "a dry run of an expiry");
    // What was committed is read back. The six looks at the table before the batches of deletes read nothing.
    assert_eq!(reads(&outcome.requests, ".json"), read(&[base, next]), "an expiry");
    let (place, session) = case().beside("t/data/o.parquet", "x").in_place().await;
    for call in [ORPHANS.to_string(), ORPHANS.replace(", dry_run => true", "")] {
        place.watched().take_requests();
        assert_eq!(session.metrics(&format!("{call})")).await.unwrap()["deleted_files_count"], 1);
        assert_eq!(reads(&place.watched().take_requests(), ".json"), read(&[base]), "{call}");
    }
}
