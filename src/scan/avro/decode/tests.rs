use super::*;
use crate::scan::avro::{AvroFile, Target, Wanted};
use crate::scan::testing::{bytes, container, long};

static WANTED: [Wanted; 1] = [Wanted { id: 1, names: &["wanted"], required: true, target: Target::Integer(0) }];

/// A schema with a field of type `skipped` before the wanted one.
fn schema(skipped: &str) -> String {
    format!(
        r#"{{"type":"record","name":"r","fields":[{{"name":"skipped","type":{skipped}}},
            {{"name":"wanted","type":"int"}}]}}"#
    )
}

/// The wanted field of every record, of a file with one block.
fn decode(skipped: &str, objects: i64, data: &[u8]) -> Result<Vec<i64>> {
    let file = container(&schema(skipped), "null", &[(objects, data)]);
    let file = AvroFile::<_, 1>::open(file, &WANTED)?;
    let (mut decompressor, mut values) = (file.decompressor(), vec![]);
    for block in file.blocks() {
        file.for_each_record(block, &mut decompressor, |row| {
            values.push(row.integer(0).unwrap());
            Ok(())
        })?;
    }
    Ok(values)
}

fn error(skipped: &str, objects: i64, data: &[u8]) -> String {
    decode(skipped, objects, data).unwrap_err().to_string()
}

/// The wanted field's value, 21.
const W: u8 = 42;

