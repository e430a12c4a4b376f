//! Manifests and manifest lists as Iceberg Java writes them: its schemas, blocks of 64 kB, deflate at level 9.
//!
//! They are made by hand, so that every byte of them is known. Their blocks lie aside too, for measuring decompression
//! alone.

use std::io::Write;

/// Iceberg Java ends a block after the record that makes it so large.
const BLOCK_BYTES: usize = 64_000;

const SYNC: [u8; 16] = *b"iceberg-manifest";

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

impl Codec {
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
            Self::Zstandard => "zstandard",
        }
    }

    fn compress(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Null => data.to_vec(),
            Self::Deflate => {
                let mut encoder = flate2::write::DeflateEncoder::new(vec![], flate2::Compression::new(9));
                encoder.write_all(data).expect("writing to memory");
                encoder.finish().expect("writing to memory")
            }
            Self::Snappy => {
                let mut crc = flate2::Crc::new();
                crc.update(data);
                let mut block = snap::raw::Encoder::new().compress_vec(data).expect("a block is small");
                block.extend(crc.sum().to_be_bytes());
                block
            }
            Self::Zstandard => zstd::bulk::compress(data, 1).expect("writing to memory"),
        }
    }
}

/// A file, and its blocks as they lie in it.
pub struct AvroFile {
    pub bytes: Vec<u8>,
    pub blocks: Vec<Vec<u8>>,
    /// The records that it has, and their bytes before compression.
    pub records: u64,
    pub raw_bytes: usize,
}

/// What the entries of a manifest are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    /// Data files, with statistics of so many columns.
    Data { columns: usize },
    /// Deletion vectors, which have no statistics.
    DeletionVectors,
}

/// A manifest. The same arguments give the same bytes.
pub fn manifest(codec: Codec, entries: Entries, count: usize) -> AvroFile {
    let mut random = Random(count as u64 + 1);
    let constants: Vec<Vec<u8>> = (0..1_000).map(|column| bound(column, &mut random)).collect();
    let mut writer = Writer::new(codec, &manifest_schema());
    for index in 0..count {
        entry(&mut writer.record, entries, index, &constants, &mut random);
        writer.end_record();
    }
    writer.finish()
}

/// The manifest list of a snapshot with `count` manifests, numbered from `first`: lists of one table share manifests.
#[allow(dead_code, reason = "each bench uses a part of this")]
pub fn manifest_list(codec: Codec, first: usize, count: usize) -> AvroFile {
    let mut writer = Writer::new(codec, MANIFEST_LIST_SCHEMA);
    for manifest in first..first + count {
        let mut random = Random(manifest as u64 + 1);
        let record = &mut writer.record;
        string(record, &format!("s3://acme-lakehouse-prod/wh/web.db/events/metadata/{}-m0.avro", random.uuid()));
        long(record, 7_000 + random.below(8_000) as i64);
        long(record, 0); // partition_spec_id
        long(record, 0); // content
        long(record, manifest as i64 + 1); // sequence_number
        long(record, manifest as i64 + 1); // min_sequence_number
        long(record, random.next() as i64 >> 1); // added_snapshot_id
        for count in [12, 0, 0] {
            long(record, count); // added, existing, deleted files
        }
        for rows in [120_000 + random.below(1_000_000) as i64, 0, 0] {
            long(record, rows); // added, existing, deleted rows
        }
        record.extend([2, 4]); // partitions: two
        for bounds in [[20_000, 20_400], [0, 16]] {
            record.extend([0, 2, 0]); // contains_null, contains_nan
            for bound in bounds {
                record.push(2);
                bytes(record, &(bound + random.below(16) as i32).to_le_bytes());
            }
        }
        record.extend([0, 0]); // the end of partitions, key_metadata
        writer.end_record();
    }
    writer.finish()
}

