//! Numbers, as far as they are known.

/// A number of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Counted, or read where it stands.
    Exact(i64),
    /// Derived from what a writer noted, or from a part of the table.
    Estimate(i64),
    /// There is such a number, and this look doesn't tell it.
    Unknown,
    /// There is no such number: of an age, where there is nothing that could be old.
    Nothing,
}

impl Known {
    /// An estimate, if there is a number that can be one. Counts and sizes are never negative.
    pub(super) fn noted(number: Option<i64>) -> Self {
        number.filter(|number| *number >= 0).map_or(Self::Unknown, Self::Estimate)
    }

    /// The number, if there is one.
    pub(super) fn value(self) -> Option<i64> {
        match self {
            Self::Exact(number) | Self::Estimate(number) => Some(number),
            Self::Unknown | Self::Nothing => None,
        }
    }

    /// True for estimates.
    pub(super) fn is_estimate(self) -> bool {
        matches!(self, Self::Estimate(_))
    }

    /// The number, or 0.
    pub(super) fn or_zero(self) -> i64 {
        self.value().unwrap_or(0)
    }

    /// This, or something else where it is unknown.
    pub(super) fn or(self, other: Self) -> Self {
        if self == Self::Unknown { other } else { self }
    }

    /// What a function makes of the number.
    pub(super) fn map(self, of: impl FnOnce(i64) -> i64) -> Self {
        match self {
            Self::Exact(number) => Self::Exact(of(number)),
            Self::Estimate(number) => Self::Estimate(of(number)),
            other => other,
        }
    }

    /// What a function makes of two numbers: an estimate if one of them is, unknown if one of them is, or the function gives none.
    pub(super) fn with(self, other: Self, of: impl FnOnce(i64, i64) -> Option<i64>) -> Self {
        let (Some(one), Some(two)) = (self.value(), other.value()) else { return Self::Unknown };
        match of(one, two) {
            None => Self::Nothing,
            Some(number) if self.is_estimate() || other.is_estimate() => Self::Estimate(number),
            Some(number) => Self::Exact(number),
        }
    }

    /// The same number, counted in a part of the table only, unless that part is the whole.
    pub(super) fn of_part(self, is_whole: bool) -> Self {
        match self {
            Self::Exact(number) if !is_whole => Self::Estimate(number),
            other => other,
        }
    }

    /// How many hundredths this is of a whole, rounded down; nothing of nothing.
    pub(super) fn percent_of(self, whole: Self) -> Self {
        self.with(whole, |part, whole| (whole > 0).then(|| ratio(part, 100, whole)))
    }

    /// This many split among so many, rounded down; nothing among none.
    pub(super) fn per(self, count: Self) -> Self {
        self.with(count, |sum, count| (count > 0).then(|| sum / count))
    }
}

/// `a * b / c` of numbers that are not negative, as large as it gets.
fn ratio(a: i64, b: i64, c: i64) -> i64 {
    i64::try_from(i128::from(a) * i128::from(b) / i128::from(c.max(1))).unwrap_or(i64::MAX)
}

/// How many files of a size hold so many bytes.
pub(super) fn files_of(bytes: i64, size: i64) -> i64 {
    let size = size.max(1);
    bytes / size + i64::from(bytes % size > 0)
}

/// A number of bytes to read: `1.5 MiB`.
pub(super) fn bytes_text(bytes: i64) -> String {
    const UNITS: [(&str, i64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / size as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::Known::*;
    use super::*;

    #[test]
    fn what_is_made_of_an_estimate_is_one_and_of_the_unknown_nothing_is_made() {
        assert_eq!(Exact(7).per(Exact(2)), Exact(3));
        assert_eq!(Exact(7).per(Estimate(2)), Estimate(3));
        assert_eq!((Exact(7).per(Exact(0)), Exact(7).per(Unknown)), (Nothing, Unknown));
        assert_eq!(Exact(1).percent_of(Exact(3)), Exact(33));
        assert_eq!(Exact(i64::MAX).percent_of(Exact(1)), Exact(i64::MAX));
        assert_eq!((Known::noted(Some(-1)), Known::noted(None)), (Unknown, Unknown));
        assert_eq!((Exact(1).of_part(false), Exact(1).of_part(true)), (Estimate(1), Exact(1)));
        assert_eq!((Unknown.or(Estimate(1)), Exact(2).or(Estimate(1))), (Estimate(1), Exact(2)));
    }

    #[test]
    fn bytes_are_for_reading() {
        assert_eq!([0, 1023, 1536, i64::MAX].map(bytes_text), ["0 bytes", "1023 bytes", "1.5 KiB", "8388608.0 TiB"]);
        assert_eq!((files_of(0, 10), files_of(10, 10), files_of(11, 10), files_of(5, 0)), (0, 1, 2, 5));
    }
}
