//! The journal of runs: what it says, what is finished by it, what is put off, and that it decides nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use iceberg_maintenance::fixtures::{History, Ref, Table, uuid_of};
use tempfile::TempDir;

use crate::support::{MetricRows, Row, Session, disk, files, set_modified, unchanged};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
/// All snapshots but the newest are old by then.
const NOW_MS: i64 = BEGIN_MS + 30 * DAY_MS;

/// A table on disk whose first two snapshots expire: with them go `a`, two manifest lists and a manifest.
struct Scene {
    _guard: TempDir,
    folder: PathBuf,
    before: BTreeSet<String>,
}

impl Scene {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(more: impl FnOnce(&mut History)) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let folder = guard.path().canonicalize().unwrap().join("t");
        let mut history = History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(2) });
        history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
        history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
        history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
        more(&mut history);
        history.build().write(&folder).unwrap();
        let before = files(&disk(&folder));
        Self { _guard: guard, folder, before }
    }

    fn at(&self, now_ms: i64) -> Session {
        Session::new(Some(now_ms))
    }

    fn call(&self, procedure: &str, more: &str) -> String {
        format!("CALL system.{procedure}(table => '{}'{more})", self.folder.display())
    }

    async fn run_at(&self, now_ms: i64, procedure: &str, more: &str) -> MetricRows {
        self.at(now_ms).metrics(&self.call(procedure, more)).await.unwrap()
    }

    async fn log(&self, now_ms: i64, more: &str) -> Vec<Row> {
        let sql = format!("SELECT * FROM maintenance_log('{}'{more})", self.folder.display());
        self.at(now_ms).rows(&sql).await.unwrap()
    }

    fn gone(&self) -> BTreeSet<String> {
        self.before.difference(&self.files()).cloned().collect()
    }

    fn files(&self) -> BTreeSet<String> {
        files(&disk(&self.folder))
    }

    fn journal(&self) -> PathBuf {
        self.folder.join("metadata/_maintenance")
    }

    fn journal_files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.journal()) else { return vec![] };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row[column].as_deref().unwrap_or("NULL")
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_run_is_in_the_log_with_its_files_and_what_it_took_out_of_the_metadata() {
    let scene = Scene::with(|history| {
        history.set_ref("old", Ref::tag(1).max_ref_age_ms(DAY_MS));
    });
    let metrics = scene.run_at(NOW_MS, "expire_snapshots", "").await;
    let [run] = &scene.log(NOW_MS, "").await[..] else { panic!("one run") };
    assert_eq!(text(run, "operation"), "expire_snapshots");
    assert_eq!(text(run, "status"), "done");
    let count = |name: &str| text(run, name).parse::<i64>().unwrap();
    assert_eq!(count("files_count"), metrics["deleted_files_count"]);
    assert_eq!(count("deleted_files_count"), metrics["deleted_files_count"]);
    assert_eq!(count("bytes"), metrics["deleted_bytes"]);
    assert_eq!((count("removed_snapshots_count"), count("removed_refs_count")), (2, 1));
    let files = scene.log(NOW_MS, ", output => 'files'").await;
    let prefix = format!("file:{}/", scene.folder.display());
    let named = files.iter().map(|row| text(row, "file_path").replace(&prefix, "")).collect::<BTreeSet<_>>();
    assert_eq!(named, scene.gone());
    assert!(files.iter().all(|row| text(row, "status") == "deleted"), "{files:?}");
    let parts = scene.log(NOW_MS, ", output => 'metadata'").await;
    let fields: Vec<_> = parts.iter().map(|row| (text(row, "field"), text(row, "name"))).collect();
    assert!(fields.contains(&("refs", "old")) && fields.contains(&("snapshots", "NULL")), "{fields:?}");
}

#[tokio::test]
async fn dry_runs_runs_without_work_and_refused_calls_write_no_journal() {
    let scene = Scene::new();
    let before = disk(&scene.folder);
    let session = scene.at(NOW_MS);
    session.run(&scene.call("expire_snapshots", ", dry_run => true")).await.unwrap();
    session.run(&scene.call("expire_snapshots", ", max_delete_count => 1")).await.unwrap_err();
    session.run(&scene.call("remove_orphan_files", "")).await.unwrap();
    session.run(&scene.call("resume_maintenance", "")).await.unwrap();
    unchanged("nothing to do", &before, &disk(&scene.folder)).unwrap();
    scene.run_at(NOW_MS, "expire_snapshots", "").await;
    let after = disk(&scene.folder);
    for procedure in ["expire_snapshots", "remove_orphan_files", "resume_maintenance", "purge_deferred_files"] {
        scene.run_at(NOW_MS, procedure, "").await;
    }
    unchanged("a second run", &after, &disk(&scene.folder)).unwrap();
}

