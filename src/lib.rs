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
pub(crate) mod storage;
pub mod table;

pub use error::{Error, Result};
