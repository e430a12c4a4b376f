//! Tables on a local disk that are not what they seem: shared, nested, linked, moved, damaged, or oddly named.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use iceberg_maintenance::fixtures::{
    Compression, ContentFile, History, MetadataNaming, Statistics, Table, VersionHint, Written, uuid_of,
};
use iceberg_maintenance::report::{FileStatus, SkipReason};
use iceberg_maintenance::{Error, RemoveOrphanFiles};

use crate::support::{Disk, MetricRows, Session, disk, files, literal, same_numbers, set_modified};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 60 * DAY_MS;

/// A table on disk, and a session whose clock stands long after its history.
struct Place {
    warehouse: tempfile::TempDir,
    written: Written,
    session: Session,
}

/// Snapshots 1 and 2 expire, 3 stays. `a` and `b` came with 1, `a` went with 2.
fn three_snapshots() -> History {
    with_first_files(&["a", "b"])
}

/// All these files came with snapshot 1; all but `b` went with 2.
fn with_first_files(names: &[&str]) -> History {
    let mut history = History::new(Table { last_updated_ms: BEGIN_MS, modified_ms: Some(BEGIN_MS), ..Table::new(2) });
    history.append(BEGIN_MS + DAY_MS, names.iter().copied());
    history.overwrite(BEGIN_MS + 2 * DAY_MS, names.iter().filter(|name| **name != "b"), ["c"]);
    history.append(BEGIN_MS + 3 * DAY_MS, ["d"]);
    history
}

impl Place {
    fn new(table: &Table) -> Self {
        let warehouse = tempfile::tempdir().unwrap();
        let written = table.write(warehouse.path().join("t")).unwrap();
        Self { warehouse, written, session: Session::new(Some(NOW_MS)) }
    }

    fn folder(&self) -> &Path {
        &self.written.folder
    }

    fn disk(&self) -> Disk {
        disk(self.folder())
    }

    fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.folder().join(file)
    }

    /// Puts an old file there.
    fn add(&self, file: impl AsRef<Path>, content: &[u8]) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        set_modified(&path, BEGIN_MS as u64);
    }

    fn call(&self, procedure: &str, more: &str) -> String {
        format!("CALL system.{procedure}(table => {}{more})", literal(self.folder().to_str().unwrap()))
    }

    async fn expire(&self, more: &str) -> MetricRows {
        self.session.metrics(&self.call("expire_snapshots", more)).await.unwrap()
    }

    async fn remove_orphans(&self, more: &str) -> MetricRows {
        self.session.metrics(&self.call("remove_orphan_files", more)).await.unwrap()
    }

    /// Fails unless the call is refused in this way, saying this, and nothing changes.
    async fn is_refused(&self, call: &str, says: &str, is: fn(&Error) -> bool) {
        let before = disk(self.warehouse.path());
        let error = self.session.failure(call).await;
        let found = Error::find(&error).unwrap_or_else(|| panic!("{call}: {error}"));
        assert!(is(found) && found.to_string().contains(says), "{call}: {found:?}");
        assert_eq!(disk(self.warehouse.path()), before, "{call}");
    }

    async fn orphan_removal_is_refused(&self, more: &str, says: &str) {
        let is_guard = |error: &Error| matches!(error, Error::Guard { .. });
        for dry_run in [true, false] {
            let more = format!("{more}, dry_run => {dry_run}");
            self.is_refused(&self.call("remove_orphan_files", &more), says, is_guard).await;
        }
    }

    /// The files that go when snapshots 1 and 2 do.
    fn dead(&self) -> BTreeSet<String> {
        let dead = self.written.table.only_needed_by(&BTreeSet::from([1, 2]));
        dead.into_iter().map(|file| file.path).collect()
    }

    /// Registers a list of files, by paths below the table, as `listed`.
    async fn list(&self, paths: &[&str]) {
        let row = |path: &&str| {
            let path = literal(&format!("{}/{path}", self.written.location));
            format!("SELECT {path} AS file_path, TIMESTAMP '2020-01-01' AS last_modified")
        };
        let rows = paths.iter().map(row).collect::<Vec<_>>().join(" UNION ALL ");
        self.session.run(&format!("CREATE OR REPLACE VIEW listed AS {rows}")).await.unwrap();
    }
}

