//! Orphans are what an anti join of listed and live files leaves, whatever memory there is.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray};
use iceberg_maintenance::fixtures::{ContentFile, History, Table};
use url::Url;

use crate::support::Session;
use crate::watched::WatchedStore;

const BEGIN_MS: i64 = 1_700_000_000_000;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// A table with many live files in many folders, in a store.
async fn table(files: usize) -> WatchedStore {
    let table = Table { location: Some("s3://bucket/wh/t".into()), ..Table::new(2) };
    let mut history = History::new(table);
    let names: Vec<String> = (0..files).map(|file| format!("data/part={}/{file:06}.parquet", file % 101)).collect();
    for (snapshot, names) in names.chunks(files.div_ceil(4)).enumerate() {
        history.append(BEGIN_MS + snapshot as i64, names.iter().map(|name| ContentFile::data(name).size(0)));
    }
    WatchedStore::with_table(&history.build()).await
}

/// Every third file is not live; some names are live ones with something before or behind.
fn listed(files: usize) -> Vec<String> {
    let name = |file: usize| format!("s3://bucket/wh/t/data/part={}/{file:06}.parquet", file % 101);
    let more = (0..files / 10).map(|file| format!("{}{}", name(file), if file % 2 == 0 { ".orig" } else { "/x" }));
    (files / 3..files + files / 2).map(name).chain(more).collect()
}

async fn session(store: &WatchedStore, listed: &[String]) -> Session {
    let session = Session::new(Some(BEGIN_MS + 100 * DAY_MS));
    session.context.register_object_store(&Url::parse("s3://bucket").unwrap(), Arc::new(store.clone()));
    let modified = TimestampMillisecondArray::from_value(BEGIN_MS, listed.len());
    let columns: [(&str, ArrayRef); 2] =
        [("file_path", Arc::new(StringArray::from_iter_values(listed))), ("last_modified", Arc::new(modified))];
    session.context.register_batch("listed", RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    session
}

async fn paths(session: &Session, sql: &str) -> BTreeSet<String> {
    let rows = session.rows(sql).await.unwrap();
    rows.iter().map(|row| row["file_path"].clone().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_are_the_anti_join_of_listed_and_live_files() {
    let files = 24_000;
    let store = table(files).await;
    let listed = listed(files);
    let session = session(&store, &listed).await;
    let live = store.keys().await.into_iter().map(|key| format!("s3://bucket/{key}")).collect::<Vec<_>>();
    let column: ArrayRef = Arc::new(StringArray::from_iter_values(&live));
    session.context.register_batch("live", RecordBatch::try_from_iter([("path", column)]).unwrap()).unwrap();
    let anti_join = "SELECT file_path FROM listed LEFT ANTI JOIN live ON listed.file_path = live.path";
    let expected = paths(&session, anti_join).await;
    assert!(expected.len() > files / 2);

    let call = "CALL system.remove_orphan_files(table => 's3://bucket/wh/t', file_list_view => 'listed', dry_run => true, \
                output => 'files')";
    assert_eq!(paths(&session, call).await, expected);
    session.run("SET datafusion.runtime.memory_limit = '12M'").await.unwrap();
    assert_eq!(paths(&session, call).await, expected);
}
