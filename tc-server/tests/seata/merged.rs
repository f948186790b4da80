//! Several requests in one frame, the form of nearly all requests of Java RMs.

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{MergeResult, MergedWarp, Message, RegisterResources};
use handfast_seata_wire::value::{BranchType, ExceptionCode, GlobalStatus};

use tokio::time::timeout;

use crate::client::{Client, PATIENCE, branch, end, start, start_with};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";

fn query(xid: &str, key: &str) -> Message {
    Message::GlobalLockQuery(branch(xid, BranchType::At, DATABASE, key))
}

fn register(xid: &str, key: &str) -> Message {
    Message::BranchRegister(branch(xid, BranchType::At, DATABASE, key))
}

/// Sends the parts in the way of a client, and returns the id of the frame.
async fn send(client: &mut Client, parts: Vec<Message>, ids: &[i32]) -> i32 {
    let merged = MergedWarp { parts, ids: ids.to_vec() };
    client.send(&Message::MergedWarp(merged), MessageKind::OneWay).await
}

async fn answers_in_one(client: &mut Client, id: i32) -> Vec<Message> {
    let Message::MergeResult(MergeResult { parts }) = client.answer_to(id).await else {
        panic!("another answer")
    };
    parts
}

fn is_lockable(answer: &Message) -> bool {
    matches!(answer, Message::GlobalLockQueryResult(it) if it.lockable)
}

fn failure(answer: &Message) -> Option<ExceptionCode> {
    let Message::BranchRegisterResult(it) = answer else { panic!("another answer") };
    it.result.as_ref().err().map(|failure| failure.code)
}

#[tokio::test]
async fn merged_requests_are_answered_by_version() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let xid = tm.begin(60_000).await;
    let parts = || vec![query(&xid, "t:1"), query(&xid, "t:2")];

    let mut old = Client::rm(&server, "2.2.0", DATABASE).await;
    let id = send(&mut old, parts(), &[7, 8]).await;
    let answers = answers_in_one(&mut old, id).await;
    assert!(answers.len() == 2 && answers.iter().all(is_lockable));

    let mut new = Client::rm(&server, "2.3.0", DATABASE).await;
    send(&mut new, parts(), &[70, 80]).await;
    for id in [80, 70] {
        assert!(is_lockable(&new.answer_to(id).await));
    }
}

/// A refused part does not affect the others, and its refusal is at its position.
#[tokio::test]
async fn a_bad_part_does_not_spoil_the_others() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let xid = tm.begin(60_000).await;
    let none = "127.0.0.1:8091:99";
    let parts = |key: &str| {
        let (bad, unreadable) = (register(none, key), register(&xid, "no colon"));
        vec![register(&xid, key), bad, unreadable, query(&xid, key)]
    };
    let expected = [
        None,
        Some(ExceptionCode::GlobalTransactionNotExist),
        Some(ExceptionCode::BranchRegisterFailed),
    ];

    let mut old = Client::rm(&server, "1.8.0", DATABASE).await;
    let id = send(&mut old, parts("t:1"), &[7, 8, 9, 10]).await;
    let answers = answers_in_one(&mut old, id).await;
    assert!(is_lockable(&answers[3]));
    assert_eq!(answers[..3].iter().map(failure).collect::<Vec<_>>(), expected);

    let mut new = Client::rm(&server, "2.6.0", DATABASE).await;
    send(&mut new, parts("t:2"), &[70, 80, 90, 100]).await;
    assert!(is_lockable(&new.answer_to(100).await));
    for (id, expected) in [90, 80, 70].into_iter().zip(expected.into_iter().rev()) {
        assert_eq!(failure(&new.answer_to(id).await), expected);
    }
}

/// Each part has an answer of its type. Otherwise the client would assign answers to wrong parts.
#[tokio::test]
async fn a_registration_among_parts_is_refused() {
    let server = start().await;
    let mut old = Client::rm(&server, "1.8.0", DATABASE).await;
    let rm = RegisterResources { client: old.identity(), resource_list: "another".to_owned() };
    let (tm, key) = (old.identity(), "t:1");
    let xid = old.begin(60_000).await;
    let parts = vec![
        query(&xid, key),
        Message::RegisterRm(rm.clone()),
        Message::UnregisterRm(rm),
        Message::RegisterTm(tm),
        query(&xid, key),
    ];
    let id = send(&mut old, parts, &[7, 8, 9, 10, 11]).await;
    let answers = answers_in_one(&mut old, id);
    let answers = timeout(PATIENCE, answers).await.expect("they are not answered");
    assert!(is_lockable(&answers[0]) && is_lockable(&answers[4]), "{answers:?}");
    let (Message::RegisterRmResult(rm), Message::UnregisterRmResult(gone)) =
        (&answers[1], &answers[2])
    else {
        panic!("{answers:?}")
    };
    let Message::RegisterTmResult(tm) = &answers[3] else { panic!("{answers:?}") };
    assert!([rm, gone, tm].iter().all(|it| it.outcome.is_err()), "{answers:?}");
}

/// With separate answers, a part that waits for a lock delays no other.
#[tokio::test]
async fn a_slow_part_does_not_delay_separate_answers() {
    let server = start_with(|seata| seata.lock_wait_ms = 60_000).await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let (held, wanted) = (rm.begin(60_000).await, rm.begin(60_000).await);
    rm.branch(&held, DATABASE, "t:1").await;
    send(&mut rm, vec![register(&wanted, "t:1"), register(&wanted, "t:2")], &[70, 80]).await;
    assert_eq!(failure(&rm.answer_to(80).await), None);
    assert_eq!(rm.commit(&held).await, GlobalStatus::Committed);
    assert_eq!(failure(&rm.answer_to(70).await), None);
}

/// Java's RM reads the status of a global only in a merged answer.
#[tokio::test]
async fn parts_with_a_status_query_get_one_answer() {
    let server = start().await;
    let mut rm = Client::rm(&server, "2.6.0", DATABASE).await;
    let xid = rm.begin(60_000).await;
    let parts = vec![query(&xid, "t:1"), Message::GlobalStatus(end(&xid))];
    let id = send(&mut rm, parts, &[70, 80]).await;
    let answers = answers_in_one(&mut rm, id).await;
    assert!(is_lockable(&answers[0]));
    let Message::GlobalStatusResult(standing) = &answers[1] else { panic!("another answer") };
    assert_eq!(standing.status, GlobalStatus::Begin);
}

/// The start of the next part is not known behind a part of an unknown type.
#[tokio::test]
async fn an_unknown_part_makes_the_frame_unreadable() {
    let server = start().await;
    let mut rm = Client::rm(&server, "2.3.0", DATABASE).await;
    let mut frame = vec![0xDA, 0xDA, 1, 0, 0, 0, 26, 0, 16, 2, 1, 0, 0, 0, 0, 9];
    frame.extend([0, 59, 0, 0, 0, 4, 0, 1, 0, 99]);
    rm.send_bytes(&frame).await;
    let received = rm.read().await.expect("a reason");
    let Message::RegisterTmResult(refused) = received.message else { panic!("another answer") };
    assert!(refused.version.contains("HF-SEATA-UNKNOWN-MESSAGE"), "{}", refused.version);
    assert!(rm.read().await.is_none(), "and then the connection is closed");
}
