//! Deleting files of a local disk.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::moves::move_local;
use crate::error::{Error, Result};
use crate::report::{FileStatus, SkipReason};
use crate::storage::{LocalFiles, epoch_ms};
use crate::table::location::{is_below, normalize_local};
use crate::table::{Location, Roots};

/// The table's roots with all links resolved: where a local path may lead.
///
/// # Errors
/// When the file system doesn't say where a root is.
pub(super) fn canonical_roots(files: &LocalFiles, roots: &Roots) -> Result<Vec<String>> {
    let local = roots.iter().filter(|root| root.location.is_local());
    local.filter_map(|root| files.canonical(root.location.path()).transpose()).collect()
}

/// True for a file that was written after the plan saw it. Who lists files elsewhere may give whole seconds.
pub(crate) fn is_newer(modified_ms: i64, planned_ms: i64) -> bool {
    let is_same_second = planned_ms % 1000 == 0 && modified_ms.div_euclid(1000) == planned_ms.div_euclid(1000);
    modified_ms > planned_ms && !is_same_second
}

/// A file to look at or to delete.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub location: Location,
    /// When the plan saw it last modified, ms since the epoch. A file that was written since then is another file.
    pub modified_ms: Option<i64>,
    /// Where its folder really was when the plan was made. A folder that is somewhere else now holds other files.
    pub folder: Option<Arc<str>>,
    /// Where it goes instead of being deleted, and what is said of it then.
    pub moved_to: Option<(Location, FileStatus)>,
}

/// What would become of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Preview {
    /// `None` where it would be deleted.
    pub status: Option<FileStatus>,
    /// Its size, if it would be deleted.
    pub size: Option<u64>,
    /// Where its folder really is.
    pub folder: Option<Arc<str>>,
}

/// What a look at a file says: what would become of it, or that it may be deleted, and its size.
enum Look {
    Decided(FileStatus),
    Deletable { path: PathBuf, size: u64 },
}

/// Says of many files what would become of them: the same decisions that [`delete`] takes, without deleting.
pub(super) async fn preview(
    files: &LocalFiles,
    targets: Vec<Target>,
    roots: Option<Arc<Vec<String>>>,
) -> Result<Vec<Preview>> {
    let files = files.clone();
    let look_at_all = move || {
        let mut folders = AllowedFolders::new(&files, roots.as_deref().map(Vec::as_slice));
        let mut real: Option<Arc<str>> = None;
        let mut look = |target: &Target| {
            let (status, size) = match folders.look(target) {
                Ok(Look::Decided(status)) => (Some(status), None),
                Ok(Look::Deletable { size, .. }) => (None, Some(size)),
                // What can't be looked at is tried, and then fails with its reason.
                Err(_) => (None, None),
            };
            let folder = folders.last.as_ref().map(|(_, folder)| folder.real.as_str());
            if real.as_deref() != folder {
                real = folder.map(Into::into);
            }
            Preview { status, size, folder: real.clone() }
        };
        targets.iter().map(&mut look).collect()
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
        let mut folders = AllowedFolders::new(&files, roots.as_deref().map(Vec::as_slice));
        targets
            .iter()
            .map(|target| folders.delete(target).unwrap_or_else(|e| FileStatus::Failed(e.to_string())))
            .collect()
    };
    spawn_blocking(delete_all).await.map_err(|e| Error::io("deleting", "files", std::io::Error::other(e)))
}

/// The folders that files may be deleted in.
struct AllowedFolders<'a> {
    files: &'a LocalFiles,
    /// With all links resolved; `None` means anywhere.
    roots: Option<&'a [String]>,
    /// The folder of the last file.
    last: Option<(String, OpenFolder)>,
}

/// A folder that files are deleted in. As long as it is held open it is the same folder, whatever its name leads to
/// meanwhile.
struct OpenFolder {
    /// Keeps the folder open, where the system has names for what is open.
    _handle: Option<fs::File>,
    /// A path to it: by the handle, or by name.
    path: PathBuf,
    /// Where it really is.
    real: String,
    allowed: bool,
}

