//! Plans that a dry run stored: what they let go, and what they are refused for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::arrow::ipc::writer::FileWriter;
use iceberg_maintenance::fixtures::{History, Ref, Table};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{MetricRows, Session, disk, files, set_modified, unchanged};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 30 * DAY_MS;
const STRAYS: [&str; 2] = ["data/stray-1.parquet", "data/stray-2.parquet"];

/// A table of four snapshots, of which 1 and 2 expire with `retain_last => 2`, and two orphans.
struct Scene {
    guard: TempDir,
    history: History,
    before: BTreeSet<String>,
}

impl Scene {
    fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let mut history = History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(2) });
        history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
        history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
        history.overwrite(BEGIN_MS + 3 * DAY_MS, ["c"], ["d"]);
        history.append(BEGIN_MS + 4 * DAY_MS, ["e"]);
        let mut scene = Self { guard, history, before: BTreeSet::new() };
        scene.write();
        for stray in STRAYS {
            fs::write(scene.folder().join(stray), stray).unwrap();
            set_modified(&scene.folder().join(stray), BEGIN_MS as u64);
        }
        scene.before = scene.files();
        scene
    }

    fn folder(&self) -> PathBuf {
        self.guard.path().canonicalize().unwrap().join("t")
    }

    /// Writes the history as it is now, as another writer would.
    fn write(&self) {
        self.history.table().write(self.folder()).unwrap();
    }

    fn plan(&self) -> String {
        self.guard.path().join("review.plan").display().to_string()
    }

    fn files(&self) -> BTreeSet<String> {
        files(&disk(&self.folder()))
    }

    fn gone(&self) -> BTreeSet<String> {
        self.before.difference(&self.files()).cloned().collect()
    }

    fn call(&self, procedure: &str, more: &str) -> String {
        format!("CALL system.{procedure}(table => '{}'{more})", self.folder().display())
    }

    async fn store(&self, procedure: &str, more: &str) -> MetricRows {
        let more = format!("{more}, dry_run => true, plan => '{}'", self.plan());
        let before = disk(&self.folder());
        let metrics = Session::new(Some(NOW_MS)).metrics(&self.call(procedure, &more)).await.unwrap();
        unchanged("a dry run", &before, &disk(&self.folder())).unwrap();
        metrics
    }

    async fn execute_at(&self, now_ms: i64) -> Result<MetricRows, String> {
        let call = self.call("execute_plan", &format!(", plan => '{}'", self.plan()));
        Session::new(Some(now_ms)).metrics(&call).await
    }

    async fn is_refused(&self, why: &str) {
        let before = disk(self.guard.path());
        let error = self.execute_at(NOW_MS).await.unwrap_err();
        assert!(error.contains(why), "{error}");
        unchanged(why, &before, &disk(self.guard.path())).unwrap();
    }
}

const EXPIRE: &str = "expire_snapshots";
const RETAIN_2: &str = ", older_than => now(), retain_last => 2";

#[tokio::test]
async fn a_stored_expiry_does_what_the_dry_run_said() {
    let scene = Scene::new();
    let planned = scene.store(EXPIRE, RETAIN_2).await;
    // Long after: what else is old by then is not in the plan.
    let done = scene.execute_at(NOW_MS + 100 * DAY_MS).await.unwrap();
    let same = |name: &&String| !["dry_run", "elapsed_ms", "active_files_count"].contains(&name.as_str());
    for name in planned.keys().filter(same) {
        assert_eq!(done[name], planned[name], "{name}");
    }
    assert_eq!(done["deleted_snapshots_count"], 2);
    let dead = scene.history.table().only_needed_by(&BTreeSet::from([1, 2]));
    assert_eq!(scene.gone(), dead.into_iter().map(|file| file.path).collect());
    scene.is_refused("snapshot").await;
}

#[tokio::test]
async fn what_came_since_stays() {
    let mut scene = Scene::new();
    scene.store(EXPIRE, RETAIN_2).await;
    let in_plan = scene.history.table().only_needed_by(&BTreeSet::from([1, 2]));
    // With these appends 3 and 4 would go, too.
    scene.history.append(NOW_MS, ["f"]);
    scene.history.append(NOW_MS + 1, ["g"]);
    scene.write();
    let done = scene.execute_at(NOW_MS + DAY_MS).await.unwrap();
    assert_eq!(done["deleted_snapshots_count"], 2);
    assert_eq!(scene.gone(), in_plan.into_iter().map(|file| file.path).collect());
}

#[tokio::test]
async fn a_file_that_is_live_again_stays_and_the_rest_goes() {
    let mut scene = Scene::new();
    scene.store(EXPIRE, RETAIN_2).await;
    scene.history.re_add(NOW_MS, ["a"]);
    scene.write();
    scene.execute_at(NOW_MS + DAY_MS).await.unwrap();
    let gone = scene.gone();
    assert!(!gone.is_empty() && !gone.contains("data/a.parquet"), "{gone:?}");
}

