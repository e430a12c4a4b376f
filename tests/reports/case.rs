//! A case: a table, a call, and what comes of it. Whatever the case is about, the checks of [`crate::checks`] run around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use iceberg_maintenance::fixtures::{History, Table};
use iceberg_maintenance::{Clock, FixedClock, Maintenance, SystemClock};
use url::Url;

use crate::checks::{self, Names};
use crate::place::{Place, Read};
use crate::support::{Disk, MetricRows, Row, Session, files, literal, same_numbers, unchanged};
use crate::watched::Kind;

pub const HOUR_MS: i64 = 3_600_000;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// What every case's clock shows: 2026-01-01 00:00:00 UTC.
pub const NOW_MS: i64 = 1_767_225_600_000;

/// A day before now, ms since the epoch.
pub fn days_ago(days: i64) -> i64 {
    NOW_MS - days * DAY_MS
}

/// Ten days from now by the true clock: files that an object store has just taken are old by then.
pub fn in_ten_days() -> i64 {
    SystemClock.now_ms() + 10 * DAY_MS
}

/// A statement that makes the relation `listed` of these files, by their paths in the place, all 50 days old.
pub fn list_of(paths: &[&str]) -> String {
    let row = |path: &&str| {
        format!("SELECT '{{root}}/{path}' AS file_path, to_timestamp_millis({}) AS last_modified", days_ago(50))
    };
    format!("CREATE VIEW listed AS {}", paths.iter().map(row).collect::<Vec<_>>().join(" UNION ALL "))
}

/// A history of a table that was made 100 days ago; all of its files are as old.
pub fn history(format_version: i64) -> History {
    let made = days_ago(100);
    History::new(Table { last_updated_ms: made, modified_ms: Some(made), ..Table::new(format_version) })
}

type Build = Box<dyn Fn(&str) -> Table>;
type Act = Box<dyn Fn(&Place)>;

/// A table, a call and the circumstances.
pub struct Case {
    build: Build,
    statement: String,
    settings: Vec<String>,
    now_ms: i64,
    /// The bucket of an object store; a folder when empty.
    bucket: String,
    fills_bucket: bool,
    below: String,
    beside: Vec<(String, Vec<u8>)>,
    prepare: Vec<Act>,
    before_the_call: Vec<Act>,
    without: BTreeSet<Check>,
}

/// The checks that a case can opt out of, each with a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// A dry run comes first, changes nothing and says the same.
    DryRun,
    /// A second run has nothing to do and writes nothing.
    SecondRun,
    /// Other spellings of paths and another order of arrays change nothing.
    Spelling,
    /// What goes are exactly the files that only expired snapshots need, or that nothing names.
    SetDifference,
    /// Nobody else writes to the table during the call.
    Alone,
}

/// What a call did to its table.
struct What<'a> {
    metrics: Option<&'a MetricRows>,
    gone: &'a BTreeSet<String>,
    before: &'a Read,
    after: &'a Read,
    described: &'a Table,
}

/// A removal of orphans by default arguments.
const ALL_ORPHANS: &str = "CALL system.remove_orphan_files(table => {table}{dry_run})";

/// What was asked of an object store, by kind and key.
pub type Requests = Vec<(Kind, String)>;

/// What came of a case.
pub struct Outcome {
    /// The snapshots that are left.
    pub snapshots: BTreeSet<i64>,
    /// The refs that are left.
    pub refs: BTreeSet<String>,
    /// The files that are gone, by the names of [`Names`].
    pub gone: BTreeSet<String>,
    /// How many bytes those files had.
    pub gone_bytes: i64,
    /// The metric rows; none of a call that failed or returns other rows.
    pub metrics: MetricRows,
    /// The rows of a call that returns no metrics.
    pub rows: Vec<Row>,
    /// The error of a call that failed.
    pub error: Option<String>,
    /// What the operator was told.
    pub notices: Vec<String>,
    /// What the call asked of its object store.
    pub requests: Requests,
    /// What the dry run for the metric rows asked of it.
    pub dry_requests: Requests,
    /// For an expiry: the decision on each snapshot and its reason, as the dry run gives them.
    pub reasons: BTreeMap<i64, String>,
    /// For a call that deletes: each file's reason, by the names of [`Names`], as the dry run gives them.
    pub files: BTreeMap<String, String>,
    /// The table afterwards, read by other means than the crate's.
    pub table: Read,
    /// Where all that lies.
    pub place: Place,
}

