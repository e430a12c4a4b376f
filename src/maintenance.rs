//! The embedder's handle: what `register` returns, and what every run needs from its session.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use datafusion::catalog::CatalogProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::prelude::SessionContext;
use futures::Stream;
use parking_lot::RwLock;

use crate::catalog::{Catalog, CatalogScope, Catalogs, Defaults, LoadedTable, TableHandle};
use crate::error::{Error, Result};
use crate::options::MaintenanceOptions;
use crate::procedure::expire_snapshots::{self, Attempt, CommittedExpiry, ExpirePlan, ExpireSnapshots};
use crate::procedure::explain_file::{self, FileExplanation};
use crate::procedure::remove_orphan_files::{self, OrphanPlan, RemoveOrphanFiles};
use crate::procedure::verify_table::{self, Verification};
use crate::progress::{BegunRun, Progress, RunWork, Watchers};
use crate::report::Report;

/// Where "now" comes from.
pub trait Clock: Debug + Send + Sync {
    /// The current time, ms since the epoch, UTC.
    fn now_ms(&self) -> i64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        chrono::Utc::now().timestamp_millis()
    }
}

/// A clock that stands still, for tests and reproducible plans.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(
    /// Ms since the epoch, UTC.
    pub i64,
);

impl Clock for FixedClock {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

/// A flag that stops a run between two batches of deletes. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Asks the run to stop.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once [`Self::cancel`] was called.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one run needs from its session. What it does is counted in the [`RunWork`] of its task.
#[derive(Debug, Clone)]
pub(crate) struct RunContext {
    pub maintenance: Maintenance,
    pub task: Arc<TaskContext>,
    pub cancellation: Cancellation,
}

impl RunContext {
    /// The same run with the table's own stores.
    pub(crate) fn for_table(&self, table: &LoadedTable) -> Self {
        Self { task: table.task(&self.task), ..self.clone() }
    }

    pub(crate) fn options(&self) -> MaintenanceOptions {
        MaintenanceOptions::of(&self.task)
    }

    /// Finds the table that the run works on now.
    pub(crate) fn resolve(&self, table: &str) -> Result<TableHandle> {
        self.work().begin_table(table);
        self.maintenance.resolve(table)
    }

    /// What the run has done so far.
    pub(crate) fn work(&self) -> Arc<RunWork> {
        RunWork::of(&self.task)
    }

    /// Passes a report on to whom the embedder named, with the time of the whole run where nobody has measured its own.
    pub(crate) fn tell(&self, report: &mut Report) {
        if report.metrics.elapsed_ms == 0 {
            report.metrics.elapsed_ms = u64::try_from(self.work().elapsed().as_millis()).unwrap_or(u64::MAX);
        }
        self.maintenance.tell(report);
    }

