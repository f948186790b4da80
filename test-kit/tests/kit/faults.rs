//! Each fault, with a service that stands it and one that does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use handfast::participant::{Branch, Participant, Vote};
use handfast::{Handfast, Tcc, TccBranch, TransactionError};
use handfast_test::{Death, Fault, TestKit};
use sqlx::{Sqlite, Transaction};

use super::complaint;
use super::shop::Shop;

#[tokio::test]
async fn a_refused_registration_undoes_the_branches_before_it() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let refused = kit.inject(Fault::refused_registration(2));
    let error = shop.place(1, 3).await.unwrap_err();
    assert!(error.to_string().contains("HF-TC-BAD-REQUEST"), "{error}");
    assert_eq!(refused.struck(), 1);
    kit.assert_rolled_back(&kit.last_xid().unwrap()).await;
    shop.assert_nothing_left(&kit).await;
    assert_eq!(shop.books().await, (0, 10));
    // The third is taken again.
    shop.place(2, 3).await.unwrap();
    assert_eq!(shop.books().await, (1, 7));
}

#[tokio::test]
async fn a_refused_registration_finds_a_service_that_goes_on() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    kit.inject(Fault::refused_registration(2));
    let order = shop.handfast.transaction("careless").run(async |_tx| {
        shop.insert(1, 3).await?;
        if shop.take(3).await.is_err() {
            // "The stock is only informative": the order is kept without its units.
        }
        Ok::<_, sqlx::Error>(())
    });
    drop(order.await);
    kit.assert_faults_struck();
    let said = complaint(kit.assert_rolled_back(&kit.last_xid().unwrap())).await;
    assert!(said.contains("is not rolled back") && said.contains("committed"), "{said}");
    assert_eq!(shop.books().await, (1, 10), "an order without its units");
}

#[tokio::test]
async fn a_death_around_the_decision_is_no_event_for_a_service_that_waits() {
    for death in [Death::BeforeDecision, Death::AfterDecision] {
        let kit = TestKit::start().await.unwrap();
        let shop = Shop::open(&kit).await.unwrap();
        let died = kit.inject(Fault::coordinator_dies(death));
        shop.place(1, 3).await.unwrap();
        assert_eq!(died.struck(), 1, "{death:?}");
        kit.assert_committed(&kit.last_xid().unwrap()).await;
        shop.assert_nothing_left(&kit).await;
        assert_eq!(shop.books().await, (1, 7), "{death:?}");
    }
}

#[tokio::test]
async fn a_death_after_the_decision_finds_a_service_that_takes_silence_for_failure() {
    let kit = TestKit::start().await.unwrap();
    // It reconnects later than it waits for an answer.
    let connect = Handfast::connect(kit.endpoint()).request_deadline(Duration::from_millis(100));
    let hasty = connect.back_off(Duration::from_secs(60), Duration::from_secs(60)).await.unwrap();
    let shop = Shop::open_with(&kit, hasty).await.unwrap();
    kit.inject(Fault::coordinator_dies(Death::AfterDecision));
    let error = shop.place(1, 3).await.unwrap_err();
    assert!(matches!(error, TransactionError::Unknown { .. }), "{error:?}");
    // The service says that the order failed, and the customer orders once more.
    kit.assert_faults_struck();
    kit.advance(Duration::from_secs(120)).await;
    kit.assert_committed(&kit.last_xid().unwrap()).await;
    assert_eq!(shop.books().await, (1, 7), "the order that is said to have failed");
}

/// The same service, one moment earlier: nothing of the decision is there.
#[tokio::test]
async fn a_death_before_the_decision_leaves_none() {
    let kit = TestKit::start().await.unwrap();
    let connect = Handfast::connect(kit.endpoint()).request_deadline(Duration::from_millis(100));
    let hasty = connect.back_off(Duration::from_secs(60), Duration::from_secs(60)).await.unwrap();
    let shop = Shop::open_with(&kit, hasty).await.unwrap();
    kit.inject(Fault::coordinator_dies(Death::BeforeDecision));
    let error = shop.place(1, 3).await.unwrap_err();
    assert!(matches!(error, TransactionError::Unknown { .. }), "{error:?}");
    kit.assert_faults_struck();
    // Its timeout, from the start of the coordinator on.
    kit.advance(Duration::from_secs(300)).await;
    kit.assert_rolled_back(&kit.last_xid().unwrap()).await;
    assert_eq!(shop.books().await, (0, 10));
}

