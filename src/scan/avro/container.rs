//! The framing of object container files (Avro specification, "Object Container Files").

use std::collections::HashMap;
use std::ops::Range;

use super::codec::Codec;
use super::cursor::Cursor;
use super::{Corrupt, Result};

/// What every object container file begins with.
pub(crate) const MAGIC: &[u8; 4] = b"Obj\x01";

pub(super) const SYNC_BYTES: usize = 16;

/// The header of a file, and where its blocks are.
#[derive(Debug)]
pub(super) struct Container<'a> {
    /// The schema of the writer, in JSON.
    pub(super) schema: &'a [u8],
    pub(super) codec: Codec,
    pub(super) blocks: Vec<Block>,
}

/// A data block, and where its data lies in the file, compressed as the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// How many objects the block says it has: not to be trusted.
    pub(super) objects: u64,
    pub(super) data: Range<usize>,
}

impl<'a> Container<'a> {
    /// Reads the header and the frame of every block. The file must end where a block ends.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(bytes.strip_prefix(MAGIC).ok_or("it does not begin as an Avro file does")?);
        let metadata = header_metadata(&mut cursor)?;
        let sync = cursor.take(SYNC_BYTES)?;
        let schema = metadata.get(&b"avro.schema"[..]).copied().ok_or("its header has no avro.schema")?;
        let codec = Codec::parse(metadata.get(&b"avro.codec"[..]).copied())?;
        let mut blocks = vec![];
        while !cursor.is_empty() {
            let block = next_block(bytes.len(), &mut cursor, sync);
            blocks.push(block.map_err(|why| in_block(blocks.len(), why))?);
        }
        Ok(Self { schema, codec, blocks })
    }
}

/// What the header of a file has for a key.
pub(super) fn header_value<'a>(bytes: &'a [u8], key: &str) -> Result<Option<&'a [u8]>> {
    let mut cursor = Cursor::new(bytes.strip_prefix(MAGIC).ok_or("it does not begin as an Avro file does")?);
    Ok(header_metadata(&mut cursor)?.get(key.as_bytes()).copied())
}

/// The block at the cursor, which runs to the end of a file of `file_bytes`.
fn next_block(file_bytes: usize, cursor: &mut Cursor<'_>, sync: &[u8]) -> Result<Block> {
    let objects = u64::try_from(cursor.long()?).map_err(|_| "the block's object count is negative")?;
    let data = cursor.bytes()?;
    let end = file_bytes - cursor.rest().len();
    match cursor.take(SYNC_BYTES)? == sync {
        true => Ok(Block { objects, data: end - data.len()..end }),
        false => Err("the sync marker after the block is wrong".into()),
    }
}

/// Says in which block it is, by its place in the file.
#[cold]
pub(super) fn in_block(block: usize, why: Corrupt) -> Corrupt {
    format!("data block {}: {why}", block + 1).into()
}

/// The header's map of bytes. Iceberg's own keys in it (`format-version`, `content`, …) are not needed here.
fn header_metadata<'a>(cursor: &mut Cursor<'a>) -> Result<HashMap<&'a [u8], &'a [u8]>> {
    let mut metadata = HashMap::new();
    while let Some(items) = cursor.items()? {
        for _ in 0..items.count {
            let key = cursor.bytes()?;
            if metadata.insert(key, cursor.bytes()?).is_some() {
                return Err(format!("its header has the key {:?} twice", String::from_utf8_lossy(key)).into());
            }
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::testing::{SYNC, bytes, container, long};

    const SCHEMA: &str = r#"{"type":"record","name":"r","fields":[]}"#;

    fn error(file: &[u8]) -> String {
        Container::open(file).unwrap_err().to_string()
    }

    #[test]
    fn blocks_are_found_in_order_to_the_end_of_the_file() {
        let file = container(SCHEMA, "null", &[(2, b"ab"), (0, b""), (1, b"c")]);
        let container = Container::open(&file).unwrap();
        assert_eq!(container.codec, Codec::Null);
        let blocks: Vec<_> = container.blocks.iter().map(|block| (block.objects, &file[block.data.clone()])).collect();
        assert_eq!(blocks, [(2, &b"ab"[..]), (0, b""), (1, b"c")]);
    }

    #[test]
    fn a_header_may_give_the_size_of_its_map() {
        let entry = [bytes(b"avro.schema"), bytes(SCHEMA.as_bytes())].concat();
        let file = [MAGIC.to_vec(), long(-1), long(entry.len() as i64), entry, long(0), SYNC.to_vec()].concat();
        assert_eq!(Container::open(&file).unwrap().blocks, []);
    }

    #[test]
    fn faults_of_the_framing_are_errors() {
        let file = container(SCHEMA, "null", &[(1, b"a")]);
        let mut wrong_sync = file.clone();
        *wrong_sync.last_mut().unwrap() ^= 1;
        let mut trailing = file.clone();
        trailing.push(0);
        let key = [bytes(b"k"), bytes(b"v")].concat();
        for (file, why) in [
            (b"PAR1".to_vec(), "it does not begin as an Avro file does"),
            (vec![], "it does not begin as an Avro file does"),
            (wrong_sync, "data block 1: the sync marker after the block is wrong"),
            (trailing, "data block 2: the data ends in the middle of a value"),
            (container(SCHEMA, "null", &[(-1, b"a")]), "data block 1: the block's object count is negative"),
            ([MAGIC.to_vec(), long(0), SYNC.to_vec()].concat(), "its header has no avro.schema"),
            ([MAGIC.to_vec(), long(2), key.clone(), key, long(0)].concat(), "its header has the key \"k\" twice"),
            ([MAGIC.to_vec(), long(i64::MAX)].concat(), "the data ends in the middle of a value"),
        ] {
            assert_eq!(error(&file), why);
        }
    }
}
