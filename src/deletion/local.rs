//! Deleting files of a local disk.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::error::{Error, Result};
use crate::report::{FileStatus, SkipReason};
use crate::storage::LocalFiles;
use crate::table::location::is_below;
use crate::table::{Location, Roots};

/// Deletes one file. A folder is never deleted, a link is removed without touching what it leads to, and a path that
/// leaves the table's roots through a linked folder is left alone.
pub(super) async fn delete(files: &LocalFiles, location: &Location, roots: Option<Arc<Roots>>) -> Result<FileStatus> {
    let (files, location) = (files.clone(), location.clone());
    spawn_blocking(move || delete_blocking(&files, &location, roots.as_deref()))
        .await
        .map_err(|e| Error::io("deleting", "a file", std::io::Error::other(e)))?
}

fn delete_blocking(files: &LocalFiles, location: &Location, roots: Option<&Roots>) -> Result<FileStatus> {
    let path = files.os_path(location);
    let failed = |error| Error::io("deleting", location.to_string(), error);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FileStatus::Missing),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if metadata.is_dir() => return Ok(FileStatus::Failed("it is a folder".into())),
        Ok(_) => {}
    }
    if roots.is_some_and(|roots| !stays_inside(files, location, roots)) {
        return Ok(FileStatus::Spared(SkipReason::External));
    }
    match fs::remove_file(&path) {
        Ok(()) => {
            remove_checksum(&path);
            Ok(FileStatus::Deleted)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(FileStatus::Missing),
        Err(error) => Err(failed(error)),
    }
}

/// True when the file's folder, with all links resolved, still lies in one of the roots.
fn stays_inside(files: &LocalFiles, location: &Location, roots: &Roots) -> bool {
    let Some((folder, name)) = location.path().rsplit_once('/') else { return false };
    let Some(folder) = files.canonical(if folder.is_empty() { "/" } else { folder }) else { return false };
    let path = format!("{}/{name}", folder.trim_end_matches('/'));
    roots
        .iter()
        .filter(|root| root.location.is_local())
        .filter_map(|root| files.canonical(root.location.path()))
        .any(|root| is_below(&path, &root))
}

/// Removes the checksum that Hadoop's local file system keeps beside a file, as Hadoop does when it deletes the file.
///
/// A checksum without its file is of no use to anybody, and a checksum that stays is no harm: failing is fine.
fn remove_checksum(path: &Path) {
    if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
        let _ = fs::remove_file(path.with_file_name(format!(".{name}.crc")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PathRules, Root};

    fn at(path: &Path) -> Location {
        Location::parse(path.to_str().unwrap()).unwrap()
    }

    fn roots(root: &Path) -> Roots {
        let location = at(root);
        let rules = PathRules::new(&location);
        Roots::new(vec![Root { location, named_by: "location" }], rules)
    }

    #[test]
    fn files_go_with_their_checksum_and_folders_stay() {
        let root = tempfile::tempdir().unwrap();
        for name in ["f", ".f.crc", ".g.crc"] {
            fs::write(root.path().join(name), "x").unwrap();
        }
        fs::create_dir(root.path().join("folder")).unwrap();
        let delete = |name: &str| {
            delete_blocking(&LocalFiles::new(None), &at(&root.path().join(name)), Some(&roots(root.path()))).unwrap()
        };
        assert_eq!(delete("f"), FileStatus::Deleted);
        assert_eq!(delete("f"), FileStatus::Missing);
        assert_eq!(delete("folder"), FileStatus::Failed("it is a folder".into()));
        assert!(!root.path().join(".f.crc").exists() && root.path().join(".g.crc").exists());
    }

    #[test]
    fn a_linked_folder_does_not_lead_out_of_the_table() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("theirs"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("data")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("theirs"), root.path().join("link")).unwrap();
        let delete = |name: &str, roots: Option<&Roots>| {
            delete_blocking(&LocalFiles::new(None), &at(&root.path().join(name)), roots).unwrap()
        };
        let inside = roots(root.path());
        assert_eq!(delete("data/theirs", Some(&inside)), FileStatus::Spared(SkipReason::External));
        assert_eq!(delete("link", Some(&inside)), FileStatus::Deleted);
        assert!(outside.path().join("theirs").exists());
    }
}
