//! What a stranger writes into metadata or the journal: nothing outside of the table's own folders goes. And no secret is told.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::arrow::ipc::writer::FileWriter;
use iceberg_maintenance::fixtures::{ContentFile, Fault, History, Statistics, Table, uuid_of};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use url::Url;

use crate::support::{Disk, MetricRows, Session, disk, literal, unchanged};
use crate::watched::{Kind, WatchedStore};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
/// All snapshots but the newest are old by then.
const NOW_MS: i64 = BEGIN_MS + 30 * DAY_MS;

/// The places in which metadata names a file that goes with an expired snapshot.
const DATA: &str = "data/a.parquet";
const DELETES: &str = "data/p.parquet";

/// Four snapshots, of which the newest stays. `a` and the position deletes of it came and went.
fn history(name: &str) -> Table {
    let mut history = History::new(Table {
        uuid: Some(uuid_of(name)),
        last_updated_ms: BEGIN_MS,
        modified_ms: Some(BEGIN_MS),
        ..Table::new(2)
    });
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.position_deletes(BEGIN_MS + 2 * DAY_MS, "p", "a");
    history.delete_files(BEGIN_MS + 3 * DAY_MS, [DATA, DELETES]);
    history.append(BEGIN_MS + 4 * DAY_MS, ["d"]);
    let mut table = history.build();
    table.property("write.metadata.delete-after-commit.enabled", "true");
    table.property("write.metadata.previous-versions-max", "1");
    for (list, path) in [("statistics", "metadata/1.puffin"), ("partition", "metadata/1.parquet")] {
        let statistics = Statistics { snapshot_id: 1, path: path.into() };
        match list {
            "statistics" => table.statistics.push(statistics),
            _ => table.partition_statistics.push(statistics),
        }
    }
    table
}

/// The same table, whose expired snapshots name all of their files by what `spell` makes of them. What is named so is not
/// written: it is there already, or nowhere.
fn hostile(mut table: Table, spell: impl Fn(&str) -> String) -> Table {
    let staying: BTreeSet<String> = table.snapshot(4).unwrap().manifests.iter().cloned().collect();
    let live: BTreeSet<String> = table.live_content(4).into_iter().map(|file| file.path).collect();
    let mut named = vec![];
    let mut rename = |path: &mut String| {
        *path = spell(path);
        named.push(path.clone());
    };
    for manifest in table.manifests.values_mut() {
        for entry in manifest.entries.iter_mut().filter(|entry| !live.contains(&entry.file.path)) {
            rename(&mut entry.file.path);
        }
    }
    let expired: Vec<String> = table.manifests.keys().filter(|path| !staying.contains(*path)).cloned().collect();
    for path in expired {
        // One of each kind stays where it is, so that what it names is found.
        let mut renamed = path.clone();
        if table.snapshot(2).unwrap().manifests.contains(&path) && !table.snapshot(1).unwrap().manifests.contains(&path)
        {
            rename(&mut renamed);
        }
        let manifest = table.manifests.remove(&path).unwrap();
        table.manifests.insert(renamed.clone(), manifest);
        for snapshot in &mut table.snapshots {
            snapshot.manifests.iter_mut().filter(|known| **known == path).for_each(|known| *known = renamed.clone());
        }
    }
    rename(table.snapshot_mut(3).unwrap().manifest_list.as_mut().unwrap());
    table.statistics.iter_mut().chain(&mut table.partition_statistics).for_each(|file| rename(&mut file.path));
    let mut logged = "metadata/v1.metadata.json".to_string();
    rename(&mut logged);
    table.extra.insert("metadata-log".into(), json!([{"timestamp-ms": BEGIN_MS, "metadata-file": logged}]));
    named.into_iter().for_each(|path| _ = table.fault(&path, Fault::Missing));
    table
}

/// A warehouse with the table `t` that is maintained, its neighbour `u`, and a folder of somebody else's.
struct Place {
    _guard: TempDir,
    warehouse: PathBuf,
}

impl Place {
    fn new(table: &Table) -> Self {
        let place = Self::without_table();
        table.write(place.table()).unwrap();
        place
    }

