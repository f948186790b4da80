//! Which operation of a branch may run, given what has happened to the branch before.
//!
//! Pure: the tables of the databases and the script of Redis only carry out what [`decide`] says.
//!
//! | | absent | tried | confirmed | cancelled | barred |
//! | --- | --- | --- | --- | --- | --- |
//! | try, action | run → tried | done | done | barred | barred |
//! | confirm | not tried | run → confirmed | done | contradicted | contradicted |
//! | cancel, compensation | empty → barred | run → cancelled | contradicted | done | empty |

use std::fmt;

/// An operation that a branch is asked to carry out.
///
/// A participant of two-phase commit prepares with `Try`, commits with `Confirm` and rolls back
/// with `Cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// TCC's first phase.
    Try,
    /// TCC's second phase after a commit. For a step of a saga: the saga has come to its end and
    /// the action will never be compensated.
    Confirm,
    /// TCC's second phase after a rollback.
    Cancel,
    /// A step of a saga.
    Action,
    /// The reversal of a step of a saga.
    Compensation,
}

/// The state of a branch on which an operation has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceState {
    /// Tried, or acted.
    Tried,
    /// Confirmed. Final.
    Confirmed,
    /// Cancelled, or compensated, after it was tried. Final.
    Cancelled,
    /// Cancelled, or compensated, before it was tried; a try that comes later is refused. Final.
    Barred,
}

/// The permission that an operation gets. In every case the caller commits and reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "only `Run` lets the operation do its work"]
pub enum Pass {
    /// Do the work, then commit: work and fence happen together.
    Run,
    /// The operation took effect before: there is no more to do.
    AlreadyDone,
    /// A cancel or compensation of what was never tried: there is nothing to undo, and the late try
    /// is barred once this is committed.
    Empty,
}

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceRefusal {
    /// A try after the cancel.
    Barred,
    /// A confirm before the try.
    NotTried,
    /// A confirm after the cancel or a cancel after the confirm.
    Contradicted,
}

/// The decision about one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may run.
    pub verdict: Result<Pass, FenceRefusal>,
    /// The state from then on; `None` if it does not change.
    pub next: Option<FenceState>,
}

/// Looks an operation up in the decision table. A state of `None` is that of a branch without a
/// fence.
#[must_use]
pub fn decide(state: Option<FenceState>, operation: Operation) -> Decision {
    use FenceState::{Barred, Cancelled, Confirmed, Tried};
    use Operation::{Action, Cancel, Compensation, Confirm, Try};
    match (operation, state) {
        (Try | Action, None) => advance(Pass::Run, Tried),
        (Try | Action, Some(Tried | Confirmed)) => keep(Ok(Pass::AlreadyDone)),
        (Try | Action, Some(Cancelled | Barred)) => keep(Err(FenceRefusal::Barred)),
        (Confirm, None) => keep(Err(FenceRefusal::NotTried)),
        (Confirm, Some(Tried)) => advance(Pass::Run, Confirmed),
        (Confirm, Some(Confirmed)) => keep(Ok(Pass::AlreadyDone)),
        (Confirm, Some(Cancelled | Barred)) => keep(Err(FenceRefusal::Contradicted)),
        (Cancel | Compensation, None) => advance(Pass::Empty, Barred),
        (Cancel | Compensation, Some(Tried)) => advance(Pass::Run, Cancelled),
        (Cancel | Compensation, Some(Confirmed)) => keep(Err(FenceRefusal::Contradicted)),
        (Cancel | Compensation, Some(Cancelled)) => keep(Ok(Pass::AlreadyDone)),
        (Cancel | Compensation, Some(Barred)) => keep(Ok(Pass::Empty)),
    }
}

fn advance(pass: Pass, next: FenceState) -> Decision {
    Decision { verdict: Ok(pass), next: Some(next) }
}

fn keep(verdict: Result<Pass, FenceRefusal>) -> Decision {
    Decision { verdict, next: None }
}