#[tokio::test]
async fn without_a_journal_none_is_written_and_nothing_can_be_put_off() {
    let scene = Scene::new();
    let session = scene.at(NOW_MS);
    session.run("SET iceberg_maintenance.journal = 'off'").await.unwrap();
    let error = session.run(&scene.call("expire_snapshots", ", deferred => '1d'")).await.unwrap_err();
    assert!(error.contains("a recovery window needs a journal"), "{error}");
    session.run(&scene.call("expire_snapshots", "")).await.unwrap();
    assert!(!scene.gone().is_empty() && scene.journal_files().is_empty());
}

#[tokio::test]
async fn a_journal_that_can_not_be_written_stops_the_run_before_its_commit() {
    let scene = Scene::new();
    fs::write(scene.journal(), "a file in the way").unwrap();
    let error = scene.at(NOW_MS).run(&scene.call("expire_snapshots", "")).await.unwrap_err();
    assert!(error.contains("journal"), "{error}");
    assert!(scene.gone().is_empty());
}

/// Makes of a finished run one that died before its first delete.
fn forget_the_end(scene: &Scene) {
    for file in scene.journal_files().iter().filter(|file| !file.to_str().unwrap().contains(".plan")) {
        remove(file);
    }
}

#[tokio::test]
async fn what_a_dead_run_left_is_finished_by_the_next_run_and_both_say_so() {
    let scene = Scene::new();
    let dead: Vec<_> = {
        let kept = scene.before.iter().map(|file| (file.clone(), fs::read(scene.folder.join(file)).unwrap()));
        let kept: Vec<_> = kept.collect();
        scene.run_at(NOW_MS, "expire_snapshots", "").await;
        let gone = scene.gone();
        kept.into_iter().filter(|(file, _)| gone.contains(file)).collect()
    };
    forget_the_end(&scene);
    for (file, content) in &dead {
        fs::create_dir_all(scene.folder.join(file).parent().unwrap()).unwrap();
        fs::write(scene.folder.join(file), content).unwrap();
    }
    assert_eq!(text(&scene.log(NOW_MS, "").await[0], "status"), "unfinished");
    let soon = scene.run_at(NOW_MS + 60_000, "expire_snapshots", "").await;
    assert_eq!(soon["deleted_files_count"], 0, "it may still be running");
    let later = NOW_MS + 3_600_000;
    let dry = scene.run_at(later, "expire_snapshots", ", dry_run => true").await;
    let orphans = scene.run_at(later, "remove_orphan_files", ", dry_run => true").await;
    let real = scene.run_at(later, "expire_snapshots", "").await;
    for metrics in [&dry, &orphans, &real] {
        assert_eq!(metrics["deleted_files_count"], dead.len() as i64);
    }
    assert_eq!(scene.gone(), dead.iter().map(|(file, _)| file.clone()).collect());
    let log = scene.log(later, "").await;
    assert_eq!(log.iter().map(|row| text(row, "status")).collect::<Vec<_>>(), ["done"]);
    let again = scene.run_at(later, "resume_maintenance", "").await;
    assert_eq!((again["deleted_files_count"], again["already_missing_files_count"]), (0, 0));
}

#[tokio::test]
async fn a_file_that_is_live_again_stays_whatever_the_journal_says() {
    let scene = Scene::new();
    let backup: Vec<_> =
        scene.before.iter().map(|file| (file.clone(), fs::read(scene.folder.join(file)).unwrap())).collect();
    scene.run_at(NOW_MS, "expire_snapshots", "").await;
    forget_the_end(&scene);
    // Somebody puts the whole table back as it was, from a backup.
    let newest = scene.files().into_iter().filter(|file| !scene.before.contains(file)).collect::<Vec<_>>();
    newest.iter().for_each(|file| remove(&scene.folder.join(file)));
    for (file, content) in &backup {
        fs::create_dir_all(scene.folder.join(file).parent().unwrap()).unwrap();
        fs::write(scene.folder.join(file), content).unwrap();
    }
    let later = NOW_MS + 3_600_000;
    let metrics = scene.run_at(later, "resume_maintenance", "").await;
    assert_eq!(metrics["deleted_files_count"], 0);
    assert_eq!(scene.files(), scene.before);
    assert_eq!(text(&scene.log(later, "").await[0], "status"), "unfinished", "its commit may still come");
    let next_week = NOW_MS + 7 * DAY_MS;
    scene.run_at(next_week, "resume_maintenance", "").await;
    assert_eq!(text(&scene.log(next_week, "").await[0], "status"), "not-committed");
    assert_eq!(scene.files(), scene.before);
}

