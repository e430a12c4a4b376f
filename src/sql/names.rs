//! How a table is named in SQL, as the text that the `table` argument takes.
//!
//! A name stays a name with its quotes, so that its case and its dots survive; what looks like a location is one.

use datafusion::sql::sqlparser::ast::Ident;

use crate::catalog::split_name;
use crate::table::location;

/// The text for a table that is written as an identifier path in the place of a table name.
///
/// A quoted part at the end that looks like a location is the location: `"/data/t"`, and also `iceberg."s3://b/t"`.
pub(crate) fn table_text(path: &[Ident]) -> String {
    match path.last() {
        Some(last) if last.quote_style.is_some() && is_location(&last.value) => last.value.clone(),
        // A string in the place of a name, as some write it, is what it says.
        Some(last) if last.quote_style == Some('\'') && path.len() == 1 => last.value.clone(),
        _ => path.iter().map(part_text).collect::<Vec<_>>().join("."),
    }
}

/// One part of a name, quoted again if it was quoted.
pub(crate) fn part_text(part: &Ident) -> String {
    match part.quote_style {
        None => part.value.clone(),
        Some(_) => format!("\"{}\"", part.value.replace('"', "\"\"")),
    }
}

/// True for an absolute path or a URL.
pub(crate) fn is_location(text: &str) -> bool {
    let parts = location::split(text);
    !parts.scheme.is_empty() || parts.path.starts_with('/')
}

/// A table name in the catalog that a call names in front of `system`.
///
/// A location and a name that begins with the catalog stay as they are. A name without a schema gets the session's default
/// schema: `catalog.table` would mean a schema of that name in another catalog.
pub(crate) fn in_catalog(table: &str, catalog: &str, default_schema: &str) -> String {
    if is_location(table) {
        return table.to_string();
    }
    let unquoted = |part: &str| part.trim_matches(['"', '`']).to_ascii_lowercase();
    match split_name(table).as_slice() {
        [_] => format!("{catalog}.{}.{table}", quoted(default_schema)),
        [first, _, _, ..] if unquoted(first) == unquoted(catalog) => table.to_string(),
        _ => format!("{catalog}.{table}"),
    }
}

/// A catalog or a namespace in the catalog that a call names in front of `system`.
///
/// A name that begins with the catalog stays as it is; any other is a namespace in it.
pub(crate) fn within_catalog(within: &str, catalog: &str) -> String {
    let unquoted = |part: &str| part.trim_matches(['"', '`']).to_ascii_lowercase();
    match split_name(within).first() {
        Some(first) if unquoted(first) == unquoted(catalog) => within.to_string(),
        _ => format!("{catalog}.{within}"),
    }
}

/// True for a name without a schema.
pub(crate) fn is_single(name: &str) -> bool {
    split_name(name).len() == 1
}

/// A part of a name, quoted when it could be read as anything else.
pub(crate) fn quoted(part: &str) -> String {
    let plain = part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && part.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    if plain { part.to_string() } else { format!("\"{}\"", part.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_quotes_and_a_location_is_taken_as_it_is() {
        let plain = Ident::new;
        let quoted = |text: &str| Ident::with_quote('"', text);
        assert_eq!(table_text(&[plain("db"), plain("T")]), "db.T");
        assert_eq!(table_text(&[quoted("my.db"), Ident::with_quote('`', "T")]), "\"my.db\".\"T\"");
        assert_eq!(table_text(&[quoted("/data/t")]), "/data/t");
        assert_eq!(table_text(&[plain("iceberg"), Ident::with_quote('`', "s3://b/t")]), "s3://b/t");
        assert_eq!(table_text(&[quoted("a\"b")]), "\"a\"\"b\"");
        assert_eq!(table_text(&[Ident::with_quote('\'', "db.t")]), "db.t");
    }

    #[test]
    fn the_catalog_of_a_call_completes_the_name() {
        for (table, expected) in [
            ("t", "h.public.t"),
            ("db.t", "h.db.t"),
            ("h.db.t", "h.db.t"),
            ("`H`.`db`.`t`", "`H`.`db`.`t`"),
            ("h.t", "h.h.t"),
            ("x.db.t", "h.x.db.t"),
            ("\"a.b\"", "h.public.\"a.b\""),
            ("/data/t", "/data/t"),
            ("s3://b/t", "s3://b/t"),
            ("file:/t", "file:/t"),
        ] {
            assert_eq!(in_catalog(table, "h", "public"), expected);
        }
        assert_eq!(in_catalog("t", "\"My Lake\"", "My Schema"), "\"My Lake\".\"My Schema\".t");
        for (within, expected) in [("H", "H"), ("h.db", "h.db"), ("db", "h.db"), ("\"a.b\".c", "h.\"a.b\".c")] {
            assert_eq!(within_catalog(within, "h"), expected);
        }
    }
}
