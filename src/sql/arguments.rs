//! From arguments as they were given to the typed [`Arguments`] of a procedure.
//!
//! Names match in any case and by alias, positions depend on the form of the call. Whatever is unknown, repeated, missing, of
//! the wrong type or out of range is an error that names the argument and lists all that the procedure takes.

use datafusion::common::ScalarValue;
use datafusion::config::ConfigOptions;

use super::constant::{Argument, Constant};
use super::statement::Form;
use super::{names, value};
use crate::error::{Error, Result};
use crate::metadata_tables::MetadataTable;
use crate::options::MaintenanceOptions;
use crate::procedure::{Arguments, Parameter, ParameterKind, Procedure, Value};
use crate::time::{SessionZone, Why};

/// Presto's name for the schema, which goes in front of `table_name`.
const SCHEMA: &str = "schema";

/// The first parameter of procedures that work on all tables of a catalog.
const CATALOG: &str = "catalog";

/// What the meaning of arguments depends on besides themselves.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    /// The call's now, ms since the epoch.
    pub now_ms: i64,
    pub zone: SessionZone,
    pub default_schema: String,
    pub options: MaintenanceOptions,
}

impl Environment {
    pub(crate) fn new(now_ms: i64, config: &ConfigOptions) -> Result<Self> {
        let zone =
            SessionZone::new(config.execution.time_zone.as_deref()).map_err(|message| Error::Statement { message })?;
        let options = config.extensions.get::<MaintenanceOptions>().cloned().unwrap_or_default();
        options.check()?;
        Ok(Self { now_ms, zone, default_schema: config.catalog.default_schema.clone(), options })
    }
}

/// What is called: arguments are read by its parameters.
pub(crate) trait Callee {
    /// The canonical name, lower case.
    fn name(&self) -> &'static str;

    /// The parameters; `table` is always the first.
    fn parameters(&self) -> &'static [Parameter];
}

impl Callee for &'static dyn Procedure {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn parameters(&self) -> &'static [Parameter] {
        (**self).parameters()
    }
}

impl Callee for MetadataTable {
    fn name(&self) -> &'static str {
        self.function()
    }

    fn parameters(&self) -> &'static [Parameter] {
        (*self).parameters()
    }
}

/// A call with its arguments folded to constants: all that is known without a clock.
#[derive(Debug, Clone)]
pub(crate) struct Invocation<C = &'static dyn Procedure> {
    pub callee: C,
    pub form: Form,
    /// The catalog in front of `system`, quoted if it was.
    pub catalog: Option<String>,
    /// The table or catalog, when the statement names it outside the arguments.
    pub target: Option<String>,
    pub arguments: Vec<Argument>,
}

impl<C: Callee> Invocation<C> {
    /// The typed arguments.
    ///
    /// # Errors
    /// [`Error::Argument`], see the module's head.
    pub(crate) fn arguments(&self, env: &Environment) -> Result<Arguments> {
        let parameters = Parameters::of(&self.callee);
        let given = self.expand_options(&parameters)?;
        let names = given.iter().map(|argument| argument.name.as_deref());
        check_mixing(self.callee.name(), self.form, names)?;
        let mut schema = None;
        let mut arguments = Arguments { procedure: self.callee.name(), now_ms: env.now_ms, ..Default::default() };
        let mut seen: Vec<&str> = self.target.iter().map(|_| parameters.subject()).collect();
        for (index, argument) in given.iter().enumerate() {
            if parameters.is_schema(argument.name.as_deref()) {
                if schema.is_some() {
                    return Err(parameters.error("argument schema is given twice"));
                }
                schema = Some(parameters.convert(SCHEMA, ParameterKind::Text, &argument.value, env)?);
                continue;
            }
            let parameter = match &argument.name {
                Some(name) => parameters.named(name)?,
                None => self.positional(index, &argument.value, &parameters, env)?,
            };
            if seen.contains(&parameter.name) {
                return Err(parameters.repeated(parameter, self.target.is_some()));
            }
            seen.push(parameter.name);
            if let Some(value) = parameters.convert(parameter.name, parameter.kind, &argument.value, env)? {
                arguments.values.insert(parameter.name, value);
            }
        }
        if let Some(target) = &self.target {
            arguments.values.insert(parameters.subject(), Value::Text(target.clone()));
        }
        match parameters.subject() {
            CATALOG => self.complete_catalog(&mut arguments, &parameters)?,
            _ => self.complete_table(&mut arguments, schema.flatten(), &parameters, env)?,
        }
        Ok(arguments)
    }

