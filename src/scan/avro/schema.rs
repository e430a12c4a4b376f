//! The writer's schema (Avro specification, "Schema Declaration"), as far as decoding needs it.
//!
//! Logical types, defaults, aliases and documentation are ignored: they don't change how a value is encoded. A schema is
//! a flat list of nodes that refer to each other by number, so that a type used by name, even inside itself, is nothing
//! special.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::{MAX_DEPTH, Result};

/// A node of a [`Schema`] by its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(usize);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    Null,
    Boolean,
    /// `int` or `long`: they are encoded alike.
    Integer,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    /// With the number of its symbols.
    Enum(usize),
    /// Without the fields whose values take no bytes.
    Record(Vec<Field>),
    Array(NodeId),
    Map(NodeId),
    Union(Vec<NodeId>),
}

impl Node {
    /// The type's name in a schema.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Boolean => "boolean",
            Node::Integer => "int or long",
            Node::Float => "float",
            Node::Double => "double",
            Node::Bytes => "bytes",
            Node::String => "string",
            Node::Fixed(_) => "fixed",
            Node::Enum(_) => "enum",
            Node::Record(_) => "record",
            Node::Array(_) => "array",
            Node::Map(_) => "map",
            Node::Union(_) => "union",
        }
    }
}

/// A field of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    /// Iceberg's attribute `field-id`. Names may differ between writers, ids don't.
    pub(super) id: Option<i64>,
    pub(super) node: NodeId,
}

/// A parsed schema. Never empty.
#[derive(Debug)]
pub(super) struct Schema {
    nodes: Vec<Node>,
    integers: Vec<Option<usize>>,
    root: NodeId,
}

