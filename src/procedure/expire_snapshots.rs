//! placeholder
use super::*;
#[derive(Debug)]
pub(crate) struct ExpireSnapshotsProcedure;
impl Procedure for ExpireSnapshotsProcedure {
    fn name(&self) -> &'static str {
        "expire_snapshots"
    }
    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }
    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        Err(arguments.error("not yet"))
    }
}
const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "table",
        aliases: &["table_name"],
        kind: ParameterKind::Table,
        call_position: Some(0),
        execute_position: None,
        help: "the table: a registered name or a location",
    },
    Parameter {
        name: "older_than",
        aliases: &[],
        kind: ParameterKind::Timestamp,
        call_position: Some(1),
        execute_position: None,
        help: "snapshots older than this may expire",
    },
    Parameter {
        name: "expire_before",
        aliases: &[],
        kind: ParameterKind::Timestamp,
        call_position: None,
        execute_position: Some(0),
        help: "snapshots that are not older than this stay, whatever the other rules say",
    },
    Parameter {
        name: "retention_threshold",
        aliases: &["retention_period", "min_age"],
        kind: ParameterKind::Duration,
        call_position: None,
        execute_position: None,
        help: "older_than as a duration before now",
    },
    Parameter {
        name: "retain_last",
        aliases: &["min_snapshots_to_keep"],
        kind: ParameterKind::Integer(1),
        call_position: Some(2),
        execute_position: None,
        help: "keep at least this many snapshots of each branch",
    },
    Parameter {
        name: "max_concurrent_deletes",
        aliases: &["delete_parallelism"],
        kind: ParameterKind::Integer(1),
        call_position: Some(3),
        execute_position: None,
        help: "how many deletes run at once",
    },
    Parameter {
        name: "stream_results",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: Some(4),
        execute_position: None,
        help: "accepted for Spark's scripts; results are always streamed",
    },
    Parameter {
        name: "snapshot_ids",
        aliases: &[],
        kind: ParameterKind::Ids,
        call_position: Some(5),
        execute_position: None,
        help: "expire exactly these snapshots and no others",
    },
    Parameter {
        name: "clean_expired_metadata",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: Some(6),
        execute_position: None,
        help: "also remove schemas and partition specs that nothing uses any more",
    },
    Parameter {
        name: "dry_run",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: None,
        execute_position: None,
        help: "plan and report, change nothing",
    },
    Parameter {
        name: "max_delete_count",
        aliases: &[],
        kind: ParameterKind::Integer(0),
        call_position: None,
        execute_position: None,
        help: "refuse a plan that deletes more files than this",
    },
    Parameter {
        name: "delete_external_files",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: None,
        execute_position: None,
        help: "also delete expired files outside the table's own roots",
    },
    Parameter {
        name: "no_catalog",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: None,
        execute_position: None,
        help: "the table's metadata files look like a catalog's, but no catalog owns the table",
    },
    Parameter {
        name: "output",
        aliases: &[],
        kind: ParameterKind::Choice(&["metrics", "columns", "files", "snapshots"]),
        call_position: None,
        execute_position: None,
        help: "which rows to return",
    },
];
