//! One bucket behind several credentials, each for the keys with a prefix.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// How many keys are sorted by their routes at once; no client puts more into one request.
const KEYS_AT_ONCE: usize = 1000;

/// A store for each of several prefixes of one bucket.
///
/// It prints itself as its clients do: what is known of a client by its name holds of several for the same bucket.
#[derive(Clone)]
pub(super) struct Routes {
    /// Each with the prefix of its keys, the longest first.
    routes: Arc<Vec<(String, Arc<dyn ObjectStore>)>>,
    /// For all other keys.
    fallback: Option<Arc<dyn ObjectStore>>,
    bucket: String,
}

impl Routes {
    pub(super) fn new(
        bucket: String,
        mut routes: Vec<(String, Arc<dyn ObjectStore>)>,
        fallback: Option<Arc<dyn ObjectStore>>,
    ) -> Self {
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { routes: Arc::new(routes), fallback, bucket }
    }

    /// The store that serves a key, or all keys that begin so, and its number; that of the fallback is behind all others.
    fn route(&self, key: &str) -> Result<(usize, &Arc<dyn ObjectStore>)> {
        let of_key = self.routes.iter().enumerate().find(|(_, (prefix, _))| key.starts_with(prefix.as_str()));
        match (of_key, &self.fallback) {
            (Some((number, (_, store))), _) => Ok((number, store)),
            (None, Some(store)) => Ok((self.routes.len(), store)),
            (None, None) => Err(self.not_covered(key)),
        }
    }

    fn store(&self, key: &str) -> Result<&Arc<dyn ObjectStore>> {
        self.route(key).map(|(_, store)| store)
    }

    /// The store for a listing: what begins with a folder's name and a slash.
    fn store_of_folder(&self, prefix: Option<&Path>) -> Result<&Arc<dyn ObjectStore>> {
        match prefix.filter(|prefix| !prefix.is_root()) {
            Some(prefix) => self.store(&format!("{prefix}/")),
            None => self.store(""),
        }
    }

    fn not_covered(&self, key: &str) -> Error {
        let prefixes: Vec<&str> = self.routes.iter().map(|(prefix, _)| prefix.as_str()).collect();
        Error::PermissionDenied {
            path: key.to_string(),
            source: format!(
                "the catalog gave credentials for {} of {} only, and no others are known for {key:?}",
                prefixes.join(" and "),
                self.bucket
            )
            .into(),
        }
    }

    /// Deletes some keys, each route's together. The answers come in the order of the keys where each key has one.
    async fn delete_some(self, keys: Vec<Path>) -> Vec<Result<Path>> {
        let mut answers: Vec<Option<Result<Path>>> = keys.iter().map(|_| None).collect();
        let mut of_routes: BTreeMap<usize, (&Arc<dyn ObjectStore>, Vec<usize>)> = BTreeMap::new();
        for (index, key) in keys.iter().enumerate() {
            match self.route(key.as_ref()) {
                Ok((number, store)) => of_routes.entry(number).or_insert((store, vec![])).1.push(index),
                Err(error) => answers[index] = Some(Err(error)),
            }
        }
        let mut others = vec![];
        for (store, indices) in of_routes.into_values() {
            let asked: Vec<Result<Path>> = indices.iter().map(|index| Ok(keys[*index].clone())).collect();
            let given: Vec<_> = store.delete_stream(futures::stream::iter(asked).boxed()).collect().await;
            if given.len() == indices.len() {
                indices.iter().zip(given).for_each(|(index, answer)| answers[*index] = Some(answer));
            } else {
                others.extend(given);
            }
        }
        answers.into_iter().flatten().chain(others).collect()
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.routes.first().map(|(_, store)| store).or(self.fallback.as_ref()) {
            Some(store) => write!(f, "{store}"),
            None => f.write_str(&self.bucket),
        }
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes: Vec<&String> = self.routes.iter().map(|(prefix, _)| prefix).collect();
        f.debug_struct("Routes").field("bucket", &self.bucket).field("prefixes", &prefixes).finish_non_exhaustive()
    }
}

