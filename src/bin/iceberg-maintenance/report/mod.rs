//! `--report`: a page or a Markdown text about what an operation did, made from the run's own rows.
//!
//! The page is one file that asks for nothing from anywhere. Nothing of it is worth a run: what can't be read for it is left
//! out with a note, and a run that is complete stays so when its report can't be written. What is told of files and snapshots
//! comes from the run ([`run`]), by the library's `on_report`; what stays of the table is read by SQL around it ([`reads`]).

mod catalog;
mod catalog_section;
mod charts;
mod data;
mod figures;
mod format;
mod html;
mod markdown;
mod read_context;
mod reads;
mod run;
mod sections;
mod tables;
mod target;
mod timeline;

use datafusion::arrow::array::RecordBatch;
use iceberg_maintenance::report::Operation;
use iceberg_maintenance::{Clock, SystemClock};

pub(crate) use run::Recorder;
pub(crate) use target::ReportFile;

use catalog::CatalogRows;
use data::{Ending, LiveReads, Page, Storage};
use reads::{LiveFiles, Snapshots};
use run::{Recording, Run};
use target::{Kind, Target};

use crate::failure::Failure;
use crate::session::Session;

/// What a report is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub procedure: &'static str,
    /// The table, or the catalog.
    pub name: &'a str,
    pub is_catalog: bool,
    pub dry_run: bool,
}

/// Does the work, and writes a report of it whatever comes of it. That the report can be written is known before.
pub(crate) fn around(
    session: &Session,
    subject: Subject<'_>,
    files: &[ReportFile],
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let targets = files.iter().map(ReportFile::open).collect::<Result<Vec<Target>, Failure>>()?;
    let before = Before::read(session, subject)?;
    let began_ms = SystemClock.now_ms();
    // A catalog's page has no room for the runs of its tables.
    session.recorder().start(began_ms, !subject.is_catalog);
    let outcome = work();
    let mut page = page(subject, session.recorder().finish(), &outcome, began_ms);
    if outcome.as_ref().is_err_and(Failure::is_interruption) {
        before.leave_out(&mut page, "the run was interrupted");
    } else {
        before.complete(&mut page, session, subject);
    }
    let unwritten: Vec<String> = targets.into_iter().filter_map(|target| write(target, &page).err()).collect();
    with_unwritten(outcome, &unwritten)
}

/// How it all ended: a report that can't be written is an error, and no reason to think that the run was none.
fn with_unwritten(outcome: Result<(), Failure>, unwritten: &[String]) -> Result<(), Failure> {
    let [_, ..] = unwritten else { return outcome };
    let why = unwritten.join("; ");
    match outcome {
        Ok(()) => Err(Failure::partial(format!("the run is complete, but its report can't be written: {why}"))),
        Err(failure) => Err(failure.and(&format!("its report can't be written: {why}"))),
    }
}

fn write(target: Target, page: &Page) -> Result<(), String> {
    let text = match target.kind {
        Kind::Html => html::page(page),
        Kind::Markdown => markdown::text(page),
    };
    target.write(&text)
}

/// What only the table before the run can tell.
#[derive(Debug, Default)]
struct Before {
    snapshots: Snapshots,
    /// What the metadata names, where the run may change that.
    files: Option<Vec<LiveFiles>>,
    missing: Vec<String>,
}

impl Before {
    /// Reads it.
    ///
    /// # Errors
    /// When the user interrupts it: then nothing else is to happen, either.
    fn read(session: &Session, subject: Subject<'_>) -> Result<Self, Failure> {
        let mut before = Self::default();
        if subject.is_catalog {
            return Ok(before);
        }
        match reads::snapshots(session, subject.name) {
            Ok(snapshots) => before.snapshots = snapshots,
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => {
                before.missing.push(format!("The table's snapshots could not be read: {}", failure.message()));
                // What else there is to read will fail, too, and the run will say why.
                return Ok(before);
            }
        }
        let names_less = matches!(subject.procedure, "expire_snapshots" | "execute_plan") && !subject.dry_run;
        if names_less {
            match reads::live_files(session, subject.name, None) {
                Ok(files) => before.files = Some(files),
                Err(failure) if failure.is_interruption() => return Err(failure),
                Err(failure) => before.missing.push(format!(
                    "What was stored before the run could not be read, so that ages are not shown: {}",
                    failure.message()
                )),
            }
        }
        Ok(before)
    }

    /// Adds to the page what was read before, and that nothing is read after an interruption.
    fn leave_out(self, page: &mut Page, why: &str) {
        page.snapshots = self.snapshots;
        if page.run.is_some() {
            page.missing = self.missing;
            page.missing.push(format!("What is stored was not read: {why}"));
        }
    }

