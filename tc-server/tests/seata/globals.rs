//! Globals from their beginning to their end, and after.

use handfast_seata_wire::message::{BranchReport, Message};
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus};
use handfast_test_services::until;

use crate::client::{Client, PATIENCE, branch, page, post, report, start, start_at};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";

#[tokio::test]
async fn a_global_of_at_is_committed_before_phase_two() {
    let server = start().await;
    let mut tm = Client::tm(&server, "1.8.0").await;
    let mut rm = Client::rm(&server, "1.8.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    let mut register = branch(&xid, BranchType::At, DATABASE, "stock_tbl:1,2");
    register.application_data = r#"{"autoCommit":false}"#.to_owned();
    let branch_id = rm.register_branch(register).await.branch_id;
    assert!(branch_id > 0);
    assert_eq!(tm.commit(&xid).await, GlobalStatus::Committed);
    let call = rm.carry_out_commit().await;
    assert_eq!((call.xid.as_str(), call.branch_id), (xid.as_str(), branch_id));
    assert_eq!(call.resource_id, DATABASE);
    assert_eq!(call.application_data, r#"{"autoCommit":false}"#);
    tm.reaches(&xid, GlobalStatus::Committed).await;
    assert_eq!(tm.commit(&xid).await, GlobalStatus::Committed, "again, from the history");
    assert_eq!(tm.roll_back(&xid).await, GlobalStatus::Committed, "too late");
}

/// The protocol has no field for labels: they stand at the end of the name.
#[tokio::test]
async fn labels_are_read_from_the_name() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let begun = tm.begin_named("place-order{order=42,country=de}", 60_000).await;
    tm.begin_named("place-order{order=43}", 60_000).await;
    tm.begin_named("placeOrder(java.lang.String)", 60_000).await;
    let found = page(&server, "transactions?label=order%3D42").await;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let items = found["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{found}");
    assert_eq!(items[0]["xid"], begun.xid);
    assert_eq!(items[0]["name"], "place-order{order=42,country=de}", "the name stays");
    assert_eq!(items[0]["labels"]["country"], "de");
    // A saga's machine begins in another way.
    let begun = tm.begin_named("$Saga_ship{order=44}", 60_000).await;
    let found = page(&server, "transactions?label=order%3D44").await;
    assert!(found.contains(&begun.xid), "{found}");
}

#[tokio::test]
async fn a_rollback_undoes_the_latest_branch_first() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    let first = rm.branch(&xid, DATABASE, "t:1").await;
    let second = rm.branch(&xid, DATABASE, "t:2").await;
    let (status, order) = tokio::join!(tm.roll_back(&xid), async {
        [rm.carry_out_rollback().await.branch_id, rm.carry_out_rollback().await.branch_id]
    });
    assert_eq!((status, order), (GlobalStatus::Rollbacked, [second, first]));
    assert_eq!(tm.roll_back(&xid).await, GlobalStatus::Rollbacked);
    assert_eq!(tm.commit(&xid).await, GlobalStatus::TimeoutRollbacked, "never 'committed'");
}

#[tokio::test]
async fn a_client_before_0_7_takes_part_in_its_own_frames() {
    let server = start().await;
    let mut tm = Client::tm(&server, "0.6.1").await;
    let mut rm = Client::rm(&server, "0.6.1", DATABASE).await;
    assert_eq!(tm.ask(Message::Ping).await, Message::Pong);
    let xid = tm.begin(60_000).await;
    let committed = rm.branch(&xid, DATABASE, "t:1").await;
    assert_eq!(tm.commit(&xid).await, GlobalStatus::Committed);
    assert_eq!(rm.carry_out_commit().await.branch_id, committed);
    let xid = tm.begin(60_000).await;
    let undone = rm.branch(&xid, DATABASE, "t:1").await;
    let (status, called) = tokio::join!(tm.roll_back(&xid), rm.carry_out_rollback());
    assert_eq!((status, called.branch_id), (GlobalStatus::Rollbacked, undone));
    // In addition to the current ones.
    let mut other = Client::tm(&server, "2.3.0").await;
    assert_eq!(other.status(&xid).await, GlobalStatus::Rollbacked);
}

