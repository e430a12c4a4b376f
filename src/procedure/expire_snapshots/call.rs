//! `expire_snapshots` as SQL sees it: its parameters, and what they ask for.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;

use super::{ExpireSnapshots, preview, run};
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::procedure::{self, Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::report::{Operation, Output};
use crate::retention::RetentionPolicy;

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct ExpireSnapshotsProcedure;

#[derive(Debug, Clone)]
struct ExpireSnapshotsCall {
    table: String,
    options: ExpireSnapshots,
    output: Output,
    dry_run: bool,
    verify: bool,
    /// Where a dry run stores its plan.
    plan: Option<String>,
    described: String,
}

impl Procedure for ExpireSnapshotsProcedure {
    fn name(&self) -> &'static str {
        "expire_snapshots"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        Ok(Arc::new(ExpireSnapshotsCall {
            table: arguments.table()?,
            options: options_of(&arguments, options)?,
            output: arguments.output(),
            dry_run: arguments.boolean("dry_run").unwrap_or(false),
            verify: arguments.boolean("verify").unwrap_or(false),
            plan: procedure::plan_argument(&arguments)?,
            described: arguments.describe(),
        }))
    }
}

/// The options that the arguments ask for.
pub(in crate::procedure) fn options_of(arguments: &Arguments, options: &MaintenanceOptions) -> Result<ExpireSnapshots> {
    arguments.exclusive("older_than", "retention_threshold")?;
    for policy in ["older_than", "retention_threshold", "retain_last"] {
        arguments.exclusive("snapshot_ids", policy)?;
        arguments.exclusive("from_timestamp", policy)?;
    }
    arguments.exclusive("snapshot_ids", "from_timestamp")?;
    arguments.exclusive("delete_files", "deferred")?;
    arguments.exclusive("quarantine", "deferred")?;
    arguments.exclusive("quarantine", "delete_files")?;
    // They could not be returned: what the journal says of files elsewhere is not believed.
    arguments.exclusive("quarantine", "delete_external_files")?;
    procedure::require_journal(arguments.boolean("quarantine"), options)?;
    let threshold = arguments.duration("retention_threshold").map(|ago| arguments.now_ms.saturating_sub(ago));
    let older_than_ms = arguments.timestamp("older_than").or(threshold);
    let floor = procedure::duration_option("expire_snapshots_min_retention", &options.expire_snapshots_min_retention)?;
    procedure::require_retention(arguments, older_than_ms, floor, "expire_snapshots_min_retention")?;
    let policy = RetentionPolicy {
        older_than_ms,
        expire_before_ms: arguments.timestamp("expire_before"),
        retain_last: arguments.integer("retain_last"),
        snapshot_ids: arguments.ids("snapshot_ids"),
        made_between_ms: range(arguments)?,
        protected_snapshot_ids: arguments.ids("protected_snapshot_ids").unwrap_or_default(),
        ignore_streaming_checkpoints: arguments.boolean("ignore_streaming_checkpoints").unwrap_or(false),
        clean_expired_metadata: arguments.boolean("clean_expired_metadata").unwrap_or(false),
    };
    Ok(ExpireSnapshots {
        policy,
        delete_files: arguments.boolean("delete_files").unwrap_or(true),
        deferred_ms: arguments.duration("deferred"),
        quarantine: arguments.boolean("quarantine").unwrap_or(false),
        max_delete_count: arguments.integer("max_delete_count").map(|n| n.unsigned_abs()),
        max_delete_fraction: arguments.fraction("max_delete_fraction"),
        max_concurrent_deletes: procedure::concurrency(arguments),
        delete_external_files: arguments.boolean("delete_external_files").unwrap_or(false),
        no_catalog: arguments.boolean("no_catalog").unwrap_or(false),
        shared_location: arguments.boolean("shared_location").unwrap_or(false),
        ignore_clock_difference: arguments.boolean("ignore_clock_difference").unwrap_or(false),
        min_retention_ms: floor,
    })
}

/// Hive's `BETWEEN`: both ends or none.
fn range(arguments: &Arguments) -> Result<Option<(i64, i64)>> {
    match (arguments.timestamp("from_timestamp"), arguments.timestamp("to_timestamp")) {
        (None, None) => Ok(None),
        (Some(from), Some(to)) => Ok(Some((from, to))),
        _ => Err(arguments.error("from_timestamp and to_timestamp belong together: give both")),
    }
}

#[async_trait]
impl BoundCall for ExpireSnapshotsCall {
    fn schema(&self) -> SchemaRef {
        self.output.schema(Operation::ExpireSnapshots)
    }

