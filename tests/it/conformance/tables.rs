//! PyIceberg in processes of its own: it makes the tables, changes them while we work, and says what is left of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::support::python;

/// The processes; each does one thing at a time. They end when their input does, at the latest with this binary.
static PROCESSES: [Mutex<Option<Process>>; 2] = [const { Mutex::new(None) }; 2];

struct Process {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/conformance/python/tables.py");
        let mut command = Command::new(python());
        command.arg("-B").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { _child: child, input, output }
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        writeln!(self.input, "{request}").map_err(|e| e.to_string())?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(|e| e.to_string())?;
        let mut answer: Value = serde_json::from_str(&answer).map_err(|e| format!("{e}: {answer}"))?;
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_string()),
            None => Ok(answer["result"].take()),
        }
    }
}

/// A process that has nothing to do, or else one of them when it is done.
fn idle() -> MutexGuard<'static, Option<Process>> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let idle = PROCESSES.iter().find_map(|process| process.try_lock().ok());
    let any = || PROCESSES[NEXT.fetch_add(1, Ordering::Relaxed) % PROCESSES.len()].lock();
    idle.unwrap_or_else(|| any().unwrap_or_else(PoisonError::into_inner))
}

/// A table as PyIceberg sees it.
#[derive(Debug, Clone)]
pub struct TableState {
    pub location: String,
    pub uuid: String,
    /// The values of the only column.
    pub ids: Vec<i64>,
    pub refs: BTreeMap<String, i64>,
    /// In the order in which they were made.
    pub snapshots: Vec<i64>,
    /// The data files, manifests and manifest list of each snapshot.
    pub needed: BTreeMap<i64, BTreeSet<String>>,
    /// The current metadata file and those before it.
    pub metadata: BTreeSet<String>,
}

impl TableState {
    /// Files that only these snapshots need.
    pub fn needed_only_by(&self, snapshots: &[i64]) -> BTreeSet<String> {
        let (gone, kept): (Vec<_>, Vec<_>) = self.needed.iter().partition(|(id, _)| snapshots.contains(id));
        let kept: BTreeSet<_> = kept.into_iter().flat_map(|(_, files)| files).collect();
        gone.into_iter().flat_map(|(_, files)| files).filter(|file| !kept.contains(file)).cloned().collect()
    }
}

/// A table that PyIceberg reaches by its own catalog and storage properties.
#[derive(Debug, Clone)]
pub struct Tables {
    pub properties: BTreeMap<String, String>,
    /// `namespace.name`
    pub name: String,
    /// What S3 must have before anything can be written.
    pub bucket: Option<&'static str>,
}

impl Tables {
    fn try_ask(&self, operation: &str, arguments: Value) -> Result<Value, String> {
        let mut request = arguments;
        request["operation"] = operation.into();
        request["catalog"] = json!(self.properties);
        request["table"] = self.name.as_str().into();
        // Other tests go on meanwhile, and so does the proxy of this one.
        tokio::task::block_in_place(|| idle().get_or_insert_with(Process::start).ask(&request))
    }

    fn ask(&self, operation: &str, arguments: Value) -> Value {
        self.try_ask(operation, arguments).unwrap_or_else(|error| panic!("{operation} {}: {error}", self.name))
    }

    /// A table with four snapshots of ten rows each. The third, tagged `keep`, took out the rows of the first, whose file
    /// nothing needs any more; the second is like the third with them.
    pub fn create(&self) -> TableState {
        state(&self.ask("create", json!({"bucket": self.bucket})))
    }

    /// A table without a snapshot.
    pub fn create_empty(&self) -> TableState {
        state(&self.ask("create_empty", json!({"bucket": self.bucket})))
    }

    /// Commits ten more rows and returns the new snapshot.
    pub fn append(&self) -> i64 {
        self.ask("append", json!({})).as_i64().unwrap()
    }

    pub fn tag(&self, name: &str, snapshot_id: i64) {
        self.ask("tag", json!({"name": name, "snapshot_id": snapshot_id}));
    }

    pub fn read(&self) -> TableState {
        state(&self.ask("read", json!({})))
    }

    /// Everything below a location, in the store's own words.
    pub fn files(&self, location: &str) -> BTreeSet<String> {
        texts(&self.ask("files", json!({"location": location})))
    }

    /// Puts a small object at each location.
    pub fn put(&self, locations: &[String]) {
        self.ask("put", json!({"locations": locations}));
    }

    /// Puts so many small objects in the table's data folder.
    pub fn put_many(&self, location: &str, count: usize) {
        self.ask("put_many", json!({"location": location, "count": count}));
    }

    /// Makes a view beside the table.
    pub fn create_view(&self, name: &str) {
        self.ask("create_view", json!({"name": name}));
    }

    /// Runs statements in the database of an SQL catalog.
    pub fn sql(&self, statements: &[String]) {
        self.ask("sql", json!({"statements": statements}));
    }
}

/// One spelling for a local file: the reference REST server gives paths for some and URIs for others.
fn uri(location: &str) -> String {
    match location.strip_prefix("file:") {
        Some(path) => format!("file:///{}", path.trim_start_matches('/')),
        None if location.starts_with('/') => format!("file://{location}"),
        None => location.to_string(),
    }
}

fn texts(value: &Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|text| uri(text.as_str().unwrap())).collect()
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

fn state(value: &Value) -> TableState {
    let object = |key: &str| value[key].as_object().unwrap();
    TableState {
        location: uri(value["location"].as_str().unwrap()),
        uuid: value["uuid"].as_str().unwrap().to_string(),
        ids: numbers(&value["ids"]),
        refs: object("refs").iter().map(|(name, id)| (name.clone(), id.as_i64().unwrap())).collect(),
        snapshots: numbers(&value["snapshots"]),
        needed: object("needed").iter().map(|(id, files)| (id.parse().unwrap(), texts(files))).collect(),
        metadata: texts(&value["metadata"]),
    }
}
