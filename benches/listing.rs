//! Listings against what they are made of: CPU time a file on a local disk, speed-up of key ranges in a bucket.
//!
//! `cargo bench --features benches --bench listing`. CPU time is that of the whole process, since machines are shared; the
//! ways take turns, and the numbers are sums of all rounds.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use iceberg_maintenance::benches::listing::{self, PagedBucket};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

const FOLDERS: usize = 2000;
const FILES_PER_FOLDER: usize = 100;
const ROUNDS: usize = 7;
/// The ticks of `/proc/self/stat`, which Linux has a hundred of in a second on all platforms we know.
const TICK: Duration = Duration::from_millis(10);

const KEYS: usize = 1_000_000;
const LATENCY: Duration = Duration::from_millis(10);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    local_disk(&runtime);
    bucket(&runtime);
}

fn local_disk(runtime: &tokio::runtime::Runtime) {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..FOLDERS {
        let partition = folder.path().join(format!("data/day={n:04}"));
        fs::create_dir_all(&partition).unwrap();
        for n in 0..FILES_PER_FOLDER {
            fs::write(partition.join(format!("{n:05}-0-5f3c9a4e-7d31-4b9d-8f0e-000000000001.parquet")), "").unwrap();
        }
    }
    let path = folder.path().to_str().unwrap();
    let store = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let ways: [(&str, &dyn Fn() -> usize); 6] = [
        ("read_dir + metadata, one thread", &|| read_dir(folder.path(), true)),
        ("read_dir, one thread", &|| read_dir(folder.path(), false)),
        ("LocalFileSystem::list", &|| {
            runtime.block_on(store.list(None).try_fold(0, |n, _| std::future::ready(Ok(n + 1)))).unwrap()
        }),
        ("ours, one thread", &|| runtime.block_on(listing::local(path, 1, false)).unwrap()),
        ("ours", &|| runtime.block_on(listing::local(path, 16, false)).unwrap()),
        ("ours, names only", &|| runtime.block_on(listing::local(path, 16, true)).unwrap()),
    ];
    let mut spent = ways.map(|_| (Duration::ZERO, Duration::ZERO));
    for _ in 0..ROUNDS {
        for ((_, list), (cpu, wall)) in ways.iter().zip(&mut spent) {
            let (cpu_before, begin) = (cpu_time(), Instant::now());
            assert_eq!(list(), FOLDERS * FILES_PER_FOLDER);
            *wall += begin.elapsed();
            *cpu += cpu_time() - cpu_before;
        }
    }
    let files = (ROUNDS * FOLDERS * FILES_PER_FOLDER) as f64;
    println!("local listing of {} files, us a file", FOLDERS * FILES_PER_FOLDER);
    println!("{:34} {:>8} {:>8} {:>14} {:>18}", "", "CPU", "wall", "CPU / read_dir", "object_store / CPU");
    let (floor, peer) = (spent[0].0, spent[2].0);
    for ((name, _), (cpu, wall)) in ways.iter().zip(spent) {
        println!(
            "{name:34} {:8.2} {:8.2} {:14.2} {:18.2}",
            cpu.as_secs_f64() * 1e6 / files,
            wall.as_secs_f64() * 1e6 / files,
            cpu.as_secs_f64() / floor.as_secs_f64(),
            peer.as_secs_f64() / cpu.as_secs_f64()
        );
    }
}

/// What the standard library needs to see every file below a folder.
fn read_dir(folder: &Path, with_metadata: bool) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            count += read_dir(&entry.path(), with_metadata);
        } else {
            count += usize::from(!with_metadata || entry.metadata().unwrap().modified().is_ok());
        }
    }
    count
}

/// The CPU time of this process so far, in user and kernel mode.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The second field is the name of the program in parentheses, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    TICK * ticks
}

fn bucket(runtime: &tokio::runtime::Runtime) {
    let keys: Vec<String> = (0..KEYS).map(|n| format!("t/data/day={:02}/{n:07}-0.parquet", n % 32)).collect();
    let bucket = PagedBucket::new(keys.clone(), 1000);
    let bucket = bucket.with_latency(Arc::new(|_| Box::pin(tokio::time::sleep(LATENCY))));
    println!("\nlisting of {KEYS} keys in a bucket with {} ms a page", LATENCY.as_millis());
    println!(
        "{:>7} {:>10} {:>9} {:>9} {:>11} {:>9}",
        "ranges", "samples", "seconds", "speed-up", "of ranges", "requests"
    );
    let mut one = 0.0;
    for (ranges, samples) in [(1, true), (4, true), (16, true), (64, true), (16, false), (64, false)] {
        let before = bucket.requests();
        let known = if samples { keys.iter().step_by(97).map(|key| format!("/{key}")).collect() } else { vec![] };
        let begin = Instant::now();
        let found = runtime.block_on(listing::bucket(bucket.clone(), ranges, known)).unwrap();
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(found, KEYS);
        if ranges == 1 {
            one = seconds;
        }
        let faster = one / seconds;
        println!(
            "{ranges:7} {:>10} {seconds:9.3} {faster:9.1} {:11.2} {:9}",
            if samples { "known" } else { "none" },
            faster / ranges as f64,
            bucket.requests() - before
        );
    }
}
