//! One look at everything that a version of a table needs.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{StreamExt, TryStreamExt};

use super::findings::{Counts, Finding, Findings, Problem, Severity, Verification};
use super::listed_files::ListedFiles;
use super::live_entries::{Fault, Faults, LiveEntries};
use crate::catalog::LoadedTable;
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::progress::{RunStage, stage};
use crate::reachability::{
    ManifestFile, Reading, SnapshotManifests, SnapshotSet, for_each_live_entry_with_references, manifests_of_snapshots,
};
use crate::report::FileKind;
use crate::scan::Unreadable;
use crate::storage::Stores;
use crate::table::location::percent_decoded;
use crate::table::{Location, Snapshot, TableMetadata};

/// A file that something needs.
#[derive(Debug, Clone)]
struct Needed {
    content: FileKind,
    /// Its size by what names it.
    bytes: Option<u64>,
    /// The snapshot that needs it, by its place among all, oldest first.
    snapshot: Option<usize>,
}

/// A verification under way.
struct Check<'a> {
    /// Oldest first.
    snapshots: &'a [&'a Snapshot],
    listed: ListedFiles,
    findings: Findings,
    /// Needed files that the listing didn't show.
    unlisted: HashMap<String, Needed>,
    unlisted_memory: MemoryReservation,
    /// Snapshots of which not everything could be read.
    doubtful: SnapshotSet,
}

/// How many unlisted files are prepared to be looked at; fewer are looked at at once.
const LOOKS: usize = 4096;

/// The listing comes first, so that it shows whatever the metadata that was loaded before it names.
pub(super) async fn check(table: &LoadedTable, context: &RunContext) -> Result<Verification> {
    let (metadata, task) = (&table.metadata, &context.task);
    let mut snapshots: Vec<&Snapshot> = metadata.snapshots().iter().collect();
    snapshots.sort_by_key(|snapshot| (snapshot.timestamp_ms, snapshot.snapshot_id));
    let listed = ListedFiles::read(metadata, context).await?;
    let mut check = Check::new(&snapshots, listed, task);

    check.refs(metadata)?;
    check.metadata_files(metadata)?;
    check.statistics(metadata)?;
    let read = manifests_of_snapshots(&snapshots, task);
    let manifests = stage(task, RunStage::ReadingMetadata, read).await?;
    check.manifest_lists(&manifests)?;
    check.manifests(&manifests)?;
    let entries = check.live_entries(&manifests, task).await?;
    let faults = entries.faults(&manifests, &check.doubtful);
    check.faulty_entries(&manifests, &faults, task).await?;
    stage(task, RunStage::Checking, check.unlisted_files(context)).await?;

    Ok(Verification {
        table: table.name.clone(),
        counts: Counts {
            snapshots: snapshots.len(),
            manifests: manifests.manifests.len(),
            files_checked: check.listed.needed() + check.unlisted.len(),
            files_listed: check.listed.len(),
        },
        findings: check.findings.into_vec(),
        notices: table.notices.clone(),
    })
}

