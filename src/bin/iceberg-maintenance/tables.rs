//! `tables`: what the catalogs hold.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::error::DataFusionError;

use crate::arguments::TablesArguments;
use crate::failure::Failure;
use crate::session::Session;

/// Prints the names of the tables, one a row.
pub(crate) fn run(session: &Session, arguments: &TablesArguments) -> Result<(), Failure> {
    let mut names = vec![];
    if arguments.within.is_empty() {
        names = session.tables(None)?;
    }
    for within in &arguments.within {
        names.extend(session.tables(Some(within))?);
    }
    let column: ArrayRef = Arc::new(StringArray::from(names));
    let rows = RecordBatch::try_from_iter([("table", column)]).map_err(DataFusionError::from)?;
    session.print(&[rows])
}
