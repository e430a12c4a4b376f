//! What this package's own benches reach into. Not a part of the API.

pub mod decoder;
pub mod lists;
pub mod listing;
