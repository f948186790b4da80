//! The process that registered a branch is called first, and no other process ends a branch that it
//! does not know.

use std::time::{Duration, Instant};

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::Message;
use handfast_seata_wire::value::{BranchStatus, BranchType, GlobalStatus};
use handfast_seata_wire::{Encoding, Package, Serializer};
use handfast_server::serve::RunningServer;
use tokio::time::timeout;

use crate::client::{Client, PATIENCE, branch, end, start, start_as, start_at};

const DATABASE: &str = "jdbc:mariadb://127.0.0.1:3306/seata";

const UNKNOWN: BranchStatus = BranchStatus::PhaseTwoCommitFailedXaerNotaRetryable;

/// Time limits of globals whose end a test waits for, in the order in which they are tried: on a
/// busy machine a global may time out before its commit is requested.
const LIMITS_MS: [u16; 3] = [500, 3_000, 12_000];

async fn service(server: &RunningServer, application: &str) -> Client {
    let mut client = Client::connect(server, "2.3.0").await;
    client.application = application.to_owned();
    client.register_rm(DATABASE).await.outcome.unwrap();
    client
}

/// Lost were minutes: with four services on one MariaDB, each with a branch of the global, calls
/// went to all in turn, and a branch was offered to the wrong services first.
#[tokio::test]
async fn each_service_is_called_for_its_own_branch() {
    let server = start().await;
    let mut services = Vec::new();
    for application in ["business", "order", "storage", "account"] {
        services.push(service(&server, application).await);
    }
    let mut tm = Client::tm(&server, "2.3.0").await;
    for kind in [BranchType::Xa, BranchType::At] {
        let xid = tm.begin(60_000).await;
        let mut ids = Vec::new();
        // In a different order than that of the connections.
        for at in [2, 0, 3, 1] {
            let row = format!("t:{at}");
            let registered = services[at].register_branch(branch(&xid, kind, DATABASE, &row)).await;
            registered.result.unwrap();
            ids.push((at, registered.branch_id));
        }
        let committed = tm.send(&Message::GlobalCommit(end(&xid)), MessageKind::Request).await;
        for (at, branch_id) in ids {
            assert_eq!(services[at].carry_out_commit().await.branch_id, branch_id, "of {at}");
        }
        let Message::GlobalCommitResult(ended) = tm.answer_to(committed).await else { panic!() };
        assert_eq!(ended.status, GlobalStatus::Committed);
    }
}

/// Its branches are found by the part of its name that survives a reconnect.
#[tokio::test]
async fn a_service_keeps_its_branch_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_at(directory.path()).await;
    let mut order = service(&server, "order").await;
    let mut xids = Vec::new();
    for _ in 0..4 {
        let xid = order.begin(60_000).await;
        order.register_branch(branch(&xid, BranchType::Xa, DATABASE, "")).await.result.unwrap();
        xids.push(xid);
    }
    drop(order);
    server.shutdown().await.unwrap();

    let server = start_at(directory.path()).await;
    let mut storage = service(&server, "storage").await;
    let mut order = service(&server, "order").await;
    for xid in &xids {
        let (status, asked) = tokio::join!(storage.commit(xid), order.carry_out_commit());
        assert_eq!((status, &asked.xid), (GlobalStatus::Committed, xid));
    }
}

/// Regression: an answer of another process ended the branch, the global counted as committed, and
/// the branch stayed prepared in the process that had it.
#[tokio::test]
async fn an_unknown_branch_ends_only_by_its_owner() {
    for limit_ms in LIMITS_MS {
        if Box::pin(ends_only_by_its_owner(limit_ms)).await {
            return;
        }
    }
    panic!("no global was committed in time");
}

/// Returns whether the commit came before the time limit of the global.
async fn ends_only_by_its_owner(limit_ms: u16) -> bool {
    let server = start_as(|config| {
        config.seata.xa_unknown_wait_ms = 0;
        config.seata.phase_two_wait_ms = 1;
        config.dispatch.answer_timeout_ms = 50;
    })
    .await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut order = service(&server, "order").await;
    let mut storage = service(&server, "storage").await;
    let begun = Instant::now();
    let xid = tm.begin(limit_ms.into()).await;
    let registered = order.register_branch(branch(&xid, BranchType::Xa, DATABASE, "")).await;
    if registered.result.is_err() || !commits(&mut tm, &xid).await {
        return false;
    }
    // The owner hangs, and its connection does not end.
    let (id, call) = order.called().await;
    let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
    // The recovery time is over when the global's time limit has passed twice.
    while begun.elapsed() < Duration::from_millis(u64::from(limit_ms) * 4) {
        let (id, call) = storage.called().await;
        let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
        storage.answer_commit(id, &asked, UNKNOWN).await;
        let status = tm.status(&xid).await;
        assert_ne!(status, GlobalStatus::Committed, "by a process that never had it");
    }
    order.answer_commit(id, &asked, UNKNOWN).await;
    tokio::select! {
        () = tm.reaches(&xid, GlobalStatus::Committed) => {}
        never = deny(&mut storage) => never,
        never = deny(&mut order) => never,
    }
    true
}

