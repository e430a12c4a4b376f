//! Which folders of a table's location are the table's own.
//!
//! People keep other things below a table's location: notes, media, exports of other programs. Nothing in the metadata
//! names those either, but no write of the table left them there. So what nothing names is an orphan only where the table
//! writes, or where live files of it are; the rest is foreign and stays unless the caller asks for it.

use std::collections::HashSet;

use crate::table::location::{percent_decoded, split};
use crate::table::{Location, PathRules, Root, Roots, TableMetadata};

/// Where in its location a table writes, could have written, or has live files.
#[derive(Debug, Clone)]
pub(in crate::procedure) struct OwnFolders {
    /// The location's path as it is compared, without a slash at its end.
    table: String,
    rules: PathRules,
    /// Names of folders in the location.
    folders: HashSet<String>,
    /// Names of partition fields: `field=value` is a folder of a table that was migrated from Hive.
    fields: HashSet<String>,
    /// Live files lie in the location itself.
    has_direct_files: bool,
    /// The table writes right into its location.
    is_all: bool,
    /// The folder of the live file before: as a rule the next one lies there, too.
    last: String,
}

impl OwnFolders {
    /// What the metadata says itself: `data`, `metadata`, write paths, partition fields of all specs.
    pub(in crate::procedure) fn of(metadata: &TableMetadata, rules: &PathRules) -> Self {
        let location = metadata.location();
        let mut own = Self {
            table: rules.path(location.parts()).trim_end_matches('/').to_string(),
            rules: rules.clone(),
            folders: ["data", "metadata"].map(str::to_string).into(),
            fields: HashSet::new(),
            has_direct_files: false,
            is_all: false,
            last: String::new(),
        };
        own.add_partition_fields(metadata);
        let inside = Roots::new(vec![Root { location: location.clone(), named_by: "location" }], rules.clone());
        for (_, path) in metadata.properties().write_paths() {
            let Ok(write_path) = Location::parse(path) else { continue };
            own.is_all |= rules.same_place(&write_path, location);
            if inside.contains(path) {
                own.add_folder_of(&write_path.child("file").to_text());
            }
        }
        own
    }

    /// Notes the partition fields of another version of the metadata.
    pub(super) fn add_partition_fields(&mut self, metadata: &TableMetadata) {
        self.fields.extend(metadata.partition_field_names().map(str::to_string));
    }

    /// Notes where a live file in the table's location lies.
    pub(in crate::procedure) fn add_folder_of(&mut self, file: &str) {
        let path = self.rules.path(split(file));
        match below(&path, &self.table) {
            Some(Place::Folder(folder)) if folder == self.last => {}
            Some(Place::Folder(folder)) => {
                folder.clone_into(&mut self.last);
                self.folders.insert(folder.to_string());
            }
            Some(Place::Direct) => self.has_direct_files = true,
            None => {}
        }
    }

    /// True for a listed file that a write of this table may have left.
    pub(in crate::procedure) fn contains(&self, file: &str) -> bool {
        let path = self.rules.path(split(file));
        self.is_all
            || match below(&path, &self.table) {
                Some(Place::Folder(folder)) => self.folders.contains(folder) || self.is_partition(folder),
                Some(Place::Direct) => self.has_direct_files,
                None => false,
            }
    }

    fn is_partition(&self, folder: &str) -> bool {
        let Some((field, _)) = folder.split_once('=') else { return false };
        // Writers encode field names as values in URLs.
        let decoded = || percent_decoded(&field.replace('+', " "));
        self.fields.contains(field) || decoded().is_some_and(|field| self.fields.contains(&field))
    }
}

/// Where something lies in the table's location.
enum Place<'a> {
    /// In the location itself.
    Direct,
    /// In or below this folder of it.
    Folder(&'a str),
}

fn below<'a>(path: &'a str, table: &str) -> Option<Place<'a>> {
    let rest = path.strip_prefix(table)?.strip_prefix('/')?;
    Some(rest.split_once('/').map_or(Place::Direct, |(folder, _)| Place::Folder(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(properties: &str) -> OwnFolders {
        let text = format!(
            r#"{{"format-version":2,"location":"s3://b/w/t","properties":{{{properties}}},
            "partition-specs":[{{"spec-id":0,"fields":[{{"name":"d"}},{{"name":"a b"}}]}}]}}"#
        );
        let metadata = TableMetadata::parse("s3://b/w/t/metadata/v1.metadata.json", text.as_bytes()).unwrap();
        OwnFolders::of(&metadata, &PathRules::new(metadata.location()))
    }

    #[track_caller]
    fn assert_own(own: &OwnFolders, inside: &[&str], outside: &[&str]) {
        for (paths, expected) in [(inside, true), (outside, false)] {
            for path in paths {
                assert_eq!(own.contains(&format!("s3://b/w/t/{path}")), expected, "{path}");
            }
        }
    }

    #[test]
    fn what_the_table_writes_is_its_own() {
        let plain = own("");
        assert_own(
            &plain,
            &["data/x", "metadata/x", "d=1/x", "a+b=1/x", "a%20b=/x"],
            &["x", "d/x", "dd=1/x", "data2/x"],
        );
        let inside = own(r#""write.data.path":"s3a://b/w/t/files/y","write.metadata.path":"s3://b/w/t/meta/""#);
        assert_own(&inside, &["files/x", "files/y/x", "meta/x", "data/x"], &["y/x"]);
        let elsewhere = own(r#""write.data.path":"s3://other/w/t/files""#);
        assert_own(&elsewhere, &["data/x"], &["files/x"]);
        assert_own(&own(r#""write.object-storage.path":"s3://b/w/t/""#), &["x", "any/x"], &[]);
    }

    #[test]
    fn live_files_make_their_folder_the_tables_own() {
        let mut own = own("");
        own.add_folder_of("s3a://b/w/t/x7f/deep/file");
        assert_own(&own, &["x7f/other"], &["x7/f", "direct"]);
        own.add_folder_of("s3://b/w/t/file");
        assert_own(&own, &["direct"], &["x7/f"]);
    }
}
