//! Reads a table's files without the crate under test: JSON by serde_json, Avro by apache-avro.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use apache_avro::types::Value as Avro;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::support::ensure;

/// What a file is to a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Data,
    PositionDeletes,
    DeletionVector,
    EqualityDeletes,
    Manifest,
    ManifestList,
}

/// Files by their plain path.
pub type Files = BTreeMap<String, Kind>;

/// What an expiry must delete.
pub struct Dead {
    /// Content files, manifests and manifest lists.
    pub files: Files,
    /// Table and partition statistics.
    pub statistics: BTreeSet<String>,
}

impl Dead {
    /// All of them.
    pub fn paths(&self) -> BTreeSet<String> {
        self.files.keys().chain(&self.statistics).cloned().collect()
    }

    /// The counts of [`COUNTS`].
    pub fn counts(&self) -> [i64; 6] {
        let of_kind = |kinds: &[Kind]| self.files.values().filter(|kind| kinds.contains(kind)).count() as i64;
        [
            of_kind(&[Kind::Data]),
            of_kind(&[Kind::PositionDeletes, Kind::DeletionVector]),
            of_kind(&[Kind::EqualityDeletes]),
            of_kind(&[Kind::Manifest]),
            of_kind(&[Kind::ManifestList]),
            self.statistics.len() as i64,
        ]
    }
}

/// The six counts of the reference's result row; metric rows have the same names.
pub const COUNTS: [&str; 6] = [
    "deleted_data_files_count",
    "deleted_position_delete_files_count",
    "deleted_equality_delete_files_count",
    "deleted_manifest_files_count",
    "deleted_manifest_lists_count",
    "deleted_statistics_files_count",
];

/// A table as one of its metadata files describes it.
pub struct Table {
    /// The folder that stands for `/` in the table's locations.
    root: PathBuf,
    /// The metadata file, as a plain path.
    pub metadata_path: String,
    /// The metadata's text.
    pub text: String,
    /// The metadata.
    pub metadata: Value,
    /// The live files of each manifest that was read.
    manifests: RefCell<HashMap<String, Rc<Files>>>,
}

/// The path of a `file:` location, with one leading slash; anything else as it is.
pub fn plain_path(location: &str) -> String {
    match location.strip_prefix("file:") {
        Some(path) => format!("/{}", path.trim_start_matches('/')),
        None => location.to_string(),
    }
}

