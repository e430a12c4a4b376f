//! What the benches measure.

use std::sync::Arc;

use super::EntryCounts;
use super::avro::Layout;
use super::manifest::{EntryColumns, ManifestFile, check_counts};
use super::manifest_list::decode_manifest_list_like;
pub(crate) use super::manifest_list::{KnownEntries, decode_new_entries, inflate_list};
use crate::error::Result;

/// Decodes the files of one table, one after the other.
#[derive(Debug, Default)]
pub struct Decoder {
    manifests: Option<Arc<Layout>>,
    lists: Vec<Arc<Layout>>,
}

impl Decoder {
    /// Decodes a manifest to record batches; how many rows they have.
    pub fn manifest(&mut self, bytes: &[u8]) -> Result<usize> {
        let file = ManifestFile::open_like("manifest", bytes, EntryColumns::Usual, &self.manifests)?;
        let mut rows = 0;
        let counts = file.decode(file.blocks(), false, |batch, _| {
            rows += batch.num_rows();
            Ok(())
        })?;
        check_counts("manifest", counts, EntryCounts::default())?;
        self.manifests = Some(Arc::clone(file.layout()));
        Ok(rows)
    }

    /// Decodes a manifest list to a record batch; how many rows it has.
    pub fn manifest_list(&mut self, bytes: &[u8]) -> Result<usize> {
        decode_manifest_list_like("list", bytes, &mut self.lists).map(|rows| rows.num_rows())
    }
}
