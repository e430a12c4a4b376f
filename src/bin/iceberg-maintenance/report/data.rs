//! What a page shows: gathered from the run's report and the reads around it, before anything is drawn.

use std::collections::BTreeMap;

use iceberg_maintenance::report::{FileKind, Operation};

use super::catalog::CatalogRows;
use super::format::{counted, grouped, human_bytes};
use super::reads::{LiveFiles, Partitions, Snapshots};
use super::run::{Age, Run, Sum};
use crate::failure::Failure;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everything was done.
    Done,
    /// All of a dry run.
    DryRun,
    /// The dry run was shown, and the real run was not agreed to.
    NotConfirmed,
    /// Done but for a part of it, or a dry run of a part.
    Incomplete,
    /// Nothing is known but the error.
    Failed,
}

impl Ending {
    pub(super) fn of(outcome: &Result<(), Failure>, is_preview: bool, has_result: bool) -> Self {
        match outcome {
            Ok(()) if is_preview => Ending::DryRun,
            Ok(()) => Ending::Done,
            Err(failure) if failure.is_refusal() => Ending::NotConfirmed,
            Err(_) if has_result => Ending::Incomplete,
            Err(_) => Ending::Failed,
        }
    }
}

/// Everything on a page.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// The procedure that was called.
    pub procedure: &'static str,
    /// The table or catalog as the caller named it.
    pub subject: String,
    pub ending: Ending,
    /// True where nothing was changed: what is told is a dry run's, however that ended.
    pub is_preview: bool,
    /// When it began, ms since the epoch.
    pub began_ms: i64,
    pub elapsed_ms: u64,
    pub error: Option<String>,
    pub notices: Vec<String>,
    /// What could not be shown, and why.
    pub missing: Vec<String>,
    pub run: Option<Run>,
    pub snapshots: Snapshots,
    pub storage: Option<Storage>,
    pub partitions: Option<Partitions>,
    pub catalog: Option<CatalogRows>,
}

/// What stays of something, what goes, and what is not needed any more but still there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// `None` where nothing tells the size.
    pub stays: Option<Sum>,
    pub goes: Sum,
    pub left: Sum,
}

impl Share {
    pub(super) fn before(&self) -> Sum {
        self.after().plus(self.goes)
    }

    pub(super) fn after(&self) -> Sum {
        self.stays.unwrap_or_default().plus(self.left)
    }

    fn add_stays(&mut self, sum: Sum) {
        self.stays.get_or_insert_default().add(sum);
    }
}

/// What is stored, by kind and by age.
#[derive(Debug, Clone, Default)]
pub(super) struct Storage {
    /// By kind, in the order of [`FileKind`].
    pub by_kind: Vec<(FileKind, Share)>,
    /// By age, the youngest first; empty where the ages of what went are not known.
    pub by_age: Vec<(Age, Share)>,
}

/// What was read for the storage.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveReads<'a> {
    /// Before the run, where that tells more than the run itself.
    pub before: Option<&'a [LiveFiles]>,
    pub after: &'a [LiveFiles],
}

impl Storage {
    /// Puts together what the metadata names and what the run did. What stays is what was read after the run (of a dry run,
    /// without what it plans); what goes is what the run says.
    pub(super) fn of(run: &Run, reads: LiveReads<'_>, snapshots: &Snapshots, now_ms: i64) -> Self {
        let mut kinds: BTreeMap<FileKind, Share> = BTreeMap::new();
        for (kind, fates) in &run.kinds {
            kinds.insert(*kind, Share { stays: None, goes: fates.goes, left: fates.left });
        }
        for files in reads.after.iter().filter(|files| !files.is_planned) {
            kinds.entry(kind_of(&files.kind)).or_default().add_stays(files.sum);
        }
        // Where the metadata tables show a kind, none of it there means that none stays.
        for (kind, share) in &mut kinds {
            if is_counted(*kind) {
                share.stays.get_or_insert_default();
            }
        }
        Self { by_kind: kinds.into_iter().collect(), by_age: by_age(run, reads, snapshots, now_ms) }
    }

    /// Everything together.
    pub(super) fn total(&self) -> Share {
        let mut total = Share { stays: Some(Sum::default()), ..Default::default() };
        for (_, share) in &self.by_kind {
            total.add_stays(share.stays.unwrap_or_default());
            total.goes.add(share.goes);
            total.left.add(share.left);
        }
        total
    }
}

/// True for the kinds whose files metadata tables show.
fn is_counted(kind: FileKind) -> bool {
    use FileKind::{Data, DeletionVector, EqualityDeletes, Manifest, PositionDeletes};
    matches!(kind, Data | PositionDeletes | EqualityDeletes | DeletionVector | Manifest)
}

fn kind_of(text: &str) -> FileKind {
    let kinds = [
        FileKind::Data,
        FileKind::PositionDeletes,
        FileKind::EqualityDeletes,
        FileKind::DeletionVector,
        FileKind::Manifest,
    ];
    kinds.into_iter().find(|kind| kind.as_str() == text).unwrap_or(FileKind::Unknown)
}

