//! Which bucket or container a URL names, whichever way it is spelled.

use std::fmt;

use url::Url;

/// The domains that Azure answers for: its clouds, the zones of DNS, and OneLake.
const AZURE_DOMAINS: [&str; 6] = [
    ".blob.core.windows.net",
    ".blob.core.chinacloudapi.cn",
    ".blob.core.usgovcloudapi.net",
    ".blob.core.cloudapi.de",
    ".blob.storage.azure.net",
    ".blob.fabric.microsoft.com",
];

/// What one object store serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Bucket {
    S3 {
        bucket: String,
    },
    Azure {
        container: String,
        /// The account's name and its blob host, as far as the URL says them.
        account: Option<Account>,
    },
    Google {
        bucket: String,
    },
    Http {
        /// Scheme, host and port.
        origin: String,
    },
    Memory {
        name: String,
    },
}

/// A storage account of Azure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Account {
    pub name: String,
    /// `None` where the URL has nothing but the account's name.
    pub blob_host: Option<String>,
}

/// The settings that a bucket goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    S3,
    Azure,
    Google,
    Http,
    Memory,
}

impl Family {
    /// `None` for a scheme that no store here serves.
    pub(super) fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme.to_ascii_lowercase().as_str() {
            "s3" | "s3a" | "s3n" => Some(Self::S3),
            "abfs" | "abfss" | "wasb" | "wasbs" | "az" | "azure" | "adl" => Some(Self::Azure),
            "gs" => Some(Self::Google),
            "http" | "https" => Some(Self::Http),
            "memory" => Some(Self::Memory),
            _ => None,
        }
    }

    /// The family that a property speaks of.
    pub(super) fn of_key(key: &str) -> Option<Self> {
        let families = [Self::S3, Self::Azure, Self::Google];
        families.into_iter().find(|family| family.key_prefixes().iter().any(|begin| key.starts_with(begin)))
    }

    /// How the keys of its properties begin.
    pub(super) fn key_prefixes(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["s3.", "client."],
            Self::Azure => &["adls."],
            Self::Google => &["gcs."],
            Self::Http | Self::Memory => &[],
        }
    }

    /// The cargo feature without which there is no client for it.
    pub(super) fn feature(self) -> Option<&'static str> {
        let (feature, is_there) = match self {
            Self::S3 => ("aws", cfg!(feature = "aws")),
            Self::Azure => ("azure", cfg!(feature = "azure")),
            Self::Google => ("gcp", cfg!(feature = "gcp")),
            Self::Http => ("http", cfg!(feature = "http")),
            Self::Memory => return None,
        };
        (!is_there).then_some(feature)
    }
}

impl Bucket {
    /// # Errors
    /// Why the URL names no bucket.
    pub(super) fn parse(url: &Url) -> Result<Self, String> {
        let family =
            Family::of_scheme(url.scheme()).ok_or_else(|| format!("no store is known for {}://", url.scheme()))?;
        let host = url.host_str().unwrap_or_default();
        if url.password().is_some() || (family != Family::Azure && !url.username().is_empty()) {
            return Err("a user or password in it is not supported".into());
        }
        if host.is_empty() && family != Family::Memory {
            return Err("it names no bucket".into());
        }
        Ok(match family {
            Family::S3 => Self::S3 { bucket: host.into() },
            Family::Google => Self::Google { bucket: host.into() },
            Family::Memory => Self::Memory { name: host.into() },
            Family::Http => Self::Http { origin: url[..url::Position::BeforePath].into() },
            Family::Azure if url.username().is_empty() => Self::Azure { container: host.into(), account: None },
            Family::Azure => {
                Self::Azure { container: url.username().into(), account: Some(Account::of_host(host, url.port())) }
            }
        })
    }

    pub(super) fn family(&self) -> Family {
        match self {
            Self::S3 { .. } => Family::S3,
            Self::Azure { .. } => Family::Azure,
            Self::Google { .. } => Family::Google,
            Self::Http { .. } => Family::Http,
            Self::Memory { .. } => Family::Memory,
        }
    }

    /// The key's prefix that a credential's prefix covers in this bucket; empty for all of it, `None` for nothing.
    ///
    /// The prefix may be a scheme alone, as `s3`.
    pub(super) fn covered_by(&self, prefix: &str) -> Option<String> {
        let (family, named, key) = Self::of_prefix(prefix)?;
        let covers = family == self.family() && named.is_none_or(|named| self.is_same(&named));
        covers.then(|| key.to_string())
    }

    /// True when a credential's prefix names this bucket completely.
    pub(super) fn is_named_by(&self, prefix: &str) -> bool {
        matches!(Self::of_prefix(prefix), Some((_, Some(named), _)) if named == *self)
    }

    /// The family of a credential's prefix, its bucket unless it is a scheme alone, and its key.
    fn of_prefix(prefix: &str) -> Option<(Family, Option<Self>, &str)> {
        let scheme = prefix.split("://").next().unwrap_or_default().trim_end_matches(':');
        let family = Family::of_scheme(scheme)?;
        let rest = prefix[scheme.len()..].trim_start_matches(':').trim_start_matches("//");
        if rest.is_empty() {
            return Some((family, None, ""));
        }
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        let named = Self::parse(&Url::parse(&format!("{scheme}://{authority}")).ok()?).ok()?;
        Some((family, Some(named), key))
    }

