//! What the answers of several nodes to one request for a lock amount to.
//!
//! Pure: it knows no connection and no clock.

use super::super::node::{Agreed, Row};
use crate::backend::Place;

/// What is to be done about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Held, with this fence, which a majority has written down.
    Granted(i64),
    /// A majority is to write down what it has agreed on.
    Agree(Agreed),
    /// Nobody has a majority, and nobody else is nearer to one: ask once more.
    Insist,
    /// Let go what was granted, and ask once more.
    Yield(Agreed),
    /// Somebody else's.
    Busy(Row),
}

/// The answers of one round.
#[derive(Debug)]
pub(super) struct Votes<'v> {
    pub(super) rows: &'v [Row],
    /// How many make a majority.
    pub(super) quorum: usize,
    /// Who asks, and what was agreed on before this round.
    pub(super) token: &'v str,
    pub(super) place: Place,
    pub(super) agreed: Agreed,
}

impl Votes<'_> {
    /// Whether further answers would change nothing.
    pub(super) fn are_enough(&self) -> bool {
        let fence = self.agreed.fence;
        if self.granted().filter(|row| fence.is_none_or(|fence| fence == row.0)).count()
            >= self.quorum
        {
            return true;
        }
        // Whoever joins the queue does so on every node.
        let (_, most) = self.leader();
        self.place != Place::Join && self.granted().next().is_none() && most >= self.quorum
    }

    pub(super) fn verdict(&self) -> Verdict {
        let granted = self.granted().count();
        if granted >= self.quorum {
            return self.fence();
        }
        if granted == 0 {
            let agreed = self.queued();
            let differs = self.rows.iter().any(|row| Some(row.5) != agreed.arrival && row.5 > 0);
            let is_new = agreed != self.agreed;
            return if differs && is_new { Verdict::Agree(agreed) } else { self.busy() };
        }
        // A node whose lock is free for somebody who waits longer: it is his turn on all nodes.
        let is_anothers_turn = self.rows.iter().any(|row| row.0 == 0 && row.1.is_empty());
        if is_anothers_turn || self.leader().0 != self.token {
            return Verdict::Yield(self.queued());
        }
        Verdict::Insist
    }

    /// The fence of an acquisition is the largest of its nodes' counters. What was agreed on before
    /// stays, so that asking twice is answered alike, whichever nodes answer.
    fn fence(&self) -> Verdict {
        let agreed = self.granted().filter(|row| row.5 == 1).map(|row| row.0).max();
        let fence = agreed.or_else(|| self.granted().map(|row| row.0).max()).unwrap_or_default();
        let written = self.granted().filter(|row| row.5 == 1 && row.0 == fence).count();
        if written >= self.quorum {
            return Verdict::Granted(fence);
        }
        Verdict::Agree(Agreed { fence: Some(fence), arrival: self.agreed.arrival })
    }

    /// The earliest time of arrival counts: a node that comes back knows only a later one.
    fn queued(&self) -> Agreed {
        let arrivals = self.rows.iter().filter(|row| row.0 == 0 && row.5 > 0).map(|row| row.5);
        Agreed { fence: None, arrival: arrivals.chain(self.agreed.arrival).min() }
    }

    /// What most nodes see: who holds it, until when at the latest, and how many wait longer on a
    /// majority of them.
    fn busy(&self) -> Verdict {
        let (leader, _) = self.leader();
        let of_leader = self.rows.iter().filter(|row| row.1 == leader);
        let Some(mut row) = of_leader.max_by_key(|row| row.3).cloned() else {
            unreachable!("a verdict is on a majority of answers")
        };
        let mut ahead: Vec<i64> = self.rows.iter().map(|row| row.4).collect();
        ahead.sort_unstable();
        row.4 = ahead.get(self.quorum - 1).copied().unwrap_or_default();
        Verdict::Busy(row)
    }

    /// Who has the most nodes, the smaller token at a tie, and how many; the empty token if the
    /// lock is free everywhere.
    fn leader(&self) -> (&str, usize) {
        let count = |of: &str| self.rows.iter().filter(|row| self.owner(row) == of).count();
        let owners = self.rows.iter().map(|row| self.owner(row)).filter(|owner| !owner.is_empty());
        let owners = owners.map(|owner| (count(owner), std::cmp::Reverse(owner)));
        owners.max().map_or(("", 0), |(count, owner)| (owner.0, count))
    }

    fn owner<'a>(&'a self, row: &'a Row) -> &'a str {
        if row.0 > 0 { self.token } else { &row.1 }
    }

    fn granted(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.0 > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(fence: i64, is_agreed: i64) -> Row {
        (fence, String::new(), String::new(), 0, 0, is_agreed)
    }

    fn busy(owner: &str, ahead: i64, arrival: i64) -> Row {
        (0, owner.to_owned(), String::new(), 100, ahead, arrival)
    }

    fn verdict(rows: &[Row], agreed: Agreed) -> Verdict {
        Votes { rows, quorum: 3, token: "me", place: Place::Join, agreed }.verdict()
    }

    fn with(fence: Option<i64>, arrival: Option<i64>) -> Agreed {
        Agreed { fence, arrival }
    }

    #[test]
    fn a_fence_counts_when_a_majority_has_written_it_down() {
        let first = [granted(5, 0), granted(9, 0), granted(7, 0)];
        assert_eq!(verdict(&first, with(None, None)), Verdict::Agree(with(Some(9), None)));
        let two = [granted(9, 1), granted(9, 1), granted(12, 0)];
        assert_eq!(verdict(&two, with(Some(9), None)), Verdict::Agree(with(Some(9), None)));
        let three = [granted(9, 1), granted(9, 1), granted(12, 0), granted(9, 1)];
        assert_eq!(verdict(&three, with(None, None)), Verdict::Granted(9));
    }

    #[test]
    fn of_split_votes_the_leader_insists_and_the_others_yield() {
        let mine = [granted(1, 0), granted(1, 0), busy("other", 0, 0), busy("other", 0, 0)];
        assert_eq!(verdict(&mine, with(None, None)), Verdict::Insist);
        let fewer = [granted(1, 0), busy("zzz", 0, 7), busy("zzz", 0, 8)];
        assert_eq!(verdict(&fewer, with(None, None)), Verdict::Yield(with(None, Some(7))));
        let tie = [granted(1, 0), busy("a", 0, 0)];
        assert_eq!(verdict(&tie, with(None, None)), Verdict::Yield(with(None, None)));
        let turn = [granted(1, 0), granted(1, 0), busy("", 1, 0)];
        assert_eq!(verdict(&turn, with(None, None)), Verdict::Yield(with(None, None)));
    }

    #[test]
    fn a_place_in_the_queue_is_the_same_on_every_node() {
        let rows = [busy("other", 1, 30), busy("other", 0, 20), busy("other", 0, 40)];
        let agreed = with(None, Some(20));
        assert_eq!(verdict(&rows, with(None, None)), Verdict::Agree(agreed));
        // Once is enough: a node that does not take it over stays as it is.
        assert!(matches!(verdict(&rows, agreed), Verdict::Busy(_)));
        let same = [busy("other", 0, 20), busy("other", 0, 20), busy("other", 0, 20)];
        let Verdict::Busy(row) = verdict(&same, with(None, None)) else {
            panic!("nothing is to be agreed on");
        };
        assert_eq!((row.1.as_str(), row.4), ("other", 0));
    }
}
