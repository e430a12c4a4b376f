//! What a commit sends, what its answers mean, and servers that don't do what they say.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Reply, Server};
use super::{catalog, file, metadata, plain_server, reply, runtime, table};
use crate::catalog::{Catalog, CommitOutcome, LoadedTable, TableCommit, refs_of};
use crate::error::{Error, Result};
use crate::table::MetadataChange;

/// The table before: three snapshots, a tag on the first.
fn base() -> Value {
    metadata("/t", &[1, 2, 3], &[("main", 3), ("old", 1)], &[1])
}

/// The table after snapshot 2 was removed.
fn done() -> Value {
    metadata("/t", &[1, 3], &[("main", 3), ("old", 1)], &[1, 2])
}

fn commit_of(base: &LoadedTable, removed: impl IntoIterator<Item = i64>) -> TableCommit {
    TableCommit {
        table_uuid: base.metadata.table_uuid().map(str::to_string),
        expected_refs: refs_of(&base.metadata),
        base_metadata_location: base.metadata.metadata_location().into(),
        change: MetadataChange { removed_snapshot_ids: removed.into_iter().collect(), ..Default::default() },
        new_metadata: String::new(),
    }
}

/// Loads version 2 of `base`, removes snapshot 2, and hands out what came of it.
async fn commit_to(server: &Server, more: &[(&str, &str)]) -> Result<CommitOutcome> {
    let lake = catalog(server, more);
    let base = lake.load(&table(), &runtime()).await.unwrap();
    lake.commit(&table(), &base, &commit_of(&base, [2]), &runtime()).await
}

async fn outcome(base: &Value, answer: Reply) -> String {
    let server = plain_server([reply(2, base), answer]).await;
    described(commit_to(&server, &[("rest.client.socket-timeout-ms", "500")]).await)
}

fn described(outcome: Result<CommitOutcome>) -> String {
    match outcome {
        Ok(CommitOutcome::Committed { metadata_location, .. }) => format!("committed {metadata_location}"),
        Ok(CommitOutcome::Conflict(why)) => format!("conflict: {why}"),
        Ok(CommitOutcome::Unknown(why)) => format!("unknown: {why}"),
        Err(error @ Error::CommitMismatch { .. }) => format!("mismatch: {error}"),
        Err(error) => format!("error: {error}"),
    }
}

#[tokio::test]
async fn a_commit_that_was_taken_is_verified() {
    let configuration = Reply::ok(r#"{"idempotency-key-lifetime":"PT30M"}"#);
    let server = Server::start(vec![configuration, reply(2, &base()), reply(3, &done())]).await;
    let outcome = commit_to(&server, &[]).await;
    assert_eq!(described(outcome), "committed /t/metadata/v3.metadata.json");
    assert_eq!(server.lines()[2], "POST /v1/namespaces/db/tables/t");
    let asked = &server.asked()[2];
    assert_eq!(
        asked.json(),
        json!({
            "identifier": {"namespace": ["db"], "name": "t"},
            "requirements": [
                {"type": "assert-table-uuid", "uuid": "11111111-1111-4111-8111-111111111111"},
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 3},
                {"type": "assert-ref-snapshot-id", "ref": "old", "snapshot-id": 1},
            ],
            "updates": [{"action": "remove-snapshots", "snapshot-ids": [2]}],
        })
    );
    assert_eq!(asked.header("content-type"), Some("application/json"));
    let key = uuid::Uuid::parse_str(asked.header("idempotency-key").unwrap()).unwrap();
    assert_eq!((key.get_version_num(), key.get_variant()), (7, uuid::Variant::RFC4122));
}

