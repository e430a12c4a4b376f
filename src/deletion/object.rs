//! Deleting objects.

use object_store::ObjectStoreExt;

use crate::error::{Error, Result};
use crate::report::FileStatus;
use crate::storage::ObjectFiles;
use crate::table::Location;

/// Deletes one object. A store that reports a missing key says so; most answer "deleted" for it too.
pub(super) async fn delete(objects: &ObjectFiles, location: &Location) -> Result<FileStatus> {
    match objects.store().delete(&ObjectFiles::key(location)?).await {
        Ok(()) => Ok(FileStatus::Deleted),
        Err(error) => match Error::store("deleting", location.to_string(), error) {
            Error::FileNotFound { .. } => Ok(FileStatus::Missing),
            error => Err(error),
        },
    }
}
