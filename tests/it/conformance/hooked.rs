//! A catalog around the one under test, which lets the test act between its steps.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use iceberg_maintenance::Error;
use iceberg_maintenance::catalog::{Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};

/// When the test can act; each kind of moment is counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    BeforeCommit(usize),
    AfterCommit(usize),
}

/// What is answered in place of the real catalog; before a commit it is then not asked at all.
pub type Instead = Option<Result<CommitOutcome, Error>>;

type Hook = Box<dyn FnMut(Moment) -> Instead + Send>;

pub struct HookedCatalog {
    inner: Arc<dyn Catalog>,
    hook: Mutex<Hook>,
    commits: Mutex<usize>,
}

impl HookedCatalog {
    pub fn around(inner: Arc<dyn Catalog>) -> Self {
        Self { inner, hook: Mutex::new(Box::new(|_| None)), commits: Mutex::new(0) }
    }

    pub fn on(&self, hook: impl FnMut(Moment) -> Instead + Send + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    /// How often a commit was asked for.
    pub fn commits(&self) -> usize {
        *self.commits.lock().unwrap()
    }

    fn pass(&self, moment: Moment) -> Instead {
        (self.hook.lock().unwrap())(moment)
    }
}

impl fmt::Debug for HookedCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Catalog for HookedCatalog {
    async fn load(&self, table: &TableName, runtime: &Arc<RuntimeEnv>) -> Result<LoadedTable, Error> {
        self.inner.load(table, runtime).await
    }

    async fn commit(
        &self,
        table: &TableName,
        base: &LoadedTable,
        commit: &TableCommit,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome, Error> {
        let attempt = {
            let mut commits = self.commits.lock().unwrap();
            *commits += 1;
            *commits
        };
        if let Some(instead) = self.pass(Moment::BeforeCommit(attempt)) {
            return instead;
        }
        let outcome = self.inner.commit(table, base, commit, runtime).await;
        self.pass(Moment::AfterCommit(attempt)).unwrap_or(outcome)
    }

    async fn is_current(
        &self,
        table: &TableName,
        loaded: &LoadedTable,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<bool, Error> {
        self.inner.is_current(table, loaded, runtime).await
    }
}
