//! Requests to the server, and what came of each.
//!
//! Whoever sends something that changes a table must know whether it can have arrived: [`Failure`] tells.

mod secrets;

use std::error::Error as _;
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde::Deserialize;
use url::Url;

use self::secrets::Secrets;
use super::auth::Auth;
use super::paths::printable;
use super::settings::{Properties, Settings};
use crate::error::{Error, Result};

/// No answer is larger than this, inflated or not; a larger one is taken for a decompression bomb.
const MAX_ANSWER_BYTES: u64 = 1 << 30;

/// A text from here on is worked on by a thread that may be kept busy.
const LARGE_BYTES: usize = 1 << 20;

/// How many times as large a text is as what it was packed to, at least.
const PACKED: usize = 4;

/// The pauses between attempts to read.
pub(super) const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1200)];

/// A server that asks for a longer pause than this is not waited for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How much of a server's own words an error repeats, in characters.
const MESSAGE_LENGTH: usize = 300;

/// `Authentication Timeout`, which Iceberg's servers answer when a token expired.
const TOKEN_EXPIRED: u16 = 419;

/// Speaks to one server.
pub(super) struct Client {
    catalog: String,
    http: reqwest::Client,
    auth: Auth,
    headers: HeaderMap,
    read_timeout: Duration,
    secrets: Mutex<Secrets>,
}

/// A request, apart from what every request has.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Option<Bytes>,
    /// The token of a table that has one of its own.
    pub(super) token: Option<String>,
    pub(super) timeout: Duration,
}

/// An answer that arrived completely.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request could not be made; nothing was sent.
    NotMade(String),
    /// There was no connection; nothing was sent.
    NoConnection(String),
    /// The time was up. The request may have arrived.
    TimedOut(String),
    /// The connection broke, or what came back can't be read. The request may have arrived.
    Broken(String),
}

impl Failure {
    pub(super) fn why(self) -> String {
        match self {
            Self::NotMade(why) | Self::NoConnection(why) | Self::TimedOut(why) | Self::Broken(why) => why,
        }
    }
}

/// Iceberg's form of an error answer.
#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorModel,
}

#[derive(Deserialize)]
struct ErrorModel {
    #[serde(default)]
    message: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

impl Client {
    /// # Errors
    /// Which property is wrong, missing or not supported.
    pub(super) fn new(catalog: &str, settings: &Settings) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .connect_timeout(settings.connect_timeout)
            // A commit that was sent elsewhere, or a token: neither is wanted.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("iceberg-maintenance/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|why| format!("HTTP can't be used: {}", cause(&why)))?;
        let mut headers = settings.headers.clone();
        for (name, value) in [
            (header::ACCEPT, "application/json"),
            (header::ACCEPT_ENCODING, "gzip"),
            // A stale answer is how live files get deleted.
            (header::CACHE_CONTROL, "no-cache"),
            (HeaderName::from_static("x-client-version"), concat!("iceberg-maintenance/", env!("CARGO_PKG_VERSION"))),
        ] {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
        Ok(Self {
            catalog: catalog.into(),
            http,
            auth: Auth::new(settings)?,
            headers,
            read_timeout: settings.read_timeout,
            secrets: Mutex::new(Secrets::of(&settings.properties)),
        })
    }

    /// An error of this catalog.
    pub(super) fn error(&self, why: impl Into<String>) -> Error {
        Error::Catalog { catalog: self.catalog.clone(), why: self.one_line(&why.into()) }
    }

