//! How often a call runs, and what happens when nobody waits for it any more.

use std::time::Duration;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::context::SQLOptions;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;

use super::*;

/// Runs a statement in a new session, and says how often a call ran.
async fn runs_of(sql: &str) -> usize {
    let (ctx, log) = session();
    run(&ctx, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    log.runs()
}

#[tokio::test]
async fn a_call_runs_once_for_each_execution_and_never_in_planning() {
    for (sql, runs) in [
        ("SELECT * FROM expire_snapshots('t')", 1),
        ("CALL system.expire_snapshots('t')", 1),
        ("ALTER TABLE t EXECUTE expire_snapshots", 1),
        ("EXPLAIN SELECT * FROM expire_snapshots('t')", 0),
        ("EXPLAIN VERBOSE SELECT * FROM expire_snapshots('t')", 0),
        ("EXPLAIN FORMAT TREE SELECT * FROM expire_snapshots('t')", 0),
        ("DESCRIBE SELECT * FROM expire_snapshots('t')", 0),
        ("EXPLAIN CALL system.expire_snapshots('t')", 0),
        ("EXPLAIN VERBOSE CALL system.expire_snapshots('t')", 0),
        ("EXPLAIN FORMAT TREE ALTER TABLE t EXECUTE expire_snapshots", 0),
        ("EXPLAIN VACUUM t", 0),
        ("EXPLAIN ANALYZE SELECT * FROM expire_snapshots('t')", 1),
        ("EXPLAIN ANALYZE CALL system.expire_snapshots('t')", 1),
        ("SELECT * FROM expire_snapshots('t') LIMIT 1", 1),
        ("SELECT * FROM expire_snapshots('t') LIMIT 1 OFFSET 3", 1),
        ("SELECT * FROM expire_snapshots('t') ORDER BY metric_name LIMIT 1", 1),
        ("SELECT * FROM expire_snapshots('t') WHERE metric_value > 5", 1),
        ("SELECT count(*) FROM expire_snapshots('t')", 1),
        ("SELECT 1 FROM expire_snapshots('t')", 1),
        ("SELECT DISTINCT metric_value FROM expire_snapshots('t')", 1),
        ("SELECT metric_name, row_number() OVER () FROM expire_snapshots('t')", 1),
        ("WITH x AS (SELECT * FROM expire_snapshots('t')) SELECT * FROM x", 1),
        ("SELECT * FROM (SELECT * FROM expire_snapshots('t')) x", 1),
        ("CREATE TABLE x AS SELECT * FROM expire_snapshots('t')", 1),
        ("EXPLAIN CREATE TABLE x AS SELECT * FROM expire_snapshots('t')", 0),
        ("EXPLAIN SELECT * FROM expire_snapshots('t') UNION ALL SELECT * FROM expire_snapshots('t')", 0),
        ("CREATE VIEW x AS SELECT * FROM expire_snapshots('t')", 0),
        ("PREPARE x AS SELECT * FROM expire_snapshots('t')", 0),
        ("VACUUM t", 2),
    ] {
        assert_eq!(runs_of(sql).await, runs, "{sql}");
    }
}

#[tokio::test]
async fn rows_are_right_under_projection_count_and_limit() {
    let (ctx, _) = session();
    let all = crate::report::METRICS.len();
    assert_eq!(number(&run(&ctx, "SELECT count(*) FROM expire_snapshots('t')").await.unwrap()), all as i64);
    let ones = run(&ctx, "SELECT 1 AS one FROM expire_snapshots('t')").await.unwrap();
    assert_eq!(ones.iter().map(RecordBatch::num_rows).sum::<usize>(), all);
    let swapped = run(&ctx, "SELECT metric_value, metric_name FROM expire_snapshots('t')").await.unwrap();
    assert_eq!(metric(&swapped, "deleted_files_count"), [3]);
    let qualified =
        "SELECT expire_snapshots.metric_value FROM expire_snapshots('t') WHERE metric_name = 'deleted_files_count'";
    assert_eq!(number(&run(&ctx, qualified).await.unwrap()), 4);
    let aliased = "SELECT x.v FROM expire_snapshots('t') AS x(n, v) WHERE x.n = 'deleted_files_count'";
    assert_eq!(number(&run(&ctx, aliased).await.unwrap()), 5);
}

#[tokio::test]
async fn large_results_come_in_batches_of_the_sessions_size() {
    let (ctx, _) = session_with(SessionConfig::new().with_batch_size(10));
    let batches = run(&ctx, "CALL system.expire_snapshots('t')").await.unwrap();
    let all = crate::report::METRICS.len();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), all);
    assert!(batches.iter().all(|batch| batch.num_rows() <= 10));
}

