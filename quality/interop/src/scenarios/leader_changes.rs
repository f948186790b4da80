//! Several coordinators on one database, of which the one that leads is killed again and again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};

use crate::cluster::CoordinatorCluster;
use crate::service::{Actor, Service};
use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::{same, until};

const KILLS: usize = 4;
const BUYERS: usize = 3;
/// The pairs of rows of a buyer: a global whose end is open locks one of them.
const PAIRS: usize = 8;
/// A client may be silent for half a minute: it waits for as long for an answer that was lost.
const BEGIN: &str = "begin 60000";

/// The orders of one buyer that may fail one after the other. A buyer does not wait for a leader:
/// it tries again after a pause, as a user does.
const FAILED_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// The pause after an order that succeeded.
const BETWEEN: Duration = Duration::from_millis(20);

/// A buyer's orders. Each moves one from a row to another.
#[derive(Debug)]
struct Orders {
    pairs: Vec<(u32, u32)>,
    committed: AtomicI64,
    /// The client did not learn how they ended.
    unknown: AtomicI64,
}

/// How an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderEnd {
    /// As the buyer wished.
    Done,
    /// The client told the buyer of a failure.
    Failed,
}

/// Buyers go on while the leader is killed, again and again: no order is half done, none stays
/// unfinished, and no buyer fails for long.
pub(super) fn killed(stage: &TestBed) -> Result<()> {
    let cluster = stage.cluster()?;
    let shops = stage.shops_at(&cluster)?;
    let mut orders = Vec::new();
    for shop in &shops {
        for _ in 0..BUYERS {
            orders.push((shop, Orders::new(stage)?));
        }
    }
    let xids = buy_while_leaders_are_killed(&cluster, &orders)?;
    cluster.until_idle()?;
    until("undo rows are gone", || {
        let left = stage.plain("select distinct xid from undo_log where log_status = 0")?;
        Ok(!left.split(';').any(|xid| xids.contains(xid)))
    })?;
    orders.iter().try_for_each(|(_, orders)| orders.judge(stage))
}

fn buy_while_leaders_are_killed(
    cluster: &CoordinatorCluster,
    orders: &[(&Service, Orders)],
) -> Result<HashSet<String>> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let buy = |(shop, orders): &(&Service, Orders)| orders.buy(&shop.actor(), &is_over);
        let buyers: Vec<_> = orders.iter().map(|it| scope.spawn(move || buy(it))).collect();
        let is_buying = || buyers.iter().all(|buyer| !buyer.is_finished());
        let changed = kill_leaders(cluster, orders, is_buying);
        is_over.store(true, Ordering::Relaxed);
        let ends =
            buyers.into_iter().map(|it| it.join().map_err(|_| anyhow!("a buyer panicked"))?);
        let xids = ends.collect::<Result<Vec<_>>>()?;
        // What a buyer says of its failure comes first.
        changed?;
        Ok(xids.into_iter().flatten().collect())
    })
}

fn kill_leaders(
    cluster: &CoordinatorCluster,
    orders: &[(&Service, Orders)],
    is_buying: impl Fn() -> bool,
) -> Result<()> {
    until_all_have_ordered(orders, &is_buying)?;
    for _ in 0..KILLS {
        let leader = cluster.leader()?;
        leader.kill()?;
        until_all_have_ordered(orders, &is_buying)?;
        leader.restart()?;
        until_all_have_ordered(orders, &is_buying)?;
    }
    Ok(())
}

/// Waits until each buyer has made some more orders.
fn until_all_have_ordered(
    orders: &[(&Service, Orders)],
    is_buying: impl Fn() -> bool,
) -> Result<()> {
    let counts = || orders.iter().map(|(_, orders)| orders.committed.load(Ordering::Relaxed));
    let before: Vec<i64> = counts().collect();
    until("each buyer orders", || {
        ensure!(is_buying(), "a buyer gave up");
        Ok(counts().zip(&before).all(|(count, before)| count >= before + 3))
    })
}

impl Orders {
    fn new(stage: &TestBed) -> Result<Self> {
        let pairs = (0..PAIRS).map(|_| Ok((stage.new_row()?, stage.new_row()?)));
        let pairs = pairs.collect::<Result<_>>()?;
        Ok(Self { pairs, committed: AtomicI64::new(0), unknown: AtomicI64::new(0) })
    }

    /// Orders until all is over, and returns the globals.
    fn buy(&self, client: &Actor<'_>, is_over: &AtomicBool) -> Result<Vec<String>> {
        let (mut xids, mut failed) = (Vec::new(), 0);
        for (number, pair) in self.pairs.iter().cycle().enumerate() {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            match self.order(client, *pair, number.is_multiple_of(3), &mut xids)? {
                OrderEnd::Done => failed = 0,
                OrderEnd::Failed if failed == FAILED_MAX => bail!("{FAILED_MAX} orders failed"),
                OrderEnd::Failed => failed += 1,
            }
            thread::sleep(if failed == 0 { BETWEEN } else { PAUSE });
        }
        Ok(xids)
    }

    /// Moves one in a global of two branches, and rolls it back if the buyer changes its mind.
    fn order(
        &self,
        client: &Actor<'_>,
        (from, to): (u32, u32),
        changes_its_mind: bool,
        xids: &mut Vec<String>,
    ) -> Result<OrderEnd> {
        let Ok(xid) = client.ask(BEGIN)?.said()? else { return Ok(OrderEnd::Failed) };
        xids.push(xid);
        let give = format!("update stock set amount = amount + 1 where id = {to}");
        for statement in [take_one(from), give] {
            if !client.ask(&format!("at {statement}"))?.has_succeeded()? {
                // The rollback may fail, too: then the global is rolled back at its deadline.
                client.ask("rollback")?.has_succeeded()?;
                return Ok(OrderEnd::Failed);
            }
        }
        if changes_its_mind {
            let has_succeeded = client.ask("rollback")?.has_succeeded()?;
            return Ok(if has_succeeded { OrderEnd::Done } else { OrderEnd::Failed });
        }
        let is_committed = client.ask("commit")?.said()?.is_ok_and(|end| end == "Committed");
        let count = if is_committed { &self.committed } else { &self.unknown };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(if is_committed { OrderEnd::Done } else { OrderEnd::Failed })
    }

    /// Nothing was lost or made, and what the buyer was told is so.
    fn judge(&self, stage: &TestBed) -> Result<()> {
        let (mut moved, mut arrived) = (0, 0);
        for (from, to) in &self.pairs {
            moved += AMOUNT - stage.amount(*from)?;
            arrived += stage.amount(*to)? - AMOUNT;
        }
        same("what arrived", &arrived, &moved)?;
        let committed = self.committed.load(Ordering::Relaxed);
        let most = committed + self.unknown.load(Ordering::Relaxed);
        ensure!(
            (committed..=most).contains(&moved),
            "{moved} were moved, {committed} to {most} are committed"
        );
        Ok(())
    }
}
