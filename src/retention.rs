//! placeholder
use serde::Serialize;
/// placeholder
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotDecision {
    pub snapshot_id: i64,
    pub timestamp_ms: i64,
    pub reason: Reason,
}
/// placeholder
#[derive(Debug, Clone, Serialize)]
pub enum Reason {
    Kept,
}
impl Reason {
    pub fn expires(&self) -> bool {
        false
    }
}
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kept")
    }
}