    fn dry_run(&self) -> bool {
        self.dry_run && self.plan.is_none()
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(Self { dry_run: true, plan: None, ..self.clone() })
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let started = Instant::now();
        let handle = context.resolve(&self.table)?;
        let operation = async {
            match self.dry_run {
                true => preview(handle.clone(), &self.options, None, self.plan.as_deref(), &context).await,
                false => run(handle.clone(), &self.options, None, &context).await,
            }
        };
        let report = procedure::verified(self.verify, &handle, &context, operation).await?;
        CallOutcome::of_report(report, self.output, started, &context.maintenance)
    }
}

/// Spark's order in `CALL`; the one positional argument of `EXECUTE` is ClickHouse's `expire_before`.
pub(in crate::procedure) const PARAMETERS: &[Parameter] = &[
    Parameter {
        aliases: &["table_name"],
        ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
    },
    parameter("older_than", ParameterKind::Timestamp, Some(1), "snapshots older than this may expire"),
    Parameter {
        aliases: &["min_snapshots_to_keep"],
        ..parameter(
            "retain_last",
            ParameterKind::Integer(1),
            Some(2),
            "keep at least this many snapshots of each branch",
        )
    },
    Parameter {
        aliases: &["delete_parallelism"],
        ..parameter("max_concurrent_deletes", ParameterKind::Integer(1), Some(3), "how many deletes run at once")
    },
    parameter("stream_results", ParameterKind::Boolean, Some(4), "accepted for Spark's scripts; has no effect"),
    parameter("snapshot_ids", ParameterKind::Ids, Some(5), "expire exactly these snapshots and no others"),
    parameter(
        "clean_expired_metadata",
        ParameterKind::Boolean,
        Some(6),
        "also remove schemas and partition specs that nothing uses any more",
    ),
    Parameter {
        execute_position: Some(0),
        ..parameter(
            "expire_before",
            ParameterKind::Timestamp,
            None,
            "snapshots that are not older than this stay, whatever the other rules say",
        )
    },
    Parameter {
        aliases: &["retention_period", "min_age"],
        ..parameter("retention_threshold", ParameterKind::Duration, None, "older_than as a duration before now")
    },
    parameter(
        "from_timestamp",
        ParameterKind::Timestamp,
        None,
        "with to_timestamp: expire exactly the snapshots made between the two, heads of refs excepted",
    ),
    parameter("to_timestamp", ParameterKind::Timestamp, None, "the other end of from_timestamp"),
    parameter("protected_snapshot_ids", ParameterKind::Ids, None, "these snapshots stay, whatever the other rules say"),
    parameter(
        "ignore_streaming_checkpoints",
        ParameterKind::Boolean,
        None,
        "let the last checkpoints of Flink jobs and Kafka Connect sinks go like any other snapshot",
    ),
    parameter(
        "delete_files",
        ParameterKind::Boolean,
        None,
        "false: change the metadata only, and count the files that stay behind",
    ),
    parameter(
        "deferred",
        ParameterKind::Duration,
        None,
        "how long the files stay after the commit: a later run, or purge_deferred_files, deletes them",
    ),
    parameter(
        "verify",
        ParameterKind::Boolean,
        None,
        "look before and after whether every file that any snapshot needs is there",
    ),
    parameter(
        "quarantine",
        ParameterKind::Boolean,
        None,
        "move the files into quarantine instead of deleting them; restore_quarantined_files brings them back",
    ),
    parameter("dry_run", ParameterKind::Boolean, None, "plan and report, change nothing"),
    procedure::PLAN,
    parameter("max_delete_count", ParameterKind::Integer(0), None, "refuse a plan that deletes more files than this"),
    parameter(
        "max_delete_fraction",
        ParameterKind::Fraction,
        None,
        "refuse a plan that deletes more than this share of the table's data and delete files",
    ),
    parameter(
        "delete_external_files",
        ParameterKind::Boolean,
        None,
        "also delete expired files outside the table's own roots; they may belong to somebody else",
    ),
    parameter(
        "no_catalog",
        ParameterKind::Boolean,
        None,
        "the table's metadata files look like a catalog's, but no catalog owns the table",
    ),
    parameter(
        "shared_location",
        ParameterKind::Boolean,
        None,
        "go on although another table of the catalog uses the same location",
    ),
    parameter(
        "ignore_clock_difference",
        ParameterKind::Boolean,
        None,
        "with a recovery window: go on although the store's clock and the one here are more than 15 minutes apart",
    ),
    parameter(
        "output",
        ParameterKind::Choice(&["metrics", "columns", "files", "snapshots"]),
        None,
        "which rows to return",
    ),
];
