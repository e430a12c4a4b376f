//! What catalogs have in common that keep, for each table, a pointer to its current metadata file and swap it.
//!
//! A commit writes the next metadata file under a name that nobody else uses, then swaps the pointer if it is still the one
//! that the commit was planned on. A commit that loses leaves its file behind; nothing names it, so it is an orphan file.

#[cfg(test)]
pub(super) mod testing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::metadata_file::{encode, extension};
use super::{CommitOutcome, TableCommit};
use crate::error::{Error, Result};
use crate::storage::configured::ConfiguredStores;
use crate::storage::{Stores, runtime_with_stores};
use crate::table::{Location, TableMetadata};

/// How long to wait before each look at a pointer whose swap was not answered.
pub(super) const PAUSES_BEFORE_LOOKING: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(600)];

/// Whether a table's history holds a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BuiltOn {
    Yes,
    No,
    /// Why not.
    CantTell(String),
}

/// The metadata files of a catalog's tables, read and written through the stores that the catalog's properties name.
#[derive(Debug, Clone)]
pub(super) struct MetadataFiles {
    catalog: String,
    stores: Option<Arc<dyn ObjectStoreRegistry>>,
}

impl MetadataFiles {
    /// Stores come from the properties and, for what these leave open, the environment; without a property that speaks
    /// of stores they are the session's.
    pub(super) fn new(catalog: &str, properties: &BTreeMap<String, String>) -> Self {
        Self { catalog: catalog.into(), stores: ConfiguredStores::of_catalog(properties) }
    }

    /// The stores of all tables, if the properties name them.
    pub(super) fn stores(&self) -> Option<Arc<dyn ObjectStoreRegistry>> {
        self.stores.clone()
    }

    /// Reads the metadata that a table's pointer names.
    ///
    /// # Errors
    /// [`Error::Catalog`] when there is no such file; otherwise as reading and parsing have them.
    pub(super) async fn read(&self, table: &str, pointer: &str, runtime: &Arc<RuntimeEnv>) -> Result<TableMetadata> {
        match self.files(runtime).read(pointer).await {
            Ok(bytes) => TableMetadata::parse(pointer, &bytes),
            Err(error) if error.is_not_found() => Err(Error::Catalog {
                catalog: self.catalog.clone(),
                why: format!(
                    "it names {} as the current metadata of {table}, and there is no such file. Restore it, or point the \
                     catalog at the table's newest metadata",
                    printable(pointer)
                ),
            }),
            Err(error) => Err(error),
        }
    }

