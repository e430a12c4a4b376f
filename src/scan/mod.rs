//! Manifest lists and manifests as Arrow record batches, and the execution plans that read them.
//!
//! A manifest list (one per snapshot) names manifests; a manifest names data files and delete files. Both are Avro files,
//! decoded here straight to record batches with only the columns that maintenance decides on (table spec, sections
//! "Manifest Lists" and "Manifests"). [`entries`] decodes any other field of a manifest, for those who want to look.
//!
//! What comes out is complete or it is an error: a file is decoded to its last byte and checked against the counts that
//! its manifest list recorded before any of its rows are handed on, and no entry is dropped because something in it was
//! not understood. The one exception is asked for by name, [`OnUnreadable::Skip`], for files of expired snapshots; it
//! leaves out whole files that are missing or broken, and reports each.
//!
//! Nothing here knows which snapshots go, which files are live, or deletes anything.

mod avro;
#[cfg(feature = "benches")]
pub(crate) mod benches;
mod columns;
mod entries;
mod exec;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod listed;
mod manifest;
mod manifest_list;
#[cfg(test)]
mod testing;

pub(crate) use entries::{EntryField, EntryFields, Inherited, arrow_type, entry_schema, partition_fields};
pub(crate) use exec::{DescribedRows, EntryScan, EntryScanExec, ManifestDescriptionScanExec};
pub(crate) use exec::{
    ManifestListRef, ManifestListScanExec, ManifestRef, ManifestScanExec, OnUnreadable, ScanLog, Unreadable,
    collect_partitioned,
};
pub(crate) use frame::data_frame;
pub(crate) use listed::{ListedManifest, column, listed_manifests, value};
pub(crate) use manifest::EntryCounts;
pub(crate) use manifest_list::{DescribedManifest, LiveCounts};

use crate::error::{Error, Result};

/// The most bytes of paths in one batch. Far below the 2 GiB that `Utf8` offsets can address, by more than one block.
const MAX_PATH_BYTES: usize = 64 << 20;

/// What an encrypted file begins with (table spec, "AES GCM Stream").
const ENCRYPTED_MAGIC: &[u8] = b"AGS1";

/// Refuses an encrypted file with a message that says so. An unencrypted one may have key metadata nevertheless.
fn refuse_encrypted(what: &'static str, path: &str, bytes: &[u8], has_key_metadata: bool) -> Result<()> {
    let encrypted = bytes.starts_with(ENCRYPTED_MAGIC) || (has_key_metadata && !bytes.starts_with(avro::MAGIC));
    match encrypted {
        false => Ok(()),
        true => Err(Error::Malformed {
            what,
            path: path.into(),
            why: "it is encrypted, and encrypted tables are not supported".into(),
        }),
    }
}
