//! The set of files that something live names, built to answer one question: may this file go?
//!
//! Paths are held as 63-bit hashes with a seed of their own for each set. The side to keep is hashed and the candidates
//! probe it, so that a collision can only keep a file, never let one go. Under each path there is one set for every
//! scheme and authority that the metadata uses, as a rule exactly one.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

use crate::error::Result;
use crate::storage::LocalFiles;
use crate::table::location::{LocationParts, percent_decoded, split};
use crate::table::{FilePrefix, PathRules};

/// How a candidate relates to the live files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// Something live names it.
    Live,
    /// Something live names the same path under this scheme and authority, which the rules don't call equal.
    OtherPrefix(FilePrefix),
    /// Nothing live names it.
    Dead,
}

/// Collects the locations of live files. [`LiveFilesBuilder::build`] makes it answer questions.
#[derive(Debug)]
pub(crate) struct LiveFilesBuilder {
    identity: FileIdentity,
    seed: RandomState,
    prefixes: Vec<(FilePrefix, Vec<u64>)>,
    /// Other names of files on a local disk: through links, or with percent signs decoded.
    aliases: Vec<u64>,
    reservation: MemoryReservation,
    /// Entries that the reservation covers.
    reserved: usize,
    entries: usize,
}

/// The set of live files.
#[derive(Debug)]
pub(crate) struct LiveFiles {
    identity: FileIdentity,
    seed: RandomState,
    prefixes: Vec<(FilePrefix, SortedHashes)>,
    aliases: SortedHashes,
    _reservation: MemoryReservation,
}

/// The forms under which a file is compared.
#[derive(Debug, Clone)]
pub(crate) struct FileIdentity {
    rules: PathRules,
    /// The last scheme and authority that were folded, and the result: they hardly ever change between two files.
    last_prefix: Option<(String, String, FilePrefix)>,
    local: Option<LocalAliases>,
}

/// Finds the other names that a file on a local disk has.
#[derive(Debug, Clone)]
struct LocalAliases {
    files: LocalFiles,
    /// Folders whose canonical name differs from their own; `None` for those where it doesn't. All sets of a run share it.
    folders: Arc<Mutex<HashMap<String, Option<String>>>>,
}

/// Bit 0 of an entry: the file lies where the listing looks, so the listing must show it.
const EXPECTED: u64 = 1;
/// How many entries the memory reservation grows by.
const RESERVE_ENTRIES: usize = 1 << 16;

impl FileIdentity {
    pub(crate) fn new(rules: PathRules, local: Option<LocalFiles>) -> Self {
        let local = local.map(|files| LocalAliases { files, folders: Arc::default() });
        Self { rules, last_prefix: None, local }
    }

    pub(crate) fn rules(&self) -> &PathRules {
        &self.rules
    }

    /// The local file system that the files are on, if they are.
    pub(crate) fn local(&self) -> Option<&LocalFiles> {
        self.local.as_ref().map(|local| &local.files)
    }

    /// One text for all spellings of a file, links aside.
    pub(crate) fn key(&self, location: &str) -> String {
        let parts = split(location);
        let prefix = self.rules.listed_prefix(self.rules.prefix(parts));
        format!("{prefix}{}", self.rules.path(parts))
    }

    fn prefix(&mut self, parts: LocationParts<'_>) -> FilePrefix {
        if let Some((scheme, authority, prefix)) = &self.last_prefix
            && scheme == parts.scheme
            && authority == parts.authority
        {
            return prefix.clone();
        }
        let prefix = self.rules.prefix(parts);
        self.last_prefix = Some((parts.scheme.into(), parts.authority.into(), prefix.clone()));
        prefix
    }

    /// The other names of a local file, if it has any.
    fn aliases(&self, path: &str) -> Result<Vec<String>> {
        self.local.as_ref().map_or(Ok(vec![]), |local| local.of(path))
    }
}

impl LocalAliases {
    fn of(&self, path: &str) -> Result<Vec<String>> {
        let mut aliases = Vec::new();
        aliases.extend(self.through_links(path)?);
        // Some writers name files by URL; which of the two names is meant can't be told, so both are kept.
        if path.contains('%')
            && let Some(decoded) = percent_decoded(path)
        {
            aliases.extend(self.through_links(&decoded)?);
            aliases.push(decoded);
        }
        Ok(aliases)
    }

    /// The file's name with all links of its folder resolved, if that is another one.
    fn through_links(&self, path: &str) -> Result<Option<String>> {
        let Some((folder, name)) = path.rsplit_once('/') else { return Ok(None) };
        let mut folders = self.folders.lock();
        let canonical = match folders.get(folder) {
            Some(known) => known.clone(),
            None => {
                let canonical = self.files.canonical(folder)?.filter(|canonical| canonical != folder);
                folders.insert(folder.to_string(), canonical.clone());
                canonical
            }
        };
        Ok(canonical.map(|folder| format!("{}/{name}", folder.trim_end_matches('/'))))
    }
}

