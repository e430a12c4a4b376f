//! Who the requests come from: nobody, the bearer of a token, or an AWS account.
//!
//! A bearer token is given, or fetched with the client's credentials (OAuth2) and fetched again before it expires or when
//! the server doesn't take it any more.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::client::{PAUSES, Unread, is_busy, read_at_most};
use super::paths::{Paths, printable};
use super::settings::{Settings, TOKEN_SERVER, token_server};
use super::sigv4::{self, Signer};

/// A token is fetched again this long before it expires, or earlier if it lives for less than ten times as long.
const RENEW_BEFORE: Duration = Duration::from_secs(60);

/// After a renewal that failed, the next one is tried so much later while the old token holds.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// No answer with a token is larger than this.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// How requests prove who sends them.
pub(super) struct Auth {
    method: Method,
    /// The token in use, if it was fetched.
    fetched: Mutex<Option<Token>>,
}

enum Method {
    None,
    Bearer { given: Option<String>, client: Option<Box<ClientCredentials>> },
    SigV4(Box<Signer>),
}

/// OAuth2 client credentials and where they buy a token.
struct ClientCredentials {
    server: Url,
    form: String,
    headers: HeaderMap,
    timeout: Duration,
}

#[derive(Clone)]
struct Token {
    text: String,
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<f64>,
}

/// What OAuth2 servers say when they refuse.
#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: serde_json::Value,
    #[serde(default)]
    error_description: Option<String>,
}

impl Auth {
    /// # Errors
    /// Which property is wrong, missing or not supported.
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let property = |key: &str| settings.properties.get(key).filter(|value| !value.is_empty());
        if let Some(kind) = property("rest.auth.type")
            && !["none", "oauth2", "sigv4"].iter().any(|known| kind.eq_ignore_ascii_case(known))
        {
            return Err(format!(
                "rest.auth.type {kind:?} is not supported: none, oauth2 and sigv4 are. For another scheme give \
                 header.Authorization"
            ));
        }
        let method = if sigv4::is_wanted(&settings.properties, &settings.uri) {
            Method::SigV4(Box::new(Signer::new(&settings.properties, &settings.uri)?))
        } else {
            let given = property("token").cloned();
            let client =
                property("credential").map(|credential| ClientCredentials::new(credential, settings).map(Box::new));
            match (given, client.transpose()?) {
                (None, None) => Method::None,
                (given, client) => Method::Bearer { given, client },
            }
        };
        Ok(Self { method, fetched: Mutex::new(None) })
    }

    /// The token to send now, fetched if that is needed.
    ///
    /// # Errors
    /// Why none could be fetched.
    pub(super) async fn token(&self, http: &reqwest::Client) -> Result<Option<String>, String> {
        let Method::Bearer { given, client } = &self.method else { return Ok(None) };
        let mut fetched = self.fetched.lock().await;
        match (&mut *fetched, given, client) {
            (Some(token), _, _) if !token.is_due() => Ok(Some(token.text.clone())),
            (None, Some(given), _) => Ok(Some(given.clone())),
            (old, _, Some(client)) => match (client.fetch(http).await, old) {
                (Ok(token), old) => Ok(Some(old.insert(token).text.clone())),
                (Err(why), Some(token)) if token.is_valid() => {
                    tracing::warn!(why, "the token was not renewed; the old one still holds");
                    token.renew_at = Instant::now().checked_add(RETRY_AFTER);
                    Ok(Some(token.text.clone()))
                }
                (Err(why), _) => Err(why),
            },
            (_, given, None) => Ok(given.clone()),
        }
    }

    /// Fetches another token after the server refused `refused`. False when there is nothing to fetch one with.
    ///
    /// # Errors
    /// Why none could be fetched.
    pub(super) async fn renew(&self, http: &reqwest::Client, refused: &str) -> Result<bool, String> {
        let Method::Bearer { client: Some(client), .. } = &self.method else { return Ok(false) };
        let mut fetched = self.fetched.lock().await;
        // Another request may have renewed it meanwhile.
        if fetched.as_ref().is_none_or(|token| token.text == refused) {
            *fetched = Some(client.fetch(http).await?);
        }
        Ok(true)
    }

    /// Makes the request its sender's: with the token, or signed. A header that the user gave stays.
    ///
    /// # Errors
    /// Why that is impossible.
    pub(super) async fn authorize(&self, request: &mut reqwest::Request, token: Option<&str>) -> Result<(), String> {
        if let Method::SigV4(signer) = &self.method {
            return signer.sign(request).await;
        }
        let Some(token) = token else { return Ok(()) };
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| "its token holds characters that no header can carry".to_string())?;
        value.set_sensitive(true);
        request.headers_mut().entry(header::AUTHORIZATION).or_insert(value);
        Ok(())
    }
}

