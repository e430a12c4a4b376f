//! What the files of the journal are called.
//!
//! A run has one plan and any number of outcomes, and the names alone say how it stands: one listing tells which runs are
//! open. The folder's name begins with `_`, so that no engine takes its files for data and Spark's orphan removal passes them
//! over; none of the names ends like table metadata or a manifest.

use std::fmt;

use chrono::{DateTime, NaiveDateTime, Utc};
use serde::{Deserialize, Serialize};

/// The journal's folder in a table's metadata folder.
pub(crate) const FOLDER: &str = "_maintenance";

const TIME: &str = "%Y%m%dT%H%M%S%3fZ";
const UNTIL: &str = "until-";

/// Names a run of maintenance: when it began, and eight random digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RunId(String);

/// How a run stands, by an outcome of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// Some of its files are still to be dealt with.
    Partial,
    /// Nothing is left to do.
    Done,
    /// Its commit did not happen.
    NotCommitted,
    /// Its snapshots were put back.
    Restored,
}

/// The name of a journal file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FileName {
    /// What a run is going to do. `until_ms`: before this its files must stay, ms since the epoch.
    Plan { run: RunId, until_ms: Option<i64> },
    /// What became of it. A run may have several; `number` counts them.
    Outcome { run: RunId, number: u32, stage: Stage },
}

impl RunId {
    /// A name for a run that begins now.
    pub(crate) fn new(now_ms: i64) -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        Self(format!("{}-{}", compact(now_ms), &random[..8]))
    }

    /// Reads a run's name as it is printed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (time, random) = text.split_once('-')?;
        let is_random = random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_random && from_compact(time).is_some()).then(|| Self(text.to_string()))
    }

    /// When the run began, ms since the epoch.
    pub(crate) fn began_ms(&self) -> i64 {
        self.0.split_once('-').and_then(|(time, _)| from_compact(time)).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Stage {
    const ALL: [Self; 4] = [Self::Partial, Self::Done, Self::NotCommitted, Self::Restored];

    /// The word for it in names and rows.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Stage::Partial => "partial",
            Stage::Done => "done",
            Stage::NotCommitted => "not-committed",
            Stage::Restored => "restored",
        }
    }
}

impl FileName {
    /// Reads a name; `None` for a file that is none of the journal's.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (run, rest) = name.strip_suffix(".arrow")?.split_once('.')?;
        let run = RunId::parse(run)?;
        if let Some(rest) = rest.strip_prefix("plan") {
            let until_ms = match rest {
                "" => None,
                rest => Some(from_compact(rest.strip_prefix('-')?.strip_prefix(UNTIL)?)?),
            };
            return Some(FileName::Plan { run, until_ms });
        }
        let (number, stage) = rest.split_once('-')?;
        let stage = Stage::ALL.into_iter().find(|known| known.as_str() == stage)?;
        Some(FileName::Outcome { run, number: number.parse().ok()?, stage })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Plan { run, until_ms: None } => write!(f, "{run}.plan.arrow"),
            FileName::Plan { run, until_ms: Some(until) } => write!(f, "{run}.plan-{UNTIL}{}.arrow", compact(*until)),
            FileName::Outcome { run, number, stage } => write!(f, "{run}.{number:04}-{}.arrow", stage.as_str()),
        }
    }
}

/// A time without characters that a store or a shell could object to.
fn compact(ms: i64) -> String {
    DateTime::<Utc>::from_timestamp_millis(ms).unwrap_or_default().format(TIME).to_string()
}

fn from_compact(text: &str) -> Option<i64> {
    let time = NaiveDateTime::parse_from_str(text, TIME).ok()?.and_utc();
    (compact(time.timestamp_millis()) == text).then(|| time.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let run = RunId::new(1_781_524_800_123);
        assert!(run.to_string().starts_with("20260615T120000123Z-"), "{run}");
        assert_eq!((RunId::parse(&run.to_string()), run.began_ms()), (Some(run.clone()), 1_781_524_800_123));
        let names = [
            FileName::Plan { run: run.clone(), until_ms: None },
            FileName::Plan { run: run.clone(), until_ms: Some(1_781_524_800_000) },
            FileName::Outcome { run: run.clone(), number: 1, stage: Stage::NotCommitted },
            FileName::Outcome { run, number: 12345, stage: Stage::Done },
        ];
        for name in names {
            assert_eq!(FileName::parse(&name.to_string()), Some(name.clone()), "{name}");
        }
    }

    #[test]
    fn other_files_are_none_of_the_journals() {
        for name in [
            "v3.metadata.json",
            "plan.arrow",
            "20260615T120000123Z-0123456x.plan.arrow",
            "20260615T120000Z-01234567.plan.arrow",
            "20260615T120000123Z-01234567.plan-until-soon.arrow",
            "20260615T120000123Z-01234567.0001-finished.arrow",
            "20260615T120000123Z-01234567.plan.arrow.crc",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
