//! Family F: statistics, deletion vectors, formats, encryption.

use std::collections::BTreeSet;
use std::io::Write;

use iceberg_maintenance::fixtures::{
    Compression, ContentFile, Fault, History, MetadataNaming, Statistics, Table, VersionHint,
};
use serde_json::{Value, json};

use crate::case::{Case, Left, days_ago, history, in_ten_days};
use crate::place::Place;
use crate::support::{Session, literal};
use crate::watched::Kind;

/// Both procedures, with everything but the head to expire.
const BOTH: [&str; 2] = [
    "CALL system.expire_snapshots(table => {table}, older_than => now(){dry_run})",
    "CALL system.remove_orphan_files(table => {table}{dry_run})",
];

/// Snapshot 1 with `a` expires, 2 with `b` stays.
fn replaced(format_version: i64) -> History {
    let mut history = history(format_version);
    history.append(days_ago(30), ["a"]);
    history.overwrite(days_ago(20), ["a"], ["b"]);
    history
}

/// What goes with snapshot 1.
const DEAD: [&str; 3] = ["a", "list 1", "manifest 1.0"];

/// [`DEAD`] and more.
fn dead_and<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&DEAD[..], more].concat()
}

#[tokio::test]
async fn b116_statistics_stay_when_orphans_go_and_go_with_their_snapshot() {
    for format_version in [1, 2, 3] {
        let mut history = replaced(format_version);
        let (old, of_partitions) = (history.statistics(1), history.partition_statistics(1));
        history.statistics(2);
        history.partition_statistics(2);
        for (snapshot_id, path) in [(1, "stats/1.puffin"), (2, "stats/2.puffin"), (2, "data/2-b.stats")] {
            history.table_mut().statistics.push(Statistics { snapshot_id, path: path.into() });
        }
        for path in ["metadata/o.stats", "stats/o.puffin"] {
            history.table_mut().stray(path, days_ago(50));
        }
        let table = history.build();
        let orphans = ["metadata/o.stats", "stats/o.puffin"];
        Case::of(table.clone()).orphans("").run().await.assert_gone(&orphans);
        let outcome = Case::of(table).expire("").run().await;
        let gone = dead_and(&[&old, &of_partitions, "stats/1.puffin"]);
        outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &gone });
        outcome.assert_metrics(&[("deleted_statistics_files_count", 3), ("deleted_data_files_count", 1)]);
        assert_eq!(outcome.table.numbers("statistics", "snapshot-id"), [2, 2, 2]);
        assert_eq!(outcome.table.numbers("partition-statistics", "snapshot-id"), [2]);
    }
}

#[tokio::test]
async fn b116_statistics_of_a_snapshot_that_is_gone_stay_as_long_as_they_are_named() {
    // Another tool expired snapshot 1 and left its entries.
    let mut history = replaced(2);
    history.forget(days_ago(10), &[1]);
    let mut table = history.build();
    table.extra.insert("statistics".into(), Value::Null);
    let build = move |root: &str| {
        let mut table = table.clone();
        table.statistics.push(Statistics { snapshot_id: 1, path: "metadata/1.stats".into() });
        let entry = json!({
            "snapshot-id": 1, "statistics-path": format!("{root}/t/metadata/1.stats"), "file-size-in-bytes": 9,
            "file-footer-size-in-bytes": 9, "blob-metadata": [],
        });
        table.extra.insert("statistics".into(), json!([entry]));
        table
    };
    let left_by_the_other = ["a", "list 1", "manifest 1.0"];
    Case::at(build.clone()).orphans("").run().await.assert_gone(&left_by_the_other);
    let outcome = Case::at(build).expire("").run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &[] });
}

