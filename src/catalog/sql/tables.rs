//! The rows of `iceberg_tables` and `iceberg_namespace_properties`, as Iceberg Java's JDBC catalog and PyIceberg's SQL
//! catalog keep them. Nothing here creates, alters or drops a table.

use std::collections::BTreeSet;

use super::connection::Connection;

/// Which columns `iceberg_tables` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaVersion {
    /// Tables only.
    V0,
    /// The column `iceberg_type` tells tables (`TABLE` or NULL) from views (`VIEW`).
    V1,
}

/// What a row is found by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    /// The column `catalog_name`.
    pub catalog: &'a str,
    /// The namespace's parts, joined with dots.
    pub namespace: &'a str,
    pub name: &'a str,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// A table and its pointer.
    Table(String),
    /// A row without a pointer.
    NoPointer,
    View,
}

/// How far a swap of the pointer came before it failed.
#[derive(Debug)]
pub(super) enum SwapError {
    /// No transaction was committed.
    NotCommitted(sqlx::Error),
    /// COMMIT was sent, and what became of it is unknown.
    CommitUnanswered(sqlx::Error),
}

/// Finds out which columns there are. `None` when there is no such table.
pub(super) async fn schema_version(connection: &mut Connection) -> sqlx::Result<Option<SchemaVersion>> {
    match connection.rows("SELECT iceberg_type FROM iceberg_tables WHERE 1=0", &[]).await {
        Ok(_) => Ok(Some(SchemaVersion::V1)),
        Err(error) if is_missing(&error, "42703", "no such column") => Ok(Some(SchemaVersion::V0)),
        Err(error) if is_missing(&error, "42P01", "no such table") => Ok(None),
        Err(error) => Err(error),
    }
}

/// The row of a table or view.
pub(super) async fn find(
    connection: &mut Connection,
    version: SchemaVersion,
    key: Key<'_>,
) -> sqlx::Result<Option<Entry>> {
    let sql = match version {
        SchemaVersion::V0 => {
            "SELECT catalog_name, table_namespace, table_name, metadata_location, NULL \
             FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2 AND table_name = $3"
        }
        SchemaVersion::V1 => {
            "SELECT catalog_name, table_namespace, table_name, metadata_location, iceberg_type \
             FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2 AND table_name = $3"
        }
    };
    let rows = connection.rows(sql, &[key.catalog, key.namespace, key.name]).await?;
    // A column may have been declared to compare without regard to case or trailing spaces.
    let wanted = [key.catalog, key.namespace, key.name];
    let exact = rows.into_iter().find(|row| row.iter().map(Option::as_deref).zip(wanted).all(|(a, b)| a == Some(b)));
    let Some(row) = exact else { return Ok(None) };
    Ok(Some(match (&row[3], row[4].as_deref()) {
        (_, Some(kind)) if kind != "TABLE" => Entry::View,
        (Some(pointer), _) if !pointer.is_empty() => Entry::Table(pointer.clone()),
        _ => Entry::NoPointer,
    }))
}

/// Swaps the pointer of a table in a transaction of its own, and gives the number of rows that had the old pointer. Only
/// with exactly one was anything committed.
pub(super) async fn swap(
    connection: &mut Connection,
    version: SchemaVersion,
    key: Key<'_>,
    base: &str,
    new: &str,
) -> Result<u64, SwapError> {
    let sql = match version {
        SchemaVersion::V0 => {
            "UPDATE iceberg_tables SET metadata_location = $1, previous_metadata_location = $2 \
             WHERE catalog_name = $3 AND table_namespace = $4 AND table_name = $5 AND metadata_location = $2"
        }
        SchemaVersion::V1 => {
            "UPDATE iceberg_tables SET metadata_location = $1, previous_metadata_location = $2 \
             WHERE catalog_name = $3 AND table_namespace = $4 AND table_name = $5 AND metadata_location = $2 \
             AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
        }
    };
    connection.begin().await.map_err(SwapError::NotCommitted)?;
    let arguments = [new, base, key.catalog, key.namespace, key.name];
    match connection.execute(sql, &arguments).await {
        Ok(1) => {}
        // If the ROLLBACK fails, the transaction ends with its connection.
        Ok(rows) => {
            connection.take_back().await;
            return Ok(rows);
        }
        Err(error) => {
            connection.take_back().await;
            return Err(SwapError::NotCommitted(error));
        }
    }
    match connection.execute("COMMIT", &[]).await {
        Ok(_) => Ok(1),
        Err(error) if connection.take_back().await => Err(SwapError::NotCommitted(error)),
        Err(error) => Err(SwapError::CommitUnanswered(error)),
    }
}

