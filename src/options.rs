//! Session options, `SET iceberg_maintenance.… = …`.

use datafusion::common::extensions_options;
use datafusion::config::ConfigExtension;

extensions_options! {
    /// Options of this crate in a session's configuration.
    pub struct MaintenanceOptions {
        /// What table functions do: `execute`, `dry_run` (every call is a dry run) or `off` (every call is refused).
        /// Statements (`CALL`, `ALTER TABLE … EXECUTE`, `VACUUM`) are not affected.
        pub table_functions: String, default = "execute".to_string()

        /// What the lone positional timestamp of `ALTER TABLE … EXECUTE expire_snapshots('…')` means:
        /// `expire_before` (ClickHouse: only protects what is newer) or `older_than` (StarRocks, Hive: the age limit).
        pub positional_timestamp: String, default = "expire_before".to_string()

        /// `expire_snapshots` refuses an age limit shorter than this duration. No floor by default.
        pub expire_snapshots_min_retention: String, default = "0s".to_string()

        /// `remove_orphan_files` refuses an age limit shorter than this duration unless `ignore_floor => true`.
        pub remove_orphan_files_min_retention: String, default = "24h".to_string()

        /// How many deletes run at once when `max_concurrent_deletes` is not given.
        pub max_concurrent_deletes: usize, default = 32
    }
}

impl ConfigExtension for MaintenanceOptions {
    const PREFIX: &'static str = "iceberg_maintenance";
}
