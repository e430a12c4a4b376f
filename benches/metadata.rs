//! Large table metadata: a table that committed 100,000 times. `cargo bench --bench metadata [snapshots]`
//!
//! Prints how long it takes to read the metadata, to decide what expires, and to write the metadata of the commit; and
//! the most memory the process ever held, against the size of the file.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use iceberg_maintenance::retention::{RetentionPolicy, choose_expired};
use iceberg_maintenance::table::{MetadataChange, TableMetadata};

const DEFAULT_SNAPSHOTS: i64 = 100_000;
const RUNS: usize = 5;
const MINUTE_MS: i64 = 60_000;

fn main() {
    let snapshots = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(DEFAULT_SNAPSHOTS);
    let file = metadata_file(snapshots).into_bytes();
    let megabytes = file.len() as f64 / 1e6;
    println!("{snapshots} snapshots, {megabytes:.1} MB");
    let before = peak_megabytes();

    let parse = || TableMetadata::parse("/t/metadata/v1.metadata.json", &file).expect("valid metadata");
    report("read", &parse);
    let metadata = parse();
    let now_ms = snapshots * MINUTE_MS;
    for (kept, older_than_ms) in [("a tenth", now_ms * 9 / 10), ("half", now_ms / 2), ("nine tenths", now_ms / 10)] {
        let policy = RetentionPolicy { older_than_ms: Some(older_than_ms), ..Default::default() };
        let decide = || choose_expired(&metadata, &policy, now_ms).expect("a decision");
        report(&format!("decide, {kept} stays"), &decide);
        let removed_snapshot_ids = decide().expired_ids().into_iter().collect();
        let change = MetadataChange { removed_snapshot_ids, ..Default::default() };
        report(&format!("write, {kept} stays"), &|| change.apply(&metadata, now_ms).expect("new metadata"));
    }
    if let (Some(before), Some(after)) = (before, peak_megabytes()) {
        let rest = after - before;
        println!(
            "peak memory: {after:.0} MB, of which {rest:.0} MB beside the file: {:.1} x the file",
            rest / megabytes
        );
    }
}

/// Prints the median time of some runs.
fn report<T>(what: &str, work: &dyn Fn() -> T) {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begin = Instant::now();
            black_box(work());
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{what:28} {:8.1} ms", times[RUNS / 2] * 1000.0);
}

/// The most memory the process held so far, where the system tells.
fn peak_megabytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kilobytes| kilobytes / 1e3)
}

/// Metadata as Java writes it: each snapshot with its parent and a summary of 15 keys, and the log of all of them.
fn metadata_file(snapshots: i64) -> String {
    let mut text = format!(
        r#"{{"format-version":2,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1","location":"/t","last-updated-ms":{},"current-snapshot-id":{},"refs":{{"main":{{"snapshot-id":{},"type":"branch"}}}},"snapshots":["#,
        snapshots * MINUTE_MS,
        id(snapshots),
        id(snapshots)
    );
    for number in 1..=snapshots {
        let comma = if number == 1 { "" } else { "," };
        let parent = if number == 1 { String::new() } else { format!(r#""parent-snapshot-id":{},"#, id(number - 1)) };
        let _ = write!(
            text,
            r#"{comma}{{"sequence-number":{number},"snapshot-id":{},{parent}"timestamp-ms":{},"summary":{{"operation":"append","spark.app.id":"application_1700000000000_0042","added-data-files":"1","added-records":"1000","added-files-size":"123456","changed-partition-count":"1","total-records":"{}","total-files-size":"{}","total-data-files":"{number}","total-delete-files":"0","total-position-deletes":"0","total-equality-deletes":"0","engine-version":"3.5.1","app-id":"application_1700000000000_0042","engine-name":"spark"}},"manifest-list":"/t/metadata/snap-{}-1-9c12d441-03fe-4693-9a96-a0705ddf69c1.avro","schema-id":0}}"#,
            id(number),
            number * MINUTE_MS,
            number * 1000,
            number * 123_456,
            id(number)
        );
    }
    text.push_str(r#"],"snapshot-log":["#);
    for number in 1..=snapshots {
        let comma = if number == 1 { "" } else { "," };
        let _ = write!(text, r#"{comma}{{"timestamp-ms":{},"snapshot-id":{}}}"#, number * MINUTE_MS, id(number));
    }
    text.push_str(r#"],"metadata-log":[]}"#);
    text
}

/// Ids as writers draw them: large and in no order.
fn id(number: i64) -> i64 {
    number.wrapping_mul(0x5851_F42D_4C95_7F2D) & i64::MAX
}
