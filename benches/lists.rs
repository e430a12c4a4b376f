//! The manifest lists of a thousand snapshots that share most of a thousand manifests: decoding them, each manifest once,
//! against inflating them and nothing else.
//!
//! `cargo bench --features benches --bench lists`

use std::collections::HashSet;
use std::io::Write;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use iceberg_maintenance::benches::lists::{distinct_entries, inflated_bytes};

const LISTS: usize = 1000;
const MANIFESTS: usize = 1000;
const ROUNDS: usize = 7;

/// How much uncompressed data Java's writer puts into a block.
const BLOCK_BYTES: usize = 64_000;

/// The fields that Java writes in format version 2.
const SCHEMA: &str = r#"{"type":"record","name":"manifest_file","fields":[
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
{"name":"partitions","default":null,"field-id":507,"type":["null",{"type":"array","element-id":508,"items":
{"type":"record","name":"r508","fields":[
{"name":"contains_null","type":"boolean","field-id":509},
{"name":"contains_nan","type":["null","boolean"],"field-id":518},
{"name":"lower_bound","type":["null","bytes"],"field-id":510},
{"name":"upper_bound","type":["null","bytes"],"field-id":511}]}}]}]}"#;

fn main() -> iceberg_maintenance::Result<()> {
    let manifests: Vec<Vec<u8>> = (0..LISTS + MANIFESTS).map(|n| entry(n as u64)).collect();
    // Each commit adds a manifest, which comes first, and the oldest one went with its files.
    let newest_first = |list: usize| manifests[list..list + MANIFESTS].iter().rev();
    // The same lists by a writer that has no order: each list sorts its manifests in its own way.
    let shuffled = |list: usize| {
        let step = 2 * (list % 400) + 1;
        (0..MANIFESTS).map(move |place| list + place * step % MANIFESTS)
    };
    let in_order: Vec<Vec<u8>> = (0..LISTS).map(|list| file(newest_first(list))).collect();
    let in_no_order: Vec<Vec<u8>> =
        (0..LISTS).map(|list| file(shuffled(list).map(|place| &manifests[place]))).collect();
    measure("1,000 lists x 1,000 shared manifests, decode and deduplicate", "<= 2", &in_order)?;
    measure("the same, the entries of each list in an order of their own", "<= 2", &in_no_order)
}

fn measure(name: &str, goal: &str, lists: &[Vec<u8>]) -> iceberg_maintenance::Result<()> {
    let distinct: HashSet<usize> = (0..LISTS).flat_map(|list| list..list + MANIFESTS).collect();
    let slices = || lists.iter().map(Vec::as_slice);
    let (mut ours, mut inflate) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let (time, bytes) = cpu_time(|| inflated_bytes(slices()));
        inflate.push(time);
        let (time, entries) = cpu_time(|| distinct_entries(slices()));
        ours.push(time);
        let (bytes, entries) = (bytes?, entries?);
        assert!(bytes > 100 * LISTS * MANIFESTS && entries == distinct.len(), "{bytes} bytes, {entries} entries");
    }
    let (ours, inflate) = (median(ours), median(inflate));
    let ratio = ours.as_secs_f64() / inflate.as_secs_f64();
    println!(
        "goal: {name} | {:.3} s | inflate only {:.3} s | {ratio:.2} | {goal}",
        ours.as_secs_f64(),
        inflate.as_secs_f64()
    );
    Ok(())
}

/// The time that this thread had a CPU while it worked, where the system says so.
fn cpu_time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let cpu = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    let (started, before) = (Instant::now(), cpu());
    let result = work();
    let time = cpu().zip(before).map_or_else(|| started.elapsed(), |(after, before)| after - before);
    (time, result)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// An entry of a manifest that a commit added: 161 bytes, of which little repeats in the next one.
fn entry(n: u64) -> Vec<u8> {
    let noise = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let path = format!(
        "s3://acme-lakehouse-prod/wh/web.db/events/metadata/{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}-m0.avro",
        noise >> 32,
        noise >> 16 & 0xffff,
        noise >> 4 & 0xfff,
        noise & 0xfff,
        noise.rotate_left(23) & 0xffff_ffff_ffff
    );
    let mut entry = string(path.as_bytes());
    for number in [7000 + (noise % 3000) as i64, 0, 0, n as i64, n as i64, (noise >> 1) as i64, 10, 0, 0, 100_000, 0, 0]
    {
        entry.extend(long(number));
    }
    // Two partition fields with both bounds.
    entry.extend([long(1), long(2)].concat());
    for bound in [(n / 40) as u32, (n % 16) as u32] {
        entry.extend([0]);
        entry.extend([long(1), vec![0]].concat());
        for bound in [bound, bound + 3] {
            entry.extend([long(1), string(&bound.to_le_bytes())].concat());
        }
    }
    entry.extend(long(0));
    entry
}

/// A file as Java writes it by default: deflated at level 9.
fn file<'a>(entries: impl Iterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    const SYNC: [u8; 16] = *b"0123456789abcdef";
    let mut file = b"Obj\x01".to_vec();
    file.extend(long(2));
    for (key, value) in [("avro.schema", SCHEMA), ("avro.codec", "deflate")] {
        file.extend([string(key.as_bytes()), string(value.as_bytes())].concat());
    }
    file.extend(long(0));
    file.extend(SYNC);
    let mut block = |entries: &mut i64, data: &mut Vec<u8>| {
        let mut deflated = DeflateEncoder::new(vec![], Compression::best());
        deflated.write_all(data).and_then(|()| deflated.finish()).map_or_else(
            |error| panic!("deflating into memory failed: {error}"),
            |deflated| file.extend([long(*entries), string(&deflated), SYNC.to_vec()].concat()),
        );
        (*entries, *data) = (0, vec![]);
    };
    let (mut count, mut data) = (0, vec![]);
    for entry in entries {
        data.extend_from_slice(entry);
        count += 1;
        if data.len() >= BLOCK_BYTES {
            block(&mut count, &mut data);
        }
    }
    if count > 0 {
        block(&mut count, &mut data);
    }
    file
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [long(bytes.len() as i64), bytes.to_vec()].concat()
}

fn long(value: i64) -> Vec<u8> {
    let mut rest = (value.wrapping_shl(1) ^ (value >> 63)) as u64;
    let mut encoded = vec![];
    while rest >= 0x80 {
        encoded.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    encoded.push(rest as u8);
    encoded
}
