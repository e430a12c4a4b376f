//! The other tables of a catalog, as far as somebody must know who is about to delete one table's files.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use futures::StreamExt;

use super::{CANNOT_LIST, LoadedTable, MAX_NAMESPACE_PARTS, TableHandle, TableName};
use crate::error::{Error, Result};

/// How many tables are loaded at once.
const CONCURRENT_LOADS: usize = 16;

/// What was found out about the other tables of a catalog.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Those that were loaded.
    pub tables: Vec<LoadedTable>,
    /// Those that could not be loaded.
    pub unreadable: Vec<TableName>,
    /// True when there are more tables than were to be looked at.
    pub is_incomplete: bool,
}

impl TableHandle {
    /// Loads other tables of the catalog, those of the table's own namespace first, and no more than `most`.
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
        let (names, is_incomplete) = match self.neighbour_names(most, runtime, may_matter, all).await {
            Err(Error::Catalog { why, .. }) if why == CANNOT_LIST => return Ok(None),
            names => names?,
        };
        let loads = names.into_iter().map(|name| async move {
            match self.catalog.load(&name, runtime).await {
                Ok(table) => Ok(table),
                Err(error) => Err((name, error)),
            }
        });
        let mut neighbours = Neighbours { is_incomplete, ..Default::default() };
        let mut loads = futures::stream::iter(loads.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_LOADS);
        while let Some(loaded) = loads.next().await {
            match loaded {
                Ok(table) => neighbours.tables.push(table),
                // It was dropped since it was listed.
                Err((_, Error::TableNotFound { .. })) => {}
                Err((name, error)) => {
                    tracing::info!(%name, %error, "a table of the catalog can't be loaded");
                    neighbours.unreadable.push(name);
                }
            }
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