    /// The outcome of a run, after its report was passed on.
    fn told(&self, outcome: Result<Report>) -> Result<Report> {
        let mut report = outcome?;
        self.tell(&mut report);
        Ok(report)
    }
}

/// True where a report says that all was done. A run that failed has none.
fn is_complete(outcome: &Result<Report>) -> bool {
    outcome.as_ref().is_ok_and(|report| report.require_complete().is_ok())
}

/// Runs work in a task of its own, so that dropping the returned future can't cut it between a commit and its deletes:
/// dropping only asks it to stop between two batches.
async fn detached<T: Send + 'static, W: Future<Output = Result<T>> + Send + 'static>(
    run: BegunRun,
    context: RunContext,
    work: impl FnOnce(RunContext) -> W,
    is_complete: impl FnOnce(&Result<T>) -> bool + Send + 'static,
) -> Result<T> {
    struct CancelOnDrop(Option<Cancellation>);
    impl Drop for CancelOnDrop {
        fn drop(&mut self) {
            self.0.iter().for_each(Cancellation::cancel);
        }
    }
    let mut waiting = CancelOnDrop(Some(context.cancellation.clone()));
    let outcome = tokio::spawn(run.run(work(context), is_complete)).await;
    waiting.0 = None;
    outcome.map_err(|error| Error::Engine(Arc::new(DataFusionError::ExecutionJoin(Box::new(error)))))?
}

/// Maintenance as it was set up for a session. Cheap to clone.
///
/// SQL reaches it through the session; the methods here are the same operations for Rust, in one step or in two phases:
/// plan, look at the plan, commit, delete.
#[derive(Debug, Clone)]
pub struct Maintenance {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    notices: Sink<Notify>,
    reports: Sink<Tell>,
    catalogs: Catalogs,
    watchers: Watchers,
    /// The session holds this handle, so this handle must not hold the session.
    session: Weak<RwLock<SessionState>>,
}

/// Who is told of notices.
type Notify = dyn Fn(&str) + Send + Sync;

/// Who is told of reports.
type Tell = dyn Fn(&Report) + Send + Sync;

/// Where something goes that an embedder asked to be told.
struct Sink<F: ?Sized>(Option<Arc<F>>);

impl<F: ?Sized> Default for Sink<F> {
    fn default() -> Self {
        Self(None)
    }
}

impl<F: ?Sized> Debug for Sink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sink").field(&self.0.is_some()).finish()
    }
}

/// Calls an embedder's function. Should it panic, the run goes on: what was done is done, and must be told to its end.
fn shielded(what: &str, call: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
        tracing::error!("who was told {what} of a run panicked");
    }
}

/// Sets up maintenance for a session.
#[derive(Debug, Default)]
pub struct MaintenanceBuilder {
    notices: Sink<Notify>,
    reports: Sink<Tell>,
    clock: Option<Arc<dyn Clock>>,
    catalogs: Catalogs,
    options: Option<MaintenanceOptions>,
}

impl MaintenanceBuilder {
    /// Where "now" comes from; the system's clock by default.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Who is told what the operator should know of a run: arguments without effect, files that were passed over, how an
    /// interrupted run ended. Called from the run's own task, once for each notice; must not block. The log gets the same.
    pub fn on_notice(mut self, notify: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.notices = Sink(Some(Arc::new(notify)));
        self
    }

    /// Who is told what every run came to, for an audit or a report of one's own: each file and snapshot, all numbers, the
    /// notices. A run of an operation is told once when it came to its end: real runs and dry runs, those whose deletes failed in
    /// part, and each table's in `maintain_catalog`. A run that ends in another error has no report, except where it was
    /// cancelled while it deleted or the table was found unhealthy afterwards: the journal and the log have what it did. Neither has
    /// `restore_snapshots`, whose rows are no files. Called from the run's own task; must not block. Should it panic, the run goes on.
    pub fn on_report(mut self, tell: impl Fn(&Report) + Send + Sync + 'static) -> Self {
        self.reports = Sink(Some(Arc::new(tell)));
        self
    }

    /// Registers a catalog: its tables are then named `name.namespace.table`. Names are compared without regard to case.
    pub fn catalog(mut self, name: impl AsRef<str>, catalog: Arc<dyn Catalog>) -> Self {
        self.catalogs.catalogs.insert(name.as_ref().to_lowercase(), catalog);
        self
    }

    /// The catalog that names without one are looked up in. Without this it is the session's default catalog if that is
    /// registered here, or else the only one that is.
    pub fn default_catalog(mut self, name: impl AsRef<str>) -> Self {
        self.catalogs.default_catalog = Some(name.as_ref().to_lowercase());
        self
    }

    /// Registers a name for a table by its location. Comes before the names of catalogs.
    pub fn table(mut self, name: impl AsRef<str>, location: impl Into<String>) -> Self {
        self.catalogs.tables.insert(name.as_ref().to_lowercase(), location.into());
        self
    }

