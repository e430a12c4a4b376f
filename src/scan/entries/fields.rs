//! The fields of an entry: ids, types, and which of them are wanted.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};

use super::partition::partition_fields;
use crate::scan::avro::{Target, Wanted};
use crate::table::PartitionType;

/// A field of an entry or of its data file, in the order of Spark's metadata table `entries`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryField {
    Status,
    SnapshotId,
    SequenceNumber,
    FileSequenceNumber,
    Content,
    FilePath,
    FileFormat,
    SpecId,
    Partition,
    RecordCount,
    FileSizeInBytes,
    ColumnSizes,
    ValueCounts,
    NullValueCounts,
    NanValueCounts,
    LowerBounds,
    UpperBounds,
    KeyMetadata,
    SplitOffsets,
    EqualityIds,
    SortOrderId,
    FirstRowId,
    ReferencedDataFile,
    ContentOffset,
    ContentSizeInBytes,
}

use EntryField::*;

/// A slot for each field, whose number is its place among them.
pub(super) const SLOTS: usize = EntryField::ALL.len();

/// How a field is read from Avro and shown in Arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Long,
    Text,
    Binary,
    /// A map from column ids to counts, with the field id of its keys.
    Longs {
        key_id: i64,
    },
    /// A map from column ids to bounds.
    Binaries {
        key_id: i64,
    },
    ListOfInt,
    ListOfLong,
    /// The same for all entries of a manifest, which doesn't hold it.
    SpecId,
    Partition,
}

/// What the spec says of a field ("Manifest Entry Fields", "Data File Fields").
struct Definition {
    id: i64,
    /// The field's name, in a list as [`Wanted`] has it.
    names: &'static [&'static str],
    kind: Kind,
    /// It is never null.
    required: bool,
}

const fn optional(id: i64, names: &'static [&'static str], kind: Kind) -> Definition {
    Definition { id, names, kind, required: false }
}

const fn required(id: i64, names: &'static [&'static str], kind: Kind) -> Definition {
    Definition { id, names, kind, required: true }
}

impl EntryField {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 25] = [
        Status,
        SnapshotId,
        SequenceNumber,
        FileSequenceNumber,
        Content,
        FilePath,
        FileFormat,
        SpecId,
        Partition,
        RecordCount,
        FileSizeInBytes,
        ColumnSizes,
        ValueCounts,
        NullValueCounts,
        NanValueCounts,
        LowerBounds,
        UpperBounds,
        KeyMetadata,
        SplitOffsets,
        EqualityIds,
        SortOrderId,
        FirstRowId,
        ReferencedDataFile,
        ContentOffset,
        ContentSizeInBytes,
    ];

    const fn definition(self) -> Definition {
        match self {
            Status => required(0, &["status"], Kind::Int),
            SnapshotId => optional(1, &["snapshot_id"], Kind::Long),
            SequenceNumber => optional(3, &["sequence_number"], Kind::Long),
            FileSequenceNumber => optional(4, &["file_sequence_number"], Kind::Long),
            // v1 has only data files, and no such field.
            Content => required(134, &["content"], Kind::Int),
            FilePath => required(100, &["file_path"], Kind::Text),
            FileFormat => required(101, &["file_format"], Kind::Text),
            SpecId => required(141, &["spec_id"], Kind::SpecId),
            Partition => required(102, &["partition"], Kind::Partition),
            RecordCount => required(103, &["record_count"], Kind::Long),
            FileSizeInBytes => required(104, &["file_size_in_bytes"], Kind::Long),
            ColumnSizes => optional(108, &["column_sizes"], Kind::Longs { key_id: 117 }),
            ValueCounts => optional(109, &["value_counts"], Kind::Longs { key_id: 119 }),
            NullValueCounts => optional(110, &["null_value_counts"], Kind::Longs { key_id: 121 }),
            NanValueCounts => optional(137, &["nan_value_counts"], Kind::Longs { key_id: 138 }),
            LowerBounds => optional(125, &["lower_bounds"], Kind::Binaries { key_id: 126 }),
            UpperBounds => optional(128, &["upper_bounds"], Kind::Binaries { key_id: 129 }),
            KeyMetadata => optional(131, &["key_metadata"], Kind::Binary),
            SplitOffsets => optional(132, &["split_offsets"], Kind::ListOfLong),
            EqualityIds => optional(135, &["equality_ids"], Kind::ListOfInt),
            SortOrderId => optional(140, &["sort_order_id"], Kind::Int),
            FirstRowId => optional(142, &["first_row_id"], Kind::Long),
            ReferencedDataFile => optional(143, &["referenced_data_file"], Kind::Text),
            ContentOffset => optional(144, &["content_offset"], Kind::Long),
            ContentSizeInBytes => optional(145, &["content_size_in_bytes"], Kind::Long),
        }
    }

    /// The field's name in the spec.
    pub(crate) fn name(self) -> &'static str {
        self.definition().names[0]
    }

    /// True for the fields of `data_file`, false for those of the entry itself.
    pub(crate) fn is_of_file(self) -> bool {
        !matches!(self, Status | SnapshotId | SequenceNumber | FileSequenceNumber)
    }

    pub(super) fn kind(self) -> Kind {
        self.definition().kind
    }

    pub(super) fn is_required(self) -> bool {
        self.definition().required
    }

    pub(super) const fn slot(self) -> usize {
        self as usize
    }

    const fn bit(self) -> u32 {
        1 << self.slot()
    }

    const fn wanted(self) -> Wanted {
        let Definition { id, names, kind, required } = self.definition();
        let slot = self.slot();
        let target = match kind {
            Kind::Int | Kind::Long | Kind::SpecId => Target::Integer(slot),
            Kind::Text => Target::Text(slot),
            Kind::Binary => Target::Binary(slot),
            Kind::Longs { .. } | Kind::Binaries { .. } | Kind::ListOfInt | Kind::ListOfLong | Kind::Partition => {
                Target::Encoded(slot)
            }
        };
        // v1 has no content, and a partition without fields takes no bytes.
        let required = required && !matches!(self, Content | Partition);
        Wanted { id, names, required, target }
    }

    /// The column of this field.
    fn arrow(self, partition: &PartitionType) -> Field {
        let Definition { names, kind, required, .. } = self.definition();
        let data_type = match kind {
            Kind::Int | Kind::SpecId => DataType::Int32,
            Kind::Long => DataType::Int64,
            Kind::Text => DataType::Utf8,
            Kind::Binary => DataType::Binary,
            Kind::Longs { .. } => map_of(DataType::Int64),
            Kind::Binaries { .. } => map_of(DataType::Binary),
            Kind::ListOfInt => list_of(DataType::Int32),
            Kind::ListOfLong => list_of(DataType::Int64),
            Kind::Partition => DataType::Struct(partition_fields(partition)),
        };
        Field::new(names[0], data_type, !required)
    }
}

