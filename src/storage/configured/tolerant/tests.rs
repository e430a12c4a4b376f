//! Listings that meet keys which can't be expressed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::storage::listed_in_all_modes;

/// A bucket whose client parses a page as a whole, as those of `object_store` do.
struct Bucket {
    keys: Vec<String>,
    page: usize,
    begins_anywhere: bool,
    obeys_max_keys: bool,
    requests: AtomicUsize,
}

fn bucket(keys: impl IntoIterator<Item = impl Into<String>>, page: usize) -> Bucket {
    let keys: BTreeSet<String> = keys.into_iter().map(Into::into).collect();
    let keys = keys.into_iter().collect();
    Bucket { keys, page, begins_anywhere: true, obeys_max_keys: true, requests: AtomicUsize::new(0) }
}

fn unused<T>(operation: &str) -> Result<T> {
    Err(Error::NotImplemented { operation: operation.into(), implementer: "a bucket that only lists".into() })
}

#[async_trait]
impl PaginatedListStore for Bucket {
    async fn list_paginated(&self, prefix: Option<&str>, opts: PaginatedListOptions) -> Result<PaginatedListResult> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let offset = opts.offset.filter(|_| self.begins_anywhere);
        let behind = opts.page_token.or(offset).unwrap_or_default();
        let mut rest = self.keys.iter().filter(|key| key.starts_with(prefix.unwrap_or_default()) && **key > behind);
        let most = opts.max_keys.filter(|_| self.obeys_max_keys).unwrap_or(self.page).min(self.page);
        let keys: Vec<&String> = rest.by_ref().take(most).collect();
        let page_token = rest.next().and_then(|_| keys.last()).map(|key| key.to_string());
        let meta = |key: &&String| {
            let location = Path::parse(key)?;
            Ok(ObjectMeta { location, last_modified: Default::default(), size: 1, e_tag: None, version: None })
        };
        let objects = keys.iter().map(meta).collect::<Result<_>>()?;
        Ok(PaginatedListResult { result: ListResult { common_prefixes: vec![], objects }, page_token })
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        unused("put")
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unused("put")
    }

    async fn get_opts(&self, _: &Path, _: GetOptions) -> Result<GetResult> {
        unused("get")
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        locations
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        futures::stream::once(async { unused("list") }).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let (mut objects, mut folders) = (vec![], BTreeSet::new());
        for key in self.keys.iter().filter(|key| key.starts_with(&prefix)) {
            match key[prefix.len()..].split_once('/') {
                Some((folder, _)) => {
                    folders.insert(Path::parse(format!("{prefix}{folder}/"))?);
                }
                None => {
                    let location = Path::parse(key)?;
                    let last_modified = Default::default();
                    objects.push(ObjectMeta { location, last_modified, size: 1, e_tag: None, version: None });
                }
            }
        }
        Ok(ListResult { common_prefixes: folders.into_iter().collect(), objects })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unused("copy")
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AmazonS3(bucket)")
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}

/// The files and the places that can't be expressed, in the order of the listing.
async fn listed(store: &Tolerant<Bucket>) -> (Vec<String>, Vec<String>) {
    let (mut files, mut unusable) = (vec![], vec![]);
    let mut keys = store.list(Some(&Path::from("t")));
    while let Some(item) = keys.next().await {
        match item {
            Ok(meta) => files.push(meta.location.to_string()),
            Err(Error::Generic { source, .. }) => unusable.push(source.downcast::<UnusableKey>().unwrap().0),
            Err(error) => panic!("{error}"),
        }
    }
    (files, unusable)
}

#[tokio::test]
async fn a_listing_goes_on_behind_a_bad_key_and_names_it() {
    let keys = ["t/a", "t/b//1", "t/b//2", "t/b/", "t/b/c", "t/d/../e", "t/d/./", "t/f\ng", "t/h", "t2//x"];
    for page in [1, 2, 3, 1000] {
        let store = Tolerant::new(bucket(keys, page), true);
        let (files, unusable) = listed(&store).await;
        assert_eq!(files, ["t/a", "t/b", "t/b/c", "t/h"], "pages of {page}");
        assert_eq!(unusable, ["t/b//", "t/d/../", "t/d/./", "t/f\ng"], "pages of {page}");
    }
}

