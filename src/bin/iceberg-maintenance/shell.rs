//! The interactive shell.

use std::ops::ControlFlow;
use std::path::PathBuf;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::failure::Failure;
use crate::session::Session;
use crate::statements;

const HELP: &str = "\
Statements end with a semicolon and may span lines. Every DataFusion statement works, and:
  CALL system.expire_snapshots(table => '/data/t', older_than => '7d', dry_run => true);
  CALL system.remove_orphan_files(table => '/data/t', dry_run => true, output => 'files');
  SELECT * FROM verify_table('/data/t');
  SELECT * FROM explain_file('/data/t', 'data/a.parquet');
  ALTER TABLE \"/data/t\" EXECUTE expire_snapshots(retention_threshold => '7d');
  SELECT * FROM expire_snapshots('/data/t', dry_run => true) WHERE metric_value > 0;
Ctrl-C stops the running statement. \\q, quit, exit or Ctrl-D leaves.";

/// What a line means to the shell itself.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Quit,
    Help,
    Unknown,
    Sql,
}

impl Line {
    fn of(line: &str, is_first: bool) -> Self {
        let word = line.trim().trim_end_matches(';').trim_end();
        match word {
            _ if !is_first => Line::Sql,
            _ if statements::is_quit(line) => Line::Quit,
            "\\?" | "\\h" | "help" => Line::Help,
            _ if word.starts_with('\\') => Line::Unknown,
            _ => Line::Sql,
        }
    }
}

/// Reads and runs statements until the user leaves. A failed statement is reported and doesn't end the session.
pub(crate) fn run(session: &Session) -> Result<(), Failure> {
    let broken = |error: ReadlineError| Failure::new(format!("the terminal can't be used: {error}"));
    let mut editor = DefaultEditor::new().map_err(broken)?;
    let history = history_file();
    // The shell works without its history.
    let _ = history.as_ref().map(|path| editor.load_history(path));
    session.say(&format!("iceberg-maintenance {}. \\? for help, \\q to quit.", env!("CARGO_PKG_VERSION")));
    let mut input = String::new();
    loop {
        let prompt = if input.is_empty() { "iceberg> " } else { "      -> " };
        let line = match editor.readline(prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                input.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(broken(error)),
        };
        match Line::of(&line, input.is_empty()) {
            Line::Quit => break,
            Line::Help => session.say(HELP),
            Line::Unknown => session.say("Unknown command. \\? for help."),
            Line::Sql => {
                input.push_str(&line);
                if statements::is_complete(&input) {
                    let statement = std::mem::take(&mut input);
                    let _ = editor.add_history_entry(statement.trim());
                    match session.run_script(&statement) {
                        Ok(ControlFlow::Continue(())) => {}
                        Ok(ControlFlow::Break(())) => break,
                        Err(failure) => failure.print(),
                    }
                } else {
                    input.push('\n');
                }
            }
        }
    }
    let _ = history.map(|path| {
        path.parent().map(std::fs::create_dir_all);
        editor.save_history(&path)
    });
    Ok(())
}

/// The history file in the user's state folder (XDG base directories; the local application data on Windows).
fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME")
        .or_else(|| folder("LOCALAPPDATA"))
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("iceberg-maintenance").join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_known_on_a_first_line_only() {
        for (line, meaning) in [
            ("\\q", Line::Quit),
            (" exit; ", Line::Quit),
            ("QUIT", Line::Quit),
            ("\\?", Line::Help),
            ("\\x", Line::Unknown),
            ("SELECT 1;", Line::Sql),
        ] {
            assert_eq!(Line::of(line, true), meaning, "{line}");
            assert_eq!(Line::of(line, false), Line::Sql, "{line}");
        }
    }
}
