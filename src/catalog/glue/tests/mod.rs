//! Commits to a Glue that answers, refuses, breaks off, and forgets to compare versions.

mod server;

use serde_json::{Value, json};

use self::server::{DATABASE, Server, State, Turn};
use super::super::pointer::testing::{TableOnDisk, without_the_oldest_snapshot};
use super::*;

struct Scene {
    table: TableOnDisk,
    server: Server,
    catalog: GlueCatalog,
}

impl Scene {
    /// A Glue with `db.t` in its version 7.
    async fn new() -> Self {
        let (table, server) = (TableOnDisk::new(), Server::start().await);
        let in_glue = json!({
            "Name": "t", "DatabaseName": DATABASE, "CatalogId": "1", "CreateTime": 1.7e9, "VersionId": "7",
            "Description": "kept", "Owner": "me", "Retention": 3, "LastAccessTime": 1_700_000_000.5,
            "StorageDescriptor": {"Columns": [{"Name": "id", "Type": "bigint", "Comment": "kept"}], "Location": "s3://b/t"},
            "PartitionKeys": [], "TableType": "EXTERNAL_TABLE",
            "Parameters": {"table_type": "ICEBERG", "metadata_location": table.pointer, "foreign": "kept"},
        });
        server.state().tables.insert("t".into(), in_glue);
        let catalog = catalog(&server, &[]);
        Self { table, server, catalog }
    }

    async fn load(&self) -> LoadedTable {
        let loaded = self.catalog.load(&name("db.t"), &self.table.runtime).await.unwrap();
        self.server.operations();
        loaded
    }

    async fn commit(&self, base: &LoadedTable) -> Result<CommitOutcome> {
        let commit = without_the_oldest_snapshot(base);
        self.catalog.commit(&name("db.t"), base, &commit, &self.table.runtime).await
    }

    /// A commit after which Glue's comparing is proved, so that the next requests are those of a commit alone.
    async fn proved(&self) -> LoadedTable {
        assert!(matches!(self.commit(&self.load().await).await, Ok(CommitOutcome::Committed { .. })));
        self.load().await
    }

    /// How a commit ends when its update goes like this.
    async fn outcome(&self, turn: Turn) -> String {
        let base = self.proved().await;
        self.server.on("UpdateTable", [turn]);
        shown(self.commit(&base).await)
    }

    fn in_glue(&self) -> Value {
        self.server.state().tables["t"].clone()
    }
}

fn catalog(server: &Server, properties: &[(&str, &str)]) -> GlueCatalog {
    let given = [
        ("glue.endpoint", server.address.as_str()),
        ("glue.region", "eu-central-1"),
        ("glue.access-key-id", "id"),
        ("glue.secret-access-key", "hush"),
    ];
    let properties = given.iter().chain(properties).map(|(key, value)| (key.to_string(), value.to_string())).collect();
    GlueCatalog::new("lake", &properties).unwrap()
}

fn name(text: &str) -> TableName {
    let mut namespace: Vec<String> = text.split('.').map(String::from).collect();
    let name = namespace.pop().unwrap();
    TableName { namespace, name }
}

fn shown(outcome: Result<CommitOutcome>) -> String {
    outcome.map_or_else(|error| error.to_string(), |outcome| format!("{outcome:?}"))
}

/// Somebody else's commit.
fn point_at(pointer: &str) -> impl FnOnce(&mut State) + Send + 'static {
    let pointer = pointer.to_string();
    move |state| state.update("t", |table| table["Parameters"]["metadata_location"] = pointer.into())
}

