//! `iceberg_orphan_files`: the files that a removal of orphans would deal with, with the reason for each.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;

use super::some_of;
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::procedure::remove_orphan_files::{self, RemoveOrphanFiles};
use crate::procedure::{Arguments, BoundCall, CallOutcome, Parameter, Procedure};
use crate::report::{Operation, Output};

/// The columns, by their places in `output => 'files'`: path, size, time, kind, reason and status.
const COLUMNS: [usize; 6] = [0, 2, 3, 1, 5, 6];

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct OrphanFilesProcedure;

#[derive(Debug, Clone)]
struct OrphanFilesCall {
    table: String,
    options: RemoveOrphanFiles,
    described: String,
}

static PARAMETERS: LazyLock<Vec<Parameter>> = LazyLock::new(|| {
    const NAMES: [&str; 13] = [
        "table",
        "older_than",
        "location",
        "file_list_view",
        "max_file_list_age",
        "equal_schemes",
        "equal_authorities",
        "prefix_mismatch_mode",
        "retention_threshold",
        "ignore_floor",
        "allow_missing_files",
        "exclusive_location",
        "include_foreign",
    ];
    some_of(remove_orphan_files::PARAMETERS, &NAMES, &[])
});

impl Procedure for OrphanFilesProcedure {
    fn name(&self) -> &'static str {
        "iceberg_orphan_files"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn bind(&self, arguments: Arguments, options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let options = remove_orphan_files::options_of(&arguments, options)?;
        // Nothing goes: whether the files are to wait is no question here, and whose they are may be looked at by anybody.
        let options = RemoveOrphanFiles { deferred_ms: Some(0), no_catalog: true, ..options };
        Ok(Arc::new(OrphanFilesCall { table: arguments.table()?, options, described: arguments.describe() }))
    }
}

#[async_trait]
impl BoundCall for OrphanFilesCall {
    fn schema(&self) -> SchemaRef {
        let files = Output::Files.schema(Operation::RemoveOrphanFiles);
        Arc::new(Schema::new(COLUMNS.map(|column| files.field(column).clone()).to_vec()))
    }

    fn dry_run(&self) -> bool {
        true
    }

    fn as_dry_run(&self) -> Arc<dyn BoundCall> {
        Arc::new(self.clone())
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    async fn run(&self, context: RunContext) -> Result<CallOutcome> {
        let handle = context.resolve(&self.table)?;
        let plan = remove_orphan_files::plan(handle, &self.options, None, &context).await?;
        let mut report = plan.report();
        report.files = plan.files().to_vec();
        let batches = report.to_batches(Output::Files)?;
        let batches =
            batches.iter().map(|batch| batch.project(&COLUMNS)).collect::<std::result::Result<_, ArrowError>>()?;
        Ok(CallOutcome { batches, notices: report.notices, metrics: None, incomplete: None })
    }
}
