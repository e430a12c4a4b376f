//! Catalogs in the tables of an SQL database: Iceberg Java's JDBC catalog and PyIceberg's SQL catalog.
//!
//! A commit writes the new metadata file, then swaps the pointer in the table's row in a transaction. It counts only when
//! the COMMIT was answered, or when the row shows it afterwards. Nothing here creates or alters a table, and SQLite never
//! creates a file.

mod connection;
mod database;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;

use self::connection::Connection;
use self::database::Database;
use self::tables::{Entry, Key, SchemaVersion, SwapError};
use super::pointer::{BuiltOn, MetadataFiles, PAUSES_BEFORE_LOOKING, committed, moved, printable};
use super::{Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};
use crate::error::{Error, Result};

/// How many tables a message names that a mistyped name may have meant.
const NAMED_TABLES: usize = 10;

/// A catalog in the tables of an SQLite or PostgreSQL database.
///
/// Properties: `uri` (as SQLAlchemy or JDBC spell it), `catalog-name` (what the column `catalog_name` holds, by default the
/// catalog's own name), `jdbc.user` and `jdbc.password`, and those of the object stores.
#[derive(Debug)]
pub struct SqlCatalog {
    name: String,
    /// What the column `catalog_name` holds.
    catalog_name: String,
    database: Database,
    files: MetadataFiles,
    /// Set once the tables were seen to have their last form. Those of the first one may be altered at any time.
    has_types: OnceLock<()>,
}

/// A connection, and which columns its tables have.
struct Session {
    connection: Connection,
    version: SchemaVersion,
}

impl SqlCatalog {
    /// Reads the properties. Asks nothing of the database.
    ///
    /// # Errors
    /// [`Error::Catalog`] when a property is missing or wrong.
    pub fn new(name: &str, properties: &BTreeMap<String, String>) -> Result<Self> {
        let wrong = |why: String| Error::Catalog { catalog: name.into(), why };
        let property = |key: &str| properties.get(key).map(String::as_str);
        let uri = property("uri").ok_or_else(|| wrong("it has no uri, such as sqlite:///catalog.db".into()))?;
        let database = Database::parse(uri, property("jdbc.user"), property("jdbc.password")).map_err(wrong)?;
        Ok(Self {
            name: name.into(),
            catalog_name: property("catalog-name").unwrap_or(name).into(),
            database,
            files: MetadataFiles::new(name, properties),
            has_types: OnceLock::new(),
        })
    }

