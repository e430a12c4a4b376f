//! Session options, `SET iceberg_maintenance.… = …`.
//!
//! The entries carry their prefix, unlike those that DataFusion's macro makes: so `SHOW`, `information_schema.df_settings`
//! and hosts that send a session's settings elsewhere name them as `SET` does.

use std::any::Any;

use datafusion::common::config_err;
use datafusion::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::execution::TaskContext;

use crate::error::{Error, Result};
use crate::storage::{ListingMode, ListingOptions};

macro_rules! maintenance_options {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr),* $(,)?) => {
        /// Options of this crate in a session's configuration.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct MaintenanceOptions {
            $($(#[doc = $doc])+ pub $name: $type,)*
        }

        impl Default for MaintenanceOptions {
            fn default() -> Self {
                Self { $($name: $default),* }
            }
        }

        impl MaintenanceOptions {
            const NAMES: &[&str] = &[$(stringify!($name)),*];
        }

        impl ExtensionOptions for MaintenanceOptions {
            fn as_any(&self) -> &dyn Any {
                self
            }

            fn as_any_mut(&mut self) -> &mut dyn Any {
                self
            }

            fn cloned(&self) -> Box<dyn ExtensionOptions> {
                Box::new(self.clone())
            }

            fn set(&mut self, key: &str, value: &str) -> datafusion::common::Result<()> {
                let name = key.strip_prefix(Self::PREFIX).and_then(|name| name.strip_prefix('.')).unwrap_or(key);
                match name {
                    $(stringify!($name) => match value.parse() {
                        Ok(value) => self.$name = value,
                        Err(_) => return config_err!("{}.{name} can't be '{value}'", Self::PREFIX),
                    },)*
                    _ => return config_err!(
                        "there is no option {}.{name}; its options are {}", Self::PREFIX, Self::NAMES.join(", ")
                    ),
                }
                Ok(())
            }

            fn entries(&self) -> Vec<ConfigEntry> {
                vec![$(ConfigEntry {
                    key: format!("{}.{}", Self::PREFIX, stringify!($name)),
                    value: Some(self.$name.to_string()),
                    description: concat!($($doc),+).trim_ascii(),
                }),*]
            }
        }
    };
}

maintenance_options! {
    /// What table functions do: `execute`, `dry_run` (every call is a dry run) or `off` (every call is refused); statements
    /// (`CALL`, `ALTER TABLE … EXECUTE`, `VACUUM`) are not affected. `plan_only`: whatever would change something is refused,
    /// by table function and by statement.
    table_functions: String = "execute".to_string(),

    /// What the lone positional timestamp of `ALTER TABLE … EXECUTE expire_snapshots('…')` means:
    /// `expire_before` (ClickHouse: only protects what is newer) or `older_than` (StarRocks, Hive: the age limit).
    positional_timestamp: String = "expire_before".to_string(),

    /// `expire_snapshots` refuses an age limit shorter than this duration. No floor by default.
    expire_snapshots_min_retention: String = "0s".to_string(),

    /// `remove_orphan_files` refuses an age limit shorter than this duration unless `ignore_floor => true`.
    remove_orphan_files_min_retention: String = "24h".to_string(),

    /// How many deletes run at once when `max_concurrent_deletes` is not given; at least 1.
    max_concurrent_deletes: usize = 32,

    /// How many folders or key ranges of an object store are listed at once; at least 1.
    max_concurrent_listings: usize = 32,

    /// How the keys of an object store are listed: `auto`, `ranges` (key ranges at once; only for stores that list in the
    /// order of keys), `folders` (folders at once) or `sequential` (one listing).
    listing: String = "auto".to_string(),

    /// How many reads of metadata files (manifest lists, manifests) run at once; at least 1.
    max_concurrent_reads: usize = 64,

    /// How many bytes of metadata files, with the rows they are decoded to, may be ahead of what uses them. A larger file is
    /// read alone; with `datafusion.runtime.memory_limit` no more than a quarter of it.
    read_ahead_bytes: usize = 67_108_864,

    /// Whether runs write their plan and outcome beside the table: `on`, or `off`. Without a journal nothing can be resumed,
    /// put off or undone.
    journal: String = "on".to_string(),

    /// How long the journal of a run that is over is kept; a later run removes it.
    journal_retention: String = "30d".to_string(),

    /// An unfinished run is taken up by the next one after this time; before that it may still be running.
    resume_after: String = "15m".to_string(),

    /// How long files stay after they became unreferenced, where neither the call (`deferred`) nor the table
    /// (`maintenance.recovery-window`) says so.
    recovery_window: String = "0s".to_string(),

    /// How many other tables of a catalog are loaded to see whether one of them uses the same location, those of the table's
    /// own namespace first; 0: none.
    shared_location_lookups: usize = 100,

    /// Who the journal says did it; the user of the operating system if empty.
    run_by: String = String::new(),
}