#[tokio::test]
async fn a_commit_changes_the_pointers_and_nothing_else() {
    let scene = Scene::new().await;
    let base = scene.load().await;
    let mut expected = scene.in_glue();
    let content = without_the_oldest_snapshot(&base).new_metadata;

    let CommitOutcome::Committed { metadata_location, .. } = scene.commit(&base).await.unwrap() else {
        panic!("not committed")
    };
    let updates: Vec<Value> =
        scene.server.state().requests.iter().map(|(_, input)| input["VersionId"].clone()).collect();
    assert_eq!(updates, [Value::Null, "6".into(), "7".into(), Value::Null], "an update that must fail comes first");
    assert_eq!(scene.server.operations(), ["GetTable", "UpdateTable", "UpdateTable", "GetTable"]);
    assert!(scene.table.metadata(&metadata_location).has_json(&content));
    expected["Parameters"]["metadata_location"] = metadata_location.into();
    expected["Parameters"]["previous_metadata_location"] = scene.table.pointer.clone().into();
    expected["VersionId"] = "8".into();
    assert_eq!(scene.in_glue(), expected);

    let base = scene.load().await;
    assert!(scene.catalog.is_current(&name("db.t"), &base, &scene.table.runtime).await.unwrap());
    scene.server.operations();
    assert!(matches!(scene.commit(&base).await.unwrap(), CommitOutcome::Committed { .. }));
    assert_eq!(scene.server.operations(), ["GetTable", "UpdateTable", "GetTable"], "proved once");
}

#[tokio::test]
async fn requests_are_signed_and_name_the_account() {
    let scene = Scene::new().await;
    let catalog = catalog(&scene.server, &[("glue.id", "123"), ("glue.session-token", "brief")]);
    catalog.load(&name("db.t"), &scene.table.runtime).await.unwrap();
    let state = scene.server.state();
    assert_eq!(state.requests, [("GetTable".into(), json!({"CatalogId": "123", "DatabaseName": "db", "Name": "t"}))]);
    let signature = &state.headers["authorization"];
    assert!(signature.starts_with("AWS4-HMAC-SHA256 Credential=id/") && signature.contains("/eu-central-1/glue/"));
    assert_eq!(state.headers["x-amz-security-token"], "brief");
}

/// Nothing is committed, and Glue holds what it held.
#[tokio::test]
async fn a_glue_that_ignores_versions_is_refused() {
    let scene = Scene::new().await;
    let base = scene.load().await;
    scene.server.state().compares_versions = false;
    let (mut before, files) = (scene.in_glue(), scene.table.metadata_files());
    let error = shown(scene.commit(&base).await);
    assert!(error.contains("whatever its VersionId") && !error.contains("changed just when"), "{error}");
    before["VersionId"] = "8".into();
    assert_eq!((scene.in_glue(), scene.table.metadata_files()), (before, files));
}

#[tokio::test]
async fn a_commit_that_came_while_versions_were_found_to_be_ignored_is_mentioned() {
    let scene = Scene::new().await;
    let base = scene.load().await;
    scene.server.state().compares_versions = false;
    scene.server.on("UpdateTable", [Turn::After(Box::new(point_at("s3://b/theirs.metadata.json")))]);
    let error = shown(scene.commit(&base).await);
    assert!(error.contains("db.t changed just when this was found out"), "{error}");
}

#[tokio::test]
async fn a_race_that_is_lost_leaves_no_file() {
    let scene = Scene::new().await;
    let base = scene.load().await;
    let files = scene.table.metadata_files();
    // Something else changed, or only the pointer did.
    scene.server.state().update("t", |table| table["Owner"] = "you".into());
    assert!(shown(scene.commit(&base).await).starts_with("Conflict"));
    let base = scene.load().await;
    scene.server.state().counts_versions = false;
    point_at("s3://b/theirs.metadata.json")(&mut scene.server.state());
    assert!(shown(scene.commit(&base).await).starts_with("Conflict"));
    assert_eq!(scene.server.operations(), ["GetTable"], "no update was sent");
    assert_eq!(scene.table.metadata_files(), files);
}

#[tokio::test]
async fn a_version_that_is_over_is_a_conflict() {
    let scene = Scene::new().await;
    let theirs = scene.table.commit_elsewhere("00009-theirs.metadata.json", &scene.table.pointer);
    let outcome = scene.outcome(Turn::After(Box::new(point_at(&theirs)))).await;
    assert!(outcome.starts_with("Conflict"), "{outcome}");
    assert_eq!(scene.in_glue()["Parameters"]["metadata_location"], theirs.as_str());
}

