//! Listing folders at once, in stores of which no more is known than the trait promises.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ListResult, ObjectStore};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::unusable::listed_or_unusable;
use super::{listed, tasks};
use crate::error::{Error, Result};
use crate::storage::{Listed, Listing};

/// How many keys are handed over at once.
const BATCH: usize = 1024;
/// A folder is not listed folder by folder if that makes more folders than so many for each worker: each is a request.
const FOLDERS_PER_WORKER: usize = 8;

/// Lists a folder by its folders.
pub(super) fn list(
    store: Arc<dyn ObjectStore>,
    folder: Path,
    name: String,
    concurrency: usize,
    samples: Vec<String>,
) -> Listing {
    let concurrency = concurrency.max(1);
    let listing =
        Arc::new(FolderListing { store, top: folder.clone(), name, concurrency, samples, waiting: Mutex::default() });
    tasks::listing_of(concurrency, move |sender| {
        let mut expansion = JoinSet::new();
        expansion.spawn(listing.run(folder, sender));
        expansion
    })
}

struct FolderListing {
    store: Arc<dyn ObjectStore>,
    top: Path,
    name: String,
    concurrency: usize,
    samples: Vec<String>,
    /// Folders that are to be listed with all that lies below them.
    waiting: Mutex<Vec<Path>>,
}

impl FolderListing {
    async fn run(self: Arc<Self>, folder: Path, sender: mpsc::Sender<Vec<Listed>>) -> Result<()> {
        let folders = self.expand(folder, &sender).await?;
        *self.waiting.lock() = folders;
        let mut workers = JoinSet::new();
        for _ in 0..self.concurrency {
            workers.spawn(Arc::clone(&self).work(sender.clone()));
        }
        while let Some(ended) = workers.join_next().await {
            tasks::outcome(ended)?;
        }
        Ok(())
    }

    async fn work(self: Arc<Self>, sender: mpsc::Sender<Vec<Listed>>) -> Result<()> {
        loop {
            let Some(folder) = self.waiting.lock().pop() else { return Ok(()) };
            let mut batches = self.store.list(Some(&folder)).map(listed_or_unusable).try_ready_chunks(BATCH);
            let mut first = true;
            loop {
                match batches.try_next().await {
                    Ok(Some(batch)) => send(&sender, batch).await,
                    Ok(None) => break,
                    Err(failed) if first && failed.0.is_empty() => {
                        self.unless_gone(&folder, failed.1)?;
                        break;
                    }
                    Err(failed) => return Err(self.failed(failed.1)),
                }
                first = false;
            }
        }
    }

    /// Goes down level by level until there are enough folders. The files met on the way are sent.
    async fn expand(&self, folder: Path, sender: &mpsc::Sender<Vec<Listed>>) -> Result<Vec<Path>> {
        let (mut whole, mut level) = (Vec::new(), vec![folder]);
        while !level.is_empty() && whole.len() + level.len() < self.concurrency {
            let (open, flat): (Vec<_>, Vec<_>) = level.into_iter().partition(|folder| self.is_worth_opening(folder));
            whole.extend(flat);
            let opened = open.into_iter().map(|folder| async move {
                let found = self.store.list_with_delimiter(Some(&folder)).await;
                (folder, found)
            });
            let mut opened = futures::stream::iter(opened.collect::<Vec<_>>()).buffer_unordered(self.concurrency);
            level = Vec::new();
            while let Some((folder, found)) = opened.next().await {
                match found {
                    Ok(ListResult { common_prefixes, .. }) if common_prefixes.len() > self.most_folders() => {
                        whole.push(folder);
                    }
                    Ok(ListResult { common_prefixes, objects }) => {
                        level.extend(common_prefixes);
                        if !objects.is_empty() {
                            send(sender, objects.into_iter().map(listed).collect()).await;
                        }
                    }
                    // A listing of keys may go on behind one that can't be expressed.
                    Err(object_store::Error::InvalidPath { .. }) => whole.push(folder),
                    Err(error) => self.unless_gone(&folder, error)?,
                }
            }
        }
        whole.extend(level);
        Ok(whole)
    }

    /// True if most of what is known to lie in the folder lies in some few folders below it.
    ///
    /// The files directly in an opened folder come all at once, so a folder full of files is not opened.
    fn is_worth_opening(&self, folder: &Path) -> bool {
        let prefix = if folder.is_root() { "/".to_string() } else { format!("/{folder}/") };
        let mut below = 0;
        let mut subfolders: Vec<&str> = Vec::new();
        for rest in self.samples.iter().filter_map(|sample| sample.strip_prefix(prefix.as_str())) {
            below += 1;
            subfolders.extend(rest.split_once('/').map(|(subfolder, _)| subfolder));
        }
        let deeper = subfolders.len();
        subfolders.sort_unstable();
        subfolders.dedup();
        2 * deeper > below && subfolders.len() <= self.most_folders()
    }

    fn most_folders(&self) -> usize {
        FOLDERS_PER_WORKER * self.concurrency
    }

    /// A folder that vanished meanwhile has nothing to list, unless it is the one that was asked for.
    fn unless_gone(&self, folder: &Path, error: object_store::Error) -> Result<()> {
        match error {
            object_store::Error::NotFound { .. } if *folder != self.top => Ok(()),
            error => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: object_store::Error) -> Error {
        Error::store("listing", self.name.clone(), error)
    }
}

/// Hands on what was found. A consumer that is gone ends the tasks itself.
async fn send(sender: &mpsc::Sender<Vec<Listed>>, found: Vec<Listed>) {
    let _ = sender.send(found).await;
}
