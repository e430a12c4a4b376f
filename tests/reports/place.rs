//! Where a case's table lies: a folder on disk, or an object store in memory.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use iceberg_maintenance::fixtures::Table;
use tempfile::TempDir;

use crate::case::Requests;
use crate::support::{Disk, OnDisk, disk};
use crate::table::Table as ReadTable;
use crate::watched::WatchedStore;

/// A place of its own for one table, which is the folder `t` of the place's root.
pub enum Place {
    Folder {
        root: PathBuf,
        _guard: TempDir,
    },
    /// A store and its bucket, such as `s3://bucket`. With true the table is the bucket itself.
    Store(WatchedStore, String, bool),
}

/// A table as its newest metadata describes it, with the files that it is read from.
pub struct Read {
    pub table: ReadTable,
    _copy: Option<TempDir>,
}

impl Deref for Read {
    type Target = ReadTable;

    fn deref(&self) -> &ReadTable {
        &self.table
    }
}

impl Place {
    /// An empty folder, by its path below a folder of its own (empty for that one itself).
    pub fn folder(below: &str) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let root = guard.path().canonicalize().unwrap();
        let root = if below.is_empty() { root } else { root.join(below) };
        std::fs::create_dir_all(&root).unwrap();
        Self::Folder { root, _guard: guard }
    }

    /// An empty store for this bucket, which is the table's own if `is_table`.
    pub fn store(bucket: &str, is_table: bool) -> Self {
        Self::Store(WatchedStore::default(), bucket.into(), is_table)
    }

    /// The place's root as a location, without a slash at its end.
    pub fn root(&self) -> String {
        match self {
            Place::Folder { root, .. } => root.to_str().unwrap().to_string(),
            Place::Store(_, bucket, false) => format!("{bucket}/wh"),
            Place::Store(_, bucket, true) => bucket.clone(),
        }
    }

    /// The table's location.
    pub fn table(&self) -> String {
        match self {
            Place::Store(_, bucket, true) => bucket.clone(),
            _ => format!("{}/t", self.root()),
        }
    }

    /// A path relative to the place's root, where the table is `t` wherever it lies.
    pub fn relative(&self, path: &str) -> Option<String> {
        let root = format!("{}/", self.root());
        match self {
            Place::Folder { .. } => without_detours(path).strip_prefix(&root).map(str::to_string),
            Place::Store(_, _, true) => Some(format!("t/{}", path.strip_prefix(&root)?)),
            Place::Store(..) => path.strip_prefix(&root).map(str::to_string),
        }
    }

    /// The key of a path relative to the place's root.
    fn key(&self, path: &str) -> String {
        match self {
            Place::Store(_, _, true) => path.strip_prefix("t/").unwrap_or(path).into(),
            _ => format!("wh/{path}"),
        }
    }

    /// The root on disk.
    pub fn path(&self) -> &Path {
        match self {
            Place::Folder { root, .. } => root,
            Place::Store(..) => panic!("a store has no folder"),
        }
    }

    /// The store.
    pub fn watched(&self) -> &WatchedStore {
        match self {
            Place::Folder { .. } => panic!("a folder is no store"),
            Place::Store(store, ..) => store,
        }
    }

    /// What was asked of the store since its requests were last taken; nothing of a folder.
    pub fn requests(&self) -> Requests {
        match self {
            Place::Folder { .. } => vec![],
            Place::Store(store, ..) => store.requests(),
        }
    }

    /// Writes the table.
    pub async fn write(&mut self, table: &Table) {
        match self {
            Place::Folder { root, .. } => {
                table.write(root.join("t")).unwrap();
            }
            Place::Store(store, bucket, is_table) => {
                let (prefix, own) = if *is_table { ("", bucket.clone()) } else { ("wh/t/", format!("{bucket}/wh/t")) };
                let location = table.location.clone().or(Some(own));
                *store = WatchedStore::with_table_at(prefix, &Table { location, ..table.clone() }).await;
            }
        }
    }

    /// Adds what the table, as it is spelled in its description, has in a store and what was written there doesn't.
    pub async fn add_missing_objects(&self, described: &Table) {
        let Place::Store(store, bucket, is_table) = self else { return };
        let (prefix, own) = if *is_table { ("", bucket.clone()) } else { ("wh/t/", format!("{bucket}/wh/t")) };
        let location = described.location.clone().or(Some(own));
        let whole = WatchedStore::with_table_at(prefix, &Table { location, ..described.clone() }).await;
        let written = store.keys().await;
        for key in whole.keys().await.into_iter().filter(|key| !written.contains(key)) {
            store.add(&key, whole.content(&key).await).await;
        }
    }

    /// Puts a file there, by its path relative to the root.
    pub async fn add(&self, path: &str, content: Vec<u8>) {
        match self {
            Place::Folder { root, .. } => {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            }
            Place::Store(store, ..) => store.add(&self.key(path), content).await,
        }
    }

    /// Everything that lies there, by its path relative to the root.
    pub async fn look(&self) -> Disk {
        let (store, is_table) = match self {
            Place::Folder { root, .. } => return disk(root),
            Place::Store(store, _, is_table) => (store, *is_table),
        };
        let mut found = Disk::new();
        for object in store.objects().await {
            let key = object.location.to_string();
            let mut hasher = DefaultHasher::new();
            store.content(&key).await.hash(&mut hasher);
            let content_hash = hasher.finish();
            let (bytes, modified) = (object.size, object.last_modified.into());
            let path = match is_table {
                true => format!("t/{key}"),
                false => key.strip_prefix("wh/").map_or(format!("../{key}"), str::to_string),
            };
            found.insert(path, OnDisk { is_folder: false, bytes, content_hash, modified });
        }
        found
    }

    /// Fails unless everything that any snapshot of the newest metadata needs is there: for calls that no case expresses.
    pub async fn assert_whole(&self) {
        let (table, found) = (self.read().await, self.look().await);
        let mut needed: BTreeSet<_> = table.needed_by(&table.snapshot_ids()).unwrap().into_keys().collect();
        needed.extend(table.statistics_without(&BTreeSet::new()));
        let missing = needed.iter().filter(|path| self.relative(path).is_none_or(|path| !found.contains_key(&path)));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "live files that are not there");
    }

    /// Reads the table by other means than the crate's.
    pub async fn read(&self) -> Read {
        match self {
            Place::Folder { .. } => Read { table: ReadTable::read(Path::new("/"), &self.table()), _copy: None },
            Place::Store(store, bucket, _) => {
                let copy = tempfile::tempdir().unwrap();
                for key in store.keys().await {
                    let path = copy.path().join(bucket.replace("://", ":/")).join(&key);
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, store.content(&key).await).unwrap();
                }
                let mut table = ReadTable::read(copy.path(), &self.table());
                table.metadata_path = table.metadata_path.trim_start_matches('/').into();
                Read { table, _copy: Some(copy) }
            }
        }
    }
}

/// A path on a disk without doubled slashes, `.` and `..`.
fn without_detours(path: &str) -> String {
    let mut parts = vec![];
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