/// What went between two looks.
fn gone(before: &Disk, after: &Disk) -> BTreeSet<String> {
    files(before).difference(&files(after)).cloned().collect()
}

fn paths(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

#[tokio::test]
async fn statistics_of_an_expired_snapshot_may_be_a_live_data_file() {
    let mut table = three_snapshots().build();
    table.statistics.push(Statistics { snapshot_id: 1, path: "data/d.parquet".into() });
    table.partition_statistics.push(Statistics { snapshot_id: 2, path: "data/b.parquet".into() });
    let place = Place::new(&table);
    let before = place.disk();
    let real = place.expire("").await;
    assert_eq!(real["deleted_statistics_files_count"], 0);
    assert_eq!(gone(&before, &place.disk()), place.dead());
    assert!(place.path("data/d.parquet").exists() && place.path("data/b.parquet").exists());
}

#[tokio::test]
async fn an_expired_data_file_may_be_any_file_that_the_table_needs() {
    let table = three_snapshots().build();
    let staying = table.snapshot(3).unwrap();
    let mut needed: Vec<_> = staying.manifests.iter().chain(&staying.manifest_list).map(String::as_str).collect();
    needed.extend(["metadata/version-hint.text", "metadata/v4.metadata.json", "metadata/v2.metadata.json"]);
    needed.extend(["metadata/3.stats", "metadata/3.parquet"]);
    let mut table = with_first_files(&[needed.clone(), vec!["a", "b"]].concat()).build();
    table.statistics.push(Statistics { snapshot_id: 3, path: "metadata/3.stats".into() });
    table.partition_statistics.push(Statistics { snapshot_id: 3, path: "metadata/3.parquet".into() });
    let place = Place::new(&table);
    assert!(needed.iter().all(|file| place.path(file).exists()), "{needed:?}");
    let before = place.disk();
    let dry = place.expire(", dry_run => true").await;
    let real = place.expire("").await;
    same_numbers(&dry, &real).unwrap();
    let dead: BTreeSet<_> = place.dead().into_iter().filter(|file| !needed.contains(&file.as_str())).collect();
    assert_eq!(gone(&before, &place.disk()), dead);
    assert_eq!(real["deleted_data_files_count"], 1);
}

#[tokio::test]
async fn a_nested_table_stops_orphan_removal_however_it_is_met() {
    for compression in [Compression::None, Compression::GzipInfix, Compression::GzipSuffix] {
        for linked in [false, true] {
            let place = Place::new(&three_snapshots().build());
            let mut nested = three_snapshots().build();
            (nested.uuid, nested.compression) = (Some(uuid_of("nested")), compression);
            nested.write(place.path("x/nested")).unwrap();
            if linked {
                let elsewhere = place.warehouse.path().join("elsewhere");
                fs::rename(place.path("x/nested/metadata"), &elsewhere).unwrap();
                symlink(&elsewhere, place.path("x/nested/metadata")).unwrap();
            }
            place.orphan_removal_is_refused("", "x/nested/metadata").await;
            place.orphan_removal_is_refused(", location => 'x'", "x/nested/metadata").await;
            place.orphan_removal_is_refused(", location => 'x/nested'", "x/nested/metadata").await;
            place.orphan_removal_is_refused(", location => 'x/nested/data'", "x/nested/metadata").await;
            place.list(&["data/d.parquet", "x/nested/data/a.parquet"]).await;
            // What such a list names outside of the table's own folders stays anyway, unless it is asked for.
            let more = ", file_list_view => 'listed', include_foreign => true";
            place.orphan_removal_is_refused(more, "x/nested/metadata").await;
            // Beside it there is nothing to fear.
            place.add("data/o.parquet", b"x");
            assert_eq!(place.remove_orphans(", location => 'data'").await["deleted_files_count"], 1);
        }
    }
}

#[tokio::test]
async fn two_tables_of_a_catalog_in_one_location_are_refused() {
    let one = |name: &str, version: u32| {
        let mut table = three_snapshots().build();
        (table.uuid, table.naming) = (Some(uuid_of(name)), MetadataNaming::Catalog);
        (table.version, table.versions) = (version, vec![]);
        table
    };
    let place = Place::new(&one("one", 7));
    let mut other = one("other", 3);
    other.version_hint = VersionHint::Absent;
    other.write(place.folder()).unwrap();
    place.add("data/o.parquet", b"x");
    place.orphan_removal_is_refused("", "another table").await;
    place.orphan_removal_is_refused(", location => 'data'", "another table").await;
    place.list(&["data/d.parquet", "data/o.parquet"]).await;
    place.orphan_removal_is_refused(", file_list_view => 'listed'", "another table").await;
    let is_guard = |error: &Error| matches!(error, Error::Guard { .. });
    place.is_refused(&place.call("expire_snapshots", ", no_catalog => true"), "another table", is_guard).await;
}

#[tokio::test]
async fn two_file_system_tables_in_one_location_are_refused() {
    // The other one's files come first or last; the hint names ours.
    for (ours, others) in [(7, 2), (2, 3)] {
        let mut table = three_snapshots().build();
        (table.version, table.versions) = (ours, vec![]);
        let place = Place::new(&table);
        let mut other = three_snapshots().build();
        (other.uuid, other.version, other.versions) = (Some(uuid_of("other")), others, vec![]);
        other.version_hint = VersionHint::Text(ours.to_string());
        other.write(place.folder()).unwrap();
        place.add("data/o.parquet", b"x");
        let is_refusal = |error: &Error| matches!(error, Error::Guard { .. } | Error::UnclearOwner { .. });
        place.list(&["data/d.parquet", "data/o.parquet"]).await;
        for more in ["", ", location => 'data'", ", file_list_view => 'listed'"] {
            place.is_refused(&place.call("remove_orphan_files", more), "another table", is_refusal).await;
        }
        if others > ours {
            place.is_refused(&place.call("expire_snapshots", ""), "another table", is_refusal).await;
        }
    }
}

#[tokio::test]
async fn data_behind_a_link_out_of_the_table_is_spared() {
    let place = Place::new(&three_snapshots().build());
    let elsewhere = place.warehouse.path().join("elsewhere");
    fs::rename(place.path("data"), &elsewhere).unwrap();
    symlink(&elsewhere, place.path("data")).unwrap();
    let (before, theirs) = (place.disk(), disk(&elsewhere));
    let dry = place.expire(", dry_run => true").await;
    let real = place.expire("").await;
    same_numbers(&dry, &real).unwrap();
    assert_eq!((real["skipped_external_count"], real["deleted_data_files_count"]), (1, 0));
    let metadata_only: BTreeSet<_> = place.dead().into_iter().filter(|file| file.starts_with("metadata/")).collect();
    assert_eq!(gone(&before, &place.disk()), metadata_only);
    assert_eq!(disk(&elsewhere), theirs);

    // The listing doesn't follow the link, so it shows no live file behind it.
    place.orphan_removal_is_refused("", "the listing of their own folder did not show them").await;
}

#[tokio::test]
async fn what_a_link_leads_to_is_no_orphan() {
    let place = Place::new(&three_snapshots().build());
    fs::rename(place.path("data/d.parquet"), place.path("data/real-d.parquet")).unwrap();
    symlink(place.path("data/real-d.parquet"), place.path("data/d.parquet")).unwrap();
    place.add("data/o.parquet", b"x");
    let before = place.disk();
    let removed = place.remove_orphans("").await;
    assert_eq!((removed["deleted_files_count"], removed["dangling_references_count"]), (1, 0));
    assert_eq!(removed["skipped_unsupported_name_count"], 2, "the link and what it leads to");
    assert_eq!(gone(&before, &place.disk()), paths(&["data/o.parquet"]));
}

#[tokio::test]
async fn an_expired_file_that_a_live_link_leads_to_stays() {
    let place = Place::new(&three_snapshots().build());
    fs::remove_file(place.path("data/d.parquet")).unwrap();
    symlink(place.path("data/a.parquet"), place.path("data/d.parquet")).unwrap();
    let before = place.disk();
    let expired = place.expire("").await;
    assert_eq!((expired["deleted_data_files_count"], expired["skipped_prefix_mismatch_count"]), (0, 1));
    let metadata_only: BTreeSet<_> = place.dead().into_iter().filter(|file| file.starts_with("metadata/")).collect();
    assert_eq!(gone(&before, &place.disk()), metadata_only);
}

#[tokio::test]
async fn a_table_may_be_reached_through_a_link() {
    let mut table = three_snapshots().build();
    table.stray("data/o.parquet", BEGIN_MS);
    let place = Place::new(&table);
    let link = place.warehouse.path().join("link");
    symlink(place.folder(), &link).unwrap();
    let before = place.disk();
    let call = |procedure: &str| format!("CALL system.{procedure}(table => {})", literal(link.to_str().unwrap()));
    let removed = place.session.metrics(&call("remove_orphan_files")).await.unwrap();
    assert_eq!(removed["deleted_files_count"], 1);
    let expired = place.session.metrics(&call("expire_snapshots")).await.unwrap();
    assert_eq!(expired["deleted_files_count"] as usize, place.dead().len());
    let mut all = place.dead();
    all.insert("data/o.parquet".into());
    assert_eq!(gone(&before, &place.disk()), all);
}

#[tokio::test]
async fn a_search_through_a_link_is_refused() {
    let place = Place::new(&three_snapshots().build());
    symlink(place.path("data"), place.path("alias")).unwrap();
    symlink(place.warehouse.path(), place.path("out")).unwrap();
    let is_location = |error: &Error| matches!(error, Error::Location { .. });
    for location in ["alias", "alias/", "./alias", "out", "out/t/data"] {
        let more = format!(", location => '{location}'");
        place.is_refused(&place.call("remove_orphan_files", &more), "through a link", is_location).await;
    }
}

#[tokio::test]
async fn what_any_metadata_of_a_catalogs_table_names_is_kept() {
    let old = with_first_files(&["a", "b"]).table().clone();
    let mut history = three_snapshots();
    history.forget(BEGIN_MS + 4 * DAY_MS, &[1, 2]);
    let mut table = history.build();
    (table.naming, table.versions) = (MetadataNaming::Catalog, vec![]);
    let place = Place::new(&table);
    // The state before the snapshots were forgotten, in a file whose name says no version.
    let desk = tempfile::tempdir().unwrap();
    let old = Table { location: Some(place.written.location.clone()), ..old }.write(desk.path()).unwrap();
    let name = "metadata/abcdef-1.metadata.json";
    place.add(name, &fs::read(desk.path().join(&old.metadata_path)).unwrap());
    place.add("data/o.parquet", b"x");
    let before = place.disk();
    assert_eq!(place.remove_orphans(", no_catalog => true").await["deleted_files_count"], 1);
    assert_eq!(gone(&before, &place.disk()), paths(&["data/o.parquet"]));

    // Without that file its snapshots' files are orphans.
    fs::remove_file(place.path(name)).unwrap();
    let before = place.disk();
    place.remove_orphans(", no_catalog => true").await;
    assert_eq!(gone(&before, &place.disk()), forgotten_files(&place));
}

/// The files that only the forgotten snapshots 1 and 2 have.
fn forgotten_files(place: &Place) -> BTreeSet<String> {
    let table = &place.written.table;
    let live: BTreeSet<_> = table.live_files(3).into_iter().map(|file| file.path).collect();
    let all = table.live_files_of([1, 2]).into_iter().map(|file| file.path);
    all.filter(|file| !live.contains(file)).collect()
}

#[tokio::test]
async fn old_metadata_of_a_catalogs_table_may_name_what_is_gone() {
    let mut table = three_snapshots().build();
    table.naming = MetadataNaming::Catalog;
    let place = Place::new(&table);
    let is_unclear = |error: &Error| matches!(error, Error::UnclearOwner { .. });
    place.is_refused(&place.call("expire_snapshots", ""), "no_catalog", is_unclear).await;
    place.expire(", no_catalog => true").await;
    place.add("data/o.parquet", b"x");
    let before = place.disk();
    place.is_refused(&place.call("remove_orphan_files", ""), "newer one elsewhere", is_unclear).await;
    assert_eq!(place.remove_orphans(", no_catalog => true").await["deleted_files_count"], 1);
    assert_eq!(gone(&before, &place.disk()), paths(&["data/o.parquet"]));
}

#[tokio::test]
async fn the_hint_is_a_hint() {
    let hinted = |hint: VersionHint| {
        let mut table = three_snapshots().build();
        table.version_hint = hint;
        table.stray("data/o.parquet", BEGIN_MS);
        Place::new(&table)
    };
    let text = |text: &str| VersionHint::Text(text.into());
    for hint in [text("2"), text("garbage"), text(""), text("4\n"), VersionHint::Absent] {
        let place = hinted(hint.clone());
        let before = place.disk();
        place.remove_orphans("").await;
        assert_eq!(gone(&before, &place.disk()), paths(&["data/o.parquet"]), "{hint:?}");
        assert_eq!(place.expire("").await["deleted_snapshots_count"], 2, "{hint:?}");
        assert_eq!(fs::read_to_string(place.path("metadata/version-hint.text")).unwrap(), "5", "{hint:?}");
    }
    let is_unclear = |error: &Error| matches!(error, Error::UnclearOwner { .. });
    let ahead = hinted(text("9"));
    let gap = hinted(text("2"));
    fs::remove_file(gap.path("metadata/v3.metadata.json")).unwrap();
    for (place, says) in [(ahead, "names version 9"), (gap, "version 3 is missing")] {
        for procedure in ["expire_snapshots", "remove_orphan_files"] {
            for more in ["", ", dry_run => true"] {
                place.is_refused(&place.call(procedure, more), says, is_unclear).await;
            }
        }
    }
}

#[tokio::test]
async fn a_manifest_list_that_ends_between_two_blocks_is_noticed() {
    let mut table = three_snapshots().build();
    let staying = table.snapshot(3).unwrap().clone();
    let template = table.manifests[&staying.manifests[0]].clone();
    let mut manifests = staying.manifests.clone();
    for number in 0..100 {
        let mut manifest = template.clone();
        manifest.entries.truncate(1);
        manifest.entries[0].file = ContentFile::data(&format!("n{number}"));
        let path = format!("metadata/n{number}-m0.avro");
        table.manifests.insert(path.clone(), manifest);
        manifests.push(path);
    }
    let snapshot = table.snapshot_mut(3).unwrap();
    snapshot.manifests = manifests;
    let live = table.live_content(3).len().to_string();
    table.snapshot_mut(3).unwrap().summary.insert("total-data-files".into(), live);
    let place = Place::new(&table);
    place.add("data/o.parquet", b"x");
    place.expire(", dry_run => true").await;

    let list = place.path(staying.manifest_list.unwrap());
    let whole = fs::read(&list).unwrap();
    let sync = &whole[whole.len() - 16..];
    let ends: Vec<_> =
        whole.windows(16).enumerate().filter(|(_, bytes)| *bytes == sync).map(|(at, _)| at + 16).collect();
    assert_eq!(ends.len(), 3, "a header and two blocks");
    fs::write(&list, &whole[..ends[1]]).unwrap();
    let is_needed = |error: &Error| matches!(error, Error::NeededFileUnreadable { needed_by: 3, .. });
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
        place.is_refused(&place.call(procedure, ""), "cut short", is_needed).await;
    }
}

