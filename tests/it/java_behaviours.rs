//! What Iceberg Java's own tests of expiry and orphan removal ask for, on tables described here.
//!
//! Each test builds the history of one of them, or of a few that say the same, and spells out by hand what must be left
//! and what must go, with the counts that Java's tests expect. `tests/reports/COVERAGE.md` has the list.

mod elsewhere;
mod expiry;
mod metadata;
mod orphans;
mod refs;

use std::collections::BTreeSet;
use std::path::Path;

use iceberg_maintenance::Error;
use iceberg_maintenance::fixtures::{ContentFile, History, Table, Written};

use crate::support::{Disk, MetricRows, Session, deleted_nothing, disk, files, literal, same_numbers, unchanged};
use crate::table::{COUNTS, Table as OnDisk};

const DAY_MS: i64 = 24 * 3600 * 1000;
/// When every history begins: 2023-11-14 22:13:20 UTC.
const BEGIN_MS: i64 = 1_700_000_000_000;
/// The clock of every run: 2024-01-13 22:13:20 UTC.
const NOW_MS: i64 = BEGIN_MS + 60 * DAY_MS;

/// So many days after the begin.
fn day(number: i64) -> i64 {
    BEGIN_MS + number * DAY_MS
}

fn older_than(ms: i64) -> String {
    format!(", older_than => {ms}")
}

/// Everything that no rule keeps goes.
fn all() -> String {
    older_than(NOW_MS)
}

/// An empty table.
fn table(format_version: i64) -> Table {
    Table { last_updated_ms: BEGIN_MS, modified_ms: Some(BEGIN_MS), ..Table::new(format_version) }
}

fn history(format_version: i64) -> History {
    History::new(table(format_version))
}

/// A table to which each of these files was appended alone, one a day from day 1: snapshot 1, 2, …
fn appends(format_version: i64, names: &[&str]) -> History {
    let mut history = history(format_version);
    for (name, number) in names.iter().zip(1..) {
        history.append(day(number), [*name]);
    }
    history
}

/// An append that carries all manifests over, those in which nothing is live any more, too.
fn fast_append(history: &mut History, at_ms: i64, name: &str) {
    let parent = history.head().and_then(|head| history.table().snapshot(head)).expect("a parent").manifests.clone();
    let id = history.append(at_ms, [name]);
    let snapshot = history.table_mut().snapshot_mut(id).unwrap();
    let left_out: Vec<_> = parent.into_iter().filter(|path| !snapshot.manifests.contains(path)).collect();
    snapshot.manifests.extend(left_out);
}

fn position_deletes(name: &str, of: &str) -> ContentFile {
    ContentFile::position_deletes(name, of)
}

/// A table on disk, and a session whose clock stands long after its history.
struct Place {
    warehouse: tempfile::TempDir,
    written: Written,
    session: Session,
}

/// What a run left and took.
struct Outcome {
    /// Files that are gone, relative to the table's folder.
    gone: BTreeSet<String>,
    metrics: MetricRows,
    /// The metadata after the run.
    after: OnDisk,
    described: Table,
}

impl Place {
    fn new(table: Table) -> Self {
        Self::on(tempfile::tempdir().unwrap(), table)
    }

    /// Writes the table into the folder `t` of a warehouse.
    fn on(warehouse: tempfile::TempDir, table: Table) -> Self {
        let written = table.write(warehouse.path().join("t")).unwrap();
        Self { warehouse, written, session: Session::new(Some(NOW_MS)) }
    }

    fn folder(&self) -> &Path {
        &self.written.folder
    }

    fn disk(&self) -> Disk {
        disk(self.folder())
    }

    fn read(&self) -> OnDisk {
        OnDisk::read(Path::new("/"), self.folder().to_str().unwrap())
    }

    fn call(&self, procedure: &str, more: &str) -> String {
        format!("CALL system.{procedure}(table => {}{more})", literal(self.folder().to_str().unwrap()))
    }

    async fn expire(&self, more: &str) -> Outcome {
        self.run(&|dry_run| self.call("expire_snapshots", &format!("{more}{dry_run}"))).await
    }

    async fn remove_orphans(&self, more: &str) -> Outcome {
        self.run(&|dry_run| self.call("remove_orphan_files", &format!("{more}{dry_run}"))).await
    }