#[tokio::test]
async fn an_unknown_global_is_finished() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    for xid in ["127.0.0.1:8091:99", "nonsense"] {
        assert_eq!(tm.commit(xid).await, GlobalStatus::Finished);
        assert_eq!(tm.roll_back(xid).await, GlobalStatus::Finished);
        assert_eq!(tm.status(xid).await, GlobalStatus::Finished);
        let refused = tm.register_branch(branch(xid, BranchType::At, "r", "t:1")).await;
        let failure = refused.result.unwrap_err();
        assert_eq!(failure.code, ExceptionCode::GlobalTransactionNotExist);
    }
}

#[tokio::test]
async fn a_global_is_rolled_back_at_its_deadline() {
    let server = start().await;
    let mut tm = Client::tm(&server, "1.7.0").await;
    let mut rm = Client::rm(&server, "1.7.0", DATABASE).await;
    let (xid, branch_id) = branch_before_the_deadline(&mut tm, &mut rm).await;
    assert_eq!(rm.carry_out_rollback().await.branch_id, branch_id);
    tm.reaches(&xid, GlobalStatus::TimeoutRollbacked).await;
    assert_eq!(tm.commit(&xid).await, GlobalStatus::TimeoutRollbacked);
    let late = rm.register_branch(branch(&xid, BranchType::At, DATABASE, "t:1")).await;
    let code = late.result.unwrap_err().code;
    assert_eq!(code, ExceptionCode::GlobalTransactionNotActive);
}

/// Registers a branch of a global that only its deadline ends. On a busy machine the deadline may
/// come first, and then a global with a later one is begun.
async fn branch_before_the_deadline(tm: &mut Client, rm: &mut Client) -> (String, i64) {
    for timeout_ms in [2_000, 8_000, 30_000] {
        let xid = tm.begin(timeout_ms).await;
        let wanted = branch(&xid, BranchType::At, DATABASE, "t:1");
        let registered = rm.register_branch(wanted).await;
        if registered.result.is_ok() {
            return (xid, registered.branch_id);
        }
    }
    panic!("no branch was registered in time");
}

#[tokio::test]
async fn a_commit_waits_for_branches_of_tcc() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.0.0").await;
    let mut rm = Client::rm(&server, "2.0.0", "deduct").await;
    let xid = tm.begin(60_000).await;
    let mut register = branch(&xid, BranchType::Tcc, "deduct", "");
    register.application_data = r#"{"actionContext":{"a":1}}"#.to_owned();
    rm.register_branch(register).await.result.unwrap();
    let (status, call) = tokio::join!(tm.commit(&xid), rm.carry_out_commit());
    assert_eq!(status, GlobalStatus::Committed);
    assert_eq!((call.branch_type, call.resource_id.as_str()), (BranchType::Tcc, "deduct"));
    assert_eq!(call.application_data, r#"{"actionContext":{"a":1}}"#);
}

