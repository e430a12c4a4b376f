//! From a constant to a value of the parameter's kind. Nothing is converted that a reader could take for something else:
//! text is no number, a number is no truth value except 0 and 1, a fraction is no whole number.

use datafusion::arrow::array::{Array, ListArray, MapArray, StructArray};
use datafusion::common::ScalarValue;

use super::arguments::Environment;
use super::constant::Constant;
use crate::procedure::{ParameterKind, Value};
use crate::time::{self, Why};

/// The kind in words, for lists of arguments.
pub(crate) fn kind_in_words(kind: ParameterKind) -> String {
    match kind {
        ParameterKind::Table => "table name or location".into(),
        ParameterKind::Catalog => "catalog or catalog.namespace".into(),
        ParameterKind::Timestamp => "timestamp".into(),
        ParameterKind::Duration => "duration".into(),
        ParameterKind::Integer(least) => format!("integer >= {least}"),
        ParameterKind::Fraction => "number from 0 to 1".into(),
        ParameterKind::Boolean => "boolean".into(),
        ParameterKind::Ids => "list of snapshot ids".into(),
        ParameterKind::Map => "map of texts".into(),
        ParameterKind::Choice(words) => words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" | "),
        ParameterKind::Text => "text".into(),
    }
}

/// Converts a constant; `None` for NULL, which counts as not given.
pub(crate) fn convert(constant: &Constant, kind: ParameterKind, env: &Environment) -> Result<Option<Value>, Why> {
    let value = match constant {
        Constant::Scalar(scalar) if scalar.is_null() => return Ok(None),
        Constant::Scalar(scalar) => match text_of(scalar) {
            Some(text) => from_text(text, kind, env),
            None => from_scalar(scalar, kind, env),
        },
        Constant::Timestamp(text) => match kind {
            ParameterKind::Timestamp => time::parse_timestamp(text, env.zone).map(Value::Timestamp),
            _ => Err(wrong_type("a timestamp", kind)),
        },
        Constant::Name(name) => match kind {
            ParameterKind::Table => table(name),
            ParameterKind::Catalog => catalog(name),
            _ => Err(format!("{name} is a name, not a value; put text in single quotes")),
        },
        Constant::Option(text) => from_option(text, kind, env),
    };
    value.map(Some)
}

fn wrong_type(given: &str, kind: ParameterKind) -> Why {
    let kind = kind_in_words(kind);
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{given} was given where {article} {kind} is expected")
}

pub(crate) fn text_of(scalar: &ScalarValue) -> Option<&str> {
    match scalar {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => text.as_deref(),
        _ => None,
    }
}

fn table(name: &str) -> Result<Value, Why> {
    if name.trim().is_empty() {
        return Err("the name of the table is empty".into());
    }
    Ok(Value::Text(name.to_string()))
}

fn catalog(name: &str) -> Result<Value, Why> {
    if name.trim().is_empty() {
        return Err("the name of the catalog is empty".into());
    }
    Ok(Value::Text(name.to_string()))
}

fn from_text(text: &str, kind: ParameterKind, env: &Environment) -> Result<Value, Why> {
    match kind {
        ParameterKind::Table => table(text),
        ParameterKind::Catalog => catalog(text),
        ParameterKind::Timestamp => time::timestamp_from_text(text, env.zone, env.now_ms).map(Value::Timestamp),
        ParameterKind::Duration => time::parse_duration(text).map(Value::Duration),
        ParameterKind::Ids => ids_from_text(text).ok_or_else(|| format!("'{text}' is no list of snapshot ids"))?,
        ParameterKind::Map => map_from_text(text).ok_or_else(|| format!("'{text}' is no map; write it as 'a,b=>c'")),
        ParameterKind::Choice(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
            Some(word) => Ok(Value::Text((*word).to_string())),
            None => Err(format!("'{text}' is none of {}", kind_in_words(kind))),
        },
        ParameterKind::Text => Ok(Value::Text(text.to_string())),
        ParameterKind::Integer(_) | ParameterKind::Fraction | ParameterKind::Boolean => {
            Err(wrong_type(&format!("the text '{text}'"), kind))
        }
    }
}