#[tokio::test]
async fn acting_calls_that_do_not_stand_alone_are_refused_before_anything_runs() {
    let act = "SELECT * FROM expire_snapshots('t')";
    for sql in [
        format!("{act} UNION ALL {act}"),
        format!("{act} UNION ALL SELECT 'x', 1"),
        format!("WITH x AS ({act}) SELECT * FROM x UNION ALL SELECT * FROM x"),
        format!("WITH x AS ({act}) SELECT * FROM x a JOIN x b USING (metric_name)"),
        "SELECT * FROM expire_snapshots('t') a CROSS JOIN (VALUES (1)) b".into(),
        "SELECT * FROM (VALUES (1)) b LEFT JOIN expire_snapshots('t') a ON false".into(),
        "SELECT * FROM (VALUES (1)) b, LATERAL expire_snapshots('t') a".into(),
        "SELECT (SELECT count(*) FROM expire_snapshots('a')) x, (SELECT count(*) FROM expire_snapshots('b')) y".into(),
        "SELECT (SELECT count(*) FROM expire_snapshots('a')) x".into(),
        "SELECT 1 WHERE EXISTS (SELECT * FROM expire_snapshots('a'))".into(),
        "SELECT 1 WHERE 'x' IN (SELECT metric_name FROM expire_snapshots('a'))".into(),
        "CREATE TABLE x AS SELECT * FROM expire_snapshots('t') UNION ALL SELECT 'x', 1".into(),
        format!("{act} WHERE metric_name IN (SELECT 'x' WHERE false)"),
        format!("{act} WHERE EXISTS (SELECT 1 WHERE false)"),
        "SELECT (SELECT 1) FROM expire_snapshots('t')".into(),
        "SELECT * FROM expire_snapshots('t', dry_run => true) a JOIN expire_snapshots('t') b USING (metric_name)"
            .into(),
    ] {
        let (ctx, log) = session();
        let error = error(&ctx, &sql).await;
        assert!(error.contains("dry_run => true"), "{sql}: {error}");
        assert_eq!(log.runs(), 0, "{sql}");
    }
}

#[tokio::test]
async fn an_acting_call_that_would_never_run_is_refused() {
    for sql in [
        "SELECT * FROM expire_snapshots('t') LIMIT 0",
        "SELECT * FROM expire_snapshots('t') LIMIT 1 - 1",
        "SELECT * FROM expire_snapshots('t') WHERE false",
        "SELECT * FROM expire_snapshots('t') WHERE 1 = 2 AND metric_value > 0",
        "SELECT count(*) FROM expire_snapshots('t') WHERE metric_name IS NULL",
        "SELECT * FROM (SELECT * FROM expire_snapshots('t') WHERE NULL) x ORDER BY 1",
        "CREATE TABLE x AS SELECT * FROM expire_snapshots('t') LIMIT 0",
    ] {
        for ours in [true, false] {
            let (ctx, log) = session();
            let outcome = if ours { run(&ctx, sql).await } else { run_in_datafusion(&ctx, sql).await };
            let error = outcome.map(|_| panic!("{sql} did not fail")).unwrap_err();
            assert!(error.to_string().contains("would never run"), "{sql}: {error}");
            assert!(matches!(Error::find(&error), Some(Error::Statement { .. })), "{sql}: {error}");
            assert_eq!(log.runs(), 0, "{sql}");
        }
    }
    assert_eq!(runs_of("SELECT * FROM expire_snapshots('t', dry_run => true) LIMIT 0").await, 0);
}

async fn run_in_datafusion(ctx: &SessionContext, sql: &str) -> datafusion::error::Result<Vec<RecordBatch>> {
    ctx.sql(sql).await?.collect().await
}

