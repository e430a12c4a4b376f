//! Safe and fast maintenance of Apache Iceberg tables, in SQL, for any DataFusion engine.
//!
//! [`register`] installs the procedures in a session: `expire_snapshots` removes old snapshots and the files that only
//! these needed, `remove_orphan_files` removes files that nothing names; `verify_table` and `explain_file` only read: is
//! everything there, and why does a file stay? They are called as statements through
//! [`MaintenanceSql::maintenance_sql`] (`CALL`, `ALTER TABLE … EXECUTE`, `VACUUM`), or as table functions in plain SQL.
//! [`Maintenance`] offers the same to Rust, in one step or in two phases: plan, look, commit, delete.
//!
//! ```no_run
//! use datafusion::prelude::SessionContext;
//! use iceberg_maintenance::MaintenanceSql;
//!
//! # async fn run() -> datafusion::error::Result<()> {
//! let session = SessionContext::new();
//! iceberg_maintenance::register(&session)?;
//! let expire = "CALL system.expire_snapshots(table => '/data/orders', older_than => now() - INTERVAL '7 days')";
//! session.maintenance_sql(expire).await?.show().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! A file goes only if it is live in an expired snapshot and live in no retained one, over all retained snapshots.
//! Everything that must be read is read before the commit, the commit comes before the first delete, and before each batch
//! of deletes the newest metadata is looked at again: a plan only ever shrinks. What is unknown (an unreadable file of a
//! retained snapshot, an unknown owner, an unknown age, the outcome of a commit) means that nothing is deleted. Metadata is
//! edited as text: what isn't understood comes out as it went in.
//!
//! # Features
//!
//! - `cli` (default): the command line tool and what it needs.
//! - `aws`, `azure`, `gcp`, `http` (default): object stores that are made from properties and the environment
//!   ([`ConfiguredStores`]). Stores that a session registers itself need none of them.
//! - `rest`, `glue` (default), `sql`: catalogs, see [`catalog::connect`].
//! - `libdeflate` (default): inflates manifests with a C library, in 0.7 times the time.
//! - `sqllogictest`: the SQL suites and their driver, for an engine's own tests.
//! - `fixtures`: the tables that tests and the demo are made of; not a stable interface.
//!
//! With `default-features = false` an embedder gets the library alone.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(feature = "benches")]
#[doc(hidden)]
pub mod benches;
pub mod catalog;
mod deletion;
mod error;
#[cfg(feature = "fixtures")]
#[doc(hidden)]
pub mod fixtures;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod maintenance;
mod metadata_tables;
mod options;
mod procedure;
mod progress;
mod reachability;
pub mod report;
pub mod retention;
mod scan;
mod sql;
#[cfg(feature = "sqllogictest")]
pub mod sqllogictest;
mod storage;
pub mod table;
mod time;

use datafusion::prelude::SessionContext;

pub use error::{Error, Result};
pub use maintenance::{Clock, FixedClock, Maintenance, MaintenanceBuilder, SystemClock};
pub use options::MaintenanceOptions;
pub use procedure::expire_snapshots::{CommittedExpiry, ExpirePlan, ExpireSnapshots};
pub use procedure::explain_file::{Answer, FileExplanation, FileVerdict};
pub use procedure::remove_orphan_files::{DEFAULT_ORPHAN_AGE_MS, OrphanPlan, PrefixMismatchMode, RemoveOrphanFiles};
pub use procedure::verify_table::{Finding, Problem, Severity, Verification};
pub use progress::{Progress, RunStage, Steps};
pub use sql::{MaintenanceSql, rewrite};
pub use storage::configured::{ConfiguredStores, CredentialSource, StorageCredentials};

/// Installs maintenance in a session, with the system's clock and no catalogs: tables are named by location.
///
/// See [`Maintenance::builder`] for catalogs, names, options and a clock. Registering again replaces what was there.
///
/// # Errors
/// When the session refuses a part of it.
pub fn register(session: &SessionContext) -> datafusion::error::Result<Maintenance> {
    Maintenance::builder().register(session)
}

/// The parameters of the procedures, for command lines that are made from them.
#[doc(hidden)]
pub mod parameters {
    pub use crate::procedure::{Parameter, ParameterKind};

    /// The names of all procedures.
    pub fn procedures() -> impl Iterator<Item = &'static str> {
        crate::procedure::PROCEDURES.into_iter().map(|procedure| procedure.name())
    }

    /// The functions of the metadata tables, with their parameters and the columns that an unpartitioned table has.
    pub fn metadata_tables() -> impl Iterator<Item = (&'static str, &'static [Parameter], Vec<String>)> {
        crate::metadata_tables::MetadataTable::ALL
            .into_iter()
            .map(|table| (table.function(), table.parameters(), table.unpartitioned_columns()))
    }

    /// The parameters of a procedure, by its name in any case; the table comes first.
    pub fn of(procedure: &str) -> Option<&'static [Parameter]> {
        crate::procedure::find(procedure).map(|procedure| procedure.parameters())
    }
}
