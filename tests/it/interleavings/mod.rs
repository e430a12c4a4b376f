//! Maintenance runs, writers and a reader at one table, in the orders in which their requests can come.
//!
//! All that two runs share is the store, so the points where order matters are its requests. Each actor is the real thing: a
//! statement in a session of its own, or a writer that commits as Hadoop catalogs do. They run on one thread over a store in
//! memory whose every request waits for its turn; when the runtime has nothing to do and every actor that lives waits for a
//! turn, one of them gets it. An actor that waits for a timer is waited for, so that whatever it does next can still come
//! before or after anything of the others. [`explorer`] says which orders are played, [`law`] what must hold in all of them.
//!
//! Why none of the tools that there are for it: loom and shuttle replace the locks, atomics and threads of what they check, and
//! a run is async over tokio and DataFusion, with tasks and blocking threads that neither can see. Turmoil simulates hosts and
//! networks and finds orders by chance only. Stateright checks a model: it would prove something about a copy of the order of
//! steps, not about the order that the product has.

mod explorer;
mod law;
mod scene;
mod scheduler;
mod store;
mod writer;

use explorer::{Effort, Explored, by_seed, explore, is_good};
use scene::{Acts, Before, LATER_MS, Scene};
use scheduler::Choices;
use store::{Lie, LiesAt};
use writer::Change;

const EXPIRE: &str = "CALL system.expire_snapshots(table => 's3://bucket/wh/t')";
const REMOVE_ORPHANS: &str = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t')";
const RESUME: &str = "CALL system.resume_maintenance(table => 's3://bucket/wh/t')";
const DEFER: &str = "CALL system.expire_snapshots(table => 's3://bucket/wh/t', deferred => '14d')";
const PURGE: &str = "CALL system.purge_deferred_files(table => 's3://bucket/wh/t', ignore_window => true)";

const EXPIRE_METADATA: &str = "CALL system.expire_snapshots(table => 's3://bucket/wh/t', delete_files => false)";
const RESTORE: &str = "CALL system.restore_snapshots(table => 's3://bucket/wh/t', run => 'RUN')";
const QUARANTINE: &str = "CALL system.expire_snapshots(table => 's3://bucket/wh/t', quarantine => true)";
const QUARANTINE_ORPHANS: &str = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t', quarantine => true)";
const RETURN: &str = "CALL system.restore_quarantined_files(table => 's3://bucket/wh/t', run => 'RUN')";
const PURGE_QUARANTINE: &str = "CALL system.purge_quarantined_files(table => 's3://bucket/wh/t', run => 'RUN')";

const APPEND: Change = |history| _ = history.append(LATER_MS, ["d"]);
const OVERWRITE: Change = |history| _ = history.overwrite(LATER_MS, ["c"], ["e"]);
const DELETE: Change = |history| _ = history.delete_files(LATER_MS, ["b"]);
const ROLL_BACK: Change = |history| _ = history.rollback_to(LATER_MS, 2);
const TAG: Change = |history| _ = history.tag("first", 1);
const BRANCH: Change = |history| _ = history.branch("side", 2);
const CHERRY_PICK: Change = |history| _ = history.cherry_pick(LATER_MS, 3);
const ADD_AGAIN: Change = |history| _ = history.re_add(LATER_MS, ["a"]);
/// Changes of which none is void when 1 to 3 have expired.
const FILES: &[Change] = &[OVERWRITE, APPEND];
const MANY: &[Change] = &[CHERRY_PICK, TAG, OVERWRITE, ROLL_BACK, APPEND];

/// For two actors.
const PAIR: Effort = Effort { switches: 2, schedules: 80, random: 10 };
/// For more.
const CROWD: Effort = Effort { switches: 2, schedules: 60, random: 30 };

fn pair(name: &str, before: &[Before], one: Acts, other: Acts) -> Explored {
    explore(&Scene::new(name, before, vec![one, other]), PAIR)
}

/// An expiry beside a writer that makes one change.
fn expiry_beside(name: &str, change: &'static [Change]) {
    let explored = pair(&format!("expiry, {name}"), &[], Acts::Calls(EXPIRE), Acts::Writes(change));
    let ends = |end: &str| explored.ends.get(end).copied().unwrap_or(0);
    assert!(ends("0: done") > 0 && ends("1: done") > 0, "{explored:?}");
}

#[test]
fn an_expiry_beside_writers_of_files() {
    expiry_beside("append", &[APPEND]);
    expiry_beside("overwrite", &[OVERWRITE]);
    expiry_beside("delete", &[DELETE]);
}

