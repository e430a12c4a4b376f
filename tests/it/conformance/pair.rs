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
    /// The same by the name of Amazon S3 Tables: an ARN, and signed requests.
    S3Tables,
    /// Iceberg Java's own REST handlers.
    JavaRest,
    /// The same without keys for the store: the catalog has to vend them.
    VendingRest,
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
    Azurite,
}

/// A catalog and the store that its tables lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub catalog: CatalogKind,
    pub store: StoreKind,
}

pub const USER: &str = "admin";
pub const SECRET: &str = "adminsecret";

const AZURE_CONTAINER: &str = "abfss://plain@devstoreaccount1.dfs.core.windows.net/";
/// The account and the key that every emulator of Azure's storage has.
const AZURE_ACCOUNT: &str = "AccountName=devstoreaccount1;\
    AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

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
            Self::SeaweedRest | Self::S3Tables => server("SEAWEED_REST"),
            Self::JavaRest | Self::VendingRest => server("JAVA_REST"),
            Self::Glue | Self::IdleRest => server("MINISTACK"),
            Self::CarelessGlue => server("MOTO"),
        }
    }

    pub fn is_rest(self) -> bool {
        matches!(self, Self::SeaweedRest | Self::S3Tables | Self::JavaRest | Self::VendingRest | Self::IdleRest)
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
            Self::Azurite => server("AZURITE"),
        }
    }

    pub fn is_s3(self) -> bool {
        matches!(self, Self::SeaweedS3 | Self::MinistackS3 | Self::MotoS3)
    }

    /// True where a key may hold `//` and a listing can go on behind it: SeaweedFS makes one slash of it, and so does a disk;
    /// emulators of Azure, unlike Azure itself, begin no listing in the middle.
    pub fn keeps_double_slashes(self) -> bool {
        matches!(self, Self::MinistackS3 | Self::MotoS3 | Self::Gcs)
    }

    /// A bucket that has to be made first.
    pub fn bucket_to_create(self) -> Option<&'static str> {
        match self {
            Self::MinistackS3 | Self::MotoS3 => Some("s3://plain/"),
            Self::Azurite => Some(AZURE_CONTAINER),
            Self::Local | Self::SeaweedS3 | Self::Gcs => None,
        }
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
        if self.store == StoreKind::Azurite {
            let endpoint = format!("BlobEndpoint={}/devstoreaccount1", at.store);
            set("adls.connection-string", &format!("{AZURE_ACCOUNT};{endpoint}"));
        }
        let below = |folder: &str| match self.store {
            StoreKind::Local => format!("file://{}", at.folder.display()),
            StoreKind::Gcs => format!("gs://plain/{folder}"),
            StoreKind::Azurite => format!("{AZURE_CONTAINER}{folder}"),
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
            CatalogKind::S3Tables => {
                set("uri", at.catalog);
                set("warehouse", "arn:aws:s3tables:us-east-1:000000000000:bucket/warehouse");
                set("client.access-key-id", USER);
                set("client.secret-access-key", SECRET);
            }
            CatalogKind::JavaRest | CatalogKind::VendingRest => set("uri", at.catalog),
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
            CatalogKind::S3Tables => "s3tables",
            CatalogKind::Sqlite | CatalogKind::Postgres => "sql",
            catalog if catalog.is_rest() => "rest",
            _ => "glue",
        }
    }

    /// The properties that we are given.
    pub fn properties(self, at: Endpoints<'_>) -> BTreeMap<String, String> {
        let mut properties = self.common(at);
        properties.insert("type".into(), self.catalog_type().into());
        if self.catalog == CatalogKind::VendingRest {
            properties.retain(|key, _| !key.starts_with("s3.") || key == "s3.endpoint");
        }
        properties
    }

    /// The properties that PyIceberg is given.
    pub fn python_properties(self, at: Endpoints<'_>) -> BTreeMap<String, String> {
        let mut properties = self.common(at);
        let mut set = |key: &str, value: &str| _ = properties.insert(key.to_string(), value.to_string());
        match self.catalog {
            CatalogKind::FileSystem => set("py-catalog-impl", "hadoop.HadoopCatalog"),
            CatalogKind::S3Tables => {
                set("type", "rest");
                set("rest.sigv4-enabled", "true");
                set("rest.signing-name", "s3tables");
                set("rest.signing-region", "us-east-1");
            }
            _ => set("type", self.catalog_type()),
        }
        if self.catalog == CatalogKind::JavaRest && self.store.is_s3() {
            // By itself it puts tables on this disk.
            set("tables", "s3://plain/java");
        }
        if matches!(self.store, StoreKind::Gcs | StoreKind::Azurite) {
            set("py-io-impl", "stores.WebFileIO");
        }
        properties
    }
}
