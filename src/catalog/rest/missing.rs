//! Why a table was not found: its namespace is missing, it is a view, or the name is wrong.

use http::StatusCode;

use super::listing::{Page, list};
use super::session::Session;
use crate::catalog::TableName;
use crate::error::Error;

/// How many tables are named where the one that was asked for is missing.
const NAMED_TABLES: usize = 10;

/// The error of a table that the server doesn't have. What can't be found out is left out.
pub(super) async fn table_not_found(session: &Session, table: &TableName) -> Error {
    let why = match reason(session, table).await {
        Some(why) => why,
        None => format!("{} has no such table", session.server.paths.server()),
    };
    Error::TableNotFound { table: table.to_string(), why }
}

async fn reason(session: &Session, table: &TableName) -> Option<String> {
    let namespace = table.namespace.join(".");
    let paths = &session.server.paths;
    let url = paths.namespace(&table.namespace).ok()?;
    let answer = session.client.get(url, &[], None).await.ok()?;
    if answer.status == StatusCode::NOT_FOUND {
        // Some servers say only here that the warehouse is unknown.
        return Some(format!("the catalog has no namespace {namespace}{}", session.client.says(&answer)));
    }
    if session.server.has("GET /v1/{prefix}/namespaces/{namespace}/views/{view}") != Some(false) {
        let url = paths.table(table, "views", "").ok()?;
        if session.client.get(url, &[], None).await.is_ok_and(|answer| answer.status == StatusCode::OK) {
            return Some("it is a view, which has no files of its own. Name the tables that it reads".into());
        }
    }
    let url = paths.listing(&table.namespace, "tables").ok()?;
    let mut names: Vec<String> =
        list(session, &url, None, Page::First).await.ok()?.identifiers.into_iter().map(|table| table.name).collect();
    names.sort_unstable();
    let more = if names.len() > NAMED_TABLES { ", …" } else { "" };
    names.truncate(NAMED_TABLES);
    Some(match names.is_empty() {
        true => format!("namespace {namespace} has no tables"),
        false => format!("namespace {namespace} has {}{more}", names.join(", ")),
    })
}
