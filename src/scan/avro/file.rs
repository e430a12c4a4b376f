//! An opened file, whose blocks can be read in any order and by several tasks.

use std::ops::Range;

use super::Result;
use super::codec::{Codec, Decompressor, MAX_BLOCK_BYTES};
use super::container::{Block, Container, in_block};
use super::cursor::Cursor;
use super::decode::Row;
use super::projection::{Op, Wanted, resolve};
use super::schema::Schema;

/// An object container file whose header was understood and whose blocks were found. `N`: the slots of a [`Row`].
///
/// The blocks' content was not looked at yet: their records are the file's only if all of them are read without an error.
#[derive(Debug)]
pub(in crate::scan) struct AvroFile<B, const N: usize> {
    bytes: B,
    codec: Codec,
    schema: Schema,
    ops: Vec<Op>,
    blocks: Vec<Block>,
}

impl<B: AsRef<[u8]>, const N: usize> AvroFile<B, N> {
    /// Opens a file. The slots of `wanted` are below `N`.
    ///
    /// # Errors
    /// When the header or the frame of any block is wrong, or when the schema lacks what is wanted.
    pub(in crate::scan) fn open(bytes: B, wanted: &'static [Wanted]) -> Result<Self> {
        let Container { schema, codec, blocks } = Container::open(bytes.as_ref())?;
        let ops = resolve(&schema, wanted)?;
        Ok(Self { bytes, codec, schema, ops, blocks })
    }

    /// All blocks, by their place in the file.
    pub(in crate::scan) fn blocks(&self) -> Range<usize> {
        0..self.blocks.len()
    }

    /// Cuts the file into ranges of blocks that have about `target_bytes` in the file. A block is never cut.
    pub(in crate::scan) fn parts(&self, target_bytes: usize) -> Vec<Range<usize>> {
        let (mut parts, mut start, mut bytes) = (vec![], 0, 0usize);
        for (index, block) in self.blocks.iter().enumerate() {
            bytes = bytes.saturating_add(block.data.len());
            if bytes >= target_bytes {
                parts.push(start..index + 1);
                (start, bytes) = (index + 1, 0);
            }
        }
        if start < self.blocks.len() {
            parts.push(start..self.blocks.len());
        }
        parts
    }

    /// How many records the blocks say they have: not to be trusted.
    pub(in crate::scan) fn promised_records(&self, blocks: Range<usize>) -> u64 {
        let blocks = self.blocks.get(blocks).unwrap_or_default();
        blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.objects))
    }

    /// What [`Self::for_each_record`] decompresses with, one block after the other.
    pub(in crate::scan) fn decompressor(&self) -> Decompressor {
        Decompressor::new(self.codec, MAX_BLOCK_BYTES)
    }

    /// Hands each record of a block to `take`, in order.
    ///
    /// # Errors
    /// When the block doesn't hold exactly the records that it says it has, and when `take` refuses one of them.
    pub(in crate::scan) fn for_each_record(
        &self,
        block: usize,
        decompressor: &mut Decompressor,
        take: impl FnMut(&Row<'_, N>) -> Result<()>,
    ) -> Result<()> {
        let records = self.read_block(block, decompressor).map_err(|why| in_block(block, why))?;
        self.read_records(block, records, take)
    }

    fn read_block<'a>(&'a self, block: usize, decompressor: &'a mut Decompressor) -> Result<&'a [u8]> {
        let Block { objects, data } = self.blocks.get(block).ok_or("the file has no such block")?;
        let stored = self.bytes.as_ref().get(data.clone()).ok_or("the block lies outside of the file")?;
        let records = decompressor.decompress(stored)?;
        // Each record takes a byte at least: the wanted fields do.
        if *objects > records.len() as u64 {
            return Err(format!("it can't have {objects} records in {} bytes", records.len()).into());
        }
        if *objects == 0 && !records.is_empty() {
            return Err(format!("it has no records but {} bytes", records.len()).into());
        }
        Ok(records)
    }

    fn read_records<'a>(
        &self,
        block: usize,
        records: &'a [u8],
        mut take: impl FnMut(&Row<'a, N>) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = Cursor::new(records);
        let mut row = Row::new();
        for _ in 0..self.blocks[block].objects {
            row.read(&self.schema, &self.ops, &mut cursor).map_err(|why| in_block(block, why))?;
            take(&row)?;
        }
        match cursor.rest().len() {
            0 => Ok(()),
            left => Err(in_block(block, format!("{left} bytes are left over after its last record").into())),
        }
    }
}
