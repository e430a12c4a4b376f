//! Tables that Spark wrote, and what the reference answered to each call: the same call to us must leave the same
//! snapshots, refs, schemas, specs, statistics entries and files.
//!
//! Every run of every case is made on a fresh copy, between standing checks: a dry run first (changes nothing, reports
//! the numbers of the real run), then the real run, then the same run again (nothing left to do, nothing written). What
//! must go is computed from the files (`table`) and the rules (`model`) and compared with the record, so that the
//! record, the model and the crate agree pairwise. Where we mean to differ, [`DIFFERENCES`] says how and why.
//!
//! The full collection lies beside the clone (`../shared/corpus`); `tests/data/corpus` has a few of its cases.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray};
use datafusion::datasource::MemTable;
use serde_json::Value;

use crate::model::{self, Policy};
use crate::support::{
    Disk, MetricRows, Session, deleted_nothing, disk, ensure, files, literal, same_numbers, set_modified, shared,
    unchanged, unpack,
};
use crate::table::{COUNTS, Kind, Table, only_shrunk, plain_path};

/// What we do where the record is not followed.
enum Ours {
    /// Refuse; the message holds all of these. Nothing changes.
    Refuses(&'static [&'static str]),
    /// Do what the rules say by [`model`] and plain set difference; the record is not asked.
    FollowsTheRules,
    /// The same, on a table with files of expired snapshots that can't be read: how many.
    SkipsUnreadable(i64),
    /// Delete these files (relative to the case) as well.
    AlsoDeletes(&'static [&'static str]),
    /// Do what the reference did in this run.
    AsIn(&'static str),
    /// Delete nothing.
    DeletesNothing,
}

struct Difference {
    case: &'static str,
    /// Run ids, with or without `.core`. A step of a sequence is `id[step]`.
    runs: &'static [&'static str],
    ours: Ours,
    /// What the reference does, and why we don't.
    why: &'static str,
}

impl Difference {
    fn refuses(&self) -> bool {
        matches!(self.ours, Ours::Refuses(_))
    }
}

/// Every run in which we mean to differ from the reference.
///
/// Beside these: `older_than => '2020-01-01'`, which the runs with `snapshot_ids` pass to keep the age rule from
/// acting, is left out, because `snapshot_ids` alone means "these and no others" here; runs of the core API (`.core`)
/// are compared with the reachability difference, not with the files that its incremental cleanup damages or leaves
/// behind; `.crc` files are Hadoop's own, which its file system deletes along with the file beside them and we never.
const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "damaged_expired",
        runs: &["all", "older2", "again[0]"],
        ours: Ours::SkipsUnreadable(1),
        why: "the reference commits, then fails at the unreadable manifest of an expired snapshot, and its files stay \
              forever; a file that only the dead set needs is skipped and counted",
    },
    Difference {
        case: "damaged_expired",
        runs: &["again[2]"],
        ours: Ours::AlsoDeletes(&[]),
        why: "the reference finds all 12 files that its failed expiry left; ours left only what the damaged manifest named",
    },
    Difference {
        case: "damaged_retained",
        runs: &["all", "older2"],
        ours: Ours::Refuses(&["snap-", "manifest list"]),
        why: "the reference commits before it notices (and core deletes files): a needed file is read before the commit",
    },
    Difference {
        case: "data_path_elsewhere",
        runs: &["orphans_case_root"],
        ours: Ours::Refuses(&["location"]),
        why: "the folder above the table is not the table's: the reference deletes the neighbours' files",
    },
    Difference {
        case: "data_path_elsewhere",
        runs: &["orphans_location_is_file"],
        ours: Ours::Refuses(&["version-hint.text"]),
        why: "a file can't be listed: the reference finds nothing in it",
    },
    Difference {
        case: "empty_and_single",
        runs: &["location_one_from_t"],
        ours: Ours::Refuses(&["location"]),
        why: "the folder is another table's, whose live files the reference deletes",
    },
    Difference {
        case: "empty_and_single",
        runs: &["id_unknown"],
        ours: Ours::Refuses(&["4242424242"]),
        why: "the reference ignores unknown ids: a mistyped id must not look like success",
    },
    Difference {
        case: "v1_append",
        runs: &["id_unknown"],
        ours: Ours::Refuses(&["123456789012345"]),
        why: "the reference ignores unknown ids: a mistyped id must not look like success",
    },
    Difference {
        case: "v1_append",
        runs: &["ids_and_default_age"],
        ours: Ours::FollowsTheRules,
        why: "the reference also expires by the table's default age: snapshot_ids means these and no others",
    },
    Difference {
        case: "v2_bucket_append",
        runs: &["ids_and_older"],
        ours: Ours::Refuses(&["snapshot_ids", "older_than"]),
        why: "the reference does both: the two contradict each other here",
    },
    Difference {
        case: "main_retention",
        runs: &["ids"],
        ours: Ours::FollowsTheRules,
        why: "the reference also expires by the retention of main: snapshot_ids means these and no others",
    },
    Difference {
        case: "refs_retention",
        runs: &["id_free"],
        ours: Ours::FollowsTheRules,
        why: "the reference also drops aged refs: snapshot_ids means these and no others",
    },
    Difference {
        case: "refs_retention",
        runs: &["id_of_tag_that_expires"],
        ours: Ours::Refuses(&["3896982657078131253", "tag_old"]),
        why: "the reference drops the aged tag in the same call: with snapshot_ids no ref goes, so its head can't",
    },
    Difference {
        case: "no_refs_no_log",
        runs: &["default", "older2", "ids"],
        ours: Ours::FollowsTheRules,
        why: "the reference fails with NoSuchElementException: refs and snapshot-log are optional fields",
    },
    Difference {
        case: "orphans_basic",
        runs: &["loc_dots"],
        ours: Ours::Refuses(&[".."]),
        why: "the reference resolves '..': where it leads depends on links",
    },
    Difference {
        case: "orphans_basic",
        runs: &["prefix_listing_slash", "prefix_listing_3slash"],
        ours: Ours::AsIn("prefix_listing"),
        why: "the reference's hidden-file rule depends on how the location is spelt in this mode, and deletes hidden files",
    },
    Difference {
        case: "orphans_prefix_modes",
        runs: &["list_default_error", "mode_error_upper", "mode_ignore", "mode_delete_dry", "equal_schemes_only"],
        ours: Ours::Refuses(&["location"]),
        why: "s3a://bkt/… is not inside file:/…: the reference compares the location with nothing but the list's text",
    },
    Difference {
        case: "orphans_prefix_modes",
        runs: &["location_filter_startswith"],
        ours: Ours::DeletesNothing,
        why: "the reference takes a location for a prefix of text: …/orph is no folder that holds …/orphan.parquet",
    },
    Difference {
        case: "orphans_special_names",
        runs: &["dry", "default", "prefix_listing"],
        ours: Ours::AlsoDeletes(&["t/data/colon:name.parquet"]),
        why: "the reference lists the file and then can't delete it: Hadoop's paths know no colon in a name",
    },
];

