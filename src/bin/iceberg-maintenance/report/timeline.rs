//! The snapshots of a table on a time axis: each one as long as there is room, then counted by day, week or more.
//!
//! Positions are percentages of the width and sizes are pixels, so that marks and text keep their size on any screen.

use iceberg_maintenance::retention::{RefDecision, SnapshotDecision};
use iceberg_maintenance::table::RefKind;
use maud::{Markup, html};

use super::format::{day, grouped, hour, time};
use super::run::Run;
use crate::visible::visible;

/// How many snapshots have a mark of their own.
const MOST_MARKS: usize = 60;

/// How many refs have a flag; the table beside has all.
const MOST_FLAGS: usize = 40;

/// How close flags may come before one is put above the other, in percent of the width.
const CLOSE: f64 = 5.5;

/// How many flags stand above each other at most.
const MOST_LEVELS: usize = 5;

const FLAG_PX: usize = 22;
const DAY_MS: i64 = 86_400_000;

/// Where times lie on the axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    begin_ms: i64,
    end_ms: i64,
}

impl Axis {
    fn of(snapshots: &[SnapshotDecision]) -> Self {
        let times = || snapshots.iter().map(|snapshot| snapshot.timestamp_ms);
        Self { begin_ms: times().min().unwrap_or(0), end_ms: times().max().unwrap_or(0) }
    }

    fn span_ms(self) -> i64 {
        self.end_ms.saturating_sub(self.begin_ms)
    }

    /// The place of a time, in percent of the width. A little room is left at both ends.
    fn place(self, ms: i64) -> f64 {
        match self.span_ms() {
            0 => 50.0,
            span => 3.0 + 94.0 * ms.saturating_sub(self.begin_ms) as f64 / span as f64,
        }
    }

    /// Five times and their labels; one where there is but one time.
    fn ticks(self) -> Vec<(f64, String)> {
        let label = |ms| if self.span_ms() < 3 * DAY_MS { hour(ms) } else { day(ms) };
        let count = if self.span_ms() == 0 { 1 } else { 5 };
        let times = (0..count).map(|tick| self.begin_ms.saturating_add(self.span_ms() / 4 * tick));
        times.map(|ms| (self.place(ms), label(ms))).collect()
    }
}

/// The chart, with its legend.
pub(super) fn chart(run: &Run) -> Markup {
    let axis = Axis::of(&run.snapshots);
    let flags = Flags::of(&run.refs, &run.snapshots, axis);
    let top = flags.height();
    let goes = run.snapshots.iter().filter(|snapshot| snapshot.reason.expires()).count();
    let stays = run.snapshots.len() - goes;
    let expired = if run.metrics.dry_run { "to expire" } else { "expired" };
    let label = format!(
        "{} snapshots from {} to {}: {stays} stay, {goes} {expired}",
        run.snapshots.len(),
        day(axis.begin_ms),
        day(axis.end_ms)
    );
    let bins = (run.snapshots.len() > MOST_MARKS).then(|| Bins::of(&run.snapshots, axis));
    let (stay_mark, go_mark) = match &bins {
        None => (stay_mark(), go_mark()),
        Some(_) => (square("stays"), square("goes")),
    };
    html! {
        p class="legend" {
            span { (stay_mark) "stays (" (grouped(stays as u64)) ")" }
            span { (go_mark) (expired) " (" (grouped(goes as u64)) ")" }
            @if !flags.shown.is_empty() {
                span {
                    (flag_sample()) "branch or tag, by its number in the table"
                    @if flags.shown.len() < run.refs.len() {
                        " (" (grouped((run.refs.len() - flags.shown.len()) as u64)) " more are only there)"
                    }
                }
            }
            @if let Some(bins) = &bins {
                span class="plain" {
                    "each bar: " (bins.unit()) ", at most " (grouped(bins.tallest() as u64)) " snapshots"
                }
            }
        }
        @match &bins {
            None => (marks(run, axis, &flags, top, &label)),
            Some(bins) => (bars(bins, &flags, top, &label)),
        }
    }
}

fn stay_mark() -> Markup {
    small(html! { circle class="stays" cx="7" cy="7" r="5" {} })
}

