//! The link as a state machine: what to send, whom to answer, when to dial.
//!
//! No socket, clock, task or random source in here: time is an argument, jitter comes from a seed,
//! and what has to happen outside comes out as [`Event`]s and frames. The [shell](super::shell)
//! carries them out.
//!
//! ```text
//!            tick: due            connected             Hello answered
//!   Apart ──────────────▶ Dialling ─────────▶ Greeting ───────────────▶ Ready
//!     ▲  disconnected, too slow │ disconnected, too slow │   disconnected, GoAway │
//!     └─────────────────────────┴────────────────────────┴───────────────────────┘
//! ```
//!
//! A coordinator that is stopping or does not lead refuses requests without having carried them
//! out: that is the end of the connection, not of the request. One that is busy gets the request
//! again a little later.
//!
//! A request lives from `submit` until it is answered, runs out of time, or is cancelled, whatever
//! happens to connections meanwhile: after a reconnect every unanswered one is sent again under its
//! id. All requests of the API may be repeated; a repeated `Begin` leaves an orphan that expires.
//! Releases of locks answered shortly before are sent again too: see [`Releases`].

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, BranchOutcome, ClientMessage, Resource, ServerMessage};
use hashbrown::HashMap;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::event::{ConnectionId, Event, Failure, Moment, RequestId};
use super::frame::Frame;
use super::outbox::Outbox;
use super::releases::Releases;
use super::reports::Reports;
use super::resources::Resources;
use super::settings::Settings;
use crate::error::Error;

/// Refusals that ask for another coordinator.
const ELSEWHERE: [&str; 2] = ["HF-TC-STOPPING", "HF-TC-NOT-LEADING"];
/// How long a release is tried that is sent again.
const RELEASE_DEADLINE: Duration = Duration::from_secs(30);
/// The refusal that asks for another time.
const LATER: &str = "HF-TC-BUSY";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Apart { dial_at: Moment },
    Dialling { give_up_at: Moment },
    Greeting { give_up_at: Moment },
    Ready,
    Closed,
}

#[derive(Debug)]
struct Pending {
    name: &'static str,
    frame: Frame,
    deadline: Moment,
    /// Whether any connection has taken it: if so its outcome may be unknown.
    sent: bool,
}

/// The state machine.
#[derive(Debug)]
pub struct Protocol {
    settings: Settings,
    jitter: SmallRng,
    state: State,
    connection: ConnectionId,
    endpoint: usize,
    /// Failures since the coordinator last greeted.
    failures: u32,
    last_failure: Arc<str>,
    next_id: u64,
    requests: HashMap<RequestId, Pending>,
    /// Exactly the requests of `requests`, by deadline.
    deadlines: BTreeSet<(Moment, RequestId)>,
    outbox: Outbox,
    /// Requests that a busy coordinator sent back, and when to send them again.
    held: BTreeSet<RequestId>,
    resume_at: Option<Moment>,
    releases: Releases,
    reports: Reports,
    resources: Resources,
    hello: Option<RequestId>,
    events: VecDeque<Event>,
}

