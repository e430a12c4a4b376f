//! Family A, expiry: which files go.

use crate::case::{Case, Left, days_ago, history};

#[tokio::test]
async fn b003_a_file_of_an_older_retained_snapshot_stays_when_one_in_the_middle_expires() {
    let mut history = history(2);
    history.append(days_ago(30), ["a"]);
    history.delete_files(days_ago(20), ["a"]);
    history.append(days_ago(10), ["a2"]);
    let outcome = Case::of(history.build()).expire("snapshot_ids => [2]").run().await;
    outcome.assert(Left { snapshots: &[1, 3], refs: &["main"], gone: &["list 2", "manifest 2.0"] });
}
