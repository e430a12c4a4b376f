//! The store that all actors share, as one of them sees it: each request waits for its turn, and the law is checked after it.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use super::law::{Law, version_of};
use super::scheduler::{Actor, Scheduler};

/// What is asked of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Read(String),
    Write(String),
    Delete(String),
    /// From one key to another.
    Copy(String, String),
    /// All keys below a folder.
    List(String),
    /// The keys right in a folder.
    ListFolder(String),
}

impl Request {
    /// True when the order of two requests can matter: to one of them, or to the law.
    pub fn depends_on(&self, other: &Self) -> bool {
        use Request::*;
        match (self, other) {
            (Copy(from, to), _) => Read(from.clone()).depends_on(other) || Write(to.clone()).depends_on(other),
            (_, Copy(..)) => other.depends_on(self),
            (Read(_) | List(_) | ListFolder(_), Read(_) | List(_) | ListFolder(_)) => false,
            (Read(_) | List(_) | ListFolder(_), _) => other.depends_on(self),
            (Write(key) | Delete(key), Read(other)) => key == other,
            // What proves that a store creates only what is not there has a name of its own, which nobody else looks at.
            (Write(key) | Delete(key), List(_) | ListFolder(_)) if key.ends_with(".probe") => false,
            (Write(key) | Delete(key), List(folder)) => key.starts_with(folder.as_str()),
            (Write(key) | Delete(key), ListFolder(folder)) => {
                key.rsplit_once('/').is_some_and(|(parent, _)| parent == folder)
            }
            // What may not be deleted follows from the newest metadata.
            (Write(metadata), Delete(key)) | (Delete(key), Write(metadata)) => {
                key == metadata || (metadata.ends_with(".metadata.json") && !key.ends_with(".probe"))
            }
            (Write(key), Write(other)) | (Delete(key), Delete(other)) => key == other,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(key) => write!(f, "read {key}"),
            Self::Write(key) => write!(f, "write {key}"),
            Self::Delete(key) => write!(f, "delete {key}"),
            Self::Copy(from, to) => write!(f, "copy {from} to {to}"),
            Self::List(folder) => write!(f, "list {folder}/**"),
            Self::ListFolder(folder) => write!(f, "list {folder}/*"),
        }
    }
}

/// A wrong answer that looks like a right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// There is nothing, or it is done: nothing is done.
    Empty,
    /// There was something else: a listing lacks the newest metadata, what is created or deleted was so before. Nothing is
    /// done.
    Outdated,
}

/// Lies once.
#[derive(Debug, Clone, Copy)]
pub struct LiesAt {
    pub request: usize,
    pub lie: Lie,
}

/// The store as one actor sees it.
#[derive(Clone)]
pub struct ActorStore {
    pub actor: Actor,
    /// How many requests it had.
    pub asked: Arc<AtomicUsize>,
    pub lies: Option<LiesAt>,
    pub objects: Arc<InMemory>,
    /// What was written before this has long been there.
    pub old_until: DateTime<Utc>,
    pub scheduler: Arc<Scheduler>,
    pub law: Arc<Mutex<Law>>,
}

impl ActorStore {
    /// Waits until the request may be answered, and says whether the answer is to be a lie.
    async fn turn(&self, request: Request) -> Option<Lie> {
        self.scheduler.turn(self.actor, request).await;
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        self.lies.filter(|lies| lies.request == number).map(|lies| lies.lie)
    }

    /// Waits for the request's turn. The store in memory answers at once: nobody else comes in between.
    async fn read<T>(&self, key: &Path, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.turn(Request::Read(key.to_string())).await {
            None => {
                self.law.lock().unwrap().looks(self.actor, key.as_ref());
                work.await
            }
            Some(_) => Err(missing(key)),
        }
    }

    async fn delete(&self, key: Path) -> Result<Path> {
        match self.turn(Request::Delete(key.to_string())).await {
            None => {
                self.objects.delete(&key).await?;
                self.law.lock().unwrap().is_deleted(self.actor, key.as_ref());
                Ok(key)
            }
            Some(Lie::Empty) => Ok(key),
            Some(Lie::Outdated) => Err(missing(&key)),
        }
    }

