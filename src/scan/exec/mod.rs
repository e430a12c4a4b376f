//! The leaf execution plans that read manifest lists and manifests.
//!
//! All are one node, [`FileScanExec`], over kinds of files and ways to decode them. Its partitions pull files from one shared queue, because
//! manifests differ in size by orders of magnitude and a fixed split would leave partitions idle. Each file is read and
//! decoded once; the node doesn't look for duplicates, so a caller with one manifest in many snapshots names it once.
//!
//! A stream reads ahead (`reads`) as far as the session's options and memory (`memory`) allow, has the files decoded by other
//! threads (`decode`), and hands on the batches. Streams must be run together, as [`collect_partitioned`] does: one that is
//! left alone holds memory that another may wait for.
//!
//! The queue belongs to the node, so each partition can be executed once. A second time is an error, never an empty
//! stream: an engine that wants to run the plan again calls `reset_state` first. A node that is copied into several
//! processes would read every file in each of them.
//!
//! A file's rows come all or, if anything is wrong with the file, not at all. Errors of the way to a file (time-outs,
//! permissions, memory limits) always fail the scan.

mod collect;
mod decode;
mod described;
mod entries;
mod lists;
mod log;
mod manifests;
mod memory;
mod partition;
mod reads;
mod work;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
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
pub(crate) use described::{DescribedLists, DescribedRows};
pub(crate) use entries::{Entries, EntryManifest, EntryScan};
pub(crate) use lists::{ManifestListRef, ManifestLists};
pub(crate) use log::{ScanLog, Unreadable};
pub(crate) use manifests::{ManifestRef, Manifests};

use crate::error::Result;
use crate::progress::{FileCount, RunWork};
use crate::scan::manifest_list::LiveCounts;
use decode::{Decoded, Rows};
use memory::FileMemory;
use partition::SharedWork;

/// Reads manifest lists: the columns of [`super::manifest_list_schema`] and `snapshot_id` Int64.
pub(crate) type ManifestListScanExec = FileScanExec<ManifestLists>;

/// Reads manifests: the columns of [`super::manifest_schema`] and `manifest` UInt32, the place of the manifest in
/// [`FileScanExec::files`].
pub(crate) type ManifestScanExec = FileScanExec<Manifests>;

/// Reads manifests with all of their fields: the columns of the schema of its projection and `manifest` UInt32, the
/// place of the manifest in [`EntryScan::manifests`].
pub(crate) type EntryScanExec = FileScanExec<Entries>;

/// Reads manifest lists with all that they say of their manifests: the columns that `R` makes of it.
pub(crate) type ManifestDescriptionScanExec<R> = FileScanExec<DescribedLists<R>>;

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
    /// What a stream keeps from one file to the next.
    type Kept: Kept;

    fn schema(&self) -> SchemaRef;
    fn len(&self) -> usize;
    fn location(&self, index: usize) -> &str;

    /// Which of a run's counts has the files of this source.
    fn count(work: &RunWork) -> &FileCount;

    /// The size of a file in bytes, as far as anything says before it is read. Only a hint.
    fn size_hint(&self, _index: usize) -> Option<u64> {
        None
    }

    /// How many bytes its rows will take, about. Only a hint.
    fn decoded_hint(&self, _index: usize) -> usize {
        0
    }

    /// The rows of a file that need no reading.
    fn known(&self, _index: usize) -> Option<Result<Rows>> {
        None
    }

    /// Decodes a file's content, or opens it if it is large. Called in a thread that may be kept busy.
    ///
    /// `kept`: what the files that this stream decoded before have left. After an error nothing is kept. Batches are
    /// accounted for in `memory`.
    fn decode(&self, index: usize, bytes: Bytes, kept: &mut Self::Kept, memory: &FileMemory) -> Result<Decoded>;

    /// What the plan shows besides what all scans show.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// What a stream keeps from one file to the next. It is thrown away when memory is short.
pub(crate) trait Kept: Default + Send + 'static {
    /// How many bytes it takes, about.
    fn bytes(&self) -> usize;
}

/// Reads and decodes a list of files.
#[derive(Debug)]
pub(crate) struct FileScanExec<S> {
    source: Arc<S>,
    on_unreadable: OnUnreadable,
    /// The partitions that were executed.
    executed: Vec<AtomicBool>,
    shared: OnceLock<Arc<SharedWork>>,
    log: Arc<ScanLog>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl<S: FileSource> FileScanExec<S> {
    /// `partitions`: how many streams share the work; at least one, and no more than there are files.
    fn over(source: S, partitions: usize, on_unreadable: OnUnreadable) -> Self {
        let partitions = partitions.min(source.len()).max(1);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(source.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self {
            source: Arc::new(source),
            on_unreadable,
            executed: not_executed(partitions),
            shared: OnceLock::new(),
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

    /// What all streams share. The first one makes it.
    fn shared(&self, context: &TaskContext) -> Arc<SharedWork> {
        let make = || Arc::new(SharedWork::new(self.source.as_ref(), self.partitions(), context));
        Arc::clone(self.shared.get_or_init(make))
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
            executed: not_executed(self.partitions()),
            shared: OnceLock::new(),
            log: Arc::clone(&self.log),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::clone(&self.properties),
        }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> EngineResult<SendableRecordBatchStream> {
        match self.executed.get(partition) {
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
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), Box::pin(batches)))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

fn not_executed(partitions: usize) -> Vec<AtomicBool> {
    std::iter::repeat_with(AtomicBool::default).take(partitions).collect()
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
