//! Bounds-checked reads of Avro's binary encoding (Avro specification, "Binary Encoding").

use super::Result;

const TOO_SHORT: &str = "the data ends in the middle of a value";
const BAD_VARINT: &str = "a number takes more than 64 bits";
const NEGATIVE: &str = "a length is negative";

/// 64 bits, seven in each.
const MAX_VARINT_BYTES: usize = 10;

/// A byte that has it is followed by another of the same number.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// How many bytes of a run of numbers are looked at together, so that the compiler makes vector instructions of it.
const CHUNK: usize = 32;

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

    /// Runs a step that is too rare or too large to be inlined, on a copy, so that the cursor itself stays in registers.
    #[inline(always)]
    pub(super) fn apart<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut copy = self.clone();
        let value = step(&mut copy)?;
        *self = copy;
        Ok(value)
    }

    #[inline(always)]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline(always)]
    pub(super) fn skip(&mut self, length: usize) -> Result<()> {
        self.take(length).map(|_| ())
    }

    /// An `int` or a `long`: zig-zag, base 128, least significant group first.
    #[inline(always)]
    pub(super) fn long(&mut self) -> Result<i64> {
        let zigzag = match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                u64::from(*byte)
            }
            [first, second, rest @ ..] if *second < 0x80 => {
                self.rest = rest;
                u64::from(*first & 0x7f) | u64::from(*second) << 7
            }
            _ => self.apart(Self::long_varint)?,
        };
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64> {
        let Some((chunk, rest)) = self.rest.split_first_chunk::<MAX_VARINT_BYTES>() else {
            return self.varint_near_the_end();
        };
        let [low @ .., ninth, tenth] = chunk;
        let word = u64::from_le_bytes(*low);
        let ends = !word & HIGH_BITS;
        if ends != 0 {
            let bits = ends.trailing_zeros() + 1;
            self.rest = &self.rest[bits as usize / 8..];
            return Ok(join_groups(word & u64::MAX >> (64 - bits)));
        }
        let value = join_groups(word) | u64::from(ninth & 0x7f) << 56;
        if *ninth < 0x80 {
            self.rest = &self.rest[MAX_VARINT_BYTES - 1..];
            return Ok(value);
        }
        // The tenth group holds the 64th bit alone.
        if *tenth > 1 {
            return Err(BAD_VARINT.into());
        }
        self.rest = rest;
        Ok(value | u64::from(*tenth) << 63)
    }

    #[cold]
    fn varint_near_the_end(&mut self) -> Result<u64> {
        let mut value = 0;
        for (group, byte) in self.rest.iter().enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * group);
            if *byte < 0x80 {
                self.rest = &self.rest[group + 1..];
                return Ok(value);
            }
        }
        Err(TOO_SHORT.into())
    }

    /// Walks over so many `int`s or `long`s, by the bytes that end one. That each fits into 64 bits is not checked.
    #[inline(always)]
    pub(super) fn skip_longs(&mut self, count: u64) -> Result<()> {
        match (count, self.rest) {
            (1, [byte, rest @ ..]) if *byte < 0x80 => {
                self.rest = rest;
                Ok(())
            }
            _ => self.apart(|cursor| cursor.skip_run_of_longs(count)),
        }
    }

    #[inline(never)]
    fn skip_run_of_longs(&mut self, mut count: u64) -> Result<()> {
        let mut rest = self.rest;
        // None of them is the last one, so a whole chunk can be taken.
        while count > CHUNK as u64
            && let Some((chunk, after)) = rest.split_first_chunk::<CHUNK>()
        {
            count -= chunk.iter().map(|byte| u64::from(*byte < 0x80)).sum::<u64>();
            rest = after;
        }
        while let Some((word, after)) = rest.split_first_chunk::<8>() {
            // The high bit of each byte that ends a number.
            let mut ends = !u64::from_le_bytes(*word) & HIGH_BITS;
            let numbers = (ends >> 7).wrapping_mul(0x0101_0101_0101_0101) >> 56;
            if numbers < count {
                count -= numbers;
                rest = after;
                continue;
            }
            for _ in 1..count {
                ends &= ends.wrapping_sub(1);
            }
            let length = if count == 0 { 0 } else { ends.trailing_zeros() as usize / 8 + 1 };
            self.rest = &rest[length..];
            return Ok(());
        }
        while count > 0 {
            let (byte, after) = rest.split_first().ok_or(TOO_SHORT)?;
            count -= u64::from(*byte < 0x80);
            rest = after;
        }
        self.rest = rest;
        Ok(())
    }

    /// Walks over so many pairs of an `int` or `long`, and `bytes` or a `string`.
    pub(super) fn skip_longs_with_bytes(&mut self, count: u64) -> Result<()> {
        let data = self.rest;
        let mut position = 0;
        let mut lengths = 0;
        for _ in 0..count {
            // Column ids have one or two bytes, and bounds are short: their length has one.
            match data.get(position..).and_then(|rest| rest.first_chunk()) {
                Some(&[key, length, _]) if (key | length) < 0x80 => {
                    lengths |= length;
                    position += 2 + usize::from(length >> 1);
                }
                Some(&[first, second, length]) if first >= 0x80 && (second | length) < 0x80 => {
                    lengths |= length;
                    position += 3 + usize::from(length >> 1);
                }
                _ => {
                    let mut pair = Cursor::new(data.get(position..).ok_or(TOO_SHORT)?);
                    pair.long()?;
                    pair.skip_bytes()?;
                    position = data.len() - pair.rest.len();
                }
            }
        }
        // The lowest bit is the sign.
        if lengths & 1 != 0 {
            return Err(NEGATIVE.into());
        }
        self.rest = data.get(position..).ok_or(TOO_SHORT)?;
        Ok(())
    }

    /// The length of what follows; what follows is not known to be there.
    #[inline(always)]
    pub(super) fn length(&mut self) -> Result<usize> {
        let length = self.long()?;
        usize::try_from(length).map_err(|_| NEGATIVE.into())
    }

    /// `bytes` or a `string`.
    #[inline(always)]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    #[inline(always)]
    pub(super) fn skip_bytes(&mut self) -> Result<()> {
        self.bytes().map(|_| ())
    }

    /// Whether a union of two branches takes the one whose index is encoded as `null`, 0 or 2.
    #[inline(always)]
    pub(super) fn is_null(&mut self, null: u8) -> Result<bool> {
        match self.rest {
            [branch @ (0 | 2), rest @ ..] => {
                self.rest = rest;
                Ok(*branch == null)
            }
            _ => self.apart(|cursor| Ok(cursor.choice(2)? == usize::from(null / 2))),
        }
    }

    /// The index of a union's branch or an enum's symbol, of which there are `choices`.
    #[inline(never)]
    pub(super) fn choice(&mut self, choices: usize) -> Result<usize> {
        let index = self.long()?;
        match usize::try_from(index) {
            Ok(index) if index < choices => Ok(index),
            _ => Err(format!("a union or enum has {choices} choices, but choice {index} is taken").into()),
        }
    }

    /// The head of the next block of an array or a map, `None` after the last.
    #[inline(always)]
    pub(super) fn items(&mut self) -> Result<Option<Items>> {
        match self.long()? {
            0 => Ok(None),
            count if count > 0 => Ok(Some(Items { count: count as u64, bytes: None })),
            // A negative count is followed by the block's size in bytes, so that it can be jumped over.
            count => Ok(Some(Items { count: count.unsigned_abs(), bytes: Some(self.length()?) })),
        }
    }
}

