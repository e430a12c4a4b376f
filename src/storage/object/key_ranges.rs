//! Which ranges of keys are listed, and what makes them one complete listing. No I/O here.
//!
//! The keys below a folder are cut into ranges `(start, end]`; the first has no start, the last no end, and every other
//! end is the start of exactly one range. A range is listed from behind its start, keys up to its end are taken, so each
//! key is taken once. A range that turns out long is split while it runs: its end becomes a key behind the last taken one,
//! and a new range takes the rest.
//!
//! That holds for stores that list in the order of their keys' bytes. Whether a store does is not believed but proved, at
//! the **seams**: the first key that one range sees and doesn't take must be the first key that the next range sees. Then
//! the ranges are parts of the store's own order, one behind the other from its begin to its end, whatever that order is:
//! nothing is missing and nothing comes twice.

use std::collections::HashMap;

use object_store::path::Path;

use super::between::key_between;
use super::keys::ListedKey;

/// How many keys a page of the large stores has.
const PAGE_KEYS: usize = 1000;
/// Ranges are cut by samples only if each gets so many of them: what they save is not worth a request for a few files.
const SAMPLES_PER_RANGE: usize = 64;
/// A range is split if it probably has so many pages left.
const PAGES_WORTH_A_SPLIT: usize = 3;
/// Beyond the ranges that are listed at once, one more may begin for so many pages: each costs up to one request.
const PAGES_PER_EXTRA_RANGE: usize = 20;

/// The ranges of one listing.
#[derive(Debug)]
pub(super) struct KeyRanges {
    /// The prefix of all keys, with a trailing slash unless it is empty.
    folder: String,
    /// Some keys, ascending.
    samples: Vec<String>,
    concurrency: usize,
    /// All ranges that ever were; those from `begun` on wait.
    ranges: Vec<KeyRange>,
    begun: usize,
    /// The ranges that are being listed.
    running: Vec<usize>,
    seams: HashMap<String, Seam>,
    pages: usize,
    page_keys: usize,
    keys: usize,
    samples_passed: usize,
}

#[derive(Debug, Default)]
struct KeyRange {
    start: Option<String>,
    end: Option<String>,
    /// The first and the last key that were taken.
    first: Option<String>,
    last: Option<String>,
    /// True if its listing showed a key, taken or not.
    saw_any: bool,
    /// The first sample behind `last`.
    next_sample: usize,
    /// How many keys came since the last sample. As many may come again.
    keys_since_sample: usize,
}

/// What two ranges saw where one ends and the other starts.
#[derive(Debug, Default)]
struct Seam {
    /// Where the range before it stopped.
    before: Option<Stopped>,
    /// With which key the listing behind it began; with none if it was empty.
    behind: Option<Option<String>>,
}

#[derive(Debug)]
struct Stopped {
    /// Where the range was: its last key, or its start.
    last: Option<String>,
    at: StoppedAt,
}

#[derive(Debug)]
enum StoppedAt {
    /// At the boundary itself, which is a key.
    Boundary,
    /// At the first key behind it, or at the end of the listing.
    Next(Option<String>),
}

/// A range to list, from behind its start.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub id: usize,
    pub start: Option<Path>,
}

/// What to do with a page.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    /// So many keys of the page belong to the range.
    pub taken: usize,
    /// True if the range goes on behind the page.
    pub goes_on: bool,
    /// Seams where two ranges saw different keys.
    pub doubts: Vec<Doubt>,
}

/// A seam where the range before it and the range behind it did not see the same key.
///
/// Either the key was written or deleted between the two looks, or the store has another order.
#[derive(Debug)]
pub(super) struct Doubt {
    pub boundary: String,
    /// A key before the boundary with no listed one in between; `None`: the begin of the folder.
    pub before: Option<String>,
}

impl KeyRanges {
    /// Cuts the keys below a folder at quantiles of the samples.
    pub(super) fn new(folder: &Path, samples: Vec<String>, concurrency: usize) -> Self {
        Self::cut(folder, samples, concurrency, PAGE_KEYS, SAMPLES_PER_RANGE)
    }

