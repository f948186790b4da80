//! The process that registered a branch is asked first: the queue, and native clients.

use handfast_core::{BranchId, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, Timestamp, Xid};
use handfast_proto::v1 as wire;
use handfast_proto::v1::{Decision as Word, ReplyWhen};
use handfast_server::dispatch::{Answer, Ask, CallBatch, ProcessId, Queue, ResourceKey, Settings};
use handfast_server::embedded::Server;

use crate::common::{self, Client, RESOURCE, done, end, ending, hello, registration};

/// A queue, its time, and the processes by their numbers.
struct Desk {
    queue: Queue,
    now: Timestamp,
}

impl Desk {
    /// With these processes of one resource, numbered from 1.
    fn with(names: &[&str]) -> Self {
        let settings = Settings {
            retry_delay_ms_min: 100,
            retry_delay_ms_max: 1_000,
            answer_timeout_ms: 10_000,
            batch_branches_max: 3,
            batch_bytes_max: 100,
            in_flight_max: 5,
        };
        let mut desk = Self { queue: Queue::new(settings, 1), now: Timestamp(0) };
        for (number, name) in (1..).zip(names) {
            desk.connect(number, name);
        }
        desk
    }

    fn connect(&mut self, number: u64, name: &str) {
        self.queue.connected(ProcessId(number), name.into());
        self.queue.registered(ProcessId(number), [resource()]);
    }

    fn call(&mut self, xid: u64, registered_by: &str) {
        let call = PhaseTwoCall {
            xid: Xid(xid),
            address: "tc".into(),
            branch: BranchId(1),
            resource: resource().id,
            mode: resource().mode,
            decision: Decision::Commit,
            resolution: None,
            application_data: Box::default(),
            attempts: 0,
            step: None,
            registered_by: Some(registered_by.into()),
        };
        self.queue.call(self.now, call);
    }

    /// What is sent: `process: xid xid`.
    fn sends(&mut self) -> Vec<String> {
        let line = |batch: &CallBatch| {
            let xids: Vec<String> = batch.calls.iter().map(|call| call.xid.to_string()).collect();
            format!("{}: {}", batch.process.0, xids.join(" "))
        };
        self.queue.sends(self.now).iter().map(line).collect()
    }

    fn fails(&mut self, process: u64, xid: u64) {
        self.answers(process, xid, PhaseTwoOutcome::Retryable { error: "unknown".into() });
    }

    fn answers(&mut self, process: u64, xid: u64, outcome: PhaseTwoOutcome) {
        let ask = Ask::Finish(Decision::Commit);
        let answer = Answer { xid: Xid(xid), branch: BranchId(1), ask, outcome };
        self.queue.outcome(self.now, Some(ProcessId(process)), &answer);
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.queue.tick(self.now);
    }
}

fn resource() -> ResourceKey {
    ResourceKey { id: "db".into(), mode: Mode::Xa }
}

/// Lost was the branch of one process in the round of the others: on MariaDB none of them could
/// end it, and each of their answers made it wait longer.
#[test]
fn each_call_goes_to_its_owner_in_batches() {
    let mut desk = Desk::with(&["a", "b", "c"]);
    for (xid, owner) in [(1, "b"), (2, "a"), (3, "b"), (4, "b"), (5, "a"), (6, "b")] {
        desk.call(xid, owner);
    }
    assert_eq!(desk.sends(), ["2: 1 3 4", "2: 6", "1: 2 5"]);
}

#[test]
fn calls_without_an_owner_go_in_turn() {
    let mut desk = Desk::with(&["a", "b"]);
    for xid in 1..=4 {
        desk.call(xid, "gone");
    }
    assert_eq!(desk.sends(), ["1: 1 2 3", "2: 4"]);
}