#[tokio::test]
async fn a_death_at_any_write_leaves_no_half_order() {
    for write in 1.. {
        let mut writes = 0;
        for death in [Death::BeforeWrite(write), Death::AfterWrite(write)] {
            let kit = TestKit::start().await.unwrap();
            let shop = Shop::open(&kit).await.unwrap();
            let died = kit.inject(Fault::coordinator_dies(death));
            match shop.place(1, 3).await {
                Ok(()) => kit.assert_committed(&kit.last_xid().unwrap()).await,
                // A begin is not stored: the first registration finds a coordinator without it.
                Err(error) => assert!(matches!(error, TransactionError::Forgotten { .. })),
            }
            shop.assert_nothing_left(&kit).await;
            assert!([(0, 10), (1, 7)].contains(&shop.books().await), "{death:?}");
            writes += died.struck();
        }
        if writes == 0 {
            assert!(write > 3, "two registrations and a decision are {write} writes");
            return;
        }
    }
}

/// Units that are held by the try and taken by the confirm.
struct HoldUnits;

impl Tcc for HoldUnits {
    type Database = Sqlite;
    type Input = i64;
    type Error = sqlx::Error;

    async fn try_(
        &self,
        units: &i64,
        _: &TccBranch,
        local: &mut Transaction<'_, Sqlite>,
    ) -> Result<(), sqlx::Error> {
        let hold = "UPDATE held SET units = units + ?";
        sqlx::query(hold).bind(units).execute(&mut **local).await.map(drop)
    }

    async fn confirm(
        &self,
        units: &i64,
        _: &TccBranch,
        local: &mut Transaction<'_, Sqlite>,
    ) -> Result<(), sqlx::Error> {
        let take = "UPDATE held SET units = units - ?1, sold = sold + ?1";
        sqlx::query(take).bind(units).execute(&mut **local).await.map(drop)
    }

    async fn cancel(
        &self,
        units: &i64,
        _: &TccBranch,
        local: &mut Transaction<'_, Sqlite>,
    ) -> Result<(), sqlx::Error> {
        let release = "UPDATE held SET units = units - ?";
        sqlx::query(release).bind(units).execute(&mut **local).await.map(drop)
    }
}

#[tokio::test]
async fn a_delay_finds_a_service_that_reads_what_is_confirmed_later() {
    let kit = TestKit::start().await.unwrap();
    let schema = "CREATE TABLE held (units INTEGER, sold INTEGER); INSERT INTO held VALUES (0, 0)";
    let pool = kit.sqlite(schema).await.unwrap();
    let hold = kit.handfast().tcc("hold", pool.clone(), HoldUnits).await.unwrap();
    let sell = async || {
        let sell = kit.handfast().transaction("sell");
        sell.run(async |_tx| hold.try_(&3).await).await.unwrap();
        // The bug: the commit is decided, and the confirm is still to come.
        sold(&pool).await
    };
    let delay = kit.inject(Fault::delayed_phase_two(Duration::from_secs(300)));
    assert_eq!(sell().await, 0, "the service reads too early, and the delay shows it");
    assert_eq!(delay.struck(), 1);
    kit.advance(Duration::from_secs(200)).await;
    assert_eq!(sold(&pool).await, 0);
    kit.advance(Duration::from_secs(120)).await;
    assert_eq!(sold(&pool).await, 3);
    kit.assert_committed(&kit.last_xid().unwrap()).await;
    delay.lift();
    sell().await;
    kit.assert_committed(&kit.last_xid().unwrap()).await;
    assert_eq!(sold(&pool).await, 6, "at once");
}

async fn sold(pool: &sqlx::SqlitePool) -> i64 {
    let sold = sqlx::query_scalar("SELECT sold FROM held").fetch_one(pool).await;
    sold.expect("the database answers")
}

/// A participant of its own, with or without a memory of what it has committed.
struct Till {
    cash: Arc<AtomicI64>,
    is_idempotent: bool,
    committed: AtomicUsize,
}

impl Participant for Till {
    type Input = i64;
    type Error = String;

    async fn prepare(&self, _: &Branch<i64>) -> Result<Vote, String> {
        Ok(Vote::Yes)
    }

