//! Which fields of the writer's records are wanted, and where they lie in its schema.

use super::schema::{Field, Node, NodeId, Schema};
use super::{Corrupt, Result};

/// A field that the caller wants.
#[derive(Debug)]
pub(in crate::scan) struct Wanted {
    /// Iceberg's field id.
    pub(in crate::scan) id: i64,
    /// The names it goes by. Only for fields that carry no id, as some old v1 writers left them; the first is shown.
    pub(in crate::scan) names: &'static [&'static str],
    /// A schema without the field is an error.
    pub(in crate::scan) required: bool,
    pub(in crate::scan) target: Target,
}

/// What a wanted field must be, and the slot of the row that it goes to.
///
/// In every case the field may also be a union with null; null, like an absent field, leaves the slot empty.
#[derive(Debug)]
pub(in crate::scan) enum Target {
    /// `int` or `long`.
    Integer(usize),
    /// `string`. Not checked to be UTF-8.
    Text(usize),
    /// `bytes`.
    Binary(usize),
    /// A record with wanted fields of its own.
    Record(&'static [Wanted]),
}

/// What to do with the next value of the data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Skip(NodeId),
    Integer(usize),
    Bytes(usize),
    Record(Vec<Step>),
    /// One step for each branch.
    Union(Vec<Step>),
}

/// The steps that read one record of the file.
pub(super) fn resolve(schema: &Schema, wanted: &'static [Wanted]) -> Result<Step> {
    match schema.node(schema.root()) {
        Node::Record(fields) => record(schema, fields, wanted),
        other => Err(format!("its records are of type {}", other.name()).into()),
    }
}

fn record(schema: &Schema, fields: &[Field], wanted: &'static [Wanted]) -> Result<Step> {
    let mut targets: Vec<Option<&'static Wanted>> = vec![None; fields.len()];
    for want in wanted {
        match find(fields, want)? {
            Some(position) => targets[position] = Some(want),
            None if want.required => {
                return Err(format!("its schema has no field {} (id {})", want.names[0], want.id).into());
            }
            None => {}
        }
    }
    let mut steps = vec![];
    for (field, target) in fields.iter().zip(targets) {
        match target {
            Some(want) => steps.push(value(schema, field.node, want)?),
            None => steps.push(Step::Skip(field.node)),
        }
    }
    Ok(Step::Record(steps))
}

/// The field's position: by id, or by name among the fields that have no id.
fn find(fields: &[Field], want: &Wanted) -> Result<Option<usize>> {
    let only = |matches: &dyn Fn(&Field) -> bool| {
        let mut found = fields.iter().enumerate().filter(|(_, field)| matches(field)).map(|(position, _)| position);
        match (found.next(), found.next()) {
            (_, Some(_)) => {
                Err(Corrupt::from(format!("its schema has the field {} (id {}) twice", want.names[0], want.id)))
            }
            (position, None) => Ok(position),
        }
    };
    match only(&|field| field.id == Some(want.id))? {
        Some(position) => Ok(Some(position)),
        None => only(&|field| field.id.is_none() && want.names.contains(&field.name.as_str())),
    }
}

fn value(schema: &Schema, node: NodeId, want: &'static Wanted) -> Result<Step> {
    match schema.node(node) {
        Node::Union(branches) => {
            branches.iter().map(|branch| branch_value(schema, *branch, want)).collect::<Result<_>>().map(Step::Union)
        }
        _ => branch_value(schema, node, want),
    }
}

fn branch_value(schema: &Schema, node: NodeId, want: &'static Wanted) -> Result<Step> {
    match (schema.node(node), &want.target) {
        (Node::Null, _) => Ok(Step::Skip(node)),
        (Node::Integer, Target::Integer(slot)) => Ok(Step::Integer(*slot)),
        (Node::String, Target::Text(slot)) | (Node::Bytes, Target::Binary(slot)) => Ok(Step::Bytes(*slot)),
        (Node::Record(fields), Target::Record(wanted)) => record(schema, fields, wanted),
        (other, target) => {
            let expected = match target {
                Target::Integer(_) => "int or long",
                Target::Text(_) => "string",
                Target::Binary(_) => "bytes",
                Target::Record(_) => "record",
            };
            let found = other.name();
            Err(format!("its field {} (id {}) is of type {found}, not {expected}", want.names[0], want.id).into())
        }
    }
}
