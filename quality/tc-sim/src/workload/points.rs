//! Accounts of points, which branches under a fence change: points are free, held or spent.
//!
//! A try holds what a confirm spends and a cancel frees. No branch in AT mode changes these rows.

use handfast_rm_core::fence::Operation;

use super::edit::Edit;
use crate::model::values::RowId;

/// The first row of points, and the first row after them.
const FIRST_ROW: u32 = 1_000;
const END_ROW: u32 = 2_000;
/// The points of every account.
const INITIAL_POINTS: i64 = 1_000_000;

/// A change of an account: the input of a branch, which the coordinator stores with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointsChange {
    pub(crate) account: u32,
    pub(crate) units: i64,
}

/// A try that an order requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TccTry {
    pub(crate) database: usize,
    pub(crate) change: PointsChange,
    /// Whether the service refuses the try after it has written.
    pub(crate) refuses: bool,
}

/// Returns the id of the TCC resource of a database.
pub(crate) fn tcc_resource_id(database: usize) -> String {
    format!("points-{database}")
}

impl PointsChange {
    /// Encodes it, for the registration of the branch.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        format!("{} {}", self.account, self.units).into_bytes()
    }

    /// Decodes what [`to_bytes`](Self::to_bytes) wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (account, units) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        Some(Self { account: account.parse().ok()?, units: units.parse().ok()? })
    }

    /// Returns the changes of an operation that the fence lets run.
    pub(crate) fn edits(self, operation: Operation) -> Vec<Edit> {
        let (free, held, spent) = (0, 1, 2);
        let (from, to) = match operation {
            Operation::Try => (free, held),
            Operation::Confirm => (held, spent),
            Operation::Cancel => (held, free),
            Operation::Action => (free, spent),
            Operation::Compensation => (spent, free),
        };
        let edit = |kind, delta| Edit { row: row_of(self.account, kind), delta };
        let mut edits = vec![edit(from, -self.units), edit(to, self.units)];
        // Rows are locked in one order, so that branches never wait for each other in a circle.
        edits.sort_by_key(|edit| edit.row);
        edits
    }
}

/// Returns the first row of points.
pub(super) fn first_row() -> RowId {
    RowId(FIRST_ROW)
}

/// Returns whether a row is part of an account of points.
pub(crate) fn is_points_row(row: RowId) -> bool {
    (FIRST_ROW..END_ROW).contains(&row.0)
}

/// Returns the rows of the accounts, and their initial values.
pub(super) fn initial_rows(accounts: u32) -> impl Iterator<Item = (RowId, i64)> {
    let of_account = |account| {
        [INITIAL_POINTS, 0, 0]
            .into_iter()
            .zip(0..)
            .map(move |(value, kind)| (row_of(account, kind), value))
    };
    (0..accounts).flat_map(of_account)
}

/// Returns what is wrong with the accounts of a database: points are conserved, and none are held
/// at the end.
pub(super) fn audit(accounts: u32, values: &[(RowId, i64)]) -> Vec<String> {
    let value = |row| values.iter().find(|(of, _)| *of == row).map_or(0, |(_, value)| *value);
    let mut wrong = Vec::new();
    for account in 0..accounts {
        let [free, held, spent] = [0, 1, 2].map(|kind| value(row_of(account, kind)));
        if free + held + spent != INITIAL_POINTS || held != 0 {
            let found = format!("{free} free, {held} held, {spent} spent");
            wrong.push(format!("account {account} of points: {found}, of {INITIAL_POINTS}"));
        }
    }
    wrong
}

fn row_of(account: u32, kind: u32) -> RowId {
    RowId(FIRST_ROW + 3 * account + kind)
}
