//! A server that was asked for its configuration.

use std::collections::HashMap;
use std::fmt;

use http::StatusCode;
use parking_lot::Mutex;
use url::Url;

use super::client::Client;
use super::paths::Paths;
use super::settings::{Configuration, Properties, Server, Settings};
use crate::catalog::TableName;
use crate::error::{Error, Result};

/// The server, the way to it, and what is known of it.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) server: Server,
    /// The properties as the user gave them.
    pub(super) client_properties: Properties,
    /// Tokens that the server gave out for single tables.
    table_tokens: Mutex<HashMap<TableName, String>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("server", &self.server.paths.server()).finish_non_exhaustive()
    }
}

impl Session {
    /// Asks the server for its configuration.
    ///
    /// # Errors
    /// [`Error::Catalog`] when it can't be reached, refuses, or doesn't know the warehouse.
    pub(super) async fn open(name: &str, settings: &Settings) -> Result<Self> {
        let wrong = |why: String| Error::Catalog { catalog: name.into(), why };
        let first = Client::new(name, settings).map_err(wrong)?;
        let paths = Paths::new(settings.uri.clone(), None, None);
        let mut url = paths.config().map_err(wrong)?;
        let warehouse = settings.properties.get("warehouse");
        if let Some(warehouse) = warehouse {
            url.query_pairs_mut().append_pair("warehouse", warehouse);
        }
        let answer = first.get(url.clone(), &[], None).await?;
        if answer.status != StatusCode::OK {
            let of = match warehouse {
                Some(warehouse) => format!("it gives no configuration for warehouse {warehouse:?}"),
                None => "it gives no configuration; it may want a warehouse".into(),
            };
            return Err(first.error(format!("{of}: {}", first.refusal(&answer, &url))));
        }
        let configuration: Configuration = serde_json::from_slice(&answer.body).map_err(|why| {
            let server = paths.server();
            first.error(format!("{server} is no Iceberg REST catalog: its configuration can't be read ({why})"))
        })?;
        let server = Server::new(&settings.properties, configuration).map_err(wrong)?;
        let client = match server.settings.properties == settings.properties {
            true => first,
            false => Client::new(name, &server.settings).map_err(wrong)?,
        };
        Ok(Self { client, server, client_properties: settings.properties.clone(), table_tokens: Mutex::default() })
    }

    /// A URL, or the error that a name can't be part of one.
    pub(super) fn url(&self, url: Result<Url, String>) -> Result<Url> {
        url.map_err(|why| self.client.error(why))
    }

    /// The token to use for a table, if it has one of its own.
    pub(super) fn token_of(&self, table: &TableName) -> Option<String> {
        self.table_tokens.lock().get(table).cloned()
    }

    /// Keeps the token that came with a table.
    pub(super) fn keep_token(&self, table: &TableName, config: &Properties) {
        let mut tokens = self.table_tokens.lock();
        match config.get("token") {
            Some(token) => {
                self.client.keep_secret(token);
                tokens.insert(table.clone(), token.clone());
            }
            None => {
                tokens.remove(table);
            }
        }
    }
}
