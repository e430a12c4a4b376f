//! The rule that a call which changes something stands alone in its statement, and really runs.
//!
//! A query says which rows are wanted, not what shall be done: the optimizer may drop, merge or repeat parts of it. A dry run
//! is free of that concern and may be joined with anything. A call that acts may only stand below operators that read their
//! one input, or how often it runs would depend on the optimizer. And a query that excludes all of its rows (`LIMIT 0`,
//! `WHERE false`) is refused: the optimizer would drop the call without a word.
//!
//! What `EXPLAIN ANALYZE` executes is made a dry run: no form of `EXPLAIN` changes anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableSource};
use datafusion::optimizer::{AnalyzerRule, Optimizer, OptimizerContext};

use super::provider::{ProcedureTable, refuse_acting};
use crate::error::Error;

/// Refuses plans in which a call that acts does not stand alone, and makes dry runs below `EXPLAIN ANALYZE`.
#[derive(Debug, Default)]
pub(crate) struct ActingCallsStandAlone;

impl ActingCallsStandAlone {
    pub(crate) const NAME: &'static str = "iceberg_maintenance_acting_calls_stand_alone";
}

impl AnalyzerRule for ActingCallsStandAlone {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = explain_without_acting(plan, config)?;
        verify(&plan, config)?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

/// Refuses a plan in which a call that changes something doesn't stand alone, would never run, or may not act in this session.
pub(crate) fn verify(plan: &LogicalPlan, config: &ConfigOptions) -> Result<()> {
    let refused = |message: String| Err(Error::Statement { message }.into());
    let count = count_acting(plan, config)?;
    if count > 0 {
        refuse_acting("a maintenance call", config)?;
    }
    match count {
        0 => Ok(()),
        1 if !stands_alone(plan, config) => refused(
            "a maintenance call that changes something can't be joined, united or put into a subquery, nor filtered by one: it \
             could run twice or never. Run it in a statement of its own, or add dry_run => true"
                .into(),
        ),
        1 if never_runs(plan, config) => refused(
            "the query excludes all rows of a maintenance call that changes something (LIMIT 0, or a condition that can't be \
             true), so that the call would never run. Leave that out, or add dry_run => true"
                .into(),
        ),
        1 => Ok(()),
        count => refused(format!(
            "the statement holds {count} maintenance calls that change something, but at most one may run in a statement; \
             split it, or add dry_run => true"
        )),
    }
}

/// How many scans of a plan would change something, those of views included. A plan that is only explained changes nothing.
pub(crate) fn count_acting(plan: &LogicalPlan, config: &ConfigOptions) -> Result<usize> {
    let mut count = 0;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => return Ok(TreeNodeRecursion::Jump),
            LogicalPlan::TableScan(scan) if acts(scan, config) => count += 1,
            LogicalPlan::TableScan(scan) => {
                if let Some(view) = scan.source.get_logical_plan() {
                    count += count_acting(&view, config)?;
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(count)
}

/// The names of all scans in a plan, which for our calls are their texts.
pub(crate) fn scan_names(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                names.insert(scan.table_name.table().to_string());
            }
            LogicalPlan::Explain(explain) => names.extend(scan_names(&explain.plan)?),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

fn acts(scan: &TableScan, config: &ConfigOptions) -> bool {
    source_acts(&scan.source, config)
}

/// True when scanning the source changes something.
pub(crate) fn source_acts(source: &Arc<dyn TableSource>, config: &ConfigOptions) -> bool {
    with_procedure(source, |table| table.acts(config)).unwrap_or(false)
}

fn with_procedure<T>(source: &Arc<dyn TableSource>, f: impl FnOnce(&ProcedureTable) -> T) -> Option<T> {
    let provider = source_as_provider(source).ok()?;
    let provider: &dyn TableProvider = provider.as_ref();
    provider.downcast_ref::<ProcedureTable>().map(f)
}

/// Makes dry runs of the calls that `EXPLAIN ANALYZE` would execute.
fn explain_without_acting(plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
    let below = |node: LogicalPlan| match node {
        LogicalPlan::Analyze(mut analyze) if count_acting(&analyze.input, config)? > 0 => {
            let input = Arc::unwrap_or_clone(analyze.input).transform_down_with_subqueries(|node| dry(node, config))?;
            analyze.input = Arc::new(input.data);
            Ok(Transformed::yes(LogicalPlan::Analyze(analyze)))
        }
        other => Ok(Transformed::no(other)),
    };
    Ok(plan.transform_down(below)?.data)
}

/// The same scan as a dry run.
fn dry(node: LogicalPlan, config: &ConfigOptions) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::TableScan(mut scan) if acts(&scan, config) => {
            if let Some(table) = with_procedure(&scan.source, ProcedureTable::as_dry_run) {
                scan.source = provider_as_source(table);
            }
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// True when only operators that read their one input once, and no subquery, lead to the call.
fn stands_alone(plan: &LogicalPlan, config: &ConfigOptions) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => acts(scan, config),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Dml(_)
        | LogicalPlan::Ddl(_)
        | LogicalPlan::Copy(_)
        | LogicalPlan::Statement(_) => match plan.inputs().as_slice() {
            [input] => !plan.expressions().iter().any(has_subquery) && stands_alone(input, config),
            _ => false,
        },
        _ => false,
    }
}

/// True for what the optimizer turns into a join, which may leave out one of its sides.
fn has_subquery(expr: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        Ok(matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)))
    };
    expr.exists(is_subquery).unwrap_or(true)
}

/// True when DataFusion's optimizer drops the call. A plan that it can't optimize fails later with its own error.
fn never_runs(plan: &LogicalPlan, config: &ConfigOptions) -> bool {
    let context = OptimizerContext::new_with_config_options(Arc::new(config.clone()));
    let optimized = Optimizer::new().optimize(plan.clone(), &context, |_, _| {});
    optimized.and_then(|plan| count_acting(&plan, config)).is_ok_and(|count| count == 0)
}
