//! Reading whole files: small objects with one request, large ones as ranges, several at once; local files in the
//! caller's thread, so that a task can read many of them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange};

use super::{LocalFiles, ObjectFiles};
use crate::error::{Error, Result};
use crate::table::Location;

/// From this size on an object is read as ranges: one connection brings about 50 to 100 MB a second.
const LARGE_BYTES: u64 = 16 << 20;

/// How long a range is.
const RANGE_BYTES: u64 = 8 << 20;

/// How many ranges of one object are read at once.
const RANGES_AT_ONCE: usize = 8;

/// The content of a file, and how many requests it took to get it.
#[derive(Debug)]
pub(crate) struct FileContent {
    pub bytes: Bytes,
    pub requests: usize,
}

/// How many requests are under way at once while an object is read that is expected to have so many bytes.
pub(crate) fn requests_at_once(expected_bytes: Option<u64>) -> usize {
    match expected_bytes {
        Some(bytes) if bytes >= LARGE_BYTES => {
            usize::try_from(bytes.div_ceil(RANGE_BYTES)).map_or(RANGES_AT_ONCE, |ranges| ranges.min(RANGES_AT_ONCE))
        }
        _ => 1,
    }
}

impl LocalFiles {
    /// Like [`super::Store::read`], but blocks the thread.
    pub(crate) fn read_blocking(&self, location: &Location) -> Result<Bytes> {
        let failed = |e| Error::io("reading", location.to_string(), e);
        let path = self.os_path(location);
        // A device may have no end, and a pipe may never have a begin.
        let kind = std::fs::metadata(&path).map_err(failed)?.file_type();
        if !kind.is_file() {
            let why = if kind.is_dir() { "it is a folder" } else { "it is neither a file nor a folder" };
            return Err(Error::Malformed { what: "a file", path: location.to_string(), why: why.into() });
        }
        std::fs::read(&path).map(Bytes::from).map_err(failed)
    }
}

impl ObjectFiles {
    /// Reads a whole object. `expected_bytes` only decides how: an object of another size is read all the same, and
    /// whole.
    ///
    /// # Errors
    /// As [`super::Store::read`].
    pub(super) async fn read_expecting(&self, location: &Location, expected_bytes: Option<u64>) -> Result<FileContent> {
        let key = Self::key(location)?;
        let requests = AtomicUsize::new(0);
        if let Some(size) = expected_bytes.filter(|size| *size >= LARGE_BYTES)
            && let Some(bytes) = self.read_ranges(&key, size, &requests).await
        {
            return Ok(FileContent { bytes, requests: requests.into_inner() });
        }
        let bytes = self.read(location).await?;
        Ok(FileContent { bytes, requests: requests.into_inner() + 1 })
    }

    /// An object of exactly this size; `None` when it has another one, was replaced meanwhile or a request failed. Then
    /// reading it with one request tells what is there, or what is wrong.
    async fn read_ranges(&self, key: &Path, size: u64, requests: &AtomicUsize) -> Option<Bytes> {
        let starts = (0..size).step_by(usize::try_from(RANGE_BYTES).ok()?);
        let mut parts = futures::stream::iter(starts)
            .map(|start| {
                requests.fetch_add(1, Ordering::Relaxed);
                self.read_range(key, start..size.min(start + RANGE_BYTES), size)
            })
            .buffered(RANGES_AT_ONCE);
        let (first, version) = parts.next().await??;
        // Not before the first answer has confirmed the size, which could be any number.
        let mut content = BytesMut::with_capacity(usize::try_from(size).ok()?);
        content.extend_from_slice(&first);
        while let Some(part) = parts.next().await {
            let (bytes, its_version) = part?;
            if its_version != version {
                return None;
            }
            content.extend_from_slice(&bytes);
        }
        Some(content.freeze())
    }

    /// A range of an object of this size, and the entity tag of what it was taken from.
    async fn read_range(&self, key: &Path, range: Range<u64>, size: u64) -> Option<(Bytes, Option<String>)> {
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..Default::default() };
        let found = self.store().get_opts(key, options).await.ok()?;
        if found.meta.size != size || found.range != range {
            return None;
        }
        let version = found.meta.e_tag.clone();
        let bytes = found.bytes().await.ok()?;
        (bytes.len() as u64 == range.end - range.start).then_some((bytes, version))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn whatever_size_is_expected_the_whole_object_is_read() {
        let store = Arc::new(InMemory::new());
        let files = ObjectFiles::new(store.clone());
        let location = Location::parse("s3://b/m").unwrap();
        let large = (2 * LARGE_BYTES + 5) as usize;
        for (size, expected, requests) in [
            (100, None, 1),
            (100, Some(100), 1),
            (large, Some(large), 5),
            (large, None, 1),
            (large, Some(10), 1),
            // A wrong size is seen in the first answers, and then one request brings it all.
            (large, Some(large - 1), 6),
            (large, Some(large + 1), 6),
            (100, Some(usize::MAX), 9),
            (0, Some(large), 6),
        ] {
            let content: Bytes = (0..size).map(|n| (n / 1000) as u8).collect();
            store.put(&Path::from("m"), content.clone().into()).await.unwrap();
            let read = files.read_expecting(&location, expected.map(|bytes| bytes as u64)).await.unwrap();
            assert!(read.bytes == content, "{size} bytes, {expected:?} expected");
            assert!(read.requests <= requests, "{} requests for {size} bytes, {expected:?} expected", read.requests);
        }
        store.delete(&Path::from("m")).await.unwrap();
        let missing = files.read_expecting(&location, Some(1 << 30)).await.unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
    }
}
