//! The shapes of the rows.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::findings::Finding;
use super::fold::{CLASSES, Entries, Kind, class_bounds};
use super::known::Known;
use super::recommendations::Recommendation;
use crate::error::Result;

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// One a number.
    Findings,
    /// One a thing to do.
    Recommendations,
    /// One a kind of file and size class.
    Histogram,
}

impl Rows {
    pub(super) fn schema(self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        let long = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
        let estimate = || Field::new("is_estimate", DataType::Boolean, false);
        Arc::new(Schema::new(match self {
            Self::Findings => vec![
                text("section"),
                text("metric"),
                long("value", true),
                text("unit"),
                text("severity"),
                estimate(),
                text("text"),
            ],
            Self::Recommendations => vec![
                long("rank", false),
                text("recommendation"),
                long("gain_bytes", true),
                long("gain_files", true),
                estimate(),
                text("engine"),
                text("statement"),
                text("why"),
            ],
            Self::Histogram => vec![
                text("content"),
                long("from_bytes", false),
                long("to_bytes", true),
                long("files_count", false),
                long("bytes", false),
            ],
        }))
    }
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn longs(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

fn flags(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(BooleanArray::from(values.collect::<Vec<_>>()))
}

pub(super) fn of_findings(findings: &[Finding]) -> Result<RecordBatch> {
    let all = || findings.iter();
    let columns = vec![
        texts(all().map(|finding| finding.section)),
        texts(all().map(|finding| finding.metric)),
        longs(all().map(|finding| finding.number.value())),
        texts(all().map(|finding| finding.unit)),
        texts(all().map(|finding| finding.severity.as_str())),
        flags(all().map(|finding| finding.number.is_estimate())),
        texts(all().map(|finding| finding.text.as_str())),
    ];
    Ok(RecordBatch::try_new(Rows::Findings.schema(), columns)?)
}

pub(super) fn of_recommendations(recommendations: &[Recommendation]) -> Result<RecordBatch> {
    let all = || recommendations.iter();
    let estimate = |one: &Recommendation| [one.gain_bytes, one.gain_files].into_iter().any(Known::is_estimate);
    let columns = vec![
        longs((1..).take(recommendations.len()).map(Some)),
        texts(all().map(|one| one.what)),
        longs(all().map(|one| one.gain_bytes.value())),
        longs(all().map(|one| one.gain_files.value())),
        flags(all().map(estimate)),
        texts(all().map(|one| one.engine.as_str())),
        texts(all().map(|one| one.statement.as_str())),
        texts(all().map(|one| one.why.as_str())),
    ];
    Ok(RecordBatch::try_new(Rows::Recommendations.schema(), columns)?)
}

/// Data files in all classes, and other kinds in the classes where there are any.
pub(super) fn of_histogram(entries: &Entries) -> Result<RecordBatch> {
    let bounds = class_bounds();
    let classes = |kind: Kind| (0..CLASSES).map(move |class| (kind, class, entries.of(kind).classes[class]));
    let rows: Vec<_> = Kind::ALL
        .into_iter()
        .flat_map(classes)
        .filter(|(kind, _, share)| *kind == Kind::Data || share.files > 0)
        .collect();
    let columns = vec![
        texts(rows.iter().map(|(kind, ..)| kind.as_str())),
        longs(rows.iter().map(|(_, class, _)| bounds.get(*class).copied())),
        longs(rows.iter().map(|(_, class, _)| bounds.get(class + 1).copied())),
        longs(rows.iter().map(|(.., share)| Some(share.files))),
        longs(rows.iter().map(|(.., share)| Some(share.bytes))),
    ];
    Ok(RecordBatch::try_new(Rows::Histogram.schema(), columns)?)
}
