//! What must hold whatever the catalog and the store are. Each is judged by PyIceberg and by the store's own listing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iceberg_maintenance::Error;
use iceberg_maintenance::catalog::CommitOutcome;
use iceberg_maintenance::report::FileStatus;

use super::pair::{CatalogKind, Pair, StoreKind};
use super::scene::{Scene, assert_clear};
use super::tables::{TableState, Tables};
use crate::hooked::Moment;
use crate::proxy::{Request, Seen, Verdict};

/// What nobody needs goes, everything else stays, and each file that had to be read was read once.
pub async fn expire(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    let before = &scene.before;
    let dead = before.needed_only_by(&scene.expiring());
    let report = scene.expire().await.unwrap();
    let requests = scene.store_proxy.as_ref().map(|proxy| proxy.take_seen()).unwrap_or_default();
    let after = scene.assert_whole(&before.ids, &before.refs);
    assert_eq!(after.snapshots, before.snapshots[2..]);
    assert_eq!(scene.gone(), dead);
    let added: BTreeSet<_> = scene.files().difference(&scene.files_before).cloned().collect();
    assert_eq!(added, after.metadata.difference(&before.metadata).cloned().collect(), "one new metadata file");
    let metrics = &report.metrics;
    assert_eq!((metrics.deleted_snapshots_count, metrics.deleted_files_count), (2, dead.len() as u64));
    assert_eq!(metrics.failed_deletions_count, 0);
    assert_reads_once(&scene, &after, &requests);

    let again = scene.expire().await.unwrap();
    assert_eq!((again.metrics.deleted_snapshots_count, again.metrics.deleted_files_count), (0, 0));
    assert_eq!(scene.tables.read().metadata, after.metadata, "nothing to do, nothing written");
}

/// Each list, manifest and metadata file is read with one GET; only of metadata is asked before whether it is there.
fn assert_reads_once(scene: &Scene, after: &TableState, requests: &[Seen]) {
    let name = |request: &Seen| request.path.rsplit('/').next().unwrap().to_string();
    let of = |method: &str, ending: &str| {
        let mut counts = BTreeMap::new();
        for request in requests.iter().filter(|request| request.method == method && request.path.ends_with(ending)) {
            *counts.entry(name(request)).or_insert(0) += 1;
        }
        counts
    };
    let reads = of("GET", ".avro");
    assert!(reads.values().all(|count| *count == 1), "{reads:?}");
    assert_eq!(of("HEAD", ".avro"), BTreeMap::new());
    assert_eq!((of("GET", ".parquet"), of("HEAD", ".parquet")), Default::default());
    let through_proxy = scene.store_proxy.is_some();
    let lists = scene.before.needed.values().flatten().filter(|file| file.contains("/snap-"));
    for list in lists.filter(|_| through_proxy) {
        assert!(reads.contains_key(list.rsplit('/').next().unwrap()), "{list} was not read through the proxy");
    }
    // The version that was loaded, and ours after the commit. What a REST server answers is compared with them.
    let newest = [&scene.before, after].map(|state| state.newest_metadata.rsplit('/').next().unwrap().to_string());
    let expected = newest.into_iter().filter(|_| through_proxy).map(|name| (name, 1)).collect();
    assert_eq!(of("GET", ".metadata.json"), expected);
    // Without a catalog the newest version is found by looking; with one its name is known.
    if scene.pair.catalog != CatalogKind::FileSystem {
        assert_eq!(of("HEAD", ".metadata.json"), BTreeMap::new());
    }
}

/// What no snapshot names goes. A key that the store's client can't express is reported, and what comes after it is seen.
pub async fn orphans(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    let at = |name: &str| format!("{}/{name}", scene.before.location);
    let mut orphans = vec![at("data/orphan.parquet"), at("metadata/orphan-m0.avro")];
    // S3 Tables' buckets take plain names only.
    if !matches!(pair.catalog, CatalogKind::SeaweedRest | CatalogKind::S3Tables) {
        orphans.push(at("data/sp ace+%41é=&#.parquet"));
        orphans.push(at("data/zz/last.parquet"));
    }
    let mut stubborn = vec![];
    if pair.store.keeps_double_slashes() {
        stubborn.extend([at("data/b//orphan.parquet"), at("data/b//c/orphan.parquet")]);
    }
    scene.tables.put(&orphans);
    if !stubborn.is_empty() {
        scene.tables.put(&stubborn);
    }
    let report = scene.remove_orphans().await.unwrap();
    let expected: BTreeSet<_> = scene.files_before.iter().chain(&stubborn).cloned().collect();
    assert_eq!(scene.files(), expected);
    assert_eq!(report.metrics.deleted_files_count, orphans.len() as u64, "{:?}", report.files);
    assert_eq!(report.metrics.skipped_unsupported_name_count > 0, !stubborn.is_empty(), "{:?}", report.metrics);
    scene.assert_whole(&scene.before.ids, &scene.before.refs);
}

