//! Inputs that are too large to be stored: bombs, deep nesting, hostile lengths.

use std::io::Write;

/// The names of inputs, and the inputs.
pub type Inputs = Vec<(String, Vec<u8>)>;

const LEVELS: usize = 100_000;

/// What the inputs for a target are.
pub fn inputs(target: &str, corpus: &Inputs) -> Inputs {
    match target {
        "metadata" => metadata(),
        "manifest" => [avro(MANIFEST, ENTRY, corpus), full_manifests()].concat(),
        "manifest_list" => avro(LIST, LIST_ENTRY, corpus),
        "sql" => sql(),
        "paths" => paths(),
        "journal" => journal(corpus),
        other => panic!("{other} has no hostile inputs"),
    }
}

fn named(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> (String, Vec<u8>) {
    (name.into(), bytes.into())
}

fn metadata() -> Inputs {
    let head = r#"{"format-version":2,"table-uuid":"u","location":"/t","current-snapshot-id":1,
        "snapshots":[{"snapshot-id":1,"timestamp-ms":1,"manifest-list":"/t/l"}]"#;
    let open = |bracket: &str| bracket.repeat(LEVELS);
    let objects = format!("{}1{}", open("{\"a\":"), open("}"));
    let mut inputs = vec![
        named("an unknown field of nested arrays", format!("{head},\"x\":{}{}}}", open("["), open("]"))),
        named("an unknown field of nested objects", format!("{head},\"x\":{objects}}}")),
        named("a nested summary", format!("{},\"summary\":{objects}}}]}}", &head[..head.len() - 2])),
        named("a nested ref", format!("{head},\"refs\":{{\"main\":{objects}}}}}")),
        named("nested properties", format!("{head},\"properties\":{objects}}}")),
        named("nested arrays that are never closed", format!("{head},\"snapshot-log\":{}", open("["))),
        named("nested arrays and nothing else", open("[")),
    ];
    for (field, element) in [
        ("snapshot-log", "{\"snapshot-id\":1,\"timestamp-ms\":1}"),
        ("schemas", "{}"),
        ("partition-specs", "{\"spec-id\":0}"),
        ("statistics", "{\"snapshot-id\":1,\"statistics-path\":\"\"}"),
        ("metadata-log", "{\"timestamp-ms\":1,\"metadata-file\":\"\"}"),
    ] {
        let many = vec![element; 3_000].join(",");
        inputs.push(named(format!("much {field}"), format!("{head},\"{field}\":[{many}]}}")));
    }
    let fields: String = (0..2_000).map(|field| format!(",\"{field}\":1")).collect();
    inputs.push(named("many fields", format!("{head}{fields}}}")));
    let snapshots: Vec<_> = (0..1_000i64)
        .map(|id| {
            let parent = (id + 1) % 1_000;
            format!(
                r#"{{"snapshot-id":{id},"parent-snapshot-id":{parent},"timestamp-ms":{id},"manifest-list":"/t/{id}"}}"#
            )
        })
        .collect();
    let circle = format!(
        r#"{{"format-version":2,"location":"/t","current-snapshot-id":7,"snapshots":[{}],
            "refs":{{"main":{{"snapshot-id":7,"type":"branch"}},"b":{{"snapshot-id":8,"type":"branch"}}}}}}"#,
        snapshots.join(",")
    );
    inputs.push(named("a circle of parents", circle));
    let gzip = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    };
    let bomb = [gzip(head.as_bytes()), gzip(&[b' '; 1 << 20]).repeat(200), gzip(b"}")].concat();
    inputs.push(named("a gzip bomb", bomb));
    inputs
}

/// Plans and outcomes with a hostile number at every place where one may stand: the lengths of messages, columns and what is
/// compressed are among them.
fn journal(corpus: &Inputs) -> Inputs {
    let mut inputs = vec![];
    for (name, content) in corpus.iter().filter(|(name, _)| matches!(&**name, "plan-3.arrow" | "outcome-1.arrow")) {
        for at in (0..content.len().saturating_sub(8)).step_by(4) {
            for number in [i64::MAX, i64::MIN, -2, 1 << 40] {
                let mut hostile = content.clone();
                hostile[at..at + 8].copy_from_slice(&number.to_le_bytes());
                inputs.push(named(format!("{name} with {number} at {at}"), hostile));
            }
        }
    }
    assert!(inputs.len() > 1000, "the corpus has a plan and an outcome");
    inputs
}

/// A manifest's schema, as small as it can be.
const MANIFEST: &str = r#"{"type":"record","name":"e","fields":[{"name":"status","type":"int","field-id":0},
    {"name":"data_file","field-id":2,"type":{"type":"record","name":"f","fields":[
        {"name":"file_path","type":"string","field-id":100}REST]}}]}"#;
