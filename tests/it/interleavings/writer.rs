//! A writer of a Hadoop table: it writes the files of its change, then the next version if nobody else did; otherwise it
//! makes its change again on top of what is there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use iceberg_maintenance::fixtures::{History, Table};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use serde_json::{Map, Value, json};

use super::law::version_of;
use super::scene::{LOCATION, files_of};
use super::store::ActorStore;

/// Something that a writer does to the table.
pub type Change = fn(&mut History);

/// What a change adds to whatever is the newest metadata.
#[derive(Clone)]
pub struct Commit {
    /// The new files, in the order in which they are written.
    files: Vec<(String, Bytes)>,
    snapshots: Vec<Value>,
    refs: Map<String, Value>,
    current: Value,
    log: Vec<Value>,
    last_sequence_number: Value,
    /// Snapshots of which the change makes use: without them it is void.
    needs: BTreeSet<i64>,
}

/// Makes the changes one after the other, and says what each adds; the history becomes that after all of them.
pub fn commits(history: &mut History, changes: &[Change]) -> Vec<Commit> {
    let mut commit = |change: &Change| {
        let before = history.table().clone();
        change(history);
        Commit::between(&before, history.table())
    };
    changes.iter().map(&mut commit).collect()
}

impl Commit {
    fn between(before: &Table, after: &Table) -> Self {
        let (old, new) = (files_of(before), files_of(after));
        let (old_document, new_document) = (newest_of(&old).1, newest_of(&new).1);
        let is_of_table = |key: &String| version_of(key).is_some() || key.ends_with("version-hint.text");
        let files = new.into_iter().filter(|(key, _)| !old.contains_key(key) && !is_of_table(key)).collect();
        let added = |field: &str| {
            let (had, has) = (old_document[field].as_array().unwrap(), new_document[field].as_array().unwrap());
            has.iter().filter(|element| !had.contains(element)).cloned().collect::<Vec<_>>()
        };
        let refs = new_document["refs"].as_object().unwrap().clone();
        let refs: Map<_, _> = refs.into_iter().filter(|(name, value)| old_document["refs"][name] != *value).collect();
        let snapshots = added("snapshots");
        let source = |snapshot: &Value| snapshot["summary"]["source-snapshot-id"].as_str()?.parse().ok();
        let mut needs: BTreeSet<i64> = snapshots.iter().filter_map(source).collect();
        needs.extend(snapshots.iter().filter_map(|snapshot| snapshot["parent-snapshot-id"].as_i64()));
        needs.extend(refs.values().filter_map(|reference| reference["snapshot-id"].as_i64()));
        needs.retain(|id| snapshots.iter().all(|snapshot| snapshot["snapshot-id"] != *id));
        Self {
            files,
            refs,
            needs,
            log: added("snapshot-log"),
            current: new_document["current-snapshot-id"].clone(),
            last_sequence_number: new_document["last-sequence-number"].clone(),
            snapshots,
        }
    }

    /// The files that the commit needs, which it writes no more.
    pub fn take_files(&mut self) -> Vec<(String, Bytes)> {
        std::mem::take(&mut self.files)
    }

    /// The change on top of this metadata; `None` where it can't be made any more.
    fn on_top_of(&self, key: &str, document: &Value) -> Option<Value> {
        let known: BTreeSet<_> =
            elements(document, "snapshots").filter_map(|one| one["snapshot-id"].as_i64()).collect();
        if !self.needs.is_subset(&known) {
            return None;
        }
        let mut next = document.clone();
        let extend = |list: &mut Value, with: Vec<Value>| list.as_array_mut().unwrap().extend(with);
        extend(&mut next["snapshots"], self.snapshots.clone());
        extend(&mut next["snapshot-log"], self.log.clone());
        let updated_ms = document["last-updated-ms"].as_i64().unwrap();
        let file = format!("{LOCATION}/metadata/{}", key.rsplit('/').next().unwrap());
        extend(&mut next["metadata-log"], vec![json!({"timestamp-ms": updated_ms, "metadata-file": file})]);
        next["refs"].as_object_mut().unwrap().extend(self.refs.clone());
        next["current-snapshot-id"] = self.current.clone();
        next["last-sequence-number"] = self.last_sequence_number.clone();
        next["last-updated-ms"] = json!(updated_ms + 1);
        Some(next)
    }

    /// Commits the change; false where it can't be made any more.
    pub async fn write(&self, store: &ActorStore) -> object_store::Result<bool> {
        let mut is_uploaded = false;
        loop {
            let (key, document) = load(store).await?;
            let Some(next) = self.on_top_of(&key, &document) else { return Ok(false) };
            if !is_uploaded {
                for (key, content) in &self.files {
                    store.put(&Path::from(key.as_str()), content.clone().into()).await?;
                }
                is_uploaded = true;
            }
            let version = version_of(&key).unwrap() + 1;
            let (folder, _) = key.rsplit_once('/').unwrap();
            let next_key = Path::from(format!("{folder}/v{version}.metadata.json"));
            let create = PutOptions { mode: PutMode::Create, ..Default::default() };
            match store.put_opts(&next_key, next.to_string().into(), create).await {
                Err(Error::AlreadyExists { .. }) => continue,
                written => written?,
            };
            let hint = Path::from(format!("{folder}/version-hint.text"));
            store.put(&hint, version.to_string().into()).await?;
            return Ok(true);
        }
    }
}

/// The newest metadata and its key.
pub async fn load(store: &ActorStore) -> object_store::Result<(String, Value)> {
    let found = store.list_with_delimiter(Some(&Path::from("wh/t/metadata"))).await?;
    let newest = found.objects.into_iter().max_by_key(|object| version_of(object.location.as_ref())).unwrap().location;
    let content = store.get(&newest).await?.bytes().await?;
    Ok((newest.to_string(), serde_json::from_slice(&content).unwrap()))
}

fn newest_of(files: &BTreeMap<String, Bytes>) -> (&String, Value) {
    let (key, content) = files.iter().max_by_key(|(key, _)| version_of(key)).unwrap();
    (key, serde_json::from_slice(content).unwrap())
}

fn elements<'a>(document: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    document[field].as_array().into_iter().flatten()
}
