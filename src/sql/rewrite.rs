//! Statements as queries, for hosts that can't pass statements to us.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::GenericDialect;

use super::arguments::{Parameters, check_mixing};
use super::constant::{self, Constant, Written};
use super::relation_planner::call_text;
use super::statement::{Call, Form, NamedExpr, Statement, parse, text_literal};
use super::value;
use crate::error::{Error, Result};
use crate::procedure;
use crate::time::SessionZone;

/// Turns a maintenance statement into the query that does the same, and leaves all other SQL alone.
///
/// `CALL system.expire_snapshots('db.t', retain_last => 5)` becomes `SELECT * FROM expire_snapshots('db.t', retain_last => 5)`,
/// with `EXPLAIN` kept in front. Hosts that only have [`SessionContext::sql`](datafusion::prelude::SessionContext::sql), such
/// as Python or a Flight SQL server, can pass the result there. `None` means that the statement is not ours.
///
/// A query needs no session to be written, so that session options can't be asked: a positional timestamp of
/// `ALTER TABLE … EXECUTE expire_snapshots('…')` always means `expire_before`. When it runs, the query obeys
/// `iceberg_maintenance.table_functions` like every table function.
///
/// # Errors
/// [`Error::Statement`] and [`Error::Argument`] when the statement is ours but wrong, and for `VACUUM t`, which no single
/// query can express.
pub fn rewrite(sql: &str) -> Result<Option<String>> {
    let Some(Statement { explain, calls }) = parse(sql, &GenericDialect)? else { return Ok(None) };
    let [call] = calls.as_slice() else {
        return Err(Error::Statement {
            message:
                "VACUUM runs two procedures, which one query can't; run expire_snapshots and then remove_orphan_files"
                    .into(),
        });
    };
    let mut query = String::new();
    if let Some(explain) = explain {
        query.push_str("EXPLAIN ");
        query.push_str(if explain.analyze { "ANALYZE " } else { "" });
        query.push_str(if explain.verbose { "VERBOSE " } else { "" });
        if let Some(format) = explain.format {
            query.push_str(&format!("FORMAT {format} "));
        }
    }
    query.push_str("SELECT * FROM ");
    if let Some(catalog) = &call.catalog {
        query.push_str(&format!("{catalog}.system."));
    }
    query.push_str(&call_text(call.procedure, &function_arguments(call)?));
    Ok(Some(query))
}

/// The arguments as the table function takes them.
fn function_arguments(call: &Call) -> Result<Vec<NamedExpr>> {
    let procedure = procedure::find(call.procedure)
        .ok_or_else(|| Error::Statement { message: format!("there is no procedure {}", call.procedure) })?;
    let parameters = Parameters::of(&procedure);
    check_mixing(call.procedure, call.form, call.arguments.iter().map(|(name, _)| name.as_deref()))?;
    let mut arguments: Vec<NamedExpr> = call.target.iter().map(|target| (None, text_literal(target))).collect();
    for (index, (name, expr)) in call.arguments.iter().enumerate() {
        let name = match name {
            None if call.form == Form::Execute => {
                let parameter = parameters.at(index, Form::Execute)?;
                let is_ids = parameter.name == "expire_before" && is_id_list(expr);
                Some(if is_ids { "snapshot_ids" } else { parameter.name }.to_string())
            }
            name => name.clone(),
        };
        arguments.push((name, names_as_text(expr)));
    }
    Ok(arguments)
}

fn is_id_list(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value.clone().into_string().is_some_and(|text| value::is_id_list(&text)))
}

/// Bare names as text, so that they mean the same in every dialect.
fn names_as_text(expr: &Expr) -> Expr {
    let is_name = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    match SessionZone::new(None).and_then(|zone| constant::read(expr.clone(), zone)) {
        Ok(Written::Constant(Constant::Name(name))) if is_name => text_literal(name),
        Ok(Written::Constant(Constant::Scalar(scalar))) if is_name => {
            value::text_of(&scalar).map_or_else(|| expr.clone(), text_literal)
        }
        _ => expr.clone(),
    }
}