    /// Sets the session's options; `SET iceberg_maintenance.… = …` changes them later.
    pub fn options(mut self, options: MaintenanceOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Installs everything in a session: table functions, named arguments, the rule that lets a statement act once.
    ///
    /// # Errors
    /// When the session refuses a part of it.
    pub fn register(self, session: &SessionContext) -> datafusion::error::Result<Maintenance> {
        let maintenance = Maintenance {
            inner: Arc::new(Inner {
                clock: self.clock.unwrap_or_else(|| Arc::new(SystemClock)),
                notices: self.notices,
                reports: self.reports,
                catalogs: self.catalogs,
                watchers: Watchers::default(),
                session: session.state_weak_ref(),
            }),
        };
        crate::sql::install(session, &maintenance, self.options)?;
        Ok(maintenance)
    }
}

impl Maintenance {
    /// Starts to set up maintenance for a session.
    pub fn builder() -> MaintenanceBuilder {
        MaintenanceBuilder::default()
    }

    /// A handle without catalogs or a session.
    #[cfg(test)]
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let (notices, reports, catalogs, watchers) = Default::default();
        Self { inner: Arc::new(Inner { clock, notices, reports, catalogs, watchers, session: Weak::new() }) }
    }

    /// The current time by the clock of this handle, ms since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.inner.clock.now_ms()
    }

    /// Plans an expiry and changes nothing. `table` is a registered name or a location.
    ///
    /// # Errors
    /// Everything that would stop the expiry before its commit.
    pub async fn plan_expire_snapshots(&self, table: &str, options: &ExpireSnapshots) -> Result<ExpirePlan> {
        let (run, context) = self.begin("expire_snapshots")?;
        let handle = context.resolve(table)?;
        run.run(expire_snapshots::plan(handle, options, None, self.now_ms(), &context.task), Result::is_ok).await
    }

    /// Plans, commits and deletes; plans again when another writer wins the race for the commit.
    ///
    /// Files that could not be deleted are in the report; see [`Report::require_complete`].
    ///
    /// # Errors
    /// Whatever stopped the run; see [`Error`].
    pub async fn expire_snapshots(&self, table: &str, options: &ExpireSnapshots) -> Result<Report> {
        let (run, context) = self.begin("expire_snapshots")?;
        let (handle, options) = (context.resolve(table)?, options.clone());
        let expire = |context: RunContext| async move {
            context.told(expire_snapshots::run(handle, &options, None, &context).await)
        };
        detached(run, context, expire, is_complete).await
    }

    /// Commits a plan through the table's own catalog.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the table changed since the plan was made: make a new one. [`Error::CommitUnknown`] when
    /// nobody knows whether the commit happened.
    pub async fn commit(&self, plan: ExpirePlan) -> Result<CommittedExpiry> {
        let table = plan.metadata().location().to_string();
        let (run, context) = self.begin_on("expire_snapshots", plan.table())?;
        let commit = |context| async move { expire_snapshots::commit(plan, &context).await };
        let is_committed = |outcome: &Result<Attempt>| matches!(outcome, Ok(Attempt::Committed(_)));
        match detached(run, context, commit, is_committed).await? {
            Attempt::Committed(committed) => Ok(*committed),
            Attempt::Conflict(why) => Err(Error::Conflict { table, attempts: 1, why }),
            Attempt::Unsettled(lost) => Err(Error::CommitUnknown { table, why: lost.why }),
        }
    }

    /// Takes a plan that the caller has committed itself, by [`ExpirePlan::commit_request`], on to the deletes. The table
    /// is loaded again to see that the commit really happened.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`] when the newest metadata doesn't show the commit.
    pub async fn confirm_commit(&self, plan: ExpirePlan) -> Result<CommittedExpiry> {
        let (run, context) = self.begin_on("expire_snapshots", plan.table())?;
        let confirm = async {
            let newest = plan.load_newest().await?;
            expire_snapshots::confirm(plan, newest, &context).await
        };
        run.run(confirm, Result::is_ok).await
    }

    /// Deletes the files that a committed expiry freed. A file that is gone already is no error; one that could not be
    /// deleted is in the report.
    ///
    /// # Errors
    /// [`Error::Cancelled`], or when the session is gone.
    pub async fn delete_files(&self, committed: CommittedExpiry) -> Result<Report> {
        let (run, context) = self.begin_on("expire_snapshots", committed.table())?;
        let delete =
            |context: RunContext| async move { context.told(expire_snapshots::delete(committed, &context).await) };
        detached(run, context, delete, is_complete).await
    }

    /// Plans a removal of orphan files and changes nothing.
    ///
    /// # Errors
    /// Everything that would stop the removal before its first delete.
    pub async fn plan_remove_orphan_files(&self, table: &str, options: &RemoveOrphanFiles) -> Result<OrphanPlan> {
        let (run, context) = self.begin("remove_orphan_files")?;
        let handle = context.resolve(table)?;
        run.run(remove_orphan_files::plan(handle, options, None, &context), Result::is_ok).await
    }

    /// Deletes the orphans of a plan, each checked again against the newest metadata.
    ///
    /// # Errors
    /// [`Error::Cancelled`], or when the session is gone.
    pub async fn delete_orphan_files(&self, plan: OrphanPlan) -> Result<Report> {
        let (run, context) = self.begin_on("remove_orphan_files", plan.table())?;
        let delete =
            |context: RunContext| async move { context.told(remove_orphan_files::execute(plan, &context).await) };
        detached(run, context, delete, is_complete).await
    }

    /// Checks that every file which any snapshot of the table needs is there and what it should be. Changes nothing.
    ///
    /// # Errors
    /// When the table's metadata can't be read, and every failure on the way to a file: what is wrong with files is in the
    /// [`Verification`].
    pub async fn verify_table(&self, table: &str) -> Result<Verification> {
        let (run, context) = self.begin("verify_table")?;
        let handle = context.resolve(table)?;
        run.run(verify_table::verify(handle, &context), Result::is_ok).await
    }

    /// Says why a file is kept, or what would remove it. Changes nothing. `path` is a location, or a path relative to the
    /// table's.
    ///
    /// # Errors
    /// When the table's metadata can't be read, and every failure on the way to a file.
    pub async fn explain_file(&self, table: &str, path: &str) -> Result<FileExplanation> {
        let (run, context) = self.begin("explain_file")?;
        let handle = context.resolve(table)?;
        run.run(explain_file::explain(handle, path, &context), Result::is_ok).await
    }

    /// The names of the tables of a catalog, or of a namespace in one (`catalog.namespace`), with all that lies in namespaces
    /// below; of all registered catalogs and tables for `None`. Each is quoted where it must be, as the procedures take it.
    ///
    /// # Errors
    /// [`Error::Catalog`] when there is no such catalog or namespace, or the catalog can't list.
    pub async fn list_tables(&self, within: Option<&str>) -> Result<Vec<String>> {
        self.inner.catalogs.list_tables(within, &self.session()?.runtime_env()).await
    }

    /// A DataFusion catalog in which the tables of a catalog that is registered here have their metadata tables beside them:
    /// `t$snapshots` and `t.snapshots`, `$refs`, `$history`, `$metadata_log_entries`, `$properties`, `$manifests`, `$files`, `$entries`,
    /// `$all_files`, `$all_entries`, `$all_manifests` and `$partitions`, in any case. All other names are left to `inner`, which has the
    /// tables themselves; without it there are no others.
    ///
    /// `catalog` is the name that the catalog was given in [`MaintenanceBuilder::catalog`]. A schema named `a.b` means the namespace
    /// `b` in `a`. With `inner`, only its schemas are there; without it, every schema is looked for when a table is asked for.
    ///
    /// ```no_run
    /// # fn run(session: datafusion::prelude::SessionContext, maintenance: iceberg_maintenance::Maintenance) {
    /// let lake = maintenance.with_metadata_tables("lake", session.catalog("lake"));
    /// session.register_catalog("lake", lake);
    /// // SELECT * FROM lake.db."orders$snapshots"
    /// # }
    /// ```
    pub fn with_metadata_tables(
        &self,
        catalog: &str,
        inner: Option<Arc<dyn CatalogProvider>>,
    ) -> Arc<dyn CatalogProvider> {
        crate::metadata_tables::with_metadata_tables(self.clone(), catalog, inner)
    }

    /// How far runs are: a stream of what each run of this handle that begins from now on has done, by SQL or by the methods here.
    ///
    /// There is something of every run `every` so often while it works, however little happened, and once after its end, when
    /// [`RunStage::is_end`](crate::RunStage::is_end) is true. The stream ends when the session and all handles are gone. Runs don't
    /// wait for it: one that is not polled misses what was between, and one that is dropped costs nothing more.
    ///
    /// Needs a tokio runtime with time enabled once it is polled.
    ///
    /// ```no_run
    /// # async fn run(maintenance: iceberg_maintenance::Maintenance) {
    /// use futures::StreamExt;
    /// let mut progress = maintenance.progress(std::time::Duration::from_millis(200));
    /// tokio::spawn(async move {
    ///     while let Some(run) = progress.next().await {
    ///         println!("{} of {}: {}, {} files listed", run.operation, run.table, run.stage.as_str(), run.files_listed);
    ///     }
    /// });
    /// # }
    /// ```
    pub fn progress(&self, every: Duration) -> impl Stream<Item = Progress> + Send + Unpin + 'static + use<> {
        self.inner.watchers.watch(every)
    }

    /// Passes a notice on to whom the embedder named.
    pub(crate) fn notify(&self, text: &str) {
        if let Some(notify) = &self.inner.notices.0 {
            shielded("a notice", || notify(text));
        }
    }

    /// Passes a report on to whom the embedder named.
    pub(crate) fn tell(&self, report: &Report) {
        if let Some(tell) = &self.inner.reports.0 {
            shielded("a report", || tell(report));
        }
    }

    pub(crate) fn resolve(&self, table: &str) -> Result<TableHandle> {
        self.inner.catalogs.resolve(table, &self.defaults())
    }

    /// Finds what `catalog[.namespace]` means.
    pub(crate) fn scope(&self, within: &str) -> Result<CatalogScope> {
        self.inner.catalogs.scope(within)
    }

    /// The session's default catalog and schema.
    fn defaults(&self) -> Defaults {
        let Some(state) = self.inner.session.upgrade() else { return Defaults::default() };
        let state = state.read();
        let options = &state.config_options().catalog;
        Defaults { catalog: options.default_catalog.clone(), schema: options.default_schema.clone() }
    }

    /// The session that this handle was registered in.
    pub(crate) fn session(&self) -> Result<SessionContext> {
        let state = self.inner.session.upgrade().ok_or_else(|| Error::NotAllowed {
            message: "the session that maintenance was registered in is gone".into(),
        })?;
        let state = state.read().clone();
        Ok(SessionContext::new_with_state(state))
    }

    /// Begins to count a run of an operation, and tells who looks on.
    pub(crate) fn begin_run(&self, operation: String) -> BegunRun {
        self.inner.watchers.begin(operation)
    }

    /// Begins a run of an operation in this handle's session.
    fn begin(&self, operation: &str) -> Result<(BegunRun, RunContext)> {
        let session = self.session()?;
        let run = self.begin_run(operation.into());
        let task = Arc::new(run.work.count_in(&session.task_ctx()));
        Ok((run, RunContext { maintenance: self.clone(), task, cancellation: Cancellation::default() }))
    }

    /// The same for an operation that goes on with a table that was loaded before.
    fn begin_on(&self, operation: &str, table: &LoadedTable) -> Result<(BegunRun, RunContext)> {
        let (run, context) = self.begin(operation)?;
        run.work.begin_table(&table.name);
        Ok((run, context))
    }
}
