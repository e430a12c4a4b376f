//! Where a table's current metadata is named, and how a new version becomes the current one.
//!
//! A catalog answers two questions: which metadata is the newest, and did a commit on top of it win. It never deletes,
//! and it never guesses: a commit whose outcome it can't tell is [`CommitOutcome::Unknown`].

mod commit;
mod connect;
mod filesystem;
#[cfg(feature = "glue")]
mod glue;
mod metadata_file;
mod neighbours;
#[cfg(any(feature = "sql", feature = "glue"))]
mod pointer;
#[cfg(feature = "rest")]
mod rest;
#[cfg(feature = "sql")]
mod sql;
mod survey;

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use serde::Serialize;

pub use commit::{CommitOutcome, TableCommit};
pub use connect::{connect, parse_specification};
pub use filesystem::FileSystemCatalog;
pub(crate) use filesystem::{VERSION_HINT, newest_metadata_file, refs_of};
pub(crate) use metadata_file::is_codec;
pub(crate) use neighbours::{CONCURRENT_LOADS, Look, Neighbours};
pub(crate) use survey::Survey;

use crate::error::{Error, Result};
use crate::storage::with_stores;
use crate::table::TableMetadata;

/// The name of a table in a catalog: a namespace of one or more parts, and the table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct TableName {
    /// The namespace's parts.
    pub namespace: Vec<String>,
    /// The table's own name.
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.namespace.iter().try_for_each(|part| write!(f, "{part}."))?;
        f.write_str(&self.name)
    }
}

/// Who may commit to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// The catalog that loaded the table commits to it.
    Ours,
    /// The metadata files bear a catalog's names, but the call came with a location: whoever names the current one is
    /// unknown. Reading is fine, committing is not.
    UnknownCatalog,
}

/// A table as a catalog sees it now.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadedTable {
    /// The table's name or location, for messages.
    pub name: String,
    /// The newest metadata.
    pub metadata: TableMetadata,
    /// What tells this state of the table from any other, in the catalog's own terms: a row version, an entity tag. Empty
    /// where the metadata's location says it all.
    pub version: String,
    /// Who may commit.
    pub ownership: Ownership,
    /// Other metadata files that may be the current one for somebody: orphan removal counts what they name as referenced.
    /// Filled only where the owner is unknown.
    pub other_metadata_locations: Vec<String>,
    /// What the operator should know of how the table was found.
    pub notices: Vec<String>,
    /// The stores that all files of this table are read from and deleted in, where the catalog names them or vends
    /// credentials. What they don't know is looked for in the session.
    pub stores: Option<Arc<dyn ObjectStoreRegistry>>,
}

impl LoadedTable {
    /// A table that the catalog may commit to, and whose metadata location says which version it is.
    pub fn new(name: impl Into<String>, metadata: TableMetadata) -> Self {
        Self {
            name: name.into(),
            metadata,
            version: String::new(),
            ownership: Ownership::Ours,
            other_metadata_locations: vec![],
            notices: vec![],
            stores: None,
        }
    }

    /// The session's context with the table's own stores in it.
    pub(crate) fn task(&self, task: &Arc<TaskContext>) -> Arc<TaskContext> {
        with_stores(task, self.stores.as_ref(), self.metadata.location().is_local())
    }

    /// True when both are the same state of the table.
    pub fn is_same_version(&self, other: &LoadedTable) -> bool {
        self.version == other.version && self.metadata.metadata_location() == other.metadata.metadata_location()
    }
}

/// A place that names the current metadata of tables.
///
/// An embedder implements this for an own catalog and passes it to
/// [`MaintenanceBuilder::catalog`](crate::MaintenanceBuilder::catalog).
#[async_trait]
pub trait Catalog: Debug + Send + Sync {
    /// Loads the newest metadata of a table. Must not answer from a cache: a stale answer is how live files get deleted.
    ///
    /// `runtime` holds the object stores of the session.
    ///
    /// # Errors
    /// [`Error::TableNotFound`] when there is no such table.
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable>;

