//! `table_health`: the numbers are those of the table's description, the statements do what they promise.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use iceberg_maintenance::fixtures::{ContentFile, Fault, History, Ref, Table};
use iceberg_maintenance::report::FileKind;
use tempfile::TempDir;
use url::Url;

use crate::corpus::CASES;
use crate::corpus::case::{Case, now};
use crate::support::{Row, Session, disk, literal, python, python_has, unchanged};
use crate::watched::{Kind, WatchedStore};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 30 * DAY_MS;
const MIB: i64 = 1 << 20;

struct Scene {
    _guard: TempDir,
    folder: PathBuf,
    session: Session,
}

impl Scene {
    fn new(table: &Table) -> Self {
        Self::named("t", table, Some(NOW_MS))
    }

    fn named(name: &str, table: &Table, now_ms: Option<i64>) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let folder = guard.path().canonicalize().unwrap().join(name);
        table.write(&folder).unwrap();
        Self { _guard: guard, folder, session: Session::new(now_ms) }
    }

    fn location(&self) -> String {
        literal(self.folder.to_str().unwrap())
    }

    /// The rows of a call with these arguments behind the table, which must change nothing.
    async fn rows(&self, arguments: &str) -> Vec<Row> {
        let before = disk(&self.folder);
        let sql = format!("SELECT * FROM table_health({}{arguments})", self.location());
        let rows = self.session.rows(&sql).await.unwrap();
        unchanged(&sql, &before, &disk(&self.folder)).unwrap();
        rows
    }

    async fn findings(&self, arguments: &str) -> Findings {
        Findings(self.rows(arguments).await.into_iter().map(|row| (text(&row, "metric"), row)).collect())
    }

    async fn recommendations(&self, arguments: &str) -> Vec<Row> {
        self.rows(&format!(", output => 'recommendations'{arguments}")).await
    }
}

struct Findings(BTreeMap<String, Row>);

impl Findings {
    fn value(&self, metric: &str) -> Option<i64> {
        self.0[metric]["value"].as_deref().map(|value| value.parse().unwrap())
    }

    fn text(&self, metric: &str, column: &str) -> String {
        text(&self.0[metric], column)
    }

    fn severity(&self, metric: &str) -> String {
        self.text(metric, "severity")
    }

    fn expect(&self, expected: &[(&str, Option<i64>)]) {
        for (metric, value) in expected {
            assert_eq!(self.value(metric), *value, "{metric}: {:?}", self.0[*metric]);
        }
    }
}

fn text(row: &Row, column: &str) -> String {
    row[column].clone().unwrap_or_else(|| "NULL".into())
}

fn number(row: &Row, column: &str) -> i64 {
    row[column].as_deref().unwrap().parse().unwrap()
}

fn history(format_version: i64) -> History {
    History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(format_version) })
}

/// A data file that says it has so many bytes.
fn sized(name: &str, partition: i32, bytes: i64) -> ContentFile {
    ContentFile { recorded_size: Some(bytes), ..ContentFile::data(name).partition([partition]) }
}

/// The live files of the current snapshot, by counting in the description.
fn live(table: &Table) -> Vec<ContentFile> {
    let current = table.snapshot(table.current_snapshot_id.unwrap()).unwrap();
    let entries = current.manifests.iter().flat_map(|path| &table.manifests[path].entries);
    entries.filter(|entry| entry.is_live()).map(|entry| entry.file.clone()).collect()
}

fn bytes(file: &ContentFile) -> i64 {
    file.recorded_size.unwrap_or(file.size as i64)
}

