//! The names of metadata files, and which of a folder's files is the newest.

use super::super::metadata_file::stem;
use crate::error::{Error, Result};
use crate::table::Location;

/// How metadata files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// `v<N>.metadata.json`
    Hadoop,
    /// `<N>-<uuid>.metadata.json`, and ClickHouse's `v<N>-<uuid>.metadata.json`.
    Catalog,
}

/// A metadata file's name, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetadataFileName {
    pub(super) name: String,
    pub(super) naming: Naming,
    pub(super) version: u64,
}

impl MetadataFileName {
    /// `None` for names that are no metadata file's, `version-hint.text` and checksum files among them.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let stem = stem(name)?;
        let (naming, digits) = match (stem.strip_prefix('v'), stem.split_once('-')) {
            (Some(digits), None) => (Naming::Hadoop, digits),
            (Some(rest), Some(_)) => (Naming::Catalog, rest.split_once('-')?.0),
            (None, Some((digits, _))) => (Naming::Catalog, digits),
            (None, None) => return None,
        };
        let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let version = digits.parse().ok().filter(|_| all_digits)?;
        Some(Self { name: name.to_string(), naming, version })
    }
}

/// The metadata files of a folder, after it was settled which is the newest.
#[derive(Debug)]
pub(super) struct MetadataFiles {
    pub(super) newest: MetadataFileName,
    pub(super) others: Vec<MetadataFileName>,
    /// Names that end like metadata files' but say no version.
    pub(super) unversioned: Vec<String>,
}

/// Settles which metadata file is the newest, or refuses.
pub(super) fn settle(location: &Location, mut files: Vec<MetadataFileName>) -> Result<MetadataFiles> {
    let unclear = |why: String| Error::UnclearOwner { table: location.to_string(), why };
    let example = |naming| files.iter().find(|file| file.naming == naming).map(|file| file.name.clone());
    if let (Some(hadoop), Some(catalog)) = (example(Naming::Hadoop), example(Naming::Catalog)) {
        return Err(unclear(format!(
            "its metadata folder holds {hadoop}, which a file-system table has, and {catalog}, which a catalog writes. \
             Which of the two schemes the table commits through is unknown, so nothing is touched. Name the table's \
             catalog, or move the files of the wrong scheme away"
        )));
    }
    files.sort_by(|a, b| (a.version, &a.name).cmp(&(b.version, &b.name)));
    let Some(newest) = files.pop() else {
        return Err(Error::TableNotFound {
            table: location.to_string(),
            why: "there is no metadata/*.metadata.json below it. Give the table's own folder".into(),
        });
    };
    match files.last() {
        Some(rival) if rival.version == newest.version => Err(unclear(format!(
            "{} and {} both claim to be version {}. Which one is current is unknown, so nothing is touched. Name the \
             table's catalog, or move the wrong file away",
            rival.name, newest.name, newest.version
        ))),
        _ => Ok(MetadataFiles { newest, others: files, unversioned: vec![] }),
    }
}

/// The names that a file-system table's version may have.
pub(super) fn spellings(version: u64) -> [String; 3] {
    [
        format!("v{version}.metadata.json"),
        format!("v{version}.gz.metadata.json"),
        format!("v{version}.metadata.json.gz"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<MetadataFileName> {
        names.iter().filter_map(|name| MetadataFileName::parse(name)).collect()
    }

    fn newest(files: &[&str]) -> std::result::Result<String, String> {
        let location = Location::parse("/t").unwrap();
        settle(&location, names(files)).map(|files| files.newest.name).map_err(|error| error.to_string())
    }

    #[test]
    fn all_spellings_of_a_version_are_known() {
        let compressed = ["v7.gz.metadata.json", "v7.metadata.json.gz", "v7.zstd.metadata.json", "v7.metadata.json.br"];
        for name in ["v7.metadata.json"].into_iter().chain(compressed) {
            let expected = MetadataFileName { name: name.into(), naming: Naming::Hadoop, version: 7 };
            assert_eq!(MetadataFileName::parse(name), Some(expected));
        }
        for name in
            ["00007-0a1b-2c.metadata.json", "7-x.gz.metadata.json", "00007-x.metadata.json.gz", "v7-x.metadata.json"]
        {
            let file = MetadataFileName::parse(name).unwrap();
            assert_eq!((file.naming, file.version), (Naming::Catalog, 7), "{name}");
        }
        let others = [".v7.metadata.json.crc", "version-hint.text", "v7.json", "vx.metadata.json", "v+7.metadata.json"];
        for other in others.into_iter().chain(["v7.metadata.json.bak", "v7.old.metadata.json", "v7.gz", "gz"]) {
            assert_eq!(MetadataFileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_newest_is_the_highest_number_not_the_last_name() {
        assert_eq!(
            newest(&["v9.metadata.json", "v10.metadata.json", "v2.metadata.json"]).unwrap(),
            "v10.metadata.json"
        );
        assert_eq!(newest(&["00009-b.metadata.json", "00010-a.metadata.json"]).unwrap(), "00010-a.metadata.json");
    }

    #[test]
    fn what_is_unclear_is_refused_by_name() {
        for (files, says) in [
            (&["v1.metadata.json", "00002-x.metadata.json"][..], "v1.metadata.json"),
            (&["v2.metadata.json", "v2.gz.metadata.json"], "both claim to be version 2"),
            (&["00002-a.metadata.json", "00002-b.metadata.json"], "00002-a.metadata.json and 00002-b.metadata.json"),
            (&[], "no metadata/*.metadata.json"),
        ] {
            let error = newest(files).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
