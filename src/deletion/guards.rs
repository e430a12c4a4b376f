//! Limits on how much one call may delete.

use crate::error::{Error, Result};

/// Limits that stop a surprising plan before its first delete.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    /// No more files than this.
    pub max_delete_count: Option<u64>,
    /// No more than this share (0 to 1) of `considered` files.
    pub max_delete_fraction: Option<f64>,
    /// How many files the share is measured against.
    pub considered: u64,
}

/// Refuses a plan that deletes more than it may.
pub(crate) fn check_limits(table: &str, planned: usize, limits: &Limits) -> Result<()> {
    let refuse = |found: String| Err(Error::Guard { table: table.into(), found });
    let planned = planned as u64;
    if let Some(limit) = limits.max_delete_count.filter(|limit| planned > *limit) {
        return refuse(format!(
            "the plan deletes {planned} files, more than max_delete_count = {limit}. Look at it with dry_run => true, \
             output => 'files', then raise the limit or leave it out"
        ));
    }
    let share = planned as f64 / limits.considered.max(1) as f64;
    if let Some(limit) = limits.max_delete_fraction.filter(|limit| planned > 0 && share > *limit) {
        return refuse(format!(
            "the plan deletes {planned} of {} files, more than max_delete_fraction = {limit}. Look at it with \
             dry_run => true, output => 'files', then raise the limit or leave it out",
            limits.considered
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        let count = |limit| Limits { max_delete_count: Some(limit), ..Default::default() };
        assert!(check_limits("t", 3, &count(3)).is_ok());
        assert!(check_limits("t", 4, &count(3)).unwrap_err().to_string().contains("max_delete_count = 3"));
        let fraction = |limit| Limits { max_delete_fraction: Some(limit), considered: 10, ..Default::default() };
        assert!(check_limits("t", 5, &fraction(0.5)).is_ok());
        assert!(check_limits("t", 6, &fraction(0.5)).unwrap_err().to_string().contains("6 of 10 files"));
        assert!(check_limits("t", 0, &fraction(0.0)).is_ok());
    }
}
