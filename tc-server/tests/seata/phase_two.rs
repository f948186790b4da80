//! Phase two: the process that is called, and the effect of its answers.

use std::io::Write;
use std::sync::{Arc, Mutex};

use handfast_seata_wire::encode;
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{BranchEnd, BranchEnded, Message};
use handfast_seata_wire::value::{BranchStatus, BranchType, GlobalStatus};
use handfast_test_services::until;

use crate::client::{Client, branch, end, page, start, start_as, start_at, start_with};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";

#[tokio::test]
async fn another_process_continues_after_a_disconnect() {
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

/// Otherwise an action that takes longer than the dispatcher waits would never count as done.
#[tokio::test]
async fn an_answer_counts_after_another_process_was_called() {
    let server = start_as(|config| config.dispatch.answer_timeout_ms = 50).await;
    let mut first = Client::rm(&server, "2.3.0", "deduct").await;
    let xid = first.begin(60_000).await;
    first.register_branch(branch(&xid, BranchType::Tcc, "deduct", "")).await.result.unwrap();
    let commit = first.send(&Message::GlobalCommit(end(&xid)), MessageKind::Request).await;
    let (id, call) = first.called().await;
    let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
    let mut second = Client::rm(&server, "2.3.0", "deduct").await;
    second.called().await;
    first.answer_commit(id, &asked, BranchStatus::PhaseTwoCommitted).await;
    let Message::GlobalCommitResult(ended) = first.answer_to(commit).await else { panic!() };
    assert_eq!(ended.status, GlobalStatus::Committed);
}

#[tokio::test]
async fn a_failed_answer_is_retried() {
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
    client.register_rm("host=db user=u password=12345678").await.outcome.unwrap();
    let xid = client.begin(60_000).await;
    client.branch(&xid, "root:12345678@tcp(db:3306)/demo", "t:1").await;
    for kind in [BranchType::Tcc, BranchType::SagaAnnotation] {
        let no_action = branch(&xid, kind, "root:12345678@tcp(db:3306)/demo", "");
        client.register_branch(no_action).await.result.unwrap_err();
    }
    let transaction = format!("transactions/{xid}");
    for name in ["processes", "resources", "locks", transaction.as_str()] {
        let text = page(&server, name).await;
        assert!(text.contains("root:***@tcp(db:3306)/demo"), "{name}: {text}");
        assert!(!text.contains("12345678"), "{name}: {text}");
    }
}

/// seata-go and Java cut a name at its first `?`, even within the password. Such a name may also be
/// an action's, so it is kept as one and not listed.
#[tokio::test]
async fn a_cut_password_in_a_name_is_masked() {
    let server = start().await;
    let names = ["root:12345678", "root:p@12345678", "jdbc:a://root:12345678", "root:x/12345678"];
    let mut client = Client::rm(&server, "2.3.0", &names.join(",")).await;
    let mut pages = Vec::new();
    for name in names {
        let xid = client.begin(60_000).await;
        client.branch(&xid, name, "t:1").await;
        pages.push((xid.clone(), page(&server, &format!("transactions/{xid}")).await));
    }
    for name in ["processes", "resources", "locks"] {
        pages.push((name.to_owned(), page(&server, name).await));
    }
    for (name, text) in &pages {
        assert!(text.contains("root:***~"), "{name}: {text}");
        assert!(!text.contains("12345678"), "{name}: {text}");
    }
    for ((xid, _), name) in pages.iter().zip(names) {
        assert_eq!(client.commit(xid).await, GlobalStatus::Committed);
        assert_eq!(client.carry_out_commit().await.resource_id, name, "and not another");
    }
}

/// Masking a part that looks like a password would give two actions the same name, and the wrong
/// one could be called.
#[tokio::test]
async fn an_action_named_like_a_password_keeps_its_name() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.3.0", "stock:deduct@v2,stock:refund@v2").await;
    for kind in [BranchType::Tcc, BranchType::SagaAnnotation] {
        for action in ["stock:deduct@v2", "stock:refund@v2"] {
            let xid = client.begin(60_000).await;
            client.register_branch(branch(&xid, kind, action, "")).await.result.unwrap();
            let mut tm = Client::tm(&server, "2.3.0").await;
            let (_, call) = tokio::join!(tm.roll_back(&xid), client.carry_out_rollback());
            assert_eq!((call.branch_type, call.resource_id.as_str()), (kind, action));
        }
    }
}

/// It may answer an earlier call after a reconnect, or is called again.
#[tokio::test]
async fn a_reconnected_client_answers_earlier_calls() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut first = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    first.branch(&xid, DATABASE, "t:1").await;
    let asked = tm.send(&Message::GlobalRollback(end(&xid)), MessageKind::Request).await;
    let (id, call) = first.called().await;
    let Message::BranchRollback(earlier) = call else { panic!("{call:?}") };
    drop(first);
    let mut again = Client::rm(&server, "2.3.0", DATABASE).await;
    again.answer_rollback(id, &earlier, BranchStatus::PhaseTwoRollbacked).await;
    let ended = tokio::select! {
        ended = tm.answer_to(asked) => ended,
        never = async { loop { again.carry_out_rollback().await; } } => never,
    };
    let Message::GlobalRollbackResult(ended) = ended else { panic!("another answer") };
    assert_eq!(ended.status, GlobalStatus::Rollbacked);
}

