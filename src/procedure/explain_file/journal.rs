//! Files that maintenance itself leaves beside a table.

use crate::journal::Journal;
use crate::table::{PathRules, Root, Roots, TableMetadata};

/// True for a file of the folder that journals of runs lie in.
pub(super) fn is_journal(location: &str, metadata: &TableMetadata, rules: &PathRules) -> bool {
    let folder = Journal::folder_of(metadata.location());
    Roots::new(vec![Root { location: folder, named_by: "journal" }], rules.clone()).contains(location)
}
