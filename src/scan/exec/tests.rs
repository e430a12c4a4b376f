use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt32Type;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};

use super::*;
use crate::error::Error;
use crate::scan::entries::{EntryField, EntryFields, Inherited};
use crate::scan::manifest::EntryCounts;
use crate::scan::testing::{SYNC, bytes, container, integers, long, real_file, texts};
use crate::table::PartitionType;

/// A folder with copies of real files, and a session that reads from it.
struct Folder {
    folder: tempfile::TempDir,
    session: SessionContext,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), session: SessionContext::new() }
    }

    fn with_memory(bytes: usize) -> Self {
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes))).build_arc();
        let session = SessionContext::new_with_config_rt(SessionConfig::new(), runtime.unwrap());
        Self { session, ..Self::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn location(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    fn put(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.location(name)
    }

    async fn run(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Vec<RecordBatch>> {
        let mut batches = vec![];
        let collected = collect_partitioned(plan, self.session.task_ctx(), |batch| {
            batches.push(batch);
            Ok(())
        });
        collected.await.map(|()| batches)
    }
}

fn manifest(location: String) -> ManifestRef {
    ManifestRef { location, length: None, expected: EntryCounts::default(), encrypted: false }
}

fn list(snapshot_id: i64, location: String) -> ManifestListRef {
    ManifestListRef { snapshot_id, location, inline_manifests: None, key_id: false }
}

fn scan(manifests: Vec<ManifestRef>, partitions: usize, on_unreadable: OnUnreadable) -> Arc<ManifestScanExec> {
    Arc::new(ManifestScanExec::new(manifests, partitions, on_unreadable, false))
}

/// How many rows came from each manifest.
fn rows_by_manifest(batches: &[RecordBatch], manifests: usize) -> Vec<usize> {
    let mut rows = vec![0; manifests];
    for batch in batches {
        for manifest in batch.column_by_name("manifest").unwrap().as_primitive::<UInt32Type>().values() {
            rows[*manifest as usize] += 1;
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn every_manifest_is_read_once_whatever_the_number_of_partitions() {
    let folder = Folder::new();
    let (ten, three) = (real_file("v2-data-existing.avro"), real_file("v3-data.avro"));
    let manifests: Vec<ManifestRef> =
        (0..60).map(|i| manifest(folder.put(&format!("m{i}.avro"), if i % 7 == 0 { &ten } else { &three }))).collect();
    let expected: Vec<usize> = (0..60).map(|i| if i % 7 == 0 { 10 } else { 3 }).collect();
    for partitions in [0, 1, 2, 16, 100] {
        let plan = scan(manifests.clone(), partitions, OnUnreadable::Fail);
        assert_eq!(plan.properties().output_partitioning().partition_count(), partitions.clamp(1, 60));
        let batches = folder.run(plan.clone()).await.unwrap();
        assert_eq!(rows_by_manifest(&batches, 60), expected, "{partitions} partitions");
        assert!(batches.iter().all(|batch| batch.schema() == plan.schema()));
        let bytes = 9 * ten.len() + 51 * three.len();
        assert_eq!((plan.log().files_read(), plan.log().bytes_read()), (60, bytes as u64));
        assert_eq!(plan.log().unreadable(), []);
        let metrics = plan.metrics().unwrap();
        let metric = |name| metrics.sum_by_name(name).map(|value| value.as_usize());
        assert_eq!(metric("bytes_scanned"), Some(bytes));
        assert_eq!(metric("files_read"), Some(60));
        assert_eq!(metrics.output_rows(), Some(expected.iter().sum()));
    }
}

#[tokio::test]
async fn deleted_entries_are_left_out_on_request() {
    let folder = Folder::new();
    let manifests = vec![manifest(folder.put("m", &real_file("v3-data.avro")))];
    let all = ManifestScanExec::new(manifests.clone(), 1, OnUnreadable::Fail, false);
    let live = ManifestScanExec::new(manifests, 1, OnUnreadable::Fail, true);
    assert_eq!(integers(&folder.run(Arc::new(all)).await.unwrap()[0], "status"), [Some(0), Some(0), Some(2)]);
    assert_eq!(integers(&folder.run(Arc::new(live)).await.unwrap()[0], "status"), [Some(0), Some(0)]);
}

#[tokio::test]
async fn lists_are_read_with_their_snapshot_and_size_and_inline_manifests_need_no_reading() {
    let folder = Folder::new();
    let content = real_file("v2-list.avro");
    let location = folder.put("l", &content);
    let inline = ManifestListRef { inline_manifests: Some(vec!["/t/m1".into(), "/t/m2".into()]), ..list(7, "".into()) };
    let plan = Arc::new(ManifestListScanExec::new(vec![list(-5, location.clone()), inline], 1, OnUnreadable::Fail));
    let batches = folder.run(plan.clone()).await.unwrap();
    let mut rows: Vec<(Option<i64>, Vec<String>)> =
        batches.iter().map(|batch| (integers(batch, "snapshot_id")[0], texts(batch, "manifest_path"))).collect();
    rows.sort();
    assert_eq!((rows[0].0, rows[0].1.len()), (Some(-5), 8));
    assert_eq!(rows[1], (Some(7), vec!["/t/m1".to_string(), "/t/m2".to_string()]));
    assert_eq!(plan.log().list_sizes(), [(location, content.len() as u64)].into());
    assert_eq!(plan.log().files_read(), 1);
}

#[tokio::test]
async fn a_missing_or_broken_file_fails_the_scan_by_name() {
    let folder = Folder::new();
    let good = folder.put("good", &real_file("v3-data.avro"));
    let run = |bad: ManifestRef| folder.run(scan(vec![manifest(good.clone()), bad], 1, OnUnreadable::Fail));

    let missing = run(manifest(folder.location("missing"))).await.unwrap_err();
    assert!(matches!(&missing, Error::FileNotFound { path } if *path == folder.location("missing")), "{missing:?}");

    let cut = folder.put("cut", &real_file("v3-data.avro")[..5000]);
    let broken = run(manifest(cut.clone())).await.unwrap_err();
    assert!(matches!(&broken, Error::Malformed { path, .. } if *path == cut), "{broken:?}");

    let encrypted = ManifestRef { encrypted: true, ..manifest(folder.put("noise", b"noise")) };
    assert!(run(encrypted).await.unwrap_err().to_string().contains("is encrypted"));

    let counts = EntryCounts { added: Some(1), existing: Some(2), deleted: Some(1) };
    let miscounted = run(ManifestRef { expected: counts, ..manifest(good.clone()) }).await.unwrap_err();
    assert!(miscounted.to_string().contains("the manifest list says 1, 2 and 1"), "{miscounted}");

    let list = ManifestListRef { key_id: true, ..list(1, folder.put("l", b"noise")) };
    let error = folder.run(Arc::new(ManifestListScanExec::new(vec![list], 1, OnUnreadable::Fail))).await.unwrap_err();
    assert!(error.to_string().contains("as a manifest list: it is encrypted"), "{error}");
}

#[tokio::test]
async fn skipped_files_are_left_out_whole_and_reported() {
    let folder = Folder::new();
    let content = real_file("fastavro-deflate.avro");
    // One entry a block: two are fine before the end is missing.
    let cut = folder.put("cut", &content[..content.len() - 1]);
    let (good, missing) = (folder.put("good", &content), folder.location("missing"));
    let manifests = vec![manifest(missing.clone()), manifest(good), manifest(cut.clone())];
    let plan = scan(manifests, 3, OnUnreadable::Skip);
    let batches = folder.run(plan.clone()).await.unwrap();
    assert_eq!(rows_by_manifest(&batches, 3), [0, 3, 0]);
    let skipped = plan.log().unreadable();
    assert_eq!(skipped.iter().map(|file| (file.index, &file.location)).collect::<Vec<_>>(), [(0, &missing), (2, &cut)]);
    assert_eq!(skipped[0].why, format!("{missing} does not exist"));
    assert_eq!(
        skipped[1].why,
        format!("{cut} can't be read as a manifest: data block 3: the data ends in the middle of a value")
    );
    assert_eq!(plan.metrics().unwrap().sum_by_name("files_skipped").unwrap().as_usize(), 2);
}

/// A store that never lets anybody read, after a while, and counts who waits.
#[derive(Debug, Default)]
struct Unavailable {
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unavailable")
    }
}

/// One who waits, also if nobody wants the answer any more.
struct Waits<'a>(&'a Unavailable);

impl<'a> Waits<'a> {
    fn new(store: &'a Unavailable) -> Self {
        let waiting = store.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        store.most_waiting.fetch_max(waiting, Ordering::SeqCst);
        Self(store)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

fn unavailable<T>() -> object_store::Result<T> {
    Err(object_store::Error::Generic { store: "test", source: "503 Slow Down".into() })
}

#[async_trait]
impl ObjectStore for Unavailable {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> object_store::Result<PutResult> {
        unavailable()
    }
    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        unavailable()
    }
    async fn get_opts(&self, path: &Path, _: GetOptions) -> object_store::Result<GetResult> {
        let _waits = Waits::new(self);
        tokio::time::sleep(Duration::from_millis(100)).await;
        match path.as_ref() {
            "missing" => Err(object_store::Error::NotFound { path: path.to_string(), source: "404".into() }),
            _ => unavailable(),
        }
    }
    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        futures::stream::once(async { unavailable() }).boxed()
    }
    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        futures::stream::once(async { unavailable() }).boxed()
    }
    async fn list_with_delimiter(&self, _: Option<&Path>) -> object_store::Result<ListResult> {
        unavailable()
    }
    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        unavailable()
    }
}

#[tokio::test]
async fn what_says_nothing_about_the_file_is_never_skipped() {
    let folder = Folder::new();
    folder.session.register_object_store(&"s3://b".parse().unwrap(), Arc::<Unavailable>::default());
    for (location, why) in [("s3://b/m.avro", "503 Slow Down"), ("gs://other/m.avro", "no object store")] {
        let plan = scan(vec![manifest(location.into())], 1, OnUnreadable::Skip);
        let error = folder.run(plan.clone()).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(plan.log().unreadable(), []);
    }
}

#[tokio::test]
async fn reading_ahead_is_bounded_by_files_and_by_bytes() {
    // The last one is read as ranges, eight at once.
    let most_of = [(None, 64), (Some(100), 64), (Some(15 << 20), 4), (Some(-1), 64), (Some(i64::MAX), 8)];
    for (length, most) in most_of {
        let folder = Folder::new();
        let store = Arc::<Unavailable>::default();
        folder.session.register_object_store(&"s3://b".parse().unwrap(), store.clone());
        let manifest = ManifestRef { length, ..manifest("s3://b/missing".into()) };
        let files = if length == Some(i64::MAX) { 2 } else { most + 3 };
        let plan = scan(vec![manifest; files], 1, OnUnreadable::Skip);
        assert!(folder.run(plan.clone()).await.unwrap().is_empty());
        assert_eq!(plan.log().unreadable().len(), files);
        assert_eq!(store.most_waiting.load(Ordering::SeqCst), most, "files of {length:?} bytes");
    }
}

#[tokio::test]
async fn a_list_that_can_not_be_read_hides_nothing_that_other_lists_have() {
    let folder = Folder::new();
    let content = real_file("v2-list.avro");
    // All entries of the first are met before its end is found missing.
    let cut = folder.put("cut", &content[..content.len() - 1]);
    let lists = vec![list(1, cut.clone()), list(2, folder.put("l", &content)), list(3, folder.put("same", &content))];
    let plan = Arc::new(ManifestListScanExec::new(lists, 1, OnUnreadable::Skip));
    let batches = folder.run(plan.clone()).await.unwrap();
    // Each once, or twice where both lists were decoded at the same time.
    let paths: BTreeSet<String> = batches.iter().flat_map(|batch| texts(batch, "manifest_path")).collect();
    assert_eq!(paths.len(), 8);
    assert_eq!(plan.log().unreadable().iter().map(|file| &file.location).collect::<Vec<_>>(), [&cut]);
    let mut counted: Vec<usize> = plan.log().live_counts().into_keys().collect();
    counted.sort();
    assert_eq!(counted, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_ahead_shrinks_to_the_memory_there_is() {
    let content = real_file("v2-data-existing.avro");
    let measure = Folder::new();
    let plan = scan(vec![manifest(measure.put("m", &content))], 1, OnUnreadable::Fail);
    let batches = measure.run(plan).await.unwrap();
    let rows: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
    let statuses: Vec<_> = batches.iter().flat_map(|batch| integers(batch, "status")).collect();
    let count = |status| Some(statuses.iter().filter(|found| **found == Some(status)).count() as i32);
    let expected = EntryCounts { existing: count(0), added: count(1), deleted: count(2) };
    // Two files fit, but not with what is read ahead of them; the length in the list is wrong in both directions.
    for length in [None, Some(10), Some(1 << 40)] {
        let folder = Folder::with_memory(2 * (content.len() + rows) + (256 << 10));
        let manifests: Vec<ManifestRef> = (0..100)
            .map(|i| ManifestRef { length, expected, ..manifest(folder.put(&format!("m{i}"), &content)) })
            .collect();
        let plan = scan(manifests, 4, OnUnreadable::Fail);
        let batches = folder.run(plan.clone()).await.unwrap();
        assert_eq!(rows_by_manifest(&batches, 100), [10; 100], "{length:?}");
        assert_eq!(plan.log().files_read(), 100);
        assert_eq!(folder.session.runtime_env().memory_pool.reserved(), 0);
    }
}

/// A manifest of 3 MB in 100 blocks, uncompressed, whose entry `n` names the file `n`.
fn large_manifest(entries: i64) -> Vec<u8> {
    let schema = r#"{"type":"record","name":"manifest_entry","fields":[{"name":"status","type":"int","field-id":0},
        {"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
            {"name":"file_path","type":"string","field-id":100}]}}]}"#;
    let entry = |n: i64| [long(1), bytes(format!("{n:0100}").as_bytes())].concat();
    let numbers: Vec<i64> = (0..entries).collect();
    let blocks: Vec<(i64, Vec<u8>)> = numbers
        .chunks(entries as usize / 100)
        .map(|numbers| (numbers.len() as i64, numbers.iter().flat_map(|n| entry(*n)).collect()))
        .collect();
    let blocks: Vec<(i64, &[u8])> = blocks.iter().map(|(count, data)| (*count, data.as_slice())).collect();
    container(schema, "null", &blocks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_manifest_is_decoded_in_parts_and_comes_whole_or_not_at_all() {
    const ENTRIES: i64 = 30_000;
    let folder = Folder::new();
    let content = large_manifest(ENTRIES);
    assert!(content.len() > 3_000_000);
    let whole = folder.put("whole", &content);
    let counts = |added: i64| EntryCounts { added: Some(added as i32), existing: Some(0), deleted: Some(0) };
    let good = ManifestRef { expected: counts(ENTRIES), ..manifest(whole.clone()) };
    let batches = folder.run(scan(vec![good.clone()], 1, OnUnreadable::Fail)).await.unwrap();
    let numbers: Vec<i64> =
        batches.iter().flat_map(|batch| texts(batch, "file_path")).map(|path| path.parse().unwrap()).collect();
    assert_eq!(numbers, (0..ENTRIES).collect::<Vec<_>>(), "in order, each once");

    let mut damaged = content.clone();
    let last = content.len() - SYNC.len() - 200;
    damaged[last] = 0xff;
    let bad = [
        ManifestRef { expected: counts(ENTRIES - 1), ..manifest(whole) },
        manifest(folder.put("damaged", &damaged)),
        manifest(folder.put("cut", &content[..content.len() - 1])),
    ];
    let plan = scan([&bad[..], &[good]].concat(), 4, OnUnreadable::Skip);
    let batches = folder.run(plan.clone()).await.unwrap();
    assert_eq!(rows_by_manifest(&batches, 4), [0, 0, 0, ENTRIES as usize]);
    assert_eq!(plan.log().unreadable().iter().map(|file| file.index).collect::<Vec<_>>(), [0, 1, 2]);
}

fn entries(manifests: Vec<(ManifestRef, Inherited)>, fields: EntryFields, partitions: usize) -> Arc<EntryScanExec> {
    let manifests = manifests.into_iter().map(|(manifest, inherited)| EntryManifest { manifest, inherited }).collect();
    let scan = EntryScan { manifests, partition: PartitionType::default(), fields, live_only: false };
    Arc::new(EntryScanExec::new(scan, partitions, OnUnreadable::Skip))
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_come_with_what_each_manifest_inherits() {
    let folder = Folder::new();
    let (ten, three) =
        (folder.put("ten", &real_file("v2-data-existing.avro")), folder.put("v3", &real_file("v3-data.avro")));
    let inherited = |spec| Inherited { partition_spec_id: Some(spec), ..Inherited::default() };
    let missing = folder.location("missing");
    let manifests = vec![
        (manifest(ten.clone()), inherited(4)),
        (manifest(missing.clone()), inherited(5)),
        (manifest(three), inherited(6)),
        (
            ManifestRef {
                expected: EntryCounts { added: Some(1), existing: Some(1), deleted: Some(1) },
                ..manifest(ten)
            },
            inherited(7),
        ),
    ];
    for partitions in [1, 4] {
        let plan = entries(manifests.clone(), EntryFields::ALL, partitions);
        let batches = folder.run(plan.clone()).await.unwrap();
        assert_eq!(rows_by_manifest(&batches, 4), [10, 0, 3, 0], "{partitions} partitions");
        for batch in &batches {
            assert_eq!(batch.schema(), plan.schema());
            let file = RecordBatch::from(batch.column_by_name("data_file").unwrap().as_struct());
            let manifests = batch.column_by_name("manifest").unwrap().as_primitive::<UInt32Type>();
            let specs: Vec<_> = manifests.values().iter().map(|place| Some(i64::from(*place) + 4)).collect();
            assert_eq!(integers(&file, "spec_id"), specs);
        }
        assert_eq!(plan.log().unreadable().iter().map(|file| file.index).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(plan.log().files_read(), 3);
    }
    let count = entries(manifests, EntryFields::default(), 2);
    let batches = folder.run(count.clone()).await.unwrap();
    assert_eq!(count.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["manifest"]);
    assert_eq!(rows_by_manifest(&batches, 4), [10, 0, 3, 0]);
    let fields = EntryFields::from_iter([EntryField::Status, EntryField::FilePath]);
    assert_eq!(
        displayable(entries(vec![], fields, 1).as_ref()).one_line().to_string(),
        "EntryScanExec: files=0, partitions=1, on_unreadable=skip, entries=all, fields=[status, file_path]\n"
    );
}

/// A manifest of 3 MB in 100 blocks, uncompressed, whose entry `n` has `n` rows.
fn large_entries(entries: i64) -> Vec<u8> {
    let schema = r#"{"type":"record","name":"manifest_entry","fields":[{"name":"status","type":"int","field-id":0},
        {"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
            {"name":"record_count","type":"long","field-id":103},
            {"name":"file_path","type":"string","field-id":100}]}}]}"#;
    let entry = |n: i64| [long(1), long(n), bytes(&[b'p'; 100])].concat();
    let numbers: Vec<i64> = (0..entries).collect();
    let blocks: Vec<(i64, Vec<u8>)> = numbers
        .chunks(entries as usize / 100)
        .map(|numbers| (numbers.len() as i64, numbers.iter().flat_map(|n| entry(*n)).collect()))
        .collect();
    let blocks: Vec<(i64, &[u8])> = blocks.iter().map(|(count, data)| (*count, data.as_slice())).collect();
    container(schema, "null", &blocks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_manifest_has_its_entries_and_row_ids_in_order() {
    const ENTRIES: i64 = 30_000;
    let folder = Folder::new();
    let location = folder.put("large", &large_entries(ENTRIES));
    let inherited = Inherited { first_row_id: Some(5), ..Inherited::default() };
    let columns = [EntryField::RecordCount, EntryField::FirstRowId];
    for fields in [&columns[..1], &columns] {
        let plan = entries(vec![(manifest(location.clone()), inherited)], fields.iter().copied().collect(), 2);
        let batches = folder.run(plan).await.unwrap();
        let column = |name| {
            let files = batches.iter().map(|batch| batch.column_by_name("data_file").unwrap().as_struct());
            files.flat_map(|file| integers(&RecordBatch::from(file), name)).collect::<Vec<_>>()
        };
        assert_eq!(column("record_count"), (0..ENTRIES).map(Some).collect::<Vec<_>>());
        if fields.len() == 2 {
            assert_eq!(column("first_row_id"), (0..ENTRIES).map(|n| Some(5 + n * (n - 1) / 2)).collect::<Vec<_>>());
        }
    }
}

#[tokio::test]
async fn entries_ask_for_memory_and_give_it_back() {
    let manifests = |folder: &Folder| {
        let one = |i: usize| (manifest(folder.put(&format!("m{i}"), &real_file("v3-data.avro"))), Inherited::default());
        (0..20).map(one).collect::<Vec<_>>()
    };
    let folder = Folder::with_memory(4000);
    let error = folder.run(entries(manifests(&folder), EntryFields::ALL, 2)).await.unwrap_err();
    let Error::Engine(inner) = &error else { panic!("{error:?}") };
    assert!(matches!(inner.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    assert_eq!(folder.session.runtime_env().memory_pool.reserved(), 0);

    // Enough for one of them, and what it is inflated to.
    let folder = Folder::with_memory(512 << 10);
    let batches = folder.run(entries(manifests(&folder), EntryFields::ALL, 2)).await.unwrap();
    assert_eq!(rows_by_manifest(&batches, 20), [3; 20]);
    assert_eq!(folder.session.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test]
async fn memory_is_asked_for_and_given_back() {
    let folder = Folder::with_memory(4000);
    let manifests = vec![manifest(folder.put("m", &real_file("v3-data.avro")))];
    let error = folder.run(scan(manifests.clone(), 1, OnUnreadable::Skip)).await.unwrap_err();
    let Error::Engine(inner) = &error else { panic!("{error:?}") };
    assert!(matches!(inner.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");

    let folder = Folder { session: Folder::with_memory(1 << 20).session, ..folder };
    folder.run(scan(manifests, 1, OnUnreadable::Fail)).await.unwrap();
    assert_eq!(folder.session.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test]
async fn a_partition_is_executed_once_until_the_plan_is_reset() {
    let folder = Folder::new();
    let plan = scan(vec![manifest(folder.put("m", &real_file("v3-data.avro")))], 1, OnUnreadable::Fail);
    assert_eq!(rows_by_manifest(&folder.run(plan.clone()).await.unwrap(), 1), [3]);
    let again = folder.run(plan.clone()).await.unwrap_err().to_string();
    assert!(again.contains("was executed before"), "{again}");
    assert!(plan.execute(1, folder.session.task_ctx()).is_err(), "there is no such partition");

    let log = plan.log();
    let reset = plan.reset_state().unwrap();
    assert_eq!(log.files_read(), 0);
    assert_eq!(rows_by_manifest(&folder.run(reset).await.unwrap(), 1), [3]);
    assert_eq!(log.files_read(), 1);
}

#[tokio::test]
async fn the_plan_says_what_it_will_do() {
    let lists = ManifestListScanExec::new(vec![list(1, "l".into())], 4, OnUnreadable::Fail);
    assert_eq!(
        displayable(&lists).one_line().to_string(),
        "ManifestListScanExec: files=1, partitions=1, on_unreadable=fail\n"
    );
    let manifests = ["a", "b", "c"].map(|location| manifest(location.into())).to_vec();
    let live = ManifestScanExec::new(manifests.clone(), 2, OnUnreadable::Skip, true);
    assert_eq!(
        displayable(&live).one_line().to_string(),
        "ManifestScanExec: files=3, partitions=2, on_unreadable=skip, entries=live\n"
    );
    assert_eq!(live.files(), manifests);
}

#[tokio::test]
async fn a_plan_can_be_made_and_executed_without_reading_anything() {
    let folder = Folder::new();
    let plan = scan(vec![manifest(folder.location("missing"))], 1, OnUnreadable::Fail);
    let stream = plan.execute(0, folder.session.task_ctx()).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(stream);
    assert_eq!(plan.log().files_read(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_consumers_error_ends_all_partitions() {
    let folder = Folder::new();
    let content = real_file("v3-data.avro");
    let manifests = (0..50).map(|i| manifest(folder.put(&format!("m{i}"), &content))).collect();
    let mut batches = 0;
    let stopped = collect_partitioned(scan(manifests, 4, OnUnreadable::Fail), folder.session.task_ctx(), |_| {
        batches += 1;
        Err(Error::NotAllowed { message: "enough".into() })
    })
    .await;
    assert!(matches!(stopped, Err(Error::NotAllowed { .. })), "{stopped:?}");
    assert_eq!(batches, 1);
}

/// A partition that panics while it runs.
#[derive(Debug)]
struct Panicking;

impl PartitionStream for Panicking {
    fn schema(&self) -> &SchemaRef {
        static SCHEMA: std::sync::LazyLock<SchemaRef> = std::sync::LazyLock::new(|| Arc::new(Schema::empty()));
        &SCHEMA
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let never = futures::stream::once(async { panic!("a fault of the engine") });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(self.schema()), never))
    }
}

#[tokio::test]
async fn a_partition_that_panics_is_no_end_of_its_rows() {
    let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(Panicking)];
    let plan = StreamingTableExec::try_new(Arc::new(Schema::empty()), partitions, None, vec![], false, None).unwrap();
    let error = Folder::new().run(Arc::new(plan)).await.unwrap_err();
    assert!(error.to_string().contains("a fault of the engine"), "{error}");
}

#[tokio::test]
async fn the_stream_ends_after_its_first_error() {
    let folder = Folder::new();
    let (good, bad) = (folder.put("good", &real_file("v3-data.avro")), folder.put("bad", b"bad"));
    let plan = scan(vec![manifest(bad), manifest(good)], 1, OnUnreadable::Fail);
    let results: Vec<_> = plan.execute(0, folder.session.task_ctx()).unwrap().into_stream().collect().await;
    let errors = results.iter().filter(|result| result.is_err()).count();
    assert_eq!((errors, results.last().unwrap().is_err()), (1, true));
}