impl Case {
    /// A case about this table.
    pub fn of(table: Table) -> Self {
        Self::at(move |_| table.clone())
    }

    /// A case about a table whose description needs the location of the place's root; the table is `t` below it.
    pub fn at(build: impl Fn(&str) -> Table + 'static) -> Self {
        Self {
            build: Box::new(build),
            statement: String::new(),
            settings: vec![],
            now_ms: NOW_MS,
            bucket: String::new(),
            fills_bucket: false,
            below: String::new(),
            beside: vec![],
            prepare: vec![],
            before_the_call: vec![],
            without: BTreeSet::new(),
        }
    }

    /// The call: an expiry with these arguments.
    pub fn expire(self, arguments: &str) -> Self {
        self.procedure("expire_snapshots", arguments)
    }

    /// The call: a removal of orphan files with these arguments.
    pub fn orphans(self, arguments: &str) -> Self {
        self.procedure("remove_orphan_files", arguments)
    }

    fn procedure(self, name: &str, arguments: &str) -> Self {
        let comma = if arguments.is_empty() { "" } else { ", " };
        self.statement(&format!("CALL system.{name}(table => {{table}}{comma}{arguments}{{dry_run}})"))
    }

    /// The call: any statement. `{table}` stands for the table's location as a literal, `{root}` for that of the place,
    /// `{url}` for the table's encoded `file:` URL, `{dry_run}` for where a dry run has its arguments.
    pub fn statement(self, template: &str) -> Self {
        Self { statement: template.into(), ..self }
    }

    /// A statement that comes before, such as `SET …`, with the same places to fill in.
    pub fn set(mut self, statement: &str) -> Self {
        self.settings.push(statement.into());
        self
    }

    /// What the clock shows instead of [`NOW_MS`].
    pub fn now(self, now_ms: i64) -> Self {
        Self { now_ms, ..self }
    }

    /// The table lies in an object store instead of a folder.
    pub fn in_store(self) -> Self {
        self.in_bucket("s3://bucket")
    }

    /// The table lies in an object store for this bucket.
    pub fn in_bucket(self, bucket: &str) -> Self {
        Self { bucket: bucket.into(), ..self }
    }

    /// The table is this whole bucket of an object store.
    pub fn fills_bucket(self, bucket: &str) -> Self {
        Self { fills_bucket: true, ..self.in_bucket(bucket) }
    }

    /// The place's root is a folder of this name.
    pub fn below(self, folder: &str) -> Self {
        Self { below: folder.into(), ..self }
    }

    fn is_in_store(&self) -> bool {
        !self.bucket.is_empty()
    }

    /// One more file, by its path relative to the place's root. (Those of the table's own folder are its `stray` files.)
    pub fn beside(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.beside.push((path.into(), content.into()));
        self
    }

    /// Does something to the place once the table is written.
    pub fn prepared_by(mut self, act: impl Fn(&Place) + 'static) -> Self {
        self.prepare.push(Box::new(act));
        self
    }

    /// Does something to the place between the dry run and the call itself.
    pub fn just_before_the_call(mut self, act: impl Fn(&Place) + 'static) -> Self {
        self.before_the_call.push(Box::new(act));
        self
    }

    /// Leaves out a check, for a reason.
    pub fn without(mut self, check: Check, _reason: &str) -> Self {
        self.without.insert(check);
        self
    }

    /// Runs the call, which succeeds, and all checks.
    pub async fn run(self) -> Outcome {
        let outcome = self.ends().await;
        if let Some(error) = &outcome.error {
            panic!("it failed: {error}");
        }
        outcome
    }

