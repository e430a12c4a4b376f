//! How much memory it takes to tell live files from orphans, and how time grows with their number.
//!
//! A store makes up a table on the fly: manifests of 10,000 entries, and a listing of the files in them with a few orphans
//! between. Each measurement is a dry run of `remove_orphan_files` in a process of its own, because the peak of resident memory
//! is a process's.
//!
//! `cargo bench --bench reachability [-- --quick]`; lines that begin with `goal:` are taken over into `docs/benchmarks.md`.

mod store;

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use datafusion::prelude::SessionContext;
use iceberg_maintenance::RemoveOrphanFiles;

use store::SyntheticTable;

/// What one process measured.
struct Measured {
    wall_s: f64,
    cpu_s: f64,
    peak_mb: f64,
    orphans: usize,
}

/// Runs the measurement in a process of its own.
fn measure(referenced: u64, listed: u64, memory_limit: &str) -> Measured {
    let program = std::env::current_exe().expect("the path of this program");
    let arguments = [referenced.to_string(), listed.to_string(), memory_limit.to_string()];
    let output = Command::new(program).arg("--measure").args(arguments).output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [wall_s, cpu_s, peak_mb, orphans] = numbers[..] else { panic!("not four numbers: {text}") };
    let measured = Measured { wall_s, cpu_s, peak_mb, orphans: orphans as usize };
    let limit = if memory_limit == "none" { "no limit" } else { memory_limit };
    println!(
        "{listed:>11} listed, {referenced:>11} referenced, {limit:>8}: {wall_s:7.2} s, {cpu_s:7.2} CPU s, peak {peak_mb:6.0} MB, \
         {} orphans",
        measured.orphans
    );
    measured
}

#[tokio::main]
async fn run(referenced: u64, listed: u64, memory_limit: &str) {
    let context = SessionContext::new();
    let maintenance = iceberg_maintenance::register(&context).expect("a session");
    // One listing: the store makes up all keys for each that is asked for.
    let mut settings = vec!["SET iceberg_maintenance.listing = 'sequential'".to_string()];
    if memory_limit != "none" {
        settings.push(format!("SET datafusion.runtime.memory_limit = '{memory_limit}'"));
    }
    for set in settings {
        context.sql(&set).await.expect("a statement").collect().await.expect("a setting");
    }
    let table = SyntheticTable::new(referenced, listed);
    let url = url::Url::parse("s3://bucket").expect("a URL");
    context.register_object_store(&url, Arc::new(table));
    let now_ms = store::MODIFIED_MS + 100 * 24 * 3600 * 1000;
    let mut options = RemoveOrphanFiles::older_than(now_ms - 1, now_ms);
    // A listing must show every live file of its folder: one that is shorter is of a part of the table.
    options.location = (listed < referenced).then(|| "data/part=000".into());
    let started = Instant::now();
    let plan = maintenance.plan_remove_orphan_files("s3://bucket/t", &options).await.expect("a plan");
    println!("{} {} {} {}", started.elapsed().as_secs_f64(), cpu_seconds(), peak_mb(), plan.files().len());
}

/// User and system time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks =
        |at: usize| after_name.split(' ').nth(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(f64::NAN);
    // The kernel reports in hundredths of a second on every architecture of interest.
    (ticks(11) + ticks(12)) / 100.0
}

/// The most memory that was resident, in MB.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|kb| kb.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

fn goal(measure: &str, us: f64, goal: &str) {
    println!("goal: {measure} | {us:.1} | | | {goal}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, referenced, listed, limit] = &arguments[..]
        && flag == "--measure"
    {
        let number = |text: &String| text.parse().expect("a number");
        return run(number(referenced), number(listed), limit);
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let million = if quick { 100_000 } else { 1_000_000 };
    let small = measure(million, million, "none");
    let plain = measure(10 * million, 10 * million, "none");
    let limited = measure(10 * million, 10 * million, "32M");
    assert_eq!(plain.orphans, limited.orphans, "a memory limit must change no plan");
    let large = measure(100 * million, million, "none");
    goal("peak MB, 10 M listed x 10 M referenced", plain.peak_mb, "<= 250");
    goal("peak MB, the same with a limit of 32 MB", limited.peak_mb, "<= 64");
    goal("CPU s with the limit / without", limited.cpu_s / plain.cpu_s, "");
    goal("peak MB, 100 M referenced", large.peak_mb, "<= 2048");
    goal("CPU s of 10 M x 10 M / 1 M x 1 M", plain.cpu_s / small.cpu_s, "<= 11");
    goal("wall s, 100 M referenced", large.wall_s, "");
}
