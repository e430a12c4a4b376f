//! Going through the listed files.

use std::borrow::Cow;
use std::collections::HashSet;

use futures::TryStreamExt;

use super::listing::{HiddenNames, is_metadata_file, kind_by_name};
use super::references::{Named, References};
use super::{PrefixMismatchMode, RemoveOrphanFiles};
use crate::error::{Error, Result};
use crate::report::{FileOutcome, FileStatus, Metrics, SkipReason};
use crate::storage::{Listed, ListedFile, LocalFiles, Store};
use crate::table::FilePrefix;
use crate::table::location::split;

/// A modification time before this is no time: seconds taken for milliseconds, or nothing at all. 2000-01-01 UTC.
const EARLIEST_BELIEVABLE_MS: i64 = 946_684_800_000;
/// A modification time further ahead than this is a wrong clock, not a young file.
const LATEST_BELIEVABLE_AHEAD_MS: i64 = 24 * 60 * 60 * 1000;

/// Goes through the listed files and keeps those that nothing names.
pub(super) struct Search {
    mode: PrefixMismatchMode,
    hidden: Option<HiddenNames>,
    cutoff_ms: i64,
    now_ms: i64,
    pub metrics: Metrics,
    /// Files that nothing names and that are old enough.
    pub orphans: Vec<FileOutcome>,
    /// A listed file and the scheme and authority under which its path is live.
    mismatches: Vec<(String, FilePrefix)>,
    /// Where links lead to: those files are in use under the link's name.
    link_targets: HashSet<String>,
    /// Files that are named like table metadata, but that the table's own metadata doesn't name.
    pub metadata_files: Vec<String>,
    /// Links that are named like a metadata folder: a table's metadata may lie behind them.
    pub metadata_links: Vec<String>,
    /// How many listed files are live data or delete files.
    pub matched_content: u64,
    /// The paths so far, for a list of files that may name one twice; a listing doesn't.
    listed_paths: Option<HashSet<String>>,
}

impl Search {
    pub(super) fn new(options: &RemoveOrphanFiles, hidden: Option<HiddenNames>) -> Self {
        Self {
            mode: options.prefix_mismatch_mode,
            hidden,
            cutoff_ms: options.cutoff_ms,
            now_ms: options.now_ms,
            metrics: Metrics::default(),
            orphans: Vec::new(),
            mismatches: Vec::new(),
            link_targets: HashSet::new(),
            metadata_files: Vec::new(),
            metadata_links: Vec::new(),
            matched_content: 0,
            listed_paths: options.file_list_view.is_some().then(HashSet::new),
        }
    }

    /// Looks every listed file up.
    ///
    /// # Errors
    /// When the listing fails: one that is not complete decides nothing.
    pub(super) async fn run(
        &mut self,
        mut files: impl futures::Stream<Item = Result<(String, Listed)>> + Unpin,
        references: &mut References,
    ) -> Result<()> {
        while let Some((location, listed)) = files.try_next().await? {
            match listed {
                Listed::File(file) => self.file(location, file, references),
                Listed::Link { target, .. } => {
                    // The link itself is what the metadata may name; it is never deleted.
                    self.note_match(&references.probe(&location));
                    if location.ends_with("/metadata") {
                        self.metadata_links.push(location);
                    }
                    self.link_targets.extend(target);
                    self.metrics.count_skipped(SkipReason::UnsupportedName);
                }
                Listed::Unusable { path, why } => {
                    tracing::warn!(path, why, "left alone");
                    self.metrics.count_skipped(SkipReason::UnsupportedName);
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, location: String, file: ListedFile, references: &mut References) {
        if self.is_repeated(&file.path) {
            return;
        }
        self.metrics.scanned_files_count += 1;
        let named = references.probe(&location);
        if self.note_match(&named) {
            return;
        }
        if location.rsplit('/').next().is_some_and(is_metadata_file) {
            self.metadata_files.push(location.clone());
        }
        if let Err(why) = self.may_be_considered(&file) {
            return self.metrics.count_skipped(why);
        }
        let reason: Cow<'static, str> = match (named, self.mode) {
            (Named::OtherPrefix(prefix), PrefixMismatchMode::Error) => {
                return self.mismatches.push((location, prefix));
            }
            (Named::OtherPrefix(_), PrefixMismatchMode::Ignore) => {
                return self.metrics.count_skipped(SkipReason::PrefixMismatch);
            }
            (Named::OtherPrefix(prefix), PrefixMismatchMode::Delete) => format!(
                "nothing names it; its path is live under {prefix}, which prefix_mismatch_mode = DELETE ignores"
            )
            .into(),
            // A live file of the same name somewhere else may be this very file under an address we don't recognise.
            _ if references.is_named_elsewhere(&location) => {
                return self.metrics.count_skipped(SkipReason::PrefixMismatch);
            }
            _ => "nothing in the table's metadata names it".into(),
        };
        self.orphans.push(FileOutcome {
            kind: kind_by_name(&file.path),
            path: location,
            bytes: file.stat.map(|stat| stat.size),
            modified_ms: file.stat.and_then(|stat| stat.modified_ms),
            snapshot_id: None,
            reason,
            status: FileStatus::Planned,
        });
    }

    /// True if something names the file.
    fn note_match(&mut self, named: &Named) -> bool {
        self.matched_content += u64::from(*named == Named::Content);
        matches!(named, Named::Content | Named::Structure)
    }

    fn is_repeated(&mut self, path: &str) -> bool {
        self.listed_paths.as_mut().is_some_and(|paths| !paths.insert(path.to_string()))
    }

    fn may_be_considered(&self, file: &ListedFile) -> std::result::Result<(), SkipReason> {
        if self.hidden.as_ref().is_some_and(|hidden| hidden.hides(&file.path)) {
            return Err(SkipReason::Hidden);
        }
        let latest = self.now_ms.saturating_add(LATEST_BELIEVABLE_AHEAD_MS);
        let modified = file.stat.and_then(|stat| stat.modified_ms);
        match modified.filter(|modified| (EARLIEST_BELIEVABLE_MS..=latest).contains(modified)) {
            None => Err(SkipReason::UnknownAge),
            Some(modified) if modified >= self.cutoff_ms => Err(SkipReason::TooYoung),
            Some(_) => Ok(()),
        }
    }

    /// Keeps files that a link leads to: something may read them under the link's name.
    pub(super) fn drop_link_targets(&mut self, store: &Store) {
        let Some(local) = store.as_local().filter(|_| !self.link_targets.is_empty()) else { return };
        let (targets, metrics) = (&self.link_targets, &mut self.metrics);
        self.orphans.retain(|file| {
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

/// True if the path with all links resolved is among the targets, or can't be resolved.
fn canonical_is_in(local: &LocalFiles, path: &str, targets: &HashSet<String>) -> bool {
    match local.canonical(path) {
        Ok(canonical) => canonical.is_some_and(|canonical| targets.contains(&canonical)),
        Err(_) => true,
    }
}
