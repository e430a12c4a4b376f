//! Where files are, and when two spellings mean the same file.
//!
//! Table metadata names files by absolute location strings; a store lists them by key. A live file whose two names are
//! not recognised as one would be deleted as an orphan, so every comparison in this crate goes through [`PathRules`].
//!
//! The rules: object keys are opaque bytes (no percent-decoding, `//` and `.` mean themselves). Paths of the local file
//! system are what the operating system makes of them: repeated slashes and `.` segments fall away, percent signs mean
//! themselves, as they do for Java's `Path`. Scheme and authority are compared as Spark's `remove_orphan_files` does:
//! through the `equal_schemes` and `equal_authorities` maps, without regard to case.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use crate::error::{Error, Result};

/// A location split into its parts, each exactly as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    scheme: String,
    authority: String,
    path: String,
}

/// The parts of a location string, borrowed: scheme and authority (either may be empty) and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocationParts<'a> {
    pub scheme: &'a str,
    pub authority: &'a str,
    pub path: &'a str,
}

/// Splits a location without decoding anything. `C:/x` is a path (a drive letter is no scheme).
pub(crate) fn split(text: &str) -> LocationParts<'_> {
    let scheme_end = text.find(':').filter(|&end| {
        end > 1
            && text.as_bytes()[0].is_ascii_alphabetic()
            && text[..end].bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
            && text[end + 1..].starts_with('/')
    });
    let (scheme, rest) = match scheme_end {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => return LocationParts { scheme: "", authority: "", path: text },
    };
    match rest.strip_prefix("//") {
        Some(after) => {
            let end = after.find('/').unwrap_or(after.len());
            LocationParts { scheme, authority: &after[..end], path: &after[end..] }
        }
        None => LocationParts { scheme, authority: "", path: rest },
    }
}

/// A name or location as it may be shown: without what stands where a user and a password do, and without a query.
pub(crate) fn without_credentials(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    // Signatures stand in a query, and a query has a name and a value.
    let text = text.split_once('?').filter(|(_, query)| query.contains('=')).map_or(text, |(location, _)| location);
    Location::parse(text).map_or(Cow::Borrowed(text), |location| Cow::Owned(location.to_string()))
}

impl LocationParts<'_> {
    pub(crate) fn is_local(&self) -> bool {
        self.scheme.is_empty() || self.scheme.eq_ignore_ascii_case("file")
    }
}

impl Location {
    /// Parses an absolute location such as `s3://bucket/key`, `file:///dir`, `file:/dir` or `/dir`.
    ///
    /// # Errors
    /// [`Error::Location`] when the text is empty or a relative path.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = split(text);
        if parts.scheme.is_empty() && !parts.path.starts_with('/') {
            return Err(Error::Location {
                location: text.to_string(),
                why: "it is not absolute. Give a path that starts with '/' or a URL such as s3://bucket/table".into(),
            });
        }
        Ok(Self { scheme: parts.scheme.into(), authority: parts.authority.into(), path: parts.path.into() })
    }

    /// The scheme as written, empty when there is none.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The authority (bucket, container, host) as written, empty when there is none.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The path as written, with its leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// True for paths of the local file system: no scheme, or `file`.
    pub fn is_local(&self) -> bool {
        self.parts().is_local()
    }

    /// The location of something below this one. Exactly one slash joins the two.
    pub fn child(&self, name: &str) -> Location {
        let base = self.path.strip_suffix('/').unwrap_or(&self.path);
        Location { path: format!("{base}/{name}"), ..self.clone() }
    }

    /// The location as text, exactly: what names the file. [`Display`](fmt::Display) is for messages and hides credentials.
    pub(crate) fn to_text(&self) -> String {
        match (self.scheme.as_str(), self.authority.as_str()) {
            ("", _) => self.path.clone(),
            (scheme, "")
                if scheme.eq_ignore_ascii_case("file")
                    && self.path.starts_with('/')
                    && !self.path.starts_with("//") =>
            {
                format!("{scheme}:{}", self.path)
            }
            (scheme, authority) => format!("{scheme}://{authority}{}", self.path),
        }
    }

    /// The same store, another path.
    pub(crate) fn with_path(&self, path: impl Into<String>) -> Location {
        Location { path: path.into(), ..self.clone() }
    }

    pub(crate) fn parts(&self) -> LocationParts<'_> {
        LocationParts { scheme: &self.scheme, authority: &self.authority, path: &self.path }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What stands before an '@' is a container's name on Azure, or a user with a password.
        match self.authority.rsplit_once('@') {
            Some((user, host)) if user.contains(':') => write!(f, "{}://{host}{}", self.scheme, self.path),
            _ => f.write_str(&self.to_text()),
        }
    }
}

