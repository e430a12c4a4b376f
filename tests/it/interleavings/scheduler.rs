//! Who is next: every request waits for its turn, and a turn is given only when all actors that live wait for one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;

use super::store::Request;

/// Actors by their numbers.
pub type Actor = usize;

/// What decides which actor is next.
#[derive(Debug, Clone)]
pub enum Choices {
    /// These first. Then each actor goes on as long as it can, and the first of the others follows.
    Given(Vec<Actor>),
    /// By chance, the same for the same seed. The current actor goes on in all but one of so many cases; any of its requests
    /// may be answered first.
    Random { state: u64, switch_one_in: u64 },
}

/// A request that had its turn.
#[derive(Clone)]
pub struct Step {
    pub actor: Actor,
    pub request: Request,
    /// All actors that waited, in order.
    pub waiting: Vec<Actor>,
}

/// Hands out turns.
pub struct Scheduler(Mutex<Turns>);

struct Turns {
    /// The requests of each actor in the order in which they came.
    waiting: Vec<VecDeque<(Request, oneshot::Sender<()>)>>,
    lives: Vec<bool>,
    choices: Choices,
    steps: Vec<Step>,
    /// How often an actor was chosen that did not wait.
    misses: usize,
}

impl Scheduler {
    pub fn new(actors: usize, choices: Choices) -> Arc<Self> {
        let waiting = (0..actors).map(|_| VecDeque::new()).collect();
        Arc::new(Self(Mutex::new(Turns { waiting, lives: vec![true; actors], choices, steps: vec![], misses: 0 })))
    }

    /// Waits until the actor's request may be carried out.
    pub async fn turn(&self, actor: Actor, request: Request) {
        let (sender, turn) = oneshot::channel();
        self.0.lock().unwrap().waiting[actor].push_back((request, sender));
        // An error would mean that the scheduler is gone, and with it the schedule.
        let _ = turn.await;
    }

    /// The actor makes no more requests.
    pub fn leaves(&self, actor: Actor) {
        self.0.lock().unwrap().lives[actor] = false;
    }

    /// Gives the next turn, unless an actor computes or waits for its timer: then it is waited for.
    ///
    /// To be called when the runtime has nothing to do.
    pub fn next(&self) {
        self.0.lock().unwrap().next();
    }

    /// What happened so far.
    pub fn steps(&self) -> Vec<Step> {
        self.0.lock().unwrap().steps.clone()
    }

    /// How often an actor should have been next that had no request: not every choice could be kept to.
    pub fn misses(&self) -> usize {
        self.0.lock().unwrap().misses
    }
}

impl Turns {
    fn next(&mut self) {
        for requests in &mut self.waiting {
            // A request that was given up needs no turn.
            requests.retain(|(_, turn)| !turn.is_canceled());
        }
        let waits = |actor: &Actor| !self.waiting[*actor].is_empty();
        let waiting: Vec<Actor> = (0..self.waiting.len()).filter(waits).collect();
        let is_busy = (0..self.waiting.len()).any(|actor| self.lives[actor] && !waits(&actor));
        if is_busy || waiting.is_empty() {
            return;
        }
        let actor = self.choose(&waiting);
        let place = match &mut self.choices {
            Choices::Given(_) => 0,
            Choices::Random { state, .. } => random(state) as usize % self.waiting[actor].len(),
        };
        if let Some((request, turn)) = self.waiting[actor].remove(place) {
            self.steps.push(Step { actor, request, waiting });
            let _ = turn.send(());
        }
    }

    fn choose(&mut self, waiting: &[Actor]) -> Actor {
        let last = self.steps.last().map(|step| step.actor).filter(|last| waiting.contains(last));
        match &mut self.choices {
            Choices::Given(given) => match given.get(self.steps.len()) {
                Some(actor) if waiting.contains(actor) => return *actor,
                Some(_) => self.misses += 1,
                None => {}
            },
            Choices::Random { state, switch_one_in } => {
                if last.is_none() || random(state).is_multiple_of(*switch_one_in) {
                    return waiting[(random(state) % waiting.len() as u64) as usize];
                }
            }
        }
        last.unwrap_or(waiting[0])
    }
}

/// SplitMix64.
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.actor, self.request)
    }
}
