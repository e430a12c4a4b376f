//! Table metadata (kept losslessly), its typed view, changes to it, and the identity of file locations.

mod change;
mod document;
mod leaf_columns;
pub(crate) mod location;
mod metadata;
mod partitioning;
mod parts;
mod properties;
mod summaries;
mod summary;

pub use change::{ChangedMetadata, MetadataChange};
#[cfg(feature = "glue")]
pub(crate) use document::Document;
pub(crate) use leaf_columns::{LeafColumn, leaf_columns};
pub(crate) use location::without_credentials;
pub use location::{FilePrefix, Location, PathRules, Root, Roots};
pub(crate) use metadata::TableIdentity;
pub use metadata::{
    MAIN_BRANCH, MetadataLogEntry, RefKind, Snapshot, SnapshotLogEntry, SnapshotRef, StatisticsFile, TableMetadata,
};
pub(crate) use partitioning::{
    PartitionType, PartitionTypeField, ResultType, SpecTransform, spec_transforms, unpartitioned_spec_ids,
};
pub use parts::MetadataPart;
pub(crate) use parts::{parts_to_restore, removed_parts, taken_id};
pub use properties::{DEFAULT_MAX_SNAPSHOT_AGE_MS, Properties};
pub use summary::SnapshotSummary;
