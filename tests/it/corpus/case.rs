//! A case of the collection: its record, a copy of its tables, and its calls in our words.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray};
use datafusion::datasource::MemTable;
use serde_json::Value;

use super::differences::{DIFFERENCES, Difference, FOREIGN, UNCLEAR};
use crate::model::Policy;
use crate::support::{Session, disk, files, literal, set_modified, shared, unpack};
use crate::table::{Table, plain_path};

/// A case of the collection.
pub struct Case {
    pub name: String,
    pub folder: PathBuf,
    pub expected: Value,
}

/// An unpacked copy of a case; its locations mean what lies below `root`.
pub struct Copy {
    pub folder: tempfile::TempDir,
    pub case: String,
}

impl Case {
    pub fn find(name: &str) -> Option<Self> {
        let local = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus");
        let folder = [shared("corpus"), local].into_iter().map(|root| root.join(name)).find(|case| case.exists())?;
        let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
        Some(Self { name: name.into(), folder, expected: serde_json::from_str(&expected).unwrap() })
    }

    pub fn runs(&self) -> &[Value] {
        self.expected["runs"].as_array().unwrap()
    }

    /// The path of the case's folder, as its locations spell it.
    pub fn root(&self) -> String {
        plain_path(text(&self.expected["root"]))
    }

    pub fn unpack(&self) -> Copy {
        let folder = tempfile::tempdir().unwrap();
        let warehouse = folder.path().join("tmp/ice-corpus/warehouse");
        fs::create_dir_all(&warehouse).unwrap();
        unpack(&self.folder.join("table.tar.zst"), &warehouse);
        for (path, facts) in self.expected["before"]["files"].as_object().unwrap() {
            if !path.ends_with('/') {
                set_modified(&warehouse.join(&self.name).join(path), facts[1].as_u64().unwrap());
            }
        }
        Copy { folder, case: self.root() }
    }

    pub fn difference(&self, run: &str) -> Option<&'static Difference> {
        let plain = run.replace(".core", "");
        DIFFERENCES.iter().find(|d| d.case == self.name && d.runs.contains(&plain.as_str()))
    }

    pub fn unclear(&self) -> &'static [&'static str] {
        UNCLEAR.iter().find(|(case, _)| *case == self.name).map_or(&[], |(_, files)| files)
    }

    /// Files that nothing names and that are kept all the same.
    pub fn foreign(&self) -> &'static [&'static str] {
        FOREIGN.iter().find(|(case, _)| *case == self.name).map_or(&[], |(_, files)| files)
    }

    pub fn take_away_what_is_unclear(&self, copy: &Copy) {
        for file in self.unclear() {
            fs::remove_file(copy.path().join(file)).unwrap();
        }
    }

    /// The files that the reference deleted, without those that were taken away before or are kept here, and without the
    /// checksums that Hadoop's local file system keeps beside them.
    pub fn recorded_deletions(&self, run: &Value) -> BTreeSet<String> {
        let mut deleted = texts(&run["files_deleted"]);
        deleted.retain(|file| !file.ends_with(".crc") || !file.rsplit('/').next().unwrap().starts_with('.'));
        deleted.retain(|file| !self.unclear().contains(&file.as_str()) && !self.foreign().contains(&file.as_str()));
        deleted
    }
}

impl Copy {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(self.case.trim_start_matches('/'))
    }

    pub fn table(&self, name: &str) -> Table {
        Table::read(self.folder.path(), &format!("{}/{name}", self.case))
    }

    /// A plain path relative to the case; paths elsewhere stay as they are.
    pub fn relative(&self, path: &str) -> String {
        path.strip_prefix(&self.case).map_or(path, |path| path.trim_start_matches('/')).to_string()
    }

    pub fn session(&self, case: &Case, run: &Value) -> Session {
        let session = Session::below(self.folder.path(), Some(now(run)));
        if case.name == "orphans_prefix_modes" {
            register_file_lists(&session, self, case);
        }
        session
    }
}

/// A recorded call, in our words.
pub struct Call {
    pub procedure: String,
    pub table: String,
    pub arguments: Vec<(String, String)>,
    pub args: Value,
}

