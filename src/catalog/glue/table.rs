//! A table as Glue keeps it: JSON of which only what names the current metadata is understood, and only that is changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::table::Document;

/// The fields of a table that an update may send: Glue's `TableInput`. The others are Glue's own.
const INPUT_FIELDS: [&str; 14] = [
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
    "ViewDefinition",
];

const POINTER: &str = "metadata_location";
const PREVIOUS_POINTER: &str = "previous_metadata_location";

/// What an entry of the Glue catalog is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    IcebergTable,
    View,
    /// Another format's table, by the name it gives, which may be empty.
    Other(String),
}

/// A table, losslessly.
#[derive(Debug, Clone)]
pub(super) struct GlueTable {
    document: Document,
    view: View,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct View {
    name: String,
    #[serde(default)]
    version_id: Option<String>,
    #[serde(default)]
    table_type: Option<String>,
    #[serde(default)]
    parameters: Option<BTreeMap<String, String>>,
}

impl GlueTable {
    /// Reads the answer to GetTable.
    pub(super) fn of_answer(answer: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(rename = "Table", borrow)]
            table: &'a RawValue,
        }
        Self::parse(serde_json::from_str::<Answer<'_>>(answer)?.table.get())
    }

    pub(super) fn parse(json: &str) -> serde_json::Result<Self> {
        let document = Document::parse(json)?;
        let view = serde_json::from_str(json)?;
        Ok(Self { document, view })
    }

    pub(super) fn name(&self) -> &str {
        &self.view.name
    }

    /// What tells this state of the table from others: it goes up by one with each update. `None` where it isn't a number:
    /// then no update can be guarded by it.
    pub(super) fn version_id(&self) -> Option<u64> {
        self.view.version_id.as_deref().filter(|id| id.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
    }

    /// The location of the current metadata.
    pub(super) fn pointer(&self) -> Option<&str> {
        self.parameter(POINTER).filter(|pointer| !pointer.is_empty())
    }

    pub(super) fn kind(&self) -> Kind {
        let table_type = self.view.table_type.as_deref().unwrap_or_default();
        if table_type.to_ascii_uppercase().ends_with("VIEW") {
            return Kind::View;
        }
        match self.parameter("table_type").unwrap_or_default() {
            iceberg if iceberg.eq_ignore_ascii_case("iceberg") => Kind::IcebergTable,
            other => Kind::Other(other.into()),
        }
    }

    /// This state of the table, in one text: the version and the pointer, for either may be all that changes.
    pub(super) fn state(&self) -> String {
        format!("{} {}", self.view.version_id.as_deref().unwrap_or("-"), self.pointer().unwrap_or_default())
    }

    /// What an update sends that changes nothing.
    pub(super) fn unchanged_input(&self) -> Document {
        let mut input = self.document.clone();
        input.retain(|field| INPUT_FIELDS.contains(&field));
        input
    }

    /// What an update sends that makes `pointer` the current metadata, and changes nothing else.
    pub(super) fn input_with_pointer(&self, pointer: &str) -> serde_json::Result<Document> {
        let mut input = self.unchanged_input();
        let mut parameters = match input.object("Parameters")? {
            Some(parameters) => parameters,
            None => Document::parse("{}")?,
        };
        parameters.set(PREVIOUS_POINTER, &self.pointer().unwrap_or_default())?;
        parameters.set(POINTER, &pointer)?;
        input.set_object("Parameters", &parameters);
        Ok(input)
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.view.parameters.as_ref()?.get(name).map(String::as_str)
    }
}

/// The input of UpdateTable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct UpdateTable<'a> {
    pub database_name: &'a str,
    pub table_input: Box<RawValue>,
    pub skip_archive: bool,
    pub version_id: String,
}

impl<'a> UpdateTable<'a> {
    /// An update that counts only on top of `version_id`.
    pub(super) fn new(
        database_name: &'a str,
        input: &Document,
        skip_archive: bool,
        version_id: u64,
    ) -> serde_json::Result<Self> {
        let table_input = RawValue::from_string(input.to_json())?;
        Ok(Self { database_name, table_input, skip_archive, version_id: version_id.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"{"Name":"t","DatabaseName":"db","Owner":"me","CreateTime":1.7e9,"LastAccessTime":1700000000.125,
        "Retention":0,"StorageDescriptor":{"Columns":[{"Name":"id","Type":"bigint","Parameters":{"iceberg.field.id":"1"}}],
        "NumberOfBuckets":-1},"PartitionKeys":[],"TableType":"EXTERNAL_TABLE","Parameters":{"z":"last","table_type":"iceberg",
        "metadata_location":"s3://b/1.json","a":"first"},"CreatedBy":"arn","CatalogId":"1","VersionId":"7",
        "IsRegisteredWithLakeFormation":false}"#;

    #[test]
    fn an_update_keeps_everything_but_the_pointers() {
        let table = GlueTable::of_answer(&format!(r#"{{"Table":{TABLE}}}"#)).unwrap();
        let sent: serde_json::Value =
            serde_json::from_str(&table.input_with_pointer("s3://b/2.json").unwrap().to_json()).unwrap();
        let mut expected: serde_json::Value = serde_json::from_str(TABLE).unwrap();
        let fields = expected.as_object_mut().unwrap();
        for own in
            ["DatabaseName", "CreateTime", "CreatedBy", "CatalogId", "VersionId", "IsRegisteredWithLakeFormation"]
        {
            fields.remove(own).unwrap();
        }
        fields["Parameters"]["metadata_location"] = "s3://b/2.json".into();
        fields["Parameters"]["previous_metadata_location"] = "s3://b/1.json".into();
        assert_eq!(sent, expected);
        assert_eq!(table.state(), "7 s3://b/1.json");
    }

    #[test]
    fn what_is_no_iceberg_table_is_told_apart() {
        let kind = |json: &str| GlueTable::parse(json).unwrap().kind();
        assert_eq!(kind(r#"{"Name":"t","Parameters":{"table_type":"ICEBERG"}}"#), Kind::IcebergTable);
        assert_eq!(kind(r#"{"Name":"t","TableType":"VIRTUAL_VIEW"}"#), Kind::View);
        assert_eq!(kind(r#"{"Name":"t","Parameters":{"table_type":"DELTA"}}"#), Kind::Other("DELTA".into()));
        assert_eq!(kind(r#"{"Name":"t"}"#), Kind::Other(String::new()));
    }

    #[test]
    fn only_a_number_is_a_version() {
        let version = |id: &str| GlueTable::parse(&format!(r#"{{"Name":"t","VersionId":{id}}}"#)).unwrap().version_id();
        assert_eq!(
            (version(r#""12""#), version(r#""""#), version(r#""a1""#), version("null")),
            (Some(12), None, None, None)
        );
    }
}
