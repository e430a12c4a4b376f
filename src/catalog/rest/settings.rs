//! A catalog's properties, and what the server's configuration makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::paths::{Paths, printable};
use crate::storage::configured::overlaid;

/// Catalog or table properties by their names.
pub(super) type Properties = BTreeMap<String, String>;

/// Names another server for tokens than the catalog's own.
pub(super) const TOKEN_SERVER: &str = "oauth2-server-uri";

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request that changes nothing may take, answer included.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a commit may take. Removing many snapshots keeps a server busy, and giving up early gains nothing.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(300);

/// What the properties say of the server and the way to it.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) properties: Properties,
    pub(super) uri: Url,
    /// Where tokens are bought unless `oauth2-server-uri` names another server: at the address that the client was given.
    pub(super) token_uri: Url,
    /// `header.*`
    pub(super) headers: HeaderMap,
    pub(super) connect_timeout: Duration,
    pub(super) read_timeout: Duration,
    pub(super) commit_timeout: Duration,
    /// How many entries a page of a listing has; the server decides by default.
    pub(super) page_size: Option<u32>,
}

impl Settings {
    /// # Errors
    /// Which property is missing or wrong.
    pub(super) fn new(properties: &Properties) -> Result<Self, String> {
        let uri =
            properties.get("uri").ok_or("it has no uri: give the server's address, such as uri=https://host/path")?;
        refuse_unsupported(properties)?;
        let socket_timeout = milliseconds(properties, "rest.client.socket-timeout-ms")?;
        let uri = parse_uri(uri)?;
        Ok(Self {
            token_uri: uri.clone(),
            uri,
            headers: headers(properties)?,
            connect_timeout: milliseconds(properties, "rest.client.connection-timeout-ms")?.unwrap_or(CONNECT_TIMEOUT),
            read_timeout: socket_timeout.unwrap_or(READ_TIMEOUT),
            commit_timeout: socket_timeout.unwrap_or(COMMIT_TIMEOUT),
            page_size: number(properties, "rest-page-size")?,
            properties: properties.clone(),
        })
    }
}

fn parse_uri(uri: &str) -> Result<Url, String> {
    // The text may hold a password: it is not repeated.
    let url = Url::parse(uri).map_err(|why| format!("its uri is no URL: {why}"))?;
    match (matches!(url.scheme(), "http" | "https") && url.has_host(), url.query()) {
        (true, None) => Ok(url),
        (true, Some(_)) => Err("its uri has a query; give what it says as properties".into()),
        (false, _) => Err(format!("its uri has the scheme {:?}; http and https are supported", url.scheme())),
    }
}

/// Properties that decide whether a server can be trusted, or trusts us, are not ignored.
fn refuse_unsupported(properties: &Properties) -> Result<(), String> {
    for (family, instead) in [
        ("auth.", "give token, or credential with oauth2-server-uri and scope, or header.Authorization"),
        ("ssl.", "name the file with trusted certificates in the environment variable SSL_CERT_FILE"),
    ] {
        if let Some(key) = properties.keys().find(|key| key.starts_with(family)) {
            return Err(format!("{key} is not supported: {instead}"));
        }
    }
    Ok(())
}

