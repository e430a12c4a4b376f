//! What a journal file holds: a plan or an outcome, as one Arrow file (the IPC file format).
//!
//! The rows of a plan are the files that are to go and the parts that the commit takes out of the metadata; what holds for the
//! whole run is in the schema's metadata. The file's name has the hash of its content.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::frame::ArrowFile;
use super::names::{ContentHash, RunId, Stage};
use crate::error::{Error, Result};
use crate::report::{FileKind, FileOutcome, FileStatus, Operation};
use crate::table::MetadataPart;
use bytes::Bytes;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Builder, RecordBatch, StringBuilder, TimestampMillisecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use serde::{Deserialize, Serialize};

/// The key of the header in the schema's metadata.
const HEADER: &str = "iceberg-maintenance";
/// What `field` says of a file's row.
const FILE: &str = "file";
/// The layout of journal files. A higher one is refused.
const FORMAT: u32 = 1;

/// What holds for a whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunHeader {
    pub format: u32,
    pub run: RunId,
    pub operation: Operation,
    /// The table's name or location, as messages name it.
    pub table: String,
    pub table_uuid: Option<String>,
    pub location: String,
    /// The metadata that the plan was made on.
    pub base_metadata_location: String,
    pub began_ms: i64,
    /// Before this the files must stay, ms since the epoch.
    pub until_ms: Option<i64>,
    /// Files outside of the table's roots were asked for.
    pub external_allowed: bool,
    /// Its files are moved into quarantine instead of being deleted.
    pub quarantine: bool,
    /// Who ran it, as far as the session or the system says.
    pub run_by: String,
    pub product_version: String,
}

/// What a run is going to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRecord {
    pub header: RunHeader,
    /// The files that are to go, each [`FileStatus::Planned`].
    pub files: Vec<FileOutcome>,
    /// What the commit takes out of the metadata.
    pub removed: Vec<MetadataPart>,
}

/// What became of a run so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunOutcome {
    pub header: OutcomeHeader,
    /// What became of files, by their place in the plan.
    pub files: Vec<(usize, FileStatus)>,
}

/// What holds for a whole outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutcomeHeader {
    pub format: u32,
    pub run: RunId,
    pub stage: Stage,
    pub at_ms: i64,
    /// What did it: the run itself, or a later call.
    pub operation: Operation,
    pub run_by: String,
    pub product_version: String,
}

impl RunHeader {
    pub(crate) const FORMAT: u32 = FORMAT;
}

fn utf8(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

pub(super) fn plan_fields() -> Vec<Field> {
    vec![
        utf8("field", false),
        utf8("name", true),
        utf8("content", true),
        Field::new("file_size_in_bytes", DataType::Int64, true),
        Field::new("last_modified", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true),
        Field::new("snapshot_id", DataType::Int64, true),
        utf8("reason", true),
        utf8("json", true),
    ]
}

fn outcome_fields() -> Vec<Field> {
    vec![Field::new("position", DataType::Int64, false), utf8("status", false), utf8("error", true)]
}

impl RunRecord {
    /// The content of the plan's file.
    pub(crate) fn encode(&self) -> Result<Bytes> {
        write(&self.header, plan_fields(), self.columns())
    }

    pub(super) fn columns(&self) -> Vec<ArrayRef> {
        let (mut fields, mut names, mut kinds) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
        let (mut sizes, mut snapshots) = (Int64Builder::new(), Int64Builder::new());
        let mut modified = TimestampMillisecondBuilder::new().with_timezone("UTC");
        let (mut reasons, mut jsons) = (StringBuilder::new(), StringBuilder::new());
        for file in &self.files {
            fields.append_value(FILE);
            names.append_value(&file.path);
            kinds.append_value(file.kind.as_str());
            sizes.append_option(file.bytes.and_then(|bytes| i64::try_from(bytes).ok()));
            modified.append_option(file.modified_ms);
            snapshots.append_option(file.snapshot_id);
            reasons.append_value(&file.reason);
            jsons.append_null();
        }
        for part in &self.removed {
            fields.append_value(&part.field);
            names.append_option(part.name.as_deref());
            kinds.append_null();
            sizes.append_null();
            modified.append_null();
            snapshots.append_null();
            reasons.append_null();
            jsons.append_value(&part.json);
        }
        vec![
            Arc::new(fields.finish()),
            Arc::new(names.finish()),
            Arc::new(kinds.finish()),
            Arc::new(sizes.finish()),
            Arc::new(modified.finish()),
            Arc::new(snapshots.finish()),
            Arc::new(reasons.finish()),
            Arc::new(jsons.finish()),
        ]
    }

    /// Reads a plan's file.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is cut short, edited, of another layout, or none.
    pub(crate) fn decode(path: &str, bytes: &[u8], hash: Option<&ContentHash>) -> Result<Self> {
        let (header, batches): (RunHeader, _) = read(path, bytes, hash, &plan_fields())?;
        let (files, removed) = read_rows(&batches);
        Ok(Self { header, files, removed })
    }
}

/// The rows of a plan: its files, and the parts of the metadata that go.
pub(super) fn read_rows(batches: &[RecordBatch]) -> (Vec<FileOutcome>, Vec<MetadataPart>) {
    let (mut files, mut removed) = (vec![], vec![]);
    for batch in batches {
        let text = |column: usize, row| optional_text(batch, column, row);
        let long = |column: usize, row| optional_long(batch, column, row);
        for row in 0..batch.num_rows() {
            let field = text(0, row).unwrap_or_default();
            if field != FILE {
                let (name, json) = (text(1, row).map(Into::into), text(7, row).unwrap_or_default().into());
                removed.push(MetadataPart { field: field.into(), name, json });
                continue;
            }
            let times = batch.column(4).as_primitive::<TimestampMillisecondType>();
            files.push(FileOutcome {
                path: text(1, row).unwrap_or_default().into(),
                kind: text(2, row).and_then(FileKind::parse).unwrap_or(FileKind::Unknown),
                bytes: long(3, row).and_then(|bytes| u64::try_from(bytes).ok()),
                modified_ms: times.is_valid(row).then(|| times.value(row)),
                snapshot_id: long(5, row),
                reason: Cow::Owned(text(6, row).unwrap_or_default().into()),
                status: FileStatus::Planned,
            });
        }
    }
    (files, removed)
}

impl RunOutcome {
    /// The content of the outcome's file.
    pub(crate) fn encode(&self) -> Result<Bytes> {
        let (mut positions, mut statuses, mut errors) =
            (Int64Builder::new(), StringBuilder::new(), StringBuilder::new());
        for (position, status) in &self.files {
            positions.append_value(i64::try_from(*position).unwrap_or(i64::MAX));
            statuses.append_value(status.as_str());
            errors.append_option(match status {
                FileStatus::Failed(why) => Some(why.as_str()),
                FileStatus::Spared(why) => Some(why.explanation()),
                _ => None,
            });
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(positions.finish()), Arc::new(statuses.finish()), Arc::new(errors.finish())];
        write(&self.header, outcome_fields(), columns)
    }
}

/// What an outcome says of a file, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotedStatus {
    pub status: String,
    pub error: Option<String>,
}

