//! Every operation is killed at every request that it makes of its store, once before the request is carried out and once after
//! it: from then on the process is dead. A new process must find that no live file is lost, finish what was begun, and
//! come to the state that there would be without the fault.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use iceberg_maintenance::fixtures::{History, Table};
use serde_json::Value;
use url::Url;

use crate::support::Session;
use crate::table::{Table as ReadTable, plain_path};
use crate::watched::{WatchedStore, Wrong};

const DAY_MS: i64 = 24 * 3600 * 1000;
const BEGIN_MS: i64 = 1_700_000_000_000;
const LOCATION: &str = "s3://bucket/wh/t";
const STRAYS: [&str; 2] = ["wh/t/data/stray-1.parquet", "wh/t/data/stray-2.parquet"];

/// What is done to the table, in order. The last step is the one that is killed; `again` is what an operator calls
/// afterwards, on top of `resume_maintenance`.
struct Operation {
    before: &'static [&'static str],
    killed: &'static str,
    again: &'static str,
}

const EXPIRE: Operation = Operation {
    before: &[],
    killed: "CALL system.expire_snapshots(table => 's3://bucket/wh/t')",
    again: "CALL system.expire_snapshots(table => 's3://bucket/wh/t')",
};

const REMOVE_ORPHANS: Operation = Operation {
    before: &[],
    killed: "CALL system.remove_orphan_files(table => 's3://bucket/wh/t')",
    again: "CALL system.remove_orphan_files(table => 's3://bucket/wh/t')",
};

const DEFER: Operation = Operation {
    before: &[],
    killed: "CALL system.expire_snapshots(table => 's3://bucket/wh/t', deferred => '14d')",
    again: "CALL system.expire_snapshots(table => 's3://bucket/wh/t', deferred => '14d')",
};

const PURGE: Operation = Operation {
    before: &["CALL system.expire_snapshots(table => 's3://bucket/wh/t', deferred => '14d')"],
    killed: "CALL system.purge_deferred_files(table => 's3://bucket/wh/t', ignore_window => true)",
    again: "CALL system.purge_deferred_files(table => 's3://bucket/wh/t', ignore_window => true)",
};

const RESTORE: Operation = Operation {
    before: &["CALL system.expire_snapshots(table => 's3://bucket/wh/t', deferred => '14d')"],
    killed: "CALL system.restore_snapshots(table => 's3://bucket/wh/t', run => '<RUN>')",
    again: "CALL system.restore_snapshots(table => 's3://bucket/wh/t', run => '<RUN>')",
};

const QUARANTINE: Operation = Operation {
    before: &[],
    killed: "CALL system.expire_snapshots(table => 's3://bucket/wh/t', quarantine => true)",
    again: "CALL system.expire_snapshots(table => 's3://bucket/wh/t', quarantine => true)",
};

const RETURN: Operation = Operation {
    before: &["CALL system.expire_snapshots(table => 's3://bucket/wh/t', quarantine => true)"],
    killed: "CALL system.restore_quarantined_files(table => 's3://bucket/wh/t', run => '<RUN>')",
    again: "SELECT * FROM maintenance_log('s3://bucket/wh/t')",
};

const QUARANTINE_ORPHANS: Operation = Operation {
    before: &[],
    killed: "CALL system.remove_orphan_files(table => 's3://bucket/wh/t', quarantine => true)",
    again: "CALL system.remove_orphan_files(table => 's3://bucket/wh/t', quarantine => true)",
};

const PURGE_QUARANTINE: Operation = Operation {
    before: &["CALL system.expire_snapshots(table => 's3://bucket/wh/t', quarantine => true)"],
    killed: "CALL system.purge_quarantined_files(table => 's3://bucket/wh/t', older_than => '0s')",
    again: "CALL system.purge_quarantined_files(table => 's3://bucket/wh/t', older_than => '0s')",
};

const EXECUTE_PLAN: Operation = Operation {
    before: &[
        "CALL system.expire_snapshots(table => 's3://bucket/wh/t', dry_run => true, plan => 's3://bucket/plans/p')",
    ],
    killed: "CALL system.execute_plan(table => 's3://bucket/wh/t', plan => 's3://bucket/plans/p')",
    again: "CALL system.expire_snapshots(table => 's3://bucket/wh/t')",
};

/// Snapshots 1 to 3 expire with files of every kind, 4 stays; `old` goes by its age.
fn table() -> Table {
    let table = Table { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
    let mut history = History::new(table);
    history.append(BEGIN_MS + DAY_MS, ["a", "b"]);
    history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["c"]);
    history.delete_files(BEGIN_MS + 3 * DAY_MS, ["c"]);
    history.append(BEGIN_MS + 4 * DAY_MS, ["d"]);
    history.build()
}

async fn store() -> WatchedStore {
    let store = WatchedStore::with_table(&table()).await;
    for stray in STRAYS {
        store.add(stray, "x").await;
    }
    store
}

/// A new process.
fn session(store: &WatchedStore) -> Session {
    let session = Session::new(Some(chrono::Utc::now().timestamp_millis() + 10 * DAY_MS));
    session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
    session
}

/// What a table and its folder came to: all keys but the journal's, and what the newest metadata says, without times.
#[derive(Debug, PartialEq)]
struct State {
    keys: BTreeSet<String>,
    snapshots: BTreeSet<i64>,
    refs: BTreeSet<String>,
    log: usize,
}