/// The names of the catalogs that hold a table or view of this name.
pub(super) async fn catalogs_with(connection: &mut Connection, key: Key<'_>) -> sqlx::Result<BTreeSet<String>> {
    let sql = "SELECT catalog_name FROM iceberg_tables WHERE table_namespace = $1 AND table_name = $2";
    Ok(texts(connection.rows(sql, &[key.namespace, key.name]).await?).collect())
}

/// The names of a namespace's tables, without its views.
pub(super) async fn tables_in(
    connection: &mut Connection,
    version: SchemaVersion,
    catalog: &str,
    namespace: &str,
) -> sqlx::Result<BTreeSet<String>> {
    let sql = match version {
        SchemaVersion::V0 => "SELECT table_name FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2",
        SchemaVersion::V1 => {
            "SELECT table_name FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2 \
             AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
        }
    };
    Ok(texts(connection.rows(sql, &[catalog, namespace]).await?).collect())
}

/// A namespace's tables, without its views, and their pointers.
pub(super) async fn pointers_in(
    connection: &mut Connection,
    version: SchemaVersion,
    catalog: &str,
    namespace: &str,
) -> sqlx::Result<Vec<(String, String)>> {
    let sql = match version {
        SchemaVersion::V0 => {
            "SELECT table_name, metadata_location FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2"
        }
        SchemaVersion::V1 => {
            "SELECT table_name, metadata_location FROM iceberg_tables WHERE catalog_name = $1 AND table_namespace = $2 \
             AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
        }
    };
    let rows = connection.rows(sql, &[catalog, namespace]).await?;
    let pointer = |row: Vec<Option<String>>| match <[Option<String>; 2]>::try_from(row) {
        Ok([Some(name), Some(pointer)]) => Some((name, pointer)),
        _ => None,
    };
    Ok(rows.into_iter().filter_map(pointer).collect())
}

/// All namespaces that hold something or have properties, each as its parts joined with dots.
pub(super) async fn namespaces(connection: &mut Connection, catalog: &str) -> sqlx::Result<BTreeSet<String>> {
    let of_tables = "SELECT DISTINCT table_namespace FROM iceberg_tables WHERE catalog_name = $1";
    let of_properties = "SELECT DISTINCT namespace FROM iceberg_namespace_properties WHERE catalog_name = $1";
    let mut namespaces: BTreeSet<String> = texts(connection.rows(of_tables, &[catalog]).await?).collect();
    match connection.rows(of_properties, &[catalog]).await {
        Ok(rows) => namespaces.extend(texts(rows)),
        // The first catalogs had no such table.
        Err(error) if is_missing(&error, "42P01", "no such table") => {}
        Err(error) => return Err(error),
    }
    Ok(namespaces)
}

fn texts(rows: Vec<Vec<Option<String>>>) -> impl Iterator<Item = String> {
    rows.into_iter().filter_map(|row| row.into_iter().next().flatten())
}

/// True when the database says that a table or column isn't there: PostgreSQL by a code, SQLite in words.
fn is_missing(error: &sqlx::Error, postgres_code: &str, sqlite_words: &str) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    error.code().is_some_and(|code| code == postgres_code) || error.message().contains(sqlite_words)
}
