//! Local files, through `std::fs`.

mod walk;

use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use tokio::task::spawn_blocking;

use super::{FileStat, ListedStat, Listing, ListingOptions};
use crate::error::{Error, Result};
use crate::table::Location;
use crate::table::location::normalize_local;

/// What the names of files begin with that are being written.
pub(crate) const STAGED: &str = ".iceberg-maintenance-";

/// How many files one task looks at.
const LOOK_BATCH: usize = 1024;

/// The local file system, or the part of it below a prefix.
#[derive(Debug, Clone)]
pub(crate) struct LocalFiles {
    prefix: Option<Arc<Path>>,
}

impl LocalFiles {
    pub(crate) fn new(prefix: Option<PathBuf>) -> Self {
        Self { prefix: prefix.map(Into::into) }
    }

    /// Recognises object_store's `LocalFileSystem` by how it prints itself, `LocalFileSystem(file:///prefix)`.
    ///
    /// `None` for any other store: an embedder's own `file://` store is used as it is.
    pub(super) fn behind(display: &str) -> Option<Self> {
        let url = display.strip_prefix("LocalFileSystem(")?.strip_suffix(')')?;
        let path = url::Url::parse(url).ok()?.to_file_path().ok()?;
        Some(Self::new((path != Path::new("/")).then_some(path)))
    }

    /// The path the operating system knows.
    pub(crate) fn os_path(&self, location: &Location) -> PathBuf {
        self.os_path_of(location.path())
    }

    pub(crate) fn os_path_of(&self, path: &str) -> PathBuf {
        let path = normalize_local(path);
        match &self.prefix {
            Some(prefix) => prefix.join(path.trim_start_matches('/')),
            None => PathBuf::from(path.as_ref()),
        }
    }

    /// The path with all links resolved, in this store's terms. `None` when it doesn't exist, lies outside the prefix or
    /// isn't UTF-8.
    ///
    /// # Errors
    /// When the file system doesn't say.
    pub(crate) fn canonical(&self, path: &str) -> Result<Option<String>> {
        match fs::canonicalize(self.os_path_of(path)) {
            Ok(canonical) => Ok(self.own_path(&canonical)),
            Err(error) if leads_nowhere(&error) => Ok(None),
            Err(error) => Err(Error::io("resolving links of", path, error)),
        }
    }

    /// The same for a path of the operating system.
    pub(crate) fn canonical_of_os_path(&self, os_path: &Path) -> Result<Option<String>> {
        match fs::canonicalize(os_path) {
            Ok(canonical) => Ok(self.own_path(&canonical)),
            Err(error) if leads_nowhere(&error) => Ok(None),
            Err(error) => Err(Error::io("resolving links of", os_path.display().to_string(), error)),
        }
    }

    /// Which files these paths lead to, links followed; `None` for those that don't exist.
    ///
    /// # Errors
    /// When the file system doesn't say.
    pub(crate) async fn identities(&self, paths: Vec<String>) -> Result<Vec<Option<FileId>>> {
        let local = self.clone();
        blocking(move || paths.iter().map(|path| local.identity(path)).collect()).await
    }

