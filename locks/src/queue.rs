//! Decides whose turn it is in the queue of a lock, for backends that keep one entry for each
//! holder and waiter, in the order of arrival.
//!
//! An entry holds the lock if it can share it with all entries ahead of it, so the position in the
//! queue is all the state there is. Pure: each backend keeps the queue and hears of changes in its
//! own way.

use crate::backend::LockMode;

/// The decision on an entry of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Hold the lock.
    Now,
    /// Wait for the entry at this index to go, or to become a reader.
    Behind(usize),
    /// Wait for any of the entries ahead to go: all permits are taken.
    Full,
}

/// Returns the turn of an entry of this mode behind entries of the modes `ahead`.
pub(crate) fn turn(ahead: &[LockMode], mode: LockMode) -> Turn {
    let is_apart = |other: &LockMode| *other != mode || mode == LockMode::Exclusive;
    // The entry waits behind the last one that is apart: if all waited for the first, its release
    // would wake all.
    match (ahead.iter().rposition(is_apart), mode) {
        (Some(at), _) => Turn::Behind(at),
        (None, LockMode::Shared { permits })
            if ahead.len() >= usize::try_from(permits).unwrap_or(usize::MAX) =>
        {
            Turn::Full
        }
        (None, LockMode::Exclusive | LockMode::Shared { .. }) => Turn::Now,
    }
}

/// Returns the number of permits of the first holder, if it is another one than a shared `mode`
/// has.
pub(crate) fn conflicting_permits(first: Option<LockMode>, mode: LockMode) -> Option<u32> {
    match (first, mode) {
        (Some(LockMode::Shared { permits: held }), LockMode::Shared { permits })
            if held != permits =>
        {
            Some(held)
        }
        (
            Some(LockMode::Shared { .. } | LockMode::Exclusive) | None,
            LockMode::Shared { .. } | LockMode::Exclusive,
        ) => None,
    }
}

/// Encodes a mode as a number: 0 is exclusive.
pub(crate) const fn mode_to_number(mode: LockMode) -> u32 {
    match mode {
        LockMode::Exclusive => 0,
        LockMode::Shared { permits } => permits,
    }
}

/// Decodes the number that [`mode_to_number`] made.
pub(crate) const fn mode_from_number(number: u32) -> LockMode {
    match number {
        0 => LockMode::Exclusive,
        permits => LockMode::Shared { permits },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: LockMode = LockMode::Exclusive;
    const READ: LockMode = LockMode::READ;
    const OF_2: LockMode = LockMode::Shared { permits: 2 };
    const OF_3: LockMode = LockMode::Shared { permits: 3 };

    #[test]
    fn entry_waits_for_the_last_one_it_cannot_share_with() {
        assert_eq!(turn(&[], ALL), Turn::Now);
        assert_eq!(turn(&[ALL], ALL), Turn::Behind(0));
        assert_eq!(turn(&[READ, READ], ALL), Turn::Behind(1));
        assert_eq!(turn(&[ALL, READ], READ), Turn::Behind(0));
        assert_eq!(turn(&[READ, ALL, READ], READ), Turn::Behind(1));
        assert_eq!(turn(&[READ, READ], READ), Turn::Now);
    }

    #[test]
    fn as_many_hold_permits_as_exist() {
        assert_eq!(turn(&[OF_2], OF_2), Turn::Now);
        assert_eq!(turn(&[OF_2, OF_2], OF_2), Turn::Full);
        assert_eq!(turn(&[OF_2, OF_3], OF_2), Turn::Behind(1));
    }

    #[test]
    fn other_number_of_permits_is_reported() {
        assert_eq!(conflicting_permits(Some(OF_2), OF_3), Some(2));
        for (first, mode) in
            [(Some(OF_2), OF_2), (Some(OF_2), ALL), (Some(ALL), OF_2), (None, OF_2)]
        {
            assert_eq!(conflicting_permits(first, mode), None);
        }
    }

    #[test]
    fn mode_round_trips_through_its_number() {
        for (number, meant) in [(0, ALL), (2, OF_2), (u32::MAX, READ)] {
            assert_eq!((mode_from_number(number), mode_to_number(meant)), (meant, number));
        }
    }
}
