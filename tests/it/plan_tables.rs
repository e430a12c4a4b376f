//! What would happen, as tables: `iceberg_expire_plan`, `iceberg_orphan_files`, `snapshot_sizes`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use iceberg_maintenance::fixtures::{History, Ref, Table};
use tempfile::TempDir;

use crate::support::{Row, Session, disk, set_modified, unchanged};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const NOW_MS: i64 = BEGIN_MS + 30 * DAY_MS;

struct Scene {
    _guard: TempDir,
    folder: PathBuf,
    table: Table,
}

/// Seven snapshots with overwrites, a file that comes back, a staged snapshot, deletes, statistics, a tag and a branch.
fn scene() -> Scene {
    let guard = tempfile::tempdir().unwrap();
    let folder = guard.path().canonicalize().unwrap().join("t");
    let mut history = History::new(Table { last_updated_ms: BEGIN_MS, ..Table::new(2) });
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
    history.stage(BEGIN_MS + 3 * DAY_MS, ["w"]);
    history.append(BEGIN_MS + 4 * DAY_MS, ["d"]);
    history.re_add(BEGIN_MS + 5 * DAY_MS, ["a"]);
    history.delete_files(BEGIN_MS + 6 * DAY_MS, ["b", "c"]);
    history.append(BEGIN_MS + 7 * DAY_MS, ["e"]);
    history.statistics(1);
    history.set_ref("old", Ref::tag(2).max_ref_age_ms(DAY_MS));
    history.tag("kept", 4);
    let table = history.table().clone();
    table.write(&folder).unwrap();
    Scene { _guard: guard, folder, table }
}

impl Scene {
    async fn rows(&self, sql: &str) -> Vec<Row> {
        let before = disk(&self.folder);
        let sql = sql.replace("TABLE", &format!("'{}'", self.folder.display()));
        let rows = Session::new(Some(NOW_MS)).rows(&sql).await.unwrap();
        unchanged(&sql, &before, &disk(&self.folder)).unwrap();
        rows
    }

    /// By counting: which snapshots need each file, by the table's description.
    fn needed_by(&self) -> BTreeMap<String, BTreeSet<i64>> {
        let mut needed: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        for snapshot in &self.table.snapshots {
            for file in self.table.live_files(snapshot.id) {
                needed.entry(file.path).or_default().insert(snapshot.id);
            }
        }
        needed
    }

    /// How many files, and their bytes as their manifests or the disk have them.
    fn measured<'a>(&self, files: impl Iterator<Item = &'a String>) -> (i64, i64) {
        let declared: BTreeMap<String, i64> = self.declared();
        let bytes = |file: &String| match declared.get(file) {
            Some(bytes) => *bytes,
            None => fs::metadata(self.folder.join(file)).unwrap().len() as i64,
        };
        let bytes: Vec<i64> = files.map(bytes).collect();
        (bytes.len() as i64, bytes.iter().sum())
    }

    /// The sizes that manifests declare.
    fn declared(&self) -> BTreeMap<String, i64> {
        let entries = self.table.manifests.values().flat_map(|manifest| &manifest.entries);
        entries.map(|entry| (entry.file.path.clone(), entry.file.size as i64)).collect()
    }
}

fn number(row: &Row, column: &str) -> i64 {
    row[column].as_deref().unwrap().parse().unwrap()
}

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    row[column].as_deref().unwrap_or("NULL")
}

#[tokio::test]
async fn snapshot_sizes_are_what_counting_gives() {
    let scene = scene();
    let rows = scene.rows("SELECT * FROM snapshot_sizes(TABLE)").await;
    let needed = scene.needed_by();
    let order: Vec<i64> = rows.iter().map(|row| number(row, "snapshot_id")).collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7], "the oldest first");
    for (at, row) in rows.iter().enumerate() {
        let (id, up_to) = (order[at], BTreeSet::from_iter(order[..=at].iter().copied()));
        let alone = needed.iter().filter(|(_, snapshots)| **snapshots == BTreeSet::from([id])).map(|(file, _)| file);
        let exclusive = (number(row, "exclusive_files_count"), number(row, "exclusive_bytes"));
        assert_eq!(exclusive, scene.measured(alone), "only {id} needs them");
        let free = needed.iter().filter(|(_, snapshots)| snapshots.is_subset(&up_to)).map(|(file, _)| file);
        let freed = (number(row, "freed_files_count"), number(row, "freed_bytes"));
        assert_eq!(freed, scene.measured(free), "free without all up to {id}");
    }
    assert_eq!((text(&rows[3], "refs"), text(&rows[6], "refs"), text(&rows[0], "refs")), ("kept", "main", "NULL"));
}