#[test]
fn when_the_owner_is_gone_another_has_its_calls_at_once() {
    let mut desk = Desk::with(&["a", "b"]);
    (1..=7).for_each(|xid| desk.call(xid, "a"));
    // Two are left for want of room.
    assert_eq!(desk.sends(), ["1: 1 2 3", "1: 4 5"]);
    desk.queue.gone(ProcessId(1));
    assert_eq!(desk.sends(), ["2: 1 2 3", "2: 4 5"]);
    assert_eq!(desk.queue.loads()[0].due, 2);
}

#[test]
fn when_the_owner_is_silent_another_has_its_calls_after_its_patience() {
    let mut desk = Desk::with(&["a", "b"]);
    (1..=7).for_each(|xid| desk.call(xid, "a"));
    assert_eq!(desk.sends(), ["1: 1 2 3", "1: 4 5"]);
    desk.pass(9_999);
    assert_eq!(desk.sends(), [""; 0]);
    desk.pass(1);
    assert_eq!(desk.sends(), ["2: 1 2 3", "2: 4 5"]);
    // It has been heard from.
    desk.answers(1, 1, PhaseTwoOutcome::Done);
    desk.call(8, "a");
    assert_eq!(desk.sends(), ["1: 8", "1: 6 7"]);
}

/// An owner that is slow holds up its own calls alone.
#[test]
fn calls_of_an_owner_without_room_wait_for_it_and_others_do_not() {
    let mut desk = Desk::with(&["a", "b"]);
    (1..=6).for_each(|xid| desk.call(xid, "a"));
    desk.call(7, "b");
    desk.call(8, "gone");
    assert_eq!(desk.sends(), ["2: 7", "1: 1 2 3", "1: 4 5", "2: 8"]);
    desk.answers(1, 1, PhaseTwoOutcome::Done);
    assert_eq!(desk.sends(), ["1: 6"]);
}

/// A service of several processes whose database one of them cannot reach goes on by the others.
#[test]
fn a_call_that_its_owner_failed_is_for_others_every_other_time() {
    let mut desk = Desk::with(&["a", "b", "c"]);
    desk.call(1, "a");
    let mut asked = Vec::new();
    for _ in 0..6 {
        let sent = desk.sends();
        let process = sent[0].trim_end_matches(": 1").parse().unwrap();
        asked.push(process);
        desk.fails(process, 1);
        desk.pass(1_000);
    }
    assert_eq!(asked, [1, 2, 1, 3, 1, 2]);
}

#[test]
fn an_owner_that_is_alone_is_asked_again() {
    let mut desk = Desk::with(&["a"]);
    desk.call(1, "a");
    for _ in 0..3 {
        assert_eq!(desk.sends(), ["1: 1"]);
        desk.fails(1, 1);
        desk.pass(1_000);
    }
}

/// After a restart of the coordinator the owner need not be the first to come back.
#[test]
fn an_owner_that_comes_back_is_asked_at_once() {
    let mut desk = Desk::with(&[]);
    (1..=7).for_each(|xid| desk.call(xid, if xid < 7 { "a" } else { "b" }));
    desk.connect(1, "b");
    assert_eq!(desk.sends(), ["1: 7", "1: 1 2 3", "1: 4"]);
    desk.connect(2, "a");
    assert_eq!(desk.sends(), ["2: 5 6"], "what had to wait");
    desk.fails(1, 1);
    desk.fails(1, 2);
    assert_eq!(desk.sends(), ["2: 1 2"], "what the other could not do, without a pause");
    desk.fails(2, 1);
    assert_eq!(desk.sends(), [""; 0], "and then with one");
}

