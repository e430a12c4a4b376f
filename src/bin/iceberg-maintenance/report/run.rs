//! What a run tells of itself, folded while it is told: a plan may have millions of files, a page has room for some.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{LargeStringArray, RecordBatch};
use iceberg_maintenance::report::{FileKind, FileOutcome, FileStatus, Metrics, Operation, Report, SkipReason};
use iceberg_maintenance::retention::{RefDecision, SnapshotDecision};
use iceberg_maintenance::table::RefKind;

/// How many failed and how many spared files a page names.
pub(super) const MOST_FILES: usize = 100;

/// Files and what they have together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub files: u64,
    /// As far as sizes are known.
    pub bytes: u64,
}

impl Sum {
    pub(super) fn of(files: u64, bytes: u64) -> Self {
        Self { files, bytes }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// What is left without another sum.
    pub(super) fn less(self, other: Self) -> Self {
        Self { files: self.files.saturating_sub(other.files), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    pub(super) fn plus(mut self, other: Self) -> Self {
        self.add(other);
        self
    }
}

/// How old something is, in classes that a chart has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age(usize);

impl Age {
    const DAY_MS: i64 = 86_400_000;
    /// The classes with their upper ends in days; what has no age comes last.
    const CLASSES: [(&str, i64); 7] = [
        ("less than 1 day", 1),
        ("1 to 7 days", 7),
        ("7 to 30 days", 30),
        ("30 to 90 days", 90),
        ("90 to 365 days", 365),
        ("more than 1 year", i64::MAX),
        ("unknown", i64::MAX),
    ];
    pub(super) const UNKNOWN: Self = Self(Self::CLASSES.len() - 1);

    /// The age at `now_ms` of what happened at `at_ms`, both ms since the epoch.
    pub(super) fn of(at_ms: Option<i64>, now_ms: i64) -> Self {
        let Some(at_ms) = at_ms else { return Self::UNKNOWN };
        let days = now_ms.saturating_sub(at_ms) / Self::DAY_MS;
        Self(Self::CLASSES.iter().position(|(_, end)| days < *end).unwrap_or(Self::UNKNOWN.0 - 1))
    }

    /// All classes, the youngest first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..Self::CLASSES.len()).map(Self)
    }

    pub(super) fn as_str(self) -> &'static str {
        Self::CLASSES[self.0].0
    }
}

/// The first files of many, and how many there are.
#[derive(Debug, Clone, Default)]
pub(super) struct FileList {
    pub first: Vec<NamedFile>,
    pub total: u64,
}

#[derive(Debug, Clone)]
pub(super) struct NamedFile {
    pub path: String,
    pub kind: FileKind,
    pub bytes: Option<u64>,
    /// Why it stayed.
    pub why: String,
}

impl FileList {
    fn add(&mut self, file: &FileOutcome, why: &str) {
        self.total += 1;
        if self.first.len() < MOST_FILES {
            let FileOutcome { path, kind, bytes, .. } = file;
            self.first.push(NamedFile { path: path.clone(), kind: *kind, bytes: *bytes, why: why.to_string() });
        }
    }
}

/// What became of the files of one kind, or of one kind and age.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fates {
    /// Gone, or to go in a dry run.
    pub goes: Sum,
    /// Not needed any more, but there: it waits, was spared, or could not be deleted.
    pub left: Sum,
    /// Was gone before.
    pub missing: u64,
}

/// One run, from its report.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub operation: Operation,
    pub table: String,
    pub metrics: Metrics,
    pub notices: Vec<String>,
    pub snapshots: Vec<SnapshotDecision>,
    /// Those that go first, then branches before tags, then the newest first.
    pub refs: Vec<RefDecision>,
    pub kinds: BTreeMap<FileKind, Fates>,
    /// By kind and by the time of the last modification.
    pub ages: BTreeMap<(FileKind, Age), Fates>,
    pub failed: FileList,
    pub spared: FileList,
    /// How many files were left alone for which reason.
    pub spared_because: BTreeMap<String, Sum>,
    /// The paths of what no snapshot needs after an expiry of which this is a dry run. All of them may be more than 2 GiB.
    pub planned: Option<LargeStringArray>,
}

impl Run {
    /// Folds a report; ages are those at `now_ms`.
    pub(super) fn of(report: &Report, now_ms: i64) -> Self {
        let mut run = Self {
            operation: report.operation,
            table: report.table.clone(),
            metrics: report.metrics.clone(),
            notices: report.notices.clone(),
            snapshots: report.snapshots.clone(),
            refs: in_reading_order(report),
            kinds: BTreeMap::new(),
            ages: BTreeMap::new(),
            failed: FileList::default(),
            spared: FileList::default(),
            spared_because: BTreeMap::new(),
            planned: None,
        };
        report.files.iter().for_each(|file| run.add(file, now_ms));
        if report.metrics.dry_run && report.operation == Operation::ExpireSnapshots {
            // Also what would wait or be moved: no snapshot that stays needs it. What is needed after all is not the plan's.
            let again = FileStatus::Spared(SkipReason::LiveAgain);
            let planned = report.files.iter().filter(|file| file.status != again);
            run.planned = Some(LargeStringArray::from_iter_values(planned.map(|file| &file.path)));
        }
        run
    }

