//! Tables of a page: each scrolls by itself where the screen is narrow, and says how much it leaves out.

use maud::{Markup, html};

use super::charts::bytes;
use super::data::kind_name;
use super::format::counted;
use super::html::name;
use super::run::FileList;
use crate::visible::visible;

/// The head of a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Head {
    Text(&'static str),
    Number(&'static str),
}

/// A table with a caption, in a frame of its own. `body` are the rows.
pub(super) fn table(caption: &str, class: &str, heads: &[Head], body: Markup) -> Markup {
    html! {
        div class="wide" tabindex="0" role="region" aria-label=(caption) {
            table class=(class) {
                caption { (caption) }
                thead {
                    tr {
                        @for head in heads {
                            @match head {
                                Head::Text(text) => th scope="col" { (text) },
                                Head::Number(text) => th scope="col" class="number" { (text) },
                            }
                        }
                    }
                }
                (body)
            }
        }
    }
}

/// What a table leaves out, and where it is.
pub(super) fn and_more(more: u64, one: &str, many: &str, how: &str) -> Markup {
    html! { @if more > 0 { p class="small more" { "And " (counted(more, one, many)) " more; " (how) "." } } }
}

/// A decision with a sign that is told apart without colour.
pub(super) fn decision(goes: bool, goes_word: &str, stays_word: &str) -> Markup {
    html! {
        @if goes { span class="go" { span aria-hidden="true" { "✕ " } (goes_word) } }
        @else { span class="stay" { span aria-hidden="true" { "● " } (stays_word) } }
    }
}

/// The first files of a list, with the reason for each.
pub(super) fn files(caption: &str, list: &FileList, why: &'static str) -> Markup {
    let heads = [Head::Text("File"), Head::Text("Kind"), Head::Number("Size"), Head::Text(why)];
    let rows = html! {
        tbody {
            @for file in &list.first {
                tr {
                    th scope="row" class="path" { (name(&file.path)) }
                    td { (kind_name(file.kind)) }
                    td class="number" { @match file.bytes { Some(size) => (bytes(size)), None => "not known" } }
                    td class="prose" { (visible(&file.why)) }
                }
            }
        }
    };
    let more = list.total.saturating_sub(list.first.len() as u64);
    html! {
        (table(caption, "files", &heads, rows))
        (and_more(more, "file", "files", "output => 'files' shows all"))
    }
}