#[tokio::test]
async fn a_failed_branch_is_not_called_again() {
    let server = start().await;
    let mut tm = Client::tm(&server, "1.8.0").await;
    let mut rm = Client::rm(&server, "1.8.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    let branch_id = rm.branch(&xid, DATABASE, "t:1").await;
    let failed = report(&xid, branch_id, BranchStatus::PhaseOneFailed, "");
    rm.report(BranchReport { branch_type: BranchType::At, ..failed }).await.unwrap();
    assert_eq!(tm.roll_back(&xid).await, GlobalStatus::Rollbacked, "there is no process to call");
}

const FIRST: &str = r#"{"actionContext":{"a":1}}"#;
const SECOND: &str = r#"{"actionContext":{"a":1,"b":"ä"}}"#;

async fn action(rm: &mut Client, xid: &str) -> i64 {
    let mut register = branch(xid, BranchType::Tcc, "deduct", "");
    register.application_data = FIRST.to_owned();
    let registered = rm.register_branch(register).await;
    registered.result.unwrap();
    registered.branch_id
}

/// A report without data must not erase earlier data.
#[tokio::test]
async fn phase_two_gets_the_data_of_a_report() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.0.0").await;
    let mut rm = Client::rm(&server, "2.0.0", "deduct").await;
    for (reports, expected) in [
        (&[(BranchStatus::Registered, SECOND), (BranchStatus::Registered, "")][..], SECOND),
        (&[(BranchStatus::Registered, SECOND), (BranchStatus::PhaseOneDone, "")], SECOND),
        (&[(BranchStatus::PhaseOneDone, SECOND)], SECOND),
        (&[(BranchStatus::PhaseOneTimeout, SECOND)], SECOND),
        (&[(BranchStatus::PhaseOneDone, "")], FIRST),
    ] {
        let xid = tm.begin(60_000).await;
        let branch_id = action(&mut rm, &xid).await;
        for &(status, data) in reports {
            rm.report(report(&xid, branch_id, status, data)).await.unwrap();
        }
        let (status, call) = tokio::join!(tm.roll_back(&xid), rm.carry_out_rollback());
        assert_eq!(status, GlobalStatus::Rollbacked);
        assert_eq!((call.branch_id, call.application_data.as_str()), (branch_id, expected));
    }
}

#[tokio::test]
async fn the_data_of_a_report_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_at(directory.path()).await;
    let mut client = Client::rm(&server, "2.0.0", "deduct").await;
    let xid = client.begin(60_000).await;
    let branch_id = action(&mut client, &xid).await;
    let changed = report(&xid, branch_id, BranchStatus::Registered, SECOND);
    client.report(changed).await.unwrap();
    drop(client);
    server.shutdown().await.unwrap();

    let server = start_at(directory.path()).await;
    let mut tm = Client::tm(&server, "2.0.0").await;
    let mut rm = Client::rm(&server, "2.0.0", "deduct").await;
    let (status, call) = tokio::join!(tm.commit(&xid), rm.carry_out_commit());
    assert_eq!((status, call.branch_id), (GlobalStatus::Committed, branch_id));
    assert_eq!(call.application_data, SECOND);
}

#[tokio::test]
async fn a_report_without_a_target_fails() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.0.0").await;
    let mut rm = Client::rm(&server, "2.0.0", "deduct").await;
    let xid = tm.begin(60_000).await;
    let branch_id = action(&mut rm, &xid).await;
    let (status, _) = tokio::join!(tm.commit(&xid), rm.carry_out_commit());
    assert_eq!(status, GlobalStatus::Committed);
    let live = tm.begin(60_000).await;
    action(&mut rm, &live).await;
    for (xid, code) in [
        (xid.as_str(), ExceptionCode::GlobalTransactionNotActive),
        (&live, ExceptionCode::BranchTransactionNotExist),
        ("127.0.0.1:8091:99", ExceptionCode::GlobalTransactionNotExist),
        ("nonsense", ExceptionCode::GlobalTransactionNotExist),
    ] {
        let late = report(xid, branch_id, BranchStatus::Registered, SECOND);
        assert_eq!(rm.report(late).await.unwrap_err().code, code, "{xid}");
    }
}

#[tokio::test]
async fn a_saga_ends_as_its_client_reports() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.3.0", "shop#default_tx_group").await;
    for (reported, ends) in [
        (GlobalStatus::Committed, GlobalStatus::Committed),
        (GlobalStatus::Rollbacked, GlobalStatus::Rollbacked),
    ] {
        let xid = client.begin(60_000).await;
        for step in ["pay", "ship"] {
            let step = branch(&xid, BranchType::Saga, step, "");
            client.register_branch(step).await.result.unwrap();
        }
        assert_eq!(client.report_saga(&xid, reported).await, reported);
        assert_eq!(client.status(&xid).await, ends);
    }
}

