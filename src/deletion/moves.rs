//! Files that are moved instead of deleted: into quarantine, and back.
//!
//! A file is never overwritten, and it goes from where it was only when it is where it should be.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path as OsPath;

use object_store::path::Path;
use object_store::{CopyMode, CopyOptions, Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::local::is_newer;
use crate::report::FileStatus;
use crate::table::Location;

/// Where files are moved to.
#[derive(Debug, Clone)]
pub(crate) struct Moves {
    /// By where they are, as the plan spells it.
    targets: HashMap<String, Location>,
    /// What is said of a file that was moved.
    moved: FileStatus,
}

impl Moves {
    /// `moved`: what is said of a file that was moved.
    pub(crate) fn new(targets: HashMap<String, Location>, moved: FileStatus) -> Self {
        Self { targets, moved }
    }

    pub(super) fn target(&self, file: &str) -> Option<&Location> {
        self.targets.get(file)
    }

    pub(super) fn moved(&self) -> FileStatus {
        self.moved.clone()
    }
}

/// Moves a local file. The folder it goes to is there.
///
/// # Errors
/// When something else is there already, and when the file system doesn't do it.
pub(super) fn move_local(from: &OsPath, to: &OsPath) -> std::io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        // Whoever linked it before died before removing the first name.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match is_same_file(from, to)? {
            true => fs::remove_file(from),
            false => Err(error),
        },
        // A file system without links: what comes there in this very moment is lost. Names in quarantine are nobody else's; on the
        // way back a writer would have to write the old name again.
        Err(_) if fs::symlink_metadata(to).is_err_and(|error| error.kind() == ErrorKind::NotFound) => {
            fs::rename(from, to)
        }
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn is_same_file(a: &OsPath, b: &OsPath) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (a, b) = (fs::symlink_metadata(a)?, fs::symlink_metadata(b)?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

#[cfg(not(unix))]
fn is_same_file(_: &OsPath, _: &OsPath) -> std::io::Result<bool> {
    Ok(false)
}

/// What became of an object that was to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MovedObject {
    /// It is where it should go, and nowhere else.
    Moved,
    /// It is neither here nor there.
    Missing,
    /// It was written again since it was planned: it stays.
    Changed,
}

/// Moves an object that was planned with this time (ms since the epoch): copies it, compares, and deletes the first.
///
/// # Errors
/// Why it could not be moved. The first is then still there.
pub(super) async fn move_object(
    store: &dyn ObjectStore,
    from: &Path,
    to: &Path,
    planned_ms: Option<i64>,
) -> Result<MovedObject, String> {
    let failed = |what: &str, error: StoreError| format!("{what} failed: {error}");
    // Whoever moved it before may have died before saying so.
    let moved_before = async || match head(store, to).await.map_err(|error| failed("looking for its copy", error))? {
        Some(_) => Ok(MovedObject::Moved),
        None => Ok(MovedObject::Missing),
    };
    let Some(source) = head(store, from).await.map_err(|error| failed("looking at it", error))? else {
        return moved_before().await;
    };
    if planned_ms.is_some_and(|planned_ms| is_newer(source.last_modified.timestamp_millis(), planned_ms)) {
        return Ok(MovedObject::Changed);
    }
    let create = CopyOptions { mode: CopyMode::Create, ..Default::default() };
    let is_ours = match store.copy_opts(from, to, create).await {
        Ok(()) => true,
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => false,
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            let is_free = head(store, to).await.map_err(|error| failed("looking where it goes", error))?.is_none();
            if is_free {
                store.copy(from, to).await.map_err(|error| failed("copying it", error))?;
            }
            is_free
        }
        // Another run moved or deleted it meanwhile.
        Err(StoreError::NotFound { .. }) => return moved_before().await,
        Err(error) => return Err(failed("copying it", error)),
    };
    let copy = head(store, to).await.map_err(|error| failed("looking at its copy", error))?;
    let is_copy = copy.is_some_and(|copy| copy.size == source.size);
    // Of what was there before only the content says whether it is a copy.
    let is_copy = is_copy && (is_ours || same_content(store, from, to).await.map_err(|e| failed("comparing it", e))?);
    if !is_copy {
        return Err(format!("{to} is not a copy of it: something else is there"));
    }
    match store.delete(from).await {
        Ok(()) | Err(StoreError::NotFound { .. }) => Ok(MovedObject::Moved),
        Err(error) => Err(failed("deleting it after it was copied", error)),
    }
}

/// Compares two objects of the same size, piece by piece.
async fn same_content(store: &dyn ObjectStore, a: &Path, b: &Path) -> Result<bool, StoreError> {
    const PIECE: u64 = 8 << 20;
    let size = store.head(a).await?.size;
    let mut at = 0;
    while at < size {
        let piece = at..size.min(at + PIECE);
        if store.get_range(a, piece.clone()).await? != store.get_range(b, piece.clone()).await? {
            return Ok(false);
        }
        at = piece.end;
    }
    Ok(true)
}

async fn head(store: &dyn ObjectStore, key: &Path) -> Result<Option<ObjectMeta>, StoreError> {
    match store.head(key).await {
        Ok(meta) => Ok(Some(meta)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_overwrites_nothing_and_can_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&from, "x").unwrap();
        fs::write(&to, "other").unwrap();
        assert_eq!(move_local(&from, &to).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&from).unwrap(), fs::read(&to).unwrap()), (b"x".to_vec(), b"other".to_vec()));
        fs::remove_file(&to).unwrap();
        fs::hard_link(&from, &to).unwrap();
        move_local(&from, &to).unwrap();
        assert!(!from.exists() && fs::read(&to).unwrap() == b"x");
    }

    #[tokio::test]
    async fn an_object_is_moved_once_and_never_over_another() {
        let store = object_store::memory::InMemory::new();
        let [from, to, other] = ["from", "to", "other"].map(Path::from);
        store.put(&from, "x".into()).await.unwrap();
        store.put(&other, "something else".into()).await.unwrap();
        assert!(move_object(&store, &from, &other, None).await.unwrap_err().contains("something else is there"));
        // As long, and not the same.
        store.put(&other, "y".into()).await.unwrap();
        assert!(move_object(&store, &from, &other, None).await.unwrap_err().contains("something else is there"));
        assert_eq!(move_object(&store, &from, &to, Some(1)).await, Ok(MovedObject::Changed));
        // A copy that somebody made who died before he removed the first.
        store.copy(&from, &to).await.unwrap();
        assert_eq!(move_object(&store, &from, &to, None).await, Ok(MovedObject::Moved));
        assert_eq!(move_object(&store, &from, &to, None).await, Ok(MovedObject::Moved), "again");
        assert_eq!(move_object(&store, &from, &"nowhere".into(), None).await, Ok(MovedObject::Missing));
        assert_eq!(store.get(&other).await.unwrap().bytes().await.unwrap(), "y");
    }
}