#[tokio::test]
async fn a_plan_that_does_not_fit_any_more_is_refused() {
    let tagged: fn(&mut History) = |history| _ = history.tag("audit", 1);
    let branched: fn(&mut History) = |history| _ = history.branch("side", 2);
    let rolled_back: fn(&mut History) = |history| _ = history.rollback_to(NOW_MS, 2);
    let old_ref: fn(&mut History) = |history| _ = history.set_ref("old", Ref::tag(3).max_ref_age_ms(1));
    for (change, why) in [
        (tagged, "snapshot 1 would stay now: ref audit points to it"),
        (branched, "would stay now"),
        (rolled_back, "would stay now"),
        (old_ref, "ref old would go now"),
    ] {
        let mut scene = Scene::new();
        scene.store(EXPIRE, RETAIN_2).await;
        change(&mut scene.history);
        scene.write();
        scene.is_refused(why).await;
    }
}

#[tokio::test]
async fn a_plan_of_another_table_is_refused() {
    for procedure in [EXPIRE, "remove_orphan_files"] {
        let scene = Scene::new();
        scene.store(procedure, "").await;
        // The same folder, another table.
        let other =
            Table { uuid: Some("00000000-0000-4000-8000-000000000001".into()), ..scene.history.table().clone() };
        fs::remove_dir_all(scene.folder()).unwrap();
        other.write(scene.folder()).unwrap();
        scene.is_refused("it is of another table").await;
    }
}

