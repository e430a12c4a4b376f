//! The memory that the files of a scan take from the session's pool.
//!
//! A file takes memory from before it is read until its last batch was handed on. When the pool refuses,
//! - a file that was not read yet waits until another file of the scan gives memory back;
//! - a file that turns out larger than expected gives back all that it has, and is read again when no other file of the
//!   scan takes memory.
//!
//! So reading ahead shrinks as far as it has to, no two files wait for each other, and only a file that doesn't fit alone
//! is an error.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use tokio::sync::Notify;

use crate::error::{Error, Result};

/// Which files of a scan take memory. Its streams share it.
#[derive(Debug, Default)]
pub(super) struct ScanMemory {
    state: Mutex<State>,
    given_back: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// How many times memory is taken.
    taken: usize,
    /// How many files wait until they are alone. Nobody else begins meanwhile.
    waiting_alone: usize,
    alone: bool,
}

/// The memory of files that are read together. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct FileMemory {
    scan: Arc<ScanMemory>,
    reservation: MemoryReservation,
    used: Mutex<usize>,
    alone: bool,
}

impl ScanMemory {
    /// Waits until there is memory for files that will take about `estimate` bytes. The reservation is an empty one.
    pub(super) async fn take(self: Arc<Self>, reservation: MemoryReservation, estimate: usize) -> FileMemory {
        self.when(|state| {
            if state.alone || state.waiting_alone > 0 {
                return false;
            }
            // The first file begins in any case: an estimate is no reason to fail.
            let reserved = reservation.try_grow(estimate).is_ok() || state.taken == 0;
            state.taken += usize::from(reserved);
            reserved
        })
        .await;
        FileMemory { scan: self, reservation, used: Mutex::new(0), alone: false }
    }

    /// Waits until no other file of the scan takes memory, and lets no other begin.
    pub(super) async fn take_alone(self: Arc<Self>, reservation: MemoryReservation) -> FileMemory {
        let waiting = WaitingAlone::new(&self);
        self.when(|state| {
            let free = state.taken == 0;
            if free {
                state.taken = 1;
                state.alone = true;
            }
            free
        })
        .await;
        drop(waiting);
        FileMemory { scan: self, reservation, used: Mutex::new(0), alone: true }
    }

    /// Waits until `begins` says yes; asked again whenever memory was given back.
    async fn when(&self, mut begins: impl FnMut(&mut State) -> bool) {
        loop {
            let mut given_back = std::pin::pin!(self.given_back.notified());
            given_back.as_mut().enable();
            if begins(&mut lock(&self.state)) {
                return;
            }
            given_back.await;
        }
    }
}

/// Counts a file that waits to be alone; one that stops waiting lets the others begin.
struct WaitingAlone<'a>(&'a ScanMemory);

impl<'a> WaitingAlone<'a> {
    fn new(memory: &'a ScanMemory) -> Self {
        lock(&memory.state).waiting_alone += 1;
        Self(memory)
    }
}

impl Drop for WaitingAlone<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).waiting_alone -= 1;
        self.0.given_back.notify_waiters();
    }
}

impl FileMemory {
    /// Takes more bytes, from the estimate first.
    ///
    /// # Errors
    /// When the pool refuses; see [`is_refusal`].
    pub(super) fn grow(&self, bytes: usize) -> Result<()> {
        let mut used = lock(&self.used);
        let wanted = used.saturating_add(bytes);
        if wanted > self.reservation.size() {
            self.reservation.try_resize(wanted)?;
        }
        *used = wanted;
        Ok(())
    }

    /// How many bytes are used.
    pub(super) fn used(&self) -> usize {
        *lock(&self.used)
    }

    /// Uses less; what is not used stays reserved for what comes.
    pub(super) fn release(&self, bytes: usize) {
        let mut used = lock(&self.used);
        *used = used.saturating_sub(bytes);
    }

    /// Gives back whatever is not used.
    pub(super) fn give_back_unused(&self) {
        let used = lock(&self.used);
        self.reservation.shrink(self.reservation.size().saturating_sub(*used));
        drop(used);
        self.scan.given_back.notify_waiters();
    }

    /// True if no other file of the scan takes memory.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        self.reservation.free();
        let mut state = lock(&self.scan.state);
        state.taken -= 1;
        state.alone = false;
        drop(state);
        self.scan.given_back.notify_waiters();
    }
}

/// True if the session's memory pool refused.
pub(super) fn is_refusal(error: &Error) -> bool {
    let Error::Engine(inner) = error else { return false };
    matches!(inner.find_root(), DataFusionError::ResourcesExhausted(_))
}

// Each change is complete before anything can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use futures::FutureExt;

    use super::*;

    fn scan(pool_bytes: usize) -> (Arc<ScanMemory>, MemoryReservation, Arc<dyn MemoryPool>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(pool_bytes));
        (Arc::default(), MemoryConsumer::new("test").register(&pool), pool)
    }

    #[tokio::test]
    async fn a_file_waits_for_memory_only_while_another_one_has_some() {
        let (scan, empty, pool) = scan(100);
        let first = scan.clone().take(empty.new_empty(), 80).await;
        let mut second = std::pin::pin!(scan.clone().take(empty.new_empty(), 30));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        assert_eq!(pool.reserved(), 30);
        drop(second);
        let oversized = scan.take(empty.new_empty(), 1000).await;
        assert!(oversized.grow(100).is_ok() && is_refusal(&oversized.grow(1).unwrap_err()));
        drop(oversized);
        assert_eq!(pool.reserved(), 0);
    }

    #[tokio::test]
    async fn who_wants_to_be_alone_waits_for_the_others_and_keeps_new_ones_out() {
        let (scan, empty, pool) = scan(100);
        let first = scan.clone().take(empty.new_empty(), 10).await;
        let mut alone = std::pin::pin!(scan.clone().take_alone(empty.new_empty()));
        assert!(alone.as_mut().now_or_never().is_none());
        let mut late = std::pin::pin!(scan.clone().take(empty.new_empty(), 10));
        assert!(late.as_mut().now_or_never().is_none());
        drop(first);
        let alone = tokio::time::timeout(Duration::from_secs(5), alone).await.unwrap();
        assert!(alone.is_alone() && alone.grow(100).is_ok());
        assert!(late.as_mut().now_or_never().is_none());
        alone.release(60);
        assert_eq!((alone.used(), pool.reserved()), (40, 100));
        alone.give_back_unused();
        assert_eq!(pool.reserved(), 40);
        drop(alone);
        assert!(!late.await.is_alone());
    }

    #[tokio::test]
    async fn who_stops_waiting_to_be_alone_lets_the_others_begin() {
        let (scan, empty, _pool) = scan(100);
        let _first = scan.clone().take(empty.new_empty(), 10).await;
        assert!(scan.clone().take_alone(empty.new_empty()).now_or_never().is_none());
        assert!(scan.take(empty.new_empty(), 10).now_or_never().is_some());
    }
}
