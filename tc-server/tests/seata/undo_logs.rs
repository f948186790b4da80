//! The deletion of leftover undo logs.

use std::collections::BTreeSet;
use std::time::Duration;

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{Message, UndoLogDelete};
use handfast_seata_wire::value::{BranchType, GlobalStatus};
use handfast_server::serve::RunningServer;
use tokio::time::sleep;

use crate::client::{Client, start_with};

const STOCK: &str = "jdbc:mysql://127.0.0.1:3306/stock";
const ORDERS: &str = "jdbc:mysql://127.0.0.1:3306/orders";

/// Starts a coordinator that asks for deletions as soon as a client connects, and often.
async fn start(save_days: u16) -> RunningServer {
    start_with(|seata| {
        seata.undo_log_save_days = save_days;
        seata.undo_log_delay_ms = 1;
        seata.undo_log_period_ms = 20;
    })
    .await
}

async fn asked(client: &mut Client) -> UndoLogDelete {
    loop {
        let received = client.read().await.expect("the coordinator closed the connection");
        if let Message::UndoLogDelete(asked) = received.message {
            assert_eq!(received.header.kind, MessageKind::OneWay);
            return asked;
        }
    }
}

/// A killed process leaves undo logs that no other process would delete.
#[tokio::test]
async fn old_undo_logs_are_deleted_by_processes_in_turn() {
    let server = start(7).await;
    let both = format!("{STOCK},{ORDERS},deduct");
    let mut first = Client::rm(&server, "2.3.0", &both).await;
    let mut second = Client::rm(&server, "1.4.2", STOCK).await;
    let mut of_first = BTreeSet::new();
    while of_first.len() < 2 {
        let UndoLogDelete { branch_type, resource_id, save_days } = asked(&mut first).await;
        assert_eq!((branch_type, save_days), (BranchType::At, 7));
        assert_ne!(resource_id, "deduct", "an action has no undo logs");
        of_first.insert(resource_id);
    }
    assert_eq!(asked(&mut second).await.resource_id, STOCK);
}

/// Seata Server has them deleted, and then the rollback has no images. Which of the databases are
/// one is not known: a process would delete whatever is as old in the table.
#[tokio::test]
async fn undo_logs_are_kept_for_a_global_that_may_be_rolled_back() {
    // The least number of days, so that no margin for clocks is left.
    let server = start(1).await;
    let mut rm = Client::connect(&server, "2.3.0").await;
    rm.register_tm().await.outcome.unwrap();
    let xid = rm.begin(60_000).await;
    rm.register_rm(ORDERS).await.outcome.unwrap();
    rm.branch(&xid, STOCK, "t:1").await;
    let mut other = Client::rm(&server, "2.3.0", ORDERS).await;
    for _ in 0..20 {
        sleep(Duration::from_millis(10)).await;
        assert_eq!(other.ask(Message::Ping).await, Message::Pong);
    }
    let received = other.early_kinds();
    assert!(!received.contains(&MessageKind::OneWay), "{received:?}");
    assert_eq!(rm.commit(&xid).await, GlobalStatus::Committed);
    assert_eq!(asked(&mut other).await.resource_id, ORDERS);
}

#[tokio::test]
async fn seata_go_is_not_asked_to_delete_undo_logs() {
    let server = start(7).await;
    let mut go = Client::connect(&server, "1.1.0").await;
    let id = go.send(&Message::RegisterTm(go.identity()), MessageKind::OneWay).await;
    go.answer_to(id).await;
    go.register_rm(STOCK).await.outcome.unwrap();
    let mut java = Client::rm(&server, "2.3.0", STOCK).await;
    for _ in 0..3 {
        asked(&mut java).await;
    }
    assert_eq!(go.ask(Message::Ping).await, Message::Pong);
    let received = go.early_kinds();
    assert!(!received.contains(&MessageKind::OneWay), "{received:?}");
}