    /// What the operator should know of the arguments: those without effect, and those that other systems read otherwise.
    pub(crate) fn notices(&self, arguments: &Arguments) -> Vec<String> {
        let without_effect = ["prefix_listing", "stream_results"].into_iter().filter(|name| arguments.is_given(name));
        let mut notices: Vec<String> = without_effect
            .map(|name| format!("argument {name} is accepted for Spark's scripts and has no effect"))
            .collect();
        let positional = self.form == Form::Execute && self.arguments.first().is_some_and(|first| first.name.is_none());
        if positional && arguments.is_given("expire_before") {
            notices.push(
                "the timestamp without a name was read as expire_before, which only protects newer snapshots; to expire by it \
                 write older_than => …, or SET iceberg_maintenance.positional_timestamp = 'older_than'"
                    .into(),
            );
        }
        if arguments.is_given("snapshot_ids") {
            notices.push("snapshot_ids expires exactly these snapshots, and none by age as Spark does".into());
        }
        notices
    }

    /// Puts the schema and the catalog in front of the table's name.
    fn complete_table(
        &self,
        arguments: &mut Arguments,
        schema: Option<Value>,
        parameters: &Parameters,
        env: &Environment,
    ) -> Result<()> {
        let Some(table) = arguments.text("table") else {
            return Err(parameters.error("argument table is missing: name the table or give its location"));
        };
        let table = match schema {
            Some(Value::Text(_)) if names::is_location(&table) => {
                return Err(parameters.error("argument schema can't be combined with a location; leave it out"));
            }
            Some(Value::Text(_)) if !names::is_single(&table) => {
                return Err(parameters.error(&format!("argument schema: the name {table} has a schema already")));
            }
            Some(Value::Text(schema)) => format!("{}.{table}", names::quoted(&schema)),
            _ => table,
        };
        let table = match &self.catalog {
            Some(catalog) => names::in_catalog(&table, catalog, &env.default_schema),
            None => table,
        };
        arguments.values.insert("table", Value::Text(table));
        Ok(())
    }

    /// Puts the catalog that a call names in front of `system` in front of the namespace.
    fn complete_catalog(&self, arguments: &mut Arguments, parameters: &Parameters) -> Result<()> {
        let within = match (arguments.text(CATALOG), &self.catalog) {
            (Some(within), Some(catalog)) => names::within_catalog(&within, catalog),
            (Some(within), None) => within,
            (None, Some(catalog)) => catalog.clone(),
            (None, None) => {
                return Err(parameters.error("argument catalog is missing: name the catalog, or a namespace in it"));
            }
        };
        arguments.values.insert(CATALOG, Value::Text(within));
        Ok(())
    }

    /// The parameter at a position.
    fn positional(
        &self,
        index: usize,
        value: &Constant,
        parameters: &Parameters,
        env: &Environment,
    ) -> Result<&'static Parameter> {
        let parameter = parameters.at(index, self.form)?;
        if self.form != Form::Execute || parameter.name != "expire_before" {
            return Ok(parameter);
        }
        // Hive writes snapshot ids in the same place as a string.
        if let Constant::Scalar(scalar) = value
            && value::text_of(scalar).is_some_and(value::is_id_list)
        {
            return parameters.named("snapshot_ids");
        }
        match env.options.positional_timestamp.as_str() {
            "expire_before" => Ok(parameter),
            "older_than" => parameters.named("older_than"),
            other => Err(parameters.error(&format!(
                "the session option iceberg_maintenance.positional_timestamp is '{other}'; it can be 'expire_before' or \
                 'older_than'"
            ))),
        }
    }

    /// Table functions may take their named arguments as one struct, map or string at the end, for hosts in which names can't be
    /// written: `f('t', {'retain_last': 5})`, `f('t', 'older_than=7d, dry_run=true')`.
    fn expand_options(&self, parameters: &Parameters) -> Result<Vec<Argument>> {
        let unchanged = || Ok(self.arguments.clone());
        let (Form::Function, Some((last, before))) = (self.form, self.arguments.split_last()) else {
            return unchanged();
        };
        let (None, Constant::Scalar(scalar)) = (&last.name, &last.value) else { return unchanged() };
        let takes_map = parameters.at(before.len(), self.form).is_ok_and(|p| p.kind == ParameterKind::Map);
        let options: Vec<Argument> = if let (Some(pairs), false) = (value::named_values(scalar), takes_map) {
            let text_only = matches!(scalar, ScalarValue::Map(_));
            pairs.into_iter().map(|(name, value)| named_option(name, value, text_only)).collect()
        } else if let (1, Some(pairs)) = (before.len(), value::text_of(scalar).and_then(split_options)) {
            let option = |(name, text)| Argument { name: Some(name), value: Constant::Option(text) };
            pairs.into_iter().map(option).collect()
        } else {
            return unchanged();
        };
        Ok(before.iter().cloned().chain(options).collect())
    }
}

