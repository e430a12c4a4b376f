//! How a new metadata file is written, whichever catalog names it.

use std::io::Write;

use bytes::Bytes;

use crate::error::{Error, Result};

/// What the name of a metadata file ends with, after its first dot.
pub(super) fn extension(gzip: bool) -> &'static str {
    if gzip { "gz.metadata.json" } else { "metadata.json" }
}

/// The content of a metadata file.
///
/// # Errors
/// When compressing fails.
pub(super) fn encode(json: &str, gzip: bool) -> Result<Bytes> {
    if !gzip {
        return Ok(Bytes::copy_from_slice(json.as_bytes()));
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder
        .write_all(json.as_bytes())
        .and_then(|()| encoder.finish())
        .map(Bytes::from)
        .map_err(|e| Error::io("compressing", "new table metadata", e))
}
