//! JSON from untrusted sources. An object with two members of one name is refused, at any depth.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The members of an object. `None` for anything that is not an object, repeats a member, or is nested deeper than 128
/// levels.
pub fn object(text: &[u8]) -> Option<Map<String, Value>> {
    match value(text).ok()? {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// Any value. An error for anything that is not JSON, repeats a member, or is nested deeper than 128 levels.
pub fn value(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|Unique(value)| value)
}

/// A value in which no object repeats a member.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated members")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = items.next_key::<String>()? {
            let Unique(value) = items.next_value()?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is repeated"));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_it_is() {
        let text = br#"{"a":[1,-2,2.5,null,true,"x"],"b":{"c":{}}}"#;
        assert_eq!(object(text).map(Value::Object), serde_json::from_slice(text).ok());
    }

    #[test]
    fn a_repeated_member_is_refused_in_any_form() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"b":[{"a":1,"a":2}]}"#, r#"{"sub":"x","\u0073ub":"y"}"#] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
            assert!(value(text.as_bytes()).is_err(), "{text}");
        }
        assert!(value(br#"[1,[{"a":1,"a":1}]]"#).is_err());
        assert!(value(br#"[{"a":1},{"a":1}]"#).is_ok(), "each object has its own");
    }

    #[test]
    fn only_a_single_object_is_accepted() {
        for text in ["", "1", "[]", "\"a\"", "null", "{}{}", "{} x", "{\"a\":1,}", "{\"a\":\"\\ud800\"}"] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), None, "not UTF-8");
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        assert_eq!(object(deep.as_bytes()), None);
    }
}
