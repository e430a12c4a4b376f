//! Going through the listed files.

use std::borrow::Cow;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use futures::TryStreamExt;

use super::listing::{HiddenNames, LocatedFiles, Scope, is_metadata_file, kind_by_name};
use super::own_folders::OwnFolders;
use super::references::References;
use super::{PrefixMismatchMode, RemoveOrphanFiles};
use crate::error::{Error, Result};
use crate::journal::JournalFiles;
use crate::procedure::CollectedFiles;
use crate::progress::RunWork;
use crate::reachability::{Candidate, Liveness, NamedBy, Probe, RecordReader, RecordWriter};
use crate::report::{FileOutcome, FileStatus, Metrics, SkipReason};
use crate::storage::{Listed, ListedStat, LocalFiles, Store};
use crate::table::FilePrefix;
use crate::table::location::split;

/// A modification time before this is no time: seconds taken for milliseconds, or nothing at all. 2000-01-01 UTC.
const EARLIEST_BELIEVABLE_MS: i64 = 946_684_800_000;
/// A modification time further ahead than this is a wrong clock, not a young file.
const LATEST_BELIEVABLE_AHEAD_MS: i64 = 24 * 60 * 60 * 1000;

const NOT_NAMED: &str = "nothing in the table's metadata names it";

/// Goes through the listed files and keeps those that nothing names.
pub(super) struct Search {
    mode: PrefixMismatchMode,
    hidden: Option<HiddenNames>,
    /// `None` where every folder is searched: one that was named, or all on request.
    own_folders: Option<OwnFolders>,
    /// The first by name of the files that are not in one of the table's own folders.
    pub foreign: Option<String>,
    cutoff_ms: i64,
    now_ms: i64,
    pub metrics: Metrics,
    /// Files that nothing names and that are old enough.
    pub orphans: CollectedFiles,
    /// A listed file and the scheme and authority under which its path is live.
    mismatches: Vec<(String, FilePrefix)>,
    /// Keys of the listing that may stand for another: see [`Self::is_doubtful`].
    at_bucket_root: bool,
    /// Where links lead to: those files are in use under the link's name.
    link_targets: HashSet<String>,
    /// Files that are named like table metadata, but that the table's own metadata doesn't name.
    pub metadata_files: Vec<String>,
    /// Links that are named like a metadata folder: a table's metadata may lie behind them.
    pub metadata_links: Vec<String>,
    /// The latest believable time at which a listed file was modified, ms since the epoch.
    pub newest_listed_ms: Option<i64>,
    /// How many listed files are live data or delete files.
    pub matched_content: u64,
    /// The paths so far, for a list of files that may name one twice; a listing doesn't. A collision keeps a file.
    listed_paths: Option<(RandomState, HashSet<u64>)>,
    journal: JournalFiles,
    /// Where the files are counted, for who looks on.
    work: Arc<RunWork>,
}

/// A listed file or link that is looked up.
struct Found {
    location: String,
    stat: Option<ListedStat>,
    is_link: bool,
}

impl Search {
    pub(super) fn new(
        options: &RemoveOrphanFiles,
        scope: &Scope,
        references: &References,
        hidden: Option<HiddenNames>,
        journal: JournalFiles,
        task: &TaskContext,
    ) -> Self {
        let is_object = !scope.folder.is_local();
        let is_limited = scope.whole_table && !options.include_foreign;
        Self {
            own_folders: is_limited.then(|| references.own_folders().clone()),
            foreign: None,
            at_bucket_root: is_object && scope.folder.path().trim_matches('/').is_empty(),
            mode: options.prefix_mismatch_mode,
            hidden,
            cutoff_ms: options.cutoff_ms,
            now_ms: options.now_ms,
            metrics: Metrics::default(),
            orphans: CollectedFiles::new(task),
            mismatches: Vec::new(),
            link_targets: HashSet::new(),
            metadata_files: Vec::new(),
            metadata_links: Vec::new(),
            newest_listed_ms: None,
            matched_content: 0,
            listed_paths: options.file_list_view.is_some().then(Default::default),
            journal,
            work: RunWork::of(task),
        }
    }

