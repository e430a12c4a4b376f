//! Which catalogs, tables and settings there are: by flags, by `iceberg-maintenance.toml`, and by what PyIceberg reads.
//!
//! A catalog of the command line comes before one of the same name in our file, and that before one of PyIceberg's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::runtime_env::RuntimeEnv;
use iceberg_maintenance::catalog::{self, Catalog, CommitOutcome, LoadedTable, TableCommit, TableName};
use iceberg_maintenance::{Error, MaintenanceBuilder};

use crate::arguments::Options;
use crate::failure::Failure;
use crate::pyiceberg;

/// Names and values, as Iceberg names them.
pub(crate) type Properties = BTreeMap<String, String>;

const FILE_NAME: &str = "iceberg-maintenance.toml";

/// What is configured.
#[derive(Debug, Default)]
pub(crate) struct Config {
    catalogs: BTreeMap<String, Arc<dyn Catalog>>,
    default_catalog: Option<String>,
    tables: Properties,
    storage: Properties,
    settings: Vec<(String, String)>,
    warnings: Vec<String>,
}

impl Config {
    /// Reads what there is. A catalog of a file that can't be used says so when a table of it is asked for; one of the
    /// command line says so now.
    pub(crate) fn load(options: &Options) -> Result<Self, Failure> {
        let mut config = Self::default();
        let variable = |name: &str| std::env::var(name).ok();
        let pyiceberg = pyiceberg::read(std::env::vars_os());
        config.default_catalog = pyiceberg.default_catalog;
        config.warnings.extend(pyiceberg.unusable);
        config.add_catalogs(pyiceberg.catalogs);
        let own_file = find_file(options.config.as_deref());
        let wrong = |file: &Path, why: String| Failure::new(format!("{}: {}", file.display(), why.trim_end()));
        let mut names_default = false;
        if let Some(file) = &own_file {
            let text = std::fs::read_to_string(file)
                .map_err(|error| Failure::new(format!("{} can't be read: {error}", file.display())))?;
            names_default = config.add_toml(&text, &variable).map_err(|why| wrong(file, why))?;
            config.resolve_tables(file.parent().unwrap_or(Path::new("")));
        }
        for specification in &options.catalog {
            let failed = |error: Error| Failure::new(error.to_string());
            let (name, properties) = catalog::parse_specification(specification).map_err(failed)?;
            let properties =
                expand_all(properties, &variable).map_err(|why| Failure::new(format!("catalog {name}: {why}")))?;
            let catalog = catalog::connect(&name, &properties).map_err(failed)?;
            config.catalogs.insert(name.to_lowercase(), catalog);
        }
        if let Some(file) = own_file.filter(|_| names_default) {
            config.refuse_unknown_default().map_err(|why| wrong(&file, why))?;
        }
        Ok(config)
    }

    /// What the user should know although nothing may depend on it.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Properties of the stores that no catalog names.
    pub(crate) fn storage(&self) -> &Properties {
        &self.storage
    }

    /// Session options.
    pub(crate) fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// Registers the catalogs and tables.
    pub(crate) fn apply(&self, mut builder: MaintenanceBuilder) -> MaintenanceBuilder {
        for (name, catalog) in &self.catalogs {
            builder = builder.catalog(name, Arc::clone(catalog));
        }
        for (name, location) in &self.tables {
            builder = builder.table(name, location);
        }
        match self.default_catalog.as_deref().filter(|name| self.catalogs.contains_key(*name)) {
            Some(name) => builder.default_catalog(name),
            None => builder,
        }
    }

    /// The names of all catalogs, in lower case.
    pub(crate) fn catalog_names(&self) -> impl Iterator<Item = &str> {
        self.catalogs.keys().map(String::as_str)
    }

    fn add_catalogs(&mut self, catalogs: BTreeMap<String, Properties>) {
        for (name, properties) in catalogs {
            let catalog = catalog::connect(&name, &properties)
                .unwrap_or_else(|error| Arc::new(UnusableCatalog { name: name.clone(), error: error.to_string() }));
            self.catalogs.insert(name.to_lowercase(), catalog);
        }
    }

