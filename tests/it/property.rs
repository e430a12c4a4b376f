//! Random histories and random arguments, against [`model`] and plain set difference.
//!
//! A history is a list of operations; one that makes no sense where it stands (removing a file from an empty table) is
//! passed over, so that any list is a history and shrinking a failure just drops operations.

use std::collections::BTreeSet;
use std::path::Path;

use iceberg_maintenance::fixtures::{ContentFile, History, Ref, Table as Described};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::model::{self, Policy, Verdict};
use crate::support::{Session, deleted_nothing, disk, files, literal, same_numbers, unchanged};
use crate::table::{COUNTS, Table, only_shrunk};

const HOUR_MS: i64 = 3600 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// When every history begins.
const BEGIN_MS: i64 = 1_700_000_000_000;
/// The clock of every run, well after every history.
const NOW_MS: i64 = BEGIN_MS + 60 * DAY_MS;

/// Something that happens to a table. An [`Index`] picks among what there is.
#[derive(Debug, Clone)]
enum Operation {
    Append(u8),
    Overwrite(Index),
    DeleteFile(Index),
    ReAdd(Index),
    PositionDeletes(Index),
    EqualityDeletes,
    /// Vectors of two data files in one Puffin file.
    DeletionVectors(Index, Index),
    RewriteManifests,
    Stage,
    CherryPick(Index),
    RollbackTo(Index),
    Branch(u8, Index, Retention),
    Tag(u8, Index, Option<i64>),
    RemoveRef(Index),
    /// The operations that follow go to this branch, or to main.
    SwitchTo(Option<u8>),
    /// The metadata loses a snapshot: its children's parent is missing.
    Forget(Index),
    Statistics(Index),
    PartitionStatistics(Index),
}

/// The retention fields of a branch; days for ages.
#[derive(Debug, Clone)]
struct Retention {
    min_snapshots: Option<i64>,
    max_snapshot_age_days: Option<i64>,
    max_ref_age_days: Option<i64>,
}

/// A table to make.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    format_version: i64,
    /// Each operation, and the hours that the clock moves before it: now and then backwards.
    operations: Vec<(i64, Operation)>,
    /// v1: snapshots that list their manifests inline.
    inline: Vec<Index>,
    main_retention: Option<Retention>,
    /// `history.expire.*`, ages in days.
    properties: Retention,
    /// Leave out refs (where main is the only one) and the snapshot log, as old writers do.
    old_writer: bool,
}

/// The arguments of an expiry; times are hours after the history's begin.
#[derive(Debug, Clone)]
enum Arguments {
    Policy { older_than: Option<i64>, retain_last: Option<i64>, expire_before: Option<i64> },
    Ids(Vec<Index>),
}

fn ages(most: i64) -> impl Strategy<Value = Option<i64>> {
    prop::option::weighted(0.4, 1..most)
}

