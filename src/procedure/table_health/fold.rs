//! From groups of like entries, sorted by partition, to what a table and its partitions have.
//!
//! Pure: the groups come from [`super::entries`].

use super::known::files_of;
use crate::report::FileKind;
use crate::scan::Unreadable;

/// What a live file is. In a partition data files come first: what they are tells which deletes still matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Data = 0,
    PositionDeletes = 1,
    Vector = 2,
    EqualityDeletes = 3,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Data, Self::PositionDeletes, Self::Vector, Self::EqualityDeletes];

    /// By the two fields of an entry that tell it.
    pub(super) fn of(content: i32, file_format: &str) -> Self {
        match content {
            0 => Self::Data,
            1 if file_format.eq_ignore_ascii_case("puffin") => Self::Vector,
            1 => Self::PositionDeletes,
            _ => Self::EqualityDeletes,
        }
    }

    pub(super) fn from_code(code: i32) -> Self {
        Self::ALL.into_iter().find(|kind| *kind as i32 == code).unwrap_or(Self::EqualityDeletes)
    }

    /// The kind as reports name it.
    pub(super) fn as_str(self) -> &'static str {
        let kind = match self {
            Self::Data => FileKind::Data,
            Self::PositionDeletes => FileKind::PositionDeletes,
            Self::Vector => FileKind::DeletionVector,
            Self::EqualityDeletes => FileKind::EqualityDeletes,
        };
        kind.as_str()
    }
}

const MIB: i64 = 1 << 20;

/// The classes of the histogram, by the least size of each in bytes.
pub(super) fn class_bounds() -> [i64; CLASSES] {
    [0, MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB]
}

/// How many classes there are.
pub(super) const CLASSES: usize = 6;

/// Entries of one partition that are alike.
#[derive(Debug, Clone)]
pub(super) struct Group<'a> {
    /// The partition: deletes are for data files with the same.
    pub(super) key: &'a [u8],
    pub(super) kind: Kind,
    /// Place in [`class_bounds`].
    pub(super) class: usize,
    /// Data files below the threshold.
    pub(super) small: bool,
    /// Deletes that name the one data file that they are for.
    pub(super) names_file: bool,
    pub(super) files: i64,
    pub(super) bytes: i64,
    pub(super) records: i64,
    pub(super) smallest: i64,
    pub(super) largest: i64,
    /// The least one of data files; of delete files the one of all.
    pub(super) sequence_number: i64,
}

impl Group<'_> {
    /// What the key of deletes begins with that are for all partitions.
    pub(super) const FOR_ALL_PARTITIONS: u8 = u8::MAX;
}

/// Files and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Dangling {
    pub(super) files: i64,
    pub(super) bytes: i64,
}

impl Dangling {
    pub(super) fn add(&mut self, other: Self) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What the files of one kind have together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) files: i64,
    pub(super) bytes: i64,
    pub(super) records: i64,
    /// `None` where there are no files.
    pub(super) smallest: Option<i64>,
    pub(super) largest: Option<i64>,
    /// Files and bytes in each class.
    pub(super) classes: [Dangling; CLASSES],
}

impl Sizes {
    fn add(&mut self, group: &Group<'_>) {
        self.files = self.files.saturating_add(group.files);
        self.bytes = self.bytes.saturating_add(group.bytes);
        self.records = self.records.saturating_add(group.records);
        self.smallest = Some(self.smallest.map_or(group.smallest, |least| least.min(group.smallest)));
        self.largest = self.largest.max(Some(group.largest));
        if let Some(class) = self.classes.get_mut(group.class) {
            class.add(Dangling { files: group.files, bytes: group.bytes });
        }
    }
}

/// What all live entries say.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// By [`Kind`].
    pub(super) sizes: [Sizes; 4],
    /// Data files below the threshold.
    pub(super) small: Dangling,
    /// How many data files fewer there would be if the small ones of each partition were merged.
    pub(super) mergeable_files: i64,
    /// How many partitions have data files.
    pub(super) partitions: i64,
    /// Bytes of data files in the partition that has most of them.
    pub(super) largest_partition_bytes: i64,
    /// Data files in the partition that has most of them.
    pub(super) largest_partition_files: i64,
    /// Deletes that no data file needs.
    pub(super) dangling: Dangling,
    /// How many deletes name the data file that they are for: whether it is live the fold can't tell.
    pub(super) deletes_that_name_files: i64,
    /// Manifests that were left out.
    pub(super) unreadable: Vec<Unreadable>,
    target_bytes: i64,
    /// The partition whose groups are being added.
    open: OpenPartition,
    /// The least sequence number of all data files before.
    least: Option<i64>,
}

#[derive(Debug, Default)]
struct OpenPartition {
    key: Vec<u8>,
    data: Dangling,
    small: Dangling,
    least: Option<i64>,
}

impl Entries {
    /// `target_bytes`: what small files are merged into.
    pub(super) fn new(target_bytes: i64) -> Self {
        Self { target_bytes, ..Self::default() }
    }

    pub(super) fn of(&self, kind: Kind) -> &Sizes {
        &self.sizes[kind as usize]
    }