    /// Which file this path leads to, links followed; `None` if it doesn't exist.
    ///
    /// # Errors
    /// When the file system doesn't say.
    pub(crate) fn identity(&self, path: &str) -> Result<Option<FileId>> {
        match fs::metadata(self.os_path_of(path)) {
            Ok(metadata) => Ok(identity(&metadata)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(Error::io("looking at", path, error)),
        }
    }

    /// Where the links directly in these folders lead. Folders are read, files are not looked at.
    ///
    /// # Errors
    /// When a folder can't be read.
    pub(crate) async fn link_targets(&self, folders: HashSet<String>) -> Result<HashSet<String>> {
        let local = self.clone();
        blocking(move || {
            let mut targets = HashSet::new();
            for folder in folders {
                let failed = |e| Error::io("listing", folder.clone(), e);
                let entries = match fs::read_dir(local.os_path_of(&folder)) {
                    Ok(entries) => entries,
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                    Err(error) => return Err(failed(error)),
                };
                for entry in entries {
                    let entry = entry.map_err(failed)?;
                    if entry.file_type().map_err(failed)?.is_symlink()
                        && let Some(name) = entry.file_name().to_str()
                    {
                        targets.extend(local.canonical(&format!("{folder}/{name}"))?);
                    }
                }
            }
            Ok(targets)
        })
        .await
    }

    fn own_path(&self, os_path: &Path) -> Option<String> {
        match &self.prefix {
            None => os_path.to_str().map(str::to_string),
            Some(prefix) => {
                let canonical_prefix = fs::canonicalize(prefix).ok()?;
                let below = os_path.strip_prefix(&canonical_prefix).or_else(|_| os_path.strip_prefix(prefix)).ok()?;
                Some(format!("/{}", below.to_str()?))
            }
        }
    }

    pub(super) async fn read(&self, location: &Location) -> Result<Bytes> {
        let (local, location) = (self.clone(), location.clone());
        blocking(move || local.read_blocking(&location)).await
    }

    pub(super) async fn stat(&self, location: &Location) -> Result<Option<FileStat>> {
        let (path, name) = (self.os_path(location), location.to_string());
        blocking(move || stat(&path).map_err(|e| Error::io("looking at", name, e))).await
    }

    pub(super) async fn file_names(&self, folder: &Location) -> Result<Vec<String>> {
        self.names(folder, |is_folder| !is_folder).await
    }

    /// Links to folders are none.
    pub(super) async fn folder_names(&self, folder: &Location) -> Result<Vec<String>> {
        self.names(folder, |is_folder| is_folder).await
    }

    async fn names(&self, folder: &Location, wanted: impl Fn(bool) -> bool + Send + 'static) -> Result<Vec<String>> {
        let (path, name) = (self.os_path(folder), folder.to_string());
        blocking(move || {
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Ok(vec![]);
                }
                Err(error) => return Err(Error::io("listing", name, error)),
            };
            let mut names = Vec::new();
            for entry in entries {
                let entry = entry.map_err(|e| Error::io("listing", name.clone(), e))?;
                let kind = entry.file_type().map_err(|e| Error::io("listing", name.clone(), e))?;
                if let Ok(name) = entry.file_name().into_string()
                    && wanted(kind.is_dir())
                {
                    names.push(name);
                }
            }
            Ok(names)
        })
        .await
    }

    pub(super) async fn make_folder(&self, folder: &Location) -> Result<()> {
        let (path, name) = (self.os_path(folder), folder.to_string());
        blocking(move || match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Error::io("making", name, error)),
            _ => Ok(()),
        })
        .await
    }

    pub(super) async fn create(&self, location: &Location, content: Bytes) -> Result<bool> {
        let (path, name) = (self.os_path(location), location.to_string());
        blocking(move || {
            let failed = |e| Error::io("writing", name.clone(), e);
            let staged = stage(&path, &content).map_err(failed)?;
            match staged.persist_noclobber(&path) {
                Ok(_) => sync_folder(&path).map_err(failed).map(|()| true),
                Err(lost) if lost.error.kind() == ErrorKind::AlreadyExists => Ok(false),
                Err(lost) => Err(failed(lost.error)),
            }
        })
        .await
    }

    pub(super) async fn replace(&self, location: &Location, content: Bytes) -> Result<()> {
        let (path, name) = (self.os_path(location), location.to_string());
        blocking(move || {
            let failed = |e| Error::io("writing", name.clone(), e);
            let staged = stage(&path, &content).map_err(failed)?;
            staged.persist(&path).map_err(|lost| failed(lost.error))?;
            sync_folder(&path).map_err(failed)
        })
        .await
    }

    pub(super) async fn look_at(&self, paths: Vec<String>) -> Result<Vec<Option<ListedStat>>> {
        let looks = paths.chunks(LOOK_BATCH).map(|chunk| {
            let (local, chunk) = (self.clone(), chunk.to_vec());
            blocking(move || {
                let look = |path: &String| match fs::symlink_metadata(local.os_path_of(path)) {
                    Ok(metadata) => Ok(metadata.is_file().then(|| listed_stat(&metadata))),
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
                    Err(error) => Err(Error::io("looking at", path.clone(), error)),
                };
                chunk.iter().map(look).collect::<Result<Vec<_>>>()
            })
        });
        let parallel = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        futures::stream::iter(looks.collect::<Vec<_>>()).buffered(parallel).try_concat().await
    }

    pub(crate) fn list(&self, folder: &Location, options: ListingOptions) -> Listing {
        walk::list(self.clone(), folder, &options)
    }
}

/// True if there is no file of that name, and can't be: links that lead in a circle lead to none.
fn leads_nowhere(error: &std::io::Error) -> bool {
    const LOOP: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || (cfg!(unix) && error.raw_os_error() == Some(LOOP))
}

