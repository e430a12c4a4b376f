//! An opened file, whose blocks can be read in any order and by several tasks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::codec::{Codec, Decompressor, MAX_BLOCK_BYTES, most_inflated};
use super::container::{Block, Container, SYNC_BYTES, header_value, in_block};
use super::cursor::Cursor;
use super::decode::Row;
use super::projection::{ALL_SLOTS, Op, Program, Wanted, resolve};
use super::schema::{NodeId, Schema};
use super::{MAX_RECORDS_PER_BYTE, Result};

/// An object container file whose header was understood and whose blocks were found. `N`: the slots of a [`Row`].
///
/// The blocks' content was not looked at yet: their records are the file's only if all of them are read without an error.
#[derive(Debug)]
pub(in crate::scan) struct AvroFile<B, const N: usize> {
    bytes: B,
    codec: Codec,
    layout: Arc<Layout>,
    blocks: Vec<Block>,
    /// How many bytes its blocks were inflated to so far: each of them is read once.
    inflated: AtomicUsize,
}

/// How records of one schema are read. Files that were written alike share it: a schema takes longer to understand than a
/// small file takes to read.
#[derive(Debug)]
pub(in crate::scan) struct Layout {
    /// As the files have it.
    schema_text: Vec<u8>,
    schema: Schema,
    ops: Vec<Op>,
    /// The types of the values that are handed out encoded, by slot.
    encoded: Vec<(usize, NodeId)>,
}

impl Layout {
    fn new(schema_text: &[u8], wanted: &'static [Wanted], slots: u32) -> Result<Self> {
        let schema = Schema::parse(schema_text)?;
        let Program { ops, encoded } = resolve(&schema, wanted, slots)?;
        Ok(Self { schema_text: schema_text.to_vec(), schema, ops, encoded })
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The type of the value that a slot gets the encoding of. `None`: records have no such field.
    pub(super) fn encoded(&self, slot: usize) -> Option<NodeId> {
        self.encoded.iter().find(|(known, _)| *known == slot).map(|(_, node)| *node)
    }

    #[cfg(test)]
    pub(in crate::scan) fn schema_text(&self) -> &str {
        std::str::from_utf8(&self.schema_text).unwrap()
    }

    /// How many bytes it takes, about.
    pub(in crate::scan) fn bytes(&self) -> usize {
        // What was understood is of the order of the text.
        self.schema_text.len() * 4
    }
}

impl<B: AsRef<[u8]>, const N: usize> AvroFile<B, N> {
    /// Opens a file. The slots of `wanted` are below `N`.
    ///
    /// # Errors
    /// When the header or the frame of any block is wrong, or when the schema lacks what is wanted.
    #[cfg(test)]
    pub(in crate::scan) fn open(bytes: B, wanted: &'static [Wanted]) -> Result<Self> {
        Self::open_like(bytes, wanted, [])
    }

    /// Opens a file. It shares the layout of one of these files, opened with the same `wanted`, if it was written alike.
    ///
    /// # Errors
    /// When the header or the frame of any block is wrong, or when the schema lacks what is wanted.
    pub(in crate::scan) fn open_like<'l>(
        bytes: B,
        wanted: &'static [Wanted],
        layouts: impl IntoIterator<Item = &'l Arc<Layout>>,
    ) -> Result<Self> {
        Self::open_projected(bytes, wanted, ALL_SLOTS, layouts)
    }

