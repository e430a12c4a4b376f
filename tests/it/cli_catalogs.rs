//! Catalogs on the command line: by flag, by configuration file, by what PyIceberg reads.

use std::path::Path;
use std::process::{Command, Output};

use iceberg_maintenance::fixtures::{History, Table};
use iceberg_maintenance::{Clock, SystemClock};

const DAY_MS: i64 = 86_400_000;

/// A warehouse with the tables `sales.orders` and `sales.eu."my orders"`, two snapshots each, one of which is old.
fn warehouse(folder: &Path) {
    for name in ["sales/orders", "sales/eu/my orders"] {
        let now = SystemClock.now_ms();
        let mut history = History::new(Table::new(2));
        history.append(now - 30 * DAY_MS, ["a"]);
        history.append(now - DAY_MS, ["b"]);
        history.build().write(folder.join(name)).unwrap();
    }
}

/// Runs the tool in a folder, which is the user's home, too.
fn tool_in(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"));
    command.args(arguments).current_dir(folder).env_clear().env("HOME", folder).envs(variables.iter().copied());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const DRY_RUN: [&str; 6] = ["--format", "csv", "-q", "expire-snapshots", "--dry-run", "--output=snapshots"];

#[test]
fn a_catalog_is_given_by_flag_by_our_file_or_by_pyicebergs() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    warehouse(&root.join("lake"));
    let flag = format!("--catalog=lake={}", root.join("lake").display());
    let run = |table: &str, more: &[&str], variables: &[(&str, &str)]| {
        let output = tool_in(&root, &[&DRY_RUN[..], &[table], more].concat(), variables);
        (text(&output.stdout).lines().count(), text(&output.stderr).to_string())
    };
    assert_eq!(run("lake.sales.orders", &[&flag], &[]), (3, String::new()), "a header and two snapshots");
    assert_eq!(run("LAKE.sales.eu.\"my orders\"", &[&flag], &[]).0, 3);
    assert!(run("lake.sales.orders", &[], &[]).1.contains("no tables or catalogs are registered"));

    std::fs::write(root.join(".pyiceberg.yaml"), "catalog:\n  lake:\n    type: hive\n").unwrap();
    assert!(run("lake.sales.orders", &[], &[]).1.contains("Hive Metastore is not supported"));
    let variables = [
        ("PYICEBERG_CATALOG__LAKE__TYPE", "hadoop"),
        ("PYICEBERG_CATALOG__LAKE__WAREHOUSE", root.join("lake").to_str().unwrap()),
    ]
    .map(|(name, value)| (name, value.to_string()));
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(run("lake.sales.orders", &[], &variables).0, 3, "the variables come before the file");

    let file =
        format!("default-catalog = \"lake\"\n[catalog.lake]\nwarehouse = \"file://{}\"\n", root.join("lake").display());
    std::fs::write(root.join("iceberg-maintenance.toml"), file).unwrap();
    assert_eq!(run("sales.orders", &[], &[]).0, 3, "our file comes before PyIceberg's");
    let flag = "--catalog=lake=file:///no/such/warehouse";
    assert!(run("sales.orders", &[flag], &[]).1.contains("/no/such/warehouse"), "the flag comes before our file");
    std::fs::write(root.join("other.toml"), "[tables]\n\"db.t\" = \"lake/sales/orders\"\n").unwrap();
    let named = [("ICEBERG_MAINTENANCE_CONFIG", "other.toml")];
    assert_eq!(run("db.t", &[], &named).0, 3, "a relative folder is relative to its file");
    assert!(run("nothing", &[], &named).1.contains("registered are: db.t, lake"));
}

#[test]
fn the_tables_of_catalogs_are_listed_by_the_names_that_calls_take() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    warehouse(&root.join("lake"));
    let flag = format!("--catalog=lake={}", root.join("lake").display());
    for (within, expected) in [
        (&[][..], "table\nlake.sales.eu.\"\"my orders\"\"\nlake.sales.orders\n"),
        (&["lake.sales.eu"], "table\nlake.sales.eu.\"\"my orders\"\"\n"),
    ] {
        let output = tool_in(&root, &[&["--format", "csv", "-q", "tables", &flag], within].concat(), &[]);
        assert_eq!(text(&output.stdout).replace("\"lake", "lake").replace("\"\"\"\n", "\"\"\n"), expected);
    }
    let output = tool_in(&root, &["tables", "pond"], &[]);
    assert_eq!(
        text(&output.stderr),
        "Error: catalog pond: there is no catalog of this name; no tables or catalogs are registered\n"
    );
}

