//! The command line: flags by hand, subcommands of procedures generated from their parameters.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::operations::{self, OperationCall};
use crate::output::Format;

/// Safe and fast Apache Iceberg table maintenance.
///
/// Runs one operation as a subcommand, or SQL statements with -c and -f, or an SQL shell without any of these.
/// A table is given by its name in a catalog (--catalog), or by its location: a folder, or a URL such as s3://bucket/t.
/// Times are UTC.
#[derive(Debug, Parser)]
#[command(name = "iceberg-maintenance", version, verbatim_doc_comment, after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Run this SQL text and exit; may be given several times
    #[arg(short, long, value_name = "SQL", allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,

    /// Run the SQL statements of this file and exit; may be given several times
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    pub(crate) file: Vec<PathBuf>,

    /// How results are printed
    #[arg(long, value_enum, default_value = "table", ignore_case = true, global = true, help_heading = SESSION)]
    pub(crate) format: Format,

    /// Print results and errors, nothing else
    #[arg(short, long, global = true, help_heading = SESSION)]
    pub(crate) quiet: bool,

    /// How much memory a run may use, such as 512M or 2G; more is spilled to disk where that can be
    #[arg(short, long, value_name = "SIZE", value_parser = memory_size, global = true, help_heading = SESSION)]
    pub(crate) memory_limit: Option<usize>,

    /// How many rows are worked on at once
    #[arg(short, long, value_name = "ROWS", global = true, help_heading = SESSION)]
    pub(crate) batch_size: Option<NonZeroUsize>,

    /// A catalog, such as lake=rest+https://host/api,warehouse=w or lake=file:///data/lake; may be given several times
    #[arg(long, value_name = "NAME=KIND[,KEY=VALUE]…", global = true, help_heading = TABLES)]
    pub(crate) catalog: Vec<String>,

    /// The configuration file [default: iceberg-maintenance.toml here or in the user's configuration folder]
    #[arg(long, value_name = "FILE", env = "ICEBERG_MAINTENANCE_CONFIG", global = true, help_heading = TABLES)]
    pub(crate) config: Option<PathBuf>,

    /// A session option, such as iceberg_maintenance.max_concurrent_deletes=64; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, global = true, help_heading = SESSION)]
    pub(crate) set: Vec<(String, String)>,
}

/// The headings of the flags that every subcommand takes.
const SESSION: &str = "Output and session";
const TABLES: &str = "Where tables are";

const EXAMPLES: &str = "\
Examples:
  iceberg-maintenance demo --run
      make two small tables in ./iceberg-demo and maintain them
  iceberg-maintenance expire-snapshots /data/orders --older-than 7d --dry-run
      what would go, without changing anything
  iceberg-maintenance --catalog lake=rest+https://host/api,warehouse=w expire-snapshots lake.sales.orders --dry-run
      a table of a REST catalog; catalogs may also stand in iceberg-maintenance.toml or PyIceberg's .pyiceberg.yaml
  iceberg-maintenance remove-orphan-files /data/orders --yes --quiet --format json
      from cron: no questions, one JSON array on standard output
  iceberg-maintenance expire-snapshots /data/orders --dry-run --report orders.html
      what would go as a page for a browser; --report orders.md for a pull request
  iceberg-maintenance verify-table /data/orders
      whether every file that any snapshot needs is there; explain-file says why one file stays
  iceberg-maintenance maintain-catalog lake.sales --dry-run
      both operations on every table of a namespace
  iceberg-maintenance -q --format json -c \"CALL system.expire_snapshots(table => '/data/orders', retain_last => 5)\"

Exit codes: 0 all done, 1 done except for some deletes, some tables of a catalog or the report, or verify-table found the
table unhealthy, 2 nothing done or not finished, 130 interrupted (Ctrl-C).";

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// The folder to make; a folder that holds anything but an earlier demo is left alone
    #[arg(default_value = "iceberg-demo")]
    pub(crate) folder: PathBuf,

    /// Also run both operations on the tables, first as dry runs, and show their rows
    #[arg(long)]
    pub(crate) run: bool,
}