#[tokio::test]
async fn every_answer_is_certain_or_unknown() {
    let error = |status| Reply::error(status, "SomeException", "says why");
    for status in [400, 403, 405, 406, 413, 422] {
        let outcome = outcome(&base(), error(status)).await;
        assert!(
            outcome.starts_with("error: catalog lake: the commit was not taken") && outcome.contains("says why"),
            "{outcome}"
        );
    }
    let conflict = outcome(&base(), error(409)).await;
    assert!(conflict.starts_with("conflict: ") && conflict.contains("says why"), "{conflict}");
    for reply in [error(500), error(502), error(503), error(504), error(429), error(408)] {
        let outcome = outcome(&base(), reply).await;
        assert!(outcome.starts_with("unknown: ") && outcome.contains("says why"), "{outcome}");
    }
    for (reply, says) in [
        (Reply::dropped(), "no answer"),
        (reply(3, &done()).cut_short(), "no answer"),
        (reply(3, &done()).after(Duration::from_secs(60)), "did not answer within 500ms"),
        (Reply::ok("{"), "its answer can't be used"),
        (Reply::new(204, ""), "its answer can't be used"),
        (Reply::ok(json!({"metadata": done()}).to_string()), "no metadata-location"),
    ] {
        let outcome = outcome(&base(), reply).await;
        assert!(outcome.starts_with("unknown: ") && outcome.contains(says), "{outcome}");
    }
}

#[tokio::test]
async fn a_commit_is_sent_again_only_when_the_token_was_refused() {
    let token = Reply::ok(json!({"access_token": "two"}).to_string());
    let refused = Reply::error(401, "NotAuthorizedException", "expired");
    let server = plain_server([reply(2, &base()), refused, token, reply(3, &done())]).await;
    let renewed = commit_to(&server, &[("token", "one"), ("credential", "me:secret")]).await;
    assert_eq!(described(renewed), "committed /t/metadata/v3.metadata.json");
    let lines = server.lines();
    assert_eq!(
        lines[2..],
        ["POST /v1/namespaces/db/tables/t", "POST /v1/oauth/tokens", "POST /v1/namespaces/db/tables/t"]
    );
    let refused = Reply::error(419, "AuthenticationTimeoutException", "expired");
    let outcome = outcome(&base(), refused).await;
    assert!(outcome.starts_with("error: ") && outcome.contains("credentials were not taken"), "{outcome}");
}

#[tokio::test]
async fn a_commit_that_was_never_sent_did_not_happen() {
    let server = plain_server([reply(2, &base())]).await;
    let lake = catalog(&server, &[]);
    let loaded = lake.load(&table(), &runtime()).await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let configuration = Reply::ok(json!({"overrides": {"uri": gone}}).to_string());
    let moved = catalog(&Server::start(vec![configuration]).await, &[]);
    let outcome = described(moved.commit(&table(), &loaded, &commit_of(&loaded, [2]), &runtime()).await);
    assert!(outcome.starts_with("error: ") && outcome.contains("can't be reached"), "{outcome}");
}

#[tokio::test]
async fn a_table_that_is_gone_is_named() {
    let missing = || Reply::error(404, "NoSuchTableException", "no");
    let server = plain_server([reply(2, &base()), missing(), missing()]).await;
    let outcome = described(commit_to(&server, &[]).await);
    assert!(outcome.contains("db.t was not found: the catalog has no namespace db"), "{outcome}");
}

#[tokio::test]
async fn a_server_that_does_something_else_is_found_out() {
    for (answer, version, says) in [
        (base(), 2, "still has snapshot 2"),
        (metadata("/t", &[1, 2, 3], &[("main", 3), ("old", 1)], &[1, 2]), 3, "still has snapshot 2"),
        (metadata("/t", &[1, 3], &[("main", 3)], &[1, 2]), 3, "has no ref old"),
        (metadata("/t", &[1, 3], &[("old", 1)], &[1, 2]), 3, "has no ref main"),
        (metadata("/t", &[1, 3], &[("main", 1), ("old", 1)], &[1, 2]), 3, "ref main pointed to snapshot 3"),
        (metadata("/t", &[3], &[("main", 3), ("old", 3)], &[1, 2]), 3, "ref old pointed to snapshot 1"),
        (metadata("/t", &[3], &[("main", 3), ("old", 1)], &[1, 2]), 3, "which is not there"),
        (metadata("/t", &[1, 3], &[("main", 3), ("old", 1), ("new", 1)], &[1, 2]), 3, "ref new is new"),
        (metadata("/t", &[1, 3, 4], &[("main", 3), ("old", 1)], &[1, 2]), 3, "snapshot 4 is there"),
        (metadata("/t", &[1, 3], &[("main", 3), ("old", 1)], &[]), 3, "no metadata-log"),
        (metadata("/t", &[1, 3], &[("main", 3), ("old", 1)], &[7]), 8, "/t/metadata/v7.metadata.json"),
        (done(), 2, "is still /t/metadata/v2.metadata.json"),
    ] {
        let outcome = outcome(&base(), reply(version, &answer)).await;
        assert!(outcome.starts_with("mismatch: catalog lake") && outcome.contains(says), "{says}: {outcome}");
        assert!(outcome.contains("No file was deleted"), "{outcome}");
    }
    let mut other = done();
    other["table-uuid"] = json!("22222222-2222-4222-8222-222222222222");
    assert!(outcome(&base(), reply(3, &other)).await.contains("another table-uuid"));
    let untagged = metadata("/t", &[1, 2, 3], &[("main", 3)], &[1]);
    let lost = outcome(&untagged, reply(3, &metadata("/t", &[3], &[("main", 3)], &[1, 2]))).await;
    assert!(lost.contains("snapshot 1, which should have stayed, is gone"), "{lost}");
}

