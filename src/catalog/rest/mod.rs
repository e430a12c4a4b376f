//! Catalogs behind an Iceberg REST server.
//!
//! The server applies changes itself, so a commit says what must still be true (the table's uuid, the snapshot of every
//! ref) and what to take out. Servers differ in how well they do that: after each commit the metadata that came back is
//! compared with what was asked for, and a difference stops the run before any file goes. An answer that doesn't come
//! leaves the outcome unknown; a commit is never sent twice on a guess.

mod auth;
mod client;
mod entity_tags;
mod listing;
mod missing;
mod paths;
mod session;
mod settings;
mod sigv4;
mod tables;
#[cfg(test)]
mod tests;
mod updates;
mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::sync::OnceCell;

use self::client::{Answer, Failure, Request};
use self::entity_tags::EntityTags;
use self::listing::{Page, list};
use self::session::Session;
use self::settings::Settings;
use self::tables::{AnsweredTable, KnownStores, Unusable, ask_for_table};
use super::{Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};
use crate::error::{Error, Result};
use crate::storage::{Stores, runtime_with_stores};
use crate::table::TableMetadata;

/// Up to so many snapshots are removed one by one without asking whether the server takes several at once.
const FEW_SNAPSHOTS: usize = 20;

/// Tables of an Iceberg REST server.
///
/// Properties have Iceberg's and PyIceberg's own names: `uri`, `warehouse`, `prefix`; `token`, or `credential` with
/// `oauth2-server-uri`, `scope`, `audience` and `resource`; `header.*`; `rest.sigv4-enabled`, `rest.signing-name`,
/// `rest.signing-region`, `rest.access-key-id`, `rest.secret-access-key`, `rest.session-token`;
/// `rest.client.connection-timeout-ms` and `rest.client.socket-timeout-ms`; `rest-page-size`. Those of stores (`s3.*`,
/// `client.*`, `adls.*`, `gcs.*`) are handed on, others are ignored.
pub struct RestCatalog {
    name: String,
    settings: Settings,
    session: OnceCell<Arc<Session>>,
    /// Whether the server takes several snapshots in one update; asked once.
    takes_id_lists: OnceCell<bool>,
    entity_tags: EntityTags,
    stores: KnownStores,
}

impl fmt::Debug for RestCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = paths::printable(&self.settings.uri);
        f.debug_struct("RestCatalog").field("name", &self.name).field("uri", &uri).finish_non_exhaustive()
    }
}

impl RestCatalog {
    /// Reads the properties. Asks nothing of the server.
    ///
    /// # Errors
    /// [`Error::Catalog`] when a property is missing or wrong.
    pub fn new(name: &str, properties: &BTreeMap<String, String>) -> Result<Self> {
        let settings = Settings::new(properties).map_err(|why| Error::Catalog { catalog: name.into(), why })?;
        Ok(Self {
            name: name.into(),
            settings,
            session: OnceCell::new(),
            takes_id_lists: OnceCell::new(),
            entity_tags: EntityTags::default(),
            stores: KnownStores::default(),
        })
    }

    /// The server's configuration is fetched at the first use.
    async fn session(&self) -> Result<&Arc<Session>> {
        self.session.get_or_try_init(async || Ok(Arc::new(Session::open(&self.name, &self.settings).await?))).await
    }

    async fn answered(&self, session: &Session, table: &TableName, answer: &Answer) -> Result<AnsweredTable> {
        match answer.status {
            StatusCode::OK => AnsweredTable::read(&answer.body).await.map_err(|why| match why {
                Unusable::Metadata(why) => why,
                Unusable::Answer(why) => {
                    session.client.error(format!("what it answers for {table} can't be used: {why}"))
                }
            }),
            StatusCode::NOT_FOUND => Err(missing::table_not_found(session, table, answer).await),
            _ => {
                let url = session.url(session.server.paths.table(table, "tables", ""))?;
                Err(session.client.error(session.client.refusal(answer, &url)))
            }
        }
    }

    fn loaded(
        &self,
        session: &Arc<Session>,
        table: &TableName,
        answer: &Answer,
        answered: AnsweredTable,
    ) -> Result<LoadedTable> {
        session.keep_token(table, &answered.config);
        let stores = self.stores.of(session, table, &answered)?;
        let mut loaded = LoadedTable::new(format!("{}.{table}", self.name), answered.metadata);
        let etag = answer.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
        loaded.version = etag.unwrap_or_default().to_string();
        self.entity_tags.note(table, &loaded.version, loaded.metadata.metadata_location());
        loaded.stores = stores;
        Ok(loaded)
    }