    async fn commit(&self, branch: &Branch<i64>) -> Result<(), String> {
        let times = self.committed.fetch_add(1, Ordering::SeqCst);
        if times == 0 || !self.is_idempotent {
            self.cash.fetch_add(branch.input, Ordering::SeqCst);
        }
        Ok(())
    }

    async fn roll_back(&self, _: &Branch<i64>) -> Result<(), String> {
        Ok(())
    }

    async fn prepared(&self) -> Result<Vec<Branch<i64>>, String> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_doubled_call_finds_a_participant_that_is_not_idempotent() {
    for (is_idempotent, in_the_till) in [(true, 5), (false, 10)] {
        let kit = TestKit::start().await.unwrap();
        let cash = Arc::new(AtomicI64::new(0));
        let till = Till { cash: Arc::clone(&cash), is_idempotent, committed: AtomicUsize::new(0) };
        let till = kit.handfast().participant("till", till).start().unwrap();
        let doubled = kit.inject(Fault::doubled_phase_two());
        let pay = kit.handfast().transaction("pay");
        pay.run(async |_tx| till.join(&5).await).await.unwrap();
        kit.assert_committed(&kit.last_xid().unwrap()).await;
        assert_eq!(doubled.struck(), 1);
        assert_eq!(cash.load(Ordering::SeqCst), in_the_till, "idempotent: {is_idempotent}");
    }
}

#[tokio::test]
async fn a_doubled_call_of_at_mode_is_no_event() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let doubled = kit.inject(Fault::doubled_phase_two());
    shop.place(1, 3).await.unwrap();
    kit.assert_committed(&kit.last_xid().unwrap()).await;
    shop.place(2, 8).await.unwrap_err();
    kit.assert_rolled_back(&kit.last_xid().unwrap()).await;
    assert_eq!(doubled.struck(), 3, "two branches committed, one rolled back");
    shop.assert_nothing_left(&kit).await;
    assert_eq!(shop.books().await, (1, 7));
}

#[tokio::test]
async fn a_failed_commit_undoes_the_order_and_finds_work_outside_of_it() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    // The first COMMIT is that of the order, the second that of its units.
    let failed = kit.inject(Fault::failed_commit(2));
    let mails = AtomicUsize::new(0);
    let order = shop.handfast.transaction("order").run(async |_tx| {
        shop.insert(1, 3).await?;
        // The bug: a mail is sent before the order is safe.
        mails.fetch_add(1, Ordering::SeqCst);
        shop.take(3).await
    });
    order.await.unwrap_err();
    assert_eq!(failed.struck(), 1);
    kit.assert_rolled_back(&kit.last_xid().unwrap()).await;
    shop.assert_nothing_left(&kit).await;
    assert_eq!(shop.books().await, (0, 10));
    assert_eq!(mails.load(Ordering::SeqCst), 1, "a mail for no order");
}

#[tokio::test]
async fn a_dirty_row_finds_a_service_that_says_all_is_undone() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let dirty = Fault::dirty_row(shop.orders.pool(), "UPDATE orders SET units = 99 WHERE id = 1");
    kit.inject(dirty);
    let error = shop.place(1, 11).await.unwrap_err();
    kit.assert_faults_struck();
    let xid = kit.last_xid().unwrap();
    kit.assert_needs_operator(&xid).await;
    // A sound service tells the two apart.
    assert!(matches!(error, TransactionError::NeedsOperator { .. }), "{error:?}");
    // One that tells its caller that nothing has happened is found by what it asserts.
    let said = complaint(kit.assert_rolled_back(&xid)).await;
    assert!(said.contains("dirty row main.orders 1") && said.contains("now 99"), "{said}");
    let said = complaint(kit.assert_nothing_left(shop.orders.pool())).await;
    assert!(said.contains("lock of row main.orders 1"), "{said}");
}

#[tokio::test]
async fn a_coordinator_that_crashes_is_there_again() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let tx = shop.handfast.transaction("order").begin().await.unwrap();
    tx.xid().scope(shop.insert(1, 3)).await.unwrap();
    kit.crash_coordinator().await;
    kit.crash_coordinator().await;
    tx.xid().scope(shop.take(3)).await.unwrap();
    let xid = tx.xid().clone();
    tx.commit().await.unwrap();
    kit.assert_committed(&xid).await;
    shop.assert_nothing_left(&kit).await;
    assert_eq!(shop.books().await, (1, 7));
}
