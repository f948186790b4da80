//! Orders that reserve, in one branch of TCC.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};

use super::{Buyer, OrderEnd, Orders, WantedEnd};
use crate::scenarios::tcc::state;
use crate::stage::TestBed;

/// A buyer's orders: the reservation of each, and its end as the buyer knows it.
#[derive(Debug, Default)]
pub(super) struct Reservations(Mutex<Vec<(u32, KnownEnd)>>);

/// The end of a reservation, as far as its buyer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownEnd {
    Confirmed,
    /// A commit was never asked for.
    NotConfirmed,
    /// The answer to the commit was lost.
    Unknown,
}

impl Orders for Reservations {
    fn new(_stage: &TestBed) -> Result<Self> {
        Ok(Self::default())
    }

    fn order(&self, buyer: &Buyer<'_>, _number: usize, end: WantedEnd) -> Result<OrderEnd> {
        let Some(xid) = buyer.begin()? else { return Ok(OrderEnd::Failed(None)) };
        let key = buyer.stage.new_id();
        let is_reserved = buyer.succeeds(&format!("reserve {key}"))?;
        if !is_reserved || end == WantedEnd::Rollback {
            let is_done = buyer.succeeds("rollback")? && is_reserved;
            self.ends().push((key, KnownEnd::NotConfirmed));
            return Ok(if is_done { OrderEnd::Done(xid) } else { OrderEnd::Failed(Some(xid)) });
        }
        let is_committed = buyer.commits()?;
        let known = if is_committed { KnownEnd::Confirmed } else { KnownEnd::Unknown };
        self.ends().push((key, known));
        Ok(if is_committed { OrderEnd::Done(xid) } else { OrderEnd::Failed(Some(xid)) })
    }

    fn committed(&self) -> i64 {
        let ends = self.ends();
        let confirmed = ends.iter().filter(|(_, end)| *end == KnownEnd::Confirmed);
        i64::try_from(confirmed.count()).unwrap_or(i64::MAX)
    }

    /// Each reservation has ended as the buyer was told. Phase two may have come more than once.
    fn judge(&self, stage: &TestBed) -> Result<()> {
        for (key, known) in self.ends().iter() {
            let state = state(stage, *key)?;
            let (name, _) = state.split_once(',').unwrap_or_default();
            let is_right = match known {
                KnownEnd::Confirmed => name == "confirmed",
                // Without a row its branch was not registered.
                KnownEnd::NotConfirmed => matches!(name, "cancelled" | ""),
                KnownEnd::Unknown => matches!(name, "confirmed" | "cancelled"),
            };
            ensure!(is_right, "reservation {key} is {state:?}, and its buyer was told {known:?}");
        }
        Ok(())
    }
}

impl Reservations {
    fn ends(&self) -> MutexGuard<'_, Vec<(u32, KnownEnd)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