impl FenceState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Tried, Self::Confirmed, Self::Cancelled, Self::Barred];

    /// Returns the number that is stored for the state. It never changes.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Tried => 1,
            Self::Confirmed => 2,
            Self::Cancelled => 3,
            Self::Barred => 4,
        }
    }

    /// Returns the state that is stored as a number.
    #[must_use]
    pub fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// Returns whether no operation can change it any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Tried => false,
            Self::Confirmed | Self::Cancelled | Self::Barred => true,
        }
    }
}

impl Operation {
    /// Returns the state after this operation if it is the first of its branch; `None` if it must
    /// not be.
    #[must_use]
    pub fn first(self) -> Option<FenceState> {
        decide(None, self).next
    }

    /// Returns the one state that this operation changes, and the state that it changes it to.
    #[must_use]
    pub fn step(self) -> Option<(FenceState, FenceState)> {
        let to = |from| decide(Some(from), self).next.map(|to| (from, to));
        FenceState::ALL.into_iter().find_map(to)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Try => "try",
            Self::Confirm => "confirm",
            Self::Cancel => "cancel",
            Self::Action => "action",
            Self::Compensation => "compensation",
        })
    }
}

impl fmt::Display for FenceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tried => "tried",
            Self::Confirmed => "confirmed",
            Self::Cancelled => "cancelled",
            Self::Barred => "barred",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATIONS: [Operation; 5] = [
        Operation::Try,
        Operation::Confirm,
        Operation::Cancel,
        Operation::Action,
        Operation::Compensation,
    ];

    fn states() -> impl Iterator<Item = Option<FenceState>> {
        [None].into_iter().chain(FenceState::ALL.map(Some))
    }

    fn row(operation: Operation) -> String {
        let cell = |state| match decide(state, operation) {
            Decision { verdict: Ok(pass), next: Some(next) } => format!("{pass:?} -> {next}"),
            Decision { verdict: Ok(pass), next: None } => format!("{pass:?}"),
            Decision { verdict: Err(refusal), next: None } => format!("! {refusal:?}"),
            decision => unreachable!("{decision:?} refuses and changes"),
        };
        states().map(cell).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn the_whole_table() {
        let attempt = "Run -> tried | AlreadyDone | AlreadyDone | ! Barred | ! Barred";
        let undo = "Empty -> barred | Run -> cancelled | ! Contradicted | AlreadyDone | Empty";
        let confirm =
            "! NotTried | Run -> confirmed | AlreadyDone | ! Contradicted | ! Contradicted";
        let expected = [attempt, confirm, undo, attempt, undo];
        for (operation, expected) in OPERATIONS.into_iter().zip(expected) {
            assert_eq!(row(operation), expected, "{operation}");
        }
    }

    #[test]
    fn a_repeated_operation_passes_without_effect() {
        for (operation, state) in OPERATIONS.into_iter().flat_map(|o| states().map(move |s| (o, s)))
        {
            let first = decide(state, operation);
            let again = decide(first.next.or(state), operation);
            assert_eq!(again.next, None, "{operation} twice, first in {state:?}");
            assert_eq!(again.verdict.is_ok(), first.verdict.is_ok());
            assert_ne!(again.verdict, Ok(Pass::Run));
        }
    }

    #[test]
    fn a_final_state_stays() {
        for state in FenceState::ALL.into_iter().filter(|state| state.is_final()) {
            for operation in OPERATIONS {
                assert_eq!(decide(Some(state), operation).next, None, "{operation} in {state}");
            }
        }
    }

    #[test]
    fn an_operation_has_one_step_at_most() {
        for operation in OPERATIONS {
            let steps =
                FenceState::ALL.into_iter().filter(|s| decide(Some(*s), operation).next.is_some());
            assert!(steps.count() <= 1, "{operation}");
        }
    }

    #[test]
    fn numbers_are_read_back() {
        assert_eq!(FenceState::ALL.map(FenceState::number), [1, 2, 3, 4]);
        for state in FenceState::ALL {
            assert_eq!(FenceState::from_number(state.number()), Some(state));
        }
        assert_eq!((FenceState::from_number(0), FenceState::from_number(5)), (None, None));
    }
}
