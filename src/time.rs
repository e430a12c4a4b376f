//! Points in time and lengths of time, as SQL writes them.
//!
//! A cut-off that is read wrongly deletes the wrong snapshots, so nothing here is lenient: an offset is honoured or refused,
//! never ignored; a date that does not exist is an error, not the next day; a number without a unit has no meaning.
//! Where a rule leaves a choice, the earlier instant and the longer duration are taken, because both delete less.
//!
//! Timestamps: `YYYY-MM-DD`, or `YYYY-MM-DD[T ]HH:MM[:SS[.fraction]]` followed by nothing (the session's zone), `Z`, an offset
//! `±HH[:MM]`, or a blank and a zone name. Durations: `1d12h30m` with the units `y` (365 days) `w` `d` `h` `m` `s` `ms`
//! in falling order, or one number with a fraction such as `1.5d`.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Utc};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::ScalarValue;

/// Why a value was refused, and what would be right; the caller adds which argument it was.
pub(crate) type Why = String;

const TIMESTAMP_FORMS: &str = "write it as '2026-01-31', '2026-01-31 12:00:00' (session time zone), \
                               '2026-01-31T12:00:00Z' or '2026-01-31 12:00:00+01:00'";
const DURATION_FORMS: &str =
    "write it as '7d', '7 days', '1d12h30m' or '1.5d' (units y w d h m s ms or their names, in lower case)";

const MS_PER_DAY: i64 = 86_400_000;

/// 2000-01-01 and 2100-01-01. Iceberg is younger than the one, and nobody's cut-off lies beyond the other: a number
/// outside counts seconds, microseconds or nanoseconds.
const PLAUSIBLE_MS: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

/// The zone of timestamps that name none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionZone(Tz);

impl SessionZone {
    /// The zone of `datafusion.execution.time_zone`; UTC when that is not set.
    pub(crate) fn new(time_zone: Option<&str>) -> Result<Self, Why> {
        let name = time_zone.unwrap_or("UTC");
        Tz::from_str(name).map(Self).map_err(|_| {
            format!("the session's time zone '{name}' is unknown; SET datafusion.execution.time_zone = 'UTC'")
        })
    }
}

impl fmt::Display for SessionZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a timestamp, as ms since the epoch. Digits below the millisecond are cut off.
pub(crate) fn parse_timestamp(text: &str, zone: SessionZone) -> Result<i64, Why> {
    let malformed = || format!("'{text}' is not a timestamp; {TIMESTAMP_FORMS}");
    let (date_text, rest) = text.split_at_checked(10).ok_or_else(malformed)?;
    let [year, month, day] = fixed_digits(date_text, "dddd-dd-dd").ok_or_else(malformed)?;
    let date = i32::try_from(year)
        .ok()
        .and_then(|year| NaiveDate::from_ymd_opt(year, month, day))
        .ok_or_else(|| format!("'{text}': there is no such date"))?;
    if rest.is_empty() {
        return start_of_day(date, zone.0).ok_or_else(|| format!("'{text}' is out of range"));
    }
    let clock = rest.strip_prefix(['T', ' ']).ok_or_else(malformed)?;
    let (time, zone_text) = split_clock(clock).ok_or_else(malformed)?;
    let time = time.ok_or_else(|| format!("'{text}': there is no such time of day"))?;
    let zone = parse_zone(zone_text, zone.0)
        .ok_or_else(|| format!("'{text}': '{}' is no time zone; {TIMESTAMP_FORMS}", zone_text.trim_start()))?;
    instant(date.and_time(time), zone).map_err(|why| format!("'{text}' {why}"))
}

/// Reads digits at the places of `d` in the pattern; all other characters must be the pattern's.
fn fixed_digits<const N: usize>(text: &str, pattern: &str) -> Option<[u32; N]> {
    if text.len() != pattern.len() {
        return None;
    }
    let mut numbers = [0_u32; N];
    let mut index = 0;
    for (byte, expected) in text.bytes().zip(pattern.bytes()) {
        if expected != b'd' {
            if byte != expected {
                return None;
            }
            index += 1;
        } else if byte.is_ascii_digit() {
            let number = numbers.get_mut(index)?;
            *number = *number * 10 + u32::from(byte - b'0');
        } else {
            return None;
        }
    }
    Some(numbers)
}