    /// Looks every listed file up. `store`: where to ask for what the listing did not say.
    ///
    /// # Errors
    /// When the listing fails: one that is not complete decides nothing.
    pub(super) async fn run(
        &mut self,
        mut files: LocatedFiles,
        references: &mut References,
        store: Option<&Store>,
    ) -> Result<()> {
        let mut probe = Probe::new(&mut references.live);
        while let Some(batch) = files.try_next().await? {
            self.work.add(|work| &work.files_listed, batch.len());
            let found = batch.into_iter().filter_map(|(location, listed)| self.found(location, listed)).collect();
            self.judge(probe.push(found)?, store).await?;
        }
        while let Some(answers) = probe.next_waiting()? {
            self.judge(answers, store).await?;
        }
        drop(probe);
        self.drop_checksums_of_live_files(references)?;
        self.drop_files_named_elsewhere(references)
    }

    fn found(&mut self, location: String, listed: Listed) -> Option<Found> {
        match listed {
            Listed::File(file) => {
                if self.journal.contains(&location) || self.is_repeated(&file.path) {
                    return None;
                }
                self.metrics.scanned_files_count += 1;
                let latest = self.now_ms.saturating_add(LATEST_BELIEVABLE_AHEAD_MS);
                let modified_ms = file.stat.and_then(|stat| stat.modified_ms).filter(|modified| *modified <= latest);
                self.newest_listed_ms = self.newest_listed_ms.max(modified_ms);
                Some(Found { location, stat: file.stat, is_link: false })
            }
            Listed::Link { target, .. } => {
                if location.ends_with("/metadata") {
                    self.metadata_links.push(location.clone());
                }
                self.link_targets.extend(target);
                self.metrics.count_skipped(SkipReason::UnsupportedName);
                // The link itself is what the metadata may name; it is never deleted.
                Some(Found { location, stat: None, is_link: true })
            }
            Listed::Unusable { path, why } => {
                tracing::warn!(path, why, "left alone");
                self.metrics.count_skipped(SkipReason::UnsupportedName);
                None
            }
        }
    }

    async fn judge(&mut self, answers: Vec<(Found, Liveness)>, store: Option<&Store>) -> Result<()> {
        let mut suspects = Vec::new();
        for (found, liveness) in answers {
            if let Liveness::Live(named_by) = liveness {
                self.matched_content += u64::from(named_by == NamedBy::Manifest);
                continue;
            }
            if found.is_link {
                continue;
            }
            if found.location.rsplit('/').next().is_some_and(is_metadata_file) {
                self.metadata_files.push(found.location.clone());
            }
            if self.hidden.as_ref().is_some_and(|hidden| hidden.hides(split(&found.location).path)) {
                self.metrics.count_skipped(SkipReason::Hidden);
            } else if matches!(liveness, Liveness::Dead) && self.is_foreign(&found.location) {
                self.count_foreign(found.location);
            } else {
                suspects.push((found, liveness));
            }
        }
        // Most files are live: only now is it asked how old the others are.
        if store.is_some_and(|store| store.as_local().is_none()) {
            suspects.iter_mut().filter(|(found, _)| self.is_doubtful(found)).for_each(|(found, _)| found.stat = None);
        }
        let without = |(found, _): &&(Found, Liveness)| found.stat.is_none();
        let paths = suspects.iter().filter(without).map(|(found, _)| split(&found.location).path.to_string());
        let mut stats = match store {
            Some(store) => store.look_at(paths.collect()).await?.into_iter(),
            None => vec![].into_iter(),
        };
        for (found, liveness) in suspects {
            match found.stat.or_else(|| stats.next().flatten()) {
                Some(stat) => self.suspect(found.location, stat, liveness)?,
                None if store.is_some_and(|store| store.as_local().is_none()) => {
                    tracing::warn!(
                        path = found.location,
                        "left alone: no object has this key, so it is a folder marker"
                    );
                    self.metrics.count_skipped(SkipReason::UnsupportedName);
                }
                // One that is gone meanwhile is nobody's orphan.
                None => {}
            }
        }
        Ok(())
    }

