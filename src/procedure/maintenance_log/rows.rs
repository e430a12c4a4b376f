//! The rows of a log.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampMillisecondBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::LogOutput;
use crate::error::{Error, Result};
use crate::journal::{JournaledRun, NotedStatus, OutcomeHeader, RunRecord};

impl LogOutput {
    /// The columns, known before anything is read.
    pub(super) fn schema(self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let long = |name: &str| Field::new(name, DataType::Int64, true);
        let time = |name: &str| Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true);
        Arc::new(Schema::new(match self {
            LogOutput::Runs => vec![
                Field::new("run", DataType::Utf8, false),
                text("operation"),
                Field::new("status", DataType::Utf8, false),
                time("began_at"),
                time("ended_at"),
                time("deferred_until"),
                long("files_count"),
                long("bytes"),
                long("deleted_files_count"),
                long("failed_files_count"),
                long("removed_snapshots_count"),
                long("removed_refs_count"),
                text("run_by"),
                text("product_version"),
                text("base_metadata_location"),
                text("error"),
            ],
            LogOutput::Files => vec![
                Field::new("run", DataType::Utf8, false),
                Field::new("file_path", DataType::Utf8, false),
                text("content"),
                long("file_size_in_bytes"),
                time("last_modified"),
                long("snapshot_id"),
                text("reason"),
                Field::new("status", DataType::Utf8, false),
                text("error"),
            ],
            LogOutput::Metadata => vec![
                Field::new("run", DataType::Utf8, false),
                Field::new("field", DataType::Utf8, false),
                text("name"),
                Field::new("json", DataType::Utf8, false),
            ],
        }))
    }
}

/// What became of a run's files, by their place in the plan, and the last word on the run.
type Outcome = (Option<OutcomeHeader>, HashMap<usize, NotedStatus>);

/// One column while it grows.
enum Column {
    Text(StringBuilder),
    Long(Int64Builder),
    Time(TimestampMillisecondBuilder),
}

/// One value of a row.
enum Value<'a> {
    Text(Option<&'a str>),
    Long(Option<i64>),
    Time(Option<i64>),
}

/// Collects the rows of a log.
pub(super) struct LogRows {
    output: LogOutput,
    now_ms: i64,
    columns: Vec<Column>,
}

impl LogRows {
    pub(super) fn new(output: LogOutput, now_ms: i64) -> Self {
        let column = |field: &Arc<Field>| match field.data_type() {
            DataType::Int64 => Column::Long(Int64Builder::new()),
            DataType::Timestamp(..) => Column::Time(TimestampMillisecondBuilder::new().with_timezone("UTC")),
            _ => Column::Text(StringBuilder::new()),
        };
        Self { output, now_ms, columns: output.schema().fields().iter().map(column).collect() }
    }

    /// Adds a run. A journal that can't be read is a row that says why, where rows are runs.
    pub(super) fn add(&mut self, run: &JournaledRun, plan: Result<RunRecord>, outcome: Result<Outcome>) -> Result<()> {
        let (plan, outcome) = match (plan, outcome) {
            (Ok(plan), Ok(outcome)) => (plan, outcome),
            (Err(error), _) | (_, Err(error)) => return self.add_unreadable(run, error),
        };
        match self.output {
            LogOutput::Runs => self.add_run(run, &plan, &outcome),
            LogOutput::Files => self.add_files(&plan, &outcome.1),
            LogOutput::Metadata => {
                for part in &plan.removed {
                    let run = plan.header.run.to_string();
                    let text = |text| Value::Text(Some(text));
                    let name = Value::Text(part.name.as_deref());
                    self.push([text(&run), text(&part.field), name, text(&part.json)]);
                }
            }
        }
        Ok(())
    }

