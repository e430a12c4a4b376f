//! Family B, expiry: which snapshots, refs and log entries go.
