//! Which fields of the writer's records are wanted, and the steps that read them.
//!
//! A record is read by a flat list of [`Op`]s: a manifest's schema nests four deep, and most of its values are walked
//! over, so going through the schema's tree for each record would cost more than the walk itself.

use super::schema::{Field, Node, NodeId, Schema};
use super::{Corrupt, Result};

/// A schema is flattened no further than this; what is left over is read along its tree. Iceberg's own schemas have some
/// fifty values, nested four deep.
const MAX_FLAT_VALUES: usize = 1024;
const MAX_FLAT_DEPTH: usize = 8;
/// A schema that compiles to more steps is refused: a union of records that are used by name can make any number of them.
const MAX_OPS: usize = 1 << 16;

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
    /// A value of one type, whichever it is: the slot gets its encoding, which [`super::encoded`] reads.
    Encoded(usize),
    /// A record with wanted fields of its own.
    Record(&'static [Wanted]),
}

/// All slots that a row may have.
pub(super) const ALL_SLOTS: u32 = u32::MAX;

/// What to do with the next bytes of a record. Jumps only lead forward.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Reads an integer into a slot.
    Integer(usize),
    /// Reads bytes or a string into a slot.
    Bytes(usize),
    /// The value whose encoding goes to a slot begins here.
    Begin(usize),
    /// It ends here.
    End(usize),
    /// Walks over so many bytes.
    SkipFixed(usize),
    /// Walks over so many integers.
    SkipIntegers(u64),
    /// Walks over bytes or a string.
    SkipBytes,
    /// Walks over an array of items that are nothing but so many integers: a map from column ids to counts.
    SkipIntegerItems(u64),
    /// Walks over an array of items of an integer and bytes: a map from column ids to bounds.
    SkipIntegerBytesItems,
    /// Walks over an array whose items are walked over with these. An item takes a byte at least.
    SkipItems(Vec<Op>),
    /// Walks over any value.
    SkipTree(NodeId),
    /// A union of null and one of the values above, in one step: most of a manifest's fields are such.
    SkipNullableInteger {
        null: u8,
    },
    SkipNullableBytes {
        null: u8,
    },
    SkipNullableFixed {
        null: u8,
        size: usize,
    },
    /// A union of null and something. If `null` is its first byte, the next ops are jumped over.
    Nullable {
        null: u8,
        ops: usize,
    },
    /// Any other union: where its branches begin.
    Union(Vec<usize>),
    /// The next op that is due, after a branch of a union.
    Jump(usize),
}

/// How one record of the file is read.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    /// The types of the values that are handed out encoded, by slot. A slot whose field the schema lacks is not there.
    pub(super) encoded: Vec<(usize, NodeId)>,
}

/// The steps that read one record of the file. `slots`: a bit for each slot; fields for others are walked over, as if they
/// were not wanted.
pub(super) fn resolve(schema: &Schema, wanted: &'static [Wanted], slots: u32) -> Result<Program> {
    let mut compiler = Compiler { schema, slots, ops: vec![], encoded: vec![], joined: 0, values: 0 };
    match schema.node(schema.root()) {
        Node::Record(fields) => compiler.record(fields, wanted)?,
        other => return Err(format!("its records are of type {}", other.name()).into()),
    }
    Ok(Program { ops: compiler.ops, encoded: compiler.encoded })
}

struct Compiler<'s> {
    schema: &'s Schema,
    slots: u32,
    ops: Vec<Op>,
    encoded: Vec<(usize, NodeId)>,
    /// Ops before this one stay as they are, because something jumps here.
    joined: usize,
    /// How many values were flattened.
    values: usize,
}

impl<'s> Compiler<'s> {
    fn record(&mut self, fields: &'s [Field], wanted: &'static [Wanted]) -> Result<()> {
        let mut targets: Vec<Option<&'static Wanted>> = vec![None; fields.len()];
        for want in wanted.iter().filter(|want| self.wants(want)) {
            match find(fields, want)? {
                Some(position) => targets[position] = Some(want),
                None if want.required => {
                    return Err(format!("its schema has no field {} (id {})", want.names[0], want.id).into());
                }
                None => {}
            }
        }
        for (field, target) in fields.iter().zip(targets) {
            if self.ops.len() > MAX_OPS {
                return Err("its schema is too large".into());
            }
            match target {
                Some(want) => self.value(field.node, want)?,
                None => self.skip(field.node, 0)?,
            }
        }
        Ok(())
    }

    fn wants(&self, want: &Wanted) -> bool {
        match want.target {
            Target::Integer(slot) | Target::Text(slot) | Target::Binary(slot) | Target::Encoded(slot) => {
                self.slots & 1 << slot != 0
            }
            Target::Record(_) => true,
        }
    }

    fn value(&mut self, node: NodeId, want: &'static Wanted) -> Result<()> {
        match self.schema.node(node) {
            Node::Union(branches) => self.union(branches, |compiler, branch| compiler.branch_value(branch, want)),
            _ => self.branch_value(node, want),
        }
    }

    fn branch_value(&mut self, node: NodeId, want: &'static Wanted) -> Result<()> {
        match (self.schema.node(node), &want.target) {
            (Node::Null, _) => {}
            (Node::Integer, Target::Integer(slot)) => self.ops.push(Op::Integer(*slot)),
            (Node::String, Target::Text(slot)) | (Node::Bytes, Target::Binary(slot)) => self.ops.push(Op::Bytes(*slot)),
            (Node::Record(fields), Target::Record(wanted)) => self.record(fields, wanted)?,
            (_, Target::Encoded(slot)) => self.encoded(node, *slot, want)?,
            (other, target) => {
                let expected = match target {
                    Target::Integer(_) => "int or long",
                    Target::Text(_) => "string",
                    Target::Binary(_) => "bytes",
                    Target::Encoded(_) => "any type",
                    Target::Record(_) => "record",
                };
                let (name, found) = (want.names[0], other.name());
                return Err(format!("its field {name} (id {}) is of type {found}, not {expected}", want.id).into());
            }
        }
        Ok(())
    }