/// Files of a case that make every call by location unclear, so that it is refused; then they are taken away.
const UNCLEAR: &[(&str, &[&str])] = &[
    // A newest version that can't be read, and a second naming scheme beside the first.
    ("orphans_basic", &["t/metadata/v100.metadata.json", "t/metadata/00000-deadbeef.metadata.json"]),
    // A newest version that can't be read.
    ("jdbc_mixed", &["t/metadata/00009-deadbeef-0000-4000-8000-000000000000.metadata.json"]),
];

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        const CASES: &[&str] = &[$(stringify!($case)),*];

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                run_case(stringify!($case)).await;
            }
        )*
    };
}

cases!(
    crc_side_files,
    damaged_expired,
    damaged_retained,
    data_path_elsewhere,
    dup_paths,
    empty_and_single,
    evolution_clean_metadata,
    gc_disabled,
    gzip_metadata,
    jdbc_mixed,
    main_retention,
    metadata_log_trim,
    no_refs_no_log,
    object_storage,
    orphans_basic,
    orphans_prefix_modes,
    orphans_special_names,
    partition_stats,
    refs_retention,
    rewrite_data_files,
    rewrite_manifests,
    rollback,
    table_stats,
    v1_append,
    v2_bucket_append,
    v2_cow,
    v2_eqdelete,
    v2_identity_overwrite,
    v2_mor,
    v3_dv,
    v3_dv_shared,
    wap_cherrypick,
);

