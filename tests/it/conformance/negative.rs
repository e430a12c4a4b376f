//! Servers that don't keep their word. Each is noticed, and nothing is deleted.

use std::collections::BTreeSet;

use iceberg_maintenance::Error;

use super::behaviours::deletes;
use super::pair::{CatalogKind, Pair, StoreKind};
use super::scene::{Scene, assert_clear};
use super::tables::Tables;
use crate::proxy::Verdict;

/// A REST catalog that answers 200 to a commit and does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rest_catalog_that_ignores_what_it_is_asked_for() {
    let through = |catalog| Pair { catalog, store: StoreKind::MinistackS3 };
    let (theirs, ours) = (through(CatalogKind::Glue), through(CatalogKind::IdleRest));
    let Some(scene) = Scene::written_through(theirs, ours, Tables::create).await else { return };
    let error = scene.expire().await.unwrap_err();
    assert!(matches!(error, Error::CommitMismatch { .. }), "{error}");
    assert_clear(&error, "lake");
    assert_eq!(deletes(&scene), 0);
    assert_eq!(scene.gone(), BTreeSet::new());
    scene.assert_whole(&scene.before.ids, &scene.before.refs);
}

/// A Glue that takes an update whatever version it is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_glue_that_ignores_versions() {
    let pair = Pair { catalog: CatalogKind::CarelessGlue, store: StoreKind::MotoS3 };
    let Some(scene) = Scene::new(pair).await else { return };
    let error = scene.expire().await.unwrap_err();
    assert_clear(&error, "VersionId");
    // Only the plan is taken out of the journal again.
    assert!(deletes(&scene) <= 1);
    let now = scene.assert_whole(&scene.before.ids, &scene.before.refs);
    assert_eq!((now.snapshots, scene.gone()), (scene.before.snapshots.clone(), BTreeSet::new()));
}

/// A store that overwrites what was to be created only if it is absent. The header is taken off on its way to a server that
/// checks no signatures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ignores_if_none_match() {
    let pair = Pair { catalog: CatalogKind::FileSystem, store: StoreKind::MinistackS3 };
    let Some(scene) = Scene::new(pair).await else { return };
    scene.store_proxy.as_ref().unwrap().on(|request| {
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("if-none-match"));
        Verdict::Pass
    });
    let error = scene.expire().await.unwrap_err();
    assert_clear(&error, "overwrite");
    scene.assert_untouched();
}
