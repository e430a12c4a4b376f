//! Bounds of partition values as text, as Iceberg's `Transform.toHumanString` writes them.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Timelike};
use datafusion::arrow::datatypes::{Decimal128Type, DecimalType};

use super::single_value::{decimal, integer};
use crate::table::ResultType;

/// Why a bound is not what its type says.
type Why = String;

/// A bound (table spec, "Binary single-value serialization") of a partition field that has this transform and values of this type.
/// Bytes of a type that isn't known are shown in base 64, as binary values are.
///
/// # Errors
/// When the bytes are no value of the type.
pub(super) fn bound(bytes: &[u8], transform: &str, result: ResultType) -> Result<String, Why> {
    let wrong = || format!("{bytes:02x?} is no value of type {result:?}");
    let value = match (transform, result) {
        ("year", _) => integer(bytes).map(|years| year(1970 + years)),
        ("month", _) => integer(bytes)
            .map(|months| format!("{}-{:02}", year(1970 + months.div_euclid(12)), 1 + months.rem_euclid(12))),
        ("day", _) => integer(bytes).and_then(day),
        ("hour", _) => integer(bytes).and_then(hour),
        _ => of_type(bytes, result),
    };
    value.ok_or_else(wrong)
}

fn of_type(bytes: &[u8], result: ResultType) -> Option<String> {
    match result {
        ResultType::Boolean => match bytes {
            [0] => Some("false".into()),
            [_] => Some("true".into()),
            _ => None,
        },
        ResultType::Int | ResultType::Long => integer(bytes).map(|value| value.to_string()),
        ResultType::Float => Some(format!("{:?}", f32::from_le_bytes(bytes.try_into().ok()?))),
        ResultType::Double => match bytes.len() {
            // It was a float when the bound was written.
            4 => of_type(bytes, ResultType::Float),
            _ => Some(format!("{:?}", f64::from_le_bytes(bytes.try_into().ok()?))),
        },
        ResultType::Decimal { precision, scale } => {
            decimal(bytes).map(|value| Decimal128Type::format_decimal(value, precision, scale))
        }
        ResultType::Date => integer(bytes).and_then(day),
        ResultType::Time => {
            let micros = u64::try_from(integer(bytes)?).ok()?;
            let seconds = u32::try_from(micros / 1_000_000).ok()?;
            let time = NaiveTime::from_num_seconds_from_midnight_opt(seconds, (micros % 1_000_000) as u32 * 1000)?;
            Some(clock(time))
        }
        ResultType::Timestamp { nanos, zoned } => {
            let value = integer(bytes)?;
            let time =
                if nanos { DateTime::from_timestamp_nanos(value) } else { DateTime::from_timestamp_micros(value)? };
            let zone = if zoned { "+00:00" } else { "" };
            Some(format!("{}T{}{zone}", date(time.date_naive()), clock(time.time())))
        }
        ResultType::String => std::str::from_utf8(bytes).ok().map(str::to_string),
        ResultType::Uuid => Some(uuid::Uuid::from_slice(bytes).ok()?.to_string()),
        ResultType::Fixed(_) | ResultType::Binary | ResultType::Unknown => Some(base64(bytes)),
    }
}

fn year(year: i64) -> String {
    if year < 0 { format!("-{:03}", year.unsigned_abs()) } else { format!("{year:04}") }
}

fn date(date: NaiveDate) -> String {
    date.format("%Y-%m-%d").to_string()
}

fn day(days: i64) -> Option<String> {
    NaiveDate::default().checked_add_signed(TimeDelta::try_days(days)?).map(date)
}

fn hour(hours: i64) -> Option<String> {
    let day = day(hours.div_euclid(24))?;
    Some(format!("{day}-{:02}", hours.rem_euclid(24)))
}

