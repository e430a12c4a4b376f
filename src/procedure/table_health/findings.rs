//! What there is to say of a table, one number after the other.
//!
//! Where a number is a notice and where a warning stands in [`limits`]. Limits are on what an operation would gain, as far as
//! there is one: many small files are none to worry about if they are in as many partitions.

use super::facts::{Facts, file_target, manifest_target};
use super::fold::Kind;
use super::known::{Known, bytes_text};
use crate::retention::RetentionDecision;
use crate::table::{DEFAULT_MAX_SNAPSHOT_AGE_MS, MAIN_BRANCH, RefKind};
use crate::time::{format_duration, format_ms};

/// From where on a number is a notice, and from where on a warning.
type Limits = (i64, i64);

mod limits {
    use super::Limits;

    const DAY_MS: i64 = 24 * 60 * 60 * 1000;

    pub(super) const NONE: Limits = (i64::MAX, i64::MAX);
    /// Data files that compaction would save.
    pub(super) const MERGEABLE_FILES: Limits = (10, 100);
    /// Delete files for each hundred data files.
    pub(super) const DELETE_FILES_PERCENT: Limits = (10, 50);
    pub(super) const DANGLING_FILES: Limits = (1, 100);
    /// Iceberg's writers merge manifests when there are 100 of them (`commit.manifest.min-count-to-merge`).
    pub(super) const MERGEABLE_MANIFESTS: Limits = (20, 100);
    pub(super) const UNREADABLE: Limits = (1, 1);
    pub(super) const SNAPSHOTS: Limits = (1_000, 10_000);
    pub(super) const EXPIRABLE_SNAPSHOTS: Limits = (1, 1_000);
    pub(super) const PINNING_REFS: Limits = (1, 100);
    /// Bytes of metadata, which each commit writes anew and each reader reads.
    pub(super) const METADATA_BYTES: Limits = (8 << 20, 64 << 20);
    /// How far statistics are behind the current snapshot.
    pub(super) const STATISTICS_LAG_MS: Limits = (7 * DAY_MS, 90 * DAY_MS);
    /// The largest partition's bytes in hundredths of the average.
    pub(super) const SKEW_PERCENT: Limits = (1_000, 10_000);
    /// Bytes to free in hundredths of those that are live.
    pub(super) const RECLAIMABLE_PERCENT: Limits = (10, 100);
}

/// How much a number matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Ok,
    Notice,
    Warning,
    /// The number isn't known.
    Unknown,
}

impl Severity {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
        }
    }
}

/// One number with its meaning.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) section: &'static str,
    pub(super) metric: &'static str,
    pub(super) number: Known,
    pub(super) unit: &'static str,
    pub(super) severity: Severity,
    pub(super) text: String,
}

/// The findings of one section.
struct Section<'a> {
    name: &'static str,
    /// Which argument tells what isn't known.
    ask: &'static str,
    findings: &'a mut Vec<Finding>,
}

impl Section<'_> {
    fn add(
        &mut self,
        metric: &'static str,
        unit: &'static str,
        number: Known,
        limits: Limits,
        text: impl Into<String>,
    ) {
        let severity = match number {
            Known::Unknown => Severity::Unknown,
            Known::Nothing => Severity::Ok,
            _ if limits == limits::NONE => Severity::Ok,
            Known::Exact(number) | Known::Estimate(number) if number >= limits.1 => Severity::Warning,
            Known::Exact(number) | Known::Estimate(number) if number >= limits.0 => Severity::Notice,
            Known::Exact(_) | Known::Estimate(_) => Severity::Ok,
        };
        let text = text.into();
        let text = match number {
            Known::Unknown if !self.ask.is_empty() => format!("{text}. Unknown: {} tells it", self.ask),
            Known::Estimate(_) => format!("{text}. An estimate"),
            _ => text,
        };
        self.findings.push(Finding { section: self.name, metric, number, unit, severity, text });
    }

    /// A number without limits.
    fn plain(&mut self, metric: &'static str, unit: &'static str, number: Known, text: impl Into<String>) {
        self.add(metric, unit, number, limits::NONE, text);
    }

    /// Makes the last one more severe, and says why.
    fn raise(&mut self, severity: Severity, text: impl Into<String>) {
        if let Some(last) = self.findings.last_mut() {
            last.severity = severity;
            last.text = text.into();
        }
    }

    /// Makes the last one as severe as this, if its number is known.
    fn severity(&mut self, severity: Severity) {
        if let Some(last) = self.findings.last_mut().filter(|last| last.severity != Severity::Unknown) {
            last.severity = severity;
        }
    }
}