#[test]
fn metadata_tables_are_beside_the_tables_of_catalogs() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    warehouse(&root.join("lake"));
    let flag = format!("--catalog=Lake={}", root.join("lake").display());
    for (from, expected) in [
        ("lake.sales.\"orders$snapshots\"", "n\n2\n"),
        ("lake.\"sales.eu\".\"my orders$files\"", "n\n2\n"),
        ("iceberg_refs('lake.sales.orders')", "n\n1\n"),
    ] {
        let query = format!("SELECT count(*) AS n FROM {from}");
        let output = tool_in(&root, &["--format", "csv", "-q", &flag, "-c", &query], &[]);
        assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, ""), "{from}");
    }
}

#[test]
fn what_is_wrong_with_a_catalog_is_said_in_one_line_without_its_secrets() {
    let home = tempfile::tempdir().unwrap();
    for (catalog, says) in [
        ("lake=hive,uri=thrift://h:9083", "Hive Metastore is not supported"),
        ("lake=nessie,token=s3cret", "known are rest"),
        ("lake=rest+http://127.0.0.1:9,token=${NOT_SET}", "environment variable NOT_SET is not set"),
        ("lake=rest+http://127.0.0.1:9,token=s3cret", "127.0.0.1:9"),
        ("lake=rest+http://user:s3cret@127.0.0.1:9", "127.0.0.1:9"),
        (
            "lake=glue,glue.endpoint=http://127.0.0.1:9,glue.region=r,glue.access-key-id=k,glue.secret-access-key=s3cret",
            "127.0.0.1:9",
        ),
        ("lake=sql+sqlite:////no/such/file.db", "/no/such/file.db"),
        ("lake=sql+postgresql://user:s3cret@127.0.0.1:9/db", "127.0.0.1"),
    ] {
        let output = tool_in(home.path(), &["--catalog", catalog, "expire-snapshots", "lake.db.t", "--dry-run"], &[]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{catalog}: {error}");
        assert!(error.contains(says) && error.contains("lake") && error.lines().count() == 1, "{catalog}: {error}");
        assert!(!error.contains("s3cret"), "{catalog}: {error}");
    }
}

#[test]
fn a_catalog_is_maintained_as_a_whole_and_a_broken_table_makes_the_exit_code_1() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    let lake = root.join("lake");
    warehouse(&lake);
    let flag = format!("--catalog=lake={}", lake.display());
    let run = |arguments: &[&str]| {
        let output = tool_in(&root, &[&["maintain-catalog", "--format", "ndjson", &flag], arguments].concat(), &[]);
        let rows: Vec<serde_json::Value> =
            text(&output.stdout).lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        let rows: Vec<String> = rows
            .iter()
            .map(|row| format!("{} {} {}", row["table_name"], row["status"], row["deleted_snapshots_count"]))
            .collect();
        (rows.join("; ").replace(['"', '\\'], ""), output.status.code(), text(&output.stderr).to_string())
    };
    let (rows, code, error) = run(&["lake"]);
    assert!(rows.is_empty() && code == Some(2) && error.contains("--yes"), "{rows} {error}");
    let (rows, code, error) = run(&["lake.sales.eu", "--dry-run"]);
    assert_eq!((rows.as_str(), code), ("lake.sales.eu.my orders planned 1", Some(0)), "{error}");
    assert!(error.contains("Note: lake.sales.eu: tables: 1 planned; 1 snapshots would be expired"), "{error}");
    std::fs::create_dir_all(lake.join("sales/broken/metadata")).unwrap();
    std::fs::write(lake.join("sales/broken/metadata/v1.metadata.json"), "{").unwrap();
    let (rows, code, error) = run(&["lake", "--exclude", "sales.eu.*", "--yes"]);
    assert_eq!((rows.as_str(), code), ("lake.sales.orders done 1; lake.sales.broken failed null", Some(1)), "{error}");
    assert!(error.contains("Error: 1 of 2 tables of lake could not be maintained"), "{error}");
    let (rows, code, _) = run(&["lake", "--exclude", "sales.broken", "--yes", "--max-total-delete-count=100"]);
    assert_eq!((rows.as_str(), code), ("lake.sales.eu.my orders done 1; lake.sales.orders done 0", Some(0)));
}
