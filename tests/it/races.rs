//! Other writers, at every moment at which they can come: they commit before, within and after ours.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iceberg_maintenance::catalog::{CommitOutcome, FileSystemCatalog};
use iceberg_maintenance::fixtures::{self, History, Ref};
use iceberg_maintenance::report::{FileStatus, SkipReason};
use iceberg_maintenance::retention::RetentionPolicy;
use iceberg_maintenance::{Error, ExpireSnapshots, FixedClock, Maintenance, RemoveOrphanFiles};
use serde_json::{Value, json};

use crate::hooked::{HookedCatalog, Moment};
use crate::support::{Disk, Session, disk, files};
use crate::table::Table;

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 60 * DAY_MS;

/// A table on disk, `own.t`, in which snapshots 1 and 2 expire and 3 stays. `a` and `b` came with 1, `a` went with 2.
struct Scene {
    _warehouse: tempfile::TempDir,
    folder: PathBuf,
    location: String,
    history: History,
    before: Disk,
    session: Session,
    catalog: Arc<HookedCatalog>,
}

impl Scene {
    fn new(prepare: impl FnOnce(&mut History)) -> Self {
        let warehouse = tempfile::tempdir().unwrap();
        let folder = warehouse.path().canonicalize().unwrap().join("t");
        let location = format!("file:{}", folder.display());
        let table = fixtures::Table {
            location: Some(location.clone()),
            last_updated_ms: BEGIN_MS,
            modified_ms: Some(BEGIN_MS),
            ..fixtures::Table::new(2)
        };
        let mut history = History::new(table);
        history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
        history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
        history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
        prepare(&mut history);
        history.table().write(&folder).unwrap();
        let inner = FileSystemCatalog::with_warehouse(folder.parent().unwrap().to_str().unwrap());
        let catalog = Arc::new(HookedCatalog::around(Arc::new(inner)));
        let clock = Arc::new(FixedClock(NOW_MS));
        let session = Session::with(Maintenance::builder().clock(clock).catalog("own", catalog.clone()));
        let before = disk(&folder);
        Self { _warehouse: warehouse, folder, location, history, before, session, catalog }
    }

    /// An outcome is given in place of the real one; before a commit it is then not made at all.
    fn on(&self, mut event: impl FnMut(Moment) -> Option<CommitOutcome> + Send + 'static) {
        self.catalog.on(move |moment| event(moment).map(Ok));
    }

    /// Lets somebody else do something at one moment.
    fn at(&self, when: Moment, mut deed: impl FnMut() + Send + 'static) {
        self.on(move |moment| {
            if moment == when {
                deed();
            }
            None
        });
    }

    /// Another writer, whose commit was prepared as the next operation of the same history.
    fn writer(&self, operation: impl FnOnce(&mut History)) -> Writer {
        let mut history = self.history.clone();
        operation(&mut history);
        let desk = tempfile::tempdir().unwrap();
        history.table().write(desk.path()).unwrap();
        Writer { desk, folder: self.folder.clone() }
    }

