//! The cost of long queues: work that is linear in the number of its parts.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use handfast_core::Timestamp;
use handfast_server::clock::{Clock, WallClock};
use handfast_server::dispatch::{
    CallBatch, CallSink, Dispatcher, NewProcess, Queue, RegisteredResource, Settings,
};

use super::{FIRST, QueueHarness, SECOND, resource, settings};

/// Enough for work that is linear in the number of its parts, and too short for quadratic work.
const TIMEOUT: Duration = Duration::from_secs(20);
const MANY: u64 = 100_000;

/// Runs work on a thread of its own, and fails if it takes too long.
fn within_timeout<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    done.recv_timeout(TIMEOUT).expect("the work ends in time, since it holds the dispatcher's lock")
}

#[derive(Debug)]
struct DiscardingSink;

impl CallSink for DiscardingSink {
    fn put(&self, _batch: CallBatch) {}
}

#[test]
fn a_long_list_of_resources_is_not_compared_with_itself() {
    let clock: Arc<dyn Clock> = Arc::new(WallClock::start());
    let (dispatcher, _timer) = Dispatcher::prepare(clock, settings(), 1);
    let of_process = |client: &str| NewProcess {
        client_id: client.into(),
        application: "shop".into(),
        agent: "test".into(),
        peer: "nowhere".into(),
    };
    let registration = dispatcher.connect(of_process("a"), Arc::new(DiscardingSink));
    let (registration, processes) = within_timeout(move || {
        // Twice, since the second time all of them are registered already.
        for label in ["earlier", "later"] {
            let key = |at: u64| resource(&format!("sqlite:{at}"));
            let with_label = |key| RegisteredResource { key, label: Some(label.into()) };
            registration.register((0..MANY).map(key).map(with_label).collect());
        }
        (registration, dispatcher.processes())
    });
    let resources = &processes[0].resources;
    assert_eq!(resources.len() as u64, MANY);
    assert!(resources.iter().all(|it| it.label.as_deref() == Some("later")));
    drop(registration);
}

#[test]
fn calls_of_a_silent_process_are_scanned_once_per_list() {
    let many = 20_000;
    let sent = within_timeout(move || {
        let settings = Settings { in_flight_max: 1_000_000, ..settings() };
        let mut harness = QueueHarness { queue: Queue::new(settings, 1), now: Timestamp(0) };
        let resources = || (1..=many).map(|at| resource(&format!("sqlite:{at}")));
        harness.queue.registered(FIRST, resources());
        for at in 1..=many {
            harness.call(at, &format!("sqlite:{at}"));
        }
        // The process answers none, and gets them all again since there is no other process.
        for _ in 0..2 {
            assert_eq!(harness.queue.sends(harness.now).len() as u64, many);
            harness.now = harness.now.after_ms(10_000);
            harness.queue.tick(harness.now);
            harness.now = harness.now.after_ms(2_000);
            harness.queue.tick(harness.now);
        }
        assert_eq!(harness.queue.sends(harness.now).len() as u64, many);
        harness.queue.registered(SECOND, resources());
        harness.queue.sends(harness.now)
    });
    assert_eq!(sent.len() as u64, many);
    assert!(sent.iter().all(|batch| batch.process == SECOND));
}