#[tokio::test]
async fn a_journal_of_another_table_or_one_that_was_edited_deletes_nothing() {
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '1d'").await;
    let [plan] = &scene.journal_files()[..] else { panic!("one plan") };
    let content = fs::read(plan).unwrap();
    let later = NOW_MS + 2 * DAY_MS;
    let other = Scene::with(|history| {
        history.table_mut().uuid = Some(uuid_of("other"));
    });
    fs::create_dir_all(other.journal()).unwrap();
    fs::write(other.journal().join(plan.file_name().unwrap()), &content).unwrap();
    let before = other.files();
    let metrics = other.run_at(later, "purge_deferred_files", "").await;
    assert_eq!((metrics["deleted_files_count"], other.files()), (0, before));
    for position in (0..content.len()).step_by(97) {
        let mut edited = content.clone();
        edited[position] ^= 0x41;
        fs::write(plan, &edited).unwrap();
        let dry = scene.at(later).metrics(&scene.call("purge_deferred_files", ", dry_run => true")).await.unwrap();
        assert_eq!(dry["deleted_files_count"], 0, "byte {position}");
    }
    fs::write(plan, &content[..content.len() / 2]).unwrap();
    let named = text(&scene.log(later, "").await[0], "status").to_string();
    assert_eq!(named, "unreadable");
    let error = scene.at(later).run(&scene.call("purge_deferred_files", &run_of(plan))).await.unwrap_err();
    assert!(error.contains("can't be read as a journal"), "{error}");
    assert!(scene.gone().is_empty());
}

fn run_of(plan: &Path) -> String {
    let name = plan.file_name().unwrap().to_str().unwrap();
    format!(", run => '{}'", name.split_once('.').unwrap().0)
}

#[tokio::test]
async fn deferred_files_stay_until_their_window_has_passed_and_go_with_the_next_run() {
    let scene = Scene::new();
    let dry = scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '14 days', dry_run => true").await;
    let metrics = scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '14 days'").await;
    for metrics in [&dry, &metrics] {
        assert_eq!((metrics["deleted_files_count"], metrics["deferred_files_count"]), (0, 4));
        assert!(metrics["deferred_bytes"] > 0);
        assert_eq!(metrics["deleted_snapshots_count"], 2);
    }
    assert!(scene.gone().is_empty());
    let almost = NOW_MS + 13 * DAY_MS;
    assert_eq!(text(&scene.log(almost, "").await[0], "status"), "deferred");
    for procedure in ["expire_snapshots", "purge_deferred_files", "resume_maintenance"] {
        assert_eq!(scene.run_at(almost, procedure, "").await["deleted_files_count"], 0, "{procedure}");
    }
    // For orphan removal the files are unreferenced and old, but promised.
    for file in &scene.before {
        set_modified(&scene.folder.join(file), u64::try_from(BEGIN_MS).unwrap());
    }
    let orphans = scene.run_at(almost, "remove_orphan_files", "").await;
    assert_eq!((orphans["deleted_files_count"], orphans["skipped_recoverable_files_count"]), (0, 4));
    assert!(scene.gone().is_empty());
    let due = NOW_MS + 15 * DAY_MS;
    assert_eq!(text(&scene.log(due, "").await[0], "status"), "due");
    let purged = scene.run_at(due, "expire_snapshots", "").await;
    assert_eq!(purged["deleted_files_count"], 4);
    assert_eq!(scene.gone().len(), 4);
    assert_eq!(text(&scene.log(due, "").await[0], "status"), "done");
}

#[tokio::test]
async fn purging_goes_by_run_and_can_leave_the_window_aside() {
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", ", snapshot_ids => [1], deferred => '14d'").await;
    scene.run_at(NOW_MS + 1, "expire_snapshots", ", snapshot_ids => [2], deferred => '14d'").await;
    let runs: Vec<_> = scene.log(NOW_MS, "").await.iter().map(|row| text(row, "run").to_string()).collect();
    let [first, _] = &runs[..] else { panic!("two runs: {runs:?}") };
    let named = format!(", run => '{first}', ignore_window => true");
    let dry = scene.run_at(NOW_MS, "purge_deferred_files", &format!("{named}, dry_run => true")).await;
    let metrics = scene.run_at(NOW_MS, "purge_deferred_files", &named).await;
    assert_eq!(dry["deleted_files_count"], metrics["deleted_files_count"]);
    assert_eq!(scene.gone().len() as i64, metrics["deleted_files_count"]);
    let statuses: Vec<_> = scene.log(NOW_MS, "").await.iter().map(|row| text(row, "status").to_string()).collect();
    assert_eq!(statuses, ["done", "deferred"]);
    let unknown = scene.call("purge_deferred_files", ", run => '20260131T120000000Z-0123abcd'");
    assert!(scene.at(NOW_MS).run(&unknown).await.unwrap_err().contains("has no run 20260131T120000000Z-0123abcd"));
    let nonsense = scene.at(NOW_MS).run(&scene.call("purge_deferred_files", ", run => 'yesterday'")).await;
    assert!(nonsense.unwrap_err().contains("is no name of a run"));
}