    /// Runs the call, which fails after it changed something.
    pub async fn fails(self) -> Outcome {
        let outcome = self.ends().await;
        assert!(outcome.error.is_some(), "it succeeded: {:?}", outcome.metrics);
        outcome
    }

    /// Runs the call, which is refused and so changes nothing. Returns the message.
    pub async fn refused(self) -> String {
        let error = self.attempt(false).await;
        if !self.without.contains(&Check::Spelling) {
            self.attempt(true).await;
        }
        error
    }

    async fn attempt(&self, twisted: bool) -> String {
        let (described, place) = self.placed(twisted).await;
        let (session, _) = self.session(&place).await;
        self.before_the_call.iter().for_each(|act| act(&place));
        let before = place.look().await;
        let error = match session.rows(&self.call(&place, "")).await {
            Err(error) => error,
            Ok(rows) => panic!("it was not refused: {rows:?}\n{:?}", described.snapshots),
        };
        unchanged("a refused call", &before, &place.look().await).unwrap();
        error
    }

    async fn ends(self) -> Outcome {
        let outcome = self.once(false).await;
        if !self.without.contains(&Check::Spelling) {
            let twisted = self.once(true).await;
            checks::same_outcome(&outcome, &twisted).unwrap();
        }
        outcome
    }

    /// Writes the table to a new place. Returns its description, which other spellings of it don't change.
    async fn placed(&self, twisted: bool) -> (Table, Place) {
        let mut place = match self.is_in_store() {
            true => Place::store(&self.bucket, self.fills_bucket),
            false => Place::folder(&self.below),
        };
        let mut described = checks::with_unknown_fields((self.build)(&place.root()));
        if self.is_expiry() && !self.statement.contains("clean_expired_metadata") {
            described = checks::with_unused_parts(described);
        }
        let written = match twisted {
            false => described.clone(),
            true => checks::respelled(checks::reordered(described.clone()), &place.table()),
        };
        place.write(&written).await;
        if twisted {
            // What is spelled otherwise in a store counts as a file elsewhere, which is not written.
            place.add_missing_objects(&described).await;
        }
        for (path, content) in &self.beside {
            place.add(path, content.clone()).await;
        }
        self.prepare.iter().for_each(|act| act(&place));
        (described, place)
    }

    /// Makes the place with the table in it and a session for it: for what one call can't express.
    pub async fn in_place(self) -> (Place, Session) {
        let (_, place) = self.placed(false).await;
        let (session, _) = self.session(&place).await;
        (place, session)
    }