fn known(count: usize) -> Known {
    Known::Exact(i64::try_from(count).unwrap_or(i64::MAX))
}

/// All findings, in their fixed order.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![];
    let exact = match facts.listed.unreadable.is_some() || facts.entries.is_some() {
        true => "",
        false => "exact => true",
    };
    let mut section = |name, ask, fill: &dyn Fn(&Facts, &mut Section<'_>)| {
        fill(facts, &mut Section { name, ask, findings: &mut findings })
    };
    section("table", "", &table);
    section("data_files", exact, &data_files);
    section("delete_files", exact, &delete_files);
    section("partitions", exact, &partitions);
    section("manifests", "", &manifests);
    section("snapshots", exact, &snapshots);
    section("orphan_files", "orphans => true", &orphan_files);
    section("metadata", "", &metadata);
    findings
}

fn table(facts: &Facts, section: &mut Section<'_>) {
    let metadata = facts.metadata();
    section.plain("format_version", "", Known::Exact(metadata.format_version()), "the table's format version");
    match metadata.properties().gc_disabled() {
        None => section.plain("gc_enabled", "", Known::Exact(1), "files may be deleted"),
        Some(value) => {
            section.plain("gc_enabled", "", Known::Exact(0), "");
            section.raise(
                Severity::Notice,
                format!("gc.enabled is '{value}': no file of the table may be deleted, and nothing can be reclaimed"),
            );
        }
    }
}

fn data_files(facts: &Facts, section: &mut Section<'_>) {
    let (files, bytes) = (facts.data_files(), facts.data_bytes());
    section.plain("data_files_count", "files", files, "data files of the current snapshot");
    section.plain("data_files_bytes", "bytes", bytes, sized("what they have", bytes));
    section.plain(
        "records_count",
        "rows",
        facts.records(),
        "rows in data files, those included that deletes take away",
    );
    let average = match facts.data_files().value() {
        Some(0) => Known::Nothing,
        _ => bytes.per(files),
    };
    section.plain("average_file_bytes", "bytes", average, sized("what a data file has on average", average));
    let smallest = facts.extreme(|entries| entries.of(Kind::Data).smallest);
    section.plain("smallest_file_bytes", "bytes", smallest, sized("the smallest data file", smallest));
    let largest = facts.extreme(|entries| entries.of(Kind::Data).largest);
    section.plain("largest_file_bytes", "bytes", largest, sized("the largest data file", largest));
    let small = format!("data files below {} (small_file_threshold)", bytes_text(facts.small_file_bytes));
    section.plain("small_files_count", "files", facts.small_files(), small);
    let small_bytes = match facts.small_files() {
        Known::Exact(0) => Known::Exact(0),
        _ => facts.measured(|entries| entries.small.bytes),
    };
    section.plain("small_files_bytes", "bytes", small_bytes, sized("what these have", small_bytes));
    let target = bytes_text(file_target(facts.metadata()));
    section.add(
        "mergeable_files_count",
        "files",
        facts.mergeable_files(),
        limits::MERGEABLE_FILES,
        format!("data files fewer if small ones were merged up to {target} (write.target-file-size-bytes)"),
    );
}

