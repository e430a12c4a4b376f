//! Printing results.

use std::io::{self, Write};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{JsonArray, LineDelimited};
use datafusion::arrow::json::{Writer as JsonWriter, WriterBuilder as JsonBuilder};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::arrow::util::pretty::pretty_format_batches;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table drawn with lines
    Table,
    /// Comma-separated values with a header line
    Csv,
    /// Tab-separated values with a header line
    Tsv,
    /// One JSON array of objects for each statement
    Json,
    /// One JSON object a line
    #[value(alias = "ndjson")]
    NdJson,
}

/// Renders the rows of one statement. There is at least one batch, which may be empty.
pub(crate) fn render(batches: &[RecordBatch], format: Format) -> Result<Vec<u8>, ArrowError> {
    let mut out = Vec::new();
    match format {
        Format::Table => writeln!(out, "{}", pretty_format_batches(batches)?)?,
        Format::Csv => delimited(&mut out, &flat(batches)?, b',')?,
        Format::Tsv => delimited(&mut out, &flat(batches)?, b'\t')?,
        Format::Json => {
            let mut writer: JsonWriter<_, JsonArray> = JsonBuilder::new().with_explicit_nulls(true).build(&mut out);
            with_text_keys(batches)?.iter().try_for_each(|batch| writer.write(batch))?;
            writer.finish()?;
            out.push(b'\n');
        }
        Format::NdJson => {
            let mut writer: JsonWriter<_, LineDelimited> = JsonBuilder::new().with_explicit_nulls(true).build(&mut out);
            with_text_keys(batches)?.iter().try_for_each(|batch| writer.write(batch))?;
            writer.finish()?;
        }
    }
    Ok(out)
}

/// The same rows with columns of other types where a format has no place for theirs.
fn cast_columns(
    batches: &[RecordBatch],
    shown_as: impl Fn(&DataType) -> DataType,
    convert: impl Fn(&ArrayRef, &DataType) -> Result<ArrayRef, ArrowError>,
) -> Result<Vec<RecordBatch>, ArrowError> {
    let converted = |batch: &RecordBatch| {
        let (schema, mut fields, mut columns) = (batch.schema(), vec![], vec![]);
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            let wanted = shown_as(field.data_type());
            let is_same = wanted == *field.data_type();
            columns.push(if is_same { Arc::clone(column) } else { convert(column, &wanted)? });
            fields.push(field.as_ref().clone().with_data_type(wanted));
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    };
    batches.iter().map(converted).collect()
}

/// Lines of separated values have no place for maps, lists and structs: they are texts there, as in a drawn table.
fn flat(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, ArrowError> {
    let shown_as = |of: &DataType| if of.is_nested() { DataType::Utf8 } else { of.clone() };
    cast_columns(batches, shown_as, |column, _| {
        let text = |row| column.is_valid(row).then(|| array_value_to_string(column, row)).transpose();
        let texts: StringArray = (0..column.len()).map(text).collect::<Result<_, _>>()?;
        Ok(Arc::new(texts))
    })
}

/// The keys of JSON's objects are texts.
fn with_text_keys(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, ArrowError> {
    cast_columns(batches, with_text_key, |column, wanted| cast(column, wanted))
}

fn with_text_key(of: &DataType) -> DataType {
    let inner = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(with_text_key(field.data_type())));
    match of {
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(parts) => {
                let parts = parts.iter().enumerate().map(|(place, part)| match place {
                    0 => Arc::new(part.as_ref().clone().with_data_type(DataType::Utf8)),
                    _ => inner(part),
                });
                let parts = DataType::Struct(parts.collect());
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(parts)), *sorted)
            }
            _ => of.clone(),
        },
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        DataType::List(element) => DataType::List(inner(element)),
        other => other.clone(),
    }
}

fn delimited(out: &mut Vec<u8>, batches: &[RecordBatch], delimiter: u8) -> Result<(), ArrowError> {
    let mut writer = csv::WriterBuilder::new().with_header(true).with_delimiter(delimiter).build(out);
    batches.iter().try_for_each(|batch| writer.write(batch))
}