    /// A dry run, the real run, and one that has nothing left to do; everything that the table needs is still there.
    async fn run(&self, call: &dyn Fn(&str) -> String) -> Outcome {
        let before = self.disk();
        let dry = self.session.metrics(&call(", dry_run => true")).await.unwrap();
        unchanged("a dry run", &before, &self.disk()).unwrap();
        let metrics = self.session.metrics(&call("")).await.unwrap();
        same_numbers(&dry, &metrics).unwrap();
        let (disk_after, after) = (self.disk(), self.read());
        let gone: BTreeSet<_> = files(&before).difference(&files(&disk_after)).cloned().collect();
        let snapshots = after.snapshot_ids();
        let mut needed: BTreeSet<_> = after.needed_by(&snapshots).unwrap().into_keys().collect();
        needed.extend(after.statistics_of(&snapshots));
        let lost: Vec<_> = gone.iter().filter(|file| needed.contains(&format!("{}/{file}", self.path()))).collect();
        assert!(lost.is_empty(), "files that the table needs are gone: {lost:?}");
        match self.session.metrics(&call("")).await {
            Ok(again) => deleted_nothing(&again).unwrap(),
            Err(refusal) => assert!(refusal.contains("of snapshot_ids does not exist"), "{refusal}"),
        }
        unchanged("a second run", &disk_after, &self.disk()).unwrap();
        Outcome { gone, metrics, after, described: self.written.table.clone() }
    }

    fn path(&self) -> String {
        self.folder().display().to_string()
    }

    /// Fails unless the call is refused, saying this, and nothing changes.
    async fn is_refused(&self, call: &str, says: &str) {
        let before = disk(self.warehouse.path());
        let error = self.session.failure(call).await;
        let message = Error::find(&error).map_or_else(|| error.to_string(), |error| error.to_string());
        assert!(message.contains(says), "{call}: {message}");
        unchanged("a refused call", &before, &disk(self.warehouse.path())).unwrap();
    }
}

impl Outcome {
    /// Fails unless exactly these snapshots are left, exactly these files are gone, and the six counts say so.
    #[track_caller]
    fn is(self, snapshots: &[i64], gone: &str, counts: [i64; 6]) -> Self {
        assert_eq!(self.after.snapshot_ids(), snapshots.iter().copied().collect(), "snapshots");
        assert_eq!(self.gone, named(&self.described, gone), "files that are gone");
        assert_eq!(COUNTS.map(|name| self.metrics[name]), counts, "{COUNTS:?}");
        self
    }

    #[track_caller]
    fn did_nothing(self, snapshots: &[i64]) {
        self.is(snapshots, "", [0; 6]);
    }

    #[track_caller]
    fn refs(self, names: &[&str]) {
        assert_eq!(self.after.refs(), names.iter().map(|name| name.to_string()).collect(), "refs");
    }

    /// Fails unless exactly these files, no others, were orphans.
    #[track_caller]
    fn took(self, orphans: &[&str]) {
        assert_eq!(self.gone, orphans.iter().map(|file| file.to_string()).collect(), "orphans");
        assert_eq!(self.metrics["deleted_files_count"], orphans.len() as i64, "{:?}", self.metrics);
    }
}

/// The files that short names mean: `L2` the manifest list of snapshot 2, `M2` all manifests that snapshot 2 wrote, `M2+`
/// those in which something is live, `M2-` those in which nothing is, `a` the data file `data/a.parquet`, and anything
/// with a dot in it a path.
fn named(table: &Table, names: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for name in names.split_whitespace() {
        let number = |text: &str| text.trim_end_matches(['+', '-']).parse::<i64>().ok();
        match (name.split_at(1), number(&name[1..])) {
            (("L", _), Some(id)) => paths.extend(table.snapshot(id).unwrap().manifest_list.clone()),
            (("M", rest), Some(id)) => {
                let written = table.manifests.iter().filter(|(_, manifest)| manifest.added_snapshot_id == id);
                let asked_for = written.filter(|(_, manifest)| {
                    let is_live = manifest.entries.iter().any(|entry| entry.is_live());
                    !(rest.ends_with('+') && !is_live || rest.ends_with('-') && is_live)
                });
                paths.extend(asked_for.map(|(path, _)| path.clone()));
            }
            _ if name.contains('.') => _ = paths.insert(name.to_string()),
            _ => _ = paths.insert(format!("data/{name}.parquet")),
        }
    }
    paths
}
