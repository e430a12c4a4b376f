//! Decoding single values (table spec, "Binary single-value serialization"), as bounds are kept.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int32Array, Int64Array, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::DataType;

use crate::error::Result;
use crate::scan::arrow_type;
use crate::table::ResultType;

const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;
const DAY_NANOS: i64 = DAY_MICROS * 1000;

/// The Arrow type of a column's values. Those of a type that we don't know are shown as they are encoded.
pub(super) fn column_type(result: ResultType) -> DataType {
    match result {
        ResultType::Unknown => DataType::Binary,
        known => arrow_type(known),
    }
}

/// Values of one type. What is no value of the type is null.
pub(super) fn values<'v>(result: ResultType, encoded: impl Iterator<Item = Option<&'v [u8]>>) -> Result<ArrayRef> {
    macro_rules! each {
        ($decode:expr) => {
            encoded.map(|bytes| bytes.and_then($decode))
        };
    }
    let zone = |zoned: bool| zoned.then(|| Arc::from("UTC"));
    Ok(match (result, column_type(result)) {
        (ResultType::Boolean, _) => Arc::new(each!(boolean).collect::<BooleanArray>()),
        (ResultType::Int, _) => Arc::new(each!(int).collect::<Int32Array>()),
        (ResultType::Long, _) => Arc::new(each!(integer).collect::<Int64Array>()),
        (ResultType::Float, _) => Arc::new(each!(float).collect::<Float32Array>()),
        (ResultType::Double, _) => Arc::new(each!(double).collect::<Float64Array>()),
        (ResultType::Decimal { precision, .. }, data_type) => {
            let most = 10u128.pow(u32::from(precision));
            let decimal = |bytes| decimal(bytes).filter(|value| value.unsigned_abs() < most);
            Arc::new(each!(decimal).collect::<Decimal128Array>().with_data_type(data_type))
        }
        (ResultType::Date, _) => Arc::new(each!(int).collect::<Date32Array>()),
        (ResultType::Time, _) => Arc::new(each!(long).collect::<Time64MicrosecondArray>()),
        (ResultType::Timestamp { nanos: false, zoned }, _) => {
            let times = each!(|bytes| timestamp(bytes, DAY_MICROS));
            Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone_opt(zone(zoned)))
        }
        (ResultType::Timestamp { nanos: true, zoned }, _) => {
            let times = each!(|bytes| timestamp(bytes, DAY_NANOS));
            Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone_opt(zone(zoned)))
        }
        (ResultType::String, _) => Arc::new(each!(|bytes| std::str::from_utf8(bytes).ok()).collect::<StringArray>()),
        (_, DataType::FixedSizeBinary(size)) => {
            let fixed = each!(|bytes: &'v [u8]| (i32::try_from(bytes.len()) == Ok(size)).then_some(bytes));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, size)?)
        }
        (ResultType::Fixed(size), _) => {
            Arc::new(each!(|bytes: &'v [u8]| (bytes.len() == size).then_some(bytes)).collect::<BinaryArray>())
        }
        (ResultType::Uuid | ResultType::Binary | ResultType::Unknown, _) => Arc::new(encoded.collect::<BinaryArray>()),
    })
}

/// An int or a long: a bound may be older than the promotion of its column.
pub(super) fn integer(bytes: &[u8]) -> Option<i64> {
    int(bytes).map(i64::from).or_else(|| long(bytes))
}

/// Big-endian, with as few bytes as the number needs.
pub(super) fn decimal(bytes: &[u8]) -> Option<i128> {
    let (first, most) = (*bytes.first()?, size_of::<i128>());
    let sign = if first & 0x80 == 0 { 0 } else { 0xff };
    let missing = most.checked_sub(bytes.len())?;
    let mut whole = [sign; size_of::<i128>()];
    whole[missing..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(whole))
}

fn boolean(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [value] => Some(*value != 0),
        _ => None,
    }
}

fn int(bytes: &[u8]) -> Option<i32> {
    bytes.try_into().ok().map(i32::from_le_bytes)
}

fn long(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_le_bytes)
}

fn float(bytes: &[u8]) -> Option<f32> {
    bytes.try_into().ok().map(f32::from_le_bytes)
}

/// It may have been a float when the bound was written.
fn double(bytes: &[u8]) -> Option<f64> {
    float(bytes).map(f64::from).or_else(|| bytes.try_into().ok().map(f64::from_le_bytes))
}

