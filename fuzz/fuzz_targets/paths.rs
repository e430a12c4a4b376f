#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| iceberg_maintenance::fuzzing::paths(bytes));
