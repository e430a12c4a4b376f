//! Files outside of the table's folder, files that are missing, and files that can't be read: what the arguments that
//! permit more really permit.

use iceberg_maintenance::fixtures::Fault;

use super::*;

/// A table whose data lies in a folder beside it: `a` expires, `b` stays, and there is a stray file in both folders.
fn beside(owned: bool) -> (Place, std::path::PathBuf) {
    let warehouse = tempfile::tempdir().unwrap();
    let elsewhere = warehouse.path().join("elsewhere");
    let path = |name: &str| format!("file:{}/{name}.parquet", elsewhere.display());
    let mut table = table(2);
    if owned {
        table.property("write.data.path", &format!("file:{}", elsewhere.display()));
    }
    let mut history = History::new(table);
    history.append(day(1), [path("a"), path("b"), "own".into()]);
    history.delete_files(day(2), [path("a")]);
    let stray = elsewhere.join("s.parquet").display().to_string();
    history.table_mut().stray(&stray, BEGIN_MS).stray("data/s.parquet", BEGIN_MS);
    (Place::on(warehouse, history.build()), elsewhere)
}

fn in_folder(folder: &Path) -> Vec<String> {
    files(&disk(folder)).into_iter().collect()
}

#[tokio::test]
async fn expired_files_elsewhere_go_only_where_the_table_says_they_are_its_own() {
    let (place, elsewhere) = beside(false);
    let outcome = place.expire(&all()).await.is(&[2], "L1 M1", [0, 0, 0, 1, 1, 0]);
    assert_eq!(outcome.metrics["skipped_external_count"], 1);
    assert_eq!(in_folder(&elsewhere), ["a.parquet", "b.parquet", "s.parquet"]);

    let asked_for = ", delete_external_files => true";
    for (owned, more) in [(false, asked_for), (true, "")] {
        let (place, elsewhere) = beside(owned);
        let call = place.call("expire_snapshots", &(all() + more));
        let metrics = place.session.metrics(&call).await.unwrap();
        assert_eq!((metrics["deleted_data_files_count"], metrics["skipped_external_count"]), (1, 0));
        assert_eq!(in_folder(&elsewhere), ["b.parquet", "s.parquet"], "owned: {owned}");
    }
}

#[tokio::test]
async fn a_data_path_elsewhere_is_searched_only_when_it_is_named_and_said_to_be_exclusive() {
    let (place, elsewhere) = beside(true);
    let outcome = place.remove_orphans("").await;
    assert_eq!(outcome.metrics["unscanned_roots_count"], 1);
    outcome.took(&["data/s.parquet"]);
    let named = format!(", location => {}", literal(elsewhere.to_str().unwrap()));
    place.is_refused(&place.call("remove_orphan_files", &named), "exclusive_location").await;
    assert_eq!(in_folder(&elsewhere), ["a.parquet", "b.parquet", "s.parquet"]);
    let call = place.call("remove_orphan_files", &(named + ", exclusive_location => true"));
    assert_eq!(place.session.metrics(&call).await.unwrap()["deleted_files_count"], 1);
    assert_eq!(in_folder(&elsewhere), ["a.parquet", "b.parquet"]);

    let (foreign, elsewhere) = beside(false);
    let named = format!(", location => {}, exclusive_location => true", literal(elsewhere.to_str().unwrap()));
    foreign.is_refused(&foreign.call("remove_orphan_files", &named), "location").await;
}

#[tokio::test]
async fn a_missing_live_file_stops_the_search_until_that_is_allowed() {
    let mut table = appends(2, &["a", "b"]).build();
    table.stray("data/s.parquet", BEGIN_MS);
    let place = Place::new(table);
    std::fs::remove_file(place.folder().join("data/a.parquet")).unwrap();
    place.is_refused(&place.call("remove_orphan_files", ""), "data/a.parquet").await;
    let outcome = place.remove_orphans(", allow_missing_files => true").await;
    assert_eq!(outcome.metrics["dangling_references_count"], 1);
    outcome.took(&["data/s.parquet"]);
}

#[tokio::test]
async fn encrypted_manifests_and_lists_stop_both_procedures() {
    let table = || {
        let mut history = appends(3, &["a"]);
        history.delete_files(day(2), ["a"]);
        history.append(day(3), ["b"]);
        history.table_mut().stray("data/s.parquet", BEGIN_MS);
        history.build()
    };
    for needed in ["L3", "M3"] {
        let mut table = table();
        for file in named(&table, needed) {
            // What an encrypted stream begins with (Iceberg's AES GCM Stream).
            table.fault(&file, Fault::Bytes(b"AGS1\0\0\x10\0rest".to_vec()));
        }
        let place = Place::new(table);
        for procedure in ["expire_snapshots", "remove_orphan_files"] {
            for more in ["", ", dry_run => true"] {
                place.is_refused(&place.call(procedure, more), "encrypted").await;
            }
        }
    }
}

#[tokio::test]
async fn encryption_keys_and_unknown_fields_outlive_an_expiry() {
    let mut table = appends(3, &["a", "b"]).build();
    let keys = serde_json::json!([{"key-id": "k1", "encrypted-key-metadata": "AAEC"}, {"key-id": "k2"}]);
    table.extra.insert("encryption-keys".into(), keys.clone());
    table.extra.insert("of-a-later-version".into(), serde_json::json!({"n": 9007199254740993_i64}));
    let place = Place::new(table);
    let next_row_id = place.read().metadata["next-row-id"].clone();
    let outcome = place.expire(&all()).await.is(&[2], "L1", [0, 0, 0, 0, 1, 0]);
    assert_eq!(outcome.after.metadata["encryption-keys"], keys);
    assert_eq!(outcome.after.metadata["of-a-later-version"], serde_json::json!({"n": 9007199254740993_i64}));
    assert_eq!(outcome.after.metadata["next-row-id"], next_row_id);
}