#[tokio::test]
async fn b116_a_file_that_statistics_of_two_snapshots_name_goes_with_the_last() {
    let mut history = replaced(2);
    history.append(days_ago(1), ["c"]);
    for snapshot_id in [1, 3] {
        history.table_mut().statistics.push(Statistics { snapshot_id, path: "metadata/shared.stats".into() });
    }
    history.table_mut().partition_statistics.push(Statistics { snapshot_id: 2, path: "metadata/2.parquet".into() });
    history.table_mut().statistics.push(Statistics { snapshot_id: 2, path: "metadata/2.parquet".into() });
    let outcome = Case::of(history.build()).expire("").run().await;
    let gone = dead_and(&["list 2", "metadata/2.parquet", "manifest 2.1"]);
    outcome.assert(Left { snapshots: &[3], refs: &["main"], gone: &gone });
    outcome.assert_metrics(&[("deleted_statistics_files_count", 1)]);
}

/// What a second ANALYZE and dropped statistics leave behind.
const FORMER_STATISTICS: [&str; 5] = [
    "metadata/1-former.stats",
    "metadata/2-former.puffin",
    "metadata/20260101_120000_00001_abcde-f0a1.stats",
    "metadata/partition-stats-2-0a1b2c3d-0000-4000-8000-000000000000.parquet",
    "metadata/partition-stats-1-0a1b2c3d-0000-4000-8000-000000000000.avro",
];

#[tokio::test]
async fn b119_statistics_that_others_replaced_are_orphans_after_the_age_limit() {
    let mut history = replaced(2);
    history.statistics(2);
    history.partition_statistics(2);
    for path in FORMER_STATISTICS {
        history.table_mut().stray(path, days_ago(50));
    }
    history.table_mut().stray("metadata/2-young.stats", days_ago(1));
    let outcome = Case::of(history.build()).orphans("").run().await;
    outcome.assert_gone(&FORMER_STATISTICS);
    outcome.assert_metrics(&[
        ("deleted_statistics_files_count", 5),
        ("deleted_files_count", 5),
        ("skipped_too_young_count", 1),
    ]);
}

#[tokio::test]
async fn b119_two_statistics_of_one_snapshot_that_are_both_named_stay_together_and_go_together() {
    let table = || {
        let mut history = replaced(2);
        for snapshot_id in [1, 2] {
            for analyze in ["first", "second"] {
                let path = format!("metadata/{snapshot_id}-{analyze}.stats");
                history.table_mut().statistics.push(Statistics { snapshot_id, path });
            }
        }
        history.build()
    };
    Case::of(table()).orphans("").run().await.assert_gone(&[]);
    let outcome = Case::of(table()).expire("").run().await;
    let gone = dead_and(&["metadata/1-first.stats", "metadata/1-second.stats"]);
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &gone });
}

/// A statistics entry with all that the spec knows, and more.
fn statistics_entry(root: &str, snapshot_id: i64) -> Value {
    json!({
        "x-first": 1.50, "snapshot-id": snapshot_id, "statistics-path": format!("{root}/t/metadata/{snapshot_id}.stats"),
        "file-size-in-bytes": 100, "file-footer-size-in-bytes": 42, "key-metadata": "AAEC",
        "blob-metadata": [{
            "type": "apache-datasketches-theta-v1", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1],
            "properties": {"ndv": "3"}, "x-unknown": [u64::MAX],
        }],
        "x-unknown": {"of": [null, {}]},
    })
}

#[tokio::test]
async fn b120_entries_of_retained_snapshots_and_unknown_fields_come_through_letter_by_letter() {
    let build = |root: &str| {
        let mut table = replaced(2).build();
        for snapshot_id in [1, 2] {
            let path = format!("metadata/{snapshot_id}.stats");
            table.statistics.push(Statistics { snapshot_id, path: path.clone() });
            table
                .partition_statistics
                .push(Statistics { snapshot_id, path: format!("metadata/{snapshot_id}.parquet") });
        }
        let entries = [2, 1].map(|snapshot_id| statistics_entry(root, snapshot_id));
        table.extra.insert("statistics".into(), json!(entries));
        table.extra.insert("materialized-from".into(), json!([{"of-a-later-version": 9_007_199_254_740_993_i64}]));
        table
    };
    let outcome = Case::at(build).expire("").run().await;
    let gone = dead_and(&["metadata/1.parquet", "metadata/1.stats"]);
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &gone });
    let entry = statistics_entry(&outcome.place.root(), 2);
    assert_eq!(outcome.table.list("statistics"), [entry]);
    assert_eq!(outcome.table.metadata["refs"]["main"]["x-unknown"], outcome.table.metadata["x-unknown"]);
    assert_eq!(outcome.table.metadata["schemas"][0]["x-unknown"], outcome.table.metadata["x-unknown"]);
    Case::at(build).orphans("").run().await.assert_gone(&[]);
}

