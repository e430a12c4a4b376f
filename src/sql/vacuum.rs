//! The forms of `VACUUM` that mean Iceberg maintenance.
//!
//! - `VACUUM [TABLE] t [RETAIN n HOURS] [DRY RUN]` runs `expire_snapshots` and then `remove_orphan_files` (Athena, Delta);
//! - `VACUUM CATALOG c[.namespace] [RETAIN n HOURS] [DRY RUN]` runs both on each table of a catalog, by `maintain_catalog`;
//! - `VACUUM TABLE t EXPIRE SNAPSHOTS [name = value …]` and `VACUUM TABLE t REMOVE ORPHAN FILES [name = value …]` (Dremio).
//!
//! Other systems' forms (`VACUUM FULL t`, `VACUUM (…) t`, `VACUUM`) are handed on.

use datafusion::sql::sqlparser::ast::{Expr, Ident, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::names;
use super::statement::{
    Call, Form, NamedExpr, Parsed, at_end, expected, parse_argument_name, parse_path, parse_value, refused, take_words,
    unquoted_location, word_at,
};

/// Words that are no tables after `VACUUM`: options of PostgreSQL, Redshift and Databricks.
const OPTIONS: [&str; 9] = ["FULL", "FREEZE", "VERBOSE", "ANALYZE", "SORT", "DELETE", "REINDEX", "RECLUSTER", "LITE"];

/// Reads what follows the word `VACUUM`; `None` when the form is not ours.
pub(super) fn parse(parser: &mut Parser) -> Parsed<Option<Vec<Call>>> {
    if names_a_catalog(parser) {
        parser.next_token();
        let path = parse_path(parser)?;
        let arguments = parse_retention(parser)?;
        return Ok(Some(vec![call("maintain_catalog", &path, arguments)]));
    }
    let explicit = parser.parse_keyword(Keyword::TABLE);
    if !explicit && OPTIONS.iter().any(|option| word_at(parser, 0, option)) {
        return Ok(None);
    }
    if unquoted_location(parser, "").is_some() {
        return refused("put the location in double quotes: VACUUM TABLE \"/data/t\"");
    }
    let Ok(path) = parse_path(parser) else { return Ok(None) };
    if take_words(parser, &["EXPIRE", "SNAPSHOTS"]) {
        return Ok(Some(vec![call("expire_snapshots", &path, parse_options(parser)?)]));
    }
    if take_words(parser, &["REMOVE", "ORPHAN", "FILES"]) {
        return Ok(Some(vec![call("remove_orphan_files", &path, parse_options(parser)?)]));
    }
    let arguments = parse_retention(parser)?;
    if !at_end(parser) && arguments.is_empty() && !explicit {
        return Ok(None);
    }
    Ok(Some(vec![call("expire_snapshots", &path, arguments.clone()), call("remove_orphan_files", &path, arguments)]))
}

/// True before `CATALOG c`; a table may be called `catalog`, too.
fn names_a_catalog(parser: &Parser) -> bool {
    let follows = |first, second| word_at(parser, 1, first) && word_at(parser, 2, second);
    let is_number = matches!(parser.peek_nth_token_ref(2).token, Token::Number(..));
    let is_table = follows("DRY", "RUN")
        || follows("EXPIRE", "SNAPSHOTS")
        || follows("REMOVE", "ORPHAN")
        || (word_at(parser, 1, "RETAIN") && is_number);
    word_at(parser, 0, "CATALOG") && matches!(parser.peek_nth_token_ref(1).token, Token::Word(_)) && !is_table
}

fn call(procedure: &'static str, path: &[Ident], arguments: Vec<NamedExpr>) -> Call {
    let target = Some(names::table_text(path));
    Call { procedure, form: Form::Execute, catalog: None, target, arguments }
}

/// `[RETAIN n HOURS] [DRY RUN]`.
fn parse_retention(parser: &mut Parser) -> Parsed<Vec<NamedExpr>> {
    let mut arguments = vec![];
    if take_words(parser, &["RETAIN"]) {
        let hours = match parser.next_token().token {
            Token::Number(hours, _) => hours,
            other => return Err(expected("a number of hours after RETAIN", &other)),
        };
        if !take_words(parser, &["HOURS"]) && !take_words(parser, &["HOUR"]) {
            return Err(expected("HOURS", &parser.peek_token_ref().token));
        }
        let duration = Value::SingleQuotedString(format!("{hours}h"));
        arguments.push((Some("retention_threshold".to_string()), Expr::Value(duration.into())));
    }
    if take_words(parser, &["DRY", "RUN"]) {
        arguments.push((Some("dry_run".to_string()), Expr::Value(Value::Boolean(true).into())));
    }
    Ok(arguments)
}

/// Dremio's options: `name = value`, with commas between them or without.
fn parse_options(parser: &mut Parser) -> Parsed<Vec<NamedExpr>> {
    let mut options = vec![];
    while !at_end(parser) {
        if !options.is_empty() {
            let _optional = parser.consume_token(&Token::Comma);
        }
        let Some(name) = parse_argument_name(parser) else {
            return Err(expected("an option such as older_than = '7d'", &parser.peek_token_ref().token));
        };
        options.push((Some(name), parse_value(parser)?));
    }
    Ok(options)
}
