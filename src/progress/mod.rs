//! How far runs are, for whoever looks on while they work.
//!
//! A run counts what it does as it goes ([`RunWork`], plain numbers that nobody waits for). Who looks on reads these numbers now and
//! then; a run doesn't know whether anybody does. Parts of a run are also spans of `tracing`, by the same call that says what the
//! run is doing ([`stage`]).

mod watch;
mod work;

use std::time::Duration;

use datafusion::execution::TaskContext;
use serde::Serialize;
use tracing::Instrument;

pub(crate) use watch::Watchers;
pub(crate) use work::{BegunRun, FileCount, RunWork};

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStage {
    /// It has begun, and loads the table.
    #[default]
    Loading,
    /// It reads manifest lists and manifests.
    ReadingMetadata,
    /// It lists the table's folders, or reads the list that stands for a listing.
    Listing,
    /// It looks again at what it found.
    Checking,
    /// It commits new metadata, and looks whether the commit is there.
    Committing,
    /// It deletes files, or moves them.
    Deleting,
    /// It is over and did what was asked for.
    Finished,
    /// It is over without having done all of it.
    Failed,
}

impl RunStage {
    /// The stage in words.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStage::Loading => "loading",
            RunStage::ReadingMetadata => "reading metadata",
            RunStage::Listing => "listing",
            RunStage::Checking => "checking",
            RunStage::Committing => "committing",
            RunStage::Deleting => "deleting",
            RunStage::Finished => "finished",
            RunStage::Failed => "failed",
        }
    }

    /// True for the last thing that is told of a run.
    pub fn is_end(self) -> bool {
        matches!(self, RunStage::Finished | RunStage::Failed)
    }
}

/// How many of something are done, of how many that are known of so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Steps {
    /// How many are done.
    pub done: u64,
    /// How many are known of. It grows as a run finds more; 0 where nobody can know.
    pub known: u64,
}

/// How far one run is. Counts are of the whole run, unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Which run of the [`Maintenance`](crate::Maintenance) it is, from 1.
    pub run: u64,
    /// The procedure's name, several with ` and ` between them.
    pub operation: String,
    /// The table as the call named it, without a password; for a whole catalog the one that was begun last. Empty before the
    /// first.
    pub table: String,
    /// What it is doing; where several tables are worked on at once, what the last of them began to do.
    pub stage: RunStage,
    /// How long it has been running.
    pub elapsed: Duration,
    /// How long it has been doing that.
    pub stage_elapsed: Duration,
    /// Tables of a catalog. Both 0 for a run on one table.
    pub tables: Steps,
    /// Manifest lists that were read, or found unreadable.
    pub manifest_lists: Steps,
    /// The same for manifests.
    pub manifests: Steps,
    /// Bytes of manifest lists and manifests.
    pub bytes_read: u64,
    /// Files that listings showed so far, or the list that stands for one.
    pub files_listed: u64,
    /// Files that nothing live was found to name when they were looked up. Later looks can only take some away. A run that plans
    /// again, because the table changed meanwhile, counts and lists them again.
    pub candidates: u64,
    /// Files that were deleted or moved, found missing, spared at the last look, or refused by the store.
    pub deletes: Steps,
    /// Bytes of the files among them that are gone, as far as sizes are known.
    pub bytes_deleted: u64,
    /// How many of [`Self::steps`] were done when the stage began.
    #[serde(skip)]
    done_before: u64,
    /// Several tables are worked on at once, each of them in a stage of its own.
    #[serde(skip)]
    is_shared: bool,
}

impl Progress {
    /// What is counted in this stage: manifests, listed files, or deletes.
    pub fn steps(&self) -> Steps {
        match self.stage {
            RunStage::ReadingMetadata => self.manifests,
            RunStage::Listing => Steps { done: self.files_listed, known: 0 },
            RunStage::Deleting => self.deletes,
            _ => Steps::default(),
        }
    }

    /// How many of [`Self::steps`] a second are done in this stage. `None` where none was yet, and where several tables are worked
    /// on at once.
    pub fn per_second(&self) -> Option<f64> {
        if self.is_shared {
            return None;
        }
        let done = self.steps().done.saturating_sub(self.done_before);
        let seconds = self.stage_elapsed.as_secs_f64();
        (done > 0 && seconds > 0.0).then(|| done as f64 / seconds)
    }

    /// How long this stage is going to take, if it goes on as it went and nothing more is found. `None` where nobody can say.
    pub fn remaining(&self) -> Option<Duration> {
        let Steps { done, known } = self.steps();
        let left = known.saturating_sub(done);
        let seconds = left as f64 / self.per_second()?;
        if left == 0 { None } else { Duration::try_from_secs_f64(seconds).ok() }
    }
}

/// Does a part of a run: who looks on is told, and what happens meanwhile is in a span of its own.
pub(crate) async fn stage<T>(task: &TaskContext, stage: RunStage, part: impl Future<Output = T>) -> T {
    RunWork::of(task).begin_stage(stage);
    let name = stage.as_str();
    part.instrument(tracing::info_span!("stage", otel.name = name, stage = name)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deleting(done: u64, known: u64, seconds: u64) -> Progress {
        Progress {
            stage: RunStage::Deleting,
            stage_elapsed: Duration::from_secs(seconds),
            deletes: Steps { done, known },
            ..Progress::default()
        }
    }

    #[test]
    fn what_remains_is_told_by_what_was_done_in_the_stage() {
        assert_eq!(deleting(100, 400, 10).per_second(), Some(10.0));
        assert_eq!(deleting(100, 400, 10).remaining(), Some(Duration::from_secs(30)));
        let second_table = Progress { done_before: 50, ..deleting(100, 400, 10) };
        assert_eq!(second_table.remaining(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn nobody_can_say_what_remains_before_the_first_and_after_the_last_or_without_an_end() {
        assert_eq!(deleting(0, 400, 10).remaining(), None);
        assert_eq!(deleting(100, 400, 0).remaining(), None);
        assert_eq!(deleting(400, 400, 10).remaining(), None);
        let listing = Progress { stage: RunStage::Listing, files_listed: 100, ..deleting(1, 2, 10) };
        assert_eq!((listing.per_second(), listing.remaining()), (Some(10.0), None));
        assert_eq!(Progress { stage: RunStage::Committing, ..deleting(1, 2, 10) }.per_second(), None);
        assert_eq!(Progress { is_shared: true, ..deleting(100, 400, 10) }.remaining(), None);
    }
}
