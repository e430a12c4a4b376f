//! `iceberg_expire_plan`: what an expiry would do to each snapshot, ref and file.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, UInt32Type};
use datafusion::common::JoinType;
use datafusion::execution::TaskContext;
use datafusion::prelude::{SessionContext, col};

use super::some_of;
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::procedure::expire_snapshots::{self, ExpirePlan, ExpireSnapshots};
use crate::procedure::snapshot_sizes::{Share, SnapshotShares, snapshot_shares};
use crate::procedure::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::reachability::file_spans;
use crate::report::FileOutcome;
use crate::retention::Reason;
use crate::table::{RefKind, TableMetadata};

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct ExpirePlanProcedure;

#[derive(Debug, Clone)]
struct ExpirePlanCall {
    table: String,
    options: ExpireSnapshots,
    rows: Rows,
    described: String,
}

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    Snapshots,
    Refs,
    Files,
}

static PARAMETERS: LazyLock<Vec<Parameter>> = LazyLock::new(|| {
    const NAMES: [&str; 12] = [
        "table",
        "older_than",
        "retain_last",
        "snapshot_ids",
        "clean_expired_metadata",
        "expire_before",
        "retention_threshold",
        "from_timestamp",
        "to_timestamp",
        "protected_snapshot_ids",
        "ignore_streaming_checkpoints",
        "delete_external_files",
    ];
    let output =
        parameter("output", ParameterKind::Choice(&["snapshots", "refs", "files"]), None, "which rows to return");
    some_of(expire_snapshots::PARAMETERS, &NAMES, &[output])
});

impl Procedure for ExpirePlanProcedure {
    fn name(&self) -> &'static str {
        "iceberg_expire_plan"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn bind(&self, arguments: Arguments, options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let options = expire_snapshots::options_of(&arguments, options)?;
        let rows = match arguments.text("output").as_deref() {
            Some("refs") => Rows::Refs,
            Some("files") => Rows::Files,
            _ => Rows::Snapshots,
        };
        // Nothing goes: whether the files are to wait is no question here.
        let options = ExpireSnapshots { deferred_ms: Some(0), ..options };
        Ok(Arc::new(ExpirePlanCall { table: arguments.table()?, options, rows, described: arguments.describe() }))
    }
}

#[async_trait]
impl BoundCall for ExpirePlanCall {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn dry_run(&self) -> bool {
        true
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(self.clone())
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let handle = context.resolve(&self.table)?;
        let now_ms = context.maintenance.now_ms();
        let plan = expire_snapshots::plan(handle, &self.options, None, now_ms, &context.task).await?;
        let mut notices = plan.report().notices;
        let batch = match self.rows {
            Rows::Refs => refs(&plan)?,
            Rows::Snapshots | Rows::Files => {
                let (table, task) = (plan.table(), plan.task());
                let shares = snapshot_shares(table, task).await?;
                notices.extend(shares.notices.iter().cloned());
                match self.rows {
                    Rows::Files => files(&plan, &shares, task).await?,
                    _ => snapshots(&plan, &shares)?,
                }
            }
        };
        Ok(CallOutcome { batches: vec![batch], notices, metrics: None, incomplete: None })
    }
}

impl Rows {
    fn schema(self) -> SchemaRef {
        let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
        let long = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
        let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        Arc::new(Schema::new(match self {
            Rows::Snapshots => vec![
                long("snapshot_id", false),
                Field::new("committed_at", time, false),
                text("decision", false),
                text("rule", false),
                text("ref", true),
                text("reason", false),
                long("exclusive_files_count", false),
                long("exclusive_bytes", false),
            ],
            Rows::Refs => vec![
                text("name", false),
                text("type", false),
                long("snapshot_id", false),
                text("decision", false),
                text("reason", false),
            ],
            Rows::Files => vec![
                text("file_path", false),
                text("content", false),
                long("file_size_in_bytes", true),
                long("last_snapshot_id", true),
                text("status", false),
                text("reason", false),
            ],
        }))
    }
}

fn decision(expires: bool) -> &'static str {
    if expires { "expire" } else { "keep" }
}

/// The rule's name as a plan serialises it, and the ref or job that it is about.
fn rule_of(reason: &Reason) -> (String, Option<&str>) {
    let name = serde_json::to_value(reason).ok().and_then(|json| json["rule"].as_str().map(str::to_string));
    let about = match reason {
        Reason::Head { reference } => Some(reference.as_str()),
        Reason::WithinMinimum { branch, .. } | Reason::YoungOnBranch { branch } | Reason::OldOnBranch { branch } => {
            Some(branch.as_str())
        }
        Reason::OldUnreferenced { removed_ref } => removed_ref.as_deref(),
        _ => None,
    };
    (name.unwrap_or_default(), about)
}