/// A table in a folder, whose versions after 2 are written there by others.
async fn with_others(others: &BTreeMap<u32, Value>, folder: &str, version: u32, answer: &Value) -> String {
    for (version, metadata) in others {
        std::fs::write(file(folder, *version), metadata.to_string()).unwrap();
    }
    let base = metadata(folder, &[1, 2, 3], &[("main", 3)], &[1]);
    outcome(&base, reply(version, answer)).await
}

#[tokio::test]
async fn what_others_did_meanwhile_is_looked_at() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().to_str().unwrap();
    std::fs::create_dir(temp.path().join("metadata")).unwrap();
    let of = |snapshots: &[i64], refs: &[(&str, i64)], log: &[u32]| metadata(folder, snapshots, refs, log);

    // Somebody tagged snapshot 2, which then went: the answer alone doesn't show it.
    let tagged = BTreeMap::from([(3, of(&[1, 2, 3], &[("main", 3), ("new", 2)], &[1, 2]))]);
    let dropped = with_others(&tagged, folder, 4, &of(&[1, 3], &[("main", 3)], &[1, 2, 3])).await;
    assert!(dropped.contains("mismatch: ") && dropped.contains("ref new to snapshot 2"), "{dropped}");
    let dangling = with_others(&tagged, folder, 4, &of(&[1, 3], &[("main", 3), ("new", 2)], &[1, 2, 3])).await;
    assert!(dangling.contains("mismatch: ") && dangling.contains("ref new points to snapshot 2"), "{dangling}");

    // Somebody tagged snapshot 1, which stayed.
    let tagged = BTreeMap::from([(3, of(&[1, 2, 3], &[("main", 3), ("new", 1)], &[1, 2]))]);
    let kept = with_others(&tagged, folder, 4, &of(&[1, 3], &[("main", 3), ("new", 1)], &[1, 2, 3])).await;
    assert!(kept.starts_with("committed "), "{kept}");
    // The log may have been cut to one entry.
    let kept = with_others(&tagged, folder, 4, &of(&[1, 3], &[("main", 3), ("new", 1)], &[3])).await;
    assert!(kept.starts_with("committed "), "{kept}");

    // The log was cut behind ours: what was there before can't be told.
    let ours = BTreeMap::from([(4, of(&[1, 3], &[("main", 3)], &[3]))]);
    let cut = with_others(&ours, folder, 5, &of(&[1, 3], &[("main", 3)], &[4])).await;
    assert!(cut.contains("mismatch: ") && cut.contains("does not reach back"), "{cut}");

    // Somebody committed on top of ours before the answer was made.
    let ours = BTreeMap::from([(3, of(&[1, 3], &[("main", 3)], &[1, 2]))]);
    let later = with_others(&ours, folder, 4, &of(&[1, 3, 4], &[("main", 4)], &[1, 2, 3])).await;
    assert!(later.starts_with("committed "), "{later}");

    // The file between can't be read.
    std::fs::remove_file(file(folder, 3)).unwrap();
    let unread = with_others(&BTreeMap::new(), folder, 4, &of(&[1, 3], &[("main", 3)], &[1, 2, 3])).await;
    assert!(unread.contains("mismatch: ") && unread.contains("does not exist"), "{unread}");
}

