//! One execution of a scan: what its partitions share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as EngineResult;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::OnceCell;

use super::exec::Wanted;
use super::{MetadataTable, entries, manifests, partitions, rows, schema};
use crate::error::Result;
use crate::progress::RunWork;
use crate::table::Snapshot;

pub(super) type Batches = BoxStream<'static, EngineResult<RecordBatch>>;

/// One execution. Its first stream that is asked for a row finds out where the rows come from.
#[derive(Debug)]
pub(super) struct Execution {
    wanted: Wanted,
    /// The wanted columns.
    schema: SchemaRef,
    task: Arc<TaskContext>,
    source: OnceCell<Source>,
    work: Arc<RunWork>,
    manifests_pruned: AtomicUsize,
    metrics: ExecutionPlanMetricsSet,
}

/// Where the rows come from.
#[derive(Debug)]
enum Source {
    /// They are all there.
    Rows(RecordBatch),
    /// They are those of a scan, whose partitions share its files. It may have fewer partitions.
    Scan(Arc<dyn ExecutionPlan>, Arc<TaskContext>),
}

impl Execution {
    pub(super) fn new(
        wanted: Wanted,
        schema: SchemaRef,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Self {
        let work = Arc::<RunWork>::default();
        Self {
            wanted,
            schema,
            task: Arc::new(work.count_in(context)),
            source: OnceCell::new(),
            work,
            manifests_pruned: AtomicUsize::new(0),
            metrics: metrics.clone(),
        }
    }

    /// The rows of one partition.
    pub(super) async fn rows(self: Arc<Self>, partition: usize) -> EngineResult<Batches> {
        let rows = match self.source.get_or_try_init(|| self.find_source()).await? {
            Source::Rows(batch) if partition == 0 => self.slices(batch)?,
            Source::Scan(scan, task) if partition < scan.output_partitioning().partition_count() => {
                let batches = scan.execute(partition, Arc::clone(task))?;
                if self.is_of_manifests() { batches.boxed() } else { self.entries(batches.boxed()) }
            }
            Source::Rows(_) | Source::Scan(..) => stream::empty().boxed(),
        };
        // What was read is told when the last stream is done.
        Ok(rows.inspect(move |_| _ = &self).boxed())
    }

    fn is_of_manifests(&self) -> bool {
        matches!(self.wanted.request.table, MetadataTable::Manifests | MetadataTable::AllManifests)
    }

    async fn find_source(&self) -> Result<Source> {
        let Wanted { request, load, shape, projection, pruning, limit } = &self.wanted;
        let table = request.table;
        let loaded = load.table(&self.task.runtime_env()).await?;
        let (task, metadata) = (loaded.task(&self.task), &loaded.metadata);
        let all_columns = |batch: RecordBatch| -> Result<Source> {
            Ok(Source::Rows(match projection {
                Some(columns) => batch.project(columns)?,
                None => batch,
            }))
        };
        if let Some(all) = rows::of_metadata(table, metadata)? {
            return all_columns(all);
        }
        let snapshots: Vec<&Snapshot> = match table.is_of_one_snapshot() {
            true => request.snapshot.find(loaded, table.function())?.into_iter().collect(),
            false => metadata.snapshots().iter().collect(),
        };
        let at_once = task.session_config().target_partitions();
        if self.is_of_manifests() {
            let lists = pruning.kept(snapshots);
            let scan = manifests::scan(metadata, &lists, Arc::clone(&self.schema), at_once)?;
            return Ok(Source::Scan(scan, task));
        }
        let mut manifests = entries::manifests_of(&snapshots, &task).await?;
        let listed = manifests.len();
        manifests.retain(|manifest| pruning.keeps(manifest));
        self.manifests_pruned.store(listed - manifests.len(), Ordering::Relaxed);
        let live_only = !table.is_of_entries();
        // Every file counts for the partitions.
        if let Some(limit) = limit.filter(|_| table != MetadataTable::Partitions) {
            entries::keep_first_rows(&mut manifests, limit, live_only);
        }
        let scan = |fields| entries::scan(manifests, shape.partition.clone(), fields, live_only, at_once);
        if table == MetadataTable::Partitions {
            let schema = schema::of(table, shape);
            let entries = entries::merged(scan(partitions::fields()), &task)?;
            return all_columns(partitions::rows(metadata, &shape.partition, entries, schema, &task).await?);
        }
        Ok(Source::Scan(scan(entries::fields_for(table, &self.schema)), task))
    }

    /// The wanted columns of entries and files.
    fn entries(&self, batches: Batches) -> Batches {
        let table = self.wanted.request.table;
        let (schema, columns) = (Arc::clone(&self.schema), Arc::clone(&self.wanted.shape.columns));
        let wanted = move |batch| {
            let (schema, columns) = (Arc::clone(&schema), Arc::clone(&columns));
            stream::iter(entries::columns_of(table, batch, schema, columns)).map_err(Into::into)
        };
        batches.map_ok(wanted).try_flatten().boxed()
    }

    /// Rows that are all there, in batches of the session's size.
    fn slices(&self, batch: &RecordBatch) -> Result<Batches> {
        let most = self.task.session_config().batch_size().max(1);
        let slice = |start: usize| Ok(batch.slice(start, most.min(batch.num_rows() - start)));
        let slices: Vec<_> = (0..batch.num_rows()).step_by(most).map(slice).collect();
        Ok(stream::iter(slices).boxed())
    }
}

impl Drop for Execution {
    /// Shows in `EXPLAIN ANALYZE` what was read.
    fn drop(&mut self) {
        let record = |name: &'static str, count: &AtomicUsize| {
            MetricBuilder::new(&self.metrics).global_counter(name).add(count.load(Ordering::Relaxed));
        };
        record("manifest_lists_read", &self.work.manifest_lists.read);
        record("manifests_read", &self.work.manifests.read);
        record("manifests_pruned", &self.manifests_pruned);
        record("requests", &self.work.requests);
        record("bytes_scanned", &self.work.bytes_scanned);
    }
}

/// The executions of a plan node. The first time that each partition is executed belongs to one execution, the second time to another:
/// a plan may be run again.
#[derive(Debug, Default)]
pub(super) struct Executions {
    /// How often each partition was executed.
    times: BTreeMap<usize, usize>,
    /// The executions that some partitions have not joined yet, and how many.
    open: BTreeMap<usize, (Arc<Execution>, usize)>,
}

impl Executions {
    /// The execution that a partition, one of so many, joins now.
    pub(super) fn join(
        &mut self,
        partition: usize,
        partitions: usize,
        new: impl FnOnce() -> Execution,
    ) -> Arc<Execution> {
        let times = self.times.entry(partition).or_default();
        let (execution, missing) = self.open.entry(*times).or_insert_with(|| (Arc::new(new()), partitions));
        let execution = Arc::clone(execution);
        *missing -= 1;
        if *missing == 0 {
            self.open.remove(times);
        }
        *times += 1;
        execution
    }
}
