//! Manifest lists that repeat each other: of many, only the entries that no other one has.
//!
//! Each snapshot's list repeats most entries of the one before, byte for byte and in the same order. So an entry that was
//! met before is recognised by its whole encoding, as a rule without decoding it: the bytes ahead are compared with the
//! entry that followed the last one when it was first met. Equal bytes under one writer's schema are equal entries, and
//! whatever differs in any way is an entry of its own: nothing is ever left out because of a hash.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;

use super::{ManifestListBuilder, ManifestListEntry, SLOTS, WANTED, WHAT, entry, expected_rows, malformed};
use crate::error::Result;
use crate::scan::avro::{self, AvroFile, Layout};
use crate::scan::refuse_encrypted;

/// How many live files the manifests of a list have, by the list's own counts. `None`: a count is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveCounts {
    /// Data files.
    pub(crate) data: Option<i64>,
    /// Delete files.
    pub(crate) deletes: Option<i64>,
}

impl Default for LiveCounts {
    fn default() -> Self {
        Self { data: Some(0), deletes: Some(0) }
    }
}

impl LiveCounts {
    fn add(&mut self, manifest: Live) {
        let count = if manifest.is_data { &mut self.data } else { &mut self.deletes };
        *count = count.zip(manifest.files).map(|(count, files)| count.saturating_add(files));
    }
}

/// What one entry adds to [`LiveCounts`].
#[derive(Debug, Clone, Copy)]
struct Live {
    is_data: bool,
    files: Option<i64>,
}

impl Live {
    fn of(entry: &ManifestListEntry<'_>) -> Self {
        // Negative counts say nothing.
        let known = |count: Option<i32>| count.filter(|count| *count >= 0).map(i64::from);
        let files = known(entry.added).zip(known(entry.existing)).map(|(added, existing)| added + existing);
        Self { is_data: entry.content == 0, files }
    }
}

/// The entries that were met in lists, each once.
#[derive(Debug, Default)]
pub(crate) struct KnownEntries {
    /// As a rule all lists of a table have the same schema.
    by_layout: Vec<(Arc<Layout>, Entries)>,
}

impl KnownEntries {
    /// How many bytes it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.by_layout.iter().map(|(_, entries)| entries.bytes).sum()
    }

    /// The layout of an opened file's records, and the entries met under it.
    fn open<'a>(&mut self, bytes: &'a [u8]) -> avro::Result<(AvroFile<&'a [u8], SLOTS>, &mut Entries)> {
        let known = self.by_layout.iter().map(|(layout, _)| layout);
        let file = AvroFile::<_, SLOTS>::open_like(bytes, &WANTED, known)?;
        let place = match self.by_layout.iter().position(|(layout, _)| Arc::ptr_eq(layout, file.layout())) {
            Some(place) => place,
            None => {
                self.by_layout.push((Arc::clone(file.layout()), Entries::default()));
                self.by_layout.len() - 1
            }
        };
        Ok((file, &mut self.by_layout[place].1))
    }
}

/// Entries under one schema.
#[derive(Debug, Default)]
struct Entries {
    /// In the order in which they were met.
    met: Vec<(Arc<[u8]>, Live)>,
    places: HashMap<Arc<[u8]>, usize>,
    bytes: usize,
}

impl Entries {
    /// What an entry takes besides its encoding, which is held once.
    const OVERHEAD: usize = 96;

    fn add(&mut self, encoded: &[u8], live: Live) {
        let encoded: Arc<[u8]> = encoded.into();
        self.bytes += encoded.len() + Self::OVERHEAD;
        self.places.insert(Arc::clone(&encoded), self.met.len());
        self.met.push((encoded, live));
    }
}

/// Decodes a whole manifest list. Returns those of its entries that were not known, if there are any, and what all of them
/// have together.
///
/// # Errors
/// As [`super::decode_manifest_list`]. What is known then has entries that nobody got, so it must not be used again.
pub(crate) fn decode_new_entries(
    path: &str,
    bytes: &[u8],
    known: &mut KnownEntries,
) -> Result<(Option<RecordBatch>, LiveCounts)> {
    refuse_encrypted(WHAT, path, bytes, false)?;
    let (file, entries) = known.open(bytes).map_err(|why| malformed(path, why))?;
    let before = entries.met.len();
    let (rows, live) = new_entries(&file, entries).map_err(|why| malformed(path, why))?;
    let rows = (entries.met.len() > before).then(|| rows.finish(path)).transpose()?;
    Ok((rows, live))
}

/// Decodes a whole manifest list. Returns all of its entries, whatever other lists have, and what they have together. `known`
/// only keeps how lists are read.
///
/// # Errors
/// As [`super::decode_manifest_list`].
pub(crate) fn decode_all_entries(
    path: &str,
    bytes: &[u8],
    known: &mut KnownEntries,
) -> Result<(RecordBatch, LiveCounts)> {
    refuse_encrypted(WHAT, path, bytes, false)?;
    let (file, _) = known.open(bytes).map_err(|why| malformed(path, why))?;
    let mut rows = ManifestListBuilder::with_capacity(expected_rows(file.promised_records(file.blocks())));
    let (mut decompressor, mut live) = (file.decompressor(), LiveCounts::default());
    for block in file.blocks() {
        let decoded = file.for_each_record(block, &mut decompressor, |row| {
            let entry = entry(row)?;
            live.add(Live::of(&entry));
            rows.push(entry)
        });
        decoded.map_err(|why| malformed(path, why))?;
    }
    Ok((rows.finish(path)?, live))
}

