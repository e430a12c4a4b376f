//! What is known of a catalog's tables while many of them are maintained in one call.
//!
//! Each table's run must know where the others have their files. Asking for that at every table would load every table as
//! often as there are tables; so they are looked at once, while the call is planned, and what was seen is told to each run.
//! It ages: what is older than [`MAX_AGE`] when a run asks is listed and looked at again. A run learns of no fewer tables
//! than it would alone: of all that were looked at for any run, and of as many of the others as it would load itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::execution::runtime_env::RuntimeEnv;
use tokio::sync::Mutex;

use super::neighbours::look_at;
use super::{CatalogScope, Look, MAX_NAMESPACE_PARTS, Neighbours, TableHandle, TableName};
use crate::error::{Error, Result};

/// After this what was seen of other tables is looked at again.
const MAX_AGE: Duration = Duration::from_secs(15 * 60);

/// The tables of a catalog, or of a namespace in it, and what was seen of them.
#[derive(Debug)]
pub(crate) struct Survey {
    /// What is maintained.
    scope: CatalogScope,
    max_age: Duration,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    taken: Instant,
    /// In the namespace that is maintained.
    inside: Listed,
    /// Elsewhere in the catalog, as far as somebody asked; `None` before anybody did.
    outside: Option<Listed>,
    looks: HashMap<TableName, Look>,
}

/// Tables as the catalog lists them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listed {
    /// The tables, with the location of their metadata where the catalog tells it.
    tables: Vec<(TableName, Option<String>)>,
    /// The namespaces that could not be listed, and why.
    pub unlisted: Vec<(Vec<String>, String)>,
    /// True when there are more tables than were asked for.
    is_incomplete: bool,
}

impl Listed {
    /// The names of the tables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &TableName> {
        self.tables.iter().map(|(name, _)| name)
    }
}

impl Survey {
    /// Lists the tables of a namespace and of all below it; those of the whole catalog for an empty one.
    ///
    /// # Errors
    /// When the namespace itself can't be listed. One below it is noted in [`Listed::unlisted`].
    pub(crate) async fn begin(scope: CatalogScope, runtime: &Arc<RuntimeEnv>) -> Result<(Arc<Self>, Listed)> {
        let taken = Instant::now();
        let inside = list(&scope, None, usize::MAX, runtime).await?;
        let known = Known { taken, inside: inside.clone(), outside: None, looks: HashMap::new() };
        let survey = Self { scope, max_age: MAX_AGE, known: Mutex::new(known) };
        Ok((Arc::new(survey), inside))
    }

    /// A table whose run is told what the survey knows.
    pub(crate) fn handle(self: &Arc<Self>, name: &TableName) -> TableHandle {
        let (catalog, survey) = (Arc::clone(&self.scope.catalog), Some(Arc::clone(self)));
        TableHandle { catalog, name: name.clone(), survey }
    }

    /// Notes what a look at a table showed.
    pub(crate) async fn note(&self, name: &TableName, look: Look) {
        self.known.lock().await.looks.insert(name.clone(), look);
    }

    /// What is known of all tables but this one; see [`TableHandle::neighbours`].
    ///
    /// # Errors
    /// When the rest of the catalog can't be listed.
    pub(super) async fn neighbours(
        &self,
        own: &TableName,
        most: usize,
        runtime: &Arc<RuntimeEnv>,
        may_matter: &(dyn Fn(&str) -> bool + Sync),
        all: bool,
    ) -> Result<Neighbours> {
        let mut known = self.known.lock().await;
        self.refresh(&mut known, runtime).await;
        self.list_outside(&mut known, most, runtime).await?;
        let unknown = known.listed().filter(|(name, _)| name != own && !known.looks.contains_key(name));
        let (mut others, mut rest): (Vec<_>, Vec<_>) =
            unknown.partition(|(_, at)| at.as_deref().is_none_or(may_matter));
        for names in [&mut others, &mut rest] {
            names.sort_by_key(|(name, _)| name.namespace != own.namespace);
        }
        if all {
            others.append(&mut rest);
        }
        let mut others: Vec<TableName> = others.into_iter().map(|(name, _)| name.clone()).collect();
        let is_incomplete = others.len() > most || known.outside.as_ref().is_some_and(|outside| outside.is_incomplete);
        others.truncate(most);
        known.looks.extend(look_at(&self.scope.catalog, others, runtime).await);
        let mut neighbours = Neighbours { is_incomplete, ..Default::default() };
        for (name, look) in known.looks.iter().filter(|(name, _)| *name != own) {
            neighbours.add(name, look);
        }
        neighbours.unreadable.sort_by_cached_key(ToString::to_string);
        Ok(neighbours)
    }

