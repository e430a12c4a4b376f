//! Comparing tasks in one process on a machine that others use too: they take turns, and CPU time is what counts.

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;

const ROUNDS: usize = 11;

/// How long each task runs in a round.
const ROUND_SECONDS: f64 = 0.03;

pub struct Task<'a> {
    name: &'static str,
    run: Box<dyn FnMut() -> usize + 'a>,
}

impl<'a> Task<'a> {
    pub fn new(name: &'static str, run: impl FnMut() -> usize + 'a) -> Self {
        Self { name, run: Box::new(run) }
    }

    /// Seconds for so many runs.
    fn time(&mut self, runs: usize) -> f64 {
        let begin = cpu_seconds();
        for _ in 0..runs {
            black_box((self.run)());
        }
        cpu_seconds() - begin
    }
}

/// The microseconds of each task for a thousand of `items`, of which each run handles so many.
pub fn medians(mut tasks: Vec<Task<'_>>, items: u64) -> Vec<(&'static str, f64)> {
    let runs: Vec<usize> = tasks
        .iter_mut()
        .map(|task| {
            task.time(1);
            (ROUND_SECONDS / task.time(1).max(1e-7)).ceil() as usize
        })
        .collect();
    let mut times = vec![vec![]; tasks.len()];
    for _ in 0..ROUNDS {
        for ((task, runs), times) in tasks.iter_mut().zip(&runs).zip(&mut times) {
            times.push(task.time(*runs) / (*runs as f64 * items as f64) * 1e9);
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    tasks.iter().zip(times).map(|(task, times)| (task.name, median(times))).collect()
}

/// Prints a row of the table; with `goal:` before it if there is one.
pub fn goal(measure: &str, us: f64, peer: f64, goal: Option<&str>) {
    let mark = if goal.is_some() { "goal: " } else { "" };
    let measure = format!("{mark}{measure}");
    println!("{measure:<48} | {us:>12.1} | {peer:>12.1} | {:>6.3} | {}", us / peer, goal.unwrap_or("-"));
}

/// What this thread has used of a CPU; where only Linux would know, the time that has passed.
fn cpu_seconds() -> f64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Linux brings the figure up to date when the thread gives way to others.
    std::thread::yield_now();
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = used.and_then(|used| used.split(' ').next()?.parse::<u64>().ok());
    nanoseconds.map_or_else(|| BEGIN.elapsed().as_secs_f64(), |nanoseconds| nanoseconds as f64 * 1e-9)
}
