//! A server that plays back what a test wrote, and records what it was asked.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// What a request gets. In the order of the requests, whatever they ask for.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    delay: Duration,
    /// Closes the connection instead of answering.
    drops: bool,
    /// Promises this many bytes more than it sends.
    cut_short_by: usize,
}

impl Reply {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    pub(super) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, body)
    }

    /// An error in Iceberg's own form.
    pub(super) fn error(status: u16, kind: &str, message: &str) -> Self {
        let error = serde_json::json!({"error": {"message": message, "type": kind, "code": status}});
        Self::new(status, error.to_string())
    }

    pub(super) fn dropped() -> Self {
        Self { drops: true, ..Self::default() }
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(super) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub(super) fn cut_short(self) -> Self {
        Self { cut_short_by: 10, ..self }
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// `METHOD /path?query`
    pub(super) line: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) uri: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    left: Arc<Mutex<Vec<Reply>>>,
}

impl Server {
    pub(super) async fn start(mut replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        replies.reverse();
        let (asked, left) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(replies)));
        let server = Self { uri, asked: Arc::clone(&asked), left: Arc::clone(&left) };
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&asked), Arc::clone(&left)));
            }
        });
        server
    }

    /// What was asked since the start.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// The request lines, after checking that all replies were used.
    pub(super) fn lines(&self) -> Vec<String> {
        assert_eq!(self.left.lock().len(), 0, "replies that nobody asked for; asked was {:#?}", self.asked());
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

async fn serve(connection: TcpStream, asked: Arc<Mutex<Vec<Asked>>>, left: Arc<Mutex<Vec<Reply>>>) {
    let mut connection = BufStream::new(connection);
    while let Some(request) = read_request(&mut connection).await {
        asked.lock().push(request);
        let reply = left.lock().pop().unwrap_or_else(|| Reply::new(400, "no reply was written for this request"));
        tokio::time::sleep(reply.delay).await;
        if reply.drops {
            return;
        }
        let mut head = format!("HTTP/1.1 {} Status\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if reply.status != 304 {
            head.push_str(&format!("content-length: {}\r\n", reply.body.len() + reply.cut_short_by));
        }
        head.push_str("\r\n");
        let written = async {
            connection.write_all(head.as_bytes()).await?;
            connection.write_all(&reply.body).await?;
            connection.flush().await
        };
        if written.await.is_err() || reply.cut_short_by > 0 {
            return;
        }
    }
}

async fn read_request(connection: &mut BufStream<TcpStream>) -> Option<Asked> {
    let mut lines = vec![];
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let line = lines.first()?.strip_suffix(" HTTP/1.1")?.to_string();
    let header = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_string()));
    let headers: Vec<_> = lines.iter().skip(1).filter_map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    connection.read_exact(&mut body).await.ok()?;
    Some(Asked { line, headers, body })
}