/// Splits `HH:MM[:SS[.fraction]]` from the zone behind it. The inner option is `None` for 25:00 and the like.
fn split_clock(text: &str) -> Option<(Option<NaiveTime>, &str)> {
    let [hour, minute] = fixed_digits(text.get(..5)?, "dd:dd")?;
    let mut rest = text.get(5..)?;
    let (mut second, mut nanosecond) = (0, 0);
    if let Some(after) = rest.strip_prefix(':') {
        [second] = fixed_digits(after.get(..2)?, "dd")?;
        rest = after.get(2..)?;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if !(1..=9).contains(&digits) {
                return None;
            }
            nanosecond = format!("{:0<9}", &after[..digits]).parse().ok()?;
            rest = &after[digits..];
        }
    }
    Some((NaiveTime::from_hms_nano_opt(hour, minute, second, nanosecond), rest))
}

fn parse_zone(text: &str, session: Tz) -> Option<Tz> {
    if text.is_empty() {
        return Some(session);
    }
    let name = text.strip_prefix(' ').unwrap_or(text);
    if name == "Z" {
        return Tz::from_str("UTC").ok();
    }
    if let Some(offset) = name.strip_prefix(['+', '-']) {
        let [hours, minutes] =
            fixed_digits(offset, "dd:dd").or_else(|| fixed_digits(offset, "dd").map(|[h]| [h, 0]))?;
        let valid = minutes < 60 && hours * 60 + minutes <= 18 * 60;
        return valid.then(|| Tz::from_str(&format!("{}{hours:02}:{minutes:02}", &name[..1])).ok()).flatten();
    }
    // A name needs the blank, and must not be read as an offset.
    let is_name = text.starts_with(' ') && name.starts_with(|first: char| first.is_ascii_alphabetic());
    is_name.then(|| Tz::from_str(name).ok()).flatten()
}

/// The instant of a wall-clock time. Of the two instants of a repeated hour the earlier is taken.
fn instant(local: NaiveDateTime, zone: Tz) -> Result<i64, Why> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(time) => Ok(time.timestamp_millis()),
        LocalResult::Ambiguous(a, b) => Ok(a.timestamp_millis().min(b.timestamp_millis())),
        LocalResult::None => {
            Err("does not exist in its time zone: the clocks were put forward over it. Give another time, or an offset"
                .into())
        }
    }
}

/// The first instant of a day: midnight, or when that is skipped in the zone, the first quarter of an hour after it.
fn start_of_day(date: NaiveDate, zone: Tz) -> Option<i64> {
    let midnight = date.and_time(NaiveTime::MIN);
    (0..96).find_map(|quarter| instant(midnight.checked_add_signed(TimeDelta::minutes(15 * quarter))?, zone).ok())
}

/// Reads a duration, in ms. A fraction of a millisecond counts as a whole one.
pub(crate) fn parse_duration(text: &str) -> Result<i64, Why> {
    let malformed = |why: &str| format!("'{text}' is not a duration: {why}; {DURATION_FORMS}");
    let body = text.trim_matches(' ');
    if body.is_empty() {
        return Err(malformed("it is empty"));
    }
    if body.starts_with('-') {
        return Err(malformed("it is negative"));
    }
    if body.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(malformed("a bare number has no unit"));
    }
    if body.contains('.') {
        return parse_fraction(body)
            .ok_or_else(|| malformed("a fraction needs exactly one number and one unit"))?
            .ok_or_else(|| malformed("it is too long"));
    }
    let (mut rest, mut total, mut last) = (body, 0_i64, i64::MAX);
    while !rest.is_empty() {
        let (number, unit_text, after) = split_number(rest).ok_or_else(|| malformed("every number needs a unit"))?;
        let unit = unit_ms(unit_text).ok_or_else(|| malformed(&format!("'{unit_text}' is no unit")))?;
        if unit >= last {
            return Err(malformed("each unit may stand once, the longer before the shorter"));
        }
        let part = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| malformed("it is too long"))?;
        (rest, last) = (after, unit);
    }
    Ok(total)
}