/// Requests a commit, and returns whether it came before the time limit of the global.
async fn commits(tm: &mut Client, xid: &str) -> bool {
    let told = tm.commit(xid).await;
    [GlobalStatus::Committed, GlobalStatus::CommitRetrying].contains(&told)
}

/// Answers every call with *unknown*.
async fn deny(client: &mut Client) -> ! {
    loop {
        let (id, call) = client.called().await;
        let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
        client.answer_commit(id, &asked, UNKNOWN).await;
    }
}

/// Its prepared branches belong to the database as a whole then.
#[tokio::test]
async fn an_unknown_branch_of_a_gone_owner_ends_by_any() {
    for limit_ms in LIMITS_MS {
        if Box::pin(ends_without_its_owner(limit_ms)).await {
            return;
        }
    }
    panic!("no global was committed in time");
}

/// Returns whether the commit came before the time limit of the global.
async fn ends_without_its_owner(limit_ms: u16) -> bool {
    let server = start_as(|config| {
        config.seata.xa_unknown_wait_ms = 100;
        config.seata.phase_two_wait_ms = 1;
    })
    .await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut order = service(&server, "order").await;
    let mut storage = service(&server, "storage").await;
    let xid = tm.begin(limit_ms.into()).await;
    let registered = order.register_branch(branch(&xid, BranchType::Xa, DATABASE, "")).await;
    order.hang_up().await;
    if registered.result.is_err() || !commits(&mut tm, &xid).await {
        return false;
    }
    tokio::select! {
        () = tm.reaches(&xid, GlobalStatus::Committed) => {}
        never = deny(&mut storage) => never,
    }
    true
}

/// Regression: the answer of a process that has the database without XA counted as a refusal, for
/// which an operator is needed.
#[tokio::test]
async fn a_process_without_xa_refuses_no_branch_of_another() {
    let server = start_as(|config| config.dispatch.answer_timeout_ms = 50).await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut order = service(&server, "order").await;
    let mut storage = service(&server, "storage").await;
    let xid = tm.begin(60_000).await;
    order.register_branch(branch(&xid, BranchType::Xa, DATABASE, "")).await.result.unwrap();
    let rollback = tm.send(&Message::GlobalRollback(end(&xid)), MessageKind::Request).await;
    order.called().await;
    let (id, call) = storage.called().await;
    let Message::BranchRollback(asked) = call else { panic!("{call:?}") };
    let no_xa = BranchStatus::PhaseTwoRollbackFailedUnretryable;
    storage.answer_rollback(id, &asked, no_xa).await;
    // The owner is silent, so any process is called next.
    tokio::select! {
        _ = order.carry_out_rollback() => {}
        _ = storage.carry_out_rollback() => {}
    }
    let Message::GlobalRollbackResult(ended) = tm.answer_to(rollback).await else { panic!() };
    assert_eq!(ended.status, GlobalStatus::Rollbacked);
}

/// Regression: a process counted as silent although it was not called, since the call could not be
/// written, and the call waited for its time limit.
#[tokio::test]
async fn a_call_that_cannot_be_written_goes_to_another_process() {
    let server = start_as(|config| config.dispatch.answer_timeout_ms = 600_000).await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut order = service(&server, "order").await;
    let mut storage = service(&server, "storage").await;
    let xid = tm.begin(60_000).await;
    order.register_branch(branch(&xid, BranchType::Xa, DATABASE, "")).await.result.unwrap();
    // This serializer has no XA branches.
    let serializer = Serializer::Protobuf(Package::OrgApacheSeata);
    order.encoding = Encoding { serializer, ..Encoding::default() };
    assert_eq!(order.status(&xid).await, GlobalStatus::Begin);
    let committed = tm.send(&Message::GlobalCommit(end(&xid)), MessageKind::Request).await;
    let asked = timeout(PATIENCE, storage.carry_out_commit()).await.expect("it is not called");
    assert_eq!(asked.xid, xid);
    let Message::GlobalCommitResult(ended) = tm.answer_to(committed).await else { panic!() };
    assert_eq!(ended.status, GlobalStatus::Committed);
}