#[tokio::test]
async fn a_table_or_a_session_may_have_a_window_and_the_call_beats_both() {
    let with_window = |history: &mut History| {
        history.table_mut().properties.insert("maintenance.recovery-window".into(), "7 days".into());
    };
    let scene = Scene::with(with_window);
    assert_eq!(scene.run_at(NOW_MS, "expire_snapshots", "").await["deferred_files_count"], 4);
    let scene = Scene::with(with_window);
    let metrics = scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '0s'").await;
    assert_eq!((metrics["deferred_files_count"], metrics["deleted_files_count"]), (0, 4));
    let scene = Scene::new();
    let session = scene.at(NOW_MS);
    session.run("SET iceberg_maintenance.recovery_window = '1d'").await.unwrap();
    let metrics = session.metrics(&scene.call("expire_snapshots", "")).await.unwrap();
    assert_eq!((metrics["deferred_files_count"], metrics["deleted_files_count"]), (4, 0));
    let broken = Scene::with(|history| {
        history.table_mut().properties.insert("maintenance.recovery-window".into(), "a while".into());
    });
    let error = broken.at(NOW_MS).run(&broken.call("expire_snapshots", "")).await.unwrap_err();
    assert!(error.contains("maintenance.recovery-window = 'a while'"), "{error}");
}

#[tokio::test]
async fn orphans_can_be_put_off_too() {
    let scene = Scene::new();
    let stray = scene.folder.join("data/stray.parquet");
    fs::write(&stray, "x").unwrap();
    set_modified(&stray, u64::try_from(BEGIN_MS).unwrap());
    let metrics = scene.run_at(NOW_MS, "remove_orphan_files", ", deferred => '3d'").await;
    assert_eq!((metrics["deferred_files_count"], metrics["deleted_files_count"]), (1, 0));
    let again = scene.run_at(NOW_MS + DAY_MS, "remove_orphan_files", "").await;
    assert_eq!((again["skipped_recoverable_files_count"], again["deleted_files_count"]), (1, 0));
    assert!(stray.exists());
    // A file that was written again is another one.
    let due = NOW_MS + 4 * DAY_MS;
    set_modified(&stray, u64::try_from(due - 1).unwrap());
    let metrics = scene.run_at(due, "purge_deferred_files", "").await;
    assert_eq!((metrics["skipped_too_young_count"], metrics["deleted_files_count"]), (1, 0));
    assert!(stray.exists());
}

#[tokio::test]
async fn with_a_window_what_another_tool_let_go_lately_is_no_orphan_yet() {
    let scene = Scene::new();
    // As another tool does it that leaves the files behind.
    let session = scene.at(NOW_MS);
    session.run("SET iceberg_maintenance.journal = 'off'").await.unwrap();
    session.run(&scene.call("expire_snapshots", ", delete_files => false")).await.unwrap();
    for file in &scene.before {
        set_modified(&scene.folder.join(file), u64::try_from(BEGIN_MS).unwrap());
    }
    let later = NOW_MS + 5 * DAY_MS;
    let dry = scene.run_at(later, "remove_orphan_files", ", dry_run => true").await;
    assert_eq!(dry["deleted_files_count"], 4);
    let within = scene.run_at(later, "remove_orphan_files", ", deferred => '10d', dry_run => true").await;
    assert_eq!((within["skipped_recoverable_files_count"], within["deferred_files_count"]), (4, 0));
    let beyond = scene.run_at(later, "remove_orphan_files", ", deferred => '2d', dry_run => true").await;
    assert_eq!((beyond["skipped_recoverable_files_count"], beyond["deferred_files_count"]), (0, 4));
}

