//! The report of a refused branch: all its rows, the dirty ones first, and what each resolution
//! would do to them.

use handfast_proto::v1::{DirtyColumn, DirtyRow, Refused, RowChange, RowStanding};
use prost::Message;

use super::dirty_row::{ROWS_MAX, text};
use super::survey::{Survey, SurveyedColumn, SurveyedRow};
use crate::at::database::{AtDatabase, Backend, LoadedTable};

/// The size in bytes at which the list ends, even below its limit of rows (BOUNDED).
const BYTES_MAX: usize = 256 << 10;

/// Adds all rows of the branch to a refusal, which names those in its way.
pub(crate) async fn report<DB: AtDatabase>(
    connection: &mut DB::Connection,
    survey: Survey<'_, DB>,
    refused: Refused,
) -> Refused {
    let Survey { tables, rows } = survey;
    let total = rows.len() as u64;
    let mut dirty = rows.iter().filter(|row| row.standing() == RowStanding::Dirty).count() as u64;
    // The oldest first, as the branch has written them.
    let mut ordered: Vec<&SurveyedRow<'_>> = rows.iter().collect();
    ordered.sort_by_key(|row| (row.standing(), row.item));
    let (mut listed, mut bytes) = (Vec::new(), 0);
    for row in ordered.into_iter().take(ROWS_MAX) {
        let Some(loaded) = tables.get(&row.table_name()) else { continue };
        let mut shown = describe_surveyed(connection, loaded, row).await;
        if row.standing() == RowStanding::Clean && names(&refused.rows, &shown) {
            // As the branch left it, but rows of others refer to it: it counts as dirty.
            shown.set_standing(RowStanding::Dirty);
            shown.set_on_restore_clean(RowChange::Left);
            dirty += 1;
        }
        bytes += shown.encoded_len();
        listed.push(shown);
        if bytes > BYTES_MAX {
            break;
        }
    }
    let (rows_total, rows_dirty) = (total, dirty);
    let foreign = foreign_rows(refused.rows, &listed);
    let rows = foreign.into_iter().chain(listed).collect();
    Refused { error: refused.error, rows, rows_total, rows_dirty, ..Refused::default() }
}

/// Returns the rows that a refusal names beside those that are listed.
fn foreign_rows(named: Vec<DirtyRow>, listed: &[DirtyRow]) -> Vec<DirtyRow> {
    named.into_iter().filter(|row| !names(listed, row)).collect()
}

/// Whether the row is among those.
fn names(rows: &[DirtyRow], row: &DirtyRow) -> bool {
    rows.iter().any(|known| (&known.table, &known.key) == (&row.table, &row.key))
}

/// Describes a row with what each resolution would do to it.
async fn describe_surveyed<DB: Backend>(
    connection: &mut DB::Connection,
    loaded: &LoadedTable<DB>,
    row: &SurveyedRow<'_>,
) -> DirtyRow {
    let mut key = Vec::new();
    let mut columns = Vec::new();
    for (&place, value) in &row.key {
        key.extend(text(connection, loaded, place, Some(value)).await);
    }
    for (&place, SurveyedColumn { before, after, current }) in &row.cells {
        if loaded.table.whole_rows {
            key.extend(text(connection, loaded, place, after.or(*before)).await);
        }
        columns.push(DirtyColumn {
            name: loaded.table.columns[place].name.clone(),
            before: text(connection, loaded, place, *before).await,
            after: text(connection, loaded, place, *after).await,
            current: text(connection, loaded, place, current.as_ref()).await,
        });
    }
    DirtyRow {
        table: loaded.table.full_name(),
        key: key.join(", "),
        columns,
        standing: row.standing().into(),
        on_restore_clean: row.on_restore_clean().into(),
        on_force_before: row.on_force_before().into(),
    }
}