fn named_option(name: String, value: ScalarValue, text_only: bool) -> Argument {
    let value = match value::text_of(&value) {
        Some(text) if text_only => Constant::Option(text.to_string()),
        _ => Constant::Scalar(value),
    };
    Argument { name: Some(name), value }
}

/// `name=value, name=value`; a part without a name belongs to the value before it, as in `snapshot_ids=1,2`.
fn split_options(text: &str) -> Option<Vec<(String, String)>> {
    let mut options: Vec<(String, String)> = vec![];
    for part in text.split(',') {
        let named = part.split_once('=').filter(|(name, value)| {
            let name = name.trim();
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !value.starts_with('>')
        });
        match (named, options.last_mut()) {
            (Some((name, value)), _) => options.push((name.trim().to_string(), value.trim().to_string())),
            (None, Some((_, value))) => *value = format!("{value},{}", part.trim()),
            (None, None) => return None,
        }
    }
    Some(options)
}

/// Refuses positions after names, and in `CALL` both together, as Spark does.
pub(crate) fn check_mixing<'a>(
    procedure: &str,
    form: Form,
    names: impl Iterator<Item = Option<&'a str>>,
) -> Result<()> {
    let named: Vec<bool> = names.map(|name| name.is_some()).collect();
    if form == Form::Call && named.contains(&true) && named.contains(&false) {
        return Err(Error::argument(
            procedure,
            "named and positional arguments can't be mixed in CALL; name all of them",
        ));
    }
    if !named.is_sorted() {
        return Err(Error::argument(procedure, "positional arguments must come before named ones"));
    }
    Ok(())
}

/// The parameters of what is called, and errors that list them.
pub(crate) struct Parameters {
    name: &'static str,
    parameters: &'static [Parameter],
}

impl Parameters {
    pub(crate) fn of(callee: &impl Callee) -> Self {
        Self { name: callee.name(), parameters: callee.parameters() }
    }

    fn convert(
        &self,
        name: &str,
        kind: ParameterKind,
        constant: &Constant,
        env: &Environment,
    ) -> Result<Option<Value>> {
        value::convert(constant, kind, env).map_err(|why| self.error(&format!("argument {name}: {why}")))
    }

    /// Finds a parameter by its name or an alias, in any case.
    pub(crate) fn named(&self, name: &str) -> Result<&'static Parameter> {
        let matches = |p: &&Parameter| {
            p.name.eq_ignore_ascii_case(name) || p.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
        };
        let found = self.parameters.iter().find(matches);
        found.ok_or_else(|| self.error(&format!("there is no argument {name}")))
    }

    /// Finds the parameter at a position.
    pub(crate) fn at(&self, index: usize, form: Form) -> Result<&'static Parameter> {
        let position = |p: &Parameter| if form == Form::Execute { p.execute_position } else { p.call_position };
        let parameters = self.parameters;
        parameters.iter().find(|p| position(p) == Some(index)).ok_or_else(|| {
            let most = parameters.iter().filter(|p| position(p).is_some()).count();
            self.error(&format!(
                "there are too many positional arguments, at most {most} can be given; name the others"
            ))
        })
    }

    fn is_schema(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| name.eq_ignore_ascii_case(SCHEMA))
            && self.subject() != CATALOG
            && !self.parameters.iter().any(|p| p.name == SCHEMA)
    }

    /// The name of the parameter that says what the procedure works on.
    fn subject(&self) -> &'static str {
        self.parameters.first().map_or("table", |parameter| parameter.name)
    }

    fn repeated(&self, parameter: &Parameter, has_target: bool) -> Error {
        if has_target && parameter.name == self.subject() {
            let name = parameter.name;
            return self.error(&format!("argument {name} can't be given: the statement names the {name} already"));
        }
        let aliases = match parameter.aliases {
            [] => String::new(),
            aliases => format!(" ({} means the same)", aliases.join(", ")),
        };
        self.error(&format!("argument {} is given twice{aliases}", parameter.name))
    }

    /// An error with the list of the arguments behind it.
    pub(crate) fn error(&self, message: &str) -> Error {
        let list = self.parameters.iter();
        let list: Vec<_> = list.map(|p| format!("{} ({})", p.name, value::kind_in_words(p.kind))).collect();
        Error::argument(self.name, format!("{message}. Its arguments are: {}", list.join(", ")))
    }

    /// An error about the argument with that name or at that position.
    pub(crate) fn argument_error(&self, name: Option<&str>, index: usize, form: Form, why: &Why) -> Error {
        let name = match (name, self.at(index, form)) {
            (Some(name), _) => name.to_string(),
            (None, Ok(parameter)) => parameter.name.to_string(),
            (None, Err(_)) => (index + 1).to_string(),
        };
        self.error(&format!("argument {name}: {why}"))
    }
}
