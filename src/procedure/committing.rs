//! What every plan and commit of ours has to pass, and how long it is waited for.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::TaskContext;
use futures::future::BoxFuture;

use crate::catalog::{LoadedTable, Ownership, TableHandle};
use crate::error::{Error, Result};
use crate::progress::{RunStage, stage};
use crate::storage::Stores;
use crate::table::{PathRules, TableIdentity, TableMetadata};

/// How often a commit that lost a race is planned again, when the table doesn't say (`commit.retry.num-retries`).
const DEFAULT_RETRIES: u32 = 4;

/// How long to wait before each look at a table whose commit was not answered.
pub(super) const PAUSES_BEFORE_LOOKING: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(150), Duration::from_millis(300), Duration::from_millis(500)];

/// How often a commit that lost a race is tried again.
pub(super) fn retries(metadata: &TableMetadata) -> u32 {
    metadata.properties().get("commit.retry.num-retries").and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_RETRIES)
}

/// Plans on the newest metadata. Where a file is gone because another run removed it while it was to be read, plans again on
/// the metadata that this run left, as often as a commit would be tried again.
///
/// # Errors
/// What the plan fails for; [`Error::Conflict`] where the table changes again and again.
pub(super) async fn plan_on_newest<'a, T>(
    handle: &TableHandle,
    task: &Arc<TaskContext>,
    plan: impl Fn(LoadedTable) -> BoxFuture<'a, Result<T>>,
) -> Result<T> {
    let runtime = task.runtime_env();
    let mut attempts = 1;
    loop {
        let table = stage(task, RunStage::Loading, handle.load(&runtime)).await?;
        let error = match plan(table.clone()).await {
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        let may_be_gone =
            matches!(error, Error::NeededFileUnreadable { .. } | Error::FileNotFound { .. } | Error::Conflict { .. });
        if !may_be_gone || handle.is_current(&table, &runtime).await? {
            return Err(error);
        }
        if attempts > retries(&table.metadata) {
            let why = match error {
                Error::Conflict { why, .. } => why,
                gone => format!("others commit and remove files while this call reads them: {gone}"),
            };
            return Err(Error::Conflict { table: table.name, attempts, why });
        }
        tracing::info!(table = table.name, attempts, %error, "the table changed while it was read; planning again");
        attempts += 1;
    }
}

/// Refuses to commit by location to a table that a catalog seems to own, unless the caller says that none does.
pub(super) fn refuse_unknown_owner(table: &LoadedTable, no_catalog: bool) -> Result<()> {
    if table.ownership == Ownership::Ours || no_catalog {
        return Ok(());
    }
    Err(Error::UnclearOwner {
        table: table.name.clone(),
        why: format!(
            "its newest metadata is {}, a name that catalogs give. A commit by location would be invisible to the catalog, \
             which would go on using the files that this call deletes. Name the table in its catalog; or give \
             no_catalog => true if really no catalog owns it. dry_run => true works as it is",
            table.metadata.metadata_location()
        ),
    })
}

/// Refuses to commit by location where another table has metadata in the same folder.
pub(super) async fn refuse_other_tables(table: &LoadedTable, stores: &Stores) -> Result<()> {
    let (own, rules) = (TableIdentity::of(&table.metadata), PathRules::new(table.metadata.location()));
    for file in &table.other_metadata_locations {
        let identity = TableIdentity::read(&stores.read(file).await?);
        if !identity.is_ok_and(|identity| own.is_same_table(&identity, &rules)) {
            return Err(Error::Guard {
                table: table.name.clone(),
                found: format!(
                    "{file} is not this table's metadata, or can't be read: another table seems to share the location. Give \
                     each table a location of its own"
                ),
            });
        }
    }
    Ok(())
}
