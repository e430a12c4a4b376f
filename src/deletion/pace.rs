//! How many deletes run at once, and how long a store that asks for less is left in peace.
//!
//! Each answer teaches: when the store throttles or doesn't answer in time, half as many requests run from then on;
//! when as many as run at once have succeeded, one more may. A store that has answered nothing else for a while is
//! given up.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How often one request is tried while the store throttles.
pub(super) const TRIES: u32 = 5;
/// How long the first pause lasts; each further one of the same request is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// After so many steps down without a success between them the store is given up.
const GIVE_UP_AFTER: u32 = 16;

/// The number of requests in flight, which follows what the store can take.
#[derive(Debug)]
pub(super) struct Pace {
    permits: Semaphore,
    most: usize,
    first_pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many may run at once now.
    limit: usize,
    /// How many permits, out by now, are not given out again when they come back.
    surplus: usize,
    /// Answers that came in time, since the limit last changed.
    successes: usize,
    /// How often the limit was lowered. What was asked before the last time says nothing about the limit of now.
    lowered: u64,
    /// How often it was lowered since the last success.
    lowered_in_a_row: u32,
}

/// Leave to run one request. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    pace: &'a Pace,
    permit: Option<SemaphorePermit<'a>>,
    lowered: u64,
}

impl Pace {
    /// Begins with as many requests at once as there may ever be; at least one.
    pub(super) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let state = State { limit: most, surplus: 0, successes: 0, lowered: 0, lowered_in_a_row: 0 };
        Self { permits: Semaphore::new(most), most, first_pause: FIRST_PAUSE, state: Mutex::new(state) }
    }

    /// The same with another first pause.
    #[cfg(test)]
    pub(super) fn with_first_pause(self, first_pause: Duration) -> Self {
        Self { first_pause, ..self }
    }

    /// The most requests that ever run at once.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Waits until a request may run.
    pub(super) async fn permit(&self) -> Permit<'_> {
        // The semaphore is never closed; if it were, running unlimited would still be right.
        let permit = self.permits.acquire().await.ok();
        Permit { pace: self, permit, lowered: self.state.lock().lowered }
    }

    /// True when the store seems to be unable to do any work.
    pub(super) fn is_given_up(&self) -> bool {
        self.state.lock().lowered_in_a_row >= GIVE_UP_AFTER
    }

    /// Waits before a request is tried again; `tried` counts from 1. A pause that is spent with the permit in hand
    /// keeps others from taking its place.
    pub(super) async fn pause(&self, tried: u32) {
        tokio::time::sleep(self.first_pause * (1 << tried.saturating_sub(1).min(8))).await;
    }
}

impl Permit<'_> {
    /// The store did what was asked, or said in time that it won't.
    pub(super) fn succeeded(&self) {
        let mut state = self.pace.state.lock();
        state.lowered_in_a_row = 0;
        state.successes += 1;
        if state.successes < state.limit || state.limit == self.pace.most {
            return;
        }
        state.successes = 0;
        state.limit += 1;
        match state.surplus {
            0 => self.pace.permits.add_permits(1),
            _ => state.surplus -= 1,
        }
    }

    /// The store throttled, or didn't answer in time. Of all requests that were in flight together, one counts.
    pub(super) fn throttled(&self) {
        let mut state = self.pace.state.lock();
        if self.lowered != state.lowered {
            return;
        }
        let lower = (state.limit / 2).max(1);
        let idle = self.pace.permits.forget_permits(state.limit - lower);
        state.surplus += state.limit - lower - idle;
        state.limit = lower;
        state.successes = 0;
        state.lowered += 1;
        state.lowered_in_a_row += 1;
        tracing::debug!(requests = lower, "the store asked for fewer deletes at once");
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.state.lock();
        if state.surplus > 0
            && let Some(permit) = self.permit.take()
        {
            state.surplus -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Takes permits as long as there are any.
    fn available(pace: &Pace) -> Vec<Permit<'_>> {
        std::iter::from_fn(|| pace.permit().now_or_never()).collect()
    }

    #[test]
    fn one_burst_of_throttling_halves_once() {
        let pace = Pace::new(8);
        let burst = available(&pace);
        assert_eq!(burst.len(), 8);
        burst.iter().for_each(Permit::throttled);
        drop(burst);
        assert_eq!(available(&pace).len(), 4);
        available(&pace).iter().for_each(Permit::throttled);
        assert_eq!(available(&pace).len(), 2);
    }

    #[test]
    fn permits_that_nobody_holds_go_too() {
        let pace = Pace::new(8);
        let held: Vec<_> = (0..2).filter_map(|_| pace.permit().now_or_never()).collect();
        held[0].throttled();
        assert_eq!(available(&pace).len(), 2, "two are held");
        drop(held);
        assert_eq!(available(&pace).len(), 4);
    }

    #[test]
    fn success_brings_back_one_at_a_time_up_to_the_most() {
        let pace = Pace::new(4);
        available(&pace)[0].throttled();
        assert_eq!(available(&pace).len(), 2);
        for (answers, expected) in [(1, 2), (1, 3), (3, 4), (9, 4)] {
            (0..answers).for_each(|_| available(&pace)[0].succeeded());
            assert_eq!(available(&pace).len(), expected, "after {answers} more");
        }
    }

    #[test]
    fn a_raise_while_permits_are_out_is_no_permit_too_many() {
        let pace = Pace::new(4);
        let out = available(&pace);
        out[0].throttled();
        (0..2).for_each(|_| out[1].succeeded());
        drop(out);
        assert_eq!(available(&pace).len(), 3);
    }

    #[test]
    fn a_store_that_only_throttles_is_given_up_and_one_that_works_is_not() {
        let pace = Pace::new(1);
        for _ in 1..GIVE_UP_AFTER {
            available(&pace)[0].throttled();
        }
        assert!(!pace.is_given_up());
        available(&pace)[0].succeeded();
        for _ in 0..GIVE_UP_AFTER {
            assert!(!pace.is_given_up());
            available(&pace)[0].throttled();
        }
        assert!(pace.is_given_up());
    }
}
