//! The documentation names everything that there is.

use iceberg_maintenance::parameters;
use iceberg_maintenance::report::METRICS;

const REFERENCE: &str = include_str!("../../docs/sql.md");

#[test]
fn the_sql_reference_names_every_argument_and_alias() {
    for procedure in ["expire_snapshots", "remove_orphan_files"] {
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
