//! The table properties that maintenance obeys.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// `history.expire.max-snapshot-age-ms` when the table doesn't set it: 5 days.
pub const DEFAULT_MAX_SNAPSHOT_AGE_MS: i64 = 5 * 24 * 60 * 60 * 1000;
/// `write.metadata.previous-versions-max` when the table doesn't set it.
const DEFAULT_PREVIOUS_VERSIONS_MAX: i64 = 100;

/// The properties that name folders of the table besides its location. The last two are deprecated spellings.
const WRITE_PATHS: [&str; 4] =
    ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"];

/// A table's properties, read strictly: a value that can't be what it should be is an error that names it.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    values: BTreeMap<String, String>,
    /// The metadata file they were read from, for messages.
    metadata_location: String,
}

impl Properties {
    /// Wraps the `properties` object of the table metadata at this location.
    pub fn new(values: BTreeMap<String, String>, metadata_location: impl Into<String>) -> Self {
        Self { values, metadata_location: metadata_location.into() }
    }

    /// The property's text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// All properties, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// `gc.enabled`: only absent or `true` (in any case) allows deletion. The offending value otherwise.
    pub fn gc_disabled(&self) -> Option<&str> {
        self.get("gc.enabled").filter(|value| !value.eq_ignore_ascii_case("true"))
    }

    /// `history.expire.max-snapshot-age-ms`, 5 days by default.
    pub fn max_snapshot_age_ms(&self) -> Result<i64> {
        self.non_negative("history.expire.max-snapshot-age-ms", DEFAULT_MAX_SNAPSHOT_AGE_MS)
    }

    /// `history.expire.min-snapshots-to-keep`, 1 by default. The head of a branch stays even at 0.
    pub fn min_snapshots_to_keep(&self) -> Result<i64> {
        self.non_negative("history.expire.min-snapshots-to-keep", 1)
    }

    /// `history.expire.max-ref-age-ms`, by default `i64::MAX`: refs don't age.
    pub fn max_ref_age_ms(&self) -> Result<i64> {
        self.non_negative("history.expire.max-ref-age-ms", i64::MAX)
    }

    /// `write.metadata.previous-versions-max`, 100 by default and never below 1.
    pub fn previous_versions_max(&self) -> Result<usize> {
        let value = self.non_negative("write.metadata.previous-versions-max", DEFAULT_PREVIOUS_VERSIONS_MAX)?;
        Ok(usize::try_from(value.max(1)).unwrap_or(usize::MAX))
    }

    /// `write.metadata.delete-after-commit.enabled`: metadata files that fall out of the log are deleted.
    pub fn delete_metadata_after_commit(&self) -> bool {
        self.get("write.metadata.delete-after-commit.enabled").is_some_and(|v| v.eq_ignore_ascii_case("true"))
    }

    /// True when `write.metadata.compression-codec` asks for gzip.
    pub fn gzip_metadata(&self) -> bool {
        self.get("write.metadata.compression-codec").is_some_and(|v| v.eq_ignore_ascii_case("gzip"))
    }

    /// The folders besides the location that the table writes to, with the property that names each.
    pub fn write_paths(&self) -> impl Iterator<Item = (&'static str, &str)> {
        WRITE_PATHS.iter().filter_map(|name| Some((*name, self.get(name)?))).filter(|(_, path)| !path.is_empty())
    }

    fn non_negative(&self, name: &str, default: i64) -> Result<i64> {
        let Some(text) = self.get(name) else { return Ok(default) };
        match text.trim().parse::<i64>() {
            Ok(value) if value >= 0 => Ok(value),
            _ => Err(Error::InvalidMetadata {
                path: self.metadata_location.clone(),
                why: format!(
                    "property {name} is '{text}', which is no whole number from 0 to {}. Set or unset the property first",
                    i64::MAX
                ),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(name: &str, value: &str) -> Properties {
        Properties::new(BTreeMap::from([(name.to_string(), value.to_string())]), "v1.metadata.json")
    }

    #[test]
    fn only_an_absent_or_true_gc_enabled_allows_deletion() {
        assert_eq!(Properties::default().gc_disabled(), None);
        for allows in ["true", "TRUE", "True"] {
            assert_eq!(properties("gc.enabled", allows).gc_disabled(), None, "{allows}");
        }
        for refuses in ["false", "FALSE", "no", "", "1", " true"] {
            assert_eq!(properties("gc.enabled", refuses).gc_disabled(), Some(refuses));
        }
    }

    #[test]
    fn numbers_are_read_strictly() {
        let name = "history.expire.max-snapshot-age-ms";
        assert_eq!(Properties::default().max_snapshot_age_ms().unwrap(), 432_000_000);
        assert_eq!(properties(name, "9223372036854775807").max_snapshot_age_ms().unwrap(), i64::MAX);
        for bad in ["-1", "9223372036854775808", "5d", "", "1.5"] {
            let error = properties(name, bad).max_snapshot_age_ms().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn the_metadata_log_keeps_at_least_one_entry() {
        let kept = properties("write.metadata.previous-versions-max", "0").previous_versions_max().unwrap();
        assert_eq!(kept, 1);
    }
}
