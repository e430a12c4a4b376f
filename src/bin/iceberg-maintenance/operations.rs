//! The procedures as subcommands: a procedure's parameters as flags, and the question before deleting.
//!
//! The flags come from the parameters that SQL knows, so that both have the same names, kinds and meaning. A call becomes
//! one `CALL` statement whose values are quoted literals.

use std::io::{IsTerminal, Write};
use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use datafusion::arrow::array::RecordBatch;
use iceberg_maintenance::parameters::{Parameter, ParameterKind};

use crate::failure::Failure;
use crate::help::HELP;
use crate::output::{self, Format};
use crate::report::{self, ReportFile, Subject};
use crate::session::Session;

/// The one procedure that works on a whole catalog: its rows are tables.
pub(crate) const MAINTAIN_CATALOG: &str = "maintain_catalog";

/// The argument that is the catalog: `--catalog` says where catalogs are.
const WITHIN: &str = "within";

/// Parameters that make no sense on a command line: it has no relations, and Spark's scripts don't run here.
const NOT_FLAGS: [&str; 4] = ["file_list_view", "max_file_list_age", "prefix_listing", "stream_results"];

fn flags(procedure: &str) -> impl Iterator<Item = &'static Parameter> {
    let parameters = iceberg_maintenance::parameters::of(procedure).unwrap_or_default();
    parameters.iter().filter(|parameter| !NOT_FLAGS.contains(&parameter.name))
}

/// The subcommands.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    HELP.iter().map(|help| {
        let yes = Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("delete without asking");
        Command::new(kebab(help.procedure))
            .about(help.about)
            .after_help(help.examples)
            .args(flags(help.procedure).map(|parameter| {
                match help.positional == Some(parameter.name) {
                    true => Arg::new(parameter.name)
                        .help(parameter.help)
                        .value_name(parameter.name.to_uppercase())
                        .required(true),
                    false => flag(parameter),
                }
            }))
            .args(help.acts.then(|| [yes, report_flag()]).into_iter().flatten())
    })
}

fn report_flag() -> Arg {
    Arg::new("report")
        .long("report")
        .value_name("FILE")
        .action(ArgAction::Append)
        .value_parser(ReportFile::parse)
        .help("also write a report of the run: a page (.html) or Markdown (.md); may be given several times")
}

fn kebab(name: &str) -> String {
    name.replace('_', "-")
}

fn flag(parameter: &'static Parameter) -> Arg {
    let arg = Arg::new(parameter.name).help(parameter.help);
    if parameter.kind == ParameterKind::Table {
        return arg
            .value_name("TABLE")
            .required(true)
            .help("the table: its name in a catalog, or its folder or location");
    }
    if parameter.kind == ParameterKind::Catalog {
        return arg.id(WITHIN).value_name("CATALOG[.NAMESPACE]").required(true);
    }
    let arg = arg.long(kebab(parameter.name)).aliases(parameter.aliases.iter().map(|alias| kebab(alias)));
    match parameter.kind {
        ParameterKind::Boolean => {
            let arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true").hide_possible_values(true);
            arg.value_parser(value_parser!(bool)).value_name("BOOL")
        }
        ParameterKind::Integer(least) => arg.value_parser(value_parser!(i64).range(least..)).value_name("N"),
        ParameterKind::Fraction => arg.value_parser(fraction).value_name("FRACTION"),
        ParameterKind::Ids => {
            arg.value_parser(value_parser!(i64)).value_delimiter(',').action(ArgAction::Append).value_name("IDS")
        }
        ParameterKind::Choice(words) => {
            arg.value_parser(PossibleValuesParser::new(words)).ignore_case(true).value_name("WORD")
        }
        ParameterKind::Timestamp => arg.value_name("TIME|AGE"),
        ParameterKind::Duration => arg.value_name("DURATION"),
        ParameterKind::Map => arg.value_name("A,B=>C"),
        ParameterKind::Table | ParameterKind::Catalog | ParameterKind::Text => arg.value_name("TEXT"),
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "give a number from 0 to 1")?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err("give a number from 0 to 1".into()) }
}

