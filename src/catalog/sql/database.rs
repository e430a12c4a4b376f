//! Which database a catalog's properties name, in the spellings of SQLAlchemy, JDBC and the databases themselves.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection as _, PgConnection, SqliteConnection};
use url::Url;

use super::connection::{Connection, in_time};

/// How long SQLite waits for somebody else's lock when the uri doesn't say.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The parameters of a PostgreSQL address that are passed on. Others are for other drivers.
const POSTGRES_PARAMETERS: [&str; 14] = [
    "user",
    "password",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "application_name",
    "options",
    "currentSchema",
];

/// A database that holds a catalog.
#[derive(Clone)]
pub(super) enum Database {
    Sqlite {
        file: PathBuf,
        /// How long to wait for somebody else's lock.
        busy_timeout: Duration,
    },
    Postgres(Box<PgConnectOptions>),
}

impl Database {
    /// Understands a `uri`; `user` and `password` are used where it has none. Errors say what is wrong without showing it.
    pub(super) fn parse(uri: &str, user: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        let address = uri.strip_prefix("jdbc:").unwrap_or(uri);
        let (scheme, rest) = address.split_once(':').ok_or("its uri has no scheme, such as sqlite: or postgresql:")?;
        let scheme = scheme.to_ascii_lowercase();
        // SQLAlchemy puts a driver's name behind the database's.
        match scheme.split('+').next().unwrap_or_default() {
            "sqlite" => sqlite(rest),
            "postgres" | "postgresql" => postgres(rest, user, password),
            other => Err(format!("databases are SQLite and PostgreSQL; {other:?} is neither")),
        }
    }

    /// Opens a connection of its own.
    pub(super) async fn connect(&self) -> sqlx::Result<Connection> {
        match self {
            Database::Sqlite { file, busy_timeout } => {
                // SQLite's own message doesn't tell a missing file from one that may not be read.
                if let Err(error) = std::fs::metadata(file) {
                    return Err(sqlx::Error::Io(error));
                }
                let options = SqliteConnectOptions::new().filename(file).busy_timeout(*busy_timeout);
                let options = options.disable_statement_logging();
                in_time(CONNECT_TIMEOUT, SqliteConnection::connect_with(&options)).await.map(Connection::Sqlite)
            }
            Database::Postgres(options) => {
                in_time(CONNECT_TIMEOUT, PgConnection::connect_with(options)).await.map(Connection::Postgres)
            }
        }
    }
}

/// Where the database is, without its password.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite { file, .. } => write!(f, "SQLite database {}", file.display()),
            Database::Postgres(options) => {
                let database = options.get_database().unwrap_or_else(|| options.get_username());
                let (host, port, user) = (options.get_host(), options.get_port(), options.get_username());
                write!(f, "PostgreSQL database {database} at {host}:{port} (user {user})")
            }
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `sqlite:file`, `sqlite:/file`, and SQLAlchemy's `sqlite:///file` and `sqlite:////file`; `timeout` is in seconds, as there.
fn sqlite(rest: &str) -> Result<Database, String> {
    let rest = rest.strip_prefix("///").unwrap_or(rest);
    let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() || path == "//" || path.contains(":memory:") {
        return Err("its uri names no file: a database in memory holds nobody's tables".into());
    }
    if path.starts_with("//") || path.starts_with("file:") {
        return Err("its uri must be sqlite:///relative.db, sqlite:////absolute.db or sqlite:file.db".into());
    }
    let timeout = parameters.split('&').find_map(|parameter| parameter.strip_prefix("timeout="));
    let busy_timeout = match timeout.map(|seconds| (seconds, seconds.parse().map(Duration::try_from_secs_f64))) {
        None => BUSY_TIMEOUT,
        Some((_, Ok(Ok(timeout)))) => timeout,
        Some((seconds, _)) => {
            return Err(format!("the timeout of its uri is {seconds:?}, which is no number of seconds"));
        }
    };
    Ok(Database::Sqlite { file: path.into(), busy_timeout })
}

fn postgres(rest: &str, user: Option<&str>, password: Option<&str>) -> Result<Database, String> {
    let unclear = "its uri is no address of a database. Give postgresql://host:port/database";
    let mut url = Url::parse(&format!("postgresql:{rest}")).map_err(|error| format!("{unclear} ({error})"))?;
    if !rest.starts_with("//") {
        return Err(unclear.into());
    }
    let parameters: Vec<(String, String)> =
        url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    let known = |name: &str| POSTGRES_PARAMETERS.contains(&name);
    url.set_query(None);
    for (name, value) in parameters.iter().filter(|(name, _)| known(name)) {
        match name.as_str() {
            // JDBC's name for the search path.
            "currentSchema" => url.query_pairs_mut().append_pair("options[search_path]", value),
            _ => url.query_pairs_mut().append_pair(name, value),
        };
    }
    let mut options = PgConnectOptions::from_url(&url).map_err(|error| format!("{unclear} ({error})"))?;
    let has = |name: &str| parameters.iter().any(|(given, _)| given == name);
    if let Some(user) = user.filter(|_| url.username().is_empty() && !has("user")) {
        options = options.username(user);
    }
    if let Some(password) = password.filter(|_| url.password().is_none() && !has("password")) {
        options = options.password(password);
    }
    Ok(Database::Postgres(Box::new(options.disable_statement_logging())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(uri: &str) -> String {
        Database::parse(uri, Some("jdbc_user"), Some("hush")).map_or_else(|why| why, |database| database.to_string())
    }

    #[test]
    fn sqlite_files_are_named_as_sqlalchemy_and_jdbc_do() {
        for (uri, file) in [
            ("sqlite:///dir/file.db", "dir/file.db"),
            ("sqlite:////dir/file.db", "/dir/file.db"),
            ("sqlite+pysqlite:////dir/file.db?timeout=3", "/dir/file.db"),
            ("sqlite:file.db", "file.db"),
            ("jdbc:sqlite:/dir/file.db", "/dir/file.db"),
        ] {
            assert_eq!(parsed(uri), format!("SQLite database {file}"), "{uri}");
        }
        assert!(parsed("sqlite:f.db?timeout=soon").contains("\"soon\""));
        for refused in ["sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/file.db"] {
            assert!(parsed(refused).starts_with("its uri"), "{refused}: {}", parsed(refused));
        }
    }

    #[test]
    fn postgresql_is_named_as_sqlalchemy_and_jdbc_do() {
        for (uri, place) in [
            ("postgresql://u:secret@h:5433/db", "db at h:5433 (user u)"),
            ("postgresql+psycopg2://u@h/db", "db at h:5432 (user u)"),
            ("postgres://h/db", "db at h:5432 (user jdbc_user)"),
            ("jdbc:postgresql://h/db?user=me&password=secret&currentSchema=s&loginTimeout=3", "db at h:5432 (user me)"),
        ] {
            assert_eq!(parsed(uri), format!("PostgreSQL database {place}"), "{uri}");
        }
        assert!(parsed("jdbc:postgresql:db").contains("Give postgresql://"));
    }

    #[test]
    fn other_databases_are_refused_by_name() {
        assert!(parsed("mysql+pymysql://u:secret@h/db").contains("\"mysql\""));
        assert!(parsed("file.db").contains("no scheme"));
    }

    #[test]
    fn a_password_is_never_shown() {
        let database = Database::parse("postgresql://u:secret@h/db", None, Some("hush")).unwrap();
        let shown = format!("{database} {database:?}");
        assert!(!shown.contains("secret") && !shown.contains("hush"), "{shown}");
    }
}
