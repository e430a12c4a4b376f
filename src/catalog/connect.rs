//! Catalogs from their properties, under the names that Iceberg and PyIceberg give them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Catalog, FileSystemCatalog};
use crate::error::{Error, Result};
use crate::table::location;

/// Makes a catalog from its properties. Nothing is asked of a server before the catalog is used.
///
/// The keys are Iceberg's and PyIceberg's own: `uri`, `warehouse`, `credential`, `token`, `s3.endpoint`, … `type` says which
/// catalog it is: `rest`, `sql`, `glue`, `s3tables`, or `hadoop` for a warehouse folder. Without it Java's `catalog-impl`
/// tells, or the `uri`, or a `warehouse` that is a location.
///
/// # Errors
/// [`Error::Catalog`] when the type is unknown, not supported or not built in, or when a property is missing or wrong.
pub fn connect(name: &str, properties: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    let wrong = |why: String| Error::Catalog { catalog: name.into(), why };
    match Kind::of(properties).map_err(wrong)? {
        Kind::Rest => rest(name, properties),
        Kind::S3Tables => rest(name, &s3_tables(properties).map_err(wrong)?),
        Kind::Sql => sql(name, properties),
        Kind::Glue => glue(name, properties),
        Kind::Warehouse => {
            let warehouse = properties.get("warehouse").map(|warehouse| warehouse.trim_end_matches('/'));
            let warehouse = warehouse.ok_or_else(|| wrong("it needs a warehouse, the folder of its tables".into()))?;
            Ok(Arc::new(FileSystemCatalog::with_warehouse(warehouse).with_properties(properties)))
        }
    }
}

/// Splits `name=specification`, as the command line takes it, into the name and the catalog's properties.
///
/// A specification is a kind, and properties after commas: `rest+http://host:8181,warehouse=w`, `sql+sqlite:///file.db`,
/// `sql+postgresql://host/db`, `glue`, `s3tables,warehouse=arn:…`, or the location of a warehouse such as
/// `file:///warehouse` or `s3://bucket/warehouse`. It may be nothing but properties: `type=rest,uri=http://host:8181`. A comma
/// belongs to a value unless `key=` comes after it.
///
/// # Errors
/// [`Error::Catalog`] when the text is nothing of that.
pub fn parse_specification(text: &str) -> Result<(String, BTreeMap<String, String>)> {
    // What stands after the name may hold secrets, and stays out of messages.
    let (name, specification) =
        text.split_once('=').map(|(name, rest)| (name.trim(), rest.trim())).unwrap_or((text, ""));
    let wrong = |why: &str| Error::Catalog { catalog: name.into(), why: format!("{why}; {HOW_TO_WRITE}") };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    if !is_name {
        return Err(Error::Catalog {
            catalog: name.split(['/', ',', ':']).next().unwrap_or_default().into(),
            why: format!("its name must be letters, digits, '_' and '-'; {HOW_TO_WRITE}"),
        });
    }
    let mut items = split_items(specification).into_iter();
    let kind = items.next().filter(|kind| !kind.is_empty()).ok_or_else(|| wrong("it has no specification"))?;
    // Only an address or a location may hold a comma that no property follows.
    if kind.contains(',') && property(kind).is_none() && !kind.contains([':', '/']) {
        return Err(wrong("after its kind come key=value pairs"));
    }
    let mut properties = BTreeMap::new();
    match property(kind) {
        Some((key, value)) => _ = properties.insert(key.to_string(), value.to_string()),
        None => properties.extend(kind_properties(kind).ok_or_else(|| wrong("its kind is unknown"))?),
    }
    for item in items {
        let (key, value) = property(item).ok_or_else(|| wrong("after its kind come key=value pairs"))?;
        if properties.insert(key.to_string(), value.to_string()).is_some() {
            return Err(wrong(&format!("{key} is given twice")));
        }
    }
    Ok((name.to_string(), properties))
}

const HOW_TO_WRITE: &str = "write name=rest+http://host:port,key=value,… or name=sql+sqlite:///file.db, \
                            name=sql+postgresql://host/db, name=glue, name=s3tables,warehouse=arn:…, name=file:///warehouse";

/// Splits at the commas that a property follows.
fn split_items(specification: &str) -> Vec<&str> {
    let (mut items, mut begin) = (vec![], 0);
    for (at, _) in specification.match_indices(',') {
        if property(&specification[at + 1..]).is_some() {
            items.push(specification[begin..at].trim());
            begin = at + 1;
        }
    }
    items.push(specification[begin..].trim());
    items
}

/// `key=value`, if the text begins with a key.
fn property(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once('=')?;
    let key = key.trim();
    let is_key = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    is_key.then_some((key, value.trim()))
}

