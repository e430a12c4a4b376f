//! Which tables there are, and in which order they are maintained. Reads each one's metadata file once, and nothing else.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use futures::StreamExt;

use super::MaintainCatalogCall;
use super::gain::Gain;
use super::rows::{Status, TableRow};
use crate::catalog::{
    CONCURRENT_LOADS, CatalogScope, LoadedTable, Look, Ownership, Survey, TableHandle, TableName, full_name,
};
use crate::error::{Error, Result};
use crate::retention::RetentionPolicy;

/// The tables of a catalog in the order of their turn.
#[derive(Debug)]
pub(super) struct CatalogPlan {
    pub tables: Vec<PlannedTable>,
    /// What is settled already: tables that can't be loaded, namespaces that can't be listed.
    pub rows: Vec<TableRow>,
    pub survey: Arc<Survey>,
    pub notices: Vec<String>,
}

/// A table that is to be maintained.
#[derive(Debug)]
pub(super) struct PlannedTable {
    /// Its row as far as it is known.
    pub row: TableRow,
    pub handle: TableHandle,
    /// Why it is passed over.
    pub skip: Option<String>,
}

impl CatalogPlan {
    /// Lists the catalog, chooses tables, looks at each, and sorts them by what they promise.
    ///
    /// # Errors
    /// When the catalog can't be listed, and when an argument names a table that is not there.
    pub(super) async fn make(
        call: &MaintainCatalogCall,
        scope: &CatalogScope,
        task: &Arc<TaskContext>,
    ) -> Result<Self> {
        let runtime = task.runtime_env();
        let (survey, listed) = Survey::begin(scope.clone(), &runtime).await?;
        let names: Vec<&TableName> = listed.names().collect();
        refuse_empty_namespace(scope, names.is_empty() && listed.unlisted.is_empty())?;
        let notices = call.selection.check("maintain_catalog", &scope.name, &names)?;
        let selected = names.into_iter().filter(|name| call.selection.selects(&scope.name, name));
        let loads = selected.map(|name| async {
            let loaded = scope.catalog.load(name, &runtime).await;
            survey.note(name, Look::of(name, &loaded)).await;
            // The metadata itself is not kept: there may be many tables, and each run loads it again.
            call.planned(&scope.name, name, loaded, &survey)
        });
        let looks = futures::stream::iter(loads.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_LOADS);
        let looks: Vec<std::result::Result<PlannedTable, Box<TableRow>>> = looks.collect().await;
        let (tables, settled): (Vec<_>, Vec<_>) = looks.into_iter().partition(|look| look.is_ok());
        let mut tables: Vec<PlannedTable> = tables.into_iter().flatten().collect();
        tables.sort_by_cached_key(|table| (table.row.gain.unwrap_or_default().order(), table.row.table.clone()));
        let mut rows: Vec<TableRow> = settled.into_iter().filter_map(|look| look.err().map(|row| *row)).collect();
        rows.sort_by_cached_key(|row| row.table.clone());
        rows.extend(call.unlisted(&scope.name, &listed.unlisted));
        Ok(Self { tables, rows, survey, notices })
    }
}

impl MaintainCatalogCall {
    fn planned(
        &self,
        catalog: &str,
        name: &TableName,
        loaded: Result<LoadedTable>,
        survey: &Arc<Survey>,
    ) -> std::result::Result<PlannedTable, Box<TableRow>> {
        let table = full_name(catalog, name);
        let loaded = loaded.map_err(|error| {
            let (status, why) = match error {
                Error::TableNotFound { .. } => (Status::Skipped, format!("dropped since it was listed: {error}")),
                error => (Status::Failed, error.to_string()),
            };
            Box::new(TableRow::new(table.clone(), status).because(why))
        })?;
        let policy = RetentionPolicy { older_than_ms: self.options.older_than_ms, ..Default::default() };
        let mut row = TableRow::new(table, Status::NotReached);
        row.gain = Some(Gain::of(&loaded.metadata, &policy, self.now_ms));
        row.metadata_location = Some(loaded.metadata.metadata_location().to_string());
        Ok(PlannedTable { row, handle: survey.handle(name), skip: reason_to_skip(&loaded) })
    }

    /// The namespaces that could not be listed, and may hold a table that is meant.
    fn unlisted(&self, catalog: &str, unlisted: &[(Vec<String>, String)]) -> impl Iterator<Item = TableRow> {
        let may_matter = |namespace: &[String]| self.selection.may_select_in(catalog, &namespace.join("."));
        let rows = unlisted.iter().filter(move |(namespace, _)| may_matter(namespace)).map(|(namespace, why)| {
            let name = TableName { namespace: namespace.clone(), name: "*".into() };
            TableRow::new(format!("{catalog}.{name}"), Status::Failed)
                .because(format!("the namespace can't be listed: {why}"))
        });
        rows.collect::<Vec<_>>().into_iter()
    }
}

/// Refuses a namespace without tables: it is not there, or mistyped, and a call that never does anything must not look like success.
fn refuse_empty_namespace(scope: &CatalogScope, is_empty: bool) -> Result<()> {
    if !is_empty || scope.namespace.is_empty() {
        return Ok(());
    }
    let namespace = scope.namespace.join(".");
    let message = format!(
        "argument catalog: there is no table in the namespace {namespace} of {}, nor below it. Name a catalog or a namespace, not a \
         table",
        scope.name
    );
    Err(Error::argument("maintain_catalog", message))
}

/// Why a table's own run would be refused, as far as its metadata tells.
fn reason_to_skip(table: &LoadedTable) -> Option<String> {
    let properties = table.metadata.properties();
    if let Some(value) = properties.gc_disabled() {
        return Some(format!("gc.enabled = '{value}': deleting files may corrupt other tables"));
    }
    (table.ownership == Ownership::UnknownCatalog).then(|| {
        format!(
            "its newest metadata is {}, a name that catalogs give: name the table in its catalog, or maintain it alone with \
             no_catalog => true if no catalog owns it",
            table.metadata.metadata_location()
        )
    })
}
