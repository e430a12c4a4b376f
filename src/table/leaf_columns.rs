//! The columns of a table that hold values: those that files have metrics of.

use serde_json::Value as Json;

use super::partitioning::{MAX_DEPTH, current_schema, primitive};
use super::{ResultType, TableMetadata};
use crate::error::{Error, Result};

/// A column of a primitive type, wherever it is nested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeafColumn {
    /// Its id, the same in all schemas and files.
    pub(crate) id: i32,
    /// Its name with those of what it is nested in, with dots between: `point.x`, `list.element`, `map.key`.
    pub(crate) name: String,
    /// The type of its values.
    pub(crate) result: ResultType,
}

/// The leaf columns of a table's current schema, by their names in the order of Java, which compares UTF-16.
///
/// # Errors
/// [`Error::InvalidMetadata`] when there is no current schema, or it is not what the spec says.
pub(crate) fn leaf_columns(metadata: &TableMetadata) -> Result<Vec<LeafColumn>> {
    let fields = current_schema(metadata)
        .map_err(|why| Error::InvalidMetadata { path: metadata.metadata_location().to_string(), why })?;
    let mut columns = vec![];
    fields.iter().for_each(|field| add_field(field, "", 0, &mut columns));
    columns.sort_by(|one, other| one.name.encode_utf16().cmp(other.name.encode_utf16()));
    Ok(columns)
}

fn add_field(field: &Json, within: &str, depth: usize, columns: &mut Vec<LeafColumn>) {
    let Some(name) = field.get("name").and_then(Json::as_str) else { return };
    add(field.get("id"), field.get("type"), &nested(within, name), depth, columns);
}

/// Adds a column, or those that are nested in it.
fn add(id: Option<&Json>, column: Option<&Json>, name: &str, depth: usize, columns: &mut Vec<LeafColumn>) {
    let Some(column) = column.filter(|_| depth < MAX_DEPTH) else { return };
    if let Some(type_name) = column.as_str() {
        let id = id.and_then(Json::as_i64).and_then(|id| i32::try_from(id).ok());
        // A variant is no primitive type.
        if let Some(id) = id.filter(|_| type_name != "variant") {
            columns.push(LeafColumn { id, name: name.to_string(), result: primitive(type_name) });
        }
        return;
    }
    for field in column.get("fields").and_then(Json::as_array).into_iter().flatten() {
        add_field(field, name, depth + 1, columns);
    }
    for part in ["element", "key", "value"] {
        add(column.get(format!("{part}-id")), column.get(part), &nested(name, part), depth + 1, columns);
    }
}

fn nested(within: &str, name: &str) -> String {
    if within.is_empty() { name.to_string() } else { format!("{within}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns_of(schema: &str) -> Result<Vec<(i32, String, ResultType)>> {
        let json = format!(r#"{{"format-version":2,"location":"/t","current-schema-id":3,"schemas":[{schema}]}}"#);
        let metadata = TableMetadata::parse("/t/metadata/v1.metadata.json", json.as_bytes()).unwrap();
        Ok(leaf_columns(&metadata)?.into_iter().map(|column| (column.id, column.name, column.result)).collect())
    }

    #[test]
    fn nested_columns_have_dots_in_their_names_and_stand_in_the_order_of_utf_16() {
        let schema = r#"{"schema-id":3,"type":"struct","fields":[
            {"id":1,"name":"z","required":true,"type":"long"},
            {"id":2,"name":"\uff5e","required":true,"type":"date"},
            {"id":3,"name":"\ud83d\ude00","required":true,"type":"uuid"},
            {"id":4,"name":"Z","required":true,"type":"geometry"},
            {"id":5,"name":"v","required":true,"type":"variant"},
            {"id":6,"name":"point","required":false,"type":{"type":"struct","fields":[
                {"id":7,"name":"y","required":false,"type":"double"},
                {"id":8,"name":"x.a","required":false,"type":"decimal(9, 2)"}]}},
            {"id":9,"name":"list","required":false,"type":{"type":"list","element-id":10,"element":{"type":"struct",
                "fields":[{"id":11,"name":"b","required":false,"type":"boolean"}]}}},
            {"id":12,"name":"map","required":false,"type":{"type":"map","key-id":13,"key":"string","value-id":14,
                "value":{"type":"list","element-id":15,"element":"int"}}}]}"#;
        use ResultType::*;
        let expected = [
            (4, "Z", Unknown),
            (11, "list.element.b", Boolean),
            (13, "map.key", String),
            (15, "map.value.element", Int),
            (8, "point.x.a", Decimal { precision: 9, scale: 2 }),
            (7, "point.y", Double),
            (1, "z", Long),
            (3, "\u{1f600}", Uuid),
            (2, "\u{ff5e}", Date),
        ];
        assert_eq!(columns_of(schema).unwrap(), expected.map(|(id, name, result)| (id, name.to_string(), result)));
    }

    #[test]
    fn metadata_without_a_current_schema_is_refused() {
        let error = columns_of(r#"{"schema-id":2,"type":"struct","fields":[]}"#).unwrap_err().to_string();
        assert!(error.contains("it has no current schema"), "{error}");
        assert_eq!(columns_of(r#"{"schema-id":3,"type":"struct","fields":[]}"#).unwrap(), []);
    }
}
