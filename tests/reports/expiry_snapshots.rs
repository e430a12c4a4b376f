//! Family B, expiry: which snapshots, refs and log entries go.

use iceberg_maintenance::fixtures::{ContentFile, Ref, Schema, Table};
use serde_json::{Value, json};

use crate::case::{Case, Check, DAY_MS, HOUR_MS, Left, NOW_MS, days_ago, history};
use crate::watched::Kind;

const NO_FILES: [ContentFile; 0] = [];

/// The age limit is now, and one snapshot of each branch stays.
fn expire_all() -> String {
    format!("older_than => {NOW_MS}, retain_last => 1")
}

/// Empty snapshots on main, the first `count` days ago, one each day.
fn daily(count: i64) -> iceberg_maintenance::fixtures::History {
    let mut history = history(2);
    for day in 0..count {
        history.append(days_ago(count - day), NO_FILES);
    }
    history
}

/// The names of the manifest lists of snapshots.
fn lists(ids: impl IntoIterator<Item = i64>) -> Vec<String> {
    ids.into_iter().map(|id| format!("list {id}")).collect()
}

fn texts(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// Main has snapshots 1 to 5, tag `first` is 1, branch `audit` left main at 3 and has 6 and 7.
fn with_audit_branch(audit: Ref) -> Table {
    let mut history = daily(5);
    history.tag("first", 1).branch("audit", 3).on("audit");
    history.append(days_ago(1) + HOUR_MS, NO_FILES);
    history.append(days_ago(1) + 2 * HOUR_MS, NO_FILES);
    history.set_ref("audit", audit);
    history.build()
}

#[tokio::test]
async fn b020_tags_and_heads_of_other_branches_stay_and_no_ref_goes_by_accident() {
    let outcome = Case::of(with_audit_branch(Ref::branch(7))).expire(&expire_all()).run().await;
    let gone = lists([2, 3, 4, 6]);
    outcome.assert(Left { snapshots: &[1, 5, 7], refs: &["audit", "first", "main"], gone: &texts(&gone) });
    assert_eq!(outcome.reasons[&1], "keep: ref first points to it");
    assert_eq!(outcome.reasons[&7], "keep: ref audit points to it");
}

#[tokio::test]
async fn b020_a_branch_follows_its_own_policy_beyond_its_head() {
    let kept_by = [
        (Ref::branch(7).min_snapshots_to_keep(2), vec![1, 5, 6, 7], "among the 2 newest of branch audit"),
        (Ref::branch(7).max_snapshot_age_ms(DAY_MS), vec![1, 5, 6, 7], "not older than the age limit of branch audit"),
    ];
    for (audit, left, reason) in kept_by {
        let outcome = Case::of(with_audit_branch(audit)).expire(&expire_all()).run().await;
        let gone = lists([2, 3, 4]);
        outcome.assert(Left { snapshots: &left, refs: &["audit", "first", "main"], gone: &texts(&gone) });
        assert!(outcome.reasons[&6].contains(reason), "{}", outcome.reasons[&6]);
    }
}

#[tokio::test]
async fn b020_a_table_whose_metadata_has_no_refs_keeps_its_current_snapshot() {
    let mut table = daily(3).build();
    table.refs = None;
    let outcome = Case::of(table).expire(&expire_all()).run().await;
    outcome.assert(Left { snapshots: &[3], refs: &["main"], gone: &["list 1", "list 2"] });
}

#[tokio::test]
async fn b023_the_age_limit_of_a_ref_is_applied_and_its_removal_is_said() {
    let stale = |reference: Ref| {
        let mut history = history(2);
        history.append(days_ago(12), NO_FILES);
        history.branch("stale", 1).on("stale");
        history.append(days_ago(10), NO_FILES);
        history.set_ref("stale", reference).on("main");
        history.append(days_ago(9), NO_FILES);
        // Only an age limit that a ref has itself, or the table, lets it go.
        history.tag("release", 1);
        history
    };
    let mut by_property = stale(Ref::branch(2));
    by_property.table_mut().property("history.expire.max-ref-age-ms", &DAY_MS.to_string());
    let by_itself = stale(Ref::branch(2).max_ref_age_ms(DAY_MS)).build();

    let outcome = Case::of(by_itself).expire("").run().await;
    outcome.assert(Left { snapshots: &[1, 3], refs: &["main", "release"], gone: &["list 2"] });
    outcome.assert_metrics(&[("removed_refs_count", 1)]);
    assert_eq!(outcome.notice("stale"), "branch stale goes: its snapshot is older than the ref's age limit");
    assert!(outcome.reasons[&2].contains("only ref stale reached it"), "{}", outcome.reasons[&2]);

    let outcome = Case::of(by_property.build()).expire("").run().await;
    outcome.assert(Left { snapshots: &[3], refs: &["main"], gone: &["list 1", "list 2"] });
    outcome.assert_metrics(&[("removed_refs_count", 2)]);
}

#[tokio::test]
async fn b023_main_never_goes_whatever_age_limit_it_has() {
    let mut history = daily(2);
    history.set_ref("main", Ref::branch(2).max_ref_age_ms(1));
    let outcome = Case::of(history.build()).expire(&expire_all()).run().await;
    outcome.assert(Left { snapshots: &[2], refs: &["main"], gone: &["list 1"] });
}

/// Snapshots 1 (of 1976) and 2 (30 days old) on a branch and a tag of their own, 3 (a day old) on main.
fn of_all_ages() -> iceberg_maintenance::fixtures::History {
    let long_ago = days_ago(50 * 365);
    let mut history = history(2);
    history.table_mut().last_updated_ms = long_ago - DAY_MS;
    history.append(long_ago, NO_FILES);
    history.append(days_ago(30), NO_FILES);
    history.append(days_ago(1), NO_FILES);
    history
}

#[tokio::test]
async fn b024_keeping_for_ever_means_for_ever() {
    let for_ever = i64::MAX.to_string();
    let mut without_properties = of_all_ages();
    without_properties.tag("oldest", 1).branch("old", 2);
    let mut by_properties = of_all_ages();
    by_properties.table_mut().property("history.expire.max-snapshot-age-ms", &for_ever);
    let mut refs_by_property = without_properties.clone();
    refs_by_property.table_mut().property("history.expire.max-ref-age-ms", &for_ever);
    let mut by_ref = of_all_ages();
    by_ref.set_ref("main", Ref::branch(3).max_snapshot_age_ms(i64::MAX).max_ref_age_ms(i64::MAX));
    for history in [without_properties, by_properties, refs_by_property, by_ref] {
        let refs: Vec<_> = history.table().refs.iter().flatten().map(|(name, _)| name.clone()).collect();
        let outcome = Case::of(history.build()).expire("").run().await;
        outcome.assert(Left { snapshots: &[1, 2, 3], refs: &texts(&refs), gone: &[] });
    }
}

#[tokio::test]
async fn b024_an_age_that_is_no_number_of_64_bits_is_refused_by_name() {
    let properties =
        ["history.expire.max-snapshot-age-ms", "history.expire.max-ref-age-ms", "history.expire.min-snapshots-to-keep"];
    for property in properties {
        for value in ["9223372036854775808", "-1", "five days", "", "1.5"] {
            let mut table = of_all_ages().build();
            table.property(property, value);
            let error = Case::of(table).expire("").refused().await;
            assert!(error.contains(property) && error.contains(value), "{error}");
        }
    }
    for field in ["max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep"] {
        for value in [json!(u64::MAX), json!(-1), json!("1"), json!(1.5)] {
            let mut main = json!({"snapshot-id": 3, "type": "branch"});
            main[field] = value.clone();
            let mut table = of_all_ages().build();
            table.extra.insert("refs".into(), json!({"main": main}));
            let error = Case::of(table).expire("").refused().await;
            assert!(error.contains(field), "{field} {value}: {error}");
        }
    }
}

#[tokio::test]
async fn b027_an_ancestor_that_is_newer_than_its_child_does_not_come_back() {
    let mut history = history(2);
    for days in [90, 70, 80, 60] {
        history.append(days_ago(days), NO_FILES);
    }
    let arguments = format!("older_than => {}, retain_last => 1", days_ago(75));
    let outcome = Case::of(history.build()).expire(&arguments).run().await;
    outcome.assert(Left { snapshots: &[4], refs: &["main"], gone: &["list 1", "list 2", "list 3"] });
}

#[tokio::test]
async fn b029_a_snapshot_log_out_of_order_decides_nothing_and_keeps_its_order() {
    for keep in [3, 2] {
        let mut table = daily(3).build();
        table.snapshot_log = vec![(days_ago(2), 2), (days_ago(3), 1), (days_ago(1), 3)];
        let outcome = Case::of(table).expire(&format!("older_than => {NOW_MS}, retain_last => {keep}")).run().await;
        let expected = if keep == 3 { vec![2, 1, 3] } else { vec![3] };
        assert_eq!(outcome.table.numbers("snapshot-log", "snapshot-id"), expected);
        assert_eq!(outcome.snapshots.len() as i64, keep);
    }
}

#[tokio::test]
async fn b031_a_snapshot_that_fell_out_of_the_log_keeps_its_own_time() {
    let mut history = daily(3);
    history.tag("kept", 1);
    let logged = history.build();
    let mut unlogged = logged.clone();
    unlogged.omit.insert("snapshot-log".into());
    for (table, log) in [(logged, vec![3]), (unlogged, vec![])] {
        let outcome = Case::of(table).expire(&expire_all()).run().await;
        outcome.assert(Left { snapshots: &[1, 3], refs: &["kept", "main"], gone: &["list 2"] });
        assert_eq!(outcome.table.numbers("snapshot-log", "snapshot-id"), log);

        let session = crate::support::Session::new(Some(NOW_MS));
        let table = crate::support::literal(&outcome.place.table());
        let call = format!("CALL system.expire_snapshots(table => {table}, dry_run => true, output => 'snapshots')");
        let rows = session.rows(&call).await.unwrap();
        let times: Vec<_> = rows.iter().map(|row| row["committed_at"].clone().unwrap()).collect();
        assert_eq!(times, ["2025-12-29T00:00:00Z", "2025-12-31T00:00:00Z"]);
    }
}

#[tokio::test]
async fn b033_a_parent_that_an_earlier_expiry_removed_ends_the_chain() {
    let mut history = daily(4);
    history.branch("side", 2).on("side");
    history.append(days_ago(1) + HOUR_MS, NO_FILES);
    history.on("main").forget(days_ago(1) + 2 * HOUR_MS, &[1, 2, 3]);
    history.append(days_ago(1) + 3 * HOUR_MS, NO_FILES);
    let outcome = Case::of(history.build()).expire(&expire_all()).run().await;
    outcome.assert(Left { snapshots: &[5, 6], refs: &["main", "side"], gone: &["list 4"] });
}

#[tokio::test]
async fn b038_unused_schemas_go_from_a_table_that_never_had_a_snapshot() {
    let empty = || {
        let mut table = history(2).build();
        table.schemas = [0, 1, 2].map(|id| Schema::new(id, &[(1, "id", "long")])).to_vec();
        table.current_schema_id = 1;
        table
    };
    let mut absent = empty();
    absent.omit.insert("current-snapshot-id".into());
    let mut null = empty();
    null.extra.insert("current-snapshot-id".into(), Value::Null);
    for table in [empty(), absent, null] {
        let outcome = Case::of(table.clone()).expire("clean_expired_metadata => true").run().await;
        outcome.assert(Left { snapshots: &[], refs: &[], gone: &[] });
        outcome.assert_metrics(&[("removed_schemas_count", 2)]);
        assert_eq!(outcome.table.numbers("schemas", "schema-id"), [1]);

        let outcome = Case::of(table).expire("").run().await;
        // And the unused one that the harness adds.
        assert_eq!(outcome.table.list("schemas").len(), 3 + 1);
    }
}

#[tokio::test]
async fn b041_an_idle_table_costs_no_write() {
    let mut with_cleaning = daily(1).build();
    with_cleaning.schemas.push(Schema::new(7, &[(1, "id", "long")]));
    let calls = [
        (daily(1).build(), ""),
        (daily(1).build(), "clean_expired_metadata => true"),
        (daily(9).build(), "retain_last => 9"),
        (with_cleaning, "retain_last => 1"),
        (history(2).build(), ""),
    ];
    for (table, arguments) in calls {
        let case = Case::of(table).in_store().expire(arguments);
        let case = case.just_before_the_call(|place| drop(place.watched().take_requests()));
        let outcome = case.run().await;
        crate::support::deleted_nothing(&outcome.metrics).unwrap();
        let writes = outcome.place.watched().take_requests();
        let writes = writes.iter().filter(|(kind, _)| [Kind::Put, Kind::Delete, Kind::Other].contains(kind)).count();
        assert_eq!(writes, 0, "{arguments}");
    }
}

#[tokio::test]
async fn b044_every_combination_of_arguments_works_or_is_refused_by_name() {
    let table = || daily(9).build();
    let older_than = days_ago(3);
    let works: [(&str, &str, &[i64]); 5] = [
        ("", "NULL, NULL", &[5, 6, 7, 8, 9]),
        ("older_than => {older_than}", "{older_than}", &[7, 8, 9]),
        ("retain_last => 8", "NULL, 8", &[2, 3, 4, 5, 6, 7, 8, 9]),
        ("older_than => {older_than}, retain_last => 4", "{older_than}, 4", &[6, 7, 8, 9]),
        ("snapshot_ids => [2, 8]", "NULL, NULL, NULL, NULL, [2, 8]", &[1, 3, 4, 5, 6, 7, 9]),
    ];
    for (named, positional, left) in works {
        let written = |template: &str| template.replace("{older_than}", &older_than.to_string());
        let gone = lists((1..10).filter(|id| !left.contains(id)));
        let outcome = Case::of(table()).expire(&written(named)).run().await;
        outcome.assert(Left { snapshots: left, refs: &["main"], gone: &texts(&gone) });

        let statement = format!("CALL system.expire_snapshots({{table}}, {}) /* snapshot_ids */", written(positional));
        let case = Case::of(table()).statement(&statement);
        let outcome = case.without(Check::DryRun, "positional arguments have no dry run").run().await;
        outcome.assert(Left { snapshots: left, refs: &["main"], gone: &texts(&gone) });
    }
    for other in ["older_than => {older_than}", "retain_last => 2", "older_than => {older_than}, retain_last => 2"] {
        let other = other.replace("{older_than}", &older_than.to_string());
        let error = Case::of(table()).expire(&format!("{other}, snapshot_ids => [2]")).refused().await;
        let named = if other.contains("older_than") { "older_than" } else { "retain_last" };
        assert!(error.contains("snapshot_ids") && error.contains(named), "{error}");
    }
}

#[tokio::test]
async fn b046_the_effective_limits_and_where_they_come_from_are_said() {
    let ten_of_a_minute = || {
        let mut history = history(2);
        for second in 0..10 {
            history.append(NOW_MS - 60_000 + second * 1000, NO_FILES);
        }
        history
    };
    let mut by_property = ten_of_a_minute();
    by_property.table_mut().property("history.expire.min-snapshots-to-keep", "4");
    by_property.table_mut().property("history.expire.max-snapshot-age-ms", "0");
    let five_days = days_ago(5);
    let cases = [
        (ten_of_a_minute(), "retain_last => 3".to_string(), 10, five_days, "default", "3 (argument)"),
        (ten_of_a_minute(), format!("older_than => {NOW_MS}"), 1, NOW_MS, "argument", "1 (default)"),
        (ten_of_a_minute(), format!("older_than => {NOW_MS}, retain_last => 3"), 3, NOW_MS, "argument", "3 (argument)"),
        (by_property, String::new(), 4, NOW_MS, "table property", "4 (table property)"),
    ];
    for (history, arguments, left, older_than, source, retain_last) in cases {
        let outcome = Case::of(history.build()).expire(&arguments).run().await;
        assert_eq!(outcome.snapshots.len(), left, "{arguments}");
        let limits = outcome.notice("older_than = ");
        assert!(limits.contains(&format!("{older_than} ms, {source})")), "{limits}");
        assert!(limits.contains(&format!("retain_last = {retain_last}")), "{limits}");
    }
}

#[tokio::test]
async fn b049_a_time_without_a_zone_is_of_the_session_and_is_echoed_with_its_offset() {
    let moment = |text: &str| chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis();
    let zones = [
        ("+05:30", "2025-12-29 05:30:00", "2025-12-29T00:00:00+00:00"),
        ("Asia/Kolkata", "2025-12-29 05:30:00", "2025-12-29T00:00:00+00:00"),
        ("UTC", "2025-12-29 00:00:00", "2025-12-29T00:00:00+00:00"),
        ("America/New_York", "2025-12-28 19:00:00", "2025-12-29T00:00:00+00:00"),
    ];
    for (zone, written, means) in zones {
        let case = Case::of(daily(5).build()).set(&format!("SET datafusion.execution.time_zone = '{zone}'"));
        let outcome = case.expire(&format!("older_than => TIMESTAMP '{written}'")).run().await;
        outcome.assert(Left { snapshots: &[3, 4, 5], refs: &["main"], gone: &["list 1", "list 2"] });
        let limits = outcome.notice("older_than = ");
        let ms = moment(means).to_string();
        assert!(limits.contains(&ms) && limits.contains("2025-12-29T00:00:00") && limits.contains('Z'), "{limits}");
    }
}

#[tokio::test]
async fn b049_a_time_that_the_clocks_skip_is_refused_and_one_that_they_repeat_is_the_earlier() {
    let berlin = |written: &str| {
        let case = Case::of(daily(5).build()).set("SET datafusion.execution.time_zone = 'Europe/Berlin'");
        case.expire(&format!("older_than => TIMESTAMP '{written}'"))
    };
    let error = berlin("2025-03-30 02:30:00").refused().await;
    assert!(error.contains("older_than") && error.contains("does not exist in its time zone"), "{error}");
    // The earlier of the two expires less.
    let outcome = berlin("2025-10-26 02:30:00").run().await;
    assert!(outcome.notice("older_than = ").contains("2025-10-26T00:30:00"), "{:?}", outcome.notices);
}

/// Notes in a snapshot's summary that a Flink job committed a checkpoint with it.
fn checkpoint(table: &mut Table, snapshot_id: i64, job: &str) {
    let summary = &mut table.snapshot_mut(snapshot_id).unwrap().summary;
    summary.insert("flink.job-id".into(), job.into());
    summary.insert("flink.operator-id".into(), "sink".into());
    summary.insert("flink.max-committed-checkpoint-id".into(), snapshot_id.to_string());
}

/// Six snapshots, one a day; jobs `x` and `y` committed checkpoints with 1 and 3, and with 4.
fn streamed() -> Table {
    let mut table = daily(6).build();
    for (id, job) in [(1, "x"), (3, "x"), (4, "y")] {
        checkpoint(&mut table, id, job);
    }
    table
}

#[tokio::test]
async fn b050_the_last_checkpoint_of_each_streaming_job_can_still_be_found() {
    let outcome = Case::of(streamed()).expire(&expire_all()).run().await;
    // A sink looks for it from the head from child to parent: so what lies between stays as well.
    outcome.assert(Left { snapshots: &[3, 4, 5, 6], refs: &["main"], gone: &["list 1", "list 2"] });
    assert_eq!(outcome.reasons[&3], "keep: protected: streaming checkpoint of job x");
    assert_eq!(outcome.reasons[&4], "keep: protected: streaming checkpoint of job y");
    assert_eq!(outcome.reasons[&5], "keep: protected: leads from the branch to the streaming checkpoint of job y");
    assert!(outcome.reasons[&2].starts_with("expire: older than the age limit"), "{}", outcome.reasons[&2]);
    let notice = outcome.notice("streaming jobs");
    assert!(notice.contains("3 snapshots") && notice.contains("(x, y)"), "{notice}");
    assert!(notice.contains("ignore_streaming_checkpoints => true"), "{notice}");
}

#[tokio::test]
async fn b050_the_last_offsets_of_a_kafka_connect_sink_can_still_be_found() {
    let mut table = daily(6).build();
    for (id, key) in [(1, "kafka.connect.offsets.control.a"), (3, "kafka.connect.offsets.control.a")] {
        table.snapshot_mut(id).unwrap().summary.insert(key.into(), "{\"0\":7}".into());
    }
    let outcome = Case::of(table).expire(&expire_all()).run().await;
    outcome.assert(Left { snapshots: &[3, 4, 5, 6], refs: &["main"], gone: &["list 1", "list 2"] });
    assert!(outcome.reasons[&3].contains("kafka.connect.offsets.control.a"), "{}", outcome.reasons[&3]);
}

#[tokio::test]
async fn b050_the_protection_can_be_switched_off_and_ends_with_jobs_that_are_long_silent() {
    let arguments = format!("{}, ignore_streaming_checkpoints => true", expire_all());
    let outcome = Case::of(streamed()).expire(&arguments).run().await;
    assert_eq!(outcome.snapshots, [6].into());

    let mut silent = daily(9).build();
    checkpoint(&mut silent, 2, "x");
    assert_eq!(Case::of(silent.clone()).expire(&expire_all()).run().await.snapshots, [9].into());
    let a_day_earlier = format!("older_than => {}, retain_last => 1", days_ago(1));
    let outcome = Case::of(silent).now(days_ago(1)).expire(&a_day_earlier).run().await;
    assert_eq!(outcome.snapshots, (2..10).collect());
}

#[tokio::test]
async fn b050_only_snapshots_that_say_job_and_checkpoint_are_protected() {
    let mut table = daily(4).build();
    table.snapshot_mut(2).unwrap().summary.insert("flink.job-id".into(), "x".into());
    let without_job = json!({"operation": "append", "flink.max-committed-checkpoint-id": "7"});
    table.snapshot_mut(3).unwrap().extra.insert("summary".into(), without_job);
    let outcome = Case::of(table.clone()).expire(&expire_all()).run().await;
    assert_eq!(outcome.snapshots, [4].into());

    let no_texts = json!({"operation": "append", "flink.job-id": 7, "flink.max-committed-checkpoint-id": [1]});
    table.snapshot_mut(3).unwrap().extra.insert("summary".into(), no_texts);
    assert_eq!(Case::of(table).expire(&expire_all()).run().await.snapshots, [4].into());
}

#[tokio::test]
async fn b050_a_checkpoint_is_looked_for_on_every_branch_that_stays() {
    let mut history = daily(4);
    history.branch("stream", 2).on("stream");
    for hours in [1, 2, 3] {
        history.append(days_ago(1) + hours * HOUR_MS, NO_FILES);
    }
    let mut staying = history.build();
    checkpoint(&mut staying, 6, "x");
    let mut going = staying.clone();
    let refs = going.refs.as_mut().unwrap();
    refs.insert("stream".into(), Ref::branch(7).max_ref_age_ms(HOUR_MS));

    let outcome = Case::of(staying).expire(&expire_all()).run().await;
    let gone = lists([1, 2, 3, 5]);
    outcome.assert(Left { snapshots: &[4, 6, 7], refs: &["main", "stream"], gone: &texts(&gone) });
    assert_eq!(Case::of(going).expire(&expire_all()).run().await.snapshots, [4].into());
}

#[tokio::test]
async fn b050_naming_a_checkpoint_among_snapshot_ids_is_refused_unless_it_is_meant() {
    for id in [3, 4, 5] {
        let error = Case::of(streamed()).expire(&format!("snapshot_ids => [2, {id}]")).refused().await;
        assert!(error.contains(&format!("Cannot expire {id}")) && error.contains("of job"), "{error}");
        assert!(error.contains("ignore_streaming_checkpoints => true"), "{error}");
    }
    let outcome = Case::of(streamed()).expire("snapshot_ids => [1, 2]").run().await;
    assert_eq!(outcome.snapshots, (3..7).collect());
    let meant = "snapshot_ids => [3], ignore_streaming_checkpoints => true";
    assert_eq!(Case::of(streamed()).expire(meant).run().await.snapshots, [1, 2, 4, 5, 6].into());
    let range = format!("from_timestamp => {}, to_timestamp => {NOW_MS}", days_ago(6));
    assert_eq!(Case::of(streamed()).expire(&range).run().await.snapshots, (3..7).collect());
}

#[tokio::test]
async fn b052_a_snapshot_that_something_still_reads_stays_when_it_is_named() {
    let mut history = history(2);
    for day in 1..10 {
        history.append(days_ago(20 - day), [format!("f{day}")]);
    }
    // The compaction that began at 5 is not done; 6 to 9 removed what it reads.
    history.delete_files(days_ago(5), ["f1", "f2"]);
    let arguments = format!("{}, protected_snapshot_ids => [5]", expire_all());
    let outcome = Case::of(history.build()).expire(&arguments).run().await;
    let gone = lists([1, 2, 3, 4, 6, 7, 8, 9]);
    outcome.assert(Left { snapshots: &[5, 10], refs: &["main"], gone: &texts(&gone) });
    assert_eq!(outcome.reasons[&5], "keep: protected: among protected_snapshot_ids");
}

#[tokio::test]
async fn b052_protection_holds_beside_every_other_rule() {
    let tagged = || {
        let mut history = daily(5);
        history.set_ref("old", Ref::tag(2).max_ref_age_ms(1));
        history.build()
    };
    let outcome = Case::of(tagged()).expire(&format!("{}, protected_snapshot_ids => [2, 5]", expire_all())).run().await;
    outcome.assert(Left { snapshots: &[2, 5], refs: &["main"], gone: &["list 1", "list 3", "list 4"] });

    let range = format!("from_timestamp => {}, to_timestamp => {NOW_MS}, protected_snapshot_ids => [3]", days_ago(9));
    let outcome = Case::of(daily(5).build()).expire(&range).run().await;
    outcome.assert(Left { snapshots: &[3, 5], refs: &["main"], gone: &["list 1", "list 2", "list 4"] });

    let outcome = Case::of(daily(5).build()).expire("snapshot_ids => [1], protected_snapshot_ids => [3]").run().await;
    outcome.assert(Left { snapshots: &[2, 3, 4, 5], refs: &["main"], gone: &["list 1"] });
}

#[tokio::test]
async fn b052_a_protected_snapshot_that_does_not_exist_or_is_to_go_is_refused() {
    for (arguments, says) in [
        (
            format!("{}, protected_snapshot_ids => [5, 77]", expire_all()),
            "snapshot 77 of protected_snapshot_ids does not exist",
        ),
        (
            "snapshot_ids => [1, 2], protected_snapshot_ids => [2]".into(),
            "snapshot 2 is in snapshot_ids and in protected_snapshot_ids",
        ),
    ] {
        let error = Case::of(daily(5).build()).expire(&arguments).refused().await;
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test]
async fn b052_a_session_can_have_a_floor_below_which_nothing_expires() {
    let case = Case::of(daily(5).build()).set("SET iceberg_maintenance.expire_snapshots_min_retention = '3d'");
    let error = case.expire("snapshot_ids => [3, 4]").refused().await;
    assert!(error.contains("shorter than the minimum retention") && error.contains("snapshot"), "{error}");
}

#[tokio::test]
async fn b053_a_reader_sees_beforehand_that_its_offset_would_go_and_can_hold_it_by_a_tag_or_by_its_id() {
    // The reader has read up to 3 of 8.
    let outcome = Case::of(daily(8).build()).expire(&expire_all()).run().await;
    assert_eq!(outcome.reasons[&3], "expire: older than the age limit of branch main and beyond its minimum");
    assert_eq!(outcome.snapshots, [8].into());

    let mut marked = daily(8);
    marked.tag("reader", 3);
    assert_eq!(Case::of(marked.build()).expire(&expire_all()).run().await.snapshots, [3, 8].into());
    let held = format!("{}, protected_snapshot_ids => [3, 4, 5, 6, 7]", expire_all());
    assert_eq!(Case::of(daily(8).build()).expire(&held).run().await.snapshots, (3..9).collect());
}
