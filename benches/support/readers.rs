//! What our decoder is compared with.

use std::io::Cursor;

use apache_avro::types::Value;
use arrow_avro::reader::ReaderBuilder;
use arrow_avro::schema::AvroSchema;
use zstd::stream::raw::{Operation, OutBuffer};

use super::manifests::{AvroFile, Codec};

/// Decompresses blocks with the library that our decoder uses, and does nothing else.
pub struct Decompression {
    library: Library,
    buffer: Vec<u8>,
}

enum Library {
    None,
    Libdeflate(libdeflater::Decompressor),
    #[cfg_attr(feature = "libdeflate", allow(dead_code, reason = "for the build without C"))]
    Zlib(flate2::Decompress),
    Snappy,
    Zstandard(zstd::stream::raw::Decoder<'static>),
}

impl Decompression {
    pub fn new(codec: Codec) -> Self {
        let library = match codec {
            Codec::Null => Library::None,
            #[cfg(feature = "libdeflate")]
            Codec::Deflate => Library::Libdeflate(libdeflater::Decompressor::new()),
            #[cfg(not(feature = "libdeflate"))]
            Codec::Deflate => Library::Zlib(flate2::Decompress::new(false)),
            Codec::Snappy => Library::Snappy,
            Codec::Zstandard => Library::Zstandard(zstd::stream::raw::Decoder::new().expect("memory for it")),
        };
        Self { library, buffer: vec![0; 128 << 10] }
    }

    /// How many bytes the blocks have, decompressed.
    pub fn all(&mut self, file: &AvroFile) -> usize {
        file.blocks.iter().map(|block| self.one(block)).sum()
    }

    fn one(&mut self, block: &[u8]) -> usize {
        let buffer = self.buffer.as_mut_slice();
        match &mut self.library {
            Library::None => {
                buffer[..block.len()].copy_from_slice(block);
                block.len()
            }
            Library::Libdeflate(library) => library.deflate_decompress(block, buffer).expect("the block is whole"),
            Library::Zlib(library) => {
                library.reset(false);
                library.decompress(block, buffer, flate2::FlushDecompress::Finish).expect("the block is whole");
                library.total_out() as usize
            }
            Library::Snappy => {
                let (data, _) = block.split_last_chunk::<4>().expect("a checksum follows");
                let length = snap::raw::Decoder::new().decompress(data, buffer).expect("the block is whole");
                let mut crc = flate2::Crc::new();
                crc.update(&buffer[..length]);
                std::hint::black_box(crc.sum());
                length
            }
            Library::Zstandard(library) => {
                library.reinit().expect("nothing is under way");
                let mut output = OutBuffer::around(buffer);
                let mut input = zstd::stream::raw::InBuffer::around(block);
                library.run(&mut input, &mut output).expect("the block is whole");
                output.pos()
            }
        }
    }
}

/// The C library, whatever our decoder was built with.
pub fn libdeflate() -> Decompression {
    Decompression { library: Library::Libdeflate(libdeflater::Decompressor::new()), buffer: vec![0; 128 << 10] }
}

/// Our columns, by arrow-avro with a reader's schema; how many rows.
pub fn arrow_avro_projected(file: &[u8]) -> usize {
    let schema = AvroSchema::new(PROJECTED.to_string());
    let reader = ReaderBuilder::new().with_batch_size(8192).with_reader_schema(schema).build(Cursor::new(file));
    let batches = reader.expect("arrow-avro opens it");
    batches.map(|batch| batch.expect("arrow-avro reads it").num_rows()).sum()
}

const PROJECTED: &str = r#"{"type":"record","name":"manifest_entry","fields":[
    {"name":"status","type":"int"},
    {"name":"snapshot_id","type":["null","long"],"default":null},
    {"name":"data_file","type":{"type":"record","name":"r2","fields":[
        {"name":"content","type":"int"},
        {"name":"file_path","type":"string"},
        {"name":"file_format","type":"string"},
        {"name":"file_size_in_bytes","type":"long"}]}}]}"#;

/// All values, by apache-avro; how many records.
pub fn apache_avro_values(file: &[u8]) -> usize {
    let reader = apache_avro::Reader::new(file).expect("apache-avro opens it");
    let is_record = |value: &Value| matches!(value, Value::Record(_));
    reader.filter(|value| value.as_ref().is_ok_and(is_record)).count()
}
