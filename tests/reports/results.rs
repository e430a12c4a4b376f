//! Family G: results, dry runs, messages.

use std::collections::BTreeSet;

use iceberg_maintenance::fixtures::{Content, ContentFile, Fault, History, Table};

use crate::case::{Case, Check, DAY_MS, Left, NOW_MS, days_ago, history, in_ten_days, list_of};
use crate::place::Place;
use crate::support::{Row, literal, same_numbers};
use crate::watched::{Kind, Wrong};

/// Snapshots 1 and 2 expire, 3 stays; `a` went with 2, `p` is a position-delete file that went with 3.
fn three_snapshots() -> History {
    let mut history = history(2);
    history.append(days_ago(40), ["a", "b"]);
    history.append(days_ago(30), [ContentFile::position_deletes("p", "b")]);
    history.overwrite(days_ago(20), ["a", "b", "p"], ["c"]);
    history
}

fn with_orphans(count: usize) -> Table {
    let mut table = three_snapshots().build();
    (0..count).for_each(|number| _ = table.stray(&format!("data/o{number}.parquet"), days_ago(50)));
    table
}

/// A case in a store with orphans that are old by its clock.
fn in_store_with_orphans(count: usize) -> Case {
    let case = Case::of(three_snapshots().build()).in_store().now(in_ten_days());
    (0..count).fold(case, |case, number| case.beside(&format!("t/data/o{number}.parquet"), "x"))
}

fn text(row: &Row, name: &str) -> String {
    row[name].clone().unwrap()
}

#[tokio::test]
async fn b132_no_form_of_a_dry_run_writes_or_deletes_anything() {
    let (place, session) = in_store_with_orphans(3).in_place().await;
    let table = literal(&place.table());
    let quoted = format!("\"{}\"", place.table());
    let mut statements = vec![
        format!("VACUUM {quoted} DRY RUN"),
        format!("ALTER TABLE {quoted} EXECUTE expire_snapshots(dry_run = 1)"),
        format!("ALTER TABLE {quoted} EXECUTE remove_orphan_files(dry_run = 1)"),
    ];
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
        for output in ["metrics", "columns", "files"] {
            statements
                .push(format!("CALL system.{procedure}(table => {table}, dry_run => true, output => '{output}')"));
            statements.push(format!("SELECT * FROM {procedure}({table}, dry_run => true, output => '{output}')"));
        }
        statements.push(format!("SELECT count(*) FROM {procedure}({table}, dry_run => true) LIMIT 1"));
        for explain in ["EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN VERBOSE"] {
            statements.push(format!("{explain} CALL system.{procedure}(table => {table})"));
        }
    }
    statements.push(format!("CALL system.expire_snapshots(table => {table}, dry_run => true, output => 'snapshots')"));
    let before = place.look().await;
    for statement in statements {
        place.watched().take_requests();
        let rows = session.rows(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        assert!(!rows.is_empty(), "{statement}");
        let requests = place.watched().take_requests();
        let is_write = |kind: &Kind| [Kind::Put, Kind::Delete, Kind::Other].contains(kind);
        assert!(!requests.iter().any(|(kind, _)| is_write(kind)), "{statement}: {requests:?}");
    }
    crate::support::unchanged("the dry runs", &before, &place.look().await).unwrap();
}

#[tokio::test]
async fn b132_a_dry_run_says_of_each_file_what_the_run_then_does() {
    // Two manifests that expire name `a` and `b`, and several lists name each manifest.
    let mut history = history(2);
    history.append(days_ago(40), ["a", "b"]);
    history.append(days_ago(35), [ContentFile::position_deletes("p", "b")]);
    history.rewrite_manifests(days_ago(30));
    history.overwrite(days_ago(20), ["a", "b", "p"], ["c"]);
    let table = history.build();
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
        let case = Case::of(table.clone()).in_store().now(in_ten_days()).beside("t/data/o.parquet", "x");
        let (place, session) = case.in_place().await;
        let table = literal(&place.table());
        let call = |more: &str| format!("CALL system.{procedure}(table => {table}, output => 'files'{more})");
        let dry = session.rows(&call(", dry_run => true")).await.unwrap();
        let real = session.rows(&call("")).await.unwrap();
        let without_status = |rows: &[Row], status: &str| {
            assert!(!rows.is_empty() && rows.iter().all(|row| text(row, "status") == status), "{rows:?}");
            let mut rows = rows.to_vec();
            rows.iter_mut().for_each(|row| _ = row.remove("status"));
            rows
        };
        assert_eq!(without_status(&dry, "planned"), without_status(&real, "deleted"));
        place.assert_whole().await;
        if procedure == "expire_snapshots" {
            // Whichever list and manifest is read first.
            let snapshots: Vec<_> = dry.iter().map(|row| text(row, "snapshot_id")).collect();
            assert_eq!(snapshots[..3], ["1", "1", "2"], "of a, b and p");
        }
    }
}