#[tokio::test]
async fn b120_schemas_that_stay_keep_what_nobody_knows() {
    let mut table = replaced(2).build();
    let unused = iceberg_maintenance::fixtures::Schema::new(7, &[(1, "id", "long")]);
    table.schemas.insert(0, unused);
    let outcome = Case::of(table).expire("clean_expired_metadata => true").run().await;
    outcome.assert_metrics(&[("removed_schemas_count", 1)]);
    assert_eq!(outcome.table.metadata["schemas"][0]["x-unknown"], outcome.table.metadata["x-unknown"]);
}

#[tokio::test]
async fn b122_a_table_with_statistics_can_be_expired_whatever_the_entry_has() {
    let mut smallest = replaced(2);
    let path = smallest.statistics(1);
    let outcome = Case::of(smallest.build()).expire("").run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &dead_and(&[&path]) });

    // Only the two fields that matter; fields that are null; lists that are empty, null or absent.
    for more in [json!({}), json!({"blob-metadata": null, "key-metadata": null, "file-size-in-bytes": null})] {
        let build = move |root: &str| {
            let mut table = replaced(2).build();
            for snapshot_id in [1, 2] {
                table.statistics.push(Statistics { snapshot_id, path: format!("metadata/{snapshot_id}.stats") });
            }
            let entry = |snapshot_id: i64| {
                let path = format!("{root}/t/metadata/{snapshot_id}.stats");
                let mut entry = json!({"snapshot-id": snapshot_id, "statistics-path": path});
                entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                entry
            };
            table.extra.insert("statistics".into(), json!([entry(1), entry(2)]));
            table
        };
        Case::at(build.clone()).orphans("").run().await.assert_gone(&[]);
        Case::at(build).expire("").run().await.assert_gone(&dead_and(&["metadata/1.stats"]));
    }
    for list in ["statistics", "partition-statistics"] {
        for value in [Some(json!([])), Some(Value::Null), None] {
            let mut table = replaced(2).build();
            match value {
                Some(value) => _ = table.extra.insert(list.into(), value),
                None => _ = table.omit.insert(list.into()),
            }
            Case::of(table).expire("").run().await.assert_gone(&DEAD);
        }
    }
}

#[tokio::test]
async fn b122_statistics_that_name_no_file_stop_both_procedures() {
    for list in ["statistics", "partition-statistics"] {
        for entry in [json!({"snapshot-id": 1}), json!({"statistics-path": "/x"}), json!("x"), json!(7)] {
            for call in BOTH {
                let mut table = replaced(2).build();
                table.extra.insert(list.into(), json!([entry]));
                let error = Case::of(table).statement(call).refused().await;
                assert!(error.contains("metadata.json"), "{entry}: {error}");
            }
        }
    }
}

/// Data, position deletes, equality deletes and, in v3, a deletion vector; all of them go with the snapshots before the last.
fn all_kinds(format_version: i64) -> History {
    let mut history = history(format_version);
    history.append(days_ago(60), ["a", "a2"]);
    history.append(
        days_ago(50),
        [ContentFile::data("c"), ContentFile::position_deletes("p", "a"), ContentFile::equality_deletes("e")],
    );
    history.equality_deletes(days_ago(45), "e2");
    let mut dead = vec!["a", "c", "p", "e", "e2"];
    if format_version == 3 {
        history.deletion_vectors(days_ago(40), "v", &[("a", &[1]), ("a2", &[2])]);
        dead.push("a2");
    }
    history.replace_files(days_ago(20), dead, ["b"]);
    history
}

