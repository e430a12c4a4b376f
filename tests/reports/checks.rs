//! What holds for every case, whatever it is about.

use std::collections::{BTreeMap, BTreeSet};

use iceberg_maintenance::fixtures::{MetadataNaming, PartitionSpec, Schema, Table};
use iceberg_maintenance::report::FileKind;
use serde_json::json;

use crate::case::{DAY_MS, Outcome};
use crate::place::{Place, Read};
use crate::support::{Disk, MetricRows, ensure, files};
use crate::table::{only_shrunk, plain_path};

/// Short names for the files of a described table: `a` for `data/a.parquet`, `list 2` for the manifest list of snapshot 2,
/// `manifest 2.0` for the first manifest that snapshot 2 wrote, `v3` for a metadata file; others keep their path.
pub struct Names(BTreeMap<String, String>);

impl Names {
    pub fn of(table: &Table) -> Self {
        let mut names = BTreeMap::new();
        for snapshot in table.snapshots.iter().chain(&table.dropped_snapshots) {
            names.extend(snapshot.manifest_list.iter().map(|path| (path.clone(), format!("list {}", snapshot.id))));
        }
        for (path, manifest) in &table.manifests {
            let number = path.rsplit_once("-m").map_or("?", |(_, rest)| rest.trim_end_matches(".avro"));
            names.insert(path.clone(), format!("manifest {}.{number}", manifest.added_snapshot_id));
        }
        Self(names)
    }

    /// The name of a file whose path is relative to the place's root.
    pub fn short(&self, path: &str) -> String {
        let Some(path) = path.strip_prefix("t/") else { return path.into() };
        let shortened = |path: &str, folder: &str, extension: &str| {
            path.strip_prefix(folder).and_then(|rest| rest.strip_suffix(extension)).map(str::to_string)
        };
        let known = self.0.get(path).cloned().or_else(|| shortened(path, "data/", ".parquet"));
        known.or_else(|| shortened(path, "metadata/", ".metadata.json")).unwrap_or_else(|| path.into())
    }
}

/// The table with fields that no reader knows, in the metadata itself, in refs, schemas, snapshots and their summaries.
pub fn with_unknown_fields(mut table: Table) -> Table {
    let unknown = json!({"of": ["a later", {"version": 4.50, "big": u64::MAX}], "none": null});
    table.extra.entry("x-unknown").or_insert(unknown.clone());
    for reference in table.refs.iter_mut().flat_map(|refs| refs.values_mut()) {
        reference.extra.entry("x-unknown").or_insert(unknown.clone());
    }
    for schema in &mut table.schemas {
        schema.extra.entry("x-unknown").or_insert(unknown.clone());
    }
    for snapshot in table.snapshots.iter_mut().chain(&mut table.dropped_snapshots) {
        snapshot.extra.entry("x-unknown").or_insert(unknown.clone());
        snapshot.summary.entry("x-unknown".into()).or_insert("\u{e9} \"'".into());
    }
    table
}

/// The table with a schema and a partition spec that nothing uses: they stay unless a call is to clean up.
pub fn with_unused_parts(mut table: Table) -> Table {
    const UNUSED: i32 = 77;
    table.schemas.push(Schema::new(UNUSED, &[(1, "id", "long")]));
    table.partition_specs.push(PartitionSpec { id: UNUSED, fields: vec![] });
    table
}

/// The same table with its arrays in another order, as far as the order means nothing.
pub fn reordered(mut table: Table) -> Table {
    table.snapshots.reverse();
    table.schemas.reverse();
    table.partition_specs.reverse();
    table.statistics.reverse();
    table.partition_statistics.reverse();
    table.snapshots.iter_mut().for_each(|snapshot| snapshot.manifests.reverse());
    table.manifests.values_mut().for_each(|manifest| manifest.entries.reverse());
    table
}

