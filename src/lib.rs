//! iceberg-maintenance
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![allow(dead_code)]

pub mod catalog;
mod deletion;
pub mod error;
mod maintenance;
pub mod options;
mod procedure;
mod reachability;
pub mod report;
pub mod retention;
mod scan;
mod sql;
mod storage;
pub mod table;
mod time;

pub use error::{Error, Result};
pub use maintenance::{Cancellation, Clock, FixedClock, Maintenance, MaintenanceBuilder, SystemClock};
pub use procedure::expire_snapshots::{CommittedExpiry, ExpirePlan, ExpireSnapshots};
pub use procedure::remove_orphan_files::{DEFAULT_ORPHAN_AGE_MS, OrphanPlan, PrefixMismatchMode, RemoveOrphanFiles};
pub use sql::{MaintenanceSql, rewrite};