#[tokio::test]
async fn b124_delete_manifests_are_read_and_their_files_counted_by_what_they_are() {
    for (format_version, data, vectors) in [(2, 2, 0), (3, 3, 1)] {
        let outcome = Case::of(all_kinds(format_version).build()).expire("").run().await;
        let head = if format_version == 2 { 4 } else { 5 };
        assert_eq!(outcome.snapshots, [head].into());
        outcome.assert_metrics(&[
            ("deleted_data_files_count", data),
            ("deleted_position_delete_files_count", 1 + vectors),
            ("deleted_dv_files_count", vectors),
            ("deleted_equality_delete_files_count", 2),
            ("deleted_manifest_lists_count", head - 1),
        ]);
        // All of them are live as long as a snapshot has them.
        let mut kept = all_kinds(format_version);
        kept.tag("keep", head - 1);
        kept.table_mut().stray("data/o.parquet", days_ago(50));
        Case::of(kept.build()).orphans("").run().await.assert_gone(&["o"]);
        let mut kept = all_kinds(format_version);
        kept.tag("keep", head - 1);
        let outcome = Case::of(kept.build()).expire("").run().await;
        assert!(outcome.gone.iter().all(|name| name.starts_with("list ")), "{:?}", outcome.gone);
    }
}

#[tokio::test]
async fn b124_one_manifest_may_hold_position_and_equality_deletes() {
    let mut history = history(2);
    history.append(days_ago(50), ["a"]);
    let deletes = [ContentFile::position_deletes("p", "a"), ContentFile::equality_deletes("e")];
    history.append(days_ago(40), deletes);
    history.replace_files(days_ago(20), ["p"], ContentFile::deletion_vectors("none", &[]));
    let outcome = Case::of(history.build()).expire("").run().await;
    assert!(outcome.gone.contains("p") && !outcome.gone.contains("e"), "{:?}", outcome.gone);
    outcome.assert_metrics(&[
        ("deleted_position_delete_files_count", 1),
        ("deleted_equality_delete_files_count", 0),
        ("deleted_data_files_count", 0),
    ]);
}

const COMPRESSIONS: [Compression; 3] = [Compression::GzipInfix, Compression::GzipSuffix, Compression::GzipUnnamed];

#[tokio::test]
async fn b126_gzip_metadata_of_every_naming_is_read_and_the_whole_log_stays() {
    for naming in [MetadataNaming::Hadoop, MetadataNaming::Catalog] {
        for compression in COMPRESSIONS {
            for codec in [None, Some("gzip")] {
                let table = || {
                    let mut table = replaced(2).build();
                    (table.naming, table.compression) = (naming, compression);
                    if let Some(codec) = codec {
                        table.property("write.metadata.compression-codec", codec);
                    }
                    table.stray("metadata/o-m0.avro", days_ago(50));
                    table
                };
                Case::of(table()).orphans("no_catalog => true").run().await.assert_gone(&["metadata/o-m0.avro"]);
                let outcome = Case::of(table()).expire("no_catalog => true").run().await;
                outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &DEAD });
                let is_gzip = outcome.table.metadata_path.ends_with(".gz.metadata.json");
                assert_eq!(is_gzip, codec.is_some(), "{}", outcome.table.metadata_path);
                // What it wrote and what was there before make one table.
                let session = Session::new(Some(crate::case::NOW_MS));
                let table = literal(&outcome.place.table());
                let call = format!("CALL system.remove_orphan_files(table => {table}, no_catalog => true)");
                let metrics = session.metrics(&call).await.unwrap();
                assert_eq!((metrics["deleted_files_count"], metrics["deleted_metadata_files_count"]), (1, 0));
            }
        }
    }
}

#[tokio::test]
async fn b126_gzip_metadata_in_an_object_store_is_read_too() {
    for compression in COMPRESSIONS {
        let mut table = replaced(2).build();
        table.compression = compression;
        let case = Case::of(table.clone()).in_store().now(in_ten_days()).beside("t/data/o.parquet", "x");
        case.orphans("").run().await.assert_gone(&["o"]);
        let outcome = Case::of(table).in_store().expire("").run().await;
        outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &DEAD });
    }
}

