//! The rule that a call which changes something stands alone in its statement.
//!
//! A query says which rows are wanted, not what shall be done: the optimizer may drop, merge or repeat parts of it. A dry run
//! is free of that concern and may be joined with anything. A call that acts may only stand below operators that read their
//! one input: otherwise how often it runs would depend on the optimizer. (What the user excludes stays excluded: with
//! `LIMIT 0` or `WHERE false` a call does not run.)

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::optimizer::AnalyzerRule;

use super::provider::ProcedureTable;

/// Refuses plans in which a call that acts does not stand alone.
#[derive(Debug, Default)]
pub(crate) struct ActingCallsStandAlone;

impl ActingCallsStandAlone {
    pub(crate) const NAME: &'static str = "iceberg_maintenance_acting_calls_stand_alone";
}

impl AnalyzerRule for ActingCallsStandAlone {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        match count_acting(&plan, config)? {
            0 => Ok(plan),
            1 if stands_alone(&plan, config) => Ok(plan),
            1 => plan_err!(
                "a maintenance call that changes something can't be joined, united or put into a subquery, where it could run \
                 twice or never; run it in a statement of its own, or add dry_run => true"
            ),
            count => plan_err!(
                "the statement holds {count} maintenance calls that change something, but at most one may run in a statement; \
                 split it, or add dry_run => true"
            ),
        }
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

/// How many scans of a plan would change something. A plan that is only explained changes nothing.
pub(crate) fn count_acting(plan: &LogicalPlan, config: &ConfigOptions) -> Result<usize> {
    let mut count = 0;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Explain(_) => return Ok(TreeNodeRecursion::Jump),
            LogicalPlan::TableScan(scan) if acts(scan, config) => count += 1,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(count)
}

fn acts(scan: &TableScan, config: &ConfigOptions) -> bool {
    let Ok(provider) = source_as_provider(&scan.source) else { return false };
    let provider: &dyn TableProvider = provider.as_ref();
    provider.downcast_ref::<ProcedureTable>().is_some_and(|table| table.acts(config))
}

/// True when only operators that read their one input once lead to the call.
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
        | LogicalPlan::Analyze(_)
        | LogicalPlan::Dml(_)
        | LogicalPlan::Ddl(_)
        | LogicalPlan::Copy(_)
        | LogicalPlan::Statement(_) => match plan.inputs().as_slice() {
            [input] => stands_alone(input, config),
            _ => false,
        },
        _ => false,
    }
}
