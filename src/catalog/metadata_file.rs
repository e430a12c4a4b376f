//! How metadata files are named, and how a new one is written, whichever catalog names it.

use std::io::Write;

use bytes::Bytes;

use crate::error::{Error, Result};

const ENDING: &str = ".metadata.json";

/// What names of compressed metadata files call their codec. Only gzip can be read, and is recognised by the content; a file
/// with another codec in its name is metadata all the same, which must not be overlooked.
const CODECS: [&str; 10] = ["gz", "gzip", "zst", "zstd", "deflate", "br", "xz", "lz4", "bz2", "snappy"];

/// True for what a name calls a codec, such as `gz`.
pub(crate) fn is_codec(text: &str) -> bool {
    CODECS.contains(&text)
}

/// What the name of a metadata file says besides its ending and codec: `v3` of `v3.metadata.json`, `v3.gz.metadata.json` and
/// `v3.metadata.json.gz`. `None` for other files.
pub(super) fn stem(name: &str) -> Option<&str> {
    if let Some(stem) = name.strip_suffix(ENDING) {
        return Some(stem.rsplit_once('.').filter(|(_, codec)| is_codec(codec)).map_or(stem, |(stem, _)| stem));
    }
    let (stem, codec) = name.rsplit_once('.')?;
    stem.strip_suffix(ENDING).filter(|_| is_codec(codec))
}

/// What the name of a new metadata file ends with, after its first dot.
pub(super) fn extension(gzip: bool) -> &'static str {
    if gzip { "gz.metadata.json" } else { "metadata.json" }
}

/// The content of a metadata file.
///
/// # Errors
/// When compressing fails.
pub(super) fn encode(json: &str, gzip: bool) -> Result<Bytes> {
    if !gzip {
        return Ok(Bytes::copy_from_slice(json.as_bytes()));
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder
        .write_all(json.as_bytes())
        .and_then(|()| encoder.finish())
        .map(Bytes::from)
        .map_err(|e| Error::io("compressing", "new table metadata", e))
}