/// The same plan with another header or other rows.
fn edit(plan: &str, header: impl Fn(&mut Value), paths: impl Fn(&str) -> String) {
    let reader = FileReader::try_new(fs::File::open(plan).unwrap(), None).unwrap();
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let mut metadata = schema.metadata().clone();
    let entry = metadata.get_mut("iceberg-maintenance").unwrap();
    let mut document: Value = serde_json::from_str(entry).unwrap();
    header(&mut document);
    *entry = document.to_string();
    let schema = Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata));
    let mut writer = FileWriter::try_new(fs::File::create(plan).unwrap(), &schema).unwrap();
    for batch in batches {
        let names = batch.column_by_name("name").unwrap().as_any().downcast_ref::<StringArray>().unwrap();
        let names: StringArray = names.iter().map(|name| name.map(&paths)).collect();
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        columns[schema.index_of("name").unwrap()] = Arc::new(names);
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

#[tokio::test]
async fn an_edited_plan_is_refused() {
    let scene = Scene::new();
    scene.store(EXPIRE, RETAIN_2).await;
    let original = fs::read(scene.plan()).unwrap();
    // Stored anew it is as good as before: what counts is what it says.
    edit(&scene.plan(), |_| {}, str::to_string);
    let dry = scene.call("execute_plan", &format!(", plan => '{}', dry_run => true", scene.plan()));
    assert_eq!(Session::new(Some(NOW_MS)).metrics(&dry).await.unwrap()["deleted_snapshots_count"], 2);
    type Edit = (fn(&mut Value), fn(&str) -> String);
    let edits: [Edit; 4] = [
        (|_| {}, |path| path.replace("data/a.parquet", "data/d.parquet")),
        (|header| header["options"]["delete_external_files"] = json!(true), str::to_string),
        (|header| header["plan"]["location"] = json!("/elsewhere"), str::to_string),
        (|header| header["digest"] = json!(""), str::to_string),
    ];
    for (header, paths) in edits {
        fs::write(scene.plan(), &original).unwrap();
        edit(&scene.plan(), header, paths);
        scene.is_refused("edited or cut short").await;
    }
    for length in [0, 7, original.len() / 2, original.len() - 1] {
        fs::write(scene.plan(), &original[..length]).unwrap();
        scene.is_refused("can't be read as a stored plan").await;
    }
}

#[tokio::test]
async fn a_stored_removal_of_orphans_removes_these_and_no_others() {
    let scene = Scene::new();
    let planned = scene.store("remove_orphan_files", "").await;
    assert_eq!(planned["deleted_files_count"], 2);
    let late = scene.folder().join("data/stray-3.parquet");
    fs::write(&late, "x").unwrap();
    set_modified(&late, BEGIN_MS as u64);
    // Somebody wrote it again, with another content.
    fs::write(scene.folder().join(STRAYS[1]), "something longer than before").unwrap();
    set_modified(&scene.folder().join(STRAYS[1]), BEGIN_MS as u64 + 1000);
    let done = scene.execute_at(NOW_MS + DAY_MS).await.unwrap();
    assert_eq!(done["deleted_files_count"], 1);
    assert_eq!(scene.gone(), BTreeSet::from([STRAYS[0].to_string()]));
    assert!(late.exists());
    let again = scene.execute_at(NOW_MS + DAY_MS).await.unwrap();
    assert_eq!(again["deleted_files_count"], 0);
}

#[tokio::test]
async fn a_plan_is_stored_over_nothing_and_only_by_whom_may_act() {
    let scene = Scene::new();
    fs::write(scene.plan(), "mine").unwrap();
    let store = |more: &str| scene.call(EXPIRE, &format!("{more}, plan => '{}'", scene.plan()));
    let session = Session::new(Some(NOW_MS));
    let error = session.metrics(&store(", dry_run => true")).await.unwrap_err();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(fs::read(scene.plan()).unwrap(), b"mine");
    fs::remove_file(scene.plan()).unwrap();
    let error = session.metrics(&store("")).await.unwrap_err();
    assert!(error.contains("add dry_run => true"), "{error}");
    session.run("SET iceberg_maintenance.table_functions = 'plan_only'").await.unwrap();
    let error = session.metrics(&store(", dry_run => true")).await.unwrap_err();
    assert!(error.contains("plan_only"), "{error}");
    assert!(!Path::new(&scene.plan()).exists());
}

#[tokio::test]
async fn a_window_of_a_stored_plan_begins_with_its_execution() {
    for (procedure, more) in [(EXPIRE, RETAIN_2), ("remove_orphan_files", "")] {
        let scene = Scene::new();
        scene.store(procedure, &format!("{more}, deferred => '14d'")).await;
        let later = NOW_MS + 10 * DAY_MS;
        let done = scene.execute_at(later).await.unwrap();
        assert!(done["deferred_files_count"] > 0 && done["deleted_files_count"] == 0, "{done:?}");
        let purge = scene.call("purge_deferred_files", "");
        let purged = Session::new(Some(later + 13 * DAY_MS)).metrics(&purge).await.unwrap();
        assert_eq!(purged["deleted_files_count"], 0);
        let purged = Session::new(Some(later + 15 * DAY_MS)).metrics(&purge).await.unwrap();
        assert_eq!(purged["deleted_files_count"], done["deferred_files_count"]);
    }
}

#[tokio::test]
async fn a_list_of_files_may_be_old_but_what_it_says_is_looked_up() {
    let scene = Scene::new();
    let session = Session::new(Some(NOW_MS));
    let row = |file: &str| {
        let path = scene.folder().join(file);
        format!("SELECT '{}' AS path, to_timestamp_millis({BEGIN_MS}) AS modified, 14 AS size", path.display())
    };
    let rows = [row("data/e.parquet"), row(STRAYS[0]), row(STRAYS[1])].join(" UNION ALL ");
    session.run(&format!("CREATE VIEW inventory AS {rows}")).await.unwrap();
    // Somebody wrote it again since the list was made.
    set_modified(&scene.folder().join(STRAYS[1]), BEGIN_MS as u64 + 5000);
    let call = |more: &str| scene.call("remove_orphan_files", &format!(", file_list => 'inventory'{more}"));
    let error = session.metrics(&call(", max_file_list_age => '1 day'")).await.unwrap_err();
    assert!(error.contains("4.00d older than the table's metadata"), "{error}");
    assert_eq!(session.metrics(&call(", max_file_list_age => '5 days'")).await.unwrap()["deleted_files_count"], 1);
    assert_eq!(scene.gone(), BTreeSet::from([STRAYS[0].to_string()]));
}

#[tokio::test]
async fn a_review_shows_what_is_in_the_plan_and_nothing_that_earlier_runs_left() {
    for procedure in [EXPIRE, "remove_orphan_files"] {
        let scene = Scene::new();
        // A run that put its deletion off, and whose time has come.
        let earlier = scene.call(EXPIRE, ", older_than => now(), retain_last => 3, deferred => '1 hour'");
        let deferred = Session::new(Some(NOW_MS - DAY_MS)).metrics(&earlier).await.unwrap()["deferred_files_count"];
        let more = if procedure == EXPIRE { RETAIN_2 } else { "" };
        let with_earlier = scene.call(procedure, &format!("{more}, dry_run => true"));
        let with_earlier = Session::new(Some(NOW_MS)).metrics(&with_earlier).await.unwrap()["deleted_files_count"];
        let reviewed = scene.store(procedure, more).await["deleted_files_count"];
        assert!(
            deferred > 0 && reviewed == with_earlier - deferred,
            "{procedure}: {reviewed} {with_earlier} {deferred}"
        );
        assert_eq!(scene.execute_at(NOW_MS).await.unwrap()["deleted_files_count"], reviewed, "{procedure}");
    }
}

#[tokio::test]
async fn a_list_of_files_that_has_none_of_the_table_is_refused_even_if_it_has_no_orphan() {
    let scene = Scene::new();
    let session = Session::new(Some(NOW_MS));
    let columns = format!("AS path, to_timestamp_millis({BEGIN_MS}) AS modified, 14 AS size");
    for rows in [format!("SELECT 'x' {columns} WHERE false"), format!("SELECT 's3://elsewhere/x.parquet' {columns}")] {
        session.run(&format!("CREATE OR REPLACE VIEW inventory AS {rows}")).await.unwrap();
        let error =
            session.metrics(&scene.call("remove_orphan_files", ", file_list => 'inventory'")).await.unwrap_err();
        assert!(error.contains("listed files is one of the table's 5 live files"), "{rows}: {error}");
    }
}