#[tokio::test]
async fn an_acting_call_that_nothing_refers_to_is_refused() {
    for sql in [
        "WITH x AS (SELECT * FROM expire_snapshots('t')) SELECT 1",
        "EXPLAIN WITH x AS (SELECT * FROM expire_snapshots('t')) SELECT 1",
        "WITH x AS (SELECT * FROM expire_snapshots('a')) SELECT * FROM expire_snapshots('b')",
        "WITH x AS (SELECT * FROM expire_snapshots('t')), y AS (SELECT * FROM x) SELECT 1",
        "CREATE VIEW v AS WITH x AS (SELECT * FROM expire_snapshots('t')) SELECT 1",
    ] {
        let (ctx, log) = session();
        let error = error(&ctx, sql).await;
        assert!(error.contains("nothing in the statement refers to the rows of expire_snapshots("), "{sql}: {error}");
        assert_eq!(log.runs(), 0, "{sql}");
    }
    let used = "WITH x AS (SELECT * FROM expire_snapshots('t')), y AS (SELECT * FROM x) SELECT * FROM y";
    assert_eq!(runs_of(used).await, 1);
    assert_eq!(runs_of("WITH x AS (SELECT * FROM expire_snapshots('t', dry_run => true)) SELECT 1").await, 0);
}

