//! A JSON object that is edited without being understood.
//!
//! Table metadata holds fields that we don't know, integers beyond 2^53 and numbers whose spelling matters to nobody
//! but their writer. A [`Document`] keeps the text it was read from, once, and where in it each value stands: what an
//! edit doesn't name comes out byte for byte as it went in, in the same order.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::Serialize;
use serde_json::value::RawValue;

/// An ordered JSON object whose values are kept as text. Clones share the text.
#[derive(Clone)]
pub(crate) struct Document {
    text: Arc<str>,
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
struct Field {
    name: String,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    /// Where it stands in the text.
    Read(Range<usize>),
    /// The JSON that an edit put there.
    Edited(String),
}

impl Document {
    pub(crate) fn parse(text: impl Into<Arc<str>>) -> serde_json::Result<Self> {
        let text = text.into();
        let all = 0..text.len();
        Self::parse_part(text, all)
    }

    fn parse_part(text: Arc<str>, part: Range<usize>) -> serde_json::Result<Self> {
        let read: Fields<'_> = serde_json::from_str(&text[part])?;
        let start = text.as_ptr() as usize;
        let fields = read.0.into_iter().map(|(name, value)| {
            let from = value.get().as_ptr() as usize - start;
            Field { name, value: Value::Read(from..from + value.get().len()) }
        });
        Ok(Self { fields: fields.collect(), text: text.clone() })
    }

    /// The text that the document was read from.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The JSON of a field; one that is absent and one that is `null` are told apart.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        self.field(name).map(|field| self.json_of(field))
    }

    /// Reads a field; absent and `null` both give `None`.
    pub(crate) fn get<T: DeserializeOwned>(&self, name: &str) -> serde_json::Result<Option<T>> {
        self.raw(name).map_or(Ok(None), serde_json::from_str::<Option<T>>)
    }

    /// Reads a field that holds an array, keeping each element as text. Absent and `null` give `None`.
    pub(crate) fn elements(&self, name: &str) -> serde_json::Result<Option<Vec<&RawValue>>> {
        self.raw(name).map_or(Ok(None), serde_json::from_str::<Option<Vec<&RawValue>>>)
    }

    /// Reads a field that holds an object. Absent and `null` give `None`.
    pub(crate) fn object(&self, name: &str) -> serde_json::Result<Option<Document>> {
        match self.field(name) {
            Some(field) if self.json_of(field) == "null" => Ok(None),
            Some(Field { value: Value::Read(part), .. }) => Self::parse_part(self.text.clone(), part.clone()).map(Some),
            Some(Field { value: Value::Edited(json), .. }) => Self::parse(json.as_str()).map(Some),
            None => Ok(None),
        }
    }

    /// Replaces a field where it stands, or appends it.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        self.set_json(name, serde_json::to_string(value)?);
        Ok(())
    }

    /// Replaces a field with another document.
    pub(crate) fn set_object(&mut self, name: &str, object: &Document) {
        self.set_json(name, object.to_json());
    }

    /// Replaces a field where it stands, or appends it, with text that is JSON.
    pub(crate) fn set_json(&mut self, name: &str, json: String) {
        let value = Value::Edited(json);
        match self.fields.iter_mut().find(|field| field.name == name) {
            Some(field) => field.value = value,
            None => self.fields.push(Field { name: name.to_string(), value }),
        }
    }

    /// Keeps the fields whose names pass.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.fields.retain(|field| keep(&field.name));
    }

    /// The document as JSON, without white space around its own fields.
    pub(crate) fn to_json(&self) -> String {
        let mut json = String::with_capacity(self.pieces().map(|piece| piece.len()).sum());
        self.pieces().for_each(|piece| json.push_str(&piece));
        json
    }

    /// True if [`to_json`](Self::to_json) gives exactly this.
    pub(crate) fn is_json(&self, json: &str) -> bool {
        let mut rest = json;
        for piece in self.pieces() {
            match rest.strip_prefix(piece.as_ref()) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// The fields in their order, each with its JSON.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|field| (field.name.as_str(), self.json_of(field)))
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    fn json_of<'a>(&'a self, field: &'a Field) -> &'a str {
        match &field.value {
            Value::Read(part) => &self.text[part.clone()],
            Value::Edited(json) => json,
        }
    }

    /// What the document's JSON is made of, in order.
    fn pieces(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let fields = self.fields.iter().enumerate().flat_map(|(index, field)| {
            let name = serde_json::Value::from(field.name.as_str());
            let before = if index == 0 { "{" } else { "," };
            [Cow::from(format!("{before}{name}:")), Cow::from(self.json_of(field))]
        });
        fields.chain([Cow::from(if self.fields.is_empty() { "{}" } else { "}" })])
    }
}

/// An array of elements, each as it is.
pub(super) fn array_of(elements: &[&RawValue]) -> String {
    let mut json = String::with_capacity(elements.iter().map(|element| element.get().len() + 1).sum::<usize>() + 2);
    json.push('[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(element.get());
    }
    json.push(']');
    json
}

/// Two documents are equal if they are the same JSON, apart from white space around their own fields.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.fields.len() == other.fields.len()
            && self
                .fields
                .iter()
                .zip(&other.fields)
                .all(|(own, theirs)| own.name == theirs.name && self.json_of(own) == other.json_of(theirs))
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("bytes", &self.text.len()).field("fields", &self.fields).finish()
    }
}

