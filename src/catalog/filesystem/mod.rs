//! Tables whose current metadata is found by looking at their folder.
//!
//! "Hadoop" tables keep `metadata/v<N>.metadata.json`; the highest N is the current version and a commit creates N+1 if
//! nobody else did. `version-hint.text` is only a hint for readers: it is written after a commit and never believed.
//!
//! A folder whose files bear a catalog's names (`00012-<uuid>.metadata.json`) has an owner that this catalog can't see.
//! Such a table is loaded, with everything that any of its metadata files names counted as referenced, but committing to
//! it is refused unless the call says that there is no catalog.

mod hint;
mod versions;
mod warehouse;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;

pub(crate) use hint::VERSION_HINT;
use hint::{check_hint, write_hint};
use versions::{MetadataFileName, MetadataFiles, Naming, settle, spellings};
use warehouse::Warehouse;

use super::metadata_file::{encode, extension, stem};
use super::{Catalog, CommitOutcome, LoadedTable, Ownership, TableCommit, TableName, cannot_list};
use crate::error::{Error, Result};
use crate::storage::configured::ConfiguredStores;
use crate::storage::{FileStat, Store, Stores, runtime_with_stores};
use crate::table::location::percent_decoded;
use crate::table::{Location, PathRules, TableIdentity, TableMetadata};

const METADATA_FOLDER: &str = "metadata";

/// Tables on a file system or object store without any other catalog.
///
/// Without a warehouse, table names are locations; with one, table `a.b.t` lives in `<warehouse>/a/b/t`, as in Java's
/// `HadoopCatalog`.
#[derive(Debug, Clone, Default)]
pub struct FileSystemCatalog {
    warehouse: Option<Warehouse>,
    stores: Option<Arc<dyn ObjectStoreRegistry>>,
}

impl FileSystemCatalog {
    /// Tables below a warehouse folder.
    pub fn with_warehouse(location: impl Into<String>) -> Self {
        Self { warehouse: Some(Warehouse::new(location.into())), stores: None }
    }

    /// The same; object stores come from these properties (`s3.*`, `client.*`, `adls.*`, `gcs.*`) where one speaks of them.
    pub fn with_properties(self, properties: &BTreeMap<String, String>) -> Self {
        Self { stores: ConfiguredStores::of_catalog(properties), ..self }
    }

    fn stores(&self, runtime: &Arc<RuntimeEnv>) -> Stores {
        Stores::new(runtime_with_stores(runtime, self.stores.as_ref()))
    }

    fn location(&self, table: &TableName) -> Result<Location> {
        match &self.warehouse {
            Some(warehouse) => warehouse.location(table),
            None => Location::parse(&table.name),
        }
    }

    fn warehouse(&self) -> Result<&Warehouse> {
        self.warehouse.as_ref().ok_or_else(|| cannot_list(self))
    }
}