    /// As [`KeyRanges::new`], for other pages.
    pub(super) fn cut(
        folder: &Path,
        samples: Vec<String>,
        concurrency: usize,
        page_keys: usize,
        samples_per_range: usize,
    ) -> Self {
        let folder = if folder.is_root() { String::new() } else { format!("{folder}/") };
        let key = |path: String| path.strip_prefix('/').map_or_else(|| path.clone(), str::to_string);
        let mut samples: Vec<String> = samples.into_iter().map(key).collect();
        samples.retain(|key| key.starts_with(&folder) && as_path(key).is_some());
        samples.sort_unstable();
        samples.dedup();
        let concurrency = concurrency.max(1);
        let count = (samples.len() / samples_per_range).clamp(1, concurrency);
        let boundaries = (1..count).map(|n| samples[n * samples.len() / count].clone());
        let starts = std::iter::once(None).chain(boundaries.clone().map(Some));
        let ends = boundaries.map(Some).chain(std::iter::once(None));
        let ranges = starts.zip(ends).map(|(start, end)| KeyRange::new(start, end, &samples)).collect();
        Self {
            folder,
            samples,
            concurrency,
            ranges,
            begun: 0,
            running: Vec::new(),
            seams: HashMap::new(),
            pages: 0,
            page_keys,
            keys: 0,
            samples_passed: 0,
        }
    }

    /// A range that nobody lists yet: one that waits, or the far part of the longest one.
    pub(super) fn begin(&mut self) -> Option<Begun> {
        if self.begun == self.ranges.len() {
            self.split()?;
        }
        let id = self.begun;
        self.begun += 1;
        self.running.push(id);
        Some(Begun { id, start: self.ranges[id].start.as_deref().and_then(as_path) })
    }

    /// True when every range was listed to its end.
    pub(super) fn is_over(&self) -> bool {
        self.begun == self.ranges.len() && self.running.is_empty()
    }

    /// Where the range ends now; it may end sooner later.
    pub(super) fn end(&self, id: usize) -> Option<String> {
        self.ranges[id].end.clone()
    }

    /// Takes the next keys of a range's listing, at least one.
    pub(super) fn accept(&mut self, id: usize, page: &[ListedKey]) -> Accepted {
        let mut accepted = Accepted::default();
        if let Some(key) = page.first().filter(|_| !self.ranges[id].saw_any) {
            accepted.doubts.extend(self.began_with(id, Some(key.path().to_string())));
        }
        let end = self.ranges[id].end.as_deref();
        accepted.taken = page.partition_point(|key| end.is_none_or(|end| !key.is_after(end)));
        let ends_with_boundary = accepted.taken > 0 && end.is_some_and(|end| page[accepted.taken - 1].key() == end);
        self.pages += 1;
        self.page_keys = self.page_keys.max(page.len());
        self.advance(id, &page[..accepted.taken]);
        if ends_with_boundary {
            accepted.doubts.extend(self.stopped(id, StoppedAt::Boundary));
        } else if let Some(next) = page.get(accepted.taken) {
            accepted.doubts.extend(self.stopped(id, StoppedAt::Next(Some(next.path().to_string()))));
        } else {
            accepted.goes_on = true;
        }
        accepted
    }

    /// The range's listing has no more keys.
    pub(super) fn accept_end(&mut self, id: usize) -> Accepted {
        let mut accepted = Accepted::default();
        if !self.ranges[id].saw_any {
            accepted.doubts.extend(self.began_with(id, None));
        }
        accepted.doubts.extend(self.stopped(id, StoppedAt::Next(None)));
        accepted
    }

    fn advance(&mut self, id: usize, taken: &[ListedKey]) {
        let (Some(first), Some(last)) = (taken.first(), taken.last()) else { return };
        let range = &mut self.ranges[id];
        range.first.get_or_insert_with(|| first.key().into_owned());
        let last = last.key();
        let passed = self.samples[range.next_sample..].partition_point(|sample| **sample <= *last);
        range.keys_since_sample += taken.len();
        if passed > 0 {
            range.next_sample += passed;
            let sample = &self.samples[range.next_sample - 1];
            range.keys_since_sample = taken.len() - taken.partition_point(|key| !key.is_after(sample));
        }
        range.last = Some(last.into_owned());
        self.keys += taken.len();
        self.samples_passed += passed;
    }