/// The name of a client of Seata ends in the port of its connection.
#[test]
fn a_process_under_another_port_may_be_the_owner() {
    let mut desk = Desk::with(&["stock:10.0.0.2:40", "shop:10.0.0.1:41", "shop:10.0.0.1:42"]);
    let owner = "shop:10.0.0.1:7";
    let mut asked = Vec::new();
    desk.call(1, owner);
    for _ in 0..4 {
        let sent = desk.sends();
        let process = sent[0].trim_end_matches(": 1").parse().unwrap();
        asked.push(process);
        desk.fails(process, 1);
        desk.pass(1_000);
    }
    assert_eq!(asked, [2, 3, 2, 3]);
    let owners = |desk: &Desk, owner| desk.queue.owners(&resource(), owner);
    assert_eq!(owners(&desk, Some(owner)), [ProcessId(2), ProcessId(3)]);
    assert_eq!(owners(&desk, Some("shop:10.0.0.1:42")), [ProcessId(3)]);
    assert_eq!(owners(&desk, Some("shop:10.0.0.9:7")), []);
    assert_eq!(owners(&desk, None).len(), 3, "any may be it");
}

#[test]
fn a_process_has_only_calls_of_what_it_registered() {
    let mut desk = Desk::with(&["b"]);
    desk.queue.connected(ProcessId(2), "a".into());
    desk.queue.registered(ProcessId(2), [ResourceKey { id: "other".into(), ..resource() }]);
    desk.call(1, "a");
    assert_eq!(desk.sends(), ["1: 1"]);
}

#[tokio::test]
async fn a_native_process_is_asked_about_its_own_branches() {
    let server = Server::builder().start().await.unwrap();
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        clients.push(Client::connect(&server, name, &[RESOURCE]).await);
    }
    for turn in 0..6_usize {
        let client = &mut clients[turn * 2 % 3];
        let (xid, row) = (client.begin().await, turn.to_string());
        client.register(&xid, 1, &row).await;
        client.ask(end(&xid, Word::Commit, ReplyWhen::Decided)).await;
        let call = client.call().await;
        assert_eq!(call.branches[0].xid, xid);
        client.finish(&call).await;
    }
}

/// It is the same process under the same name after the coordinator has been started again.
#[tokio::test]
async fn a_native_process_is_asked_about_its_own_branches_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || Server::builder().directory(directory.path()).advertise("tc");
    let server = builder().start().await.unwrap();
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    let xids = [client.begin().await, client.begin().await];
    for (branch, xid) in (1..).zip(&xids) {
        client.register(xid, branch, &branch.to_string()).await;
    }
    server.crash().await;

    let server = builder().start().await.unwrap();
    let mut other = Client::connect(&server, "b", &[RESOURCE]).await;
    let mut client = Client::connect(&server, "a", &[RESOURCE]).await;
    for xid in &xids {
        other.ask(end(xid, Word::Commit, ReplyWhen::Decided)).await;
        let call = tokio::select! {
            call = client.call() => call,
            call = other.call() => panic!("another process is asked: {call:?}"),
        };
        assert_eq!(&call.branches[0].xid, xid);
        client.finish(&call).await;
    }
}

/// A client of unary calls says in each whose branch it is.
#[tokio::test]
async fn a_process_of_unary_calls_is_asked_about_its_own_branches() {
    let server = Server::builder().start().await.unwrap();
    let mut client = common::unary(&server).await;
    let mut calls = Vec::new();
    for name in ["a", "b", "c"] {
        calls.push(client.subscribe(hello(name, &[RESOURCE])).await.unwrap().into_inner());
    }
    for turn in 0..6_usize {
        let at = turn * 2 % 3;
        let client_id = ["a", "b", "c"][at].to_owned();
        let xid = client.begin(wire::BeginRequest::default()).await.unwrap().into_inner().xid;
        let branch = registration(&xid, 1, &turn.to_string(), 0);
        let branch = wire::RegisterBranchRequest { client_id: client_id.clone(), ..branch };
        client.register_branch(branch).await.unwrap();
        client.end(ending(&xid, Word::Commit, ReplyWhen::Decided)).await.unwrap();
        let frame = calls[at].message().await.unwrap().unwrap();
        assert_eq!(frame.calls[0].branches[0].xid, xid);
        let outcome = Some(done(&frame.calls[0]));
        let finished = wire::FinishPhaseTwoRequest { outcome, client_id };
        client.finish_phase_two(finished).await.unwrap();
    }
}
