//! Waiting while a statement is planned: table functions are called by code that isn't async.

use std::thread;

use tokio::runtime::{Builder, Handle, RuntimeFlavor, worker_index};

use crate::error::{Error, Result};

/// The stack of the thread that waits.
const STACK_BYTES: usize = 8 << 20;

/// Runs work to its end and blocks the thread meanwhile.
///
/// A thread that belongs to a runtime of several gives to another thread what it had to do, and runs the work. One that only waits for
/// such a runtime, as a `LocalSet` does, may not do that; a thread of its own runs the work then, and the runtime drives it. A runtime of
/// one thread, or none, can't drive anything while this thread is blocked: then the work gets a small runtime, too.
///
/// # Errors
/// Those of the work, and [`Error::Statement`] when no thread can be had.
pub(super) fn wait<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => match worker_index() {
            Some(_) => tokio::task::block_in_place(|| handle.block_on(work)),
            None => in_thread(move || Ok(handle.block_on(work))),
        },
        _ => in_thread(|| {
            let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
            Ok(runtime.block_on(work))
        }),
    }
}

fn in_thread<T: Send + 'static>(work: impl FnOnce() -> Result<Result<T>, String> + Send + 'static) -> Result<T> {
    let failed =
        |why: String| Error::Statement { message: format!("the table can't be loaded to plan the statement: {why}") };
    let thread = thread::Builder::new().name("iceberg-planning".into()).stack_size(STACK_BYTES).spawn(work);
    let thread = thread.map_err(|error| failed(error.to_string()))?;
    let outcome = thread.join().map_err(|_| failed("the thread that loads it panicked".into()))?;
    outcome.map_err(failed)?
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

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
    fn it_waits_in_a_local_set_of_either_kind_of_runtime() {
        let several = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let one = Builder::new_current_thread().enable_all().build().unwrap();
        for runtime in [several, one] {
            let nested = async { tokio::task::spawn_local(async { wait(work()) }).await.unwrap() };
            assert_eq!(LocalSet::new().block_on(&runtime, nested).unwrap(), 7);
            assert_eq!(runtime.block_on(LocalSet::new().run_until(async { wait(work()) })).unwrap(), 7);
            let in_blocking = runtime.spawn_blocking(|| {
                let handle = Handle::current();
                handle.block_on(LocalSet::new().run_until(async { wait(work()) }))
            });
            assert_eq!(runtime.block_on(in_blocking).unwrap().unwrap(), 7);
        }
    }

    /// What the work needs may be done by the runtime's only thread.
    #[test]
    fn the_runtime_goes_on_while_one_of_its_threads_waits() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let spawning = async || {
            let elsewhere = Handle::current().spawn(work());
            wait(async move { elsewhere.await.unwrap() })
        };
        assert_eq!(runtime.block_on(spawning()).unwrap(), 7);
        assert_eq!(LocalSet::new().block_on(&runtime, spawning()).unwrap(), 7);
        assert_eq!(runtime.block_on(runtime.spawn(spawning())).unwrap().unwrap(), 7);
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = wait(async { if true { panic!("for the test") } else { Ok(()) } }).unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }
}
