//! Purses: money that prepared branches move, within a database and from one to another. And what
//! others have prepared in the same databases.

use handfast_rm_core::two_phase::{BranchName, Node};

use crate::client::Edit;
use crate::database::RowId;
use crate::random::Random;

/// Where the rows of purses begin.
const FIRST: u32 = 2_000;
/// What is in each purse at the start.
const PLENTY: i64 = 1_000_000;
/// A global that no coordinator knows.
const NOBODYS: &str = "sim:1:4611686018427387904";

/// What one branch does.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) database: usize,
    pub(crate) edits: Vec<Edit>,
}

/// One transfer, in a branch for each database that it touches, or none.
pub(crate) fn draw(random: &mut Random, databases: &[usize], rows: u32) -> Vec<Transfer> {
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
    // In one order, so that branches of one database do not wait in a circle.
    edits.sort_by_key(|edit| edit.row);
    vec![Transfer { database: from.0, edits }]
}

/// The rows of so many purses, and what they hold at the start.
pub(crate) fn set_up(purses: u32) -> impl Iterator<Item = (RowId, i64)> {
    (0..purses).map(|purse| (row_of(purse), PLENTY))
}

/// Which purse a row is.
pub(crate) fn number_of(row: RowId) -> u32 {
    row.0 - FIRST
}

/// What is wrong with the purses of all databases together.
pub(crate) fn audit(purses: u32, databases: &[Vec<(RowId, i64)>]) -> Option<String> {
    let is_purse = |row: RowId| (FIRST..FIRST + purses).contains(&row.0);
    let all = databases.iter().flatten().filter(|(row, _)| is_purse(*row));
    let there: i64 = all.clone().map(|(_, value)| value).sum();
    let due: i64 = all.map(|_| PLENTY).sum();
    (there != due).then(|| format!("{there} in all purses, of {due}"))
}

/// The node of a service, by which it knows its branches.
pub(crate) fn node_of(service: usize) -> Node {
    Node::new(&format!("service-{service}")).expect("a plain text is a node")
}

/// What is prepared before anything begins: by another installation, by another program, and by
/// this installation in a past that its coordinators have lost.
pub(crate) fn strangers() -> Vec<String> {
    let nobodys = || handfast_rm_core::XidText::new(NOBODYS).expect("it has the form of one");
    let named = |node| BranchName { node, branch: 1, xid: nobodys() }.to_string();
    let elsewhere = Node::new("elsewhere").expect("a plain text is a node");
    vec![named(node_of(0)), named(elsewhere), "a program's own".to_owned()]
}

/// Whether it is none of this installation's.
pub(crate) fn is_foreign(name: &str) -> bool {
    !name.starts_with("hf1/service-")
}

fn row_of(purse: u32) -> RowId {
    RowId(FIRST + purse)
}
