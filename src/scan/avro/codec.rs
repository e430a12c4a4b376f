//! Decompression of data blocks (Avro specification, "Required Codecs" and "Optional Codecs").

use std::io::Read;

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::Result;

/// No block is larger than this after decompression; a larger one is taken for a decompression bomb.
///
/// Writers cut blocks at 16 to 64 kB; some put a whole manifest into one.
pub(crate) const MAX_BLOCK_BYTES: usize = 1 << 30;

/// What Python's Avro libraries leave behind a deflate stream: they cut zlib's wrapper off, but only one of its four
/// checksum bytes.
const MAX_DEFLATE_TRAILER: usize = 4;

/// Snappy's densest element copies 64 bytes and takes 3.
const MAX_SNAPPY_RATIO: usize = 22;

/// How the blocks of one file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

impl Codec {
    /// By the value of the header's `avro.codec`; a file without it is not compressed.
    pub(super) fn parse(name: Option<&[u8]>) -> Result<Self> {
        match name {
            None | Some(b"null") => Ok(Self::Null),
            Some(b"deflate") => Ok(Self::Deflate),
            Some(b"snappy") => Ok(Self::Snappy),
            Some(b"zstandard") => Ok(Self::Zstandard),
            Some(other) => Err(format!(
                "its codec is {:?}; null, deflate, snappy and zstandard are supported",
                String::from_utf8_lossy(other)
            )
            .into()),
        }
    }
}

/// Decompresses one block after the other into the same buffer.
#[derive(Debug)]
pub(super) struct Decompressor {
    codec: Codec,
    limit: usize,
    inflate: Option<Decompress>,
}

impl Decompressor {
    /// `limit`: how many bytes one block may have after decompression.
    pub(super) fn new(codec: Codec, limit: usize) -> Self {
        Self { codec, limit, inflate: (codec == Codec::Deflate).then(|| Decompress::new(false)) }
    }

    /// The block's data: `block` itself where nothing is compressed, or else the new content of `buffer`.
    pub(super) fn decompress(&mut self, block: &[u8], buffer: &mut Vec<u8>) -> Result<Stored> {
        buffer.clear();
        match self.codec {
            Codec::Null => return Ok(Stored::InPlace),
            Codec::Deflate => {
                let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
                deflate(inflate, block, buffer, self.limit)?;
            }
            Codec::Snappy => snappy(block, buffer, self.limit)?,
            Codec::Zstandard => zstandard(block, buffer, self.limit)?,
        }
        Ok(Stored::InBuffer)
    }
}

/// Where a block's data is after decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    InPlace,
    InBuffer,
}

fn too_large(limit: usize) -> super::Corrupt {
    format!("a block inflates to more than {limit} bytes").into()
}

fn deflate(inflate: &mut Decompress, block: &[u8], buffer: &mut Vec<u8>, limit: usize) -> Result<()> {
    inflate.reset(false);
    loop {
        if buffer.len() == buffer.capacity() {
            if buffer.len() >= limit {
                return Err(too_large(limit));
            }
            // Doubling: memory follows what really came out, never what a header promised.
            buffer.reserve_exact(buffer.len().max(64 << 10).min(limit - buffer.len()));
        }
        let consumed = inflate.total_in() as usize;
        let rest = block.get(consumed..).unwrap_or_default();
        let status = inflate
            .decompress_vec(rest, buffer, FlushDecompress::None)
            .map_err(|e| format!("a block can't be inflated: {e}"))?;
        match status {
            Status::StreamEnd => break,
            Status::Ok | Status::BufError if buffer.len() == buffer.capacity() => {}
            // Room was left, so the input has run out.
            Status::Ok | Status::BufError => return Err("a deflate block is cut short".into()),
        }
    }
    match block.len().saturating_sub(inflate.total_in() as usize) {
        0..=MAX_DEFLATE_TRAILER => Ok(()),
        trailing => Err(format!("{trailing} bytes follow the end of a deflate block").into()),
    }
}

/// The compressed block is followed by the CRC-32 of the uncompressed data, big-endian.
fn snappy(block: &[u8], buffer: &mut Vec<u8>, limit: usize) -> Result<()> {
    let (compressed, checksum) = block.split_last_chunk::<4>().ok_or("a snappy block has no checksum")?;
    let failed = |e: snap::Error| format!("a block can't be decompressed: {e}");
    let length = snap::raw::decompress_len(compressed).map_err(failed)?;
    if length > limit {
        return Err(too_large(limit));
    }
    if length > compressed.len().saturating_mul(MAX_SNAPPY_RATIO) {
        return Err("a snappy block promises more data than it can hold".into());
    }
    buffer.resize(length, 0);
    let written = snap::raw::Decoder::new().decompress(compressed, buffer).map_err(failed)?;
    buffer.truncate(written);
    let mut crc = Crc::new();
    crc.update(buffer);
    if crc.sum() != u32::from_be_bytes(*checksum) {
        return Err("the checksum of a snappy block is wrong".into());
    }
    Ok(())
}

