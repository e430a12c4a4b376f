//! From the text of a statement to what it calls. Pure: no session, no I/O.
//!
//! Ours are, with `EXPLAIN [ANALYZE] [VERBOSE] [FORMAT x]` in front or not, and keywords in any case:
//! - `CALL [[catalog.]system.]procedure(arguments)`;
//! - `ALTER TABLE [IF EXISTS] table EXECUTE procedure[(arguments)]`, and Hive's phrases in the place of the procedure;
//! - `VACUUM`, in [`super::vacuum`]'s forms.
//!
//! Everything else is handed on untouched. Only the first tokens decide, so that text which merely mentions a procedure
//! is never taken for a call; once a statement is ours, whatever doesn't fit is an error. (`IF EXISTS` is accepted, but a
//! missing table stays an error, which says where the table was looked for.)

use datafusion::sql::sqlparser::ast::{self, Expr, Ident};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{names, vacuum};
use crate::error::{Error, Result};
use crate::metadata_tables::MetadataTable;
use crate::procedure::{self, ParameterKind};

/// A statement of ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub explain: Option<Explain>,
    /// What it calls, in order. Only `VACUUM` calls more than one procedure.
    pub calls: Vec<Call>,
}

/// `EXPLAIN [ANALYZE] [VERBOSE] [FORMAT x]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Explain {
    pub analyze: bool,
    pub verbose: bool,
    pub format: Option<String>,
}

/// A call as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// The canonical name of the procedure.
    pub procedure: &'static str,
    pub form: Form,
    /// The catalog in front of `system`, quoted if it was.
    pub catalog: Option<String>,
    /// The table or catalog, when the statement names it outside the arguments.
    pub target: Option<String>,
    pub arguments: Vec<NamedExpr>,
}

/// An argument as it is written: its name, when it has one, and its expression.
pub(crate) type NamedExpr = (Option<String>, Expr);

/// How a call is spelled: it decides what positional arguments mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `CALL`: Spark's positions, which names may not follow.
    Call,
    /// A table function: Spark's positions, which names may follow.
    Function,
    /// `ALTER TABLE … EXECUTE`: ClickHouse's positions, which names may follow.
    Execute,
}

/// Reads a statement; `None` when it is not ours.
///
/// Text that the session's dialect can't parse is tried with the generic one, because some dialects lack what every user of
/// these procedures may write (`INTERVAL '7 days'`, `[1, 2]`, back-quoted names).
///
/// # Errors
/// [`Error::Statement`] when the statement is ours but not well formed, and when more than one statement is given.
pub(crate) fn parse(sql: &str, dialect: &dyn Dialect) -> Result<Option<Statement>> {
    let starts_like_ours = ["CALL", "ALTER", "VACUUM", "EXPLAIN"];
    if !starts_like_ours.iter().any(|keyword| keyword.eq_ignore_ascii_case(first_word(sql))) {
        return Ok(None);
    }
    match parse_with(sql, dialect) {
        Err(Failure::Syntax(first)) => match parse_with(sql, &GenericDialect) {
            Err(Failure::Syntax(_)) => Err(Failure::Syntax(first).into_error()),
            other => other.map_err(Failure::into_error),
        },
        Err(refused) => Err(refused.into_error()),
        // The generic dialect may see a statement of ours where this one can't even read its names.
        Ok(None) => parse_with(sql, &GenericDialect).map_err(Failure::into_error),
        Ok(statement) => Ok(statement),
    }
}

/// Why a statement that is ours could not be read.
pub(super) enum Failure {
    /// It doesn't parse; another dialect may do better.
    Syntax(ParserError),
    /// It was understood, and refused.
    Refused(Error),
}

pub(super) type Parsed<T> = std::result::Result<T, Failure>;

impl From<ParserError> for Failure {
    fn from(error: ParserError) -> Self {
        Failure::Syntax(error)
    }
}

pub(super) fn refused<T>(message: impl Into<String>) -> Parsed<T> {
    Err(Failure::Refused(Error::Statement { message: message.into() }))
}

impl Failure {
    fn into_error(self) -> Error {
        let why = match self {
            Failure::Refused(error) => return error,
            Failure::Syntax(ParserError::TokenizerError(why) | ParserError::ParserError(why)) => why,
            Failure::Syntax(ParserError::RecursionLimitExceeded) => "it is nested too deeply".to_string(),
        };
        Error::Statement { message: format!("the statement could not be parsed: {why}") }
    }
}

/// The first word of the text, after blanks and comments.
fn first_word(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("--").or_else(|| rest.strip_prefix('#')) {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            after_block_comment(comment)
        } else {
            break;
        };
        rest = after.trim_start();
    }
    &rest[..rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len())]
}