/// A procedure call as the command line gave it.
#[derive(Debug, Clone)]
pub(crate) struct OperationCall {
    procedure: &'static str,
    /// The name of the argument that says what is worked on.
    subject: &'static str,
    /// The table or catalog.
    table: String,
    /// Names and SQL literals, besides the table or catalog.
    arguments: Vec<(&'static str, String)>,
    dry_run: bool,
    /// Nobody is asked: it was agreed to, or there is nothing to agree to.
    yes: bool,
    /// Where reports of it go.
    reports: Vec<ReportFile>,
}

impl OperationCall {
    /// Reads the matches of a subcommand.
    pub(crate) fn from_matches(name: &str, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some(help) = HELP.iter().find(|help| kebab(help.procedure) == name) else {
            return Err(clap::Error::raw(clap::error::ErrorKind::InvalidSubcommand, format!("no subcommand {name}")));
        };
        let procedure = help.procedure;
        let (subject, table) = match procedure {
            MAINTAIN_CATALOG => ("catalog", matches.get_one::<String>(WITHIN).cloned()),
            _ => ("table", matches.get_one::<String>("table").map(|table| absolute(table))),
        };
        let table = table.unwrap_or_default();
        let is_flag = |kind| kind != ParameterKind::Table && kind != ParameterKind::Catalog;
        let given = flags(procedure).filter(|parameter| is_flag(parameter.kind));
        let arguments = given.filter_map(|parameter| Some((parameter.name, literal(parameter, matches)?))).collect();
        let dry_run = help.acts && matches.get_one::<bool>("dry_run").copied().unwrap_or(false);
        let yes = !help.acts || matches.get_flag("yes");
        let reports =
            if help.acts { matches.get_many("report").into_iter().flatten().cloned().collect() } else { vec![] };
        Ok(Self { procedure, subject, table, arguments, dry_run, yes, reports })
    }

    /// A call without arguments besides the table.
    pub(crate) fn new(procedure: &'static str, table: &str) -> Self {
        let (arguments, reports) = Default::default();
        Self { procedure, subject: "table", table: absolute(table), arguments, dry_run: false, yes: true, reports }
    }

    /// The same call with one more argument, in place of one of that name.
    pub(crate) fn with(&self, name: &'static str, literal: impl Into<String>) -> Self {
        let mut call = self.clone();
        call.arguments.retain(|(given, _)| *given != name);
        call.arguments.push((name, literal.into()));
        call
    }

    fn is_given(&self, name: &str) -> bool {
        self.arguments.iter().any(|(given, _)| *given == name)
    }