#[test]
fn every_case_of_the_collection_has_a_test() {
    let kept_here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus");
    let folders = |root: &Path| {
        let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
        let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let tested: BTreeSet<_> = CASES.iter().map(|case| case.to_string()).collect();
    let local = folders(&kept_here);
    assert!(local.len() >= 4 && local.is_subset(&tested), "{local:?}");
    if shared("corpus").exists() {
        let index = fs::read_to_string(shared("corpus/INDEX.md")).unwrap();
        let rows = index.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        let indexed: BTreeSet<_> = rows.filter(|name| *name != "case").map(str::to_string).collect();
        assert_eq!(indexed, tested, "INDEX.md and the tests name different cases");
        assert_eq!(folders(&shared("corpus")), tested, "folders and tests name different cases");
    }
}

#[test]
fn every_difference_names_a_run_that_exists() {
    for difference in DIFFERENCES {
        let Some(case) = Case::find(difference.case) else { continue };
        let ids: Vec<_> = case.runs().iter().map(|run| text(&run["id"])).collect();
        for run in difference.runs {
            let id = run.split('[').next().unwrap();
            assert!(ids.contains(&id), "{}: no run {run}, only {ids:?}", difference.case);
            assert!(difference.why.len() > 20);
        }
    }
}

async fn run_case(name: &str) {
    let Some(case) = Case::find(name) else {
        assert!(!shared("corpus").exists(), "case {name} is missing from {}", shared("corpus").display());
        eprintln!("{name}: not run, it is only in the full collection ({})", shared("corpus").display());
        return;
    };
    let mut failures = vec![];
    if let Err(failure) = case.the_reader_agrees_with_the_record() {
        failures.push(failure);
    }
    for run in case.runs() {
        let id = text(&run["id"]);
        let outcome = match run["op"].as_str() {
            Some("sequence") => case.sequence(id, run["steps"].as_array().unwrap()).await,
            _ => case.one(id, run).await,
        };
        if let Err(failure) = outcome {
            failures.push(format!("{id}: {failure}"));
        }
    }
    assert!(failures.is_empty(), "{name}: {} failures\n{}", failures.len(), failures.join("\n"));
}

/// A case of the collection.
struct Case {
    name: String,
    folder: PathBuf,
    expected: Value,
}

/// An unpacked copy of a case; its locations mean what lies below `root`.
struct Copy {
    folder: tempfile::TempDir,
    case: String,
}

impl Case {
    fn find(name: &str) -> Option<Self> {
        let local = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus");
        let folder = [shared("corpus"), local].into_iter().map(|root| root.join(name)).find(|case| case.exists())?;
        let expected = fs::read_to_string(folder.join("expected.json")).unwrap();
        Some(Self { name: name.into(), folder, expected: serde_json::from_str(&expected).unwrap() })
    }

    fn runs(&self) -> &[Value] {
        self.expected["runs"].as_array().unwrap()
    }

    /// The path of the case's folder, as its locations spell it.
    fn root(&self) -> String {
        plain_path(text(&self.expected["root"]))
    }

    fn unpack(&self) -> Copy {
        let folder = tempfile::tempdir().unwrap();
        let warehouse = folder.path().join("tmp/ice-corpus/warehouse");
        fs::create_dir_all(&warehouse).unwrap();
        unpack(&self.folder.join("table.tar.zst"), &warehouse);
        for (path, facts) in self.expected["before"]["files"].as_object().unwrap() {
            if !path.ends_with('/') {
                set_modified(&warehouse.join(&self.name).join(path), facts[1].as_u64().unwrap());
            }
        }
        Copy { folder, case: self.root() }
    }

    fn difference(&self, run: &str) -> Option<&'static Difference> {
        let plain = run.replace(".core", "");
        DIFFERENCES.iter().find(|d| d.case == self.name && d.runs.contains(&plain.as_str()))
    }

    /// The test's own reading of manifests equals what was recorded when the tables were made.
    fn the_reader_agrees_with_the_record(&self) -> Result<(), String> {
        let copy = self.unpack();
        self.take_away_what_is_unclear(&copy);
        let table = copy.table("t");
        for (id, recorded) in self.expected["before"]["reachable_by_snapshot"].as_object().unwrap() {
            let read = table.readable_files_of(&[id.parse().unwrap()].into());
            let of_kind = |kinds: &[Kind]| {
                let files = read.iter().filter(|(_, kind)| kinds.contains(kind));
                files.map(|(path, _)| copy.relative(path)).collect::<BTreeSet<_>>()
            };
            for (name, kinds) in [
                ("data", &[Kind::Data][..]),
                ("position_delete", &[Kind::PositionDeletes, Kind::DeletionVector]),
                ("equality_delete", &[Kind::EqualityDeletes]),
                ("manifest", &[Kind::Manifest]),
                ("manifest_list", &[Kind::ManifestList]),
            ] {
                let (read, recorded) = (of_kind(kinds), texts(&recorded[name]));
                ensure!(read == recorded, "reading snapshot {id}: {name} {read:?}, recorded {recorded:?}");
            }
        }
        Ok(())
    }

    fn unclear(&self) -> &'static [&'static str] {
        UNCLEAR.iter().find(|(case, _)| *case == self.name).map_or(&[], |(_, files)| files)
    }

    fn take_away_what_is_unclear(&self, copy: &Copy) {
        for file in self.unclear() {
            fs::remove_file(copy.path().join(file)).unwrap();
        }
    }

    async fn one(&self, id: &str, run: &Value) -> Result<(), String> {
        let copy = self.unpack();
        if !self.unclear().is_empty() {
            let call = Call::new(self, run, &[]);
            // A call that is wrong in itself may be refused for that first.
            let wrong = !run["error"].is_null() || matches!(self.difference(id), Some(d) if d.refuses());
            let words: &[&str] = if wrong { &[] } else { &["metadata.json"] };
            refused(&copy, &call, run, words).await.map_err(|e| format!("unclear metadata: {e}"))?;
            self.take_away_what_is_unclear(&copy);
        }
        self.step(&copy, id, run).await.map(|_| ())
    }

    /// Steps one after the other on one copy. In the end the same files are gone as in the reference's sequence.
    async fn sequence(&self, id: &str, steps: &[Value]) -> Result<(), String> {
        let copy = self.unpack();
        self.take_away_what_is_unclear(&copy);
        let before = files(&disk(&copy.path()));
        for (i, step) in steps.iter().enumerate() {
            let id = format!("{id}[{i}]");
            self.step(&copy, &id, step).await.map_err(|e| format!("step {i}: {e}"))?;
        }
        let after = files(&disk(&copy.path()));
        let gone: BTreeSet<_> = before.difference(&after).cloned().collect();
        let recorded = steps.iter().flat_map(|step| self.recorded_deletions(step)).collect::<BTreeSet<_>>();
        ensure!(gone == recorded, "after all steps {gone:?} are gone, recorded {recorded:?}");
        Ok(())
    }

    /// The files that the reference deleted, without those that only exist for Hadoop or were taken away before.
    fn recorded_deletions(&self, run: &Value) -> BTreeSet<String> {
        let mut deleted = texts(&run["files_deleted"]);
        deleted.retain(|file| !file.ends_with(".crc") || !file.rsplit('/').next().unwrap().starts_with('.'));
        deleted.retain(|file| !self.unclear().contains(&file.as_str()));
        deleted
    }

    async fn step(&self, copy: &Copy, id: &str, run: &Value) -> Result<(), String> {
        let mut call = Call::new(self, run, &[]);
        let difference = self.difference(id).map(|difference| &difference.ours);
        match difference {
            Some(Ours::Refuses(words)) => return refused(copy, &call, run, words).await,
            None if !run["error"].is_null() => return refused(copy, &call, run, self.words_of_error(run)).await,
            _ => {}
        }
        let owned_by_a_catalog = text(&self.expected["catalog"]).starts_with("jdbc");
        if owned_by_a_catalog && call.is_expiry() {
            let before = disk(&copy.path());
            let session = copy.session(self, run);
            session.metrics(&call.dry_run()).await.map_err(|e| format!("a dry run needs no owner: {e}"))?;
            let refusal =
                session.run(&call.sql()).await.err().ok_or("expired by location although a catalog owns it")?;
            ensure!(refusal.contains("no_catalog"), "the refusal names no way out: {refusal}");
            unchanged("a refused call", &before, &disk(&copy.path()))?;
            call = Call::new(self, run, &[("no_catalog", "true")]);
        }
        match call.is_expiry() {
            true => self.expire(copy, &call, run, difference).await,
            false => self.remove_orphans(copy, &call, id, run, difference).await,
        }
    }

    /// Words that our message shares with the reference's, where both refuse.
    fn words_of_error(&self, run: &Value) -> &'static [&'static str] {
        let message = format!("{} {}", text(&run["error"]["class"]), text(&run["error"]["message"]));
        let known: &[(&str, &'static [&'static str])] = &[
            ("GC is disabled", &["GC is disabled"]),
            ("Cannot expire", &["snapshot"]),
            ("Number of snapshots to retain", &["retain_last"]),
            ("max_concurrent_deletes", &["max_concurrent_deletes"]),
            ("Invalid mode", &["prefix_mismatch_mode", "ERROR", "IGNORE", "DELETE"]),
            ("less than 24 hours", &["older_than"]),
            ("file_path does not exist", &["file_path"]),
            ("TABLE_OR_VIEW_NOT_FOUND", &["nosuch"]),
            ("Couldn't load table", &["nosuch"]),
            ("FileNotFoundException", &["nope"]),
            ("Job aborted", &["can't be read"]),
            ("IcebergParseException", &["snapshot_ids"]),
        ];
        known.iter().find(|(theirs, _)| message.contains(theirs)).map_or(&[], |(_, words)| words)
    }

    async fn expire(&self, copy: &Copy, call: &Call, run: &Value, ours: Option<&Ours>) -> Result<(), String> {
        let before = copy.table(&call.table);
        let verdict = model::decide(&before.metadata, &call.policy(), now(run));
        let expired: BTreeSet<_> = before.snapshot_ids().difference(&verdict.snapshots).copied().collect();
        let dead = before.dead_without(&expired)?;
        let counts = dead.counts();
        let mut gone: BTreeSet<_> = dead.paths().iter().map(|path| copy.relative(path)).collect();
        // Which old metadata files go with the commit is the table's own rule, not expiry's.
        let recorded = self.recorded_deletions(run);
        gone.extend(recorded.iter().filter(|file| file.ends_with(".metadata.json")).cloned());

        if ours.is_none() && call.table == "t" {
            let state = &run["state"];
            let (recorded_ids, mut recorded_refs) = (ids(&state["snapshots"]), keys(&state["refs"]));
            if before.metadata.get("refs").is_none() && !recorded_ids.is_empty() {
                recorded_refs.insert("main".into());
            }
            ensure!(
                verdict.snapshots == recorded_ids,
                "the model keeps {:?}, recorded {recorded_ids:?}",
                verdict.snapshots
            );
            ensure!(verdict.refs == recorded_refs, "the model keeps {:?}, recorded {recorded_refs:?}", verdict.refs);
            if run["engine"] == "spark" {
                ensure!(gone == recorded, "set difference deletes {gone:?}, recorded {recorded:?}");
                let row = COUNTS.map(|name| run["result"][name].as_i64().unwrap());
                ensure!(counts == row, "set difference counts {counts:?}, recorded {row:?}");
            }
        }

        let disk_before = disk(&copy.path());
        let metrics = perform(copy, self, call, run).await?;
        let (disk_after, after) = (disk(&copy.path()), copy.table(&call.table));
        let really_gone = difference(&disk_before, &disk_after);
        ensure!(really_gone == gone, "deleted {really_gone:?}, expected {gone:?}");
        let reported = COUNTS.map(|name| metrics[name]);
        ensure!(reported == counts, "reported {COUNTS:?} = {reported:?}, expected {counts:?}");
        ensure!(metrics["deleted_snapshots_count"] == expired.len() as i64, "{metrics:?}");
        ensure!(metrics["retained_snapshots_count"] == verdict.snapshots.len() as i64, "{metrics:?}");
        let skipped = if let Some(Ours::SkipsUnreadable(count)) = ours { *count } else { 0 };
        ensure!(metrics["skipped_missing_metadata_count"] == skipped, "{metrics:?}");
        ensure!(after.snapshot_ids() == verdict.snapshots, "snapshots left: {:?}", after.snapshot_ids());
        ensure!(after.refs() == verdict.refs, "refs left: {:?}", after.refs());
        let log = before.numbers("snapshot-log", "snapshot-id");
        let log_left = after.numbers("snapshot-log", "snapshot-id");
        let expected_log = model::snapshot_log(&log, &expired);
        ensure!(log_left == expected_log, "snapshot log left: {log_left:?}, expected {expected_log:?}");
        ensure!(after.statistics_of(&expired).is_empty(), "statistics entries of expired snapshots were left");
        self.live_files_are_there(copy, &after, &disk_before, &disk_after)?;

        if before.text == after.text {
            let committed = ours.is_none() && run["committed"] == true && call.table == "t";
            ensure!(!committed, "the reference committed, we did not");
            return unchanged("a run with nothing to do", &disk_before, &disk_after);
        }
        only_shrunk(&before.text, &after.text)?;
        self.metadata_files_are_right(call, run, ours, &disk_before, &disk_after)?;
        self.metadata_is_as_recorded(call, run, ours, &before, &after)
    }

    /// Exactly one metadata file came, and a version hint that names it.
    fn metadata_files_are_right(
        &self,
        call: &Call,
        run: &Value,
        ours: Option<&Ours>,
        before: &Disk,
        after: &Disk,
    ) -> Result<(), String> {
        let added = difference(after, before);
        ensure!(added.len() == 1, "files added: {added:?}");
        if text(&self.expected["catalog"]).starts_with("hadoop") {
            let changed: Vec<_> = before
                .iter()
                .filter(|(path, entry)| {
                    !entry.is_folder && after.get(*path).is_some_and(|now| now.content_hash != entry.content_hash)
                })
                .map(|(path, _)| path.clone())
                .collect();
            let hint = format!("{}/metadata/version-hint.text", call.table);
            ensure!(changed == [hint], "files whose content changed: {changed:?}");
            if ours.is_none() && run["committed"] == true {
                let recorded = texts(&run["files_added"]);
                ensure!(added.is_subset(&recorded), "added {added:?}, recorded {recorded:?}");
            }
        }
        Ok(())
    }

    fn metadata_is_as_recorded(
        &self,
        call: &Call,
        run: &Value,
        ours: Option<&Ours>,
        before: &Table,
        after: &Table,
    ) -> Result<(), String> {
        let state = &run["state"];
        let cleans = run["args"]["clean_expired_metadata"] == true;
        let (schemas, specs) = (after.numbers("schemas", "schema-id"), after.numbers("partition-specs", "spec-id"));
        if !cleans {
            ensure!(schemas == before.numbers("schemas", "schema-id"), "schemas left: {schemas:?}");
            ensure!(specs == before.numbers("partition-specs", "spec-id"), "specs left: {specs:?}");
        }
        if ours.is_some() || call.table != "t" {
            return Ok(());
        }
        for (what, left, recorded) in [
            ("schemas", schemas, list(&state["schemas"])),
            ("specs", specs, list(&state["specs"])),
            ("statistics", after.numbers("statistics", "snapshot-id"), list(&state["statistics"])),
            (
                "partition statistics",
                after.numbers("partition-statistics", "snapshot-id"),
                list(&state["partition_statistics"]),
            ),
            ("snapshot log", after.numbers("snapshot-log", "snapshot-id"), list(&state["snapshot_log"])),
        ] {
            let sorted = |mut list: Vec<i64>| {
                list.sort();
                list
            };
            let (left, recorded) = (sorted(left), sorted(recorded));
            ensure!(left == recorded, "{what} left: {left:?}, recorded {recorded:?}");
        }
        let log = after.list("metadata-log").len() as u64;
        ensure!(Some(log) == state["metadata_log_len"].as_u64(), "the metadata log has {log} entries");
        Ok(())
    }

    async fn remove_orphans(
        &self,
        copy: &Copy,
        call: &Call,
        id: &str,
        run: &Value,
        ours: Option<&Ours>,
    ) -> Result<(), String> {
        let dry = run["args"]["dry_run"] == true;
        let followed = match ours {
            Some(Ours::AsIn(other)) => self.runs().iter().find(|run| run["id"] == *other).unwrap(),
            _ => run,
        };
        let mut listed: BTreeSet<_> = texts(&followed["orphan_file_locations"])
            .iter()
            .map(|location| copy.relative(&plain_path(location)))
            .collect();
        listed.retain(|file| !self.unclear().contains(&file.as_str()));
        let mut gone = if dry { listed.clone() } else { self.recorded_deletions(followed) };
        let before = disk(&copy.path());
        match ours {
            Some(Ours::DeletesNothing) => gone.clear(),
            Some(Ours::AlsoDeletes(more)) => gone.extend(more.iter().map(|file| file.to_string())),
            _ => {}
        }
        // A step before this one may have deleted what the reference's step left to this one.
        gone.retain(|file| before.contains_key(file) || file.contains("://"));

        let state_before = copy.table("t");
        let metrics = if dry {
            let session = copy.session(self, run);
            let metrics = session.metrics(&call.dry_run()).await?;
            let planned = planned(&session, copy, call).await?;
            unchanged("a dry run", &before, &disk(&copy.path()))?;
            ensure!(planned == gone, "planned {planned:?}, expected {gone:?}");
            metrics
        } else {
            perform(copy, self, call, run).await?
        };
        let after = disk(&copy.path());
        if !dry {
            let really_gone = difference(&before, &after);
            ensure!(really_gone == gone, "deleted {really_gone:?}, expected {gone:?}");
            ensure!(difference(&after, &before).is_empty(), "files added: {:?}", difference(&after, &before));
        }
        let reported = metrics["deleted_files_count"];
        ensure!(reported == gone.len() as i64, "{id}: reported {reported} files, expected {gone:?}");
        let state_after = copy.table("t");
        ensure!(state_before.text == state_after.text, "orphan removal changed the metadata");
        self.live_files_are_there(copy, &state_after, &before, &after)
    }

    /// What any snapshot of the table needs, and was there before, is there still.
    fn live_files_are_there(&self, copy: &Copy, table: &Table, before: &Disk, after: &Disk) -> Result<(), String> {
        let snapshots = table.snapshot_ids();
        let needed = table.needed_by(&snapshots)?.into_keys();
        let lost: Vec<_> = needed
            .chain(table.statistics_of(&snapshots))
            .map(|path| copy.relative(&path))
            .filter(|path| before.contains_key(path) && !after.contains_key(path))
            .collect();
        ensure!(lost.is_empty(), "files that the table needs are gone: {lost:?}");
        Ok(())
    }
}

