//! The process that registered a branch is called first: the queue, and native clients.

use handfast_core::{BranchId, Decision, Mode, PhaseTwoCall, PhaseTwoOutcome, Timestamp, Xid};
use handfast_proto::v1 as wire;
use handfast_proto::v1::{Decision as Word, ReplyWhen};
use handfast_server::dispatch::{
    Ask, CallBatch, CallReply, ProcessId, Queue, ResourceKey, Settings,
};
use handfast_server::embedded::Server;

use crate::common::{self, Client, RESOURCE, done, end, ending, hello, registration};

/// A queue, its time, and the processes by their numbers.
struct QueueHarness {
    queue: Queue,
    now: Timestamp,
}

impl QueueHarness {
    /// Creates a queue with these processes of one resource, numbered from 1.
    fn with(names: &[&str]) -> Self {
        let settings = Settings {
            retry_delay_ms_min: 100,
            retry_delay_ms_max: 1_000,
            answer_timeout_ms: 10_000,
            batch_branches_max: 3,
            batch_bytes_max: 100,
            in_flight_max: 5,
        };
        let mut harness = Self { queue: Queue::new(settings, 1), now: Timestamp(0) };
        for (number, name) in (1..).zip(names) {
            harness.connect(number, name);
        }
        harness
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
            trace: None,
        };
        self.queue.call(self.now, call);
    }

    /// Returns the sent batches, each as `process: xid xid`.
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
        let answer = CallReply { xid: Xid(xid), branch: BranchId(1), ask, outcome };
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

/// Regression: all processes were asked in turn about the branch of one: on MariaDB no other
/// process could end it, and each of their answers delayed it further.
#[test]
fn each_call_goes_to_its_owner_in_batches() {
    let mut harness = QueueHarness::with(&["a", "b", "c"]);
    for (xid, owner) in [(1, "b"), (2, "a"), (3, "b"), (4, "b"), (5, "a"), (6, "b")] {
        harness.call(xid, owner);
    }
    assert_eq!(harness.sends(), ["2: 1 3 4", "2: 6", "1: 2 5"]);
}

#[test]
fn calls_without_an_owner_go_in_turn() {
    let mut harness = QueueHarness::with(&["a", "b"]);
    for xid in 1..=4 {
        harness.call(xid, "gone");
    }
    assert_eq!(harness.sends(), ["1: 1 2 3", "2: 4"]);
}

#[test]
fn calls_of_a_disconnected_owner_go_to_another_at_once() {
    let mut harness = QueueHarness::with(&["a", "b"]);
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    // Two calls wait, since the process has no more room.
    assert_eq!(harness.sends(), ["1: 1 2 3", "1: 4 5"]);
    harness.queue.disconnected(ProcessId(1));
    assert_eq!(harness.sends(), ["2: 1 2 3", "2: 4 5"]);
    assert_eq!(harness.queue.loads()[0].due, 2);
}

#[test]
fn calls_of_a_silent_owner_go_to_another_after_the_timeout() {
    let mut harness = QueueHarness::with(&["a", "b"]);
    (1..=7).for_each(|xid| harness.call(xid, "a"));
    assert_eq!(harness.sends(), ["1: 1 2 3", "1: 4 5"]);
    harness.pass(9_999);
    assert_eq!(harness.sends(), [""; 0]);
    harness.pass(1);
    assert_eq!(harness.sends(), ["2: 1 2 3", "2: 4 5"]);
    // An answer ends the silence.
    harness.answers(1, 1, PhaseTwoOutcome::Done);
    harness.call(8, "a");
    assert_eq!(harness.sends(), ["1: 8", "1: 6 7"]);
}

/// A slow owner delays only its own calls.
#[test]
fn only_calls_of_an_owner_without_room_wait() {
    let mut harness = QueueHarness::with(&["a", "b"]);
    (1..=6).for_each(|xid| harness.call(xid, "a"));
    harness.call(7, "b");
    harness.call(8, "gone");
    assert_eq!(harness.sends(), ["2: 7", "1: 1 2 3", "1: 4 5", "2: 8"]);
    harness.answers(1, 1, PhaseTwoOutcome::Done);
    assert_eq!(harness.sends(), ["1: 6"]);
}

/// If one process of a service cannot reach its database, the others complete its calls.
#[test]
fn a_call_that_its_owner_failed_alternates_with_others() {
    let mut harness = QueueHarness::with(&["a", "b", "c"]);
    harness.call(1, "a");
    let mut asked = Vec::new();
    for _ in 0..6 {
        let sent = harness.sends();
        let process = sent[0].trim_end_matches(": 1").parse().unwrap();
        asked.push(process);
        harness.fails(process, 1);
        harness.pass(1_000);
    }
    assert_eq!(asked, [1, 2, 1, 3, 1, 2]);
}

