//! What must hold before the first orphan is deleted.
//!
//! A folder that shows another table's metadata, or that doesn't show a live file of this table, is not what we think it
//! is. Each guard names what it found.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::execution::TaskContext;
use futures::{StreamExt, TryStreamExt};

use super::RemoveOrphanFiles;
use super::listing::{Scope, is_metadata_file};
use super::references::{References, foreign_table};
use super::search::Search;
use crate::catalog::LoadedTable;
use crate::error::{Error, Result};
use crate::reachability::{Liveness, NamedBy};
use crate::report::{FileStatus, SkipReason};
use crate::storage::{FileId, Store, Stores};
use crate::table::location::split;
use crate::table::{Location, PathRules, TableIdentity, TableMetadata};

/// How many names an error lists.
const NAMED_IN_ERRORS: usize = 5;
/// How many unlisted files are looked at where the first that is missing stops the call.
const LOOKED_AT_BEFORE_REFUSING: usize = 1000;
/// How many files a guard looks at at once.
const CONCURRENT_LOOKS: usize = 16;

/// Refuses a folder that another table uses too: a table nested below it or around it, or one that shares the location.
///
/// Metadata of this very table that the catalog's current metadata does not name, though it is not older, is returned: a commit
/// that failed left it, or another catalog names it, and this one's pointer is stale.
///
/// What the listing showed of other metadata is looked at. A listing of the whole table shows everything; otherwise the
/// table's own metadata folders are looked at, too, because whoever shares the location leaves metadata there, and the
/// metadata folders beside what was found.
pub(super) async fn refuse_foreign_tables(
    table: &LoadedTable,
    rules: &PathRules,
    scope: &Scope,
    shows_everything: bool,
    search: &Search,
    references: &mut References,
    stores: &Stores,
) -> Result<Vec<String>> {
    let own_folders = metadata_folders(&table.metadata);
    let is_own = |folder: &Location| own_folders.iter().any(|own| rules.same_place(folder, own));
    let mut suspects = search.metadata_files.clone();
    if !shows_everything {
        for folder in &own_folders {
            let files = metadata_files(folder, stores).await?;
            for file in files {
                if references.live.probe(&file)? != Liveness::Live(NamedBy::Metadata) {
                    suspects.push(file);
                }
            }
        }
        let mut folders: BTreeMap<String, Location> = BTreeMap::new();
        let orphans = search.orphans.as_slice().iter().map(|file| parent(split(&file.path).path).to_string());
        for folder in std::iter::once(scope.folder.path().to_string()).chain(orphans) {
            let known = folders.contains_key(&folder);
            let ancestors = if known { vec![] } else { scope.ancestors(&table.metadata, &folder) };
            folders.extend(ancestors.into_iter().map(|folder| (folder.path().to_string(), folder)));
        }
        for folder in folders.values().map(|folder| folder.child("metadata")).filter(|folder| !is_own(folder)) {
            suspects.extend(metadata_files(&folder, stores).await?);
        }
    }
    for link in &search.metadata_links {
        if !is_own(&Location::parse(link)?) {
            return Err(nested_table(table, link));
        }
    }
    let looks: Vec<_> = suspects.iter().map(|file| look_at(table, file, &own_folders, rules, stores)).collect();
    let looks: Vec<Option<String>> =
        futures::stream::iter(looks).buffer_unordered(CONCURRENT_LOOKS).try_collect().await?;
    Ok(looks.into_iter().flatten().collect())
}

async fn metadata_files(folder: &Location, stores: &Stores) -> Result<Vec<String>> {
    let names = stores.store(folder)?.file_names(folder).await?;
    Ok(names.iter().filter(|name| is_metadata_file(name)).map(|name| folder.child(name).to_text()).collect())
}

fn nested_table(table: &LoadedTable, file: &str) -> Error {
    Error::Guard {
        table: table.name.clone(),
        found: format!(
            "{file} is table metadata outside of the table's own metadata folder: another table seems to live there, and its \
             files would count as orphans. Move it away first"
        ),
    }
}

