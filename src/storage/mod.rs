//! Reading, listing and creating files, on local disks and in object stores.
//!
//! Object stores are the session's own: whatever the host engine registered for a URL is used. Local files go through
//! `std::fs` instead of object_store's local store, because that one ends a listing at a newline in a name, follows links
//! out of the folder it lists and hides names that end in `#` and digits. A session whose `file://` store is a
//! `LocalFileSystem` with a prefix keeps that prefix.
//!
//! Nothing of a table is deleted here: only `deletion/` does that, and it takes the handles from [`Store::kind`].

pub mod configured;
mod listing;
mod local;
mod object;
mod overlay;
mod reading;

use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;

pub(crate) use listing::{Listed, ListedFile, ListedStat, Listing, ListingMode, ListingOptions};
pub(crate) use local::{FileId, LocalFiles, STAGED, epoch_ms};
pub(crate) use object::ObjectFiles;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
pub(crate) use object::UnusableKey;
#[cfg(feature = "benches")]
pub(crate) use object::paged;
#[cfg(test)]
pub(crate) use object::tests::{ListedBy, listed_in_all_modes};
pub(crate) use overlay::{runtime_with_stores, with_stores};
pub(crate) use reading::{FileContent, requests_at_once};

use crate::error::{Error, Result};
use crate::table::Location;
use crate::table::location::store_spellings;

/// The stores a session knows.
#[derive(Debug, Clone)]
pub(crate) struct Stores {
    runtime: Arc<RuntimeEnv>,
}

/// The store that one location lives in.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    kind: StoreKind,
}

/// What `deletion/` needs to tell apart.
#[derive(Debug, Clone)]
pub(crate) enum StoreKind {
    Local(LocalFiles),
    Object(ObjectFiles),
}

/// What a store says of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStat {
    /// Size in bytes.
    pub size: u64,
    /// What changes when the content does: an entity tag, or the time of the last modification.
    pub version: String,
    /// True when `version` is an entity tag: equal ones mean equal contents. Two writes may have the same time.
    pub is_entity_tag: bool,
}

impl Stores {
    pub(crate) fn new(runtime: Arc<RuntimeEnv>) -> Self {
        Self { runtime }
    }

    /// The store of a location.
    ///
    /// # Errors
    /// [`Error::NoStore`] when neither the table nor the session has one for its scheme and authority; [`Error::Location`]
    /// when the one that is described can't be made.
    pub(crate) fn store(&self, location: &Location) -> Result<Store> {
        if location.is_local() {
            return self.local_store(location);
        }
        let mut nobody_knows = None;
        for (scheme, authority) in store_spellings(location.scheme(), location.authority()) {
            let Ok(url) = ObjectStoreUrl::parse(format!("{scheme}://{authority}")) else { continue };
            match self.runtime.object_store(&url) {
                Ok(store) => return Ok(Store { kind: StoreKind::Object(ObjectFiles::new(store)) }),
                // Only one of our own registries says why; another spelling must not lead around what it refuses.
                Err(error) => match Error::find(&error) {
                    Some(Error::NoStore { .. }) if nobody_knows.is_none() => nobody_knows = Some(Error::from(error)),
                    Some(Error::NoStore { .. }) | None => {}
                    Some(_) => return Err(Error::from(error)),
                },
            }
        }
        Err(nobody_knows.unwrap_or_else(|| Error::NoStore {
            location: location.to_string(),
            why: "the session has none. Register one first".into(),
        }))
    }

    fn local_store(&self, location: &Location) -> Result<Store> {
        if !location.authority().is_empty() && !location.authority().eq_ignore_ascii_case("localhost") {
            return Err(Error::Location {
                location: location.to_string(),
                why: "a file on another host can't be reached. Mount it and give its path".into(),
            });
        }
        let registered = ObjectStoreUrl::parse("file://").ok().map(|url| self.runtime.object_store(&url));
        if let Some(Err(error)) = &registered
            && let Some(Error::Malformed { what, why, .. }) = Error::find(error)
        {
            return Err(Error::Malformed { what: *what, path: location.to_string(), why: why.clone() });
        }
        let kind = match registered.and_then(Result::ok) {
            None => StoreKind::Local(LocalFiles::new(None)),
            Some(store) => match LocalFiles::behind(&store.to_string()) {
                Some(local) => StoreKind::Local(local),
                // Behind another store may be object_store's local one, which follows links out of the table.
                None => {
                    return Err(Error::Location {
                        location: location.to_string(),
                        why: format!(
                            "the session's store for file:// is {store}, and only object_store's LocalFileSystem is known \
                             well enough to clean up in. Register that one, or use another scheme for this store"
                        ),
                    });
                }
            },
        };
        Ok(Store { kind })
    }

    /// Reads a whole file by its location string.
    pub(crate) async fn read(&self, location: &str) -> Result<Bytes> {
        let location = Location::parse(location)?;
        self.store(&location)?.read(&location).await
    }
}