    /// True for an object that may have another key than the listing says: object_store drops the slash at the end of a
    /// folder marker, which is empty, and a slash at the beginning of a key. The key without it may be another object, a younger
    /// one, too; so the store is asked for it.
    fn is_doubtful(&self, found: &Found) -> bool {
        self.at_bucket_root || found.stat.is_some_and(|stat| stat.size == 0)
    }

    /// Decides on a file that nothing names by its scheme, authority and path.
    fn suspect(&mut self, location: String, stat: ListedStat, liveness: Liveness) -> Result<()> {
        if let Err(why) = self.is_old_enough(stat.modified_ms) {
            self.metrics.count_skipped(why);
            return Ok(());
        }
        let reason: Cow<'static, str> = match (liveness, self.mode) {
            (Liveness::OtherPrefix(prefix), PrefixMismatchMode::Error) => {
                self.mismatches.push((location, prefix));
                return Ok(());
            }
            (Liveness::OtherPrefix(_), PrefixMismatchMode::Ignore) => {
                self.metrics.count_skipped(SkipReason::PrefixMismatch);
                return Ok(());
            }
            (Liveness::OtherPrefix(prefix), PrefixMismatchMode::Delete) => format!(
                "nothing names it; its path is live under {prefix}, which prefix_mismatch_mode = DELETE ignores"
            )
            .into(),
            (Liveness::Dead | Liveness::Live(_), _) => NOT_NAMED.into(),
        };
        self.orphans.push(FileOutcome {
            kind: kind_by_name(split(&location).path),
            path: location,
            bytes: Some(stat.size),
            modified_ms: stat.modified_ms,
            snapshot_id: None,
            reason,
            status: FileStatus::Planned,
        })
    }

    fn is_foreign(&self, location: &str) -> bool {
        self.own_folders.as_ref().is_some_and(|own| !own.contains(location))
    }

    fn count_foreign(&mut self, location: String) {
        self.metrics.count_skipped(SkipReason::Foreign);
        if self.foreign.as_ref().is_none_or(|first| location < *first) {
            self.foreign = Some(location);
        }
    }

    fn is_repeated(&mut self, path: &str) -> bool {
        self.listed_paths.as_mut().is_some_and(|(seed, paths)| !paths.insert(seed.hash_one(path)))
    }

    fn is_old_enough(&self, modified_ms: Option<i64>) -> std::result::Result<(), SkipReason> {
        let latest = self.now_ms.saturating_add(LATEST_BELIEVABLE_AHEAD_MS);
        match modified_ms.filter(|modified| (EARLIEST_BELIEVABLE_MS..=latest).contains(modified)) {
            None => Err(SkipReason::UnknownAge),
            Some(modified) if modified >= self.cutoff_ms => Err(SkipReason::TooYoung),
            Some(_) => Ok(()),
        }
    }

    /// Keeps the checksums that Hadoop's local file system lays beside live files. A listing hides them by their names, a
    /// list of files doesn't.
    fn drop_checksums_of_live_files(&mut self, references: &mut References) -> Result<()> {
        if self.hidden.is_some() {
            return Ok(());
        }
        let mut live = HashSet::new();
        for file in self.orphans.as_slice() {
            let Some(checked) = checked_by(&file.path) else { continue };
            if matches!(references.live.probe(&checked)?, Liveness::Live(_)) {
                live.insert(file.path.clone());
            }
        }
        let metrics = &mut self.metrics;
        self.orphans.as_mut().retain(|file| {
            let is_live = live.contains(&file.path);
            if is_live {
                metrics.count_skipped(SkipReason::Hidden);
            }
            !is_live
        });
        Ok(())
    }

    /// Keeps files of which a live one of the same name is somewhere else: it may be this very file under an address that we
    /// don't recognise.
    fn drop_files_named_elsewhere(&mut self, references: &mut References) -> Result<()> {
        let mut elsewhere =
            references.named_elsewhere(self.orphans.as_slice().iter().map(|file| file.path.as_str()))?.into_iter();
        let metrics = &mut self.metrics;
        self.orphans.as_mut().retain(|file| {
            let is_ambiguous = elsewhere.next().unwrap_or(true) && file.reason == NOT_NAMED;
            if is_ambiguous {
                metrics.count_skipped(SkipReason::PrefixMismatch);
            }
            !is_ambiguous
        });
        Ok(())
    }

    /// Keeps files that a link leads to: something may read them under the link's name.
    pub(super) fn drop_link_targets(&mut self, store: &Store) {
        let Some(local) = store.as_local().filter(|_| !self.link_targets.is_empty()) else { return };
        let (targets, metrics) = (&self.link_targets, &mut self.metrics);
        self.orphans.as_mut().retain(|file| {
            let path = split(&file.path).path;
            let is_target = targets.contains(path) || canonical_is_in(local, path, targets);
            if is_target {
                metrics.count_skipped(SkipReason::UnsupportedName);
            }
            !is_target
        });
    }

    /// Refuses what `prefix_mismatch_mode = ERROR` collected.
    pub(super) fn refuse_mismatches(&self, table: &str) -> Result<()> {
        if self.mismatches.is_empty() {
            return Ok(());
        }
        let mut pairs: Vec<String> = self
            .mismatches
            .iter()
            .map(|(location, live)| {
                let parts = split(location);
                let listed = FilePrefix { scheme: parts.scheme.into(), authority: parts.authority.into() };
                format!("({live}, {listed})")
            })
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        Err(Error::Guard {
            table: table.into(),
            found: format!(
                "{} listed files have the path of a live file under another scheme or authority, such as {}. Conflicting \
                 authorities/schemes: [{}]. Declare them equal with equal_schemes or equal_authorities, or choose \
                 prefix_mismatch_mode => 'IGNORE' to keep these files, or 'DELETE' if they really are others",
                self.mismatches.len(),
                self.mismatches[0].0,
                pairs.join(", ")
            ),
        })
    }
}

