//! `remove_orphan_files`: deletes files below a table that nothing in its metadata names.

mod guards;
mod listing;
mod own_folders;
mod plan;
mod recoverable;
mod references;
mod search;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};

pub(super) use listing::{HiddenNames, Scope};
pub(super) use own_folders::OwnFolders;
pub use plan::OrphanPlan;

use super::outcome::tell_stopped;
use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::catalog::TableHandle;
use crate::deletion::{DeletionOptions, delete_files, remove_journal};
use crate::error::{Error, Result};
use crate::journal::{Claim, Claimed, HeldClaim, OpenRun, PlanFile, Writer};
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::progress::{RunStage, stage};
use crate::report::{Operation, Output, Report};
use crate::table::{PathRules, TableMetadata};

/// `older_than` when it isn't given: 3 days before now.
pub const DEFAULT_ORPHAN_AGE_MS: i64 = 3 * 24 * 60 * 60 * 1000;

/// What happens to a listed file whose path is live under another scheme or authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PrefixMismatchMode {
    /// The call fails before any delete, naming the conflicting pairs.
    #[default]
    Error,
    /// The file is kept and counted.
    Ignore,
    /// The file is an orphan.
    Delete,
}

/// Options of an orphan removal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoveOrphanFiles {
    /// Only files last modified strictly before this go, ms since the epoch.
    pub cutoff_ms: i64,
    /// What "now" is, ms since the epoch: modification times far ahead of it are not believed.
    pub now_ms: i64,
    /// Search only this folder: relative to the table's location or absolute, inside the table's roots.
    pub location: Option<String>,
    /// A relation of the session with `file_path` and `last_modified` to use instead of a listing.
    pub file_list_view: Option<String>,
    /// Refuse a `file_list_view` whose newest file is older than the table's metadata by more than this, ms.
    pub max_file_list_age_ms: Option<i64>,
    /// Schemes that mean the same: from (a comma-separated list) and to.
    pub equal_schemes: Vec<(String, String)>,
    /// Authorities that mean the same: from (a comma-separated list) and to.
    pub equal_authorities: Vec<(String, String)>,
    /// What happens to a file whose path is live under another scheme or authority.
    pub prefix_mismatch_mode: PrefixMismatchMode,
    /// Refuse a plan that deletes more files than this.
    pub max_delete_count: Option<u64>,
    /// Refuse a plan that deletes more than this share (0 to 1) of the listed files.
    pub max_delete_fraction: Option<f64>,
    /// How many deletes run at once; the session's `max_concurrent_deletes` by default.
    pub max_concurrent_deletes: Option<usize>,
    /// How long the files stay, in ms; 0 for not at all. Where this says nothing the table does
    /// (`maintenance.recovery-window`), or the session.
    pub deferred_ms: Option<i64>,
    /// Move the files into quarantine instead of deleting them. They can be returned, and go when they are purged.
    pub quarantine: bool,
    /// Go on although live files of the table do not exist.
    pub allow_missing_files: bool,
    /// No other table uses the `location`, which lies outside of the table's own.
    pub exclusive_location: bool,
    /// The table's metadata files bear a catalog's names, but no catalog owns the table, or it names the newest of these.
    pub no_catalog: bool,
    /// Go on although another table of the same catalog uses the location.
    pub shared_location: bool,
    /// Go on although the store's clock and the system's are more than 15 minutes apart.
    pub ignore_clock_difference: bool,
    /// Also delete what lies in the table's location but neither where the table writes nor beside live files of it.
    pub include_foreign: bool,
}

impl RemoveOrphanFiles {
    /// Files older than `cutoff_ms` (ms since the epoch) at the time `now_ms`, everything else by default.
    ///
    /// The caller answers for the age: a cut-off too close to now takes the files of running writes. SQL has a floor of
    /// 24 hours.
    pub fn older_than(cutoff_ms: i64, now_ms: i64) -> Self {
        Self {
            cutoff_ms,
            now_ms,
            location: None,
            file_list_view: None,
            max_file_list_age_ms: None,
            equal_schemes: vec![],
            equal_authorities: vec![],
            prefix_mismatch_mode: PrefixMismatchMode::default(),
            max_delete_count: None,
            max_delete_fraction: None,
            max_concurrent_deletes: None,
            deferred_ms: None,
            quarantine: false,
            allow_missing_files: false,
            exclusive_location: false,
            no_catalog: false,
            shared_location: false,
            ignore_clock_difference: false,
            include_foreign: false,
        }
    }

