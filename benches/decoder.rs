//! Decoding of manifests and manifest lists to record batches, against decompressing the same blocks and nothing else,
//! and against other Avro readers.
//!
//! `cargo bench --bench decoder --features benches`, and with `--no-default-features` for the build without C. Before
//! Criterion's figures comes a table, in CPU time of this thread as the median of rounds in which all take turns.

#[path = "support/manifests.rs"]
mod manifests;
#[path = "support/readers.rs"]
mod readers;
#[path = "support/rounds.rs"]
mod rounds;

use std::time::Duration;

use criterion::{Criterion, Throughput};
use iceberg_maintenance::benches::decoder::Decoder;

use manifests::{AvroFile, Codec, Entries, manifest, manifest_list};
use readers::{Decompression, apache_avro_values, arrow_avro_projected, libdeflate};
use rounds::{Task, goal, medians};

const PURE_RUST: bool = !cfg!(feature = "libdeflate");

struct Case {
    name: String,
    codec: Codec,
    file: AvroFile,
    /// The most that ours may take, in times of decompression alone.
    goal: Option<f64>,
    is_list: bool,
}

impl Case {
    fn manifest(name: &str, codec: Codec, entries: Entries, count: usize, goal: Option<f64>) -> Self {
        let name = format!("manifest, {name}, {}", codec.name());
        Self { name, codec, file: manifest(codec, entries, count), goal, is_list: false }
    }

    fn all() -> Vec<Self> {
        let (c20, c100) = (Entries::Data { columns: 20 }, Entries::Data { columns: 100 });
        let mut cases = vec![
            Self::manifest("20 columns", Codec::Deflate, c20, 10_000, Some(1.35)),
            Self::manifest("100 columns", Codec::Deflate, c100, 10_000, Some(1.3)),
            Self::manifest("deletion vectors", Codec::Deflate, Entries::DeletionVectors, 10_000, None),
            Self::manifest("12 entries of 20 columns", Codec::Deflate, c20, 12, None),
        ];
        for codec in [Codec::Zstandard, Codec::Snappy, Codec::Null] {
            cases.push(Self::manifest("20 columns", codec, c20, 10_000, None));
        }
        let list = manifest_list(Codec::Deflate, 0, 1_000);
        let name = "manifest list, 1,000 rows, deflate".to_string();
        cases.push(Self { name, codec: Codec::Deflate, file: list, goal: Some(1.5), is_list: true });
        cases
    }

    /// It knows the other codecs only with more dependencies.
    fn apache_avro_reads_it(&self) -> bool {
        !self.is_list && matches!(self.codec, Codec::Null | Codec::Deflate)
    }

    fn ours(&self, decoder: &mut Decoder) -> usize {
        let bytes = &self.file.bytes;
        let rows = if self.is_list { decoder.manifest_list(bytes) } else { decoder.manifest(bytes) };
        rows.expect("the file is whole")
    }
}

fn main() {
    let cases = Case::all();
    println!("{:>8} records, {:>6} bytes each, {:>6} in the file", "", "", "");
    for case in &cases {
        let (file, records) = (&case.file, case.file.records as usize);
        println!("{records:>8} {:>6} {:>6}  {}", file.raw_bytes / records, file.bytes.len() / records, case.name);
    }
    println!("\n{:<48} | {:>12} | {:>12} | {:>6} | goal", "CPU us per 1,000 records", "us", "peer", "ratio");
    cases.iter().for_each(compare);

    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(10)
        .configure_from_args();
    cases.iter().for_each(|case| measure(&mut criterion, case));
    criterion.final_summary();
}

/// Prints the rows of the table.
fn compare(case: &Case) {
    let (mut decoder, mut c_library) = (Decoder::default(), libdeflate());
    let mut decompression = Decompression::new(case.codec);
    let mut tasks = vec![
        Task::new("ours", || case.ours(&mut decoder)),
        Task::new("decompression alone", || decompression.all(&case.file)),
    ];
    if PURE_RUST && case.codec == Codec::Deflate {
        tasks.push(Task::new("libdeflate alone", || c_library.all(&case.file)));
    }
    if !case.is_list {
        tasks.push(Task::new("arrow-avro, projected", || arrow_avro_projected(&case.file.bytes)));
    }
    if case.apache_avro_reads_it() {
        tasks.push(Task::new("apache-avro, Value", || apache_avro_values(&case.file.bytes)));
    }
    let is_large = case.goal.is_some() && !case.is_list;
    let medians = medians(tasks, case.file.records);
    let (_, ours) = medians[0];
    for (peer, time) in &medians[1..] {
        let limit = match *peer {
            "decompression alone" => case.goal.map(|goal| format!("<= {goal}")),
            // The goal of the default build, times what C may gain.
            "libdeflate alone" => case.goal.map(|goal| format!("<= {:.2}", goal * 1.4)),
            "arrow-avro, projected" if is_large => Some("<= 0.4".to_string()),
            "apache-avro, Value" if is_large => Some("<= 0.125".to_string()),
            _ => None,
        };
        let build = if PURE_RUST { ", pure Rust" } else { "" };
        goal(&format!("{}{build}: {peer}", case.name), ours, *time, limit.as_deref());
    }
}

fn measure(criterion: &mut Criterion, case: &Case) {
    let mut group = criterion.benchmark_group(&case.name);
    group.throughput(Throughput::Elements(case.file.records));
    let mut decoder = Decoder::default();
    group.bench_function("ours", |bench| bench.iter(|| case.ours(&mut decoder)));
    let mut decompression = Decompression::new(case.codec);
    group.bench_function("decompression alone", |bench| bench.iter(|| decompression.all(&case.file)));
    if !case.is_list {
        group.bench_function("arrow-avro", |bench| bench.iter(|| arrow_avro_projected(&case.file.bytes)));
    }
    if case.apache_avro_reads_it() {
        group.bench_function("apache-avro", |bench| bench.iter(|| apache_avro_values(&case.file.bytes)));
    }
    group.finish();
}
