//! Files that no metadata names.

use std::sync::Arc;

use iceberg_maintenance::catalog::FileSystemCatalog;
use iceberg_maintenance::fixtures::{PartitionField, PartitionSpec};
use iceberg_maintenance::{FixedClock, Maintenance};

use super::*;

/// Two appends, and old files that nobody knows.
fn with_strays(strays: &[&str]) -> Table {
    let mut table = appends(2, &["a", "b"]).build();
    for stray in strays {
        table.stray(stray, BEGIN_MS);
    }
    table
}

/// Adds the partition field as a spec of its own.
fn add_spec(table: &mut Table, id: i32, name: &str) {
    let field = PartitionField { id: 1000 + id, name: name.into(), source_id: 1, transform: "truncate[2]".into() };
    table.partition_specs.push(PartitionSpec { id, fields: vec![field] });
}

impl Place {
    /// Registers a list of files, by location and time, as `listed`.
    async fn list(&self, rows: &[(String, i64)]) {
        let row = |(path, ms): &(String, i64)| {
            format!("SELECT {} AS file_path, to_timestamp_millis({ms}) AS last_modified", literal(path))
        };
        let rows = rows.iter().map(row).collect::<Vec<_>>().join(" UNION ALL ");
        self.session.run(&format!("CREATE OR REPLACE VIEW listed AS {rows}")).await.unwrap();
    }
}

#[tokio::test]
async fn files_of_all_snapshots_stay_and_strays_anywhere_in_the_table_go() {
    let strays =
        ["data/s.parquet", "data/c2=AA/s.parquet", "data/c2=BB/c3=BBBB/s.parquet", "data/invalid/invalid/s.parquet"];
    for more in ["", ", max_concurrent_deletes => 4", ", prefix_listing => true"] {
        let mut history = history(2);
        history.append(day(1), ["data/c2=AA/c3=AAAA/a.parquet", "data/c2=BB/c3=BBBB/b.parquet"]);
        history.overwrite(day(2), ["data/c2=AA/c3=AAAA/a.parquet"], ["data/c2=AA/c3=AAAA/c.parquet"]);
        history.append(day(3), ["data/c2=AA/c3=AAAA/d.parquet"]);
        for stray in strays {
            history.table_mut().stray(stray, BEGIN_MS);
        }
        Place::new(history.build()).remove_orphans(more).await.took(&strays);
    }
}

#[tokio::test]
async fn only_strays_older_than_the_limit_go() {
    let mut table = with_strays(&[]);
    table
        .stray("data/old1", day(10))
        .stray("data/old2", day(10))
        .stray("data/young", day(30))
        .stray("data/new", NOW_MS);
    let place = Place::new(table);
    place.remove_orphans(&older_than(day(5))).await.took(&[]);
    place.remove_orphans(&older_than(day(20))).await.took(&["data/old1", "data/old2"]);
    place.remove_orphans("").await.took(&["data/young"]);
}

#[tokio::test]
async fn a_file_without_a_believable_age_stays() {
    let mut table = with_strays(&["data/s.parquet"]);
    // The epoch, seconds taken for milliseconds, and next year.
    table.stray("data/epoch", 0).stray("data/seconds", BEGIN_MS / 1000).stray("data/future", NOW_MS + 365 * DAY_MS);
    let outcome = Place::new(table).remove_orphans("").await;
    assert_eq!(outcome.metrics["skipped_unknown_age_count"], 3);
    outcome.took(&["data/s.parquet"]);
}

#[tokio::test]
async fn files_of_staged_snapshots_and_delete_files_are_no_orphans() {
    let mut staged = history(2);
    staged.stage(day(1), ["a"]);
    Place::new(staged.build()).remove_orphans("").await.took(&[]);

    for version in [2, 3] {
        let mut deletes = appends(version, &["a", "b"]);
        match version {
            2 => _ = deletes.position_deletes(day(3), "p", "a"),
            _ => _ = deletes.deletion_vectors(day(3), "p", &[("a", &[0]), ("b", &[1])]),
        }
        deletes.stage(day(4), ["c"]);
        Place::new(deletes.build()).remove_orphans("").await.took(&[]);
    }
    Place::new(table(2)).remove_orphans("").await.took(&[]);
}

#[tokio::test]
async fn data_beside_the_metadata_folder_leaves_it_alone() {
    let warehouse = tempfile::tempdir().unwrap();
    let root = warehouse.path().join("t").display().to_string();
    let mut table = table(2);
    table.property("write.data.path", &format!("file:{root}"));
    let mut history = History::new(table);
    history.append(day(1), [format!("file:{root}/a.parquet"), format!("file:{root}/p=1/b.parquet")]);
    history.table_mut().stray("s.parquet", BEGIN_MS).stray("p=1/s.parquet", BEGIN_MS);
    Place::on(warehouse, history.build()).remove_orphans("").await.took(&["p=1/s.parquet", "s.parquet"]);
}

