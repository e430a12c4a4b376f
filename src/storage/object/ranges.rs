//! Listing ranges of keys at once: the requests around [`KeyRanges`].

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Poll;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::key_ranges::{Accepted, Begun, Doubt, KeyRanges};
use super::keys::{KeyOrder, ListedKey};
use super::unusable::UnusableKey;
use super::{listed, tasks};
use crate::error::{Error, Result};
use crate::storage::{Listed, Listing};

/// Most keys that are handled at once; the pages of known stores are not larger.
const MAX_PAGE_KEYS: usize = 5000;
/// How often the two sides of a seam may differ because somebody writes there.
const SEAM_LOOKS: usize = 3;

/// True for stores that list in the order of keys and can begin behind any key without going through those before it, as
/// far as they show it by how they print themselves: S3 except directory buckets (`--x-s3`), Google Cloud Storage, Azure.
///
/// `object_store` sends `start-after` to S3 and Google, and `startFrom` to Azure. An Azure account with a hierarchical
/// namespace lists `a/b` before `a-b`; what depends on that is noticed at the seams.
pub(super) fn is_known_to_be_ordered(display: &str) -> bool {
    let s3_bucket = display.strip_prefix("AmazonS3(").and_then(|rest| rest.strip_suffix(')'));
    s3_bucket.is_some_and(|bucket| !bucket.ends_with("--x-s3"))
        || display.starts_with("GoogleCloudStorage(")
        || display.starts_with("MicrosoftAzure {")
        || display == "InMemory"
}

/// Lists a folder by ranges. Fails with [`Error::ListingOrder`] if the store does not keep to the order of keys.
pub(super) fn list(
    store: Arc<dyn ObjectStore>,
    folder: Path,
    name: String,
    concurrency: usize,
    samples: Vec<String>,
) -> Listing {
    let ranges = KeyRanges::new(&folder, samples, concurrency);
    list_ranges(store, folder, name, concurrency.max(1), ranges)
}

/// Lists the given ranges, so many at once.
pub(super) fn list_ranges(
    store: Arc<dyn ObjectStore>,
    folder: Path,
    name: String,
    concurrency: usize,
    ranges: KeyRanges,
) -> Listing {
    let ranges = Mutex::new(ranges);
    let (unusable, changed) = (Mutex::default(), Notify::new());
    let listing = Arc::new(RangeListing { store, folder, name, ranges, unusable, changed });
    tasks::listing_of(concurrency, move |sender| {
        let mut workers = JoinSet::new();
        for _ in 0..concurrency {
            workers.spawn(Arc::clone(&listing).work(sender.clone()));
        }
        workers
    })
}

struct RangeListing {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    name: String,
    ranges: Mutex<KeyRanges>,
    /// Keys that can't be expressed. Two ranges may meet the same one beside their seam.
    unusable: Mutex<UnusableKeys>,
    /// Something happened that may let an idle worker begin a range, or end.
    changed: Notify,
}

#[derive(Default)]
struct UnusableKeys {
    met: HashSet<String>,
    /// Those that were not handed on yet.
    new: Vec<Listed>,
}

impl RangeListing {
    async fn work(self: Arc<Self>, sender: mpsc::Sender<Vec<Listed>>) -> Result<()> {
        while let Some(range) = self.next_range().await {
            self.list_range(range, &sender).await?;
            let unusable = std::mem::take(&mut self.unusable.lock().new);
            if !unusable.is_empty() && sender.send(unusable).await.is_err() {
                return Ok(());
            }
            self.changed.notify_waiters();
        }
        Ok(())
    }

