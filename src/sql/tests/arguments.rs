//! What arguments mean, in which form, and which are refused.

use super::*;
use crate::procedure::Value;

const DAY_MS: i64 = 86_400_000;
/// 2024-01-03T00:00:00Z.
const JANUARY_3: i64 = 1_704_240_000_000;

/// A call's arguments beside the table.
async fn values(sql: &str) -> Vec<(&'static str, Value)> {
    let (ctx, log) = session();
    let arguments = bound(&ctx, &log, sql).await;
    assert_eq!(arguments.now_ms, NOW_MS);
    arguments.values.into_iter().filter(|(name, _)| *name != "table").collect()
}

#[tokio::test]
async fn positions_in_call_and_function_are_sparks() {
    let arguments = "('t', TIMESTAMP '2024-01-03 00:00:00', 5, 4, true, array(1, 2), false)";
    let expected = [
        ("clean_expired_metadata", Value::Boolean(false)),
        ("max_concurrent_deletes", Value::Integer(4)),
        ("older_than", Value::Timestamp(JANUARY_3)),
        ("retain_last", Value::Integer(5)),
        ("snapshot_ids", Value::Ids(vec![1, 2])),
        ("stream_results", Value::Boolean(true)),
    ];
    assert_eq!(values(&format!("CALL system.expire_snapshots{arguments}")).await, expected);
    assert_eq!(values(&format!("SELECT * FROM expire_snapshots{arguments}")).await, expected);
}

#[tokio::test]
async fn the_lone_timestamp_of_execute_only_protects_unless_the_session_says_otherwise() {
    let (ctx, log) = session();
    let sql = "ALTER TABLE t EXECUTE expire_snapshots('2024-01-03 00:00:00', dry_run = 1)";
    let arguments = bound(&ctx, &log, sql).await;
    assert_eq!(arguments.timestamp("expire_before"), Some(JANUARY_3));
    assert!(!arguments.is_given("older_than"));
    assert_eq!(arguments.boolean("dry_run"), Some(true));

    run(&ctx, "SET iceberg_maintenance.positional_timestamp = 'older_than'").await.unwrap();
    let arguments = bound(&ctx, &log, sql).await;
    assert_eq!(arguments.timestamp("older_than"), Some(JANUARY_3));
    assert!(!arguments.is_given("expire_before"));

    run(&ctx, "SET iceberg_maintenance.positional_timestamp = 'fuse'").await.unwrap();
    let error = error(&ctx, sql).await;
    assert!(error.contains("'fuse'; it can be 'expire_before' or 'older_than'"), "{error}");
}

#[tokio::test]
async fn execute_takes_hives_ids_as_text_in_its_first_place() {
    for sql in [
        "ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS('12, 345')",
        "ALTER TABLE t EXECUTE expire_snapshots(snapshot_ids = [12, 345])",
    ] {
        assert_eq!(values(sql).await, [("snapshot_ids", Value::Ids(vec![12, 345]))], "{sql}");
    }
    let sql = "ALTER TABLE t EXECUTE remove_orphan_files('2024-01-03', 'data')";
    let expected = [("location", Value::Text("data".into())), ("older_than", Value::Timestamp(JANUARY_3))];
    assert_eq!(values(sql).await, expected);
}

#[tokio::test]
async fn values_of_one_meaning_may_be_written_in_many_ways() {
    let cutoff = Value::Timestamp(JANUARY_3);
    for written in [
        "TIMESTAMP '2024-01-03 00:00:00'",
        "TIMESTAMP '2024-01-03T02:00:00+02:00'",
        "TIMESTAMP '2024-01-03 00:00:00 UTC'",
        "TIMESTAMP '2024-01-03 01:00:00 Europe/Berlin'",
        "CAST('2024-01-03T02:00:00+02:00' AS TIMESTAMP)",
        "'2024-01-03'::timestamp",
        "DATE '2024-01-03'",
        "'2024-01-03'",
        "'2024-01-03T00:00:00Z'",
        "\"2024-01-03\"",
        "1704240000000",
        "TIMESTAMP '2024-01-04T02:00:00+02:00' - INTERVAL '1 day'",
        "to_timestamp_millis(1704240000000)",
        "date_trunc('day', TIMESTAMP '2024-01-03 10:00:00')",
    ] {
        for sql in [
            format!("CALL system.expire_snapshots(table => 't', older_than => {written})"),
            format!("SELECT * FROM expire_snapshots('t', older_than => {written})"),
            format!("ALTER TABLE t EXECUTE expire_snapshots(older_than = {written})"),
        ] {
            assert_eq!(values(&sql).await, [("older_than", cutoff.clone())], "{sql}");
        }
    }
}