/// Those of the files that don't exist.
///
/// # Errors
/// When a store can't be asked.
pub(crate) async fn files_gone(files: &[String], stores: &Stores) -> Result<Vec<String>> {
    let mut by_store: Vec<(Store, Location, Vec<&String>)> = vec![];
    let mut gone = vec![];
    for file in files {
        let Ok(location) = Location::parse(file) else {
            gone.push(file.clone());
            continue;
        };
        let same = |(_, first, _): &(Store, Location, Vec<&String>)| {
            first.scheme() == location.scheme() && first.authority() == location.authority()
        };
        match by_store.iter().position(same) {
            Some(at) => by_store[at].2.push(file),
            None => by_store.push((stores.store(&location)?, location, vec![file])),
        }
    }
    for (store, _, files) in by_store {
        let paths = files.iter().filter_map(|file| Some(Location::parse(file).ok()?.path().to_string())).collect();
        let looks = store.look_at(paths).await?;
        gone.extend(files.into_iter().zip(looks).filter(|(_, look)| look.is_none()).map(|(file, _)| file.clone()));
    }
    Ok(gone)
}

impl Store {
    pub(crate) fn kind(&self) -> &StoreKind {
        &self.kind
    }

    /// The local file system behind this store, if it is one.
    pub(crate) fn as_local(&self) -> Option<&LocalFiles> {
        match &self.kind {
            StoreKind::Local(local) => Some(local),
            StoreKind::Object(_) => None,
        }
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// [`Error::FileNotFound`] when it is missing, [`Error::Storage`] for everything else.
    pub(crate) async fn read(&self, location: &Location) -> Result<Bytes> {
        match &self.kind {
            StoreKind::Local(local) => local.read(location).await,
            StoreKind::Object(object) => object.read(location).await,
        }
    }

    /// Like [`Self::read`], in the way that suits a file of `expected_bytes`. What is read is the whole file even if
    /// that is wrong.
    pub(crate) async fn read_expecting(&self, location: &Location, expected_bytes: Option<u64>) -> Result<FileContent> {
        match &self.kind {
            StoreKind::Local(local) => Ok(FileContent { bytes: local.read(location).await?, requests: 1 }),
            StoreKind::Object(object) => object.read_expecting(location, expected_bytes).await,
        }
    }

    /// The file's size and version, or `None` when there is no such file.
    pub(crate) async fn stat(&self, location: &Location) -> Result<Option<FileStat>> {
        match &self.kind {
            StoreKind::Local(local) => local.stat(location).await,
            StoreKind::Object(object) => object.stat(location).await,
        }
    }

    /// Everything below a folder, at any depth, in no order. The folder itself may be a link; links below it are not
    /// followed.
    ///
    /// A folder that vanishes meanwhile is skipped; any other failure is an error, so that a listing that ended without
    /// one is complete. Dropping the stream ends the work soon.
    ///
    /// # Errors
    /// [`Error::FileNotFound`] when the folder does not exist (stores that know no folders show an empty listing).
    /// [`Error::ListingOrder`] when a store was listed by ranges and does not keep to the order of keys; the same
    /// listing with [`ListingMode::Sequential`] works.
    pub(crate) fn list(&self, folder: &Location, options: ListingOptions) -> Listing {
        match &self.kind {
            StoreKind::Local(local) => local.list(folder, options),
            StoreKind::Object(object) => object.list(folder, options),
        }
    }

    /// Size and time of listed files, in the order of the paths; `None` for one that is gone meanwhile.
    ///
    /// # Errors
    /// When the store doesn't say.
    pub(crate) async fn look_at(&self, paths: Vec<String>) -> Result<Vec<Option<ListedStat>>> {
        match &self.kind {
            StoreKind::Local(local) => local.look_at(paths).await,
            StoreKind::Object(object) => object.look_at(paths).await,
        }
    }

    /// The names of the files directly in a folder; a missing folder has none.
    pub(crate) async fn file_names(&self, folder: &Location) -> Result<Vec<String>> {
        match &self.kind {
            StoreKind::Local(local) => local.file_names(folder).await,
            StoreKind::Object(object) => object.file_names(folder).await,
        }
    }

    /// The names of the folders directly in a folder; a missing folder has none. Stores without folders show the beginnings of
    /// keys.
    pub(crate) async fn folder_names(&self, folder: &Location) -> Result<Vec<String>> {
        match &self.kind {
            StoreKind::Local(local) => local.folder_names(folder).await,
            StoreKind::Object(object) => object.folder_names(folder).await,
        }
    }

    /// Makes sure that a folder is there, in one that is. Stores without folders need none.
    pub(crate) async fn make_folder(&self, folder: &Location) -> Result<()> {
        match &self.kind {
            StoreKind::Local(local) => local.make_folder(folder).await,
            StoreKind::Object(_) => Ok(()),
        }
    }

    /// Creates a file only if there is none of that name, atomically. False when there is one.
    pub(crate) async fn create(&self, location: &Location, content: Bytes) -> Result<bool> {
        match &self.kind {
            StoreKind::Local(local) => local.create(location, content).await,
            StoreKind::Object(object) => object.create(location, content).await,
        }
    }

    /// Makes sure that [`Self::create`] can be relied on: a local disk can, an object store is tried once.
    ///
    /// # Errors
    /// When the store overwrites what is there, or refuses the attempt.
    pub(crate) async fn prove_create(&self, folder: &Location) -> Result<()> {
        match &self.kind {
            StoreKind::Local(_) => Ok(()),
            StoreKind::Object(object) => object.prove_create(folder).await,
        }
    }

    /// Writes a file whether or not it exists, atomically.
    pub(crate) async fn replace(&self, location: &Location, content: Bytes) -> Result<()> {
        match &self.kind {
            StoreKind::Local(local) => local.replace(location, content).await,
            StoreKind::Object(object) => object.replace(location, content).await,
        }
    }
}
