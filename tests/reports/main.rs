//! Public bug reports of Iceberg tools as tests, by their numbers. `README.md` says how a case reads.

mod case;
mod checks;
mod place;

mod expiry_files;
mod expiry_snapshots;
mod formats;
mod orphans;
mod paths;
mod races;
mod results;
mod scale;
mod storage;

#[allow(dead_code)]
#[path = "../it/model.rs"]
mod model;
#[allow(dead_code)]
#[path = "../it/support.rs"]
mod support;
#[allow(dead_code)]
#[path = "../it/table.rs"]
mod table;
#[allow(dead_code)]
#[path = "../it/watched.rs"]
mod watched;
