use std::collections::BTreeSet;

use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::*;
use crate::reachability::probe::{Candidate, Probe};
use crate::reachability::record;
use crate::storage::LocalFiles;
use crate::table::{Location, PathRules};

fn task(memory: Option<usize>) -> Arc<TaskContext> {
    let runtime = match memory {
        None => RuntimeEnvBuilder::new(),
        Some(bytes) => RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0),
    };
    SessionContext::new_with_config_rt(SessionConfig::new(), runtime.build_arc().unwrap()).task_ctx()
}

fn identity(table: &str) -> FileIdentity {
    let location = Location::parse(table).unwrap();
    let local = location.is_local().then(|| LocalFiles::new(None));
    FileIdentity::new(PathRules::new(&location), local)
}

fn live(table: &str, files: &[&str]) -> LiveFiles {
    let mut builder = LiveFilesBuilder::new(identity(table), &task(None));
    files.iter().for_each(|file| builder.insert(file, NamedBy::Manifest, true).unwrap());
    builder.build().unwrap()
}

const LIVE: Liveness = Liveness::Live(NamedBy::Manifest);

#[test]
fn spellings_of_one_local_file_are_one_file() {
    let mut files = live("/t", &["file:/t/a", "file:///t/a", "/t//a", "/t/b%20c"]);
    for same in ["/t/a", "file:///t/./a", "/t/b%20c", "/t/b c"] {
        assert_eq!(files.probe(same).unwrap(), LIVE, "{same}");
    }
    assert_eq!(files.probe("/t/c").unwrap(), Liveness::Dead);
}

#[test]
fn keys_of_object_stores_are_compared_as_they_are() {
    let mut files = live("s3://b/t", &["s3a://b/t/a", "s3://b/t//b", "s3://b/t/x%2Fy"]);
    assert_eq!(files.probe("s3://b/t/a").unwrap(), LIVE);
    for dead in ["s3://b/t/b", "s3://b/t/x/y", "s3://b/t/./a"] {
        assert_eq!(files.probe(dead).unwrap(), Liveness::Dead, "{dead}");
    }
}

#[test]
fn the_same_path_elsewhere_is_neither_live_nor_dead() {
    let mut files = live("hdfs://nn1/t", &["hdfs://nn1/t/a", "hdfs:///t/b", "/t/c"]);
    let other = FilePrefix { scheme: "hdfs".into(), authority: "nn1".into() };
    assert_eq!(files.probe("hdfs://nn2/t/a").unwrap(), Liveness::OtherPrefix(other));
    assert_eq!(files.probe("hdfs://nn2/t/b").unwrap(), LIVE, "the metadata names no authority");
    assert_eq!(files.probe("hdfs://nn2/t/c").unwrap(), LIVE, "the metadata names neither");
}

#[test]
fn a_local_table_without_a_scheme_is_a_file_table() {
    let mut files = live("/t", &["file:/t/a", "/t/b"]);
    for same in ["/t/a", "file:/t/b", "file:///t/a"] {
        assert_eq!(files.probe(same).unwrap(), LIVE, "{same}");
    }
}

#[test]
fn any_exact_match_keeps_a_file() {
    let mut files = live("s3://b/t", &["gs://b/t/a", "s3://b/t/a"]);
    assert_eq!(files.probe("s3://b/t/a").unwrap(), LIVE);
}

#[test]
fn a_file_among_more_authorities_than_there_are_tags_is_kept() {
    let files: Vec<String> = (0..300).map(|i| format!("hdfs://nn{i}/t/a{i}")).collect();
    let mut files = live("hdfs://nn0/t", &files.iter().map(String::as_str).collect::<Vec<_>>());
    for index in 0..300 {
        assert_eq!(files.probe(&format!("hdfs://nn{index}/t/a{index}")).unwrap(), LIVE, "{index}");
    }
    let first = FilePrefix { scheme: "hdfs".into(), authority: "nn254".into() };
    assert_eq!(files.probe("hdfs://other/t/a254").unwrap(), Liveness::OtherPrefix(first));
    assert_eq!(files.probe("hdfs://other/t/a255").unwrap(), LIVE, "its authority was not kept apart");
    assert_eq!(files.probe("hdfs://nn0/t/b").unwrap(), Liveness::Dead);
}

#[test]
fn what_names_a_file_is_known() {
    let mut builder = LiveFilesBuilder::new(identity("s3://b/t"), &task(None));
    builder.insert("s3://b/t/m", NamedBy::Metadata, false).unwrap();
    builder.insert("s3://b/t/a", NamedBy::Manifest, false).unwrap();
    builder.insert("s3://b/t/both", NamedBy::Metadata, false).unwrap();
    builder.insert("s3://b/t/both", NamedBy::Manifest, false).unwrap();
    let mut files = builder.build().unwrap();
    assert_eq!(files.named_by_manifests(), 2);
    assert_eq!(files.probe("s3://b/t/m").unwrap(), Liveness::Live(NamedBy::Metadata));
    assert_eq!(files.probe("s3://b/t/both").unwrap(), LIVE);
}

