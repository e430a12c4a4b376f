//! What undo has promised is kept, whatever comes in between.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use iceberg_maintenance::fixtures::{History, Table};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::races::commit_edit;
use crate::support::{MetricRows, Session, disk, files, set_modified, unchanged};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 30 * DAY_MS;

/// A table on disk whose first two snapshots expire: with them go `a`, two manifest lists and a manifest.
struct Scene {
    guard: TempDir,
    history: History,
    before: BTreeSet<String>,
}

impl Scene {
    fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let table = Table { last_updated_ms: BEGIN_MS, modified_ms: Some(BEGIN_MS), ..Table::new(2) };
        let mut history = History::new(table);
        history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
        history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
        history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
        let mut scene = Self { guard, history, before: BTreeSet::new() };
        scene.history.table().write(scene.folder()).unwrap();
        scene.before = scene.files();
        scene
    }

    fn folder(&self) -> PathBuf {
        self.guard.path().canonicalize().unwrap().join("t")
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder().join(file)
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

    async fn at(&self, now_ms: i64, procedure: &str, more: &str) -> Result<MetricRows, String> {
        Session::new(Some(now_ms)).metrics(&self.call(procedure, more)).await
    }

    /// The names of the runs in the journal, and how each stands.
    async fn runs(&self) -> Vec<(String, String)> {
        let log = format!("SELECT run, status FROM maintenance_log('{}')", self.folder().display());
        let rows = Session::new(Some(NOW_MS)).rows(&log).await.unwrap();
        rows.into_iter().map(|row| (row["run"].clone().unwrap(), row["status"].clone().unwrap())).collect()
    }

    async fn is_healthy(&self) {
        let rows = Session::new(Some(NOW_MS)).rows(&self.call("verify_table", "")).await.unwrap();
        assert_eq!(rows.last().unwrap()["problem"].as_deref(), Some("healthy"), "{rows:?}");
    }

    fn add_stray(&self, file: &str) {
        fs::write(self.path(file), file).unwrap();
        set_modified(&self.path(file), BEGIN_MS as u64);
    }

    fn journal(&self, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("metadata/_maintenance")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file() && is(path.file_name().unwrap().to_str().unwrap())).collect()
    }

    /// Makes of a finished run one that died before it could say so.
    fn forget_the_end(&self) {
        self.journal(|name| !name.contains(".plan")).iter().for_each(|file| fs::remove_file(file).unwrap());
    }
}

fn run_argument(run: &str) -> String {
    format!(", run => '{run}'")
}

#[tokio::test]
async fn a_quarantined_file_that_was_committed_since_is_not_purged() {
    let mut scene = Scene::new();
    // A slow writer's file.
    scene.add_stray("data/late.parquet");
    let metrics = scene.at(NOW_MS, "remove_orphan_files", ", quarantine => true").await.unwrap();
    assert_eq!(metrics["quarantined_files_count"], 1);
    scene.history.append(NOW_MS, ["late"]);
    scene.history.table().write(scene.folder()).unwrap();
    fs::remove_file(scene.path("data/late.parquet")).unwrap();
    let purged = scene.at(NOW_MS + DAY_MS, "purge_quarantined_files", ", older_than => now()").await.unwrap();
    assert_eq!((purged["deleted_files_count"], purged["skipped_live_again_count"]), (0, 1));
    let (run, _) = &scene.runs().await[0];
    let returned = scene.at(NOW_MS + DAY_MS, "restore_quarantined_files", &run_argument(run)).await.unwrap();
    assert_eq!(returned["returned_files_count"], 1);
    assert_eq!(fs::read_to_string(scene.path("data/late.parquet")).unwrap(), "data/late.parquet");
}

#[tokio::test]
async fn what_a_dead_run_moved_comes_back_with_the_rest() {
    for orphans in [false, true] {
        let scene = Scene::new();
        let strays = ["data/s1.parquet", "data/s2.parquet", "data/s3.parquet"];
        strays.iter().filter(|_| orphans).for_each(|stray| scene.add_stray(stray));
        let procedure = if orphans { "remove_orphan_files" } else { "expire_snapshots" };
        let all = scene.at(NOW_MS, procedure, ", quarantine => true").await.unwrap()["quarantined_files_count"];
        assert!(all > 2);
        let (run, _) = scene.runs().await.remove(0);
        // It died when all but one were moved.
        scene.forget_the_end();
        let quarantine = scene.path("metadata/_maintenance/quarantine").join(&run);
        let one = if orphans { "data/s1.parquet" } else { "data/a.parquet" };
        let name = one.rsplit('/').next().unwrap();
        let moved = fs::read_dir(&quarantine).unwrap().map(|entry| entry.unwrap().path());
        let moved = moved.into_iter().find(|path| path.to_str().unwrap().ends_with(name)).unwrap();
        fs::create_dir_all(scene.path("data")).unwrap();
        fs::rename(moved, scene.path(one)).unwrap();
        let resumed = scene.at(NOW_MS, "resume_maintenance", "").await.unwrap();
        assert_eq!(resumed["quarantined_files_count"], all, "orphans: {orphans}");
        assert_eq!(scene.runs().await[0].1, "quarantined");
        let returned = scene.at(NOW_MS, "restore_quarantined_files", &run_argument(&run)).await.unwrap();
        assert_eq!(returned["returned_files_count"], all);
        assert!(scene.gone().is_empty());
    }
}