/// Thousands of orphans take few requests where the store has one for many keys.
pub async fn many_orphans(pair: Pair) {
    // Each store gets 5,000 once; with other catalogs over it, just more than one request takes. Azurite is slow to take them.
    let first =
        matches!(pair.catalog, CatalogKind::FileSystem | CatalogKind::SeaweedRest) && pair.store != StoreKind::Azurite;
    let count = if first { 5000 } else { 1100 };
    let Some(scene) = Scene::with_table(pair, Tables::create_empty).await else { return };
    scene.tables.put_many(&scene.before.location, count);
    let report = scene.remove_orphans().await.unwrap();
    assert_eq!(report.metrics.deleted_files_count, count as u64);
    assert_eq!(scene.files(), scene.files_before);
    let requests = scene.store_proxy.as_ref().map(|proxy| proxy.take_seen()).unwrap_or_default();
    let bulk = requests.iter().filter(|seen| seen.method == "POST" && is_bulk_delete(&seen.query)).count();
    let single = requests.iter().filter(|seen| seen.method == "DELETE" && seen.path.contains("orphan")).count();
    match pair.store {
        StoreKind::Local => {}
        StoreKind::Gcs => assert_eq!((bulk, single), (0, count), "its XML API deletes one object a request"),
        store => {
            let full = count.div_ceil(if store == StoreKind::Azurite { 256 } else { 1000 });
            assert!((full..=full + 1).contains(&bulk) && single == 0, "{bulk} requests for many, {single} for one");
        }
    }
}

fn is_bulk_delete(query: &str) -> bool {
    query.split('&').any(|part| matches!(part, "delete" | "delete=" | "comp=batch"))
}

/// How many requests asked the store to delete something.
pub fn deletes(scene: &Scene) -> usize {
    let requests = scene.store_proxy.as_ref().map(|proxy| proxy.take_seen()).unwrap_or_default();
    requests.iter().filter(|seen| seen.method == "DELETE" || is_bulk_delete(&seen.query)).count()
}

/// PyIceberg appends after we loaded the table: the plan is made again on top of that.
pub async fn race_with_a_commit(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    let tables = scene.tables.clone();
    scene.catalog.on(move |moment| {
        if moment == Moment::BeforeCommit(1) {
            tables.append();
        }
        None
    });
    expire_on_top_of_theirs(&scene).await;
}

/// PyIceberg appends while our commit is on its way: the server itself has to notice.
pub async fn race_on_the_wire(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    let tables = scene.tables.clone();
    scene.on_first_commit(move || Verdict::After(Box::new(move || _ = tables.append())));
    expire_on_top_of_theirs(&scene).await;
}

async fn expire_on_top_of_theirs(scene: &Scene) {
    let report = scene.expire().await.unwrap();
    assert_eq!(scene.catalog.commits(), 2);
    assert_eq!(report.metrics.deleted_snapshots_count, 3, "the head before PyIceberg's commit is one no more");
    let ids: Vec<i64> = scene.before.ids.iter().copied().chain(1001..=1010).collect();
    let now = scene.tables.read();
    let mut refs = scene.before.refs.clone();
    refs.insert("main".into(), *now.snapshots.last().unwrap());
    scene.assert_whole(&ids, &refs);
    assert_eq!(now.snapshots[0], scene.before.snapshots[2]);
    assert!(scene.before.needed_only_by(&scene.expiring()).is_subset(&scene.gone()));
}

/// PyIceberg appends between our commit and our deletes.
pub async fn race_with_a_commit_after_ours(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    let tables = scene.tables.clone();
    scene.catalog.on(move |moment| {
        if moment == Moment::AfterCommit(1) {
            tables.append();
        }
        None
    });
    scene.expire().await.unwrap();
    let ids: Vec<i64> = scene.before.ids.iter().copied().chain(1001..=1010).collect();
    let now = scene.tables.read();
    let mut refs = scene.before.refs.clone();
    refs.insert("main".into(), *now.snapshots.last().unwrap());
    scene.assert_whole(&ids, &refs);
    assert_eq!(scene.gone(), scene.before.needed_only_by(&scene.expiring()));
}

