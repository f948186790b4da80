//! The fence: each operation of a branch takes effect once, whatever is called twice, too late or
//! in the wrong order.
//!
//! Branches of TCC, steps of sagas and participants of two-phase commit are made of operations that
//! the coordinator, or another caller that retries, may call again: a reply gets lost, a process
//! dies, a cancel overtakes the try that it belongs to. One row of `branch_fence` per branch keeps
//! what has happened; it is written in the local transaction that does the work, so that both
//! happen or none. The module head of `table` says why that neither blocks nor dead-locks.
//!
//! | to | use |
//! | --- | --- |
//! | run an operation in a local transaction of its own | [`Fence::run`] |
//! | fence a local transaction that the caller began | [`Fence::enter`] |
//! | fence work whose data is in Redis | `FencedScript`, with the feature `redis` |
//! | remove the rows of finished branches | [`purge`] |
//!
//! The fence does not know globals or the coordinator. A branch is only a name to it.

mod error;
pub(crate) mod lent;
mod local;
mod purge;
#[cfg(feature = "redis")]
mod script;
pub(crate) mod table;
pub(crate) mod tried;

use std::fmt;
use std::sync::Arc;

use handfast_rm_core::fence::decide;
pub use handfast_rm_core::fence::{FenceState, Operation, Pass};

pub use self::error::FenceError;
pub(crate) use self::error::is_conflict;
pub use self::purge::purge;
#[cfg(feature = "redis")]
pub use self::script::{FencedCall, FencedScript};
use crate::xid::Xid;

/// The longest name of an action, in characters.
const ACTION_CHARS_MAX: usize = 128;

/// The fence of one branch.
///
/// ```
/// use handfast::Xid;
/// use handfast::fence::Fence;
///
/// let xid: Xid = "127.0.0.1:7091:42".parse()?;
/// let fence = Fence::new(&xid, 7, "debit-points")?;
/// assert_eq!(fence.to_string(), "branch 7 (debit-points) of xid 127.0.0.1:7091:42");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    xid: Xid,
    branch: i64,
    action: Arc<str>,
}

/// How a fenced operation ended. All three are success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced<T> {
    /// The work was done, with this result.
    Ran(T),
    /// The work had been done before.
    AlreadyDone,
    /// The branch of this cancel or compensation was never tried, so there was nothing to undo.
    Empty,
}

impl Fence {
    /// Names the fence: a branch of a global, and its action, which is shown to operators.
    ///
    /// # Errors
    /// [`FenceError::Name`] if the branch id has more than 63 bits or the action more than 128
    /// characters.
    pub fn new(xid: &Xid, branch: u64, action: &str) -> Result<Self, FenceError> {
        let Ok(branch) = i64::try_from(branch) else {
            return Err(FenceError::Name { reason: format!("branch {branch} has 64 bits") });
        };
        check_action(action)?;
        Ok(Self { xid: xid.clone(), branch, action: Arc::from(action) })
    }

    pub(crate) fn xid(&self) -> &Xid {
        &self.xid
    }

    /// Decides about an operation, given the state in which the branch was found.
    fn pass(&self, found: Option<FenceState>, operation: Operation) -> Result<Pass, FenceError> {
        let verdict = decide(found, operation).verdict;
        verdict.map_err(|refusal| FenceError::refused(refusal, self, operation, found))
    }
}

/// Checks that an action's name fits the table.
///
/// # Errors
/// [`FenceError::Name`] if it is too long.
pub(crate) fn check_action(name: &str) -> Result<(), FenceError> {
    let chars = name.chars().count();
    if chars > ACTION_CHARS_MAX {
        let reason = format!("action of {chars} characters: at most {ACTION_CHARS_MAX}");
        return Err(FenceError::Name { reason });
    }
    Ok(())
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "branch {} ({}) of xid {}", self.branch, self.action, self.xid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_column_holds_are_refused() {
        let xid = Xid::new("a:1").unwrap();
        let code = |branch, action: &str| {
            Fence::new(&xid, branch, action).map_err(|error| error.code().to_owned()).map(drop)
        };
        assert_eq!(code(u64::MAX >> 1, &"ä".repeat(128)), Ok(()));
        assert_eq!(code(1 << 63, "a"), Err("HF-FENCE-NAME".to_owned()));
        assert_eq!(code(1, &"a".repeat(129)), Err("HF-FENCE-NAME".to_owned()));
    }
}
