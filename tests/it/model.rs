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