fn headers(properties: &Properties) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (key, value) in properties {
        let Some(name) = key.strip_prefix("header.") else { continue };
        let wrong = |what: &str| format!("{key} is no valid {what} of an HTTP header");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong("value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn milliseconds(properties: &Properties, key: &str) -> Result<Option<Duration>, String> {
    Ok(number(properties, key)?.map(|ms: u32| Duration::from_millis(u64::from(ms.max(1)))))
}

fn number(properties: &Properties, key: &str) -> Result<Option<u32>, String> {
    let parse = |text: &String| text.trim().parse().map_err(|_| format!("{key} is {text:?}, not a number"));
    properties.get(key).map(parse).transpose()
}

/// True for the spellings of "yes" that Java and PyIceberg take.
pub(super) fn is_true(properties: &Properties, key: &str) -> bool {
    properties.get(key).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// The answer to `GET /v1/config`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Configuration {
    #[serde(default)]
    defaults: Option<BTreeMap<String, Option<String>>>,
    #[serde(default)]
    overrides: Option<BTreeMap<String, Option<String>>>,
    #[serde(default)]
    endpoints: Option<Vec<String>>,
    #[serde(default)]
    idempotency_key_lifetime: Option<String>,
}

/// A server as its configuration describes it.
pub(super) struct Server {
    pub(super) settings: Settings,
    pub(super) paths: Paths,
    /// `METHOD path` of everything it can do, if it says so.
    endpoints: Option<BTreeSet<String>>,
    /// It remembers commits by their `Idempotency-Key`.
    pub(super) takes_idempotency_keys: bool,
}

impl Server {
    /// The client's properties win over the server's defaults, its overrides over the client's. `null` takes a property
    /// away.
    ///
    /// # Errors
    /// Which property is wrong.
    pub(super) fn new(client: &Properties, configuration: Configuration) -> Result<Self, String> {
        let merged = merged(client, configuration.defaults, configuration.overrides);
        let mut settings = Settings::new(&merged)?;
        let is_plain = |properties: &Properties| {
            properties.get("uri").is_some_and(|uri| !uri.trim().to_ascii_lowercase().starts_with("https:"))
        };
        if is_plain(&merged) && !is_plain(client) {
            return Err("the server names an address without encryption (http) to go on with, which is refused".into());
        }
        // What the server gave itself it may have sent anywhere.
        if merged.get("credential").is_some_and(|credential| client.get("credential") == Some(credential)) {
            settings.token_uri = Settings::new(client)?.uri;
            refuse_foreign_token_server(client, &settings)?;
        }
        let property = |key: &str| merged.get(key).map(String::as_str);
        Ok(Self {
            paths: Paths::new(settings.uri.clone(), property("prefix"), property("namespace-separator")),
            endpoints: configuration.endpoints.map(|endpoints| endpoints.into_iter().collect()),
            takes_idempotency_keys: configuration.idempotency_key_lifetime.is_some(),
            settings,
        })
    }

    /// Whether the server says that it has an endpoint, such as `GET /v1/{prefix}/namespaces`. `None` when it says nothing.
    pub(super) fn has(&self, endpoint: &str) -> Option<bool> {
        self.endpoints.as_ref().map(|endpoints| endpoints.contains(endpoint))
    }
}

/// The server's defaults, the client's properties over them, the server's overrides over both. The parts of a credential
/// come from one of these.
fn merged(
    client: &Properties,
    defaults: Option<BTreeMap<String, Option<String>>>,
    overrides: Option<BTreeMap<String, Option<String>>>,
) -> Properties {
    let mut merged = overlaid(&given(defaults.unwrap_or_default()), client);
    let overrides = overrides.unwrap_or_default();
    merged.retain(|key, _| overrides.get(key) != Some(&None));
    overlaid(&merged, &given(overrides))
}

fn given(properties: BTreeMap<String, Option<String>>) -> Properties {
    properties.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// The client's credential is good for long, and for whatever its owner may do: it goes to no server that only another
/// server names.
fn refuse_foreign_token_server(client: &Properties, settings: &Settings) -> Result<(), String> {
    let named = settings.properties.get(TOKEN_SERVER).filter(|uri| !uri.is_empty());
    let Some(named) = named.filter(|uri| client.get(TOKEN_SERVER) != Some(uri)) else { return Ok(()) };
    let server = token_server(&settings.token_uri, named)?;
    match server.origin() == settings.token_uri.origin() {
        true => Ok(()),
        false => {
            let server = printable(&server);
            Err(format!(
                "the server says that {server} gives the tokens, but the credential is sent nowhere because a server says \
                 so. If it belongs there, give {TOKEN_SERVER}={server}"
            ))
        }
    }
}

/// The address of `oauth2-server-uri`, which may be a path at the catalog's own server.
///
/// # Errors
/// When it is no URL.
pub(super) fn token_server(own: &Url, named: &str) -> Result<Url, String> {
    let url = match named.contains("://") {
        true => named.to_string(),
        false => format!("{}/{}", own.as_str().trim_end_matches('/'), named.trim_start_matches('/')),
    };
    Url::parse(&url).map_err(|why| format!("{TOKEN_SERVER} is no URL: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn the_client_wins_over_defaults_and_overrides_over_the_client() {
        let configuration = serde_json::from_str(
            r#"{"defaults":{"a":"d","b":"d","c":"d"},"overrides":{"c":"o","prefix":"p/q","uri":"https://other/x","gone":null},
                "endpoints":["GET /v1/{prefix}/namespaces"],"idempotency-key-lifetime":"PT30M","new":1}"#,
        )
        .unwrap();
        let client = properties(&[("uri", "http://h"), ("b", "c"), ("c", "c"), ("gone", "c")]);
        let server = Server::new(&client, configuration).unwrap();
        assert_eq!(
            server.settings.properties,
            properties(&[("a", "d"), ("b", "c"), ("c", "o"), ("prefix", "p/q"), ("uri", "https://other/x")])
        );
        assert_eq!(server.paths.namespaces().unwrap().as_str(), "https://other/x/v1/p/q/namespaces");
        assert_eq!(server.has("GET /v1/{prefix}/namespaces"), Some(true));
        assert_eq!(server.has("GET /v1/{prefix}/x"), Some(false));
        assert!(server.takes_idempotency_keys);
    }

    #[test]
    fn a_server_can_t_turn_encryption_off() {
        let configuration = |uri: &str| Configuration {
            overrides: Some(BTreeMap::from([("uri".to_string(), Some(uri.to_string()))])),
            ..Configuration::default()
        };
        let client = properties(&[("uri", "https://h")]);
        let why = Server::new(&client, configuration("http://h")).err().unwrap();
        assert!(why.contains("without encryption"), "{why}");
        assert!(Server::new(&client, configuration("https://other")).is_ok());
        assert!(Server::new(&properties(&[("uri", "http://h")]), configuration("http://other")).is_ok());
    }

    #[test]
    fn parts_of_a_credential_come_from_one_place() {
        let configuration = serde_json::from_str(
            r#"{"defaults":{"s3.session-token":"d","gcs.oauth2.token":"d"},"overrides":{"adls.token":"o"}}"#,
        )
        .unwrap();
        let client = properties(&[
            ("uri", "https://h"),
            ("s3.access-key-id", "c"),
            ("s3.secret-access-key", "c"),
            ("adls.account-key", "c"),
        ]);
        let server = Server::new(&client, configuration).unwrap();
        let expected = [
            ("uri", "https://h"),
            ("s3.access-key-id", "c"),
            ("s3.secret-access-key", "c"),
            ("gcs.oauth2.token", "d"),
            ("adls.token", "o"),
        ];
        assert_eq!(server.settings.properties, properties(&expected));
    }

    #[test]
    fn the_clients_credential_goes_to_no_server_that_only_another_names() {
        let merged = |client: &[(&str, &str)], overrides: &[(&str, &str)]| {
            let overrides = properties(overrides).into_iter().map(|(key, value)| (key, Some(value))).collect();
            let configuration = Configuration { overrides: Some(overrides), ..Configuration::default() };
            Server::new(&properties(client), configuration).map(|server| server.settings.token_uri.to_string())
        };
        let client = [("uri", "https://h/c"), ("credential", "id:hidden")];
        for named in ["https://other/t?x=hidden", "http://h/t", "https://h:8443/t"] {
            let why = merged(&client, &[(TOKEN_SERVER, named)]).unwrap_err();
            assert!(why.contains("give oauth2-server-uri=http") && !why.contains("hidden"), "{why}");
            let also = [client[0], client[1], (TOKEN_SERVER, named)];
            assert!(merged(&also, &[(TOKEN_SERVER, named)]).is_ok(), "the client named it too");
            assert!(merged(&client, &[(TOKEN_SERVER, named), ("credential", "theirs")]).is_ok(), "it is their own");
            assert!(merged(&client[..1], &[(TOKEN_SERVER, named)]).is_ok(), "there is none");
        }
        for named in ["https://h/t", "v1/oauth/tokens"] {
            assert!(merged(&client, &[(TOKEN_SERVER, named)]).is_ok(), "{named}");
        }
        assert_eq!(
            merged(&client, &[("uri", "https://other")]).unwrap(),
            "https://h/c",
            "a token is bought where it was"
        );
    }

    #[test]
    fn a_wrong_property_is_named_and_not_repeated() {
        for (pairs, says) in [
            (&[][..], "no uri"),
            (&[("uri", "user:secret@h")], "http and https"),
            (&[("uri", "//h")], "no URL"),
            (&[("uri", "http://h/?secret=1")], "query"),
            (&[("uri", "http://h"), ("header.a b", "secret")], "header.a b"),
            (&[("uri", "http://h"), ("header.x", "secret\n")], "header.x"),
            (&[("uri", "http://h"), ("rest-page-size", "many")], "rest-page-size"),
            (&[("uri", "http://h"), ("auth.type", "basic")], "auth.type is not supported: give token"),
            (&[("uri", "http://h"), ("ssl.cabundle", "/ca.pem")], "SSL_CERT_FILE"),
        ] {
            let why = Settings::new(&properties(pairs)).err().unwrap();
            assert!(why.contains(says) && !why.contains("secret"), "{why}");
        }
    }
}
