//! What the files of the journal are called.
//!
//! A run has one plan and any number of outcomes, and the names alone say how it stands: one listing tells which runs are
//! open. A name ends in the SHA-256 of the content: what was cut short or edited is not even decoded. The folder's name begins with `_`, so that no engine takes its files for data and Spark's orphan removal passes them
//! over; none of the names ends like table metadata or a manifest.

use std::fmt;

use chrono::{DateTime, NaiveDateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The journal's folder in a table's metadata folder.
pub(crate) const FOLDER: &str = "_maintenance";
/// The folder in it for files that were moved instead of deleted.
pub(crate) const QUARANTINE: &str = "quarantine";

const TIME: &str = "%Y%m%dT%H%M%S%3fZ";
const UNTIL: &str = "until-";
const CLAIM: &str = ".claim";

/// Names a run of maintenance: when it began, and eight random digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RunId(String);

/// The SHA-256 of a file's content, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContentHash(String);

impl ContentHash {
    pub(crate) fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn parse(text: &str) -> Option<Self> {
        let is_hash = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_hash.then(|| Self(text.to_string()))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
    /// Its files are in quarantine.
    Quarantined,
    /// Its files were in quarantine and are back.
    Returned,
}

/// The name of a journal file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FileName {
    /// What a run is going to do. `until_ms`: before this its files must stay, ms since the epoch.
    Plan { run: RunId, until_ms: Option<i64>, hash: ContentHash },
    /// What became of it. A run may have several; `number` counts them.
    Outcome { run: RunId, number: u32, stage: Stage, hash: ContentHash },
    /// Who deals with its files: whoever creates it first.
    Claim { run: RunId },
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
    const ALL: [Self; 6] =
        [Self::Partial, Self::Done, Self::NotCommitted, Self::Restored, Self::Quarantined, Self::Returned];

    /// The word for it in names and rows.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Stage::Partial => "partial",
            Stage::Done => "done",
            Stage::NotCommitted => "not-committed",
            Stage::Restored => "restored",
            Stage::Quarantined => "quarantined",
            Stage::Returned => "returned",
        }
    }
}

impl FileName {
    /// Which run it is of.
    pub(crate) fn run(&self) -> &RunId {
        let (FileName::Plan { run, .. } | FileName::Outcome { run, .. } | FileName::Claim { run }) = self;
        run
    }

    /// The hash of its content, for plans and outcomes.
    pub(crate) fn hash(&self) -> Option<&ContentHash> {
        match self {
            FileName::Plan { hash, .. } | FileName::Outcome { hash, .. } => Some(hash),
            FileName::Claim { .. } => None,
        }
    }

    /// Reads a name; `None` for a file that is none of the journal's.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Some(run) = name.strip_suffix(CLAIM) {
            return RunId::parse(run).map(|run| FileName::Claim { run });
        }
        let (run, rest) = name.strip_suffix(".arrow")?.split_once('.')?;
        let (rest, hash) = rest.split_once('.')?;
        let (run, hash) = (RunId::parse(run)?, ContentHash::parse(hash)?);
        if let Some(rest) = rest.strip_prefix("plan") {
            let until_ms = match rest {
                "" => None,
                rest => Some(from_compact(rest.strip_prefix('-')?.strip_prefix(UNTIL)?)?),
            };
            return Some(FileName::Plan { run, until_ms, hash });
        }
        let (number, stage) = rest.split_once('-')?;
        let stage = Stage::ALL.into_iter().find(|known| known.as_str() == stage)?;
        Some(FileName::Outcome { run, number: number.parse().ok()?, stage, hash })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Plan { run, until_ms: None, hash } => write!(f, "{run}.plan.{hash}.arrow"),
            FileName::Plan { run, until_ms: Some(until), hash } => {
                write!(f, "{run}.plan-{UNTIL}{}.{hash}.arrow", compact(*until))
            }
            FileName::Outcome { run, number, stage, hash } => {
                write!(f, "{run}.{number:04}-{}.{hash}.arrow", stage.as_str())
            }
            FileName::Claim { run } => write!(f, "{run}{CLAIM}"),
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
        let hash = ContentHash::of(b"x");
        let names = [
            FileName::Plan { run: run.clone(), until_ms: None, hash: hash.clone() },
            FileName::Plan { run: run.clone(), until_ms: Some(1_781_524_800_000), hash: hash.clone() },
            FileName::Outcome { run: run.clone(), number: 1, stage: Stage::NotCommitted, hash: hash.clone() },
            FileName::Outcome { run: run.clone(), number: 12345, stage: Stage::Done, hash },
            FileName::Claim { run },
        ];
        for name in names {
            assert_eq!(FileName::parse(&name.to_string()), Some(name.clone()), "{name}");
        }
    }

    #[test]
    fn other_files_are_none_of_the_journals() {
        let hash = ContentHash::of(b"x").to_string();
        for name in [
            "v3.metadata.json".to_string(),
            "plan.arrow".to_string(),
            "20260615T120000123Z-01234567.plan.arrow".to_string(),
            "20260615T120000123Z-01234567.plan.0123abcd.arrow".to_string(),
            format!("20260615T120000123Z-0123456x.plan.{hash}.arrow"),
            format!("20260615T120000Z-01234567.plan.{hash}.arrow"),
            format!("20260615T120000123Z-01234567.plan-until-soon.{hash}.arrow"),
            format!("20260615T120000123Z-01234567.0001-finished.{hash}.arrow"),
            format!("20260615T120000123Z-01234567.plan.{hash}.arrow.crc"),
        ] {
            assert_eq!(FileName::parse(&name), None, "{name}");
        }
    }
}
