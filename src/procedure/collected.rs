//! The files of a plan while they are collected.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

use crate::error::Result;
use crate::progress::RunWork;
use crate::report::FileOutcome;

/// Files that may go, with the memory they take: a plan holds each of them once, whatever it was chosen from.
#[derive(Debug)]
pub(super) struct CollectedFiles {
    files: Vec<FileOutcome>,
    reservation: MemoryReservation,
    reserved: usize,
    /// Where they are counted, for who looks on.
    work: Arc<RunWork>,
}

/// What the reservation grows by at least.
const STEP: usize = 64 << 10;

impl CollectedFiles {
    pub(super) fn new(task: &TaskContext) -> Self {
        let reservation = MemoryConsumer::new("FilesToDelete").register(task.memory_pool());
        Self { files: vec![], reservation, reserved: 0, work: RunWork::of(task) }
    }

    /// # Errors
    /// When the session's memory limit is too low for a plan of so many files.
    pub(super) fn push(&mut self, file: FileOutcome) -> Result<()> {
        self.reserved += size_of::<FileOutcome>() + file.path.capacity();
        if self.reserved > self.reservation.size() {
            self.reservation.try_grow((self.reserved - self.reservation.size()).max(STEP))?;
        }
        self.work.add(|work| &work.candidates, 1);
        self.files.push(file);
        Ok(())
    }

    pub(super) fn as_mut(&mut self) -> &mut Vec<FileOutcome> {
        &mut self.files
    }

    pub(super) fn as_slice(&self) -> &[FileOutcome] {
        &self.files
    }

    pub(super) fn into_vec(self) -> Vec<FileOutcome> {
        self.files
    }
}
