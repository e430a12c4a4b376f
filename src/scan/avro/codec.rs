//! Decompression of data blocks (Avro specification, "Required Codecs" and "Optional Codecs").

use std::cell::Cell;
use std::fmt;

use flate2::Crc;
use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

use super::inflate::Inflater;
use super::{Corrupt, Result};

/// No block is larger than this after decompression; a larger one is taken for a decompression bomb.
///
/// Writers cut blocks at 16 to 64 kB; some put a whole manifest into one.
pub(crate) const MAX_BLOCK_BYTES: usize = 1 << 30;

/// What the blocks of any file may inflate to, together.
const ALWAYS_INFLATED: usize = 64 << 20;

/// How many times its size the blocks of a larger file may inflate to, together. Manifests inflate to some twenty times their size at most.
const MAX_INFLATION: usize = 256;

/// How many bytes the blocks of a file of this size may inflate to, together: what inflates to more is a decompression bomb.
pub(super) fn most_inflated(file_bytes: usize) -> usize {
    file_bytes.saturating_mul(MAX_INFLATION).max(ALWAYS_INFLATED)
}

/// What a buffer begins with: room for a block of Iceberg Java, which cuts them at 64 kB.
const MIN_BUFFER: usize = 128 << 10;

/// The largest buffer that a thread keeps.
const MAX_SPARE_BUFFER: usize = 1 << 20;

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
pub(in crate::scan) struct Decompressor {
    codec: Codec,
    limit: usize,
    scratch: Scratch,
}

/// What decompression needs besides the block.
#[derive(Default)]
struct Scratch {
    inflater: Option<Inflater>,
    zstd: Option<zstd::stream::raw::Decoder<'static>>,
    /// As long as the largest block yet; what is behind the current block's data is left over from others.
    buffer: Vec<u8>,
}

thread_local! {
    /// What a thread's last file needed, for its next one: getting fresh memory takes as long as decoding a small file.
    static SPARE: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").field("codec", &self.codec).finish_non_exhaustive()
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        if self.scratch.buffer.capacity() <= MAX_SPARE_BUFFER {
            let scratch = Box::new(std::mem::take(&mut self.scratch));
            // Fails only while the thread ends.
            SPARE.try_with(|spare| spare.set(Some(scratch))).ok();
        }
    }
}

impl Decompressor {
    /// `limit`: how many bytes one block may have after decompression.
    pub(super) fn new(codec: Codec, limit: usize) -> Self {
        let scratch = SPARE.try_with(Cell::take).ok().flatten().map(|scratch| *scratch).unwrap_or_default();
        Self { codec, limit, scratch }
    }

    /// How many bytes its buffer has.
    pub(in crate::scan) fn buffer_bytes(&self) -> usize {
        self.scratch.buffer.capacity()
    }

    /// The block's data: `block` itself where nothing is compressed.
    pub(super) fn decompress<'a>(&'a mut self, block: &'a [u8]) -> Result<&'a [u8]> {
        let Self { codec, limit, scratch: Scratch { inflater, zstd, buffer } } = self;
        let length = match codec {
            Codec::Null => return Ok(block),
            Codec::Deflate => inflater.get_or_insert_default().inflate(block, buffer, *limit)?,
            Codec::Snappy => snappy(block, buffer, *limit)?,
            Codec::Zstandard => {
                let decoder = match zstd {
                    Some(decoder) => decoder,
                    None => zstd.insert(zstd::stream::raw::Decoder::new().map_err(failed)?),
                };
                zstandard(decoder, block, buffer, *limit)?
            }
        };
        // The buffer may be larger than the limit: it was there before.
        if length > *limit {
            return Err(too_large(*limit));
        }
        buffer.get(..length).ok_or_else(|| "a block ends outside of its buffer".into())
    }
}

/// Makes room for more of a block's data.
///
/// By doubling, or to four times the size of the compressed block: memory follows what came out and what there is,
/// never what a header promised.
pub(super) fn grow(buffer: &mut Vec<u8>, block: &[u8], limit: usize) -> Result<()> {
    if buffer.len() >= limit {
        return Err(too_large(limit));
    }
    let length = (buffer.len() * 2).max(block.len().saturating_mul(4)).max(MIN_BUFFER).min(limit);
    buffer.reserve_exact(length - buffer.len());
    buffer.resize(length, 0);
    Ok(())
}

fn too_large(limit: usize) -> Corrupt {
    format!("a block inflates to more than {limit} bytes").into()
}

fn failed(error: impl fmt::Display) -> Corrupt {
    format!("a block can't be decompressed: {error}").into()
}

/// The compressed block is followed by the CRC-32 of the uncompressed data, big-endian.
fn snappy(block: &[u8], buffer: &mut Vec<u8>, limit: usize) -> Result<usize> {
    let (compressed, checksum) = block.split_last_chunk::<4>().ok_or("a snappy block has no checksum")?;
    let length = snap::raw::decompress_len(compressed).map_err(failed)?;
    if length > limit {
        return Err(too_large(limit));
    }
    if length > compressed.len().saturating_mul(MAX_SNAPPY_RATIO) {
        return Err("a snappy block promises more data than it can hold".into());
    }
    if buffer.len() < length {
        buffer.reserve_exact(length - buffer.len());
        buffer.resize(length, 0);
    }
    let length = snap::raw::Decoder::new().decompress(compressed, &mut buffer[..length]).map_err(failed)?;
    let mut crc = Crc::new();
    crc.update(&buffer[..length]);
    match crc.sum() == u32::from_be_bytes(*checksum) {
        true => Ok(length),
        false => Err("the checksum of a snappy block is wrong".into()),
    }
}

/// A block is one frame or several.
fn zstandard(
    decoder: &mut zstd::stream::raw::Decoder<'_>,
    block: &[u8],
    buffer: &mut Vec<u8>,
    limit: usize,
) -> Result<usize> {
    decoder.reinit().map_err(failed)?;
    let (mut input, mut written) = (InBuffer::around(block), 0);
    loop {
        if written == buffer.len() {
            grow(buffer, block, limit)?;
        }
        let mut output = OutBuffer::around_pos(buffer.as_mut_slice(), written);
        let wanted = decoder.run(&mut input, &mut output).map_err(failed)?;
        written = output.pos();
        match (wanted, input.pos() == block.len()) {
            (0, true) => return Ok(written),
            (_, true) if written < buffer.len() => return Err("a zstandard block is cut short".into()),
            _ => {}
        }
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
        Decompressor::new(codec, limit).decompress(block).map(<[u8]>::to_vec)
    }

    #[test]
    fn every_codec_gives_back_what_went_in_also_in_a_reused_buffer() {
        for (codec, name) in ALL {
            let mut decompressor = Decompressor::new(codec, MAX_BLOCK_BYTES);
            for length in [0, 1, 65_535, 65_536, 65_537, 300_000, 10] {
                let data = sample(length);
                let block = compress(name, &data);
                assert!(decompressor.decompress(&block).unwrap() == data, "{name}, {length} bytes");
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
