//! Bounds-checked reads of Avro's binary encoding (Avro specification, "Binary Encoding").

use super::Result;

const TOO_SHORT: &str = "the data ends in the middle of a value";
const BAD_VARINT: &str = "a number takes more than 64 bits";

/// A position in a byte slice. A failed read leaves it anywhere: the data is not usable after an error.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that were not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn skip(&mut self, length: usize) -> Result<()> {
        self.take(length).map(|_| ())
    }

    /// An `int` or a `long`: zig-zag, base 128, least significant group first.
    #[inline]
    pub(super) fn long(&mut self) -> Result<i64> {
        let zigzag = match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                u64::from(*byte)
            }
            _ => self.long_varint()?,
        };
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for (group, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * group);
            if *byte < 0x80 {
                // The tenth group holds the 64th bit alone.
                if group == 9 && *byte > 1 {
                    return Err(BAD_VARINT.into());
                }
                self.rest = &self.rest[group + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { TOO_SHORT } else { BAD_VARINT }.into())
    }

    #[inline]
    pub(super) fn skip_long(&mut self) -> Result<()> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => self.rest = rest,
            _ => {
                self.long_varint()?;
            }
        }
        Ok(())
    }

    /// The length of what follows; what follows is not known to be there.
    pub(super) fn length(&mut self) -> Result<usize> {
        let length = self.long()?;
        usize::try_from(length).map_err(|_| "a length is negative".into())
    }

    /// `bytes` or a `string`.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    #[inline]
    pub(super) fn skip_bytes(&mut self) -> Result<()> {
        self.bytes().map(|_| ())
    }

    /// The index of a union's branch or an enum's symbol, of which there are `choices`.
    #[inline]
    pub(super) fn choice(&mut self, choices: usize) -> Result<usize> {
        let index = self.long()?;
        match usize::try_from(index) {
            Ok(index) if index < choices => Ok(index),
            _ => Err(format!("a union or enum has {choices} choices, but choice {index} is taken").into()),
        }
    }

    /// The head of the next block of an array or a map, `None` after the last.
    pub(super) fn items(&mut self) -> Result<Option<Items>> {
        match self.long()? {
            0 => Ok(None),
            count if count > 0 => Ok(Some(Items { count: count as u64, bytes: None })),
            // A negative count is followed by the block's size in bytes, so that it can be jumped over.
            count => Ok(Some(Items { count: count.unsigned_abs(), bytes: Some(self.length()?) })),
        }
    }
}

/// The head of a block of array items or map entries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Items {
    /// How many items the block says it has: not to be trusted.
    pub(super) count: u64,
    /// The size of all of them, if the writer noted it.
    pub(super) bytes: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag_varints_of_at_most_64_bits() {
        for (bytes, number) in [
            (&[0x00][..], 0),
            (&[0x01], -1),
            (&[0x02], 1),
            (&[0x80, 0x01], 64),
            (&[0x80, 0x00], 0),
            (&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MAX),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MIN),
        ] {
            let mut cursor = Cursor::new(bytes);
            assert_eq!(cursor.long().unwrap(), number, "{bytes:x?}");
            assert!(cursor.is_empty(), "{bytes:x?}");
            let mut cursor = Cursor::new(bytes);
            cursor.skip_long().unwrap();
            assert!(cursor.is_empty(), "{bytes:x?}");
        }
        for (bytes, why) in [
            (&[][..], TOO_SHORT),
            (&[0x80], TOO_SHORT),
            (&[0xff; 9], TOO_SHORT),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], BAD_VARINT),
            (&[0x80; 11], BAD_VARINT),
        ] {
            assert_eq!(Cursor::new(bytes).long().unwrap_err().to_string(), why, "{bytes:x?}");
            assert_eq!(Cursor::new(bytes).skip_long().unwrap_err().to_string(), why, "{bytes:x?}");
        }
    }

    #[test]
    fn lengths_are_checked_against_the_bytes_there_are() {
        assert_eq!(Cursor::new(&[4, b'a', b'b', b'c']).bytes().unwrap(), b"ab");
        assert_eq!(Cursor::new(&[4, b'a']).bytes().unwrap_err().to_string(), TOO_SHORT);
        assert_eq!(Cursor::new(&[1, b'a']).bytes().unwrap_err().to_string(), "a length is negative");
        let huge = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, b'a'];
        assert_eq!(Cursor::new(&huge).bytes().unwrap_err().to_string(), TOO_SHORT);
    }

    #[test]
    fn blocks_of_items_may_carry_their_size() {
        assert_eq!(Cursor::new(&[0]).items().unwrap(), None);
        assert_eq!(Cursor::new(&[6]).items().unwrap(), Some(Items { count: 3, bytes: None }));
        assert_eq!(Cursor::new(&[5, 8]).items().unwrap(), Some(Items { count: 3, bytes: Some(4) }));
        let lowest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0];
        assert_eq!(Cursor::new(&lowest).items().unwrap(), Some(Items { count: 1 << 63, bytes: Some(0) }));
    }
}
