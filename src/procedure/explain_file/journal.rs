//! Files that maintenance itself leaves beside a table.

use crate::table::{Location, PathRules, Root, Roots, TableMetadata};

/// The folder of journals, below the table's location.
const FOLDER: [&str; 2] = ["metadata", "_maintenance"];

/// True for a file of the folder that journals of runs lie in.
pub(super) fn is_journal(location: &str, metadata: &TableMetadata, rules: &PathRules) -> bool {
    let folder: Location = FOLDER.iter().fold(metadata.location().clone(), |folder, name| folder.child(name));
    Roots::new(vec![Root { location: folder, named_by: "journal" }], rules.clone()).contains(location)
}
