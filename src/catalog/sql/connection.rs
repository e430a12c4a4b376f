//! One connection to either database. All values are text.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection, Postgres, Row as _, Sqlite, SqliteConnection};

/// How long a statement may take, waiting for locks included.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A row of text columns.
pub(super) type TextRow = Vec<Option<String>>;

/// A connection.
#[derive(Debug)]
pub(super) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Connection {
    /// Runs a query; `$1`, `$2`, … stand for the arguments.
    pub(super) async fn rows(&mut self, sql: &'static str, arguments: &[&str]) -> sqlx::Result<Vec<TextRow>> {
        // Statements are not kept: poolers in front of PostgreSQL may hand the next one to another server process.
        match self {
            Connection::Sqlite(connection) => {
                let query = sqlx::query::<Sqlite>(sql).persistent(false);
                let query = arguments.iter().fold(query, |query, argument| query.bind((*argument).to_string()));
                let rows = in_time(STATEMENT_TIMEOUT, query.fetch_all(connection)).await?;
                rows.iter().map(|row| (0..row.len()).map(|column| row.try_get(column)).collect()).collect()
            }
            Connection::Postgres(connection) => {
                let query = sqlx::query::<Postgres>(sql).persistent(false);
                let query = arguments.iter().fold(query, |query, argument| query.bind((*argument).to_string()));
                let rows = in_time(STATEMENT_TIMEOUT, query.fetch_all(connection)).await?;
                rows.iter().map(|row| (0..row.len()).map(|column| row.try_get(column)).collect()).collect()
            }
        }
    }

    /// Runs a statement and gives the number of rows that it changed.
    pub(super) async fn execute(&mut self, sql: &'static str, arguments: &[&str]) -> sqlx::Result<u64> {
        match self {
            Connection::Sqlite(connection) => {
                let query = sqlx::query::<Sqlite>(sql).persistent(false);
                let query = arguments.iter().fold(query, |query, argument| query.bind((*argument).to_string()));
                Ok(in_time(STATEMENT_TIMEOUT, query.execute(connection)).await?.rows_affected())
            }
            Connection::Postgres(connection) => {
                let query = sqlx::query::<Postgres>(sql).persistent(false);
                let query = arguments.iter().fold(query, |query, argument| query.bind((*argument).to_string()));
                Ok(in_time(STATEMENT_TIMEOUT, query.execute(connection)).await?.rows_affected())
            }
        }
    }

    /// Begins a transaction that can change rows.
    pub(super) async fn begin(&mut self) -> sqlx::Result<()> {
        match self {
            // Takes the lock for writing now: a transaction that begins by reading could not wait for it later.
            Connection::Sqlite(_) => self.execute("BEGIN IMMEDIATE", &[]).await.map(|_| ()),
            Connection::Postgres(_) => {
                self.execute("BEGIN", &[]).await?;
                self.execute("SET LOCAL lock_timeout = '10s'", &[]).await.map(|_| ())
            }
        }
    }

    /// Takes a transaction back. True when that proves that a COMMIT that failed before did nothing.
    ///
    /// SQLite takes back only what is still open; PostgreSQL says yes even when there is no transaction.
    pub(super) async fn take_back(&mut self) -> bool {
        let taken_back = self.execute("ROLLBACK", &[]).await.is_ok();
        taken_back && matches!(self, Connection::Sqlite(_))
    }

    /// Says good-bye, so that the server's log shows no lost connection. Nothing depends on it.
    pub(super) async fn close(self) {
        let closed = match self {
            Connection::Sqlite(connection) => in_time(CLOSE_TIMEOUT, connection.close()).await,
            Connection::Postgres(connection) => in_time(CLOSE_TIMEOUT, connection.close()).await,
        };
        if let Err(error) = closed {
            tracing::debug!(%error, "closing a catalog's connection failed");
        }
    }
}

/// Fails as a time-out after `limit`.
pub(super) async fn in_time<T>(limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let late = || sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time"));
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}