/// Arguments of `tables`.
#[derive(Debug, Args)]
pub(crate) struct TablesArguments {
    /// A catalog, or a namespace in one; all catalogs by default
    #[arg(value_name = "CATALOG[.NAMESPACE]")]
    pub(crate) within: Vec<String>,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    /// SQL from -c, -f, standard input or the shell.
    Statements,
    /// A procedure as a subcommand.
    Operation(OperationCall),
    /// A list of the tables of catalogs.
    Tables(TablesArguments),
    /// The demo.
    Demo(DemoArguments),
}

/// The whole command line.
fn command() -> clap::Command {
    let demo = DemoArguments::augment_args(clap::Command::new("demo"))
        .about("Make a small warehouse of real Iceberg tables to try things on")
        .after_help("Examples:\n  iceberg-maintenance demo\n  iceberg-maintenance demo --run /tmp/lake");
    let tables = TablesArguments::augment_args(clap::Command::new("tables"))
        .about("List the tables of the catalogs, by the names that the other subcommands take")
        .after_help("Examples:\n  iceberg-maintenance tables\n  iceberg-maintenance tables lake.sales");
    Options::command().subcommands(operations::commands()).subcommand(tables).subcommand(demo)
}

/// Parses the process's arguments; prints help or a usage error (exit code 2) and exits where that is due.
pub(crate) fn parse() -> (Options, Command) {
    let mut command = command();
    let matches = command.get_matches_mut();
    interpret(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

fn interpret(matches: &clap::ArgMatches) -> Result<(Options, Command), clap::Error> {
    let options = Options::from_arg_matches(matches)?;
    let Some((name, arguments)) = matches.subcommand() else { return Ok((options, Command::Statements)) };
    if !options.command.is_empty() || !options.file.is_empty() {
        let message = format!("-c and -f can't be given together with the subcommand {name}");
        return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, message));
    }
    let command = match name {
        "tables" => Command::Tables(TablesArguments::from_arg_matches(arguments)?),
        "demo" => Command::Demo(DemoArguments::from_arg_matches(arguments)?),
        name => Command::Operation(OperationCall::from_matches(name, arguments)?),
    };
    Ok((options, command))
}

/// Parses `512M`: a whole number with an optional unit K, M, G or T (powers of 1024).
fn memory_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let exponent = match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        unit => return Err(format!("unknown unit {unit:?}; use K, M, G or T")),
    };
    let number: usize = digits.parse().map_err(|_| "give a whole number with a unit, such as 512M".to_string())?;
    let bytes = number.checked_mul(1024_usize.pow(exponent)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "the size must be more than 0 and fit into memory addresses".to_string())
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    Ok((name.trim().to_string(), value.trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<(Options, Command), clap::Error> {
        let all = std::iter::once("iceberg-maintenance").chain(arguments.iter().copied());
        interpret(&command().try_get_matches_from(all)?)
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn global_flags_work_before_and_after_the_subcommand() {
        for arguments in
            [["-q", "--format", "json", "expire-snapshots", "/t"], ["expire-snapshots", "/t", "-q", "--format", "JSON"]]
        {
            let (options, command) = parse(&arguments).unwrap();
            assert!(options.quiet && options.format == Format::Json, "{options:?}");
            assert!(matches!(command, Command::Operation(_)));
        }
    }

    #[test]
    fn a_statement_may_begin_with_a_comment_or_a_minus() {
        for statement in ["-- note\nSELECT 1", "-1"] {
            let (options, _) = parse(&["-q", "-c", statement, "-c", "SELECT 2"]).unwrap();
            assert_eq!(options.command, [statement, "SELECT 2"]);
        }
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for arguments in [
            &["-c", "SELECT 1", "-f", "x.sql"][..],
            &["-c", "SELECT 1", "demo"],
            &["expire-snapshots"],
            &["expire-snapshots", "/t", "--unknown"],
            &["expire-snapshots", "/t", "--retain-last", "0"],
            &["expire-snapshots", "/t", "--output", "nothing"],
            &["--format", "xml"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn memory_sizes() {
        assert_eq!(memory_size("1K"), Ok(1024));
        assert_eq!(memory_size("2GiB"), Ok(2 << 30));
        assert_eq!(memory_size("77"), Ok(77));
        for bad in ["", "K", "0", "-1", "1X", "1.5G", "99999999999T"] {
            assert!(memory_size(bad).is_err(), "{bad}");
        }
    }
}