impl<'a> AllowedFolders<'a> {
    fn new(files: &'a LocalFiles, roots: Option<&'a [String]>) -> Self {
        Self { files, roots, last: None }
    }

    fn delete(&mut self, target: &Target) -> Result<FileStatus> {
        let (path, size) = match self.look(target)? {
            Look::Decided(FileStatus::Missing) => return self.moved_before(target),
            Look::Decided(status) => return Ok(status),
            Look::Deletable { path, size } => (path, size),
        };
        if let Some((to, moved)) = &target.moved_to {
            return self.move_away(&path, target, to, moved);
        }
        match fs::remove_file(&path) {
            Ok(()) => {
                remove_checksum(&path, size, &target.location);
                Ok(FileStatus::Deleted)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(FileStatus::Missing),
            Err(error) => Err(Error::io("deleting", target.location.to_string(), error)),
        }
    }

    /// Whoever moved a file before may have died before saying so.
    fn moved_before(&self, target: &Target) -> Result<FileStatus> {
        let Some((to, moved)) = &target.moved_to else { return Ok(FileStatus::Missing) };
        match fs::symlink_metadata(self.files.os_path(to)) {
            Ok(_) => Ok(moved.clone()),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(FileStatus::Missing)
            }
            Err(error) => Err(Error::io("looking at", to.to_string(), error)),
        }
    }

    /// Moves a file into a folder that is made for it, and that may not lead out of the roots.
    fn move_away(&self, path: &Path, target: &Target, to: &Location, moved: &FileStatus) -> Result<FileStatus> {
        let failed = |error| Error::io("moving", target.location.to_string(), error);
        let to_path = normalize_local(to.path());
        let Some((folder, name)) = to_path.rsplit_once('/') else {
            return Ok(FileStatus::Failed(format!("{to} is no place for it")));
        };
        fs::create_dir_all(self.files.os_path_of(folder)).map_err(failed)?;
        match self.open(folder)? {
            Some(opened) if opened.allowed => {
                move_local(path, &opened.path.join(name)).map_err(failed)?;
                Ok(moved.clone())
            }
            _ => Ok(FileStatus::Failed(format!("{to} leads out of the table's folders"))),
        }
    }

    fn look(&mut self, target: &Target) -> Result<Look> {
        let path = normalize_local(target.location.path());
        let Some((folder, name)) = path.rsplit_once('/') else {
            return Ok(Look::Decided(FileStatus::Spared(SkipReason::External)));
        };
        let Some(folder) = self.folder(folder)? else { return Ok(Look::Decided(FileStatus::Missing)) };
        let moved = target.folder.as_ref().is_some_and(|planned| **planned != *folder.real);
        let (allowed, path) = (folder.allowed && !moved, folder.path.join(name));
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Look::Decided(FileStatus::Missing));
            }
            Err(error) => return Err(Error::io("looking at", target.location.to_string(), error)),
        };
        if metadata.is_dir() {
            return Ok(Look::Decided(FileStatus::Failed("it is a folder".into())));
        }
        // Files may be live through a linked folder.
        if metadata.is_symlink() && fs::metadata(&path).is_ok_and(|target| target.is_dir()) {
            return Ok(Look::Decided(FileStatus::Spared(SkipReason::UnsupportedName)));
        }
        if let (Some(planned), Ok(modified)) = (target.modified_ms, metadata.modified())
            && epoch_ms(modified).is_none_or(|modified| is_newer(modified, planned))
        {
            return Ok(Look::Decided(FileStatus::Spared(SkipReason::TooYoung)));
        }
        match allowed {
            true => Ok(Look::Deletable { path, size: metadata.len() }),
            false => Ok(Look::Decided(FileStatus::Spared(SkipReason::External))),
        }
    }

    /// The folder, opened; `None` if there is none.
    fn folder(&mut self, folder: &str) -> Result<Option<&OpenFolder>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != folder) {
            self.last = None;
            let Some(opened) = self.open(if folder.is_empty() { "/" } else { folder })? else { return Ok(None) };
            self.last = Some((folder.to_string(), opened));
        }
        Ok(self.last.as_ref().map(|(_, opened)| opened))
    }

    fn open(&self, folder: &str) -> Result<Option<OpenFolder>> {
        let os_path = self.files.os_path_of(folder);
        // Opening a pipe would wait for somebody to write into it.
        let is_folder = fs::metadata(&os_path).is_ok_and(|metadata| metadata.is_dir());
        let handle = if is_folder { fs::File::open(&os_path).ok() } else { None };
        let pinned = handle.and_then(|handle| {
            let path = path_of_handle(&handle)?;
            let real = self.files.canonical_of_os_path(&path).ok()??;
            Some((handle, path, real))
        });
        let (handle, path, real) = match pinned {
            Some((handle, path, real)) => (Some(handle), path, real),
            None => match self.files.canonical(folder)? {
                Some(real) => (None, os_path, real),
                None if os_path.exists() => return Ok(Some(OpenFolder::forbidden(os_path))),
                None => return Ok(None),
            },
        };
        let is_root_or_below = |root: &String| real == *root || is_below(&real, root);
        let allowed = self.roots.is_none_or(|roots| roots.iter().any(is_root_or_below));
        Ok(Some(OpenFolder { _handle: handle, path, real, allowed }))
    }
}

