//! What to do, with the statement that does it, the greatest gain first.
//!
//! Our own statements run as they are. What this crate doesn't do (compaction) is named as Spark's.

use super::facts::Facts;
use super::known::Known;
use crate::catalog::Ownership;

/// Who runs a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Own,
    Spark,
}

impl Engine {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Own => "iceberg-maintenance",
            Self::Spark => "spark",
        }
    }
}

/// Something to do.
#[derive(Debug, Clone)]
pub(super) struct Recommendation {
    pub(super) what: &'static str,
    pub(super) gain_bytes: Known,
    pub(super) gain_files: Known,
    pub(super) engine: Engine,
    pub(super) statement: String,
    pub(super) why: String,
}

/// From so many files saved on it is worth a run of its own.
const LEAST_FILES: i64 = 10;
/// From so many manifests saved on.
const LEAST_MANIFESTS: i64 = 20;
/// From so many delete files for each hundred data files on readers pay for them.
const MANY_DELETES_PERCENT: i64 = 10;

/// The recommendations by gain: bytes first, then files. `table`: the table as the call names it.
pub(super) fn recommendations(facts: &Facts, table: &str) -> Vec<Recommendation> {
    let all = [expire(facts, table), orphans(facts, table), data_files(facts, table), manifests(facts, table)];
    let mut all: Vec<Recommendation> = all.into_iter().flatten().chain(deletes(facts, table)).collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.gain_bytes.or_zero(), one.gain_files.or_zero())));
    all
}

/// A call with the table as a literal.
fn call(procedure: &str, table: &str, more: &str) -> String {
    format!("CALL system.{procedure}(table => '{}'{more})", table.replace('\'', "''"))
}

/// A call of ours that deletes. On a table that may be a catalog's it only looks: the real one is refused by its location.
fn deleting(facts: &Facts, procedure: &str, table: &str) -> (String, &'static str) {
    match facts.table.ownership {
        Ownership::Ours => (call(procedure, table, ""), ""),
        Ownership::UnknownCatalog => (
            call(procedure, table, ", dry_run => true"),
            ". The metadata files have names that catalogs give: only a call by the table's name in its catalog deletes",
        ),
    }
}

fn expire(facts: &Facts, table: &str) -> Option<Recommendation> {
    let gain = &facts.expiry.gain;
    if !facts.expiry.has_work() || gain.refused.is_some() {
        return None;
    }
    let (statement, note) = deleting(facts, "expire_snapshots", table);
    let snapshots = facts.expiry.snapshots().or_zero();
    let refs = facts.expiry.decision.iter().flat_map(|decision| decision.removed_refs()).count();
    Some(Recommendation {
        what: "expire_snapshots",
        gain_bytes: gain.bytes,
        gain_files: gain.files,
        engine: Engine::Own,
        statement,
        why: format!("{snapshots} snapshots and {refs} refs are older than the table's own rules keep them{note}"),
    })
}

fn orphans(facts: &Facts, table: &str) -> Option<Recommendation> {
    let gain = facts.orphans.as_ref().filter(|gain| gain.files.or_zero() > 0)?;
    let (statement, note) = deleting(facts, "remove_orphan_files", table);
    Some(Recommendation {
        what: "remove_orphan_files",
        gain_bytes: gain.bytes,
        gain_files: gain.files,
        engine: Engine::Own,
        statement,
        why: format!("{} files are there that nothing names{note}", gain.files.or_zero()),
    })
}

fn data_files(facts: &Facts, table: &str) -> Option<Recommendation> {
    let saved = facts.mergeable_files();
    (saved.or_zero() >= LEAST_FILES).then(|| Recommendation {
        what: "rewrite_data_files",
        gain_bytes: Known::Exact(0),
        gain_files: saved,
        engine: Engine::Spark,
        statement: call("rewrite_data_files", table, ""),
        why: format!("small data files could be merged: {} fewer", saved.or_zero()),
    })
}

fn manifests(facts: &Facts, table: &str) -> Option<Recommendation> {
    let saved = facts.mergeable_manifests();
    (saved.or_zero() >= LEAST_MANIFESTS).then(|| Recommendation {
        what: "rewrite_manifests",
        gain_bytes: Known::Exact(0),
        gain_files: saved,
        engine: Engine::Spark,
        statement: call("rewrite_manifests", table, ""),
        why: format!(
            "small manifests could be merged: {} fewer to read for each query that can't skip them",
            saved.or_zero()
        ),
    })
}

/// Deletes that nothing needs go by one rewrite, those that readers pay for by another.
fn deletes(facts: &Facts, table: &str) -> Vec<Recommendation> {
    let (files, dangling) = (facts.delete_files(), facts.dangling_files());
    let rewrite = |what, options: &str, gain_files, gain_bytes, why| Recommendation {
        what,
        gain_bytes,
        gain_files,
        engine: Engine::Spark,
        statement: call("rewrite_data_files", table, &format!(", options => map({options})")),
        why,
    };
    let mut found = vec![];
    if dangling.or_zero() > 0 {
        found.push(rewrite(
            "remove_dangling_deletes",
            "'remove-dangling-deletes', 'true'",
            dangling,
            facts.measured(|entries| entries.dangling.bytes),
            format!("{} delete files are for no data file any more", dangling.or_zero()),
        ));
    }
    let percent = files.percent_of(facts.data_files()).or_zero();
    let needed = files.with(dangling, |files, dangling| Some((files - dangling).max(0))).or(files);
    if percent >= MANY_DELETES_PERCENT && needed.or_zero() > 0 {
        found.push(rewrite(
            "apply_deletes",
            "'delete-file-threshold', '1'",
            needed,
            Known::Exact(0),
            format!(
                "there are {percent} delete files for each hundred data files, which readers apply again and again"
            ),
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_any_name_is_one_literal() {
        assert_eq!(call("f", "db.t", ""), "CALL system.f(table => 'db.t')");
        assert_eq!(
            call("f", "/data/it's'); DROP TABLE x --", ", a => 1"),
            "CALL system.f(table => '/data/it''s''); DROP TABLE x --', a => 1)"
        );
    }
}
