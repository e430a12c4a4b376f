//! placeholder
use super::*;
#[derive(Debug)]
pub(crate) struct RemoveOrphanFilesProcedure;
impl Procedure for RemoveOrphanFilesProcedure {
    fn name(&self) -> &'static str {
        "remove_orphan_files"
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
        execute_position: Some(0),
        help: "only files last modified before this go",
    },
    Parameter {
        name: "location",
        aliases: &[],
        kind: ParameterKind::Text,
        call_position: Some(2),
        execute_position: Some(1),
        help: "list only this folder, relative to the table or absolute, inside the table's roots",
    },
    Parameter {
        name: "dry_run",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: Some(3),
        execute_position: None,
        help: "plan and report, change nothing",
    },
    Parameter {
        name: "max_concurrent_deletes",
        aliases: &["delete_parallelism"],
        kind: ParameterKind::Integer(1),
        call_position: Some(4),
        execute_position: None,
        help: "how many deletes run at once",
    },
    Parameter {
        name: "file_list_view",
        aliases: &["file_list"],
        kind: ParameterKind::Text,
        call_position: Some(5),
        execute_position: None,
        help: "a relation with file_path and last_modified to use instead of a listing",
    },
    Parameter {
        name: "equal_schemes",
        aliases: &[],
        kind: ParameterKind::Map,
        call_position: Some(6),
        execute_position: None,
        help: "schemes that mean the same, as map or 'a,b=>c'",
    },
    Parameter {
        name: "equal_authorities",
        aliases: &[],
        kind: ParameterKind::Map,
        call_position: Some(7),
        execute_position: None,
        help: "authorities that mean the same, as map or 'a,b=>c'",
    },
    Parameter {
        name: "prefix_mismatch_mode",
        aliases: &[],
        kind: ParameterKind::Choice(&["ERROR", "IGNORE", "DELETE"]),
        call_position: Some(8),
        execute_position: None,
        help: "what to do with a file whose path is live under another scheme or authority",
    },
    Parameter {
        name: "prefix_listing",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: Some(9),
        execute_position: None,
        help: "accepted for Spark's scripts; the listing is always chosen by the store",
    },
    Parameter {
        name: "stream_results",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: Some(10),
        execute_position: None,
        help: "accepted for Spark's scripts; results are always streamed",
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
        name: "ignore_floor",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: None,
        execute_position: None,
        help: "allow an age limit below the floor: files of running writes are then in danger",
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
        name: "max_delete_fraction",
        aliases: &[],
        kind: ParameterKind::Fraction,
        call_position: None,
        execute_position: None,
        help: "refuse a plan that deletes more than this share of the listed files",
    },
    Parameter {
        name: "allow_missing_files",
        aliases: &[],
        kind: ParameterKind::Boolean,
        call_position: None,
        execute_position: None,
        help: "go on although live files of the table do not exist",
    },
    Parameter {
        name: "output",
        aliases: &[],
        kind: ParameterKind::Choice(&["metrics", "columns", "files"]),
        call_position: None,
        execute_position: None,
        help: "which rows to return",
    },
];