#[tokio::test]
async fn a_stuck_saga_is_returned_to_its_client() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.3.0", "shop#default_tx_group").await;
    let xid = client.begin(60_000).await;
    let step = branch(&xid, BranchType::Saga, "pay", "");
    client.register_branch(step.clone()).await.result.unwrap();
    client.report_saga(&xid, GlobalStatus::RollbackRetrying).await;
    client.register_branch(step).await.result.expect("a compensation, after the decision");
    let call = client.carry_out_rollback().await;
    assert_eq!((call.branch_id, call.branch_type), (-1, BranchType::Saga));
    assert_eq!(call.resource_id, "shop#default_tx_group");
    assert_eq!(call.application_data, "RollbackRetrying");
    client.reaches(&xid, GlobalStatus::Rollbacked).await;
}

const MACHINE: &str = "shop#default_tx_group";

async fn begin_saga(client: &mut Client, timeout_ms: i32) -> String {
    let begun = client.begin_named("$Saga_order", timeout_ms).await;
    begun.result.unwrap();
    begun.xid
}

/// By default the steps of a saga register no branches.
#[tokio::test]
async fn a_saga_without_steps_is_returned_too() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", MACHINE).await;
    let xid = begin_saga(&mut tm, 60_000).await;
    let word = GlobalStatus::RollbackRetrying;
    assert_eq!(tm.report_saga(&xid, word).await, word);
    let call = rm.carry_out_rollback().await;
    assert_eq!((call.branch_id, call.branch_type), (-1, BranchType::Saga));
    assert_eq!((call.xid, call.resource_id.as_str()), (xid.clone(), MACHINE));
    tm.reaches(&xid, GlobalStatus::Rollbacked).await;
}

#[tokio::test]
async fn a_saga_without_steps_is_rolled_back_at_its_deadline() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", MACHINE).await;
    let xid = begin_saga(&mut tm, 2_000).await;
    let (id, call) = rm.called().await;
    let Message::BranchRollback(asked) = call else { panic!("{call:?}") };
    assert_eq!((asked.branch_id, asked.application_data.as_str()), (-1, "TimeoutRollbacking"));
    assert_eq!(tm.status(&xid).await, GlobalStatus::TimeoutRollbacking);
    rm.answer_rollback(id, &asked, BranchStatus::PhaseTwoRollbacked).await;
    tm.reaches(&xid, GlobalStatus::TimeoutRollbacked).await;
}

#[tokio::test]
async fn a_saga_without_steps_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_at(directory.path()).await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let xid = begin_saga(&mut tm, 60_000).await;
    drop(tm);
    server.shutdown().await.unwrap();

    let server = start_at(directory.path()).await;
    let mut client = Client::rm(&server, "2.3.0", MACHINE).await;
    client.report_saga(&xid, GlobalStatus::RollbackRetrying).await;
    assert_eq!(client.carry_out_rollback().await.branch_id, -1);
    client.reaches(&xid, GlobalStatus::Rollbacked).await;
}

/// All registrations of steps find the same branch.
#[tokio::test]
async fn the_steps_of_a_saga_are_the_branch_of_its_begin() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut other = Client::connect(&server, "2.3.0").await;
    other.application = "another".to_owned();
    other.register_rm("another#default_tx_group").await.outcome.unwrap();
    let xid = begin_saga(&mut tm, 60_000).await;
    for client in [&mut tm, &mut other] {
        let step = branch(&xid, BranchType::Saga, "pay", "");
        client.register_branch(step).await.result.unwrap();
    }
    assert_eq!(tm.report_saga(&xid, GlobalStatus::Committed).await, GlobalStatus::Committed);
    assert_eq!(tm.status(&xid).await, GlobalStatus::Committed, "no process is called");
}