    /// Looks at all tables of the catalog that were not looked at yet.
    ///
    /// # Errors
    /// When a part of the catalog can't be listed: then not all tables are known.
    pub(crate) async fn look_at_all(&self, runtime: &Arc<RuntimeEnv>) -> Result<HashMap<TableName, Look>> {
        let mut known = self.known.lock().await;
        self.refresh(&mut known, runtime).await;
        known.outside = None;
        self.list_outside(&mut known, usize::MAX, runtime).await?;
        let unlisted = known.inside.unlisted.iter().chain(known.outside.iter().flat_map(|outside| &outside.unlisted));
        if let Some((namespace, why)) = unlisted.into_iter().next() {
            let why = format!("its namespace {} can't be listed: {why}", namespace.join("."));
            return Err(Error::Catalog { catalog: self.scope.name.clone(), why });
        }
        let others = known.listed().map(|(name, _)| name).filter(|name| !known.looks.contains_key(*name));
        let others = others.cloned().collect();
        known.looks.extend(look_at(&self.scope.catalog, others, runtime).await);
        Ok(known.looks.clone())
    }

    /// Lists and looks again where that was too long ago. Where it can't be done, what was seen before still stands.
    async fn refresh(&self, known: &mut Known, runtime: &Arc<RuntimeEnv>) {
        if known.taken.elapsed() <= self.max_age {
            return;
        }
        let taken = Instant::now();
        let inside = match list(&self.scope, None, usize::MAX, runtime).await {
            Ok(inside) => inside,
            Err(error) => {
                tracing::warn!(%error, "the catalog can't be listed again; what was seen of its tables before still counts");
                return;
            }
        };
        let seen = known.looks.keys().cloned().collect();
        let looks = look_at(&self.scope.catalog, seen, runtime).await;
        *known = Known { taken, inside, outside: None, looks: looks.into_iter().collect() };
    }

    /// Lists what lies outside of the namespace that is maintained, up to `most` tables, unless that was done.
    async fn list_outside(&self, known: &mut Known, most: usize, runtime: &Arc<RuntimeEnv>) -> Result<()> {
        if known.outside.is_none() && !self.scope.namespace.is_empty() {
            let whole = CatalogScope { namespace: vec![], ..self.scope.clone() };
            known.outside = Some(list(&whole, Some(&self.scope.namespace), most, runtime).await?);
        }
        Ok(())
    }
}

impl Known {
    fn listed(&self) -> impl Iterator<Item = &(TableName, Option<String>)> {
        self.inside.tables.iter().chain(self.outside.iter().flat_map(|outside| &outside.tables))
    }
}

/// Lists the tables of a namespace and of all below it, but for those of another, until there are `most`.
async fn list(
    scope: &CatalogScope,
    but: Option<&Vec<String>>,
    most: usize,
    runtime: &Arc<RuntimeEnv>,
) -> Result<Listed> {
    let (mut listed, mut namespaces, mut looked_at) = (Listed::default(), vec![scope.namespace.clone()], 0);
    while let Some(next) = namespaces.pop() {
        if but == Some(&next) {
            continue;
        }
        if listed.tables.len() >= most || looked_at > most {
            listed.is_incomplete = true;
            break;
        }
        looked_at += 1;
        let outcome = list_one(scope, &next, &mut listed, runtime).await;
        match outcome {
            Ok(below) => namespaces.extend(below),
            Err(error) if next == scope.namespace => return Err(error),
            Err(error) => listed.unlisted.push((next, error.to_string())),
        }
    }
    Ok(listed)
}

