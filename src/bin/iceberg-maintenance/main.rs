//! The command line tool: maintenance statements and subcommands, for tables of catalogs, on disks and in buckets.
//!
//! Standard output carries results and nothing else; messages, questions and errors go to standard error. The exit code
//! is 0 when everything was done, 1 when the work was done except for some deletes, some of many tables or the report, or a
//! verified table is not healthy, 130 after Ctrl-C, and 2 for every other error. A reader that goes away (`| head`) ends the output, never the work.
#![forbid(unsafe_code)]

mod arguments;
mod config;
mod demo;
mod display;
mod failure;
mod help;
mod interrupts;
mod operations;
mod output;
mod pyiceberg;
mod report;
mod session;
mod shell;
mod statements;
mod tables;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod visible;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use arguments::{Command, Options};
use failure::Failure;
use session::Session;

fn main() -> ExitCode {
    let (options, command) = arguments::parse();
    let work = std::thread::Builder::new().stack_size(session::STACK_BYTES).spawn(move || run(options, command));
    let outcome = match work.map(std::thread::JoinHandle::join) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => Err(Failure::new(format!("no thread can be started: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

fn run(options: Options, command: Command) -> Result<(), Failure> {
    let session = Session::start(&options)?;
    match command {
        Command::Statements => statements(&session, &options),
        Command::Operation(call) => operations::run(&session, call),
        Command::Tables(arguments) => tables::run(&session, &arguments),
        Command::Demo(demo) => demo::run(&session, &demo),
    }
}

fn statements(session: &Session, options: &Options) -> Result<(), Failure> {
    if !options.command.is_empty() {
        return run_scripts(session, options.command.iter().cloned().map(Ok));
    }
    if !options.file.is_empty() {
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path);
            text.map_err(|error| Failure::new(format!("{} can't be read: {error}", path.display())))
        };
        return run_scripts(session, options.file.iter().map(read));
    }
    if std::io::stdin().is_terminal() {
        return shell::run(session);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| Failure::new(format!("standard input: {e}")))?;
    run_scripts(session, std::iter::once(Ok(text)))
}

/// Runs scripts in order, until one fails or quits.
fn run_scripts(session: &Session, scripts: impl Iterator<Item = Result<String, Failure>>) -> Result<(), Failure> {
    for script in scripts {
        if session.run_script(&script?)?.is_break() {
            break;
        }
    }
    Ok(())
}
