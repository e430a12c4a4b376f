//! The walk through a local folder: several threads, each depth first.
//!
//! A thread keeps the folders on its way down open, and leaves a folder to the other threads only while few wait for them:
//! neither the breadth nor the size of a folder costs memory. The threads are not those of the runtime's blocking pool,
//! because they wait for a slow consumer, which may itself wait for that pool.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use super::{FileId, LocalFiles, listed_stat};
use crate::error::Error;
use crate::storage::{Listed, ListedFile, Listing, ListingOptions};
use crate::table::Location;
use crate::table::location::normalize_local;

/// How many entries a thread hands over at once.
const BATCH: usize = 1024;
/// Most threads of one walk, on machines with many cores.
const MAX_THREADS: usize = 16;
/// Most folders that a thread holds open; deeper ones wait in the shared stack.
const MAX_OPEN_FOLDERS: usize = 16;
/// How many folders wait for each thread, so that none has to wait for a folder.
const WAITING_FOLDERS: usize = 2;

/// Lists everything below a folder.
pub(super) fn list(local: LocalFiles, folder: &Location, options: &ListingOptions) -> Listing {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    // More threads than cores, since a disk that isn't cached makes them wait.
    let threads = options.concurrency.clamp(1, (2 * cores).clamp(4, MAX_THREADS));
    let (sender, receiver) = mpsc::channel(threads);
    let root = Pending {
        path: normalize_local(folder.path()).trim_end_matches('/').to_string(),
        os_path: local.os_path(folder),
        is_root: true,
    };
    let walk = Arc::new(Walk {
        queue: Queue::new(root, threads),
        local,
        folder: folder.clone(),
        names_only: options.names_only,
        folders: Mutex::default(),
    });
    let mut running = 0;
    for number in 0..threads {
        let (walk, sender) = (Arc::clone(&walk), sender.clone());
        let thread = std::thread::Builder::new().name(format!("iceberg-listing-{number}"));
        match thread.spawn(move || WalkThread { walk: &walk, batch: Vec::with_capacity(BATCH), sender }.run()) {
            Ok(_) => running += 1,
            Err(error) if running == 0 => {
                let error = Error::io("listing", folder.to_string(), error);
                return futures::stream::once(async { Err(error) }).boxed();
            }
            Err(_) => break,
        }
    }
    found(receiver, running, folder.to_string())
}

/// What a thread of the walk has to say.
enum Message {
    Batch(Vec<Listed>),
    Failed(Error),
    /// The thread is done, and nothing is left to do.
    Ended,
}

/// The batches as they come. Only when every thread said that it ended is the listing complete.
fn found(receiver: mpsc::Receiver<Message>, running: usize, folder: String) -> Listing {
    futures::stream::unfold(Some((receiver, running, folder)), |state| async move {
        let (mut receiver, mut running, folder) = state?;
        loop {
            match receiver.recv().await {
                Some(Message::Batch(batch)) => return Some((Ok(batch), Some((receiver, running, folder)))),
                Some(Message::Failed(error)) => return Some((Err(error), None)),
                Some(Message::Ended) => running -= 1,
                None if running == 0 => return None,
                None => {
                    let died = std::io::Error::other("a thread of the listing died");
                    return Some((Err(Error::io("listing", folder, died)), None));
                }
            }
        }
    })
    .boxed()
}

/// What the threads of a walk share.
struct Walk {
    local: LocalFiles,
    folder: Location,
    names_only: bool,
    queue: Queue,
    /// Every folder that was opened.
    folders: Mutex<HashSet<FileId>>,
}

/// A folder to look into.
struct Pending {
    /// As in [`ListedFile::path`], without a trailing slash.
    path: String,
    os_path: PathBuf,
    is_root: bool,
}

struct OpenFolder {
    path: String,
    is_root: bool,
    entries: fs::ReadDir,
}

/// Why a thread stops early.
enum Stop {
    Failed(Error),
    /// Nobody wants the listing any more.
    Unwanted,
}

/// One thread of a walk.
struct WalkThread<'a> {
    walk: &'a Walk,
    batch: Vec<Listed>,
    sender: mpsc::Sender<Message>,
}

