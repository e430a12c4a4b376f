//! How metadata tables are read: only what conditions and limits leave, in several partitions, each file once.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect, execute_stream_partitioned};
use futures::TryStreamExt;
use iceberg_maintenance::fixtures::{History, Table as Described};
use url::Url;

use crate::support::Session;
use crate::watched::{Kind, WatchedStore};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const LOCATION: &str = "s3://bucket/wh/t";

/// Numbers that are the same in every run of the test.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A history of some operations of all kinds.
fn random_history(numbers: &mut Numbers) -> History {
    let table = Described { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Described::new(2) };
    let mut history = History::new(table.partitioned_by("region"));
    let mut live: Vec<String> = vec![];
    for day in 1..=(3 + numbers.below(6) as i64) {
        let at = BEGIN_MS + day * DAY_MS;
        match numbers.below(6) {
            1 if !live.is_empty() => {
                _ = history.position_deletes(at, &format!("p{day}"), numbers.one_of::<String>(&live))
            }
            2 => _ = history.equality_deletes(at, &format!("e{day}")),
            3 if live.len() > 1 => {
                let gone = live.swap_remove(numbers.below(live.len()));
                history.delete_files(at, [gone]);
            }
            4 if !live.is_empty() => _ = history.rewrite_manifests(at),
            _ => {
                let new: Vec<String> = (0..1 + numbers.below(3)).map(|file| format!("d{day}{file}")).collect();
                history.append(at, new.clone());
                live.extend(new);
            }
        }
    }
    history
}

/// A condition on what is known before manifests are read, and on what isn't.
fn random_condition(numbers: &mut Numbers, atoms: &[&str], depth: usize) -> String {
    match numbers.below(if depth == 0 { 1 } else { 5 }) {
        1 => format!("NOT ({})", random_condition(numbers, atoms, depth - 1)),
        operator @ 2.. => {
            let (one, other) =
                (random_condition(numbers, atoms, depth - 1), random_condition(numbers, atoms, depth - 1));
            format!("({one} {} {other})", if operator == 2 { "OR" } else { "AND" })
        }
        _ => {
            let (value, other) = (numbers.below(4), numbers.below(4));
            numbers.one_of(atoms).replace("VALUE", &value.to_string()).replace("OTHER", &other.to_string())
        }
    }
}

const OF_CONTENT: [&str; 8] = [
    "CONTENT = VALUE",
    "CONTENT <> VALUE",
    "CONTENT IN (VALUE, OTHER)",
    "CONTENT BETWEEN VALUE AND OTHER",
    "10 / CONTENT > VALUE",
    "CONTENT IS NOT NULL",
    "CAST(CONTENT AS TEXT) = 'VALUE'",
    "ROWS > 5",
];

const OF_STATUS: [&str; 6] = [
    "status = VALUE",
    "status <> VALUE",
    "status + CONTENT > VALUE",
    "CASE WHEN status = VALUE THEN CONTENT = OTHER ELSE CONTENT < OTHER END",
    "nullif(status, VALUE) IS NULL",
    "snapshot_id IS NOT NULL",
];

const OF_REFERENCE: [&str; 5] = [
    "reference_snapshot_id = VALUE",
    "reference_snapshot_id IN (VALUE, OTHER)",
    "reference_snapshot_id - VALUE > OTHER",
    "content = VALUE",
    "10 / (reference_snapshot_id - VALUE) > OTHER",
];

/// Sorted rows as text, or that there was an error.
async fn rows(session: &Session, sql: &str) -> Result<Vec<String>, ()> {
    let batches = session.run(sql).await.map_err(|_| ())?;
    Ok(sorted(&batches))
}

fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// The same condition on a table without pruning is the judge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_leave_the_rows_that_they_leave_of_all_rows() {
    let of_files = |atom: &str| atom.replace("CONTENT", "content").replace("ROWS", "record_count");
    let of_entries =
        |atom: &str| atom.replace("CONTENT", "data_file['content']").replace("ROWS", "data_file['record_count']");
    let files = OF_CONTENT.map(of_files);
    let entries: Vec<String> = OF_CONTENT.iter().chain(&OF_STATUS).map(|atom| of_entries(atom)).collect();
    let references = OF_REFERENCE.map(str::to_string);
    let tables: [(&str, &[String]); 5] = [
        ("iceberg_files", &files),
        ("iceberg_all_files", &files),
        ("iceberg_entries", &entries),
        ("iceberg_all_entries", &entries),
        ("iceberg_all_manifests", &references),
    ];
    let mut numbers = Numbers(7);
    let (mut compared, mut with_rows, mut pruned) = (0, 0, 0);
    for _ in 0..12 {
        let bucket = Bucket::new(random_history(&mut numbers)).await;
        for (function, atoms) in tables {
            let atoms: Vec<&str> = atoms.iter().map(String::as_str).collect();
            bucket
                .session
                .run(&format!("CREATE OR REPLACE TABLE judge AS SELECT * FROM {function}('{LOCATION}')"))
                .await
                .unwrap();
            for _ in 0..12 {
                let condition = random_condition(&mut numbers, &atoms, 2);
                let expected = rows(&bucket.session, &format!("SELECT * FROM judge WHERE {condition}")).await;
                bucket.store.take_requests();
                let sql = format!("SELECT * FROM {function}('{LOCATION}') WHERE {condition}");
                let found = rows(&bucket.session, &sql).await;
                // Where one row is an error, whether it is met depends on the order of conditions.
                if let (Ok(expected), Ok(found)) = (&expected, &found) {
                    assert_eq!(found, expected, "{sql}");
                    compared += 1;
                    with_rows += usize::from(found.len() > 4);
                    pruned += usize::from(bucket.reads()[2] < bucket.manifests_of(function).await);
                }
            }
        }
    }
    assert!(
        compared > 500 && with_rows > 200 && pruned > 150,
        "{compared} compared, {with_rows} with rows, {pruned} pruned"
    );
}

/// A table in a bucket, and a session that counts what is asked of it.
struct Bucket {
    store: WatchedStore,
    session: Session,
}

impl Bucket {
    async fn new(history: History) -> Self {
        let store = WatchedStore::with_table(&history.build()).await;
        let session = Session::new(None);
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
        Self { store, session }
    }

    /// How often metadata files, manifest lists and manifests were read since requests were taken last.
    fn reads(&self) -> [usize; 3] {
        let mut reads = [0; 3];
        for (kind, key) in self.store.take_requests() {
            match kind {
                Kind::Get if key.ends_with(".metadata.json") => reads[0] += 1,
                Kind::Get if key.contains("/snap-") => reads[1] += 1,
                Kind::Get if key.ends_with(".avro") => reads[2] += 1,
                _ => {}
            }
        }
        reads
    }

    async fn reads_of(&self, sql: &str) -> [usize; 3] {
        self.store.take_requests();
        self.session.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        self.reads()
    }

    /// How many manifests a table has its rows from.
    async fn manifests_of(&self, function: &str) -> usize {
        let lists = if function.contains("all_") { "iceberg_all_manifests" } else { "iceberg_manifests" };
        let sql = format!("SELECT count(DISTINCT path) AS n FROM {lists}('{LOCATION}')");
        let rows = self.session.rows(&sql).await.unwrap();
        if function == "iceberg_all_manifests" { 0 } else { rows[0]["n"].as_deref().unwrap().parse().unwrap() }
    }

    async fn plan(&self, sql: &str) -> Arc<dyn ExecutionPlan> {
        self.session.context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
    }
}