fn delete_files(facts: &Facts, section: &mut Section<'_>) {
    let files = facts.delete_files();
    section.plain("delete_files_count", "files", files, "delete files and deletion vectors of the current snapshot");
    let of_kind = |kind: Kind| match files {
        Known::Exact(0) => Known::Exact(0),
        _ => facts.measured(|entries| entries.of(kind).files),
    };
    let kinds = [
        ("position_delete_files_count", Kind::PositionDeletes, "files of position deletes"),
        ("deletion_vectors_count", Kind::Vector, "deletion vectors"),
        (
            "equality_delete_files_count",
            Kind::EqualityDeletes,
            "files of equality deletes, which readers join with data",
        ),
    ];
    for (metric, kind, text) in kinds {
        section.plain(metric, "files", of_kind(kind), text);
    }
    section.plain(
        "deleted_positions_count",
        "rows",
        facts.deleted_positions(),
        "rows that position deletes and vectors name",
    );
    section.plain("equality_deletes_count", "rows", facts.equality_deletes(), "rows of equality deletes");
    let percent = if files == Known::Exact(0) { Known::Exact(0) } else { files.percent_of(facts.data_files()) };
    let text = "delete files for each hundred data files";
    section.add("delete_files_percent", "percent", percent, limits::DELETE_FILES_PERCENT, text);
    let text = "deletes that no data file needs: it isn't there any more, or all data that they could be for is newer";
    section.add("dangling_delete_files_count", "files", facts.dangling_files(), limits::DANGLING_FILES, text);
}

fn partitions(facts: &Facts, section: &mut Section<'_>) {
    let partitions = facts.measured(|entries| entries.partitions);
    section.plain(
        "partitions_count",
        "partitions",
        partitions,
        "partitions that have data files; 1 without partitioning",
    );
    let average = facts.measured(|entries| entries.of(Kind::Data).files).per(partitions);
    section.plain("average_partition_files_count", "files", average, "data files in a partition on average");
    let most = facts.measured(|entries| entries.largest_partition_files);
    section.plain("largest_partition_files_count", "files", most, "data files in the partition that has most of them");
    let largest = facts.measured(|entries| entries.largest_partition_bytes);
    section.plain("largest_partition_bytes", "bytes", largest, sized("the partition that has most bytes", largest));
    let average = facts.measured(|entries| entries.of(Kind::Data).bytes).per(partitions);
    let skew = largest.percent_of(average);
    let text = "the largest partition in hundredths of the average one: 100 is even";
    section.add("skew_percent", "percent", skew, limits::SKEW_PERCENT, text);
}

fn manifests(facts: &Facts, section: &mut Section<'_>) {
    let list = Known::Exact(i64::from(facts.listed.unreadable.is_some()));
    section.add("unreadable_manifest_lists_count", "files", list, limits::UNREADABLE, "the current snapshot's list");
    if let Some(why) = &facts.listed.unreadable {
        section.raise(
            Severity::Warning,
            format!("{why}. What the table has can't be told; verify_table says what is wrong"),
        );
    }
    let (count, bytes) = (facts.listed.count(), facts.listed.bytes());
    section.plain("manifests_count", "files", count, "manifests of the current snapshot");
    section.plain("manifests_bytes", "bytes", bytes, sized("what they have", bytes));
    let live = facts
        .listed
        .live_files(false)
        .with(facts.listed.live_files(true), |data, deletes| Some(data.saturating_add(deletes)));
    let deleted = facts.listed.deleted_entries();
    let entries = live.with(deleted, |live, deleted| Some(live.saturating_add(deleted)));
    section.plain("average_manifest_entries_count", "entries", entries.per(count), "entries of a manifest on average");
    section.plain("deleted_entries_count", "entries", deleted, "entries that only say that a file was removed");
    let target = manifest_target(facts.metadata());
    let fill = bytes.percent_of(count.map(|count| count.saturating_mul(target)));
    let size = format!("{} (commit.manifest.target-size-bytes)", bytes_text(target));
    section.plain("fill_percent", "percent", fill, format!("what a manifest has on average, in hundredths of {size}"));
    let text = format!("manifests fewer if those of one kind and partition spec were merged up to {size}");
    section.add("mergeable_manifests_count", "files", facts.mergeable_manifests(), limits::MERGEABLE_MANIFESTS, text);
    if let Some(entries) = &facts.entries {
        let unreadable = known(entries.unreadable.len());
        section.add(
            "unreadable_manifests_count",
            "files",
            unreadable,
            limits::UNREADABLE,
            "manifests that can't be read",
        );
        if let Some(first) = entries.unreadable.first() {
            section.raise(Severity::Warning, format!("{}. verify_table says what is wrong", first.why));
        }
    }
}

