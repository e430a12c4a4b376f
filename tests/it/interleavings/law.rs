//! What must hold at every moment, judged by the table's description and by nothing that was read back through the crate.
//!
//! - **Nothing live is lost.** Every file that any snapshot of the newest committed metadata needs exists, and so does that
//!   metadata's own file.
//! - **No commit is lost.** Each version follows the one before it, and one that maintenance wrote is the one before it with
//!   snapshots taken out: letter by letter, and with the same refs. (No ref expires by age in these scenes.)
//!
//! A writer may name files that it did not write just now: it adds a file again that was in the table before, or commits days
//! after it wrote. No order of steps saves these in every case, for the store can't delete a file on condition of another. For
//! them holds what can hold:
//!
//! - **What can be seen is respected.** Nobody deletes a file that is needed by metadata which was there when the deleter last
//!   looked for newer metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::scheduler::Actor;
use crate::table::text_only_shrunk;

/// The keys of the files that each snapshot needs, of all snapshots that there will ever be.
pub type Needs = BTreeMap<i64, BTreeSet<String>>;

/// Follows what happens to a table.
pub struct Law {
    needs: Arc<Needs>,
    /// The actors that only take out of the metadata.
    maintenance: Vec<bool>,
    present: BTreeSet<String>,
    newest: Newest,
    /// Since which version the newest metadata and all between them need a file.
    needed_since: BTreeMap<String, u64>,
    /// The version that was the newest when an actor last looked for newer ones.
    looked: Vec<u64>,
    /// Writers name files that they did not write just now.
    late: bool,
    /// What was broken, in the order in which it happened.
    pub violations: Vec<String>,
}

/// The newest metadata.
#[derive(Clone)]
struct Newest {
    key: String,
    version: u64,
    text: String,
    document: Value,
}

impl Newest {
    fn snapshots(&self) -> BTreeSet<i64> {
        let snapshots = self.document["snapshots"].as_array().unwrap().iter();
        snapshots.map(|snapshot| snapshot["snapshot-id"].as_i64().unwrap()).collect()
    }
}

/// The version that a key says it is the metadata of.
pub fn version_of(key: &str) -> Option<u64> {
    key.rsplit('/').next()?.strip_prefix('v')?.strip_suffix(".metadata.json")?.parse().ok()
}

impl Law {
    pub fn new(
        needs: Arc<Needs>,
        maintenance: Vec<bool>,
        late: bool,
        objects: &BTreeMap<String, bytes::Bytes>,
    ) -> Self {
        let newest = objects.iter().filter_map(|(key, content)| Some((version_of(key)?, key, content)));
        let (version, key, content) = newest.max_by_key(|(version, ..)| *version).expect("a metadata file");
        let newest = newest_of(version, key, content);
        let present = objects.keys().cloned().collect();
        let (needed_since, looked) = (BTreeMap::new(), vec![0; maintenance.len()]);
        let mut law = Self { needs, maintenance, present, newest, needed_since, looked, late, violations: vec![] };
        law.check_all("at first");
        law
    }

    /// The snapshots of the newest metadata.
    pub fn snapshots(&self) -> BTreeSet<i64> {
        self.newest.snapshots()
    }

    pub fn is_written(&mut self, actor: Actor, key: &str, content: &bytes::Bytes) {
        self.present.insert(key.to_string());
        let Some(version) = version_of(key) else { return };
        let (before, now) = (self.newest.clone(), newest_of(version, key, content));
        if version != before.version + 1 {
            self.violations.push(format!("{actor} wrote version {version} after version {}", before.version));
        }
        if self.maintenance[actor] {
            let shrunk = text_only_shrunk(&before.text, &now.text);
            self.violations.extend(shrunk.err().map(|why| format!("{actor} wrote version {version}, but {why}")));
            if before.document["refs"] != now.document["refs"] {
                self.violations.push(format!("{actor} wrote version {version} with other refs"));
            }
        }
        self.newest = now;
        self.check_all(&format!("when {actor} wrote version {version}"));
    }

    pub fn is_deleted(&mut self, actor: Actor, key: &str) {
        if !self.present.remove(key) {
            return;
        }
        if key == self.newest.key {
            self.violations.push(format!("{actor} deleted the newest metadata, {key}"));
        }
        let since = self.needed_since.get(key);
        if since.is_some_and(|since| !self.late || *since <= self.looked[actor]) {
            self.violations.push(format!("{actor} deleted {key}, which version {} needs", self.newest.version));
        }
    }

    /// The actor looked whether there is metadata newer than what it knows, by a listing, or by the key of the next version.
    pub fn looks(&mut self, actor: Actor, key: &str) {
        if key.ends_with("/metadata") || version_of(key).is_some_and(|version| version > self.newest.version) {
            self.looked[actor] = self.newest.version;
        }
    }

    fn check_all(&mut self, when: &str) {
        let (snapshots, version) = (self.snapshots(), self.newest.version);
        let needed: BTreeSet<&String> = snapshots.iter().flat_map(|snapshot| &self.needs[snapshot]).collect();
        self.needed_since.retain(|key, _| needed.contains(key));
        for key in needed {
            self.needed_since.entry(key.clone()).or_insert(version);
            if !self.late && !self.present.contains(key) {
                self.violations.push(format!("{when}, {key} was gone, which it needs"));
            }
        }
    }
}

fn newest_of(version: u64, key: &str, content: &bytes::Bytes) -> Newest {
    let text = String::from_utf8(content.to_vec()).unwrap();
    let document = serde_json::from_str(&text).unwrap();
    Newest { key: key.to_string(), version, text, document }
}
