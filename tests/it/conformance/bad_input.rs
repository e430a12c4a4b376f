//! Names and settings that are wrong: one clear line each, which names the thing and holds no secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg_maintenance::catalog::{Catalog, connect};
use iceberg_maintenance::{Error, Maintenance};

use super::pair::{CatalogKind, Endpoints, Pair, StoreKind};
use super::scene::{Scene, Session, all_that_may_expire, assert_clear};
use super::tables::Tables;

const PAIRS: [(CatalogKind, StoreKind); 7] = [
    (CatalogKind::FileSystem, StoreKind::Local),
    (CatalogKind::FileSystem, StoreKind::SeaweedS3),
    (CatalogKind::Sqlite, StoreKind::Local),
    (CatalogKind::Postgres, StoreKind::Local),
    (CatalogKind::SeaweedRest, StoreKind::SeaweedS3),
    (CatalogKind::JavaRest, StoreKind::Local),
    (CatalogKind::Glue, StoreKind::MinistackS3),
];

/// What stops a call on a table of a catalog with these properties.
async fn failure(properties: &BTreeMap<String, String>, table: &str) -> Error {
    let catalog: Arc<dyn Catalog> = match connect("lake", properties) {
        Ok(catalog) => catalog,
        Err(error) => return error,
    };
    let session = Session::new(Maintenance::builder().catalog("lake", catalog), properties);
    let plan = session.maintenance.plan_expire_snapshots(table, &all_that_may_expire()).await;
    plan.map(|plan| format!("{plan:?}")).expect_err(table)
}

/// The properties of a pair with one of them replaced.
fn with(scene: &Scene, key: &str, value: &str) -> BTreeMap<String, String> {
    let mut properties = scene.properties.clone();
    properties.insert(key.into(), value.into());
    properties
}

/// A table without a snapshot, and what knows it.
async fn scene(catalog: CatalogKind, store: StoreKind) -> Option<Scene> {
    Scene::with_table(Pair { catalog, store }, Tables::create_empty).await
}

/// Where nobody listens.
async fn closed_port() -> u16 {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_table() {
    for (catalog, store) in PAIRS {
        let Some(scene) = scene(catalog, store).await else { return };
        let error = scene.failure(&format!("lake.{}.nothing", scene.namespace())).await;
        assert!(matches!(error, Error::TableNotFound { .. }), "{catalog:?}: {error}");
        assert_clear(&error, "nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_namespace() {
    for (catalog, store) in PAIRS {
        let Some(scene) = scene(catalog, store).await else { return };
        let error = scene.failure("lake.nowhere.t").await;
        assert!(matches!(error, Error::TableNotFound { .. }), "{catalog:?}: {error}");
        assert_clear(&error, "nowhere");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_catalog() {
    let Some(scene) = scene(CatalogKind::FileSystem, StoreKind::Local).await else { return };
    let error = scene.failure("pond.ns.t").await;
    assert!(matches!(error, Error::TableNotFound { .. }), "{error}");
    assert_clear(&error, "pond");
    let error = failure(&with(&scene, "type", "hive"), "lake.ns.t").await;
    assert_clear(&error, "Hive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_can_not_be_reached() {
    let closed = format!("127.0.0.1:{}", closed_port().await);
    let folder = tempfile::tempdir().unwrap();
    for (catalog, store, url) in [
        (CatalogKind::SeaweedRest, StoreKind::SeaweedS3, format!("http://{closed}")),
        (CatalogKind::Postgres, StoreKind::Local, format!("postgresql://tests@{closed}/postgres")),
        (CatalogKind::Glue, StoreKind::MinistackS3, format!("http://{closed}")),
        (CatalogKind::FileSystem, StoreKind::SeaweedS3, format!("http://{closed}")),
        (CatalogKind::FileSystem, StoreKind::Gcs, format!("http://{closed}")),
    ] {
        let at = Endpoints { catalog: &url, store: &url, folder: folder.path() };
        let error = failure(&Pair { catalog, store }.properties(at), "lake.ns.t").await;
        assert_clear(&error, &closed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials() {
    for (catalog, store, key, value, names) in [
        (CatalogKind::SeaweedRest, StoreKind::SeaweedS3, "credential", "admin:mistyped-secret", "credential"),
        (CatalogKind::S3Tables, StoreKind::SeaweedS3, "client.secret-access-key", "mistyped-secret", "403"),
        (CatalogKind::FileSystem, StoreKind::SeaweedS3, "s3.secret-access-key", "mistyped-secret", "s3://plain"),
        (CatalogKind::Sqlite, StoreKind::SeaweedS3, "s3.secret-access-key", "mistyped-secret", "s3://plain"),
    ] {
        let Some(scene) = scene(catalog, store).await else { return };
        let error = failure(&with(&scene, key, value), &scene.name()).await;
        assert_clear(&error, names);
        assert!(!error.to_string().contains("mistyped-secret"), "{error}");
    }
    // Anybody on this machine may connect to the tests' PostgreSQL, but not as somebody whom it doesn't know.
    let Some(scene) = scene(CatalogKind::Postgres, StoreKind::Local).await else { return };
    let stranger = scene.properties["uri"].replace("tests@", "stranger:mistyped-secret@");
    let error = failure(&with(&scene, "uri", &stranger), &scene.name()).await;
    assert_clear(&error, "stranger");
    assert!(!error.to_string().contains("mistyped-secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_bucket() {
    for (store, warehouse) in [
        (StoreKind::SeaweedS3, "s3://missing-bucket/files"),
        (StoreKind::MinistackS3, "s3://missing-bucket/files"),
        (StoreKind::Gcs, "gs://missing-bucket/files"),
    ] {
        let Some(scene) = scene(CatalogKind::FileSystem, store).await else { return };
        let error = failure(&with(&scene, "warehouse", warehouse), "lake.ns.t").await;
        assert_clear(&error, "missing-bucket");
    }
}

/// Of PyIceberg's SQL catalog a view is a row that others write; of Glue any table can be one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view() {
    for catalog in [CatalogKind::Sqlite, CatalogKind::Postgres] {
        let Some(scene) = scene(catalog, StoreKind::Local).await else { return };
        let row = format!(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) \
             VALUES ('lake', '{}', 'v', 'file:///v.metadata.json', 'VIEW')",
            scene.namespace()
        );
        scene.tables.sql(&[row]);
        let error = scene.failure(&format!("lake.{}.v", scene.namespace())).await;
        assert_clear(&error, "view");
    }
    for (catalog, store) in
        [(CatalogKind::Glue, StoreKind::MinistackS3), (CatalogKind::SeaweedRest, StoreKind::SeaweedS3)]
    {
        let Some(scene) = scene(catalog, store).await else { return };
        scene.tables.create_view("v");
        let error = scene.failure(&format!("lake.{}.v", scene.namespace())).await;
        assert_clear(&error, "view");
    }
}
