//! One error type for the whole crate.
//!
//! Every message names the thing it is about, says why the run stopped and what to do about it. Messages never
//! hold credentials: locations are printed without user info or query string.

use std::sync::Arc;

use datafusion::error::DataFusionError;

/// The crate's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can stop a maintenance run.
///
/// Unless a variant says otherwise, nothing was changed: no commit was made and no file was deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A statement could not be understood.
    #[error("{message}")]
    Statement {
        /// What is wrong with the statement, and what would be right.
        message: String,
    },

    /// An argument is unknown, repeated, missing, of the wrong type or out of range.
    #[error("{procedure}: {message}")]
    Argument {
        /// The procedure that was called.
        procedure: String,
        /// What is wrong, and which arguments or values there are.
        message: String,
    },

    /// The table is neither a registered name nor a location that holds a table.
    #[error("table {table} was not found: {why}")]
    TableNotFound {
        /// The name or location as it was given.
        table: String,
        /// Where it was looked for, and what to do.
        why: String,
    },

    /// A file that was named somewhere does not exist.
    #[error("{path} does not exist")]
    FileNotFound {
        /// The missing file.
        path: String,
    },

    /// A file exists but is not what it should be: cut short, corrupt, encrypted or of an unknown layout.
    #[error("{path} can't be read as {what}: {why}")]
    Malformed {
        /// What the file should have been, such as "a manifest list".
        what: &'static str,
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },

    /// A file that a retained snapshot needs is missing or unreadable.
    #[error(
        "{what} {path} can't be read ({why}), and snapshot {needed_by} needs it: which files are live is unknown, \
         so nothing is deleted. Restore the file, or expire the snapshots that need it with snapshot_ids"
    )]
    NeededFileUnreadable {
        /// The kind of file.
        what: &'static str,
        /// The file.
        path: String,
        /// What went wrong.
        why: String,
        /// The retained snapshot that needs the file.
        needed_by: i64,
    },

    /// Reading, listing or writing failed in the store or the file system.
    #[error("{action} {path} failed: {}", in_one_line(&source.to_string()))]
    Storage {
        /// What was tried: "reading", "listing", "writing", …
        action: &'static str,
        /// The file or folder.
        path: String,
        /// The store's own error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },

    /// A store did not list its keys in their order, so that a listing by ranges may have missed some.
    #[error(
        "listing {path}: {why}, so it can't be listed in parts at once. SET iceberg_maintenance.listing = 'sequential' and \
         run the call again"
    )]
    ListingOrder {
        /// The folder.
        path: String,
        /// Which keys came in which order.
        why: String,
    },

    /// A location can't be used: its store can't be made, or the path can't be expressed in it.
    #[error("location {location} can't be used: {why}")]
    Location {
        /// The location.
        location: String,
        /// Why, and what to do.
        why: String,
    },

    /// Nothing says how to reach a location.
    #[error("there is no object store for {location}: {why}")]
    NoStore {
        /// The location.
        location: String,
        /// What would say it.
        why: String,
    },

    /// Table metadata breaks a rule of the table spec that a decision depends on.
    #[error("table metadata {path} is invalid: {why}")]
    InvalidMetadata {
        /// The metadata file.
        path: String,
        /// Which rule, with the offending field or id.
        why: String,
    },

    /// The table's format version is newer than what this crate knows.
    #[error(
        "table {table} has format version {version}; versions 1, 2 and 3 are supported. A newer format may keep files \
         alive in ways this version doesn't know: update iceberg-maintenance"
    )]
    UnsupportedFormatVersion {
        /// The table.
        table: String,
        /// Its format version.
        version: i64,
    },

    /// `gc.enabled` is not true.
    #[error(
        "Cannot {operation}: GC is disabled (deleting files may corrupt other tables). Table {table} has gc.enabled = '{value}'"
    )]
    GcDisabled {
        /// "expire snapshots" or "delete orphan files".
        operation: &'static str,
        /// The table.
        table: String,
        /// The property's value.
        value: String,
    },

    /// The table's newest metadata is named by a catalog that this call can't see, or which file is the newest is unclear.
    #[error("table {table}: {why}")]
    UnclearOwner {
        /// The table.
        table: String,
        /// What was found, and the way out.
        why: String,
    },

    /// A catalog can't be used, doesn't answer, or refused what it was asked for.
    #[error("catalog {catalog}: {why}")]
    Catalog {
        /// The catalog's name.
        catalog: String,
        /// What was asked for, what came back, and what to do.
        why: String,
    },

    /// A catalog took the commit but made something else of it. No file was deleted.
    #[error(
        "catalog {catalog} took the commit to {table}, but {why}. No file was deleted, so nothing is lost: look at the \
         table's refs and snapshots, and restore what is missing from its previous metadata"
    )]
    CommitMismatch {
        /// The catalog's name.
        catalog: String,
        /// The table.
        table: String,
        /// How what came back differs from what was asked for.
        why: String,
    },

    /// A check before the first delete found something that must not be there, or missed what must be there.
    #[error("refused to delete from {table}: {found}")]
    Guard {
        /// The table.
        table: String,
        /// What was found, why it is dangerous, and which argument overrides the check if one does.
        found: String,
    },

    /// Another writer won every race for the commit.
    #[error(
        "table {table} is being changed by others ({why}; {attempts} attempts); nothing was changed by this call. Run it again"
    )]
    Conflict {
        /// The table.
        table: String,
        /// How often the commit was tried.
        attempts: u32,
        /// The last conflict.
        why: String,
    },

    /// Whether the commit happened is unknown. No file was deleted.
    #[error(
        "whether the commit to {table} happened is unknown ({why}); no file was deleted. Look at the table's newest snapshot list, then run the call again"
    )]
    CommitUnknown {
        /// The table.
        table: String,
        /// What happened.
        why: String,
    },

    /// Some files could not be deleted. All others were tried, and a commit that came before stays.
    #[error(
        "{failed} of {planned} files could not be deleted; {committed}. First failure: {first}. Run resume_maintenance or remove_orphan_files later to collect them, or call with output => 'files' to see them all"
    )]
    PartialDelete {
        /// How many files are left.
        failed: u64,
        /// How many were to be deleted.
        planned: u64,
        /// What is known of the commit.
        committed: &'static str,
        /// Path and error of the first failure.
        first: String,
    },

    /// A look at the table that the call asked for (`verify => true`) found it damaged.
    #[error("{table} is not whole, {when}: {found}. SELECT * FROM verify_table(…) shows all that is wrong")]
    Unhealthy {
        /// The table.
        table: String,
        /// When it was looked at.
        when: &'static str,
        /// The first fault.
        found: String,
    },

    /// What a run took away can't be put back. Nothing was changed.
    #[error("nothing was put back in {table}: {why}")]
    NotRestorable {
        /// The table.
        table: String,
        /// Why, and the way out.
        why: String,
    },

    /// Some files could not be moved back from quarantine. They are still there, and all others were tried.
    #[error(
        "{failed} files of {table} could not be moved back from quarantine, where they still are. First failure: {first}"
    )]
    NotReturned {
        /// The table.
        table: String,
        /// How many files.
        failed: u64,
        /// Path and error of the first failure.
        first: String,
    },

    /// Of many tables some could not be maintained. The others were: the rows that came before say what became of each.
    #[error(
        "{failed} of {tables} tables of {catalog} could not be maintained; the rows before this error say what became of each. \
         First: {first}"
    )]
    TablesFailed {
        /// The catalog, or the namespace in it.
        catalog: String,
        /// How many tables failed, or were not reached because the call was cancelled.
        failed: usize,
        /// How many tables there are.
        tables: usize,
        /// The first of them, and why.
        first: String,
    },

    /// The call was cancelled. What was deleted before stays deleted.
    #[error("cancelled after {deleted} of {planned} deletes; {committed}")]
    Cancelled {
        /// Files deleted before.
        deleted: u64,
        /// Files planned.
        planned: u64,
        /// What is known of the commit.
        committed: &'static str,
    },

    /// The session does not allow this call to act.
    #[error("{message}")]
    NotAllowed {
        /// Which option forbids it.
        message: String,
    },

    /// An error of the engine: memory limits, task failures and the like.
    #[error(transparent)]
    Engine(Arc<DataFusionError>),
}

