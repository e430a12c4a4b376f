//! The procedures: what each is called, which arguments it takes, and how it runs.
//!
//! `sql/` turns every spelling of a statement into [`Arguments`] by the [`Parameter`]s of a [`Procedure`]; the procedure
//! turns these into its own options. From there on nothing knows of SQL.

mod collected;
mod committing;
mod execute_plan;
pub(crate) mod expire_snapshots;
pub(crate) mod explain_file;
mod maintain_catalog;
mod maintenance_log;
mod outcome;
mod plan_tables;
mod quarantine;
mod recovery;
pub(crate) mod remove_orphan_files;
mod restore_snapshots;
mod shared_location;
mod snapshot_sizes;
mod table_health;
mod unfinished_runs;
pub(crate) mod verify_table;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;

use collected::CollectedFiles;
pub(crate) use outcome::CallOutcome;

use crate::catalog::{LoadedTable, TableHandle};
use crate::deletion::Moves;
use crate::error::{Error, Result};
use crate::journal::OpenRun;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::report::{FileStatus, Output, Report};

/// All procedures, by their canonical names.
pub(crate) const PROCEDURES: [&dyn Procedure; 16] = [
    &expire_snapshots::ExpireSnapshotsProcedure,
    &remove_orphan_files::RemoveOrphanFilesProcedure,
    &maintain_catalog::MaintainCatalogProcedure,
    &execute_plan::ExecutePlanProcedure,
    &unfinished_runs::ResumeMaintenanceProcedure,
    &unfinished_runs::PurgeDeferredFilesProcedure,
    &restore_snapshots::RestoreSnapshotsProcedure,
    &quarantine::RestoreQuarantinedFilesProcedure,
    &quarantine::PurgeQuarantinedFilesProcedure,
    &maintenance_log::MaintenanceLogProcedure,
    &verify_table::VerifyTableProcedure,
    &explain_file::ExplainFileProcedure,
    &plan_tables::ExpirePlanProcedure,
    &plan_tables::OrphanFilesProcedure,
    &snapshot_sizes::SnapshotSizesProcedure,
    &table_health::TableHealthProcedure,
];

/// Finds a procedure by its name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static dyn Procedure> {
    PROCEDURES.into_iter().find(|procedure| procedure.name().eq_ignore_ascii_case(name))
}

/// A maintenance operation that SQL can call.
pub(crate) trait Procedure: Debug + Send + Sync {
    /// The canonical name, lower case.
    fn name(&self) -> &'static str;

    /// The parameters. What the procedure works on, `table` or `catalog`, is always the first; it is not among the positional
    /// ones of `ALTER TABLE … EXECUTE`.
    fn parameters(&self) -> &'static [Parameter];

    /// Checks the arguments as far as that goes without looking at the table.
    fn bind(&self, arguments: Arguments, options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>>;
}

/// A call whose arguments were checked. Making one, looking at it and asking for its schema touch nothing.
#[async_trait]
pub(crate) trait BoundCall: Debug + Send + Sync {
    /// The columns of its rows.
    fn schema(&self) -> SchemaRef;

    /// True when it will change nothing.
    fn dry_run(&self) -> bool;

    /// The same call as a dry run.
    fn as_dry_run(&self) -> Arc<dyn BoundCall>;

    /// The table and the arguments that differ from their defaults, for `EXPLAIN`.
    fn describe(&self) -> String;

    /// Does the work. Cancel-safe only through [`RunContext::cancellation`]: the future itself must not be dropped.
    async fn run(&self, context: RunContext) -> Result<CallOutcome>;
}

/// One argument that a procedure takes.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// The canonical name.
    pub name: &'static str,
    /// Other spellings, in lower case.
    pub aliases: &'static [&'static str],
    /// What values it takes.
    pub kind: ParameterKind,
    /// Its position in `CALL f('t', …)` and `f('t', …)`: Spark's order, `table` being 0.
    pub call_position: Option<usize>,
    /// Its position in `ALTER TABLE t EXECUTE f(…)`.
    pub execute_position: Option<usize>,
    /// One line of help.
    pub help: &'static str,
}