/// `12h30m` into `12`, `h`, `30m`; blanks around a unit mean nothing.
fn split_number(text: &str) -> Option<(&str, &str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = (rest[..unit].trim_matches(' '), &rest[unit..]);
    (digits > 0 && !unit.is_empty()).then_some((number, unit, rest))
}

/// `1.5d`. The outer option is `None` when the form is wrong, the inner one when the result is too large.
fn parse_fraction(text: &str) -> Option<Option<i64>> {
    let (whole, rest) = text.split_once('.')?;
    let (fraction, unit, after) = split_number(rest)?;
    let unit = i128::from(unit_ms(unit)?);
    let well_formed =
        after.is_empty() && !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit()) && fraction.len() <= 9;
    if !well_formed {
        return None;
    }
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let Ok(whole) = whole.parse::<i64>() else { return Some(None) };
    let scaled = (i128::from(whole) * scale + fraction.parse::<i128>().ok()?) * unit;
    Some(i64::try_from((scaled + scale - 1) / scale).ok())
}

fn unit_ms(unit: &str) -> Option<i64> {
    Some(match unit {
        "ms" => 1,
        "s" | "second" | "seconds" => 1_000,
        "m" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => MS_PER_DAY,
        "w" | "week" | "weeks" => 7 * MS_PER_DAY,
        "y" | "year" | "years" => 365 * MS_PER_DAY,
        _ => return None,
    })
}

/// A text where a point in time is expected: a timestamp, or a duration before now.
pub(crate) fn timestamp_from_text(text: &str, zone: SessionZone, now_ms: i64) -> Result<i64, Why> {
    let looks_like_duration = text.trim_matches(' ').ends_with(|last: char| last.is_ascii_lowercase())
        && !text.contains(['-', ':', '/'])
        && text.trim_matches(' ').starts_with(|first: char| first.is_ascii_digit());
    if looks_like_duration {
        return before(now_ms, parse_duration(text)?);
    }
    let is_date = text.bytes().take_while(u8::is_ascii_digit).count() == 4;
    parse_timestamp(text, zone)
        .map_err(|why| if is_date { why } else { format!("{why}; for a time before now, {DURATION_FORMS}") })
}

/// A number where a point in time is expected: ms since the epoch.
pub(crate) fn timestamp_from_number(number: i64) -> Result<i64, Why> {
    if PLAUSIBLE_MS.contains(&number) {
        return Ok(number);
    }
    let meant = if number < PLAUSIBLE_MS.start { "seconds" } else { "microseconds or nanoseconds" };
    Err(format!(
        "{number} as milliseconds since 1970 is not between the years 2000 and 2100 ({meant} were probably meant); \
         give milliseconds, or {TIMESTAMP_FORMS}"
    ))
}

/// A constant where a point in time is expected. `None` when its type is none that can be one.
pub(crate) fn timestamp_from_scalar(value: &ScalarValue, zone: SessionZone, now_ms: i64) -> Option<Result<i64, Why>> {
    if let Some(duration) = duration_from_scalar(value) {
        return Some(duration.and_then(|duration| before(now_ms, duration)));
    }
    let (ms, has_zone) = match value {
        ScalarValue::TimestampSecond(Some(v), tz) => (v.checked_mul(1_000), tz.is_some()),
        ScalarValue::TimestampMillisecond(Some(v), tz) => (Some(*v), tz.is_some()),
        ScalarValue::TimestampMicrosecond(Some(v), tz) => (Some(v.div_euclid(1_000)), tz.is_some()),
        ScalarValue::TimestampNanosecond(Some(v), tz) => (Some(v.div_euclid(1_000_000)), tz.is_some()),
        ScalarValue::Date32(Some(days)) => return Some(date(i64::from(*days), zone)),
        ScalarValue::Date64(Some(ms)) => return Some(date(ms.div_euclid(MS_PER_DAY), zone)),
        _ => return None,
    };
    let out_of_range = || "the timestamp is out of range".to_string();
    let ms = match ms {
        Some(ms) => ms,
        None => return Some(Err(out_of_range())),
    };
    if has_zone {
        return Some(Ok(ms));
    }
    Some(
        DateTime::<Utc>::from_timestamp_millis(ms)
            .ok_or_else(out_of_range)
            .and_then(|local| instant(local.naive_utc(), zone.0).map_err(|why| format!("{} {why}", local.naive_utc()))),
    )
}

