//! The page: one file with all its style, no script, and nothing that is fetched. Every text of somebody else's goes through
//! the escaping of the template; the page's own policy forbids whatever should get past it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::{at, patterns};
use super::data::{Ending, Page};
use super::figures::{self, Figure};
use super::format::{duration, grouped};
use super::sections;
use crate::visible::visible;

const STYLE: &str = include_str!("style.css");

/// Nothing is loaded and nothing runs; style is the page's own.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole page.
pub(super) fn page(page: &Page) -> String {
    let (_, state) = page.badge();
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (page.title()) " · " (visible(page.table())) " · " (state) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (patterns())
                main {
                    (header(page))
                    (error(page))
                    (tiles(page))
                    (notices(page))
                    (sections::all(page))
                }
                (footer())
            }
        }
    };
    markup.into_string()
}

fn header(page: &Page) -> Markup {
    let (sign, state) = page.badge();
    let class = match page.ending {
        Ending::Done => "badge done",
        Ending::DryRun | Ending::NotConfirmed => "badge preview",
        Ending::Incomplete | Ending::Failed => "badge bad",
    };
    html! {
        header {
            p class="over" { "Iceberg table maintenance" }
            div class="heading" {
                h1 { (page.title()) }
                p class=(class) { span aria-hidden="true" { (sign) } " " (state) }
            }
            p class="subject" { (name(page.table())) }
            p class="lead" { (page.summary()) }
            dl class="meta" {
                div { dt { "Began" } dd { (at(page.began_ms)) } }
                div { dt { "Took" } dd { (took(page.elapsed_ms)) } }
                div { dt { "Mode" } dd { (mode(page)) } }
                div { dt { "Tool" } dd { "iceberg-maintenance " (env!("CARGO_PKG_VERSION")) } }
            }
        }
    }
}

fn took(ms: u64) -> Markup {
    html! { data value=(ms) title=(format!("{} ms", grouped(ms))) { (duration(ms)) } }
}

fn mode(page: &Page) -> &'static str {
    match page.ending {
        Ending::NotConfirmed => "Dry run: the question was answered with no, nothing was changed",
        _ if page.is_preview => "Dry run: nothing was changed",
        Ending::Failed => "Ended with an error",
        Ending::DryRun | Ending::Done | Ending::Incomplete => "Real run",
    }
}

fn error(page: &Page) -> Markup {
    let Some(error) = page.error.as_ref().filter(|_| page.ending != Ending::NotConfirmed) else { return html! {} };
    html! {
        section class="error" role="alert" {
            h2 { @if page.ending == Ending::Failed || page.is_preview { "The error" } @else { "Not everything was done" } }
            p class="message" { (visible(error)) }
        }
    }
}

fn tiles(page: &Page) -> Markup {
    let figures = figures::of(page);
    html! {
        @if !figures.is_empty() {
            dl class="tiles" aria-label="The figures" { @for figure in &figures { (tile(figure)) } }
        }
    }
}

fn tile(figure: &Figure) -> Markup {
    let exact = figure.value.exact();
    html! {
        div class=(if figure.is_bad { "tile bad" } else { "tile" }) {
            dt { @if figure.is_bad { span aria-hidden="true" { "! " } } (figure.label) }
            dd class="figure" { data value=(exact) title=(grouped(exact)) { (figure.value.short()) } }
            @if let Some(note) = &figure.note { dd class="note" { (note) } }
        }
    }
}

fn notices(page: &Page) -> Markup {
    html! {
        @if !page.notices.is_empty() || !page.missing.is_empty() {
            section class="notices" {
                h2 { "Notes" }
                ul {
                    @for notice in &page.notices { li { (visible(notice)) } }
                    @for missing in &page.missing { li { strong { "Not on this page: " } (visible(missing)) } }
                }
            }
        }
    }
}

fn footer() -> Markup {
    html! {
        footer {
            p {
                "Numbers of files, snapshots and bytes that go are those of the run's own rows. Sizes are in powers of "
                "1000, times are UTC. This file holds everything that it shows."
            }
        }
    }
}

/// A name of somebody else's: set apart, so that its direction of writing doesn't turn what stands around it.
pub(super) fn name(text: &str) -> Markup {
    html! { code { bdi { (visible(text)) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a colour, from the first place behind `after`.
    fn colour(name: &str, after: &str) -> [f64; 3] {
        let palette = STYLE.split_once(after).unwrap().1;
        let hex = palette.split_once(&format!("--{name}: #")).unwrap_or_else(|| panic!("no {name}")).1;
        [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0)
    }

    /// How bright a colour is, as WCAG measures it.
    fn luminance(colour: [f64; 3]) -> f64 {
        let linear = colour.map(|part| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_stands_out_from_its_ground_and_what_is_drawn_from_its_card() {
        for scheme in [":root", "prefers-color-scheme: dark"] {
            let mut pairs =
                vec![("good-ink", "good-ground", 4.5), ("go-ink", "bad-ground", 4.5), ("ink", "bad-ground", 4.5)];
            for ground in ["ground", "card", "raised"] {
                pairs.extend(["ink", "soft", "stay-ink", "go-ink"].map(|ink| (ink, ground, 4.5)));
            }
            pairs.extend(["heat1", "heat2", "heat3", "heat4"].map(|ground| ("ink", ground, 4.5)));
            pairs.extend(["stay", "go", "left"].map(|drawn| (drawn, "card", 3.0)));
            pairs.extend([("go", "go-light", 2.5), ("left", "left-light", 2.5)]);
            for (ink, ground, least) in pairs {
                let found = contrast(colour(ink, scheme), colour(ground, scheme));
                assert!(found >= least, "{scheme}: {ink} on {ground} is {found:.2}");
            }
        }
    }

    #[test]
    fn the_page_s_style_asks_for_nothing() {
        for asking in ["@import", "url(\"", "url(h", "url(/", "<"] {
            assert!(!STYLE.contains(asking), "{asking}");
        }
    }
}
