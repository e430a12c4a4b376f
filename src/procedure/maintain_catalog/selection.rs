//! Which tables of a catalog a call means.

use crate::catalog::TableName;
use crate::error::{Error, Result};
use crate::procedure::Arguments;

/// Patterns over the names of tables: who is maintained, and who is left out of that.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    include: Option<Vec<Pattern>>,
    exclude: Vec<Pattern>,
}

/// A name with `*` for any text, dots too, and `?` for any one character. Names are compared with regard to case.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(String);

impl Pattern {
    /// True where the pattern is a name.
    fn is_name(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) = (self.0.chars().collect(), name.chars().collect());
        let (mut p, mut n) = (0, 0);
        // Where the last star stands, and how much of the name it took: on a mismatch it takes one more.
        let mut star = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
                _ => {
                    let Some((at, taken)) = star else { return false };
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

impl Selection {
    /// Reads `include` and `exclude`.
    ///
    /// # Errors
    /// [`Error::Argument`] where a pattern is empty.
    pub(super) fn of(arguments: &Arguments) -> Result<Self> {
        let patterns = |name: &'static str| -> Result<Option<Vec<Pattern>>> {
            let Some(text) = arguments.text(name) else { return Ok(None) };
            let patterns: Vec<Pattern> = text.split(',').map(|part| Pattern(part.trim().to_string())).collect();
            match patterns.iter().any(|pattern| pattern.0.is_empty()) {
                true => Err(arguments.error(format!(
                    "argument {name}: '{text}' holds an empty pattern; write it as 'namespace.table, namespace.*'"
                ))),
                false => Ok(Some(patterns)),
            }
        };
        Ok(Self { include: patterns("include")?, exclude: patterns("exclude")?.unwrap_or_default() })
    }

    /// True for a table that is to be maintained.
    pub(super) fn selects(&self, catalog: &str, table: &TableName) -> bool {
        let name = table.to_string();
        let is_included = self.include.iter().flatten().any(|pattern| pattern.matches(&name));
        (self.include.is_none() || is_included) && !self.exclude.iter().any(|pattern| pattern.excludes(catalog, &name))
    }

    /// True for a namespace that may hold a table to be maintained.
    pub(super) fn may_select_in(&self, catalog: &str, namespace: &str) -> bool {
        let may_include = |pattern: &Pattern| match pattern.0.rsplit_once('.') {
            Some((namespaces, _)) => Pattern(namespaces.into()).matches(namespace) || pattern.0.starts_with('*'),
            None => pattern.0.contains('*'),
        };
        let all_excluded =
            |pattern: &Pattern| pattern.0.ends_with('*') && pattern.excludes(catalog, &format!("{namespace}."));
        self.include.as_ref().is_none_or(|patterns| patterns.iter().any(may_include))
            && !self.exclude.iter().any(all_excluded)
    }

    /// Refuses a name that no table has: whoever mistypes the name of a table that is to be left alone must not find it
    /// maintained. Returns what there is to say of patterns that match nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown name.
    pub(super) fn check(&self, procedure: &str, catalog: &str, tables: &[&TableName]) -> Result<Vec<String>> {
        let names: Vec<String> = tables.iter().map(ToString::to_string).collect();
        let unused = |argument: &'static str, pattern: &Pattern| -> Result<Option<String>> {
            let used = match argument {
                "include" => names.iter().any(|name| pattern.matches(name)),
                _ => names.iter().any(|name| pattern.excludes(catalog, name)),
            };
            match used {
                true => Ok(None),
                false if pattern.is_name() => Err(Error::argument(
                    procedure,
                    format!(
                        "argument {argument}: there is no table {} in {catalog}. Name it as namespace.table, with * and ? for \
                         what may be anything",
                        pattern.0
                    ),
                )),
                false => Ok(Some(format!("argument {argument}: no table of {catalog} matches {}", pattern.0))),
            }
        };
        let included = self.include.iter().flatten().map(|pattern| unused("include", pattern));
        let excluded = self.exclude.iter().map(|pattern| unused("exclude", pattern));
        included.chain(excluded).filter_map(Result::transpose).collect()
    }
}

