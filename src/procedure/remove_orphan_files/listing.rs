//! Where orphans are looked for, and which of the listed files are considered at all.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::catalog::is_codec;
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::report::FileKind;
use crate::storage::{Listed, ListedFile, ListedStat, ListingOptions, LocalFiles, STAGED, Store};
use crate::table::location::{is_below, normalize_local, split};
use crate::table::{Location, PathRules, Root, Roots, TableMetadata};

/// The folder that is searched for orphans: one of the table's roots, or a folder inside one.
#[derive(Debug, Clone)]
pub(in crate::procedure) struct Scope {
    pub folder: Location,
    /// True when the folder is the table's location itself.
    pub whole_table: bool,
}

impl Scope {
    /// Resolves the `location` argument. Relative paths start at the table's location; `data`, `data/`, `./data/` and
    /// `data//` are one place.
    ///
    /// # Errors
    /// [`Error::Location`] for whatever leaves the table's roots, `..` included.
    pub(in crate::procedure) fn resolve(
        metadata: &TableMetadata,
        location: Option<&str>,
        rules: &PathRules,
    ) -> Result<Self> {
        let table = metadata.location();
        let table = table.with_path(table.path().trim_end_matches('/'));
        let Some(text) = location else { return Ok(Self { folder: table, whole_table: true }) };
        let outside = |why: &str| Err(Error::Location { location: text.to_string(), why: why.to_string() });
        if text.split('/').any(|segment| segment == "..") {
            return outside("a location with '..' is not followed. Name the folder itself");
        }
        let folder = match Location::parse(text) {
            Ok(absolute) if absolute.scheme().is_empty() && !table.is_local() => {
                return outside(
                    "it has no scheme, but the table is not on a local disk. Write it as the table's location is",
                );
            }
            Ok(absolute) if absolute.is_local() => absolute.with_path(normalize_local(absolute.path()).into_owned()),
            Ok(absolute) => absolute.with_path(absolute.path().trim_end_matches('/')),
            Err(_) => {
                let segments = text.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
                segments.fold(table.clone(), |folder, segment| folder.child(segment))
            }
        };
        if rules.same_place(&folder, &table) {
            // A place that only the call's own maps declare equal is listed under the name that was given.
            let same_name = PathRules::new(&table).same_place(&folder, &table);
            return Ok(Self { folder: if same_name { table } else { folder }, whole_table: true });
        }
        let roots = metadata.roots(rules.clone());
        let is_root = roots.iter().any(|root| rules.same_place(&folder, &root.location));
        if is_root || roots.contains(&folder.to_text()) {
            return Ok(Self { folder, whole_table: false });
        }
        let named: Vec<String> = roots.iter().map(|root| format!("{} ({})", root.location, root.named_by)).collect();
        outside(&format!(
            "it is not inside the table's own folders, which are {}. Files elsewhere may belong to other tables",
            named.join(", ")
        ))
    }

    /// Refuses a folder that is reached through a link inside the table: what lies there has another place.
    pub(super) fn refuse_links(&self, metadata: &TableMetadata, local: &LocalFiles) -> Result<()> {
        let table = normalize_local(metadata.location().path()).into_owned();
        let folder = normalize_local(self.folder.path()).into_owned();
        let Some(below) = folder.strip_prefix(&table).filter(|_| self.folder.is_local()) else { return Ok(()) };
        match (local.canonical(&table)?, local.canonical(&folder)?) {
            (Some(table), Some(folder)) if folder != format!("{}{below}", table.trim_end_matches('/')) => {
                Err(Error::Location {
                    location: self.folder.to_string(),
                    why: format!("it leads through a link to {folder}. Name the folder by its real place"),
                })
            }
            _ => Ok(()),
        }
    }

