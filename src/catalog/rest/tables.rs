//! A table as the server tells of it: its metadata, and the stores its files are in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::execution::object_store::ObjectStoreRegistry;
use http::{HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Answer, aside};
use super::session::Session;
use super::settings::{Properties, is_true};
use crate::catalog::TableName;
use crate::error::{Error, Result};
use crate::storage::configured::{ConfiguredStores, CredentialSource, StorageCredentials, is_credential, overlaid};
use crate::table::{Location, TableMetadata};

/// How many sets of stores are kept for tables that are loaded again.
const KEPT_STORES: usize = 32;

/// Properties that say how to reach a store.
const STORE_PROPERTIES: [&str; 4] = ["s3.", "client.", "adls.", "gcs."];

/// What vended credentials look like where a server puts them into a table's configuration.
const VENDED: [&str; 4] = ["s3.access-key-id", "s3.session-token", "gcs.oauth2.token", "adls.sas-token."];

/// The answer to a load or a commit.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct TableAnswer<'a> {
    #[serde(default)]
    metadata_location: Option<String>,
    /// As it stands: nothing is lost that this crate doesn't know.
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(default)]
    config: Option<BTreeMap<String, Option<String>>>,
    #[serde(default)]
    storage_credentials: Option<Vec<VendedAnswer>>,
}

#[derive(Deserialize)]
struct VendedAnswer {
    prefix: String,
    config: BTreeMap<String, Option<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CredentialsAnswer {
    storage_credentials: Vec<VendedAnswer>,
}

/// A table as it was answered.
pub(super) struct AnsweredTable {
    pub(super) metadata: TableMetadata,
    pub(super) config: Properties,
    pub(super) credentials: Vec<StorageCredentials>,
}

impl AnsweredTable {
    /// Reads an answer, a large one where no other request waits for it.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(super) async fn read(body: &Bytes) -> Result<Self, Unusable> {
        let (size, body) = (body.len(), body.clone());
        aside(size, move || Self::parse(&body)).await.map_err(Unusable::Answer)?
    }

    /// # Errors
    /// Why the answer can't be understood, or the error of metadata that can't be.
    fn parse(body: &[u8]) -> Result<Self, Unusable> {
        let answer: TableAnswer<'_> = serde_json::from_slice(body).map_err(|why| Unusable::Answer(why.to_string()))?;
        let location = answer.metadata_location.filter(|location| !location.is_empty());
        let location = location.ok_or_else(|| Unusable::Answer("it has no metadata-location".into()))?;
        Location::parse(&location).map_err(|why| Unusable::Answer(why.to_string()))?;
        let metadata = TableMetadata::parse(&location, answer.metadata.get().as_bytes()).map_err(Unusable::Metadata)?;
        let config = without_null(answer.config.unwrap_or_default());
        let credentials = answer.storage_credentials.unwrap_or_default().into_iter().map(StorageCredentials::from);
        Ok(Self { metadata, config, credentials: credentials.collect() })
    }
}

/// Why an answer is of no use.
pub(super) enum Unusable {
    Answer(String),
    Metadata(Error),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answer(why) => f.write_str(why),
            Self::Metadata(why) => why.fmt(f),
        }
    }
}

impl From<VendedAnswer> for StorageCredentials {
    fn from(vended: VendedAnswer) -> Self {
        Self { prefix: vended.prefix, properties: without_null(vended.config) }
    }
}

fn without_null(properties: BTreeMap<String, Option<String>>) -> Properties {
    properties.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// Asks for a table. With `known`, a server that can tells by 304 that nothing changed.
pub(super) async fn ask_for_table(
    session: &Session,
    table: &TableName,
    snapshots: &str,
    known: Option<&str>,
) -> Result<Answer> {
    let mut url = session.url(session.server.paths.table(table, "tables", ""))?;
    url.query_pairs_mut().append_pair("snapshots", snapshots);
    let mut headers = delegation(session);
    if let Some(known) = known.and_then(|known| HeaderValue::from_str(known).ok()) {
        headers.push((http::header::IF_NONE_MATCH, known));
    }
    session.client.get(url, &headers, session.token_of(table).as_deref()).await
}

fn delegation(session: &Session) -> Vec<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_static("x-iceberg-access-delegation");
    match session.server.settings.headers.contains_key(&name) {
        true => vec![],
        false => vec![(name, HeaderValue::from_static("vended-credentials"))],
    }
}

/// The stores of tables, kept so that connections are reused.
#[derive(Debug, Default)]
pub(super) struct KnownStores {
    kept: Mutex<VecDeque<(StoresKey, Arc<ConfiguredStores>)>>,
}

/// What stores are made of, apart from vended credentials, which are handed on. Those that can ask for fresh ones belong to
/// one table.
#[derive(PartialEq)]
struct StoresKey {
    table: Option<(TableName, VendedIn)>,
    properties: Properties,
    /// By the prefix that they are for.
    vended: Vec<(String, Properties)>,
}

impl std::fmt::Debug for StoresKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoresKey").field("table", &self.table).finish_non_exhaustive()
    }
}

