//! A key between the listed ones and the end of a range, where no sample helps.

/// How many positions behind the one where keys vary are tried.
const FINER: usize = 4;

/// A key behind `last` and before `upper` that may halve what is left: a guess, from where the keys so far differ.
///
/// `first` and `last` are listed keys of the range, `folder` is the prefix of all of them. `None` when there is no room.
pub(super) fn key_between(folder: &str, first: &str, last: &str, upper: Option<&str>) -> Option<String> {
    let same = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
    let varying = same.max(folder.len());
    let finer = varying..(varying + FINER).min(last.len());
    let same = folder.len()..varying.min(last.len());
    // Keys that count (partitions, parts, times) go on where they did not change yet; names mostly don't.
    let counting = same.clone().filter(|at| last.as_bytes()[*at].is_ascii_digit());
    counting.chain(finer).chain(same.rev()).find_map(|at| key_beyond(last, at, upper))
}

/// A key that begins as `last` does up to a position, and has there a character behind that of `last`.
fn key_beyond(last: &str, at: usize, upper: Option<&str>) -> Option<String> {
    let here = last.as_bytes()[at];
    // Keys that count or hash use these alphabets. A guess too low is better than one too high: behind it are keys.
    let highest = match here {
        b'0'..=b'8' => b'9',
        b'a'..=b'e' => b'f',
        b'f'..=b'y' => b'z',
        b'A'..=b'E' => b'F',
        b'F'..=b'Y' => b'Z',
        _ => return None,
    };
    let limit = upper.filter(|upper| upper.as_bytes().get(..at) == Some(&last.as_bytes()[..at]));
    let highest = limit.and_then(|upper| upper.as_bytes().get(at)).map_or(highest, |byte| highest.min(*byte));
    if highest <= here {
        return None;
    }
    // `last` has an ASCII character at this position, so it can be cut there.
    let mut key = last[..at].to_string();
    key.push(char::from(here + (highest - here).div_ceil(2)));
    upper.is_none_or(|upper| key.as_str() < upper).then_some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_guess_follows_the_way_the_keys_count() {
        let t = "t/data/";
        for (first, last, upper, expected) in [
            ("t/data/part-00000", "t/data/part-02999", None, Some("t/data/part-5")),
            ("t/data/part-00000", "t/data/part-02999", Some("t/data/part-07"), Some("t/data/part-05")),
            ("t/data/part-00000", "t/data/part-02999", Some("t/data/part-04"), Some("t/data/part-03")),
            ("t/data/00a1", "t/data/1fff", None, Some("t/data/5")),
            ("t/data/day=01/a", "t/data/day=09/z", None, Some("t/data/day=5")),
            ("t/data/é/a", "t/data/é/c", None, Some("t/data/é/e")),
            ("t/data/a", "t/data/é", None, None),
            ("t/data/a", "t/data/z", None, None),
        ] {
            assert_eq!(key_between(t, first, last, upper).as_deref(), expected, "{first} {last} {upper:?}");
        }
    }

    proptest! {
        #[test]
        fn a_guess_lies_between(mut keys in proptest::collection::vec("t/[a-c0-9é/-]{0,8}", 3)) {
            keys.sort();
            for upper in [Some(keys[2].as_str()).filter(|upper| *upper > keys[1].as_str()), None] {
                if let Some(key) = key_between("t/", &keys[0], &keys[1], upper) {
                    prop_assert!(key.as_str() > keys[1].as_str() && upper.is_none_or(|upper| key.as_str() < upper));
                    prop_assert!(key.starts_with("t/"));
                }
            }
        }
    }
}
