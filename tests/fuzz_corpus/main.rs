//! The fuzz targets over the stored corpus, hostile inputs, and seeded mutations: no panic, and no more memory than the
//! size of the input allows.

mod hostile;
mod memory;
mod mutation;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use iceberg_maintenance::fuzzing::{TARGETS, Target};

use hostile::Inputs;
use mutation::{Random, mutate};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// What any input may take, in bytes: buffers that are there for what usually comes.
const ALWAYS: usize = 8 << 20;
/// How many bytes each byte of the input may take besides.
const FOR_EACH_BYTE: usize = 400;
/// What an input may take that is compressed: the 64 MiB that anything may inflate to, in a buffer that grows by doubling, and
/// the rows that come of it.
const INFLATED: usize = 256 << 20;

const SEED: u64 = 0x1ceb_e46d;

fn target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target).unwrap()
}

/// Runs a target. Fails, naming the input, if the target panics or takes more than `most` bytes.
fn run(target: Target, name: &str, input: &[u8], most: usize) {
    let mut outcome = Ok(());
    let held = memory::most_held(|| outcome = catch_unwind(AssertUnwindSafe(|| target(input))));
    assert!(outcome.is_ok(), "{name} ({} bytes) made it panic: {:?}", input.len(), shown(input));
    assert!(held <= most, "{name} ({} bytes) took {held} bytes, more than {most}: {:?}", input.len(), shown(input));
}

fn shown(input: &[u8]) -> String {
    input[..input.len().min(2000)].escape_ascii().to_string()
}

fn most(input: &[u8]) -> usize {
    ALWAYS + FOR_EACH_BYTE * input.len()
}

/// The stored inputs of a target, by name.
fn corpus(target: &str) -> Inputs {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Inputs = files
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().to_str().unwrap().to_string(), fs::read(file.path()).unwrap()))
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

/// The stored inputs, each also cut short at every sixteenth.
fn stored(name: &str) {
    for (file, input) in corpus(name) {
        for sixteenths in 0..=16 {
            let cut = &input[..input.len() * sixteenths / 16];
            run(target(name), &format!("{file}, {sixteenths} sixteenths of it,"), cut, most(&input));
        }
    }
}

/// The inputs that are too large to be stored.
fn made(name: &str) {
    let inputs = hostile::inputs(name, &corpus(name));
    for (what, input) in inputs {
        let inflates = what.contains("bomb");
        let began = std::time::Instant::now();
        run(target(name), &what, &input, if inflates { INFLATED } else { 0 } + most(&input));
        println!("{what}: {:?}", began.elapsed());
    }
}

/// Mutations of the stored inputs: as many times `count` as the environment says, or `count` that are always the same.
fn mutated(name: &str, count: usize) {
    let times = std::env::var("FUZZ_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let (corpus, mut random) = (corpus(name), Random(SEED));
    for number in 0..count * times {
        let [one, other] = [(); 2].map(|()| &corpus[random.below(corpus.len())]);
        let input = mutate(&one.1, &other.1, &mut random);
        // A changed number can make a block inflate to more than it did.
        run(target(name), &format!("mutation {number} of {}", one.0), &input, INFLATED + most(&input));
    }
}

macro_rules! targets {
    ($($name:ident: $mutations:literal;)*) => {$(
        mod $name {
            #[test]
            fn stored_inputs_and_their_beginnings() {
                super::stored(stringify!($name));
            }

            #[test]
            fn hostile_inputs() {
                super::made(stringify!($name));
            }

            #[test]
            fn mutations() {
                super::mutated(stringify!($name), $mutations);
            }
        }
    )*};
}

targets! {
    metadata: 2000;
    manifest_list: 3000;
    manifest: 3000;
    sql: 400;
    paths: 5000;
    journal: 2000;
}

#[test]
fn every_target_has_a_fuzz_target() {
    for (name, _) in TARGETS {
        let file = format!("fuzz/fuzz_targets/{name}.rs");
        let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap();
        assert!(source.contains(&format!("fuzzing::{name}(bytes)")), "{file}");
    }
}