#[tokio::test]
async fn a_run_whose_last_delete_comes_later_is_over_then() {
    let scene = Scene::new();
    scene.at(NOW_MS, "expire_snapshots", ", deferred => '1 day'").await.unwrap();
    // In its place is a folder, which can't be deleted.
    let file = scene.path("data/a.parquet");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let purge = ", ignore_window => true, output => 'files'";
    Session::new(Some(NOW_MS)).rows_until_the_end(&scene.call("purge_deferred_files", purge)).await;
    assert_eq!(scene.gone().len(), 4);
    let partial = scene.journal(|name| name.contains("-partial")).len();
    assert_eq!(partial, 1);
    // Nothing new is noted where nothing is new.
    Session::new(Some(NOW_MS)).rows_until_the_end(&scene.call("purge_deferred_files", purge)).await;
    assert_eq!(scene.journal(|name| name.contains("-partial")).len(), 1);
    fs::remove_dir(&file).unwrap();
    fs::write(&file, "x").unwrap();
    scene.at(NOW_MS, "purge_deferred_files", ", ignore_window => true").await.unwrap();
    assert_eq!(scene.runs().await[0].1, "done");
    assert!(!file.exists());
}

#[tokio::test]
async fn a_dead_run_does_not_take_what_a_later_one_promised_to_keep() {
    let scene = Scene::new();
    scene.at(NOW_MS, "expire_snapshots", "").await.unwrap();
    scene.forget_the_end();
    // Its commit never came: the table is as it was.
    fs::remove_dir_all(scene.path("data")).unwrap();
    let plans: Vec<(PathBuf, Vec<u8>)> =
        scene.journal(|_| true).into_iter().map(|file| (file.clone(), fs::read(&file).unwrap())).collect();
    fs::remove_dir_all(scene.folder()).unwrap();
    scene.history.table().write(scene.folder()).unwrap();
    fs::create_dir_all(scene.path("metadata/_maintenance")).unwrap();
    plans.iter().for_each(|(file, content)| fs::write(file, content).unwrap());
    scene.at(NOW_MS + 1000, "expire_snapshots", ", deferred => '14 days'").await.unwrap();
    let later = NOW_MS + DAY_MS;
    for (procedure, more) in [
        ("expire_snapshots", ""),
        ("remove_orphan_files", ""),
        ("remove_orphan_files", ", location => 'data'"),
        ("resume_maintenance", ""),
    ] {
        let metrics = scene.at(later, procedure, more).await.unwrap();
        assert_eq!((metrics["deleted_files_count"], scene.gone().len()), (0, 0), "{procedure}{more}");
    }
    let (run, _) = scene.runs().await.pop().unwrap();
    let restored = scene.at(later, "restore_snapshots", &run_argument(&run)).await.unwrap();
    assert_eq!(restored["restored_snapshots_count"], 2);
    scene.is_healthy().await;
}

#[tokio::test]
async fn snapshots_are_not_put_back_under_another_schema_of_the_same_id() {
    let scene = Scene::new();
    let schema = |document: &mut Value, name: &str| {
        let field = json!({"id": 1, "name": name, "required": false, "type": "long"});
        let schemas = document["schemas"].as_array_mut().unwrap();
        schemas.push(json!({"schema-id": 7, "type": "struct", "fields": [field]}));
    };
    commit_edit(&scene.folder(), &|document| {
        schema(document, "theirs");
        let snapshots = document["snapshots"].as_array_mut().unwrap();
        snapshots.iter_mut().for_each(|snapshot| snapshot["schema-id"] = json!(0));
        snapshots[0]["schema-id"] = json!(7);
    });
    let more = ", deferred => '14 days', clean_expired_metadata => true";
    assert_eq!(scene.at(NOW_MS, "expire_snapshots", more).await.unwrap()["removed_schemas_count"], 1);
    commit_edit(&scene.folder(), &|document| schema(document, "totally_other"));
    let (run, _) = scene.runs().await.remove(0);
    let before = disk(&scene.folder());
    let error = scene.at(NOW_MS, "restore_snapshots", &run_argument(&run)).await.unwrap_err();
    assert!(error.contains("schema 7") && error.contains("nothing was put back"), "{error}");
    unchanged("restore_snapshots", &before, &disk(&scene.folder())).unwrap();
}

