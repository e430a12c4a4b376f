//! Texts of statements, whatever dialect they are taken for.

use std::sync::LazyLock;

use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::{GenericDialect, dialect_from_str};
use datafusion::sql::sqlparser::parser::Parser;

/// A session in which nothing is ever run.
static SESSION: LazyLock<Option<SessionState>> = LazyLock::new(|| {
    let session = SessionContext::new();
    crate::register(&session).ok().map(|_| session.state())
});

const DIALECTS: [&str; 8] =
    ["generic", "postgresql", "mysql", "hive", "snowflake", "databricks", "bigquery", "clickhouse"];

/// The text of a statement: parsed in several dialects, its arguments bound, and rewritten to a query.
///
/// # Panics
/// When a statement is rewritten to more than one query, or to something else than a query.
pub fn sql(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for dialect in DIALECTS {
        let Some(dialect) = dialect_from_str(dialect) else { continue };
        if let (Ok(Some(statement)), Some(session)) = (crate::sql::parse(text, dialect.as_ref()), &*SESSION) {
            // Planning touches nothing: whatever comes out was only bound.
            let _ = crate::sql::plan(session, statement);
        }
    }
    let Ok(Some(query)) = crate::rewrite(text) else { return };
    assert!(matches!(crate::rewrite(&query), Ok(None)), "a query is taken for a statement: {query}");
    if let Ok(statements) = Parser::parse_sql(&GenericDialect, &query) {
        let is_query = |statement: &Statement| match statement {
            Statement::Explain { statement, .. } => matches!(**statement, Statement::Query(_)),
            statement => matches!(statement, Statement::Query(_)),
        };
        assert!(matches!(&statements[..], [only] if is_query(only)), "{text:?} was rewritten to {query:?}");
    }
}
