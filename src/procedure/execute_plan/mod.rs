//! `execute_plan`: does what a dry run stored, and nothing more.
//!
//! The operation is planned anew on the newest metadata, with the options of the dry run and at its time, and what comes out
//! is limited to the stored plan: so every file passes all checks again, and a plan can only shrink. Where the table changed in
//! what matters (a snapshot or ref of the plan is gone, or would stay now), the plan is refused.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;

use super::expire_snapshots::{self, ExpireSnapshots};
use super::remove_orphan_files::{self, RemoveOrphanFiles};
use super::unfinished_runs::{DRY_RUN, TABLE};
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::catalog::TableHandle;
use crate::error::{Error, Result};
use crate::journal::PlanFile;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::report::{Operation, Output, Report};
use crate::time::format_duration;

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct ExecutePlanProcedure;

#[derive(Debug, Clone)]
struct ExecutePlanCall {
    table: String,
    plan: String,
    output: Output,
    dry_run: bool,
    verify: bool,
    ignore_floor: bool,
    described: String,
}

impl Procedure for ExecutePlanProcedure {
    fn name(&self) -> &'static str {
        "execute_plan"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let plan = arguments.text("plan");
        Ok(Arc::new(ExecutePlanCall {
            table: arguments.table()?,
            plan: plan.ok_or_else(|| {
                arguments.error("argument plan is missing: name the file that a dry run stored its plan in")
            })?,
            output: arguments.output(),
            dry_run: arguments.boolean("dry_run").unwrap_or(false),
            verify: arguments.boolean("verify").unwrap_or(false),
            ignore_floor: arguments.boolean("ignore_floor").unwrap_or(false),
            described: arguments.describe(),
        }))
    }
}

#[async_trait]
impl BoundCall for ExecutePlanCall {
    fn schema(&self) -> SchemaRef {
        self.output.schema(Operation::ExpireSnapshots)
    }

    fn dry_run(&self) -> bool {
        self.dry_run
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(Self { dry_run: true, ..self.clone() })
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let started = Instant::now();
        let handle = context.resolve(&self.table)?;
        let plan = PlanFile::read(&self.plan, &context.task).await?;
        let operation = self.execute(&plan, &handle, &context);
        let report = super::verified(self.verify, &handle, &context, operation).await?;
        CallOutcome::of_report(report, self.output, started, &context.maintenance)
    }
}

impl ExecutePlanCall {
    async fn execute(&self, plan: &PlanFile, handle: &TableHandle, context: &RunContext) -> Result<Report> {
        self.refuse_future(plan.planned_at_ms(), context)?;
        match plan.operation() {
            Operation::ExpireSnapshots => {
                let planned: ExpireSnapshots = plan.options()?;
                let session = context.options().expire_snapshots_min_retention;
                let floor = super::duration_option("expire_snapshots_min_retention", &session)?;
                let min_retention_ms = planned.min_retention_ms.max(floor);
                let options = ExpireSnapshots { min_retention_ms, ..planned };
                match self.dry_run {
                    true => expire_snapshots::preview(handle.clone(), &options, Some(plan), None, context).await,
                    false => expire_snapshots::run(handle.clone(), &options, Some(plan), context).await,
                }
            }
            Operation::RemoveOrphanFiles => {
                let planned: RemoveOrphanFiles = plan.options()?;
                self.refuse_young_cutoff(planned.cutoff_ms, context)?;
                // Which files are old enough was decided then; windows begin now.
                let options = RemoveOrphanFiles { now_ms: context.maintenance.now_ms(), ..planned };
                let plan = remove_orphan_files::plan(handle.clone(), &options, Some(plan), context).await?;
                match self.dry_run {
                    true => Ok(plan.report()),
                    false => remove_orphan_files::execute(plan, context).await,
                }
            }
            other => Err(Error::Malformed {
                what: "a stored plan",
                path: self.plan.clone(),
                why: format!("it is one of {}, which stores none", other.as_str()),
            }),
        }
    }
}

impl ExecutePlanCall {
    /// A plan from the future was made by a wrong clock, or by hand.
    fn refuse_future(&self, planned_at_ms: i64, context: &RunContext) -> Result<()> {
        const TOLERATED_MS: i64 = 15 * 60 * 1000;
        let ahead_ms = planned_at_ms.saturating_sub(context.maintenance.now_ms());
        match ahead_ms > TOLERATED_MS {
            false => Ok(()),
            true => Err(Error::argument(
                "execute_plan",
                format!("{} was planned {} in the future: plan again", self.plan, format_duration(ahead_ms)),
            )),
        }
    }

    /// The session's floor holds for stored plans, too.
    fn refuse_young_cutoff(&self, cutoff_ms: i64, context: &RunContext) -> Result<()> {
        let option = "remove_orphan_files_min_retention";
        let floor_ms = super::duration_option(option, &context.options().remove_orphan_files_min_retention)?;
        let age_ms = context.maintenance.now_ms().saturating_sub(cutoff_ms);
        match age_ms < 0 || age_ms < floor_ms && !self.ignore_floor {
            false => Ok(()),
            true => Err(Error::argument(
                "execute_plan",
                format!(
                    "{} removes files that are younger than the minimum retention configured in the system ({}), session option \
                     iceberg_maintenance.{option}; if really no write can be running, give ignore_floor => true",
                    self.plan,
                    format_duration(floor_ms)
                ),
            )),
        }
    }
}

const PARAMETERS: &[Parameter] = &[
    TABLE,
    Parameter {
        execute_position: Some(0),
        ..parameter("plan", ParameterKind::Text, Some(1), "the file that a dry run stored its plan in")
    },
    DRY_RUN,
    parameter(
        "verify",
        ParameterKind::Boolean,
        None,
        "look before and after whether every file that any snapshot needs is there",
    ),
    parameter(
        "ignore_floor",
        ParameterKind::Boolean,
        None,
        "allow a removal of orphans with an age limit below the session's floor",
    ),
    parameter("output", ParameterKind::Choice(&["metrics", "files"]), None, "which rows to return"),
];
