//! Procedures and metadata tables as table functions.
//!
//! Stock sessions pass positional arguments as they are. Our relation planner and our statements also know names, and a few
//! constants that must not be folded; both would be lost in DataFusion's argument list, so that they are passed in the
//! [`encode`]d form.

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{Expr, lit};

use std::sync::Arc;

use super::arguments::{Callee, Environment, Invocation, Parameters};
use super::constant::{self, Argument, Constant};
use super::provider::ProcedureTable;
use super::statement::Form;
use super::value;
use crate::error::Error;
use crate::maintenance::Maintenance;
use crate::metadata_tables::{Ask, MetadataTable, MetadataTableProvider, Request};
use crate::procedure::Procedure;

/// A procedure as a table function. It also tells a session's statements which procedures and which handle to use.
#[derive(Debug, Clone)]
pub(crate) struct ProcedureFunction {
    pub procedure: &'static dyn Procedure,
    pub maintenance: Maintenance,
}

impl TableFunctionImpl for ProcedureFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let invocation = invocation(self.procedure, &args)?;
        let table =
            ProcedureTable::try_new(self.maintenance.clone(), vec![invocation], args.session().config().options())?;
        Ok(Arc::new(table))
    }
}

/// A metadata table as a table function.
#[derive(Debug, Clone)]
pub(crate) struct MetadataFunction {
    pub table: MetadataTable,
    pub maintenance: Maintenance,
}

impl TableFunctionImpl for MetadataFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let call = MetadataCall { invocation: invocation(self.table, &args)?, maintenance: self.maintenance.clone() };
        let session = args.session();
        let table = MetadataTableProvider::plan(
            self.maintenance.clone(),
            Arc::new(call),
            session.config().options(),
            session.runtime_env(),
        )?;
        Ok(Arc::new(table))
    }
}

/// The call of a metadata table's function. Times that it gives relative to now are counted from each execution.
#[derive(Debug)]
struct MetadataCall {
    invocation: Invocation<MetadataTable>,
    maintenance: Maintenance,
}

impl Ask for MetadataCall {
    fn request(&self, config: &ConfigOptions) -> Result<Request, Error> {
        let env = Environment::new(self.maintenance.now_ms(), config)?;
        self.invocation.callee.bind(&self.invocation.arguments(&env)?)
    }
}

/// The call with its arguments as they came.
fn invocation<C: Callee>(callee: C, args: &TableFunctionArgs) -> Result<Invocation<C>> {
    let (catalog, encoded) = match args.exprs() {
        [marker, catalog, encoded @ ..] if *marker == lit(MARKER) => {
            (text(catalog).map(str::to_string), decode(encoded).collect::<Vec<_>>())
        }
        exprs => (None, exprs.iter().map(|expr| (None, None, expr)).collect()),
    };
    let parameters = Parameters::of(&callee);
    let argument = |(index, (name, kind, expr)): (usize, (Option<&str>, Option<&str>, &Expr))| {
        let value = match (kind, constant::from_folded(expr)) {
            (Some(TIMESTAMP), Ok(Constant::Scalar(scalar))) => scalar_text(&scalar).map(Constant::Timestamp),
            (Some(NAME), Ok(Constant::Scalar(scalar))) => scalar_text(&scalar).map(Constant::Name),
            (_, folded) => folded,
        };
        let value = value.map_err(|why| parameters.argument_error(name, index, Form::Function, &why))?;
        Ok(Argument { name: name.map(str::to_string), value })
    };
    let arguments = encoded.into_iter().enumerate().map(argument).collect::<Result<Vec<_>, Error>>()?;
    Ok(Invocation { callee, form: Form::Function, catalog, target: None, arguments })
}

/// The first argument of an encoded list. Nobody writes it by accident, and writing it on purpose gains nothing.
const MARKER: &str = "\u{1}iceberg_maintenance.arguments";
const TIMESTAMP: &str = "timestamp";
const NAME: &str = "name";

/// An argument on its way to the function: DataFusion folds the expression.
pub(crate) struct Encoded {
    pub name: Option<String>,
    pub value: EncodedValue,
}

pub(crate) enum EncodedValue {
    Constant(Constant),
    Expression(Expr),
}

/// Packs names and constants into an argument list.
pub(crate) fn encode(catalog: Option<String>, arguments: Vec<Encoded>) -> Vec<Expr> {
    let mut exprs = vec![lit(MARKER), lit(ScalarValue::Utf8(catalog))];
    for Encoded { name, value } in arguments {
        let (kind, expr) = match value {
            EncodedValue::Expression(expr) => (None, expr),
            EncodedValue::Constant(Constant::Scalar(scalar)) => (None, lit(scalar)),
            EncodedValue::Constant(Constant::Timestamp(text)) => (Some(TIMESTAMP), lit(text)),
            EncodedValue::Constant(Constant::Name(text) | Constant::Option(text)) => (Some(NAME), lit(text)),
        };
        exprs.extend([lit(ScalarValue::Utf8(name)), lit(ScalarValue::Utf8(kind.map(str::to_string))), expr]);
    }
    exprs
}

fn decode(exprs: &[Expr]) -> impl Iterator<Item = (Option<&str>, Option<&str>, &Expr)> {
    exprs.chunks_exact(3).map(|argument| (text(&argument[0]), text(&argument[1]), &argument[2]))
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(scalar, _) => value::text_of(scalar),
        _ => None,
    }
}

fn scalar_text(scalar: &ScalarValue) -> Result<String, String> {
    value::text_of(scalar).map(str::to_string).ok_or_else(|| format!("{scalar} is no text"))
}
