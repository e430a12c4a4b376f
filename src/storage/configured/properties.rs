//! Iceberg's properties as one store's settings.

#![cfg_attr(not(any(feature = "aws", feature = "azure", feature = "gcp")), allow(dead_code))]

use std::collections::BTreeMap;
use std::time::Duration;

use super::bucket::Family;
use super::is_credential;

/// The properties that one store is made with. What is wrong with them is said without their values: they may be secret.
#[derive(Clone, Copy)]
pub(super) struct Properties<'a>(pub &'a BTreeMap<String, String>);

impl<'a> Properties<'a> {
    /// A property's value, unless it is empty.
    pub(super) fn get(self, key: &str) -> Option<&'a str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The first of these properties that is there.
    pub(super) fn first(self, keys: &[&str]) -> Option<&'a str> {
        keys.iter().find_map(|key| self.get(key))
    }

    /// A property that is true or false.
    pub(super) fn flag(self, key: &str) -> Result<Option<bool>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Some(true)),
            "false" | "0" | "no" | "off" => Ok(Some(false)),
            _ => Err(format!("{key} is neither true nor false")),
        }
    }

    /// A property of seconds.
    pub(super) fn seconds(self, key: &str) -> Result<Option<Duration>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.map(Some).ok_or_else(|| format!("{key} is no number of seconds"))
    }

    /// A property of milliseconds since the epoch; `None` also if it is no number.
    pub(super) fn time_ms(self, key: &str) -> Option<i64> {
        self.get(key)?.parse().ok()
    }
}

/// The properties with others before them. A family's credential comes from one place: parts of one that the others give
/// replace all parts of it.
pub(crate) fn overlaid(
    properties: &BTreeMap<String, String>,
    others: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let replaced: Vec<Family> =
        others.keys().filter(|key| is_credential(key)).filter_map(|key| Family::of_key(key)).collect();
    let is_replaced =
        |key: &str| is_credential(key) && Family::of_key(key).is_some_and(|family| replaced.contains(&family));
    let mut merged: BTreeMap<String, String> = properties
        .iter()
        .filter(|(key, _)| !is_replaced(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    merged.extend(others.iter().map(|(key, value)| (key.clone(), value.clone())));
    merged
}
