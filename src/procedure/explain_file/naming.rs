//! What names a file, and for whom.

use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::Answer;
use crate::catalog::VERSION_HINT;
use crate::error::Result;
use crate::procedure::remove_orphan_files::{OwnFolders, Scope};
use crate::reachability::{OneFile, Reading, Sameness, SnapshotSet, for_each_live_entry, manifests_of_snapshots};
use crate::report::FileKind;
use crate::table::{FilePrefix, PathRules, Roots, StatisticsFile, TableMetadata};

/// Everything in the newest metadata that names a file.
#[derive(Debug)]
pub(super) struct Naming {
    /// Places in the metadata that name the file, whatever snapshots there are.
    pub by_metadata: Vec<&'static str>,
    /// The file holds statistics of a snapshot that the metadata doesn't have.
    pub is_left_over_statistics: bool,
    /// What the file is to those that name it.
    pub contents: Vec<FileKind>,
    /// The manifests that name it.
    manifests: Vec<String>,
    /// The snapshots that need it, newest first.
    pub snapshots: Vec<i64>,
    /// A scheme and authority that the same path is named under.
    pub other_prefix: Option<FilePrefix>,
    /// Files that could not be read, which may name it, too.
    unreadable: Vec<String>,
    pub own_folders: OwnFolders,
}

/// How many names an answer lists.
const LISTED: usize = 10;

impl Naming {
    /// Compares the file with everything that the metadata, all manifest lists and all manifests name.
    pub(super) async fn find(
        file: &mut OneFile,
        metadata: &TableMetadata,
        rules: &PathRules,
        task: &Arc<TaskContext>,
    ) -> Result<Self> {
        let mut snapshots: Vec<_> = metadata.snapshots().iter().collect();
        snapshots.sort_by_key(|snapshot| (snapshot.timestamp_ms, snapshot.snapshot_id));
        let location = Scope::resolve(metadata, None, rules)?.as_roots(rules);
        let mut search = Search {
            file,
            location: &location,
            needed_by: SnapshotSet::none_of(snapshots.len()),
            naming: Naming {
                by_metadata: vec![],
                is_left_over_statistics: false,
                contents: vec![],
                manifests: vec![],
                snapshots: vec![],
                other_prefix: None,
                unreadable: vec![],
                own_folders: OwnFolders::of(metadata, rules),
            },
        };
        search.in_metadata(metadata)?;
        let place_of = |id: i64| snapshots.iter().position(|snapshot| snapshot.snapshot_id == id);
        for (statistics, content) in all_statistics(metadata) {
            if search.is_named(&statistics.statistics_path)? {
                search.note(content, None);
                match place_of(statistics.snapshot_id) {
                    Some(place) => search.needed_by.insert(place),
                    None => search.naming.is_left_over_statistics = true,
                }
            }
        }
        for (place, snapshot) in snapshots.iter().enumerate() {
            if let Some(list) = &snapshot.manifest_list
                && search.is_named(list)?
            {
                search.note(FileKind::ManifestList, None);
                search.needed_by.insert(place);
            }
        }
        let listed = manifests_of_snapshots(&snapshots, task).await?;
        for (manifest, listed_by) in listed.manifests.iter().zip(&listed.listed_by) {
            if search.is_named(&manifest.reference.location)? {
                search.note(FileKind::Manifest, None);
                search.needed_by.add(listed_by);
            }
        }
        let skipped = for_each_live_entry(&listed.manifests, Reading::Lenient, task, |entry| {
            if search.is_named(entry.path)? {
                let manifest = listed.manifests.get(entry.manifest).map(|manifest| &manifest.reference.location);
                search.note(entry.kind, manifest);
                listed.listed_by.get(entry.manifest).into_iter().for_each(|set| search.needed_by.add(set));
            }
            Ok(())
        })
        .await?;
        let Search { needed_by, mut naming, .. } = search;
        naming.unreadable = listed.unreadable.iter().chain(&skipped).map(|file| file.why.clone()).collect();
        naming.manifests.sort_unstable();
        naming.snapshots = needed_by.iter().map(|place| snapshots[place].snapshot_id).collect();
        naming.snapshots.reverse();
        Ok(naming)
    }

    /// True when something of the newest metadata names the file.
    pub(super) fn is_named(&self) -> bool {
        !self.by_metadata.is_empty() || !self.contents.is_empty()
    }