/// Writes to standard output. A reader that went away is no error: the work doesn't depend on who looks on.
pub(crate) fn print(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The value of a metric row; `None` when there is no such row.
pub(crate) fn metric(batches: &[RecordBatch], name: &str) -> Option<i64> {
    batches.iter().find_map(|batch| {
        let names = batch.column_by_name("metric_name")?.as_string_opt::<i32>()?;
        let values = batch.column_by_name("metric_value")?.as_primitive_opt::<Int64Type>()?;
        let row = names.iter().position(|n| n == Some(name))?;
        values.is_valid(row).then(|| values.value(row))
    })
}

/// The sum of a column of whole numbers, without its nulls; 0 when there is no such column.
pub(crate) fn sum(batches: &[RecordBatch], column: &str) -> i64 {
    let columns = batches.iter().filter_map(|batch| batch.column_by_name(column)?.as_primitive_opt::<Int64Type>());
    columns.flat_map(|numbers| numbers.iter().flatten()).fold(0, i64::saturating_add)
}

/// True when a text column has this value in some row.
pub(crate) fn has_row(batches: &[RecordBatch], column: &str, value: &str) -> bool {
    batches.iter().any(|batch| {
        let texts = batch.column_by_name(column).and_then(|column| column.as_string_opt::<i32>());
        texts.is_some_and(|texts| texts.iter().any(|text| text == Some(value)))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int32Builder, Int64Array, Int64Builder, MapBuilder, StructArray};
    use datafusion::arrow::datatypes::Field;

    use super::*;

    fn metrics(rows: usize) -> RecordBatch {
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(["a", "b,c"].iter().take(rows)));
        let values: ArrayRef = Arc::new(Int64Array::from_iter([Some(0), None].into_iter().take(rows)));
        RecordBatch::try_from_iter([("metric_name", names), ("metric_value", values)]).unwrap()
    }

    fn text(rows: usize, format: Format) -> String {
        String::from_utf8(render(&[metrics(rows)], format).unwrap()).unwrap()
    }

    #[test]
    fn every_format_has_its_shape() {
        assert_eq!(text(2, Format::Csv), "metric_name,metric_value\na,0\n\"b,c\",\n");
        assert_eq!(text(2, Format::Tsv), "metric_name\tmetric_value\na\t0\nb,c\t\n");
        let objects = [r#"{"metric_name":"a","metric_value":0}"#, r#"{"metric_name":"b,c","metric_value":null}"#];
        assert_eq!(text(2, Format::Json), format!("[{}]\n", objects.join(",")));
        assert_eq!(text(2, Format::NdJson), format!("{}\n", objects.join("\n")));
        assert!(text(2, Format::Table).starts_with("+--"));
    }

    #[test]
    fn no_rows_are_an_empty_result_not_no_result() {
        assert_eq!(text(0, Format::Json), "[]\n");
        assert_eq!(text(0, Format::NdJson), "");
        assert_eq!(text(0, Format::Csv), "metric_name,metric_value\n");
    }

    #[test]
    fn maps_by_number_are_shown_in_every_format() {
        let mut sizes = MapBuilder::new(None, Int32Builder::new(), Int64Builder::new());
        sizes.keys().append_value(7);
        sizes.values().append_value(100);
        sizes.append(true).unwrap();
        sizes.append(false).unwrap();
        let sizes: ArrayRef = Arc::new(sizes.finish());
        let inner =
            StructArray::from(vec![(Arc::new(Field::new("of", sizes.data_type().clone(), true)), sizes.clone())]);
        let batch = RecordBatch::try_from_iter([("sizes", sizes), ("file", Arc::new(inner) as ArrayRef)]).unwrap();
        let text = |format| String::from_utf8(render(std::slice::from_ref(&batch), format).unwrap()).unwrap();
        let rows = [r#"{"sizes":{"7":100},"file":{"of":{"7":100}}}"#, r#"{"sizes":null,"file":{"of":null}}"#];
        assert_eq!(text(Format::NdJson), format!("{}\n", rows.join("\n")));
        assert_eq!(text(Format::Csv), "sizes,file\n{7: 100},{of: {7: 100}}\n,{of: }\n");
        assert_eq!(text(Format::Tsv), "sizes\tfile\n{7: 100}\t{of: {7: 100}}\n\t{of: }\n");
    }

    #[test]
    fn metrics_are_found_by_name() {
        let batches = [metrics(2)];
        assert_eq!((metric(&batches, "a"), metric(&batches, "b,c"), metric(&batches, "x")), (Some(0), None, None));
    }
}
