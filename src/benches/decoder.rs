//! Decoding of manifests and manifest lists to record batches.

pub use crate::scan::benches::Decoder;
