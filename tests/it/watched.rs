//! An object store in memory that notes every request and answers some of them as it is told.
//!
//! What concerns the journal of maintenance runs is passed over, except where a test asks for it: it is the same for every run,
//! and has tests of its own.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use iceberg_maintenance::fixtures::Table;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// What was asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Get,
    Head,
    Put,
    Delete,
    List,
    /// Anything that maintenance has no use for.
    Other,
}

/// A wrong answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing is done, and the error says nothing of why.
    Fails,
    /// Nothing is done: it is not allowed.
    Denied,
    /// Nothing is done: there is no such thing.
    Missing,
    /// It is done, but the answer is an error.
    AnswerLost,
    /// It is done, but a repetition of the request finds its own result.
    AlreadyExists,
}

/// Says which requests get a wrong answer.
pub type Rule = Box<dyn FnMut(Kind, &str) -> Option<Wrong> + Send>;

/// How many keys a page of a listing has.
pub const PAGE_KEYS: usize = 1000;

/// What the store's client is like.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// What it prints itself as: all that tells which store it is for.
    pub name: &'static str,
    /// So many keys go with one request to delete.
    pub keys_per_delete: usize,
    /// How long a request takes.
    pub latency: fn(Kind) -> Duration,
}

impl Default for Client {
    fn default() -> Self {
        Self { name: "WatchedStore", keys_per_delete: 1, latency: |_| Duration::ZERO }
    }
}

/// The store. Clones share everything.
#[derive(Clone, Default)]
pub struct WatchedStore(Arc<Inner>);

#[derive(Default)]
struct Inner {
    objects: InMemory,
    requests: Mutex<Vec<(Kind, String)>>,
    rule: Mutex<Option<Rule>>,
    /// The rule holds for the journal, too.
    rules_journal: AtomicBool,
    client: Mutex<Client>,
    /// How many keys each request to delete had.
    deletes: Mutex<Vec<usize>>,
    /// Of each kind, how many requests run now and how many ran at once at most.
    running: Mutex<HashMap<Kind, (usize, usize)>>,
}

/// True for the journal of maintenance runs and what is in it.
pub fn is_journal(path: &str) -> bool {
    path.contains("metadata/_maintenance")
}

/// A request that runs.
struct Running<'a>(&'a Inner, Kind);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().entry(self.1).or_default().0 -= 1;
    }
}

impl WatchedStore {
    /// A store that holds the files of a table, which lies at `wh/t` of its bucket.
    pub async fn with_table(table: &Table) -> Self {
        Self::with_table_at("wh/t/", table).await
    }

    /// A store that holds the files of a table behind this prefix of keys.
    pub async fn with_table_at(prefix: &str, table: &Table) -> Self {
        let (store, folder) = (Self::default(), tempfile::tempdir().unwrap());
        let written = table.write(folder.path()).unwrap();
        for file in written.files_on_disk().unwrap() {
            store.add(&format!("{prefix}{file}"), std::fs::read(written.folder.join(&file)).unwrap()).await;
        }
        store
    }

    /// The client is another one from now on.
    pub fn set_client(&self, client: Client) {
        *self.0.client.lock().unwrap() = client;
    }

    /// How many keys each request to delete had, since the last look; without those for the journal's own files.
    pub fn take_deletes(&self) -> Vec<usize> {
        std::mem::take(&mut *self.0.deletes.lock().unwrap())
    }

    /// How many requests of a kind ever ran at once.
    pub fn most_at_once(&self, kind: Kind) -> usize {
        self.0.running.lock().unwrap().get(&kind).map_or(0, |(_, most)| *most)
    }

    fn client(&self) -> Client {
        *self.0.client.lock().unwrap()
    }

    /// Puts an object there, unnoticed.
    pub async fn add(&self, key: &str, content: impl Into<PutPayload>) {
        self.0.objects.put(&Path::parse(key).unwrap(), content.into()).await.unwrap();
    }

    /// An object's content, unnoticed.
    pub async fn content(&self, key: &str) -> Bytes {
        self.0.objects.get(&Path::parse(key).unwrap()).await.unwrap().bytes().await.unwrap()
    }

    /// All keys but those of the journal.
    pub async fn keys(&self) -> BTreeSet<String> {
        self.objects().await.into_iter().map(|object| object.location.to_string()).collect()
    }

    /// Size and time of every object by its key, without the journal, unnoticed.
    pub async fn objects(&self) -> Vec<ObjectMeta> {
        let mut objects = self.all_objects().await;
        objects.retain(|object| !is_journal(object.location.as_ref()));
        objects
    }

    /// Size and time of every object, those of the journal too.
    pub async fn all_objects(&self) -> Vec<ObjectMeta> {
        self.0.objects.list(None).try_collect().await.unwrap()
    }

