//! The report as Markdown, short enough for a comment on a pull request.
//!
//! A text of somebody else's is code: in a span of backticks where that is certain to hold it, and else as HTML in which each
//! sign is written as its number. Either way it can't end its cell, become markup, or call somebody by name.

use std::fmt::Write;

use iceberg_maintenance::report::{FileKind, Operation};

use super::catalog::{CatalogRows, number};
use super::data::{Ending, Page, Share, kind_name};
use super::figures::{self, Value};
use super::format::{counted, duration, grouped, human_bytes, time};
use super::run::{Age, Run};
use super::sections::meaning;
use super::{has_timeline, reads};
use crate::visible::visible;

/// How many rows a table has at most.
const MOST_ROWS: usize = 15;

/// The whole text.
pub(super) fn text(page: &Page) -> String {
    let mut out = String::new();
    heading(&mut out, page);
    if let Some(error) = page.error.as_ref().filter(|_| page.ending != Ending::NotConfirmed) {
        _ = writeln!(out, "**Error:** {}\n", code(error));
    }
    figure_table(&mut out, page);
    if let Some(rows) = &page.catalog {
        catalog(&mut out, rows, page.is_preview);
    }
    if let Some(run) = &page.run {
        failures(&mut out, run);
        if has_timeline(run) {
            refs(&mut out, run);
            snapshots(&mut out, run);
        }
        kinds(&mut out, page, run);
        if run.operation == Operation::RemoveOrphanFiles {
            orphans(&mut out, run);
        }
        left_alone(&mut out, run);
    }
    if let Some(partitions) = &page.partitions {
        largest(&mut out, partitions);
    }
    notes(&mut out, page);
    out
}

/// A text of somebody else's.
fn code(text: &str) -> String {
    let text = visible(text);
    let is_plain = |c: char| !matches!(c, '`' | '|' | '\\');
    if !text.trim().is_empty() && text.trim() == text && text.chars().all(is_plain) {
        return format!("`{text}`");
    }
    let mut escaped = String::from("<code>");
    for c in text.chars() {
        match c.is_ascii() && !c.is_ascii_alphanumeric() && c != ' ' {
            true => _ = write!(escaped, "&#{};", u32::from(c)),
            false => escaped.push(c),
        }
    }
    escaped.push_str("</code>");
    escaped
}

fn heading(out: &mut String, page: &Page) {
    let (_, state) = page.badge();
    _ = writeln!(out, "## {}: {}\n", page.title(), state.to_lowercase());
    _ = writeln!(out, "{}\n", code(page.table()));
    _ = writeln!(out, "{}\n", page.summary());
    let (began, took) = (time(page.began_ms), duration(page.elapsed_ms));
    _ = writeln!(out, "{began}, {took}, iceberg-maintenance {}\n", env!("CARGO_PKG_VERSION"));
}

/// A table: heads, of which those that begin with `#` are numbers, rows, and what is left out of them.
fn table(out: &mut String, heads: &[&str], rows: Vec<Vec<String>>, nouns: (&str, &str)) {
    if rows.is_empty() {
        return;
    }
    let names: Vec<&str> = heads.iter().map(|head| head.trim_start_matches('#')).collect();
    let rules: Vec<&str> = heads.iter().map(|head| if head.starts_with('#') { "--:" } else { "---" }).collect();
    _ = writeln!(out, "| {} |\n| {} |", names.join(" | "), rules.join(" | "));
    for row in rows.iter().take(MOST_ROWS) {
        _ = writeln!(out, "| {} |", row.join(" | "));
    }
    match rows.len().saturating_sub(MOST_ROWS) {
        0 => out.push('\n'),
        more => _ = writeln!(out, "\nAnd {} more.\n", counted(more as u64, nouns.0, nouns.1)),
    }
}

