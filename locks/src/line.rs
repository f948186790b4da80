//! Whose turn it is among those who stand in line for a lock: for backends that keep one entry for
//! each who holds or waits, in the order in which they came.
//!
//! Whoever has nobody in front with whom he cannot share holds the lock, so that a place in line is
//! all there is to know. Pure: how lines are kept, and how one hears that they move, is the
//! backends' business.

use crate::backend::Share;

/// What one who stands in line may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Hold.
    Now,
    /// Wait for that one of those in front to go, or to become a reader.
    Behind(usize),
    /// Wait for any of those in front to go: all parts are taken.
    Full,
}

/// The turn of one who wants that much, behind those who want so much each.
pub(crate) fn turn(ahead: &[Share], share: Share) -> Turn {
    let is_apart = |other: &Share| *other != share || share == Share::All;
    match (ahead.iter().rposition(is_apart), share) {
        (Some(at), _) => Turn::Behind(at),
        (None, Share::One { of }) if ahead.len() >= usize::try_from(of).unwrap_or(usize::MAX) => {
            Turn::Full
        }
        (None, Share::All | Share::One { .. }) => Turn::Now,
    }
}

/// Of how many parts the lock is for those who hold it, if that is another number.
pub(crate) fn other_parts(first: Option<Share>, share: Share) -> Option<u32> {
    match (first, share) {
        (Some(Share::One { of: held }), Share::One { of }) if held != of => Some(held),
        (Some(Share::One { .. } | Share::All) | None, Share::One { .. } | Share::All) => None,
    }
}

/// A share as a number: 0 is all.
pub(crate) const fn parts(share: Share) -> u32 {
    match share {
        Share::All => 0,
        Share::One { of } => of,
    }
}

/// What [`parts`] made a number of.
pub(crate) const fn share(parts: u32) -> Share {
    match parts {
        0 => Share::All,
        of => Share::One { of },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Share = Share::All;
    const READ: Share = Share::READ;
    const OF_2: Share = Share::One { of: 2 };
    const OF_3: Share = Share::One { of: 3 };

    #[test]
    fn whoever_cannot_share_waits_for_the_last_in_front() {
        assert_eq!(turn(&[], ALL), Turn::Now);
        assert_eq!(turn(&[ALL], ALL), Turn::Behind(0));
        assert_eq!(turn(&[READ, READ], ALL), Turn::Behind(1));
        assert_eq!(turn(&[ALL, READ], READ), Turn::Behind(0));
        assert_eq!(turn(&[READ, ALL, READ], READ), Turn::Behind(1));
        assert_eq!(turn(&[READ, READ], READ), Turn::Now);
    }

    #[test]
    fn as_many_hold_parts_as_there_are() {
        assert_eq!(turn(&[OF_2], OF_2), Turn::Now);
        assert_eq!(turn(&[OF_2, OF_2], OF_2), Turn::Full);
        assert_eq!(turn(&[OF_2, OF_3], OF_2), Turn::Behind(1));
    }

    #[test]
    fn parts_of_another_size_are_told() {
        assert_eq!(other_parts(Some(OF_2), OF_3), Some(2));
        for (first, share) in
            [(Some(OF_2), OF_2), (Some(OF_2), ALL), (Some(ALL), OF_2), (None, OF_2)]
        {
            assert_eq!(other_parts(first, share), None);
        }
    }

    #[test]
    fn shares_are_numbers_and_back() {
        for (number, meant) in [(0, ALL), (2, OF_2), (u32::MAX, READ)] {
            assert_eq!((share(number), parts(meant)), (meant, number));
        }
    }
}
