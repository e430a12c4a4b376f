//! Arguments as constants: what is written in SQL, folded, before anybody asks which type it should have.
//!
//! Folding is DataFusion's, with three exceptions that are handled on the syntax tree before it. `TIMESTAMP '…'` and its
//! casts go through our strict reader, because DataFusion drops offsets when it folds them. `array(…)` and `map(k, v, …)` are
//! Spark's spellings. And a bare name is a name: there are no columns here that it could mean.

use std::ops::ControlFlow;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::Expr as LogicalExpr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;
use datafusion::sql::sqlparser::ast::{
    Array, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Map, MapEntry,
    TypedString, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::names;
use crate::time::{self, SessionZone, Why};

/// An argument's value, not yet of the parameter's type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constant {
    /// A value of a type that SQL gave it.
    Scalar(ScalarValue),
    /// The text of `TIMESTAMP '…'` or `DATE '…'`.
    Timestamp(String),
    /// A bare name, as text.
    Name(String),
    /// Text from a string or map of options, where everything is text.
    Option(String),
}

/// An argument as it was given: with its name, or by position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    pub name: Option<String>,
    pub value: Constant,
}

/// An argument's expression after the part that needs the syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Written {
    Constant(Constant),
    /// To be folded by DataFusion.
    Expression(Box<Expr>),
}

/// Takes from an expression what DataFusion would get wrong.
///
/// # Errors
/// When a timestamp inside the expression is not one.
pub(crate) fn read(expr: Expr, zone: SessionZone) -> Result<Written, Why> {
    let constant = match expr {
        Expr::Nested(inner) => return read(*inner, zone),
        Expr::Identifier(name) => bare_name(std::slice::from_ref(&name)),
        Expr::CompoundIdentifier(path) => bare_name(&path),
        expr => match time_literal(&expr) {
            Some((text, _)) => Constant::Timestamp(text.to_string()),
            None => return prepare(expr, zone).map(|expr| Written::Expression(Box::new(expr))),
        },
    };
    Ok(Written::Constant(constant))
}

/// A single quoted identifier is text: that is how some dialects quote their strings.
fn bare_name(path: &[Ident]) -> Constant {
    match path {
        [single] if single.quote_style.is_some() => Constant::Scalar(ScalarValue::from(single.value.as_str())),
        path => Constant::Name(names::table_text(path)),
    }
}

/// Text and type of `TIMESTAMP '…'`, `DATE '…'`, `'…'::TIMESTAMP` and `CAST('…' AS TIMESTAMP)`.
fn time_literal(expr: &Expr) -> Option<(&str, &DataType)> {
    let (value, data_type) = match expr {
        Expr::TypedString(TypedString { data_type, value, .. }) => (&value.value, data_type),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => match expr.as_ref() {
            Expr::Value(value) => (&value.value, data_type),
            _ => return None,
        },
        _ => return None,
    };
    let is_time = matches!(data_type, DataType::Timestamp(..) | DataType::Datetime(_) | DataType::Date);
    match value {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) if is_time => Some((text, data_type)),
        _ => None,
    }
}

/// Rewrites what lies inside an expression: timestamps to exact instants, Spark's constructors to DataFusion's.
fn prepare(mut expr: Expr, zone: SessionZone) -> Result<Expr, Why> {
    match VisitMut::visit(&mut expr, &mut Preparation { zone }) {
        ControlFlow::Break(why) => Err(why),
        ControlFlow::Continue(()) => Ok(expr),
    }
}

struct Preparation {
    zone: SessionZone,
}

impl VisitorMut for Preparation {
    type Break = Why;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Why> {
        if let Some((text, DataType::Timestamp(..) | DataType::Datetime(_))) = time_literal(expr) {
            match time::parse_timestamp(text, self.zone).and_then(|ms| instant_expression(ms, self.zone)) {
                Ok(instant) => *expr = instant,
                Err(why) => return ControlFlow::Break(why),
            }
        } else if let Expr::Function(function) = expr
            && let Some(replacement) = spark_constructor(function)
        {
            *expr = replacement;
        }
        ControlFlow::Continue(())
    }
}

/// An expression of an instant that can't be mistaken for another, in the zone in which `date_trunc` and days are meant.
fn instant_expression(ms: i64, zone: SessionZone) -> Result<Expr, Why> {
    let instant = DateTime::<Utc>::from_timestamp_millis(ms).ok_or("the timestamp is out of range")?;
    let text = instant.to_rfc3339_opts(SecondsFormat::Millis, true);
    let sql = format!("arrow_cast('{text}', 'Timestamp(Millisecond, Some(\"{zone}\"))')");
    let parsed = Parser::new(&GenericDialect).try_with_sql(&sql).and_then(|mut parser| parser.parse_expr());
    parsed.map_err(|error| error.to_string())
}