impl Pattern {
    /// True for a table that is left out. Its name may be written with the catalog: to leave out too much is safe.
    fn excludes(&self, catalog: &str, name: &str) -> bool {
        self.matches(name) || self.matches(&format!("{catalog}.{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedure::Value;

    fn selection(include: Option<&str>, exclude: Option<&str>) -> Result<Selection> {
        let mut arguments = Arguments { procedure: "maintain_catalog", ..Default::default() };
        for (name, text) in [("include", include), ("exclude", exclude)] {
            text.map(|text| arguments.values.insert(name, Value::Text(text.into())));
        }
        Selection::of(&arguments)
    }

    fn table(name: &str) -> TableName {
        let mut parts: Vec<String> = name.split('.').map(str::to_string).collect();
        let name = parts.pop().unwrap();
        TableName { namespace: parts, name }
    }

    #[test]
    fn stars_stand_for_any_text_and_question_marks_for_one_character() {
        for (pattern, matching, others) in [
            ("db.t", &["db.t"][..], &["db.tt", "adb.t", "DB.t", ""][..]),
            ("db.*", &["db.", "db.t", "db.sub.t"], &["dbx.t", "db"]),
            ("*.t", &["a.t", "a.b.t"], &["t", "a.tt"]),
            ("*a*b", &["ab", "xaab", "aabab"], &["aba", "b"]),
            ("t?", &["t1", "t\u{fc}"], &["t", "t12"]),
            ("**", &["", "x"], &[]),
            ("?*", &["x", "xy"], &[""]),
        ] {
            let pattern = Pattern(pattern.into());
            assert!(matching.iter().all(|name| pattern.matches(name)), "{pattern:?}");
            assert!(!others.iter().any(|name| pattern.matches(name)), "{pattern:?}");
        }
    }

    #[test]
    fn what_is_excluded_is_left_out_whatever_else_matches_it() {
        let selected = |include, exclude| {
            let selection = selection(include, exclude).unwrap();
            let tables = ["db.a", "db.b", "x.a"].into_iter().filter(|name| selection.selects("lake", &table(name)));
            tables.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(selected(None, None), "db.a db.b x.a");
        assert_eq!(selected(Some("db.*"), None), "db.a db.b");
        assert_eq!(selected(Some("db.b, *.a"), Some("x.*")), "db.a db.b");
        assert_eq!(selected(None, Some("lake.db.a")), "db.b x.a");
        assert_eq!(selected(Some("lake.db.a"), None), "", "who is included is named without the catalog");
        assert!(selection(Some("db.*,,x"), None).unwrap_err().to_string().contains("empty pattern"));
    }

    #[test]
    fn a_mistyped_name_is_an_error_and_a_pattern_without_a_match_is_told() {
        let (a, b) = (table("db.a"), table("db.b"));
        let check = |include, exclude| {
            let checked = selection(include, exclude).unwrap().check("maintain_catalog", "lake", &[&a, &b]);
            checked.map(|said| said.join("; ")).map_err(|error| error.to_string())
        };
        assert_eq!(check(Some("db.a"), Some("db.b,lake.db.a")), Ok(String::new()));
        for (include, exclude) in [(Some("db.c"), None), (None, Some("db.c")), (Some("lake.db.a"), None)] {
            assert!(check(include, exclude).unwrap_err().contains("there is no table"), "{include:?} {exclude:?}");
        }
        assert_eq!(check(None, Some("tmp.*")).unwrap(), "argument exclude: no table of lake matches tmp.*");
    }

    #[test]
    fn a_namespace_that_can_t_be_listed_counts_where_it_may_hold_a_selected_table() {
        let may = |include, exclude, namespace| selection(include, exclude).unwrap().may_select_in("lake", namespace);
        assert!(may(None, None, "db"));
        assert!(may(Some("db.*"), None, "db") && !may(Some("db.*"), None, "x"));
        assert!(may(Some("*.orders"), None, "db") && may(Some("*"), None, "db"));
        assert!(!may(None, Some("db.*"), "db") && !may(None, Some("lake.db.*"), "db"));
        assert!(may(None, Some("db.a"), "db") && may(None, Some("db.a*"), "db"));
    }
}
