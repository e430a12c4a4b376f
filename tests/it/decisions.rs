//! Where the crate decides otherwise than the model, on any graph of snapshots at all.

use std::collections::BTreeMap;

use iceberg_maintenance::retention::{RetentionPolicy, choose_expired};
use iceberg_maintenance::table::TableMetadata;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::model::{Policy, Verdict, decide};

const NOW: i64 = 100;

fn some<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.4, value)
}

/// Snapshots 1 to n with any parents: holes, cycles, several roots, several children, clocks that run backwards.
fn snapshots() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec((prop::option::weighted(0.85, 1..11i64), 0..40i64), 1..9).prop_map(|snapshots| {
        let snapshot = |(id, (parent, time)): (i64, (Option<i64>, i64))| match parent {
            Some(parent) => {
                json!({"snapshot-id": id, "parent-snapshot-id": parent, "timestamp-ms": time, "manifest-list": "/t/m"})
            }
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