    /// Gives wrong answers from now on.
    pub fn answer_wrongly(&self, rule: impl FnMut(Kind, &str) -> Option<Wrong> + Send + 'static) {
        *self.0.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// The same, for requests that concern the journal, too.
    pub fn answer_all_wrongly(&self, rule: impl FnMut(Kind, &str) -> Option<Wrong> + Send + 'static) {
        self.0.rules_journal.store(true, Ordering::SeqCst);
        self.answer_wrongly(rule);
    }

    /// Answers rightly again.
    pub fn recover(&self) {
        self.0.rules_journal.store(false, Ordering::SeqCst);
        *self.0.rule.lock().unwrap() = None;
    }

    /// The requests since they were last taken, without those that concern the journal.
    pub fn requests(&self) -> Vec<(Kind, String)> {
        let mut requests = self.0.requests.lock().unwrap().clone();
        requests.retain(|(_, key)| !is_journal(key));
        requests
    }

    /// The same, and forgets them.
    pub fn take_requests(&self) -> Vec<(Kind, String)> {
        let mut requests = self.take_all_requests();
        requests.retain(|(_, key)| !is_journal(key));
        requests
    }

    /// All requests since the last look.
    pub fn take_all_requests(&self) -> Vec<(Kind, String)> {
        std::mem::take(&mut *self.0.requests.lock().unwrap())
    }

    fn note(&self, kind: Kind, key: &str) -> Option<Wrong> {
        self.0.requests.lock().unwrap().push((kind, key.to_string()));
        if is_journal(key) && !self.0.rules_journal.load(Ordering::SeqCst) {
            return None;
        }
        self.0.rule.lock().unwrap().as_mut().and_then(|rule| rule(kind, key))
    }

    /// A request begins, and takes the time that it takes.
    async fn run(&self, kind: Kind) -> Running<'_> {
        {
            let mut running = self.0.running.lock().unwrap();
            let (now, most) = running.entry(kind).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        let running = Running(&self.0, kind);
        match (self.client().latency)(kind) {
            Duration::ZERO => tokio::task::yield_now().await,
            latency => tokio::time::sleep(latency).await,
        }
        running
    }

    async fn answer<T>(&self, kind: Kind, key: &Path, work: impl Future<Output = Result<T>>) -> Result<T> {
        let _running = self.run(kind).await;
        self.answer_at_once(kind, key, work).await
    }

    /// Does the work as far as the wrong answer lets it be done.
    async fn answer_at_once<T>(&self, kind: Kind, key: &Path, work: impl Future<Output = Result<T>>) -> Result<T> {
        let path = key.to_string();
        match self.note(kind, key.as_ref()) {
            None => work.await,
            Some(Wrong::Fails) => Err(failure()),
            Some(Wrong::Denied) => Err(Error::PermissionDenied { path, source: "not allowed".into() }),
            Some(Wrong::Missing) => Err(Error::NotFound { path, source: "there is none".into() }),
            Some(Wrong::AnswerLost) => work.await.and(Err(failure())),
            Some(Wrong::AlreadyExists) => work.await.and(Err(Error::AlreadyExists { path, source: "there".into() })),
        }
    }

    /// A listing, a request for each page.
    fn pages(
        &self,
        prefix: Option<&Path>,
        keys: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        let pages = async move {
            let keys: Vec<ObjectMeta> = keys.try_collect().await?;
            let mut pages: Vec<_> = keys.chunks(PAGE_KEYS).map(<[ObjectMeta]>::to_vec).collect();
            if pages.is_empty() {
                pages.push(vec![]);
            }
            let page = move |page| {
                let (store, prefix) = (store.clone(), prefix.clone());
                async move { store.answer(Kind::List, &prefix, std::future::ready(Ok(page))).await }
            };
            let keys = |page: Vec<ObjectMeta>| futures::stream::iter(page.into_iter().map(Ok));
            Ok::<_, Error>(futures::stream::iter(pages).then(page).map_ok(keys).try_flatten())
        };
        futures::stream::once(pages).try_flatten().boxed()
    }
}

fn failure() -> Error {
    Error::Generic { store: "watched", source: "the network is down".into() }
}

impl fmt::Debug for WatchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.client().name)
    }
}

impl fmt::Display for WatchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.client().name)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for WatchedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.answer(Kind::Put, location, self.0.objects.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.answer(Kind::Other, location, self.0.objects.put_multipart_opts(location, options)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if options.head { Kind::Head } else { Kind::Get };
        self.answer(kind, location, self.0.objects.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.answer(Kind::Get, location, self.0.objects.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let request = move |keys: Vec<Result<Path>>| {
            let store = store.clone();
            async move {
                let _running = store.run(Kind::Delete).await;
                // Claims in the journal go one by one.
                if !keys.iter().flatten().all(|key| is_journal(key.as_ref())) {
                    store.0.deletes.lock().unwrap().push(keys.len());
                }
                let mut answers = vec![];
                for key in keys {
                    answers.push(match key {
                        Ok(key) => {
                            let work = store.0.objects.delete(&key);
                            store.answer_at_once(Kind::Delete, &key, work).await.map(|()| key.clone())
                        }
                        Err(error) => Err(error),
                    });
                }
                futures::stream::iter(answers)
            }
        };
        locations.chunks(self.client().keys_per_delete).then(request).flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.pages(prefix, self.0.objects.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.pages(prefix, self.0.objects.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let key = prefix.cloned().unwrap_or_default();
        self.answer(Kind::List, &key, self.0.objects.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.answer(Kind::Other, to, self.0.objects.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.answer(Kind::Other, to, self.0.objects.rename_opts(from, to, options)).await
    }
}
