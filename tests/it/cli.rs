//! The command line tool as a process: what it prints where, and how it exits.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use iceberg_maintenance::fixtures::{History, Table, Written};
use iceberg_maintenance::report::METRICS;
use iceberg_maintenance::{Clock, SystemClock};
use serde_json::Value;

use crate::support::{python, python_has, without_collector};

const DAY_MS: i64 = 86_400_000;

fn tool(arguments: &[&str]) -> Output {
    tool_with(arguments, "")
}

fn tool_with(arguments: &[&str], stdin: &str) -> Output {
    let mut child = without_collector(&mut Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance")))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stdout(output)))
}

fn metric(rows: &Value, name: &str) -> i64 {
    let row = rows.as_array().unwrap().iter().find(|row| row["metric_name"] == name);
    row.unwrap_or_else(|| panic!("no {name} in {rows}"))["metric_value"].as_i64().unwrap()
}

/// Three snapshots, of 30, 20 and 1 days ago: a; b; a becomes c. And an orphan of 10 days ago.
fn table(folder: &Path) -> Written {
    let ago = |days| SystemClock.now_ms() - days * DAY_MS;
    let mut history = History::new(Table { modified_ms: Some(ago(30)), ..Table::new(2) });
    history.append(ago(30), ["a"]);
    history.append(ago(20), ["b"]);
    history.overwrite(ago(1), ["a"], ["c"]);
    history.table_mut().stray("data/orphan.parquet", ago(10));
    history.build().write(folder).unwrap()
}

#[test]
fn quiet_json_is_one_array_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let written = table(folder.path());
    let call = format!("CALL system.expire_snapshots(table => '{}')", written.folder.display());
    let output = tool(&["-q", "--format", "json", "-c", &call]);
    let rows = json(&output);
    let names: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["metric_name"].as_str().unwrap()).collect();
    assert_eq!(names, METRICS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    assert_eq!((metric(&rows, "deleted_snapshots_count"), metric(&rows, "deleted_data_files_count")), (2, 1));
    assert_eq!(stderr(&output), "");
    let left = written.files_on_disk().unwrap();
    assert!(!left.contains("data/a.parquet") && left.contains("data/b.parquet") && left.contains("data/c.parquet"));
}

#[test]
fn errors_go_to_stderr_with_exit_code_2() {
    for (arguments, says) in [
        (&["-c", "SELECT * FROM nowhere"][..], "nowhere"),
        (&["-c", "CALL system.expire_snapshots(table => '/no/such/table')"], "/no/such/table"),
        (&["-c", "SELECT 'open"], "Unterminated"),
        (&["-f", "/no/such/file.sql"], "/no/such/file.sql"),
        (&["expire-snapshots", "/no/such/table", "--dry-run"], "/no/such/table"),
        (&["--set", "iceberg_maintenance.nothing=1", "-c", "SELECT 1"], "nothing"),
    ] {
        let output = tool(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("Error: ") && stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

/// Runs the tool on a terminal; what this shows, with all that moves its cursor.
fn on_a_terminal(arguments: &[&str]) -> String {
    let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut command = Command::new(python());
    command.args(["-c", spawn, env!("CARGO_BIN_EXE_iceberg-maintenance")]).args(arguments).env("TERM", "xterm");
    stdout(&command.stdin(Stdio::null()).output().unwrap()).to_string()
}

#[test]
fn a_terminal_shows_what_a_run_does_and_nothing_else_does() {
    if !python_has(&["pty"]) {
        return;
    }
    // A catalog that takes its time, and then knows nothing.
    let catalog = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--catalog=lake=rest+http://{}", catalog.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in catalog.incoming() {
            std::thread::sleep(std::time::Duration::from_millis(1500));
            let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            connection.unwrap().write_all(answer.as_bytes()).unwrap();
        }
    });
    let arguments = [flag.as_str(), "expire-snapshots", "lake.db.t", "--dry-run"];
    let shown = on_a_terminal(&arguments);
    let (display, error) = shown.rsplit_once("\u{1b}[2K").unwrap_or_else(|| panic!("{shown:?}"));
    assert!(display.contains(" loading · expire_snapshots lake.db.t"), "{shown:?}");
    assert!(error.contains("Error: ") && !error.contains("loading"), "{shown:?}");

    let quiet = on_a_terminal(&[&arguments[..], &["--quiet"]].concat());
    assert!(quiet.starts_with("Error: ") && quiet.lines().count() == 1, "{quiet:?}");
    let piped = tool(&arguments);
    assert!(stderr(&piped).starts_with("Error: ") && stderr(&piped).lines().count() == 1, "{}", stderr(&piped));
}