/// What follows a block comment whose opening was read already. Block comments nest.
fn after_block_comment(text: &str) -> &str {
    let (mut rest, mut depth) = (text, 1);
    while depth > 0 {
        let Some(next) = rest.find(['*', '/']) else { return "" };
        rest = &rest[next..];
        let step = match rest.as_bytes() {
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            _ => 1,
        };
        rest = &rest[step..];
    }
    rest
}

fn parse_with(sql: &str, dialect: &dyn Dialect) -> Parsed<Option<Statement>> {
    let Ok(mut parser) = Parser::new(dialect).try_with_sql(sql) else {
        // Text that can't be cut into tokens is for DataFusion to complain about.
        return Ok(None);
    };
    let parser = &mut parser;
    let explain = if parser.parse_keyword(Keyword::EXPLAIN) {
        let Some(explain) = parse_explain(parser) else { return Ok(None) };
        Some(explain)
    } else {
        None
    };
    let calls = if parser.parse_keyword(Keyword::CALL) {
        parse_call(parser)?.map(|call| vec![call])
    } else if parser.parse_keywords(&[Keyword::ALTER, Keyword::TABLE]) {
        parse_alter_table(parser)?.map(|call| vec![call])
    } else if parser.parse_keyword(Keyword::VACUUM) {
        vacuum::parse(parser)?
    } else {
        None
    };
    let Some(calls) = calls else { return Ok(None) };
    expect_end(parser)?;
    Ok(Some(Statement { explain, calls }))
}

/// What follows `EXPLAIN`; `None` when its format is no word, which DataFusion explains best.
fn parse_explain(parser: &mut Parser) -> Option<Explain> {
    let analyze = parser.parse_keyword(Keyword::ANALYZE);
    let verbose = parser.parse_keyword(Keyword::VERBOSE);
    let mut format = None;
    if parser.parse_keyword(Keyword::FORMAT) {
        format = match parser.next_token().token {
            Token::Word(word) => Some(word.value),
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => Some(text),
            _ => return None,
        };
        // It is written again as it stands, so it must be one word.
        if format.iter().any(|format| !format.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')) {
            return None;
        }
    }
    Some(Explain { analyze, verbose, format })
}

fn parse_call(parser: &mut Parser) -> Parsed<Option<Call>> {
    let Ok(path) = parse_path(parser) else { return Ok(None) };
    let Some((catalog, procedure)) = called_procedure(&path) else {
        return match path.split_last() {
            Some((name, namespace)) if namespace.is_empty() || system_catalog(namespace).is_some() => {
                match MetadataTable::of_function(&name.value) {
                    Some(table) => refused(format!(
                        "{function} is a table and no procedure: write SELECT * FROM {function}(…)",
                        function = table.function()
                    )),
                    None if namespace.is_empty() => Ok(None),
                    // The namespace is ours, so that nobody else can know the procedure.
                    None => unknown_procedure(&name.value),
                }
            }
            Some((name, namespace)) => match procedure::find(&name.value) {
                Some(procedure) => wrong_namespace(procedure.name(), namespace),
                None => Ok(None),
            },
            None => Ok(None),
        };
    };
    let arguments = parse_arguments(parser)?.unwrap_or_default();
    Ok(Some(Call { procedure, form: Form::Call, catalog, target: None, arguments }))
}

/// The catalog and the procedure of ours that a path of names calls: alone, or in the namespace `system`.
pub(super) fn called_procedure(path: &[Ident]) -> Option<(Option<String>, &'static str)> {
    let (name, namespace) = path.split_last()?;
    let procedure = procedure::find(&name.value)?.name();
    let catalog = match namespace {
        [] => None,
        namespace => system_catalog(namespace)?.map(names::part_text),
    };
    Some((catalog, procedure))
}

/// The catalog and the table function of ours that a path of names calls: a procedure, or a metadata table.
pub(super) fn called_function(path: &[Ident]) -> Option<(Option<String>, &'static str)> {
    let (name, namespace) = path.split_last()?;
    let Some(table) = MetadataTable::of_function(&name.value) else { return called_procedure(path) };
    let catalog = match namespace {
        [] => None,
        namespace => system_catalog(namespace)?.map(names::part_text),
    };
    Some((catalog, table.function()))
}

/// The catalog in `[catalog.]system`; the outer option is `None` for other namespaces.
fn system_catalog(namespace: &[Ident]) -> Option<Option<&Ident>> {
    let (system, catalog) = namespace.split_last()?;
    (system.value.eq_ignore_ascii_case("system") && catalog.len() < 2).then(|| catalog.first())
}

fn unknown_procedure<T>(name: &str) -> Parsed<T> {
    refused(format!("there is no procedure {name}; the procedures are {}", known_procedures()))
}

