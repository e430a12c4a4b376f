//! `snapshot_sizes`: what each snapshot holds alone, and what expiring everything up to it would free.

mod shares;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

pub(super) use shares::{Share, SnapshotShares, snapshot_shares};

use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::catalog::LoadedTable;
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct SnapshotSizesProcedure;

#[derive(Debug, Clone)]
struct SnapshotSizesCall {
    table: String,
    described: String,
}

impl Procedure for SnapshotSizesProcedure {
    fn name(&self) -> &'static str {
        "snapshot_sizes"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        Ok(Arc::new(SnapshotSizesCall { table: arguments.table()?, described: arguments.describe() }))
    }
}

#[async_trait]
impl BoundCall for SnapshotSizesCall {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&SCHEMA)
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
        let table = handle.load(&context.task.runtime_env()).await?;
        let task = context.for_table(&table).task;
        let shares = snapshot_shares(&table, &task).await?;
        let batches = vec![rows(&table, &shares)?];
        let notices = table.notices.iter().cloned().chain(shares.notices).collect();
        Ok(CallOutcome { batches, notices, metrics: None, incomplete: None })
    }
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let long = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        long("snapshot_id", false),
        long("parent_id", true),
        Field::new("committed_at", time, false),
        text("operation"),
        text("refs"),
        long("total_bytes", true),
        long("exclusive_files_count", false),
        long("exclusive_bytes", false),
        long("freed_files_count", false),
        long("freed_bytes", false),
    ]))
});

fn rows(table: &LoadedTable, shares: &SnapshotShares<'_>) -> Result<RecordBatch> {
    let refs = table.metadata.refs();
    let refs_of = |id: i64| {
        let names: Vec<&str> = refs.iter().filter(|(_, to)| to.snapshot_id == id).map(|(name, _)| &**name).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let snapshots = &shares.snapshots;
    let summaries = || snapshots.iter().map(|snapshot| snapshot.summary.as_ref());
    let long = |values: &mut dyn Iterator<Item = Option<i64>>| Arc::new(values.collect::<Int64Array>()) as ArrayRef;
    let of = |shares: &[Share], part: fn(&Share) -> i64| long(&mut shares.iter().map(|share| Some(part(share))));
    let committed: TimestampMillisecondArray = snapshots.iter().map(|snapshot| Some(snapshot.timestamp_ms)).collect();
    let columns: Vec<ArrayRef> = vec![
        long(&mut snapshots.iter().map(|snapshot| Some(snapshot.snapshot_id))),
        long(&mut snapshots.iter().map(|snapshot| snapshot.parent_snapshot_id)),
        Arc::new(committed.with_timezone("UTC")),
        Arc::new(summaries().map(|summary| summary?.operation()).collect::<StringArray>()),
        Arc::new(snapshots.iter().map(|snapshot| refs_of(snapshot.snapshot_id)).collect::<StringArray>()),
        long(&mut summaries().map(|summary| summary?.total_files_size)),
        of(&shares.alone, |share| share.files),
        of(&shares.alone, |share| share.bytes),
        of(&shares.freed, |share| share.files),
        of(&shares.freed, |share| share.bytes),
    ];
    Ok(RecordBatch::try_new(Arc::clone(&SCHEMA), columns)?)
}

const PARAMETERS: &[Parameter] = &[Parameter {
    aliases: &["table_name"],
    ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
}];