#[tokio::test]
async fn b126_gzip_metadata_that_falls_out_of_the_log_goes_as_metadata() {
    for compression in COMPRESSIONS {
        let mut table = replaced(2).build();
        table.compression = compression;
        table.property("write.metadata.delete-after-commit.enabled", "true");
        table.property("write.metadata.previous-versions-max", "1");
        let outcome = Case::of(table).expire("").run().await;
        assert_eq!(outcome.gone.iter().filter(|name| name.starts_with('v') || name.contains("/v")).count(), 2);
        outcome.assert_metrics(&[("deleted_metadata_files_count", 2), ("deleted_files_count", 5)]);
    }
}

/// Puts these bytes in place of a metadata file, with the time it had.
fn rewritten(name: &'static str, content: impl Fn(Vec<u8>) -> Vec<u8> + 'static) -> impl Fn(&Place) {
    move |place| {
        let path = place.path().join("t/metadata").join(name);
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, content(std::fs::read(&path).unwrap())).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }
}

/// Gives the newest metadata file another name.
fn renamed(name: &'static str) -> impl Fn(&Place) {
    move |place| {
        let folder = place.path().join("t/metadata");
        std::fs::rename(folder.join("v3.metadata.json"), folder.join(name)).unwrap();
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn b126_the_content_counts_and_not_the_name() {
    let table = || {
        let mut table = replaced(2).build();
        table.stray("data/o.parquet", days_ago(50));
        table
    };
    // Two members, as some writers make them; plain text under a name that says gzip.
    let in_two_parts = |bytes: Vec<u8>| [gzip(&bytes[..100]), gzip(&bytes[100..])].concat();
    let case = || Case::of(table()).prepared_by(rewritten("v3.metadata.json", in_two_parts));
    case().orphans("").run().await.assert_gone(&["o"]);
    case().expire("").run().await.assert_gone(&DEAD);
    Case::of(table()).prepared_by(renamed("v3.gz.metadata.json")).orphans("").run().await.assert_gone(&["o"]);
    Case::of(table()).prepared_by(renamed("v3.gz.metadata.json")).expire("").run().await.assert_gone(&DEAD);
    let case = || {
        let case = Case::of(table()).prepared_by(rewritten("v3.metadata.json", |bytes| gzip(&bytes)));
        case.prepared_by(renamed("v3.gzip.metadata.json"))
    };
    case().orphans("").run().await.assert_gone(&["o"]);
    case().expire("").run().await.assert_gone(&DEAD);
}

#[tokio::test]
async fn b126_newest_metadata_that_can_not_be_read_is_refused_by_name_whatever_codec_its_name_has() {
    let cut = |bytes: Vec<u8>| gzip(&bytes)[..200].to_vec();
    let with_rest = |bytes: Vec<u8>| [gzip(&bytes), b"{}".to_vec()].concat();
    let in_zstd = |bytes: Vec<u8>| zstd::encode_all(&bytes[..], 1).unwrap();
    let cases = [
        ("v3.metadata.json", cut as fn(Vec<u8>) -> Vec<u8>),
        ("v3.gz.metadata.json", with_rest),
        ("v3.gzip.metadata.json", cut),
        ("v3.zst.metadata.json", in_zstd),
        ("v3.zstd.metadata.json", in_zstd),
        ("v3.deflate.metadata.json", cut),
        ("v3.br.metadata.json", in_zstd),
        ("v3.metadata.json.zst", in_zstd),
        ("v3.metadata.json.gz", in_zstd),
    ];
    for (name, content) in cases {
        for call in BOTH {
            // Older metadata is there and whole, and no hint says that there is newer.
            let mut table = replaced(2).build();
            table.version_hint = VersionHint::Absent;
            table.stray("data/o.parquet", days_ago(50));
            let case = Case::of(table).prepared_by(rewritten("v3.metadata.json", content));
            let error = case.prepared_by(renamed(name)).statement(call).refused().await;
            assert!(error.contains(name), "{error}");
        }
    }
}

#[tokio::test]
async fn b128_a_log_with_gaps_is_no_error_and_metadata_outside_of_the_log_is_counted_on_its_own() {
    // 140 versions before the newest: 40 that no log names any more, and 100 in the log, of which 60 are gone.
    let mut history = history(2);
    history.previous_versions(1000);
    for number in 0..140 {
        history.append(days_ago(90) + number, [ContentFile::data("a")].into_iter().take(usize::from(number == 0)));
    }
    let mut table = history.build();
    table.versions.iter_mut().take(40).for_each(|version| version.logged = false);
    for number in 41..=100 {
        table.fault(&format!("metadata/v{number}.metadata.json"), Fault::Missing);
    }
    let orphans: Vec<_> = (1..=40).map(|number| format!("v{number}")).collect();
    let orphans: Vec<_> = orphans.iter().map(String::as_str).collect();
    let outcome = Case::of(table).orphans("").run().await;
    outcome.assert_gone(&orphans);
    outcome.assert_metrics(&[
        ("deleted_metadata_files_count", 40),
        ("deleted_files_count", 40),
        ("dangling_references_count", 0),
    ]);
}

/// Orphans in every folder of a table's.
const EVERYWHERE: [&str; 6] = [
    "metadata/o-m0.avro",
    "metadata/v0.metadata.json.tmp",
    "metadata/deep/er/o.avro",
    "metadata2/o.avro",
    "data/metadata/o.avro",
    "data/o.parquet",
];

#[tokio::test]
async fn b130_a_search_of_metadata_lists_nothing_else_and_says_so() {
    for location in ["metadata", "{root}/t/metadata", "./metadata//"] {
        let mut case = Case::of(replaced(2).build()).in_store().now(in_ten_days());
        for path in EVERYWHERE {
            case = case.beside(&format!("t/{path}"), "x");
        }
        // Many files that a listing of the table would have to go through.
        for number in 0..50 {
            case = case.beside(&format!("t/data/p={number}/o.parquet"), "x");
        }
        let case = case.just_before_the_call(|place| drop(place.watched().take_requests()));
        let outcome = case.orphans(&format!("location => '{location}'")).run().await;
        outcome.assert_gone(&EVERYWHERE[..3]);
        let requests = outcome.place.watched().take_requests();
        let listed: BTreeSet<_> = requests.iter().filter(|(kind, _)| *kind == Kind::List).map(|(_, key)| key).collect();
        assert!(listed.iter().all(|key| key.starts_with("wh/t/metadata") && !key.contains("metadata2")), "{listed:?}");
        assert!(outcome.notice("searched").contains("s3://bucket/wh/t/metadata"), "{:?}", outcome.notices);
    }
    let mut table = replaced(2).build();
    for path in EVERYWHERE {
        table.stray(path, days_ago(50));
    }
    let outcome = Case::of(table).orphans("location => 'metadata'").run().await;
    outcome.assert_gone(&EVERYWHERE[..3]);
    outcome.assert_metrics(&[("scanned_files_count", 3 + 4 + 5)]);
    outcome.notice("/t/metadata");
}

#[tokio::test]
async fn b130_a_search_of_the_whole_table_says_nothing_of_a_scope() {
    for location in ["", "location => '{root}/t'", "location => '{root}/t/'"] {
        let outcome = Case::of(replaced(2).build()).orphans(location).run().await;
        assert!(!outcome.notices.iter().any(|notice| notice.contains("searched")), "{:?}", outcome.notices);
    }
}

/// What an encrypted stream begins with (Iceberg's AES GCM Stream).
fn encrypted() -> Fault {
    Fault::Bytes(b"AGS1\0\0\x10\0and what nobody can read".to_vec())
}

/// The manifest lists and manifests of a snapshot.
fn structure_of(table: &Table, id: i64) -> Vec<String> {
    let snapshot = table.snapshot(id).unwrap();
    snapshot.manifest_list.iter().chain(&snapshot.manifests).cloned().collect()
}

#[tokio::test]
async fn b131_what_is_needed_and_encrypted_stops_both_procedures_by_name() {
    let table = |path: &str, bytes: Fault, has_key: bool| {
        let mut table = all_kinds(3).build();
        table.property("encryption.key-id", "k1");
        if let Some(manifest) = table.manifests.get_mut(path).filter(|_| has_key) {
            manifest.key_metadata = Some(b"key".to_vec());
        }
        if has_key {
            table.snapshot_mut(5).unwrap().extra.insert("key-id".into(), json!("k1"));
        }
        table.fault(path, bytes);
        table
    };
    for path in structure_of(&all_kinds(3).build(), 5) {
        for call in BOTH {
            let error = Case::of(table(&path, encrypted(), false)).statement(call).refused().await;
            assert!(error.contains("encrypted") && error.contains(&path), "{error}");
            // Of another scheme: what there is a key for and is no Avro file.
            let noise = Fault::Bytes((0..=255).collect());
            let error = Case::of(table(&path, noise.clone(), true)).statement(call).refused().await;
            assert!(error.contains("encrypted") && error.contains(&path), "{error}");
            // Nothing says that it is encrypted, but it can't be read.
            let error = Case::of(table(&path, noise, false)).statement(call).refused().await;
            assert!(error.contains(&path), "{error}");
        }
    }
}

#[tokio::test]
async fn b131_encrypted_manifests_of_deletes_stop_both_procedures_too() {
    let mut history = replaced(2);
    history.position_deletes(days_ago(10), "p", "b");
    let mut table = history.build();
    let deletes = table.manifests.iter().find(|(_, manifest)| manifest.deletes).unwrap().0.clone();
    table.fault(&deletes, encrypted());
    for call in BOTH {
        let error = Case::of(table.clone()).statement(call).refused().await;
        assert!(error.contains("encrypted") && error.contains(&deletes), "{error}");
    }
}

#[tokio::test]
async fn b131_where_only_manifest_lists_expire_no_manifest_is_needed() {
    let mut history = history(2);
    history.append(days_ago(30), ["a"]);
    history.append(days_ago(20), ["b"]);
    let mut table = history.build();
    let manifests = table.snapshot(2).unwrap().manifests.clone();
    manifests.iter().for_each(|path| _ = table.fault(path, encrypted()));
    Case::of(table.clone()).expire("").run().await.assert_gone(&["list 1"]);
    assert!(Case::of(table).orphans("").refused().await.contains("encrypted"));
}

#[tokio::test]
async fn b131_encrypted_metadata_stops_both_procedures_by_name() {
    for call in BOTH {
        let mut table = replaced(2).build();
        table.fault("metadata/v3.metadata.json", encrypted());
        let error = Case::of(table).statement(call).refused().await;
        assert!(error.contains("v3.metadata.json"), "{error}");
    }
}

#[tokio::test]
async fn b131_what_only_an_expired_snapshot_needs_is_skipped_and_takes_nothing_along() {
    let table = || {
        let mut table = replaced(2).build();
        for path in structure_of(&table, 1) {
            table.fault(&path, encrypted());
        }
        table
    };
    let outcome = Case::of(table()).expire("").run().await;
    // Its manifests are unknown, so they and what they name stay, for the removal of orphans.
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &["list 1"] });
    outcome.assert_metrics(&[("skipped_missing_metadata_count", 1)]);
    assert!(Case::of(table()).orphans("").refused().await.contains("encrypted"));
}

#[tokio::test]
async fn b131_a_key_alone_is_no_reason_to_refuse_what_can_be_read() {
    let table = || {
        let mut table = replaced(3).build();
        table.property("encryption.key-id", "k1");
        table.extra.insert("encryption-keys".into(), json!([{"key-id": "k1", "encrypted-key-metadata": "AAEC"}]));
        table.manifests.values_mut().for_each(|manifest| manifest.key_metadata = Some(b"key".to_vec()));
        table.snapshots.iter_mut().for_each(|snapshot| _ = snapshot.extra.insert("key-id".into(), json!("k1")));
        table.stray("data/o.parquet", days_ago(50));
        table
    };
    Case::of(table()).expire("").run().await.assert_gone(&DEAD);
    Case::of(table()).orphans("").run().await.assert_gone(&["o"]);
}