impl Schema {
    pub(super) fn parse(json: &[u8]) -> Result<Self> {
        let json: Json = serde_json::from_slice(json).map_err(|e| format!("its avro.schema is not JSON: {e}"))?;
        let mut parser = Parser::default();
        let root = parser.node(&json, "", 0).map_err(|e| format!("its avro.schema is wrong: {e}"))?;
        Ok(Self { nodes: parser.nodes, integers: parser.integers, root })
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    #[inline]
    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// How many integers a value of this type consists of, if it is nothing else.
    ///
    /// Most of a manifest is such: maps from column ids to counts. Zero means that values take no bytes at all, so that
    /// any number of them may be "read" from none.
    #[inline]
    pub(super) fn integers(&self, id: NodeId) -> Option<usize> {
        self.integers[id.0]
    }
}

#[derive(Default)]
struct Parser {
    nodes: Vec<Node>,
    integers: Vec<Option<usize>>,
    /// By full name. `None`: defined more than once, so that a use by name is ambiguous.
    named: HashMap<String, Option<NodeId>>,
}

impl Parser {
    fn node(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<NodeId> {
        if depth > MAX_DEPTH {
            return Err(format!("it nests more than {MAX_DEPTH} deep").into());
        }
        match json {
            Json::String(name) => self.by_name(name, namespace),
            Json::Array(branches) => {
                let branches = branches.iter().map(|branch| self.node(branch, namespace, depth + 1));
                let branches = branches.collect::<Result<Vec<_>>>()?;
                Ok(self.add(Node::Union(branches), None))
            }
            Json::Object(_) => self.complex(json, namespace, depth),
            other => Err(format!("{other} is not a type").into()),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str) -> Result<NodeId> {
        let primitive = match name {
            "null" => Node::Null,
            "boolean" => Node::Boolean,
            "int" | "long" => Node::Integer,
            "float" => Node::Float,
            "double" => Node::Double,
            "bytes" => Node::Bytes,
            "string" => Node::String,
            _ => {
                let found = self.named.get(&full_name(name, namespace)).or_else(|| self.named.get(name));
                return match found {
                    Some(Some(id)) => Ok(*id),
                    Some(None) => Err(format!("type {name} is defined more than once").into()),
                    None => Err(format!("type {name} is not defined").into()),
                };
            }
        };
        let integers = match primitive {
            Node::Null => Some(0),
            Node::Integer => Some(1),
            _ => None,
        };
        Ok(self.add(primitive, integers))
    }

    fn complex(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<NodeId> {
        let kind = json.get("type").ok_or("a type has no \"type\"")?;
        let Json::String(kind) = kind else {
            return self.node(kind, namespace, depth + 1);
        };
        match kind.as_str() {
            "record" | "error" => self.record(json, namespace, depth),
            "enum" => {
                let symbols = json.get("symbols").and_then(Json::as_array).ok_or("an enum has no symbols")?.len();
                self.define(json, namespace, Node::Enum(symbols), None)
            }
            "fixed" => {
                let size = json.get("size").and_then(Json::as_u64).and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or("a fixed type has no size")?;
                self.define(json, namespace, Node::Fixed(size), (size == 0).then_some(0))
            }
            "array" => {
                let items = self.node(json.get("items").ok_or("an array has no items")?, namespace, depth + 1)?;
                Ok(self.add(Node::Array(items), None))
            }
            "map" => {
                let values = self.node(json.get("values").ok_or("a map has no values")?, namespace, depth + 1)?;
                Ok(self.add(Node::Map(values), None))
            }
            name => self.by_name(name, namespace),
        }
    }

    fn record(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<NodeId> {
        let own_name = declared_name(json, namespace)?;
        let namespace = own_name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_string();
        // Known by name before its fields are, so that they can use it. Until then it counts as taking bytes: a record
        // that holds itself without a union or array between has no finite value, and its decoding hits the depth limit.
        let id = self.define(json, &namespace, Node::Record(vec![]), None)?;
        let (mut fields, mut integers) = (vec![], Some(0usize));
        for field in json.get("fields").and_then(Json::as_array).ok_or("a record has no fields")? {
            let name = field.get("name").and_then(Json::as_str).ok_or("a field has no name")?.to_string();
            let node = field.get("type").ok_or_else(|| format!("field {name} has no type"))?;
            let node = self.node(node, &namespace, depth + 1)?;
            // Nothing is to be read or walked over for such a field, so a million of them must not cost time per record.
            if self.integers[node.0] != Some(0) {
                fields.push(Field { name, id: field.get("field-id").and_then(Json::as_i64), node });
            }
            integers = integers.zip(self.integers[node.0]).and_then(|(before, here)| before.checked_add(here));
        }
        self.integers[id.0] = integers;
        self.nodes[id.0] = Node::Record(fields);
        Ok(id)
    }

    fn define(&mut self, json: &Json, namespace: &str, node: Node, integers: Option<usize>) -> Result<NodeId> {
        let name = declared_name(json, namespace)?;
        let id = self.add(node, integers);
        self.named.entry(name).and_modify(|known| *known = None).or_insert(Some(id));
        Ok(id)
    }

    fn add(&mut self, node: Node, integers: Option<usize>) -> NodeId {
        self.nodes.push(node);
        self.integers.push(integers);
        NodeId(self.nodes.len() - 1)
    }
}

/// The full name that a record, enum or fixed type declares.
fn declared_name(json: &Json, enclosing: &str) -> Result<String> {
    let name = json.get("name").and_then(Json::as_str).ok_or("a named type has no name")?;
    let namespace = json.get("namespace").and_then(Json::as_str).unwrap_or(enclosing);
    Ok(full_name(name, namespace))
}

fn full_name(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        true => name.to_string(),
        false => format!("{namespace}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(json: &str) -> (Schema, NodeId) {
        let schema = Schema::parse(json.as_bytes()).unwrap();
        let root = schema.root();
        (schema, root)
    }

    fn error(json: &str) -> String {
        Schema::parse(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn field_ids_are_read_and_logical_types_are_seen_through() {
        let (schema, root) = root(
            r#"{"type":"record","name":"r","fields":[
                {"name":"a","type":{"type":"long","logicalType":"timestamp-micros"},"field-id":7},
                {"name":"b","type":["null",{"type":"fixed","name":"f","size":16,"logicalType":"decimal"}]}]}"#,
        );
        let Node::Record(fields) = schema.node(root) else { panic!("{schema:?}") };
        assert_eq!((fields[0].name.as_str(), fields[0].id), ("a", Some(7)));
        assert_eq!(schema.node(fields[0].node), &Node::Integer);
        assert_eq!((fields[1].name.as_str(), fields[1].id), ("b", None));
        let Node::Union(branches) = schema.node(fields[1].node) else { panic!("{schema:?}") };
        assert_eq!([schema.node(branches[0]), schema.node(branches[1])], [&Node::Null, &Node::Fixed(16)]);
    }

    #[test]
    fn types_are_found_by_name_in_their_namespace_and_inside_themselves() {
        let (schema, root) = root(
            r#"{"type":"record","name":"n.list","fields":[
                {"name":"e","type":{"type":"enum","name":"e","symbols":["A","B"]}},
                {"name":"same","type":"e"},{"name":"full","type":"n.e"},
                {"name":"next","type":["null","list"]}]}"#,
        );
        let Node::Record(fields) = schema.node(root) else { panic!("{schema:?}") };
        assert_eq!(schema.node(fields[0].node), &Node::Enum(2));
        assert_eq!([fields[1].node, fields[2].node], [fields[0].node; 2]);
        let Node::Union(branches) = schema.node(fields[3].node) else { panic!("{schema:?}") };
        assert_eq!(branches[1], root);
    }

    #[test]
    fn what_is_nothing_but_integers_is_known() {
        let empty = r#"{"type":"record","name":"e","fields":[{"name":"n","type":"null"},
            {"name":"f","type":{"type":"fixed","name":"f","size":0}}]}"#;
        for (json, integers) in [
            (r#""null""#, Some(0)),
            (r#""long""#, Some(1)),
            (empty, Some(0)),
            (&format!(r#"{{"type":"record","name":"o","fields":[{{"name":"e","type":{empty}}}]}}"#), Some(0)),
            (
                r#"{"type":"record","name":"r","fields":[{"name":"k","type":"int"},{"name":"v","type":"long"}]}"#,
                Some(2),
            ),
            (r#"{"type":"record","name":"r","fields":[{"name":"k","type":"int"},{"name":"v","type":"bytes"}]}"#, None),
            (&format!(r#"{{"type":"array","items":{empty}}}"#), None),
            (r#"["null"]"#, None),
            (r#""boolean""#, None),
            (r#"{"type":"record","name":"r","fields":[{"name":"self","type":"r"}]}"#, None),
        ] {
            let (schema, root) = root(json);
            assert_eq!(schema.integers(root), integers, "{json}");
        }
    }

    #[test]
    fn wrong_schemas_are_refused() {
        for (json, why) in [
            ("{", "not JSON"),
            ("7", "7 is not a type"),
            (r#""strnig""#, "type strnig is not defined"),
            (r#"{"name":"r"}"#, "has no \"type\""),
            (r#"{"type":"record","name":"r"}"#, "has no fields"),
            (r#"{"type":"record","fields":[]}"#, "has no name"),
            (r#"{"type":"fixed","name":"f","size":-1}"#, "has no size"),
            (
                r#"[{"type":"fixed","name":"f","size":1},{"type":"fixed","name":"f","size":2},"f"]"#,
                "type f is defined more than once",
            ),
        ] {
            let error = error(json);
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested =
            |levels: usize| format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(levels), "}".repeat(levels));
        assert!(Schema::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(error(&nested(MAX_DEPTH + 1)).contains("nests more than 64 deep"));
        assert!(error(&nested(100_000)).contains("recursion limit"));
    }
}
