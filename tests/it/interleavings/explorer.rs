//! Which schedules of a scene are played: all that differ and switch between actors no more often than a bound allows, then
//! some by chance.
//!
//! A schedule is known by its choices. From each one that was played follow others: those that take another actor where the
//! order matters, that is where the request which had its turn and a later one of the other actor depend on each other
//! (dynamic partial-order reduction; Flanagan and Godefroid 2005), and where an actor began to run, so that the bound does
//! not hide an order that is to be had with fewer switches (bounded partial-order reduction; Coons, Musuvathi and McKinley
//! 2013). Taking the turn from an actor that could go on counts as a switch. Schedules with few of them come first: most faults
//! need one or two.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Condvar, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::scene::{Played, Scene};
use super::scheduler::{Actor, Choices, Step, random};

/// Replays one schedule: `seed 17`, or the actors and how many turns each takes, as a failure prints them (`0x12 1x3 0x1`).
const REPLAY: &str = "ICEBERG_MAINTENANCE_SCHEDULE";
/// How many times as many schedules are played as usual.
const EFFORT: &str = "ICEBERG_MAINTENANCE_SCHEDULES";
/// Actors wait for timers, in real time: meanwhile other schedules are played.
const AT_ONCE: usize = 16;

/// How far a scene is explored.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How many times an actor may be stopped while it could go on.
    pub switches: usize,
    /// No more schedules than this.
    pub schedules: usize,
    /// So many more by chance, with any number of switches.
    pub random: usize,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Explored {
    /// Schedules by the number of their switches.
    pub schedules: BTreeMap<usize, usize>,
    pub random: usize,
    /// How the actors ended, and in how many schedules.
    pub ends: BTreeMap<String, usize>,
    /// Schedules that the bound would have allowed, but not the number.
    pub left: usize,
    /// Schedules that could not be kept to.
    pub missed: usize,
}

#[derive(Default)]
struct Work {
    /// The choices that schedules begin with, by the number of their switches.
    open: BTreeMap<usize, Vec<Vec<Actor>>>,
    seen: HashSet<u64>,
    playing: usize,
    begun: usize,
    explored: Explored,
    failure: Option<String>,
}

/// Explores a scene.
///
/// # Panics
/// When the law was broken, with the schedule.
pub fn explore(scene: &Scene, effort: Effort) -> Explored {
    if let Ok(replay) = std::env::var(REPLAY) {
        let played = scene.play(parse(&replay));
        panic!("{}", told(scene, &replay, &played));
    }
    let began = Instant::now();
    let factor = std::env::var(EFFORT).ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    let effort = Effort { schedules: effort.schedules * factor, random: effort.random * factor, ..effort };
    let work = Mutex::new(Work { open: BTreeMap::from([(0, vec![vec![]])]), ..Default::default() });
    let changed = Condvar::new();
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| {
                while let Some(choices) = next(&work, &changed, effort) {
                    let played = scene.play(Choices::Given(choices));
                    let mut work = work.lock().unwrap();
                    work.take_in(scene, &played, effort);
                    work.playing -= 1;
                    changed.notify_all();
                }
            });
        }
    });
    let mut work = work.into_inner().unwrap();
    work.explored.left = work.open.values().map(Vec::len).sum();
    if work.failure.is_none() {
        by_chance(scene, effort.random, &mut work);
    }
    if let Some(failure) = work.failure {
        panic!("{failure}");
    }
    eprintln!("{}: {:?} in {:.1} s", scene.name, work.explored, began.elapsed().as_secs_f64());
    work.explored
}

/// The choices that the next schedule begins with; `None` when all were played.
fn next(work: &Mutex<Work>, changed: &Condvar, effort: Effort) -> Option<Vec<Actor>> {
    let mut work = work.lock().unwrap();
    loop {
        if work.failure.is_some() || work.begun >= effort.schedules {
            return None;
        }
        if let Some(mut fewest) = work.open.first_entry() {
            let choices = fewest.get_mut().pop();
            if fewest.get().is_empty() {
                fewest.remove();
            }
            work.playing += 1;
            work.begun += 1;
            return choices;
        }
        if work.playing == 0 {
            return None;
        }
        work = changed.wait(work).unwrap();
    }
}

fn by_chance(scene: &Scene, count: usize, work: &mut Work) {
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seeds: Mutex<Vec<u64>> = Mutex::new((0..count).map(|_| random(&mut seed) >> 32).collect());
    let work = Mutex::new(work);
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| {
                loop {
                    let Some(seed) = seeds.lock().unwrap().pop() else { return };
                    let played = scene.play(by_seed(seed));
                    let mut work = work.lock().unwrap();
                    work.explored.random += 1;
                    work.note(scene, &format!("seed {seed}"), &played);
                }
            });
        }
    });
}