#[tokio::test]
async fn quarantined_files_come_back_although_the_table_needs_them_already() {
    let scene = Scene::new();
    let old = fs::read(newest_metadata(&scene.folder())).unwrap();
    scene.at(NOW_MS, "expire_snapshots", ", quarantine => true").await.unwrap();
    // Another tool puts the snapshots back.
    let old: Value = serde_json::from_slice(&old).unwrap();
    commit_edit(&scene.folder(), &|document| *document = old.clone());
    let (run, _) = scene.runs().await.remove(0);
    let returned = scene.at(NOW_MS, "restore_quarantined_files", &run_argument(&run)).await.unwrap();
    assert_eq!(returned["returned_files_count"], 4);
    scene.is_healthy().await;
}

fn newest_metadata(folder: &Path) -> PathBuf {
    let version = |path: &PathBuf| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix('v')?.strip_suffix(".metadata.json")?.parse().ok()
    };
    let files = fs::read_dir(folder.join("metadata")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| version(path).is_some()).max_by_key(version).unwrap()
}

#[tokio::test]
async fn a_plan_is_not_stored_in_the_table() {
    let scene = Scene::new();
    let before = disk(&scene.folder());
    for place in ["metadata/v23.metadata.json", "data/review.plan", "review.plan"] {
        let more = format!(", dry_run => true, plan => '{}'", scene.path(place).display());
        for procedure in ["expire_snapshots", "remove_orphan_files"] {
            let error = scene.at(NOW_MS, procedure, &more).await.unwrap_err();
            assert!(error.contains("the table's own folders"), "{error}");
        }
    }
    unchanged("plans", &before, &disk(&scene.folder())).unwrap();
}

#[tokio::test]
async fn a_window_without_an_end_is_refused() {
    let scene = Scene::new();
    let before = disk(&scene.folder());
    for window in ["99999999d", "9999y", "101y"] {
        let error = scene.at(NOW_MS, "expire_snapshots", &format!(", deferred => '{window}'")).await.unwrap_err();
        assert!(error.contains("longer than 100 years"), "{window}: {error}");
    }
    unchanged("windows", &before, &disk(&scene.folder())).unwrap();
    scene.at(NOW_MS, "expire_snapshots", ", deferred => '99y'").await.unwrap();
    assert_eq!(scene.runs().await[0].1, "deferred");
}

#[tokio::test]
async fn a_catalog_s_table_that_was_found_by_its_folder_keeps_what_earlier_runs_left() {
    use iceberg_maintenance::fixtures::MetadataNaming;
    let scene = Scene::new();
    // The same table under a catalog's names, and a run that left files.
    scene.at(NOW_MS, "expire_snapshots", ", deferred => '1 day'").await.unwrap();
    let plans: Vec<(PathBuf, Vec<u8>)> =
        scene.journal(|_| true).into_iter().map(|file| (file.clone(), fs::read(&file).unwrap())).collect();
    let newest = fs::read(newest_metadata(&scene.folder())).unwrap();
    let mut table = scene.history.table().clone();
    table.naming = MetadataNaming::Catalog;
    fs::remove_dir_all(scene.folder()).unwrap();
    table.write(scene.folder()).unwrap();
    fs::create_dir_all(scene.path("metadata/_maintenance")).unwrap();
    plans.iter().for_each(|(file, content)| fs::write(file, content).unwrap());
    fs::write(scene.path("metadata/00099-00000000-0000-4000-8000-000000000001.metadata.json"), newest).unwrap();
    let before = disk(&scene.folder());
    for procedure in ["expire_snapshots", "resume_maintenance", "purge_deferred_files"] {
        let error = scene.at(NOW_MS + 2 * DAY_MS, procedure, "").await.unwrap_err();
        assert!(error.contains("no_catalog => true"), "{procedure}: {error}");
        unchanged(procedure, &before, &disk(&scene.folder())).unwrap();
    }
    let purged = scene.at(NOW_MS + 2 * DAY_MS, "purge_deferred_files", ", no_catalog => true").await.unwrap();
    assert_eq!(purged["deleted_files_count"], 4);
}