impl ConfigExtension for MaintenanceOptions {
    const PREFIX: &'static str = "iceberg_maintenance";
}

impl MaintenanceOptions {
    /// The options of the session that a task runs for.
    pub(crate) fn of(task: &TaskContext) -> Self {
        task.session_config().options().extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// `max_concurrent_reads` and `read_ahead_bytes`.
    pub(crate) fn reading(&self) -> (usize, usize) {
        (self.max_concurrent_reads, self.read_ahead_bytes)
    }

    /// Whether runs write a journal.
    ///
    /// # Errors
    /// [`Error::Statement`] when the option is neither on nor off.
    pub(crate) fn has_journal(&self) -> Result<bool> {
        match self.journal.as_str() {
            "on" => Ok(true),
            "off" => Ok(false),
            other => Err(Error::Statement {
                message: format!(
                    "the session option iceberg_maintenance.journal is '{other}'; it can be 'on' or 'off'"
                ),
            }),
        }
    }

    /// `resume_after` in ms.
    pub(crate) fn resume_after_ms(&self) -> Result<i64> {
        crate::procedure::duration_option("resume_after", &self.resume_after)
    }

    /// `journal_retention` in ms.
    pub(crate) fn journal_retention_ms(&self) -> Result<i64> {
        crate::procedure::duration_option("journal_retention", &self.journal_retention)
    }

    /// Who runs maintenance, as far as that is known.
    pub(crate) fn run_by(&self) -> String {
        if !self.run_by.is_empty() {
            return self.run_by.clone();
        }
        let of_system = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        of_system.unwrap_or_else(|| "unknown".into())
    }

    /// Refuses values that nothing can be done with.
    pub(crate) fn check(&self) -> Result<()> {
        for (name, value) in [
            ("max_concurrent_deletes", self.max_concurrent_deletes),
            ("max_concurrent_listings", self.max_concurrent_listings),
            ("max_concurrent_reads", self.max_concurrent_reads),
        ] {
            if value == 0 {
                return Err(Error::Statement {
                    message: format!("the session option iceberg_maintenance.{name} is 0; it must be at least 1"),
                });
            }
        }
        self.has_journal()?;
        ListingMode::parse(&self.listing).map(|_| ())
    }

    /// How folders are to be listed.
    ///
    /// # Errors
    /// [`Error::Statement`] when `listing` is no such way.
    pub(crate) fn listing_options(&self) -> Result<ListingOptions> {
        let mode = ListingMode::parse(&self.listing)?;
        Ok(ListingOptions { concurrency: self.max_concurrent_listings, mode, ..Default::default() })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::config::ConfigOptions;

    use super::*;

    #[test]
    fn every_entry_can_be_set_again_under_its_name() {
        let mut config = ConfigOptions::new();
        let changed =
            MaintenanceOptions { max_concurrent_deletes: 7, table_functions: "off".into(), ..Default::default() };
        config.extensions.insert(MaintenanceOptions::default());
        for entry in changed.entries() {
            assert!(entry.key.starts_with("iceberg_maintenance.") && !entry.description.is_empty(), "{entry:?}");
            config.set(&entry.key, entry.value.as_deref().unwrap()).unwrap();
        }
        assert_eq!(config.extensions.get(), Some(&changed));
    }

    #[test]
    fn an_unknown_option_and_a_wrong_value_are_errors_that_say_what_there_is() {
        let mut options = MaintenanceOptions::default();
        let error = options.set("table_function", "off").unwrap_err().to_string();
        assert!(error.contains("iceberg_maintenance.table_function;") && error.contains("table_functions,"), "{error}");
        let error = options.set("max_concurrent_deletes", "many").unwrap_err().to_string();
        assert!(error.contains("iceberg_maintenance.max_concurrent_deletes can't be 'many'"), "{error}");
    }
}
