//! All tables of a namespace in one call, in a real catalog. What is left is judged by PyIceberg.

use std::collections::BTreeMap;
use std::fs;

use futures::StreamExt;
use iceberg_maintenance::MaintenanceSql;

use super::pair::{CatalogKind, Pair, StoreKind};
use super::scene::Scene;
use super::tables::Tables;
use crate::support::row_of;
use crate::table::plain_path;

/// A table whose metadata file is gone is told of by the server, and the tables beside it have their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_table_among_good_ones_of_a_rest_catalog() {
    let pair = Pair { catalog: CatalogKind::JavaRest, store: StoreKind::Local };
    let Some(scene) = Scene::new(pair).await else { return };
    let beside = |name: &str| Tables { name: format!("{}.{name}", scene.namespace()), ..scene.tables.clone() };
    let (other, bad) = (beside("other"), beside("bad"));
    let (other_before, bad_before) = (other.create(), bad.create());
    let [other_files, bad_files] =
        [(&other, &other_before), (&bad, &bad_before)].map(|(t, state)| t.files(&state.location));
    fs::remove_file(plain_path(&bad_before.newest_metadata)).unwrap();

    let namespace = format!("lake.{}", scene.namespace());
    let (rows, error) = maintain(&scene, &namespace, "dry_run => true, ").await;
    assert_eq!(scene.files(), scene.files_before, "{rows:?}");
    assert!(error.as_ref().is_some_and(|error| error.contains("1 of 3 tables")), "{rows:?} {error:?}");
    let (rows, error) = maintain(&scene, &namespace, "").await;
    let row = |table: &str, status: &str, snapshots: &str| {
        (format!("{namespace}.{table}"), [status, snapshots].map(String::from))
    };
    let expected = [row("t", "done", "2"), row("other", "done", "2"), row("bad", "failed", "NULL")];
    assert_eq!(rows, expected.into_iter().collect());
    let error = error.unwrap();
    assert!(error.contains("1 of 3 tables") && error.contains(&format!("{namespace}.bad")), "{error}");

    let after = scene.assert_whole(&scene.before.ids, &scene.before.refs);
    assert_eq!(after.snapshots, scene.before.snapshots[2..]);
    assert_eq!(scene.gone(), scene.before.needed_only_by(&scene.expiring()));
    let other_after = other.read();
    assert_eq!((other_after.snapshots.as_slice(), &other_after.ids), (&other_before.snapshots[2..], &other_before.ids));
    let gone = other_files.difference(&other.files(&other_before.location)).cloned().collect();
    assert_eq!(other_before.needed_only_by(&other_before.snapshots[..2]), gone);
    let mut untouched = bad_files;
    untouched.retain(|file| plain_path(file) != plain_path(&bad_before.newest_metadata));
    assert_eq!(bad.files(&bad_before.location), untouched);
}

/// What became of each table, and the error at the end of the rows.
async fn maintain(scene: &Scene, namespace: &str, more: &str) -> (BTreeMap<String, [String; 2]>, Option<String>) {
    let call = format!("CALL system.maintain_catalog({more}retention_threshold => '5 days', catalog => '{namespace}')");
    let frame = scene.session.context.maintenance_sql(&call).await.unwrap();
    let mut stream = frame.execute_stream().await.unwrap();
    let mut rows = BTreeMap::new();
    while let Some(batch) = stream.next().await {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return (rows, Some(error.to_string())),
        };
        for row in (0..batch.num_rows()).map(|row| row_of(&batch, row)) {
            let text = |column: &str| row[column].clone().unwrap_or_else(|| "NULL".into());
            rows.insert(text("table_name"), [text("status"), text("deleted_snapshots_count")]);
        }
    }
    (rows, None)
}
