//! A listing that several tasks find together.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::error::{Error, Result};
use crate::storage::{Listed, Listing};

/// The batches that tasks send, as they come. It ends well only when every task did; dropping it ends the tasks.
///
/// The tasks begin when the listing is polled first. `buffered` batches may wait for the consumer.
pub(super) fn listing_of(
    buffered: usize,
    begin: impl FnOnce(mpsc::Sender<Vec<Listed>>) -> JoinSet<Result<()>> + Send + 'static,
) -> Listing {
    let running = async move {
        let (sender, receiver) = mpsc::channel(buffered);
        received(begin(sender), receiver)
    };
    futures::stream::once(running).flatten().boxed()
}

fn received(tasks: JoinSet<Result<()>>, receiver: mpsc::Receiver<Vec<Listed>>) -> Listing {
    futures::stream::unfold(Some((tasks, receiver)), |state| async move {
        let (mut tasks, mut receiver) = state?;
        loop {
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = outcome(ended) {
                        return Some((Err(error), None));
                    }
                }
                Some(batch) = receiver.recv() => return Some((Ok(batch), Some((tasks, receiver)))),
                else => return None,
            }
        }
    })
    .boxed()
}

/// What became of a task; an error if it died.
pub(super) fn outcome(ended: std::result::Result<Result<()>, JoinError>) -> Result<()> {
    ended.map_err(|died| Error::Engine(Arc::new(DataFusionError::External(Box::new(died)))))?
}