impl State {
    /// Reads the table by other means than the crate's, and makes sure that nothing live is lost.
    async fn of(store: &WatchedStore, what: &str) -> Self {
        let mut keys = store.keys().await;
        // What shows once for each store whether it can create a file only if there is none: an orphan if nobody lives to remove it.
        keys.retain(|key| !key.ends_with(".probe"));
        let copy = tempfile::tempdir().unwrap();
        for key in &keys {
            let path = copy.path().join("s3:/bucket").join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, store.content(key).await).unwrap();
        }
        let read = ReadTable::read(copy.path(), LOCATION);
        for file in read.referenced().unwrap_or_else(|why| panic!("{what}: {why}")) {
            let key =
                plain_path(&file).trim_start_matches(['/', 's', '3', ':']).trim_start_matches("bucket/").to_string();
            let may_be_gone = key.ends_with(".metadata.json") || key.ends_with("version-hint.text");
            assert!(keys.contains(&key) || may_be_gone, "{what}: {file} is lost");
        }
        let log = read.list("metadata-log").iter().filter(|entry| matches!(entry, Value::Object(_))).count();
        Self { keys, snapshots: read.snapshot_ids(), refs: read.refs(), log }
    }
}

/// Lets so many requests through, gives this answer to the next one, and no other answer than a failure to all that follow.
fn kill_at(store: &WatchedStore, request: usize, how: Wrong) {
    let count = AtomicUsize::new(0);
    store.answer_all_wrongly(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        earlier if earlier < request => None,
        now if now == request => Some(how),
        _ => Some(Wrong::Fails),
    });
}

/// The table before the operation, and the run that came before it.
async fn prepared(operation: &Operation) -> (WatchedStore, String) {
    let store = store().await;
    for statement in operation.before {
        session(&store).run(statement).await.unwrap();
    }
    let log = session(&store).rows(&format!("SELECT run FROM maintenance_log('{LOCATION}')")).await.unwrap();
    store.take_all_requests();
    (store, log.first().and_then(|row| row["run"].clone()).unwrap_or_default())
}

fn of_run(statement: &str, run: &str) -> String {
    statement.replace("<RUN>", run)
}

async fn is_killed_at(operation: &Operation, request: usize, how: Wrong, without_a_fault: &State) {
    let what = format!("{} killed at request {request} ({how:?})", operation.killed);
    let (store, run) = prepared(operation).await;
    kill_at(&store, request, how);
    // How it ends is of no interest: nobody is there any more to hear of it.
    let _ = session(&store).run(&of_run(operation.killed, &run)).await;
    store.recover();
    State::of(&store, &what).await;
    // A return that was cut short is called again; where it had come to its end, that is refused.
    if operation.killed.contains("restore_quarantined_files") {
        let _ = session(&store).run(&of_run(operation.killed, &run)).await;
    }
    let resume = format!("CALL system.resume_maintenance(table => '{LOCATION}')");
    let resumed = session(&store);
    resumed.run(&resume).await.unwrap_or_else(|why| panic!("{what}: {why}"));
    State::of(&store, &what).await;
    resumed.run(&of_run(operation.again, &run)).await.unwrap_or_else(|why| panic!("{what}: {why}"));
    assert_eq!(State::of(&store, &what).await, *without_a_fault, "{what}");
    let log = format!("SELECT status, run, operation FROM maintenance_log('{LOCATION}')");
    for run in resumed.rows(&log).await.unwrap() {
        let status = run["status"].as_deref().unwrap();
        // A plan whose commit never came is closed when it is too late for it; only an expiry makes a commit.
        let may_await_its_commit = run["operation"].as_deref() == Some("expire_snapshots") && status == "unfinished";
        let is_settled = matches!(status, "done" | "deferred" | "restored" | "quarantined" | "returned");
        assert!(is_settled || may_await_its_commit, "{what}: {run:?}");
    }
}

async fn survives_every_kill(operation: Operation) {
    let (store, run) = prepared(&operation).await;
    session(&store).run(&of_run(operation.killed, &run)).await.unwrap();
    let requests = store.take_all_requests().len();
    assert!(requests > 10, "{requests}");
    let without_a_fault = State::of(&store, operation.killed).await;
    // At once, because a process that waits for a dead store waits long.
    let kills = (0..requests).flat_map(|request| [(request, Wrong::Fails), (request, Wrong::AnswerLost)]);
    let kills = kills.map(|(request, how)| is_killed_at(&operation, request, how, &without_a_fault));
    futures::future::join_all(kills).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_survives_every_kill() {
    survives_every_kill(EXPIRE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_of_orphans_survives_every_kill() {
    survives_every_kill(REMOVE_ORPHANS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_expiry_survives_every_kill() {
    survives_every_kill(DEFER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restoration_survives_every_kill() {
    survives_every_kill(RESTORE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_survives_every_kill() {
    survives_every_kill(QUARANTINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_from_quarantine_survives_every_kill() {
    survives_every_kill(RETURN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_survives_every_kill() {
    survives_every_kill(PURGE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_of_quarantine_survives_every_kill() {
    survives_every_kill(PURGE_QUARANTINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_of_orphans_survives_every_kill() {
    survives_every_kill(QUARANTINE_ORPHANS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_plan_survives_every_kill() {
    survives_every_kill(EXECUTE_PLAN).await;
}