#[tokio::test]
async fn explain_analyze_runs_calls_dry() {
    for sql in [
        "EXPLAIN ANALYZE CALL system.expire_snapshots('t')",
        "EXPLAIN ANALYZE VERBOSE ALTER TABLE t EXECUTE expire_snapshots",
        "EXPLAIN ANALYZE SELECT * FROM expire_snapshots('t')",
        "EXPLAIN ANALYZE SELECT count(*) FROM v",
        "EXPLAIN ANALYZE SELECT * FROM v a JOIN v b USING (metric_name)",
        "EXPLAIN ANALYZE SELECT 1 WHERE EXISTS (SELECT * FROM expire_snapshots('t'))",
    ] {
        let (ctx, log) = session();
        run(&ctx, "CREATE VIEW v AS SELECT * FROM expire_snapshots('t')").await.unwrap();
        let rows = run(&ctx, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(!log.ran().is_empty() && log.ran().iter().all(|(_, dry_run)| *dry_run), "{sql}: {:?}", log.ran());
        let text = pretty_format_batches(&rows).unwrap().to_string();
        assert!(text.contains("dry_run=true") && !text.contains("dry_run=false"), "{sql}: {text}");
    }
    let (ctx, log) = session();
    run(&ctx, "EXPLAIN ANALYZE VACUUM t").await.unwrap();
    assert_eq!(log.ran(), [(Operation::ExpireSnapshots, true), (Operation::RemoveOrphanFiles, true)]);
}

#[tokio::test]
async fn failed_deletes_end_the_statement_in_an_error_whatever_is_selected() {
    let files = "expire_snapshots('t', output => 'files')";
    for sql in [
        "CALL system.expire_snapshots(table => 't', output => 'files')".to_string(),
        format!("SELECT * FROM {files}"),
        format!("SELECT file_path FROM {files} WHERE status = 'deleted'"),
        format!("SELECT * FROM {files} LIMIT 100"),
        format!("SELECT count(*) FROM {files}"),
        format!("CREATE TABLE x AS SELECT * FROM {files}"),
        "CALL system.expire_snapshots('t')".to_string(),
    ] {
        let (ctx, log) = session();
        log.incomplete.store(true, Ordering::SeqCst);
        let error = run(&ctx, &sql).await.map(|_| panic!("{sql} did not fail")).unwrap_err();
        let partial = matches!(Error::find(&error), Some(Error::PartialDelete { failed: 2, planned: 3, .. }));
        assert!(partial, "{sql}: {error}");
    }
}

#[tokio::test]
async fn the_rows_of_files_come_before_the_error_and_a_reader_that_stops_leaves_it_to_the_notices() {
    let (ctx, log) = session();
    log.incomplete.store(true, Ordering::SeqCst);
    let frame = ctx.maintenance_sql("CALL system.expire_snapshots(table => 't', output => 'files')").await.unwrap();
    let mut stream = frame.execute_stream().await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().num_rows(), 3);
    assert!(stream.next().await.unwrap().unwrap_err().to_string().contains("2 of 3 files could not be deleted"));
    assert!(stream.next().await.is_none());
    assert_eq!(log.notices(), ["the report's own notice"]);

    let one = run(&ctx, "SELECT * FROM expire_snapshots('t', output => 'files') LIMIT 1").await.unwrap();
    assert_eq!(one.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    let notices = log.notices();
    assert!(notices.len() == 2 && notices[1].contains("2 of 3 files could not be deleted"), "{notices:?}");
}

#[tokio::test]
async fn notices_say_which_arguments_have_no_effect_or_another_meaning_elsewhere() {
    for (sql, expected) in [
        ("CALL system.expire_snapshots(table => 't', stream_results => true)", "stream_results is accepted"),
        ("SELECT * FROM remove_orphan_files('t', prefix_listing => true)", "prefix_listing is accepted"),
        ("ALTER TABLE t EXECUTE expire_snapshots('2024-01-03')", "read as expire_before"),
        ("CALL system.expire_snapshots(table => 't', snapshot_ids => [1])", "none by age"),
        ("ALTER TABLE t EXECUTE expire_snapshots('1,2')", "none by age"),
    ] {
        let (ctx, log) = session();
        run(&ctx, sql).await.unwrap();
        let notices = log.notices();
        assert!(notices.len() == 2 && notices[0].contains(expected), "{sql}: {notices:?}");
    }
    let (ctx, log) = session();
    run(&ctx, "ALTER TABLE t EXECUTE expire_snapshots(expire_before => '2024-01-03', retain_last => 2)").await.unwrap();
    assert_eq!(log.notices(), ["the report's own notice"]);
}

#[tokio::test]
async fn acting_calls_are_found_in_views() {
    let (ctx, _) = session();
    run(&ctx, "CREATE VIEW inner_view AS SELECT * FROM expire_snapshots('t')").await.unwrap();
    run(&ctx, "CREATE VIEW acting AS SELECT metric_name FROM inner_view").await.unwrap();
    run(&ctx, "CREATE VIEW dry AS SELECT * FROM expire_snapshots('t', dry_run => true)").await.unwrap();
    for (relation, expected) in [("acting", 1), ("dry", 0)] {
        let frame = ctx.table(relation).await.unwrap();
        let found = super::super::acting_calls(frame.logical_plan(), ctx.state().config_options()).unwrap();
        assert_eq!(found, expected, "{relation}");
    }
}

#[tokio::test]
async fn a_view_over_two_acting_calls_is_refused_at_its_use() {
    let (ctx, log) = session();
    run(&ctx, "CREATE VIEW v AS SELECT * FROM expire_snapshots('t')").await.unwrap();
    let error = error(&ctx, "SELECT * FROM v a JOIN v b USING (metric_name)").await;
    assert!(error.contains("at most one may run"), "{error}");
    assert_eq!(log.runs(), 0);
}

#[tokio::test]
async fn dry_runs_may_stand_anywhere() {
    let dry = "SELECT * FROM expire_snapshots('t', dry_run => true)";
    for (sql, runs) in [
        (format!("{dry} UNION ALL {dry}"), 2),
        (format!("WITH x AS ({dry}) SELECT * FROM x UNION ALL SELECT * FROM x"), 1),
        (
            "SELECT 1 FROM expire_snapshots('a', dry_run => true) CROSS JOIN expire_snapshots('b', dry_run => true) x"
                .into(),
            2,
        ),
        (format!("{dry} UNION ALL SELECT * FROM (VALUES ('x', 1))"), 1),
    ] {
        assert_eq!(runs_of(&sql).await, runs, "{sql}");
    }
}

#[tokio::test]
async fn equal_looking_subqueries_over_different_tables_are_not_merged() {
    let (ctx, log) = session();
    let sum = |table| {
        format!(
            "(SELECT max(metric_value) FROM expire_snapshots('{table}', dry_run => true) WHERE metric_name = 'deleted_files_count')"
        )
    };
    run(&ctx, &format!("SELECT {} x, {} y", sum("a"), sum("b"))).await.unwrap();
    let mut tables: Vec<_> = log.ran.lock().unwrap().iter().map(|(_, _, a)| a.table().unwrap()).collect();
    tables.sort();
    assert_eq!(tables, ["a", "b"]);
}

#[tokio::test]
async fn an_insert_takes_the_rows_of_one_run() {
    let (ctx, log) = session();
    run(&ctx, "CREATE TABLE history (metric_name TEXT, metric_value BIGINT)").await.unwrap();
    run(&ctx, "INSERT INTO history SELECT * FROM expire_snapshots('t')").await.unwrap();
    let rows = run(&ctx, "SELECT count(*) FROM history").await.unwrap();
    assert_eq!((number(&rows), log.runs()), (crate::report::METRICS.len() as i64, 1));
}

#[tokio::test]
async fn a_view_runs_once_for_each_use_with_fresh_rows() {
    let (ctx, log) = session();
    run(&ctx, "CREATE VIEW v AS SELECT * FROM expire_snapshots('t')").await.unwrap();
    for number in 1..=3 {
        let rows = run(&ctx, "SELECT * FROM v").await.unwrap();
        assert_eq!(metric(&rows, "deleted_files_count"), [number]);
    }
    assert_eq!(log.runs(), 3);
}

#[tokio::test]
async fn a_prepared_statement_runs_once_for_each_use_with_fresh_rows() {
    let (ctx, log) = session();
    run(&ctx, "PREPARE p AS SELECT * FROM expire_snapshots('t')").await.unwrap();
    for number in 1..=2 {
        let rows = run(&ctx, "EXECUTE p").await.unwrap();
        assert_eq!(metric(&rows, "deleted_files_count"), [number]);
    }
    assert_eq!(log.runs(), 2);
}

#[tokio::test]
async fn a_data_frame_runs_once_however_often_it_is_collected() {
    let (ctx, log) = session();
    let frame = ctx.maintenance_sql("CALL system.expire_snapshots('t')").await.unwrap();
    assert_eq!(log.runs(), 0);
    assert_eq!(frame.clone().count().await.unwrap(), crate::report::METRICS.len());
    assert_eq!(metric(&frame.clone().collect().await.unwrap(), "deleted_files_count"), [1]);
    assert_eq!(metric(&frame.collect().await.unwrap(), "deleted_files_count"), [1]);
    assert_eq!(log.runs(), 1);
}

#[tokio::test]
async fn without_a_start_time_scans_share_a_run_until_it_begins() {
    // As through DataFusion's FFI, where a session has no start time.
    let (ctx, log) = session();
    let frame = ctx.sql("SELECT * FROM expire_snapshots('t', dry_run => true)").await.unwrap();
    let (_, plan) = frame.into_parts();
    let state = ctx.state_ref().read().clone();
    assert!(state.execution_props().query_execution_start_time.is_none());
    let first = state.create_physical_plan(&plan).await.unwrap();
    let second = state.create_physical_plan(&plan).await.unwrap();
    let collect = |plan| datafusion::physical_plan::collect(plan, ctx.task_ctx());
    assert_eq!(metric(&collect(first).await.unwrap(), "deleted_files_count"), [1]);
    assert_eq!(metric(&collect(second).await.unwrap(), "deleted_files_count"), [1]);
    let third = state.create_physical_plan(&plan).await.unwrap();
    assert_eq!(metric(&collect(third).await.unwrap(), "deleted_files_count"), [2]);
    assert_eq!(log.runs(), 2);
}

/// Waits for something that another task does.
async fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..500 {
        if happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen");
}

#[tokio::test]
async fn a_dropped_stream_cancels_the_run_but_does_not_cut_it() {
    let (ctx, log) = session();
    log.wait.store(true, Ordering::SeqCst);
    let frame = ctx.maintenance_sql("CALL system.expire_snapshots('t')").await.unwrap();
    let mut stream = frame.execute_stream().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), stream.next()).await.is_err());
    drop(stream);
    log.release.notify_one();
    eventually("the end of the run", || log.cancelled.lock().unwrap().is_some()).await;
    assert_eq!(*log.cancelled.lock().unwrap(), Some(true));
    eventually("the notice", || log.notices.lock().unwrap().len() == 2).await;
    let ending = "expire_snapshots was interrupted: it was complete before it could stop; 1 snapshots were expired and 1 files \
                  deleted";
    assert_eq!(log.notices()[1], ending);
    assert_eq!(log.runs(), 1);
}

