//! Deleting files of a local disk.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::error::{Error, Result};
use crate::report::{FileStatus, SkipReason};
use crate::storage::{LocalFiles, epoch_ms};
use crate::table::location::is_below;
use crate::table::{Location, Roots};

/// The table's roots with all links resolved: where a local path may lead.
///
/// # Errors
/// When the file system doesn't say where a root is.
pub(super) fn canonical_roots(files: &LocalFiles, roots: &Roots) -> Result<Vec<String>> {
    let local = roots.iter().filter(|root| root.location.is_local());
    local.filter_map(|root| files.canonical(root.location.path()).transpose()).collect()
}

/// A file to look at or to delete.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub location: Location,
    /// When the plan saw it last modified, ms since the epoch. A file that was written since then is another file.
    pub modified_ms: Option<i64>,
}

/// What a look at a file says: what would become of it, or that it may be deleted, and its size.
enum Look {
    Decided(FileStatus),
    Deletable { size: u64 },
}

/// Says of many files what would become of them: the same decisions that [`delete`] takes, without deleting. `None`
/// where the file would be deleted; its size is filled in.
pub(super) async fn preview(
    files: &LocalFiles,
    targets: Vec<Target>,
    roots: Option<Arc<Vec<String>>>,
) -> Result<Vec<(Option<FileStatus>, Option<u64>)>> {
    let files = files.clone();
    let look_at_all = move || {
        let mut room = Room::new(&files, roots.as_deref().map(Vec::as_slice));
        let look = |target: &Target| match room.look(target) {
            Ok(Look::Decided(status)) => (Some(status), None),
            Ok(Look::Deletable { size }) => (None, Some(size)),
            // What can't be looked at is tried, and then fails with its reason.
            Err(_) => (None, None),
        };
        targets.iter().map(look).collect()
    };
    spawn_blocking(look_at_all).await.map_err(|e| Error::io("looking at", "files", std::io::Error::other(e)))
}

/// Deletes files, one after the other. A folder is never deleted, a link is removed without touching what it leads to,
/// a file that was written again since the plan was made is another file, and a path that leaves the `roots` through a
/// linked folder is left alone (`None`: it may lead anywhere).
///
/// Files of one folder should follow each other: where a folder leads is then looked up once.
pub(super) async fn delete(
    files: &LocalFiles,
    targets: Vec<Target>,
    roots: Option<Arc<Vec<String>>>,
) -> Result<Vec<FileStatus>> {
    let files = files.clone();
    let delete_all = move || {
        let mut room = Room::new(&files, roots.as_deref().map(Vec::as_slice));
        targets.iter().map(|target| room.delete(target).unwrap_or_else(|e| FileStatus::Failed(e.to_string()))).collect()
    };
    spawn_blocking(delete_all).await.map_err(|e| Error::io("deleting", "files", std::io::Error::other(e)))
}

/// Where files may be deleted.
struct Room<'a> {
    files: &'a LocalFiles,
    /// With all links resolved; `None` means anywhere.
    roots: Option<&'a [String]>,
    /// The folder that was looked up last, and whether it lies in a root with all links resolved. Kept for the files of
    /// one call only, which take milliseconds: a folder may be replaced by a link at any time.
    last_folder: Option<(String, bool)>,
}

impl<'a> Room<'a> {
    fn new(files: &'a LocalFiles, roots: Option<&'a [String]>) -> Self {
        Self { files, roots, last_folder: None }
    }

    fn delete(&mut self, target: &Target) -> Result<FileStatus> {
        if let Look::Decided(status) = self.look(target)? {
            return Ok(status);
        }
        let path = self.files.os_path(&target.location);
        match fs::remove_file(&path) {
            Ok(()) => {
                remove_checksum(&path);
                Ok(FileStatus::Deleted)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(FileStatus::Missing),
            Err(error) => Err(Error::io("deleting", target.location.to_string(), error)),
        }
    }

    fn look(&mut self, target: &Target) -> Result<Look> {
        let metadata = match fs::symlink_metadata(self.files.os_path(&target.location)) {
            Ok(metadata) => metadata,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Look::Decided(FileStatus::Missing));
            }
            Err(error) => return Err(Error::io("looking at", target.location.to_string(), error)),
        };
        if metadata.is_dir() {
            return Ok(Look::Decided(FileStatus::Failed("it is a folder".into())));
        }
        if let (Some(planned), Ok(modified)) = (target.modified_ms, metadata.modified())
            && epoch_ms(modified).is_none_or(|modified| modified > planned)
        {
            return Ok(Look::Decided(FileStatus::Spared(SkipReason::TooYoung)));
        }
        let roots = self.roots;
        match roots {
            Some(roots) if !self.stays_inside(&target.location, roots)? => {
                Ok(Look::Decided(FileStatus::Spared(SkipReason::External)))
            }
            _ => Ok(Look::Deletable { size: metadata.len() }),
        }
    }

    /// True when the file's folder, with all links resolved, still lies in one of the roots, or is one.
    fn stays_inside(&mut self, location: &Location, roots: &[String]) -> Result<bool> {
        let Some((folder, name)) = location.path().rsplit_once('/') else { return Ok(false) };
        if let Some((last, inside)) = &self.last_folder
            && last == folder
        {
            return Ok(*inside);
        }
        let inside = match self.files.canonical(if folder.is_empty() { "/" } else { folder })? {
            Some(canonical) => {
                let path = format!("{}/{name}", canonical.trim_end_matches('/'));
                roots.iter().any(|root| is_below(&path, root))
            }
            None => false,
        };
        self.last_folder = Some((folder.to_string(), inside));
        Ok(inside)
    }
}

