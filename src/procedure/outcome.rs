//! What a call came to, whatever its rows are.

use std::time::Instant;

use datafusion::arrow::array::RecordBatch;

use crate::deletion::Stopped;
use crate::error::{Error, Result};
use crate::maintenance::{Maintenance, RunContext};
use crate::report::{FileOutcome, Metrics, Output, Report};

/// The rows of a call, and what else there is to say.
#[derive(Debug)]
pub(crate) struct CallOutcome {
    /// At least one batch, each of the call's schema.
    pub batches: Vec<RecordBatch>,
    /// What the operator should know.
    pub notices: Vec<String>,
    /// What a procedure did that may change something; `None` where the call only reads.
    pub metrics: Option<Metrics>,
    /// Why the work is not complete, where the rows say it file by file: the rows come first, then this error.
    pub incomplete: Option<Error>,
}

/// Passes on the report of a run whose deletes were stopped. Returns why they were.
pub(crate) fn tell_stopped(
    stopped: Stopped,
    report_of: impl FnOnce(Vec<FileOutcome>) -> Report,
    context: &RunContext,
) -> Error {
    context.tell(&mut report_of(stopped.files));
    stopped.error
}

impl CallOutcome {
    /// A report in one of its shapes, after it was passed on whole to whom the embedder named. Failed deletes are an error, unless
    /// the rows show every file's status.
    ///
    /// # Errors
    /// [`Error::PartialDelete`], unless the rows are files.
    pub(crate) fn of_report(
        mut report: Report,
        output: Output,
        started: Instant,
        maintenance: &Maintenance,
    ) -> Result<Self> {
        report.metrics.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        maintenance.tell(&report);
        let incomplete = report.require_complete().err();
        if output != Output::Files {
            incomplete.map_or(Ok(()), Err)?;
            return Self::complete(report, output, None);
        }
        Self::complete(report, output, incomplete)
    }

    fn complete(report: Report, output: Output, incomplete: Option<Error>) -> Result<Self> {
        let batches = report.to_batches(output)?;
        Ok(Self { batches, notices: report.notices, metrics: Some(report.metrics), incomplete })
    }
}
