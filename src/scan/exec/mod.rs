//! The leaf execution plans that read manifest lists and manifests.
//!
//! Both are one node, [`FileScanExec`], over two kinds of files. Its partitions pull files from one shared queue, because
//! manifests differ in size by orders of magnitude and a fixed split would leave partitions idle. Each file is read and
//! decoded once; the node doesn't look for duplicates, so a caller with one manifest in many snapshots names it once.
//!
//! The queue belongs to the node, so each partition can be executed once. A second time is an error, never an empty
//! stream: an engine that wants to run the plan again calls `reset_state` first. A node that is copied into several
//! processes would read every file in each of them.
//!
//! A file's rows come all or, if anything is wrong with the file, not at all. Errors of the way to a file (time-outs,
//! permissions, memory limits) always fail the scan.

mod collect;
mod lists;
mod log;
mod manifests;
mod partition;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions,
};

pub(crate) use collect::collect_partitioned;
pub(crate) use lists::{ManifestListRef, ManifestLists};
pub(crate) use log::{ScanLog, Unreadable};
pub(crate) use manifests::{ManifestRef, Manifests};

use crate::error::Result;

/// Reads manifest lists: the columns of [`super::manifest_list_schema`] and `snapshot_id` Int64.
pub(crate) type ManifestListScanExec = FileScanExec<ManifestLists>;

/// Reads manifests: the columns of [`super::manifest_schema`] and `manifest` UInt32, the place of the manifest in
/// [`FileScanExec::files`].
pub(crate) type ManifestScanExec = FileScanExec<Manifests>;

/// What happens at a file that is missing or is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnUnreadable {
    /// The scan fails: for files that retained snapshots need.
    Fail,
    /// The file is left out and put into the [`ScanLog`]: only for files that no retained snapshot needs.
    Skip,
}

/// A fixed list of files and how they are decoded.
pub(crate) trait FileSource: fmt::Debug + Send + Sync + 'static {
    /// The node's name in plans.
    const NODE: &'static str;
    /// Whether the [`ScanLog`] keeps the size of each file.
    const KEEPS_SIZES: bool;

    fn schema() -> SchemaRef;
    fn len(&self) -> usize;
    fn location(&self, index: usize) -> &str;

    /// The size of a file in bytes, as far as anything says before it is read. Only a hint.
    fn size_hint(&self, _index: usize) -> Option<u64> {
        None
    }

    /// The rows of a file that need no reading.
    fn known(&self, _index: usize) -> Option<Result<RecordBatch>> {
        None
    }

    /// Decodes a file's content.
    fn decode<'a>(&'a self, index: usize, bytes: &'a [u8]) -> Result<Box<dyn BatchDecoder + 'a>>;

    /// What the plan shows besides what all scans show.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Batches of one file, with the memory that making them takes.
pub(crate) trait BatchDecoder: Iterator<Item = Result<RecordBatch>> + Send {
    /// How many bytes are held besides the file and the batches.
    fn buffer_bytes(&self) -> usize {
        0
    }
}

/// Reads and decodes a list of files.
#[derive(Debug)]
pub(crate) struct FileScanExec<S> {
    source: Arc<S>,
    on_unreadable: OnUnreadable,
    queue: Arc<Queue>,
    log: Arc<ScanLog>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// Which files and partitions were taken.
#[derive(Debug)]
struct Queue {
    next: AtomicUsize,
    partitions: Vec<AtomicBool>,
}

impl Queue {
    fn new(partitions: usize) -> Arc<Self> {
        let partitions = std::iter::repeat_with(AtomicBool::default).take(partitions).collect();
        Arc::new(Self { next: AtomicUsize::new(0), partitions })
    }

    /// The next file's index, if it is below `files`.
    fn take(&self, files: usize) -> Option<usize> {
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < files)
    }
}

impl<S: FileSource> FileScanExec<S> {
    /// `partitions`: how many streams share the work; at least one, and no more than there are files.
    fn over(source: S, partitions: usize, on_unreadable: OnUnreadable) -> Self {
        let partitions = partitions.min(source.len()).max(1);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(S::schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self {
            source: Arc::new(source),
            on_unreadable,
            queue: Queue::new(partitions),
            log: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        }
    }

    /// What was read and what was skipped; complete once all streams have ended.
    pub(crate) fn log(&self) -> Arc<ScanLog> {
        Arc::clone(&self.log)
    }

    fn partitions(&self) -> usize {
        self.properties.output_partitioning().partition_count()
    }
}

impl<S: FileSource> DisplayAs for FileScanExec<S> {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, partitions) = (self.source.len(), self.partitions());
        let on_unreadable = match self.on_unreadable {
            OnUnreadable::Fail => "fail",
            OnUnreadable::Skip => "skip",
        };
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "{}: files={files}, partitions={partitions}, on_unreadable={on_unreadable}", S::NODE)?;
                self.source.describe(f)
            }
            DisplayFormatType::TreeRender => write!(f, "files={files}\non_unreadable={on_unreadable}"),
        }
    }
}

impl<S: FileSource> ExecutionPlan for FileScanExec<S> {
    fn name(&self) -> &str {
        S::NODE
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("{} has no children", S::NODE),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    /// A node with all files still to read. It shares the log, which is emptied.
    fn reset_state(self: Arc<Self>) -> EngineResult<Arc<dyn ExecutionPlan>> {
        self.log.clear();
        Ok(Arc::new(Self {
            source: Arc::clone(&self.source),
            on_unreadable: self.on_unreadable,
            queue: Queue::new(self.partitions()),
            log: Arc::clone(&self.log),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::clone(&self.properties),
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> EngineResult<SendableRecordBatchStream> {
        match self.queue.partitions.get(partition) {
            None => return internal_err!("{} has no partition {partition}", S::NODE),
            Some(executed) if executed.swap(true, Ordering::Relaxed) => {
                return exec_err!(
                    "partition {partition} of {} was executed before, and its files were read then. Call reset_state first",
                    S::NODE
                );
            }
            Some(_) => {}
        }
        let scan = partition::PartitionScan::new(self, partition, &context);
        let batches = futures::stream::try_unfold(scan, |mut scan| async move {
            let batch = scan.next().await?;
            Ok(batch.map(|batch| (batch, scan)))
        });
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(S::schema(), Box::pin(batches)))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// `schema` with one more column that is never null.
fn extended_schema(schema: &Schema, name: &str, data_type: DataType) -> SchemaRef {
    let added = Arc::new(Field::new(name, data_type, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([added]).collect::<Vec<_>>()))
}

/// `batch` with one more column at the end.
fn extend(batch: &RecordBatch, schema: SchemaRef, column: ArrayRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().cloned().chain([column]).collect();
    Ok(RecordBatch::try_new(schema, columns)?)
}

#[cfg(test)]
mod tests;
