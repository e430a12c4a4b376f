//! Inflating deflate blocks, which is most of the time that a scan takes.
//!
//! By default libdeflate does it, a C library that takes 0.7 times as long as zlib-rs. Without the feature `libdeflate`
//! it is zlib-rs, and nothing but Rust.
//!
//! Both read to the end of the deflate stream and pass over what follows it in the block: Python's Avro libraries leave a
//! part of zlib's checksum there. That the data is whole is seen from the records in it.

use super::codec::grow;
use super::{Corrupt, Result};

#[cfg(feature = "libdeflate")]
pub(super) type Inflater = Libdeflate;
#[cfg(not(feature = "libdeflate"))]
pub(super) type Inflater = Zlib;

#[cfg(feature = "libdeflate")]
pub(super) struct Libdeflate(libdeflater::Decompressor);

#[cfg(feature = "libdeflate")]
impl Default for Libdeflate {
    fn default() -> Self {
        Self(libdeflater::Decompressor::new())
    }
}

#[cfg(feature = "libdeflate")]
impl Libdeflate {
    /// Inflates into `buffer`, which grows to at most `limit` bytes. Gives the length of the data in it.
    pub(super) fn inflate(&mut self, block: &[u8], buffer: &mut Vec<u8>, limit: usize) -> Result<usize> {
        use libdeflater::DecompressionError::{BadData, InsufficientSpace};
        if buffer.is_empty() {
            grow(buffer, block, limit)?;
        }
        loop {
            match self.0.deflate_decompress(block, buffer) {
                Ok(length) => return Ok(length),
                // The buffer was filled. It begins again with a larger one: there is no going on where it stopped.
                Err(InsufficientSpace) => grow(buffer, block, limit)?,
                Err(BadData) => return Err(corrupt()),
            }
        }
    }
}

#[cfg(any(test, not(feature = "libdeflate")))]
pub(super) struct Zlib(flate2::Decompress);

#[cfg(any(test, not(feature = "libdeflate")))]
impl Default for Zlib {
    fn default() -> Self {
        Self(flate2::Decompress::new(false))
    }
}

#[cfg(any(test, not(feature = "libdeflate")))]
impl Zlib {
    /// Inflates into `buffer`, which grows to at most `limit` bytes. Gives the length of the data in it.
    pub(super) fn inflate(&mut self, block: &[u8], buffer: &mut Vec<u8>, limit: usize) -> Result<usize> {
        use flate2::{FlushDecompress, Status};
        self.0.reset(false);
        loop {
            let (read, written) = (self.0.total_in() as usize, self.0.total_out() as usize);
            if written == buffer.len() {
                grow(buffer, block, limit)?;
            }
            let rest = block.get(read..).unwrap_or_default();
            let room = buffer.get_mut(written..).unwrap_or_default();
            let status = self.0.decompress(rest, room, FlushDecompress::None).map_err(|_| corrupt())?;
            let written = self.0.total_out() as usize;
            match status {
                Status::StreamEnd => return Ok(written),
                Status::Ok | Status::BufError if written == buffer.len() => {}
                // Room was left, so the input has run out.
                Status::Ok | Status::BufError => return Err(corrupt()),
            }
        }
    }
}

fn corrupt() -> Corrupt {
    "a block can't be inflated: it is corrupt or cut short".into()
}

#[cfg(test)]
mod tests {
    use super::super::codec::MAX_BLOCK_BYTES;
    use super::*;
    use crate::scan::testing::compress;

    fn inflate(block: &[u8], limit: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![];
        let result = Inflater::default().inflate(block, &mut buffer, limit).map(|length| buffer[..length].to_vec());
        let mut buffer = vec![];
        let by_zlib = Zlib::default().inflate(block, &mut buffer, limit).map(|length| buffer[..length].to_vec());
        assert_eq!(result.as_ref().ok(), by_zlib.as_ref().ok(), "the two libraries differ");
        assert_eq!(result.as_ref().err().map(ToString::to_string), by_zlib.err().map(|why| why.to_string()));
        result.ok()
    }

    #[test]
    fn both_libraries_pass_over_what_follows_a_stream() {
        let mut block = compress("deflate", b"some data");
        block.extend([1, 2, 3, 4, 5]);
        assert_eq!(inflate(&block, MAX_BLOCK_BYTES).unwrap(), b"some data");
    }

    #[test]
    fn both_libraries_agree_on_damaged_blocks_and_on_the_limit() {
        let data: Vec<u8> = (0..700u32).flat_map(|i| (i * i % 251).to_le_bytes()).collect();
        let block = compress("deflate", &data);
        for limit in [0, 1, data.len() - 1, data.len(), data.len() + 1] {
            assert_eq!(inflate(&block, limit).is_some(), limit >= data.len(), "{limit}");
        }
        for length in 0..block.len() {
            assert_eq!(inflate(&block[..length], MAX_BLOCK_BYTES), None);
        }
        let mut damaged = block.clone();
        for position in 0..block.len() {
            for bit in 0..8 {
                damaged[position] ^= 1 << bit;
                inflate(&damaged, 1 << 20);
                damaged[position] ^= 1 << bit;
            }
        }
    }
}