    /// The statement.
    pub(crate) fn sql(&self) -> String {
        let table = (self.subject, quoted(&self.table));
        let arguments =
            std::iter::once(&table).chain(&self.arguments).map(|(name, literal)| format!("{name} => {literal}"));
        format!("CALL system.{}({})", self.procedure, arguments.collect::<Vec<_>>().join(", "))
    }
}

/// A text as an SQL literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The value of a flag as an SQL literal; `None` when the flag isn't given.
fn literal(parameter: &Parameter, matches: &ArgMatches) -> Option<String> {
    let name = parameter.name;
    match parameter.kind {
        ParameterKind::Boolean => matches.get_one::<bool>(name).map(bool::to_string),
        ParameterKind::Integer(_) => matches.get_one::<i64>(name).map(i64::to_string),
        ParameterKind::Fraction => matches.get_one::<f64>(name).map(|number| format!("{number:?}")),
        ParameterKind::Ids => {
            let ids: Vec<String> = matches.get_many::<i64>(name)?.map(i64::to_string).collect();
            Some(quoted(&ids.join(",")))
        }
        _ => matches.get_one::<String>(name).map(|text| quoted(text)),
    }
}

/// SQL takes absolute locations only; here a folder below the working folder will do.
fn absolute(table: &str) -> String {
    let folder = Path::new(table);
    match folder.canonicalize() {
        Ok(path) if folder.is_relative() && path.is_dir() => path.to_string_lossy().into_owned(),
        _ => table.to_string(),
    }
}

/// Runs an operation, after asking where that is due, and writes the reports of it that are wanted.
pub(crate) fn run(session: &Session, call: OperationCall) -> Result<(), Failure> {
    if call.reports.is_empty() {
        return run_one(session, &call);
    }
    let OperationCall { procedure, dry_run, .. } = call;
    let subject = Subject { procedure, name: &call.table, is_catalog: procedure == MAINTAIN_CATALOG, dry_run };
    report::around(session, subject, &call.reports, || run_one(session, &call))
}

fn run_one(session: &Session, call: &OperationCall) -> Result<(), Failure> {
    if call.procedure == "verify_table" {
        return verify(session, call);
    }
    if call.dry_run || call.yes {
        return session.run_statement(&call.sql());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::new(format!(
            "{} deletes files, and there is no terminal to ask on: give --yes to go on, or --dry-run to see what would go",
            kebab(call.procedure)
        )));
    }
    if call.procedure == MAINTAIN_CATALOG {
        return ask_for_catalog(session, call);
    }
    let (preview, failure) = session.preview(&call.with("dry_run", "true").with("output", "'metrics'").sql());
    if let Some(failure) = failure {
        return Err(failure);
    }
    show(&preview)?;
    let value = |name| output::metric(&preview, name).unwrap_or(0);
    // Files that wait or move count as such that go.
    let counts = ["deleted_files_count", "deferred_files_count", "quarantined_files_count"];
    let files: i64 = counts.into_iter().map(&value).sum();
    let Some(question) = question(value) else {
        session.say("There is nothing to do.");
        return Ok(());
    };
    if !confirmed(&question)? {
        return Err(Failure::refused());
    }
    // What was agreed to is a number of files: a plan that has grown since then is refused.
    let takes_limit = flags(call.procedure).any(|parameter| parameter.name == "max_delete_count");
    let call = match takes_limit && !call.is_given("max_delete_count") {
        true => call.with("max_delete_count", files.to_string()),
        false => call.clone(),
    };
    session.run_statement(&call.sql())
}

fn show(preview: &[RecordBatch]) -> Result<(), Failure> {
    let table = output::render(preview, Format::Table)
        .map_err(|error| Failure::new(format!("the dry run's rows can't be shown: {error}")))?;
    eprint!("{}", String::from_utf8_lossy(&table));
    Ok(())
}

/// Asks once for all tables of a catalog, after a dry run. Tables that fail in it are told, and don't keep the others from
/// their turn.
fn ask_for_catalog(session: &Session, call: &OperationCall) -> Result<(), Failure> {
    if call.arguments.iter().any(|(name, value)| *name == "concurrency" && value != "1") {
        return Err(Failure::new(
            "what is agreed to is a number of files, which tables that are maintained at once can't share: leave \
             --concurrency out, or give --yes",
        ));
    }
    let (preview, failure) = session.preview(&call.with("dry_run", "true").sql());
    show(&preview)?;
    if let Some(failure) = failure.as_ref().filter(|failure| failure.is_partial()) {
        session.say(&format!("Note: {}", failure.message()));
    }
    // Some tables failed: the others have their turn.
    let failed = match failure {
        Some(failure) if failure.is_partial() => Err(failure),
        Some(failure) => return Err(failure),
        None => Ok(()),
    };
    let sum = |names: &[&str]| names.iter().map(|name| output::sum(&preview, name)).sum::<i64>();
    let question = question(|name| match name {
        "deleted_snapshots_count" => sum(&[name]),
        "deleted_files_count" => sum(&[name, "orphan_files_count"]),
        "deferred_files_count" | "deferred_bytes" => sum(&[name]),
        "deleted_bytes" => sum(&[name, "orphan_bytes"]),
        _ => 0,
    });
    let Some(question) = question else {
        session.say("There is nothing to do.");
        return failed;
    };
    if !confirmed(&question)? {
        return Err(Failure::refused());
    }
    let files = sum(&["deleted_files_count", "orphan_files_count", "deferred_files_count"]);
    let call = match call.is_given("max_total_delete_count") {
        true => call.clone(),
        false => call.with("max_total_delete_count", files.to_string()),
    };
    session.run_statement(&call.sql())
}