impl Table {
    /// Reads the newest metadata of the table whose location is `table` (a plain path), below `root`.
    pub fn read(root: &Path, table: &str) -> Self {
        let folder = on_disk(root, table).join("metadata");
        let newest = fs::read_dir(&folder)
            .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter_map(|name| Some((version(&name)?, name)))
            .max()
            .unwrap_or_else(|| panic!("no metadata file in {}", folder.display()));
        let path = folder.join(newest.1);
        let mut bytes = fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut text = Vec::new();
            flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
            bytes = text;
        }
        let text = String::from_utf8(bytes).unwrap();
        let metadata = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let metadata_path = format!("/{}", path.strip_prefix(root).unwrap().display());
        Self { root: root.to_path_buf(), metadata_path, text, metadata, manifests: RefCell::default() }
    }

    /// The elements of an array field; an absent or null one has none.
    pub fn list(&self, field: &str) -> &[Value] {
        self.metadata.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The ids of all snapshots.
    pub fn snapshot_ids(&self) -> BTreeSet<i64> {
        self.list("snapshots").iter().map(snapshot_id).collect()
    }

    /// A numeric field of every element of an array field, in order.
    pub fn numbers(&self, list: &str, field: &str) -> Vec<i64> {
        self.list(list).iter().filter_map(|element| element[field].as_i64()).collect()
    }

    /// The names of all refs; a table without any that has a current snapshot has `main`.
    pub fn refs(&self) -> BTreeSet<String> {
        crate::model::refs(&self.metadata).into_keys().collect()
    }

    /// All files that any of these snapshots needs, statistics aside.
    ///
    /// # Errors
    /// When a manifest list or a manifest can't be read.
    pub fn needed_by(&self, snapshots: &BTreeSet<i64>) -> Result<Files, String> {
        let mut needed = Files::new();
        for snapshot in self.list("snapshots").iter().filter(|snapshot| snapshots.contains(&snapshot_id(snapshot))) {
            if let Some(list) = snapshot["manifest-list"].as_str() {
                needed.insert(plain_path(list), Kind::ManifestList);
            }
            for manifest in self.manifests_of(snapshot)? {
                needed.extend(self.manifest(&manifest)?.as_ref().clone());
                needed.insert(manifest, Kind::Manifest);
            }
        }
        Ok(needed)
    }

    /// Like [`Self::needed_by`], leaving out what can't be read.
    pub fn readable_files_of(&self, snapshots: &BTreeSet<i64>) -> Files {
        let mut files = Files::new();
        for snapshot in self.list("snapshots").iter().filter(|snapshot| snapshots.contains(&snapshot_id(snapshot))) {
            if let Some(list) = snapshot["manifest-list"].as_str() {
                files.insert(plain_path(list), Kind::ManifestList);
            }
            for manifest in self.manifests_of(snapshot).unwrap_or_default() {
                files.extend(self.manifest(&manifest).map(|live| live.as_ref().clone()).unwrap_or_default());
                files.insert(manifest, Kind::Manifest);
            }
        }
        files
    }

    /// The manifests of a snapshot, as plain paths.
    fn manifests_of(&self, snapshot: &Value) -> Result<Vec<String>, String> {
        match snapshot["manifest-list"].as_str() {
            Some(list) => {
                let rows = self.avro(&plain_path(list))?;
                rows.iter().map(|row| Ok(plain_path(text(field(row, "manifest_path")?)?))).collect()
            }
            None => {
                let inline = snapshot["manifests"].as_array().cloned().unwrap_or_default();
                Ok(inline.iter().filter_map(Value::as_str).map(plain_path).collect())
            }
        }
    }

    /// Files of table and partition statistics whose entries belong to the given snapshots.
    pub fn statistics_of(&self, snapshots: &BTreeSet<i64>) -> BTreeSet<String> {
        self.statistics(|snapshot| snapshots.contains(&snapshot))
    }

    /// Files of table and partition statistics whose entries belong to a snapshot that the test accepts.
    fn statistics(&self, accepts: impl Fn(i64) -> bool) -> BTreeSet<String> {
        let entries = ["statistics", "partition-statistics"].iter().flat_map(|list| self.list(list));
        let accepted = entries.filter(|entry| accepts(snapshot_id(entry)));
        accepted.map(|entry| plain_path(entry["statistics-path"].as_str().unwrap())).collect()
    }

    /// What must go when exactly the other snapshots stay, by plain set difference: files, and statistics files.
    ///
    /// # Errors
    /// When a file that a retained snapshot needs can't be read; of the others, what can't be read is left out.
    pub fn dead_without(&self, expired: &BTreeSet<i64>) -> Result<Dead, String> {
        let retained = self.snapshot_ids().difference(expired).copied().collect();
        let needed = self.needed_by(&retained)?;
        let mut files = self.readable_files_of(expired);
        files.retain(|path, _| !needed.contains_key(path));
        let named_elsewhere = self.statistics(|snapshot| !expired.contains(&snapshot));
        let statistics = self.statistics_of(expired).difference(&named_elsewhere).cloned().collect();
        Ok(Dead { files, statistics })
    }

    /// Everything that must stay whatever its age: what any snapshot needs, statistics, the metadata files of
    /// the log, this one and the version hint.
    pub fn referenced(&self) -> Result<BTreeSet<String>, String> {
        let mut referenced: BTreeSet<_> = self.needed_by(&self.snapshot_ids())?.into_keys().collect();
        referenced.extend(self.statistics(|_| true));
        let log = self.list("metadata-log").iter().map(|entry| plain_path(entry["metadata-file"].as_str().unwrap()));
        referenced.extend(log);
        let folder = self.metadata_path.rsplit_once('/').unwrap().0;
        referenced.extend([self.metadata_path.clone(), format!("{folder}/version-hint.text")]);
        Ok(referenced)
    }

    fn manifest(&self, path: &str) -> Result<Rc<Files>, String> {
        if let Some(known) = self.manifests.borrow().get(path) {
            return Ok(known.clone());
        }
        let rows = self.avro(path)?;
        let mut live = Files::new();
        for row in &rows {
            const DELETED: i64 = 2;
            if number(field(row, "status")?)? != DELETED {
                let file = field(row, "data_file")?;
                let content = field(file, "content").ok().map_or(Ok(0), number)?;
                let is_puffin = text(field(file, "file_format")?)?.eq_ignore_ascii_case("puffin");
                let kind = match content {
                    0 => Kind::Data,
                    1 if is_puffin => Kind::DeletionVector,
                    1 => Kind::PositionDeletes,
                    2 => Kind::EqualityDeletes,
                    other => return Err(format!("{path}: content {other}")),
                };
                live.insert(plain_path(text(field(file, "file_path")?)?), kind);
            }
        }
        let live = Rc::new(live);
        self.manifests.borrow_mut().insert(path.to_string(), live.clone());
        Ok(live)
    }

    /// The records of an Avro file.
    fn avro(&self, path: &str) -> Result<Vec<Avro>, String> {
        let failed = |e: &dyn std::fmt::Display| format!("{path}: {e}");
        let bytes = fs::read(on_disk(&self.root, path)).map_err(|e| failed(&e))?;
        let reader = apache_avro::Reader::new(&bytes[..]).map_err(|e| failed(&e))?;
        reader.collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))
    }
}