#[test]
fn a_script_stops_at_its_first_error() {
    let script = "SELECT 1 AS a; -- ; \nSELECT ';' AS b;\nSELECT nothing;\nSELECT 3 AS c";
    let output = tool_with(&["-q", "--format", "nd-json"], script);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "{\"a\":1}\n{\"b\":\";\"}\n");

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let from_file = tool(&["-q", "--format", "nd-json", "-f", file.path().to_str().unwrap()]);
    assert_eq!((from_file.status.code(), stdout(&from_file)), (Some(2), stdout(&output)));
}

#[test]
fn an_inventory_in_a_file_stands_for_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let written = table(&root.join("t"));
    // What was written after the list was made stays.
    let made = chrono::Utc::now() - chrono::TimeDelta::days(5);
    let (bucket, old) = (root.display(), made.format("%Y-%m-%dT%H:%M:%SZ"));
    let rows = ["b", "c", "orphan"].map(|name| format!("{bucket},t/data/{name}.parquet,4,{old}\n")).concat();
    std::fs::write(root.join("inventory.csv"), rows).unwrap();
    let sql = format!(
        "CREATE EXTERNAL TABLE inventory (\"bucket\" VARCHAR, \"key\" VARCHAR, size BIGINT, last_modified_date TIMESTAMP)
           STORED AS CSV LOCATION '{}' OPTIONS ('format.has_header' 'false');
         CREATE VIEW listed AS SELECT \"bucket\" || '/' || \"key\" AS path, size, last_modified_date FROM inventory;
         CALL system.remove_orphan_files(table => '{}', file_list => 'listed')",
        root.join("inventory.csv").display(),
        root.join("t").display()
    );
    let before = written.files_on_disk().unwrap();
    let rows = json(&tool(&["-q", "--format", "json", "-c", &sql]));
    assert_eq!((metric(&rows, "scanned_files_count"), metric(&rows, "deleted_files_count")), (3, 1));
    let left = written.files_on_disk().unwrap();
    assert_eq!(before.difference(&left).collect::<Vec<_>>(), ["data/orphan.parquet"]);
}

#[test]
fn without_yes_and_without_a_terminal_nothing_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let written = table(folder.path());
    let before = written.files_on_disk().unwrap();
    for operation in ["expire-snapshots", "remove-orphan-files"] {
        let output = tool_with(&[operation, folder.path().to_str().unwrap()], "y\n");
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--yes") && stderr(&output).contains("--dry-run"), "{}", stderr(&output));
    }
    assert_eq!(written.files_on_disk().unwrap(), before);
}

