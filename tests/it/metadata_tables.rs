//! The metadata tables: PyIceberg shows the same rows, and no more is read than the rows come from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;
use iceberg_maintenance::Maintenance;
use iceberg_maintenance::catalog::FileSystemCatalog;
use iceberg_maintenance::fixtures::{History, Table as Described};
use serde_json::{Map, Value, json};
use url::Url;

use crate::corpus::CASES;
use crate::corpus::case::{Case, text};
use crate::support::{Session, literal, python, python_has};
use crate::table::{Table, plain_path};
use crate::watched::{Kind, WatchedStore};

/// A row of one of our tables as JSON: times in ms, bytes in hexadecimal digits, maps as sorted pairs.
fn json_rows(batches: &[RecordBatch]) -> Vec<Value> {
    let row = |batch: &RecordBatch, row| {
        let schema = batch.schema();
        let fields = schema.fields().iter().zip(batch.columns());
        Value::Object(fields.map(|(field, column)| (field.name().clone(), json_of(column, row))).collect())
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|at| row(batch, at)).collect::<Vec<_>>()).collect()
}

fn json_of(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    let hex = |bytes: &[u8]| Value::from(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let all = |values: &dyn Array| Value::Array((0..values.len()).map(|at| json_of(values, at)).collect());
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::Timestamp(..) => column.as_primitive::<TimestampMicrosecondType>().value(row).div_euclid(1000).into(),
        DataType::Binary => hex(column.as_binary::<i32>().value(row)),
        DataType::FixedSizeBinary(_) => hex(column.as_fixed_size_binary().value(row)),
        DataType::List(_) => all(&column.as_list::<i32>().value(row)),
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let pair = |at| json!([json_of(entries.column(0), at), json_of(entries.column(1), at)]);
            let mut pairs: Vec<Value> = (0..entries.len()).map(pair).collect();
            pairs.sort_by_key(|pair| (pair[0].as_i64(), pair[0].to_string()));
            Value::Array(pairs)
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(column.as_struct().columns());
            Value::Object(columns.map(|(field, column)| (field.name().clone(), json_of(column, row))).collect())
        }
        _ => array_value_to_string(column, row).unwrap().into(),
    }
}

/// True if our value is PyIceberg's. What Spark shows otherwise than PyIceberg is ours: absent lists and maps are null, the text of a
/// bound that is absent is `null`, and one that is empty is not absent. Columns that PyIceberg doesn't have are not looked at.
fn agree(name: &str, theirs: &Value, ours: &Value) -> bool {
    let is_bound = ["lower_bound", "upper_bound"].contains(&name);
    match (theirs, ours) {
        // It has the outermost columns, and metrics of those that hold values.
        (Value::Object(theirs), Value::Object(ours)) if name == "readable_metrics" => {
            theirs.iter().all(|(name, theirs)| {
                let nested = || ours.keys().any(|column| column.starts_with(&format!("{name}.")));
                ours.get(name).map_or_else(nested, |ours| agree(name, theirs, ours))
            })
        }
        (Value::Object(theirs), Value::Object(ours)) => theirs.iter().all(|(name, theirs)| {
            let nothing = theirs.as_object().is_some_and(Map::is_empty);
            let ours = ours.get(name);
            nothing || ours.is_some_and(|ours| agree(name, theirs, ours))
        }),
        (Value::Array(theirs), Value::Null) => theirs.is_empty(),
        (Value::Array(theirs), Value::Array(ours)) => {
            theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(theirs, ours)| agree(name, theirs, ours))
        }
        (Value::Null, Value::String(ours)) => is_bound && (ours == "null" || ours.is_empty()),
        // It gives the location that it was told, as it was told.
        (Value::String(theirs), Value::String(ours)) if name == "file" => plain_path(theirs) == plain_path(ours),
        (theirs, ours) => theirs == ours,
    }
}

/// Compares rows, in whatever order. `Err`: a row that only one of the two has.
fn compare(theirs: &[Value], mut ours: Vec<Value>) -> Result<(), String> {
    for row in theirs {
        let Some(place) = ours.iter().position(|other| agree("", row, other)) else {
            return Err(format!("only PyIceberg has {row}\nwe have {ours:#?}"));
        };
        ours.swap_remove(place);
    }
    if ours.is_empty() { Ok(()) } else { Err(format!("only we have {ours:#?}")) }
}

const FUNCTIONS: [(&str, &str); 11] = [
    ("snapshots", "iceberg_snapshots"),
    ("refs", "iceberg_refs"),
    ("history", "iceberg_history"),
    ("metadata_log_entries", "iceberg_metadata_log"),
    ("manifests", "iceberg_manifests"),
    ("files", "iceberg_files"),
    ("entries", "iceberg_entries"),
    ("all_files", "iceberg_all_files"),
    ("all_entries", "iceberg_all_entries"),
    ("all_manifests", "iceberg_all_manifests"),
    ("partitions", "iceberg_partitions"),
];