/// The decision stays, and a machine that has ended by itself is not called any more.
#[tokio::test]
async fn a_saga_that_ended_after_its_decision_is_not_called() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut rm = Client::rm(&server, "2.3.0", MACHINE).await;
    for (decided, ended, told) in [
        (GlobalStatus::RollbackRetrying, GlobalStatus::Committed, GlobalStatus::Rollbacked),
        (GlobalStatus::RollbackRetrying, GlobalStatus::Rollbacked, GlobalStatus::Rollbacked),
        (GlobalStatus::CommitRetrying, GlobalStatus::Committed, GlobalStatus::Committed),
        (GlobalStatus::CommitRetrying, GlobalStatus::Finished, GlobalStatus::Committed),
    ] {
        let xid = begin_saga(&mut tm, 60_000).await;
        assert_eq!(tm.report_saga(&xid, decided).await, decided);
        rm.called().await;
        assert_eq!(tm.report_saga(&xid, ended).await, told, "{decided:?} {ended:?}");
        assert_eq!(tm.status(&xid).await, told, "{decided:?} {ended:?}");
    }
    let resources = page(&server, "resources").await;
    let asked = |text: &str| resources.matches(text).count();
    assert_eq!(asked("\"asked_branches\":"), asked("\"asked_branches\":0"), "{resources}");
    assert_eq!(asked("\"waiting_branches\":"), asked("\"waiting_branches\":0"), "{resources}");
    assert!(asked("waiting_branches") > 0, "{resources}");
}

/// A machine that is to be committed may end differently. Then it has ended.
#[tokio::test]
async fn a_saga_that_ended_differently_is_not_called() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.3.0", MACHINE).await;
    for answer in [BranchStatus::PhaseTwoRollbacked, BranchStatus::PhaseOneFailed] {
        let xid = begin_saga(&mut client, 60_000).await;
        let step = branch(&xid, BranchType::Saga, "pay", "");
        client.register_branch(step).await.result.unwrap();
        client.report_saga(&xid, GlobalStatus::CommitRetrying).await;
        let (id, call) = client.called().await;
        let Message::BranchCommit(asked) = call else { panic!("{call:?}") };
        client.answer_commit(id, &asked, answer).await;
        let ended = client.reaches(&xid, GlobalStatus::Committed);
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        assert_eq!(ended, Ok(()), "{answer:?} does not count");
    }
}

#[tokio::test]
async fn a_report_of_an_unknown_saga_is_answered() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    for xid in ["127.0.0.1:8091:99", "nonsense"] {
        for word in [GlobalStatus::Committed, GlobalStatus::RollbackRetrying] {
            let answer = tm.report_saga(xid, word);
            let told = tokio::time::timeout(PATIENCE, answer).await;
            assert_eq!(told, Ok(word), "{xid}");
        }
    }
}

#[tokio::test]
async fn a_read_only_xa_branch_is_not_called() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = client.begin(60_000).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let registered = client.register_branch(branch(&xid, BranchType::Xa, DATABASE, "")).await;
        ids.push(registered.branch_id);
    }
    let read = report(&xid, ids[0], BranchStatus::PhaseOneRdonly, "");
    client.report(BranchReport { branch_type: BranchType::Xa, ..read }).await.unwrap();
    let mut tm = Client::tm(&server, "2.3.0").await;
    let (status, call) = tokio::join!(tm.commit(&xid), client.carry_out_commit());
    assert_eq!(status, GlobalStatus::Committed, "after phase two of the one that wrote");
    assert_eq!((call.branch_id, call.branch_type), (ids[1], BranchType::Xa));
}

