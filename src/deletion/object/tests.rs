use parking_lot::Mutex;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use super::super::pace::Permit;
use super::*;

/// What the store answers to one request.
type Script = Box<dyn FnMut(usize, Vec<Path>) -> Vec<Result<Path>> + Send>;

/// A store that takes a request's keys together and answers as its script says, which is told how many requests came
/// before.
struct Scripted {
    client: &'static str,
    /// How many keys each request had.
    requests: Mutex<Vec<usize>>,
    script: Mutex<Script>,
}

const S3: &str = "AmazonS3(bucket)";

impl Scripted {
    fn new(
        client: &'static str,
        script: impl FnMut(usize, Vec<Path>) -> Vec<Result<Path>> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { client, requests: Mutex::default(), script: Mutex::new(Box::new(script)) })
    }

    fn requests(&self) -> Vec<usize> {
        std::mem::take(&mut *self.requests.lock())
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.client)
    }
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.client)
    }
}

#[async_trait]
impl ObjectStore for Scripted {
    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let keys: Vec<Path> = locations.map(|key| key.unwrap()).collect().now_or_never().expect("all keys at once");
        let before = {
            let mut requests = self.requests.lock();
            requests.push(keys.len());
            requests.len() - 1
        };
        let answers = (self.script.lock())(before, keys);
        futures::stream::iter(answers).boxed()
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        unreachable!("deletes only")
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("deletes only")
    }

    /// `k0` was modified at 1000 ms, `k1` at 2000 ms, and nothing else exists.
    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        assert!(options.head, "nothing is read");
        let modified_ms = match key.as_ref() {
            "k0" => 1000,
            "k1" => 2000,
            _ => return Err(is_missing(key)),
        };
        let last_modified = chrono::DateTime::from_timestamp_millis(modified_ms).unwrap();
        let meta = ObjectMeta { location: key.clone(), last_modified, size: 0, e_tag: None, version: None };
        let payload = GetResultPayload::Stream(futures::stream::empty().boxed());
        Ok(GetResult { payload, meta, range: 0..0, attributes: Default::default() })
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        unreachable!("deletes only")
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("deletes only")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("deletes only")
    }
}

fn error(says: &'static str) -> StoreError {
    StoreError::Generic { store: "S3", source: says.into() }
}

fn is_missing(key: &Path) -> StoreError {
    StoreError::NotFound { path: key.to_string(), source: "404".into() }
}

fn pace() -> Arc<Pace> {
    Arc::new(Pace::new(8).with_first_pause(Duration::from_millis(1)))
}

/// Deletes the keys `k0`, `k1` and so on; the statuses in their order.
async fn delete(deletes: &ObjectDeletes, store: &Arc<Scripted>, keys: usize) -> Vec<FileStatus> {
    delete_modified(deletes, store, keys, None).await
}

/// The same for keys that the plan saw modified at a time.
async fn delete_modified(
    deletes: &ObjectDeletes,
    store: &Arc<Scripted>,
    keys: usize,
    modified_ms: Option<i64>,
) -> Vec<FileStatus> {
    let location = |index| {
        let location = Location::parse(&format!("s3://bucket/k{index}")).unwrap();
        (index, Target { location, modified_ms, folder: None, moved_to: None })
    };
    let files = ObjectFiles::new(store.clone());
    let mut outcomes = deletes.delete(&files, (0..keys).map(location).collect()).await;
    outcomes.sort_by_key(|(index, _)| *index);
    assert_eq!(outcomes.iter().map(|(index, _)| *index).collect::<Vec<_>>(), Vec::from_iter(0..keys));
    outcomes.into_iter().map(|(_, status)| status).collect()
}

fn failed(status: &FileStatus, says: &str) -> bool {
    matches!(status, FileStatus::Failed(why) if why.contains(says))
}

fn all_deleted(statuses: &[FileStatus]) -> bool {
    statuses.iter().all(|status| *status == FileStatus::Deleted)
}

fn confirm(keys: Vec<Path>) -> Vec<Result<Path>> {
    keys.into_iter().map(Ok).collect()
}

