//! From a statement to a plan: its calls become one table that is scanned.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::datasource::{DefaultTableSource, MemTable, provider_as_source};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{DmlStatement, ExplainFormat, ExplainOption, LogicalPlan, LogicalPlanBuilder, WriteOp};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{Expr, ExprWithAlias};

use super::arguments::{Invocation, Parameters};
use super::constant::{self, Argument, Constant, Written};
use super::provider::ProcedureTable;
use super::relation_planner::call_text;
use super::statement::{Call, NamedExpr, Statement, text_literal};
use super::table_function::ProcedureFunction;
use crate::error::Error;
use crate::time::SessionZone;

/// The plan of a statement. Making it touches nothing.
pub(crate) fn plan(state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    let name = statement.calls.iter().map(text_of).collect::<Vec<_>>().join("; ");
    let mut invocations = vec![];
    let mut maintenance = None;
    for call in statement.calls {
        let function = function(state, call.procedure)?;
        maintenance.get_or_insert_with(|| function.maintenance.clone());
        invocations.push(invocation(state, function, call)?);
    }
    let Some(maintenance) = maintenance else {
        return Err(Error::Statement { message: "the statement calls nothing".into() }.into());
    };
    let table = ProcedureTable::try_new(maintenance, invocations, state.config_options())?;
    let analyzed = statement.explain.as_ref().is_some_and(|explain| explain.analyze);
    let table = if analyzed { table.as_dry_run() } else { Arc::new(table) };
    let builder = LogicalPlanBuilder::scan(TableReference::bare(name), provider_as_source(table), None)?;
    let builder = match statement.explain {
        None => builder,
        Some(explain) => {
            let format = explain.format.as_deref().map(str::parse::<ExplainFormat>).transpose()?;
            let option = ExplainOption::default().with_verbose(explain.verbose).with_analyze(explain.analyze);
            builder.explain_option_format(match format {
                Some(format) => option.with_format(format),
                None => option,
            })?
        }
    };
    builder.build()
}

fn text_of(call: &Call) -> String {
    let target = call.target.iter().map(|target| (None, text_literal(target)));
    call_text(call.procedure, &target.chain(call.arguments.iter().cloned()).collect::<Vec<_>>())
}

/// The function that `install` registered for a procedure.
fn function<'a>(state: &'a SessionState, procedure: &str) -> Result<&'a ProcedureFunction, Error> {
    let registered = state.table_functions().get(procedure).and_then(|function| {
        let function: &dyn Any = function.function().as_ref();
        function.downcast_ref::<ProcedureFunction>()
    });
    registered.ok_or_else(|| Error::Statement {
        message: format!(
            "{procedure} is not installed in this session; call iceberg_maintenance::register(&ctx) once after making it"
        ),
    })
}

fn invocation(state: &SessionState, function: &ProcedureFunction, call: Call) -> Result<Invocation> {
    let Call { form, catalog, target, arguments, .. } = call;
    let parameters = Parameters::of(&function.procedure);
    let zone = SessionZone::new(state.config_options().execution.time_zone.as_deref())
        .map_err(|message| Error::Statement { message })?;
    let argument = |(index, (name, expr)): (usize, NamedExpr)| {
        let wrong = |why| parameters.argument_error(name.as_deref(), index, form, &why);
        let value = match constant::read(expr, zone).map_err(wrong)? {
            Written::Constant(constant) => constant,
            Written::Expression(expr) => fold(state, *expr).map_err(wrong)?,
        };
        Ok(Argument { name, value })
    };
    let arguments = arguments.into_iter().enumerate().map(argument).collect::<Result<Vec<_>, Error>>()?;
    Ok(Invocation { callee: function.procedure, form, catalog, target, arguments })
}

/// Folds an expression as DataFusion folds the arguments of table functions.
fn fold(state: &SessionState, expr: Expr) -> Result<Constant, String> {
    let schema = DFSchema::empty();
    let context = SimplifyContext::builder()
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let folded = state
        .create_logical_expr_from_sql_expr(ExprWithAlias { expr, alias: None }, &schema)
        .and_then(|expr| simplifier.coerce(expr, &schema))
        .and_then(|expr| simplifier.simplify(expr));
    constant::from_folded(&folded.map_err(|error| error.strip_backtrace())?)
}

/// Refuses what changes tables when the options forbid that. The options can only be asked about a plan.
pub(crate) fn verify_acting(options: &SQLOptions) -> Result<()> {
    let empty = LogicalPlanBuilder::empty(false).build()?;
    let target = MemTable::try_new(Arc::new(empty.schema().as_arrow().clone()), vec![vec![]])?;
    let target = Arc::new(DefaultTableSource::new(Arc::new(target)));
    let insert = DmlStatement::new(
        TableReference::bare("maintenance"),
        target,
        WriteOp::Insert(InsertOp::Append),
        Arc::new(empty),
    );
    options.verify_plan(&LogicalPlan::Dml(insert)).map_err(|_| {
        Error::NotAllowed {
            message: "a maintenance call that changes something is not allowed here: the SQL options forbid DML; add \
                      dry_run => true"
                .into(),
        }
        .into()
    })
}
