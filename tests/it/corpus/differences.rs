//! Where we mean to differ from the reference, and why.

/// What we do where the record is not followed.
pub enum Ours {
    /// Refuse; the message holds all of these. Nothing changes.
    Refuses(&'static [&'static str]),
    /// Do what the rules say by [`model`] and plain set difference; the record is not asked.
    FollowsTheRules,
    /// The same, on a table with files of expired snapshots that can't be read: how many.
    SkipsUnreadable(i64),
    /// Delete these files (relative to the case) as well.
    AlsoDeletes(&'static [&'static str]),
    /// Do what the reference did in this run.
    AsIn(&'static str),
    /// Delete nothing.
    DeletesNothing,
    /// Refuse, and name this argument; with it do what the reference does.
    AsksFor(&'static str),
}

pub struct Difference {
    pub case: &'static str,
    /// Run ids, with or without `.core`. A step of a sequence is `id[step]`.
    pub runs: &'static [&'static str],
    pub ours: Ours,
    /// What the reference does, and why we don't.
    pub why: &'static str,
}

impl Difference {
    pub fn refuses(&self) -> bool {
        matches!(self.ours, Ours::Refuses(_))
    }
}

/// Every run in which we mean to differ from the reference.
///
/// Beside these: `older_than => '2020-01-01'`, which the runs with `snapshot_ids` pass to keep the age rule from
/// acting, is left out, because `snapshot_ids` alone means "these and no others" here; runs of the core API (`.core`)
/// are compared with the reachability difference, not with the files that its incremental cleanup damages or leaves
/// behind.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "damaged_expired",
        runs: &["all", "older2", "again[0]"],
        ours: Ours::SkipsUnreadable(1),
        why: "the reference commits, then fails at the unreadable manifest of an expired snapshot, and its files stay \
              forever; a file that only the dead set needs is skipped and counted",
    },
    Difference {
        case: "damaged_expired",
        runs: &["again[2]"],
        ours: Ours::AlsoDeletes(&[]),
        why: "the reference finds all 12 files that its failed expiry left; ours left only what the damaged manifest named",
    },
    Difference {
        case: "damaged_retained",
        runs: &["all", "older2"],
        ours: Ours::Refuses(&["snap-", "manifest list"]),
        why: "the reference commits before it notices (and core deletes files): a needed file is read before the commit",
    },
    Difference {
        case: "data_path_elsewhere",
        runs: &["orphans_case_root"],
        ours: Ours::Refuses(&["location"]),
        why: "the folder above the table is not the table's: the reference deletes the neighbours' files",
    },
    Difference {
        case: "data_path_elsewhere",
        runs: &["orphans_data_path"],
        ours: Ours::AsksFor("exclusive_location"),
        why: "several tables may write to one data path: the reference deletes the files of the others",
    },
    Difference {
        case: "data_path_elsewhere",
        runs: &["orphans_location_is_file"],
        ours: Ours::Refuses(&["version-hint.text"]),
        why: "a file can't be listed: the reference finds nothing in it",
    },
    Difference {
        case: "empty_and_single",
        runs: &["location_one_from_t"],
        ours: Ours::Refuses(&["location"]),
        why: "the folder is another table's, whose live files the reference deletes",
    },
    Difference {
        case: "empty_and_single",
        runs: &["id_unknown"],
        ours: Ours::Refuses(&["4242424242"]),
        why: "the reference ignores unknown ids: a mistyped id must not look like success",
    },
    Difference {
        case: "v1_append",
        runs: &["id_unknown"],
        ours: Ours::Refuses(&["123456789012345"]),
        why: "the reference ignores unknown ids: a mistyped id must not look like success",
    },
    Difference {
        case: "v1_append",
        runs: &["ids_and_default_age"],
        ours: Ours::FollowsTheRules,
        why: "the reference also expires by the table's default age: snapshot_ids means these and no others",
    },
    Difference {
        case: "v2_bucket_append",
        runs: &["ids_and_older"],
        ours: Ours::Refuses(&["snapshot_ids", "older_than"]),
        why: "the reference does both: the two contradict each other here",
    },
    Difference {
        case: "main_retention",
        runs: &["ids"],
        ours: Ours::FollowsTheRules,
        why: "the reference also expires by the retention of main: snapshot_ids means these and no others",
    },
    Difference {
        case: "refs_retention",
        runs: &["id_free"],
        ours: Ours::FollowsTheRules,
        why: "the reference also drops aged refs: snapshot_ids means these and no others",
    },
    Difference {
        case: "refs_retention",
        runs: &["id_of_tag_that_expires"],
        ours: Ours::Refuses(&["3896982657078131253", "tag_old"]),
        why: "the reference drops the aged tag in the same call: with snapshot_ids no ref goes, so its head can't",
    },
    Difference {
        case: "no_refs_no_log",
        runs: &["default", "older2", "ids"],
        ours: Ours::FollowsTheRules,
        why: "the reference fails with NoSuchElementException: refs and snapshot-log are optional fields",
    },
    Difference {
        case: "orphans_basic",
        runs: &["loc_dots"],
        ours: Ours::Refuses(&[".."]),
        why: "the reference resolves '..': where it leads depends on links",
    },
    Difference {
        case: "orphans_basic",
        runs: &["prefix_listing_slash", "prefix_listing_3slash"],
        ours: Ours::AsIn("prefix_listing"),
        why: "the reference's hidden-file rule depends on how the location is spelt in this mode, and deletes hidden files",
    },
    Difference {
        case: "orphans_prefix_modes",
        runs: &["bad_view"],
        ours: Ours::Refuses(&["none of the", "listed files"]),
        why: "a column named path is as good as file_path here, for the lists of other tools; what this one names is refused \
              all the same",
    },
    Difference {
        case: "orphans_prefix_modes",
        runs: &["list_default_error", "mode_error_upper", "mode_ignore", "mode_delete_dry", "equal_schemes_only"],
        ours: Ours::Refuses(&["location"]),
        why: "s3a://bkt/… is not inside file:/…: the reference compares the location with nothing but the list's text",
    },
    Difference {
        case: "orphans_prefix_modes",
        runs: &["list_file_scheme"],
        ours: Ours::Refuses(&["none of the 4 listed files"]),
        why: "the list holds none of the table's live files: it may name files differently than the metadata does",
    },
    Difference {
        case: "orphans_prefix_modes",
        runs: &["location_filter_startswith"],
        ours: Ours::DeletesNothing,
        why: "the reference takes a location for a prefix of text: …/orph is no folder that holds …/orphan.parquet",
    },
    Difference {
        case: "orphans_special_names",
        runs: &["dry", "default", "prefix_listing"],
        ours: Ours::AlsoDeletes(&["t/data/colon:name.parquet"]),
        why: "the reference lists the file and then can't delete it: Hadoop's paths know no colon in a name",
    },
];

/// Files of a case which the reference deletes and we keep, because they lie in the table's location but outside of its
/// own folders: somebody else may have put them there. `include_foreign => true` deletes them here, too.
pub const FOREIGN: &[(&str, &[&str])] = &[("orphans_basic", &["t/readme.txt", "t/sub/dir/x.bin"])];

/// Files of a case that make every call by location unclear, so that it is refused; then they are taken away.
pub const UNCLEAR: &[(&str, &[&str])] = &[
    // A newest version that can't be read, and a second naming scheme beside the first.
    ("orphans_basic", &["t/metadata/v100.metadata.json", "t/metadata/00000-deadbeef.metadata.json"]),
    // A newest version that can't be read.
    // The same, and one that may be another table's.
    ("gzip_metadata", &["t/metadata/v99.gz.metadata.json", "t/metadata/v0.metadata.json.gz"]),
    ("jdbc_mixed", &["t/metadata/00009-deadbeef-0000-4000-8000-000000000000.metadata.json"]),
];
