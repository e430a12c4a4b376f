//! A bucket of keys without content that lists in pages and counts the requests, for tests and benches.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicUsize};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

/// How two keys are ordered.
pub type Order = fn(&str, &str) -> Ordering;
/// What a request waits for, by its number.
pub type Latency = Arc<dyn Fn(usize) -> BoxFuture<'static, ()> + Send + Sync>;

/// A bucket that only lists.
#[derive(Clone)]
pub struct PagedBucket {
    keys: Arc<Vec<String>>,
    order: Order,
    page_keys: usize,
    latency: Latency,
    requests: Arc<AtomicUsize>,
    name: &'static str,
}

impl PagedBucket {
    /// A bucket with pages of so many keys. A key may end in a slash: a folder marker.
    pub fn new(mut keys: Vec<String>, page_keys: usize) -> Self {
        keys.sort_unstable();
        keys.dedup();
        Self {
            keys: Arc::new(keys),
            order: |a, b| a.cmp(b),
            page_keys,
            latency: Arc::new(|_| Box::pin(std::future::ready(()))),
            requests: Arc::default(),
            name: "AmazonS3(bucket)",
        }
    }

    /// The same keys in another order.
    pub fn ordered(mut self, order: Order) -> Self {
        let mut keys = self.keys.as_ref().clone();
        keys.sort_by(|a, b| order(a, b));
        self.keys = Arc::new(keys);
        self.order = order;
        self
    }

    /// Each request waits.
    pub fn with_latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// How the bucket prints itself.
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// How many requests were made so far.
    pub fn requests(&self) -> usize {
        self.requests.load(atomic::Ordering::Relaxed)
    }

    fn prefix(prefix: Option<&Path>) -> String {
        prefix.filter(|prefix| !prefix.is_root()).map_or_else(String::new, |prefix| format!("{prefix}/"))
    }

    /// Pages of the keys with a prefix, from a position on.
    fn pages(&self, prefix: String, at: usize) -> BoxStream<'static, Result<Vec<ObjectMeta>>> {
        let bucket = self.clone();
        futures::stream::unfold(Some(at), move |at| {
            let (bucket, prefix) = (bucket.clone(), prefix.clone());
            async move {
                let mut at = at?;
                let number = bucket.requests.fetch_add(1, atomic::Ordering::Relaxed);
                (bucket.latency)(number).await;
                let mut page = Vec::with_capacity(bucket.page_keys);
                let mut more = false;
                while let Some(key) = bucket.keys.get(at) {
                    if key.starts_with(&prefix) {
                        if page.len() == bucket.page_keys {
                            more = true;
                            break;
                        }
                        page.push(meta(key));
                    }
                    at += 1;
                }
                Some((page.into_iter().collect(), more.then_some(at)))
            }
        })
        .boxed()
    }
}

fn meta(key: &str) -> Result<ObjectMeta> {
    let location = Path::parse(key)?;
    Ok(ObjectMeta { location, last_modified: Default::default(), size: 1, e_tag: None, version: None })
}

impl std::fmt::Display for PagedBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl std::fmt::Debug for PagedBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[async_trait]
impl ObjectStore for PagedBucket {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(object_store::Error::NotImplemented { operation: "put".into(), implementer: self.name.into() })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(object_store::Error::NotImplemented { operation: "put".into(), implementer: self.name.into() })
    }

    async fn get_opts(&self, _: &Path, _: GetOptions) -> Result<GetResult> {
        Err(object_store::Error::NotImplemented { operation: "get".into(), implementer: self.name.into() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        locations
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let pages = self.pages(Self::prefix(prefix), 0);
        pages.map_ok(|page| futures::stream::iter(page.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let at = self.keys.partition_point(|key| (self.order)(key, offset.as_ref()).is_le());
        let pages = self.pages(Self::prefix(prefix), at);
        pages.map_ok(|page| futures::stream::iter(page.into_iter().map(Ok))).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let start = Self::prefix(prefix);
        let pages: Vec<_> = self.pages(start.clone(), 0).try_collect().await?;
        let mut found = ListResult { common_prefixes: vec![], objects: vec![] };
        for object in pages.into_iter().flatten() {
            match object.location.as_ref().get(start.len()..).and_then(|rest| rest.split_once('/')) {
                Some((folder, _)) => found.common_prefixes.push(Path::parse(format!("{start}{folder}"))?),
                None => found.objects.push(object),
            }
        }
        found.common_prefixes.dedup();
        Ok(found)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(object_store::Error::NotImplemented { operation: "copy".into(), implementer: self.name.into() })
    }
}