/// The clouds whose storage accounts have two hosts, `<account>.dfs.<cloud>` and `<account>.blob.<cloud>`, with the same files.
const AZURE_CLOUDS: [&str; 6] = [
    "core.windows.net",
    "core.chinacloudapi.cn",
    "core.usgovcloudapi.net",
    "core.cloudapi.de",
    "fabric.microsoft.com",
    "storage.azure.net",
];

/// Schemes that name the same files if the authority is the same; the first stands for all.
const SCHEME_FAMILIES: [&[&str]; 2] = [&["s3", "s3a", "s3n"], &["abfss", "abfs", "wasb", "wasbs", "az"]];

/// The same authority by the host that names an Azure account's files as `kind` does, `dfs` or `blob`. `None` if the
/// authority is none of Azure's.
fn azure_authority(authority: &str, kind: &str) -> Option<String> {
    let (account, cloud) = authority.split_once(".dfs.").or_else(|| authority.split_once(".blob."))?;
    let is_azure = AZURE_CLOUDS.iter().any(|known| cloud.eq_ignore_ascii_case(known));
    is_azure.then(|| format!("{account}.{kind}.{cloud}"))
}

/// All schemes and authorities that name the same store as these, as they are written first.
pub(crate) fn store_spellings(scheme: &str, authority: &str) -> Vec<(String, String)> {
    let scheme = scheme.to_ascii_lowercase();
    let family = SCHEME_FAMILIES.iter().find(|family| family.contains(&scheme.as_str())).copied().unwrap_or_default();
    let schemes: Vec<&str> =
        std::iter::once(scheme.as_str()).chain(family.iter().copied().filter(|other| **other != scheme)).collect();
    let hosts = ["dfs", "blob"].iter().filter_map(|kind| azure_authority(authority, kind));
    let authorities: Vec<String> =
        std::iter::once(authority.to_string()).chain(hosts.filter(|other| other != authority)).collect();
    let of_scheme =
        |scheme: &&str| authorities.iter().map(|host| (scheme.to_string(), host.clone())).collect::<Vec<_>>();
    schemes.iter().flat_map(of_scheme).collect()
}

/// The path as the operating system understands it: no repeated slashes, no `.` segments, no trailing slash.
///
/// `..` stays: what it means depends on links, which only the file system knows.
pub(crate) fn normalize_local(path: &str) -> Cow<'_, str> {
    let clean = !path.contains("//") && !path.contains("/.") && (path.len() == 1 || !path.ends_with('/'));
    if clean {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    for segment in path.split('/').filter(|s| !s.is_empty() && *s != ".") {
        out.push('/');
        out.push_str(segment);
    }
    if out.is_empty() {
        out.push('/');
    }
    Cow::Owned(out)
}

/// Undoes percent-encoding, as URLs have it. `None` when the result is not UTF-8.
pub(crate) fn percent_decoded(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[at], hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// Scheme and authority after folding: two files can only be the same if these match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePrefix {
    /// Folded scheme, empty when the location has none.
    pub scheme: String,
    /// Folded authority, empty when the location has none.
    pub authority: String,
}

impl FilePrefix {
    /// Spark's rule: a part that the metadata leaves out matches anything, otherwise the parts must be equal.
    ///
    /// It is not symmetric: a part that only the listing lacks is a mismatch.
    pub fn matches_listed(&self, listed: &FilePrefix) -> bool {
        (self.scheme.is_empty() || self.scheme == listed.scheme)
            && (self.authority.is_empty() || self.authority == listed.authority)
    }
}

impl fmt::Display for FilePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scheme.is_empty(), self.authority.is_empty()) {
            (true, true) => f.write_str("(no scheme)"),
            (false, true) => write!(f, "{}:", self.scheme),
            (_, false) => write!(f, "{}://{}", self.scheme, self.authority),
        }
    }
}