#[tokio::test]
async fn a_run_goes_on_while_one_of_its_streams_waits() {
    let (ctx, log) = session();
    log.wait.store(true, Ordering::SeqCst);
    let frame = ctx.maintenance_sql("CALL system.expire_snapshots('t')").await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let mut dropped = execute_stream(Arc::clone(&plan), ctx.task_ctx()).unwrap();
    let mut kept = execute_stream(plan, ctx.task_ctx()).unwrap();
    let short = Duration::from_millis(50);
    assert!(tokio::time::timeout(short, dropped.next()).await.is_err());
    assert!(tokio::time::timeout(short, kept.next()).await.is_err());
    drop(dropped);
    log.release.notify_one();
    let batch = kept.next().await.unwrap().unwrap();
    assert_eq!(metric(&[batch], "deleted_files_count"), [1]);
    assert_eq!(*log.cancelled.lock().unwrap(), Some(false));
    assert_eq!(log.runs(), 1);
}

#[tokio::test]
async fn a_stream_that_is_never_polled_runs_nothing() {
    let (ctx, log) = session();
    let frame = ctx.maintenance_sql("CALL system.expire_snapshots('t')").await.unwrap();
    drop(frame.execute_stream().await.unwrap());
    assert_eq!(log.runs(), 0);
}