    fn add(&mut self, file: &FileOutcome, now_ms: i64) {
        let sum = Sum::of(1, file.bytes.unwrap_or(0));
        let age = Age::of(file.modified_ms, now_ms);
        let of_kind = self.kinds.entry(file.kind).or_default();
        for fates in [of_kind, self.ages.entry((file.kind, age)).or_default()] {
            match &file.status {
                FileStatus::Planned | FileStatus::Deleted => fates.goes.add(sum),
                FileStatus::Missing => fates.missing += 1,
                _ => fates.left.add(sum),
            }
        }
        match &file.status {
            FileStatus::Failed(why) => self.failed.add(file, why),
            FileStatus::Spared(why) => {
                self.spared.add(file, why.explanation());
                self.spared_because.entry(why.explanation().to_string()).or_default().add(sum);
            }
            _ => {}
        }
    }
}

fn in_reading_order(report: &Report) -> Vec<RefDecision> {
    let made: HashMap<i64, i64> = report.snapshots.iter().map(|made| (made.snapshot_id, made.timestamp_ms)).collect();
    let mut refs = report.refs.clone();
    refs.sort_by_key(|to| {
        let newest = Reverse(made.get(&to.snapshot_id).copied());
        (!to.reason.removes(), to.kind == RefKind::Tag, newest, to.name.clone())
    });
    refs
}

/// What was seen of a statement.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// The last run that came to an end.
    pub run: Option<Run>,
    pub notices: Vec<String>,
    pub rows: Vec<RecordBatch>,
    /// It was the dry run that a question is asked after.
    pub is_preview: bool,
    /// How long the statement took.
    pub elapsed: Duration,
}

/// Records what statements do, while somebody wants to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What "now" is to ages; `None` while nobody wants to know.
    now_ms: Option<i64>,
    /// True where the runs of the statement are to be folded.
    wants_runs: bool,
    /// When the statement began.
    began: Option<Instant>,
    recording: Recording,
}

impl Recorder {
    /// Records from now on; `wants_runs`: also what each run did.
    pub(super) fn start(&self, now_ms: i64, wants_runs: bool) {
        *self.state() = State { now_ms: Some(now_ms), wants_runs, ..Default::default() };
    }

    /// Ends recording: what was seen of the last statement.
    pub(super) fn finish(&self) -> Recording {
        std::mem::take(&mut *self.state()).recording
    }

    /// A statement begins: what was seen of the one before is forgotten.
    pub(crate) fn begin(&self, at: Instant) {
        let mut state = self.state();
        (state.recording, state.began) = (Recording::default(), Some(at));
    }

    /// A run came to its end.
    pub(crate) fn report(&self, report: &Report) {
        let (now_ms, wants_runs) = {
            let state = self.state();
            (state.now_ms, state.wants_runs)
        };
        let Some(now_ms) = now_ms.filter(|_| wants_runs) else { return };
        // Folding a large report takes a while: others are not kept waiting.
        let run = Run::of(report, now_ms);
        self.state().recording.run = Some(run);
    }

    /// The operator was told something.
    pub(crate) fn notice(&self, text: &str) {
        let mut state = self.state();
        if state.now_ms.is_some() {
            state.recording.notices.push(text.to_string());
        }
    }

    /// The statement came to its end, with these rows.
    pub(crate) fn end(&self, batches: &[RecordBatch], at: Instant) {
        let mut state = self.state();
        if state.now_ms.is_some() {
            state.recording.elapsed = state.began.map_or(Duration::ZERO, |began| at.saturating_duration_since(began));
            state.recording.rows = batches.to_vec();
        }
    }

    /// The statement was the dry run that a question is asked after.
    pub(crate) fn was_preview(&self) {
        self.state().recording.is_preview = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_age_has_its_class() {
        let day = Age::DAY_MS;
        let age = |at_ms| Age::of(at_ms, 1_000 * day).as_str();
        for (days, class) in [
            (-5, "less than 1 day"),
            (0, "less than 1 day"),
            (1, "1 to 7 days"),
            (7, "7 to 30 days"),
            (89, "30 to 90 days"),
            (364, "90 to 365 days"),
            (365, "more than 1 year"),
            (i64::MAX / day, "more than 1 year"),
        ] {
            assert_eq!(age(Some((1_000 * day).saturating_sub(days.saturating_mul(day)))), class, "{days}");
        }
        assert_eq!(age(Some(i64::MIN)), "more than 1 year");
        assert_eq!(age(None), "unknown");
        assert_eq!(Age::all().last(), Some(Age::UNKNOWN));
    }

    #[test]
    fn nothing_is_recorded_while_nobody_asks_and_only_the_last_statement_counts() {
        let recorder = Recorder::default();
        recorder.notice("before");
        recorder.start(0, true);
        recorder.notice("of the first");
        recorder.was_preview();
        recorder.begin(Instant::now());
        recorder.notice("of the second");
        let seen = recorder.finish();
        assert_eq!((seen.notices, seen.is_preview), (vec!["of the second".to_string()], false));
        recorder.notice("after");
        assert!(recorder.finish().notices.is_empty());
    }

    #[test]
    fn a_statement_takes_from_its_begin_to_its_end_whatever_comes_before_and_after() {
        let (recorder, now) = (Recorder::default(), Instant::now());
        recorder.start(0, false);
        let after = |seconds| now + Duration::from_secs(seconds);
        recorder.begin(now);
        recorder.end(&[], after(2));
        // The question is asked, and answered much later.
        recorder.was_preview();
        recorder.begin(after(100));
        recorder.end(&[], after(103));
        assert_eq!(recorder.finish().elapsed, Duration::from_secs(3));
    }
}