    async fn listed(&self, request: Request, keys: impl Future<Output = Result<ListResult>>) -> Result<ListResult> {
        let lie = self.turn(request.clone()).await;
        let mut found = keys.await?;
        match lie {
            None => {
                if let Request::ListFolder(folder) = &request {
                    self.law.lock().unwrap().looks(self.actor, folder);
                }
            }
            Some(Lie::Empty) => (found.objects, found.common_prefixes) = (vec![], vec![]),
            Some(Lie::Outdated) => {
                let newest = found.objects.iter().filter_map(|meta| version_of(meta.location.as_ref())).max();
                found.objects.retain(|meta| newest.is_none() || version_of(meta.location.as_ref()) != newest);
            }
        }
        found.objects = found.objects.into_iter().map(|meta| self.aged(meta)).collect();
        Ok(found)
    }

    fn aged(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if meta.last_modified <= self.old_until {
            meta.last_modified -= TimeDelta::days(30);
        }
        meta
    }

    fn listing(&self, prefix: Option<&Path>, offset: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix, offset) = (self.clone(), prefix.cloned(), offset.cloned());
        let all = async move {
            let keys = async {
                let keys = match &offset {
                    None => store.objects.list(prefix.as_ref()),
                    Some(offset) => store.objects.list_with_offset(prefix.as_ref(), offset),
                };
                Ok(ListResult { objects: keys.try_collect().await?, common_prefixes: vec![] })
            };
            let found = store.listed(Request::List(folder(prefix.as_ref())), keys).await?;
            Ok::<_, Error>(futures::stream::iter(found.objects.into_iter().map(Ok)))
        };
        futures::stream::once(all).try_flatten().boxed()
    }
}

fn missing(key: &Path) -> Error {
    Error::NotFound { path: key.to_string(), source: "there is none".into() }
}

fn folder(prefix: Option<&Path>) -> String {
    prefix.map(Path::to_string).unwrap_or_default()
}

impl fmt::Debug for ActorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActorStore({})", self.actor)
    }
}

impl fmt::Display for ActorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActorStore({})", self.actor)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for ActorStore {
    async fn put_opts(&self, key: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match self.turn(Request::Write(key.to_string())).await {
            None => {
                let content = Bytes::from(payload.clone());
                let written = self.objects.put_opts(key, payload, options).await?;
                self.law.lock().unwrap().is_written(self.actor, key.as_ref(), &content);
                Ok(written)
            }
            Some(Lie::Outdated) if options.mode == PutMode::Create => {
                Err(Error::AlreadyExists { path: key.to_string(), source: "there is one".into() })
            }
            Some(_) => Ok(PutResult { e_tag: None, version: None }),
        }
    }

    async fn put_multipart_opts(&self, key: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("no actor writes {key} in parts")
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        let mut found = self.read(key, self.objects.get_opts(key, options)).await?;
        found.meta = self.aged(found.meta);
        Ok(found)
    }

    async fn get_ranges(&self, key: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read(key, self.objects.get_ranges(key, ranges)).await
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |key: Result<Path>| {
            let store = store.clone();
            async move { store.delete(key?).await }
        };
        keys.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.listed(Request::ListFolder(folder(prefix)), self.objects.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        match self.turn(Request::Copy(from.to_string(), to.to_string())).await {
            None => {
                self.objects.copy_opts(from, to, options).await?;
                let content = self.objects.get(to).await?.bytes().await?;
                self.law.lock().unwrap().is_written(self.actor, to.as_ref(), &content);
                Ok(())
            }
            Some(Lie::Outdated) => Err(missing(from)),
            Some(Lie::Empty) => Ok(()),
        }
    }

    async fn rename_opts(&self, _: &Path, to: &Path, _: RenameOptions) -> Result<()> {
        unimplemented!("no actor renames to {to}")
    }
}
