//! Who looks on: streams that look at the runs of one handle now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::Stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Progress;
use super::work::{BegunRun, RunWork};

/// So many runs may begin between two looks of a stream. Of more it misses the first.
const BEGUN_RUNS: usize = 256;

/// The streams that are told of a handle's runs.
#[derive(Debug)]
pub(crate) struct Watchers {
    runs: AtomicU64,
    streams: Sender<Arc<RunWork>>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self { runs: AtomicU64::new(0), streams: Sender::new(BEGUN_RUNS) }
    }
}

impl Watchers {
    /// Begins a run, and tells everybody who looks on.
    pub(crate) fn begin(&self, operation: String) -> BegunRun {
        let begun = BegunRun::new(self.runs.fetch_add(1, Ordering::Relaxed) + 1, operation);
        // It is no fault that nobody looks on.
        let _ = self.streams.send(Arc::clone(&begun.work));
        begun
    }

    /// The progress of the runs that begin from now on; see `Maintenance::progress`.
    pub(crate) fn watch(&self, every: Duration) -> impl Stream<Item = Progress> + Send + Unpin + 'static + use<> {
        // An interval of no length is not allowed.
        let every = every.max(Duration::from_millis(1));
        let watch = Watch { begun: Some(self.streams.subscribe()), every, ticks: None, runs: vec![], next: 0 };
        Box::pin(futures::stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }))
    }
}

/// One stream. It goes round by round over the runs that work.
struct Watch {
    /// Runs that have begun; `None` once there can be no further ones.
    begun: Option<Receiver<Arc<RunWork>>>,
    every: Duration,
    /// Made when the stream is first polled, because it needs the runtime.
    ticks: Option<Interval>,
    runs: Vec<Arc<RunWork>>,
    /// The run that is looked at next in this round.
    next: usize,
}

impl Watch {
    async fn next(&mut self) -> Option<Progress> {
        while self.next >= self.runs.len() {
            self.wait().await?;
        }
        let progress = self.runs.get(self.next)?.progress();
        match progress.stage.is_end() {
            true => drop(self.runs.remove(self.next)),
            false => self.next += 1,
        }
        Some(progress)
    }

    /// Waits for the next round. `None` when nothing can come any more.
    async fn wait(&mut self) -> Option<()> {
        let ticks = self.ticks.get_or_insert_with(|| {
            let mut ticks = interval(self.every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        match &mut self.begun {
            None if self.runs.is_empty() => return None,
            None => {
                ticks.tick().await;
                self.next = 0;
            }
            Some(begun) => tokio::select! {
                run = begun.recv() => match run {
                    // The round goes on with the new one.
                    Ok(run) => self.runs.push(run),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => self.begun = None,
                },
                _ = ticks.tick(), if !self.runs.is_empty() => self.next = 0,
            },
        }
        Some(())
    }
}