fn retention() -> impl Strategy<Value = Retention> {
    (ages(4), ages(70), ages(70)).prop_map(|(min_snapshots, max_snapshot_age_days, max_ref_age_days)| Retention {
        min_snapshots,
        max_snapshot_age_days,
        max_ref_age_days,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let index = any::<Index>;
    prop_oneof![
        6 => (1..3u8).prop_map(Append),
        4 => index().prop_map(Overwrite),
        3 => index().prop_map(DeleteFile),
        2 => index().prop_map(ReAdd),
        2 => index().prop_map(PositionDeletes),
        1 => Just(EqualityDeletes),
        3 => (index(), index()).prop_map(|(one, other)| DeletionVectors(one, other)),
        1 => Just(RewriteManifests),
        2 => Just(Stage),
        2 => index().prop_map(CherryPick),
        2 => index().prop_map(RollbackTo),
        2 => (0..3u8, index(), retention()).prop_map(|(name, at, retention)| Branch(name, at, retention)),
        2 => (0..3u8, index(), ages(70)).prop_map(|(name, at, age)| Tag(name, at, age)),
        1 => index().prop_map(RemoveRef),
        2 => prop::option::of(0..3u8).prop_map(SwitchTo),
        1 => index().prop_map(Forget),
        1 => index().prop_map(Statistics),
        1 => index().prop_map(PartitionStatistics),
    ]
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let hours = prop_oneof![8 => 1..72i64, 1 => -60..0i64, 1 => Just(0)];
    (
        1..=3i64,
        prop::collection::vec((hours, operation()), 1..22),
        prop::collection::vec(any::<Index>(), 0..3),
        prop::option::weighted(0.2, retention()),
        retention(),
        prop::bool::weighted(0.15),
    )
        .prop_map(|(format_version, operations, inline, main_retention, properties, old_writer)| Plan {
            format_version,
            operations,
            inline,
            main_retention,
            properties,
            old_writer,
        })
}

fn arguments() -> impl Strategy<Value = Arguments> {
    let hours = || prop::option::weighted(0.6, -100..1500i64);
    let policy = (hours(), ages(5), prop::option::weighted(0.2, -100..1500i64));
    prop_oneof![
        4 => policy.prop_map(|(older_than, retain_last, expire_before)| Arguments::Policy { older_than, retain_last, expire_before }),
        1 => prop::collection::vec(any::<Index>(), 1..4).prop_map(Arguments::Ids),
    ]
}

impl Retention {
    fn of(&self, reference: Ref) -> Ref {
        Ref {
            min_snapshots_to_keep: self.min_snapshots,
            max_snapshot_age_ms: self.max_snapshot_age_days.map(|days| days * DAY_MS),
            max_ref_age_ms: self.max_ref_age_days.map(|days| days * DAY_MS),
            ..reference
        }
    }
}

/// Plays a plan.
struct Player {
    history: History,
    now_ms: i64,
    files_made: usize,
    staged: Vec<i64>,
    /// Data files that were ever in the table.
    known: Vec<String>,
}

impl Plan {
    pub(crate) fn play(&self) -> Described {
        let mut table = Described::new(self.format_version);
        table.last_updated_ms = BEGIN_MS;
        table.modified_ms = Some(BEGIN_MS);
        let properties = [
            ("history.expire.min-snapshots-to-keep", self.properties.min_snapshots),
            ("history.expire.max-snapshot-age-ms", self.properties.max_snapshot_age_days.map(|days| days * DAY_MS)),
            ("history.expire.max-ref-age-ms", self.properties.max_ref_age_days.map(|days| days * DAY_MS)),
        ];
        for (name, value) in properties {
            if let Some(value) = value {
                table.property(name, &value.to_string());
            }
        }
        let mut player =
            Player { history: History::new(table), now_ms: BEGIN_MS, files_made: 0, staged: vec![], known: vec![] };
        for (hours, operation) in &self.operations {
            player.now_ms += hours * HOUR_MS;
            player.play(operation, self.format_version);
        }
        let mut table = player.history.build();
        if let (Some(retention), Some(main)) =
            (&self.main_retention, table.refs.as_mut().and_then(|refs| refs.get_mut("main")))
        {
            *main = retention.of(main.clone());
        }
        if self.format_version == 1 {
            for index in &self.inline {
                let count = table.snapshots.len();
                if count > 0 {
                    table.snapshots[index.index(count)].manifest_list = None;
                }
            }
        }
        if self.old_writer && self.main_retention.is_none() {
            table.omit.insert("snapshot-log".into());
            if table.refs.as_ref().is_some_and(|refs| refs.keys().all(|name| name == "main")) {
                table.refs = None;
            }
        }
        table
    }
}

impl Player {
    fn play(&mut self, operation: &Operation, format_version: i64) {
        let now = self.now_ms;
        match operation {
            Operation::Append(count) => {
                let files = self.new_files(*count);
                self.history.append(now, files);
            }
            Operation::Overwrite(which) => {
                if let Some(old) = self.live_file(which) {
                    let new = self.new_files(1);
                    self.history.overwrite(now, [old], new);
                }
            }
            Operation::DeleteFile(which) => {
                if let Some(old) = self.live_file(which) {
                    self.history.delete_files(now, [old]);
                }
            }
            Operation::ReAdd(which) => {
                let live = self.live_files();
                let gone: Vec<_> = self.known.iter().filter(|path| !live.contains(path)).cloned().collect();
                if let Some(path) = pick(&gone, which) {
                    self.history.re_add(now, [path]);
                }
            }
            Operation::PositionDeletes(which) if format_version == 2 => {
                if let Some(of) = self.live_file(which) {
                    let name = self.new_name();
                    self.history.position_deletes(now, &name, &of);
                }
            }
            Operation::EqualityDeletes if format_version >= 2 && self.history.head().is_some() => {
                let name = self.new_name();
                self.history.equality_deletes(now, &name);
            }
            Operation::DeletionVectors(one, other) if format_version == 3 => {
                let of: BTreeSet<_> = [one, other].into_iter().filter_map(|which| self.live_file(which)).collect();
                if !of.is_empty() {
                    let vectors: Vec<_> = of.iter().map(|path| (path.as_str(), &[1, 3][..])).collect();
                    let name = self.new_name();
                    self.history.deletion_vectors(now, &name, &vectors);
                }
            }
            Operation::RewriteManifests if !self.live_files().is_empty() => {
                self.history.rewrite_manifests(now);
            }
            Operation::Stage => {
                let files = self.new_files(1);
                let id = self.history.stage(now, files);
                self.staged.push(id);
            }
            Operation::CherryPick(which) => {
                if let Some(id) = pick(&self.staged, which) {
                    self.history.cherry_pick(now, id);
                }
            }
            Operation::RollbackTo(which) => {
                if let Some(id) = self.snapshot(which) {
                    self.history.rollback_to(now, id);
                }
            }
            Operation::Branch(name, at, retention) => {
                if let Some(id) = self.snapshot(at) {
                    self.history.set_ref(&format!("branch{name}"), retention.of(Ref::branch(id)));
                }
            }
            Operation::Tag(name, at, age_days) => {
                if let Some(id) = self.snapshot(at) {
                    let tag = Ref { max_ref_age_ms: age_days.map(|days| days * DAY_MS), ..Ref::tag(id) };
                    self.history.set_ref(&format!("tag{name}"), tag);
                }
            }
            Operation::RemoveRef(which) => {
                let refs = self.history.table().refs.iter().flatten();
                let names: Vec<_> = refs.map(|(name, _)| name.clone()).filter(|name| name != "main").collect();
                if let Some(name) = pick(&names, which) {
                    self.history.remove_ref(&name);
                }
            }
            Operation::SwitchTo(name) => {
                let branch = name.map(|name| format!("branch{name}"));
                let exists = |name: &String| self.history.table().refs.iter().flatten().any(|(known, _)| known == name);
                let branch = branch.filter(exists).unwrap_or_else(|| "main".into());
                self.history.on(&branch);
            }
            Operation::Forget(which) => {
                let heads = heads(self.history.table());
                let ids = self.history.table().snapshots.iter().map(|snapshot| snapshot.id);
                let free: Vec<_> = ids.filter(|id| !heads.contains(id)).collect();
                if let Some(id) = pick(&free, which) {
                    self.staged.retain(|staged| *staged != id);
                    self.history.forget(now, &[id]);
                }
            }
            Operation::Statistics(at) => {
                if let Some(id) = self.snapshot(at).filter(|id| self.has_no_statistics(*id)) {
                    self.history.statistics(id);
                }
            }
            Operation::PartitionStatistics(at) => {
                if let Some(id) = self.snapshot(at).filter(|id| self.has_no_statistics(*id)) {
                    self.history.partition_statistics(id);
                }
            }
            // Not in this format version, or nothing to do it to.
            Operation::PositionDeletes(_)
            | Operation::EqualityDeletes
            | Operation::DeletionVectors(..)
            | Operation::RewriteManifests => {}
        }
    }

    fn new_name(&mut self) -> String {
        self.files_made += 1;
        format!("f{}", self.files_made)
    }

    fn new_files(&mut self, count: u8) -> Vec<ContentFile> {
        let files: Vec<_> = (0..count).map(|_| ContentFile::data(&self.new_name())).collect();
        self.known.extend(files.iter().map(|file| file.path.clone()));
        files
    }

    /// The data files that are live at the chosen branch's head.
    fn live_files(&self) -> Vec<String> {
        let live = self.history.head().map(|head| self.history.table().live_content(head)).unwrap_or_default();
        live.into_iter().map(|file| file.path).filter(|path| self.known.contains(path)).collect()
    }

    fn live_file(&self, which: &Index) -> Option<String> {
        pick(&self.live_files(), which)
    }

    fn snapshot(&self, which: &Index) -> Option<i64> {
        let ids: Vec<_> = self.history.table().snapshots.iter().map(|snapshot| snapshot.id).collect();
        pick(&ids, which)
    }

    fn has_no_statistics(&self, id: i64) -> bool {
        let table = self.history.table();
        table.statistics.iter().chain(&table.partition_statistics).all(|statistics| statistics.snapshot_id != id)
    }
}

fn pick<T: Clone>(among: &[T], which: &Index) -> Option<T> {
    (!among.is_empty()).then(|| which.get(among).clone())
}

/// Snapshots that a ref points to, main's included.
fn heads(table: &Described) -> BTreeSet<i64> {
    let refs = table.refs.iter().flatten().map(|(_, reference)| reference.snapshot_id);
    refs.chain(table.current_snapshot_id).collect()
}

impl Arguments {
    /// The arguments as SQL and for the model; `None` when there is no snapshot that ids could name.
    fn resolve(&self, table: &Described) -> Option<(String, Policy)> {
        match self {
            Arguments::Policy { older_than, retain_last, expire_before } => {
                let time = |hours: &Option<i64>| hours.map(|hours| BEGIN_MS + hours * HOUR_MS);
                let (older_than, expire_before) = (time(older_than), time(expire_before));
                let given =
                    [("older_than", older_than), ("retain_last", *retain_last), ("expire_before", expire_before)];
                let sql = given.iter().filter_map(|(name, value)| Some(format!(", {name} => {}", (*value)?)));
                let policy = Policy { older_than, expire_before, retain_last: *retain_last, snapshot_ids: None };
                Some((sql.collect(), policy))
            }
            Arguments::Ids(which) => {
                let heads = heads(table);
                let ids = table.snapshots.iter().map(|snapshot| snapshot.id);
                let free: Vec<_> = ids.filter(|id| !heads.contains(id)).collect();
                let ids: BTreeSet<_> = which.iter().filter_map(|which| pick(&free, which)).collect();
                let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
                let policy = Policy { snapshot_ids: Some(ids.clone()), ..Policy::default() };
                (!ids.is_empty()).then(|| (format!(", snapshot_ids => [{list}]"), policy))
            }
        }
    }
}

/// Expires on disk and compares snapshots, refs, the snapshot log, files and counts; then expires again.
async fn expire(folder: &Path, table: &Described, arguments: &str, policy: &Policy) -> Result<(), String> {
    let written = table.write(folder).map_err(|e| e.to_string())?;
    let location = written.folder.to_str().unwrap();
    let before = Table::read(Path::new("/"), location);
    let Verdict { snapshots, refs } = model::decide(&before.metadata, policy, NOW_MS);
    let expired: BTreeSet<_> = before.snapshot_ids().difference(&snapshots).copied().collect();
    let dead = before.dead_without(&expired)?;
    let described: BTreeSet<_> =
        table.only_needed_by(&expired).iter().map(|file| format!("{location}/{}", file.path)).collect();
    check(&dead.paths(), &described, "dead files as read and as described")?;

    let session = Session::new(Some(NOW_MS));
    let call = |more: &str| format!("CALL system.expire_snapshots(table => {}{arguments}{more})", literal(location));
    let disk_before = disk(&written.folder);
    let dry = session.metrics(&call(", dry_run => true")).await?;
    unchanged("a dry run", &disk_before, &disk(&written.folder))?;
    let real = session.metrics(&call("")).await?;
    same_numbers(&dry, &real)?;

    let (disk_after, after) = (disk(&written.folder), Table::read(Path::new("/"), location));
    let gone = files(&disk_before).difference(&files(&disk_after)).map(|file| format!("{location}/{file}")).collect();
    check(&gone, &dead.paths(), "deleted files")?;
    check(&after.snapshot_ids(), &snapshots, "snapshots left")?;
    check(&after.refs(), &refs, "refs left")?;
    check(&COUNTS.map(|name| real[name]), &dead.counts(), "counts")?;
    check(&real["deleted_snapshots_count"], &(expired.len() as i64), "expired snapshots")?;
    let log = model::snapshot_log(&before.numbers("snapshot-log", "snapshot-id"), &snapshots, &expired);
    check(&after.numbers("snapshot-log", "snapshot-id"), &log, "snapshot log")?;
    match before.text == after.text {
        true => unchanged("a run with nothing to do", &disk_before, &disk_after)?,
        false => only_shrunk(&before, &after)?,
    }

    if policy.snapshot_ids.is_none() {
        deleted_nothing(&session.metrics(&call("")).await?)?;
        unchanged("a second run", &disk_after, &disk(&written.folder))?;
    }
    Ok(())
}

/// Removes orphans and compares the files left with what the metadata names.
async fn remove_orphans(folder: &Path, table: &Described, strays: &[&str]) -> Result<(), String> {
    let mut table = table.clone();
    for stray in strays {
        table.stray(stray, BEGIN_MS);
    }
    let written = table.write(folder).map_err(|e| e.to_string())?;
    let location = written.folder.to_str().unwrap();
    let before = Table::read(Path::new("/"), location);
    let referenced = before.referenced()?;
    // Nothing of the table is in that folder.
    let foreign = |file: &str| file.starts_with("extra/");
    let hidden = |file: &str| file.split('/').any(|part| part.starts_with(['_', '.']));
    let disk_before = disk(&written.folder);
    let orphans: BTreeSet<_> = files(&disk_before)
        .into_iter()
        .filter(|file| !hidden(file) && !foreign(file) && !referenced.contains(&format!("{location}/{file}")))
        .collect();

    let session = Session::new(Some(NOW_MS));
    let call = |more: &str| format!("CALL system.remove_orphan_files(table => {}{more})", literal(location));
    let dry = session.metrics(&call(", dry_run => true")).await?;
    unchanged("a dry run", &disk_before, &disk(&written.folder))?;
    let real = session.metrics(&call("")).await?;
    same_numbers(&dry, &real)?;
    let disk_after = disk(&written.folder);
    check(&files(&disk_before).difference(&files(&disk_after)).cloned().collect(), &orphans, "deleted files")?;
    check(&real["deleted_files_count"], &(orphans.len() as i64), "count")?;
    let kept = strays.iter().filter(|file| foreign(file) && !hidden(file)).count() as i64;
    check(&real["skipped_foreign_files_count"], &kept, "foreign files")?;
    deleted_nothing(&session.metrics(&call("")).await?)?;
    unchanged("a second run", &disk_after, &disk(&written.folder))
}

fn check<T: PartialEq + std::fmt::Debug>(got: &T, expected: &T, what: &str) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{what}: got {got:?}, expected {expected:?}")),
    }
}

