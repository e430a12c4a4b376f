//! The live display of a run: one line on a terminal, drawn over and over, and gone when the run is over.

use std::convert::Infallible;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use iceberg_maintenance::{Progress, RunStage};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::visible::{visible, without_secrets};

/// How often it is drawn.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// A run that is over by then needs no display.
const FIRST_AFTER: Duration = Duration::from_millis(400);

const COUNTED: &str = "{spinner} [{bar:16}] {wide_msg}";
const UNCOUNTED: &str = "{spinner} {wide_msg}";

/// Draws on standard error, if that is a terminal. Messages go through it, so that they don't land in its line.
#[derive(Debug)]
pub(crate) struct Display {
    is_on: bool,
    /// The line of the statement that runs.
    bar: Mutex<Option<ProgressBar>>,
}

impl Display {
    /// `quiet`: nothing is to be shown besides results and errors.
    pub(crate) fn new(quiet: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { is_on: !quiet && !is_dumb && std::io::stderr().is_terminal(), bar: Mutex::new(None) }
    }

    /// Shows the progress of one statement until this future is dropped.
    pub(crate) async fn follow(&self, progress: impl Stream<Item = Progress> + Unpin) -> Infallible {
        if self.is_on {
            self.draw(progress, ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())).await;
        }
        std::future::pending().await
    }

    async fn draw(&self, mut progress: impl Stream<Item = Progress> + Unpin, bar: ProgressBar) {
        let _shown = Shown(self);
        while let Some(progress) = progress.next().await {
            if progress.elapsed >= FIRST_AFTER && !progress.stage.is_end() {
                show(&bar, &progress);
                // From now on messages have to go around it.
                self.bar().get_or_insert_with(|| bar.clone());
            }
        }
    }

    /// Prints a message to standard error.
    pub(crate) fn say(&self, text: &str) {
        let text = without_secrets(text);
        // A message that nobody can read is no reason to stop.
        let print = || drop(writeln!(std::io::stderr(), "{text}"));
        match &*self.bar() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the line away when the statement is over, however it ended.
struct Shown<'a>(&'a Display);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some(bar) = self.0.bar().take() {
            bar.finish_and_clear();
        }
    }
}

fn show(bar: &ProgressBar, progress: &Progress) {
    let steps = progress.steps();
    let template = if steps.known > 0 { COUNTED } else { UNCOUNTED };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.update(|state| {
        state.set_len(steps.known);
        state.set_pos(steps.done.min(steps.known));
    });
    // A long name must not push the numbers out of a narrow terminal.
    bar.set_message(format!("{} · {}", counts(progress), run(progress)));
    bar.tick();
}

/// Which run it is.
fn run(progress: &Progress) -> String {
    let mut text = progress.operation.clone();
    if progress.tables.known > 0 {
        text += &format!(" {}/{}", progress.tables.done, progress.tables.known);
    }
    if !progress.table.is_empty() {
        // A name is no place for what moves a terminal's cursor.
        text.push(' ');
        text.push_str(&visible(&progress.table));
    }
    text
}

/// What is being done, how much of it, how fast, and how long it is going to take.
fn counts(progress: &Progress) -> String {
    let steps = progress.steps();
    let done = HumanCount(steps.done);
    let of = if steps.known > 0 { format!("{done} of {}", HumanCount(steps.known)) } else { done.to_string() };
    let candidates = || format!("{} candidates", HumanCount(progress.candidates));
    let mut parts = match progress.stage {
        RunStage::ReadingMetadata if progress.candidates > 0 => {
            vec![format!("{of} manifests"), HumanBytes(progress.bytes_read).to_string(), candidates()]
        }
        RunStage::ReadingMetadata => vec![format!("{of} manifests"), HumanBytes(progress.bytes_read).to_string()],
        RunStage::Listing => vec![format!("{of} files"), candidates()],
        RunStage::Checking => vec![candidates()],
        RunStage::Deleting => vec![format!("{of} files"), HumanBytes(progress.bytes_deleted).to_string()],
        _ => vec![],
    };
    parts.extend(progress.per_second().map(|rate| match rate < 10.0 {
        true => format!("{rate:.1}/s"),
        false => format!("{}/s", HumanCount(rate.round() as u64)),
    }));
    parts.extend(progress.remaining().map(|left| format!("{} left", duration(left))));
    format!("{} {}", progress.stage.as_str(), parts.join(", ")).trim_end().to_string()
}

