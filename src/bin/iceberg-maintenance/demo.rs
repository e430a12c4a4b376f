//! `demo`: real tables to try things on.

use std::fs;
use std::path::Path;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::Int64Type;
use iceberg_maintenance::fixtures::{self, DEMO_MARKER, DemoTable};
use iceberg_maintenance::{Clock, SystemClock};

use crate::arguments::DemoArguments;
use crate::failure::Failure;
use crate::operations::OperationCall;
use crate::session::Session;

/// The tables of the demo; only these folders are ever replaced.
const TABLES: [&str; 2] = ["orders", "clicks"];

/// What is run on each table, in this order.
const PROCEDURES: [&str; 2] = ["expire_snapshots", "remove_orphan_files"];

/// Makes the demo's tables, and runs both operations on them if asked to.
pub(crate) fn run(session: &Session, arguments: &DemoArguments) -> Result<(), Failure> {
    let folder = &arguments.folder;
    make_room(folder)?;
    let tables = fixtures::demo(folder, SystemClock.now_ms())
        .map_err(|error| Failure::new(format!("the demo can't be written to {}: {error}", folder.display())))?;
    for table in &tables {
        let (count, path) = (table.written.table.snapshots.len(), folder.join(table.name));
        session.say(&format!("Made {} ({count} snapshots): {}.", path.display(), table.about));
    }
    if arguments.run {
        tables.iter().try_for_each(|table| maintain(session, table))?;
    }
    session.say(&next_commands(folder, arguments.run));
    Ok(())
}

/// Clears away an earlier demo. A folder that holds anything else is left alone.
fn make_room(folder: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("{} can't be used: {error}", folder.display()));
    if !folder.exists() {
        return Ok(());
    }
    if folder.join(DEMO_MARKER).is_file() {
        for path in TABLES.map(|table| folder.join(table)) {
            if path.is_dir() {
                fs::remove_dir_all(&path).map_err(failed)?;
            }
        }
        return Ok(());
    }
    match fs::read_dir(folder).map_err(failed)?.next() {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!(
            "{} isn't empty and wasn't made by the demo: give another folder",
            folder.display()
        ))),
    }
}

/// Both operations, each as a dry run first.
fn maintain(session: &Session, table: &DemoTable) -> Result<(), Failure> {
    let location = table.written.folder.to_string_lossy();
    for procedure in PROCEDURES {
        let call = OperationCall::new(procedure, &location);
        for call in [call.with("dry_run", "true"), call] {
            session.say(&format!("\n{};  -- rows that are not 0", call.sql()));
            let rows = session.rows(&call.sql())?;
            session.print(&rows.iter().map(without_zeros).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// The metric rows whose value is not 0; other results as they are.
fn without_zeros(batch: &RecordBatch) -> RecordBatch {
    let values = batch.column_by_name("metric_value").and_then(|column| column.as_primitive_opt::<Int64Type>());
    let Some(values) = values else { return batch.clone() };
    let is_set: BooleanArray = values.iter().map(|value| Some(value != Some(0))).collect();
    filter_record_batch(batch, &is_set).unwrap_or_else(|_| batch.clone())
}

fn next_commands(folder: &Path, was_run: bool) -> String {
    let (orders, clicks) = (folder.join("orders"), folder.join("clicks"));
    let (orders, clicks) = (orders.display(), clicks.display());
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let fresh = if was_run {
        format!("\n  iceberg-maintenance demo {}     # make them anew, then", folder.display())
    } else {
        String::new()
    };
    format!(
        "\nTry next:{fresh}
  iceberg-maintenance expire-snapshots {orders} --dry-run --output snapshots
  iceberg-maintenance expire-snapshots {orders} --older-than 20d --retain-last 5
  iceberg-maintenance remove-orphan-files {clicks} --dry-run --output files
  iceberg-maintenance -c \"CALL system.expire_snapshots(table => '{}/clicks', dry_run => true)\"
  iceberg-maintenance     # an SQL shell",
        absolute.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_folder_is_refused_and_an_earlier_demo_replaced() {
        let folder = tempfile::tempdir().unwrap();
        make_room(folder.path()).unwrap();
        make_room(&folder.path().join("new")).unwrap();
        fs::create_dir_all(folder.path().join("orders")).unwrap();
        fs::write(folder.path().join("orders/mine"), "x").unwrap();
        let failure = make_room(folder.path()).unwrap_err();
        assert!(format!("{failure:?}").contains("wasn't made by the demo"), "{failure:?}");
        assert!(folder.path().join("orders/mine").exists());

        fs::write(folder.path().join(DEMO_MARKER), "").unwrap();
        fs::write(folder.path().join("notes"), "x").unwrap();
        make_room(folder.path()).unwrap();
        assert!(!folder.path().join("orders").exists() && folder.path().join("notes").exists());
    }
}
