//! Clients for Azure's blob storage, which also serves the accounts with a hierarchical namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::azure::{AzureAccessKey, AzureConfigKey, AzureCredential, MicrosoftAzureBuilder};
use object_store::client::{CredentialProvider, StaticCredentialProvider};

use super::Settings;
use super::bucket::Account;
use super::properties::Properties;
use super::tolerant::Tolerant;
use super::vended::VendedProvider;
use crate::table::location::percent_decoded;

const SAS_TOKEN: &str = "adls.sas-token";
const SAS_EXPIRES_AT: &str = "adls.sas-token-expires-at-ms";
const TOKEN: &str = "adls.token";
const ACCOUNT_KEY: [&str; 2] = ["adls.account-key", "adls.auth.shared-key.account.key"];
const ACCOUNT_NAME: [&str; 2] = ["adls.account-name", "adls.auth.shared-key.account.name"];
const CLIENT: [&str; 3] = ["adls.tenant-id", "adls.client-id", "adls.client-secret"];
const CONNECTION_STRING: &str = "adls.connection-string";

/// True for the properties that belong together as one credential.
pub(super) fn is_credential(key: &str) -> bool {
    key.starts_with(SAS_TOKEN) || key == TOKEN || ACCOUNT_KEY.contains(&key) || CLIENT.contains(&key)
}

/// Where the account is, and what a connection string says of it.
struct Service {
    account: String,
    /// `None` for the public cloud, and for what the environment says.
    endpoint: Option<String>,
    /// The properties say where to go, whatever host a location names.
    has_own_endpoint: bool,
    connection: BTreeMap<String, String>,
}

