//! Requests to Glue: JSON over HTTP, signed with the account's credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use http::{HeaderValue, Method};
use object_store::aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, ReqwestConnector,
};
use object_store::{ClientOptions, StaticCredentialProvider};
use serde::Serialize;
use url::Url;

use super::super::pointer::printable;

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait before each repetition of a request.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1200), Duration::from_millis(3000)];

/// No answer is larger than this: Glue limits a table to far less.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A connection to one Glue endpoint, as one account.
pub(super) struct GlueClient {
    endpoint: Url,
    region: String,
    /// The account whose catalog it is, if not the caller's own.
    catalog_id: Option<String>,
    credentials: AwsCredentialProvider,
    http: HttpClient,
}

/// Why a request has no answer to go on with.
#[derive(Debug)]
pub(super) enum GlueError {
    /// The request was not sent.
    NotSent(String),
    /// Glue said no: nothing was changed.
    Refused {
        /// The exception's name, such as `EntityNotFoundException`.
        kind: String,
        message: String,
    },
    /// The request was sent, and what became of it is unknown.
    NoAnswer(String),
}

/// Whether a request may be sent again after it was perhaps carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Freely,
    /// Only after an answer that says that nothing was done.
    IfNothingWasDone,
}

impl GlueClient {
    /// Reads the properties; asks nothing of a server. Errors say what is wrong without showing it.
    pub(super) fn new(properties: &BTreeMap<String, String>) -> Result<Self, String> {
        let first = |keys: &[&str]| keys.iter().find_map(|key| properties.get(*key)).cloned();
        let environment = |names: &[&str]| names.iter().find_map(|name| std::env::var(name).ok());
        let endpoint =
            first(&["glue.endpoint"]).or_else(|| environment(&["AWS_ENDPOINT_URL_GLUE", "AWS_ENDPOINT_URL"]));
        let region = first(&["glue.region", "client.region"])
            .or_else(|| environment(&["AWS_REGION", "AWS_DEFAULT_REGION"]))
            .or_else(|| endpoint.is_some().then(|| "us-east-1".into()))
            .ok_or("it has no region. Set glue.region, client.region or AWS_REGION")?;
        if region.is_empty() || !region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(format!("{region:?} is no region"));
        }
        let endpoint = endpoint.unwrap_or_else(|| default_endpoint(&region));
        let endpoint = Url::parse(&endpoint)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| format!("glue.endpoint {} is no http or https address", printable(&endpoint)))?;
        let options = ClientOptions::new().with_allow_http(true).with_timeout(REQUEST_TIMEOUT);
        let http = ReqwestConnector::default().connect(&options).map_err(|error| error.to_string())?;
        Ok(Self {
            endpoint,
            catalog_id: first(&["glue.id", "glue.catalog-id"]),
            credentials: credentials(&first, &region)?,
            region,
            http,
        })
    }

    /// Asks for something. `operation` is Glue's own name of it.
    pub(super) async fn call(
        &self,
        operation: &str,
        input: &impl Serialize,
        repeat: Repeat,
    ) -> Result<String, GlueError> {
        let unusable = |error: serde_json::Error| GlueError::NotSent(format!("{operation} can't be written: {error}"));
        let input = serde_json::value::to_raw_value(input).map_err(unusable)?;
        let body = match &self.catalog_id {
            None => input.get().to_string(),
            Some(id) => {
                let fields = input.get().trim_start_matches('{');
                let comma = if fields == "}" { "" } else { "," };
                format!("{{\"CatalogId\":{}{comma}{fields}", serde_json::Value::from(id.as_str()))
            }
        };
        let body = Bytes::from(body);
        let mut pauses = PAUSES.iter();
        loop {
            let error = match self.send(operation, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let again = match &error {
                GlueError::NotSent(_) => false,
                GlueError::Refused { .. } => error.is_throttling(),
                GlueError::NoAnswer(_) => repeat == Repeat::Freely,
            };
            match pauses.next() {
                Some(pause) if again => tokio::time::sleep(*pause).await,
                _ => return Err(error),
            }
        }
    }

    async fn send(&self, operation: &str, body: Bytes) -> Result<String, GlueError> {
        let request = self.signed(operation, body).await.map_err(GlueError::NotSent)?;
        let unanswered = |error: HttpError| match error.kind() {
            HttpErrorKind::Connect => {
                let endpoint = printable(self.endpoint.as_str());
                GlueError::NotSent(format!("{endpoint} can't be reached: {}", chain(&error)))
            }
            _ => GlueError::NoAnswer(format!("no answer to {operation}: {}", chain(&error))),
        };
        let (head, body) = self.http.execute(request).await.map_err(unanswered)?.into_parts();
        let mut text = BytesMut::new();
        let mut pieces = body.bytes_stream();
        while let Some(piece) = pieces.try_next().await.map_err(unanswered)? {
            if text.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err(GlueError::NoAnswer(format!("the answer to {operation} has no end")));
            }
            text.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        match head.status.as_u16() {
            200..=299 => Ok(text),
            400..=499 => {
                let named = head.headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
                Err(GlueError::refused(&text, named, head.status.as_u16()))
            }
            status => Err(GlueError::NoAnswer(format!("{operation} was answered with status {status}"))),
        }
    }

    async fn signed(&self, operation: &str, body: Bytes) -> Result<HttpRequest, String> {
        let credential = self
            .credentials
            .get_credential()
            .await
            .map_err(|error| format!("there are no AWS credentials: {error}"))?;
        let is_header = |text: &str| HeaderValue::from_str(text).is_ok();
        if !is_header(&credential.key_id) || !credential.token.as_deref().is_none_or(is_header) {
            return Err("the AWS access key id or session token holds characters that none has".into());
        }
        let mut request = http::Request::builder()
            .method(Method::POST)
            .uri(self.endpoint.as_str())
            .header("content-type", "application/x-amz-json-1.1")
            .header("x-amz-target", format!("AWSGlue.{operation}"))
            .body(HttpRequestBody::from(body))
            .map_err(|error| error.to_string())?;
        AwsAuthorizer::new(&credential, "glue", &self.region).authorize(&mut request, None);
        Ok(request)
    }
}

