//! Where phase two goes, and what its answers mean.

use handfast_seata_wire::encode;
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{BranchEnd, BranchEnded, Message};
use handfast_seata_wire::value::{BranchStatus, BranchType, GlobalStatus};

use crate::client::{Client, branch, end, start, start_with};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";

#[tokio::test]
async fn another_process_carries_on_when_the_first_is_gone() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut first = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    let branch_id = first.branch(&xid, DATABASE, "t:1").await;
    let (status, call) = tokio::join!(tm.roll_back(&xid), async {
        let (_, call) = first.called().await;
        assert!(matches!(call, Message::BranchRollback(_)));
        let mut second = Client::rm(&server, "2.3.0", DATABASE).await;
        drop(first);
        second.carry_out_rollback().await
    });
    assert_eq!((status, call.branch_id), (GlobalStatus::Rollbacked, branch_id));
}

#[tokio::test]
async fn phase_two_waits_until_a_process_registers() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut first = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    first.branch(&xid, DATABASE, "t:1").await;
    drop(first);
    let (status, ()) = tokio::join!(tm.roll_back(&xid), async {
        let mut later = Client::rm(&server, "2.3.0", "another,and another").await;
        later.register_rm(DATABASE).await.outcome.unwrap();
        later.carry_out_rollback().await;
    });
    assert_eq!(status, GlobalStatus::Rollbacked);
}

#[tokio::test]
async fn an_answer_may_come_on_another_connection() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    rm.branch(&xid, DATABASE, "t:1").await;
    tm.commit(&xid).await;
    let (id, call) = rm.called().await;
    let Message::BranchCommit(end) = call else { panic!("{call:?}") };
    tm.answer_commit(id, &end, BranchStatus::PhaseTwoCommitted).await;
    tm.answer_commit(id, &end, BranchStatus::PhaseTwoCommitted).await;
    tm.reaches(&xid, GlobalStatus::Committed).await;
}

#[tokio::test]
async fn a_failed_answer_is_asked_for_again() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    rm.branch(&xid, DATABASE, "t:1").await;
    let (status, ()) = tokio::join!(tm.roll_back(&xid), async {
        for _ in 0..2 {
            let (id, call) = rm.called().await;
            let Message::BranchRollback(end) = call else { panic!("{call:?}") };
            let again = BranchStatus::PhaseTwoRollbackFailedRetryable;
            rm.answer_rollback(id, &end, again).await;
        }
        rm.carry_out_rollback().await;
    });
    assert_eq!(status, GlobalStatus::Rollbacked);
}

#[tokio::test]
async fn dirty_rows_are_a_failed_rollback() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    rm.branch(&xid, DATABASE, "t:1").await;
    let (status, ()) = tokio::join!(tm.roll_back(&xid), async {
        let (id, call) = rm.called().await;
        let Message::BranchRollback(end) = call else { panic!("{call:?}") };
        let never = BranchStatus::PhaseTwoRollbackFailedUnretryable;
        rm.answer_rollback(id, &end, never).await;
    });
    assert_eq!(status, GlobalStatus::RollbackFailed);
}

#[tokio::test]
async fn a_decision_is_answered_although_phase_two_takes_long() {
    let server = start_with(|seata| seata.phase_two_wait_ms = 50).await;
    let mut client = Client::rm(&server, "2.3.0", "deduct").await;
    for (commits, expected) in
        [(true, GlobalStatus::CommitRetrying), (false, GlobalStatus::RollbackRetrying)]
    {
        let xid = client.begin(60_000).await;
        let action = branch(&xid, BranchType::Tcc, "deduct", "");
        client.register_branch(action).await.result.unwrap();
        let status = if commits { client.commit(&xid).await } else { client.roll_back(&xid).await };
        assert_eq!(status, expected);
    }
}

#[tokio::test]
async fn a_client_is_called_by_its_own_name_of_a_database() {
    let server = start().await;
    let dsn = "root:12345678@tcp(127.0.0.1:3306)/demo";
    let mut client = Client::rm(&server, "1.5.2", dsn).await;
    let xid = client.begin(60_000).await;
    client.branch(&xid, dsn, "t:1").await;
    client.commit(&xid).await;
    assert_eq!(client.carry_out_commit().await.resource_id, dsn);
    client.reaches(&xid, GlobalStatus::Committed).await;
}

#[tokio::test]
async fn a_password_in_a_name_is_not_shown() {
    let server = start().await;
    let mut client = Client::rm(&server, "1.5.2", "root:12345678@tcp(db:3306)/demo").await;
    let xid = client.begin(60_000).await;
    client.branch(&xid, "root:12345678@tcp(db:3306)/demo", "t:1").await;
    // Fails only if another test has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let transaction = format!("transactions/{xid}");
    for page in ["processes", "resources", "locks", transaction.as_str()] {
        let url = format!("http://{}/api/v1/{page}", server.admin_address);
        let text = http.get(url).send().await.unwrap().text().await.unwrap();
        assert!(text.contains("root:***@tcp(db:3306)/demo"), "{page}: {text}");
        assert!(!text.contains("12345678"), "{page}: {text}");
    }
}

/// Where no further request may be under way, the one that is waits for just this answer.
#[tokio::test]
async fn an_answer_counts_although_there_is_no_room_for_the_request_behind_it() {
    let server = start_with(|seata| seata.requests_max = 1).await;
    let mut client = Client::rm(&server, "2.3.0", "deduct").await;
    let xid = client.begin(60_000).await;
    client.register_branch(branch(&xid, BranchType::Tcc, "deduct", "")).await.result.unwrap();
    let commit = client.send(&Message::GlobalCommit(end(&xid)), MessageKind::Request).await;
    let (id, call) = client.called().await;
    let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
    let BranchEnd { xid: asked_of, branch_id, .. } = asked;
    let status = BranchStatus::PhaseTwoCommitted;
    let done = BranchEnded { result: Ok(()), xid: asked_of, branch_id, status };
    // In one write, so that they are read at once.
    let mut both = Vec::new();
    for (message, kind, id) in [
        (Message::BranchCommitResult(done), MessageKind::Answer, id),
        (Message::GlobalStatus(end(&xid)), MessageKind::Request, 1_000),
    ] {
        encode(&message, kind, id, client.encoding, &client.dialect, &mut both).unwrap();
    }
    client.send_bytes(&both).await;
    let Message::GlobalCommitResult(ended) = client.answer_to(commit).await else { panic!() };
    assert_eq!(ended.status, GlobalStatus::Committed, "and not that it takes too long");
    client.answer_to(1_000).await;
}
