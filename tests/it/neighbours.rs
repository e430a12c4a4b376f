//! Other tables of the same catalog: whoever shares a table's files with it stops what would delete them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use iceberg_maintenance::catalog::{Catalog, CommitOutcome, FileSystemCatalog, LoadedTable, TableCommit, TableName};
use iceberg_maintenance::fixtures::{self, History};
use iceberg_maintenance::{Clock, Error, FixedClock, Maintenance};

use crate::support::{Session, disk, files, set_modified, unchanged};

pub(crate) const DAY_MS: i64 = 24 * 3600 * 1000;
pub(crate) const BEGIN_MS: i64 = 1_700_000_000_000;
pub(crate) const NOW_MS: i64 = BEGIN_MS + 60 * DAY_MS;

/// Names of folders: any number of names for one.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    folders: FileSystemCatalog,
    tables: Mutex<Vec<(TableName, String)>>,
    /// Namespaces that this user may not list.
    pub(crate) forbidden: Vec<String>,
    /// Whether it tells where each table's metadata is.
    pub(crate) tells: bool,
    pub(crate) loads: Arc<AtomicUsize>,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
}

fn name(namespace: &str, table: &str) -> TableName {
    TableName { namespace: vec![namespace.into()], name: table.into() }
}

impl Registry {
    fn folder(&self, table: &TableName) -> Result<TableName, Error> {
        let tables = self.tables.lock().unwrap();
        let found = tables.iter().find(|(name, _)| name == table);
        let not_found = || Error::TableNotFound { table: table.to_string(), why: "nobody registered it".into() };
        found.map(|(_, at)| TableName { namespace: vec![], name: at.clone() }).ok_or_else(not_found)
    }
}

#[async_trait]
impl Catalog for Registry {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable, Error> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let mut loaded = self.folders.load(&self.folder(table)?, runtime).await?;
        loaded.name = table.to_string();
        Ok(loaded)
    }

    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome, Error> {
        self.folders.commit(&self.folder(table)?, base, commit, runtime).await
    }

    async fn list_namespaces(&self, parent: &[String], _: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>, Error> {
        let tables = self.tables.lock().unwrap();
        let all: BTreeSet<Vec<String>> = tables.iter().map(|(table, _)| table.namespace.clone()).collect();
        Ok(if parent.is_empty() { all.into_iter().collect() } else { vec![] })
    }

    async fn list_tables(&self, namespace: &[String], _: &Arc<RuntimeEnv>) -> Result<Vec<TableName>, Error> {
        if namespace.iter().any(|part| self.forbidden.contains(part)) {
            return Err(Error::Catalog { catalog: "own".into(), why: "this user may not list".into() });
        }
        let tables = self.tables.lock().unwrap();
        Ok(tables.iter().map(|(table, _)| table.clone()).filter(|table| table.namespace == namespace).collect())
    }

    async fn metadata_locations(
        &self,
        namespace: &[String],
        _: &Arc<RuntimeEnv>,
    ) -> Result<Option<Vec<(TableName, String)>>, Error> {
        let tables = self.tables.lock().unwrap();
        let within = tables.iter().filter(|(table, _)| table.namespace == namespace);
        let pointers = within.map(|(table, at)| (table.clone(), format!("{at}/metadata/v4.metadata.json"))).collect();
        Ok(self.tells.then_some(pointers))
    }
}