    /// The same bucket; on Azure, one without an account is in any.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Azure { container, account }, Self::Azure { container: other, account: other_account }) => {
                let accounts = account.as_ref().zip(other_account.as_ref());
                container == other && accounts.is_none_or(|(one, other)| one.is_same(other))
            }
            _ => self == other,
        }
    }
}

impl Account {
    /// An account's host is `<account>.blob.<cloud>` or `<account>.dfs.<cloud>`, of which the first takes all requests here.
    fn of_host(host: &str, port: Option<u16>) -> Self {
        let host = host.to_ascii_lowercase();
        let name = host.split('.').next().unwrap_or_default().to_string();
        let labels: Vec<&str> = host.split('.').map(|label| if label == "dfs" { "blob" } else { label }).collect();
        let blob_host = (labels.len() > 1).then(|| match port {
            Some(port) => format!("{}:{port}", labels.join(".")),
            None => labels.join("."),
        });
        Self { name, blob_host }
    }

    /// True where Azure itself answers, whoever wrote the URL.
    pub(super) fn is_azures_own(&self) -> bool {
        let host = self.blob_host.as_deref().map(|host| host.split(':').next().unwrap_or_default());
        host.is_none_or(|host| AZURE_DOMAINS.iter().any(|domain| host.ends_with(domain)))
    }

    /// The same name in the same cloud. Without a host it is one of Azure's.
    fn is_same(&self, other: &Self) -> bool {
        let is_same_host = match (&self.blob_host, &other.blob_host) {
            (Some(one), Some(other)) => one == other,
            _ => self.is_azures_own() && other.is_azures_own(),
        };
        self.name == other.name && is_same_host
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket } => write!(f, "s3://{bucket}"),
            Self::Azure { container, account: None } => write!(f, "abfss://{container}"),
            Self::Azure { container, account: Some(Account { name, blob_host }) } => {
                write!(f, "abfss://{container}@{}", blob_host.as_ref().unwrap_or(name))
            }
            Self::Google { bucket } => write!(f, "gs://{bucket}"),
            Self::Http { origin } => f.write_str(origin),
            Self::Memory { name } => write!(f, "memory://{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(url: &str) -> Result<Bucket, String> {
        Bucket::parse(&Url::parse(url).unwrap())
    }

    #[test]
    fn spellings_of_a_bucket_are_one() {
        for (one, other) in [
            ("s3://b", "s3a://b/"),
            ("s3://b", "s3n://b"),
            ("abfss://c@a.dfs.core.windows.net", "wasbs://c@a.blob.core.windows.net/"),
            ("abfs://c@A.dfs.core.chinacloudapi.cn", "abfss://c@a.blob.core.chinacloudapi.cn"),
            ("http://h:80", "http://h/"),
        ] {
            assert_eq!(bucket(one).unwrap(), bucket(other).unwrap());
        }
        assert_ne!(bucket("s3://b").unwrap(), bucket("gs://b").unwrap());
        assert_ne!(bucket("abfss://c@a.dfs.core.windows.net"), bucket("abfss://d@a.dfs.core.windows.net"));
    }

    #[test]
    fn what_names_no_bucket_is_refused_without_its_password() {
        for url in ["ftp://h", "https://user:secret@h", "file:///t", "abfss://c:secret@a.dfs.core.windows.net"] {
            let error = bucket(url).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_credentials_prefix_covers_a_part_of_its_bucket() {
        let (s3, azure) = (bucket("s3://b").unwrap(), bucket("abfss://c@a.dfs.core.windows.net").unwrap());
        for (prefix, covered) in [
            ("s3://b/w/t", Some("w/t")),
            ("s3a://b/w/t/", Some("w/t/")),
            ("s3://b", Some("")),
            ("s3", Some("")),
            ("s3://", Some("")),
            ("s3://bb/w", None),
            ("s3://", Some("")),
            ("gs://b/w", None),
            ("", None),
        ] {
            assert_eq!(s3.covered_by(prefix).as_deref(), covered, "{prefix}");
        }
        for (prefix, covered) in [
            ("abfss://c@a.blob.core.windows.net/w", Some("w")),
            ("wasb", Some("")),
            ("abfss://c@b.dfs.core.windows.net/w", None),
            ("abfss://c@a.dfs.core.chinacloudapi.cn/w", None),
            ("abfss://c@a.dfs.elsewhere.example/w", None),
            ("abfss://c@a/w", Some("w")),
            ("abfss://d@a.dfs.core.windows.net", None),
        ] {
            assert_eq!(azure.covered_by(prefix).as_deref(), covered, "{prefix}");
        }
        let elsewhere = bucket("abfss://c@a.dfs.elsewhere.example").unwrap();
        for (prefix, covered, named) in [
            ("abfss://c@a/w", None, false),
            ("abfss", Some(""), false),
            ("wasbs://c@a.blob.elsewhere.example/w", Some("w"), true),
        ] {
            assert_eq!(elsewhere.covered_by(prefix).as_deref(), covered, "{prefix}");
            assert_eq!(elsewhere.is_named_by(prefix), named, "{prefix}");
        }
    }
}
