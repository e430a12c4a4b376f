//! Which files are live in a set of snapshots.
//!
//! A file is live in a snapshot if a manifest that the snapshot lists has an entry for it that is not DELETED; manifests,
//! manifest lists, statistics and metadata files are live if something that stays names them. What may go is decided by
//! set difference over all retained snapshots, never by ancestry: there is no shortcut that skips the subtraction.

mod buckets;
mod identity;
mod live_files;
mod manifests;
mod names;
mod probe;
mod record;
mod snapshot_manifests;
mod spans;
mod spill;

pub(crate) use identity::{FileIdentity, KnownFiles, OneFile, Sameness};
pub(crate) use live_files::{LiveFiles, LiveFilesBuilder, Liveness, NamedBy};
pub(crate) use manifests::{
    ListedManifests, LiveEntry, ManifestFile, Reading, for_each_live_entry, for_each_live_entry_with_references,
    list_manifests,
};
pub(crate) use names::{FileNames, FileNamesBuilder};
pub(crate) use probe::{Candidate, Probe};
pub(crate) use record::{Reader as RecordReader, Writer as RecordWriter};
pub(crate) use snapshot_manifests::{SnapshotManifests, SnapshotSet, manifests_of_snapshots};
pub(crate) use spans::{FileSpans, file_spans};

use crate::catalog::VERSION_HINT;
use crate::error::Result;
use crate::table::TableMetadata;

/// Adds every file that table metadata itself names: manifest lists, inline manifests, statistics of both kinds, the
/// metadata log and the metadata file itself. What manifest lists and manifests name needs a scan.
pub(crate) fn insert_metadata_files(metadata: &TableMetadata, live: &mut LiveFilesBuilder) -> Result<()> {
    let mut insert = |file: &str| live.insert(file, NamedBy::Metadata, false);
    insert(metadata.metadata_location())?;
    // Its content tells readers the newest version, so it is live without being named.
    insert(&metadata.location().child("metadata").child(VERSION_HINT).to_text())?;
    for entry in metadata.metadata_log() {
        insert(&entry.metadata_file)?;
    }
    for statistics in metadata.statistics().iter().chain(metadata.partition_statistics()) {
        insert(&statistics.statistics_path)?;
    }
    for snapshot in metadata.snapshots() {
        for file in snapshot.manifest_list.iter().chain(snapshot.manifests.iter().flatten()) {
            insert(file)?;
        }
    }
    Ok(())
}
