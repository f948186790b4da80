//! One column's value, exactly as the database holds it, and its form in the undo log.
//!
//! Values that have an exact and readable neutral form (whole numbers, texts, booleans, finite
//! floating-point numbers) are kept in it; everything else is kept as the bytes that the database
//! sent. Two values are equal when their forms are, so no rounding, time zone or locale is
//! involved.

use std::fmt;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value as Json};

/// A value of a column.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number, wide enough for MySQL's unsigned ones.
    Integer(i128),
    /// A finite floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// The bytes that the database sent.
    Bytes(Vec<u8>),
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Integer(a), Self::Integer(b)) => a == b,
            // By bits: 0.0 and -0.0 are two values.
            (Self::Real(a), Self::Real(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (
                Self::Null
                | Self::Bool(_)
                | Self::Integer(_)
                | Self::Real(_)
                | Self::Text(_)
                | Self::Bytes(_),
                _,
            ) => false,
        }
    }
}

impl Eq for Value {}

impl Value {
    /// Text, or the bytes themselves where they are not UTF-8.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn text(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_owned()),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// A value that a column of its type cannot hold: the undo log was written for another schema.
#[derive(Clone, Debug, thiserror::Error)]
#[error("value {value} does not fit a column of type {type_name}")]
pub struct Misfit {
    /// The kind of the value, never its content.
    pub(crate) value: &'static str,
    /// The column's type.
    pub(crate) type_name: String,
}

impl Misfit {
    pub(crate) fn new(value: &Value, type_name: impl fmt::Display) -> Self {
        let value = match value {
            Value::Null => "NULL",
            Value::Bool(_) => "a boolean",
            Value::Integer(_) => "a whole number",
            Value::Real(_) => "a floating-point number",
            Value::Text(_) => "a text",
            Value::Bytes(_) => "bytes",
        };
        Self { value, type_name: type_name.to_string() }
    }
}

/// JSON carries texts, whole numbers and booleans as themselves; `{"real": "1.5"}` and
/// `{"hex": "00ff"}` stand for values that it cannot carry exactly.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Integer(value) => Json::Number(
                Number::from_i128(*value).ok_or_else(|| S::Error::custom("number too wide"))?,
            ),
            Self::Real(value) => tagged("real", format!("{value:?}")),
            Self::Text(value) => Json::String(value.clone()),
            Self::Bytes(value) => tagged("hex", to_hex(value)),
        };
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Json::deserialize(deserializer)? {
            Json::Null => Ok(Self::Null),
            Json::Bool(value) => Ok(Self::Bool(value)),
            Json::Number(number) => {
                number.as_i128().map(Self::Integer).ok_or_else(|| D::Error::custom("not whole"))
            }
            Json::String(value) => Ok(Self::Text(value)),
            Json::Object(object) => untag(&object).map_err(D::Error::custom),
            Json::Array(_) => Err(D::Error::custom("an array is no value")),
        }
    }
}

/// The single-precision number that was widened without loss, or nothing.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn narrow(value: f64) -> Option<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "checked on the next line")]
    let narrowed = value as f32;
    (f64::from(narrowed).to_bits() == value.to_bits()).then_some(narrowed)
}

fn tagged(tag: &str, text: String) -> Json {
    Json::Object(Map::from_iter([(tag.to_owned(), Json::String(text))]))
}

fn untag(object: &Map<String, Json>) -> Result<Value, String> {
    let mut entries = object.iter();
    let (Some((tag, Json::String(text))), None) = (entries.next(), entries.next()) else {
        return Err("a value object holds one text".to_owned());
    };
    match tag.as_str() {
        "real" => text.parse().map(Value::Real).map_err(|error| format!("{error}: {text}")),
        "hex" => from_hex(text).map(Value::Bytes).ok_or_else(|| "malformed hex".to_owned()),
        other => Err(format!("unknown value tag {other}")),
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_survives_json() {
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Integer(i128::from(u64::MAX)),
            Value::Integer(i128::from(i64::MIN)),
            Value::Real(-0.0),
            Value::Real(f64::MIN_POSITIVE / 4.0),
            Value::Real(f64::from(0.1_f32)),
            Value::Text("ä\u{0}\"\\".to_owned()),
            Value::Bytes(vec![0, 255, 16]),
        ];
        for value in values {
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value, "{json}");
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for json in ["[]", "1.5", r#"{"hex":"0"}"#, r#"{"hex":"é0"}"#, r#"{"x":"1"}"#, "{}"] {
            assert!(serde_json::from_str::<Value>(json).is_err(), "{json}");
        }
    }
}
