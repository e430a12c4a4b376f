//! Why a table was not found: its namespace is missing, it is a view, or the name is wrong.

use http::StatusCode;

use super::client::Answer;
use super::listing::{Page, list};
use super::session::Session;
use crate::catalog::TableName;
use crate::error::Error;

/// How many tables are named where the one that was asked for is missing.
const NAMED_TABLES: usize = 10;

/// What is known of a table that the server says it doesn't have.
enum Missing {
    /// Why there is none.
    Because(String),
    /// The server has it in its list: it is there, and something that it needs is not.
    Listed,
}

/// The error of a table for which the server answered that there is no such thing. What can't be found out is left out.
///
/// A table that the server lists is not called missing: its files are somebody's, and nobody may think that they are not.
pub(super) async fn table_not_found(session: &Session, table: &TableName, answer: &Answer) -> Error {
    let why = match reason(session, table).await {
        Some(Missing::Because(why)) => why,
        Some(Missing::Listed) => {
            let says = session.client.says(answer);
            let why = format!("it lists table {table} and answers {} when it is asked for it{says}", answer.status);
            return session.client.error(why);
        }
        None => format!("{} has no such table", session.server.paths.server()),
    };
    Error::TableNotFound { table: table.to_string(), why }
}

async fn reason(session: &Session, table: &TableName) -> Option<Missing> {
    let namespace = table.namespace.join(".");
    let paths = &session.server.paths;
    let url = paths.namespace(&table.namespace).ok()?;
    let answer = session.client.get(url, &[], None).await.ok()?;
    if answer.status == StatusCode::NOT_FOUND {
        // Some servers say only here that the warehouse is unknown.
        let says = session.client.says(&answer);
        return Some(Missing::Because(format!("the catalog has no namespace {namespace}{says}")));
    }
    if session.server.has("GET /v1/{prefix}/namespaces/{namespace}/views/{view}") != Some(false) {
        let url = paths.table(table, "views", "").ok()?;
        if session.client.get(url, &[], None).await.is_ok_and(|answer| answer.status == StatusCode::OK) {
            let view = "it is a view, which has no files of its own. Name the tables that it reads";
            return Some(Missing::Because(view.into()));
        }
    }
    let url = paths.listing(&table.namespace, "tables").ok()?;
    let mut names: Vec<String> =
        list(session, &url, None, Page::First).await.ok()?.identifiers.into_iter().map(|table| table.name).collect();
    if names.contains(&table.name) {
        return Some(Missing::Listed);
    }
    names.sort_unstable();
    let more = if names.len() > NAMED_TABLES { ", …" } else { "" };
    names.truncate(NAMED_TABLES);
    Some(Missing::Because(match names.is_empty() {
        true => format!("namespace {namespace} has no tables"),
        false => format!("namespace {namespace} has {}{more}", names.join(", ")),
    }))
}
