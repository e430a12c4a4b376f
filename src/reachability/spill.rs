//! Bytes in buckets: in memory first, in one temporary file of the session's disk manager once the memory is used up.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::{DiskManager, SpillFile, SpillWriter};
use parking_lot::Mutex;

use super::buckets::BUCKETS;
use crate::error::Result;

/// Chunks of bytes in buckets, written one behind the other to a temporary file. Each bucket is read back in the order
/// in which it was written.
pub(super) struct SpillBuckets {
    file: Arc<dyn SpillFile>,
    /// Never locked: it only makes this shareable between threads.
    writer: Mutex<Box<dyn SpillWriter>>,
    reader: File,
    written: u64,
    chunks: Vec<Vec<Chunk>>,
}

/// Where a chunk lies in the file.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    offset: u64,
    length: usize,
}

impl SpillBuckets {
    /// # Errors
    /// When the session allows no temporary files, or keeps them elsewhere than on a local disk.
    pub(super) fn create(disk: &Arc<DiskManager>, what: &'static str) -> Result<Self> {
        let file = disk.create_tmp_file(what)?;
        let elsewhere = || {
            DataFusionError::ResourcesExhausted(format!(
                "{what} does not fit into memory, and the session keeps its temporary files elsewhere than on a local disk"
            ))
        };
        let reader = File::open(file.path().ok_or_else(elsewhere)?).map_err(DataFusionError::from)?;
        let writer = Mutex::new(file.open_writer()?);
        Ok(Self { file, writer, reader, written: 0, chunks: vec![vec![]; BUCKETS] })
    }

    pub(super) fn append(&mut self, bucket: usize, bytes: &[u8]) -> Result<()> {
        self.writer.get_mut().write_all(bytes).map_err(DataFusionError::from)?;
        self.chunks[bucket].push(Chunk { offset: self.written, length: bytes.len() });
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// How many bytes a bucket has.
    pub(super) fn bytes_in(&self, bucket: usize) -> usize {
        self.chunks[bucket].iter().map(|chunk| chunk.length).sum()
    }

    /// How many chunks a bucket has.
    pub(super) fn chunks_in(&self, bucket: usize) -> usize {
        self.chunks[bucket].len()
    }

    /// Reads a chunk of a bucket into `bytes`, behind what is there.
    pub(super) fn read_chunk(&mut self, bucket: usize, index: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let Chunk { offset, length } = self.chunks[bucket][index];
        let before = bytes.len();
        bytes.resize(before + length, 0);
        let read = self.reader.seek(SeekFrom::Start(offset)).and_then(|_| self.reader.read_exact(&mut bytes[before..]));
        Ok(read.map_err(DataFusionError::from)?)
    }
}

impl std::fmt::Debug for SpillBuckets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillBuckets").field("file", &self.file.path()).field("written", &self.written).finish()
    }
}
