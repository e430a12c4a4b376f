//! The column `readable_metrics`: what entries say of the columns of their files, under the names of these, with typed bounds.
//!
//! A bound that is no value of its column's type is null: it is one writer's fault in one file, and nothing that anybody who looks at
//! files must be kept from seeing the others for. `lower_bounds` and `upper_bounds` have its bytes.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, MapArray, StructArray, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int32Type};

use super::entries::child;
use super::single_value::{column_type, values};
use crate::error::Result;
use crate::scan::EntryField;
use crate::table::{LeafColumn, ResultType};

/// The column's name.
pub(super) const READABLE_METRICS: &str = "readable_metrics";

/// What the counts and bounds of one column are called, and the maps by column id that they come from.
const METRICS: [(&str, EntryField); 6] = [
    ("column_size", EntryField::ColumnSizes),
    ("value_count", EntryField::ValueCounts),
    ("null_value_count", EntryField::NullValueCounts),
    ("nan_value_count", EntryField::NanValueCounts),
    ("lower_bound", EntryField::LowerBounds),
    ("upper_bound", EntryField::UpperBounds),
];

/// What a file's metrics of one column take, about.
const USUAL_COLUMN_BYTES: usize = 128;

/// Files have a row each of all columns, whether or not anything is said of them, so that few files of a wide table are shown at once.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// The fields of an entry that it is made of.
pub(super) fn fields() -> impl Iterator<Item = EntryField> {
    METRICS.into_iter().map(|(_, field)| field)
}

/// The column, of a table with these leaf columns. A table without any doesn't have it.
pub(super) fn column(columns: &[LeafColumn]) -> Option<Field> {
    (!columns.is_empty()).then(|| Field::new(READABLE_METRICS, DataType::Struct(struct_of(columns)), true))
}

fn struct_of(columns: &[LeafColumn]) -> Fields {
    let field = |column: &LeafColumn| Field::new(&column.name, DataType::Struct(metrics_of(column.result)), true);
    columns.iter().map(field).collect()
}

fn metrics_of(result: ResultType) -> Fields {
    let field = |(name, field): (&str, EntryField)| {
        let data_type = if is_bound(field) { column_type(result) } else { DataType::Int64 };
        Field::new(name, data_type, true)
    };
    METRICS.into_iter().map(field).collect()
}

fn is_bound(field: EntryField) -> bool {
    matches!(field, EntryField::LowerBounds | EntryField::UpperBounds)
}

/// How many rows are made at once of a table with these columns.
pub(super) fn rows_at_once(columns: &[LeafColumn]) -> usize {
    (MAX_BATCH_BYTES / (USUAL_COLUMN_BYTES * columns.len().max(1))).max(1)
}

/// The values of the column for files that have all of [`fields`].
///
/// # Errors
/// When the files lack one of the fields.
pub(super) fn readable(files: &StructArray, columns: &[LeafColumn]) -> Result<ArrayRef> {
    let ids: HashMap<i32, usize> = columns.iter().enumerate().map(|(place, column)| (column.id, place)).collect();
    let mut metrics: Vec<Vec<ArrayRef>> = columns.iter().map(|_| vec![]).collect();
    for (_, field) in METRICS {
        let map = child(files, field.name())?.as_map();
        let places = Places::of(map, columns.len(), &ids);
        for (place, column) in columns.iter().enumerate() {
            let of_column = places.of_column(place);
            metrics[place].push(match is_bound(field) {
                false => take(map.values(), &of_column, None)?,
                true => {
                    let encoded = map.values().as_binary::<i32>();
                    values(column.result, of_column.iter().map(|at| at.map(|at| encoded.value(at as usize))))?
                }
            });
        }
    }
    let of_column = |(column, metrics): (&LeafColumn, Vec<ArrayRef>)| -> Result<ArrayRef> {
        Ok(Arc::new(StructArray::try_new(metrics_of(column.result), metrics, None)?))
    };
    let children = columns.iter().zip(metrics).map(of_column).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(struct_of(columns), children, None, files.len())?))
}

/// Where the values of a map are, by column and row. A key that is there twice counts once, with its last value, as in Java's maps.
struct Places {
    rows: usize,
    places: Vec<Option<u32>>,
}

impl Places {
    /// `ids`: the columns' places among so many, by their ids.
    fn of(map: &MapArray, columns: usize, ids: &HashMap<i32, usize>) -> Self {
        let rows = map.len();
        let mut places = vec![None; rows * columns];
        let (keys, offsets) = (map.keys().as_primitive::<Int32Type>(), map.value_offsets());
        for row in (0..rows).filter(|row| map.is_valid(*row)) {
            for at in offsets[row]..offsets[row + 1] {
                if let Some(column) = ids.get(&keys.value(at as usize)) {
                    places[column * rows + row] = Some(at as u32);
                }
            }
        }
        Self { rows, places }
    }

