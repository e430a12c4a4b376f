//! Listings of buckets: every key once, in few requests, or an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use proptest::prelude::*;

use super::key_ranges::KeyRanges;
use super::paged::PagedBucket;
use super::{ObjectFiles, ranges};
use crate::error::{Error, Result};
use crate::storage::{Listed, ListedFile, Listing, ListingMode, ListingOptions};
use crate::table::Location;

async fn paths(listing: Listing) -> Result<Vec<String>> {
    let found: Vec<Listed> = listing.try_concat().await?;
    let mut paths: Vec<String> = found
        .into_iter()
        .map(|listed| match listed {
            Listed::File(ListedFile { path, stat: Some(_) }) => path,
            other => panic!("{other:?}"),
        })
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// What one plain listing of the store shows.
async fn plainly(store: &dyn ObjectStore) -> Vec<String> {
    let listing = store.list(Some(&Path::from("t"))).map_ok(|meta| format!("/{}", meta.location));
    let mut paths: Vec<String> = listing.try_collect().await.unwrap();
    paths.sort_unstable();
    paths
}

fn listing(store: impl ObjectStore, options: ListingOptions) -> Listing {
    ObjectFiles::new(Arc::new(store)).list(&Location::parse("s3://b/t").unwrap(), options)
}

fn options(mode: ListingMode, concurrency: usize, samples: &[String]) -> ListingOptions {
    ListingOptions { concurrency, samples: samples.to_vec(), names_only: false, mode }
}

/// Requests that take turns in an order that depends on the seed.
fn scattered(bucket: PagedBucket, seed: usize) -> PagedBucket {
    bucket.with_latency(Arc::new(move |request| {
        let yields = (request.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 3) % 7;
        Box::pin(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
        })
    }))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Keys below `t/` of many shapes: counted, partitioned, deep, of other alphabets, beside the folder.
fn any_keys() -> impl Strategy<Value = Vec<String>> {
    let key = prop_oneof![
        4 => "t/data/part-[0-9]{3}",
        2 => "t/data/d=[0-3]/[a-f0-9]{2}",
        1 => "t/[a-c#%+ -]{1,3}(/[xé日]{1,2}){0,2}",
        1 => "t/(a/){0,6}z[#0-9]{0,2}",
        1 => "t[0-9-]?",
    ];
    proptest::collection::vec(key, 0..300)
}

/// Which of the keys are samples, and others that are no keys.
fn samples_of(keys: &[String], every: usize, others: Vec<String>) -> Vec<String> {
    let some = keys.iter().enumerate().filter(|(n, _)| n % 11 < every).map(|(_, key)| key.clone());
    some.chain(others).map(|key| format!("/{key}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..Default::default() })]

    /// Pages of few keys, so that ranges are cut and split as in a large bucket.
    #[test]
    fn ranges_find_every_key_once(
        keys in any_keys(), every in 0usize..11, others in proptest::collection::vec("t/data/part-[0-9]{2}", 0..4),
        concurrency in 1usize..9, page in 1usize..7, seed in 0usize..1000,
    ) {
        let samples = samples_of(&keys, every, others);
        let bucket = scattered(PagedBucket::new(keys, page), seed);
        let (found, expected) = run(async {
            let folder = Path::from("t");
            let ranges = KeyRanges::cut(&folder, samples, concurrency, page, 2);
            let store = Arc::new(bucket.clone());
            let listing = ranges::list_ranges(store, folder, "s3://b/t".into(), concurrency, ranges);
            let found = paths(listing).await.unwrap();
            let requests = bucket.requests();
            let expected = plainly(&bucket).await;
            // Each range costs up to one request more than its share of the pages.
            let most = expected.len() / page + concurrency + requests / 20 + 1;
            assert!(requests <= most, "{requests} requests, {most} expected");
            (found, expected)
        });
        prop_assert_eq!(found, expected);
    }

    /// Where `/` comes before all other characters, or a key stands for a folder, the ranges find everything or say so.
    #[test]
    fn another_order_is_noticed(
        keys in any_keys(), markers in proptest::collection::vec("t/(a|a-|a-a|a/b|data)/", 0..4), folders_first: bool,
        every in 0usize..11, concurrency in 1usize..9, page in 1usize..7, seed in 0usize..1000,
    ) {
        let samples = samples_of(&keys, every, vec!["t/a-".into(), "t/a-b".into()]);
        let mut bucket = scattered(PagedBucket::new([keys, markers].concat(), page), seed);
        if folders_first {
            bucket = bucket.ordered(|a, b| a.replace('/', "\0").cmp(&b.replace('/', "\0")));
        }
        let (found, expected) = run(async {
            let folder = Path::from("t");
            let ranges = KeyRanges::cut(&folder, samples, concurrency, page, 2);
            let store = Arc::new(bucket.clone());
            let listing = ranges::list_ranges(store, folder, "s3://b/t".into(), concurrency, ranges);
            (paths(listing).await, plainly(&bucket).await)
        });
        match found {
            Ok(found) => prop_assert_eq!(found, expected),
            Err(error) => prop_assert!(matches!(error, Error::ListingOrder { .. }), "{}", error),
        }
    }

    #[test]
    fn folders_find_every_key_once(keys in any_keys(), every in 0usize..11, concurrency in 1usize..9, page in 1usize..7) {
        let samples = samples_of(&keys, every, vec![]);
        let bucket = scattered(PagedBucket::new(keys, page).named("another store"), concurrency);
        let (found, expected) = run(async {
            let found = paths(listing(bucket.clone(), options(ListingMode::Auto, concurrency, &samples))).await;
            (found.unwrap(), plainly(&bucket).await)
        });
        prop_assert_eq!(found, expected);
    }
}

fn counted(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("t/data/d={:02}/{n:07}-é#1.parquet", n % 32)).collect()
}

/// The goal for large buckets, whatever is known of the keys and wherever they lie.
#[test]
fn ranges_cost_few_requests() {
    let keys = counted(200_000);
    let live: Vec<String> = keys.iter().step_by(11).map(|key| format!("/{key}")).collect();
    let of_one_day: Vec<String> = live.iter().filter(|path| path.contains("d=03")).cloned().collect();
    let bucket = PagedBucket::new(keys, 1000);
    for concurrency in [1, 7, 64] {
        for samples in [&live, &of_one_day, &vec![]] {
            let before = bucket.requests();
            let found = run(paths(listing(bucket.clone(), options(ListingMode::Auto, concurrency, samples)))).unwrap();
            assert_eq!(found.len(), 200_000);
            let (requests, most) = (bucket.requests() - before, 210 + concurrency);
            assert!(requests <= most, "{requests} requests by {concurrency}, {most} expected");
        }
    }
}

#[test]
fn a_small_table_is_one_request() {
    let keys = counted(100);
    let live: Vec<String> = keys.iter().map(|key| format!("/{key}")).collect();
    let bucket = PagedBucket::new(keys, 1000);
    assert_eq!(run(paths(listing(bucket.clone(), options(ListingMode::Auto, 64, &live)))).unwrap().len(), 100);
    assert_eq!(bucket.requests(), 1);
}

/// Rounds: how often all requests that wait are answered at once. With one stream, that is once a page.
#[test]
fn ranges_need_few_rounds() {
    let keys = counted(640_000);
    let live: Vec<String> = keys.iter().step_by(97).map(|key| format!("/{key}")).collect();
    let bucket = PagedBucket::new(keys, 1000);
    for (concurrency, samples, share) in [(64, &live, 0.8), (8, &vec![], 0.6)] {
        let (round, waiting) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (wait, count) = (Arc::clone(&round), Arc::clone(&waiting));
        let bucket = bucket.clone().with_latency(Arc::new(move |_| {
            let (wait, count) = (Arc::clone(&wait), Arc::clone(&count));
            Box::pin(async move {
                count.fetch_add(1, Ordering::Relaxed);
                wait.notified().await;
            })
        }));
        let (found, rounds) = run(async {
            let listing = tokio::spawn(paths(listing(bucket, options(ListingMode::Auto, concurrency, samples))));
            let mut rounds = 0;
            while !listing.is_finished() {
                // Everybody gets to where only an answer helps.
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                rounds += usize::from(waiting.swap(0, Ordering::Relaxed) > 0);
                round.notify_waiters();
            }
            (listing.await.unwrap().unwrap(), rounds)
        });
        assert_eq!(found.len(), 640_000);
        let faster = 640.0 / rounds as f64;
        assert!(faster >= share * concurrency as f64, "{concurrency} at once are {faster} times one");
    }
}

#[tokio::test]
async fn a_store_that_begins_anywhere_is_listed_in_one_sequence() {
    let keys = counted(5000);
    let live: Vec<String> = keys.iter().map(|key| format!("/{key}")).collect();
    // Every key counts as behind the offset.
    let bucket = PagedBucket::new(keys, 1000).ordered(|_, _| std::cmp::Ordering::Greater);
    let found = paths(listing(bucket.clone(), options(ListingMode::Ranges, 8, &live))).await;
    match found {
        Ok(found) => assert_eq!(found, plainly(&bucket).await),
        Err(error) => assert!(matches!(error, Error::ListingOrder { .. }), "{error}"),
    }
}

#[tokio::test]
async fn all_ways_find_the_same_in_memory() {
    let store = InMemory::new();
    let mut live = vec![];
    for key in counted(300).into_iter().chain(["t2/x".into(), "t/metadata/v1.json".into(), "t/x".into()]) {
        store.put_opts(&Path::parse(&key).unwrap(), "1".into(), Default::default()).await.unwrap();
        live.push(format!("/{key}"));
    }
    let expected = plainly(&store).await;
    assert_eq!(expected.len(), 302);
    for mode in [ListingMode::Auto, ListingMode::Ranges, ListingMode::Folders, ListingMode::Sequential] {
        for concurrency in [0, 1, 4] {
            let found = paths(listing(store.clone(), options(mode, concurrency, &live))).await.unwrap();
            assert_eq!(found, expected, "{mode:?} {concurrency}");
        }
    }
}

#[tokio::test]
async fn a_request_that_dies_fails_the_listing() {
    let keys = counted(5000);
    let live: Vec<String> = keys.iter().map(|key| format!("/{key}")).collect();
    for mode in [ListingMode::Ranges, ListingMode::Folders] {
        let dies = |request| {
            assert!(request != 3, "the fourth request");
            Box::pin(std::future::ready(())) as futures::future::BoxFuture<'static, ()>
        };
        let bucket = PagedBucket::new(keys.clone(), 1000).with_latency(Arc::new(dies));
        let error = paths(listing(bucket, options(mode, 4, &live))).await.unwrap_err();
        assert!(error.to_string().contains("panic"), "{error}");
    }
}

#[test]
fn stores_that_list_in_order_are_known_by_name() {
    for ordered in ["AmazonS3(b)", "GoogleCloudStorage(b)", "MicrosoftAzure { account: a, container: c }", "InMemory"] {
        assert!(ranges::is_known_to_be_ordered(ordered), "{ordered}");
    }
    for unknown in ["AmazonS3(b--use1-az4--x-s3)", "HttpStore", "LimitStore(4, AmazonS3(b))", "PrefixObjectStore(p)"] {
        assert!(!ranges::is_known_to_be_ordered(unknown), "{unknown}");
    }
}

#[test]
fn keys_are_taken_as_they_are_or_refused() {
    let key = |text: &str| ObjectFiles::key(&Location::parse(text).unwrap());
    assert_eq!(key("s3://b/a%2Fb/c d").unwrap().as_ref(), "a%2Fb/c d");
    for inexpressible in ["s3://b/a//f", "s3://b//f", "s3://b/a/./f", "s3://b/a/../f", "s3://b/a/f/", "s3://b/a\nf"] {
        assert!(key(inexpressible).is_err(), "{inexpressible}");
    }
}

/// What one way to list found: the files, and what can't be expressed.
pub(crate) struct ListedBy {
    pub mode: &'static str,
    pub outcome: Result<(Vec<String>, Vec<String>)>,
}

/// The folder `t` of a store, listed in every way.
pub(crate) fn listed_in_all_modes(store: Arc<dyn ObjectStore>, concurrency: usize, live: &[String]) -> Vec<ListedBy> {
    let files = ObjectFiles::new(store);
    let list = |mode| {
        let listing = files.list(&Location::parse("s3://b/t").unwrap(), options(mode, concurrency, live));
        let found: Vec<Listed> = run(listing.try_concat())?;
        let (mut paths, mut unusable) = (vec![], vec![]);
        for listed in found {
            match listed {
                Listed::File(file) => paths.push(file.path),
                Listed::Unusable { path, .. } => unusable.push(path),
                Listed::Link { .. } => panic!("{listed:?}"),
            }
        }
        paths.sort_unstable();
        Ok((paths, unusable))
    };
    [("sequential", ListingMode::Sequential), ("ranges", ListingMode::Ranges), ("folders", ListingMode::Folders)]
        .map(|(name, mode)| ListedBy { mode: name, outcome: list(mode) })
        .into()
}