impl NotedStatus {
    /// True when the file is still to be dealt with.
    pub(crate) fn is_unsettled(&self) -> bool {
        matches!(self.status.as_str(), "planned" | "failed" | "deferred")
    }

    /// True when the file is in quarantine.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.status == "quarantined"
    }
}

/// Reads an outcome's file: its header, and what became of files by their place in the plan.
///
/// # Errors
/// As [`RunRecord::decode`].
pub(crate) fn decode_outcome(
    path: &str,
    bytes: &[u8],
    hash: Option<&ContentHash>,
) -> Result<(OutcomeHeader, HashMap<usize, NotedStatus>)> {
    let (header, batches): (OutcomeHeader, _) = read(path, bytes, hash, &outcome_fields())?;
    let mut files = HashMap::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let position = optional_long(batch, 0, row).and_then(|position| usize::try_from(position).ok());
            let status = optional_text(batch, 1, row).unwrap_or_default().to_string();
            let error = optional_text(batch, 2, row).map(Into::into);
            files.extend(position.map(|position| (position, NotedStatus { status, error })));
        }
    }
    Ok((header, files))
}

fn optional_text(batch: &RecordBatch, column: usize, row: usize) -> Option<&str> {
    let values = batch.column(column).as_string::<i32>();
    values.is_valid(row).then(|| values.value(row))
}

fn optional_long(batch: &RecordBatch, column: usize, row: usize) -> Option<i64> {
    let values = batch.column(column).as_primitive::<Int64Type>();
    values.is_valid(row).then(|| values.value(row))
}

/// Writes header and rows.
pub(super) fn write(header: &impl Serialize, fields: Vec<Field>, columns: Vec<ArrayRef>) -> Result<Bytes> {
    let header = serde_json::to_string(header).map_err(|error| ArrowError::JsonError(error.to_string()))?;
    let schema: SchemaRef = Arc::new(Schema::new_with_metadata(fields, [(HEADER.to_string(), header)].into()));
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
    let mut content = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut content, &schema, options)?;
    writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    writer.finish()?;
    drop(writer);
    Ok(content.into())
}

/// Reads what [`write`] wrote. Nothing is decoded before the hash says that it is that.
fn read<H: for<'de> Deserialize<'de>>(
    path: &str,
    bytes: &[u8],
    hash: Option<&ContentHash>,
    fields: &[Field],
) -> Result<(H, Vec<RecordBatch>)> {
    let malformed = |why: String| Error::Malformed { what: "a journal of a maintenance run", path: path.into(), why };
    if Some(&ContentHash::of(bytes)) != hash {
        return Err(malformed("its content is not what its name says, so it was cut short or changed".into()));
    }
    parse(bytes, fields).map_err(malformed)
}

