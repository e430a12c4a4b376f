//! Which catalogs and stores there are, where their servers run, and how each side is told of them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::in_ci;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogKind {
    /// No catalog: a folder of tables.
    FileSystem,
    Sqlite,
    Postgres,
    /// SeaweedFS' Iceberg REST catalog, with OAuth2.
    SeaweedRest,
    /// The same with signed requests, as S3 Tables' endpoint wants them.
    SeaweedRestSigned,
    /// Iceberg Java's own REST handlers.
    JavaRest,
    /// Ministack's, which checks versions.
    Glue,
    /// Moto's, which ignores versions.
    CarelessGlue,
    /// Ministack's REST catalog, which answers 200 and ignores most updates.
    IdleRest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    Local,
    SeaweedS3,
    MinistackS3,
    MotoS3,
    Gcs,
}

/// A catalog and the store that its tables lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub catalog: CatalogKind,
    pub store: StoreKind,
}

pub const USER: &str = "admin";
pub const SECRET: &str = "adminsecret";

/// Where each side finds a pair's servers.
#[derive(Debug, Clone, Copy)]
pub struct Endpoints<'a> {
    pub catalog: &'a str,
    pub store: &'a str,
    /// Holds what is on this disk: tables, or SQLite's database.
    pub folder: &'a Path,
}

/// What `tests/servers/start` said of a server. In CI a missing one fails the test; elsewhere the reason is printed.
pub fn server(variable: &str) -> Option<String> {
    let variable = format!("ICEBERG_MAINTENANCE_{variable}");
    let found = std::env::var(&variable).ok();
    if found.is_none() {
        let message = format!("{variable} is not set: start the servers with tests/servers/start, as .ci/run does");
        assert!(!in_ci(), "{message}");
        eprintln!("not run: {message}");
    }
    found
}

impl CatalogKind {
    /// Where its server is; empty for one that has none.
    pub fn url(self) -> Option<String> {
        match self {
            Self::FileSystem | Self::Sqlite => Some(String::new()),
            Self::Postgres => server("POSTGRES"),
            Self::SeaweedRest | Self::SeaweedRestSigned => server("SEAWEED_REST"),
            Self::JavaRest => server("JAVA_REST"),
            Self::Glue | Self::IdleRest => server("MINISTACK"),
            Self::CarelessGlue => server("MOTO"),
        }
    }

    pub fn is_rest(self) -> bool {
        matches!(self, Self::SeaweedRest | Self::SeaweedRestSigned | Self::JavaRest | Self::IdleRest)
    }

    pub fn is_glue(self) -> bool {
        matches!(self, Self::Glue | Self::CarelessGlue)
    }

    /// True when requests to it go through the proxy.
    pub fn speaks_http(self) -> bool {
        self.is_rest() || self.is_glue()
    }
}

impl StoreKind {
    pub fn url(self) -> Option<String> {
        match self {
            Self::Local => Some(String::new()),
            Self::SeaweedS3 => server("SEAWEED_S3"),
            Self::MinistackS3 => server("MINISTACK"),
            Self::MotoS3 => server("MOTO"),
            Self::Gcs => server("GCS"),
        }
    }

    pub fn is_s3(self) -> bool {
        matches!(self, Self::SeaweedS3 | Self::MinistackS3 | Self::MotoS3)
    }

    /// True where a key may hold `//`: SeaweedFS makes one slash of it, and so does a disk.
    pub fn keeps_double_slashes(self) -> bool {
        matches!(self, Self::MinistackS3 | Self::MotoS3 | Self::Gcs)
    }

    /// A bucket that has to be made first.
    pub fn bucket_to_create(self) -> Option<&'static str> {
        matches!(self, Self::MinistackS3 | Self::MotoS3).then_some("plain")
    }
}

impl Pair {
    /// Keys as PyIceberg and Iceberg name them, the same for both sides.
    fn common(self, at: Endpoints<'_>) -> BTreeMap<String, String> {
        let mut properties = BTreeMap::new();
        let mut set = |key: &str, value: &str| _ = properties.insert(key.to_string(), value.to_string());
        if self.store.is_s3() {
            set("s3.endpoint", at.store);
            set("s3.access-key-id", USER);
            set("s3.secret-access-key", SECRET);
            set("s3.region", "us-east-1");
            set("client.region", "us-east-1");
        }
        if self.store == StoreKind::Gcs {
            set("gcs.service.host", at.store);
            set("gcs.no-auth", "true");
        }
        let below = |folder: &str| match self.store {
            StoreKind::Local => format!("file://{}", at.folder.display()),
            StoreKind::Gcs => format!("gs://plain/{folder}"),
            _ => format!("s3://plain/{folder}"),
        };
        match self.catalog {
            CatalogKind::FileSystem => set("warehouse", &below("files")),
            CatalogKind::Sqlite => {
                set("uri", &format!("sqlite:///{}/catalog.db", at.folder.display()));
                set("warehouse", &below("sqlite"));
            }
            CatalogKind::Postgres => {
                // As SQLAlchemy spells it: the driver that is installed beside PyIceberg.
                set("uri", &at.catalog.replacen("postgresql:", "postgresql+psycopg2:", 1));
                set("warehouse", &below("postgres"));
            }
            CatalogKind::SeaweedRest => {
                set("uri", at.catalog);
                set("warehouse", "warehouse");
                set("credential", &format!("{USER}:{SECRET}"));
            }
            CatalogKind::SeaweedRestSigned => {
                set("uri", at.catalog);
                set("warehouse", "warehouse");
                set("rest.sigv4-enabled", "true");
                set("rest.signing-name", "s3tables");
                set("rest.signing-region", "us-east-1");
                set("client.access-key-id", USER);
                set("client.secret-access-key", SECRET);
            }
            CatalogKind::JavaRest => set("uri", at.catalog),
            CatalogKind::Glue | CatalogKind::CarelessGlue => {
                set("glue.endpoint", at.catalog);
                set("glue.access-key-id", USER);
                set("glue.secret-access-key", SECRET);
                set("glue.region", "us-east-1");
                set("warehouse", &below("glue"));
            }
            CatalogKind::IdleRest => {
                set("uri", &format!("{}/iceberg", at.catalog));
                set("warehouse", "plain");
            }
        }
        properties
    }

    fn catalog_type(self) -> &'static str {
        match self.catalog {
            CatalogKind::FileSystem => "hadoop",
            CatalogKind::Sqlite | CatalogKind::Postgres => "sql",
            catalog if catalog.is_rest() => "rest",
            _ => "glue",
        }
    }

    /// The properties that we are given.
    pub fn properties(self, at: Endpoints<'_>) -> BTreeMap<String, String> {
        let mut properties = self.common(at);
        properties.insert("type".into(), self.catalog_type().into());
        properties
    }

    /// The properties that PyIceberg is given.
    pub fn python_properties(self, at: Endpoints<'_>) -> BTreeMap<String, String> {
        let mut properties = self.common(at);
        match self.catalog {
            CatalogKind::FileSystem => properties.insert("py-catalog-impl".into(), "hadoop.HadoopCatalog".into()),
            _ => properties.insert("type".into(), self.catalog_type().into()),
        };
        if self.store == StoreKind::Gcs {
            properties.insert("py-io-impl".into(), "stores.GcsFileIO".into());
        }
        properties
    }
}
