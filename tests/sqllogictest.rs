//! Runs every `sql-tests/*.slt` as a test of its own, on a fresh session and a fresh warehouse.
//!
//! `COMPLETE=1 cargo test --test sqllogictest [name]` writes the actual results into the files instead of comparing them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::prelude::{SessionConfig, SessionContext};
use iceberg_maintenance::catalog::FileSystemCatalog;
use iceberg_maintenance::fixtures::{WAREHOUSE_NOW_MS, warehouse};
use iceberg_maintenance::{FixedClock, Maintenance};

use iceberg_maintenance::sqllogictest::runner;
use libtest_mimic::{Arguments, Failed, Trial};
use sqllogictest::{default_normalizer, default_validator, strict_column_validator};

fn main() {
    let arguments = Arguments::from_args();
    let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql-tests");
    let mut files: Vec<PathBuf> = match std::fs::read_dir(&suites) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(error) => panic!("{}: {error}", suites.display()),
    };
    files.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    files.sort();
    let trial = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(name, move || run(&path))
    };
    libtest_mimic::run(&arguments, files.into_iter().map(trial).collect()).exit();
}

fn run(suite: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    warehouse(folder.path())?;
    let root = folder.path().canonicalize()?;
    let context = session(&root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut runner = runner(&context, &root);
    if std::env::var_os("COMPLETE").is_some() {
        let update =
            runner.update_test_file(suite, " ", default_validator, default_normalizer, strict_column_validator);
        return runtime.block_on(update).map_err(|error| Failed::from(error.to_string()));
    }
    runtime.block_on(runner.run_file_async(suite)).map_err(|error| Failed::from(error.display(false).to_string()))
}

/// A session with maintenance on the warehouse's clock, the table `lake.events` by name, and the warehouse as the catalog
/// `files`.
fn session(warehouse: &Path) -> datafusion::error::Result<SessionContext> {
    let config = SessionConfig::new().with_target_partitions(4).with_information_schema(true);
    let context = SessionContext::new_with_config(config);
    Maintenance::builder()
        .clock(Arc::new(FixedClock(WAREHOUSE_NOW_MS)))
        .table("lake.events", warehouse.join("events").to_string_lossy())
        .catalog("files", Arc::new(FileSystemCatalog::with_warehouse(warehouse.to_string_lossy())))
        .register(&context)?;
    Ok(context)
}
