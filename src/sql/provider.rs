//! The table that a call is to the planner. Making it, asking for its schema and scanning it touch nothing: the work begins
//! when [`ProcedureExec`] is polled.
//!
//! How often does a call run? Once for each execution of a statement that uses it. An execution is told from another by the
//! start time that DataFusion gives each; so a common table expression used twice runs once (the analyzer rule lets only dry
//! runs be used twice), and a view or a prepared statement runs once for each use, with its relative times counted from that
//! use. Where no start time is known (calls
//! through DataFusion's FFI), scans share a run as long as it has not begun, since all scans of an execution precede it.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::datasource::TableType;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;

use super::arguments::{Environment, Invocation};
use super::exec::{NamedCall, ProcedureExec, Run, schema_of};
use super::statement::Form;
use crate::error::Error;
use crate::maintenance::Maintenance;
use crate::options::MaintenanceOptions;

/// What calls may do, by the session option `iceberg_maintenance.table_functions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Execute,
    /// Table functions are dry runs.
    DryRun,
    /// Table functions are refused.
    Off,
    /// Whatever would change something is refused, statements too.
    PlanOnly,
}

impl Mode {
    fn of(options: &MaintenanceOptions) -> Result<Self, Error> {
        match options.table_functions.as_str() {
            "execute" => Ok(Mode::Execute),
            "dry_run" => Ok(Mode::DryRun),
            "off" => Ok(Mode::Off),
            "plan_only" => Ok(Mode::PlanOnly),
            other => Err(Error::Statement {
                message: format!(
                    "the session option iceberg_maintenance.table_functions is '{other}'; it can be 'execute', 'dry_run', \
                     'off' or 'plan_only'"
                ),
            }),
        }
    }
}

/// Refuses calls that would change something where the session only lets them be planned.
///
/// # Errors
/// [`Error::NotAllowed`] in such a session.
pub(super) fn refuse_acting(procedures: &str, config: &ConfigOptions) -> Result<(), Error> {
    match config.extensions.get::<MaintenanceOptions>().map(Mode::of).transpose()? {
        Some(Mode::PlanOnly) => Err(Error::NotAllowed {
            message: format!(
                "{procedures} would change something, which this session may only plan: its option \
                 iceberg_maintenance.table_functions is 'plan_only'; add dry_run => true, or use EXPLAIN"
            ),
        }),
        _ => Ok(()),
    }
}

/// One call, or several in order, as a table.
#[derive(Debug)]
pub(crate) struct ProcedureTable {
    maintenance: Maintenance,
    invocations: Vec<Invocation>,
    schema: SchemaRef,
    /// Whether a call would change something where the session lets it.
    acts: bool,
    /// True when every call is made a dry run, whatever its arguments say.
    dry_run: bool,
    runs: Mutex<Runs>,
    as_dry_run: OnceLock<Arc<ProcedureTable>>,
}

impl ProcedureTable {
    /// Checks the arguments and makes the table.
    ///
    /// # Errors
    /// Whatever is wrong with the arguments, and [`Error::NotAllowed`] when the session forbids table functions.
    pub(crate) fn try_new(
        maintenance: Maintenance,
        invocations: Vec<Invocation>,
        config: &ConfigOptions,
    ) -> Result<Self> {
        let env = Environment::new(maintenance.now_ms(), config)?;
        let calls = bind(&invocations, &env)?;
        let schema = schema_of(&calls.iter().map(|named| Arc::clone(&named.call)).collect::<Vec<_>>())?;
        let acts = calls.iter().any(|named| !named.call.dry_run());
        let (runs, as_dry_run) = Default::default();
        Ok(Self { maintenance, invocations, schema, acts, dry_run: false, runs, as_dry_run })
    }

    /// The same calls as dry runs, with the same rows. Always the same table, so that its scans share their runs.
    pub(crate) fn as_dry_run(&self) -> Arc<Self> {
        let table = || Self {
            maintenance: self.maintenance.clone(),
            invocations: self.invocations.clone(),
            schema: Arc::clone(&self.schema),
            acts: false,
            dry_run: true,
            runs: Mutex::default(),
            as_dry_run: OnceLock::new(),
        };
        Arc::clone(self.as_dry_run.get_or_init(|| Arc::new(table())))
    }

