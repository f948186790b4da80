//! Lists branches that are tried and neither confirmed nor cancelled.
//!
//! It takes no lock: a row may have changed by the time that the caller acts on it.

use handfast_rm_core::fence::FenceState;
use sqlx::Pool;

use super::Fence;
use super::error::FenceError;
use super::lent::Lent;
use super::table::explain;
use crate::at::{AtDatabase, Backend, Dialect, rows};
use crate::xid::Xid;

/// Some of the branches, in the order of their names.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) fences: Vec<Fence>,
    /// Where the next page begins; `None`: there is none.
    pub(crate) next: Option<BranchPosition>,
}

/// After the branch of this name, as it is stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct BranchPosition {
    xid: String,
    branch: i64,
}

/// Returns the page that begins after a position. Rows whose name is none of ours are skipped.
///
/// # Errors
/// The database's error.
pub(crate) async fn tried<DB: AtDatabase>(
    pool: &Pool<DB>,
    after: &BranchPosition,
    rows_max: usize,
) -> Result<Page, FenceError> {
    let mut connection = Lent::of(pool).await?;
    let (mut fences, mut next) = (Vec::new(), None);
    let mut arguments = DB::Arguments::default();
    DB::bind_text(&mut arguments, &after.xid);
    DB::bind_number(&mut arguments, after.branch);
    let found = rows::<DB>(&mut connection, text::<DB>(rows_max), arguments).await;
    let found = found.map_err(explain::<DB>)?;
    connection.end();
    for row in found {
        let xid = DB::text(&row, 0)?.unwrap_or_default();
        let branch = DB::number(&row, 1)?.unwrap_or_default();
        let action = DB::text(&row, 2)?.unwrap_or_default();
        if let Ok(xid) = Xid::new(&xid) {
            fences.push(Fence { xid, branch, action: action.into() });
        }
        // Also for a row that is skipped, or the next page would begin with it again.
        next = Some(BranchPosition { xid, branch });
    }
    Ok(Page { fences, next })
}

fn text<DB: Backend>(rows_max: usize) -> String {
    let after = match DB::DIALECT {
        Dialect::Postgres => "($1, $2)",
        Dialect::MySql | Dialect::Sqlite => "(?, ?)",
    };
    format!(
        "SELECT xid, {}, action FROM branch_fence WHERE (xid, branch_id) > {after} \
         AND status = {} ORDER BY xid, branch_id LIMIT {rows_max}",
        DB::as_number("branch_id"),
        FenceState::Tried.number()
    )
}
