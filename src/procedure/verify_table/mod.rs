//! `verify_table`: whether every file that a table needs is there and what it should be. Reads, never writes.
//!
//! The table's folders are listed once; what the metadata names is looked up in the listing, so that no file is asked for by
//! itself unless the listing didn't show it. Every manifest is read once, whatever number of snapshots list it.

mod check;
mod findings;
mod listed_files;
mod live_entries;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

pub use findings::{Finding, Problem, Severity, Verification};

use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::catalog::TableHandle;
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;

/// How often a table that changes while it is looked at is looked at again before its faults are believed.
const ATTEMPTS: usize = 3;

/// Checks everything that any snapshot of the newest metadata needs.
///
/// A commit may delete files while they are looked for. So faults of a table that changed meanwhile count for nothing: the
/// newest metadata is checked instead.
///
/// # Errors
/// When the metadata can't be read, and every failure on the way to a file: a time-out says nothing of the table's health.
pub(crate) async fn verify(handle: TableHandle, context: &RunContext) -> Result<Verification> {
    let runtime = context.task.runtime_env();
    let mut attempt = 1;
    loop {
        let table = handle.load(&runtime).await?;
        let mut verification = check::check(&table, &context.for_table(&table)).await?;
        if verification.is_healthy() || handle.is_current(&table, &runtime).await? {
            return Ok(verification);
        }
        if attempt == ATTEMPTS {
            let notice =
                format!("{} changed whenever it was looked at; what is missing may just be expired", table.name);
            verification.notices.push(notice);
            return Ok(verification);
        }
        tracing::info!(table = table.name, attempt, "the table changed while it was verified; looking again");
        attempt += 1;
    }
}

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct VerifyTableProcedure;

#[derive(Debug, Clone)]
struct VerifyTableCall {
    table: String,
    described: String,
}

impl Procedure for VerifyTableProcedure {
    fn name(&self) -> &'static str {
        "verify_table"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        Ok(Arc::new(VerifyTableCall { table: arguments.table()?, described: arguments.describe() }))
    }
}

#[async_trait]
impl BoundCall for VerifyTableCall {
    fn schema(&self) -> SchemaRef {
        schema()
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
        let verification = verify(handle, &context).await?;
        let batches = vec![verification.to_batch()?];
        Ok(CallOutcome { batches, notices: verification.notices, metrics: None, incomplete: None })
    }
}

fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("severity", DataType::Utf8, false),
            Field::new("problem", DataType::Utf8, false),
            Field::new("file_path", DataType::Utf8, true),
            Field::new("content", DataType::Utf8, true),
            Field::new("snapshot_id", DataType::Int64, true),
            Field::new("detail", DataType::Utf8, false),
        ]))
    });
    Arc::clone(&SCHEMA)
}

const PARAMETERS: &[Parameter] = &[Parameter {
    aliases: &["table_name"],
    ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
}];