    /// Reads something. Tries again when the server is busy or the way to it is broken.
    ///
    /// # Errors
    /// [`Error::Catalog`] when no answer came, or one that says that the client may not ask (401, 403, 419). Any other
    /// answer is the caller's to judge.
    pub(super) async fn get(
        &self,
        url: Url,
        headers: &[(HeaderName, HeaderValue)],
        token: Option<&str>,
    ) -> Result<Answer> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let request = Request {
                method: Method::GET,
                url: url.clone(),
                headers: headers.to_vec(),
                body: None,
                token: token.map(str::to_string),
                timeout: self.read_timeout,
            };
            let outcome = self.send(request).await;
            let wanted = match &outcome {
                Ok(answer) if is_busy(answer.status) => Some(answer.retry_after().unwrap_or_default()),
                Err(Failure::NoConnection(_) | Failure::Broken(_)) => Some(Duration::ZERO),
                _ => None,
            };
            match (wanted, pauses.next()) {
                (Some(wanted), Some(pause)) if wanted <= LONGEST_PAUSE => tokio::time::sleep(pause.max(wanted)).await,
                _ => return self.allowed(outcome.map_err(|failure| self.error(failure.why()))?, &url),
            }
        }
    }

    fn allowed(&self, answer: Answer, url: &Url) -> Result<Answer> {
        match answer.status.as_u16() {
            401 | 403 | TOKEN_EXPIRED => Err(self.error(self.refusal(&answer, url))),
            _ => Ok(answer),
        }
    }

    /// Sends a request; with a new token once more if the server doesn't take the token.
    pub(super) async fn send(&self, mut request: Request) -> Result<Answer, Failure> {
        let own = match request.token.take() {
            Some(token) => Some(token),
            None => self.auth.token(&self.http).await.map_err(Failure::NotMade)?,
        };
        let answer = self.send_once(&request, own.as_deref()).await?;
        let Some(refused) = own.filter(|_| is_unauthenticated(answer.status)) else { return Ok(answer) };
        // Where no other token is to be had, the answer that came says best what is wrong.
        let renewed = self.auth.renew(&self.http, &refused).await;
        let token = self.auth.token(&self.http).await.ok().flatten();
        if renewed.is_err() || token.is_none() || token.as_ref() == Some(&refused) {
            return Ok(answer);
        }
        self.send_once(&request, token.as_deref()).await
    }

    async fn send_once(&self, request: &Request, token: Option<&str>) -> Result<Answer, Failure> {
        let not_made = |why: String| Failure::NotMade(format!("{}: {why}", printable(&request.url)));
        token.into_iter().for_each(|token| self.keep_secret(token));
        let mut built = self.http.request(request.method.clone(), request.url.clone()).headers(self.headers.clone());
        for (name, value) in &request.headers {
            built = built.header(name, value);
        }
        if let Some(body) = &request.body {
            built = built.header(header::CONTENT_TYPE, "application/json").body(body.clone());
        }
        let mut built = built.timeout(request.timeout).build().map_err(|why| not_made(cause(&why)))?;
        self.auth.authorize(&mut built, token).await.map_err(not_made)?;
        let answer = self.http.execute(built).await.map_err(|why| failure(&why, request))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = read_body(answer).await.map_err(|why| match why {
            Unread::Http(why) => failure(&why, request),
            Unread::Unusable(why) => {
                Failure::Broken(format!("{} answered {status}, but {why}", printable(&request.url)))
            }
        })?;
        Ok(Answer { status, headers, body })
    }

    /// Why an answer is no success, in one line.
    pub(super) fn refusal(&self, answer: &Answer, url: &Url) -> String {
        let status = answer.status;
        let says = self.says(answer);
        let what = match status.as_u16() {
            401 | TOKEN_EXPIRED => "the credentials were not taken",
            403 => "access is denied",
            404 => "there is no such thing",
            300..=399 => "the server redirects, which is not followed; give the address that it names as uri",
            _ => "the server refused",
        };
        let to = answer.headers.get(header::LOCATION).and_then(|to| Url::parse(to.to_str().ok()?).ok());
        let to = to.map(|to| format!(" ({})", printable(&to))).unwrap_or_default();
        format!("{what}{to}: {} answered {status}{says}", printable(url))
    }

    /// What the server says of its refusal, ready to follow the status.
    pub(super) fn says(&self, answer: &Answer) -> String {
        let text = match serde_json::from_slice::<ErrorAnswer>(&answer.body) {
            Ok(ErrorAnswer { error }) => match (error.kind, error.message) {
                (Some(kind), Some(message)) if !message.contains(&kind) => format!("{kind}: {message}"),
                (kind, message) => message.or(kind).unwrap_or_default(),
            },
            Err(_) => String::from_utf8_lossy(&answer.body[..answer.body.len().min(4096)]).into_owned(),
        };
        let text = self.one_line(text.split("\n\tat ").next().unwrap_or_default());
        match text.char_indices().nth(MESSAGE_LENGTH) {
            _ if text.is_empty() => String::new(),
            Some((end, _)) => format!(", {}…", &text[..end]),
            None => format!(", {text}"),
        }
    }

    /// Never prints this, whoever says it.
    pub(super) fn keep_secret(&self, secret: &str) {
        self.secrets.lock().add(secret);
    }

    /// The text in one line and without secrets.
    fn one_line(&self, text: &str) -> String {
        let text = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty()).fold(
            String::new(),
            |mut line, word| {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
                line
            },
        );
        self.secrets.lock().hidden_in(text)
    }
}

