//! Leases that globals own, and globals that wait for named locks, in one wait-for graph with the
//! rows.
//!
//! A global waits for the other globals that hold the lock so that it cannot be shared, and for all
//! that are before it in the queue, in which holders of some of the lock come first. If a request
//! before it belongs to no global, it waits for the globals that this request waits for. Permits
//! are left out: a request for one waits for any of their holders, which closes no cycle before all
//! of them wait.

use std::sync::Arc;

use super::named_locks::NamedLocks;
use super::table::{Acquisition, LeaseTable};
use super::turn::{Turn, TurnId};
use crate::contract::{LockShare, NewLease, Rejection, Reply, Timestamp, Xid};

/// A global's wait for a named lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GlobalTurn<'a> {
    pub(crate) id: TurnId,
    pub(crate) xid: Xid,
    pub(crate) name: &'a Arc<str>,
    pub(crate) since: Timestamp,
    pub(crate) deadline: Timestamp,
}

impl NamedLocks<'_> {
    /// Ends what a global owns: with its decision to commit, or when it has rolled back.
    pub(crate) fn end_leases_of(&mut self, xid: Xid) {
        let owned: Vec<Acquisition> = self.leases.of_global(xid).collect();
        for acquisition in owned {
            // What the global waited for was refused when it was decided (`refuse_turns_of`).
            let Acquisition::Held(id) = acquisition else { continue };
            let name = self.leases.lease(id).map(|lease| lease.name.clone());
            self.drop_lease(id);
            name.into_iter().for_each(|name| self.grant_turns(&name));
        }
    }

    /// Refuses what a decided global waits for: nothing is granted to it any more, not even what it
    /// releases itself.
    pub(crate) fn refuse_turns_of(&mut self, xid: Xid, decided: &Rejection) {
        let acquisitions: Vec<Acquisition> = self.leases.of_global(xid).collect();
        let mut names = Vec::new();
        for acquisition in acquisitions {
            let Acquisition::Waits(id) = acquisition else { continue };
            let Some(turn) = self.leases.dequeue(id) else { continue };
            self.on.reply(Some(turn.reply_to), Reply::Rejected(decided.clone()));
            names.push(turn.wanted.name);
        }
        // Only after all of them have ended: the end of one could otherwise grant the next.
        names.into_iter().for_each(|name| self.grant_turns(&name));
    }

    /// Refuses the globals that wait for one that begins to roll back: they may hold what it needs.
    pub(crate) fn refuse_turns_behind(&mut self, xid: Xid) {
        if !self.owners.is_rolling_back(xid) {
            return;
        }
        let acquisitions: Vec<Acquisition> = self.leases.of_global(xid).collect();
        for acquisition in acquisitions {
            let Acquisition::Held(id) = acquisition else { continue };
            let Some(lease) = self.leases.lease(id) else { continue };
            // Only a global can hold, in rows or databases, what the rollback needs.
            let is_global = |(_, turn): &(TurnId, &Turn)| turn.wanted.xid.is_some();
            let queue = self.leases.queue(&lease.name).filter(is_global);
            let behind: Vec<TurnId> = queue.map(|(id, _)| id).collect();
            let (name, by_address) = (lease.name.clone(), self.address_of(xid));
            let why = Rejection::LockRollingBack { name, by: xid, by_address };
            for id in behind {
                self.end_turn(id, Reply::Rejected(why.clone()));
            }
        }
    }

    /// Refuses a global that asks for a lock while another global that holds some of it rolls back.
    pub(super) fn refuse_behind_a_rollback(&self, wanted: &NewLease) -> Result<(), Rejection> {
        let owners = self.leases.held(&wanted.name).filter_map(|lease| lease.xid);
        let mut others = owners.filter(|xid| Some(*xid) != wanted.xid);
        let rolling_back =
            others.find(|&xid| wanted.xid.is_some() && self.owners.is_rolling_back(xid));
        rolling_back.map_or(Ok(()), |by| {
            let (name, by_address) = (wanted.name.clone(), self.address_of(by));
            Err(Rejection::LockRollingBack { name, by, by_address })
        })
    }

    /// Refuses a request of the global for a named lock that waits for another global, to open a
    /// cycle. Returns whether there was one.
    pub(crate) fn refuse_turn_towards(
        &mut self,
        xid: Xid,
        next: Xid,
        rejection: Rejection,
    ) -> bool {
        let closes = |acquisition: &Acquisition| match acquisition {
            Acquisition::Waits(id) => self.leases.blockers_of_turn(*id).contains(&next),
            Acquisition::Held(_) => false,
        };
        let found = self.leases.of_global(xid).find(closes);
        let Some(Acquisition::Waits(id)) = found else { return false };
        self.end_turn(id, Reply::Rejected(rejection));
        true
    }
}

