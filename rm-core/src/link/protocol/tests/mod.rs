//! The state machine against scripted connections on a clock that only the test moves. This file
//! holds what the tests share.

mod begins;
mod endpoints;
mod random;
mod redirects;
mod reports;
mod requests;
mod resources;
mod silence;

use std::collections::BTreeMap;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

/// A protocol, its clock, and everything it has said so far.
struct Driven {
    protocol: Protocol,
    now: Moment,
    /// How each request ended, as often as it did.
    ended: BTreeMap<RequestId, Vec<Result<Answer, String>>>,
    other: Vec<Event>,
}

impl Driven {
    fn new(endpoints: &[&str]) -> Self {
        let settings = Settings {
            client_id: "client".to_owned(),
            application: "tests".to_owned(),
            endpoints: endpoints.iter().copied().map(str::to_owned).collect(),
            connect_timeout: Duration::from_secs(10),
            back_off_base: Duration::from_millis(100),
            back_off_max: Duration::from_secs(5),
            requests_max: 8,
        };
        let protocol = Protocol::new(settings, 7);
        let mut driven =
            Self { protocol, now: Moment::default(), ended: BTreeMap::new(), other: Vec::new() };
        driven.tick();
        driven
    }

    /// One endpoint, greeted.
    fn ready() -> Self {
        let mut driven = Self::new(&["a"]);
        driven.greet();
        driven
    }

    /// Takes the transport up and lets the coordinator greet.
    fn greet(&mut self) -> v1::Hello {
        self.greet_in(0)
    }

    /// Acts as [`Self::greet`], under this epoch.
    fn greet_in(&mut self, epoch: u64) -> v1::Hello {
        assert!(self.protocol.connected(self.connection()));
        let mut hello = self.frame();
        let Some((id, Some(Ask::Hello(said)))) = hello.pop() else { panic!("{hello:?}") };
        assert!(hello.is_empty(), "it goes alone: {hello:?}");
        self.answer(id, Answer::Hello(v1::HelloReply { epoch, ..v1::HelloReply::default() }));
        said
    }

    /// The next frame, which is an announcement alone.
    fn announcement(&mut self) -> (u64, Vec<Resource>) {
        let frame = self.frame();
        let [(id, Some(Ask::RegisterResources(said)))] = &frame[..] else { panic!("{frame:?}") };
        (*id, said.resources.clone())
    }

    fn submit(&mut self, ask: Ask) -> RequestId {
        let (now, deadline) = (self.now, self.now.after(DEADLINE));
        self.protocol.submit(now, "a request", ask, deadline).expect("it is taken")
    }

    fn begin(&mut self) -> RequestId {
        self.try_begin().expect("the request is taken")
    }

    fn try_begin(&mut self) -> Result<RequestId, RequestError> {
        let ask = Ask::Begin(v1::BeginRequest::default());
        self.protocol.submit(self.now, "begin", ask, self.now.after(DEADLINE))
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        let message = ServerMessage { id, body: Some(answer) };
        self.protocol.receive(self.now, self.connection(), [message]);
        self.drain();
    }

    fn lose(&mut self) {
        self.fail(self.connection(), ConnectionFailure::Passing(Arc::from("lost")));
    }

    fn fail(&mut self, connection: ConnectionId, failure: ConnectionFailure) {
        self.protocol.disconnected(self.now, connection, failure);
        self.drain();
    }

    /// The connection; while there is none, the latest attempt.
    fn connection(&self) -> ConnectionId {
        let attempt = |event: &Event| {
            if let Event::Dial { connection, .. } = event { Some(*connection) } else { None }
        };
        if self.protocol.state == State::Ready {
            self.protocol.connection
        } else {
            self.other.iter().rev().find_map(attempt).unwrap_or_default()
        }
    }

    fn tick(&mut self) {
        self.protocol.tick(self.now);
        self.drain();
    }

    /// Moves the clock to when the protocol wants to be woken.
    fn sleep(&mut self) {
        self.now = self.protocol.next_deadline().expect("something is due").max(self.now);
        self.tick();
    }

    /// The messages of the next frame; none if there is no frame.
    fn frame(&mut self) -> Vec<(u64, Option<Ask>)> {
        let frame = self.protocol.next_frame(self.connection()).unwrap_or_default();
        frame.decoded().messages.into_iter().map(|message| (message.id, message.body)).collect()
    }

    fn sent_ids(&mut self) -> Vec<u64> {
        self.frame().into_iter().map(|(id, _)| id).collect()
    }

    fn drain(&mut self) {
        while let Some(event) = self.protocol.next_event() {
            if let Event::Complete { id, result } = event {
                let result = result.map_err(|error| error.code().to_owned());
                self.ended.entry(id).or_default().push(result);
            } else {
                self.other.push(event);
            }
        }
    }

    fn ended(&self, id: RequestId) -> &[Result<Answer, String>] {
        self.ended.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The endpoints dialled so far.
    fn dialled(&self) -> Vec<usize> {
        self.targets().into_iter().map(|(endpoint, _)| endpoint).collect()
    }

    /// The endpoints dialled so far, with which of their addresses.
    fn targets(&self) -> Vec<(usize, usize)> {
        let target = |event: &Event| {
            let Event::Dial { target, .. } = event else { return None };
            Some((target.endpoint, target.address))
        };
        self.other.iter().filter_map(target).collect()
    }

    fn hung_up(&self) -> Vec<ConnectionId> {
        let hung_up = |event: &Event| {
            if let Event::HangUp { connection } = event { Some(*connection) } else { None }
        };
        self.other.iter().filter_map(hung_up).collect()
    }

    /// The events of the search so far.
    fn failures(&self) -> Vec<(&'static str, ConnectionFailure)> {
        let failure = |event: &Event| {
            if let Event::AttemptFailed { failure } = event {
                return Some(("missed", failure.clone()));
            }
            let Event::Disconnected { failure, .. } = event else { return None };
            Some(("parted", failure.clone()))
        };
        self.other.iter().filter_map(failure).collect()
    }

    /// Lets time pass, with every tick that is due in it.
    fn pass(&mut self, time: Duration) {
        let until = self.now.after(time);
        while let Some(due) = self.protocol.next_deadline().filter(|due| *due <= until) {
            self.now = due.max(self.now);
            self.tick();
        }
        self.now = until;
    }
}

fn begun() -> Answer {
    Answer::Begin(v1::BeginReply::default())
}

fn resource(id: &str) -> Resource {
    Resource { id: id.to_owned(), mode: v1::Mode::At.into(), label: String::new() }
}

fn refusal(code: &str) -> Answer {
    Answer::Rejected(v1::Rejection { code: code.to_owned(), ..v1::Rejection::default() })
}

fn lock_granted() -> Answer {
    let granted = v1::LockGranted { fence: 7, waited_ms: 0 };
    Answer::AcquireLock(v1::AcquireLockReply {
        result: Some(v1::acquire_lock_reply::Result::Granted(granted)),
    })
}