/// Four manifests of data files with one file each, one of which was removed since, and two of delete files.
fn history() -> History {
    let table = Described { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Described::new(2) };
    let mut history = History::new(table.partitioned_by("region"));
    for day in 1..=4 {
        history.append(BEGIN_MS + day * DAY_MS, [format!("a{day}")]);
    }
    history.position_deletes(BEGIN_MS + 5 * DAY_MS, "p", "a1");
    history.equality_deletes(BEGIN_MS + 6 * DAY_MS, "e");
    history.delete_files(BEGIN_MS + 7 * DAY_MS, ["a2"]);
    history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_without_a_row_that_is_wanted_are_not_read() {
    let bucket = Bucket::new(history()).await;
    for (from, reads) in [
        // The manifest that only says that a2 was removed has no live file.
        ("iceberg_files('T')", [1, 1, 5]),
        ("iceberg_files('T') WHERE content = 0", [1, 1, 3]),
        ("iceberg_files('T') WHERE content IN (1, 2) AND record_count > 0", [1, 1, 2]),
        ("iceberg_files('T') WHERE content > 2", [1, 1, 0]),
        ("iceberg_files('T') AS f WHERE f.content <> 0", [1, 1, 2]),
        ("iceberg_files('T') WHERE content = 0 OR record_count > 0", [1, 1, 5]),
        ("iceberg_files('T') WHERE content + random() >= 1", [1, 1, 5]),
        ("iceberg_partitions('T')", [1, 1, 5]),
        ("iceberg_entries('T')", [1, 1, 6]),
        ("iceberg_entries('T') WHERE status = 2", [1, 1, 1]),
        ("iceberg_entries('T') WHERE status <> 2 AND data_file['content'] = 0", [1, 1, 3]),
        ("iceberg_all_entries('T') WHERE data_file['content'] = 1", [1, 7, 2]),
        ("iceberg_all_manifests('T') WHERE reference_snapshot_id <= 2", [1, 2, 0]),
        // As many manifests as have so many rows.
        ("iceberg_files('T') LIMIT 1", [1, 1, 1]),
        ("iceberg_files('T') LIMIT 3", [1, 1, 3]),
        ("iceberg_all_files('T') LIMIT 0", [1, 0, 0]),
        ("iceberg_partitions('T') LIMIT 1", [1, 1, 5]),
    ] {
        let sql = format!("SELECT * FROM {}", from.replace("'T'", &format!("'{LOCATION}'")));
        assert_eq!(bucket.reads_of(&sql).await, reads, "{sql}");
    }
    // Those that a limit needs are counted behind a condition.
    let rows = format!("SELECT * FROM iceberg_files('{LOCATION}') WHERE record_count = 1 LIMIT 2");
    assert_eq!(bucket.session.rows(&rows).await.unwrap().len(), 2);
    let plan = bucket.plan(&format!("SELECT count(*) FROM iceberg_files('{LOCATION}') WHERE content = 0")).await;
    collect(Arc::clone(&plan), bucket.session.context.task_ctx()).await.unwrap();
    let scan = scan_of(&plan);
    let metric = |name: &str| scan.metrics().unwrap().sum_by_name(name).map(|value| value.as_usize());
    let metrics = ["manifest_lists_read", "manifests_read", "manifests_pruned"].map(metric);
    assert_eq!(metrics, [Some(1), Some(3), Some(3)]);
}

/// The plan's own scan.
fn scan_of(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.children().first() {
        Some(child) => scan_of(child),
        None => Arc::clone(plan),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_share_the_manifests_and_each_is_read_once() {
    let bucket = Bucket::new(history()).await;
    bucket.session.run("SET datafusion.execution.target_partitions = 4").await.unwrap();
    let task = || bucket.session.context.task_ctx();
    let sql = |from: &str| format!("SELECT * FROM {from}('{LOCATION}')");
    for (function, partitions, reads) in [
        ("iceberg_files", 4, [1, 1, 5]),
        ("iceberg_all_entries", 4, [1, 7, 7]),
        ("iceberg_all_manifests", 4, [1, 7, 0]),
        ("iceberg_manifests", 1, [1, 1, 0]),
        ("iceberg_snapshots", 1, [1, 0, 0]),
    ] {
        let expected = sorted(&bucket.session.run(&sql(function)).await.unwrap());
        let plan = bucket.plan(&sql(function)).await;
        assert_eq!(plan.output_partitioning().partition_count(), partitions, "{function}");
        bucket.store.take_requests();
        // All at once; the same plan again; one partition after the other.
        let at_once = collect(Arc::clone(&plan), task()).await.unwrap();
        assert_eq!(
            (sorted(&at_once), bucket.reads()[1..].to_vec()),
            (expected.clone(), reads[1..].to_vec()),
            "{function}"
        );
        assert_eq!(sorted(&collect(Arc::clone(&plan), task()).await.unwrap()), expected, "{function}, again");
        bucket.store.take_requests();
        let mut one_by_one = vec![];
        for stream in execute_stream_partitioned(Arc::clone(&plan), task()).unwrap() {
            one_by_one.extend(stream.try_collect::<Vec<_>>().await.unwrap());
        }
        let read = (sorted(&one_by_one), bucket.reads()[1..].to_vec());
        assert_eq!(read, (expected, reads[1..].to_vec()), "{function}, one by one");
        assert!(plan.execute(partitions, task()).is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregations_run_in_the_partitions_of_the_scan() {
    let bucket = Bucket::new(history()).await;
    bucket.session.run("SET datafusion.execution.target_partitions = 3").await.unwrap();
    let sql = format!("SELECT content, sum(record_count) AS n FROM iceberg_files('{LOCATION}') GROUP BY content");
    let plan = bucket.plan(&sql).await;
    let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    let scan = lines.iter().position(|line| line.starts_with("MetadataTableExec")).unwrap();
    assert!(lines[scan - 1].starts_with("AggregateExec: mode=Partial"), "{shown}");
    let sums = bucket.session.rows(&sql).await.unwrap();
    let sums: BTreeMap<_, _> = sums.into_iter().map(|row| (row["content"].clone(), row["n"].clone())).collect();
    let text = |text: &str| Some(text.to_string());
    assert_eq!(sums, [(text("0"), text("30")), (text("1"), text("1")), (text("2"), text("1"))].into());
}