/// Reads a file in the layout of [`write`].
///
/// # Errors
/// What is wrong with it, as the end of a sentence that names it.
pub(super) fn parse<H: for<'de> Deserialize<'de>>(
    bytes: &[u8],
    fields: &[Field],
) -> std::result::Result<(H, Vec<RecordBatch>), String> {
    let file = ArrowFile::open(bytes)?;
    let header = file.metadata(HEADER).ok_or("it has no header")?;
    let version: Format = serde_json::from_str(header).map_err(|error| error.to_string())?;
    if version.format > FORMAT {
        return Err(format!(
            "its layout is version {}, and {FORMAT} is known here: update iceberg-maintenance",
            version.format
        ));
    }
    let header = serde_json::from_str(header).map_err(|error| error.to_string())?;
    if !file.has_columns(fields) {
        return Err("its columns are not those of a plan or an outcome".into());
    }
    Ok((header, file.rows(fields)?))
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::SkipReason;

    pub(crate) fn record() -> RunRecord {
        let file = |path: &str, bytes, modified_ms| FileOutcome {
            path: path.into(),
            kind: FileKind::PositionDeletes,
            bytes,
            modified_ms,
            snapshot_id: Some(9_007_199_254_740_993),
            reason: Cow::Borrowed("only expired snapshots have it"),
            status: FileStatus::Planned,
        };
        RunRecord {
            header: RunHeader {
                format: FORMAT,
                run: RunId::new(1_781_524_800_000),
                operation: Operation::ExpireSnapshots,
                table: "db.t".into(),
                table_uuid: Some("u".into()),
                location: "s3://b/t".into(),
                base_metadata_location: "s3://b/t/metadata/v1.metadata.json".into(),
                began_ms: 1_781_524_800_000,
                until_ms: None,
                external_allowed: false,
                quarantine: false,
                run_by: "somebody".into(),
                product_version: "0.1.0".into(),
            },
            files: vec![file("s3://b/t/data/a%20b", Some(7), None), file("s3://b/t/data/ü", None, Some(3))],
            removed: vec![
                MetadataPart { field: "refs".into(), name: Some("old".into()), json: r#"{"snapshot-id":1}"#.into() },
                MetadataPart { field: "snapshots".into(), name: None, json: r#"{"snapshot-id":1, "x":1.50}"#.into() },
            ],
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let record = record();
        let again = |record: &RunRecord| {
            let content = record.encode().unwrap();
            RunRecord::decode("p", &content, Some(&ContentHash::of(&content))).unwrap()
        };
        assert_eq!(again(&record), record);
        let empty = RunRecord { files: vec![], removed: vec![], ..record };
        assert_eq!(again(&empty), empty);
    }

    #[test]
    fn an_outcome_says_what_became_of_each_file() {
        let header = OutcomeHeader {
            format: FORMAT,
            run: RunId::new(5),
            stage: Stage::Partial,
            at_ms: 6,
            operation: Operation::ExpireSnapshots,
            run_by: "somebody".into(),
            product_version: "0.1.0".into(),
        };
        let files = vec![
            (0, FileStatus::Deleted),
            (2, FileStatus::Failed("denied".into())),
            (3, FileStatus::Spared(SkipReason::LiveAgain)),
        ];
        let outcome = RunOutcome { header: header.clone(), files };
        let content = outcome.encode().unwrap();
        let (read, files) = decode_outcome("p", &content, Some(&ContentHash::of(&content))).unwrap();
        let noted = |status: &str, error: Option<&str>| {
            Some(NotedStatus { status: status.into(), error: error.map(Into::into) })
        };
        assert_eq!(read, header);
        assert_eq!(files.get(&0).cloned(), noted("deleted", None));
        assert_eq!(files.get(&1), None);
        assert_eq!(files.get(&2).cloned(), noted("failed", Some("denied")));
        assert_eq!(files.get(&3).cloned(), noted("spared", Some("became live again after the plan was made")));
    }

    #[test]
    fn a_file_that_was_cut_short_or_changed_is_refused() {
        let content = record().encode().unwrap();
        let hash = ContentHash::of(&content);
        for length in [0, 1, 8, content.len() / 2, content.len() - 1] {
            let error = RunRecord::decode("p", &content[..length], Some(&hash)).unwrap_err();
            assert!(error.is_about_the_file(), "{error}");
        }
        for position in 0..content.len() {
            let mut changed = content.to_vec();
            changed[position] ^= 0x41;
            let error = RunRecord::decode("p", &changed, Some(&hash)).unwrap_err();
            assert!(error.to_string().contains("not what its name says"), "{error}");
        }
    }
}
