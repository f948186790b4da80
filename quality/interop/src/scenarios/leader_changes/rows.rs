//! Orders that move one from a row to another, in two branches.

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Result, ensure};

use super::{Buyer, OrderEnd, Orders, WantedEnd};
use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::same;

/// The pairs of rows of a buyer: a global whose end is open locks one of them.
const PAIRS: usize = 8;

/// A buyer's orders.
#[derive(Debug)]
pub(super) struct RowOrders {
    pairs: Vec<(u32, u32)>,
    committed: AtomicI64,
    /// The client did not learn how they ended.
    unknown: AtomicI64,
}

impl Orders for RowOrders {
    fn new(stage: &TestBed) -> Result<Self> {
        let pairs = (0..PAIRS).map(|_| Ok((stage.new_row()?, stage.new_row()?)));
        let pairs = pairs.collect::<Result<_>>()?;
        Ok(Self { pairs, committed: AtomicI64::new(0), unknown: AtomicI64::new(0) })
    }

    fn order(&self, buyer: &Buyer<'_>, number: usize, end: WantedEnd) -> Result<OrderEnd> {
        let Some(xid) = buyer.begin()? else { return Ok(OrderEnd::Failed(None)) };
        let (from, to) = self.pairs[number % PAIRS];
        let give = format!("update stock set amount = amount + 1 where id = {to}");
        for statement in [take_one(from), give] {
            if !buyer.succeeds(&format!("at {statement}"))? {
                // The rollback may fail, too: then the global is rolled back at its deadline.
                buyer.succeeds("rollback")?;
                return Ok(OrderEnd::Failed(Some(xid)));
            }
        }
        let is_done = match end {
            WantedEnd::Rollback => buyer.succeeds("rollback")?,
            WantedEnd::Commit => {
                let is_committed = buyer.commits()?;
                let count = if is_committed { &self.committed } else { &self.unknown };
                count.fetch_add(1, Ordering::Relaxed);
                is_committed
            }
        };
        Ok(if is_done { OrderEnd::Done(xid) } else { OrderEnd::Failed(Some(xid)) })
    }

    fn committed(&self) -> i64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// Nothing was lost or made, and what the buyer was told is so.
    fn judge(&self, stage: &TestBed) -> Result<()> {
        let (mut moved, mut arrived) = (0, 0);
        for (from, to) in &self.pairs {
            moved += AMOUNT - stage.amount(*from)?;
            arrived += stage.amount(*to)? - AMOUNT;
        }
        same("what arrived", &arrived, &moved)?;
        let committed = self.committed();
        let most = committed + self.unknown.load(Ordering::Relaxed);
        ensure!(
            (committed..=most).contains(&moved),
            "{moved} were moved, {committed} to {most} are committed"
        );
        Ok(())
    }
}
