//! Tables whose current metadata is found by looking at their folder.
//!
//! "Hadoop" tables keep `metadata/v<N>.metadata.json`; the highest N is the current version and a commit creates N+1 if
//! nobody else did. `version-hint.text` is only a hint for readers: it is written after a commit and never believed.
//!
//! A folder whose files bear a catalog's names (`00012-<uuid>.metadata.json`) has an owner that this catalog can't see.
//! Such a table is loaded, with everything that any of its metadata files names counted as referenced, but committing to
//! it is refused unless the call says that there is no catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::metadata_file::{encode, extension};
use super::{Catalog, CommitOutcome, LoadedTable, Ownership, TableCommit, TableName};
use crate::error::{Error, Result};
use crate::storage::{Store, Stores};
use crate::table::location::percent_decoded;
use crate::table::{Location, PathRules, TableIdentity, TableMetadata};

const METADATA_FOLDER: &str = "metadata";
/// The file that tells readers of Hadoop tables where to start looking.
pub(crate) const VERSION_HINT: &str = "version-hint.text";

/// Tables on a file system or object store without any other catalog.
///
/// Without a warehouse, table names are locations; with one, table `a.b.t` lives in `<warehouse>/a/b/t`, as in Java's
/// `HadoopCatalog`.
#[derive(Debug, Clone, Default)]
pub struct FileSystemCatalog {
    warehouse: Option<String>,
}

/// How metadata files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// `v<N>.metadata.json`
    Hadoop,
    /// `<N>-<uuid>.metadata.json`, and ClickHouse's `v<N>-<uuid>.metadata.json`.
    Catalog,
}

/// A metadata file's name, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MetadataFileName {
    name: String,
    naming: Naming,
    version: u64,
}

impl MetadataFileName {
    /// `None` for names that are no metadata file's, `version-hint.text` and checksum files among them.
    fn parse(name: &str) -> Option<Self> {
        let stem = name
            .strip_suffix(".metadata.json.gz")
            .or_else(|| name.strip_suffix(".gz.metadata.json"))
            .or_else(|| name.strip_suffix(".metadata.json"))?;
        let (naming, digits) = match (stem.strip_prefix('v'), stem.split_once('-')) {
            (Some(digits), None) => (Naming::Hadoop, digits),
            (Some(rest), Some(_)) => (Naming::Catalog, rest.split_once('-')?.0),
            (None, Some((digits, _))) => (Naming::Catalog, digits),
            (None, None) => return None,
        };
        let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let version = digits.parse().ok().filter(|_| all_digits)?;
        Some(Self { name: name.to_string(), naming, version })
    }
}

/// The metadata files of a folder, after it was settled which is the newest.
#[derive(Debug)]
struct MetadataFiles {
    newest: MetadataFileName,
    others: Vec<MetadataFileName>,
    /// Names that end like metadata files' but say no version.
    unversioned: Vec<String>,
}

impl FileSystemCatalog {
    /// Tables below a warehouse folder.
    pub fn with_warehouse(location: impl Into<String>) -> Self {
        Self { warehouse: Some(location.into()) }
    }

    fn location(&self, table: &TableName) -> Result<Location> {
        let Some(warehouse) = &self.warehouse else { return Location::parse(&table.name) };
        let parts = table.namespace.iter().chain([&table.name]);
        if let Some(bad) = parts.clone().find(|part| part.is_empty() || part.contains('/') || *part == "..") {
            return Err(Error::TableNotFound {
                table: table.to_string(),
                why: format!("{bad:?} can't be a part of a name in a file-system warehouse"),
            });
        }
        Ok(parts.fold(Location::parse(warehouse)?, |location, part| location.child(part)))
    }
}

#[async_trait]
impl Catalog for FileSystemCatalog {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
        let stores = Stores::new(runtime.clone());
        let (location, store, files) = find_table(&stores, self.location(table)?).await?;
        let folder = location.child(METADATA_FOLDER);
        let version = version_of(&store, &folder, &files).await?;
        let newest = read_metadata(&store, &folder, &files.newest).await?;
        check_location(&location, &newest, &store)?;
        // The table's own spelling of its location, so that the metadata log names files as the table's writers do.
        let own_folder = newest.location().child(METADATA_FOLDER);
        let metadata = newest.with_metadata_location(&own_folder.child(&files.newest.name).to_text());
        let mut loaded = LoadedTable::new(location.to_string(), metadata);
        loaded.version = version;
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
        let stores = Stores::new(runtime.clone());
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