fn entry(record: &mut Vec<u8>, entries: Entries, index: usize, constants: &[Vec<u8>], random: &mut Random) {
    let added = index % 100 >= 90;
    let status = if index % 100 >= 98 { 2 } else { i64::from(added) };
    long(record, status);
    record.push(2);
    long(record, SNAPSHOT + (index / 100) as i64); // snapshot_id
    for _ in 0..2 {
        record.push(2);
        long(record, (index / 100) as i64); // sequence_number, file_sequence_number
    }
    let vectors = entries == Entries::DeletionVectors;
    let (day, bucket, commit) = (index / 500, index % 16, Random(1 + index as u64 / 100).uuid());
    let folder =
        format!("s3://acme-lakehouse-prod/wh/web.db/events/data/event_ts_day={day:05}/user_id_bucket={bucket:02}");
    let data_file = |number: usize| format!("{folder}/{:05}-{number:06}-{commit}-00001", number % 200);
    long(record, i64::from(vectors)); // content
    match vectors {
        true => string(record, &format!("{}-deletes.puffin", data_file(index / 50))),
        false => string(record, &format!("{}.parquet", data_file(index))),
    }
    string(record, if vectors { "PUFFIN" } else { "PARQUET" });
    record.push(2);
    long(record, day as i64); // partition
    record.push(2);
    long(record, bucket as i64);
    let rows = 50_000 + random.below(1_000_000) as i64;
    long(record, if vectors { 1 + rows % 100 } else { rows }); // record_count
    long(record, rows * 37); // file_size_in_bytes
    match entries {
        Entries::Data { columns } => statistics(record, columns, rows, constants, random),
        Entries::DeletionVectors => record.extend([0; 6]),
    }
    record.push(0); // key_metadata
    if vectors {
        record.push(0); // split_offsets
    } else {
        record.extend([2, 2, 8, 0]);
    }
    record.push(0); // equality_ids
    record.extend([2, 0]); // sort_order_id
    record.push(0); // first_row_id
    if vectors {
        record.push(2);
        string(record, &format!("{}.parquet", data_file(index)));
        record.push(2);
        long(record, 4 + (index % 50) as i64 * 43); // content_offset
        record.push(2);
        long(record, 43); // content_size_in_bytes
    } else {
        record.extend([0, 0, 0]);
    }
}

/// Counts for every column, bounds that are the same in every file for two columns of five.
fn statistics(record: &mut Vec<u8>, columns: usize, rows: i64, constants: &[Vec<u8>], random: &mut Random) {
    let ids = || 1..=columns as i64;
    let mut counts = |ids: &mut dyn Iterator<Item = i64>, count: usize, value: &mut dyn FnMut() -> i64| {
        record.push(2);
        long(record, count as i64);
        for id in ids {
            long(record, id);
            long(record, value());
        }
        record.push(0);
    };
    counts(&mut ids(), columns, &mut || 9_000 + random.below(900_000) as i64); // column_sizes
    counts(&mut ids(), columns, &mut || rows); // value_counts
    counts(&mut ids(), columns, &mut || [0, 0, 0, random.below(60) as i64][random.below(4) as usize]); // null_value_counts
    counts(&mut ids().filter(|id| is_double(*id)), columns / 4, &mut || 0); // nan_value_counts
    for _ in ["lower_bounds", "upper_bounds"] {
        record.push(2);
        long(record, columns as i64);
        for id in ids() {
            long(record, id);
            match id % 5 {
                0 | 1 => bytes(record, &constants[id as usize]),
                _ => bytes(record, &bound(id as usize, random)),
            }
        }
        record.push(0);
    }
}

fn is_double(id: i64) -> bool {
    id % 4 == 0
}

/// A double, an int, a long, or 16 characters.
fn bound(column: usize, random: &mut Random) -> Vec<u8> {
    match column % 4 {
        0 => (random.below(1 << 30) as f64 / 7.0).to_le_bytes().to_vec(),
        1 => (random.below(1 << 24) as i32).to_le_bytes().to_vec(),
        2 => random.below(1 << 40).to_le_bytes().to_vec(),
        _ => random.uuid().as_bytes()[..16].to_vec(),
    }
}

struct Writer {
    codec: Codec,
    file: AvroFile,
    record: Vec<u8>,
    block: Vec<u8>,
    in_block: i64,
}

impl Writer {
    fn new(codec: Codec, schema: &str) -> Self {
        let mut header = b"Obj\x01".to_vec();
        long(&mut header, 2);
        for (key, value) in [("avro.schema", schema), ("avro.codec", codec.name())] {
            string(&mut header, key);
            string(&mut header, value);
        }
        header.push(0);
        header.extend(SYNC);
        let file = AvroFile { bytes: header, blocks: vec![], records: 0, raw_bytes: 0 };
        Self { codec, file, record: vec![], block: vec![], in_block: 0 }
    }

    fn end_record(&mut self) {
        self.file.records += 1;
        self.file.raw_bytes += self.record.len();
        self.in_block += 1;
        self.block.append(&mut self.record);
        if self.block.len() >= BLOCK_BYTES {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let block = self.codec.compress(&self.block);
        long(&mut self.file.bytes, self.in_block);
        bytes(&mut self.file.bytes, &block);
        self.file.bytes.extend(SYNC);
        self.file.blocks.push(block);
        self.block.clear();
        self.in_block = 0;
    }

    fn finish(mut self) -> AvroFile {
        if self.in_block > 0 {
            self.end_block();
        }
        self.file
    }
}

fn long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    long(out, value.len() as i64);
    out.extend(value);
}