impl Call {
    pub fn new(case: &Case, run: &Value, more: &[(&str, &str)]) -> Self {
        let args = run["args"].clone();
        let table = args["table"].as_str().and_then(|name| name.split('.').nth(1)).unwrap_or("t").to_string();
        let location = format!("file:{}/{table}", case.root());
        let mut arguments = vec![("table".to_string(), literal(&location))];
        for (name, value) in args.as_object().unwrap() {
            let value = match (name.as_str(), value) {
                ("table", _) => continue,
                // Only there to keep the age rule from acting beside the ids.
                ("older_than", Value::String(time)) if has_ids(&args) && time.starts_with("2020-01-01") => continue,
                ("older_than", Value::String(time)) => format!("TIMESTAMP {}", literal(time)),
                ("snapshot_ids", _) => {
                    format!("[{}]", recorded_ids(case, value).map(|id| id.to_string()).collect::<Vec<_>>().join(", "))
                }
                ("location", Value::String(location)) => {
                    literal(&location.replace("{root}", text(&case.expected["root"])).replace("{path}", &case.root()))
                }
                (_, Value::Object(map)) => {
                    let pairs = map.iter().map(|(key, value)| format!("{}: {}", literal(key), literal(text(value))));
                    format!("MAP {{{}}}", pairs.collect::<Vec<_>>().join(", "))
                }
                (_, Value::String(text)) => literal(text),
                (_, value) => value.to_string(),
            };
            arguments.push((name.clone(), value));
        }
        arguments.extend(more.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        let mut args = args;
        if has_ids(&args) {
            args["snapshot_ids"] = recorded_ids(case, &args["snapshot_ids"]).collect::<Vec<_>>().into();
        }
        Self { procedure: text(&run["op"]).to_string(), table, arguments, args }
    }

    pub fn is_expiry(&self) -> bool {
        self.procedure == "expire_snapshots"
    }

    pub fn sql(&self) -> String {
        self.with(&[])
    }

    pub fn dry_run(&self) -> String {
        self.with(&[("dry_run", "true")])
    }

    pub fn with(&self, more: &[(&str, &str)]) -> String {
        let replaced = |name: &str| more.iter().any(|(more, _)| *more == name);
        let own = self.arguments.iter().filter(|(name, _)| !replaced(name)).map(|(n, v)| (n.as_str(), v.as_str()));
        let arguments = own.chain(more.iter().copied()).map(|(name, value)| format!("{name} => {value}"));
        format!("CALL system.{}({})", self.procedure, arguments.collect::<Vec<_>>().join(", "))
    }

    pub fn policy(&self) -> Policy {
        let ids = has_ids(&self.args).then(|| ids(&self.args["snapshot_ids"]));
        let older_than = self.args["older_than"].as_str().filter(|_| ids.is_none()).map(epoch_ms);
        Policy { older_than, retain_last: self.args["retain_last"].as_i64(), snapshot_ids: ids, expire_before: None }
    }
}

/// The lists of case `orphans_prefix_modes`: data files under a scheme of object stores, and files of the file system.
pub fn register_file_lists(session: &Session, copy: &Copy, case: &Case) {
    let old = 1_706_659_200_000;
    let (root, young) = (format!("file:{}", case.root()), 4_070_908_800_000);
    let plain = vec![
        (format!("{root}/t/data/orphan.parquet"), old),
        (format!("{root}/t/data/listed-but-absent.parquet"), old),
        (format!("{root}/t/data/too-young.parquet"), young),
        (format!("{root}/outside/table.parquet"), old),
        (format!("{root}/t/data/.hidden-listed.parquet"), old),
    ];
    let data = files(&disk(&copy.path())).into_iter().filter(|file| file.starts_with("t/data/"));
    let mut all: Vec<_> = data.map(|file| (format!("s3a://bkt{}/{file}", case.root()), old)).collect();
    all.extend(plain.iter().cloned());
    for (name, path_column, rows) in
        [("flv_file", "file_path", &plain), ("flv_all", "file_path", &all), ("flv_bad", "path", &plain)]
    {
        let paths = StringArray::from_iter_values(rows.iter().map(|(path, _)| path));
        let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|(_, time)| *time));
        let columns: [(&str, ArrayRef); 2] = [(path_column, Arc::new(paths)), ("last_modified", Arc::new(times))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        session.context.register_table(name, Arc::new(table)).unwrap();
    }
}

pub fn now(run: &Value) -> i64 {
    run["now_ms"].as_i64().unwrap()
}

pub fn has_ids(args: &Value) -> bool {
    args["snapshot_ids"].is_array()
}

/// Small numbers are positions in the list of snapshots.
pub fn recorded_ids(case: &Case, value: &Value) -> impl Iterator<Item = i64> {
    let snapshots = case.expected["before"]["snapshots"].as_array().unwrap();
    let id = |value: &Value| match value.as_i64().unwrap() {
        index @ 0..1000 => snapshots[index as usize]["snapshot_id"].as_i64().unwrap(),
        id => id,
    };
    value.as_array().unwrap().iter().map(id).collect::<Vec<_>>().into_iter()
}

pub fn epoch_ms(utc: &str) -> i64 {
    let time = chrono::NaiveDateTime::parse_from_str(utc, "%Y-%m-%d %H:%M:%S%.f").unwrap();
    time.and_utc().timestamp_millis()
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

pub fn texts(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().map(|value| text(value).to_string()).collect()
}

pub fn list(value: &Value) -> Vec<i64> {
    value.as_array().into_iter().flatten().map(|value| value.as_i64().unwrap()).collect()
}

pub fn ids(value: &Value) -> BTreeSet<i64> {
    list(value).into_iter().collect()
}

pub fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}
