//! A plan that a dry run stored for a later call, in a file of the caller's choice.
//!
//! It has the layout of a journal's plan, the options of its call, and a digest of all that it says. It is no order: whoever
//! executes it plans anew, and the stored plan only limits what may go.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use datafusion::execution::TaskContext;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::record::{parse, plan_fields, read_rows, write};
use super::{ContentHash, PlannedRun, RunHeader, RunId, RunRecord, Writer};
use crate::catalog::{LoadedTable, absolute};
use crate::error::{Error, Result};
use crate::report::{FileOutcome, FileStatus, Operation};
use crate::retention::{Reason, RetentionDecision};
use crate::storage::Stores;
use crate::table::{Location, MetadataChange, MetadataPart, PathRules, TableMetadata, removed_parts};

const WHAT: &str = "a stored plan";

/// A stored plan.
#[derive(Debug)]
pub(crate) struct PlanFile {
    location: String,
    record: RunRecord,
    options: serde_json::Value,
}

/// What holds for a whole stored plan.
#[derive(Debug, Serialize, Deserialize)]
struct PlanFileHeader {
    format: u32,
    plan: RunHeader,
    /// The options of the operation, as it serialises them.
    options: serde_json::Value,
    /// SHA-256 of everything else.
    digest: String,
}

impl PlanFileHeader {
    /// The digest of what is in the file: of the values, not of how Arrow stores them.
    fn digest_of(&self, record: &RunRecord) -> serde_json::Result<String> {
        let mut text = serde_json::to_string(&(self.format, &self.plan, &self.options))?;
        for file in &record.files {
            let (kind, reason) = (file.kind.as_str(), file.reason.as_ref());
            let values = (&file.path, kind, file.bytes, file.modified_ms, file.snapshot_id, reason);
            text.push('\n');
            text.push_str(&serde_json::to_string(&values)?);
        }
        for part in &record.removed {
            text.push('\n');
            text.push_str(&serde_json::to_string(part)?);
        }
        Ok(ContentHash::of(text.as_bytes()).to_string())
    }
}

impl PlanFile {
    /// Stores a plan under a name that is not in use: a path, or the location of an object. Returns where it is.
    ///
    /// # Errors
    /// When there is something of this name, and when it can't be written.
    pub(crate) async fn store(
        planned: PlannedRun<'_>,
        options: &impl Serialize,
        location: &str,
        writer: &Writer,
        task: &TaskContext,
    ) -> Result<String> {
        let location = Location::parse(&absolute(location)?)?;
        let metadata = &planned.table.metadata;
        if metadata.roots(PathRules::new(metadata.location())).contains(&location.to_text()) {
            return Err(Error::NotAllowed {
                message: format!(
                    "{location} lies in the table's own folders, where a plan could be taken for one of its files: store it elsewhere"
                ),
            });
        }
        let record = planned.record(RunId::new(writer.now_ms), writer);
        let unwritable = |error: serde_json::Error| Error::Malformed {
            what: WHAT,
            path: location.to_string(),
            why: format!("it can't be written: {error}"),
        };
        let options = serde_json::to_value(options).map_err(unwritable)?;
        let plan = record.header.clone();
        let mut header = PlanFileHeader { format: RunHeader::FORMAT, plan, options, digest: String::new() };
        header.digest = header.digest_of(&record).map_err(unwritable)?;
        let content = write(&header, plan_fields(), record.columns())?;
        let store = Stores::new(task.runtime_env()).store(&location)?;
        match store.create(&location, content).await {
            Ok(true) => Ok(location.to_string()),
            Ok(false) => Err(Error::NotAllowed {
                message: format!("{location} exists already: a plan is never written over anything; give another name"),
            }),
            Err(error) => Err(error),
        }
    }

    /// Reads a stored plan.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is no stored plan, was edited or cut short, or is of an unknown layout.
    pub(crate) async fn read(location: &str, task: &TaskContext) -> Result<Self> {
        let location = Location::parse(&absolute(location)?)?;
        let content: Bytes = Stores::new(task.runtime_env()).store(&location)?.read(&location).await?;
        let path = location.to_string();
        let malformed = |why: String| Error::Malformed { what: WHAT, path: path.clone(), why };
        let (header, batches): (PlanFileHeader, _) = parse(&content, &plan_fields()).map_err(malformed)?;
        let (files, removed) = read_rows(&batches);
        let record = RunRecord { header: header.plan.clone(), files, removed };
        let digest = header.digest_of(&record).map_err(|error| malformed(error.to_string()))?;
        if digest != header.digest {
            return Err(malformed("its content is not what its digest says, so it was edited or cut short".into()));
        }
        Ok(Self { location: path, record, options: header.options })
    }

    pub(crate) fn operation(&self) -> Operation {
        self.record.header.operation
    }

    /// What "now" was when it was planned, ms since the epoch.
    pub(crate) fn planned_at_ms(&self) -> i64 {
        self.record.header.began_ms
    }