#[tokio::test]
async fn the_journal_is_no_orphan_and_losing_it_breaks_nothing() {
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '1d'").await;
    for file in scene.journal_files() {
        set_modified(&file, u64::try_from(BEGIN_MS).unwrap());
    }
    for more in ["", ", location => 'metadata'", ", location => 'metadata/_maintenance'", ", include_foreign => true"] {
        let call = scene.call("remove_orphan_files", &format!("{more}, dry_run => true, output => 'files'"));
        let rows = scene.at(NOW_MS).rows(&call).await.unwrap();
        assert!(rows.iter().all(|row| !text(row, "file_path").contains("_maintenance")), "{more}: {rows:?}");
    }
    scene.journal_files().iter().for_each(|file| remove(file));
    let due = NOW_MS + 2 * DAY_MS;
    assert_eq!(scene.run_at(due, "expire_snapshots", "").await["deleted_files_count"], 0);
    for file in &scene.before {
        set_modified(&scene.folder.join(file), u64::try_from(BEGIN_MS).unwrap());
    }
    assert_eq!(scene.run_at(due, "remove_orphan_files", "").await["deleted_files_count"], 4);
}

#[tokio::test]
async fn journals_of_runs_that_are_over_are_kept_for_a_while() {
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", "").await;
    assert_eq!(scene.journal_files().len(), 2);
    scene.run_at(NOW_MS + 29 * DAY_MS, "expire_snapshots", "").await;
    assert_eq!(scene.journal_files().len(), 2);
    scene.run_at(NOW_MS + 31 * DAY_MS, "expire_snapshots", ", dry_run => true").await;
    assert_eq!(scene.journal_files().len(), 2);
    scene.run_at(NOW_MS + 31 * DAY_MS, "expire_snapshots", "").await;
    assert!(scene.journal_files().is_empty());
}

/// All files with their contents.
fn contents(scene: &Scene) -> std::collections::BTreeMap<String, Vec<u8>> {
    scene.files().into_iter().map(|file| (file.clone(), fs::read(scene.folder.join(&file)).unwrap())).collect()
}

#[tokio::test]
async fn quarantined_files_come_back_as_they_were() {
    let scene = Scene::new();
    let before = contents(&scene);
    let dry = scene.run_at(NOW_MS, "expire_snapshots", ", quarantine => true, dry_run => true").await;
    let real = scene.run_at(NOW_MS, "expire_snapshots", ", quarantine => true").await;
    for metrics in [&dry, &real] {
        assert_eq!((metrics["deleted_files_count"], metrics["quarantined_files_count"]), (0, 4));
        assert!(metrics["quarantined_bytes"] > 0);
    }
    assert_eq!(scene.gone().len(), 4);
    assert_eq!(text(&scene.log(NOW_MS, "").await[0], "status"), "quarantined");
    let run = text(&scene.log(NOW_MS, "").await[0], "run").to_string();
    let more = format!(", run => '{run}'");
    // Nobody else touches what is in quarantine, however old it is.
    let later = NOW_MS + 100 * DAY_MS;
    for call in ["expire_snapshots", "remove_orphan_files", "resume_maintenance", "purge_deferred_files"] {
        assert_eq!(scene.run_at(later, call, "").await["deleted_files_count"], 0, "{call}");
    }
    let error = scene.at(later).run(&scene.call("restore_snapshots", &more)).await.unwrap_err();
    assert!(error.contains("restore_quarantined_files first"), "{error}");
    let dry = scene.run_at(later, "restore_quarantined_files", &format!("{more}, dry_run => true")).await;
    let real = scene.run_at(later, "restore_quarantined_files", &more).await;
    assert_eq!((dry["returned_files_count"], real["returned_files_count"]), (4, 4));
    assert!(scene.gone().is_empty());
    let after = contents(&scene);
    let is_hint = |file: &str| file.ends_with("version-hint.text");
    assert!(before.iter().all(|(file, content)| after[file] == *content || is_hint(file)));
    scene.run_at(later, "restore_snapshots", &more).await;
    let healthy = scene.at(later).rows(&scene.call("verify_table", "")).await.unwrap();
    assert_eq!(text(healthy.last().unwrap(), "problem"), "healthy");
}