/// Two partitions, one with many small files and a large one, one with one file; deletes, some of them for nothing.
fn partitioned() -> Table {
    let mut history = History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(2) }.partitioned_by("region"));
    let deletes = |name: &str, of: &str, partition| ContentFile::position_deletes(name, of).partition([partition]);
    history.append(BEGIN_MS + DAY_MS, [sized("gone", 2, 5 * MIB)]);
    history.append(BEGIN_MS + 2 * DAY_MS, [deletes("of_gone", "gone", 2)]);
    history.overwrite(BEGIN_MS + 3 * DAY_MS, ["gone"], [sized("only", 2, 300 * MIB)]);
    let small = (0..30).map(|n| sized(&format!("small{n}"), 1, MIB));
    history.append(BEGIN_MS + 4 * DAY_MS, small.chain([sized("large", 1, 600 * MIB)]));
    let unnamed = ContentFile { referenced: None, ..deletes("needed", "small3", 1) };
    let elsewhere = ContentFile { referenced: None, ..deletes("elsewhere", "small3", 7) };
    let equality = ContentFile::equality_deletes("equality").partition([1]);
    history.append(BEGIN_MS + 5 * DAY_MS, [unnamed, elsewhere, deletes("named", "large", 1), equality]);
    history.build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_numbers_are_those_of_the_description() {
    let table = partitioned();
    let files = live(&table);
    let of = |kind: FileKind| files.iter().filter(move |file| file.kind == kind);
    let count = |kind: FileKind| Some(of(kind).count() as i64);
    let sum = |of: &dyn Fn(&ContentFile) -> i64| Some(files.iter().filter(|f| f.kind == FileKind::Data).map(of).sum());
    let scene = Scene::new(&table);
    let found = scene.findings(", exact => true").await;
    found.expect(&[
        ("data_files_count", count(FileKind::Data)),
        ("data_files_bytes", sum(&bytes)),
        ("records_count", sum(&|file| file.rows)),
        ("average_file_bytes", sum(&bytes).map(|bytes| bytes / 32)),
        ("smallest_file_bytes", Some(MIB)),
        ("largest_file_bytes", Some(600 * MIB)),
        ("small_files_count", Some(30)),
        ("small_files_bytes", Some(30 * MIB)),
        ("mergeable_files_count", Some(29)),
        ("delete_files_count", Some(5)),
        ("position_delete_files_count", count(FileKind::PositionDeletes)),
        ("equality_delete_files_count", Some(1)),
        ("deletion_vectors_count", Some(0)),
        ("deleted_positions_count", Some(4)),
        ("equality_deletes_count", Some(1)),
        ("delete_files_percent", Some(500 / 32)),
        // The one of a file that is gone, and the one in a partition without data.
        ("dangling_delete_files_count", Some(2)),
        ("partitions_count", Some(2)),
        ("average_partition_files_count", Some(16)),
        ("largest_partition_files_count", Some(31)),
        ("largest_partition_bytes", Some(630 * MIB)),
        ("skew_percent", Some(100 * 630 * 2 / 930)),
        ("unreadable_manifests_count", Some(0)),
        ("snapshots_count", Some(5)),
        ("expirable_snapshots_count", Some(4)),
        ("oldest_snapshot_age_ms", Some(29 * DAY_MS)),
    ]);
    assert!(
        found.0.values().all(|row| text(row, "is_estimate") == "false" || text(row, "metric").contains("manifest"))
    );
    let small = scene.findings(", exact => true, small_file_threshold => 1048576").await;
    small.expect(&[("small_files_count", Some(0)), ("mergeable_files_count", Some(0))]);

    let histogram = scene.rows(", exact => true, output => 'histogram'").await;
    let data: Vec<_> = histogram.iter().filter(|row| text(row, "content") == "DATA").collect();
    let counts: Vec<_> = data.iter().map(|row| number(row, "files_count")).collect();
    assert_eq!(counts, [0, 30, 0, 0, 1, 1]);
    for row in &histogram {
        let (from, to) =
            (number(row, "from_bytes"), row["to_bytes"].as_deref().map_or(i64::MAX, |n| n.parse().unwrap()));
        let content = text(row, "content");
        let inside =
            files.iter().filter(|file| file.kind.as_str() == content).filter(|file| (from..to).contains(&bytes(file)));
        let (files, sum) = inside.fold((0, 0), |(files, sum), file| (files + 1, sum + bytes(file)));
        assert_eq!((number(row, "files_count"), number(row, "bytes")), (files, sum), "{row:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_cheap_look_cannot_know_is_null_and_what_writers_noted_an_estimate() {
    let mut table = partitioned();
    let current = table.current_snapshot_id.unwrap();
    let totals = [("total-files-size", "1000"), ("total-records", "320"), ("total-position-deletes", "many")];
    for (name, value) in totals {
        table.snapshot_mut(current).unwrap().summary.insert(name.into(), value.into());
    }
    let scene = Scene::new(&table);
    let found = scene.findings("").await;
    found.expect(&[
        ("data_files_count", Some(32)),
        ("delete_files_count", Some(5)),
        // Together with those of delete files.
        ("data_files_bytes", None),
        ("records_count", Some(320)),
        ("deleted_positions_count", None),
        ("average_file_bytes", None),
        ("smallest_file_bytes", None),
        ("small_files_count", None),
        ("mergeable_files_count", None),
        ("dangling_delete_files_count", None),
        ("partitions_count", None),
        ("skew_percent", None),
        ("expirable_snapshots_count", Some(4)),
        ("reclaimable_files_count", None),
        ("orphan_files_count", None),
    ]);
    assert_eq!(found.text("records_count", "is_estimate"), "true");
    assert_eq!(found.text("data_files_count", "is_estimate"), "false");
    for row in found.0.values().filter(|row| row["value"].is_none() && text(row, "severity") != "ok") {
        assert_eq!(text(row, "severity"), "unknown", "{row:?}");
        let told = text(row, "text");
        assert!(told.contains("exact => true tells it") || told.contains("orphans => true tells it"), "{row:?}");
    }
    let sql = format!("SELECT * FROM table_health({}, output => 'histogram')", scene.location());
    assert!(scene.session.rows(&sql).await.unwrap_err().contains("add exact => true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_partitions_the_average_tells_that_files_are_small() {
    let mut history = history(2);
    history.append(BEGIN_MS + DAY_MS, (0..40).map(|n| format!("f{n}")));
    let mut table = history.build();
    table.snapshot_mut(1).unwrap().summary.insert("total-files-size".into(), "4000".into());
    let scene = Scene::new(&table);
    let found = scene.findings("").await;
    found.expect(&[
        ("data_files_bytes", Some(4000)),
        ("average_file_bytes", Some(100)),
        ("mergeable_files_count", Some(39)),
    ]);
    assert_eq!(found.text("mergeable_files_count", "is_estimate"), "true");
    let advice = scene.recommendations("").await;
    assert_eq!((advice.len(), text(&advice[0], "engine")), (1, "spark".into()));
    assert_eq!(text(&advice[0], "statement"), format!("CALL system.rewrite_data_files(table => {})", scene.location()));
    scene.findings(", exact => true").await.expect(&[("mergeable_files_count", Some(39))]);
}

/// Old snapshots with files that only they have, and orphans, in a folder with a name that needs quoting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_statements_run_as_they_are_and_gain_what_they_say() {
    for name in ["t", "it's \"q\"; DROP TABLE `x` -- é"] {
        let mut history = history(2);
        history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
        history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
        history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
        history.table_mut().stray("data/stray1.parquet", BEGIN_MS).stray("data/stray2.parquet", BEGIN_MS);
        let scene = Scene::named(name, &history.build(), None);
        let advice = scene.recommendations(", exact => true, orphans => true").await;
        let what: Vec<String> = advice.iter().map(|row| text(row, "recommendation")).collect();
        assert_eq!(what, ["expire_snapshots", "remove_orphan_files"], "the greatest gain first");
        let ranks: Vec<i64> = advice.iter().map(|row| number(row, "rank")).collect();
        assert_eq!(ranks, [1, 2]);
        for row in &advice {
            let metrics = scene.session.metrics(&text(row, "statement")).await.unwrap();
            let done = (metrics["deleted_files_count"], metrics["deleted_bytes"]);
            assert_eq!(done, (number(row, "gain_files"), number(row, "gain_bytes")), "{name}: {row:?}");
            assert!(done.0 > 0, "{row:?}");
        }
        assert!(scene.recommendations(", exact => true, orphans => true").await.is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refs_that_pin_old_snapshots_are_named() {
    let mut history = history(2);
    history.append(BEGIN_MS + DAY_MS, ["a"]);
    history.append(BEGIN_MS + 2 * DAY_MS, ["b"]);
    history.append(BEGIN_MS + 29 * DAY_MS, ["c"]);
    history.tag("kept", 1).set_ref("going", Ref::tag(2).max_ref_age_ms(DAY_MS)).tag("now", 3);
    let found = Scene::new(&history.build()).findings("").await;
    found.expect(&[("pinning_refs_count", Some(1)), ("refs_count", Some(4)), ("expirable_snapshots_count", Some(1))]);
    assert!(found.text("pinning_refs_count", "text").ends_with("tag kept (snapshot 1)"));
    assert!(found.text("oldest_snapshot_age_ms", "text").contains("it stays: ref kept points to it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_tables_are_told_of() {
    let mut table = partitioned();
    let current = table.snapshot(table.current_snapshot_id.unwrap()).unwrap().clone();
    let data = current.manifests.iter().find(|path| !table.manifests[*path].deletes).unwrap();
    table.fault(data, Fault::Missing);
    let scene = Scene::new(&table);
    let found = scene.findings(", exact => true").await;
    found.expect(&[("unreadable_manifests_count", Some(1)), ("dangling_delete_files_count", None)]);
    assert_eq!(found.severity("unreadable_manifests_count"), "warning");
    assert_eq!(found.text("data_files_count", "is_estimate"), "true");
    assert!(found.text("reclaimable_bytes", "text").starts_with("expire_snapshots refuses: "));
    let advice = scene.recommendations(", exact => true").await;
    assert!(advice.iter().all(|row| text(row, "recommendation") != "expire_snapshots"), "{advice:?}");

    for fault in [Fault::Missing, Fault::CutTo(40), Fault::Bytes(vec![])] {
        let mut table = partitioned();
        table.fault(current.manifest_list.as_ref().unwrap(), fault);
        let scene = Scene::new(&table);
        for arguments in ["", ", exact => true", ", exact => true, orphans => true"] {
            let found = scene.findings(arguments).await;
            assert_eq!(found.severity("unreadable_manifest_lists_count"), "warning");
            found.expect(&[("data_files_count", None), ("manifests_count", None), ("snapshots_count", Some(5))]);
        }
        assert!(scene.rows(", exact => true, output => 'histogram'").await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_a_snapshot_has_nothing_of_anything() {
    let scene = Scene::new(&history(2).build());
    for arguments in ["", ", exact => true, orphans => true"] {
        let found = scene.findings(arguments).await;
        for metric in
            ["data_files_count", "data_files_bytes", "delete_files_count", "manifests_count", "snapshots_count"]
        {
            assert_eq!(found.value(metric), Some(0), "{metric}");
        }
        found.expect(&[("average_file_bytes", None), ("smallest_file_bytes", None), ("reclaimable_bytes", Some(0))]);
        assert_eq!(found.severity("average_file_bytes"), "ok", "there is none");
        assert!(scene.recommendations(arguments).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_format_versions_are_measured() {
    let mut first = history(1);
    first.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    let mut inline = first.build();
    inline.snapshots.iter_mut().for_each(|snapshot| snapshot.manifest_list = None);
    let scene = Scene::new(&inline);
    scene.findings("").await.expect(&[
        ("data_files_count", None),
        ("manifests_count", Some(1)),
        ("manifests_bytes", None),
    ]);
    scene.findings(", exact => true").await.expect(&[("data_files_count", Some(2)), ("data_files_bytes", Some(200))]);
    inline.snapshots.iter_mut().for_each(|snapshot| {
        snapshot.summary.insert("total-data-files".into(), "2".into());
    });
    Scene::new(&inline).findings("").await.expect(&[("data_files_count", Some(2))]);

    let mut third = history(3);
    third.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    third.deletion_vectors(BEGIN_MS + 2 * DAY_MS, "dv", &[("a", &[1, 2]), ("b", &[3])]);
    let mut table = third.build();
    let found = Scene::new(&table).findings(", exact => true").await;
    found.expect(&[
        ("deletion_vectors_count", Some(2)),
        ("position_delete_files_count", Some(0)),
        ("deleted_positions_count", Some(3)),
        ("delete_files_percent", Some(100)),
        ("dangling_delete_files_count", Some(0)),
    ]);
    // A writer that leaves a vector behind whose data file it removed.
    let manifests = table.snapshot(2).unwrap().manifests.clone();
    for path in manifests {
        table.manifests.get_mut(&path).unwrap().entries.retain(|entry| entry.file.path != "data/a.parquet");
    }
    Scene::new(&table).findings(", exact => true").await.expect(&[("dangling_delete_files_count", Some(1))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_nobody_can_believe_do_no_harm() {
    for number in ["9223372036854775807", "-9223372036854775808", "99999999999999999999999999", ""] {
        let mut history = history(2);
        history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
        history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
        history.append(
            BEGIN_MS + 3 * DAY_MS,
            [ContentFile { recorded_size: Some(i64::MAX), rows: i64::MAX, ..ContentFile::data("huge") }],
        );
        let mut table = history.build();
        table.property("write.target-file-size-bytes", number).property("commit.manifest.target-size-bytes", number);
        for id in 1..=3 {
            let summary = &mut table.snapshot_mut(id).unwrap().summary;
            for name in ["total-files-size", "total-records", "removed-files-size", "total-position-deletes"] {
                summary.insert(name.into(), number.into());
            }
        }
        let scene = Scene::new(&table);
        let expected = number.parse::<i64>().ok().filter(|number| *number >= 0);
        scene.findings("").await.expect(&[
            ("data_files_bytes", expected),
            ("records_count", expected),
            ("reclaimable_bytes", expected),
        ]);
        let found = scene.findings(", exact => true").await;
        found.expect(&[
            ("data_files_count", Some(3)),
            ("data_files_bytes", Some(i64::MAX)),
            ("records_count", Some(i64::MAX)),
        ]);
        scene.recommendations(", exact => true").await;
    }
}

/// Sizes, rows and counts by content, as PyIceberg reads them from the manifests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyiceberg_counts_the_same() {
    if !python_has(&["pyiceberg.table", "pyarrow"]) {
        return;
    }
    let scene = Scene::new(&partitioned());
    let found = scene.findings(", exact => true").await;
    let version = partitioned().version;
    let metadata = scene.folder.join(format!("metadata/v{version}.metadata.json"));
    let script = "import sys, collections\nfrom pyiceberg.table import StaticTable\n\
                  files = StaticTable.from_metadata(sys.argv[1]).inspect.files().to_pylist()\n\
                  data = [f for f in files if f['content'] == 0]\n\
                  of = collections.Counter(f['content'] for f in files)\n\
                  print(len(data), sum(f['file_size_in_bytes'] for f in data), sum(f['record_count'] for f in data), \
                  of[1], of[2], len({str(f['partition']) for f in data}))";
    let output = Command::new(python()).args(["-c", script]).arg(metadata).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let counted: Vec<i64> =
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(|n| n.parse().unwrap()).collect();
    let metrics = [
        "data_files_count",
        "data_files_bytes",
        "records_count",
        "position_delete_files_count",
        "equality_delete_files_count",
        "partitions_count",
    ];
    assert_eq!(counted, metrics.map(|metric| found.value(metric).unwrap()));
}

/// Tables that Spark wrote: what it noted in its summaries is what the manifests say, and files are as many as the reference counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_spark_are_measured_as_spark_counted_them() {
    let (mut tables, mut compared) = (0, 0);
    for case in CASES.iter().filter_map(|name| Case::find(name)) {
        // Tables that were damaged by hand, and one that has files twice.
        if case.name.starts_with("damaged") || case.name == "dup_paths" {
            continue;
        }
        let copy = case.unpack();
        case.take_away_what_is_unclear(&copy);
        let session = Session::below(copy.folder.path(), Some(now(&case.runs()[0])));
        let table = literal(case.expected["table"]["location"].as_str().unwrap());
        let look = async |arguments: &str| {
            let rows = session.rows(&format!("SELECT * FROM table_health({table}{arguments})")).await.unwrap();
            Findings(rows.into_iter().map(|row| (text(&row, "metric"), row)).collect())
        };
        let (cheap, exact) = (look("").await, look(", exact => true").await);
        for metric in [
            "data_files_count",
            "data_files_bytes",
            "records_count",
            "deleted_positions_count",
            "equality_deletes_count",
        ] {
            if let Some(noted) = cheap.value(metric) {
                assert_eq!(Some(noted), exact.value(metric), "{}: {metric}", case.name);
                compared += 1;
            }
        }
        let before = &case.expected["before"];
        let current = &before["reachable_by_snapshot"][before["current_snapshot_id"].to_string()];
        let files = current["data"].as_array().map_or(0, |files| files.len() as i64);
        assert_eq!(exact.value("data_files_count"), Some(files), "{}", case.name);
        assert_eq!(exact.value("dangling_delete_files_count"), Some(0), "{}", case.name);
        let dry = session.metrics(&format!("CALL system.expire_snapshots(table => {table}, dry_run => true)")).await;
        let promised = dry.ok().map(|dry| dry["deleted_files_count"]);
        assert_eq!(exact.value("reclaimable_files_count"), promised, "{}", case.name);
        tables += 1;
    }
    assert!(tables >= 3 && compared >= 3 * tables, "{compared} numbers of {tables} tables");
}

/// What it costs: the metadata and one manifest list, however many snapshots and manifests there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cheap_look_reads_the_metadata_and_one_manifest_list() {
    const LOCATION: &str = "s3://bucket/wh/t";
    let table = Table { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
    let mut history = History::new(table);
    (1..=20).for_each(|day| _ = history.append(BEGIN_MS + day * DAY_MS, [format!("a{day}")]));
    let store = WatchedStore::with_table(&history.build()).await;
    let session = Session::new(Some(NOW_MS));
    session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
    for arguments in ["", ", output => 'recommendations'", ", exact => true"] {
        store.take_requests();
        session.run(&format!("SELECT * FROM table_health('{LOCATION}'{arguments})")).await.unwrap();
        let requests = store.requests();
        let reads =
            |of: &dyn Fn(&str) -> bool| requests.iter().filter(|(kind, key)| *kind == Kind::Get && of(key)).count();
        let manifests = reads(&|key| key.ends_with(".avro") && !key.contains("/snap-"));
        if arguments.contains("exact") {
            assert!(manifests >= 20, "{manifests}: what is read is not counted");
            continue;
        }
        assert_eq!(reads(&|key| key.ends_with(".metadata.json")), 1, "{arguments}");
        assert_eq!(reads(&|key| key.contains("/snap-")), 1, "{arguments}");
        assert_eq!(manifests, 0, "{arguments}");
    }
}

/// Partitions by the thousand, more than the memory pool holds at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_numbers_of_a_large_table_need_little_memory() {
    let table = Table { last_updated_ms: BEGIN_MS, ..Table::new(2) }.partitioned_by("region");
    let mut history = History::new(table);
    history.previous_versions(1);
    for day in 1..=20 {
        let file = |n: i32| sized(&format!("d{day}-{n}"), n * 7 % 15_000, MIB + i64::from(n));
        history.append(BEGIN_MS + day * DAY_MS, (0..1500).map(|n| file(n * 10 + day as i32 % 10)));
    }
    let scene = Scene::new(&history.build());
    for output in ["findings", "recommendations", "histogram"] {
        let sql = format!("SELECT * FROM table_health({}, exact => true, output => '{output}')", scene.location());
        let mut rows = vec![];
        for limit in ["1G", "6M"] {
            scene.session.run(&format!("SET datafusion.runtime.memory_limit = '{limit}'")).await.unwrap();
            rows.push(scene.session.rows(&sql).await.unwrap_or_else(|error| panic!("{output} with {limit}: {error}")));
        }
        assert!(rows[0] == rows[1], "{output}");
    }
}
