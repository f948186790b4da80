//! The decision table of the documentation, implemented a second time.

use std::fmt;

use handfast::fence::{FenceError, Fenced, Operation};

pub(crate) const OPERATIONS: [Operation; 5] = [
    Operation::Try,
    Operation::Confirm,
    Operation::Cancel,
    Operation::Action,
    Operation::Compensation,
];

/// The state of a branch, and the operations that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Absent,
    Tried,
    Confirmed,
    Cancelled,
    Barred,
}

pub(crate) const STANDINGS: [Standing; 5] =
    [Standing::Absent, Standing::Tried, Standing::Confirmed, Standing::Cancelled, Standing::Barred];

impl Standing {
    pub(crate) fn way(self) -> &'static [Operation] {
        match self {
            Self::Absent => &[],
            Self::Tried => &[Operation::Try],
            Self::Confirmed => &[Operation::Try, Operation::Confirm],
            Self::Cancelled => &[Operation::Try, Operation::Cancel],
            Self::Barred => &[Operation::Cancel],
        }
    }
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Ran,
    AlreadyDone,
    Empty,
    /// The work failed, as the test wanted.
    Failed,
    /// The fence refused the operation with this stable code.
    Refused(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran => f.write_str("ran"),
            Self::AlreadyDone => f.write_str("already done"),
            Self::Empty => f.write_str("empty"),
            Self::Failed => f.write_str("failed"),
            Self::Refused(code) => f.write_str(code),
        }
    }
}

impl<T> From<Result<Fenced<T>, Failure>> for Ended {
    fn from(result: Result<Fenced<T>, Failure>) -> Self {
        match result {
            Ok(Fenced::Ran(_)) => Self::Ran,
            Ok(Fenced::AlreadyDone) => Self::AlreadyDone,
            Ok(Fenced::Empty) => Self::Empty,
            Err(Failure::OnPurpose) => Self::Failed,
            Err(Failure::Work(error)) => Self::Refused(format!("work: {error:?}")),
            Err(Failure::Fence(error)) => Self::Refused(error.code().to_owned()),
        }
    }
}

/// The error of an operation.
#[derive(Debug)]
pub(crate) enum Failure {
    OnPurpose,
    /// The work failed with this error.
    Work(FenceError),
    Fence(FenceError),
}

impl From<FenceError> for Failure {
    fn from(error: FenceError) -> Self {
        Self::Fence(error)
    }
}

/// An operation, and whether its work fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) fails: bool,
}

impl Call {
    pub(crate) fn of(operation: Operation) -> Self {
        Self { operation, fails: false }
    }
}

/// Returns the result of a call, and the state of the branch after it.
pub(crate) fn expected(standing: Standing, call: Call) -> (Ended, Standing) {
    use Operation::{Action, Cancel, Compensation, Confirm, Try};
    use Standing::{Absent, Barred, Cancelled, Confirmed, Tried};
    let refused = |code: &str| (Ended::Refused(code.to_owned()), standing);
    let runs = |next| if call.fails { (Ended::Failed, standing) } else { (Ended::Ran, next) };
    match (call.operation, standing) {
        (Try | Action, Absent) => runs(Tried),
        (Try | Action, Tried | Confirmed) => (Ended::AlreadyDone, standing),
        (Try | Action, Cancelled | Barred) => refused("HF-FENCE-BARRED"),
        (Confirm, Absent) => refused("HF-FENCE-NOT-TRIED"),
        (Confirm, Tried) => runs(Confirmed),
        (Confirm, Confirmed) => (Ended::AlreadyDone, standing),
        (Confirm, Cancelled | Barred) => refused("HF-FENCE-CONTRADICTED"),
        (Cancel | Compensation, Absent) => (Ended::Empty, Barred),
        (Cancel | Compensation, Tried) => runs(Cancelled),
        (Cancel | Compensation, Confirmed) => refused("HF-FENCE-CONTRADICTED"),
        (Cancel | Compensation, Cancelled) => (Ended::AlreadyDone, standing),
        (Cancel | Compensation, Barred) => (Ended::Empty, standing),
    }
}

/// Returns the effects of calls with these results, sorted.
pub(crate) fn effects<'a>(ended: impl IntoIterator<Item = (Call, &'a Ended)>) -> Vec<String> {
    let ran = ended.into_iter().filter(|(_, ended)| **ended == Ended::Ran);
    let mut effects: Vec<String> = ran.map(|(call, _)| call.operation.to_string()).collect();
    effects.sort();
    effects
}