#[tokio::test]
async fn nothing_is_overwritten_on_the_way_back_from_quarantine() {
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", ", quarantine => true").await;
    fs::write(scene.folder.join("data/a.parquet"), "somebody else's").unwrap();
    let run = text(&scene.log(NOW_MS, "").await[0], "run").to_string();
    let call = scene.call("restore_quarantined_files", &format!(", run => '{run}', output => 'files'"));
    let (rows, error) = scene.at(NOW_MS).rows_until_the_end(&call).await;
    assert!(error.is_some());
    let statuses: Vec<_> = rows.iter().map(|row| text(row, "status")).collect();
    assert_eq!(statuses.iter().filter(|status| **status == "returned").count(), 3, "{rows:?}");
    assert_eq!(fs::read_to_string(scene.folder.join("data/a.parquet")).unwrap(), "somebody else's");
    remove(&scene.folder.join("data/a.parquet"));
    let metrics = scene.run_at(NOW_MS, "restore_quarantined_files", &format!(", run => '{run}'")).await;
    assert_eq!(metrics["returned_files_count"], 1);
    assert!(scene.gone().is_empty());
    assert_eq!(text(&scene.log(NOW_MS, "").await[0], "status"), "returned");
}

#[tokio::test]
async fn quarantine_is_purged_by_run_or_by_age() {
    let scene = Scene::new();
    let stray = scene.folder.join("data/stray.parquet");
    fs::write(&stray, "x").unwrap();
    set_modified(&stray, u64::try_from(BEGIN_MS).unwrap());
    let metrics = scene.run_at(NOW_MS, "remove_orphan_files", ", quarantine => true").await;
    assert_eq!((metrics["quarantined_files_count"], metrics["deleted_files_count"]), (1, 0));
    assert!(!stray.exists());
    scene.run_at(NOW_MS + 2 * DAY_MS, "expire_snapshots", ", quarantine => true").await;
    let both = scene.at(NOW_MS).run(&scene.call("purge_quarantined_files", "")).await.unwrap_err();
    assert!(both.contains("say what is to go"), "{both}");
    let later = NOW_MS + 3 * DAY_MS;
    let older = ", older_than => '2 days'";
    let dry = scene.run_at(later, "purge_quarantined_files", &format!("{older}, dry_run => true")).await;
    let real = scene.run_at(later, "purge_quarantined_files", older).await;
    assert_eq!((dry["deleted_files_count"], real["deleted_files_count"]), (1, 1));
    let statuses: Vec<_> = scene.log(later, "").await.iter().map(|row| text(row, "status").to_string()).collect();
    assert_eq!(statuses, ["done", "quarantined"]);
    let refused = scene.call("purge_quarantined_files", ", older_than => '0s', max_delete_count => 3");
    assert!(scene.at(later).run(&refused).await.unwrap_err().contains("max_delete_count = 3"));
    assert_eq!(scene.run_at(later, "purge_quarantined_files", ", older_than => '0s'").await["deleted_files_count"], 4);
}

#[tokio::test]
async fn finishing_earlier_runs_keeps_to_what_the_call_allows() {
    let due = NOW_MS + 2 * DAY_MS;
    for more in [", delete_files => false", ", dry_run => true", ", max_delete_count => 3"] {
        let scene = Scene::new();
        scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '1 day'").await;
        let outcome = scene.at(due).metrics(&scene.call("expire_snapshots", more)).await;
        assert_eq!(outcome.is_err(), more.contains("max_delete_count"), "{more}");
        assert!(scene.gone().is_empty(), "{more}");
    }
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '1 day'").await;
    scene.run_at(due, "remove_orphan_files", ", location => 'metadata'").await;
    assert!(!scene.gone().contains("data/a.parquet"), "outside of the location");
    let limit = scene.call("remove_orphan_files", ", max_delete_count => 0");
    assert!(scene.at(due).run(&limit).await.is_err());
    // The owner switches deletes off meanwhile.
    let newest = scene.files().into_iter().filter(|file| file.ends_with(".metadata.json")).max().unwrap();
    let path = scene.folder.join(newest);
    let text =
        fs::read_to_string(&path).unwrap().replace("\"properties\":{", "\"properties\":{\"gc.enabled\":\"false\",");
    let text = text.replace("\"false\",}", "\"false\"}");
    fs::write(&path, text).unwrap();
    let metrics = scene.run_at(due, "expire_snapshots", ", delete_files => false").await;
    assert_eq!(metrics["deleted_files_count"], 0);
    assert!(scene.at(due).run(&scene.call("purge_deferred_files", "")).await.unwrap_err().contains("GC is disabled"));
}