    fn editor(&self, edit: impl Fn(&mut Value) + Send + 'static) -> impl FnMut() + Send + 'static {
        let folder = self.folder.clone();
        move || commit_edit(&folder, &edit)
    }

    async fn expire(&self) -> Result<iceberg_maintenance::report::Report, Error> {
        self.session.maintenance.expire_snapshots("own.t", &ExpireSnapshots::default()).await
    }

    fn newest(&self) -> Table {
        Table::read(Path::new("/"), self.folder.to_str().unwrap())
    }

    /// Files that were there at first and are not any more.
    fn gone(&self) -> BTreeSet<String> {
        files(&self.before).difference(&files(&disk(&self.folder))).cloned().collect()
    }

    /// The files that go when these snapshots do.
    fn dead_without(&self, expired: &[i64]) -> BTreeSet<String> {
        let dead = self.history.table().only_needed_by(&expired.iter().copied().collect());
        dead.into_iter().map(|file| file.path).collect()
    }

    /// Everything that the newest metadata names is there.
    fn is_whole(&self) {
        let table = self.newest();
        let missing: Vec<_> =
            table.referenced().unwrap().into_iter().filter(|file| !Path::new(file).exists()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

struct Writer {
    desk: tempfile::TempDir,
    folder: PathBuf,
}

impl Writer {
    /// Puts the prepared snapshot on top of whatever the newest metadata is now.
    fn commit(&self) {
        for file in files(&disk(self.desk.path())) {
            let target = self.folder.join(&file);
            if !target.exists() && !file.ends_with(".metadata.json") {
                fs::copy(self.desk.path().join(&file), target).unwrap();
            }
        }
        let prepared = Table::read(Path::new("/"), self.desk.path().to_str().unwrap()).metadata;
        commit_edit(&self.folder, &|newest| {
            let snapshot = prepared["snapshots"].as_array().unwrap().last().unwrap().clone();
            newest["refs"]["main"]["snapshot-id"] = snapshot["snapshot-id"].clone();
            newest["current-snapshot-id"] = snapshot["snapshot-id"].clone();
            newest["last-sequence-number"] = prepared["last-sequence-number"].clone();
            let entry = json!({"timestamp-ms": snapshot["timestamp-ms"], "snapshot-id": snapshot["snapshot-id"]});
            newest["snapshot-log"].as_array_mut().unwrap().push(entry);
            newest["snapshots"].as_array_mut().unwrap().push(snapshot);
        });
    }
}

/// Commits an edit of the newest metadata, as any writer does: the next version, then the hint.
pub fn commit_edit(folder: &Path, edit: &dyn Fn(&mut Value)) {
    let newest = Table::read(Path::new("/"), folder.to_str().unwrap());
    let name = newest.metadata_path.rsplit('/').next().unwrap();
    let version: u32 = name.trim_start_matches('v').trim_end_matches(".metadata.json").parse().unwrap();
    let mut document = newest.metadata;
    edit(&mut document);
    let log =
        json!({"timestamp-ms": document["last-updated-ms"], "metadata-file": format!("file:{}", newest.metadata_path)});
    document["metadata-log"].as_array_mut().unwrap().push(log);
    let metadata = folder.join("metadata");
    fs::write(metadata.join(format!("v{}.metadata.json", version + 1)), document.to_string()).unwrap();
    fs::write(metadata.join("version-hint.text"), (version + 1).to_string()).unwrap();
}

fn append_e(history: &mut History) {
    history.append(BEGIN_MS + 4 * DAY_MS, ["e"]);
}

#[tokio::test]
async fn a_lost_race_is_planned_again_on_top_of_the_winner() {
    let scene = Scene::new(|_| {});
    let writer = scene.writer(append_e);
    scene.at(Moment::BeforeCommit(1), move || writer.commit());
    let report = scene.expire().await.unwrap();
    assert_eq!(report.metrics.deleted_snapshots_count, 3, "3 is no head any more");
    assert_eq!(scene.catalog.commits(), 2);
    assert_eq!(scene.newest().snapshot_ids(), BTreeSet::from([4]));
    assert!(scene.dead_without(&[1, 2]).is_subset(&scene.gone()));
    scene.is_whole();
}

#[tokio::test]
async fn endless_conflicts_end_as_one() {
    let scene = Scene::new(|history| {
        history.table_mut().property("commit.retry.num-retries", "1");
    });
    let mut busy = scene.editor(|document| document["properties"]["touched"] = json!("again"));
    scene.on(move |moment| {
        if matches!(moment, Moment::BeforeCommit(_)) {
            busy();
        }
        None
    });
    let error = scene.expire().await.unwrap_err();
    assert!(matches!(error, Error::Conflict { attempts: 2, .. }), "{error}");
    assert_eq!(scene.gone(), BTreeSet::new());
    assert_eq!(scene.newest().snapshot_ids(), BTreeSet::from([1, 2, 3]));
}

#[tokio::test]
async fn a_tag_made_meanwhile_keeps_its_snapshot() {
    let scene = Scene::new(|_| {});
    let tag = |document: &mut Value| document["refs"]["audit"] = json!({"snapshot-id": 1, "type": "tag"});
    scene.at(Moment::BeforeCommit(1), scene.editor(tag));
    let report = scene.expire().await.unwrap();
    assert_eq!(report.metrics.deleted_snapshots_count, 1);
    let newest = scene.newest();
    assert_eq!((newest.snapshot_ids(), newest.refs().len()), (BTreeSet::from([1, 3]), 2));
    assert_eq!(scene.gone(), scene.dead_without(&[2]));
    scene.is_whole();
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_seen_in_the_table() {
    let scene = Scene::new(|_| {});
    scene.on(|moment| match moment {
        Moment::AfterCommit(_) => Some(CommitOutcome::Unknown("time-out".into())),
        _ => None,
    });
    let report = scene.expire().await.unwrap();
    assert_eq!((report.metrics.deleted_snapshots_count, scene.catalog.commits()), (2, 1));
    assert_eq!(scene.gone(), scene.dead_without(&[1, 2]));
    scene.is_whole();
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_made_again() {
    let scene = Scene::new(|_| {});
    scene.on(|moment| match moment {
        Moment::BeforeCommit(1) => Some(CommitOutcome::Unknown("time-out".into())),
        _ => None,
    });
    let report = scene.expire().await.unwrap();
    assert_eq!((report.metrics.deleted_snapshots_count, scene.catalog.commits()), (2, 2));
    assert_eq!(scene.gone(), scene.dead_without(&[1, 2]));
    scene.is_whole();
}

#[tokio::test]
async fn a_commit_that_arrives_late_is_finished() {
    let scene = Scene::new(|_| {});
    let (folder, catalog) = (scene.folder.clone(), Arc::clone(&scene.catalog));
    let mut loads_after = 0;
    scene.on(move |moment| match moment {
        Moment::BeforeCommit(1) => Some(CommitOutcome::Unknown("time-out".into())),
        // The looks that settle the outcome are over: planning again loads the table once more.
        Moment::BeforeLoad(load) if load > 1 => {
            loads_after += 1;
            if loads_after == 5 {
                let metadata = catalog.sent_metadata().unwrap();
                fs::write(folder.join("metadata/v5.metadata.json"), metadata).unwrap();
            }
            None
        }
        _ => None,
    });
    let report = scene.expire().await.unwrap();
    assert_eq!((report.metrics.deleted_snapshots_count, scene.catalog.commits()), (2, 1));
    assert_eq!(scene.gone(), scene.dead_without(&[1, 2]));
    scene.is_whole();
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_deletes_nothing() {
    for meanwhile in [false, true] {
        let scene = Scene::new(|_| {});
        let writer = scene.writer(|history| _ = history.append(BEGIN_MS + 4 * DAY_MS, ["e"]));
        scene.on(move |moment| match moment {
            Moment::BeforeCommit(attempt) => {
                if meanwhile && attempt == 5 {
                    writer.commit();
                }
                Some(CommitOutcome::Unknown("time-out".into()))
            }
            _ => None,
        });
        let error = scene.expire().await.unwrap_err();
        assert!(matches!(error, Error::CommitUnknown { .. }) && !error.is_partial(), "{error}");
        assert_eq!((scene.gone(), scene.catalog.commits()), (BTreeSet::new(), 5));
    }
}

#[tokio::test]
async fn a_catalog_that_says_committed_is_not_believed() {
    let scene = Scene::new(|_| {});
    scene.on(|moment| {
        let committed = CommitOutcome::Committed { metadata_location: "v5.metadata.json".into(), notices: vec![] };
        matches!(moment, Moment::BeforeCommit(_)).then_some(committed)
    });
    let error = scene.expire().await.unwrap_err();
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error}");
    assert!(error.to_string().contains("still has snapshot"), "{error}");
    assert_eq!(files(&disk(&scene.folder)), files(&scene.before));
}

#[tokio::test]
async fn a_commit_that_lost_a_ref_deletes_nothing() {
    let scene = Scene::new(|history| {
        history.tag("keep", 3);
    });
    scene.at(
        Moment::AfterCommit(1),
        scene.editor(|document| _ = document["refs"].as_object_mut().unwrap().remove("keep")),
    );
    let error = scene.expire().await.unwrap_err();
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error}");
    assert!(error.to_string().contains("has no ref keep"), "{error}");
    assert_eq!(scene.gone(), BTreeSet::new());
}

#[tokio::test]
async fn a_file_that_comes_back_after_the_commit_is_spared() {
    for moment in [Moment::AfterCommit(1), Moment::BeforeLook(1)] {
        let scene = Scene::new(|_| {});
        let writer = scene.writer(|history| _ = history.re_add(BEGIN_MS + 4 * DAY_MS, ["a"]));
        scene.at(moment, move || writer.commit());
        let report = scene.expire().await.unwrap();
        assert_eq!(report.metrics.skipped_live_again_count, 1, "{moment:?}");
        let spared: Vec<_> =
            report.files.iter().filter(|file| file.status == FileStatus::Spared(SkipReason::LiveAgain)).collect();
        assert_eq!(spared.len(), 1);
        assert_eq!(spared[0].path, format!("{}/data/a.parquet", scene.location));
        let mut dead = scene.dead_without(&[1, 2]);
        assert!(dead.remove("data/a.parquet"));
        assert_eq!(scene.gone(), dead, "{moment:?}");
        assert_eq!(scene.newest().snapshot_ids(), BTreeSet::from([3, 4]));
        scene.is_whole();
    }
}

#[tokio::test]
async fn a_rollback_to_an_expired_snapshot_after_the_commit_spares_all_its_files() {
    let scene = Scene::new(|_| {});
    let old = scene.newest().metadata;
    let restore = move |document: &mut Value| {
        document["snapshots"].as_array_mut().unwrap().insert(0, old["snapshots"][0].clone());
        document["refs"]["saved"] = json!({"snapshot-id": 1, "type": "branch"});
    };
    scene.at(Moment::BeforeLook(1), scene.editor(restore));
    let report = scene.expire().await.unwrap();
    assert_eq!(scene.gone(), scene.dead_without(&[2]));
    assert_eq!(
        report.metrics.skipped_live_again_count as usize,
        scene.dead_without(&[1, 2]).len() - scene.gone().len()
    );
    scene.is_whole();
}

#[tokio::test]
async fn a_table_that_was_replaced_after_the_commit_loses_nothing() {
    let replace = |document: &mut Value| document["table-uuid"] = json!("11111111-2222-3333-4444-555555555555");
    let scene = Scene::new(|_| {});
    scene.at(Moment::AfterCommit(1), scene.editor(replace));
    let error = scene.expire().await.unwrap_err();
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error}");
    assert_eq!(scene.gone(), BTreeSet::new());

    let scene = Scene::new(|_| {});
    scene.at(Moment::BeforeLook(1), scene.editor(replace));
    let report = scene.expire().await.unwrap();
    let error = report.require_complete().unwrap_err();
    assert!(error.to_string().contains("the table was replaced"), "{error}");
    assert_eq!(report.metrics.failed_deletions_count as usize, scene.dead_without(&[1, 2]).len());
    assert_eq!(scene.gone(), BTreeSet::new());
}

#[tokio::test]
async fn a_plan_is_only_good_for_the_table_that_it_was_made_on() {
    let edits: [fn(&mut Value); 2] = [
        |document| document["refs"]["new"] = json!({"snapshot-id": 3, "type": "tag"}),
        |document| document["properties"]["touched"] = json!("yes"),
    ];
    for edit in edits {
        let scene = Scene::new(|_| {});
        let maintenance = &scene.session.maintenance;
        let plan = maintenance.plan_expire_snapshots("own.t", &ExpireSnapshots::default()).await.unwrap();
        scene.editor(edit)();
        let error = maintenance.commit(plan).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { attempts: 1, .. }), "{error}");
        assert_eq!(scene.gone(), BTreeSet::new());
        assert_eq!(scene.newest().snapshot_ids(), BTreeSet::from([1, 2, 3]));
    }
}

#[tokio::test]
async fn a_table_made_anew_under_the_same_names_is_another_one() {
    let as_first_version = |history: &mut History| {
        history.table_mut().version = 1;
        history.table_mut().versions.clear();
    };
    let scene = Scene::new(as_first_version);
    let maintenance = &scene.session.maintenance;
    let plan = maintenance.plan_expire_snapshots("own.t", &ExpireSnapshots::default()).await.unwrap();
    fs::remove_dir_all(&scene.folder).unwrap();
    let mut anew = scene.history.clone();
    anew.table_mut().uuid = Some(fixtures::uuid_of("another"));
    anew.table().write(&scene.folder).unwrap();
    let before = files(&disk(&scene.folder));
    let error = maintenance.commit(plan).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    assert_eq!(files(&disk(&scene.folder)), before);
}

#[tokio::test]
async fn a_commit_that_was_not_made_is_not_confirmed() {
    let two_schemas = |history: &mut History| {
        let unused = fixtures::Schema::new(7, &[(1, "id", "long")]);
        history.table_mut().schemas.push(unused);
        history.set_ref("old", Ref::tag(3).max_ref_age_ms(1));
    };
    let none = Some(BEGIN_MS);
    let all = |policy| ExpireSnapshots { policy, ..ExpireSnapshots::default() };
    for (what, policy, says) in [
        ("snapshots", RetentionPolicy::default(), "still has snapshot"),
        ("a ref", RetentionPolicy { older_than_ms: none, ..Default::default() }, "still has ref old"),
        (
            "a schema",
            RetentionPolicy { snapshot_ids: Some(vec![1]), clean_expired_metadata: true, ..Default::default() },
            "still has",
        ),
    ] {
        let scene = Scene::new(two_schemas);
        let maintenance = &scene.session.maintenance;
        let plan = maintenance.plan_expire_snapshots("own.t", &all(policy.clone())).await.unwrap();
        assert!(!plan.is_noop(), "{what}");
        let error = maintenance.confirm_commit(plan).await.unwrap_err();
        assert!(matches!(error, Error::CommitUnknown { .. }), "{what}: {error}");
        assert!(error.to_string().contains(says), "{what}: {error}");
        // Somebody removed the snapshots, but not what else the plan asked for.
        let plan = maintenance.plan_expire_snapshots("own.t", &all(policy)).await.unwrap();
        let ids = plan.commit_request().change.removed_snapshot_ids.clone();
        let schemas = plan.commit_request().change.removed_schema_ids.clone();
        scene.editor(move |document| {
            let gone = |snapshot: &Value| ids.contains(&snapshot["snapshot-id"].as_i64().unwrap());
            document["snapshots"].as_array_mut().unwrap().retain(|snapshot| !gone(snapshot));
        })();
        if what != "snapshots" || !schemas.is_empty() {
            let error = maintenance.confirm_commit(plan).await.unwrap_err();
            assert!(matches!(error, Error::CommitUnknown { .. }), "{what}: {error}");
        }
        assert_eq!(scene.gone(), BTreeSet::new(), "{what}");
    }
}

#[tokio::test]
async fn an_orphan_that_is_committed_while_the_folder_is_listed_stays() {
    for moment in [Moment::BeforeLook(1), Moment::BeforeLook(2)] {
        let scene = Scene::new(|history| {
            history.table_mut().stray("data/e.parquet", BEGIN_MS).stray("data/o.parquet", BEGIN_MS);
        });
        let writer = scene.writer(append_e);
        scene.at(moment, move || writer.commit());
        let maintenance = &scene.session.maintenance;
        let options = RemoveOrphanFiles::older_than(NOW_MS - 3 * DAY_MS, NOW_MS);
        let plan = maintenance.plan_remove_orphan_files("own.t", &options).await.unwrap();
        let planned = plan.files().len();
        let report = maintenance.delete_orphan_files(plan).await.unwrap();
        // Known at the end of the listing it is no orphan; known only before the deletes it is one that is spared.
        let late = usize::from(moment == Moment::BeforeLook(2));
        assert_eq!((planned, report.metrics.skipped_live_again_count as usize), (1 + late, late));
        assert_eq!(scene.gone(), BTreeSet::from(["data/o.parquet".to_string()]), "{moment:?}");
        scene.is_whole();
    }
}

#[tokio::test]
async fn a_table_that_nobody_else_changes_is_loaded_seldom() {
    let scene = Scene::new(|history| {
        history.table_mut().stray("data/o.parquet", BEGIN_MS);
    });
    let maintenance = &scene.session.maintenance;
    let options = RemoveOrphanFiles::older_than(NOW_MS - 3 * DAY_MS, NOW_MS);
    let plan = maintenance.plan_remove_orphan_files("own.t", &options).await.unwrap();
    maintenance.delete_orphan_files(plan).await.unwrap();
    assert_eq!(scene.gone(), BTreeSet::from(["data/o.parquet".to_string()]));
    assert_eq!((scene.catalog.loads(), scene.catalog.looks()), (1, 2), "after the listing, and before the one batch");

    scene.expire().await.unwrap();
    assert_eq!((scene.catalog.loads(), scene.catalog.looks()), (3, 3), "for the plan and after the commit");
    assert_eq!(scene.catalog.commits(), 1);
    scene.expire().await.unwrap();
    assert_eq!((scene.catalog.loads(), scene.catalog.commits()), (4, 1), "nothing to do");
}

#[tokio::test]
async fn two_expiries_at_once_do_no_harm() {
    let scene = Scene::new(|_| {});
    // A millisecond apart, so that their metadata differs: equal metadata is one commit, whoever made it.
    let later = Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS + 1))).catalog("own", scene.catalog.clone());
    let later = Session::with(later);
    let options = ExpireSnapshots::default();
    let (one, other) = tokio::join!(scene.expire(), later.maintenance.expire_snapshots("own.t", &options));
    let (one, other) = (one.unwrap().metrics, other.unwrap().metrics);
    assert_eq!(one.deleted_snapshots_count + other.deleted_snapshots_count, 2, "each snapshot expires once");
    assert_eq!((one.deleted_files_count + other.deleted_files_count) as usize, scene.dead_without(&[1, 2]).len());
    assert_eq!(scene.gone(), scene.dead_without(&[1, 2]));
    scene.is_whole();
}

#[tokio::test]
async fn files_that_another_run_removes_while_they_are_read_are_no_damage() {
    for orphans in [false, true] {
        let scene = Scene::new(|_| {});
        // Another expiry of 1 and 2: its commit, and its deletes.
        let (folder, gone) = (scene.folder.clone(), scene.dead_without(&[1, 2]));
        let other = move |document: &mut Value| {
            document["snapshots"].as_array_mut().unwrap().retain(|snapshot| snapshot["snapshot-id"] == 3);
            document["snapshot-log"].as_array_mut().unwrap().retain(|entry| entry["snapshot-id"] == 3);
        };
        scene.at(Moment::AfterLoad(1), move || {
            commit_edit(&folder, &other);
            gone.iter().for_each(|file| drop(fs::remove_file(folder.join(file))));
        });
        let report = match orphans {
            false => scene.expire().await,
            true => {
                let options = RemoveOrphanFiles::older_than(NOW_MS, NOW_MS);
                let plan = scene.session.maintenance.plan_remove_orphan_files("own.t", &options).await;
                plan.map(|plan| plan.report())
            }
        };
        report.unwrap();
        scene.is_whole();
    }
}