#[tokio::test]
async fn a_commit_that_nobody_answered_is_verified_when_it_is_found() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().to_str().unwrap();
    std::fs::create_dir(temp.path().join("metadata")).unwrap();
    let of = |snapshots: &[i64], refs: &[(&str, i64)], log: &[u32]| metadata(folder, snapshots, refs, log);
    let tagged = of(&[1, 2, 3], &[("main", 3), ("new", 2)], &[1, 2]);
    std::fs::write(file(folder, 3), tagged.to_string()).unwrap();
    for (refs, expected) in
        [(&[("main", 3)][..], "ref new to snapshot 2"), (&[("main", 3), ("new", 1)], "ref new pointed")]
    {
        let newest = of(&[1, 3], refs, &[1, 2, 3]);
        let before = reply(2, &of(&[1, 2, 3], &[("main", 3)], &[1]));
        let server = plain_server([before, Reply::dropped(), reply(4, &newest)]).await;
        let lake = catalog(&server, &[]);
        let base = lake.load(&table(), &runtime()).await.unwrap();
        let commit = commit_of(&base, [2]);
        let outcome = described(lake.commit(&table(), &base, &commit, &runtime()).await);
        assert!(outcome.starts_with("unknown: "), "{outcome}");
        let newest = lake.load(&table(), &runtime()).await.unwrap();
        let error = lake.verify(&base, &commit, &newest, &runtime()).await.unwrap_err();
        assert!(matches!(error, Error::CommitMismatch { .. }) && error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn many_snapshots_go_together_where_the_server_takes_them() {
    let ids: Vec<i64> = (1..=1500).collect();
    let before = metadata("/t", &ids, &[("main", 1500)], &[1]);
    let after = metadata("/t", &[1500], &[("main", 1500)], &[1, 2]);
    let conflict = || Reply::error(409, "CommitFailedException", "uuid");
    for (probe, updates) in [
        (conflict(), 2),
        (Reply::error(400, "BadRequestException", "one id"), 1499),
        (Reply::error(500, "IllegalArgumentException", "one id"), 1499),
        (Reply::dropped(), 1499),
    ] {
        let server = plain_server([reply(2, &before), probe, reply(3, &after)]).await;
        let lake = catalog(&server, &[]);
        let base = lake.load(&table(), &runtime()).await.unwrap();
        let commit = commit_of(&base, 1..=1499);
        let outcome = described(lake.commit(&table(), &base, &commit, &runtime()).await);
        assert_eq!(outcome, "committed /t/metadata/v3.metadata.json");
        server.lines();
        let sent = server.asked()[3].json();
        let sent = sent["updates"].as_array().unwrap();
        assert_eq!(sent.len(), updates);
        let removed: Vec<i64> = sent
            .iter()
            .flat_map(|update| update["snapshot-ids"].as_array().unwrap())
            .map(|id| id.as_i64().unwrap())
            .collect();
        assert_eq!(removed, ids[..1499]);
    }

    // Asked once.
    let server = plain_server([reply(2, &before), conflict(), conflict(), conflict()]).await;
    let lake = catalog(&server, &[]);
    let base = lake.load(&table(), &runtime()).await.unwrap();
    for _ in 0..2 {
        lake.commit(&table(), &base, &commit_of(&base, 1..=1499), &runtime()).await.unwrap();
    }
    let uuid = |at: usize| server.asked()[at].json()["requirements"][0]["uuid"].clone();
    assert_eq!(server.lines().len(), 5);
    assert!(uuid(2) != uuid(3) && uuid(3) == uuid(4), "one probe, two commits");
}

#[tokio::test]
async fn a_server_that_ignores_requirements_is_refused() {
    let ids: Vec<i64> = (1..=30).collect();
    let before = metadata("/t", &ids, &[("main", 30)], &[1]);
    let server = plain_server([reply(2, &before), reply(3, &before)]).await;
    let lake = catalog(&server, &[]);
    let base = lake.load(&table(), &runtime()).await.unwrap();
    let error = lake.commit(&table(), &base, &commit_of(&base, 1..=29), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("ignores requirements"), "{error}");
    server.lines();
}
