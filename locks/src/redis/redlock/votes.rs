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
        if self.most_stored().1 >= self.quorum {
            return true;
        }
        // Where nodes have stored a token, or are to store one, the others may be yet to answer
        // that make a majority of it: a repeated request should be answered alike.
        let is_first = self.agreed.fencing_token.is_none() && self.stored().next().is_none();
        if is_first && self.granted().count() >= self.quorum {
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

    /// Decides the fencing token: what a majority has stored, or else the largest of the counters
    /// and tokens of the nodes, for them to store.
    ///
    /// The largest one is above every earlier token: a majority has stored each of those, and two
    /// majorities have a node in common. A token that only a minority has stored may be older than
    /// that: the grants of the other nodes may have ended since, and with them what the token was
    /// above. A node only raises what it has stored, so each further round is due to a grant that
    /// the last one did not count, and the rounds end.
    fn fencing_token(&self) -> VoteResult {
        let (fencing_token, nodes) = self.most_stored();
        if nodes >= self.quorum {
            return VoteResult::Granted(fencing_token);
        }
        let largest = self.granted().map(|row| row.0).max();
        VoteResult::Agree(Agreement { fencing_token: largest, arrival: self.agreed.arrival })
    }

    /// Returns the token that most nodes have stored, and their number.
    fn most_stored(&self) -> (i64, usize) {
        let count = |of| self.stored().filter(|stored| *stored == of).count();
        let counted = self.stored().map(|stored| (stored, count(stored)));
        counted.max_by_key(|(_, nodes)| *nodes).unwrap_or_default()
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

    /// Returns the tokens that nodes have stored because several had agreed on them.
    fn stored(&self) -> impl Iterator<Item = i64> {
        self.granted().filter(|row| row.5 == 1).map(|row| row.0)
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
        let three = [granted(9, 1), granted(9, 1), granted(12, 0), granted(9, 1)];
        assert_eq!(result(&three, with(None, None)), VoteResult::Granted(9));
    }

    /// Regression: one node had stored the token of an acquisition, the grants of the others ended,
    /// and another acquisition had the lock there. When those nodes granted again, the token of the
    /// one was used, which was below that of the other acquisition.
    #[test]
    fn token_of_a_minority_gives_way_to_a_larger_counter() {
        let other = 10;
        for rows in [
            [granted(9, 1), granted(other + 2, 0), granted(other + 1, 0)],
            [granted(9, 1), granted(9, 1), granted(other + 2, 0)],
            [granted(9, 1), granted(other + 2, 1), granted(other + 1, 0)],
        ] {
            for agreed in [with(None, None), with(Some(9), None)] {
                let larger = with(Some(other + 2), None);
                assert_eq!(result(&rows, agreed), VoteResult::Agree(larger), "{rows:?}");
            }
        }
    }

    /// Each node answers by the rule of the script: it stores what was agreed on unless its own
    /// token is larger.
    #[test]
    fn rounds_end_though_nodes_grant_one_after_the_other() {
        // A node that has not granted yet does so with this counter, when its round comes.
        let counters = [5, 9, 7, 12, 30];
        for joins_in_round in [[0; 5], [0, 0, 0, 1, 2], [2, 1, 0, 0, 0], [3, 4, 0, 0, 0]] {
            let (mut nodes, mut agreed) = ([None; 5], with(None, None));
            let rounds = (0..).find(|round| {
                let mut rows = Vec::new();
                for (node, held) in nodes.iter_mut().enumerate() {
                    let row = match (*held, agreed.fencing_token) {
                        (None, _) if *round < joins_in_round[node] => continue,
                        (None, _) => (counters[node], 0),
                        (Some((own, _)), Some(token)) if token >= own => (token, 1),
                        (Some(own), _) => own,
                    };
                    *held = Some(row);
                    rows.push(granted(row.0, row.1));
                }
                match result(&rows, agreed) {
                    VoteResult::Agree(next) => agreed = next,
                    VoteResult::Granted(token) => return Some(token) == agreed.fencing_token,
                    undecided @ (VoteResult::Insist
                    | VoteResult::Yield(_)
                    | VoteResult::Busy(_)) => {
                        panic!("{undecided:?}")
                    }
                }
                false
            });
            assert!(rounds <= Some(counters.len()), "{joins_in_round:?}: {rounds:?}");
        }
    }

    #[test]
    fn repeated_request_waits_for_the_nodes_that_stored_its_token() {
        let are_enough = |rows: &[ScriptReply], agreed| {
            Votes { rows, quorum: 3, id: "me", queue: QueueMode::Join, agreed }.are_enough()
        };
        let first = [granted(5, 0), granted(9, 0), granted(7, 0)];
        assert!(are_enough(&first, with(None, None)));
        assert!(!are_enough(&first, with(Some(4), None)));
        let repeated = [granted(9, 1), granted(12, 0), granted(9, 1), granted(9, 1)];
        assert!(!are_enough(&repeated[..3], with(None, None)));
        assert!(are_enough(&repeated, with(None, None)));
        assert_eq!(result(&repeated, with(None, None)), VoteResult::Granted(9));
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