    /// Like [`Self::open_like`], with only those wanted fields whose slots have their bit in `slots`: the others are walked
    /// over, and may be absent. The layouts are of files that were opened with the same slots.
    ///
    /// # Errors
    /// When the header or the frame of any block is wrong, or when the schema lacks what is wanted.
    pub(in crate::scan) fn open_projected<'l>(
        bytes: B,
        wanted: &'static [Wanted],
        slots: u32,
        layouts: impl IntoIterator<Item = &'l Arc<Layout>>,
    ) -> Result<Self> {
        let Container { schema, codec, blocks } = Container::open(bytes.as_ref())?;
        let layout = match layouts.into_iter().find(|layout| layout.schema_text == schema) {
            Some(known) => Arc::clone(known),
            None => Arc::new(Layout::new(schema, wanted, slots)?),
        };
        Ok(Self { bytes, codec, layout, blocks, inflated: AtomicUsize::new(0) })
    }

    /// What the header has for a key, such as Iceberg's `partition-spec-id`.
    ///
    /// # Errors
    /// When the header is wrong, which opening the file would have noticed.
    pub(in crate::scan) fn header_value(&self, key: &str) -> Result<Option<&[u8]>> {
        header_value(self.bytes.as_ref(), key)
    }

    pub(in crate::scan) fn layout(&self) -> &Arc<Layout> {
        &self.layout
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
        Decompressor::new(self.codec, MAX_BLOCK_BYTES.min(most_inflated(self.bytes.as_ref().len())))
    }

    /// Hands each record of a block to `take`, in order.
    ///
    /// # Errors
    /// When the block doesn't hold exactly the records that it says it has, and when `take` refuses one of them.
    pub(in crate::scan) fn for_each_record(
        &self,
        block: usize,
        decompressor: &mut Decompressor,
        mut take: impl FnMut(&Row<'_, N>) -> Result<()>,
    ) -> Result<()> {
        let mut records = self.records(block, decompressor)?;
        while let Some((_, row)) = records.next()? {
            take(row)?;
        }
        Ok(())
    }

    /// The records of a block, one at a time.
    ///
    /// # Errors
    /// When the block can't be decompressed, or can't have as many records as it says.
    pub(in crate::scan) fn records<'a>(
        &'a self,
        block: usize,
        decompressor: &'a mut Decompressor,
    ) -> Result<BlockRecords<'a, N>> {
        let (left, records) = self.read_block(block, decompressor).map_err(|why| in_block(block, why))?;
        Ok(BlockRecords { layout: &self.layout, block, cursor: Cursor::new(records), left, row: Row::new() })
    }

    /// How many records a block has, and their data.
    pub(in crate::scan) fn read_block<'a>(
        &'a self,
        block: usize,
        decompressor: &'a mut Decompressor,
    ) -> Result<(u64, &'a [u8])> {
        let Block { objects, data } = self.blocks.get(block).ok_or("the file has no such block")?;
        let stored = self.bytes.as_ref().get(data.clone()).ok_or("the block lies outside of the file")?;
        let records = decompressor.decompress(stored)?;
        // Each record takes a byte at least: the wanted fields do.
        if *objects > records.len() as u64 {
            return Err(format!("it can't have {objects} records in {} bytes", records.len()).into());
        }
        if *objects > (stored.len() + SYNC_BYTES) as u64 * MAX_RECORDS_PER_BYTE {
            return Err(format!("it has {objects} records in {} bytes, which is no manifest", stored.len()).into());
        }
        let most = most_inflated(self.bytes.as_ref().len());
        if self.inflated.fetch_add(records.len(), Ordering::Relaxed).saturating_add(records.len()) > most {
            return Err(format!("the blocks of the file inflate to more than {most} bytes").into());
        }
        if *objects == 0 && !records.is_empty() {
            return Err(format!("it has no records but {} bytes", records.len()).into());
        }
        Ok((*objects, records))
    }
}

/// The records of a block, from one on.
#[derive(Debug)]
pub(in crate::scan) struct BlockRecords<'a, const N: usize> {
    layout: &'a Layout,
    block: usize,
    cursor: Cursor<'a>,
    left: u64,
    row: Row<'a, N>,
}

impl<'a, const N: usize> BlockRecords<'a, N> {
    /// The next record and its encoding, `None` after the last one of a block that holds exactly what it says.
    #[inline]
    pub(in crate::scan) fn next(&mut self) -> Result<Option<(&'a [u8], &Row<'a, N>)>> {
        let Some(left) = self.left.checked_sub(1) else { return self.end().map(|()| None) };
        self.left = left;
        let ahead = self.cursor.rest();
        let Layout { schema, ops, .. } = self.layout;
        self.row.read(schema, ops, &mut self.cursor).map_err(|why| in_block(self.block, why))?;
        Ok(Some((&ahead[..ahead.len() - self.cursor.rest().len()], &self.row)))
    }

    /// Steps over the next record if its encoding is the one of this record, which was read under the same layout.
    pub(in crate::scan) fn skip_if(&mut self, encoded: &[u8]) -> bool {
        let Some(rest) = self.cursor.rest().strip_prefix(encoded) else { return false };
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        self.cursor = Cursor::new(rest);
        true
    }

    /// How many bytes are ahead.
    pub(in crate::scan) fn bytes(&self) -> usize {
        self.cursor.rest().len()
    }

    fn end(&self) -> Result<()> {
        match self.cursor.rest().len() {
            0 => Ok(()),
            left => Err(in_block(self.block, format!("{left} bytes are left over after its last record").into())),
        }
    }
}
