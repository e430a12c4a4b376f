//! Which file is meant, whether it is there, and what its place says of it.

use std::fs;
use std::io::ErrorKind;

use super::naming::Naming;
use super::{Answer, journal};
use crate::error::{Error, Result};
use crate::maintenance::RunContext;
use crate::procedure::remove_orphan_files::{DEFAULT_ORPHAN_AGE_MS, HiddenNames, Scope};
use crate::storage::{ListedStat, LocalFiles, Store, Stores, epoch_ms};
use crate::table::location::{normalize_local, percent_decoded, split};
use crate::table::{Location, PathRules, Root, Roots, TableMetadata};
use crate::time::{format_duration, format_ms};

/// A file by its one location.
#[derive(Debug)]
pub(super) struct Place {
    /// Under the table's own scheme and authority where the rules call them equal.
    pub location: String,
    /// How the location was made of what was given.
    read_as: String,
    /// How scheme and authority relate to the table's.
    prefix: String,
    pub there: There,
}

/// What is at a location.
#[derive(Debug)]
pub(super) enum There {
    File(ListedStat),
    /// A symbolic link, and where it leads.
    Link(Option<String>),
    Folder,
    /// Neither a file nor a folder nor a link.
    Other,
    Nothing,
    /// There is no way to look.
    Unreachable(String),
}

/// What decides whether a file that nothing names is an orphan.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// The table's folder that the file lies in.
    pub root: Option<Root>,
    /// The file lies in the table's location, which `remove_orphan_files` searches.
    pub is_searched: bool,
    /// The part of the name that hides the file.
    pub hidden: Option<String>,
    /// It lies where the table writes or has live files.
    pub is_own_folder: bool,
    pub age: Age,
    /// The file's path with all links resolved, if that is another one.
    real_path: Option<String>,
    pub is_journal: bool,
    pub cutoff_ms: i64,
    now_ms: i64,
}

/// A file's age beside the default of `remove_orphan_files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    Old(i64),
    Young(i64),
    Unknown,
}

impl Place {
    /// Finds the file that a text means: a location in any spelling, or a path below the table's. Where there is nothing under
    /// the name as it is written, percent-encoding is undone.
    pub(super) async fn find(path: &str, metadata: &TableMetadata, rules: &PathRules, stores: &Stores) -> Result<Self> {
        let (location, read_as) = absolute(path, metadata.location());
        let prefix = prefix_of(&location, metadata.location(), rules);
        let location = own_spelling(location, metadata.location(), rules);
        let there = look(&location, stores).await?;
        let decoded = percent_decoded(location.path()).filter(|decoded| decoded != location.path());
        if let (There::Nothing, Some(decoded)) = (&there, decoded) {
            let decoded = location.with_path(decoded);
            let there = look(&decoded, stores).await?;
            if !matches!(there, There::Nothing) {
                let read_as = format!("{read_as}, with percent-encoding undone");
                return Ok(Self { location: decoded.to_text(), read_as, prefix, there });
            }
        }
        Ok(Self { location: location.to_text(), read_as, prefix, there })
    }

    pub(super) fn surroundings(
        &self,
        metadata: &TableMetadata,
        rules: &PathRules,
        naming: &Naming,
        local: Option<&LocalFiles>,
        context: &RunContext,
    ) -> Result<Surroundings> {
        let scope = Scope::resolve(metadata, None, rules)?;
        let roots = metadata.roots(rules.clone());
        let inside = |root: &&Root| Roots::new(vec![(*root).clone()], rules.clone()).contains(&self.location);
        let path = split(&self.location).path;
        let floor = context.options().remove_orphan_files_min_retention;
        let floor = crate::procedure::duration_option("remove_orphan_files_min_retention", &floor)?;
        let now_ms = context.maintenance.now_ms();
        let cutoff_ms = now_ms.saturating_sub(DEFAULT_ORPHAN_AGE_MS.max(floor));
        let age = match &self.there {
            There::File(ListedStat { modified_ms: Some(modified), .. }) if *modified < cutoff_ms => Age::Old(*modified),
            There::File(ListedStat { modified_ms: Some(modified), .. }) => Age::Young(*modified),
            _ => Age::Unknown,
        };
        let canonical = match local.filter(|_| split(&self.location).is_local()) {
            Some(local) => local.canonical(path)?,
            None => None,
        };
        let is_searched = scope.as_roots(rules).contains(&self.location);
        Ok(Surroundings {
            root: roots.iter().find(inside).cloned(),
            is_searched,
            hidden: HiddenNames::new(&scope, metadata).hidden_part(path).filter(|_| is_searched),
            is_own_folder: naming.own_folders.contains(&self.location),
            age,
            real_path: canonical.filter(|canonical| *canonical != *normalize_local(path)),
            is_journal: journal::is_journal(&self.location, metadata, rules),
            cutoff_ms,
            now_ms,
        })
    }