#[tokio::test]
async fn a_file_that_is_written_after_the_plan_is_spared() {
    let mut table = three_snapshots().build();
    table.stray("data/o.parquet", BEGIN_MS).stray("data/p.parquet", BEGIN_MS);
    let place = Place::new(&table);
    let options = RemoveOrphanFiles::older_than(NOW_MS - 3 * DAY_MS, NOW_MS);
    let maintenance = &place.session.maintenance;
    let table = place.folder().to_str().unwrap();
    let plan = maintenance.plan_remove_orphan_files(table, &options).await.unwrap();
    assert_eq!(plan.files().len(), 2);
    set_modified(&place.path("data/o.parquet"), NOW_MS as u64);
    let before = place.disk();
    let report = maintenance.delete_orphan_files(plan).await.unwrap();
    report.require_complete().unwrap();
    let statuses: BTreeMap<_, _> =
        report.files.iter().map(|file| (file.path.rsplit('/').next().unwrap(), &file.status)).collect();
    let young = FileStatus::Spared(SkipReason::TooYoung);
    assert_eq!(statuses, BTreeMap::from([("o.parquet", &young), ("p.parquet", &FileStatus::Deleted)]));
    assert_eq!(gone(&before, &place.disk()), paths(&["data/p.parquet"]));
}

