//! `verify_table` and `explain_file`: damaged tables, and files of every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use iceberg_maintenance::fixtures::{
    Content, ContentFile, Fault, History, MetadataNaming, Ref, Table, WAREHOUSE_NOW_MS, Written, warehouse,
};
use iceberg_maintenance::report::FileKind;
use iceberg_maintenance::{FileVerdict, Finding, Maintenance, Problem, Severity, Verification};
use proptest::prelude::*;
use proptest::sample::Index;
use url::Url;

use crate::corpus::CASES;
use crate::corpus::case::{Call, Case, now};
use crate::property::{Plan, STRAYS, block_on, cases, plan};
use crate::support::{Session, disk, literal, set_modified};
use crate::table::plain_path;
use crate::watched::{Kind, WatchedStore, Wrong};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 60 * DAY_MS;

fn history(format_version: i64) -> History {
    let table = Table { last_updated_ms: BEGIN_MS, modified_ms: Some(BEGIN_MS), ..Table::new(format_version) };
    History::new(table)
}

/// 1 appends a and b, 2 overwrites a by c, 3 appends d.
fn three_snapshots() -> History {
    let mut history = history(2);
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
    history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
    history
}

/// A table on disk.
struct Place {
    _warehouse: tempfile::TempDir,
    written: Written,
    session: Session,
}

impl Place {
    fn new(table: &Table) -> Self {
        let warehouse = tempfile::tempdir().unwrap();
        let written = table.write(warehouse.path().join("t")).unwrap();
        Self { _warehouse: warehouse, written, session: Session::new(Some(NOW_MS)) }
    }

    fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.written.folder.join(file)
    }

    fn table(&self) -> &str {
        self.written.folder.to_str().unwrap()
    }

    fn add(&self, file: &str) {
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        fs::write(self.path(file), "x").unwrap();
        set_modified(&self.path(file), BEGIN_MS as u64);
    }

    /// What a verification finds. It changes nothing.
    async fn verify(&self) -> Verification {
        let before = disk(&self.written.folder);
        let verification = self.session.maintenance.verify_table(self.table()).await.unwrap();
        assert_eq!(disk(&self.written.folder), before);
        verification
    }

    async fn found(&self) -> Vec<(Severity, Problem, String, Option<i64>)> {
        self.verify().await.findings().iter().map(|finding| short(finding, &self.written)).collect()
    }

    async fn verdict(&self, path: &str) -> String {
        verdict(&self.session.maintenance, self.table(), path).await
    }
}

async fn verdict(maintenance: &Maintenance, table: &str, path: &str) -> String {
    maintenance.explain_file(table, path).await.unwrap().verdict().to_string()
}

/// A finding with its path relative to the table's location.
fn short(finding: &Finding, written: &Written) -> (Severity, Problem, String, Option<i64>) {
    let path = finding.file_path.as_deref().unwrap_or_default();
    let path = path.strip_prefix(&written.location).map_or(path, |path| path.trim_start_matches('/'));
    (finding.severity, finding.problem, path.to_string(), finding.snapshot_id)
}

