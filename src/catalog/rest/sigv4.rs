//! Requests signed the way AWS wants it: for Glue's and S3 Tables' REST endpoints, and API gateways.

use bytes::Bytes;
use http::header;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use url::Url;

use super::settings::{Properties, is_true};
use crate::storage::configured::aws;

/// Whose keys are used: those for signing, else those of all clients, else the store's.
const FAMILIES: [&str; 3] = ["rest", "client", "s3"];

/// Signs requests for one service in one region.
pub(super) struct Signer {
    credentials: AwsCredentialProvider,
    service: String,
    region: String,
}

/// True when requests are to be signed: because a property says so, or because the host takes no others.
pub(super) fn is_wanted(properties: &Properties, uri: &Url) -> bool {
    match properties.get("rest.auth.type") {
        Some(kind) => kind.eq_ignore_ascii_case("sigv4"),
        None if properties.contains_key("rest.sigv4-enabled") => is_true(properties, "rest.sigv4-enabled"),
        None => aws_service(uri).is_some() && !["token", "credential"].iter().any(|key| properties.contains_key(*key)),
    }
}

/// The service that an AWS host belongs to.
fn aws_service(uri: &Url) -> Option<&'static str> {
    let host = uri.host_str()?;
    let is_aws = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn") || host.ends_with(".api.aws");
    ["glue", "s3tables"].into_iter().find(|service| is_aws && host.split('.').next() == Some(service))
}

impl Signer {
    /// Credentials come from the properties, else from the environment as AWS' own tools look for them.
    ///
    /// # Errors
    /// What is missing or not supported.
    pub(super) fn new(properties: &Properties, uri: &Url) -> Result<Self, String> {
        let first = |keys: &[&str]| keys.iter().find_map(|key| properties.get(*key)).cloned();
        let region = first(&["rest.signing-region", "client.region", "s3.region"])
            .or_else(|| aws_service(uri).and(uri.host_str()?.split('.').nth(1)).map(str::to_string))
            .or_else(|| std::env::var("AWS_REGION").or_else(|_| std::env::var("AWS_DEFAULT_REGION")).ok())
            .ok_or("requests are to be signed, but for which region? Give rest.signing-region")?;
        let credentials = aws::credentials(properties, &FAMILIES, &region)
            .map_err(|why| format!("requests can't be signed: {why}"))?;
        let service = properties.get("rest.signing-name").map(String::as_str).or_else(|| aws_service(uri));
        Ok(Self { credentials, service: service.unwrap_or("execute-api").into(), region })
    }

    /// Adds the headers that prove who sends the request.
    ///
    /// # Errors
    /// When there are no credentials.
    pub(super) async fn sign(&self, request: &mut reqwest::Request) -> Result<(), String> {
        let credential = self
            .credentials
            .get_credential()
            .await
            .map_err(|why| format!("there are no AWS credentials to sign requests with: {why}"))?;
        let credential = aws::usable(&credential)?;
        let body = request.body().and_then(reqwest::Body::as_bytes).map(Bytes::copy_from_slice);
        let mut signed: HttpRequest =
            http::Request::new(body.map_or_else(HttpRequestBody::empty, HttpRequestBody::from));
        *signed.method_mut() = request.method().clone();
        *signed.uri_mut() = request.url().as_str().parse().map_err(|why| format!("its URL can't be signed: {why}"))?;
        *signed.headers_mut() = std::mem::take(request.headers_mut());
        AwsAuthorizer::new(&credential, &self.service, &self.region).authorize(&mut signed, None);
        *request.headers_mut() = std::mem::take(signed.headers_mut());
        if let Some(authorization) = request.headers_mut().get_mut(header::AUTHORIZATION) {
            authorization.set_sensitive(true);
        }
        Ok(())
    }
}
