//! The catalogs that PyIceberg knows: its `.pyiceberg.yaml`, and its environment variables, which come before it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use yaml_rust2::parser::{Event, EventReceiver, Parser};

use crate::config::Properties;

const FILE_NAME: &str = ".pyiceberg.yaml";
const CATALOG_VARIABLES: &str = "pyiceberg_catalog__";

/// What PyIceberg is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PyIceberg {
    pub(crate) catalogs: BTreeMap<String, Properties>,
    pub(crate) default_catalog: Option<String>,
    /// Why the file was left aside. That is no reason to refuse what needs none of its catalogs.
    pub(crate) unusable: Option<String>,
}

/// Reads the file that PyIceberg would read, and the variables. What is none of the catalogs' is passed over.
pub(crate) fn read(variables: impl Iterator<Item = (OsString, OsString)>) -> PyIceberg {
    let variables: BTreeMap<String, String> =
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
    let mut found = match find_file(&variables) {
        None => PyIceberg::default(),
        Some(file) => {
            let text = std::fs::read_to_string(&file).map_err(|error| error.to_string());
            text.and_then(|text| parse(&text)).unwrap_or_else(|why| PyIceberg {
                unusable: Some(format!("{} can't be read, so that its catalogs are unknown: {why}", file.display())),
                ..PyIceberg::default()
            })
        }
    };
    found.add_variables(&variables);
    found
}

/// PyIceberg looks in `PYICEBERG_HOME`, in the home folder and in the working folder, and reads the first file it finds.
fn find_file(variables: &BTreeMap<String, String>) -> Option<PathBuf> {
    let folders = ["PYICEBERG_HOME", "HOME"].into_iter().filter_map(|name| variables.get(name).map(Path::new));
    folders.chain([Path::new("")]).map(|folder| folder.join(FILE_NAME)).find(|file| file.is_file())
}

