//! A table on the local disk for the tests of catalogs that keep a pointer.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::*;
use tempfile::TempDir;

use crate::catalog::{LoadedTable, TableCommit, refs_of};
use crate::fixtures::{self, History, MetadataNaming, Written};
use crate::table::{MetadataChange, TableMetadata};

const BEGIN_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 3_600_000;

/// A table with three snapshots, whose newest metadata file is its second, named as catalogs do.
pub(in crate::catalog) struct TableOnDisk {
    pub warehouse: TempDir,
    pub written: Written,
    /// Where the newest metadata is, as a catalog names it.
    pub pointer: String,
    pub runtime: Arc<RuntimeEnv>,
}

impl TableOnDisk {
    pub(in crate::catalog) fn new() -> Self {
        let warehouse = tempfile::tempdir().unwrap();
        let table =
            fixtures::Table { naming: MetadataNaming::Catalog, last_updated_ms: BEGIN_MS, ..fixtures::Table::new(2) };
        let mut history = History::new(table);
        for (hour, file) in [(1, "a"), (2, "b"), (3, "c")] {
            history.append(BEGIN_MS + hour * HOUR_MS, [file]);
        }
        let written = history.build().write(warehouse.path().join("t")).unwrap();
        let pointer = written.locate(&written.metadata_path);
        Self { warehouse, written, pointer, runtime: Arc::default() }
    }

    /// The names of the metadata files.
    pub(in crate::catalog) fn metadata_files(&self) -> BTreeSet<String> {
        let files = self.written.files_on_disk().unwrap();
        files.into_iter().filter(|file| file.ends_with(".metadata.json")).collect()
    }

    /// Metadata as somebody else would have committed it on top of what is there now, under this name; its location.
    pub(in crate::catalog) fn commit_elsewhere(&self, name: &str, base: &str) -> String {
        let content = std::fs::read(self.path(base)).unwrap();
        let metadata = TableMetadata::parse(base, &content).unwrap();
        let change = MetadataChange::default().apply(&metadata, BEGIN_MS + 9 * HOUR_MS).unwrap();
        let location = self.written.locate(&format!("metadata/{name}"));
        std::fs::write(self.path(&location), change.json).unwrap();
        location
    }

    /// The metadata at a location.
    pub(in crate::catalog) fn metadata(&self, location: &str) -> TableMetadata {
        TableMetadata::parse(location, &std::fs::read(self.path(location)).unwrap()).unwrap()
    }

    fn path(&self, location: &str) -> String {
        location.strip_prefix("file:").unwrap_or(location).to_string()
    }
}

/// A commit that takes out the oldest snapshot.
pub(in crate::catalog) fn without_the_oldest_snapshot(base: &LoadedTable) -> TableCommit {
    let oldest = base.metadata.snapshots()[0].snapshot_id;
    let change = MetadataChange { removed_snapshot_ids: BTreeSet::from([oldest]), ..MetadataChange::default() };
    TableCommit {
        table_uuid: base.metadata.table_uuid().map(str::to_string),
        expected_refs: refs_of(&base.metadata),
        base_metadata_location: base.metadata.metadata_location().to_string(),
        new_metadata: change.apply(&base.metadata, BEGIN_MS + 8 * HOUR_MS).unwrap().json,
        change,
    }
}

/// A store that knows no conditional writes.
#[derive(Debug, Default)]
pub(in crate::catalog) struct Unconditional {
    objects: InMemory,
    /// Whether it takes a write and keeps something else.
    pub loses_writes: AtomicBool,
}

impl Unconditional {
    pub(in crate::catalog) async fn content(&self, key: &str) -> bytes::Bytes {
        self.objects.get(&Path::from(key)).await.unwrap().bytes().await.unwrap()
    }
}

impl fmt::Display for Unconditional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unconditional")
    }
}

#[async_trait]
impl ObjectStore for Unconditional {
    async fn put_opts(&self, key: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if options.mode != PutMode::Overwrite {
            return Err(Error::NotImplemented { operation: "create".into(), implementer: self.to_string() });
        }
        let payload = if self.loses_writes.load(Ordering::Relaxed) { "lost".into() } else { payload };
        self.objects.put_opts(key, payload, options).await
    }

    async fn put_multipart_opts(&self, key: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(key, options).await
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(key, options).await
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(keys)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
