//! Which of the files that snapshots need are gone.

use std::collections::HashSet;

use crate::catalog::{LoadedTable, TableHandle};
use crate::deletion::NewestMetadata;
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::reachability::{Reading, for_each_live_entry, list_manifests};
use crate::report::{FileKind, FileOutcome, FileStatus};
use crate::storage::{Stores, files_gone};
use crate::table::{Snapshot, TableMetadata};

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
    let mut newest = NewestMetadata::of(table, handle, task).await?;
    let mut files: Vec<FileOutcome> = needed.into_iter().map(needed_file).collect();
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    newest.spare_named_by_newest(&mut files)?;
    let files: Vec<String> =
        files.into_iter().filter(|file| file.status == FileStatus::Planned).map(|file| file.path).collect();
    let looked_for = files.len();
    let unreadable: HashSet<String> = missing.iter().cloned().collect();
    missing.extend(files_gone(&files, &stores).await?.into_iter().filter(|file| !unreadable.contains(file)));
    missing.sort_unstable();
    Ok(MissingFiles { looked_for, missing })
}

fn needed_file(path: String) -> FileOutcome {
    let (kind, status) = (FileKind::Unknown, FileStatus::Planned);
    FileOutcome { path, kind, bytes: None, modified_ms: None, snapshot_id: None, reason: "needed".into(), status }
}