fn zstandard(block: &[u8], buffer: &mut Vec<u8>, limit: usize) -> Result<()> {
    let failed = |e: std::io::Error| format!("a block can't be decompressed: {e}");
    let decoder = zstd::stream::read::Decoder::with_buffer(block).map_err(failed)?;
    decoder.take(limit as u64 + 1).read_to_end(buffer).map_err(failed)?;
    match buffer.len() > limit {
        true => Err(too_large(limit)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::testing::compress;

    const ALL: [(Codec, &str); 3] =
        [(Codec::Deflate, "deflate"), (Codec::Snappy, "snappy"), (Codec::Zstandard, "zstandard")];

    /// Half noise, half zeros: neither codec stores it plainly.
    fn sample(length: usize) -> Vec<u8> {
        let mut state = 1u32;
        (0..length)
            .map(|i| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if (i / 64) % 2 == 0 { (state >> 24) as u8 } else { 0 }
            })
            .collect()
    }

    fn decompress(codec: Codec, block: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![];
        let stored = Decompressor::new(codec, limit).decompress(block, &mut buffer)?;
        assert_eq!(stored, Stored::InBuffer);
        Ok(buffer)
    }

    #[test]
    fn every_codec_gives_back_what_went_in_also_in_a_reused_buffer() {
        for (codec, name) in ALL {
            let mut decompressor = Decompressor::new(codec, MAX_BLOCK_BYTES);
            let mut buffer = vec![];
            for length in [0, 1, 65_535, 65_536, 65_537, 300_000, 10] {
                let data = sample(length);
                decompressor.decompress(&compress(name, &data), &mut buffer).unwrap();
                assert!(buffer == data, "{name}, {length} bytes");
            }
        }
    }

    #[test]
    fn a_block_larger_than_the_limit_is_an_error() {
        for (codec, name) in ALL {
            let block = compress(name, &vec![0; 100_000]);
            assert_eq!(decompress(codec, &block, 100_000).unwrap().len(), 100_000, "{name}");
            let error = decompress(codec, &block, 99_999).unwrap_err().to_string();
            assert_eq!(error, "a block inflates to more than 99999 bytes", "{name}");
        }
    }

    #[test]
    fn a_block_that_is_cut_short_is_an_error_at_every_length() {
        for (codec, name) in ALL {
            let block = compress(name, &sample(500));
            for length in 1..block.len() {
                assert!(decompress(codec, &block[..length], MAX_BLOCK_BYTES).is_err(), "{name}, {length}");
            }
        }
    }

    #[test]
    fn the_rest_of_a_zlib_checksum_behind_a_deflate_block_is_no_fault_but_more_is() {
        let mut block = compress("deflate", b"some data");
        block.extend([1, 2, 3]);
        assert_eq!(decompress(Codec::Deflate, &block, MAX_BLOCK_BYTES).unwrap(), b"some data");
        block.extend([4, 5]);
        assert!(decompress(Codec::Deflate, &block, MAX_BLOCK_BYTES).is_err());
    }

    #[test]
    fn a_wrong_checksum_of_a_snappy_block_is_an_error() {
        let mut block = compress("snappy", b"some data");
        *block.last_mut().unwrap() ^= 1;
        let error = decompress(Codec::Snappy, &block, MAX_BLOCK_BYTES).unwrap_err().to_string();
        assert_eq!(error, "the checksum of a snappy block is wrong");
    }

    #[test]
    fn a_snappy_block_that_promises_a_gigabyte_is_refused_before_memory_is_taken() {
        let block = [0x80, 0x80, 0x80, 0x80, 0x04, 0, 0, 0, 0, 0];
        let error = decompress(Codec::Snappy, &block, MAX_BLOCK_BYTES).unwrap_err().to_string();
        assert_eq!(error, "a snappy block promises more data than it can hold");
    }

    #[test]
    fn an_unknown_codec_is_named() {
        assert!(Codec::parse(Some(b"bzip2")).unwrap_err().to_string().contains("\"bzip2\""));
        assert_eq!(Codec::parse(None).unwrap(), Codec::Null);
    }
}