fn date(days: i64, zone: SessionZone) -> Result<i64, Why> {
    days.checked_mul(MS_PER_DAY)
        .and_then(DateTime::<Utc>::from_timestamp_millis)
        .and_then(|midnight| start_of_day(midnight.date_naive(), zone.0))
        .ok_or_else(|| "the date is out of range".to_string())
}

/// A constant where a length of time is expected, in ms. `None` when its type is none that can be one.
pub(crate) fn duration_from_scalar(value: &ScalarValue) -> Option<Result<i64, Why>> {
    let nanos = match value {
        ScalarValue::DurationSecond(Some(v)) => i128::from(*v) * 1_000_000_000,
        ScalarValue::DurationMillisecond(Some(v)) => i128::from(*v) * 1_000_000,
        ScalarValue::DurationMicrosecond(Some(v)) => i128::from(*v) * 1_000,
        ScalarValue::DurationNanosecond(Some(v)) => i128::from(*v),
        ScalarValue::IntervalDayTime(Some(v)) => {
            i128::from(v.days) * 86_400_000_000_000 + i128::from(v.milliseconds) * 1_000_000
        }
        ScalarValue::IntervalYearMonth(Some(_)) => return Some(Err(months_refused())),
        ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months, days, nanoseconds })) => {
            if *months != 0 {
                return Some(Err(months_refused()));
            }
            i128::from(*days) * 86_400_000_000_000 + i128::from(*nanoseconds)
        }
        _ => return None,
    };
    if nanos < 0 {
        return Some(Err(format!("the interval is negative; {DURATION_FORMS}")));
    }
    Some(i64::try_from((nanos + 999_999) / 1_000_000).map_err(|_| "the interval is too long".to_string()))
}

fn months_refused() -> Why {
    "months and years have no fixed length; give days, such as INTERVAL '30' DAY or '30d'".to_string()
}

fn before(now_ms: i64, duration_ms: i64) -> Result<i64, Why> {
    now_ms.checked_sub(duration_ms).ok_or_else(|| "the duration reaches back too far".to_string())
}

/// A point in time as ISO 8601 with its offset.
pub(crate) fn format_ms(ms: i64) -> String {
    match chrono::DateTime::from_timestamp_millis(ms) {
        Some(time) => time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
        None if ms < 0 => "the beginning of time".to_string(),
        None => "the end of time".to_string(),
    }
}