#[async_trait]
impl Catalog for FileSystemCatalog {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        let stores = self.stores(runtime);
        let found = find_table(&stores, self.location(table)?).await;
        let (location, store, files) = match (&self.warehouse, found) {
            (Some(warehouse), Err(Error::TableNotFound { .. })) => {
                return Err(warehouse.not_found(table, &stores).await);
            }
            (_, found) => found?,
        };
        let folder = location.child(METADATA_FOLDER);
        let version = version_of(&store, &folder, &files).await?;
        let newest = read_metadata(&store, &folder, &files.newest).await?;
        check_location(&location, &newest, &store)?;
        // The table's own spelling of its location, so that the metadata log names files as the table's writers do.
        let own_folder = newest.location().child(METADATA_FOLDER);
        let metadata = newest.with_metadata_location(&own_folder.child(&files.newest.name).to_text());
        let mut loaded = LoadedTable::new(location.to_string(), metadata);
        loaded.version = version;
        loaded.stores = self.stores.clone();
        match files.newest.naming {
            Naming::Hadoop => {
                let table = TableIdentity::of(&loaded.metadata);
                loaded.notices.extend(check_hint(&location, &store, &files, &table).await?);
            }
            Naming::Catalog => {
                loaded.ownership = Ownership::UnknownCatalog;
                let others = files.others.iter().map(|file| &file.name).chain(&files.unversioned);
                loaded.other_metadata_locations = others.map(|name| own_folder.child(name).to_text()).collect();
            }
        }
        Ok(loaded)
    }

    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome> {
        let stores = self.stores(runtime);
        let (location, store, files) = find_table(&stores, self.location(table)?).await?;
        let folder = location.child(METADATA_FOLDER);
        if let Some(conflict) = conflict_with(base, &store, &folder, &files).await? {
            return Ok(CommitOutcome::Conflict(conflict));
        }
        let Some(version) = files.newest.version.checked_add(1) else {
            return Err(Error::InvalidMetadata {
                path: base.metadata.metadata_location().into(),
                why: "its version number can't grow any further".into(),
            });
        };
        store.prove_create(&folder).await?;
        let gzip = base.metadata.properties().gzip_metadata();
        let extension = extension(gzip);
        let name = match files.newest.naming {
            Naming::Hadoop => format!("v{version}.{extension}"),
            Naming::Catalog => format!("{version:05}-{}.{extension}", uuid::Uuid::new_v4()),
        };
        if let Some(outcome) =
            write_version(&store, &folder, version, &name, encode(&commit.new_metadata, gzip)?).await?
        {
            return Ok(outcome);
        }
        let mut notices = vec![];
        if files.newest.naming == Naming::Hadoop
            && let Err(error) = write_hint(&store, &folder, version).await
        {
            notices.push(format!("the commit is done, but {VERSION_HINT} could not be updated: {error}"));
        }
        let metadata_location = base.metadata.location().child(METADATA_FOLDER).child(&name).to_text();
        Ok(CommitOutcome::Committed { metadata_location, notices })
    }

    async fn list_namespaces(&self, parent: &[String], runtime: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>> {
        self.warehouse()?.namespaces(parent, &self.stores(runtime)).await
    }

    async fn list_tables(&self, namespace: &[String], runtime: &Arc<RuntimeEnv>) -> Result<Vec<TableName>> {
        self.warehouse()?.tables(namespace, &self.stores(runtime)).await
    }

    fn tables_may_share_files(&self) -> bool {
        false
    }

    async fn is_current(&self, table: &TableName, loaded: &LoadedTable, runtime: &Arc<RuntimeEnv>) -> Result<bool> {
        let stores = self.stores(runtime);
        let known = loaded.metadata.metadata_location().rsplit('/').next().and_then(MetadataFileName::parse);
        let Some(known) = known.filter(|known| known.naming == Naming::Hadoop) else {
            let (location, store, files) = find_table(&stores, self.location(table)?).await?;
            return Ok(version_of(&store, &location.child(METADATA_FOLDER), &files).await? == loaded.version);
        };
        // A table that is asked about before each batch of deletes: looking for the next version beats a listing.
        let folder = loaded.metadata.location().child(METADATA_FOLDER);
        let store = stores.store(&folder)?;
        let next = known.version.saturating_add(1);
        for name in spellings(next) {
            if store.stat(&folder.child(&name)).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(stat_text(&store, &folder, &known.name).await? == loaded.version)
    }
}

/// What tells this state of the folder from any other. Where a catalog names the current file, that need not be the one
/// with the highest number, so every name counts.
async fn version_of(store: &Store, folder: &Location, files: &MetadataFiles) -> Result<String> {
    let mut version = stat_text(store, folder, &files.newest.name).await?;
    if files.newest.naming == Naming::Catalog {
        for name in files.others.iter().map(|file| &file.name).chain(&files.unversioned) {
            version.push('/');
            version.push_str(name);
        }
    }
    Ok(version)
}

async fn stat_text(store: &Store, folder: &Location, name: &str) -> Result<String> {
    Ok(text_of(&stat(store, folder, name).await?))
}

async fn stat(store: &Store, folder: &Location, name: &str) -> Result<FileStat> {
    let file = folder.child(name);
    store.stat(&file).await?.ok_or_else(|| Error::FileNotFound { path: file.to_string() })
}

fn text_of(stat: &FileStat) -> String {
    format!("{} bytes, {}", stat.size, stat.version)
}

/// Why a commit on this base would not be on top of what is there now. The content counts, not only the name: a table that
/// was dropped and made anew may have the same names. Where an entity tag says that it is the same, it isn't read again.
async fn conflict_with(
    base: &LoadedTable,
    store: &Store,
    folder: &Location,
    files: &MetadataFiles,
) -> Result<Option<String>> {
    let base_name = base.metadata.metadata_location().rsplit('/').next().unwrap_or_default();
    if files.newest.name != base_name {
        return Ok(Some(format!("{} is newer than {base_name}", files.newest.name)));
    }
    if files.newest.naming == Naming::Hadoop {
        let stat = stat(store, folder, &files.newest.name).await?;
        if stat.is_entity_tag && text_of(&stat) == base.version {
            return Ok(None);
        }
    }
    let now = read_metadata(store, folder, &files.newest).await?;
    Ok((!now.is_same_document(&base.metadata)).then(|| format!("{base_name} was replaced")))
}

/// Writes the file of a new version if nobody else did. `None` when it is there and ours.
async fn write_version(
    store: &Store,
    folder: &Location,
    version: u64,
    name: &str,
    content: Bytes,
) -> Result<Option<CommitOutcome>> {
    let file = folder.child(name);
    let created = store.create(&file, content.clone()).await;
    match created {
        Ok(true) => {}
        Err(refused) if refused.is_refusal() => return Err(refused),
        // The write may have arrived although its answer did not, or its repetition met the first attempt.
        Ok(false) | Err(_) => match (store.read(&file).await, created) {
            (Ok(found), _) if found == content => {}
            (_, Ok(_)) => return Ok(Some(CommitOutcome::Conflict(format!("{name} was written by somebody else")))),
            (_, Err(error)) => return Ok(Some(CommitOutcome::Unknown(error.to_string()))),
        },
    }
    // Another writer may have used another spelling of the same version (gzip or not, another uuid).
    match rivals(store, folder, version, name).await {
        Ok(rivals) if rivals.is_empty() => Ok(None),
        Ok(rivals) => {
            Ok(Some(CommitOutcome::Unknown(format!("{name} was written while {} appeared", rivals.join(" and ")))))
        }
        Err(error) => Ok(Some(CommitOutcome::Unknown(error.to_string()))),
    }
}

/// Finds the metadata files of a table. A `file:` location that is not there as it is written is tried with its percent
/// signs decoded, because that is how URLs write spaces.
async fn find_table(stores: &Stores, location: Location) -> Result<(Location, Store, MetadataFiles)> {
    let location = location.with_path(location.path().trim_end_matches('/'));
    let store = stores.store(&location)?;
    let mut names = store.file_names(&location.child(METADATA_FOLDER)).await?;
    let mut found_at = location.clone();
    if names.is_empty()
        && location.scheme().eq_ignore_ascii_case("file")
        && location.path().contains('%')
        && let Some(decoded) = percent_decoded(location.path())
    {
        found_at = location.with_path(decoded);
        names = store.file_names(&found_at.child(METADATA_FOLDER)).await?;
    }
    let (versioned, rest): (Vec<_>, Vec<_>) =
        names.into_iter().map(|name| MetadataFileName::parse(&name).ok_or(name)).partition(std::result::Result::is_ok);
    let mut files = settle(&location, versioned.into_iter().flatten().collect())?;
    let is_metadata = |name: &String| stem(name).is_some();
    files.unversioned = rest.into_iter().filter_map(|name| name.err()).filter(is_metadata).collect();
    Ok((found_at, store, files))
}

async fn read_metadata(store: &Store, folder: &Location, file: &MetadataFileName) -> Result<TableMetadata> {
    let location = folder.child(&file.name);
    TableMetadata::parse(&location.to_text(), &store.read(&location).await?)
}

/// Refuses a table that was found elsewhere than where it says it lives: its files would be compared with the wrong
/// folder.
fn check_location(found_at: &Location, metadata: &TableMetadata, store: &Store) -> Result<()> {
    let stated = metadata.location();
    if PathRules::new(found_at).same_place(found_at, stated) {
        return Ok(());
    }
    // Links may give one folder two names.
    if let Some(local) = store.as_local().filter(|_| stated.is_local()) {
        let (found, stated) = (local.canonical(found_at.path())?, local.canonical(stated.path())?);
        if found.is_some() && found == stated {
            return Ok(());
        }
    }
    Err(Error::UnclearOwner {
        table: found_at.to_string(),
        why: format!(
            "its metadata says that it lives at {stated}. If the table was moved or copied, its files still carry the old \
             paths and can't be told from orphans. Give the location that the metadata names"
        ),
    })
}

async fn rivals(store: &Store, folder: &Location, version: u64, own: &str) -> Result<Vec<String>> {
    let names = store.file_names(folder).await?;
    let same_version = |name: &String| MetadataFileName::parse(name).is_some_and(|file| file.version == version);
    Ok(names.into_iter().filter(same_version).filter(|name| name != own).collect())
}

/// The name of the metadata file with the highest version number; the last one by name where several have it.
pub(crate) fn newest_metadata_file(names: Vec<String>) -> Option<String> {
    let files = names.iter().filter_map(|name| MetadataFileName::parse(name));
    files.max_by(|a, b| (a.version, &a.name).cmp(&(b.version, &b.name))).map(|file| file.name)
}

/// The refs of a table as a commit asserts them.
pub(crate) fn refs_of(metadata: &TableMetadata) -> BTreeMap<String, i64> {
    metadata.refs().into_iter().map(|(name, reference)| (name, reference.snapshot_id)).collect()
}