/// # Errors
/// When it is no YAML, or has an alias where the catalogs are: what that stands for would be missing.
fn parse(text: &str) -> Result<PyIceberg, String> {
    let mut values = Values::default();
    Parser::new_from_str(text).load(&mut values, false).map_err(|error| error.to_string())?;
    if let Some(path) = values.aliases.iter().find(|path| path.first().is_some_and(|section| section == "catalog")) {
        return Err(format!(
            "{} has an alias (*name), which is not supported: write out what it stands for",
            path.join(".")
        ));
    }
    let mut found = PyIceberg::default();
    for (path, value) in values.found {
        match path.as_slice() {
            [key] if key == "default-catalog" => found.default_catalog = Some(value.to_lowercase()),
            [section, name, key @ ..] if section == "catalog" && !key.is_empty() => {
                found.catalogs.entry(name.clone()).or_default().insert(key.join("."), value);
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The scalars of a document with the lower-case keys that lead to them, each as it is written: PyIceberg takes all values
/// for text, and a token such as 007 must not become a number.
#[derive(Debug, Default)]
struct Values {
    found: Vec<(Vec<String>, String)>,
    /// The keys that lead to each alias.
    aliases: Vec<Vec<String>>,
    open: Vec<Collection>,
}

#[derive(Debug)]
enum Collection {
    /// With the key whose value comes next.
    Mapping(Option<String>),
    Sequence,
}

impl Values {
    fn begin(&mut self, collection: Collection) {
        self.open.push(collection);
    }

    /// A value is complete: the next scalar of a mapping is a key.
    fn end_value(&mut self) {
        if let Some(Collection::Mapping(key)) = self.open.last_mut() {
            *key = None;
        }
    }

    fn scalar(&mut self, text: String) {
        match self.open.last_mut() {
            Some(Collection::Mapping(key @ None)) => *key = Some(text.to_lowercase()),
            _ => {
                // A list has no keys, and nothing that is asked for is in one.
                let path: Option<Vec<String>> = self.open.iter().map(Collection::key).collect();
                self.found.extend(path.map(|path| (path, text)));
                self.end_value();
            }
        }
    }
}

impl Values {
    fn alias(&mut self) {
        self.aliases.push(self.open.iter().filter_map(Collection::key).collect());
        match self.open.last_mut() {
            // In the place of a key.
            Some(Collection::Mapping(key @ None)) => *key = Some("*".into()),
            _ => self.end_value(),
        }
    }
}

impl Collection {
    fn key(&self) -> Option<String> {
        match self {
            Self::Mapping(key) => key.clone(),
            Self::Sequence => None,
        }
    }
}

impl EventReceiver for Values {
    fn on_event(&mut self, event: Event) {
        match event {
            Event::MappingStart(..) => self.begin(Collection::Mapping(None)),
            Event::SequenceStart(..) => self.begin(Collection::Sequence),
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
                self.end_value();
            }
            Event::Scalar(text, ..) => self.scalar(text),
            Event::Alias(_) => self.alias(),
            _ => {}
        }
    }
}

impl PyIceberg {
    /// `PYICEBERG_CATALOG__MY_LAKE__S3__ACCESS_KEY_ID` is `s3.access-key-id` of the catalog `my-lake`. A catalog named
    /// `default` is the default one unless another is.
    fn add_variables(&mut self, variables: &BTreeMap<String, String>) {
        for (name, value) in variables {
            let name = name.to_lowercase();
            let parts = name.strip_prefix(CATALOG_VARIABLES).and_then(|parts| parts.split_once("__"));
            if let Some((catalog, key)) = parts {
                let key = key.replace("__", ".").replace('_', "-");
                self.catalogs.entry(catalog.replace('_', "-")).or_default().insert(key, value.clone());
            }
            if name == "pyiceberg_default_catalog" {
                self.default_catalog = Some(value.to_lowercase());
            }
        }
        if self.default_catalog.is_none() && self.catalogs.contains_key("default") {
            self.default_catalog = Some("default".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_catalogs_and_the_variables_come_before_it() {
        let file = "default-catalog: Prod\ncatalog:\n  Prod:\n    uri: http://h:8181\n    s3.path-style-access: true\n    \
                    S3:\n      session-token: 007\n    list: [a, {b: c}]\n    token: \"1e3\"\n  empty:\nmax-workers: 4\n";
        let mut found = parse(file).unwrap();
        let variables = [
            ("PYICEBERG_CATALOG__PROD__URI", "http://other"),
            ("pyiceberg_catalog__my_dev__S3__ACCESS_KEY_ID", "k"),
            ("PYICEBERG_MAX_WORKERS", "8"),
        ];
        found.add_variables(&variables.map(|(name, value)| (name.to_string(), value.to_string())).into());
        let all: Vec<_> = found
            .catalogs
            .iter()
            .flat_map(|(name, properties)| properties.iter().map(move |(key, value)| format!("{name} {key}={value}")))
            .collect();
        assert_eq!(
            all,
            [
                "my-dev s3.access-key-id=k",
                "prod s3.path-style-access=true",
                "prod s3.session-token=007",
                "prod token=1e3",
                "prod uri=http://other"
            ]
        );
        assert_eq!(found.default_catalog.as_deref(), Some("prod"));
    }

    #[test]
    fn an_alias_among_the_catalogs_is_refused_by_its_place() {
        let anchor = "shared: &x\n  token: t\n";
        for (catalog, place) in [
            ("catalog: *x", "catalog"),
            ("catalog:\n  a: *x", "catalog.a"),
            ("catalog:\n  a:\n    <<: *x\n    uri: u", "catalog.a.<<"),
            ("catalog:\n  a:\n    s3:\n      b: [*x]", "catalog.a.s3.b"),
            ("catalog:\n  a:\n    *x : u", "catalog.a"),
        ] {
            let why = parse(&format!("{anchor}{catalog}\n")).unwrap_err();
            assert!(why.starts_with(&format!("{place} has an alias")), "{catalog}: {why}");
        }
        let elsewhere = format!("{anchor}other:\n  *x : y\n  z: *x\ncatalog:\n  a:\n    uri: u\n");
        assert_eq!(parse(&elsewhere).unwrap().catalogs["a"]["uri"], "u");
    }

    #[test]
    fn a_file_that_is_no_yaml_stops_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE_NAME), "catalog: [").unwrap();
        let variables = [("PYICEBERG_HOME", folder.path().to_str().unwrap()), ("PYICEBERG_CATALOG__A__URI", "u")];
        let found = read(variables.map(|(name, value)| (name.into(), value.into())).into_iter());
        assert_eq!(found.catalogs["a"]["uri"], "u");
        let why = found.unusable.unwrap();
        assert!(why.contains(FILE_NAME) && why.contains("can't be read"), "{why}");
    }

    #[test]
    fn a_file_that_is_no_yaml_is_an_error() {
        assert!(parse("catalog: [").is_err());
        assert_eq!(parse("").unwrap(), PyIceberg::default());
    }
}
