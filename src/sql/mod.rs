//! SQL
pub(crate) fn install(
    _: &datafusion::prelude::SessionContext,
    _: &crate::maintenance::Maintenance,
    _: Option<crate::options::MaintenanceOptions>,
) -> datafusion::error::Result<()> {
    Ok(())
}
