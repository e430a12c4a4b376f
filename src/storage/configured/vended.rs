//! Credentials that a catalog vends, and their renewal.

#![cfg_attr(not(any(feature = "aws", feature = "azure", feature = "gcp")), allow(dead_code))]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
use async_trait::async_trait;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
use object_store::client::CredentialProvider;
use parking_lot::Mutex;

use super::bucket::Family;
use super::{CredentialSource, StorageCredentials, is_credential};

/// Credentials are renewed so long before they expire, or after half of their time if that is shorter.
const RENEWED_BEFORE_MS: i64 = 5 * 60 * 1000;
/// After a renewal that failed, the next one is tried so much later while the old credentials hold.
const RETRY_AFTER_MS: i64 = 10 * 1000;

/// All that a catalog vended for one table, shared by the stores that use it.
pub(super) struct Vended {
    state: Mutex<State>,
    source: Option<Arc<dyn CredentialSource>>,
    /// Held while the source is asked: one request at a time.
    renewing: tokio::sync::Mutex<()>,
}

struct State {
    credentials: Arc<Vec<StorageCredentials>>,
    fetched_ms: i64,
    /// When the source was last asked in vain.
    failed_ms: Option<i64>,
}

impl State {
    fn new(credentials: Vec<StorageCredentials>) -> Self {
        Self { credentials: Arc::new(credentials), fetched_ms: now_ms(), failed_ms: None }
    }
}

impl Vended {
    pub(super) fn new(credentials: Vec<StorageCredentials>, source: Option<Arc<dyn CredentialSource>>) -> Self {
        Self { state: Mutex::new(State::new(credentials)), source, renewing: tokio::sync::Mutex::default() }
    }

    pub(super) fn credentials(&self) -> Arc<Vec<StorageCredentials>> {
        Arc::clone(&self.state.lock().credentials)
    }

    /// The same source, with other credentials until it is asked.
    pub(super) fn with(&self, credential: StorageCredentials) -> Self {
        Self::new(vec![credential], self.source.clone())
    }

    /// Other credentials take the place of those there are, which serve nobody any more.
    pub(super) fn replace(&self, credentials: Vec<StorageCredentials>) {
        *self.state.lock() = State::new(credentials);
    }

    /// True when some credentials are for all locations of a family.
    pub(super) fn covers_all(&self, family: Family) -> bool {
        let is_of_family = |key: &String| is_credential(key) && Family::of_key(key) == Some(family);
        let covers = |credential: &StorageCredentials| {
            credential.prefix.is_empty() && credential.properties.keys().any(is_of_family)
        };
        self.credentials().iter().any(covers)
    }

    pub(super) fn can_renew(&self) -> bool {
        self.source.is_some()
    }

    /// The properties for a prefix that once was vended. Another prefix may stand for it after a renewal.
    fn properties(&self, prefix: &str) -> Option<BTreeMap<String, String>> {
        let credentials = self.credentials();
        let exact = credentials.iter().find(|credential| credential.prefix == prefix);
        let covering = || {
            let covers = credentials.iter().filter(|credential| prefix.starts_with(&credential.prefix));
            covers.max_by_key(|credential| credential.prefix.len())
        };
        let only = || credentials.first().filter(|_| credentials.len() == 1);
        exact.or_else(covering).or_else(only).map(|credential| credential.properties.clone())
    }

    fn is_due(&self, expires_ms: i64) -> bool {
        let (state, now) = (self.state.lock(), now_ms());
        // The time comes from a server, and may be any number.
        let before = (expires_ms.saturating_sub(state.fetched_ms) / 2).clamp(0, RENEWED_BEFORE_MS);
        let may_ask =
            now >= expires_ms || state.failed_ms.is_none_or(|failed| now >= failed.saturating_add(RETRY_AFTER_MS));
        self.source.is_some() && now >= expires_ms.saturating_sub(before) && may_ask
    }

    /// Asks the source, unless another task just did.
    async fn renew(&self, expires_ms: i64) -> crate::error::Result<()> {
        let Some(source) = &self.source else { return Ok(()) };
        let before = self.credentials();
        let _alone = self.renewing.lock().await;
        if !Arc::ptr_eq(&before, &self.credentials()) || !self.is_due(expires_ms) {
            return Ok(());
        }
        let fresh = source.refresh().await;
        let mut state = self.state.lock();
        match fresh {
            Ok(credentials) => {
                *state = State::new(credentials);
                Ok(())
            }
            Err(error) => {
                state.failed_ms = Some(now_ms());
                Err(error)
            }
        }
    }
}

impl fmt::Debug for Vended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vended").field("credentials", &self.credentials()).finish_non_exhaustive()
    }
}

/// A store's credential from properties, and when it expires, ms since the epoch.
pub(super) type Read<C> = Box<dyn Fn(&BTreeMap<String, String>) -> Result<(C, Option<i64>), String> + Send + Sync>;

/// The credentials of one prefix, as a store's client asks for them.
pub(super) struct VendedProvider<C> {
    vended: Arc<Vended>,
    prefix: String,
    read: Read<C>,
}

impl<C> VendedProvider<C> {
    pub(super) fn new(vended: Arc<Vended>, prefix: String, read: Read<C>) -> Self {
        Self { vended, prefix, read }
    }

