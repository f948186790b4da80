//! The XIDs that are lent to clients and not used yet (LENT).
//!
//! A client begins a global with a lent XID and waits for no answer. Each XID is of one client and
//! begins one global. Loans are in memory alone: an XID of an earlier leader is known by its epoch,
//! and is taken down when it is used, so that it begins no second global either.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::{ClientId, Xid};

/// The most XIDs that are lent at a time, as many as a word has bits. Fewer: clients wait more
/// often for the answer to a begin. More: clients keep more that they never use.
const XIDS_PER_LOAN_MAX: u32 = u64::BITS;
/// The most unused XIDs of one client. Fewer: a begin that waits long to be sent again loses its
/// XID. More: memory, for XIDs whose loan never arrived.
const UNUSED_PER_CLIENT_MAX: u32 = 1_024;
/// The most XIDs of earlier leaders that are remembered for one client. It has begun with them when
/// the leader changed, before their begins were answered.
const EARLIER_PER_CLIENT_MAX: usize = 1_024;

/// The loans, by client. BOUNDED for each client here, and in all by its user.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoanTable {
    by_client: BTreeMap<ClientId, ClientLoans>,
    unused: usize,
    /// The XIDs of earlier leaders that clients have begun globals with under this one.
    earlier: BTreeMap<ClientId, BTreeSet<Xid>>,
}

/// The loans of a client that have unused XIDs, by their first XID: one bit for each unused one.
#[derive(Clone, Debug, Default)]
struct ClientLoans {
    loans: BTreeMap<Xid, u64>,
    unused: u32,
}

impl LoanTable {
    /// Returns the number of unused XIDs.
    pub(crate) fn unused(&self) -> usize {
        self.unused
    }

    /// Returns how many XIDs a loan may have to a client that wants this many.
    pub(crate) fn count_for(wants: u32, room: usize) -> u32 {
        wants.min(XIDS_PER_LOAN_MAX).min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// Lends XIDs, 1 to 64. The oldest loans of a client that has too many are given up: a client
    /// that asks for more has lost them.
    pub(crate) fn lend(&mut self, client: ClientId, first: Xid, count: u32) {
        let own = self.by_client.entry(client).or_default();
        while own.unused + count > UNUSED_PER_CLIENT_MAX {
            let Some((_, unused)) = own.loans.pop_first() else { break };
            own.unused -= unused.count_ones();
            self.unused -= unused.count_ones() as usize;
        }
        own.loans.insert(first, u64::MAX >> (XIDS_PER_LOAN_MAX - count));
        own.unused += count;
        self.unused += count as usize;
    }

    /// Returns whether an XID is lent to a client and unused.
    pub(crate) fn is_lent(&self, client: ClientId, xid: Xid) -> bool {
        let loan = self.by_client.get(&client).and_then(|own| own.loans.range(..=xid).next_back());
        loan.is_some_and(|(first, unused)| unused & bit_of(*first, xid) != 0)
    }

    /// Takes note that an XID that is lent to a client is used.
    pub(crate) fn take(&mut self, client: ClientId, xid: Xid) {
        let Some(own) = self.by_client.get_mut(&client) else { return };
        let Some((&first, unused)) = own.loans.range_mut(..=xid).next_back() else { return };
        let bit = *unused & bit_of(first, xid);
        if bit == 0 {
            return;
        }
        *unused &= !bit;
        if *unused == 0 {
            own.loans.remove(&first);
        }
        own.unused -= 1;
        self.unused -= 1;
        if own.unused == 0 {
            self.by_client.remove(&client);
        }
    }

    /// Returns whether a client has begun a global with this XID of an earlier leader.
    pub(crate) fn has_used_earlier(&self, client: ClientId, xid: Xid) -> bool {
        self.earlier.get(&client).is_some_and(|used| used.contains(&xid))
    }

    /// Takes note that a client has begun a global with this XID of an earlier leader.
    pub(crate) fn take_earlier(&mut self, client: ClientId, xid: Xid) {
        let used = self.earlier.entry(client).or_default();
        used.insert(xid);
        if used.len() > EARLIER_PER_CLIENT_MAX {
            used.pop_first();
        }
    }

    pub(crate) fn has_any(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client) || self.earlier.contains_key(&client)
    }