impl Protocol {
    /// A link that wants to dial at once.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        assert!(!settings.endpoints.is_empty(), "a link has at least one endpoint");
        Self {
            settings,
            jitter: SmallRng::seed_from_u64(seed),
            state: State::Apart { dial_at: Moment::default() },
            connection: ConnectionId::default(),
            endpoint: 0,
            failures: 0,
            last_failure: Arc::from("not connected yet"),
            next_id: 1,
            requests: HashMap::new(),
            deadlines: BTreeSet::new(),
            outbox: Outbox::default(),
            held: BTreeSet::new(),
            resume_at: None,
            releases: Releases::default(),
            reports: Reports::default(),
            resources: Resources::default(),
            hello: None,
            events: VecDeque::new(),
        }
    }

    /// Takes a request; it ends with exactly one [`Event::Complete`], unless it is cancelled.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::TooLarge`], [`Error::Closed`]: the request is not taken.
    pub fn submit(
        &mut self,
        name: &'static str,
        ask: Ask,
        deadline: Moment,
    ) -> Result<RequestId, Error> {
        if self.state == State::Closed {
            return Err(Error::Closed);
        }
        // A report is owed, and there is none without a branch that was under way.
        let is_report = matches!(ask, Ask::ReportBranch(_));
        if self.requests.len() >= self.settings.requests_max && !is_report {
            return Err(Error::QueueFull { max: self.settings.requests_max });
        }
        let id = RequestId(self.next_id);
        let message = ClientMessage { id: id.0, body: Some(ask) };
        let frame = Frame::of(&message);
        Outbox::check_size(&frame)?;
        self.next_id += 1;
        if message.body.is_none_or(|ask| self.reports.lets_pass(id, &ask)) {
            self.outbox.push_request(id);
        }
        self.requests.insert(id, Pending { name, frame, deadline, sent: false });
        self.deadlines.insert((deadline, id));
        Ok(id)
    }

    /// The asker is gone: nobody waits for the answer. A request that was not sent yet never is.
    pub fn cancel(&mut self, id: RequestId) {
        self.remove(id);
    }

    /// Makes this process an RM of a resource, on this connection and on every later one.
    pub fn register_resource(&mut self, resource: Resource) {
        self.resources.add(resource);
    }

    /// Takes outcomes of phase two. Unsent ones wait for the next connection; one that was sent and
    /// lost is not repeated, since the coordinator asks for the branch again.
    pub fn finished(&mut self, outcomes: Vec<BranchOutcome>) {
        self.outbox.push_outcomes(outcomes);
    }

    /// The transport of an attempt is up.
    pub fn connected(&mut self, connection: ConnectionId) {
        if let State::Dialling { give_up_at } = self.state
            && connection == self.connection
        {
            self.state = State::Greeting { give_up_at };
        }
    }

    /// The transport of an attempt is gone, or was never up.
    pub fn disconnected(&mut self, now: Moment, connection: ConnectionId, failure: Failure) {
        let apart = matches!(self.state, State::Apart { .. } | State::Closed);
        if connection == self.connection && !apart {
            self.part(now, failure);
        }
    }

    /// Takes what the coordinator sent.
    pub fn receive(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        messages: impl IntoIterator<Item = ServerMessage>,
    ) {
        for message in messages {
            // One of these very messages may have ended the connection.
            let live = matches!(self.state, State::Greeting { .. } | State::Ready);
            if connection == self.connection && live {
                self.receive_one(now, RequestId(message.id), message.body);
            }
        }
    }

    /// Lets time pass: dials, gives up, lets requests run out of time.
    pub fn tick(&mut self, now: Moment) {
        match self.state {
            State::Apart { dial_at } if dial_at <= now => self.dial(now),
            State::Dialling { give_up_at } | State::Greeting { give_up_at }
                if give_up_at <= now =>
            {
                let waited = self.settings.connect_timeout;
                let reason = format!("not greeted within {waited:?}");
                self.hang_up(now, Failure::Passing(reason.into()));
            }
            State::Apart { .. }
            | State::Dialling { .. }
            | State::Greeting { .. }
            | State::Ready
            | State::Closed => {}
        }
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.expire(id);
        }
        if self.resume_at.is_some_and(|at| at <= now) {
            self.resume();
        }
    }

    /// When the shell should call [`tick`](Self::tick) next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        let request = self.deadlines.first().map(|&(deadline, _)| deadline);
        let state = match self.state {
            State::Apart { dial_at } => Some(dial_at),
            State::Dialling { give_up_at } | State::Greeting { give_up_at } => Some(give_up_at),
            State::Ready | State::Closed => None,
        };
        request.into_iter().chain(state).chain(self.resume_at).min()
    }

    /// Ends everything: every unanswered request with [`Error::Closed`], the connection, the
    /// dialling.
    pub fn close(&mut self) {
        if !matches!(self.state, State::Apart { .. } | State::Closed) {
            self.events.push_back(Event::HangUp { connection: self.connection });
        }
        self.state = State::Closed;
        let mut unanswered: Vec<RequestId> = self.requests.drain().map(|(id, _)| id).collect();
        unanswered.sort_unstable();
        for id in unanswered {
            self.events.push_back(Event::Complete { id, result: Err(Error::Closed) });
        }
        self.deadlines.clear();
        self.reports = Reports::default();
        self.held.clear();
        self.resume_at = None;
        self.outbox.clear();
    }

    /// Whether no request waits for an answer.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether it has been closed.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.state == State::Closed
    }

    /// What has to happen outside, oldest first.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether [`next_frame`](Self::next_frame) has something for the current connection.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        match self.state {
            State::Greeting { .. } => self.hello.is_none(),
            State::Ready => self.resources.wait() || !self.outbox.is_empty(),
            State::Apart { .. } | State::Dialling { .. } | State::Closed => false,
        }
    }

    /// Everything that is due on a connection, as far as it fits one frame.
    pub fn next_frame(&mut self, connection: ConnectionId) -> Option<Frame> {
        if connection != self.connection || !self.wants_to_send() {
            return None;
        }
        // `Hello` goes alone: nothing is sent to a coordinator that has not greeted.
        let Some(_) = self.hello else {
            return Some(Frame::of(&self.greet()));
        };
        let announcement = self.announce();
        let requests = &mut self.requests;
        let frame = self.outbox.drain(announcement, |id, frame| {
            let pending = requests.get_mut(&id).expect("a queued request is unanswered");
            pending.sent = true;
            // It stays here too: it may have to be sent again.
            frame.append(&pending.frame);
        });
        Some(frame)
    }

    fn receive_one(&mut self, now: Moment, id: RequestId, answer: Option<Answer>) {
        match answer {
            Some(Answer::Hello(hello)) => self.greeted(hello),
            Some(Answer::PhaseTwo(call)) => self.events.push_back(Event::PhaseTwo(call)),
            Some(Answer::GoAway(notice)) => self.go_away(now, notice),
            Some(Answer::RegisterResources(_)) => self.resources.accept(id),
            Some(Answer::Rejected(refusal)) if self.hello == Some(id) => {
                let reason = format!("{} ({})", refusal.message, refusal.code);
                self.hang_up(now, Failure::Passing(reason.into()));
            }
            Some(Answer::Rejected(refusal)) if self.resources.are_asked(id) => {
                if let Some(resource) = self.resources.refuse(id) {
                    self.events.push_back(Event::ResourceRefused { resource, refusal });
                }
            }
            Some(Answer::Rejected(refusal)) if ELSEWHERE.contains(&refusal.code.as_str()) => {
                self.hang_up(now, Failure::Passing(refusal.message.into()));
            }
            Some(Answer::Rejected(refusal)) if refusal.code == LATER => self.hold(now, id),
            Some(Answer::ReleaseLock(reply)) => self.released(now, id, reply),
            Some(answer @ Answer::AcquireLock(_)) => {
                self.releases.are_stored(id);
                self.complete(id, Ok(answer));
            }
            Some(
                answer @ (Answer::Begin(_)
                | Answer::RegisterBranch(_)
                | Answer::ReportBranch(_)
                | Answer::CheckLocks(_)
                | Answer::End(_)
                | Answer::GetStatus(_)
                | Answer::Saga(_)
                | Answer::RenewLocks(_)
                | Answer::FindLock(_)
                | Answer::TryBranch(_)
                | Answer::Rejected(_)),
            ) => self.complete(id, Ok(answer)),
            // A kind of message that a later coordinator may know: nobody here waits for it.
            None => {}
        }
    }

    fn greeted(&mut self, hello: v1::HelloReply) {
        if let State::Greeting { .. } = self.state {
            self.state = State::Ready;
            self.failures = 0;
            self.events.push_back(Event::Greeted { hello });
        }
    }

    /// The leader that a notice names is tried next, if it is one of the endpoints: a token is not
    /// for strangers.
    fn go_away(&mut self, now: Moment, notice: v1::GoAway) {
        let reason = format!("the coordinator goes away: {}", notice.reason);
        self.hang_up(now, Failure::Passing(reason.into()));
        let leader = notice.leader.trim_end_matches('/');
        let is_leader = |endpoint: &String| endpoint.trim_end_matches('/') == leader;
        if let Some(endpoint) = self.settings.endpoints.iter().position(is_leader) {
            self.endpoint = endpoint;
        }
    }

    fn dial(&mut self, now: Moment) {
        self.connection.0 += 1;
        self.hello = None;
        self.resources.start_over();
        self.state = State::Dialling { give_up_at: now.after(self.settings.connect_timeout) };
        let (connection, endpoint) = (self.connection, self.endpoint);
        self.events.push_back(Event::Dial { connection, endpoint });
    }

    fn hang_up(&mut self, now: Moment, failure: Failure) {
        self.events.push_back(Event::HangUp { connection: self.connection });
        self.part(now, failure);
    }

    fn part(&mut self, now: Moment, failure: Failure) {
        let delay = self.back_off();
        let retry_at = now.after(delay);
        self.endpoint = (self.endpoint + 1) % self.settings.endpoints.len();
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Arc::clone(failure.reason());
        self.state = State::Apart { dial_at: retry_at };
        self.resume();
        self.release_again(now);
        let requests = self.requests.keys().copied();
        self.outbox.requeue(requests.filter(|id| !self.reports.keep_back(*id)));
        self.events.push_back(Event::Parted { failure, retry_at });
    }

    fn hold(&mut self, now: Moment, id: RequestId) {
        if self.requests.contains_key(&id) {
            self.held.insert(id);
            self.resume_at.get_or_insert(now.after(self.settings.back_off_base));
        }
    }

    fn resume(&mut self) {
        self.resume_at = None;
        for id in std::mem::take(&mut self.held) {
            self.outbox.push_request(id);
        }
    }

    /// How long to wait before the next attempt: between half and all of a pause that doubles when
    /// every endpoint has had its turn.
    fn back_off(&mut self) -> Duration {
        let endpoints = u32::try_from(self.settings.endpoints.len()).unwrap_or(u32::MAX);
        let doublings = (self.failures / endpoints).min(30);
        let pause = self.settings.back_off_base.saturating_mul(1 << doublings);
        let pause = pause.min(self.settings.back_off_max);
        pause.mul_f64(self.jitter.random_range(0.5..=1.0))
    }

    fn greet(&mut self) -> ClientMessage {
        let id = self.fresh_id();
        self.hello = Some(id);
        let hello = v1::Hello {
            client_id: self.settings.client_id.clone(),
            application: self.settings.application.clone(),
            agent: concat!("handfast-rust/", env!("CARGO_PKG_VERSION")).to_owned(),
            resources: self.resources.accepted(),
        };
        ClientMessage { id: id.0, body: Some(Ask::Hello(hello)) }
    }

    /// The resources that this connection does not know of yet.
    fn announce(&mut self) -> Option<ClientMessage> {
        let id = self.resources.wait().then(|| self.fresh_id())?;
        let resources = self.resources.announce(id);
        let body = Ask::RegisterResources(v1::RegisterResources { resources });
        Some(ClientMessage { id: id.0, body: Some(body) })
    }

    fn expire(&mut self, id: RequestId) {
        // Sent now, they would be carried out as if nothing had been reported.
        for behind in self.reports.behind(id) {
            self.expire(behind);
        }
        let pending = self.requests.get(&id).expect("deadlines are exactly those of the requests");
        let error = if pending.sent {
            Error::Unanswered { request: pending.name }
        } else {
            Error::Unreachable { reason: Arc::clone(&self.last_failure) }
        };
        self.complete(id, Err(error));
    }

    /// Ends a request. One that has ended before (a doubled or late answer) is left alone.
    fn complete(&mut self, id: RequestId, result: Result<Answer, Error>) {
        if self.remove(id).is_some() {
            self.events.push_back(Event::Complete { id, result });
        }
    }

    fn released(&mut self, now: Moment, id: RequestId, reply: v1::ReleaseLockReply) {
        let Some(pending) = self.remove(id) else { return };
        if reply.was_held {
            self.releases.note(now, RequestId(self.next_id), pending.frame);
        }
        let result = Ok(Answer::ReleaseLock(reply));
        self.events.push_back(Event::Complete { id, result });
    }

    /// Nobody waits for these any more; where there is no room for one, its lease ends by time.
    fn release_again(&mut self, now: Moment) {
        for release in self.releases.take() {
            if self.submit("release_lock", release, now.after(RELEASE_DEADLINE)).is_err() {
                return;
            }
        }
    }

    fn remove(&mut self, id: RequestId) -> Option<Pending> {
        let pending = self.requests.remove(&id)?;
        self.deadlines.remove(&(pending.deadline, id));
        self.outbox.remove_request(id);
        self.held.remove(&id);
        for freed in self.reports.end(id) {
            self.outbox.push_request(freed);
        }
        Some(pending)
    }

    fn fresh_id(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }
}

#[cfg(test)]
mod tests;
