//! A reader of Avro object container files that decodes only the fields it was asked for.
//!
//! Iceberg's manifest lists and manifests are such files. Most of their bytes are column statistics that maintenance has
//! no use for, so the reader walks over them without building anything, and hands out the wanted fields of one record
//! at a time, borrowed from the block they lie in. Blocks don't depend on each other: once a file is opened, several
//! tasks may each read some of its blocks.
//!
//! It promises that the records it hands out are all there are: the sync marker after each block, the number of objects
//! in it and the end of its data must agree, or the whole file is an error. Nothing is ever skipped because it could not
//! be understood: a lost record is a live file that looks dead.
//!
//! The bytes are not trusted. Every read is bounds-checked, no length or count is believed before the bytes for it were
//! seen, recursion has a limit, and time and memory are bounded by the file's size: blocks inflate to so many times of it
//! ([`codec::most_inflated`]) and hold so many records for each of its bytes ([`MAX_RECORDS_PER_BYTE`]). Nothing here panics
//! on any input.

pub(super) mod codec;
pub(super) mod container;
mod cursor;
mod decode;
#[allow(dead_code, reason = "for the metadata tables")]
pub(super) mod encoded;
mod file;
mod inflate;
mod projection;
mod schema;

use std::borrow::Cow;
use std::fmt;

pub(super) use codec::Decompressor;
pub(super) use container::MAGIC;
pub(super) use decode::Row;
pub(super) use file::{AvroFile, Layout};
pub(super) use projection::{Target, Wanted};

/// Nesting of schemas and of values beyond this is refused. Iceberg's own schemas nest four deep.
const MAX_DEPTH: usize = 64;

/// Blocks with more records than this for each of their bytes in the file are refused. Each entry of a manifest has a path of
/// its own, which takes several bytes however it is compressed.
pub(super) const MAX_RECORDS_PER_BYTE: u64 = 4;

/// What is wrong with the bytes, as the end of a sentence that names the file.
// One pointer wide, so that a `Result<u64, Corrupt>` stays in registers.
#[derive(Debug)]
pub(super) struct Corrupt(Box<Cow<'static, str>>);

impl From<&'static str> for Corrupt {
    #[cold]
    fn from(why: &'static str) -> Self {
        Self(Box::new(why.into()))
    }
}

impl From<String> for Corrupt {
    #[cold]
    fn from(why: String) -> Self {
        Self(Box::new(why.into()))
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) type Result<T, E = Corrupt> = std::result::Result<T, E>;