/// The same with all that an entry must have, and maps and lists of values that take a byte each.
const FULL_MANIFEST: &str = r#"{"type":"record","name":"e","fields":[{"name":"status","type":"int","field-id":0},
    {"name":"data_file","field-id":2,"type":{"type":"record","name":"f","fields":[
        {"name":"file_path","type":"string","field-id":100},{"name":"file_format","type":"string","field-id":101},
        {"name":"partition","field-id":102,"type":{"type":"record","name":"p","fields":[
            {"name":"any","type":"bytes","field-id":1000},{"name":"decimal","type":"bytes","field-id":1001}]}},
        {"name":"record_count","type":"long","field-id":103},{"name":"file_size_in_bytes","type":"long","field-id":104},
        {"name":"column_sizes","field-id":108,"type":{"type":"array","items":{"type":"record","name":"s","fields":[
            {"name":"key","type":"int","field-id":117},{"name":"value","type":"long","field-id":118}]}}},
        {"name":"lower_bounds","field-id":125,"type":{"type":"array","items":{"type":"record","name":"b","fields":[
            {"name":"key","type":"int","field-id":126},{"name":"value","type":"bytes","field-id":127}]}}},
        {"name":"split_offsets","field-id":132,"type":{"type":"array","items":"long"}},
        {"name":"equality_ids","field-id":135,"type":{"type":"array","items":"int"}}]}}]}"#;

/// An entry of it with so many items in each map and list. `count`: how many its blocks of items say they have.
fn full_entry(items: usize, count: i64) -> Vec<u8> {
    let block = |bytes_each: usize| [long(count), vec![0; items * bytes_each], long(0)].concat();
    let ahead = [&[2, 2, b'p', 0][..], &bytes(b"any"), &bytes(&[1]), &[2, 2]].concat();
    [ahead, block(2), block(2), block(1), block(1)].concat()
}

fn full_manifests() -> Inputs {
    let file = |codec: &str, entries: i64, data: Vec<u8>| container(FULL_MANIFEST, codec, &[(entries, data)]);
    let million = full_entry(1 << 20, 1 << 20);
    let few = full_entry(1, 1);
    let mut inputs = vec![
        named("an entry with a million items", file("null", 1, million.clone())),
        named("a bomb of entries with a million items", file("deflate", 9, deflated(&million, 9))),
        named("a bomb of entries with an item", file("deflate", 100_000, deflated(&few.repeat(1000), 100))),
        named("an entry with more items", file("null", 1, full_entry(1 << 21, 1 << 21))),
        named("a bomb of items", file("deflate", 1, deflated(&full_entry(10 << 20, 10 << 20), 1))),
    ];
    for promised in [i64::MAX, i64::MIN, 1 << 40, -1, 2] {
        inputs
            .push(named(format!("an entry that promises {promised} items"), file("null", 1, full_entry(1, promised))));
    }
    inputs
}

/// Status 1 and the path `p`.
const ENTRY: &[u8] = &[2, 2, b'p'];

const LIST: &str =
    r#"{"type":"record","name":"m","fields":[{"name":"manifest_path","type":"string","field-id":500}REST]}"#;
/// The path `p`.
const LIST_ENTRY: &[u8] = &[2, b'p'];

const SYNC: [u8; 16] = *b"0123456789abcdef";

