//! What holds for every case, whatever it is about.

use std::collections::{BTreeMap, BTreeSet};

use iceberg_maintenance::fixtures::Table;
use iceberg_maintenance::report::FileKind;
use serde_json::json;

use crate::case::Outcome;
use crate::place::{Place, Read};
use crate::support::{Disk, MetricRows, ensure};
use crate::table::only_shrunk;

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

/// The same table on a local disk at `location`, with `file:///…` instead of `file:/…` and here and there a plain path.
pub fn respelled(mut table: Table, location: &str) -> Table {
    if table.location.is_some() {
        return table;
    }
    table.spelling = "file://".into();
    let plain = |path: &str| match path.starts_with('/') || path.contains(':') {
        true => path.to_string(),
        false => format!("{location}/{path}"),
    };
    for snapshot in table.snapshots.iter_mut().step_by(2) {
        if let Some(list) = &snapshot.manifest_list {
            snapshot.extra.entry("manifest-list").or_insert(json!(plain(list)));
        }
    }
    for manifest in table.manifests.values_mut().step_by(2) {
        for entry in &mut manifest.entries {
            let (old, new) = (entry.file.path.clone(), plain(&entry.file.path));
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
        let (old, new) = (statistics.path.clone(), plain(&statistics.path));
        if let Some(fault) = table.faults.get(&old).cloned() {
            table.faults.insert(new.clone(), fault);
        }
        statistics.path = new;
    }
    table
}

/// Every file that any snapshot of the final metadata needs is there, unless it was missing before.
pub fn nothing_live_is_gone(after: &Read, place: &Place, before: &Disk, now: &Disk) -> Result<(), String> {
    let all = after.snapshot_ids();
    let mut needed: BTreeSet<String> = match after.needed_by(&all) {
        Ok(files) => files.into_keys().collect(),
        // A table that was damaged before: what can still be read must not have lost anything.
        Err(_) => after.readable_files_of(&all).into_keys().collect(),
    };
    needed.extend(after.statistics_of(&all));
    let relative = needed.iter().filter_map(|path| place.relative(path));
    let lost: Vec<_> = relative.filter(|path| before.contains_key(path) && !now.contains_key(path)).collect();
    ensure!(lost.is_empty(), "live files are gone: {lost:?}");
    Ok(())
}

/// Metadata is what it was without what was taken out, letter by letter.
pub fn metadata_only_shrank(before: &Read, after: &Read) -> Result<(), String> {
    match before.metadata_path == after.metadata_path {
        true => {
            ensure!(before.text == after.text, "the metadata file was rewritten");
            Ok(())
        }
        false => only_shrunk(&before.text, &after.text),
    }
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
    before: &Read,
    after: &Read,
    described: &Table,
    is_expiry: bool,
) -> Result<(), String> {
    let of_kinds: i64 = BY_KIND.iter().map(|(name, _)| metrics[*name]).sum();
    let all = metrics["deleted_files_count"];
    ensure!(of_kinds == all, "the kinds add up to {of_kinds}, not to {all}: {metrics:?}");
    ensure!(all == gone.len() as i64, "{all} files are reported as deleted, but {} are gone: {gone:?}", gone.len());
    let (had, has) = (before.snapshot_ids(), after.snapshot_ids());
    let counted = (metrics["deleted_snapshots_count"], metrics["removed_refs_count"]);
    let removed = (had.len() - has.len(), before.refs().len() - after.refs().len());
    ensure!(counted == (removed.0 as i64, removed.1 as i64), "{counted:?} counted, {removed:?} removed");
    if !is_expiry {
        return Ok(());
    }
    ensure!(metrics["retained_snapshots_count"] == has.len() as i64, "retained_snapshots_count in {metrics:?}");
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

/// Exactly the files went that expired snapshots need and retained ones don't, by the table's description. Where the call
/// says that it left files alone or behind, fewer may have gone.
pub fn set_difference(
    metrics: &MetricRows,
    gone: &BTreeSet<String>,
    before: &Read,
    after: &Read,
    described: &Table,
) -> Result<(), String> {
    let expired = before.snapshot_ids().difference(&after.snapshot_ids()).copied().collect();
    let dead: BTreeSet<_> = described.only_needed_by(&expired).into_iter().map(|file| below_root(&file.path)).collect();
    let is_metadata = |path: &&String| path.ends_with(".metadata.json") || path.ends_with(".metadata.json.gz");
    let gone: BTreeSet<_> = gone.iter().filter(|path| !is_metadata(path)).cloned().collect();
    let live: Vec<_> = gone.difference(&dead).collect();
    ensure!(live.is_empty(), "files are gone that not only expired snapshots need: {live:?}");
    let left: Vec<_> = dead.difference(&gone).collect();
    let excused = metrics.iter().any(|(name, value)| {
        let excuses = ["skipped_", "failed_", "already_missing_", "left_behind_"];
        *value != 0 && excuses.iter().any(|excuse| name.starts_with(excuse))
    });
    ensure!(left.is_empty() || excused, "files stay that only expired snapshots need: {left:?}");
    Ok(())
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