/// Each coordinator counts its calls from one.
#[tokio::test]
async fn an_answer_to_an_earlier_coordinator_ends_no_other_call() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_at(directory.path()).await;
    let mut client = Client::rm(&server, "2.3.0", DATABASE).await;
    let xids = [client.begin(60_000).await, client.begin(60_000).await];
    for (row, xid) in xids.iter().enumerate() {
        client.branch(xid, DATABASE, &format!("t:{row}")).await;
    }
    assert_eq!(client.commit(&xids[0]).await, GlobalStatus::Committed);
    let (id, call) = client.called().await;
    let Message::BranchCommit(earlier) = call else { panic!("{call:?}") };
    drop(client);
    server.shutdown().await.unwrap();

    let server = start_at(directory.path()).await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    assert_eq!(tm.commit(&xids[1]).await, GlobalStatus::Committed);
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let (first, second) = (rm.called().await, rm.called().await);
    assert!(first.0 == id || second.0 == id, "the id of the earlier call is not given again");
    let is_of_other =
        |call: &Message| matches!(call, Message::BranchCommit(it) if it.xid != earlier.xid);
    let (other, _) = if is_of_other(&first.1) { &first } else { &second };
    rm.answer_commit(*other, &earlier, BranchStatus::PhaseTwoCommitted).await;
    // The second is read when what came before the first is recorded.
    for _ in 0..2 {
        assert_eq!(rm.ask(Message::Ping).await, Message::Pong);
    }
    assert_eq!(tm.status(&xids[1]).await, GlobalStatus::AsyncCommitting);
    for (id, call) in [first, second] {
        let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
        rm.answer_commit(id, &asked, BranchStatus::PhaseTwoCommitted).await;
    }
    for xid in &xids {
        tm.reaches(xid, GlobalStatus::Committed).await;
    }
}

/// Clients repeat the request if the connection breaks before the answer.
#[tokio::test]
async fn a_repeated_commit_on_another_connection_is_answered() {
    let server = start().await;
    let mut rm = Client::rm(&server, "2.3.0", "deduct").await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let xid = tm.begin(60_000).await;
    rm.register_branch(branch(&xid, BranchType::Tcc, "deduct", "")).await.result.unwrap();
    tm.send(&Message::GlobalCommit(end(&xid)), MessageKind::Request).await;
    let (id, call) = rm.called().await;
    let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
    drop(tm);
    let mut again = Client::tm(&server, "2.3.0").await;
    let (status, ()) = tokio::join!(
        again.commit(&xid),
        rm.answer_commit(id, &asked, BranchStatus::PhaseTwoCommitted)
    );
    assert_eq!(status, GlobalStatus::Committed);
    assert_eq!(again.commit(&xid).await, GlobalStatus::Committed);
}

/// If no further request may be in progress, the one in progress waits for just this answer.
#[tokio::test]
async fn an_answer_counts_before_an_excess_request() {
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
    // In one write, so that they are read together.
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

#[tokio::test]
async fn an_unknown_xa_branch_is_retried() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    rm.register_branch(branch(&xid, BranchType::Xa, DATABASE, "")).await.result.unwrap();
    let (status, ()) = tokio::join!(tm.commit(&xid), async {
        let (id, call) = rm.called().await;
        let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
        let unknown = BranchStatus::PhaseTwoCommitFailedXaerNotaRetryable;
        rm.answer_commit(id, &asked, unknown).await;
        rm.carry_out_commit().await;
    });
    assert_eq!(status, GlobalStatus::Committed);
}

/// Captures the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The runtime has one thread, so everything that the coordinator logs passes this subscriber.
#[tokio::test]
async fn a_password_in_a_name_is_not_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // With a second subscriber, this one is consulted for each line, even for one that comes first
    // on a thread of another test; alone it is not.
    let silent = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
    let _second = tracing::Dispatch::new(silent);
    let _logged = tracing::subscriber::set_default(subscriber);
    let server = start().await;
    let dsn = "root:12345678@tcp(db:3306)/demo";
    let mut rm = Client::rm(&server, "1.5.2", dsn).await;
    let mut other = Client::rm(&server, "1.5.2", "another").await;
    let xid = other.begin(60_000).await;
    let refused = rm.register_branch(branch(&xid, BranchType::At, dsn, "no colon")).await;
    refused.result.unwrap_err();
    rm.branch(&xid, dsn, "t:1").await;
    other.commit(&xid).await;
    let (id, call) = rm.called().await;
    let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
    drop(rm);
    until("it has left", async || !page(&server, "processes").await.contains("db:3306")).await;
    // An answer of a client that has not registered the resource does not count.
    other.answer_commit(id, &asked, BranchStatus::PhaseTwoCommitted).await;
    let mut again = Client::rm(&server, "1.5.2", dsn).await;
    again.carry_out_commit().await;
    other.reaches(&xid, GlobalStatus::Committed).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("root:***@tcp(db:3306)/demo"), "{text}");
    assert!(!text.contains("12345678"), "{text}");
}