/// The record `data_file`.
pub(super) const DATA_FILE: &str = "data_file";

pub(super) static WANTED: [Wanted; 5] = [
    Status.wanted(),
    SnapshotId.wanted(),
    SequenceNumber.wanted(),
    FileSequenceNumber.wanted(),
    Wanted { id: 2, names: &[DATA_FILE], required: true, target: Target::Record(&WANTED_OF_FILE) },
];

static WANTED_OF_FILE: [Wanted; 20] = [
    Content.wanted(),
    FilePath.wanted(),
    FileFormat.wanted(),
    Partition.wanted(),
    RecordCount.wanted(),
    FileSizeInBytes.wanted(),
    ColumnSizes.wanted(),
    ValueCounts.wanted(),
    NullValueCounts.wanted(),
    NanValueCounts.wanted(),
    LowerBounds.wanted(),
    UpperBounds.wanted(),
    KeyMetadata.wanted(),
    SplitOffsets.wanted(),
    EqualityIds.wanted(),
    SortOrderId.wanted(),
    FirstRowId.wanted(),
    ReferencedDataFile.wanted(),
    ContentOffset.wanted(),
    ContentSizeInBytes.wanted(),
];

/// A set of fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EntryFields(u32);

impl EntryFields {
    /// All fields.
    pub(crate) const ALL: Self = Self((1 << SLOTS) - 1);

    pub(crate) const fn contains(self, field: EntryField) -> bool {
        self.0 & field.bit() != 0
    }

    /// The same set and this field.
    pub(crate) const fn with(self, field: EntryField) -> Self {
        Self(self.0 | field.bit())
    }

    /// The fields in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = EntryField> {
        EntryField::ALL.into_iter().filter(move |field| self.contains(*field))
    }

    /// The slots that must be read for these fields.
    pub(super) const fn slots(self) -> u32 {
        // The status decides what is live and what is inherited; row ids follow from the rows of the files before.
        let needed = self.with(Status);
        if self.contains(FirstRowId) { needed.with(RecordCount).0 } else { needed.0 }
    }
}

impl FromIterator<EntryField> for EntryFields {
    fn from_iter<T: IntoIterator<Item = EntryField>>(fields: T) -> Self {
        fields.into_iter().fold(Self::default(), Self::with)
    }
}

/// The columns of all fields: those of Spark's metadata table `entries`.
///
/// `status`, `snapshot_id`, `sequence_number` and `file_sequence_number`, then the struct `data_file` with all others. A
/// table without partitions has no `partition`.
pub(crate) fn entry_schema(partition: &PartitionType) -> SchemaRef {
    projected_entry_schema(partition, EntryFields::ALL)
}

/// The same columns of these fields only. Without a field of `data_file`, that struct is left out.
pub(crate) fn projected_entry_schema(partition: &PartitionType, fields: EntryFields) -> SchemaRef {
    let shown = shown_fields(partition, fields);
    let columns = |of_file: bool| {
        let fields = shown.iter().filter(move |field| field.is_of_file() == of_file);
        fields.map(|field| field.arrow(partition)).collect::<Vec<_>>()
    };
    let (mut top, of_file) = (columns(false), columns(true));
    if !of_file.is_empty() {
        top.push(Field::new(DATA_FILE, DataType::Struct(of_file.into()), false));
    }
    Arc::new(Schema::new(top))
}

/// The fields that have a column.
pub(super) fn shown_fields(partition: &PartitionType, fields: EntryFields) -> Vec<EntryField> {
    fields.iter().filter(|field| *field != Partition || !partition.is_empty()).collect()
}

/// A map from column ids, as Arrow and DataFusion name its parts. DataFusion's `map_entries` and the like fail for a map whose
/// values can't be null.
fn map_of(value: DataType) -> DataType {
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(map_entries(value)), false)), false)
}

/// The key and the value of such a map.
pub(super) fn map_entries(value: DataType) -> Fields {
    Fields::from(vec![Field::new("key", DataType::Int32, false), Field::new("value", value, true)])
}

fn list_of(element: DataType) -> DataType {
    DataType::List(list_element(element))
}

/// The element of a list, none of which is null.
pub(super) fn list_element(element: DataType) -> Arc<Field> {
    Arc::new(Field::new_list_field(element, false))
}
