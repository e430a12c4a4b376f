//! Deleting objects, many with one request where the store's client can.
//!
//! An object counts as deleted when the client's answer says so of this very key. (The clients for S3 and Azure say so of a
//! key that the store's answer doesn't mention; nothing else is to be had from them.) A request that failed as a whole
//! leaves the state of all its keys unknown; they are asked for again, one by one, unless they were written again meanwhile.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};

use super::local::{Target, is_newer};
use super::moves::{MovedObject, move_object};
use super::pace::{Pace, TRIES};
use crate::error::Error;
use crate::report::{FileStatus, SkipReason};
use crate::storage::ObjectFiles;
use crate::table::Location;

/// Deletes the objects of a run.
#[derive(Debug)]
pub(super) struct ObjectDeletes {
    pace: Arc<Pace>,
    /// The store turned out not to know requests for many keys.
    one_by_one: AtomicBool,
}

/// An object to delete: where its outcome belongs, and its two names.
#[derive(Debug, Clone)]
struct Object {
    index: usize,
    location: Location,
    key: Path,
    /// When the plan saw it last modified, ms since the epoch. What was written since then is another object.
    modified_ms: Option<i64>,
}

impl Object {
    fn is_throttled(&self, answer: &Answer) -> bool {
        matches!(answer, Answer::Refused(error) if is_throttling(error, Some(&self.key)))
    }
}

/// What became of each object, by the index that it came with.
pub(super) type Outcomes = Vec<(usize, FileStatus)>;

/// What a request said of one key.
enum Answer {
    Deleted,
    /// The store refused this key, for a reason of its own.
    Refused(StoreError),
    /// The request failed, and what it did to this key is unknown.
    Unknown,
}

/// The answers to one request, and what it failed with as a whole.
struct Reply {
    answers: Vec<Answer>,
    failure: Option<StoreError>,
}

impl ObjectDeletes {
    pub(super) fn new(pace: Arc<Pace>) -> Self {
        Self { pace, one_by_one: AtomicBool::new(false) }
    }

    /// Deletes objects of one store. A store that reports a missing key says so; most answer "deleted" for it too.
    pub(super) async fn delete(&self, store: &ObjectFiles, files: Vec<(usize, Target)>) -> Outcomes {
        let (mut objects, mut outcomes) = (Vec::with_capacity(files.len()), Outcomes::new());
        let mut moves = vec![];
        for (index, Target { location, modified_ms, moved_to, .. }) in files {
            match ObjectFiles::key(&location) {
                Ok(key) if moved_to.is_some() => {
                    moves.extend(moved_to.map(|(to, moved)| self.move_one(store, index, key, modified_ms, to, moved)));
                }
                Ok(key) => objects.push(Object { index, location, key, modified_ms }),
                Err(error) => outcomes.push((index, FileStatus::Failed(error.to_string()))),
            }
        }
        let keys_per_request =
            if self.one_by_one.load(Ordering::Relaxed) { 1 } else { keys_per_request(store.store().as_ref()) };
        let chunks: Vec<Vec<Object>> = objects.chunks(keys_per_request).map(<[Object]>::to_vec).collect();
        let requests: Vec<_> = chunks.into_iter().map(|chunk| self.delete_chunk(store, chunk)).collect();
        outcomes.extend(self.run(requests).await);
        outcomes.extend(self.run(moves).await);
        outcomes
    }

    /// Moves an object. A failure leaves it where it is.
    async fn move_one(
        &self,
        store: &ObjectFiles,
        index: usize,
        from: Path,
        planned_ms: Option<i64>,
        to: Location,
        moved: FileStatus,
    ) -> Outcomes {
        let _permit = self.pace.permit().await;
        let to = match ObjectFiles::key(&to) {
            Ok(to) => to,
            Err(error) => return vec![(index, FileStatus::Failed(error.to_string()))],
        };
        let status = match move_object(store.store().as_ref(), &from, &to, planned_ms).await {
            Ok(MovedObject::Moved) => moved,
            Ok(MovedObject::Missing) => FileStatus::Missing,
            Ok(MovedObject::Changed) => FileStatus::Spared(SkipReason::TooYoung),
            Err(why) => FileStatus::Failed(why),
        };
        vec![(index, status)]
    }

    /// Runs work whose every request waits for its permit.
    async fn run(&self, work: Vec<impl Future<Output = Outcomes>>) -> Outcomes {
        let outcomes: Vec<Outcomes> = futures::stream::iter(work).buffer_unordered(self.pace.most()).collect().await;
        outcomes.into_iter().flatten().collect()
    }