    /// The options that the operation was planned with.
    ///
    /// # Errors
    /// [`Error::Malformed`] when this version doesn't know them.
    pub(crate) fn options<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_value(self.options.clone()).map_err(|error| Error::Malformed {
            what: WHAT,
            path: self.location.clone(),
            why: format!("its options are not those of this version: {error}. Plan again"),
        })
    }

    /// Refuses a plan that was made for another table.
    pub(crate) fn refuse_other_table(&self, table: &LoadedTable) -> Result<()> {
        let (metadata, header) = (&table.metadata, &self.record.header);
        let same_place = Location::parse(&header.location)
            .is_ok_and(|location| PathRules::new(metadata.location()).same_place(&location, metadata.location()));
        match same_place && header.table_uuid.as_deref() == metadata.table_uuid() {
            true => Ok(()),
            false => Err(self.refusal(
                table,
                format!(
                    "it is of another table, {} with uuid {}",
                    header.location,
                    header.table_uuid.as_deref().unwrap_or("none")
                ),
            )),
        }
    }

    /// Limits a decision on the newest metadata to the snapshots and refs of the plan.
    ///
    /// # Errors
    /// [`Error::Guard`] when the table changed in what matters: a snapshot of the plan is gone or would stay now, a ref of the
    /// plan is gone or would stay, or another ref would go.
    pub(crate) fn limit_decision(
        &self,
        mut decision: RetentionDecision,
        table: &LoadedTable,
    ) -> Result<RetentionDecision> {
        let planned: HashSet<i64> = self.parts("snapshots").filter_map(MetadataPart::snapshot_id).collect();
        let refs: HashSet<&str> = self.parts("refs").filter_map(|part| part.name.as_deref()).collect();
        for id in &planned {
            match decision.snapshots.iter().find(|snapshot| snapshot.snapshot_id == *id) {
                None => return Err(self.refusal(table, format!("snapshot {id} is not in the table any more"))),
                Some(decided) if !decided.reason.expires() => {
                    return Err(self.refusal(table, format!("snapshot {id} would stay now: {}", decided.reason)));
                }
                Some(_) => {}
            }
        }
        let going: HashSet<&str> = decision.removed_refs().collect();
        if let Some(name) = refs.symmetric_difference(&going).next() {
            let why = match going.contains(name) {
                true => "would go now, and does not in the plan",
                false => "goes in the plan, and would stay now or is gone",
            };
            return Err(self.refusal(table, format!("ref {name} {why}")));
        }
        let others = decision.snapshots.iter_mut().filter(|snapshot| !planned.contains(&snapshot.snapshot_id));
        others.filter(|other| other.reason.expires()).for_each(|other| other.reason = Reason::NotPlanned);
        let schemas: HashSet<i32> = self.parts("schemas").filter_map(MetadataPart::schema_id).collect();
        decision.unused_schema_ids.retain(|id| schemas.contains(id));
        Ok(decision)
    }

    /// Limits a change to what the plan takes out of the metadata.
    pub(crate) fn limit_change(&self, change: &mut MetadataChange) {
        let specs: HashSet<i32> = self.parts("partition-specs").filter_map(MetadataPart::spec_id).collect();
        change.removed_partition_spec_ids.retain(|id| specs.contains(id));
    }

    /// Refuses a change that takes out snapshots or refs which are not letter by letter those of the plan.
    ///
    /// # Errors
    /// [`Error::Guard`].
    pub(crate) fn refuse_other_parts(&self, table: &LoadedTable, base: &TableMetadata, edited: &str) -> Result<()> {
        let matters = |part: &&MetadataPart| matches!(part.field.as_str(), "snapshots" | "refs");
        let parts = removed_parts(base, edited)?;
        let now: HashSet<_> = parts.iter().filter(matters).map(identity).collect();
        let then: HashSet<_> = self.record.removed.iter().filter(matters).map(identity).collect();
        match now == then {
            true => Ok(()),
            false => Err(self.refusal(table, "its snapshots or refs are not those of the table any more".into())),
        }
    }

    /// Leaves only the plan's files among those that would go, each with the size and time that it had then. Returns what
    /// there is to say of the others.
    pub(crate) fn limit_files(&self, files: &mut Vec<FileOutcome>) -> Option<String> {
        let planned: HashMap<&str, &FileOutcome> =
            self.record.files.iter().map(|file| (file.path.as_str(), file)).collect();
        let before = files.len();
        files.retain(|file| {
            file.status != FileStatus::Planned
                || planned.get(file.path.as_str()).is_some_and(|planned| is_same_file(planned, file))
        });
        let left = before - files.len();
        (left > 0).then(|| {
            format!("{left} files that could go now are not in the plan, or were written again since: they stay")
        })
    }

    fn parts(&self, field: &str) -> impl Iterator<Item = &MetadataPart> {
        self.record.removed.iter().filter(move |part| part.field == field)
    }

    fn refusal(&self, table: &LoadedTable, why: String) -> Error {
        Error::Guard {
            table: table.name.clone(),
            found: format!("the plan {} does not fit: {why}. Plan again", self.location),
        }
    }
}

fn identity(part: &MetadataPart) -> (&str, Option<&str>, &str) {
    (&part.field, part.name.as_deref(), &part.json)
}

/// What isn't known of one of the two can't differ.
fn is_same_file(planned: &FileOutcome, found: &FileOutcome) -> bool {
    let may_be = |differs: Option<bool>| differs != Some(true);
    may_be(planned.bytes.zip(found.bytes).map(|(then, now)| then != now))
        && may_be(planned.modified_ms.zip(found.modified_ms).map(|(then, now)| then != now))
}