/// The tool as on a terminal, with this answer typed. Python makes the terminal.
fn tool_on_a_terminal(arguments: &[&str], answer: &str) -> Output {
    let program = "import os, pty, sys
def typed(_):
    return os.read(0, 1024)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], stdin_read=typed)))";
    let mut command = Command::new(python());
    command.args(["-c", program, env!("CARGO_BIN_EXE_iceberg-maintenance")]).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn one_question_is_asked_for_all_tables_of_a_catalog() {
    if !python_has(&["pty"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tables = ["db/one", "db/two"].map(|name| table(&folder.path().join(name)));
    let catalog = format!("lake={}", folder.path().display());
    let call = ["--catalog", &catalog, "maintain-catalog", "lake", "--retention-threshold", "5d"];
    let before = tables.each_ref().map(|table| table.files_on_disk().unwrap());
    let left = || tables.each_ref().map(|table| table.files_on_disk().unwrap());
    let without_terminal = tool_with(&call, "y\n");
    assert_eq!(without_terminal.status.code(), Some(2));
    assert!(stderr(&without_terminal).contains("--yes"), "{}", stderr(&without_terminal));
    let at_once = tool_on_a_terminal(&[&call[..], &["--concurrency", "2"]].concat(), "y\n");
    assert!(stdout(&at_once).contains("leave --concurrency out"), "{}", stdout(&at_once));
    for answer in ["n\n", "\n"] {
        let output = tool_on_a_terminal(&call, answer);
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert_eq!(stdout(&output).matches("[y/N]").count(), 1, "{}", stdout(&output));
        assert!(stdout(&output).contains("not confirmed; nothing was changed"), "{}", stdout(&output));
    }
    assert_eq!(left(), before);
    let output = tool_on_a_terminal(&call, "y\n");
    assert!(output.status.success(), "{}", stdout(&output));
    assert_eq!(stdout(&output).matches("[y/N]").count(), 1, "{}", stdout(&output));
    for files in left() {
        assert!(!files.contains("data/a.parquet") && !files.contains("data/orphan.parquet"), "{files:?}");
        assert!(files.contains("data/b.parquet") && files.contains("data/c.parquet"), "{files:?}");
    }
    let again = tool_on_a_terminal(&call, "");
    assert!(again.status.success() && stdout(&again).contains("There is nothing to do."), "{}", stdout(&again));
}

#[test]
fn subcommands_do_what_the_statements_do() {
    let folder = tempfile::tempdir().unwrap();
    let written = table(folder.path());
    let path = written.folder.to_str().unwrap();
    let before = written.files_on_disk().unwrap();
    let json_of = |arguments: &[&str]| json(&tool(&[arguments, &["-q", "--format", "json"]].concat()));

    let planned = json_of(&["expire-snapshots", path, "--older-than", "5d", "--dry-run"]);
    assert_eq!((metric(&planned, "deleted_snapshots_count"), metric(&planned, "dry_run")), (2, 1));
    let kept = json_of(&["expire-snapshots", path, "--retain-last", "3", "--dry-run"]);
    assert_eq!(metric(&kept, "deleted_snapshots_count"), 0);
    let one = json_of(&["expire-snapshots", path, "--snapshot-ids", "1", "--dry-run", "--output", "snapshots"]);
    let expired = one.as_array().unwrap().iter().filter(|row| row["decision"] == "expire");
    assert_eq!(expired.map(|row| row["snapshot_id"].as_i64().unwrap()).collect::<Vec<_>>(), [1]);
    assert_eq!(written.files_on_disk().unwrap(), before);

    let orphans = json_of(&["remove-orphan-files", path, "--older-than", "5d", "--yes", "--output", "files"]);
    let deleted: Vec<_> = orphans.as_array().unwrap().iter().filter(|row| row["status"] == "deleted").collect();
    assert_eq!(deleted.len(), 1);
    assert!(deleted[0]["file_path"].as_str().unwrap().ends_with("data/orphan.parquet"));
    let done = json_of(&["expire-snapshots", path, "--older-than", "5d", "--yes"]);
    assert_eq!((metric(&done, "deleted_snapshots_count"), metric(&done, "dry_run")), (2, 0));
}

#[test]
fn a_folder_with_a_quote_in_its_name_is_no_way_into_the_statement() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("it's', dry_run => false --");
    let written = table(&odd);
    let before = written.files_on_disk().unwrap();
    let output = tool(&["expire-snapshots", odd.to_str().unwrap(), "--dry-run", "-q", "--format", "json"]);
    assert_eq!(metric(&json(&output), "deleted_snapshots_count"), 2);
    assert_eq!(written.files_on_disk().unwrap(), before);
}

/// Runs the tool as somebody who may do everything in the table's folder but delete data files.
#[cfg(unix)]
pub(crate) fn tool_without_rights(written: &Written, arguments: &[&str]) -> Output {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65_534;
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let data = written.folder.join("data");
    // The build's own folder may be closed to others.
    let bin = tempfile::tempdir().unwrap();
    mode(bin.path(), 0o755);
    let (built, tool) = (Path::new(env!("CARGO_BIN_EXE_iceberg-maintenance")), bin.path().join("iceberg-maintenance"));
    std::fs::hard_link(built, &tool).or_else(|_| std::fs::copy(built, &tool).map(drop)).unwrap();
    let mut command = Command::new(&tool);
    command.args(arguments);
    mode(&data, 0o555);
    // Who may do everything is not stopped by permissions, but may become somebody else.
    if std::fs::write(data.join("probe"), "").is_ok() {
        std::fs::remove_file(data.join("probe")).unwrap();
        mode(&written.folder, 0o755);
        for folder in [&written.folder, &written.folder.join("metadata")] {
            chown(folder, Some(NOBODY), None).unwrap();
        }
        command.uid(NOBODY);
    }
    let output = command.output().unwrap();
    mode(&data, 0o755);
    output
}

#[cfg(unix)]
#[test]
fn failed_deletes_exit_with_1_whatever_is_selected() {
    for (shape, rows) in [("metrics", false), ("files", true)] {
        let folder = tempfile::tempdir().unwrap();
        let written = table(folder.path());
        let location = written.folder.to_str().unwrap();
        let output = tool_without_rights(&written, &["expire-snapshots", location, "--yes", "--output", shape]);
        assert_eq!(output.status.code(), Some(1), "{shape}: {}", stderr(&output));
        assert!(stderr(&output).contains("could not be deleted; the commit is done"), "{}", stderr(&output));
        assert_eq!(stdout(&output).contains("| failed "), rows, "{shape}: {}", stdout(&output));
    }
    for select in ["file_path", "count(*)"] {
        let folder = tempfile::tempdir().unwrap();
        let written = table(folder.path());
        let sql = format!("SELECT {select} FROM expire_snapshots('{}', output => 'files')", written.folder.display());
        let output = tool_without_rights(&written, &["-c", &sql, "-c", "SELECT 'after'"]);
        assert_eq!(output.status.code(), Some(1), "{select}: {}", stderr(&output));
        assert!(stderr(&output).contains("could not be deleted; the commit is done"), "{}", stderr(&output));
        assert!(!stdout(&output).contains("after"), "a script stops at its first error");
    }
}

#[test]
fn a_vacuum_that_fails_half_way_says_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let written = table(folder.path());
    std::fs::remove_file(written.folder.join("data/c.parquet")).unwrap();
    let output = tool(&["-c", &format!("VACUUM TABLE \"{}\"", written.folder.display())]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let done = "Error: expire_snapshots was completed before remove_orphan_files failed: ";
    assert!(stderr(&output).contains(done) && stderr(&output).contains("c.parquet"), "{}", stderr(&output));
}

#[test]
fn notes_go_to_stderr_unless_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let written = table(folder.path());
    let location = written.folder.display();
    let call = format!("CALL system.expire_snapshots(table => '{location}', snapshot_ids => [1], dry_run => true)");
    let output = tool(&["-c", &call]);
    assert!(stderr(&output).contains("Note: snapshot_ids expires exactly these"), "{}", stderr(&output));
    assert_eq!(stderr(&tool(&["-q", "-c", &call])), "");
}

