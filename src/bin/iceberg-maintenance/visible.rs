//! Texts of somebody else's, fit to be shown: in one line, without anything hidden, and without secrets.

use std::fmt::Write;

/// What has no shape of its own, or turns the direction of what follows, in the ranges of Unicode 16: the format characters and
/// the separators of lines and paragraphs (general categories Cf, Zl, Zp), and all else that is ignored where a font doesn't know
/// it (Default_Ignorable_Code_Point).
const HIDDEN: [(char, char); 25] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// A text in one line, in which everything can be seen and that shows no secret of an address: what is hidden, turns the
/// direction of what follows or moves a cursor is written out.
pub(crate) fn visible(text: &str) -> String {
    let text = without_secrets(text);
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || is_hidden(c) {
            true => _ = write!(shown, "{}", c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

fn is_hidden(c: char) -> bool {
    HIDDEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// An address in a text without what names and lets in its user: `s3://***@bucket/t`.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        rest = after;
        if let Some(end) = end_of_user(before, after) {
            shown.push_str("***");
            rest = &after[end..];
        }
    }
    shown.push_str(rest);
    shown
}

/// Where the `@` is behind the user of an address, of which `before` ends with the scheme.
fn end_of_user(before: &str, after: &str) -> Option<usize> {
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let scheme = before.rsplit(|c| !is_of_scheme(c)).next().unwrap_or_default().to_ascii_lowercase();
    let authority = after.split(|c: char| matches!(c, '/' | '?' | '#') || c.is_whitespace()).next().unwrap_or_default();
    if let Some(at) = authority.rfind('@') {
        // Azure's containers stand where others have users.
        let is_container = matches!(scheme.as_str(), "abfs" | "abfss" | "wasb" | "wasbs");
        return (!is_container || authority[..at].contains(':')).then_some(at);
    }
    // A password may have a slash in it, and what seems to be a port is then its first part. Buckets have no ports.
    let (host, port) = authority.split_once(':')?;
    let has_port = scheme.contains("http") && port.trim_end_matches(':').bytes().all(|digit| digit.is_ascii_digit());
    if host.starts_with('[') || has_port {
        return None;
    }
    after.split(char::is_whitespace).next()?.rfind('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_can_hide() {
        assert_eq!(visible("tab\there\nand \u{202e}gpj.exe é"), "tab\\there\\nand \\u{202e}gpj.exe é");
        assert_eq!(visible("\u{1b}[2J\u{61c}\u{ad}\u{e0041}"), "\\u{1b}[2J\\u{61c}\\u{ad}\\u{e0041}");
        for plain in ["日本語 データ", "ünï-cödé e\u{301}", "🦀", "العربية", "한글"] {
            assert_eq!(visible(plain), plain);
        }
        assert!(HIDDEN.is_sorted() && HIDDEN.iter().all(|(first, last)| first <= last));
    }

    #[test]
    fn who_an_address_lets_in_is_not_shown() {
        for (text, expected) in [
            ("s3://key:secret@bucket/t", "s3://***@bucket/t"),
            ("s3://key@bucket/a@b", "s3://***@bucket/a@b"),
            ("s3://key:se/cr+t@bucket/t", "s3://***@bucket/t"),
            ("s3://key:12/3@bucket/t", "s3://***@bucket/t"),
            ("s3://key:p@ss@bucket/t: no, nor a://b:c@d", "s3://***@bucket/t: no, nor a://***@d"),
            ("'rest+https://me:pw@host:8181/x' failed", "'rest+https://***@host:8181/x' failed"),
            ("http://host:9000/a@b", "http://host:9000/a@b"),
            ("http://host:9000: refused for a@b", "http://host:9000: refused for a@b"),
            ("http://me:pw", "http://me:pw"),
            ("abfss://container@account/t", "abfss://container@account/t"),
            ("abfss://me:pw@account/t", "abfss://***@account/t"),
            ("file:///data/a@b", "file:///data/a@b"),
            ("a@b://", "a@b://"),
            ("://@", "://***@"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), expected);
            assert_eq!(visible(text), expected);
        }
    }
}
