//! The link as a state machine: what to send, which request to answer, when to dial.
//!
//! There is no socket, clock, task or random source here: time is an argument, jitter comes from a
//! seed, and everything that has to happen outside comes out as [`Event`]s and frames. A driver
//! carries them out.
//!
//! ```text
//!                  an attempt is up, says Hello, and Hello is answered
//!   Searching ───────────────────────────────────────────────────────▶ Ready
//!       ▲             disconnected, GoAway, no sign of life              │
//!       └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A [`Search`] dials several targets, and an attempt counts for nothing before it is greeted: the
//! others are dropped then. This process may say Hello on two attempts at a time; the coordinator
//! takes that for a reconnect, and sends its calls on the connection that stays.
//!
//! A coordinator that is stopping or does not lead refuses requests without having carried them
//! out. That ends the connection, not the request. A busy coordinator gets the request again a
//! little later.
//!
//! A request lives from `submit` until it is answered, runs out of time, or is cancelled, whatever
//! happens to connections meanwhile: after a reconnect every unanswered one is sent again under its
//! id. All requests of the API may be repeated. A `Begin` with a lent XID begins one global however
//! often it is sent; one without leaves an orphan that expires. Releases of locks that were
//! answered shortly before are sent again too: see [`Releases`].

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, BranchOutcome, ClientMessage, Resource, ServerMessage};
use hashbrown::HashMap;

use super::begins::Begins;
use super::epochs::Epochs;
use super::error::RequestError;
use super::event::{ConnectionFailure, ConnectionId, Event, Moment, RequestId};
use super::frame::Frame;
use super::heartbeat::Heartbeat;
use super::releases::Releases;
use super::reports::Reports;
use super::resources::Resources;
use super::search::Search;
use super::send_queue::SendQueue;
use super::settings::Settings;
use super::stock::XidStock;

/// Refusals that ask for another coordinator.
const ELSEWHERE: [&str; 2] = ["HF-TC-STOPPING", "HF-TC-NOT-LEADING"];
/// How long a release that is sent again may take.
const RELEASE_DEADLINE: Duration = Duration::from_secs(30);
/// The refusal that asks for another time.
const LATER: &str = "HF-TC-BUSY";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Searching,
    Ready,
    Closed,
}

#[derive(Debug)]
struct Pending {
    name: &'static str,
    frame: Frame,
    deadline: Moment,
    /// Whether a connection has taken it: if so, its outcome may be unknown.
    sent: bool,
}

/// The state machine of one link.
#[derive(Debug)]
pub struct Protocol {
    settings: Settings,
    state: State,
    search: Search,
    /// The connection that was greeted last, and its endpoint.
    connection: ConnectionId,
    endpoint: usize,
    last_failure: ConnectionFailure,
    /// Whether the last failure has ended a round.
    is_reported: bool,
    heartbeat: Heartbeat,
    epochs: Epochs,
    next_id: u64,
    requests: HashMap<RequestId, Pending>,
    /// Exactly the requests of `requests`, by deadline.
    deadlines: BTreeSet<(Moment, RequestId)>,
    send_queue: SendQueue,
    /// Requests that a busy coordinator sent back, and when to send them again.
    held: BTreeSet<RequestId>,
    resume_at: Option<Moment>,
    releases: Releases,
    reports: Reports,
    stock: XidStock,
    begins: Begins,
    resources: Resources,
    events: VecDeque<Event>,
}