/// PyIceberg tags a snapshot that we are about to expire. Its files stay.
pub async fn race_with_a_new_tag(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    let (tables, first) = (scene.tables.clone(), scene.before.snapshots[0]);
    scene.catalog.on(move |moment| {
        if moment == Moment::BeforeCommit(1) {
            tables.tag("audit", first);
        }
        None
    });
    let outcome = scene.expire().await;
    if pair.catalog.is_rest() {
        // A commit can't say "and no other refs": these servers take it and drop the tag. So no file may go.
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::CommitMismatch { .. }), "{error}");
        assert_clear(&error, "audit");
        assert_eq!(scene.gone(), BTreeSet::new());
        scene.assert_whole(&scene.before.ids, &scene.before.refs);
    } else {
        assert_eq!((outcome.unwrap().metrics.deleted_snapshots_count, scene.catalog.commits()), (1, 2));
        let mut refs = scene.before.refs.clone();
        refs.insert("audit".into(), first);
        let now = scene.assert_whole(&scene.before.ids, &refs);
        assert_eq!(now.snapshots, [&scene.before.snapshots[..1], &scene.before.snapshots[2..]].concat());
        assert_eq!(scene.gone(), scene.before.needed_only_by(&scene.before.snapshots[1..2]));
    }
}

/// The commit is done, but we aren't told. The table is looked at, and shows it.
pub async fn lost_commit_answer(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    match scene.commit_proxy() {
        Some(_) => scene.on_first_commit(|| Verdict::LoseAnswer),
        None => scene.catalog.on(|moment| match moment {
            Moment::AfterCommit(1) => Some(Ok(CommitOutcome::Unknown("the answer got lost".into()))),
            _ => None,
        }),
    }
    expire_with_commits(&scene, 1).await;
}

/// The commit is done, but the server says that something went wrong. The table is looked at, and shows it.
pub async fn commit_answered_with_an_error(pair: Pair) {
    for status in [500, 503] {
        let Some(scene) = Scene::new(pair).await else { return };
        scene.on_first_commit(move || Verdict::Misreport(status, server_error(status)));
        expire_with_commits(&scene, 1).await;
    }
}

/// Whether the commit is done is unknown, and it isn't. The table is looked at, and the commit is made once more.
pub async fn commit_that_never_arrived(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    scene.on_first_commit(|| Verdict::Lose);
    expire_with_commits(&scene, 2).await;
    for status in [500, 503] {
        let Some(scene) = Scene::new(pair).await else { return };
        scene.on_first_commit(move || Verdict::Answer(status, server_error(status)));
        expire_with_commits(&scene, 2).await;
    }
}

/// The server says that somebody else was faster: the plan is made again.
pub async fn commit_answered_with_a_conflict(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    let body = r#"{"error":{"message":"too late","type":"CommitFailedException","code":409}}"#;
    scene.on_first_commit(|| Verdict::Answer(409, body.into()));
    expire_with_commits(&scene, 2).await;
}