fn on_disk(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The version in a metadata file's name: `v12.metadata.json`, `00012-uuid.metadata.json`, and their gzip spellings.
fn version(name: &str) -> Option<u64> {
    let stem = name
        .strip_suffix(".gz.metadata.json")
        .or_else(|| name.strip_suffix(".gzip.metadata.json"))
        .or_else(|| name.strip_suffix(".metadata.json.gz"))
        .or_else(|| name.strip_suffix(".metadata.json"))?;
    let digits = stem.strip_prefix('v').unwrap_or(stem);
    digits.split_once('-').map_or(digits, |(digits, _)| digits).parse().ok()
}

fn snapshot_id(object: &Value) -> i64 {
    object["snapshot-id"].as_i64().unwrap()
}

fn field<'a>(record: &'a Avro, name: &str) -> Result<&'a Avro, String> {
    let Avro::Record(fields) = record else { return Err(format!("{record:?} is no record")) };
    fields.iter().find(|(key, _)| key == name).map(|(_, value)| value).ok_or_else(|| format!("no field {name}"))
}

fn number(value: &Avro) -> Result<i64, String> {
    match value {
        Avro::Int(number) => Ok(i64::from(*number)),
        Avro::Long(number) => Ok(*number),
        Avro::Union(_, inner) => number_or(inner, value),
        other => Err(format!("{other:?} is no number")),
    }
}

fn number_or(inner: &Avro, outer: &Avro) -> Result<i64, String> {
    match inner {
        Avro::Null => Err(format!("{outer:?} is null")),
        inner => number(inner),
    }
}

fn text(value: &Avro) -> Result<&str, String> {
    match value {
        Avro::String(text) => Ok(text),
        other => Err(format!("{other:?} is no text")),
    }
}

/// A JSON object in the order and spelling of its text.
struct Raw(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Raw;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Raw(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl Raw {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.get())
    }

    /// The elements of an array field, each in its own spelling.
    fn elements(&self, name: &str) -> Vec<String> {
        let Some(list) = self.get(name) else { return vec![] };
        let elements: Option<Vec<Box<RawValue>>> = serde_json::from_str(list).unwrap();
        elements.unwrap_or_default().iter().map(|element| element.get().to_string()).collect()
    }
}

/// Fields that an expiry may change; every other one stays as it was, to the letter.
const SHRINKING_LISTS: [&str; 6] =
    ["snapshots", "statistics", "partition-statistics", "snapshot-log", "schemas", "partition-specs"];

/// Fails unless the metadata text `after` is `before` with elements taken out, and nothing else.
///
/// The order of fields and the spelling of every value that stays are compared letter by letter.
pub fn only_shrunk(before: &str, after: &str) -> Result<(), String> {
    let (before, after): (Raw, Raw) = (serde_json::from_str(before).unwrap(), serde_json::from_str(after).unwrap());
    let names = |raw: &Raw| raw.0.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (had, has) = (names(&before), names(&after));
    let added: Vec<_> = has.iter().filter(|name| !had.contains(name)).collect();
    ensure!(added.iter().all(|name| *name == "metadata-log"), "fields {added:?} were added");
    let in_common: Vec<_> = has.iter().filter(|name| had.contains(name)).collect();
    ensure!(in_common.iter().copied().eq(had.iter()), "fields were dropped or moved: {had:?} became {has:?}");

    for (name, value) in &before.0 {
        match name.as_str() {
            "last-updated-ms" | "metadata-log" | "refs" => {}
            list if SHRINKING_LISTS.contains(&list) => {
                let (old, new) = (before.elements(list), after.elements(list));
                let mut rest = old.iter();
                ensure!(new.iter().all(|kept| rest.any(|old| old == kept)), "{list} did not only shrink: {new:?}");
                if old == new {
                    ensure!(after.get(list) == Some(value.get()), "{list} was rewritten though nothing left it");
                }
            }
            name => ensure!(after.get(name) == Some(value.get()), "{name} changed to {:?}", after.get(name)),
        }
    }
    refs_only_shrunk(&before, &after)?;
    metadata_log_grew_by_one(&before, &after)
}

fn refs_only_shrunk(before: &Raw, after: &Raw) -> Result<(), String> {
    let refs = |raw: &Raw| raw.get("refs").and_then(|refs| serde_json::from_str::<Option<Raw>>(refs).unwrap());
    let (Some(before), Some(after)) = (refs(before), refs(after)) else { return Ok(()) };
    for (name, value) in &after.0 {
        ensure!(before.get(name) == Some(value.get()), "ref {name} changed to {}", value.get());
    }
    Ok(())
}

fn metadata_log_grew_by_one(before: &Raw, after: &Raw) -> Result<(), String> {
    let (old, new) = (before.elements("metadata-log"), after.elements("metadata-log"));
    let Some((_, kept)) = new.split_last() else { return Err("the metadata log has no entry".into()) };
    ensure!(old.ends_with(kept), "the metadata log is not the old one plus an entry: {new:?}");
    Ok(())
}