#[tokio::test]
async fn b132_a_dry_run_is_possible_where_the_run_itself_is_refused() {
    // A catalog's table that is named by its location.
    let mut table = with_orphans(0);
    table.naming = iceberg_maintenance::fixtures::MetadataNaming::Catalog;
    let dry = Case::of(table.clone()).statement("CALL system.expire_snapshots(table => {table}, dry_run => true)");
    let dry = dry.without(Check::DryRun, "it is one").without(Check::Alone, "a dry run counts what it would delete");
    let outcome = dry.without(Check::SecondRun, "it says the same again").run().await;
    outcome.assert_gone(&[]);
    outcome.assert_metrics(&[("deleted_snapshots_count", 2), ("dry_run", 1)]);
    let error = Case::of(table).expire("").refused().await;
    assert!(error.contains("dry_run => true works"), "{error}");
}

/// Whatever says how a folder or a store is listed.
const WAYS_TO_LIST: [&str; 4] = ["auto", "ranges", "folders", "sequential"];

#[tokio::test]
async fn b133_a_dry_run_returns_every_orphan_however_it_is_listed() {
    let expected: BTreeSet<_> = (0..7).map(|number| format!("data/o{number}.parquet")).collect();
    for in_store in [false, true] {
        for listing in WAYS_TO_LIST {
            for more in ["", ", prefix_listing => true", ", stream_results => true", ", file_list_view => 'listed'"] {
                let files: Vec<_> = expected.iter().map(|path| format!("t/{path}")).collect();
                let mut listed: Vec<_> = files.iter().map(String::as_str).collect();
                listed.push("t/data/c.parquet");
                let case = if in_store { in_store_with_orphans(7) } else { Case::of(with_orphans(7)) };
                let case = case.set(&format!("SET iceberg_maintenance.listing = '{listing}'")).set(&list_of(&listed));
                let (place, session) = case.in_place().await;
                let before = place.look().await;
                let call = format!(
                    "CALL system.remove_orphan_files(table => {}, dry_run => true{more}",
                    literal(&place.table())
                );
                let prefix = format!("{}/", place.table());
                let paths = |rows: Vec<Row>, column: &str| {
                    assert_eq!(rows.len(), 7, "{call}");
                    let path = |row: &Row| crate::table::plain_path(&text(row, column));
                    rows.iter().map(|row| path(row).strip_prefix(&prefix).unwrap().to_string()).collect::<BTreeSet<_>>()
                };
                let rows = session.rows(&format!("{call}, output => 'files')")).await.unwrap();
                assert_eq!(paths(rows, "file_path"), expected, "{call}");
                let rows = session.rows(&format!("{call}, output => 'columns')")).await.unwrap();
                assert_eq!(paths(rows, "orphan_file_location"), expected, "{call}");
                let metrics = session.metrics(&format!("{call})")).await.unwrap();
                assert_eq!((metrics["deleted_files_count"], metrics["deleted_data_files_count"]), (7, 7), "{call}");
                crate::support::unchanged("dry runs", &before, &place.look().await).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn b133_the_columns_of_a_run_are_the_files_that_went() {
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
        let (place, session) = Case::of(with_orphans(7)).in_place().await;
        let before = crate::support::files(&place.look().await);
        let call = format!("CALL system.{procedure}(table => {}, output => 'columns')", literal(&place.table()));
        let rows = session.rows(&call).await.unwrap();
        let gone = before.difference(&crate::support::files(&place.look().await)).count();
        place.assert_whole().await;
        match procedure {
            "remove_orphan_files" => assert_eq!((rows.len(), gone), (7, 7)),
            _ => {
                assert_eq!(rows.len(), 1);
                let counted: usize =
                    rows[0].values().map(|count| count.as_ref().unwrap().parse::<usize>().unwrap()).sum();
                assert_eq!(counted, gone);
            }
        }
    }
}

/// More than a batch of rows, a bulk delete or a task of deletes has. The report has three times as many.
const MANY: usize = 10_000;

#[tokio::test]
async fn b135_every_one_of_many_orphans_is_a_row_and_their_count_is_exact() {
    let (place, session) = Case::of(with_orphans(0)).in_place().await;
    let data = place.path().join("t/data");
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_millis(days_ago(50) as u64);
    for number in 0..MANY {
        std::fs::File::create(data.join(format!("o{number}.parquet"))).unwrap().set_modified(old).unwrap();
    }
    let call = format!("CALL system.remove_orphan_files(table => {}, stream_results => true", literal(&place.table()));
    let dry = session.metrics(&format!("{call}, dry_run => true)")).await.unwrap();
    assert_eq!((dry["deleted_files_count"], dry["deleted_bytes"]), (MANY as i64, 0));
    let rows = session.rows(&format!("{call}, output => 'files')")).await.unwrap();
    let paths: BTreeSet<_> = rows.iter().map(|row| text(row, "file_path")).collect();
    assert_eq!((rows.len(), paths.len()), (MANY, MANY));
    assert!(rows.iter().all(|row| text(row, "status") == "deleted" && text(row, "content") == "DATA"));
    let left = std::fs::read_dir(&data).unwrap().count();
    assert_eq!(left, 4, "a, b, c and p");
    place.assert_whole().await;
}

/// Files of all kinds with sizes of their own; everything but the last snapshot expires.
fn of_known_sizes() -> Table {
    let sized = |file: ContentFile, size: usize| ContentFile { size, ..file };
    let mut history = history(3);
    history.append(days_ago(60), [sized(ContentFile::data("a"), 1000), sized(ContentFile::data("a2"), 2000)]);
    history.append(days_ago(50), [sized(ContentFile::position_deletes("p", "a"), 300)]);
    history.append(days_ago(45), [sized(ContentFile::equality_deletes("e"), 70)]);
    // Two vectors in one file, whose size counts once.
    history.deletion_vectors(days_ago(40), "v", &[("a", &[1]), ("a2", &[2])]);
    (1..=3).for_each(|snapshot_id| _ = history.statistics(snapshot_id));
    history.partition_statistics(2);
    history.replace_files(days_ago(20), ["a", "a2", "p", "e"], [sized(ContentFile::data("b"), 5)]);
    history.build()
}

#[tokio::test]
async fn b137_the_bytes_of_what_expires_are_counted_exactly() {
    for in_store in [false, true] {
        let case = Case::of(of_known_sizes());
        let outcome = if in_store { case.in_store() } else { case }.expire("").run().await;
        assert_eq!(outcome.snapshots, [5].into());
        outcome.assert_metrics(&[("deleted_dv_files_count", 1), ("deleted_statistics_files_count", 4)]);
        assert!(outcome.gone_bytes > 3370, "{}", outcome.gone_bytes);
        outcome.assert_metrics(&[("deleted_bytes", outcome.gone_bytes)]);
    }
    // On a local disk also those of metadata files, of which nothing says how long they are.
    let mut table = of_known_sizes();
    table.property("write.metadata.delete-after-commit.enabled", "true");
    table.property("write.metadata.previous-versions-max", "1");
    let outcome = Case::of(table).expire("").run().await;
    assert!(outcome.metrics["deleted_metadata_files_count"] > 1, "{:?}", outcome.metrics);
    outcome.assert_metrics(&[("deleted_bytes", outcome.gone_bytes)]);
}

#[tokio::test]
async fn b137_the_bytes_of_orphans_are_those_of_the_listing() {
    let mut table = three_snapshots().build();
    table.stray_with("data/o1.parquet", vec![0; 1234], days_ago(50));
    table.stray_with("metadata/o2.avro", vec![0; 70_000], days_ago(50));
    table.stray_with("data/empty.parquet", vec![], days_ago(50));
    table.stray_with("data/young.parquet", vec![0; 999], days_ago(1));
    table.stray_with("notes.txt", vec![0; 555], days_ago(50));
    let outcome = Case::of(table).orphans("").run().await;
    outcome.assert_gone(&["o1", "metadata/o2.avro", "empty"]);
    outcome.assert_metrics(&[("deleted_bytes", 71_234), ("deleted_files_count", 3)]);
    let outcome = in_store_with_orphans(3).beside("t/data/o.parquet", vec![0; 4321]).orphans("").run().await;
    outcome.assert_metrics(&[("deleted_bytes", 4324), ("deleted_files_count", 4)]);
    assert_eq!(outcome.gone_bytes, 4324);
}

#[tokio::test]
async fn b137_what_stays_or_was_gone_before_is_no_gain() {
    let mut table = three_snapshots().build();
    table.fault("data/a.parquet", Fault::Missing);
    let outcome = Case::of(table).expire("").run().await;
    outcome.assert_metrics(&[("deleted_bytes", outcome.gone_bytes), ("already_missing_files_count", 1)]);
    let outcome = Case::of(three_snapshots().build()).expire("delete_files => false").run().await;
    outcome.assert_metrics(&[("deleted_bytes", 0), ("left_behind_files_count", 7)]);
}

/// How many snapshots the table of B139 has; the report's has ten times as many.
const SNAPSHOTS: i64 = 2000;

const NO_FILES: [&str; 0] = [];

/// A table of many streaming commits, one a minute, without files.
fn streaming() -> Table {
    let mut history = history(2);
    history.previous_versions(3).table_mut().content = Content::None;
    let began = NOW_MS - 10 * DAY_MS;
    (0..SNAPSHOTS).for_each(|number| _ = history.append(began + number * 60_000, NO_FILES));
    history.build()
}

#[tokio::test]
async fn b139_an_expiry_of_many_commits_says_what_it_did_and_why_it_did_nothing() {
    let (place, session) = Case::of(streaming()).in_place().await;
    let call = |more: &str| format!("CALL system.expire_snapshots(table => {}{more})", literal(&place.table()));
    // Nothing expires: all rows are there all the same, and each snapshot says why it stays.
    let keeps = ", older_than => TIMESTAMP '2025-01-01'";
    let metrics = session.metrics(&call(keeps)).await.unwrap();
    assert_eq!(metrics.len(), iceberg_maintenance::report::METRICS.len());
    assert_eq!((metrics["deleted_snapshots_count"], metrics["retained_snapshots_count"]), (0, SNAPSHOTS));
    crate::support::deleted_nothing(&metrics).unwrap();
    let rows = session.rows(&call(&format!("{keeps}, output => 'snapshots'"))).await.unwrap();
    assert_eq!(rows.len() as i64, SNAPSHOTS);
    let stays = |row: &Row| text(row, "decision") == "keep" && !text(row, "reason").is_empty();
    assert!(rows.iter().all(stays), "{:?}", rows[0]);

    // All but the head expire.
    let dry = session.metrics(&call(", dry_run => true")).await.unwrap();
    let metrics = session.metrics(&call("")).await.unwrap();
    same_numbers(&dry, &metrics).unwrap();
    let (gone, left) = (metrics["deleted_snapshots_count"], metrics["retained_snapshots_count"]);
    assert_eq!((gone, left, metrics["deleted_manifest_lists_count"]), (SNAPSHOTS - 1, 1, SNAPSHOTS - 1));
    assert_eq!(place.read().await.snapshot_ids(), [SNAPSHOTS].into());
    place.assert_whole().await;
}

#[tokio::test]
async fn b139_a_run_without_anything_to_do_returns_all_rows_and_says_why() {
    let tables = [history(2).build(), three_snapshots().build()];
    for (table, arguments) in tables.into_iter().zip(["", "older_than => TIMESTAMP '2020-01-01'"]) {
        let outcome = Case::of(table.clone()).expire(arguments).run().await;
        outcome.assert_gone(&[]);
        outcome.notice("older_than = ");
        assert_eq!(outcome.metrics.len(), iceberg_maintenance::report::METRICS.len());
        assert!(outcome.reasons.values().all(|reason| reason.starts_with("keep: ") && reason.len() > 10));
        let outcome = Case::of(table).orphans("").run().await;
        outcome.assert_gone(&[]);
        assert!(outcome.metrics["scanned_files_count"] > 0, "{:?}", outcome.metrics);
    }
}

/// The store deletes nothing any more.
fn denies_deletes(place: &Place) {
    place.watched().answer_wrongly(|kind, _| (kind == Kind::Delete).then_some(Wrong::Denied));
}

#[tokio::test]
async fn b140_a_call_whose_deletes_all_fail_fails_and_shows_the_first_error() {
    let outcome = in_store_with_orphans(3).just_before_the_call(denies_deletes).orphans("").fails().await;
    outcome.assert_gone(&[]);
    let error = outcome.error.unwrap();
    assert!(error.contains("3 of 3") && error.contains("not allowed") && error.contains("data/o0.parquet"), "{error}");

    let expiry = Case::of(three_snapshots().build()).in_store().just_before_the_call(denies_deletes).expire("");
    let outcome = expiry.fails().await;
    outcome.assert(Left { snapshots: &[3], refs: &["main"], gone: &[] });
    let error = outcome.error.unwrap();
    assert!(
        error.contains("7 of 7") && error.contains("not allowed") && error.contains("the commit is done"),
        "{error}"
    );
}

#[tokio::test]
async fn b140_no_row_says_of_such_a_file_that_it_was_deleted() {
    for (procedure, failed) in [("remove_orphan_files", 3), ("expire_snapshots", 7)] {
        for wrong in [Wrong::Denied, Wrong::Fails] {
            let (place, session) = in_store_with_orphans(3).in_place().await;
            place.watched().answer_wrongly(move |kind, _| (kind == Kind::Delete).then_some(wrong));
            let call = format!("CALL system.{procedure}(table => {}, output => 'files')", literal(&place.table()));
            let (rows, error) = session.rows_until_the_end(&call).await;
            assert_eq!(rows.len(), failed);
            for row in rows {
                let why = if wrong == Wrong::Denied { "not allowed" } else { "the network is down" };
                assert!(text(&row, "status") == "failed" && text(&row, "error").contains(why), "{row:?}");
            }
            assert!(error.unwrap().contains(&format!("{failed} of {failed}")));
            place.assert_whole().await;
        }
    }
}

#[tokio::test]
async fn b140_the_report_of_a_failed_removal_counts_none_deleted_and_all_failed() {
    let (place, session) = in_store_with_orphans(3).in_place().await;
    denies_deletes(&place);
    let now = in_ten_days();
    let options = iceberg_maintenance::RemoveOrphanFiles::older_than(now - 3 * DAY_MS, now);
    let plan = session.maintenance.plan_remove_orphan_files(&place.table(), &options).await.unwrap();
    let report = session.maintenance.delete_orphan_files(plan).await.unwrap();
    let counted =
        (report.metrics.deleted_files_count, report.metrics.failed_deletions_count, report.metrics.deleted_bytes);
    assert_eq!(counted, (0, 3, 0));
}

#[tokio::test]
async fn b143_what_a_table_holds_needs_and_could_lose_is_in_the_rows() {
    // A table of 300 live bytes beside 99 times as many of orphans.
    let mut history = history(2);
    history.append(days_ago(20), ["a", "b", "c"]);
    let mut table = history.build();
    (0..99).for_each(|number| {
        _ = table.stray_with(&format!("data/o{number}.parquet"), vec![0; 300], days_ago(50));
    });
    table.stray("_attempt/x", days_ago(50)).stray("data/young.parquet", NOW_MS).stray("notes/x", days_ago(50));
    let outcome = Case::of(table).orphans("").run().await;
    outcome.assert_metrics(&[
        ("deleted_bytes", 29_700),
        ("deleted_files_count", 99),
        ("active_files_count", 3),
        ("scanned_files_count", 3 + 99 + 3 + 5),
        ("skipped_hidden_count", 1),
        ("skipped_too_young_count", 1),
        ("skipped_foreign_files_count", 1),
    ]);
}

#[tokio::test]
async fn b143_a_table_that_is_skipped_ends_with_an_error_and_no_rows() {
    let calls = ["expire_snapshots(table => {table}{dry_run})", "remove_orphan_files(table => {table}{dry_run})"];
    for call in calls {
        let call = format!("CALL system.{call}");
        let mut without_gc = three_snapshots().build();
        without_gc.property("gc.enabled", "false");
        let mut newer = three_snapshots().build();
        newer.extra.insert("format-version".into(), 4.into());
        let mut broken = three_snapshots().build();
        let list = broken.snapshot(3).unwrap().manifest_list.clone().unwrap();
        broken.fault(&list, Fault::CutTo(10));
        for (table, why) in [(without_gc, "gc.enabled"), (newer, "format"), (broken, list.as_str())] {
            let error = Case::of(table).statement(&call).refused().await;
            assert!(error.contains(why), "{error}");
        }
    }
    // Both operations of one statement: the one that fails is seen.
    let mut table = three_snapshots().build();
    table.property("gc.enabled", "false");
    let (place, session) = Case::of(table).in_place().await;
    let error = session.rows(&format!("VACUUM \"{}\"", place.table())).await.unwrap_err();
    assert!(error.contains("gc.enabled"), "{error}");
}