#[tokio::test]
async fn errors_keep_their_type_and_a_second_collect_does_not_try_again() {
    let (ctx, log) = session();
    *log.fail.lock().unwrap() = Some(Operation::ExpireSnapshots);
    let frame = ctx.maintenance_sql("CALL system.expire_snapshots('t')").await.unwrap();
    for _ in 0..2 {
        let error = frame.clone().collect().await.unwrap_err();
        assert!(matches!(Error::find(&error), Some(Error::Guard { .. })), "{error}");
    }
    assert_eq!(log.runs(), 1);
}

#[tokio::test]
async fn vacuum_runs_both_procedures_in_order_and_names_them() {
    let (ctx, log) = session();
    let rows = run(&ctx, "VACUUM t").await.unwrap();
    assert_eq!(log.ran(), [(Operation::ExpireSnapshots, false), (Operation::RemoveOrphanFiles, false)]);
    let schema = rows[0].schema();
    let columns: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(columns, ["procedure", "metric_name", "metric_value"]);
    assert_eq!(metric(&rows, "deleted_files_count"), [1, 2]);
    assert_eq!(rows[0].column(0).as_string::<i32>().value(0), "expire_snapshots");
}

#[tokio::test]
async fn a_failure_in_vacuum_says_what_was_done_before() {
    let (ctx, log) = session();
    *log.fail.lock().unwrap() = Some(Operation::RemoveOrphanFiles);
    let error = run(&ctx, "VACUUM t").await.unwrap_err();
    assert!(error.to_string().contains("expire_snapshots was completed before remove_orphan_files failed"), "{error}");
    assert!(matches!(Error::find(&error), Some(Error::Guard { .. })), "{error}");
    *log.fail.lock().unwrap() = Some(Operation::ExpireSnapshots);
    run(&ctx, "VACUUM t").await.unwrap_err();
    assert_eq!(log.runs(), 3, "remove_orphan_files must not run after a failure");
}

#[tokio::test]
async fn explain_shows_the_call_and_its_arguments() {
    let (ctx, _) = session();
    for (sql, logical) in [
        (
            "EXPLAIN CALL system.expire_snapshots(table => 'db.t', RETAIN_LAST => 5)",
            "TableScan: expire_snapshots(table => 'db.t', retain_last => 5)",
        ),
        (
            "EXPLAIN SELECT * FROM expire_snapshots('db.t', retain_last => 5)",
            "TableScan: expire_snapshots('db.t', retain_last => 5)",
        ),
    ] {
        let text = pretty_format_batches(&run(&ctx, sql).await.unwrap()).unwrap().to_string();
        assert!(text.contains(logical), "{text}");
        assert!(text.contains("ProcedureExec: expire_snapshots(table=db.t), dry_run=false"), "{text}");
    }
    let analyzed = run(&ctx, "EXPLAIN ANALYZE CALL system.expire_snapshots('t')").await.unwrap();
    let text = pretty_format_batches(&analyzed).unwrap().to_string();
    assert!(text.contains("dry_run=true") && text.contains("deleted_files_count=1"), "{text}");
}