fn server_error(status: u16) -> String {
    format!(r#"{{"error":{{"message":"out of order","type":"InternalServerError","code":{status}}}}}"#)
}

/// The usual outcome, after so many attempts to commit, each of which is one request.
async fn expire_with_commits(scene: &Scene, commits: usize) {
    let report = scene.expire().await.unwrap();
    assert_eq!((report.metrics.deleted_snapshots_count, scene.catalog.commits()), (2, commits));
    let now = scene.assert_whole(&scene.before.ids, &scene.before.refs);
    assert_eq!(now.snapshots, scene.before.snapshots[2..]);
    assert_eq!(scene.gone(), scene.before.needed_only_by(&scene.expiring()));
    if let Some(proxy) = &scene.catalog_proxy {
        let is_commit = |seen: &&Seen| seen.method == "POST" && seen.path.contains(scene.namespace());
        let requests = proxy.take_seen();
        assert!(!scene.pair.catalog.is_rest() || requests.iter().filter(is_commit).count() == commits, "{requests:?}");
    }
}

/// The commit is not allowed: one clear line, and the table is as it was.
pub async fn refused_commit(pair: Pair) {
    let Some(scene) = Scene::new(pair).await else { return };
    refuse_commits(&scene);
    let error = scene.expire().await.unwrap_err();
    assert!(!error.is_partial(), "{error}");
    assert_clear(&error, "not yours");
    let now = scene.assert_whole(&scene.before.ids, &scene.before.refs);
    assert_eq!((now.snapshots, now.metadata), (scene.before.snapshots.clone(), scene.before.metadata.clone()));
    assert_eq!(scene.gone(), BTreeSet::new());
    // A catalog's pointer is asked to move to metadata that was written before.
    let added: Vec<_> = scene.files().difference(&scene.files_before).cloned().collect();
    assert!(added.len() <= 1 && added.iter().all(|file| file.ends_with(".metadata.json")), "{added:?}");
}

fn refuse_commits(scene: &Scene) {
    let namespace = scene.namespace();
    let answer = match scene.pair.catalog {
        CatalogKind::Sqlite => {
            let trigger = "CREATE TRIGGER refuse BEFORE UPDATE ON iceberg_tables \
                           BEGIN SELECT RAISE(ABORT, 'not yours'); END";
            return scene.tables.sql(&[trigger.to_string()]);
        }
        CatalogKind::Postgres => {
            let function = format!(
                "CREATE FUNCTION refuse_{namespace}() RETURNS trigger LANGUAGE plpgsql \
                 AS $$ BEGIN RAISE EXCEPTION 'not yours'; END $$"
            );
            let trigger = format!(
                "CREATE TRIGGER refuse_{namespace} BEFORE UPDATE ON iceberg_tables FOR EACH ROW \
                 WHEN (NEW.table_namespace = '{namespace}') EXECUTE FUNCTION refuse_{namespace}()"
            );
            return scene.tables.sql(&[function, trigger]);
        }
        CatalogKind::FileSystem if scene.pair.store == StoreKind::Local => {
            return scene.catalog.on(|moment| match moment {
                Moment::BeforeCommit(_) => {
                    Some(Err(Error::Catalog { catalog: "lake".into(), why: "not yours".into() }))
                }
                _ => None,
            });
        }
        CatalogKind::FileSystem => (403, access_denied()),
        catalog if catalog.is_glue() => {
            (400, r#"{"__type":"AccessDeniedException","Message":"not yours"}"#.to_string())
        }
        _ => (403, r#"{"error":{"message":"not yours","type":"ForbiddenException","code":403}}"#.to_string()),
    };
    let is_commit = scene.commit_request();
    scene.commit_proxy().unwrap().on(move |request| match is_commit(request) {
        true => Verdict::Answer(answer.0, answer.1.clone()),
        false => Verdict::Pass,
    });
}

fn access_denied() -> String {
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AccessDenied</Code><Message>not yours</Message></Error>"
        .into()
}

/// The store refuses requests to delete.
pub async fn denied_deletes(pair: Pair) {
    let deny = |request: &mut Request| {
        let is_delete = request.method == "DELETE" || request.method == "POST" && is_bulk_delete(&request.query);
        if is_delete { Verdict::Answer(403, access_denied()) } else { Verdict::Pass }
    };
    deletes_fail_and_are_made_up_for(pair, deny).await;
}

/// The store takes a request to delete, and refuses each key in it.
pub async fn denied_keys(pair: Pair) {
    let deny = |request: &mut Request| {
        if request.method == "DELETE" {
            return Verdict::Answer(403, access_denied());
        }
        if request.method != "POST" || !is_bulk_delete(&request.query) {
            return Verdict::Pass;
        }
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let keys = body.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap());
        let errors = keys
            .map(|key| format!("<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>not yours</Message></Error>"));
        let result = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><DeleteResult>{}</DeleteResult>",
            errors.collect::<String>()
        );
        Verdict::Answer(200, result)
    };
    deletes_fail_and_are_made_up_for(pair, deny).await;
}

async fn deletes_fail_and_are_made_up_for(pair: Pair, deny: fn(&mut Request) -> Verdict) {
    let Some(scene) = Scene::new(pair).await else { return };
    // Only once the commit is done: proving that the store creates a file only once takes a delete.
    let proxy = scene.store_proxy.as_ref().unwrap();
    let dead = scene.before.needed_only_by(&scene.expiring());
    let names: BTreeSet<String> = dead.iter().map(|file| file.rsplit('/').next().unwrap().to_string()).collect();
    proxy.on(move |request| {
        let text = format!("{}{}", request.path, String::from_utf8_lossy(&request.body));
        if names.iter().any(|name| text.contains(name)) { deny(request) } else { Verdict::Pass }
    });
    let report = scene.expire().await.unwrap();
    let failed: BTreeSet<_> = report
        .files
        .iter()
        .filter(|file| matches!(file.status, FileStatus::Failed(_)))
        .map(|file| file.path.clone())
        .collect();
    assert_eq!(failed, dead);
    assert_eq!((report.metrics.failed_deletions_count, report.metrics.deleted_files_count), (dead.len() as u64, 0));
    assert_eq!(scene.gone(), BTreeSet::new());
    let error = report.require_complete().unwrap_err();
    assert!(error.is_partial(), "{error}");
    assert_clear(&error, "the commit is done");

    scene.store_proxy.as_ref().unwrap().recover();
    let report = scene.remove_orphans().await.unwrap();
    assert_eq!(report.metrics.deleted_files_count, dead.len() as u64);
    assert_eq!(scene.gone(), dead);
    scene.assert_whole(&scene.before.ids, &scene.before.refs);
}

/// A token expires while we work: another one is fetched. One that stays bad is told, and is not told.
pub async fn expired_token(pair: Pair) {
    for (method, status) in [("GET", 401), ("POST", 419)] {
        let Some(scene) = Scene::new(pair).await else { return };
        refuse_token_once(&scene, status, move |request| request.method == method);
        let report = scene.expire().await.unwrap();
        assert_eq!(report.metrics.deleted_snapshots_count, 2, "{method}");
        assert_eq!(scene.gone(), scene.before.needed_only_by(&scene.expiring()), "{method}");
        assert_eq!(tokens_after(&scene, status), 1, "{method}");
    }
    for method in ["GET", "POST"] {
        let Some(scene) = Scene::new(pair).await else { return };
        let namespace = scene.namespace().to_string();
        scene.catalog_proxy.as_ref().unwrap().on(move |request| {
            let is_of_table = request.method == method && request.path.contains(&namespace);
            if is_of_table { unauthorized(401) } else { Verdict::Pass }
        });
        let error = scene.expire().await.unwrap_err();
        assert_clear(&error, "401");
        scene.assert_untouched();
    }
}

/// A token expires while files are being deleted: the look at the table before the second batch of them takes a new one.
pub async fn token_that_expires_between_deletes(pair: Pair) {
    for status in [401, 419] {
        let Some(scene) = Scene::with_table(pair, Tables::create_empty).await else { return };
        scene.tables.put_many(&scene.before.location, 1100);
        let deletes_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&deletes_begun);
        scene.store_proxy.as_ref().unwrap().on(move |request| {
            begun.fetch_or(is_bulk_delete(&request.query), Ordering::Relaxed);
            Verdict::Pass
        });
        let begun = Arc::clone(&deletes_begun);
        scene.catalog.on(move |moment| {
            // One look was after the listing, one before the first batch.
            if moment == Moment::BeforeLook(3) {
                tokio::task::block_in_place(|| wait_for(&begun));
            }
            None
        });
        refuse_token_once(&scene, status, move |_| deletes_begun.load(Ordering::Relaxed));
        let report = scene.remove_orphans().await.unwrap();
        assert_eq!(report.metrics.deleted_files_count, 1100, "{status}");
        assert_eq!(scene.files(), scene.files_before, "{status}");
        assert_eq!(tokens_after(&scene, status), 1, "{status}");
    }
}

