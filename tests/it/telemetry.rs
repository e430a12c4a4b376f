//! Spans of the command line, as a collector of OpenTelemetry gets them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use iceberg_maintenance::fixtures::{History, Table};
use iceberg_maintenance::{Clock, SystemClock};

use crate::support::without_collector;

const DAY_MS: i64 = 86_400_000;

/// A table of two snapshots, one of which is old.
fn table(folder: &Path) {
    let now = SystemClock.now_ms();
    let mut history = History::new(Table::new(2));
    history.append(now - 30 * DAY_MS, ["a"]);
    history.overwrite(now - DAY_MS, ["a"], ["b"]);
    history.build().write(folder).unwrap();
}

/// Answers every request with 200, and passes on what was sent.
struct Collector {
    url: String,
    requests: mpsc::Receiver<(String, Vec<u8>)>,
}

const LAST: &str = "post /last ";

impl Collector {
    /// The next request, within a minute.
    fn next(&self) -> (String, Vec<u8>) {
        self.requests.recv_timeout(Duration::from_secs(60)).expect("nothing was sent")
    }

    /// All that was sent before now.
    fn all(&self) -> Vec<(String, Vec<u8>)> {
        let mut last = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        last.write_all(b"POST /last HTTP/1.1\r\nContent-Length: 0\r\n\r\n").unwrap();
        std::iter::repeat_with(|| self.next()).take_while(|(head, _)| !head.starts_with(LAST)).collect()
    }

    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let _ = sender.send(answer(connection.unwrap()));
            }
        });
        Self { url, requests }
    }
}

/// Reads one request: its head and its body.
fn answer(mut connection: TcpStream) -> (String, Vec<u8>) {
    let (mut read, mut buffer) = (vec![], [0; 4096]);
    loop {
        let count = connection.read(&mut buffer).unwrap();
        assert!(count > 0, "the connection ended within a request");
        read.extend_from_slice(&buffer[..count]);
        let Some(end) = read.windows(4).position(|part| part == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if read.len() < end + 4 + length.unwrap() {
            continue;
        }
        connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        return (head, read.split_off(end + 4));
    }
}

fn expire(folder: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"));
    without_collector(&mut command).envs(variables.iter().copied());
    command.args(["expire-snapshots", "--yes"]).arg(folder).output().unwrap()
}

fn has(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_collector_gets_the_run_with_its_stages_and_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path());
    let collector = Collector::new();
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t0ken");
    let output = expire(folder.path(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url), headers]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (head, body) = collector.next();
    assert!(head.starts_with("post /v1/traces ") && head.contains("content-type: application/x-protobuf"), "{head}");
    assert!(head.contains("authorization: bearer t0ken"), "{head}");
    let table = folder.path().to_str().unwrap();
    let texts = ["service.name", "iceberg-maintenance", "expire_snapshots", table, "bytes_deleted"];
    for text in texts.into_iter().chain(["loading", "reading metadata", "committing", "deleting"]) {
        assert!(has(&body, text), "no {text}");
    }
    // Each delete is an event of the log, and none of the trace.
    assert!(!has(&body, "data/a.parquet"));
}

#[test]
fn a_collector_that_is_not_there_is_a_note_and_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{closed}");
    let output = expire(folder.path(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("deleted_snapshots_count"),
        "{error}"
    );
    assert!(error.contains("Note: spans could not be sent: "), "{error}");
}

#[test]
fn nothing_is_sent_where_the_environment_says_so() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path());
    let collector = Collector::new();
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()), ("OTEL_SDK_DISABLED", "true")];
    assert!(expire(folder.path(), &variables).status.success());
    assert!(expire(folder.path(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).status.success());
    assert!(collector.all().is_empty());
}

#[test]
fn an_address_that_is_none_is_a_note_without_its_password_and_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path());
    for endpoint in ["::", "http://user:s3cret@[", "s3cret://x"] {
        let output = expire(folder.path(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && error.contains("Note: spans could not be sent"), "{endpoint}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