    async fn open(&self) -> Result<Session> {
        let mut connection = self.database.connect().await.map_err(|error| self.error(&error))?;
        if self.has_types.get().is_some() {
            return Ok(Session { connection, version: SchemaVersion::V1 });
        }
        match tables::schema_version(&mut connection).await {
            Ok(Some(version)) => {
                if version == SchemaVersion::V1 {
                    self.has_types.get_or_init(|| ());
                }
                Ok(Session { connection, version })
            }
            Ok(None) => Err(self.wrong(format!(
                "{} has no table iceberg_tables, so it holds no Iceberg catalog. Nothing was created",
                self.database
            ))),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// The pointer of a table, read by a connection of its own.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] when there is no such row, [`Error::Catalog`] when it is no table's.
    async fn pointer(&self, table: &TableName) -> Result<String> {
        let mut session = self.open().await?;
        let namespace = table.namespace.join(".");
        let key = self.key(&namespace, table);
        let found = tables::find(&mut session.connection, session.version, key).await;
        let pointer = match found.map_err(|error| self.error(&error))? {
            Some(Entry::Table(pointer)) => Ok(pointer),
            Some(Entry::NoPointer) => Err(self.wrong(format!("its row of {table} names no metadata"))),
            Some(Entry::View) => Err(self.wrong(format!("{table} is a view, and only tables can be maintained"))),
            None => Err(self.not_found(&mut session, key, table).await),
        };
        session.connection.close().await;
        pointer
    }

    /// Says what is missing: the table, its namespace, or the catalog's name.
    async fn not_found(&self, session: &mut Session, key: Key<'_>, table: &TableName) -> Error {
        match self.what_is_missing(session, key).await {
            Ok(why) => Error::TableNotFound { table: format!("{}.{table}", self.name), why },
            Err(error) => self.error(&error),
        }
    }

    async fn what_is_missing(&self, session: &mut Session, key: Key<'_>) -> sqlx::Result<String> {
        let Session { connection, version } = session;
        let (own, place) = (&self.catalog_name, &self.database);
        let others = tables::catalogs_with(connection, key).await?;
        if !others.is_empty() {
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            return Ok(format!(
                "{place} has no such row with catalog_name {own:?}, but with {:?}. Set catalog-name",
                others.join(", ")
            ));
        }
        let namespaces = tables::namespaces(connection, own).await?;
        if !namespaces.iter().any(|namespace| is_within(namespace, key.namespace)) {
            return Ok(format!("{place} has no namespace {:?} with catalog_name {own:?}", key.namespace));
        }
        let names = tables::tables_in(connection, *version, own, key.namespace).await?;
        Ok(match names.is_empty() {
            true => format!("namespace {:?} has no tables", key.namespace),
            false => format!("namespace {:?} has {}", key.namespace, some_of(&names)),
        })
    }

    /// Decides by the row what became of a swap that failed.
    async fn settle(
        &self,
        table: &TableName,
        base: &str,
        new: &str,
        failed: SwapError,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome> {
        let cause = match &failed {
            SwapError::NotCommitted(error) | SwapError::CommitUnanswered(error) => self.describe(error),
        };
        let mut unseen = String::new();
        for pause in PAUSES_BEFORE_LOOKING {
            tokio::time::sleep(pause).await;
            match self.pointer(table).await {
                Ok(now) if now == base => {
                    unseen = "the row does not show it".into();
                    if matches!(failed, SwapError::NotCommitted(_)) {
                        break;
                    }
                }
                Ok(now) => {
                    return Ok(match self.files.is_built_on(&table.to_string(), &now, base, new, runtime).await {
                        Ok(BuiltOn::Yes) => committed(new.into()),
                        Ok(BuiltOn::No) => moved(base, &now),
                        Ok(BuiltOn::CantTell(why)) => CommitOutcome::Unknown(format!("{cause}; then {why}")),
                        Err(error) => CommitOutcome::Unknown(format!("{cause}; then {error}")),
                    });
                }
                Err(error) => unseen = error.to_string(),
            }
        }
        match failed {
            SwapError::NotCommitted(_) => {
                Err(self.wrong(format!("committing to {table} failed, and nothing was changed: {cause}")))
            }
            // The COMMIT may still be on its way.
            SwapError::CommitUnanswered(_) => Ok(CommitOutcome::Unknown(format!("{cause}; {unseen}"))),
        }
    }

    fn key<'a>(&'a self, namespace: &'a str, table: &'a TableName) -> Key<'a> {
        Key { catalog: &self.catalog_name, namespace, name: &table.name }
    }

    fn wrong(&self, why: String) -> Error {
        Error::Catalog { catalog: self.name.clone(), why }
    }

    fn error(&self, error: &sqlx::Error) -> Error {
        self.wrong(self.describe(error))
    }

    /// One line that names the database and what it said.
    fn describe(&self, error: &sqlx::Error) -> String {
        let said = match error {
            sqlx::Error::Database(error) => error.message().to_string(),
            error => error.to_string(),
        };
        format!("{}: {}", self.database, said.replace('\n', " "))
    }
}

#[async_trait]
impl Catalog for SqlCatalog {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        let pointer = self.pointer(table).await?;
        let metadata = self.files.read(&table.to_string(), &pointer, runtime).await?;
        let mut loaded = LoadedTable::new(format!("{}.{table}", self.name), metadata);
        loaded.version = pointer;
        loaded.stores = self.files.stores();
        Ok(loaded)
    }

    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome> {
        // A race that is lost already shall leave no file behind.
        let now = self.pointer(table).await?;
        if now != base.version {
            return Ok(moved(&base.version, &now));
        }
        let new = self.files.write_next(&base.metadata, commit, runtime).await?;
        let Session { mut connection, version } = self.open().await?;
        let namespace = table.namespace.join(".");
        let swapped = tables::swap(&mut connection, version, self.key(&namespace, table), &base.version, &new).await;
        connection.close().await;
        match swapped {
            Ok(1) => Ok(committed(new)),
            Ok(0) => {
                Ok(CommitOutcome::Conflict(format!("{} is no longer the current metadata", printable(&base.version))))
            }
            Ok(rows) => Err(self.wrong(format!("{rows} rows are those of {table}; nothing was changed"))),
            Err(failed) => self.settle(table, &base.version, &new, failed, runtime).await,
        }
    }