    /// Deletes what one request may name; afterwards one by one what that request left unknown.
    async fn delete_chunk(&self, store: &ObjectFiles, objects: Vec<Object>) -> Outcomes {
        let (mut outcomes, unknown) = self.delete_together(store, objects).await;
        let single = |object| async move {
            match self.look_again(store, &object).await {
                Some(status) => vec![(object.index, status)],
                None => self.delete_together(store, vec![object]).await.0,
            }
        };
        outcomes.extend(self.run(unknown.into_iter().map(single).collect()).await);
        outcomes
    }

    /// Looks at an object that a failed request may have deleted, and that somebody may have written again since. `None` if
    /// it may be asked for again.
    async fn look_again(&self, store: &ObjectFiles, object: &Object) -> Option<FileStatus> {
        let planned = object.modified_ms?;
        let _permit = self.pace.permit().await;
        match store.store().head(&object.key).await {
            Ok(meta) if is_newer(meta.last_modified.timestamp_millis(), planned) => {
                Some(FileStatus::Spared(SkipReason::TooYoung))
            }
            Ok(_) => None,
            Err(error) => Some(refused(object, error)),
        }
    }

    /// Deletes objects with one request, and again while the store throttles. Returns what became of them, and the
    /// objects of which nothing is known because the request failed for another reason; a single object is always known
    /// of.
    async fn delete_together(&self, store: &ObjectFiles, mut objects: Vec<Object>) -> (Outcomes, Vec<Object>) {
        let mut outcomes = Outcomes::with_capacity(objects.len());
        let mut tried = 0;
        loop {
            let permit = self.pace.permit().await;
            if self.pace.is_given_up() {
                let why = "given up: the store throttles all requests, or doesn't answer in time";
                outcomes.extend(objects.iter().map(|object| (object.index, FileStatus::Failed(why.into()))));
                return (outcomes, vec![]);
            }
            tried += 1;
            let asked = objects.len();
            let Reply { answers, failure } = ask(store.store().as_ref(), &objects).await;
            let throttled = failure.as_ref().is_some_and(|error| is_throttling(error, None))
                || objects.iter().zip(&answers).any(|(object, answer)| object.is_throttled(answer));
            if throttled {
                permit.throttled()
            } else {
                permit.succeeded()
            }
            let may_try_again = tried < TRIES;
            let (mut again, mut unknown) = (vec![], vec![]);
            for (object, answer) in objects.into_iter().zip(answers) {
                let is_throttled = object.is_throttled(&answer);
                match answer {
                    Answer::Deleted => outcomes.push((object.index, FileStatus::Deleted)),
                    Answer::Refused(_) if may_try_again && is_throttled => again.push(object),
                    Answer::Refused(error) => outcomes.push((object.index, refused(&object, error))),
                    Answer::Unknown => unknown.push(object),
                }
            }
            match failure {
                Some(error) if is_throttling(&error, None) && may_try_again => again.append(&mut unknown),
                Some(error) if is_throttling(&error, None) || asked == 1 => {
                    let failed = FileStatus::Failed(format!("the request to delete it failed: {error}"));
                    outcomes.extend(unknown.drain(..).map(|object| (object.index, failed.clone())));
                }
                Some(error) => self.note_failure(&error, unknown.len()),
                None => {}
            }
            if again.is_empty() || !unknown.is_empty() {
                unknown.append(&mut again);
                return (outcomes, unknown);
            }
            objects = again;
            self.pace.pause(tried).await;
        }
    }

    fn note_failure(&self, error: &StoreError, unknown: usize) {
        if is_unsupported(error) && !self.one_by_one.swap(true, Ordering::Relaxed) {
            tracing::info!(%error, "the store doesn't take deletes of many files at once; they go one by one from now on");
        } else {
            tracing::info!(%error, files = unknown, "a request for many files failed; they are tried again one by one");
        }
    }
}

/// How many keys the store's client puts into one request.
///
/// The trait doesn't say: `delete_stream` takes any number of keys, and where the store has no call for many it sends
/// requests of its own, ten at once, which `max_concurrent_deletes` could not limit. So a client that isn't known for a
/// call of its own gets one key at a time. Clients that wrap another show it in how they print themselves.
fn keys_per_request(store: &dyn ObjectStore) -> usize {
    let client = store.to_string();
    if client.contains("AmazonS3(") {
        1000
    } else if client.contains("MicrosoftAzure {") {
        256
    } else {
        1
    }
}