/// A cause in one line. Object stores answer in XML, of which the code and the message are kept.
fn in_one_line(cause: &str) -> String {
    let between = |open: &str, close: &str| {
        let (_, rest) = cause.split_once(open)?;
        rest.split_once(close).map(|(inner, _)| inner)
    };
    let answer = cause.find("<?xml").or_else(|| cause.find("<Error>"));
    let text = match (answer, between("<Code>", "</Code>")) {
        (Some(begin), Some(code)) => {
            let message = between("<Message>", "</Message>").filter(|message| *message != code);
            format!("{}{code}{}", &cause[..begin], message.map(|text| format!(", {text}")).unwrap_or_default())
        }
        _ => cause.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Error {
    /// True when a file or folder is missing, whichever layer noticed.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::FileNotFound { .. })
    }

    /// True when the file itself is at fault (missing or malformed), not the way to it.
    ///
    /// Only such errors may be skipped for files of the dead set: a time-out says nothing about the file.
    pub fn is_about_the_file(&self) -> bool {
        matches!(self, Error::FileNotFound { .. } | Error::Malformed { .. })
    }

    /// True when the call did its work except for some deletes or some of many tables (the command line exits with 1 instead of 2).
    pub fn is_partial(&self) -> bool {
        match self {
            Error::PartialDelete { .. } | Error::NotReturned { .. } | Error::Cancelled { .. } => true,
            Error::TablesFailed { failed, tables, .. } => failed < tables,
            _ => false,
        }
    }

    /// True when a store doesn't know such a request.
    pub(crate) fn is_unknown_to_the_store(&self) -> bool {
        use object_store::Error::{NotImplemented, NotSupported};
        let Error::Storage { source, .. } = self else { return false };
        matches!(source.downcast_ref(), Some(NotImplemented { .. } | NotSupported { .. }))
    }

    /// True when a store said no for good: a write that was refused did not happen.
    pub(crate) fn is_refusal(&self) -> bool {
        let Error::Storage { source, .. } = self else { return false };
        let io = |kind| matches!(kind, std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem);
        match source.downcast_ref::<object_store::Error>() {
            Some(error) => matches!(
                error,
                object_store::Error::PermissionDenied { .. }
                    | object_store::Error::Unauthenticated { .. }
                    | object_store::Error::NotImplemented { .. }
                    | object_store::Error::NotSupported { .. }
            ),
            None => source.downcast_ref::<std::io::Error>().is_some_and(|error| io(error.kind())),
        }
    }

    /// Wraps an `std::io::Error`, telling a missing file apart.
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: std::io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            std::io::ErrorKind::NotFound => Error::FileNotFound { path },
            // The system takes no such name, so no file has it.
            std::io::ErrorKind::InvalidInput if path.contains('\0') => Error::FileNotFound { path },
            std::io::ErrorKind::IsADirectory => Error::Malformed { what: "a file", path, why: "it is a folder".into() },
            _ => Error::Storage { action, path, source: Arc::new(source) },
        }
    }

    /// Wraps an object store's error, telling a missing file apart.
    pub(crate) fn store(action: &'static str, path: impl Into<String>, source: object_store::Error) -> Self {
        let path = path.into();
        match source {
            object_store::Error::NotFound { .. } => Error::FileNotFound { path },
            source => Error::Storage { action, path, source: Arc::new(without_token(source)) },
        }
    }

    pub(crate) fn argument(procedure: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Argument { procedure: procedure.into(), message: message.into() }
    }

    /// Finds the crate's error inside a DataFusion error, for hosts that only see the latter.
    pub fn find(error: &DataFusionError) -> Option<&Error> {
        match error.find_root() {
            DataFusionError::External(inner) => inner.downcast_ref::<Error>(),
            _ => None,
        }
    }
}

