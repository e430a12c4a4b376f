//! A table that is made up while it is read.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// When all files were last modified: 2025-01-01 UTC.
pub const MODIFIED_MS: i64 = 1_735_689_600_000;

const ENTRIES_PER_MANIFEST: u64 = 10_000;
const FILES_PER_PART: u64 = 1_000_000;
const FILES_PER_DAY: u64 = 10_000;
/// Every so many listed files there is an orphan.
const ORPHAN_EVERY: u64 = 100;
const METADATA: &str = "t/metadata/v1.metadata.json";
const LIST: &str = "t/metadata/snap-1.avro";

/// A table with one snapshot. The listing shows the first `listed` of its files, an orphan for every hundred of them, and its
/// metadata.
#[derive(Debug, Clone, Copy)]
pub struct SyntheticTable {
    referenced: u64,
    listed: u64,
}

impl SyntheticTable {
    pub fn new(referenced: u64, listed: u64) -> Self {
        Self { referenced, listed }
    }

    fn manifests(&self) -> u64 {
        self.referenced.div_ceil(ENTRIES_PER_MANIFEST)
    }

    fn content(&self, key: &str) -> Option<Vec<u8>> {
        match key {
            METADATA => Some(METADATA_JSON.as_bytes().to_vec()),
            LIST => Some(manifest_list(self)),
            _ => {
                let number = key.strip_prefix("t/metadata/m")?.strip_suffix(".avro")?.parse().ok()?;
                (number < self.manifests()).then(|| manifest(self.entries_of(number)))
            }
        }
    }

    fn entries_of(&self, manifest: u64) -> Range<u64> {
        let start = manifest * ENTRIES_PER_MANIFEST;
        start..(start + ENTRIES_PER_MANIFEST).min(self.referenced)
    }

    /// Everything below the table, in the order of the keys.
    fn keys(self) -> impl Iterator<Item = String> + Send {
        let data = (0..self.listed).flat_map(|file| {
            let orphan = file.is_multiple_of(ORPHAN_EVERY).then(|| format!("{}.orphan.parquet", data_file(file)));
            std::iter::once(data_file(file)).chain(orphan)
        });
        let manifests = (0..self.manifests()).map(manifest_path);
        let metadata = [LIST.to_string(), METADATA.to_string()];
        data.chain(manifests).chain(metadata)
    }
}

const METADATA_JSON: &str = r#"{"format-version":2,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1","location":"s3://bucket/t",
"last-sequence-number":1,"last-updated-ms":1735689600000,"last-column-id":1,"current-schema-id":0,"schemas":[{"type":"struct",
"schema-id":0,"fields":[{"id":1,"name":"a","required":false,"type":"long"}]}],"default-spec-id":0,"partition-specs":[{"spec-id":0,
"fields":[]}],"last-partition-id":999,"default-sort-order-id":0,"sort-orders":[{"order-id":0,"fields":[]}],"properties":{},
"current-snapshot-id":1,"refs":{"main":{"snapshot-id":1,"type":"branch"}},"snapshots":[{"snapshot-id":1,"sequence-number":1,
"timestamp-ms":1735689600000,"summary":{"operation":"append"},"schema-id":0,"manifest-list":"s3://bucket/t/metadata/snap-1.avro"}],
"snapshot-log":[{"snapshot-id":1,"timestamp-ms":1735689600000}],"metadata-log":[]}"#;

const LIST_SCHEMA: &str = r#"{"type":"record","name":"manifest_file","fields":[
{"name":"manifest_path","type":"string","field-id":500},{"name":"manifest_length","type":"long","field-id":501},
{"name":"partition_spec_id","type":"int","field-id":502},{"name":"content","type":"int","field-id":517},
{"name":"added_snapshot_id","type":"long","field-id":503},{"name":"added_files_count","type":"int","field-id":504},
{"name":"existing_files_count","type":"int","field-id":505},{"name":"deleted_files_count","type":"int","field-id":506}]}"#;

const MANIFEST_SCHEMA: &str = r#"{"type":"record","name":"manifest_entry","fields":[{"name":"status","type":"int","field-id":0},
{"name":"snapshot_id","type":["null","long"],"field-id":1},{"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
{"name":"content","type":"int","field-id":134},{"name":"file_path","type":"string","field-id":100},
{"name":"file_format","type":"string","field-id":101},{"name":"record_count","type":"long","field-id":103},
{"name":"file_size_in_bytes","type":"long","field-id":104}]}}]}"#;

/// About 115 characters with the bucket, as real names are; ascending, so that a listing comes in the order of the keys.
fn data_file(number: u64) -> String {
    let (part, day) = (part_folder(number / FILES_PER_PART), day_folder(number / FILES_PER_DAY));
    format!("t/data/{part}/{day}/{number:09}-c2a1f1de-5b0c-4d57-8a64-2f6c1d9e7b30-00001-ab.parquet")
}

