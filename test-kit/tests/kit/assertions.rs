//! Each assertion, with what it must let pass and what it must find.

use handfast_test::{Fault, TestKit};

use super::complaint;
use super::shop::Shop;

#[tokio::test]
async fn a_committed_order_is_committed_and_nothing_else() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    shop.place(1, 3).await.unwrap();
    let xid = kit.last_xid().unwrap();
    kit.assert_committed(&xid).await;
    shop.assert_nothing_left(&kit).await;
    assert_eq!(shop.books().await, (1, 7));

    let said = complaint(kit.assert_rolled_back(&xid)).await;
    assert!(said.contains("is not rolled back:") && said.contains("committed"), "{said}");
    assert!(said.contains("assertions.rs:"), "where: {said}");
    let said = complaint(kit.assert_needs_operator(&xid)).await;
    assert!(said.contains("is not in need of an operator:"), "{said}");
}

#[tokio::test]
async fn a_failed_order_is_rolled_back_and_nothing_else() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    shop.place(1, 11).await.unwrap_err();
    let xid = kit.last_xid().unwrap();
    kit.assert_rolled_back(&xid).await;
    shop.assert_nothing_left(&kit).await;
    assert_eq!(shop.books().await, (0, 10));

    let said = complaint(kit.assert_committed(&xid)).await;
    assert!(said.contains("place-order") && said.contains("rolled back (requested)"), "{said}");
}

#[tokio::test]
async fn a_transaction_that_the_service_forgets_is_found() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    // A service that begins by hand and neither commits nor rolls back.
    let tx = shop.handfast.transaction("forgotten").begin().await.unwrap();
    tx.xid().scope(shop.insert(1, 3)).await.unwrap();

    let said = complaint(kit.assert_nothing_left(shop.orders.pool())).await;
    assert!(said.contains("undo row of xid") && said.contains("\"orders\""), "{said}");
    assert!(said.contains("lock of row main.orders 1, held by xid"), "{said}");
    assert!(said.contains("forgotten") && said.contains("nothing has decided it"), "{said}");
    let said = complaint(kit.assert_committed(tx.xid())).await;
    assert!(said.contains("is not committed") && said.contains("active"), "{said}");

    // Its drop rolls it back, which an assertion has to wait for.
    let xid = tx.xid().clone();
    drop(tx);
    kit.assert_rolled_back(&xid).await;
    shop.assert_nothing_left(&kit).await;
}

#[tokio::test]
async fn a_global_without_a_branch_is_found() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let tx = shop.handfast.transaction("empty").begin().await.unwrap();
    let said = complaint(kit.assert_nothing_left(shop.orders.pool())).await;
    assert!(said.contains("empty") && said.contains("active"), "{said}");
    tx.commit().await.unwrap();
    kit.assert_nothing_left(shop.orders.pool()).await;
}

#[tokio::test]
async fn an_undo_row_that_nothing_owns_is_found() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let stray = "INSERT INTO undo_log (branch_id, xid, context, rollback_info, log_status) \
                 VALUES (5, 'tc:1', 'format=json', x'7b7d', 0)";
    sqlx::query(stray).execute(shop.stock.pool()).await.unwrap();
    kit.assert_nothing_left(shop.orders.pool()).await;
    let said = complaint(kit.assert_nothing_left(shop.stock.pool())).await;
    assert!(said.contains("undo row of xid tc:1, branch 5: {}"), "{said}");
}

#[tokio::test]
async fn an_xid_that_was_never_begun_is_said_to_be_unknown() {
    let kit = TestKit::start().await.unwrap();
    let xid = "elsewhere:7".parse().unwrap();
    let said = complaint(kit.assert_committed(&xid)).await;
    assert!(said.contains("the coordinator does not know it"), "{said}");
}

#[tokio::test]
async fn a_fault_that_did_not_happen_is_found() {
    let kit = TestKit::start().await.unwrap();
    let shop = Shop::open(&kit).await.unwrap();
    let third = kit.inject(Fault::refused_registration(3));
    kit.inject(Fault::dirty_row(shop.stock.pool(), "UPDATE no_such_table SET units = 1"));
    // Two registrations, and a rollback before which the row cannot become dirty.
    shop.place(1, 11).await.unwrap_err();
    kit.assert_rolled_back(&kit.last_xid().unwrap()).await;
    assert_eq!(third.struck(), 0);
    let said = complaint(async { kit.assert_faults_struck() }).await;
    assert!(said.contains("registration 3 is refused: never happened"), "{said}");
    assert!(said.contains("failed:") && said.contains("no such table"), "{said}");
}
