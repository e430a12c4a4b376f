//! What this package's own benches reach into. Not a part of the API.

pub mod decoder;
pub mod listing;
pub mod lists;