impl OpenFolder {
    /// A folder that lies outside of the store.
    fn forbidden(path: PathBuf) -> Self {
        Self { _handle: None, path, real: String::new(), allowed: false }
    }
}

/// A path that leads to what is open, whatever became of its name.
#[cfg(target_os = "linux")]
fn path_of_handle(handle: &fs::File) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    path.exists().then_some(path)
}

#[cfg(not(target_os = "linux"))]
fn path_of_handle(_: &fs::File) -> Option<PathBuf> {
    None
}

/// Removes the checksum that Hadoop's local file system keeps beside a file of that size, as Hadoop does when it deletes
/// the file.
///
/// A checksum without its file is of no use to anybody, and a checksum that stays is no harm: failing is fine.
fn remove_checksum(path: &Path, size: u64, location: &Location) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let checksum = path.with_file_name(format!(".{name}.crc"));
    if is_checksum(&checksum, size).unwrap_or(false) && fs::remove_file(&checksum).is_ok() {
        tracing::info!(target: "iceberg_maintenance::audit", path = %location, "delete the checksum with its file");
    }
}

/// For how many bytes Hadoop makes one sum at most: 512 unless it is told otherwise.
const MAX_BYTES_PER_SUM: u64 = 1 << 20;

/// True for a file that can only be the checksum of a file of that size: Hadoop's magic, how many bytes each sum is for,
/// and as many sums as that makes.
fn is_checksum(path: &Path, size: u64) -> std::io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Ok(false);
    }
    let mut header = [0; 8];
    fs::File::open(path)?.read_exact(&mut header)?;
    let [magic @ .., a, b, c, d] = header;
    let bytes_per_sum = u64::from(u32::from_be_bytes([a, b, c, d]));
    let is_usual = (1..=MAX_BYTES_PER_SUM).contains(&bytes_per_sum);
    Ok(magic == *b"crc\0" && is_usual && metadata.len() == 8 + 4 * size.div_ceil(bytes_per_sum))
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
        let sums_of_one_kilobyte = [&b"crc\0"[..], &512u32.to_be_bytes(), &[1; 8]].concat();
        for (name, size) in [("f", 1000), ("h", 1000), ("i", 2000)] {
            fs::write(root.path().join(name), vec![0; size]).unwrap();
        }
        for name in [".f.crc", ".g.crc", ".i.crc"] {
            fs::write(root.path().join(name), &sums_of_one_kilobyte).unwrap();
        }
        fs::write(root.path().join(".h.crc"), "no checksum").unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        let delete = |name: &str| {
            let target =
                Target { location: at(&root.path().join(name)), modified_ms: None, folder: None, moved_to: None };
            AllowedFolders::new(&LocalFiles::new(None), Some(&roots(root.path()))).delete(&target).unwrap()
        };
        assert_eq!(delete("f"), FileStatus::Deleted);
        assert_eq!(delete("f"), FileStatus::Missing);
        assert_eq!(delete("folder"), FileStatus::Failed("it is a folder".into()));
        assert!(!root.path().join(".f.crc").exists() && root.path().join(".g.crc").exists());
        assert_eq!([delete("h"), delete("i")], [FileStatus::Deleted, FileStatus::Deleted]);
        assert!(root.path().join(".h.crc").exists(), "a file that only has such a name");
        assert!(root.path().join(".i.crc").exists(), "the checksum of a file of another size");
    }

    #[tokio::test]
    async fn a_file_that_was_written_again_is_another_file() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("f"), "x").unwrap();
        let location = at(&root.path().join("f"));
        let target = |ms| Target { location: location.clone(), modified_ms: Some(ms), folder: None, moved_to: None };
        let (files, roots) = (LocalFiles::new(None), Arc::new(roots(root.path())));
        let young = FileStatus::Spared(SkipReason::TooYoung);
        let targets = vec![target(1000), target(i64::MAX)];
        let seen = preview(&files, targets, Some(Arc::clone(&roots))).await.unwrap();
        let folder = Some(roots[0].as_str().into());
        let spared = Preview { status: Some(young.clone()), size: None, folder };
        let deletable = Preview { status: None, size: Some(1), folder: spared.folder.clone() };
        assert_eq!(seen, [spared, deletable]);
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
            let target =
                Target { location: at(&root.path().join(name)), modified_ms: None, folder: None, moved_to: None };
            AllowedFolders::new(&LocalFiles::new(None), roots).delete(&target).unwrap()
        };
        let inside = roots(root.path());
        assert_eq!(delete("data/theirs", Some(&inside)), FileStatus::Spared(SkipReason::External));
        assert_eq!(delete("link", Some(&inside)), FileStatus::Deleted);
        assert!(outside.path().join("theirs").exists());
        let linked_folder = FileStatus::Spared(SkipReason::UnsupportedName);
        assert_eq!(delete("data", Some(&inside)), linked_folder, "files may be live through it");
    }

    #[test]
    fn a_folder_that_was_turned_to_lead_elsewhere_since_the_plan_holds_other_files() {
        let root = tempfile::tempdir().unwrap();
        for version in ["v1", "v2"] {
            fs::create_dir(root.path().join(version)).unwrap();
            fs::write(root.path().join(version).join("f"), "x").unwrap();
        }
        let current = root.path().join("current");
        std::os::unix::fs::symlink(root.path().join("v1"), &current).unwrap();
        let (files, roots) = (LocalFiles::new(None), roots(root.path()));
        let planned = AllowedFolders::new(&files, Some(&roots)).open(current.to_str().unwrap()).unwrap().unwrap().real;
        let target = Target {
            location: at(&current.join("f")),
            modified_ms: None,
            folder: Some(planned.into()),
            moved_to: None,
        };
        fs::remove_file(&current).unwrap();
        std::os::unix::fs::symlink(root.path().join("v2"), &current).unwrap();
        let status = AllowedFolders::new(&files, Some(&roots)).delete(&target).unwrap();
        assert_eq!(status, FileStatus::Spared(SkipReason::External));
        assert!(root.path().join("v2/f").exists());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_opened_folder_is_the_same_folder_whatever_its_name_leads_to() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let data = root.path().join("data");
        fs::create_dir(&data).unwrap();
        for folder in [&data, outside.path()] {
            fs::write(folder.join("a"), "x").unwrap();
            fs::write(folder.join("b"), "x").unwrap();
        }
        let (files, roots) = (LocalFiles::new(None), roots(root.path()));
        let mut folders = AllowedFolders::new(&files, Some(&roots));
        let mut delete = |name: &str| {
            folders
                .delete(&Target { location: at(&data.join(name)), modified_ms: None, folder: None, moved_to: None })
                .unwrap()
        };
        assert_eq!(delete("a"), FileStatus::Deleted);
        fs::rename(&data, root.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(outside.path(), &data).unwrap();
        assert_eq!(delete("b"), FileStatus::Deleted);
        assert!(outside.path().join("b").exists() && !root.path().join("moved/b").exists());
    }
}
