//! Configuration, loads, listings, and what is said when something is missing.

use std::io::Write;
use std::time::Duration;

use object_store::ObjectStoreExt;
use serde_json::json;

use super::server::{Reply, Server};
use super::{answer, catalog, file, metadata, plain_server, reply, runtime, table};
use crate::catalog::{Catalog, TableName};
use crate::error::Error;

fn simple() -> serde_json::Value {
    metadata("/t", &[1, 2], &[("main", 2)], &[])
}

async fn load_error(replies: Vec<Reply>) -> String {
    let server = plain_server(replies).await;
    let error = catalog(&server, &[]).load(&table(), &runtime()).await.unwrap_err();
    server.lines();
    let error = error.to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[tokio::test]
async fn the_configuration_is_fetched_once_and_says_where_everything_is() {
    let configuration = json!({
        "defaults": {"header.x-default": "d"},
        "overrides": {"prefix": "p/q r", "namespace-separator": "%2E"},
    });
    let server =
        Server::start(vec![Reply::ok(configuration.to_string()), reply(2, &simple()), reply(2, &simple())]).await;
    let lake = catalog(&server, &[("warehouse", "s3://b/w h"), ("header.x-own", "o"), ("unknown.key", "is ignored")]);
    let odd = TableName { namespace: vec!["a/b".into(), "c".into()], name: "t?é".into() };
    let loaded = lake.load(&odd, &runtime()).await.unwrap();
    lake.load(&odd, &runtime()).await.unwrap();
    let load = "GET /v1/p/q%20r/namespaces/a%2Fb%2Ec/tables/t%3F%C3%A9?snapshots=all";
    assert_eq!(server.lines(), ["GET /v1/config?warehouse=s3%3A%2F%2Fb%2Fw+h", load, load]);
    let asked = &server.asked()[1];
    for (name, value) in [
        ("x-iceberg-access-delegation", Some("vended-credentials")),
        ("accept-encoding", Some("gzip")),
        ("cache-control", Some("no-cache")),
        ("x-own", Some("o")),
        ("x-default", Some("d")),
        ("authorization", None),
        ("if-none-match", None),
    ] {
        assert_eq!(asked.header(name), value, "{name}");
    }
    assert_eq!(loaded.name, "lake.a/b.c.t?é");
    assert_eq!(loaded.metadata.metadata_location(), "/t/metadata/v2.metadata.json");
    assert!(loaded.stores.is_none() && loaded.version.is_empty(), "nothing was said of stores or versions");
}

#[tokio::test]
async fn metadata_is_kept_as_it_came_zipped_or_not() {
    let text = r#"{"format-version":2,"location":"/t","huge":123456789012345678901234567890,"f":1.50}"#;
    let body = format!(r#"{{"metadata-location":"/t/metadata/v1.metadata.json","metadata":{text},"config":null}}"#);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    let zipped = Reply::ok(encoder.finish().unwrap()).header("content-encoding", "gzip");
    let server = plain_server([Reply::ok(body), zipped]).await;
    let lake = catalog(&server, &[]);
    for _ in 0..2 {
        assert!(lake.load(&table(), &runtime()).await.unwrap().metadata.has_json(text));
    }
}

#[tokio::test]
async fn answers_that_no_decision_can_rest_on_are_refused() {
    for (body, says) in [
        (json!({"metadata": simple()}).to_string(), "no metadata-location"),
        (json!({"metadata-location": "relative", "metadata": simple()}).to_string(), "not absolute"),
        (json!({"metadata-location": "/t/m"}).to_string(), "missing field `metadata`"),
        ("<html>".into(), "db.t can't be used"),
        (json!({"metadata-location": "/t/m", "metadata": {"format-version": 4}}).to_string(), "format version 4"),
    ] {
        let error = load_error(vec![Reply::ok(body)]).await;
        assert!(error.contains(says), "{error}");
    }
    let error = load_error(vec![Reply::new(200, "x").header("content-encoding", "br"); 4]).await;
    assert!(error.contains("\"br\", which was not asked for"), "{error}");
}

#[tokio::test]
async fn whether_it_is_current_is_asked_with_the_entity_tag() {
    let not_modified = Reply::new(304, "");
    let before = reply(1, &simple()).header("ETag", "W/\"v1\"");
    let moved = reply(3, &simple());
    let recreated = reply(2, &metadata("/t", &[1, 2, 3], &[("main", 3)], &[]));
    let again = reply(2, &simple());
    let server =
        plain_server([before, reply(2, &simple()).header("ETag", "W/\"v2\""), not_modified, moved, recreated, again])
            .await;
    let lake = catalog(&server, &[]);
    // A tag is believed once it was seen to change with the metadata.
    lake.load(&table(), &runtime()).await.unwrap();
    let loaded = lake.load(&table(), &runtime()).await.unwrap();
    assert_eq!(loaded.version, "W/\"v2\"");
    let mut current = vec![];
    for _ in 0..4 {
        current.push(lake.is_current(&table(), &loaded, &runtime()).await.unwrap());
    }
    assert_eq!(current, [true, false, false, true]);
    assert_eq!(server.asked()[3].header("if-none-match"), Some("W/\"v2\""));
    server.lines();
}

#[tokio::test]
async fn a_tag_that_stays_while_the_table_changes_is_not_asked_about() {
    let tagged = |version| reply(version, &simple()).header("ETag", "\"same\"");
    let server = plain_server([tagged(1), tagged(2), tagged(3)]).await;
    let lake = catalog(&server, &[]);
    lake.load(&table(), &runtime()).await.unwrap();
    let loaded = lake.load(&table(), &runtime()).await.unwrap();
    assert!(!lake.is_current(&table(), &loaded, &runtime()).await.unwrap());
    assert!(server.asked().iter().all(|request| request.header("if-none-match").is_none()));
    server.lines();
}

#[tokio::test]
async fn an_answer_that_lacks_what_the_metadata_file_has_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().to_str().unwrap();
    std::fs::create_dir(temp.path().join("metadata")).unwrap();
    let whole = metadata(folder, &[1, 2, 3], &[("main", 3), ("old", 1)], &[1]);
    std::fs::write(file(folder, 2), whole.to_string()).unwrap();
    for (snapshots, refs, lacks) in [
        (&[1, 3][..], &[("main", 3), ("old", 1)][..], "lacks snapshot 2"),
        (&[1, 2, 3], &[("main", 3)], "lacks ref old"),
    ] {
        let server = plain_server([reply(2, &metadata(folder, snapshots, refs, &[1]))]).await;
        let error = catalog(&server, &[]).load(&table(), &runtime()).await.unwrap_err().to_string();
        assert!(error.contains(lacks) && error.contains("only a part"), "{error}");
        server.lines();
    }
    let server = plain_server([reply(2, &whole)]).await;
    assert!(catalog(&server, &[]).load(&table(), &runtime()).await.unwrap().notices.is_empty());
    server.lines();
}

#[tokio::test]
async fn reads_are_tried_again_where_that_may_help() {
    let busy = Reply::error(503, "ServiceUnavailableException", "later");
    let server = plain_server([busy.clone(), Reply::dropped(), reply(2, &simple())]).await;
    catalog(&server, &[]).load(&table(), &runtime()).await.unwrap();
    assert_eq!(server.lines().len(), 4);
    let error = load_error(vec![busy; 4]).await;
    assert!(error.contains("answered 503 Service Unavailable, ServiceUnavailableException: later"), "{error}");
    let error = load_error(vec![Reply::error(500, "Oops", "secret stack\n\tat java.lang.X\n\tat Y")]).await;
    assert!(error.contains("500 Internal Server Error, Oops: secret stack") && !error.contains("java"), "{error}");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let missing = || Reply::error(404, "NoSuchTableException", "no");
    let listed = |names: &[&str]| {
        let named = |name: &&str| json!({"namespace": ["db"], "name": name});
        Reply::ok(json!({"identifiers": names.iter().map(named).collect::<Vec<_>>()}).to_string())
    };
    let error = load_error(vec![missing(), missing()]).await;
    assert_eq!(error, "table db.t was not found: the catalog has no namespace db, NoSuchTableException: no");
    let error = load_error(vec![missing(), Reply::ok("{}"), Reply::ok("{}")]).await;
    assert!(error.contains("table db.t was not found: it is a view"), "{error}");
    let error = load_error(vec![missing(), Reply::ok("{}"), missing(), listed(&["b", "a"])]).await;
    assert_eq!(error, "table db.t was not found: namespace db has a, b");
    // It is there, and what it needs is not.
    let broken = Reply::error(404, "NotFoundException", "File does not exist: v1.metadata.json");
    let error = load_error(vec![broken, Reply::ok("{}"), missing(), listed(&["s", "t"])]).await;
    let says =
        "it lists table db.t and answers 404 Not Found when it is asked for it, NotFoundException: File does not exist";
    assert!(error.contains(says) && !error.contains("was not found"), "{error}");
    let many: Vec<String> = (0..20).map(|n| format!("t{n:02}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = load_error(vec![missing(), Reply::new(204, ""), missing(), listed(&many)]).await;
    assert!(error.ends_with("t08, t09, …"), "{error}");
    let error = load_error(vec![missing(), Reply::ok("{}"), missing(), listed(&[])]).await;
    assert!(error.ends_with("namespace db has no tables"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_none_is_named_without_secrets() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let nobody = [("uri", format!("http://user:geheim@{address}/x")), ("credential", "id:geheim".into())];
    let lake = super::RestCatalog::new("lake", &nobody.map(|(key, value)| (key.to_string(), value)).into()).unwrap();
    let error = lake.load(&table(), &runtime()).await.unwrap_err();
    assert!(matches!(&error, Error::Catalog { catalog, .. } if catalog == "lake"));
    let error = format!("{error} {error:?} {lake:?}");
    assert!(error.contains(&format!("http://{address}/x")) && !error.contains("geheim"), "{error}");
    let error = error.to_lowercase();
    assert!(error.contains("connection refused"), "{error}");

    let web = Server::start(vec![Reply::ok("<html>")]).await;
    let error = catalog(&web, &[]).load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("is no Iceberg REST catalog"), "{error}");
    let strict = Server::start(vec![Reply::error(404, "NoSuchWarehouse", "Warehouse w geheim not found")]).await;
    let lake = catalog(&strict, &[("warehouse", "w"), ("header.x-api-key", "geheim")]);
    let error = lake.load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("for warehouse \"w\"") && error.contains("Warehouse w *** not found"), "{error}");
    let elsewhere = Server::start(vec![Reply::new(301, "").header("location", "https://h/x?token=geheim")]).await;
    let error = catalog(&elsewhere, &[]).load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("(https://h/x)") && !error.contains("geheim"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_not_waited_for_for_ever() {
    let server = Server::start(vec![Reply::ok("{}").after(Duration::from_secs(60))]).await;
    let lake = catalog(&server, &[("rest.client.socket-timeout-ms", "100")]);
    let error = lake.load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("/v1/config did not answer within 100ms"), "{error}");
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn listings_are_read_page_by_page() {
    let namespaces = [
        Reply::ok(json!({"namespaces": [["a"], ["b"]], "next-page-token": "x y"}).to_string()),
        Reply::ok(json!({"namespaces": [["c"]], "next-page-token": null}).to_string()),
        Reply::ok(json!({"namespaces": [["a", "b", "c"], ["a", "b"], ["z"]]}).to_string()),
    ];
    let tables = [
        Reply::ok(json!({"identifiers": [{"namespace": ["a", "b"], "name": "t"}], "next-page-token": "2"}).to_string()),
        Reply::ok(json!({"identifiers": [{"namespace": ["a", "b", "c"], "name": "u"}]}).to_string()),
    ];
    let server = plain_server(namespaces.into_iter().chain(tables)).await;
    let (lake, runtime) = (catalog(&server, &[("rest-page-size", "2")]), runtime());
    let parent = vec!["a".to_string(), "b".to_string()];
    assert_eq!(lake.list_namespaces(&[], &runtime).await.unwrap(), [["a"], ["b"], ["c"]]);
    assert_eq!(lake.list_namespaces(&parent, &runtime).await.unwrap(), [["a", "b", "c"]]);
    let found: Vec<String> =
        lake.list_tables(&parent, &runtime).await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(found, ["a.b.t"]);
    assert_eq!(
        server.lines()[1..],
        [
            "GET /v1/namespaces?pageToken=&pageSize=2",
            "GET /v1/namespaces?pageToken=x+y&pageSize=2",
            "GET /v1/namespaces?parent=a%1Fb&pageToken=&pageSize=2",
            "GET /v1/namespaces/a%1Fb/tables?pageToken=&pageSize=2",
            "GET /v1/namespaces/a%1Fb/tables?pageToken=2&pageSize=2",
        ]
    );
}

#[tokio::test]
async fn a_listing_that_never_ends_is_given_up() {
    let page = |token: &str| Reply::ok(json!({"identifiers": [], "next-page-token": token}).to_string());
    let pages = ["same", "same", "1", "2", "1"].map(page);
    let replies = pages.into_iter().chain([Reply::error(404, "NoSuchNamespaceException", "no db")]);
    let server = plain_server(replies).await;
    let lake = catalog(&server, &[]);
    for _ in 0..2 {
        let error = lake.list_tables(&["db".into()], &runtime()).await.unwrap_err().to_string();
        assert!(error.contains("same page again and again"), "{error}");
    }
    let error = lake.list_tables(&["db".into()], &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("there is no such thing") && error.contains("no db"), "{error}");
    assert_eq!(server.lines()[1..3], ["GET /v1/namespaces/db/tables", "GET /v1/namespaces/db/tables?pageToken=same"]);
}

/// The key of each request to the server as if it were a store.
fn keys_used(server: &Server) -> Vec<String> {
    let asked = server.asked();
    let signatures = asked.iter().filter_map(|asked| asked.header("authorization")?.split_once("Credential="));
    signatures.map(|(_, credential)| credential.split('/').next().unwrap().to_string()).collect()
}

/// Servers that vend new keys with each answer must not cost new connections, and old keys are over.
#[tokio::test]
async fn fresh_keys_go_to_the_stores_that_are_there() {
    let store = Server::start(vec![Reply::new(404, ""); 6]).await;
    let keys = |number: u32| {
        json!({"s3.access-key-id": format!("k{number}"), "s3.secret-access-key": "s", "s3.session-token": "t",
            "s3.endpoint": store.uri, "s3.region": "r"})
    };
    let in_config = |number: u32| {
        let mut told = answer(2, &simple());
        told["config"] = keys(number);
        Reply::ok(told.to_string())
    };
    let in_credentials = |number: u32| {
        let mut told = answer(2, &simple());
        told["storage-credentials"] = json!([{"prefix": "s3://b/t", "config": keys(number)}]);
        Reply::ok(told.to_string())
    };
    let replies = [in_config(1), in_config(2), in_config(2), in_credentials(3), in_credentials(4), in_credentials(5)];
    let server = plain_server(replies).await;
    let lake = catalog(&server, &[("s3.access-key-id", "own"), ("s3.secret-access-key", "own")]);
    let other = TableName { name: "u".into(), ..table() };
    let mut made = vec![];
    for table in [&table(), &table(), &other, &table(), &table(), &other] {
        let stores = lake.load(table, &runtime()).await.unwrap().stores.unwrap();
        let bucket = stores.get_store(&url::Url::parse("s3://b").unwrap()).unwrap();
        assert!(bucket.head(&"t/x".into()).await.is_err());
        made.push((stores, bucket));
    }
    let same = |a: usize, b: usize| {
        let ((one, of_one), (other, of_other)) = (&made[a], &made[b]);
        std::sync::Arc::ptr_eq(one, other) && std::sync::Arc::ptr_eq(of_one, of_other)
    };
    assert!(same(0, 1) && same(3, 4) && !same(1, 2) && !same(1, 3) && !same(4, 5));
    assert_eq!(keys_used(&store), ["k1", "k2", "k2", "k3", "k4", "k5"]);
    store.lines();
}

#[tokio::test]
async fn keys_of_a_table_are_not_mixed_with_the_catalogs() {
    let store = Server::start(vec![Reply::new(404, "")]).await;
    let mut told = answer(2, &simple());
    told["config"] = json!({"s3.access-key-id": "of-table", "s3.secret-access-key": "s"});
    let server = plain_server([Reply::ok(told.to_string())]).await;
    let own = [
        ("s3.access-key-id", "own"),
        ("s3.secret-access-key", "s"),
        ("s3.session-token", "own"),
        ("s3.endpoint", store.uri.as_str()),
        ("s3.region", "r"),
    ];
    let stores = catalog(&server, &own).load(&table(), &runtime()).await.unwrap().stores.unwrap();
    let bucket = stores.get_store(&url::Url::parse("s3://b").unwrap()).unwrap();
    assert!(bucket.head(&"t/x".into()).await.is_err());
    assert_eq!(keys_used(&store), ["of-table"]);
    assert_eq!(store.asked()[0].header("x-amz-security-token"), None);
}

#[tokio::test]
async fn stores_are_made_of_what_catalog_and_table_say() {
    let mut told = answer(2, &simple());
    told["config"] = json!({"s3.endpoint": "http://table", "other": "x"});
    let mut vended = told.clone();
    vended["storage-credentials"] = json!([{"prefix": "s3://b", "config": {"s3.access-key-id": "k"}}]);
    let mut signing = answer(2, &simple());
    signing["config"] = json!({"s3.remote-signing-enabled": "true"});
    let replies = [&told, &told, &vended, &vended, &signing].map(|told| Reply::ok(told.to_string()));
    let server = plain_server(replies).await;
    let lake = catalog(&server, &[("s3.region", "r")]);
    let mut stores = vec![];
    for _ in 0..4 {
        stores.push(lake.load(&table(), &runtime()).await.unwrap().stores.unwrap());
    }
    let same = |a: usize, b: usize| std::sync::Arc::ptr_eq(&stores[a], &stores[b]);
    assert!(same(0, 1) && same(2, 3) && !same(1, 2), "the same properties, the same stores");
    let error = lake.load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("s3.remote-signing-enabled") && error.contains("not supported"), "{error}");
}
