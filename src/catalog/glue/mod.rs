//! The AWS Glue Data Catalog.
//!
//! A commit writes the new metadata file, then updates Glue's table: the whole table as Glue has it, of which only the two
//! pointers change, on top of the version that was read. That Glue compares the version is proved before the first commit
//! by an update that must fail: one that changes nothing and names a version that is over. Where it is taken, two writers
//! could overwrite each other, and a commit of ours could be undone while its files go; so nothing is committed there.
//! On such a server this one update could itself overwrite a commit that came between reading and sending it, within a
//! few milliseconds and on a server that loses commits of its own accord; the metadata file of that commit stays, and the
//! message says so.

mod client;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use self::client::{GlueClient, GlueError, Repeat};
use self::table::{GlueTable, Kind, UpdateTable};
use super::pointer::{BuiltOn, MetadataFiles, PAUSES_BEFORE_LOOKING, committed, moved, printable};
use super::{Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};
use crate::error::{Error, Result};
use crate::table::Document;

/// What Glue answers to an update on top of a version that is over.
const CONFLICT: &str = "ConcurrentModificationException";
const NOT_FOUND: &str = "EntityNotFoundException";

/// The AWS Glue Data Catalog of one account and region.
///
/// Properties: `glue.region` or `client.region`, `glue.endpoint`, `glue.id` or `glue.catalog-id` (the account),
/// `glue.access-key-id`, `glue.secret-access-key` and `glue.session-token` (or `client.…`; otherwise the environment's
/// credentials), `glue.skip-archive` (true by default), and those of the object stores.
#[derive(Debug)]
pub struct GlueCatalog {
    name: String,
    client: GlueClient,
    /// Whether Glue forgets the version that an update replaces.
    skip_archive: bool,
    files: MetadataFiles,
    /// Set when Glue was seen to refuse an update on top of a version that is over.
    compares_versions: AtomicBool,
}

/// A page of an answer that lists something.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page<'a> {
    #[serde(borrow, default)]
    database_list: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    table_list: Vec<&'a RawValue>,
    #[serde(default)]
    next_token: Option<String>,
}

impl GlueCatalog {
    /// Reads the properties. Asks nothing of the server.
    ///
    /// # Errors
    /// [`Error::Catalog`] when a property is missing or wrong.
    pub fn new(name: &str, properties: &BTreeMap<String, String>) -> Result<Self> {
        let wrong = |why: String| Error::Catalog { catalog: name.into(), why };
        let skip_archive = match properties.get("glue.skip-archive").map(|value| value.to_ascii_lowercase()) {
            None => true,
            Some(value) if value == "true" => true,
            Some(value) if value == "false" => false,
            Some(value) => return Err(wrong(format!("glue.skip-archive is {value:?}, neither true nor false"))),
        };
        Ok(Self {
            name: name.into(),
            client: GlueClient::new(properties).map_err(wrong)?,
            skip_archive,
            files: MetadataFiles::new(name, properties),
            compares_versions: AtomicBool::new(false),
        })
    }

    /// The table as Glue has it now.
    async fn table(&self, table: &TableName) -> Result<GlueTable> {
        let database = self.database(table)?;
        let input = json!({"DatabaseName": database, "Name": table.name});
        let answer = match self.client.call("GetTable", &input, Repeat::Freely).await {
            Ok(answer) => answer,
            Err(error) if error.is(NOT_FOUND) => return Err(self.not_found(table, database).await),
            Err(error) => return Err(self.wrong(error.to_string())),
        };
        GlueTable::of_answer(&answer).map_err(|error| self.unreadable("GetTable", &error))
    }

    /// The table and its pointer, if it is an Iceberg table.
    async fn iceberg_table(&self, table: &TableName) -> Result<(GlueTable, String)> {
        let found = self.table(table).await?;
        match (found.kind(), found.pointer().map(str::to_string)) {
            (Kind::IcebergTable, Some(pointer)) => Ok((found, pointer)),
            (Kind::IcebergTable, None) => Err(self.wrong(format!("{table} has no metadata_location"))),
            (Kind::View, _) => Err(self.wrong(format!("{table} is a view, and only tables can be maintained"))),
            (Kind::Other(kind), _) => {
                Err(self.wrong(format!("{table} is no Iceberg table (its table_type is {kind:?})")))
            }
        }
    }