/// What tells a file from all others, whatever its names: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of_path(os_path: &Path) -> Option<Self> {
        fs::metadata(os_path).ok().and_then(|metadata| identity(&metadata))
    }
}

/// `None` where there is no such thing.
#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    Some(FileId { device: metadata.dev(), inode: metadata.ino() })
}

#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> Option<FileId> {
    None
}

/// What the file system says of a file; `None` when there is none of that name.
fn stat(path: &Path) -> std::io::Result<Option<FileStat>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            let modified = metadata.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let version = format!("{}ns", modified.as_nanos());
            Ok(Some(FileStat { size: metadata.len(), version, is_entity_tag: false }))
        }
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file beside `path` that holds the content durably and vanishes unless it is persisted.
fn stage(path: &Path, content: &[u8]) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut staged = tempfile::Builder::new().prefix(STAGED).tempfile_in(folder)?;
    staged.write_all(content)?;
    // Temporary files are private; table metadata has the permissions of any other new file.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let neighbour = fs::metadata(folder)?.permissions().mode() & 0o666;
        staged.as_file().set_permissions(fs::Permissions::from_mode(neighbour & 0o644 | 0o600))?;
    }
    staged.as_file().sync_all()?;
    Ok(staged)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => fs::File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn listed_stat(metadata: &fs::Metadata) -> ListedStat {
    ListedStat { size: metadata.len(), modified_ms: metadata.modified().ok().and_then(epoch_ms) }
}

