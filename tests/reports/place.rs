//! Where a case's table lies: a folder on disk, or an object store in memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use iceberg_maintenance::fixtures::Table;
use tempfile::TempDir;

use crate::support::{Disk, OnDisk, disk};
use crate::table::Table as ReadTable;
use crate::watched::WatchedStore;

/// A place of its own for one table, which is the folder `t` of the place's root.
pub enum Place {
    Folder {
        root: PathBuf,
        _guard: TempDir,
    },
    /// A store and its bucket, such as `s3://bucket`.
    Store(WatchedStore, String),
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

    /// An empty store for this bucket.
    pub fn store(bucket: &str) -> Self {
        Self::Store(WatchedStore::default(), bucket.into())
    }

    /// The place's root as a location, without a slash at its end.
    pub fn root(&self) -> String {
        match self {
            Place::Folder { root, .. } => root.to_str().unwrap().to_string(),
            Place::Store(_, bucket) => format!("{bucket}/wh"),
        }
    }

    /// The table's location.
    pub fn table(&self) -> String {
        format!("{}/t", self.root())
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
            Place::Store(store, _) => store,
        }
    }

    /// Writes the table.
    pub async fn write(&mut self, table: &Table) {
        match self {
            Place::Folder { root, .. } => {
                table.write(root.join("t")).unwrap();
            }
            Place::Store(store, bucket) => {
                let location = table.location.clone().or(Some(format!("{bucket}/wh/t")));
                *store = WatchedStore::with_table(&Table { location, ..table.clone() }).await;
            }
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
            Place::Store(store, _) => store.add(&format!("wh/{path}"), content).await,
        }
    }

    /// Everything that lies there, by its path relative to the root.
    pub async fn look(&self) -> Disk {
        let store = match self {
            Place::Folder { root, .. } => return disk(root),
            Place::Store(store, _) => store,
        };
        let mut found = Disk::new();
        for object in store.objects().await {
            let key = object.location.to_string();
            let mut hasher = DefaultHasher::new();
            store.content(&key).await.hash(&mut hasher);
            let content_hash = hasher.finish();
            let (bytes, modified) = (object.size, object.last_modified.into());
            let path = key.strip_prefix("wh/").map_or(format!("../{key}"), str::to_string);
            found.insert(path, OnDisk { is_folder: false, bytes, content_hash, modified });
        }
        found
    }

    /// Reads the table by other means than the crate's.
    pub async fn read(&self) -> Read {
        match self {
            Place::Folder { .. } => Read { table: ReadTable::read(Path::new("/"), &self.table()), _copy: None },
            Place::Store(store, bucket) => {
                let copy = tempfile::tempdir().unwrap();
                for key in store.keys().await {
                    let path = copy.path().join(bucket.replace("://", ":/")).join(&key);
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, store.content(&key).await).unwrap();
                }
                Read { table: ReadTable::read(copy.path(), &self.table()), _copy: Some(copy) }
            }
        }
    }
}
