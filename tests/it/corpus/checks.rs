//! Makes the calls of a case and compares.

use std::collections::BTreeSet;

use serde_json::Value;

use super::case::{Call, Case, Copy, has_ids, ids, keys, list, now, text, texts};
use super::differences::Ours;
use crate::model::{self, Verdict};
use crate::support::{Disk, MetricRows, Session, deleted_nothing, disk, ensure, files, same_numbers, unchanged};
use crate::table::{COUNTS, Kind, Table, only_shrunk, plain_path};

/// What an expiry must leave and take.
struct Expected {
    verdict: Verdict,
    expired: BTreeSet<i64>,
    /// The counts of [`COUNTS`].
    counts: [i64; 6],
    /// Files relative to the case.
    gone: BTreeSet<String>,
}

impl Case {
    /// The test's own reading of manifests equals what was recorded when the tables were made.
    pub fn the_reader_agrees_with_the_record(&self) -> Result<(), String> {
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

    pub async fn one(&self, id: &str, run: &Value) -> Result<(), String> {
        let copy = self.unpack();
        if !self.unclear().is_empty() {
            let call = Call::new(self, run, &[]);
            // A call that is wrong in itself may be refused for that first.
            let wrong = !run["error"].is_null() || matches!(self.difference(id), Some(d) if d.refuses());
            let words: &[&str] = if wrong { &[] } else { &["metadata.json"] };
            refused(self, &copy, &call, run, words).await.map_err(|e| format!("unclear metadata: {e}"))?;
            self.take_away_what_is_unclear(&copy);
        }
        self.step(&copy, id, run).await.map(|_| ())
    }

    /// Steps one after the other on one copy. In the end the same files are gone as in the reference's sequence.
    pub async fn sequence(&self, id: &str, steps: &[Value]) -> Result<(), String> {
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

    async fn step(&self, copy: &Copy, id: &str, run: &Value) -> Result<(), String> {
        let mut call = Call::new(self, run, &[]);
        let difference = self.difference(id).map(|difference| &difference.ours);
        match difference {
            Some(Ours::Refuses(words)) => return refused(self, copy, &call, run, words).await,
            None if !run["error"].is_null() => return refused(self, copy, &call, run, self.words_of_error(run)).await,
            _ => {}
        }
        if let Some(Ours::AsksFor(argument)) = difference {
            refused(self, copy, &call, run, &[argument]).await?;
            call = Call::new(self, run, &[(argument, "true")]);
        }
        let owned_by_a_catalog = text(&self.expected["catalog"]).starts_with("jdbc");
        if owned_by_a_catalog {
            let before = disk(&copy.path());
            let session = copy.session(self, run);
            session.metrics(&call.dry_run()).await.map_err(|e| format!("a dry run needs no owner: {e}"))?;
            let refusal = session.run(&call.sql()).await.err().ok_or("acted by location although a catalog owns it")?;
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
            ("Cannot expire", &["Still referenced by refs"]),
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

    /// What must go, by the rules and by set difference; fails unless the record says the same.
    fn expected_expiry(
        &self,
        copy: &Copy,
        call: &Call,
        run: &Value,
        ours: Option<&Ours>,
        before: &Table,
    ) -> Result<Expected, String> {
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
        Ok(Expected { verdict, expired, counts, gone })
    }

    async fn expire(&self, copy: &Copy, call: &Call, run: &Value, ours: Option<&Ours>) -> Result<(), String> {
        let before = copy.table(&call.table);
        let Expected { verdict, expired, counts, gone } = self.expected_expiry(copy, call, run, ours, &before)?;

        let disk_before = disk(&copy.path());
        let metrics = perform(self, copy, call, run).await?;
        let (disk_after, after) = (disk(&copy.path()), copy.table(&call.table));
        let gone = with_checksums(gone, &disk_before);
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
        let expected_log = model::snapshot_log(&log, &verdict.snapshots, &expired);
        ensure!(log_left == expected_log, "snapshot log left: {log_left:?}, expected {expected_log:?}");
        ensure!(after.statistics_of(&expired).is_empty(), "statistics entries of expired snapshots were left");
        self.live_files_are_there(copy, &after, &disk_before, &disk_after)?;

        if before.text == after.text {
            let committed = ours.is_none() && run["committed"] == true && call.table == "t";
            ensure!(!committed, "the reference committed, we did not");
            return unchanged("a run with nothing to do", &disk_before, &disk_after);
        }
        only_shrunk(&before, &after)?;
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
            // The hint, and its checksum where Hadoop keeps one: a stale checksum makes the hint unreadable for Hadoop.
            let hint = format!("{}/metadata/version-hint.text", call.table);
            let checksum = format!("{}/metadata/.version-hint.text.crc", call.table);
            let expected: Vec<_> = [checksum, hint].into_iter().filter(|file| before.contains_key(file)).collect();
            ensure!(changed == expected, "files whose content changed: {changed:?}");
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
        listed.retain(|file| !self.unclear().contains(&file.as_str()) && !self.foreign().contains(&file.as_str()));
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
            perform(self, copy, call, run).await?
        };
        let after = disk(&copy.path());
        if !dry {
            let gone = with_checksums(gone.clone(), &before);
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

/// The dry run, the real run and the run that has nothing left to do. Returns the real run's metrics.
async fn perform(case: &Case, copy: &Copy, call: &Call, run: &Value) -> Result<MetricRows, String> {
    let session = copy.session(case, run);
    let before = disk(&copy.path());
    let dry = session.metrics(&call.dry_run()).await.map_err(|e| format!("dry run: {e}"))?;
    let planned = planned(&session, copy, call).await?;
    unchanged("a dry run", &before, &disk(&copy.path()))?;

    let real = session.metrics(&call.sql()).await?;
    let after = disk(&copy.path());
    same_numbers(&dry, &real)?;
    let gone = difference(&before, &after);
    let planned = with_checksums(planned, &before);
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
async fn refused(case: &Case, copy: &Copy, call: &Call, run: &Value, words: &[&str]) -> Result<(), String> {
    let session = copy.session(case, run);
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

/// The files of one look that the other doesn't show.
/// These files, and the checksums that Hadoop's local file system keeps beside them: they go together.
fn with_checksums(mut gone: BTreeSet<String>, disk: &Disk) -> BTreeSet<String> {
    let checksum = |file: &String| match file.rsplit_once('/') {
        Some((folder, name)) => format!("{folder}/.{name}.crc"),
        None => format!(".{file}.crc"),
    };
    let checksums: Vec<_> = gone.iter().map(checksum).filter(|file| files(disk).contains(file)).collect();
    gone.extend(checksums);
    gone
}

fn difference(one: &Disk, other: &Disk) -> BTreeSet<String> {
    files(one).difference(&files(other)).cloned().collect()
}