    /// Adds to the page what is read before and after. An interruption ends the reading.
    fn complete(self, page: &mut Page, session: &Session, subject: Subject<'_>) {
        page.snapshots = self.snapshots;
        let Some(run) = page.run.as_ref().filter(|_| !subject.is_catalog) else { return };
        page.missing = self.missing;
        match reads::live_files(session, subject.name, run.planned.as_ref()) {
            Ok(after) => {
                let reads = LiveReads { before: self.files.as_deref(), after: &after };
                page.storage = Some(Storage::of(run, reads, &page.snapshots, page.began_ms));
            }
            Err(failure) => {
                page.missing.push(format!("What is stored could not be read: {}", failure.message()));
                if failure.is_interruption() {
                    return;
                }
            }
        }
        match reads::partitions(session, subject.name) {
            Ok(partitions) => page.partitions = partitions,
            Err(failure) => page.missing.push(format!("The partitions could not be read: {}", failure.message())),
        }
    }
}

/// The page as far as the run itself tells.
fn page(subject: Subject<'_>, seen: Recording, outcome: &Result<(), Failure>, began_ms: i64) -> Page {
    let Recording { run, notices, rows, is_preview, elapsed } = seen;
    let (catalog, unreadable) = match subject.is_catalog.then(|| CatalogRows::of(&rows)) {
        Some(Ok(catalog)) if has_columns(&rows) => (Some(catalog), None),
        Some(Err(failure)) => (None, Some(failure.message().to_string())),
        _ => (None, None),
    };
    let is_preview = run.as_ref().map_or(subject.dry_run || is_preview, |run| run.metrics.dry_run);
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    Page {
        procedure: subject.procedure,
        subject: subject.name.to_string(),
        ending: Ending::of(outcome, is_preview, run.is_some() || catalog.is_some()),
        is_preview,
        began_ms,
        elapsed_ms: run.as_ref().map_or(elapsed_ms, |run| run.metrics.elapsed_ms),
        error: outcome.as_ref().err().map(|failure| failure.message().to_string()),
        notices: all_notices(run.as_ref(), notices),
        missing: unreadable.into_iter().collect(),
        run,
        snapshots: Snapshots::new(),
        storage: None,
        partitions: None,
        catalog,
    }
}

fn has_columns(rows: &[RecordBatch]) -> bool {
    rows.iter().any(|batch| batch.num_columns() > 0)
}

/// The report's own notices, and what else was said, each once.
fn all_notices(run: Option<&Run>, said: Vec<String>) -> Vec<String> {
    let mut notices: Vec<String> = run.map(|run| run.notices.clone()).unwrap_or_default();
    for notice in said {
        if !notices.contains(&notice) {
            notices.push(notice);
        }
    }
    notices
}

/// True for a run that the page shows a timeline of.
fn has_timeline(run: &Run) -> bool {
    run.operation == Operation::ExpireSnapshots && !run.snapshots.is_empty()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use iceberg_maintenance::fixtures::{History, Table};

    use super::*;
    use crate::arguments::Options;

    /// The page of a dry run that ends like this.
    fn page_of(ending: impl FnOnce() -> Result<(), Failure>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let day = 86_400_000;
        let began = SystemClock.now_ms() - 30 * day;
        let mut history = History::new(Table { modified_ms: Some(began), ..Table::new(2) });
        history.append(began, ["a"]);
        history.overwrite(began + day, ["a"], ["b"]);
        history.build().write(folder.path()).unwrap();
        let session = Session::start(&Options::parse_from(["test", "--quiet"])).unwrap();
        let (table, page) = (folder.path().to_str().unwrap(), folder.path().join("r.html"));
        let subject = Subject { procedure: "expire_snapshots", name: table, is_catalog: false, dry_run: true };
        let file = ReportFile::parse(page.to_str().unwrap()).unwrap();
        let outcome = around(&session, subject, &[file], || {
            session.rows(&format!("CALL system.expire_snapshots(table => '{table}', dry_run => true)"))?;
            ending()
        });
        drop(outcome);
        std::fs::read_to_string(page).unwrap()
    }

    #[test]
    fn after_an_interruption_nothing_more_is_read() {
        let read = "Storage by kind";
        assert!(page_of(|| Ok(())).contains(read));
        let interrupted = page_of(|| Err(Failure::interrupted(&[])));
        assert!(
            !interrupted.contains(read) && interrupted.contains("was not read: the run was interrupted"),
            "{interrupted}"
        );
        assert!(interrupted.contains("Incomplete dry run") && !interrupted.contains("Real run"), "{interrupted}");
    }

    #[test]
    fn a_report_that_can_t_be_written_doesn_t_hide_how_the_run_ended() {
        assert!(with_unwritten(Ok(()), &[]).is_ok());
        let why = ["/r.html: no space".to_string()];
        let complete = with_unwritten(Ok(()), &why).unwrap_err();
        assert!(complete.is_partial() && complete.message().contains("the run is complete"), "{complete:?}");
        assert!(complete.message().ends_with("/r.html: no space"), "{complete:?}");
        let failed = with_unwritten(Err(Failure::new("no such table")), &why).unwrap_err();
        assert!(!failed.is_partial() && failed.message().starts_with("no such table; and its report"), "{failed:?}");
        assert!(with_unwritten(Err(Failure::refused()), &why).unwrap_err().is_refusal());
    }
}