    fn refuse_unknown_default(&self) -> Result<(), String> {
        let Some(name) = self.default_catalog.as_ref().filter(|name| !self.catalogs.contains_key(*name)) else {
            return Ok(());
        };
        let known: Vec<&str> = self.catalogs.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "there is none".into() } else { format!("there are {}", known.join(", ")) };
        let unread: String = self.warnings.iter().map(|warning| format!(". {warning}")).collect();
        Err(format!("default-catalog is {name:?}, and no catalog of this name is configured; {known}{unread}"))
    }

    /// Relative folders of tables are relative to the file that names them.
    fn resolve_tables(&mut self, folder: &Path) {
        for location in self.tables.values_mut().filter(|location| !location.contains(':')) {
            if let Ok(absolute) = std::path::absolute(folder.join(&*location)) {
                *location = absolute.to_string_lossy().into_owned();
            }
        }
    }

    /// True when the file names the default catalog.
    fn add_toml(&mut self, text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<bool, String> {
        let document: toml::Table = text.parse().map_err(|error| place_of(&error, text))?;
        let names_default = document.contains_key("default-catalog");
        for (key, value) in document {
            match (key.as_str(), value) {
                ("default-catalog", toml::Value::String(name)) => self.default_catalog = Some(name.to_lowercase()),
                ("catalog", toml::Value::Table(catalogs)) => {
                    let mut all: BTreeMap<String, Properties> = BTreeMap::new();
                    for (name, properties) in catalogs {
                        let lower = name.to_lowercase();
                        if let Some(other) = all.keys().find(|other| other.to_lowercase() == lower) {
                            return Err(format!(
                                "there are catalog.{other} and catalog.{name}, and names that differ only in case are one"
                            ));
                        }
                        let section = format!("catalog.{name}");
                        all.insert(name, expand_all(flatten(&section, properties)?, variable)?);
                    }
                    self.add_catalogs(all);
                }
                ("tables", tables) => self.tables = flatten("tables", tables)?,
                ("storage", storage) => self.storage = expand_all(flatten("storage", storage)?, variable)?,
                ("settings", settings) => self.settings = flatten("settings", settings)?.into_iter().collect(),
                (other, _) => {
                    return Err(format!(
                        "{other} is unknown or of the wrong kind; there are default-catalog = \"name\" and the sections \
                         [catalog.<name>], [tables], [storage] and [settings]"
                    ));
                }
            }
        }
        Ok(names_default)
    }
}

/// What is wrong, and in which line; the line itself may hold a secret.
fn place_of(error: &toml::de::Error, text: &str) -> String {
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    match error.span() {
        Some(span) => format!("line {}: {}", line(span.start), error.message()),
        None => error.message().to_string(),
    }
}

/// The file that was named, or the first that is there: in the working folder, in the user's configuration folder.
fn find_file(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = named {
        return Some(named.to_path_buf());
    }
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let users = folder("XDG_CONFIG_HOME")
        .or_else(|| folder("APPDATA"))
        .or_else(|| folder("HOME").map(|home| home.join(".config")));
    let candidates =
        [Some(PathBuf::from(FILE_NAME)), users.map(|folder| folder.join("iceberg-maintenance").join(FILE_NAME))];
    candidates.into_iter().flatten().find(|file| file.is_file())
}

/// Keys with dots are tables inside tables to TOML, and one name to Iceberg.
fn flatten(section: &str, value: toml::Value) -> Result<Properties, String> {
    let toml::Value::Table(table) = value else { return Err(format!("{section} must be a section of key = value")) };
    let mut properties = Properties::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(_) => {
                let below = flatten(section, value)?;
                properties.extend(below.into_iter().map(|(name, value)| (format!("{key}.{name}"), value)));
            }
            toml::Value::String(text) => _ = properties.insert(key, text),
            toml::Value::Integer(number) => _ = properties.insert(key, number.to_string()),
            toml::Value::Float(number) => _ = properties.insert(key, number.to_string()),
            toml::Value::Boolean(truth) => _ = properties.insert(key, truth.to_string()),
            _ => return Err(format!("{section}: {key} must be a text, a number or true or false")),
        }
    }
    Ok(properties)
}

fn expand_all(properties: Properties, variable: &dyn Fn(&str) -> Option<String>) -> Result<Properties, String> {
    let expand = |(key, value): (String, String)| {
        let value = expand(&value, variable).map_err(|why| format!("{key}: {why}"))?;
        Ok((key, value))
    };
    properties.into_iter().map(expand).collect()
}