fn part_folder(part: u64) -> String {
    format!("part={part:03}")
}

fn day_folder(day: u64) -> String {
    format!("day={day:06}")
}

fn manifest_path(number: u64) -> String {
    format!("t/metadata/m{number:06}.avro")
}

fn manifest_list(table: &SyntheticTable) -> Vec<u8> {
    let mut rows = vec![];
    for number in 0..table.manifests() {
        let entries = table.entries_of(number);
        let count = (entries.end - entries.start) as i64;
        text(&mut rows, &format!("s3://bucket/{}", manifest_path(number)));
        // The length is a hint for reading ahead: about right will do.
        for value in [count * 135, 0, 0, 1, count, 0, 0] {
            long(&mut rows, value);
        }
    }
    container(LIST_SCHEMA, &[(table.manifests(), rows)])
}

fn manifest(entries: Range<u64>) -> Vec<u8> {
    let mut blocks = vec![];
    for start in entries.clone().step_by(500) {
        let end = (start + 500).min(entries.end);
        let mut block = Vec::with_capacity(500 * 150);
        for number in start..end {
            long(&mut block, 1);
            long(&mut block, 1);
            long(&mut block, 1);
            long(&mut block, 0);
            text(&mut block, &format!("s3://bucket/{}", data_file(number)));
            text(&mut block, "PARQUET");
            long(&mut block, 1000);
            long(&mut block, 128 << 20);
        }
        blocks.push((end - start, block));
    }
    container(MANIFEST_SCHEMA, &blocks)
}

/// An Avro object container file without compression (Avro specification, "Object Container Files").
fn container(schema: &str, blocks: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let sync = [7; 16];
    let mut file = b"Obj\x01".to_vec();
    long(&mut file, 2);
    for (key, value) in [("avro.schema", schema), ("avro.codec", "null")] {
        text(&mut file, key);
        text(&mut file, value);
    }
    long(&mut file, 0);
    file.extend(sync);
    for (objects, block) in blocks {
        long(&mut file, *objects as i64);
        long(&mut file, block.len() as i64);
        file.extend(block);
        file.extend(sync);
    }
    file
}

fn long(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    long(out, text.len() as i64);
    out.extend(text.as_bytes());
}

fn meta(key: String, size: u64) -> ObjectMeta {
    let last_modified = chrono::DateTime::from_timestamp_millis(MODIFIED_MS).expect("a time");
    ObjectMeta { location: Path::parse(key).expect("a key"), last_modified, size, e_tag: None, version: None }
}

impl fmt::Display for SyntheticTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyntheticTable")
    }
}

#[async_trait]
impl ObjectStore for SyntheticTable {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.to_string();
        let not_found = || Error::NotFound { path: path.clone(), source: "there is no such object".into() };
        let content = Bytes::from(self.content(&path).ok_or_else(not_found)?);
        let meta = meta(path.clone(), content.len() as u64);
        let range = match &options.range {
            Some(range) => {
                range.as_range(meta.size).map_err(|e| Error::Generic { store: "synthetic", source: e.into() })?
            }
            None => 0..meta.size,
        };
        let part = content.slice(range.start as usize..range.end as usize);
        let payload = GetResultPayload::Stream(futures::stream::once(async { Ok(part) }).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let keys = self.keys().filter(move |key| key.starts_with(&prefix));
        futures::stream::iter(keys.map(|key| Ok(meta(key, 1)))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let folder = |name: &str| Path::parse(format!("{prefix}{name}"));
        let folders = |names: Vec<String>| names.iter().map(|name| folder(name)).collect::<Result<Vec<_>, _>>();
        let (common_prefixes, objects) = match prefix.as_str() {
            "t/" => (vec![folder("data")?, folder("metadata")?], vec![]),
            "t/metadata/" => (vec![], vec![meta(METADATA.into(), 1)]),
            "t/data/" => (folders((0..self.listed.div_ceil(FILES_PER_PART)).map(part_folder).collect())?, vec![]),
            _ => match prefix.strip_prefix("t/data/part=").and_then(|rest| rest.strip_suffix('/')?.parse::<u64>().ok())
            {
                Some(part) => {
                    let files = part * FILES_PER_PART..((part + 1) * FILES_PER_PART).min(self.listed);
                    let days = files.start / FILES_PER_DAY..files.end.div_ceil(FILES_PER_DAY);
                    (folders(days.map(day_folder).collect())?, vec![])
                }
                None => (vec![], vec![]),
            },
        };
        Ok(ListResult { common_prefixes, objects })
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(Error::NotImplemented { operation: "put".into(), implementer: "synthetic".into() })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented { operation: "put".into(), implementer: "synthetic".into() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let refused =
            |_| async { Err(Error::NotImplemented { operation: "delete".into(), implementer: "synthetic".into() }) };
        locations.then(refused).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".into(), implementer: "synthetic".into() })
    }
}