/// A length of time as Trino prints it: two decimals of the largest unit that fits.
pub(crate) fn format_duration(ms: i64) -> String {
    const UNITS: [(&str, i64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let (unit, length) = UNITS.into_iter().find(|(_, length)| ms >= *length).unwrap_or(("ms", 1));
    format!("{:.2}{unit}", ms as f64 / length as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> SessionZone {
        SessionZone::new(Some(name)).unwrap()
    }

    fn utc(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    #[test]
    fn timestamps_mean_the_instant_they_say() {
        for (text, expected) in [
            ("2024-01-03", "2024-01-03T00:00:00Z"),
            ("2024-01-03 04:05", "2024-01-03T04:05:00Z"),
            ("2024-01-03T04:05:06", "2024-01-03T04:05:06Z"),
            ("2024-01-03 04:05:06.7", "2024-01-03T04:05:06.700Z"),
            ("2024-01-03 04:05:06.789999999", "2024-01-03T04:05:06.789Z"),
            ("1969-12-31 23:59:59.9999", "1969-12-31T23:59:59.999Z"),
            ("2024-01-03T04:05:06Z", "2024-01-03T04:05:06Z"),
            ("2024-01-03 04:05:06 UTC", "2024-01-03T04:05:06Z"),
            ("2024-01-03 04:05:06 Z", "2024-01-03T04:05:06Z"),
            ("2024-01-03T04:05:06+02:00", "2024-01-03T02:05:06Z"),
            ("2024-01-03 04:05:06 +02:00", "2024-01-03T02:05:06Z"),
            ("2024-01-03 04:05-08", "2024-01-03T12:05:00Z"),
            ("2024-07-03 04:05:06 Europe/Berlin", "2024-07-03T02:05:06Z"),
            ("2024-02-29", "2024-02-29T00:00:00Z"),
        ] {
            assert_eq!(parse_timestamp(text, zone("UTC")), Ok(utc(expected)), "{text}");
        }
    }

    #[test]
    fn a_timestamp_without_a_zone_is_in_the_session_zone() {
        assert_eq!(parse_timestamp("2024-07-03", zone("Europe/Berlin")), Ok(utc("2024-07-02T22:00:00Z")));
        assert_eq!(parse_timestamp("2024-01-03 01:00", zone("+05:30")), Ok(utc("2024-01-02T19:30:00Z")));
        assert_eq!(parse_timestamp("2024-01-03 01:00Z", zone("Europe/Berlin")), Ok(utc("2024-01-03T01:00:00Z")));
    }

    #[test]
    fn whatever_is_no_timestamp_is_refused() {
        for (text, why) in [
            ("", "is not a timestamp"),
            ("garbage", "is not a timestamp"),
            ("2024", "is not a timestamp"),
            ("2024-01", "is not a timestamp"),
            ("2024-1-3", "is not a timestamp"),
            ("20240103", "is not a timestamp"),
            ("2024/01/03", "is not a timestamp"),
            (" 2024-01-03", "is not a timestamp"),
            ("2024-01-03 ", "is not a timestamp"),
            ("2024-01-03 04", "is not a timestamp"),
            ("2024-01-03 4:05", "is not a timestamp"),
            ("2024-01-03 04:05:06.", "is not a timestamp"),
            ("2024-01-03 04:05:06.1234567890", "is not a timestamp"),
            ("2024-01-0３", "is not a timestamp"),
            ("2024-02-31", "no such date"),
            ("2024-13-01", "no such date"),
            ("2023-02-29 00:00", "no such date"),
            ("2024-01-03 25:00:00", "no such time"),
            ("2024-01-03 24:00:00", "no such time"),
            ("2024-01-03 23:60:00", "no such time"),
            ("2024-01-03 23:59:60", "no such time"),
            ("2024-01-03 00:00:00 garbage", "is no time zone"),
            ("2024-01-03 00:00:00garbage", "is no time zone"),
            ("2024-01-03 00:00:00UTC", "is no time zone"),
            ("2024-01-03 00:00:00+19:00", "is no time zone"),
            ("2024-01-03 00:00:00+2", "is no time zone"),
            ("2024-01-03 00:00:00+0200", "is no time zone"),
            ("2024-01-03 00:00:00+02:00x", "is no time zone"),
        ] {
            let error = parse_timestamp(text, zone("UTC")).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_skipped_hour_is_refused_and_a_repeated_one_is_the_first() {
        let berlin = zone("Europe/Berlin");
        let gap = parse_timestamp("2024-03-31 02:30", berlin).unwrap_err();
        assert!(gap.contains("clocks were put forward"), "{gap}");
        assert_eq!(parse_timestamp("2024-10-27 02:30", berlin), Ok(utc("2024-10-27T00:30:00Z")));
        // Cairo skipped midnight on this day; the day itself began an hour later.
        assert_eq!(parse_timestamp("2024-04-26", zone("Africa/Cairo")), Ok(utc("2024-04-25T22:00:00Z")));
    }

    #[test]
    fn durations_have_one_grammar() {
        for (text, ms) in [
            ("7d", 7 * MS_PER_DAY),
            (" 7d ", 7 * MS_PER_DAY),
            ("7 days", 7 * MS_PER_DAY),
            ("1 day 12 hours 1 minute 1s", 129_661_000),
            ("1.5 weeks", 907_200_000),
            ("0s", 0),
            ("1d12h30m", 131_400_000),
            ("1y1w1d1h1m1s1ms", (365 + 7 + 1) * MS_PER_DAY + 3_661_001),
            ("500ms", 500),
            ("1.5d", 129_600_000),
            ("0.5ms", 1),
            ("1.000000001s", 1_001),
        ] {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn whatever_is_no_duration_is_refused() {
        for (text, why) in [
            ("", "empty"),
            ("7", "bare number"),
            ("1.5", "bare number"),
            ("-1d", "negative"),
            ("1D", "'D' is no unit"),
            ("1mo", "'mo' is no unit"),
            ("5us", "'us' is no unit"),
            ("7 moons", "'moons' is no unit"),
            ("7 Days", "'Days' is no unit"),
            ("12h1d", "longer before the shorter"),
            ("1d1d", "longer before the shorter"),
            ("1h30", "every number needs a unit"),
            ("d", "every number needs a unit"),
            ("P1D", "every number needs a unit"),
            ("1.5d12h", "exactly one number"),
            ("1.5.5d", "exactly one number"),
            (".5d", "exactly one number"),
            ("99999999999999d", "too long"),
            ("99999999999999999999d", "too long"),
            ("99999999999999.5y", "too long"),
            ("1 month", "'month' is no unit"),
            ("7 days ago", "'days ago' is no unit"),
            ("+1d", "every number needs a unit"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_duration_where_a_timestamp_is_expected_lies_before_now() {
        assert_eq!(timestamp_from_text("1d12h", zone("UTC"), 200_000_000), Ok(200_000_000 - 129_600_000));
        assert_eq!(timestamp_from_text("1970-01-02", zone("UTC"), 0), Ok(MS_PER_DAY));
        assert!(timestamp_from_text("7 moons", zone("UTC"), 0).unwrap_err().contains("is no unit"));
        assert!(timestamp_from_text("12345", zone("UTC"), 0).unwrap_err().contains("is not a timestamp"));
    }

    #[test]
    fn numbers_are_milliseconds_and_other_scales_are_noticed() {
        assert_eq!(timestamp_from_number(1_704_240_000_000), Ok(1_704_240_000_000));
        assert!(timestamp_from_number(1_704_240_000).unwrap_err().contains("seconds were probably meant"));
        assert!(timestamp_from_number(-1).is_err());
        assert!(timestamp_from_number(1_704_240_000_000_000).unwrap_err().contains("microseconds"));
    }

    #[test]
    fn timestamp_scalars_of_every_unit_mean_the_same_instant() {
        let ms = utc("2024-07-03T00:00:00Z");
        let tz = || Some("Europe/Berlin".into());
        for scalar in [
            ScalarValue::TimestampSecond(Some(ms / 1_000), tz()),
            ScalarValue::TimestampMillisecond(Some(ms), tz()),
            ScalarValue::TimestampMicrosecond(Some(ms * 1_000 + 999), tz()),
            ScalarValue::TimestampNanosecond(Some(ms * 1_000_000 + 999_999), tz()),
        ] {
            assert_eq!(timestamp_from_scalar(&scalar, zone("UTC"), 0), Some(Ok(ms)), "{scalar:?}");
        }
        let berlin = Some(Ok(ms - 7_200_000));
        for scalar in [
            ScalarValue::TimestampSecond(Some(ms / 1_000), None),
            ScalarValue::TimestampNanosecond(Some(ms * 1_000_000), None),
            ScalarValue::Date32(Some(i32::try_from(ms / MS_PER_DAY).unwrap())),
            ScalarValue::Date64(Some(ms)),
        ] {
            assert_eq!(timestamp_from_scalar(&scalar, zone("Europe/Berlin"), 0), berlin, "{scalar:?}");
        }
        let early = ScalarValue::TimestampMicrosecond(Some(-1), Some("UTC".into()));
        assert_eq!(timestamp_from_scalar(&early, zone("UTC"), 0), Some(Ok(-1)));
        assert_eq!(timestamp_from_scalar(&ScalarValue::Boolean(Some(true)), zone("UTC"), 0), None);
    }

    #[test]
    fn intervals_are_durations_unless_they_hold_months() {
        let interval = |months, days, nanoseconds| {
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months, days, nanoseconds }))
        };
        assert_eq!(duration_from_scalar(&interval(0, 7, 1)), Some(Ok(7 * MS_PER_DAY + 1)));
        assert!(duration_from_scalar(&interval(1, 0, 0)).unwrap().unwrap_err().contains("no fixed length"));
        assert!(duration_from_scalar(&interval(0, -1, 0)).unwrap().unwrap_err().contains("negative"));
        assert_eq!(duration_from_scalar(&ScalarValue::DurationSecond(Some(2))), Some(Ok(2_000)));
        assert_eq!(timestamp_from_scalar(&interval(0, 1, 0), zone("UTC"), 2 * MS_PER_DAY), Some(Ok(MS_PER_DAY)));
    }
}
