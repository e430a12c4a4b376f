//! Catalogs in real databases: SQLite always, PostgreSQL where the environment names one.

use std::collections::BTreeMap;

use sqlx::AssertSqlSafe;

use super::super::pointer::testing::{TableOnDisk, without_the_oldest_snapshot};
use super::*;
use crate::catalog::Ownership;

const TABLES_V0: &str = "CREATE TABLE iceberg_tables (catalog_name VARCHAR(255) NOT NULL, \
    table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), \
    previous_metadata_location VARCHAR(1000), PRIMARY KEY (catalog_name, table_namespace, table_name))";
const ADD_TYPE: &str = "ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)";
const NAMESPACES: &str = "CREATE TABLE iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, \
    namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000), \
    PRIMARY KEY (catalog_name, namespace, property_key))";

/// Iceberg Java's first tables, its later ones, and PyIceberg's (whose rows may have no type).
const LAYOUTS: [&[&str]; 3] = [&[TABLES_V0], &[TABLES_V0, ADD_TYPE, NAMESPACES], &[TABLES_V0, NAMESPACES]];
const V1: &[&str] = LAYOUTS[1];

/// Names the database server that the tests may make schemas in.
const POSTGRES_VARIABLE: &str = "ICEBERG_MAINTENANCE_POSTGRES";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
}

/// The databases to test with.
fn kinds() -> Vec<Kind> {
    let postgres = std::env::var_os(POSTGRES_VARIABLE).is_some();
    assert!(
        postgres || std::env::var_os("CI").is_none(),
        "set {POSTGRES_VARIABLE} to the address of a PostgreSQL server"
    );
    if postgres { vec![Kind::Sqlite, Kind::Postgres] } else { vec![Kind::Sqlite] }
}

/// A database with the table `ns.inner.t` of catalog `lake`.
struct Scene {
    table: TableOnDisk,
    uri: String,
    catalog: SqlCatalog,
    connection: Connection,
}

impl Scene {
    async fn new(kind: Kind, layout: &[&'static str]) -> Self {
        let table = TableOnDisk::new();
        let uri = match kind {
            Kind::Sqlite => {
                let file = table.warehouse.path().join("catalog.db");
                std::fs::File::create_new(&file).unwrap();
                format!("sqlite:///{}?timeout=0.3", file.display())
            }
            Kind::Postgres => new_schema().await,
        };
        let catalog = catalog(&uri, &[]);
        let mut connection = catalog.database.connect().await.unwrap();
        for statement in layout {
            connection.execute(statement, &[]).await.unwrap();
        }
        let mut scene = Self { table, uri, catalog, connection };
        let pointer = scene.table.pointer.clone();
        scene.insert("lake", "ns.inner", "t", &pointer).await;
        scene
    }

    async fn insert(&mut self, catalog: &str, namespace: &str, name: &str, pointer: &str) {
        let sql = "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) \
                   VALUES ($1, $2, $3, $4)";
        assert_eq!(self.connection.execute(sql, &[catalog, namespace, name, pointer]).await.unwrap(), 1);
    }

    /// Somebody else's commit.
    async fn point_at(&mut self, pointer: &str) {
        let sql = "UPDATE iceberg_tables SET metadata_location = $1 WHERE table_name = 't'";
        assert_eq!(self.connection.execute(sql, &[pointer]).await.unwrap(), 1);
    }

    /// All rows, with pointer and previous pointer.
    async fn rows(&mut self) -> Vec<Vec<Option<String>>> {
        let sql = "SELECT catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location \
                   FROM iceberg_tables ORDER BY 1, 2, 3";
        self.connection.rows(sql, &[]).await.unwrap()
    }

    async fn load(&self) -> LoadedTable {
        self.catalog.load(&name("ns.inner.t"), &self.table.runtime).await.unwrap()
    }

    async fn load_error(&self, table: &str) -> String {
        self.catalog.load(&name(table), &self.table.runtime).await.unwrap_err().to_string()
    }

    async fn commit(&self, base: &LoadedTable) -> Result<CommitOutcome> {
        let commit = without_the_oldest_snapshot(base);
        self.catalog.commit(&name("ns.inner.t"), base, &commit, &self.table.runtime).await
    }

    async fn settle(&self, new: &str, failed: SwapError) -> String {
        let (table, base) = (name("ns.inner.t"), &self.table.pointer);
        match self.catalog.settle(&table, base, new, failed, &self.table.runtime).await {
            Ok(outcome) => format!("{outcome:?}"),
            Err(error) => error.to_string(),
        }
    }
}

/// A schema of its own on the PostgreSQL server.
async fn new_schema() -> String {
    let server = std::env::var(POSTGRES_VARIABLE).unwrap();
    let schema = format!("t{}", uuid::Uuid::new_v4().simple());
    let database = Database::parse(&server, None, None).unwrap();
    let Connection::Postgres(mut connection) = database.connect().await.unwrap() else { panic!("{database}") };
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&mut connection).await.unwrap();
    let separator = if server.contains('?') { '&' } else { '?' };
    format!("{server}{separator}currentSchema={schema}")
}

