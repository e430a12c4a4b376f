//! The client against a server that says exactly what a test wants to hear.

mod access;
mod commits;
mod loading;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use serde_json::{Value, json};

use self::server::{Reply, Server};
use super::RestCatalog;
use crate::catalog::TableName;

fn table() -> TableName {
    TableName { namespace: vec!["db".into()], name: "t".into() }
}

fn runtime() -> Arc<RuntimeEnv> {
    Arc::new(RuntimeEnv::default())
}

/// A catalog at a server, with more properties.
fn catalog(server: &Server, more: &[(&str, &str)]) -> RestCatalog {
    let mut properties: BTreeMap<String, String> =
        more.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    properties.entry("uri".into()).or_insert(server.uri.clone());
    RestCatalog::new("lake", &properties).unwrap()
}

/// A server that has a configuration without anything in it, then answers as told.
async fn plain_server(replies: impl IntoIterator<Item = Reply>) -> Server {
    Server::start(std::iter::once(Reply::ok("{}")).chain(replies).collect()).await
}

/// Metadata of the table at `folder`: its snapshots, its refs, and the versions in its metadata log.
fn metadata(folder: &str, snapshots: &[i64], refs: &[(&str, i64)], log: &[u32]) -> Value {
    let snapshots: Vec<Value> = snapshots
        .iter()
        .map(|id| json!({"snapshot-id": id, "timestamp-ms": id, "manifest-list": format!("{folder}/metadata/{id}.avro")}))
        .collect();
    let named: serde_json::Map<String, Value> = refs
        .iter()
        .map(|(name, id)| {
            let kind = if *name == "main" { "branch" } else { "tag" };
            (name.to_string(), json!({"snapshot-id": id, "type": kind}))
        })
        .collect();
    let current = refs.iter().find(|(name, _)| *name == "main").map_or(-1, |(_, id)| *id);
    let log: Vec<Value> =
        log.iter().map(|version| json!({"timestamp-ms": version, "metadata-file": file(folder, *version)})).collect();
    json!({
        "format-version": 2, "table-uuid": "11111111-1111-4111-8111-111111111111", "location": folder,
        "current-snapshot-id": current, "snapshots": snapshots, "refs": named, "metadata-log": log,
    })
}

fn file(folder: &str, version: u32) -> String {
    format!("{folder}/metadata/v{version}.metadata.json")
}

/// The answer to a load or a commit.
fn answer(version: u32, metadata: &Value) -> Value {
    let folder = metadata["location"].as_str().unwrap();
    json!({"metadata-location": file(folder, version), "metadata": metadata})
}

fn reply(version: u32, metadata: &Value) -> Reply {
    Reply::ok(answer(version, metadata).to_string())
}
