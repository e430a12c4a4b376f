//! Splitting a script into statements.
//!
//! DataFusion's tokenizer decides where a statement ends, so that a semicolon inside a string, a quoted name or a
//! comment doesn't. Its parser can't do that here: it doesn't know all maintenance statements.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// A script that can't be split: a string, name or comment has no end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unfinished(pub(crate) String);

/// The statements of a script, in order, without their semicolons. Empty ones and mere comments are left out.
pub(crate) fn split(script: &str) -> Result<Vec<&str>, Unfinished> {
    Ok(scan(script)?.0)
}

/// True when the script ends in a semicolon (white space and comments aside), so that no more input is needed.
pub(crate) fn is_complete(script: &str) -> bool {
    scan(script).is_ok_and(|(_, complete)| complete)
}

fn scan(script: &str) -> Result<(Vec<&str>, bool), Unfinished> {
    let tokens = Tokenizer::new(&GenericDialect {}, script).tokenize_with_location();
    let tokens = tokens.map_err(|error| Unfinished(error.to_string()))?;
    let lines: Vec<usize> =
        std::iter::once(0).chain(script.match_indices('\n').map(|(newline, _)| newline + 1)).collect();
    // Locations count lines and characters from 1.
    let byte_of = |line: u64, column: u64| {
        let start = lines.get(line.saturating_sub(1) as usize).copied().unwrap_or(script.len());
        let in_line = script[start..].char_indices().nth(column.saturating_sub(1) as usize);
        in_line.map_or(script.len(), |(offset, _)| start + offset)
    };
    let (mut statements, mut start, mut has_content) = (vec![], 0, false);
    for token in tokens {
        match token.token {
            Token::SemiColon => {
                let at = byte_of(token.span.start.line, token.span.start.column);
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

#[cfg(test)]
mod tests {
    use super::*;

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
