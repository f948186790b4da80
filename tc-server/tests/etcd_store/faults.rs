//! Three candidates whose connections fail and whose processes sleep, again and again: what one
//! acknowledged is found by each that leads afterwards.

use std::collections::BTreeSet;
use std::env;
use std::mem;
use std::sync::Arc;
use std::thread;

use handfast_core::{Change, Epoch, FencingToken, Record};
use handfast_server::store::{Store, StoreError};
use tokio::sync::watch;

use crate::setup::{Candidate, LONG, Namespace, SHORT, record, until};
use crate::wire::{Delivery, Wire};

const FAULTS: u64 = 15;
/// The variable that asks for another number of faults.
const FAULTS_VARIABLE: &str = "HANDFAST_ETCD_FAULTS";
/// The batches of one leader before it gives up the lead, or sleeps if no other one does.
const BATCHES: u64 = 10;
/// The batches of others during its sleep: more than a checkpoint takes.
const WHILE_ASLEEP: usize = 30;
/// The batches that are acknowledged under each fault.
const UNDER_FAULT: usize = 5;
/// Large enough for a checkpoint every twenty batches.
const BYTES: usize = 200_000;

/// The course of the test, as its threads share it.
#[derive(Clone, Debug, Default)]
struct History {
    /// The number of the last batch that was sent.
    sent: u64,
    acknowledged: BTreeSet<u64>,
    /// Whether a leader sleeps.
    is_asleep: bool,
    is_over: bool,
}

impl History {
    /// Returns the number of a batch that is sent next.
    fn next(history: &SharedHistory) -> u64 {
        let mut number = 0;
        history.send_modify(|history| {
            history.sent += 1;
            number = history.sent;
        });
        number
    }
}

type SharedHistory = watch::Sender<History>;

/// Makes a batch that adds a record and replaces one that all batches have.
fn batch(number: u64) -> Vec<Change> {
    let Record::Branch(mut newest) = record(0, 10) else { unreachable!("it is a branch") };
    newest.token = FencingToken(number);
    vec![Change::Put(record(number, BYTES)), Change::Put(Record::Branch(newest))]
}

/// Checks that a leader has found all that was acknowledged before it asked for the lead.
fn check(before: &History, found: &[Record]) {
    let tokens = found.iter().filter_map(|record| match record {
        Record::Branch(branch) => Some((branch.xid.0 & 0xff_ffff, branch.token.0)),
        Record::Global(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_) => None,
    });
    let tokens: Vec<(u64, u64)> = tokens.collect();
    let numbers: BTreeSet<u64> = tokens.iter().map(|(number, _)| *number).collect();
    let lost: Vec<_> = before.acknowledged.difference(&numbers).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let newest = tokens.iter().find(|(number, _)| *number == 0).map(|(_, token)| *token);
    let last = before.acknowledged.last().copied();
    assert!(newest >= last, "{newest:?} is older than {last:?}");
}

/// Leads, as often as others let it, until the test is over.
fn take_part(candidate: &Candidate, history: &SharedHistory) {
    let mut over = history.subscribe();
    loop {
        let before = history.borrow().clone();
        let led = candidate.run(async {
            tokio::select! {
                led = candidate.store.lead(Epoch(0)) => Some(led),
                _ = over.wait_for(|history| history.is_over) => None,
            }
        });
        let Some(led) = led else { return };
        let (epoch, found) = led.unwrap();
        check(&before, &found);
        let has_led = (0..BATCHES).all(|_| commit(candidate, epoch, history));
        if has_led && history.send_if_modified(|now| !mem::replace(&mut now.is_asleep, true)) {
            let asleep = history.borrow().acknowledged.len();
            until("others lead", || {
                let now = history.borrow();
                now.is_over || now.acknowledged.len() >= asleep + WHILE_ASLEEP
            });
            let is_refused = !commit(candidate, epoch, history);
            assert!(is_refused || history.borrow().is_over, "it slept while others led");
            history.send_modify(|now| now.is_asleep = false);
        }
        candidate.run(candidate.store.resign(epoch));
    }
}

/// Returns whether a batch is acknowledged.
fn commit(candidate: &Candidate, epoch: Epoch, history: &SharedHistory) -> bool {
    let number = History::next(history);
    match candidate.commit(epoch, batch(number)) {
        Ok(()) => history.send_modify(|history| {
            history.acknowledged.insert(number);
        }),
        Err(StoreError::LostLeadership) => return false,
        Err(error) => panic!("{error:?}"),
    }
    true
}

/// Breaks one wire after the other, each until some batches are acknowledged nevertheless.
fn break_wires(wires: &[Arc<Wire>], history: &SharedHistory) {
    let acknowledged = || history.borrow().acknowledged.len();
    let faults = env::var(FAULTS_VARIABLE).map_or(FAULTS, |faults| faults.parse().unwrap());
    for fault in 0..faults {
        // In an order in which each wire has each fault, and none is always the next.
        let wire = &wires[usize::try_from(fault * fault / 2 + fault).unwrap() % wires.len()];
        let kinds = [Delivery::WithoutAnswers, Delivery::Later];
        let before = acknowledged();
        wire.deliver(kinds[usize::from(fault % 3 == 0)]);
        until("batches are acknowledged", || acknowledged() >= before + UNDER_FAULT);
        wire.mend();
    }
    history.send_modify(|history| history.is_over = true);
}

#[test]
fn nothing_acknowledged_is_lost_while_connections_fail() {
    let shared = Namespace::new();
    let wires = [(); 3].map(|()| shared.wire());
    let history = SharedHistory::default();
    thread::scope(|scope| {
        for (wire, name) in wires.iter().zip(["first", "second", "third"]) {
            let (shared, history) = (shared.through(wire.url()), &history);
            scope.spawn(move || take_part(&shared.sleeper(name, SHORT), history));
        }
        break_wires(&wires, &history);
    });
    let (_, found) = shared.candidate("last", LONG).lead();
    let history = history.borrow();
    check(&history, &found);
    assert!(found.len() as u64 <= history.sent + 1, "only what was sent is there");
}