/// Regression: a silent owner was never called again while another process had the resource, and
/// could not show that it was well. What it alone could do was asked of others for ever.
#[test]
fn a_silent_owner_is_asked_about_what_others_fail() {
    let mut harness = QueueHarness::with(&["a", "b", "c"]);
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1: 1"]);
    harness.pass(10_000);
    let mut asked = Vec::new();
    for _ in 0..8 {
        let sent = harness.sends();
        let process = sent[0].trim_end_matches(": 1").parse().unwrap();
        asked.push(process);
        if process == 1 {
            harness.pass(10_000);
        } else {
            harness.fails(process, 1);
            harness.pass(1_000);
        }
    }
    assert_eq!(asked, [2, 3, 2, 1, 3, 2, 3, 1]);
    harness.call(2, "a");
    assert_eq!(harness.sends(), ["2: 1 2"], "it is silent for other calls");
}

#[test]
fn silent_owners_are_asked_in_turn() {
    let mut harness = QueueHarness::with(&["shop:10.0.0.1:41", "shop:10.0.0.1:42", "b"]);
    harness.call(1, "shop:10.0.0.1:7");
    let mut asked = Vec::new();
    while asked.len() < 10 {
        let sent = harness.sends();
        let process = sent[0].trim_end_matches(": 1").parse().unwrap();
        asked.push(process);
        if process < 3 {
            harness.pass(10_000);
        } else {
            harness.fails(process, 1);
            harness.pass(1_000);
        }
    }
    assert_eq!(asked, [1, 2, 3, 3, 3, 2, 3, 3, 3, 1]);
}

#[test]
fn a_single_owner_is_called_again() {
    let mut harness = QueueHarness::with(&["a"]);
    harness.call(1, "a");
    for _ in 0..3 {
        assert_eq!(harness.sends(), ["1: 1"]);
        harness.fails(1, 1);
        harness.pass(1_000);
    }
}

/// After a restart of the coordinator the owner need not be the first to reconnect.
#[test]
fn a_reconnected_owner_is_called_at_once() {
    let mut harness = QueueHarness::with(&[]);
    (1..=7).for_each(|xid| harness.call(xid, if xid < 7 { "a" } else { "b" }));
    harness.connect(1, "b");
    assert_eq!(harness.sends(), ["1: 7", "1: 1 2 3", "1: 4"]);
    harness.connect(2, "a");
    assert_eq!(harness.sends(), ["2: 5 6"], "the calls that had to wait");
    harness.fails(1, 1);
    harness.fails(1, 2);
    assert_eq!(harness.sends(), ["2: 1 2"], "the calls that the other failed, without a pause");
    harness.fails(2, 1);
    assert_eq!(harness.sends(), [""; 0], "and then with one");
}

/// The name of a client of Seata ends in the port of its connection.
#[test]
fn a_process_under_another_port_may_be_the_owner() {
    let mut harness =
        QueueHarness::with(&["stock:10.0.0.2:40", "shop:10.0.0.1:41", "shop:10.0.0.1:42"]);
    let owner = "shop:10.0.0.1:7";
    let mut asked = Vec::new();
    harness.call(1, owner);
    for _ in 0..4 {
        let sent = harness.sends();
        let process = sent[0].trim_end_matches(": 1").parse().unwrap();
        asked.push(process);
        harness.fails(process, 1);
        harness.pass(1_000);
    }
    assert_eq!(asked, [2, 3, 2, 3]);
    let owners = |harness: &QueueHarness, owner| harness.queue.owners(&resource(), owner);
    assert_eq!(owners(&harness, Some(owner)), [ProcessId(2), ProcessId(3)]);
    assert_eq!(owners(&harness, Some("shop:10.0.0.1:42")), [ProcessId(3)]);
    assert_eq!(owners(&harness, Some("shop:10.0.0.9:7")), []);
    assert_eq!(owners(&harness, None).len(), 3, "any process may be the owner");
}

#[test]
fn a_process_gets_only_calls_of_its_registered_resources() {
    let mut harness = QueueHarness::with(&["b"]);
    harness.queue.connected(ProcessId(2), "a".into());
    harness.queue.registered(ProcessId(2), [ResourceKey { id: "other".into(), ..resource() }]);
    harness.call(1, "a");
    assert_eq!(harness.sends(), ["1: 1"]);
}

#[tokio::test]
async fn a_native_process_is_called_for_its_own_branches() {
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

/// The process keeps its name across a restart of the coordinator.
#[tokio::test]
async fn a_native_process_keeps_its_branches_across_a_restart() {
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
            call = other.call() => panic!("another process is called: {call:?}"),
        };
        assert_eq!(&call.branches[0].xid, xid);
        client.finish(&call).await;
    }
}

/// A client of unary calls names its process in each of them.
#[tokio::test]
async fn a_unary_process_is_called_for_its_own_branches() {
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