/// An Avro `long`.
fn long(value: i64) -> Vec<u8> {
    let mut rest = (value.wrapping_shl(1) ^ (value >> 63)) as u64;
    let mut encoded = vec![];
    while rest >= 0x80 {
        encoded.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    encoded.push(rest as u8);
    encoded
}

fn bytes(value: &[u8]) -> Vec<u8> {
    [long(value.len() as i64), value.to_vec()].concat()
}

/// A file of blocks, each with its object count and its data as it is to stand there.
fn container(schema: &str, codec: &str, blocks: &[(i64, Vec<u8>)]) -> Vec<u8> {
    let mut file = b"Obj\x01".to_vec();
    file.extend(long(2));
    for (key, value) in [("avro.schema", schema), ("avro.codec", codec)] {
        file.extend(bytes(key.as_bytes()));
        file.extend(bytes(value.as_bytes()));
    }
    file.extend(long(0));
    file.extend(SYNC);
    for (objects, data) in blocks {
        file.extend(long(*objects));
        file.extend(bytes(data));
        file.extend(SYNC);
    }
    file
}

/// What deflates to the data `times` one behind the other. Each part is written as if there were nothing before it.
fn deflated(data: &[u8], times: usize) -> Vec<u8> {
    let mut compress = flate2::Compress::new(flate2::Compression::best(), false);
    let mut part = Vec::with_capacity(data.len() + 1024);
    compress.compress_vec(data, &mut part, flate2::FlushCompress::Full).unwrap();
    // An empty last block.
    [part.repeat(times), vec![3, 0]].concat()
}

/// The same for zstandard, in frames.
fn packed(data: &[u8], times: usize) -> Vec<u8> {
    zstd::stream::encode_all(data, 19).unwrap().repeat(times)
}

fn avro(schema: &str, entry: &[u8], corpus: &Inputs) -> Inputs {
    let with = |rest: &str| schema.replace("REST", rest);
    let plain = with("");
    let zeros = vec![0; 1 << 20];
    let many = entry.repeat((1 << 20) / entry.len());
    let count = 100 * (many.len() / entry.len()) as i64;
    let path = [&[2][..usize::from(entry.len() == 3)], &bytes(&vec![b'p'; 4 << 20])].concat();
    let mut inputs = vec![
        named("a deflate bomb of zeros", container(&plain, "deflate", &[(1, deflated(&zeros, 400))])),
        named("a deflate bomb of entries", container(&plain, "deflate", &[(count, deflated(&many, 100))])),
        named("many bombs of paths", container(&plain, "deflate", &vec![(1, deflated(&path, 1)); 50])),
        named("a zstandard bomb of zeros", container(&plain, "zstandard", &[(1, packed(&zeros, 4000))])),
        named("a zstandard bomb of entries", container(&plain, "zstandard", &[(count, packed(&many, 100))])),
        named("many zstandard bombs of paths", container(&plain, "zstandard", &vec![(1, packed(&path, 1)); 1000])),
        named("a snappy block that promises 4 GB", {
            container(&plain, "snappy", &[(1, vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0])])
        }),
    ];
    for promised in [i64::MAX, i64::MIN, 1 << 40, -1] {
        inputs.push(named(format!("{promised} objects"), container(&plain, "null", &[(promised, entry.to_vec())])));
        let header = [b"Obj\x01".to_vec(), long(promised)].concat();
        inputs.push(named(format!("{promised} keys in the header"), header.clone()));
        inputs.push(named(format!("a header of {promised} bytes"), [header, long(promised)].concat()));
        let items = with(r#",{"name":"x","type":{"type":"array","items":"long"}}"#);
        let data = [entry.to_vec(), long(promised), long(1)].concat();
        inputs.push(named(format!("{promised} items"), container(&items, "null", &[(1, data)])));
        let nothing = with(r#",{"name":"x","type":{"type":"array","items":"null"}}"#);
        let data = [entry.to_vec(), long(promised), long(0)].concat();
        inputs.push(named(format!("{promised} items of nothing"), container(&nothing, "null", &[(1, data)])));
    }
    for (name, rest) in [
        ("an array in an array", nested(r#"{"type":"array","items":"#, "}")),
        ("a map in a map", nested(r#"{"type":"map","values":"#, "}")),
        ("a union in a union", nested("[", "]")),
        ("a type in a type", nested(r#"{"type":"#, "}")),
    ] {
        let schema = with(&format!(r#",{{"name":"x","type":{rest}}}"#));
        inputs.push(named(format!("{name}, deeply"), container(&schema, "null", &[(1, entry.to_vec())])));
    }
    let circles = [
        r#",{"name":"x","type":{"type":"record","name":"c","fields":[{"name":"x","type":"c"}]}}"#,
        r#",{"name":"x","type":{"type":"record","name":"c","fields":[{"name":"x","type":["null","c"]}]}}"#,
        r#",{"name":"x","type":{"type":"record","name":"c","fields":[{"name":"x","type":{"type":"array","items":"c"}}]}}"#,
        r#",{"name":"x","type":{"type":"record","name":"c","fields":[{"name":"x","type":{"type":"map","values":"c"}},
            {"name":"y","type":"c"}]}}"#,
        r#",{"name":"x","type":["c","null"]},{"name":"y","type":{"type":"record","name":"c","fields":[]}}"#,
    ];
    for (number, circle) in circles.iter().enumerate() {
        for value in [0u8, 1, 2, 0xff] {
            let data = [entry.to_vec(), vec![value; 10_000]].concat();
            let file = container(&with(circle), "null", &[(1, data)]);
            inputs.push(named(format!("circle {number} of types, {value}"), file));
        }
    }
    inputs.push(named("a record that doubles with each of its fields", {
        let doubled = (1..40).fold(String::from(r#"{"type":"record","name":"d0","fields":[]}"#), |inner, level| {
            format!(
                r#"{{"type":"record","name":"d{level}","fields":[{{"name":"a","type":{inner}}},
                    {{"name":"b","type":"d{}"}}]}}"#,
                level - 1
            )
        });
        let schema = with(&format!(r#",{{"name":"x","type":{doubled}}}"#));
        container(&schema, "null", &[(1, entry.to_vec())])
    }));
    inputs.push(named("10,000 fields", {
        let fields: String = (0..10_000).map(|n| format!(r#",{{"name":"f{n}","type":["null","long"]}}"#)).collect();
        container(&with(&fields), "null", &[(1, [entry.to_vec(), vec![0; 10_000]].concat())])
    }));
    if let Some((name, file)) = corpus.first() {
        let repeated = file.repeat(3);
        inputs.push(named(format!("{name}, three times"), repeated));
    }
    inputs
}

/// A type that nests.
fn nested(open: &str, close: &str) -> String {
    format!("{}\"int\"{}", open.repeat(LEVELS), close.repeat(LEVELS))
}

fn sql() -> Inputs {
    // The shallow ones get to where alternatives are tried, one in the other.
    [5, 15, 40, LEVELS / 10].into_iter().flat_map(nested_sql).collect()
}

fn nested_sql(levels: usize) -> Inputs {
    let call = |value: &str| format!("CALL system.expire_snapshots(table => 't', retain_last => {value})");
    let many = |piece: &str| piece.repeat(levels);
    let ids = (0..levels / 5).map(|id| id.to_string()).collect::<Vec<_>>().join(", ");
    let mut inputs = vec![
        named("a long sum", call(&format!("1{}", many(" + 1")))),
        named("a long concatenation", call(&format!("'a'{}", many(" || 'a'")))),
        named("many casts", call(&format!("1{}", many("::bigint")))),
        named("many subscripts", call(&format!("a{}", many("[1]")))),
        named("IS NULL, often", call(&format!("1{}", many(" IS NULL")))),
        named("many names", call(&format!("a{}", many(".a")))),
        named("AND, often", call(&format!("true{}", many(" AND true")))),
        named("a long sum in a function", call(&format!("abs(1{})", many(" + 1")))),
        named("a long sum in a list", call(&format!("ARRAY[1, 2{}, 3]", many(" + 1")))),
        named("parentheses", call(&format!("{}1{}", many("("), many(")")))),
        named("minus, often", call(&format!("{}1", many("- ")))),
        named("NOT, often", call(&format!("{}true", many("NOT ")))),
        named("functions in functions", call(&format!("{}1{}", many("abs("), many(")")))),
        named("arrays in arrays", call(&format!("{}1{}", many("["), many("]")))),
        named("queries in queries", call(&format!("{}1{}", many("(SELECT "), many(")")))),
        named("CASE in CASE", call(&format!("{}1{}", many("CASE WHEN true THEN "), many(" END")))),
        named("a path of many names", format!("CALL system{}.expire_snapshots('t')", many(".a"))),
        named("a table of many names", format!("ALTER TABLE a{} EXECUTE expire_snapshots", many(".a"))),
        named("comments in comments", format!("{}{} CALL system.expire_snapshots('t')", many("/*"), many("*/"))),
        named("comments without an end", many("/*")),
        named("EXPLAIN, often", format!("{}CALL system.expire_snapshots('t')", many("EXPLAIN "))),
        named("many statements", many("CALL system.expire_snapshots('t'); ")),
        named("many arguments", format!("CALL system.expire_snapshots('t'{})", many(", retain_last => 1"))),
        named("many options", format!("VACUUM TABLE t EXPIRE SNAPSHOTS {}", many("retain_last = 1 "))),
        named("a sum among options", format!("VACUUM TABLE t EXPIRE SNAPSHOTS retain_last = 1{}", many(" + 1"))),
        named("a sum between", format!("ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS BETWEEN (1{}) AND (2)", many(" + 1"))),
        named("a sum retained", format!("ALTER TABLE t EXECUTE EXPIRE_SNAPSHOTS RETAIN LAST 1{}", many(" + 1"))),
        named("a sum older than", format!("ALTER TABLE t EXECUTE DELETE ORPHAN-FILES OLDER THAN (1{})", many(" + 1"))),
    ];
    inputs.push(named(
        "many ids, which is right",
        format!("CALL system.expire_snapshots(table => 't', snapshot_ids => ARRAY[{ids}])"),
    ));
    inputs.push(named("a long text", call(&format!("'{}'", many("abcdefghij")))));
    inputs
}

fn paths() -> Inputs {
    let many = |piece: &str| piece.repeat(LEVELS);
    vec![
        named("slashes", format!("/t\n/t/{}f", many("/"))),
        named("dots", format!("/t\n/t{}f", many("/."))),
        named("climbing", format!("/t\n/t{}/f", many("/.."))),
        named("percent signs", format!("/t\n/t/{}", many("%2f"))),
        named("half percent signs", format!("s3://b/t\ns3://b/t/{}", many("%"))),
        named("a long scheme", format!("/t\n{}://b/t", many("a"))),
        named("a long authority", format!("s3://b/t\ns3://{}/t", many("b.dfs."))),
        named("a long table", format!("/t{}\n/t{}/f", many("/a"), many("/a"))),
        named("many lines", format!("/t{}", many("\n/t/../t"))),
    ]
}
