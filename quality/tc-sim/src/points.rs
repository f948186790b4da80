//! Accounts of points, which branches under a fence change: points are free, held, or spent.
//!
//! A try holds what a confirm spends and a cancel frees. They are rows of the model databases
//! beside those of AT mode, and no branch of AT mode touches them.

use handfast_rm_core::fence::Operation;

use crate::client::Edit;
use crate::database::RowId;

/// Where the rows of points begin, and where others do.
const FIRST: u32 = 1_000;
const END: u32 = 2_000;
/// How many points every account has.
const PLENTY: i64 = 1_000_000;

/// What a branch is about, which the coordinator keeps for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Points {
    pub(crate) account: u32,
    pub(crate) units: i64,
}

impl Points {
    /// What is registered with the branch.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        format!("{} {}", self.account, self.units).into_bytes()
    }

    /// What [`to_bytes`](Self::to_bytes) wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (account, units) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        Some(Self { account: account.parse().ok()?, units: units.parse().ok()? })
    }

    /// What an operation does when the fence lets it run.
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
        // In one order, so that branches wait for each other and not in a circle.
        edits.sort_by_key(|edit| edit.row);
        edits
    }
}

/// Whether a row is one of points.
pub(crate) fn is_points(row: RowId) -> bool {
    (FIRST..END).contains(&row.0)
}

/// The rows of so many accounts, and what they hold at the start.
pub(crate) fn set_up(accounts: u32) -> impl Iterator<Item = (RowId, i64)> {
    let of_account = |account| {
        [PLENTY, 0, 0].into_iter().zip(0..).map(move |(value, kind)| (row_of(account, kind), value))
    };
    (0..accounts).flat_map(of_account)
}

/// What is wrong with the accounts of a database: points are conserved, and none are held.
pub(crate) fn audit(accounts: u32, values: &[(RowId, i64)]) -> Vec<String> {
    let value = |row| values.iter().find(|(of, _)| *of == row).map_or(0, |(_, value)| *value);
    let mut wrong = Vec::new();
    for account in 0..accounts {
        let [free, held, spent] = [0, 1, 2].map(|kind| value(row_of(account, kind)));
        if free + held + spent != PLENTY || held != 0 {
            let at = format!("{free} free, {held} held, {spent} spent");
            wrong.push(format!("account {account} of points: {at}, of {PLENTY}"));
        }
    }
    wrong
}

fn row_of(account: u32, kind: u32) -> RowId {
    RowId(FIRST + 3 * account + kind)
}