fn go_mark() -> Markup {
    small(html! { path class="cross" d="M3 3 L11 11 M11 3 L3 11" {} })
}

fn square(class: &str) -> Markup {
    small(html! { rect class=(class) width="14" height="14" rx="2" {} })
}

fn small(shape: Markup) -> Markup {
    html! { svg class="swatch" width="14" height="14" aria-hidden="true" { (shape) } }
}

fn flag_sample() -> Markup {
    html! {
        svg class="swatch" width="18" height="18" aria-hidden="true" {
            circle class="flag" cx="9" cy="9" r="8" {}
            text class="flag-number" x="9" y="13" text-anchor="middle" { "1" }
        }
    }
}

/// A mark for each snapshot: what stays above, what goes below.
fn marks(run: &Run, axis: Axis, flags: &Flags, top: usize, label: &str) -> Markup {
    let (stay_y, go_y) = (top + 14, top + 40);
    html! {
        svg class="timeline" width="100%" height=(top + 84) role="img" aria-label=(label) {
            title { (label) }
            line class="lane" x1="0" x2="100%" y1=(stay_y) y2=(stay_y) {}
            line class="lane" x1="0" x2="100%" y1=(go_y) y2=(go_y) {}
            (flags.draw(stay_y))
            @for snapshot in &run.snapshots {
                @let (goes, x) = (snapshot.reason.expires(), format!("{:.2}%", axis.place(snapshot.timestamp_ms)));
                svg class="mark" x=(x) y=(if goes { go_y } else { stay_y }) overflow="visible" {
                    title { (tooltip(snapshot)) }
                    @if goes { path class="cross" d="M-5 -5 L5 5 M5 -5 L-5 5" {} }
                    @else { circle class="stays" r="6" {} }
                }
            }
            (ticks(axis, top + 62))
        }
    }
}

fn tooltip(snapshot: &SnapshotDecision) -> String {
    let goes = if snapshot.reason.expires() { "expires" } else { "stays" };
    let (id, made) = (snapshot.snapshot_id, time(snapshot.timestamp_ms));
    format!("{id}, {made}: {goes}, {}", visible(&snapshot.reason.to_string()))
}

fn ticks(axis: Axis, y: usize) -> Markup {
    let all = axis.ticks();
    let last = all.len() - 1;
    html! {
        line class="axis" x1="0" x2="100%" y1=(y) y2=(y) {}
        @for (index, (x, text)) in all.iter().enumerate() {
            @let (anchor, shift) = match index {
                _ if last == 0 => ("middle", 0.0),
                0 => ("start", -3.0),
                _ if index == last => ("end", 3.0),
                _ => ("middle", 0.0),
            };
            g class=(if index % 2 == 1 { "tick minor" } else { "tick" }) {
                line class="axis" x1=(format!("{x:.2}%")) x2=(format!("{x:.2}%")) y1=(y) y2=(y + 5) {}
                text x=(format!("{:.2}%", x + shift)) y=(y + 19) text-anchor=(anchor) { (text) }
            }
        }
    }
}

/// Snapshots counted in equal lengths of time.
struct Bins {
    begin_ms: i64,
    width_ms: i64,
    /// How many stay and how many go.
    counts: Vec<(usize, usize)>,
}

impl Bins {
    /// The shortest lengths that are few enough, in days.
    const DAYS: [i64; 8] = [1, 2, 7, 14, 28, 91, 182, 364];

    fn of(snapshots: &[SnapshotDecision], axis: Axis) -> Self {
        let hours = (axis.span_ms() < 3 * DAY_MS).then_some(DAY_MS / 24);
        let widths = hours.into_iter().chain(Self::DAYS.map(|days| days * DAY_MS));
        let fits = |width: &i64| axis.span_ms() / width < MOST_MARKS as i64;
        // Times that lie centuries apart are in some other way wrong.
        let width_ms = widths.into_iter().find(fits).unwrap_or(axis.span_ms() / MOST_MARKS as i64 + 1);
        let begin_ms = axis.begin_ms.div_euclid(width_ms).saturating_mul(width_ms);
        let bin = |ms: i64| usize::try_from(ms.saturating_sub(begin_ms) / width_ms).unwrap_or(0);
        let mut counts = vec![(0, 0); bin(axis.end_ms) + 1];
        for snapshot in snapshots {
            let (stays, goes) = &mut counts[bin(snapshot.timestamp_ms)];
            *(if snapshot.reason.expires() { goes } else { stays }) += 1;
        }
        Self { begin_ms, width_ms, counts }
    }

