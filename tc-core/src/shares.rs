//! The share that each client and each application has of what is bounded (BOUNDED).
//!
//! The shell names the connection that a request came over, and its application. Only the shell
//! knows connections and their ends; here they are numbers. They are known for as long as the
//! coordinator's process lives, and applications are in the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::contract::{Asker, ClientId, Limits, Rejection, ShareOf};

/// How many there are of one kind, by connection and by application. Zeros are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareTally {
    by_client: BTreeMap<ClientId, usize>,
    by_application: BTreeMap<Arc<str>, usize>,
}

impl ShareTally {
    pub(crate) fn enter(&mut self, client: ClientId, application: &Arc<str>, count: usize) {
        if count == 0 {
            return;
        }
        if client != ClientId::default() {
            *self.by_client.entry(client).or_default() += count;
        }
        if let Some(known) = self.by_application.get_mut(application) {
            *known += count;
        } else if !application.is_empty() {
            self.by_application.insert(Arc::clone(application), count);
        }
    }

    pub(crate) fn leave(&mut self, client: ClientId, application: &Arc<str>, count: usize) {
        take(&mut self.by_client, &client, count);
        take(&mut self.by_application, application, count);
    }

    fn of_client(&self, client: ClientId) -> usize {
        self.by_client.get(&client).copied().unwrap_or_default()
    }

    fn of_application(&self, application: &str) -> usize {
        self.by_application.get(application).copied().unwrap_or_default()
    }
}

fn take<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K, count: usize) {
    // A sender without a name was not counted when it came.
    let Some(known) = counts.get_mut(key) else { return };
    *known -= count;
    if *known == 0 {
        counts.remove(key);
    }
}

/// Refuses what would go past a limit (BOUNDED).
pub(crate) fn check_limit(what: &'static str, wanted: usize, max: usize) -> Result<(), Rejection> {
    if wanted > max {
        return Err(Rejection::LimitReached { what, max: max as u64 });
    }
    Ok(())
}

/// Refuses what would go past the owner's share of a limit, all tallies of its kind together.
pub(crate) fn check_share(
    limits: &Limits,
    tallies: &[&ShareTally],
    asker: &Asker,
    what: &'static str,
    wanted: usize,
    max: usize,
) -> Result<(), Rejection> {
    let refuse = |of, max: usize| Err(Rejection::ShareReached { of, what, max: max as u64 });
    let most = share_of(max, limits.share_per_connection);
    let has = |tally: &&ShareTally| tally.of_client(asker.client);
    let is_known = asker.client != ClientId::default();
    if is_known && tallies.iter().map(has).sum::<usize>() + wanted > most {
        return refuse(ShareOf::Connection, most);
    }
    let most = share_of(max, limits.share_per_application);
    let has = |tally: &&ShareTally| tally.of_application(&asker.application);
    let is_named = !asker.application.is_empty();
    if is_named && tallies.iter().map(has).sum::<usize>() + wanted > most {
        return refuse(ShareOf::Application(Arc::clone(&asker.application)), most);
    }
    Ok(())
}

/// Returns this percentage of a limit, rounded up.
fn share_of(max: usize, percent: usize) -> usize {
    // The product is taken in two parts, so that a limit of `usize::MAX` does not overflow.
    let kept_back =
        max / 100 * (100 - percent.min(100)) + max % 100 * (100 - percent.min(100)) / 100;
    max - kept_back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_so_many_per_cent_and_never_nothing() {
        assert_eq!(share_of(1_000_000, 60), 600_000);
        assert_eq!(share_of(usize::MAX, 100), usize::MAX);
        assert_eq!(
            (share_of(1, 1), share_of(2, 60), share_of(5, 60), share_of(0, 60)),
            (1, 2, 3, 0)
        );
    }

    #[test]
    fn zeros_are_not_kept() {
        let mut tally = ShareTally::default();
        let shop: Arc<str> = "shop".into();
        tally.enter(ClientId(1), &shop, 2);
        tally.enter(ClientId::default(), &shop, 1);
        tally.enter(ClientId(1), &"".into(), 1);
        assert_eq!((tally.of_client(ClientId(1)), tally.of_application("shop")), (3, 3));
        tally.leave(ClientId(1), &shop, 2);
        tally.leave(ClientId::default(), &shop, 1);
        tally.leave(ClientId(1), &"".into(), 1);
        assert_eq!(tally, ShareTally::default());
    }
}
