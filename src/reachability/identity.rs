//! When two location strings mean the same file.
//!
//! A file of metadata and a file of a listing are compared by scheme and authority, and by one key made from the path. For
//! object stores the key is the path itself. On a local disk a file has several names: through links, and with percent
//! signs decoded where a writer names files by URL. Which name is meant can't be told, so a live file has the keys of all of
//! them, and a candidate is looked up by the key of the file that it really is.

use std::borrow::Cow;
use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::storage::LocalFiles;
use crate::table::location::{percent_decoded, split};
use crate::table::{FilePrefix, PathRules};

/// How many folders without links are remembered. Those that are reached through links are, whatever their number.
const REMEMBERED_FOLDERS: usize = 1 << 16;

/// Makes the keys by which files are compared.
#[derive(Debug, Clone)]
pub(crate) struct FileIdentity {
    rules: PathRules,
    local: Option<LocalNames>,
    /// The last scheme and authority that were folded, and the result: they hardly ever change between two files.
    last_prefix: Option<(String, String, Arc<FilePrefix>)>,
}

/// Finds out what names a file on a local disk has.
#[derive(Debug, Clone)]
struct LocalNames {
    files: LocalFiles,
    folders: Arc<Mutex<Folders>>,
    /// The last folder that was looked up, and what it really is if that is another one.
    last: Option<(String, Option<Arc<str>>)>,
}

/// What is known of folders. All sets of a run share it, so that a folder is one place for the whole run.
#[derive(Debug, Default)]
struct Folders {
    linked: HashMap<String, Arc<str>>,
    /// Folders that are what their name says.
    plain: HashSet<String>,
}

impl FileIdentity {
    /// `local`: the local file system that the table lies on, if it does.
    pub(crate) fn new(rules: PathRules, local: Option<LocalFiles>) -> Self {
        let local = local.map(|files| LocalNames { files, folders: Arc::default(), last: None });
        Self { rules, local, last_prefix: None }
    }

    /// The same rules, with nothing remembered of folders: they may lead elsewhere by now.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(self.rules.clone(), self.local().cloned())
    }

    pub(crate) fn rules(&self) -> &PathRules {
        &self.rules
    }

    /// The local file system that the files are on, if they are.
    pub(crate) fn local(&self) -> Option<&LocalFiles> {
        self.local.as_ref().map(|local| &local.files)
    }

    /// The folded scheme and authority of a location.
    pub(super) fn prefix(&mut self, location: &str) -> Arc<FilePrefix> {
        let parts = split(location);
        if let Some((scheme, authority, prefix)) = &self.last_prefix
            && scheme == parts.scheme
            && authority == parts.authority
        {
            return Arc::clone(prefix);
        }
        let prefix = Arc::new(self.rules.prefix(parts));
        self.last_prefix = Some((parts.scheme.into(), parts.authority.into(), Arc::clone(&prefix)));
        prefix
    }

    /// The key of a candidate: of the file that its name leads to.
    ///
    /// # Errors
    /// When a local disk doesn't say where a folder's links lead.
    pub(super) fn key<'a>(&mut self, location: &'a str) -> Result<Cow<'a, str>> {
        let path = self.rules.path(split(location));
        match &mut self.local {
            None => Ok(path),
            Some(local) => Ok(match local.resolved(&path)? {
                None => decoded(path),
                Some(resolved) => decoded(Cow::Owned(resolved)),
            }),
        }
    }

    /// The keys of a live file: of everything that its name may mean. As a rule one.
    ///
    /// # Errors
    /// When a local disk doesn't say where a folder's links lead.
    pub(super) fn keys<'a>(&mut self, location: &'a str) -> Result<Keys<'a>> {
        let path = self.rules.path(split(location));
        let Some(local) = &mut self.local else { return Ok(Keys { first: path, others: vec![] }) };
        let resolved = local.resolved(&path)?;
        let mut others = Vec::new();
        if path.contains('%')
            && let Some(once_decoded) = percent_decoded(&path)
        {
            let resolved = local.resolved(&once_decoded)?;
            others.extend(resolved.map(|path| decoded(Cow::Owned(path)).into_owned()));
        }
        let as_written = decoded(path);
        if let Some(resolved) = local.resolved(&as_written)? {
            others.push(decoded(Cow::Owned(resolved)).into_owned());
        }
        let first = match resolved {
            None => as_written,
            Some(resolved) => {
                others.push(as_written.into_owned());
                decoded(Cow::Owned(resolved))
            }
        };
        others.sort_unstable();
        others.dedup();
        others.retain(|other| *other != first);
        Ok(Keys { first, others })
    }
}