/// The number whose eight groups of seven bits are in these bytes, the least significant first.
fn join_groups(word: u64) -> u64 {
    let sevens = word & !HIGH_BITS;
    let fourteens = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let half = fourteens & 0x0000_3fff_0000_3fff | (fourteens & 0x3fff_0000_3fff_0000) >> 2;
    half & 0x0fff_ffff | (half & 0x0fff_ffff_0000_0000) >> 4
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
    use crate::scan::testing::{bytes, long};

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
            cursor.skip_longs(1).unwrap();
            assert!(cursor.is_empty(), "{bytes:x?}");
        }
        // Of every length, at the end of the data and ahead of more.
        for number in (0..64)
            .flat_map(|bit| [1i64 << bit, (1i64 << bit).wrapping_neg(), (1i64 << bit).wrapping_add(0x1234_5678_9abc)])
        {
            for behind in [0, 1, 20] {
                let bytes = [long(number), vec![0xff; behind]].concat();
                let mut cursor = Cursor::new(&bytes);
                assert_eq!(cursor.long().unwrap(), number, "{bytes:x?}");
                assert_eq!(cursor.rest.len(), behind, "{bytes:x?}");
            }
        }
        for (bytes, why) in [
            (&[][..], TOO_SHORT),
            (&[0x80], TOO_SHORT),
            (&[0xff; 9], TOO_SHORT),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], BAD_VARINT),
            (&[0x80; 11], BAD_VARINT),
        ] {
            assert_eq!(Cursor::new(bytes).long().unwrap_err().to_string(), why, "{bytes:x?}");
        }
    }

    #[test]
    fn runs_of_numbers_are_walked_over_one_number_as_well_as_hundreds() {
        let numbers: Vec<Vec<u8>> = (0..300).map(|i: i64| long(i.pow(5) * (i % 3 - 1))).collect();
        for (from, to) in [(0, 0), (0, 1), (5, 7), (0, 8), (17, 80), (0, 300), (100, 300)] {
            let (run, behind) = (numbers[from..to].concat(), numbers.concat());
            for behind in [&behind[..0], &behind[..3], &behind[..]] {
                let data = [&run[..], behind].concat();
                let mut cursor = Cursor::new(&data);
                cursor.skip_longs((to - from) as u64).unwrap();
                assert_eq!(cursor.rest, behind, "{from}..{to}");
            }
            let short = Cursor::new(&run).skip_longs((to - from) as u64 + 1).unwrap_err();
            assert_eq!(short.to_string(), TOO_SHORT);
        }
    }

    #[test]
    fn pairs_of_numbers_and_bytes_are_walked_over_whatever_their_lengths() {
        let pair = |i: usize| [long(i as i64 * 9), bytes(&vec![0xff; i * i % 300])].concat();
        let pairs: Vec<u8> = (0..60).flat_map(pair).collect();
        for behind in [0, 1, 10] {
            let data = [&pairs[..], &vec![0x80; behind]].concat();
            let mut cursor = Cursor::new(&data);
            cursor.skip_longs_with_bytes(60).unwrap();
            assert_eq!(cursor.rest.len(), behind);
        }
        for length in 0..pairs.len() {
            let error = Cursor::new(&pairs[..length]).skip_longs_with_bytes(60).unwrap_err();
            assert_eq!(error.to_string(), TOO_SHORT, "{length}");
        }
        let negative = [&long(1)[..], &long(-1), &pairs].concat();
        assert_eq!(Cursor::new(&negative).skip_longs_with_bytes(2).unwrap_err().to_string(), NEGATIVE);
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