#[tokio::test]
async fn an_update_without_an_answer_is_decided_by_the_table() {
    for turn in [Turn::AnsweredWith(500), Turn::AnsweredWith(503), Turn::Unanswered] {
        let outcome = Scene::new().await.outcome(turn).await;
        assert!(outcome.starts_with("Committed"), "{outcome}");
    }
    for (status, exception) in [(400, "OperationTimeoutException"), (408, ""), (429, ""), (403, "")] {
        let outcome = Scene::new().await.outcome(Turn::AnsweredWithException(status, exception)).await;
        assert!(outcome.starts_with("Committed"), "{status} {exception}: {outcome}");
    }
    let outcome = Scene::new().await.outcome(Turn::Refused(500, "InternalServiceException")).await;
    assert!(outcome.starts_with("Unknown") && outcome.contains("does not show it"), "{outcome}");
}

#[tokio::test]
async fn somebody_elses_commit_in_place_of_an_unanswered_one_is_a_conflict() {
    let scene = Scene::new().await;
    let base = scene.proved().await;
    let theirs = scene.table.commit_elsewhere("00009-theirs.metadata.json", base.metadata.metadata_location());
    scene.server.on("GetTable", [Turn::AsUsual, Turn::After(Box::new(point_at(&theirs)))]);
    scene.server.on("UpdateTable", [Turn::Refused(504, "")]);
    let outcome = shown(scene.commit(&base).await);
    assert!(outcome.starts_with("Conflict"), "{outcome}");
}

#[tokio::test]
async fn a_commit_that_was_overwritten_is_noticed() {
    let scene = Scene::new().await;
    let base = scene.proved().await;
    let theirs = scene.table.commit_elsewhere("00009-theirs.metadata.json", base.metadata.metadata_location());
    scene.server.on("UpdateTable", [Turn::Before(Box::new(point_at(&theirs)))]);
    let outcome = shown(scene.commit(&base).await);
    assert!(
        outcome.contains("took the commit to db.t, but") && outcome.contains("overwritten each other"),
        "{outcome}"
    );
}