#[test]
fn an_expiry_beside_writers_that_go_back_to_what_expires() {
    expiry_beside("rollback", &[ROLL_BACK]);
    expiry_beside("tag", &[TAG]);
    expiry_beside("branch", &[BRANCH]);
    expiry_beside("cherry-pick", &[CHERRY_PICK]);
}

#[test]
fn a_reader_beside_an_expiry() {
    pair("expiry, reader", &[], Acts::Calls(EXPIRE), Acts::Reads);
}

#[test]
fn a_removal_of_orphans_beside_writers() {
    pair("orphans, append", &[], Acts::Calls(REMOVE_ORPHANS), Acts::Writes(&[APPEND]));
    pair("orphans, many changes", &[], Acts::Calls(REMOVE_ORPHANS), Acts::Writes(MANY));
}

#[test]
fn writers_that_name_files_which_are_not_new() {
    for (name, statement) in [("expiry", EXPIRE), ("orphans", REMOVE_ORPHANS)] {
        let late = |changes| Acts::WritesLate(changes);
        pair(&format!("{name}, a file again"), &[], Acts::Calls(statement), late(&[ADD_AGAIN]));
        pair(&format!("{name}, a late commit"), &[], Acts::Calls(statement), late(&[APPEND]));
    }
    let unfinished = [Before::RanWithoutDeletes(EXPIRE)];
    pair("resumption, a file again", &unfinished, Acts::Calls(RESUME), Acts::WritesLate(&[ADD_AGAIN]));
}

#[test]
fn two_expiries() {
    pair("expiry, expiry", &[], Acts::Calls(EXPIRE), Acts::Calls(EXPIRE));
}

#[test]
fn an_expiry_beside_a_removal_of_orphans() {
    pair("expiry, orphans", &[], Acts::Calls(EXPIRE), Acts::Calls(REMOVE_ORPHANS));
}

#[test]
fn runs_that_are_resumed_while_others_run() {
    pair("expiry, resumption", &[], Acts::Calls(EXPIRE), Acts::Calls(RESUME));
    let unfinished = [Before::RanWithoutDeletes(EXPIRE)];
    pair("resumption twice", &unfinished, Acts::Calls(RESUME), Acts::Calls(RESUME));
    pair("resumption, changes", &unfinished, Acts::Calls(RESUME), Acts::Writes(FILES));
    pair("expiry and orphans finish a run", &unfinished, Acts::Calls(EXPIRE), Acts::Calls(REMOVE_ORPHANS));
}

#[test]
fn deferred_files_that_are_purged_while_others_run() {
    pair("deferred expiry, purge", &[], Acts::Calls(DEFER), Acts::Calls(PURGE));
    let deferred = [Before::Ran(DEFER)];
    pair("purge twice", &deferred, Acts::Calls(PURGE), Acts::Calls(PURGE));
    pair("purge, orphans", &deferred, Acts::Calls(PURGE), Acts::Calls(REMOVE_ORPHANS));
    pair("purge, changes", &deferred, Acts::Calls(PURGE), Acts::Writes(FILES));
}

#[test]
fn snapshots_that_are_put_back_while_others_run() {
    let deferred = [Before::Ran(DEFER)];
    let explored = pair("restore, purge", &deferred, Acts::Calls(RESTORE), Acts::Calls(PURGE));
    let done = |end: &str| explored.ends.get(end).copied().unwrap_or(0);
    assert!(done("0: done") > 0 && done("1: done") > 0, "each comes first in some orders: {explored:?}");
    pair("restore twice", &deferred, Acts::Calls(RESTORE), Acts::Calls(RESTORE));
    pair("restore, expiry", &deferred, Acts::Calls(RESTORE), Acts::Calls(EXPIRE));
    pair("restore, orphans", &deferred, Acts::Calls(RESTORE), Acts::Calls(REMOVE_ORPHANS));
    pair("restore, changes", &deferred, Acts::Calls(RESTORE), Acts::Writes(FILES));
    let unfinished = [Before::RanWithoutDeletes(EXPIRE)];
    pair("restore, resumption", &unfinished, Acts::Calls(RESTORE), Acts::Calls(RESUME));
    pair("restore, expiry that resumes", &unfinished, Acts::Calls(RESTORE), Acts::Calls(EXPIRE));
    pair("restore, orphans of an unfinished run", &unfinished, Acts::Calls(RESTORE), Acts::Calls(REMOVE_ORPHANS));
    let of_metadata = [Before::Ran(EXPIRE_METADATA)];
    pair("restore, orphans that an expiry left", &of_metadata, Acts::Calls(RESTORE), Acts::Calls(REMOVE_ORPHANS));
    let two = vec![Acts::Calls(RESTORE), Acts::Calls(RESTORE), Acts::Calls(PURGE)];
    explore(&Scene::new("restore twice, purge", &deferred, two), CROWD);
}