    fn without_table() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let warehouse = guard.path().canonicalize().unwrap();
        // Its files are named alike.
        Table { uuid: Some(uuid_of("u")), ..history("t") }.write(warehouse.join("u")).unwrap();
        // Whatever the neighbour has at a place that metadata could name.
        let place = Self { _guard: guard, warehouse };
        fs::create_dir_all(place.table().join("data")).unwrap();
        symlink(place.warehouse.join("u"), place.table().join("link")).unwrap();
        symlink(place.warehouse.join("u/data/b.parquet"), place.table().join("data/linked.parquet")).unwrap();
        place
    }

    fn table(&self) -> PathBuf {
        self.warehouse.join("t")
    }

    /// Everything but the table that is maintained.
    fn others(&self) -> Disk {
        let mut all = disk(&self.warehouse);
        all.retain(|path, _| path != "t" && !path.starts_with("t/"));
        all
    }

    /// What the newest snapshot needs.
    fn is_whole(&self) -> bool {
        ["data/b.parquet", "data/d.parquet"].iter().all(|file| self.table().join(file).exists())
    }
}

fn calls(table: &str) -> Vec<String> {
    let call = |procedure: &str, more: &str| format!("CALL system.{procedure}(table => {}{more})", literal(table));
    let due = "ignore_window => true";
    vec![
        call("expire_snapshots", ", dry_run => true"),
        call("expire_snapshots", ", deferred => '1d'"),
        call("purge_deferred_files", &format!(", {due}")),
        call("expire_snapshots", ""),
        call("resume_maintenance", ""),
        call("purge_deferred_files", &format!(", {due}")),
        call("remove_orphan_files", ""),
        call("remove_orphan_files", ", prefix_mismatch_mode => 'DELETE', include_foreign => true"),
        call("remove_orphan_files", ", deferred => '1d'"),
        call("purge_deferred_files", &format!(", {due}")),
    ]
}

/// How paths outside of a local table are spelled, so that they may be taken for paths inside.
fn local_spellings(warehouse: &Path) -> Vec<(&'static str, String)> {
    let w = warehouse.to_str().unwrap();
    vec![
        ("another table's, plain", format!("{w}/u/")),
        ("another table's, as a URL", format!("file:{w}/u/")),
        ("another table's, as a URL with slashes", format!("file://{w}/u/")),
        ("another table's, on this host", format!("file://localhost{w}/u/")),
        ("another table's, on another host", format!("file://elsewhere{w}/u/")),
        ("climbing", format!("file:{w}/t/../u/")),
        ("climbing from below", format!("file:{w}/t/data/../../u/")),
        ("climbing after a dot", format!("file:{w}/t/.//.././u/")),
        ("through a link to a folder", format!("file:{w}/t/link/")),
        ("climbing behind a link", format!("file:{w}/t/link/../u/")),
        ("climbing, percent-encoded", format!("file:{w}/t/..%2fu/")),
        ("dots, percent-encoded", format!("file:{w}/t/%2e%2e/u/")),
        ("climbing, encoded twice", format!("file:{w}/t/%252e%252e/u/")),
        ("another name's beginning", format!("file:{w}/t/../t2/")),
        ("a bucket", "s3://bucket/u/".to_string()),
        ("a bucket like the path", format!("s3:/{w}/t/")),
        ("a server", format!("http://127.0.0.1:1{w}/t/")),
        ("NUL", format!("file:{w}/t/\0/../u/")),
        ("NUL at its end", format!("file:{w}/u/\0")),
        ("a line's end", format!("file:{w}/t/\n../u/")),
        ("no scheme but a colon", format!("fil:{w}/u/")),
        ("a backslash", format!("file:{w}/t\\..\\u/")),
    ]
}