/// What the first item of a specification says.
fn kind_properties(kind: &str) -> Option<BTreeMap<String, String>> {
    let entries = match kind.split_once('+') {
        Some((kind @ ("rest" | "sql" | "glue" | "hive"), uri)) => vec![("type", kind), ("uri", uri)],
        _ if kind.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) => vec![("type", kind)],
        _ if !is_location(kind) && !kind.contains(':') => return None,
        _ => match kind.split_once(':').map(|(scheme, _)| scheme) {
            Some("http" | "https" | "thrift" | "sqlite" | "postgresql" | "postgres" | "jdbc") => vec![("uri", kind)],
            _ => vec![("type", "hadoop"), ("warehouse", kind)],
        },
    };
    Some(entries.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
}

/// The catalogs there are.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Rest,
    S3Tables,
    Sql,
    Glue,
    Warehouse,
}

impl Kind {
    fn of(properties: &BTreeMap<String, String>) -> std::result::Result<Self, String> {
        let property = |key: &str| properties.get(key).map(String::as_str).filter(|value| !value.is_empty());
        if let Some(name) = property("type") {
            return Self::named(&name.to_ascii_lowercase()).unwrap_or_else(|| Err(unknown("type", name)));
        }
        if let Some(class) = property("catalog-impl") {
            let name = class.rsplit('.').next().unwrap_or_default().trim_end_matches("Catalog").to_ascii_lowercase();
            return Self::named(&name).unwrap_or_else(|| Err(unknown("catalog-impl", class)));
        }
        let scheme = property("uri").and_then(|uri| uri.split_once(':')).map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => Ok(Self::Rest),
            Some("thrift") => Err(NO_HIVE.into()),
            Some("jdbc" | "sqlite" | "postgres") => Ok(Self::Sql),
            Some(scheme) if scheme.starts_with("postgresql") || scheme.starts_with("sqlite+") => Ok(Self::Sql),
            Some(_) => Err("its uri doesn't tell what it is: give type=rest or type=sql".into()),
            None if property("warehouse").is_some_and(is_location) => Ok(Self::Warehouse),
            None => Err("it has neither a type nor a uri: give type=rest, sql, glue, s3tables or hadoop".into()),
        }
    }

    fn named(name: &str) -> Option<std::result::Result<Self, String>> {
        Some(match name {
            "rest" => Ok(Self::Rest),
            "s3tables" => Ok(Self::S3Tables),
            "sql" | "jdbc" => Ok(Self::Sql),
            "glue" => Ok(Self::Glue),
            "hadoop" | "file" | "filesystem" => Ok(Self::Warehouse),
            "hive" | "hms" => Err(NO_HIVE.into()),
            _ => return None,
        })
    }
}

const NO_HIVE: &str =
    "Hive Metastore is not supported yet. Where it has an Iceberg REST endpoint, register that with type=rest";

fn unknown(key: &str, value: &str) -> String {
    // Whoever writes other signs between properties than commas has all of them in one value, secrets too.
    let is_name = value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$'));
    let value = if is_name { value } else { "not a name" };
    format!("its {key} is {value}; known are rest, sql, glue, s3tables and hadoop (a warehouse folder)")
}

fn is_location(text: &str) -> bool {
    text.starts_with('/') || !location::split(text).scheme.is_empty()
}

/// Amazon S3 Tables speaks the REST protocol: the endpoint of the region that the bucket's ARN names, signed requests.
fn s3_tables(properties: &BTreeMap<String, String>) -> std::result::Result<BTreeMap<String, String>, String> {
    let warehouse = properties.get("warehouse").map(String::as_str).unwrap_or_default();
    let parts: Vec<&str> = warehouse.splitn(6, ':').collect();
    let ["arn", partition, "s3tables", region, _, _] = parts.as_slice() else {
        return Err(
            "it needs warehouse=arn:aws:s3tables:<region>:<account>:bucket/<name>, the ARN of a table bucket".into()
        );
    };
    let domain = if *partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" };
    let mut properties = properties.clone();
    for (key, value) in [
        ("uri", format!("https://s3tables.{region}.{domain}/iceberg")),
        ("rest.sigv4-enabled", "true".into()),
        ("rest.signing-name", "s3tables".into()),
        ("rest.signing-region", region.to_string()),
        ("client.region", region.to_string()),
    ] {
        properties.entry(key.into()).or_insert(value);
    }
    Ok(properties)
}

#[cfg(feature = "rest")]
fn rest(name: &str, properties: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Ok(Arc::new(super::rest::RestCatalog::new(name, properties)?))
}

#[cfg(not(feature = "rest"))]
fn rest(name: &str, _: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Err(not_built_in(name, "REST", "rest"))
}

#[cfg(feature = "sql")]
fn sql(name: &str, properties: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Ok(Arc::new(super::sql::SqlCatalog::new(name, properties)?))
}