    fn of_column(&self, column: usize) -> UInt32Array {
        self.places[column * self.rows..(column + 1) * self.rows].iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BinaryBuilder, Int32Builder, Int64Builder, MapBuilder, RecordBatch};
    use datafusion::arrow::datatypes::Schema;
    use datafusion::arrow::util::display::array_value_to_string;

    use super::*;

    /// Bounds by column id.
    type Bounds<'b> = &'b [(i32, &'b [u8])];

    /// Files whose six maps all are these, of counts or of bounds.
    fn files(maps: &[Option<Bounds<'_>>]) -> StructArray {
        let mut counts = MapBuilder::new(None, Int32Builder::new(), Int64Builder::new());
        let mut bounds = MapBuilder::new(None, Int32Builder::new(), BinaryBuilder::new());
        for map in maps {
            for (id, bound) in map.unwrap_or_default() {
                counts.keys().append_value(*id);
                counts.values().append_value(bound.len() as i64);
                bounds.keys().append_value(*id);
                bounds.values().append_value(bound);
            }
            counts.append(map.is_some()).unwrap();
            bounds.append(map.is_some()).unwrap();
        }
        let (counts, bounds): (ArrayRef, ArrayRef) = (Arc::new(counts.finish()), Arc::new(bounds.finish()));
        let columns = METRICS.map(|(_, field)| {
            let array = if is_bound(field) { &bounds } else { &counts };
            (Arc::new(Field::new(field.name(), array.data_type().clone(), true)), Arc::clone(array))
        });
        StructArray::from(columns.to_vec())
    }

    fn shown(files: &StructArray, columns: &[LeafColumn]) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![column(columns).unwrap()]));
        let batch = RecordBatch::try_new(schema, vec![readable(files, columns).unwrap()]).unwrap();
        RecordBatch::from(batch.column(0).as_struct().clone())
    }

    fn leaf(id: i32, name: &str, result: ResultType) -> LeafColumn {
        LeafColumn { id, name: name.into(), result }
    }

    #[test]
    fn each_column_has_what_files_say_of_it() {
        let columns = [leaf(2, "i", ResultType::Int), leaf(1, "s", ResultType::String)];
        let files = files(&[
            Some(&[(1, b"skipped")]),
            Some(&[(1, b"a"), (2, &[1, 0, 0, 0]), (7, b"?")]),
            None,
            Some(&[]),
            Some(&[(2, b"no int"), (1, b"x"), (1, b"last")]),
            Some(&[(1, &[0xff]), (2, &[0xff; 4])]),
        ]);
        let shown = shown(&files.slice(1, 5), &columns);
        let of = |column: &str, metric: &str| -> Vec<Option<String>> {
            let values = child(shown.column_by_name(column).unwrap().as_struct(), metric).unwrap();
            let value = |row| values.is_valid(row).then(|| array_value_to_string(values, row).unwrap());
            (0..5).map(value).collect()
        };
        let expected = |values: [Option<&str>; 5]| values.map(|value| value.map(str::to_string)).to_vec();
        for name in ["column_size", "value_count", "null_value_count", "nan_value_count"] {
            assert_eq!(of("i", name), expected([Some("4"), None, None, Some("6"), Some("4")]), "{name}");
            assert_eq!(of("s", name), expected([Some("1"), None, None, Some("4"), Some("1")]), "{name}");
        }
        for name in ["lower_bound", "upper_bound"] {
            assert_eq!(of("i", name), expected([Some("1"), None, None, None, Some("-1")]), "{name}");
            assert_eq!(of("s", name), expected([Some("a"), None, None, Some("last"), None]), "{name}");
        }
    }

    /// A hostile schema may have an id twice.
    #[test]
    fn a_column_whose_id_another_one_has_shows_nothing() {
        let columns = [leaf(1, "a", ResultType::String), leaf(1, "b", ResultType::String)];
        let batch = shown(&files(&[Some(&[(1, b"x")])]), &columns);
        let bound =
            |name: &str| child(batch.column_by_name(name).unwrap().as_struct(), "lower_bound").unwrap().is_valid(0);
        assert_eq!((bound("a"), bound("b")), (false, true));
        assert!(column(&[]).is_none() && rows_at_once(&[]) > 0);
    }
}
