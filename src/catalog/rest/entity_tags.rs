//! Whether a server's entity tags can be believed.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::catalog::TableName;

/// What was seen of a server's entity tags.
///
/// A server, or a cache in front of it, that answers "not modified" for a table that was modified would have live files deleted.
/// So a tag is asked about only after a table's tag was seen to change along with its metadata, and never again after it was seen
/// not to.
#[derive(Debug, Default)]
pub(super) struct EntityTags {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Tag and metadata location of each table, as last seen.
    seen: HashMap<TableName, (String, String)>,
    changed: bool,
    stood_still: bool,
}

impl EntityTags {
    /// Notes the tag that came with a table's metadata.
    pub(super) fn note(&self, table: &TableName, tag: &str, metadata_location: &str) {
        if tag.is_empty() {
            return;
        }
        let now = (tag.to_string(), metadata_location.to_string());
        let mut state = self.state.lock();
        match state.seen.insert(table.clone(), now.clone()) {
            Some((tag, location)) if location != now.1 && tag == now.0 => state.stood_still = true,
            Some((_, location)) if location != now.1 => state.changed = true,
            _ => {}
        }
    }

    /// True when "not modified" may be taken for the truth.
    pub(super) fn are_believed(&self) -> bool {
        let state = self.state.lock();
        state.changed && !state.stood_still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_believed_once_they_changed_with_the_metadata_and_until_they_did_not() {
        let table = |name: &str| TableName { namespace: vec!["db".into()], name: name.into() };
        let tags = EntityTags::default();
        tags.note(&table("t"), "a", "v1");
        tags.note(&table("t"), "a", "v1");
        tags.note(&table("u"), "b", "v2");
        assert!(!tags.are_believed(), "nothing changed yet");
        tags.note(&table("t"), "c", "v2");
        assert!(tags.are_believed());
        tags.note(&table("u"), "b", "v3");
        assert!(!tags.are_believed(), "u changed, and its tag did not");
    }
}
