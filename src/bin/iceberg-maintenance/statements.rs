//! Splitting a script into statements.
//!
//! DataFusion's tokenizer decides where a statement ends, so that a semicolon inside a string, a quoted name or a
//! comment doesn't. Its parser can't do that here: it doesn't know all maintenance statements.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

/// A script that can't be split: a string, name or comment has no end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unfinished(pub(crate) String);

/// The statements of a script, in order, without their semicolons. Empty ones and mere comments are left out, and so is
/// the byte order mark that some editors put first.
pub(crate) fn split(script: &str) -> Result<Vec<&str>, Unfinished> {
    Ok(scan(script.strip_prefix('\u{feff}').unwrap_or(script))?.0)
}

/// True for a line that says that there is nothing more to do.
pub(crate) fn is_quit(line: &str) -> bool {
    let word = line.trim().trim_end_matches(';').trim_end();
    word == "\\q" || word.eq_ignore_ascii_case("quit") || word.eq_ignore_ascii_case("exit")
}

/// True when the script ends in a semicolon (white space and comments aside), so that no more input is needed.
pub(crate) fn is_complete(script: &str) -> bool {
    scan(script).is_ok_and(|(_, complete)| complete)
}

fn scan(script: &str) -> Result<(Vec<&str>, bool), Unfinished> {
    let tokens = Tokenizer::new(&GenericDialect {}, script).tokenize_with_location();
    let tokens = tokens.map_err(|error| Unfinished(error.to_string()))?;
    let mut position = Position { script, line: 1, column: 1, byte: 0 };
    let (mut statements, mut start, mut has_content) = (vec![], 0, false);
    for token in tokens {
        match token.token {
            Token::SemiColon => {
                let at = position.advance(token.span.start);
                if has_content {
                    statements.push(script[start..at].trim());
                }
                (start, has_content) = (at + 1, false);
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => has_content = true,
        }
    }
    if has_content {
        statements.push(script[start..].trim());
    }
    Ok((statements, !has_content))
}

/// A place in a script. It only moves on, so that all places together cost one walk through the script.
struct Position<'a> {
    script: &'a str,
    /// Line and column count characters from 1, as the tokenizer does.
    line: u64,
    column: u64,
    byte: usize,
}

impl Position<'_> {
    /// The byte offset of a location that doesn't lie before the last one.
    fn advance(&mut self, to: Location) -> usize {
        let mut rest = self.script[self.byte..].chars();
        while (self.line, self.column) < (to.line, to.column)
            && let Some(next) = rest.next()
        {
            self.byte += next.len_utf8();
            (self.line, self.column) = if next == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_statements_are_split_in_a_moment() {
        let start = std::time::Instant::now();
        assert_eq!(split(&";".repeat(100_000)), Ok(vec![]));
        assert_eq!(split(&"ä;".repeat(100_000)).unwrap().len(), 100_000);
        assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_statement() {
        assert_eq!(split("\u{feff}SELECT 'ü';SELECT 2").unwrap(), ["SELECT 'ü'", "SELECT 2"]);
    }

    #[test]
    fn only_a_semicolon_between_statements_ends_one() {
        let script = "SELECT 'a;b', \"c;d\" -- e;f\n;; /* g; */\nCALL system.x(table => 'ü;'';');\n SELECT 3 ";
        assert_eq!(
            split(script).unwrap(),
            ["SELECT 'a;b', \"c;d\" -- e;f", "/* g; */\nCALL system.x(table => 'ü;'';')", "SELECT 3"]
        );
    }

    #[test]
    fn comments_and_nothing_are_no_statements() {
        for script in ["", " \n", ";", "-- x", "/* x */ ;\n;"] {
            assert_eq!(split(script), Ok(vec![]), "{script:?}");
        }
    }

    #[test]
    fn input_goes_on_until_a_semicolon_outside_of_strings() {
        assert!(is_complete("SELECT 1;  -- done"));
        assert!(is_complete(""));
        for open in ["SELECT 1", "SELECT 'a;", "SELECT 1; SELECT", "/* ;"] {
            assert!(!is_complete(open), "{open}");
        }
    }

    #[test]
    fn an_open_string_is_an_error_that_says_so() {
        assert!(split("SELECT 'x").unwrap_err().0.contains("Unterminated"));
    }
}