pub fn by_seed(seed: u64) -> Choices {
    // Long stretches find other faults than short ones.
    Choices::Random { state: seed, switch_one_in: [2, 4, 12][(seed % 3) as usize] }
}

impl Work {
    /// Notes how a schedule went, and the schedules that follow from it.
    fn take_in(&mut self, scene: &Scene, played: &Played, effort: Effort) {
        let choices: Vec<Actor> = played.steps.iter().map(|step| step.actor).collect();
        self.note(scene, &written(&choices), played);
        *self.explored.schedules.entry(switches(&played.steps)).or_default() += 1;
        for at in 0..choices.len() {
            self.seen.insert(hash(&choices[..=at]));
        }
        for (at, step) in played.steps.iter().enumerate() {
            let begins = at == 0 || choices[at - 1] != choices[at];
            for other in step.waiting.iter().filter(|other| **other != step.actor) {
                let mut later = played.steps[at + 1..].iter().filter(|later| later.actor == *other);
                if !begins && !later.any(|later| later.request.depends_on(&step.request)) {
                    continue;
                }
                let instead = Step { actor: *other, ..step.clone() };
                let switches = switches(played.steps[..at].iter().chain([&instead]));
                let begin: Vec<Actor> = choices[..at].iter().copied().chain([*other]).collect();
                if switches <= effort.switches && self.seen.insert(hash(&begin)) {
                    self.open.entry(switches).or_default().push(begin);
                }
            }
        }
    }

    fn note(&mut self, scene: &Scene, schedule: &str, played: &Played) {
        self.explored.missed += usize::from(played.misses > 0);
        for (actor, end) in played.ends.iter().enumerate() {
            *self.explored.ends.entry(format!("{actor}: {end}")).or_default() += 1;
        }
        if !played.violations.is_empty() || !played.ends.iter().all(|end| is_good(end)) {
            self.failure.get_or_insert_with(|| told(scene, schedule, played));
        }
    }
}

/// True for an end that a call or a writer may come to because others were faster. Anything else is a false alarm.
pub fn is_good(end: &str) -> bool {
    const ENDS: [&str; 3] = ["done", "void", "its snapshot expired"];
    // The others are of runs that are put back or returned while they are being deleted.
    const ERRORS: [&str; 4] = [
        "Run it again",
        "can't be put back now",
        "files that its snapshots need are gone",
        "has nothing in quarantine",
    ];
    ENDS.contains(&end) || ERRORS.iter().any(|error| end.contains(error))
}

/// How many times an actor had to stop that could have gone on.
fn switches<'a>(steps: impl IntoIterator<Item = &'a Step>) -> usize {
    let (mut last, mut count) = (None, 0);
    for step in steps {
        count += usize::from(last.is_some_and(|last| last != step.actor && step.waiting.contains(&last)));
        last = Some(step.actor);
    }
    count
}

fn hash(choices: &[Actor]) -> u64 {
    let mut hasher = DefaultHasher::new();
    choices.hash(&mut hasher);
    hasher.finish()
}

/// A schedule as [`REPLAY`] takes it.
fn written(choices: &[Actor]) -> String {
    let stretches = choices.chunk_by(|one, other| one == other);
    stretches.map(|stretch| format!("{}x{}", stretch[0], stretch.len())).collect::<Vec<_>>().join(" ")
}

fn parse(schedule: &str) -> Choices {
    if let Some(seed) = schedule.strip_prefix("seed ") {
        return by_seed(seed.parse().expect("a number"));
    }
    let stretch = |stretch: &str| {
        let (actor, turns) = stretch.split_once('x').expect("an actor, x, and how many turns it takes");
        vec![actor.parse().expect("a number"); turns.parse().expect("a number")]
    };
    Choices::Given(schedule.split_whitespace().flat_map(stretch).collect())
}

fn told(scene: &Scene, schedule: &str, played: &Played) -> String {
    let steps: Vec<String> = played.steps.iter().enumerate().map(|(at, step)| format!("{at:4} {step}")).collect();
    format!(
        "{}\n{}\nends: {:#?}\n{REPLAY}='{schedule}' plays it again\n{}",
        scene.name,
        played.violations.join("\n"),
        played.ends,
        steps.join("\n")
    )
}
