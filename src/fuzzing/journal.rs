//! Journal files whose names have the right hash, and names of journal files.

use crate::journal::{ContentHash, FileName, RunRecord, decode_outcome};

/// A journal file: a plan or an outcome. Its name is taken for right: whoever can write one can name it.
///
/// # Panics
/// When a plan comes out otherwise when it is written and read again.
pub fn journal(bytes: &[u8]) {
    let hash = ContentHash::of(bytes);
    if let Ok(record) = RunRecord::decode("journal", bytes, Some(&hash))
        && let Ok(content) = record.encode()
    {
        let again = RunRecord::decode("journal", &content, Some(&ContentHash::of(&content)));
        assert_eq!(again.unwrap_or_else(|why| panic!("{why}")), record, "a plan that is written and read again");
    }
    let _ = decode_outcome("journal", bytes, Some(&hash));
    if let Some(name) = std::str::from_utf8(bytes).ok().and_then(FileName::parse) {
        name.run().began_ms();
        let again = FileName::parse(&name.to_string());
        assert_eq!(again.as_ref().map(FileName::run), Some(name.run()), "a name that is written and read again");
    }
}