#[tokio::test]
async fn durations_before_now_and_as_lengths() {
    let week_ago = Value::Timestamp(NOW_MS - 7 * DAY_MS);
    for written in ["'7d'", "'1w'", "INTERVAL '7 days'", "INTERVAL '7' DAY", "'168h'"] {
        let sql = format!("CALL system.expire_snapshots(table => 't', older_than => {written})");
        assert_eq!(values(&sql).await, [("older_than", week_ago.clone())], "{sql}");
        for name in ["retention_threshold", "retention_period", "min_age"] {
            let sql = format!("SELECT * FROM expire_snapshots('t', {name} => {written})");
            assert_eq!(values(&sql).await, [("retention_threshold", Value::Duration(7 * DAY_MS))], "{sql}");
        }
    }
}

#[tokio::test]
async fn now_is_folded_to_the_start_of_the_statement() {
    for sql in [
        "CALL system.expire_snapshots(table => 't', older_than => now() - INTERVAL '7 days')",
        "SELECT * FROM expire_snapshots('t', older_than => now() - INTERVAL '7 days')",
    ] {
        let before = chrono::Utc::now().timestamp_millis();
        let [("older_than", Value::Timestamp(ms))] = values(sql).await[..] else { panic!("{sql}") };
        let after = chrono::Utc::now().timestamp_millis();
        assert!((before..=after).contains(&(ms + 7 * DAY_MS)), "{sql}");
    }
}

#[tokio::test]
async fn timestamps_without_a_zone_are_in_the_sessions_zone() {
    let (ctx, log) = session();
    run(&ctx, "SET datafusion.execution.time_zone = 'Europe/Berlin'").await.unwrap();
    let hour = 3_600_000;
    for (written, expected) in [
        ("TIMESTAMP '2024-01-03 00:00:00'", JANUARY_3 - hour),
        ("'2024-01-03'", JANUARY_3 - hour),
        ("DATE '2024-01-03'", JANUARY_3 - hour),
        ("TIMESTAMP '2024-01-03 00:00:00Z'", JANUARY_3),
        ("TIMESTAMP '2024-01-03 00:00:00+02:00' + INTERVAL '2 hours'", JANUARY_3),
        ("TIMESTAMP '2024-01-04 00:00:00' - INTERVAL '1 day'", JANUARY_3 - hour),
        ("date_trunc('day', TIMESTAMP '2024-01-03 00:30:00')", JANUARY_3 - hour),
        ("DATE '2024-01-10' - 7", JANUARY_3 - hour),
    ] {
        for sql in [
            format!("CALL system.expire_snapshots('t', {written})"),
            format!("SELECT * FROM expire_snapshots('t', {written})"),
        ] {
            assert_eq!(bound(&ctx, &log, &sql).await.timestamp("older_than"), Some(expected), "{sql}");
        }
    }
    let before = chrono::Utc::now().timestamp_millis();
    let now = bound(&ctx, &log, "CALL system.expire_snapshots('t', now())").await.timestamp("older_than").unwrap();
    assert!((before..before + 60_000).contains(&now));
}