impl Copy {
    fn path(&self) -> PathBuf {
        self.folder.path().join(self.case.trim_start_matches('/'))
    }

    fn table(&self, name: &str) -> Table {
        Table::read(self.folder.path(), &format!("{}/{name}", self.case))
    }

    /// A plain path relative to the case; paths elsewhere stay as they are.
    fn relative(&self, path: &str) -> String {
        path.strip_prefix(&self.case).map_or(path, |path| path.trim_start_matches('/')).to_string()
    }

    fn session(&self, case: &Case, run: &Value) -> Session {
        let session = Session::below(self.folder.path(), Some(now(run)));
        if case.name == "orphans_prefix_modes" {
            register_file_lists(&session, self, case);
        }
        session
    }
}

/// A recorded call, in our words.
struct Call {
    procedure: String,
    table: String,
    arguments: Vec<(String, String)>,
    args: Value,
}

impl Call {
    fn new(case: &Case, run: &Value, more: &[(&str, &str)]) -> Self {
        let args = run["args"].clone();
        let table = args["table"].as_str().and_then(|name| name.split('.').nth(1)).unwrap_or("t").to_string();
        let location = format!("file:{}/{table}", case.root());
        let mut arguments = vec![("table".to_string(), literal(&location))];
        for (name, value) in args.as_object().unwrap() {
            let value = match (name.as_str(), value) {
                ("table", _) => continue,
                // Only there to keep the age rule from acting beside the ids.
                ("older_than", Value::String(time)) if has_ids(&args) && time.starts_with("2020-01-01") => continue,
                ("older_than", Value::String(time)) => format!("TIMESTAMP {}", literal(time)),
                ("snapshot_ids", _) => {
                    format!("[{}]", recorded_ids(case, value).map(|id| id.to_string()).collect::<Vec<_>>().join(", "))
                }
                ("location", Value::String(location)) => {
                    literal(&location.replace("{root}", text(&case.expected["root"])).replace("{path}", &case.root()))
                }
                (_, Value::Object(map)) => {
                    let pairs = map.iter().map(|(key, value)| format!("{}: {}", literal(key), literal(text(value))));
                    format!("MAP {{{}}}", pairs.collect::<Vec<_>>().join(", "))
                }
                (_, Value::String(text)) => literal(text),
                (_, value) => value.to_string(),
            };
            arguments.push((name.clone(), value));
        }
        arguments.extend(more.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        let mut args = args;
        if has_ids(&args) {
            args["snapshot_ids"] = recorded_ids(case, &args["snapshot_ids"]).collect::<Vec<_>>().into();
        }
        Self { procedure: text(&run["op"]).to_string(), table, arguments, args }
    }

    fn is_expiry(&self) -> bool {
        self.procedure == "expire_snapshots"
    }

    fn sql(&self) -> String {
        self.with(&[])
    }

    fn dry_run(&self) -> String {
        self.with(&[("dry_run", "true")])
    }

    fn with(&self, more: &[(&str, &str)]) -> String {
        let replaced = |name: &str| more.iter().any(|(more, _)| *more == name);
        let own = self.arguments.iter().filter(|(name, _)| !replaced(name)).map(|(n, v)| (n.as_str(), v.as_str()));
        let arguments = own.chain(more.iter().copied()).map(|(name, value)| format!("{name} => {value}"));
        format!("CALL system.{}({})", self.procedure, arguments.collect::<Vec<_>>().join(", "))
    }

    fn policy(&self) -> Policy {
        let ids = has_ids(&self.args).then(|| ids(&self.args["snapshot_ids"]));
        let older_than = self.args["older_than"].as_str().filter(|_| ids.is_none()).map(epoch_ms);
        Policy { older_than, retain_last: self.args["retain_last"].as_i64(), snapshot_ids: ids, expire_before: None }
    }
}

/// The dry run, the real run and the run that has nothing left to do. Returns the real run's metrics.
async fn perform(copy: &Copy, case: &Case, call: &Call, run: &Value) -> Result<MetricRows, String> {
    let session = copy.session(case, run);
    let before = disk(&copy.path());
    let dry = session.metrics(&call.dry_run()).await.map_err(|e| format!("dry run: {e}"))?;
    let planned = planned(&session, copy, call).await?;
    unchanged("a dry run", &before, &disk(&copy.path()))?;

    let real = session.metrics(&call.sql()).await?;
    let after = disk(&copy.path());
    same_numbers(&dry, &real)?;
    let gone = difference(&before, &after);
    ensure!(planned == gone, "the dry run planned {planned:?}, the real run deleted {gone:?}");

    match session.metrics(&call.sql()).await {
        Ok(again) => deleted_nothing(&again)?,
        // The ids are gone, so they are unknown now.
        Err(refusal) if has_ids(&call.args) => ensure!(refusal.contains("snapshot"), "{refusal}"),
        Err(error) => return Err(format!("the second run: {error}")),
    }
    unchanged("a second run", &after, &disk(&copy.path()))?;
    Ok(real)
}

/// The files that a dry run says would go.
async fn planned(session: &Session, copy: &Copy, call: &Call) -> Result<BTreeSet<String>, String> {
    let rows = session.rows(&call.with(&[("dry_run", "true"), ("output", "'files'")])).await?;
    let planned = rows.iter().filter(|row| row["status"].as_deref() == Some("planned"));
    Ok(planned.map(|row| copy.relative(&plain_path(row["file_path"].as_deref().unwrap()))).collect())
}

/// Dry run and real run are refused with these words, and nothing changes.
async fn refused(copy: &Copy, call: &Call, run: &Value, words: &[&str]) -> Result<(), String> {
    let session = Session::below(copy.folder.path(), Some(now(run)));
    let before = disk(&copy.path());
    for sql in [call.dry_run(), call.sql()] {
        let message = match session.run(&sql).await {
            Ok(_) => return Err(format!("was not refused: {sql}")),
            Err(message) => message,
        };
        for word in words {
            ensure!(message.contains(word), "{word:?} is not in the message {message:?}");
        }
        unchanged("a refused call", &before, &disk(&copy.path()))?;
    }
    Ok(())
}

/// The lists of case `orphans_prefix_modes`: data files under a scheme of object stores, and files of the file system.
fn register_file_lists(session: &Session, copy: &Copy, case: &Case) {
    let old = 1_706_659_200_000;
    let (root, young) = (format!("file:{}", case.root()), 4_070_908_800_000);
    let plain = vec![
        (format!("{root}/t/data/orphan.parquet"), old),
        (format!("{root}/t/data/listed-but-absent.parquet"), old),
        (format!("{root}/t/data/too-young.parquet"), young),
        (format!("{root}/outside/table.parquet"), old),
        (format!("{root}/t/data/.hidden-listed.parquet"), old),
    ];
    let data = files(&disk(&copy.path())).into_iter().filter(|file| file.starts_with("t/data/"));
    let mut all: Vec<_> = data.map(|file| (format!("s3a://bkt{}/{file}", case.root()), old)).collect();
    all.extend(plain.iter().cloned());
    for (name, path_column, rows) in
        [("flv_file", "file_path", &plain), ("flv_all", "file_path", &all), ("flv_bad", "path", &plain)]
    {
        let paths = StringArray::from_iter_values(rows.iter().map(|(path, _)| path));
        let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|(_, time)| *time));
        let columns: [(&str, ArrayRef); 2] = [(path_column, Arc::new(paths)), ("last_modified", Arc::new(times))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        session.context.register_table(name, Arc::new(table)).unwrap();
    }
}

