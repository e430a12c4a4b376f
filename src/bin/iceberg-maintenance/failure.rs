//! What ends a run early, and the exit code it means.

use std::io::Write;
use std::process::ExitCode;

use datafusion::error::DataFusionError;

/// Why a run did not end well.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    partial: bool,
}

impl Failure {
    /// An error: exit code 2.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), partial: false }
    }

    /// The work is done except for some deletes: exit code 1.
    pub(crate) fn partial(message: impl Into<String>) -> Self {
        Self { message: message.into(), partial: true }
    }

    /// Prints the message to standard error.
    pub(crate) fn print(&self) {
        // There is nowhere left to report a failure to report a failure.
        let _ = writeln!(std::io::stderr(), "Error: {}", self.message);
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.partial { 1 } else { 2 })
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        match iceberg_maintenance::Error::find(&error) {
            Some(own) => Self { message: own.to_string(), partial: own.is_partial() },
            None => Self::new(error.strip_backtrace()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_partial_failure_exits_with_1() {
        let partial = iceberg_maintenance::Error::PartialDelete {
            failed: 1,
            planned: 2,
            committed: "the commit is done",
            first: "/t/data/a: permission denied".into(),
        };
        let failure = Failure::from(DataFusionError::from(partial));
        assert!(failure.partial && failure.message.contains("1 of 2 files"), "{failure:?}");
        let failure = Failure::from(DataFusionError::Plan("no such table".into()));
        assert!(!failure.partial && failure.message.contains("no such table"), "{failure:?}");
    }
}
