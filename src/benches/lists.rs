//! Manifest lists as the scan of a table decodes them.

use crate::error::Result;
use crate::scan::benches::{KnownEntries, decode_new_entries, inflate_list};

/// Decodes lists one after the other, leaving out what they repeat; how many entries are left.
pub fn distinct_entries<'a>(lists: impl IntoIterator<Item = &'a [u8]>) -> Result<usize> {
    let mut known = KnownEntries::default();
    lists.into_iter().try_fold(0, |count, list| {
        let (new, _) = decode_new_entries("list", list, &mut known)?;
        Ok(count + new.map_or(0, |batch| batch.num_rows()))
    })
}

/// Inflates the blocks of lists and does nothing with them; how many bytes they are.
pub fn inflated_bytes<'a>(lists: impl IntoIterator<Item = &'a [u8]>) -> Result<usize> {
    lists.into_iter().try_fold(0, |count, list| Ok(count + inflate_list("list", list)?))
}
