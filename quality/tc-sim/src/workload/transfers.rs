//! Transfers: prepared branches move money between purses, within a database and from one to
//! another. The transactions that other installations have prepared there are listed here too.
//!
//! A purse is an account that only prepared branches change.

use handfast_rm_core::two_phase::{BranchName, Node};

use super::edit::Edit;
use crate::model::values::RowId;
use crate::random::Random;

/// The first row of purses.
const FIRST_ROW: u32 = 2_000;
/// The initial content of every purse.
const INITIAL_BALANCE: i64 = 1_000_000;
/// The XID of a global that no coordinator knows.
const UNKNOWN_XID: &str = "sim:1:4611686018427387904";

/// The changes of one branch.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) database: usize,
    pub(crate) edits: Vec<Edit>,
}

/// Draws a transfer: one branch for each database that it changes. It has none if the two purses
/// drawn are the same.
pub(super) fn draw(random: &mut Random, databases: &[usize], rows: u32) -> Vec<Transfer> {
    if databases.is_empty() {
        return Vec::new();
    }
    let mut purse = || {
        let database = databases[random.index(databases.len())];
        let purse = u32::try_from(random.index(rows as usize)).unwrap_or(0);
        (database, row_of(purse))
    };
    let (from, to) = (purse(), purse());
    let amount = i64::try_from(random.between(1, 50)).unwrap_or(1);
    let out = Edit { row: from.1, delta: -amount };
    let into = Edit { row: to.1, delta: amount };
    if from == to {
        return Vec::new();
    }
    if from.0 != to.0 {
        let transfer = |database, edit| Transfer { database, edits: vec![edit] };
        return vec![transfer(from.0, out), transfer(to.0, into)];
    }
    let mut edits = vec![out, into];
    // Rows are locked in one order, so that branches never wait for each other in a circle.
    edits.sort_by_key(|edit| edit.row);
    vec![Transfer { database: from.0, edits }]
}

/// Returns the rows of the purses, and their initial values.
pub(super) fn initial_rows(purses: u32) -> impl Iterator<Item = (RowId, i64)> {
    (0..purses).map(|purse| (row_of(purse), INITIAL_BALANCE))
}

/// Returns the number of the purse in a row.
pub(crate) fn purse_of(row: RowId) -> u32 {
    row.0 - FIRST_ROW
}

/// Returns what is wrong with the purses of all databases together: money is conserved.
pub(super) fn audit(purses: u32, databases: &[Vec<(RowId, i64)>]) -> Option<String> {
    let is_purse = |row: RowId| (FIRST_ROW..FIRST_ROW + purses).contains(&row.0);
    let all = databases.iter().flatten().filter(|(row, _)| is_purse(*row));
    let found: i64 = all.clone().map(|(_, value)| value).sum();
    let due: i64 = all.map(|_| INITIAL_BALANCE).sum();
    (found != due).then(|| format!("{found} in all purses, of {due}"))
}

/// Returns the id of the XA resource of a database.
pub(crate) fn xa_resource_id(database: usize) -> String {
    format!("purses-{database}")
}

/// Returns the node id of a service, by which it recognizes its branches.
pub(crate) fn node_of(service: usize) -> Node {
    Node::new(&format!("service-{service}")).expect("a plain text is a node")
}

/// Returns the names of what is prepared before a run begins: by a node of this installation in a
/// global that its coordinators have lost, by another installation, and by another program.
pub(crate) fn prepared_before_start() -> Vec<String> {
    let unknown =
        || handfast_rm_core::XidText::new(UNKNOWN_XID).expect("the text has the form of an XID");
    let named = |node| BranchName { node, branch: 1, xid: unknown() }.to_string();
    let elsewhere = Node::new("elsewhere").expect("a plain text is a node");
    vec![named(node_of(0)), named(elsewhere), "a program's own".to_owned()]
}

/// Returns whether a prepared transaction is of another installation or program.
pub(crate) fn is_foreign(name: &str) -> bool {
    !name.starts_with("hf1/service-")
}

fn row_of(purse: u32) -> RowId {
    RowId(FIRST_ROW + purse)
}