    /// Refuses an answer that lacks what the table's metadata file has.
    async fn refuse_parts(&self, session: &Session, loaded: &mut LoadedTable, runtime: &Arc<RuntimeEnv>) -> Result<()> {
        let stores = Stores::new(runtime_with_stores(runtime, loaded.stores.as_ref()));
        let file = loaded.metadata.metadata_location();
        match verify::missing_in_answer(&loaded.metadata, &stores).await {
            Ok(None) => {}
            Ok(Some(what)) => {
                return Err(session.client.error(format!(
                    "what it answers for {} lacks {what}, which {file} has. A server that shows only a part of a table can't be \
                     relied on: the files of the rest would count as dead",
                    loaded.name
                )));
            }
            Err(why) => {
                let notice = format!("whether the catalog's answer is the whole table could not be checked: {why}");
                loaded.notices.push(notice);
            }
        }
        Ok(())
    }

    /// Compares what the server has after a commit with what was asked for.
    async fn refuse_difference(
        &self,
        base: &LoadedTable,
        commit: &TableCommit,
        found: &TableMetadata,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<()> {
        let stores = Stores::new(runtime_with_stores(runtime, base.stores.as_ref()));
        match verify::difference(&base.metadata, commit, found, &stores).await {
            None => Ok(()),
            Some(why) => Err(Error::CommitMismatch { catalog: self.name.clone(), table: base.name.clone(), why }),
        }
    }

    /// How many snapshots one update may remove.
    async fn ids_per_update(
        &self,
        session: &Session,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
    ) -> Result<usize> {
        if commit.change.removed_snapshot_ids.len() <= FEW_SNAPSHOTS {
            return Ok(1);
        }
        if let Some(takes_lists) = self.takes_id_lists.get() {
            return Ok(if *takes_lists { updates::IDS_PER_UPDATE } else { 1 });
        }
        let body = updates::probe_body(table, &base.metadata);
        let takes_lists = match session.client.send(commit_request(session, table, body)?).await.map(|a| a.status) {
            Ok(status) if status.is_success() => {
                return Err(session.client.error(
                    "it took a commit whose requirement can't be true. A server that ignores requirements would let \
                     concurrent changes be lost, so nothing is committed to it",
                ));
            }
            Ok(StatusCode::CONFLICT) => true,
            Ok(StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::INTERNAL_SERVER_ERROR) => false,
            // That says nothing of lists.
            Ok(_) | Err(_) => return Ok(1),
        };
        // Another call may have asked meanwhile, and got the same answer.
        let _ = self.takes_id_lists.set(takes_lists);
        Ok(if takes_lists { updates::IDS_PER_UPDATE } else { 1 })
    }
}

fn commit_request(session: &Session, table: &TableName, body: Vec<u8>) -> Result<Request> {
    let mut headers = vec![];
    if session.server.takes_idempotency_keys
        && let Ok(key) = HeaderValue::from_str(&idempotency_key())
    {
        headers.push((HeaderName::from_static("idempotency-key"), key));
    }
    Ok(Request {
        method: Method::POST,
        url: session.url(session.server.paths.table(table, "tables", ""))?,
        headers,
        body: Some(body.into()),
        token: session.token_of(table),
        timeout: session.server.settings.commit_timeout,
    })
}

/// A UUID of version 7: the time in ms, then random bits.
fn idempotency_key() -> String {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut bytes = *uuid::Uuid::new_v4().as_bytes();
    bytes[..6].copy_from_slice(&since_epoch.as_millis().to_be_bytes()[10..]);
    uuid::Builder::from_bytes(bytes)
        .with_variant(uuid::Variant::RFC4122)
        .with_version(uuid::Version::SortRand)
        .into_uuid()
        .to_string()
}

#[async_trait]
impl Catalog for RestCatalog {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        let session = self.session().await?;
        let answer = ask_for_table(session, table, "all", None).await?;
        let answered = self.answered(session, table, &answer).await?;
        let mut loaded = self.loaded(session, table, &answer, answered)?;
        self.refuse_parts(session, &mut loaded, runtime).await?;
        Ok(loaded)
    }

    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome> {
        let session = self.session().await?;
        if !commit.change.restored.is_empty() {
            return Err(session.client.error(
                "a REST catalog takes only snapshots that are newer than all that the table had, so what expired can't be put back \
                 through it. Register the table in a catalog that swaps metadata files, or roll it back on the server",
            ));
        }
        let ids_per_update = self.ids_per_update(session, table, base, commit).await?;
        let body = updates::commit_body(table, &base.metadata, commit, ids_per_update);
        let request = commit_request(session, table, body)?;
        let url = request.url.clone();
        let answer = match session.client.send(request).await {
            Ok(answer) => answer,
            Err(Failure::NotMade(why) | Failure::NoConnection(why)) => return Err(session.client.error(why)),
            Err(Failure::TimedOut(why) | Failure::Broken(why)) => return Ok(CommitOutcome::Unknown(why)),
        };
        let refusal = || session.client.refusal(&answer, &url);
        match answer.status.as_u16() {
            200..300 => {}
            409 => return Ok(CommitOutcome::Conflict(refusal())),
            404 => return Err(missing::table_not_found(session, table, &answer).await),
            // Too early, too many, too long: nothing says that it was not carried out.
            408 | 425 | 429 | 500..600 => {
                return Ok(CommitOutcome::Unknown(format!(
                    "{} answered {}{}",
                    paths::printable(&url),
                    answer.status,
                    session.client.says(&answer)
                )));
            }
            _ => return Err(session.client.error(format!("the commit was not taken: {}", refusal()))),
        }
        let answered = match AnsweredTable::read(&answer.body).await {
            Ok(answered) => answered,
            Err(why) => {
                return Ok(CommitOutcome::Unknown(format!(
                    "the server took the commit, but its answer can't be used: {why}"
                )));
            }
        };
        self.refuse_difference(base, commit, &answered.metadata, runtime).await?;
        let metadata_location = answered.metadata.metadata_location().to_string();
        Ok(CommitOutcome::Committed { metadata_location, notices: vec![] })
    }