    /// Glue's databases have one level.
    fn database<'a>(&self, table: &'a TableName) -> Result<&'a str> {
        match table.namespace.as_slice() {
            [database] => Ok(database),
            _ => Err(Error::TableNotFound {
                table: format!("{}.{table}", self.name),
                why: "in Glue a table's name is database.table".into(),
            }),
        }
    }

    async fn not_found(&self, table: &TableName, database: &str) -> Error {
        let why = match self.has_database(database).await {
            Ok(true) => format!("database {database} has no such table"),
            Ok(false) => format!("there is no database {database}"),
            Err(error) => return error,
        };
        Error::TableNotFound { table: format!("{}.{table}", self.name), why }
    }

    async fn has_database(&self, database: &str) -> Result<bool> {
        match self.client.call("GetDatabase", &json!({"Name": database}), Repeat::Freely).await {
            Ok(_) => Ok(true),
            Err(error) if error.is(NOT_FOUND) => Ok(false),
            Err(error) => Err(self.wrong(error.to_string())),
        }
    }

    /// Sends an update on top of `version`.
    async fn update(
        &self,
        database: &str,
        input: &Document,
        version: u64,
    ) -> Result<std::result::Result<(), GlueError>> {
        let update = UpdateTable::new(database, input, self.skip_archive, version);
        let update = update.map_err(|error| self.unreadable("GetTable", &error))?;
        Ok(self.client.call("UpdateTable", &update, Repeat::IfNothingWasDone).await.map(|_| ()))
    }

    /// Proves that Glue refuses an update on top of a version that is over, as the module says.
    ///
    /// # Errors
    /// When it doesn't, or it is unknown whether it does.
    async fn prove_that_versions_count(&self, table: &TableName, now: &GlueTable, version: u64) -> Result<()> {
        if self.compares_versions.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A table that was never updated has no version that is over: one that never was does as well.
        let over = version.checked_sub(1).unwrap_or(u64::from(u32::MAX));
        match self.update(self.database(table)?, &now.unchanged_input(), over).await? {
            Err(error) if error.is(CONFLICT) => {
                self.compares_versions.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(self.wrong(format!(
                "whether it compares the VersionId of an update could not be found out, so nothing is committed: {error}"
            ))),
            Ok(()) => Err(self.takes_any_version(table, version).await),
        }
    }

    /// What to say of a server that took an update on top of a version that is over.
    async fn takes_any_version(&self, table: &TableName, version: u64) -> Error {
        let why = "it takes an update whatever its VersionId, so that two writers can overwrite each other's commits. \
                   Nothing is committed to such a catalog";
        match self.table(table).await {
            Ok(after) if after.version_id() == version.checked_add(1) => self.wrong(why.into()),
            _ => self.wrong(format!(
                "{why}. {table} changed just when this was found out: if a commit was made then, its metadata file is there, \
                 and the table may have to be pointed at it"
            )),
        }
    }

    /// Looks whether the table shows an update that Glue took.
    async fn verify(
        &self,
        table: &TableName,
        base: &str,
        new: &str,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome> {
        let now = match self.iceberg_table(table).await {
            Ok((_, now)) => now,
            Err(error) => return Ok(CommitOutcome::Unknown(format!("the update was taken; then {error}"))),
        };
        match self.files.is_built_on(&table.to_string(), &now, base, new, runtime).await {
            Ok(BuiltOn::Yes) => Ok(committed(new.into())),
            Ok(BuiltOn::CantTell(why)) => Ok(CommitOutcome::Unknown(format!("the update was taken; then {why}"))),
            Ok(BuiltOn::No) => Err(Error::CommitMismatch {
                catalog: self.name.clone(),
                table: table.to_string(),
                why: format!(
                    "its current metadata is {}, which was not made on top of {}: two writers have overwritten each other",
                    printable(&now),
                    printable(new)
                ),
            }),
            Err(error) => Ok(CommitOutcome::Unknown(format!("the update was taken; then {error}"))),
        }
    }

    /// Decides by the table what became of an update that was not answered.
    async fn settle(
        &self,
        table: &TableName,
        base: &GlueTable,
        new: &str,
        cause: &GlueError,
        runtime: &Arc<RuntimeEnv>,
    ) -> CommitOutcome {
        let mut unseen = String::new();
        for pause in PAUSES_BEFORE_LOOKING {
            tokio::time::sleep(pause).await;
            match self.iceberg_table(table).await {
                // The update may still be on its way.
                Ok((now, _)) if now.state() == base.state() => unseen = "the table does not show it".into(),
                Ok((now, pointer)) => {
                    let base = base.pointer().unwrap_or_default();
                    return match self.files.is_built_on(&table.to_string(), &pointer, base, new, runtime).await {
                        Ok(BuiltOn::Yes) => committed(new.into()),
                        // Its version is over, so ours is refused if it comes yet.
                        Ok(BuiltOn::No) => CommitOutcome::Conflict(format!("the table changed to {}", now.state())),
                        Ok(BuiltOn::CantTell(why)) => CommitOutcome::Unknown(format!("{cause}; then {why}")),
                        Err(error) => CommitOutcome::Unknown(format!("{cause}; then {error}")),
                    };
                }
                Err(error) => unseen = error.to_string(),
            }
        }
        CommitOutcome::Unknown(format!("{cause}; {unseen}"))
    }

    /// All pages of an answer that lists something.
    async fn pages(&self, operation: &str, mut input: serde_json::Value) -> Result<Vec<String>> {
        let (mut pages, mut seen) = (vec![], BTreeSet::new());
        loop {
            let page = match self.client.call(operation, &input, Repeat::Freely).await {
                Ok(page) => page,
                Err(error) => return Err(self.wrong(error.to_string())),
            };
            let token = self.page(operation, &page)?.next_token.filter(|token| !token.is_empty());
            pages.push(page);
            let Some(token) = token else { return Ok(pages) };
            if !seen.insert(token.clone()) {
                return Err(self.wrong(format!("its answers to {operation} have no end")));
            }
            input["NextToken"] = token.into();
        }
    }

    fn page<'a>(&self, operation: &str, answer: &'a str) -> Result<Page<'a>> {
        serde_json::from_str(answer).map_err(|error| self.unreadable(operation, &error))
    }

    fn wrong(&self, why: String) -> Error {
        Error::Catalog { catalog: self.name.clone(), why }
    }

    fn unreadable(&self, operation: &str, error: &serde_json::Error) -> Error {
        self.wrong(format!("its answer to {operation} can't be understood: {error}"))
    }

    /// The Iceberg tables of a database.
    async fn tables_in(&self, namespace: &[String]) -> Result<Vec<GlueTable>> {
        let [database] = namespace else {
            return Err(self.wrong(format!("it has no database {}", namespace.join("."))));
        };
        let mut tables = vec![];
        for page in self.pages("GetTables", json!({"DatabaseName": database})).await? {
            for table in self.page("GetTables", &page)?.table_list {
                let table = GlueTable::parse(table.get()).map_err(|error| self.unreadable("GetTables", &error))?;
                if table.kind() == Kind::IcebergTable {
                    tables.push(table);
                }
            }
        }
        Ok(tables)
    }
}

