//! A Glue of one database and a few tables on the loopback interface, which misbehaves when it is told to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(super) const DATABASE: &str = "db";

/// What the server knows.
pub(super) struct State {
    /// Tables by name.
    pub tables: BTreeMap<String, Value>,
    /// Whether an update must name the current version.
    pub compares_versions: bool,
    /// Whether an update makes a new version.
    pub counts_versions: bool,
    /// All requests: the operation and its input.
    pub requests: Vec<(String, Value)>,
    /// The headers of the last request.
    pub headers: HashMap<String, String>,
    turns: HashMap<&'static str, VecDeque<Turn>>,
}

/// What somebody else does.
pub(super) type Deed = Box<dyn FnOnce(&mut State) + Send>;

/// How one request goes.
pub(super) enum Turn {
    AsUsual,
    /// Somebody else is a moment faster.
    After(Deed),
    /// Somebody else comes right behind.
    Before(Deed),
    /// Refused with this status and exception.
    Refused(u16, &'static str),
    /// Carried out, but answered with this status.
    AnsweredWith(u16),
    /// Carried out, but answered with this status and exception.
    AnsweredWithException(u16, &'static str),
    /// Answered with these bytes and status 200.
    Bytes(Vec<u8>),
    /// Sent to another address.
    Redirected(String),
    /// Carried out, but the connection breaks.
    Unanswered,
}

pub(super) struct Server {
    pub address: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = State {
            tables: BTreeMap::new(),
            compares_versions: true,
            counts_versions: true,
            requests: vec![],
            headers: HashMap::new(),
            turns: HashMap::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { address, state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Says how the next requests of an operation go.
    pub(super) fn on(&self, operation: &'static str, turns: impl IntoIterator<Item = Turn>) {
        self.state().turns.entry(operation).or_default().extend(turns);
    }

    /// The operations that were asked for since the last call.
    pub(super) fn operations(&self) -> Vec<String> {
        self.state().requests.drain(..).map(|(operation, _)| operation).collect()
    }
}

impl State {
    /// Changes a table as any update does.
    pub(super) fn update(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let counts = self.counts_versions;
        let table = self.tables.get_mut(name).unwrap();
        change(table);
        if counts {
            let version: u64 = table["VersionId"].as_str().unwrap().parse().unwrap();
            table["VersionId"] = (version + 1).to_string().into();
        }
    }

    fn answer(&mut self, operation: &str, input: &Value) -> (u16, Value) {
        let missing = || (400, json!({"__type": "EntityNotFoundException", "Message": "no such entity"}));
        let table = |name: &str| self.tables.get(name).filter(|_| input["DatabaseName"] == DATABASE);
        match operation {
            "GetTable" => table(input["Name"].as_str().unwrap()).map_or_else(missing, |t| (200, json!({"Table": t}))),
            "GetDatabase" if input["Name"] == DATABASE => (200, json!({"Database": {"Name": DATABASE}})),
            "GetDatabases" => match input["NextToken"].as_str() {
                None => (200, json!({"DatabaseList": [{"Name": DATABASE}], "NextToken": "2"})),
                Some(_) => (200, json!({"DatabaseList": [{"Name": "empty"}]})),
            },
            "GetTables" => (200, json!({"TableList": self.tables.values().collect::<Vec<_>>()})),
            "UpdateTable" => {
                let name = input["TableInput"]["Name"].as_str().unwrap();
                let Some(found) = table(name) else { return missing() };
                if self.compares_versions && found["VersionId"] != input["VersionId"] {
                    return (400, json!({"__type": "ConcurrentModificationException", "Message": "another version"}));
                }
                let input = input["TableInput"].clone();
                self.update(name, |table| {
                    let own = ["DatabaseName", "CreateTime", "CatalogId", "VersionId"];
                    let kept = own.map(|field| (field.to_string(), table[field].clone()));
                    *table = input;
                    table.as_object_mut().unwrap().extend(kept);
                });
                (200, json!({}))
            }
            _ => missing(),
        }
    }
}

/// One request and its answer.
async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut received = vec![];
    let (head, body) = loop {
        if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&received).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let headers: HashMap<String, String> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
            .collect();
        if body.len() >= headers["content-length"].parse().unwrap() {
            break (headers, body.to_string());
        }
    };
    let operation = head["x-amz-target"].strip_prefix("AWSGlue.").unwrap().to_string();
    let input: Value = serde_json::from_str(&body).unwrap();
    let answered = {
        let mut state = state.lock().unwrap();
        state.headers = head;
        state.requests.push((operation.clone(), input.clone()));
        let turn = state.turns.get_mut(operation.as_str()).and_then(VecDeque::pop_front);
        let said = |(status, body): (u16, Value)| Some((format!("{status} x"), body.to_string().into_bytes()));
        match turn.unwrap_or(Turn::AsUsual) {
            Turn::AsUsual => said(state.answer(&operation, &input)),
            Turn::After(deed) => {
                deed(&mut state);
                said(state.answer(&operation, &input))
            }
            Turn::Before(deed) => {
                let answer = state.answer(&operation, &input);
                deed(&mut state);
                said(answer)
            }
            Turn::Refused(status, kind) => said((status, json!({"__type": kind, "Message": "no"}))),
            Turn::AnsweredWith(status) => {
                state.answer(&operation, &input);
                said((status, json!({})))
            }
            Turn::AnsweredWithException(status, kind) => {
                state.answer(&operation, &input);
                said((status, json!({"__type": kind, "Message": "no"})))
            }
            Turn::Bytes(bytes) => Some(("200 x".into(), bytes)),
            Turn::Redirected(to) => Some((format!("307 x\r\nlocation: {to}"), vec![])),
            Turn::Unanswered => {
                state.answer(&operation, &input);
                None
            }
        }
    };
    if let Some((status, body)) = answered {
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
    }
}