#[tokio::test]
async fn table_functions_obey_the_session_option_and_statements_do_not() {
    let (ctx, log) = session();
    run(&ctx, "CREATE VIEW v AS SELECT * FROM expire_snapshots('t')").await.unwrap();
    run(&ctx, "SET iceberg_maintenance.table_functions = 'dry_run'").await.unwrap();
    run(&ctx, "SELECT * FROM expire_snapshots('t')").await.unwrap();
    run(&ctx, "SELECT * FROM v a JOIN v b USING (metric_name)").await.unwrap();
    run(&ctx, "CALL system.expire_snapshots('t')").await.unwrap();
    let dry_runs: Vec<_> = log.ran().into_iter().map(|(_, dry_run)| dry_run).collect();
    assert_eq!(dry_runs, [true, true, false]);

    run(&ctx, "SET iceberg_maintenance.table_functions = 'off'").await.unwrap();
    for sql in ["SELECT * FROM expire_snapshots('t', dry_run => true)", "SELECT * FROM v"] {
        assert!(error(&ctx, sql).await.contains("table_functions is 'off'"), "{sql}");
    }
    run(&ctx, "CALL system.expire_snapshots('t')").await.unwrap();
    run(&ctx, "SET iceberg_maintenance.table_functions = 'plan-only'").await.unwrap();
    for sql in ["SELECT * FROM expire_snapshots('t')", "CALL system.expire_snapshots('t')"] {
        let error = error(&ctx, sql).await;
        assert!(error.contains("'plan-only'; it can be 'execute', 'dry_run', 'off' or 'plan_only'"), "{sql}: {error}");
    }
    assert_eq!(log.runs(), 4);
}