fn string(out: &mut Vec<u8>, value: &str) {
    bytes(out, value.as_bytes());
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn uuid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xffff,
            b >> 48,
            b & 0xffff_ffff_ffff
        )
    }
}

const SNAPSHOT: i64 = 7_423_158_944_361_820_417;

fn manifest_schema() -> String {
    let map = |name: &str, id: i64, key: i64, value: &str| {
        format!(
            r#"{{"name":"{name}","type":["null",{{"type":"array","items":{{"type":"record","name":"k{key}_v{}","fields":[
                {{"name":"key","type":"int","field-id":{key}}},{{"name":"value","type":"{value}","field-id":{}}}]}},
                "logicalType":"map"}}],"default":null,"field-id":{id}}}"#,
            key + 1,
            key + 1
        )
    };
    let optional = |name: &str, id: i64, of: &str| {
        format!(r#"{{"name":"{name}","type":["null",{of}],"default":null,"field-id":{id}}}"#)
    };
    let list = |name: &str, id: i64, of: &str| {
        optional(name, id, &format!(r#"{{"type":"array","items":"{of}","element-id":{}}}"#, id + 1))
    };
    let file = [
        r#"{"name":"content","type":"int","field-id":134}"#.to_string(),
        r#"{"name":"file_path","type":"string","field-id":100}"#.into(),
        r#"{"name":"file_format","type":"string","field-id":101}"#.into(),
        format!(
            r#"{{"name":"partition","type":{{"type":"record","name":"r102","fields":[{},{}]}},"field-id":102}}"#,
            optional("event_ts_day", 1000, r#"{"type":"int","logicalType":"date"}"#),
            optional("user_id_bucket", 1001, r#""int""#)
        ),
        r#"{"name":"record_count","type":"long","field-id":103}"#.into(),
        r#"{"name":"file_size_in_bytes","type":"long","field-id":104}"#.into(),
        map("column_sizes", 108, 117, "long"),
        map("value_counts", 109, 119, "long"),
        map("null_value_counts", 110, 121, "long"),
        map("nan_value_counts", 137, 138, "long"),
        map("lower_bounds", 125, 126, "bytes"),
        map("upper_bounds", 128, 129, "bytes"),
        optional("key_metadata", 131, r#""bytes""#),
        list("split_offsets", 132, "long"),
        list("equality_ids", 135, "int"),
        optional("sort_order_id", 140, r#""int""#),
        optional("first_row_id", 142, r#""long""#),
        optional("referenced_data_file", 143, r#""string""#),
        optional("content_offset", 144, r#""long""#),
        optional("content_size_in_bytes", 145, r#""long""#),
    ];
    let entry = [
        r#"{"name":"status","type":"int","field-id":0}"#.to_string(),
        optional("snapshot_id", 1, r#""long""#),
        optional("sequence_number", 3, r#""long""#),
        optional("file_sequence_number", 4, r#""long""#),
        format!(
            r#"{{"name":"data_file","type":{{"type":"record","name":"r2","fields":[{}]}},"field-id":2}}"#,
            file.join(",")
        ),
    ];
    format!(r#"{{"type":"record","name":"manifest_entry","fields":[{}]}}"#, entry.join(","))
}

const MANIFEST_LIST_SCHEMA: &str = r#"{"type":"record","name":"manifest_file","fields":[
    {"name":"manifest_path","type":"string","field-id":500},
    {"name":"manifest_length","type":"long","field-id":501},
    {"name":"partition_spec_id","type":"int","field-id":502},
    {"name":"content","type":"int","field-id":517},
    {"name":"sequence_number","type":"long","field-id":515},
    {"name":"min_sequence_number","type":"long","field-id":516},
    {"name":"added_snapshot_id","type":"long","field-id":503},
    {"name":"added_files_count","type":"int","field-id":504},
    {"name":"existing_files_count","type":"int","field-id":505},
    {"name":"deleted_files_count","type":"int","field-id":506},
    {"name":"added_rows_count","type":"long","field-id":512},
    {"name":"existing_rows_count","type":"long","field-id":513},
    {"name":"deleted_rows_count","type":"long","field-id":514},
    {"name":"partitions","type":["null",{"type":"array","items":{"type":"record","name":"r508","fields":[
        {"name":"contains_null","type":"boolean","field-id":509},
        {"name":"contains_nan","type":["null","boolean"],"default":null,"field-id":518},
        {"name":"lower_bound","type":["null","bytes"],"default":null,"field-id":510},
        {"name":"upper_bound","type":["null","bytes"],"default":null,"field-id":511}]},"element-id":508}],
        "default":null,"field-id":507},
    {"name":"key_metadata","type":["null","bytes"],"default":null,"field-id":519}]}"#;