fn snapshots(plan: &ExpirePlan, shares: &SnapshotShares<'_>) -> Result<RecordBatch> {
    let decided = &plan.decision().snapshots;
    let places: HashMap<i64, usize> =
        shares.snapshots.iter().enumerate().map(|(place, snapshot)| (snapshot.snapshot_id, place)).collect();
    let share = |id: i64| places.get(&id).and_then(|place| shares.alone.get(*place)).copied().unwrap_or_default();
    let long = |of: &dyn Fn(Share) -> i64| {
        let values = decided.iter().map(|snapshot| of(share(snapshot.snapshot_id)));
        Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
    };
    let committed: TimestampMillisecondArray = decided.iter().map(|snapshot| Some(snapshot.timestamp_ms)).collect();
    let text = |of: &dyn Fn(&Reason) -> Option<String>| {
        Arc::new(decided.iter().map(|snapshot| of(&snapshot.reason)).collect::<StringArray>()) as ArrayRef
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(decided.iter().map(|snapshot| snapshot.snapshot_id))),
        Arc::new(committed.with_timezone("UTC")),
        text(&|reason| Some(decision(reason.expires()).into())),
        text(&|reason| Some(rule_of(reason).0)),
        text(&|reason| rule_of(reason).1.map(str::to_string)),
        text(&|reason| Some(reason.to_string())),
        long(&|share| share.files),
        long(&|share| share.bytes),
    ];
    Ok(RecordBatch::try_new(Rows::Snapshots.schema(), columns)?)
}

fn refs(plan: &ExpirePlan) -> Result<RecordBatch> {
    let refs = &plan.decision().refs;
    let text =
        |of: &dyn Fn(usize) -> String| Arc::new(StringArray::from_iter_values((0..refs.len()).map(of))) as ArrayRef;
    let columns: Vec<ArrayRef> = vec![
        text(&|at| refs[at].name.clone()),
        text(&|at| if refs[at].kind == RefKind::Tag { "TAG" } else { "BRANCH" }.into()),
        Arc::new(Int64Array::from_iter_values(refs.iter().map(|reference| reference.snapshot_id))),
        text(&|at| decision(refs[at].reason.removes()).into()),
        text(&|at| refs[at].reason.to_string()),
    ];
    Ok(RecordBatch::try_new(Rows::Refs.schema(), columns)?)
}

/// The files that would go, each with the last snapshot that had it. A manifest was last in the last snapshot that lists it;
/// metadata files were in none.
async fn files(plan: &ExpirePlan, shares: &SnapshotShares<'_>, task: &Arc<TaskContext>) -> Result<RecordBatch> {
    let files = plan.files();
    let last = last_snapshots(plan.metadata(), files, shares, task).await?;
    let text =
        |of: &dyn Fn(&FileOutcome) -> String| Arc::new(StringArray::from_iter_values(files.iter().map(of))) as ArrayRef;
    let size = |file: &FileOutcome| file.bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let columns: Vec<ArrayRef> = vec![
        text(&|file| file.path.clone()),
        text(&|file| file.kind.as_str().into()),
        Arc::new(files.iter().map(size).collect::<Int64Array>()),
        Arc::new(files.iter().map(|file| last.get(file.path.as_str()).copied()).collect::<Int64Array>()),
        text(&|file| file.status.as_str().into()),
        text(&|file| file.reason.to_string()),
    ];
    Ok(RecordBatch::try_new(Rows::Files.schema(), columns)?)
}

async fn last_snapshots(
    metadata: &TableMetadata,
    files: &[FileOutcome],
    shares: &SnapshotShares<'_>,
    task: &Arc<TaskContext>,
) -> Result<HashMap<String, i64>> {
    let id = |place: usize| shares.snapshots.get(place).map(|snapshot| snapshot.snapshot_id);
    let statistics = metadata.statistics().iter().chain(metadata.partition_statistics());
    let mut last: HashMap<String, i64> =
        statistics.map(|file| (file.statistics_path.clone(), file.snapshot_id)).collect();
    for snapshot in &shares.snapshots {
        last.extend(snapshot.manifest_list.clone().map(|list| (list, snapshot.snapshot_id)));
    }
    for (manifest, set) in shares.listed.manifests.iter().zip(&shares.listed.listed_by) {
        let snapshot = set.last().and_then(id);
        last.extend(snapshot.map(|snapshot| (manifest.reference.location.clone(), snapshot)));
    }
    let paths: StringArray = files.iter().map(|file| Some(file.path.as_str())).collect();
    let schema = Arc::new(Schema::new(vec![Field::new("path", DataType::Utf8, true)]));
    let wanted = RecordBatch::try_new(schema, vec![Arc::new(paths)])?;
    let wanted = SessionContext::new().read_batch(wanted)?;
    let spans = file_spans(&shares.listed, task)?.files;
    let found = spans.join(wanted, JoinType::LeftSemi, &["file_path"], &["path"], None)?;
    for batch in found.select(vec![col("file_path"), col("last")])?.collect().await? {
        let (paths, places) = (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<UInt32Type>());
        for row in (0..batch.num_rows()).filter(|row| places.is_valid(*row)) {
            let snapshot = id(places.value(row) as usize);
            last.extend(snapshot.map(|snapshot| (paths.value(row).to_string(), snapshot)));
        }
    }
    Ok(last)
}