/// A warehouse with the tables `t` and `u`, each with an expired snapshot and an orphan, and a catalog that names them.
pub(crate) struct Scene {
    _warehouse: tempfile::TempDir,
    pub(crate) root: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let warehouse = tempfile::tempdir().unwrap();
        let root = warehouse.path().canonicalize().unwrap();
        let scene = Self { _warehouse: warehouse, root };
        scene.table("t", "t", |_| {});
        scene.table("u", "u", |_| {});
        scene
    }

    pub(crate) fn location(&self, table: &str) -> String {
        format!("file:{}", self.root.join(table).display())
    }

    pub(crate) fn table(&self, folder: &str, location: &str, prepare: impl FnOnce(&mut History)) {
        let table = fixtures::Table {
            location: Some(self.location(location)),
            last_updated_ms: BEGIN_MS,
            modified_ms: Some(BEGIN_MS),
            ..fixtures::Table::new(2)
        };
        let mut history = History::new(table);
        prepare(&mut history);
        history.append(BEGIN_MS + DAY_MS, ["a"]);
        history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["b"]);
        history.table().write(self.root.join(folder)).unwrap();
        let orphan = self.root.join(folder).join("data/orphan.parquet");
        fs::write(&orphan, "x").unwrap();
        set_modified(&orphan, BEGIN_MS as u64);
    }

    pub(crate) fn session(
        &self,
        names: &[(&str, &str, &str)],
        edit: impl FnOnce(&mut Registry),
    ) -> (Session, Arc<Registry>) {
        self.session_at(Arc::new(FixedClock(NOW_MS)), names, edit)
    }

    pub(crate) fn session_at(
        &self,
        clock: Arc<dyn Clock>,
        names: &[(&str, &str, &str)],
        edit: impl FnOnce(&mut Registry),
    ) -> (Session, Arc<Registry>) {
        let named = |(namespace, table, folder): &(&str, &str, &str)| {
            (name(namespace, table), self.root.join(folder).to_str().unwrap().to_string())
        };
        let mut catalog = Registry { tables: Mutex::new(names.iter().map(named).collect()), ..Default::default() };
        edit(&mut catalog);
        let catalog = Arc::new(catalog);
        let notices = Arc::clone(&catalog.notices);
        let builder = Maintenance::builder()
            .clock(clock)
            .on_notice(move |notice| notices.lock().unwrap().push(notice.to_string()));
        (Session::with(builder.catalog("own", catalog.clone())), catalog)
    }
}

const CALLS: [&str; 2] = [
    "CALL own.system.expire_snapshots(table => 'db.t', older_than => now())",
    "CALL own.system.remove_orphan_files(table => 'db.t')",
];

/// The same call with one more argument.
fn with(call: &str, argument: &str) -> String {
    format!("{}, {argument})", call.strip_suffix(')').unwrap())
}

#[tokio::test]
async fn two_names_for_one_table_stop_what_deletes_unless_the_call_says_otherwise() {
    for tells in [false, true] {
        for call in CALLS {
            let scene = Scene::new();
            let names = [("db", "t", "t"), ("db", "u", "u"), ("old", "copy", "t")];
            let (session, _) = scene.session(&names, |catalog| catalog.tells = tells);
            let before = disk(&scene.root);
            for refused in [call.to_string(), with(call, "dry_run => true")] {
                let error = session.metrics(&refused).await.unwrap_err().to_string();
                let location = scene.location("t");
                assert!(error.contains("old.copy") && error.contains(&location), "{refused}: {error}");
                assert!(error.contains("shared_location => true"), "{error}");
                unchanged(&refused, &before, &disk(&scene.root)).unwrap();
            }
            let metrics = session.metrics(&with(call, "shared_location => true")).await.unwrap();
            assert!(metrics["deleted_files_count"] > 0, "{metrics:?}");
        }
    }
}

#[tokio::test]
async fn what_deletes_nothing_asks_nobody() {
    let scene = Scene::new();
    let names = [("db", "t", "t"), ("old", "copy", "t")];
    let (session, _) = scene.session(&names, |_| {});
    for call in [
        "CALL own.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2001-01-01')",
        "CALL own.system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '2001-01-01')",
    ] {
        assert_eq!(session.metrics(call).await.unwrap()["deleted_files_count"], 0);
    }
}

#[tokio::test]
async fn tables_beside_each_other_don_t_disturb_each_other() {
    for call in CALLS {
        let scene = Scene::new();
        let (session, catalog) = scene.session(&[("db", "t", "t"), ("db", "u", "u"), ("x", "u2", "u")], |_| {});
        let (t, others) = (files(&disk(&scene.root.join("t"))), disk(&scene.root.join("u")));
        session.metrics(call).await.unwrap();
        assert_ne!(files(&disk(&scene.root.join("t"))), t);
        unchanged(call, &others, &disk(&scene.root.join("u"))).unwrap();
        assert!(catalog.loads.load(Ordering::Relaxed) >= 3, "each other name is looked at");
    }
}

#[tokio::test]
async fn a_catalog_that_tells_where_tables_are_loads_only_those_that_may_matter() {
    let scene = Scene::new();
    let names = [("db", "t", "t"), ("db", "u", "u"), ("x", "u2", "u")];
    let mut loads = [0; 2];
    for (tells, loads) in [false, true].into_iter().zip(&mut loads) {
        let (session, catalog) = scene.session(&names, |catalog| catalog.tells = tells);
        session.metrics(&with(CALLS[0], "dry_run => true")).await.unwrap();
        *loads = catalog.loads.load(Ordering::Relaxed);
    }
    assert_eq!(loads[0], loads[1] + 2);
}