fn known_procedures() -> String {
    let names: Vec<&str> = procedure::PROCEDURES.iter().map(|procedure| procedure.name()).collect();
    match names.split_last() {
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn wrong_namespace<T>(procedure: &str, namespace: &[Ident]) -> Parsed<T> {
    let namespace = namespace.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
    refused(format!(
        "{procedure} is in the namespace system, not in {namespace}: write CALL system.{procedure}(…), or with a catalog \
         CALL catalog.system.{procedure}(…)"
    ))
}

/// An unquoted location in the place of a table name, as far as the word that ends it.
pub(super) fn unquoted_location(parser: &Parser, end: &str) -> Option<String> {
    const MOST_TOKENS: usize = 1000;
    let mut location = String::new();
    for index in 0..MOST_TOKENS {
        match &parser.peek_nth_token_ref(index).token {
            Token::EOF | Token::SemiColon => break,
            _ if word_at(parser, index, end) => break,
            token => location.push_str(&token.to_string()),
        }
    }
    names::is_location(&location).then_some(location)
}

fn parse_alter_table(parser: &mut Parser) -> Parsed<Option<Call>> {
    let _if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    if let Some(location) = unquoted_location(parser, "EXECUTE") {
        return refused(format!("put the location in double quotes: ALTER TABLE \"{location}\" EXECUTE …"));
    }
    let Ok(path) = parse_path(parser) else { return Ok(None) };
    if !parser.parse_keyword(Keyword::EXECUTE) {
        return Ok(None);
    }
    let target = names::table_text(&path);
    if word_at(parser, 0, "DELETE") && word_at(parser, 1, "ORPHAN") {
        return Ok(Some(parse_hive_orphan_files(parser, target)?));
    }
    if at_end(parser) {
        return refused(format!("the procedure is missing after EXECUTE; the procedures are {}", known_procedures()));
    }
    let name = parser.parse_identifier()?;
    let Some(procedure) = procedure::find(&name.value) else { return unknown_procedure(&name.value) };
    if procedure.parameters().first().is_some_and(|subject| subject.kind == ParameterKind::Catalog) {
        let name = procedure.name();
        return refused(format!("{name} works on a catalog, not on a table: write CALL system.{name}(catalog => …)"));
    }
    let procedure = procedure.name();
    let arguments = match parse_arguments(parser)? {
        Some(arguments) => arguments,
        None => parse_hive_policy(parser, procedure)?,
    };
    Ok(Some(Call { procedure, form: Form::Execute, catalog: None, target: Some(target), arguments }))
}

/// What binds tighter than AND: an expression that ends before one.
const AND_PRECEDENCE: u8 = 10;

/// Hive's `EXPIRE_SNAPSHOTS BETWEEN (a) AND (b)` and `RETAIN LAST n`; no arguments when neither that nor `BETWEEN` follows.
fn parse_hive_policy(parser: &mut Parser, procedure: &'static str) -> Parsed<Vec<NamedExpr>> {
    let expires = procedure == "expire_snapshots";
    if expires && take_words(parser, &["BETWEEN"]) {
        // Each bound alone: the AND between them is not the one of an expression.
        let from = parse_value_above(parser, AND_PRECEDENCE)?;
        if !take_words(parser, &["AND"]) {
            return Err(expected("AND", &parser.peek_token_ref().token));
        }
        let to = parse_value_above(parser, AND_PRECEDENCE)?;
        let bound = |name: &str, value| (Some(name.to_string()), unnested(value));
        return Ok(vec![bound("from_timestamp", from), bound("to_timestamp", to)]);
    }
    if expires && take_words(parser, &["RETAIN", "LAST"]) {
        return Ok(vec![(Some("retain_last".to_string()), parse_value(parser)?)]);
    }
    Ok(vec![])
}

/// Hive's `DELETE ORPHAN-FILES [OLDER THAN ('timestamp')]`.
fn parse_hive_orphan_files(parser: &mut Parser, target: String) -> Parsed<Call> {
    take_words(parser, &["DELETE", "ORPHAN"]);
    parser.expect_token(&Token::Minus)?;
    if !take_words(parser, &["FILES"]) {
        return Err(expected("FILES", &parser.peek_token_ref().token));
    }
    let mut arguments = vec![];
    if take_words(parser, &["OLDER", "THAN"]) {
        arguments.push((Some("older_than".to_string()), unnested(parse_value(parser)?)));
    }
    let procedure = "remove_orphan_files";
    Ok(Call { procedure, form: Form::Execute, catalog: None, target: Some(target), arguments })
}

fn unnested(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(inner) => unnested(*inner),
        other => other,
    }
}

/// `(name => value, name = value, name := value, value)`; `None` without parentheses.
pub(super) fn parse_arguments(parser: &mut Parser) -> Parsed<Option<Vec<NamedExpr>>> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(None);
    }
    let mut arguments = vec![];
    if parser.consume_token(&Token::RParen) {
        return Ok(Some(arguments));
    }
    loop {
        let name = parse_argument_name(parser);
        arguments.push((name, parse_value(parser)?));
        if parser.consume_token(&Token::RParen) {
            return Ok(Some(arguments));
        }
        if !parser.consume_token(&Token::Comma) {
            return Err(expected("a comma or ) after an argument", &parser.peek_token_ref().token));
        }
    }
}

