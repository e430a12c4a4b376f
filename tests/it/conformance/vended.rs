//! Credentials that a catalog vends: Iceberg Java's REST catalog with a proxy that adds them to its answers, and a store
//! behind one that takes each request only with the key that is meant for it, and only in its time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use url::form_urlencoded;

use super::pair::{CatalogKind, Pair, StoreKind};
use super::scene::{Scene, assert_clear};
use super::tables::{TableState, Tables};
use crate::proxy::{Request, Verdict};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_secs(4);

/// How a catalog gives out fresh credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    /// At an address of their own.
    Endpoint,
    /// With the table, which is loaded again.
    Load,
    /// At that address, but not to us.
    Refused,
}

/// What was vended and what came of it.
#[derive(Default)]
struct Vendor {
    location: String,
    /// When each vended set of keys stops working; the first has number 1.
    expiries: Mutex<Vec<Instant>>,
    /// Numbers of the sets that were vended in place of expired ones.
    renewals: Mutex<Vec<usize>>,
    /// The keys that requests came with.
    used: Mutex<Vec<String>>,
    /// Requests that came with the wrong key, or too late.
    denied: Mutex<Vec<String>>,
}

impl Vendor {
    /// A set of keys: the longest prefix has the one to use.
    fn vend(&self, lifetime: Duration) -> Value {
        let mut expiries = self.expiries.lock().unwrap();
        expiries.push(Instant::now() + lifetime);
        let number = expiries.len();
        let expires_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + lifetime;
        let keys = |prefix: &str, area: &str| {
            json!({"prefix": prefix, "config": {
                "s3.access-key-id": format!("{area}-{number}"),
                "s3.secret-access-key": "vended-secret",
                "s3.session-token": "vended-token",
                "s3.session-token-expires-at-ms": expires_at.as_millis().to_string(),
            }})
        };
        json!([
            keys("s3://plain", "bucket"),
            keys(&format!("{}/metadata", self.location), "metadata"),
            keys(&self.location, "table"),
        ])
    }

    fn renew(&self) -> Value {
        let fresh = self.vend(LONG);
        self.renewals.lock().unwrap().push(self.expiries.lock().unwrap().len());
        fresh
    }

    /// Waits until the first set of keys stops working.
    fn outlast_the_first(&self) {
        let expiry = self.expiries.lock().unwrap()[0];
        std::thread::sleep(expiry.saturating_duration_since(Instant::now()) + Duration::from_millis(100));
    }

    /// Lets a request to the store pass if it comes with the right key.
    fn check(&self, request: &Request) -> Verdict {
        let authorization = request.header("authorization").unwrap_or_default();
        let key = authorization.split_once("Credential=").and_then(|(_, rest)| rest.split('/').next());
        let key = key.unwrap_or_default();
        self.used.lock().unwrap().push(key.to_string());
        let Some((area, number)) = key.rsplit_once('-') else { return self.deny(request, key) };
        let expiry = number.parse::<usize>().ok().and_then(|n| self.expiries.lock().unwrap().get(n - 1).copied());
        let is_in_time = expiry.is_some_and(|expiry| Instant::now() < expiry);
        match is_in_time && self.areas(request) == BTreeSet::from([area]) {
            true => Verdict::Pass,
            false => self.deny(request, key),
        }
    }

    fn deny(&self, request: &Request, key: &str) -> Verdict {
        let Request { method, path, query, .. } = request;
        self.denied.lock().unwrap().push(format!("{method} {path}?{query} with {key:?}"));
        let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AccessDenied</Code></Error>";
        Verdict::Answer(403, body.into())
    }

    /// Whose keys a request needs.
    fn areas(&self, request: &Request) -> BTreeSet<&'static str> {
        let parameter = |name: &str| {
            form_urlencoded::parse(request.query.as_bytes()).find(|(known, _)| known == name).map(|(_, value)| value)
        };
        let keys: Vec<String> = if parameter("delete").is_some() {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            body.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap().to_string()).collect()
        } else if let Some(prefix) = parameter("prefix") {
            vec![prefix.into_owned()]
        } else {
            vec![request.path.trim_start_matches("/plain/").to_string()]
        };
        let table = self.location.trim_start_matches("s3://plain/");
        let area = |key: &String| match key.strip_prefix(table) {
            Some(rest) if rest.starts_with("/metadata/") => "metadata",
            Some(_) => "table",
            None => "nobody",
        };
        keys.iter().map(area).collect()
    }
}

/// A table that we reach with vended credentials only.
struct Vended {
    scene: Scene,
    vendor: Arc<Vendor>,
}

impl Vended {
    /// Loads come with keys of this lifetime, renewals with long-lived ones.
    async fn new(create: fn(&Tables) -> TableState, lifetime: Duration, renewal: Renewal) -> Option<Self> {
        let over = |catalog| Pair { catalog, store: StoreKind::MinistackS3 };
        let scene = Scene::written_through(over(CatalogKind::JavaRest), over(CatalogKind::VendingRest), create).await?;
        assert!(!scene.properties.keys().any(|key| key.contains("access-key")), "the client has keys of its own");
        let vendor = Arc::new(Vendor { location: scene.before.location.clone(), ..Vendor::default() });
        let vending = Arc::clone(&vendor);
        scene.catalog_proxy.as_ref().unwrap().on(move |request| answer(request, &vending, lifetime, renewal));
        let guard = Arc::clone(&vendor);
        scene.store_proxy.as_ref().unwrap().on(move |request| guard.check(request));
        Some(Self { scene, vendor })
    }

