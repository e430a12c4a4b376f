//! Claims: whoever deals with the files of an expiry holds one, so that nobody deletes them while somebody else puts their
//! snapshots back.
//!
//! A claim is one file for each run, created only if there is none, and removed by whom it belongs to. Whoever deletes anything
//! claims its own run, and whoever restores one claims that; both then look whether somebody claims the opposite for any run,
//! and step back if so. At least the later one sees the earlier one's claim. Whoever dies leaves it behind; the same thing may
//! then be done again by another call, which takes the claim over, but nothing else for a day.

use serde::{Deserialize, Serialize};

use std::collections::HashSet;

use super::{FileName, Journal, JournaledRun, RunId, Writer};
use crate::deletion::remove_claim;
use crate::error::{Error, Result};
use crate::time::format_ms;

/// A claim that is this old (ms) is nobody's any more: whoever made it died.
const DEAD_AFTER_MS: i64 = 24 * 60 * 60 * 1000;

/// What somebody does with a run's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Claim {
    /// They are being deleted, or moved into quarantine.
    Purge,
    /// Its snapshots are being put back.
    Restore,
}

/// What a claim's file says.
#[derive(Debug, Serialize, Deserialize)]
struct ClaimFile {
    claim: Claim,
    /// Tells the holder from any other.
    token: String,
    at_ms: i64,
    run_by: String,
}

/// Whether a run's files were claimed.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// They were.
    Held(HeldClaim),
    /// Somebody else holds them, in words.
    ByAnother(String),
}

/// A claim that this call holds.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    journal: Journal,
    run: RunId,
    token: String,
    /// By the system's clock, ms since the epoch.
    written_at_ms: i64,
    /// False on stores that can't create a file only if there is none: they know no claims.
    is_written: bool,
    /// The runs of the journal, looked at after the claim was made.
    runs: Vec<JournaledRun>,
}

impl Journal {
    /// Claims a run's files for this. A claim of the same kind that is this old (ms) is taken over: who made it has died, and
    /// if not, both do the same.
    ///
    /// # Errors
    /// When the claim can't be written or read; for a restoration also where the store can't create a file only if there is
    /// none, because then a claim excludes nobody.
    pub(crate) async fn claim(
        &self,
        run: &RunId,
        claim: Claim,
        take_over_after_ms: i64,
        writer: &Writer,
    ) -> Result<Claimed> {
        if claim == Claim::Restore {
            self.store.prove_create(&self.folder).await?;
        }
        let location = self.location(&FileName::Claim { run: run.clone() });
        let token = uuid::Uuid::new_v4().to_string();
        let file = ClaimFile { claim, token: token.clone(), at_ms: writer.now_ms, run_by: writer.run_by.clone() };
        let content = serde_json::to_vec(&file).map_err(|error| self.wrong(run, error.to_string()))?;
        let written_at_ms = chrono::Utc::now().timestamp_millis();
        let is_written = match self.store.create(&location, content.clone().into()).await {
            Ok(true) => true,
            Ok(false) => match self.taken_over(run, claim, take_over_after_ms, content, writer).await? {
                None => true,
                Some(who) => return Ok(Claimed::ByAnother(who)),
            },
            Err(error) if error.is_unknown_to_the_store() && claim == Claim::Purge => false,
            Err(error) => return Err(error),
        };
        let mut held =
            HeldClaim { journal: self.clone(), run: run.clone(), token, written_at_ms, is_written, runs: vec![] };
        match self.opposed(run, claim, writer.now_ms, &mut held).await {
            Ok(None) => Ok(Claimed::Held(held)),
            Ok(Some(who)) => {
                held.release().await;
                Ok(Claimed::ByAnother(who))
            }
            Err(error) => {
                held.release().await;
                Err(error)
            }
        }
    }

    /// Takes over a claim of the same kind that is this old. Says who holds it where that may not be.
    async fn taken_over(
        &self,
        run: &RunId,
        claim: Claim,
        take_over_after_ms: i64,
        content: Vec<u8>,
        writer: &Writer,
    ) -> Result<Option<String>> {
        // Its holder may have come to an end just now.
        let Some(found) = self.claim_on(run).await? else {
            return Ok(Some("another call has just dealt with it".into()));
        };
        let age_ms = writer.now_ms.saturating_sub(found.at_ms);
        if age_ms < DEAD_AFTER_MS && (found.claim != claim || age_ms < take_over_after_ms) {
            return Ok(Some(self.told(run, &found)));
        }
        let location = self.location(&FileName::Claim { run: run.clone() });
        self.store.replace(&location, content.into()).await?;
        Ok(None)
    }