/// It may have been a date when the bound was written.
fn timestamp(bytes: &[u8], day: i64) -> Option<i64> {
    match int(bytes) {
        Some(days) => i64::from(days).checked_mul(day),
        None => long(bytes),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Array;
    use datafusion::arrow::util::display::array_value_to_string;

    use super::*;

    const TYPES: [ResultType; 19] = [
        ResultType::Boolean,
        ResultType::Int,
        ResultType::Long,
        ResultType::Float,
        ResultType::Double,
        ResultType::Decimal { precision: 9, scale: 2 },
        ResultType::Decimal { precision: 38, scale: 0 },
        ResultType::Date,
        ResultType::Time,
        ResultType::Timestamp { nanos: false, zoned: false },
        ResultType::Timestamp { nanos: false, zoned: true },
        ResultType::Timestamp { nanos: true, zoned: false },
        ResultType::Timestamp { nanos: true, zoned: true },
        ResultType::String,
        ResultType::Uuid,
        ResultType::Fixed(5),
        ResultType::Fixed(1000),
        ResultType::Binary,
        ResultType::Unknown,
    ];

    fn shown(result: ResultType, bytes: &[u8]) -> Option<String> {
        let array = values(result, [Some(bytes)].into_iter()).unwrap();
        array.is_valid(0).then(|| array_value_to_string(&array, 0).unwrap())
    }

    #[test]
    fn values_are_those_of_the_spec_and_of_types_that_were_promoted_since() {
        let decimal = ResultType::Decimal { precision: 9, scale: 2 };
        let timestamp = |nanos| ResultType::Timestamp { nanos, zoned: true };
        for (result, bytes, expected) in [
            (ResultType::Boolean, &[0][..], "false"),
            (ResultType::Boolean, &[1], "true"),
            (ResultType::Int, &(-5i32).to_le_bytes(), "-5"),
            (ResultType::Long, &(1i64 << 40).to_le_bytes(), "1099511627776"),
            (ResultType::Long, &7i32.to_le_bytes(), "7"),
            (ResultType::Float, &1.5f32.to_le_bytes(), "1.5"),
            (ResultType::Double, &0.25f64.to_le_bytes(), "0.25"),
            (ResultType::Double, &1.5f32.to_le_bytes(), "1.5"),
            (decimal, &[0x04, 0xd2], "12.34"),
            (decimal, &[0xff], "-0.01"),
            (ResultType::Date, &17501i32.to_le_bytes(), "2017-12-01"),
            (ResultType::Time, &36_775_038_194i64.to_le_bytes(), "10:12:55.038194"),
            (timestamp(false), &1_512_123_175_038_194i64.to_le_bytes(), "2017-12-01T10:12:55.038194Z"),
            (timestamp(true), &1_512_123_175_000_000_001i64.to_le_bytes(), "2017-12-01T10:12:55.000000001Z"),
            (timestamp(false), &17501i32.to_le_bytes(), "2017-12-01T00:00:00Z"),
            (ResultType::String, "é".as_bytes(), "é"),
            (ResultType::String, &[], ""),
            (ResultType::Uuid, &[17; 16], "11111111111111111111111111111111"),
            (ResultType::Fixed(2), &[1, 2], "0102"),
            (ResultType::Binary, &[255], "ff"),
            (ResultType::Unknown, &[1, 2, 3], "010203"),
        ] {
            assert_eq!(shown(result, bytes).as_deref(), Some(expected), "{result:?} {bytes:?}");
        }
    }

    #[test]
    fn what_is_no_value_of_its_type_is_null() {
        for result in TYPES {
            let all_bytes = matches!(result, ResultType::Binary | ResultType::Unknown);
            let lengths = (0..40).filter(|length| {
                let bytes = vec![0xff; *length];
                let array = values(result, [None, Some(bytes.as_slice())].into_iter()).unwrap();
                assert_eq!((array.len(), array.data_type()), (2, &column_type(result)));
                assert!(array.is_null(0));
                array.is_valid(1)
            });
            let expected: &[usize] = match result {
                ResultType::Boolean => &[1],
                ResultType::Int | ResultType::Float | ResultType::Date => &[4],
                ResultType::Long | ResultType::Double | ResultType::Timestamp { .. } => &[4, 8],
                ResultType::Time => &[8],
                // Minus one, of any length that a 128-bit number has.
                ResultType::Decimal { .. } => &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
                ResultType::String => &[0],
                ResultType::Uuid => &[16],
                ResultType::Fixed(5) => &[5],
                _ => &[],
            };
            let lengths: Vec<_> = lengths.collect();
            assert!(all_bytes && lengths.len() == 40 || lengths == expected, "{result:?}: {lengths:?}");
        }
        for (result, bytes) in [
            (ResultType::Decimal { precision: 9, scale: 2 }, &[0x7f; 5][..]),
            (ResultType::Timestamp { nanos: true, zoned: false }, &i32::MAX.to_le_bytes()),
            (ResultType::String, &[b'a', 0xc3]),
        ] {
            assert_eq!(shown(result, bytes), None, "{result:?} {bytes:?}");
        }
    }
}