/// Sends one request.
async fn ask(store: &dyn ObjectStore, objects: &[Object]) -> Reply {
    let keys: Vec<Path> = objects.iter().map(|object| object.key.clone()).collect();
    let asked = futures::stream::iter(keys.clone().into_iter().map(Ok)).boxed();
    let answers = async { store.delete_stream(asked).collect::<Vec<_>>().await };
    // The S3 client of object_store 0.13 panics when the answer names a key that was not asked for.
    match AssertUnwindSafe(answers).catch_unwind().await {
        Ok(answers) => reply(&keys, answers),
        Err(_) => {
            reply(&keys, vec![Err(failure("the store's client stopped at an answer that it doesn't understand"))])
        }
    }
}

/// Sorts out which answer belongs to which key.
///
/// Answers come in the order of the keys, but a request that failed gives one error for all its keys, and some clients
/// answer in another order. Only where there is one answer for each key, and each success is that of the key in its
/// place, an error is that of the key in its place; elsewhere only the named successes count.
fn reply(keys: &[Path], answers: Vec<object_store::Result<Path>>) -> Reply {
    let in_place =
        |(answer, key): (&object_store::Result<Path>, &Path)| answer.as_ref().map_or(true, |named| named == key);
    if answers.len() == keys.len() && answers.iter().zip(keys).all(in_place) {
        let answer = |answer: object_store::Result<Path>| answer.map_or_else(Answer::Refused, |_| Answer::Deleted);
        return Reply { answers: answers.into_iter().map(answer).collect(), failure: None };
    }
    let (mut deleted, mut failures) = (HashSet::new(), vec![]);
    for answer in answers {
        match answer {
            Ok(key) => {
                deleted.insert(key);
            }
            Err(error) => failures.push(error),
        }
    }
    let answers: Vec<Answer> =
        keys.iter().map(|key| if deleted.contains(key) { Answer::Deleted } else { Answer::Unknown }).collect();
    let all_known = answers.iter().all(|answer| matches!(answer, Answer::Deleted));
    // Throttling decides what is done next, whatever else failed.
    let worst = failures.iter().position(|error| is_throttling(error, None)).unwrap_or(0);
    let failure = if worst < failures.len() {
        Some(failures.swap_remove(worst))
    } else {
        (!all_known).then(|| failure("the store's client gave no answer"))
    };
    Reply { answers, failure }
}

fn failure(why: &'static str) -> StoreError {
    StoreError::Generic { store: "delete_stream", source: why.into() }
}

fn refused(object: &Object, error: StoreError) -> FileStatus {
    match Error::store("deleting", object.location.to_string(), error) {
        Error::FileNotFound { .. } => FileStatus::Missing,
        error => FileStatus::Failed(error.to_string()),
    }
}

/// True for answers that mean "too much at once" or "not now", and for no answer in time.
///
/// object_store doesn't tell these apart from other failures but in words. Those of a key's own name don't count.
fn is_throttling(error: &StoreError, key: Option<&Path>) -> bool {
    const SIGNS: [&str; 14] = [
        "SlowDown",
        "Slow Down",
        "ServiceUnavailable",
        "503 Service Unavailable",
        "(code: 503)",
        "TooManyRequests",
        "429 Too Many Requests",
        "(code: 429)",
        "RequestLimitExceeded",
        "ServerBusy",
        "OperationTimedOut",
        "RequestTimeout",
        "InternalError",
        "timed out",
    ];
    says(error, key, &SIGNS)
}

/// True for a store, or a client, that has no call that deletes many.
fn is_unsupported(error: &StoreError) -> bool {
    const SIGNS: [&str; 5] =
        ["501 Not Implemented", "405 Method Not Allowed", "NotImplemented", "MethodNotAllowed", "MalformedXML"];
    matches!(error, StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) || says(error, None, &SIGNS)
}

/// True if the error or one of its causes has one of these words.
fn says(error: &StoreError, key: Option<&Path>, signs: &[&str]) -> bool {
    if matches!(error, StoreError::NotFound { .. } | StoreError::PermissionDenied { .. }) {
        // These are settled, and hold the keys' names, which may have any words.
        return false;
    }
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    let text = |cause: &dyn std::error::Error| match key {
        Some(key) => cause.to_string().replace(key.as_ref(), ""),
        None => cause.to_string(),
    };
    causes.map(text).any(|text| signs.iter().any(|sign| text.contains(sign)))
}

#[cfg(test)]
mod tests;