impl LeaseTable {
    /// The globals that a global waits for because of named locks.
    pub(crate) fn blockers_of(&self, xid: Xid) -> Vec<Xid> {
        let blockers = |acquisition| match acquisition {
            Acquisition::Waits(id) => self.blockers_of_turn(id),
            Acquisition::Held(_) => Vec::new(),
        };
        self.of_global(xid).flat_map(blockers).collect()
    }

    /// Returns the named lock for which a global waits for another one.
    pub(crate) fn name_between(&self, xid: Xid, next: Xid) -> Option<Arc<str>> {
        self.of_global(xid).find_map(|acquisition| {
            let Acquisition::Waits(id) = acquisition else { return None };
            let waits = self.blockers_of_turn(id).contains(&next);
            self.turn(id).filter(|_| waits).map(|turn| turn.wanted.name.clone())
        })
    }

    /// Returns whether a global holds some of a named lock.
    pub(crate) fn holds(&self, xid: Xid, name: &str) -> bool {
        self.held(name).any(|lease| lease.xid == Some(xid))
    }

    /// The waits of globals for named locks behind one, in the order in which they came.
    pub(crate) fn waits_after(&self, turn: TurnId) -> impl Iterator<Item = GlobalTurn<'_>> {
        self.turns_after(turn).filter_map(|(id, turn)| {
            let xid = turn.wanted.xid?;
            let name = &turn.wanted.name;
            let (since, deadline) = (turn.since, turn.deadline);
            Some(GlobalTurn { id, xid, name, since, deadline })
        })
    }

    pub(crate) fn blockers_of_turn(&self, id: TurnId) -> Vec<Xid> {
        let Some(turn) = self.turn(id) else { return Vec::new() };
        let NewLease { name, share, xid, .. } = &turn.wanted;
        let ahead = self.queue(name).take_while(|(other, _)| *other != id);
        let ahead: Vec<&NewLease> = ahead.map(|(_, turn)| &turn.wanted).collect();
        // A request without a global has no node in the graph: what is in its way is in the way of
        // all behind it.
        let strangers = ahead.iter().filter(|wanted| wanted.xid.is_none());
        let mut wanted = strangers.map(|wanted| wanted.share).chain([*share]);
        let is_shared = wanted.all(|share| share != LockShare::All);
        let holders = self.held(name);
        let holders = holders.filter(|lease| !is_shared || lease.share == LockShare::All);
        let holders = holders.filter_map(|lease| lease.xid);
        let ahead = ahead.into_iter().filter_map(|wanted| wanted.xid);
        holders.chain(ahead).filter(|other| Some(*other) != *xid).collect()
    }

    /// Returns whether a global can be waiting for this one because of named locks.
    pub(crate) fn is_waited_for(&self, xid: Xid) -> bool {
        self.of_global(xid).any(|acquisition| match acquisition {
            Acquisition::Held(id) => {
                let lease = self.lease(id);
                lease.is_some_and(|lease| self.queue(&lease.name).next().is_some())
            }
            Acquisition::Waits(id) => {
                let turn = self.turn(id);
                turn.is_some_and(|turn| {
                    let queue = self.queue(&turn.wanted.name);
                    queue.skip_while(|(other, _)| *other != id).nth(1).is_some()
                })
            }
        })
    }
}