fn figure_table(out: &mut String, page: &Page) {
    let rows = figures::of(page).into_iter().map(|figure| {
        let exact = match figure.value {
            Value::Bytes(bytes) if bytes >= 1_000 => format!(" ({} bytes)", grouped(bytes)),
            _ => String::new(),
        };
        let value = format!("{}{exact}", figure.value.short());
        vec![figure.label.to_string(), value, figure.note.unwrap_or_default()]
    });
    table(out, &["Figure", "#Value", ""], rows.collect(), ("figure", "figures"));
}

/// Orphans that go, by kind and age.
fn orphans(out: &mut String, run: &Run) {
    let of = |kind, age| run.ages.get(&(kind, age)).map(|share| share.goes).filter(|sum| sum.files > 0);
    let of = &of;
    let cells = run.kinds.keys().flat_map(|kind| Age::all().filter_map(move |age| Some((*kind, age, of(*kind, age)?))));
    let rows = cells.map(|(kind, age, sum)| {
        vec![kind_name(kind).to_string(), age.as_str().to_string(), grouped(sum.files), human_bytes(sum.bytes)]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        _ = writeln!(out, "### Orphans by kind and age\n");
        table(out, &["Kind", "Last modified", "#Files", "#Bytes"], rows, ("group", "groups"));
    }
}

/// What the run left alone, and why.
fn left_alone(out: &mut String, run: &Run) {
    let reasons = figures::left_alone_because(run);
    if !reasons.is_empty() {
        _ = writeln!(out, "### Left alone\n");
        let rows = reasons.into_iter().map(|(name, files)| vec![meaning(name).to_string(), grouped(files)]);
        table(out, &["Why", "#Files"], rows.collect(), ("reason", "reasons"));
    }
}

fn failures(out: &mut String, run: &Run) {
    if run.failed.total == 0 {
        return;
    }
    _ = writeln!(out, "### Could not be deleted\n");
    let rows = run.failed.first.iter().map(|file| vec![code(&file.path), code(&file.why)]);
    let left_out = run.failed.total.saturating_sub(run.failed.first.len() as u64);
    table(out, &["File", "Error"], rows.collect(), ("named file", "named files"));
    if left_out > 0 {
        _ = writeln!(out, "{} are not named here.\n", counted(left_out, "failed file", "failed files"));
    }
}

fn refs(out: &mut String, run: &Run) {
    _ = writeln!(out, "### Branches and tags\n");
    let row = |to: &iceberg_maintenance::retention::RefDecision| {
        let kind = format!("{:?}", to.kind).to_lowercase();
        let decision = if to.reason.removes() { "**remove**" } else { "keep" };
        vec![code(&to.name), kind, to.snapshot_id.to_string(), decision.to_string(), to.reason.to_string()]
    };
    let rows = run.refs.iter().map(row);
    table(out, &["Name", "Kind", "Snapshot", "Decision", "Reason"], rows.collect(), ("ref", "refs"));
}

fn snapshots(out: &mut String, run: &Run) {
    let mut gone: Vec<_> = run.snapshots.iter().filter(|snapshot| snapshot.reason.expires()).collect();
    if gone.is_empty() {
        return;
    }
    gone.sort_by_key(|snapshot| snapshot.timestamp_ms);
    _ = writeln!(out, "### Snapshots that go\n");
    let rows = gone.into_iter().map(|snapshot| {
        let reason = code(&snapshot.reason.to_string());
        vec![snapshot.snapshot_id.to_string(), time(snapshot.timestamp_ms), reason]
    });
    table(out, &["Snapshot", "Made", "Reason"], rows.collect(), ("snapshot", "snapshots"));
}

fn kinds(out: &mut String, page: &Page, run: &Run) {
    let of_run = || run.kinds.iter().map(|(kind, of)| (*kind, Share { stays: None, goes: of.goes, left: of.left }));
    let shares: Vec<(FileKind, Share)> = match &page.storage {
        Some(storage) => storage.by_kind.clone(),
        None => of_run().collect(),
    };
    if shares.is_empty() {
        return;
    }
    _ = writeln!(out, "### Files by kind\n");
    let rows = shares.into_iter().map(|(kind, share)| {
        let stays = share.stays.map_or_else(|| "not known".into(), |stays| human_bytes(stays.bytes));
        let (files, bytes) = (grouped(share.goes.files), human_bytes(share.goes.bytes));
        vec![kind_name(kind).to_string(), files, bytes, stays, human_bytes(share.left.bytes)]
    });
    let heads = ["Kind", "#Files that go", "#Bytes that go", "#Bytes that stay", "#Not needed, still there"];
    table(out, &heads, rows.collect(), ("kind", "kinds"));
}

fn largest(out: &mut String, partitions: &reads::Partitions) {
    _ = writeln!(out, "### Largest partitions\n");
    let rows = partitions.largest.iter().map(|partition| {
        let (files, bytes) = (grouped(partition.data.files), human_bytes(partition.data.bytes));
        vec![code(&partition.name), grouped(partition.records), files, bytes]
    });
    let (all, bytes) = (counted(partitions.count, "partition", "partitions"), human_bytes(partitions.total.bytes));
    table(out, &["Partition", "#Records", "#Data files", "#Bytes"], rows.collect(), ("partition", "partitions"));
    _ = writeln!(out, "In all {all} with {bytes} of data files in the current snapshot.\n");
}

fn catalog(out: &mut String, rows: &CatalogRows, is_preview: bool) {
    _ = writeln!(out, "### Tables\n");
    // What somebody must look into comes first.
    let (failed, others): (Vec<_>, Vec<_>) = rows.tables.iter().partition(|table| table.status == "failed");
    let rows = failed.into_iter().chain(others).map(|table| {
        let (sign, word) = table.badge();
        let files = number(table.files).saturating_add(number(table.orphans));
        let why = table.reason.as_deref().map(code).unwrap_or_default();
        vec![
            code(&table.name),
            format!("{sign} {word}"),
            grouped(number(table.snapshots)),
            grouped(files),
            human_bytes(table.freed()),
            why,
        ]
    });
    let freed = if is_preview { "#To be freed" } else { "#Freed" };
    let heads = ["Table", "Status", "#Snapshots", "#Files", freed, "Why"];
    table(out, &heads, rows.collect(), ("table", "tables"));
}

fn notes(out: &mut String, page: &Page) {
    let missing = page.missing.iter().map(|missing| format!("Not in this report: {}", code(missing)));
    let notes: Vec<String> = page.notices.iter().map(|notice| code(notice)).chain(missing).collect();
    if notes.is_empty() {
        return;
    }
    _ = writeln!(out, "### Notes\n");
    for note in notes.iter().take(MOST_ROWS) {
        _ = writeln!(out, "- {note}");
    }
    if notes.len() > MOST_ROWS {
        _ = writeln!(out, "- and {} more", notes.len() - MOST_ROWS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        for (name, expected) in [
            ("main", "`main`"),
            ("<script>alert(1)</script>", "`<script>alert(1)</script>`"),
            ("@everyone #1 **x** [a](b)", "`@everyone #1 **x** [a](b)`"),
            ("a|b", "<code>a&#124;b</code>"),
            ("a\\|b", "<code>a&#92;&#124;b</code>"),
            ("`a`", "<code>&#96;a&#96;</code>"),
            ("a\n| b", "<code>a&#92;n&#124; b</code>"),
            ("</code><b>|", "<code>&#60;&#47;code&#62;&#60;b&#62;&#124;</code>"),
            (" x ", "<code> x </code>"),
            ("", "<code></code>"),
        ] {
            assert_eq!(code(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_table_says_what_it_leaves_out() {
        let rows = |count: usize| (0..count).map(|row| vec![row.to_string()]).collect::<Vec<_>>();
        let mut out = String::new();
        table(&mut out, &["#n"], rows(MOST_ROWS + 2), ("row", "rows"));
        assert!(out.starts_with("| n |\n| --: |\n| 0 |\n") && out.ends_with("| 14 |\n\nAnd 2 rows more.\n\n"), "{out}");
        out.clear();
        table(&mut out, &["n"], rows(0), ("row", "rows"));
        assert_eq!(out, "");
    }
}