    async fn list_namespaces(&self, parent: &[String], _runtime: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>> {
        let mut session = self.open().await?;
        let all = tables::namespaces(&mut session.connection, &self.catalog_name).await;
        let all = all.map_err(|error| self.error(&error))?;
        session.connection.close().await;
        let within = parent.join(".");
        if !parent.is_empty() && !all.iter().any(|namespace| is_within(namespace, &within)) {
            return Err(self.wrong(format!("it has no namespace {within:?}")));
        }
        let children: BTreeSet<Vec<String>> = all
            .iter()
            .map(|namespace| namespace.split('.').map(String::from).collect::<Vec<_>>())
            .filter(|parts| parts.len() > parent.len() && parts.starts_with(parent) && !parts[0].is_empty())
            .map(|mut parts| {
                parts.truncate(parent.len() + 1);
                parts
            })
            .collect();
        Ok(children.into_iter().collect())
    }

    async fn list_tables(&self, namespace: &[String], _runtime: &Arc<RuntimeEnv>) -> Result<Vec<TableName>> {
        let Session { mut connection, version } = self.open().await?;
        let joined = namespace.join(".");
        let names = tables::tables_in(&mut connection, version, &self.catalog_name, &joined).await;
        let names = names.map_err(|error| self.error(&error))?;
        if names.is_empty() {
            let all =
                tables::namespaces(&mut connection, &self.catalog_name).await.map_err(|error| self.error(&error))?;
            if !all.iter().any(|known| is_within(known, &joined)) {
                return Err(self.wrong(format!("it has no namespace {joined:?}")));
            }
        }
        connection.close().await;
        Ok(names.into_iter().map(|name| TableName { namespace: namespace.to_vec(), name }).collect())
    }

    async fn metadata_locations(
        &self,
        namespace: &[String],
        _runtime: &Arc<RuntimeEnv>,
    ) -> Result<Option<Vec<(TableName, String)>>> {
        let Session { mut connection, version } = self.open().await?;
        let joined = namespace.join(".");
        let pointers = tables::pointers_in(&mut connection, version, &self.catalog_name, &joined).await;
        let pointers = pointers.map_err(|error| self.error(&error))?;
        connection.close().await;
        let named = |(name, pointer)| (TableName { namespace: namespace.to_vec(), name }, pointer);
        Ok(Some(pointers.into_iter().map(named).collect()))
    }

    async fn is_current(&self, table: &TableName, loaded: &LoadedTable, _runtime: &Arc<RuntimeEnv>) -> Result<bool> {
        // A metadata file never changes: the same pointer is the same metadata.
        Ok(self.pointer(table).await? == loaded.version)
    }
}

/// True when a namespace is another one, or lies in it.
fn is_within(namespace: &str, parent: &str) -> bool {
    namespace.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Some names, and how many more there are.
fn some_of(names: &BTreeSet<String>) -> String {
    let some: Vec<&str> = names.iter().take(NAMED_TABLES).map(String::as_str).collect();
    match names.len() - some.len() {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}
