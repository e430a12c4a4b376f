//! Calls in `FROM`: named arguments (`=>`, `=`, `:=`), `system.f(…)` and `catalog.system.f(…)`, names in any case,
//! `LATERAL f(…)` and `TABLE(f(…))`. DataFusion alone knows only positional arguments of unqualified lower-case names.
//!
//! Each scan carries the call's text as its name: DataFusion compares scans by name only, and would merge two different calls.

use std::cell::RefCell;

use datafusion::common::{DFSchema, Result, TableReference, plan_err};
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, TableAlias, TableFactor,
};

use super::analyzer;
use super::constant::{self, Written};
use super::statement::{self, NamedExpr};
use super::table_function::{Encoded, EncodedValue, encode};
use crate::error::Error;
use crate::time::SessionZone;

tokio::task_local! {
    /// The texts of the calls that were planned in this scope.
    static PLANNED: RefCell<Vec<String>>;
}

/// Awaits the planning of a statement, and says which calls were planned on the way. DataFusion plans every query in `WITH`
/// and leaves out those that nothing refers to.
pub(crate) async fn planned_calls<T>(planning: impl Future<Output = Result<T>>) -> Result<(T, Vec<String>)> {
    let planning = async {
        let planned = planning.await?;
        Ok((planned, PLANNED.with(RefCell::take)))
    };
    PLANNED.scope(RefCell::default(), planning).await
}

/// Plans calls of procedures and of metadata tables' functions in `FROM`.
#[derive(Debug, Default)]
pub(crate) struct ProcedureRelations;

impl RelationPlanner for ProcedureRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let called = called_name(&relation).and_then(path).and_then(|path| statement::called_function(&path));
        let Some((catalog, procedure)) = called else { return Ok(RelationPlanning::Original(Box::new(relation))) };
        let (arguments, alias) = parts(relation)?;
        plan_call(procedure, catalog, arguments, alias, context)
    }
}

fn called_name(relation: &TableFactor) -> Option<&ObjectName> {
    match relation {
        TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => Some(name),
        TableFactor::TableFunction { expr: Expr::Function(function), .. } => Some(&function.name),
        _ => None,
    }
}

fn path(name: &ObjectName) -> Option<Vec<Ident>> {
    name.0.iter().map(|part| part.as_ident().cloned()).collect()
}

/// Takes arguments and alias out of a call.
fn parts(relation: TableFactor) -> Result<(Vec<FunctionArg>, Option<TableAlias>)> {
    match relation {
        TableFactor::Table { args: Some(args), alias, version: None, sample: None, with_ordinality: false, .. }
            if args.settings.is_none() =>
        {
            Ok((args.args, alias))
        }
        TableFactor::Function { args, alias, with_ordinality: false, .. } => Ok((args, alias)),
        TableFactor::TableFunction { expr: Expr::Function(function), alias } => match function.args {
            FunctionArguments::List(list) => Ok((list.args, alias)),
            FunctionArguments::None => Ok((vec![], alias)),
            FunctionArguments::Subquery(_) => plan_err!("{} can't be called with a subquery", function.name),
        },
        other => plan_err!("maintenance calls take arguments and an alias, and nothing else: {other}"),
    }
}

fn plan_call(
    procedure: &'static str,
    catalog: Option<String>,
    arguments: Vec<FunctionArg>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<RelationPlanning> {
    let arguments = arguments.into_iter().map(|argument| named(procedure, argument)).collect::<Result<Vec<_>>>()?;
    let scan_name = call_text(procedure, &arguments);
    let time_zone = context.context_provider().options().execution.time_zone.clone();
    let zone = SessionZone::new(time_zone.as_deref()).map_err(|message| Error::Statement { message })?;
    let mut encoded = vec![];
    for (name, expr) in arguments {
        let wrong = |why| {
            let name = name.as_deref().map(|name| format!("argument {name}: ")).unwrap_or_default();
            Error::argument(procedure, format!("{name}{why}"))
        };
        let value = match constant::read(expr, zone).map_err(wrong)? {
            Written::Constant(constant) => EncodedValue::Constant(constant),
            Written::Expression(expr) => EncodedValue::Expression(context.sql_to_expr(*expr, &DFSchema::empty())?),
        };
        encoded.push(Encoded { name, value });
    }
    let source = context.context_provider().get_table_function_source(procedure, encode(catalog, encoded))?;
    if analyzer::source_acts(&source, context.context_provider().options()) {
        // Outside of `planned_calls` nobody asks.
        let _ = PLANNED.try_with(|planned| planned.borrow_mut().push(scan_name.clone()));
    }
    let scan = LogicalPlanBuilder::scan(TableReference::bare(scan_name), source, None)?;
    let plan = if alias.is_none() { scan.alias(procedure)? } else { scan }.build()?;
    Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
}

/// Splits an argument into name and value. Most dialects read `name = value` as a comparison.
fn named(procedure: &str, argument: FunctionArg) -> Result<NamedExpr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp { left, op: BinaryOperator::Eq, right })) => {
            match *left {
                Expr::Identifier(name) => Ok((Some(name.value), *right)),
                left => Ok((None, Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Eq, right })),
            }
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok((None, expr)),
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. }
        | FunctionArg::ExprNamed { name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(expr), .. } => {
            Ok((Some(name.value), expr))
        }
        other => Err(Error::argument(procedure, format!("{other} is no argument; write name => value")).into()),
    }
}

/// A call as text, for `EXPLAIN`.
pub(crate) fn call_text(procedure: &str, arguments: &[NamedExpr]) -> String {
    let text = |(name, expr): &NamedExpr| match name {
        Some(name) => format!("{} => {expr}", name.to_ascii_lowercase()),
        None => expr.to_string(),
    };
    format!("{procedure}({})", arguments.iter().map(text).collect::<Vec<_>>().join(", "))
}
