//! The spans of this library that are opened in a test's own thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use tracing::span::{Attributes, Id, Record};

/// Notes spans, and in which other one each was opened.
#[derive(Clone, Default)]
pub struct Spans(Arc<Mutex<Noted>>);

#[derive(Default)]
pub struct Noted {
    /// Name and fields, in the order in which they were opened.
    pub spans: Vec<String>,
    /// Each with the name of the one that it was opened in.
    pub opened: BTreeSet<String>,
    /// Those that are not over, by their places among all, from 1.
    pub open: BTreeSet<u64>,
    entered: Vec<Id>,
    /// How many handles there are of each.
    handles: BTreeMap<u64, usize>,
}

/// Nothing is noted any more when this goes.
pub struct Noting;

thread_local! {
    static HERE: RefCell<Option<Spans>> = const { RefCell::new(None) };
}

impl Spans {
    /// Notes the spans of this thread. There is one subscriber for the process: one for each thread would make what a place in the code
    /// is asked for depend on the other tests.
    pub fn note(&self) -> Noting {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(OfThread).expect("no other subscriber"));
        HERE.set(Some(self.clone()));
        Noting
    }

    pub fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

impl Noted {
    fn open(&mut self, text: String) -> u64 {
        let parent = self.entered.last().map(|id| self.spans[place(id)].clone());
        if let Some(parent) = parent {
            self.opened.insert(format!("{text} < {}", parent.split(' ').next().unwrap_or_default()));
        }
        self.spans.push(text);
        let id = self.spans.len() as u64;
        self.open.insert(id);
        self.handles.insert(id, 1);
        id
    }

    fn close(&mut self, id: u64) -> bool {
        let handles = self.handles.entry(id).or_default();
        *handles = handles.saturating_sub(1);
        *handles == 0 && self.open.remove(&id)
    }
}

fn place(id: &Id) -> usize {
    id.into_u64() as usize - 1
}

/// A span that nobody notes.
const UNNOTED: u64 = u64::MAX;

/// Hands on what happens in a thread to who notes it there.
struct OfThread;

impl OfThread {
    fn here<T>(&self, span: &Id, note: impl FnOnce(&mut Noted) -> T) -> Option<T> {
        let spans = HERE.with_borrow(Clone::clone).filter(|_| span.into_u64() != UNNOTED);
        spans.map(|spans| note(&mut spans.noted()))
    }
}

struct Fields<'a>(&'a mut String);

impl tracing::field::Visit for Fields<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        *self.0 += &format!(" {field}={value:?}");
    }
}

impl tracing::Subscriber for OfThread {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("iceberg_maintenance")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let Some(spans) = HERE.with_borrow(Clone::clone) else { return Id::from_u64(UNNOTED) };
        let mut text = span.metadata().name().to_string();
        span.record(&mut Fields(&mut text));
        Id::from_u64(spans.noted().open(text))
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.here(span, |noted| *noted.handles.entry(span.into_u64()).or_default() += 1);
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        self.here(&span, |noted| noted.close(span.into_u64())).unwrap_or(false)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.here(span, |noted| values.record(&mut Fields(&mut noted.spans[place(span)])));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &tracing::Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.here(span, |noted| noted.entered.push(span.clone()));
    }

    fn exit(&self, span: &Id) {
        self.here(span, |noted| noted.entered.retain(|entered| entered != span));
    }
}
