//! The embedder's handle: what `register` returns, and what every run needs from its session.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::execution::TaskContext;

use crate::options::MaintenanceOptions;

/// Where "now" comes from.
pub trait Clock: Debug + Send + Sync {
    /// The current time, ms since the epoch, UTC.
    fn now_ms(&self) -> i64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        chrono::Utc::now().timestamp_millis()
    }
}

/// A clock that stands still, for tests and reproducible plans.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(
    /// Ms since the epoch, UTC.
    pub i64,
);

impl Clock for FixedClock {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

/// A flag that stops a run between two batches of deletes. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once [`Self::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one run needs from its session.
#[derive(Debug, Clone)]
pub(crate) struct RunContext {
    pub maintenance: Maintenance,
    pub task: Arc<TaskContext>,
    pub cancellation: Cancellation,
}

impl RunContext {
    pub(crate) fn options(&self) -> MaintenanceOptions {
        self.task.session_config().options().extensions.get::<MaintenanceOptions>().cloned().unwrap_or_default()
    }
}

/// Maintenance as it was set up for a session: catalogs, clock. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Maintenance {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
}

impl Maintenance {
    /// A handle that takes the time from this clock.
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { inner: Arc::new(Inner { clock }) }
    }

    /// The current time by the clock of this handle, ms since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.inner.clock.now_ms()
    }
}