/// Spark's `array(a, …)` and `map(k, v, …)`.
fn spark_constructor(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let name = function.name.0.last()?.as_ident()?;
    let values: Option<Vec<&Expr>> = list.args.iter().map(unnamed).collect();
    let values = values.filter(|_| function.name.0.len() == 1)?;
    if name.value.eq_ignore_ascii_case("array") {
        return Some(Expr::Array(Array { elem: values.into_iter().cloned().collect(), named: true }));
    }
    let is_map = name.value.eq_ignore_ascii_case("map")
        && values.len() % 2 == 0
        && !values.is_empty()
        && !values.iter().any(|value| matches!(value, Expr::Array(_)));
    let entry = |pair: &[&Expr]| MapEntry { key: Box::new(pair[0].clone()), value: Box::new(pair[1].clone()) };
    is_map.then(|| Expr::Map(Map { entries: values.chunks_exact(2).map(entry).collect() }))
}

fn unnamed(argument: &FunctionArg) -> Option<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// The constant that a folded expression is.
///
/// # Errors
/// When it is none: its value would depend on rows, on parameters or on chance.
pub(crate) fn from_folded(expr: &LogicalExpr) -> Result<Constant, Why> {
    match expr {
        LogicalExpr::Literal(value, _) => Ok(Constant::Scalar(value.clone())),
        LogicalExpr::Alias(alias) => from_folded(&alias.expr),
        // A session without our relation planner makes a column of a bare name.
        LogicalExpr::Column(column) => Ok(Constant::Name(column.flat_name())),
        other => Err(evaluation_error(other).unwrap_or_else(|| format!(
            "{other} is not a constant; literals and expressions such as now() - INTERVAL '7 days' are accepted, but not \
             columns, subqueries, placeholders or functions like random()"
        ))),
    }
}

/// Why a constant expression has no value, in DataFusion's words: its simplifier leaves such an expression as it is.
fn evaluation_error(expr: &LogicalExpr) -> Option<Why> {
    let varies = expr.exists(|part| {
        Ok(part.is_volatile_node()
            || matches!(
                part,
                LogicalExpr::Column(_)
                    | LogicalExpr::OuterReferenceColumn(..)
                    | LogicalExpr::Placeholder(_)
                    | LogicalExpr::ScalarSubquery(_)
                    | LogicalExpr::InSubquery(_)
                    | LogicalExpr::Exists(_)
                    | LogicalExpr::AggregateFunction(_)
                    | LogicalExpr::WindowFunction(_)
            ))
    });
    if varies.unwrap_or(true) {
        return None;
    }
    let no_columns = RecordBatchOptions::new().with_row_count(Some(1));
    let one_row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &no_columns).ok()?;
    let value =
        create_physical_expr(expr, &DFSchema::empty(), &ExecutionProps::new(), &PhysicalPlanningContext::default());
    let error = value.and_then(|expr| expr.evaluate(&one_row)).err()?;
    Some(format!("{expr} has no value: {}", error.strip_backtrace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(sql: &str) -> Result<Written, Why> {
        let expr = Parser::new(&GenericDialect).try_with_sql(sql).unwrap().parse_expr().unwrap();
        read(expr, SessionZone::new(Some("Europe/Berlin")).unwrap())
    }

    fn read_to_sql(sql: &str) -> String {
        match read_text(sql).unwrap() {
            Written::Expression(expr) => expr.to_string(),
            Written::Constant(constant) => format!("{constant:?}"),
        }
    }

    #[test]
    fn timestamp_literals_keep_their_text() {
        for sql in [
            "TIMESTAMP '2024-01-01 00:00:00 UTC'",
            "(TIMESTAMP '2024-01-01 00:00:00 UTC')",
            "'2024-01-01 00:00:00 UTC'::TIMESTAMP",
            "CAST('2024-01-01 00:00:00 UTC' AS TIMESTAMP)",
            "TIMESTAMP WITH TIME ZONE '2024-01-01 00:00:00 UTC'",
        ] {
            let expected = Written::Constant(Constant::Timestamp("2024-01-01 00:00:00 UTC".into()));
            assert_eq!(read_text(sql), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn a_timestamp_inside_an_expression_becomes_an_exact_instant() {
        assert_eq!(
            read_to_sql("TIMESTAMP '2024-07-01 00:00:00' - INTERVAL '1 day'"),
            "arrow_cast('2024-06-30T22:00:00.000Z', 'Timestamp(Millisecond, Some(\"Europe/Berlin\"))') - INTERVAL '1 day'"
        );
        assert!(
            read_text("TIMESTAMP 'garbage' - INTERVAL '1 day'").unwrap_err().contains("'garbage' is not a timestamp")
        );
    }

    #[test]
    fn names_and_quoted_texts_are_told_apart() {
        assert_eq!(read_text("db.t"), Ok(Written::Constant(Constant::Name("db.t".into()))));
        assert_eq!(read_text("t"), Ok(Written::Constant(Constant::Name("t".into()))));
        assert_eq!(read_text("`db`.`t`"), Ok(Written::Constant(Constant::Name("\"db\".\"t\"".into()))));
        assert_eq!(read_text("\"db.t\""), Ok(Written::Constant(Constant::Scalar("db.t".into()))));
    }

    #[test]
    fn sparks_constructors_are_understood() {
        assert_eq!(read_to_sql("array(1, 2)"), "ARRAY[1, 2]");
        assert_eq!(read_to_sql("map('a', 'b', 'c', 'd')"), "MAP {'a': 'b', 'c': 'd'}");
        assert_eq!(read_to_sql("map(array('a'), array('b'))"), "map(ARRAY['a'], ARRAY['b'])");
    }
}