    /// Writes the metadata of a commit as a new file beside the table's others, and gives its location. Nothing names it yet.
    ///
    /// # Errors
    /// When it could not be written, or it is unknown whether it was.
    pub(super) async fn write_next(
        &self,
        base: &TableMetadata,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<String> {
        let location = next_location(base, &uuid::Uuid::new_v4().to_string())?;
        let content = encode(&commit.new_metadata, base.properties().gzip_metadata())?;
        let file = Location::parse(&location)?;
        let store = self.files(runtime).store(&file)?;
        let created = match store.create(&file, content.clone()).await {
            // Nobody else uses the name: what can't be made conditional is looked at afterwards.
            Err(unknown) if unknown.is_unknown_to_the_store() => {
                store.replace(&file, content.clone()).await.map(|()| false)
            }
            created => created,
        };
        let failed = match created {
            Ok(true) => return Ok(location),
            Err(refused) if refused.is_refusal() => return Err(refused),
            Ok(false) => None,
            Err(error) => Some(error),
        };
        // The write may have arrived although its answer did not, or its repetition met the first attempt.
        match (store.read(&file).await, failed) {
            (Ok(found), _) if found == content => Ok(location),
            (_, Some(error)) => Err(error),
            (_, None) => Err(Error::Malformed {
                what: "the metadata that was just written",
                path: file.to_string(),
                why: "something else is there".into(),
            }),
        }
    }

    /// Whether a table whose pointer is `pointer` has the metadata file `committed`, made on top of `base`, in its history.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) async fn is_built_on(
        &self,
        table: &str,
        pointer: &str,
        base: &str,
        committed: &str,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<BuiltOn> {
        if pointer == committed {
            return Ok(BuiltOn::Yes);
        }
        if pointer == base {
            return Ok(BuiltOn::No);
        }
        let metadata = self.read(table, pointer, runtime).await?;
        let names = |file: &str| metadata.metadata_log().iter().any(|entry| entry.metadata_file == file);
        // The log loses its oldest entries first: one that names the base would name what came after it.
        Ok(match (names(committed), names(base)) {
            (true, _) => BuiltOn::Yes,
            (false, true) => BuiltOn::No,
            (false, false) => BuiltOn::CantTell(format!(
                "the metadata-log of {} does not reach back to {}, so that it says nothing of the commit",
                printable(pointer),
                printable(base)
            )),
        })
    }

    fn files(&self, runtime: &Arc<RuntimeEnv>) -> Stores {
        Stores::new(runtime_with_stores(runtime, self.stores.as_ref()))
    }
}

/// The outcome of a commit that is done and about which there is nothing to say.
pub(super) fn committed(metadata_location: String) -> CommitOutcome {
    CommitOutcome::Committed { metadata_location, notices: vec![] }
}

/// The outcome of a commit whose pointer had moved before it was tried.
pub(super) fn moved(from: &str, to: &str) -> CommitOutcome {
    CommitOutcome::Conflict(format!("the current metadata is {} and no longer {}", printable(to), printable(from)))
}

/// A location as messages show it: without credentials.
pub(super) fn printable(location: &str) -> String {
    Location::parse(location).map_or_else(|_| format!("{location:?}"), |location| location.to_string())
}

/// Where the metadata after `base` goes: in `write.metadata.path`, or in the table's own folder.
fn next_location(base: &TableMetadata, uuid: &str) -> Result<String> {
    let malformed = |why: String| Error::InvalidMetadata { path: printable(base.metadata_location()), why };
    // As the table spells it, not as a parsed location would: other readers may compare text.
    let own: Option<String> = base.document().get("location").map_err(|e| malformed(e.to_string()))?;
    let folder = match base.properties().get("write.metadata.path").filter(|path| !path.is_empty()) {
        Some(path) => path.trim_end_matches('/').to_string(),
        None => format!("{}/metadata", own.unwrap_or_default().trim_end_matches('/')),
    };
    let version = version_of(base.metadata_location())
        .checked_add(1)
        .ok_or_else(|| malformed("its version number can't grow any further".into()))?;
    Ok(format!("{folder}/{version:05}-{uuid}.{}", extension(base.properties().gzip_metadata())))
}

/// The version in a metadata file's name: the number before the first hyphen, or -1 as in Iceberg Java.
fn version_of(metadata_location: &str) -> i64 {
    let name = metadata_location.rsplit('/').next().unwrap_or_default();
    let number = name.split_once('-').map(|(number, _)| number);
    number.filter(|n| n.bytes().all(|b| b.is_ascii_digit())).and_then(|n| n.parse().ok()).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(metadata_location: &str, location: &str, properties: &str) -> String {
        let json = format!(r#"{{"format-version":2,"location":"{location}","properties":{{{properties}}}}}"#);
        let base = TableMetadata::parse(metadata_location, json.as_bytes()).unwrap();
        next_location(&base, "u").unwrap()
    }

    #[test]
    fn the_next_metadata_file_has_the_next_number() {
        for (base, expected) in [
            ("s3://b/t/metadata/00007-x-y.metadata.json", "s3://b/t/metadata/00008-u.metadata.json"),
            ("s3://b/t/metadata/99999-x.gz.metadata.json", "s3://b/t/metadata/100000-u.metadata.json"),
            ("s3://b/t/metadata/v5.metadata.json", "s3://b/t/metadata/00000-u.metadata.json"),
            ("s3://b/t/metadata/-x.metadata.json", "s3://b/t/metadata/00000-u.metadata.json"),
        ] {
            assert_eq!(next(base, "s3://b/t/", ""), expected);
        }
    }

    #[test]
    fn the_next_metadata_file_lies_where_the_table_writes_it() {
        let base = "s3://b/t/metadata/00001-x.metadata.json";
        assert_eq!(next(base, "file:///t", ""), "file:///t/metadata/00002-u.metadata.json");
        let elsewhere = r#""write.metadata.path":"s3://m/t/","write.metadata.compression-codec":"GZIP""#;
        assert_eq!(next(base, "s3://b/t", elsewhere), "s3://m/t/00002-u.gz.metadata.json");
    }

    #[tokio::test]
    async fn a_store_without_conditional_writes_takes_a_name_that_nobody_else_uses() {
        let store = Arc::new(testing::Unconditional::default());
        let runtime = Arc::new(RuntimeEnv::default());
        runtime.register_object_store(&url::Url::parse("s3://b").unwrap(), Arc::clone(&store) as _);
        let json = r#"{"format-version":2,"location":"s3://b/t"}"#;
        let base = TableMetadata::parse("s3://b/t/metadata/00001-x.metadata.json", json.as_bytes()).unwrap();
        let commit = TableCommit {
            table_uuid: None,
            expected_refs: BTreeMap::new(),
            base_metadata_location: base.metadata_location().into(),
            change: Default::default(),
            new_metadata: "new".into(),
        };
        let files = MetadataFiles::new("lake", &BTreeMap::new());
        let written = files.write_next(&base, &commit, &runtime).await.unwrap();
        assert_eq!(store.content(written.strip_prefix("s3://b/").unwrap()).await, "new");
        store.loses_writes.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = files.write_next(&base, &commit, &runtime).await.unwrap_err().to_string();
        assert!(error.contains("something else is there"), "{error}");
    }
}