    /// The folders between the table's location and this folder, the folder itself among them: a table that holds the
    /// folder has its metadata beside one of them.
    pub(super) fn ancestors(&self, metadata: &TableMetadata, path: &str) -> Vec<Location> {
        let table = compared_path(metadata.location());
        let path = metadata.location().with_path(path);
        let path = compared_path(&path);
        let mut ancestors = Vec::new();
        let mut path = path.trim_end_matches('/');
        while is_below(path, &table) {
            ancestors.push(metadata.location().with_path(path));
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
        ancestors
    }

    /// The folder as a set of roots, to ask what lies in it.
    pub(in crate::procedure) fn as_roots(&self, rules: &PathRules) -> Roots {
        Roots::new(vec![Root { location: self.folder.clone(), named_by: "location" }], rules.clone())
    }

    /// A listed path as a location string, with the folder's scheme and authority.
    pub(super) fn location_of(&self, path: &str) -> String {
        self.folder.with_path(path).to_text()
    }
}

/// A folder's path as listed paths are compared with it.
fn compared_path(folder: &Location) -> Cow<'_, str> {
    if folder.is_local() { normalize_local(folder.path()) } else { folder.path().into() }
}

/// Spark's rule for hidden names: a part below the listed folder that starts with `_` or `.` hides the file, unless it is
/// the folder of a partition field whose own name starts so (`_field=value`).
#[derive(Debug)]
pub(in crate::procedure) struct HiddenNames {
    folder: String,
    is_local: bool,
    partition_prefixes: HashSet<String>,
}

impl HiddenNames {
    pub(in crate::procedure) fn new(scope: &Scope, metadata: &TableMetadata) -> Self {
        let hidden_fields = metadata.partition_field_names().filter(|name| is_hidden(name));
        Self {
            folder: compared_path(&scope.folder).trim_end_matches('/').to_string(),
            is_local: scope.folder.is_local(),
            partition_prefixes: hidden_fields.map(|name| format!("{name}=")).collect(),
        }
    }

    pub(super) fn hides(&self, path: &str) -> bool {
        let path = self.compared(path);
        self.below(&path).any(|part| self.hides_part(part))
    }

    /// The first part of the path that hides the file.
    pub(in crate::procedure) fn hidden_part(&self, path: &str) -> Option<String> {
        let path = self.compared(path);
        self.below(&path).find(|part| self.hides_part(part)).map(str::to_string)
    }

    fn compared<'a>(&self, path: &'a str) -> Cow<'a, str> {
        if self.is_local { normalize_local(path) } else { path.into() }
    }

    fn below<'a>(&self, path: &'a str) -> impl Iterator<Item = &'a str> {
        path.strip_prefix(&self.folder).unwrap_or(path).split('/')
    }

    fn hides_part(&self, part: &str) -> bool {
        is_hidden(part) && !self.partition_prefixes.iter().any(|prefix| part.starts_with(prefix.as_str()))
    }
}

fn is_hidden(name: &str) -> bool {
    // What a write of ours that died has left is nobody's secret.
    name.starts_with(['_', '.']) && !name.starts_with(STAGED)
}

/// What the name of an unreferenced file says of its kind. For counting only: names decide nothing.
pub(super) fn kind_by_name(path: &str) -> FileKind {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if folder.ends_with("/metadata") {
        return match name {
            _ if name.contains("metadata.json") => FileKind::Metadata,
            _ if name.ends_with(".puffin") || name.ends_with(".stats") => FileKind::Statistics,
            _ if name.starts_with("partition-stats-") => FileKind::PartitionStatistics,
            _ if name.starts_with("snap-") && name.ends_with(".avro") => FileKind::ManifestList,
            _ if name.ends_with(".avro") => FileKind::Manifest,
            _ => FileKind::Unknown,
        };
    }
    let is_table_file = [".parquet", ".orc", ".avro"].iter().any(|extension| name.ends_with(extension));
    match name {
        _ if name.ends_with(".puffin") => FileKind::DeletionVector,
        _ if name.contains("eq-del") && is_table_file => FileKind::EqualityDeletes,
        _ if (name.contains("-deletes.") || name.contains("-delete-")) && is_table_file => FileKind::PositionDeletes,
        _ if is_table_file => FileKind::Data,
        _ => FileKind::Unknown,
    }
}

/// True for names that some table's metadata file may have, however unusual.
pub(super) fn is_metadata_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let compressed = name.rsplit_once('.').filter(|(_, codec)| is_codec(codec));
    compressed.map_or(name.as_str(), |(name, _)| name).ends_with("metadata.json")
}

/// Listed files with their locations, in batches.
pub(super) type LocatedFiles = BoxStream<'static, Result<Vec<(String, Listed)>>>;

