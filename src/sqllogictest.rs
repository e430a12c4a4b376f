//! Running the crate's sqllogictest suites on any session.
//!
//! [`SUITES`] are the suites themselves, [`MaintenanceDb`] is the driver that runs their statements on a
//! [`SessionContext`], and [`run_suite`] puts the two together on a fresh warehouse. `docs/sqllogictest.md` shows how an
//! engine that embeds this crate runs them in its own tests.
//!
//! Results are compared as text. What differs from run to run is replaced by a name first, the same in rows and in error
//! messages: the warehouse's folder by `<DIR>`, uuids by `<UUID>`, and in metric rows the time taken by `<MS>` and
//! bytes by `<BYTES>` unless they are 0 (manifests hold their folder's path, so their sizes depend on it).

use std::path::Path;
use std::sync::Arc;

use ::sqllogictest::{AsyncDB, DBOutput, Runner, strict_column_validator};
use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;

use crate::MaintenanceSql;

/// A suite: the file's name and its text.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// The file's name, without a folder.
    pub name: &'static str,
    /// The suite's text.
    pub text: &'static str,
}

macro_rules! suites {
    ($($name:literal),* $(,)?) => {
        /// All suites of this version of the crate.
        pub const SUITES: &[Suite] =
            &[$(Suite { name: $name, text: include_str!(concat!("../sql-tests/", $name)) }),*];
    };
}

suites! {
    "catalogs.slt",
    "expire_snapshots_arguments.slt",
    "expire_snapshots_errors.slt",
    "expire_snapshots_forms.slt",
    "expire_snapshots_tables.slt",
    "explain.slt",
    "explain_file.slt",
    "journal.slt",
    "maintain_catalog.slt",
    "metadata_tables.slt",
    "output_shapes.slt",
    "plan_tables.slt",
    "remove_orphan_files_arguments.slt",
    "remove_orphan_files_errors.slt",
    "remove_orphan_files_forms.slt",
    "retention_refs.slt",
    "table_function.slt",
    "table_health.slt",
    "timestamps_durations.slt",
    "vacuum.slt",
    "verify_table.slt",
}

/// A session as a database that sqllogictest can drive. Statements go through
/// [`MaintenanceSql::maintenance_sql`], so that maintenance statements and all others work.
#[derive(Clone)]
pub struct MaintenanceDb {
    context: SessionContext,
    replacements: Vec<(String, &'static str)>,
}

impl MaintenanceDb {
    /// Drives this session, which maintenance is registered in.
    pub fn new(context: SessionContext) -> Self {
        Self { context, replacements: vec![] }
    }

    /// Replaces this folder by `<DIR>` in all results and messages.
    pub fn with_folder(mut self, folder: &Path) -> Self {
        self.replacements.push((folder.to_string_lossy().into_owned(), "<DIR>"));
        self
    }

    fn normalize(&self, text: &str) -> String {
        let replaced =
            self.replacements.iter().fold(text.to_string(), |text, (from, to)| text.replace(from.as_str(), to));
        without_uuids(&replaced)
    }

    async fn rows(&self, sql: &str) -> Result<DBOutput<ColumnType>, DataFusionError> {
        let frame = self.context.maintenance_sql(sql).await?;
        let schema = Arc::clone(frame.schema().inner());
        let batches = frame.collect().await?;
        if schema.fields().is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        let mut rows = vec![];
        for batch in &batches {
            self.append_rows(batch, &mut rows)?;
        }
        let types = schema.fields().iter().map(|field| ColumnType::of(field.data_type())).collect();
        Ok(DBOutput::Rows { types, rows })
    }

    fn append_rows(&self, batch: &RecordBatch, rows: &mut Vec<Vec<String>>) -> Result<(), DataFusionError> {
        let options = FormatOptions::new().with_null("NULL");
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cell = |(column, formatter): (&ArrayRef, &ArrayFormatter<'_>)| {
                self.cell(&formatter.value(row).to_string(), column.is_null(row))
            };
            let mut cells: Vec<String> = batch.columns().iter().zip(&formatters).map(cell).collect();
            hide_measured(batch.schema_ref(), &mut cells);
            rows.push(cells);
        }
        Ok(())
    }

    /// One value as DataFusion's own suites show it: an empty text as `(empty)`, line ends as `\n`.
    fn cell(&self, text: &str, is_null: bool) -> String {
        match text {
            "" if !is_null => "(empty)".into(),
            text => self.normalize(text).replace('\n', "\\n"),
        }
    }
}

/// Replaces the values of metric rows that differ from run to run.
fn hide_measured(schema: &Schema, cells: &mut [String]) {
    let position = |name| schema.fields().iter().position(|field| field.name() == name);
    if let (Some(name), Some(value)) = (position("metric_name"), position("metric_value")) {
        match (cells[name].as_str(), cells[value].as_str()) {
            ("elapsed_ms", _) => cells[value] = "<MS>".into(),
            ("deleted_bytes" | "deferred_bytes", bytes) if bytes != "0" => cells[value] = "<BYTES>".into(),
            _ => {}
        }
    }
}