/// # Errors
/// What is missing, wrong or not supported.
pub(super) fn store(
    container: &str,
    account: Option<&Account>,
    settings: &Settings<'_>,
) -> Result<Arc<dyn ObjectStore>, String> {
    let properties = Properties(settings.properties);
    let mut builder = match settings.environment && !has_credential(properties) {
        true => MicrosoftAzureBuilder::from_env(),
        // The client would prefer some credentials of the environment.
        false => MicrosoftAzureBuilder::new(),
    };
    let service = service(account, settings)?;
    refuse_to_strangers(&service, account, settings)?;
    builder = builder.with_container_name(container).with_account(&service.account);
    // A path-style endpoint is an emulator's: its account is the first segment of the path.
    let mut begins_anywhere = true;
    if let Some(endpoint) = &service.endpoint {
        begins_anywhere = !endpoint.ends_with(&format!("/{}", service.account));
        builder = builder.with_endpoint(endpoint.clone());
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    if builder.get_config_value(&AzureConfigKey::UseEmulator).is_some_and(|value| value == "true") {
        begins_anywhere = false;
    }
    for (key, value) in settings.timeouts("AZURE", "adls.connect-timeout", "adls.request-timeout")? {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    let client = with_credentials(builder, &service, settings)?.build().map_err(|error| error.to_string())?;
    Ok(Arc::new(Tolerant::new(client, begins_anywhere)))
}

fn has_credential(properties: Properties<'_>) -> bool {
    properties.0.keys().any(|key| is_credential(key) || key.starts_with(CONNECTION_STRING))
        || properties.get("adls.anon").is_some()
}

fn service(account: Option<&Account>, settings: &Settings<'_>) -> Result<Service, String> {
    let properties = Properties(settings.properties);
    let of_url = account.map(|account| account.name.clone());
    let connection = connection(properties, of_url.as_deref())?;
    let configured = || properties.first(&ACCOUNT_NAME).map(str::to_string);
    let only_sas = || {
        let mut accounts = properties.0.keys().filter_map(|key| key.strip_prefix(SAS_TOKEN)?.strip_prefix('.'));
        let first = accounts.next()?.split('.').next()?;
        accounts.all(|other| other.split('.').next() == Some(first)).then(|| first.to_string())
    };
    let environment = || {
        let builder = MicrosoftAzureBuilder::from_env();
        settings.environment.then(|| builder.get_config_value(&AzureConfigKey::AccountName)).flatten()
    };
    let name = of_url
        .or_else(|| connection.get("AccountName").cloned())
        .or_else(configured)
        .or_else(only_sas)
        .or_else(environment)
        .ok_or(
            "which storage account it is in is unknown: write it as abfss://container@account.dfs.core.windows.net, or \
                give adls.account-name",
        )?;
    let own_endpoint = endpoint(&name, &connection, properties);
    let has_own_endpoint = own_endpoint.is_some();
    let of_location = || account.and_then(|account| account.blob_host.as_ref());
    let endpoint = own_endpoint.or_else(|| of_location().map(|host| format!("{}://{host}", scheme(properties))));
    Ok(Service { account: name, endpoint, has_own_endpoint, connection })
}

/// Locations are whatever somebody wrote into a table's metadata. So credentials go to Azure itself, to hosts that the
/// properties name, and to what they were vended for by name; those without an account's name only to the account that is
/// configured, if one is.
fn refuse_to_strangers(service: &Service, of_url: Option<&Account>, settings: &Settings<'_>) -> Result<(), String> {
    let properties = Properties(settings.properties);
    if settings.vended_by_name || properties.flag("adls.anon")?.unwrap_or(false) {
        return Ok(());
    }
    let stranger = of_url.filter(|account| !service.has_own_endpoint && !account.is_azures_own());
    if let Some(host) = stranger.and_then(|account| account.blob_host.as_ref())
        && !names_host(settings, host)
    {
        return Err(format!(
            "{host} is no host of Azure's own, and credentials are sent to no other because a location says so. If it is to \
             have them, give adls.blob-storage-authority or adls.account-host"
        ));
    }
    match properties.first(&ACCOUNT_NAME).filter(|own| *own != service.account) {
        Some(own) if !names_account(properties, service) => Err(format!(
            "the credentials are those of adls.account-name ({own}). Give {SAS_TOKEN}.{} for this account, or leave out \
             adls.account-name if they are good for several",
            service.account
        )),
        _ => Ok(()),
    }
}

/// True when a SAS token's key ends in this host, with `blob` or `dfs`, or the environment's endpoint is there.
fn names_host(settings: &Settings<'_>, blob_host: &str) -> bool {
    let properties = Properties(settings.properties);
    let named = |host: &str| properties.get(&format!("{SAS_TOKEN}.{host}")).is_some();
    let endpoint = || MicrosoftAzureBuilder::from_env().get_config_value(&AzureConfigKey::Endpoint);
    let is_endpoint = |endpoint: String| endpoint.split('/').nth(2) == Some(blob_host);
    named(blob_host)
        || named(&blob_host.replacen(".blob.", ".dfs.", 1))
        || (settings.environment && endpoint().is_some_and(is_endpoint))
}

/// True when the credential that will be used bears the account's name.
fn names_account(properties: Properties<'_>, service: &Service) -> bool {
    let has_others = properties.0.keys().any(|key| is_credential(key));
    let of_connection = ["AccountKey", "SharedAccessSignature"].iter().any(|key| service.connection.contains_key(*key));
    of_account(properties, SAS_TOKEN, &service.account).is_some() || (of_connection && !has_others)
}

/// `adls.connection-string`, or Java's `adls.connection-string.<account>`, which may be an endpoint alone.
fn connection(properties: Properties<'_>, account: Option<&str>) -> Result<BTreeMap<String, String>, String> {
    let of_account = account.and_then(|account| of_account(properties, CONNECTION_STRING, account));
    let Some(text) = of_account.or_else(|| properties.get(CONNECTION_STRING)) else { return Ok(BTreeMap::new()) };
    if text.starts_with("http://") || text.starts_with("https://") {
        return Ok(BTreeMap::from([("BlobEndpoint".to_string(), text.to_string())]));
    }
    let pair = |pair: &str| pair.trim().split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
    let pairs: Option<BTreeMap<_, _>> = text.split(';').filter(|part| !part.trim().is_empty()).map(pair).collect();
    let pairs = pairs.ok_or_else(|| format!("{CONNECTION_STRING} is not of the form key=value;key=value"))?;
    match (account, pairs.get("AccountName")) {
        (Some(account), Some(named)) if account != named => Ok(BTreeMap::new()),
        _ => Ok(pairs),
    }
}

/// A property whose key ends in an account's name or host.
fn of_account<'a>(properties: Properties<'a>, key: &str, account: &str) -> Option<&'a str> {
    let exact = properties.get(&format!("{key}.{account}"));
    exact.or_else(|| {
        let begin = format!("{key}.{account}.");
        properties.0.iter().find(|(key, _)| key.starts_with(&begin)).map(|(_, value)| value.as_str())
    })
}

fn scheme(properties: Properties<'_>) -> &str {
    properties.get("adls.blob-storage-scheme").unwrap_or("https")
}