    fn tallest(&self) -> usize {
        self.counts.iter().map(|(stays, goes)| stays + goes).max().unwrap_or(1).max(1)
    }

    fn unit(&self) -> String {
        match self.width_ms / DAY_MS {
            0 => "an hour".into(),
            1 => "a day".into(),
            7 => "a week".into(),
            days => format!("{days} days"),
        }
    }

    fn axis(&self) -> Axis {
        let length = self.width_ms.saturating_mul(self.counts.len() as i64);
        Axis { begin_ms: self.begin_ms, end_ms: self.begin_ms.saturating_add(length) }
    }
}

/// The counts as bars: what stays at the bottom, what goes on top of it.
fn bars(bins: &Bins, flags: &Flags, top: usize, label: &str) -> Markup {
    const TALL: f64 = 120.0;
    let (tallest, axis) = (bins.tallest() as f64, bins.axis());
    let width = 94.0 / bins.counts.len() as f64;
    let bottom = top as f64 + 8.0 + TALL;
    let height = |count: usize| if count == 0 { 0.0 } else { (TALL * count as f64 / tallest).max(2.0) };
    html! {
        svg class="timeline" width="100%" height=(bottom as usize + 34) role="img" aria-label=(label) {
            title { (label) }
            line class="lane" x1="0" x2="100%" y1=(top + 8) y2=(top + 8) {}
            line class="lane" x1="0" x2="100%" y1=(bottom - TALL / 2.0) y2=(bottom - TALL / 2.0) {}
            (flags.draw(bottom as usize))
            @for (index, (stays, goes)) in bins.counts.iter().enumerate() {
                @let begin = bins.begin_ms.saturating_add(bins.width_ms.saturating_mul(index as i64));
                @let x = format!("{:.3}%", axis.place(begin) + width * 0.09);
                @let wide = format!("{:.3}%", width * 0.82);
                @let (stays_px, goes_px) = (height(*stays), height(*goes));
                g {
                    title { (time(begin)) " and " (bins.unit()) " on: " (stays) " stay, " (goes) " go" }
                    @if *stays > 0 { rect class="stays" x=(x) width=(wide) y=(bottom - stays_px) height=(stays_px) {} }
                    @if *goes > 0 {
                        rect class="goes" x=(x) width=(wide) y=(bottom - stays_px - goes_px) height=(goes_px) {}
                    }
                }
            }
            (ticks(axis, bottom as usize))
        }
    }
}

/// Refs with their numbers and places.
struct Flags {
    shown: Vec<Flag>,
    levels: usize,
}

struct Flag {
    number: usize,
    is_tag: bool,
    goes: bool,
    place: f64,
    /// 0 is the lowest.
    level: usize,
    text: String,
}

impl Flags {
    /// The flags of refs, in the order of their numbers. One that finds no room has none.
    fn of(refs: &[RefDecision], snapshots: &[SnapshotDecision], axis: Axis) -> Self {
        let axis = if snapshots.len() > MOST_MARKS { Bins::of(snapshots, axis).axis() } else { axis };
        let mut shown: Vec<Flag> = vec![];
        for (index, reference) in refs.iter().enumerate().take(MOST_FLAGS) {
            let to = snapshots.iter().find(|snapshot| snapshot.snapshot_id == reference.snapshot_id);
            let Some(place) = to.map(|snapshot| axis.place(snapshot.timestamp_ms)) else { continue };
            let is_free =
                |level: &usize| !shown.iter().any(|other| other.level == *level && (other.place - place).abs() < CLOSE);
            let Some(level) = (0..MOST_LEVELS).find(is_free) else { continue };
            let (goes, number) = (reference.reason.removes(), index + 1);
            let text = format!("{}: {}", visible(&reference.name), if goes { "goes" } else { "stays" });
            shown.push(Flag { number, is_tag: reference.kind == RefKind::Tag, goes, place, level, text });
        }
        let levels = shown.iter().map(|flag| flag.level + 1).max().unwrap_or(0);
        Self { shown, levels }
    }

