//! `iceberg_expire_plan` and `iceberg_orphan_files`: what the two operations would do, as tables to query.

mod expire_plan;
mod orphan_files;

pub(super) use expire_plan::ExpirePlanProcedure;
pub(super) use orphan_files::OrphanFilesProcedure;

use super::Parameter;

/// Some of a procedure's parameters, and others after them.
fn some_of(parameters: &'static [Parameter], names: &[&str], others: &[Parameter]) -> Vec<Parameter> {
    let chosen = parameters.iter().filter(|parameter| names.contains(&parameter.name));
    let without_places = |parameter: &Parameter| match parameter.name {
        "table" => *parameter,
        _ => Parameter { call_position: None, execute_position: None, ..*parameter },
    };
    chosen.chain(others).map(without_places).collect()
}
