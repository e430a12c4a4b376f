//! SQL: from the text of a statement to calls, and from calls to rows.
//!
//! Every spelling becomes the same thing: a procedure, its arguments folded to constants ([`arguments::Invocation`]), a table
//! over these ([`provider::ProcedureTable`]) and a scan of it ([`exec::ProcedureExec`]). So that all work in any embedder's
//! session, no query planner is replaced; `install` only adds table functions, a relation planner and an analyzer rule.
//!
//! Nothing here touches a table: parsing, planning, `EXPLAIN` and schemas never do, and a call runs once for each execution of
//! its statement, when its first row is asked for. `sql/` knows nothing of snapshots and files; what an argument means
//! is for the procedure to say.

mod analyzer;
mod arguments;
mod constant;
mod exec;
mod lower;
mod names;
mod provider;
mod relation_planner;
mod rewrite;
mod statement;
mod table_function;
mod vacuum;
mod value;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::config::ConfigOptions;
use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::dialect::{GenericDialect, dialect_from_str};

#[cfg(feature = "fuzzing")]
pub(crate) use lower::plan;
pub use rewrite::rewrite;
#[cfg(feature = "fuzzing")]
pub(crate) use statement::parse;

use crate::error::Error;
use crate::maintenance::Maintenance;
use crate::metadata_tables::MetadataTable;
use crate::options::MaintenanceOptions;
use crate::procedure::{PROCEDURES, Procedure};

/// Statements of Iceberg maintenance for a session: `CALL`, `ALTER TABLE … EXECUTE` and `VACUUM`.
#[async_trait]
pub trait MaintenanceSql {
    /// Plans a maintenance statement, and hands all other SQL on to [`SessionContext::sql`].
    ///
    /// The statement runs when the data frame is executed: `ctx.maintenance_sql("CALL …").await?.collect().await?`.
    /// Executing the same data frame again returns the same rows and runs nothing.
    ///
    /// # Errors
    /// Errors of this crate come as [`DataFusionError::External`](datafusion::error::DataFusionError::External); find them with
    /// [`Error::find`](crate::Error::find).
    async fn maintenance_sql(&self, sql: &str) -> Result<DataFrame>;

    /// The same with limits: calls that change something, by statement or by table function, need
    /// [`allow_dml`](SQLOptions::with_allow_dml). Dry runs and `EXPLAIN` don't.
    async fn maintenance_sql_with_options(&self, sql: &str, options: SQLOptions) -> Result<DataFrame>;
}

#[async_trait]
impl MaintenanceSql for SessionContext {
    async fn maintenance_sql(&self, sql: &str) -> Result<DataFrame> {
        self.maintenance_sql_with_options(sql, SQLOptions::new()).await
    }

    async fn maintenance_sql_with_options(&self, sql: &str, options: SQLOptions) -> Result<DataFrame> {
        let state = self.state();
        let plan = match parse_in(&state, sql)? {
            Some(statement) => lower::plan(&state, statement)?,
            None => plan_query(&state, sql).await?,
        };
        options.verify_plan(&plan)?;
        if acting_calls(&plan, state.config_options())? > 0 {
            lower::verify_acting(&options)?;
            // What a view or a prepared statement holds is looked at when it is used.
            if !matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_)) {
                analyzer::verify(&plan, state.config_options())?;
            }
        }
        self.execute_logical_plan(plan).await
    }
}

/// How many calls in a plan would change tables or files when it is executed; views are looked into. Whoever executes a plan
/// that must only read asks this first.
pub(crate) fn acting_calls(plan: &LogicalPlan, config: &ConfigOptions) -> Result<usize> {
    analyzer::count_acting(plan, config)
}

/// Plans what is none of our statements. Refuses acting calls that the planner has left out.
async fn plan_query(state: &SessionState, sql: &str) -> Result<LogicalPlan> {
    let (plan, planned) = relation_planner::planned_calls(state.create_logical_plan(sql)).await?;
    // DESCRIBE keeps nothing but the schema.
    if !planned.is_empty() && !matches!(plan, LogicalPlan::DescribeTable(_)) {
        let used = analyzer::scan_names(&plan)?;
        if let Some(unused) = planned.iter().find(|call| !used.contains(*call)) {
            return Err(Error::Statement {
                message: format!(
                    "nothing in the statement refers to the rows of {unused}, so that it would never run. Leave it out, or \
                     select from it"
                ),
            }
            .into());
        }
    }
    Ok(plan)
}

/// Parses with the session's dialect. Not async, because a dialect can't be held across an await.
fn parse_in(state: &SessionState, sql: &str) -> crate::Result<Option<statement::Statement>> {
    let dialect = dialect_from_str(state.config_options().sql_parser.dialect);
    statement::parse(sql, dialect.as_deref().unwrap_or(&GenericDialect))
}

/// Installs the procedures in a session. Installing again replaces the handle and nothing else.
///
/// `options` replace the session's; without them those that are there stay.
pub(crate) fn install(
    ctx: &SessionContext,
    maintenance: &Maintenance,
    options: Option<MaintenanceOptions>,
) -> Result<()> {
    if let Some(options) = options {
        ctx.state_ref().write().config_mut().options_mut().extensions.insert(options);
    }
    install_procedures(ctx, maintenance, &PROCEDURES)?;
    let state = ctx.state_ref();
    let mut state = state.write();
    for table in MetadataTable::ALL {
        let function = table_function::MetadataFunction { table, maintenance: maintenance.clone() };
        state.register_udtf(table.function(), Arc::new(function));
    }
    Ok(())
}

fn install_procedures(
    ctx: &SessionContext,
    maintenance: &Maintenance,
    procedures: &[&'static dyn Procedure],
) -> Result<()> {
    let state = ctx.state_ref();
    let mut state = state.write();
    for procedure in procedures {
        let function = table_function::ProcedureFunction { procedure: *procedure, maintenance: maintenance.clone() };
        state.register_udtf(procedure.name(), Arc::new(function));
    }
    let options = state.config_mut().options_mut();
    if options.extensions.get::<MaintenanceOptions>().is_none() {
        options.extensions.insert(MaintenanceOptions::default());
    }
    let rule_name = analyzer::ActingCallsStandAlone::NAME;
    if !state.analyzer().rules.iter().any(|rule| rule.name() == rule_name) {
        // The two belong together: the rule tells that the planner is there, too.
        state.register_relation_planner(Arc::new(relation_planner::ProcedureRelations))?;
        state.add_analyzer_rule(Arc::new(analyzer::ActingCallsStandAlone));
    }
    Ok(())
}
