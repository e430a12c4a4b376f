//! Which snapshots and refs go, by a second and much simpler implementation of the rules.
//!
//! Written from the rules of Iceberg's reference implementation and the table spec's retention policy, not from this
//! crate's code; slow and plain on purpose.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The arguments of an expiry.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    pub older_than: Option<i64>,
    pub expire_before: Option<i64>,
    pub retain_last: Option<i64>,
    pub snapshot_ids: Option<BTreeSet<i64>>,
}

/// What stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub snapshots: BTreeSet<i64>,
    pub refs: BTreeSet<String>,
}

/// All refs, with the implied `main` of metadata that names none.
pub fn refs(metadata: &Value) -> BTreeMap<String, Value> {
    let mut refs: BTreeMap<String, Value> = match metadata.get("refs") {
        Some(Value::Object(refs)) => refs.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        _ => BTreeMap::new(),
    };
    if let Some(current) = metadata.get("current-snapshot-id").and_then(Value::as_i64).filter(|id| *id != -1) {
        refs.entry("main".into()).or_insert_with(|| serde_json::json!({"snapshot-id": current, "type": "branch"}));
    }
    refs
}

/// Decides on valid arguments: `snapshot_ids` name existing snapshots that no ref points to.
pub fn decide(metadata: &Value, policy: &Policy, now: i64) -> Verdict {
    let no_snapshots = vec![];
    let list = metadata.get("snapshots").and_then(Value::as_array).unwrap_or(&no_snapshots);
    let by_id: BTreeMap<i64, &Value> = list.iter().map(|s| (s["snapshot-id"].as_i64().unwrap(), s)).collect();
    let time = |id: i64| by_id[&id]["timestamp-ms"].as_i64().unwrap();
    let refs = refs(metadata);
    // A moment given as expire_before only ever protects: snapshots, and refs by their snapshots.
    let is_protected = |id: i64| policy.expire_before.is_some_and(|before| time(id) >= before);

    if let Some(ids) = &policy.snapshot_ids {
        let snapshots = by_id.keys().copied().filter(|id| !ids.contains(id) || is_protected(*id)).collect();
        return Verdict { snapshots, refs: refs.into_keys().collect() };
    }

    let property = |name: &str, default: i64| match &metadata["properties"][name] {
        Value::String(text) => text.parse::<i64>().unwrap(),
        _ => default,
    };
    let five_days = 5 * 24 * 3600 * 1000;
    let ago = |age: i64| now.saturating_sub(age);
    let cutoff = policy.older_than.unwrap_or(ago(property("history.expire.max-snapshot-age-ms", five_days)));
    let minimum = policy.retain_last.unwrap_or(property("history.expire.min-snapshots-to-keep", 1));
    let ref_age = property("history.expire.max-ref-age-ms", i64::MAX);

    let staying: BTreeMap<&String, &Value> = refs
        .iter()
        .filter(|(name, reference)| {
            let head = reference["snapshot-id"].as_i64().unwrap();
            let limit = reference["max-ref-age-ms"].as_i64().unwrap_or(ref_age);
            let stays = |head| now.saturating_sub(time(head)) <= limit || is_protected(head);
            *name == "main" || by_id.contains_key(&head) && stays(head)
        })
        .collect();

    let (mut kept, mut referenced) = (BTreeSet::new(), BTreeSet::new());
    for reference in staying.values() {
        let head = reference["snapshot-id"].as_i64().unwrap();
        kept.insert(head);
        referenced.insert(head);
        if reference["type"] == "branch" {
            let minimum = reference["min-snapshots-to-keep"].as_i64().unwrap_or(minimum);
            let cutoff = reference["max-snapshot-age-ms"].as_i64().map_or(cutoff, ago);
            let chain = ancestors(&by_id, head);
            let run = chain.iter().enumerate().take_while(|(i, id)| (*i as i64) < minimum || time(**id) >= cutoff);
            kept.extend(run.map(|(_, id)| *id));
            referenced.extend(chain);
        }
    }
    kept.extend(by_id.keys().copied().filter(|id| !referenced.contains(id) && time(*id) >= cutoff));
    kept.extend(by_id.keys().copied().filter(|id| is_protected(*id)));
    kept.retain(|id| by_id.contains_key(id));
    Verdict { snapshots: kept, refs: staying.into_keys().cloned().collect() }
}

/// A snapshot and its ancestors as far as the table has them.
fn ancestors(by_id: &BTreeMap<i64, &Value>, head: i64) -> Vec<i64> {
    let mut chain = vec![];
    let mut next = Some(head);
    while let Some(id) = next {
        let Some(snapshot) = by_id.get(&id).filter(|_| !chain.contains(&id)) else { break };
        chain.push(id);
        next = snapshot["parent-snapshot-id"].as_i64();
    }
    chain
}

/// The snapshot log once only these snapshots are left. A log can't have holes, so it begins after the last gap, also
/// after one that was there before; when nothing is removed the log is left alone. As Java's `TableMetadata.Builder`.
pub fn snapshot_log(log: &[i64], left: &BTreeSet<i64>, removed: &BTreeSet<i64>) -> Vec<i64> {
    if removed.is_empty() {
        return log.to_vec();
    }
    let begin = log.iter().rposition(|id| !left.contains(id)).map_or(0, |gap| gap + 1);
    log[begin..].to_vec()
}