/// The same table at `location` with paths spelled otherwise: on a local disk `file:///…` instead of `file:/…` and every
/// second one plain, in a bucket of S3 `s3a://…` for content and statistics of every second manifest and entry. A table whose
/// description has a location of its own is about one spelling and stays as it is, and so does one in another store.
pub fn respelled(mut table: Table, location: &str) -> Table {
    let other = match location.strip_prefix("s3://") {
        Some(rest) => format!("s3a://{rest}"),
        None => location.to_string(),
    };
    let is_on_disk = !location.contains("://");
    if table.location.is_some() || !is_on_disk && !other.starts_with("s3a://") {
        return table;
    }
    table.spelling = "file://".into();
    let respell = |path: &str| match path.starts_with('/') || path.contains(':') {
        true => path.to_string(),
        false => format!("{other}/{path}"),
    };
    for snapshot in table.snapshots.iter_mut().step_by(2) {
        if let Some(list) = snapshot.manifest_list.as_ref().filter(|_| is_on_disk) {
            snapshot.extra.entry("manifest-list").or_insert(json!(respell(list)));
        }
    }
    for manifest in table.manifests.values_mut().step_by(2) {
        for entry in &mut manifest.entries {
            let (old, new) = (entry.file.path.clone(), respell(&entry.file.path));
            if let Some(fault) = table.faults.get(&old).cloned() {
                table.faults.insert(new.clone(), fault);
            }
            if let Some(modified) = table.modified.get(&old).copied() {
                table.modified.insert(new.clone(), modified);
            }
            entry.file.path = new;
        }
    }
    for statistics in table.statistics.iter_mut().chain(&mut table.partition_statistics).step_by(2) {
        let (old, new) = (statistics.path.clone(), respell(&statistics.path));
        if let Some(fault) = table.faults.get(&old).cloned() {
            table.faults.insert(new.clone(), fault);
        }
        statistics.path = new;
    }
    table
}

/// Every file that any snapshot of the final metadata needs is there, unless it was missing before; so is every statistics
/// file that the metadata named before for anything but an expired snapshot.
pub fn nothing_live_is_gone(before: &Read, after: &Read, place: &Place, then: &Disk, now: &Disk) -> Result<(), String> {
    let all = after.snapshot_ids();
    let mut needed: BTreeSet<String> = match after.needed_by(&all) {
        Ok(files) => files.into_keys().collect(),
        // A table that was damaged before: what can still be read must not have lost anything.
        Err(_) => after.readable_files_of(&all).into_keys().collect(),
    };
    needed.extend(before.statistics_without(&expired(before, after)));
    needed.extend(after.statistics_of(&all));
    let relative = needed.iter().filter_map(|path| place.relative(path));
    let lost: Vec<_> = relative.filter(|path| then.contains_key(path) && !now.contains_key(path)).collect();
    ensure!(lost.is_empty(), "live files are gone: {lost:?}");
    Ok(())
}

fn expired(before: &Read, after: &Read) -> BTreeSet<i64> {
    before.snapshot_ids().difference(&after.snapshot_ids()).copied().collect()
}

/// Metadata is what it was without what was taken out, letter by letter; and what was taken out is what the call's rows
/// (or those of its dry run) say. Schemas and specs go only where that is asked for: then exactly those that nothing uses.
pub fn metadata_only_shrank(
    before: &Read,
    after: &Read,
    rows: &MetricRows,
    described: &Table,
    cleans: bool,
) -> Result<(), String> {
    if before.metadata_path == after.metadata_path {
        ensure!(before.text == after.text, "the metadata file was rewritten");
        return Ok(());
    }
    only_shrunk(before, after)?;
    let lost = |list: &str, id: &str| {
        let left = after.numbers(list, id);
        before.numbers(list, id).into_iter().filter(|id| !left.contains(id)).collect::<BTreeSet<_>>()
    };
    let (schemas, specs) = (lost("schemas", "schema-id"), lost("partition-specs", "spec-id"));
    let removed = [
        ("deleted_snapshots_count", expired(before, after).len()),
        ("removed_refs_count", before.refs().difference(&after.refs()).count()),
        ("removed_schemas_count", schemas.len()),
        ("removed_partition_specs_count", specs.len()),
    ];
    for (row, removed) in removed {
        let counted = rows.get(row).copied();
        ensure!(counted.is_none_or(|counted| counted == removed as i64), "{row} is {counted:?}, but {removed} went");
    }
    let (unused_schemas, unused_specs) = if cleans { unused(before, after, described) } else { Default::default() };
    ensure!(schemas == unused_schemas, "schemas {schemas:?} went, but {unused_schemas:?} should have");
    ensure!(specs == unused_specs, "partition specs {specs:?} went, but {unused_specs:?} should have");
    Ok(())
}