/// Where the table's own metadata files may be.
fn metadata_folders(metadata: &TableMetadata) -> Vec<Location> {
    let mut folders = vec![metadata.location().child("metadata")];
    folders.extend(metadata.properties().get("write.metadata.path").and_then(|path| Location::parse(path).ok()));
    folders.extend(Location::parse(metadata.metadata_location()).ok().map(|file| file.with_path(parent(file.path()))));
    folders
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Looks at metadata that the table's own doesn't name. Gives it back if it is the table's and not older than the newest.
async fn look_at(
    table: &LoadedTable,
    file: &str,
    own_folders: &[Location],
    rules: &PathRules,
    stores: &Stores,
) -> Result<Option<String>> {
    let refuse = |found: String| Err(Error::Guard { table: table.name.clone(), found });
    let location = Location::parse(file)?;
    let folder = location.with_path(parent(location.path()));
    if !own_folders.iter().any(|own| rules.same_place(&folder, own)) {
        return Err(nested_table(table, file));
    }
    let content = match stores.read(file).await {
        Ok(content) => content,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    match TableIdentity::read(&content) {
        Ok(identity) if TableIdentity::of(&table.metadata).is_same_table(&identity, rules) => {
            let is_older = identity.last_updated_ms() < table.metadata.last_updated_ms();
            Ok((!is_older).then(|| file.to_string()))
        }
        Ok(identity) => Err(foreign_table(table, file, &identity)),
        Err(why) => refuse(format!(
            "{file} is named like table metadata but can't be read as such ({why}), so whose it is is unknown: it may be \
             another table's that shares this location. Look at it, and move or delete it by hand"
        )),
    }
}

/// Refuses a listing that did not show what must be there. Returns how many live files do not exist.
///
/// A file that exists but was not listed means that metadata and listing name files differently: then every live file
/// looks like an orphan. A file that does not exist at all is damage that was there before; `allow_missing_files` lets the
/// run go on. `has_changed`: the table was committed to while the folder was listed.
pub(super) async fn refuse_unshown_files(
    table: &str,
    has_changed: bool,
    options: &RemoveOrphanFiles,
    references: &mut References,
    search: &Search,
    stores: &Stores,
    task: &Arc<TaskContext>,
) -> Result<u64> {
    let refuse = |found: String| Err(Error::Guard { table: table.into(), found });
    refuse_no_match(table, options, references, search)?;
    if options.file_list_view.is_some() {
        return Ok(0);
    }
    // One of them is enough to refuse; a message that tells of a thousand tells enough.
    let most = if options.allow_missing_files { usize::MAX } else { LOOKED_AT_BEFORE_REFUSING };
    let unseen = references.unseen(task, most).await?;
    let at_least = if unseen.len() == most { "at least " } else { "" };
    let looks: Vec<_> = unseen.iter().map(|file| async move { Ok((file, exists(file, stores).await?)) }).collect();
    let looks: Result<Vec<(&String, bool)>> =
        futures::stream::iter(looks).buffered(CONCURRENT_LOOKS).try_collect().await;
    let (hidden, missing): (Vec<_>, Vec<_>) = looks?.into_iter().partition(|(_, exists)| *exists);
    if !hidden.is_empty() {
        return refuse(format!(
            "{at_least}{} live files exist but the listing of their own folder did not show them: {}. Listing and metadata seem to \
             name files differently, so orphans can't be told from live files",
            hidden.len(),
            some_of(&hidden)
        ));
    }
    if !missing.is_empty() && has_changed {
        let why = "another writer committed and removed files while the folder was listed".to_string();
        return Err(Error::Conflict { table: table.into(), attempts: 1, why });
    }
    if !missing.is_empty() && !options.allow_missing_files {
        return refuse(format!(
            "{at_least}{} live files of the table do not exist: {}. The table is damaged, or this is not its folder. Restore them, \
             expire the snapshots that need them, or give allow_missing_files => true to clean up all the same",
            missing.len(),
            some_of(&missing)
        ));
    }
    Ok(missing.len() as u64)
}

/// Refuses orphans where no live data file was among the listed ones although some should have been.
///
/// A folder inside the table may hold nothing but orphans. But a folder that the metadata places live files in can't, a list
/// of all files can't, and a table whose live files all lie outside of its own folders may well have its folder under another
/// address.
fn refuse_no_match(table: &str, options: &RemoveOrphanFiles, references: &References, search: &Search) -> Result<()> {
    let counts = references.content_counts();
    let live = references.live_content();
    let must_match = live > 0 && (options.file_list_view.is_some() || counts.in_scope > 0 || counts.in_roots == 0);
    // A listing without orphans is harmless. A list without them that has none of the files it should have is no list of this table.
    let has_nothing_to_say =
        search.orphans.as_slice().is_empty() && (options.file_list_view.is_none() || counts.in_scope == 0);
    if has_nothing_to_say || search.matched_content > 0 || !must_match {
        return Ok(());
    }
    if options.allow_missing_files && counts.in_roots == 0 && options.file_list_view.is_none() {
        return Ok(());
    }
    Err(Error::Guard {
        table: table.into(),
        found: format!(
            "none of the {} listed files is one of the table's {live} live files: listing and metadata seem to name files \
             differently, so orphans can't be told from live files. If really no live file lies in the table's own folders, \
             give allow_missing_files => true",
            search.metrics.scanned_files_count,
        ),
    })
}

async fn exists(file: &str, stores: &Stores) -> Result<bool> {
    let location = Location::parse(file)?;
    Ok(stores.store(&location)?.stat(&location).await?.is_some())
}

fn some_of(files: &[(&String, bool)]) -> String {
    let named: Vec<&str> = files.iter().take(NAMED_IN_ERRORS).map(|(file, _)| file.as_str()).collect();
    match files.len().saturating_sub(NAMED_IN_ERRORS) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// How old a list of files may be before it is worth a word: 7 days.
const OLD_LIST_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Refuses a list of files that is older than the call wants it. Returns what there is to say of an old one.
///
/// A list is as old as the newest file in it, at most. That something is missing in it is no danger, and what it says of a file is
/// looked up in the store: but it may not be the list that was meant.
pub(super) fn refuse_old_list(
    table: &LoadedTable,
    options: &RemoveOrphanFiles,
    search: &Search,
) -> Result<Option<String>> {
    let (Some(relation), Some(updated_ms)) = (&options.file_list_view, table.metadata.last_updated_ms()) else {
        return Ok(None);
    };
    let Some(newest_ms) = search.newest_listed_ms else { return Ok(None) };
    let behind_ms = updated_ms.saturating_sub(newest_ms);
    let told = format!(
        "the newest file in {relation} is {} older than the table's metadata",
        crate::time::format_duration(behind_ms.max(0))
    );
    match options.max_file_list_age_ms {
        Some(most_ms) if behind_ms > most_ms => Err(Error::Guard {
            table: table.name.clone(),
            found: format!("{told}, more than max_file_list_age allows: make a new list"),
        }),
        Some(_) => Ok(None),
        None => Ok((behind_ms > OLD_LIST_MS).then(|| format!("{told}: files that came since are not in it"))),
    }
}

/// Spares files of a list that are gone, or that the store says are younger than the age limit (ms since the epoch).
///
/// Local files are looked at before their delete anyway.
pub(super) async fn spare_changed_since_list(search: &mut Search, store: &Store, cutoff_ms: i64) -> Result<()> {
    let orphans = search.orphans.as_mut();
    if store.as_local().is_some() || orphans.is_empty() {
        return Ok(());
    }
    let looks = store.look_at(orphans.iter().map(|file| split(&file.path).path.to_string()).collect()).await?;
    for (file, look) in orphans.iter_mut().zip(looks) {
        file.status = match look {
            None => FileStatus::Missing,
            Some(now) if now.modified_ms.is_none_or(|modified_ms| modified_ms >= cutoff_ms) => {
                FileStatus::Spared(SkipReason::TooYoung)
            }
            Some(now) => {
                file.bytes = Some(now.size);
                FileStatus::Planned
            }
        };
    }
    Ok(())
}

/// Keeps orphans that are a live file under another name: through a link that the listing did not show, or a second mount.
///
/// Only live files that a listing did not show by name need a look, as a rule none.
pub(super) async fn keep_files_with_other_names(
    references: &mut References,
    search: &mut Search,
    store: &Store,
    is_listing: bool,
    task: &Arc<TaskContext>,
) -> Result<()> {
    let Some(local) = store.as_local().filter(|_| !search.orphans.as_slice().is_empty()) else { return Ok(()) };
    let orphans = search.orphans.as_slice().iter().map(|file| split(&file.path).path.to_string()).collect();
    let identities = local.identities(orphans).await?;
    let suspects: HashSet<FileId> = identities.iter().flatten().copied().collect();
    let mut live = HashSet::new();
    let note = |file: &str| {
        live.extend(local.identity(split(file).path)?.filter(|identity| suspects.contains(identity)));
        Ok(())
    };
    // A listing shows which names are links; a list that somebody made doesn't.
    match is_listing {
        true => references.for_each_unlisted(task, note).await?,
        false => references.for_each_needed(task, note).await?,
    }
    let metrics = &mut search.metrics;
    let mut identities = identities.into_iter();
    search.orphans.as_mut().retain(|_| {
        let is_live = identities.next().flatten().is_some_and(|identity| live.contains(&identity));
        if is_live {
            metrics.count_skipped(SkipReason::PrefixMismatch);
        }
        !is_live
    });
    Ok(())
}