/// Puts the values of environment variables in the place of `${NAME}`, so that a secret need not stand in a file or on a
/// command line.
fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("a ${ has no }")?;
        out.push_str(before);
        out.push_str(&variable(name).ok_or_else(|| format!("the environment variable {name} is not set"))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// A catalog of a configuration file that can't be used. It is no reason to refuse what doesn't need it.
#[derive(Debug)]
struct UnusableCatalog {
    name: String,
    error: String,
}

impl UnusableCatalog {
    fn error(&self) -> Error {
        let prefix = format!("catalog {}: ", self.name);
        Error::Catalog { catalog: self.name.clone(), why: self.error.trim_start_matches(&prefix).to_string() }
    }
}

#[async_trait]
impl Catalog for UnusableCatalog {
    async fn load(&self, _: &TableName, _: &Arc<RuntimeEnv>) -> Result<LoadedTable, Error> {
        Err(self.error())
    }

    async fn commit(
        &self,
        _: &TableName,
        _: &LoadedTable,
        _: &TableCommit,
        _: &Arc<RuntimeEnv>,
    ) -> Result<CommitOutcome, Error> {
        Err(self.error())
    }

    async fn list_namespaces(&self, _: &[String], _: &Arc<RuntimeEnv>) -> Result<Vec<Vec<String>>, Error> {
        Err(self.error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_toml(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let variable = |name: &str| (name == "SECRET").then(|| "s3cr3t".to_string());
        config.add_toml(text, &variable).map(|_| config)
    }

    #[test]
    fn a_file_names_catalogs_tables_stores_and_settings() {
        let config = from_toml(
            r#"
            default-catalog = "Lake"
            [catalog.Lake]
            type = "hadoop"
            warehouse = "file:///w"
            [catalog.far]
            type = "hive"
            [tables]
            "db.t" = "/data/t"
            [storage]
            s3.endpoint = "http://127.0.0.1:9000"
            s3.secret-access-key = "${SECRET}"
            s3.path-style-access = true
            [settings]
            iceberg_maintenance.max_concurrent_deletes = 64
            "#,
        )
        .unwrap();
        assert_eq!(config.catalogs.keys().collect::<Vec<_>>(), ["far", "lake"]);
        assert_eq!(config.default_catalog.as_deref(), Some("lake"));
        assert_eq!(config.tables["db.t"], "/data/t");
        let storage: Vec<_> = config.storage().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(
            storage,
            [
                ("s3.endpoint", "http://127.0.0.1:9000"),
                ("s3.path-style-access", "true"),
                ("s3.secret-access-key", "s3cr3t")
            ]
        );
        assert_eq!(config.settings(), [("iceberg_maintenance.max_concurrent_deletes".into(), "64".into())]);
    }

    #[test]
    fn a_wrong_file_is_explained() {
        for (text, says) in [
            ("catalogs = 1", "[catalog.<name>]"),
            ("[catalog]\nlake = 1", "catalog.lake must be a section"),
            ("[catalog.lake]\nuri = []", "uri must be a text"),
            ("[storage]\nx = \"${NONE}\"", "x: the environment variable NONE is not set"),
            ("[storage]\nx = \"${NONE\"", "has no }"),
            ("[catalog", "line 1"),
            ("[storage]\n\ns3.secret-access-key = hidden\nx = 1", "line 3: "),
            ("[storage]\ntoken = \"hidden", "line 2: "),
            ("[storage]\ntoken = \"hidden\"\ntoken = \"hidden\"", "line 3: "),
            ("[catalog.Lake]\ntype = \"hive\"\n[catalog.lake]\ntype = \"hive\"", "catalog.Lake and catalog.lake"),
        ] {
            let error = from_toml(text).unwrap_err();
            assert!(error.contains(says) && !error.contains("hidden"), "{text}: {error}");
        }
    }

    #[test]
    fn a_default_catalog_that_is_not_there_is_named() {
        let lake = "[catalog.lake]\ntype = \"hive\"";
        let mut config = from_toml(&format!("default-catalog = \"Lake\"\n{lake}")).unwrap();
        assert_eq!(config.refuse_unknown_default(), Ok(()));
        config.default_catalog = Some("typo".into());
        config.warnings.push("x.yaml can't be read".into());
        let why = config.refuse_unknown_default().unwrap_err();
        assert!(why.contains("default-catalog is \"typo\"") && why.contains("there are lake. x.yaml can't"), "{why}");
    }
}
