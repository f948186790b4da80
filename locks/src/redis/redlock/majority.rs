//! The common answer of several nodes about leases that were renewed and a lock that was released,
//! as far as the nodes that did not answer cannot change it.
//!
//! Pure: it knows no connection and no clock.

use super::super::node::ScriptReply;
use super::super::observed;
use crate::backend::ReleaseResponse;

/// How many of the nodes decide, and how many have not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Majority {
    /// The size of a majority.
    pub(super) quorum: usize,
    /// How many nodes have not answered: they may have done all the same what was asked of them.
    pub(super) failed: usize,
}

impl Majority {
    /// Returns for each lease whether a majority has it, from how many nodes have said so. None if
    /// the nodes that failed decide about one of them.
    pub(super) fn are_held(self, counts: &[usize]) -> Option<Vec<bool>> {
        counts.iter().map(|count| self.has(*count)).collect()
    }

    /// Returns whether a majority has freed the lock. None if the nodes that failed decide that.
    pub(super) fn left(self, rows: &[ScriptReply]) -> Option<ReleaseResponse> {
        if self.has(rows.iter().filter(|row| row.0 > 0).count())? {
            return Some(ReleaseResponse::Released);
        }
        let others = rows.iter().filter(|row| row.0 == 0 && !row.1.is_empty());
        let most = others.max_by_key(|row| rows.iter().filter(|it| it.1 == row.1).count());
        let current = most.and_then(|row| observed(row.clone()).holder());
        Some(ReleaseResponse::NotHeld { current })
    }

    fn has(self, count: usize) -> Option<bool> {
        if count >= self.quorum {
            return Some(true);
        }
        (count + self.failed < self.quorum).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREED: i64 = 1;
    const OTHERS: i64 = 0;

    fn of_five(failed: usize) -> Majority {
        Majority { quorum: 3, failed }
    }

    fn left(freed: &[i64], failed: usize) -> Option<ReleaseResponse> {
        let row = |freed: &i64| (*freed, String::new(), String::new(), 0, 0, 0);
        of_five(failed).left(&freed.iter().map(row).collect::<Vec<_>>())
    }

    /// Regression: a lock that two of five nodes had, and one that failed, was reported as lost,
    /// though that node may have been the third to have it.
    #[test]
    fn renewal_that_failed_nodes_decide_is_unknown() {
        assert_eq!(of_five(1).are_held(&[3, 1, 0]), Some(vec![true, false, false]));
        assert_eq!(of_five(1).are_held(&[3, 2, 0]), None);
        assert_eq!(of_five(2).are_held(&[3, 1]), None);
        assert_eq!(of_five(2).are_held(&[3, 0]), Some(vec![true, false]));
        assert_eq!(of_five(0).are_held(&[2]), Some(vec![false]));
    }

    #[test]
    fn release_that_failed_nodes_decide_is_unknown() {
        let not_held = Some(ReleaseResponse::NotHeld { current: None });
        assert_eq!(left(&[FREED, FREED, FREED], 2), Some(ReleaseResponse::Released));
        assert_eq!(left(&[FREED, FREED, OTHERS, OTHERS], 1), None);
        assert_eq!(left(&[FREED, OTHERS, OTHERS, OTHERS], 1), not_held);
        assert_eq!(left(&[FREED, FREED, OTHERS, OTHERS, OTHERS], 0), not_held);
        assert_eq!(left(&[OTHERS, OTHERS, OTHERS], 2), not_held);
        assert_eq!(left(&[FREED, OTHERS, OTHERS], 2), None);
    }

    #[test]
    fn holder_that_most_nodes_name_is_reported() {
        let row = |owner: &str| (0, owner.to_owned(), "a label".to_owned(), 100, 0, 0);
        let one = "00000000000000000000000000000001.1";
        let other = "00000000000000000000000000000002.1";
        let answer = of_five(0).left(&[row(one), row(other), row(other), row(""), row("")]);
        let Some(ReleaseResponse::NotHeld { current: Some(holder) }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(holder.id.to_string(), other);
    }
}
