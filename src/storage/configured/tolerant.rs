//! A store whose listings survive keys that `object_store` can't express.
//!
//! Its clients for S3, Azure and Google parse a page of keys as a whole: one key with `//`, a `.` or `..` segment or a
//! control character in it fails the page, and ends the listing, since the token of the next page is lost with it. The
//! error names the key. So the same page is asked for again in ever smaller parts until the key is the next one; then the
//! listing begins anew behind it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::{Error as PathError, Path};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use crate::storage::UnusableKey;

/// How many keys the first part of a failed page has; the stores' own pages have two to ten times as many.
const FIRST_PART: usize = 512;
/// How many keys are asked for behind a key that was left out: others like it are often near.
const PART_BEHIND: usize = 8;

/// A client that lists page by page.
pub(super) trait Client: ObjectStore + PaginatedListStore {}
impl<C: ObjectStore + PaginatedListStore> Client for C {}

/// The store around a client. It prints itself as the client does.
pub(super) struct Tolerant<C> {
    client: Arc<C>,
    /// The server can begin a listing behind any key.
    begins_anywhere: bool,
}

impl<C: Client> Tolerant<C> {
    pub(super) fn new(client: C, begins_anywhere: bool) -> Self {
        Self { client: Arc::new(client), begins_anywhere }
    }

    fn keys(&self, prefix: Option<&Path>, offset: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.filter(|prefix| !prefix.is_root()).map(|prefix| format!("{prefix}/"));
        let begin = offset.filter(|_| self.begins_anywhere).map(Path::to_string);
        let walk = Walk {
            client: Arc::clone(&self.client),
            begins_anywhere: self.begins_anywhere,
            prefix,
            begin,
            token: None,
            part: None,
            left_out: None,
        };
        let pages = futures::stream::try_unfold(Some(walk), |walk| async move {
            let Some(mut walk) = walk else { return Ok(None) };
            let (items, goes_on) = walk.next_page().await?;
            Ok::<_, Error>(Some((items, goes_on.then_some(walk))))
        });
        let keys = pages.map_ok(futures::stream::iter).try_flatten();
        match offset.filter(|_| !self.begins_anywhere).cloned() {
            Some(offset) => {
                let is_behind = move |item: &Result<ObjectMeta>| {
                    futures::future::ready(item.as_ref().map_or(true, |meta| meta.location > offset))
                };
                keys.filter(is_behind).boxed()
            }
            None => keys.boxed(),
        }
    }
}

/// One listing.
struct Walk<C> {
    client: Arc<C>,
    begins_anywhere: bool,
    prefix: Option<String>,
    /// Behind which key the listing begins.
    begin: Option<String>,
    /// Where the next page begins, if it isn't the first.
    token: Option<String>,
    /// How many keys to ask for, while a key that can't be expressed is near.
    part: Option<usize>,
    /// The last key that was left out. What comes next must be behind it.
    left_out: Option<String>,
}

impl<C: Client> Walk<C> {
    /// The next keys, and whether there may be more.
    async fn next_page(&mut self) -> Result<(Vec<Result<ObjectMeta>>, bool)> {
        loop {
            let options = PaginatedListOptions {
                offset: self.begin.clone(),
                max_keys: self.part,
                page_token: self.token.clone(),
                ..Default::default()
            };
            match self.client.list_paginated(self.prefix.as_deref(), options).await {
                Ok(page) => return self.take(page),
                Err(Error::InvalidPath { source }) => match (bad_key(&source), self.part) {
                    (Some(key), Some(1)) => return Ok((vec![Err(self.leave_out(key)?.into())], true)),
                    (Some(_), part) => self.part = Some(part.map_or(FIRST_PART, |part| part / 2)),
                    (None, _) => return Err(source.into()),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, page: PaginatedListResult) -> Result<(Vec<Result<ObjectMeta>>, bool)> {
        let objects = page.result.objects;
        if let Some(part) = self.part {
            if objects.len() > part {
                return Err(stuck("the store sends more keys than it is asked for".into()));
            }
            self.part = part.checked_mul(2).filter(|part| *part <= FIRST_PART);
        }
        if let (Some(left_out), Some(first)) = (&self.left_out, objects.first()) {
            self.check_is_behind(left_out, first.location.as_ref())?;
            self.left_out = None;
        }
        self.token = page.page_token.filter(|token| !token.is_empty());
        Ok((objects.into_iter().map(Ok).collect(), self.token.is_some()))
    }

    /// Goes on behind a key, or behind all that begin as it does where none of them can be expressed.
    fn leave_out(&mut self, key: &str) -> Result<UnusableKey> {
        if !self.begins_anywhere {
            return Err(stuck(format!(
                "{key:?} can't be expressed by the store's client, or passed over on this server"
            )));
        }
        if let Some(left_out) = &self.left_out {
            self.check_is_behind(left_out, key)?;
        }
        let (place, behind) = match hopeless_folder(key) {
            Some(folder) => (folder.to_string(), format!("{folder}{}", char::MAX)),
            None => (key.to_string(), key.to_string()),
        };
        self.left_out = Some(key.to_string());
        self.begin = Some(behind);
        self.token = None;
        self.part = Some(PART_BEHIND);
        Ok(UnusableKey(place))
    }

    fn check_is_behind(&self, left_out: &str, next: &str) -> Result<()> {
        match next > left_out {
            true => Ok(()),
            false => Err(stuck(format!(
                "{left_out:?} can't be expressed by the store's client, and behind it the store lists {next:?}"
            ))),
        }
    }
}

/// The whole key that could not be parsed.
fn bad_key(error: &PathError) -> Option<&str> {
    match error {
        PathError::EmptySegment { path } | PathError::BadSegment { path, .. } => Some(path),
        _ => None,
    }
}

/// The prefix up to and including the slash behind the first segment that can't be expressed: no key below it can be.
fn hopeless_folder(key: &str) -> Option<&str> {
    let mut end = usize::from(key.starts_with('/'));
    for segment in key[end..].split_inclusive('/') {
        end += segment.len();
        let name = segment.strip_suffix('/')?;
        if matches!(name, "" | "." | "..") || name.bytes().any(|byte| byte.is_ascii_control()) {
            return Some(&key[..end]);
        }
    }
    None
}

fn stuck(why: String) -> Error {
    Error::Generic { store: "listing", source: why.into() }
}

impl<C: fmt::Display> fmt::Display for Tolerant<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

/// Without the client's own output, which may hold secrets.
impl<C: fmt::Display> fmt::Debug for Tolerant<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tolerant({})", self.client)
    }
}

#[async_trait]
impl<C: Client> ObjectStore for Tolerant<C> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.client.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.client.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.client.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.client.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.client.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.keys(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.keys(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.client.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.client.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.client.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests;
