//! The sections of a page about a whole catalog: the tables that freed most as bars, all tables as rows.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::catalog::{CatalogRows, TableLine, number};
use super::charts::{Words, bars, bytes, count, legend, whole};
use super::data::Share;
use super::format::duration;
use super::html::name;
use super::run::Sum;
use super::tables::{Head, and_more, table};
use crate::visible::visible;

/// How many tables are listed, and how many have a bar.
const MOST_TABLES: usize = 1_000;
const MOST_BARS: usize = 12;

/// What the parts of a bar mean here.
const WORDS: Words = Words { stays: "", goes: "files of expired snapshots", left: "orphans", heads: ["", ""] };

pub(super) fn sections(rows: &CatalogRows, is_preview: bool) -> Markup {
    html! {
        (most_freed(rows, is_preview))
        (all_tables(rows, is_preview))
    }
}

fn most_freed(rows: &CatalogRows, is_preview: bool) -> Markup {
    let mut most: Vec<&TableLine> = rows.tables.iter().filter(|table| table.freed() > 0).collect();
    most.sort_by_key(|table| (Reverse(table.freed()), &table.name));
    let sum = |files, bytes| Sum::of(number(files), number(bytes));
    let share = |table: &TableLine| Share {
        stays: None,
        goes: sum(table.files, table.bytes),
        left: sum(table.orphans, table.orphan_bytes),
    };
    let bar_rows: Vec<(String, Share)> =
        most.iter().take(MOST_BARS).map(|table| (visible(&table.name), share(table))).collect();
    let shares: Vec<Share> = bar_rows.iter().map(|(_, share)| *share).collect();
    let more = most.len().saturating_sub(MOST_BARS) as u64;
    html! {
        @if !bar_rows.is_empty() {
            section {
                h2 { (if is_preview { "Where most would be freed" } else { "Where most was freed" }) }
                (legend(WORDS, &shares))
                (bars(WORDS, &bar_rows, whole))
                (and_more(more, "table", "tables", "they are listed below"))
            }
        }
    }
}

fn all_tables(rows: &CatalogRows, is_preview: bool) -> Markup {
    let heads = [
        Head::Text("Table"),
        Head::Text("Status"),
        Head::Number("Snapshots"),
        Head::Number("Files"),
        Head::Number("Orphans"),
        Head::Number(if is_preview { "To be freed" } else { "Freed" }),
        Head::Number("Put off"),
        Head::Number("Failed"),
        Head::Number("Took"),
        Head::Text("Why"),
    ];
    let body = html! { tbody { @for table in rows.tables.iter().take(MOST_TABLES) { (table_row(table)) } } };
    let more = rows.tables.len().saturating_sub(MOST_TABLES) as u64;
    html! {
        section {
            h2 { "Tables" }
            (table("Each table, in its turn", "tables", &heads, body))
            (and_more(more, "table", "tables", "the rows of the call show all"))
        }
    }
}

fn table_row(table: &TableLine) -> Markup {
    let (sign, word) = table.badge();
    let is_bad = table.status == "failed";
    let known = |value: Option<i64>| html! { @match value { Some(_) => (count(number(value))), None => "–" } };
    html! {
        tr {
            th scope="row" { (name(&table.name)) }
            td class=(if is_bad { "whole go" } else { "whole" }) {
                span aria-hidden="true" { (sign) } " " (visible(word))
            }
            td class="number" { (known(table.snapshots)) }
            td class="number" { (known(table.files)) }
            td class="number" { (known(table.orphans)) }
            td class="number" {
                @if table.bytes.is_some() || table.orphan_bytes.is_some() { (bytes(table.freed())) } @else { "–" }
            }
            td class="number" { (known(table.deferred)) }
            td class="number" { (known(table.failed)) }
            td class="number" {
                @match table.elapsed_ms { Some(_) => (duration(number(table.elapsed_ms))), None => "–" }
            }
            td class="prose" { (table.reason.as_deref().map(visible).unwrap_or_default()) }
        }
    }
}