#[tokio::test]
async fn what_was_written_again_after_a_failed_request_is_another_file() {
    let store = Scripted::new(S3, |before, keys| match before {
        0 => vec![Err(error("connection reset"))],
        _ => confirm(keys),
    });
    let statuses = delete_modified(&ObjectDeletes::new(pace()), &store, 3, Some(1000)).await;
    assert_eq!(statuses, [FileStatus::Deleted, FileStatus::Spared(SkipReason::TooYoung), FileStatus::Missing]);
    assert_eq!(store.requests(), [3, 1]);
}

#[tokio::test]
async fn a_file_that_is_named_like_an_error_does_not_slow_the_run_down() {
    let key = Path::from("InternalError.parquet");
    let object = Object { index: 0, location: Location::parse("s3://b/x").unwrap(), key, modified_ms: None };
    let is_throttled = |says| object.is_throttled(&Answer::Refused(error(says)));
    assert!(!is_throttled("InternalError.parquet: AccessDenied"));
    assert!(is_throttled("InternalError.parquet: SlowDown"));
}

#[tokio::test]
async fn as_many_keys_go_with_one_request_as_the_client_takes() {
    for (client, expected) in [
        (S3, vec![1000, 3]),
        ("LimitStore(4, AmazonS3(bucket))", vec![1000, 3]),
        ("MicrosoftAzure { account: a, container: c }", vec![256, 256, 256, 235]),
        ("GoogleCloudStorage(bucket)", vec![1; 1003]),
        ("of an embedder", vec![1; 1003]),
    ] {
        let store = Scripted::new(client, |_, keys| confirm(keys));
        assert!(all_deleted(&delete(&ObjectDeletes::new(pace()), &store, 1003).await));
        assert_eq!(store.requests(), expected, "{client}");
    }
}

#[tokio::test]
async fn a_key_that_fails_is_its_own_failure_and_a_missing_one_is_missing() {
    let store = Scripted::new(S3, |_, mut keys| {
        let missing = is_missing(&keys[3]);
        let last = keys.pop().unwrap();
        vec![Ok(keys.remove(0)), Err(error("AccessDenied")), Ok(keys.remove(1)), Err(missing), Ok(last)]
    });
    let statuses = delete(&ObjectDeletes::new(pace()), &store, 5).await;
    assert!(failed(&statuses[1], "AccessDenied") && failed(&statuses[1], "s3://bucket/k1"), "{statuses:?}");
    let deleted = FileStatus::Deleted;
    assert_eq!(
        [&statuses[0], &statuses[2], &statuses[3], &statuses[4]],
        [&deleted, &deleted, &FileStatus::Missing, &deleted]
    );
    assert_eq!(store.requests(), [5]);
}

#[tokio::test]
async fn what_a_failed_request_leaves_unknown_is_asked_for_one_by_one() {
    let store = Scripted::new(S3, |before, keys| match (before, keys[0].as_ref()) {
        (0, _) => vec![Err(error("connection reset"))],
        (_, "k1") => vec![Err(error("AccessDenied"))],
        (_, "k2") => vec![Err(is_missing(&keys[0]))],
        _ => confirm(keys),
    });
    let statuses = delete(&ObjectDeletes::new(pace()), &store, 4).await;
    assert!(failed(&statuses[1], "AccessDenied"), "{statuses:?}");
    assert_eq!([&statuses[0], &statuses[2], &statuses[3]], [&FileStatus::Deleted, &FileStatus::Missing, &statuses[0]]);
    assert_eq!(store.requests(), [4, 1, 1, 1, 1]);
}

#[tokio::test]
async fn a_throttled_request_is_tried_again_with_fewer_at_once() {
    let store = Scripted::new(S3, |before, keys| match before {
        0 | 1 => vec![Err(error("Server returned non-2xx status code: 503 Service Unavailable: SlowDown"))],
        _ => confirm(keys),
    });
    let pace = pace();
    assert!(all_deleted(&delete(&ObjectDeletes::new(pace.clone()), &store, 3).await));
    assert_eq!(store.requests(), [3, 3, 3]);
    let at_once: Vec<Permit<'_>> = std::iter::from_fn(|| pace.permit().now_or_never()).collect();
    assert_eq!(at_once.len(), 2, "8, halved twice");
}