fn snapshots(facts: &Facts, section: &mut Section<'_>) {
    let metadata = facts.metadata();
    if facts.expiry.gain.refused.is_some() {
        // A closer look would tell no more.
        section.ask = "";
    }
    let all = metadata.snapshots();
    section.add("snapshots_count", "snapshots", known(all.len()), limits::SNAPSHOTS, "snapshots in the metadata");
    let (number, text) = oldest(facts);
    section.plain("oldest_snapshot_age_ms", "ms", number, text);
    let refs = metadata.refs();
    let tags = refs.values().filter(|reference| reference.kind == RefKind::Tag).count();
    let text = format!("{} branches and {tags} tags", refs.len() - tags);
    section.plain("refs_count", "refs", known(refs.len()), text);
    let pinning = pinning_refs(facts);
    let number = match facts.expiry.decision {
        Some(_) => known(pinning.len()),
        None => Known::Unknown,
    };
    let shown: Vec<&str> = pinning.iter().take(5).map(String::as_str).collect();
    let more = if pinning.len() > shown.len() { ", …" } else { "" };
    let text = match shown.is_empty() {
        true => "refs besides main that keep a snapshot beyond its age limit".to_string(),
        false => format!("refs besides main that keep a snapshot beyond its age limit: {}{more}", shown.join(", ")),
    };
    section.add("pinning_refs_count", "refs", number, limits::PINNING_REFS, text);
    let text = "snapshots that would expire by the table's own rules";
    section.add("expirable_snapshots_count", "snapshots", facts.expiry.snapshots(), limits::EXPIRABLE_SNAPSHOTS, text);
    let gain = &facts.expiry.gain;
    section.plain("reclaimable_files_count", "files", gain.files, "files that an expiry would delete");
    let severity = reclaimable(facts, gain.bytes);
    section.plain("reclaimable_bytes", "bytes", gain.bytes, sized("what an expiry would free", gain.bytes));
    match &gain.refused {
        Some(why) => section.raise(Severity::Notice, format!("expire_snapshots refuses: {why}")),
        None => section.severity(severity),
    }
}

/// How much bytes that can be freed matter, beside those that are live.
fn reclaimable(facts: &Facts, bytes: Known) -> Severity {
    let percent = match (bytes.value(), facts.total_bytes().value()) {
        (None | Some(0), _) => return Severity::Ok,
        // Nobody knows beside what.
        (Some(_), None) => return Severity::Notice,
        (Some(bytes), Some(live)) => i128::from(bytes) * 100 / i128::from(live.max(1)),
    };
    match percent {
        percent if percent >= i128::from(limits::RECLAIMABLE_PERCENT.1) => Severity::Warning,
        percent if percent >= i128::from(limits::RECLAIMABLE_PERCENT.0) => Severity::Notice,
        _ => Severity::Ok,
    }
}

/// The age of the oldest snapshot, and why it is there.
fn oldest(facts: &Facts) -> (Known, String) {
    let Some(oldest) = facts.metadata().snapshots().iter().min_by_key(|snapshot| snapshot.timestamp_ms) else {
        return (Known::Nothing, "there are no snapshots".into());
    };
    let age_ms = facts.now_ms.saturating_sub(oldest.timestamp_ms).max(0);
    let decided = |decision: &RetentionDecision| {
        let of_it = decision.snapshots.iter().find(|decided| decided.snapshot_id == oldest.snapshot_id)?;
        Some(format!("; it {}: {}", if of_it.reason.expires() { "would expire" } else { "stays" }, of_it.reason))
    };
    let why = facts.expiry.decision.as_ref().and_then(decided).unwrap_or_default();
    let text = format!(
        "snapshot {} of {} is {} old{why}",
        oldest.snapshot_id,
        format_ms(oldest.timestamp_ms),
        format_duration(age_ms)
    );
    (Known::Exact(age_ms), text)
}

