//! The files in a table's folders, as a listing shows them: a hash and a size for each.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::progress::{RunStage, stage};
use crate::storage::{Listed, ListingMode, ListingOptions, Stores};
use crate::table::location::{LocationParts, split};
use crate::table::{PathRules, Root, Roots, TableMetadata};

/// Makes one number of a file's scheme, authority and path.
#[derive(Debug)]
pub(super) struct FileHashes {
    rules: PathRules,
    seed: RandomState,
    /// The last scheme and authority, and their hash: they hardly ever change between two files.
    last: Option<(String, String, u64)>,
}

impl FileHashes {
    fn new(rules: PathRules) -> Self {
        Self { rules, seed: RandomState::new(), last: None }
    }

    /// Spellings that are always the same file have one hash. Links are not followed.
    pub(super) fn hash(&mut self, location: &str) -> u64 {
        let parts = split(location);
        let prefix = self.prefix(parts);
        self.seed.hash_one((prefix, self.rules.path(parts)))
    }

    /// The hash of something that is two files together.
    pub(super) fn pair(&self, one: u64, other: u64) -> u64 {
        self.seed.hash_one((one, other))
    }

    fn prefix(&mut self, parts: LocationParts<'_>) -> u64 {
        if let Some((scheme, authority, hash)) = &self.last
            && scheme == parts.scheme
            && authority == parts.authority
        {
            return *hash;
        }
        let hash = self.seed.hash_one(self.rules.listed_prefix(self.rules.prefix(parts)));
        self.last = Some((parts.scheme.into(), parts.authority.into(), hash));
        hash
    }
}

/// Sizes of listed files by their hashes.
#[derive(Debug)]
pub(super) struct ListedFiles {
    pub hashes: FileHashes,
    /// Hash and size, sorted; with [`NEEDED`] in the size once something asked for the file.
    files: Vec<(u64, u64)>,
    _memory: MemoryReservation,
}

const NEEDED: u64 = 1 << 63;

/// How many files memory is taken for at once.
const STEP: usize = 4096;

impl ListedFiles {
    /// Lists the table's location and the folders that its properties name.
    ///
    /// # Errors
    /// When a listing fails: one that is not complete shows nothing as missing.
    pub(super) async fn read(metadata: &TableMetadata, context: &RunContext) -> Result<Self> {
        let rules = PathRules::new(metadata.location());
        let mut how = context.options().listing_options()?;
        let folders = distinct_folders(metadata.roots(rules.clone()), &rules);
        loop {
            let mut listing = Listing::new(rules.clone(), &context.task);
            match stage(&context.task, RunStage::Listing, listing.run(&folders, &how, context)).await {
                Err(error @ Error::ListingOrder { .. }) if how.mode == ListingMode::Auto => {
                    tracing::warn!(%error, "listing again, in one part");
                    how.mode = ListingMode::Sequential;
                }
                outcome => return outcome.map(|()| listing.finish()),
            }
        }
    }

    /// The size of a file, if the listing showed it, and that it is needed.
    pub(super) fn need(&mut self, hash: u64) -> Option<u64> {
        let place = self.files.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        let (_, size) = self.files.get_mut(place)?;
        *size |= NEEDED;
        Some(*size & !NEEDED)
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// How many different files were needed.
    pub(super) fn needed(&self) -> usize {
        self.files.iter().filter(|(_, size)| size & NEEDED != 0).count()
    }
}

/// The roots that lie in no other root.
fn distinct_folders(roots: Roots, rules: &PathRules) -> Vec<Root> {
    let roots: Vec<Root> = roots.iter().cloned().collect();
    let mut distinct: Vec<Root> = vec![];
    for (place, root) in roots.iter().enumerate() {
        let holds = |other: &Root| {
            Roots::new(vec![other.clone()], rules.clone()).contains(&root.location.to_text())
                && !rules.same_place(&other.location, &root.location)
        };
        let same_before = |other: &Root| rules.same_place(&other.location, &root.location);
        if !roots.iter().any(holds) && !roots[..place].iter().any(same_before) {
            distinct.push(root.clone());
        }
    }
    distinct
}

/// Files while they are listed.
struct Listing {
    hashes: FileHashes,
    files: Vec<(u64, u64)>,
    memory: MemoryReservation,
}

impl Listing {
    fn new(rules: PathRules, task: &TaskContext) -> Self {
        let memory = MemoryConsumer::new("ListedFiles").register(task.memory_pool());
        Self { hashes: FileHashes::new(rules), files: vec![], memory }
    }

    async fn run(&mut self, folders: &[Root], how: &ListingOptions, context: &RunContext) -> Result<()> {
        let (stores, work) = (Stores::new(context.task.runtime_env()), context.work());
        for root in folders {
            let folder = root.location.with_path(root.location.path().trim_end_matches('/'));
            let mut listing = stores.store(&folder)?.list(&folder, how.clone());
            loop {
                let batch = match listing.try_next().await {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    // A folder that was never written to.
                    Err(error) if error.is_not_found() => break,
                    Err(error) => return Err(error),
                };
                work.add(|work| &work.files_listed, batch.len());
                for listed in batch {
                    // What a link leads to is asked for by itself.
                    if let Listed::File(file) = listed
                        && let Some(stat) = file.stat
                    {
                        self.add(&folder.with_path(file.path).to_text(), stat.size)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, location: &str, size: u64) -> Result<()> {
        if self.files.len() == self.files.capacity() {
            let more = self.files.len().max(STEP);
            self.memory.try_grow(more * size_of::<(u64, u64)>())?;
            self.files.reserve_exact(more);
        }
        self.files.push((self.hashes.hash(location), size & !NEEDED));
        Ok(())
    }

    fn finish(mut self) -> ListedFiles {
        self.files.sort_unstable();
        ListedFiles { hashes: self.hashes, files: self.files, _memory: self.memory }
    }
}
