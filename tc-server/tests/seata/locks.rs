//! Lock conflicts and queries.

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{GlobalLockQueried, Message};
use handfast_seata_wire::value::{BranchType, ExceptionCode, GlobalStatus};

use crate::client::{Client, branch, page, start, start_with};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";

#[tokio::test]
async fn a_lock_released_in_time_is_no_conflict() {
    let server = start_with(|seata| seata.lock_wait_ms = 60_000).await;
    let mut holder = Client::rm(&server, "2.3.0", DATABASE).await;
    let mut waiter = Client::rm(&server, "2.3.0", DATABASE).await;
    let (held, wanted) = (holder.begin(60_000).await, waiter.begin(60_000).await);
    holder.branch(&held, DATABASE, "t:1").await;
    let (committed, granted) =
        tokio::join!(holder.commit(&held), waiter.branch(&wanted, DATABASE, "T:1;"));
    assert_eq!(committed, GlobalStatus::Committed);
    assert!(granted > 0);
}

#[tokio::test]
async fn a_disconnected_client_waits_for_no_lock() {
    let server = start_with(|seata| seata.lock_wait_ms = 60_000).await;
    let mut holder = Client::rm(&server, "2.3.0", DATABASE).await;
    let mut waiter = Client::rm(&server, "2.3.0", DATABASE).await;
    let (held, wanted) = (holder.begin(60_000).await, waiter.begin(60_000).await);
    holder.branch(&held, DATABASE, "t:1").await;
    let register = branch(&wanted, BranchType::At, DATABASE, "t:1");
    waiter.send(&Message::BranchRegister(register), MessageKind::Request).await;
    // It is in the queue once the request behind it is answered.
    waiter.begin(60_000).await;
    waiter.hang_up().await;
    holder.commit(&held).await;
    let next = holder.begin(60_000).await;
    holder.branch(&next, DATABASE, "t:1").await;
}

#[tokio::test]
async fn a_conflict_is_answered_after_the_wait() {
    let server = start_with(|seata| seata.lock_wait_ms = 20).await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let (held, wanted) = (rm.begin(60_000).await, rm.begin(60_000).await);
    rm.branch(&held, DATABASE, "t:1").await;
    let refused = rm.register_branch(branch(&wanted, BranchType::At, DATABASE, "t:2,1")).await;
    assert_eq!(refused.result.unwrap_err().code, ExceptionCode::LockKeyConflict);
    assert_eq!(refused.branch_id, 0);
    rm.branch(&held, DATABASE, "t:1").await;
    rm.branch(&wanted, DATABASE, "t:2").await;
    rm.branch(&wanted, "jdbc:mysql://another/demo", "t:1").await;
}

/// The numbers of the code differ between these versions; the client reads its own.
#[tokio::test]
async fn a_client_with_rows_of_a_rollback_fails_fast() {
    let server = start_with(|seata| seata.phase_two_wait_ms = 10).await;
    for (version, told) in [
        // This version has no such code.
        ("1.4.2", ExceptionCode::LockKeyConflict),
        ("1.5.0", ExceptionCode::LockKeyConflictFailFast),
        ("1.8.0", ExceptionCode::LockKeyConflictFailFast),
        ("2.0.0", ExceptionCode::LockKeyConflictFailFast),
        ("2.6.0", ExceptionCode::LockKeyConflictFailFast),
    ] {
        let mut rm = Client::rm(&server, version, DATABASE).await;
        let (held, wanted) = (rm.begin(60_000).await, rm.begin(60_000).await);
        rm.branch(&held, DATABASE, "t:1").await;
        assert_eq!(rm.roll_back(&held).await, GlobalStatus::RollbackRetrying);
        let mut register = branch(&wanted, BranchType::At, DATABASE, "t:1");
        let conflict = rm.register_branch(register.clone()).await.result.unwrap_err().code;
        assert_eq!(conflict, ExceptionCode::LockKeyConflict, "{version}");
        register.application_data = r#"{"autoCommit":false}"#.to_owned();
        let conflict = rm.register_branch(register).await.result.unwrap_err().code;
        assert_eq!(conflict, told, "{version}");
        rm.carry_out_rollback().await;
        rm.reaches(&held, GlobalStatus::Rollbacked).await;
    }
}

#[tokio::test]
async fn rows_are_lockable_for_their_holder() {
    let server = start_with(|seata| seata.lock_wait_ms = 1).await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let (held, other) = (rm.begin(60_000).await, rm.begin(60_000).await);
    rm.branch(&held, DATABASE, "t:1").await;
    for (xid, key, lockable) in [
        (held.as_str(), "t:1", true),
        (&other, "t:1", false),
        (&other, "t:2", true),
        ("", "t:1", false),
        ("", "t:2", true),
        ("127.0.0.1:8091:99", "t:1", false),
        // A table without rows, as in seata-go's query about a read that matched none.
        (&other, "t:", true),
        ("", "t:", true),
        (&other, "u:;t:1", false),
    ] {
        let query = branch(xid, BranchType::At, DATABASE, key);
        let answer = rm.ask(Message::GlobalLockQuery(query)).await;
        let expected = GlobalLockQueried { result: Ok(()), lockable };
        assert_eq!(answer, Message::GlobalLockQueryResult(expected), "{xid} {key}");
    }
}

/// Seata Server accepts it too.
#[tokio::test]
async fn a_lock_key_without_rows_locks_none() {
    let server = start().await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    for key in ["order_tbl:", "order_tbl:;stock_tbl:1"] {
        let xid = rm.begin(60_000).await;
        rm.branch(&xid, DATABASE, key).await;
        let locks = page(&server, "locks").await;
        assert!(!locks.contains("order_tbl"), "{locks}");
        assert_eq!(locks.contains("stock_tbl"), key.contains("stock_tbl"), "{locks}");
    }
}

#[tokio::test]
async fn a_malformed_lock_key_is_refused() {
    let server = start().await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = rm.begin(60_000).await;
    let refused = rm.register_branch(branch(&xid, BranchType::At, DATABASE, "no colon")).await;
    assert_eq!(refused.result.unwrap_err().code, ExceptionCode::BranchRegisterFailed);
}