    /// Lets the first set of keys expire while the first request to delete is on its way.
    fn expire_during_the_first_delete(&self) {
        let (vendor, mut first) = (Arc::clone(&self.vendor), true);
        self.scene.store_proxy.as_ref().unwrap().on(move |request| match vendor.check(request) {
            Verdict::Pass if request.method == "POST" && std::mem::take(&mut first) => {
                let vendor = Arc::clone(&vendor);
                Verdict::After(Box::new(move || vendor.outlast_the_first()))
            }
            verdict => verdict,
        });
    }
}

/// What becomes of a request to the catalog.
fn answer(request: &Request, vendor: &Arc<Vendor>, lifetime: Duration, renewal: Renewal) -> Verdict {
    if request.path.ends_with("/v1/config") && renewal != Renewal::Load {
        let endpoint = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials";
        return edit(move |answer| answer["endpoints"] = json!([endpoint]));
    }
    if request.path.ends_with("/credentials") {
        return match renewal {
            Renewal::Refused => {
                let error = json!({"message": "not yours", "type": "ForbiddenException", "code": 403});
                Verdict::Answer(403, json!({"error": error}).to_string())
            }
            _ => Verdict::Answer(200, json!({"storage-credentials": vendor.renew()}).to_string()),
        };
    }
    let is_load = request.method == "GET" && request.path.contains("/tables/");
    let vendor = Arc::clone(vendor);
    match is_load && request.query.contains("snapshots=refs") {
        true => edit(move |answer| answer["storage-credentials"] = vendor.renew()),
        false if is_load => edit(move |answer| answer["storage-credentials"] = vendor.vend(lifetime)),
        false => Verdict::Pass,
    }
}

fn edit(edit: impl FnOnce(&mut Value) + Send + 'static) -> Verdict {
    Verdict::Edit(Box::new(move |body| {
        let mut answer = serde_json::from_slice(&body).unwrap();
        edit(&mut answer);
        answer.to_string().into_bytes()
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_file_is_reached_with_the_keys_of_its_longest_prefix() {
    let Some(Vended { scene, vendor }) = Vended::new(Tables::create, LONG, Renewal::Endpoint).await else { return };
    let report = scene.expire().await.unwrap();
    assert_eq!(*vendor.denied.lock().unwrap(), [""; 0]);
    assert_eq!(report.metrics.deleted_snapshots_count, 2);
    assert_eq!(scene.gone(), scene.before.needed_only_by(&scene.expiring()));
    scene.assert_whole(&scene.before.ids, &scene.before.refs);
    let used = vendor.used.lock().unwrap();
    let areas: BTreeSet<&str> = used.iter().map(|key| key.rsplit_once('-').unwrap().0).collect();
    assert_eq!(areas, BTreeSet::from(["metadata", "table"]));
    assert_eq!(vendor.renewals.lock().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_expire_between_two_deletes_are_renewed() {
    for renewal in [Renewal::Endpoint, Renewal::Load] {
        let Some(vended) = Vended::new(Tables::create_empty, SHORT, renewal).await else { return };
        let Vended { scene, vendor } = &vended;
        scene.tables.put_many(&scene.before.location, 1100);
        vended.expire_during_the_first_delete();
        let report = scene.remove_orphans_one_request_at_a_time().await.unwrap();
        assert_eq!(*vendor.denied.lock().unwrap(), [""; 0], "{renewal:?}");
        assert_eq!(report.metrics.deleted_files_count, 1100, "{renewal:?}");
        assert_eq!(scene.files(), scene.files_before, "{renewal:?}");
        let renewals = vendor.renewals.lock().unwrap();
        assert_eq!(renewals.len(), 1, "{renewal:?}");
        // The journal's end comes after the last delete, with the keys of the metadata.
        let used = vendor.used.lock().unwrap();
        let last = used.iter().rfind(|key| key.starts_with("table-")).cloned();
        assert_eq!(last, Some(format!("table-{}", renewals[0])), "{renewal:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_not_renewed_end_the_deletes() {
    let Some(vended) = Vended::new(Tables::create_empty, SHORT, Renewal::Refused).await else { return };
    let Vended { scene, vendor } = &vended;
    scene.tables.put_many(&scene.before.location, 1100);
    vended.expire_during_the_first_delete();
    let report = scene.remove_orphans_one_request_at_a_time().await.unwrap();
    assert_eq!(*vendor.denied.lock().unwrap(), [""; 0], "no request is made with keys that expired");
    assert_eq!((report.metrics.deleted_files_count, report.metrics.failed_deletions_count), (1000, 100));
    assert_eq!(scene.files().difference(&scene.files_before).count(), 100);
    let error = report.require_complete().unwrap_err();
    assert!(error.is_partial(), "{error}");
    assert_clear(&error, "not yours");
    assert!(!error.to_string().contains("vended-"), "{error}");
}