/// The log of the newest metadata may have been cut: then it names neither the commit nor what the commit was made on.
#[tokio::test]
async fn a_log_that_does_not_reach_back_decides_nothing() {
    for (turn, says) in [(None, "the update was taken; then"), (Some(Turn::Unanswered), "no answer")] {
        let scene = Scene::new().await;
        let base = scene.proved().await;
        let theirs = scene.table.commit_elsewhere("00009-theirs.metadata.json", &scene.table.pointer);
        match turn {
            None => scene.server.on("UpdateTable", [Turn::Before(Box::new(point_at(&theirs)))]),
            Some(turn) => {
                scene.server.on("UpdateTable", [turn]);
                scene.server.on("GetTable", [Turn::AsUsual, Turn::After(Box::new(point_at(&theirs)))]);
            }
        }
        let outcome = shown(scene.commit(&base).await);
        assert!(
            outcome.starts_with("Unknown") && outcome.contains(says) && outcome.contains("00009-theirs"),
            "{outcome}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_no_text_is_not_repaired() {
    let scene = Scene::new().await;
    let mut answer = json!({"Table": scene.in_glue()}).to_string().into_bytes();
    let at = answer.windows(4).position(|bytes| bytes == b"kept").unwrap();
    answer[at] = 0xff;
    scene.server.on("GetTable", [Turn::Bytes(answer)]);
    let error = scene.catalog.load(&name("db.t"), &scene.table.runtime).await.unwrap_err().to_string();
    assert_eq!(error, "catalog lake: the answer to GetTable is no UTF-8 text");
    assert_eq!(scene.server.operations(), ["GetTable"]);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (scene, elsewhere) = (Scene::new().await, Server::start().await);
    scene.server.on("GetTable", [Turn::Redirected(format!("{}/x?token=hush", elsewhere.address))]);
    let error = scene.catalog.load(&name("db.t"), &scene.table.runtime).await.unwrap_err().to_string();
    assert!(error.contains(&format!("redirects to {} (307", elsewhere.address)) && !error.contains("hush"), "{error}");
    assert!(elsewhere.operations().is_empty());
}

#[tokio::test]
async fn a_commit_with_another_on_top_is_done() {
    let scene = Scene::new().await;
    let base = scene.proved().await;
    let (folder, table) = (scene.table.written.folder.clone(), scene.table.written.location.clone());
    let on_top = move |state: &mut State| {
        let ours = state.tables["t"]["Parameters"]["metadata_location"].as_str().unwrap().to_string();
        let log = json!([{"timestamp-ms": 1, "metadata-file": ours}]);
        let theirs = json!({"format-version": 2, "location": table, "metadata-log": log});
        std::fs::write(folder.join("metadata/00009-theirs.metadata.json"), theirs.to_string()).unwrap();
        point_at(&format!("{table}/metadata/00009-theirs.metadata.json"))(state);
    };
    scene.server.on("UpdateTable", [Turn::Before(Box::new(on_top))]);
    let outcome = shown(scene.commit(&base).await);
    assert!(outcome.starts_with("Committed"), "{outcome}");
}

#[tokio::test]
async fn a_refusal_changes_nothing() {
    let outcome = Scene::new().await.outcome(Turn::Refused(400, "AccessDeniedException")).await;
    assert!(outcome.contains("nothing was changed: AccessDeniedException: no"), "{outcome}");
    let outcome = Scene::new().await.outcome(Turn::Refused(400, "ThrottlingException")).await;
    assert!(outcome.starts_with("Committed"), "asked again: {outcome}");
    let scene = Scene::new().await;
    scene.server.on("UpdateTable", [Turn::Refused(400, "AccessDeniedException")]);
    let outcome = shown(scene.commit(&scene.load().await).await);
    assert!(outcome.contains("nothing is committed: AccessDeniedException"), "{outcome}");
}

#[tokio::test]
async fn a_version_that_is_no_number_guards_nothing() {
    let scene = Scene::new().await;
    scene.server.state().tables.get_mut("t").unwrap()["VersionId"] = "token".into();
    let outcome = shown(scene.commit(&scene.load().await).await);
    assert!(outcome.contains("no VersionId that is a number"), "{outcome}");
    assert_eq!(scene.server.operations(), ["GetTable"]);
}

#[tokio::test]
async fn what_is_no_iceberg_table_is_named() {
    let scene = Scene::new().await;
    {
        let mut state = scene.server.state();
        state.tables.insert("v".into(), json!({"Name": "v", "TableType": "VIRTUAL_VIEW"}));
        state.tables.insert("h".into(), json!({"Name": "h", "Parameters": {"table_type": "hudi"}}));
        state.tables.insert("n".into(), json!({"Name": "n", "Parameters": {"table_type": "ICEBERG"}}));
    }
    for (table, expected) in [
        ("db.v", "catalog lake: db.v is a view, and only tables can be maintained"),
        ("db.h", "catalog lake: db.h is no Iceberg table (its table_type is \"hudi\")"),
        ("db.n", "catalog lake: db.n has no metadata_location"),
        ("db.x", "table lake.db.x was not found: database db has no such table"),
        ("dx.t", "table lake.dx.t was not found: there is no database dx"),
        ("a.b.t", "table lake.a.b.t was not found: in Glue a table's name is database.table"),
    ] {
        let error = scene.catalog.load(&name(table), &scene.table.runtime).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let (catalog, runtime) = (&scene.catalog, &scene.table.runtime);
    assert_eq!(catalog.list_tables(&["db".into()], runtime).await.unwrap(), [name("db.n"), name("db.t")]);
    assert_eq!(catalog.list_namespaces(&[], runtime).await.unwrap(), [["db"], ["empty"]]);
    assert!(catalog.list_namespaces(&["db".into()], runtime).await.unwrap().is_empty());
    assert!(catalog.list_namespaces(&["dx".into()], runtime).await.is_err());
}

#[tokio::test]
async fn a_glue_that_is_not_there_is_named() {
    let scene = Scene::new().await;
    let catalog = catalog(&scene.server, &[("glue.endpoint", "http://127.0.0.1:1")]);
    let error = catalog.load(&name("db.t"), &scene.table.runtime).await.unwrap_err().to_string();
    assert!(
        error.starts_with("catalog lake: http://127.0.0.1:1/ can't be reached: ") && !error.contains('\n'),
        "{error}"
    );
    assert!(!error.contains("hush"));
}
