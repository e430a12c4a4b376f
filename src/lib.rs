//! iceberg-maintenance
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod catalog;
mod deletion;
mod error;
#[cfg(feature = "fixtures")]
#[doc(hidden)]
pub mod fixtures;
mod maintenance;
mod options;
mod procedure;
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
pub use maintenance::{Cancellation, Clock, FixedClock, Maintenance, MaintenanceBuilder, SystemClock};
pub use options::MaintenanceOptions;
pub use procedure::expire_snapshots::{CommittedExpiry, ExpirePlan, ExpireSnapshots};
pub use procedure::remove_orphan_files::{DEFAULT_ORPHAN_AGE_MS, OrphanPlan, PrefixMismatchMode, RemoveOrphanFiles};
pub use sql::{MaintenanceSql, rewrite};

/// Installs maintenance in a session, with the system's clock and no catalogs: tables are named by location.
///
/// See [`Maintenance::builder`] for catalogs, names, options and a clock.
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

    /// The parameters of a procedure, by its name in any case; the table comes first.
    pub fn of(procedure: &str) -> Option<&'static [Parameter]> {
        crate::procedure::find(procedure).map(|procedure| procedure.parameters())
    }
}
