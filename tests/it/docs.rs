//! The documentation names everything that there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use iceberg_maintenance::parameters;
use iceberg_maintenance::report::METRICS;

const REFERENCE: &str = include_str!("../../docs/sql.md");

#[test]
fn the_sql_reference_names_every_argument_and_alias() {
    for procedure in iceberg_maintenance::parameters::procedures() {
        let heading = format!("## Arguments of {procedure}");
        let section = REFERENCE.split("\n## ").find(|section| heading.ends_with(section.lines().next().unwrap()));
        let section = section.unwrap_or_else(|| panic!("{heading} is missing"));
        for parameter in parameters::of(procedure).unwrap() {
            for name in [parameter.name].iter().chain(parameter.aliases) {
                assert!(section.contains(&format!("`{name}`")), "{procedure}: {name} is not in docs/sql.md");
            }
        }
    }
}

#[test]
fn the_sql_reference_names_every_metadata_table_with_its_columns_and_arguments() {
    let section = REFERENCE.split("\n## ").find(|section| section.starts_with("Looking at a table\n")).unwrap();
    for (function, parameters, columns) in parameters::metadata_tables() {
        let row = section.lines().find(|line| line.starts_with(&format!("| `{function}` |")));
        let row = row.unwrap_or_else(|| panic!("{function} is not in docs/sql.md"));
        let mut at = 0;
        for column in columns {
            // Those of all_files are those of files.
            let found = row[at..].find(&format!("`{column}`")).or((function == "iceberg_all_files").then_some(0));
            at += found.unwrap_or_else(|| panic!("{function}: {column} is not in docs/sql.md, or not in its place"));
        }
        for name in parameters
            .iter()
            .flat_map(|parameter| [parameter.name].into_iter().chain(parameter.aliases.iter().copied()))
        {
            assert!(section.contains(&format!("| `{name}` |")) || name == "table_name", "{function}: {name}");
        }
    }
}

#[test]
fn the_sql_reference_names_every_metric_in_order() {
    let mut at = 0;
    for (name, _) in METRICS {
        let found = REFERENCE[at..].find(&format!("`{name}`"));
        at += found.unwrap_or_else(|| panic!("{name} is not in docs/sql.md, or not in its place"));
    }
}

#[test]
fn the_readme_shows_the_two_commands_first() {
    let readme = include_str!("../../README.md");
    let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(block.lines().collect::<Vec<_>>(), ["cargo run -- demo --run", "cargo test"]);
}

/// `file.rs::test` and `suite.slt`, as a page names them between backticks.
fn tests_named_in(page: &str) -> BTreeSet<&str> {
    let code = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    code.filter(|code| code.contains("::") || code.ends_with(".slt")).collect()
}

/// Says whether a source has this test: as a function, or in the list of a macro that makes them.
fn has_test(source: &str, test: &str) -> bool {
    let listed = [format!("{test},"), format!("{test}:")];
    source.contains(&format!("fn {test}(")) || source.lines().any(|line| listed.contains(&line.trim().to_string()))
}

#[test]
fn every_test_that_a_page_names_exists() {
    for page in ["docs/safety.md", "tests/reports/COVERAGE.md"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(root.join(page)).unwrap();
        let named = tests_named_in(&text);
        assert!(named.len() > 30, "{page} names {} tests", named.len());
        for name in named {
            let (file, test) = name.split_once("::").unwrap_or((name, ""));
            let source = fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{page}: {file}: {e}"));
            assert!(test.is_empty() || has_test(&source, test), "{page}: there is no {name}");
        }
    }
}

#[test]
fn every_class_and_every_behaviour_has_its_row() {
    let rows =
        include_str!("../reports/COVERAGE.md").lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let numbers: Vec<_> = rows.filter(|cell| *cell != "#").map(str::to_string).collect();
    let of = |prefix: &'static str, count: usize| (1..=count).map(move |number| format!("{prefix}{number}"));
    let java = [("1.", 64), ("2.", 3), ("3.", 33), ("4.", 17), ("5.", 26), ("6.", 5), ("7.", 13)];
    let expected: Vec<_> = of("T", 28).chain(java.into_iter().flat_map(|(class, count)| of(class, count))).collect();
    assert_eq!(numbers, expected);
}