/// Names of files that nobody knows, some of them hidden.
pub(crate) const STRAYS: [&str; 6] = [
    "data/unknown.parquet",
    "data/p=1/with space%20#1.parquet",
    "metadata/left-m0.avro",
    "data/_temporary/0/part.parquet",
    "data/.part.parquet.crc",
    "extra/file",
];

pub(crate) fn block_on(future: impl Future<Output = Result<(), String>>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future).map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(160), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expiry_leaves_what_the_rules_say(plan in plan(), arguments in arguments()) {
        let table = plan.play();
        if let Some((sql, policy)) = arguments.resolve(&table) {
            let folder = tempfile::tempdir().unwrap();
            block_on(expire(&folder.path().join("t"), &table, &sql, &policy))?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(48), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn orphan_removal_leaves_what_the_metadata_names(
        plan in plan(),
        strays in prop::sample::subsequence(STRAYS.to_vec(), 0..=STRAYS.len()),
    ) {
        let table = plan.play();
        let folder = tempfile::tempdir().unwrap();
        block_on(remove_orphans(&folder.path().join("t"), &table, &strays))?;
    }
}

/// `PROPTEST_CASES` asks for more, or fewer.
pub(crate) fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

#[test]
fn histories_reach_the_states_that_matter() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tables: Vec<_> = (0..400).map(|_| plan().new_tree(&mut runner).unwrap().current().play()).collect();
    let share = |test: &dyn Fn(&Described) -> bool| tables.iter().filter(|table| test(table)).count();
    let ids = |table: &Described| table.snapshots.iter().map(|snapshot| snapshot.id).collect::<BTreeSet<_>>();
    let missing_parent = |table: &Described| {
        table.snapshots.iter().any(|s| s.parent.is_some_and(|parent| !ids(table).contains(&parent)))
    };
    let shared_puffin = |table: &Described| {
        let entries = table.manifests.values().flat_map(|manifest| &manifest.entries);
        let vectors = entries.filter(|entry| entry.is_live() && entry.file.path.ends_with(".puffin"));
        let vectors: BTreeSet<_> = vectors.map(|entry| (&entry.file.path, entry.file.offset)).collect();
        let paths: BTreeSet<_> = vectors.iter().map(|(path, _)| path).collect();
        paths.len() < vectors.len()
    };
    let backwards =
        |table: &Described| table.snapshots.windows(2).any(|pair| pair[1].timestamp_ms < pair[0].timestamp_ms);
    let picked = |table: &Described| table.snapshots.iter().any(|s| s.summary.contains_key("source-snapshot-id"));
    let several_refs = |table: &Described| table.refs.as_ref().is_some_and(|refs| refs.len() > 2);
    for (what, count) in [
        ("missing parents", share(&missing_parent)),
        ("shared puffins", share(&shared_puffin)),
        ("clocks that run backwards", share(&backwards)),
        ("cherry-picks", share(&picked)),
        ("several refs", share(&several_refs)),
    ] {
        assert!(count >= 8, "only {count} of 400 histories have {what}");
    }
}
