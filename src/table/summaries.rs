//! What the summaries of snapshots say, all of it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::Document;
use super::metadata::TableMetadata;
use crate::error::{Error, Result};

/// The keys and values of a summary, in the order of the metadata.
pub(crate) type SummaryEntries = Vec<(String, Option<String>)>;

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(default, borrow)]
    summary: Option<&'a RawValue>,
}

impl TableMetadata {
    /// The summaries of all snapshots, in the order of [`Self::snapshots`]; `None` for snapshots that have none. A value that is no
    /// text, as the spec wants it, is given as its JSON, `null` as `None`.
    ///
    /// # Errors
    /// [`Error::Malformed`] when a summary is no object.
    pub(crate) fn summaries(&self) -> Result<Vec<Option<SummaryEntries>>> {
        let malformed = |error: serde_json::Error| Error::Malformed {
            what: "table metadata",
            path: self.metadata_location().into(),
            why: format!("snapshots: {error}"),
        };
        let snapshots = self.document().elements("snapshots").map_err(malformed)?.unwrap_or_default();
        snapshots.into_iter().map(|snapshot| entries(snapshot.get()).map_err(malformed)).collect()
    }
}

fn entries(snapshot: &str) -> serde_json::Result<Option<SummaryEntries>> {
    let Some(summary) = serde_json::from_str::<Told<'_>>(snapshot)?.summary else { return Ok(None) };
    if summary.get() == "null" {
        return Ok(None);
    }
    let text = |json: &str| match json {
        "null" => None,
        json => Some(serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_string())),
    };
    let summary = Document::parse(summary.get())?;
    Ok(Some(summary.fields().map(|(key, json)| (key.to_string(), text(json))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_summary_says_is_there_in_its_order() {
        let json = r#"{"format-version":2,"location":"/t","snapshots":[
            {"snapshot-id":1,"timestamp-ms":1,"manifest-list":"/l"},
            {"snapshot-id":2,"timestamp-ms":1,"manifest-list":"/l","summary":null},
            {"snapshot-id":3,"timestamp-ms":1,"manifest-list":"/l","summary":
                {"operation":"append","z\u00e9":"a\"b","a": 12,"n":null,"o":{"x":1}}}]}"#;
        let metadata = TableMetadata::parse("/t/metadata/v1.metadata.json", json.as_bytes()).unwrap();
        let said = |entries: &[(&str, Option<&str>)]| {
            Some(entries.iter().map(|(key, value)| (key.to_string(), value.map(str::to_string))).collect())
        };
        let third = [
            ("operation", Some("append")),
            ("zé", Some("a\"b")),
            ("a", Some("12")),
            ("n", None),
            ("o", Some(r#"{"x":1}"#)),
        ];
        assert_eq!(metadata.summaries().unwrap(), [None, None, said(&third)]);
    }
}