/// Decides which spellings of scheme, authority and path mean the same file, for one table.
#[derive(Debug, Clone)]
pub struct PathRules {
    /// Folded lower-case scheme by lower-case scheme.
    schemes: HashMap<String, String>,
    /// Folded lower-case authority by lower-case authority.
    authorities: HashMap<String, String>,
    /// True when the table lives on the local file system, so that a path without a scheme is a local one.
    local_table: bool,
}

impl PathRules {
    /// The built-in rules: `s3a` and `s3n` are `s3`, all Azure schemes are one, and an Azure account's blob and dfs hosts
    /// are one.
    pub fn new(table_location: &Location) -> Self {
        let mut rules =
            Self { schemes: HashMap::new(), authorities: HashMap::new(), local_table: table_location.is_local() };
        for family in SCHEME_FAMILIES {
            for alias in &family[1..] {
                rules.schemes.insert((*alias).into(), family[0].into());
            }
        }
        rules
    }

    /// Adds Spark's `equal_schemes`: each key may be a comma-separated list, each of which then equals the value.
    pub fn with_equal_schemes<'a>(mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        add_aliases(&mut self.schemes, pairs);
        self
    }

    /// Adds Spark's `equal_authorities`, in the same form as the schemes.
    pub fn with_equal_authorities<'a>(mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        add_aliases(&mut self.authorities, pairs);
        self
    }

    /// The folded scheme and authority of a location.
    pub(crate) fn prefix(&self, parts: LocationParts<'_>) -> FilePrefix {
        let mut authority = parts.authority.to_ascii_lowercase();
        if authority == "localhost" && parts.is_local() {
            authority.clear();
        }
        if let Some(folded) = azure_authority(&authority, "dfs") {
            authority = folded;
        }
        FilePrefix {
            scheme: fold(&self.schemes, parts.scheme.to_ascii_lowercase()),
            authority: fold(&self.authorities, authority),
        }
    }

    /// The prefix of a listed file: what has no scheme on a local disk is a `file:`.
    pub(crate) fn listed_prefix(&self, mut prefix: FilePrefix) -> FilePrefix {
        if prefix.scheme.is_empty() && self.local_table {
            prefix.scheme = fold(&self.schemes, "file".into());
        }
        prefix
    }

    /// The path as it is compared: normalised for local files, untouched for object keys.
    pub(crate) fn path<'a>(&self, parts: LocationParts<'a>) -> Cow<'a, str> {
        let local = if parts.scheme.is_empty() { self.local_table } else { parts.is_local() };
        if local { normalize_local(parts.path) } else { Cow::Borrowed(parts.path) }
    }

    /// True when both locations name the same file or folder (a trailing slash makes no difference).
    pub fn same_place(&self, a: &Location, b: &Location) -> bool {
        self.listed_prefix(self.prefix(a.parts())) == self.listed_prefix(self.prefix(b.parts()))
            && self.path(a.parts()).trim_end_matches('/') == self.path(b.parts()).trim_end_matches('/')
    }
}

fn add_aliases<'a>(map: &mut HashMap<String, String>, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (aliases, target) in pairs {
        for alias in aliases.split(',') {
            map.insert(alias.trim().to_ascii_lowercase(), target.trim().to_ascii_lowercase());
        }
    }
}

/// Follows aliases to their end. A loop in the user's map means that all names in it are equal: the first of them in
/// alphabetical order stands for all.
fn fold(aliases: &HashMap<String, String>, name: String) -> String {
    let mut seen = vec![name];
    loop {
        match seen.last().and_then(|last| aliases.get(last)) {
            Some(next) => match seen.iter().position(|known| known == next) {
                Some(start) => return seen.drain(start..).min().unwrap_or_default(),
                None => seen.push(next.clone()),
            },
            None => return seen.pop().unwrap_or_default(),
        }
    }
}

/// A folder that belongs to the table, and which setting says so.
#[derive(Debug, Clone)]
pub struct Root {
    /// Where the root is.
    pub location: Location,
    /// `location`, or the table property that names the root.
    pub named_by: &'static str,
}

/// The folders that belong to a table: its location and the write paths that its properties name.
#[derive(Debug, Clone)]
pub struct Roots {
    roots: Vec<Root>,
    /// Each root as it is compared: folded scheme and authority, normalised path without a slash at the end.
    compared: Vec<(FilePrefix, String)>,
    rules: PathRules,
}

