//! The guard against another table of the same catalog that lives where this one does.
//!
//! Two names for one table (it was registered twice, or a copy kept the location) share every file, and each one's
//! maintenance knows nothing of what the other needs. No file tells of it: only the catalog knows its tables.

use std::sync::Arc;

use datafusion::execution::TaskContext;

use crate::catalog::{LoadedTable, Neighbours, TableHandle};
use crate::error::{Error, Result};
use crate::options::MaintenanceOptions;
use crate::table::{Location, PathRules, Root, Roots};

/// Refuses a table whose location, or metadata folder, is another table's, too; and a folder to be searched for orphans
/// that is or holds one of another table's folders. Returns what there is to say of tables that were not looked at.
///
/// `folder`: where orphans are searched for. `permitted`: the call says that it may go on all the same.
///
/// # Errors
/// [`Error::Guard`].
pub(super) async fn refuse_shared_location(
    handle: &TableHandle,
    table: &LoadedTable,
    folder: Option<&Location>,
    permitted: bool,
    task: &Arc<TaskContext>,
) -> Result<Option<String>> {
    if permitted {
        return Ok(None);
    }
    let metadata = &table.metadata;
    let rules = PathRules::new(metadata.location());
    let searched = folder.map(|location| Root { location: location.clone(), named_by: "location" });
    let searched = Roots::new(searched.into_iter().collect(), rules.clone());
    let own = metadata.roots(rules.clone());
    let may_matter = |file: &str| own.contains(file) || searched.contains(file);
    let most = MaintenanceOptions::of(task).shared_location_lookups;
    let neighbours = match handle.neighbours(most, &task.runtime_env(), &may_matter, folder.is_some()).await {
        Ok(Some(neighbours)) => neighbours,
        Ok(None) => return Ok(None),
        // Whoever may not list a catalog may well maintain a table of it.
        Err(error) => return Ok(Some(format!("whether another table uses the same location is not known: {error}"))),
    };
    for other in &neighbours.tables {
        let shared = match rules.same_place(&other.location, metadata.location()) {
            true => Some(other.location.to_text()),
            false if own.contains(&other.metadata_location) => Some(other.metadata_location.clone()),
            false => other.roots.iter().find_map(|root| {
                let is_searched = folder.is_some_and(|folder| rules.same_place(root, folder));
                (is_searched || searched.contains(&root.to_text())).then(|| root.to_text())
            }),
        };
        if let Some(shared) = shared {
            return Err(Error::Guard {
                table: table.name.clone(),
                found: format!(
                    "another table of the catalog, {}, uses {shared}, too: it may need the files that this call would delete. \
                     Give each table a location of its own, or drop one of the two without purging it. If really nobody needs \
                     the other one, give shared_location => true",
                    other.name
                ),
            });
        }
    }
    Ok(left_out(&neighbours, most))
}

fn left_out(neighbours: &Neighbours, most: usize) -> Option<String> {
    let mut said = vec![];
    if let Some(first) = neighbours.unreadable.first() {
        said.push(format!("{} could not be loaded, such as {first}", neighbours.unreadable.len()));
    }
    if neighbours.is_incomplete {
        said.push(format!(
            "those beyond the first {most} were not looked at (session option iceberg_maintenance.shared_location_lookups)"
        ));
    }
    let said = said.join("; ");
    (!said.is_empty()).then(|| format!("of the catalog's other tables, which may use the same location, {said}"))
}
