//! Branches, tags and snapshots that nothing refers to.

use iceberg_maintenance::fixtures::Ref;

use super::*;

/// Nothing is old enough, so only refs can go.
fn none() -> String {
    older_than(BEGIN_MS)
}

#[tokio::test]
async fn a_ref_goes_by_its_own_age_and_others_stay() {
    let aged = |name: &str| {
        let mut history = appends(2, &["a"]);
        let limit = |reference: Ref, own: &str| if own == name { reference.max_ref_age_ms(1) } else { reference };
        history.set_ref("tag", limit(Ref::tag(1), "tag"));
        history.set_ref("branch", limit(Ref::branch(1), "branch"));
        Place::new(history.build())
    };
    aged("tag").expire(&none()).await.is(&[1], "", [0; 6]).refs(&["branch", "main"]);
    aged("branch").expire(&none()).await.is(&[1], "", [0; 6]).refs(&["main", "tag"]);
}

#[tokio::test]
async fn an_aged_ref_releases_its_snapshots_in_the_same_run() {
    let mut tagged = appends(2, &["a"]);
    tagged.set_ref("tag", Ref::tag(1).max_ref_age_ms(20));
    tagged.append(day(2), ["b", "c"]);
    Place::new(tagged.build()).expire(&all()).await.is(&[2], "L1", [0, 0, 0, 0, 1, 0]).refs(&["main"]);

    let mut branched = appends(2, &["a"]);
    branched.set_ref("branch", Ref::branch(1).max_ref_age_ms(20));
    branched.delete_files(day(2), ["a"]);
    branched.append(day(3), ["b"]);
    let outcome = Place::new(branched.build()).expire(&all()).await;
    outcome.is(&[3], "a M1 M2 L1 L2", [1, 0, 0, 2, 2, 0]).refs(&["main"]);
}

#[tokio::test]
async fn a_tag_keeps_its_snapshot_and_a_branch_those_before_it() {
    let rolled_back = |name: &str, reference: Ref| {
        let mut history = appends(2, &["a", "b", "c"]);
        history.set_ref(name, reference);
        history.rollback_to(day(4), 1);
        Place::new(history.build())
    };
    let tagged = rolled_back("tag", Ref::tag(3)).expire(&older_than(day(3))).await;
    tagged.is(&[1, 3], "L2", [0, 0, 0, 0, 1, 0]).refs(&["main", "tag"]);
    let branched = rolled_back("branch", Ref::branch(3).max_snapshot_age_ms(i64::MAX));
    branched.expire(&older_than(day(3))).await.is(&[1, 2, 3], "", [0; 6]).refs(&["branch", "main"]);
}

#[tokio::test]
async fn each_branch_has_its_own_minimum_and_age() {
    let branch = |reference: Ref| {
        let mut history = appends(2, &["a", "b"]);
        history.stage(day(3), ["c"]);
        history.set_ref("main", Ref::branch(2).min_snapshots_to_keep(1).max_snapshot_age_ms(1));
        history.set_ref("branch", reference);
        Place::new(history.build())
    };
    let short = || Ref::branch(3).max_snapshot_age_ms(1);
    branch(short().min_snapshots_to_keep(3)).expire("").await.is(&[1, 2, 3], "", [0; 6]).refs(&["branch", "main"]);
    branch(short().min_snapshots_to_keep(1))
        .expire("")
        .await
        .is(&[2, 3], "L1", [0, 0, 0, 0, 1, 0])
        .refs(&["branch", "main"]);
    let unlimited = Ref::branch(3).max_snapshot_age_ms(i64::MAX);
    branch(unlimited).expire("").await.is(&[1, 2, 3], "", [0; 6]).refs(&["branch", "main"]);
    branch(Ref::branch(3).max_snapshot_age_ms(10))
        .expire("")
        .await
        .is(&[2, 3], "L1", [0, 0, 0, 0, 1, 0])
        .refs(&["branch", "main"]);
}

#[tokio::test]
async fn a_file_stays_until_the_last_branch_that_has_it_drops_it() {
    for version in [1, 2, 3] {
        let mut history = appends(version, &["a"]);
        history.branch("branch", 1);
        history.delete_files(day(2), ["a"]);
        history.append(day(3), ["b"]);
        let first = Place::new(history.table().clone());
        first.expire(&all()).await.is(&[1, 3], "M2 L2", [0, 0, 0, 1, 1, 0]).refs(&["branch", "main"]);

        history.forget(day(4), &[2]);
        history.on("branch").delete_files(day(5), ["a"]);
        history.append(day(6), ["c"]);
        let later = Place::new(history.build());
        later.expire(&all()).await.is(&[3, 5], "a M1 M4 L1 L4", [1, 0, 0, 2, 2, 0]).refs(&["branch", "main"]);
    }
}

#[tokio::test]
async fn heads_of_refs_are_no_ids_to_expire() {
    let mut history = appends(2, &["a"]);
    history.tag("tag", 1);
    history.append(day(2), ["b"]);
    let staged = history.stage(day(3), ["c"]);
    history.branch("branch", staged);
    let place = Place::new(history.build());
    for (id, name) in [(1, "tag"), (2, "main"), (3, "branch")] {
        let call = place.call("expire_snapshots", &format!(", snapshot_ids => [{id}]"));
        place.is_refused(&call, &format!("Cannot expire {id}. Still referenced by refs: [{name}]")).await;
    }
}

#[tokio::test]
async fn a_minimum_below_one_never_takes_the_head() {
    let property = |minimum: &str| {
        let mut table = appends(2, &["a", "b"]).build();
        table.property("history.expire.min-snapshots-to-keep", minimum);
        Place::new(table)
    };
    property("0").expire(&all()).await.is(&[2], "L1", [0, 0, 0, 0, 1, 0]).refs(&["main"]);
    let negative = property("-1");
    negative.is_refused(&negative.call("expire_snapshots", &all()), "history.expire.min-snapshots-to-keep").await;
    for minimum in [0, -1] {
        let mut history = appends(2, &["a", "b"]);
        history.set_ref("main", Ref::branch(2).min_snapshots_to_keep(minimum));
        let place = Place::new(history.build());
        place.is_refused(&place.call("expire_snapshots", &all()), "min-snapshots-to-keep").await;
    }
}
