//! What a recursive listing is asked for, and what it finds.

use futures::stream::BoxStream;

use crate::error::{Error, Result};

/// How a folder is to be listed.
#[derive(Debug, Clone)]
pub(crate) struct ListingOptions {
    /// How many folders or key ranges are listed at once; 0 counts as 1.
    pub concurrency: usize,
    /// Some live paths, as in [`ListedFile::path`], in no order: where the files are. Empty: unknown.
    ///
    /// They only steer how the work is split; what is found does not depend on them. Some thousands are plenty.
    pub samples: Vec<String>,
    /// Local disks: names only, [`super::Store::look_at`] tells size and time of those that matter.
    pub names_only: bool,
    /// How the keys of an object store are gone through.
    pub mode: ListingMode,
}

impl Default for ListingOptions {
    fn default() -> Self {
        Self { concurrency: 1, samples: vec![], names_only: false, mode: ListingMode::Auto }
    }
}

/// The ways to list an object store. Local disks are walked folder by folder whatever is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListingMode {
    /// Ranges in stores that are known to list in the order of keys, else folders.
    Auto,
    /// Disjoint ranges of keys at once. The store must list in the order of keys.
    Ranges,
    /// Folders at once.
    Folders,
    /// One listing from the first key to the last.
    Sequential,
}

impl ListingMode {
    /// Reads the session option `iceberg_maintenance.listing`.
    ///
    /// # Errors
    /// [`Error::Statement`] for any other word.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "ranges" => Ok(Self::Ranges),
            "folders" => Ok(Self::Folders),
            "sequential" => Ok(Self::Sequential),
            _ => Err(Error::Statement {
                message: format!(
                    "the session option iceberg_maintenance.listing is '{text}'; it can be 'auto', 'ranges', 'folders' or \
                     'sequential'"
                ),
            }),
        }
    }
}

/// A running listing, in batches of up to some thousand.
pub(crate) type Listing = BoxStream<'static, Result<Vec<Listed>>>;

/// One thing a recursive listing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listed {
    /// A regular file or object.
    File(ListedFile),
    /// A symbolic link. Never followed; the file it leads to (if any) is in use under the link's name.
    Link { path: String, target: Option<String> },
    /// A name that can't be written in table metadata (no UTF-8) or is neither file nor folder. Never deleted.
    Unusable { path: String, why: &'static str },
}

/// A file as the listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedFile {
    /// The path below the store, with a leading slash; comparable to [`crate::table::Location::path`] after normalisation.
    pub path: String,
    /// `None` if it was not looked at yet ([`ListingOptions::names_only`]).
    pub stat: Option<ListedStat>,
}

/// Size and age of a listed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListedStat {
    /// Size in bytes.
    pub size: u64,
    /// Last modification, ms since the epoch, as far as the store says.
    pub modified_ms: Option<i64>,
}