    /// Tries to make `commit.new_metadata` the current metadata of the table that `base` is a view of.
    ///
    /// It must happen only if the table still is what `base` shows: the same metadata file where a pointer is swapped, the same
    /// uuid and the same snapshot for every expected ref where changes are applied to what is newest; anything else is
    /// [`CommitOutcome::Conflict`]. A new metadata file gets a name that nobody uses, and never overwrites one. Once the
    /// decisive request is sent, only the catalog's own word says that it did not happen: a time-out, a broken connection or
    /// an error that could be either is [`CommitOutcome::Unknown`].
    ///
    /// # Errors
    /// Only when the commit certainly did not happen and trying again won't help, and [`Error::CommitMismatch`] when the
    /// catalog did something else than it was asked for.
    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome>;

    /// Checks that the newest metadata, which shows a commit, holds all that it should. Asked after every commit, on the freshly
    /// loaded table. Catalogs that apply changes themselves look here for what else was lost with them; where a pointer is
    /// swapped only if it did not move, nothing can be (the default).
    ///
    /// # Errors
    /// [`Error::CommitMismatch`] when something that should have stayed is gone, or whether it is can't be told.
    async fn verify(
        &self,
        base: &LoadedTable,
        commit: &TableCommit,
        newest: &LoadedTable,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<()> {
        let _ = (base, commit, newest, runtime);
        Ok(())
    }

    /// The namespaces directly below one, each with all its parts; those at the top for an empty `parent`.
    ///
    /// # Errors
    /// [`Error::Catalog`] when there is no such namespace, and where the catalog can't list (the default).
    async fn list_namespaces(&self, parent: &[String], runtime: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>> {
        let _ = (parent, runtime);
        Err(cannot_list(self))
    }

    /// The tables of a namespace, without its views and without what lies in namespaces below it.
    ///
    /// # Errors
    /// As [`Self::list_namespaces`].
    async fn list_tables(&self, namespace: &[String], runtime: &Arc<RuntimeEnv>) -> Result<Vec<TableName>> {
        let _ = (namespace, runtime);
        Err(cannot_list(self))
    }

    /// The tables of a namespace with the location of each one's current metadata file, where the catalog tells it without
    /// loading them (`None`, the default, where it doesn't).
    ///
    /// # Errors
    /// As [`Self::list_tables`].
    async fn metadata_locations(
        &self,
        namespace: &[String],
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<Option<Vec<(TableName, String)>>> {
        let _ = (namespace, runtime);
        Ok(None)
    }

    /// False where two tables of the catalog can't have the same files, because a table is what its own folder holds.
    fn tables_may_share_files(&self) -> bool {
        true
    }

    /// True when `loaded` is still the newest metadata. The default loads the table again.
    async fn is_current(&self, table: &TableName, loaded: &LoadedTable, runtime: &Arc<RuntimeEnv>) -> Result<bool> {
        Ok(self.load(table, runtime).await?.is_same_version(loaded))
    }
}

fn cannot_list(catalog: &(impl Debug + ?Sized)) -> Error {
    Error::Catalog { catalog: format!("{catalog:?}"), why: CANNOT_LIST.into() }
}

const CANNOT_LIST: &str = "it can't list its tables; name one";

/// A table and the catalog that names it.
#[derive(Debug, Clone)]
pub(crate) struct TableHandle {
    catalog: Arc<dyn Catalog>,
    name: TableName,
    /// What is known of the catalog's tables where many of them are maintained in one call.
    survey: Option<Arc<Survey>>,
}

impl TableHandle {
    pub(crate) fn new(catalog: Arc<dyn Catalog>, name: TableName) -> Self {
        Self { catalog, name, survey: None }
    }

    pub(crate) async fn load(&self, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        self.catalog.load(&self.name, runtime).await
    }

    pub(crate) async fn commit(
        &self,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome> {
        self.catalog.commit(&self.name, base, commit, runtime).await
    }

    pub(crate) async fn verify(
        &self,
        base: &LoadedTable,
        commit: &TableCommit,
        newest: &LoadedTable,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<()> {
        self.catalog.verify(base, commit, newest, runtime).await
    }

    pub(crate) async fn is_current(&self, loaded: &LoadedTable, runtime: &Arc<RuntimeEnv>) -> Result<bool> {
        self.catalog.is_current(&self.name, loaded, runtime).await
    }
}

/// The catalogs and named tables of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalogs {
    /// Catalogs by lower-case name.
    pub(crate) catalogs: HashMap<String, Arc<dyn Catalog>>,
    /// Locations by lower-case table name.
    pub(crate) tables: HashMap<String, String>,
    /// The catalog of names that have none, in lower case.
    pub(crate) default_catalog: Option<String>,
}

/// The session's default catalog and schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) catalog: String,
    pub(crate) schema: String,
}

impl Catalogs {
    /// Finds what a table argument means: a registered name, `[catalog.]namespace.table`, or a location.
    ///
    /// Whatever holds a slash outside of quotes and is no registered name is a location; a relative path is resolved against the working
    /// directory. Parts of a name may be quoted. A name whose first part is no catalog is looked up in the default one.
    pub(crate) fn resolve(&self, table: &str, defaults: &Defaults) -> Result<TableHandle> {
        let mut parts: Vec<String> = split_name(table).into_iter().map(unquoted).collect();
        if let Some(location) = self.tables.get(&parts.join(".").to_lowercase()) {
            return Ok(at_location(location));
        }
        if has_unquoted_slash(table) {
            return Ok(at_location(&absolute(table)?));
        }
        if parts.iter().any(String::is_empty) {
            return Err(self.unknown(table));
        }
        let named = self.catalogs.get(&parts[0].to_lowercase()).filter(|_| parts.len() > 1);
        let catalog = match named {
            Some(catalog) => {
                parts.remove(0);
                catalog
            }
            None => self.default_catalog(&mut parts, defaults).ok_or_else(|| self.unknown(table))?,
        };
        let name = parts.pop().unwrap_or_default();
        Ok(TableHandle::new(Arc::clone(catalog), TableName { namespace: parts, name }))
    }

    /// The catalog of a name without one. A name without a namespace gets the session's schema if the session's catalog is
    /// the one; else it stays unknown.
    fn default_catalog(&self, parts: &mut Vec<String>, defaults: &Defaults) -> Option<&Arc<dyn Catalog>> {
        let of_session = self.catalogs.get(&defaults.catalog.to_lowercase());
        let only = || self.catalogs.values().next().filter(|_| self.catalogs.len() == 1);
        let catalog = match &self.default_catalog {
            Some(name) => self.catalogs.get(name),
            None => of_session.or_else(only),
        }?;
        if parts.len() == 1 {
            of_session.filter(|of_session| Arc::ptr_eq(of_session, catalog))?;
            parts.insert(0, defaults.schema.clone());
        }
        Some(catalog)
    }

    /// The names of tables; see [`Maintenance::list_tables`](crate::Maintenance::list_tables).
    pub(crate) async fn list_tables(&self, within: Option<&str>, runtime: &Arc<RuntimeEnv>) -> Result<Vec<String>> {
        let mut names = vec![];
        let Some(within) = within else {
            names.extend(self.tables.keys().cloned());
            for (name, catalog) in &self.catalogs {
                names.extend(tables_below(name, catalog, vec![], runtime).await?);
            }
            names.sort_unstable();
            return Ok(names);
        };
        let CatalogScope { name, catalog, namespace } = self.scope(within)?;
        names.extend(tables_below(&name, &catalog, namespace, runtime).await?);
        names.sort_unstable();
        Ok(names)
    }

    /// Finds what `catalog[.namespace]` means.
    ///
    /// # Errors
    /// [`Error::Catalog`] when no catalog of this name is registered. Whether there is such a namespace is not looked at.
    pub(crate) fn scope(&self, within: &str) -> Result<CatalogScope> {
        let mut parts: Vec<String> = split_name(within).into_iter().map(unquoted).collect();
        let name = parts.remove(0).to_lowercase();
        let catalog = self.catalogs.get(&name).ok_or_else(|| Error::Catalog {
            catalog: name.clone(),
            why: format!("there is no catalog of this name; {}", self.registered()),
        })?;
        if parts.iter().any(String::is_empty) {
            let why = format!("{within} is no name of a namespace in it");
            return Err(Error::Catalog { catalog: name, why });
        }
        Ok(CatalogScope { catalog: Arc::clone(catalog), name, namespace: parts })
    }

    fn unknown(&self, table: &str) -> Error {
        Error::TableNotFound {
            table: table.into(),
            why: format!(
                "{}. Give catalog.namespace.table, a registered name, or a location such as '/data/t' or 's3://bucket/t'",
                self.registered()
            ),
        }
    }

    fn registered(&self) -> String {
        let mut known: Vec<&str> = self.tables.keys().chain(self.catalogs.keys()).map(String::as_str).collect();
        known.sort_unstable();
        match known.is_empty() {
            true => "no tables or catalogs are registered".to_string(),
            false => format!("registered are: {}", known.join(", ")),
        }
    }
}

/// A catalog, or a namespace in it with all that is below.
#[derive(Debug, Clone)]
pub(crate) struct CatalogScope {
    /// The catalog's name, in lower case.
    pub name: String,
    pub catalog: Arc<dyn Catalog>,
    /// Empty for the whole catalog.
    pub namespace: Vec<String>,
}

/// The full names of the tables in a namespace and in all that are below it.
async fn tables_below(
    catalog_name: &str,
    catalog: &Arc<dyn Catalog>,
    namespace: Vec<String>,
    runtime: &Arc<RuntimeEnv>,
) -> Result<Vec<String>> {
    let (mut names, mut namespaces) = (vec![], vec![namespace]);
    while let Some(namespace) = namespaces.pop() {
        if namespace.len() > MAX_NAMESPACE_PARTS {
            let why = format!("its namespaces nest deeper than {MAX_NAMESPACE_PARTS}: {}…", namespace[..3].join("."));
            return Err(Error::Catalog { catalog: catalog_name.into(), why });
        }
        let below = catalog.list_namespaces(&namespace, runtime).await?;
        namespaces.extend(below.into_iter().filter(|below| below.len() > namespace.len()));
        if !namespace.is_empty() {
            let tables = catalog.list_tables(&namespace, runtime).await?;
            names.extend(tables.into_iter().map(|table| full_name(catalog_name, &table)));
        }
    }
    Ok(names)
}

/// A catalog whose namespaces nest deeper lists them in a circle.
const MAX_NAMESPACE_PARTS: usize = 32;

/// A table's name with its catalog, as the `table` argument takes it.
pub(crate) fn full_name(catalog: &str, table: &TableName) -> String {
    let parts = std::iter::once(catalog).chain(table.namespace.iter().map(String::as_str)).chain([table.name.as_str()]);
    parts.map(quoted).collect::<Vec<_>>().join(".")
}

/// A part of a name, quoted where it must be.
pub(crate) fn quoted(part: &str) -> String {
    match part.chars().all(|c| c.is_alphanumeric() || c == '_') {
        true => part.to_string(),
        false => format!("\"{}\"", part.replace('"', "\"\"")),
    }
}

/// Splits a name at the dots that are not inside quotes.
pub(crate) fn split_name(name: &str) -> Vec<&str> {
    let mut outside = outside_of_quotes();
    name.split(|c| outside(c) && c == '.').collect()
}

fn has_unquoted_slash(name: &str) -> bool {
    let mut outside = outside_of_quotes();
    name.chars().any(|c| outside(c) && c == '/')
}

/// Asked for each character of a name in turn: is it outside of quotes?
fn outside_of_quotes() -> impl FnMut(char) -> bool {
    let mut quote = None;
    move |c| {
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '"' || c == '`' => quote = Some(c),
            _ => {}
        }
        quote.is_none()
    }
}

fn unquoted(part: &str) -> String {
    for quote in ['"', '`'] {
        if let Some(inner) = part.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner.replace(&format!("{quote}{quote}"), &quote.to_string());
        }
    }
    part.to_string()
}

/// A table by its location: one whose current metadata is found by looking at its folder.
fn at_location(location: &str) -> TableHandle {
    let name = TableName { namespace: vec![], name: location.to_string() };
    TableHandle::new(Arc::new(FileSystemCatalog::default()), name)
}

/// A location as it is, and a relative path from the working directory.
pub(crate) fn absolute(table: &str) -> Result<String> {
    if table.starts_with('/') || !crate::table::location::split(table).scheme.is_empty() {
        return Ok(table.to_string());
    }
    let unusable = |why: String| Error::Location { location: table.into(), why };
    let here = std::env::current_dir().map_err(|e| unusable(format!("the working directory is unknown: {e}")))?;
    // Lexically: `x/../y` in a path that a person typed means what it says, links are resolved when the table is loaded.
    let mut path = here.clone();
    for part in table.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path.to_str().map(str::to_string).ok_or_else(|| unusable("the working directory's name is not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogs() -> Catalogs {
        let mut catalogs = Catalogs::default();
        catalogs.catalogs.insert("lake".into(), Arc::new(FileSystemCatalog::default()));
        catalogs.tables.insert("db.t".into(), "file:///data/t".into());
        catalogs
    }

    fn resolved_by(catalogs: &Catalogs, table: &str, defaults: &Defaults) -> String {
        match catalogs.resolve(table, defaults) {
            Ok(handle) => handle.name.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn resolved(table: &str) -> String {
        resolved_by(&catalogs(), table, &Defaults::default())
    }

    #[test]
    fn names_catalogs_and_locations_are_told_apart() {
        assert_eq!(resolved("DB.t"), "file:///data/t");
        assert_eq!(resolved("\"db\".`T`"), "file:///data/t");
        assert_eq!(resolved("Lake.ns.t"), "ns.t");
        assert_eq!(resolved("lake.\"a.b\".\"say \"\"hi\"\"\""), "a.b.say \"hi\"");
        assert_eq!(resolved("lake.t"), "t");
        assert_eq!(resolved("lake.\"a/b\".`t/\u{fc}`"), "a/b.t/\u{fc}");
        assert_eq!(resolved("s3://b/t"), "s3://b/t");
        assert_eq!(resolved("/data/t.v2/"), "/data/t.v2/");
        let here = std::env::current_dir().unwrap();
        assert_eq!(resolved("./a/../t"), here.join("t").display().to_string());
    }

    #[test]
    fn a_name_without_a_catalog_is_looked_up_in_the_default_one() {
        let of = |catalog: &str| Defaults { catalog: catalog.into(), schema: "public".into() };
        let mut two = catalogs();
        assert_eq!(resolved("ns.t"), "ns.t", "the only one");
        two.catalogs.insert("pond".into(), Arc::new(FileSystemCatalog::default()));
        assert!(resolved_by(&two, "ns.t", &of("datafusion")).contains("was not found"), "which of the two?");
        assert_eq!(resolved_by(&two, "a.b.t", &of("Pond")), "a.b.t");
        assert_eq!(resolved_by(&two, "t", &of("pond")), "public.t");
        two.default_catalog = Some("lake".into());
        assert_eq!(resolved_by(&two, "ns.t", &of("pond")), "ns.t");
        assert!(resolved_by(&two, "t", &of("pond")).contains("was not found"), "pond's schema is not lake's");
    }

    #[test]
    fn an_unknown_name_says_what_is_registered() {
        for unknown in ["t", "lake", "lake.", ""] {
            let error = resolved(unknown);
            assert!(error.contains("registered are: db.t, lake"), "{unknown}: {error}");
        }
    }
}
