//! What ends a run early, and the exit code it means.

use std::io::Write;
use std::process::ExitCode;

use datafusion::error::DataFusionError;

use crate::visible::without_secrets;

/// The exit code of a process that Ctrl-C ended, as shells count it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a run did not end well.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
    /// The user answered the question with no.
    is_refusal: bool,
}

impl Failure {
    /// An error: exit code 2.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2, is_refusal: false }
    }

    /// The work is done but for a part of it: exit code 1.
    pub(crate) fn partial(message: impl Into<String>) -> Self {
        Self { code: 1, ..Self::new(message) }
    }

    /// The user answered the question with no: exit code 2.
    pub(crate) fn refused() -> Self {
        Self { is_refusal: true, ..Self::new("not confirmed; nothing was changed") }
    }

    /// A table that was verified and is not healthy: exit code 1.
    pub(crate) fn unhealthy(table: &str) -> Self {
        Self { code: 1, ..Self::new(format!("{table} is not healthy")) }
    }

    /// Ctrl-C, and what is known of the work by then: exit code 130.
    pub(crate) fn interrupted(endings: &[String]) -> Self {
        let message = if endings.is_empty() { "interrupted".into() } else { endings.join("; ") };
        Self { code: INTERRUPTED, ..Self::new(message) }
    }

    /// True where the work is done but for a part of it.
    pub(crate) fn is_partial(&self) -> bool {
        self.code == 1
    }

    /// True after Ctrl-C.
    pub(crate) fn is_interruption(&self) -> bool {
        self.code == INTERRUPTED
    }

    /// True where the user answered the question with no.
    pub(crate) fn is_refusal(&self) -> bool {
        self.is_refusal
    }

    /// The same failure, and something else that failed after it.
    pub(crate) fn and(self, other: &str) -> Self {
        Self { message: format!("{}; and {other}", self.message), ..self }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints the message to standard error.
    pub(crate) fn print(&self) {
        // There is nowhere left to report a failure to report a failure.
        let _ = writeln!(std::io::stderr(), "Error: {}", without_secrets(&self.message));
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        let Some(own) = iceberg_maintenance::Error::find(&error) else {
            return Self::new(error.strip_backtrace());
        };
        let parts: Vec<String> = contexts(&error).into_iter().chain([own.to_string()]).collect();
        // The work is done except for some deletes, or some of many tables: exit code 1.
        Self { code: if own.is_partial() { 1 } else { 2 }, ..Self::new(parts.join(": ")) }
    }
}

/// What was said about an error on its way. DataFusion adds the names of its rules, which are single words.
fn contexts(error: &DataFusionError) -> Vec<String> {
    let (mut error, mut contexts) = (error, vec![]);
    loop {
        error = match error {
            DataFusionError::Context(text, inner) => {
                contexts.extend(text.contains(' ').then(|| text.clone()));
                inner
            }
            DataFusionError::Shared(inner) => inner,
            DataFusionError::Diagnostic(_, inner) => inner,
            _ => return contexts,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        assert!(failure.code == 1 && failure.message.contains("1 of 2 files"), "{failure:?}");
        let failure = Failure::from(DataFusionError::Plan("no such table".into()));
        assert!(failure.code == 2 && failure.message.contains("no such table"), "{failure:?}");
        assert_eq!((Failure::interrupted(&[]).message, Failure::interrupted(&[]).code), ("interrupted".into(), 130));
    }

    #[test]
    fn what_was_done_before_is_said_and_the_engines_rules_are_not() {
        let error = iceberg_maintenance::Error::Statement { message: "no".into() };
        let error = DataFusionError::from(error).context("a was completed before b failed");
        let error = DataFusionError::Shared(Arc::new(error)).context("some_analyzer_rule");
        assert_eq!(Failure::from(error).message, "a was completed before b failed: no");
    }
}