#[tokio::test]
async fn only_the_keys_that_were_throttled_are_tried_again() {
    let store = Scripted::new(S3, |before, mut keys| match before {
        0 => vec![Ok(keys.remove(0)), Err(error("DeleteObjects request failed for key k1: (code: SlowDown)"))],
        _ => confirm(keys),
    });
    assert!(all_deleted(&delete(&ObjectDeletes::new(pace()), &store, 2).await));
    assert_eq!(store.requests(), [2, 1]);
}

#[tokio::test]
async fn a_store_that_throttles_for_ever_is_given_up_and_says_why() {
    let store = Scripted::new(S3, |_, _| vec![Err(error("429 Too Many Requests"))]);
    let deletes = ObjectDeletes::new(pace());
    let mut statuses = vec![];
    for _ in 0..10 {
        statuses.extend(delete(&deletes, &store, 2).await);
    }
    assert!(statuses[..2].iter().all(|status| failed(status, "429 Too Many Requests")), "{statuses:?}");
    assert!(statuses[18..].iter().all(|status| failed(status, "given up: the store throttles")), "{statuses:?}");
    assert_eq!(store.requests().len(), 16);
}

#[tokio::test]
async fn a_store_without_requests_for_many_is_asked_once() {
    for says in ["501 Not Implemented", "Server returned error response: <Code>MalformedXML</Code>"] {
        let store =
            Scripted::new(S3, move |_, keys| if keys.len() > 1 { vec![Err(error(says))] } else { confirm(keys) });
        let deletes = ObjectDeletes::new(pace());
        assert!(all_deleted(&delete(&deletes, &store, 3).await));
        assert_eq!(store.requests(), [3, 1, 1, 1], "{says}");
        assert!(all_deleted(&delete(&deletes, &store, 3).await));
        assert_eq!(store.requests(), [1, 1, 1], "{says}");
    }
}

#[tokio::test]
async fn answers_in_another_order_count_by_the_key_they_name() {
    let store = Scripted::new(S3, |_, mut keys| {
        keys.reverse();
        confirm(keys)
    });
    assert!(all_deleted(&delete(&ObjectDeletes::new(pace()), &store, 3).await));
    assert_eq!(store.requests(), [3]);

    // The error stands where k0 would; it may be anybody's.
    let store = Scripted::new(S3, |_, mut keys| match (keys.len(), keys[0].as_ref()) {
        (1, "k1") => vec![Err(error("AccessDenied"))],
        (1, _) => confirm(keys),
        _ => vec![Err(error("AccessDenied")), Ok(keys.remove(0)), Ok(keys.remove(1))],
    });
    let statuses = delete(&ObjectDeletes::new(pace()), &store, 3).await;
    assert!(failed(&statuses[1], "AccessDenied"), "{statuses:?}");
    assert_eq!((&statuses[0], &statuses[2]), (&FileStatus::Deleted, &FileStatus::Deleted));
    assert_eq!(store.requests(), [3, 1]);
}

#[tokio::test]
async fn no_answer_and_another_keys_answer_are_no_success() {
    let store = Scripted::new(S3, |_, keys| match keys.len() {
        1 => vec![],
        _ => vec![Ok(Path::from("another")), Ok(keys[1].clone())],
    });
    let statuses = delete(&ObjectDeletes::new(pace()), &store, 2).await;
    assert!(failed(&statuses[0], "no answer"), "{statuses:?}");
    assert_eq!(statuses[1], FileStatus::Deleted);
    assert_eq!(store.requests(), [2, 1]);
}

#[tokio::test]
async fn a_client_that_panics_at_an_answer_leaves_its_keys_unknown() {
    let store = Scripted::new(S3, |before, keys| match before {
        0 => vec![].remove(0),
        _ => confirm(keys),
    });
    let statuses = delete(&ObjectDeletes::new(pace()), &store, 2).await;
    assert!(all_deleted(&statuses), "{statuses:?}");
    assert_eq!(store.requests(), [2, 1, 1]);
}