    fn height(&self) -> usize {
        self.levels * FLAG_PX + 4
    }

    /// Branches are round, tags are square; what goes has a dashed outline and a cross at its corner.
    fn draw(&self, foot: usize) -> Markup {
        html! {
            @for flag in &self.shown {
                @let (x, y) = (format!("{:.2}%", flag.place), (self.levels - flag.level) * FLAG_PX - FLAG_PX / 2 + 1);
                line class="pole" x1=(x) x2=(x) y1=(y + 9) y2=(foot) {}
            }
            @for flag in &self.shown {
                @let (x, y) = (format!("{:.2}%", flag.place), (self.levels - flag.level) * FLAG_PX - FLAG_PX / 2 + 1);
                svg class=(if flag.goes { "mark gone" } else { "mark" }) x=(x) y=(y) overflow="visible" {
                    title { (flag.text) }
                    @if flag.is_tag { rect class="flag" x="-9" y="-8" width="18" height="16" rx="2" {} }
                    @else { circle class="flag" r="9" {} }
                    text class="flag-number" y="4" text-anchor="middle" { (flag.number) }
                    @if flag.goes { path class="corner" d="M6 -11 L12 -5 M12 -11 L6 -5" {} }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use iceberg_maintenance::retention::{Reason, RefReason};

    use super::*;

    fn snapshots(times: impl IntoIterator<Item = i64>) -> Vec<SnapshotDecision> {
        let reason = |id: i64| if id % 2 == 0 { Reason::Protected } else { Reason::Listed };
        let snapshot = |(id, timestamp_ms)| SnapshotDecision { snapshot_id: id, timestamp_ms, reason: reason(id) };
        (0..).zip(times).map(snapshot).collect()
    }

    #[test]
    fn any_number_of_snapshots_in_any_length_of_time_has_room() {
        for (times, unit) in [
            (vec![0; 100], "an hour"),
            ((0..100).map(|hour| hour * 60_000).collect(), "an hour"),
            ((0..40).map(|day| day * DAY_MS).collect(), "a day"),
            ((0..3_000).map(|hour| hour * DAY_MS / 24).collect(), "7 days"),
            ((0..20_000).map(|day| day * DAY_MS).collect(), "364 days"),
            (vec![i64::MIN, -1, i64::MAX], ""),
        ] {
            let snapshots = snapshots(times);
            let bins = Bins::of(&snapshots, Axis::of(&snapshots));
            assert!(bins.counts.len() <= MOST_MARKS + 2, "{}", bins.counts.len());
            assert!(unit.is_empty() || bins.unit() == unit.replace("7 days", "a week"), "{} {unit}", bins.unit());
            let (stay, go) = bins.counts.iter().fold((0, 0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1));
            assert_eq!((stay + go, go), (snapshots.len(), snapshots.len() / 2));
        }
    }

    #[test]
    fn flags_that_come_close_stand_above_each_other() {
        let snapshots = snapshots([0, 1, 100]);
        let to = |name: &str, snapshot_id| RefDecision {
            name: name.into(),
            kind: RefKind::Tag,
            snapshot_id,
            reason: RefReason::Old,
        };
        let refs = [to("a", 0), to("b", 1), to("far", 2), to("nowhere", 9)];
        let flags = Flags::of(&refs, &snapshots, Axis::of(&snapshots));
        let found: Vec<_> = flags.shown.iter().map(|flag| (flag.number, flag.level, flag.place as i64)).collect();
        assert_eq!(found, [(1, 0, 3), (2, 1, 3), (3, 0, 97)]);
        assert_eq!(flags.levels, 2);
        let crowd: Vec<_> = (0..100).map(|_| to("same", 0)).collect();
        assert_eq!(Flags::of(&crowd, &snapshots, Axis::of(&snapshots)).shown.len(), MOST_LEVELS);
    }
}
