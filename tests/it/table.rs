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

/// The path of a `file:` location, with one leading slash; `s3a:` and `s3n:` as `s3:`; anything else as it is.
pub fn plain_path(location: &str) -> String {
    if let Some(path) = location.strip_prefix("file:") {
        return format!("/{}", path.trim_start_matches('/'));
    }
    match location.strip_prefix("s3a://").or_else(|| location.strip_prefix("s3n://")) {
        Some(rest) => format!("s3://{rest}"),
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

    /// Files of table and partition statistics of every entry but those of the given snapshots.
    #[allow(dead_code)] // tests/reports asks for it
    pub fn statistics_without(&self, snapshots: &BTreeSet<i64>) -> BTreeSet<String> {
        self.statistics(|snapshot| !snapshots.contains(&snapshot))
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
        Ok(self.referenced_with(self.needed_by(&self.snapshot_ids())?))
    }

    /// Like [`Self::referenced`], leaving out what can't be read.
    #[allow(dead_code)] // tests/reports asks for it
    pub fn readably_referenced(&self) -> BTreeSet<String> {
        self.referenced_with(self.readable_files_of(&self.snapshot_ids()))
    }

    fn referenced_with(&self, needed: Files) -> BTreeSet<String> {
        let mut referenced: BTreeSet<_> = needed.into_keys().collect();
        referenced.extend(self.statistics(|_| true));
        let log = self.list("metadata-log").iter().map(|entry| plain_path(entry["metadata-file"].as_str().unwrap()));
        referenced.extend(log);
        let folder = self.metadata_path.rsplit_once('/').unwrap().0;
        referenced.extend([self.metadata_path.clone(), format!("{folder}/version-hint.text")]);
        referenced
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

/// Lists that an expiry may take elements out of; every other field stays as it was, to the letter, but for refs, the
/// metadata log and the time of the update.
const SHRINKING_LISTS: [&str; 6] =
    ["snapshots", "statistics", "partition-statistics", "snapshot-log", "schemas", "partition-specs"];

/// Fails unless the metadata `after` is `before` with elements taken out of it, and nothing else, by one commit.
///
/// The order of fields and the spelling of every value that stays are compared letter by letter. An element may only have
/// left a list for a reason that the metadata itself gives.
pub fn only_shrunk(before: &Table, after: &Table) -> Result<(), String> {
    text_only_shrunk(&before.text, &after.text)?;
    let raw = |table: &Table| serde_json::from_str::<Raw>(&table.text).unwrap();
    let (old, new) = (raw(before), raw(after));
    refs_only_aged(before, &old, &new)?;
    entries_of_removed_snapshots_went(before, after, &old, &new)?;
    what_is_in_use_stayed(before, after)?;
    let (then, now) = (before.metadata["last-updated-ms"].as_i64(), after.metadata["last-updated-ms"].as_i64());
    ensure!(now.is_some() && now >= then, "last-updated-ms was {then:?} and became {now:?}");
    metadata_log_has_the_file_before(before, after, &old, &new)
}

/// The same of two texts, as far as they alone say it.
pub fn text_only_shrunk(before: &str, after: &str) -> Result<(), String> {
    let raw = |text: &str| serde_json::from_str::<Raw>(text).unwrap();
    let (old, new) = (raw(before), raw(after));
    let names = |raw: &Raw| raw.0.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (had, has) = (names(&old), names(&new));
    let added: Vec<_> = has.iter().filter(|name| !had.contains(name)).collect();
    let of_every_commit = ["metadata-log", "last-updated-ms"];
    ensure!(added.iter().all(|name| of_every_commit.contains(&name.as_str())), "fields {added:?} were added");
    let in_common: Vec<_> = has.iter().filter(|name| had.contains(name)).collect();
    ensure!(in_common.iter().copied().eq(had.iter()), "fields were dropped or moved: {had:?} became {has:?}");

    for (name, value) in &old.0 {
        match name.as_str() {
            "last-updated-ms" | "metadata-log" | "refs" => {}
            list if SHRINKING_LISTS.contains(&list) => list_only_shrunk(list, &old, &new)?,
            name => ensure!(new.get(name) == Some(value.get()), "{name} changed to {:?}", new.get(name)),
        }
    }
    Ok(())
}

fn list_only_shrunk(list: &str, old: &Raw, new: &Raw) -> Result<(), String> {
    let (had, has) = (old.elements(list), new.elements(list));
    let mut rest = had.iter();
    ensure!(has.iter().all(|kept| rest.any(|old| old == kept)), "{list} did not only shrink: {has:?}");
    ensure!(had != has || new.get(list) == old.get(list), "{list} was rewritten though nothing left it");
    Ok(())
}

/// A ref may go that has an age limit, of its own or by the table, or whose snapshot doesn't exist; never `main`.
fn refs_only_aged(before: &Table, old: &Raw, new: &Raw) -> Result<(), String> {
    let refs = |raw: &Raw| raw.get("refs").and_then(|refs| serde_json::from_str::<Option<Raw>>(refs).unwrap());
    let (Some(old), Some(new)) = (refs(old), refs(new)) else { return Ok(()) };
    for (name, value) in &new.0 {
        ensure!(old.get(name) == Some(value.get()), "ref {name} changed to {}", value.get());
    }
    let snapshots = before.snapshot_ids();
    let all_age = !before.metadata["properties"]["history.expire.max-ref-age-ms"].is_null();
    for (name, _) in old.0.iter().filter(|(name, _)| new.get(name).is_none()) {
        let reference = &before.metadata["refs"][name];
        let dangles = reference["snapshot-id"].as_i64().is_none_or(|id| !snapshots.contains(&id));
        let ages = all_age || !reference["max-ref-age-ms"].is_null();
        ensure!(name != "main" && (ages || dangles), "ref {name} went, which has no age limit");
    }
    Ok(())
}

/// Of statistics exactly the entries of removed snapshots went, of the snapshot log those and what stood before them.
fn entries_of_removed_snapshots_went(before: &Table, after: &Table, old: &Raw, new: &Raw) -> Result<(), String> {
    let left = after.snapshot_ids();
    let removed: BTreeSet<i64> = before.snapshot_ids().difference(&left).copied().collect();
    for list in ["statistics", "partition-statistics"] {
        let entries = old.elements(list).into_iter().zip(before.list(list));
        let stay = entries.filter(|(_, entry)| !removed.contains(&snapshot_id(entry)));
        let expected: Vec<String> = stay.map(|(text, _)| text).collect();
        ensure!(new.elements(list) == expected, "{list} is {:?}, not {expected:?}", new.elements(list));
    }
    let logged = before.numbers("snapshot-log", "snapshot-id");
    let expected = crate::model::snapshot_log(&logged, &left, &removed);
    let (had, has) = (old.elements("snapshot-log"), new.elements("snapshot-log"));
    ensure!(had.ends_with(&has) && has.len() == expected.len(), "snapshot-log is {has:?}, not that of {expected:?}");
    Ok(())
}

/// The current schema, the default partition spec and the schemas that remaining snapshots name are there.
fn what_is_in_use_stayed(before: &Table, after: &Table) -> Result<(), String> {
    let lost = |list: &str, id: &str| {
        let left = after.numbers(list, id);
        before.numbers(list, id).into_iter().filter(|id| !left.contains(id)).collect::<BTreeSet<_>>()
    };
    let (schemas, specs) = (lost("schemas", "schema-id"), lost("partition-specs", "spec-id"));
    let number = |field: &str| before.metadata[field].as_i64();
    let mut used: BTreeSet<i64> = after.numbers("snapshots", "schema-id").into_iter().collect();
    used.extend(number("current-schema-id"));
    ensure!(schemas.is_disjoint(&used), "schemas {schemas:?} went, but {used:?} are in use");
    let default = number("default-spec-id");
    ensure!(default.is_none_or(|id| !specs.contains(&id)), "the default partition spec went: {specs:?}");
    Ok(())
}

/// The metadata log is what it was and the file that the commit replaced, cut to what the table keeps of it.
fn metadata_log_has_the_file_before(before: &Table, after: &Table, old: &Raw, new: &Raw) -> Result<(), String> {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_string();
    let last = |table: &Table| table.list("metadata-log").last().cloned().unwrap_or_default();
    let is_own = |entry: &Value| entry["metadata-file"].as_str().map(name) == Some(name(&before.metadata_path));
    let (mut expected, has) = (old.elements("metadata-log"), new.elements("metadata-log"));
    let joined = last(after);
    ensure!(is_own(&joined), "the metadata log ends in {joined}, not in {}", before.metadata_path);
    // Some writers put the file itself into its own log.
    if !is_own(&last(before)) {
        let updated = &before.metadata["last-updated-ms"];
        ensure!(
            updated.is_null() || joined["timestamp-ms"] == *updated,
            "the metadata log has {joined}, not {updated}"
        );
        expected.extend(has.last().cloned());
    }
    let limit = before.metadata["properties"]["write.metadata.previous-versions-max"].as_str();
    let limit = limit.map_or(100, |text| text.parse::<usize>().unwrap().max(1));
    let expected = &expected[expected.len().saturating_sub(limit)..];
    ensure!(has == expected, "the metadata log is {has:?}, not {expected:?}");
    Ok(())
}