/// The files to consider, from a listing of the folder. Local disks tell their names only.
///
/// `sample`: paths of some live files, which tell where the listing will find files.
pub(super) fn listed_files(store: &Store, scope: &Scope, sample: &[String], how: &ListingOptions) -> LocatedFiles {
    let named = scope.clone();
    let options = ListingOptions { samples: sample.to_vec(), names_only: true, ..how.clone() };
    let located = move |listed: Listed| {
        let path = match &listed {
            Listed::File(file) => &file.path,
            Listed::Link { path, .. } | Listed::Unusable { path, .. } => path,
        };
        (named.location_of(path), listed)
    };
    store.list(&scope.folder, options).map_ok(move |batch| batch.into_iter().map(&located).collect()).boxed()
}

/// Spark's `file_list_view`: a relation with `file_path` (text) and `last_modified` (timestamp), optionally `file_size`.
///
/// Only rows below the scope's folder count, by whole path segments, under the folder's own scheme and authority or a
/// spelling that is always the same (`s3a` for `s3`, no scheme for `file`). What the call's own `equal_*` maps declare
/// equal stays out here, as in Spark: a file that is listed under two names would be an orphan twice.
pub(super) async fn relation_files(relation: &str, scope: &Scope, context: &RunContext) -> Result<LocatedFiles> {
    let session = context.maintenance.session()?;
    let unknown =
        |e| Error::argument("remove_orphan_files", format!("file_list_view => '{relation}' can't be read: {e}"));
    let frame = session.table(relation).await.map_err(unknown)?;
    // Reading a list must not change a table: a view may hide a call that does.
    if crate::sql::acting_calls(frame.logical_plan(), session.state().config_options())? > 0 {
        let message = format!(
            "file_list_view => '{relation}' would itself expire snapshots or delete files. Use a dry run in it"
        );
        return Err(Error::argument("remove_orphan_files", message));
    }
    let zone: Arc<str> = session.state().config_options().execution.time_zone.as_deref().unwrap_or("+00:00").into();
    let rules = PathRules::new(&scope.folder);
    let folder = scope.folder.clone();
    let batches = frame.execute_stream().await?;
    Ok(batches
        .map_err(Error::from)
        .and_then(move |batch| {
            let rows = relation_rows(&batch, &folder, &rules, &zone);
            async move { rows }
        })
        .boxed())
}

