//! The description of a table whose rows are put back.

use handfast_rm_core::plan::TableName;

use super::obstacle::Obstacle;
use crate::at::database::{AtDatabase, LoadedTable, Purpose};
use crate::at::error::{AtError, with_causes};
use crate::at::resource_state::ResourceState;

/// Loads the table as the catalogue describes it at this moment: a description of a minute ago
/// could miss a column, and a deleted row would come back without its value.
pub(super) async fn load_table<DB: AtDatabase>(
    connection: &mut DB::Connection,
    shared: &ResourceState<DB>,
    name: &TableName,
) -> Result<LoadedTable<DB>, Obstacle> {
    let loaded = shared.catalogue.load(connection, name, Purpose::Restoring).await;
    loaded.map_err(|error| match AtError::of(&error) {
        Some(ours) => Obstacle::refused(with_causes(ours)),
        None => Obstacle::Database(error),
    })
}