/// How many words and signs may stand in a value, between the commas around each and those around the brackets it is in.
///
/// Each operator makes a value nest deeper, without the parser's own limit: whoever walks over it, also to drop it, would
/// run out of stack.
const MOST_TOKENS_OF_A_VALUE: usize = 40;

/// Reads the value of an argument or an option.
pub(super) fn parse_value(parser: &mut Parser) -> Parsed<Expr> {
    parse_value_above(parser, 0)
}

/// The same, as far as an operator that binds no tighter than this.
fn parse_value_above(parser: &mut Parser, precedence: u8) -> Parsed<Expr> {
    refuse_deep_value(parser)?;
    Ok(parser.parse_subexpr(precedence)?)
}

fn refuse_deep_value(parser: &Parser) -> Parsed<()> {
    // How many tokens came since the last comma, in each of the brackets around, and their sum.
    let (mut brackets, mut sum) = (vec![0], 0);
    for index in 0.. {
        match parser.peek_nth_token_no_skip(index).token {
            Token::EOF | Token::SemiColon => break,
            Token::Whitespace(_) => continue,
            Token::Comma if brackets.len() == 1 => break,
            Token::Comma => sum -= brackets.last_mut().map_or(0, std::mem::take),
            Token::RParen | Token::RBracket | Token::RBrace => {
                sum -= brackets.pop().unwrap_or_default();
                if brackets.is_empty() {
                    break;
                }
            }
            token => {
                brackets.last_mut().into_iter().for_each(|count| *count += 1);
                sum += 1;
                if matches!(token, Token::LParen | Token::LBracket | Token::LBrace) {
                    brackets.push(0);
                }
            }
        }
        if sum > MOST_TOKENS_OF_A_VALUE {
            return refused(format!(
                "a value has more than {MOST_TOKENS_OF_A_VALUE} words and signs between two commas; compute it first"
            ));
        }
    }
    Ok(())
}

pub(super) fn parse_argument_name(parser: &mut Parser) -> Option<String> {
    let Token::Word(word) = &parser.peek_nth_token_ref(0).token else { return None };
    let name = word.value.clone();
    if !matches!(parser.peek_nth_token_ref(1).token, Token::RArrow | Token::Eq | Token::Assignment) {
        return None;
    }
    parser.next_token();
    parser.next_token();
    Some(name)
}

/// `a.b.c`, each part quoted or not.
pub(super) fn parse_path(parser: &mut Parser) -> std::result::Result<Vec<Ident>, ParserError> {
    let mut path = vec![parser.parse_identifier()?];
    while parser.consume_token(&Token::Period) {
        path.push(parser.parse_identifier()?);
    }
    Ok(path)
}

/// True when the unquoted word stands at that place, in any case. Not all of our words are keywords of the parser.
pub(super) fn word_at(parser: &Parser, index: usize, expected: &str) -> bool {
    match &parser.peek_nth_token_ref(index).token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected),
        _ => false,
    }
}

/// Takes all of the words, or none.
pub(super) fn take_words(parser: &mut Parser, words: &[&str]) -> bool {
    let found = words.iter().enumerate().all(|(index, word)| word_at(parser, index, word));
    if found {
        words.iter().for_each(|_| {
            parser.next_token();
        });
    }
    found
}

pub(super) fn at_end(parser: &Parser) -> bool {
    matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon)
}

fn expect_end(parser: &mut Parser) -> Parsed<()> {
    let mut ended = false;
    while parser.consume_token(&Token::SemiColon) {
        ended = true;
    }
    match &parser.peek_token_ref().token {
        Token::EOF => Ok(()),
        _ if ended => refused("only a single SQL statement can be run at a time"),
        other => Err(expected("the end of the statement", other)),
    }
}

pub(super) fn expected(what: &str, found: &Token) -> Failure {
    Failure::Syntax(ParserError::ParserError(format!("Expected: {what}, found: {found}")))
}

/// A string literal as an expression.
pub(super) fn text_literal(text: impl Into<String>) -> Expr {
    Expr::Value(ast::Value::SingleQuotedString(text.into()).into())
}
