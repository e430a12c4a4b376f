//! iceberg-maintenance
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![allow(dead_code)]

pub mod error;
#[cfg(feature = "fixtures")]
#[doc(hidden)]
pub mod fixtures;
pub mod maintenance;
pub mod options;
pub(crate) mod procedure;
pub mod report;
pub mod retention;
pub(crate) mod scan;
pub(crate) mod sql;
#[cfg(feature = "sqllogictest")]
pub mod sqllogictest;
pub(crate) mod storage;
pub mod table;

pub use error::{Error, Result};

/// The parameters of the procedures, for command lines that are made from them.
#[doc(hidden)]
pub mod parameters {
    pub use crate::procedure::{Parameter, ParameterKind};

    /// The parameters of a procedure, by its name in any case; the table comes first.
    pub fn of(procedure: &str) -> Option<&'static [Parameter]> {
        crate::procedure::find(procedure).map(|procedure| procedure.parameters())
    }
}