#[test]
fn files_in_quarantine_while_others_run() {
    pair("quarantine, rollback", &[], Acts::Calls(QUARANTINE), Acts::Writes(&[ROLL_BACK]));
    pair("quarantine twice", &[], Acts::Calls(QUARANTINE), Acts::Calls(QUARANTINE_ORPHANS));
    let quarantined = [Before::Ran(QUARANTINE)];
    pair("return, purge", &quarantined, Acts::Calls(RETURN), Acts::Calls(PURGE_QUARANTINE));
    pair("return, orphans", &quarantined, Acts::Calls(RETURN), Acts::Calls(REMOVE_ORPHANS));
    pair("restore, purge of quarantine", &quarantined, Acts::Calls(RESTORE), Acts::Calls(PURGE_QUARANTINE));
}

#[test]
fn two_runs_a_writer_and_a_reader() {
    let everybody = |one, other| vec![Acts::Calls(one), Acts::Calls(other), Acts::Writes(MANY), Acts::Reads];
    explore(&Scene::new("two expiries in a crowd", &[], everybody(EXPIRE, EXPIRE)), CROWD);
    explore(&Scene::new("expiry and orphans in a crowd", &[], everybody(EXPIRE, REMOVE_ORPHANS)), CROWD);
}

/// A removal of orphans looks at the newest metadata; before it has read what is new there, a whole expiry takes it away.
#[test]
fn what_expires_between_a_look_and_its_reads_stops_no_removal_of_orphans() {
    let everybody = vec![Acts::Calls(EXPIRE), Acts::Calls(REMOVE_ORPHANS), Acts::Writes(MANY), Acts::Reads];
    let scene = Scene::new("expiry and orphans in a crowd", &[], everybody);
    let played = scene.play(by_seed(1_874_659_021));
    assert!(played.ends.iter().all(|end| is_good(end)) && played.violations.is_empty(), "{:?}", played.ends);
}

/// The listing is older than the hint then, which is no sign of lost metadata.
#[test]
fn a_commit_between_the_listing_and_the_version_hint() {
    for statement in [EXPIRE, REMOVE_ORPHANS, RESUME, PURGE] {
        let scene = Scene::new(statement, &[], vec![Acts::Calls(statement), Acts::Writes(&[APPEND])]);
        // The listing comes first, then all that the writer does.
        let played = scene.play(Choices::Given(vec![0, 1]));
        assert_eq!((played.ends, played.violations), (vec!["done".to_string(); 2], vec![]), "{statement}");
    }
}

/// Requests that are made at once are answered in any order.
#[test]
fn answers_that_come_in_another_order() {
    let by_chance = Effort { switches: 0, schedules: 0, random: 30 };
    for statement in [EXPIRE, REMOVE_ORPHANS] {
        let beside = vec![Acts::Calls(statement), Acts::Writes(MANY)];
        explore(&Scene::new(format!("{statement} at once"), &[], beside).at_once(8), by_chance);
    }
}

/// One answer is wrong, and looks right. Whatever the run comes to, nothing live is lost.
#[test]
fn a_store_that_lies_once() {
    for (before, statement) in [
        (vec![], EXPIRE),
        (vec![], REMOVE_ORPHANS),
        (vec![Before::RanWithoutDeletes(EXPIRE)], RESUME),
        (vec![Before::Ran(DEFER)], PURGE),
        (vec![Before::Ran(DEFER)], RESTORE),
        (vec![], QUARANTINE),
        (vec![Before::Ran(QUARANTINE)], RETURN),
        (vec![Before::Ran(QUARANTINE)], PURGE_QUARANTINE),
    ] {
        let scene = Scene::new(statement, &before, vec![Acts::Calls(statement)]);
        let honest = scene.play(Choices::Given(vec![]));
        assert!(honest.violations.is_empty() && is_good(&honest.ends[0]), "{:?}", honest.ends);
        for (request, step) in honest.steps.iter().enumerate() {
            for lie in [Lie::Empty, Lie::Outdated] {
                let played = scene.play_with(Choices::Given(vec![]), Some(LiesAt { request, lie }));
                let violations = played.violations;
                assert!(violations.is_empty(), "{statement}, {lie:?} at {request}, {step}: {violations:#?}");
            }
        }
    }
}