fn relation_rows(
    batch: &RecordBatch,
    folder: &Location,
    rules: &PathRules,
    zone: &Arc<str>,
) -> Result<Vec<(String, Listed)>> {
    let prefix = rules.listed_prefix(rules.prefix(folder.parts()));
    let folder = rules.path(folder.parts());
    let wrong = |message: String| Error::argument("remove_orphan_files", format!("file_list_view: {message}"));
    let found = |names: &[&str]| names.iter().find_map(|name| batch.column_by_name(name));
    let column = |names: &[&str]| {
        found(names).ok_or_else(|| wrong(format!("the relation has no column {}", names.join(", or "))))
    };
    let paths = column(&["file_path", "path"])?;
    let modified = column(&["last_modified", "modified", "last_modified_date"])?;
    if !matches!(paths.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
        return Err(wrong(format!("Invalid file_path column: {} is not a string", paths.data_type())));
    }
    if !matches!(modified.data_type(), DataType::Timestamp(..)) {
        return Err(wrong(format!("Invalid last_modified column: {} is not a timestamp", modified.data_type())));
    }
    let paths = cast(paths, &DataType::Utf8)?;
    let paths = paths.as_string::<i32>();
    // A time without a zone is one of the session's zone; one that doesn't exist there becomes NULL: an unknown age.
    let modified = cast(modified, &DataType::Timestamp(TimeUnit::Millisecond, Some(Arc::clone(zone))))?;
    let modified = modified.as_primitive::<TimestampMillisecondType>();
    let sizes =
        found(&["file_size", "size", "file_size_in_bytes"]).and_then(|sizes| cast(sizes, &DataType::UInt64).ok());
    let mut rows = Vec::new();
    for row in (0..batch.num_rows()).filter(|row| !paths.is_null(*row)) {
        let location = paths.value(row);
        let path = rules.path(split(location));
        if rules.listed_prefix(rules.prefix(split(location))) != prefix || !is_below(&path, &folder) {
            continue;
        }
        let sizes = sizes.as_ref().map(|sizes| sizes.as_primitive::<datafusion::arrow::datatypes::UInt64Type>());
        let file = ListedFile {
            path: path.into_owned(),
            stat: Some(ListedStat {
                size: sizes.filter(|sizes| !sizes.is_null(row)).map_or(0, |sizes| sizes.value(row)),
                modified_ms: (!modified.is_null(row)).then(|| modified.value(row)),
            }),
        };
        rows.push((location.to_string(), Listed::File(file)));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> TableMetadata {
        let text = r#"{"format-version":2,"location":"file:/w/t/","properties":{"write.data.path":"file:/elsewhere/d"},
            "partition-specs":[{"spec-id":0,"fields":[{"name":"_c"},{"name":"d"}]}]}"#;
        TableMetadata::parse("file:/w/t/metadata/v1.metadata.json", text.as_bytes()).unwrap()
    }

    fn scope(location: Option<&str>) -> Result<Scope> {
        let metadata = metadata();
        Scope::resolve(&metadata, location, &PathRules::new(metadata.location()))
    }

    #[test]
    fn spellings_of_one_folder_are_one_place() {
        for spelling in ["data", "data/", "./data/", "data//", "/w/t/data", "file:///w/t/data/", "file:/w//t/./data"] {
            let folder = scope(Some(spelling)).unwrap().folder;
            assert_eq!(folder.path(), "/w/t/data", "{spelling}");
        }
        for spelling in [None, Some("."), Some("./"), Some("/w/t"), Some("file:///w/t/"), Some("")] {
            let scope = scope(spelling).unwrap();
            assert!(scope.whole_table && scope.folder.path() == "/w/t", "{spelling:?}");
        }
        assert_eq!(scope(Some("file:/elsewhere/d")).unwrap().folder.path(), "/elsewhere/d");
    }

    #[test]
    fn what_leaves_the_table_is_refused() {
        for outside in ["..", "../t2", "data/../../t2", "/w", "/w/t2", "/w/t_2", "/", "s3://w/t", "file:/elsewhere"] {
            let error = scope(Some(outside)).unwrap_err().to_string();
            assert!(error.contains(outside), "{error}");
        }
    }

    #[test]
    fn hidden_names_are_sparks() {
        let metadata = metadata();
        let hidden = HiddenNames::new(&scope(None).unwrap(), &metadata);
        for name in ["data/_tmp/f", "data/.f.crc", "_SUCCESS", "data/_c_trunc/f", "data/_c/f", ".x/y/z"] {
            assert!(hidden.hides(&format!("/w/t/{name}")), "{name}");
        }
        for name in ["data/_c=1/f", "data/d=_x/f", "data/a_b/f.", "metadata/x"] {
            assert!(!hidden.hides(&format!("/w/t/{name}")), "{name}");
        }
        let inside = Scope { folder: Location::parse("file:/w/t/_tmp").unwrap(), whole_table: false };
        assert!(!HiddenNames::new(&inside, &metadata).hides("/w/t/_tmp/f"), "the folder's own name hides nothing");
    }

    #[test]
    fn kinds_by_name() {
        for (path, kind) in [
            ("/t/metadata/v1.metadata.json", FileKind::Metadata),
            ("/t/metadata/00001-x.gz.metadata.json", FileKind::Metadata),
            ("/t/metadata/partition-stats-1-u.parquet", FileKind::PartitionStatistics),
            ("/t/metadata/partition-stats-1-u.avro", FileKind::PartitionStatistics),
            ("/t/metadata/snap-1-2-x.avro", FileKind::ManifestList),
            ("/t/metadata/x-m0.avro", FileKind::Manifest),
            ("/t/metadata/x.stats", FileKind::Statistics),
            ("/t/metadata/notes.txt", FileKind::Unknown),
            ("/t/data/x.parquet", FileKind::Data),
            ("/t/data/x-deletes.parquet", FileKind::PositionDeletes),
            ("/t/data/x-deletes.puffin", FileKind::DeletionVector),
            ("/t/data/eq-delete-x.parquet", FileKind::EqualityDeletes),
            ("/t/data/README.md", FileKind::Unknown),
        ] {
            assert_eq!(kind_by_name(path), kind, "{path}");
        }
    }
}