impl Protocol {
    /// Makes a link that wants to dial at once.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        assert!(!settings.endpoints.is_empty(), "a link has at least one endpoint");
        Self {
            search: Search::new(&settings, seed),
            settings,
            state: State::Searching,
            connection: ConnectionId::default(),
            endpoint: 0,
            last_failure: ConnectionFailure::Passing(Arc::from("not connected yet")),
            is_reported: false,
            heartbeat: Heartbeat::default(),
            epochs: Epochs::default(),
            next_id: 1,
            requests: HashMap::new(),
            deadlines: BTreeSet::new(),
            send_queue: SendQueue::default(),
            held: BTreeSet::new(),
            resume_at: None,
            releases: Releases::default(),
            reports: Reports::default(),
            stock: XidStock::default(),
            begins: Begins::default(),
            resources: Resources::default(),
            events: VecDeque::new(),
        }
    }

    /// Takes a request; it ends with exactly one [`Event::Complete`], unless it is cancelled.
    ///
    /// # Errors
    /// [`RequestError::QueueFull`], [`RequestError::TooLarge`], [`RequestError::Closed`]: the
    /// request is not taken.
    pub fn submit(
        &mut self,
        now: Moment,
        name: &'static str,
        ask: Ask,
        deadline: Moment,
    ) -> Result<RequestId, RequestError> {
        if self.state == State::Closed {
            return Err(RequestError::Closed);
        }
        // A report is taken beyond the limit: it is owed, and their number is bounded by that of
        // the branches that were under way.
        let is_report = matches!(ask, Ask::ReportBranch(_));
        if self.requests.len() >= self.settings.requests_max && !is_report {
            return Err(RequestError::QueueFull { max: self.settings.requests_max });
        }
        for report in self.reports.take_lost(&ask) {
            self.submit(now, "report_branch", Ask::ReportBranch(report), deadline)?;
        }
        let id = RequestId(self.next_id);
        let message = ClientMessage { id: id.0, body: Some(ask) };
        let frame = Frame::of(&message);
        SendQueue::check_size(&frame)?;
        if let Some(ask) = &message.body {
            self.begins.admit(id, ask)?;
        }
        self.next_id += 1;
        if message.body.is_none_or(|ask| self.reports.admit(id, &ask)) {
            self.send_queue.push_request(id);
        }
        self.requests.insert(id, Pending { name, frame, deadline, sent: false });
        self.deadlines.insert((deadline, id));
        if self.state == State::Ready {
            self.heartbeat.start(now);
        }
        Ok(id)
    }

    /// Cancels a request whose caller is gone. A request that was not sent yet never is, unless it
    /// is a report: without it a commit would be carried out as if nothing had been reported.
    pub fn cancel(&mut self, id: RequestId) {
        if !self.reports.is_unanswered(id) {
            self.remove(id);
        }
    }

    /// Registers a resource of this process, on this connection and on every later one.
    pub fn register_resource(&mut self, resource: Resource) {
        self.resources.add(resource);
    }

    /// Takes outcomes of phase two. Unsent outcomes wait for the next connection; an outcome that
    /// was sent and lost is not repeated, since the coordinator asks for the branch again.
    pub fn finished(&mut self, outcomes: Vec<BranchOutcome>) {
        self.send_queue.push_outcomes(outcomes);
    }

    /// Takes note that the transport of an attempt is gone, or was never up.
    pub fn disconnected(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        failure: ConnectionFailure,
    ) {
        if self.is_ready(connection) {
            self.disconnect(now, failure);
        } else {
            self.attempt_failed(now, connection, failure);
        }
    }

    /// Takes messages of the coordinator.
    pub fn receive(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        messages: impl IntoIterator<Item = ServerMessage>,
    ) {
        for message in messages {
            let id = RequestId(message.id);
            // An earlier one of these messages may have made or ended the connection.
            if self.is_ready(connection) {
                self.receive_one(now, id, message.body);
            } else if self.search.is_under_way(connection) {
                self.receive_greeting(now, connection, id, message.body);
            }
        }
        if self.is_ready(connection) {
            self.heartbeat.heard(now, !self.requests.is_empty());
        }
    }

    /// Lets time pass: dials, gives up attempts, ends requests that are out of time.
    pub fn tick(&mut self, now: Moment) {
        match self.state {
            State::Searching => self.go_on_searching(now),
            State::Ready if self.heartbeat.is_lost(now) => {
                let endpoint = &self.settings.endpoints[self.endpoint];
                let reason = format!("{endpoint}: no sign of life while answers are owed");
                self.hang_up(now, ConnectionFailure::Passing(reason.into()));
            }
            State::Ready | State::Closed => {}
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

    /// Returns when the driver should call [`tick`](Self::tick) next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        let request = self.deadlines.first().map(|&(deadline, _)| deadline);
        let state = match self.state {
            State::Searching => self.search.next_deadline(),
            State::Ready => self.heartbeat.next_deadline(),
            State::Closed => None,
        };
        request.into_iter().chain(state).chain(self.resume_at).min()
    }

    /// Ends everything: every unanswered request with [`RequestError::Closed`], the connection, the
    /// dialling.
    pub fn close(&mut self) {
        let connection = (self.state == State::Ready).then_some(self.connection);
        for connection in connection.into_iter().chain(self.search.end()) {
            self.events.push_back(Event::HangUp { connection });
        }
        self.state = State::Closed;
        let mut unanswered: Vec<RequestId> = self.requests.drain().map(|(id, _)| id).collect();
        // The order of a hash map must not show (PURE).
        unanswered.sort_unstable();
        for id in unanswered {
            self.events.push_back(Event::Complete { id, result: Err(RequestError::Closed) });
        }
        self.deadlines.clear();
        self.reports = Reports::default();
        (self.stock, self.begins) = Default::default();
        self.held.clear();
        self.resume_at = None;
        self.send_queue.clear();
    }

    /// Returns whether no request waits for an answer.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns whether it has been closed.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Takes the oldest event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether [`next_frame`](Self::next_frame) has something for the current connection.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        let has_some =
            self.resources.wait() || !self.send_queue.is_empty() || self.heartbeat.asks();
        self.state == State::Ready && has_some
    }

    /// Takes everything that is due on a connection, as far as it fits one frame.
    pub fn next_frame(&mut self, connection: ConnectionId) -> Option<Frame> {
        // `Hello` goes alone: nothing is sent to a coordinator that has not greeted.
        if self.search.can_greet(connection) {
            return Some(Frame::of(&self.greet(connection)));
        }
        if !self.is_ready(connection) || !self.wants_to_send() {
            return None;
        }
        let announcement = self.announce();
        let requests = &mut self.requests;
        let frame = self.send_queue.drain(announcement, |id, frame| {
            let pending = requests.get_mut(&id).expect("a queued request is unanswered");
            pending.sent = true;
            // It is kept: it may have to be sent again.
            frame.append(&pending.frame);
        });
        Some(frame)
    }

    fn receive_one(&mut self, now: Moment, id: RequestId, answer: Option<Answer>) {
        match answer {
            Some(Answer::PhaseTwo(call)) => self.events.push_back(Event::PhaseTwo(call)),
            Some(Answer::GoAway(notice)) => self.leave(now, &notice),
            Some(Answer::RegisterResources(_)) => self.resources.accept(id),
            Some(Answer::Rejected(refusal)) if self.resources.are_asked(id) => {
                if let Some(resource) = self.resources.refuse(id) {
                    self.events.push_back(Event::ResourceRefused { resource, refusal });
                }
            }
            Some(Answer::Rejected(refusal)) if ELSEWHERE.contains(&refusal.code.as_str()) => {
                self.hang_up(now, ConnectionFailure::Passing(refusal.message.into()));
            }
            Some(Answer::Rejected(refusal)) if refusal.code == LATER => self.hold(now, id),
            Some(Answer::Rejected(refusal)) => self.refused(id, refusal),
            Some(Answer::Begin(reply)) => self.begun(now, id, reply),
            Some(Answer::ReleaseLock(reply)) => self.released(now, id, reply),
            Some(answer @ Answer::AcquireLock(_)) => {
                self.releases.are_stored(id);
                self.complete(id, Ok(answer));
            }
            Some(
                answer @ (Answer::RegisterBranch(_)
                | Answer::ReportBranch(_)
                | Answer::CheckLocks(_)
                | Answer::End(_)
                | Answer::GetStatus(_)
                | Answer::Saga(_)
                | Answer::RenewLocks(_)
                | Answer::FindLock(_)
                | Answer::TryBranch(_)
                | Answer::ReportOutbox(_)),
            ) => self.complete(id, Ok(answer)),
            // A second greeting, or a kind of message of a later coordinator: no request waits for
            // it.
            Some(Answer::Hello(_)) | None => {}
        }
    }

    fn is_ready(&self, connection: ConnectionId) -> bool {
        self.state == State::Ready && connection == self.connection
    }

    fn hang_up(&mut self, now: Moment, failure: ConnectionFailure) {
        self.events.push_back(Event::HangUp { connection: self.connection });
        self.disconnect(now, failure);
    }

    fn disconnect(&mut self, now: Moment, failure: ConnectionFailure) {
        let retry_at = self.search.begin_after(now, self.endpoint);
        (self.last_failure, self.is_reported) = (failure.clone(), true);
        self.state = State::Searching;
        self.epochs.disconnect(now);
        self.heartbeat.stop();
        self.resources.start_over();
        self.stock.clear();
        self.begins.start_over();
        self.resume();
        self.release_again(now);
        let requests = self.requests.keys().copied();
        self.send_queue.requeue(requests.filter(|id| !self.reports.holds_back(*id)));
        self.events.push_back(Event::Disconnected { failure, retry_at });
    }

    fn hold(&mut self, now: Moment, id: RequestId) {
        // Its caller may have gone meanwhile.
        if self.requests.contains_key(&id) {
            self.held.insert(id);
            self.resume_at.get_or_insert(now.after(self.settings.back_off_base));
        }
    }

    fn resume(&mut self) {
        self.resume_at = None;
        for id in std::mem::take(&mut self.held) {
            self.send_queue.push_request(id);
        }
    }

    /// Announces the resources that this connection does not know of yet. An announcement of none
    /// asks for a sign of life: the coordinator answers it at once, whatever else it waits for.
    fn announce(&mut self) -> Option<ClientMessage> {
        let is_due = self.resources.wait() || self.heartbeat.asks();
        let id = is_due.then(|| self.fresh_id())?;
        self.heartbeat.asked();
        let resources =
            if self.resources.wait() { self.resources.announce(id) } else { Vec::new() };
        let body = Ask::RegisterResources(v1::RegisterResources { resources });
        Some(ClientMessage { id: id.0, body: Some(body) })
    }

    fn expire(&mut self, id: RequestId) {
        // A commit that is sent after this would be carried out as if nothing had been reported.
        for behind in self.reports.behind(id) {
            self.expire(behind);
        }
        self.reports.lose(id);
        let pending = self.requests.get(&id).expect("deadlines are exactly those of the requests");
        let error = if pending.sent {
            RequestError::Unanswered { request: pending.name }
        } else {
            RequestError::Unreachable { reason: Arc::clone(self.last_failure.reason()) }
        };
        // What follows a begin must not take effect after its caller was told that it failed.
        for follower in self.begins.lose(id, &error) {
            self.expire(follower);
        }
        self.complete(id, Err(error));
    }

    /// Ends a request, unless it has ended before: an answer may be doubled or late.
    fn complete(&mut self, id: RequestId, result: Result<Answer, RequestError>) {
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

    /// Sends releases again, whose callers have their answer. A lock whose release finds no room
    /// stays held until its lease ends.
    fn release_again(&mut self, now: Moment) {
        for release in self.releases.take() {
            if self.submit(now, "release_lock", release, now.after(RELEASE_DEADLINE)).is_err() {
                return;
            }
        }
    }

    fn remove(&mut self, id: RequestId) -> Option<Pending> {
        let pending = self.requests.remove(&id)?;
        self.deadlines.remove(&(pending.deadline, id));
        self.send_queue.remove_request(id);
        self.held.remove(&id);
        self.stock.end(id);
        for freed in self.reports.end(id).into_iter().chain(self.begins.end(id)) {
            self.send_queue.push_request(freed);
        }
        Some(pending)
    }

    fn fresh_id(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }
}

mod beginning;
mod leaving;
mod searching;
#[cfg(test)]
mod tests;