impl Roots {
    /// Makes the set; the first root is the table's location.
    pub fn new(roots: Vec<Root>, rules: PathRules) -> Self {
        let compared = |root: &Root| {
            let parts = root.location.parts();
            (rules.listed_prefix(rules.prefix(parts)), rules.path(parts).trim_end_matches('/').to_string())
        };
        Self { compared: roots.iter().map(compared).collect(), roots, rules }
    }

    /// All roots, the table's location first.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter()
    }

    /// True when the location lies below one of the roots, by whole path segments.
    ///
    /// A path with a `..` segment, or with a `.` segment where it means itself, is never inside, nor is one without a scheme
    /// unless the table is on a local disk: where it leads is not for us to guess.
    pub fn contains(&self, location: &str) -> bool {
        let parts = split(location);
        let path = self.rules.path(parts);
        if self.compared.iter().all(|(_, root)| !is_below(&path, root)) {
            return false;
        }
        if path.split('/').skip(1).any(|segment| matches!(segment, "." | "..")) {
            return false;
        }
        let prefix = self.rules.listed_prefix(self.rules.prefix(parts));
        !prefix.scheme.is_empty()
            && self.compared.iter().any(|(root_prefix, root)| *root_prefix == prefix && is_below(&path, root))
    }
}

/// The last segment of a location.
pub(crate) fn file_name(location: &str) -> &str {
    location.rsplit('/').next().unwrap_or(location)
}