fn failed<T: Send + 'static>(error: Error) -> BoxStream<'static, Result<T>> {
    futures::stream::once(async { Err(error) }).boxed()
}

#[async_trait]
impl ObjectStore for Routes {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.store(location.as_ref())?.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.store(location.as_ref())?.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store(location.as_ref())?.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.store(location.as_ref())?.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let routes = self.clone();
        let chunks = locations.try_ready_chunks(KEYS_AT_ONCE).map(move |chunk| {
            let routes = routes.clone();
            async move {
                match chunk {
                    Ok(keys) => routes.delete_some(keys).await,
                    Err(failed) => {
                        let mut answers = routes.delete_some(failed.0).await;
                        answers.push(Err(failed.1));
                        answers
                    }
                }
            }
        });
        chunks.buffered(1).map(futures::stream::iter).flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.store_of_folder(prefix) {
            Ok(store) => store.list(prefix),
            Err(error) => failed(error),
        }
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.store_of_folder(prefix) {
            Ok(store) => store.list_with_offset(prefix, offset),
            Err(error) => failed(error),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store_of_folder(prefix)?.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store(to.as_ref())?.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.store(to.as_ref())?.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    async fn store(keys: &[&str]) -> Arc<dyn ObjectStore> {
        let store = InMemory::new();
        for key in keys {
            store.put(&Path::from(*key), "1".into()).await.unwrap();
        }
        Arc::new(store)
    }

    async fn listed(store: &dyn ObjectStore, folder: &str) -> Result<Vec<String>> {
        store.list(Some(&Path::from(folder))).map_ok(|meta| meta.location.to_string()).try_collect().await
    }

    /// Each store holds other keys, so that it shows who answered.
    async fn routes(with_fallback: bool) -> Routes {
        let (table, data) = (store(&["w/t/a", "w/t/metadata/m"]).await, store(&["w/t/data/d"]).await);
        let rest = store(&["w/rest", "w/t/all"]).await;
        Routes::new(
            "s3://b".into(),
            vec![("w/t/".into(), table), ("w/t/data".into(), data)],
            with_fallback.then_some(rest),
        )
    }

    #[tokio::test]
    async fn the_longest_prefix_of_a_key_decides() {
        let routes = routes(true).await;
        for key in ["w/t/a", "w/t/data/d", "w/rest"] {
            assert!(routes.head(&Path::from(key)).await.is_ok(), "{key}");
        }
        assert_eq!(listed(&routes, "w/t").await.unwrap(), ["w/t/a", "w/t/metadata/m"]);
        assert_eq!(listed(&routes, "w/t/data").await.unwrap(), ["w/t/data/d"]);
        assert_eq!(listed(&routes, "w").await.unwrap(), ["w/rest", "w/t/all"], "above all routes");
    }

    #[tokio::test]
    async fn what_no_credentials_cover_is_refused_by_name() {
        let routes = routes(false).await;
        for error in [routes.head(&Path::from("w/rest")).await.unwrap_err(), listed(&routes, "w").await.unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("w/t/data and w/t/ of s3://b only"), "{text}");
        }
        assert_eq!(listed(&routes, "w/t").await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn deletes_go_to_their_routes_and_are_answered_in_order() {
        let routes = routes(false).await;
        let keys = ["w/t/a", "w/t/data/d", "w/x", "w/t/metadata/m"].map(Path::from);
        let asked = futures::stream::iter(keys.clone().map(Ok)).boxed();
        let answers: Vec<_> = routes.delete_stream(asked).collect().await;
        assert_eq!(answers.len(), 4);
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(deleted) => assert_eq!(deleted, *key),
                Err(error) => assert!(key.as_ref() == "w/x" && error.to_string().contains("no others"), "{error}"),
            }
        }
        assert_eq!(listed(&routes, "w/t").await.unwrap(), [] as [String; 0]);
        assert_eq!(listed(&routes, "w/t/data").await.unwrap(), [] as [String; 0]);
        assert_eq!(routes.to_string(), "InMemory");
    }
}