#[tokio::test]
async fn a_session_that_may_only_plan_refuses_whatever_would_act() {
    let (ctx, log) = session();
    run(&ctx, "CREATE VIEW v AS SELECT * FROM expire_snapshots('t')").await.unwrap();
    run(&ctx, "PREPARE p AS SELECT * FROM expire_snapshots('t')").await.unwrap();
    let before = ctx.maintenance_sql("CALL system.expire_snapshots('t')").await.unwrap();
    let physical = before.clone().create_physical_plan().await.unwrap();
    run(&ctx, "SET iceberg_maintenance.table_functions = 'plan_only'").await.unwrap();
    for sql in [
        "CALL system.expire_snapshots('t')",
        "ALTER TABLE t EXECUTE remove_orphan_files",
        "VACUUM t",
        "SELECT * FROM expire_snapshots('t')",
        "SELECT metric_name FROM remove_orphan_files('t') WHERE metric_value > 1 ORDER BY 1 LIMIT 3",
        "CREATE TABLE x AS SELECT * FROM expire_snapshots('t')",
        "SELECT * FROM v",
        "EXECUTE p",
    ] {
        let error = run(&ctx, sql).await.unwrap_err();
        let said = Error::find(&error).unwrap_or_else(|| panic!("{sql}: {error}"));
        assert!(matches!(said, Error::NotAllowed { .. }), "{sql}: {error}");
        assert!(said.to_string().contains("iceberg_maintenance.table_functions is 'plan_only'"), "{sql}: {error}");
    }
    // DataFusion alone, which knows nothing of our statements.
    let plan = ctx.state().create_logical_plan("SELECT * FROM expire_snapshots('t')").await.unwrap();
    assert!(ctx.execute_logical_plan(plan).await.unwrap().collect().await.is_err());
    // What was planned before the session was told.
    assert!(datafusion::physical_plan::collect(physical, ctx.task_ctx()).await.is_err());
    assert_eq!(log.runs(), 0);

    for sql in [
        "CALL system.expire_snapshots(table => 't', dry_run => true)",
        "SELECT * FROM expire_snapshots('t', dry_run => true) a JOIN remove_orphan_files('t', dry_run => true) b \
         USING (metric_name)",
        "VACUUM t DRY RUN",
        "EXPLAIN CALL system.expire_snapshots('t')",
        "EXPLAIN SELECT * FROM v",
        "EXPLAIN ANALYZE CALL system.expire_snapshots('t')",
        "EXPLAIN ANALYZE SELECT * FROM expire_snapshots('t')",
    ] {
        run(&ctx, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    assert!(log.ran().iter().all(|(_, dry_run)| *dry_run) && log.runs() > 0);
}

#[tokio::test]
async fn who_may_not_set_options_can_not_free_a_session_that_may_only_plan() {
    let (ctx, log) = session();
    run(&ctx, "SET iceberg_maintenance.table_functions = 'plan_only'").await.unwrap();
    let users = SQLOptions::new().with_allow_statements(false);
    for sql in [
        "SET iceberg_maintenance.table_functions = 'execute'",
        "RESET iceberg_maintenance.table_functions",
        "PREPARE p AS SELECT * FROM expire_snapshots('t')",
    ] {
        let error = ctx.maintenance_sql_with_options(sql, users).await.unwrap_err().to_string();
        assert!(error.contains("Statement not supported"), "{sql}: {error}");
    }
    let dry = ctx
        .maintenance_sql_with_options("CALL system.expire_snapshots(table => 't', dry_run => true)", users)
        .await
        .unwrap();
    dry.collect().await.unwrap();
    let acting = ctx.maintenance_sql_with_options("CALL system.expire_snapshots('t')", users).await;
    assert!(acting.unwrap_err().to_string().contains("'plan_only'"));
    assert_eq!(log.ran().iter().filter(|(_, dry_run)| !dry_run).count(), 0);
}

#[tokio::test]
async fn session_options_are_shown_and_checked_by_their_whole_names() {
    let (ctx, _) = session_with(SessionConfig::new().with_information_schema(true));
    let shown = run(&ctx, "SHOW iceberg_maintenance.table_functions").await.unwrap();
    let text = pretty_format_batches(&shown).unwrap().to_string();
    assert!(text.contains("| iceberg_maintenance.table_functions | execute |"), "{text}");
    run(&ctx, "SET iceberg_maintenance.max_concurrent_deletes = 0").await.unwrap();
    let error = error(&ctx, "CALL system.expire_snapshots('t')").await;
    assert!(error.contains("iceberg_maintenance.max_concurrent_deletes is 0; it must be at least 1"), "{error}");
}

#[tokio::test]
async fn options_that_forbid_dml_forbid_acting_calls() {
    let (ctx, log) = session();
    let read_only = SQLOptions::new().with_allow_dml(false).with_allow_ddl(false);
    for sql in [
        "CALL system.expire_snapshots('t')",
        "ALTER TABLE t EXECUTE remove_orphan_files",
        "VACUUM t",
        "SELECT * FROM expire_snapshots('t')",
        "SELECT 1 WHERE EXISTS (SELECT * FROM expire_snapshots('t'))",
    ] {
        let error = ctx.maintenance_sql_with_options(sql, read_only).await.unwrap_err();
        assert!(matches!(Error::find(&error), Some(Error::NotAllowed { .. })), "{sql}: {error}");
    }
    for sql in [
        "CALL system.expire_snapshots(table => 't', dry_run => true)",
        "SELECT * FROM expire_snapshots('t', dry_run => true)",
        "EXPLAIN CALL system.expire_snapshots('t')",
        "EXPLAIN ANALYZE CALL system.expire_snapshots('t')",
        "EXPLAIN ANALYZE SELECT * FROM expire_snapshots('t')",
        "VACUUM t DRY RUN",
        "SELECT 1",
    ] {
        ctx.maintenance_sql_with_options(sql, read_only).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let error = ctx.maintenance_sql_with_options("CREATE TABLE x (a INT)", read_only).await.unwrap_err();
    assert!(error.to_string().contains("DDL not supported"), "{error}");
    assert_eq!(log.runs(), 0);
}

#[tokio::test]
async fn installing_again_changes_nothing_but_the_handle() {
    let (ctx, log) = session();
    let planners = ctx.state().relation_planners().len();
    let rules = ctx.state().analyzer().rules.len();
    run(&ctx, "SET iceberg_maintenance.positional_timestamp = 'older_than'").await.unwrap();
    super::super::install(&ctx, &Maintenance::with_clock(Arc::new(FixedClock(1))), None).unwrap();
    assert_eq!(ctx.state().relation_planners().len(), planners);
    assert_eq!(ctx.state().analyzer().rules.len(), rules);
    let kept =
        ctx.state().config_options().extensions.get::<MaintenanceOptions>().unwrap().positional_timestamp.clone();
    assert_eq!(kept, "older_than");
    assert_eq!(log.runs(), 0);
}

#[tokio::test]
async fn a_session_without_the_procedures_says_how_to_install_them() {
    let ctx = SessionContext::new();
    let error = error(&ctx, "CALL system.expire_snapshots('t')").await;
    assert!(error.contains("iceberg_maintenance::register(&ctx)"), "{error}");
    assert_eq!(number(&run(&ctx, "SELECT 1").await.unwrap()), 1);
}