impl LiveFilesBuilder {
    pub(crate) fn new(identity: FileIdentity, pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            identity,
            seed: RandomState::new(),
            prefixes: Vec::new(),
            aliases: Vec::new(),
            reservation: MemoryConsumer::new("LiveFiles").register(pool),
            reserved: 0,
            entries: 0,
        }
    }

    /// Adds a file. `expected` says that the listing which will probe this set must show it.
    ///
    /// # Errors
    /// When the session's memory pool is exhausted, or a local disk doesn't say where a folder's links lead.
    pub(crate) fn insert(&mut self, location: &str, expected: bool) -> Result<()> {
        let parts = split(location);
        let prefix = self.identity.prefix(parts);
        let path = self.identity.rules.path(parts);
        let hash = hash(&self.seed, &path) | if expected { EXPECTED } else { 0 };
        let aliases = self.identity.aliases(&path)?;
        self.reserve(1 + aliases.len())?;
        match self.prefixes.iter_mut().find(|(known, _)| *known == prefix) {
            Some((_, hashes)) => hashes.push(hash),
            None => self.prefixes.push((prefix, vec![hash])),
        }
        self.aliases.extend(aliases.iter().map(|alias| self::hash(&self.seed, alias)));
        Ok(())
    }

    fn reserve(&mut self, more: usize) -> Result<()> {
        self.entries += more;
        while self.entries > self.reserved {
            // A growing vector holds its old and its new buffer for a moment.
            self.reservation.try_grow(RESERVE_ENTRIES * size_of::<u64>() * 2)?;
            self.reserved += RESERVE_ENTRIES;
        }
        Ok(())
    }

    pub(crate) fn build(self) -> LiveFiles {
        LiveFiles {
            identity: self.identity,
            seed: self.seed,
            prefixes: self.prefixes.into_iter().map(|(prefix, hashes)| (prefix, SortedHashes::new(hashes))).collect(),
            aliases: SortedHashes::new(self.aliases),
            _reservation: self.reservation,
        }
    }
}

impl LiveFiles {
    /// How many distinct locations are in the set.
    pub(crate) fn len(&self) -> usize {
        self.prefixes.iter().map(|(_, hashes)| hashes.entries.len()).sum()
    }

    /// Looks a candidate up under all of its names, and notes that it was seen.
    pub(crate) fn probe(&mut self, location: &str) -> Liveness {
        let parts = split(location);
        let prefix = self.identity.prefix(parts);
        let prefix = self.identity.rules.listed_prefix(prefix);
        let path = self.identity.rules.path(parts).into_owned();
        // A file whose other names can't be found out may be live under one of them.
        let Ok(aliases) = self.identity.aliases(&path) else { return Liveness::Live };
        let mut other = None;
        for name in std::iter::once(&path).chain(&aliases) {
            let hash = hash(&self.seed, name);
            for (live, hashes) in &mut self.prefixes {
                if let Some(index) = hashes.find(hash) {
                    hashes.see(index);
                    if live.matches_listed(&prefix) {
                        return Liveness::Live;
                    }
                    other = Some(live.clone());
                }
            }
            if self.aliases.find(hash).is_some_and(|index| self.aliases.see(index)) {
                return Liveness::Live;
            }
        }
        other.map_or(Liveness::Dead, Liveness::OtherPrefix)
    }

    /// How many of the expected files no probe has seen. Files with several names may be counted although they were
    /// seen: [`Self::was_seen`] tells.
    pub(crate) fn unseen_count(&self) -> usize {
        self.prefixes.iter().map(|(_, hashes)| hashes.unseen_expected()).sum()
    }

    /// True if a probe has seen this file under any of its names.
    pub(crate) fn was_seen(&mut self, location: &str) -> bool {
        let parts = split(location);
        let path = self.identity.rules.path(parts).into_owned();
        let aliases = self.identity.aliases(&path).unwrap_or_default();
        std::iter::once(&path).chain(&aliases).any(|name| {
            let hash = hash(&self.seed, name);
            self.prefixes.iter().map(|(_, hashes)| hashes).chain([&self.aliases]).any(|hashes| hashes.has_seen(hash))
        })
    }
}

fn hash(seed: &RandomState, path: &str) -> u64 {
    let mut hasher = seed.build_hasher();
    hasher.write(path.as_bytes());
    hasher.finish() & !EXPECTED
}

/// Sorted distinct hashes, each with its `EXPECTED` bit, and a mark for those that were seen.
#[derive(Debug, Default)]
struct SortedHashes {
    entries: Vec<u64>,
    seen: Vec<u64>,
}

impl SortedHashes {
    fn new(mut entries: Vec<u64>) -> Self {
        entries.sort_unstable();
        // Of two entries for one file the later one has the EXPECTED bit if any has.
        entries.dedup_by(|later, earlier| {
            let same = (*later | EXPECTED) == (*earlier | EXPECTED);
            if same {
                *earlier |= *later;
            }
            same
        });
        entries.shrink_to_fit();
        let seen = vec![0; entries.len().div_ceil(64)];
        Self { entries, seen }
    }