    fn began_with(&mut self, id: usize, key: Option<String>) -> Option<Doubt> {
        let range = &mut self.ranges[id];
        range.saw_any = true;
        let boundary = range.start.clone()?;
        self.seams.entry(boundary.clone()).or_default().behind = Some(key);
        self.compare(boundary)
    }

    fn stopped(&mut self, id: usize, at: StoppedAt) -> Option<Doubt> {
        self.running.retain(|running| *running != id);
        let range = &self.ranges[id];
        let boundary = range.end.clone()?;
        let last = range.last.clone().or_else(|| range.start.clone());
        self.seams.entry(boundary.clone()).or_default().before = Some(Stopped { last, at });
        self.compare(boundary)
    }

    /// Compares the two sides of a seam as soon as both are known.
    fn compare(&mut self, boundary: String) -> Option<Doubt> {
        let seam = self.seams.get(&boundary)?;
        let (before, behind) = (seam.before.as_ref()?, seam.behind.as_ref()?);
        let agree = match &before.at {
            // A listing from behind a key that exists begins with the next one.
            StoppedAt::Boundary => behind.as_ref() != Some(&boundary),
            StoppedAt::Next(next) => next == behind,
        };
        let seam = self.seams.remove(&boundary).filter(|_| !agree)?;
        Some(Doubt { boundary, before: seam.before.and_then(|stopped| stopped.last) })
    }

    /// Gives the far part of the longest range to a new one, if it is worth a request and the requests are left.
    fn split(&mut self) -> Option<()> {
        if self.ranges.len() >= self.concurrency + self.pages / PAGES_PER_EXTRA_RANGE {
            return None;
        }
        let enough = PAGES_WORTH_A_SPLIT * self.page_keys;
        let begun = self.running.iter().filter(|id| self.ranges[**id].last.is_some());
        let mut long: Vec<(usize, usize)> =
            begun.map(|id| (self.keys_left(*id), *id)).filter(|(left, _)| *left >= enough).collect();
        long.sort_unstable();
        let (id, pivot) = long.iter().rev().find_map(|(_, id)| Some((*id, self.pivot(*id)?)))?;
        let range = &mut self.ranges[id];
        if self.samples.binary_search(&pivot).is_err() {
            range.keys_since_sample /= 2;
        }
        let end = range.end.replace(pivot.clone());
        self.ranges.push(KeyRange::new(Some(pivot), end, &self.samples));
        Some(())
    }

    /// The samples behind the range's last key and before its end.
    fn samples_left(&self, range: &KeyRange) -> &[String] {
        let end = range.end.as_deref();
        let samples = &self.samples[range.next_sample..];
        &samples[..samples.partition_point(|sample| end.is_none_or(|end| sample.as_str() < end))]
    }

    fn keys_per_sample(&self) -> usize {
        (self.keys / self.samples_passed.max(1)).max(1)
    }

    /// How many keys a range probably still has.
    fn keys_left(&self, id: usize) -> usize {
        let range = &self.ranges[id];
        self.samples_left(range).len() * self.keys_per_sample() + range.keys_since_sample
    }

    /// A key strictly between the range's last one and its end, with about half of the rest behind it.
    fn pivot(&self, id: usize) -> Option<String> {
        let range = &self.ranges[id];
        let (first, last) = (range.first.as_deref()?, range.last.as_deref()?);
        let samples = self.samples_left(range);
        if samples.len() * self.keys_per_sample() >= range.keys_since_sample.max(1) {
            return Some(samples[(samples.len() - 1) / 2].clone());
        }
        let upper = samples.first().map(String::as_str).or(range.end.as_deref());
        key_between(&self.folder, first, last, upper).filter(|key| as_path(key).is_some())
    }
}

impl KeyRange {
    fn new(start: Option<String>, end: Option<String>, samples: &[String]) -> Self {
        let next_sample = start.as_ref().map_or(0, |start| samples.partition_point(|sample| sample <= start));
        Self { start, end, next_sample, ..Default::default() }
    }
}

/// The key as the store's client takes it, if it can express it.
fn as_path(key: &str) -> Option<Path> {
    Path::parse(key).ok().filter(|path| path.as_ref() == key)
}
