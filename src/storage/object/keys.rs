//! Listed keys in their order.

use std::borrow::Cow;

use object_store::ObjectMeta;

/// A key as it was listed.
#[derive(Debug)]
pub(super) struct ListedKey {
    pub meta: ObjectMeta,
    /// True if the key ends in a slash, which `object_store` does not show: an empty object that stands for a folder.
    pub is_folder_marker: bool,
}

impl ListedKey {
    pub(super) fn path(&self) -> &str {
        self.meta.location.as_ref()
    }

    /// The key itself.
    pub(super) fn key(&self) -> Cow<'_, str> {
        if self.is_folder_marker { format!("{}/", self.path()).into() } else { self.path().into() }
    }

    /// True if the key comes after a given one.
    pub(super) fn is_after(&self, key: &str) -> bool {
        *self.key() > *key
    }
}

/// The keys that one listing shows must ascend, and begin behind its start.
#[derive(Debug, Default)]
pub(super) struct KeyOrder {
    last: Option<String>,
}

impl KeyOrder {
    /// The order of a listing that starts behind a key, or with the first one.
    pub(super) fn behind(start: Option<&str>) -> Self {
        Self { last: start.map(str::to_string) }
    }

    /// Takes the next key of the listing; the key before it and this one if they don't ascend.
    ///
    /// A folder marker is shown without its slash: where the bare path is out of order, the path with the slash may not be.
    pub(super) fn next(&mut self, meta: ObjectMeta) -> Result<ListedKey, (String, String)> {
        let path: &str = meta.location.as_ref();
        let last = self.last.get_or_insert_default();
        let is_folder_marker = if path > last.as_str() {
            false
        } else if format!("{path}/") > *last {
            true
        } else {
            return Err((last.clone(), path.to_string()));
        };
        last.clear();
        last.push_str(path);
        if is_folder_marker {
            last.push('/');
        }
        Ok(ListedKey { meta, is_folder_marker })
    }
}