#[tokio::test]
async fn a_checksum_goes_with_its_file_only() {
    let place = Place::new(&three_snapshots().build());
    let checksum = b"crc\0\0\0\x02\0\0\0\0\0";
    for file in ["data/.o.parquet.crc", "data/.a.parquet.crc", "data/.d.parquet.crc", "data/.nothing.parquet.crc"] {
        place.add(file, checksum);
    }
    place.add("data/o.parquet", b"x");
    place.add("data/p.parquet", b"x");
    place.add("data/.p.parquet.crc", b"somebody's own file");
    let before = place.disk();
    let removed = place.remove_orphans("").await;
    assert_eq!((removed["deleted_files_count"], removed["skipped_hidden_count"]), (2, 5));
    let mut expected = paths(&["data/o.parquet", "data/.o.parquet.crc", "data/p.parquet"]);
    assert_eq!(gone(&before, &place.disk()), expected);
    place.expire("").await;
    expected.extend(place.dead());
    expected.insert("data/.a.parquet.crc".into());
    assert_eq!(gone(&before, &place.disk()), expected);
}

#[tokio::test]
async fn a_folder_with_the_name_of_an_expired_file_stays() {
    let place = Place::new(&three_snapshots().build());
    fs::remove_file(place.path("data/a.parquet")).unwrap();
    place.add("data/a.parquet/part", b"x");
    let before = place.disk();
    let call = |more: &str| place.call("expire_snapshots", &format!(", output => 'files'{more}"));
    let dry = place.session.statuses(&call(", dry_run => true")).await;
    let real = place.session.statuses(&call("")).await;
    let folder = place.written.locate("data/a.parquet");
    assert_eq!((dry[&folder].as_str(), real[&folder].as_str()), ("failed", "failed"));
    let dead: BTreeSet<_> = place.dead().into_iter().filter(|file| file != "data/a.parquet").collect();
    assert_eq!(gone(&before, &place.disk()), dead);
    assert!(place.path("data/a.parquet/part").exists());
}

