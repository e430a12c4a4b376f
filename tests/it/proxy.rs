//! A proxy for HTTP/1.1 in front of a real server: it notes each request and its answer, and breaks some as it is told.
//!
//! What it doesn't break goes through byte for byte, the Host header too, so that signatures hold.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came. A hook may change it.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// As it was sent: some clients encode the slashes of a key.
    target: String,
    /// Decoded.
    pub path: String,
    /// Without the question mark.
    pub query: String,
    pub headers: Vec<(String, String)>,
    /// With its framing where it came in chunks.
    pub body: Vec<u8>,
}

/// What becomes of a request.
pub enum Verdict {
    Pass,
    /// The server never sees it.
    Answer(u16, String),
    /// The connection breaks before the server sees it.
    Lose,
    /// The server does what it is asked for, but its answer gets lost.
    LoseAnswer,
    /// The server does what it is asked for, but this is answered.
    Misreport(u16, String),
    /// The server's answer has another body.
    Edit(Box<dyn FnOnce(Vec<u8>) -> Vec<u8> + Send>),
    /// It goes through once this is done.
    After(Box<dyn FnOnce() + Send>),
}

/// A request that came, and the status of its answer; `None` when there was none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    /// Decoded.
    pub path: String,
    pub query: String,
    pub status: Option<u16>,
}

type Hook = Box<dyn FnMut(&mut Request) -> Verdict + Send>;

/// The proxy. It ends with the runtime that it was started in.
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: String,
    hook: Mutex<Hook>,
    seen: Mutex<Vec<Seen>>,
}

impl Proxy {
    /// Starts one in front of `http://host:port`.
    pub async fn before(upstream: &str) -> Self {
        let upstream = upstream.strip_prefix("http://").expect("an http URL").trim_end_matches('/').to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared =
            Arc::new(Shared { upstream, hook: Mutex::new(Box::new(|_| Verdict::Pass)), seen: Mutex::default() });
        let of_connections = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&of_connections);
                // However a connection ends: the client notices, and so does the test.
                tokio::spawn(async move { _ = serve(client, &shared).await });
            }
        });
        Self { url, shared }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Decides what becomes of requests from now on.
    pub fn on(&self, hook: impl FnMut(&mut Request) -> Verdict + Send + 'static) {
        *self.shared.hook.lock().unwrap() = Box::new(hook);
    }

    /// Lets everything pass again.
    pub fn recover(&self) {
        self.on(|_| Verdict::Pass);
    }

    /// The requests since this was last asked.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap())
    }
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }
}

/// Serves one client, with one connection to the server, until either has enough.
async fn serve(client: TcpStream, shared: &Shared) -> Result<()> {
    client.set_nodelay(true)?;
    let mut client = BufReader::new(client);
    let mut server = None;
    while let Some(mut request) = read_request(&mut client).await? {
        let mut verdict = (shared.hook.lock().unwrap())(&mut request);
        if let Verdict::After(deed) = verdict {
            tokio::task::spawn_blocking(deed).await.map_err(Error::other)?;
            verdict = Verdict::Pass;
        }
        let Request { method, path, query, .. } = request.clone();
        let note = |status| shared.seen.lock().unwrap().push(Seen { method, path, query, status });
        let answer = match verdict {
            Verdict::Pass => exchange(&mut server, shared, &request).await?,
            Verdict::Answer(status, body) => Answer::saying(status, body.as_bytes()),
            Verdict::Lose => {
                note(None);
                return Ok(());
            }
            Verdict::LoseAnswer => {
                exchange(&mut server, shared, &request).await?;
                note(None);
                return Ok(());
            }
            Verdict::Misreport(status, body) => {
                exchange(&mut server, shared, &request).await?;
                Answer::saying(status, body.as_bytes())
            }
            Verdict::Edit(edit) => {
                request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("accept-encoding"));
                let real = exchange(&mut server, shared, &request).await?;
                Answer::saying(real.status, &edit(real.body))
            }
            Verdict::After(_) => return Ok(()),
        };
        note(Some(answer.status));
        client.write_all(&answer.bytes).await?;
        if answer.closes {
            return Ok(());
        }
    }
    Ok(())
}

struct Answer {
    status: u16,
    /// As it came.
    bytes: Vec<u8>,
    /// Without its framing.
    body: Vec<u8>,
    /// The end of the connection is the end of the answer, or the server said that it closes.
    closes: bool,
}

impl Answer {
    fn saying(status: u16, body: &[u8]) -> Self {
        let mut bytes = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend(body);
        Self { status, bytes, body: body.to_vec(), closes: false }
    }
}

