//! Objects, through the `object_store` crate.

mod between;
mod folders;
mod key_ranges;
mod keys;
#[cfg(any(test, feature = "benches"))]
pub mod paged;
mod proof;
mod ranges;
mod tasks;
#[cfg(test)]
pub(crate) mod tests;
mod unusable;

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
pub(crate) use unusable::UnusableKey;
use unusable::listed_or_unusable;

use super::{FileStat, Listed, ListedFile, ListedStat, Listing, ListingMode, ListingOptions};
use crate::error::{Error, Result};
use crate::table::Location;

/// How many keys of one sequential listing are handed over at once.
const LISTING_BATCH: usize = 1024;
/// How many objects are asked for their size at once.
const CONCURRENT_LOOKS: usize = 32;

/// An object store of the session.
#[derive(Debug, Clone)]
pub(crate) struct ObjectFiles {
    store: Arc<dyn ObjectStore>,
}

impl ObjectFiles {
    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store }
    }

    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The object's key, if `object_store` can express it exactly.
    ///
    /// `Path::parse` drops a leading and a trailing slash and refuses `//`, `.`, `..` and control characters: a key that
    /// doesn't come back as it went in would name another object.
    pub(crate) fn key(location: &Location) -> Result<Path> {
        let inexpressible = |why: String| Error::Location { location: location.to_string(), why };
        let key = location.path().strip_prefix('/').unwrap_or(location.path());
        let path = Path::parse(key).map_err(|e| inexpressible(format!("the store's client can't express it: {e}")))?;
        match path.as_ref() == key {
            true => Ok(path),
            false => Err(inexpressible("the store's client can't express a leading or trailing '/' in a key".into())),
        }
    }

    fn folder_key(folder: &Location) -> Result<Path> {
        let path = folder.path().strip_suffix('/').unwrap_or(folder.path());
        Self::key(&folder.with_path(path))
    }

    pub(super) async fn read(&self, location: &Location) -> Result<Bytes> {
        let failed = |e| Error::store("reading", location.to_string(), e);
        self.store.get(&Self::key(location)?).await.map_err(failed)?.bytes().await.map_err(failed)
    }

    pub(super) async fn stat(&self, location: &Location) -> Result<Option<FileStat>> {
        match self.store.head(&Self::key(location)?).await {
            Ok(meta) => {
                let is_entity_tag = meta.e_tag.is_some();
                let version = meta.e_tag.unwrap_or_else(|| meta.last_modified.to_rfc3339());
                Ok(Some(FileStat { size: meta.size, version, is_entity_tag }))
            }
            Err(error) => match Error::store("looking at", location.to_string(), error) {
                Error::FileNotFound { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    pub(super) async fn file_names(&self, folder: &Location) -> Result<Vec<String>> {
        let key = Self::folder_key(folder)?;
        match self.store.list_with_delimiter(Some(&key)).await {
            Ok(found) => {
                Ok(found.objects.iter().filter_map(|object| object.location.filename().map(str::to_string)).collect())
            }
            Err(object_store::Error::NotFound { .. }) => Ok(vec![]),
            Err(object_store::Error::InvalidPath { .. }) => self.file_names_of_keys(folder, &key).await,
            Err(error) => Err(Error::store("listing", folder.to_string(), error)),
        }
    }

    pub(super) async fn folder_names(&self, folder: &Location) -> Result<Vec<String>> {
        let key = Self::folder_key(folder)?;
        match self.store.list_with_delimiter(Some(&key)).await {
            Ok(found) => {
                Ok(found.common_prefixes.iter().filter_map(|prefix| prefix.filename().map(str::to_string)).collect())
            }
            Err(object_store::Error::NotFound { .. }) => Ok(vec![]),
            Err(error) => Err(Error::store("listing", folder.to_string(), error)),
        }
    }

    /// The names of files from a listing of all keys below the folder, which goes on behind a key that can't be expressed.
    async fn file_names_of_keys(&self, folder: &Location, key: &Path) -> Result<Vec<String>> {
        let mut names = vec![];
        let mut keys = self.store.list(Some(key)).map(listed_or_unusable);
        while let Some(found) = keys.try_next().await.map_err(|e| Error::store("listing", folder.to_string(), e))? {
            let Listed::File(ListedFile { path, .. }) = found else { continue };
            let below = path.strip_prefix('/').and_then(|path| path.strip_prefix(key.as_ref()));
            let name = below.map(|rest| rest.strip_prefix('/').unwrap_or(rest));
            names.extend(name.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_string));
        }
        Ok(names)
    }

    pub(super) async fn create(&self, location: &Location, content: Bytes) -> Result<bool> {
        let options = PutOptions { mode: PutMode::Create, ..Default::default() };
        match self.store.put_opts(&Self::key(location)?, content.into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(Error::store("writing", location.to_string(), error)),
        }
    }

    pub(super) async fn replace(&self, location: &Location, content: Bytes) -> Result<()> {
        let key = Self::key(location)?;
        self.store.put(&key, content.into()).await.map_err(|e| Error::store("writing", location.to_string(), e))?;
        Ok(())
    }

    pub(super) async fn look_at(&self, paths: Vec<String>) -> Result<Vec<Option<ListedStat>>> {
        let looks = paths.into_iter().map(|path| async move {
            let failed = |error| Error::store("looking at", path.clone(), error);
            let key = Path::parse(&path).map_err(|error| failed(error.into()))?;
            match self.store.head(&key).await.map_err(failed) {
                Ok(meta) => Ok(Some(listed_stat(&meta))),
                Err(Error::FileNotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        futures::stream::iter(looks).buffered(CONCURRENT_LOOKS).try_collect().await
    }

    pub(crate) fn list(&self, folder: &Location, options: ListingOptions) -> Listing {
        let key = match Self::folder_key(folder) {
            Ok(key) => key,
            Err(error) => return futures::stream::once(async { Err(error) }).boxed(),
        };
        let ListingOptions { concurrency, samples, mode, .. } = options;
        let (store, name) = (Arc::clone(&self.store), folder.to_string());
        let sequential = {
            let (store, key, name) = (Arc::clone(&store), key.clone(), name.clone());
            move || list_sequentially(store.as_ref(), &key, name)
        };
        match mode {
            ListingMode::Sequential => sequential(),
            ListingMode::Ranges => in_order_or_else(ranges::list(store, key, name, concurrency, samples), sequential),
            ListingMode::Auto if ranges::is_known_to_be_ordered(&store.to_string()) => {
                in_order_or_else(ranges::list(store, key, name, concurrency, samples), sequential)
            }
            ListingMode::Auto | ListingMode::Folders => folders::list(store, key, name, concurrency, samples),
        }
    }
}

fn list_sequentially(store: &dyn ObjectStore, folder: &Path, name: String) -> Listing {
    store
        .list(Some(folder))
        .map(listed_or_unusable)
        .try_ready_chunks(LISTING_BATCH)
        .map_err(move |failed| Error::store("listing", name.clone(), failed.1))
        .boxed()
}

/// Lists another way if the keys turn out to be out of order before any was handed out.
fn in_order_or_else(ranges: Listing, other: impl FnOnce() -> Listing + Send + 'static) -> Listing {
    let begun = async move {
        let mut ranges = ranges;
        match ranges.next().await {
            Some(Err(error @ Error::ListingOrder { .. })) => {
                tracing::warn!(%error, "listed in one sequence instead");
                other()
            }
            first => futures::stream::iter(first).chain(ranges).boxed(),
        }
    };
    futures::stream::once(begun).flatten().boxed()
}

fn listed(meta: ObjectMeta) -> Listed {
    let stat = Some(listed_stat(&meta));
    Listed::File(ListedFile { path: format!("/{}", meta.location), stat })
}

fn listed_stat(meta: &ObjectMeta) -> ListedStat {
    ListedStat { size: meta.size, modified_ms: Some(meta.last_modified.timestamp_millis()) }
}