#[test]
fn an_error_is_printed_without_the_engines_wrapping() {
    let output = tool(&["-c", "SELECT * FROM expire_snapshots('/t') UNION ALL SELECT 'x', 1"]);
    assert!(
        stderr(&output).starts_with("Error: a maintenance call that changes something can't be"),
        "{}",
        stderr(&output)
    );
    let output = tool(&["-c", "CREATE TABLE x AS SELECT * FROM expire_snapshots('/t') LIMIT 0"]);
    assert!(stderr(&output).starts_with("Error: the query excludes all rows"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn scripts_may_begin_with_a_byte_order_mark_or_a_comment_and_end_with_quit() {
    let csv = ["-q", "--format", "csv"];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "\u{feff}SELECT 1 AS a;\nquit;\nSELECT nothing").unwrap();
    let from_file = tool(&[&csv[..], &["-f", file.path().to_str().unwrap()]].concat());
    assert_eq!((from_file.status.code(), stdout(&from_file)), (Some(0), "a\n1\n"), "{}", stderr(&from_file));
    for quit in ["quit", "EXIT;", "\\q"] {
        let output = tool_with(&csv, &format!("SELECT 1 AS a;\n{quit}\nSELECT nothing;"));
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), "a\n1\n"), "{quit}: {}", stderr(&output));
    }
    let output = tool(&[&csv[..], &["-c", "-- note\nSELECT 1 AS a"]].concat());
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "a\n1\n"), "{}", stderr(&output));
}

