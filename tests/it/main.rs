//! Integration tests, in one binary: each binary links all of DataFusion.
//!
//! What a test compares with is never computed by the crate under test: `table` reads metadata, manifest lists and
//! manifests by itself, `model` decides by itself which snapshots go, and the rest was recorded from the reference.

mod api;
mod chromium;
mod cli;
mod cli_catalogs;
mod conformance;
mod corpus;
mod decisions;
mod deletes;
mod docs;
mod generated;
mod hooked;
mod hostile;
mod inspect;
mod interleavings;
mod java_behaviours;
mod journal;
mod kills;
mod maintain_catalog;
mod metadata_scans;
mod metadata_tables;
mod model;
mod neighbours;
mod plan_tables;
mod plans;
mod progress;
mod property;
mod proxy;
mod pyiceberg;
mod races;
mod report_page;
mod security;
mod spans;
mod stores;
mod subtraction;
mod support;
mod table;
mod table_health;
mod telemetry;
mod undo;
mod watched;
mod work;