/// Where the crate decides otherwise than the model, on any graph of snapshots at all.
mod decisions {
    use iceberg_maintenance::retention::{RetentionPolicy, choose_expired};
    use iceberg_maintenance::table::TableMetadata;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 100;

    fn some<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
        prop::option::weighted(0.4, value)
    }

    /// Snapshots 1 to n with any parents: holes, cycles, several roots, several children, clocks that run backwards.
    fn snapshots() -> impl Strategy<Value = Vec<Value>> {
        prop::collection::vec((prop::option::weighted(0.85, 1..11i64), 0..40i64), 1..9).prop_map(|snapshots| {
            let snapshot = |(id, (parent, time)): (i64, (Option<i64>, i64))| match parent {
                Some(parent) => json!({"snapshot-id": id, "parent-snapshot-id": parent, "timestamp-ms": time, "manifest-list": "/t/m"}),
                None => json!({"snapshot-id": id, "timestamp-ms": time, "manifest-list": "/t/m"}),
            };
            (1..).zip(snapshots).map(snapshot).collect()
        })
    }

    fn reference() -> impl Strategy<Value = Value> {
        (1..11i64, any::<bool>(), some(1..4i64), some(50..120i64), some(50..120i64)).prop_map(
            |(id, is_branch, minimum, age, ref_age)| {
                let mut reference = json!({"snapshot-id": id, "type": if is_branch { "branch" } else { "tag" }});
                let fields = [
                    ("min-snapshots-to-keep", minimum.filter(|_| is_branch)),
                    ("max-snapshot-age-ms", age.filter(|_| is_branch)),
                    ("max-ref-age-ms", ref_age),
                ];
                for (name, value) in fields {
                    if let Some(value) = value {
                        reference[name] = value.into();
                    }
                }
                reference
            },
        )
    }

    /// Metadata, always with a current snapshot; sometimes without refs.
    fn metadata() -> impl Strategy<Value = Value> {
        let properties = (some(1..4i64), some(50..120i64), some(50..120i64));
        (
            snapshots(),
            any::<prop::sample::Index>(),
            some(reference()),
            prop::collection::btree_map("[a-d]", reference(), 0..4),
            properties,
        )
            .prop_map(|(snapshots, current, main, mut refs, (minimum, age, ref_age))| {
                let current = current.get(&snapshots)["snapshot-id"].clone();
                if let Some(mut main) = main {
                    main["snapshot-id"] = current.clone();
                    main["type"] = "branch".into();
                    refs.insert("main".into(), main);
                }
                let properties: BTreeMap<_, _> = [
                    ("history.expire.min-snapshots-to-keep", minimum),
                    ("history.expire.max-snapshot-age-ms", age),
                    ("history.expire.max-ref-age-ms", ref_age),
                ]
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?.to_string())))
                .collect();
                json!({"format-version": 2, "table-uuid": "u", "location": "/t", "current-snapshot-id": current,
                       "snapshots": snapshots, "refs": refs, "properties": properties})
            })
    }

    fn policy() -> impl Strategy<Value = Policy> {
        (some(-5..50i64), some(-5..50i64), some(1..5i64)).prop_map(|(older_than, expire_before, retain_last)| Policy {
            older_than,
            expire_before,
            retain_last,
            snapshot_ids: None,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn are_those_of_the_model_on_any_graph(metadata in metadata(), policy in policy()) {
            let parsed = TableMetadata::parse("/t/metadata/v1.metadata.json", metadata.to_string().as_bytes()).unwrap();
            let arguments = RetentionPolicy {
                older_than_ms: policy.older_than,
                expire_before_ms: policy.expire_before,
                retain_last: policy.retain_last,
                ..RetentionPolicy::default()
            };
            let chosen = choose_expired(&parsed, &arguments, NOW).unwrap();
            let kept = chosen.snapshots.iter().filter(|s| !s.reason.expires()).map(|s| s.snapshot_id).collect();
            let refs = chosen.refs.iter().filter(|r| !r.reason.removes()).map(|r| r.name.clone()).collect();
            prop_assert_eq!(Verdict { snapshots: kept, refs }, decide(&metadata, &policy, NOW));
        }
    }
}

#[test]
fn the_model_walks_as_the_reference_does_when_clocks_run_backwards() {
    let snapshot = |id: i64, parent: Option<i64>, time: i64| serde_json::json!({"snapshot-id": id, "parent-snapshot-id": parent, "timestamp-ms": time});
    let metadata = serde_json::json!({
        "current-snapshot-id": 4,
        "snapshots": [snapshot(1, None, 10), snapshot(2, Some(1), 30), snapshot(3, Some(2), 20), snapshot(4, Some(3), 40)],
    });
    let policy = Policy { older_than: Some(25), retain_last: Some(1), ..Policy::default() };
    let verdict = decide(&metadata, &policy, 100);
    assert_eq!(verdict, Verdict { snapshots: [4].into(), refs: ["main".to_string()].into() });
}