#[tokio::test]
async fn lists_and_maps_in_every_spelling() {
    let ids = Value::Ids(vec![1, 9_007_199_254_740_993]);
    for written in
        ["[1, 9007199254740993]", "ARRAY[1, 9007199254740993]", "array(1, 9007199254740993)", "'1,9007199254740993'"]
    {
        for sql in [
            format!("CALL system.expire_snapshots(table => 't', snapshot_ids => {written})"),
            format!("SELECT * FROM expire_snapshots('t', snapshot_ids => {written})"),
        ] {
            assert_eq!(values(&sql).await, [("snapshot_ids", ids.clone())], "{sql}");
        }
    }
    let map = Value::Map(vec![("s3n,s3a".into(), "s3".into())]);
    for written in ["map('s3n,s3a', 's3')", "MAP {'s3n,s3a': 's3'}", "{'s3n,s3a': 's3'}", "'s3n,s3a=>s3'"] {
        for sql in [
            format!("CALL system.remove_orphan_files(table => 't', equal_schemes => {written})"),
            format!("SELECT * FROM remove_orphan_files('t', equal_schemes => {written})"),
        ] {
            assert_eq!(values(&sql).await, [("equal_schemes", map.clone())], "{sql}");
        }
    }
}

#[tokio::test]
async fn names_match_in_any_case_with_every_operator() {
    for sql in [
        "CALL system.remove_orphan_files(TABLE => 't', Prefix_Mismatch_Mode => 'ignore', DRY_RUN => 1)",
        "CALL system.remove_orphan_files(table = 't', prefix_mismatch_mode = 'Ignore', dry_run = true)",
        "CALL system.remove_orphan_files(table := 't', prefix_mismatch_mode := 'IGNORE', dry_run := TRUE)",
        "SELECT * FROM remove_orphan_files(TABLE => 't', Prefix_Mismatch_Mode => 'ignore', DRY_RUN => 1)",
        "SELECT * FROM remove_orphan_files(table = 't', prefix_mismatch_mode = 'Ignore', dry_run = true)",
        "SELECT * FROM remove_orphan_files(table := 't', prefix_mismatch_mode := 'IGNORE', dry_run := TRUE)",
    ] {
        let expected = [("dry_run", Value::Boolean(true)), ("prefix_mismatch_mode", Value::Text("IGNORE".into()))];
        assert_eq!(values(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn null_counts_as_not_given() {
    for sql in [
        "CALL system.expire_snapshots('t', NULL, 5)",
        "SELECT * FROM expire_snapshots('t', NULL, 5)",
        "CALL system.expire_snapshots(table => 't', older_than => NULL, retain_last => 5, snapshot_ids => NULL)",
    ] {
        assert_eq!(values(sql).await, [("retain_last", Value::Integer(5))], "{sql}");
    }
}

#[tokio::test]
async fn the_table_is_a_name_or_a_location_however_it_is_written() {
    for (sql, table) in [
        ("CALL system.expire_snapshots('db.t')", "db.t"),
        ("CALL system.expire_snapshots(table => db.t)", "db.t"),
        ("CALL system.expire_snapshots(table => \"db.t\")", "db.t"),
        ("CALL system.expire_snapshots(table => '`db`.`t`')", "`db`.`t`"),
        ("CALL system.expire_snapshots('s3://b/t')", "s3://b/t"),
        ("CALL system.expire_snapshots(schema => 's', table_name => 't')", "s.t"),
        ("CALL system.expire_snapshots(table_name => 't', SCHEMA => 's')", "s.t"),
        ("CALL h.system.expire_snapshots('db.t')", "h.db.t"),
        ("CALL h.system.expire_snapshots('h.db.t')", "h.db.t"),
        ("CALL h.system.expire_snapshots('t')", "h.public.t"),
        ("CALL \"My Lake\".system.expire_snapshots('db.t')", "\"My Lake\".db.t"),
        ("CALL system.expire_snapshots(schema => 'My Schema', table_name => 't')", "\"My Schema\".t"),
        ("CALL h.system.expire_snapshots('/data/t')", "/data/t"),
        ("SELECT * FROM expire_snapshots(db.t)", "db.t"),
        ("SELECT * FROM system.expire_snapshots(table => db.t)", "db.t"),
        ("SELECT * FROM h.system.EXPIRE_SNAPSHOTS('db.t')", "h.db.t"),
        ("SELECT * FROM TABLE(h.system.expire_snapshots(table => 'db.t'))", "h.db.t"),
        ("SELECT * FROM LATERAL expire_snapshots(dry_run => true, table => 'db.t')", "db.t"),
        ("ALTER TABLE a.b.c EXECUTE expire_snapshots", "a.b.c"),
        ("ALTER TABLE \"/data/t\" EXECUTE expire_snapshots()", "/data/t"),
        ("ALTER TABLE IF EXISTS `file:///data/t` EXECUTE expire_snapshots()", "file:///data/t"),
        ("ALTER TABLE \"my.db\".\"T\" EXECUTE expire_snapshots()", "\"my.db\".\"T\""),
        ("ALTER TABLE 's3://b/t' EXECUTE expire_snapshots()", "s3://b/t"),
    ] {
        let (ctx, log) = session();
        assert_eq!(bound(&ctx, &log, sql).await.table().unwrap(), table, "{sql}");
    }
}

#[tokio::test]
async fn table_functions_take_their_options_as_one_last_argument() {
    let expected = [
        ("dry_run", Value::Boolean(true)),
        ("older_than", Value::Timestamp(NOW_MS - 7 * DAY_MS)),
        ("retain_last", Value::Integer(5)),
        ("snapshot_ids", Value::Ids(vec![1, 2])),
    ];
    for options in [
        "{'retain_last': 5, 'older_than': '7d', 'dry_run': true, 'snapshot_ids': [1, 2]}",
        "MAP {'retain_last': '5', 'older_than': '7d', 'dry_run': 'true', 'snapshot_ids': '1,2'}",
        "'retain_last=5, older_than=7d, DRY_RUN = true, snapshot_ids=1,2'",
    ] {
        assert_eq!(values(&format!("SELECT * FROM expire_snapshots('t', {options})")).await, expected, "{options}");
    }
    let (ctx, _) = session();
    let error = error(&ctx, "SELECT * FROM expire_snapshots('t', 'retain_lst=5')").await;
    assert!(error.contains("there is no argument retain_lst"), "{error}");
}

#[tokio::test]
async fn a_session_without_the_planner_takes_positional_arguments() {
    // As in hosts that can register functions, but no planners.
    let (installed, log) = session();
    let ctx = SessionContext::new();
    for (name, function) in installed.state().table_functions() {
        ctx.register_udtf(name, Arc::clone(function.function()));
    }
    for (sql, table) in [
        ("SELECT * FROM expire_snapshots('db.t', TIMESTAMP '2024-01-03 00:00:00', 5)", "db.t"),
        ("SELECT * FROM expire_snapshots('db.t', {'older_than': '2024-01-03', 'retain_last': 5})", "db.t"),
        ("SELECT * FROM expire_snapshots('db.t', 'older_than=2024-01-03, retain_last=5')", "db.t"),
    ] {
        let arguments = bound(&ctx, &log, sql).await;
        assert_eq!(arguments.table().unwrap(), table, "{sql}");
        assert_eq!(arguments.timestamp("older_than"), Some(JANUARY_3), "{sql}");
        assert_eq!(arguments.integer("retain_last"), Some(5), "{sql}");
    }
    run(&ctx, "SELECT count(*) FROM expire_snapshots('t')").await.unwrap();
    assert_eq!(log.runs(), 1);
}

#[tokio::test]
async fn wrong_arguments_are_named_and_the_right_ones_listed() {
    for (arguments, why) in [
        ("table => 't', bogus => 1", "there is no argument bogus"),
        ("table => 't', table => 't'", "argument table is given twice (table_name means the same)"),
        ("table => 't', TABLE_NAME => 't'", "argument table is given twice"),
        ("table => 't', retain_last => 1, min_snapshots_to_keep => 2", "argument retain_last is given twice"),
        ("table => 't', retain_last => NULL, retain_last => 2", "argument retain_last is given twice"),
        ("table => 't', schema => 'a', schema => 'b'", "argument schema is given twice"),
        ("table => '/t', schema => 'a'", "argument schema can't be combined with a location"),
        ("table_name => 'a.t', schema => 's'", "argument schema: the name a.t has a schema already"),
        ("", "argument table is missing"),
        ("retain_last => 2", "argument table is missing"),
        ("table => NULL", "argument table is missing"),
        ("table => ''", "argument table: the name of the table is empty"),
        ("table => 5", "argument table: 5 (Int64) was given where a table name or location is expected"),
        ("table => 't', retain_last => '3'", "argument retain_last: the text '3' was given where an integer >= 1"),
        ("table => 't', retain_last => 3.7", "argument retain_last: 3.7 (Float64) was given"),
        ("table => 't', retain_last => true", "argument retain_last: true (Boolean) was given"),
        ("table => 't', retain_last => 0", "argument retain_last: 0 is less than 1"),
        ("table => 't', max_concurrent_deletes => -1", "argument max_concurrent_deletes: -1 is less than 1"),
        (
            "table => 't', retain_last => 18446744073709551615",
            "argument retain_last: 18446744073709551615 is too large",
        ),
        ("table => 't', dry_run => 'true'", "argument dry_run: the text 'true' was given where a boolean is expected"),
        ("table => 't', dry_run => 2", "argument dry_run: 2 (Int64) was given where a boolean is expected"),
        ("table => 't', snapshot_ids => 5", "argument snapshot_ids: 5 (Int64) was given where a list"),
        ("table => 't', snapshot_ids => ['x']", "argument snapshot_ids: x in the list is no snapshot id"),
        ("table => 't', snapshot_ids => [NULL]", "argument snapshot_ids: NULL in the list is no snapshot id"),
        ("table => 't', snapshot_ids => []", "argument snapshot_ids: the list is empty"),
        ("table => 't', snapshot_ids => '1,x'", "argument snapshot_ids: '1,x' is no list of snapshot ids"),
        ("table => 't', snapshot_ids => '99999999999999999999'", "an id that is no 64-bit number"),
        ("table => 't', older_than => 'garbage'", "argument older_than: 'garbage' is not a timestamp"),
        ("table => 't', older_than => TIMESTAMP 'garbage'", "argument older_than: 'garbage' is not a timestamp"),
        ("table => 't', older_than => TIMESTAMP '7d'", "argument older_than: '7d' is not a timestamp"),
        ("table => 't', older_than => '2024-02-31'", "argument older_than: '2024-02-31': there is no such date"),
        ("table => 't', older_than => 1704240000", "seconds were probably meant"),
        ("table => 't', older_than => true", "argument older_than: true (Boolean) was given where a timestamp"),
        ("table => 't', older_than => INTERVAL '1 month'", "no fixed length"),
        ("table => 't', retention_threshold => '7 moons'", "argument retention_threshold: '7 moons' is not a duration"),
        (
            "table => 't', retention_threshold => 7",
            "argument retention_threshold: '7' is not a duration: a bare number",
        ),
        ("table => 't', retention_threshold => '-1d'", "it is negative"),
        ("table => 't', retention_threshold => TIMESTAMP '2024-01-03'", "a timestamp was given where a duration"),
        ("table => 't', output => 'rows'", "argument output: 'rows' is none of 'metrics' | 'columns'"),
        ("table => 't', output => files", "argument output: files is a name, not a value"),
        ("table => 't', retain_last => random()", "argument retain_last: random() is not a constant"),
        ("table => 't', retain_last => (SELECT 1)", "is not a constant"),
        ("table => 't', retain_last => $1", "argument retain_last: $1 is not a constant"),
    ] {
        for sql in [
            format!("CALL system.expire_snapshots({arguments})"),
            format!("SELECT * FROM expire_snapshots({arguments})"),
        ] {
            let (ctx, log) = session();
            let error = error(&ctx, &sql).await;
            assert!(error.contains(why), "{sql}: {error}");
            assert!(error.contains("expire_snapshots: "), "{sql}: {error}");
            assert!(
                error.contains("Its arguments are: table (table name or location), older_than (timestamp)"),
                "{sql}: {error}"
            );
            assert_eq!(log.runs(), 0, "{sql}");
        }
    }
}

#[tokio::test]
async fn positions_and_names_mix_only_where_they_may() {
    for (sql, why) in [
        ("CALL system.expire_snapshots('t', retain_last => 1)", "can't be mixed in CALL"),
        ("CALL system.expire_snapshots(table => 't', NULL)", "can't be mixed in CALL"),
        ("SELECT * FROM expire_snapshots(table => 't', NULL)", "positional arguments must come before named ones"),
        ("ALTER TABLE t EXECUTE expire_snapshots(dry_run = 1, '2024-01-03')", "positional arguments must come before"),
        (
            "CALL system.expire_snapshots('t', NULL, 1, 1, true, [1], true, 9)",
            "too many positional arguments, at most 7",
        ),
        (
            "SELECT * FROM expire_snapshots('t', NULL, 1, 1, true, [1], true, 9)",
            "too many positional arguments, at most 7",
        ),
        ("ALTER TABLE t EXECUTE expire_snapshots('2024-01-03', 5)", "too many positional arguments, at most 1"),
        (
            "ALTER TABLE t EXECUTE expire_snapshots('2024-01-03', expire_before = '2024-01-03')",
            "expire_before is given twice",
        ),
        ("ALTER TABLE t EXECUTE expire_snapshots(table => 'x')", "the statement names the table already"),
    ] {
        let (ctx, _) = session();
        let error = error(&ctx, sql).await;
        assert!(error.contains(why), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_bare_name_is_a_table_and_never_a_column() {
    let (ctx, log) = session();
    let sql = "SELECT * FROM (VALUES ('t')) v(name), LATERAL expire_snapshots(v.name, dry_run => true) x";
    assert_eq!(bound(&ctx, &log, sql).await.table().unwrap(), "v.name");
    for sql in ["SELECT * FROM expire_snapshots(*)", "SELECT * FROM expire_snapshots('t', NULL, nonsense(1))"] {
        assert!(run(&ctx, sql).await.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn a_constant_without_a_value_is_an_error_in_datafusions_words() {
    let (ctx, _) = session();
    run(&ctx, "SET datafusion.execution.time_zone = 'Europe/Berlin'").await.unwrap();
    for (procedure, argument, why) in [
        ("expire_snapshots", "retain_last => CAST('x' AS INT)", "Cannot cast string 'x'"),
        ("expire_snapshots", "older_than => to_timestamp('garbage')", "garbage"),
        ("expire_snapshots", "older_than => to_timestamp('2026-03-29 02:30:00')", "error computing timezone offset"),
        ("remove_orphan_files", "equal_schemes => MAP {'a': 'b', 'a': 'c'}", "map key must be unique"),
    ] {
        for sql in [
            format!("CALL system.{procedure}(table => 't', {argument})"),
            format!("SELECT * FROM {procedure}('t', {argument})"),
        ] {
            let error = error(&ctx, &sql).await;
            assert!(error.contains(why) && !error.contains("is not a constant"), "{sql}: {error}");
        }
    }
    for argument in ["older_than => random()", "older_than => (SELECT now())", "retain_last => a + 1"] {
        let sql = format!("CALL system.expire_snapshots(table => 't', {argument})");
        let error = error(&ctx, &sql).await;
        assert!(!error.contains("has no value"), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_text_that_is_neither_timestamp_nor_duration_is_told_how_to_write_both() {
    let (ctx, _) = session();
    for text in ["7D", "P7D", "-7d", "soon"] {
        let error = error(&ctx, &format!("CALL system.expire_snapshots(table => 't', older_than => '{text}')")).await;
        assert!(error.contains("'2026-01-31'") && error.contains("'7d', '7 days'"), "{text}: {error}");
    }
    let error = error(&ctx, "CALL system.expire_snapshots(table => 't', retain_last => '5')").await;
    assert!(error.contains("where an integer >= 1 is expected"), "{error}");
}