/// Adds the tables of one namespace. Returns the namespaces below it.
async fn list_one(
    scope: &CatalogScope,
    namespace: &[String],
    listed: &mut Listed,
    runtime: &Arc<RuntimeEnv>,
) -> Result<Vec<Vec<String>>> {
    if namespace.len() > MAX_NAMESPACE_PARTS {
        let why = format!("its namespaces nest deeper than {MAX_NAMESPACE_PARTS}: {}…", namespace[..3].join("."));
        return Err(Error::Catalog { catalog: scope.name.clone(), why });
    }
    let mut below = scope.catalog.list_namespaces(namespace, runtime).await?;
    below.retain(|below| below.len() > namespace.len());
    if namespace.is_empty() {
        return Ok(below);
    }
    match scope.catalog.metadata_locations(namespace, runtime).await? {
        Some(known) => listed.tables.extend(known.into_iter().map(|(name, at)| (name, Some(at)))),
        None => {
            let names = scope.catalog.list_tables(namespace, runtime).await?;
            listed.tables.extend(names.into_iter().map(|name| (name, None)));
        }
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::super::{Catalog, CommitOutcome, LoadedTable, TableCommit};
    use super::*;
    use crate::table::TableMetadata;

    /// Tables `a.t0` to `a.t4` and `b.t0` to `b.t4`, each in a folder of its own.
    #[derive(Debug, Default)]
    struct Counted {
        loads: AtomicUsize,
        tells: bool,
    }

    #[async_trait]
    impl Catalog for Counted {
        async fn load(&self, table: &TableName, _: &Arc<RuntimeEnv>) -> Result<LoadedTable> {
            self.loads.fetch_add(1, Ordering::Relaxed);
            if table.name == "t4" {
                return Err(Error::FileNotFound { path: "metadata".into() });
            }
            let json = format!(r#"{{"format-version":2,"table-uuid":"u","location":"/w/{table}","snapshots":[]}}"#);
            Ok(LoadedTable::new(table.to_string(), TableMetadata::parse("/w/v1.metadata.json", json.as_bytes())?))
        }

        async fn commit(
            &self,
            _: &TableName,
            _: &LoadedTable,
            _: &TableCommit,
            _: &Arc<RuntimeEnv>,
        ) -> Result<CommitOutcome> {
            Ok(CommitOutcome::Conflict("nobody commits here".into()))
        }

        async fn list_namespaces(&self, parent: &[String], _: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>> {
            Ok(if parent.is_empty() { vec![vec!["a".into()], vec!["b".into()]] } else { vec![] })
        }

        async fn list_tables(&self, namespace: &[String], _: &Arc<RuntimeEnv>) -> Result<Vec<TableName>> {
            Ok((0..5).map(|n| TableName { namespace: namespace.to_vec(), name: format!("t{n}") }).collect())
        }

        async fn metadata_locations(
            &self,
            namespace: &[String],
            runtime: &Arc<RuntimeEnv>,
        ) -> Result<Option<Vec<(TableName, String)>>> {
            let names = self.list_tables(namespace, runtime).await?;
            let told = names.into_iter().map(|name| (name.clone(), format!("/w/{name}/metadata/v1.metadata.json")));
            Ok(self.tells.then(|| told.collect()))
        }
    }

    fn name(namespace: &str, table: &str) -> TableName {
        TableName { namespace: vec![namespace.into()], name: table.into() }
    }

    /// What each of two tables of `a` is told, and how many loads that took.
    async fn told(catalog: Counted, most: usize, max_age: Duration, all: bool) -> (Vec<(usize, usize, bool)>, usize) {
        let (catalog, runtime) = (Arc::new(catalog), Arc::default());
        let scope = CatalogScope { name: "c".into(), catalog: catalog.clone(), namespace: vec!["a".into()] };
        let (survey, listed) = Survey::begin(scope, &runtime).await.unwrap();
        assert_eq!(listed.names().count(), 5);
        let survey = Survey { max_age, ..Arc::into_inner(survey).unwrap() };
        let mut told = vec![];
        for table in ["t0", "t1"] {
            let may_matter = |at: &str| at.contains("/b.");
            let neighbours = survey.neighbours(&name("a", table), most, &runtime, &may_matter, all).await.unwrap();
            told.push((neighbours.tables.len(), neighbours.unreadable.len(), neighbours.is_incomplete));
        }
        (told, catalog.loads.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn each_table_is_looked_at_once_whoever_asks() {
        let (told, loads) = told(Counted::default(), 100, MAX_AGE, false).await;
        assert_eq!((told, loads), (vec![(7, 2, false), (7, 2, false)], 10));
    }

    #[tokio::test]
    async fn as_many_are_looked_at_as_would_be_without_a_survey_and_what_was_seen_before_is_told_too() {
        let (told, loads) = told(Counted::default(), 3, MAX_AGE, false).await;
        assert_eq!((told, loads), (vec![(3, 0, true), (4, 1, true)], 6));
    }

    #[tokio::test]
    async fn a_catalog_that_tells_where_tables_are_loads_only_those_that_may_matter() {
        let (told, loads) = told(Counted { tells: true, ..Default::default() }, 100, MAX_AGE, false).await;
        assert_eq!((told, loads), (vec![(4, 1, false), (4, 1, false)], 5));
    }

    #[tokio::test]
    async fn where_all_are_wanted_those_that_may_matter_come_first() {
        let tells = || Counted { tells: true, ..Default::default() };
        let (told_all, loads) = told(tells(), 100, MAX_AGE, true).await;
        assert_eq!((told_all, loads), (vec![(7, 2, false), (7, 2, false)], 10));
        let (told_some, loads) = told(tells(), 5, MAX_AGE, true).await;
        assert_eq!((told_some[0], loads), ((4, 1, true), 9), "all of b, then those of a");
    }

    #[tokio::test]
    async fn what_was_seen_too_long_ago_is_looked_at_again() {
        let (told, loads) = told(Counted::default(), 100, Duration::ZERO, false).await;
        assert_eq!((told, loads), (vec![(7, 2, false), (7, 2, false)], 9 + 9 + 1));
    }
}
