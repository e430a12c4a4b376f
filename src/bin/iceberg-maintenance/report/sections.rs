//! The sections of a page about one table, from what went to what the operator looks up.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use iceberg_maintenance::report::{FileKind, METRICS, Operation};
use iceberg_maintenance::retention::SnapshotDecision;
use iceberg_maintenance::table::RefKind;
use maud::{Markup, html};

use super::charts::{Words, at, bars, bytes, change, count, exact_bytes, legend, share_table, whole};
use super::data::{Page, Share, Storage, kind_name};
use super::figures::left_alone_because;
use super::format::{counted, day, grouped, percent};
use super::html::name;
use super::reads::Partitions;
use super::run::{Age, Run, Sum};
use super::tables::{Head, and_more, decision, files, table};
use super::{catalog_section, has_timeline, timeline};
use crate::visible::visible;

/// How many snapshots the table below the timeline has.
const MOST_SNAPSHOTS: usize = 500;

/// How many refs are listed.
const MOST_REFS: usize = 200;

/// Everything below the figures.
pub(super) fn all(page: &Page) -> Markup {
    html! {
        @if let Some(rows) = &page.catalog { (catalog_section::sections(rows, page.is_preview)) }
        @if let Some(run) = &page.run {
            (failures(run))
            @if has_timeline(run) { (snapshots(page, run)) }
            @if run.operation == Operation::RemoveOrphanFiles { (orphans(run)) }
            @match &page.storage {
                Some(storage) => (stored(run, storage)),
                None => (what_goes(run)),
            }
            (spared(run))
            @if let Some(partitions) = &page.partitions { (largest(partitions)) }
            (numbers(run))
        }
    }
}

fn words(run: &Run) -> Words {
    let goes = if run.metrics.dry_run { "would go" } else { "gone" };
    let heads = ["Files that stay", "Files that go"];
    Words { stays: "stays", goes, left: "not needed, still there", heads }
}

fn failures(run: &Run) -> Markup {
    html! {
        @if run.failed.total > 0 {
            section class="failures" {
                h2 { "Files that could not be deleted" }
                (files("Failed files", &run.failed, "Error"))
            }
        }
    }
}

fn snapshots(page: &Page, run: &Run) -> Markup {
    let mut newest: Vec<&SnapshotDecision> = run.snapshots.iter().collect();
    newest.sort_by_key(|snapshot| (Reverse(snapshot.timestamp_ms), snapshot.snapshot_id));
    let more = newest.len().saturating_sub(MOST_SNAPSHOTS) as u64;
    let heads = ["Snapshot", "Made", "Operation", "Decision", "Reason", "Refs"].map(Head::Text);
    let mut refs: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    run.refs.iter().for_each(|to| refs.entry(to.snapshot_id).or_default().push(&to.name));
    let rows = html! {
        tbody {
            @for snapshot in newest.into_iter().take(MOST_SNAPSHOTS) {
                (snapshot_row(page, snapshot, refs.get(&snapshot.snapshot_id)))
            }
        }
    };
    html! {
        section {
            h2 { "Snapshots" }
            (timeline::chart(run))
            (refs_table(run))
            details {
                summary { "Each snapshot and why" }
                (table("Snapshots, the newest first", "snapshots", &heads, rows))
                (and_more(more, "snapshot", "snapshots", "output => 'snapshots' shows all"))
            }
        }
    }
}

fn snapshot_row(page: &Page, snapshot: &SnapshotDecision, refs: Option<&Vec<&str>>) -> Markup {
    let operation = page.snapshots.get(&snapshot.snapshot_id).and_then(|(_, operation)| operation.as_deref());
    html! {
        tr {
            th scope="row" class="id" { (snapshot.snapshot_id) }
            td class="whole" { (at(snapshot.timestamp_ms)) }
            td { (operation.map(visible).unwrap_or_default()) }
            td class="whole" { (decision(snapshot.reason.expires(), "expire", "keep")) }
            td class="prose" { (visible(&snapshot.reason.to_string())) }
            td { @for to in refs.into_iter().flatten().take(5) { (name(to)) " " } }
        }
    }
}

fn refs_table(run: &Run) -> Markup {
    let made = |id: i64| run.snapshots.iter().find(|snapshot| snapshot.snapshot_id == id).map(|s| s.timestamp_ms);
    let heads = [
        Head::Number("No."),
        Head::Text("Name"),
        Head::Text("Decision"),
        Head::Text("Kind"),
        Head::Text("Snapshot"),
        Head::Text("Reason"),
    ];
    let rows = html! {
        tbody {
            @for (index, to) in run.refs.iter().enumerate().take(MOST_REFS) {
                tr {
                    td class="number" { (index + 1) }
                    th scope="row" { (name(&to.name)) }
                    td class="whole" { (decision(to.reason.removes(), "remove", "keep")) }
                    td { @match to.kind { RefKind::Branch => "branch", RefKind::Tag => "tag" } }
                    td {
                        span class="id" { (to.snapshot_id) }
                        @if let Some(ms) = made(to.snapshot_id) { " of " span class="whole" { (day(ms)) } }
                    }
                    td class="prose" { (to.reason) }
                }
            }
        }
    };
    let more = run.refs.len().saturating_sub(MOST_REFS) as u64;
    html! {
        @if !run.refs.is_empty() {
            (table("Branches and tags", "refs", &heads, rows))
            (and_more(more, "ref", "refs", "iceberg_refs shows all"))
        }
    }
}

