//! Chooses which of the events that were found are claimed.

use std::collections::BTreeSet;

/// Returns the numbers of the candidates to claim: of each key those that are locked, up to the
/// first that is not. A candidate is the number and the key of an event.
#[must_use]
pub fn in_order(candidates: &[(i64, i64)], is_locked: impl Fn(i64) -> bool) -> Vec<i64> {
    let mut blocked = BTreeSet::new();
    let mut taken = Vec::new();
    for (seq, key) in candidates {
        if blocked.contains(key) {
            continue;
        }
        if is_locked(*seq) {
            taken.push(*seq);
        } else {
            blocked.insert(*key);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_up_to_an_event_locked_elsewhere() {
        let candidates = [(1, 7), (2, 8), (3, 7), (4, 8), (5, 7), (6, 9)];
        assert_eq!(in_order(&candidates, |seq| seq != 3), [1, 2, 4, 6]);
        assert_eq!(in_order(&candidates, |seq| seq != 1), [2, 4, 6]);
        assert_eq!(in_order(&candidates, |_| false), Vec::<i64>::new());
    }
}
