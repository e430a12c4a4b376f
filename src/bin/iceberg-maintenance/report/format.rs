//! Numbers, sizes and times as people read them.

use chrono::DateTime;

/// A number with commas: `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 file`, `2 files`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// A size to three digits, in powers of 1000: `1.23 MB`.
pub(super) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1000.0;
    let mut unit = 0;
    // What would be rounded to 1000 has the next unit.
    while size >= 999.5 && unit + 1 < UNITS.len() {
        (size, unit) = (size / 1000.0, unit + 1);
    }
    let decimals = if size < 9.995 { 2 } else { usize::from(size < 99.95) };
    format!("{size:.decimals$} {}", UNITS[unit])
}

/// A point in time, UTC, to the second.
pub(super) fn time(ms: i64) -> String {
    strftime(ms, "%Y-%m-%d %H:%M:%S UTC")
}

/// A day, UTC.
pub(super) fn day(ms: i64) -> String {
    strftime(ms, "%Y-%m-%d")
}

/// An hour of a day, UTC.
pub(super) fn hour(ms: i64) -> String {
    strftime(ms, "%m-%d %H:%M")
}

/// A point in time as machines read it.
pub(super) fn machine_time(ms: i64) -> String {
    strftime(ms, "%Y-%m-%dT%H:%M:%SZ")
}

fn strftime(ms: i64, format: &str) -> String {
    DateTime::from_timestamp_millis(ms).map_or_else(|| format!("{ms} ms"), |time| time.format(format).to_string())
}

/// How long something took.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// A share of a whole, as a percentage; nothing where there is no share.
pub(super) fn percent(part: u64, whole: u64) -> Option<String> {
    if part == 0 || whole == 0 {
        return None;
    }
    let percent = part as f64 * 100.0 / whole as f64;
    Some(if percent < 1.0 { "less than 1 %".into() } else { format!("{percent:.0} %") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_sizes_three_digits() {
        let numbers = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        assert!(numbers.iter().all(|(number, text)| grouped(*number) == *text));
        assert_eq!((counted(1, "file", "files"), counted(0, "file", "files")), ("1 file".into(), "0 files".into()));
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (9_994, "9.99 kB"),
            (9_995, "10.0 kB"),
            (99_949, "99.9 kB"),
            (99_950, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (1_234_567_890, "1.23 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn times_are_utc_and_no_number_is_too_large() {
        assert_eq!(time(1_700_000_000_123), "2023-11-14 22:13:20 UTC");
        assert_eq!(machine_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(i64::MAX), format!("{} ms", i64::MAX));
        for (ms, text) in [(7, "7 ms"), (1_500, "1.5 s"), (61_000, "1 min 1 s"), (3_660_000, "1 h 1 min")] {
            assert_eq!(duration(ms), text);
        }
        assert_eq!([percent(1, 0), percent(0, 5)], [None, None]);
        assert_eq!([percent(1, 1_000), percent(5, 5)].map(Option::unwrap), ["less than 1 %", "100 %"]);
    }
}