    /// A session for the place, and where its notices go.
    async fn session(&self, place: &Place) -> (Session, Arc<Mutex<Vec<String>>>) {
        let notices = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&notices);
        let builder = Maintenance::builder().clock(Arc::new(FixedClock(self.now_ms)));
        let session = Session::with(builder.on_notice(move |text| told.lock().unwrap().push(text.into())));
        if let Place::Store(store, bucket, _) = place {
            session.context.register_object_store(&Url::parse(bucket).unwrap(), Arc::new(store.clone()));
        }
        for setting in &self.settings {
            session.run(&filled_in(setting, place)).await.unwrap();
        }
        (session, notices)
    }

    fn call(&self, place: &Place, dry_run: &str) -> String {
        filled_in(&self.statement, place).replace("{dry_run}", dry_run)
    }

    async fn once(&self, twisted: bool) -> Outcome {
        let (described, place) = self.placed(twisted).await;
        let names = Names::of(&described);
        let (session, notices) = self.session(&place).await;
        let dry = match self.without.contains(&Check::DryRun) {
            true => Dry::default(),
            false => self.dry_run(&session, &place, &names).await,
        };
        self.before_the_call.iter().for_each(|act| act(&place));

        let (disk_before, before) = (place.look().await, place.read().await);
        notices.lock().unwrap().clear();
        let earlier = place.requests().len();
        let answer = session.rows(&self.call(&place, "")).await;
        let requests = place.requests().split_off(earlier);
        let notices = std::mem::take(&mut *notices.lock().unwrap());
        let (disk_after, after) = (place.look().await, place.read().await);
        let (rows, error) = match answer {
            Ok(rows) => (rows, None),
            Err(error) => (vec![], Some(error)),
        };
        let metrics = metrics_of(&rows);
        let gone: BTreeSet<_> = files(&disk_before).difference(&files(&disk_after)).cloned().collect();

        let what =
            What { metrics: metrics.as_ref(), gone: &gone, before: &before, after: &after, described: &described };
        checks::nothing_live_is_gone(&before, &after, &place, &disk_before, &disk_after).unwrap();
        if !self.without.contains(&Check::Alone) {
            self.nobody_else_did_it(&what, &dry, &place, &disk_before, &names);
        }
        if error.is_none() && !self.without.contains(&Check::SecondRun) {
            self.second_run(&session, &place, &disk_after).await;
        }
        Outcome {
            snapshots: after.snapshot_ids(),
            refs: after.refs(),
            gone: gone.iter().map(|path| names.short(path)).collect(),
            gone_bytes: gone.iter().map(|path| disk_before[path].bytes as i64).sum(),
            metrics: metrics.unwrap_or_default(),
            rows,
            error,
            notices,
            requests,
            dry_requests: dry.requests,
            reasons: dry.reasons,
            files: dry.files,
            table: after,
            place,
        }
    }

    /// The checks on a table that nobody else writes to.
    fn nobody_else_did_it(&self, what: &What<'_>, dry: &Dry, place: &Place, disk_before: &Disk, names: &Names) {
        let What { metrics, gone, before, after, described } = what;
        let cleans = self.statement.contains("clean_expired_metadata => true");
        let rows = metrics.unwrap_or(&dry.metrics);
        checks::metadata_only_shrank(before, after, rows, described, cleans).unwrap();
        if let Some(metrics) = metrics {
            checks::counts_add_up(metrics, gone, after, described, self.is_expiry()).unwrap();
            if !self.without.contains(&Check::DryRun) {
                same_numbers(&dry.metrics, metrics).unwrap();
                dry.plans_what_went(gone, names);
            }
        }
        let compares = !self.without.contains(&Check::SetDifference);
        if self.is_expiry() && compares {
            checks::set_difference(*metrics, gone, before, after, described, place, disk_before).unwrap();
        }
        if self.is_orphan_removal() && compares {
            checks::only_orphans_went(gone, before, place).unwrap();
            if metrics.is_some() && self.statement == ALL_ORPHANS && self.settings.is_empty() {
                checks::every_orphan_went(gone, before, place, described, disk_before, self.now_ms).unwrap();
            }
        }
    }

    fn is_expiry(&self) -> bool {
        self.statement.contains("expire_snapshots")
    }

    fn is_orphan_removal(&self) -> bool {
        self.statement.contains("remove_orphan_files")
    }

    async fn dry_run(&self, session: &Session, place: &Place, names: &Names) -> Dry {
        assert!(self.statement.contains("{dry_run}"), "the statement says nowhere how it becomes a dry run");
        let before = place.look().await;
        let rows = async |more: &str| {
            let call = self.call(place, &format!(", dry_run => true{more}"));
            session.rows(&call).await.unwrap_or_else(|error| panic!("the dry run failed: {error}"))
        };
        let earlier = place.requests().len();
        let mut dry = Dry { metrics: metrics_of(&rows("").await).unwrap_or_default(), ..Dry::default() };
        dry.requests = place.requests().split_off(earlier);
        if !self.statement.contains("output") {
            let text = |row: &Row, name: &str| row[name].clone().unwrap_or_default();
            for row in rows(", output => 'files'").await {
                let path = crate::table::plain_path(&text(&row, "file_path"));
                let path = place.relative(&path).unwrap_or(path);
                if text(&row, "status") == "planned" {
                    dry.planned.insert(path.clone());
                }
                dry.files.insert(names.short(&path), text(&row, "reason"));
            }
            if self.is_expiry() {
                let rows = rows(", output => 'snapshots'").await;
                let decision = |row: &Row| format!("{}: {}", text(row, "decision"), text(row, "reason"));
                dry.reasons =
                    rows.iter().map(|row| (text(row, "snapshot_id").parse().unwrap(), decision(row))).collect();
            }
            dry.has_files = true;
        }
        unchanged("a dry run", &before, &place.look().await).unwrap();
        dry
    }

    /// The same call again: there is nothing left to do, or what it names is gone.
    async fn second_run(&self, session: &Session, place: &Place, before: &Disk) {
        match session.rows(&self.call(place, "")).await {
            Err(error) => assert!(self.statement.contains("snapshot_ids"), "a second run failed: {error}"),
            Ok(rows) => {
                let metrics = metrics_of(&rows).unwrap_or_default();
                crate::support::deleted_nothing(&metrics).unwrap();
            }
        }
        unchanged("a second run", before, &place.look().await).unwrap();
    }
}

