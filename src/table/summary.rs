//! What a snapshot's summary says, as far as maintenance asks.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What the writer of a snapshot says of it. Everything else in the summary stays in the document and is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct SnapshotSummary {
    /// `append`, `replace`, `overwrite` or `delete`; the one key that the spec requires.
    pub operation: Option<Box<str>>,
    /// How many data files the snapshot has, if the writer noted a number.
    pub total_data_files: Option<i64>,
    /// How many delete files the snapshot has, if the writer noted a number.
    pub total_delete_files: Option<i64>,
    /// How many bytes the snapshot's data and delete files have, if the writer noted a number.
    pub total_files_size: Option<i64>,
    /// How many bytes the files have that the snapshot doesn't have any more and its parent had, if the writer noted a number.
    pub removed_files_size: Option<i64>,
    /// How many rows the snapshot's data files have, deleted ones included, if the writer noted a number.
    pub total_records: Option<i64>,
    /// How many positions the snapshot's delete files and deletion vectors have, if the writer noted a number.
    pub total_position_deletes: Option<i64>,
    /// How many rows the snapshot's equality-delete files have, if the writer noted a number.
    pub total_equality_deletes: Option<i64>,
    /// How many bytes the files have that the snapshot added, if the writer noted a number.
    pub added_files_size: Option<i64>,
    /// The Flink job that made the snapshot.
    pub flink_job_id: Option<Box<str>>,
    /// The job's operator that made it.
    pub flink_operator_id: Option<Box<str>>,
    /// Up to which checkpoint the job's data is in the table.
    pub flink_max_committed_checkpoint_id: Option<Box<str>>,
    /// The key under which a Kafka Connect sink noted how far it has come: `kafka.connect.offsets.<topic>.<group>`.
    pub kafka_connect_offsets: Option<Box<str>>,
}

impl<'de> Deserialize<'de> for SnapshotSummary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = SnapshotSummary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a snapshot's summary")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<SnapshotSummary, A::Error> {
                let mut summary = SnapshotSummary::default();
                while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
                    match name.as_ref() {
                        "operation" => summary.operation = fields.next_value()?,
                        "total-data-files" => summary.total_data_files = fields.next_value::<Count>()?.0,
                        "total-delete-files" => summary.total_delete_files = fields.next_value::<Count>()?.0,
                        "total-files-size" => summary.total_files_size = fields.next_value::<Count>()?.0,
                        "removed-files-size" => summary.removed_files_size = fields.next_value::<Count>()?.0,
                        "total-records" => summary.total_records = fields.next_value::<Count>()?.0,
                        "total-position-deletes" => summary.total_position_deletes = fields.next_value::<Count>()?.0,
                        "total-equality-deletes" => summary.total_equality_deletes = fields.next_value::<Count>()?.0,
                        "added-files-size" => summary.added_files_size = fields.next_value::<Count>()?.0,
                        "flink.job-id" => summary.flink_job_id = fields.next_value::<Text>()?.0,
                        "flink.operator-id" => summary.flink_operator_id = fields.next_value::<Text>()?.0,
                        "flink.max-committed-checkpoint-id" => {
                            summary.flink_max_committed_checkpoint_id = fields.next_value::<Text>()?.0;
                        }
                        key if key.starts_with(KAFKA_CONNECT_OFFSETS) => {
                            summary.kafka_connect_offsets = Some(key.into());
                            fields.next_value::<IgnoredAny>()?;
                        }
                        _ => {
                            fields.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(summary)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// What the keys of Kafka Connect sinks begin with.
const KAFKA_CONNECT_OFFSETS: &str = "kafka.connect.offsets";

/// A value that should be a text.
struct Text(Option<Box<str>>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer).map(Self)
    }
}

/// A value that should be a count.
struct Count(Option<i64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        count(deserializer).map(Self)
    }
}

impl SnapshotSummary {
    /// What kind of change made the snapshot: `append`, `replace`, `overwrite` or `delete`.
    pub fn operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }
}

/// Reads a text. Anything else is no text, and no error.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<str>>, D::Error> {
    let value = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(value.and_then(|value| serde_json::from_str(value.get()).ok()))
}

/// Reads a count. The spec has it as text, some writers write a number; anything else is no count, and no error:
/// writers need not write any.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    struct Number;
    impl<'de> Visitor<'de> for Number {
        type Value = Option<i64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a count")
        }

        fn visit_str<E>(self, text: &str) -> Result<Option<i64>, E> {
            Ok(text.parse().ok())
        }

        fn visit_i64<E>(self, number: i64) -> Result<Option<i64>, E> {
            Ok(Some(number))
        }

        fn visit_u64<E>(self, number: u64) -> Result<Option<i64>, E> {
            Ok(i64::try_from(number).ok())
        }

        fn visit_f64<E>(self, _: f64) -> Result<Option<i64>, E> {
            Ok(None)
        }

        fn visit_bool<E>(self, _: bool) -> Result<Option<i64>, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Option<i64>, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Option<i64>, A::Error> {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<i64>, A::Error> {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(None)
        }
    }
    deserializer.deserialize_any(Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_kind_that_the_spec_says_is_none_and_no_error() {
        for (value, expected) in [
            (r#""12""#, Some(12)),
            ("12", Some(12)),
            (r#""-1""#, Some(-1)),
            ("-1", Some(-1)),
            (r#""many""#, None),
            ("18446744073709551615", None),
            ("1.5", None),
            ("null", None),
            ("true", None),
            (r#"[1,{"a":2}]"#, None),
            (r#"{"a":[1]}"#, None),
        ] {
            let json = format!(
                r#"{{"total-data-files":{value},"operation":"append","added-files":{{"x":1}},"total-delete-files":"7"}}"#
            );
            let summary: SnapshotSummary = serde_json::from_str(&json).unwrap();
            let counts = (summary.total_data_files, summary.total_delete_files);
            assert_eq!((summary.operation(), counts), (Some("append"), (expected, Some(7))), "{json}");
        }
        let sizes = r#"{"removed-files-size":"1","total-records":"2","total-position-deletes":"3","total-equality-deletes":"4"}"#;
        let summary: SnapshotSummary = serde_json::from_str(sizes).unwrap();
        let read = [summary.removed_files_size, summary.total_records];
        assert_eq!(read, [Some(1), Some(2)]);
        assert_eq!((summary.total_position_deletes, summary.total_equality_deletes), (Some(3), Some(4)));
        for (value, expected) in [(r#""a\u00e9""#, Some("a\u{e9}")), ("7", None), ("null", None), (r#"["x"]"#, None)] {
            let json = format!(r#"{{"operation":"append","flink.job-id":{value}}}"#);
            let summary: SnapshotSummary = serde_json::from_str(&json).unwrap();
            assert_eq!(summary.flink_job_id.as_deref(), expected, "{json}");
        }
        let kafka = r#"{"operation":"append","kafka.connect.offsets.control.group":"{\"0\":7}","x":1}"#;
        let summary: SnapshotSummary = serde_json::from_str(kafka).unwrap();
        assert_eq!(summary.kafka_connect_offsets.as_deref(), Some("kafka.connect.offsets.control.group"));
        assert_eq!(serde_json::from_str::<SnapshotSummary>("{}").unwrap(), SnapshotSummary::default());
    }
}