/// The schemas and partition specs that are neither the table's own nor of any snapshot that stays.
fn unused(before: &Read, after: &Read, described: &Table) -> (BTreeSet<i64>, BTreeSet<i64>) {
    let staying = after.snapshot_ids();
    let snapshots = || described.snapshots.iter().filter(|snapshot| staying.contains(&snapshot.id));
    let manifests = snapshots().flat_map(|snapshot| &snapshot.manifests);
    let mut used_specs: BTreeSet<_> =
        manifests.filter_map(|path| Some(i64::from(described.manifests.get(path)?.spec_id))).collect();
    used_specs.insert(described.default_spec_id.into());
    let mut used_schemas: BTreeSet<_> = snapshots().filter_map(|snapshot| snapshot.schema_id).map(i64::from).collect();
    used_schemas.insert(described.current_schema_id.into());
    let all = |list: &str, id: &str| before.numbers(list, id).into_iter().collect::<BTreeSet<_>>();
    // A snapshot that doesn't say which schema it has may have any.
    let schemas = match snapshots().all(|snapshot| snapshot.schema_id.is_some()) {
        true => &all("schemas", "schema-id") - &used_schemas,
        false => BTreeSet::new(),
    };
    (schemas, &all("partition-specs", "spec-id") - &used_specs)
}

/// The rows that count files by what they are, and the kinds that each of them counts.
const BY_KIND: [(&str, &[FileKind]); 8] = [
    ("deleted_data_files_count", &[FileKind::Data]),
    ("deleted_position_delete_files_count", &[FileKind::PositionDeletes, FileKind::DeletionVector]),
    ("deleted_equality_delete_files_count", &[FileKind::EqualityDeletes]),
    ("deleted_manifest_files_count", &[FileKind::Manifest]),
    ("deleted_manifest_lists_count", &[FileKind::ManifestList]),
    ("deleted_statistics_files_count", &[FileKind::Statistics, FileKind::PartitionStatistics]),
    ("deleted_metadata_files_count", &[FileKind::Metadata]),
    ("deleted_unknown_files_count", &[FileKind::Unknown]),
];

/// The metric rows say what is gone: by kind, in all, and for an expiry each kind as the table's description has it.
pub fn counts_add_up(
    metrics: &MetricRows,
    gone: &BTreeSet<String>,
    after: &Read,
    described: &Table,
    is_expiry: bool,
) -> Result<(), String> {
    let of_kinds: i64 = BY_KIND.iter().map(|(name, _)| metrics[*name]).sum();
    let all = metrics["deleted_files_count"];
    ensure!(of_kinds == all, "the kinds add up to {of_kinds}, not to {all}: {metrics:?}");
    ensure!(all == gone.len() as i64, "{all} files are reported as deleted, but {} are gone: {gone:?}", gone.len());
    if !is_expiry {
        return Ok(());
    }
    let left = after.snapshot_ids().len() as i64;
    ensure!(metrics["retained_snapshots_count"] == left, "retained_snapshots_count in {metrics:?}");
    let kinds = kinds(described);
    for (name, of) in BY_KIND {
        let kind = |path: &&String| kinds.get(path.as_str()).copied().unwrap_or(FileKind::Unknown);
        let expected = gone.iter().filter(|path| of.contains(&kind(path))).count() as i64;
        ensure!(metrics[name] == expected, "{name} is {}, but {expected} are gone of {gone:?}", metrics[name]);
    }
    Ok(())
}

/// What each described file is, by its path relative to the place's root.
fn kinds(table: &Table) -> BTreeMap<String, FileKind> {
    let snapshots = table.snapshots.iter().chain(&table.dropped_snapshots).map(|snapshot| snapshot.id);
    let live = table.live_files_of(snapshots).into_iter().map(|file| (below_root(&file.path), file.kind));
    let mut kinds: BTreeMap<_, _> = live.collect();
    kinds.extend((0..=table.version).flat_map(|number| {
        let names = [
            format!("v{number}.metadata.json"),
            format!("v{number}.gz.metadata.json"),
            format!("v{number}.metadata.json.gz"),
        ];
        names.map(|name| (format!("t/metadata/{name}"), FileKind::Metadata))
    }));
    kinds
}

/// The path relative to the place's root of a described path.
fn below_root(path: &str) -> String {
    format!("t/{path}")
}