#[cfg(not(feature = "sql"))]
fn sql(name: &str, _: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Err(not_built_in(name, "SQL", "sql"))
}

#[cfg(feature = "glue")]
fn glue(name: &str, properties: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Ok(Arc::new(super::glue::GlueCatalog::new(name, properties)?))
}

#[cfg(not(feature = "glue"))]
fn glue(name: &str, _: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Err(not_built_in(name, "Glue", "glue"))
}

#[cfg(not(all(feature = "rest", feature = "sql", feature = "glue")))]
fn not_built_in(name: &str, kind: &str, feature: &str) -> Error {
    Error::Catalog {
        catalog: name.into(),
        why: format!("{kind} catalogs are not built in: build iceberg-maintenance with the feature {feature}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, String)> {
        parse_specification(text).unwrap().1.into_iter().collect()
    }

    fn properties(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
        properties(entries).into_iter().collect()
    }

    #[test]
    fn a_specification_is_a_kind_and_properties() {
        for (text, expected) in [
            ("l=rest+http://h:1", &[("type", "rest"), ("uri", "http://h:1")][..]),
            (
                "l=rest+https://h/c?a=1,b,warehouse=w,header.X-Y=a, b,s3.endpoint=http://m:9000",
                &[
                    ("type", "rest"),
                    ("uri", "https://h/c?a=1,b"),
                    ("warehouse", "w"),
                    ("header.X-Y", "a, b"),
                    ("s3.endpoint", "http://m:9000"),
                ],
            ),
            ("l=sql+sqlite:///f.db", &[("type", "sql"), ("uri", "sqlite:///f.db")]),
            ("l=sql+postgresql://u:p=1@h/d", &[("type", "sql"), ("uri", "postgresql://u:p=1@h/d")]),
            ("l=glue,glue.region=eu-west-1", &[("type", "glue"), ("glue.region", "eu-west-1")]),
            ("l=file:///w", &[("type", "hadoop"), ("warehouse", "file:///w")]),
            ("l=/w,x=1", &[("type", "hadoop"), ("warehouse", "/w"), ("x", "1")]),
            ("l=type=rest,uri=http://h", &[("type", "rest"), ("uri", "http://h")]),
            ("l=http://h", &[("uri", "http://h")]),
        ] {
            assert_eq!(parsed(text), pairs(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_specification_is_explained_without_its_secrets() {
        for text in
            ["rest+http://u:secret@h", "l=", "l", "a b=glue", "=glue", "l=glue,secret", "l=rest+http://h,a=1,a=secret"]
        {
            let error = parse_specification(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("name=rest+http://host:port") && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn the_kind_is_told_by_type_class_uri_or_warehouse() {
        let kind = |key: &str, value: &str| Kind::of(&properties(&[(key, value)]));
        for (key, value, expected) in [
            ("type", "REST", Kind::Rest),
            ("type", "jdbc", Kind::Sql),
            ("catalog-impl", "org.apache.iceberg.aws.glue.GlueCatalog", Kind::Glue),
            ("catalog-impl", "org.apache.iceberg.rest.RESTCatalog", Kind::Rest),
            ("uri", "http://h", Kind::Rest),
            ("uri", "postgresql+psycopg2://h/d", Kind::Sql),
            ("uri", "jdbc:sqlite:f.db", Kind::Sql),
            ("warehouse", "s3://b/w", Kind::Warehouse),
        ] {
            assert_eq!(kind(key, value), Ok(expected), "{key}={value}");
        }
        for (key, value, says) in [
            ("type", "hive", "Hive Metastore is not supported"),
            ("uri", "thrift://h:9083", "Hive Metastore is not supported"),
            ("type", "nessie", "known are rest"),
            ("warehouse", "w", "neither a type nor a uri"),
            ("type", "rest;token=secret", "its type is not a name"),
        ] {
            assert!(kind(key, value).unwrap_err().contains(says), "{key}={value}");
        }
    }

    #[test]
    fn s3_tables_are_reached_through_the_endpoint_of_their_region() {
        let bucket = properties(&[("warehouse", "arn:aws:s3tables:eu-west-1:123:bucket/b")]);
        let made = s3_tables(&bucket).unwrap();
        assert_eq!(made["uri"], "https://s3tables.eu-west-1.amazonaws.com/iceberg");
        assert_eq!(
            (made["rest.signing-name"].as_str(), made["rest.signing-region"].as_str()),
            ("s3tables", "eu-west-1")
        );
        assert!(s3_tables(&properties(&[("warehouse", "b")])).unwrap_err().contains("ARN"));
        let local = properties(&[("warehouse", "arn:aws:s3tables:r:1:bucket/b"), ("uri", "http://127.0.0.1:1")]);
        assert_eq!(s3_tables(&local).unwrap()["uri"], "http://127.0.0.1:1");
    }
}
