//! Clients for S3 and what speaks its protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::client::{ClientConfigKey, CredentialProvider, StaticCredentialProvider};

use super::Settings;
use super::properties::Properties;
use super::tolerant::Tolerant;
use super::vended::VendedProvider;

const ACCESS_KEY: [&str; 2] = ["s3.access-key-id", "client.access-key-id"];
const SECRET_KEY: [&str; 2] = ["s3.secret-access-key", "client.secret-access-key"];
const SESSION_TOKEN: [&str; 2] = ["s3.session-token", "client.session-token"];
const EXPIRES_AT: &str = "s3.session-token-expires-at-ms";

/// True for the properties that belong together as one credential.
pub(super) fn is_credential(key: &str) -> bool {
    key == EXPIRES_AT || [ACCESS_KEY, SECRET_KEY, SESSION_TOKEN].iter().any(|keys| keys.contains(&key))
}

/// # Errors
/// What is missing, wrong or not supported.
pub(super) fn store(bucket: &str, settings: &Settings<'_>) -> Result<Arc<dyn ObjectStore>, String> {
    let properties = Properties(settings.properties);
    refuse_unsupported(properties, settings.environment)?;
    let mut builder = match settings.environment {
        true => AmazonS3Builder::from_env(),
        false => AmazonS3Builder::new(),
    };
    builder = builder.with_bucket_name(bucket);
    if let Some(region) = properties.first(&["s3.region", "client.region"]) {
        builder = builder.with_region(region);
    }
    builder = with_endpoint(builder, bucket, properties)?;
    builder = with_client_options(builder, settings)?;
    builder = with_encryption(builder, properties)?;
    builder = with_credentials(builder, settings)?;
    let client = builder.build().map_err(|error| error.to_string())?;
    // Directory buckets have no order of keys and no listing from behind a key.
    Ok(Arc::new(Tolerant::new(client, !bucket.ends_with("--x-s3"))))
}

fn refuse_unsupported(properties: Properties<'_>, environment: bool) -> Result<(), String> {
    if let Some(role) =
        ["s3.role-arn", "client.role-arn", "client.assume-role.arn"].iter().find(|key| properties.get(key).is_some())
    {
        return Err(format!("{role} is not supported: give the credentials of the role itself"));
    }
    if properties.first(&ACCESS_KEY).is_some() {
        return Ok(());
    }
    if properties.flag("s3.remote-signing-enabled")?.unwrap_or(false) || properties.get("s3.signer").is_some() {
        return Err(
            "requests that the catalog signs (s3.remote-signing-enabled) are not supported: have the catalog vend \
                    credentials, or give s3.access-key-id and s3.secret-access-key"
                .into(),
        );
    }
    if let Some(key) = ["s3.profile-name", "client.profile-name"].iter().find(|key| properties.get(key).is_some()) {
        return Err(format!("{key} is not supported: profiles are not read. {EXPORT_PROFILE}"));
    }
    let has_environment_keys = std::env::var_os("AWS_ACCESS_KEY_ID").is_some()
        || std::env::var_os("AWS_WEB_IDENTITY_TOKEN_FILE").is_some()
        || properties.flag("s3.anonymous")?.unwrap_or(false);
    if environment && !has_environment_keys && std::env::var_os("AWS_PROFILE").is_some_and(|name| !name.is_empty()) {
        return Err(format!("AWS_PROFILE is set, and profiles are not read. {EXPORT_PROFILE}"));
    }
    Ok(())
}

const EXPORT_PROFILE: &str =
    "Export its credentials, as by: eval \"$(aws configure export-credentials --format env)\", and unset AWS_PROFILE";

