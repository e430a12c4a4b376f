//! Keys that `object_store` can't express, as a listing hands them on.

use std::fmt;

use object_store::ObjectMeta;

use super::listed;
use crate::storage::Listed;

const WHY: &str = "the store's client can't express such a key ('//', '.', '..' or a control character in it)";

/// A key, or a prefix that ends in `/` of nothing but such keys. A store of ours yields it as the source of an error and
/// goes on behind it, since the stream of an `ObjectStore` knows nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnusableKey(pub String);

impl fmt::Display for UnusableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is among the keys, and {WHY}", self.0)
    }
}

impl std::error::Error for UnusableKey {}

impl From<UnusableKey> for object_store::Error {
    fn from(key: UnusableKey) -> Self {
        object_store::Error::Generic { store: "listing", source: Box::new(key) }
    }
}

impl UnusableKey {
    /// The key that an item of a listing stands for, if it is no failure.
    pub(super) fn of(error: &object_store::Error) -> Option<&Self> {
        match error {
            object_store::Error::Generic { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }

    pub(super) fn listed(&self) -> Listed {
        Listed::Unusable { path: format!("/{}", self.0), why: WHY }
    }
}

/// An item of a store's listing as it is handed on.
pub(super) fn listed_or_unusable(item: object_store::Result<ObjectMeta>) -> object_store::Result<Listed> {
    match item {
        Ok(meta) => Ok(listed(meta)),
        Err(error) => UnusableKey::of(&error).map(UnusableKey::listed).ok_or(error),
    }
}