#[tokio::test]
async fn an_expire_plan_says_what_the_dry_run_does_and_by_which_rule() {
    let scene = scene();
    let rows = scene.rows("SELECT * FROM iceberg_expire_plan(TABLE, retain_last => 2)").await;
    let decided: Vec<_> =
        rows.iter().map(|row| (number(row, "snapshot_id"), text(row, "decision"), text(row, "rule"))).collect();
    assert_eq!(
        decided,
        [
            (1, "expire", "old_on_branch"),
            (2, "expire", "old_on_branch"),
            (3, "expire", "old_unreferenced"),
            (4, "keep", "head"),
            (5, "expire", "old_on_branch"),
            (6, "keep", "within_minimum"),
            (7, "keep", "head"),
        ]
    );
    assert_eq!((text(&rows[3], "ref"), text(&rows[4], "ref"), text(&rows[6], "ref")), ("kept", "main", "main"));
    let needed = scene.needed_by();
    let alone = needed.iter().filter(|(_, snapshots)| **snapshots == BTreeSet::from([3])).map(|(file, _)| file);
    assert_eq!((number(&rows[2], "exclusive_files_count"), number(&rows[2], "exclusive_bytes")), scene.measured(alone));

    let refs = scene.rows("SELECT * FROM iceberg_expire_plan(TABLE, output => 'refs') ORDER BY name").await;
    let refs: Vec<_> = refs.iter().map(|row| (text(row, "name"), text(row, "type"), text(row, "decision"))).collect();
    assert_eq!(refs, [("kept", "TAG", "keep"), ("main", "BRANCH", "keep"), ("old", "TAG", "expire")]);

    let files = scene.rows("SELECT * FROM iceberg_expire_plan(TABLE, retain_last => 2, output => 'files')").await;
    let dry =
        scene.rows("SELECT * FROM expire_snapshots(TABLE, retain_last => 2, output => 'files', dry_run => true)").await;
    let paths = |rows: &[Row]| rows.iter().map(|row| text(row, "file_path").to_string()).collect::<Vec<_>>();
    assert_eq!(paths(&files), paths(&dry));
    let location = format!("file:{}/", scene.folder.display());
    for file in &files {
        let path = text(file, "file_path").replace(&location, "").replace(&format!("{}/", scene.folder.display()), "");
        let last = needed[&path].iter().max_by_key(|id| scene.table.snapshot(**id).unwrap().timestamp_ms);
        assert_eq!(number(file, "last_snapshot_id"), *last.unwrap(), "{path}");
    }
}

#[tokio::test]
async fn orphan_files_are_rows_that_can_be_joined() {
    let scene = scene();
    let strays = ["data/old.parquet", "data/new.parquet", "metadata/old.avro"];
    for stray in strays {
        fs::write(scene.folder.join(stray), stray).unwrap();
        set_modified(&scene.folder.join(stray), BEGIN_MS as u64);
    }
    set_modified(&scene.folder.join(strays[1]), NOW_MS as u64);
    let rows = scene.rows("SELECT * FROM iceberg_orphan_files(TABLE) ORDER BY file_path").await;
    let columns: BTreeSet<&str> = rows[0].keys().map(String::as_str).collect();
    let expected = ["content", "file_path", "file_size_in_bytes", "last_modified", "reason", "status"];
    assert_eq!(columns, BTreeSet::from(expected));
    let paths: Vec<_> = rows.iter().map(|row| text(row, "file_path").rsplit_once('/').unwrap().1).collect();
    assert_eq!(paths, ["old.parquet", "old.avro"]);
    let sum = "SELECT count(*) AS n, sum(o.file_size_in_bytes) AS bytes FROM iceberg_orphan_files(TABLE) o \
               JOIN (VALUES ('DATA'), ('MANIFEST')) AS kinds(kind) ON o.content = kinds.kind LIMIT 1";
    let sum = scene.rows(sum).await;
    assert_eq!((number(&sum[0], "n"), number(&sum[0], "bytes")), (2, (strays[0].len() + strays[2].len()) as i64));
}