    fn path_rules(&self, metadata: &TableMetadata) -> PathRules {
        fn pairs(map: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
            map.iter().map(|(from, to)| (from.as_str(), to.as_str()))
        }
        PathRules::new(metadata.location())
            .with_equal_schemes(pairs(&self.equal_schemes))
            .with_equal_authorities(pairs(&self.equal_authorities))
    }
}

/// Plans a removal of orphans, of no more than a stored plan if there is one. Changes nothing.
pub(crate) async fn plan(
    handle: TableHandle,
    options: &RemoveOrphanFiles,
    only: Option<&PlanFile>,
    context: &RunContext,
) -> Result<OrphanPlan> {
    plan::plan(handle, options, only, context).await
}

/// Deletes what earlier runs left, and then the orphans of a plan.
pub(crate) async fn execute(mut plan: OrphanPlan, context: &RunContext) -> Result<Report> {
    plan.refuse_unknown_owner()?;
    let earlier = std::mem::take(&mut plan.unfinished).finish(Operation::RemoveOrphanFiles, context).await?;
    let mut summary = plan.summary();
    let mut open = plan.write_into_journal(context).await?;
    let claim = match &open {
        Some(open) if plan.deletion.planned() > 0 => Some(claim(&plan, open, context).await?),
        _ => None,
    };
    let OrphanPlan { deletion, mut newest, max_concurrent_deletes, task, quarantine, .. } = plan;
    let mut options = DeletionOptions::of(Operation::RemoveOrphanFiles, context);
    options.concurrency = max_concurrent_deletes.unwrap_or(options.concurrency);
    options.moves = super::quarantine_of(quarantine, open.as_ref())?;
    let stores = crate::storage::Stores::new(task.runtime_env());
    let delete = delete_files(deletion, &stores, &mut newest, &options);
    let files = stage(&context.task, RunStage::Deleting, delete).await;
    if let (Some(open), Ok(files)) = (&mut open, &files) {
        summary.notices.extend(open.note_end(Operation::RemoveOrphanFiles, files).await);
    }
    // A run that was cancelled has come to its end, too.
    HeldClaim::release_any(claim).await;
    let report_of = |files| {
        let mut report = summary.report(files, false);
        report.absorb(earlier);
        report
    };
    match files {
        Ok(files) => Ok(report_of(files)),
        Err(stopped) => Err(tell_stopped(stopped, report_of, context)),
    }
}

/// Claims the run, so that nobody puts snapshots back while files go that these may need.
///
/// # Errors
/// [`Error::Conflict`] where somebody does. The run is then taken out of the journal.
async fn claim(plan: &OrphanPlan, open: &OpenRun, context: &RunContext) -> Result<HeldClaim> {
    let error = match open.journal().claim(&open.run, Claim::Purge, 0, &Writer::new(context)).await {
        Ok(Claimed::Held(claim)) => return Ok(claim),
        Ok(Claimed::ByAnother(why)) => Error::Conflict { table: plan.newest.seen().name.clone(), attempts: 1, why },
        Err(error) => error,
    };
    remove_journal(open.journal(), &[open.as_journaled()]).await;
    Err(error)
}

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct RemoveOrphanFilesProcedure;

#[derive(Debug, Clone)]
struct RemoveOrphanFilesCall {
    table: String,
    options: RemoveOrphanFiles,
    output: Output,
    dry_run: bool,
    verify: bool,
    /// Where a dry run stores its plan.
    plan: Option<String>,
    described: String,
}

impl Procedure for RemoveOrphanFilesProcedure {
    fn name(&self) -> &'static str {
        "remove_orphan_files"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        Ok(Arc::new(RemoveOrphanFilesCall {
            table: arguments.table()?,
            options: options_of(&arguments, options)?,
            output: arguments.output(),
            dry_run: arguments.boolean("dry_run").unwrap_or(false),
            verify: arguments.boolean("verify").unwrap_or(false),
            plan: super::plan_argument(&arguments)?,
            described: arguments.describe(),
        }))
    }
}