/// The fields of an object as they stand in a text.
struct Fields<'de>(Vec<(String, &'de RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields: Vec<(String, &RawValue)> = Vec::new();
                let mut names = HashSet::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    // Which of two values counts differs between readers: a decision can't rest on it.
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("field {name:?} occurs twice")));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_named_survive_byte_for_byte() {
        let text = r#"{"big":9223372036854775807,"huge":123456789012345678901234567890,"f":1.50,"e":1E5,"n":null,"o":{"z":1, "a":[ 1,2]},"u":"\u00e9"}"#;
        let mut document = Document::parse(text).unwrap();
        assert_eq!(document.to_json(), text);
        document.set("o", &3).unwrap();
        document.set("new", &"x").unwrap();
        document.retain(|name| name != "n");
        assert_eq!(
            document.to_json(),
            r#"{"big":9223372036854775807,"huge":123456789012345678901234567890,"f":1.50,"e":1E5,"o":3,"u":"\u00e9","new":"x"}"#
        );
    }

    #[test]
    fn elements_and_objects_are_kept_as_they_stand() {
        let mut document =
            Document::parse(r#"{"a":[ {"x": 1}, 2.0 ,[]],"o":{"p":{"q": 1} , "r":"\u00e9"},"n":null}"#).unwrap();
        let kept: Vec<String> =
            document.elements("a").unwrap().unwrap().iter().map(|element| element.get().to_string()).collect();
        assert_eq!(kept, [r#"{"x": 1}"#, "2.0", "[]"]);
        let mut object = document.object("o").unwrap().unwrap();
        object.retain(|name| name != "p");
        document.set_object("o", &object);
        assert_eq!(document.raw("o"), Some(r#"{"r":"\u00e9"}"#));
        assert_eq!(document.object("o").unwrap().unwrap().raw("r"), Some(r#""\u00e9""#), "after an edit");
        document.set_json("a", "[2.0]".into());
        assert_eq!(document.to_json(), r#"{"a":[2.0],"o":{"r":"\u00e9"},"n":null}"#);
        assert!(document.object("n").unwrap().is_none() && document.elements("n").unwrap().is_none());
        assert!(document.object("absent").unwrap().is_none() && document.elements("o").is_err());
    }

    #[test]
    fn the_same_json_is_recognised_without_writing_it() {
        let text = "{ \"a\" : 1,\n\"b\\u00e9\":{\"c\": 2} }";
        let compact = r#"{"a":1,"bé":{"c": 2}}"#;
        let document = Document::parse(text).unwrap();
        assert_eq!(document.to_json(), compact);
        assert!(document.is_json(compact) && document == Document::parse(compact).unwrap());
        for other in [r#"{"a":1,"bé":{"c":2}}"#, r#"{"a":1}"#, r#"{"a":1,"bé":{"c": 2},"d":1}"#, "{}"] {
            assert!(!document.is_json(other) && document != Document::parse(other).unwrap(), "{other}");
        }
        assert!(!document.is_json(&format!("{compact} ")) && !document.is_json(""));
    }

    #[test]
    fn absent_and_null_are_told_apart() {
        let document = Document::parse(r#"{"a":null}"#).unwrap();
        assert_eq!(document.raw("a"), Some("null"));
        assert!(document.raw("b").is_none());
        assert_eq!(document.get::<i64>("a").unwrap(), None);
    }

    #[test]
    fn a_repeated_field_is_refused() {
        let error = Document::parse(r#"{"refs":{},"refs":{}}"#).unwrap_err().to_string();
        assert!(error.contains("\"refs\" occurs twice"), "{error}");
    }
}