#[tokio::test]
async fn an_annotated_saga_step_is_not_called_to_commit() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.3.0", "pay").await;
    for commits in [true, false] {
        let xid = client.begin(60_000).await;
        let step = branch(&xid, BranchType::SagaAnnotation, "pay", "");
        client.register_branch(step).await.result.unwrap();
        let mut tm = Client::tm(&server, "2.3.0").await;
        if commits {
            assert_eq!(tm.commit(&xid).await, GlobalStatus::Committed, "no process answered");
        } else {
            let (status, call) = tokio::join!(tm.roll_back(&xid), client.carry_out_rollback());
            assert_eq!(status, GlobalStatus::Rollbacked);
            assert_eq!(call.branch_type, BranchType::SagaAnnotation);
        }
    }
}

/// Its process has nothing left to do.
#[tokio::test]
async fn an_annotated_saga_step_commits_without_its_process() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut gone = Client::rm(&server, "2.3.0", "pay,ship").await;
    let xid = tm.begin(60_000).await;
    for action in ["pay", "ship", "pay"] {
        let step = branch(&xid, BranchType::SagaAnnotation, action, "");
        gone.register_branch(step).await.result.unwrap();
    }
    drop(gone);
    until("it has left", async || !page(&server, "processes").await.contains("pay")).await;
    let told = tokio::time::timeout(PATIENCE, tm.commit(&xid)).await;
    assert_eq!(told, Ok(GlobalStatus::Committed), "it waits for no process");
    let resources = page(&server, "resources").await;
    assert!(!resources.contains("pay"), "nothing is owed: {resources}");
}

/// A later action may depend on the effects of an earlier one.
#[tokio::test]
async fn annotated_steps_are_compensated_one_by_one() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.3.0", "order,pay,ship").await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let xid = client.begin(60_000).await;
    for action in ["ship", "order", "pay", "order"] {
        let step = branch(&xid, BranchType::SagaAnnotation, action, "");
        client.register_branch(step).await.result.unwrap();
    }
    let (status, rolled_back) = tokio::join!(tm.roll_back(&xid), async {
        let mut rolled_back = Vec::new();
        for _ in 0..4 {
            rolled_back.push(client.carry_out_rollback().await.resource_id);
        }
        rolled_back
    });
    assert_eq!(status, GlobalStatus::Rollbacked);
    assert_eq!(rolled_back, ["order", "pay", "order", "ship"]);
}

/// The rows stay as they are, and the process of the branch may be long gone.
#[tokio::test]
async fn rows_that_an_operator_accepts_need_no_process() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut gone = Client::rm(&server, "2.3.0", DATABASE).await;
    let xid = tm.begin(60_000).await;
    let branch_id = gone.branch(&xid, DATABASE, "t:1").await;
    let (status, ()) = tokio::join!(tm.roll_back(&xid), async {
        let (id, call) = gone.called().await;
        let Message::BranchRollback(end) = call else { panic!("{call:?}") };
        let never = BranchStatus::PhaseTwoRollbackFailedUnretryable;
        gone.answer_rollback(id, &end, never).await;
    });
    assert_eq!(status, GlobalStatus::RollbackFailed);
    // The row is free only after an operator has acted, so waiting for it is of no use.
    let wanted = tm.begin(60_000).await;
    let refused = gone.register_branch(branch(&wanted, BranchType::At, DATABASE, "t:1")).await;
    let refused = refused.result.unwrap_err();
    assert_eq!(refused.code, ExceptionCode::LockKeyConflictFailFast);
    assert!(refused.message.contains(&format!("handfast tx show {xid}")), "{}", refused.message);
    drop(gone);
    until("it has left", async || !page(&server, "processes").await.contains(DATABASE)).await;
    let resolve = format!("transactions/{xid}/branches/{branch_id}/resolve");
    post(&server, &resolve, r#"{"resolution":"accept_current"}"#).await;
    let ended = tokio::time::timeout(PATIENCE, tm.reaches(&xid, GlobalStatus::Rollbacked)).await;
    assert_eq!(ended, Ok(()), "it waits for no process");
}