/// Prints what a verification found. A table that is not healthy is a failure of its own exit code.
fn verify(session: &Session, call: &OperationCall) -> Result<(), Failure> {
    let rows = session.rows(&call.sql())?;
    session.print(&rows)?;
    match output::has_row(&rows, "problem", "unhealthy") {
        true => Err(Failure::unhealthy(&call.table)),
        false => Ok(()),
    }
}

/// What the metric rows of a dry run ask for; `None` when they would change nothing.
fn question(metric: impl Fn(&'static str) -> i64) -> Option<String> {
    let changes = [
        ("Expire", "deleted_snapshots_count", "snapshots"),
        ("Remove", "removed_refs_count", "refs"),
        ("Remove", "removed_partition_specs_count", "partition specs"),
        ("Remove", "removed_schemas_count", "schemas"),
    ];
    let given = changes.into_iter().map(|(verb, name, noun)| (verb, metric(name), noun)).filter(|(_, n, _)| *n > 0);
    let mut parts: Vec<String> = given.map(|(verb, count, noun)| format!("{verb} {count} {noun}")).collect();
    let files = [
        ("Delete", "deleted_files_count", "files", "deleted_bytes"),
        ("Put off the deletion of", "deferred_files_count", "files", "deferred_bytes"),
        ("Move", "quarantined_files_count", "files into quarantine", "quarantined_bytes"),
    ];
    let files = files.into_iter().map(|(verb, name, noun, bytes)| (verb, metric(name), noun, metric(bytes)));
    let files: Vec<_> = files.filter(|(_, count, ..)| *count > 0).collect();
    if parts.is_empty() && files.is_empty() {
        return None;
    }
    match files.is_empty() {
        true => parts.push("Delete no files".into()),
        false => {
            parts.extend(
                files.iter().map(|(verb, count, noun, bytes)| format!("{verb} {count} {noun} ({bytes} bytes)")),
            );
        }
    }
    let later = parts.iter().skip(1).map(|part| format!("{}{}", part[..1].to_ascii_lowercase(), &part[1..]));
    let all: Vec<String> = parts.first().cloned().into_iter().chain(later).collect();
    Some(format!("{}? [y/N] ", all.join(" and ")))
}

fn confirmed(question: &str) -> Result<bool, Failure> {
    let unreadable = |error| Failure::new(format!("no answer: {error}"));
    let mut stderr = std::io::stderr();
    stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush()).map_err(unreadable)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(unreadable)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &[&str]) -> OperationCall {
        let matches = Command::new("test")
            .subcommands(commands())
            .get_matches_from(std::iter::once("test").chain(arguments.iter().copied()));
        let (name, matches) = matches.subcommand().unwrap();
        OperationCall::from_matches(name, matches).unwrap()
    }

    #[test]
    fn flags_become_arguments_of_the_same_name() {
        let call = call(&[
            "expire-snapshots",
            "/data/it's",
            "--older-than",
            "5d",
            "--retain-last=3",
            "--snapshot-ids",
            "1,2",
            "--snapshot-ids=3",
            "--clean-expired-metadata",
            "--dry-run=false",
            "--output",
            "FILES",
        ]);
        assert_eq!(
            call.sql(),
            "CALL system.expire_snapshots(table => '/data/it''s', older_than => '5d', retain_last => 3, \
             snapshot_ids => '1,2,3', clean_expired_metadata => true, dry_run => false, output => 'FILES')"
        );
        assert!(!call.dry_run && !call.yes);
    }

    #[test]
    fn aliases_of_sql_arguments_are_flags_too() {
        let call = call(&["remove-orphan-files", "/t", "--min-age", "7d", "--equal-schemes", "s3a,s3n=>s3", "--yes"]);
        assert_eq!(
            call.sql(),
            "CALL system.remove_orphan_files(table => '/t', equal_schemes => 's3a,s3n=>s3', retention_threshold => '7d')"
        );
        assert!(call.yes);
    }

    #[test]
    fn a_relative_folder_becomes_absolute_and_anything_else_stays() {
        assert_eq!(
            absolute("src"),
            std::env::current_dir().unwrap().join("src").canonicalize().unwrap().to_str().unwrap()
        );
        for other in ["no-such-folder", "s3://bucket/t", "file:///t", "/t"] {
            assert_eq!(absolute(other), other);
        }
    }

    #[test]
    fn what_only_reads_takes_no_yes_and_needs_none() {
        let call = call(&["explain-file", "/t", "data/it's.parquet"]);
        assert_eq!(call.sql(), "CALL system.explain_file(table => '/t', path => 'data/it''s.parquet')");
        assert!(call.yes);
        for wrong in [&["test", "verify-table", "/t", "--yes"][..], &["test", "explain-file", "/t"]] {
            assert!(Command::new("test").subcommands(commands()).try_get_matches_from(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_catalog_is_named_as_it_is() {
        let call =
            call(&["maintain-catalog", "src", "--exclude", "db.*", "--max-run-time=2h", "--concurrency=2", "-y"]);
        assert_eq!(
            call.sql(),
            "CALL system.maintain_catalog(catalog => 'src', exclude => 'db.*', max_run_time => '2h', concurrency => 2)"
        );
        assert!(call.yes && !call.dry_run);
    }

    #[test]
    fn a_dry_run_is_one_whatever_was_agreed_to() {
        let call = call(&["expire-snapshots", "/t", "--yes", "--dry-run"]);
        assert_eq!(call.sql(), "CALL system.expire_snapshots(table => '/t', dry_run => true)");
    }

    #[test]
    fn the_question_names_what_goes() {
        let ask = |rows: &[(&str, i64)]| question(|name| rows.iter().find(|row| row.0 == name).map_or(0, |row| row.1));
        let (snapshots, files, bytes) = ("deleted_snapshots_count", "deleted_files_count", "deleted_bytes");
        assert_eq!(ask(&[(files, 6), (bytes, 7)]).unwrap(), "Delete 6 files (7 bytes)? [y/N] ");
        assert_eq!(ask(&[(snapshots, 2)]).unwrap(), "Expire 2 snapshots and delete no files? [y/N] ");
        let (deferred, deferred_bytes) = (("deferred_files_count", 6), ("deferred_bytes", 7));
        assert_eq!(ask(&[deferred, deferred_bytes]).unwrap(), "Put off the deletion of 6 files (7 bytes)? [y/N] ");
        let quarantined = [("quarantined_files_count", 6), ("quarantined_bytes", 7)];
        assert_eq!(ask(&quarantined).unwrap(), "Move 6 files into quarantine (7 bytes)? [y/N] ");
        assert_eq!(
            ask(&[(snapshots, 2), ("removed_refs_count", 1), (files, 3), (bytes, 9)]).unwrap(),
            "Expire 2 snapshots and remove 1 refs and delete 3 files (9 bytes)? [y/N] "
        );
        assert_eq!(ask(&[("retained_snapshots_count", 5)]), None, "nothing to do is no question");
    }
}
