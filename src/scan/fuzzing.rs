//! What the fuzz targets ask of manifests and manifest lists.

use std::ops::Range;
use std::sync::Arc;

use super::entries::{EntryFields, EntryFile, EntryShape, Inherited};
use super::manifest::{EntryColumns, ManifestFile};
use super::manifest_list::{KnownEntries, decode_new_entries, describe_list, promised_entries};
use crate::error::Result;
use crate::table::{PartitionType, ResultType};

/// Decodes a manifest list, and the same one again; and with all that it says of manifests.
///
/// # Panics
/// When there are more rows than the list promises, or when reading it again finds something new or other counts.
pub(crate) fn manifest_list(bytes: &[u8]) {
    let mut known = KnownEntries::default();
    let Ok((new, live)) = decode_new_entries("list", bytes, &mut known) else { return };
    let rows = new.map_or(0, |batch| batch.num_rows()) as u64;
    let promised = promised_entries(bytes);
    assert!(rows <= promised && promised <= most_records(bytes), "{rows} rows of {promised} in {} bytes", bytes.len());
    if let Ok((described, _)) = describe_list("list", bytes, false, &[]) {
        assert_eq!(described.len() as u64, promised, "manifests with all that the list says of them");
    }
    let (again, live_again) = decode_new_entries("list", bytes, &mut known).unwrap_or_else(|why| panic!("{why}"));
    assert!(again.is_none(), "the same list has new entries when it is read again");
    assert_eq!(live, live_again);
}

/// Decodes a manifest: as a whole, in parts, and its live entries alone; and with all of its fields.
///
/// # Panics
/// When these disagree, and when there are more or fewer rows than entries.
pub(crate) fn manifest(bytes: &[u8]) {
    entries(bytes);
    // What a file inflates to is counted once it is opened, so each time it is opened anew.
    let open = || ManifestFile::open_like("manifest", bytes, EntryColumns::WithReferences, []);
    let Ok(manifest) = open() else { return };
    let decode_all = |live_only| open().and_then(|manifest| decode(&manifest, manifest.blocks(), live_only));
    let (whole, live) = (decode_all(false), decode_all(true));
    let parts = manifest.parts(1).into_iter().map(|part| decode(&manifest, part, false));
    let parts = parts.collect::<Result<Vec<_>>>().map(|parts| {
        parts.into_iter().fold((0, [0; 3]), |(rows, counts), (more, others)| {
            (rows + more, std::array::from_fn(|status| counts[status] + others[status]))
        })
    });
    match (whole, live, parts) {
        (Ok((rows, counts)), Ok((live_rows, live_counts)), Ok(parts)) => {
            assert_eq!((rows, counts), parts, "as a whole and in parts");
            assert_eq!(rows, counts.iter().sum::<u64>(), "a row for each entry");
            assert_eq!((live_rows, live_counts), (counts[0] + counts[1], counts), "live ones");
            assert_eq!(rows, manifest.promised_entries());
            assert!(rows <= most_records(bytes), "{rows} rows of {} bytes", bytes.len());
        }
        (Err(_), Err(_), Err(_)) => {}
        (whole, live, parts) => panic!("whole: {whole:?}, live: {live:?}, parts: {parts:?}"),
    }
}

/// Decodes a manifest with all of its fields, with none of them, and its live entries alone.
///
/// # Panics
/// When these disagree with each other or with how manifests are read to tell which files are live.
fn entries(bytes: &[u8]) {
    let partition = PartitionType::new([
        (1000, "any", ResultType::Unknown),
        (1001, "decimal", ResultType::Decimal { precision: 9, scale: 2 }),
        (1002, "fixed", ResultType::Fixed(4)),
        (1003, "int", ResultType::Int),
    ]);
    let inherited = Inherited { first_row_id: Some(1000), ..Inherited::default() };
    let decode = |fields, live_only| {
        let shape = Arc::new(EntryShape::new(partition.clone(), fields, live_only));
        let file = EntryFile::open_like("manifest", bytes, &shape, inherited, [])?;
        let mut rows = 0;
        let counts = file.decode(file.blocks(), |batch, _| {
            rows += batch.num_rows() as u64;
            Ok(())
        })?;
        Ok::<_, crate::error::Error>((rows, counts))
    };
    let Ok((rows, counts)) = decode(EntryFields::ALL, false) else { return };
    assert_eq!(rows, counts.iter().sum::<u64>(), "a row for each entry");
    let or_panic = |decoded: Result<(u64, [u64; 3])>| decoded.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(or_panic(decode(EntryFields::default(), false)), (rows, counts), "without any field");
    assert_eq!(or_panic(decode(EntryFields::ALL, true)), (counts[0] + counts[1], counts), "live ones");
    let usual = ManifestFile::open_like("manifest", bytes, EntryColumns::WithReferences, []);
    let usual = usual.and_then(|manifest| self::decode(&manifest, manifest.blocks(), false));
    assert_eq!(or_panic(usual), (rows, counts), "as liveness is read");
}

/// How many records a file of this size may have at most.
fn most_records(bytes: &[u8]) -> u64 {
    bytes.len() as u64 * super::avro::MAX_RECORDS_PER_BYTE
}

/// Rows, and entries by status.
fn decode(manifest: &ManifestFile<&[u8]>, part: Range<usize>, live_only: bool) -> Result<(u64, [u64; 3])> {
    let mut rows = 0;
    let counts = manifest.decode(part, live_only, |batch, _| {
        rows += batch.num_rows() as u64;
        Ok(())
    })?;
    Ok((rows, counts))
}
