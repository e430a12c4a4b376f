//! Requests to Glue: JSON over HTTP, signed with the account's credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use http::{HeaderMap, Method, StatusCode, header};
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody};
use serde::Serialize;
use url::Url;

use super::super::pointer::printable;
use crate::storage::configured::aws;

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait before each repetition of a request.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1200), Duration::from_millis(3000)];

/// No answer is larger than this: Glue limits a table to far less.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Whose keys are used: Glue's own, else those of all clients.
const FAMILIES: [&str; 2] = ["glue", "client"];

/// The exceptions that say that nothing was done. Others, such as `OperationTimeoutException`, leave it open.
const REFUSALS: [&str; 24] = [
    "AccessDeniedException",
    "AlreadyExistsException",
    "ConcurrentModificationException",
    "EntityNotFoundException",
    "ExpiredTokenException",
    "GlueEncryptionException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidAction",
    "InvalidClientTokenId",
    "InvalidInputException",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "PermissionTypeMismatchException",
    "RequestExpired",
    "ResourceNotReadyException",
    "ResourceNumberLimitExceededException",
    "SerializationException",
    "UnknownOperationException",
    "UnrecognizedClientException",
    "ValidationException",
];

/// The exceptions of a Glue that has too much to do: it did nothing, and may be asked again.
const THROTTLING: [&str; 4] =
    ["ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded"];

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
    /// Glue, or somebody before it, said no.
    Refused {
        /// The exception's name, such as `EntityNotFoundException`, or the status where there is none.
        kind: String,
        message: String,
    },
    /// The request was sent, and what became of it is unknown.
    NoAnswer(String),
    /// The same, and asking again would bring the same answer.
    Unusable(String),
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
        let http = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            // An update that was sent elsewhere, with the session's token: not wanted.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("HTTP can't be used: {}", chain(&error)))?;
        Ok(Self {
            endpoint,
            catalog_id: first(&["glue.id", "glue.catalog-id"]),
            credentials: aws::credentials(properties, &FAMILIES, &region)?,
            region,
            http: HttpClient::new(http),
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
                GlueError::NotSent(_) | GlueError::Unusable(_) => false,
                // A proxy may refuse what went through before.
                GlueError::Refused { kind, .. } if kind == "status 429" => repeat == Repeat::Freely,
                GlueError::Refused { kind, .. } => THROTTLING.contains(&kind.as_str()),
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
                return Err(GlueError::Unusable(format!("the answer to {operation} has no end")));
            }
            text.extend_from_slice(&piece);
        }
        // What is read here is written back: no character may be replaced.
        let text = String::from_utf8(text.into())
            .map_err(|_| GlueError::Unusable(format!("the answer to {operation} is no UTF-8 text")))?;
        match head.status.as_u16() {
            200..=299 => Ok(text),
            300..=399 => Err(GlueError::Unusable(redirected(head.status, &head.headers))),
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
        let credential = aws::usable(&credential)?;
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

    /// True when the request certainly changed nothing.
    pub(super) fn is_certain(&self) -> bool {
        match self {
            GlueError::NotSent(_) => true,
            GlueError::Refused { kind, .. } => REFUSALS.contains(&kind.as_str()) || THROTTLING.contains(&kind.as_str()),
            GlueError::NoAnswer(_) | GlueError::Unusable(_) => false,
        }
    }
}

impl fmt::Display for GlueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GlueError::NotSent(why) | GlueError::NoAnswer(why) | GlueError::Unusable(why) => f.write_str(why),
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

fn redirected(status: StatusCode, headers: &HeaderMap) -> String {
    let to = headers.get(header::LOCATION).and_then(|to| Url::parse(to.to_str().ok()?).ok());
    let to = to.map(|to| format!(" to {}", to.origin().ascii_serialization())).unwrap_or_default();
    format!("it redirects{to} ({status}), which is not followed; give the right address as glue.endpoint")
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
        let profile = client(&[("client.profile-name", "p"), ("glue.region", "eu-west-1")]).unwrap_err();
        assert!(profile.contains("client.profile-name is not supported"), "{profile}");
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

    #[test]
    fn only_an_exception_that_is_known_to_change_nothing_is_certain() {
        let refused = |kind: &str, status| GlueError::refused(&format!(r#"{{"__type":"{kind}"}}"#), None, status);
        for kind in ["AccessDeniedException", "EntityNotFoundException", "ThrottlingException"] {
            assert!(refused(kind, 400).is_certain(), "{kind}");
        }
        for (kind, status) in
            [("OperationTimeoutException", 400), ("NewException", 400), ("", 408), ("", 403), ("", 429)]
        {
            assert!(!refused(kind, status).is_certain(), "{kind} {status}");
        }
    }
}