    /// Who claims the opposite, for any run.
    async fn opposed(&self, own: &RunId, claim: Claim, now_ms: i64, held: &mut HeldClaim) -> Result<Option<String>> {
        let is_alive = |found: &ClaimFile| now_ms.saturating_sub(found.at_ms) < DEAD_AFTER_MS;
        held.runs = self.runs().await?;
        for run in held.runs.iter().filter(|run| run.claim.is_some() && run.run != *own) {
            let found = self.claim_on(&run.run).await?;
            if let Some(found) = found.filter(|found| found.claim != claim && is_alive(found)) {
                return Ok(Some(format!("run {}: {}", run.run, self.told(&run.run, &found))));
            }
        }
        Ok(None)
    }

    async fn claim_on(&self, run: &RunId) -> Result<Option<ClaimFile>> {
        let location = self.location(&FileName::Claim { run: run.clone() });
        let content = match self.store.read(&location).await {
            Ok(content) => content,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        serde_json::from_slice(&content).map(Some).map_err(|error| self.wrong(run, error.to_string()))
    }

    fn told(&self, run: &RunId, found: &ClaimFile) -> String {
        let doing = match found.claim {
            Claim::Purge => "files are being deleted",
            Claim::Restore => "snapshots are being put back",
        };
        format!(
            "{doing} since {} by {}. If that call has died, call the same again, or remove {}",
            format_ms(found.at_ms),
            found.run_by,
            self.location(&FileName::Claim { run: run.clone() })
        )
    }

    fn wrong(&self, run: &RunId, why: String) -> Error {
        Error::Malformed {
            what: "a claim in a journal",
            path: self.location(&FileName::Claim { run: run.clone() }).to_string(),
            why: format!("{why}. Remove it if no maintenance is running"),
        }
    }
}

impl HeldClaim {
    /// The files that other runs have promised to keep until a time that has not come: nobody else may delete them.
    ///
    /// # Errors
    /// [`Error::Guard`] when a promise can't be read.
    pub(crate) async fn promised_by_others(&self, table: &str, now_ms: i64) -> Result<HashSet<String>> {
        let mut files = HashSet::new();
        let others = self.runs.iter().filter(|run| run.run != self.run && run.is_open());
        for run in others.filter(|run| run.until_ms().is_some_and(|until_ms| until_ms > now_ms)) {
            let plan = match self.journal.plan_of(run).await {
                // Its run took it back since: its commit did not happen.
                Err(error) if error.is_not_found() => continue,
                plan => plan.map_err(|error| unknown_promise(table, &error))?,
            };
            files.extend(plan.files.into_iter().map(|file| file.path));
        }
        Ok(files)
    }

    /// Gives the files free again. What can't be removed stays, and is taken over or removed later.
    pub(crate) async fn release(self) {
        let location = self.journal.location(&FileName::Claim { run: self.run.clone() });
        let found = match self.is_written {
            true => self.journal.store.read(&location).await.ok(),
            false => None,
        };
        let found = found.and_then(|content| serde_json::from_slice::<ClaimFile>(&content).ok());
        if found.is_some_and(|found| found.token == self.token) {
            remove_claim(&self.journal, &self.run).await;
        }
    }

    /// Gives the files of a claim free, if there is one.
    pub(crate) async fn release_any(claim: Option<Self>) {
        if let Some(claim) = claim {
            claim.release().await;
        }
    }

    /// How far the store's clock is ahead of the system's, ms. `None` where the store doesn't say when a file was written.
    pub(crate) async fn clock_difference_ms(&self) -> Result<Option<i64>> {
        match self.is_written {
            true => {
                let name = FileName::Claim { run: self.run.clone() };
                self.journal.clock_difference_ms(&name, self.written_at_ms).await
            }
            false => Ok(None),
        }
    }
}

/// Refuses to delete where an earlier run put deletes off and can't be read.
pub(crate) fn unknown_promise(table: &str, error: &Error) -> Error {
    Error::Guard {
        table: table.into(),
        found: format!(
            "an earlier run put deletes off, and which files it promised to keep can't be read: {error}. Remove that file if \
             nothing is to be kept"
        ),
    }
}