#[tokio::test]
async fn a_deferred_orphan_is_asked_for_again_as_an_orphan() {
    let scene = Scene::new();
    let stray = scene.folder.join("data/inner/x.parquet");
    fs::create_dir_all(stray.parent().unwrap()).unwrap();
    fs::write(&stray, "x").unwrap();
    set_modified(&stray, u64::try_from(BEGIN_MS).unwrap());
    scene.run_at(NOW_MS, "remove_orphan_files", ", deferred => '1 day'").await;
    let due = NOW_MS + 2 * DAY_MS;
    // Another table is made around it meanwhile.
    let mut inner = History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(2) });
    inner.append(BEGIN_MS + DAY_MS, ["y"]);
    inner.table_mut().uuid = Some(uuid_of("inner"));
    inner.build().write(scene.folder.join("data/inner")).unwrap();
    scene.run_at(due, "expire_snapshots", "").await;
    assert!(stray.exists());
    for call in ["remove_orphan_files", "purge_deferred_files"] {
        let error = scene.at(due).run(&scene.call(call, "")).await.unwrap_err();
        assert!(error.contains("another table"), "{error}");
    }
    assert!(stray.exists());
    fs::remove_dir_all(scene.folder.join("data/inner/metadata")).unwrap();
    assert_eq!(scene.run_at(due, "purge_deferred_files", "").await["deleted_files_count"], 1);
    assert!(!stray.exists());
}

#[tokio::test]
async fn a_promise_that_can_not_be_read_stops_the_removal_of_orphans_and_says_what_to_do() {
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '10 days'").await;
    let [plan] = &scene.journal_files()[..] else { panic!("one plan") };
    fs::write(plan, "").unwrap();
    let error = scene.at(NOW_MS).run(&scene.call("remove_orphan_files", "")).await.unwrap_err();
    assert!(error.contains("Remove that file if nothing is to be kept"), "{error}");
}

/// What the newest metadata says, without the bookkeeping of its commits.
fn metadata(scene: &Scene) -> serde_json::Value {
    let newest = |name: &String| name.strip_prefix("metadata/v")?.strip_suffix(".metadata.json")?.parse::<u32>().ok();
    let version = scene.files().iter().filter_map(newest).max().unwrap();
    let text = fs::read_to_string(scene.folder.join(format!("metadata/v{version}.metadata.json"))).unwrap();
    let mut metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    for field in ["last-updated-ms", "metadata-log"] {
        metadata.as_object_mut().unwrap().remove(field);
    }
    metadata
}

fn history_with_everything(history: &mut History) {
    history.set_ref("old", Ref::tag(1).max_ref_age_ms(DAY_MS));
    history.statistics(1);
    history.partition_statistics(2);
}

#[tokio::test]
async fn a_deferred_run_can_be_put_back_letter_by_letter() {
    let scene = Scene::with(history_with_everything);
    let before = metadata(&scene);
    scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '14 days'").await;
    assert_ne!(metadata(&scene), before);
    let run = text(&scene.log(NOW_MS, "").await[0], "run").to_string();
    let more = format!(", run => '{run}'");
    let untouched = disk(&scene.folder);
    let dry = scene.run_at(NOW_MS + DAY_MS, "restore_snapshots", &format!("{more}, dry_run => true")).await;
    unchanged("a dry run", &untouched, &disk(&scene.folder)).unwrap();
    let real = scene.run_at(NOW_MS + DAY_MS, "restore_snapshots", &more).await;
    for metrics in [&dry, &real] {
        let counts = ["snapshots", "refs", "statistics"].map(|what| metrics[&format!("restored_{what}_count")]);
        assert_eq!(counts, [2, 1, 2]);
        assert_eq!(metrics["checked_files_count"], 6);
    }
    assert_eq!(metadata(&scene), before);
    assert!(scene.gone().is_empty());
    assert_eq!(text(&scene.log(NOW_MS, "").await[0], "status"), "restored");
    // The window passes, and nothing goes; a second restoration has nothing to do.
    let due = NOW_MS + 20 * DAY_MS;
    assert_eq!(scene.run_at(due, "purge_deferred_files", "").await["deleted_files_count"], 0);
    let after = disk(&scene.folder);
    assert_eq!(scene.run_at(due, "restore_snapshots", &more).await["restored_snapshots_count"], 0);
    unchanged("a second restoration", &after, &disk(&scene.folder)).unwrap();
}