/// True when `path` is strictly below the folder `root`, by whole segments.
pub(crate) fn is_below(path: &str, root: &str) -> bool {
    let root = root.strip_suffix('/').unwrap_or(root);
    path.strip_prefix(root).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(location: &str) -> PathRules {
        PathRules::new(&Location::parse(location).unwrap())
    }

    fn same(a: &str, b: &str) -> bool {
        let (a, b) = (Location::parse(a).unwrap(), Location::parse(b).unwrap());
        PathRules::new(&a).same_place(&a, &b)
    }

    #[test]
    fn local_spellings_mean_the_same_file() {
        for other in ["file:/a/b", "file:///a/b", "/a/b", "/a//b", "/a/./b", "file:///a/b/", "FILE:/a/b"] {
            assert!(same("/a/b", other), "{other}");
        }
        assert!(!same("/a/b", "/a/c"));
        assert!(same("/a/b", "file://localhost/a/b"));
        assert!(!same("/a/b", "file://host/a/b"));
        assert!(!same("/a/%20b", "/a/ b"), "percent signs mean themselves");
    }

    #[test]
    fn object_keys_are_opaque() {
        assert!(same("s3://b/a", "s3a://b/a"));
        assert!(!same("s3://b/a//f", "s3://b/a/f"));
        assert!(!same("s3://b/a/./f", "s3://b/a/f"));
        assert!(!same("s3://b/a%2Ff", "s3://b/a/f"));
        assert!(!same("s3://b/k", "s3://c/k"));
    }

    #[test]
    fn azure_spellings_of_one_container_are_equal() {
        assert!(same("abfss://c@acct.dfs.core.windows.net/t/f", "wasbs://c@acct.blob.core.windows.net/t/f"));
        assert!(!same("abfss://c@acct.dfs.core.windows.net/t/f", "abfss://d@acct.dfs.core.windows.net/t/f"));
        for cloud in AZURE_CLOUDS {
            let dfs = format!("abfss://c@acct.dfs.{cloud}/t/f");
            for scheme in ["abfs", "abfss", "wasb", "wasbs", "az"] {
                assert!(same(&dfs, &format!("{scheme}://c@acct.blob.{cloud}/t/f")), "{scheme} {cloud}");
            }
            assert!(!same(&dfs, &format!("abfss://c@other.blob.{cloud}/t/f")));
            assert!(!same(&dfs, &format!("abfss://c@acct.blob.{cloud}/t//f")), "keys are opaque here too");
        }
        assert!(!same("abfss://c@acct.dfs.core.windows.net/f", "abfss://c@acct.dfs.core.chinacloudapi.cn/f"));
        assert!(!same("s3://bucket.blob.example/f", "s3://bucket.dfs.example/f"));
        assert!(!same("gs://b/f", "s3://b/f"));
    }

    #[test]
    fn a_store_is_known_by_all_its_spellings() {
        let text = |scheme, authority| -> Vec<String> {
            store_spellings(scheme, authority).into_iter().map(|(scheme, host)| format!("{scheme}://{host}")).collect()
        };
        assert_eq!(text("S3A", "b"), ["s3a://b", "s3://b", "s3n://b"]);
        assert_eq!(text("gs", "b"), ["gs://b"]);
        let azure = text("wasbs", "c@a.blob.core.windows.net");
        assert_eq!(azure[..2], ["wasbs://c@a.blob.core.windows.net", "wasbs://c@a.dfs.core.windows.net"]);
        assert!(azure.contains(&"abfss://c@a.dfs.core.windows.net".into()) && azure.len() == 10, "{azure:?}");
    }

    #[test]
    fn a_drive_letter_or_a_colon_in_a_name_is_no_scheme() {
        assert_eq!(split("C:/data/f").scheme, "");
        assert_eq!(split("/a/b:c/d").scheme, "");
        assert_eq!(split("s3://b"), LocationParts { scheme: "s3", authority: "b", path: "" });
    }

    #[test]
    fn user_aliases_fold_in_both_directions_and_may_be_lists() {
        let rules = rules("hdfs://nn1/t").with_equal_authorities([("nn1, nn2", "cluster")]);
        let (a, b) = (Location::parse("hdfs://nn1/f").unwrap(), Location::parse("hdfs://NN2/f").unwrap());
        assert!(rules.same_place(&a, &b));
        let looping = PathRules::new(&a).with_equal_schemes([("xx", "yy"), ("yy", "xx")]);
        assert_eq!(looping.prefix(split("xx://h/p")), looping.prefix(split("yy://h/p")));
        let table = Location::parse("/t").unwrap();
        let renamed = PathRules::new(&table).with_equal_schemes([("file", "s3")]);
        assert!(renamed.same_place(&table, &Location::parse("file:///t").unwrap()), "both sides are folded");
    }

    #[test]
    fn a_part_missing_in_the_metadata_matches_but_not_one_missing_in_the_listing() {
        let p = |s: &str, a: &str| FilePrefix { scheme: s.into(), authority: a.into() };
        assert!(p("", "").matches_listed(&p("s3", "b")));
        assert!(p("hdfs", "").matches_listed(&p("hdfs", "nn")));
        assert!(!p("hdfs", "nn").matches_listed(&p("hdfs", "")));
        assert!(!p("s3", "a").matches_listed(&p("s3", "b")));
    }

    #[test]
    fn roots_end_at_a_slash() {
        let location = Location::parse("file:/w/my_table").unwrap();
        let roots =
            Roots::new(vec![Root { location: location.clone(), named_by: "location" }], PathRules::new(&location));
        for inside in ["/w/my_table/data/f", "file:///w/my_table/f", "file:/w//my_table/./f", "/w/my_table/..f"] {
            assert!(roots.contains(inside), "{inside}");
        }
        for outside in ["/w/my_table_2/f", "/w/my_table", "/w/f", "/w/my_table/../other/f", "s3://w/my_table/f"] {
            assert!(!roots.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_path_without_a_scheme_is_not_inside_an_object_store() {
        let location = Location::parse("s3://w/t").unwrap();
        let roots =
            Roots::new(vec![Root { location: location.clone(), named_by: "location" }], PathRules::new(&location));
        assert!(roots.contains("s3a://w/t/f") && !roots.contains("/t/f") && !roots.contains("s3://other/t/f"));
    }

    #[test]
    fn percent_encoding_is_undone_byte_by_byte() {
        assert_eq!(percent_decoded("/a%20b/%C3%BC#c?d%").unwrap(), "/a b/ü#c?d%");
        assert_eq!(percent_decoded("/%FF"), None);
    }

    #[test]
    fn everything_in_a_bucket_is_below_its_root() {
        assert!(is_below("/k", ""));
        assert!(is_below("/k", "/"));
        assert!(!is_below("/", "/"));
    }

    #[test]
    fn no_secret_in_a_printed_location() {
        let text = Location::parse("https://user:secret@host/t").unwrap().to_string();
        assert_eq!(text, "https://host/t");
        assert_eq!(Location::parse("abfss://c@acct/t").unwrap().to_string(), "abfss://c@acct/t");
        for text in ["https://user:secret@host/t", "s3://b/t", "file:/t", "/t", "file:////t", "//t", "file://"] {
            assert_eq!(Location::parse(text).unwrap().to_text(), text);
        }
    }
}
