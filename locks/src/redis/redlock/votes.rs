//! The result of the answers of several nodes to one request for a lock.
//!
//! Pure: it knows no connection and no clock.

use super::super::node::{Agreement, ScriptReply};
use crate::backend::QueueMode;

/// The next step of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VoteResult {
    /// Held, with this fencing token, which a majority has stored.
    Granted(i64),
    /// A majority must store what it has agreed on.
    Agree(Agreement),
    /// No acquisition has a majority, and none is nearer to one: repeat the request.
    Insist,
    /// Release what was granted, and repeat the request.
    Yield(Agreement),
    /// Another acquisition has the lock.
    Busy(ScriptReply),
}

/// The answers of one round.
#[derive(Debug)]
pub(super) struct Votes<'v> {
    pub(super) rows: &'v [ScriptReply],
    /// The size of a majority.
    pub(super) quorum: usize,
    /// The acquisition, and what was agreed on before this round.
    pub(super) id: &'v str,
    pub(super) queue: QueueMode,
    pub(super) agreed: Agreement,
}

impl Votes<'_> {
    /// Returns whether further answers would change nothing.
    pub(super) fn are_enough(&self) -> bool {
        // A node that grants the lock only in the second round has not stored the agreed token.
        let fencing_token = self.agreed.fencing_token;
        if self
            .granted()
            .filter(|row| fencing_token.is_none_or(|fencing_token| fencing_token == row.0))
            .count()
            >= self.quorum
        {
            return true;
        }
        // A request that joins the queue must join it on every node.
        self.queue != QueueMode::Join && self.is_held_by_another()
    }

    pub(super) fn result(&self) -> VoteResult {
        let granted = self.granted().count();
        if granted >= self.quorum {
            return self.fencing_token();
        }
        // A request that waits keeps the nodes of a minority: it will need them.
        if granted == 0 || self.is_held_by_another() {
            let agreed = self.queued();
            let waits = self.rows.iter().filter(|row| row.0 == 0 && row.5 > 0);
            let differs = waits.map(|row| row.5).any(|arrival| Some(arrival) != agreed.arrival);
            // One round is enough: a node that does not take a time of arrival over would cause
            // another one each time.
            let is_new = agreed != self.agreed;
            return if differs && is_new { VoteResult::Agree(agreed) } else { self.busy() };
        }
        // A node has the lock free for another waiter that has waited longer: it is that waiter's
        // turn on all nodes.
        let is_anothers_turn = self.rows.iter().any(|row| row.0 == 0 && row.1.is_empty());
        // Contenders that see the same votes find the same leader: one of them insists, and all
        // others make room.
        if is_anothers_turn || self.leader().0 != self.id {
            return VoteResult::Yield(self.queued());
        }
        VoteResult::Insist
    }

    /// Decides the fencing token, the largest of the counters of the nodes. What was agreed on
    /// before stays, so that a repeated request is answered alike, whichever nodes answer.
    fn fencing_token(&self) -> VoteResult {
        let agreed = self.granted().filter(|row| row.5 == 1).map(|row| row.0).max();
        // The largest counter is above every earlier token: a majority has stored each of those,
        // and two majorities have a node in common.
        let fencing_token =
            agreed.or_else(|| self.granted().map(|row| row.0).max()).unwrap_or_default();
        let written = self.granted().filter(|row| row.5 == 1 && row.0 == fencing_token).count();
        if written >= self.quorum {
            return VoteResult::Granted(fencing_token);
        }
        VoteResult::Agree(Agreement {
            fencing_token: Some(fencing_token),
            arrival: self.agreed.arrival,
        })
    }

    /// Decides the time of arrival. The earliest counts: a node that comes back knows only a later
    /// one.
    fn queued(&self) -> Agreement {
        let arrivals = self.rows.iter().filter(|row| row.0 == 0 && row.5 > 0).map(|row| row.5);
        Agreement { fencing_token: None, arrival: arrivals.chain(self.agreed.arrival).min() }
    }

    /// Reports what most nodes see: the holder or that there is none, the latest end of its lease,
    /// and how many have waited longer on a majority of them.
    fn busy(&self) -> VoteResult {
        let (seen, _) = self.most_seen(|_| true);
        let of_seen = self.rows.iter().filter(|row| row.1 == seen);
        let Some(mut row) = of_seen.max_by_key(|row| row.3).cloned() else {
            unreachable!("a result needs a majority of answers")
        };
        let mut ahead: Vec<i64> = self.rows.iter().map(|row| row.4).collect();
        ahead.sort_unstable();
        row.4 = ahead.get(self.quorum - 1).copied().unwrap_or_default();
        VoteResult::Busy(row)
    }

    /// Returns the acquisition with the most nodes (the smaller id at a tie) and their number. The
    /// id is empty if the lock is free everywhere.
    fn leader(&self) -> (&str, usize) {
        self.most_seen(|owner| !owner.is_empty())
    }

    fn is_held_by_another(&self) -> bool {
        let (leader, nodes) = self.leader();
        leader != self.id && nodes >= self.quorum
    }

    /// Returns which of these owners most nodes name (the smallest at a tie), and their number.
    fn most_seen(&self, counts: impl Fn(&str) -> bool) -> (&str, usize) {
        let count = |of: &str| self.rows.iter().filter(|row| self.owner(row) == of).count();
        let owners = self.rows.iter().map(|row| self.owner(row)).filter(|owner| counts(owner));
        let owners = owners.map(|owner| (count(owner), std::cmp::Reverse(owner)));
        owners.max().map_or(("", 0), |(count, owner)| (owner.0, count))
    }

    fn owner<'a>(&'a self, row: &'a ScriptReply) -> &'a str {
        if row.0 > 0 { self.id } else { &row.1 }
    }

    fn granted(&self) -> impl Iterator<Item = &ScriptReply> {
        self.rows.iter().filter(|row| row.0 > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(fencing_token: i64, is_agreed: i64) -> ScriptReply {
        (fencing_token, String::new(), String::new(), 0, 0, is_agreed)
    }

    fn busy(owner: &str, ahead: i64, arrival: i64) -> ScriptReply {
        (0, owner.to_owned(), String::new(), 100, ahead, arrival)
    }

    fn result(rows: &[ScriptReply], agreed: Agreement) -> VoteResult {
        Votes { rows, quorum: 3, id: "me", queue: QueueMode::Join, agreed }.result()
    }

    fn with(fencing_token: Option<i64>, arrival: Option<i64>) -> Agreement {
        Agreement { fencing_token, arrival }
    }

    #[test]
    fn token_counts_once_a_majority_has_stored_it() {
        let first = [granted(5, 0), granted(9, 0), granted(7, 0)];
        assert_eq!(result(&first, with(None, None)), VoteResult::Agree(with(Some(9), None)));
        let two = [granted(9, 1), granted(9, 1), granted(12, 0)];
        assert_eq!(result(&two, with(Some(9), None)), VoteResult::Agree(with(Some(9), None)));
        let three = [granted(9, 1), granted(9, 1), granted(12, 0), granted(9, 1)];
        assert_eq!(result(&three, with(None, None)), VoteResult::Granted(9));
    }

    #[test]
    fn split_vote_leader_insists_and_others_yield() {
        let mine = [granted(1, 0), granted(1, 0), busy("other", 0, 0), busy("other", 0, 0)];
        assert_eq!(result(&mine, with(None, None)), VoteResult::Insist);
        let fewer = [granted(1, 0), busy("zzz", 0, 7), busy("zzz", 0, 8)];
        assert_eq!(result(&fewer, with(None, None)), VoteResult::Yield(with(None, Some(7))));
        let tie = [granted(1, 0), busy("a", 0, 0)];
        assert_eq!(result(&tie, with(None, None)), VoteResult::Yield(with(None, None)));
        let turn = [granted(1, 0), granted(1, 0), busy("", 1, 0)];
        assert_eq!(result(&turn, with(None, None)), VoteResult::Yield(with(None, None)));
    }

    /// The release of a lock has reached a majority, which is enough for it to be free.
    #[test]
    fn holder_that_a_minority_still_names_is_not_reported() {
        let votes = |rows: &[ScriptReply]| {
            let agreed = with(None, None);
            Votes { rows, quorum: 3, id: "me", queue: QueueMode::NoWait, agreed }.result()
        };
        let (held, free) = (busy("old", 1, 0), busy("", 1, 0));
        let released = [held.clone(), held.clone(), free.clone(), free.clone(), free.clone()];
        assert_eq!(votes(&released), VoteResult::Busy(free.clone()));
        let one_is_silent = [held.clone(), held.clone(), free.clone(), free.clone()];
        assert_eq!(votes(&one_is_silent), VoteResult::Busy(free.clone()));
        let not_yet = [held.clone(), free.clone(), held.clone(), free, held.clone()];
        assert_eq!(votes(&not_yet), VoteResult::Busy(held));
    }

    /// Nodes that have not got the holder's request, or have forgotten it, grant to others.
    #[test]
    fn majority_holds_the_lock_whatever_the_others_grant() {
        let (held, mine) = (busy("holder", 0, 7), granted(1, 0));
        let rows = [held.clone(), mine.clone(), held.clone(), mine, held.clone()];
        assert_eq!(result(&rows, with(None, Some(7))), VoteResult::Busy(held));
    }

    #[test]
    fn nodes_agree_on_a_place_in_the_queue() {
        let rows = [busy("other", 1, 30), busy("other", 0, 20), busy("other", 0, 40)];
        let agreed = with(None, Some(20));
        assert_eq!(result(&rows, with(None, None)), VoteResult::Agree(agreed));
        // One round of agreement is enough: a node that does not take it over stays as it is.
        assert!(matches!(result(&rows, agreed), VoteResult::Busy(_)));
        let same = [busy("other", 0, 20), busy("other", 0, 20), busy("other", 0, 20)];
        let VoteResult::Busy(row) = result(&same, with(None, None)) else {
            panic!("there is nothing to agree on");
        };
        assert_eq!((row.1.as_str(), row.4), ("other", 0));
    }
}
