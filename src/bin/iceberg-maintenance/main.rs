//! The command line tool: maintenance statements and two subcommands, for tables on the local disk.
//!
//! Standard output carries results and nothing else; messages, questions and errors go to standard error. The exit code
//! is 0 when everything was done, 1 when the work was done except for some deletes, and 2 for every other error. A
//! reader that goes away (`| head`) ends the output, never the work.
#![forbid(unsafe_code)]

mod arguments;
mod demo;
mod failure;
mod operations;
mod output;
mod session;
mod shell;
mod statements;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use arguments::{Command, Options};
use failure::Failure;
use session::Session;

fn main() -> ExitCode {
    let (options, command) = arguments::parse();
    match run(options, command) {
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
        Command::Demo(demo) => demo::run(&session, &demo),
    }
}

fn statements(session: &Session, options: &Options) -> Result<(), Failure> {
    if !options.command.is_empty() {
        return options.command.iter().try_for_each(|text| session.run_script(text));
    }
    if !options.file.is_empty() {
        return options.file.iter().try_for_each(|path| {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::new(format!("{} can't be read: {error}", path.display())))?;
            session.run_script(&text)
        });
    }
    if std::io::stdin().is_terminal() {
        return shell::run(session);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| Failure::new(format!("standard input: {e}")))?;
    session.run_script(&text)
}