/// The text with every uuid replaced by `<UUID>`.
fn without_uuids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uuid = |candidate: &str| {
        candidate.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(first) = rest.chars().next() {
        if rest.get(..LENGTH).is_some_and(is_uuid) {
            out.push_str("<UUID>");
            rest = &rest[LENGTH..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// A failed statement; the message with folders and uuids replaced.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StatementError {
    message: String,
}

#[async_trait]
impl AsyncDB for MaintenanceDb {
    type Error = StatementError;
    type ColumnType = ColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<ColumnType>, StatementError> {
        self.rows(sql).await.map_err(|error| StatementError { message: self.normalize(&error.strip_backtrace()) })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn sleep(duration: std::time::Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The type of a result column, with the letters of DataFusion's own suites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnType {
    /// `B`
    Boolean,
    /// `D`: dates and times without a date
    DateTime,
    /// `I`
    Integer,
    /// `P`: timestamps
    Timestamp,
    /// `R`: floating point and decimal numbers
    Float,
    /// `T`
    Text,
    /// `?`
    Other,
}

impl ColumnType {
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean,
            integer if integer.is_integer() => Self::Integer,
            number if number.is_floating() || number.is_decimal() => Self::Float,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) => Self::DateTime,
            DataType::Timestamp(_, _) => Self::Timestamp,
            DataType::Dictionary(_, values) => Self::of(values),
            _ => Self::Other,
        }
    }
}

impl ::sqllogictest::ColumnType for ColumnType {
    fn from_char(value: char) -> Option<Self> {
        Some(match value {
            'B' => Self::Boolean,
            'D' => Self::DateTime,
            'I' => Self::Integer,
            'P' => Self::Timestamp,
            'R' => Self::Float,
            'T' => Self::Text,
            _ => Self::Other,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Self::Boolean => 'B',
            Self::DateTime => 'D',
            Self::Integer => 'I',
            Self::Timestamp => 'P',
            Self::Float => 'R',
            Self::Text => 'T',
            Self::Other => '?',
        }
    }
}

/// Makes what sqllogictest calls a runner: statements go to the session, `${WAREHOUSE}` is the folder, column types are
/// compared strictly.
pub fn runner(
    context: &SessionContext,
    warehouse: &Path,
) -> Runner<MaintenanceDb, impl ::sqllogictest::MakeConnection<Conn = MaintenanceDb> + use<>> {
    let database = MaintenanceDb::new(context.clone()).with_folder(warehouse);
    let mut runner = Runner::new(move || std::future::ready(Ok(database.clone())));
    runner.set_var("WAREHOUSE".into(), warehouse.to_string_lossy().into_owned());
    runner.with_column_validator(strict_column_validator);
    runner
}

/// Runs a suite on a fresh warehouse in a temporary folder, which is removed afterwards.
///
/// `session` makes the session for a warehouse folder. It must have maintenance registered with a clock that stands at
/// [`WAREHOUSE_NOW_MS`](crate::fixtures::WAREHOUSE_NOW_MS), the warehouse's folder `events` registered as the table
/// `lake.events`, UTC as its time zone, and the local file system behind `file://`.
///
/// # Errors
/// The first record of the suite that doesn't hold, with its place in the suite; or that the warehouse or the session
/// can't be made.
pub async fn run_suite(
    suite: &Suite,
    session: impl FnOnce(&Path) -> datafusion::error::Result<SessionContext>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let folder = tempfile::tempdir()?;
    crate::fixtures::warehouse(folder.path())?;
    let root = folder.path().canonicalize()?;
    let context = session(&root)?;
    let outcome = runner(&context, &root).run_script_with_name_async(suite.text, suite.name).await;
    outcome.map_err(|error| error.display(false).to_string().into())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, StringArray, TimestampMillisecondArray};

    use super::*;

    fn database() -> MaintenanceDb {
        MaintenanceDb::new(SessionContext::new()).with_folder(Path::new("/tmp/warehouse"))
    }

    #[test]
    fn what_differs_from_run_to_run_is_named() {
        let text = "file:/tmp/warehouse/t/metadata/00001-00000000-0000-4000-8000-0000000000ff.metadata.json; ü";
        assert_eq!(database().normalize(text), "file:<DIR>/t/metadata/00001-<UUID>.metadata.json; ü");
        assert_eq!(
            database().normalize("00000000-0000-4000-8000_0000000000ff"),
            "00000000-0000-4000-8000_0000000000ff"
        );
    }

    #[test]
    fn values_are_shown_as_in_datafusions_own_suites() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some(""), None, Some("a\nb")]));
        let time: ArrayRef =
            Arc::new(TimestampMillisecondArray::from(vec![Some(0), None, Some(1)]).with_timezone("UTC"));
        let batch = RecordBatch::try_from_iter_with_nullable([("text", text, true), ("time", time, true)]).unwrap();
        let mut rows = vec![];
        database().append_rows(&batch, &mut rows).unwrap();
        assert_eq!(
            rows,
            [["(empty)", "1970-01-01T00:00:00Z"], ["NULL", "NULL"], ["a\\nb", "1970-01-01T00:00:00.001Z"]]
        );
    }

    #[test]
    fn measured_metrics_are_hidden_in_metric_rows_only() {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["elapsed_ms", "deleted_bytes", "deleted_bytes", "x"]));
        let values: ArrayRef = Arc::new(Int64Array::from(vec![0, 0, 5, 5]));
        let metric_names = [("metric_name", Arc::clone(&names)), ("metric_value", Arc::clone(&values))];
        let other_names = [("name", names), ("value", values)];
        let shown = |batch: RecordBatch| {
            let mut rows = vec![];
            database().append_rows(&batch, &mut rows).unwrap();
            rows.into_iter().map(|mut row| row.remove(1)).collect::<Vec<_>>()
        };
        assert_eq!(shown(RecordBatch::try_from_iter(metric_names).unwrap()), ["<MS>", "0", "<BYTES>", "5"]);
        assert_eq!(shown(RecordBatch::try_from_iter(other_names).unwrap()), ["0", "0", "5", "5"]);
    }

    #[test]
    fn every_suite_on_disk_is_among_the_suites() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql-tests");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<_> = files.filter(|name| name.ends_with(".slt")).collect();
        files.sort();
        assert_eq!(SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>(), files);
    }
}
