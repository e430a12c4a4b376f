//! Which of the files that snapshots need are gone.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::{LoadedTable, TableHandle};
use crate::deletion::NewestMetadata;
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::reachability::{FileIdentity, Reading, for_each_live_entry, list_manifests};
use crate::report::{FileKind, FileOutcome, FileStatus};
use crate::storage::{Store, Stores};
use crate::table::{Location, PathRules, Snapshot, TableMetadata};

/// What a look for files came to.
pub(super) struct MissingFiles {
    /// How many files only these snapshots need.
    pub looked_for: usize,
    /// Those that are gone or unreadable, by name.
    pub missing: Vec<String>,
}

/// Looks for all files that these snapshots of `after` need and that nothing in the table as it is now does: what the table
/// needs as it is, is there or was lost before.
pub(super) async fn look_for(
    handle: &TableHandle,
    table: &LoadedTable,
    after: &TableMetadata,
    restored: &[i64],
    context: &RunContext,
) -> Result<MissingFiles> {
    let task = &context.task;
    let snapshots: Vec<&Snapshot> = restored.iter().filter_map(|id| after.snapshot(*id)).collect();
    let listed = list_manifests(&snapshots, Reading::Lenient, task).await?;
    let mut missing: Vec<String> = listed.skipped.iter().map(|file| file.location.clone()).collect();
    let mut needed: HashSet<String> = snapshots.iter().filter_map(|snapshot| snapshot.manifest_list.clone()).collect();
    needed.extend(listed.manifests.iter().map(|manifest| manifest.reference.location.clone()));
    let skipped = for_each_live_entry(&listed.manifests, Reading::Lenient, task, |entry| {
        if !needed.contains(entry.path) {
            needed.insert(entry.path.to_string());
        }
        Ok(())
    })
    .await?;
    missing.extend(skipped.iter().map(|file| file.location.clone()));
    let statistics = after.statistics().iter().chain(after.partition_statistics());
    let of_restored = statistics.filter(|file| restored.contains(&file.snapshot_id));
    needed.extend(of_restored.map(|file| file.statistics_path.clone()));

    let stores = Stores::new(task.runtime_env());
    let rules = PathRules::new(table.metadata.location());
    let local = stores.store(table.metadata.location())?.as_local().cloned();
    let identity = FileIdentity::new(rules, local);
    let newest =
        NewestMetadata::new(handle.clone(), Arc::clone(task), identity, table.clone(), HashSet::new(), HashSet::new());
    let mut files: Vec<FileOutcome> = needed.into_iter().map(needed_file).collect();
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    newest.with_newer(table.clone()).await?.spare_named_by_newest(&mut files)?;
    let files: Vec<String> =
        files.into_iter().filter(|file| file.status == FileStatus::Planned).map(|file| file.path).collect();
    let looked_for = files.len();
    let unreadable: HashSet<String> = missing.iter().cloned().collect();
    missing.extend(gone(&files, &stores).await?.into_iter().filter(|file| !unreadable.contains(file)));
    missing.sort_unstable();
    Ok(MissingFiles { looked_for, missing })
}

fn needed_file(path: String) -> FileOutcome {
    let (kind, status) = (FileKind::Unknown, FileStatus::Planned);
    FileOutcome { path, kind, bytes: None, modified_ms: None, snapshot_id: None, reason: "needed".into(), status }
}

/// Those of the files that don't exist.
async fn gone(files: &[String], stores: &Stores) -> Result<Vec<String>> {
    let mut by_store: Vec<(Store, Location, Vec<&String>)> = vec![];
    let mut gone = vec![];
    for file in files {
        let Ok(location) = Location::parse(file) else {
            gone.push(file.clone());
            continue;
        };
        let same = |(_, first, _): &(Store, Location, Vec<&String>)| {
            first.scheme() == location.scheme() && first.authority() == location.authority()
        };
        match by_store.iter().position(same) {
            Some(at) => by_store[at].2.push(file),
            None => by_store.push((stores.store(&location)?, location, vec![file])),
        }
    }
    for (store, _, files) in by_store {
        let paths = files.iter().filter_map(|file| Some(Location::parse(file).ok()?.path().to_string())).collect();
        let looks = store.look_at(paths).await?;
        gone.extend(files.into_iter().zip(looks).filter(|(_, look)| look.is_none()).map(|(file, _)| file.clone()));
    }
    Ok(gone)
}
