//! A catalog around the one under test, which lets the test act between its steps.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use iceberg_maintenance::Error;
use iceberg_maintenance::catalog::{Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};

/// When something happens; each kind of moment is counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    BeforeLoad(usize),
    AfterLoad(usize),
    BeforeCommit(usize),
    AfterCommit(usize),
    /// Before the question whether a loaded table is still the current one.
    BeforeLook(usize),
}

/// What is answered to a commit in place of the real catalog; before a commit it is then not asked at all.
pub type Instead = Option<Result<CommitOutcome, Error>>;

type Hook = Box<dyn FnMut(Moment) -> Instead + Send>;

pub struct HookedCatalog {
    inner: Arc<dyn Catalog>,
    hook: Mutex<Hook>,
    moments: Mutex<Vec<Moment>>,
    /// The metadata of the last commit that was asked for.
    sent_metadata: Mutex<Option<String>>,
}

impl HookedCatalog {
    pub fn around(inner: Arc<dyn Catalog>) -> Self {
        Self { inner, hook: Mutex::new(Box::new(|_| None)), moments: Mutex::default(), sent_metadata: Mutex::default() }
    }

    pub fn on(&self, hook: impl FnMut(Moment) -> Instead + Send + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    /// The metadata of the last commit that was asked for, whatever came of it.
    pub fn sent_metadata(&self) -> Option<String> {
        self.sent_metadata.lock().unwrap().clone()
    }

    /// How often the table was loaded.
    pub fn loads(&self) -> usize {
        self.count(|moment| matches!(moment, Moment::BeforeLoad(_)))
    }

    /// How often a commit was asked for.
    pub fn commits(&self) -> usize {
        self.count(|moment| matches!(moment, Moment::BeforeCommit(_)))
    }

    /// How often it was asked whether a loaded table is still the current one.
    pub fn looks(&self) -> usize {
        self.count(|moment| matches!(moment, Moment::BeforeLook(_)))
    }

    fn count(&self, is: fn(&Moment) -> bool) -> usize {
        self.moments.lock().unwrap().iter().filter(|moment| is(moment)).count()
    }

    fn pass(&self, moment: fn(usize) -> Moment) -> Instead {
        let now = {
            let mut moments = self.moments.lock().unwrap();
            let now = (1..).map(moment).find(|moment| !moments.contains(moment)).unwrap();
            moments.push(now);
            now
        };
        (self.hook.lock().unwrap())(now)
    }
}

impl fmt::Debug for HookedCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Catalog for HookedCatalog {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable, Error> {
        self.pass(Moment::BeforeLoad);
        let loaded = self.inner.load(table, runtime).await;
        self.pass(Moment::AfterLoad);
        loaded
    }

    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome, Error> {
        *self.sent_metadata.lock().unwrap() = Some(commit.new_metadata.clone());
        if let Some(instead) = self.pass(Moment::BeforeCommit) {
            return instead;
        }
        let outcome = self.inner.commit(table, base, commit, runtime).await;
        self.pass(Moment::AfterCommit).unwrap_or(outcome)
    }

    async fn verify(
        &self,
        base: &LoadedTable,
        commit: &TableCommit,
        newest: &LoadedTable,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<(), Error> {
        self.inner.verify(base, commit, newest, runtime).await
    }

    async fn list_namespaces(&self, parent: &[String], runtime: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>, Error> {
        self.inner.list_namespaces(parent, runtime).await
    }

    async fn list_tables(&self, namespace: &[String], runtime: &Arc<RuntimeEnv>) -> Result<Vec<TableName>, Error> {
        self.inner.list_tables(namespace, runtime).await
    }

    async fn metadata_locations(
        &self,
        namespace: &[String],
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<Option<Vec<(TableName, String)>>, Error> {
        self.inner.metadata_locations(namespace, runtime).await
    }

    fn tables_may_share_files(&self) -> bool {
        self.inner.tables_may_share_files()
    }

    async fn is_current(
        &self,
        table: &TableName,
        loaded: &LoadedTable,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<bool, Error> {
        self.pass(Moment::BeforeLook);
        self.inner.is_current(table, loaded, runtime).await
    }
}
