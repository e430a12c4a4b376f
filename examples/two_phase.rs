//! Plan, look, commit with a catalog of one's own, delete.
//!
//! An embedder that has its own way to name the current metadata implements [`Catalog`]. The two phases let it look at
//! the plan, and commit in its own transaction, before any file goes.
//!
//! Run with `cargo run --example two_phase`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::SessionContext;
use iceberg_maintenance::catalog::{Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};
use iceberg_maintenance::retention::RetentionPolicy;
use iceberg_maintenance::table::TableMetadata;
use iceberg_maintenance::{Clock, Error, ExpireSnapshots, Maintenance, SystemClock, fixtures};

/// A catalog that is a map from table name to metadata file. A real one would be a service or a database.
#[derive(Debug, Default)]
struct PointerCatalog {
    pointers: Mutex<HashMap<String, PathBuf>>,
}

impl PointerCatalog {
    fn pointer(&self, table: &TableName) -> Option<PathBuf> {
        self.pointers.lock().ok()?.get(&table.to_string()).cloned()
    }

    /// Moves the pointer if it still is where the plan saw it.
    fn swap(&self, table: &TableName, expected: &str, new: PathBuf) -> bool {
        let Ok(mut pointers) = self.pointers.lock() else { return false };
        match pointers.get_mut(&table.to_string()) {
            Some(pointer) if pointer.display().to_string() == expected => {
                *pointer = new;
                true
            }
            _ => false,
        }
    }
}

#[async_trait]
impl Catalog for PointerCatalog {
    async fn load(&self, table: &TableName, _runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable, Error> {
        let missing = || Error::TableNotFound { table: table.to_string(), why: "the catalog has no such table".into() };
        let location = self.pointer(table).ok_or_else(missing)?;
        let content = std::fs::read(&location).map_err(|_| missing())?;
        let metadata = TableMetadata::parse(&location.display().to_string(), &content)?;
        Ok(LoadedTable::new(table.to_string(), metadata))
    }

    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        _runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome, Error> {
        if self.pointer(table).map(|pointer| pointer.display().to_string())
            != Some(commit.base_metadata_location.clone())
        {
            return Ok(CommitOutcome::Conflict("the pointer was moved".into()));
        }
        // A name of its own: a commit that loses must not touch the metadata of the one that won.
        let name = format!("00100-{}.metadata.json", uuid::Uuid::new_v4());
        let new = PathBuf::from(base.metadata.metadata_location()).with_file_name(name);
        let metadata_location = new.display().to_string();
        // Nothing names the file yet, so that a failure here is certain.
        let written = tokio::fs::write(&new, &commit.new_metadata).await;
        written
            .map_err(|error| Error::Catalog { catalog: "own".into(), why: format!("{metadata_location}: {error}") })?;
        match self.swap(table, &commit.base_metadata_location, new) {
            true => Ok(CommitOutcome::Committed { metadata_location, notices: vec![] }),
            false => Ok(CommitOutcome::Conflict("the pointer was moved".into())),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let warehouse = tempfile::tempdir()?;
    let tables = fixtures::demo(warehouse.path(), SystemClock.now_ms())?;
    let catalog = Arc::new(PointerCatalog::default());
    let name = TableName { namespace: vec!["sales".into()], name: "orders".into() };
    let orders = &tables[0].written;
    let current = orders.resolve(&orders.metadata_path).ok_or("the demo is on the local disk")?;
    catalog.pointers.lock().map_err(|_| "poisoned")?.insert(name.to_string(), current);

    let session = SessionContext::new();
    let maintenance = Maintenance::builder().catalog("own", catalog.clone()).register(&session)?;

    // Phase one: everything is read and decided, nothing is changed.
    let ten_days_ago = maintenance.now_ms() - 10 * 24 * 60 * 60 * 1000;
    let policy = RetentionPolicy { older_than_ms: Some(ten_days_ago), ..Default::default() };
    let options = ExpireSnapshots { policy, ..Default::default() };
    let plan = maintenance.plan_expire_snapshots("own.sales.orders", &options).await?;
    for snapshot in &plan.decision().snapshots {
        println!("{:>20}  {}", snapshot.snapshot_id, snapshot.reason);
    }
    println!(
        "{} files would go; as JSON the plan has {} bytes",
        plan.files().len(),
        serde_json::to_string(&plan)?.len()
    );

    // The embedder's own transaction, with what the plan says must hold and must change.
    let runtime = session.runtime_env();
    let base = catalog.load(&name, &runtime).await?;
    match catalog.commit(&name, &base, plan.commit_request(), &runtime).await? {
        CommitOutcome::Committed { metadata_location, .. } => println!("committed {metadata_location}"),
        CommitOutcome::Conflict(why) => return Err(format!("plan again: {why}").into()),
        CommitOutcome::Unknown(why) => return Err(format!("nothing may be deleted: {why}").into()),
    }

    // Phase two: the table is loaded again, the plan can only shrink, and then files go.
    let committed = maintenance.confirm_commit(plan).await?;
    let report = maintenance.delete_files(committed).await?;
    report.require_complete()?;
    println!("{} files deleted, {} bytes", report.metrics.deleted_files_count, report.metrics.deleted_bytes);
    Ok(())
}