/// The refs besides main that stay, and whose snapshot is older than snapshots get.
fn pinning_refs(facts: &Facts) -> Vec<String> {
    let metadata = facts.metadata();
    let most_ms = metadata.properties().max_snapshot_age_ms().unwrap_or(DEFAULT_MAX_SNAPSHOT_AGE_MS);
    let is_old = |id: i64| {
        metadata.snapshot(id).is_some_and(|snapshot| facts.now_ms.saturating_sub(snapshot.timestamp_ms) > most_ms)
    };
    let refs = facts.expiry.decision.iter().flat_map(|decision| &decision.refs);
    refs.filter(|decided| decided.name != MAIN_BRANCH && !decided.reason.removes() && is_old(decided.snapshot_id))
        // What main points to stays anyway.
        .filter(|decided| metadata.current_snapshot_id() != Some(decided.snapshot_id))
        .map(|decided| {
            let kind = if decided.kind == RefKind::Tag { "tag" } else { "branch" };
            format!("{kind} {} (snapshot {})", decided.name, decided.snapshot_id)
        })
        .collect()
}

fn orphan_files(facts: &Facts, section: &mut Section<'_>) {
    let (files, bytes, refused) = match &facts.orphans {
        None => (Known::Unknown, Known::Unknown, None),
        Some(orphans) => {
            section.ask = "";
            (orphans.files, orphans.bytes, orphans.refused.as_ref())
        }
    };
    section.plain("orphan_files_count", "files", files, "files of more than 3 days that nothing names");
    section.plain("orphan_files_bytes", "bytes", bytes, sized("what these have", bytes));
    match refused {
        Some(why) => section.raise(Severity::Notice, format!("remove_orphan_files refuses: {why}")),
        None => section.severity(reclaimable(facts, bytes)),
    }
}

fn metadata(facts: &Facts, section: &mut Section<'_>) {
    let metadata = facts.metadata();
    let bytes = known(metadata.document().text().len());
    let text = sized("metadata.json without compression, which each commit writes and each reader reads", bytes);
    section.add("metadata_bytes", "bytes", bytes, limits::METADATA_BYTES, text);
    let log = metadata.metadata_log();
    section.plain("metadata_log_count", "files", known(log.len()), "previous metadata files in the log");
    let most = metadata.properties().previous_versions_max();
    if let Ok(most) = most
        && log.len() >= most
        && !metadata.properties().delete_metadata_after_commit()
    {
        section.raise(
            Severity::Notice,
            format!(
                "the log is full ({most}, write.metadata.previous-versions-max), and writers leave what falls out of it: set \
                 write.metadata.delete-after-commit.enabled to true. What was left is an orphan"
            ),
        );
    }
    section.plain("statistics_files_count", "files", known(metadata.statistics().len()), "table statistics files");
    let newest =
        metadata.statistics().iter().filter_map(|file| Some(metadata.snapshot(file.snapshot_id)?.timestamp_ms));
    let lag = match (newest.max(), facts.current()) {
        (Some(newest), Some(current)) => Known::Exact(current.timestamp_ms.saturating_sub(newest).max(0)),
        _ => Known::Nothing,
    };
    let text = match lag.value() {
        Some(ms) => format!("the newest statistics are {} behind the current snapshot", format_duration(ms)),
        None => "there are no statistics of any snapshot".into(),
    };
    section.add("statistics_lag_ms", "ms", lag, limits::STATISTICS_LAG_MS, text);
}

/// A text with the bytes in units for people.
fn sized(text: &str, bytes: Known) -> String {
    match bytes.value() {
        Some(bytes) => format!("{text}: {}", bytes_text(bytes)),
        None => text.to_string(),
    }
}