fn wait_for(flag: &AtomicBool) {
    let begin = Instant::now();
    while !flag.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Answers the first request for the table that is like this as if its token had expired.
fn refuse_token_once(scene: &Scene, status: u16, is_meant: impl Fn(&Request) -> bool + Send + 'static) {
    let (namespace, mut refused) = (scene.namespace().to_string(), false);
    scene.catalog_proxy.as_ref().unwrap().on(move |request| {
        if refused || !request.path.contains(&namespace) || !is_meant(request) {
            return Verdict::Pass;
        }
        refused = true;
        // SeaweedFS' tokens hold the second in which they were made: one that is fetched within it is the same.
        std::thread::sleep(Duration::from_millis(1100));
        unauthorized(status)
    });
}

/// How many tokens were fetched after one was refused with this status.
fn tokens_after(scene: &Scene, status: u16) -> usize {
    let seen = scene.catalog_proxy.as_ref().unwrap().take_seen();
    let after = seen.iter().skip_while(|seen| seen.status != Some(status));
    after.filter(|seen| seen.path.ends_with("/oauth/tokens")).count()
}

fn unauthorized(status: u16) -> Verdict {
    let body = r#"{"error":{"message":"the token has expired","type":"NotAuthorizedException","code":401}}"#;
    Verdict::Answer(status, body.into())
}