    async fn next_range(&self) -> Option<Begun> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no notification is missed.
            changed.as_mut().enable();
            {
                let mut ranges = self.ranges.lock();
                if let Some(range) = ranges.begin() {
                    return Some(range);
                }
                if ranges.is_over() {
                    return None;
                }
            }
            changed.await;
        }
    }

    async fn list_range(&self, range: Begun, sender: &mpsc::Sender<Vec<Listed>>) -> Result<()> {
        let mut keys = self.keys_behind(range.start.as_ref()).fuse();
        let mut order = KeyOrder::behind(range.start.as_ref().map(Path::as_ref));
        loop {
            let mut page = self.next_page(&mut keys, &mut order, range.id).await?;
            let accepted = match page.is_empty() {
                true => self.ranges.lock().accept_end(range.id),
                false => self.ranges.lock().accept(range.id, &page),
            };
            self.changed.notify_waiters();
            let Accepted { taken, goes_on, doubts } = accepted;
            for doubt in doubts {
                self.look_again(doubt).await?;
            }
            page.truncate(taken);
            if taken > 0 && sender.send(page.into_iter().map(|key| listed(key.meta)).collect()).await.is_err() {
                return Ok(());
            }
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// The keys behind one, without those that can't be expressed: these are noted.
    fn keys_behind(&self, start: Option<&Path>) -> BoxStream<'_, object_store::Result<ObjectMeta>> {
        let keys = match start {
            Some(start) => self.store.list_with_offset(Some(&self.folder), start),
            None => self.store.list(Some(&self.folder)),
        };
        keys.filter(|item| {
            let unusable = item.as_ref().err().and_then(UnusableKey::of);
            if let Some(key) = unusable {
                self.note_unusable(key);
            }
            futures::future::ready(unusable.is_none())
        })
        .boxed()
    }

    fn note_unusable(&self, key: &UnusableKey) {
        let mut unusable = self.unusable.lock();
        if unusable.met.insert(key.0.clone()) {
            unusable.new.push(key.listed());
        }
    }

    /// The keys that are there without another request, at least one unless the listing is over. Stops at the end of the
    /// range: asking for one more key might be a request.
    async fn next_page(
        &self,
        keys: &mut (impl futures::stream::FusedStream<Item = object_store::Result<ObjectMeta>> + Unpin),
        order: &mut KeyOrder,
        range: usize,
    ) -> Result<Vec<ListedKey>> {
        let mut page: Vec<ListedKey> = Vec::new();
        let mut next = keys.try_next().await.map_err(|error| self.failed(error))?;
        // Only now, since the range may have become shorter while the page was on its way.
        let end = self.ranges.lock().end(range);
        while let Some(meta) = next {
            let key = order.next(meta).map_err(|(last, key)| self.out_of_order(&last, &key))?;
            let reaches_end = end.as_deref().is_some_and(|end| *key.key() >= *end);
            page.push(key);
            if reaches_end || page.len() == MAX_PAGE_KEYS {
                break;
            }
            next = match futures::poll!(keys.try_next()) {
                Poll::Ready(next) => next.map_err(|error| self.failed(error))?,
                Poll::Pending => break,
            };
        }
        Ok(page)
    }

    /// Asks the store for the two sides of a seam anew. If they agree now, somebody wrote there meanwhile; if they never do,
    /// the store has an order of its own.
    async fn look_again(&self, doubt: Doubt) -> Result<()> {
        let Doubt { boundary, before } = doubt;
        let path = |key: &str| Path::parse(key).map_err(|error| self.failed(error.into()));
        let before = before.as_deref().map(path).transpose()?;
        let behind = path(&boundary)?;
        let mut seen = (None, None);
        for _ in 0..SEAM_LOOKS {
            let mut from_before = self.keys_behind(before.as_ref()).try_skip_while(|meta| {
                let is_before = meta.location.as_ref() <= boundary.as_str();
                futures::future::ready(Ok(is_before))
            });
            let mut from_boundary = self.keys_behind(Some(&behind));
            let looks = futures::future::try_join(from_before.try_next(), from_boundary.try_next());
            let (next, first) = looks.await.map_err(|error| self.failed(error))?;
            let key = |meta: Option<ObjectMeta>| meta.map(|meta| meta.location.to_string());
            seen = (key(next), key(first));
            if seen.0 == seen.1 && seen.1.as_ref() != Some(&boundary) {
                return Ok(());
            }
        }
        let show = |key: &Option<String>| key.clone().unwrap_or_else(|| "nothing".into());
        Err(Error::ListingOrder {
            path: self.name.clone(),
            why: format!(
                "behind {boundary} the store lists {} or {}, depending on where the listing begins",
                show(&seen.0),
                show(&seen.1)
            ),
        })
    }

    fn out_of_order(&self, last: &str, key: &str) -> Error {
        Error::ListingOrder { path: self.name.clone(), why: format!("the store lists {key} behind {last}") }
    }

    fn failed(&self, error: object_store::Error) -> Error {
        Error::store("listing", self.name.clone(), error)
    }
}