/// A duration as people say it: `42s`, `3m 20s`, `2h 05m`.
fn duration(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..60 => format!("{}s", seconds.max(1)),
        seconds @ 60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    /// How far a run is after 20 seconds.
    fn progress(stage: RunStage, set: impl FnOnce(&mut Progress)) -> Progress {
        let mut progress = Progress::default();
        progress.operation = "expire_snapshots".into();
        progress.table = "db.t".into();
        (progress.stage, progress.elapsed) = (stage, Duration::from_secs(20));
        progress.stage_elapsed = Duration::from_secs(10);
        set(&mut progress);
        progress
    }

    #[test]
    fn each_stage_says_what_it_counts_how_fast_and_how_long() {
        let deleting = progress(RunStage::Deleting, |run| {
            (run.deletes.done, run.deletes.known, run.bytes_deleted) = (12_000, 50_000, 3 << 30);
        });
        assert_eq!(run(&deleting), "expire_snapshots db.t");
        assert_eq!(counts(&deleting), "deleting 12,000 of 50,000 files, 3.00 GiB, 1,200/s, 31s left");
        let reading = progress(RunStage::ReadingMetadata, |run| {
            (run.manifests.done, run.manifests.known, run.bytes_read) = (5, 905, 4096);
        });
        assert_eq!(counts(&reading), "reading metadata 5 of 905 manifests, 4.00 KiB, 0.5/s, 30m 00s left");
        let listing = progress(RunStage::Listing, |run| {
            (run.files_listed, run.candidates) = (1_203_404, 12_003);
        });
        assert_eq!(counts(&listing), "listing 1,203,404 files, 12,003 candidates, 120,340/s");
        assert_eq!(counts(&progress(RunStage::Committing, |_| {})), "committing");
    }

    #[test]
    fn a_catalog_shows_which_of_its_tables_it_is_at_and_no_name_moves_the_cursor() {
        let third = progress(RunStage::Listing, |run| {
            (run.tables.done, run.tables.known, run.table) = (3, 17, "lake.\u{1b}[2J\u{202e}t".into());
        });
        assert_eq!(run(&third), "expire_snapshots 3/17 lake.\\u{1b}[2J\\u{202e}t");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let texts = [0, 59, 60, 3599, 3600, 360_000].map(|seconds| duration(Duration::from_secs(seconds)));
        assert_eq!(texts, ["1s", "59s", "1m 00s", "59m 59s", "1h 00m", "100h 00m"]);
    }

    #[tokio::test]
    async fn one_line_is_drawn_messages_stand_above_it_and_it_goes_with_the_statement() {
        let terminal = InMemoryTerm::new(5, 100);
        let display = Display { is_on: true, bar: Mutex::new(None) };
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = ProgressBar::with_draw_target(None, target);
        let early = progress(RunStage::Loading, |run| run.elapsed = Duration::from_millis(1));
        let deleting = |done| progress(RunStage::Deleting, |run| (run.deletes.done, run.deletes.known) = (done, 4));
        let later = futures::stream::iter([early, deleting(2)]).chain(futures::stream::pending());
        let mut drawing = Box::pin(display.draw(later, bar));
        assert!(futures::poll!(&mut drawing).is_pending());
        let line = terminal.contents();
        assert!(
            line.contains(" [========>       ] deleting 2 of 4 files, 0 B, 0.2/s, 10s left · expire_snapshots db.t"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
        drop(drawing);
        assert_eq!(terminal.contents(), "");
        assert!(display.bar().is_none());
    }
}
