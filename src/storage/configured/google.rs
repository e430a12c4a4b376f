//! Clients for Google Cloud Storage.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::client::{CredentialProvider, StaticCredentialProvider};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};

use super::Settings;
use super::properties::Properties;
use super::tolerant::Tolerant;
use super::vended::VendedProvider;

const TOKEN: &str = "gcs.oauth2.token";
const EXPIRES_AT: &str = "gcs.oauth2.token-expires-at";

/// True for the properties that belong together as one credential.
pub(super) fn is_credential(key: &str) -> bool {
    key == TOKEN || key == EXPIRES_AT
}

/// # Errors
/// What is missing, wrong or not supported.
pub(super) fn store(bucket: &str, settings: &Settings<'_>) -> Result<Arc<dyn ObjectStore>, String> {
    let properties = Properties(settings.properties);
    let mut builder = match settings.environment {
        true => GoogleCloudStorageBuilder::from_env(),
        false => GoogleCloudStorageBuilder::new(),
    };
    builder = builder.with_bucket_name(bucket);
    if let Some(endpoint) = properties.first(&["gcs.service.host", "gcs.endpoint"]) {
        let endpoint = match endpoint.contains("://") {
            true => endpoint.trim_end_matches('/').to_string(),
            false => format!("https://{}", endpoint.trim_end_matches('/')),
        };
        builder = builder.with_base_url(&endpoint);
    }
    let base = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    if base.is_some_and(|base| base.starts_with("http://")) {
        let key = GoogleConfigKey::Client(object_store::ClientConfigKey::AllowHttp);
        builder = builder.with_config(key, "true");
    }
    for (key, value) in settings.timeouts("GOOGLE", "gcs.connect-timeout", "gcs.request-timeout")? {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    let client = with_credentials(builder, settings)?.build().map_err(|error| error.to_string())?;
    Ok(Arc::new(Tolerant::new(client, true)))
}

fn with_credentials(
    builder: GoogleCloudStorageBuilder,
    settings: &Settings<'_>,
) -> Result<GoogleCloudStorageBuilder, String> {
    let properties = Properties(settings.properties);
    if properties.flag("gcs.no-auth")?.unwrap_or(false) {
        // Without a provider the client would look for the credentials of the machine.
        let none = Arc::new(StaticCredentialProvider::new(GcpCredential { bearer: String::new() }));
        return Ok(builder.with_credentials(none).with_skip_signature(true));
    }
    if properties.get(TOKEN).is_some() {
        let (credential, _) = read_credential(settings.properties)?;
        let provider: Arc<dyn CredentialProvider<Credential = GcpCredential>> = match &settings.vended {
            Some((vended, prefix)) => {
                Arc::new(VendedProvider::new(Arc::clone(vended), prefix.clone(), Box::new(read_credential)))
            }
            None => Arc::new(StaticCredentialProvider::new(credential)),
        };
        return Ok(builder.with_credentials(provider));
    }
    if let Some(json) = properties.get("gcs.credentials-json") {
        return Ok(builder.with_service_account_key(json));
    }
    match settings.environment {
        true => Ok(builder),
        false => {
            Err("there are no credentials for it: give gcs.oauth2.token, gcs.credentials-json or gcs.no-auth = true"
                .into())
        }
    }
}

fn read_credential(properties: &BTreeMap<String, String>) -> Result<(GcpCredential, Option<i64>), String> {
    let properties = Properties(properties);
    let token = properties.get(TOKEN).ok_or_else(|| format!("{TOKEN} is missing"))?;
    Ok((GcpCredential { bearer: token.into() }, properties.time_ms(EXPIRES_AT)))
}