    async fn verify(
        &self,
        base: &LoadedTable,
        commit: &TableCommit,
        newest: &LoadedTable,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<()> {
        self.refuse_difference(base, commit, &newest.metadata, runtime).await
    }

    async fn list_namespaces(&self, parent: &[String], _runtime: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>> {
        let session = self.session().await?;
        let paths = &session.server.paths;
        let url = session.url(paths.namespaces())?;
        let asked = (!parent.is_empty()).then(|| paths.as_parameter(parent));
        let mut namespaces = list(session, &url, asked.as_deref(), Page::All).await?.namespaces;
        // Servers that don't know the parameter list the namespaces at the top.
        namespaces.retain(|namespace| namespace.len() == parent.len() + 1 && namespace.starts_with(parent));
        Ok(namespaces)
    }

    async fn list_tables(&self, namespace: &[String], _runtime: &Arc<RuntimeEnv>) -> Result<Vec<TableName>> {
        if namespace.is_empty() {
            return Ok(vec![]);
        }
        let session = self.session().await?;
        let url = session.url(session.server.paths.listing(namespace, "tables"))?;
        let listed = list(session, &url, None, Page::All).await?.identifiers;
        let here = listed.into_iter().filter(|table| table.namespace.len() == namespace.len());
        Ok(here.map(|table| TableName { namespace: table.namespace, name: table.name }).collect())
    }

    async fn is_current(&self, table: &TableName, loaded: &LoadedTable, _runtime: &Arc<RuntimeEnv>) -> Result<bool> {
        let session = self.session().await?;
        let known = Some(loaded.version.as_str()).filter(|tag| !tag.is_empty() && self.entity_tags.are_believed());
        let answer = ask_for_table(session, table, "all", known).await?;
        if answer.status == StatusCode::NOT_MODIFIED && known.is_some() {
            return Ok(true);
        }
        let answered = self.answered(session, table, &answer).await?;
        session.keep_token(table, &answered.config);
        // A table that was dropped and made again may have a file of the same name.
        let (seen, now) = (&loaded.metadata, &answered.metadata);
        Ok(seen.metadata_location() == now.metadata_location() && seen.is_same_document(now))
    }
}