/// Which files were met before, whatever their spelling.
///
/// Only for files that may go: they are remembered as hashes, and one that is mistaken for another stays.
#[derive(Debug)]
pub(crate) struct KnownFiles {
    identity: FileIdentity,
    seed: RandomState,
    places: HashMap<u64, usize>,
}

impl KnownFiles {
    pub(crate) fn new(identity: &FileIdentity) -> Self {
        Self { identity: identity.clone(), seed: RandomState::new(), places: HashMap::new() }
    }

    /// Notes a file that is met for the first time, with its place in the caller's list; says the place of one that was met
    /// before. One whose name can't be resolved counts by what is written.
    pub(crate) fn met_at(&mut self, location: &str, place: usize) -> Option<usize> {
        let prefix = self.identity.prefix(location);
        let prefix = self.identity.rules.listed_prefix(FilePrefix::clone(&prefix));
        let hash = match self.identity.key(location) {
            Ok(key) => self.seed.hash_one((prefix, key)),
            Err(_) => self.seed.hash_one((prefix, location)),
        };
        match self.places.entry(hash) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) => {
                new.insert(place);
                None
            }
        }
    }
}

/// One candidate, which the names of live files are compared with: the question of [`super::LiveFiles`], asked the other way
/// round.
#[derive(Debug)]
pub(crate) struct OneFile {
    identity: FileIdentity,
    key: String,
    prefix: FilePrefix,
}

/// How a name relates to a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// It names the candidate.
    Same,
    /// It names the same path under this scheme and authority, which the rules don't call equal.
    OtherPrefix(FilePrefix),
    /// It names another file.
    Different,
}

impl OneFile {
    /// # Errors
    /// When a local disk doesn't say where a folder's links lead.
    pub(crate) fn new(mut identity: FileIdentity, location: &str) -> Result<Self> {
        let prefix = identity.prefix(location);
        let prefix = identity.rules.listed_prefix(FilePrefix::clone(&prefix));
        let key = identity.key(location)?.into_owned();
        Ok(Self { identity, key, prefix })
    }

    /// Whether a live file's name names the candidate.
    ///
    /// # Errors
    /// When a local disk doesn't say where a folder's links lead.
    pub(crate) fn compare(&mut self, live: &str) -> Result<Sameness> {
        let Self { identity, key, prefix } = self;
        if !identity.keys(live)?.iter().any(|live| live == key) {
            return Ok(Sameness::Different);
        }
        let live = identity.prefix(live);
        match live.matches_listed(prefix) {
            true => Ok(Sameness::Same),
            false => Ok(Sameness::OtherPrefix(FilePrefix::clone(&live))),
        }
    }

    /// Whether a listing's name is the candidate's.
    ///
    /// # Errors
    /// When a local disk doesn't say where a folder's links lead.
    pub(crate) fn is_listed_as(&mut self, listed: &str) -> Result<bool> {
        let Self { identity, key, prefix } = self;
        let other = identity.prefix(listed);
        Ok(identity.key(listed)? == key.as_str() && identity.rules.listed_prefix(FilePrefix::clone(&other)) == *prefix)
    }
}

/// The keys of one live file, all different from the first.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    first: Cow<'a, str>,
    others: Vec<String>,
}

impl Keys<'_> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.first.as_ref()).chain(self.others.iter().map(String::as_str))
    }
}

