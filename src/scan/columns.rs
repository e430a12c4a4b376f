//! Columns that rows are appended to: plain vectors, whose memory is taken once for a batch.

use datafusion::arrow::array::{NullBufferBuilder, PrimitiveArray, StringArray};
use datafusion::arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, Int32Type, Int64Type};

use super::avro::{Corrupt, Result};

/// The most memory that is taken for strings before they are there.
const MAX_EXPECTED_BYTES: usize = 2 << 20;

/// Strings one behind the other. That they are UTF-8 is checked for all of them together, which takes a fraction of the
/// time.
#[derive(Debug)]
pub(super) struct DenseStrings {
    expected_rows: usize,
    bytes: Vec<u8>,
    offsets: Vec<i32>,
}

impl DenseStrings {
    /// `rows`: how many strings are expected.
    pub(super) fn with_capacity(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { expected_rows: rows, bytes: vec![], offsets }
    }

    /// The length of all strings together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// # Errors
    /// When all strings together would have more than 2 GiB.
    #[inline]
    pub(super) fn push(&mut self, string: &[u8]) -> Result<()> {
        if self.bytes.is_empty() {
            // The paths of one manifest are about as long as each other.
            let expected = self.expected_rows.saturating_mul(string.len() + string.len() / 16);
            self.bytes.reserve(expected.min(MAX_EXPECTED_BYTES));
        }
        let end = i32::try_from(self.bytes.len() + string.len()).map_err(|_| "its paths take more than 2 GiB")?;
        self.bytes.extend_from_slice(string);
        self.offsets.push(end);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<StringArray> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        // Nothing else can be wrong with them.
        StringArray::try_new(offsets, Buffer::from_vec(self.bytes), None)
            .map_err(|_| Corrupt::from("a string is not UTF-8"))
    }
}

/// Integers that may be null.
#[derive(Debug)]
pub(super) struct Nullable<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    /// From the first null on: most columns have none.
    valid: Option<NullBufferBuilder>,
}

pub(super) type NullableLongs = Nullable<Int64Type>;
pub(super) type NullableInts = Nullable<Int32Type>;

impl<T: ArrowPrimitiveType> Nullable<T> {
    /// `rows`: how many values are expected.
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self { values: Vec::with_capacity(rows), valid: None }
    }

    #[inline]
    pub(super) fn push(&mut self, value: Option<T::Native>) {
        if value.is_none() || self.valid.is_some() {
            self.push_validity(value.is_some());
        }
        self.values.push(value.unwrap_or_default());
    }

    #[inline(never)]
    fn push_validity(&mut self, valid: bool) {
        let before = self.values.len();
        let bits = self.valid.get_or_insert_with(|| {
            let mut bits = NullBufferBuilder::new(self.values.capacity());
            bits.append_n_non_nulls(before);
            bits
        });
        bits.append(valid);
    }

    pub(super) fn finish(self) -> PrimitiveArray<T> {
        PrimitiveArray::new(self.values.into(), self.valid.and_then(|mut valid| valid.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_utf8_each_for_itself() {
        let strings = |parts: &[&[u8]]| {
            let mut column = DenseStrings::with_capacity(1);
            parts.iter().for_each(|part| column.push(part).unwrap());
            column.finish().map(|array| array.iter().flatten().map(str::to_string).collect::<Vec<_>>())
        };
        assert_eq!(strings(&["a".as_bytes(), "é".as_bytes(), b""]).unwrap(), ["a", "é", ""]);
        assert!(strings(&[b"\xff"]).is_err());
        assert!(strings(&[b"\xc3", b"\xa9"]).is_err(), "one character in two strings");
    }
    #[test]
    fn nulls_are_where_they_were_pushed() {
        for values in [vec![], vec![None], vec![Some(1), Some(2)], vec![Some(1), None, Some(3), None]] {
            let mut column = NullableLongs::with_capacity(1);
            values.iter().for_each(|value| column.push(*value));
            let array = column.finish();
            assert_eq!(array.iter().collect::<Vec<_>>(), values);
        }
    }
}