impl Answer {
    fn retry_after(&self) -> Option<Duration> {
        self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
    }
}

fn is_unauthenticated(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | TOKEN_EXPIRED)
}

pub(super) fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

fn failure(why: &reqwest::Error, request: &Request) -> Failure {
    let (url, cause) = (printable(&request.url), cause(why));
    if why.is_connect() {
        return Failure::NoConnection(format!("{url} can't be reached: {cause}"));
    }
    match why.is_timeout() {
        true => Failure::TimedOut(format!("{url} did not answer within {:?}", request.timeout)),
        false => Failure::Broken(format!("no answer from {url}: {cause}")),
    }
}

/// The innermost reason, which holds no URL.
pub(super) fn cause(why: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = match why.source() {
        Some(source) => source,
        None if why.is_timeout() => return "the time is up".into(),
        None => return "the request failed".into(),
    };
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Why an answer could not be read.
pub(super) enum Unread {
    Http(reqwest::Error),
    Unusable(String),
}

/// What an answer holds, packed or not.
pub(super) async fn read_at_most(answer: &mut reqwest::Response, limit: u64) -> Result<Vec<u8>, Unread> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(Unread::Http)? {
        if (body.len() + chunk.len()) as u64 > limit {
            return Err(Unread::Unusable(format!("the answer is larger than {limit} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

async fn read_body(mut answer: reqwest::Response) -> Result<Bytes, Unread> {
    let encoding = answer.headers().get(header::CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase());
    let body = read_at_most(&mut answer, MAX_ANSWER_BYTES).await?;
    match encoding.as_deref() {
        None | Some(b"" | b"identity") => Ok(body.into()),
        Some(b"gzip" | b"x-gzip") if body.is_empty() => Ok(Bytes::new()),
        Some(b"gzip" | b"x-gzip") => {
            let size = body.len().saturating_mul(PACKED);
            let inflated = aside(size, move || inflate(&body, MAX_ANSWER_BYTES)).await.and_then(|inflated| inflated);
            inflated.map(Bytes::from).map_err(Unread::Unusable)
        }
        Some(other) => Err(Unread::Unusable(format!(
            "the answer has the encoding {:?}, which was not asked for",
            String::from_utf8_lossy(other)
        ))),
    }
}

/// Works on a text of `size` bytes; on a large one where no other request waits for it.
///
/// # Errors
/// When the work could not be done: the runtime is about to end.
pub(super) async fn aside<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    match size < LARGE_BYTES {
        true => Ok(work()),
        false => tokio::task::spawn_blocking(work).await.map_err(|why| format!("the answer was not read: {why}")),
    }
}

fn inflate(body: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let mut inflated = Vec::new();
    flate2::read::MultiGzDecoder::new(body)
        .take(limit + 1)
        .read_to_end(&mut inflated)
        .map_err(|why| format!("the answer is damaged: {why}"))?;
    match inflated.len() as u64 > limit {
        true => Err(format!("the answer inflates to more than {limit} bytes")),
        false => Ok(inflated),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn a_large_text_is_worked_on_by_another_thread() {
        let here = std::thread::current().id();
        let of = async |size| aside(size, || std::thread::current().id()).await.unwrap();
        assert_eq!(of(LARGE_BYTES - 1).await, here);
        assert_ne!(of(LARGE_BYTES).await, here);
    }

    #[test]
    fn a_decompression_bomb_is_not_inflated() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&[b' '; 100_000]).unwrap();
        let bomb = encoder.finish().unwrap();
        assert_eq!(inflate(&bomb, 100_000).unwrap().len(), 100_000);
        assert!(inflate(&bomb, 99_999).unwrap_err().contains("more than 99999"));
        assert!(inflate(&bomb[..50], 100_000).unwrap_err().contains("damaged"));
    }
}
