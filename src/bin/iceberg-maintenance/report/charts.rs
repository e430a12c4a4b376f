//! Bars, patterns and numbers: what the sections of a page are made of. Everything that a colour says is also said by a
//! pattern, a shape or a word.

use maud::{Markup, html};

use super::data::Share;
use super::format::{grouped, human_bytes, machine_time, time};
use super::run::Sum;
use super::tables::{Head, table};

/// The patterns that the charts refer to: stripes for what goes, dots for what isn't needed but is still there.
pub(super) fn patterns() -> Markup {
    html! {
        svg class="defs" width="0" height="0" aria-hidden="true" focusable="false" {
            defs {
                pattern id="goes" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect class="goes-ground" width="6" height="6" {}
                    rect class="goes-line" width="2.6" height="6" {}
                }
                pattern id="left" width="5" height="5" patternUnits="userSpaceOnUse" {
                    rect class="left-ground" width="5" height="5" {}
                    circle class="left-dot" cx="2.5" cy="2.5" r="1.2" {}
                }
            }
        }
    }
}

/// A count, with commas, and as it is for machines.
pub(super) fn count(number: u64) -> Markup {
    html! { data value=(number) { (grouped(number)) } }
}

/// A size as people read it; exactly where somebody points.
pub(super) fn bytes(number: u64) -> Markup {
    html! { data value=(number) title=(format!("{} bytes", grouped(number))) { (human_bytes(number)) } }
}

/// A size to the byte.
pub(super) fn exact_bytes(number: u64) -> Markup {
    html! { data value=(number) title=(human_bytes(number)) { (grouped(number)) } }
}

/// A point in time.
pub(super) fn at(ms: i64) -> Markup {
    html! { time datetime=(machine_time(ms)) { (time(ms)) } }
}

/// The words of the three parts that a bar has, and the heads of their columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub stays: &'static str,
    pub goes: &'static str,
    pub left: &'static str,
    pub heads: [&'static str; 2],
}

/// A legend for the parts that there are.
pub(super) fn legend(words: Words, shares: &[Share]) -> Markup {
    let any = |part: fn(&Share) -> u64| shares.iter().any(|share| part(share) > 0);
    html! {
        p class="legend" {
            @if any(|share| share.stays.map_or(0, |stays| stays.files)) { span { (swatch("stays")) (words.stays) } }
            @if any(|share| share.goes.files) { span { (swatch("goes")) (words.goes) } }
            @if any(|share| share.left.files) { span { (swatch("left")) (words.left) } }
        }
    }
}

fn swatch(class: &str) -> Markup {
    html! {
        svg class="swatch" width="22" height="12" aria-hidden="true" {
            rect class=(class) width="22" height="12" rx="2" {}
        }
    }
}

/// A bar for each share, as long as what there was before, with an amount beside it.
pub(super) fn bars(words: Words, rows: &[(String, Share)], amount: fn(&Share) -> Markup) -> Markup {
    let longest = rows.iter().map(|(_, share)| share.before().bytes).max().unwrap_or(0).max(1);
    html! {
        div class="bars" role="list" {
            @for (name, share) in rows {
                div class="bar" role="listitem" {
                    span class="name" title=(name) { (name) }
                    (bar(words, name, share, longest))
                    span class="amount" { (amount(share)) }
                }
            }
        }
    }
}

fn bar(words: Words, name: &str, share: &Share, longest: u64) -> Markup {
    let stays = share.stays.unwrap_or_default();
    let parts = [("stays", words.stays, stays), ("left", words.left, share.left), ("goes", words.goes, share.goes)];
    let parts = parts.into_iter().filter(|(.., sum)| sum.bytes > 0);
    let parts: Vec<_> = parts.collect();
    let told: Vec<String> = parts.iter().map(|(_, word, sum)| format!("{} {word}", human_bytes(sum.bytes))).collect();
    let told = if told.is_empty() { "nothing".to_string() } else { told.join(", ") };
    let places = places(parts.iter().map(|(.., sum)| sum.bytes), longest);
    html! {
        svg class="track" width="100%" height="20" role="img" aria-label=(format!("{name}: {told}")) {
            title { (format!("{name}: {told}")) }
            @for ((class, ..), (begin, width)) in parts.iter().zip(places) {
                rect class=(class) x=(format!("{begin:.2}%")) width=(format!("{width:.2}%")) height="20" {}
            }
        }
    }
}

/// Where each part begins and how wide it is, in percent: to scale, but none too thin to be seen, for which the widest makes
/// room.
fn places(parts: impl Iterator<Item = u64>, longest: u64) -> Vec<(f64, f64)> {
    let mut widths: Vec<f64> = parts.map(|bytes| (bytes as f64 * 100.0 / longest as f64).max(0.5)).collect();
    let surplus = widths.iter().sum::<f64>() - 100.0;
    if let Some(widest) = widths.iter_mut().max_by(|one, other| one.total_cmp(other)).filter(|_| surplus > 0.0) {
        *widest -= surplus;
    }
    let mut end = 0.0;
    let place = |width| {
        end += width;
        (end - width, width)
    };
    widths.into_iter().map(place).collect()
}

/// What there was and what there is.
pub(super) fn change(share: &Share) -> Markup {
    html! {
        @match (share.stays, share.goes.bytes) {
            (None, 0) => (bytes(share.left.bytes)),
            (None, goes) => { "−" (bytes(goes)) },
            (Some(_), 0) => (bytes(share.after().bytes)),
            (Some(_), _) => { (bytes(share.before().bytes)) " → " (bytes(share.after().bytes)) },
        }
    }
}

/// All of it together.
pub(super) fn whole(share: &Share) -> Markup {
    bytes(share.before().bytes)
}

/// The numbers behind bars.
pub(super) fn share_table(caption: &str, first: &'static str, words: Words, rows: &[(String, Share)]) -> Markup {
    let any_left = rows.iter().any(|(_, share)| share.left.files > 0);
    let any_unknown = rows.iter().any(|(_, share)| share.stays.is_none());
    let [stays, goes] = words.heads;
    let mut heads = vec![Head::Text(first), Head::Number(stays), Head::Number("Their bytes")];
    heads.extend([Head::Number(goes), Head::Number("Their bytes")]);
    if any_left {
        heads.extend([Head::Number("Not needed, still there"), Head::Number("Their bytes")]);
    }
    let body = html! {
        tbody {
            @for (name, share) in rows {
                tr {
                    th scope="row" { (name) }
                    (sum_cells(share.stays))
                    (sum_cells(Some(share.goes)))
                    @if any_left { (sum_cells(Some(share.left))) }
                }
            }
        }
    };
    html! {
        details {
            summary { "The numbers" }
            (table(caption, "shares", &heads, body))
            @if any_unknown {
                p class="small" {
                    "Iceberg's metadata tables list no manifest lists, statistics and metadata files: of these only what "
                    "goes is known."
                }
            }
        }
    }
}

fn sum_cells(sum: Option<Sum>) -> Markup {
    html! {
        @match sum {
            Some(sum) => {
                td class="number" { (count(sum.files)) }
                td class="number" { (exact_bytes(sum.bytes)) }
            },
            None => {
                td class="number" { "not known" }
                td class="number" { "not known" }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_can_be_seen_and_all_fit() {
        let places = |parts: &[u64], longest| places(parts.iter().copied(), longest);
        assert_eq!(places(&[50, 25], 100), [(0.0, 50.0), (50.0, 25.0)]);
        assert_eq!(places(&[1, 1_000_000], 1_000_001), [(0.0, 0.5), (0.5, 99.5)]);
        assert_eq!(places(&[], 1), []);
    }
}
