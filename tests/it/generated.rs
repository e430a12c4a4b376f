//! Large synthetic tables from `../shared/tools/gen_table.py`, judged by its own brute-force `oracle`.
//!
//! The script lies beside the clone and needs Python with fastavro. Without `../shared` the module does not apply.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{
    Session, deleted_nothing, disk, files, literal, python, python_has, same_numbers, shared, unchanged,
};
use crate::table::COUNTS;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// An expiry to check: the oracle's arguments and ours.
struct Expiry {
    /// How long before now.
    older_than_days: i64,
    retain_last: Option<i64>,
    /// False when no data file can go, so that live manifests need not be read.
    reads_every_manifest: bool,
}

impl Default for Expiry {
    fn default() -> Self {
        Self { older_than_days: 10, retain_last: None, reads_every_manifest: true }
    }
}

/// True when the script and its Python are there.
fn applies() -> bool {
    let script = shared("tools/gen_table.py");
    if !script.exists() {
        assert!(!shared("").exists(), "{} is missing although {} is there", script.display(), shared("").display());
        eprintln!("not run: {} does not exist beside this clone", shared("").display());
        return false;
    }
    python_has(&["fastavro"])
}

fn script(arguments: &[&str]) -> Value {
    let output = Command::new(python()).arg(shared("tools/gen_table.py")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "gen_table.py {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn oracle(table: &Path, expiry: &Expiry, now_ms: i64) -> Value {
    let older_than = (now_ms - expiry.older_than_days * DAY_MS).to_string();
    let retain_last = expiry.retain_last.unwrap_or(1).to_string();
    let table = table.to_str().unwrap();
    script(&["oracle", "--table", table, "--older-than-ms", &older_than, "--retain-last", &retain_last, "--lists"])
}

/// A relative path that Spark's rule hides.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with(['_', '.']))
}

/// Builds a table, and takes it through expiry and orphan removal in comparison with the oracle.
async fn check(expiry: Expiry, arguments: &[&str]) {
    if !applies() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = std::fs::canonicalize(folder.path()).unwrap().join("t");
    script(&[&["build", "--out", table.to_str().unwrap()], arguments].concat());
    orphans(&table, &expiry).await;
    expire(&table, &expiry).await;
}

async fn expire(table: &Path, expiry: &Expiry) {
    let now_ms = chrono::Utc::now().timestamp_millis();
    let expected = oracle(table, expiry, now_ms);
    let session = Session::new(Some(now_ms));
    let call = |more: &str| {
        let retain = expiry.retain_last.map(|n| format!(", retain_last => {n}")).unwrap_or_default();
        let older_than = now_ms - expiry.older_than_days * DAY_MS;
        let location = literal(table.to_str().unwrap());
        format!("CALL system.expire_snapshots(table => {location}, older_than => {older_than}{retain}{more})")
    };

    let before = disk(table);
    let dry = session.metrics(&call(", dry_run => true")).await.unwrap();
    unchanged("a dry run", &before, &disk(table)).unwrap();
    let real = session.metrics(&call("")).await.unwrap();
    let after = disk(table);
    same_numbers(&dry, &real).unwrap();

    for name in COUNTS {
        assert_eq!(real[name], expected[name].as_i64().unwrap(), "{name}: {real:?}");
    }
    assert_eq!(real["deleted_snapshots_count"], expected["expired"].as_i64().unwrap());
    assert_eq!(real["retained_snapshots_count"], expected["retained"].as_i64().unwrap());
    assert_eq!(real["removed_refs_count"], expected["refs_removed"].as_array().unwrap().len() as i64);
    if expiry.reads_every_manifest {
        assert_eq!(real["processed_manifests_count"], expected["distinct_manifests"].as_i64().unwrap());
    }
    let gone: BTreeSet<_> = files(&before).difference(&files(&after)).cloned().collect();
    assert_eq!(gone, relative(&expected["delete"], table));
    let left = oracle(table, expiry, now_ms);
    assert_eq!(left["snapshots"], expected["retained"]);
    assert_eq!(left["expired"], 0, "{left}");
    assert_eq!(left["delete"].as_array().unwrap().len(), 0);
    assert_eq!(left["retained_ids"], expected["retained_ids"]);
    deleted_nothing(&session.metrics(&call("")).await.unwrap()).unwrap();
    unchanged("a second run", &after, &disk(table)).unwrap();
}

async fn orphans(table: &Path, expiry: &Expiry) {
    let now_ms = chrono::Utc::now().timestamp_millis();
    let expected = oracle(table, expiry, now_ms);
    let session = Session::new(Some(now_ms));
    let call =
        |more: &str| format!("CALL system.remove_orphan_files(table => {}{more})", literal(table.to_str().unwrap()));
    let before = disk(table);
    let dry = session.metrics(&call(", dry_run => true")).await.unwrap();
    unchanged("a dry run", &before, &disk(table)).unwrap();
    let real = session.metrics(&call("")).await.unwrap();
    let after = disk(table);
    same_numbers(&dry, &real).unwrap();

    let mut orphans = relative(&expected["orphan_list"], table);
    let hidden = orphans.iter().filter(|file| is_hidden(file)).count();
    orphans.retain(|file| !is_hidden(file));
    let gone: BTreeSet<_> = files(&before).difference(&files(&after)).cloned().collect();
    assert_eq!(gone, orphans);
    assert_eq!(real["deleted_files_count"], orphans.len() as i64);
    assert_eq!(real["scanned_files_count"], expected["scanned_files"].as_i64().unwrap());
    assert_eq!(real["skipped_hidden_count"], hidden as i64);
    assert_eq!(real["processed_manifests_count"], expected["distinct_manifests"].as_i64().unwrap());
    assert_eq!(files(&after).difference(&files(&before)).count(), 0);
    deleted_nothing(&session.metrics(&call("")).await.unwrap()).unwrap();
    unchanged("a second run", &after, &disk(table)).unwrap();
}

