//! The framing of object container files (Avro specification, "Object Container Files").

use std::collections::HashMap;

use super::codec::Codec;
use super::cursor::Cursor;
use super::{Result, schema::Schema};

/// What every object container file begins with.
pub(crate) const MAGIC: &[u8; 4] = b"Obj\x01";

const SYNC_BYTES: usize = 16;

/// An opened file: its header, and the blocks that were not read yet.
#[derive(Debug)]
pub(super) struct Container<'a> {
    pub(super) schema: Schema,
    pub(super) codec: Codec,
    sync: [u8; SYNC_BYTES],
    rest: Cursor<'a>,
}

/// A data block as it lies in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// How many objects the block says it has: not to be trusted.
    pub(super) objects: u64,
    /// Its data, compressed as the header says.
    pub(super) data: &'a [u8],
}

impl<'a> Container<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(bytes.strip_prefix(MAGIC).ok_or("it does not begin as an Avro file does")?);
        let metadata = header_metadata(&mut cursor)?;
        let sync = cursor.take(SYNC_BYTES)?.try_into().map_err(|_| "the sync marker is cut short")?;
        let schema = Schema::parse(metadata.get(&b"avro.schema"[..]).ok_or("its header has no avro.schema")?)?;
        let codec = Codec::parse(metadata.get(&b"avro.codec"[..]).copied())?;
        Ok(Self { schema, codec, sync, rest: cursor })
    }

    /// The next block, `None` when the file ends where a block ends.
    pub(super) fn next_block(&mut self) -> Result<Option<Block<'a>>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let objects = u64::try_from(self.rest.long()?).map_err(|_| "the block's object count is negative")?;
        let data = self.rest.bytes()?;
        match self.rest.take(SYNC_BYTES)? == self.sync {
            true => Ok(Some(Block { objects, data })),
            false => Err("the sync marker after the block is wrong".into()),
        }
    }
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
        let mut container = match Container::open(file) {
            Ok(container) => container,
            Err(error) => return error.to_string(),
        };
        loop {
            match container.next_block() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error"),
                Err(error) => return error.to_string(),
            }
        }
    }

    #[test]
    fn blocks_come_in_order_and_the_file_ends_after_the_last() {
        let file = container(SCHEMA, "null", &[(2, b"ab"), (0, b""), (1, b"c")]);
        let mut container = Container::open(&file).unwrap();
        assert_eq!(container.codec, Codec::Null);
        for (objects, data) in [(2, &b"ab"[..]), (0, b""), (1, b"c")] {
            assert_eq!(container.next_block().unwrap(), Some(Block { objects, data }));
        }
        assert_eq!(container.next_block().unwrap(), None);
    }

    #[test]
    fn a_header_may_give_the_size_of_its_map() {
        let entry = [bytes(b"avro.schema"), bytes(SCHEMA.as_bytes())].concat();
        let file = [MAGIC.to_vec(), long(-1), long(entry.len() as i64), entry, long(0), SYNC.to_vec()].concat();
        assert_eq!(Container::open(&file).unwrap().next_block().unwrap(), None);
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
            (wrong_sync, "the sync marker after the block is wrong"),
            (trailing, "the data ends in the middle of a value"),
            (container(SCHEMA, "null", &[(-1, b"a")]), "the block's object count is negative"),
            ([MAGIC.to_vec(), long(0), SYNC.to_vec()].concat(), "its header has no avro.schema"),
            ([MAGIC.to_vec(), long(2), key.clone(), key, long(0)].concat(), "its header has the key \"k\" twice"),
            ([MAGIC.to_vec(), long(i64::MAX)].concat(), "the data ends in the middle of a value"),
        ] {
            assert_eq!(error(&file), why);
        }
    }
}
