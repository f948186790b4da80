//! The locks that a branch holds: nearly always one or two, which take no memory of their own.
//!
//! Only their names: in which mode a row is held is in the lock table.

use std::mem;

use super::table::LockId;

#[derive(Clone, Debug, Default)]
pub(crate) enum HeldLocks {
    #[default]
    None,
    One(LockId),
    Two([LockId; 2]),
    /// Boxed, so that the rare case does not make every branch larger.
    Many(Box<ManyLocks>),
}

#[derive(Clone, Debug)]
pub(crate) struct ManyLocks(Vec<LockId>);

impl HeldLocks {
    pub(crate) fn as_slice(&self) -> &[LockId] {
        match self {
            Self::None => &[],
            Self::One(lock) => std::slice::from_ref(lock),
            Self::Two(locks) => locks,
            Self::Many(locks) => &locks.0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn push(&mut self, lock: LockId) {
        *self = match mem::take(self) {
            Self::None => Self::One(lock),
            Self::One(first) => Self::Two([first, lock]),
            Self::Two([first, second]) => {
                Self::Many(Box::new(ManyLocks(vec![first, second, lock])))
            }
            Self::Many(mut locks) => {
                locks.0.push(lock);
                Self::Many(locks)
            }
        };
    }
}