#[test]
fn values_of_every_type_are_walked_over() {
    let floats = [0x80; 8];
    for (skipped, data) in [
        (r#""null""#, vec![]),
        (r#""boolean""#, vec![1]),
        (r#""int""#, vec![0xff, 0x01]),
        (r#""long""#, long(i64::MIN)),
        (r#""float""#, floats[..4].to_vec()),
        (r#""double""#, floats.to_vec()),
        (r#""bytes""#, bytes(&[0xff; 100])),
        (r#""string""#, bytes("é".as_bytes())),
        (r#"{"type":"fixed","name":"f","size":3}"#, vec![0xff; 3]),
        (r#"{"type":"enum","name":"e","symbols":["A","B"]}"#, vec![2]),
        (r#"["null","long"]"#, vec![0]),
        (r#"["null","long"]"#, vec![2, 7]),
        (
            r#"{"type":"record","name":"s","fields":[{"name":"a","type":"int"},{"name":"b","type":"string"}]}"#,
            vec![1, 2, 9],
        ),
        (r#"{"type":"array","items":"int"}"#, vec![0]),
        (r#"{"type":"array","items":"int"}"#, vec![4, 1, 1, 2, 1, 0]),
        // The first and the last block with their size.
        (r#"{"type":"array","items":"int"}"#, vec![3, 4, 1, 1, 2, 1, 1, 2, 1, 0]),
        (r#"{"type":"array","items":["null","string"]}"#, vec![4, 0, 2, 2, b'x', 1, 2, 0, 0]),
        (r#"{"type":"map","values":"int"}"#, vec![2, 2, b'k', 1, 0]),
        (r#"{"type":"map","values":"int"}"#, vec![1, 6, 2, b'k', 1, 0]),
        // A list of records that hold themselves.
        (r#"{"type":"record","name":"l","fields":[{"name":"next","type":["null","l"]}]}"#, vec![2, 2, 2, 0]),
    ] {
        let once = [data.clone(), vec![W]].concat();
        assert_eq!(decode(skipped, 1, &once).unwrap(), [21], "{skipped} {data:?}");
        assert_eq!(decode(skipped, 2, &once.repeat(2)).unwrap(), [21, 21], "{skipped} {data:?}");
        assert!(decode(skipped, 1, &once[..once.len() - 1]).is_err(), "{skipped} {data:?}, cut short");
    }
}

#[test]
fn a_block_must_hold_exactly_its_records() {
    let int = r#""int""#;
    assert_eq!(error(int, 1, &[1, W, 0]), "data block 1: 1 bytes are left over after its last record");
    assert_eq!(error(int, 3, &[1, W, 1, W]), "data block 1: the data ends in the middle of a value");
    assert_eq!(error(int, 0, &[1]), "data block 1: it has no records but 1 bytes");
    assert!(decode(int, 0, &[]).unwrap().is_empty());
}

#[test]
fn hostile_lengths_and_counts_are_errors() {
    let cut = "data block 1: the data ends in the middle of a value";
    let negative = "data block 1: a length is negative";
    let array = r#"{"type":"array","items":"int"}"#;
    for (skipped, data, why) in [
        (r#""string""#, long(i64::MAX), cut),
        (r#""string""#, long(-1), negative),
        (r#""bytes""#, long(i64::MIN), negative),
        (r#"{"type":"fixed","name":"f","size":18446744073709551615}"#, vec![0], cut),
        (array, long(i64::MAX), cut),
        (array, [long(i64::MIN), long(i64::MAX)].concat(), cut),
        (array, [long(-1), long(-1)].concat(), negative),
        (array, vec![1, 4, 1, 1, 0], "data block 1: the size of a block of items is wrong"),
        (array, vec![3, 2, 1, 1, 0], cut),
        (r#"{"type":"map","values":"null"}"#, long(i64::MAX), cut),
        (r#"["null","int"]"#, vec![4], "data block 1: a union or enum has 2 choices, but choice 2 is taken"),
        (r#"["null","int"]"#, vec![1], "data block 1: a union or enum has 2 choices, but choice -1 is taken"),
        ("[]", vec![0], "data block 1: a union or enum has 0 choices, but choice 0 is taken"),
    ] {
        let data = [data, vec![W]].concat();
        assert_eq!(error(skipped, 1, &data), why, "{skipped} {data:?}");
    }
    let impossible = error(r#""int""#, i64::MAX, &[1, W]);
    assert_eq!(impossible, "data block 1: it can't have 9223372036854775807 records in 2 bytes");
}

/// Each of these would take ages if values without bytes were visited one by one.
#[test]
fn any_number_of_values_without_bytes_costs_nothing() {
    let empty = r#"{"type":"record","name":"e","fields":[{"name":"n","type":"null"},
        {"name":"f","type":{"type":"fixed","name":"f0","size":0}}]}"#;
    for items in [r#""null""#, empty] {
        let skipped = format!(r#"{{"type":"array","items":{items}}}"#);
        let data = [long(i64::MAX), long(i64::MIN), long(0), long(i64::MAX), long(0), vec![W]].concat();
        assert_eq!(decode(&skipped, 1, &data).unwrap(), [21], "{items}");
    }
    // 2^30 empty records in each other.
    let mut nested = r#""null""#.to_string();
    for level in 0..30 {
        nested = format!(
            r#"{{"type":"record","name":"d{level}","fields":[{{"name":"a","type":{nested}}},{{"name":"b","type":"{}"}}]}}"#,
            if level == 0 { "null".to_string() } else { format!("d{}", level - 1) }
        );
    }
    assert_eq!(decode(&nested, 1, &[W]).unwrap(), [21]);
}

#[test]
fn values_that_nest_without_end_are_refused() {
    let itself = r#"{"type":"record","name":"l","fields":[{"name":"self","type":"l"}]}"#;
    assert_eq!(error(itself, 1, &[W]), "data block 1: a value nests more than 64 deep");
    let list = r#"{"type":"record","name":"l","fields":[{"name":"next","type":["null","l"]}]}"#;
    assert_eq!(error(list, 1, &[2; 1000]), "data block 1: a value nests more than 64 deep");
}

#[test]
fn the_faulty_block_is_named() {
    let mut file = container(&schema(r#""int""#), "null", &[(1, &[1, W]), (1, &[1, W, 0])]);
    let opened = AvroFile::<_, 1>::open(&file, &WANTED).unwrap();
    let read = |block| opened.for_each_record(block, &mut opened.decompressor(), |_| Ok(()));
    assert!(read(0).is_ok());
    assert!(read(1).unwrap_err().to_string().starts_with("data block 2: "));
    assert!(read(2).unwrap_err().to_string().starts_with("data block 3: "));
    file.truncate(file.len() - 1);
    let error = AvroFile::<_, 1>::open(&file, &WANTED).unwrap_err().to_string();
    assert_eq!(error, "data block 2: the data ends in the middle of a value");
}