/// What the metadata names by the time at which it was added, and orphans by that of their last modification.
fn by_age(run: &Run, reads: LiveReads<'_>, snapshots: &Snapshots, now_ms: i64) -> Vec<(Age, Share)> {
    let age = |files: &LiveFiles| {
        let added = files.added_by.and_then(|id| snapshots.get(&id));
        Age::of(added.map(|(committed_ms, _)| *committed_ms), now_ms)
    };
    let mut ages: BTreeMap<Age, Share> = Age::all().map(|age| (age, Share::default())).collect();
    for files in reads.after {
        let share = ages.entry(age(files)).or_default();
        match files.is_planned {
            true => share.goes.add(files.sum),
            false => share.add_stays(files.sum),
        }
    }
    match (run.operation, reads.before) {
        (Operation::RemoveOrphanFiles, _) => {
            for ((_, age), fates) in &run.ages {
                let share = ages.entry(*age).or_default();
                share.goes.add(fates.goes);
                share.left.add(fates.left);
            }
        }
        (Operation::ExpireSnapshots, _) if run.metrics.dry_run => {}
        // What was named before and isn't any more.
        (Operation::ExpireSnapshots, Some(before)) => {
            let mut named: BTreeMap<Age, Sum> = BTreeMap::new();
            before.iter().for_each(|files| named.entry(age(files)).or_default().add(files.sum));
            for (age, before) in named {
                let share = ages.entry(age).or_default();
                share.goes = before.less(share.stays.unwrap_or_default());
            }
        }
        // What went was not named by the metadata any more, or nobody looked before.
        _ => return vec![],
    }
    ages.into_iter().collect()
}

impl Page {
    /// The word on the badge, and a sign that is told apart without colour.
    pub(super) fn badge(&self) -> (&'static str, &'static str) {
        match self.ending {
            Ending::Done => ("✓", "Done"),
            Ending::DryRun => ("○", "Dry run"),
            Ending::NotConfirmed => ("○", "Not confirmed"),
            Ending::Incomplete if self.is_preview => ("!", "Incomplete dry run"),
            Ending::Incomplete => ("!", "Incomplete"),
            Ending::Failed => ("✕", "Failed"),
        }
    }

    /// The report's own table name, or how the caller named it.
    pub(super) fn table(&self) -> &str {
        self.run.as_ref().map_or(&self.subject, |run| &run.table)
    }

    /// The operation in words.
    pub(super) fn title(&self) -> String {
        let words = self.procedure.replace('_', " ");
        let mut letters = words.chars();
        letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
    }

    /// What happened, in a sentence or two.
    pub(super) fn summary(&self) -> String {
        if let Some(catalog) = &self.catalog {
            return catalog.summary(self.is_preview);
        }
        let Some(run) = &self.run else {
            return "The operation ended without a result.".into();
        };
        let were = if run.metrics.dry_run { "would be" } else { "were" };
        let mut parts = vec![];
        let expired = run.metrics.deleted_snapshots_count;
        if run.operation == Operation::ExpireSnapshots {
            let all = counted(expired.saturating_add(run.metrics.retained_snapshots_count), "snapshot", "snapshots");
            parts.push(format!("{} of {all} {were} expired", grouped(expired)));
        }
        let (one, many) = match run.operation {
            Operation::RemoveOrphanFiles => ("orphan file", "orphan files"),
            _ => ("file", "files"),
        };
        for (count, bytes, done) in [
            (run.metrics.deleted_files_count, run.metrics.deleted_bytes, "deleted"),
            (
                run.metrics.deferred_files_count,
                run.metrics.deferred_bytes,
                "put off until the recovery window has passed",
            ),
            (run.metrics.quarantined_files_count, run.metrics.quarantined_bytes, "moved into quarantine"),
        ] {
            let waits = run.metrics.deferred_files_count > 0 || run.metrics.quarantined_files_count > 0;
            if count > 0 || (done == "deleted" && !waits) {
                parts.push(format!("{} ({}) {were} {done}", counted(count, one, many), human_bytes(bytes)));
            }
        }
        let failed = run.metrics.failed_deletions_count;
        if failed > 0 {
            parts.push(format!("{} could not be deleted", counted(failed, "file", "files")));
        }
        format!("{}.", parts.join("; "))
    }
}

/// A kind of files in words.
pub(super) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Data => "Data",
        FileKind::PositionDeletes => "Position deletes",
        FileKind::EqualityDeletes => "Equality deletes",
        FileKind::DeletionVector => "Deletion vectors",
        FileKind::Manifest => "Manifests",
        FileKind::ManifestList => "Manifest lists",
        FileKind::Statistics => "Statistics",
        FileKind::PartitionStatistics => "Partition statistics",
        FileKind::Metadata => "Metadata",
        _ => "Other",
    }
}
