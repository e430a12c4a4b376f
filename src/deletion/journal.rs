//! Removing the journal of runs that are over. Besides the files of a table these are the only ones that go.

use object_store::ObjectStoreExt;

use crate::journal::{FileName, Journal, JournaledRun, RunId};
use crate::storage::{ObjectFiles, StoreKind};
use crate::table::Location;

/// Removes all that the journal has of these runs. What can't be removed stays until the next time.
pub(crate) async fn remove_journal(journal: &Journal, runs: &[JournaledRun]) {
    for run in runs {
        // The plan first: without it a run is over, whatever else there still is of it.
        for name in run.plan.iter().chain(&run.outcomes).chain(&run.claim) {
            let location = journal.location(name);
            match remove(journal, &location).await {
                Ok(()) => {
                    tracing::info!(target: "iceberg_maintenance::audit", path = %location, "delete an old journal")
                }
                Err(error) => tracing::warn!(path = %location, error, "an old journal could not be removed"),
            }
        }
    }
}

/// Removes the claim on a run's files.
pub(crate) async fn remove_claim(journal: &Journal, run: &RunId) {
    let location = journal.location(&FileName::Claim { run: run.clone() });
    if let Err(error) = remove(journal, &location).await {
        tracing::warn!(path = %location, error, "the claim on a run's files could not be removed");
    }
}

async fn remove(journal: &Journal, location: &Location) -> Result<(), String> {
    match journal.store().kind() {
        StoreKind::Local(files) => {
            let path = files.os_path(location);
            std::fs::remove_file(path).map_err(|error| error.to_string())
        }
        StoreKind::Object(files) => {
            let key = ObjectFiles::key(location).map_err(|error| error.to_string())?;
            files.store().delete(&key).await.map_err(|error| error.to_string())
        }
    }
}