#[tokio::test]
async fn metadata_files_that_fell_out_of_the_log_are_orphans() {
    let mut table = appends(2, &["a", "b"]).build();
    assert_eq!(table.versions.len(), 2);
    table.versions[0].logged = false;
    Place::new(table).remove_orphans("").await.took(&["metadata/v1.metadata.json"]);
}

#[tokio::test]
async fn many_partitions_hide_nothing() {
    let top: Vec<_> = (0..100).map(|n| format!("data/c1={n}/f.parquet")).collect();
    let leaves: Vec<_> = (0..100).map(|n| format!("data/c1={}/c2={n}/f.parquet", n % 3)).collect();
    for paths in [top, leaves] {
        let mut history = history(2);
        history.append(day(1), paths);
        history.table_mut().stray("data/c1=2/c2=50/s.parquet", BEGIN_MS);
        Place::new(history.build()).remove_orphans("").await.took(&["data/c1=2/c2=50/s.parquet"]);
    }
}

#[tokio::test]
async fn partitions_with_hidden_names_are_searched_and_other_hidden_folders_are_not() {
    let strays = [
        "data/_c2_trunc=AA/c3=AAAA/s1.parquet",
        "data/_c2_trunc=AA/c3=AAAA/s2.parquet",
        "data/_c2_trunc=AA/_c1=1/s.parquet",
        "data/_c1=1/s.parquet",
    ];
    let mut table = with_strays(&strays);
    add_spec(&mut table, 1, "_c2_trunc");
    add_spec(&mut table, 2, "_c1");
    table.stray("data/_c2_trunc/s.parquet", BEGIN_MS).stray("data/_c3=1/s.parquet", BEGIN_MS);
    Place::new(table).remove_orphans("").await.took(&strays);
}

#[tokio::test]
async fn a_location_without_a_scheme_is_the_listed_folder() {
    for spelling in ["", "file:", "file://"] {
        let table = Table { spelling: spelling.into(), ..with_strays(&["data/s.parquet"]) };
        let place = Place::new(table);
        place.remove_orphans("").await.took(&["data/s.parquet"]);
        assert!(place.folder().join("metadata/version-hint.text").exists());
    }
}

#[tokio::test]
async fn a_table_of_a_catalog_is_searched_by_its_name() {
    for name in ["own.db.t", "db.t", "t"] {
        let warehouse = tempfile::tempdir().unwrap();
        let root = warehouse.path().canonicalize().unwrap();
        let written = with_strays(&["data/trashfile.parquet"]).write(root.join("db/t")).unwrap();
        let catalog = Arc::new(FileSystemCatalog::with_warehouse(root.to_str().unwrap()));
        let builder = Maintenance::builder().clock(Arc::new(FixedClock(NOW_MS))).catalog("own", catalog);
        let session = Session::with(builder);
        session.run("SET datafusion.catalog.default_catalog = 'own'").await.unwrap();
        session.run("SET datafusion.catalog.default_schema = 'db'").await.unwrap();
        let before = files(&disk(&written.folder));
        let call = format!("CALL system.remove_orphan_files(table => '{name}', output => 'columns')");
        let rows = session.rows(&call).await.unwrap();
        let listed: Vec<_> = rows.iter().map(|row| row["orphan_file_location"].clone().unwrap()).collect();
        assert_eq!(listed, [format!("file:{}/data/trashfile.parquet", written.folder.display())], "{name}");
        let gone: Vec<_> = before.difference(&files(&disk(&written.folder))).cloned().collect();
        assert_eq!(gone, ["data/trashfile.parquet"], "{name}");
        assert_eq!(session.rows(&call).await.unwrap(), [], "{name}");
    }
}

#[tokio::test]
async fn only_the_named_folder_is_searched() {
    let place = Place::new(with_strays(&["data/s.parquet"]));
    place.remove_orphans(", location => 'metadata'").await.took(&[]);
    place.remove_orphans("").await.took(&["data/s.parquet"]);
}