    /// Forgets the loans of a client, which has gone.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.earlier.remove(&client);
        let gone = self.by_client.remove(&client);
        self.unused -= gone.map_or(0, |own| own.unused as usize);
    }

    /// Returns every unused XID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Xid> {
        let loans = self.by_client.values().flat_map(|own| &own.loans);
        loans.flat_map(|(first, unused)| {
            let lent = (0..u64::from(XIDS_PER_LOAN_MAX)).map(|offset| Xid(first.0 + offset));
            lent.filter(move |xid| unused & bit_of(*first, *xid) != 0)
        })
    }

    /// Returns whether the counts, made again, agree.
    pub(crate) fn is_consistent(&self) -> bool {
        let count = |own: &ClientLoans| own.loans.values().map(|it| it.count_ones()).sum::<u32>();
        let is_right = |own: &ClientLoans| {
            let unused = count(own);
            unused == own.unused && (1..=UNUSED_PER_CLIENT_MAX).contains(&unused)
        };
        let unused: usize = self.by_client.values().map(|own| own.unused as usize).sum();
        self.by_client.values().all(is_right) && unused == self.unused
    }
}

/// Returns the bit of an XID in the loan with this first one; none if it is of no such loan.
fn bit_of(first: Xid, xid: Xid) -> u64 {
    let offset = u32::try_from(xid.0 - first.0).unwrap_or(u32::MAX);
    1_u64.checked_shl(offset).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(7);

    #[test]
    fn each_xid_is_of_one_client_and_used_once() {
        let mut loans = LoanTable::default();
        loans.lend(CLIENT, Xid(10), 64);
        loans.lend(ClientId(8), Xid(74), 2);
        assert!(loans.is_lent(CLIENT, Xid(73)) && !loans.is_lent(CLIENT, Xid(74)));
        assert!(!loans.is_lent(CLIENT, Xid(9)) && !loans.is_lent(ClientId(8), Xid(10)));
        loans.take(CLIENT, Xid(73));
        loans.take(CLIENT, Xid(73));
        loans.take(CLIENT, Xid(75));
        assert!(!loans.is_lent(CLIENT, Xid(73)) && loans.is_lent(CLIENT, Xid(72)));
        assert_eq!((loans.unused(), loans.iter().count()), (65, 65));
        (10..73).for_each(|xid| loans.take(CLIENT, Xid(xid)));
        assert!(!loans.has_any(CLIENT) && loans.is_consistent());
        loans.forget(ClientId(8));
        assert_eq!((loans.unused(), loans.iter().count()), (0, 0));
    }

    #[test]
    fn the_oldest_loans_of_a_client_make_room() {
        let mut loans = LoanTable::default();
        for loan in 0..20 {
            loans.lend(CLIENT, Xid(1 + 64 * loan), 64);
            assert!(loans.is_consistent());
        }
        assert_eq!(loans.unused(), 1_024);
        assert!(!loans.is_lent(CLIENT, Xid(256)) && loans.is_lent(CLIENT, Xid(257)));
    }

    #[test]
    fn the_latest_xids_of_earlier_leaders_are_remembered() {
        let mut loans = LoanTable::default();
        (1..=1_025).for_each(|xid| loans.take_earlier(CLIENT, Xid(xid)));
        let is_used = |xid| loans.has_used_earlier(CLIENT, Xid(xid));
        assert!(!is_used(1) && is_used(2) && is_used(1_025) && loans.has_any(CLIENT));
        assert!(!loans.has_used_earlier(ClientId(8), Xid(2)));
        loans.forget(CLIENT);
        assert!(!loans.has_any(CLIENT));
    }

    #[test]
    fn no_more_is_lent_than_there_is_room_for() {
        let counts = [(0, 9), (5, 9), (1_000, 9), (1_000, 0), (1_000, usize::MAX)]
            .map(|(wants, room)| LoanTable::count_for(wants, room));
        assert_eq!(counts, [0, 5, 9, 0, 64]);
    }
}