/// What values a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    /// The table: a name or a location.
    Table,
    /// A catalog, or a namespace in one.
    Catalog,
    /// A point in time: a timestamp (no zone = session zone), a date, epoch milliseconds, or a duration before now.
    Timestamp,
    /// A length of time such as `7d` or `1d12h30m`, or an INTERVAL.
    Duration,
    /// A whole number of at least this.
    Integer(i64),
    /// A number from 0 to 1.
    Fraction,
    /// true, false, 1 or 0.
    Boolean,
    /// A list of snapshot ids: an array, or Hive's `'id,id'`.
    Ids,
    /// A map from text to text, or `'a,b=>c'`.
    Map,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
}

/// A value of the kind that the parameter asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// For [`ParameterKind::Timestamp`]: ms since the epoch.
    Timestamp(i64),
    /// For [`ParameterKind::Duration`]: ms, never negative.
    Duration(i64),
    /// For [`ParameterKind::Integer`].
    Integer(i64),
    /// For [`ParameterKind::Fraction`].
    Fraction(f64),
    /// For [`ParameterKind::Boolean`].
    Boolean(bool),
    /// For [`ParameterKind::Ids`].
    Ids(Vec<i64>),
    /// For [`ParameterKind::Map`].
    Map(Vec<(String, String)>),
    /// For the table, the catalog, choices (in the parameter's spelling) and text.
    Text(String),
}

/// The arguments of one call: known names, each given once, of the right kind. A NULL argument counts as not given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arguments {
    pub(crate) procedure: &'static str,
    pub(crate) values: BTreeMap<&'static str, Value>,
    /// The moment that "now" means for this call, ms since the epoch: relative times were resolved against it.
    pub(crate) now_ms: i64,
}

macro_rules! typed_getters {
    ($($getter:ident: $variant:ident -> $type:ty),* $(,)?) => {
        impl Arguments {
            $(pub(crate) fn $getter(&self, name: &'static str) -> Option<$type> {
                match self.values.get(name) {
                    Some(Value::$variant(value)) => Some(value.clone()),
                    _ => None,
                }
            })*
        }
    };
}

typed_getters! {
    timestamp: Timestamp -> i64,
    duration: Duration -> i64,
    integer: Integer -> i64,
    fraction: Fraction -> f64,
    boolean: Boolean -> bool,
    ids: Ids -> Vec<i64>,
    map: Map -> Vec<(String, String)>,
    text: Text -> String,
}

impl Arguments {
    /// The table; every call of a procedure that takes one names it.
    pub(crate) fn table(&self) -> Result<String> {
        self.text("table").ok_or_else(|| self.error("argument table is missing: name the table or give its location"))
    }

    pub(crate) fn is_given(&self, name: &'static str) -> bool {
        self.values.contains_key(name)
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        Error::argument(self.procedure, message)
    }

    /// Refuses two arguments that contradict each other.
    pub(crate) fn exclusive(&self, one: &'static str, other: &'static str) -> Result<()> {
        if self.is_given(one) && self.is_given(other) {
            return Err(self.error(format!("{one} and {other} can't be given together; leave one out")));
        }
        Ok(())
    }

    /// The `output` argument.
    pub(crate) fn output(&self) -> Output {
        match self.text("output").as_deref() {
            Some("columns") => Output::Columns,
            Some("files") => Output::Files,
            Some("snapshots") => Output::Snapshots,
            _ => Output::Metrics,
        }
    }
}

impl Arguments {
    /// The arguments as they would be written, for `EXPLAIN`.
    pub(crate) fn describe(&self) -> String {
        let written: Vec<String> = self.values.iter().map(|(name, value)| format!("{name} => {value}")).collect();
        written.join(", ")
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Timestamp(ms) => write!(f, "TIMESTAMP '{}'", crate::time::format_ms(*ms)),
            Value::Duration(ms) => write!(f, "'{ms}ms'"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Fraction(value) => write!(f, "{value}"),
            Value::Boolean(value) => write!(f, "{value}"),
            Value::Ids(ids) => write!(f, "{ids:?}"),
            Value::Map(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(from, to)| format!("{from}=>{to}")).collect();
                write!(f, "'{}'", pairs.join(","))
            }
            Value::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
        }
    }
}

/// Refuses a table whose `gc.enabled` is anything but true.
fn require_gc(table: &LoadedTable, operation: &'static str) -> Result<()> {
    match table.metadata.properties().gc_disabled() {
        None => Ok(()),
        Some(value) => Err(Error::GcDisabled { operation, table: table.name.clone(), value: value.to_string() }),
    }
}

