//! Which texts are statements of ours, in which dialects, and what they are rewritten to.

use datafusion::sql::sqlparser::dialect::{GenericDialect, dialect_from_str};

use super::super::statement::{Form, Statement, parse};
use super::*;
use crate::rewrite;

const DIALECTS: [&str; 15] = [
    "generic",
    "mysql",
    "postgresql",
    "hive",
    "sqlite",
    "snowflake",
    "redshift",
    "mssql",
    "clickhouse",
    "bigquery",
    "ansi",
    "duckdb",
    "databricks",
    "spark",
    "oracle",
];

fn parsed(sql: &str) -> Result<Option<Statement>> {
    parse(sql, &GenericDialect)
}

/// The calls as `procedure@table(name, …)`.
fn calls(sql: &str) -> Vec<String> {
    let statement = parsed(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let calls = statement.unwrap_or_else(|| panic!("{sql} is not ours")).calls;
    let text = |(name, expr): &(Option<String>, _)| format!("{}={expr}", name.as_deref().unwrap_or("_"));
    let call = |call: &super::super::statement::Call| {
        let arguments: Vec<_> = call.arguments.iter().map(text).collect();
        let catalog = call.catalog.iter().map(|catalog| format!("{catalog}:")).collect::<String>();
        let target = call.target.iter().map(|target| format!("@{target}")).collect::<String>();
        format!("{catalog}{}{target}({})", call.procedure, arguments.join(", "))
    };
    calls.iter().map(call).collect()
}

#[test]
fn every_form_names_its_procedure_table_and_arguments() {
    for (sql, expected) in [
        ("CALL system.expire_snapshots('t')", "expire_snapshots(_='t')"),
        ("CALL h.system.expire_snapshots(table => 't')", "h:expire_snapshots(table='t')"),
        ("CALL h.SYSTEM.Expire_Snapshots(TABLE => 't')", "h:expire_snapshots(TABLE='t')"),
        ("call expire_snapshots ( 't' , 5 ) ;", "expire_snapshots(_='t', _=5)"),
        ("CALL /* c */ system.expire_snapshots('t') -- tail", "expire_snapshots(_='t')"),
        ("-- head\n/* a /* nested */ b */ CALL system.expire_snapshots()", "expire_snapshots()"),
        ("CALL remove_orphan_files", "remove_orphan_files()"),
        ("ALTER TABLE a.b EXECUTE expire_snapshots", "expire_snapshots@a.b()"),
        (
            "alter table if exists t execute EXPIRE_SNAPSHOTS(retention_threshold => '7d');;",
            "expire_snapshots@t(retention_threshold='7d')",
        ),
        ("ALTER TABLE t EXECUTE expire_snapshots('ts', dry_run = 1)", "expire_snapshots@t(_='ts', dry_run=1)"),
        ("ALTER TABLE t EXECUTE expire_snapshots(dry_run := true)", "expire_snapshots@t(dry_run=true)"),
        ("ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS RETAIN LAST 3", "expire_snapshots@t(retain_last=3)"),
        (
            "ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS BETWEEN ('a') AND ('b')",
            "expire_snapshots@t(from_timestamp='a', to_timestamp='b')",
        ),
        ("ALTER TABLE t EXECUTE DELETE ORPHAN-FILES", "remove_orphan_files@t()"),
        (
            "ALTER TABLE t EXECUTE delete orphan-files older than ('2024-01-03')",
            "remove_orphan_files@t(older_than='2024-01-03')",
        ),
        (
            "ALTER TABLE t EXECUTE DELETE ORPHAN-FILES OLDER THAN '2024-01-03'",
            "remove_orphan_files@t(older_than='2024-01-03')",
        ),
        ("VACUUM TABLE t EXPIRE SNAPSHOTS", "expire_snapshots@t()"),
        (
            "VACUUM TABLE t EXPIRE SNAPSHOTS older_than = '7d' retain_last = 2",
            "expire_snapshots@t(older_than='7d', retain_last=2)",
        ),
        (
            "VACUUM TABLE t REMOVE ORPHAN FILES older_than = '7d', location = 'data'",
            "remove_orphan_files@t(older_than='7d', location='data')",
        ),
    ] {
        assert_eq!(calls(sql), [expected], "{sql}");
    }
}

#[test]
fn vacuum_without_a_verb_calls_both_procedures() {
    for (sql, arguments) in [
        ("VACUUM a.t", ""),
        ("VACUUM TABLE a.t;", ""),
        ("VACUUM a.t RETAIN 168 HOURS", "retention_threshold='168h'"),
        ("VACUUM a.t DRY RUN", "dry_run=true"),
        ("vacuum a.t retain 1 hours dry run", "retention_threshold='1h', dry_run=true"),
    ] {
        let expected = [format!("expire_snapshots@a.t({arguments})"), format!("remove_orphan_files@a.t({arguments})")];
        assert_eq!(calls(sql), expected, "{sql}");
    }
}

#[test]
fn vacuum_of_a_catalog_is_one_call_and_a_table_may_be_called_so() {
    for (sql, expected) in [
        ("VACUUM CATALOG lake", "maintain_catalog@lake()"),
        ("VACUUM CATALOG \"My Lake\".db", "maintain_catalog@\"My Lake\".db()"),
        ("vacuum catalog c retain 48 hours dry run", "maintain_catalog@c(retention_threshold='48h', dry_run=true)"),
        ("VACUUM TABLE catalog EXPIRE SNAPSHOTS", "expire_snapshots@catalog()"),
        ("VACUUM catalog EXPIRE SNAPSHOTS", "expire_snapshots@catalog()"),
    ] {
        assert_eq!(calls(sql), [expected], "{sql}");
    }
    for table in ["VACUUM catalog", "VACUUM catalog DRY RUN", "VACUUM catalog.t", "VACUUM catalog RETAIN 5 HOURS"] {
        assert_eq!(calls(table).len(), 2, "{table}");
    }
}

#[test]
fn the_form_decides_what_positions_mean() {
    let form = |sql| parsed(sql).unwrap().unwrap().calls[0].form;
    assert_eq!(form("CALL expire_snapshots('t')"), Form::Call);
    assert_eq!(form("ALTER TABLE t EXECUTE expire_snapshots"), Form::Execute);
}

#[test]
fn explain_is_kept() {
    let explain = |sql| {
        let explain = parsed(sql).unwrap().unwrap().explain.unwrap();
        (explain.analyze, explain.verbose, explain.format)
    };
    assert_eq!(explain("EXPLAIN CALL expire_snapshots('t')"), (false, false, None));
    assert_eq!(explain("EXPLAIN ANALYZE VERBOSE VACUUM t"), (true, true, None));
    let tree = (false, false, Some("tree".to_string()));
    assert_eq!(explain("explain format tree ALTER TABLE t EXECUTE expire_snapshots"), tree);
}

#[test]
fn other_sql_is_handed_on() {
    for sql in [
        "",
        ";",
        "-- only a comment",
        "/* CALL system.expire_snapshots('t')",
        "SELECT 1",
        "SELECT 'CALL system.expire_snapshots(1)'",
        "SELECT * FROM expire_snapshots('t')",
        "/* CALL expire_snapshots('t') */ SELECT 1",
        "-- CALL expire_snapshots('t')\nSELECT 1",
        "EXPLAIN SELECT 1",
        "EXPLAIN FORMAT 5 SELECT 1",
        "CALL other('t')",
        "CALL my.other.procedure('t')",
        "CALL system.expire_snapshots('t",
        "ALTER TABLE t ADD COLUMN execute INT",
        "ALTER TABLE t RENAME TO execute",
        "ALTER VIEW v AS SELECT 1",
        "CALLS",
        "VACUUM",
        "VACUUM FULL t",
        "VACUUM FULL",
        "VACUUM (ANALYZE) t",
        "VACUUM SORT ONLY t",
        "VACUUM t TO 75 PERCENT",
        "INSERT INTO t VALUES ('ALTER TABLE t EXECUTE expire_snapshots')",
    ] {
        assert_eq!(parsed(sql).unwrap(), None, "{sql}");
    }
}

#[test]
fn statements_of_ours_that_do_not_fit_are_errors() {
    for (sql, why) in [
        ("CALL system.no_such_procedure('t')", "the procedures are expire_snapshots, remove_orphan_files,"),
        ("CALL h.system.rewrite_data_files('t')", "there is no procedure rewrite_data_files"),
        ("ALTER TABLE t EXECUTE optimize", "there is no procedure optimize"),
        ("CALL system.expire_snapshots('t') garbage", "Expected: the end of the statement, found: garbage"),
        ("CALL system.expire_snapshots('t'); SELECT 1", "only a single SQL statement"),
        ("CALL system.expire_snapshots('t'); CALL system.expire_snapshots('t')", "only a single SQL statement"),
        ("CALL system.expire_snapshots('t', )", "could not be parsed"),
        ("CALL system.expire_snapshots(, 't')", "could not be parsed"),
        ("CALL system.expire_snapshots('t' 5)", "a comma or )"),
        ("CALL system.expire_snapshots('t'", "a comma or )"),
        ("CALL system.expire_snapshots(table => )", "could not be parsed"),
        ("CALL cat.expire_snapshots('t')", "not in cat: write CALL system.expire_snapshots(…)"),
        ("CALL a.b.system.expire_snapshots('t')", "not in a.b.system"),
        ("ALTER TABLE t EXECUTE", "the procedures are expire_snapshots, remove_orphan_files,"),
        ("ALTER TABLE t EXECUTE;", "the procedure is missing after EXECUTE"),
        ("ALTER TABLE /data/t EXECUTE expire_snapshots", "ALTER TABLE \"/data/t\" EXECUTE …"),
        ("ALTER TABLE s3://b/a-b/t EXECUTE expire_snapshots()", "ALTER TABLE \"s3://b/a-b/t\" EXECUTE …"),
        ("VACUUM /data/t", "put the location in double quotes"),
        ("VACUUM TABLE file:/data/t EXPIRE SNAPSHOTS", "put the location in double quotes"),
        ("ALTER TABLE t EXECUTE expire_snapshots() SETTINGS x = 1", "the end of the statement"),
        ("ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS BETWEEN ('a')", "AND"),
        ("ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS RETAIN LAST", "could not be parsed"),
        ("ALTER TABLE t EXECUTE DELETE ORPHAN FILES", "could not be parsed"),
        ("VACUUM CATALOG c garbage", "the end of the statement"),
        ("VACUUM CATALOG c RETAIN 5 DAYS", "Expected: HOURS"),
        ("ALTER TABLE t EXECUTE maintain_catalog", "works on a catalog, not on a table"),
        ("VACUUM t RETAIN HOURS", "a number of hours"),
        ("VACUUM t RETAIN 5 DAYS", "Expected: HOURS"),
        ("VACUUM t DRY RUN now", "the end of the statement"),
        ("VACUUM TABLE t EXPIRE SNAPSHOTS 5", "an option such as"),
        ("VACUUM TABLE t garbage", "the end of the statement"),
    ] {
        let error = parsed(sql).map(|statement| panic!("{sql}: {statement:?}")).unwrap_err();
        assert!(matches!(error, Error::Statement { .. }), "{sql}: {error:?}");
        assert!(error.to_string().contains(why), "{sql}: {error}");
    }
}

#[test]
fn every_dialect_reads_every_form() {
    for dialect in DIALECTS {
        let parser_dialect = dialect_from_str(dialect).unwrap();
        for sql in [
            "CALL system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2024-01-03 00:00:00', retain_last => 5)",
            "CALL system.expire_snapshots('db.t', now() - INTERVAL '7 days', 5)",
            "CALL system.expire_snapshots(table = 'db.t', snapshot_ids = [1, 2])",
            "CALL system.expire_snapshots(table := 'db.t', snapshot_ids := ARRAY[1, 2])",
            "ALTER TABLE `db`.`t` EXECUTE expire_snapshots('2024-01-03', dry_run = 1)",
            "ALTER TABLE \"db\".\"t\" EXECUTE expire_snapshots(retention_threshold => '7d')",
            "ALTER TABLE t EXECUTE DELETE ORPHAN-FILES",
            "VACUUM t RETAIN 168 HOURS DRY RUN",
            "EXPLAIN ANALYZE CALL system.remove_orphan_files(table => 't', equal_schemes => map('s3a', 's3'))",
        ] {
            let statement = parse(sql, parser_dialect.as_ref());
            assert!(matches!(statement, Ok(Some(_))), "{dialect}: {sql}: {statement:?}");
        }
        let other = parse("SELECT 1", parser_dialect.as_ref()).unwrap();
        assert_eq!(other, None, "{dialect}");
    }
}

#[tokio::test]
async fn every_dialect_binds_the_same_arguments() {
    // A session has no Oracle dialect.
    for dialect in DIALECTS.into_iter().filter(|dialect| *dialect != "oracle") {
        let mut config = SessionConfig::new();
        config.options_mut().set("datafusion.sql_parser.dialect", dialect).unwrap();
        let (ctx, log) = session_with(config);
        let sql = "CALL system.expire_snapshots(table => 'db.t', snapshot_ids => [1, 2], \
                   expire_before => TIMESTAMP '2024-01-03T02:00:00+02:00')";
        let arguments = bound(&ctx, &log, sql).await;
        assert_eq!(arguments.table().unwrap(), "db.t", "{dialect}");
        assert_eq!(arguments.ids("snapshot_ids"), Some(vec![1, 2]), "{dialect}");
        assert_eq!(arguments.timestamp("expire_before"), Some(1_704_240_000_000), "{dialect}");
        let sql = "ALTER TABLE \"/data/t\" EXECUTE expire_snapshots(older_than => INTERVAL '7 days')";
        let arguments = bound(&ctx, &log, sql).await;
        assert_eq!(arguments.table().unwrap(), "/data/t", "{dialect}");
        assert_eq!(arguments.timestamp("older_than"), Some(NOW_MS - 7 * 86_400_000), "{dialect}");
    }
}

#[tokio::test]
async fn a_statement_is_the_same_after_rewriting() {
    for (sql, rewritten) in [
        ("CALL system.expire_snapshots('db.t', NULL, 5)", "SELECT * FROM expire_snapshots('db.t', NULL, 5)"),
        (
            "CALL h.system.expire_snapshots(table => db.t, older_than => TIMESTAMP '2024-01-03 00:00:00 UTC')",
            "SELECT * FROM h.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2024-01-03 00:00:00 UTC')",
        ),
        (
            "ALTER TABLE \"/da'ta/t\" EXECUTE expire_snapshots('2024-01-03', dry_run = 1)",
            "SELECT * FROM expire_snapshots('/da''ta/t', expire_before => '2024-01-03', dry_run => 1)",
        ),
        ("ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS('1,2')", "SELECT * FROM expire_snapshots('t', snapshot_ids => '1,2')"),
        ("ALTER TABLE t EXECUTE remove_orphan_files", "SELECT * FROM remove_orphan_files('t')"),
        (
            "VACUUM TABLE t EXPIRE SNAPSHOTS older_than = '7d' retain_last = 2",
            "SELECT * FROM expire_snapshots('t', older_than => '7d', retain_last => 2)",
        ),
        (
            "CALL system.expire_snapshots(schema => 's', table_name => 't', snapshot_ids => array(1, 2))",
            "SELECT * FROM expire_snapshots(schema => 's', table_name => 't', snapshot_ids => array(1, 2))",
        ),
        (
            "CALL system.remove_orphan_files(table => 't', equal_schemes => map('s3a,s3n', 's3'))",
            "SELECT * FROM remove_orphan_files(table => 't', equal_schemes => map('s3a,s3n', 's3'))",
        ),
    ] {
        assert_eq!(rewrite(sql).unwrap().as_deref(), Some(rewritten), "{sql}");
        let (ctx, log) = session();
        let direct = bound(&ctx, &log, sql).await;
        ctx.sql(rewritten).await.unwrap_or_else(|error| panic!("{rewritten}: {error}"));
        assert_eq!(log.bound().values, direct.values, "{sql}");
    }
}

#[test]
fn rewriting_keeps_explain_and_leaves_other_sql_alone() {
    assert_eq!(
        rewrite("EXPLAIN ANALYZE VERBOSE FORMAT tree CALL expire_snapshots('t')").unwrap().as_deref(),
        Some("EXPLAIN ANALYZE VERBOSE FORMAT tree SELECT * FROM expire_snapshots('t')")
    );
    assert_eq!(rewrite("SELECT 1").unwrap(), None);
    assert!(rewrite("VACUUM t").unwrap_err().to_string().contains("one query can't"));
    assert!(
        rewrite("CALL expire_snapshots('t', retain_last => 1)").unwrap_err().to_string().contains("can't be mixed")
    );
    assert!(rewrite("ALTER TABLE t EXECUTE expire_snapshots('a', 'b')").unwrap_err().to_string().contains("at most 1"));
}

#[tokio::test]
async fn other_table_functions_are_left_to_the_session() {
    let (ctx, _) = session();
    let message = error(&ctx, "SELECT * FROM no_such('t')").await;
    assert!(message.contains("table function 'no_such' not found"), "{message}");
    let series = run(&ctx, "SELECT count(*) FROM generate_series(1, 5)").await.unwrap();
    assert_eq!(number(&series), 5);
}

#[tokio::test]
async fn a_value_that_nests_without_end_is_refused_before_anybody_walks_over_it() {
    let (ctx, log) = session();
    let sum =
        |terms: usize| format!("CALL system.expire_snapshots(table => 't', retain_last => 1{})", " + 1".repeat(terms));
    bound(&ctx, &log, &sum(15)).await;
    for sql in [
        sum(100_000),
        format!("CALL system.expire_snapshots('t', '2026-01-01', abs(1{}))", " + 1".repeat(100_000)),
        format!("VACUUM TABLE t EXPIRE SNAPSHOTS retain_last = 1{}", " + 1".repeat(100_000)),
        format!("ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS BETWEEN (1{}) AND (2)", " + 1".repeat(100_000)),
    ] {
        let error = error(&ctx, &sql).await;
        assert!(error.contains("more than 40 words and signs"), "{error}");
    }
    let ids = (0..5000).map(|id| id.to_string()).collect::<Vec<_>>().join(", ");
    bound(&ctx, &log, &format!("CALL system.expire_snapshots(table => 't', snapshot_ids => ARRAY[{ids}])")).await;
}

#[tokio::test]
async fn a_format_that_is_no_word_is_not_ours() {
    let sql = "EXPLAIN FORMAT 'tree SELECT 1; DROP TABLE x; --' CALL system.expire_snapshots('t')";
    assert_eq!(crate::rewrite(sql).unwrap(), None);
}