    fn find(&self, hash: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&hash, |entry| entry & !EXPECTED).ok()
    }

    fn see(&mut self, index: usize) -> bool {
        self.seen[index / 64] |= 1 << (index % 64);
        true
    }

    fn has_seen(&self, hash: u64) -> bool {
        self.find(hash).is_some_and(|index| self.seen[index / 64] & (1 << (index % 64)) != 0)
    }

    fn unseen_expected(&self) -> usize {
        let seen = |index: usize| self.seen[index / 64] & (1 << (index % 64)) != 0;
        self.entries.iter().enumerate().filter(|(index, entry)| *entry & EXPECTED != 0 && !seen(*index)).count()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::*;
    use crate::table::Location;

    fn live(table: &str, files: &[&str]) -> LiveFiles {
        let rules = PathRules::new(&Location::parse(table).unwrap());
        let local = Location::parse(table).unwrap().is_local().then(|| LocalFiles::new(None));
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut builder = LiveFilesBuilder::new(FileIdentity::new(rules, local), &pool);
        files.iter().for_each(|file| builder.insert(file, true).unwrap());
        builder.build()
    }

    #[test]
    fn spellings_of_one_local_file_are_one_file() {
        let mut files = live("/t", &["file:/t/a", "file:///t/a", "/t//a", "/t/b%20c"]);
        for same in ["/t/a", "file:///t/./a", "/t/b%20c", "/t/b c"] {
            assert_eq!(files.probe(same), Liveness::Live, "{same}");
        }
        assert_eq!(files.probe("/t/c"), Liveness::Dead);
    }

    #[test]
    fn keys_of_object_stores_are_compared_as_they_are() {
        let mut files = live("s3://b/t", &["s3a://b/t/a", "s3://b/t//b", "s3://b/t/x%2Fy"]);
        assert_eq!(files.probe("s3://b/t/a"), Liveness::Live);
        for dead in ["s3://b/t/b", "s3://b/t/x/y", "s3://b/t/./a"] {
            assert_eq!(files.probe(dead), Liveness::Dead, "{dead}");
        }
    }

    #[test]
    fn the_same_path_elsewhere_is_neither_live_nor_dead() {
        let mut files = live("hdfs://nn1/t", &["hdfs://nn1/t/a", "hdfs:///t/b", "/t/c"]);
        let other = FilePrefix { scheme: "hdfs".into(), authority: "nn1".into() };
        assert_eq!(files.probe("hdfs://nn2/t/a"), Liveness::OtherPrefix(other));
        assert_eq!(files.probe("hdfs://nn2/t/b"), Liveness::Live, "the metadata names no authority");
        assert_eq!(files.probe("hdfs://nn2/t/c"), Liveness::Live, "the metadata names neither");
    }

    #[test]
    fn a_local_table_without_a_scheme_is_a_file_table() {
        let mut files = live("/t", &["file:/t/a", "/t/b"]);
        for same in ["/t/a", "file:/t/b", "file:///t/a"] {
            assert_eq!(files.probe(same), Liveness::Live, "{same}");
        }
    }

    #[test]
    fn any_exact_match_keeps_a_file() {
        let mut files = live("s3://b/t", &["gs://b/t/a", "s3://b/t/a"]);
        assert_eq!(files.probe("s3://b/t/a"), Liveness::Live);
    }

    #[test]
    fn a_file_reached_through_a_linked_folder_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let root = root.to_str().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink(format!("{root}/real"), format!("{root}/link")).unwrap();
        let mut files = live(&format!("{root}/link"), &[&format!("{root}/real/a"), &format!("{root}/link/b")]);
        for same in ["link/a", "real/a", "link/b", "real/b"] {
            assert_eq!(files.probe(&format!("{root}/{same}")), Liveness::Live, "{same}");
        }
        assert!(files.was_seen(&format!("{root}/real/a")));
        assert_eq!(files.probe(&format!("{root}/real/c")), Liveness::Dead);
    }

    #[test]
    fn what_the_listing_did_not_show_is_known() {
        let mut files = live("s3://b/t", &["s3://b/t/a", "s3://b/t/b"]);
        assert_eq!((files.len(), files.unseen_count()), (2, 2));
        files.probe("s3://b/t/a");
        assert_eq!(files.unseen_count(), 1);
        assert!(files.was_seen("s3a://b/t/a") && !files.was_seen("s3://b/t/b"));
    }

    #[test]
    fn memory_is_taken_from_the_sessions_pool() {
        let rules = PathRules::new(&Location::parse("s3://b/t").unwrap());
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let mut builder = LiveFilesBuilder::new(FileIdentity::new(rules, None), &pool);
        let error = builder
            .insert("s3://b/t/a", true)
            .and_then(|()| (0..100_000).try_for_each(|i| builder.insert(&format!("s3://b/t/{i}"), true)));
        assert!(error.unwrap_err().to_string().contains("LiveFiles"));
    }
}