    /// True when executing a scan changes tables or files in a session with these options.
    pub(crate) fn acts(&self, config: &ConfigOptions) -> bool {
        let dry_run = config
            .extensions
            .get::<MaintenanceOptions>()
            .is_some_and(|options| Mode::of(options).is_ok_and(|mode| matches!(mode, Mode::DryRun | Mode::Off)));
        self.acts && !(dry_run && self.invocations.iter().all(|invocation| invocation.form == Form::Function))
    }

    fn new_run(&self, config: &ConfigOptions) -> Result<Arc<Run>> {
        let env = Environment::new(self.maintenance.now_ms(), config)?;
        let calls = obey(bind(&self.invocations, &env)?, &self.invocations, &env, self.dry_run)?;
        Ok(Arc::new(Run::new(self.maintenance.clone(), calls, Arc::clone(&self.schema))))
    }
}

fn bind(invocations: &[Invocation], env: &Environment) -> Result<Vec<NamedCall>> {
    let bind = |invocation: &Invocation| {
        let procedure = invocation.callee;
        let arguments = invocation.arguments(env)?;
        let notices = invocation.notices(&arguments);
        let call = procedure.bind(arguments, &env.options)?;
        obey_off(invocation, env)?;
        Ok(NamedCall { name: procedure.name(), call, notices })
    };
    invocations.iter().map(bind).collect()
}

fn obey_off(invocation: &Invocation, env: &Environment) -> Result<(), Error> {
    if invocation.form == Form::Function && Mode::of(&env.options)? == Mode::Off {
        return Err(Error::NotAllowed {
            message: format!(
                "{} can't be called as a table function: the session option iceberg_maintenance.table_functions is 'off'; \
                 use CALL, or SET it to 'dry_run' or 'execute'",
                invocation.callee.name()
            ),
        });
    }
    Ok(())
}

/// Makes dry runs of all calls, or of table functions where the session wants that.
fn obey(calls: Vec<NamedCall>, invocations: &[Invocation], env: &Environment, all_dry: bool) -> Result<Vec<NamedCall>> {
    let functions_dry = Mode::of(&env.options)? == Mode::DryRun;
    let obey = |(named, invocation): (NamedCall, &Invocation)| {
        let dry_run = all_dry || functions_dry && invocation.form == Form::Function;
        let call = if dry_run && !named.call.dry_run() { named.call.as_dry_run() } else { named.call };
        NamedCall { call, ..named }
    };
    Ok(calls.into_iter().zip(invocations).map(obey).collect())
}

#[async_trait]
impl TableProvider for ProcedureTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    // Filters stay above the scan and the limit is ignored: the work is the same whatever rows are wanted.
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let start = state.execution_props().query_execution_start_time;
        let mut runs = self.runs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let run = match runs.find(start) {
            Some(run) => run,
            None => runs.add(start, self.new_run(state.config().options())?),
        };
        Ok(Arc::new(ProcedureExec::try_new(run, projection)?))
    }
}

/// The runs that scans may still share.
#[derive(Debug, Default)]
struct Runs {
    /// The newest, kept so that a data frame that is collected twice has the same rows twice.
    newest: Option<(Option<DateTime<Utc>>, Arc<Run>)>,
    /// Older ones that plans still hold: executions that overlap.
    older: Vec<(DateTime<Utc>, Weak<Run>)>,
}

impl Runs {
    fn find(&self, start: Option<DateTime<Utc>>) -> Option<Arc<Run>> {
        if let Some((newest_start, run)) = &self.newest
            && *newest_start == start
            && (start.is_some() || !run.has_started())
        {
            return Some(Arc::clone(run));
        }
        self.older.iter().find(|(older, _)| Some(*older) == start).and_then(|(_, run)| run.upgrade())
    }

    fn add(&mut self, start: Option<DateTime<Utc>>, run: Arc<Run>) -> Arc<Run> {
        if let Some((Some(start), previous)) = self.newest.replace((start, Arc::clone(&run))) {
            self.older.retain(|(_, run)| run.strong_count() > 0);
            self.older.push((start, Arc::downgrade(&previous)));
        }
        run
    }
}