#[tokio::test]
async fn a_whole_table_is_healthy() {
    for content in [Content::Dummy, Content::Real] {
        let mut table = three_snapshots().build();
        table.content = content;
        let place = Place::new(&table);
        let verification = place.verify().await;
        assert!(verification.is_healthy() && verification.findings().is_empty(), "{verification:?}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named_with_the_newest_snapshot_that_needs_it() {
    let mut history = three_snapshots();
    let statistics = history.statistics(2);
    let place = Place::new(&history.build());
    // `a` is live in 1 only, `b` in all.
    let list = place.written.table.snapshot(2).unwrap().manifest_list.clone().unwrap();
    for file in ["data/a.parquet", "data/b.parquet", &statistics, &list, "metadata/v1.metadata.json"] {
        fs::remove_file(place.path(file)).unwrap();
    }
    let (error, warning, missing) = (Severity::Error, Severity::Warning, Problem::MissingFile);
    let mut expected = vec![
        (error, missing, "data/a.parquet".to_string(), Some(1)),
        (error, missing, "data/b.parquet".to_string(), Some(3)),
        (error, missing, list, Some(2)),
        (error, missing, statistics, Some(2)),
    ];
    expected.sort_by(|one, other| one.2.cmp(&other.2));
    expected.push((warning, missing, "metadata/v1.metadata.json".to_string(), None));
    assert_eq!(place.found().await, expected);
    assert!(!place.verify().await.is_healthy());
}

#[tokio::test]
async fn a_manifest_that_is_gone_or_broken_is_a_finding_and_the_rest_is_checked() {
    for (fault, problem) in [
        (Fault::Missing, Problem::MissingFile),
        (Fault::Bytes(b"no Avro".to_vec()), Problem::UnreadableFile),
        (Fault::CutTo(300), Problem::UnreadableFile),
    ] {
        let mut table = three_snapshots().build();
        let manifest = table.snapshot(3).unwrap().manifests[0].clone();
        let needed_by = table.snapshots.iter().filter(|snapshot| snapshot.manifests.contains(&manifest));
        let newest = needed_by.map(|snapshot| snapshot.id).max();
        let other = table.snapshot(1).unwrap().manifests[0].clone();
        let other_file = table.manifests[&other].entries[0].file.path.clone();
        assert_ne!(manifest, other);
        table.fault(&manifest, fault.clone()).fault(&other_file, Fault::CutTo(1));
        let found = Place::new(&table).found().await;
        let errors: Vec<_> = found.iter().filter(|finding| finding.0 == Severity::Error).cloned().collect();
        let mut expected = vec![
            (Severity::Error, problem, manifest.clone(), newest),
            (Severity::Error, Problem::SizeDiffers, other_file.clone(), Some(1)),
        ];
        expected.sort_by_key(|finding| finding.1);
        assert_eq!(errors, expected, "{fault:?}: {found:?}");
        // A manifest of another length says so, too.
        let sizes = found.iter().filter(|finding| finding.0 == Severity::Warning).map(|finding| finding.1);
        assert!(sizes.clone().all(|problem| problem == Problem::SizeDiffers), "{found:?}");
        assert_eq!(sizes.count(), usize::from(problem == Problem::UnreadableFile), "{found:?}");
    }
}

#[tokio::test]
async fn a_manifest_list_that_is_broken_is_a_finding() {
    let mut table = three_snapshots().build();
    let list = table.snapshot(1).unwrap().manifest_list.clone().unwrap();
    table.fault(&list, Fault::Bytes(b"no Avro".to_vec()));
    let found = Place::new(&table).found().await;
    assert_eq!(found, [(Severity::Error, Problem::UnreadableFile, list, Some(1))]);
}

#[tokio::test]
async fn sizes_are_compared_with_what_names_the_file() {
    let mut history = three_snapshots();
    let statistics = history.statistics(3);
    let mut table = history.build();
    table.fault("data/d.parquet", Fault::CutTo(99)).fault(&statistics, Fault::CutTo(1));
    let place = Place::new(&table);
    assert_eq!(
        place.found().await,
        [
            (Severity::Error, Problem::SizeDiffers, "data/d.parquet".to_string(), Some(3)),
            (Severity::Warning, Problem::SizeDiffers, statistics, Some(3)),
        ]
    );
    let verification = place.verify().await;
    assert_eq!(verification.findings()[0].detail, "it has 99 bytes, but the manifest says 100");
}

#[tokio::test]
async fn refs_and_statistics_without_a_snapshot() {
    let mut history = three_snapshots();
    let (lost, statistics) = (history.statistics(2), history.statistics(3));
    let mut table = history.build();
    table.refs.as_mut().unwrap().insert("lost".into(), Ref::tag(99));
    let place = Place::new(&table);
    let newest = place.path(&place.written.metadata_path);
    let mut metadata: serde_json::Value = serde_json::from_slice(&fs::read(&newest).unwrap()).unwrap();
    let entries = metadata["statistics"].as_array_mut().unwrap();
    entries.iter_mut().find(|entry| entry["snapshot-id"] == 2).unwrap()["snapshot-id"] = 77.into();
    fs::write(&newest, metadata.to_string()).unwrap();
    assert_eq!(
        place.found().await,
        [
            (Severity::Error, Problem::RefWithoutSnapshot, String::new(), Some(99)),
            (Severity::Warning, Problem::StatisticsWithoutSnapshot, lost.clone(), Some(77)),
        ]
    );
    assert_eq!(place.verdict(&lost).await, "kept: the metadata has a statistics entry for it, though not its snapshot");
    assert_eq!(place.verdict(&statistics).await, "kept: snapshot 3 (main) needs it");
}

#[tokio::test]
async fn a_file_that_is_live_twice_in_one_snapshot_is_one_finding() {
    // In one manifest, and in two of the same snapshot.
    for in_one_manifest in [true, false] {
        let mut table = three_snapshots().build();
        let newest = table.snapshot(3).unwrap().manifests.clone();
        let of = |table: &Table, file: &str| {
            let has =
                |path: &&String| table.manifests[*path].entries.iter().any(|e| e.is_live() && e.file.path == file);
            newest.iter().find(has).unwrap().clone()
        };
        let (of_b, of_d) = (of(&table, "data/b.parquet"), of(&table, "data/d.parquet"));
        assert_ne!(of_b, of_d);
        let entry = table.manifests[&of_d].entries.iter().find(|e| e.file.path == "data/d.parquet").unwrap().clone();
        table.manifests.get_mut(if in_one_manifest { &of_d } else { &of_b }).unwrap().entries.push(entry);
        let found = Place::new(&table).found().await;
        assert_eq!(found, [(Severity::Error, Problem::DuplicateFile, "data/d.parquet".to_string(), Some(3))]);
    }
}

#[tokio::test]
async fn a_manifest_that_a_snapshot_lists_twice_makes_its_files_live_twice() {
    let mut table = three_snapshots().build();
    let of_d = |path: &&String| table.manifests[*path].entries.iter().any(|entry| entry.file.path == "data/d.parquet");
    let manifest = table.snapshot(3).unwrap().manifests.iter().find(of_d).unwrap().clone();
    table.snapshot_mut(3).unwrap().manifests.push(manifest);
    let found = Place::new(&table).found().await;
    assert_eq!(found, [(Severity::Error, Problem::DuplicateFile, "data/d.parquet".to_string(), Some(3))]);
}

#[tokio::test]
async fn a_file_that_moves_between_manifests_is_live_once_in_each_snapshot() {
    let mut history = three_snapshots();
    history.rewrite_manifests(BEGIN_MS + 4 * DAY_MS);
    history.re_add(BEGIN_MS + 5 * DAY_MS, ["a"]);
    let found = Place::new(&history.build()).found().await;
    assert_eq!(found, []);
}

#[tokio::test]
async fn deletes_for_data_that_is_not_live_dangle() {
    let mut history = history(2);
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.position_deletes(BEGIN_MS + 2 * DAY_MS, "p", "a");
    history.overwrite(BEGIN_MS + 3 * DAY_MS, ["a"], ["c"]);
    assert_eq!(
        Place::new(&history.build()).found().await,
        [(Severity::Warning, Problem::DanglingDeleteFile, "data/p.parquet".to_string(), Some(3))]
    );

    let mut history = self::history(3);
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.deletion_vectors(BEGIN_MS + 2 * DAY_MS, "dv", &[("a", &[0]), ("b", &[1])]);
    let mut table = history.build();
    let deletes = table.manifests.values_mut().find(|manifest| manifest.deletes).unwrap();
    deletes.entries[0].file.referenced = Some("data/gone.parquet".into());
    let place = Place::new(&table);
    let found = place.found().await;
    assert_eq!(found, [(Severity::Warning, Problem::DanglingDeleteFile, "data/dv.puffin".to_string(), Some(2))]);
    let verification = place.verify().await;
    assert!(verification.is_healthy());
    let finding = &verification.findings()[0];
    assert_eq!(finding.content, Some(FileKind::DeletionVector));
    assert!(finding.detail.contains("data/gone.parquet, which it is for"), "{finding:?}");
}

#[tokio::test]
async fn deletes_without_any_data_dangle_whatever_their_kind() {
    let mut history = history(2);
    history.append(BEGIN_MS + DAY_MS, ["a"]);
    history.equality_deletes(BEGIN_MS + 2 * DAY_MS, "e");
    history.delete_files(BEGIN_MS + 3 * DAY_MS, ["a"]);
    assert_eq!(
        Place::new(&history.build()).found().await,
        [(Severity::Warning, Problem::DanglingDeleteFile, "data/e.parquet".to_string(), Some(3))]
    );
}

#[tokio::test]
async fn data_that_could_not_be_read_of_lets_no_delete_dangle() {
    let mut history = history(2);
    history.append(BEGIN_MS + DAY_MS, ["a"]);
    history.position_deletes(BEGIN_MS + 2 * DAY_MS, "p", "a");
    let mut table = history.build();
    let manifest = table.snapshot(1).unwrap().manifests[0].clone();
    table.fault(&manifest, Fault::Missing);
    let found = Place::new(&table).found().await;
    assert_eq!(found, [(Severity::Error, Problem::MissingFile, manifest, Some(2))]);
}

#[tokio::test]
async fn files_elsewhere_and_behind_links_are_looked_at_one_by_one() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut history = history(2);
    let outside = format!("{}/o.parquet", elsewhere.path().display());
    let gone = format!("{}/gone.parquet", elsewhere.path().display());
    let files = [ContentFile::data("a"), ContentFile::data(&outside), ContentFile::data(&gone)];
    history.append(BEGIN_MS + DAY_MS, files);
    let mut table = history.build();
    table.fault(&gone, Fault::Missing);
    let place = Place::new(&table);
    fs::rename(place.path("data/a.parquet"), elsewhere.path().join("real")).unwrap();
    symlink(elsewhere.path().join("real"), place.path("data/a.parquet")).unwrap();
    assert_eq!(place.found().await, [(Severity::Error, Problem::MissingFile, gone, Some(1))]);
}

#[tokio::test]
async fn a_table_without_its_location_s_folder_of_data_is_read_as_it_is() {
    let mut table = three_snapshots().build();
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = elsewhere.path().join("never written").display().to_string();
    table.property("write.data.path", &folder);
    assert_eq!(Place::new(&table).found().await, []);
}

/// A table in a bucket: one listing, one GET for each manifest list and manifest, and nothing else.
#[tokio::test]
async fn a_table_in_a_bucket_is_listed_and_no_file_is_asked_for() {
    let mut history = history(2);
    history.table_mut().location = Some("s3://bucket/wh/t".into());
    for day in 1..=5 {
        history.append(BEGIN_MS + day * DAY_MS, [format!("a{day}")]);
    }
    let table = history.build();
    let store = WatchedStore::with_table(&table).await;
    let session = Session::new(Some(NOW_MS));
    session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
    store.take_requests();
    let verification = session.maintenance.verify_table("s3://bucket/wh/t").await.unwrap();
    assert!(verification.is_healthy() && verification.findings().is_empty(), "{verification:?}");
    let mut gets: BTreeMap<String, usize> = BTreeMap::new();
    let mut lists = vec![];
    for (kind, key) in store.take_requests() {
        match kind {
            Kind::Get => *gets.entry(key).or_default() += 1,
            Kind::List => lists.push(key),
            // That is how the newest metadata is found.
            Kind::Head if key.contains("metadata.json") => {}
            Kind::Head | Kind::Put | Kind::Delete | Kind::Other => panic!("{kind:?} of {key}"),
        }
    }
    assert!(lists.contains(&"wh/t".to_string()), "{lists:?}");
    let avro: BTreeSet<String> = store.keys().await.into_iter().filter(|key| key.ends_with(".avro")).collect();
    let read: BTreeSet<String> = gets.keys().filter(|key| key.ends_with(".avro")).cloned().collect();
    assert_eq!((read, gets.iter().find(|(key, count)| key.ends_with(".avro") && **count > 1)), (avro, None));
    assert!(!gets.keys().any(|key| key.ends_with(".parquet")), "{gets:?}");

    // What the listing doesn't show is asked for, one by one.
    store.answer_wrongly(|kind, key| (kind == Kind::Get && key.contains("snap-")).then_some(Wrong::Fails));
    assert!(session.maintenance.verify_table("s3://bucket/wh/t").await.is_err(), "a store that fails says nothing");
    store.recover();
    assert_eq!(
        verdict(&session.maintenance, "s3://bucket/wh/t", "s3a://bucket/wh/t/data/a5.parquet").await,
        "kept: snapshot 5 (main) needs it"
    );
    store.add("wh/t/data/o.parquet", "x").await;
    let verdict = verdict(&session.maintenance, "s3://bucket/wh/t", "data/o.parquet").await;
    assert!(verdict.starts_with("kept: nothing names it, but it is not older than"), "{verdict}");
}

#[tokio::test]
async fn memory_that_does_not_suffice_is_an_error() {
    let place = Place::new(&three_snapshots().build());
    for (bytes, suffices) in [(20 << 10, false), (64 << 20, true)] {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().unwrap();
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
        let maintenance = Maintenance::builder().register(&context).unwrap();
        let verified = maintenance.verify_table(place.table()).await;
        assert_eq!(verified.as_ref().map_err(ToString::to_string).is_ok(), suffices, "{bytes}: {verified:?}");
        if let Err(error) = verified {
            assert!(error.to_string().contains("ListedFiles"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_missing_object_costs_one_look() {
    let mut history = history(2);
    history.table_mut().location = Some("s3://bucket/wh/t".into());
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    let mut table = history.build();
    table.fault("data/a.parquet", Fault::Missing);
    let store = WatchedStore::with_table(&table).await;
    let session = Session::new(Some(NOW_MS));
    session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
    store.take_requests();
    let verification = session.maintenance.verify_table("s3://bucket/wh/t").await.unwrap();
    let found: Vec<_> = verification.findings().iter().map(|finding| finding.file_path.clone().unwrap()).collect();
    assert_eq!(found, ["s3://bucket/wh/t/data/a.parquet"]);
    // The newest metadata is found by looking, too.
    let is_look = |(kind, key): &(Kind, String)| *kind == Kind::Head && !key.contains("metadata.json");
    let looks: Vec<_> = store.take_requests().into_iter().filter(is_look).map(|(_, key)| key).collect();
    assert_eq!(looks, ["wh/t/data/a.parquet"]);
}

#[test]
fn the_command_line_exits_with_1_when_the_table_is_unhealthy() {
    let folder = tempfile::tempdir().unwrap();
    let written = three_snapshots().build().write(folder.path()).unwrap();
    let run = |arguments: &[&str]| {
        let tool = Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"))
            .args(["-q", "--format", "csv"])
            .args(arguments)
            .output()
            .unwrap();
        (tool.status.code().unwrap(), String::from_utf8(tool.stdout).unwrap(), String::from_utf8(tool.stderr).unwrap())
    };
    let table = written.folder.to_str().unwrap();
    let (code, out, err) = run(&["verify-table", table]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.lines().last().unwrap().starts_with("ok,healthy,"), "{out}");
    fs::remove_file(written.folder.join("data/d.parquet")).unwrap();
    let (code, out, err) = run(&["verify-table", table]);
    assert!(code == 1 && err.contains("not healthy"), "{code} {err}");
    assert!(out.contains("data/d.parquet") && out.lines().last().unwrap().starts_with("error,unhealthy,"), "{out}");
    let (code, out, err) = run(&["explain-file", table, "data/d.parquet"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("verdict,kept: snapshot 3 (main) needs it,"), "{out}");
}

/// What a dry run of `remove_orphan_files` would delete; `None` where it is refused.
async fn orphans(session: &Session, table: &str) -> Option<BTreeSet<String>> {
    let call =
        format!("CALL system.remove_orphan_files(table => {}, dry_run => true, output => 'files')", literal(table));
    let rows = session.rows(&call).await.ok()?;
    let planned = rows.iter().filter(|row| row["status"].as_deref() == Some("planned"));
    Some(planned.map(|row| row["file_path"].clone().unwrap()).collect())
}

/// For every file below a table: it is called an orphan exactly if `remove_orphan_files` would delete it.
async fn verdicts_agree(session: &Session, written: &Written) -> usize {
    let table = written.folder.to_str().unwrap();
    let orphans = orphans(session, table).await;
    let mut called_orphans = 0;
    for file in written.files_on_disk().unwrap() {
        let Ok(explained) = session.maintenance.explain_file(table, &file).await else {
            assert_eq!(orphans, None, "{table}: {file}");
            continue;
        };
        let is_orphan = *explained.verdict() == FileVerdict::Orphan;
        let is_deleted = orphans.as_ref().is_some_and(|orphans| orphans.contains(&written.locate(&file)));
        assert_eq!(is_orphan, is_deleted, "{file}: {}", explained.verdict());
        if orphans.is_none() {
            let is_undecided = matches!(explained.verdict(), FileVerdict::Unknown(_));
            let is_named = !explained.answers().iter().any(|answer| answer.answer == "nothing");
            assert!(is_undecided || is_named, "{file}: {}", explained.verdict());
        }
        called_orphans += usize::from(is_orphan);
    }
    called_orphans
}

#[tokio::test]
async fn verdicts_agree_with_remove_orphan_files_on_every_file_of_the_warehouse() {
    let folder = tempfile::tempdir().unwrap();
    let tables = warehouse(folder.path()).unwrap();
    let session = Session::new(Some(WAREHOUSE_NOW_MS));
    let mut called_orphans = 0;
    for (name, written) in tables.iter().filter(|(name, _)| !name.starts_with("events_")) {
        // The tables that can't be loaded, and those whose folder holds another one.
        if !["future_format", "cut_metadata"].contains(&name.as_str()) {
            called_orphans += verdicts_agree(&session, written).await;
        }
    }
    assert_eq!(called_orphans, 5, "the orphans of the table of that name");
}

#[tokio::test]
async fn verdicts_agree_with_remove_orphan_files_on_odd_files() {
    let mut table = three_snapshots().build();
    for stray in [
        "data/o.parquet",
        "data/p q.parquet",
        "data/100%.parquet",
        "data/a%20b.parquet",
        "data/_tmp/o.parquet",
        "data/.o.parquet.crc",
        "data/.a.parquet.crc",
        "metadata/_maintenance/journal.parquet",
        "metadata/old.avro",
        "README.md",
        "assets/x.png",
        "_SUCCESS",
        "data/real.parquet",
    ] {
        table.stray(stray, BEGIN_MS);
    }
    table.stray("data/young.parquet", NOW_MS - DAY_MS).stray("data/ahead.parquet", NOW_MS + 10 * DAY_MS);
    table.stray("data/ancient.parquet", 1000);
    let place = Place::new(&table);
    symlink(place.path("data/real.parquet"), place.path("data/link.parquet")).unwrap();
    assert_eq!(verdicts_agree(&place.session, &place.written).await, 5);
    for (path, says) in [
        ("README.md", "where the table neither writes nor has live files"),
        ("data/link.parquet", "it is a link"),
        ("data/real.parquet", "in use under another name"),
        ("metadata/_maintenance/journal.parquet", "the journal of a run"),
        ("data/.o.parquet.crc", "hidden name"),
    ] {
        let verdict = place.verdict(path).await;
        assert!(verdict.starts_with("kept: ") && verdict.contains(says), "{path}: {verdict}");
    }
    for spelling in ["data/o.parquet", "./data/o.parquet", "data//o.parquet", "data/%6F.parquet"] {
        assert_eq!(place.verdict(spelling).await, "orphan: remove_orphan_files would delete it", "{spelling}");
    }
}

#[tokio::test]
async fn verdicts_agree_where_the_owner_of_a_table_is_unknown() {
    let mut table = three_snapshots().build();
    table.naming = MetadataNaming::Catalog;
    table.stray("data/o.parquet", BEGIN_MS);
    let place = Place::new(&table);
    place.add("metadata/notes.txt");
    assert_eq!(verdicts_agree(&place.session, &place.written).await, 2);
}

#[tokio::test]
async fn a_file_of_a_folder_that_is_not_searched_is_kept() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut table = three_snapshots().build();
    let folder = elsewhere.path().canonicalize().unwrap().display().to_string();
    table.property("write.data.path", &folder);
    let place = Place::new(&table);
    fs::write(elsewhere.path().join("o.parquet"), "x").unwrap();
    let verdict = place.verdict(&format!("file:{folder}/o.parquet")).await;
    assert!(verdict.contains("only when that is named as location"), "{verdict}");
}

#[tokio::test]
async fn a_path_in_another_bucket_is_told_apart() {
    let mut history = history(2);
    history.table_mut().location = Some("s3://bucket/wh/t".into());
    history.append(BEGIN_MS + DAY_MS, ["a"]);
    let store = WatchedStore::with_table(&history.build()).await;
    let session = Session::new(Some(NOW_MS));
    for bucket in ["bucket", "other"] {
        let url = Url::parse(&format!("s3://{bucket}")).unwrap();
        session.context.register_object_store(&url, Arc::new(store.clone()));
    }
    let explained =
        session.maintenance.explain_file("s3://bucket/wh/t", "s3://other/wh/t/data/a.parquet").await.unwrap();
    let answer = |question: &str| {
        let found = explained.answers().iter().find(|answer| answer.question == question);
        found.unwrap().answer.clone()
    };
    assert_eq!(answer("named_by"), "nothing, but the same path is named under s3://bucket");
    assert_eq!(answer("scheme_and_authority"), "s3://other, which is not the table's s3://bucket");
    assert!(matches!(explained.verdict(), FileVerdict::Kept(_)), "{}", explained.verdict());
}

/// What is wrong with single snapshots, by the description: the problem, the file, and the newest snapshot where it is so.
fn faults(table: &Table) -> BTreeMap<(Problem, String), i64> {
    let mut faults = BTreeMap::new();
    let mut snapshots = table.snapshots.clone();
    snapshots.sort_by_key(|snapshot| (snapshot.timestamp_ms, snapshot.id));
    for snapshot in &snapshots {
        let manifests = snapshot.manifests.iter().map(|path| &table.manifests[path]);
        let live: Vec<_> = manifests.flat_map(|manifest| &manifest.entries).filter(|entry| entry.is_live()).collect();
        let data: BTreeSet<_> =
            live.iter().filter(|entry| entry.file.kind == FileKind::Data).map(|entry| &entry.file.path).collect();
        let mut met = BTreeSet::new();
        for ContentFile { path, kind, referenced, .. } in live.iter().map(|entry| &entry.file) {
            let vector_of = referenced.as_ref().filter(|_| *kind == FileKind::DeletionVector);
            if !met.insert((path, vector_of)) {
                faults.insert((Problem::DuplicateFile, path.clone()), snapshot.id);
            }
            let for_nothing = referenced.as_ref().is_some_and(|of| !data.contains(of));
            if *kind != FileKind::Data && (data.is_empty() || for_nothing) {
                faults.insert((Problem::DanglingDeleteFile, path.clone()), snapshot.id);
            }
        }
    }
    faults
}

/// Verifies a random table, whole and with one file missing, and asks for a verdict on each of its files.
async fn inspect(plan: &Plan, missing: &Index, strays: &[&str]) -> Result<(), String> {
    let mut table = plan.play();
    strays.iter().for_each(|stray| {
        table.stray(stray, BEGIN_MS);
    });
    let place = Place::new(&table);
    let of_whole: BTreeMap<_, _> =
        place.found().await.into_iter().map(|(_, problem, path, id)| ((problem, path), id.unwrap())).collect();
    if of_whole != faults(&table) {
        return Err(format!("found {of_whole:?}, but wrong is {:?}", faults(&table)));
    }
    verdicts_agree(&place.session, &place.written).await;

    let needed: Vec<_> = table.live_files_of(table.snapshots.iter().map(|snapshot| snapshot.id)).into_iter().collect();
    if needed.is_empty() {
        return Ok(());
    }
    let gone = &needed[missing.index(needed.len())].path;
    fs::remove_file(place.path(gone)).unwrap();
    let needs = |id: &i64| table.live_files(*id).iter().any(|file| file.path == *gone);
    let mut ages: Vec<_> = table.snapshots.iter().map(|snapshot| (snapshot.timestamp_ms, snapshot.id)).collect();
    ages.sort_unstable();
    let newest = ages.into_iter().map(|(_, id)| id).rfind(needs);
    let found = place.found().await;
    let missing: Vec<_> = found.iter().filter(|finding| finding.1 == Problem::MissingFile).collect();
    match missing == [&(Severity::Error, Problem::MissingFile, gone.clone(), newest)] {
        true => Ok(()),
        false => Err(format!("{gone} is missing, which {newest:?} needs, but found is {found:?}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(40), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_tables_are_seen_as_they_are(
        plan in plan(),
        missing in any::<Index>(),
        strays in prop::sample::subsequence(STRAYS.to_vec(), 0..=STRAYS.len()),
    ) {
        block_on(inspect(&plan, &missing, &strays))?;
    }
}

/// Tables that Spark wrote: what is missing is what a reader of our own misses, and nothing else is wrong with files.
#[tokio::test]
async fn tables_of_spark_are_seen_as_they_are() {
    let mut verified = 0;
    for case in CASES.iter().filter_map(|name| Case::find(name)) {
        let copy = case.unpack();
        let is_call = |run: &&serde_json::Value| run["op"] == "expire_snapshots" || run["op"] == "remove_orphan_files";
        let calls: Vec<_> = case.runs().iter().filter(is_call).collect();
        let names: BTreeSet<_> = calls.iter().map(|run| Call::new(&case, run, &[]).table).collect();
        for name in names {
            let session = Session::below(copy.folder.path(), Some(now(calls[0])));
            let location = format!("file:{}/{name}", case.root());
            let Ok(verification) = session.maintenance.verify_table(&location).await else { continue };
            let Ok(referenced) = copy.table(&name).referenced() else {
                assert!(!verification.is_healthy(), "{}: {name}", case.name);
                continue;
            };
            let is_missing = |file: &&String| !copy.folder.path().join(file.trim_start_matches('/')).exists();
            let hint = |file: &&String| !file.ends_with("version-hint.text");
            let missing: BTreeSet<_> = referenced.iter().filter(is_missing).filter(hint).cloned().collect();
            let of = |problem: Problem| {
                let found = verification.findings().iter().filter(move |finding| finding.problem == problem);
                found.map(|finding| plain_path(finding.file_path.as_ref().unwrap())).collect::<BTreeSet<_>>()
            };
            assert_eq!(of(Problem::MissingFile), missing, "{}: {name}", case.name);
            let others = [Problem::SizeDiffers, Problem::UnreadableFile].map(of);
            assert_eq!(others, [const { BTreeSet::new() }; 2], "{}: {name}: {:?}", case.name, verification.findings());
            // That case has two commits which add a file that is there already.
            let duplicates = if case.name == "dup_paths" { 2 } else { 0 };
            assert_eq!(of(Problem::DuplicateFile).len(), duplicates, "{}: {name}", case.name);
            verified += 1;
        }
    }
    assert!(verified >= 4, "{verified} tables");
}
