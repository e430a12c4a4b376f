//! Requests signed the way AWS wants it: for Glue's and S3 Tables' REST endpoints, and API gateways.

use bytes::Bytes;
use http::{HeaderValue, header};
use object_store::aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use object_store::client::{HttpRequest, HttpRequestBody};
use url::Url;

use super::settings::{Properties, is_true};

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
        for unsupported in ["client.assume-role.arn", "client.role-arn", "client.profile-name", "rest.profile-name"] {
            if properties.contains_key(unsupported) {
                return Err(format!(
                    "{unsupported} is not supported for signing requests: give rest.access-key-id, \
                     rest.secret-access-key and rest.session-token, or leave all of them to the environment"
                ));
            }
        }
        // Only its credentials are used: a bucket must be named, but none is ever asked for.
        let mut builder = AmazonS3Builder::from_env().with_bucket_name("none");
        let region = first(&["rest.signing-region", "client.region", "s3.region"])
            .or_else(|| aws_service(uri).and(uri.host_str()?.split('.').nth(1)).map(str::to_string))
            .or_else(|| std::env::var("AWS_REGION").or_else(|_| std::env::var("AWS_DEFAULT_REGION")).ok())
            .ok_or("requests are to be signed, but for which region? Give rest.signing-region")?;
        builder = builder.with_region(&region);
        for family in ["rest", "client", "s3"] {
            let property = |name: &str| properties.get(&format!("{family}.{name}"));
            let Some(id) = property("access-key-id") else { continue };
            let secret = property("secret-access-key")
                .ok_or_else(|| format!("{family}.access-key-id is given without {family}.secret-access-key"))?;
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
            builder = builder.with_token(property("session-token").map(String::as_str).unwrap_or_default());
            break;
        }
        let store = builder.build().map_err(|why| format!("requests can't be signed: {why}"))?;
        let service = properties.get("rest.signing-name").map(String::as_str).or_else(|| aws_service(uri));
        Ok(Self { credentials: store.credentials().clone(), service: service.unwrap_or("execute-api").into(), region })
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
        let credential = usable(&credential)?;
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

/// The authorizer takes for granted that all parts fit into headers. An empty session token is none.
fn usable(credential: &AwsCredential) -> Result<AwsCredential, String> {
    let token = credential.token.clone().filter(|token| !token.is_empty());
    let fits = |text: &str| HeaderValue::from_str(text).is_ok();
    match fits(&credential.key_id) && token.as_deref().is_none_or(fits) {
        true => {
            Ok(AwsCredential { key_id: credential.key_id.clone(), secret_key: credential.secret_key.clone(), token })
        }
        false => Err("the AWS access key or session token holds characters that no header can carry".into()),
    }
}