/// Absolute paths as paths below the table.
fn relative(list: &Value, table: &Path) -> BTreeSet<String> {
    let prefix = format!("{}/", table.display());
    list.as_array().unwrap().iter().map(|path| path.as_str().unwrap().strip_prefix(&prefix).unwrap().into()).collect()
}

fn words(arguments: &str) -> Vec<&str> {
    arguments.split_whitespace().collect()
}

macro_rules! tables {
    ($($name:ident: $arguments:literal, $expiry:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                check($expiry, &words($arguments)).await;
            }
        )*
    };
}

tables! {
    a_thousand_snapshots:
        "--snapshots 1000 --entries 10 --merge-at 100 --overwrite-every 2 --orphans 200", Expiry::default();
    manifests_that_are_never_merged:
        "--snapshots 60 --manifests 3 --entries 20 --merge-at 0 --compact-every 25", Expiry::default();
    partitions_with_orphans_fresh_and_hidden:
        "--snapshots 40 --partitions 7 --overwrite-every 3 --orphans 120 --fresh-orphans 15 --hidden 16 --columns 6 --stats-columns 6",
        Expiry::default();
    v1_with_inline_manifests:
        "--format-version 1 --v1-embedded --snapshots 30 --overwrite-every 2 --merge-at 8 --orphans 20", Expiry::default();
    v1_with_manifest_lists:
        "--format-version 1 --snapshots 30 --overwrite-every 2 --compact-every 9", Expiry::default();
    v2_with_both_kinds_of_deletes:
        "--snapshots 50 --delete-every 2 --delete-entries 6 --equality-share 0.4 --compact-every 12 --orphans 20", Expiry::default();
    v3_with_deletion_vectors:
        "--format-version 3 --snapshots 50 --delete-every 2 --delete-entries 6 --compact-every 12 --orphans 20", Expiry::default();
    refs_forks_and_staged_snapshots:
        "--snapshots 60 --overwrite-every 2 --compact-every 20 --fork dev:10:5 --fork old:2:3 --staged 4 --tag t1:5 --tag gone:20:86400000 --branch b1:30:3 --branch b2:40:2:864000000:864000000",
        Expiry::default();
    retain_last_keeps_more_than_the_age_limit:
        "--snapshots 40 --overwrite-every 2 --span-days 60", Expiry { older_than_days: 0, retain_last: Some(12), ..Expiry::default() };
    statistics_of_both_kinds:
        "--snapshots 40 --overwrite-every 2 --stats-every 3 --partition-stats-every 4 --metadata-log 5 --orphans 20", Expiry::default();
    paths_that_are_in_several_manifests:
        "--snapshots 50 --entries 12 --dup-entries 0.4 --overwrite-every 2 --compact-every 17", Expiry::default();
    nothing_is_old_enough:
        "--snapshots 20 --overwrite-every 2", Expiry { older_than_days: 400, reads_every_manifest: false, ..Expiry::default() };
    uncompressed_manifests:
        "--snapshots 20 --overwrite-every 2 --avro-codec null", Expiry::default();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snappy_manifests() {
    if !applies() || !python_has(&["cramjam"]) {
        return;
    }
    check(Expiry::default(), &words("--snapshots 20 --overwrite-every 2 --avro-codec snappy")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zstandard_manifests() {
    let package = if script_runs("import compression.zstd") { "compression.zstd" } else { "backports.zstd" };
    if !applies() || !python_has(&[package]) {
        return;
    }
    check(Expiry::default(), &words("--snapshots 20 --overwrite-every 2 --avro-codec zstandard")).await;
}

/// Sets of files that don't fit into memory move to temporary files: plans are the same, whatever the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_memory_changes_no_plan() {
    if !applies() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = std::fs::canonicalize(folder.path()).unwrap().join("t");
    let history =
        words("--snapshots 40 --entries 1200 --overwrite-every 3 --merge-at 12 --orphans 3000 --dup-entries 0.1");
    script(&[&["build", "--out", table.to_str().unwrap()], history.as_slice()].concat());
    let now_ms = chrono::Utc::now().timestamp_millis();
    let location = literal(table.to_str().unwrap());
    let older_than = now_ms - 10 * DAY_MS;
    for call in [
        format!("CALL system.expire_snapshots(table => {location}, older_than => {older_than}, dry_run => true"),
        format!("CALL system.remove_orphan_files(table => {location}, dry_run => true"),
    ] {
        let plenty = Session::new(Some(now_ms));
        let little = Session::new(Some(now_ms));
        little.run("SET datafusion.runtime.memory_limit = '8M'").await.unwrap();
        let files = format!("{call}, output => 'files')");
        let (mut expected, mut found) = (plenty.rows(&files).await.unwrap(), little.rows(&files).await.unwrap());
        // Of the snapshots that had a file, one is named: the first whose list was read.
        expected.iter_mut().chain(&mut found).for_each(|row| drop(row.remove("snapshot_id")));
        assert!(expected.len() > 1000 && expected == found, "{call}: {} and {} rows", expected.len(), found.len());
        let numbers = |mut rows: crate::support::MetricRows| {
            rows.remove("elapsed_ms");
            rows
        };
        let metrics = format!("{call})");
        let (expected, found) = (plenty.metrics(&metrics).await.unwrap(), little.metrics(&metrics).await.unwrap());
        assert_eq!(numbers(expected), numbers(found), "{call}");
    }
}

fn script_runs(program: &str) -> bool {
    Command::new(python()).args(["-c", program]).output().is_ok_and(|output| output.status.success())
}