#[tokio::test]
async fn odd_names_neither_hide_nor_stop_anything() {
    let names = [
        "new\nline",
        "tab\tchar",
        "hash#1",
        "hash#",
        "100%",
        "a%2Fb",
        "%41",
        "a+b",
        "a b",
        " lead",
        "trail ",
        "[x]",
        "{y}",
        "a?b",
        "a*b",
        "a\\b",
        "quote'",
        "double\"",
        "grün",
        "東京",
        "e\u{301}",
        "a:b",
        "~x",
        "-x",
        "a;b",
        "a&b",
    ];
    let place = Place::new(&three_snapshots().build());
    for name in names {
        place.add(format!("data/{name}.parquet"), b"x");
        place.add(format!("data/in {name}/o.parquet"), b"x");
    }
    // A name that is no UTF-8 can't be written in metadata: it is counted and left.
    place.add(Path::new("data").join(OsStr::from_bytes(b"bad\xff.parquet")), b"x");
    // Last in the listing's order, too.
    place.add("data/zz.parquet", b"x");
    let count = 2 * names.len() as i64 + 1;
    let dry = place.remove_orphans(", dry_run => true").await;
    assert_eq!((dry["deleted_files_count"], dry["skipped_unsupported_name_count"]), (count, 1));
    let real = place.remove_orphans("").await;
    same_numbers(&dry, &real).unwrap();
    let left: Vec<_> = fs::read_dir(place.path("data"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().as_bytes().to_vec())
        .collect();
    let expected = ["a", "b", "c", "d"].map(|name| format!("{name}.parquet").into_bytes());
    let expected: BTreeSet<Vec<u8>> = expected.into_iter().chain([b"bad\xff.parquet".to_vec()]).collect();
    assert_eq!(left.into_iter().collect::<BTreeSet<_>>(), expected);
}