impl GlueError {
    /// The error of an answer such as `{"__type":"EntityNotFoundException","Message":"…"}`.
    fn refused(text: &str, named: Option<&str>, status: u16) -> Self {
        #[derive(serde::Deserialize, Default)]
        struct Answer {
            #[serde(rename = "__type")]
            kind: Option<String>,
            #[serde(alias = "Message")]
            message: Option<String>,
        }
        let answer: Answer = serde_json::from_str(text).unwrap_or_default();
        let kind = answer.kind.as_deref().or(named).unwrap_or_default();
        // The name may stand between a name space and an address: `ns#Name:http://…`.
        let kind = kind.rsplit('#').next().unwrap_or_default().split(':').next().unwrap_or_default();
        let kind = if kind.is_empty() { format!("status {status}") } else { kind.to_string() };
        GlueError::Refused { kind, message: answer.message.unwrap_or_default() }
    }

    /// True when Glue refused with this exception.
    pub(super) fn is(&self, exception: &str) -> bool {
        matches!(self, GlueError::Refused { kind, .. } if kind == exception)
    }

    fn is_throttling(&self) -> bool {
        ["ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded"]
            .iter()
            .any(|kind| self.is(kind))
            || self.is("status 429")
    }
}

impl fmt::Display for GlueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GlueError::NotSent(why) | GlueError::NoAnswer(why) => f.write_str(why),
            GlueError::Refused { kind, message } if message.is_empty() => f.write_str(kind),
            GlueError::Refused { kind, message } => write!(f, "{kind}: {}", message.replace('\n', " ")),
        }
    }
}

impl fmt::Debug for GlueClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlueClient").field("endpoint", &self.endpoint.host_str()).field("region", &self.region).finish()
    }
}

fn default_endpoint(region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://glue.{region}.{domain}")
}

/// The keys that the properties give, else whatever the environment has: variables, a role of the pod or the machine.
fn credentials(first: &impl Fn(&[&str]) -> Option<String>, region: &str) -> Result<AwsCredentialProvider, String> {
    let key_id = first(&["glue.access-key-id", "client.access-key-id"]);
    let secret_key = first(&["glue.secret-access-key", "client.secret-access-key"]);
    match (key_id, secret_key) {
        (Some(key_id), Some(secret_key)) => {
            let token = first(&["glue.session-token", "client.session-token"]);
            Ok(Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token })))
        }
        (None, None) => {
            // A store only for the sake of its credentials: the bucket's name stands in no request.
            let store = AmazonS3Builder::from_env().with_region(region).with_bucket_name("glue").build();
            Ok(Arc::clone(
                store.map_err(|error| format!("the environment's AWS settings are wrong: {error}"))?.credentials(),
            ))
        }
        _ => Err("an access key needs both glue.access-key-id and glue.secret-access-key".into()),
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(properties: &[(&str, &str)]) -> Result<GlueClient, String> {
        GlueClient::new(&properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    #[test]
    fn the_region_says_where_glue_is() {
        let keys = [("glue.access-key-id", "id"), ("glue.secret-access-key", "hush")];
        for (region, expected) in [
            ("eu-central-1", "https://glue.eu-central-1.amazonaws.com/"),
            ("cn-north-1", "https://glue.cn-north-1.amazonaws.com.cn/"),
        ] {
            let client = client(&[keys[0], keys[1], ("client.region", region)]).unwrap();
            assert_eq!(client.endpoint.as_str(), expected);
            assert!(!format!("{client:?}").contains("hush"));
        }
        assert!(client(&[keys[0], keys[1], ("glue.region", "a.evil.example/")]).unwrap_err().contains("no region"));
        assert!(client(&[keys[0], ("glue.region", "eu-west-1")]).unwrap_err().contains("glue.secret-access-key"));
    }

    #[test]
    fn an_exception_is_found_wherever_its_name_stands() {
        for (text, header) in [
            (r#"{"__type":"EntityNotFoundException","Message":"gone"}"#, None),
            (r#"{"__type":"com.amazonaws.glue#EntityNotFoundException","message":"gone"}"#, None),
            (r#"{"message":"gone"}"#, Some("EntityNotFoundException:http://internal/")),
        ] {
            let error = GlueError::refused(text, header, 400);
            assert_eq!(error.to_string(), "EntityNotFoundException: gone");
            assert!(error.is("EntityNotFoundException"));
        }
        assert_eq!(GlueError::refused("<html>", None, 403).to_string(), "status 403");
    }
}