#[test]
fn what_the_listing_did_not_show_is_known() {
    let mut files = live("s3://b/t", &["s3://b/t/a", "s3://b/t/b"]);
    assert_eq!((files.named_by_manifests(), files.unseen_count().unwrap()), (2, 2));
    files.probe("s3://b/t/a").unwrap();
    assert_eq!(files.unseen_count().unwrap(), 1);
    assert!(!files.is_unseen("s3a://b/t/a").unwrap() && files.is_unseen("s3://b/t/b").unwrap());
}

#[test]
fn a_file_seen_under_its_real_name_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let root = root.to_str().unwrap();
    std::fs::create_dir(format!("{root}/real")).unwrap();
    std::os::unix::fs::symlink(format!("{root}/real"), format!("{root}/link")).unwrap();
    let mut files = live(&format!("{root}/link"), &[&format!("{root}/real/a"), &format!("{root}/link/b")]);
    for same in ["link/a", "real/a", "link/b", "real/b"] {
        assert_eq!(files.probe(&format!("{root}/{same}")).unwrap(), LIVE, "{same}");
    }
    assert!(!files.is_unseen(&format!("{root}/link/b")).unwrap());
    assert_eq!(files.probe(&format!("{root}/real/c")).unwrap(), Liveness::Dead);
}

struct Named(String);

impl Candidate for Named {
    fn location(&self) -> &str {
        &self.0
    }

    fn write(&self, record: &mut record::Writer<'_>) {
        record.text(&self.0);
    }

    fn read(record: &mut record::Reader<'_>) -> Option<Self> {
        record.text().map(|text| Self(text.to_string()))
    }
}

/// Dead candidates, and live files that no candidate was.
fn subtract(task: &TaskContext, live: &[String], listed: &[String]) -> (BTreeSet<String>, BTreeSet<String>, bool) {
    let mut builder = LiveFilesBuilder::new(identity("s3://b/t"), task);
    for file in live {
        builder.insert(file, NamedBy::Manifest, true).unwrap();
    }
    let mut files = builder.build().unwrap();
    let mut dead = BTreeSet::new();
    let mut probe = Probe::new(&mut files);
    let mut keep = |answers: Vec<(Named, Liveness)>| {
        let dead_ones = answers.into_iter().filter(|(_, liveness)| *liveness == Liveness::Dead);
        dead.extend(dead_ones.map(|(file, _)| file.0));
    };
    for batch in listed.chunks(1000) {
        keep(probe.push(batch.iter().cloned().map(Named).collect()).unwrap());
    }
    while let Some(answers) = probe.next_waiting().unwrap() {
        keep(answers);
    }
    drop(probe);
    let unseen: BTreeSet<String> = live.iter().filter(|file| files.is_unseen(file).unwrap()).cloned().collect();
    assert_eq!(files.unseen_count().unwrap(), unseen.len());
    (dead, unseen, files.hashes.is_in_memory())
}

#[test]
fn the_answer_is_the_same_whether_or_not_the_set_fits_into_memory() {
    let path = |i: usize| format!("s3://b/t/data/part={}/{i:08}-c0ffee.parquet", i % 17);
    let live: Vec<String> = (0..200_000).filter(|i| i % 3 != 0).map(path).collect();
    let listed: Vec<String> = (1000..201_000).map(path).collect();
    let (dead, unseen, in_memory) = subtract(&task(None), &live, &listed);
    assert!(in_memory);
    let (dead_spilled, unseen_spilled, in_memory) = subtract(&task(Some(3 << 20)), &live, &listed);
    assert!(!in_memory);
    let live: BTreeSet<String> = live.into_iter().collect();
    let listed: BTreeSet<String> = listed.into_iter().collect();
    assert_eq!(dead, listed.difference(&live).cloned().collect());
    assert_eq!(unseen, live.difference(&listed).cloned().collect());
    assert!(dead_spilled == dead && unseen_spilled == unseen);
}

#[test]
fn without_temporary_files_memory_that_is_used_up_is_an_error() {
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(1 << 20, 1.0).with_disk_manager_builder(disk);
    let task = SessionContext::new_with_config_rt(SessionConfig::new(), runtime.build_arc().unwrap()).task_ctx();
    let mut builder = LiveFilesBuilder::new(identity("s3://b/t"), &task);
    let error = (0..100_000).try_for_each(|i| builder.insert(&format!("s3://b/t/{i}"), NamedBy::Manifest, true));
    assert!(error.unwrap_err().to_string().contains("the set of live files"));
}