#[tokio::test]
async fn what_was_made_since_stays_when_a_run_is_put_back() {
    let scene = Scene::with(history_with_everything);
    scene.run_at(NOW_MS, "expire_snapshots", ", snapshot_ids => [2], deferred => '14 days'").await;
    scene.run_at(NOW_MS + 1, "expire_snapshots", ", deferred => '14 days'").await;
    let [first, second] = &scene.log(NOW_MS, "").await[..] else { panic!("two runs") };
    let run = |row: &Row| format!(", run => '{}'", text(row, "run"));
    let metrics = scene.run_at(NOW_MS + 2, "restore_snapshots", &run(first)).await;
    assert_eq!((metrics["restored_snapshots_count"], metrics["restored_refs_count"]), (1, 0));
    let ids = |scene: &Scene| -> BTreeSet<i64> {
        metadata(scene)["snapshots"].as_array().unwrap().iter().map(|s| s["snapshot-id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&scene), [2, 3].into());
    // The other run is purged all the same, without what is live again.
    let due = NOW_MS + 20 * DAY_MS;
    scene.run_at(due, "purge_deferred_files", "").await;
    assert!(scene.files().iter().any(|file| file.contains("snap-2-")));
    let error = scene.at(due).run(&scene.call("restore_snapshots", &run(second))).await.unwrap_err();
    assert!(error.contains("can't be put back") && error.contains("snap-1-"), "{error}");
    assert_eq!(ids(&scene), [2, 3].into());
}

#[tokio::test]
async fn a_run_that_is_being_deleted_can_not_be_put_back_and_the_other_way_round() {
    let scene = Scene::new();
    scene.run_at(NOW_MS, "expire_snapshots", ", deferred => '1 day'").await;
    let run = text(&scene.log(NOW_MS, "").await[0], "run").to_string();
    let claim = scene.journal().join(format!("{run}.claim"));
    let claimed = |kind: &str| format!(r#"{{"claim":"{kind}","token":"theirs","at_ms":{NOW_MS},"run_by":"somebody"}}"#);
    fs::write(&claim, claimed("purge")).unwrap();
    let before = (scene.files(), scene.journal_files());
    let more = format!(", run => '{run}'");
    let error = scene.at(NOW_MS).run(&scene.call("restore_snapshots", &more)).await.unwrap_err();
    assert!(error.contains("are being deleted") && error.contains("somebody"), "{error}");
    assert!(error.contains(claim.to_str().unwrap()), "the way out: {error}");
    assert_eq!((scene.files(), scene.journal_files()), before);
    fs::write(&claim, claimed("restore")).unwrap();
    let soon = NOW_MS + 60_000;
    let purge = ", ignore_window => true";
    assert_eq!(scene.run_at(soon, "purge_deferred_files", purge).await["deleted_files_count"], 0);
    // Orphans go from a table of which no snapshots are being put back.
    fs::write(scene.folder.join("data/stray.parquet"), "x").unwrap();
    set_modified(&scene.folder.join("data/stray.parquet"), u64::try_from(BEGIN_MS).unwrap());
    let error = scene.at(soon).run(&scene.call("remove_orphan_files", "")).await.unwrap_err();
    assert!(error.contains("are being put back"), "{error}");
    assert!(scene.gone().is_empty());
    // Whoever calls the same again takes the claim over, and gives it back at the end.
    assert_eq!(scene.run_at(soon, "restore_snapshots", &more).await["restored_snapshots_count"], 2);
    assert!(!claim.exists());
    // A claim is nobody's any more after a day.
    scene.run_at(soon, "expire_snapshots", ", deferred => '1 day'").await;
    fs::write(&claim, claimed("restore")).unwrap();
    let due = NOW_MS + 3 * DAY_MS;
    assert_eq!(scene.run_at(due, "purge_deferred_files", "").await["deleted_files_count"], 4);
}

#[tokio::test]
async fn an_expiry_of_metadata_only_can_be_put_back_too() {
    let scene = Scene::new();
    let before = metadata(&scene);
    scene.run_at(NOW_MS, "expire_snapshots", ", delete_files => false").await;
    let run = text(&scene.log(NOW_MS, "").await[0], "run").to_string();
    scene.run_at(NOW_MS, "restore_snapshots", &format!(", run => '{run}'")).await;
    assert_eq!(metadata(&scene), before);
    let named = scene.at(NOW_MS).run(&scene.call("restore_snapshots", "")).await.unwrap_err();
    assert!(named.contains("argument run is missing"), "{named}");
}

#[tokio::test]
async fn gc_that_is_switched_off_allows_an_expiry_of_metadata_only() {
    let scene = Scene::with(|history| {
        history.table_mut().properties.insert("gc.enabled".into(), "false".into());
    });
    for more in ["", ", deferred => '1d'"] {
        let error = scene.at(NOW_MS).run(&scene.call("expire_snapshots", more)).await.unwrap_err();
        assert!(error.contains("GC is disabled"), "{error}");
    }
    let metrics = scene.run_at(NOW_MS, "expire_snapshots", ", delete_files => false").await;
    assert_eq!((metrics["deleted_snapshots_count"], metrics["left_behind_files_count"]), (2, 4));
    assert!(scene.gone().is_empty());
}