    /// Notes where the value begins and ends that is walked over between.
    fn encoded(&mut self, node: NodeId, slot: usize, want: &Wanted) -> Result<()> {
        if self.encoded.iter().any(|(known, other)| *known == slot && *other != node) {
            return Err(format!("its field {} (id {}) is a union of several types", want.names[0], want.id).into());
        }
        self.encoded.push((slot, node));
        self.ops.push(Op::Begin(slot));
        self.joined = self.ops.len();
        self.skip(node, 0)?;
        self.ops.push(Op::End(slot));
        self.joined = self.ops.len();
        Ok(())
    }

    fn union(&mut self, branches: &[NodeId], mut each: impl FnMut(&mut Self, NodeId) -> Result<()>) -> Result<()> {
        let is_null = |branch: NodeId| *self.schema.node(branch) == Node::Null;
        let nullable = match *branches {
            [null, other] if is_null(null) && !is_null(other) => Some((0, other)),
            [other, null] if is_null(null) && !is_null(other) => Some((2, other)),
            _ => None,
        };
        let head = self.ops.len();
        if let Some((null, other)) = nullable {
            self.ops.push(Op::Nullable { null, ops: 0 });
            self.joined = self.ops.len();
            each(self, other)?;
            let op = match &self.ops[head + 1..] {
                [Op::SkipIntegers(1)] => Op::SkipNullableInteger { null },
                [Op::SkipBytes] => Op::SkipNullableBytes { null },
                [Op::SkipFixed(size)] => Op::SkipNullableFixed { null, size: *size },
                ops => Op::Nullable { null, ops: ops.len() },
            };
            if !matches!(op, Op::Nullable { .. }) {
                self.ops.truncate(head + 1);
            }
            self.ops[head] = op;
        } else {
            self.ops.push(Op::Union(vec![]));
            let (mut starts, mut ends) = (vec![], vec![]);
            for branch in branches {
                self.joined = self.ops.len();
                starts.push(self.joined);
                each(self, *branch)?;
                ends.push(self.ops.len());
                self.ops.push(Op::Jump(0));
            }
            let next = self.ops.len();
            ends.into_iter().for_each(|end| self.ops[end] = Op::Jump(next));
            self.ops[head] = Op::Union(starts);
        }
        self.joined = self.ops.len();
        Ok(())
    }

    fn skip(&mut self, node: NodeId, depth: usize) -> Result<()> {
        self.values += 1;
        if depth > MAX_FLAT_DEPTH || self.values > MAX_FLAT_VALUES {
            self.ops.push(Op::SkipTree(node));
            return Ok(());
        }
        match self.schema.integers(node) {
            Some(0) => return Ok(()),
            Some(integers) => {
                self.skip_integers(integers as u64);
                return Ok(());
            }
            None => {}
        }
        match self.schema.node(node) {
            Node::Boolean => self.skip_fixed(1),
            Node::Float => self.skip_fixed(4),
            Node::Double => self.skip_fixed(8),
            Node::Fixed(size) => self.skip_fixed(*size),
            Node::Bytes | Node::String => self.ops.push(Op::SkipBytes),
            Node::Record(fields) => fields.iter().try_for_each(|field| self.skip(field.node, depth + 1))?,
            Node::Union(branches) => self.union(branches, |compiler, branch| compiler.skip(branch, depth + 1))?,
            Node::Array(items) => self.skip_array(node, *items, depth)?,
            _ => self.ops.push(Op::SkipTree(node)),
        }
        Ok(())
    }

    fn skip_array(&mut self, array: NodeId, items: NodeId, depth: usize) -> Result<()> {
        let op = match (self.schema.integers(items), self.schema.node(items)) {
            // Any number of items without bytes is walked over at once.
            (Some(0), _) => Op::SkipTree(array),
            (Some(integers), _) => Op::SkipIntegerItems(integers as u64),
            (None, Node::Record(fields)) if self.are_integer_and_bytes(fields) => Op::SkipIntegerBytesItems,
            (None, _) => {
                let (outer, outer_joined) = (std::mem::take(&mut self.ops), std::mem::take(&mut self.joined));
                self.skip(items, depth + 1)?;
                self.joined = outer_joined;
                Op::SkipItems(std::mem::replace(&mut self.ops, outer))
            }
        };
        self.ops.push(op);
        Ok(())
    }

    fn are_integer_and_bytes(&self, fields: &[Field]) -> bool {
        let [key, value] = fields else { return false };
        *self.schema.node(key.node) == Node::Integer
            && matches!(self.schema.node(value.node), Node::Bytes | Node::String)
    }

    fn skip_fixed(&mut self, size: usize) {
        match self.ops[self.joined..].last_mut() {
            Some(Op::SkipFixed(before)) if before.checked_add(size).is_some() => *before += size,
            _ => self.ops.push(Op::SkipFixed(size)),
        }
    }

    fn skip_integers(&mut self, count: u64) {
        match self.ops[self.joined..].last_mut() {
            Some(Op::SkipIntegers(before)) if before.checked_add(count).is_some() => *before += count,
            _ => self.ops.push(Op::SkipIntegers(count)),
        }
    }
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
