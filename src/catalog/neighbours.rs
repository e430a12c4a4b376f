//! The other tables of a catalog, as far as somebody must know who is about to delete one table's files.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use futures::StreamExt;

use super::{CANNOT_LIST, Catalog, LoadedTable, MAX_NAMESPACE_PARTS, TableHandle, TableName};
use crate::error::{Error, Result};
use crate::table::{Location, PathRules};

/// How many tables are loaded at once.
pub(crate) const CONCURRENT_LOADS: usize = 16;

/// What was found out about the other tables of a catalog.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Those that were loaded.
    pub tables: Vec<Arc<Neighbour>>,
    /// Those that could not be loaded.
    pub unreadable: Vec<TableName>,
    /// True when there are more tables than were to be looked at.
    pub is_incomplete: bool,
}

/// Where another table of a catalog has its files.
#[derive(Debug)]
pub(crate) struct Neighbour {
    /// Its name, for messages.
    pub name: String,
    /// Its location.
    pub location: Location,
    /// Its current metadata file.
    pub metadata_location: String,
    /// The folders that it writes to, its location among them.
    pub roots: Vec<Location>,
}

impl Neighbour {
    pub(crate) fn of(table: &LoadedTable) -> Self {
        let metadata = &table.metadata;
        let roots = metadata.roots(PathRules::new(metadata.location()));
        Self {
            name: table.name.clone(),
            location: metadata.location().clone(),
            metadata_location: metadata.metadata_location().to_string(),
            roots: roots.iter().map(|root| root.location.clone()).collect(),
        }
    }
}

/// What became of a look at a table of the catalog.
#[derive(Debug, Clone)]
pub(crate) enum Look {
    /// It was loaded.
    At(Arc<Neighbour>),
    /// It could not be loaded.
    Unreadable,
    /// It was dropped since it was listed.
    Gone,
}

impl Look {
    /// What a look at a table showed.
    pub(crate) fn of(name: &TableName, loaded: &Result<LoadedTable>) -> Self {
        match loaded {
            Ok(table) => Look::At(Arc::new(Neighbour::of(table))),
            Err(Error::TableNotFound { .. }) => Look::Gone,
            Err(error) => {
                tracing::info!(%name, %error, "a table of the catalog can't be loaded");
                Look::Unreadable
            }
        }
    }
}

impl Neighbours {
    pub(super) fn add(&mut self, name: &TableName, look: &Look) {
        match look {
            Look::At(table) => self.tables.push(Arc::clone(table)),
            Look::Unreadable => self.unreadable.push(name.clone()),
            Look::Gone => {}
        }
    }
}

/// Looks at tables, several at once.
pub(super) async fn look_at(
    catalog: &Arc<dyn Catalog>,
    names: Vec<TableName>,
    runtime: &Arc<RuntimeEnv>,
) -> Vec<(TableName, Look)> {
    let looks = names.into_iter().map(|name| async move {
        let look = Look::of(&name, &catalog.load(&name, runtime).await);
        (name, look)
    });
    futures::stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_LOADS).collect().await
}

impl TableHandle {
    /// Loads other tables of the catalog, those of the table's own namespace first, and no more than `most`. Where the whole
    /// catalog is maintained, what was seen of its tables is told instead ([`Survey`](super::Survey)).
    ///
    /// Where the catalog tells the location of each table's current metadata without loading it, those for which `may_matter` says
    /// yes to it come first, and the others only if `all` are wanted. `None` where the catalog can't list tables, or none of its
    /// tables can share files.
    ///
    /// # Errors
    /// When the catalog can't be asked. A table that can't be loaded is no error.
    pub(crate) async fn neighbours(
        &self,
        most: usize,
        runtime: &Arc<RuntimeEnv>,
        may_matter: &(dyn Fn(&str) -> bool + Sync),
        all: bool,
    ) -> Result<Option<Neighbours>> {
        if most == 0 || !self.catalog.tables_may_share_files() {
            return Ok(None);
        }
        if let Some(survey) = &self.survey {
            return survey.neighbours(&self.name, most, runtime, may_matter, all).await.map(Some);
        }
        let (names, is_incomplete) = match self.neighbour_names(most, runtime, may_matter, all).await {
            Err(Error::Catalog { why, .. }) if why == CANNOT_LIST => return Ok(None),
            names => names?,
        };
        let mut neighbours = Neighbours { is_incomplete, ..Default::default() };
        for (name, look) in look_at(&self.catalog, names, runtime).await {
            neighbours.add(&name, &look);
        }
        Ok(Some(neighbours))
    }

    async fn neighbour_names(
        &self,
        most: usize,
        runtime: &Arc<RuntimeEnv>,
        may_matter: &(dyn Fn(&str) -> bool + Sync),
        all: bool,
    ) -> Result<(Vec<TableName>, bool)> {
        let own = &self.name.namespace;
        let mut others = vec![];
        let mut names = self.others_in(own, runtime, may_matter, &mut others).await?;
        let (mut namespaces, mut looked_at) = (vec![vec![]], 0);
        while names.len() < most {
            let Some(namespace) = namespaces.pop() else { break };
            let below = self.catalog.list_namespaces(&namespace, runtime).await?;
            let is_below = |below: &Vec<String>| below.len() > namespace.len() && below.len() <= MAX_NAMESPACE_PARTS;
            namespaces.extend(below.into_iter().filter(is_below));
            if !namespace.is_empty() && namespace != *own {
                names.extend(self.others_in(&namespace, runtime, may_matter, &mut others).await?);
            }
            looked_at += 1;
            if looked_at > most {
                break;
            }
        }
        if all {
            names.append(&mut others);
        }
        let is_incomplete = names.len() > most || !namespaces.is_empty();
        names.truncate(most);
        Ok((names, is_incomplete))
    }

    /// The tables of a namespace but this one. Those that don't seem to matter are added to `others`.
    async fn others_in(
        &self,
        namespace: &[String],
        runtime: &Arc<RuntimeEnv>,
        may_matter: &(dyn Fn(&str) -> bool + Sync),
        others: &mut Vec<TableName>,
    ) -> Result<Vec<TableName>> {
        let mut names = match self.catalog.metadata_locations(namespace, runtime).await? {
            Some(known) => {
                let (matter, rest): (Vec<_>, Vec<_>) = known.into_iter().partition(|(_, at)| may_matter(at));
                others.extend(rest.into_iter().map(|(name, _)| name).filter(|other| *other != self.name));
                matter.into_iter().map(|(name, _)| name).collect()
            }
            None => self.catalog.list_tables(namespace, runtime).await?,
        };
        if namespace == self.name.namespace {
            // Some catalogs find a table by its name in any case, and list it in their own.
            let is_exact = names.contains(&self.name);
            names.retain(|other| match is_exact {
                true => *other != self.name,
                false => !other.name.eq_ignore_ascii_case(&self.name.name),
            });
        }
        Ok(names)
    }
}