#[tokio::test]
async fn many_keys_below_a_bad_folder_are_one_offset() {
    let keys = (0..5000).map(|n| format!("t/a//{n:05}")).chain((0..5000).map(|n| format!("t/b/{n:05}")));
    let store = Tolerant::new(bucket(keys, 1000), true);
    let (files, unusable) = listed(&store).await;
    assert_eq!((files.len(), unusable), (5000, vec!["t/a//".to_string()]));
    let requests = store.client.requests.load(Ordering::Relaxed);
    assert!(requests <= 11 + 7 + 6, "{requests} requests");
}

#[tokio::test]
async fn a_listing_without_bad_keys_costs_what_it_did() {
    let store = Tolerant::new(bucket((0..5000).map(|n| format!("t/{n:05}")), 1000), true);
    assert_eq!(listed(&store).await.0.len(), 5000);
    assert_eq!(store.client.requests.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn what_can_not_be_passed_over_ends_the_listing_by_name() {
    let keys = ["t/a", "t/b//c", "t/d"];
    let no_offsets = Bucket { begins_anywhere: false, ..bucket(keys, 1000) };
    let unknown_offsets = Bucket { begins_anywhere: false, ..bucket(keys, 1000) };
    for store in [Tolerant::new(no_offsets, false), Tolerant::new(unknown_offsets, true)] {
        let failed: Result<Vec<_>> = store
            .list(Some(&Path::from("t")))
            .filter(|item| {
                let goes_on =
                    matches!(item, Err(Error::Generic { source, .. }) if source.downcast_ref::<UnusableKey>().is_some());
                futures::future::ready(!goes_on)
            })
            .try_collect()
            .await;
        let error = failed.unwrap_err().to_string();
        assert!(error.contains("t/b//c"), "{error}");
    }
    let disobedient = Bucket { obeys_max_keys: false, ..bucket(keys, 2) };
    let mut keys = Tolerant::new(disobedient, true).list(Some(&Path::from("t")));
    assert!(keys.next().await.is_some());
}

#[tokio::test]
async fn an_offset_is_kept_where_the_server_knows_none() {
    let client = Bucket { begins_anywhere: false, ..bucket(["t/a", "t/b", "t/c"], 1) };
    let store = Tolerant::new(client, false);
    let behind = store.list_with_offset(Some(&Path::from("t")), &Path::from("t/a"));
    let keys: Vec<String> = behind.map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
    assert_eq!(keys, ["t/b", "t/c"]);
}

#[test]
fn a_folder_is_hopeless_from_its_first_bad_segment_on() {
    for (key, folder) in [
        ("a//b//c", Some("a//")),
        ("a/../b", Some("a/../")),
        ("a/\n/b", Some("a/\n/")),
        ("a/./", Some("a/./")),
        ("a/b\n", None),
        ("a/..", None),
        ("a/..b/c", None),
    ] {
        assert_eq!(hopeless_folder(key), folder, "{key:?}");
    }
}

#[test]
fn it_prints_itself_as_the_client_does_and_no_more() {
    let store = Tolerant::new(bucket(["t/a"], 1), true);
    assert_eq!(
        (store.to_string(), format!("{store:?}")),
        ("AmazonS3(bucket)".into(), "Tolerant(AmazonS3(bucket))".into())
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..Default::default() })]

    /// All that can be expressed is found once; all else lies in a place that is named once.
    #[test]
    fn every_way_to_list_finds_the_rest(
        keys in proptest::collection::btree_set("t/[ab/.\n]{1,4}[c0-3]{0,2}", 0..60), page in 1usize..9,
        concurrency in 1usize..5,
    ) {
        let keys: Vec<String> = keys.into_iter().collect();
        let (good, bad): (Vec<&String>, Vec<&String>) = keys.iter().partition(|key| Path::parse(key).is_ok());
        let mut files: Vec<String> =
            good.iter().map(|key| format!("/{}", key.strip_suffix('/').unwrap_or(key))).collect();
        files.sort_unstable();
        let store: Arc<dyn ObjectStore> = Arc::new(Tolerant::new(bucket(keys.clone(), page), true));
        for crate::storage::ListedBy { mode, outcome } in listed_in_all_modes(store, concurrency, &files) {
            // A key and its folder marker print the same, which a listing by ranges may take for another order.
            let Ok((found, unusable)) = outcome else { continue };
            prop_assert_eq!(&found, &files, "{}", mode);
            let places: BTreeSet<&String> = unusable.iter().collect();
            prop_assert_eq!(places.len(), unusable.len(), "{} named a place twice", mode);
            for key in &bad {
                let path = format!("/{key}");
                prop_assert!(unusable.iter().any(|place| path.starts_with(place.as_str())), "{} lost {}", mode, path);
            }
        }
    }
}