pub(crate) fn epoch_ms(time: std::time::SystemTime) -> Option<i64> {
    match time.duration_since(std::time::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).ok(),
        Err(before) => i64::try_from(before.duration().as_millis()).ok().map(|ms| -ms),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work)
        .await
        .map_err(|e| Error::Engine(Arc::new(datafusion::error::DataFusionError::External(Box::new(e)))))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Listed, ListedFile};

    fn at(path: &Path) -> Location {
        Location::parse(path.to_str().unwrap()).unwrap()
    }

    async fn listed(folder: &Path) -> Vec<Listed> {
        let listing = LocalFiles::new(None).list(&at(folder), ListingOptions::default());
        let mut found = listing.try_concat().await.unwrap();
        found.sort_by_key(|entry| match entry {
            Listed::File(file) => file.path.clone(),
            Listed::Link { path, .. } | Listed::Unusable { path, .. } => path.clone(),
        });
        found
    }

    #[tokio::test]
    async fn every_name_is_listed_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("theirs"), "x").unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        for name in ["new\nline", "x#1", "a/b/100%", "ü+ []"] {
            fs::write(folder.path().join(name), "12").unwrap();
        }
        std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let found = listed(&root).await;
        let files: Vec<_> = found
            .iter()
            .filter(|f| matches!(f, Listed::File(file) if file.stat.is_some_and(|stat| stat.size == 2)))
            .collect();
        assert_eq!(files.len(), 4, "{found:?}");
        let target = fs::canonicalize(outside.path()).unwrap().to_str().map(str::to_string);
        assert!(found.contains(&Listed::Link { path: format!("{}/link", root.display()), target }), "{found:?}");
        assert_eq!(found.len(), 5);
    }

    #[tokio::test]
    async fn a_name_that_is_not_utf8_is_reported_and_stops_nothing() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"bad\xff")), "").unwrap();
        fs::write(folder.path().join("good"), "").unwrap();
        let found = listed(folder.path()).await;
        assert_eq!(found.iter().filter(|f| matches!(f, Listed::Unusable { .. })).count(), 1);
        assert_eq!(found.iter().filter(|f| matches!(f, Listed::File(_))).count(), 1);
    }

    /// A tree as a walk with nothing but the standard library sees it.
    fn files_below(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let mut found: Vec<String> = files.iter().map(|path| path.to_str().unwrap().to_string()).collect();
        found.extend(folders.iter().flat_map(|folder| files_below(folder)));
        found.sort_unstable();
        found
    }

    #[tokio::test]
    async fn threads_find_every_file_of_broad_and_deep_folders_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for n in 0..120 {
            // Deeper than a thread holds folders open.
            let deep = root.join(vec![format!("d{n}"); n % 40 + 1].join("/"));
            fs::create_dir_all(&deep).unwrap();
            for (file, level) in deep.ancestors().take(n % 40 + 1).enumerate() {
                fs::write(level.join(format!("f{file}")), "").unwrap();
            }
        }
        fs::create_dir(root.join("flat")).unwrap();
        for n in 0..3000 {
            fs::write(root.join(format!("flat/{n}")), "").unwrap();
        }
        for concurrency in [0, 1, 2, 5, 64] {
            let options = ListingOptions { concurrency, names_only: concurrency == 5, ..Default::default() };
            let batches = LocalFiles::new(None).list(&at(&root), options).try_collect::<Vec<_>>().await.unwrap();
            assert!(batches.iter().all(|batch| (1..=1024).contains(&batch.len())));
            let mut found: Vec<String> = batches
                .into_iter()
                .flatten()
                .map(|listed| match listed {
                    Listed::File(ListedFile { path, stat }) if stat.is_none() == (concurrency == 5) => path,
                    other => panic!("{other:?}"),
                })
                .collect();
            found.sort_unstable();
            assert_eq!(found, files_below(&root));
        }
    }

    #[tokio::test]
    async fn names_that_are_looked_at_later_say_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let path = |name: &str| root.join(name).to_str().unwrap().to_string();
        for n in 0..1500 {
            fs::write(path(&format!("{n:04}")), "x".repeat(n % 7)).unwrap();
        }
        let files = listed(&root).await.into_iter().map(|listed| match listed {
            Listed::File(ListedFile { path, stat }) => (path, stat),
            other => panic!("{other:?}"),
        });
        let (mut paths, mut stats): (Vec<String>, Vec<_>) = files.unzip();
        assert_eq!(stats[13].unwrap().size, 13 % 7);
        std::os::unix::fs::symlink(path("0001"), path("link")).unwrap();
        paths.extend([path("gone"), path("link"), root.to_str().unwrap().to_string()]);
        stats.extend([None, None, None]);
        assert_eq!(LocalFiles::new(None).look_at(paths).await.unwrap(), stats);
    }

    #[tokio::test]
    async fn a_slow_consumer_may_use_the_blocking_pool_and_may_go_away() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..40_000 {
            fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        let files = LocalFiles::new(None);
        let options = ListingOptions { concurrency: 4, ..Default::default() };
        let mut listing = files.list(&at(folder.path()), options);
        let batch = listing.try_next().await.unwrap().unwrap();
        assert_eq!(batch.len(), 1024);
        assert_eq!(files.look_at(vec!["/nowhere".into()]).await.unwrap(), [None]);
        drop(listing);
    }

    #[tokio::test]
    async fn create_never_overwrites_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let (files, target) = (LocalFiles::new(None), at(&folder.path().join("v2.metadata.json")));
        assert!(files.create(&target, Bytes::from_static(b"first")).await.unwrap());
        assert!(!files.create(&target, Bytes::from_static(b"second")).await.unwrap());
        assert_eq!(files.read(&target).await.unwrap(), "first");
        files.replace(&target, Bytes::from_static(b"third")).await.unwrap();
        assert_eq!(files.read(&target).await.unwrap(), "third");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_missing_folder_is_an_error_and_a_missing_file_has_no_size() {
        let folder = tempfile::tempdir().unwrap();
        let missing = at(&folder.path().join("nope"));
        let files = LocalFiles::new(None);
        let error = files.list(&missing, ListingOptions::default()).try_concat().await.unwrap_err();
        assert!(error.is_not_found(), "{error}");
        assert_eq!(files.stat(&missing).await.unwrap(), None);
    }

    #[tokio::test]
    async fn one_file_under_two_names_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["a", "b"] {
            fs::write(path(name), name).unwrap();
        }
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        let paths = ["a", "link", "b", "missing"].map(path).to_vec();
        let identities = LocalFiles::new(None).identities(paths).await.unwrap();
        let [Some(a), Some(link), Some(b), None] = identities[..] else { panic!("{identities:?}") };
        assert!(a == link && a != b);
    }

    #[test]
    fn a_prefixed_local_store_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let store = object_store::local::LocalFileSystem::new_with_prefix(folder.path()).unwrap();
        let files = LocalFiles::behind(&store.to_string()).unwrap();
        let expected = fs::canonicalize(folder.path()).unwrap().join("a b/c");
        assert_eq!(files.os_path_of("/a b//c"), expected);
        let whole = LocalFiles::behind(&object_store::local::LocalFileSystem::new().to_string()).unwrap();
        assert_eq!(whole.os_path_of("/a"), Path::new("/a"));
        assert!(LocalFiles::behind("InMemory").is_none());
    }
}
