//! Clients for S3 and what speaks its protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::client::{ClientConfigKey, CredentialProvider, StaticCredentialProvider};

use super::Settings;
use super::aws;
use super::properties::Properties;
use super::tolerant::Tolerant;
use super::vended::VendedProvider;

/// Whose keys are used: S3's own, else those of all clients.
const FAMILIES: [&str; 2] = ["s3", "client"];
const KEY_PARTS: [&str; 3] = ["access-key-id", "secret-access-key", "session-token"];
const EXPIRES_AT: &str = "s3.session-token-expires-at-ms";

/// True for the properties that belong together as one credential.
pub(super) fn is_credential(key: &str) -> bool {
    let of_pair = |(family, part): (&str, &str)| FAMILIES.contains(&family) && KEY_PARTS.contains(&part);
    key == EXPIRES_AT || key.split_once('.').is_some_and(of_pair)
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
    let is_anonymous = properties.flag("s3.anonymous")?.unwrap_or(false);
    aws::refuse_unsupported(properties, &FAMILIES, environment && !is_anonymous)?;
    let is_signed =
        properties.flag("s3.remote-signing-enabled")?.unwrap_or(false) || properties.get("s3.signer").is_some();
    match is_signed && aws::keys(properties, &FAMILIES)?.is_none() {
        true => {
            Err("requests that the catalog signs (s3.remote-signing-enabled) are not supported: have the catalog vend \
                     credentials, or give s3.access-key-id and s3.secret-access-key"
                .into())
        }
        false => Ok(()),
    }
}

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
    if aws::keys(properties, &FAMILIES)?.is_none() {
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
    let keys = aws::keys(properties, &FAMILIES)?;
    let keys = keys.ok_or("s3.access-key-id and s3.secret-access-key must both be given")?;
    Ok((keys, properties.time_ms(EXPIRES_AT)))
}