    pub(super) fn answers(&self) -> Vec<Answer> {
        let (exists, detail) = match &self.there {
            There::File(ListedStat { size, modified_ms }) => {
                let modified = modified_ms.map_or("at an unknown time".to_string(), format_ms);
                ("file", Some(format!("{size} bytes, last modified {modified}")))
            }
            There::Link(target) => ("link", Some(format!("to {}", target.as_deref().unwrap_or("nothing")))),
            There::Folder => ("folder", None),
            There::Other => ("neither file nor folder", None),
            There::Nothing => ("no", None),
            There::Unreachable(why) => ("unknown", Some(why.clone())),
        };
        vec![
            Answer::new("location", shown(&self.location), Some(self.read_as.clone())),
            Answer::new("exists", exists, detail),
            Answer::new("scheme_and_authority", self.prefix.clone(), None),
        ]
    }
}

impl Surroundings {
    pub(super) fn answers(&self) -> Vec<Answer> {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let root = self.root.as_ref().map_or("none".to_string(), |root| root.named_by.to_string());
        let cutoff = format!("remove_orphan_files deletes what is older than {} by default", format_ms(self.cutoff_ms));
        let ago = |modified: i64| match self.now_ms.saturating_sub(modified) {
            ahead if ahead < 0 => "in the future".to_string(),
            age => format!("{} old", format_duration(age)),
        };
        let (age, detail) = match self.age {
            Age::Old(modified) | Age::Young(modified) => (ago(modified), Some(cutoff)),
            Age::Unknown => ("unknown".to_string(), None),
        };
        vec![
            Answer::new("root", root, self.root.as_ref().map(|root| root.location.to_string())),
            Answer::new("hidden", yes(self.hidden.is_some()), self.hidden.clone()),
            Answer::new("own_folder", yes(self.is_own_folder), None),
            Answer::new("age", age, detail),
            Answer::new("behind_link", yes(self.real_path.is_some()), self.real_path.clone()),
            Answer::new("journal", yes(self.is_journal), None),
        ]
    }
}

/// A location without what only its owner should see.
fn shown(location: &str) -> String {
    Location::parse(location).map_or_else(|_| location.to_string(), |location| location.to_string())
}

/// The location that a text means, and how it was read.
fn absolute(path: &str, table: &Location) -> (Location, String) {
    match Location::parse(path) {
        Ok(location) if location.scheme().is_empty() && !table.is_local() => {
            (table.with_path(location.path()), "a path in the table's store".into())
        }
        Ok(location) => (location, "a location".into()),
        Err(_) => {
            let below = path.trim_start_matches("./");
            (table.child(below), "relative to the table's location".into())
        }
    }
}

/// The same file under the scheme and authority of the table's location, if these are equal by the rules.
fn own_spelling(location: Location, table: &Location, rules: &PathRules) -> Location {
    let prefix = |location: &Location| rules.listed_prefix(rules.prefix(location.parts()));
    if prefix(&location) != prefix(table) {
        return location;
    }
    let path = rules.path(location.parts()).into_owned();
    table.with_path(path)
}

fn prefix_of(location: &Location, table: &Location, rules: &PathRules) -> String {
    let parts = |location: &Location| (location.scheme().to_string(), location.authority().to_string());
    if parts(location) == parts(table) {
        return "the table's".into();
    }
    let (own, others) = (rules.listed_prefix(rules.prefix(table.parts())), rules.prefix(location.parts()));
    match rules.listed_prefix(others.clone()) == own {
        true => "equal to the table's".into(),
        false => format!("{others}, which is not the table's {own}"),
    }
}

async fn look(location: &Location, stores: &Stores) -> Result<There> {
    let store = match stores.store(location) {
        Ok(store) => store,
        Err(error @ (Error::NoStore { .. } | Error::Location { .. })) => {
            return Ok(There::Unreachable(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    match store.as_local() {
        Some(local) => look_locally(location, local),
        None => look_in_store(location, &store).await,
    }
}

async fn look_in_store(location: &Location, store: &Store) -> Result<There> {
    // An object with a key that the client changes is another object.
    match store.stat(location).await {
        Ok(None) => return Ok(There::Nothing),
        Ok(Some(_)) => {}
        Err(error @ Error::Location { .. }) => return Ok(There::Unreachable(error.to_string())),
        Err(error) => return Err(error),
    }
    let looks = store.look_at(vec![location.path().to_string()]).await?;
    Ok(looks.into_iter().next().flatten().map_or(There::Nothing, There::File))
}

fn look_locally(location: &Location, local: &LocalFiles) -> Result<There> {
    let metadata = match fs::symlink_metadata(local.os_path(location)) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(There::Nothing);
        }
        Err(error) => return Err(Error::io("looking at", location.to_string(), error)),
    };
    let kind = metadata.file_type();
    Ok(match () {
        () if kind.is_symlink() => There::Link(local.canonical(location.path())?),
        () if kind.is_dir() => There::Folder,
        () if kind.is_file() => {
            There::File(ListedStat { size: metadata.len(), modified_ms: metadata.modified().ok().and_then(epoch_ms) })
        }
        () => There::Other,
    })
}
