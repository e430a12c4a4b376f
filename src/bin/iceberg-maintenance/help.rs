//! What the help of each subcommand says besides its flags.

use crate::operations::MAINTAIN_CATALOG;

/// What the help of a subcommand says besides its flags.
pub(crate) struct Help {
    pub(crate) procedure: &'static str,
    pub(crate) about: &'static str,
    /// It may delete files, and asks first.
    pub(crate) acts: bool,
    /// The argument besides the table that is no flag.
    pub(crate) positional: Option<&'static str>,
    pub(crate) examples: &'static str,
}

/// One for each procedure.
pub(crate) const HELP: [Help; 16] = [
    Help {
        procedure: "expire_snapshots",
        about: "Expire old snapshots, and delete the files that only they needed",
        acts: true,
        positional: None,
        examples: "\
Without an age, snapshots older than 5 days (or the table's history.expire.max-snapshot-age-ms) expire. Branches, tags
and their own retention settings are respected.

Examples:
  iceberg-maintenance expire-snapshots /data/orders --dry-run
  iceberg-maintenance expire-snapshots /data/orders --older-than 7d --retain-last 3
  iceberg-maintenance expire-snapshots /data/orders --older-than '2026-01-31 12:00:00' --yes
  iceberg-maintenance expire-snapshots /data/orders --snapshot-ids 5830000000000000001,5830000000000000002 --yes
  iceberg-maintenance expire-snapshots /data/orders --dry-run --output snapshots",
    },
    Help {
        procedure: "remove_orphan_files",
        about: "Delete files in a table's folders that no snapshot and no metadata names",
        acts: true,
        positional: None,
        examples: "\
Without an age, files that were last modified more than 3 days ago are looked at.

Examples:
  iceberg-maintenance remove-orphan-files /data/orders --dry-run --output files
  iceberg-maintenance remove-orphan-files /data/orders --older-than 10d --max-delete-count 1000 --yes
  iceberg-maintenance remove-orphan-files /data/orders --location data --yes",
    },
    Help {
        procedure: MAINTAIN_CATALOG,
        about: "Expire snapshots and remove orphan files of every table of a catalog, or of a namespace in it",
        acts: true,
        positional: None,
        examples: "\
Each table's own policy applies, and the tables that promise most come first. One row a table; a table that fails doesn't
stop the others. Exit code 1 when some failed, 2 when all did.

Examples:
  iceberg-maintenance maintain-catalog lake --dry-run
  iceberg-maintenance maintain-catalog lake.sales --exclude 'sales.tmp_*,sales.audit' --max-run-time 2h --yes
  iceberg-maintenance maintain-catalog lake --operations expire_snapshots --max-total-delete-count 100000 --yes
  iceberg-maintenance maintain-catalog lake --dry-run --report-dropped --format ndjson",
    },
    Help {
        procedure: "execute_plan",
        about: "Do what a dry run stored with --plan, and nothing more",
        acts: true,
        positional: Some("plan"),
        examples: "\
Every file of the plan is checked again. A plan of another table, one that was edited, and one that doesn't fit the table
any more are refused.

Examples:
  iceberg-maintenance expire-snapshots /data/orders --older-than 7d --dry-run --plan /reviews/orders.plan
  iceberg-maintenance execute-plan /data/orders /reviews/orders.plan --dry-run --output files
  iceberg-maintenance execute-plan /data/orders /reviews/orders.plan --yes",
    },
    Help {
        procedure: "resume_maintenance",
        about: "Finish runs that were cut short, or whose deletes failed",
        acts: true,
        positional: None,
        examples: "\
Every file of such a run is checked again against the newest metadata before it goes.

Examples:
  iceberg-maintenance resume-maintenance /data/orders --dry-run --output files
  iceberg-maintenance resume-maintenance /data/orders --yes",
    },
    Help {
        procedure: "purge_deferred_files",
        about: "Delete the files of deferred runs whose recovery window has passed",
        acts: true,
        positional: None,
        examples: "\
Examples:
  iceberg-maintenance purge-deferred-files /data/orders --dry-run
  iceberg-maintenance purge-deferred-files /data/orders --run 20260131T120000000Z-0123abcd --ignore-window --yes",
    },
    Help {
        procedure: "restore_snapshots",
        about: "Put back the snapshots and refs that a run expired, as long as all their files are there",
        acts: false,
        positional: Some("run"),
        examples: "\
Examples:
  iceberg-maintenance restore-snapshots /data/orders 20260131T120000000Z-0123abcd --dry-run
  iceberg-maintenance restore-snapshots /data/orders 20260131T120000000Z-0123abcd",
    },
    Help {
        procedure: "restore_quarantined_files",
        about: "Move the files of a run back from quarantine to where they were",
        acts: false,
        positional: Some("run"),
        examples: "\
Examples:
  iceberg-maintenance restore-quarantined-files /data/orders 20260131T120000000Z-0123abcd --dry-run",
    },
    Help {
        procedure: "purge_quarantined_files",
        about: "Delete what is in quarantine",
        acts: true,
        positional: None,
        examples: "\
Examples:
  iceberg-maintenance purge-quarantined-files /data/orders --older-than 30d --yes",
    },
    Help {
        procedure: "maintenance_log",
        about: "Show the runs that the journal of a table has, and their files",
        acts: false,
        positional: None,
        examples: "\
Examples:
  iceberg-maintenance maintenance-log /data/orders
  iceberg-maintenance maintenance-log /data/orders --output files --run 20260131T120000000Z-0123abcd",
    },
    Help {
        procedure: "iceberg_expire_plan",
        about: "Show for each snapshot, ref or file what an expiry would do, and by which rule",
        acts: false,
        positional: None,
        examples: "\
Examples:
  iceberg-maintenance iceberg-expire-plan /data/orders --older-than 7d
  iceberg-maintenance iceberg-expire-plan /data/orders --output files --format csv",
    },
    Help {
        procedure: "iceberg_orphan_files",
        about: "Show the files that nothing names, with their sizes and ages",
        acts: false,
        positional: None,
        examples: "\
Examples:
  iceberg-maintenance iceberg-orphan-files /data/orders --older-than 10d",
    },
    Help {
        procedure: "snapshot_sizes",
        about: "Show what each snapshot holds alone, and what expiring everything up to it would free",
        acts: false,
        positional: None,
        examples: "\
Examples:
  iceberg-maintenance snapshot-sizes /data/orders",
    },
    Help {
        procedure: "table_health",
        about: "Show what a table is made of, what is wrong with it, and what to do about it",
        acts: false,
        positional: None,
        examples: "\
Reads the metadata and one manifest list; --exact reads the manifests, --orphans lists the table's folders.

Examples:
  iceberg-maintenance table-health /data/orders
  iceberg-maintenance table-health /data/orders --exact --orphans --output recommendations",
    },
    Help {
        procedure: "verify_table",
        about: "Check that every file which any snapshot needs is there and what it should be",
        acts: false,
        positional: None,
        examples: "\
One row for each thing that is wrong, and the verdict as the last. Exit code 1 when the table is unhealthy. Reads only.

Examples:
  iceberg-maintenance verify-table /data/orders
  iceberg-maintenance verify-table /data/orders --quiet --format ndjson",
    },
    Help {
        procedure: "explain_file",
        about: "Say why a file is kept, or what would remove it",
        acts: false,
        positional: Some("path"),
        examples: "\
The file is a location in any spelling, or a path relative to the table's. Reads only.

Examples:
  iceberg-maintenance explain-file /data/orders data/part-0.parquet
  iceberg-maintenance explain-file s3://bucket/orders s3a://bucket/orders/metadata/v3.metadata.json",
    },
];