/// A statement with the place's locations.
fn filled_in(template: &str, place: &Place) -> String {
    let url = Url::from_file_path(place.table()).map(String::from).unwrap_or_default();
    template.replace("{table}", &literal(&place.table())).replace("{root}", &place.root()).replace("{url}", &url)
}

/// What a dry run says.
#[derive(Default)]
struct Dry {
    metrics: MetricRows,
    requests: Requests,
    has_files: bool,
    planned: BTreeSet<String>,
    files: BTreeMap<String, String>,
    reasons: BTreeMap<i64, String>,
}

impl Dry {
    fn plans_what_went(&self, gone: &BTreeSet<String>, names: &Names) {
        let short = |paths: &BTreeSet<String>| paths.iter().map(|path| names.short(path)).collect::<Vec<_>>();
        if self.has_files {
            assert_eq!(short(&self.planned), short(gone), "files planned by the dry run, and files that went");
        }
    }
}

fn metrics_of(rows: &[Row]) -> Option<MetricRows> {
    let metric = |row: &Row| Some((row.get("metric_name")?.clone()?, row.get("metric_value")?.clone()?.parse().ok()?));
    rows.iter().map(metric).collect::<Option<MetricRows>>().filter(|metrics| !metrics.is_empty())
}

/// What must be left and what must be gone.
pub struct Left<'a> {
    pub snapshots: &'a [i64],
    pub refs: &'a [&'a str],
    /// By the names of [`Names`].
    pub gone: &'a [&'a str],
}

impl Outcome {
    /// Asserts which snapshots and refs are left and which files are gone.
    #[track_caller]
    pub fn assert(&self, expected: Left<'_>) {
        let snapshots: BTreeSet<i64> = expected.snapshots.iter().copied().collect();
        let texts = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<BTreeSet<_>>();
        assert_eq!(self.snapshots, snapshots, "snapshots left");
        assert_eq!(self.refs, texts(expected.refs), "refs left");
        assert_eq!(self.gone, texts(expected.gone), "files gone");
    }

    /// Asserts which files are gone.
    #[track_caller]
    pub fn assert_gone(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|name| name.to_string()).collect();
        assert_eq!(self.gone, expected, "files gone; {:?}", self.metrics);
    }

    /// Asserts some of the metric rows.
    #[track_caller]
    pub fn assert_metrics(&self, expected: &[(&str, i64)]) {
        for (name, value) in expected {
            assert_eq!(self.metrics.get(*name), Some(value), "{name} in {:?}", self.metrics);
        }
    }

    /// The notice that contains this text.
    #[track_caller]
    pub fn notice(&self, text: &str) -> &str {
        let found = self.notices.iter().find(|notice| notice.contains(text));
        found.unwrap_or_else(|| panic!("no notice says {text:?}: {:#?}", self.notices))
    }
}
