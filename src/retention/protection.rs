//! What stays whatever the rules say: `expire_before`, and snapshots that the call names.

use std::collections::HashMap;

use super::{History, Reason, RetentionPolicy};
use crate::error::{Error, Result};

/// Takes back what the rules let go and is protected.
///
/// # Errors
/// [`Error::Argument`] when a protected id is unknown, or `snapshot_ids` names a snapshot that is protected.
pub(super) fn apply(history: &History, policy: &RetentionPolicy, reasons: &mut HashMap<i64, Reason>) -> Result<()> {
    if let Some(fuse) = policy.expire_before_ms {
        for id in history.by_id.values().filter(|s| s.timestamp_ms >= fuse).map(|s| s.snapshot_id) {
            spare(reasons, id, Reason::NotBeforeExpireBefore);
        }
    }
    for id in &policy.protected_snapshot_ids {
        if !history.by_id.contains_key(id) {
            return Err(refusal(format!("snapshot {id} of protected_snapshot_ids does not exist in the table")));
        }
        if reasons.get(id) == Some(&Reason::Listed) {
            return Err(refusal(format!(
                "snapshot {id} is in snapshot_ids and in protected_snapshot_ids. Leave one out"
            )));
        }
        spare(reasons, *id, Reason::Protected);
    }
    Ok(())
}

fn refusal(message: String) -> Error {
    Error::argument("expire_snapshots", message)
}

fn spare(reasons: &mut HashMap<i64, Reason>, id: i64, reason: Reason) {
    let known = reasons.entry(id).or_insert_with(|| reason.clone());
    if known.expires() {
        *known = reason;
    }
}