/// Where the properties say that the account is.
fn endpoint(account: &str, connection: &BTreeMap<String, String>, properties: Properties<'_>) -> Option<String> {
    let scheme = scheme(properties);
    if let Some(endpoint) = connection.get("BlobEndpoint") {
        return Some(endpoint.trim_end_matches('/').to_string());
    }
    if let Some(suffix) = connection.get("EndpointSuffix") {
        let scheme = connection.get("DefaultEndpointsProtocol").map_or("https", String::as_str);
        return Some(format!("{scheme}://{account}.blob.{suffix}"));
    }
    if let Some(host) = properties.get("adls.account-host") {
        let host = host.trim_end_matches('/');
        return Some(if host.contains("://") { host.to_string() } else { format!("{scheme}://{host}") });
    }
    // As Arrow has it: what begins with a dot comes behind the account's name, another host has accounts as folders.
    let authority = properties.get("adls.blob-storage-authority")?;
    Some(match authority.strip_prefix('.') {
        Some(cloud) => format!("{scheme}://{account}.{cloud}"),
        None if authority.starts_with(&format!("{account}.")) => format!("{scheme}://{authority}"),
        None => format!("{scheme}://{authority}/{account}"),
    })
}

fn with_credentials(
    builder: MicrosoftAzureBuilder,
    service: &Service,
    settings: &Settings<'_>,
) -> Result<MicrosoftAzureBuilder, String> {
    let properties = Properties(settings.properties);
    if properties.flag("adls.anon")?.unwrap_or(false) {
        return Ok(builder.with_skip_signature(true));
    }
    let account = service.account.clone();
    let read = move |properties: &BTreeMap<String, String>| read_credential(properties, &account);
    if properties.0.keys().any(|key| is_credential(key) && !CLIENT.contains(&key.as_str())) {
        let (credential, _) = read(settings.properties)?;
        let provider: Arc<dyn CredentialProvider<Credential = AzureCredential>> = match &settings.vended {
            Some((vended, prefix)) => Arc::new(VendedProvider::new(Arc::clone(vended), prefix.clone(), Box::new(read))),
            None => Arc::new(StaticCredentialProvider::new(credential)),
        };
        return Ok(builder.with_credentials(provider));
    }
    if let Some(key) = service.connection.get("AccountKey") {
        return Ok(builder.with_access_key(key));
    }
    if let Some(token) = service.connection.get("SharedAccessSignature") {
        let credential = AzureCredential::SASToken(sas_pairs(token)?);
        return Ok(builder.with_credentials(Arc::new(StaticCredentialProvider::new(credential))));
    }
    match CLIENT.map(|key| properties.get(key)) {
        [Some(tenant), Some(client), Some(secret)] => {
            Ok(builder.with_client_secret_authorization(client, secret, tenant))
        }
        [_, _, Some(_)] => Err(format!("{} need each other", CLIENT.join(", "))),
        _ if settings.environment => Ok(builder),
        _ => Err(
            "there are no credentials for it: give adls.sas-token, adls.account-key, adls.token, or adls.tenant-id, \
                  adls.client-id and adls.client-secret"
                .into(),
        ),
    }
}

/// A SAS token for the account, a token, or a key.
fn read_credential(
    properties: &BTreeMap<String, String>,
    account: &str,
) -> Result<(AzureCredential, Option<i64>), String> {
    let properties = Properties(properties);
    if let Some(sas) = of_account(properties, SAS_TOKEN, account).or_else(|| properties.get(SAS_TOKEN)) {
        let expires = of_account(properties, SAS_EXPIRES_AT, account).or_else(|| properties.get(SAS_EXPIRES_AT));
        return Ok((AzureCredential::SASToken(sas_pairs(sas)?), expires.and_then(|ms| ms.parse().ok())));
    }
    if let Some(token) = properties.get(TOKEN) {
        return Ok((AzureCredential::BearerToken(token.into()), None));
    }
    let key = properties.first(&ACCOUNT_KEY).ok_or_else(|| format!("{SAS_TOKEN}.{account} is missing"))?;
    let key = AzureAccessKey::try_new(key).map_err(|error| format!("{}: {error}", ACCOUNT_KEY[0]))?;
    Ok((AzureCredential::AccessKey(key), None))
}

/// The parameters of a SAS token, which is the query of a URL.
fn sas_pairs(token: &str) -> Result<Vec<(String, String)>, String> {
    let malformed = || format!("{SAS_TOKEN} is not of the form key=value&key=value");
    let parts = token.trim().trim_start_matches('?').split('&').filter(|part| !part.trim().is_empty());
    let pair = |part: &str| {
        let (key, value) = part.trim().split_once('=').ok_or_else(malformed)?;
        Ok((percent_decoded(key).ok_or_else(malformed)?, percent_decoded(value).ok_or_else(malformed)?))
    };
    parts.map(pair).collect()
}