/// The options that the arguments ask for.
pub(super) fn options_of(arguments: &Arguments, options: &MaintenanceOptions) -> Result<RemoveOrphanFiles> {
    arguments.exclusive("quarantine", "deferred")?;
    super::require_journal(arguments.boolean("quarantine"), options)?;
    if arguments.is_given("max_file_list_age") && !arguments.is_given("file_list_view") {
        return Err(arguments.error("max_file_list_age is about a list of files: give file_list, too, or leave it out"));
    }
    Ok(RemoveOrphanFiles {
        location: arguments.text("location"),
        file_list_view: arguments.text("file_list_view"),
        max_file_list_age_ms: arguments.duration("max_file_list_age"),
        equal_schemes: arguments.map("equal_schemes").unwrap_or_default(),
        equal_authorities: arguments.map("equal_authorities").unwrap_or_default(),
        prefix_mismatch_mode: match arguments.text("prefix_mismatch_mode").as_deref() {
            Some("IGNORE") => PrefixMismatchMode::Ignore,
            Some("DELETE") => PrefixMismatchMode::Delete,
            _ => PrefixMismatchMode::Error,
        },
        max_delete_count: arguments.integer("max_delete_count").map(|n| n.unsigned_abs()),
        max_delete_fraction: arguments.fraction("max_delete_fraction"),
        max_concurrent_deletes: super::concurrency(arguments),
        deferred_ms: arguments.duration("deferred"),
        quarantine: arguments.boolean("quarantine").unwrap_or(false),
        allow_missing_files: arguments.boolean("allow_missing_files").unwrap_or(false),
        exclusive_location: arguments.boolean("exclusive_location").unwrap_or(false),
        no_catalog: arguments.boolean("no_catalog").unwrap_or(false),
        shared_location: arguments.boolean("shared_location").unwrap_or(false),
        ignore_clock_difference: arguments.boolean("ignore_clock_difference").unwrap_or(false),
        include_foreign: arguments.boolean("include_foreign").unwrap_or(false),
        ..RemoveOrphanFiles::older_than(cutoff(arguments, options)?, arguments.now_ms)
    })
}

/// The age limit of a call: in the past, and not closer to now than the floor unless the call says so.
fn cutoff(arguments: &Arguments, options: &MaintenanceOptions) -> Result<i64> {
    arguments.exclusive("older_than", "retention_threshold")?;
    let threshold = arguments.duration("retention_threshold").map(|ago| arguments.now_ms.saturating_sub(ago));
    let given = arguments.timestamp("older_than").or(threshold);
    if given.is_some_and(|older_than| older_than > arguments.now_ms) {
        return Err(arguments.error(
            "older_than lies in the future: that would delete the files of writes that are running now. Leave it out for \
             the default of 3 days, or give a time in the past",
        ));
    }
    let ignore_floor = arguments.boolean("ignore_floor").unwrap_or(false);
    let option = "remove_orphan_files_min_retention";
    let floor = super::duration_option(option, &options.remove_orphan_files_min_retention)?;
    if !ignore_floor {
        super::require_retention(arguments, given, floor, option).map_err(|error| {
            arguments.error(format!(
                "{}. A short interval deletes the files of running writes; if really no write can be running, give \
                 ignore_floor => true",
                error.to_string().trim_start_matches("remove_orphan_files: ")
            ))
        })?;
    }
    Ok(given.unwrap_or_else(|| arguments.now_ms.saturating_sub(DEFAULT_ORPHAN_AGE_MS.max(floor))))
}

