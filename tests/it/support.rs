//! Files on disk, sessions and statements.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use iceberg_maintenance::{FixedClock, Maintenance, MaintenanceBuilder, MaintenanceSql};
use object_store::local::LocalFileSystem;

/// Fails the enclosing function, which returns `Result<_, String>`, with a message.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// What lies at a path: everything that a run which changes nothing must leave alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDisk {
    pub is_folder: bool,
    pub bytes: u64,
    pub content_hash: u64,
    pub modified: SystemTime,
}

/// Everything below a folder, by path relative to it.
pub type Disk = BTreeMap<String, OnDisk>;

/// Looks at everything below a folder. Links are looked at, not followed.
pub fn disk(root: &Path) -> Disk {
    let mut found = Disk::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mut hasher = DefaultHasher::new();
            if metadata.is_file() {
                fs::read(&path).unwrap().hash(&mut hasher);
            }
            let relative = path.strip_prefix(root).unwrap().to_str().expect("a UTF-8 name").to_string();
            let modified = metadata.modified().unwrap();
            let (is_folder, bytes) = (metadata.is_dir(), if metadata.is_file() { metadata.len() } else { 0 });
            found.insert(relative, OnDisk { is_folder, bytes, content_hash: hasher.finish(), modified });
            if is_folder {
                pending.push(path);
            }
        }
    }
    found
}

/// The files (no folders) of a [`Disk`], without the journal of maintenance runs.
pub fn files(disk: &Disk) -> BTreeSet<String> {
    let files = disk.iter().filter(|(path, entry)| !entry.is_folder && !path.contains("metadata/_maintenance/"));
    files.map(|(path, _)| path.clone()).collect()
}

/// Fails when anything differs between two looks, naming what.
pub fn unchanged(what: &str, before: &Disk, after: &Disk) -> Result<(), String> {
    let differing: Vec<_> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    ensure!(differing.is_empty(), "{what} changed {differing:?}");
    Ok(())
}

/// Unpacks a `.tar.zst` below a folder. Times come with their fractions of a second where the archive has them.
pub fn unpack(archive: &Path, below: &Path) {
    let packed = fs::File::open(archive).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
    let mut tar = tar::Archive::new(zstd::Decoder::new(packed).unwrap());
    tar.unpack(below).unwrap();
}

/// Sets a file's modification time, ms since the epoch.
pub fn set_modified(path: &Path, modified_ms: u64) {
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(modified_ms);
    let file = fs::File::options().write(true).open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.set_modified(time).unwrap();
}

/// A folder beside the clone which other projects share with this one; absent in most clones.
pub fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared").join(name)
}

/// True where a missing tool is a fault of the set-up instead of something to do without.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// The Python that has the packages which tests need, as `.ci/run` sets it up.
pub fn python() -> String {
    std::env::var("ICEBERG_MAINTENANCE_PYTHON").unwrap_or_else(|_| "python3".to_string())
}

/// True when Python has all of these packages. In CI a missing one fails the test; elsewhere the reason is printed.
pub fn python_has(packages: &[&str]) -> bool {
    // Importing them takes seconds, and many tests ask.
    static ASKED: Mutex<BTreeMap<String, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let program = format!("import {}", packages.join(", "));
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = asked.entry(program).or_insert_with_key(|program| {
        match std::process::Command::new(python()).args(["-c", program]).output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
            Err(error) => Err(error.to_string()),
        }
    });
    let Err(why) = outcome else { return true };
    let message = format!(
        "{} can't import {packages:?} ({why}). Set ICEBERG_MAINTENANCE_PYTHON to a Python that can, as .ci/run does",
        python()
    );
    assert!(!in_ci(), "{message}");
    eprintln!("not run: {message}");
    false
}

/// Takes out of a command's environment what would send its spans somewhere.
pub fn without_collector(command: &mut std::process::Command) -> &mut std::process::Command {
    let is_of_telemetry = |(name, _): &(std::ffi::OsString, _)| name.to_string_lossy().starts_with("OTEL_");
    for (name, _) in std::env::vars_os().filter(is_of_telemetry) {
        command.env_remove(name);
    }
    command
}

/// A row of a result, as text.
pub type Row = BTreeMap<String, Option<String>>;

/// The metric rows of a result.
pub type MetricRows = BTreeMap<String, i64>;

/// A session with maintenance registered.
pub struct Session {
    pub context: SessionContext,
    pub maintenance: Maintenance,
}

impl Session {
    /// A session on the local file system. `now_ms` stops its clock.
    pub fn new(now_ms: Option<i64>) -> Self {
        Self::with(match now_ms {
            Some(now_ms) => Maintenance::builder().clock(Arc::new(FixedClock(now_ms))),
            None => Maintenance::builder(),
        })
    }

