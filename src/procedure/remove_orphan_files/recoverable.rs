//! Orphans that stay for a while: what the journal has noted, and what became unreferenced only now.

use std::sync::Arc;

use datafusion::execution::TaskContext;

use crate::catalog::LoadedTable;
use crate::deletion::NewestMetadata;
use crate::error::Result;
use crate::journal::{Journal, Unfinished, unknown_promise};
use crate::procedure::recovery::RecoveryWindow;
use crate::reachability::{FileIdentity, LiveFilesBuilder, Liveness, NamedBy};
use crate::report::{FileOutcome, FileStatus, SkipReason};
use crate::table::TableMetadata;

/// What is known of files that are no longer referenced.
pub(super) struct Recoverable<'a> {
    pub table: &'a LoadedTable,
    pub identity: &'a FileIdentity,
    pub window: RecoveryWindow,
    pub now_ms: i64,
    pub task: &'a Arc<TaskContext>,
}

impl Recoverable<'_> {
    /// Takes out of the orphans what earlier runs left, which is dealt with as theirs; spares what they put off, and what was
    /// still referenced within the recovery window.
    ///
    /// # Errors
    /// When a journal or a metadata file of that time is there and can't be read: what it names is unknown.
    pub(super) async fn spare(
        &self,
        orphans: &mut Vec<FileOutcome>,
        unfinished: &Unfinished,
        newest: &mut NewestMetadata,
    ) -> Result<()> {
        let left = unfinished.files();
        self.mark(left.iter().map(|file| file.path.as_str()), orphans, SkipReason::LiveAgain)?;
        orphans.retain(|file| file.status != FileStatus::Spared(SkipReason::LiveAgain));
        let put_off = self.put_off().await?;
        self.mark(put_off.iter().map(String::as_str), orphans, SkipReason::AwaitsPurge)?;
        if self.window.ms > 0 && !orphans.is_empty() {
            let since_ms = self.now_ms.saturating_sub(self.window.ms);
            let history = current_after(&self.table.metadata, since_ms);
            newest.spare_named_by_history(history, orphans, SkipReason::Recoverable).await?;
        }
        Ok(())
    }

    /// The files whose deletion runs have put off until a time that has not come.
    async fn put_off(&self) -> Result<Vec<String>> {
        let journal = Journal::of(self.table, self.task)?;
        let mut files = vec![];
        for run in journal.runs().await? {
            if !run.is_open() || run.until_ms().is_none_or(|until_ms| until_ms <= self.now_ms) {
                continue;
            }
            match journal.plan_of(&run).await {
                Ok(plan) => files.extend(plan.files.into_iter().map(|file| file.path)),
                // Its run took it back since: its commit did not happen.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(unknown_promise(&self.table.name, &error)),
            }
        }
        Ok(files)
    }

    fn mark<'f>(
        &self,
        named: impl Iterator<Item = &'f str>,
        orphans: &mut [FileOutcome],
        reason: SkipReason,
    ) -> Result<()> {
        let mut set = LiveFilesBuilder::new(self.identity.afresh(), self.task);
        let mut is_empty = true;
        for file in named {
            set.insert(file, NamedBy::Metadata, false)?;
            is_empty = false;
        }
        if is_empty {
            return Ok(());
        }
        let answers = set.build()?.probe_all(&orphans.iter().map(|file| file.path.as_str()).collect::<Vec<_>>())?;
        for (file, liveness) in orphans.iter_mut().zip(answers) {
            if file.status == FileStatus::Planned && liveness != Liveness::Dead {
                file.status = FileStatus::Spared(reason);
            }
        }
        Ok(())
    }
}

/// The metadata files that were the current ones at some time after this (ms since the epoch), without the newest. The log says
/// when each was made, so each was current until its successor was made.
fn current_after(metadata: &TableMetadata, since_ms: i64) -> Vec<String> {
    let log = metadata.metadata_log();
    let made = log.iter().skip(1).map(|entry| Some(entry.timestamp_ms)).chain([metadata.last_updated_ms()]);
    let current = log.iter().zip(made).filter(|(_, until)| until.is_none_or(|until| until > since_ms));
    current.map(|(entry, _)| entry.metadata_file.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metadata_file_is_current_until_the_next_one_is_made() {
        let json = r#"{"format-version":2,"location":"/t","last-updated-ms":40,"metadata-log":[
            {"timestamp-ms":10,"metadata-file":"a"},{"timestamp-ms":20,"metadata-file":"b"},{"timestamp-ms":30,"metadata-file":"c"}]}"#;
        let metadata = TableMetadata::parse("/t/metadata/v4.metadata.json", json.as_bytes()).unwrap();
        assert_eq!(current_after(&metadata, 25), ["b", "c"]);
        assert_eq!(current_after(&metadata, 20), ["b", "c"]);
        assert_eq!(current_after(&metadata, 9), ["a", "b", "c"]);
        assert!(current_after(&metadata, 40).is_empty());
    }
}