    /// The refs that point to one of the snapshots that need the file, and what they point to.
    pub(super) fn heads(&self, metadata: &TableMetadata) -> Vec<(String, i64)> {
        let refs = metadata.refs().into_iter().map(|(name, reference)| (name, reference.snapshot_id));
        refs.filter(|(_, snapshot_id)| self.snapshots.contains(snapshot_id)).collect()
    }

    pub(super) fn answers(&self, metadata: &TableMetadata) -> Vec<Answer> {
        let named_by = match (self.by_metadata.join(", "), &self.other_prefix) {
            (text, _) if !text.is_empty() => text,
            _ if self.is_named() => "snapshots".to_string(),
            (_, Some(prefix)) => format!("nothing, but the same path is named under {prefix}"),
            _ => "nothing".to_string(),
        };
        let unreadable =
            (!self.unreadable.is_empty()).then(|| format!("not read: {}", some_of(&self.unreadable, "; ")));
        let contents: Vec<String> = self.contents.iter().map(|content| content.as_str().to_string()).collect();
        let content = if contents.is_empty() { "none".to_string() } else { contents.join(", ") };
        let manifests = (!self.manifests.is_empty()).then(|| format!("named by {}", some_of(&self.manifests, ", ")));
        let ids: Vec<String> = self.snapshots.iter().map(i64::to_string).collect();
        let heads: Vec<String> = self.heads(metadata).into_iter().map(|(name, id)| format!("{name} ({id})")).collect();
        let refs = if heads.is_empty() { "none".to_string() } else { some_of(&heads, ", ") };
        vec![
            Answer::new("named_by", named_by, unreadable),
            Answer::new("content", content, manifests),
            Answer::new("snapshots", ids.len().to_string(), (!ids.is_empty()).then(|| some_of(&ids, ", "))),
            Answer::new("refs", refs, None),
        ]
    }
}

/// The first names of a list, and how many more there are.
pub(super) fn some_of(names: &[String], separator: &str) -> String {
    let shown = names[..names.len().min(LISTED)].join(separator);
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn all_statistics(metadata: &TableMetadata) -> impl Iterator<Item = (&StatisticsFile, FileKind)> {
    let table = metadata.statistics().iter().map(|file| (file, FileKind::Statistics));
    table.chain(metadata.partition_statistics().iter().map(|file| (file, FileKind::PartitionStatistics)))
}

struct Search<'a> {
    file: &'a mut OneFile,
    /// The table's location.
    location: &'a Roots,
    naming: Naming,
    needed_by: SnapshotSet,
}

impl Search<'_> {
    fn in_metadata(&mut self, metadata: &TableMetadata) -> Result<()> {
        let hint = metadata.location().child("metadata").child(VERSION_HINT).to_text();
        let log = metadata.metadata_log().iter().map(|entry| (entry.metadata_file.as_str(), "metadata log"));
        let own = [(metadata.metadata_location(), "current metadata"), (hint.as_str(), "version hint")];
        for (file, place) in own.into_iter().chain(log) {
            // The log makes no folder the table's own.
            if self.file.compare(file)? == Sameness::Same && !self.naming.by_metadata.contains(&place) {
                self.naming.by_metadata.push(place);
                if place != "version hint" {
                    self.note(FileKind::Metadata, None);
                }
            }
        }
        if self.location.contains(metadata.metadata_location()) {
            self.naming.own_folders.add_folder_of(metadata.metadata_location());
        }
        Ok(())
    }

    /// Whether a live name is the file's; notes where live files lie.
    fn is_named(&mut self, live: &str) -> Result<bool> {
        if self.location.contains(live) {
            self.naming.own_folders.add_folder_of(live);
        }
        match self.file.compare(live)? {
            Sameness::Same => Ok(true),
            Sameness::OtherPrefix(prefix) => {
                self.naming.other_prefix = Some(prefix);
                Ok(false)
            }
            Sameness::Different => Ok(false),
        }
    }

    fn note(&mut self, content: FileKind, manifest: Option<&String>) {
        let naming = &mut self.naming;
        if !naming.contents.contains(&content) {
            naming.contents.push(content);
            naming.contents.sort_unstable();
        }
        if let Some(manifest) = manifest.filter(|manifest| !naming.manifests.contains(manifest)) {
            naming.manifests.push(manifest.clone());
        }
    }
}