/// A time of day with as many digits of the second as it has.
fn clock(time: NaiveTime) -> String {
    let text = time.format("%H:%M:%S").to_string();
    match time.nanosecond() {
        0 => text,
        nanos => format!("{text}.{}", format!("{nanos:09}").trim_end_matches('0')),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, place| bits << 8 | u32::from(group.get(place).copied().unwrap_or(0)));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > group.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_look_as_iceberg_shows_them() {
        let int = |value: i32| value.to_le_bytes().to_vec();
        let long = |value: i64| value.to_le_bytes().to_vec();
        let timestamp = |nanos, zoned| ResultType::Timestamp { nanos, zoned };
        let decimal = ResultType::Decimal { precision: 9, scale: 2 };
        let uuid: Vec<u8> = (0..16).collect();
        for (bytes, transform, result, expected) in [
            (vec![1], "identity", ResultType::Boolean, "true"),
            (int(-5), "identity", ResultType::Int, "-5"),
            (int(7), "bucket[16]", ResultType::Int, "7"),
            (long(1 << 40), "truncate[10]", ResultType::Long, "1099511627776"),
            (int(3), "identity", ResultType::Long, "3"),
            (1.5f32.to_le_bytes().to_vec(), "identity", ResultType::Float, "1.5"),
            (1.0f32.to_le_bytes().to_vec(), "identity", ResultType::Double, "1.0"),
            (0.25f64.to_le_bytes().to_vec(), "identity", ResultType::Double, "0.25"),
            (vec![0x04, 0xd2], "identity", decimal, "12.34"),
            (vec![0xff], "identity", decimal, "-0.01"),
            (int(17501), "identity", ResultType::Date, "2017-12-01"),
            (int(-1), "identity", ResultType::Date, "1969-12-31"),
            (long(36_775_038_194), "identity", ResultType::Time, "10:12:55.038194"),
            (long(36_720_000_000), "identity", ResultType::Time, "10:12:00"),
            (long(1_512_123_175_038_194), "identity", timestamp(false, false), "2017-12-01T10:12:55.038194"),
            (long(1_512_123_175_500_000), "identity", timestamp(false, true), "2017-12-01T10:12:55.5+00:00"),
            (long(1_512_123_175_000_000_001), "identity", timestamp(true, false), "2017-12-01T10:12:55.000000001"),
            ("é".as_bytes().to_vec(), "truncate[1]", ResultType::String, "é"),
            (vec![], "identity", ResultType::String, ""),
            (uuid, "identity", ResultType::Uuid, "00010203-0405-0607-0809-0a0b0c0d0e0f"),
            (vec![1, 2, 3], "identity", ResultType::Binary, "AQID"),
            (vec![1, 2], "identity", ResultType::Fixed(2), "AQI="),
            (vec![255], "new[1]", ResultType::Unknown, "/w=="),
            (int(47), "year", ResultType::Int, "2017"),
            (int(575), "month", ResultType::Int, "2017-12"),
            (int(-1), "month", ResultType::Int, "1969-12"),
            (int(17501), "day", ResultType::Date, "2017-12-01"),
            (int(420_034), "hour", ResultType::Int, "2017-12-01-10"),
            (int(-1), "hour", ResultType::Int, "1969-12-31-23"),
        ] {
            assert_eq!(bound(&bytes, transform, result).as_deref(), Ok(expected), "{transform} {result:?}");
        }
    }

    #[test]
    fn what_is_no_value_of_the_type_is_said() {
        for (bytes, result) in [
            (vec![], ResultType::Boolean),
            (vec![1, 2, 3], ResultType::Int),
            (vec![0xff], ResultType::String),
            (vec![0; 17], ResultType::Decimal { precision: 38, scale: 0 }),
            (vec![0; 3], ResultType::Uuid),
            (i64::MAX.to_le_bytes().to_vec(), ResultType::Date),
            ((-1i64).to_le_bytes().to_vec(), ResultType::Time),
            (i64::MAX.to_le_bytes().to_vec(), ResultType::Timestamp { nanos: false, zoned: true }),
        ] {
            let why = bound(&bytes, "identity", result).unwrap_err();
            assert!(why.contains("is no value of type"), "{why}");
        }
        assert!(bound(&[1], "hour", ResultType::Int).is_err());
    }
}
