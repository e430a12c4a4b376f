//! `version-hint.text`: written for other readers, never believed.

use bytes::Bytes;

use super::METADATA_FOLDER;
use super::versions::{MetadataFileName, MetadataFiles};
use crate::error::{Error, Result};
use crate::storage::Store;
use crate::table::{Location, PathRules, TableIdentity};

/// The file that tells readers of Hadoop tables where to start looking.
pub(crate) const VERSION_HINT: &str = "version-hint.text";

/// Says so when the hint disagrees with what is there, and refuses where the disagreement means that versions are missing.
///
/// A hint that lags behind is ordinary: it is written after the commit. A hint ahead of every file means that newer metadata
/// was lost, and with it the knowledge of what is live. A gap right above the hint means that other readers, which count up
/// from there, see another version as the current one.
pub(super) async fn check_hint(
    location: &Location,
    store: &Store,
    files: &MetadataFiles,
    table: &TableIdentity,
) -> Result<Option<String>> {
    let newest = files.newest.version;
    let folder = location.child(METADATA_FOLDER);
    let hint = match store.read(&folder.child(VERSION_HINT)).await {
        Ok(hint) => String::from_utf8_lossy(&hint).trim().to_string(),
        Err(error) if error.is_not_found() => {
            return Ok(Some(format!("{VERSION_HINT} is missing; the newest version is {newest}")));
        }
        Err(error) => return Err(error),
    };
    let hinted = hint.parse().ok().or_else(|| MetadataFileName::parse(&hint).map(|file| file.version));
    let exists = |version: u64| version == newest || files.others.iter().any(|file| file.version == version);
    let unclear = |why: String| Err(Error::UnclearOwner { table: location.to_string(), why });
    match hinted {
        Some(hinted) if hinted == newest => Ok(None),
        Some(hinted) if hinted > newest && is_there(hinted, store, &folder).await? => Ok(None),
        Some(hinted) if hinted > newest => unclear(format!(
            "{VERSION_HINT} names version {hinted}, but the newest metadata file is that of version {newest}: newer metadata \
             seems to be lost, and what it named would count as orphans. Restore it, or delete {VERSION_HINT} if version \
             {newest} really is the newest"
        )),
        Some(hinted) if exists(hinted) && !exists(hinted + 1) => unclear(format!(
            "{VERSION_HINT} names version {hinted}, the newest metadata file is that of version {newest}, and version {} is \
             missing: other readers take {hinted} for the current version. Delete {VERSION_HINT} if version {newest} really \
             is the newest",
            hinted + 1
        )),
        Some(hinted) if !is_same_table(hinted, files, store, &folder, table).await? => unclear(format!(
            "{VERSION_HINT} names version {hinted}, which belongs to another table than version {newest}: two tables share \
             this location. Give each a location of its own"
        )),
        _ => Ok(Some(format!(
            "{VERSION_HINT} says {hint:?}, but the newest version is {newest}; the hint was not believed"
        ))),
    }
}

/// True when this version, or a later one, was committed after the folder was listed and before the hint was read.
async fn is_there(version: u64, store: &Store, folder: &Location) -> Result<bool> {
    let names = store.file_names(folder).await?;
    Ok(names.iter().filter_map(|name| MetadataFileName::parse(name)).any(|file| file.version >= version))
}

/// True unless the file of this version is there and belongs to another table.
async fn is_same_table(
    version: u64,
    files: &MetadataFiles,
    store: &Store,
    folder: &Location,
    table: &TableIdentity,
) -> Result<bool> {
    let Some(file) = files.others.iter().find(|file| file.version == version) else { return Ok(true) };
    let identity = TableIdentity::read(&store.read(&folder.child(&file.name)).await?);
    Ok(identity.is_ok_and(|identity| table.is_same_table(&identity, &PathRules::new(folder))))
}

pub(super) async fn write_hint(store: &Store, folder: &Location, version: u64) -> Result<()> {
    let hint = Bytes::from(version.to_string());
    store.replace(&folder.child(VERSION_HINT), hint.clone()).await?;
    renew_checksum(store, folder, VERSION_HINT, &hint).await
}

/// Renews the checksum that Hadoop's local file system keeps beside a file, where there is one: with a stale one Hadoop
/// could not read the file any more.
async fn renew_checksum(store: &Store, folder: &Location, name: &str, content: &Bytes) -> Result<()> {
    let checksum = folder.child(&format!(".{name}.crc"));
    match store.as_local() {
        Some(_) if store.stat(&checksum).await?.is_some() => store.replace(&checksum, hadoop_checksum(content)).await,
        _ => Ok(()),
    }
}

/// Hadoop's checksum file: magic, bytes per checksum (512), one CRC-32 a chunk.
fn hadoop_checksum(content: &[u8]) -> Bytes {
    const BYTES_PER_CHECKSUM: u32 = 512;
    let mut out = b"crc\0".to_vec();
    out.extend(BYTES_PER_CHECKSUM.to_be_bytes());
    for chunk in content.chunks(BYTES_PER_CHECKSUM as usize) {
        let mut crc = flate2::Crc::new();
        crc.update(chunk);
        out.extend(crc.sum().to_be_bytes());
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hadoops_checksum_of_a_hint() {
        // As Hadoop 3's LocalFileSystem writes it for the content "4".
        assert_eq!(hadoop_checksum(b"4")[..8], *b"crc\0\0\0\x02\0");
        assert_eq!(hadoop_checksum(b"123456789")[8..], 0xcbf4_3926u32.to_be_bytes());
    }
}