    fn read(&self) -> object_store::Result<(C, Option<i64>)> {
        let properties = self.vended.properties(&self.prefix);
        let read = properties.map_or_else(|| Err("the catalog no longer gives any".into()), |all| (self.read)(&all));
        read.map_err(|why| failure(format!("credentials for {}: {why}", self.prefix).into()))
    }
}

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
#[async_trait]
impl<C: Send + Sync + 'static> CredentialProvider for VendedProvider<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let (credential, expires_ms) = self.read()?;
        let Some(expires_ms) = expires_ms.filter(|expires_ms| self.vended.is_due(*expires_ms)) else {
            return Ok(Arc::new(credential));
        };
        match self.vended.renew(expires_ms).await {
            Ok(()) => Ok(Arc::new(self.read()?.0)),
            Err(error) if now_ms() < expires_ms => {
                tracing::warn!(prefix = self.prefix, %error, "credentials were not renewed; the old ones still hold");
                Ok(Arc::new(credential))
            }
            Err(error) => Err(failure(Box::new(error))),
        }
    }
}

impl<C> fmt::Debug for VendedProvider<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VendedProvider").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn failure(source: Box<dyn std::error::Error + Send + Sync>) -> object_store::Error {
    object_store::Error::Generic { store: "vended credentials", source }
}

fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

#[cfg(all(test, feature = "aws"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::{Error, Result};

    #[derive(Debug, Default)]
    struct Source {
        asked: AtomicUsize,
        fails: bool,
    }

    #[async_trait]
    impl CredentialSource for Source {
        async fn refresh(&self) -> Result<Vec<StorageCredentials>> {
            let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            tokio::task::yield_now().await;
            match self.fails {
                true => Err(Error::Catalog { catalog: "c".into(), why: "it is down".into() }),
                false => Ok(vec![credential(&number.to_string(), 3_600_000)]),
            }
        }
    }

    fn credential(value: &str, lives_ms: i64) -> StorageCredentials {
        let expires = (now_ms() + lives_ms).to_string();
        let properties = BTreeMap::from([("key".to_string(), value.to_string()), ("expires".to_string(), expires)]);
        StorageCredentials { prefix: "s3://b/t".into(), properties }
    }

    fn provider(lives_ms: i64, source: &Arc<Source>) -> VendedProvider<String> {
        let vended = Vended::new(vec![credential("first", lives_ms)], Some(Arc::clone(source) as _));
        let mut state = vended.state.lock();
        state.fetched_ms -= 3_600_000;
        drop(state);
        let read = |all: &BTreeMap<String, String>| Ok((all["key"].clone(), all["expires"].parse().ok()));
        VendedProvider::new(Arc::new(vended), "s3://b/t".into(), Box::new(read))
    }

    async fn ten_at_once(provider: &VendedProvider<String>) -> Vec<object_store::Result<Arc<String>>> {
        futures::future::join_all((0..10).map(|_| provider.get_credential())).await
    }

    #[tokio::test]
    async fn credentials_are_renewed_once_a_while_before_they_expire() {
        let source = Arc::new(Source::default());
        for (lives_ms, expected, asked) in [(3_600_000, "first", 0), (60_000, "1", 1), (-1, "2", 2)] {
            let provider = provider(lives_ms, &source);
            for _ in 0..2 {
                let got: Vec<_> = ten_at_once(&provider).await.into_iter().map(|got| got.unwrap()).collect();
                assert!(got.iter().all(|got| **got == expected), "{got:?}");
            }
            assert_eq!(source.asked.load(Ordering::Relaxed), asked);
        }
    }

    #[tokio::test]
    async fn a_renewal_that_fails_matters_when_the_old_credentials_expired() {
        let source = Arc::new(Source { fails: true, ..Default::default() });
        let valid = provider(60_000, &source);
        assert!(ten_at_once(&valid).await.into_iter().all(|got| *got.unwrap() == "first"));
        assert_eq!(source.asked.load(Ordering::Relaxed), 1, "the next try comes later");
        let error = provider(-1, &source).get_credential().await.unwrap_err().to_string();
        assert!(error.contains("it is down"), "{error}");
    }

    #[test]
    fn any_number_may_be_the_time_of_expiry() {
        let vended = Vended::new(vec![], Some(Arc::<Source>::default() as _));
        assert!(!vended.is_due(i64::MAX) && vended.is_due(i64::MIN));
    }

    /// Those of a table in S3 say nothing of its files elsewhere.
    #[test]
    fn credentials_for_all_locations_are_for_their_family_alone() {
        let properties = BTreeMap::from([("s3.access-key-id".to_string(), "k".to_string())]);
        let vended = |prefix: &str| {
            Vended::new(vec![StorageCredentials { prefix: prefix.into(), properties: properties.clone() }], None)
        };
        assert!(vended("").covers_all(Family::S3) && !vended("").covers_all(Family::Google));
        assert!(!vended("s3://b").covers_all(Family::S3));
    }

    #[tokio::test]
    async fn credentials_that_were_replaced_are_used_no_more() {
        let provider = provider(3_600_000, &Arc::default());
        provider.vended.replace(vec![credential("fresh", 3_600_000)]);
        assert_eq!(*provider.get_credential().await.unwrap(), "fresh");
    }

    #[test]
    fn nothing_secret_is_printed() {
        let provider = provider(0, &Arc::default());
        let text = format!("{provider:?} {:?}", provider.vended);
        assert!(text.contains("s3://b/t") && !text.contains("first"), "{text}");
    }
}
