//! iceberg-maintenance
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![allow(dead_code)]

pub mod catalog;
mod deletion;
pub mod error;
#[cfg(feature = "fixtures")]
#[doc(hidden)]
pub mod fixtures;
mod maintenance;
pub mod options;
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

pub use error::{Error, Result};
pub use maintenance::{Cancellation, Clock, FixedClock, Maintenance, MaintenanceBuilder, SystemClock};
pub use procedure::expire_snapshots::{CommittedExpiry, ExpirePlan, ExpireSnapshots};
pub use procedure::remove_orphan_files::{DEFAULT_ORPHAN_AGE_MS, OrphanPlan, PrefixMismatchMode, RemoveOrphanFiles};

/// The parameters of the procedures, for command lines that are made from them.
#[doc(hidden)]
pub mod parameters {
    pub use crate::procedure::{Parameter, ParameterKind};

    /// The parameters of a procedure, by its name in any case; the table comes first.
    pub fn of(procedure: &str) -> Option<&'static [Parameter]> {
        crate::procedure::find(procedure).map(|procedure| procedure.parameters())
    }
}
