//! What the fuzz targets in `fuzz/` run, and the tests that run them over the stored corpus. Not a part of the API.
//!
//! Each takes any bytes, returns without a panic and with memory in proportion to the input, and checks what must hold for
//! whatever was understood.

mod journal;
mod metadata;
mod paths;
mod sql;

pub use journal::journal;
pub use metadata::metadata;
pub use paths::paths;
pub use sql::sql;

/// A manifest list.
pub fn manifest_list(bytes: &[u8]) {
    crate::scan::fuzzing::manifest_list(bytes);
}

/// A manifest.
pub fn manifest(bytes: &[u8]) {
    crate::scan::fuzzing::manifest(bytes);
}

/// A target: reads bytes, and panics where something is wrong with how they were read.
pub type Target = fn(&[u8]);

/// All targets by name; the corpus of each is in a folder of its name.
pub const TARGETS: [(&str, Target); 6] = [
    ("metadata", metadata),
    ("manifest_list", manifest_list),
    ("manifest", manifest),
    ("sql", sql),
    ("paths", paths),
    ("journal", journal),
];
