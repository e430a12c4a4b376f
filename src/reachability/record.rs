//! How things that wait on disk are written: numbers and texts, one behind the other. Only this process reads them back.

use crate::error::Error;

/// Appends to a buffer.
pub(crate) struct Writer<'a>(&'a mut Vec<u8>);

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn optional(&mut self, number: Option<u64>) {
        self.0.push(u8::from(number.is_some()));
        self.number(number.unwrap_or_default());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }
}

/// Reads what a [`Writer`] wrote. Everything is `None` where the bytes are something else.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(size_of::<u64>())?.as_array()?))
    }

    pub(crate) fn optional(&mut self) -> Option<Option<u64>> {
        let is_some = *self.take(1)?.first()? != 0;
        self.number().map(|number| is_some.then_some(number))
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(length)?).ok()
    }
}

/// The error of a temporary file that holds something else than was written to it.
pub(super) fn broken() -> Error {
    let what = "a temporary file was changed by somebody else while it was in use";
    datafusion::error::DataFusionError::Execution(what.into()).into()
}