    fn add_unreadable(&mut self, run: &JournaledRun, error: Error) -> Result<()> {
        if !error.is_about_the_file() {
            return Err(error);
        }
        if self.output == LogOutput::Runs {
            let (id, error) = (run.run.to_string(), error.to_string());
            let (none, long) = (|| Value::Text(None), || Value::Long(None));
            let began = Value::Time(Some(run.run.began_ms()));
            let until = Value::Time(run.until_ms());
            let counts = [long(), long(), long(), long(), long(), long()];
            let head =
                [Value::Text(Some(&id)), none(), Value::Text(Some("unreadable")), began, Value::Time(None), until];
            let tail = [none(), none(), none(), Value::Text(Some(&error))];
            self.push(head.into_iter().chain(counts).chain(tail));
        }
        Ok(())
    }

    fn add_run(&mut self, run: &JournaledRun, plan: &RunRecord, (last, noted): &Outcome) {
        let header = &plan.header;
        let count = |status: &str| noted.values().filter(|noted| noted.status == status).count();
        let removed = |field: &str| plan.removed.iter().filter(|part| part.field == field).count();
        let long = |count: usize| Value::Long(i64::try_from(count).ok());
        let bytes = plan.files.iter().filter_map(|file| file.bytes).fold(0, u64::saturating_add);
        let (id, operation) = (header.run.to_string(), header.operation.as_str());
        let status = status_of(run, self.now_ms);
        self.push([
            Value::Text(Some(&id)),
            Value::Text(Some(operation)),
            Value::Text(Some(status)),
            Value::Time(Some(header.began_ms)),
            Value::Time(last.as_ref().map(|last| last.at_ms)),
            Value::Time(header.until_ms),
            long(plan.files.len()),
            Value::Long(i64::try_from(bytes).ok()),
            long(count("deleted")),
            long(count("failed")),
            long(removed("snapshots")),
            long(removed("refs")),
            Value::Text(Some(&header.run_by)),
            Value::Text(Some(&header.product_version)),
            Value::Text(Some(&header.base_metadata_location)),
            Value::Text(None),
        ]);
    }

    fn add_files(&mut self, plan: &RunRecord, noted: &HashMap<usize, NotedStatus>) {
        let run = plan.header.run.to_string();
        for (place, file) in plan.files.iter().enumerate() {
            let noted = noted.get(&place);
            self.push([
                Value::Text(Some(&run)),
                Value::Text(Some(&file.path)),
                Value::Text(Some(file.kind.as_str())),
                Value::Long(file.bytes.and_then(|bytes| i64::try_from(bytes).ok())),
                Value::Time(file.modified_ms),
                Value::Long(file.snapshot_id),
                Value::Text(Some(&file.reason)),
                Value::Text(Some(noted.map_or("planned", |noted| noted.status.as_str()))),
                Value::Text(noted.and_then(|noted| noted.error.as_deref())),
            ]);
        }
    }

    fn push<'a>(&mut self, row: impl IntoIterator<Item = Value<'a>>) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            match (column, value) {
                (Column::Text(column), Value::Text(value)) => column.append_option(value),
                (Column::Long(column), Value::Long(value)) => column.append_option(value),
                (Column::Time(column), Value::Time(value)) => column.append_option(value),
                // The rows are those of the schema; a wrong value would be a fault of ours, and is none.
                (Column::Text(column), _) => column.append_null(),
                (Column::Long(column), _) => column.append_null(),
                (Column::Time(column), _) => column.append_null(),
            }
        }
    }

    pub(super) fn finish(self) -> Result<RecordBatch> {
        let finished = |column| -> ArrayRef {
            match column {
                Column::Text(mut column) => Arc::new(column.finish()),
                Column::Long(mut column) => Arc::new(column.finish()),
                Column::Time(mut column) => Arc::new(column.finish()),
            }
        };
        Ok(RecordBatch::try_new(self.output.schema(), self.columns.into_iter().map(finished).collect())?)
    }
}

/// How a run stands, in a word.
fn status_of(run: &JournaledRun, now_ms: i64) -> &'static str {
    match (run.stage(), run.until_ms()) {
        (Some(stage), None) => stage.as_str(),
        (Some(stage), Some(_)) if !run.is_open() => stage.as_str(),
        (_, Some(until_ms)) if until_ms > now_ms => "deferred",
        (_, Some(_)) => "due",
        (None, None) => "unfinished",
    }
}
