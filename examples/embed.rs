//! An engine that offers Iceberg maintenance: one call installs it in a session, then it is SQL.
//!
//! Run with `cargo run --example embed`. It makes two small tables in a temporary folder and maintains one of them.

use datafusion::prelude::{SessionConfig, SessionContext};
use iceberg_maintenance::{Clock, Maintenance, MaintenanceSql, SystemClock, fixtures};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let warehouse = tempfile::tempdir()?;
    fixtures::demo(warehouse.path(), SystemClock.now_ms())?;
    let orders = warehouse.path().join("orders").display().to_string();

    // The engine's own session. Object stores and catalogs that it registers are used for maintenance, too.
    let session = SessionContext::new_with_config(SessionConfig::new().with_information_schema(true));
    Maintenance::builder().table("lake.sales.orders", orders).register(&session)?;

    // Statements go through one extension method, which hands all other SQL on to DataFusion.
    let plan =
        "EXPLAIN CALL system.expire_snapshots(table => 'lake.sales.orders', older_than => now() - INTERVAL '10 days')";
    session.maintenance_sql(plan).await?.show().await?;
    let expire = "CALL system.expire_snapshots(table => 'lake.sales.orders', older_than => now() - INTERVAL '10 days')";
    session.maintenance_sql(expire).await?.show().await?;

    // Table functions work in plain `SessionContext::sql`, and join with anything.
    let orphans = "SELECT content, count(*) AS files, sum(file_size_in_bytes) AS bytes
                   FROM remove_orphan_files('lake.sales.orders', output => 'files', dry_run => true)
                   GROUP BY content ORDER BY content";
    session.sql(orphans).await?.show().await?;
    Ok(())
}