impl WalkThread<'_> {
    fn run(mut self) {
        let stop = loop {
            let Some((pending, _busy)) = self.walk.queue.take() else { break self.flush().err() };
            if let Err(stop) = self.everything_below(pending) {
                break Some(stop);
            }
        };
        // A receiver that is gone no longer wants the listing; nothing is left to tell it.
        let _ = match stop {
            None => self.sender.blocking_send(Message::Ended),
            Some(Stop::Failed(error)) => self.sender.blocking_send(Message::Failed(error)),
            Some(Stop::Unwanted) => Ok(()),
        };
        self.walk.queue.stop();
    }

    fn everything_below(&mut self, pending: Pending) -> std::result::Result<(), Stop> {
        let queue = &self.walk.queue;
        let mut open = Vec::new();
        open.extend(self.open(pending)?);
        while let Some(folder) = open.last_mut() {
            let Some(entry) = self.next_entry(folder)? else {
                open.pop();
                continue;
            };
            match self.note(folder, &entry)? {
                Some(subfolder) if open.len() >= MAX_OPEN_FOLDERS || queue.is_short() => queue.push(subfolder),
                Some(subfolder) => open.extend(self.open(subfolder)?),
                None => {}
            }
        }
        Ok(())
    }

    /// Opens a folder; `None` when it vanished.
    fn open(&self, pending: Pending) -> std::result::Result<Option<OpenFolder>, Stop> {
        if self.sender.is_closed() {
            return Err(Stop::Unwanted);
        }
        let Pending { path, os_path, is_root } = pending;
        if is_root && !fs::metadata(&os_path).map_err(|e| self.failed(&path, e))?.is_dir() {
            let location = self.walk.folder.to_string();
            return Err(Stop::Failed(Error::Location { location, why: "it is a file, not a folder".into() }));
        }
        self.refuse_twice(&path, &os_path)?;
        match fs::read_dir(&os_path) {
            Ok(entries) => Ok(Some(OpenFolder { path, is_root, entries })),
            Err(error) if error.kind() == ErrorKind::NotFound && !is_root => Ok(None),
            Err(error) => Err(self.failed(&path, error)),
        }
    }

    /// A folder that is mounted in two places shows each file twice: under one name it is live, under the other it looks dead.
    fn refuse_twice(&self, path: &str, os_path: &Path) -> std::result::Result<(), Stop> {
        // One that vanished is noticed when it is opened.
        let Some(id) = FileId::of_path(os_path) else { return Ok(()) };
        match self.walk.folders.lock().insert(id) {
            true => Ok(()),
            false => Err(Stop::Failed(Error::Location {
                location: self.walk.folder.with_path(path).to_string(),
                why: "the same folder was already listed under another name: it seems to be mounted in two places, so its \
                      files can't be told apart from their other names. Unmount one of them"
                    .into(),
            })),
        }
    }

    /// The next entry; `None` at the end. Reading on in a folder that was removed meanwhile says that it is not found.
    fn next_entry(&self, folder: &mut OpenFolder) -> std::result::Result<Option<fs::DirEntry>, Stop> {
        match folder.entries.next() {
            None => Ok(None),
            Some(Ok(entry)) => Ok(Some(entry)),
            Some(Err(error)) if error.kind() == ErrorKind::NotFound && !folder.is_root => Ok(None),
            Some(Err(error)) => Err(self.failed(&folder.path, error)),
        }
    }

    /// Notes one entry; returns a folder to look into.
    fn note(&mut self, folder: &OpenFolder, entry: &fs::DirEntry) -> std::result::Result<Option<Pending>, Stop> {
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let path = format!("{}/{}", folder.path, name.to_string_lossy());
            return self.hand_on(Listed::Unusable { path, why: "its name is not UTF-8" }).map(|()| None);
        };
        let mut path = String::with_capacity(folder.path.len() + 1 + name.len());
        path.push_str(&folder.path);
        path.push('/');
        path.push_str(name);
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            // File systems that don't say it in the folder look at the file, which may be gone.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(&folder.path, error)),
        };
        let found = if kind.is_dir() {
            return Ok(Some(Pending { path, os_path: entry.path(), is_root: false }));
        } else if kind.is_symlink() {
            // A link is never deleted. What it leads to is in use; one of which that can't be found out stops the listing.
            let target = self.walk.local.canonical(&path).map_err(Stop::Failed)?;
            Listed::Link { path, target }
        } else if !kind.is_file() {
            Listed::Unusable { path, why: "it is neither a file nor a folder" }
        } else if self.walk.names_only {
            Listed::File(ListedFile { path, stat: None })
        } else {
            match entry.metadata() {
                Ok(metadata) => Listed::File(ListedFile { path, stat: Some(listed_stat(&metadata)) }),
                // Somebody deleted it between the two calls: there is nothing to list.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(self.failed(&folder.path, error)),
            }
        };
        self.hand_on(found).map(|()| None)
    }

    fn hand_on(&mut self, found: Listed) -> std::result::Result<(), Stop> {
        self.batch.push(found);
        if self.batch.len() < BATCH { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> std::result::Result<(), Stop> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.sender.blocking_send(Message::Batch(batch)).map_err(|_| Stop::Unwanted)
    }

    fn failed(&self, path: &str, error: std::io::Error) -> Stop {
        Stop::Failed(Error::io("listing", self.walk.folder.with_path(path).to_string(), error))
    }
}

/// The folders that wait for a thread. The walk is over when none waits and no thread is busy with one.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// How many folders wait; a copy that is read without the lock.
    waiting: AtomicUsize,
    /// How many folders should wait.
    wanted: usize,
}

struct QueueState {
    pending: Vec<Pending>,
    busy: usize,
    stopped: bool,
}

impl Queue {
    fn new(root: Pending, threads: usize) -> Self {
        Self {
            state: Mutex::new(QueueState { pending: vec![root], busy: 0, stopped: false }),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(1),
            wanted: if threads == 1 { 0 } else { WAITING_FOLDERS * threads },
        }
    }

    /// The next folder, as soon as there is one; `None` when there will be none any more.
    fn take(&self) -> Option<(Pending, Busy<'_>)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped || (state.pending.is_empty() && state.busy == 0) {
                return None;
            }
            if let Some(pending) = state.pending.pop() {
                self.waiting.store(state.pending.len(), Ordering::Relaxed);
                state.busy += 1;
                return Some((pending, Busy { queue: self }));
            }
            self.changed.wait(&mut state);
        }
    }

    /// True if too few folders wait to keep all threads busy.
    fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < self.wanted
    }

    fn push(&self, folder: Pending) {
        let mut state = self.state.lock();
        state.pending.push(folder);
        self.waiting.store(state.pending.len(), Ordering::Relaxed);
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the walk for all threads; a no-op at its end.
    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// A thread is busy with a folder of the queue.
struct Busy<'a> {
    queue: &'a Queue,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.busy -= 1;
        state.stopped |= std::thread::panicking();
        if state.stopped || state.busy == 0 {
            self.queue.changed.notify_all();
        }
    }
}