#[tokio::test]
async fn a_table_whose_data_lies_in_the_searched_folder_stops_the_search() {
    let scene = Scene::new();
    // Its metadata lies elsewhere: nothing in t's folder tells of it.
    let inside = scene.location("t/data/inside");
    scene.table("v", "v", |history| {
        history.table_mut().property("write.data.path", &inside);
    });
    for tells in [false, true] {
        let (session, _) = scene.session(&[("db", "t", "t"), ("db", "v", "v")], |catalog| catalog.tells = tells);
        let error = session.metrics(CALLS[1]).await.unwrap_err().to_string();
        assert!(error.contains("db.v") && error.contains(&inside), "{error}");
        session.metrics(&with(CALLS[0], "dry_run => true")).await.unwrap();
    }
}

#[tokio::test]
async fn who_can_t_be_asked_is_told_of_and_stops_nothing() {
    let scene = Scene::new();
    fs::create_dir_all(scene.root.join("broken/metadata")).unwrap();
    fs::write(scene.root.join("broken/metadata/v1.metadata.json"), "{").unwrap();
    let names = [("db", "t", "t"), ("db", "broken", "broken"), ("secret", "copy", "t")];
    let (session, catalog) = scene.session(&names, |catalog| catalog.forbidden = vec!["secret".into()]);
    let call = with(CALLS[1], "dry_run => true");
    let said = |what: &str| std::mem::take(&mut *catalog.notices.lock().unwrap()).join("\n").contains(what);
    assert_eq!(session.metrics(&call).await.unwrap()["deleted_files_count"], 1);
    assert!(said("this user may not list"));
    // Those of the table's own namespace come first; more are not asked for.
    session.context.sql("SET iceberg_maintenance.shared_location_lookups = 1").await.unwrap();
    assert_eq!(session.metrics(&call).await.unwrap()["deleted_files_count"], 1);
    assert!(said("1 could not be loaded, such as db.broken; those beyond the first 1 were not looked at"));
    session.context.sql("SET iceberg_maintenance.shared_location_lookups = 0").await.unwrap();
    let before = catalog.loads.load(Ordering::Relaxed);
    assert_eq!(session.metrics(&call).await.unwrap()["deleted_files_count"], 1);
    assert_eq!(catalog.loads.load(Ordering::Relaxed), before + 2, "the plan, and the look at its end");
}

#[tokio::test]
async fn what_a_run_left_stays_where_a_second_name_came_since() {
    let scene = Scene::new();
    let (session, catalog) = scene.session(&[("db", "t", "t")], |_| {});
    session.metrics(&with(CALLS[0], "deferred => '1d'")).await.unwrap();
    catalog.tables.lock().unwrap().push((name("old", "copy"), scene.root.join("t").to_str().unwrap().into()));
    let before = disk(&scene.root);
    let purge = "CALL own.system.purge_deferred_files(table => 'db.t', ignore_window => true)";
    let error = session.metrics(purge).await.unwrap_err().to_string();
    assert!(error.contains("old.copy"), "{error}");
    unchanged(purge, &before, &disk(&scene.root)).unwrap();
    // Nor does a run that has nothing else to do.
    let due = Session::with(
        Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS + 2 * DAY_MS))).catalog("own", catalog.clone()),
    );
    for call in CALLS {
        let error = due.metrics(call).await.unwrap_err().to_string();
        assert!(error.contains("old.copy"), "{call}: {error}");
    }
    unchanged("on the way", &before, &disk(&scene.root)).unwrap();
    let purged = session.metrics(&with(purge, "shared_location => true")).await.unwrap();
    assert!(purged["deleted_files_count"] > 0, "{purged:?}");
}

#[tokio::test]
async fn what_is_in_quarantine_stays_where_a_second_name_came_since() {
    let scene = Scene::new();
    let (session, catalog) = scene.session(&[("db", "t", "t")], |_| {});
    session.metrics(&with(CALLS[0], "quarantine => true")).await.unwrap();
    catalog.tables.lock().unwrap().push((name("old", "copy"), scene.root.join("t").to_str().unwrap().into()));
    let before = disk(&scene.root);
    let purge = "CALL own.system.purge_quarantined_files(table => 'db.t', older_than => now())";
    let error = session.metrics(purge).await.unwrap_err().to_string();
    assert!(error.contains("old.copy"), "{error}");
    unchanged(purge, &before, &disk(&scene.root)).unwrap();
    let purged = session.metrics(&with(purge, "shared_location => true")).await.unwrap();
    assert!(purged["deleted_files_count"] > 0, "{purged:?}");
}