/// Names and shares of a chart.
type Rows = Vec<(String, Share)>;

fn shares(rows: &Rows) -> Vec<Share> {
    rows.iter().map(|(_, share)| *share).collect()
}

fn stored(run: &Run, storage: &Storage) -> Markup {
    let total = storage.total();
    let kinds: Rows = storage.by_kind.iter().map(|(kind, share)| (kind_name(*kind).to_string(), *share)).collect();
    let (before, after) = (total.before().bytes, total.after().bytes);
    html! {
        section {
            h2 { "Storage by kind" }
            p class="headline" {
                (bytes(before)) " before → " strong { (bytes(after)) " after" }
                @if let Some(share) = percent(before.saturating_sub(after), before) {
                    span class="small" { " (" (share) " less)" }
                }
            }
            (legend(words(run), &shares(&kinds)))
            (bars(words(run), &kinds, change))
            (share_table("Files by kind", "Kind", words(run), &kinds))
        }
        @if !storage.by_age.is_empty() { (stored_by_age(run, storage)) }
    }
}

fn stored_by_age(run: &Run, storage: &Storage) -> Markup {
    let is_of_orphans = run.operation == Operation::RemoveOrphanFiles;
    // What an expiry doesn't need any more may also wait, or have failed to go.
    let heads = ["Files needed", "Files no longer needed"];
    let words = match is_of_orphans {
        true => words(run),
        false => Words { stays: "needed", goes: "no longer needed", left: "", heads },
    };
    let word = |age: Age| match age {
        Age::UNKNOWN if is_of_orphans => "unknown, or older than the oldest snapshot",
        Age::UNKNOWN => "older than the oldest snapshot",
        age => age.as_str(),
    };
    let shown = storage.by_age.iter().filter(|(age, share)| *age != Age::UNKNOWN || share.before().files > 0);
    // Of everything that stays here the size is known.
    let known = |share: &Share| Share { stays: Some(share.stays.unwrap_or_default()), ..*share };
    let ages: Rows = shown.map(|(age, share)| (word(*age).to_string(), known(share))).collect();
    html! {
        section {
            h2 { "Storage by age" }
            p class="small" {
                "Data, delete files and manifests that the metadata names, by the age of the snapshot that added them, as "
                "far as that is still there"
                @if is_of_orphans { "; orphans by the time since they were last modified" }
                "."
            }
            (legend(words, &shares(&ages)))
            (bars(words, &ages, change))
            (share_table("Files by age", "Age", words, &ages))
        }
    }
}

/// What goes by kind, where nothing is known of what stays.
fn what_goes(run: &Run) -> Markup {
    let share = |(kind, fates): (&FileKind, &super::run::Fates)| {
        (kind_name(*kind).to_string(), Share { stays: None, goes: fates.goes, left: fates.left })
    };
    let kinds: Rows = run.kinds.iter().map(share).collect();
    html! {
        @if !kinds.is_empty() {
            section {
                h2 { "What goes" }
                (legend(words(run), &shares(&kinds)))
                (bars(words(run), &kinds, change))
                (share_table("Files by kind", "Kind", words(run), &kinds))
            }
        }
    }
}

/// Orphans that go, by kind and age.
fn orphans(run: &Run) -> Markup {
    let cell = |kind, age| run.ages.get(&(kind, age)).map(|fates| fates.goes).unwrap_or_default();
    let kinds: Vec<(FileKind, Sum)> =
        run.kinds.iter().filter(|(_, fates)| fates.goes.files > 0).map(|(kind, fates)| (*kind, fates.goes)).collect();
    let of_age = |age| kinds.iter().map(|(kind, _)| cell(*kind, age)).fold(Sum::default(), Sum::plus);
    let ages: Vec<Age> = Age::all().filter(|age| *age != Age::UNKNOWN || of_age(*age).files > 0).collect();
    let total = kinds.iter().map(|(_, sum)| *sum).fold(Sum::default(), Sum::plus);
    let cells = kinds.iter().flat_map(|(kind, _)| ages.iter().map(|age| cell(*kind, *age).bytes));
    let most = cells.max().unwrap_or(0);
    let numbers = ages.iter().map(|age| Head::Number(age.as_str()));
    let heads: Vec<Head> = [Head::Text("Kind")].into_iter().chain(numbers).chain([Head::Number("all")]).collect();
    let body = html! {
        tbody {
            @for (kind, sum) in &kinds {
                tr {
                    th scope="row" { (kind_name(*kind)) }
                    @for age in &ages { (heat_cell(cell(*kind, *age), most)) }
                    (heat_cell(*sum, 0))
                }
            }
        }
        tfoot {
            tr {
                th scope="row" { "all" }
                @for age in &ages { (heat_cell(of_age(*age), 0)) }
                (heat_cell(total, 0))
            }
        }
    };
    html! {
        section {
            h2 { "Orphans by kind and age" }
            @if kinds.is_empty() { p { "No file that nothing names may go." } } @else {
                p class="small" {
                    "Files that nothing names and that " (if run.metrics.dry_run { "would go" } else { "went" })
                    ", by the time since they were last modified. The stronger the colour of a cell, the more bytes."
                }
                (table("Orphans: files and bytes", "heat", &heads, body))
            }
        }
    }
}