/// Runs an operation between two looks at the table, where the call asks for them (`verify => true`).
///
/// # Errors
/// [`Error::Unhealthy`] before anything is changed when the table isn't whole, and afterwards when it isn't any more.
async fn verified(
    wanted: bool,
    handle: &TableHandle,
    context: &RunContext,
    operation: impl Future<Output = Result<Report>>,
) -> Result<Report> {
    if !wanted {
        return operation.await;
    }
    let look = async |when: &'static str| match verify_table::verify(handle.clone(), context).await? {
        table if table.is_healthy() => Ok(()),
        table => Err(Error::Unhealthy {
            table: table.table().to_string(),
            when,
            found: table.findings().first().map(first_fault).unwrap_or_default(),
        }),
    };
    look("before the operation, so nothing was begun").await?;
    let mut report = operation.await?;
    if let Err(error) = look("after the operation").await {
        // What was done is done, and whoever keeps account of it must hear of it.
        context.tell(&mut report);
        return Err(error);
    }
    Ok(report)
}

fn first_fault(finding: &verify_table::Finding) -> String {
    let file = finding.file_path.as_deref().unwrap_or("the metadata");
    format!("{}, {file}: {}", finding.problem.as_str(), finding.detail)
}

/// Refuses quarantine where there is no journal to remember by what is in it.
fn require_journal(quarantine: Option<bool>, options: &MaintenanceOptions) -> Result<()> {
    match quarantine == Some(true) && !options.has_journal()? {
        false => Ok(()),
        true => Err(Error::NotAllowed {
            message: "quarantine needs a journal, and the session option iceberg_maintenance.journal is 'off'".into(),
        }),
    }
}

/// Where files go that are to be moved.
///
/// # Errors
/// Where there is no journal, which says what is in quarantine: then nothing may be moved, and nothing is to be deleted.
fn quarantine_of(quarantine: bool, open: Option<&OpenRun>) -> Result<Option<Arc<Moves>>> {
    match (quarantine, open) {
        (false, _) => Ok(None),
        (true, Some(open)) => Ok(Some(Arc::new(open.quarantine()))),
        // Nothing was planned.
        (true, None) => Ok(Some(Arc::new(Moves::new(HashMap::new(), FileStatus::Quarantined)))),
    }
}

/// Where a dry run stores its plan.
const PLAN: Parameter =
    parameter("plan", ParameterKind::Text, None, "with dry_run: store the plan in this new file, for execute_plan");

/// The `plan` argument of an operation.
fn plan_argument(arguments: &Arguments) -> Result<Option<String>> {
    match arguments.text("plan") {
        Some(_) if arguments.boolean("dry_run") != Some(true) => {
            Err(arguments.error("plan stores the plan of a dry run: add dry_run => true, and call execute_plan later"))
        }
        plan => Ok(plan),
    }
}

/// How many deletes the call wants to run at once.
fn concurrency(arguments: &Arguments) -> Option<usize> {
    arguments.integer("max_concurrent_deletes").and_then(|n| usize::try_from(n).ok())
}

/// Reads a session option that is a duration, in ms.
pub(crate) fn duration_option(name: &str, text: &str) -> Result<i64> {
    crate::time::parse_duration(text).map_err(|why| Error::Argument {
        procedure: "session option".into(),
        message: format!("iceberg_maintenance.{name} = '{text}': {why}"),
    })
}

/// Refuses an age limit in the future or closer to now than the session's floor.
fn require_retention(arguments: &Arguments, older_than_ms: Option<i64>, floor_ms: i64, option: &str) -> Result<()> {
    let Some(older_than_ms) = older_than_ms else { return Ok(()) };
    let age_ms = arguments.now_ms.saturating_sub(older_than_ms);
    if floor_ms > 0 && age_ms < floor_ms {
        return Err(arguments.error(format!(
            "Retention specified ({}) is shorter than the minimum retention configured in the system ({}), session option \
             iceberg_maintenance.{option}",
            crate::time::format_duration(age_ms.max(0)),
            crate::time::format_duration(floor_ms)
        )));
    }
    Ok(())
}

/// A parameter without aliases that `EXECUTE` takes only by name.
pub(crate) const fn parameter(
    name: &'static str,
    kind: ParameterKind,
    call_position: Option<usize>,
    help: &'static str,
) -> Parameter {
    Parameter { name, aliases: &[], kind, call_position, execute_position: None, help }
}
