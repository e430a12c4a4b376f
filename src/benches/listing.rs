//! Listings as `remove_orphan_files` makes them.

use std::sync::Arc;

use futures::TryStreamExt;

use crate::error::Result;
use crate::storage::{Listing, ListingMode, ListingOptions, LocalFiles, ObjectFiles};
use crate::table::Location;

pub use crate::storage::paged::PagedBucket;

/// Lists a local folder; how many files there are.
pub async fn local(folder: &str, concurrency: usize, names_only: bool) -> Result<usize> {
    let options = ListingOptions { concurrency, names_only, ..Default::default() };
    count(LocalFiles::new(None).list(&Location::parse(folder)?, options)).await
}

/// Lists the folder `t` of a bucket by ranges; how many objects there are.
pub async fn bucket(bucket: PagedBucket, concurrency: usize, samples: Vec<String>) -> Result<usize> {
    let options = ListingOptions { concurrency, samples, names_only: false, mode: ListingMode::Ranges };
    count(ObjectFiles::new(Arc::new(bucket)).list(&Location::parse("s3://bucket/t")?, options)).await
}

async fn count(listing: Listing) -> Result<usize> {
    listing.try_fold(0, |count, batch| std::future::ready(Ok(count + batch.len()))).await
}