fn with_endpoint(
    builder: AmazonS3Builder,
    bucket: &str,
    properties: Properties<'_>,
) -> Result<AmazonS3Builder, String> {
    let virtual_addressing = match properties.flag("s3.path-style-access")? {
        Some(path_style) => Some(!path_style),
        None => properties.flag("s3.force-virtual-addressing")?,
    };
    let Some(endpoint) = properties.get("s3.endpoint") else {
        return Ok(match virtual_addressing {
            Some(addressing) => builder.with_virtual_hosted_style_request(addressing),
            None => builder,
        });
    };
    let endpoint = match endpoint.contains("://") {
        true => endpoint.trim_end_matches('/').to_string(),
        false => format!("https://{}", endpoint.trim_end_matches('/')),
    };
    let virtual_addressing = virtual_addressing.unwrap_or(false);
    // In virtual addressing the client takes the bucket for a part of the endpoint.
    let endpoint = match endpoint.split_once("://") {
        Some((scheme, host)) if virtual_addressing => format!("{scheme}://{bucket}.{host}"),
        _ => endpoint,
    };
    Ok(builder
        .with_config(AmazonS3ConfigKey::S3Endpoint, endpoint)
        .with_virtual_hosted_style_request(virtual_addressing))
}

fn with_client_options(mut builder: AmazonS3Builder, settings: &Settings<'_>) -> Result<AmazonS3Builder, String> {
    let properties = Properties(settings.properties);
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
        .iter()
        .find_map(|key| builder.get_config_value(key));
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    let timeouts = settings.timeouts("AWS", "s3.connect-timeout", "s3.request-timeout")?;
    for (key, value) in timeouts {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    if let Some(proxy) = properties.get("s3.proxy-uri") {
        builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::ProxyUrl), proxy);
    }
    Ok(builder)
}

/// How new objects are encrypted, under Java's names and PyIceberg's.
fn with_encryption(builder: AmazonS3Builder, properties: Properties<'_>) -> Result<AmazonS3Builder, String> {
    let key = properties.first(&["s3.sse.key", "s3.sse-kms-key-id"]);
    let kms_key = || key.ok_or_else(|| "encryption with KMS needs s3.sse.key".to_string());
    match properties.first(&["s3.sse.type", "s3.server-side-encryption"]).unwrap_or("none") {
        "none" => Ok(builder),
        // The only one that S3 uses without being asked, since 2023.
        "s3" | "AES256" => Ok(builder),
        "kms" | "aws:kms" => Ok(builder.with_sse_kms_encryption(kms_key()?)),
        "dsse-kms" | "aws:kms:dsse" => Ok(builder.with_dsse_kms_encryption(kms_key()?)),
        "custom" => match key {
            Some(key) => Ok(builder.with_ssec_encryption(key)),
            None => Err("encryption with a key of your own needs s3.sse.key".into()),
        },
        other => Err(format!("s3.sse.type {other:?} is unknown; it can be none, s3, kms, dsse-kms or custom")),
    }
}

fn with_credentials(builder: AmazonS3Builder, settings: &Settings<'_>) -> Result<AmazonS3Builder, String> {
    let properties = Properties(settings.properties);
    if properties.flag("s3.anonymous")?.unwrap_or(false) {
        return Ok(builder.with_skip_signature(true));
    }
    if properties.first(&ACCESS_KEY).is_none() && properties.first(&SECRET_KEY).is_none() {
        return match settings.environment {
            true => Ok(builder),
            false => Err("there are no credentials for it: give s3.access-key-id and s3.secret-access-key, or \
                          s3.anonymous = true"
                .into()),
        };
    }
    // A provider, so that nothing of the environment is mixed in.
    let (credential, _) = read_credential(settings.properties)?;
    let provider: Arc<dyn CredentialProvider<Credential = AwsCredential>> = match &settings.vended {
        Some((vended, prefix)) => {
            Arc::new(VendedProvider::new(Arc::clone(vended), prefix.clone(), Box::new(read_credential)))
        }
        None => Arc::new(StaticCredentialProvider::new(credential)),
    };
    Ok(builder.with_credentials(provider))
}

fn read_credential(properties: &BTreeMap<String, String>) -> Result<(AwsCredential, Option<i64>), String> {
    let properties = Properties(properties);
    let (Some(key_id), Some(secret_key)) = (properties.first(&ACCESS_KEY), properties.first(&SECRET_KEY)) else {
        return Err("s3.access-key-id and s3.secret-access-key must both be given".into());
    };
    let token = properties.first(&SESSION_TOKEN).map(str::to_string);
    let credential = AwsCredential { key_id: key_id.into(), secret_key: secret_key.into(), token };
    Ok((credential, properties.time_ms(EXPIRES_AT)))
}
