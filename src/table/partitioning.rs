//! The partition type of a table: the partition fields of all its specs, and the types of their values.
//!
//! As `Partitioning.partitionType` of Iceberg Java: fields are told apart by their ids, since a manifest is written with the
//! fields of its own spec, and a field may have had other names and, in v1, have become void since. A field goes by its
//! newest name. One whose source column the current schema doesn't have any more is left out: nothing tells its type.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value as Json;

use super::TableMetadata;
use crate::error::{Error, Result};

/// The ids of partition fields begin here (table spec, "Partition Evolution").
const FIRST_FIELD_ID: i32 = 1000;

/// Schemas nest no deeper than this: serde_json refuses more.
pub(super) const MAX_DEPTH: usize = 128;

/// The fields of the partitions of a table, over all of its specs, by their ids. Empty: no spec is partitioned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartitionType {
    fields: Vec<PartitionTypeField>,
}

/// A partition field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionTypeField {
    /// Its id, the same in all specs and manifests.
    pub(crate) id: i32,
    /// Its newest name. No two fields have the same.
    pub(crate) name: String,
    /// The type of its values.
    pub(crate) result: ResultType,
}

/// The type of a partition field's values: what its transform makes of its source column (table spec, "Partition
/// Transforms").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultType {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    /// `precision` is 1 to 38, `scale` no more than that.
    Decimal {
        precision: u8,
        scale: i8,
    },
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since midnight.
    Time,
    /// Microseconds or nanoseconds since 1970-01-01, in UTC if `zoned`.
    Timestamp {
        nanos: bool,
        zoned: bool,
    },
    String,
    Uuid,
    /// So many bytes.
    Fixed(usize),
    Binary,
    /// What a transform makes that we don't know, or of a type that we don't know.
    Unknown,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Spec {
    spec_id: i32,
    #[serde(default)]
    fields: Vec<SpecField>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SpecField {
    #[serde(default)]
    source_id: Option<i32>,
    /// v3: of transforms of several columns.
    #[serde(default)]
    source_ids: Option<Vec<i32>>,
    #[serde(default)]
    field_id: Option<i32>,
    name: String,
    transform: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Schema {
    #[serde(default)]
    schema_id: Option<i32>,
    #[serde(default)]
    fields: Vec<Json>,
}

impl PartitionType {
    /// The partition type of a table.
    ///
    /// # Errors
    /// [`Error::InvalidMetadata`] when schemas or specs are not what the spec says, and when two specs give one id to
    /// fields that differ: values of the one would be shown as those of the other.
    pub(crate) fn of(metadata: &TableMetadata) -> Result<Self> {
        Self::read(metadata)
            .map_err(|why| Error::InvalidMetadata { path: metadata.metadata_location().to_string(), why })
    }

    /// The fields by id, ascending.
    pub(crate) fn fields(&self) -> &[PartitionTypeField] {
        &self.fields
    }

    /// True if there are no fields: no spec is partitioned.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    fn read(metadata: &TableMetadata) -> std::result::Result<Self, String> {
        let mut specs = specs(metadata)?;
        if specs.iter().all(|spec| spec.fields.is_empty()) {
            return Ok(Self::default());
        }
        // The newest names are found first.
        specs.sort_by_key(|spec| std::cmp::Reverse(spec.spec_id));
        let sources = source_types(&current_schema(metadata)?);
        let mut known: BTreeMap<i32, SpecField> = BTreeMap::new();
        let mut names = Names::default();
        for field in specs.into_iter().flat_map(|spec| spec.fields) {
            let (id, source) = (field.id()?, field.source()?);
            if !sources.contains_key(&source) {
                continue;
            }
            match known.get_mut(&id) {
                None => {
                    names.add(id, &field.name);
                    known.insert(id, field);
                }
                Some(newer) if newer.source()? != source || !newer.is_compatible(&field) => {
                    return Err(format!(
                        "two specs have different partition fields of id {id}: {} of {} and {} of {}",
                        newer.name, newer.transform, field.name, field.transform
                    ));
                }
                // A void field of v1 was dropped: its older files have values.
                Some(newer) if newer.is_void() => *newer = field,
                Some(_) => {}
            }
        }
        let names = names.unique();
        let field = |(id, field): (i32, SpecField)| {
            let source = sources.get(&field.source()?).copied().unwrap_or(ResultType::Unknown);
            let name = names.get(&id).cloned().unwrap_or(field.name);
            Ok(PartitionTypeField { id, name, result: result_type(&field.transform, source) })
        };
        Ok(Self { fields: known.into_iter().map(field).collect::<std::result::Result<_, String>>()? })
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn new(fields: impl IntoIterator<Item = (i32, &'static str, ResultType)>) -> Self {
        let field = |(id, name, result)| PartitionTypeField { id, name: String::from(name), result };
        Self { fields: fields.into_iter().map(field).collect() }
    }
}

/// A partition field of one spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpecTransform {
    /// Its id.
    pub(crate) field_id: i32,
    /// The name of its transform, with its argument in brackets if it has one.
    pub(crate) transform: String,
}

/// The fields of all specs, in the order of each spec, by the specs' ids.
///
/// # Errors
/// [`Error::InvalidMetadata`] when specs are not what the spec says.
pub(crate) fn spec_transforms(metadata: &TableMetadata) -> Result<HashMap<i32, Vec<SpecTransform>>> {
    let field = |field: SpecField| -> std::result::Result<_, String> {
        Ok(SpecTransform { field_id: field.id()?, transform: field.transform })
    };
    let spec = |spec: Spec| -> std::result::Result<_, String> {
        Ok((spec.spec_id, spec.fields.into_iter().map(field).collect::<std::result::Result<Vec<_>, _>>()?))
    };
    specs(metadata)
        .and_then(|specs| specs.into_iter().map(spec).collect())
        .map_err(|why| Error::InvalidMetadata { path: metadata.metadata_location().to_string(), why })
}

/// The names of fields, in the order in which they take precedence.
#[derive(Default)]
struct Names(Vec<(i32, String)>);

impl Names {
    fn add(&mut self, id: i32, name: &str) {
        self.0.push((id, name.to_string()));
    }

    /// By field id, each only once. In v2 a field that was dropped may have gone by the name of another, newer one: then it
    /// gets its id behind its name, as fields that are dropped in v1 do.
    fn unique(self) -> HashMap<i32, String> {
        let mut taken: HashSet<String> = HashSet::new();
        let own: HashSet<String> = self.0.iter().map(|(_, name)| name.clone()).collect();
        let mut unique = HashMap::with_capacity(self.0.len());
        for (id, name) in self.0 {
            let mut shown = name;
            if !taken.insert(shown.clone()) {
                shown = format!("{shown}_{id}");
                while own.contains(&shown) || !taken.insert(shown.clone()) {
                    shown.push('_');
                }
            }
            unique.insert(id, shown);
        }
        unique
    }
}

impl SpecField {
    fn id(&self) -> std::result::Result<i32, String> {
        self.field_id.ok_or_else(|| format!("partition field {} has no field-id", self.name))
    }

    fn source(&self) -> std::result::Result<i32, String> {
        let first = || self.source_ids.as_ref().and_then(|ids| ids.first().copied());
        self.source_id.or_else(first).ok_or_else(|| format!("partition field {} has no source-id", self.name))
    }

    fn is_void(&self) -> bool {
        self.transform == "void"
    }

    fn is_compatible(&self, other: &Self) -> bool {
        self.transform == other.transform || self.is_void() || other.is_void()
    }
}

/// All specs. v1 metadata may have only the one in `partition-spec`.
fn specs(metadata: &TableMetadata) -> std::result::Result<Vec<Spec>, String> {
    let document = metadata.document();
    let read = |name: &str, error: serde_json::Error| format!("{name}: {error}");
    let mut specs: Vec<Spec> = match document.get("partition-specs").map_err(|e| read("partition-specs", e))? {
        Some(specs) => specs,
        None => {
            let fields: Option<Vec<SpecField>> =
                document.get("partition-spec").map_err(|e| read("partition-spec", e))?;
            vec![Spec { spec_id: 0, fields: fields.unwrap_or_default() }]
        }
    };
    for spec in &mut specs {
        // The first writers of v1 left the ids out: they count from the first one (table spec, "Partition Evolution").
        if spec.fields.iter().all(|field| field.field_id.is_none()) {
            let ids = FIRST_FIELD_ID..;
            spec.fields.iter_mut().zip(ids).for_each(|(field, id)| field.field_id = Some(id));
        }
    }
    Ok(specs)
}

/// The ids of the specs that don't partition: without fields, or whose fields were all dropped, as v1 does it. Equality deletes
/// that are written with such a spec are for all partitions (table spec, "Scan Planning").
///
/// # Errors
/// [`Error::InvalidMetadata`] when specs are not what the spec says.
pub(crate) fn unpartitioned_spec_ids(metadata: &TableMetadata) -> Result<HashSet<i32>> {
    let all = specs(metadata)
        .map_err(|why| Error::InvalidMetadata { path: metadata.metadata_location().to_string(), why })?;
    let without = all.into_iter().filter(|spec| spec.fields.iter().all(SpecField::is_void));
    Ok(without.map(|spec| spec.spec_id).collect())
}

/// The current schema's fields. v1 metadata may have only the one in `schema`.
pub(super) fn current_schema(metadata: &TableMetadata) -> std::result::Result<Vec<Json>, String> {
    let document = metadata.document();
    let schemas: Option<Vec<Schema>> = document.get("schemas").map_err(|e| format!("schemas: {e}"))?;
    let current = metadata.current_schema_id();
    if let Some(schema) = schemas.into_iter().flatten().find(|schema| schema.schema_id == current && current.is_some())
    {
        return Ok(schema.fields);
    }
    let schema: Option<Schema> = document.get("schema").map_err(|e| format!("schema: {e}"))?;
    schema.map(|schema| schema.fields).ok_or_else(|| "it has no current schema".into())
}

/// The type of each column by its id, those in structs, lists and maps included.
fn source_types(fields: &[Json]) -> HashMap<i32, ResultType> {
    let mut types = HashMap::new();
    fields.iter().for_each(|field| add_column(field.get("id"), field.get("type"), 0, &mut types));
    types
}

fn add_column(id: Option<&Json>, column: Option<&Json>, depth: usize, types: &mut HashMap<i32, ResultType>) {
    let Some(column) = column.filter(|_| depth < MAX_DEPTH) else { return };
    if let Some(id) = id.and_then(Json::as_i64).and_then(|id| i32::try_from(id).ok()) {
        types.insert(id, column.as_str().map_or(ResultType::Unknown, primitive));
    }
    for field in column.get("fields").and_then(Json::as_array).into_iter().flatten() {
        add_column(field.get("id"), field.get("type"), depth + 1, types);
    }
    for nested in ["element", "key", "value"] {
        add_column(column.get(format!("{nested}-id")), column.get(nested), depth + 1, types);
    }
}

/// What a transform makes of a column of this type.
fn result_type(transform: &str, source: ResultType) -> ResultType {
    // With its argument in brackets, if it has one.
    match transform.split('[').next().unwrap_or_default() {
        "identity" | "truncate" | "void" => source,
        "bucket" | "year" | "month" | "hour" => ResultType::Int,
        // The spec says int; Java shows it as the date that it is.
        "day" => ResultType::Date,
        _ => ResultType::Unknown,
    }
}

/// A primitive type by its name in a schema (table spec, "Primitive Types").
pub(super) fn primitive(name: &str) -> ResultType {
    match name {
        "boolean" => ResultType::Boolean,
        "int" => ResultType::Int,
        "long" => ResultType::Long,
        "float" => ResultType::Float,
        "double" => ResultType::Double,
        "date" => ResultType::Date,
        "time" => ResultType::Time,
        "timestamp" => ResultType::Timestamp { nanos: false, zoned: false },
        "timestamptz" => ResultType::Timestamp { nanos: false, zoned: true },
        "timestamp_ns" => ResultType::Timestamp { nanos: true, zoned: false },
        "timestamptz_ns" => ResultType::Timestamp { nanos: true, zoned: true },
        "string" => ResultType::String,
        "uuid" => ResultType::Uuid,
        "binary" => ResultType::Binary,
        _ => decimal(name).or_else(|| fixed(name)).unwrap_or(ResultType::Unknown),
    }
}

/// `decimal(9, 2)`
fn decimal(name: &str) -> Option<ResultType> {
    let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, scale): (u8, u8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    let is_valid = matches!(precision, 1..=38) && scale <= precision;
    is_valid.then_some(ResultType::Decimal { precision, scale: scale as i8 })
}

/// `fixed[16]`
fn fixed(name: &str) -> Option<ResultType> {
    name.strip_prefix("fixed[")?.strip_suffix(']')?.trim().parse().ok().map(ResultType::Fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"schema-id":3,"type":"struct","fields":[
        {"id":1,"name":"l","required":true,"type":"long"},
        {"id":2,"name":"s","required":false,"type":"string"},
        {"id":3,"name":"ts","required":false,"type":"timestamptz"},
        {"id":4,"name":"d","required":false,"type":"decimal(9, 2)"},
        {"id":5,"name":"f","required":false,"type":"fixed[7]"},
        {"id":6,"name":"nested","required":false,"type":{"type":"struct","fields":[
            {"id":7,"name":"u","required":false,"type":"uuid"}]}},
        {"id":8,"name":"list","required":false,"type":{"type":"list","element-id":9,"element":"date"}},
        {"id":10,"name":"n","required":false,"type":"timestamp_ns"}]}"#;

    fn partition_type(specs: &str) -> Result<PartitionType> {
        let json = format!(
            r#"{{"format-version":2,"location":"/t","current-schema-id":3,"schemas":[
                {{"schema-id":2,"type":"struct","fields":[{{"id":99,"name":"gone","required":true,"type":"int"}}]}},
                {SCHEMA}],"partition-specs":{specs}}}"#
        );
        PartitionType::of(&TableMetadata::parse("/t/metadata/v1.metadata.json", json.as_bytes()).unwrap())
    }

    fn field(id: i32, source: i32, name: &str, transform: &str) -> String {
        format!(r#"{{"field-id":{id},"source-id":{source},"name":"{name}","transform":"{transform}"}}"#)
    }

    fn specs(specs: &[(i32, &[String])]) -> String {
        let spec = |(id, fields): &(i32, &[String])| format!(r#"{{"spec-id":{id},"fields":[{}]}}"#, fields.join(","));
        format!("[{}]", specs.iter().map(spec).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn each_transform_has_its_type() {
        let fields = [
            field(1000, 1, "identity", "identity"),
            field(1001, 2, "truncate", "truncate[4]"),
            field(1002, 2, "bucket", "bucket[16]"),
            field(1003, 3, "year", "year"),
            field(1004, 3, "month", "month"),
            field(1005, 3, "day", "day"),
            field(1006, 3, "hour", "hour"),
            field(1007, 4, "decimal", "truncate[10]"),
            field(1008, 5, "fixed", "identity"),
            field(1009, 7, "in_struct", "identity"),
            field(1010, 9, "in_list", "identity"),
            field(1011, 2, "void", "void"),
            field(1012, 2, "later", "zorder"),
            field(1013, 3, "zoned", "identity"),
            field(1014, 10, "nanos", "identity"),
            field(1015, 6, "of_struct", "identity"),
            r#"{"field-id":1016,"source-ids":[1,2],"name":"two","transform":"bucket[4]"}"#.into(),
        ];
        let results: Vec<_> = partition_type(&specs(&[(0, &fields)])).unwrap().fields().to_vec();
        let results: Vec<_> = results.into_iter().map(|field| field.result).collect();
        use ResultType::*;
        assert_eq!(
            results,
            [
                Long,
                String,
                Int,
                Int,
                Int,
                Date,
                Int,
                Decimal { precision: 9, scale: 2 },
                Fixed(7),
                Uuid,
                Date,
                String,
                Unknown,
                Timestamp { nanos: false, zoned: true },
                Timestamp { nanos: true, zoned: false },
                Unknown,
                Int
            ]
        );
    }

    #[test]
    fn fields_of_all_specs_are_united_by_id_under_their_newest_names() {
        let (old, new) = (
            [field(1001, 2, "s_old", "identity"), field(1000, 1, "l", "identity")],
            [field(1002, 3, "ts_day", "day"), field(1001, 2, "s_new", "identity")],
        );
        let expected = PartitionType::new([
            (1000, "l", ResultType::Long),
            (1001, "s_new", ResultType::String),
            (1002, "ts_day", ResultType::Date),
        ]);
        assert_eq!(partition_type(&specs(&[(0, &old), (4, &new)])).unwrap(), expected);
        assert_eq!(partition_type(&specs(&[(4, &new), (0, &old)])).unwrap(), expected, "the order doesn't count");
        assert!(partition_type(&specs(&[(0, &[])])).unwrap().is_empty());
        assert!(partition_type("[]").unwrap().is_empty());
    }

    /// In v1 a dropped field stays in the spec, as void.
    #[test]
    fn a_void_field_has_the_type_of_what_it_was() {
        let (old, new) = ([field(1000, 3, "day", "day")], [field(1000, 3, "day_1000", "void")]);
        let expected = PartitionType::new([(1000, "day_1000", ResultType::Date)]);
        assert_eq!(partition_type(&specs(&[(0, &old), (1, &new)])).unwrap(), expected);
    }

    #[test]
    fn a_name_belongs_to_the_newest_field() {
        let (old, new) = ([field(1000, 2, "p", "bucket[4]")], [field(1001, 2, "p", "identity")]);
        let expected = PartitionType::new([(1000, "p_1000", ResultType::Int), (1001, "p", ResultType::String)]);
        assert_eq!(partition_type(&specs(&[(0, &old), (1, &new)])).unwrap(), expected);
        let new = [field(1001, 2, "p", "identity"), field(1002, 2, "p_1000", "identity")];
        let names: Vec<_> = partition_type(&specs(&[(0, &old), (1, &new)])).unwrap().fields().to_vec();
        assert_eq!(names.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(), ["p_1000_", "p", "p_1000"]);
    }

    #[test]
    fn a_field_whose_source_was_dropped_is_left_out() {
        let fields = [field(1000, 99, "gone", "identity"), field(1001, 1, "l", "identity")];
        let expected = PartitionType::new([(1001, "l", ResultType::Long)]);
        assert_eq!(partition_type(&specs(&[(0, &fields)])).unwrap(), expected);
    }

    #[test]
    fn two_meanings_of_one_id_are_refused() {
        for other in [field(1000, 2, "p", "identity"), field(1000, 1, "p", "bucket[4]")] {
            let specs = specs(&[(0, &[field(1000, 1, "p", "identity")]), (1, &[other])]);
            let error = partition_type(&specs).unwrap_err().to_string();
            assert!(error.contains("two specs have different partition fields of id 1000"), "{error}");
        }
        let error = partition_type(r#"[{"spec-id":0,"fields":[{"name":"p","transform":"identity","field-id":1000}]}]"#);
        assert!(error.unwrap_err().to_string().contains("partition field p has no source-id"));
    }

    #[test]
    fn metadata_of_the_first_version_has_one_schema_and_one_spec() {
        let json = format!(
            r#"{{"format-version":1,"location":"/t","schema":{SCHEMA},
                "partition-spec":[{{"source-id":3,"name":"ts_day","transform":"day"}},
                    {{"source-id":1,"name":"l","transform":"identity"}}]}}"#
        );
        let metadata = TableMetadata::parse("/t/metadata/v1.metadata.json", json.as_bytes()).unwrap();
        let expected = PartitionType::new([(1000, "ts_day", ResultType::Date), (1001, "l", ResultType::Long)]);
        assert_eq!(PartitionType::of(&metadata).unwrap(), expected);
    }
}
