//! Running all partitions of a plan into one consumer.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::JoinSet;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::error::Result;

/// Runs all partitions at once and hands their batches to `on_batch`, one after the other, in no particular order.
///
/// `Ok` means that every partition ran to its end. The first error, of a partition or of `on_batch`, ends the others.
pub(crate) async fn collect_partitioned(
    plan: Arc<dyn ExecutionPlan>,
    task: Arc<TaskContext>,
    mut on_batch: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let partitions = plan.output_partitioning().partition_count();
    // Dropping the set aborts what still runs.
    let mut running = JoinSet::new();
    let (sender, mut batches) = mpsc::channel(partitions.max(1));
    for partition in 0..partitions {
        let mut stream = plan.execute(partition, Arc::clone(&task))?;
        let sender = sender.clone();
        running.spawn(async move {
            while let Some(batch) = stream.next().await {
                let failed = batch.is_err();
                if sender.send(batch).await.is_err() || failed {
                    break;
                }
            }
        });
    }
    drop(sender);
    while let Some(batch) = batches.recv().await {
        on_batch(batch?)?;
    }
    // A partition that panicked sent no error: without this its rows would be missing silently.
    while let Some(ended) = running.join_next().await {
        ended.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
    }
    Ok(())
}
