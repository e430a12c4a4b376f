//! What the benches measure.

use super::EntryCounts;
use super::manifest::{ManifestFile, check_counts};
use super::manifest_list::decode_manifest_list;
use crate::error::Result;

/// Decodes a manifest to record batches; how many rows they have.
pub fn manifest(bytes: &[u8]) -> Result<usize> {
    let file = ManifestFile::open_like("manifest", bytes, [])?;
    let mut rows = 0;
    let counts = file.decode(file.blocks(), false, |batch, _| {
        rows += batch.num_rows();
        Ok(())
    })?;
    check_counts("manifest", counts, EntryCounts::default())?;
    Ok(rows)
}

/// Decodes a manifest list to a record batch; how many rows it has.
pub fn manifest_list(bytes: &[u8]) -> Result<usize> {
    decode_manifest_list("list", bytes).map(|rows| rows.num_rows())
}