/// Hive's `'id,id'`. The inner result is an error when an id is no 64-bit number.
fn ids_from_text(text: &str) -> Option<Result<Value, Why>> {
    if !is_id_list(text) {
        return None;
    }
    let ids: Result<Vec<i64>, _> = text.split(',').map(|id| id.trim().parse()).collect();
    Some(ids.map(Value::Ids).map_err(|_| format!("'{text}' holds an id that is no 64-bit number")))
}

/// True for whole numbers with commas between them, as Hive writes snapshot ids.
pub(crate) fn is_id_list(text: &str) -> bool {
    text.split(',').all(|id| {
        let id = id.trim();
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `'a,b=>c'`, and more such pairs after semicolons.
fn map_from_text(text: &str) -> Option<Value> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once("=>")?;
        let (key, value) = (key.trim(), value.trim());
        let valid = !key.is_empty() && !value.is_empty() && !value.contains("=>");
        valid.then(|| (key.to_string(), value.to_string()))
    };
    text.split(';').map(pair).collect::<Option<Vec<_>>>().map(Value::Map)
}

fn from_scalar(scalar: &ScalarValue, kind: ParameterKind, env: &Environment) -> Result<Value, Why> {
    let wrong = || wrong_type(&format!("{scalar} ({})", scalar.data_type()), kind);
    match kind {
        ParameterKind::Timestamp => match time::timestamp_from_scalar(scalar, env.zone, env.now_ms) {
            Some(ms) => ms.map(Value::Timestamp),
            None => integer(scalar)?.ok_or_else(wrong).and_then(time::timestamp_from_number).map(Value::Timestamp),
        },
        ParameterKind::Duration => match time::duration_from_scalar(scalar) {
            Some(ms) => ms.map(Value::Duration),
            // The text form of the number tells how to write it.
            None => time::parse_duration(&integer(scalar)?.ok_or_else(wrong)?.to_string()).map(Value::Duration),
        },
        ParameterKind::Integer(least) => integer_of_at_least(integer(scalar)?.ok_or_else(wrong)?, least),
        ParameterKind::Fraction => fraction(number(scalar).ok_or_else(wrong)?),
        ParameterKind::Boolean => match scalar {
            ScalarValue::Boolean(Some(value)) => Ok(Value::Boolean(*value)),
            _ => match integer(scalar)? {
                Some(0) => Ok(Value::Boolean(false)),
                Some(1) => Ok(Value::Boolean(true)),
                _ => Err(wrong()),
            },
        },
        ParameterKind::Ids => match scalar {
            ScalarValue::List(list) => ids_from_list(list),
            _ => Err(wrong()),
        },
        ParameterKind::Map => {
            let pairs = named_values(scalar).ok_or_else(wrong)?;
            let text = |(name, value): (String, ScalarValue)| text_of(&value).map(|value| (name, value.to_string()));
            pairs.into_iter().map(text).collect::<Option<Vec<_>>>().map(Value::Map).ok_or_else(wrong)
        }
        ParameterKind::Table | ParameterKind::Catalog | ParameterKind::Text | ParameterKind::Choice(_) => Err(wrong()),
    }
}

/// The whole number that a scalar holds; `None` when its type is none of whole numbers.
fn integer(scalar: &ScalarValue) -> Result<Option<i64>, Why> {
    Ok(Some(match scalar {
        ScalarValue::Int8(Some(v)) => i64::from(*v),
        ScalarValue::Int16(Some(v)) => i64::from(*v),
        ScalarValue::Int32(Some(v)) => i64::from(*v),
        ScalarValue::Int64(Some(v)) => *v,
        ScalarValue::UInt8(Some(v)) => i64::from(*v),
        ScalarValue::UInt16(Some(v)) => i64::from(*v),
        ScalarValue::UInt32(Some(v)) => i64::from(*v),
        ScalarValue::UInt64(Some(v)) => i64::try_from(*v).map_err(|_| format!("{v} is too large"))?,
        _ => return Ok(None),
    }))
}

fn integer_of_at_least(number: i64, least: i64) -> Result<Value, Why> {
    if number < least {
        return Err(format!("{number} is less than {least}"));
    }
    Ok(Value::Integer(number))
}

fn number(scalar: &ScalarValue) -> Option<f64> {
    match scalar {
        ScalarValue::Float32(Some(v)) => Some(f64::from(*v)),
        ScalarValue::Float64(Some(v)) => Some(*v),
        ScalarValue::Int64(Some(v)) => Some(*v as f64),
        ScalarValue::Decimal128(Some(v), _, scale) => Some(*v as f64 / 10_f64.powi(i32::from(*scale))),
        _ => None,
    }
}

fn fraction(number: f64) -> Result<Value, Why> {
    if !(0.0..=1.0).contains(&number) {
        return Err(format!("{number} is not between 0 and 1"));
    }
    Ok(Value::Fraction(number))
}

fn ids_from_list(list: &ListArray) -> Result<Value, Why> {
    let elements = list.value(0);
    if elements.is_empty() {
        return Err("the list is empty; name at least one snapshot, or leave the argument out".into());
    }
    let id = |index| -> Result<i64, Why> {
        let element = ScalarValue::try_from_array(&elements, index).map_err(|error| error.to_string())?;
        integer(&element)?.ok_or_else(|| format!("{element} in the list is no snapshot id"))
    };
    (0..elements.len()).map(id).collect::<Result<Vec<_>, _>>().map(Value::Ids)
}

/// Names and values of a struct, or of a map with texts as its keys.
pub(crate) fn named_values(scalar: &ScalarValue) -> Option<Vec<(String, ScalarValue)>> {
    match scalar {
        ScalarValue::Struct(values) => struct_values(values),
        ScalarValue::Map(map) => map_values(map),
        _ => None,
    }
}

fn struct_values(values: &StructArray) -> Option<Vec<(String, ScalarValue)>> {
    let columns = values.fields().iter().zip(values.columns());
    columns.map(|(field, column)| Some((field.name().clone(), ScalarValue::try_from_array(column, 0).ok()?))).collect()
}

fn map_values(map: &MapArray) -> Option<Vec<(String, ScalarValue)>> {
    let entries = map.value(0);
    let (keys, values) = (entries.column(0), entries.column(1));
    let pair = |index| {
        let key = ScalarValue::try_from_array(keys, index).ok()?;
        Some((text_of(&key)?.to_string(), ScalarValue::try_from_array(values, index).ok()?))
    };
    (0..entries.len()).map(pair).collect()
}

/// Converts text of an options string, in which numbers and truth values are text, too.
fn from_option(text: &str, kind: ParameterKind, env: &Environment) -> Result<Value, Why> {
    let wrong = || wrong_type(&format!("'{text}'"), kind);
    match kind {
        ParameterKind::Integer(least) => integer_of_at_least(text.parse().map_err(|_| wrong())?, least),
        ParameterKind::Fraction => fraction(text.parse().map_err(|_| wrong())?),
        ParameterKind::Boolean if text == "1" || text.eq_ignore_ascii_case("true") => Ok(Value::Boolean(true)),
        ParameterKind::Boolean if text == "0" || text.eq_ignore_ascii_case("false") => Ok(Value::Boolean(false)),
        ParameterKind::Boolean => Err(wrong()),
        ParameterKind::Timestamp => match text.parse() {
            Ok(number) => time::timestamp_from_number(number).map(Value::Timestamp),
            Err(_) => from_text(text, kind, env),
        },
        _ => from_text(text, kind, env),
    }
}
