//! Locations: of a table, of its other roots, and of files that metadata may name.

use crate::storage::ObjectFiles;
use crate::table::location::{LocationParts, normalize_local, percent_decoded, split, store_spellings};
use crate::table::{Location, PathRules, Root, Roots};

/// Lines: the location of a table, and then locations of files.
///
/// # Panics
/// When a file is taken to be inside of a table that a plain reading of its path says it is not in, and when a location is
/// not what it was after it was written and read again.
pub fn paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.split('\n');
    let Some(table) = lines.next().and_then(|line| Location::parse(line).ok()) else { return };
    let rules = PathRules::new(&table);
    let roots = Roots::new(vec![Root { location: table.clone(), named_by: "location" }], rules.clone());
    // Every line with every other would take time that grows as their square.
    for file in lines.take(64) {
        percent_decoded(file);
        let normal = normalize_local(file);
        assert_eq!(normalize_local(&normal), normal, "normalising twice");
        if roots.contains(file) {
            assert!(is_below(split(file), table.parts()), "{file:?} is not in {table}");
        }
        let Ok(location) = Location::parse(file) else { continue };
        assert_eq!(Location::parse(&location.to_text()).ok().as_ref(), Some(&location), "written and read again");
        assert!(rules.same_place(&location, &location));
        assert_eq!(rules.same_place(&location, &table), rules.same_place(&table, &location), "{file:?} and {table}");
        let is_table = rules.same_place(&location, &table) && !file.ends_with('/');
        assert!(!(roots.contains(file) && is_table), "the table itself is no file in it");
        store_spellings(location.scheme(), location.authority());
        if let Ok(key) = ObjectFiles::key(&location) {
            assert_eq!(key.as_ref(), location.path().strip_prefix('/').unwrap_or(location.path()), "another key");
        }
    }
}

/// Whether the file lies below the table, read without any of the rules under test.
fn is_below(file: LocationParts<'_>, table: LocationParts<'_>) -> bool {
    let same_store = match (table.is_local(), file.is_local()) {
        (true, true) => {
            let host = |parts: LocationParts<'_>| parts.authority.to_ascii_lowercase().replace("localhost", "");
            host(file) == host(table)
        }
        (false, false) => {
            // Names of one store begin alike: s3, s3a and s3n; az, abfs and wasb are told apart by their hosts.
            let azure = |scheme: &str| ["az", "abfs", "abfss", "wasb", "wasbs"].contains(&scheme);
            let (own, other) = (file.scheme.to_ascii_lowercase(), table.scheme.to_ascii_lowercase());
            let s3 = |scheme: &str| ["s3", "s3a", "s3n"].contains(&scheme);
            let same_scheme = own == other || s3(&own) && s3(&other) || azure(&own) && azure(&other);
            let host = |authority: &str| authority.to_ascii_lowercase().replace(".blob.", ".dfs.");
            same_scheme && host(file.authority) == host(table.authority)
        }
        _ => false,
    };
    let is_local = table.is_local();
    let parts = |path: &str| -> Vec<String> {
        let parts = path.split('/').map(str::to_string);
        match is_local {
            true => parts.filter(|part| !part.is_empty() && part != ".").collect(),
            false => parts.collect(),
        }
    };
    let (file, mut table) = (parts(file.path), parts(table.path));
    // As Iceberg does it, which puts nothing between the location and the slash of what lies in it.
    while table.last().is_some_and(String::is_empty) {
        table.pop();
    }
    let climbs = file.iter().any(|part| part == "..") || !is_local && file.iter().skip(1).any(|part| part == ".");
    same_store && !climbs && file.len() > table.len() && file.starts_with(&table)
}
