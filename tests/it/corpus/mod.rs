//! Tables that Spark wrote, and what the reference answered to each call: the same call to us must leave the same
//! snapshots, refs, schemas, specs, statistics entries and files.
//!
//! Every run of every case is made on a fresh copy, between standing checks: a dry run first (changes nothing, reports
//! the numbers of the real run), then the real run, then the same run again (nothing left to do, nothing written). What
//! must go is computed from the files (`table`) and the rules (`model`) and compared with the record, so that the
//! record, the model and the crate agree pairwise. Where we mean to differ, [`differences`] says how and why.
//!
//! The full collection lies beside the clone (`../shared/corpus`); `tests/data/corpus` has a few of its cases.

pub(crate) mod case;
mod checks;
mod differences;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use self::case::{Case, text};
use self::differences::DIFFERENCES;
use crate::support::shared;

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        pub(crate) const CASES: &[&str] = &[$(stringify!($case)),*];

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
