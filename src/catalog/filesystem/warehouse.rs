//! A warehouse: a folder whose folders are namespaces and tables, as in Java's `HadoopCatalog`.

use super::METADATA_FOLDER;
use super::versions::MetadataFileName;
use crate::catalog::TableName;
use crate::error::{Error, Result};
use crate::storage::Stores;
use crate::table::Location;

/// How many tables an error names.
const NAMED_IN_ERRORS: usize = 10;

/// The folder of a file-system catalog.
#[derive(Debug, Clone)]
pub(super) struct Warehouse {
    location: String,
}

impl Warehouse {
    pub(super) fn new(location: String) -> Self {
        Self { location }
    }

    /// Where a table lies, or would.
    pub(super) fn location(&self, table: &TableName) -> Result<Location> {
        self.folder(table.namespace.iter().chain([&table.name]))
    }

    fn folder<'a>(&self, parts: impl Iterator<Item = &'a String> + Clone) -> Result<Location> {
        if let Some(bad) =
            parts.clone().find(|part| part.is_empty() || part.contains('/') || matches!(part.as_str(), "." | ".."))
        {
            return Err(Error::TableNotFound {
                table: parts.cloned().collect::<Vec<_>>().join("."),
                why: format!("{bad:?} can't be a part of a name in a file-system warehouse"),
            });
        }
        Ok(parts.fold(Location::parse(&self.location)?, |location, part| location.child(part)))
    }

    /// The folders directly in a namespace that are no tables.
    pub(super) async fn namespaces(&self, parent: &[String], stores: &Stores) -> Result<Vec<Vec<String>>> {
        let folders = self.folders(parent, stores).await?;
        let namespaces = folders.into_iter().filter(|(_, is_table)| !is_table);
        Ok(namespaces.map(|(name, _)| parent.iter().cloned().chain([name]).collect()).collect())
    }

    /// The folders directly in a namespace that are tables.
    pub(super) async fn tables(&self, namespace: &[String], stores: &Stores) -> Result<Vec<TableName>> {
        let folders = self.folders(namespace, stores).await?;
        let tables = folders.into_iter().filter(|(_, is_table)| *is_table);
        Ok(tables.map(|(name, _)| TableName { namespace: namespace.to_vec(), name }).collect())
    }

    /// The folders in a namespace, and whether each is a table: one that has metadata files.
    async fn folders(&self, namespace: &[String], stores: &Stores) -> Result<Vec<(String, bool)>> {
        let folder = self.folder(namespace.iter())?;
        let store = stores.store(&folder)?;
        let mut folders = vec![];
        for name in store.folder_names(&folder).await? {
            let files = store.file_names(&folder.child(&name).child(METADATA_FOLDER)).await?;
            folders.push((name, files.iter().any(|file| MetadataFileName::parse(file).is_some())));
        }
        folders.sort_unstable();
        Ok(folders)
    }

    /// What is missing where a table was looked for: it or its namespace.
    pub(super) async fn not_found(&self, table: &TableName, stores: &Stores) -> Error {
        let looked_in = self.location(table).map_or_else(|_| self.location.clone(), |location| location.to_string());
        let why = match self.folders(&table.namespace, stores).await {
            Err(error) => format!("there is no metadata in {looked_in}, and its namespace can't be listed: {error}"),
            Ok(folders) => {
                let tables: Vec<&str> =
                    folders.iter().filter(|(_, is_table)| *is_table).map(|(name, _)| name.as_str()).collect();
                let namespace = table.namespace.join(".");
                match tables.as_slice() {
                    [] => format!("there is no metadata in {looked_in}, and no table in the namespace {namespace:?}"),
                    tables => {
                        let named = tables.iter().take(NAMED_IN_ERRORS).copied().collect::<Vec<_>>().join(", ");
                        let more = if tables.len() > NAMED_IN_ERRORS { ", …" } else { "" };
                        format!("there is no metadata in {looked_in}; the namespace {namespace:?} has {named}{more}")
                    }
                }
            }
        };
        Error::TableNotFound { table: table.to_string(), why }
    }
}