#[async_trait]
impl BoundCall for RemoveOrphanFilesCall {
    fn schema(&self) -> SchemaRef {
        self.output.schema(Operation::RemoveOrphanFiles)
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
            let mut plan = plan(handle.clone(), &self.options, None, &context).await?;
            if !self.dry_run {
                return execute(plan, &context).await;
            }
            if self.plan.is_some() {
                // What earlier runs left is no part of a stored plan, and so of no review.
                plan.unfinished = Default::default();
            }
            let mut report = plan.report();
            if let Some(location) = &self.plan {
                let stored = plan.store_at(&self.options, location, &context).await?;
                report.notices.push(format!("the plan is stored: {stored}"));
            }
            Ok(report)
        };
        let report = super::verified(self.verify, &handle, &context, operation).await?;
        CallOutcome::of_report(report, self.output, started, &context.maintenance)
    }
}

/// Spark's order in `CALL`; ClickHouse's and StarRocks' in `EXECUTE`.
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        aliases: &["table_name"],
        ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
    },
    Parameter {
        execute_position: Some(0),
        ..parameter("older_than", ParameterKind::Timestamp, Some(1), "only files last modified before this go")
    },
    Parameter {
        execute_position: Some(1),
        ..parameter(
            "location",
            ParameterKind::Text,
            Some(2),
            "search only this folder, relative to the table or absolute, inside the table's roots",
        )
    },
    parameter("dry_run", ParameterKind::Boolean, Some(3), "plan and report, change nothing"),
    super::PLAN,
    Parameter {
        aliases: &["delete_parallelism"],
        ..parameter("max_concurrent_deletes", ParameterKind::Integer(1), Some(4), "how many deletes run at once")
    },
    Parameter {
        aliases: &["file_list"],
        ..parameter(
            "file_list_view",
            ParameterKind::Text,
            Some(5),
            "a relation with file_path and last_modified to use instead of a listing",
        )
    },
    parameter(
        "max_file_list_age",
        ParameterKind::Duration,
        None,
        "refuse a file_list_view whose newest file is older than the table's metadata by more than this",
    ),
    parameter("equal_schemes", ParameterKind::Map, Some(6), "schemes that mean the same, as a map or 'a,b=>c'"),
    parameter("equal_authorities", ParameterKind::Map, Some(7), "authorities that mean the same, as a map or 'a,b=>c'"),
    parameter(
        "prefix_mismatch_mode",
        ParameterKind::Choice(&["ERROR", "IGNORE", "DELETE"]),
        Some(8),
        "what to do with a file whose path is live under another scheme or authority",
    ),
    parameter("prefix_listing", ParameterKind::Boolean, Some(9), "accepted for Spark's scripts; has no effect"),
    parameter("stream_results", ParameterKind::Boolean, Some(10), "accepted for Spark's scripts; has no effect"),
    Parameter {
        aliases: &["retention_period", "min_age"],
        ..parameter("retention_threshold", ParameterKind::Duration, None, "older_than as a duration before now")
    },
    parameter(
        "ignore_floor",
        ParameterKind::Boolean,
        None,
        "allow an age limit below the session's floor: files of running writes are then in danger",
    ),
    parameter("max_delete_count", ParameterKind::Integer(0), None, "refuse a plan that deletes more files than this"),
    parameter(
        "max_delete_fraction",
        ParameterKind::Fraction,
        None,
        "refuse a plan that deletes more than this share of the listed files",
    ),
    parameter(
        "deferred",
        ParameterKind::Duration,
        None,
        "how long the orphans stay: a later run, or purge_deferred_files, deletes them",
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
        "move the orphans into quarantine instead of deleting them; restore_quarantined_files brings them back",
    ),
    parameter(
        "allow_missing_files",
        ParameterKind::Boolean,
        None,
        "go on although live files of the table do not exist",
    ),
    parameter(
        "exclusive_location",
        ParameterKind::Boolean,
        None,
        "no other table uses the location, which lies outside of the table's own",
    ),
    parameter(
        "no_catalog",
        ParameterKind::Boolean,
        None,
        "the table's metadata files look like a catalog's, but no catalog owns the table, or it names the newest of these",
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
        "go on although the store's clock and the one here are more than 15 minutes apart",
    ),
    parameter(
        "include_foreign",
        ParameterKind::Boolean,
        None,
        "also delete what lies in the table's location outside of the folders that the table writes to",
    ),
    parameter("output", ParameterKind::Choice(&["metrics", "columns", "files"]), None, "which rows to return"),
];
