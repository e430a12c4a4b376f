//! How long files stay after they became unreferenced.

use datafusion::execution::TaskContext;

use crate::deletion::DeletionPlan;
use crate::error::{Error, Result};
use crate::options::MaintenanceOptions;
use crate::report::{FileStatus, SkipReason};
use crate::table::TableMetadata;
use crate::time::{format_ms, parse_duration};

/// The table property that names a window.
const PROPERTY: &str = "maintenance.recovery-window";

/// The longest window.
const LONGEST_MS: i64 = 100 * 366 * 24 * 60 * 60 * 1000;

/// A time in which what an operation took away can be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecoveryWindow {
    /// Ms; 0 for none.
    pub(super) ms: i64,
}

impl RecoveryWindow {
    /// The window of a call: as the call says, or the table, or the session.
    ///
    /// # Errors
    /// When one of them is no duration, and when there is a window but no journal to remember it by.
    pub(super) fn of(metadata: &TableMetadata, given_ms: Option<i64>, task: &TaskContext) -> Result<Self> {
        let options =
            task.session_config().options().extensions.get::<MaintenanceOptions>().cloned().unwrap_or_default();
        let of_table = || match metadata.properties().get(PROPERTY) {
            None => Ok(None),
            Some(text) => parse_duration(text).map(Some).map_err(|why| Error::InvalidMetadata {
                path: metadata.metadata_location().into(),
                why: format!("{PROPERTY} = '{text}': {why}"),
            }),
        };
        let ms = match given_ms {
            Some(ms) => ms,
            None => match of_table()? {
                Some(ms) => ms,
                None => super::duration_option("recovery_window", &options.recovery_window)?,
            },
        };
        if ms > LONGEST_MS {
            return Err(Error::NotAllowed {
                message: format!(
                    "a recovery window of {} is longer than 100 years: to keep files for ever, give delete_files => false, or set \
                     gc.enabled to false",
                    crate::time::format_duration(ms)
                ),
            });
        }
        if ms > 0 && !options.has_journal()? {
            return Err(Error::NotAllowed {
                message: "a recovery window needs a journal, and the session option iceberg_maintenance.journal is 'off'. SET \
                          it to 'on', or give deferred => '0s' to delete at once"
                    .into(),
            });
        }
        Ok(Self { ms })
    }

    /// Puts the deletion of a plan's files off. Returns until when, ms since the epoch; `None` when nothing is put off.
    pub(super) fn defer(self, deletion: &mut DeletionPlan, now_ms: i64) -> Option<i64> {
        if self.ms == 0 {
            return None;
        }
        deletion.defer();
        let is_deferred = |status: &FileStatus| *status == FileStatus::Spared(SkipReason::Deferred);
        deletion.files().iter().any(|file| is_deferred(&file.status)).then(|| now_ms.saturating_add(self.ms))
    }

    /// What there is to say of files that stay until then.
    pub(super) fn notice(until_ms: i64) -> String {
        format!(
            "the files stay until {}: the first run after that, or purge_deferred_files, deletes them",
            format_ms(until_ms)
        )
    }
}