    /// Adds the next group in the order of keys and kinds.
    pub(super) fn add(&mut self, group: &Group<'_>) {
        if self.open.key != group.key {
            self.finish();
            self.open.key = group.key.to_vec();
        }
        self.sizes[group.kind as usize].add(group);
        let share = Dangling { files: group.files, bytes: group.bytes };
        if group.kind == Kind::Data {
            self.open.data.add(share);
            if group.small {
                self.open.small.add(share);
            }
            let least =
                |known: Option<i64>| Some(known.map_or(group.sequence_number, |n| n.min(group.sequence_number)));
            self.open.least = least(self.open.least);
            self.least = least(self.least);
        } else if group.names_file {
            self.deletes_that_name_files = self.deletes_that_name_files.saturating_add(group.files);
        } else if self.is_dangling(group) {
            self.dangling.add(share);
        }
    }

    /// Whether every data file that deletes could be for is newer (table spec, "Scan Planning"): position deletes are for data
    /// files of their own commit, too, equality deletes only for older ones.
    fn is_dangling(&self, group: &Group<'_>) -> bool {
        let for_all = group.key.first() == Some(&Group::FOR_ALL_PARTITIONS);
        let Some(least) = (if for_all { self.least } else { self.open.least }) else { return true };
        match group.kind {
            Kind::EqualityDeletes => group.sequence_number <= least,
            _ => group.sequence_number < least,
        }
    }

    /// Closes the last partition.
    pub(super) fn finish(&mut self) {
        let OpenPartition { data, small, .. } = std::mem::take(&mut self.open);
        if data.files == 0 {
            return;
        }
        self.partitions += 1;
        self.largest_partition_bytes = self.largest_partition_bytes.max(data.bytes);
        self.largest_partition_files = self.largest_partition_files.max(data.files);
        self.small.add(small);
        self.mergeable_files =
            self.mergeable_files.saturating_add((small.files - files_of(small.bytes, self.target_bytes).max(1)).max(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group<'a>(key: &'a [u8], kind: Kind, files: i64, sequence_number: i64) -> Group<'a> {
        let (class, small, names_file) = (0, kind == Kind::Data, false);
        let (smallest, largest, bytes) = (10, 20, files * 15);
        Group { key, kind, class, small, names_file, files, bytes, records: 7, smallest, largest, sequence_number }
    }

    fn fold(groups: &[Group<'_>]) -> Entries {
        let mut entries = Entries::new(100);
        groups.iter().for_each(|group| entries.add(group));
        entries.finish();
        entries
    }

    #[test]
    fn partitions_are_told_apart_and_measured() {
        let entries =
            fold(&[group(b"a", Kind::Data, 10, 1), group(b"a", Kind::Data, 2, 1), group(b"b", Kind::Data, 1, 2)]);
        assert_eq!(
            (entries.partitions, entries.largest_partition_files, entries.largest_partition_bytes),
            (2, 12, 180)
        );
        // 12 files of 180 bytes become two of 100; a single file stays as it is.
        assert_eq!((entries.mergeable_files, entries.small), (10, Dangling { files: 13, bytes: 195 }));
        let data = entries.of(Kind::Data);
        assert_eq!((data.files, data.records, data.smallest, data.largest), (13, 21, Some(10), Some(20)));
        assert_eq!(data.classes[0], Dangling { files: 13, bytes: 195 });
    }

    #[test]
    fn deletes_dangle_when_all_data_of_their_partition_is_newer() {
        let (all, dangling) = ([Group::FOR_ALL_PARTITIONS], |groups: &[Group<'_>]| fold(groups).dangling.files);
        let data = |key, sequence| group(key, Kind::Data, 1, sequence);
        let positions = |key, sequence| group(key, Kind::PositionDeletes, 1, sequence);
        let equality = |key, sequence| group(key, Kind::EqualityDeletes, 1, sequence);
        assert_eq!(dangling(&[data(b"a", 5), positions(b"a", 5)]), 0, "for the rows of the same commit");
        assert_eq!(dangling(&[data(b"a", 5), positions(b"a", 4)]), 1);
        assert_eq!(dangling(&[data(b"a", 5), equality(b"a", 5)]), 1, "only for what was there before");
        assert_eq!(dangling(&[data(b"a", 5), equality(b"a", 6)]), 0);
        assert_eq!(dangling(&[data(b"a", 5), positions(b"b", 9)]), 1, "there is no data in this partition");
        assert_eq!(dangling(&[data(b"a", 5), data(b"b", 2), equality(&all, 3)]), 0, "for all partitions");
        assert_eq!(dangling(&[data(b"a", 5), data(b"b", 2), equality(&all, 2)]), 1);
        assert_eq!(dangling(&[equality(&all, 2)]), 1);
        let named = Group { names_file: true, ..positions(b"a", 1) };
        let entries = fold(&[data(b"a", 5), named]);
        assert_eq!((entries.dangling.files, entries.deletes_that_name_files), (0, 1), "its data file tells");
    }

    #[test]
    fn huge_numbers_end_at_the_largest() {
        let (files, bytes, records) = (i64::MAX, i64::MAX, i64::MAX);
        let huge = Group { files, bytes, records, ..group(b"a", Kind::Data, 1, 1) };
        let entries = fold(&[huge.clone(), huge]);
        assert_eq!((entries.of(Kind::Data).files, entries.of(Kind::Data).bytes), (i64::MAX, i64::MAX));
    }
}
