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
use crate::operations::{self, OperationCall};
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
    let (orders, clicks) = (shell_word(&orders.to_string_lossy()), shell_word(&clicks.to_string_lossy()));
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf()).join("clicks");
    let call = format!(
        "CALL system.expire_snapshots(table => {}, dry_run => true)",
        operations::quoted(&absolute.to_string_lossy())
    );
    let fresh = if was_run {
        format!("\n  iceberg-maintenance demo {}     # make them anew, then", shell_word(&folder.to_string_lossy()))
    } else {
        String::new()
    };
    format!(
        "\nTry next:{fresh}
  iceberg-maintenance expire-snapshots {orders} --dry-run --output snapshots
  iceberg-maintenance expire-snapshots {orders} --older-than 20d --retain-last 5
  iceberg-maintenance remove-orphan-files {clicks} --dry-run --output files
  iceberg-maintenance -c {}
  iceberg-maintenance     # an SQL shell",
        in_double_quotes(&call)
    )
}

/// A text as one word of a POSIX shell; as it is when it is one already.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_string()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A text in the double quotes of a POSIX shell.
fn in_double_quotes(text: &str) -> String {
    let escape = |c: char| if "\"\\$`".contains(c) { format!("\\{c}") } else { c.to_string() };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_commands_can_be_pasted_whatever_the_folder_is_called() {
        let plain = next_commands(Path::new("/no/demo"), true);
        assert!(
            plain.contains("demo /no/demo  ") && plain.contains("expire-snapshots /no/demo/orders --dry"),
            "{plain}"
        );
        let odd = next_commands(Path::new("/no/it's $x \"y\""), true);
        assert!(odd.contains("remove-orphan-files '/no/it'\\''s $x \"y\"/clicks' --dry-run"), "{odd}");
        assert!(odd.contains("table => '/no/it''s \\$x \\\"y\\\"/clicks', dry_run"), "{odd}");
    }

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