/// The path with percent-encoding undone as often as there is any, so that all spellings of a name become one.
///
/// Encoded bytes never overlap, so the order in which they are decoded makes no difference: what a decoded byte completes
/// is decoded at once. Bytes that are no text become one and the same sign; it only serves to compare.
fn decoded(path: Cow<'_, str>) -> Cow<'_, str> {
    if !path.contains('%') {
        return path;
    }
    let mut bytes = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        bytes.push(byte);
        while let [.., b'%', high, low] = bytes[..]
            && let (Some(high), Some(low)) = (char::from(high).to_digit(16), char::from(low).to_digit(16))
        {
            bytes.truncate(bytes.len() - 3);
            bytes.push((high * 16 + low) as u8);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

impl LocalNames {
    /// The file's path with all links of its folder resolved, if that is another one. What doesn't exist can't be a link:
    /// it is resolved as far as it is there.
    fn resolved(&mut self, path: &str) -> Result<Option<String>> {
        let Some((folder, name)) = path.rsplit_once('/') else { return Ok(None) };
        if self.last.as_ref().is_none_or(|(last, _)| last != folder) {
            let resolved = self.folder(folder)?;
            self.last = Some((folder.to_string(), resolved));
        }
        let resolved = self.last.as_ref().and_then(|(_, resolved)| resolved.as_deref());
        Ok(resolved.map(|folder| format!("{}/{name}", folder.trim_end_matches('/'))))
    }

    fn folder(&self, folder: &str) -> Result<Option<Arc<str>>> {
        {
            let folders = self.folders.lock();
            if let Some(linked) = folders.linked.get(folder) {
                return Ok(Some(Arc::clone(linked)));
            }
            if folders.plain.contains(folder) {
                return Ok(None);
            }
        }
        let really = self.really(folder)?;
        let mut folders = self.folders.lock();
        if really == folder {
            if folders.plain.len() >= REMEMBERED_FOLDERS {
                folders.plain.clear();
            }
            folders.plain.insert(folder.to_string());
            return Ok(None);
        }
        let really: Arc<str> = really.into();
        folders.linked.insert(folder.to_string(), Arc::clone(&really));
        Ok(Some(really))
    }

    fn really(&self, folder: &str) -> Result<String> {
        let (mut there, mut missing) = (folder, "");
        loop {
            if let Some(canonical) = self.files.canonical(if there.is_empty() { "/" } else { there })? {
                return Ok(format!("{}{missing}", canonical.trim_end_matches('/')));
            }
            match there.rfind('/') {
                Some(end) => (there, missing) = (&folder[..end], &folder[end..]),
                None => return Ok(folder.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Location;

    fn identity(table: &str) -> FileIdentity {
        let location = Location::parse(table).unwrap();
        let local = location.is_local().then(|| LocalFiles::new(None));
        FileIdentity::new(PathRules::new(&location), local)
    }

    fn keys(identity: &mut FileIdentity, location: &str) -> Vec<String> {
        identity.keys(location).unwrap().iter().map(str::to_string).collect()
    }

    #[test]
    fn an_objects_key_is_its_path_as_it_is() {
        let mut identity = identity("s3://b/t");
        for location in ["s3://b/t/a", "s3://b/t//a", "s3://b/t/x%2520y", "s3://b/t/./a"] {
            assert_eq!(keys(&mut identity, location), [&location["s3://b".len()..]]);
            assert_eq!(identity.key(location).unwrap(), &location["s3://b".len()..]);
        }
    }

    #[test]
    fn all_spellings_of_a_local_name_have_one_key() {
        let mut identity = identity("/nope");
        for spelling in ["/nope/a b", "/nope/a%20b", "/nope/a%2520b", "file:///nope//a%20b", "/nope/./a b"] {
            assert_eq!(keys(&mut identity, spelling), ["/nope/a b"], "{spelling}");
            assert_eq!(identity.key(spelling).unwrap(), "/nope/a b", "{spelling}");
        }
        assert_eq!(keys(&mut identity, "/nope/100%"), ["/nope/100%"]);
        assert_eq!(keys(&mut identity, "/nope/%ff"), keys(&mut identity, "/nope/%25ff"), "no text, but the same name");
        assert_eq!(keys(&mut identity, "/nope/%%3433"), ["/nope/C3"]);
        let deep = format!("/nope/%{}41", "25".repeat(100_000));
        assert_eq!(keys(&mut identity, &deep), ["/nope/A"]);
    }

    #[test]
    fn a_live_file_behind_a_link_has_both_names_and_a_candidate_its_real_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let root = root.to_str().unwrap();
        std::fs::create_dir(format!("{root}/real")).unwrap();
        std::os::unix::fs::symlink(format!("{root}/real"), format!("{root}/link")).unwrap();
        std::os::unix::fs::symlink(format!("{root}/real"), format!("{root}/a b")).unwrap();
        let mut identity = identity(root);
        let (real, link) = (format!("{root}/real/f"), format!("{root}/link/f"));
        assert_eq!(keys(&mut identity, &real), [real.as_str()]);
        assert_eq!(keys(&mut identity, &link), [real.as_str(), &link]);
        assert_eq!(identity.key(&link).unwrap(), real);
        // Named by URL, the folder is a link.
        let by_url = keys(&mut identity, &format!("{root}/a%20b/f"));
        assert!(by_url.contains(&real), "{by_url:?}");
        // What is not there is resolved as far as it is.
        assert_eq!(identity.key(&format!("{root}/link/x/y/f")).unwrap(), format!("{root}/real/x/y/f"));
    }
}