impl KnownStores {
    /// The stores that a table's files are in. `None` when neither catalog nor table say anything of stores.
    ///
    /// # Errors
    /// [`Error::Catalog`] when the server wants to sign each request to the store itself.
    pub(super) fn of(
        &self,
        session: &Arc<Session>,
        table: &TableName,
        answered: &AnsweredTable,
    ) -> Result<Option<Arc<dyn ObjectStoreRegistry>>> {
        let mut properties = overlaid(&session.server.settings.properties, &answered.config);
        properties.retain(|key, _| STORE_PROPERTIES.iter().any(|family| key.starts_with(family)));
        let (credentials, vended_in) = vended(answered);
        refuse_remote_signing(session, table, &properties, &credentials)?;
        if properties.is_empty() && credentials.is_empty() {
            return Ok(None);
        }
        let key = StoresKey::new(table, vended_in, &properties, &credentials);
        let mut kept = self.kept.lock();
        if let Some((_, stores)) = kept.iter().find(|(known, _)| *known == key) {
            if vended_in.is_some() {
                stores.replace_credentials(credentials);
            }
            return Ok(Some(Arc::clone(stores) as Arc<dyn ObjectStoreRegistry>));
        }
        let source = vended_in.map(|vended_in| {
            let (session, table) = (Arc::clone(session), table.clone());
            Arc::new(VendedAgain { session, table, vended_in }) as Arc<dyn CredentialSource>
        });
        let stores = ConfiguredStores::new(&properties).with_environment();
        let stores = Arc::new(match credentials.is_empty() {
            true => stores,
            false => stores.with_credentials(credentials, source),
        });
        kept.push_back((key, Arc::clone(&stores)));
        if kept.len() > KEPT_STORES {
            kept.pop_front();
        }
        Ok(Some(stores))
    }
}

impl StoresKey {
    fn new(
        table: &TableName,
        vended_in: Option<VendedIn>,
        properties: &Properties,
        credentials: &[StorageCredentials],
    ) -> Self {
        let without_credentials = |properties: &Properties| -> Properties {
            let others = properties.iter().filter(|(key, _)| !is_credential(key));
            others.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        Self {
            table: vended_in.map(|vended_in| (table.clone(), vended_in)),
            properties: match vended_in {
                Some(VendedIn::Config) => without_credentials(properties),
                _ => properties.clone(),
            },
            vended: credentials
                .iter()
                .map(|vended| (vended.prefix.clone(), without_credentials(&vended.properties)))
                .collect(),
        }
    }
}

/// Where a server put a table's credentials.
#[derive(Debug, Clone, Copy, PartialEq)]
enum VendedIn {
    StorageCredentials,
    Config,
}

/// The credentials that came with a table. Older servers put them into its configuration: those are for all locations.
fn vended(answered: &AnsweredTable) -> (Vec<StorageCredentials>, Option<VendedIn>) {
    if !answered.credentials.is_empty() {
        return (answered.credentials.clone(), Some(VendedIn::StorageCredentials));
    }
    if !answered.config.keys().any(|key| VENDED.iter().any(|vended| key.starts_with(vended))) {
        return (vec![], None);
    }
    let of_stores = |key: &str| STORE_PROPERTIES.iter().any(|family| key.starts_with(family));
    let properties = answered.config.iter().filter(|(key, _)| of_stores(key));
    let properties = properties.map(|(key, value)| (key.clone(), value.clone())).collect();
    (vec![StorageCredentials { prefix: String::new(), properties }], Some(VendedIn::Config))
}

fn refuse_remote_signing(
    session: &Session,
    table: &TableName,
    properties: &Properties,
    credentials: &[StorageCredentials],
) -> Result<()> {
    const SIGNING: &str = "s3.remote-signing-enabled";
    let own = &session.client_properties;
    let has_keys = properties.contains_key("s3.access-key-id") || !credentials.is_empty();
    match is_true(properties, SIGNING) && !has_keys && !own.contains_key(SIGNING) {
        false => Ok(()),
        true => Err(session.client.error(format!(
            "it wants to sign each request for the files of {table} itself ({SIGNING}), which is not supported. Let it vend \
             credentials, or give s3.access-key-id and s3.secret-access-key; {SIGNING}=false takes them from the environment"
        ))),
    }
}

/// Asks the server for fresh credentials of a table.
#[derive(Debug)]
struct VendedAgain {
    session: Arc<Session>,
    table: TableName,
    vended_in: VendedIn,
}

#[async_trait]
impl CredentialSource for VendedAgain {
    async fn refresh(&self) -> Result<Vec<StorageCredentials>> {
        const ENDPOINT: &str = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials";
        let session = &self.session;
        if self.vended_in == VendedIn::StorageCredentials && session.server.has(ENDPOINT) == Some(true) {
            let url = session.url(session.server.paths.table(&self.table, "tables", "/credentials"))?;
            let token = session.token_of(&self.table);
            let answer = session.client.get(url.clone(), &delegation(session), token.as_deref()).await?;
            if answer.status != StatusCode::OK {
                return Err(session.client.error(session.client.refusal(&answer, &url)));
            }
            let answer: CredentialsAnswer = serde_json::from_slice(&answer.body).map_err(|why| {
                session.client.error(format!("fresh credentials of {} can't be read: {why}", self.table))
            })?;
            return Ok(answer.storage_credentials.into_iter().map(StorageCredentials::from).collect());
        }
        let answer = ask_for_table(session, &self.table, "refs", None).await?;
        let fresh = match answer.status {
            StatusCode::OK => AnsweredTable::read(&answer.body).await.ok(),
            _ => None,
        };
        let fresh = fresh.map(|answered| vended(&answered).0).unwrap_or_default();
        match fresh.is_empty() {
            false => Ok(fresh),
            true => Err(session.client.error(format!("it gives no fresh credentials for {}", self.table))),
        }
    }
}
