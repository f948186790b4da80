//! Several coordinators on one database, of which the one that leads is killed again and again.

mod reservations;
mod rows;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};

use crate::cluster::CoordinatorCluster;
use crate::service::{Actor, Service};
use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::until;
use reservations::Reservations;
use rows::RowOrders;

const KILLS: usize = 4;
const BUYERS: usize = 3;
/// A client may be silent for half a minute: it waits for as long for an answer that was lost.
const BEGIN: &str = "begin 60000";

/// The orders of one buyer that may fail one after the other. A buyer does not wait for a leader:
/// it tries again after a pause, as a user does. A client asks a node that is down for ten seconds,
/// before it leaves that out: this is twice as long.
const FAILED_MAX: u32 = 40;
const PAUSE: Duration = Duration::from_millis(500);
/// The time after which a Java client looks for nodes that are down: by a timer of its own,
/// which no setting changes, a minute after its start, and then every ten seconds. Before,
/// nearly every order meets the dead node.
const LOOKS_FROM: Duration = Duration::from_secs(70);
/// The pause after an order that succeeded.
const BETWEEN: Duration = Duration::from_millis(20);

/// The orders of one buyer.
trait Orders: Sized + Sync {
    fn new(stage: &TestBed) -> Result<Self>;

    /// Makes an order in a global, and rolls it back if the buyer changes its mind.
    fn order(&self, buyer: &Buyer<'_>, number: usize, end: WantedEnd) -> Result<OrderEnd>;

    /// Returns the number of orders that the client called committed.
    fn committed(&self) -> i64;

    /// Checks that nothing is lost or left over, and that what the buyer was told is so.
    fn judge(&self, stage: &TestBed) -> Result<()>;
}

/// A buyer: a thread of a service.
#[derive(Debug)]
struct Buyer<'a> {
    stage: &'a TestBed,
    client: Actor<'a>,
}

/// The end that a buyer wishes for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedEnd {
    Commit,
    Rollback,
}

/// How an order ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OrderEnd {
    /// As the buyer wished, in a global of this XID.
    Done(String),
    /// The client told the buyer of a failure, in a global of this XID if one was begun.
    Failed(Option<String>),
}

/// The leader is killed between phase one and each decision, and the next one carries that out.
pub(super) fn killed_between_phases(stage: &TestBed) -> Result<()> {
    let cluster = stage.cluster()?;
    let shops = stage.shops_at(&cluster)?;
    for shop in &shops {
        for (end, amount) in [("commit", AMOUNT - 1), ("rollback", AMOUNT)] {
            let (buyer, row) = (shop.actor(), stage.new_row()?);
            let xid = buyer.tell_until_done(BEGIN)?;
            buyer.tell(&format!("at {}", take_one(row)))?;
            let leader = cluster.leader()?;
            leader.kill()?;
            buyer.tell(end)?;
            order_until_done(stage, &shop.actor())?;
            stage.until_amount(row, amount)?;
            stage.until_no_undo_rows(&xid)?;
            leader.restart()?;
        }
    }
    // With the shops there: an order that failed may have left a branch, which a time limit ends.
    cluster.until_idle()
}

/// Makes an order. A client that has connected again may need several attempts; what one of them
/// has left in its row is not seen by the next.
fn order_until_done(stage: &TestBed, buyer: &Actor<'_>) -> Result<()> {
    until("an order at the next leader", || {
        buyer.tell_until_done(BEGIN)?;
        let take = format!("at {}", take_one(stage.new_row()?));
        let is_taken = buyer.ask(&take)?.has_succeeded()?;
        let end = if is_taken { "commit" } else { "rollback" };
        Ok(buyer.ask(end)?.has_succeeded()? && is_taken)
    })
}

/// Buyers go on while the leader is killed, again and again: no order is half done, none stays
/// unfinished, and no buyer fails for long.
pub(super) fn killed(stage: &TestBed) -> Result<()> {
    play::<RowOrders>(stage)
}

/// The same with reservations in place of rows.
pub(super) fn killed_with_tcc(stage: &TestBed) -> Result<()> {
    play::<Reservations>(stage)
}

fn play<Kind: Orders>(stage: &TestBed) -> Result<()> {
    let cluster = stage.cluster()?;
    let shops = stage.shops_at(&cluster)?;
    let mut orders = Vec::new();
    for shop in &shops {
        for _ in 0..BUYERS {
            orders.push((shop, Kind::new(stage)?));
        }
    }
    let xids = buy_while_leaders_are_killed(stage, &cluster, &orders)?;
    cluster.until_idle()?;
    until("undo rows are gone", || {
        let left = stage.plain("select distinct xid from undo_log where log_status = 0")?;
        Ok(!left.split(';').any(|xid| xids.contains(xid)))
    })?;
    orders.iter().try_for_each(|(_, orders)| orders.judge(stage))
}

fn buy_while_leaders_are_killed<Kind: Orders>(
    stage: &TestBed,
    cluster: &CoordinatorCluster,
    orders: &[(&Service, Kind)],
) -> Result<HashSet<String>> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let buy = |(shop, orders): &(&Service, Kind)| {
            buy(orders, &Buyer { stage, client: shop.actor() }, &is_over)
        };
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

fn kill_leaders<Kind: Orders>(
    cluster: &CoordinatorCluster,
    orders: &[(&Service, Kind)],
    is_buying: impl Fn() -> bool,
) -> Result<()> {
    until_all_have_ordered(orders, &is_buying)?;
    thread::sleep(LOOKS_FROM);
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
fn until_all_have_ordered<Kind: Orders>(
    orders: &[(&Service, Kind)],
    is_buying: impl Fn() -> bool,
) -> Result<()> {
    let counts = || orders.iter().map(|(_, orders)| orders.committed());
    let before: Vec<i64> = counts().collect();
    until("each buyer orders", || {
        ensure!(is_buying(), "a buyer gave up");
        Ok(counts().zip(&before).all(|(count, before)| count >= before + 3))
    })
}

/// Orders until all is over, and returns the globals.
fn buy(orders: &impl Orders, buyer: &Buyer<'_>, is_over: &AtomicBool) -> Result<Vec<String>> {
    let (mut xids, mut failed) = (Vec::new(), 0);
    for number in 0_usize.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let changes_its_mind = number.is_multiple_of(3);
        let end = if changes_its_mind { WantedEnd::Rollback } else { WantedEnd::Commit };
        let begun = match orders.order(buyer, number, end)? {
            OrderEnd::Done(xid) => {
                failed = 0;
                Some(xid)
            }
            OrderEnd::Failed(_) if failed == FAILED_MAX => bail!("{FAILED_MAX} orders failed"),
            OrderEnd::Failed(xid) => {
                failed += 1;
                xid
            }
        };
        xids.extend(begun);
        thread::sleep(if failed == 0 { BETWEEN } else { PAUSE });
    }
    Ok(xids)
}

impl Buyer<'_> {
    /// Begins a global, and returns its XID unless the client failed.
    fn begin(&self) -> Result<Option<String>> {
        Ok(self.client.ask(BEGIN)?.said()?.ok())
    }

    /// Returns whether the client says that it succeeded.
    fn succeeds(&self, command: &str) -> Result<bool> {
        self.client.ask(command)?.has_succeeded()
    }

    /// Returns whether the client says that the global is committed.
    fn commits(&self) -> Result<bool> {
        Ok(self.client.ask("commit")?.said()?.is_ok_and(|end| end == "Committed"))
    }
}