/// The file whose checksum this is by its name: `x` for `.x.crc`.
fn checked_by(location: &str) -> Option<String> {
    let (folder, name) = location.rsplit_once('/')?;
    let checked = name.strip_prefix('.')?.strip_suffix(".crc")?;
    Some(format!("{folder}/{checked}"))
}

/// True if the path with all links resolved is among the targets, or can't be resolved.
fn canonical_is_in(local: &LocalFiles, path: &str, targets: &HashSet<String>) -> bool {
    match local.canonical(path) {
        Ok(canonical) => canonical.is_some_and(|canonical| targets.contains(&canonical)),
        Err(_) => true,
    }
}

impl Candidate for Found {
    fn location(&self) -> &str {
        &self.location
    }

    fn write(&self, record: &mut RecordWriter<'_>) {
        record.text(&self.location);
        record.number(u64::from(self.is_link));
        record.optional(self.stat.as_ref().map(|stat| stat.size));
        record.optional(self.stat.as_ref().and_then(|stat| stat.modified_ms).map(|ms| ms as u64));
    }

    fn read(record: &mut RecordReader<'_>) -> Option<Self> {
        let (location, is_link) = (record.text()?.to_string(), record.number()? != 0);
        let (size, modified_ms) = (record.optional()?, record.optional()?.map(|ms| ms as i64));
        Some(Self { location, stat: size.map(|size| ListedStat { size, modified_ms }), is_link })
    }
}