fn catalog(uri: &str, properties: &[(&str, &str)]) -> SqlCatalog {
    let mut properties: BTreeMap<String, String> =
        properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    properties.insert("uri".into(), uri.into());
    SqlCatalog::new("lake", &properties).unwrap()
}

fn name(text: &str) -> TableName {
    let mut namespace: Vec<String> = text.split('.').map(String::from).collect();
    let name = namespace.pop().unwrap();
    TableName { namespace, name }
}

fn lost() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other("connection lost"))
}

#[tokio::test]
async fn a_commit_swaps_the_pointer_in_every_layout() {
    for kind in kinds() {
        for layout in LAYOUTS {
            let mut scene = Scene::new(kind, layout).await;
            let elsewhere = "s3://b/other.metadata.json";
            scene.insert("lake", "ns", "t", elsewhere).await;
            scene.insert("other", "ns.inner", "t", elsewhere).await;
            let base = scene.load().await;
            assert_eq!((base.version.as_str(), &base.ownership), (scene.table.pointer.as_str(), &Ownership::Ours));
            let expected = without_the_oldest_snapshot(&base).new_metadata;

            let CommitOutcome::Committed { metadata_location: new, notices } = scene.commit(&base).await.unwrap()
            else {
                panic!("not committed")
            };
            assert!(notices.is_empty() && scene.table.metadata(&new).has_json(&expected));
            let row = |catalog: &str, namespace: &str, pointer: &str, previous: Option<&str>| {
                let texts = [Some(catalog), Some(namespace), Some("t"), Some(pointer), previous];
                texts.map(|text| text.map(String::from)).to_vec()
            };
            let base_pointer = scene.table.pointer.clone();
            let rows = [
                row("lake", "ns", elsewhere, None),
                row("lake", "ns.inner", &new, Some(&base_pointer)),
                row("other", "ns.inner", elsewhere, None),
            ];
            assert_eq!(scene.rows().await, rows, "{kind:?}");
            let loaded = scene.load().await;
            assert_eq!((loaded.version.as_str(), loaded.metadata.snapshots().len()), (new.as_str(), 2));
            let (table, runtime) = (name("ns.inner.t"), &scene.table.runtime);
            assert!(scene.catalog.is_current(&table, &loaded, runtime).await.unwrap());
            assert!(!scene.catalog.is_current(&table, &base, runtime).await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_race_that_is_lost_leaves_no_file() {
    for kind in kinds() {
        let mut scene = Scene::new(kind, V1).await;
        let base = scene.load().await;
        let theirs = scene.table.commit_elsewhere("00009-theirs.metadata.json", &scene.table.pointer);
        scene.point_at(&theirs).await;
        let (files, rows) = (scene.table.metadata_files(), scene.rows().await);
        let outcome = scene.commit(&base).await.unwrap();
        assert!(matches!(&outcome, CommitOutcome::Conflict(why) if why.contains("00009-theirs")), "{outcome:?}");
        assert_eq!((scene.table.metadata_files(), scene.rows().await), (files, rows));
    }
}

#[tokio::test]
async fn a_pointer_that_moved_meanwhile_is_not_swapped() {
    for kind in kinds() {
        for layout in LAYOUTS {
            let mut scene = Scene::new(kind, layout).await;
            let key = Key { catalog: "lake", namespace: "ns.inner", name: "t" };
            let before = scene.rows().await;
            let Session { mut connection, version } = scene.catalog.open().await.unwrap();
            assert_eq!(tables::swap(&mut connection, version, key, "s3://old", "s3://new").await.unwrap(), 0);
            assert_eq!(scene.rows().await, before);
        }
    }
}

#[tokio::test]
async fn of_many_writers_one_wins() {
    for kind in kinds() {
        let mut scene = Scene::new(kind, V1).await;
        let base = scene.load().await;
        let outcomes = futures::future::join_all((0..5).map(|_| scene.commit(&base))).await;
        let won: Vec<&str> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Ok(CommitOutcome::Committed { metadata_location, .. }) => Some(metadata_location.as_str()),
                _ => None,
            })
            .collect();
        let lost = outcomes.iter().filter(|outcome| matches!(outcome, Ok(CommitOutcome::Conflict(_)))).count();
        assert_eq!((won.len(), lost), (1, 4), "{outcomes:?}");
        assert_eq!(scene.rows().await[0][3].as_deref(), Some(won[0]));
    }
}

/// In SQLite's rollback journal a reader keeps a writer from committing, after its UPDATE was taken.
#[tokio::test]
async fn a_commit_that_a_reader_holds_up_is_not_reported_as_done() {
    let mut scene = Scene::new(Kind::Sqlite, V1).await;
    let base = scene.load().await;
    let before = scene.rows().await;
    scene.connection.execute("BEGIN", &[]).await.unwrap();
    scene.connection.rows("SELECT metadata_location FROM iceberg_tables", &[]).await.unwrap();

    let error = scene.commit(&base).await.unwrap_err().to_string();
    assert!(error.contains("nothing was changed") && error.contains("database is locked"), "{error}");
    scene.connection.execute("COMMIT", &[]).await.unwrap();
    assert_eq!(scene.rows().await, before);
    assert!(matches!(scene.commit(&base).await.unwrap(), CommitOutcome::Committed { .. }));
}

/// With a write-ahead log readers hold nobody up.
#[tokio::test]
async fn a_commit_beside_a_reader_of_a_write_ahead_log_is_done() {
    let mut scene = Scene::new(Kind::Sqlite, V1).await;
    scene.connection.rows("PRAGMA journal_mode = WAL", &[]).await.unwrap();
    let base = scene.load().await;
    scene.connection.execute("BEGIN", &[]).await.unwrap();
    let before = scene.rows().await;

    let CommitOutcome::Committed { metadata_location, .. } = scene.commit(&base).await.unwrap() else {
        panic!("not committed")
    };
    assert_eq!(scene.rows().await, before, "the reader's own view");
    assert_eq!(scene.load().await.version, metadata_location);
}

#[tokio::test]
async fn a_database_that_somebody_else_writes_to_is_left_alone() {
    let mut scene = Scene::new(Kind::Sqlite, V1).await;
    let base = scene.load().await;
    scene.connection.execute("BEGIN IMMEDIATE", &[]).await.unwrap();
    let error = scene.commit(&base).await.unwrap_err().to_string();
    assert!(error.contains("nothing was changed") && error.contains("database is locked"), "{error}");
    assert_eq!(scene.load().await.version, base.version);
}

/// A trigger that is deferred lets the UPDATE pass and makes the COMMIT fail.
#[tokio::test]
async fn a_commit_that_fails_at_the_end_is_not_reported_as_done() {
    for kind in kinds().into_iter().filter(|kind| *kind == Kind::Postgres) {
        let mut scene = Scene::new(kind, V1).await;
        let base = scene.load().await;
        for statement in [
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''too late''; END'",
            "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON iceberg_tables DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION refuse()",
        ] {
            scene.connection.execute(statement, &[]).await.unwrap();
        }
        let outcome = scene.commit(&base).await.unwrap();
        assert!(matches!(&outcome, CommitOutcome::Unknown(why) if why.contains("too late")), "{outcome:?}");
        assert_eq!(scene.load().await.version, base.version);
    }
}

#[tokio::test]
async fn an_unanswered_commit_is_decided_by_the_row() {
    for kind in kinds() {
        let mut scene = Scene::new(kind, V1).await;
        let base = scene.table.pointer.clone();
        let ours = scene.table.commit_elsewhere("00002-ours.metadata.json", &base);
        let on_top = scene.table.commit_elsewhere("00003-theirs.metadata.json", &ours);
        let instead = scene.table.commit_elsewhere("00002-theirs.metadata.json", &base);
        let cut = scene.table.written.locate("metadata/00030-theirs.metadata.json");
        let without_log = serde_json::json!({"format-version": 2, "location": scene.table.written.location});
        let folder = scene.table.written.folder.join("metadata/00030-theirs.metadata.json");
        std::fs::write(folder, without_log.to_string()).unwrap();
        for (pointer, expected) in [
            (&ours, "Committed"),
            (&on_top, "Committed"),
            (&instead, "Conflict"),
            (&cut, "Unknown"),
            (&base, "Unknown"),
        ] {
            scene.point_at(pointer).await;
            let outcome = scene.settle(&ours, SwapError::CommitUnanswered(lost())).await;
            assert!(outcome.starts_with(expected), "{pointer}: {outcome}");
        }
        let certain = scene.settle(&ours, SwapError::NotCommitted(lost())).await;
        assert!(certain.contains("nothing was changed") && certain.contains("connection lost"), "{certain}");
        scene.connection.execute("DELETE FROM iceberg_tables", &[]).await.unwrap();
        let outcome = scene.settle(&ours, SwapError::CommitUnanswered(lost())).await;
        assert!(outcome.starts_with("Unknown"), "{outcome}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    for kind in kinds() {
        let mut scene = Scene::new(kind, V1).await;
        for number in 0..12 {
            scene.insert("lake", "many", &format!("t{number:02}"), "s3://b/x").await;
        }
        scene.insert("other", "ns", "u", "s3://b/x").await;
        for (table, says) in [
            ("ns.inner.u", "namespace \"ns.inner\" has t"),
            ("ns.inner.T", "namespace \"ns.inner\" has t"),
            ("many.x", "has t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and 2 more"),
            ("ns.x", "namespace \"ns\" has no tables"),
            ("n.t", "no namespace \"n\""),
            ("ns.u", "with \"other\". Set catalog-name"),
        ] {
            let error = scene.load_error(table).await;
            assert!(error.contains("was not found") && error.contains(says), "{table}: {error}");
        }
        let named = catalog(&scene.uri, &[("catalog-name", "other")]);
        assert_eq!(named.pointer(&name("ns.u")).await.unwrap(), "s3://b/x");
    }
}

#[tokio::test]
async fn a_view_is_told_from_a_table() {
    for kind in kinds() {
        let mut scene = Scene::new(kind, V1).await;
        let sql = "INSERT INTO iceberg_tables VALUES ('lake', 'ns', 'v', 's3://b/v', NULL, 'VIEW')";
        scene.connection.execute(sql, &[]).await.unwrap();
        assert_eq!(scene.load_error("ns.v").await, "catalog lake: ns.v is a view, and only tables can be maintained");
        assert!(scene.catalog.list_tables(&["ns".into()], &scene.table.runtime).await.unwrap().is_empty());
    }
}

/// The first layout of Java's tables is altered by later versions, while others use them.
#[tokio::test]
async fn tables_that_are_altered_meanwhile_are_read_as_they_are() {
    for kind in kinds() {
        let mut scene = Scene::new(kind, LAYOUTS[0]).await;
        scene.load().await;
        assert!(scene.catalog.has_types.get().is_none());
        scene.connection.execute(ADD_TYPE, &[]).await.unwrap();
        let sql = "INSERT INTO iceberg_tables VALUES ('lake', 'ns', 'v', 's3://b/v', NULL, 'VIEW')";
        scene.connection.execute(sql, &[]).await.unwrap();
        assert!(scene.load_error("ns.v").await.contains("is a view"));
        assert!(scene.catalog.has_types.get().is_some(), "asked no more");
        scene.load().await;
    }
}

#[tokio::test]
async fn namespaces_and_tables_are_listed() {
    for kind in kinds() {
        let mut scene = Scene::new(kind, V1).await;
        let sql = "INSERT INTO iceberg_namespace_properties VALUES ('lake', 'empty', 'exists', 'true')";
        scene.connection.execute(sql, &[]).await.unwrap();
        scene.insert("lake", "nsx", "t", "s3://b/x").await;
        scene.insert("other", "hidden", "t", "s3://b/x").await;
        let (catalog, runtime) = (&scene.catalog, &scene.table.runtime);
        let namespaces = |parent: &'static [&'static str]| async move {
            let parent: Vec<String> = parent.iter().map(|part| part.to_string()).collect();
            let children = catalog.list_namespaces(&parent, runtime).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(children.iter().map(|parts| parts.join(".")).collect::<Vec<_>>())
        };
        assert_eq!(namespaces(&[]).await.unwrap(), ["empty", "ns", "nsx"]);
        assert_eq!(namespaces(&["ns"]).await.unwrap(), ["ns.inner"]);
        assert!(namespaces(&["empty"]).await.unwrap().is_empty());
        assert_eq!(namespaces(&["hidden"]).await.unwrap_err(), "catalog lake: it has no namespace \"hidden\"");
        let tables = catalog.list_tables(&["ns".into(), "inner".into()], runtime).await.unwrap();
        assert_eq!(tables, [name("ns.inner.t")]);
        assert!(catalog.list_tables(&["hidden".into()], runtime).await.is_err());
    }
}

#[tokio::test]
async fn a_database_that_holds_no_catalog_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("catalog.db");
    let runtime = Arc::default();
    let uri = format!("sqlite:///{}", file.display());
    let error = catalog(&uri, &[]).load(&name("ns.t"), &runtime).await.unwrap_err().to_string();
    assert!(error.contains("catalog.db") && error.contains("No such file"), "{error}");
    assert!(!file.exists());
    std::fs::File::create_new(&file).unwrap();
    let error = catalog(&uri, &[]).load(&name("ns.t"), &runtime).await.unwrap_err().to_string();
    assert!(error.contains("has no table iceberg_tables"), "{error}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let catalog = catalog(&format!("postgresql://ice:hush@127.0.0.1:{port}/db"), &[]);
    let error = catalog.load(&name("ns.t"), &Arc::default()).await.unwrap_err().to_string();
    let place = format!("catalog lake: PostgreSQL database db at 127.0.0.1:{port} (user ice): ");
    assert!(error.starts_with(&place) && !error.contains("hush") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn metadata_that_is_missing_is_named() {
    let mut scene = Scene::new(Kind::Sqlite, V1).await;
    let gone = scene.table.written.locate("metadata/00007-gone.metadata.json");
    scene.point_at(&gone).await;
    let error = scene.load_error("ns.inner.t").await;
    assert!(error.contains(&format!("names {gone} as the current metadata of ns.inner.t")), "{error}");
}