    async fn is_current(&self, table: &TableName, loaded: &LoadedTable, runtime: &Arc<RuntimeEnv>) -> Result<bool> {
        let stores = Stores::new(runtime.clone());
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

/// The names that a file-system table's version may have.
fn spellings(version: u64) -> [String; 3] {
    [
        format!("v{version}.metadata.json"),
        format!("v{version}.gz.metadata.json"),
        format!("v{version}.metadata.json.gz"),
    ]
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
    let file = folder.child(name);
    match store.stat(&file).await? {
        Some(stat) => Ok(format!("{} bytes, {}", stat.size, stat.version)),
        None => Err(Error::FileNotFound { path: file.to_string() }),
    }
}

/// Why a commit on this base would not be on top of what is there now. The content is compared, not only the name: a table
/// that was dropped and made anew may have the same names.
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
    let is_metadata = |name: &String| name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz");
    files.unversioned = rest.into_iter().filter_map(|name| name.err()).filter(is_metadata).collect();
    Ok((found_at, store, files))
}

/// Settles which metadata file is the newest, or refuses.
fn settle(location: &Location, mut files: Vec<MetadataFileName>) -> Result<MetadataFiles> {
    let unclear = |why: String| Error::UnclearOwner { table: location.to_string(), why };
    let example = |naming| files.iter().find(|file| file.naming == naming).map(|file| file.name.clone());
    if let (Some(hadoop), Some(catalog)) = (example(Naming::Hadoop), example(Naming::Catalog)) {
        return Err(unclear(format!(
            "its metadata folder holds {hadoop}, which a file-system table has, and {catalog}, which a catalog writes. \
             Which of the two schemes the table commits through is unknown, so nothing is touched. Name the table's \
             catalog, or move the files of the wrong scheme away"
        )));
    }
    files.sort_by(|a, b| (a.version, &a.name).cmp(&(b.version, &b.name)));
    let Some(newest) = files.pop() else {
        return Err(Error::TableNotFound {
            table: location.to_string(),
            why: "there is no metadata/*.metadata.json below it. Give the table's own folder".into(),
        });
    };
    match files.last() {
        Some(rival) if rival.version == newest.version => Err(unclear(format!(
            "{} and {} both claim to be version {}. Which one is current is unknown, so nothing is touched. Name the \
             table's catalog, or move the wrong file away",
            rival.name, newest.name, newest.version
        ))),
        _ => Ok(MetadataFiles { newest, others: files, unversioned: vec![] }),
    }
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

/// Says so when the hint disagrees with what is there, and refuses where the disagreement means that versions are missing.
///
/// A hint that lags behind is ordinary: it is written after the commit. A hint ahead of every file means that newer metadata
/// was lost, and with it the knowledge of what is live. A gap right above the hint means that other readers, which count up
/// from there, see another version as the current one.
async fn check_hint(
    location: &Location,
    store: &Store,
    files: &MetadataFiles,
    table: &TableIdentity,
) -> Result<Option<String>> {
    let newest = files.newest.version;
    let folder = location.child(METADATA_FOLDER);
    let hint = match store.read(&folder.child(VERSION_HINT)).await {
        Ok(hint) => String::from_utf8_lossy(&hint).trim().to_string(),
        Err(error) if error.is_not_found() => {
            return Ok(Some(format!("{VERSION_HINT} is missing; the newest version is {newest}")));
        }
        Err(error) => return Err(error),
    };
    let hinted = hint.parse().ok().or_else(|| MetadataFileName::parse(&hint).map(|file| file.version));
    let exists = |version: u64| version == newest || files.others.iter().any(|file| file.version == version);
    let unclear = |why: String| Err(Error::UnclearOwner { table: location.to_string(), why });
    match hinted {
        Some(hinted) if hinted == newest => Ok(None),
        Some(hinted) if hinted > newest => unclear(format!(
            "{VERSION_HINT} names version {hinted}, but the newest metadata file is that of version {newest}: newer metadata \
             seems to be lost, and what it named would count as orphans. Restore it, or delete {VERSION_HINT} if version \
             {newest} really is the newest"
        )),
        Some(hinted) if exists(hinted) && !exists(hinted + 1) => unclear(format!(
            "{VERSION_HINT} names version {hinted}, the newest metadata file is that of version {newest}, and version {} is \
             missing: other readers take {hinted} for the current version. Delete {VERSION_HINT} if version {newest} really \
             is the newest",
            hinted + 1
        )),
        Some(hinted) if !is_same_table(hinted, files, store, &folder, table).await? => unclear(format!(
            "{VERSION_HINT} names version {hinted}, which belongs to another table than version {newest}: two tables share \
             this location. Give each a location of its own"
        )),
        _ => Ok(Some(format!(
            "{VERSION_HINT} says {hint:?}, but the newest version is {newest}; the hint was not believed"
        ))),
    }
}

/// True unless the file of this version is there and belongs to another table.
async fn is_same_table(
    version: u64,
    files: &MetadataFiles,
    store: &Store,
    folder: &Location,
    table: &TableIdentity,
) -> Result<bool> {
    let Some(file) = files.others.iter().find(|file| file.version == version) else { return Ok(true) };
    let identity = TableIdentity::read(&store.read(&folder.child(&file.name)).await?);
    Ok(identity.is_ok_and(|identity| table.is_same_table(&identity, &PathRules::new(folder))))
}

async fn rivals(store: &Store, folder: &Location, version: u64, own: &str) -> Result<Vec<String>> {
    let names = store.file_names(folder).await?;
    let same_version = |name: &String| MetadataFileName::parse(name).is_some_and(|file| file.version == version);
    Ok(names.into_iter().filter(same_version).filter(|name| name != own).collect())
}

async fn write_hint(store: &Store, folder: &Location, version: u64) -> Result<()> {
    let hint = Bytes::from(version.to_string());
    store.replace(&folder.child(VERSION_HINT), hint.clone()).await?;
    renew_checksum(store, folder, VERSION_HINT, &hint).await
}

/// Renews the checksum that Hadoop's local file system keeps beside a file, where there is one: with a stale one Hadoop
/// could not read the file any more.
async fn renew_checksum(store: &Store, folder: &Location, name: &str, content: &Bytes) -> Result<()> {
    let checksum = folder.child(&format!(".{name}.crc"));
    match store.as_local() {
        Some(_) if store.stat(&checksum).await?.is_some() => store.replace(&checksum, hadoop_checksum(content)).await,
        _ => Ok(()),
    }
}

/// Hadoop's checksum file: magic, bytes per checksum (512), one CRC-32 a chunk.
fn hadoop_checksum(content: &[u8]) -> Bytes {
    const BYTES_PER_CHECKSUM: u32 = 512;
    let mut out = b"crc\0".to_vec();
    out.extend(BYTES_PER_CHECKSUM.to_be_bytes());
    for chunk in content.chunks(BYTES_PER_CHECKSUM as usize) {
        let mut crc = flate2::Crc::new();
        crc.update(chunk);
        out.extend(crc.sum().to_be_bytes());
    }
    out.into()
}

/// The refs of a table as a commit asserts them.
pub(crate) fn refs_of(metadata: &TableMetadata) -> BTreeMap<String, i64> {
    metadata.refs().into_iter().map(|(name, reference)| (name, reference.snapshot_id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<MetadataFileName> {
        names.iter().filter_map(|name| MetadataFileName::parse(name)).collect()
    }

    fn newest(files: &[&str]) -> std::result::Result<String, String> {
        let location = Location::parse("/t").unwrap();
        settle(&location, names(files)).map(|files| files.newest.name).map_err(|error| error.to_string())
    }

    #[test]
    fn all_spellings_of_a_version_are_known() {
        for name in ["v7.metadata.json", "v7.gz.metadata.json", "v7.metadata.json.gz"] {
            let expected = MetadataFileName { name: name.into(), naming: Naming::Hadoop, version: 7 };
            assert_eq!(MetadataFileName::parse(name), Some(expected));
        }
        for name in
            ["00007-0a1b-2c.metadata.json", "7-x.gz.metadata.json", "00007-x.metadata.json.gz", "v7-x.metadata.json"]
        {
            let file = MetadataFileName::parse(name).unwrap();
            assert_eq!((file.naming, file.version), (Naming::Catalog, 7), "{name}");
        }
        for other in [".v7.metadata.json.crc", "version-hint.text", "v7.json", "vx.metadata.json", "v+7.metadata.json"]
        {
            assert_eq!(MetadataFileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_newest_is_the_highest_number_not_the_last_name() {
        assert_eq!(
            newest(&["v9.metadata.json", "v10.metadata.json", "v2.metadata.json"]).unwrap(),
            "v10.metadata.json"
        );
        assert_eq!(newest(&["00009-b.metadata.json", "00010-a.metadata.json"]).unwrap(), "00010-a.metadata.json");
    }

    #[test]
    fn what_is_unclear_is_refused_by_name() {
        for (files, says) in [
            (&["v1.metadata.json", "00002-x.metadata.json"][..], "v1.metadata.json"),
            (&["v2.metadata.json", "v2.gz.metadata.json"], "both claim to be version 2"),
            (&["00002-a.metadata.json", "00002-b.metadata.json"], "00002-a.metadata.json and 00002-b.metadata.json"),
            (&[], "no metadata/*.metadata.json"),
        ] {
            let error = newest(files).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn hadoops_checksum_of_a_hint() {
        // As Hadoop 3's LocalFileSystem writes it for the content "4".
        assert_eq!(hadoop_checksum(b"4")[..8], *b"crc\0\0\0\x02\0");
        assert_eq!(hadoop_checksum(b"123456789")[8..], 0xcbf4_3926u32.to_be_bytes());
    }
}