#[tokio::test]
async fn of_a_list_of_files_old_ones_inside_the_table_count() {
    let mut table = with_strays(&["data/s.parquet"]);
    table.stray("data/unlisted.parquet", BEGIN_MS);
    let place = Place::new(table);
    let beside = place.warehouse.path().join("t_backup/s.parquet");
    std::fs::create_dir_all(beside.parent().unwrap()).unwrap();
    std::fs::write(&beside, "x").unwrap();
    let list = |ms: i64| {
        let own = |file: &str| (place.written.locate(file), ms);
        [
            own("data/a.parquet"),
            own("data/b.parquet"),
            own("data/s.parquet"),
            (format!("file:{}", beside.display()), ms),
        ]
    };
    let listed = ", file_list_view => 'listed'";
    place.list(&list(NOW_MS)).await;
    place.remove_orphans(listed).await.took(&[]);
    place.list(&list(BEGIN_MS)).await;
    place.remove_orphans(listed).await.took(&["data/s.parquet"]);
    assert!(beside.exists());
}

#[tokio::test]
async fn a_list_that_shows_no_live_file_is_refused() {
    let place = Place::new(with_strays(&["data/s.parquet"]));
    place.list(&[(place.written.locate("data/s.parquet"), BEGIN_MS)]).await;
    let call = place.call("remove_orphan_files", ", file_list_view => 'listed'");
    place.is_refused(&call, "none of the 1 listed files is one of the table's 2 live files").await;
}

#[tokio::test]
async fn a_list_without_the_columns_or_with_other_types_is_refused() {
    let place = Place::new(with_strays(&["data/s.parquet"]));
    for (columns, says) in [
        ("'x' AS location, now() AS last_modified", "file_path"),
        ("1 AS file_path, now() AS last_modified", "Invalid file_path column"),
        ("'x' AS file_path, 'today' AS last_modified", "Invalid last_modified column"),
    ] {
        place.session.run(&format!("CREATE OR REPLACE VIEW listed AS SELECT {columns}")).await.unwrap();
        place.is_refused(&place.call("remove_orphan_files", ", file_list_view => 'listed'"), says).await;
    }
}

#[tokio::test]
async fn registered_statistics_stay_and_others_are_orphans() {
    for kind in ["statistics", "partition-statistics"] {
        let mut history = appends(2, &["a"]);
        let path = if kind == "statistics" { history.statistics(1) } else { history.partition_statistics(1) };
        let mut table = history.build();
        Place::new(table.clone()).remove_orphans("").await.took(&[]);
        table.statistics.clear();
        table.partition_statistics.clear();
        table.stray(&path, BEGIN_MS);
        Place::new(table).remove_orphans("").await.took(&[&path]);
    }
}

#[tokio::test]
async fn another_scheme_or_authority_needs_to_be_declared_equal() {
    for (recorded, equal, pair) in [
        ("file1:", ", equal_schemes => MAP {'file1': 'file'}", "file1"),
        ("file://elsewhere", ", equal_authorities => MAP {'elsewhere': ''}", "elsewhere"),
    ] {
        let warehouse = tempfile::tempdir().unwrap();
        let mut history = appends(2, &["a"]);
        history.append(day(2), [format!("{recorded}{}/t/data/x.parquet", warehouse.path().display())]);
        history.table_mut().stray("data/x.parquet", BEGIN_MS);
        let place = Place::on(warehouse, history.build());
        place.is_refused(&place.call("remove_orphan_files", ""), pair).await;
        place.remove_orphans(", prefix_mismatch_mode => 'IGNORE'").await.took(&[]);
        place.remove_orphans(equal).await.took(&[]);
        // On a local disk the path leads to this very file, which no mode deletes.
        let outcome = place.remove_orphans(", prefix_mismatch_mode => 'DELETE'").await;
        assert_eq!(outcome.metrics["skipped_prefix_mismatch_count"], 1);
        outcome.took(&[]);
    }
}

#[tokio::test]
async fn streaming_leaves_out_no_row() {
    let strays: Vec<_> = (0..10).map(|n| format!("data/s{n}.parquet")).collect();
    let place = Place::new(with_strays(&strays.iter().map(String::as_str).collect::<Vec<_>>()));
    let call = place.call("remove_orphan_files", ", stream_results => true, output => 'files'");
    let statuses = place.session.statuses(&call).await;
    let expected = strays.iter().map(|file| (place.written.locate(file), "deleted".to_string()));
    assert_eq!(statuses, expected.collect());
    assert!(strays.iter().all(|file| !place.folder().join(file).exists()));
}

#[tokio::test]
async fn a_file_is_known_by_its_whole_path_not_by_its_name() {
    let strays = ["data/p=2/a.parquet", "other/a.parquet", "a.parquet"];
    Place::new(with_strays(&strays)).remove_orphans(", include_foreign => true").await.took(&[
        "a.parquet",
        "data/p=2/a.parquet",
        "other/a.parquet",
    ]);
}
