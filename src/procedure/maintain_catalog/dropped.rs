//! Folders that look like tables and are none of the catalog's: what a `DROP TABLE` without `PURGE` leaves. Only reported:
//! another catalog may well have them.
//!
//! Looked at are the folders right beside the tables of the catalog, and of each only its `metadata` folder.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::rows::{Status, TableRow};
use crate::catalog::{CatalogScope, Look, Survey, TableName, newest_metadata_file};
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::storage::Stores;
use crate::table::location::is_below;
use crate::table::{Location, PathRules, TableIdentity};

/// The unknown tables, and what there is to say of places that could not be looked at.
pub(super) async fn find(scope: &CatalogScope, survey: &Survey, context: &RunContext) -> (Vec<TableRow>, Vec<String>) {
    let looks = match survey.look_at_all(&context.task.runtime_env()).await {
        Ok(looks) => looks,
        Err(error) => {
            let why = format!("dropped tables were not looked for, because not all tables are known: {error}");
            return (vec![], vec![why]);
        }
    };
    let (mut rows, mut notices) = (vec![], vec![]);
    for (folder, table) in folders_of_tables(scope, &looks).into_values() {
        match beside(&folder, &table, &looks, scope, context).await {
            Ok(unknown) => rows.extend(unknown),
            Err(error) => notices.push(format!("dropped tables were not looked for in {folder}: {error}")),
        }
    }
    (rows, notices)
}

/// The folders that hold folders of tables in the scope, each with one of these tables.
fn folders_of_tables(
    scope: &CatalogScope,
    looks: &HashMap<TableName, Look>,
) -> BTreeMap<String, (Location, TableName)> {
    let mut folders = BTreeMap::new();
    let mut inside: Vec<_> = looks.iter().filter(|(name, _)| name.namespace.starts_with(&scope.namespace)).collect();
    inside.sort_by_cached_key(|(name, _)| name.to_string());
    for (name, look) in inside {
        let Look::At(table) = look else { continue };
        let path = table.location.path().trim_end_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/').filter(|(_, own)| !own.is_empty()) {
            let parent = table.location.with_path(if parent.is_empty() { "/" } else { parent });
            folders.entry(parent.to_text()).or_insert_with(|| (parent, name.clone()));
        }
    }
    folders
}

/// The unknown tables right in a folder. It is looked at with the stores of a table that lies in it.
async fn beside(
    folder: &Location,
    table: &TableName,
    looks: &HashMap<TableName, Look>,
    scope: &CatalogScope,
    context: &RunContext,
) -> Result<Vec<TableRow>> {
    let loaded = scope.catalog.load(table, &context.task.runtime_env()).await?;
    let stores = Stores::new(context.for_table(&loaded).task.runtime_env());
    let store = stores.store(folder)?;
    let used = used_names(folder, looks);
    let mut names = store.folder_names(folder).await?;
    names.retain(|name| !used.contains(name));
    names.sort_unstable();
    let mut rows = vec![];
    for name in names {
        let child = folder.child(&name);
        let metadata = child.child("metadata");
        let Some(newest) = newest_metadata_file(store.file_names(&metadata).await?) else { continue };
        let newest = metadata.child(&newest);
        let why = match store.read(&newest).await.map(|content| TableIdentity::read(&content)) {
            // Views have metadata of the same name.
            Ok(Ok(identity)) if identity.is_view() => continue,
            // The folder has two names, by a link.
            Ok(Ok(identity)) if is_known(identity.location(), looks) => continue,
            Ok(Ok(_)) => {
                "no table of the catalog uses this folder: it was dropped without its files, or another catalog has it"
                    .to_string()
            }
            Ok(Err(why)) => {
                format!("no table of the catalog uses this folder, and its newest metadata can't be read: {why}")
            }
            Err(error) => {
                format!("no table of the catalog uses this folder, and its newest metadata can't be read: {error}")
            }
        };
        let row = TableRow::new(child.to_text(), Status::UnknownTable).because(why);
        rows.push(TableRow { metadata_location: Some(newest.to_text()), ..row });
    }
    Ok(rows)
}

/// True for the location of a table of the catalog.
fn is_known(location: &str, looks: &HashMap<TableName, Look>) -> bool {
    let Ok(location) = Location::parse(location) else { return false };
    let rules = PathRules::new(&location);
    looks.values().any(|look| matches!(look, Look::At(table) if rules.same_place(&table.location, &location)))
}

/// The names right in a folder that tables of the catalog use, whatever part of them lies there. A table that can't be loaded
/// may use the folder of its name.
fn used_names(folder: &Location, looks: &HashMap<TableName, Look>) -> HashSet<String> {
    let rules = PathRules::new(folder);
    let prefix = |location: &Location| rules.listed_prefix(rules.prefix(location.parts()));
    let own = prefix(folder);
    let root = rules.path(folder.parts()).trim_end_matches('/').to_string();
    let mut used = HashSet::new();
    let mut note = |location: &Location| {
        let path = rules.path(location.parts());
        if prefix(location) == own && is_below(&path, &root) {
            let below = path[root.len()..].trim_start_matches('/');
            used.extend(below.split('/').next().filter(|name| !name.is_empty()).map(str::to_string));
        }
    };
    let mut unreadable = vec![];
    for (name, look) in looks {
        match look {
            Look::At(table) => {
                note(&table.location);
                table.roots.iter().for_each(&mut note);
                Location::parse(&table.metadata_location).iter().for_each(&mut note);
            }
            Look::Unreadable => unreadable.push(name.name.clone()),
            Look::Gone => {}
        }
    }
    used.extend(unreadable);
    used
}