/// The same error without the session token, which S3 repeats in its answer when it doesn't take it.
fn without_token(error: object_store::Error) -> object_store::Error {
    use object_store::Error::{Generic, PermissionDenied, Precondition, Unauthenticated};
    let text = |source: &dyn std::error::Error| -> Box<dyn std::error::Error + Send + Sync> {
        without_token_elements(&source.to_string()).into()
    };
    match error {
        error if !error.to_string().contains(TOKEN_ELEMENT) => error,
        PermissionDenied { path, source } => PermissionDenied { path, source: text(&*source) },
        Unauthenticated { path, source } => Unauthenticated { path, source: text(&*source) },
        Precondition { path, source } => Precondition { path, source: text(&*source) },
        other => Generic { store: "object", source: text(&other) },
    }
}

/// What the elements of an answer are called that hold a token, up to their number.
const TOKEN_ELEMENT: &str = "<Token-";

fn without_token_elements(text: &str) -> String {
    let mut parts = text.split(TOKEN_ELEMENT);
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        shown.push_str(TOKEN_ELEMENT);
        // Up to the element's end, or to the end of a text that was cut off within it.
        shown.push('…');
        shown.push_str(part.split_once("</").map_or("", |(_, rest)| rest.split_once('>').map_or("", |(_, rest)| rest)));
    }
    shown
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(inner) => DataFusionError::Shared(inner),
            error => DataFusionError::External(Box::new(error)),
        }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(own) => *own,
                Err(inner) => Error::Engine(Arc::new(DataFusionError::External(inner))),
            },
            error => Error::Engine(Arc::new(error)),
        }
    }
}

impl From<datafusion::arrow::error::ArrowError> for Error {
    fn from(error: datafusion::arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_s_answer_is_told_in_one_line() {
        let answer = "status code: 404 Not Found: <?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchBucket</Code>\
                      <Message>The specified bucket does not exist</Message><Resource>/b</Resource></Error>";
        let told = "status code: 404 Not Found: NoSuchBucket, The specified bucket does not exist";
        assert_eq!(in_one_line(answer), told);
        assert_eq!(in_one_line("403: <Error><Code>Denied</Code></Error>"), "403: Denied");
        assert_eq!(in_one_line("two\n  lines, <no> XML"), "two lines, <no> XML");
    }

    #[test]
    fn a_token_that_a_store_repeats_is_not_kept() {
        let answer = "403: <Error><Code>InvalidToken</Code><Token-0>hidden</Token-0><Token-1>hidden</Token-1></Error>";
        let denied = object_store::Error::PermissionDenied { path: "k".into(), source: answer.into() };
        let error = Error::store("reading", "s3://b/k", denied);
        assert!(error.is_refusal() && !format!("{error} {error:?}").contains("hidden"), "{error:?}");
        assert_eq!(without_token_elements("a<Token-0>hid"), "a<Token-…");
        assert_eq!(without_token_elements("a<Token-0>hidden</Token-0>b"), "a<Token-…b");
    }
}