/// Removes the checksum that Hadoop's local file system keeps beside a file, as Hadoop does when it deletes the file.
///
/// A checksum without its file is of no use to anybody, and a checksum that stays is no harm: failing is fine.
fn remove_checksum(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let checksum = path.with_file_name(format!(".{name}.crc"));
    let is_checksum = fs::File::open(&checksum).and_then(|mut file| {
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map(|()| magic == *b"crc\0")
    });
    if matches!(is_checksum, Ok(true)) && fs::remove_file(&checksum).is_ok() {
        tracing::info!(target: "iceberg_maintenance::audit", path = %checksum.display(), "delete with its file");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PathRules, Root};

    fn at(path: &Path) -> Location {
        Location::parse(path.to_str().unwrap()).unwrap()
    }

    fn roots(root: &Path) -> Vec<String> {
        let location = at(root);
        let rules = PathRules::new(&location);
        let roots = Roots::new(vec![Root { location, named_by: "location" }], rules);
        canonical_roots(&LocalFiles::new(None), &roots).unwrap()
    }

    #[test]
    fn files_go_with_their_checksum_and_folders_stay() {
        let root = tempfile::tempdir().unwrap();
        for name in ["f", ".f.crc", "h", ".g.crc"] {
            fs::write(root.path().join(name), "crc\0").unwrap();
        }
        fs::write(root.path().join(".h.crc"), "no checksum").unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        let delete = |name: &str| {
            let target = Target { location: at(&root.path().join(name)), modified_ms: None };
            Room::new(&LocalFiles::new(None), Some(&roots(root.path()))).delete(&target).unwrap()
        };
        assert_eq!(delete("f"), FileStatus::Deleted);
        assert_eq!(delete("f"), FileStatus::Missing);
        assert_eq!(delete("folder"), FileStatus::Failed("it is a folder".into()));
        assert!(!root.path().join(".f.crc").exists() && root.path().join(".g.crc").exists());
        assert_eq!(delete("h"), FileStatus::Deleted);
        assert!(root.path().join(".h.crc").exists(), "a file that only has such a name");
    }

    #[tokio::test]
    async fn a_file_that_was_written_again_is_another_file() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("f"), "x").unwrap();
        let target = |modified_ms| Target { location: at(&root.path().join("f")), modified_ms: Some(modified_ms) };
        let (files, roots) = (LocalFiles::new(None), Arc::new(roots(root.path())));
        let young = FileStatus::Spared(SkipReason::TooYoung);
        let targets = vec![target(1000), target(i64::MAX)];
        let seen = preview(&files, targets, Some(Arc::clone(&roots))).await.unwrap();
        assert_eq!(seen, [(Some(young.clone()), None), (None, Some(1))]);
        let targets = vec![target(1000), target(i64::MAX), target(i64::MAX)];
        let expected = [young, FileStatus::Deleted, FileStatus::Missing];
        assert_eq!(delete(&files, targets, Some(roots)).await.unwrap(), expected);
    }

    #[test]
    fn a_linked_folder_does_not_lead_out_of_the_table() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("theirs"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("data")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("theirs"), root.path().join("link")).unwrap();
        let delete = |name: &str, roots: Option<&[String]>| {
            let target = Target { location: at(&root.path().join(name)), modified_ms: None };
            Room::new(&LocalFiles::new(None), roots).delete(&target).unwrap()
        };
        let inside = roots(root.path());
        assert_eq!(delete("data/theirs", Some(&inside)), FileStatus::Spared(SkipReason::External));
        assert_eq!(delete("link", Some(&inside)), FileStatus::Deleted);
        assert!(outside.path().join("theirs").exists());
    }
}
