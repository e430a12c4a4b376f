//! What must hold before the first orphan is deleted.
//!
//! A folder that shows another table's metadata, or that doesn't show a live file of this table, is not what we think it
//! is. Each guard names what it found.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use futures::{StreamExt, TryStreamExt};

use super::RemoveOrphanFiles;
use super::listing::{Scope, is_metadata_file};
use super::references::References;
use super::search::Search;
use crate::catalog::LoadedTable;
use crate::error::{Error, Result};
use crate::reachability::Liveness;
use crate::storage::Stores;
use crate::table::{Location, PathRules, TableIdentity};

/// How many names an error lists.
const NAMED_IN_ERRORS: usize = 5;
/// How many files a guard looks at at once.
const CONCURRENT_LOOKS: usize = 16;

/// Refuses a folder that another table uses too: a table nested below it, or one that shares the location.
///
/// `listed` are the files of the listing that are named like table metadata but that the table's own metadata doesn't
/// name. The table's own metadata folder is looked at even when the call searches elsewhere: whoever shares the location
/// leaves metadata there.
pub(super) async fn refuse_foreign_tables(
    table: &LoadedTable,
    rules: &PathRules,
    scope: &Scope,
    listed: &[String],
    references: &mut References,
    stores: &Stores,
) -> Result<()> {
    let own = TableIdentity::of(&table.metadata);
    if let Some(other) = table.other_metadata.iter().find(|other| !own.is_same_table(&TableIdentity::of(other), rules))
    {
        return Err(foreign(table, other.metadata_location(), &TableIdentity::of(other)));
    }
    let own_folder = table.metadata.location().child("metadata");
    let mut suspects: Vec<String> = listed.to_vec();
    if !scope.whole_table {
        let names = stores.store(&own_folder)?.file_names(&own_folder).await?;
        let files = names.iter().filter(|name| is_metadata_file(name)).map(|name| own_folder.child(name).to_string());
        suspects.extend(files.filter(|file| references.probe(file) != Liveness::Live));
    }
    let looks: Vec<_> = suspects.iter().map(|file| look_at(table, &own, file, &own_folder, rules, stores)).collect();
    futures::stream::iter(looks).buffer_unordered(CONCURRENT_LOOKS).try_collect().await
}

async fn look_at(
    table: &LoadedTable,
    own: &TableIdentity,
    file: &str,
    own_folder: &Location,
    rules: &PathRules,
    stores: &Stores,
) -> Result<()> {
    let refuse = |found: String| Err(Error::Guard { table: table.name.clone(), found });
    let location = Location::parse(file)?;
    let folder = location.with_path(location.path().rsplit_once('/').map_or("", |(folder, _)| folder));
    if !rules.same_place(&folder, own_folder) {
        return refuse(format!(
            "{file} is table metadata outside of the table's own metadata folder: another table seems to live below this \
             one, and its files would count as orphans. Move it away, or clean one folder at a time with location => '…'"
        ));
    }
    let content = match stores.read(file).await {
        Ok(content) => content,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    };
    match TableIdentity::read(&content) {
        Ok(identity) if own.is_same_table(&identity, rules) => Ok(()),
        Ok(identity) => Err(foreign(table, file, &identity)),
        Err(why) => refuse(format!(
            "{file} is named like table metadata but can't be read as such ({why}), so whose it is is unknown: it may be \
             another table's that shares this location. Look at it, and move or delete it by hand"
        )),
    }
}

fn foreign(table: &LoadedTable, file: &str, identity: &TableIdentity) -> Error {
    Error::Guard {
        table: table.name.clone(),
        found: format!(
            "{file} belongs to another table ({identity}) that shares this location: its files would count as orphans. \
             Give each table a location of its own"
        ),
    }
}

/// Refuses a listing that did not show what must be there. Returns how many live files do not exist.
///
/// A file that exists but was not listed means that metadata and listing name files differently: then every live file
/// looks like an orphan. A file that does not exist at all is damage that was there before; `allow_missing_files` lets the
/// run go on.
pub(super) async fn refuse_unshown_files(
    table: &str,
    options: &RemoveOrphanFiles,
    scope: &Scope,
    references: &mut References,
    search: &Search,
    stores: &Stores,
    task: &Arc<TaskContext>,
) -> Result<u64> {
    let refuse = |found: String| Err(Error::Guard { table: table.into(), found });
    // A folder inside the table may hold orphans only; the whole table can't, and a list of files should not.
    let must_match = scope.whole_table || options.file_list_view.is_some();
    if must_match && !search.orphans.is_empty() && search.matched == 0 && references.live_content() > 0 {
        return refuse(format!(
            "none of the {} listed files is one that the table names, although it has {} live files: listing and metadata \
             seem to name files differently, so orphans can't be told from live files",
            search.metrics.scanned_files_count,
            references.live_content()
        ));
    }
    if options.file_list_view.is_some() {
        return Ok(0);
    }
    let unseen = references.unseen(task).await?;
    let looks: Vec<_> = unseen.iter().map(|file| async move { Ok((file, exists(file, stores).await?)) }).collect();
    let looks: Vec<(&String, bool)> =
        futures::stream::iter(looks).buffered(CONCURRENT_LOOKS).try_collect::<Vec<_>>().await.map_err(|e: Error| e)?;
    let hidden: Vec<&str> = looks.iter().filter(|(_, exists)| *exists).map(|(file, _)| file.as_str()).collect();
    if !hidden.is_empty() {
        return refuse(format!(
            "{} live files exist but the listing of their own folder did not show them: {}. Listing and metadata seem to \
             name files differently, so orphans can't be told from live files",
            hidden.len(),
            some_of(&hidden)
        ));
    }
    let missing: Vec<&str> = looks.iter().map(|(file, _)| file.as_str()).collect();
    if !missing.is_empty() && !options.allow_missing_files {
        return refuse(format!(
            "{} live files of the table do not exist: {}. The table is damaged, or this is not its folder. Restore them, \
             expire the snapshots that need them, or give allow_missing_files => true to clean up all the same",
            missing.len(),
            some_of(&missing)
        ));
    }
    Ok(missing.len() as u64)
}

async fn exists(file: &str, stores: &Stores) -> Result<bool> {
    let location = Location::parse(file)?;
    Ok(stores.store(&location)?.size(&location).await?.is_some())
}

fn some_of(files: &[&str]) -> String {
    let named = files[..files.len().min(NAMED_IN_ERRORS)].join(", ");
    match files.len().saturating_sub(NAMED_IN_ERRORS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