fn now(run: &Value) -> i64 {
    run["now_ms"].as_i64().unwrap()
}

fn has_ids(args: &Value) -> bool {
    args["snapshot_ids"].is_array()
}

/// Small numbers are positions in the list of snapshots.
fn recorded_ids(case: &Case, value: &Value) -> impl Iterator<Item = i64> {
    let snapshots = case.expected["before"]["snapshots"].as_array().unwrap();
    let id = |value: &Value| match value.as_i64().unwrap() {
        index @ 0..1000 => snapshots[index as usize]["snapshot_id"].as_i64().unwrap(),
        id => id,
    };
    value.as_array().unwrap().iter().map(id).collect::<Vec<_>>().into_iter()
}

/// The files of one look that the other doesn't show.
fn difference(one: &Disk, other: &Disk) -> BTreeSet<String> {
    files(one).difference(&files(other)).cloned().collect()
}

fn epoch_ms(utc: &str) -> i64 {
    let time = chrono::NaiveDateTime::parse_from_str(utc, "%Y-%m-%d %H:%M:%S%.f").unwrap();
    time.and_utc().timestamp_millis()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn texts(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().map(|value| text(value).to_string()).collect()
}

fn list(value: &Value) -> Vec<i64> {
    value.as_array().into_iter().flatten().map(|value| value.as_i64().unwrap()).collect()
}

fn ids(value: &Value) -> BTreeSet<i64> {
    list(value).into_iter().collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}
