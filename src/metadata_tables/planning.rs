//! Waiting while a statement is planned: table functions are called by code that isn't async.

use std::thread;

use tokio::runtime::{Builder, Handle, RuntimeFlavor};

use crate::error::{Error, Result};

/// The stack of the thread that waits.
const STACK_BYTES: usize = 8 << 20;

/// Runs work to its end and blocks the thread meanwhile.
///
/// In a runtime of several threads the work runs in it, and another thread takes over what this one had to do. A runtime of one thread,
/// or none, can't do that: then the work gets a thread and a small runtime of its own.
///
/// # Errors
/// Those of the work, and [`Error::Statement`] when no thread can be had.
pub(super) fn wait<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    if let Ok(handle) = Handle::try_current()
        && handle.runtime_flavor() == RuntimeFlavor::MultiThread
    {
        return tokio::task::block_in_place(|| handle.block_on(work));
    }
    let failed =
        |why: String| Error::Statement { message: format!("the table can't be loaded to plan the statement: {why}") };
    let run = move || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        Ok::<_, String>(runtime.block_on(work))
    };
    let thread = thread::Builder::new().name("iceberg-planning".into()).stack_size(STACK_BYTES).spawn(run);
    let thread = thread.map_err(|error| failed(error.to_string()))?;
    let outcome = thread.join().map_err(|_| failed("the thread that loads it panicked".into()))?;
    outcome.map_err(failed)?
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn work() -> Result<u8> {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        Ok(7)
    }

    #[test]
    fn it_waits_without_a_runtime() {
        assert_eq!(wait(work()).unwrap(), 7);
    }

    #[tokio::test]
    async fn it_waits_in_a_runtime_of_one_thread() {
        assert_eq!(wait(work()).unwrap(), 7);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn it_waits_in_a_runtime_of_several_threads() {
        assert_eq!(tokio::spawn(async { wait(work()) }).await.unwrap().unwrap(), 7);
        assert_eq!(wait(work()).unwrap(), 7);
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = wait(async { if true { panic!("for the test") } else { Ok(()) } }).unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }
}