impl Token {
    fn is_due(&self) -> bool {
        self.renew_at.is_some_and(|at| Instant::now() >= at)
    }

    fn is_valid(&self) -> bool {
        self.expires_at.is_none_or(|at| Instant::now() < at)
    }
}

impl ClientCredentials {
    fn new(credential: &str, settings: &Settings) -> Result<Self, String> {
        let property = |key: &str| settings.properties.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let server = match property(TOKEN_SERVER) {
            None => Paths::new(settings.token_uri.clone(), None, None).tokens()?,
            Some(named) => token_server(&settings.token_uri, named)?,
        };
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        match credential.split_once(':') {
            Some((id, secret)) => form.append_pair("client_id", id).append_pair("client_secret", secret),
            None => form.append_pair("client_secret", credential),
        };
        form.append_pair("scope", property("scope").unwrap_or("catalog"));
        for optional in ["audience", "resource"] {
            if let Some(value) = property(optional) {
                form.append_pair(optional, value);
            }
        }
        // The catalog's own headers may be secrets: they go to no other server.
        let headers =
            if server.origin() == settings.token_uri.origin() { settings.headers.clone() } else { HeaderMap::new() };
        Ok(Self { server, form: form.finish(), headers, timeout: settings.read_timeout })
    }

    /// Buys a token. Asks again when the server is busy or fails.
    async fn fetch(&self, http: &reqwest::Client) -> Result<Token, String> {
        let mut pauses = PAUSES.into_iter();
        let (status, body) = loop {
            let (status, body) = self.ask(http).await?;
            match pauses.next() {
                Some(pause) if status.is_server_error() || is_busy(status) => tokio::time::sleep(pause).await,
                _ => break (status, body),
            }
        };
        let server = printable(&self.server);
        if !status.is_success() {
            return Err(format!("{server} gave no token for the credential: {status}{}", refusal(&body)));
        }
        let answer: TokenAnswer =
            serde_json::from_slice(&body).map_err(|_| format!("what {server} answered holds no access_token"))?;
        let lifetime = answer.expires_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let after = |time: Duration| Instant::now().checked_add(time);
        Ok(Token {
            text: answer.access_token,
            renew_at: lifetime.and_then(|life| after(life - RENEW_BEFORE.min(life / 10))),
            expires_at: lifetime.and_then(after),
        })
    }

    async fn ask(&self, http: &reqwest::Client) -> Result<(StatusCode, Vec<u8>), String> {
        let server = printable(&self.server);
        let failed = |why: &reqwest::Error| format!("no token from {server}: {}", super::client::cause(why));
        let request = http
            .post(self.server.clone())
            .timeout(self.timeout)
            .headers(self.headers.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(self.form.clone());
        let mut answer = request.send().await.map_err(|why| failed(&why))?;
        let body = read_at_most(&mut answer, MAX_ANSWER_BYTES).await.map_err(|why| match why {
            Unread::Http(why) => failed(&why),
            Unread::Unusable(why) => format!("no token from {server}: {why}"),
        })?;
        Ok((answer.status(), body))
    }
}

fn refusal(body: &[u8]) -> String {
    let refusal: Refusal = serde_json::from_slice(body).unwrap_or_default();
    // OAuth2's own form has a name there, Iceberg's an object with a message.
    let error = refusal.error.as_str().or_else(|| refusal.error.get("message")?.as_str()).unwrap_or_default();
    let parts = [error, refusal.error_description.as_deref().unwrap_or_default()];
    parts.iter().filter(|part| !part.is_empty()).map(|part| format!(", {part}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_that_still_holds_serves_when_its_renewal_fails() {
        let properties = [("uri", "http://127.0.0.1:1"), ("credential", "secret")];
        let properties = properties.map(|(key, value)| (key.to_string(), value.to_string())).into();
        let auth = Auth::new(&Settings::new(&properties).unwrap()).unwrap();
        let http = reqwest::Client::new();
        let due = |lives: Duration| {
            let now = Instant::now();
            Some(Token { text: "old".into(), renew_at: Some(now), expires_at: Some(now + lives) })
        };
        *auth.fetched.lock().await = due(Duration::from_secs(3600));
        assert_eq!(auth.token(&http).await, Ok(Some("old".into())));
        assert!(!auth.fetched.lock().await.as_ref().unwrap().is_due(), "the next try comes later");
        *auth.fetched.lock().await = due(Duration::ZERO);
        assert!(auth.token(&http).await.unwrap_err().contains("no token from http://127.0.0.1:1"));
    }
}