/// Exactly the files went that expired snapshots need and retained ones don't, by the table's description, and metadata
/// files that fell out of the log of a table that wants them deleted. Those that stay are as many as the call's rows say
/// (a call that failed has none).
pub fn set_difference(
    metrics: Option<&MetricRows>,
    gone: &BTreeSet<String>,
    before: &Read,
    after: &Read,
    described: &Table,
    place: &Place,
    then: &Disk,
) -> Result<(), String> {
    let expired = expired(before, after);
    let in_place = |path: &str| place.relative(&plain_path(path)).unwrap_or_else(|| below_root(path));
    let paths_of = |table: &Table| {
        table.only_needed_by(&expired).into_iter().map(|file| in_place(&file.path)).collect::<BTreeSet<_>>()
    };
    let dropped = metadata_files_out_of_the_log(before, after, place);
    let live = gone - &(&paths_of(described) | &dropped);
    ensure!(live.is_empty(), "files are gone that not only expired snapshots need: {live:?}");
    let Some(metrics) = metrics else { return Ok(()) };

    let is_lost = |path: &String| described.faults.contains_key(path) || !then.contains_key(&in_place(path));
    let (known, unread) = without_what_can_not_be_read(described, &expired, is_lost);
    let left = &(&paths_of(&known) | &dropped) - gone;
    let skipped = metrics["skipped_missing_metadata_count"];
    ensure!(skipped == unread, "{skipped} files of expired snapshots are said to be unreadable, not {unread}");
    let says_so = |name: &str| {
        let rows = ["skipped_", "failed_deletions_", "already_missing_", "left_behind_files_", "deferred_files_"];
        rows.iter().any(|row| name.starts_with(row)) && name != "skipped_missing_metadata_count"
    };
    let counted: i64 = metrics.iter().filter(|(name, _)| says_so(name)).map(|(_, value)| value).sum();
    ensure!(
        left.len() as i64 == counted,
        "files stay that only expired snapshots need: {left:?}, but {counted} are counted in {metrics:?}"
    );
    Ok(())
}

/// The metadata files that an expiry is to delete.
fn metadata_files_out_of_the_log(before: &Read, after: &Read, place: &Place) -> BTreeSet<String> {
    if before.metadata["properties"]["write.metadata.delete-after-commit.enabled"] != "true" {
        return BTreeSet::new();
    }
    let log = |table: &Read| {
        let files = table.list("metadata-log").iter().filter_map(|entry| entry["metadata-file"].as_str());
        files.filter_map(|file| place.relative(&plain_path(file))).collect::<BTreeSet<_>>()
    };
    &log(before) - &log(after)
}

/// The table as a reader sees it who can't read these files, and how many manifest lists and manifests of only expired
/// snapshots they are.
fn without_what_can_not_be_read(
    described: &Table,
    expired: &BTreeSet<i64>,
    is_lost: impl Fn(&String) -> bool,
) -> (Table, i64) {
    let dead: BTreeSet<String> = described.only_needed_by(expired).into_iter().map(|file| file.path).collect();
    let (mut table, mut unread) = (described.clone(), BTreeSet::new());
    for snapshot in table.snapshots.iter_mut().filter(|snapshot| expired.contains(&snapshot.id)) {
        if let Some(list) = snapshot.manifest_list.clone().filter(&is_lost) {
            snapshot.manifests.clear();
            unread.insert(list);
        }
    }
    let listed: BTreeSet<String> = table.snapshots.iter().flat_map(|snapshot| snapshot.manifests.clone()).collect();
    for (path, manifest) in table.manifests.iter_mut().filter(|(path, _)| dead.contains(*path)) {
        if is_lost(path) && listed.contains(path) {
            manifest.entries.clear();
            unread.insert(path.clone());
        }
    }
    (table, unread.len() as i64)
}

/// A removal of orphans took nothing that the table names: files of its snapshots, statistics, and the metadata log.
pub fn only_orphans_went(gone: &BTreeSet<String>, before: &Read, place: &Place) -> Result<(), String> {
    let named: BTreeSet<String> = named(before, place);
    let lost: Vec<_> = gone.intersection(&named).collect();
    ensure!(lost.is_empty(), "files are gone that the table names: {lost:?}");
    Ok(())
}

/// What the table names, by paths relative to the place's root.
fn named(table: &Read, place: &Place) -> BTreeSet<String> {
    table.readably_referenced().iter().filter_map(|path| place.relative(path)).collect()
}

/// 2000-01-01, ms since the epoch: nothing older is believed to have been written then.
const EARLIEST_MS: i64 = 946_684_800_000;