#[test]
fn a_deep_expression_does_not_end_the_process() {
    let sum = vec!["1"; 2000].join("+");
    let output = tool(&["-q", "--format", "csv", "-c", &format!("SELECT {sum} AS a")]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "a\n2000\n"), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_statement_and_the_printing_of_rows() {
    let endless = "SELECT count(*) FROM generate_series(1, 100000000000)";
    let large = "SELECT * FROM generate_series(1, 300000)";
    for (statement, seconds) in [(endless, 2), (large, 4)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"))
            .args(["--format", "csv", "-c", "SELECT 1 AS first", "-c", statement])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Nobody reads the rows: the large result fills the pipe and waits there.
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        assert!(child.try_wait().unwrap().is_none(), "{statement} is still running");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            if std::time::Instant::now() > deadline {
                child.kill().unwrap();
                panic!("{statement} goes on after Ctrl-C");
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{statement}: {}", stderr(&output));
        assert!(!stderr(&output).contains("done"), "{}", stderr(&output));
    }
}

#[test]
fn the_demo_runs_leaves_foreign_folders_alone_and_can_be_repeated() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("demo");
    for _ in 0..2 {
        let output = tool(&["demo", "--run", folder.to_str().unwrap(), "--format", "csv"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let (said, rows) = (stderr(&output), stdout(&output));
        assert_eq!(said.matches("dry_run => true").count(), 4 + 1, "two operations on two tables, and a hint: {said}");
        assert!(rows.contains("deleted_snapshots_count,") && rows.contains("deleted_files_count,"), "{rows}");
    }
    let left = |path: &str| folder.join(path).exists();
    assert!(!left("orders/data/failed-write-1.parquet") && left("orders/data/being-written-now.parquet"));
    assert!(!left("clicks/data/killed-job-1.parquet") && !left("clicks/data/batch-2.parquet"));

    std::fs::write(parent.path().join("mine"), "x").unwrap();
    let refused = tool(&["demo", parent.path().to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("isn't empty"), "{}", stderr(&refused));
}

#[test]
fn a_reader_that_goes_away_ends_the_output_not_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let written = table(folder.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"))
        .args(["expire-snapshots", written.folder.to_str().unwrap(), "--yes", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert!(!written.files_on_disk().unwrap().contains("data/a.parquet"));
}

#[test]
fn help_names_every_flag_and_the_version_is_the_crates() {
    let help = tool(&["expire-snapshots", "--help"]);
    for flag in ["--older-than", "--expire-before", "--retention-threshold", "--retain-last", "--snapshot-ids"] {
        assert!(stdout(&help).contains(flag), "{flag}");
    }
    assert!(stdout(&tool(&["--help"])).contains("Examples:"));
    assert_eq!(stdout(&tool(&["--version"])), format!("iceberg-maintenance {}\n", env!("CARGO_PKG_VERSION")));
}
