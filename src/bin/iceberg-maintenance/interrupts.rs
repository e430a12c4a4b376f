//! Ctrl-C. While a statement runs it asks the statement to stop, a second time it doesn't wait for that; at all other times
//! (at a question, while rows are printed) it ends the process at once, which can't cut any work short.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::failure::INTERRUPTED;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Running,
    Interrupted,
}

/// The one listener for Ctrl-C of the process.
#[derive(Debug, Clone)]
pub(crate) struct Interrupts {
    state: Arc<Mutex<State>>,
    requested: Arc<Notify>,
}

impl Interrupts {
    /// Starts to listen, in a task of its own that never ends.
    pub(crate) fn listen(runtime: &Runtime) -> Self {
        let interrupts = Self { state: Arc::new(Mutex::new(State::Idle)), requested: Arc::default() };
        let listener = interrupts.clone();
        runtime.spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                listener.interrupt();
            }
        });
        interrupts
    }

    fn interrupt(&self) {
        let mut state = self.state();
        match *state {
            State::Running => {
                *state = State::Interrupted;
                self.requested.notify_one();
            }
            State::Idle | State::Interrupted => {
                let _ = writeln!(std::io::stderr());
                std::process::exit(INTERRUPTED.into());
            }
        }
    }

    /// A statement runs from now on, until the guard is dropped.
    pub(crate) fn statement(&self) -> Running<'_> {
        *self.state() = State::Running;
        Running { interrupts: self }
    }

    /// True between Ctrl-C and the end of the statement.
    pub(crate) fn is_interrupted(&self) -> bool {
        *self.state() == State::Interrupted
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A statement that runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    interrupts: &'a Interrupts,
}

impl Running<'_> {
    /// Waits for Ctrl-C.
    pub(crate) async fn interrupted(&self) {
        while !self.interrupts.is_interrupted() {
            self.interrupts.requested.notified().await;
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.interrupts.state() = State::Idle;
    }
}
