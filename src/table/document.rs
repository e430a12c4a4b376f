//! A JSON object that is edited without being understood.
//!
//! Table metadata holds fields that we don't know, integers beyond 2^53 and numbers whose spelling matters to nobody
//! but their writer. A [`Document`] keeps every value as the text it was read as: what an edit doesn't name comes out
//! byte for byte as it went in, in the same order.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

/// An ordered JSON object whose values are kept as text.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    fields: Vec<(String, Box<RawValue>)>,
}

impl Document {
    pub(crate) fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The raw text of a field; a field that is absent and one that is `null` are told apart.
    pub(crate) fn raw(&self, name: &str) -> Option<&RawValue> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    /// Reads a field; absent and `null` both give `None`.
    pub(crate) fn get<T: DeserializeOwned>(&self, name: &str) -> serde_json::Result<Option<T>> {
        self.raw(name).map_or(Ok(None), |value| serde_json::from_str::<Option<T>>(value.get()))
    }

    /// Reads a field that holds an array, keeping each element as text. Absent and `null` give `None`.
    pub(crate) fn elements(&self, name: &str) -> serde_json::Result<Option<Vec<Box<RawValue>>>> {
        self.get(name)
    }

    /// Replaces a field where it stands, or appends it.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        let value = serde_json::value::to_raw_value(value)?;
        match self.fields.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name.to_string(), value)),
        }
        Ok(())
    }

    /// Removes a field.
    pub(crate) fn remove(&mut self, name: &str) {
        self.fields.retain(|(key, _)| key != name);
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    // Which of two values counts differs between readers: a decision can't rest on it.
                    if fields.iter().any(|(known, _)| *known == key) {
                        return Err(A::Error::custom(format!("field {key:?} occurs twice")));
                    }
                    fields.push((key, value));
                }
                Ok(Document { fields })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (key, value) in &self.fields {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_named_survive_byte_for_byte() {
        let text = r#"{"big":9223372036854775807,"huge":123456789012345678901234567890,"f":1.50,"e":1E5,"n":null,"o":{"z":1, "a":[ 1,2]},"u":"\u00e9"}"#;
        let mut document = Document::parse(text).unwrap();
        assert_eq!(document.to_json().unwrap(), text);
        document.set("o", &3).unwrap();
        document.set("new", &"x").unwrap();
        document.remove("n");
        assert_eq!(
            document.to_json().unwrap(),
            r#"{"big":9223372036854775807,"huge":123456789012345678901234567890,"f":1.50,"e":1E5,"o":3,"u":"\u00e9","new":"x"}"#
        );
    }

    #[test]
    fn absent_and_null_are_told_apart() {
        let document = Document::parse(r#"{"a":null}"#).unwrap();
        assert_eq!(document.raw("a").map(RawValue::get), Some("null"));
        assert!(document.raw("b").is_none());
        assert_eq!(document.get::<i64>("a").unwrap(), None);
    }

    #[test]
    fn a_repeated_field_is_refused() {
        let error = Document::parse(r#"{"refs":{},"refs":{}}"#).unwrap_err().to_string();
        assert!(error.contains("\"refs\" occurs twice"), "{error}");
    }
}
