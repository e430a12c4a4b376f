//! PyIceberg in processes of its own: it makes the tables, changes them while we work, and says what is left of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::python;

/// The processes; each does one thing at a time. They end when their input does, at the latest with this binary.
static PROCESSES: [Mutex<Option<Process>>; 2] = [const { Mutex::new(None) }; 2];

/// An answer takes no longer than this, or the process hangs.
const TIME_LIMIT: Duration = Duration::from_secs(60);

struct Process {
    child: Child,
    input: ChildStdin,
    /// What it prints, line by line, until it ends.
    lines: Receiver<std::io::Result<String>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended before.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Process {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/conformance/python/tables.py");
        let mut command = Command::new(python());
        command.arg("-B").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (to, lines) = mpsc::channel();
        // Only a thread can be waited for with a time limit. It ends with the process, or when nobody listens.
        std::thread::spawn(move || output.lines().try_for_each(|line| to.send(line)));
        Self { child, input, lines }
    }

    /// What came of the operation.
    ///
    /// # Errors
    /// Why the process is of no use any more.
    fn ask(&mut self, request: &Value) -> Result<Result<Value, String>, String> {
        writeln!(self.input, "{request}").map_err(|e| format!("PyIceberg's process ended: {e}"))?;
        let line = self.lines.recv_timeout(TIME_LIMIT).map_err(|why| match why {
            RecvTimeoutError::Timeout => format!("PyIceberg's process did not answer within {TIME_LIMIT:?}"),
            RecvTimeoutError::Disconnected => "PyIceberg's process ended without an answer".to_string(),
        })?;
        let line = line.map_err(|e| e.to_string())?;
        let mut answer: Value = serde_json::from_str(&line).map_err(|e| format!("{e}: {line}"))?;
        Ok(match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_string()),
            None => Ok(answer["result"].take()),
        })
    }
}

/// A process that has nothing to do, or else one of them when it is done.
fn idle() -> MutexGuard<'static, Option<Process>> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    for process in &PROCESSES {
        match process.try_lock() {
            Ok(idle) => return idle,
            Err(TryLockError::Poisoned(poisoned)) => return replaced(process, poisoned),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    let any = &PROCESSES[NEXT.fetch_add(1, Ordering::Relaxed) % PROCESSES.len()];
    any.lock().unwrap_or_else(|poisoned| replaced(any, poisoned))
}

/// Ends a process whose asker panicked: its next answer might be to the last question.
fn replaced<'a>(
    process: &'a Mutex<Option<Process>>,
    poisoned: PoisonError<MutexGuard<'a, Option<Process>>>,
) -> MutexGuard<'a, Option<Process>> {
    process.clear_poison();
    let mut process = poisoned.into_inner();
    *process = None;
    process
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
    pub newest_metadata: String,
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
    /// What the store must have before anything can be written, as a location.
    pub bucket: Option<&'static str>,
}

impl Tables {
    fn try_ask(&self, operation: &str, arguments: Value) -> Result<Value, String> {
        let mut request = arguments;
        request["operation"] = operation.into();
        request["catalog"] = json!(self.properties);
        request["table"] = self.name.as_str().into();
        // Other tests go on meanwhile, and so does the proxy of this one.
        tokio::task::block_in_place(|| {
            let mut process = idle();
            let outcome = process.get_or_insert_with(Process::start).ask(&request);
            outcome.unwrap_or_else(|why| {
                *process = None;
                Err(why)
            })
        })
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

    /// Everything below a location but the journal of maintenance runs, in the store's own words.
    pub fn files(&self, location: &str) -> BTreeSet<String> {
        let mut files = texts(&self.ask("files", json!({"location": location})));
        files.retain(|file| !file.contains("/metadata/_maintenance/"));
        files
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
        newest_metadata: uri(value["metadata"][0].as_str().unwrap()),
    }
}