/// Sends a request on and reads the whole answer. A connection that the server closed meanwhile is made anew. Only what
/// changes nothing is sent twice: a request that failed on a connection that was open may have been carried out.
async fn exchange(server: &mut Option<BufReader<TcpStream>>, shared: &Shared, request: &Request) -> Result<Answer> {
    let is_harmless = matches!(request.method.as_str(), "GET" | "HEAD");
    if let Some(reused) = server.take().filter(|reused| is_open(reused.get_ref())) {
        let outcome = exchange_on(reused, server, request).await;
        if outcome.is_ok() || !is_harmless {
            return outcome;
        }
    }
    let fresh = TcpStream::connect(&shared.upstream).await?;
    fresh.set_nodelay(true)?;
    exchange_on(BufReader::new(fresh), server, request).await
}

/// Asks on this connection, and keeps it in `server` for the next request if it can have one.
async fn exchange_on(
    mut connection: BufReader<TcpStream>,
    server: &mut Option<BufReader<TcpStream>>,
    request: &Request,
) -> Result<Answer> {
    connection.write_all(&request.to_bytes()).await?;
    let answer = read_answer(&mut connection, &request.method).await?;
    *server = (!answer.closes).then_some(connection);
    Ok(answer)
}

/// False when the other side closed a connection on which nothing is expected.
fn is_open(connection: &TcpStream) -> bool {
    connection.try_read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// The next request of a connection; `None` when it was closed between two of them.
async fn read_request(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Request>> {
    if from.fill_buf().await?.is_empty() {
        return Ok(None);
    }
    let (first, headers, _) = read_head(from).await?;
    let mut parts = first.split(' ');
    let (Some(method), Some(target)) = (parts.next(), parts.next()) else { return Err(ErrorKind::InvalidData.into()) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (method, target, query) = (method.to_string(), target.to_string(), query.to_string());
    let path = decoded(path);
    let mut request = Request { method, target, path, query, headers, body: vec![] };
    if request.header("transfer-encoding").is_some() {
        request.body = read_chunks(from).await?.0;
    } else if let Some(length) = request.header("content-length") {
        request.body = vec![0; length.parse().map_err(Error::other)?];
        from.read_exact(&mut request.body).await?;
    }
    Ok(Some(request))
}

async fn read_answer(from: &mut (impl AsyncBufRead + Unpin), method: &str) -> Result<Answer> {
    let (first, headers, mut bytes) = read_head(from).await?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(ErrorKind::InvalidData)?;
    let header =
        |name: &str| headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let says = |value: &str| header("connection").is_some_and(|said| said.eq_ignore_ascii_case(value));
    let mut closes = says("close") || first.starts_with("HTTP/1.0") && !says("keep-alive");
    let mut body = vec![];
    if method == "HEAD" || status == 204 || status == 304 {
        return Ok(Answer { status, bytes, body, closes });
    }
    if header("transfer-encoding").is_some() {
        let chunks;
        (chunks, body) = read_chunks(from).await?;
        bytes.extend(chunks);
    } else {
        if let Some(length) = header("content-length") {
            body = vec![0; length.parse().map_err(Error::other)?];
            from.read_exact(&mut body).await?;
        } else {
            from.read_to_end(&mut body).await?;
            closes = true;
        }
        bytes.extend(&body);
    }
    Ok(Answer { status, bytes, body, closes })
}

fn decoded(path: &str) -> String {
    let mut bytes = vec![];
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = &after[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first line, the headers, and all of it as it came.
async fn read_head(from: &mut (impl AsyncBufRead + Unpin)) -> Result<(String, Vec<(String, String)>, Vec<u8>)> {
    let (mut bytes, mut lines) = (vec![], vec![]);
    loop {
        let line = read_line(from).await?;
        bytes.extend(&line);
        match String::from_utf8_lossy(&line).trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let header = |line: &String| line.split_once(':').map(|(name, value)| (name.to_string(), value.trim().to_string()));
    let headers = lines.iter().skip(1).filter_map(header).collect();
    Ok((lines.into_iter().next().unwrap_or_default(), headers, bytes))
}

/// A body in chunks, with its framing and without.
async fn read_chunks(from: &mut (impl AsyncBufRead + Unpin)) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut framed, mut body) = (vec![], vec![]);
    loop {
        let line = read_line(from).await?;
        framed.extend(&line);
        let text = String::from_utf8_lossy(&line);
        let size =
            usize::from_str_radix(text.split(';').next().unwrap_or_default().trim(), 16).map_err(Error::other)?;
        let begin = body.len();
        body.resize(begin + size, 0);
        from.read_exact(&mut body[begin..]).await?;
        framed.extend(&body[begin..]);
        // The line that ends a chunk; after the last one there may be trailers before it.
        loop {
            let line = read_line(from).await?;
            framed.extend(&line);
            if size > 0 || line.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        if size == 0 {
            return Ok((framed, body));
        }
    }
}

async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Vec<u8>> {
    let mut line = vec![];
    from.read_until(b'\n', &mut line).await?;
    match line.ends_with(b"\n") {
        true => Ok(line),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