/// Files and bytes; the stronger the colour, the closer to the largest cell. Without a largest one it is a sum.
fn heat_cell(sum: Sum, most: u64) -> Markup {
    let step = if most == 0 || sum.files == 0 { 0 } else { 1 + (sum.bytes as f64 * 3.99 / most as f64) as u64 };
    html! {
        td class=(format!("number heat{step}")) {
            @if sum.files == 0 { span class="none" { "–" } } @else {
                (count(sum.files)) br; span class="small" { (bytes(sum.bytes)) }
            }
        }
    }
}

/// What the run left alone, by the rows that count it, and the files that it names.
fn spared(run: &Run) -> Markup {
    let reasons = left_alone_because(run);
    let counted_rows = html! {
        tbody {
            @for (name, files) in &reasons {
                tr {
                    td class="prose" { (meaning(name)) }
                    td class="number" { (count(*files)) }
                }
            }
        }
    };
    let named_rows = html! {
        tbody {
            @for (why, sum) in &run.spared_because {
                tr {
                    td class="prose" { (why) }
                    td class="number" { (count(sum.files)) }
                    td class="number" { (bytes(sum.bytes)) }
                }
            }
        }
    };
    let named = [Head::Text("Why"), Head::Number("Files"), Head::Number("Size")];
    html! {
        @if !reasons.is_empty() || run.spared.total > 0 {
            section {
                h2 { "Left alone" }
                @if !reasons.is_empty() { (table("All that was left alone", "counts", &named[..2], counted_rows)) }
                @if run.spared.total > 0 {
                    (table("Files that no snapshot needs, still there", "counts", &named, named_rows))
                    details {
                        summary { (counted(run.spared.total, "file", "files")) " by name" }
                        (files("Files still there", &run.spared, "Why"))
                    }
                }
            }
        }
    }
}

pub(super) fn meaning(metric: &str) -> &'static str {
    METRICS.iter().find(|(name, _)| *name == metric).map_or("", |(_, meaning)| meaning)
}

fn largest(partitions: &Partitions) -> Markup {
    let rows = partitions
        .largest
        .iter()
        .map(|partition| (visible(&partition.name), Share { stays: Some(partition.data), ..Default::default() }));
    let heads = [
        Head::Text("Partition"),
        Head::Number("Records"),
        Head::Number("Data files"),
        Head::Number("Bytes"),
        Head::Number("Delete files"),
    ];
    let body = html! {
        tbody {
            @for partition in &partitions.largest {
                tr {
                    th scope="row" { (name(&partition.name)) }
                    td class="number" { (count(partition.records)) }
                    td class="number" { (count(partition.data.files)) }
                    td class="number" { (exact_bytes(partition.data.bytes)) }
                    td class="number" { (count(partition.delete_files)) }
                }
            }
        }
    };
    let words = Words { stays: "of data files", goes: "", left: "", heads: ["", ""] };
    let more = partitions.count.saturating_sub(partitions.largest.len() as u64);
    html! {
        section {
            h2 { "Largest partitions" }
            p class="small" {
                "Data files of the current snapshot: " (bytes(partitions.total.bytes)) " in "
                (counted(partitions.count, "partition", "partitions")) "."
            }
            (bars(words, &rows.collect::<Rows>(), whole))
            details {
                summary { "The numbers" }
                (table("Largest partitions", "partitions", &heads, body))
                (and_more(more, "partition", "partitions", "iceberg_partitions shows all"))
            }
        }
    }
}

/// All metric rows, by their names.
fn numbers(run: &Run) -> Markup {
    let heads = [Head::Text("Metric"), Head::Number("Value"), Head::Text("Meaning")];
    let body = html! {
        tbody {
            @for (metric, value) in run.metrics.rows() {
                tr {
                    th scope="row" { code { (metric) } }
                    td class="number" { data value=(value) { (grouped(value.unsigned_abs())) } }
                    td class="prose" { (meaning(metric)) }
                }
            }
        }
    };
    html! {
        section {
            h2 { "All numbers of the run" }
            details {
                summary { "The metric rows, as output => 'metrics' returns them" }
                (table("Metric rows", "metrics", &heads, body))
            }
        }
    }
}