#[async_trait]
impl Catalog for GlueCatalog {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        let (found, pointer) = self.iceberg_table(table).await?;
        let metadata = self.files.read(&table.to_string(), &pointer, runtime).await?;
        let mut loaded = LoadedTable::new(format!("{}.{table}", self.name), metadata);
        loaded.version = found.state();
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
        let (now, pointer) = self.iceberg_table(table).await?;
        if now.state() != base.version || pointer != base.metadata.metadata_location() {
            return Ok(moved(&base.version, &now.state()));
        }
        let Some(version) = now.version_id() else {
            return Err(self.wrong(format!(
                "{table} has no VersionId that is a number, so that no update can be guarded. Commit through the table's \
                 own catalog"
            )));
        };
        self.prove_that_versions_count(table, &now, version).await?;
        let new = self.files.write_next(&base.metadata, commit, runtime).await?;
        let input = now.input_with_pointer(&new).map_err(|error| self.unreadable("GetTable", &error))?;
        match self.update(self.database(table)?, &input, version).await? {
            Ok(()) => self.verify(table, &pointer, &new, runtime).await,
            Err(error) if error.is(CONFLICT) => Ok(CommitOutcome::Conflict(error.to_string())),
            Err(error) if error.is_certain() => {
                Err(self.wrong(format!("it refused the commit to {table}, and nothing was changed: {error}")))
            }
            Err(cause) => Ok(self.settle(table, &now, &new, &cause, runtime).await),
        }
    }

    async fn list_namespaces(&self, parent: &[String], _runtime: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Database {
            name: String,
        }
        if !parent.is_empty() {
            let known = parent.len() == 1 && self.has_database(&parent[0]).await?;
            return if known {
                Ok(vec![])
            } else {
                Err(self.wrong(format!("it has no database {}", parent.join("."))))
            };
        }
        let mut namespaces = vec![];
        for page in self.pages("GetDatabases", json!({})).await? {
            for database in self.page("GetDatabases", &page)?.database_list {
                let database: Database =
                    serde_json::from_str(database.get()).map_err(|error| self.unreadable("GetDatabases", &error))?;
                namespaces.push(vec![database.name]);
            }
        }
        Ok(namespaces)
    }

    async fn list_tables(&self, namespace: &[String], _runtime: &Arc<RuntimeEnv>) -> Result<Vec<TableName>> {
        let name = |table: GlueTable| TableName { namespace: namespace.to_vec(), name: table.name().into() };
        Ok(self.tables_in(namespace).await?.into_iter().map(name).collect())
    }

    async fn metadata_locations(
        &self,
        namespace: &[String],
        _runtime: &Arc<RuntimeEnv>,
    ) -> Result<Option<Vec<(TableName, String)>>> {
        let tables = self.tables_in(namespace).await?;
        let pointer = |table: GlueTable| {
            let name = TableName { namespace: namespace.to_vec(), name: table.name().into() };
            table.pointer().map(|pointer| (name, pointer.to_string()))
        };
        Ok(Some(tables.into_iter().filter_map(pointer).collect()))
    }

    async fn is_current(&self, table: &TableName, loaded: &LoadedTable, _runtime: &Arc<RuntimeEnv>) -> Result<bool> {
        // A metadata file never changes: the same version and pointer are the same metadata.
        Ok(self.table(table).await?.state() == loaded.version)
    }
}
