//! Spans of runs for an OpenTelemetry collector, where the environment names one: OTLP over HTTP.
//!
//! The variables are those of the OpenTelemetry specification: `OTEL_EXPORTER_OTLP_ENDPOINT` or
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` switches it on; headers, time-outs, sampling and the resource's attributes have theirs.
//! What goes wrong with a collector never touches a run.

use std::env::{var, var_os};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError, ResponseBodyTooLarge};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfig, BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use tokio::runtime::{Handle, Runtime};
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;

/// Where spans go, in the order in which the specification looks.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];

/// What the specification says where no variable does.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of an answer is read. A collector has little to say.
const MOST_OF_AN_ANSWER: usize = 4 << 20;

/// How many spans wait at most.
const MOST_WAITING_SPANS: usize = 1 << 16;

/// The name of this service in a collector.
const SERVICE: &str = "iceberg-maintenance";

/// Sends spans until it is dropped, when the last ones go.
#[derive(Debug)]
pub(crate) struct Telemetry {
    sender: Option<Sender>,
    quiet: bool,
}

/// What sends. The runtime is its own, so that a collector which takes its time is none of the session's business.
#[derive(Debug)]
struct Sender {
    provider: SdkTracerProvider,
    last_failure: LastFailure,
    _runtime: Runtime,
}

/// Why the last request failed, if it did: whoever exports spans keeps that to itself.
type LastFailure = Arc<Mutex<Option<String>>>;

impl Telemetry {
    /// Begins to send the spans of this process, where the environment names a collector.
    pub(crate) fn start(quiet: bool) -> Self {
        let is_off = var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        let is_named = ENDPOINTS.iter().any(|name| var_os(name).is_some_and(|endpoint| !endpoint.is_empty()));
        let telemetry = Self { sender: None, quiet };
        if is_off || !is_named {
            return telemetry;
        }
        match Sender::start() {
            Ok(sender) => Self { sender: Some(sender), ..telemetry },
            Err(why) => {
                telemetry.say(&why);
                telemetry
            }
        }
    }

    fn say(&self, why: &str) {
        if !self.quiet {
            // A message that nobody can read is no reason to stop.
            let _ = writeln!(std::io::stderr(), "Note: spans could not be sent: {why}");
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let Some(Sender { provider, last_failure, _runtime }) = self.sender.take() else { return };
        let ended = provider.shutdown().err().map(|why| why.to_string());
        let failure = last_failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.or(ended).iter().for_each(|why| self.say(why));
    }
}

impl Sender {
    /// # Errors
    /// In words, why nothing can be sent.
    fn start() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|why| why.to_string())?;
        let last_failure = LastFailure::default();
        let client = Client::new(runtime.handle().clone(), Arc::clone(&last_failure)).map_err(|why| why.to_string())?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
        // The address may have a password in it, which the error would show.
        let exporter = exporter.map_err(|_| format!("{} is not what it should be", ENDPOINTS.join(" or ")))?;
        let spans = BatchSpanProcessor::builder(exporter).with_batch_config(batches()).build();
        let provider = SdkTracerProvider::builder().with_span_processor(spans).with_resource(resource()).build();
        // A run deletes thousands of files, each of them an event for the log. In a trace they would only be noise.
        let is_ours = |at: &tracing::Metadata<'_>| {
            at.target().starts_with("iceberg_maintenance") && (at.is_span() || *at.level() <= Level::WARN)
        };
        let layer =
            tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE)).with_filter(filter_fn(is_ours));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::set_global_default(subscriber).map_err(|why| why.to_string())?;
        Ok(Self { provider, last_failure, _runtime: runtime })
    }
}

/// How spans wait until they are sent, as the environment says. Room for all of them is taken at once, so that there must be an end
/// to it.
fn batches() -> BatchConfig {
    let waiting = var("OTEL_BSP_MAX_QUEUE_SIZE").ok().and_then(|spans| spans.parse::<usize>().ok());
    let config = BatchConfigBuilder::default();
    match waiting {
        Some(spans) => config.with_max_queue_size(spans.clamp(1, MOST_WAITING_SPANS)).build(),
        None => config.build(),
    }
}

/// What the environment says of this process, and a name where it says none.
fn resource() -> Resource {
    let attributes = var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let has_name = var_os("OTEL_SERVICE_NAME").is_some() || attributes.contains("service.name=");
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    if has_name { resource.build() } else { resource.with_service_name(SERVICE).build() }
}

/// The HTTP client that the rest of the tool has, too. Requests run in its runtime, whoever waits for them.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
    last_failure: LastFailure,
}

impl Client {
    fn new(runtime: Handle, last_failure: LastFailure) -> Result<Self, reqwest::Error> {
        let ms = TIMEOUTS.iter().find_map(|name| var(name).ok()?.parse().ok());
        let timeout = ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        // Headers may hold a token: they go where they were meant to go, and nowhere else.
        let http = reqwest::Client::builder().timeout(timeout).redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { http, runtime, last_failure })
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let http = self.http.clone();
        let outcome = self.runtime.spawn(async move { answer(&http, request).await }).await?;
        let failure = match &outcome {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answered {}", answer.status())),
            Err(why) => Some(why.to_string()),
        };
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        outcome
    }
}

async fn answer(http: &reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let failed = |why: reqwest::Error| why.without_url();
    let mut response = http.execute(request.try_into().map_err(failed)?).await.map_err(failed)?;
    let mut body = vec![];
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MOST_OF_AN_ANSWER {
            return Err(ResponseBodyTooLarge::default().into());
        }
        body.extend_from_slice(&chunk);
    }
    let mut answer = Response::builder().status(response.status());
    if let Some(headers) = answer.headers_mut() {
        headers.extend(response.headers().iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    Ok(answer.body(body.into())?)
}