fn new_entries(file: &AvroFile<&[u8], SLOTS>, known: &mut Entries) -> avro::Result<(ManifestListBuilder, LiveCounts)> {
    // As a rule one entry of a list is new, except in the first list.
    let expected = if known.met.is_empty() { expected_rows(file.promised_records(file.blocks())) } else { 0 };
    let (mut rows, mut live) = (ManifestListBuilder::with_capacity(expected), LiveCounts::default());
    let (mut decompressor, mut next) = (file.decompressor(), 0);
    for block in file.blocks() {
        let mut records = file.records(block, &mut decompressor)?;
        loop {
            while let Some((encoded, manifest)) = known.met.get(next)
                && records.skip_if(encoded)
            {
                live.add(*manifest);
                next += 1;
            }
            let Some((encoded, row)) = records.next()? else { break };
            let place = match known.places.get(encoded) {
                Some(place) => *place,
                None => {
                    let entry = entry(row)?;
                    known.add(encoded, Live::of(&entry));
                    rows.push(entry)?;
                    known.met.len() - 1
                }
            };
            live.add(known.met[place].1);
            next = place + 1;
        }
    }
    Ok((rows, live))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::manifest_list::decode_manifest_list;
    use crate::scan::manifest_list::tests::{Row, SCHEMA, record, rows};
    use crate::scan::testing::*;

    /// The rows that these lists give, one list after the other, and what each counts.
    fn decode(lists: &[Vec<u8>]) -> (Vec<Row>, Vec<LiveCounts>) {
        let mut known = KnownEntries::default();
        let (mut found, mut counts) = (vec![], vec![]);
        for list in lists {
            let (new, live) = decode_new_entries("l.avro", list, &mut known).unwrap();
            found.extend(new.iter().flat_map(rows));
            counts.push(live);
        }
        (found, counts)
    }

    /// All rows of all lists, each once, in the order in which they come.
    fn distinct(lists: &[Vec<u8>]) -> Vec<Row> {
        let mut found: Vec<Row> = vec![];
        for list in lists {
            let all = rows(&decode_manifest_list("l.avro", list).unwrap());
            all.into_iter().for_each(|row| {
                if !found.contains(&row) {
                    found.push(row)
                }
            });
        }
        found
    }

    fn list(codec: &str, per_block: usize, manifests: impl IntoIterator<Item = i32>) -> Vec<u8> {
        let entry = |n: i32| record(&format!("s3://b/m{n}.avro"), n % 2, [Some(n), Some(3)], None);
        file_of(SCHEMA, codec, per_block, &manifests.into_iter().map(entry).collect::<Vec<_>>())
    }

    #[test]
    fn what_many_lists_repeat_comes_once_whatever_the_order() {
        for codec in ["null", "deflate", "snappy", "zstandard"] {
            let lists = [
                list(codec, 3, [2, 1, 0]),
                list(codec, 2, [3, 2, 1, 0]),
                list(codec, 100, [0, 1, 2, 3, 4]),
                list(codec, 1, [4, 2, 9, 0, 9]),
                list(codec, 2, [4, 2, 9, 0]),
                list(codec, 2, []),
            ];
            let (found, counts) = decode(&lists);
            assert_eq!(found, distinct(&lists), "{codec}");
            assert_eq!(found.len(), 6);
            // One added file each, and as many existing ones as the number says; odd manifests hold deletes.
            let live = |data, deletes| LiveCounts { data: Some(data), deletes: Some(deletes) };
            let expected = [live(4, 2), live(4, 6), live(9, 6), live(9, 20), live(9, 10), live(0, 0)];
            assert_eq!(counts, expected, "{codec}");
        }
    }

    #[test]
    fn entries_that_differ_in_anything_are_all_handed_on() {
        let one = |counts, key: Option<&[u8]>| file_of(SCHEMA, "null", 9, &[record("s3://b/m.avro", 0, counts, key)]);
        let lists = [
            one([Some(1), Some(1)], None),
            one([Some(2), Some(1)], None),
            one([None, Some(1)], None),
            one([Some(1), Some(1)], Some(b"key")),
            one([Some(1), Some(1)], None),
        ];
        let (found, counts) = decode(&lists);
        assert_eq!((found.len(), &found), (4, &distinct(&lists)));
        assert_eq!(counts.iter().map(|live| live.data).collect::<Vec<_>>(), [Some(2), Some(3), None, Some(2), Some(2)]);
    }

    #[test]
    fn equal_bytes_under_another_schema_are_another_entry() {
        let schema = |name: &str| {
            format!(
                r#"{{"type":"record","name":"m","fields":[{{"name":"manifest_path","type":"string"}},
                {{"name":"{name}","type":"int"}}]}}"#
            )
        };
        let lists =
            ["partition_spec_id", "content"].map(|name| container(&schema(name), "null", &[(1, &[2, b'p', 2])]));
        let (found, _) = decode(&lists);
        assert_eq!((found.len(), &found), (2, &distinct(&lists)));
    }

    #[test]
    fn a_list_that_breaks_off_among_known_entries_is_an_error() {
        let whole = list("null", 2, [1, 2, 3, 4]);
        let mut known = KnownEntries::default();
        decode_new_entries("l.avro", &whole, &mut known).unwrap();
        for length in (0..whole.len()).filter(|length| !whole[..*length].ends_with(&SYNC)) {
            assert!(decode_new_entries("l.avro", &whole[..length], &mut known).is_err(), "cut to {length} bytes");
        }
        // The same entries in one block, whose count may be wrong.
        let entries = known.by_layout[0].1.met.iter().map(|(encoded, _)| encoded.to_vec()).collect::<Vec<_>>().concat();
        let data = |objects| container(SCHEMA, "null", &[(objects, &entries)]);
        assert!(decode_new_entries("l.avro", &data(4), &mut known).unwrap().0.is_none());
        for wrong in [3, 5] {
            assert!(decode_new_entries("l.avro", &data(wrong), &mut known).is_err(), "{wrong} entries");
        }
    }
}
