//! Statistics, schemas and partition specs.

use iceberg_maintenance::fixtures::{PartitionField, PartitionSpec, Schema, Statistics};

use super::*;

const CLEAN: &str = ", clean_expired_metadata => true";

/// From now on files are written in schema 1, and in spec 1.
fn evolve(table: &mut Table) {
    evolve_schema(table, 1);
    evolve_spec(table);
}

fn evolve_schema(table: &mut Table, id: i32) {
    let fields = [(1, "id", "long"), (2, "name", "string"), (3, "amount", "double"), (4, "region", "int")];
    table.schemas.push(Schema::new(id, &fields));
    table.current_schema_id = id;
}

fn evolve_spec(table: &mut Table) {
    let region = PartitionField { id: 1000, name: "region".into(), source_id: 4, transform: "identity".into() };
    table.partition_specs.push(PartitionSpec { id: 1, fields: vec![region] });
    table.default_spec_id = 1;
}

/// Fails unless these schemas and specs are left.
#[track_caller]
fn left(outcome: &Outcome, schemas: &[i64], specs: &[i64]) {
    assert_eq!(outcome.after.numbers("schemas", "schema-id"), schemas, "schemas");
    assert_eq!(outcome.after.numbers("partition-specs", "spec-id"), specs, "specs");
}

#[tokio::test]
async fn statistics_go_with_their_snapshot_unless_another_entry_names_the_file() {
    for kind in ["statistics", "partition-statistics"] {
        for reused in [false, true] {
            let mut history = appends(2, &["a", "b"]);
            let add = |history: &mut History, id| match kind {
                "statistics" => history.statistics(id),
                _ => history.partition_statistics(id),
            };
            let first = add(&mut history, 1);
            if reused {
                let table = history.table_mut();
                let entries =
                    if kind == "statistics" { &mut table.statistics } else { &mut table.partition_statistics };
                entries.push(Statistics { snapshot_id: 2, path: first.clone() });
            } else {
                add(&mut history, 2);
            }
            let outcome = Place::new(history.build()).expire(&all()).await;
            assert_eq!(outcome.after.numbers(kind, "snapshot-id"), [2], "{kind}, reused: {reused}");
            match reused {
                true => outcome.is(&[2], "L1", [0, 0, 0, 0, 1, 0]),
                false => outcome.is(&[2], &format!("L1 {first}"), [0, 0, 0, 0, 1, 1]),
            };
        }
    }
}

#[tokio::test]
async fn a_spec_that_only_expired_manifests_have_goes_on_request() {
    let mut history = appends(2, &["a"]);
    history.delete_files(day(2), ["a"]);
    evolve(history.table_mut());
    history.append(day(3), ["b"]);
    let table = history.build();
    let (gone, counts) = ("a M1 M2 L1 L2", [1, 0, 0, 2, 2, 0]);
    let kept = Place::new(table.clone()).expire(&all()).await.is(&[3], gone, counts);
    left(&kept, &[0, 1], &[0, 1]);
    let cleaned = Place::new(table).expire(&(all() + CLEAN)).await.is(&[3], gone, counts);
    left(&cleaned, &[1], &[1]);
}

#[tokio::test]
async fn the_default_spec_and_specs_of_live_manifests_stay() {
    let mut history = appends(2, &["a", "b"]);
    evolve(history.table_mut());
    let outcome = Place::new(history.build()).expire(&(all() + CLEAN)).await.is(&[2], "L1", [0, 0, 0, 0, 1, 0]);
    left(&outcome, &[0, 1], &[0, 1]);
}

#[tokio::test]
async fn schemas_of_expired_snapshots_go_on_request() {
    let mut history = appends(2, &["a"]);
    evolve_schema(history.table_mut(), 1);
    history.append(day(2), ["b"]);
    evolve_schema(history.table_mut(), 2);
    history.append(day(3), ["c"]);
    let table = history.build();
    let kept = Place::new(table.clone()).expire(&all()).await.is(&[3], "L1 L2", [0, 0, 0, 0, 2, 0]);
    left(&kept, &[0, 1, 2], &[0]);
    let cleaned = Place::new(table).expire(&(all() + CLEAN)).await.is(&[3], "L1 L2", [0, 0, 0, 0, 2, 0]);
    left(&cleaned, &[2], &[0]);
    assert_eq!(cleaned.metrics["removed_schemas_count"], 2);
}

#[tokio::test]
async fn where_nothing_is_unused_nothing_is_removed() {
    let outcome = Place::new(appends(2, &["a", "b"]).build()).expire(&(all() + CLEAN)).await;
    left(&outcome, &[0], &[0]);
    let removed = ["removed_schemas_count", "removed_partition_specs_count"].map(|name| outcome.metrics[name]);
    assert_eq!(removed, [0, 0]);
    outcome.is(&[2], "L1", [0, 0, 0, 0, 1, 0]);

    let empty = Place::new(table(2));
    let before = empty.disk();
    empty.expire(CLEAN).await.did_nothing(&[]);
    unchanged("a run with nothing to do", &before, &empty.disk()).unwrap();
}

#[tokio::test]
async fn a_table_without_snapshots_loses_unused_schemas_and_specs_too() {
    let mut empty = table(2);
    evolve_schema(&mut empty, 1);
    evolve_schema(&mut empty, 2);
    evolve_spec(&mut empty);
    let outcome = Place::new(empty).expire(CLEAN).await.is(&[], "", [0; 6]);
    left(&outcome, &[2], &[1]);
}