impl<'a> Check<'a> {
    fn new(snapshots: &'a [&'a Snapshot], listed: ListedFiles, task: &TaskContext) -> Self {
        Self {
            snapshots,
            listed,
            findings: Findings::new(task),
            unlisted: HashMap::new(),
            unlisted_memory: MemoryConsumer::new("UnlistedFiles").register(task.memory_pool()),
            doubtful: SnapshotSet::none_of(snapshots.len()),
        }
    }

    fn refs(&mut self, metadata: &TableMetadata) -> Result<()> {
        for (name, reference) in metadata.refs() {
            if metadata.snapshot(reference.snapshot_id).is_none() {
                let finding = Finding {
                    severity: Severity::Error,
                    problem: Problem::RefWithoutSnapshot,
                    file_path: None,
                    content: None,
                    snapshot_id: Some(reference.snapshot_id),
                    detail: format!("ref {name} points to a snapshot that the metadata doesn't have"),
                };
                self.findings.add(finding, None)?;
            }
        }
        Ok(())
    }

    /// The metadata itself, and the files of the log, which nothing needs.
    fn metadata_files(&mut self, metadata: &TableMetadata) -> Result<()> {
        let log = metadata.metadata_log().iter().map(|entry| entry.metadata_file.as_str());
        for file in log.chain([metadata.metadata_location()]) {
            self.need(file, Needed { content: FileKind::Metadata, bytes: None, snapshot: None })?;
        }
        Ok(())
    }

    fn statistics(&mut self, metadata: &TableMetadata) -> Result<()> {
        let places: HashMap<i64, usize> =
            self.snapshots.iter().enumerate().map(|(place, snapshot)| (snapshot.snapshot_id, place)).collect();
        let table = metadata.statistics().iter().map(|file| (file, FileKind::Statistics));
        let partition = metadata.partition_statistics().iter().map(|file| (file, FileKind::PartitionStatistics));
        for (file, content) in table.chain(partition) {
            let snapshot = places.get(&file.snapshot_id).copied();
            if snapshot.is_none() {
                let finding = Finding {
                    severity: Severity::Warning,
                    problem: Problem::StatisticsWithoutSnapshot,
                    file_path: Some(file.statistics_path.clone()),
                    content: Some(content),
                    snapshot_id: Some(file.snapshot_id),
                    detail: "they describe a snapshot that the metadata doesn't have".into(),
                };
                self.findings.add(finding, None)?;
            }
            let bytes = file.file_size_in_bytes.and_then(|bytes| u64::try_from(bytes).ok());
            self.need(&file.statistics_path, Needed { content, bytes, snapshot })?;
        }
        Ok(())
    }

    fn manifest_lists(&mut self, manifests: &SnapshotManifests) -> Result<()> {
        for (place, snapshot) in self.snapshots.iter().enumerate() {
            if let Some(list) = &snapshot.manifest_list {
                let needed = Needed { content: FileKind::ManifestList, bytes: None, snapshot: Some(place) };
                self.need(list, needed)?;
            }
        }
        for Unreadable { location, why, index, missing } in &manifests.unreadable {
            self.doubtful.insert(*index);
            self.unreadable(location, FileKind::ManifestList, Some(*index), why, *missing)?;
        }
        for place in &manifests.short {
            self.doubtful.insert(*place);
            let list = self.snapshots.get(*place).and_then(|snapshot| snapshot.manifest_list.as_deref());
            let why = "its manifests hold fewer files than the snapshot's summary counts: it seems to be cut short";
            self.unreadable(list.unwrap_or_default(), FileKind::ManifestList, Some(*place), why, false)?;
        }
        Ok(())
    }

    fn manifests(&mut self, manifests: &SnapshotManifests) -> Result<()> {
        for (ManifestFile { reference, .. }, listed_by) in manifests.manifests.iter().zip(&manifests.listed_by) {
            let bytes = reference.length.and_then(|bytes| u64::try_from(bytes).ok());
            let needed = Needed { content: FileKind::Manifest, bytes, snapshot: listed_by.last() };
            self.need(&reference.location, needed)?;
        }
        for place in &manifests.contradicted {
            let why = "two manifest lists say different things of it";
            self.unreadable_manifest(manifests, *place, why, false)?;
        }
        Ok(())
    }

    /// Reads every manifest, once.
    async fn live_entries(&mut self, manifests: &SnapshotManifests, task: &Arc<TaskContext>) -> Result<LiveEntries> {
        let mut entries = LiveEntries::new(manifests.manifests.len(), task);
        let newest: Vec<Option<usize>> = manifests.listed_by.iter().map(SnapshotSet::last).collect();
        let skipped = for_each_live_entry_with_references(&manifests.manifests, Reading::Lenient, task, |entry| {
            let file = self.listed.hashes.hash(entry.path);
            entries.add(&entry, file, &mut self.listed.hashes)?;
            let snapshot = newest.get(entry.manifest).copied().flatten();
            self.need_hashed(entry.path, file, Needed { content: entry.kind, bytes: entry.bytes, snapshot })
        })
        .await?;
        for Unreadable { why, index, missing, .. } in skipped {
            manifests.listed_by.get(index).into_iter().for_each(|set| self.doubtful.add(set));
            self.unreadable_manifest(manifests, index, &why, missing)?;
        }
        Ok(entries)
    }

    /// Says which files it is that single snapshots have twice or needlessly.
    async fn faulty_entries(
        &mut self,
        manifests: &SnapshotManifests,
        faults: &Faults,
        task: &Arc<TaskContext>,
    ) -> Result<()> {
        let places: Vec<usize> = faults.manifests.iter().copied().collect();
        let again: Vec<ManifestFile> =
            places.iter().filter_map(|place| manifests.manifests.get(*place).cloned()).collect();
        if again.is_empty() {
            return Ok(());
        }
        for_each_live_entry_with_references(&again, Reading::Lenient, task, |entry| {
            let Some(manifest) = places.get(entry.manifest) else { return Ok(()) };
            for (fault, newest) in faults.of_entry(&entry, *manifest, &mut self.listed.hashes) {
                let (severity, problem, detail) = match fault {
                    Fault::Duplicate => (
                        Severity::Error,
                        Problem::DuplicateFile,
                        "the snapshot has more than one live entry for it".to_string(),
                    ),
                    Fault::Dangling => (
                        Severity::Warning,
                        Problem::DanglingDeleteFile,
                        format!(
                            "{}, which it is for, is not live in the snapshot",
                            entry.referenced.unwrap_or_default()
                        ),
                    ),
                    Fault::WithoutData => (
                        Severity::Warning,
                        Problem::DanglingDeleteFile,
                        "the snapshot has no live data file".to_string(),
                    ),
                };
                let finding = Finding {
                    severity,
                    problem,
                    file_path: Some(entry.path.to_string()),
                    content: Some(entry.kind),
                    snapshot_id: self.snapshot_id(Some(newest)),
                    detail,
                };
                self.findings.add(finding, Some(newest))?;
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Looks at needed files that the listing didn't show, one by one: they lie elsewhere, behind a link, or nowhere.
    async fn unlisted_files(&mut self, context: &RunContext) -> Result<()> {
        let (at_once, _) = context.options().reading();
        let stores = Stores::new(context.task.runtime_env());
        let unlisted = std::mem::take(&mut self.unlisted);
        let files: Vec<_> = unlisted.iter().collect();
        for some in files.chunks(LOOKS) {
            let looks = some.iter().map(|(path, _)| look_at(path, &stores)).collect::<Vec<_>>();
            let looks: Vec<Look> = futures::stream::iter(looks).buffered(at_once.max(1)).try_collect().await?;
            for ((path, needed), look) in some.iter().zip(looks) {
                match look {
                    Look::Size(size) => self.compare_size(path, needed, size)?,
                    Look::Missing => self.missing(path, needed)?,
                    Look::Impossible(why) => self.unreadable(path, needed.content, needed.snapshot, &why, false)?,
                }
            }
        }
        self.unlisted = unlisted;
        Ok(())
    }

    fn need(&mut self, path: &str, needed: Needed) -> Result<()> {
        let hash = self.listed.hashes.hash(path);
        self.need_hashed(path, hash, needed)
    }

    fn need_hashed(&mut self, path: &str, hash: u64, needed: Needed) -> Result<()> {
        if let Some(size) = self.listed.need(hash) {
            return self.compare_size(path, &needed, size);
        }
        match self.unlisted.get_mut(path) {
            Some(known) => known.snapshot = known.snapshot.max(needed.snapshot),
            None => {
                self.unlisted_memory.try_grow(path.len() + size_of::<(String, Needed)>())?;
                self.unlisted.insert(path.to_string(), needed);
            }
        }
        Ok(())
    }

    fn compare_size(&mut self, path: &str, needed: &Needed, size: u64) -> Result<()> {
        let Some(expected) = needed.bytes.filter(|expected| *expected != size) else { return Ok(()) };
        // Whether a manifest is whole is seen when it is read, and no reader depends on statistics.
        let severity = match needed.content {
            FileKind::Manifest | FileKind::Statistics | FileKind::PartitionStatistics => Severity::Warning,
            _ => Severity::Error,
        };
        let detail = format!("it has {size} bytes, but {} says {expected}", named_by(needed.content));
        self.add(severity, Problem::SizeDiffers, path, needed, detail)
    }

    fn missing(&mut self, path: &str, needed: &Needed) -> Result<()> {
        let (severity, detail) = match (needed.content, needed.snapshot) {
            (FileKind::Metadata, _) => (Severity::Warning, "the metadata log names it".to_string()),
            (_, None) => (Severity::Warning, "it does not exist, and no snapshot needs it".to_string()),
            (_, Some(_)) => (Severity::Error, format!("it does not exist, but {} names it", named_by(needed.content))),
        };
        self.add(severity, Problem::MissingFile, path, needed, detail)
    }

    fn unreadable_manifest(
        &mut self,
        manifests: &SnapshotManifests,
        place: usize,
        why: &str,
        missing: bool,
    ) -> Result<()> {
        let location = manifests.manifests.get(place).map(|manifest| manifest.reference.location.as_str());
        let newest = manifests.listed_by.get(place).and_then(SnapshotSet::last);
        self.unreadable(location.unwrap_or_default(), FileKind::Manifest, newest, why, missing)
    }

    /// A file that is missing is told of where it is looked for.
    fn unreadable(
        &mut self,
        path: &str,
        content: FileKind,
        snapshot: Option<usize>,
        why: &str,
        missing: bool,
    ) -> Result<()> {
        let needed = Needed { content, bytes: None, snapshot };
        match missing {
            true => self.missing(path, &needed),
            false => self.add(Severity::Error, Problem::UnreadableFile, path, &needed, why.to_string()),
        }
    }

    fn add(&mut self, severity: Severity, problem: Problem, path: &str, needed: &Needed, detail: String) -> Result<()> {
        let finding = Finding {
            severity,
            problem,
            file_path: Some(path.to_string()),
            content: Some(needed.content),
            snapshot_id: self.snapshot_id(needed.snapshot),
            detail,
        };
        self.findings.add(finding, needed.snapshot)
    }

    fn snapshot_id(&self, place: Option<usize>) -> Option<i64> {
        self.snapshots.get(place?).map(|snapshot| snapshot.snapshot_id)
    }
}

/// What names files of this kind, and says how large they are.
fn named_by(content: FileKind) -> &'static str {
    match content {
        FileKind::Manifest => "the manifest list",
        FileKind::ManifestList | FileKind::Statistics | FileKind::PartitionStatistics | FileKind::Metadata => {
            "the metadata"
        }
        _ => "the manifest",
    }
}

/// What a look at a single file showed.
enum Look {
    Size(u64),
    Missing,
    /// There is no way to look.
    Impossible(String),
}

async fn look_at(path: &str, stores: &Stores) -> Result<Look> {
    let look = |path: String| async move {
        let location = Location::parse(&path)?;
        Ok((location.is_local(), stores.store(&location)?.stat(&location).await?))
    };
    let (is_local, stat) = match look(path.to_string()).await {
        Ok(looked) => looked,
        Err(error @ (Error::Location { .. } | Error::NoStore { .. })) => {
            return Ok(Look::Impossible(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    if let Some(stat) = stat {
        return Ok(Look::Size(stat.size));
    }
    // Some writers name local files by URL.
    let decoded = percent_decoded(path).filter(|decoded| is_local && decoded != path);
    match decoded {
        Some(decoded) => Ok(look(decoded).await?.1.map_or(Look::Missing, |stat| Look::Size(stat.size))),
        None => Ok(Look::Missing),
    }
}