#[tokio::test]
async fn files_that_hostile_metadata_of_a_local_table_names_stay() {
    let (mut expired, mut refusals) = (0, BTreeSet::new());
    let spellings = local_spellings(Path::new("/")).len();
    for number in 0..spellings {
        let place = Place::without_table();
        let (what, prefix) = local_spellings(&place.warehouse).swap_remove(number);
        let table = hostile(history("t"), |path| format!("{prefix}{path}"));
        table.write(place.table()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let before = place.others();
        for call in calls(place.table().to_str().unwrap()) {
            let outcome = Session::new(Some(NOW_MS)).metrics(&call).await;
            unchanged(&format!("{what}: {call}: {outcome:?}"), &before, &place.others()).unwrap();
            assert!(place.is_whole(), "{what}: {call}");
            let expires = call.contains("system.expire_snapshots") && !call.contains("dry_run");
            expired += i64::from(expires && outcome.is_ok());
            refusals.extend(outcome.err().filter(|_| expires).map(|why| format!("{what}: {why}")));
        }
        assert!(place.table().join("data/linked.parquet").is_symlink(), "{what}");
    }
    let nul = |why: &String| why.contains("NUL: ") && !why.contains("does not exist");
    assert!(!refusals.iter().any(nul), "no file has such a name: {refusals:#?}");
    assert!(expired > spellings as i64, "most of these tables can be maintained: {expired} runs, {refusals:#?}");
}

#[tokio::test]
async fn write_paths_of_a_local_table_make_nothing_of_others_its_own() {
    let properties =
        ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"];
    for property in properties {
        for value in
            ["WH/t/../u", "WH/t/link", "WH", "/", "file:///", "s3://bucket/u", "relative", "", "WH/t/..%2fu", "WH\0/u"]
        {
            let place = Place::without_table();
            let w = place.warehouse.to_str().unwrap().to_string();
            let mut table = hostile(history("t"), |path| format!("{w}/u/{path}"));
            table.property(property, &value.replace("WH", &w));
            table.write(place.table()).unwrap();
            let before = place.others();
            for call in calls(place.table().to_str().unwrap()) {
                let outcome = Session::new(Some(NOW_MS)).metrics(&call).await;
                unchanged(&format!("{property} = {value}: {call}: {outcome:?}"), &before, &place.others()).unwrap();
                assert!(place.is_whole(), "{property} = {value}: {call}");
            }
        }
    }
}

#[tokio::test]
async fn files_that_hostile_metadata_of_a_table_in_a_bucket_names_stay() {
    let guard = tempfile::tempdir().unwrap();
    let local = guard.path().canonicalize().unwrap();
    history("u").write(local.join("u")).unwrap();
    let w = local.display();
    let mut expired = 0;
    for prefix in [
        "s3://other/wh/t/".to_string(),
        "s3a://other/wh/t/".to_string(),
        "s3://bucket/wh/u/".to_string(),
        "s3://bucket/wh/t/../u/".to_string(),
        "s3://bucket/wh/t/./".to_string(),
        "s3://bucket/wh/t//".to_string(),
        "s3://bucket//wh/t/".to_string(),
        "s3://bucket/wh/t/%2e%2e/u/".to_string(),
        "s3://bucket/wh/t2/".to_string(),
        "s3://bucket@other/wh/t/".to_string(),
        "s3://other@bucket/wh/t/".to_string(),
        "s3://bucket:443/wh/t/".to_string(),
        "s3://bucket/wh/t/\0/".to_string(),
        "s3://bucket/wh/t/\n/".to_string(),
        "gs://bucket/wh/t/".to_string(),
        format!("file://{w}/u/"),
        format!("file:{w}/u/"),
        format!("{w}/u/"),
        "/wh/t/".to_string(),
        "file:///etc/".to_string(),
    ] {
        let location = Some("s3://bucket/wh/t".to_string());
        let table = hostile(Table { location, ..history("t") }, |path| format!("{prefix}{path}"));
        let bucket = WatchedStore::with_table(&table).await;
        let other = WatchedStore::with_table(&history("other")).await;
        for key in other.keys().await {
            for prefix in ["wh/u/", "wh/t2/"] {
                bucket.add(&key.replace("wh/t/", prefix), other.content(&key).await).await;
            }
        }
        let session = || {
            let session = Session::new(Some(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
            for (url, store) in [("s3://bucket", &bucket), ("s3://other", &other)] {
                session.context.register_object_store(&Url::parse(url).unwrap(), Arc::new(store.clone()));
            }
            session
        };
        let outside = || async {
            let own = bucket.keys().await.into_iter().filter(|key| !key.starts_with("wh/t/")).collect::<BTreeSet<_>>();
            (own, other.keys().await, disk(&local))
        };
        let before = outside().await;
        for call in calls("s3://bucket/wh/t") {
            let outcome = session().metrics(&call).await;
            assert!(outside().await == before, "{prefix:?}: {call}: {outcome:?}");
            let changes = |(kind, _): &(Kind, String)| !matches!(kind, Kind::Get | Kind::Head | Kind::List);
            let others = other.take_requests();
            assert!(!others.iter().any(changes), "{prefix:?}: {call}: {others:?}");
            let listed = others.iter().any(|(kind, _)| *kind == Kind::List);
            assert!(!listed, "{prefix:?}: {call}: the other bucket was listed");
            let left = bucket.keys().await;
            assert!(["wh/t/data/b.parquet", "wh/t/data/d.parquet"].iter().all(|key| left.contains(*key)), "{prefix:?}");
            expired += i32::from(call.contains("system.expire_snapshots") && outcome.is_ok());
        }
    }
    assert!(expired > 20, "most of these tables can be maintained: {expired} runs");
}

#[tokio::test]
async fn metadata_of_a_table_in_a_bucket_leads_to_no_file_of_this_machine() {
    let guard = tempfile::tempdir().unwrap();
    let local = guard.path().canonicalize().unwrap();
    for retained in [true, false] {
        let table = Table { location: Some("s3://bucket/wh/t".into()), ..history("t") };
        let bucket = WatchedStore::with_table(&table).await;
        let newest = bucket.keys().await.into_iter().filter(|key| key.ends_with(".metadata.json")).max().unwrap();
        let mut metadata: Value = serde_json::from_slice(&bucket.content(&newest).await).unwrap();
        let snapshots = metadata["snapshots"].as_array_mut().unwrap();
        let snapshot = if retained { snapshots.last_mut().unwrap() } else { snapshots.first_mut().unwrap() };
        // A perfect copy of the manifest list: whoever follows the path finds nothing wrong.
        let key = snapshot["manifest-list"].as_str().unwrap().trim_start_matches("s3://bucket/").to_string();
        let copy = local.join("list.avro");
        fs::write(&copy, bucket.content(&key).await).unwrap();
        snapshot["manifest-list"] = format!("file://{}", copy.display()).into();
        bucket.add(&newest, serde_json::to_vec(&metadata).unwrap()).await;
        let session = Session::new(Some(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
        let store = Arc::new(bucket.clone());
        session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), store);
        let outcome = session.metrics("CALL system.expire_snapshots('s3://bucket/wh/t')").await;
        match retained {
            true => assert!(outcome.unwrap_err().contains("a path of this machine")),
            false => assert_eq!(outcome.unwrap()["skipped_missing_metadata_count"], 1),
        }
        assert!(copy.exists());
    }
}

/// A plan as a run wrote it, with another header and other paths, under the name that its hash asks for.
fn forge(plan: &Path, change: impl Fn(&mut Value), paths: &[String]) -> PathBuf {
    let reader = FileReader::try_new(fs::File::open(plan).unwrap(), None).unwrap();
    let schema = reader.schema();
    let batch = reader.map(Result::unwrap).next().unwrap();
    let mut metadata = schema.metadata().clone();
    let mut header: Value = serde_json::from_str(&metadata["iceberg-maintenance"]).unwrap();
    change(&mut header);
    metadata.insert("iceberg-maintenance".into(), header.to_string());
    let file = (0..batch.num_rows()).find(|row| batch.column(0).as_string::<i32>().value(*row) == "file").unwrap();
    let rows: Vec<RecordBatch> = paths.iter().map(|_| batch.slice(file, 1)).collect();
    let schema = Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata));
    let rows = datafusion::arrow::compute::concat_batches(&batch.schema(), &rows).unwrap();
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    columns[1] = Arc::new(StringArray::from(paths.to_vec()));
    let mut content = vec![];
    let mut writer = FileWriter::try_new(&mut content, &schema).unwrap();
    writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = plan.file_name().unwrap().to_str().unwrap();
    let [run, kind, ..] = &name.split('.').collect::<Vec<_>>()[..] else { panic!("{name}") };
    let forged = plan.with_file_name(format!("{run}.{kind}.{hash}.arrow"));
    fs::remove_file(plan).unwrap();
    fs::write(&forged, content).unwrap();
    forged
}

fn only_plan(place: &Place) -> PathBuf {
    let files = fs::read_dir(place.table().join("metadata/_maintenance")).unwrap();
    let plans: Vec<_> =
        files.map(|file| file.unwrap().path()).filter(|file| file.to_str().unwrap().contains(".plan")).collect();
    let [plan] = &plans[..] else { panic!("{plans:?}") };
    plan.clone()
}

#[tokio::test]
async fn a_forged_journal_with_the_right_hash_deletes_nothing_outside_and_nothing_live() {
    for call in ["purge_deferred_files", "resume_maintenance", "expire_snapshots", "remove_orphan_files"] {
        let place = Place::new(&history("t"));
        let table = place.table();
        let t = table.to_str().unwrap();
        let session = Session::new(Some(NOW_MS));
        session.run(&format!("CALL system.expire_snapshots(table => '{t}', deferred => '1d')")).await.unwrap();
        let mut paths: Vec<String> =
            local_spellings(&place.warehouse).iter().map(|(_, prefix)| format!("{prefix}data/b.parquet")).collect();
        let own = disk(&table);
        let dead = |path: &&String| path.contains("_maintenance") || own[*path].is_folder;
        let live = ["data/b.parquet", "data/d.parquet"].map(|file| format!("file:{t}/{file}"));
        paths.extend(live.iter().cloned());
        paths.push(format!("{t}/data/linked.parquet"));
        let newest =
            own.keys().filter(|path| !dead(path)).filter(|path| path.ends_with(".metadata.json")).max().unwrap();
        paths.push(format!("file:{t}/{newest}"));
        let hint = table.join("metadata/version-hint.text");
        paths.push(format!("file:{}", hint.display()));
        paths.push(format!("file:{}/u/data/a.parquet", place.warehouse.display()));
        forge(&only_plan(&place), |header| header["external_allowed"] = json!(true), &paths);
        let before = place.others();
        let later = Session::new(Some(NOW_MS + 2 * DAY_MS));
        let metrics = later.metrics(&format!("CALL system.{call}('{t}')")).await;
        unchanged(&format!("{call}: {metrics:?}"), &before, &place.others()).unwrap();
        assert!(place.is_whole() && table.join(newest).exists() && hint.exists(), "{call}: {metrics:?}");
    }
}

#[tokio::test]
async fn what_lies_outside_is_not_deleted_later_for_being_permitted_once() {
    let place = Place::without_table();
    let w = place.warehouse.to_str().unwrap().to_string();
    let foreign = place.warehouse.join("x/data/a.parquet");
    fs::create_dir_all(foreign.parent().unwrap()).unwrap();
    fs::write(&foreign, "x").unwrap();
    let mut table = history("t");
    for manifest in table.manifests.values_mut() {
        manifest.entries.iter_mut().filter(|entry| entry.file.path == DATA).for_each(|entry| {
            entry.file = ContentFile { path: format!("{w}/x/data/a.parquet"), ..entry.file.clone() };
        });
    }
    table.write(place.table()).unwrap();
    let t = place.table().to_str().unwrap().to_string();
    let call = format!("CALL system.expire_snapshots(table => '{t}', deferred => '1d', delete_external_files => true)");
    Session::new(Some(NOW_MS)).run(&call).await.unwrap();
    let purge = format!("CALL system.purge_deferred_files('{t}')");
    let purged: MetricRows = Session::new(Some(NOW_MS + 2 * DAY_MS)).metrics(&purge).await.unwrap();
    assert!(foreign.exists(), "{purged:?}");
    assert_eq!(purged["skipped_external_count"], 1);
}

mod secrets {
    use std::collections::BTreeMap;
    use std::fmt::{Debug, Write};
    use std::sync::Mutex;

    use datafusion::arrow::util::pretty::pretty_format_batches;
    use futures::StreamExt;
    use iceberg_maintenance::catalog::connect;
    use iceberg_maintenance::{ConfiguredStores, Error, Maintenance, MaintenanceSql};
    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;
    use crate::proxy::{Proxy, Request, Verdict};

    /// What every secret of these tests begins with.
    const SECRET: &str = "hidden-";

    /// Whatever any code logs that holds a secret, at any level.
    #[derive(Default)]
    struct Listener;

    static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0, " {field}={value:?}");
        }
    }

    impl Line {
        fn heard(self) {
            if self.0.contains(SECRET) {
                HEARD.lock().unwrap().push(self.0);
            }
        }
    }

    impl tracing::Subscriber for Listener {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
            let mut line = Line(span.metadata().name().into());
            span.record(&mut line);
            line.heard();
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, values: &span::Record<'_>) {
            let mut line = Line("span".into());
            values.record(&mut line);
            line.heard();
        }

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line(event.metadata().target().into());
            event.record(&mut line);
            line.heard();
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    /// Every text that a call leaves: its rows or its error, also as a programmer sees it.
    async fn told(session: &Session, sql: &str) -> String {
        let outcome = async {
            let mut rows = vec![];
            let mut stream = session.context.maintenance_sql(sql).await?.execute_stream().await?;
            while let Some(batch) = stream.next().await {
                rows.push(batch?);
            }
            Ok::<_, datafusion::error::DataFusionError>(rows)
        };
        match outcome.await {
            Ok(rows) => pretty_format_batches(&rows).unwrap().to_string(),
            Err(error) => {
                let mut text = format!("{error}\n{error:?}\n{:?}", Error::find(&error));
                let mut cause: Option<&dyn std::error::Error> = Some(&error);
                while let Some(error) = cause {
                    let _ = write!(text, "\n{error}\n{error:?}");
                    cause = error.source();
                }
                text
            }
        }
    }

    fn all_calls(table: &str) -> Vec<String> {
        let more = [
            format!("EXPLAIN VERBOSE CALL system.expire_snapshots('{table}')"),
            format!("EXPLAIN ANALYZE CALL system.expire_snapshots('{table}')"),
            format!("SELECT * FROM maintenance_log('{table}')"),
            format!("SELECT * FROM maintenance_log('{table}', output => 'files')"),
            format!("SELECT * FROM maintenance_log('{table}', output => 'metadata')"),
            "SELECT * FROM information_schema.df_settings".to_string(),
        ];
        calls(table).into_iter().chain(more).collect()
    }

    /// The answers of a server that is wrong in many ways, and that repeats what it was sent.
    fn answers() -> Vec<(u16, &'static str)> {
        let xml = "<Error><Code>InvalidToken</Code><Message>wrong: ECHO</Message><Token-0>ECHO</Token-0></Error>";
        let json = r#"{"error":{"message":"wrong: ECHO","type":"X","code":400},"error_description":"no ECHO"}"#;
        // Not those that stores' clients try again for minutes.
        let statuses = [200, 301, 400, 401, 403, 404, 412, 419];
        statuses.into_iter().flat_map(|status| [(status, xml), (status, json), (status, "ECHO")]).collect()
    }

    /// All secrets that a request holds.
    fn echo(request: &Request) -> String {
        let headers = request.headers.iter().map(|(name, value)| format!("{name}: {value}"));
        let all = headers.chain([String::from_utf8_lossy(&request.body).into_owned()]).collect::<Vec<_>>().join(" ");
        let words = all.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        words.filter(|word| word.starts_with(SECRET)).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_secret_is_told_whatever_goes_wrong() {
        let _ = tracing::subscriber::set_global_default(Listener);
        let proxy = Proxy::before("http://127.0.0.1:1").await;
        let url = proxy.url().to_string();
        let s3 = [
            ("s3.endpoint", url.as_str()),
            ("s3.region", "eu-west-1"),
            ("s3.path-style-access", "true"),
            ("s3.access-key-id", "id"),
            ("s3.secret-access-key", "hidden-key"),
            ("s3.session-token", "hidden-session-token"),
        ];
        let with_s3 = |more: &[(&str, &str)]| properties(&[&s3[..], more].concat());
        let database = "postgresql://user:hidden-password@127.0.0.1:1/db";
        let catalogs = [
            ("warehouse", with_s3(&[("type", "hadoop"), ("warehouse", "s3://bucket/wh")])),
            ("token", with_s3(&[("type", "rest"), ("uri", &url), ("token", "hidden-token")])),
            ("client", with_s3(&[("type", "rest"), ("uri", &url), ("credential", "id:hidden-client")])),
            ("header", with_s3(&[("type", "rest"), ("uri", &url), ("header.Authorization", "Basic hidden-header")])),
            (
                "glue",
                with_s3(&[
                    ("type", "glue"),
                    ("glue.endpoint", &url),
                    ("client.region", "eu-west-1"),
                    ("client.access-key-id", "id"),
                    ("client.secret-access-key", "hidden-key"),
                    ("client.session-token", "hidden-session-token"),
                ]),
            ),
            ("database", with_s3(&[("type", "sql"), ("uri", database), ("warehouse", "s3://bucket/wh")])),
        ];
        let mut told_all = String::new();
        for (number, (status, body)) in answers().into_iter().enumerate() {
            proxy.on(move |request| match request.path.starts_with("/bucket") {
                // As S3 itself does it, which knows no more of the secrets.
                true => Verdict::Answer(
                    status,
                    format!(
                        "<Error><Code>InvalidToken</Code><Message>malformed</Message><Token-0>{}</Token-0></Error>",
                        echo(request)
                    ),
                ),
                false => Verdict::Answer(status, body.replace("ECHO", &echo(request))),
            });
            for (name, properties) in &catalogs {
                // A database that nobody answers for is asked once.
                if *name == "database" && number > 0 {
                    continue;
                }
                let builder = Maintenance::builder().catalog("lake", connect("lake", properties).unwrap());
                let session = Session::with(builder);
                let call = &all_calls("lake.ns.t")[(number % 4) * 3..][..2];
                for sql in call {
                    let text = told(&session, sql).await;
                    assert!(!text.contains(SECRET), "{name}, {status}: {sql}: {text}");
                    told_all.push_str(&text);
                }
            }
        }
        for part in ["401", "403", "lake"] {
            assert!(told_all.contains(part), "the calls were to fail in many ways, but nothing says {part}");
        }
        assert_eq!(*HEARD.lock().unwrap(), [""; 0]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_secret_of_a_catalog_is_in_the_journal_or_in_a_plan() {
        let _ = tracing::subscriber::set_global_default(Listener);
        let place = Place::without_table();
        history("t").write(place.warehouse.join("ns/t")).unwrap();
        let warehouse = place.warehouse.to_str().unwrap();
        let properties = properties(&[
            ("type", "hadoop"),
            ("warehouse", warehouse),
            ("s3.access-key-id", "hidden-id"),
            ("s3.secret-access-key", "hidden-key"),
            ("s3.session-token", "hidden-session-token"),
            ("token", "hidden-token"),
        ]);
        let stores = ConfiguredStores::new(&properties);
        let maintenance = Maintenance::builder().catalog("lake", connect("lake", &properties).unwrap());
        assert!(!format!("{stores:?} {maintenance:?}").contains(SECRET));
        let session = Session::with(maintenance);
        let mut acted = false;
        for sql in all_calls("lake.ns.t") {
            let text = told(&session, &sql).await;
            assert!(!text.contains(SECRET), "{sql}: {text}");
            acted |= text.contains("deleted_files_count");
        }
        assert!(acted, "something ran");
        let journal: Vec<PathBuf> = fs::read_dir(place.warehouse.join("ns/t/metadata/_maintenance"))
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|file| file.extension().is_some_and(|extension| extension == "arrow"))
            .collect();
        assert!(journal.len() >= 2, "{journal:?}");
        for file in journal {
            let reader = FileReader::try_new(fs::File::open(&file).unwrap(), None).unwrap();
            let metadata = format!("{:?}", reader.schema());
            let rows: Vec<_> = reader.map(Result::unwrap).collect();
            let text = format!("{metadata}{}", pretty_format_batches(&rows).unwrap());
            assert!(text.contains("iceberg-maintenance") && !text.contains(SECRET), "{}: {text}", file.display());
        }
        assert_eq!(*HEARD.lock().unwrap(), [""; 0]);
    }
}