/// A removal of orphans without any argument took exactly the files that nothing names, that have no hidden name, lie where
/// the table writes or has live files, and are at least three days old.
pub fn every_orphan_went(
    gone: &BTreeSet<String>,
    before: &Read,
    place: &Place,
    described: &Table,
    then: &Disk,
    now_ms: i64,
) -> Result<(), String> {
    let named = named(before, place);
    let own = OwnFolders::of(described, &named, place);
    let is_old = |path: &String| {
        let modified =
            then[path].modified.duration_since(std::time::UNIX_EPOCH).map_or(0, |age| age.as_millis() as i64);
        (EARLIEST_MS..now_ms - 3 * DAY_MS).contains(&modified)
    };
    // Which metadata file a catalog points to is unknown: all of them stay.
    let may_be_current = |path: &String| described.naming == MetadataNaming::Catalog && path.contains(".metadata.json");
    let is_orphan = |path: &String| own.may_have_left(path) && is_old(path) && !may_be_current(path);
    let expected: BTreeSet<_> =
        files(then).into_iter().filter(|path| !named.contains(path) && is_orphan(path)).collect();
    let (more, fewer) = (gone - &expected, &expected - gone);
    ensure!(more.is_empty() && fewer.is_empty(), "no orphans, but gone: {more:?}; orphans, but left: {fewer:?}");
    Ok(())
}

/// Where a table may have left orphans.
struct OwnFolders {
    folders: BTreeSet<String>,
    fields: BTreeSet<String>,
    /// The table writes right into its location.
    is_all: bool,
}

impl OwnFolders {
    fn of(described: &Table, named: &BTreeSet<String>, place: &Place) -> Self {
        let mut folders: BTreeSet<String> = ["data", "metadata"].map(String::from).into();
        folders.extend(named.iter().filter_map(|path| Some(Self::folder(path.strip_prefix("t/")?).to_string())));
        let is_write_path = |name: &String| name.starts_with("write.") && name.ends_with(".path");
        let write_paths = described.properties.iter().filter(|(name, _)| is_write_path(name));
        let inside: Vec<String> = write_paths
            .filter_map(|(_, path)| place.relative(&plain_path(path)))
            .map(|path| format!("{}/", path.trim_end_matches('/')))
            .collect();
        let is_all = inside.iter().any(|path| path == "t/");
        folders.extend(inside.iter().filter_map(|path| Some(Self::folder(path.strip_prefix("t/")?).to_string())));
        let fields = described.partition_specs.iter().flat_map(|spec| &spec.fields);
        Self { folders, fields: fields.map(|field| field.name.clone()).collect(), is_all }
    }

    /// The folder of the location that this path lies in; none for the location itself.
    fn folder(path: &str) -> &str {
        path.split_once('/').map_or("", |(folder, _)| folder)
    }

    fn may_have_left(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix("t/") else { return false };
        let is_field = |part: &str| part.split_once('=').is_some_and(|(field, _)| self.fields.contains(field));
        // Writers encode field names as values in URLs.
        let decoded =
            |part: &str| url::form_urlencoded::parse(part.as_bytes()).next().map(|(field, _)| field.to_string());
        let is_partition = |part: &str| {
            is_field(part) || part.contains('=') && decoded(part).is_some_and(|field| self.fields.contains(&field))
        };
        let is_hidden = path.split('/').any(|part| part.starts_with(['_', '.']) && !is_field(part));
        let folder = Self::folder(path);
        !is_hidden && (self.is_all || self.folders.contains(folder) || is_partition(folder))
    }
}

/// The case came out the same with paths and arrays written differently.
pub fn same_outcome(one: &Outcome, other: &Outcome) -> Result<(), String> {
    ensure!(one.snapshots == other.snapshots, "spelling changes snapshots: {:?}, {:?}", one.snapshots, other.snapshots);
    ensure!(one.refs == other.refs, "spelling changes refs: {:?}, {:?}", one.refs, other.refs);
    ensure!(one.gone == other.gone, "spelling changes what goes: {:?}, {:?}", one.gone, other.gone);
    ensure!(one.reasons == other.reasons, "spelling changes reasons: {:?}, {:?}", one.reasons, other.reasons);
    let own = ["elapsed_ms", "deleted_bytes", "quarantined_bytes"];
    let comparable = |outcome: &Outcome| {
        let rows = outcome.metrics.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        rows.map(|(name, value)| (name.clone(), *value)).collect::<MetricRows>()
    };
    let (one, other) = (comparable(one), comparable(other));
    ensure!(one == other, "spelling changes metrics:\n  {one:?}\n  {other:?}");
    Ok(())
}
