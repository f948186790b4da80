//! The writers of a row of a branch, as the guard of a watched table has noted them.

use super::has_tables;
use super::sql::{parameters, time};
use crate::at::database::{AtDatabase, rows};
use crate::at::resource_state::ResourceState;

/// How many writes are named in the text of a refusal.
const NAMED_MAX: usize = 3;

/// Adds to the text of a refused rollback who wrote the branch's rows meanwhile, as far as a guard
/// has noted it. The refusal stands without that.
pub(crate) async fn with_notes<DB: AtDatabase>(
    connection: &mut DB::Connection,
    shared: &ResourceState<DB>,
    (xid, branch): (&str, u64),
    error: String,
) -> String {
    if !shared.catalogue.knows_guards() {
        return error;
    }
    match read::<DB>(connection, xid, branch).await {
        Ok(notes) if notes.is_empty() => error,
        Ok(notes) => {
            let more = match notes.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let named = notes.into_iter().take(NAMED_MAX).collect::<Vec<_>>().join("; ");
            format!("{error}; the guard has seen {named}{more}")
        }
        Err(failed) => {
            tracing::warn!(xid, branch, error = %failed, "notes of a guard not read");
            error
        }
    }
}

/// The notes of a branch, oldest first, each as a text.
async fn read<DB: AtDatabase>(
    connection: &mut DB::Connection,
    xid: &str,
    branch: u64,
) -> Result<Vec<String>, sqlx::Error> {
    if !has_tables::<DB>(connection).await? {
        return Ok(Vec::new());
    }
    let [one, two] = parameters::<DB, 2>();
    let text = format!(
        "SELECT statement, table_name, row_key, db_user, application, address, {} \
         FROM guarded_note WHERE xid = {one} AND branch_id = {two} ORDER BY written_at",
        time::<DB>("written_at"),
    );
    let mut arguments = DB::Arguments::default();
    DB::bind_text(&mut arguments, xid);
    DB::bind_number(&mut arguments, i64::try_from(branch).unwrap_or(i64::MAX));
    let mut notes = Vec::new();
    for row in rows::<DB>(connection, text, arguments).await? {
        let text = |index| DB::text(&row, index).map(Option::unwrap_or_default);
        let (statement, table, key) = (text(0)?, text(1)?, text(2)?);
        let (user, application, address, at) = (text(3)?, text(4)?, text(5)?, text(6)?);
        let application =
            if application.is_empty() { application } else { format!(" ({application})") };
        notes.push(format!(
            "{statement} of {table} {key} by {user}{application} from {address} at {at}"
        ));
    }
    Ok(notes)
}
