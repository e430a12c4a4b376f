//! PyIceberg, a reader with no line of code in common with us, reads a table after our expiry and sees what we left.

use std::path::Path;
use std::process::Command;

use iceberg_maintenance::fixtures::{Content, History, Table as Described};
use serde_json::{Value, json};

use crate::support::{Session, literal, python, python_has};
use crate::table::Table;

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;

/// What PyIceberg reads from the newest metadata file of a table.
fn read_by_pyiceberg(table: &Table) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/read_by_pyiceberg.py");
    let output = Command::new(python()).arg(script).arg(&table.metadata_path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Writes the table, expires all that may go, and compares what PyIceberg reads before and after.
async fn expire_and_read(table: Described, snapshots_left: &[i64], rows: i64, gone: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let written = table.write(folder.path().join("t")).unwrap();
    let location = written.folder.to_str().unwrap();
    let read = || read_by_pyiceberg(&Table::read(Path::new("/"), location));
    let before = read();
    assert_eq!(before["rows"], rows);

    let now_ms = BEGIN_MS + 50 * DAY_MS;
    let sql = format!("CALL system.expire_snapshots({}, {now_ms})", literal(location));
    let session = Session::new(Some(now_ms));
    session.run(&sql).await.unwrap();
    let after = read();
    assert_eq!(after["snapshots"], json!(snapshots_left));
    assert_eq!(after["current"], before["current"]);
    assert_eq!(after["uuid"], before["uuid"]);
    assert_eq!(after["schema"], before["schema"]);
    assert_eq!(after["rows"], rows, "the rows of the current snapshot");
    assert_eq!(after["ids"], before["ids"], "the values of column id");
    for snapshot in after["rows_by_snapshot"].as_object().unwrap().keys() {
        assert_eq!(after["rows_by_snapshot"][snapshot], before["rows_by_snapshot"][snapshot], "snapshot {snapshot}");
    }
    for path in gone {
        assert!(!written.resolve(path).unwrap().exists(), "{path} is still there");
    }
}

fn table(format_version: i64) -> History {
    let mut table = Described::new(format_version);
    table.last_updated_ms = BEGIN_MS;
    table.content = Content::Real;
    History::new(table)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_position_deletes_reads_the_same_after_expiry() {
    if !python_has(&["pyiceberg.table", "pyarrow"]) {
        return;
    }
    let mut history = table(2);
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    let tagged = history.position_deletes(BEGIN_MS + 2 * DAY_MS, "a-deletes", "a");
    history.tag("keep", tagged);
    history.overwrite(BEGIN_MS + 3 * DAY_MS, ["b"], ["c"]);
    let current = history.overwrite(BEGIN_MS + 4 * DAY_MS, ["c"], ["d"]);
    expire_and_read(history.build(), &[tagged, current], 19, &["data/c.parquet"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_v3_table_with_deletion_vectors_reads_the_same_after_expiry() {
    if !python_has(&["pyiceberg.table", "pyarrow"]) {
        return;
    }
    let mut history = table(3);
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.deletion_vectors(BEGIN_MS + 2 * DAY_MS, "shared", &[("a", &[0]), ("b", &[1, 2])]);
    let current = history.deletion_vectors(BEGIN_MS + 3 * DAY_MS, "newer", &[("a", &[0, 5])]);
    expire_and_read(history.build(), &[current], 16, &[]).await;
}
