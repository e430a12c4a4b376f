//! What each snapshot holds alone, and what would be free without it and all before it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Int64Type, UInt32Type};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::prelude::{col, lit};

use crate::catalog::LoadedTable;
use crate::error::Result;
use crate::reachability::{FileSpans, SnapshotManifests, file_spans, manifests_of_snapshots};
use crate::table::Snapshot;

/// Files and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::procedure) struct Share {
    pub files: i64,
    pub bytes: i64,
}

impl Share {
    fn add(&mut self, other: Share) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The shares of a table's snapshots, in the order in which they were made.
#[derive(Debug)]
pub(in crate::procedure) struct SnapshotShares<'a> {
    /// The snapshots, the oldest first.
    pub snapshots: Vec<&'a Snapshot>,
    /// What each of them holds alone.
    pub alone: Vec<Share>,
    /// What would be free without each of them and all before it.
    pub freed: Vec<Share>,
    /// What could not be read, and so is not counted.
    pub notices: Vec<String>,
    /// Which snapshot lists which manifest, for further questions.
    pub listed: SnapshotManifests,
}

/// Measures the shares of all snapshots. Counted is each data file, delete file, manifest, manifest list and statistics file, once.
///
/// # Errors
/// Every failure of the store. Files that are missing or malformed are notices.
pub(in crate::procedure) async fn snapshot_shares<'a>(
    table: &'a LoadedTable,
    task: &Arc<TaskContext>,
) -> Result<SnapshotShares<'a>> {
    let mut snapshots: Vec<&Snapshot> = table.metadata.snapshots().iter().collect();
    snapshots.sort_by_key(|snapshot| (snapshot.timestamp_ms, snapshot.sequence_number));
    let listed = manifests_of_snapshots(&snapshots, task).await?;
    let mut spans: HashMap<(usize, usize), Share> = HashMap::new();
    let mut note = |span: (usize, usize), bytes: Option<i64>| {
        spans.entry(span).or_default().add(Share { files: 1, bytes: bytes.unwrap_or(0) });
    };
    for (manifest, set) in listed.manifests.iter().zip(&listed.listed_by) {
        set.span().into_iter().for_each(|span| note(span, manifest.reference.length));
    }
    let places: HashMap<i64, usize> =
        snapshots.iter().enumerate().map(|(place, snapshot)| (snapshot.snapshot_id, place)).collect();
    for (place, list) in snapshots.iter().enumerate().filter_map(|(at, s)| Some((at, s.manifest_list.as_ref()?))) {
        let bytes = listed.list_sizes.get(list).and_then(|bytes| i64::try_from(*bytes).ok());
        note((place, place), bytes);
    }
    for file in table.metadata.statistics().iter().chain(table.metadata.partition_statistics()) {
        places.get(&file.snapshot_id).into_iter().for_each(|place| note((*place, *place), file.file_size_in_bytes));
    }
    let FileSpans { files, log } = file_spans(&listed, task)?;
    let totals = files.aggregate(
        vec![col("first"), col("last")],
        vec![count(lit(1)).alias("files"), sum(col("bytes")).alias("bytes")],
    )?;
    for batch in totals.collect().await.map_err(DataFusionError::from)? {
        let place = |column: usize, row| batch.column(column).as_primitive::<UInt32Type>().value(row) as usize;
        let number = |column: usize, row| batch.column(column).as_primitive::<Int64Type>().value(row);
        for row in 0..batch.num_rows() {
            let share = Share { files: number(2, row), bytes: number(3, row) };
            spans.entry((place(0, row), place(1, row))).or_default().add(share);
        }
    }
    let mut notices: Vec<String> = listed
        .unreadable
        .iter()
        .chain(&log.unreadable())
        .map(|file| format!("{} can't be read ({}): what only it names is not counted", file.location, file.why))
        .collect();
    notices.truncate(10);
    let mut alone = vec![Share::default(); snapshots.len()];
    let mut freed = vec![Share::default(); snapshots.len()];
    for ((first, last), share) in spans {
        if first == last {
            alone[last].add(share);
        }
        freed[last].add(share);
    }
    let mut sum = Share::default();
    for share in &mut freed {
        sum.add(*share);
        *share = sum;
    }
    Ok(SnapshotShares { snapshots, alone, freed, notices, listed })
}