    /// A session with maintenance set up in a way of its own.
    pub fn with(builder: MaintenanceBuilder) -> Self {
        let context = SessionContext::new();
        let maintenance = builder.register(&context).unwrap();
        Self { context, maintenance }
    }

    /// A session whose `file://` is what lies below `root`.
    pub fn below(root: &Path, now_ms: Option<i64>) -> Self {
        let session = Self::new(now_ms);
        let store = LocalFileSystem::new_with_prefix(root).unwrap();
        session.context.register_object_store(&url::Url::parse("file://").unwrap(), Arc::new(store));
        session
    }

    /// Runs a statement; errors as text.
    pub async fn run(&self, sql: &str) -> Result<Vec<RecordBatch>, String> {
        let frame = self.context.maintenance_sql(sql).await.map_err(|e| e.to_string())?;
        frame.collect().await.map_err(|e| e.to_string())
    }

    /// Runs a statement that must fail; the error is looked at with [`iceberg_maintenance::Error::find`].
    pub async fn failure(&self, sql: &str) -> DataFusionError {
        let outcome = async { self.context.maintenance_sql(sql).await?.collect().await };
        outcome.await.expect_err(sql)
    }

    /// The paths and their status of a statement with `output => 'files'`, sorted by path. Such a statement returns its rows
    /// even where it ends in an error because some deletes failed.
    pub async fn statuses(&self, sql: &str) -> BTreeMap<String, String> {
        let text = |row: &Row, name: &str| row[name].clone().unwrap();
        let (rows, _) = self.rows_until_the_end(sql).await;
        rows.iter().map(|row| (text(row, "file_path"), text(row, "status"))).collect()
    }

    /// The rows of a statement as they come, and the error that it ends with, if it does.
    pub async fn rows_until_the_end(&self, sql: &str) -> (Vec<Row>, Option<String>) {
        let mut rows = vec![];
        let mut stream = self.context.maintenance_sql(sql).await.unwrap().execute_stream().await.unwrap();
        while let Some(batch) = stream.next().await {
            match batch {
                Ok(batch) => rows.extend((0..batch.num_rows()).map(|row| row_of(&batch, row))),
                Err(error) => return (rows, Some(error.to_string())),
            }
        }
        (rows, None)
    }

    /// Runs a statement and returns its rows.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Row>, String> {
        let batches = self.run(sql).await?;
        Ok(batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| row_of(batch, row))).collect())
    }

    /// Runs a statement that returns metric rows.
    pub async fn metrics(&self, sql: &str) -> Result<MetricRows, String> {
        let metric = |row: Row| {
            let field = |name: &str| row.get(name).cloned().flatten().unwrap_or_else(|| panic!("no {name} in {row:?}"));
            (field("metric_name"), field("metric_value").parse().unwrap())
        };
        Ok(self.rows(sql).await?.into_iter().map(metric).collect())
    }
}

pub fn row_of(batch: &RecordBatch, row: usize) -> Row {
    let value = |column: &dyn Array| (!column.is_null(row)).then(|| array_value_to_string(column, row).unwrap());
    let columns = batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    columns.into_iter().zip(batch.columns()).map(|(name, column)| (name, value(column.as_ref()))).collect()
}

/// Fails unless a dry run and the real run that followed report the same numbers.
pub fn same_numbers(dry: &MetricRows, real: &MetricRows) -> Result<(), String> {
    ensure!(dry.get("dry_run") == Some(&1), "the dry run does not say that it was one: {dry:?}");
    ensure!(real.get("dry_run") == Some(&0), "the real run says that it was a dry run: {real:?}");
    let comparable = |rows: &MetricRows| {
        let own = ["dry_run", "elapsed_ms"];
        rows.iter().filter(|(name, _)| !own.contains(&name.as_str())).map(|(n, v)| (n.clone(), *v)).collect::<Vec<_>>()
    };
    ensure!(
        comparable(dry) == comparable(real),
        "dry run and real run report different numbers:\n  {dry:?}\n  {real:?}"
    );
    Ok(())
}

/// Fails when a run reports that it deleted something.
pub fn deleted_nothing(metrics: &MetricRows) -> Result<(), String> {
    let deleted: Vec<_> = metrics.iter().filter(|(name, value)| name.starts_with("deleted_") && **value != 0).collect();
    ensure!(deleted.is_empty(), "a run that had nothing to do reports {deleted:?}");
    Ok(())
}

/// Quotes a text as an SQL literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
