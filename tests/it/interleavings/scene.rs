//! A table, what was done to it before, and the actors that meet at it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use datafusion::prelude::{SessionConfig, SessionContext};
use iceberg_maintenance::fixtures::{History, Table};
use iceberg_maintenance::{FixedClock, Maintenance, MaintenanceOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Runtime};
use url::Url;

use super::law::{Law, Needs};
use super::scheduler::{Choices, Scheduler, Step};
use super::store::{ActorStore, LiesAt};
use super::writer::{Change, Commit, commits, load};
use crate::support::Session;
use crate::watched::{Kind, WatchedStore, Wrong};

pub const LOCATION: &str = "s3://bucket/wh/t";
const HOUR_MS: i64 = 3600 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
pub const BEGIN_MS: i64 = 1_700_000_000_000;
/// When writers make their changes, by their own clock.
pub const LATER_MS: i64 = BEGIN_MS + 20 * DAY_MS;
const STRAYS: [&str; 2] = ["wh/t/data/stray-1.parquet", "wh/t/metadata/stray-2.avro"];

/// Who meets at the table.
pub enum Acts {
    /// A maintenance statement; `RUN` in it is the run that was done before.
    Calls(&'static str),
    /// A writer makes these changes.
    Writes(&'static [Change]),
    /// A writer makes these changes long after it wrote their files.
    WritesLate(&'static [Change]),
    /// A reader of the current snapshot.
    Reads,
}

/// What was done before.
pub enum Before {
    Ran(&'static str),
    /// It ran, and could delete nothing.
    RanWithoutDeletes(&'static str),
}

/// A table and its actors.
pub struct Scene {
    pub name: String,
    objects: InMemory,
    contents: BTreeMap<String, Bytes>,
    needs: Arc<Needs>,
    actors: Vec<Plays>,
    /// Writers name files that they did not write just now.
    late: bool,
    /// How many requests of a kind a maintenance run makes at once.
    at_once: usize,
    /// What was there at first has been there for long.
    old_until: DateTime<Utc>,
}

#[derive(Clone)]
enum Plays {
    Calls(String),
    Writes(Vec<Commit>),
    Reads,
}

/// How a schedule went.
pub struct Played {
    pub steps: Vec<Step>,
    pub violations: Vec<String>,
    /// How each actor ended.
    pub ends: Vec<String>,
    /// How many choices could not be kept to.
    pub misses: usize,
}

/// Snapshots 1 to 3 expire with files of every kind; 2 is the parent of both 3, which is staged, and 4, the current one.
fn history() -> History {
    let table = Table { location: Some(LOCATION.into()), last_updated_ms: BEGIN_MS, ..Table::new(2) };
    let mut history = History::new(table);
    history.append(BEGIN_MS + DAY_MS, ["a"]);
    history.overwrite(BEGIN_MS + 2 * DAY_MS, ["a"], ["b"]);
    history.stage(BEGIN_MS + 3 * DAY_MS, ["w"]);
    history.append(BEGIN_MS + 4 * DAY_MS, ["c"]);
    history.statistics(1);
    history
}

/// The files of a table by their keys.
pub fn files_of(table: &Table) -> BTreeMap<String, Bytes> {
    let folder = tempfile::tempdir().unwrap();
    let written = table.write(folder.path()).unwrap();
    let content = |file: &String| Bytes::from(std::fs::read(written.folder.join(file)).unwrap());
    written.files_on_disk().unwrap().iter().map(|file| (format!("wh/t/{file}"), content(file))).collect()
}

fn needs_of(table: &Table) -> Needs {
    let needs = |id: i64| table.live_files(id).into_iter().map(|file| format!("wh/t/{}", file.path)).collect();
    let snapshots = table.snapshots.iter().chain(&table.dropped_snapshots);
    snapshots.map(|snapshot| (snapshot.id, needs(snapshot.id))).collect()
}

fn session(store: Arc<dyn ObjectStore>, now_ms: i64, at_once: usize) -> Session {
    let mut options = MaintenanceOptions::default();
    options.max_concurrent_deletes = at_once;
    options.max_concurrent_listings = at_once;
    options.max_concurrent_reads = at_once;
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    context.register_object_store(&Url::parse("s3://bucket").unwrap(), store);
    let maintenance = Maintenance::builder().clock(Arc::new(FixedClock(now_ms))).options(options);
    Session { maintenance: maintenance.register(&context).unwrap(), context }
}

fn runtime(idle: impl Fn() + Send + Sync + 'static) -> Runtime {
    Builder::new_current_thread().enable_all().on_thread_park(idle).build().unwrap()
}

impl Scene {
    pub fn new(name: impl Into<String>, before: &[Before], acts: Vec<Acts>) -> Self {
        let mut history = history();
        let mut contents = runtime(|| {}).block_on(after(history.table(), before));
        let run = run_in(&contents);
        let mut late = false;
        let plays = |acts| match acts {
            Acts::Calls(statement) => Plays::Calls(statement.replace("RUN", &run)),
            Acts::Writes(changes) => Plays::Writes(commits(&mut history, changes)),
            Acts::WritesLate(changes) => {
                let mut commits = commits(&mut history, changes);
                contents.extend(commits.iter_mut().flat_map(Commit::take_files));
                late = true;
                Plays::Writes(commits)
            }
            Acts::Reads => Plays::Reads,
        };
        let actors = acts.into_iter().map(plays).collect();
        let needs = Arc::new(needs_of(history.table()));
        let objects = InMemory::new();
        runtime(|| {}).block_on(async {
            for (key, content) in &contents {
                objects.put(&Path::from(key.as_str()), content.clone().into()).await.unwrap();
            }
        });
        // An actor that asks one thing at a time does the same in the same schedule.
        let (name, at_once) = (name.into(), 1);
        Self { name, objects, contents, needs, actors, late, at_once, old_until: Utc::now() }
    }

    /// Maintenance runs make so many requests of a kind at once.
    pub fn at_once(self, at_once: usize) -> Self {
        Self { at_once, ..self }
    }

    /// Plays the scene once.
    pub fn play(&self, choices: Choices) -> Played {
        self.play_with(choices, None)
    }

    /// Plays the scene once, with a lie to every actor.
    pub fn play_with(&self, choices: Choices, lies: Option<LiesAt>) -> Played {
        let scheduler = Scheduler::new(self.actors.len(), choices);
        let only_removes = |call: &String| !call.contains("restore_snapshots");
        let is_maintenance = |actor: &Plays| matches!(actor, Plays::Calls(call) if only_removes(call));
        let is_maintenance = self.actors.iter().map(is_maintenance).collect();
        let law = Arc::new(Mutex::new(Law::new(self.needs.clone(), is_maintenance, self.late, &self.contents)));
        let objects = Arc::new(self.objects.fork());
        let now_ms = Utc::now().timestamp_millis();
        let turns = scheduler.clone();
        let ends = runtime(move || turns.next()).block_on(async {
            let acts = self.actors.iter().enumerate().map(|(actor, plays)| {
                let (scheduler, law) = (scheduler.clone(), law.clone());
                let (asked, objects, old_until) = (Arc::default(), objects.clone(), self.old_until);
                let store = ActorStore { actor, asked, lies, objects, old_until, scheduler, law };
                // A millisecond apart: equal metadata is one commit, whoever made it.
                tokio::spawn(act(plays.clone(), store, self.needs.clone(), now_ms + actor as i64, self.at_once))
            });
            let all = futures::future::join_all(acts.collect::<Vec<_>>());
            let ends = tokio::time::timeout(Duration::from_secs(120), all).await;
            let ends = ends.unwrap_or_else(|_| panic!("{}: an actor waits for ever", self.name));
            ends.into_iter().map(|end| end.unwrap_or_else(|died| format!("died: {died}"))).collect()
        });
        let violations = std::mem::take(&mut law.lock().unwrap().violations);
        Played { steps: scheduler.steps(), violations, ends, misses: scheduler.misses() }
    }
}

/// The objects of a table after these runs.
async fn after(table: &Table, before: &[Before]) -> BTreeMap<String, Bytes> {
    let store = WatchedStore::with_table(table).await;
    for stray in STRAYS {
        store.add(stray, "x").await;
    }
    for run in before {
        // So long ago that nobody takes it for a run that is still going on.
        let session = session(Arc::new(store.clone()), Utc::now().timestamp_millis() - HOUR_MS, 1);
        match run {
            Before::Ran(statement) => drop(session.run(statement).await.unwrap()),
            Before::RanWithoutDeletes(statement) => {
                store.answer_wrongly(|kind, _| (kind == Kind::Delete).then_some(Wrong::Denied));
                session.run(statement).await.unwrap_err();
                store.recover();
            }
        }
    }
    let mut contents = BTreeMap::new();
    for object in store.all_objects().await {
        let key = object.location.to_string();
        let content = store.content(&key).await;
        contents.insert(key, content);
    }
    contents
}

/// The run whose plan is in the journal, if there is one.
fn run_in(contents: &BTreeMap<String, Bytes>) -> String {
    let names = contents.keys().filter_map(|key| key.rsplit_once("/_maintenance/"));
    names.filter_map(|(_, name)| name.split_once(".plan")).map(|(run, _)| run.to_string()).next().unwrap_or_default()
}

/// Plays one actor's part, and says how it ended.
async fn act(plays: Plays, store: ActorStore, needs: Arc<Needs>, now_ms: i64, at_once: usize) -> String {
    let (actor, scheduler) = (store.actor, store.scheduler.clone());
    let end = match plays {
        Plays::Calls(statement) => match session(Arc::new(store), now_ms, at_once).run(&statement).await {
            Ok(_) => "done".to_string(),
            Err(error) => error,
        },
        Plays::Writes(commits) => {
            let mut end = "done";
            for commit in commits {
                if !commit.write(&store).await.unwrap() {
                    end = "void";
                    break;
                }
            }
            end.to_string()
        }
        Plays::Reads => read(&store, &needs).await,
    };
    scheduler.leaves(actor);
    end
}

/// Reads all that the current snapshot needs. What is gone may be so only because the snapshot expired.
async fn read(store: &ActorStore, needs: &Needs) -> String {
    let (_, document) = load(store).await.unwrap();
    let current = document["current-snapshot-id"].as_i64().unwrap();
    for key in &needs[&current] {
        match store.get(&Path::from(key.as_str())).await {
            Ok(_) => {}
            Err(Error::NotFound { .. }) => {
                let mut law = store.law.lock().unwrap();
                if law.snapshots().contains(&current) {
                    law.violations.push(format!("{} could not read {key} of snapshot {current}", store.actor));
                }
                return "its snapshot expired".into();
            }
            Err(error) => return error.to_string(),
        }
    }
    "done".into()
}
