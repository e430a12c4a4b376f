//! `explain_file`: why a file of a table is kept, or what would remove it. Reads, never writes.
//!
//! Everything that names the file is looked for first: the metadata itself, then the manifest lists and manifests of all
//! snapshots. Whether a file that nothing names is an orphan is not decided here: the plan of a dry run of
//! `remove_orphan_files` says so, and the answers only tell why.

mod journal;
mod naming;
mod place;
mod verdict;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::Serialize;

use naming::Naming;
use place::Place;
pub use verdict::FileVerdict;

use super::{Arguments, BoundCall, CallOutcome, Parameter, ParameterKind, Procedure, parameter};
use crate::catalog::TableHandle;
use crate::error::Result;
use crate::maintenance::RunContext;
use crate::options::MaintenanceOptions;
use crate::reachability::{FileIdentity, OneFile};
use crate::storage::Stores;
use crate::table::PathRules;

/// What is known of one file.
#[derive(Debug, Clone, Serialize)]
pub struct FileExplanation {
    location: String,
    verdict: FileVerdict,
    answers: Vec<Answer>,
    notices: Vec<String>,
}

/// The answer to one question about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// What was asked, in one word.
    pub question: &'static str,
    /// The answer, in few words.
    pub answer: String,
    /// The rest.
    pub detail: Option<String>,
}

impl Answer {
    fn new(question: &'static str, answer: impl Into<String>, detail: Option<String>) -> Self {
        Self { question, answer: answer.into(), detail }
    }
}

impl FileExplanation {
    /// The file's location, as the table's own listing would show it.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// What becomes of the file.
    pub fn verdict(&self) -> &FileVerdict {
        &self.verdict
    }

    /// The answers, always to the same questions in the same order; the verdict is the last.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    fn to_batch(&self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(self.answers.iter().map(|answer| answer.question))),
            Arc::new(StringArray::from_iter_values(self.answers.iter().map(|answer| &answer.answer))),
            Arc::new(self.answers.iter().map(|answer| answer.detail.as_deref()).collect::<StringArray>()),
        ];
        Ok(RecordBatch::try_new(schema(), columns)?)
    }
}

/// Says why a file is kept, or what would remove it.
///
/// # Errors
/// When the metadata can't be read, and every failure on the way to a file.
pub(crate) async fn explain(handle: TableHandle, path: &str, context: &RunContext) -> Result<FileExplanation> {
    let table = handle.load(&context.task.runtime_env()).await?;
    let context = &context.for_table(&table);
    let metadata = &table.metadata;
    let rules = PathRules::new(metadata.location());
    let stores = Stores::new(context.task.runtime_env());
    let local = stores.store(metadata.location())?.as_local().cloned();

    let place = Place::find(path, metadata, &rules, &stores).await?;
    let mut file = OneFile::new(FileIdentity::new(rules.clone(), local.clone()), &place.location)?;
    let naming = Naming::find(&mut file, metadata, &rules, &context.task).await?;
    let surroundings = place.surroundings(metadata, &rules, &naming, local.as_ref(), context)?;
    let verdict = match verdict::of_needed(&naming, metadata, &surroundings) {
        Some(verdict) => verdict,
        None => verdict::of_unneeded(handle, &place, &surroundings, &mut file, context).await?,
    };

    let mut answers = place.answers();
    answers.extend(naming.answers(metadata));
    answers.extend(surroundings.answers());
    answers.push(Answer::new("verdict", verdict.to_string(), None));
    Ok(FileExplanation { location: place.location, verdict, answers, notices: table.notices.clone() })
}

/// The procedure as SQL sees it.
#[derive(Debug)]
pub(crate) struct ExplainFileProcedure;

#[derive(Debug, Clone)]
struct ExplainFileCall {
    table: String,
    path: String,
    described: String,
}

impl Procedure for ExplainFileProcedure {
    fn name(&self) -> &'static str {
        "explain_file"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, arguments: Arguments, _options: &MaintenanceOptions) -> Result<Arc<dyn BoundCall>> {
        let path = arguments.text("path").filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| arguments.error("argument path is missing: name the file"))?;
        Ok(Arc::new(ExplainFileCall { table: arguments.table()?, path, described: arguments.describe() }))
    }
}

#[async_trait]
impl BoundCall for ExplainFileCall {
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
        let explanation = explain(handle, &self.path, &context).await?;
        let batches = vec![explanation.to_batch()?];
        Ok(CallOutcome { batches, notices: explanation.notices, metrics: None, incomplete: None })
    }
}

fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("question", DataType::Utf8, false),
            Field::new("answer", DataType::Utf8, false),
            Field::new("detail", DataType::Utf8, true),
        ]))
    });
    Arc::clone(&SCHEMA)
}

const PARAMETERS: &[Parameter] = &[
    Parameter {
        aliases: &["table_name"],
        ..parameter("table", ParameterKind::Table, Some(0), "the table: a registered name or a location")
    },
    Parameter {
        aliases: &["file_path", "file"],
        execute_position: Some(0),
        ..parameter("path", ParameterKind::Text, Some(1), "the file: a location, or a path relative to the table's")
    },
];