/// What PyIceberg's metadata tables have, for tables below `root`, by the paths of their metadata files.
fn inspect(root: &Path, metadata_files: &[String]) -> BTreeMap<String, Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inspect_by_pyiceberg.py");
    let output = Command::new(python()).arg(script).arg(root).args(metadata_files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Compares all metadata tables of a table with PyIceberg's; how many were compared. What PyIceberg can't show is left out.
async fn compare_table(session: &Session, location: &str, theirs: &Value) -> usize {
    assert!(theirs.get("error").is_none(), "{location}: {theirs}");
    let mut compared = 0;
    let mut one = async |call: String, theirs: &Value| {
        let Some(theirs) = theirs.as_array() else { return };
        let ours = session.run(&format!("SELECT * FROM {call}")).await.unwrap_or_else(|e| panic!("{call}: {e}"));
        compare(theirs, json_rows(&ours)).unwrap_or_else(|why| panic!("{call}: {why}"));
        compared += 1;
    };
    for (name, function) in FUNCTIONS {
        one(format!("{function}({})", literal(location)), &theirs[name]).await;
        for (id, theirs) in theirs[format!("{name}_by_snapshot")].as_object().into_iter().flatten() {
            one(format!("{function}({}, snapshot_id => {id})", literal(location)), theirs).await;
        }
    }
    compared
}

/// Some cases have a file beside the newest metadata file that looks like a newer one, or like one of a catalog, and is none.
fn take_away_later_versions(metadata: &Path) {
    let version = |name: &str| {
        let digits = name.trim_start_matches('v');
        digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse::<u64>().ok()
    };
    let current = metadata.file_name().unwrap().to_str().unwrap();
    for entry in std::fs::read_dir(metadata.parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let misleads = version(&name) > version(current) || name.starts_with('v') != current.starts_with('v');
        if name.ends_with("metadata.json") && misleads {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyiceberg_shows_the_same_of_tables_that_spark_wrote() {
    if !python_has(&["pyiceberg.table", "pyarrow"]) {
        return;
    }
    let cases: Vec<Case> = CASES.iter().filter_map(|case| Case::find(case)).collect();
    let root = tempfile::tempdir().unwrap();
    let warehouse = root.path().join("tmp/ice-corpus/warehouse");
    std::fs::create_dir_all(&warehouse).unwrap();
    let mut tables = vec![];
    for case in &cases {
        crate::support::unpack(&case.folder.join("table.tar.zst"), &warehouse);
        let table = &case.expected["table"];
        let metadata = plain_path(text(&table["metadata_location"]));
        take_away_later_versions(&root.path().join(metadata.trim_start_matches('/')));
        tables.push((text(&table["location"]).to_string(), metadata));
    }
    let files: Vec<String> = tables.iter().map(|(_, metadata)| metadata.clone()).collect();
    let theirs = inspect(root.path(), &files);
    let session = Session::below(root.path(), None);
    let mut compared = 0;
    for (location, metadata) in &tables {
        compared += compare_table(&session, location, &theirs[metadata]).await;
    }
    assert!(compared >= 22 * cases.len(), "only {compared} of {} tables were compared", cases.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyiceberg_shows_the_same_of_tables_of_the_fixtures() {
    if !python_has(&["pyiceberg.table", "pyarrow"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    iceberg_maintenance::fixtures::warehouse(folder.path()).unwrap();
    let root = folder.path().canonicalize().unwrap();
    let tables = ["events", "refs", "vectors", "deletes", "evolved", "single", "nested"].map(|name| root.join(name));
    let newest = |table: &std::path::PathBuf| Table::read(Path::new("/"), table.to_str().unwrap()).metadata_path;
    let files: Vec<String> = tables.iter().map(newest).collect();
    let theirs = inspect(Path::new("/"), &files);
    let session = Session::new(None);
    for (table, metadata) in tables.iter().zip(&files) {
        let compared = compare_table(&session, table.to_str().unwrap(), &theirs[metadata]).await;
        assert!(compared >= 10, "{}: {compared}", table.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyiceberg_shows_the_same_bounds_of_all_types_that_it_writes() {
    if !python_has(&["pyiceberg.table", "pyarrow", "sqlalchemy"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/write_types_by_pyiceberg.py");
    let output = Command::new(python()).arg(script).arg(&root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = plain_path(String::from_utf8(output.stdout).unwrap().trim());
    let theirs = inspect(Path::new("/"), std::slice::from_ref(&metadata));
    let session = Session::new(None);
    let location = root.join("db/types");
    assert_eq!(compare_table(&session, location.to_str().unwrap(), &theirs[&metadata]).await, FUNCTIONS.len() + 6);
    // Nested columns, which it doesn't show, are there by their names, as in Spark.
    let names = "SELECT map_keys(lower_bounds) AS ids, readable_metrics FROM iceberg_files(LOCATION) ORDER BY record_count DESC";
    let rows = session.run(&names.replace("LOCATION", &literal(location.to_str().unwrap()))).await.unwrap();
    let rows = json_rows(&rows);
    let metrics = rows[0]["readable_metrics"].as_object().unwrap();
    let nested: Vec<_> = metrics.keys().filter(|name| name.contains('.')).collect();
    assert_eq!(nested, ["a.b", "point.x", "point.y", "tags.element"]);
    let bounds = metrics.values().filter(|column| !column["lower_bound"].is_null()).count();
    assert_eq!(bounds, rows[0]["ids"].as_array().unwrap().len(), "each bound is shown");
}

/// A table in a bucket, and a session that counts what is asked of it.
struct Bucket {
    store: WatchedStore,
    session: Session,
}

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const LOCATION: &str = "s3://bucket/wh/t";
const SNAPSHOTS: i64 = 4;

impl Bucket {
    async fn new() -> Self {
        let table = Described { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Described::new(2) };
        let mut history = History::new(table.partitioned_by("region"));
        for day in 1..=SNAPSHOTS {
            history.append(BEGIN_MS + day * DAY_MS, [format!("a{day}")]);
        }
        let store = WatchedStore::with_table(&history.build()).await;
        let session = Session::new(None);
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
        Self { store, session }
    }

    /// What a statement reads: how often metadata files, manifest lists and manifests.
    async fn reads(&self, sql: &str) -> [usize; 3] {
        self.store.take_requests();
        self.session.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut reads = [0; 3];
        for (kind, key) in self.store.requests() {
            match kind {
                Kind::Get if key.ends_with(".metadata.json") => reads[0] += 1,
                Kind::Get if key.contains("/snap-") => reads[1] += 1,
                Kind::Get if key.ends_with(".avro") => reads[2] += 1,
                Kind::Get if key.ends_with("version-hint.text") => {}
                Kind::Head | Kind::List => {}
                other => panic!("{sql} asked for {other:?} of {key}"),
            }
        }
        reads
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_read_than_the_rows_come_from_and_that_once() {
    let bucket = Bucket::new().await;
    let all = SNAPSHOTS as usize;
    for (from, reads) in [
        ("iceberg_snapshots('T')", [1, 0, 0]),
        ("iceberg_refs('T')", [1, 0, 0]),
        ("iceberg_history('T')", [1, 0, 0]),
        ("iceberg_metadata_log('T')", [1, 0, 0]),
        ("iceberg_properties('T')", [1, 0, 0]),
        ("iceberg_manifests('T')", [1, 1, 0]),
        ("iceberg_files('T')", [1, 1, all]),
        ("iceberg_entries('T')", [1, 1, all]),
        ("iceberg_partitions('T')", [1, 1, all]),
        ("iceberg_all_files('T')", [1, all, all]),
        ("iceberg_all_entries('T')", [1, all, all]),
        ("iceberg_all_manifests('T')", [1, all, 0]),
        // The rows of two scans of one execution are of one state of the table.
        ("iceberg_snapshots('T') one, iceberg_snapshots('T') other", [2, 0, 0]),
    ] {
        for select in ["count(*)", "*"] {
            let sql = format!("SELECT {select} FROM {}", from.replace('T', LOCATION));
            assert_eq!(bucket.reads(&sql).await, reads, "{sql}");
        }
    }
    let frame = bucket.session.context.sql(&format!("SELECT * FROM iceberg_files('{LOCATION}')")).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    datafusion::physical_plan::collect(Arc::clone(&plan), bucket.session.context.task_ctx()).await.unwrap();
    let metrics = plan.metrics().unwrap();
    let metric = |name: &str| metrics.sum_by_name(name).map(|value| value.as_usize());
    assert_eq!((metric("manifest_lists_read"), metric("manifests_read")), (Some(1), Some(all)));
    assert_eq!(metrics.output_rows(), Some(all));
    // Planning loads the table only where columns depend on it.
    for (function, reads) in [("iceberg_snapshots", 0), ("iceberg_manifests", 0), ("iceberg_files", 1)] {
        let sql = format!("EXPLAIN SELECT * FROM {function}('{LOCATION}')");
        assert_eq!(bucket.reads(&sql).await, [reads, 0, 0], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_shows_what_is_there_when_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let write = |days: i64| {
        let table = Described { last_updated_ms: BEGIN_MS, ..Described::new(2).partitioned_by("region") };
        let mut history = History::new(table);
        for day in 1..=days {
            history.append(BEGIN_MS + day * DAY_MS, [format!("a{day}")]);
        }
        history.build().write(folder.path().join("t")).unwrap();
    };
    write(1);
    let session = Session::new(None);
    let location = literal(folder.path().join("t").to_str().unwrap());
    session.run(&format!("CREATE VIEW paths AS SELECT file_path FROM iceberg_files({location})")).await.unwrap();
    for days in [2, 2, 3] {
        write(days);
        assert_eq!(session.rows("SELECT * FROM paths").await.unwrap().len(), days as usize);
    }
}

/// A runtime of one thread can't wait while a statement is planned, so that a thread of its own does.
#[tokio::test]
async fn columns_that_depend_on_the_table_are_known_in_a_runtime_of_one_thread() {
    let folder = tempfile::tempdir().unwrap();
    iceberg_maintenance::fixtures::warehouse(folder.path()).unwrap();
    let session = Session::new(None);
    let location = literal(folder.path().join("evolved").to_str().unwrap());
    let batches = session.run(&format!("SELECT partition['region'], spec_id FROM iceberg_files({location})")).await;
    assert_eq!(json_rows(&batches.unwrap()).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_tables_are_beside_their_tables_in_a_catalog() {
    let folder = tempfile::tempdir().unwrap();
    iceberg_maintenance::fixtures::warehouse(folder.path()).unwrap();
    let root = folder.path().canonicalize().unwrap();
    let catalog = || Arc::new(FileSystemCatalog::with_warehouse(root.to_string_lossy()));
    let session = Session::with(Maintenance::builder().catalog("Lake", catalog()));
    let lake = session.maintenance.with_metadata_tables("Lake", None);
    session.context.register_catalog("lake", lake);
    let count = async |table: &str| {
        let rows = session.rows(&format!("SELECT count(*) AS n FROM {table}")).await?;
        Ok::<_, String>(rows[0]["n"].clone().unwrap())
    };
    for (table, rows) in [
        ("lake.db.\"events$snapshots\"", "5"),
        ("lake.db.events$snapshots", "5"),
        ("lake.db.\"events.refs\"", "1"),
        ("lake.db.\"events$FILES\"", "3"),
        ("lake.\"db.sub\".\"my events$metadata_log_entries\"", "6"),
        ("lake.db.events$all_files", "6"),
        ("lake.db.events$all_entries", "8"),
        ("lake.db.\"events.all_manifests\"", "12"),
        ("lake.db.events$partitions", "1"),
    ] {
        assert_eq!(count(table).await.as_deref(), Ok(rows), "{table}");
    }
    let joined = "SELECT count(*) AS n FROM lake.db.events$refs r JOIN lake.db.events$snapshots s USING (snapshot_id)";
    assert_eq!(session.rows(joined).await.unwrap()[0]["n"].as_deref(), Some("1"));
    for (table, says) in [
        ("lake.db.events", "table 'lake.db.events' not found"),
        ("lake.db.\"nothing$files\"", "was not found"),
        ("lake.db.\"nothing$refs\"", "was not found"),
        ("lake.db.events$sizes", "not found"),
    ] {
        let error = count(table).await.unwrap_err();
        assert!(error.contains(says), "{table}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_other_names_are_left_to_the_catalog_that_was_there() {
    let folder = tempfile::tempdir().unwrap();
    iceberg_maintenance::fixtures::warehouse(folder.path()).unwrap();
    let root = folder.path().canonicalize().unwrap();
    let session: SessionContext = SessionContext::new();
    let files = Arc::new(FileSystemCatalog::with_warehouse(root.to_string_lossy()));
    let maintenance = Maintenance::builder().catalog("datafusion", files).register(&session).unwrap();
    session.sql("CREATE SCHEMA db").await.unwrap().collect().await.unwrap();
    session.sql("CREATE TABLE db.events AS VALUES (1)").await.unwrap().collect().await.unwrap();
    let inner = session.catalog("datafusion");
    session.register_catalog("datafusion", maintenance.with_metadata_tables("datafusion", inner));
    session.sql("CREATE SCHEMA more").await.unwrap().collect().await.unwrap();
    session.sql("CREATE TABLE more.t AS VALUES (1), (2)").await.unwrap().collect().await.unwrap();
    let count = async |table: &str| session.sql(&format!("SELECT * FROM {table}")).await?.count().await;
    let mut counted = vec![];
    for table in ["db.events", "db.events$snapshots", "more.t"] {
        counted.push(count(table).await.unwrap());
    }
    assert_eq!(counted, [1, 5, 2]);
    assert!(count("other.events$snapshots").await.is_err(), "it has no such schema");
    let names: BTreeSet<String> = session.catalog("datafusion").unwrap().schema_names().into_iter().collect();
    assert_eq!(names, ["db", "more", "public"].map(String::from).into());
}
